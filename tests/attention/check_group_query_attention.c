/* check_group_query_attention.c - caches of 8 and 4 bits of com.microsoft
 * GroupQueryAttention against what their numbers stand for and softmax in double, and its
 * refusals. onnxruntime is compared in tests/ops/check_contrib.py. */
#include <stdlib.h>

#include "plain_softmax.h"

struct grouped {
    int64_t batch, tokens, past, heads, kv_heads, dim, bits, window;
    bool by_channel;
    int32_t lens[4]; /* keys of a sample */
};

static int64_t total(const struct grouped *g) { return g->past + g->tokens; }

static int sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                double *score)
{
    const struct grouped *g = arg;
    const int64_t position = g->lens[b] - g->tokens + i;
    (void)h;
    (void)score;
    return j <= position && (g->window < 0 || j > position - g->window);
}

static int bits_at(const struct grouped *g, const void *data, int64_t token, int64_t d)
{
    if (g->bits == 8)
        return ((const int8_t *)data)[token * g->dim + d];
    const uint8_t pair = ((const uint8_t *)data)[token * (g->dim / 2) + d / 2];
    return (d % 2 == 0 ? pair & 15 : pair >> 4) - 8;
}

static float *scales(struct check *c, const struct grouped *g, const char *name)
{
    const int64_t n = g->by_channel ? g->kv_heads * g->dim : 1;
    float *made = check_data(c, name, ATTNRUN_F32, DIMS(n));
    for (int64_t i = 0; i < n; i++)
        made[i] = ldexpf(1.0f, (int)check_below(c, 3) - (g->bits == 8 ? 7 : 3));
    return made;
}

/* The new tokens `x`, multiples of the scales, and the past as (batch, tokens, heads,
 * dim), and `present` as bytes. */
static float *make_cache(struct check *c, const struct grouped *g, const void *past,
                         float *x, const float *scale, double *present)
{
    const int64_t row = g->bits == 8 ? g->dim : g->dim / 2, max = g->bits == 8 ? 128 : 8;
    float *made =
        calloc((size_t)(g->batch * total(g) * g->kv_heads * g->dim + 1), sizeof *made);
    for (int64_t at = 0; at < g->batch * g->kv_heads * total(g) * g->dim; at++) {
        const int64_t d = at % g->dim, t = at / g->dim % total(g),
                      head = at / g->dim / total(g), b = head / g->kv_heads,
                      h = head % g->kv_heads, first = g->lens[b] - g->tokens;
        const float unit = scale[g->by_channel ? h * g->dim + d : 0];
        const bool fresh = t >= first && t < g->lens[b];
        int64_t whole = 0;
        if (t < first)
            whole = bits_at(g, past, head * g->past + t, d);
        else if (fresh)
            whole = check_below(c, 2 * max) - max;
        if (fresh) /* the last number is cut where it is too large */
            x[((b * g->tokens + t - first) * g->kv_heads + h) * g->dim + d] =
                unit * (float)(whole == max - 1 ? 3 * max : whole);
        made[((b * total(g) + t) * g->kv_heads + h) * g->dim + d] = unit * (float)whole;
        const bool empty = t >= g->lens[b];
        double *byte = present + (head * total(g) + t) * row + (g->bits == 8 ? d : d / 2);
        if (g->bits == 8)
            *byte = (double)whole;
        else if (!empty)
            *byte += (double)(whole + 8) * (d % 2 == 0 ? 1 : 16);
    }
    return made;
}

static void random_case(struct check *c, struct grouped *g)
{
    const int32_t dtype = g->bits == 8 ? ATTNRUN_I8 : ATTNRUN_U8;
    const int64_t row = g->bits == 8 ? g->dim : g->dim / 2;
    check_begin(c, "com.microsoft::GroupQueryAttention");
    check_int(c, "num_heads", g->heads);
    check_int(c, "kv_num_heads", g->kv_heads);
    check_int(c, "kv_cache_bit_width", g->bits);
    check_int(c, "local_window_size", g->window);
    check_string(c, "k_quant_type", g->by_channel ? "PER_CHANNEL" : "PER_TENSOR");
    check_string(c, "v_quant_type", g->by_channel ? "PER_CHANNEL" : "PER_TENSOR");
    const float *q = check_f32(c, "q", DIMS(g->batch, g->tokens, g->heads * g->dim));
    float *x[2], *made[2];
    uint8_t *past[2];
    for (int i = 0; i < 2; i++)
        x[i] = check_f32(c, i == 0 ? "k" : "v",
                         DIMS(g->batch, g->tokens, g->kv_heads * g->dim));
    for (int i = 0; i < 2; i++) {
        past[i] = check_data(c, i == 0 ? "past_k" : "past_v", dtype,
                             DIMS(g->batch, g->kv_heads, g->past, row));
        for (int64_t j = 0; j < g->batch * g->kv_heads * g->past * row; j++)
            past[i][j] = (uint8_t)check_below(c, 256);
    }
    int32_t *last = check_data(c, "seqlens_k", ATTNRUN_I32, DIMS(g->batch));
    for (int64_t b = 0; b < g->batch; b++)
        last[b] = g->lens[b] - 1;
    *(int32_t *)check_data(c, "total", ATTNRUN_I32, DIMS(1)) = (int32_t)total(g);
    check_constant(c);
    for (int i = 0; i < 5; i++)
        check_absent(c);
    const float *scale[2] = { scales(c, g, "k_scale"), scales(c, g, "v_scale") };
    double *y = check_output(c, "y", DIMS(g->batch, g->tokens, g->heads * g->dim));
    for (int i = 0; i < 2; i++)
        made[i] = make_cache(c, g, past[i], x[i], scale[i],
                             check_output_of(c, i == 0 ? "present_k" : "present_v", dtype,
                                             DIMS(g->batch, g->kv_heads, total(g), row)));
    const struct plain_sizes sizes = { g->batch,    g->tokens,
                                       total(g),    g->heads,
                                       g->kv_heads, g->dim,
                                       g->dim,      1 / sqrt((double)g->dim) };
    plain_softmax(&sizes, q, made[0], made[1], sees, g, y);
    check_run(c, CHECK_B);
    for (int i = 0; i < 2; i++)
        free(made[i]);
}

/* What a refusal is about. */
struct wrong {
    int64_t bits, qk_output, sliding, window, past_dim, scales;
    const char *k_type, *v_type;
    int32_t past;
    bool no_scale, norm, wants_qk;
};
static const struct wrong right = { .bits = 8,
                                    .window = -1,
                                    .past_dim = 8,
                                    .scales = 1,
                                    .k_type = "PER_TENSOR",
                                    .v_type = "PER_TENSOR",
                                    .past = ATTNRUN_I8 };

static void refuses(struct check *c, struct wrong w, attnrun_status status,
                    const char *words)
{
    c->blank = true;
    check_begin(c, "com.microsoft::GroupQueryAttention");
    check_int(c, "num_heads", 4);
    check_int(c, "kv_num_heads", 2);
    check_int(c, "kv_cache_bit_width", w.bits);
    check_int(c, "qk_output", w.qk_output);
    check_int(c, "sliding_window_cache", w.sliding);
    check_int(c, "local_window_size", w.window);
    check_string(c, "k_quant_type", w.k_type);
    check_string(c, "v_quant_type", w.v_type);
    check_f32(c, "q", DIMS(1, 1, 32));
    check_f32(c, "k", DIMS(1, 1, 16));
    check_f32(c, "v", DIMS(1, 1, 16));
    check_data(c, "past_k", w.past, DIMS(1, 2, 3, w.past_dim));
    check_data(c, "past_v", w.past, DIMS(1, 2, 3, w.past_dim));
    *(int32_t *)check_data(c, "seqlens_k", ATTNRUN_I32, DIMS(1)) = 3;
    *(int32_t *)check_data(c, "total", ATTNRUN_I32, DIMS(1)) = 4;
    check_constant(c);
    for (int i = 0; i < 5; i++)
        check_absent(c);
    check_f32(c, "k_scale", DIMS(w.scales));
    if (w.no_scale)
        check_absent(c);
    else
        check_f32(c, "v_scale", DIMS(w.scales));
    if (w.norm)
        check_f32(c, "q_norm", DIMS(8));
    check_output(c, "y", DIMS(1, 1, 32));
    check_output_of(c, "present_k", w.past, DIMS(1, 2, 4, w.past_dim));
    check_output_of(c, "present_v", w.past, DIMS(1, 2, 4, w.past_dim));
    if (w.wants_qk)
        check_output(c, "qk", DIMS(1, 4, 1, 4));
    check_refuses(c, status, words);
}

static void refusals(struct check *c)
{
    struct wrong w = right;
    w.k_type = "PER_CHANNEL";
    refuses(c, w, ATTNRUN_E_UNSUPPORTED, "k_quant_type and v_quant_type differ");
    w = right, w.bits = 2;
    refuses(c, w, ATTNRUN_E_ATTR, "kv_cache_bit_width is 2|8 or 4");
    w = right, w.k_type = w.v_type = "NONE";
    refuses(c, w, ATTNRUN_E_ATTR, "kv_cache_bit_width is 8|0 without");
    w = right, w.past = ATTNRUN_F32;
    refuses(c, w, ATTNRUN_E_DTYPE, "past_k|expected i8");
    w = right, w.bits = 4, w.past = ATTNRUN_U8;
    refuses(c, w, ATTNRUN_E_SHAPE, "past_k|the dim of a head");
    w = right, w.scales = 16;
    refuses(c, w, ATTNRUN_E_SHAPE, "k_scale|expected 1 element");
    w = right, w.k_type = w.v_type = "PER_CHANNEL";
    refuses(c, w, ATTNRUN_E_SHAPE, "k_scale|expected 16 elements");
    w = right, w.no_scale = true;
    refuses(c, w, ATTNRUN_E_INPUT, "v_scale is missing");
    w = right, w.norm = true;
    refuses(c, w, ATTNRUN_E_UNSUPPORTED, "q_norm|not supported");
    w = right, w.sliding = 1;
    refuses(c, w, ATTNRUN_E_ATTR, "sliding_window_cache needs local_window_size");
    w.window = 4;
    refuses(c, w, ATTNRUN_E_SHAPE, "past_k|local_window_size, 4, in dim 2");
    w.window = 3, w.qk_output = 1, w.wants_qk = true;
    refuses(c, w, ATTNRUN_E_UNSUPPORTED,
            "output_qk is not supported with sliding_window_cache");
    w = right, w.qk_output = 3;
    refuses(c, w, ATTNRUN_E_ATTR, "'qk_output' is 3");
    w = right, w.wants_qk = true;
    refuses(c, w, ATTNRUN_E_ATTR, "output_qk needs attribute qk_output");
}

void check_group_query_attention(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        struct grouped g = { .batch = check_between(c, 0, 3),
                             .tokens = check_chance(c, 50) ? 1 : check_between(c, 1, 90),
                             .past = check_between(c, 0, c->round % 8 == 0 ? 1400 : 40),
                             .kv_heads = check_between(c, 1, 3),
                             .dim = 2 * check_between(c, 1, 20),
                             .bits = check_chance(c, 50) ? 8 : 4,
                             .window = -1,
                             .by_channel = check_chance(c, 50) };
        g.heads = g.kv_heads * check_between(c, 1, 3);
        if (check_chance(c, 30))
            g.window = check_between(c, 1, 30);
        for (int64_t b = 0; b < 4; b++)
            g.lens[b] = (int32_t)(g.tokens + check_between(c, 0, g.past));
        random_case(c, &g);
    }
    struct grouped wide = {
        .batch = 1, .tokens = 300, .kv_heads = 1, .heads = 2, .dim = 4
    };
    wide.bits = 8, wide.window = INT64_MAX, wide.lens[0] = 300;
    random_case(c, &wide);
    refusals(c);
}

/* check_attention.c - ai.onnx Attention against its formula, also as the example of a
 * check: see harness.h. */
#include "operator_harness.h"

struct sizes {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim;
    bool causal;
    int64_t left, right; /* windows; -1: none */
    bool scaled;         /* by `scale` */
    float scale;
    bool masked; /* by integers (q_len, kv_len), which are added */
    const int16_t *mask;
};

/* Scores of query i of head h; false where it sees no key. */
static bool softmax_row(const struct sizes *s, const float *q, const float *k, int64_t b,
                        int64_t h, int64_t i, double *p)
{
    const int64_t g = h / (s->q_heads / s->kv_heads), width = s->kv_heads * s->dim;
    const float *row = q + (b * s->q_len + i) * s->q_heads * s->dim + h * s->dim;
    double max = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < s->kv_len; j++) {
        const float *key = k + (b * s->kv_len + j) * width + g * s->dim;
        p[j] = 0;
        for (int64_t d = 0; d < s->dim; d++)
            p[j] += (double)row[d] * (double)key[d];
        const bool hidden = (s->causal && j > i) || (s->left >= 0 && i - j > s->left) ||
                            (s->right >= 0 && j - i > s->right);
        p[j] *= s->scaled ? (double)s->scale : 1 / sqrt((double)s->dim);
        if (s->masked)
            p[j] += s->mask[i * s->kv_len + j];
        p[j] = hidden ? -HUGE_VAL : p[j];
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < s->kv_len && max > -HUGE_VAL; j++)
        sum += exp(p[j] - max);
    for (int64_t j = 0; j < s->kv_len && max > -HUGE_VAL; j++)
        p[j] = exp(p[j] - max) / sum;
    return max > -HUGE_VAL;
}

static void reference(const struct sizes *s, const float *q, const float *k,
                      const float *v, double *y)
{
    double p[2100];
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->q_heads; h++)
            for (int64_t i = 0; i < s->q_len; i++) {
                double *out = y + ((b * s->q_len + i) * s->q_heads + h) * s->v_dim;
                const int64_t g = h / (s->q_heads / s->kv_heads);
                if (!softmax_row(s, q, k, b, h, i, p))
                    continue;
                for (int64_t j = 0; j < s->kv_len; j++)
                    for (int64_t d = 0; d < s->v_dim; d++)
                        out[d] +=
                            p[j] *
                            (double)
                                v[((b * s->kv_len + j) * s->kv_heads + g) * s->v_dim + d];
            }
}

static void build(struct check *c, struct sizes *s)
{
    check_begin(c, "::Attention");
    check_int(c, "q_num_heads", s->q_heads);
    check_int(c, "kv_num_heads", s->kv_heads);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->scaled)
        check_float(c, "scale", s->scale);
    if (s->left >= 0)
        check_int(c, "left_window_size", s->left);
    if (s->right >= 0)
        check_int(c, "right_window_size", s->right);
    float *q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    int16_t *mask = NULL;
    if (s->masked)
        s->mask = mask = check_data(c, "attn_mask", ATTNRUN_I16, 2,
                                    (const int64_t[]){ s->q_len, s->kv_len });
    for (int64_t i = 0; s->masked && i < s->q_len * s->kv_len; i++)
        mask[i] = (int16_t)check_between(c, -3, 3);
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    if (!c->blank)
        reference(s, q, k, v, y);
}

/* Doubles have no float beside them; tests/ops/check_doubles.py has them right. */
static void refuses_types(struct check *c, int32_t v, int32_t mask, const char *words)
{
    c->blank = true;
    check_begin(c, "::Attention");
    check_data(c, "Q", ATTNRUN_F32, DIMS(1, 2, 3, 4));
    check_data(c, "K", ATTNRUN_F32, DIMS(1, 2, 3, 4));
    check_data(c, "V", v, DIMS(1, 2, 3, 4));
    check_data(c, "mask", mask, DIMS(3, 3));
    check_output(c, "Y", DIMS(1, 2, 3, 4));
    check_refuses(c, ATTNRUN_E_UNSUPPORTED, words);
}

void check_attention(struct check *c)
{
    CHECK_ROUNDS(c, 24)
    {
        struct sizes s = { .batch = check_between(c, 0, 2),
                           .q_len = check_between(c, 1, c->round % 4 == 0 ? 300 : 20),
                           .kv_len = check_between(c, 0, c->round % 4 == 0 ? 512 : 40),
                           .kv_heads = check_between(c, 1, 3),
                           .dim = check_between(c, 1, 40),
                           .v_dim = check_between(c, 1, 40),
                           .causal = check_chance(c, 50),
                           .left = -1,
                           .right = -1 };
        s.q_heads = s.kv_heads * check_between(c, 1, 3);
        s.scaled = check_chance(c, 40);
        s.masked = check_chance(c, 30);
        s.scale = check_chance(c, 50) ? 0.3f : 0.0f; /* 0 is no default */
        build(c, &s);
        c->no_twin = s.q_heads != s.kv_heads; /* groups are rows of one matrix there */
        check_run(c, CHECK_A);
    }
    CHECK_ROUNDS(c, 6) /* blocks of queries that end within a panel of a packed tile */
    {
        struct sizes s = { 1, 0, 0, 16, 16, 4, 3, true, -1, -1, false, 0, false, NULL };
        s.q_len = s.kv_len = check_between(c, 257, 500);
        build(c, &s);
        check_run(c, CHECK_A);
    }
    /* Blocks of several groups of rows, which see different parts of a packed tile. */
    CHECK_ROUNDS(c, 12)
    {
        const int64_t n = check_between(c, 256, 700);
        struct sizes s = { 2,  n,  n,     8, 8,     4,   3, check_chance(c, 50),
                           -1, -1, false, 0, false, NULL };
        if (check_chance(c, 60))
            s.left = check_between(c, 0, 300);
        if (check_chance(c, 60))
            s.right = check_between(c, 0, 300);
        build(c, &s);
        check_run(c, CHECK_A);
    }
    /* Windows as wide as an attribute can say, which bound nothing. */
    for (int side = 0; side < 4; side++) {
        struct sizes s = {
            1, 0, 0, 2, 2, 4, 3, side == 3, -1, -1, false, 0, false, NULL
        };
        s.q_len = s.kv_len = 300;
        s.left = side == 1 ? 5 : INT64_MAX - side;
        s.right = side == 2 ? 3 : INT64_MAX;
        build(c, &s);
        check_run(c, CHECK_A);
    }
    /* The keys of few queries and heads are split. */
    CHECK_ROUNDS(c, 16)
    {
        struct sizes s = { .batch = check_between(c, 1, 2),
                           .q_len = check_chance(c, 50) ? 1 : check_between(c, 1, 9),
                           .kv_len = check_between(c, 512, 2100),
                           .kv_heads = check_between(c, 1, 3),
                           .dim = check_between(c, 1, 70),
                           .v_dim = check_between(c, 1, 70),
                           .causal = check_chance(c, 20), /* parts without a key */
                           .left = -1,
                           .right =
                               check_chance(c, 20) ? check_between(c, 0, 1500) : -1 };
        s.q_heads = s.kv_heads * check_between(c, 1, 7);
        s.masked = check_chance(c, 30);
        build(c, &s);
        c->no_twin = s.q_heads != s.kv_heads;
        check_run(c, CHECK_A);
    }
    struct sizes large = { 1,    16384, 16384, 8,     8, 64,    64,
                           true, -1,    -1,    false, 0, false, NULL };
    c->blank = true;
    build(c, &large);
    check_extra_memory(c, 2 << 20);
    large.kv_heads = 3;
    build(c, &large);
    check_refuses(c, ATTNRUN_E_SHAPE, "multiple|of K");
    large.kv_heads = 8;
    build(c, &large);
    check_absent(c);
    check_f32(c, "past_key", 4, (const int64_t[]){ 1, 8, 3, 64 });
    check_refuses(c, ATTNRUN_E_INPUT, "past_key and past_value|only past_key");
    refuses_types(c, ATTNRUN_F64, ATTNRUN_F32, "'V'|expected f32 as Q is");
    refuses_types(c, ATTNRUN_F32, ATTNRUN_F64, "'mask'|expected f32 as Q is");
}

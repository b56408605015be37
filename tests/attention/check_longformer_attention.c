/* check_longformer_attention.c - LongformerAttention against its sets of keys. */
#include "plain_softmax.h"

enum { HEADS = 4 };

struct longformer {
    struct plain_sizes s;
    bool causal;
    int64_t window[HEADS], dilation[HEADS];
    const uint8_t *key_mask, *global_mask;
};

static bool is_key(const struct longformer *l, int64_t b, int64_t j)
{
    return l->key_mask == NULL || l->key_mask[b * l->s.kv_len + j] != 0;
}

static bool is_global(const struct longformer *l, int64_t b, int64_t j)
{
    return l->global_mask != NULL && l->global_mask[b * l->s.kv_len + j] != 0 &&
           is_key(l, b, j);
}

static int near_sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                     double *score)
{
    const struct longformer *l = arg;
    const int64_t t = j - i, reach = l->window[h] * l->dilation[h];
    const bool near = t % l->dilation[h] == 0 && t >= -reach && t <= reach;
    (void)score;
    return is_key(l, b, i) && is_key(l, b, j) && (near || is_global(l, b, j)) &&
           !(l->causal && t > 0) && !is_global(l, b, i);
}

static int global_sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                       double *score)
{
    const struct longformer *l = arg;
    (void)h;
    (void)score;
    return is_global(l, b, i) && is_key(l, b, j);
}

/* y (batch, n, columns) = x w + bias */
static void project(const struct longformer *l, float *y, const float *x, int64_t width,
                    const float *w, const float *bias, int64_t columns)
{
    for (int64_t row = 0; row < l->s.batch * l->s.kv_len; row++)
        for (int64_t c = 0; c < columns; c++) {
            double sum = bias != NULL ? (double)bias[c] : 0;
            for (int64_t d = 0; d < width; d++)
                sum += (double)x[row * width + d] * (double)w[d * columns + c];
            y[row * columns + c] = (float)sum;
        }
}

/* A weight that keeps the size of what it is given. */
static const float *make_weight(struct check *c, const char *name, int64_t width,
                                int64_t columns)
{
    float *w = check_weight(c, name, 2, (const int64_t[]){ width, columns });
    for (int64_t i = 0; i < width * columns; i++)
        w[i] /= sqrtf((float)width);
    return w;
}

/* Global projections by X and weights; `to`: what they give. */
static void make_projected(struct check *c, const struct longformer *l, float *to[3])
{
    static const char *const weights[] = { "Wqg", "Wkg", "Wvg" };
    static const char *const biases[] = { "bqg", "bkg", "bvg" };
    const struct plain_sizes *s = &l->s;
    const int64_t width =
        check_chance(c, 50) ? check_between(c, 1, 6) : check_between(c, 7, 90);
    const float *x, *w[3], *b[3] = { NULL, NULL, NULL };
    for (int i = 0; i < 3; i++)
        check_absent(c);
    x = check_f32(c, "X", 3, (const int64_t[]){ s->batch, s->kv_len, width });
    for (int i = 0; i < 3; i++)
        w[i] =
            make_weight(c, weights[i], width, s->q_heads * (i < 2 ? s->dim : s->v_dim));
    const int n_biases = (int)check_between(c, 0, 3);
    for (int i = 0; i < n_biases; i++)
        b[i] =
            check_weight(c, biases[i], 1,
                         (const int64_t[]){ s->q_heads * (i < 2 ? s->dim : s->v_dim) });
    for (int i = 0; i < 3; i++)
        project(l, to[i], x, width, w[i], b[i], s->q_heads * (i < 2 ? s->dim : s->v_dim));
}

static void set_attributes(struct check *c, struct longformer *l)
{
    const bool windows = check_chance(c, 40), dilations = check_chance(c, 30);
    const int64_t max = check_chance(c, 70) ? 6 : 150;
    check_heads_attrs(c, l->s.q_heads, l->s.q_heads);
    l->s.scale = 1 / sqrt((double)l->s.dim);
    l->causal = check_chance(c, 25);
    if (l->causal)
        check_int(c, "is_causal", 1);
    for (int h = 0; h < HEADS; h++) {
        l->window[h] = h > 0 && !windows ? l->window[0] : check_between(c, 1, max);
        l->dilation[h] = dilations ? check_between(c, 1, 5) : 1;
    }
    check_ints(c, "window", windows ? (int)l->s.q_heads : 1, l->window);
    if (dilations)
        check_ints(c, "dilation", (int)l->s.q_heads, l->dilation);
}

static void random_case(struct check *c, struct longformer *l)
{
    struct plain_sizes *s = &l->s;
    check_begin(c, "LongformerAttention");
    set_attributes(c, l);
    const float *q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    const float *k = check_heads(c, "K", s->batch, s->kv_len, s->q_heads, s->dim);
    const float *v = check_heads(c, "V", s->batch, s->kv_len, s->q_heads, s->v_dim);
    const size_t rows = (size_t)(s->batch * s->kv_len * s->q_heads + 1);
    float *made[3] = { malloc(rows * (size_t)s->dim * sizeof(float)),
                       malloc(rows * (size_t)s->dim * sizeof(float)),
                       malloc(rows * (size_t)s->v_dim * sizeof(float)) };
    const float *own[3] = { q, k, v };
    if (check_chance(c, 60))
        l->key_mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    else
        check_absent(c);
    if (!l->causal && check_chance(c, 80)) {
        l->global_mask = check_mask(c, "global_mask", s->batch, s->kv_len);
        const int64_t form = check_below(c, 3);
        if (form == 1) {
            own[0] = check_heads(c, "Qg", s->batch, s->q_len, s->q_heads, s->dim);
            own[1] = check_heads(c, "Kg", s->batch, s->q_len, s->q_heads, s->dim);
            own[2] = check_heads(c, "Vg", s->batch, s->q_len, s->q_heads, s->v_dim);
        } else if (form == 2) {
            make_projected(c, l, made);
            memcpy(own, made, sizeof own);
        }
    }
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    plain_softmax(s, q, k, v, near_sees, l, y);
    plain_softmax(s, own[0], own[1], own[2], global_sees, l, y);
    check_run(c, CHECK_B);
    for (int i = 0; i < 3; i++)
        free(made[i]);
}

static void blank_case(struct check *c, int64_t n, int64_t window)
{
    c->blank = true;
    check_begin(c, "LongformerAttention");
    check_int(c, "q_num_heads", 8);
    check_ints(c, "window", 1, &window);
    check_heads(c, "Q", 1, n, 8, 64);
    check_heads(c, "K", 1, n, 8, 64);
    check_heads(c, "V", 1, n, 8, 64);
    check_mask(c, "key_mask", 1, n);
    check_heads_output(c, "Y", 1, n, 8, 64);
}

static void blank_weights(struct check *c, int64_t n, int64_t width, int64_t columns)
{
    for (int i = 0; i < 3; i++)
        check_absent(c);
    check_f32(c, "X", 3, (const int64_t[]){ 1, n, width });
    check_f32(c, "Wqg", 2, (const int64_t[]){ 512, columns });
    check_f32(c, "Wkg", 2, (const int64_t[]){ 512, 512 });
    check_f32(c, "Wvg", 2, (const int64_t[]){ 512, 512 });
}

static void refusals(struct check *c)
{
    blank_case(c, 5, 0);
    check_refuses(c, ATTNRUN_E_ATTR, "window|0");
    blank_case(c, 5, 1);
    check_ints(c, "dilation", 3, (const int64_t[]){ 1, 2, 3 });
    check_refuses(c, ATTNRUN_E_ATTR, "dilation|3 elements|8");
    blank_case(c, 5, 1);
    check_mask(c, "global_mask", 1, 5);
    check_int(c, "is_causal", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "global_mask|is_causal");
    blank_case(c, 5, 1);
    check_mask(c, "global_mask", 1, 6);
    check_refuses(c, ATTNRUN_E_SHAPE, "global_mask|number of keys");
    blank_case(c, 5, 1);
    check_mask(c, "global_mask", 1, 5);
    check_heads(c, "Qg", 1, 5, 8, 64);
    check_refuses(c, ATTNRUN_E_INPUT, "Qg, Kg and Vg|missing");
    blank_case(c, 5, 1);
    check_mask(c, "global_mask", 1, 5);
    blank_weights(c, 5, 511, 512);
    check_refuses(c, ATTNRUN_E_SHAPE, "Wqg|the width of X");
    blank_case(c, 5, 1);
    check_mask(c, "global_mask", 1, 5);
    blank_weights(c, 5, 512, 500);
    check_refuses(c, ATTNRUN_E_SHAPE, "Wqg|heads * dim");
    blank_case(c, 5, 1);
    check_mask(c, "global_mask", 1, 5);
    check_heads(c, "Qg", 1, 5, 8, 64);
    check_heads(c, "Kg", 1, 5, 8, 64);
    check_heads(c, "Vg", 1, 5, 8, 64);
    check_f32(c, "X", 3, (const int64_t[]){ 1, 5, 512 });
    check_refuses(c, ATTNRUN_E_INPUT, "both");
    blank_case(c, 5, 1);
    check_int(c, "kv_num_heads", 4);
    check_refuses(c, ATTNRUN_E_ATTR, "kv_num_heads|4");
}

void check_longformer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    {
        const bool large = c->round % 12 == 0;
        struct longformer l = { .s = { .batch = check_between(c, 0, 2),
                                       .q_len = check_between(c, 0, large ? 600 : 40),
                                       .dim = check_between(c, 1, large ? 6 : 30),
                                       .v_dim = check_between(c, 0, large ? 6 : 30) } };
        l.s.q_heads = l.s.kv_heads = check_between(c, 1, HEADS);
        l.s.kv_len = l.s.q_len;
        random_case(c, &l);
    }
    refusals(c);
    blank_case(c, 16384, 256);
    check_mask(c, "global_mask", 1, 16384);
    blank_weights(c, 16384, 512, 512);
    check_extra_memory(c, 2 << 20);
}

/* check_synthetic_attention.c - SyntheticAttention against its logits, pair by pair. */
#include "operator_harness.h"

enum { DOT, DENSE, RANDOM, FACTORS, OUTER, KINDS };
static const char *const names[] = { "dot", "dense", "random", "factorized_random",
                                     "factorized_dense" };

struct synthetic {
    int64_t batch, q_len, kv_len, heads, v_dim;
    int64_t n; /* components */
    int kinds[KINDS];
    int64_t dim, dh, r, n_a, n_b;
    int64_t longer; /* tables have so many more rows than needed */
    bool hid_shared, hid_plain, bias, masked, weighted, causal, linear, scaled;
    int64_t w2_heads, b2_heads, r_heads, r1_heads, r2_heads; /* 1 or heads */
    int64_t repeat_a, repeat_b;
    const float *v, *q, *k, *hid, *w2, *b2, *a, *b, *table, *r1, *r2, *alpha;
    const uint8_t *mask;
};

static bool has(const struct synthetic *s, int kind)
{
    for (int64_t m = 0; m < s->n; m++)
        if (s->kinds[m] == kind)
            return true;
    return false;
}

/* ---- the reference ---- */

static double dot(const float *x, const float *y, int64_t n, int64_t y_step)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i * y_step];
    return sum;
}

static double logit_of(const struct synthetic *s, int kind, int64_t b, int64_t h,
                       int64_t i, int64_t j)
{
    const int64_t heads = s->heads, rows = s->q_len + s->longer,
                  keys = s->kv_len + s->longer;
    const int64_t query = b * s->q_len + i, key = b * s->kv_len + j,
                  max = s->n_a * s->n_b;
    double x = 0;
    if (kind == DOT)
        return dot(s->q + (query * heads + h) * s->dim, s->k + (key * heads + h) * s->dim,
                   s->dim, 1) *
               (s->scaled ? (double)0.3f : 1 / sqrt((double)s->dim));
    if (kind == DENSE) {
        const float *hid = s->hid + (s->hid_shared ? query : query * heads + h) * s->dh;
        x = dot(hid, s->w2 + h % s->w2_heads * s->dh * keys + j, s->dh, keys);
        return s->bias ? x + (double)s->b2[h % s->b2_heads * keys + j] : x;
    }
    if (kind == RANDOM)
        return (double)s->table[(h % s->r_heads * rows + i) * keys + j];
    if (kind == FACTORS)
        return dot(s->r1 + (h % s->r1_heads * rows + i) * s->r,
                   s->r2 + (h % s->r2_heads * keys + j) * s->r, s->r, 1);
    const int64_t ia = s->repeat_a ? j / (max / s->n_a) : j % s->n_a;
    const int64_t ib = s->repeat_b ? j / (max / s->n_b) : j % s->n_b;
    return (double)s->a[(query * heads + h) * s->n_a + ia] *
           (double)s->b[(query * heads + h) * s->n_b + ib];
}

static bool seen(const struct synthetic *s, int64_t b, int64_t i, int64_t j)
{
    return (s->mask == NULL || s->mask[b * s->kv_len + j]) &&
           (!s->causal || j <= i + s->kv_len - s->q_len);
}

static void reference_row(const struct synthetic *s, int64_t b, int64_t h, int64_t i,
                          double *y)
{
    double max = -HUGE_VAL, sum = 0;
    for (int pass = s->linear; pass < 2; pass++)
        for (int64_t j = 0; j < s->kv_len; j++) {
            double x = 0;
            if (!seen(s, b, i, j))
                continue;
            for (int64_t m = 0; m < s->n; m++)
                x += (s->weighted ? (double)s->alpha[m] : 1.0) *
                     logit_of(s, s->kinds[m], b, h, i, j);
            max = fmax(max, pass == 0 ? x : max);
            if (pass == 0)
                continue;
            x = s->linear ? x : exp(x - max);
            sum += x;
            for (int64_t d = 0; d < s->v_dim; d++)
                y[d] +=
                    x * (double)s->v[((b * s->kv_len + j) * s->heads + h) * s->v_dim + d];
        }
    for (int64_t d = 0; d < s->v_dim && !s->linear && sum > 0; d++)
        y[d] /= sum;
}

/* ---- the case ---- */

static void shrink(float *x, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= (float)by;
}

static void attributes(struct check *c, const struct synthetic *s)
{
    const char *words[KINDS];
    for (int64_t m = 0; m < s->n; m++)
        words[m] = names[s->kinds[m]];
    check_heads_attrs(c, s->heads, s->heads);
    check_strings(c, "components", (int)s->n, words);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->linear || check_chance(c, 20))
        check_int(c, "normalize", !s->linear);
    if (s->scaled)
        check_float(c, "scale", 0.3f);
    if (s->repeat_a || check_chance(c, 20))
        check_string(c, "tile_a", s->repeat_a ? "repeat" : "tile");
    if (s->repeat_b || check_chance(c, 20))
        check_string(c, "tile_b", s->repeat_b ? "repeat" : "tile");
}

static void dense_operands(struct check *c, struct synthetic *s)
{
    const int64_t keys = s->kv_len + s->longer;
    if (!has(s, DENSE)) {
        for (int i = 0; i < 3; i++)
            check_absent(c);
        return;
    }
    s->hid = s->hid_shared && s->hid_plain
                 ? check_f32(c, "hid", DIMS(s->batch, s->q_len, s->dh))
                 : check_heads(c, "hid", s->batch, s->q_len, s->hid_shared ? 1 : s->heads,
                               s->dh);
    float *w2 = check_weight(c, "W2", DIMS(s->w2_heads, s->dh, keys));
    if (!c->blank)
        shrink(w2, s->w2_heads * s->dh * keys, 1 / sqrt((double)s->dh));
    s->w2 = w2;
    if (s->bias)
        s->b2 = check_weight(c, "b2", DIMS(s->b2_heads, keys));
    else
        check_absent(c);
}

static void table_operands(struct check *c, struct synthetic *s)
{
    const int64_t rows = s->q_len + s->longer, keys = s->kv_len + s->longer;
    if (has(s, RANDOM))
        s->table = check_weight(c, "R", DIMS(s->r_heads, rows, keys));
    else
        check_absent(c);
    if (!has(s, FACTORS)) {
        check_absent(c);
        check_absent(c);
        return;
    }
    float *r1 = check_weight(c, "R1", DIMS(s->r1_heads, rows, s->r));
    if (!c->blank)
        shrink(r1, s->r1_heads * rows * s->r, 1 / sqrt((double)s->r));
    s->r1 = r1;
    s->r2 = check_weight(c, "R2", DIMS(s->r2_heads, keys, s->r));
}

static void build(struct check *c, struct synthetic *s)
{
    check_begin(c, "SyntheticAttention");
    attributes(c, s);
    s->v = check_heads(c, "V", s->batch, s->kv_len, s->heads, s->v_dim);
    if (has(s, DOT)) {
        s->q = check_heads(c, "q", s->batch, s->q_len, s->heads, s->dim);
        s->k = check_heads(c, "k", s->batch, s->kv_len, s->heads, s->dim);
    } else {
        check_absent(c);
        check_absent(c);
    }
    dense_operands(c, s);
    if (has(s, OUTER)) {
        s->a = check_heads(c, "a", s->batch, s->q_len, s->heads, s->n_a);
        s->b = check_heads(c, "b", s->batch, s->q_len, s->heads, s->n_b);
    } else {
        check_absent(c);
        check_absent(c);
    }
    table_operands(c, s);
    if (s->weighted)
        s->alpha = check_weight(c, "alpha", DIMS(s->n));
    else
        check_absent(c);
    s->mask = s->masked ? check_mask(c, "key_mask", s->batch, s->kv_len) : NULL;
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->heads, s->v_dim);
    for (int64_t row = 0; !c->blank && row < s->batch * s->q_len * s->heads; row++)
        reference_row(s, row / s->heads / s->q_len, row % s->heads,
                      row / s->heads % s->q_len, y + row * s->v_dim);
}

static void draw_components(struct check *c, struct synthetic *s)
{
    int order[KINDS] = { 0, 1, 2, 3, 4 };
    s->n = check_chance(c, 50) ? 1 : check_between(c, 2, KINDS);
    for (int64_t m = 0; m < s->n; m++) {
        const int64_t other = check_between(c, m, KINDS - 1);
        s->kinds[m] = order[other];
        order[other] = order[m];
    }
    if (s->n > 1 && check_chance(c, 10))
        s->kinds[s->n - 1] = s->kinds[0];
}

static struct synthetic draw(struct check *c)
{
    const int64_t limit = c->round % 8 == 0 ? 600 : c->round % 2 == 0 ? 90 : 20;
    struct synthetic s = { .batch = check_between(c, 0, 5),
                           .q_len = check_between(c, 1, limit),
                           .heads = check_between(c, 1, 3),
                           .v_dim = check_between(c, 1, 90),
                           .dim = check_between(c, 1, 40),
                           .dh = check_between(c, 1, 40),
                           .r = check_between(c, 1, 12),
                           .n_a = check_between(c, 1, 20),
                           .longer = check_chance(c, 50) ? 0 : check_between(c, 1, 9) };
    draw_components(c, &s);
    s.kv_len = has(&s, DOT) || has(&s, DENSE) || has(&s, OUTER)
                   ? check_between(c, 0, limit)
                   : s.q_len;
    s.n_b = s.kv_len / s.n_a + check_between(c, 1, 3);
    s.hid_shared = check_chance(c, 30);
    s.hid_plain = check_chance(c, 50);
    s.w2_heads = check_chance(c, 50) ? 1 : s.heads;
    s.b2_heads = check_chance(c, 50) ? 1 : s.heads;
    s.r_heads = check_chance(c, 50) ? 1 : s.heads;
    s.r1_heads = check_chance(c, 50) ? 1 : s.heads;
    s.r2_heads = check_chance(c, 50) ? 1 : s.heads;
    s.bias = check_chance(c, 50);
    s.masked = check_chance(c, 50);
    s.weighted = check_chance(c, 50);
    s.causal = check_chance(c, 50);
    s.linear = check_chance(c, 25);
    s.scaled = check_chance(c, 30);
    s.repeat_a = check_chance(c, 50);
    s.repeat_b = check_chance(c, 50);
    return s;
}

/* ---- refusals ---- */

static struct synthetic plain(int kind)
{
    return (struct synthetic){ .batch = 2,
                               .q_len = 6,
                               .kv_len = 6,
                               .heads = 2,
                               .v_dim = 4,
                               .n = 1,
                               .kinds = { kind },
                               .dim = 4,
                               .dh = 5,
                               .r = 3,
                               .n_a = 3,
                               .n_b = 2,
                               .bias = true,
                               .weighted = true,
                               .w2_heads = 2,
                               .b2_heads = 2,
                               .r_heads = 2,
                               .r1_heads = 2,
                               .r2_heads = 2 };
}

enum { V, Q, K, HID, W2, B2, A, B, R, R1, R2, ALPHA };

/* Input `in` has another size along `axis`. */
static void refuse_size(struct check *c, int kind, int in, int axis, int64_t size,
                        const char *words)
{
    struct synthetic s = plain(kind);
    build(c, &s);
    for (int i = 0; i < c->n_in; i++)
        c->in[i].constant = false;
    c->in[in].heads = false;
    c->in[in].dims[axis] = size;
    check_refuses(c, ATTNRUN_E_SHAPE, words);
}

static void refuse_missing(struct check *c, int kind, int in, const char *words)
{
    struct synthetic s = plain(kind);
    build(c, &s);
    check_leave_out(c, in);
    check_refuses(c, ATTNRUN_E_ATTR, words);
}

static void forget(struct check *c, const char *attribute)
{
    for (int i = 0; i < c->n_attrs; i++)
        if (strcmp(c->attrs[i].name, attribute) == 0)
            c->attrs[i--] = c->attrs[--c->n_attrs];
}

static void refuse_attributes(struct check *c)
{
    const char *unknown = "diagonal";
    struct synthetic s = plain(DOT);
    build(c, &s);
    forget(c, "components");
    check_strings(c, "components", 1, &unknown);
    check_refuses(c, ATTNRUN_E_ATTR, "component 'diagonal'|expected dot, dense");
    build(c, &s);
    forget(c, "tile_b");
    check_string(c, "tile_b", "twice");
    check_refuses(c, ATTNRUN_E_ATTR, "tile_b|twice");
    build(c, &s);
    check_int(c, "dilation", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "dilation");
    refuse_missing(c, DOT, K, "'dot' needs input 2 'k'");
    refuse_missing(c, DENSE, HID, "'dense' needs input 3 'hid'");
    refuse_missing(c, DENSE, W2, "'dense' needs input 4 'W2'");
    refuse_missing(c, RANDOM, R, "'random' needs input 8 'R'");
    refuse_missing(c, FACTORS, R2, "'factorized_random' needs input 10 'R2'");
    refuse_missing(c, OUTER, B, "'factorized_dense' needs input 7 'b'");
}

static void refuse_shapes(struct check *c)
{
    refuse_size(c, DENSE, W2, 2, 5, "W2|expected at least 6 keys");
    refuse_size(c, DENSE, W2, 0, 3, "W2|expected 1 or 2 in dim 0");
    refuse_size(c, DENSE, W2, 1, 4, "hid|2 heads of 4");
    refuse_size(c, DENSE, B2, 1, 5, "b2|expected at least 6 keys");
    refuse_size(c, DENSE, HID, 0, 1, "hid|batch");
    refuse_size(c, RANDOM, R, 1, 5, "R|expected at least 6 queries");
    refuse_size(c, RANDOM, R, 2, 5, "R|expected at least 6 keys");
    refuse_size(c, FACTORS, R1, 1, 5, "R1|expected at least 6 queries");
    refuse_size(c, FACTORS, R2, 1, 5, "R2|expected at least 6 keys");
    refuse_size(c, FACTORS, R2, 2, 2, "R2|rows of R1");
    refuse_size(c, OUTER, A, 2, 4,
                "2 times the 2 of b is less than the number of keys, 6");
    refuse_size(c, OUTER, A, 2, 5, "a|2 heads of one size");
    refuse_size(c, OUTER, B, 1, 5, "b|number of queries");
    refuse_size(c, DOT, ALPHA, 0, 2, "alpha|number of components");
    refuse_size(c, DOT, Q, 2, 6, "k|head size");
    refuse_size(c, RANDOM, V, 2, 7, "V|expected a multiple of 2 heads");
}

void check_synthetic_attention(struct check *c)
{
    CHECK_ROUNDS(c, 240)
    {
        struct synthetic s = draw(c);
        build(c, &s);
        /* Sums of logits are larger, and linear ones cancel: a float has no more. */
        if (s.linear)
            check_run_with(c, 1e-5, 2e-4);
        else if (s.n > 1 || s.weighted)
            check_run_with(c, 1e-5, 1e-5);
        else
            check_run(c, CHECK_A);
    }
    refuse_attributes(c);
    refuse_shapes(c);
    for (int kind = 0; kind < KINDS; kind++) {
        struct synthetic s = plain(kind == RANDOM ? DOT : kind);
        s.q_len = s.kv_len = 16384;
        s.heads = s.w2_heads = s.b2_heads = s.r1_heads = s.r2_heads = 8;
        s.dim = s.dh = s.v_dim = 64;
        s.n_a = s.n_b = 128;
        c->blank = true;
        build(c, &s);
        check_extra_memory(c, 2 << 20);
        c->blank = false;
    }
}

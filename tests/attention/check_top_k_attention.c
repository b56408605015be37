/* check_top_k_attention.c - TopKAttention: random scores, where the choice is clear, and
 * small whole numbers, whose scores are exact and often equal. */
#include "operator_harness.h"

#include <stdlib.h>

struct top_k {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim, k;
    bool causal, exact, whole;
    float scale;
    const uint8_t *key_mask, *mask;
    int mask_rank;
    int64_t mask_dims[4]; /* of attn_mask, ones in front */
};

static bool allowed(const struct top_k *s, const int64_t at[4])
{
    int64_t place = 0;
    for (int i = 0; i < 4; i++)
        place = place * s->mask_dims[i] + (s->mask_dims[i] == 1 ? 0 : at[i]);
    return (s->mask == NULL || s->mask[place]) &&
           (s->key_mask == NULL || s->key_mask[at[0] * s->kv_len + at[3]]) &&
           (!s->causal || at[3] <= at[2] + s->kv_len - s->q_len);
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* scores[j] of the keys that are kept, else -inf; false where the choice is unclear. */
static bool choose(const struct top_k *s, double *scores, double *sorted)
{
    int64_t n = 0, equal;
    double max = 0;
    for (int64_t j = 0; j < s->kv_len; j++)
        if (scores[j] > -HUGE_VAL) {
            max = fmax(max, fabs(scores[j]));
            sorted[n++] = scores[j];
        }
    if (n <= s->k)
        return true;
    qsort(sorted, (size_t)n, sizeof *sorted, falling);
    const double last = sorted[s->k - 1];
    if (!s->whole && last - sorted[s->k] < 1e-5 * max)
        return false;
    for (equal = s->k; equal > 0 && sorted[equal - 1] == last; equal--)
        ;
    equal = s->exact ? s->k - equal : s->kv_len;
    for (int64_t j = 0; j < s->kv_len; j++)
        if (scores[j] < last || (scores[j] == last && equal-- <= 0))
            scores[j] = -HUGE_VAL;
    return true;
}

static void row(const struct top_k *s, const float *q, const float *k, const float *v,
                const int64_t at[3], double *scores, double *y)
{
    const int64_t g = at[1] / (s->q_heads / s->kv_heads);
    const double scale = s->scale != 0.0f ? (double)s->scale : 1 / sqrt((double)s->dim);
    double max = -HUGE_VAL, sum = 0;
    q += ((at[0] * s->q_len + at[2]) * s->q_heads + at[1]) * s->dim;
    for (int64_t j = 0; j < s->kv_len; j++) {
        const float *key = k + ((at[0] * s->kv_len + j) * s->kv_heads + g) * s->dim;
        scores[j] = 0;
        for (int64_t d = 0; d < s->dim; d++)
            scores[j] += (double)q[d] * (double)key[d];
        scores[j] *= scale;
        if (!allowed(s, (const int64_t[]){ at[0], at[1], at[2], j }))
            scores[j] = -HUGE_VAL;
    }
    if (!choose(s, scores, scores + s->kv_len)) {
        for (int64_t d = 0; d < s->v_dim; d++)
            y[d] = CHECK_SKIP;
        return;
    }
    for (int64_t j = 0; j < s->kv_len; j++)
        max = fmax(max, scores[j]);
    for (int64_t j = 0; j < s->kv_len; j++) {
        const float *value = v + ((at[0] * s->kv_len + j) * s->kv_heads + g) * s->v_dim;
        const double w = scores[j] > -HUGE_VAL ? exp(scores[j] - max) : 0;
        sum += w;
        for (int64_t d = 0; d < s->v_dim; d++)
            y[d] += w * (double)value[d];
    }
    for (int64_t d = 0; d < s->v_dim && sum > 0; d++)
        y[d] /= sum;
}

static void make_whole(struct check *c, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)check_between(c, -1, 1);
}

static void add_masks(struct check *c, struct top_k *s, bool key_mask, bool mask)
{
    const int64_t full[4] = { s->batch, s->q_heads, s->q_len, s->kv_len };
    s->key_mask = s->mask = NULL;
    for (int i = 0; i < 4; i++)
        s->mask_dims[i] = 1;
    if (key_mask)
        s->key_mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    if (!mask)
        return;
    if (!key_mask)
        check_absent(c);
    s->mask_rank = (int)check_between(c, 1, 4);
    int64_t n = 1;
    for (int i = 4 - s->mask_rank; i < 4; i++) {
        s->mask_dims[i] = check_chance(c, 60) ? full[i] : 1;
        n *= s->mask_dims[i];
    }
    uint8_t *data = check_data(c, "attn_mask", ATTNRUN_BOOL, s->mask_rank,
                               s->mask_dims + 4 - s->mask_rank);
    for (int64_t i = 0; i < n; i++)
        data[i] = check_chance(c, 70);
    s->mask = data;
}

static void build(struct check *c, struct top_k *s, bool key_mask, bool mask)
{
    check_begin(c, "TopKAttention");
    check_heads_attrs(c, s->q_heads, s->kv_heads);
    check_int(c, "k", s->k);
    if (s->exact || check_chance(c, 30))
        check_string(c, "tie_rule", s->exact ? "exact" : "threshold");
    if (s->scale != 0.0f)
        check_float(c, "scale", s->scale);
    if (s->causal)
        check_int(c, "is_causal", 1);
    float *q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    if (s->whole) {
        make_whole(c, q, s->batch * s->q_len * s->q_heads * s->dim);
        make_whole(c, k, s->batch * s->kv_len * s->kv_heads * s->dim);
    }
    add_masks(c, s, key_mask, mask);
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    if (c->blank)
        return;
    double *scores = malloc((size_t)(2 * s->kv_len + 1) * sizeof *scores);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->q_len; i++)
            for (int64_t h = 0; h < s->q_heads; h++, y += s->v_dim)
                row(s, q, k, v, (const int64_t[]){ b, h, i }, scores, y);
    free(scores);
}

/* Many equal scores: equal weights, each of which a long sum would round the same way. */
static void many_equal(struct check *c)
{
    struct top_k s = { 1, 6, 16384, 1, 1, 8, 5, 0, .causal = false };
    s.k = 12000;
    check_begin(c, "TopKAttention");
    check_int(c, "q_num_heads", 1);
    check_int(c, "k", s.k);
    float *q = check_heads(c, "Q", 1, s.q_len, 1, s.dim);
    float *k = check_heads(c, "K", 1, s.kv_len, 1, s.dim);
    float *v = check_heads(c, "V", 1, s.kv_len, 1, s.v_dim);
    for (int64_t i = 0; i < s.q_len * s.dim; i++)
        q[i] = 0.13f * (float)(i / s.dim + 1);
    for (int64_t i = 0; i < s.kv_len * s.dim; i++)
        k[i] = i / s.dim == 7 ? 0.9f : 0.3f;
    for (int64_t i = 0; i < s.kv_len * s.v_dim; i++)
        v[i] = 1.0f + 0.1f * v[i];
    double *y = check_heads_output(c, "Y", 1, s.q_len, 1, s.v_dim), *scores;
    scores = malloc((size_t)(2 * s.kv_len) * sizeof *scores);
    s.whole = true;
    for (int64_t i = 0; i < s.q_len; i++)
        row(&s, q, k, v, (const int64_t[]){ 0, 0, i }, scores, y + i * s.v_dim);
    free(scores);
    check_run(c, CHECK_A);
}

void check_top_k_attention(struct check *c)
{
    CHECK_ROUNDS(c, 80)
    {
        const bool big = c->round % 8 == 0;
        struct top_k s = { .batch = big ? 1 : check_between(c, 0, 2),
                           .q_len = check_between(c, 1, big ? 150 : 20),
                           .kv_len = check_between(c, 0, big ? 1500 : 60),
                           .kv_heads = check_between(c, 1, 2),
                           .dim = check_between(c, 1, 20),
                           .v_dim = check_between(c, 1, 40),
                           .causal = check_chance(c, 40),
                           .exact = check_chance(c, 50),
                           .whole = check_chance(c, 50) };
        s.q_heads = s.kv_heads * check_between(c, 1, 2);
        s.scale = s.whole ? 0.25f : check_chance(c, 30) ? -0.3f : 0.0f;
        s.k = check_between(c, 1, check_chance(c, 50) ? 8 : s.kv_len + 2);
        build(c, &s, check_chance(c, 50), check_chance(c, 40));
        check_run(c, CHECK_A);
    }
    many_equal(c);
    struct top_k s = { 1, 9, 9, 2, 2, 4, 4, 0, .causal = false };
    build(c, &s, false, false);
    check_refuses(c, ATTNRUN_E_ATTR, "k is 0|at least 1");
    s.k = 3;
    build(c, &s, false, true);
    c->in[4].dims[c->in[4].rank - 1] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "attn_mask|7|9");
    check_begin(c, "TopKAttention");
    check_int(c, "k", 2);
    check_string(c, "tie_rule", "both");
    check_heads_attrs(c, 2, 2);
    for (int i = 0; i < 3; i++)
        check_heads(c, i == 0 ? "Q" : i == 1 ? "K" : "V", 1, 9, 2, 4);
    check_heads_output(c, "Y", 1, 9, 2, 4);
    check_refuses(c, ATTNRUN_E_ATTR, "tie_rule|both");
    s = (struct top_k){ 1, 16384, 16384, 8, 8, 64, 64, 64, .causal = false };
    c->blank = true;
    build(c, &s, false, false);
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}

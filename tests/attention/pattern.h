/* pattern.h - the reference of operators whose pattern is a count for each pair of a
 * query and a key: Y = sum over keys of count e^s V / sum of count e^s, in double. */
#ifndef ATTN_ATTENTION_PATTERN_H
#define ATTN_ATTENTION_PATTERN_H

#include "operator_harness.h"

struct pattern {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim;
    float scale; /* 0: 1 / sqrt(dim) */
    bool causal; /* j <= i + kv_len - q_len */
    const float *q, *k, *v;
    const uint8_t *mask; /* (batch, kv_len) or NULL */
    void *arg;
    /* How often query i of a head sees key j; causal and mask come after. */
    double (*count)(const struct pattern *p, int64_t b, int64_t h, int64_t i, int64_t j);
    bool zero_masked_queries;
};

/* y is (batch, q_len, q_heads * v_dim) of zeros. */
static inline void pattern_row(const struct pattern *p, int64_t b, int64_t h, int64_t i,
                               double *y)
{
    const int64_t g = h / (p->q_heads / p->kv_heads);
    const float *q = p->q + ((b * p->q_len + i) * p->q_heads + h) * p->dim;
    const double scale = p->scale != 0.0f ? (double)p->scale : 1 / sqrt((double)p->dim);
    double max = -HUGE_VAL, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < p->kv_len; j++) {
            const int64_t key = (b * p->kv_len + j) * p->kv_heads + g;
            double score = 0, count = p->count(p, b, h, i, j);
            if (count == 0.0 || (p->mask != NULL && !p->mask[b * p->kv_len + j]) ||
                (p->causal && j > i + p->kv_len - p->q_len))
                continue;
            for (int64_t d = 0; d < p->dim; d++)
                score += (double)q[d] * (double)p->k[key * p->dim + d];
            if (pass == 0) {
                max = fmax(max, score * scale);
                continue;
            }
            count *= exp(score * scale - max);
            sum += count;
            for (int64_t d = 0; d < p->v_dim; d++)
                y[d] += count * (double)p->v[key * p->v_dim + d];
        }
    for (int64_t d = 0; d < p->v_dim && sum > 0; d++)
        y[d] /= sum;
}

static inline void pattern_reference(const struct pattern *p, double *y)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t h = 0; h < p->q_heads; h++, y += p->v_dim)
                if (!p->zero_masked_queries || p->mask == NULL ||
                    p->mask[b * p->q_len + i])
                    pattern_row(p, b, h, i, y);
}

/* Random sizes; lengths up to `max`, larger ones more rarely. */
static inline struct pattern pattern_sizes(struct check *c, int64_t max, bool same)
{
    struct pattern p = { .batch = check_between(c, 0, 2) };
    const int64_t limit = c->round % 4 == 0 ? max : max / 8 + 1;
    p.q_len = check_between(c, 1, limit);
    p.kv_len = same ? p.q_len : check_between(c, 0, limit);
    p.kv_heads = check_between(c, 1, 2);
    p.q_heads = p.kv_heads * check_between(c, 1, 2);
    p.dim = check_between(c, 1, 40);
    p.v_dim = check_between(c, 1, 40);
    p.scale = check_chance(c, 30) ? 0.2f : 0.0f;
    return p;
}

/* Q, K and V, after the attributes of heads. */
static inline void pattern_operands(struct check *c, struct pattern *p)
{
    check_heads_attrs(c, p->q_heads, p->kv_heads);
    if (p->scale != 0.0f)
        check_float(c, "scale", p->scale);
    p->q = check_heads(c, "Q", p->batch, p->q_len, p->q_heads, p->dim);
    p->k = check_heads(c, "K", p->batch, p->kv_len, p->kv_heads, p->dim);
    p->v = check_heads(c, "V", p->batch, p->kv_len, p->kv_heads, p->v_dim);
}

/* Y, and the case is complete. */
static inline void pattern_output(struct check *c, const struct pattern *p)
{
    double *y = check_heads_output(c, "Y", p->batch, p->q_len, p->q_heads, p->v_dim);
    if (!c->blank)
        pattern_reference(p, y);
}

#endif

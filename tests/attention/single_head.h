/* single_head.h - what checks of attention without heads share: softmax of scores over keys,
 * sums of values, weights as a second output. */
#ifndef ATTN_CHECK_SINGLE_HEAD_H
#define ATTN_CHECK_SINGLE_HEAD_H

#include "operator_harness.h"

struct single_head {
    int64_t batch, q_len, kv_len, units, v_dim;
    const float *q, *k, *v, *bias, *values;
    const uint8_t *mask;
    int form;
    double scale;
    double (*score)(const struct single_head *u, int64_t b, int64_t i, int64_t j);
};

/* Values of v_dim floats, or none: the keys. */
static inline void single_head_values(struct check *c, struct single_head *u,
                                      int64_t v_dim)
{
    if (check_chance(c, 50)) {
        u->v_dim = v_dim;
        u->values = check_f32(c, "values", DIMS(u->batch, u->kv_len, v_dim));
        return;
    }
    check_absent(c);
    u->v_dim = u->units;
    u->values = u->k;
}

/* p[kv_len]: the weights of row (b, i); zeros where it sees no key. */
static inline void single_head_row(const struct single_head *u, int64_t b, int64_t i,
                                   double *p)
{
    double max = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < u->kv_len; j++) {
        const bool seen = u->mask == NULL || u->mask[b * u->kv_len + j] != 0;
        p[j] = seen ? u->score(u, b, i, j) : -HUGE_VAL;
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < u->kv_len; j++)
        sum += p[j] = p[j] == -HUGE_VAL ? 0 : exp(p[j] - max);
    for (int64_t j = 0; j < u->kv_len && sum > 0; j++)
        p[j] /= sum;
}

/* y[v_dim] = the sum of values times p. */
static inline void single_head_sum(const struct single_head *u, int64_t b,
                                   const double *p, double *y)
{
    for (int64_t j = 0; j < u->kv_len; j++)
        for (int64_t d = 0; d < u->v_dim; d++)
            y[d] += p[j] * (double)u->values[(b * u->kv_len + j) * u->v_dim + d];
}

/* Y and, where wanted, weights; `flat`: of queries of rank 2. */
static inline void single_head_outputs(struct check *c, const struct single_head *u,
                                       bool flat, bool weights)
{
    double *y = flat ? check_output(c, "Y", DIMS(u->batch, u->v_dim))
                     : check_output(c, "Y", DIMS(u->batch, u->q_len, u->v_dim));
    double p[8192], *w = NULL;
    if (weights)
        w = flat ? check_output(c, "weights", DIMS(u->batch, u->kv_len))
                 : check_output(c, "weights", DIMS(u->batch, u->q_len, u->kv_len));
    for (int64_t row = 0; !c->blank && row < u->batch * u->q_len; row++) {
        single_head_row(u, row / u->q_len, row % u->q_len, p);
        single_head_sum(u, row / u->q_len, p, y + row * u->v_dim);
        for (int64_t j = 0; w != NULL && j < u->kv_len; j++)
            w[row * u->kv_len + j] = p[j];
    }
}

/* What the mask hides of the keys and values, which is input `values` where given. */
static inline void single_head_hide(struct check *c, const struct single_head *u,
                                    int values)
{
    const int64_t rows = u->batch * u->kv_len;
    check_hide(c, c->in[1].data, u->mask, rows, u->units);
    if (u->values != u->k)
        check_hide(c, c->in[values].data, u->mask, rows, u->v_dim);
}

#endif

/* plain_softmax.h - softmax attention over any set of keys, by loops in double. */
#ifndef ATTN_PLAIN_SOFTMAX_H
#define ATTN_PLAIN_SOFTMAX_H

#include <stdlib.h>

#include "operator_harness.h"

struct plain_sizes {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim;
    double scale;
};

/* How often query i sees key j; may change its score. */
typedef int (*plain_sees)(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                          double *score);

/* Operands of rank 3; rows that see nothing stay as they are. */
static inline void plain_softmax(const struct plain_sizes *s, const float *q,
                                 const float *k, const float *v, plain_sees sees,
                                 const void *arg, double *y)
{
    double *p = malloc((size_t)(s->kv_len + 1) * sizeof *p);
    int *times = malloc((size_t)(s->kv_len + 1) * sizeof *times);
    const int64_t group = s->q_heads / s->kv_heads;
    for (int64_t row = 0; row < s->batch * s->q_len * s->q_heads; row++) {
        const int64_t h = row % s->q_heads, i = row / s->q_heads % s->q_len,
                      b = row / s->q_heads / s->q_len;
        double max = (double)-INFINITY, sum = 0;
        for (int64_t j = 0; j < s->kv_len; j++) {
            const float *key =
                k + ((b * s->kv_len + j) * s->kv_heads + h / group) * s->dim;
            p[j] = 0;
            for (int64_t d = 0; d < s->dim; d++)
                p[j] += (double)q[row * s->dim + d] * (double)key[d];
            p[j] *= s->scale;
            times[j] = sees(arg, b, h, i, j, &p[j]);
            if (times[j] > 0 && p[j] > max)
                max = p[j];
        }
        for (int64_t j = 0; j < s->kv_len; j++)
            sum += times[j] > 0 ? times[j] * exp(p[j] - max) : 0;
        for (int64_t d = 0; d < s->v_dim && sum > 0; d++)
            y[row * s->v_dim + d] = 0;
        for (int64_t j = 0; j < s->kv_len && sum > 0; j++) {
            const double weight = times[j] > 0 ? times[j] * exp(p[j] - max) / sum : 0;
            const float *value =
                v + ((b * s->kv_len + j) * s->kv_heads + h / group) * s->v_dim;
            for (int64_t d = 0; d < s->v_dim && weight != 0; d++)
                y[row * s->v_dim + d] += weight * (double)value[d];
        }
    }
    free(p);
    free(times);
}

#endif

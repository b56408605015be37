/* batch_norm.h - a BatchNormalization as factors and shifts. In: a node with constant statistics.
 * Out: y = x * factor + shift for each channel. */
#ifndef ATTN_BATCH_NORM_H
#define ATTN_BATCH_NORM_H

#include "match.h"

struct batch_norm {
    const float *scale, *bias, *mean, *var; /* scale NULL: factor and shift instead */
    const float *conv_bias;                 /* NULL: zeros */
    double epsilon, factor, shift;
    int64_t channels;
};

/* Whether a node is a BatchNormalization of norm->channels channels that does not train, and
 * whose statistics are constants of f32: *norm gets them. */
bool attn_match_batch_norm(const struct attn_graph *graph, const struct attn_node *bn,
                           struct batch_norm *norm);
/* The normalization of a channel: y = x * *factor + *shift. */
void attn_batch_norm_channel(const struct batch_norm *norm, int64_t c, double *factor,
                             double *shift);

#endif

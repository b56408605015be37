/* batch_norm.h - a BatchNormalization with constant statistics as factors and shifts of channels,
 * for the passes that fold it into the weights of a Conv or of a product, or make a Conv of it
 * (conv_batch_norm.c, linear_batch_norm.c, merge_convs.c, blocked_batch_norm.c). */
#ifndef ATTN_REWRITE_BATCH_NORM_H
#define ATTN_REWRITE_BATCH_NORM_H

#include "match.h"

struct batch_norm {
    const float *scale, *bias, *mean, *var; /* scale NULL: factor and shift instead */
    const float *conv_bias;                 /* of what it normalizes; NULL: zeros */
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
/* Makes new weights, scaled along axis `axis`, of constant ones of f32, and their bias. */
attn_status attn_batch_norm_scale(struct attn_graph *graph, int32_t weights, int axis,
                                  const struct batch_norm *norm, int32_t *w_id,
                                  int32_t *b_id);
/* Makes the factors, of shape [channels, 1, …] of up to 4 axes, and the shifts: S and B of a
 * FusedConv, whose weights stay, or weights of one tap for each channel. */
attn_status attn_batch_norm_vectors(struct attn_graph *graph,
                                    const struct batch_norm *norm, int32_t rank,
                                    int32_t *s_id, int32_t *b_id);
/* The constant f32 vector of n elements that input `in` of a node is, at any address; or NULL. */
const float *attn_match_f32_vector(const struct attn_graph *graph,
                                   const struct attn_node *node, int in, int64_t n);

#endif

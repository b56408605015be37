/* batch_norm.h - a BatchNormalization with constant statistics as factors and shifts of channels,
 * for the passes that fold it into the weights of a Conv or of a product (conv_batch_norm.c,
 * linear_batch_norm.c). */
#ifndef ATTN_REWRITE_BATCH_NORM_H
#define ATTN_REWRITE_BATCH_NORM_H

#include "match.h"

struct attn_norm {
    const float *scale, *bias, *mean, *var; /* scale NULL: factor and shift instead */
    const float *conv_bias;                 /* of what it normalizes; NULL: zeros */
    double epsilon, factor, shift;
    int64_t channels;
};

/* Reads a BatchNormalization of norm->channels channels; false where it is none of inference, or
 * its statistics are no constants. */
bool attn_norm_read(const struct attn_graph *graph, const struct attn_node *bn,
                    struct attn_norm *norm);
/* Makes new weights, scaled along axis `axis` of a dense tensor, and their bias. */
attn_status attn_norm_scale(struct attn_graph *graph, const attnrun_tensor *w, int axis,
                            const struct attn_norm *norm, int32_t *w_id, int32_t *b_id);
/* Makes the factors and the shifts, as of a FusedConv, whose weights stay. */
attn_status attn_norm_vectors(struct attn_graph *graph, const struct attn_norm *norm,
                              int32_t *s_id, int32_t *b_id);

#endif

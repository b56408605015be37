/* epilogue.h - what a product or a convolution can apply to its result. In: the result, or the
 * node behind it. Out: the residual that an Add behind it adds; the word of the fused operators for
 * an activation, with alpha and beta. */
#ifndef ATTN_EPILOGUE_H
#define ATTN_EPILOGUE_H

#include "match.h"

struct epilogue {
    const char *activation; /* the word of the fused operators */
    float alpha, beta;
};

/* Whether `node`, reading the value as its only data input, is an activation with a
 * word. */
bool attn_match_activation(const struct attn_graph *graph, const struct attn_node *node,
                           struct epilogue *epilogue);
/* The tensor of the same shape, no constant, that the only node behind f32 value `result` adds to
 * it, and that node in *add; -1: there is none. */
int32_t attn_match_residual(const struct attn_graph *graph, int32_t result,
                            const struct attn_node **add);

#endif

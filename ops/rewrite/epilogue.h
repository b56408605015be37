/* epilogue.h - activations that a product or a convolution can apply to its result. In:
 * the node behind it. Out: the word of the fused operators, with alpha and beta. */
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

#endif

/* map_gates.h - gates of channels and of pixels as exporters write them, for the passes
 * that make operators over maps of them. In: a map (batch, channels, height, width) and a
 * value that multiplies it. Out: the pools, weights and activations that the value is
 * made of. Every element is compared; nothing is sampled. */
#ifndef ATTN_MAP_GATES_H
#define ATTN_MAP_GATES_H

#include "match.h"

enum attn_pooled { ATTN_POOLED_MEAN = 1, ATTN_POOLED_MAX = 2 }; /* bits */

/* y = w z + bias, w (rows, columns) a constant in one of three forms. */
struct attn_dense_found {
    int32_t w, bias; /* bias -1: none */
    int64_t rows, columns;
    bool transposed; /* w is (columns, rows) */
};

/* gate(sum over pools of second(act(first(pool(x))))), or of first(pool(x)) alone. */
struct attn_channel_gate {
    struct attn_dense_found first, second;
    bool deep;                     /* there is a second one */
    const char *activation, *gate; /* words of the operators */
    int pools;                     /* bits; each has products of its own */
    bool half;                     /* or one product, of half the mean and half the max */
};
bool attn_channel_gate_read(const struct attn_graph *graph, int32_t x, int32_t value,
                            struct attn_channel_gate *gate);

/* Why a product of pools of a map that gates x does not fit; NULL: there is no such
 * product. */
const char *attn_channel_gate_why(const struct attn_graph *graph, int32_t x,
                                  int32_t value);

/* gate(w [max over channels; mean over channels] + bias). */
struct attn_pixel_gate {
    int32_t w, bias; /* (1, 2, K, K), perhaps in 16 bits; bias -1: none */
    bool mean_first; /* w[0, 0] is that of the mean */
    const char *gate;
};
bool attn_pixel_gate_read(const struct attn_graph *graph, int32_t x, int32_t value,
                          struct attn_pixel_gate *gate);
/* The same for a convolution of two planes. */
const char *attn_pixel_gate_why(const struct attn_graph *graph, int32_t x, int32_t value);

/* Whether a value is (batch, n), or the same with axes of 1 behind them; and the value
 * before axes of 1 were added and removed. */
bool attn_is_vectors(const struct attn_graph *graph, int32_t value, attnrun_dim batch,
                     int64_t n);
int32_t attn_before_views(const struct attn_graph *graph, int32_t value,
                          attnrun_dim batch, int64_t n);
/* Whether a Conv is only a product at each place: one group, steps of 1, no pads. */
bool attn_conv_is_dense(const struct attn_node *conv);
/* Reads `value` as a product of a constant and *z, which are vectors as attn_is_vectors()
 * says. */
bool attn_dense_read(const struct attn_graph *graph, int32_t value, attnrun_dim batch,
                     struct attn_dense_found *dense, int32_t *z);
/* Reads input 2 of a Conv or Gemm as the bias: none, or a constant of as many f32 as
 * rows. */
bool attn_dense_takes_bias(const struct attn_graph *graph, const struct attn_node *node,
                           struct attn_dense_found *dense);
/* Makes w a constant f32 of rank 2 (rows, columns), and the bias one of rank 1. */
attn_status attn_dense_make(struct attn_graph *graph,
                            const struct attn_dense_found *dense, int32_t *w,
                            int32_t *bias);
/* The pool of all pixels of x that a value is: a bit, or 0. */
int attn_pooled_read(const struct attn_graph *graph, int32_t x, int32_t value);

/* Whether a node is a convolution of maps by constants; and whether it passes on maps in
 * blocks. */
bool attn_is_map_conv(const struct attn_graph *graph, const struct attn_node *node);
bool attn_keeps_blocks(const struct attn_node *node);
/* The convolution that gives a map, perhaps through nodes that pass on maps in blocks;
 * NULL: there is none near. */
const struct attn_node *attn_conv_before(const struct attn_graph *graph, int32_t value);

#endif

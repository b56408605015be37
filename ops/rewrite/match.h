/* match.h - small questions that rewrite passes ask about a graph: which node gives a
 * value, which single node reads it, and whether it is a constant of a certain form. The
 * edits that several passes make are here, too. Cost: a few steps for each question,
 * independent of the size of the graph. */
#ifndef ATTN_MATCH_H
#define ATTN_MATCH_H

#include <math.h>

#include "../../runtime/graph.h"

/* The producer of input `in` of a node, where it is an ai.onnx `op_type`; else NULL. */
struct attn_node *attn_match_in(const struct attn_graph *graph,
                                const struct attn_node *node, int in,
                                const char *op_type);
/* The same, where no other node reads that value. */
struct attn_node *attn_match_sole_in(const struct attn_graph *graph,
                                     const struct attn_node *node, int in,
                                     const char *op_type);
/* For a node with two inputs: the producer of either one, where it is `op_type`; *other
 * is the value of the other input. */
struct attn_node *attn_match_either(const struct attn_graph *graph,
                                    const struct attn_node *node, const char *op_type,
                                    int32_t *other);
/* For a node with two inputs, of which one is a constant of one element: that number, which is
 * finite in f32, and the other value. `commutes` false: the constant must be input 1. */
bool attn_match_scalar(const struct attn_graph *graph, const struct attn_node *node,
                       bool commutes, double *x, int32_t *other);
/* The same where the number is `x`; or about `x`, where that is one which exporters round, as
 * sqrt 2. All types hold 0.5, 1, 2 or 3 as they are. */
bool attn_match_number(const struct attn_graph *graph, const struct attn_node *node,
                       bool commutes, double x, int32_t *other);
bool attn_match_near(double a, double b);
/* Steps back from a Mul or Div by a scalar to what it scales, if fits(graph, that, *value) allows
 * it, and takes the scalar into *scale. False, and both stay, where there is none, or where the
 * product of all is so large or small that floats may not hold it, or what it scales. */
typedef bool attn_match_fits(const struct attn_graph *graph, int32_t a, int32_t b);
bool attn_match_take_scale(const struct attn_graph *graph, int32_t *value, double *scale,
                           attn_match_fits *fits);
/* Follows a value back through Mul and Div by scalars, of the same rank: it is *scale
 * times the value that is returned. */
int32_t attn_match_strip_scale(const struct attn_graph *graph, int32_t value,
                               double *scale);
/* The only user of output 0 of a node, where it is an ai.onnx `op_type`; else NULL. */
struct attn_node *attn_match_user(const struct attn_graph *graph,
                                  const struct attn_node *node, const char *op_type);
/* For a node with two inputs: the one that is not `value`; -1 where none or both are. */
int32_t attn_match_other(const struct attn_node *node, int32_t value);
/* Whether a node is a reduction over only the last axis that keeps the dim. */
bool attn_match_reduces_last(const struct attn_graph *graph,
                             const struct attn_node *node);
/* The axes of a reduction, whose input has a known rank, as bits; false where they are not
 * known or none. */
bool attn_match_axes(const struct attn_graph *graph, const struct attn_node *node,
                     uint32_t *axes);
/* The same for a reduction over one axis. */
bool attn_match_axis(const struct attn_graph *graph, const struct attn_node *node,
                     int *axis);
/* Whether a value is a constant f32 of n elements along the last axis: all dims are 1 but
 * the last. */
bool attn_match_vector(const struct attn_graph *graph, int32_t value, int64_t *n);
/* Makes the value a constant of rank 1: itself, or a view of its data. */
attn_status attn_match_as_vector(struct attn_graph *graph, int32_t *value);
/* Whether both ranks are known and equal, so that no scalar or vector of a higher rank
 * raised the rank. */
bool attn_match_same_rank(const struct attn_graph *graph, int32_t a, int32_t b);
/* Whether both types are known, with the same rank and provably equal dims. */
bool attn_match_same_shape(const struct attn_graph *graph, int32_t a, int32_t b);
bool attn_match_is_f32(const struct attn_graph *graph, int32_t value);
bool attn_match_is_f32_of(const struct attn_graph *graph, int32_t value, int rank);
/* Whether a number may scale queries or scores: products by it are numbers that floats hold. */
static inline bool match_is_scale(double x) { return fabs(x) > 1e-12 && fabs(x) < 1e12; }
/* Whether a value is (batch, channels, height, width) of f32, and not a constant. */
bool attn_match_is_map(const struct attn_graph *graph, int32_t value);
static inline const attnrun_type *match_type(const struct attn_graph *graph,
                                             int32_t value)
{
    return &graph->values[value].type;
}
/* Whether one node reads a value, once, and the graph does not give it. */
static inline bool match_read_once(const struct attn_graph *graph, int32_t value)
{
    return attn_graph_only_user(graph, value) != NULL;
}
static inline bool match_is_constant(const struct attn_graph *graph, int32_t value)
{
    return value >= 0 && graph->values[value].data.data != NULL;
}
/* Whether so few nodes read weights that each may get its own: a file may have the same ones a
 * thousand times. */
static inline bool match_may_copy(const struct attn_graph *graph, int32_t weights)
{
    return graph->values[weights].n_uses <= 8;
}
/* Element i of a constant of f32, which a file may have at any address. */
static inline float match_f32_at(const attnrun_tensor *constant, int64_t i)
{
    float x;
    memcpy(&x, (const char *)constant->data + i * (int64_t)sizeof x, sizeof x);
    return x;
}
/* A constant of f32, or of f16 or bf16 whose operator computes in f32 (ops/storage.h). */
bool attn_match_is_stored(const struct attn_graph *graph, int32_t value);
/* *value becomes the same numbers in f32, for an operator that does not read f16 and bf16. */
attn_status attn_match_as_f32(struct attn_graph *graph, int32_t *value);
/* An int attribute, or `otherwise`. */
int64_t attn_match_int(const struct attn_node *node, const char *name, int64_t otherwise);
float attn_match_float(const struct attn_node *node, const char *name, float otherwise);
bool attn_match_string(const struct attn_node *node, const char *name, const char *text);
/* Whether all numbers of an attribute are x, or it is absent. */
bool attn_match_all(const struct attn_node *node, const char *name, int64_t x);
/* Number i of an attribute, or `otherwise`. */
int64_t attn_match_int_at(const struct attn_node *node, const char *name, int64_t i,
                          int64_t otherwise);
/* Whether the pads are those of the attribute `pads`. */
bool attn_match_explicit_pads(const struct attn_node *node);
/* Whether a Conv is a dense one of one tap with constant weights, which have *rows rows. */
bool attn_match_pointwise(const struct attn_graph *graph, const struct attn_node *conv,
                          int64_t *rows);

/* Whether a node is the mean over height and width of a map: GlobalAveragePool, or ReduceMean over
 * axes 2 and 3, whether it keeps them or not. */
bool attn_match_pixel_mean(const struct attn_graph *graph, const struct attn_node *node);

/* Follows keys and values (batch, heads, tokens, dim) whose heads were both repeated by
 * Unsqueeze, Expand, Reshape, to the values before that. */
bool attn_match_share_heads(const struct attn_graph *graph, int32_t *k, int32_t *v);

/* Whether a node is an Expand whose shape is known to fit: each dim wanted is provably the one that
 * the output has, or 1. Of any other one the run checks the shape, so that it may not be left out,
 * even where the input has the dims of the output. */
bool attn_match_expands(const struct attn_graph *graph, const struct attn_node *node);
/* Whether a ScatterND writes each element of its data once, in order (whole_scatter.c). */
bool attn_match_scatters_all(const struct attn_graph *graph,
                             const struct attn_node *node);

/* Reads a Pad of a tensor of this rank by a constant number (by zeros), with constant
 * pads and no axes. pads: rank numbers of elements before and as many behind; a negative
 * one removes elements. */
bool attn_match_pads(const struct attn_graph *graph, const struct attn_node *pad,
                     int32_t rank, int64_t pads[2 * ATTNRUN_MAX_RANK], double *value);
bool attn_match_zero_pads(const struct attn_graph *graph, const struct attn_node *pad,
                          int32_t rank, int64_t pads[2 * ATTNRUN_MAX_RANK]);

/* Adds a constant of `n` integers, i64[n]. */
attn_status attn_match_ints(struct attn_graph *graph, int n, const int64_t *numbers,
                            int32_t *value);
/* Reads a Slice along only `axis`, of known size and with constant bounds: its elements
 * are those from `from` to `to` - 1, in order. */
bool attn_match_slice(const struct attn_graph *graph, const struct attn_node *slice,
                      int64_t axis, int64_t *from, int64_t *to);
/* The same of any size, with the bounds that the node has. */
bool attn_match_slice_bounds(const struct attn_graph *graph,
                             const struct attn_node *slice, int64_t axis, int64_t *from,
                             int64_t *to);
/* Makes *value a view of itself: a Reshape with these dims (0: as before, -1: the
 * rest). */
attn_status attn_match_reshape(struct attn_graph *graph, struct attn_node *before, int n,
                               const int64_t *dims, int32_t *value);

/* All reads of value `old` become reads of output 0 of `made`, which also takes its name.
 * The node that gives `old` stays in the graph, without readers. */
void attn_match_replace(struct attn_graph *graph, int32_t old, struct attn_node *made);
/* Adds an ai.onnx node, whose one output *out is a new value; `in` may be `out`. */
attn_status attn_match_add(struct attn_graph *graph, struct attn_node *before,
                           const char *op_type, int32_t n_in, const int32_t *in,
                           int32_t n_attrs, const struct attn_attr *attrs, int32_t *out);
/* Adds a node with one output of the type of value `like`. */
attn_status attn_match_make(struct attn_graph *graph, struct attn_node *before,
                            const char *domain, const char *op_type, int32_t n_in,
                            const int32_t *in, int32_t like, int32_t n_attrs,
                            const struct attn_attr *attrs, struct attn_node **made);

#define MATCH_INT(attribute, value)                                                      \
    { .name = (attribute), .kind = ATTN_ATTR_INT, .i = (value) }
#define MATCH_FLOAT(attribute, value)                                                    \
    { .name = (attribute), .kind = ATTN_ATTR_FLOAT, .f = (value) }
#define MATCH_STRING(attribute, value)                                                   \
    {                                                                                    \
        .name = (attribute), .kind = ATTN_ATTR_STRING,                                   \
        .s = { (value), (int64_t)strlen(value) }                                         \
    }

#endif

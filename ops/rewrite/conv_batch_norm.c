/* conv_batch_norm.c - Conv, or ConvTranspose of one group, with constant weights,
 * followed by BatchNormalization with constant statistics, becomes a Conv with scaled
 * weights:
 *
 *   s = scale / sqrt(var + epsilon);  W' = W * s;  B' = (B - mean) * s + bias
 *
 * Mul by a number is treated in the same way, and so is Mul followed by Add of a number:
 * W' = W * s, B' = B * s + shift. Weights in f16 or bf16 keep their type: Conv becomes
 * FusedConv with S = s. A ConvTranspose has no such form. The weights of a Conv that gives one
 * pixel become f32, since gates are read from such a Conv. An Add of a constant that has one
 * number for each channel becomes the bias, as PaddlePaddle's exporter writes it; the weights stay.
 * In: the nodes. Out: one node, new weights of the same size. */
#include <math.h>

#include "batch_norm.h"

static bool read_conv_bias(const struct attn_graph *graph, const struct attn_node *conv,
                           struct batch_norm *norm)
{
    bool has_bias = conv->pub.n_in > 2 && conv->in[2] >= 0;
    norm->conv_bias =
        has_bias ? attn_match_f32_vector(graph, conv, 2, norm->channels) : NULL;
    return !has_bias || norm->conv_bias != NULL;
}

/* Reads Mul by a number, and an Add of one behind it. *result is what they give. */
static bool read_numbers(const struct attn_graph *graph, struct attn_node *mul,
                         struct batch_norm *norm, int32_t *result)
{
    int32_t conv = -1, product = -1;
    norm->scale = NULL;
    norm->shift = 0.0;
    if (!attn_match_scalar(graph, mul, true, &norm->factor, &conv) ||
        !isfinite(norm->factor) || !attn_match_same_shape(graph, conv, mul->out[0]))
        return false;
    *result = mul->out[0];
    struct attn_node *add = attn_match_user(graph, mul, "Add");
    double shift;
    if (add != NULL && attn_match_scalar(graph, add, true, &shift, &product) &&
        isfinite(shift) && product == *result &&
        attn_match_same_shape(graph, product, add->out[0])) {
        norm->shift = shift;
        *result = add->out[0];
    }
    return true;
}

static bool gives_one_pixel(const struct attn_graph *graph, const struct attn_node *conv)
{
    const attnrun_type *y = &graph->values[conv->out[0]].type;
    for (int i = 2; i < y->rank; i++)
        if (!dim_is(y->dims[i], 1))
            return false;
    return y->rank > 2;
}

/* The Conv with what follows it, and constants that are made here. */
static attn_status make_conv(struct attn_graph *graph, struct attn_node *conv, int axis,
                             const struct batch_norm *norm, int32_t result,
                             struct attn_node **made)
{
    const bool narrow = graph->values[conv->in[1]].data.dtype != ATTNRUN_F32;
    const bool keeps = narrow && !gives_one_pixel(graph, conv);
    int32_t in[5] = { conv->in[0], conv->in[1], -1, -1, -1 };
    if (keeps) {
        TRY(attn_batch_norm_vectors(graph, norm, 1, &in[4], &in[2]));
        return attn_match_make(graph, conv, "attnrun.fused", "FusedConv", 5, in, result,
                               conv->n_attrs, conv->attrs, made);
    }
    TRY(attn_match_as_f32(graph, &in[1]));
    TRY(attn_batch_norm_scale(graph, in[1], axis, norm, &in[1], &in[2]));
    return attn_match_make(graph, conv, "", conv->pub.op_type, 3, in, result,
                           conv->n_attrs, conv->attrs, made);
}

/* Weights in 16 bits whose Conv computes in f32, in a graph that is not written as ONNX. */
static bool takes_weights(const struct attn_graph *graph, const struct attn_node *conv)
{
    if (!attn_match_is_stored(graph, conv->in[1]) || !match_may_copy(graph, conv->in[1]))
        return false;
    return graph->values[conv->in[1]].data.dtype == ATTNRUN_F32 ||
           (node_is(conv, "Conv") && attn_match_is_f32(graph, conv->in[0]) &&
            graph->model->origin == NULL);
}

static attn_status try_conv(struct attn_graph *graph, struct attn_node *conv, int axis,
                            int32_t *applied)
{
    struct attn_node *bn = attn_match_user(graph, conv, "BatchNormalization");
    struct attn_node *mul = attn_match_user(graph, conv, "Mul");
    int32_t result = bn != NULL ? bn->out[0] : -1;
    if (!takes_weights(graph, conv))
        return ATTNRUN_OK;
    const attnrun_tensor *w = &graph->values[conv->in[1]].data;
    struct batch_norm norm = { .channels = w->rank > axis ? w->dims[axis] : 0 };
    if (w->rank < 3 || !read_conv_bias(graph, conv, &norm))
        return ATTNRUN_OK;
    const bool found =
        bn != NULL ? bn->in[0] == conv->out[0] && attn_match_batch_norm(graph, bn, &norm)
                   : mul != NULL && read_numbers(graph, mul, &norm, &result);
    if (!found)
        return ATTNRUN_OK;
    struct attn_node *made;
    TRY(make_conv(graph, conv, axis, &norm, result, &made));
    attn_match_replace(graph, result, made);
    ++*applied;
    return ATTNRUN_OK;
}

/* Whether a constant has one number for each channel of maps of this rank. */
static bool is_by_channel(const struct attn_graph *graph, int32_t value, int32_t rank,
                          int64_t channels)
{
    if (value < 0 || !match_is_constant(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    if (t->dtype != ATTNRUN_F32 || t->rank > rank || t->rank < rank - 1)
        return false;
    for (int32_t i = 0; i < t->rank; i++)
        if (t->dims[i] != (i + rank - t->rank == 1 ? channels : 1))
            return false;
    return true;
}

/* Makes an Add behind a Conv its bias. */
static attn_status try_bias(struct attn_graph *graph, struct attn_node *conv, int axis,
                            int32_t *applied)
{
    struct attn_node *add = attn_match_user(graph, conv, "Add");
    if (add == NULL || !attn_match_is_f32(graph, conv->out[0]) ||
        !match_is_constant(graph, conv->in[1]))
        return ATTNRUN_OK;
    const attnrun_tensor *w = &graph->values[conv->in[1]].data;
    struct batch_norm norm = { .channels = w->rank > axis ? w->dims[axis] : 0 };
    const int32_t other = attn_match_other(add, conv->out[0]);
    if (w->rank < 3 || !read_conv_bias(graph, conv, &norm) ||
        !is_by_channel(graph, other, w->rank, norm.channels) ||
        !attn_match_same_shape(graph, conv->out[0], add->out[0]))
        return ATTNRUN_OK;
    int32_t in[3] = { conv->in[0], conv->in[1], -1 };
    void *bias;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 1, &norm.channels, &in[2], &bias));
    memcpy(bias, graph->values[other].data.data, (size_t)norm.channels * sizeof(float));
    for (int64_t c = 0; norm.conv_bias != NULL && c < norm.channels; c++)
        ((float *)bias)[c] += match_f32_at(&graph->values[conv->in[2]].data, c);
    struct attn_node *made;
    TRY(attn_match_make(graph, conv, "", conv->pub.op_type, 3, in, add->out[0],
                        conv->n_attrs, conv->attrs, &made));
    attn_match_replace(graph, add->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_batch_norm(struct attn_graph *graph, struct attn_node *node,
                                  int32_t *applied)
{
    const int axis = node_is(node, "Conv") ? 0 : 1;
    const int32_t before = *applied;
    if (axis == 1 &&
        (!node_is(node, "ConvTranspose") || attn_match_int(node, "group", 1) != 1))
        return ATTNRUN_OK;
    TRY(try_conv(graph, node, axis, applied));
    return *applied == before ? try_bias(graph, node, axis, applied) : ATTNRUN_OK;
}

const struct attn_pass attn_pass_conv_batch_norm = { .name = "conv_batch_norm",
                                                     .try_node = try_batch_norm,
                                                     .portable = true };

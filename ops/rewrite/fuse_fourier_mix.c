/* fuse_fourier_mix.c - the real part of a Fourier transform over the last two axes, as
 * exporters write fft2, becomes FourierMix of domain attnrun, which makes no complex
 * tensor:
 *
 *   Y = Gather(DFT(DFT(Z)), 0, axis = -1)     DFT over tokens and channels, in either
 *                                             order
 *   Z = Unsqueeze(x, -1), or Concat(Unsqueeze(x, -1), zeros)
 *
 * x is f32 (batch, tokens, channels). Only whole transforms are recognized: forward,
 * two-sided, as long as the axis. */
#include "../../runtime/poll.h"
#include "match.h"

/* Whether a value is the length of the axis. */
static bool is_length(const struct attn_graph *graph, int32_t value, attnrun_dim dim)
{
    double length;
    const struct attn_value *v = &graph->values[value];
    if (attn_value_scalar(graph, value, &length))
        return length >= 0 && length < (double)INT32_MAX && dim_is(dim, (int64_t)length);
    return v->known != NULL && v->n_known == 1 && dim_equal(v->known[0], dim);
}

/* The axis, 1 or 2, of a forward DFT of (batch, tokens, channels, 1 or 2); 0: the node is
 * none. */
static int axis_of(const struct attn_graph *graph, const struct attn_node *dft)
{
    double axis = (double)attn_match_int(dft, "axis", 1);
    const attnrun_type *t = match_type(graph, dft->in[0]);
    if (!node_is(dft, "DFT") || attn_match_int(dft, "inverse", 0) != 0 ||
        attn_match_int(dft, "onesided", 0) != 0 || t->rank != 4)
        return 0;
    if (dft->pub.opset >= 20) {
        axis = -2;
        if (dft->pub.n_in > 2 && dft->in[2] >= 0 &&
            !attn_value_scalar(graph, dft->in[2], &axis))
            return 0;
    }
    axis = axis < 0 ? axis + 4 : axis;
    if (axis < 1 || axis > 2 || (axis > 1 && axis < 2))
        return 0;
    const bool whole = dft->pub.n_in < 2 || dft->in[1] < 0 ||
                       is_length(graph, dft->in[1], t->dims[(int)axis]);
    return whole ? (int)axis : 0;
}

/* Whether all elements are +0 or -0: a constant, or one number that Expand repeats. */
static bool is_zero(const struct attn_graph *graph, int32_t value)
{
    double x = 1;
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (attn_match_expands(graph, node))
        return attn_value_scalar(graph, node->in[0], &x) && x >= 0 && x <= 0;
    if (!match_is_constant(graph, value) || !attn_match_is_f32(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        const double element = tensor_get_real(t, i);
        if (attn_stops(i) || !(element >= 0 && element <= 0))
            return false;
    }
    return true;
}

/* The x whose complex form Z is; -1: there is none. */
static int32_t real_part(const struct attn_graph *graph, int32_t value)
{
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Concat")) {
        const int64_t axis = attn_match_int(node, "axis", 0);
        if (node->pub.n_in != 2 || (axis != -1 && axis != 3) ||
            !is_zero(graph, node->in[1]))
            return -1;
        value = node->in[0];
        node = attn_graph_producer(graph, value);
    }
    if (!node_is(node, "Unsqueeze") || !attn_match_is_f32(graph, node->in[0]))
        return -1;
    const attnrun_type *x = match_type(graph, node->in[0]), *z = match_type(graph, value);
    if (x->rank != 3 || z->rank != 4 || !dim_is(z->dims[3], 1))
        return -1;
    for (int i = 0; i < 3; i++)
        if (!dim_equal(x->dims[i], z->dims[i]))
            return -1;
    return node->in[0];
}

static attn_status try_gather(struct attn_graph *graph, struct attn_node *gather,
                              int32_t *applied)
{
    double index = 1;
    const int64_t axis = attn_match_int(gather, "axis", 0);
    const struct attn_node *outer = attn_match_sole_in(graph, gather, 0, "DFT");
    if (outer == NULL || (axis != 3 && axis != -1) ||
        !attn_value_scalar(graph, gather->in[1], &index) || index < 0 || index > 0 ||
        match_type(graph, gather->in[1])->rank != 0)
        return ATTNRUN_OK;
    const struct attn_node *inner = attn_match_sole_in(graph, outer, 0, "DFT");
    const int axes = inner ? axis_of(graph, inner) * 3 + axis_of(graph, outer) : 0;
    const int32_t x = inner ? real_part(graph, inner->in[0]) : -1;
    if (axes != 1 * 3 + 2 && axes != 2 * 3 + 1)
        return attn_graph_note(graph, gather, "fourier_mix",
                               "it does not transform tokens and channels");
    if (x < 0)
        return attn_graph_note(graph, gather, "fourier_mix",
                               "its input is not known to be real");
    struct attn_node *made;
    TRY(attn_graph_note(graph, gather, "fourier_mix", NULL));
    TRY(attn_match_make(graph, gather, "attnrun", "FourierMix", 1, &x, gather->out[0], 0,
                        NULL, &made));
    attn_match_replace(graph, gather->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_fourier_mix = { .name = "fourier_mix",
                                                 .op_type = "Gather",
                                                 .try_node = try_gather };

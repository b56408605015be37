/* drop_identity.c - removes nodes that pass their input on unchanged: Identity, Dropout whose mask
 * nobody reads, Cast to the same type, Transpose that keeps the order, Reshape and Expand to the
 * same shape, Slice of everything, Concat of one tensor, Pad by nothing, ScatterND without updates,
 * Where that chooses one input everywhere, Mul and Div by 1, and a ScatterND of everything, whose
 * updates are the result. The users of the result read the input instead. No number changes. */
#include "../../runtime/poll.h"
#include "match.h"

static bool keeps_order(const struct attn_node *node)
{
    const struct attn_attr *perm = attn_node_attr(node, "perm");
    if (perm == NULL || perm->kind != ATTN_ATTR_INTS)
        return false;
    for (int64_t i = 0; i < perm->ints.n; i++)
        if (perm->ints.v[i] != i)
            return false;
    return true;
}

/* Mul or Div by 1: the value that goes in, or -1. Adding 0 would turn -0 into 0. */
static int32_t times_one(const struct attn_graph *graph, const struct attn_node *node)
{
    double x;
    int32_t other;
    bool multiplies = node_is(node, "Mul");
    if ((!multiplies && !node_is(node, "Div")) ||
        !attn_match_scalar(graph, node, multiplies, &x, &other) || x != 1)
        return -1;
    return attn_match_same_shape(graph, other, node->out[0]) ? other : -1;
}

/* Slice of all elements, one after the other: steps of -1 would turn them around. */
static bool slices_everything(const struct attn_graph *graph,
                              const struct attn_node *node)
{
    if (!attn_match_same_shape(graph, node->in[0], node->out[0]))
        return false;
    if (node->pub.n_in < 5 || node->in[4] < 0)
        return true;
    if (!match_is_constant(graph, node->in[4]))
        return false;
    const attnrun_tensor *steps = &graph->values[node->in[4]].data;
    const int64_t n = tensor_count(steps);
    for (int64_t i = 0; i < n && n <= ATTNRUN_MAX_RANK; i++)
        if (tensor_get_int(steps, i) != 1)
            return false;
    return n <= ATTNRUN_MAX_RANK;
}

/* Pad by nothing. */
static bool pads_nothing(const struct attn_graph *graph, const struct attn_node *node)
{
    int64_t pads[2 * ATTNRUN_MAX_RANK];
    const int32_t rank = graph->values[node->in[0]].type.rank;
    if (!attn_match_zero_pads(graph, node, rank, pads))
        return false;
    for (int i = 0; i < 2 * rank; i++)
        if (pads[i] != 0)
            return false;
    return true;
}

/* Whether a Concat of one tensor has an axis of it; else the operator says what is wrong. */
static bool joins_one(const attnrun_type *in, const struct attn_node *node)
{
    const int64_t axis = attn_match_int(node, "axis", 1);
    return axis >= -in->rank && axis < in->rank;
}

/* ScatterND whose indices are none. */
static bool scatters_nothing(const struct attn_graph *graph, const struct attn_node *node)
{
    const attnrun_type *indices = &graph->values[node->in[1]].type;
    for (int a = 0; a < indices->rank - 1; a++)
        if (dim_is(indices->dims[a], 0))
            return attn_match_same_shape(graph, node->in[0], node->out[0]);
    return false;
}

/* The input of the result's shape that a Where with a constant condition chooses everywhere; -1
 * where it chooses both or none. */
static int32_t chosen(const struct attn_graph *graph, const struct attn_node *node)
{
    if (!match_is_constant(graph, node->in[0]))
        return -1;
    const attnrun_tensor *condition = &graph->values[node->in[0]].data;
    const uint8_t *keep = condition->data;
    const int64_t n = tensor_count(condition);
    for (int64_t i = 1; i < n && !attn_stops(i); i++)
        if ((keep[i] != 0) != (keep[0] != 0))
            return -1;
    const int32_t from = n == 0 ? -1 : node->in[keep[0] != 0 ? 1 : 2];
    return from >= 0 && attn_match_same_shape(graph, from, node->out[0]) ? from : -1;
}

static int32_t passed_on(const struct attn_graph *graph, const struct attn_node *node)
{
    if (node->pub.n_in < 1 || node->in[0] < 0 || node->pub.n_out < 1 || node->out[0] < 0)
        return -1;
    const attnrun_type *in = &graph->values[node->in[0]].type;
    if (in->kind != ATTNRUN_TENSOR)
        return -1;
    if (node_is(node, "Identity"))
        return node->in[0];
    if (node_is(node, "Dropout") && node->pub.n_in == 1 &&
        (node->pub.n_out == 1 || node->out[1] < 0 ||
         graph->values[node->out[1]].n_uses == 0) &&
        attn_match_int(node, "is_test", 1) == 1 && node->pub.opset >= 7)
        return node->in[0];
    if (node_is(node, "Cast") && in->dtype != 0 &&
        attn_match_int(node, "to", 0) == in->dtype)
        return node->in[0];
    if (node_is(node, "Transpose") && in->rank >= 0 && keeps_order(node))
        return node->in[0];
    if ((node_is(node, "Reshape") || attn_match_expands(graph, node)) &&
        attn_match_same_shape(graph, node->in[0], node->out[0]))
        return node->in[0];
    if (node_is(node, "Slice"))
        return slices_everything(graph, node) ? node->in[0] : -1;
    if (node_is(node, "Concat") && node->pub.n_in == 1)
        return joins_one(in, node) ? node->in[0] : -1;
    if (node_is(node, "ScatterND"))
        return scatters_nothing(graph, node)          ? node->in[0]
               : attn_match_scatters_all(graph, node) ? node->in[2]
                                                      : -1;
    if (node_is(node, "Where"))
        return chosen(graph, node);
    if (node_is(node, "Pad"))
        return pads_nothing(graph, node) ? node->in[0] : -1;
    return times_one(graph, node);
}

static attn_status run_drop_identity(struct attn_graph *graph, int32_t *applied)
{
    for (int64_t n = 0; n < graph->n_nodes && !attn_stops_node(n); n++) {
        struct attn_node *node = graph->nodes[n];
        int32_t from = node ? passed_on(graph, node) : -1;
        if (from < 0 || !attn_graph_can_replace(graph, node->out[0], from))
            continue;
        attn_graph_replace(graph, node->out[0], from);
        attn_graph_remove(graph, node);
        ++*applied;
    }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_identity = { .name = "identity",
                                              .run = run_drop_identity,
                                              .portable = true };

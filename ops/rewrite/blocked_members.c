/* blocked_members.c - tests which nodes can use maps in blocks of 16 channels.
 * blocked_layout.c has the whole pass. In: a node, and what is known of the nodes before
 * it. Out: the node that replaces it. */
#include "../kernels/kernel_types.h"
#include "blocked_layout.h"

bool attn_blocked_is_gate(const struct layout *l, int32_t gate, int32_t map)
{
    if (!layout_is_map(l, gate))
        return false;
    const attnrun_type *g = layout_type(l, gate), *m = layout_type(l, map);
    return dim_is(g->dims[2], 1) && dim_is(g->dims[3], 1) &&
           dim_equal(g->dims[1], m->dims[1]) &&
           (dim_equal(g->dims[0], m->dims[0]) || dim_is(g->dims[0], 1));
}

bool attn_blocked_is_conv(const struct attn_node *node)
{
    return node_is(node, "Conv") || node_is_of(node, "attnrun.fused", "FusedConv");
}

bool attn_blocked_groups(const attnrun_tensor *w, int64_t group, int64_t channels,
                         bool *by_itself)
{
    const int64_t rows = w->dims[0];
    for (int i = 0; i < 4; i++)
        if (w->dims[i] < 1)
            return false;
    if (group < 1 || w->dims[1] * group != channels)
        return false;
    *by_itself = group > 1 && group == channels && group == rows;
    return group == 1 || *by_itself ||
           (w->dims[1] % ATTN_BLOCK == 0 && rows / group % ATTN_BLOCK == 0);
}

/* A constant vector of f32, or none. */
static bool is_vector(const struct attn_graph *graph, const struct attn_node *node,
                      int32_t in)
{
    if (node->pub.n_in <= in || node->in[in] < 0)
        return true;
    return match_is_constant(graph, node->in[in]) &&
           graph->values[node->in[in]].data.dtype == ATTNRUN_F32 &&
           graph->values[node->in[in]].data.rank == 1;
}

/* Whether many nodes read the weights, but not with this bias: what is packed has both, so each
 * would have its own. */
static bool packs_alone(const struct attn_graph *graph, const struct attn_node *node)
{
    return !match_may_copy(graph, node->in[1]) && node->pub.n_in > 2 &&
           node->in[2] >= 0 &&
           graph->values[node->in[2]].n_uses < graph->values[node->in[1]].n_uses;
}

static bool can_conv(const struct layout *l, const struct attn_node *node)
{
    bool by_itself;
    const struct attn_graph *graph = l->graph;
    if (!attn_blocked_is_conv(node) || !layout_is_map(l, node->in[0]) ||
        !layout_is_map(l, node->out[0]) || !attn_match_is_stored(graph, node->in[1]) ||
        node->n_attrs > BLOCKED_MAX_ATTRS - 3 || packs_alone(graph, node))
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    if (w->rank != 4 || !is_vector(graph, node, 2) || !is_vector(graph, node, 4))
        return false;
    if (node->pub.n_in > 3 && node->in[3] >= 0 && !layout_is_map(l, node->in[3]))
        return false;
    return attn_blocked_groups(w, attn_match_int(node, "group", 1),
                               layout_channels(l, node->in[0]), &by_itself);
}

static bool is_elementwise(const struct attn_node *node)
{
    static const char *const names[] = {
        "Relu",      "Sigmoid",
        "Tanh",      "HardSigmoid",
        "HardSwish", "Swish",
        "Clip",      "LeakyRelu",
        "Elu",       "Celu",
        "Selu",      "Softplus",
        "Gelu",      "Mish",
        "Softsign",  "Abs",
        "Neg",       "Exp",
        "Square",    "Sqrt",
        "Erf",       "ThresholdedRelu",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (node_is(node, names[i]))
            return true;
    return node->pub.n_in == 1 && (node_is_of(node, "com.microsoft", "Gelu") ||
                                   node_is_of(node, "com.microsoft", "QuickGelu"));
}

/* Whether a map has the channels of the result y, and no size that is known to differ. Sizes that
 * are known at run only may still be 1 there, and are repeated as in plain maps. */
static bool is_like(const struct layout *l, int32_t map, int32_t y)
{
    const attnrun_type *a = layout_type(l, map), *b = layout_type(l, y);
    for (int i = 0; i < 4; i++)
        if (!dim_equal(a->dims[i], b->dims[i]) &&
            (i == 1 || dim_is_const(a->dims[i]) || dim_is_const(b->dims[i])))
            return false;
    return true;
}

/* Checks the operands of a binary node: maps of one shape, or one map and a number; one
 * is of a member. */
static bool can_binary(const struct layout *l, const struct attn_node *node)
{
    static const char *const names[] = { "Add", "Sub", "Mul", "Div", "Max", "Min" };
    bool known = false;
    int maps = 0, lasts = 0, firsts = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known = known || node_is(node, names[i]);
    if (!known || node->pub.n_in != 2 || node->pub.opset < 8)
        return false;
    for (int i = 0; i < 2; i++) {
        double x;
        const bool last = layout_is_last(l, node->in[i]);
        const bool same =
            last ? attn_match_same_shape(l->graph, node->in[i], node->out[0])
                 : layout_is_map(l, node->in[i]) && layout_is_map(l, node->out[0]) &&
                       is_like(l, node->in[i], node->out[0]);
        lasts += same && last;
        firsts += same && !last;
        if (same)
            maps += last || layout_is_member_map(l, node->in[i]);
        else if (!attn_value_scalar(l->graph, node->in[i], &x) ||
                 layout_type(l, node->in[i])->rank > 4)
            return false;
    }
    return maps > 0 && (lasts == 0 || firsts == 0);
}

static bool can_gate(const struct layout *l, const struct attn_node *node)
{
    if (!node_is(node, "Mul") || node->pub.opset < 7)
        return false;
    for (int i = 0; i < 2; i++)
        if (layout_is_member_map(l, node->in[i]) &&
            attn_match_same_shape(l->graph, node->in[i], node->out[0]) &&
            attn_blocked_is_gate(l, node->in[1 - i], node->in[i]))
            return true;
    return false;
}

static bool can_concat(const struct layout *l, const struct attn_node *node)
{
    int32_t members = 0;
    if (!node_is(node, "Concat") || attn_match_int(node, "axis", 0) != 1)
        return false;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        if (!layout_is_map(l, node->in[i]) ||
            (i + 1 < node->pub.n_in && layout_channels(l, node->in[i]) % ATTN_BLOCK != 0))
            return false;
        members += layout_is_member_map(l, node->in[i]);
    }
    return members > 0;
}

/* Whether an input is a constant of one integer; an absent one gives `otherwise`. */
static bool one_integer(const struct layout *l, const struct attn_node *node, int32_t in,
                        int64_t otherwise, int64_t *x)
{
    double number;
    *x = otherwise;
    if (in >= node->pub.n_in || node->in[in] < 0)
        return true;
    if (!attn_value_scalar(l->graph, node->in[in], &number) || number < -1e15)
        return false;
    *x = number < 1e15 ? (int64_t)number : INT64_MAX; /* to the end, however it is said */
    return true;
}

/* Whether a Slice takes whole blocks [*from, *to) of the channels. */
bool attn_blocked_slice(const struct layout *l, const struct attn_node *node,
                        int64_t *from, int64_t *to)
{
    const int64_t channels = layout_channels(l, node->in[0]);
    int64_t axis, step;
    if (node->pub.opset < 10 || !one_integer(l, node, 1, 0, from) ||
        !one_integer(l, node, 2, 0, to) || !one_integer(l, node, 3, 0, &axis) ||
        !one_integer(l, node, 4, 1, &step) || step != 1 || (axis != 1 && axis != -3))
        return false;
    *from += *from < 0 ? channels : 0;
    *to += *to < 0 ? channels : 0;
    *to = *to < channels ? *to : channels;
    if (*from < 0 || *from >= *to || *from % ATTN_BLOCK != 0 ||
        (*to % ATTN_BLOCK != 0 && *to != channels))
        return false;
    *from /= ATTN_BLOCK;
    *to = (*to + ATTN_BLOCK - 1) / ATTN_BLOCK;
    return true;
}

static bool can_split(const struct layout *l, const struct attn_node *node)
{
    if (!node_is(node, "Split") || attn_match_int(node, "axis", 0) != 1)
        return false;
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (!layout_is_map(l, node->out[i]) ||
            (i + 1 < node->pub.n_out &&
             layout_channels(l, node->out[i]) % ATTN_BLOCK != 0))
            return false;
    return true;
}

bool attn_blocked_pool(const struct attn_node *node)
{
    const struct attn_attr *kernel = attn_node_attr(node, "kernel_shape");
    if (node->pub.n_out > 1 && node->out[1] >= 0)
        return false;
    return kernel != NULL && kernel->kind == ATTN_ATTR_INTS && kernel->ints.n == 2 &&
           node->n_attrs <= BLOCKED_MAX_ATTRS - 1;
}

enum member attn_blocked_member(const struct layout *l, const struct attn_node *node)
{
    if (node == NULL || node->n_graphs > 0 || node->pub.n_in < 1 || node->pub.n_out < 1 ||
        node->out[0] < 0)
        return MEMBER_NONE;
    if (layout_is_bytes(l, node->out[0]))
        return attn_quantized_member(l, node);
    const enum member last = attn_last_member(l, node);
    if (last != MEMBER_NONE)
        return last;
    if (layout_is_last(l, node->in[0]) && is_elementwise(node) &&
        attn_match_same_shape(l->graph, node->in[0], node->out[0]))
        return MEMBER_AS_IS;
    if (layout_is_last(l, node->in[0]) ||
        (node->pub.n_in > 1 && layout_is_last(l, node->in[1])))
        return can_binary(l, node) ? MEMBER_AS_IS : MEMBER_NONE;
    if (!layout_is_map(l, node->out[0]))
        return MEMBER_NONE;
    if (can_conv(l, node))
        return MEMBER_CONV;
    if (attn_spread_is(l, node))
        return MEMBER_SPREAD;
    if (can_concat(l, node))
        return MEMBER_CONCAT;
    if (can_binary(l, node))
        return MEMBER_AS_IS;
    if (can_gate(l, node))
        return MEMBER_GATE;
    if (!layout_is_member_map(l, node->in[0]))
        return MEMBER_NONE;
    int64_t from, to;
    if (node_is(node, "Slice") && attn_blocked_slice(l, node, &from, &to))
        return MEMBER_SLICE;
    if (can_split(l, node))
        return MEMBER_SPLIT;
    if (attn_resize_is(l, node))
        return MEMBER_RESIZE;
    if (attn_blocked_is_cbam(l, node))
        return MEMBER_CBAM;
    if (attn_blocked_is_batch_norm(l, node))
        return MEMBER_BATCH_NORM;
    if (is_elementwise(node) &&
        attn_match_same_shape(l->graph, node->in[0], node->out[0]))
        return MEMBER_AS_IS;
    if (node_is(node, "MaxPool") && attn_blocked_pool(node))
        return MEMBER_MAX_POOL;
    if (node_is(node, "AveragePool") && attn_blocked_pool(node))
        return MEMBER_AVERAGE_POOL;
    return attn_match_pixel_mean(l->graph, node) &&
                   attn_match_int(node, "keepdims", 1) == 1
               ? MEMBER_MEAN
               : MEMBER_NONE;
}

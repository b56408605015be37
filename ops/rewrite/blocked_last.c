/* blocked_last.c - nodes between a Transpose to channels last and the Transpose back, in
 * networks whose maps are in blocks of 16 channels. blocked_layout.c has the whole pass.
 * A map [N, H, W, C] has the same blocks as [N, C, H, W], so both Transposes vanish.
 *
 *   LayerNormalization over the channels       BlockedNorm
 *   MatMul, FusedMatMul by a constant [C, M]   BlockedConv of one tap
 *   Mul by a constant for each channel         BlockedGate, of either kind of maps
 *   elementwise nodes                          the same node (blocked_members.c)
 *
 * In: a node of the graph, and what is known of the nodes before it. Out: the node that
 * replaces it. */
#include "../kernels/kernel_types.h"
#include "blocked_layout.h"

static bool permutes(const struct attn_node *node, const int64_t *perm)
{
    const struct attn_attr *attr = attn_node_attr(node, "perm");
    return node_is(node, "Transpose") && attr != NULL && attr->kind == ATTN_ATTR_INTS &&
           attr->ints.n == 4 && memcmp(attr->ints.v, perm, 4 * sizeof *perm) == 0;
}

/* Whether a value is a constant f32 vector of n elements. */
static bool is_vector(const struct layout *l, int32_t value, int64_t n)
{
    if (!match_is_constant(l->graph, value))
        return false;
    const attnrun_tensor *t = &l->graph->values[value].data;
    return t->dtype == ATTNRUN_F32 && t->rank == 1 && t->dims[0] == n;
}

/* Whether a value is [N, H, W, C] of known channels, which a member may give. */
static bool can_be_last(const struct layout *l, int32_t value)
{
    const attnrun_type *t = layout_type(l, value);
    return attn_match_is_f32(l->graph, value) && t->rank == 4 &&
           dim_is_const(t->dims[3]) && t->dims[3].value > 0;
}

static bool is_norm(const struct layout *l, const struct attn_node *node)
{
    const int64_t axis = attn_match_int(node, "axis", -1);
    if (!node_is(node, "LayerNormalization") || (axis != -1 && axis != 3) ||
        node->pub.n_in < 2)
        return false;
    for (int32_t i = 1; i < node->pub.n_out; i++)
        if (node->out[i] >= 0)
            return false;
    const int64_t channels = layout_channels(l, node->in[0]);
    return is_vector(l, node->in[1], channels) &&
           (node->pub.n_in < 3 || node->in[2] < 0 || is_vector(l, node->in[2], channels));
}

static bool transposes_b(const struct attn_node *node)
{
    return node_is_of(node, "attnrun.fused", "FusedMatMul") &&
           attn_match_int(node, "transB", 0) != 0;
}

static bool is_product(const struct layout *l, const struct attn_node *node)
{
    const bool fused = node_is_of(node, "attnrun.fused", "FusedMatMul");
    if ((!fused && !node_is(node, "MatMul")) || node->pub.n_in < 2 ||
        !attn_match_is_stored(l->graph, node->in[1]))
        return false;
    const attnrun_tensor *w = &l->graph->values[node->in[1]].data;
    if (w->rank != 2 || w->dims[0] < 1 || w->dims[1] < 1)
        return false;
    const int64_t rows = w->dims[transposes_b(node) ? 0 : 1];
    if (!fused)
        return true;
    return attn_match_int(node, "transA", 0) == 0 &&
           attn_match_float(node, "alpha", 1.0f) == 1.0f &&
           (node->pub.n_in < 3 || node->in[2] < 0 || is_vector(l, node->in[2], rows)) &&
           (node->pub.n_in < 4 || node->in[3] < 0 || layout_is_last(l, node->in[3]));
}

static bool is_scale(const struct layout *l, const struct attn_node *node)
{
    if (!node_is(node, "Mul") || node->pub.opset < 7 || node->pub.n_in != 2)
        return false;
    for (int map = 0; map < 2; map++) {
        const int32_t x = node->in[map], factor = node->in[1 - map];
        const bool last = layout_is_last(l, x);
        if ((!last && !layout_is_member_map(l, x)) ||
            !match_is_constant(l->graph, factor) ||
            !attn_match_same_shape(l->graph, x, node->out[0]))
            continue;
        const attnrun_tensor *t = &l->graph->values[factor].data;
        const int axis = t->rank - (last ? 1 : 3);
        return t->dtype == ATTNRUN_F32 && axis >= 0 && t->rank <= 4 &&
               t->dims[axis] == layout_channels(l, x) && t->dims[axis] == tensor_count(t);
    }
    return false;
}

enum member attn_last_member(const struct layout *l, const struct attn_node *node)
{
    static const int64_t to_last[4] = { 0, 2, 3, 1 }, to_first[4] = { 0, 3, 1, 2 };
    const int32_t x = node->in[0];
    if (is_scale(l, node))
        return MEMBER_SCALE;
    if (layout_is_member_map(l, x))
        return permutes(node, to_last) && can_be_last(l, node->out[0]) ? MEMBER_TO_LAST
                                                                       : MEMBER_NONE;
    if (!layout_is_last(l, x))
        return MEMBER_NONE;
    if (permutes(node, to_first))
        return MEMBER_TO_FIRST;
    if (is_norm(l, node))
        return MEMBER_NORM;
    return is_product(l, node) && can_be_last(l, node->out[0]) ? MEMBER_PRODUCT
                                                               : MEMBER_NONE;
}

/* ---- what takes their places ---- */

/* Makes the weights [C, M, 1, 1]. */
static attn_status make_weights(struct layout *l, const attnrun_tensor *w, int32_t *value)
{
    const int64_t dims[4] = { w->dims[0], w->dims[1], 1, 1 };
    attnrun_tensor view;
    TRY(attnrun_tensor_make(w->dtype, 4, dims, w->data, &view));
    return attn_graph_add_constant(l->graph, NULL, &view, value);
}

static attn_status make_product(struct layout *l, struct attn_node *node, int32_t out)
{
    const attnrun_tensor w = l->graph->values[node->in[1]].data; /* values may move */
    const struct attn_attr *activation = attn_node_attr(node, "activation");
    struct attn_attr attrs[3] = {
        MATCH_INT("channels", layout_channels(l, node->in[0])),
        MATCH_INT("transposed", !transposes_b(node)),
    };
    int32_t in[4] = { -1, -1, -1, -1 };
    TRY(make_weights(l, &w, &in[1]));
    TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    if (node->pub.n_in > 2)
        in[2] = node->in[2];
    if (node->pub.n_in > 3 && node->in[3] >= 0)
        TRY(attn_layout_blocked(l, node, node->in[3], &in[3]));
    if (activation != NULL)
        attrs[2] = *activation;
    return attn_layout_insert(l, node, "BlockedConv", in[3] >= 0 ? 4 : 3, in, out,
                              activation != NULL ? 3 : 2, attrs);
}

static attn_status make_norm(struct layout *l, struct attn_node *node, int32_t out)
{
    const struct attn_attr attrs[] = { MATCH_FLOAT(
        "epsilon", attn_match_float(node, "epsilon", 1e-5f)) };
    int32_t in[3] = { -1, node->in[1], node->pub.n_in > 2 ? node->in[2] : -1 };
    TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    return attn_layout_insert(l, node, "BlockedNorm", 3, in, out, 1, attrs);
}

static attn_status make_scale(struct layout *l, struct attn_node *node, int32_t out)
{
    const int map = match_is_constant(l->graph, node->in[0]) ? 1 : 0;
    const int32_t factor = node->in[1 - map];
    const int64_t channels = layout_channels(l, node->in[map]);
    const int64_t dims[5] = { 1, ceil_div(channels, ATTN_BLOCK), 1, 1, ATTN_BLOCK };
    int32_t in[2];
    void *data;
    TRY(attn_graph_new_constant(l->graph, ATTNRUN_F32, 5, dims, &in[1], &data));
    memset(data, 0, (size_t)(dims[1] * ATTN_BLOCK) * sizeof(float));
    memcpy(data, l->graph->values[factor].data.data, (size_t)channels * sizeof(float));
    TRY(attn_layout_blocked(l, node, node->in[map], &in[0]));
    return attn_layout_insert(l, node, "BlockedGate", 2, in, out, 0, NULL);
}

attn_status attn_last_rewrite(struct layout *l, struct attn_node *node, enum member kind,
                              int32_t out)
{
    if (kind == MEMBER_PRODUCT)
        return make_product(l, node, out);
    return kind == MEMBER_NORM ? make_norm(l, node, out) : make_scale(l, node, out);
}

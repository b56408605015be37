/* skip_layer_norm.c - Add of two operands of one shape, then LayerNormalization or
 * RMSNormalization over the last axis, become SkipLayerNormalization or
 * SkipSimplifiedLayerNormalization. The pass runs when no other pass finds anything more,
 * because a product takes a residual sooner. A sum that other nodes read stays: a row
 * then goes to memory twice anyway, and one node was measured to be no faster than two.
 */
#include "match.h"

struct skip_norm {
    struct attn_node *norm, *add;
    const char *op_type;
    int32_t bias_in; /* of the norm's inputs, or -1 */
};

/* Only output 0 is wanted. */
static bool is_norm(const struct attn_node *node, struct skip_norm *found)
{
    bool rms = node_is(node, "RMSNormalization") ||
               node_is(node, "SimplifiedLayerNormalization");
    if (node == NULL || (!rms && !node_is(node, "LayerNormalization")))
        return false;
    for (int32_t out = 1; out < node->pub.n_out; out++)
        if (node->out[out] >= 0)
            return false;
    found->op_type = rms ? "SkipSimplifiedLayerNormalization" : "SkipLayerNormalization";
    found->bias_in = !rms && node->pub.n_in > 2 && node->in[2] >= 0 ? 2 : -1;
    return true;
}

/* A vector as long as the last dim, of rank 1. */
static bool is_weight(const struct attn_graph *graph, int32_t value, attnrun_dim length)
{
    const attnrun_type *type = &graph->values[value].type;
    return attn_match_is_f32(graph, value) && type->rank == 1 &&
           dim_equal(type->dims[0], length);
}

static bool match_skip_norm(const struct attn_graph *graph, struct attn_node *node,
                            struct skip_norm *found)
{
    if (!is_norm(node, found))
        return false;
    found->norm = node;
    found->add = attn_match_sole_in(graph, node, 0, "Add");
    if (found->add == NULL || found->add->pub.opset < 7)
        return false;
    const struct attn_node *add = found->add;
    const attnrun_type *x = &graph->values[add->out[0]].type;
    int64_t axis = attn_match_int(node, "axis", -1);
    if (graph->values[add->out[0]].flags & ATTN_VALUE_OUTPUT)
        return false;
    return attn_match_is_f32(graph, add->out[0]) &&
           attn_match_is_f32(graph, node->out[0]) && x->rank >= 2 &&
           (axis == -1 || axis == x->rank - 1) &&
           attn_match_same_shape(graph, add->in[0], add->in[1]) &&
           attn_match_same_shape(graph, add->in[0], add->out[0]) &&
           is_weight(graph, node->in[1], x->dims[x->rank - 1]) &&
           (found->bias_in < 0 ||
            is_weight(graph, node->in[found->bias_in], x->dims[x->rank - 1]));
}

static attn_status replace_norm(struct attn_graph *graph, const struct skip_norm *found)
{
    struct attn_node *norm = found->norm, *add = found->add;
    int32_t in[4] = { add->in[0], add->in[1], norm->in[1],
                      found->bias_in < 0 ? -1 : norm->in[found->bias_in] };
    struct attn_attr epsilon =
        MATCH_FLOAT("epsilon", attn_match_float(norm, "epsilon", 1e-5f));
    struct attn_node *made;
    TRY(attn_match_make(graph, norm, "com.microsoft", found->op_type, in[3] < 0 ? 3 : 4,
                        in, norm->out[0], 1, &epsilon, &made));
    attn_match_replace(graph, norm->out[0], made);
    attn_graph_remove(graph, norm);
    attn_graph_remove(graph, add);
    return ATTNRUN_OK;
}

static attn_status try_skip_norm(struct attn_graph *graph, struct attn_node *node,
                                 int32_t *applied)
{
    struct skip_norm found;
    if (!match_skip_norm(graph, node, &found))
        return ATTNRUN_OK;
    ++*applied;
    return replace_norm(graph, &found);
}

const struct attn_pass attn_pass_skip_layer_norm = { .name = "skip_layer_norm",
                                                     .try_node = try_skip_norm,
                                                     .last = true };

/* pixel_mean.c - the mean over height and width of a map. In: ReduceMean of a map [N, C, H, W] over
 * its last two axes that drops them, as exporters write the end of a network. Out: ReduceMean that
 * keeps them, [N, C, 1, 1], which blocked_layout computes on blocks of channels, and a Reshape
 * to [N, C], a view. Exact. */
#include "match.h"

bool attn_match_pixel_mean(const struct attn_graph *graph, const struct attn_node *node)
{
    const struct attn_attr *attr = attn_node_attr(node, "axes");
    int64_t axes[2];
    if (node_is(node, "GlobalAveragePool"))
        return true;
    if (!node_is(node, "ReduceMean") || match_type(graph, node->in[0])->rank != 4)
        return false;
    if (attr != NULL && attr->kind == ATTN_ATTR_INTS && attr->ints.n == 2) {
        memcpy(axes, attr->ints.v, sizeof axes);
    } else if (node->pub.n_in == 2 && match_is_constant(graph, node->in[1])) {
        const attnrun_tensor *t = &graph->values[node->in[1]].data;
        if (t->dtype != ATTNRUN_I64 || t->rank != 1 || t->dims[0] != 2)
            return false;
        memcpy(axes, t->data, sizeof axes);
    } else {
        return false;
    }
    for (int i = 0; i < 2; i++)
        axes[i] += axes[i] < 0 ? 4 : 0;
    return (axes[0] == 2 && axes[1] == 3) || (axes[0] == 3 && axes[1] == 2);
}

static attn_status try_pixel_mean(struct attn_graph *graph, struct attn_node *node,
                                  int32_t *applied)
{
    static const int64_t axes[2] = { 2, 3 }, dims[2] = { 0, 0 };
    const struct attn_attr keepdims = MATCH_INT("keepdims", 1);
    int32_t in[2] = { node->in[0] }, value;
    if (attn_match_int(node, "keepdims", 1) != 0 || !attn_match_pixel_mean(graph, node) ||
        !attn_match_is_map(graph, node->in[0]))
        return ATTNRUN_OK;
    TRY(attn_match_ints(graph, 2, axes, &in[1]));
    TRY(attn_match_add(graph, node, "ReduceMean", 2, in, 1, &keepdims, &value));
    TRY(attn_match_reshape(graph, node, 2, dims, &value));
    attn_match_replace(graph, node->out[0], attn_graph_producer(graph, value));
    attn_graph_remove(graph, node);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_pixel_mean = { .name = "pixel_mean",
                                                .op_type = "ReduceMean",
                                                .try_node = try_pixel_mean };

/* fuse_external.c - attention of tokens to learned slots becomes ExternalAttention of
 * domain attnrun, which makes the logits a tile at a time:
 *
 *   L = mk x,   A = Softmax(L over tokens),   Y = mv (A / (epsilon + sum over slots A)) + bv
 *
 * mk and mv are constants: of MatMul, for x (batch, tokens, channels), or of Conv of size
 * 1, for x (batch, channels, tokens). Both may have been maps of rank 4 before, tokens
 * through a Transpose. Nodes whose mk has a bias stay unchanged, though the softmax over
 * tokens would cancel it. */
#include "map_gates.h"

struct external_match {
    bool by_dim; /* channels before tokens */
    int32_t x, result;
    double epsilon;
    struct attn_dense_found mk, mv;
    bool map; /* x and the result are maps of rank 4 */
};

/* Reads a product of *x and a constant along the channels: `node`, or an Add of a vector
 * behind it. */
static bool read_linear(const struct attn_graph *graph, const struct attn_node *node,
                        bool by_dim, struct attn_dense_found *linear, int32_t *x)
{
    if (!node_is(node, by_dim ? "Conv" : "MatMul") ||
        !attn_match_is_stored(graph, node->in[1]) ||
        !attn_match_is_f32_of(graph, node->in[0], 3))
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    if (w->rank != (by_dim ? 3 : 2))
        return false;
    *x = node->in[0];
    *linear = (struct attn_dense_found){ .w = node->in[1],
                                         .rows = w->dims[by_dim ? 0 : 1],
                                         .columns = w->dims[by_dim ? 1 : 0],
                                         .bias = -1,
                                         .transposed = !by_dim };
    if (!by_dim)
        return true;
    return w->dims[2] == 1 && attn_conv_is_dense(node) &&
           attn_dense_takes_bias(graph, node, linear);
}

/* Reads a softmax that is divided by a sum of itself, which makes a node a candidate.
 * NULL: there is none. */
static const struct attn_node *read_weights(const struct attn_graph *graph,
                                            const struct attn_node *div,
                                            const struct attn_node **reduce,
                                            struct external_match *found)
{
    int32_t sum = div->in[1];
    const struct attn_node *softmax = attn_match_in(graph, div, 0, "Softmax");
    const struct attn_node *add = attn_graph_producer(graph, sum);
    if (softmax == NULL || !attn_match_is_f32_of(graph, div->in[0], 3) ||
        softmax->pub.opset < 13)
        return NULL;
    found->epsilon = 0;
    if (node_is(add, "Add") &&
        !attn_match_scalar(graph, add, true, &found->epsilon, &sum))
        return NULL;
    *reduce = attn_graph_producer(graph, sum);
    return node_is(*reduce, "ReduceSum") && (*reduce)->in[0] == div->in[0] ? softmax
                                                                           : NULL;
}

/* Checks that the softmax is over tokens and the sum over slots, and that nothing else
 * reads the weights. */
static const char *fuse_external_check_weights(const struct attn_graph *graph,
                                               const struct attn_node *softmax,
                                               const struct attn_node *reduce,
                                               struct external_match *found)
{
    uint32_t axes;
    const struct attn_value *weights = &graph->values[softmax->out[0]];
    const int64_t axis = attn_match_int(softmax, "axis", -1);
    if (weights->n_uses != 2 || (weights->flags & ATTN_VALUE_OUTPUT))
        return "other nodes read its weights";
    found->by_dim = axis == 2 || axis == -1;
    const bool fits =
        attn_match_int(reduce, "keepdims", 1) != 0 && found->epsilon >= 0 &&
        attn_match_axes(graph, reduce, &axes) &&
        (found->by_dim ? axes == 1u << 1 : axes == 1u << 2 && (axis == 1 || axis == -2));
    return fits ? NULL : "its softmax is not over tokens, or its sum not over slots";
}

/* Exchanges the two last of three axes. */
static bool swaps_tokens(const struct attn_node *node)
{
    static const int64_t perm[] = { 0, 2, 1 };
    const struct attn_attr *attr = node ? attn_node_attr(node, "perm") : NULL;
    return node_is(node, "Transpose") && attr != NULL && attr->kind == ATTN_ATTR_INTS &&
           attr->ints.n == 3 && memcmp(attr->ints.v, perm, sizeof perm) == 0;
}

/* Takes (batch, channels, pixels), also where it is transposed to tokens, as the map that
 * it was, and the result as a map again. */
static void take_maps(const struct attn_graph *graph, struct external_match *found)
{
    int32_t x = found->x;
    const struct attn_node *behind = attn_graph_only_user(graph, found->result);
    if (!found->by_dim) {
        const struct attn_node *transpose = attn_graph_producer(graph, x);
        if (!swaps_tokens(transpose) || !swaps_tokens(behind) ||
            !attn_match_is_f32_of(graph, transpose->in[0], 3))
            return;
        x = transpose->in[0];
        behind = attn_graph_only_user(graph, behind->out[0]);
    }
    const struct attn_node *before = attn_graph_producer(graph, x);
    if (!node_is(before, "Reshape") || !node_is(behind, "Reshape") ||
        !attn_match_is_f32_of(graph, before->in[0], 4) ||
        !attn_match_is_f32_of(graph, behind->out[0], 4))
        return;
    const attnrun_dim *from = match_type(graph, before->in[0])->dims,
                      *to = match_type(graph, behind->out[0])->dims,
                      *flat = match_type(graph, x)->dims;
    if (!dim_equal(from[0], flat[0]) || !dim_equal(from[1], flat[1]) ||
        !dim_equal(to[0], flat[0]) || !dim_is(to[1], found->mv.rows) ||
        !dim_equal(to[2], from[2]) || !dim_equal(to[3], from[3]))
        return;
    found->x = before->in[0];
    found->result = behind->out[0];
    found->map = true;
}

/* Reads both products, the first of which only the softmax reads, and the bias behind
 * them. */
static const char *read_products(const struct attn_graph *graph,
                                 const struct attn_node *softmax,
                                 const struct attn_node *div,
                                 struct external_match *found)
{
    int32_t weights;
    const struct attn_node *user = attn_graph_only_user(graph, div->out[0]);
    if (attn_graph_only_user(graph, softmax->in[0]) != softmax)
        return "other nodes read its logits";
    if (!read_linear(graph, attn_graph_producer(graph, softmax->in[0]), found->by_dim,
                     &found->mk, &found->x) ||
        !read_linear(graph, user, found->by_dim, &found->mv, &weights) ||
        weights != div->out[0])
        return "it does not multiply by constant slots";
    if (found->mk.bias >= 0)
        return "its keys have a bias";
    found->result = user->out[0];
    const attnrun_dim channels = match_type(graph, found->x)->dims[found->by_dim ? 1 : 2];
    if (found->mk.rows != found->mv.columns || found->mk.rows < 1 ||
        !dim_is(channels, found->mk.columns) || found->mk.columns < 1)
        return "its two products differ in the number of slots or channels";
    const struct attn_node *add = attn_graph_only_user(graph, found->result);
    int64_t n;
    if (!found->by_dim && node_is(add, "Add")) {
        const int32_t bias = attn_match_other(add, found->result);
        if (bias >= 0 && attn_match_vector(graph, bias, &n) && n == found->mv.rows &&
            attn_match_is_f32_of(graph, add->out[0], 3)) {
            found->mv.bias = bias;
            found->result = add->out[0];
        }
    }
    take_maps(graph, found);
    return NULL;
}

static attn_status fuse_external_replace(struct attn_graph *graph,
                                         struct attn_node *before,
                                         const struct external_match *found)
{
    const int64_t last = 3;
    int32_t in[4] = { found->x, -1, -1, -1 }, axis = -1, bias, y;
    const struct attn_attr attrs[2] = { MATCH_FLOAT("epsilon", (float)found->epsilon),
                                        MATCH_INT("nan_rows", 1) };
    struct attn_node *made;
    TRY(attn_dense_make(graph, &found->mk, &in[1], &bias));
    TRY(attn_dense_make(graph, &found->mv, &in[2], &in[3]));
    if (!found->by_dim || found->map) {
        TRY(attn_match_make(graph, before, "attnrun", "ExternalAttention", 4, in,
                            found->result, 2, attrs, &made));
        attn_match_replace(graph, found->result, made);
        return ATTNRUN_OK;
    }
    /* (batch, channels, tokens) is a map of width 1. */
    TRY(attn_match_ints(graph, 1, &last, &axis));
    const int32_t wide[2] = { found->x, axis };
    TRY(attn_match_add(graph, before, "Unsqueeze", 2, wide, 0, NULL, &in[0]));
    TRY(attn_graph_add_value(graph, NULL, &y));
    TRY(attn_graph_insert(graph, before, "attnrun", "ExternalAttention", 4, in, 1, &y, 2,
                          attrs, &made));
    const int32_t both[2] = { y, axis };
    TRY(attn_match_make(graph, before, "", "Squeeze", 2, both, found->result, 0, NULL,
                        &made));
    attn_match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

static attn_status try_div(struct attn_graph *graph, struct attn_node *div,
                           int32_t *applied)
{
    struct external_match found = { .x = -1 };
    const struct attn_node *reduce = NULL;
    const struct attn_node *softmax = read_weights(graph, div, &reduce, &found);
    if (softmax == NULL)
        return ATTNRUN_OK;
    const char *why = fuse_external_check_weights(graph, softmax, reduce, &found);
    if (why == NULL)
        why = read_products(graph, softmax, div, &found);
    TRY(attn_graph_note(graph, div, "external_attention", why));
    if (why != NULL)
        return ATTNRUN_OK;
    TRY(fuse_external_replace(graph, div, &found));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_external_attention = { .name = "external_attention",
                                                        .op_type = "Div",
                                                        .try_node = try_div };

/* fuse_linear_ones.c - attention by kernel features whose sums of weights are one more column of
 * the products, since values have a column of ones, becomes LinearAttention of domain attnrun:
 *
 *   P = f(Q) (f(K)' [V 1]),   Y = P without its last column / (its last column + epsilon)
 *
 * The ones come from a Pad; the columns are Slices, and nothing else reads P. Products are MatMul
 * or Einsum, axes come in any order (linear_roles.h); f is elu + 1, relu, or whatever the graph
 * makes of Q and K. Source of the form: Cai 2022 (EfficientViT), arXiv:2205.14756. */
#include "linear_quotient.h"

enum { RANK = 4 };

struct linear_ones_match {
    struct attn_linear_roles r;
    double epsilon;
};

/* The tensor of which `value` is the elements from..to-1 of `axis`; -1: it is no such Slice. */
static int32_t sliced(const struct attn_graph *graph, int32_t value, int axis,
                      int64_t *from, int64_t *to)
{
    const struct attn_node *slice = attn_graph_producer(graph, value);
    return node_is(slice, "Slice") && attn_match_is_f32_of(graph, slice->in[0], RANK) &&
                   attn_match_slice(graph, slice, axis, from, to)
               ? slice->in[0]
               : -1;
}

/* V of [V 1], whose last axis but for Transposes has the ones. */
static bool take_values(const struct attn_graph *graph, struct attn_linear_roles *r)
{
    int64_t pads[2 * ATTNRUN_MAX_RANK];
    double one;
    const int at = attn_labelled_place(&r->v, r->v_dim);
    const struct attn_node *pad = attn_graph_producer(graph, r->v.value);
    if (!node_is(pad, "Pad") || !attn_match_is_f32_of(graph, pad->in[0], RANK) ||
        !attn_match_pads(graph, pad, RANK, pads, &one) || one != 1)
        return false;
    for (int i = 0; i < 2 * RANK; i++)
        if (pads[i] != (i == RANK + at))
            return false;
    r->v.value = pad->in[0];
    attn_labelled_untranspose(graph, &r->v);
    return true;
}

/* The products P, both of whose columns `node` reads along `axis`. */
static int32_t read_columns(const struct attn_graph *graph, const struct attn_node *node,
                            int axis, struct linear_ones_match *found)
{
    int64_t from, to, first, end;
    int32_t divisor = node->in[1];
    const struct attn_node *add = attn_graph_producer(graph, divisor);
    found->epsilon = 0;
    if (node_is(add, "Add") &&
        !attn_match_scalar(graph, add, true, &found->epsilon, &divisor))
        return -1;
    const int32_t p = sliced(graph, node->in[0], axis, &from, &to);
    return p >= 0 && found->epsilon >= 0 && graph->values[p].n_uses == 2 &&
                   sliced(graph, divisor, axis, &first, &end) == p && from == 0 &&
                   first == to && end == to + 1 &&
                   dim_is(graph->values[p].type.dims[axis], end)
               ? p
               : -1;
}

static bool read_linear_ones(const struct attn_graph *graph, const struct attn_node *node,
                             struct linear_ones_match *found)
{
    struct attn_product p;
    for (int axis = 0; axis < RANK; axis++) {
        const int32_t value = read_columns(graph, node, axis, found);
        if (value < 0 || !attn_product_read(graph, value, &p) || p.n_in != 2)
            continue;
        for (int q = 0; q < 2; q++)
            if (graph->values[p.in[1 - q].value].n_uses == 1 &&
                attn_linear_roles_read(graph, &p, q, 1 - q, &found->r) &&
                found->r.q.n == RANK && p.out.labels[axis] == found->r.v_dim &&
                take_values(graph, &found->r))
                return true;
    }
    return false;
}

static attn_status try_linear_ones(struct attn_graph *graph, struct attn_node *node,
                                   int32_t *applied)
{
    struct linear_ones_match found;
    if (!attn_match_is_f32_of(graph, node->out[0], RANK) ||
        !read_linear_ones(graph, node, &found))
        return ATTNRUN_OK;
    return attn_linear_replace_quotient(graph, node, "linear_ones", &found.r,
                                        found.epsilon, applied);
}

const struct attn_pass attn_pass_linear_ones = { .name = "linear_ones",
                                                 .op_type = "Div",
                                                 .try_node = try_linear_ones };

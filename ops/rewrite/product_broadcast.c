/* product_broadcast.c - reads products that are written by broadcasting, with axes of 1 that
 * Unsqueeze made, as products whose axes have labels: see product.h.
 *
 *   Mul(Unsqueeze(A), Unsqueeze(B))                    nothing is summed
 *   MatMul(Unsqueeze(A, -1), Unsqueeze(B, -2))         the same
 *   ReduceSum(Mul(Unsqueeze(A), Unsqueeze(B)), axis)   that axis is summed; either one may be as it
 *                                                      is
 *   Squeeze(MatMul(Unsqueeze(A, -2), B), -2)           rows of A by matrices of B; also with
 *                                                      Gather 0 in the place of Squeeze
 *
 * In: a value. Out: A, B and the value, each with a label for every axis. Sizes are not compared:
 * an axis of 1 that is no Unsqueeze is one of a label, as in an Einsum. */
#include "product.h"

static const char broadcast_labels[] = "abcdef";

static bool of_rank(const struct attn_graph *graph, int32_t value, int rank)
{
    return attn_match_is_f32_of(graph, value, rank) && !match_is_constant(graph, value);
}

/* Whether a node is an Unsqueeze that makes only axis `axis` of its result. */
static bool makes_axis(const struct attn_graph *graph, const struct attn_node *node,
                       int *axis)
{
    double at;
    if (!node_is(node, "Unsqueeze") || node->pub.n_in < 2 ||
        !attn_value_scalar(graph, node->in[1], &at))
        return false;
    const int rank = match_type(graph, node->out[0])->rank;
    *axis = (int)(at < 0 ? at + rank : at);
    return *axis >= 0 && *axis < rank;
}

/* An operand of a product whose axes have these labels: `value` itself, or, without the label of
 * the axis that it made, what an Unsqueeze reads. */
static bool read_operand(const struct attn_graph *graph, int32_t value,
                         const char *labels, int rank, struct attn_labelled *x)
{
    int axis;
    const struct attn_node *node = attn_graph_producer(graph, value);
    *x = (struct attn_labelled){ .value = value, .n = rank };
    memcpy(x->labels, labels, (size_t)rank);
    if (makes_axis(graph, node, &axis)) {
        x->value = node->in[0];
        x->n = rank - 1;
        memmove(x->labels + axis, x->labels + axis + 1, (size_t)(rank - 1 - axis));
        x->labels[rank - 1] = 0;
    }
    return of_rank(graph, x->value, x->n);
}

/* Mul of two operands, or MatMul of columns and rows of one element. */
static bool read_outer(const struct attn_graph *graph, int32_t value,
                       struct attn_product *p)
{
    const struct attn_node *node = attn_graph_producer(graph, value);
    const bool columns = node_is(node, "MatMul");
    const int rank = match_type(graph, value)->rank;
    if ((!columns && !node_is(node, "Mul")) || node->pub.n_in != 2 || rank < 2 ||
        rank > PRODUCT_RANK)
        return false;
    p->n_in = 2;
    p->out = (struct attn_labelled){ .value = value, .n = rank };
    memcpy(p->out.labels, broadcast_labels, (size_t)rank);
    for (int side = 0; side < 2; side++) {
        int axis = -1;
        const struct attn_node *operand = attn_graph_producer(graph, node->in[side]);
        if (match_type(graph, node->in[side])->rank != rank ||
            (columns &&
             (!makes_axis(graph, operand, &axis) || axis != rank - 1 - side)) ||
            !read_operand(graph, node->in[side], broadcast_labels, rank, &p->in[side]))
            return false;
    }
    return columns || p->in[0].n + p->in[1].n < 2 * rank;
}

/* Takes the label of an axis off the result. */
static void sum_axis(struct attn_product *p, int32_t value, int axis)
{
    struct attn_labelled *out = &p->out;
    out->value = value;
    out->n--;
    memmove(out->labels + axis, out->labels + axis + 1, (size_t)(out->n - axis));
    out->labels[out->n] = 0;
}

static bool read_summed(const struct attn_graph *graph, const struct attn_node *sum,
                        struct attn_product *p)
{
    int axis;
    if (!attn_match_axis(graph, sum, &axis) || attn_match_int(sum, "keepdims", 1) != 0 ||
        !node_is(attn_graph_producer(graph, sum->in[0]), "Mul") ||
        !read_outer(graph, sum->in[0], p))
        return false;
    const char label = p->out.labels[axis];
    if (!attn_labelled_has(&p->in[0], label) || !attn_labelled_has(&p->in[1], label))
        return false;
    sum_axis(p, sum->out[0], axis);
    return true;
}

/* Whether a node takes the one row of each matrix of its input. */
static bool takes_row(const struct attn_graph *graph, const struct attn_node *node)
{
    double index;
    int axis;
    if (node == NULL || node->pub.n_in < 1)
        return false;
    const int64_t rank = match_type(graph, node->in[0])->rank;
    if (rank < 2)
        return false;
    if (node_is(node, "Squeeze"))
        return attn_match_axis(graph, node, &axis) && axis == rank - 2;
    const int64_t at = attn_match_int(node, "axis", 0);
    return node_is(node, "Gather") && (at < 0 ? at + rank : at) == rank - 2 &&
           match_type(graph, node->in[1])->rank == 0 &&
           attn_value_scalar(graph, node->in[1], &index) && index >= -1 && index <= 0;
}

static bool read_rows(const struct attn_graph *graph, const struct attn_node *node,
                      struct attn_product *p)
{
    int axis;
    const struct attn_node *product = attn_match_in(graph, node, 0, "MatMul");
    if (product == NULL || !takes_row(graph, node) ||
        !attn_product_read(graph, product->out[0], p) || p->out.n < 3 ||
        !makes_axis(graph, attn_graph_producer(graph, product->in[0]), &axis) ||
        axis != p->in[0].n - 2)
        return false;
    struct attn_labelled *a = &p->in[0];
    a->value = attn_graph_producer(graph, product->in[0])->in[0];
    a->labels[axis] = a->labels[axis + 1];
    a->labels[--a->n] = 0;
    sum_axis(p, node->out[0], p->out.n - 2);
    return of_rank(graph, a->value, a->n);
}

bool attn_product_read_broadcast(const struct attn_graph *graph, int32_t value,
                                 struct attn_product *p)
{
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (!attn_match_is_f32(graph, value))
        return false;
    return node_is(node, "ReduceSum") ? read_summed(graph, node, p)
           : node_is(node, "Squeeze") || node_is(node, "Gather")
               ? read_rows(graph, node, p)
               : read_outer(graph, value, p);
}

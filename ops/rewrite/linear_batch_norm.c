/* linear_batch_norm.c - a product by constant weights whose columns are normalized becomes one by
 * scaled weights, as LeViT and other networks have Linear and BatchNorm1d:
 *
 *   BatchNormalization(X W + b)  ->  X W' + b'        W' = W s, b' = (b - mean) s + bias
 *
 * In: MatMul, with or without an Add of a vector, or Gemm; perhaps a Reshape or Flatten to rows,
 * which goes behind the sum; BatchNormalization of rank 2 with constant statistics. Behind other
 * nodes it becomes X s + b', which computes rows and not one number at a time. */
#include "batch_norm.h"

struct linear_norm {
    struct attn_node *bn, *view, *product;
    int32_t rows; /* what is normalized, before the view */
    bool by_row;  /* Gemm of W' */
    struct batch_norm norm;
};

/* The vector that is added; false where it is something else. */
static bool read_added(const struct attn_graph *graph, int32_t value,
                       struct linear_norm *found)
{
    int64_t n;
    if (value < 0)
        return true;
    if (!attn_match_vector(graph, value, &n) || n != found->norm.channels ||
        graph->values[value].data.dtype != ATTNRUN_F32)
        return false;
    found->norm.conv_bias = graph->values[value].data.data;
    return true;
}

static bool read_weights(const struct attn_graph *graph, struct linear_norm *found)
{
    const struct attn_node *node = found->product;
    const bool gemm = node_is(node, "Gemm");
    if ((!gemm && !node_is(node, "MatMul")) ||
        !attn_match_is_stored(graph, node->in[1]) || !match_may_copy(graph, node->in[1]))
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    found->by_row = gemm && attn_match_int(node, "transB", 0) != 0;
    return w->dtype == ATTNRUN_F32 && w->rank == 2 &&
           w->dims[!found->by_row] == found->norm.channels &&
           (!gemm || (attn_match_float(node, "alpha", 1.0f) == 1.0f &&
                      attn_match_float(node, "beta", 1.0f) == 1.0f &&
                      read_added(graph, node->pub.n_in > 2 ? node->in[2] : -1, found)));
}

/* Reads what is in front of a BatchNormalization of rows. */
static bool read_linear(const struct attn_graph *graph, struct linear_norm *found)
{
    int32_t value = found->bn->in[0];
    struct attn_node *node = attn_graph_producer(graph, value);
    const attnrun_type *t = match_type(graph, value);
    if (t->rank != 2 || !dim_is_const(t->dims[1]) || !match_read_once(graph, value))
        return false;
    found->norm = (struct batch_norm){ .channels = t->dims[1].value };
    if (node_is(node, "Reshape") || node_is(node, "Flatten")) {
        found->view = node;
        value = node->in[0];
        node = attn_graph_producer(graph, value);
    }
    found->rows = value;
    t = match_type(graph, value);
    if (!attn_match_is_f32(graph, value) || t->rank < 2 ||
        !dim_is(t->dims[t->rank - 1], found->norm.channels) ||
        !match_read_once(graph, value))
        return false;
    if (node_is(node, "Add")) {
        const int side = match_is_constant(graph, node->in[0]);
        if (!attn_match_same_shape(graph, node->in[side], value) ||
            !match_read_once(graph, node->in[side]) ||
            !read_added(graph, node->in[1 - side], found))
            return false;
        node = attn_graph_producer(graph, node->in[side]);
        if (!node_is(node, "MatMul"))
            return false;
    }
    found->product = node;
    return read_weights(graph, found) &&
           attn_match_batch_norm(graph, found->bn, &found->norm);
}

/* Of rows that no product gives. */
static attn_status replace_by_sum(struct attn_graph *graph, struct attn_node *bn,
                                  int32_t *applied)
{
    const attnrun_type *t = match_type(graph, bn->in[0]);
    struct batch_norm norm;
    int32_t in[2] = { bn->in[0] }, shift;
    struct attn_node *made;
    if (!attn_match_is_f32_of(graph, bn->in[0], 2) || !dim_is_const(t->dims[1]))
        return ATTNRUN_OK;
    norm = (struct batch_norm){ .channels = t->dims[1].value };
    if (!attn_match_batch_norm(graph, bn, &norm))
        return ATTNRUN_OK;
    TRY(attn_batch_norm_vectors(graph, &norm, 1, &in[1], &shift));
    TRY(attn_match_add(graph, bn, "Mul", 2, in, 0, NULL, &in[0]));
    in[1] = shift;
    TRY(attn_match_make(graph, bn, "", "Add", 2, in, bn->out[0], 0, NULL, &made));
    attn_match_replace(graph, bn->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_linear_norm(struct attn_graph *graph, struct attn_node *bn,
                                   int32_t *applied)
{
    struct linear_norm found = { .bn = bn };
    int32_t in[3] = { -1, -1, -1 }, y;
    struct attn_node *made;
    if (bn->pub.opset <
        7) /* Add broadcast otherwise, and files that are written say so */
        return ATTNRUN_OK;
    if (!read_linear(graph, &found))
        return replace_by_sum(graph, bn, applied);
    const struct attn_node *product = found.product;
    const bool gemm = node_is(product, "Gemm");
    TRY(attn_batch_norm_scale(graph, product->in[1], !found.by_row, &found.norm, &in[1],
                              &in[2]));
    in[0] = product->in[0];
    TRY(attn_match_add(graph, bn, product->pub.op_type, 2 + gemm, in, product->n_attrs,
                       product->attrs, &y));
    if (!gemm) {
        const int32_t both[2] = { y, in[2] };
        TRY(attn_match_add(graph, bn, "Add", 2, both, 0, NULL, &y));
    }
    made = attn_graph_producer(graph, y);
    if (found.view != NULL) {
        int32_t view[2] = { y, found.view->pub.n_in > 1 ? found.view->in[1] : -1 };
        TRY(attn_match_make(graph, bn, "", found.view->pub.op_type, found.view->pub.n_in,
                            view, bn->out[0], found.view->n_attrs, found.view->attrs,
                            &made));
    }
    attn_match_replace(graph, bn->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_linear_batch_norm = { .name = "linear_batch_norm",
                                                       .op_type = "BatchNormalization",
                                                       .try_node = try_linear_norm,
                                                       .portable = true };

/* fuse_integer_to_float.c - a product of bytes that is scaled. In: MatMulInteger by a constant
 * matrix, Cast to f32, Mul by a scale, which is one number or one for each column, and perhaps Add
 * of a constant vector: what quantize_dynamic of ONNX Runtime writes. Out: one
 * MatMulIntegerToFloat, whose tasks scale their sums while these lie in the cache. The numbers are
 * those of the four nodes, but that a product and a sum may be rounded once. */
#include "match.h"

/* Whether a value is known to be one number, or one for each of n columns. */
static bool is_scale(const struct attn_graph *graph, int32_t value, int64_t n)
{
    const attnrun_type *type = match_type(graph, value);
    return attn_match_is_f32(graph, value) &&
           (type->rank == 0 ||
            (type->rank == 1 && (dim_is(type->dims[0], 1) || dim_is(type->dims[0], n))));
}

/* The zero point of A is one number, or absent. */
static bool has_one_zero(const struct attn_graph *graph, const struct attn_node *node)
{
    if (node->pub.n_in < 3 || node->in[2] < 0)
        return true;
    const attnrun_type *type = match_type(graph, node->in[2]);
    return type->rank == 0 || (type->rank == 1 && dim_is(type->dims[0], 1));
}

/* The Add of a constant vector of n numbers to what `mul` gives, and these; or NULL. */
static struct attn_node *find_bias(const struct attn_graph *graph,
                                   const struct attn_node *mul, int64_t n, int32_t *bias)
{
    struct attn_node *add = attn_match_user(graph, mul, "Add");
    int64_t length;
    if (add == NULL)
        return NULL;
    *bias = attn_match_other(add, mul->out[0]);
    return *bias >= 0 && attn_match_vector(graph, *bias, &length) && length == n &&
                   graph->values[*bias].data.rank <= match_type(graph, mul->out[0])->rank
               ? add
               : NULL;
}

static attn_status try_integer_to_float(struct attn_graph *graph, struct attn_node *node,
                                        int32_t *applied)
{
    const attnrun_tensor *b = &graph->values[node->in[1]].data;
    const struct attn_node *cast = attn_match_user(graph, node, "Cast");
    struct attn_node *mul = cast != NULL ? attn_match_user(graph, cast, "Mul") : NULL;
    int32_t in[7] = { node->in[0], node->in[1], -1, -1, -1, -1, -1 };
    struct attn_node *made;
    if (mul == NULL || b->data == NULL || b->rank != 2 || mul->pub.opset < 7 ||
        match_type(graph, node->in[0])->rank < 2 ||
        !attn_match_is_f32(graph, cast->out[0]) || !has_one_zero(graph, node))
        return ATTNRUN_OK;
    in[3] = attn_match_other(mul, cast->out[0]);
    if (in[3] < 0 || !is_scale(graph, in[3], b->dims[1]))
        return ATTNRUN_OK;
    struct attn_node *add = find_bias(graph, mul, b->dims[1], &in[6]);
    struct attn_node *last = add != NULL ? add : mul;
    void *one;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &in[2], &one));
    *(float *)one = 1.0f;
    if (add != NULL)
        TRY(attn_match_as_vector(graph, &in[6]));
    for (int i = 2; i < node->pub.n_in; i++)
        in[i + 2] = node->in[i];
    TRY(attn_match_make(graph, last, "com.microsoft", "MatMulIntegerToFloat",
                        add != NULL ? 7 : 6, in, last->out[0], 0, NULL, &made));
    attn_match_replace(graph, last->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_integer_to_float = { .name = "integer_to_float",
                                                      .op_type = "MatMulInteger",
                                                      .try_node = try_integer_to_float };

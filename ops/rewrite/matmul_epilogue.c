/* matmul_epilogue.c - MatMul (or a plain Gemm) by a constant, then Add of a constant
 * vector, Add of a tensor of the result's shape, and an activation become one
 * FusedMatMul: y = activation(A B + bias + residual). A MatMul by a Transpose of a
 * constant becomes one with transB, with or without these. A Reshape that keeps the
 * columns (GPT-2's Conv1D: Gemm, Reshape, activation) moves behind all of them. */
#include "epilogue.h"

struct product {
    struct attn_node *root;    /* MatMul or Gemm */
    int32_t in[4];             /* A, B, bias, residual; -1 absent */
    int32_t result;            /* value at the end of what is fused so far */
    int n_fused;               /* nodes beyond the root */
    struct attn_node *reshape; /* of the product, before what is fused; or NULL */
    struct epilogue epilogue;
    bool transposed_b;
};

/* A constant matrix that MatMul reads through a Transpose too large to fold: packing
 * transposes it for nothing. One of 16-bit elements may be cast behind that (promote.c).
 * -1 where B is not of that form. */
static int32_t transposed_constant(const struct attn_graph *graph,
                                   const struct attn_node *node)
{
    const struct attn_node *cast = attn_match_in(graph, node, 1, "Cast");
    struct attn_node *transpose = cast != NULL && cast->internal
                                      ? attn_match_in(graph, cast, 0, "Transpose")
                                      : attn_match_in(graph, node, 1, "Transpose");
    if (!node_is(node, "MatMul") || transpose == NULL ||
        !match_is_constant(graph, transpose->in[0]))
        return -1;
    const int32_t dtype = graph->values[transpose->in[0]].data.dtype;
    if (dtype != ATTNRUN_F32 && dtype != ATTNRUN_F16 && dtype != ATTNRUN_BF16)
        return -1;
    const struct attn_attr *perm = attn_node_attr(transpose, "perm");
    bool swaps = perm == NULL || (perm->kind == ATTN_ATTR_INTS && perm->ints.n == 2 &&
                                  perm->ints.v[0] == 1 && perm->ints.v[1] == 0);
    return swaps ? transpose->in[0] : -1;
}

static bool read_root(const struct attn_graph *graph, struct attn_node *node,
                      struct product *product)
{
    *product = (struct product){ .root = node, .in = { -1, -1, -1, -1 } };
    if (node->pub.n_in < 2 || node->out[0] < 0)
        return false;
    int32_t transposed = transposed_constant(graph, node);
    product->in[0] = node->in[0];
    product->in[1] = transposed >= 0 ? transposed : node->in[1];
    if (!attn_match_is_f32(graph, node->out[0]) ||
        !match_is_constant(graph, product->in[1]) ||
        graph->values[product->in[1]].data.rank != 2 ||
        graph->values[node->in[0]].type.rank < 2)
        return false;
    product->result = node->out[0];
    product->transposed_b = transposed >= 0;
    product->n_fused = transposed >= 0;
    if (node_is(node, "MatMul"))
        return true;
    if (!node_is(node, "Gemm") || attn_match_int(node, "transA", 0) != 0 ||
        attn_match_float(node, "alpha", 1.0f) != 1.0f ||
        attn_match_float(node, "beta", 1.0f) != 1.0f)
        return false;
    product->transposed_b = attn_match_int(node, "transB", 0) != 0;
    if (node->pub.n_in < 3 || node->in[2] < 0)
        return true;
    product->in[2] = node->in[2];
    return graph->values[node->in[2]].type.rank == 1 &&
           match_is_constant(graph, node->in[2]);
}

static int64_t columns(const struct attn_graph *graph, const struct product *product)
{
    const attnrun_tensor *b = &graph->values[product->in[1]].data;
    return b->dims[product->transposed_b ? 0 : 1];
}

/* Goes behind a Reshape that regroups the rows of the product. */
static void skip_reshape(const struct attn_graph *graph, struct product *product)
{
    struct attn_node *reshape = attn_graph_only_user(graph, product->result);
    if (!node_is(reshape, "Reshape") || reshape->pub.n_in != 2 ||
        reshape->in[0] != product->result)
        return;
    const attnrun_type *type = &graph->values[reshape->out[0]].type;
    if (type->rank < 1 || columns(graph, product) < 1 ||
        !dim_is(type->dims[type->rank - 1], columns(graph, product)))
        return;
    product->reshape = reshape;
    product->result = reshape->out[0];
}

static attn_status take_bias(struct attn_graph *graph, struct product *product)
{
    int64_t n;
    struct attn_node *add = attn_graph_only_user(graph, product->result);
    if (product->in[2] >= 0 || !node_is(add, "Add"))
        return ATTNRUN_OK;
    int32_t other = attn_match_other(add, product->result);
    if (other < 0 || !attn_match_vector(graph, other, &n) ||
        n != columns(graph, product) ||
        graph->values[other].data.rank > graph->values[product->result].type.rank)
        return ATTNRUN_OK;
    TRY(attn_match_as_vector(graph, &other));
    product->in[2] = other;
    product->result = add->out[0];
    product->n_fused++;
    return ATTNRUN_OK;
}

static void take_residual(const struct attn_graph *graph, struct product *product)
{
    const struct attn_node *add;
    const int32_t residual = attn_match_residual(graph, product->result, &add);
    if (residual < 0 ||
        (product->reshape && graph->values[product->root->out[0]].type.rank != 2))
        return;
    product->in[3] = residual;
    product->result = add->out[0];
    product->n_fused++;
}

static void take_activation(const struct attn_graph *graph, struct product *product)
{
    static const char *const words[] = { "relu", "gelu", "gelu_tanh",
                                         "silu", "tanh", "sigmoid" };
    struct epilogue epilogue;
    struct attn_node *user = attn_graph_only_user(graph, product->result);
    if (!attn_match_activation(graph, user, &epilogue))
        return;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], epilogue.activation) == 0) {
            product->epilogue = epilogue;
            product->result = user->out[0];
            product->n_fused++;
        }
}

/* The residual with its rows grouped as the product's: (-1, columns). */
static attn_status regroup_residual(struct attn_graph *graph, struct product *product)
{
    const int64_t shape[2] = { -1, columns(graph, product) };
    int32_t in[2] = { product->in[3], -1 };
    struct attn_node *made;
    TRY(attn_match_ints(graph, 2, shape, &in[1]));
    TRY(attn_match_make(graph, product->root, "", "Reshape", 2, in, product->root->out[0],
                        0, NULL, &made));
    product->in[3] = made->out[0];
    return ATTNRUN_OK;
}

/* The node that gives the result. */
static attn_status make(struct attn_graph *graph, struct product *product,
                        struct attn_node **made)
{
    const char *word =
        product->epilogue.activation ? product->epilogue.activation : "none";
    struct attn_attr attrs[] = { MATCH_STRING("activation", word),
                                 MATCH_INT("transB", product->transposed_b) };
    const int32_t *in = product->in, like = product->root->out[0];
    if (product->reshape && in[3] >= 0)
        TRY(regroup_residual(graph, product));
    const int32_t n_in = in[3] >= 0 ? 4 : in[2] >= 0 ? 3 : 2;
    TRY(attn_match_make(graph, product->root, "attnrun.fused", "FusedMatMul", n_in, in,
                        product->reshape ? like : product->result, 2, attrs, made));
    if (product->reshape == NULL)
        return ATTNRUN_OK;
    const int32_t reshaped[2] = { (*made)->out[0], product->reshape->in[1] };
    const struct attn_node *old = product->reshape;
    return attn_match_make(graph, product->root, "", "Reshape", 2, reshaped,
                           product->result, old->n_attrs, old->attrs, made);
}

static attn_status try_product(struct attn_graph *graph, struct attn_node *node,
                               int32_t *applied)
{
    struct product product;
    if ((!node_is(node, "MatMul") && !node_is(node, "Gemm")) ||
        !read_root(graph, node, &product))
        return ATTNRUN_OK;
    TRY(take_bias(graph, &product));
    skip_reshape(graph, &product);
    TRY(take_bias(graph, &product));
    take_residual(graph, &product);
    take_activation(graph, &product);
    if (product.n_fused == 0)
        return ATTNRUN_OK;
    struct attn_node *made;
    TRY(make(graph, &product, &made));
    attn_match_replace(graph, product.result, made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_matmul_epilogue = { .name = "matmul_epilogue",
                                                     .try_node = try_product };

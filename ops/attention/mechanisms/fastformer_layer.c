/* fastformer_layer.c - FastformerLayer: the whole layer around FastformerAttention, whose
 * values are its queries.
 *
 *   q = Wq x + bq   k = Wk x + bk                        width A = num_heads * dim
 *   a = softmax_n((Wqa q_n + bqa) / sqrt(dim) + mask_n)_h    G_h = sum_n a_n q_(n,h)
 *   p_n = k_n * G                                            all heads
 *   e = softmax_n((Wka p_n + bka) / sqrt(dim) + mask_n)_h    P_h = sum_n e_n p_(n,h)
 *   Y_n = Wt (P * q_n) + bt + q_n
 *
 * x               f32 (batch, n, C);  Y (batch, n, A)
 * Wq, Wk          (A, C);  bq, bk (A);  Wt (A, A);  bt (A)
 * Wqa, Wka        (num_heads, A);  bqa, bka (num_heads);  all biases are optional
 * mask            (batch, n) or (batch, 1, n), optional
 *                 b8: tokens that are false are left out of both sums, which
 *                 are zeros if no token is left;
 *                 f32: added to the logits unchanged, so a sample of -infinity is NaN
 *
 * The row is a formula: products with the weights, and FastformerAttention; with a mask
 * of f32 the sums of FastformerAttention are products, too. Refused: sizes that disagree,
 * an A that is no multiple of num_heads.
 * Cost: 2 n A (2 C + A) FLOPs. Memory: q, k and their product.
 * Source: Wu 2021, arXiv:2108.09084. Compared with wuch15/Fastformer 84cc859
 * FastSelfAttention. */
#include "../core/softmax_pooling.h"

enum { X, WQ, BQ, WQA, BQA, WK, BK, WKA, BKA, WT, BT, MASK };

struct layer_args {
    int64_t num_heads;
};
static const attnrun_attr_def layer_attrs[] = {
    ATTR_INT(struct layer_args, num_heads, 1),
    ATTR_END,
};

static attn_status check_linear(const attnrun_step *step, int w, attnrun_dim rows,
                                attnrun_dim columns)
{
    TRY(op_need_rank(step, w, 2));
    TRY(op_need_dim(step, w, 0, rows, "what it makes"));
    TRY(op_need_dim(step, w, 1, columns, "what it reads"));
    if (!op_has_in(step, w + 1))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, w + 1, 1));
    return op_need_dim(step, w + 1, 0, rows, "the rows of the matrix before it");
}

static attn_status fastformer_check_mask(const attnrun_step *step)
{
    if (!op_has_in(step, MASK))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, MASK, 2, 3));
    const int rank = step->in[MASK].rank;
    if (rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_dim(step, MASK, 0, attn_dim_of_input(step, X, 0), "the batch"));
    if (rank == 3)
        TRY(op_need_dim(step, MASK, 1, dim_of(1), "all heads"));
    return op_need_dim(step, MASK, rank - 1, attn_dim_of_input(step, X, 1), "the tokens");
}

static attn_status layer_infer(attnrun_step *step)
{
    const struct layer_args *args = step->args;
    const attnrun_dim heads = dim_of(args->num_heads),
                      width = attn_dim_of_input(step, WQ, 0),
                      channels = attn_dim_of_input(step, X, 2);
    if (args->num_heads < 1 || args->num_heads > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR, "num_heads is %lld, expected 1 or more",
                       (long long)args->num_heads);
    TRY(op_need_rank(step, X, 3));
    TRY(check_linear(step, WQ, width, channels));
    if (dim_is_const(width) && (width.value < 1 || width.value % args->num_heads != 0))
        return op_fail_input(step, WQ, ATTNRUN_E_SHAPE,
                             "expected a multiple of %lld, num_heads, in dim 0",
                             (long long)args->num_heads);
    TRY(check_linear(step, WQA, heads, width));
    TRY(check_linear(step, WK, width, channels));
    TRY(check_linear(step, WKA, heads, width));
    TRY(check_linear(step, WT, width, width));
    TRY(fastformer_check_mask(step));
    const attnrun_dim dims[3] = { attn_dim_of_input(step, X, 0),
                                  attn_dim_of_input(step, X, 1), width };
    return op_out(step, 0, ATTNRUN_F32, 3, dims);
}

static attn_status add_linear(const attnrun_step *step, attnrun_body *body, int bias,
                              const char *product, const char *sum)
{
    TRY(attnrun_body_add(body, product));
    return op_has_in(step, bias) ? attnrun_body_add(body, sum) : ATTNRUN_OK;
}

/* Adds nodes that make `pooled` (batch, 1, A) from `tokens` (batch, n, A) and their
 * logits (batch, n, heads). */
static attn_status add_pool(attnrun_body *body)
{
    return attnrun_body_add(
        body, "weights = Softmax(Transpose<perm=[0,2,1]>(logits * scale) + mask);"
              "parts = Transpose<perm=[0,2,1,3]>(Reshape(tokens, by_head));"
              "sums = MatMul(Unsqueeze(weights, [2]), parts);"
              "pooled = Reshape(Transpose<perm=[0,2,1,3]>(sums), joined)");
}

/* Adds the nodes of the layer with a mask that is added. */
static attn_status add_sums(const attnrun_step *step, attnrun_body *body)
{
    TRY(attnrun_body_add(body, "width = Shape<start=0,end=1>(Wq);"
                               "dim = Div(width, heads);"
                               "by_head = Concat<axis=0>([0,0], heads, dim);"
                               "joined = Concat<axis=0>([0,0], width);"
                               "scale = Reciprocal(Sqrt(Cast<to=1>(dim)));"
                               "Wqa = Reshape(Wqa, Concat<axis=0>(heads, width));"
                               "Wka = Reshape(Wka, Concat<axis=0>(heads, width));"
                               "key = attnrun.fused.CheckDims(key, query);"
                               "tokens = query"));
    TRY(add_linear(step, body, BQA, "logits = MatMul(query, Transpose<perm=[1,0]>(Wqa))",
                   "logits = logits + attnrun.fused.CheckDims(bqa, logits)"));
    TRY(add_pool(body));
    TRY(attnrun_body_add(body, "tokens = key * pooled"));
    TRY(add_linear(step, body, BKA, "logits = MatMul(tokens, Transpose<perm=[1,0]>(Wka))",
                   "logits = logits + attnrun.fused.CheckDims(bka, logits)"));
    TRY(add_pool(body));
    return attnrun_body_add(body, "values = query * pooled");
}

static attn_status layer_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct layer_args *args = step->args;
    const attnrun_type *mask = &step->in[MASK];
    attnrun_body_ints(body, "heads", 1, &args->num_heads);
    TRY(add_linear(step, body, BQ, "query = MatMul(x, Transpose<perm=[1,0]>(Wq))",
                   "query = query + attnrun.fused.CheckDims(bq, query)"));
    TRY(add_linear(step, body, BK, "key = MatMul(x, Transpose<perm=[1,0]>(Wk))",
                   "key = key + attnrun.fused.CheckDims(bk, key)"));
    if (op_has_in(step, MASK) && mask->dtype != ATTNRUN_BOOL) {
        TRY(attnrun_body_add(body,
                             "mask = Reshape(mask, Concat<axis=0>("
                             "Shape<start=0,end=1>(x), [1], Shape<start=1,end=2>(x)))"));
        TRY(add_sums(step, body));
    } else {
        if (op_has_in(step, MASK))
            TRY(attnrun_body_add(body, "mask = Reshape(mask, Shape<start=0,end=2>(x))"));
        TRY(attnrun_body_add(body,
                             "values = attnrun.FastformerAttention<q_num_heads=heads>("
                             "query, key, query, Transpose<perm=[1,0]>(Wqa),"
                             "Transpose<perm=[1,0]>(Wka), bqa, bka, mask)"));
    }
    TRY(add_linear(step, body, BT, "changed = MatMul(values, Transpose<perm=[1,0]>(Wt))",
                   "changed = changed + attnrun.fused.CheckDims(bt, changed)"));
    return attnrun_body_add(body, "Y = attnrun.fused.CheckDims(changed, query) + query");
}

const attnrun_op_def op_fastformer_layer_1 = {
    OP_ROW_OF("attnrun"),
    .name = "FastformerLayer",
    .since = 1,
    .inputs = "x:T Wq:T bq:T? Wqa:T bqa:T? Wk:T bk:T? Wka:T bka:T? Wt:T bt:T? mask:M?",
    .outputs = "Y:T",
    .types = "T=f32 M=f32,b8",
    .args_bytes = sizeof(struct layer_args),
    .attrs = layer_attrs,
    .infer = layer_infer,
    .expand = layer_expand,
    .cost = "O(n A (C + A))",
    .source = "Wu 2021, arXiv:2108.09084",
};

/* shapes.c - numpy's matmul rules: batch dims broadcast, and operands of rank 1 lose the
 * dim that was added to them. shapes.h has the interface. */
#include "shapes.h"

/* The last two dims of an operand as a matrix. A vector is a row on the left, a column on
 * the right. */
static void matrix_dims(const attnrun_type *type, bool left, bool trans,
                        attnrun_dim *rows, attnrun_dim *columns)
{
    const attnrun_dim one = dim_of(1);
    int rank = type->rank;
    if (rank == 1) {
        *rows = left ? one : type->dims[0];
        *columns = left ? type->dims[0] : one;
    } else {
        *rows = type->dims[rank - (trans ? 1 : 2)];
        *columns = type->dims[rank - (trans ? 2 : 1)];
    }
}

/* The axis that the product sums over. */
static int inner_axis(const attnrun_type *type, bool left, bool trans)
{
    return type->rank == 1 ? 0 : type->rank - (left != trans ? 1 : 2);
}

static attn_status batch_dims(const attnrun_step *step, int a, int b, int n,
                              attnrun_dim *dims)
{
    const attnrun_type *ta = &step->in[a], *tb = &step->in[b];
    for (int i = 0; i < n; i++) {
        int ia = ta->rank - 2 - n + i, ib = tb->rank - 2 - n + i;
        attnrun_dim x = ia >= 0 ? ta->dims[ia] : dim_of(1);
        attnrun_dim y = ib >= 0 ? tb->dims[ib] : dim_of(1);
        if (!dim_may_equal(x, y) && !dim_is(x, 1) && !dim_is(y, 1))
            return op_fail_dims(step, "the batches cannot be broadcast",
                                (struct op_dim){ a, ia }, (struct op_dim){ b, ib });
        dims[i] = op_broadcast_dim(step, x, y);
    }
    return ATTNRUN_OK;
}

attn_status attn_matmul_dims(const attnrun_step *step, int a, int b, unsigned trans,
                             int *rank, attnrun_dim *dims)
{
    const attnrun_type *ta = &step->in[a], *tb = &step->in[b];
    *rank = -1;
    TRY(op_need_rank_between(step, a, 1, ATTNRUN_MAX_RANK));
    TRY(op_need_rank_between(step, b, 1, ATTNRUN_MAX_RANK));
    if (ta->rank < 0 || tb->rank < 0)
        return ATTNRUN_OK;
    attnrun_dim m, n, ka, kb;
    matrix_dims(ta, true, (trans & ATTN_TRANS_A) != 0, &m, &ka);
    matrix_dims(tb, false, (trans & ATTN_TRANS_B) != 0, &kb, &n);
    if (!dim_may_equal(ka, kb))
        return op_fail_dims(
            step, "the inner sizes differ",
            (struct op_dim){ a, inner_axis(ta, true, (trans & ATTN_TRANS_A) != 0) },
            (struct op_dim){ b, inner_axis(tb, false, (trans & ATTN_TRANS_B) != 0) });
    int max = ta->rank > tb->rank ? ta->rank : tb->rank, n_batch = max > 2 ? max - 2 : 0;
    TRY(batch_dims(step, a, b, n_batch, dims));
    *rank = n_batch;
    if (ta->rank > 1)
        dims[(*rank)++] = m;
    if (tb->rank > 1)
        dims[(*rank)++] = n;
    return ATTNRUN_OK;
}

/* Element strides of the batch dims of a dense operand: 0 where broadcast. */
static void batch_strides(const attnrun_type *type, int n_batch, int64_t matrix,
                          int64_t *strides)
{
    int64_t stride = matrix;
    for (int i = n_batch - 1; i >= 0; i--) {
        int from = type->rank - 2 - n_batch + i;
        int64_t dim = from >= 0 ? type->dims[from].value : 1;
        strides[i] = dim == 1 ? 0 : stride;
        if (dim > 0)
            stride *= dim;
    }
}

/* One matrix B for all of A: the batch of A becomes more rows of A. */
static bool merge_rows(struct attn_gemm *g, bool a_dense)
{
    int64_t rows = g->m;
    for (int i = 0; i < g->n_batch; i++)
        if (g->b_batch[i] != 0 || (g->batch[i] != 1 && g->a_batch[i] == 0) ||
            !ck_mul(rows, g->batch[i], &rows))
            return false;
    if (!a_dense)
        return false;
    g->m = rows;
    g->n_batch = 0;
    return true;
}

attn_status attn_matmul_describe(const attnrun_step *step, int a, int b, unsigned trans,
                                 struct attn_gemm *g)
{
    const attnrun_type *ta = &step->in[a], *tb = &step->in[b];
    attnrun_dim m, n, k, kb, dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, a, b, trans, &rank, dims));
    matrix_dims(ta, true, (trans & ATTN_TRANS_A) != 0, &m, &k);
    matrix_dims(tb, false, (trans & ATTN_TRANS_B) != 0, &kb, &n);
    attn_gemm_describe(g, m.value, n.value, k.value,
                       (trans & ATTN_TRANS_A) != 0 && ta->rank > 1,
                       (trans & ATTN_TRANS_B) != 0 && tb->rank > 1);
    g->b_type = tb->dtype;
    g->n_batch = rank - (ta->rank > 1) - (tb->rank > 1);
    for (int i = 0; i < g->n_batch; i++)
        g->batch[i] = dims[i].value;
    if (op_count(ta, 0, ta->rank) == 0 || op_count(tb, 0, tb->rank) == 0) {
        for (int i = 0; i < g->n_batch; i++) /* nothing is read; C may still be zeros */
            g->a_batch[i] = g->b_batch[i] = 0;
    } else {
        batch_strides(ta, g->n_batch, g->m * g->k, g->a_batch);
        batch_strides(tb, g->n_batch, g->k * g->n, g->b_batch);
    }
    int64_t stride;
    bool fits = ck_mul(g->m, g->n, &stride);
    for (int i = g->n_batch - 1; i >= 0 && fits; i--) {
        g->c_batch[i] = stride;
        fits = ck_mul(stride, g->batch[i], &stride);
    }
    if (!fits)
        return op_fail_size(step, "the number of elements of the product", "2^63 - 1");
    merge_rows(g, (trans & ATTN_TRANS_A) == 0 && ta->rank > 1);
    return ATTNRUN_OK;
}

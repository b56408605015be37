/* cdist.c - com.microsoft CDist: the distance of every row of A to every row of B.
 *
 * A  (m, k), B (n, k), both f32 or f64;  C (m, n)
 * metric   sqeuclidean (by default): the sum of squares of the differences; euclidean:
 *          its root
 *
 * The differences are squared, and not computed from products, so rows that are close
 * lose no digits. A task is a block of columns of C. The rows of B are transposed into
 * scratch, BLOCK of them and DEPTH columns at a time, so that they lie along the vector.
 * Cost: 3 m n k FLOPs.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include <math.h>

#include "../../runtime/op.h"
#include "../tile.h"

enum { SQUARES, ROOT };
enum { BLOCK = 64, DEPTH = 256, ROWS = 64 };

struct cdist_args {
    int32_t metric;
};
static const attnrun_attr_def cdist_attrs[] = {
    ATTR_ENUM(struct cdist_args, metric, "sqeuclidean|euclidean", SQUARES), ATTR_END
};

static attn_status cdist_infer(attnrun_step *step)
{
    const attnrun_type *a = &step->in[0], *b = &step->in[1];
    int64_t tasks;
    TRY(op_need_rank(step, 0, 2));
    TRY(op_need_rank(step, 1, 2));
    if (a->rank < 0 || b->rank < 0)
        return op_out(step, 0, a->dtype, -1, NULL);
    TRY(op_need_dim(step, 1, 1, a->dims[1], "the columns of A"));
    const attnrun_dim dims[2] = { a->dims[0], b->dims[0] };
    TRY(op_out(step, 0, a->dtype, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    if (!ck_mul(ceil_div(dims[0].value, ROWS), ceil_div(dims[1].value, BLOCK), &tasks))
        return op_fail_size(step, "the number of tasks", "2^63 - 1");
    step->scratch_bytes = (BLOCK * DEPTH + BLOCK) * dtype_bytes(a->dtype);
    op_tasks(step, 0, tasks,
             ROWS * BLOCK / 8 *
                 (a->dims[1].value < 1 << 20 ? a->dims[1].value + 8 : 1 << 20));
    return ATTNRUN_OK;
}

/* For a type T: cdist_add_ adds the squared differences of a row of A and BLOCK rows of B to their
 * sums, cdist_transpose_ copies n rows of B into columns, and cdist_block_ computes the tile of C
 * at row i0 and column j0. */
#define CDIST(name, T, ROOT_OF)                                                          \
    static void cdist_add_##name(T *sums, const T *a, const T *transposed,               \
                                 int64_t depth)                                          \
    {                                                                                    \
        for (int64_t k = 0; k < depth; k++)                                              \
            for (int64_t j = 0; j < BLOCK; j++)                                          \
                sums[j] += (a[k] - transposed[k * BLOCK + j]) *                          \
                           (a[k] - transposed[k * BLOCK + j]);                           \
    }                                                                                    \
    static void cdist_transpose_##name(T *to, const T *b, int64_t row, int64_t n,        \
                                       int64_t depth)                                    \
    {                                                                                    \
        for (int64_t j = 0; j < BLOCK; j++)                                              \
            for (int64_t k = 0; k < depth; k++)                                          \
                to[k * BLOCK + j] = j < n ? b[j * row + k] : 0;                          \
    }                                                                                    \
    static attn_status cdist_block_##name(                                               \
        const attnrun_step *step, const attnrun_work *work, int64_t i0, int64_t j0)      \
    {                                                                                    \
        const int64_t m = step->x[0].dims[0], depth = step->x[0].dims[1];                \
        const int64_t n = step->x[1].dims[0];                                            \
        const int64_t rows = m - i0 < ROWS ? m - i0 : ROWS;                              \
        const int64_t columns = n - j0 < BLOCK ? n - j0 : BLOCK;                         \
        const bool root = ((const struct cdist_args *)step->args)->metric == ROOT;       \
        const T *a = (const T *)step->x[0].data + i0 * depth;                            \
        const T *b = (const T *)step->x[1].data + j0 * depth;                            \
        T *c = (T *)step->y[0].data + i0 * n + j0, *transposed = work->scratch;          \
        T *sums = transposed + BLOCK * DEPTH;                                            \
        for (int64_t k0 = 0; k0 == 0 || k0 < depth; k0 += DEPTH) {                       \
            const int64_t k = depth - k0 < DEPTH ? depth - k0 : DEPTH;                   \
            cdist_transpose_##name(transposed, b + k0, depth, columns, k);               \
            for (int64_t i = 0; i < rows; i++) {                                         \
                memset(sums, 0, BLOCK * sizeof *sums);                                   \
                if (k0 > 0)                                                              \
                    memcpy(sums, c + i * n, (size_t)columns * sizeof *sums);             \
                cdist_add_##name(sums, a + i * depth + k0, transposed, k);               \
                memcpy(c + i * n, sums, (size_t)columns * sizeof *sums);                 \
            }                                                                            \
            if (OP_CANCELLED(work))                                                      \
                return ATTNRUN_E_CANCELLED;                                              \
        }                                                                                \
        for (int64_t i = 0; root && i < rows; i++)                                       \
            for (int64_t j = 0; j < columns; j++)                                        \
                c[i * n + j] = ROOT_OF(c[i * n + j]);                                    \
        return ATTNRUN_OK;                                                               \
    }
CDIST(f32, float, sqrtf)
CDIST(f64, double, sqrt)

static attn_status cdist_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t blocks = ceil_div(step->x[1].dims[0], BLOCK);
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t rows = t, j = op_take(&rows, blocks) * BLOCK, i = rows * ROWS;
        if (step->x[0].dtype == ATTNRUN_F32)
            TRY(cdist_block_f32(step, work, i, j));
        else
            TRY(cdist_block_f64(step, work, i, j));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_cdist_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "CDist",
    .since = 1,
    .inputs = "A:T B:T",
    .outputs = "C:T",
    .types = "T=f32,f64",
    .args_bytes = sizeof(struct cdist_args),
    .attrs = cdist_attrs,
    .infer = cdist_infer,
    .run = cdist_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators",
};

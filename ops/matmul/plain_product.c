/* plain_product.c - matrix products of types without a tuned kernel, row by row:
 * C = alpha A B + beta c0.
 *
 * In: struct attn_gemm, whose strides are in elements, and operands of f64, i32, u32, i64 or u64.
 * Out: the rows of C of a task. f64 products that are large enough go to OpenBLAS, some rows at a
 * time. Cost: 2 m n k operations. plain_product.h has the interface. */
#include "plain_product.h"

#include "blas.h"

static double plain_scale_f64(double scale) { return scale; }
static uint32_t plain_scale_u32(double scale)
{
    return scale > -2147483648.0 && scale < 2147483647.0 ? (uint32_t)(int32_t)scale : 0;
}
static uint64_t plain_scale_u64(double scale)
{
    return scale > -9e18 && scale < 9e18 ? (uint64_t)(int64_t)scale : 0;
}

#define T       double
#define N(name) name##_f64
#include "plain_template.h"
#undef T
#undef N
#define T       uint32_t
#define N(name) name##_u32
#include "plain_template.h"
#undef T
#undef N
#define T       uint64_t
#define N(name) name##_u64
#include "plain_template.h"
#undef T
#undef N

attn_status attn_plain_plan(const attnrun_step *step, struct attn_gemm *g)
{
    bool empty = g->m == 0 || g->n == 0;
    for (int i = 0; i < g->n_batch; i++)
        empty = empty || g->batch[i] == 0;
    int64_t n_tasks = g->m;
    g->blas_rows = 0;
    if (!empty && step->in[0].dtype == ATTNRUN_F64 && attn_blas_fits(step, g)) {
        double rows = 2e7 / ((double)g->n * (double)g->k); /* about 2 ms a task */
        g->blas_rows = rows > 64 ? 64 : rows < 8 ? 8 : (int64_t)rows;
        n_tasks = ceil_div(g->m, g->blas_rows);
    }
    for (int i = 0; !empty && i < g->n_batch; i++)
        if (!ck_mul(n_tasks, g->batch[i], &n_tasks))
            return op_fail_size(step, "the number of tasks", "2^63 - 1");
    g->n_tasks = empty ? 0 : n_tasks;
    double products = empty ? 0 : (double)g->m * (double)g->n * (double)g->k;
    for (int i = 0; i < g->n_batch; i++)
        products *= (double)g->batch[i];
    op_flops(step, 2.0 * products);
    double cost = (double)g->n * (double)(g->k + 1);
    if (g->blas_rows > 0)
        cost *= (double)g->blas_rows / 10.0;
    g->task_cost = cost < 1e12 ? (int64_t)cost : 1000000000000;
    return ATTNRUN_OK;
}

/* Rows i … of C by BLAS, then alpha and c0 as the template does them. */
static attn_status blas_rows(const struct attn_gemm *g, const struct attn_plain *p,
                             int64_t i, const void *a, const void *b, const void *c0,
                             double *c)
{
    int64_t left = g->m - i, rows = left < g->blas_rows ? left : g->blas_rows;
    attn_blas_product_f64(g, rows, a, b, c);
    if (p->alpha == 1.0 && c0 == NULL)
        return ATTNRUN_OK;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < g->n; j++) {
            const double *add = c0;
            double *y = c + r * g->c_row + j;
            *y = p->alpha * *y +
                 (add ? p->beta * add[r * p->c0_row + j * p->c0_col] : 0.0);
        }
    return ATTNRUN_OK;
}

attn_status attn_plain_row(const struct attn_gemm *g, const struct attn_plain *p,
                           const struct attn_gemm_operands *o, const void *c0,
                           int64_t task, const attnrun_work *work)
{
    const int64_t rows = g->blas_rows > 0 ? g->blas_rows : 1;
    const int64_t blocks = ceil_div(g->m, rows);
    const int64_t i = op_take(&task, blocks) * rows, bytes = dtype_bytes(p->dtype);
    const struct attn_gemm_offsets at = attn_gemm_batch(g, task);
    const char *from_a = (const char *)o->a + (at.a + i * g->a_row) * bytes,
               *from_b = (const char *)o->b + at.b * bytes;
    const char *add = c0 != NULL ? (const char *)c0 + i * p->c0_row * bytes : NULL;
    void *to = (char *)o->c + (at.c + i * g->c_row) * bytes;
    if (g->blas_rows > 0)
        return blas_rows(g, p, i, from_a, from_b, add, to);
    switch (p->dtype) {
    case ATTNRUN_F64:
        return plain_row_f64(g, p, (const double *)from_a, (const double *)from_b,
                             (const double *)add, to, work);
    case ATTNRUN_I32:
    case ATTNRUN_U32:
        return plain_row_u32(g, p, (const uint32_t *)from_a, (const uint32_t *)from_b,
                             (const uint32_t *)add, to, work);
    default:
        return plain_row_u64(g, p, (const uint64_t *)from_a, (const uint64_t *)from_b,
                             (const uint64_t *)add, to, work);
    }
}

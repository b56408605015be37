/* plain.c - matrix products without a tuned kernel, row by row. */
#include "plain.h"

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
    for (int i = 0; !empty && i < g->n_batch; i++)
        if (!ck_mul(n_tasks, g->batch[i], &n_tasks))
            return op_fail(step, ATTNRUN_E_LIMIT, "the matrix product is too large");
    g->n_tasks = empty ? 0 : n_tasks;
    double cost = (double)g->n * (double)(g->k + 1);
    g->task_cost = cost < 1e12 ? (int64_t)cost : 1000000000000;
    return ATTNRUN_OK;
}

attn_status attn_plain_row(const struct attn_gemm *g, const struct attn_plain *p,
                           const struct attn_gemm_operands *o, const void *c0,
                           int64_t task, const attnrun_work *work)
{
    const int64_t i = task % g->m, bytes = dtype_bytes(p->dtype);
    int64_t index = task / g->m, a = i * g->a_row, b = 0, c = i * g->c_row;
    for (int d = g->n_batch - 1; d >= 0; d--) {
        a += index % g->batch[d] * g->a_batch[d];
        b += index % g->batch[d] * g->b_batch[d];
        c += index % g->batch[d] * g->c_batch[d];
        index /= g->batch[d];
    }
    const char *from_a = (const char *)o->a + a * bytes,
               *from_b = (const char *)o->b + b * bytes;
    const char *add = c0 != NULL ? (const char *)c0 + i * p->c0_row * bytes : NULL;
    void *to = (char *)o->c + c * bytes;
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

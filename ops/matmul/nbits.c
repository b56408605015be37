/* nbits.c - see nbits.h. */
#include "nbits.h"

enum {
    KC = ATTN_GEMM_KC,
    ROWS = 2 * ATTN_GEMM_MC, /* of A that share the floats of a piece of a panel */
    PANELS = 4,              /* of a task with many rows: their floats stay in L2 */
    TASK_NS = 25000
};

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Appends `count` pieces of `bytes` bytes. */
static bool append(int64_t *at, int64_t *end, int64_t count, int64_t bytes)
{
    int64_t size;
    *at = *end;
    return ck_mul(count, bytes, &size) && ck_add(*end, size, end) &&
           ck_align(*end, 64, end);
}

bool attn_nbits_layout(const struct attn_kernels *kernels, struct attn_nbits_layout *l)
{
    int64_t q_at, columns, scales, per = 8 / l->bits;
    l->width = kernels->vec_bytes / 2;
    l->panels = ceil_div(l->n, l->width);
    l->bytes = 0;
    if (!ck_mul(l->panels, l->width, &columns) || !ck_mul(columns, l->blocks, &scales))
        return false;
    return append(&q_at, &l->bytes, columns, ceil_div(l->k, per)) &&
           append(&l->scale_at, &l->bytes, scales, 4) &&
           append(&l->zero_at, &l->bytes, scales,
                  l->zeros == NBITS_ZERO_U8    ? 1
                  : l->zeros == NBITS_ZERO_F32 ? 4
                                               : 0) &&
           append(&l->group_at, &l->bytes, l->by_group ? l->k : 0, 4) &&
           append(&l->table_at, &l->bytes, l->by_table ? 16 : 0, 4);
}

struct attn_nbits attn_nbits_at(const struct attn_nbits_layout *l, const void *packed,
                                float zero)
{
    const uint8_t *at = packed;
    struct attn_nbits b = { .q = at,
                            .scale = (const float *)(const void *)(at + l->scale_at),
                            .zero = zero,
                            .k = (size_t)l->k,
                            .block = (size_t)l->block,
                            .blocks = (size_t)l->blocks,
                            .bits = l->bits };
    if (l->zeros == NBITS_ZERO_U8)
        b.zero_u8 = at + l->zero_at;
    else if (l->zeros == NBITS_ZERO_F32)
        b.zero_f32 = (const float *)(const void *)(at + l->zero_at);
    if (l->by_group)
        b.group = (const int32_t *)(const void *)(at + l->group_at);
    if (l->by_table)
        b.table = (const float *)(const void *)(at + l->table_at);
    return b;
}

/* ---- plan ---- */

static bool few(const struct attn_nbits_layout *l, int64_t rows)
{
    return rows <= ATTN_NBITS_ROWS && !l->by_group;
}

attn_status attn_nbits_plan(const attnrun_step *step, const struct attn_nbits_layout *l,
                            int64_t rows, struct attn_nbits_plan *plan)
{
    const double panel = (double)l->k * (double)l->width;
    *plan = (struct attn_nbits_plan){ .rows = rows, .m_block = 1, .n_panels = 1 };
    if (rows == 0 || l->n == 0)
        return ATTNRUN_OK;
    double cost = panel * (double)l->bits / 8 / 6 + panel * (double)rows / 30;
    plan->m_block = rows;
    if (few(l, rows)) {
        plan->n_panels = cost > TASK_NS ? 1 : (int64_t)(TASK_NS / (cost + 1)) + 1;
    } else {
        const int64_t blocks = ceil_div(rows, ROWS);
        plan->m_block = ceil_div(ceil_div(rows, blocks), 8) * 8;
        plan->n_panels = PANELS;
        cost = panel / 4 + panel * (double)least(rows, plan->m_block) / 60;
        plan->scratch_bytes =
            4 * (PANELS * l->width * KC +
                 (int64_t)attn_gemm_scratch((size_t)least(rows, plan->m_block),
                                            (size_t)(PANELS * l->width), KC));
    }
    plan->n_panels = least(plan->n_panels, l->panels);
    plan->m_blocks = ceil_div(rows, plan->m_block);
    plan->n_blocks = ceil_div(l->panels, plan->n_panels);
    if (!ck_mul(plan->m_blocks, plan->n_blocks, &plan->n_tasks))
        return op_fail(step, ATTNRUN_E_LIMIT, "the matrix product is too large");
    cost *= (double)plan->n_panels;
    plan->task_cost = cost < 1e15 ? (int64_t)cost + 100 : (int64_t)1e15;
    return ATTNRUN_OK;
}

/* ---- run ---- */

static attn_status run_few(const struct attn_nbits_layout *l,
                           const struct attn_nbits_plan *plan,
                           const struct attn_kernels *kernels,
                           const struct attn_nbits_operands *o, const attnrun_work *work,
                           int64_t task)
{
    const int64_t first = task * plan->n_panels;
    for (int64_t p = first; p < least(l->panels, first + plan->n_panels); p++) {
        const int64_t j = p * l->width;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        kernels->nbits_rows_f32(o->y + j, l->n, o->a, l->k, (size_t)plan->rows, &o->b,
                                (size_t)p, (size_t)least(l->width, l->n - j),
                                o->bias != NULL ? o->bias + j : NULL);
    }
    return ATTNRUN_OK;
}

/* Floats of rows k0 … k0 + k - 1 of all panels of a task; the last one may be of one
 * vector. */
static void unpack(const struct attn_nbits_layout *l, const struct attn_kernels *kernels,
                   const struct attn_nbits_operands *o, int64_t panel, int64_t n,
                   int64_t k0, int64_t k, float *to)
{
    const int64_t half = l->width / 2;
    for (int64_t j = 0; j < n; j += l->width, panel++)
        kernels->nbits_unpack_f32(to + j * k, &o->b, (size_t)panel, (size_t)k0, (size_t)k,
                                  (size_t)(n - j <= half ? half : l->width));
}

static attn_status run_many(const struct attn_nbits_layout *l,
                            const struct attn_nbits_plan *plan,
                            const struct attn_kernels *kernels,
                            const struct attn_nbits_operands *o, const attnrun_work *work,
                            int64_t task)
{
    const int64_t panel = task % plan->n_blocks * plan->n_panels;
    const int64_t i = task / plan->n_blocks * plan->m_block, j = panel * l->width;
    const int64_t n = least(l->n - j, plan->n_panels * l->width);
    const struct attn_epilogue add = { .kind = ATTN_EPI_ADD,
                                       .alpha = 1.0f,
                                       .col = 1,
                                       .data = o->bias != NULL ? o->bias + j : NULL };
    float *floats = work->scratch;
    struct attn_gemm_f32 g = { .b = floats,
                               .packed = 1,
                               .a_row = l->k,
                               .c = o->y + i * l->n + j,
                               .c_row = l->n,
                               .m = (size_t)least(plan->rows - i, plan->m_block),
                               .n = (size_t)n,
                               .epilogue = &add,
                               .scratch = floats + PANELS * l->width * KC };
    for (int64_t k0 = 0; k0 == 0 || k0 < l->k; k0 += KC) {
        const int64_t k = least(l->k - k0, KC);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        unpack(l, kernels, o, panel, n, k0, k, floats);
        g.a = o->a + i * l->k + k0;
        g.k = (size_t)k;
        g.accumulate = k0 > 0;
        g.n_epilogue = o->bias != NULL && k0 + k == l->k;
        TRY(attn_gemm_pieces(kernels, &g));
    }
    return ATTNRUN_OK;
}

attn_status attn_nbits_run(const struct attn_nbits_layout *l,
                           const struct attn_nbits_plan *plan,
                           const struct attn_kernels *kernels,
                           const struct attn_nbits_operands *o, const attnrun_work *work)
{
    const bool few_rows = few(l, plan->rows);
    for (int64_t task = work->begin; task < work->end; task++)
        TRY((few_rows ? run_few : run_many)(l, plan, kernels, o, work, task));
    return ATTNRUN_OK;
}

/* nbits.c - layout, packing and products of weights of 2, 4 or 8 bits. nbits.h has the
 * interface. */
#include "nbits.h"
#include "../../runtime/cpu.h"
#include "../../runtime/range.h"
#include "../tile.h"

enum {
    KC = OP_PRODUCT_TERMS,
    ROWS = 2 * OP_PRODUCT_ROWS, /* of A that share the floats of a part of a panel */
    PANELS = 4,                 /* of a task with many rows: their floats stay in L2 */
    WORD_PANELS = 12,           /* the same of words of two bf16, of … */
    KC_WORDS = 512,             /* … so many rows */
    WORD_ROWS = 32,             /* of A that are worth making words of the weights */
    PACK_PANELS = 4,            /* of a task that packs */
    ROUNDED_ROWS = 132,         /* of A that are rounded for a task, at most … */
    ROUNDED_BYTES = 400000,     /* … which is to stay in L2 */
    TASK_NS = 25000,
    MIN_TASK_NS = 3000,
    FEW_TASK_NS = 6000,     /* of few rows, where each worker makes digits of A */
    ROUND_PHASE = 1 << 14,  /* numbers of A that are worth a phase that rounds them */
    ROUND_NUMBERS = 1 << 13 /* of A in a task of it, about */
};

bool attn_nbits_rounds(const attnrun_step *step, int64_t rows, int64_t accuracy_level)
{
    if (step->kernels->tiles_bf16 && rows >= WORD_ROWS)
        return false;
    return step->precision == ATTNRUN_PRECISION_AUTO || accuracy_level == 4;
}

/* Panels that are unpacked together, and how many of their rows. */
static int64_t panels_at_once(const struct attn_nbits_layout *l)
{
    return l->words ? WORD_PANELS : PANELS;
}
static int64_t rows_at_once(const struct attn_nbits_layout *l)
{
    return l->words ? KC_WORDS : KC;
}

bool attn_nbits_layout(const struct attn_kernels *kernels, struct attn_nbits_layout *l)
{
    int64_t q_at, columns, scales, per = 32 / l->bits;
    const struct attn_nbits shape = { .k = (size_t)l->k,
                                      .block = (size_t)l->block,
                                      .blocks = (size_t)l->blocks,
                                      .bits = l->bits };
    l->words = kernels->tiles_bf16;
    l->width = op_panel_columns(kernels);
    l->panels = ceil_div(l->n, l->width);
    l->bytes = 0;
    l->digit_bytes = l->by_table || l->by_group
                         ? 0
                         : (int64_t)kernels->nbits_digits(NULL, NULL, 0, 1, &shape);
    l->rounded_bytes = l->by_table || l->by_group || !l->rounded
                           ? 0
                           : (int64_t)kernels->nbits_round(NULL, NULL, 0, 1, &shape);
    if (!ck_mul(l->panels, l->width, &columns) || !ck_mul(columns, l->blocks, &scales))
        return false;
    return op_slot(&q_at, &l->bytes, columns, ceil_div(l->k, per) * 4) &&
           op_slot(&l->scale_at, &l->bytes, scales, 4) &&
           op_slot(&l->zero_at, &l->bytes, scales,
                   l->zeros == NBITS_ZERO_U8    ? 1
                   : l->zeros == NBITS_ZERO_F32 ? 4
                                                : 0) &&
           op_slot(&l->group_at, &l->bytes, l->by_group ? l->k : 0, 4) &&
           op_slot(&l->table_at, &l->bytes, l->by_table ? 16 : 0, 4);
}

/* Words of 8 bits cost little besides their bytes. AMD's prefetcher keeps up with that, and is
 * disturbed by prefetches far ahead. */
static int32_t words_ahead(int32_t bits)
{
    return bits == 8 && !attn_cpu_needs_prefetch() ? 512 : 8192;
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
                            .bits = l->bits,
                            .ahead = words_ahead(l->bits) };
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

/* ---- panels ---- */

attn_status attn_nbits_check_packed(const struct attn_nbits_layout *l,
                                    const attnrun_pack *pack, int64_t bytes,
                                    const void *packed)
{
    bool right = l != NULL && l->bytes == bytes;
    for (int64_t k = 0; right && l->by_group && k < l->k; k++) {
        int32_t group;
        memcpy(&group, (const char *)packed + l->group_at + k * 4, sizeof group);
        right = group >= 0 && group < l->blocks;
    }
    return right ? ATTNRUN_OK
                 : attn_fail_node(
                       ATTNRUN_E_MODEL, pack->node,
                       "its packed weights refer to a block that does not exist");
}

void attn_nbits_clear(const struct attn_nbits_layout *l, int64_t begin, int64_t end,
                      uint8_t *to)
{
    const int64_t per = 32 / l->bits, panel = ceil_div(l->k, per) * l->width * 4;
    const int64_t scales = l->blocks * l->width, n = end - begin;
    const int64_t zero = l->zeros == NBITS_ZERO_U8 ? 1 : 4;
    memset(to + begin * panel, 0, (size_t)(n * panel));
    memset(to + l->scale_at + begin * scales * 4, 0, (size_t)(n * scales * 4));
    if (l->zeros != NBITS_ZERO_ONE)
        memset(to + l->zero_at + begin * scales * zero, 0, (size_t)(n * scales * zero));
}

static void fill_column(const struct attn_nbits_layout *l,
                        const struct attn_nbits_source *from, int64_t j, uint8_t *to)
{
    const int64_t per = 8 / l->bits, line = from->first + j * from->step;
    const uint8_t *b = from->b + line * from->b_line;
    const uint8_t mask = (uint8_t)((1 << l->bits) - 1);
    const int64_t words = ceil_div(l->k, 4 * per), bytes = ceil_div(l->k, per);
    uint8_t *q = to + (j / l->width * words * l->width + j % l->width) * 4;
    for (int64_t w = 0; w < words; w++) { /* bits past k: digits of A are 0 there */
        const int64_t n = min64(4, bytes - 4 * w);
        uint8_t word[4] = { 0 };
        memcpy(word, b + 4 * w, (size_t)n);
        memcpy(q + w * l->width * 4, word, 4);
    }
    float *scale = (float *)(void *)(to + l->scale_at);
    float *zero = (float *)(void *)(to + l->zero_at);
    for (int64_t i = 0; i < l->blocks; i++) {
        const int64_t at = attn_nbits_scale(l, i, j), z = line * from->zero_line + i;
        scale[at] = from->scales[line * from->scale_line + i];
        if (l->zeros == NBITS_ZERO_F32)
            zero[at] = from->zeros_f32[z];
        else if (l->zeros == NBITS_ZERO_U8)
            to[l->zero_at + at] =
                (uint8_t)(from->zeros_u8[z / per] >> (z % per * l->bits) & mask);
    }
}

attn_status attn_nbits_fill(const struct attn_nbits_layout *l,
                            const struct attn_nbits_source *from, int64_t begin,
                            int64_t end, uint8_t *to)
{
    for (int64_t p = begin; p < end; p++) {
        if ((p + 1) * l->width > l->n)
            attn_nbits_clear(l, p, p + 1, to);
        for (int64_t j = p * l->width; j < min64(l->n, (p + 1) * l->width); j++)
            fill_column(l, from, j, to);
        TRY(attn_poll_work(l->k * l->width));
    }
    return ATTNRUN_OK;
}

/* ---- plan ---- */

static bool few(const struct attn_nbits_layout *l, int64_t rows)
{
    return rows <= ATTN_NBITS_ROWS && !l->by_group;
}

/* Scratch of a product with rounded rows: a part of a panel, and rows behind it. */
enum { PART_BYTES = ATTN_NBITS_PART * OP_PANEL };

int64_t attn_nbits_scratch(const struct attn_nbits_layout *l, int64_t m)
{
    if (l->rounded_bytes > 0)
        return PART_BYTES + l->rounded_bytes * m;
    const int64_t digits = l->digit_bytes * min64(m, ATTN_NBITS_ROWS);
    if (few(l, m))
        return digits;
    const int64_t columns = panels_at_once(l) * l->width, k = rows_at_once(l);
    const int64_t floats =
        4 * ((l->words ? k / 2 : k) * columns +
             (int64_t)attn_gemm_scratch((size_t)m, (size_t)columns, (size_t)k));
    return floats > digits ? floats : digits;
}

/* Nanoseconds of so many rows times a panel: it is read or unpacked, then multiplied. */
static double panel_cost(const struct attn_nbits_layout *l, int64_t rows, int64_t m)
{
    const double panel = (double)l->k * (double)l->width;
    if (l->rounded_bytes > 0)
        return panel * (double)l->bits / 8 / 12 + panel * (double)m / 150;
    if (l->words && !few(l, rows))
        return panel / 6 + panel * (double)m / 600;
    return few(l, rows) ? panel * (double)l->bits / 8 / 6 + panel * (double)m / 30
                        : panel / 4 + panel * (double)m / 60;
}

static double nbits_task_ns(const struct attn_cut *cut, const void *layout)
{
    return panel_cost(layout, cut->m, min64(cut->m, cut->m_part)) *
               (double)min64(cut->n, cut->n_block) +
           100;
}

/* Few rows are one block. Of many, PANELS panels are unpacked together. */
static void cut_panels(const struct attn_nbits_layout *l, int64_t rows,
                       struct attn_nbits_plan *plan)
{
    const bool some = l->rounded_bytes > 0 || few(l, rows);
    const int64_t max_rows =
        l->rounded_bytes > 0
            ? max64(8, min64(ROUNDED_ROWS, ROUNDED_BYTES / l->rounded_bytes))
            : ROWS;
    const double panel = panel_cost(l, rows, min64(rows, max_rows));
    const int64_t panels = panel > TASK_NS ? 1 : (int64_t)(TASK_NS / (panel + 1)) + 1;
    const struct attn_cut_limits limits = {
        .grain = 1,
        .min_columns = 1,
        .few_rows = ATTN_NBITS_ROWS,
        .min_ns = few(l, rows) ? FEW_TASK_NS : MIN_TASK_NS,
    };
    attn_cut_blocks(&plan->cut, 1, rows, l->panels, max_rows,
                    some ? panels : panels_at_once(l), 1);
    attn_cut_refine(&plan->cut, &limits, nbits_task_ns, l);
}

/* Which rows of A the scratch of a worker has, between the ranges of a step that it runs. */
struct nbits_kept {
    const void *rows; /* as attn_nbits_block.rows; NULL: none */
    int64_t from, m;  /* the first of them, and how many */
};

attn_status attn_nbits_plan(const attnrun_step *step, const struct attn_nbits_layout *l,
                            int64_t rows, struct attn_nbits_plan *plan)
{
    *plan = (struct attn_nbits_plan){ .rows = rows };
    attn_cut_none(&plan->cut);
    if (rows == 0 || l->n == 0)
        return ATTNRUN_OK;
    cut_panels(l, rows, plan);
    if (l->rounded_bytes > 0 && rows > ATTN_NBITS_ROWS && rows > ROUND_PHASE / l->k) {
        plan->round_rows = ceil_div(ROUND_NUMBERS, l->k);
        plan->round_tasks = ceil_div(rows, plan->round_rows);
    }
    plan->scratch_bytes =
        attn_nbits_scratch(l, plan->round_tasks > 0 ? 0 : min64(rows, plan->cut.m_block));
    if (!op_slot(&plan->kept_at, &plan->scratch_bytes, 1, sizeof(struct nbits_kept)))
        return op_fail_scratch(step);
    if (!attn_cut_tasks(&plan->cut, &plan->n_tasks))
        return op_fail_size(step, "the number of tasks", "2^63 - 1");
    op_flops(step, 2.0 * (double)rows * (double)l->n * (double)l->k);
    const double cost = nbits_task_ns(&plan->cut, l);
    plan->task_cost = cost < 1e15 ? (int64_t)cost : (int64_t)1e15;
    return ATTNRUN_OK;
}

/* ---- run ---- */

/* The rows of a block as its product takes them: rounded or in digits, in scratch, or floats, where
 * they lie. */
static const void *nbits_rows_of(const struct attn_nbits_layout *l,
                                 const struct attn_kernels *kernels,
                                 const struct attn_nbits_block *o)
{
    if (l->rounded_bytes > 0) {
        char *rounded = (char *)o->scratch + PART_BYTES;
        kernels->nbits_round(rounded, o->a, o->a_row, (size_t)o->m, o->b);
        return rounded;
    }
    if (few(l, o->m) && l->digit_bytes > 0 &&
        kernels->nbits_digits(o->scratch, o->a, o->a_row, (size_t)o->m, o->b) > 0)
        return o->scratch;
    return o->a;
}

static attn_status multiply_few(const struct attn_nbits_layout *l,
                                const struct attn_kernels *kernels,
                                const struct attn_nbits_block *o)
{
    const void *digits = o->rows == o->a ? NULL : o->rows;
    for (int64_t j = 0; j < o->n; j += l->width) {
        TRY(attn_poll());
        kernels->nbits_rows_f32(o->c + j, o->c_row, o->a, o->a_row, (size_t)o->m, o->b,
                                digits, (size_t)((o->column + j) / l->width),
                                (size_t)min64(l->width, o->n - j),
                                o->bias != NULL ? o->bias + j : NULL);
    }
    return ATTNRUN_OK;
}

static attn_status multiply_rounded(const struct attn_nbits_layout *l,
                                    const struct attn_kernels *kernels,
                                    const struct attn_nbits_block *o)
{
    struct attn_nbits_product product = {
        .b = o->b, .rows = o->rows, .c_row = o->c_row, .m = (size_t)o->m
    };
    product.scratch = o->scratch;
    for (int64_t j = 0; j < o->n; j += l->width) {
        TRY(attn_poll());
        product.c = o->c + j;
        product.bias = o->bias != NULL ? o->bias + j : NULL;
        product.panel = (size_t)((o->column + j) / l->width);
        product.n = (size_t)min64(l->width, o->n - j);
        kernels->nbits_rounded_f32(&product);
    }
    return ATTNRUN_OK;
}

/* Floats, or words, of rows k0 … k0 + k - 1 of n columns from a panel on; the last panel may be of
 * one vector. */
static void unpack(const struct attn_nbits_layout *l, const struct attn_kernels *kernels,
                   const struct attn_nbits *b, int64_t panel, int64_t n, int64_t k0,
                   int64_t k, float *to)
{
    const int64_t half = l->width / 2;
    for (int64_t j = 0; j < n; j += l->width, panel++) {
        const size_t width = (size_t)(n - j <= half ? half : l->width);
        if (l->words)
            kernels->nbits_unpack_bf16((uint32_t *)(void *)to + j * ((k + 1) / 2), b,
                                       (size_t)panel, (size_t)k0, (size_t)k, width);
        else
            kernels->nbits_unpack_f32(to + j * k, b, (size_t)panel, (size_t)k0, (size_t)k,
                                      width);
    }
}

/* Up to panels_at_once() panels. */
static attn_status multiply_many(const struct attn_nbits_layout *l,
                                 const struct attn_kernels *kernels,
                                 const struct attn_nbits_block *o)
{
    const struct attn_epilogue add = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .col = 1, .data = o->bias
    };
    struct attn_gemm_f32 g = { .b = o->scratch,
                               .packed = 1,
                               .b_type = l->words ? ATTN_B_PAIRS : ATTN_B_F32,
                               .a_row = o->a_row,
                               .c = o->c,
                               .c_row = o->c_row,
                               .m = (size_t)o->m,
                               .n = (size_t)o->n,
                               .epilogue = &add,
                               .scratch =
                                   o->scratch + panels_at_once(l) * l->width *
                                                    (l->words ? KC_WORDS / 2 : KC) };
    for (int64_t k0 = 0, k; k0 == 0 || k0 < l->k; k0 += k) {
        k = min64(l->k - k0, rows_at_once(l));
        TRY(attn_poll());
        unpack(l, kernels, o->b, o->column / l->width, o->n, k0, k, o->scratch);
        g.a = o->a + k0;
        g.k = (size_t)k;
        g.accumulate = k0 > 0;
        g.n_epilogue = o->bias != NULL && k0 + k == l->k;
        kernels->gemm_f32(&g);
    }
    return ATTNRUN_OK;
}

attn_status attn_nbits_multiply(const struct attn_nbits_layout *l,
                                const struct attn_kernels *kernels,
                                struct attn_nbits_block *block)
{
    if (block->rows == NULL)
        block->rows = nbits_rows_of(l, kernels, block);
    if (l->rounded_bytes > 0)
        return multiply_rounded(l, kernels, block);
    if (few(l, block->m))
        return multiply_few(l, kernels, block);
    struct attn_nbits_block part = *block;
    const int64_t columns = panels_at_once(l) * l->width;
    for (int64_t j = 0; j < block->n; j += columns) {
        part.column = block->column + j;
        part.n = min64(block->n - j, columns);
        part.c = block->c + j;
        part.bias = block->bias != NULL ? block->bias + j : NULL;
        TRY(multiply_many(l, kernels, &part));
    }
    return ATTNRUN_OK;
}

bool attn_nbits_same_rows(const struct attn_nbits_layout *l,
                          const struct attn_nbits_layout *other)
{
    return l->k == other->k && l->block == other->block && l->bits == other->bits &&
           l->zeros == other->zeros && l->digit_bytes == other->digit_bytes &&
           l->rounded_bytes == other->rounded_bytes;
}

attn_status attn_nbits_round(const struct attn_nbits_layout *l,
                             const struct attn_nbits_plan *plan,
                             const struct attn_kernels *kernels,
                             const struct attn_nbits_operands *o,
                             const attnrun_work *work)
{
    const int64_t i = work->begin * plan->round_rows;
    const int64_t end = min64(plan->rows, work->end * plan->round_rows);
    kernels->nbits_round(o->rounded + i * l->rounded_bytes, o->a + i * l->k, l->k,
                         (size_t)(end - i), &o->b);
    return attn_poll();
}

attn_status attn_nbits_run(const struct attn_nbits_layout *l,
                           const struct attn_nbits_plan *plan,
                           const struct attn_kernels *kernels,
                           const struct attn_nbits_operands *o, const attnrun_work *work)
{
    struct nbits_kept *const slot = op_slot_at(work->scratch, plan->kept_at);
    struct nbits_kept kept = { 0 };
    if (attn_work_resumes(work))
        kept = *slot;
    const int64_t max_blocks = ceil_div(panels_at_once(l), plan->cut.n_block);
    for (int64_t task = work->begin; task < work->end;) {
        const struct attn_cut_piece p =
            attn_cut_next(&plan->cut, task, work->end, max_blocks);
        task += p.n_tasks;
        if (p.m == 0)
            continue;
        const int64_t i = p.row, j = p.column * l->width;
        if (plan->round_tasks > 0)
            kept.rows = o->rounded + i * l->rounded_bytes;
        else if (kept.from != i || kept.m != p.m)
            kept.rows = NULL;
        struct attn_nbits_block block = {
            .b = &o->b,
            .a = o->a + i * l->k,
            .rows = kept.rows,
            .bias = o->bias != NULL ? o->bias + j : NULL,
            .c = o->y + i * l->n + j,
            .scratch = work->scratch,
            .a_row = l->k,
            .c_row = l->n,
            .m = p.m,
            .column = j,
            .n = min64(l->n - j, p.n * l->width),
        };
        TRY(attn_nbits_multiply(l, kernels, &block));
        kept = (struct nbits_kept){ block.rows, i, p.m };
    }
    *slot = kept;
    return ATTNRUN_OK;
}

/* ---- operators of one matrix ---- */

attn_status attn_nbits_check_count(const attnrun_step *step, int in, int64_t lines,
                                   int64_t each)
{
    int64_t n;
    if (!op_has_in(step, in) || !op_rank_known(step, in))
        return ATTNRUN_OK;
    const attnrun_type *x = &step->in[in];
    attnrun_dim count = op_dims_product(step, x->dims, 0, x->rank);
    if (!ck_mul(lines, each, &n) || !dim_may_equal(count, dim_of(n)))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected %lld * %s",
                             (long long)lines, attn_plural(each, "element"));
    return ATTNRUN_OK;
}

attn_status attn_nbits_check_sizes(const attnrun_step *step, int64_t block_size,
                                   int64_t k, int64_t n)
{
    if (block_size < 16 || block_size > 1 << 20 || (block_size & (block_size - 1)) != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected a power of 2 that is at least 16",
                       (long long)block_size);
    if (k < 1 || n < 1 || k > ATTN_MAX_DIM || n > ATTN_MAX_DIM)
        return op_fail(step, ATTNRUN_E_ATTR, "K is %lld and N %lld, expected 1 to 2^47",
                       (long long)k, (long long)n);
    return ATTNRUN_OK;
}

attn_status attn_nbits_output(attnrun_step *step, int64_t k, int64_t n)
{
    const attnrun_type *a = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    if (a->rank < 0)
        return op_out(step, 0, a->dtype, -1, NULL);
    TRY(op_need_dim(step, 0, a->rank - 1, dim_of(k), "attribute K"));
    memcpy(dims, a->dims, sizeof dims);
    dims[a->rank - 1] = dim_of(n);
    return op_out(step, 0, a->dtype, a->rank, dims);
}

attn_status attn_nbits_tasks(attnrun_step *step)
{
    struct attn_nbits_state *state = step->state;
    const struct attn_nbits_layout *l = &state->layout;
    struct attn_nbits_plan *plan = &state->plan;
    const attnrun_type *a = &step->in[0];
    int64_t bytes;
    int phase = 0;
    TRY(attn_nbits_plan(step, l, op_count(a, 0, a->rank - 1), plan));
    if (step->node->packed == NULL) {
        step->shared_bytes = l->bytes;
        op_tasks(step, phase++, ceil_div(l->panels, PACK_PANELS),
                 l->k < 1 << 20 ? l->k * 200 : 200 << 20);
    }
    state->rounded_at = phase > 0 ? l->bytes : 0; /* a multiple of 64 */
    if (plan->round_tasks > 0) {
        if (!ck_mul(l->rounded_bytes, plan->rows, &bytes) ||
            !ck_add(state->rounded_at, bytes, &step->shared_bytes))
            return op_fail_size(step, "the memory of the rounded rows of A",
                                "2^63 - 1 bytes");
        op_tasks(step, phase++, plan->round_tasks, plan->round_rows * l->k / 4);
    }
    op_tasks(step, phase, plan->n_tasks, plan->task_cost);
    step->scratch_bytes = plan->scratch_bytes;
    return ATTNRUN_OK;
}

attn_status attn_nbits_op_run(const attnrun_step *step, const attnrun_work *work,
                              attn_nbits_fill_fn fill, float zero, const float *bias)
{
    const struct attn_nbits_state *state = step->state;
    const struct attn_nbits_layout *l = &state->layout;
    const void *packed = step->node->packed;
    const int first = packed == NULL; /* phase behind that which packs */
    if (work->phase < first) {
        for (int64_t t = work->begin; t < work->end; t++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            TRY(fill(step->node, l, step->x, t * PACK_PANELS,
                     min64(l->panels, (t + 1) * PACK_PANELS), work->shared));
        }
        return ATTNRUN_OK;
    }
    const struct attn_nbits_operands o = {
        .a = step->x[0].data,
        .bias = bias,
        .y = step->y[0].data,
        .b = attn_nbits_at(l, packed != NULL ? packed : work->shared, zero),
        .rounded =
            state->plan.round_tasks > 0 ? (char *)work->shared + state->rounded_at : NULL
    };
    if (work->phase == first && o.rounded != NULL)
        return attn_nbits_round(l, &state->plan, step->kernels, &o, work);
    return attn_nbits_run(l, &state->plan, step->kernels, &o, work);
}

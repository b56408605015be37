/* gemm.c - cuts matrix products into tasks by their shapes, and runs a task. gemm.h has
 * the interface.
 *
 * In: m, n, k, strides and batch of a product. Out: blocks of C as tasks, which are the
 * same for every number of threads. The kernel gemm_f32 computes each block with its
 * epilogue. */
#include "gemm.h"

#include "../../runtime/cpu.h"

enum {
    MAX_BLOCK = 2 * OP_PRODUCT_ROWS, /* of rows, that a panel of B is read for */
    MIN_COLUMNS = 64,
    TASK_NS = 25000,
    GFLOPS = 150, /* of floats, and of tiles of bf16 beside some microseconds for A: */
    TILE_GFLOPS = 1000,
    TILE_TASK_NS = 15000,
    MAX_MERGED_NS = 16000000, /* of tasks that are one product: its kernel polls */
    MAX_A = 1 << 18,    /* elements of A in a task: what is transposed into scratch */
    MAX_READ = 1 << 20, /* where it is read in place: a bound on time */
    ENOUGH_TASKS = 8,
    MIN_TASK_NS = 3000
};

void attn_gemm_describe(struct attn_gemm *g, int64_t m, int64_t n, int64_t k,
                        bool trans_a, bool trans_b)
{
    *g = (struct attn_gemm){ .b_type = ATTNRUN_F32, .m = m, .n = n, .k = k };
    g->a_row = trans_a ? 1 : k;
    g->a_col = trans_a ? m : 1;
    g->b_row = trans_b ? 1 : n;
    g->b_col = trans_b ? k : 1;
    g->c_row = n;
}

static bool by_tiles(const attnrun_step *step)
{
    return step->kernels != NULL && step->kernels->tiles_bf16;
}

/* Nanoseconds for a column of C in a block of m rows: by arithmetic, or by reading B. */
static double column_cost(int64_t m, int64_t k, bool by_tiles)
{
    const double speed = by_tiles ? TILE_GFLOPS : GFLOPS, bytes = by_tiles ? 2.0 : 4.0;
    double flops = 2.0 * (double)m * (double)k / speed, read = bytes * (double)k / 30.0;
    return (flops > read ? flops : read) + (double)m * 0.1;
}

static bool transposed_a(const struct attn_gemm *g) { return g->a_col != 1 && g->k > 1; }

/* Every block of rows packs B again, or reads what is packed: many, where that leaves
 * enough tasks. */
static int64_t rows_of_a_task(const struct attn_gemm *g, int64_t n_batch)
{
    const double tasks = (double)n_batch * (double)ceil_div(g->m, MAX_BLOCK) *
                         (double)ceil_div(g->n, MIN_COLUMNS);
    const int64_t max_a = transposed_a(g) || tasks < ENOUGH_TASKS ? MAX_A : MAX_READ;
    int64_t rows = min64(g->m, MAX_BLOCK);
    while (rows > 8 && rows * min64(g->k, max_a) > max_a)
        rows /= 2;
    return rows;
}

static int64_t gemm_scratch_floats(const struct attn_gemm *g)
{
    return (int64_t)attn_gemm_scratch((size_t)min64(g->m, g->cut.m_block), (size_t)g->n,
                                      (size_t)g->k);
}

struct gemm_cost {
    int64_t k;
    bool tiles;
};

static double gemm_task_ns(const struct attn_cut *cut, const void *what)
{
    const struct gemm_cost *cost = what;
    return column_cost(min64(cut->m, cut->m_part), cost->k, cost->tiles) *
               (double)min64(cut->n, cut->n_block) +
           100;
}

/* Rows of A are copied for each task where A is transposed, and rounded for each where products
 * are of bf16: few columns would not be worth that. Few rows of a transposed B are dots. */
static void cut_gemm(const attnrun_step *step, struct attn_gemm *g, int64_t n_batch,
                     const struct gemm_cost *cost)
{
    const bool rounds = step->kernels != NULL && step->kernels->products_bf16;
    const struct attn_cut_limits limits = { .grain = OP_PANEL,
                                            .min_columns =
                                                rounds ? MIN_COLUMNS : OP_PANEL,
                                            .whole_rows = transposed_a(g),
                                            .few_rows = g->b_row == 1 ? 4 : 0,
                                            .min_ns = MIN_TASK_NS };
    const int64_t rows = rows_of_a_task(g, n_batch);
    const int64_t even = round_up(ceil_div(g->m, ceil_div(g->m, rows)), 8);
    const double columns = (cost->tiles ? TILE_TASK_NS : TASK_NS) /
                           column_cost(min64(g->m, even), g->k, cost->tiles);
    attn_cut_blocks(&g->cut, n_batch, g->m, g->n, rows,
                    max64(columns > 1e9 ? 1000000000 : (int64_t)columns, MIN_COLUMNS),
                    OP_PANEL);
    if (!cost->tiles)
        attn_cut_refine(&g->cut, &limits, gemm_task_ns, cost);
}

attn_status attn_gemm_plan(const attnrun_step *step, struct attn_gemm *g)
{
    int64_t n_batch = 1;
    bool fits = true;
    for (int i = 0; i < g->n_batch; i++)
        fits = fits && ck_mul(n_batch, g->batch[i], &n_batch);
    if (g->m == 0 || g->n == 0 || (fits && n_batch == 0)) {
        g->n_tasks = 0;
        attn_cut_none(&g->cut);
        return ATTNRUN_OK;
    }
    const struct gemm_cost cost = { g->k, by_tiles(step) };
    if (fits)
        cut_gemm(step, g, n_batch, &cost);
    int64_t rows = min64(g->m, g->cut.m_block), a_elements = 0;
    fits = fits && attn_cut_tasks(&g->cut, &g->n_tasks) &&
           (!transposed_a(g) || ck_mul(rows, g->k, &a_elements)) &&
           a_elements < INT64_MAX / 64;
    if (!fits)
        return op_fail_scratch(step);
    g->task_cost = (int64_t)gemm_task_ns(&g->cut, &cost);
    g->scratch_bytes = (gemm_scratch_floats(g) + a_elements) * 4;
    op_flops(step, 2.0 * (double)n_batch * (double)g->m * (double)g->n * (double)g->k);
    return ATTNRUN_OK;
}

struct attn_gemm_offsets attn_gemm_batch(const struct attn_gemm *g, int64_t index)
{
    struct attn_gemm_offsets at = { 0, 0, 0 };
    for (int i = g->n_batch - 1; i >= 0; i--) {
        int64_t position = op_take(&index, g->batch[i]);
        at.a += position * g->a_batch[i];
        at.b += position * g->b_batch[i];
        at.c += position * g->c_batch[i];
    }
    return at;
}

/* The rows of A with stride 1 along k: where they are, or copied. */
static attn_status find_a(const struct attn_gemm *g, const struct attn_kernels *kernels,
                          struct attn_gemm_f32 *t, const float *a, float *copy,
                          bool copied)
{
    t->a = a;
    t->a_row = g->a_row;
    if (!transposed_a(g))
        return ATTNRUN_OK;
    t->a = copy;
    t->a_row = g->k;
    const int64_t rows = max64(1, MAX_A / (int64_t)t->m);
    for (int64_t k = 0, n; !copied && k < g->k; k += n) {
        n = min64(rows, g->k - k);
        if (g->a_row == 1)
            kernels->transpose_f32(copy + k, g->k, a + k * g->a_col, g->a_col, (size_t)n,
                                   t->m);
        for (int64_t i = 0; g->a_row != 1 && i < (int64_t)t->m; i++)
            for (int64_t j = k; j < k + n; j++)
                copy[i * g->k + j] = a[i * g->a_row + j * g->a_col];
        TRY(attn_poll_work(n * (int64_t)t->m * 8));
    }
    return ATTNRUN_OK;
}

/* Steps whose matrices have rows begin at this task's first element of C. */
static int move_epilogue(const struct attn_gemm *g, const struct attn_gemm_operands *o,
                         struct attn_epilogue *steps, int64_t c_batch, int64_t i,
                         int64_t j)
{
    int n = o->n_epilogue < 8 ? o->n_epilogue : 8;
    for (int e = 0; e < n; e++) {
        steps[e] = attn_epilogue_at(o->epilogue[e], i, j);
        if (steps[e].kind == ATTN_EPI_ADD && steps[e].row == g->c_row &&
            steps[e].col == 1)
            steps[e].data += c_batch;
    }
    return n;
}

/* A transposed A is copied, unless the part before has done so. */
static attn_status run_piece(const struct attn_gemm *g,
                             const struct attn_kernels *kernels,
                             const struct attn_gemm_operands *o,
                             const struct attn_cut_piece *p, void *scratch, bool copied)
{
    const struct attn_gemm_offsets at = attn_gemm_batch(g, p->product);
    struct attn_epilogue steps[8];
    struct attn_gemm_f32 t = { .m = (size_t)p->m,
                               .n = (size_t)p->n,
                               .k = (size_t)g->k,
                               .whole_n = (size_t)g->n,
                               .b_row = g->b_row,
                               .b_col = g->b_col,
                               .c_row = g->c_row,
                               .scratch = scratch,
                               .epilogue = steps };
    t.n_epilogue = move_epilogue(g, o, steps, at.c, p->row, p->column);
    float *copy = t.scratch + gemm_scratch_floats(g);
    TRY(find_a(g, kernels, &t, (const float *)o->a + at.a + p->row * g->a_row, copy,
               copied));
    t.b_type = o->in_place ? ATTN_B_LOOSE : attn_stored_as(g->b_type);
    if (o->packed != NULL)
        attn_gemm_use_packed(&t, o->packed, p->column);
    else
        t.b = attn_stored_at(g->b_type, o->b, at.b + p->column * g->b_col);
    t.c = (float *)o->c + at.c + p->row * g->c_row + p->column;
    kernels->gemm_f32(&t);
    return ATTNRUN_OK;
}

attn_status attn_gemm_run(const struct attn_gemm *g, const struct attn_kernels *kernels,
                          const struct attn_gemm_operands *o, const attnrun_work *work)
{
    const int64_t max_blocks =
        min64(MAX_MERGED_NS / max64(1, g->task_cost * g->cut.parts),
              OP_PRODUCT_COLUMNS / g->cut.n_block);
    for (int64_t task = work->begin; task < work->end;) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_cut_piece p =
            attn_cut_next(&g->cut, task, work->end, max_blocks);
        const bool copied = task > work->begin && p.column != 0;
        if (p.m > 0)
            TRY(run_piece(g, kernels, o, &p, work->scratch, copied));
        task += p.n_tasks;
    }
    return ATTNRUN_OK;
}

/* ---- packing ---- */

static int32_t packed_as(const struct attn_kernels *kernels, int32_t dtype)
{
    return kernels->dots_bf16       ? ATTN_B_PAIRS
           : kernels->products_bf16 ? ATTN_B_BF16
                                    : attn_stored_as(dtype);
}

/* Words of a column of k elements, and their bytes. */
static int64_t depth_of(int32_t stored_as, int64_t k)
{
    return stored_as == ATTN_B_PAIRS ? k / 2 + k % 2 : k;
}

static int64_t word_bytes(int32_t stored_as)
{
    return stored_as == ATTN_B_F32 || stored_as == ATTN_B_PAIRS ? 4 : 2;
}

int64_t attn_gemm_pack_bytes(const struct attn_kernels *kernels, int32_t dtype, int64_t k,
                             int64_t n)
{
    const int32_t type = packed_as(kernels, dtype);
    int64_t lanes = op_lanes(kernels), bytes;
    if (!ck_add(n, lanes - 1, &n) ||
        !ck_mul(n / lanes * lanes, depth_of(type, k), &bytes) ||
        !ck_mul(bytes, word_bytes(type), &bytes) ||
        !ck_add(bytes, (int64_t)sizeof(struct attn_packed), &bytes))
        return -1;
    return bytes;
}

static struct attn_packed packed_header(const struct attn_kernels *kernels, int32_t dtype,
                                        int64_t k, int64_t n)
{
    struct attn_packed head = attn_packed_head(kernels, dtype, k, n);
    head.stored_as = packed_as(kernels, dtype);
    return head;
}

attn_status attn_gemm_check_head(const attnrun_pack *pack, const void *packed,
                                 const struct attn_packed *expected)
{
    if (memcmp(packed, expected, sizeof *expected) == 0)
        return ATTNRUN_OK;
    return attn_fail_node(ATTNRUN_E_MODEL, pack->node,
                          "the head of its packed weights is not that of its operands");
}

void attn_gemm_pack(const struct attn_kernels *kernels, struct attn_packed *packed,
                    int32_t dtype, const void *b, int64_t row, int64_t col, int64_t k,
                    int64_t n)
{
    *packed = packed_header(kernels, dtype, k, n);
    void *panels = packed + 1;
    if (kernels->products_bf16)
        kernels->gemm_pack_bf16(panels, b, attn_stored_as(dtype), row, col, (size_t)k,
                                (size_t)n);
    else if (dtype == ATTNRUN_F32)
        kernels->gemm_pack_f32(panels, b, row, col, (size_t)k, (size_t)n);
    else
        kernels->gemm_pack_16(panels, b, row, col, (size_t)k, (size_t)n);
}

void attn_gemm_use_packed(struct attn_gemm_f32 *g, const struct attn_packed *packed,
                          int64_t column)
{
    const int32_t type = packed->stored_as;
    const int64_t at = column * depth_of(type, packed->k) * word_bytes(type);
    g->packed = 1;
    g->b_type = type;
    g->half_ahead = attn_cpu_needs_prefetch();
    g->b = (const void *)((const char *)(packed + 1) + at);
}

void attn_gemm_use_weight(struct attn_gemm_f32 *g, const attnrun_step *step, int in)
{
    if (step->node->packed != NULL) {
        attn_gemm_use_packed(g, step->node->packed, 0);
        return;
    }
    g->b = step->x[in].data;
    g->b_row = (ptrdiff_t)g->n;
    g->b_col = 1;
}

/* *bytes of packed input `in`, a (k, n) matrix. */
static attn_status pack_room(const attnrun_pack *pack, int in, int64_t k, int64_t n,
                             int64_t *bytes)
{
    *bytes = attn_gemm_pack_bytes(pack->kernels, pack->x[in].dtype, k, n);
    return *bytes < 0
               ? attn_fail_node(
                     ATTNRUN_E_LIMIT, pack->node,
                     "the packed form of input %d would be over 2^63 - 1 bytes", in)
               : ATTNRUN_OK;
}

/* Addresses for attnrun_pack.form: B, and B transposed. */
static const char packed_forms[2];

attn_status attn_gemm_pack_input(attnrun_pack *pack, int in, bool trans_b, int64_t *bytes,
                                 void *packed)
{
    const attnrun_tensor *b = in < pack->n_in ? &pack->x[in] : NULL;
    *bytes = 0;
    if (b == NULL || b->data == NULL || b->rank < 2 ||
        (b->dtype != ATTNRUN_F32 && attn_stored_as(b->dtype) == ATTN_B_F32))
        return ATTNRUN_OK;
    for (int i = 0; i < b->rank - 2; i++)
        if (b->dims[i] != 1)
            return ATTNRUN_OK;
    int64_t k = b->dims[b->rank - (trans_b ? 1 : 2)],
            n = b->dims[b->rank - (trans_b ? 2 : 1)];
    if (k == 0 || n < 2)
        return ATTNRUN_OK;
    TRY(pack_room(pack, in, k, n, bytes));
    pack->form = &packed_forms[trans_b];
    pack->sources = UINT32_C(1) << in;
    pack->replaces |= UINT32_C(1) << in;
    if (packed != NULL)
        attn_gemm_pack(pack->kernels, packed, b->dtype, b->data, trans_b ? 1 : n,
                       trans_b ? k : 1, k, n);
    return ATTNRUN_OK;
}

attn_status attn_gemm_pack_factor(attnrun_pack *pack, int in, bool trans_b,
                                  int64_t *bytes, void *packed)
{
    TRY(attn_gemm_pack_input(pack, in, trans_b, bytes, packed));
    if (*bytes == 0 || !pack->may_stay || trans_b || pack->kernels->products_bf16 ||
        pack->x[in].dtype != ATTNRUN_F32)
        return ATTNRUN_OK;
    *bytes = 0;
    pack->replaces &= ~(UINT32_C(1) << in);
    pack->form = NULL;
    pack->in_place = UINT32_C(1) << in;
    return ATTNRUN_OK;
}

struct attn_gemm_operands attn_gemm_factors(const attnrun_step *step)
{
    return (struct attn_gemm_operands){ .a = step->x[0].data,
                                        .b = step->x[1].data,
                                        .packed = step->node->packed,
                                        .in_place = (step->node->in_place >> 1 & 1) != 0,
                                        .c = step->y[0].data };
}

attn_status attn_gemm_check_header(const attnrun_pack *pack, const void *packed,
                                   int32_t dtype, int64_t k, int64_t n)
{
    const struct attn_packed expected = packed_header(pack->kernels, dtype, k, n);
    return attn_gemm_check_head(pack, packed, &expected);
}

attn_status attn_gemm_check_input(const attnrun_pack *pack, int in, bool trans_b,
                                  const void *packed)
{
    const attnrun_tensor *b = &pack->x[in];
    return attn_gemm_check_header(pack, packed, b->dtype,
                                  b->dims[b->rank - (trans_b ? 1 : 2)],
                                  b->dims[b->rank - (trans_b ? 2 : 1)]);
}

/* gemm_bytes.c - cuts products of quantized matrices into tasks, and runs them. The
 * arithmetic is in ops/kernels/gemm_i8.c. Cost: m n k / 256 cycles with VNNI. Scratch:
 * about 2 KiB for each row of a block. Source: ONNX MatMulInteger-10. */
#include "gemm_bytes.h"

#include "shapes.h"

enum {
    MAX_ROWS = 128,
    MIN_COLUMNS = 64,
    MAX_COLUMNS = 512, /* of a block */
    PACK_COLUMNS = 64, /* between two polls; whole panels */
    TASK_NS = 25000,
    MIN_TASK_NS = 3000,
    MAX_MERGED_NS = 4000000 /* between two polls */
};

/* ---- zero points ---- */

attn_status attn_integer_check_vector(const attnrun_step *step, int in, int64_t lines,
                                      int64_t matrices, const char *what)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    int64_t n = op_count(&step->in[in], 0, step->in[in].rank);
    if (n == 1 || n == lines ||
        (matrices > 0 && n / matrices == lines && n % matrices == 0))
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected 1 or %s, one per %s",
                         attn_plural(lines, "element"), what);
}

attn_status attn_integer_check_one(const attnrun_step *step, int in)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 0, 1));
    return step->in[in].rank == 1 ? op_need_dim(step, in, 0, dim_of(1), "one number")
                                  : ATTNRUN_OK;
}

int64_t attn_integer_pick(const attnrun_tensor *x, int64_t lines, int64_t matrix,
                          int64_t line)
{
    int64_t n = tensor_count(x);
    return n == 1 ? 0 : n == lines ? line : matrix * lines + line;
}

int32_t attn_integer_at(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_I8 ? ((const int8_t *)x->data)[i]
                                  : ((const uint8_t *)x->data)[i];
}

/* ---- sums as floats ---- */

void attn_integer_to_floats(const struct attn_integer_gemm *g,
                            const struct attn_kernels *kernels,
                            const struct attn_integer_block *block,
                            const struct attn_integer_scales *by, float *y, float *scales)
{
    const float *b = by->b->data;
    const bool by_column = tensor_count(by->b) != 1;
    for (int64_t j = 0; j < (by_column ? block->n : 1); j++)
        scales[j] =
            by->a *
            b[attn_integer_pick(by->b, g->gemm.n, block->b_matrix, block->column + j)];
    for (int64_t i = 0; i < block->m; i++)
        kernels->rescale_i32(
            y + block->c + i * g->gemm.c_row,
            (const int32_t *)block->sums + i * block->row, scales, by_column,
            by->bias == NULL ? NULL : by->bias + block->column, (size_t)block->n);
}

/* ---- the cut ---- */

/* Nanoseconds for a column of C in a block of m rows: by arithmetic, or by reading B. */
static double column_cost(int64_t m, int64_t k)
{
    const double products = (double)m * (double)k / 250.0, read = (double)k / 12.0;
    return (products > read ? products : read) + (double)m * 0.3;
}

static attn_status too_large(const attnrun_step *step) { return op_fail_scratch(step); }

static double integer_task_ns(const struct attn_cut *cut, const void *k)
{
    return column_cost(min64(cut->m, cut->m_part), *(const int64_t *)k) *
               (double)min64(cut->n, cut->n_block) +
           100;
}

static void cut_products(struct attn_gemm *g, int64_t n_batch)
{
    const int64_t rows =
        min64(g->m, round_up(ceil_div(g->m, ceil_div(g->m, MAX_ROWS)), 8));
    const double columns = TASK_NS / column_cost(rows, g->k);
    const struct attn_cut_limits limits = { .grain = OP_PANEL,
                                            .min_columns = OP_PANEL,
                                            .min_ns = MIN_TASK_NS };
    attn_cut_blocks(
        &g->cut, n_batch, g->m, g->n, MAX_ROWS,
        max64(columns > MAX_COLUMNS ? MAX_COLUMNS : (int64_t)columns, MIN_COLUMNS),
        OP_PANEL);
    attn_cut_refine(&g->cut, &limits, integer_task_ns, &g->k);
}

attn_status attn_integer_cut(const attnrun_step *step, bool summed,
                             struct attn_integer_gemm *s)
{
    struct attn_gemm *g = &s->gemm;
    int64_t n_batch = 1;
    bool fits = true;
    for (int i = 0; i < g->n_batch; i++)
        fits = fits && ck_mul(n_batch, g->batch[i], &n_batch);
    attn_cut_none(&g->cut);
    if (fits && n_batch > 0 && g->n > 0 && g->m > 0)
        cut_products(g, n_batch);
    else if (g->n == 0 || g->m == 0)
        n_batch = 0;
    const int64_t rows = min64(g->m, g->cut.m_block);
    if (!fits || !attn_cut_tasks(&g->cut, &g->n_tasks))
        return too_large(step);
    op_flops(step, 2.0 * (double)n_batch * (double)g->m * (double)g->n * (double)g->k);
    const double task = integer_task_ns(&g->cut, &g->k);
    g->task_cost = task < 1e15 ? (int64_t)task : (int64_t)1e15;
    s->columns = min64(g->n, MAX_COLUMNS);
    s->zeros_at =
        round_up((int64_t)attn_gemm_i8_scratch((size_t)rows, (size_t)s->columns) * 4, 64);
    s->sums_at = s->zeros_at + round_up((rows + s->columns) * 4, 64);
    g->scratch_bytes = s->sums_at + (summed ? round_up(rows * s->columns * 4, 64) : 0);
    if (!summed)
        s->sums_at = -1;
    return ATTNRUN_OK;
}

attn_status attn_integer_plan(const attnrun_step *step, int a, int b, bool summed,
                              struct attn_integer_gemm *g)
{
    const attnrun_type *ta = &step->in[a], *tb = &step->in[b];
    TRY(attn_matmul_describe(step, a, b, 0, &g->gemm));
    g->rows = ta->rank < 2 ? 1 : ta->dims[ta->rank - 2].value;
    g->a_matrices = ta->rank < 3 ? 1 : op_count(ta, 0, ta->rank - 2);
    g->b_matrices = tb->rank < 3 ? 1 : op_count(tb, 0, tb->rank - 2);
    return attn_integer_cut(step, summed, g);
}

/* ---- a task ---- */

/* Zero points of a block as the kernel takes them; NULL: none. */
static const int32_t *zeros_of_rows(const struct attn_integer_gemm *g,
                                    const attnrun_tensor *zero,
                                    const struct attn_integer_block *block, int32_t *to)
{
    if (zero == NULL)
        return NULL;
    for (int64_t i = 0; i < block->m; i++) {
        const int64_t line = block->line + i;
        to[i] = attn_integer_at(
            zero, attn_integer_pick(zero, g->rows, line / g->rows, line % g->rows));
    }
    return to;
}

static const int32_t *zeros_of_columns(const struct attn_integer_gemm *g,
                                       const attnrun_tensor *zero,
                                       const struct attn_integer_block *block,
                                       int32_t *to)
{
    if (zero == NULL)
        return NULL;
    for (int64_t j = 0; j < block->n; j++)
        to[j] = attn_integer_at(
            zero, attn_integer_pick(zero, g->gemm.n, block->b_matrix, block->column + j));
    return to;
}

static void find_b(const struct attn_gemm *g, const struct attn_integer_operands *o,
                   struct attn_gemm_i8 *t, int64_t b, int64_t j)
{
    const struct attn_packed *packed = o->packed;
    t->b_row = g->b_row;
    t->b_col = g->b_col;
    t->b_signed = o->b_signed;
    if (packed == NULL) {
        t->b = (const uint8_t *)o->b + b + j * g->b_col;
        return;
    }
    attn_integer_packed_columns(packed, j, t);
}

static void run_piece(const struct attn_integer_gemm *s,
                      const struct attn_kernels *kernels,
                      const struct attn_integer_operands *o,
                      const struct attn_cut_piece *p, const attnrun_work *work)
{
    const struct attn_gemm *g = &s->gemm;
    const int64_t i = p->row, j = p->column;
    const struct attn_gemm_offsets at = attn_gemm_batch(g, p->product);
    uint8_t *scratch = work->scratch;
    int32_t *zeros = (int32_t *)(void *)(scratch + s->zeros_at);
    /* Without terms no element of A tells its row, but those of C do. */
    const int64_t top = g->k > 0 ? at.a / g->k : at.c / g->n % (s->rows * s->a_matrices);
    struct attn_integer_block block = {
        .line = top + i, .column = j, .c = at.c + i * g->c_row + j, .m = p->m, .n = p->n
    };
    block.b_matrix = g->k > 0 ? at.b / (g->k * g->n) : 0;
    block.row = s->sums_at < 0 ? g->c_row : block.n;
    struct attn_gemm_i8 t = { .a = (const uint8_t *)o->a + at.a + i * g->a_row,
                              .a_row = g->a_row,
                              .a_col = g->a_col,
                              .a_signed = o->a_signed,
                              .a_zero = zeros_of_rows(s, o->a_zero, &block, zeros),
                              .c_row = block.row,
                              .m = (size_t)block.m,
                              .n = (size_t)block.n,
                              .k = (size_t)g->k,
                              .scratch = (uint32_t *)(void *)scratch };
    t.b_zero = zeros_of_columns(s, o->b_zero, &block, zeros + block.m);
    t.c = s->sums_at < 0 ? o->c + block.c : (uint32_t *)(void *)(scratch + s->sums_at);
    find_b(g, o, &t, at.b, j);
    kernels->gemm_i8(&t);
    block.sums = t.c;
    if (s->sums_at >= 0)
        o->finish(o->step, work, &block, scratch + g->scratch_bytes);
}

struct attn_integer_operands attn_integer_operands_of(const attnrun_step *step, int a,
                                                      int b, int a_zero, int b_zero)
{
    return (struct attn_integer_operands){
        .a = step->x[a].data,
        .b = step->x[b].data,
        .packed = step->node->packed,
        .a_zero = op_has_in(step, a_zero) ? &step->x[a_zero] : NULL,
        .b_zero = op_has_in(step, b_zero) ? &step->x[b_zero] : NULL,
        .a_signed = step->in[a].dtype == ATTNRUN_I8,
        .b_signed = step->in[b].dtype == ATTNRUN_I8,
        .step = step,
    };
}

attn_status attn_integer_run(const struct attn_integer_gemm *s,
                             const struct attn_kernels *kernels,
                             const struct attn_integer_operands *o,
                             const attnrun_work *work)
{
    const struct attn_gemm *g = &s->gemm;
    const int64_t max_blocks =
        min64(MAX_MERGED_NS / max64(1, g->task_cost * g->cut.parts),
              s->columns / g->cut.n_block);
    for (int64_t task = work->begin; task < work->end;) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_cut_piece p =
            attn_cut_next(&g->cut, task, work->end, max_blocks);
        if (p.m > 0)
            run_piece(s, kernels, o, &p, work);
        task += p.n_tasks;
    }
    return ATTNRUN_OK;
}

/* ---- packing ---- */

/* The columns' sums, then panels. */
static const char packed_forms[2]; /* their addresses are for attnrun_pack.form */

/* Columns filled up to whole panels. */
static int64_t whole_columns(const struct attn_kernels *kernels, int64_t n)
{
    return round_up(n, op_panel_columns(kernels));
}

int64_t attn_integer_packed_bytes(const struct attn_kernels *kernels, int64_t k,
                                  int64_t n)
{
    int64_t bytes;
    if (!ck_mul(whole_columns(kernels, n), ceil_div(k, 4) * 4 + 4, &bytes) ||
        !ck_add(bytes, (int64_t)sizeof(struct attn_packed), &bytes))
        return -1;
    return bytes;
}

/* Element [i][j] of B is at i * row + j * column. */
static void pack_strided(const struct attn_kernels *kernels, struct attn_packed *packed,
                         const uint8_t *b, bool is_signed, int64_t k, int64_t n,
                         int64_t row, int64_t column)
{
    uint32_t *sums = (uint32_t *)(packed + 1);
    uint8_t *panels = (uint8_t *)(sums + whole_columns(kernels, n));
    *packed = attn_packed_head(kernels, is_signed ? ATTNRUN_I8 : ATTNRUN_U8, k, n);
    for (int64_t j = 0; j < n; j += PACK_COLUMNS) {
        const int64_t columns = min64(PACK_COLUMNS, n - j);
        kernels->gemm_pack_i8(panels + j * (ceil_div(k, 4) * 4), sums + j, b + j * column,
                              row, column, (size_t)k, (size_t)columns, is_signed);
        if (attn_poll_work(4 * k * columns) != ATTNRUN_OK)
            return; /* the caller sees it at its next poll */
    }
}

void attn_integer_pack(const struct attn_kernels *kernels, struct attn_packed *packed,
                       const void *b, int64_t k, int64_t n, bool is_signed)
{
    pack_strided(kernels, packed, b, is_signed, k, n, n, 1);
}

void attn_integer_packed_columns(const struct attn_packed *packed, int64_t column,
                                 struct attn_gemm_i8 *product)
{
    const uint32_t *sums = (const uint32_t *)(packed + 1);
    /* As whole_columns() had it when packing. */
    const int64_t panel = op_panel_columns_of(packed->vec_bytes);
    const uint32_t *panels = sums + round_up(packed->n, panel);
    product->b_signed = packed->dtype == ATTNRUN_I8;
    product->sums = sums + column;
    product->b = (const uint8_t *)panels + column * (ceil_div(packed->k, 4) * 4);
}

/* Rows and columns of the matrix B, of which `b` may be the transpose. */
static void sizes_of(const attnrun_tensor *b, bool transposed, int64_t *k, int64_t *n)
{
    *k = b->dims[b->rank - (transposed ? 1 : 2)];
    *n = b->dims[b->rank - (transposed ? 2 : 1)];
}

attn_status attn_integer_pack_input(attnrun_pack *pack, int in, bool transposed,
                                    int64_t *bytes, void *packed)
{
    const attnrun_tensor *b = in < pack->n_in ? &pack->x[in] : NULL;
    *bytes = 0;
    if (b == NULL || b->data == NULL || b->rank < 2)
        return ATTNRUN_OK;
    for (int i = 0; i < b->rank - 2; i++)
        if (b->dims[i] != 1)
            return ATTNRUN_OK;
    int64_t k, n;
    sizes_of(b, transposed, &k, &n);
    if (k == 0 || n == 0)
        return ATTNRUN_OK;
    *bytes = attn_integer_packed_bytes(pack->kernels, k, n);
    if (*bytes < 0)
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed form of input %d would be over 2^63 - 1 bytes",
                              in);
    pack->form = &packed_forms[transposed];
    pack->sources = UINT32_C(1) << in;
    pack->replaces |= UINT32_C(1) << in;
    if (packed != NULL)
        pack_strided(pack->kernels, packed, b->data, b->dtype == ATTNRUN_I8, k, n,
                     transposed ? 1 : n, transposed ? k : 1);
    return ATTNRUN_OK;
}

attn_status attn_integer_check_header(const attnrun_pack *pack, const void *packed,
                                      int64_t k, int64_t n, bool is_signed)
{
    const struct attn_packed expected =
        attn_packed_head(pack->kernels, is_signed ? ATTNRUN_I8 : ATTNRUN_U8, k, n);
    return attn_gemm_check_head(pack, packed, &expected);
}

attn_status attn_integer_check_input(const attnrun_pack *pack, int in, bool transposed,
                                     const void *packed)
{
    const attnrun_tensor *b = &pack->x[in];
    int64_t k, n;
    sizes_of(b, transposed, &k, &n);
    return attn_integer_check_header(pack, packed, k, n, b->dtype == ATTNRUN_I8);
}

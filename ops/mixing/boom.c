/* boom.c - Boom of SHA-RNN: act(x W + b) is cut into segments of output_size columns,
 * which are added up. Columns that do not fill a segment are not computed.
 *
 * X            f32 (…, in)
 * W            f32 (in, hidden), hidden at least output_size
 * b            f32 (hidden), optional
 * Y            f32 (…, output_size)
 * output_size  in by default
 * activation   quick_gelu: x sigmoid(1.702 x); gelu, gelu_tanh, relu
 *
 * Refused: an X whose last dim is 0, fewer hidden columns than output_size, sizes that
 * disagree.
 * Cost: one product of in x hidden. Each segment is added to Y when it is computed, so a
 * tensor (…, hidden) never exists.
 * Source: Merity 2019, arXiv:1911.11423. Compared with Smerity/sha-rnn 218d748 model.py
 * Boom(shortcut=True). */
#include "../matmul/gemm.h"
#include "../attention/core/heads.h"
#include "../tile.h"

enum { X, W, B, MAX_ROWS = 128, FEW_ROWS = 32, COLUMNS = 256, MIN_COLUMNS = 64 };
enum { QUICK_GELU, GELU, GELU_TANH, RELU };

struct boom_args {
    int64_t output_size;
    int32_t activation;
};

static const attnrun_attr_def boom_attrs[] = {
    ATTR_INT(struct boom_args, output_size, OP_INT_ABSENT),
    ATTR_ENUM(struct boom_args, activation, "quick_gelu|gelu|gelu_tanh|relu", QUICK_GELU),
    ATTR_END,
};

struct boom_state {
    int64_t rows, in, hidden, size, segments;
    int64_t row_block, row_blocks, column_block, column_blocks;
};

/* ---- infer ---- */

static attn_status plan_boom(attnrun_step *step, attnrun_dim in, attnrun_dim hidden,
                             attnrun_dim size)
{
    struct boom_state *s = step->state;
    s->rows = op_count(&step->in[X], 0, step->in[X].rank - 1);
    s->in = in.value;
    s->hidden = hidden.value;
    s->size = size.value;
    s->segments = s->hidden / s->size;
    s->row_block = min64(s->rows, MAX_ROWS);
    s->column_block = min64(s->size, s->rows >= FEW_ROWS ? COLUMNS : MIN_COLUMNS);
    s->row_blocks = s->rows > 0 ? ceil_div(s->rows, s->row_block) : 0;
    s->column_blocks = ceil_div(s->size, s->column_block);
    int64_t tasks;
    if (s->rows < 0 || s->in > INT32_MAX || s->hidden > INT32_MAX ||
        !ck_mul(s->row_blocks, s->column_blocks, &tasks))
        return op_fail_size(
            step, "dim 1 of X or W would be over 2^31 - 1, or the number of tasks",
            "2^63 - 1");
    const double cost = (double)s->row_block * (double)s->column_block *
                        ((double)s->in / 75 + 0.3) * (double)s->segments;
    op_tasks(step, 0, tasks, op_ns(cost + 200));
    step->scratch_bytes =
        (int64_t)(attn_gemm_scratch((size_t)s->row_block, (size_t)s->column_block,
                                    (size_t)s->in) *
                  sizeof(float));
    return ATTNRUN_OK;
}

static attn_status boom_infer(attnrun_step *step)
{
    const struct boom_args *args = step->args;
    const attnrun_type *x = &step->in[X];
    attnrun_dim y[ATTNRUN_MAX_RANK], in, hidden, size;
    if (args->output_size != OP_INT_ABSENT)
        TRY(attn_need_int(step, "output_size", args->output_size, 1, INT32_MAX));
    TRY(op_need_rank_between(step, X, 1, ATTNRUN_MAX_RANK));
    TRY(op_need_rank(step, W, 2));
    in = x->rank > 0 ? x->dims[x->rank - 1] : attnrun_dim_unknown(step);
    hidden = step->in[W].rank == 2 ? step->in[W].dims[1] : attnrun_dim_unknown(step);
    if (x->rank < 0 && step->in[W].rank == 2)
        in = step->in[W].dims[0];
    TRY(op_need_dim(step, W, 0, in, "the last dim of X"));
    size = args->output_size != OP_INT_ABSENT ? dim_of(args->output_size) : in;
    TRY(op_need_vector(step, B, hidden, "the columns of W"));
    if (dim_is(in, 0))
        return op_fail_input(step, X, ATTNRUN_E_SHAPE, "its last dim is 0");
    if (dim_is_const(hidden) && dim_is_const(size) && hidden.value < size.value)
        return op_fail_input(step, W, ATTNRUN_E_SHAPE,
                             "expected at least %s, the output size",
                             attn_plural(size.value, "column"));
    for (int i = 0; i < x->rank - 1; i++)
        y[i] = x->dims[i];
    if (x->rank > 0)
        y[x->rank - 1] = size;
    TRY(op_out(step, 0, ATTNRUN_F32, x->rank, x->rank < 0 ? NULL : y));
    return step->concrete ? plan_boom(step, in, hidden, size) : ATTNRUN_OK;
}

/* ---- pack: the segments one after the other ---- */

static attn_status boom_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct boom_args *args = pack->args;
    const attnrun_tensor *w = &pack->x[W];
    *bytes = 0;
    if (w->data == NULL || w->rank != 2 || w->dtype != ATTNRUN_F32)
        return ATTNRUN_OK;
    const int64_t in = w->dims[0], hidden = w->dims[1];
    const int64_t size = args->output_size != OP_INT_ABSENT ? args->output_size : in;
    if (in < 1 || size < 2 || hidden < size || in > INT32_MAX || hidden > INT32_MAX)
        return ATTNRUN_OK;
    const int64_t floats = op_packed_elements(pack->kernels, in, size);
    if (!ck_mul(floats, hidden / size * (int64_t)sizeof(float), bytes) ||
        !ck_add(*bytes, (int64_t)sizeof(struct attn_packed), bytes))
        return attn_fail_node(ATTNRUN_E_LIMIT, pack->node,
                              "the packed form of W would be over 2^63 - 1 bytes");
    pack->replaces |= UINT32_C(1) << W;
    if (packed == NULL)
        return ATTNRUN_OK;
    struct attn_packed *header = packed;
    for (int64_t segment = 0; segment < hidden / size; segment++)
        pack->kernels->gemm_pack_f32((float *)(header + 1) + segment * floats,
                                     (const float *)w->data + segment * size, hidden, 1,
                                     (size_t)in, (size_t)size);
    *header = attn_packed_head(pack->kernels, ATTNRUN_F32, in, hidden);
    return ATTNRUN_OK;
}

/* ---- run ---- */

/* Lists the steps behind a product: the bias of a segment's columns, the activation, and
 * the sum of earlier segments in Y. */
static int32_t boom_list_epilogue(const attnrun_step *step, int64_t column,
                                  const float *y, bool first, struct attn_epilogue *steps)
{
    static const int32_t kinds[] = { ATTN_EPI_SILU, ATTN_EPI_GELU, ATTN_EPI_GELU_TANH,
                                     ATTN_EPI_RELU };
    const struct boom_args *args = step->args;
    const struct boom_state *s = step->state;
    const bool quick = args->activation == QUICK_GELU;
    int32_t n = 0;
    if (op_has_in(step, B))
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                    .alpha = 1.0f,
                                    .col = 1,
                                    .data = (const float *)step->x[B].data + column };
    if (quick) /* x sigmoid(a x) = silu(a x) / a */
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = 1.702f };
    steps[n++] = (struct attn_epilogue){ .kind = kinds[args->activation] };
    if (quick)
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = 1.0f / 1.702f };
    if (!first)
        steps[n++] = (struct attn_epilogue){
            .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = s->size, .col = 1, .data = y
        };
    return n;
}

static void add_segment(const attnrun_step *step, const attnrun_work *work, int64_t row,
                        int64_t column, int64_t segment)
{
    const struct boom_state *s = step->state;
    struct attn_epilogue steps[5];
    float *y = (float *)step->y[0].data + row * s->size + column;
    struct attn_gemm_f32 g = { .a = (const float *)step->x[X].data + row * s->in,
                               .a_row = s->in,
                               .b_row = s->hidden,
                               .b_col = 1,
                               .c = y,
                               .c_row = s->size,
                               .m = (size_t)min64(s->row_block, s->rows - row),
                               .n = (size_t)min64(s->column_block, s->size - column),
                               .k = (size_t)s->in,
                               .epilogue = steps,
                               .scratch = work->scratch };
    g.n_epilogue =
        boom_list_epilogue(step, segment * s->size + column, y, segment == 0, steps);
    g.packed = step->node->packed != NULL;
    if (g.packed)
        g.b = (const float *)((const struct attn_packed *)step->node->packed + 1) +
              segment * op_packed_elements(step->kernels, s->in, s->size) +
              column * s->in;
    else
        g.b = (const float *)step->x[W].data + segment * s->size + column;
    step->kernels->gemm_f32(&g);
}

static attn_status boom_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct boom_state *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t rows = task, columns = op_take(&rows, s->column_blocks);
        for (int64_t segment = 0; segment < s->segments; segment++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            add_segment(step, work, rows * s->row_block, columns * s->column_block,
                        segment);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_boom_1 = {
    OP_ROW_OF("attnrun"),
    .name = "Boom",
    .since = 1,
    .inputs = "X:T W:T b:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct boom_args),
    .state_bytes = sizeof(struct boom_state),
    .attrs = boom_attrs,
    .infer = boom_infer,
    .pack = boom_pack,
    .check_packed = op_packed_is_data,
    .run = boom_run,
    .cost = "O(n d hidden), no memory of its own",
    .source = "Merity 2019, arXiv:1911.11423",
};

/* ms_longformer_attention.c - com.microsoft LongformerAttention: query, key and value are
 * projected, then computed by attnrun's LongformerAttention.
 *
 * input          f32 (batch, n, width)
 * weight, bias   (width, 3 width), (3 width): query, key, value
 * mask           (batch, n): < 0 masks a token: no query sees its key, and its row is
 *                zeros
 * global_weight, global_bias   as weight and bias, for global queries
 * global         i32 (batch, n): not 0 where a token is global
 * output         f32 (batch, n, width)
 *
 * num_heads divides width. window is one-sided: |i - j| <= window. A token that is masked
 * and global is masked. Masked keys are left out, where ONNX Runtime adds the mask
 * (-10000).
 * Cost: O(n width^2 + n window width). Memory: (n, 3 width) floats a sample in shared
 * memory.
 * Source: ONNX Runtime 1.31.1 contrib operators. Its CPU provider has no kernel, so this
 * file follows Beltagy 2020, arXiv:2004.05150, as attnrun_longformer_attention.c does. */
#include <math.h>

#include "../../matmul/gemm.h"
#include "../core/global_rows.h"

struct ms_longformer_args {
    int64_t num_heads, window;
};
static const attnrun_attr_def ms_longformer_attrs[] = {
    ATTR_INT_REQUIRED(struct ms_longformer_args, num_heads),
    ATTR_INT_REQUIRED(struct ms_longformer_args, window),
    ATTR_END,
};

enum { X, WEIGHT, BIAS, MASK, GLOBAL_WEIGHT, GLOBAL_BIAS, GLOBAL };
enum { Y };
enum { PROJECT, LIST, WINDOW, ROWS };

struct ms_longformer_state {
    struct attn_window window;
    struct attn_global_rows rows;
    struct attn_gemm gemm;
    int64_t reach;                         /* what window.left points to */
    int64_t keys_at, globals_at, lists_at; /* bytes into the shared memory */
};

static attn_status check_weight(const attnrun_step *step, int weight, int bias,
                                attnrun_dim width)
{
    const attnrun_dim columns = attnrun_dim_mul(step, width, dim_of(3));
    TRY(op_need_rank(step, weight, 2));
    TRY(op_need_dim(step, weight, 0, width, "the width of the input"));
    TRY(op_need_dim(step, weight, 1, columns, "3 times the width of the input"));
    return op_need_vector(step, bias, columns, "3 times the width of the input");
}

static attn_status check_flags(const attnrun_step *step, int in)
{
    TRY(op_need_rank(step, in, 2));
    TRY(op_need_dim(step, in, 0, step->in[X].dims[0], "the batch"));
    return op_need_dim(step, in, 1, step->in[X].dims[1], "the number of tokens");
}

static attn_status ms_longformer_plan_memory(attnrun_step *step,
                                             struct ms_longformer_state *s)
{
    const struct attn_window *w = &s->window;
    const int64_t tokens = w->s.batch * w->s.kv_len;
    int64_t projected_at, end = 0;
    if (!op_slot_rows(&projected_at, &end, tokens, 3 * s->rows.width, sizeof(float)) ||
        !op_slot(&s->keys_at, &end, tokens, 1) ||
        !op_slot(&s->globals_at, &end, tokens, 1) ||
        !op_slot(&s->lists_at, &end, w->list_bytes, 1))
        return op_fail_scratch(step);
    step->shared_bytes = end;
    step->scratch_bytes = s->gemm.scratch_bytes;
    if (step->scratch_bytes < w->scratch_bytes)
        step->scratch_bytes = w->scratch_bytes;
    if (step->scratch_bytes < s->rows.scratch_bytes)
        step->scratch_bytes = s->rows.scratch_bytes;
    return ATTNRUN_OK;
}

/* The sizes and strides of query, key and value, which are parts of the projected
 * rows. */
static struct attn_sizes sizes_of(const attnrun_step *step)
{
    const struct ms_longformer_args *args = step->args;
    const attnrun_dim *x = step->in[X].dims;
    const int64_t n = x[1].value, width = x[2].value, dim = width / args->num_heads;
    const struct attn_heads part = { 3 * n * width, dim, 3 * width };
    return (struct attn_sizes){ .batch = x[0].value,
                                .q_len = n,
                                .kv_len = n,
                                .q_heads = args->num_heads,
                                .kv_heads = args->num_heads,
                                .dim = dim,
                                .v_dim = dim,
                                .group = 1,
                                .scale = (float)(1.0 / sqrt((double)dim)),
                                .q = part,
                                .k = part,
                                .v = part,
                                .y = { n * width, dim, width } };
}

static attn_status plan_longformer(attnrun_step *step)
{
    const struct ms_longformer_args *args = step->args;
    struct ms_longformer_state *s = step->state;
    struct attn_window *w = &s->window;
    const attnrun_dim *x = step->in[X].dims;
    const int64_t width = x[2].value;
    if (x[1].value > INT32_MAX)
        return op_fail(step, ATTNRUN_E_LIMIT,
                       "there are %lld tokens, expected at most 2^31 - 1",
                       (long long)x[1].value);
    TRY(attn_sdpa_fits(step, x[0].value, args->num_heads, x[1].value, x[1].value,
                       3 * width));
    s->reach = args->window;
    *w = (struct attn_window){ .s = sizes_of(step),
                               .left = { &s->reach, 1 },
                               .right = { &s->reach, 1 },
                               .chunk = 1,
                               .zero_masked = true,
                               .globals = true,
                               .max_globals = x[1].value };
    TRY(attn_window_plan(step, w));
    s->rows = (struct attn_global_rows){
        .s = w->s, .width = width, .wq = 3 * width, .wk = 3 * width, .wv = 3 * width
    };
    TRY(attn_global_rows_plan(step, &s->rows));
    attn_gemm_describe(&s->gemm, w->s.batch * w->s.kv_len, 3 * width, width, false,
                       false);
    TRY(attn_gemm_plan(step, &s->gemm));
    TRY(ms_longformer_plan_memory(step, s));
    op_tasks(step, PROJECT, s->gemm.n_tasks, s->gemm.task_cost);
    op_tasks(step, LIST, w->globals ? w->s.batch : 0, 4 * w->s.kv_len);
    op_tasks(step, WINDOW, w->n_tasks, w->task_cost);
    op_tasks(step, ROWS, s->rows.n_tasks, s->rows.task_cost);
    return ATTNRUN_OK;
}

static attn_status ms_longformer_infer(attnrun_step *step)
{
    const struct ms_longformer_args *args = step->args;
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, INT32_MAX));
    TRY(attn_need_int(step, "window", args->window, 1, INT64_MAX));
    TRY(op_need_rank(step, X, 3));
    if (!op_rank_known(step, X))
        return op_out(step, Y, ATTNRUN_F32, -1, NULL);
    const attnrun_dim width = step->in[X].dims[2];
    if (dim_is_const(width) && (width.value == 0 || width.value % args->num_heads != 0))
        return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                             "expected a multiple of %s over 0 in dim 2",
                             attn_plural(args->num_heads, "head"));
    TRY(check_weight(step, WEIGHT, BIAS, width));
    TRY(check_weight(step, GLOBAL_WEIGHT, GLOBAL_BIAS, width));
    TRY(check_flags(step, MASK));
    TRY(check_flags(step, GLOBAL));
    TRY(op_out_like(step, Y, X));
    return step->concrete ? plan_longformer(step) : ATTNRUN_OK;
}

ATTN_GEMM_PACKS(ms_longformer, WEIGHT, false)

static attn_status ms_longformer_project(const attnrun_step *step,
                                         const attnrun_work *work)
{
    const struct ms_longformer_state *s = step->state;
    const struct attn_epilogue bias = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .data = step->x[BIAS].data, .col = 1
    };
    const struct attn_gemm_operands o = { .a = step->x[X].data,
                                          .b = step->x[WEIGHT].data,
                                          .packed = step->node->packed,
                                          .c = work->shared,
                                          .epilogue = &bias,
                                          .n_epilogue = 1 };
    return attn_gemm_run(&s->gemm, step->kernels, &o, work);
}

/* Lists the masks of sample b as bytes, and its global tokens. */
static void list(const attnrun_step *step, int64_t b, char *shared)
{
    const struct ms_longformer_state *s = step->state;
    const int64_t n = s->window.s.kv_len;
    const struct attn_window_lists lists =
        attn_window_lists_at(&s->window, shared + s->lists_at);
    uint8_t *keys = (uint8_t *)shared + s->keys_at + b * n,
            *globals = (uint8_t *)shared + s->globals_at + b * n;
    for (int64_t j = 0; j < n; j++) {
        const float mask = ((const float *)step->x[MASK].data)[b * n + j];
        keys[j] = (uint8_t)(mask < 0.0f ? 0 : 1);
        globals[j] = ((const int32_t *)step->x[GLOBAL].data)[b * n + j] != 0;
    }
    attn_window_list(&s->window, &lists, b, 0, globals, keys, true);
}

static attn_status ms_longformer_attend(const attnrun_step *step, int64_t task,
                                        const attnrun_work *work)
{
    const struct ms_longformer_state *s = step->state;
    struct attn_window w = s->window;
    const int64_t width = s->rows.width;
    char *shared = work->shared;
    const float *projected = work->shared, *weight = step->x[GLOBAL_WEIGHT].data,
                *bias = step->x[GLOBAL_BIAS].data;
    const uint8_t *keys = (const uint8_t *)shared + s->keys_at;
    const struct attn_window_lists lists = attn_window_lists_at(&w, shared + s->lists_at);
    const struct attn_window_operands o = { .q = projected,
                                            .k = projected + width,
                                            .v = projected + 2 * width,
                                            .y = step->y[Y].data,
                                            .key_mask = keys,
                                            .lists = lists };
    const struct attn_global_rows_operands x = { .x = step->x[X].data,
                                                 .wq = weight,
                                                 .wk = weight + width,
                                                 .wv = weight + 2 * width,
                                                 .bq = bias,
                                                 .bv = bias + 2 * width,
                                                 .key_mask = keys,
                                                 .lists = lists,
                                                 .y = step->y[Y].data };
    w.left.v = w.right.v = &s->reach;
    if (work->phase == WINDOW)
        return attn_window_run(&w, step->kernels, &o, task, work);
    return attn_global_rows_run(&s->rows, step->kernels, &x, task, work);
}

static attn_status ms_longformer_run(const attnrun_step *step, const attnrun_work *work)
{
    if (step->y[Y].data == NULL)
        return ATTNRUN_OK;
    if (work->phase == PROJECT)
        return ms_longformer_project(step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == LIST)
            list(step, task, work->shared);
        else
            TRY(ms_longformer_attend(step, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ms_longformer_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "LongformerAttention",
    .since = 1,
    .inputs = "input:T weight:T bias:T mask:T global_weight:T global_bias:T global:G",
    .outputs = "output:T",
    .types = "T=f32 G=i32",
    .args_bytes = sizeof(struct ms_longformer_args),
    .state_bytes = sizeof(struct ms_longformer_state),
    .attrs = ms_longformer_attrs,
    .infer = ms_longformer_infer,
    .pack = ms_longformer_pack,
    .check_packed = ms_longformer_check_packed,
    .run = ms_longformer_run,
    .cost = "O(n width^2 + n window width), scratch O(tile)",
    .source = "ONNX Runtime contrib operators; Beltagy 2020, arXiv:2004.05150",
};

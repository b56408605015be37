/* q_attention.c - com.microsoft QAttention: Attention whose input and weights are
 * quantized. The projections are (input - zero point) (weight - zero point) * input_scale
 * * weight_scale + bias, the rest is as in merged.c.
 *
 * input       u8 or i8 (batch, q, input hidden); its scale and zero point: one number
 * weight      u8 or i8 (input hidden, 3 * hidden); its scale and zero point: one number,
 *             or one for each column; packed as floats where constant
 * bias        f32 (3 * hidden);  mask_index, past, present as in merged.c
 *
 * Integers less their zero points are exact as floats, and so are sums of their products
 * below 2^24; larger ones are rounded, as an i32 would be on its way to f32. So the
 * product is that of gemm_f32, many times the speed of the plain loops of MatMulInteger,
 * for four bytes a weight. Source: ONNX Runtime contrib operators; compared with
 * onnxruntime 1.31.1. */
#include "merged.h"

struct q_attention_state {
    struct attn_merged merged;
    int64_t x_at, weight_at; /* floats into the shared memory */
    int64_t x_tasks, rows_per_task;
    bool widen_weight; /* in each run: it is not packed */
    bool by_column;    /* columns have scales of their own */
};

static const attnrun_attr_def q_attention_attrs[] = {
    ATTN_MERGED_ATTRS(struct attn_merged_args),
    ATTR_END,
};

enum { X, WEIGHT, BIAS, X_SCALE, WEIGHT_SCALE, MASK, X_ZERO, WEIGHT_ZERO, PAST };
enum { WIDEN, PROJECT, SCALE, ATTEND };
static const struct attn_merged_inputs inputs = { MASK, PAST, ATTN_MERGED_NONE,
                                                  ATTN_MERGED_NONE };

static attn_status check_one(const attnrun_step *step, int in)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 0, 1));
    return step->in[in].rank == 1 ? op_need_dim(step, in, 0, dim_of(1), "one number")
                                  : ATTNRUN_OK;
}

/* One number, or one for each column of the weight. */
static attn_status check_columns(const attnrun_step *step, int in)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, in, 0, 1));
    if (step->in[in].rank != 1 || step->in[WEIGHT].rank != 2 ||
        dim_is(step->in[in].dims[0], 1))
        return ATTNRUN_OK;
    return op_need_dim(step, in, 0, step->in[WEIGHT].dims[1],
                       "1, or the columns of weight");
}

static int64_t pieces(int64_t n, int64_t piece) { return n / piece + (n % piece != 0); }

/* Floats of the input and, where it is not packed, the weight lie behind the projections.
 */
static attn_status plan(attnrun_step *step)
{
    struct q_attention_state *s = step->state;
    struct attn_merged *m = &s->merged;
    const struct attn_gemm *g = &m->gemm;
    int64_t x, weight, bytes;
    s->widen_weight = step->node->packed == NULL;
    s->by_column =
        step->in[WEIGHT_SCALE].rank == 1 && !dim_is(step->in[WEIGHT_SCALE].dims[0], 1);
    s->x_at = m->floats;
    if (!ck_mul(g->m, g->k, &x) || !ck_mul(g->k, g->n, &weight) ||
        !ck_add(s->x_at, x, &s->weight_at) ||
        !ck_add(s->weight_at, s->widen_weight ? weight : 0, &m->floats) ||
        !ck_mul(m->floats, (int64_t)sizeof(float), &bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "the projections are too large");
    s->x_tasks = op_chunks(x);
    s->rows_per_task = OP_CHUNK / (g->n + 1) + 1;
    TRY(attn_gemm_plan(step, &m->gemm));
    op_tasks(step, WIDEN,
             s->x_tasks + (s->widen_weight ? pieces(g->k, s->rows_per_task) : 0),
             OP_CHUNK / 4);
    op_tasks(step, PROJECT, g->n_tasks, g->task_cost);
    op_tasks(step, SCALE, s->by_column ? pieces(g->m, s->rows_per_task) : 0,
             OP_CHUNK / 4);
    attn_merged_tasks(step, ATTEND);
    return ATTNRUN_OK;
}

static attn_status q_attention_infer(attnrun_step *step)
{
    TRY(attn_merged_infer(step, &inputs));
    TRY(check_one(step, X_SCALE));
    TRY(check_one(step, X_ZERO));
    TRY(check_columns(step, WEIGHT_SCALE));
    TRY(check_columns(step, WEIGHT_ZERO));
    return step->concrete ? plan(step) : ATTNRUN_OK;
}

static attn_status q_attention_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    return attn_gemm_pack_integers(pack, WEIGHT, WEIGHT_ZERO, bytes, packed);
}

static const attnrun_tensor *zero_of(const attnrun_step *step, int in)
{
    return op_has_in(step, in) ? &step->x[in] : NULL;
}

/* The first tasks are pieces of the input, then come rows of the weight. */
static void widen(const attnrun_step *step, int64_t task, float *shared)
{
    const struct q_attention_state *s = step->state;
    const struct attn_gemm *g = &s->merged.gemm;
    if (task < s->x_tasks) {
        const int64_t from = task * OP_CHUNK, left = g->m * g->k - from;
        attn_gemm_widen(step->kernels, shared + s->x_at + from, &step->x[X],
                        zero_of(step, X_ZERO), 0, from,
                        left < OP_CHUNK ? left : OP_CHUNK);
        return;
    }
    const int64_t first = (task - s->x_tasks) * s->rows_per_task;
    for (int64_t row = first; row < g->k && row < first + s->rows_per_task; row++)
        attn_gemm_widen(step->kernels, shared + s->weight_at + row * g->n,
                        &step->x[WEIGHT], zero_of(step, WEIGHT_ZERO), row, 0, g->n);
}

static attn_status project(const attnrun_step *step, const attnrun_work *work)
{
    const struct q_attention_state *s = step->state;
    const float *x_scale = step->x[X_SCALE].data,
                *weight_scale = step->x[WEIGHT_SCALE].data;
    const struct attn_epilogue steps[2] = {
        { .kind = ATTN_EPI_SCALE,
          .alpha = *x_scale * (s->by_column ? 1.0f : *weight_scale) },
        { .kind = ATTN_EPI_ADD, .alpha = 1.0f, .data = step->x[BIAS].data, .col = 1 }
    };
    const struct attn_gemm_operands o = { .a = (float *)work->shared + s->x_at,
                                          .b = (float *)work->shared + s->weight_at,
                                          .packed =
                                              s->widen_weight ? NULL : step->node->packed,
                                          .c = work->shared,
                                          .epilogue = steps,
                                          .n_epilogue = s->by_column ? 1 : 2 };
    return attn_gemm_run(&s->merged.gemm, step->kernels, &o, work);
}

/* Where columns have scales of their own: rows of the product by them, plus the bias. */
static void scale(const attnrun_step *step, int64_t task, float *shared)
{
    const struct q_attention_state *s = step->state;
    const struct attn_gemm *g = &s->merged.gemm;
    const int64_t first = task * s->rows_per_task;
    for (int64_t row = first; row < g->m && row < first + s->rows_per_task; row++) {
        float *y = shared + row * g->n;
        step->kernels->mul_f32(y, y, 1, step->x[WEIGHT_SCALE].data, 1, (size_t)g->n);
        step->kernels->add_f32(y, y, 1, step->x[BIAS].data, 1, (size_t)g->n);
    }
}

static attn_status q_attention_run(const attnrun_step *step, const attnrun_work *work)
{
    if (work->phase == PROJECT)
        return project(step, work);
    if (work->phase >= ATTEND)
        return attn_merged_run(step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == WIDEN)
            widen(step, task, work->shared);
        else
            scale(step, task, work->shared);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_q_attention_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "QAttention",
    .since = 1,
    .inputs = "input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index:i32? "
              "input_zero_point:T1? weight_zero_point:T2? past:T3?",
    .outputs = "output:T3 present:T3?",
    .types = "T1=i8,u8 T2=i8,u8 T3=f32",
    .args_bytes = sizeof(struct attn_merged_args),
    .state_bytes = sizeof(struct q_attention_state),
    .attrs = q_attention_attrs,
    .infer = q_attention_infer,
    .pack = q_attention_pack,
    .run = q_attention_run,
    .cost = "O(n^2 d + n d^2), scratch O(tile)",
    .source = "ONNX Runtime contrib operators",
};

/* q_attention.c - com.microsoft QAttention: Attention whose input and weights are
 * quantized. The projections are (input - zero point) (weight - zero point) * input_scale
 * * weight_scale + bias; the rest is as in packed_qkv.c.
 *
 * input       u8 or i8 (batch, q, input hidden); its scale and zero point: one number
 * weight      u8 or i8 (input hidden, 3 * hidden); its scale and zero point: one number,
 *             or one for each column; packed where constant, a byte an element
 * bias        f32 (3 * hidden);  mask_index, past, present as in packed_qkv.c
 * output      f32 (batch, q, hidden)
 *
 * The projections are a product of integers (gemm_bytes.h), whose sums become floats
 * while they are in cache. Cost: 6 q input_hidden hidden integer operations a sample, and
 * the attention (sdpa.h). Source: ONNX Runtime contrib operators; compared with
 * onnxruntime 1.31.1. */
#include "../../matmul/gemm_bytes.h"
#include "../core/packed_qkv.h"

struct q_attention_state {
    struct attn_packed_qkv packed_qkv;
    struct attn_integer_gemm product;
};

static const attnrun_attr_def q_attention_attrs[] = {
    ATTN_PACKED_QKV_ATTRS(struct attn_packed_qkv_args),
    ATTR_END,
};

enum { X, WEIGHT, BIAS, X_SCALE, WEIGHT_SCALE, MASK, X_ZERO, WEIGHT_ZERO, PAST };
enum { PROJECT, ATTEND };
static const struct attn_packed_qkv_inputs inputs = { MASK, PAST, ATTN_PACKED_QKV_NONE,
                                                      ATTN_PACKED_QKV_NONE };

/* Checks that an input is one number, or one for each column of the weight. */
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

/* The scales of a block's columns lie behind the scratch of the product. */
static attn_status plan_q(attnrun_step *step)
{
    struct q_attention_state *s = step->state;
    struct attn_gemm *g = &s->packed_qkv.gemm;
    s->product.gemm = *g;
    s->product.rows = g->m;
    s->product.a_matrices = s->product.b_matrices = 1;
    TRY(attn_integer_cut(step, true, &s->product));
    g->scratch_bytes =
        s->product.gemm.scratch_bytes + s->product.columns * (int64_t)sizeof(float);
    op_tasks(step, PROJECT, s->product.gemm.n_tasks, s->product.gemm.task_cost);
    attn_packed_qkv_tasks(step, ATTEND);
    return ATTNRUN_OK;
}

static attn_status q_attention_infer(attnrun_step *step)
{
    TRY(attn_packed_qkv_infer(step, &inputs));
    TRY(attn_integer_check_one(step, X_SCALE));
    TRY(attn_integer_check_one(step, X_ZERO));
    TRY(check_columns(step, WEIGHT_SCALE));
    TRY(check_columns(step, WEIGHT_ZERO));
    return step->concrete ? plan_q(step) : ATTNRUN_OK;
}

ATTN_INTEGER_PACKS(q_attention, WEIGHT, false)

static void scale_block(const attnrun_step *step, const attnrun_work *work,
                        const struct attn_integer_block *block, void *scratch)
{
    const struct q_attention_state *s = step->state;
    const struct attn_integer_scales by = { *(const float *)step->x[X_SCALE].data,
                                            &step->x[WEIGHT_SCALE], step->x[BIAS].data };
    attn_integer_to_floats(&s->product, step->kernels, block, &by, work->shared, scratch);
}

static attn_status q_attention_project(const attnrun_step *step, const attnrun_work *work)
{
    const struct q_attention_state *s = step->state;
    struct attn_integer_operands o =
        attn_integer_operands_of(step, X, WEIGHT, X_ZERO, WEIGHT_ZERO);
    o.finish = scale_block;
    return attn_integer_run(&s->product, step->kernels, &o, work);
}

static attn_status q_attention_run(const attnrun_step *step, const attnrun_work *work)
{
    return work->phase == PROJECT ? q_attention_project(step, work)
                                  : attn_packed_qkv_run(step, work);
}

const attnrun_op_def op_q_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QAttention",
    .since = 1,
    .inputs = "input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index:i32? "
              "input_zero_point:T1? weight_zero_point:T2? past:T3?",
    .outputs = "output:T3 present:T3?",
    .types = "T1=i8,u8 T2=i8,u8 T3=f32",
    .args_bytes = sizeof(struct attn_packed_qkv_args),
    .state_bytes = sizeof(struct q_attention_state),
    .attrs = q_attention_attrs,
    .infer = q_attention_infer,
    .pack = q_attention_pack,
    .check_packed = q_attention_check_packed,
    .run = q_attention_run,
    .cost = "O(n^2 d + n d^2), scratch O(tile)",
    .source = "ONNX Runtime contrib operators",
};

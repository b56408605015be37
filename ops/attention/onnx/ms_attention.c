/* ms_attention.c - com.microsoft Attention: one product projects query, key and value,
 * then the streaming core attends.
 *
 * input       f32 (batch, q, input hidden);  weights (input hidden, hidden + hidden +
 *             v_hidden), packed where constant, perhaps stored in 16 bits; bias of that width
 * mask_index, past, attention_bias, present   as in packed_qkv.c
 * output      f32 (batch, q, v_hidden)
 *
 * Cost: 2 q input_hidden (2 hidden + v_hidden) FLOPs a sample, and the attention
 * (sdpa.h). Memory: the projections. Source: ONNX Runtime contrib operators. */
#include "../core/packed_qkv.h"

static const attnrun_attr_def ms_attention_attrs[] = {
    ATTN_PACKED_QKV_ATTRS(struct attn_packed_qkv_args),
    ATTR_INTS(struct attn_packed_qkv_args, qkv_hidden_sizes),
    ATTR_IGNORED("rotary_embedding_dim"),
    ATTR_END,
};

enum { X, WEIGHTS, BIAS, MASK, PAST, SCORE_BIAS, PAST_LEN };
enum { PROJECT, ATTEND };
static const struct attn_packed_qkv_inputs inputs = { MASK, PAST, SCORE_BIAS, PAST_LEN };

static attn_status ms_attention_infer(attnrun_step *step)
{
    struct attn_packed_qkv *m = step->state;
    TRY(attn_packed_qkv_infer(step, &inputs));
    if (!step->concrete)
        return ATTNRUN_OK;
    m->gemm.b_type = step->in[WEIGHTS].dtype;
    TRY(attn_gemm_plan(step, &m->gemm));
    op_tasks(step, PROJECT, m->gemm.n_tasks, m->gemm.task_cost);
    attn_packed_qkv_tasks(step, ATTEND);
    return ATTNRUN_OK;
}

ATTN_GEMM_PACKS(ms_attention, WEIGHTS, false)

static attn_status ms_attention_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_packed_qkv *m = step->state;
    const struct attn_epilogue bias = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .data = op_in_data(step, BIAS), .col = 1
    };
    const struct attn_gemm_operands o = { .a = step->x[X].data,
                                          .b = step->x[WEIGHTS].data,
                                          .packed = step->node->packed,
                                          .c = work->shared,
                                          .epilogue = &bias,
                                          .n_epilogue = bias.data != NULL };
    return work->phase == PROJECT ? attn_gemm_run(&m->gemm, step->kernels, &o, work)
                                  : attn_packed_qkv_run(step, work);
}

const attnrun_op_def op_ms_attention_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "Attention",
    .since = 1,
    .inputs = "input:T weights:T bias:T? mask_index:i32? past:T? attention_bias:T? "
              "past_sequence_length:i32?",
    .outputs = "output:T present:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct attn_packed_qkv_args),
    .state_bytes = sizeof(struct attn_packed_qkv),
    .attrs = ms_attention_attrs,
    .infer = ms_attention_infer,
    .storage_in = 1u << WEIGHTS,
    .pack = ms_attention_pack,
    .check_packed = ms_attention_check_packed,
    .run = ms_attention_run,
    .cost = "O(n^2 d + n d^2), scratch O(tile)",
    .source = "ONNX Runtime contrib operators",
};

/* integer_to_float.c - com.microsoft MatMulIntegerToFloat: Y = (A - a_zero)(B - b_zero) *
 * a_scale * b_scale + bias. DynamicQuantizeMatMul is the same, but its A is f32 and is
 * first quantized by its own range.
 *
 * A, B          i8 or u8 (A f32), shapes as MatMul's; products are summed in 32 bits
 * a_scale, a_zero   one number
 * b_scale, b_zero   one, or one per column of B (as vectors, or with B's leading dims)
 * bias          f32 (columns of B)
 * Y             f32: sum * (a_scale * b_scale) + bias
 *
 * Shared memory: A as bytes. A constant B is packed, a byte an element. Cost: 2 m n k
 * integer operations. Source: ONNX Runtime contrib operators; compared with onnxruntime
 * 1.31.1. */
#include "../quant/dynamic.h"
#include "gemm_bytes.h"
#include "shapes.h"

/* Indices of the inputs of an operator; NOWHERE for one that it lacks. */
enum { A, B, NOWHERE = 1 << 20 };
struct places {
    int a_scale, b_scale, a_zero, b_zero, bias;
};
static const struct places integer_places = { 2, 3, 4, 5, 6 };
static const struct places dynamic_places = { NOWHERE, 2, NOWHERE, 3, 4 };

struct to_float_state {
    struct attn_integer_gemm product;
    int64_t bytes_at; /* of A, in the shared memory */
};

static attn_status plan_integer_to_float(attnrun_step *step, const struct places *at,
                                         int phase)
{
    struct to_float_state *state = step->state;
    struct attn_integer_gemm *g = &state->product;
    TRY(attn_integer_plan(step, A, B, true, g));
    for (int i = 0; i < 2; i++)
        TRY(attn_integer_check_vector(step, i == 0 ? at->b_scale : at->b_zero, g->gemm.n,
                                      g->b_matrices, "column of B"));
    if (op_has_in(step, at->bias)) {
        TRY(op_need_rank(step, at->bias, 1));
        TRY(op_need_dim(step, at->bias, 0, dim_of(g->gemm.n), "columns of B"));
    }
    op_tasks(step, phase, g->gemm.n_tasks, g->gemm.task_cost);
    step->scratch_bytes = g->gemm.scratch_bytes + g->columns * (int64_t)sizeof(float);
    return ATTNRUN_OK;
}

static attn_status infer_output(attnrun_step *step, const struct places *at)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, A, B, 0, &rank, dims));
    TRY(op_out(step, 0, ATTNRUN_F32, rank, rank < 0 ? NULL : dims));
    TRY(attn_integer_check_one(step, at->a_scale));
    return attn_integer_check_one(step, at->a_zero);
}

ATTN_INTEGER_PACKS(to_float, B, false)

static void scale_block(const attnrun_step *step, const struct attn_integer_block *block,
                        const struct places *at, float a_scale, float *scales)
{
    const struct to_float_state *state = step->state;
    const struct attn_integer_scales by = { a_scale, &step->x[at->b_scale],
                                            op_in_data(step, at->bias) };
    attn_integer_to_floats(&state->product, step->kernels, block, &by, step->y[0].data,
                           scales);
}

/* ---- MatMulIntegerToFloat ---- */

static attn_status integer_infer(attnrun_step *step)
{
    TRY(infer_output(step, &integer_places));
    return step->concrete ? plan_integer_to_float(step, &integer_places, 0) : ATTNRUN_OK;
}

static void integer_finish(const attnrun_step *step, const attnrun_work *work,
                           const struct attn_integer_block *block, void *scratch)
{
    (void)work;
    scale_block(step, block, &integer_places,
                *(const float *)step->x[integer_places.a_scale].data, scratch);
}

static attn_status integer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct to_float_state *state = step->state;
    const struct places *at = &integer_places;
    struct attn_integer_operands o =
        attn_integer_operands_of(step, A, B, at->a_zero, at->b_zero);
    o.finish = integer_finish;
    return attn_integer_run(&state->product, step->kernels, &o, work);
}

const attnrun_op_def op_matmul_integer_to_float_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "MatMulIntegerToFloat",
    .since = 1,
    .inputs =
        "A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point:T1? b_zero_point:T2? bias:T3?",
    .outputs = "Y:T3",
    .types = "T1=i8,u8 T2=i8,u8 T3=f32",
    .state_bytes = sizeof(struct to_float_state),
    .infer = integer_infer,
    .pack = to_float_pack,
    .check_packed = to_float_check_packed,
    .run = integer_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators",
};

/* ---- DynamicQuantizeMatMul ---- */

enum { RANGES, WHOLE, QUANTIZE, MULTIPLY };

static attn_status dynamic_infer(attnrun_step *step)
{
    struct to_float_state *state = step->state;
    TRY(infer_output(step, &dynamic_places));
    if (!step->concrete)
        return ATTNRUN_OK;
    const int64_t count = op_count(&step->in[A], 0, step->in[A].rank);
    if (!attn_dynamic_bytes(count, &state->bytes_at) ||
        !ck_add(state->bytes_at, count, &step->shared_bytes))
        return op_fail(
            step, ATTNRUN_E_MEMORY,
            "the quantized form of %lld elements takes more than 2^63 - 1 bytes",
            (long long)count);
    attn_dynamic_tasks(step, RANGES, count);
    return plan_integer_to_float(step, &dynamic_places, MULTIPLY);
}

static void dynamic_finish(const attnrun_step *step, const attnrun_work *work,
                           const struct attn_integer_block *block, void *scratch)
{
    scale_block(step, block, &dynamic_places, *(const float *)work->shared, scratch);
}

static attn_status dynamic_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct to_float_state *state = step->state;
    const float *x = step->x[A].data;
    const int64_t count = tensor_count(&step->x[A]);
    float *range = work->shared;
    uint8_t *bytes = (uint8_t *)work->shared + state->bytes_at;
    if (work->phase == RANGES)
        attn_dynamic_ranges(step, work, x, count, range);
    else if (work->phase == WHOLE)
        attn_dynamic_whole(range, count);
    else if (work->phase == QUANTIZE)
        attn_dynamic_quantize(step, work, bytes, x, count, range);
    else {
        uint8_t zero_byte = (uint8_t)range[1];
        const attnrun_tensor zero = { .dtype = ATTNRUN_U8, .data = &zero_byte };
        struct attn_integer_operands o =
            attn_integer_operands_of(step, A, B, NOWHERE, dynamic_places.b_zero);
        o.a = bytes;
        o.a_zero = &zero;
        o.a_signed = false;
        o.finish = dynamic_finish;
        return attn_integer_run(&state->product, step->kernels, &o, work);
    }
    return OP_CANCELLED(work) ? ATTNRUN_E_CANCELLED : ATTNRUN_OK;
}

const attnrun_op_def op_dynamic_quantize_matmul_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "DynamicQuantizeMatMul",
    .since = 1,
    .inputs = "A:T1 B:T2 b_scale:T1 b_zero_point:T2? bias:T1?",
    .outputs = "Y:T1",
    .types = "T1=f32 T2=i8,u8",
    .state_bytes = sizeof(struct to_float_state),
    .infer = dynamic_infer,
    .pack = to_float_pack,
    .check_packed = to_float_check_packed,
    .run = dynamic_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators",
};

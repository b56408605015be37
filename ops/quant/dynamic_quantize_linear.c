/* dynamic_quantize_linear.c - DynamicQuantizeLinear: x to u8 by its own range.
 *
 * x f32 of any shape; y u8; scale = (max(x, 0) - min(x, 0)) / 255;
 * zero_point = saturate(round(-min / scale)); y = saturate(round(x / scale) + zero_point)
 * Phase 0 finds the range of each chunk, phase 1 the whole range, phase 2 quantizes.
 * Source: ONNX DynamicQuantizeLinear-11. */
#include <math.h>

#include "../elementwise/elementwise.h"

#include "../../runtime/tensor.h"

static attn_status dynamic_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_out(step, 0, ATTNRUN_U8, x->rank, x->dims));
    TRY(op_out(step, 1, ATTNRUN_F32, 0, NULL));
    TRY(op_out(step, 2, ATTNRUN_U8, 0, NULL));
    if (!step->concrete || x->rank < 0)
        return ATTNRUN_OK;
    int64_t chunks = op_chunks(op_count(x, 0, x->rank));
    if (!ck_mul(chunks + 1, 2 * (int64_t)sizeof(float), &step->shared_bytes))
        return op_fail(step, ATTNRUN_E_MEMORY, "too many elements");
    op_tasks(step, 0, chunks, OP_CHUNK / 4);
    op_tasks(step, 1, 1, chunks);
    op_tasks(step, 2, chunks, OP_CHUNK);
    return ATTNRUN_OK;
}

/* shared: {scale, zero point}, then {min, max} of each chunk. */
static void chunk_ranges(const attnrun_step *step, const attnrun_work *work)
{
    const float *x = step->x[0].data;
    int64_t count = tensor_count(&step->x[0]);
    float *ranges = (float *)work->shared + 2;
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t left = count - t * OP_CHUNK;
        size_t n = (size_t)(left < OP_CHUNK ? left : OP_CHUNK);
        ranges[2 * t] = step->kernels->reduce_min_f32(x + t * OP_CHUNK, n);
        ranges[2 * t + 1] = step->kernels->reduce_max_f32(x + t * OP_CHUNK, n);
    }
}

static void whole_range(const attnrun_step *step, const attnrun_work *work)
{
    float *shared = work->shared, low = 0, high = 0;
    int64_t chunks = op_chunks(tensor_count(&step->x[0]));
    for (int64_t t = 0; t < chunks; t++) {
        low = fminf(low, shared[2 + 2 * t]);
        high = fmaxf(high, shared[3 + 2 * t]);
    }
    float scale = (high - low) / 255.0f;
    float zero = scale > 0 ? nearbyintf(0.0f - low / scale) : 0.0f;
    zero = fmaxf(0.0f, fminf(255.0f, zero));
    shared[0] = scale;
    shared[1] = zero;
    if (op_has_out(step, 1) && step->y[1].data != NULL)
        *(float *)step->y[1].data = scale;
    if (op_has_out(step, 2) && step->y[2].data != NULL)
        *(uint8_t *)step->y[2].data = (uint8_t)zero;
}

static void quantize(const attnrun_step *step, const attnrun_work *work)
{
    const float *x = step->x[0].data, *shared = work->shared;
    uint8_t *y = step->y[0].data;
    int64_t begin, end;
    elementwise_range(work, tensor_count(&step->x[0]), &begin, &end);
    for (int64_t k = begin; y != NULL && k < end; k++) {
        float v = shared[0] > 0 ? nearbyintf(x[k] / shared[0]) + shared[1] : 0.0f;
        y[k] = (uint8_t)fmaxf(0.0f, fminf(255.0f, v));
    }
}

static attn_status dynamic_run(const attnrun_step *step, const attnrun_work *work)
{
    if (work->phase == 0)
        chunk_ranges(step, work);
    else if (work->phase == 1)
        whole_range(step, work);
    else
        quantize(step, work);
    return OP_CANCELLED(work) ? ATTNRUN_E_CANCELLED : ATTNRUN_OK;
}

const attnrun_op_def op_dynamic_quantize_linear_11 = {
    OP_ROW,
    .name = "DynamicQuantizeLinear",
    .since = 11,
    .inputs = "x:f32",
    .outputs = "y:u8 y_scale:f32 y_zero_point:u8",
    .infer = dynamic_infer,
    .run = dynamic_run,
};

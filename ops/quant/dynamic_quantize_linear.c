/* dynamic_quantize_linear.c - DynamicQuantizeLinear: x to u8 by its own range.
 *
 * x f32 of any shape; y u8; scale = (max(x, 0) - min(x, 0)) / 255, or 1 where that is 0;
 * zero_point = saturate(round(-min / scale)); y = saturate(round(x / scale) + zero_point)
 *
 * A NaN in x makes the scale NaN, and so all that is computed with it; y and zero_point
 * are then 0, and also where the scale is infinite. Phase 0 finds the range of each
 * chunk, phase 1 the whole range, and phase 2 quantizes. Cost: two reads of x. Source:
 * ONNX DynamicQuantizeLinear-11. */
#include "../../runtime/tensor.h"
#include "../elementwise/elementwise.h"
#include "dynamic.h"

bool attn_dynamic_bytes(int64_t count, int64_t *bytes)
{
    return ck_mul(op_chunks(count) + 1, 2 * (int64_t)sizeof(float), bytes);
}

void attn_dynamic_tasks(attnrun_step *step, int first, int64_t count)
{
    const int64_t chunks = op_chunks(count);
    op_unit_tasks(step, first, count, OP_CHUNK, 0.125);
    op_tasks(step, first + 1, 1, chunks);
    op_unit_tasks(step, first + 2, count, OP_CHUNK, 0.25);
}

void attn_dynamic_ranges(const attnrun_step *step, const attnrun_work *work,
                         const float *x, int64_t count, float *shared)
{
    float *ranges = shared + 2;
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t left = count - t * OP_CHUNK;
        size_t n = (size_t)(left < OP_CHUNK ? left : OP_CHUNK);
        if (OP_CANCELLED_AFTER(work, (int64_t)n * 4))
            return;
        ranges[2 * t] = step->kernels->reduce_min_f32(x + t * OP_CHUNK, n);
        ranges[2 * t + 1] = step->kernels->reduce_max_f32(x + t * OP_CHUNK, n);
    }
}

void attn_dynamic_whole(float *shared, int64_t count)
{
    float low = 0, high = 0;
    for (int64_t t = 0; t < op_chunks(count); t++) { /* a NaN stays */
        low = low <= shared[2 + 2 * t] ? low : isnan(low) ? low : shared[2 + 2 * t];
        high = high >= shared[3 + 2 * t] ? high : isnan(high) ? high : shared[3 + 2 * t];
    }
    attn_dynamic_pair(low, high, shared);
}

void attn_dynamic_quantize(const attnrun_step *step, const attnrun_work *work, uint8_t *y,
                           const float *x, int64_t count, const float *shared)
{
    int64_t begin, end;
    elementwise_range(work, count, &begin, &end);
    if (shared[0] > 0)
        step->kernels->quantize_u8_f32(y + begin, x + begin, shared[0], shared[1],
                                       (size_t)(end - begin));
    else
        memset(y + begin, 0, (size_t)(end - begin));
}

static attn_status dynamic_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_out(step, 0, ATTNRUN_U8, x->rank, x->dims));
    TRY(op_out(step, 1, ATTNRUN_F32, 0, NULL));
    TRY(op_out(step, 2, ATTNRUN_U8, 0, NULL));
    if (!step->concrete || x->rank < 0)
        return ATTNRUN_OK;
    const int64_t count = op_count(x, 0, x->rank);
    if (!attn_dynamic_bytes(count, &step->shared_bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "the ranges of %lld elements take more than 2^63 - 1 bytes",
                       (long long)count);
    attn_dynamic_tasks(step, 0, count);
    return ATTNRUN_OK;
}

static void whole_range(const attnrun_step *step, float *shared, int64_t count)
{
    attn_dynamic_whole(shared, count);
    if (op_has_out(step, 1) && step->y[1].data != NULL)
        *(float *)step->y[1].data = shared[0];
    if (op_has_out(step, 2) && step->y[2].data != NULL)
        *(uint8_t *)step->y[2].data = (uint8_t)shared[1];
}

static attn_status dynamic_run(const attnrun_step *step, const attnrun_work *work)
{
    const float *x = step->x[0].data;
    const int64_t count = tensor_count(&step->x[0]);
    if (work->phase == 0)
        attn_dynamic_ranges(step, work, x, count, work->shared);
    else if (work->phase == 1)
        whole_range(step, work->shared, count);
    else if (step->y[0].data != NULL)
        attn_dynamic_quantize(step, work, step->y[0].data, x, count, work->shared);
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

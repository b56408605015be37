/* clip.c - Clip: y = min(max(x, low), high); if low > high, every element becomes high.
 *
 * x, y      any real type and shape; NaN stays NaN
 * min, max  scalars of x's dtype; attributes before opset 11; unbounded where absent
 *
 * Cost: one pass. Source: ONNX Clip-1, 6, 11 to 13. */
#include <float.h>
#include <math.h>

#include "elementwise.h"

struct clip_args {
    float min, max;
};
static const attnrun_attr_def clip_1_attrs[] = {
    ATTR_FLOAT(struct clip_args, min, -HUGE_VALF),
    ATTR_FLOAT(struct clip_args, max, HUGE_VALF), ATTR_IGNORED("consumed_inputs"),
    ATTR_END
};
static const attnrun_attr_def clip_6_attrs[] = {
    ATTR_FLOAT(struct clip_args, min, -FLT_MAX),
    ATTR_FLOAT(struct clip_args, max, FLT_MAX), ATTR_END
};

/* low and high NULL where absent. */
typedef void clip_loop(void *y, const void *x, int64_t n, const void *low,
                       const void *high);
#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_TEMPLATE "elementwise/clip_template.h"
#include "../for_each_dtype.h"
static clip_loop *const clip_loops[ATTNRUN_DTYPE_COUNT] = { LOOPS_NUM(clip_loop) };

static attn_status clip_infer(attnrun_step *step)
{
    TRY(op_need_loop(step, 0, clip_loops[step->in[0].dtype] != NULL));
    for (int in = 1; in < step->n_in; in++)
        if (op_has_in(step, in) && op_rank_known(step, in) && step->concrete &&
            op_count(&step->in[in], 0, step->in[in].rank) != 1)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one element");
    TRY(op_out_like(step, 0, 0));
    op_elementwise_inplace(step, 0);
    elementwise_tasks(step, 150);
    return ATTNRUN_OK;
}

static void clip_f32_lines(const attnrun_step *step, const float *x, float *y, int64_t n,
                           const void *low, const void *high)
{
    float bounds[2] = { low ? *(const float *)low : -HUGE_VALF,
                        high ? *(const float *)high : HUGE_VALF };
    step->kernels->clip_f32(y, x, (size_t)n, bounds);
}

static attn_status clip_range(const attnrun_step *step, const attnrun_work *work,
                              const void *low, const void *high)
{
    const attnrun_tensor *x = &step->x[0];
    int64_t size = dtype_bytes(x->dtype), begin, end;
    elementwise_range(work, tensor_count(x), &begin, &end);
    for (int64_t k = begin; k < end; k += OP_CHUNK) {
        int64_t n = end - k < OP_CHUNK ? end - k : OP_CHUNK;
        const void *from = (const char *)x->data + k * size;
        void *to = (char *)step->y[0].data + k * size;
        if (x->dtype == ATTNRUN_F32)
            clip_f32_lines(step, from, to, n, low, high);
        else
            clip_loops[x->dtype](to, from, n, low, high);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status clip_attrs_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct clip_args *args = step->args;
    double low = (double)args->min, high = (double)args->max;
    if (step->x[0].dtype == ATTNRUN_F32)
        return clip_range(step, work, &args->min, &args->max);
    return clip_range(step, work, &low, &high);
}

static attn_status clip_run(const attnrun_step *step, const attnrun_work *work)
{
    return clip_range(step, work, op_in_data(step, 1), op_in_data(step, 2));
}

#define CLIP_OLD(row, first, attributes)                                                 \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = "Clip",                                                                  \
        .since = (first),                                                                \
        .inputs = "input:T",                                                             \
        .outputs = "output:T",                                                           \
        .types = "T=" TYPES_FLT,                                                         \
        .args_bytes = sizeof(struct clip_args),                                          \
        .attrs = (attributes),                                                           \
        .infer = clip_infer,                                                             \
        .run = clip_attrs_run,                                                           \
    };
CLIP_OLD(op_clip_1, 1, clip_1_attrs)
CLIP_OLD(op_clip_6, 6, clip_6_attrs)
const attnrun_op_def op_clip_11 = {
    OP_ROW,
    .name = "Clip",
    .since = 11,
    .inputs = "input:T min:T? max:T?",
    .outputs = "output:T",
    .types = "T=" TYPES_NUM,
    .infer = clip_infer,
    .run = clip_run,
};

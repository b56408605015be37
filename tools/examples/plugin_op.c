/* plugin_op.c - an operator of your own, in a library that `attnrun --plugin` loads.
 *
 * example.Swiglu-1: y = alpha * silu(a) * b, elementwise
 *   a, b, y   f32, one shape
 *   alpha     1 by default
 *
 *     cc -shared -fPIC plugin_op.c $(pkg-config --cflags attnrun) -lm -o plugin_op.so
 *     attnrun run --plugin ./plugin_op.so model.onnx */
#include <attnrun.h>
#include <math.h>
#include <stddef.h>

enum { TASK_ELEMENTS = 16384 }; /* the split depends on the shape only */

struct swiglu_args {
    float alpha;
};

static const attnrun_attr_def swiglu_attrs[] = { { .name = "alpha",
                                                   .kind = ATTNRUN_ATTR_FLOAT,
                                                   .offset = offsetof(struct swiglu_args,
                                                                      alpha),
                                                   .float_default = 1 },
                                                 { .kind = ATTNRUN_ATTR_END } };

/* Called with symbolic dims when the model is loaded, and with constants for each new
 * shape. */
static attnrun_status swiglu_infer(attnrun_step *step)
{
    const attnrun_type *a = &step->in[0], *b = &step->in[1];
    int64_t n = 1;
    step->out[0] = *a;
    if (!step->concrete)
        return ATTNRUN_OK;
    if (a->rank != b->rank)
        return attnrun_step_fail(step, ATTNRUN_E_SHAPE, "a and b differ in rank");
    for (int32_t d = 0; d < a->rank; d++) {
        if (a->dims[d].value != b->dims[d].value)
            return attnrun_step_fail(step, ATTNRUN_E_SHAPE, "a and b differ in shape");
        n *= a->dims[d].value; /* the runtime has checked that this fits */
    }
    step->phases[0].n_tasks = (n + TASK_ELEMENTS - 1) / TASK_ELEMENTS;
    step->phases[0].task_cost = TASK_ELEMENTS * 8;
    attnrun_step_inplace(step, 0, 0);
    return ATTNRUN_OK;
}

static attnrun_status swiglu_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct swiglu_args *args = step->args;
    const float *a = step->x[0].data, *b = step->x[1].data;
    float *y = step->y[0].data;
    int64_t n = attnrun_tensor_count(&step->x[0]);
    int64_t end = work->end * TASK_ELEMENTS < n ? work->end * TASK_ELEMENTS : n;
    for (int64_t k = work->begin * TASK_ELEMENTS; y != NULL && k < end; k++)
        y[k] = args->alpha * a[k] / (1 + expf(-a[k])) * b[k];
    return ATTNRUN_OK;
}

static const attnrun_op_def swiglu = {
    .struct_size = sizeof swiglu,
    .domain = "example",
    .name = "Swiglu",
    .since = 1,
    .args_bytes = sizeof(struct swiglu_args),
    .inputs = "a:T b:T",
    .outputs = "y:T",
    .types = "T=f32",
    .attrs = swiglu_attrs,
    .infer = swiglu_infer,
    .run = swiglu_run,
};

ATTNRUN_API attnrun_status attnrun_plugin(attnrun_runtime *runtime);

attnrun_status attnrun_plugin(attnrun_runtime *runtime)
{
    return attnrun_register_op(runtime, &swiglu);
}

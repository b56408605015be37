/* planes.c - statistics and affine maps of planes: f32 by kernels, f64 by plain loops.
 * planes.h has the interface. */
#include "planes.h"

attn_status attn_planes_of(const attnrun_step *step, const attnrun_type *type,
                           struct planes *planes)
{
    *planes = (struct planes){ .channels = type->rank > 1 ? type->dims[1].value : 1 };
    int64_t all = op_count(type, 0, type->rank);
    if (all < 0)
        return op_fail_size(step, "the number of elements", "2^63 - 1");
    if (all > 0) {
        planes->batch = type->rank > 0 ? type->dims[0].value : 1;
        planes->positions = op_count(type, 2, type->rank);
    }
    return ATTNRUN_OK;
}

attn_status attn_planes_check_vectors(const attnrun_step *step, int first, int last)
{
    const attnrun_type *x = &step->in[0];
    for (int in = first; in <= last; in++) {
        TRY(op_need_rank(step, in, 1));
        if (step->in[in].dtype != x->dtype)
            return op_fail_input(step, in, ATTNRUN_E_UNSUPPORTED,
                                 "expected the type of input 0");
        if (x->rank >= 0)
            TRY(op_need_dim(step, in, 0, x->rank > 1 ? x->dims[1] : dim_of(1),
                            "the channels"));
    }
    return ATTNRUN_OK;
}

void attn_planes_stats(const attnrun_step *step, const attnrun_tensor *x, int64_t from,
                       int64_t n, double *stats)
{
    if (x->dtype == ATTNRUN_F32) {
        float narrow[2];
        step->kernels->mean_variance_f32((const float *)x->data + from, (size_t)n,
                                         narrow);
        stats[0] = (double)narrow[0];
        stats[1] = (double)narrow[1];
        return;
    }
    const double *v = (const double *)x->data + from;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += v[i];
    stats[0] = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (v[i] - stats[0]) * (v[i] - stats[0]);
    stats[1] = squares / (double)n;
}

void attn_planes_affine(const attnrun_step *step, const attnrun_tensor *y,
                        const attnrun_tensor *x, int64_t from, int64_t n, double shift,
                        double scale, double bias)
{
    if (x->dtype == ATTNRUN_F32) {
        step->kernels->scale_shift_f32((float *)y->data + from,
                                       (const float *)x->data + from, (size_t)n,
                                       (float)shift, (float)scale, (float)bias);
        return;
    }
    const double *v = (const double *)x->data + from;
    double *to = (double *)y->data + from;
    for (int64_t i = 0; i < n; i++)
        to[i] = (v[i] - shift) * scale + bias;
}

/* conv_finish.c - the steps after the sums of a convolution: bias, residual, relu or
 * clip, in one pass over a block of the output. In and out: struct attn_conv_finish. */
#include "isa.h"

static inline __attribute__((always_inline)) v_f32 finish(v_f32 x, int step, v_f32 a,
                                                          v_f32 b)
{
    if (step == ATTN_EPI_RELU)
        return v_max(v_set(0.0f), x);
    if (step == ATTN_EPI_CLIP)
        return v_min(b, v_max(a, x));
    return x;
}

static inline __attribute__((always_inline)) void rows(const struct attn_conv_finish *f,
                                                       int step)
{
    v_f32 a = v_set(f->alpha), b = v_set(f->beta);
    for (int64_t r = 0; r < f->m; r++) {
        float *y = f->y + r * f->row;
        const float *z = f->z != NULL ? f->z + r * f->row : NULL;
        v_f32 bias = v_set(f->bias != NULL ? f->bias[r] : 0.0f);
        int64_t i = 0;
        for (; i + VF <= f->n; i += VF) {
            v_f32 x = v_load(y + i) + bias;
            if (z != NULL)
                x += v_load(z + i);
            v_store(y + i, finish(x, step, a, b));
        }
        if (i < f->n) {
            size_t left = (size_t)(f->n - i);
            v_f32 x = v_load_tail(y + i, left, 0.0f) + bias;
            if (z != NULL)
                x += v_load_tail(z + i, left, 0.0f);
            v_store_tail(y + i, finish(x, step, a, b), left);
        }
    }
}

void K(conv_finish_f32)(const struct attn_conv_finish *f)
{
    if (f->step == ATTN_EPI_RELU)
        rows(f, ATTN_EPI_RELU);
    else if (f->step == ATTN_EPI_CLIP)
        rows(f, ATTN_EPI_CLIP);
    else
        rows(f, -1);
}

/* rotary.h - rotates one head of one token. In: `dim` floats x, and `half` cosines and
 * sines. Out: `dim` floats y; y may not be x. Cost: 3 FLOPs a rotated element.
 * onnx/rotary_embedding.c has the formula and the source. */
#ifndef ATTN_ROTARY_H
#define ATTN_ROTARY_H

#include "../../../runtime/op.h"

/* The caches of cosines and sines, inputs `cosines` and cosines + 1: (positions, half), with half
 * at most dim / 2. */
static inline attn_status attn_rotary_caches(const attnrun_step *step, int cosines,
                                             int64_t dim, int64_t *half,
                                             int64_t *positions)
{
    const attnrun_dim *dims = step->in[cosines].dims;
    for (int in = cosines; in <= cosines + 1; in++) {
        TRY(op_need_rank(step, in, 2));
        TRY(op_need_dim(step, in, 0, dims[0], "cos_cache's positions"));
        TRY(op_need_dim(step, in, 1, dims[1], "cos_cache's features"));
    }
    *positions = dims[0].value;
    *half = dims[1].value;
    if (*half > dim / 2)
        return op_fail_input(step, cosines, ATTNRUN_E_SHAPE, "expected at most %s",
                             attn_plural(dim / 2, "feature"));
    return ATTNRUN_OK;
}

/* y must not be x. cosine and sine have `half` elements. Features from 2 * half on are
 * copied. */
static inline void attn_rotary_rotate(float *y, const float *x, const float *cosine,
                                      const float *sine, int64_t half, int64_t dim,
                                      bool interleaved)
{
    const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i * step], b = x[i * step + other];
        y[i * step] = a * cosine[i] - b * sine[i];
        y[i * step + other] = a * sine[i] + b * cosine[i];
    }
    for (int64_t i = 2 * half; i < dim; i++)
        y[i] = x[i];
}

#endif

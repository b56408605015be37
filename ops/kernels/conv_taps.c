/* conv_taps.c - depthwise convolution of one row.
 *
 *   y[i] = bias + sum over taps t of w[t] x[offsets[t] + i],  i < n
 *
 * Every tap reads the (padded, de-interleaved) source at an offset of its own, so this one loop
 * serves any kernel, stride and dilation. x may be read one vector past n. Cost: 2 taps FLOPs an
 * element. */
#include "isa.h"

static inline __attribute__((always_inline)) void taps(v_f32 *sum, int vecs,
                                                       const float *x,
                                                       const int64_t *offsets,
                                                       const float *w, int64_t n_taps)
{
    for (int64_t t = 0; t < n_taps; t++) {
        const float *at = x + offsets[t];
        v_f32 weight = v_set(w[t]);
        for (int v = 0; v < vecs; v++)
            sum[v] += weight * v_load(at + v * VF);
    }
}

void K(conv_taps_f32)(float *y, int64_t n, const float *x, const int64_t *offsets,
                      const float *w, int64_t n_taps, float bias)
{
    int64_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF) {
        v_f32 sum[4] = { v_set(bias), v_set(bias), v_set(bias), v_set(bias) };
        taps(sum, 4, x + i, offsets, w, n_taps);
        for (int v = 0; v < 4; v++)
            v_store(y + i + v * VF, sum[v]);
    }
    for (; i < n; i += VF) {
        v_f32 sum = v_set(bias);
        taps(&sum, 1, x + i, offsets, w, n_taps);
        if (n - i >= VF)
            v_store(y + i, sum);
        else
            v_store_tail(y + i, sum, (size_t)(n - i));
    }
}

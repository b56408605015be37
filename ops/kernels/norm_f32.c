/* norm_f32.c - layer and RMS normalization of a row, mean and variance, scale and shift.
 *
 * The variance is that of the differences from the mean (two passes over a row in cache),
 * not E[x^2] - E[x]^2, which cancels. Four sums run side by side. Cost: three passes over
 * a row in cache. */
#include "vmath.h"

/* Floats whose sums are taken together; those of a longer row are added in double, so that a row
 * of millions keeps its digits. */
enum { BLOCK = 4096 };

static ALWAYS_INLINE float sum_up(const v_f32 s[4])
{
    return v_reduce_add((s[0] + s[1]) + (s[2] + s[3]));
}

/* Sum of (x - shift), or of its squares. */
static ALWAYS_INLINE float row_sum(const float *x, size_t n, float shift,
                                   const bool square)
{
    v_f32 s[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
    double before = 0;
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i + 4 * VF <= end; i += 4 * VF) {
            if (i > 0 && i % BLOCK == 0) {
                before += (double)sum_up(s);
                s[0] = s[1] = s[2] = s[3] = v_set(0.0f);
            }
            UNROLL
            for (int l = 0; l < 4; l++) {
                v_f32 d = v_load(x + i + l * VF) - shift;
                s[l] += square ? d * d : d;
            }
        }
    for (; i + VF <= n && n - i < 4 * VF; i += VF) {
        v_f32 d = v_load(x + i) - shift;
        s[0] += square ? d * d : d;
    }
    if (i < n && n - i < VF) {
        v_f32 d = v_load_tail(x + i, n - i, shift) - shift;
        v_f32 term = square ? d * d : d; /* inf - inf in the padding is NaN */
        s[1] += v_load_tail((const float *)&term, n - i, 0.0f);
    }
    return (float)(before + (double)sum_up(s));
}

static __attribute__((noinline)) float sum_of(const float *x, size_t n, float shift)
{
    return row_sum(x, n, shift, false);
}

static __attribute__((noinline)) float squares_of(const float *x, size_t n, float shift)
{
    return row_sum(x, n, shift, true);
}

/* A mean that is infinite or overflowed gives NaN, as the formula does. The second pass
 * mends the rounding of the first. */
static float row_mean(const float *x, size_t n)
{
    float mean = sum_of(x, n, 0.0f) / (float)n;
    return mean + sum_of(x, n, mean) / (float)n;
}

void K(mean_variance_f32)(const float *x, size_t n, float *stats)
{
    stats[0] = row_mean(x, n);
    stats[1] = squares_of(x, n, stats[0]) / (float)n;
}

void K(normalize_f32)(float *y, const float *x, const float *scale, const float *bias,
                      size_t n, float shift, float factor)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i + VF <= end; i += VF) {
            v_f32 v = (v_load(x + i) - shift) * factor;
            if (scale != NULL)
                v *= v_load(scale + i);
            if (bias != NULL)
                v += v_load(bias + i);
            v_store(y + i, v);
        }
    for (; i < n && n - i < VF; i++) {
        float v = (x[i] - shift) * factor;
        v *= scale != NULL ? scale[i] : 1.0f;
        y[i] = v + (bias != NULL ? bias[i] : 0.0f);
    }
}

void K(layer_norm_f32)(float *y, const float *x, const float *scale, const float *bias,
                       size_t n, float epsilon, float *stats)
{
    K(mean_variance_f32)(x, n, stats);
    stats[1] = 1.0f / sqrtf(stats[1] + epsilon);
    K(normalize_f32)(y, x, scale, bias, n, stats[0], stats[1]);
}

void K(rms_norm_f32)(float *y, const float *x, const float *scale, size_t n,
                     float epsilon, float *inverse)
{
    *inverse = 1.0f / sqrtf(squares_of(x, n, 0.0f) / (float)n + epsilon);
    K(normalize_f32)(y, x, scale, NULL, n, 0.0f, *inverse);
}

void K(scale_shift_f32)(float *y, const float *x, size_t n, float shift, float scale,
                        float bias)
{
    size_t i = 0;
    for (size_t end = 0; attn_segment(&end, n);)
        for (; i + VF <= end; i += VF)
            v_store(y + i, (v_load(x + i) - shift) * scale + bias);
    for (; i < n && n - i < VF; i++)
        y[i] = (x[i] - shift) * scale + bias;
}

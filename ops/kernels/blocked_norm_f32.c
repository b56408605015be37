/* blocked_norm_f32.c - layer normalization of pixels of maps in blocks of 16 channels:
 * struct attn_blocked_norm.
 *
 * Lanes are channels, so each pixel has one sum of vectors. The variance is that of the
 * differences from the mean, and the mean of the differences corrects the rounding of the
 * first sum. Lanes beyond the channels are left out of the sums. Cost: three passes over
 * a pixel in cache. */
#include "isa.h"

enum { TOGETHER = 8 };

/* sum[i] of x - shift[i], and of its squares. */
static ALWAYS_INLINE void sum_pixels(const struct attn_blocked_norm *d, const float *x,
                                     const float *shift, float *sums, float *squares,
                                     const int n)
{
    v_f32 sum[TOGETHER], square[TOGETHER];
    UNROLL
    for (int i = 0; i < n; i++)
        sum[i] = square[i] = v_set(0.0f);
    for (int64_t c = 0; c < d->channels; c += VF) {
        const size_t left = (size_t)(d->channels - c);
        const float *at = x + c / ATTN_BLOCK * d->x_block + c % ATTN_BLOCK;
        UNROLL
        for (int i = 0; i < n; i++) {
            /* 0 beyond the channels */
            const v_f32 part =
                v_load_part(at + i * ATTN_BLOCK, left, shift[i]) - shift[i];
            sum[i] += part;
            square[i] += part * part;
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        sums[i] = v_reduce_add(sum[i]) / (float)d->channels;
        squares[i] = v_reduce_add(square[i]) / (float)d->channels;
    }
}

static ALWAYS_INLINE void norm_pixels(const struct attn_blocked_norm *d, int64_t pixel,
                                      const int n)
{
    const float *const x = d->x + pixel * ATTN_BLOCK;
    float *const y = d->y + pixel * ATTN_BLOCK;
    float mean[TOGETHER] = { 0 }, rest[TOGETHER], factor[TOGETHER];
    sum_pixels(d, x, mean, rest, factor, n);
    for (int i = 0; i < n; i++)
        mean[i] = rest[i];
    sum_pixels(d, x, mean, rest, factor, n);
    for (int i = 0; i < n; i++) {
        const float variance = factor[i] - rest[i] * rest[i];
        mean[i] += rest[i];
        factor[i] = 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + d->epsilon);
    }
    for (int64_t c = 0; c < d->channels; c += VF) {
        const size_t left = (size_t)(d->channels - c);
        const int64_t lane = c % ATTN_BLOCK;
        const v_f32 scale = v_load_part(d->scale + c, left, 0.0f);
        const v_f32 bias =
            d->bias != NULL ? v_load_part(d->bias + c, left, 0.0f) : v_set(0.0f);
        const float *from = x + c / ATTN_BLOCK * d->x_block + lane;
        float *to = y + c / ATTN_BLOCK * d->y_block + lane;
        UNROLL
        for (int i = 0; i < n; i++) {
            const v_f32 part = v_load(from + i * ATTN_BLOCK) - mean[i];
            v_store(to + i * ATTN_BLOCK, part * factor[i] * scale + bias);
        }
    }
}

void K(blocked_norm_f32)(const struct attn_blocked_norm *d)
{
    int64_t pixel = 0;
    for (; pixel + TOGETHER <= d->n; pixel += TOGETHER) {
        if (attn_poll_work(2 * TOGETHER * d->channels) != ATTNRUN_OK)
            return;
        norm_pixels(d, pixel, TOGETHER);
    }
    for (; pixel < d->n; pixel++) {
        if (attn_poll_work(2 * d->channels) != ATTNRUN_OK)
            return;
        norm_pixels(d, pixel, 1);
    }
}

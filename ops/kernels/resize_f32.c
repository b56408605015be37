/* resize_f32.c - a line of a resize whose positions are vectors, such as the pixels of
 * maps in blocks of 16 channels: struct attn_resize_line in image_types.h. Cost: 2 FLOPs
 * for each tap and element. */
#include "isa.h"

enum { POLL_FLOATS = 1 << 14, FEW_TAPS = 64 };

static ALWAYS_INLINE void copy_position(const struct attn_resize_line *d, int64_t i)
{
    const float *x = d->x + d->index[i] * d->inner;
    float *y = d->y + i * d->inner;
    for (size_t end = 0, c = 0; attn_segment(&end, (size_t)d->inner);)
        for (; c < end; c += VF)
            v_store(y + c, v_load(x + c));
}

static ALWAYS_INLINE void blend_two(const struct attn_resize_line *d, int64_t i)
{
    const v_f32 first = v_set(d->weight[2 * i]), second = v_set(d->weight[2 * i + 1]);
    const float *a = d->x + d->index[2 * i] * d->inner;
    const float *b = d->x + d->index[2 * i + 1] * d->inner;
    float *y = d->y + i * d->inner;
    for (size_t end = 0, c = 0; attn_segment(&end, (size_t)d->inner);)
        for (; c < end; c += VF)
            v_store(y + c, first * v_load(a + c) + second * v_load(b + c));
}

static ALWAYS_INLINE void blend_taps(const struct attn_resize_line *d, int64_t i)
{
    const int64_t *index = d->index + i * d->taps;
    const float *weight = d->weight + i * d->taps;
    float *y = d->y + i * d->inner;
    for (size_t end = 0, c = 0; attn_segment_of(&end, (size_t)d->inner, FEW_TAPS);)
        for (; c < end; c += VF) {
            v_f32 sum = v_set(0.0f);
            for (int64_t t = 0; t < d->taps; t++)
                sum += v_set(weight[t]) * v_load(d->x + index[t] * d->inner + c);
            v_store(y + c, sum);
            if (d->taps > FEW_TAPS && attn_poll_work(d->taps * VEC_BYTES) != ATTNRUN_OK)
                return;
        }
}

void K(resize_line_f32)(const struct attn_resize_line *d)
{
    for (int64_t i = 0, done = 0; i < d->n; i++) {
        if (d->weight == NULL)
            copy_position(d, i);
        else if (d->taps == 2)
            blend_two(d, i);
        else
            blend_taps(d, i);
        done += d->inner * d->taps;
        if (done >= POLL_FLOATS) {
            if (attn_poll_work(done * (int64_t)sizeof(float)) != ATTNRUN_OK)
                return;
            done = 0;
        }
    }
}

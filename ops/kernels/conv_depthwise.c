/* conv_depthwise.c - depthwise convolution of planes where rows of the output are as long
 * as those of the input. A tile of pixels of a few planes stays in registers while all
 * taps are applied, and the planes share the masks of a tap. conv_planes.h describes the
 * operands.
 *
 * Sums are in the order of kernel rows and columns, whatever the tile. Cost: 2 taps FLOPs
 * an element. */
#include "conv_planes.h"

enum { MAX_C = REGISTERS == 32 ? 4 : 2, MAX_V = 4 };

static ALWAYS_INLINE void add_taps(const struct attn_conv_planes *d, v_f32 (*acc)[MAX_V],
                                   const struct place *at, const int n,
                                   const struct rows nv)
{
    const float *w = d->w + at->channel * d->w_row;
    const float *plane = d->x + at->channel * d->plane + at->p;
    for (int64_t i = 0; i < d->kernel[0]; i++) {
        uint32_t rows[MAX_V];
        find_rows(d, rows, at->p, i, nv);
        const int64_t shift = (i * d->dilation[0] - d->before[0]) * d->width;
        for (int64_t j = 0; j < d->kernel[1]; j++, w++) {
            const float *x = plane + shift + j * d->dilation[1] - d->before[1];
            v_mask mask[MAX_V];
            if (!find_masks(d, mask, rows, at->word, j, nv))
                continue;
            UNROLL
            for (int c = 0; c < n; c++) {
                const v_f32 weight = v_set(w[c * d->w_row]);
                EACH_ROW (v, nv)
                    acc[c][v] +=
                        weight * v_load_lanes(x + c * d->plane + v * VF, mask[v]);
            }
        }
    }
}

static ALWAYS_INLINE void run_tile(const struct attn_conv_planes *d,
                                   const struct place *at, const int n,
                                   const struct rows nv)
{
    v_f32 acc[MAX_C][MAX_V];
    begin_tile(d, &acc[0][0], at, n, nv, MAX_V);
    add_taps(d, acc, at, n, nv);
    put_tile(d, &acc[0][0], at, n, nv, MAX_V);
}

TEXTS(1, MAX_V)
TEXTS(2, MAX_V)
TEXTS(4, MAX_V)
static const struct texts few[] = { { MAX_V, whole_1, some_1 },
                                    { MAX_V, whole_2, some_2 } };
static const struct texts four = { MAX_V, whole_4, some_4 }; /* of 32 registers */

void K(conv_depthwise_f32)(const struct attn_conv_planes *d)
{
    int64_t planes;
    struct place at = { 0, d->from, d->from / VF % d->width };
    for (; at.channel < d->m; at.channel += planes) {
        const int log = d->m - at.channel >= MAX_C ? MAX_C / 2 : d->m - at.channel >= 2;
        planes = 1 << log;
        run_pixels(d, MAX_C == 4 && log == 2 ? &four : &few[log], at, INT64_MAX);
    }
}

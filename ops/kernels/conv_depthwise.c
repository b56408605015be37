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
                                   const struct place *at, const int n, const int nv)
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
                UNROLL
                for (int v = 0; v < nv; v++)
                    acc[c][v] +=
                        weight * v_load_lanes(x + c * d->plane + v * VF, mask[v]);
            }
        }
    }
}

static ALWAYS_INLINE void run_tile(const struct attn_conv_planes *d,
                                   const struct place *at, const int n, const int nv)
{
    v_f32 acc[MAX_C][MAX_V];
    begin_tile(d, &acc[0][0], at, n, nv, MAX_V);
    add_taps(d, acc, at, n, nv);
    put_tile(d, &acc[0][0], at, n, nv, MAX_V);
}

/* clang-format off */
#define TILE(n, nv)                                                                      \
    static void tile_##n##x##nv(const struct attn_conv_planes *d, const struct place *at) \
    {                                                                                    \
        run_tile(d, at, n, nv);                                                          \
    }
TILE(1, 1) TILE(1, 2) TILE(1, 4) TILE(2, 1) TILE(2, 2) TILE(2, 4)
TILE(4, 1) TILE(4, 2) TILE(4, 4)
#undef TILE

/* By number of registers and of planes. */
static const struct width widths_16[2][3] = {
    { { 4, tile_1x4 }, { 2, tile_1x2 }, { 1, tile_1x1 } },
    { { 4, tile_2x4 }, { 2, tile_2x2 }, { 1, tile_2x1 } },
};
static const struct width widths_32[3][3] = {
    { { 4, tile_1x4 }, { 2, tile_1x2 }, { 1, tile_1x1 } },
    { { 4, tile_2x4 }, { 2, tile_2x2 }, { 1, tile_2x1 } },
    { { 4, tile_4x4 }, { 2, tile_4x2 }, { 1, tile_4x1 } },
};
/* clang-format on */

void K(conv_depthwise_f32)(const struct attn_conv_planes *d)
{
    int64_t planes;
    struct place at = { 0, d->from, d->from / VF % d->width };
    for (; at.channel < d->m; at.channel += planes) {
        const int log = d->m - at.channel >= MAX_C ? MAX_C / 2 : d->m - at.channel >= 2;
        planes = 1 << log;
        run_pixels(d, REGISTERS == 32 ? widths_32[log] : widths_16[log], at, INT64_MAX);
    }
}

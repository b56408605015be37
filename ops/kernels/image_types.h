/* image_types.h - structs that the kernels of image.def take. */
#ifndef ATTN_IMAGE_TYPES_H
#define ATTN_IMAGE_TYPES_H

#include <stdint.h>

/* Columns of a convolution: `k_count` taps from `k_from` on (order: channel, kernel axes)
 * for `n` output pixels from `pixel` on, as the panels of gemm_pack_f32, filled up with
 * anything finite or from the input. Axes are three, as in ops/image/window.h. */
struct attn_im2col {
    const float *x;     /* first channel of the group */
    const float *x_end; /* one past the last float that may be read */
    float *line;        /* room for n and two panels more */
    float *panels;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t k_from, k_count, pixel, n;
};

#endif

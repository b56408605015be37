/* image_types.h - structs that the kernels of image.def take. */
#ifndef ATTN_IMAGE_TYPES_H
#define ATTN_IMAGE_TYPES_H

#include <stdint.h>

/* Columns of a convolution: `k_count` taps from `k_from` on (order: channel, kernel axes)
 * for `n` output pixels from `pixel` on, as the panels of gemm_pack_f32, filled up with
 * anything finite or from the input. Axes are three, as in ops/image/window.h. */
enum { ATTN_IM2COL_LINES = 8 };
struct attn_im2col {
    const float *x;     /* first channel of the group */
    const float *x_end; /* one past the last float that may be read */
    float *line;        /* ATTN_IM2COL_LINES times room for n and two panels more */
    float *panels;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t k_from, k_count, pixel, n;
};

/* y[m x n] = step(y + bias + z), rows `row` floats apart in y and z. */
struct attn_conv_finish {
    float *y;
    const float *bias; /* one per row, or NULL */
    const float *z;    /* or NULL */
    int64_t row, m, n;
    int32_t step; /* -1: none; ATTN_EPI_RELU, or ATTN_EPI_CLIP to [alpha, beta] */
    float alpha, beta;
};

#endif

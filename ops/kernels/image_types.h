/* image_types.h - the structs that the kernels of image.def take. Operands are pointers;
 * sizes and strides are in elements. Each struct says what its kernel computes. */
#ifndef ATTN_IMAGE_TYPES_H
#define ATTN_IMAGE_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Columns of a convolution: `k_count` taps from `k_from` on (order: channel, kernel axes)
 * for `n` output pixels from `pixel` on, as the panels of gemm_pack_f32, filled up with
 * anything finite or from the input. Axes are three, as in ops/image/sliding_window.h. */
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

enum { ATTN_SMALL_PLANE = 1024 };
/* The statistics of the pixels of a channel so far. They start as ATTN_PLANE_STATS. */
enum attn_plane_stat {
    ATTN_STAT_SUM = 1,
    ATTN_STAT_MAX = 2,     /* NaN where any pixel is */
    ATTN_STAT_SQUARES = 4, /* their sum */
    ATTN_STAT_EXP = 8      /* sum of exp(x - max); gives MAX, too */
};
struct attn_plane_stats {
    double sum, squares;
    double exp_sum; /* 0 while max is -inf */
    float max;
};
#define ATTN_PLANE_STATS ((struct attn_plane_stats){ .max = -__builtin_inff() })

/* y[i][r] = sum over j < k of w[r][j] z[i][j], + bias[r] * bias_factor, for i < m and
 * r < rows. Each sum has one order, whatever m and rows are. */
struct attn_dense {
    const float *w, *z, *bias; /* bias: one per row, or NULL */
    float *y;
    ptrdiff_t w_row, z_row, y_row;
    size_t m, rows, k;
    float bias_factor;
};

/* y[c][p] = act(x[c][p] * gate[c] * pixels[p] + identity[c][p]) for c < planes, p < n,
 * each product and the sum rounded; NULL has no part. x, y and identity have rows that
 * are `row` floats apart; y may be x or identity. */
struct attn_gate {
    const float *x, *gate, *pixels, *identity;
    float *y;
    ptrdiff_t row;
    size_t planes, n;
    int32_t relu;   /* act is max(…, 0), NaN stays; else nothing */
    int32_t blocks; /* of maps in blocks: for blocked_gates_f32 */
};

/* y[p] = act(sum over m < maps of x[m][p] * weight[m] + identity[p]) for p < n, the sum
 * rounded before identity (or NULL) is added; y may be any of x, or identity. */
enum { ATTN_SUM_MAPS = 8 };
struct attn_sum_planes {
    const float *x[ATTN_SUM_MAPS], *identity;
    float weight[ATTN_SUM_MAPS];
    float *y;
    size_t n;
    int32_t maps; /* 1 … ATTN_SUM_MAPS */
    int32_t relu; /* act is max(…, 0), NaN stays; else nothing */
};

/* A tile of an involution: for `channels` channels and rows x columns output pixels
 * from (row, column) on, y = sum over the taps of a size x size window of kernel * x,
 * with zeros around x. kernel[tap * kernel_tap + r * kernel_row + i] is that of the
 * tile's pixel (r, i). The window of output pixel p begins at pixel p stride - (size -
 * 1) / 2. */
enum {
    ATTN_INVOLUTION_SIZE = 31,
    ATTN_INVOLUTION_CHANNELS = 4,
    ATTN_INVOLUTION_OVER = 15
};
struct attn_involution {
    const float *x;
    const float *kernel; /* ATTN_INVOLUTION_OVER more floats behind them are read */
    float *y;            /* pixel (0, 0) of the tile */
    float *strip;        /* attn_involution_strip() floats */
    int64_t x_channel, y_channel, y_row, kernel_tap, kernel_row;
    int64_t channels, h, w; /* of x */
    int64_t size, stride, row, column, rows, columns;
};
static inline int64_t attn_involution_strip(int64_t size, int64_t stride, int64_t rows,
                                            int64_t columns)
{
    const int64_t step = stride < size ? stride : size;
    const int64_t pitch = step * (columns + (size - 1) / stride);
    return ATTN_INVOLUTION_CHANNELS * ((rows - 1) * step + size) * pitch +
           ATTN_INVOLUTION_OVER;
}
/* Output channels of one group, for rows of pixels: with position p = row * pitch +
 * column, y[channel][row][column] = clip(bias[channel] + sum over taps t of w[channel][t]
 * x[offsets[t] + p] + z[channel][row][column]). x may be read one vector past the last
 * position, and is where y is not stored, between two rows. */
struct attn_conv_direct {
    const float *x, *w;
    const int64_t *offsets;
    int64_t taps, w_row;
    int64_t m;                    /* channels */
    int64_t rows, columns, pitch; /* columns <= pitch */
    float *y;
    const float *z, *bias; /* or NULL */
    int64_t y_channel, y_row;
    float min, max; /* of y; NaN stays */
};

/* A padded part of an image, cut into planes by the remainders of row and column: element
 * [channel][a][b][row][column] is x[channel][h + row * stride[0] + a][w + column *
 * stride[1] + b], 0 outside of the image. Rows follow each other; at the end are `tail`
 * zeros, at least a vector. */
struct attn_conv_strip {
    const float *x;     /* first channel */
    const float *x_end; /* one past the last float that may be read */
    float *to;
    int64_t channels, in[2], stride[2], h, w;
    int64_t rows, columns, tail;
};

/* Output channels of one group from planes as they lie in memory, where rows of the
 * output are as long as those of the input and strides are 1: pixels p = from … to - 1
 * (`from` is a multiple of a vector) of
 *
 *   y[channel][p] = clip(bias[channel] + z[channel][p]
 *                        + sum over kernel rows i, columns j, channels c of
 *                          w[channel][c][i][j] x[c][p + (i dilation[0] - before[0]) width
 *                                                     + j dilation[1] - before[1]])
 *
 * where x is 0 outside of its rows and columns; `edges` says where, see ATTN_CONV_EDGES. */
struct attn_conv_planes {
    const float *x, *w;
    const uint16_t *edges;
    int64_t channels, plane; /* plane: floats of a channel of x, height times width */
    int64_t m, w_row;
    int64_t height, width; /* of x */
    int64_t kernel[2], dilation[2], before[2];
    int64_t from, to;
    float *y;
    const float *z, *bias; /* or NULL */
    int64_t y_channel;
    float min, max; /* of y; NaN stays */
};
/* For each kernel column, width + ATTN_CONV_EDGES masks: bit l of mask i is set where
 * column (i * lanes + l) mod width of the output sees a column of the input. */
enum { ATTN_CONV_EDGES = 8 };

/* y[p * y_plane + r * y_row + i] = x[p * x_plane + r * x_row + i * x_step]. */
struct attn_boxes {
    const float *x;
    float *y;
    ptrdiff_t x_plane, x_row, x_step, y_plane, y_row;
    size_t planes, rows, n;
};

/* Positions of a line, vectors of `inner` floats, a multiple of 16:
 *
 *   y[i] = sum over taps t of weight[i * taps + t] * x[index[i * taps + t]]
 *
 * weight NULL: taps is 1, and y[i] is x[index[i]]. */
struct attn_resize_line {
    const float *x, *weight;
    const int64_t *index;
    float *y;
    int64_t taps, n, inner;
};

#endif

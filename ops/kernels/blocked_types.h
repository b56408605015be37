/* blocked_types.h - structs of the kernels of blocked.def: maps whose channels lie in blocks
 * of 16, [channels / 16][height][width][16]. Sizes and strides in elements; each says what the
 * kernel computes. Lanes of the last block beyond the channels may hold anything: no kernel
 * lets one lane reach another. */
#ifndef ATTN_BLOCKED_TYPES_H
#define ATTN_BLOCKED_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ATTN_BLOCK = 16 };

/* Inputs that lie side by side from x[pixel + offset] on, each with a row of weights. */
struct attn_blocked_tap {
    int64_t offset, inputs;
};

/* The pixels of a call as a grid, which tiles (AMX) read where they are: pixel i * columns + j
 * lies i * line_step + j * column_step elements of x behind pixel 0. All taps then have the same
 * number of inputs, at most 16, and 15 pixels behind the last one can be read. columns 0: there
 * is no grid, and tiles are not used. */
struct attn_pixel_grid {
    int64_t lines, columns, line_step, column_step;
};

/* Pixels of some blocks of 16 output channels ("columns"):
 *
 *   y[c / 16][p][c % 16] = clip(bias[c] + sum over taps t, i < inputs of t, of
 *                               x[pixels[p] + offset of t + i] * weight[row of t, i][c]
 *                               + z, at the place of y)
 *
 * The weights are panels of attn_blocked_panel() columns, the last one of fewer: for each
 * row, the weights of the panel's columns. Each sum goes from bias on in the order of rows,
 * whatever the tile. With `scale` it goes from 0 on, and is multiplied by scale[c] before
 * bias[c] is added. */
struct attn_blocked_conv {
    const float *x, *bias, *z; /* z may be NULL */
    const void *w;             /* elements of w_type */
    const float *scale;        /* or NULL */
    const int32_t *pixels;
    const struct attn_blocked_tap *taps;
    float *y;
    int64_t n_taps, rows;      /* rows: of weights, the sum of all inputs */
    int64_t n_pixels, columns; /* columns: a multiple of 16 */
    int64_t y_block;           /* from a block of 16 channels to the next */
    float min, max;            /* of y; NaN stays */
    int32_t w_type;            /* ATTN_B_F32 …; words of bf16 count as floats */
    float *floats;    /* of weights of 16 bits: room for those of a panel as floats, which
                                    the first tile of pixels stores for the others; or NULL */
    const void *next; /* the panel that the following call reads, or NULL */
    struct attn_pixel_grid grid; /* of words */
    bool z_bf16,
        y_bf16; /* of words: z, y have elements of bf16, and y_block counts these */
};

/* Columns of a panel, by the bytes of a vector: two vectors, at least a block. */
static inline int64_t attn_blocked_panel(int vec_bytes)
{
    return vec_bytes / 2 > ATTN_BLOCK ? vec_bytes / 2 : ATTN_BLOCK;
}

/* Rows row … row + rows - 1 of the output of one block of channels; x is its whole map, y
 * and z begin with the first row. A channel sees itself alone. */
struct attn_blocked_rows {
    const float *x, *w, *bias,
        *z; /* w: [kernel rows][kernel columns][16]; z may be NULL */
    float *y;
    int64_t in[2], kernel[2], stride[2], dilation[2], before[2];
    int64_t row, rows, columns;
    float min, max; /* of a convolution; NaN stays */
    /* Of a mean: by how many pixels the sum is divided, a factor a row and one a column of
     * the whole output; NULL: the maximum, where NaN wins and padding never does. */
    const float *row_share, *column_share;
};

/* Layer normalization of n pixels, each over all its channels: y = (x - mean) / sqrt(variance +
 * epsilon) * scale + bias. x_block, y_block: from a block of 16 channels to the next. y may be
 * x. */
struct attn_blocked_norm {
    const float *x, *scale, *bias; /* of each channel; bias may be NULL */
    float *y;
    int64_t channels, n, x_block, y_block;
    float epsilon;
};

/* Convolution of 3 x 3 by tiles of 2 x 2 outputs (Winograd's F(2 x 2, 3 x 3)): 16 products
 * of matrices stand between a transform of the 4 x 4 pixels that a tile sees and one of its
 * sums. `places`: tile t has place i of its 16 at places[i * plane + (t - first) * 16]. The input
 * transform reads x and writes places, the other one is the way back: y = clip(bias + scale * sums
 * + z).
 *
 * The pixels of a tile are `dilation` apart, so that a dilated convolution is an ordinary one for
 * each of phases[0] x phases[1] shifted maps; phases: min(dilation, out). Tiles first … first + n -
 * 1 of an image, of one block of channels, are counted along lines of `tile_columns`, and lines by
 * attn_winograd_line(). */
enum { ATTN_WINOGRAD_PLACES = 16 };
struct attn_winograd {
    const float *x, *bias, *z; /* z may be NULL */
    const float *scale;        /* of each lane, or NULL: 1 */
    float *places, *y;
    int64_t plane, first, n, tile_columns;
    int64_t in[2], out[2], before[2];
    int64_t dilation[2], phases[2];
    float min, max; /* of y; NaN stays */
};
/* The first pixel of the output in a line of tiles: its row and its column. The phase of the
 * columns counts fastest, then that of the rows. */
static inline void attn_winograd_line(const struct attn_winograd *w, int64_t line,
                                      int64_t *row, int64_t *column)
{
    const int64_t rest = line / w->phases[1];
    *column = line % w->phases[1];
    *row = rest % w->phases[0] + rest / w->phases[0] * 2 * w->dilation[0];
}

/* Weights of 3 x 3 in f16 or bf16 become those of the places of such a tile: for channel c and
 * column i of a panel, with g = w[c][3 x 3][i], place 4 r + j is
 * y[(4 r + j) * place + c * width + i] = (G g G')[r][j], with rows of G
 *   1  0  0      1/2  1/2  1/2      1/2  -1/2  1/2      0  0  1 */
struct attn_winograd_weights {
    const uint16_t *w; /* [channels][9][width] of w_type */
    float *y;
    int64_t place, channels, width; /* width: a multiple of 16 */
    int32_t w_type;
};

/* ---- bytes ---- */

/* What whole numbers that become bytes are clamped to, after `zero` is added. */
struct attn_byte_limits {
    int32_t zero, low, high;
};

/* What becomes of sums: q = clamp(round(sum * factor), low, high), halves to even, NaN as low;
 * y = q + zero as a byte. Bounds leave no more than a byte. With another map beside it zero is
 * 0, and y = clamp(round(q * ratio + (z - z_zero) * z_ratio + sum_zero), 0, 255). */
struct attn_requantize {
    const float *factor; /* of each column */
    float low, high;
    const uint8_t *z; /* where y is; NULL: none */
    float ratio, z_ratio, sum_zero;
    uint32_t zero, z_zero;
    const uint8_t *table; /* NULL, or of 256 bytes: y is table[y] */
};

/* The same as attn_blocked_conv of maps of u8 and weights of i8, 4 inputs a word:
 *
 *   sum = begin[c] + sum over taps and inputs of x * weight - w_zero[c] * (sum of those x
 *         that `ones` picks)
 *
 * modulo 2^32: the same bits on each instruction set. inputs of a tap are words, w has 4 bytes
 * for each word of inputs and column. */
struct attn_blocked_bytes {
    const uint8_t *x, *w;
    const uint32_t *begin, *w_sum; /* of each column; w_sum: the sum of its weights */
    const uint32_t *w_zero;        /* NULL: all 0 */
    const uint32_t *ones; /* with w_zero: a word for each row, its bytes 1 or 0 */
    uint32_t *x_sums;     /* with w_zero: room for n_pixels */
    const int32_t *pixels;
    const struct attn_blocked_tap *taps;
    uint8_t *y;
    int64_t n_taps, rows;
    int64_t n_pixels, columns;
    int64_t y_block;
    const void *next; /* the panel that the following call reads, or NULL */
    struct attn_requantize to;
    struct attn_pixel_grid grid;
    bool summed; /* x_sums are those of the same x, taps and pixels already */
};

/* Rows of one block of 16 channels, each by itself. x: the first of the lines that the first
 * row sees, at the first column that is seen; what is beside the map is there, too, and 4
 * pixels more at the end of each line. Outputs are computed in pairs from words of 4 pixels
 * of a line: w is [parts][kernel rows][groups of 4 pixels][2 outputs][16] words of i8. */
struct attn_blocked_byte_rows {
    const uint8_t *x, *w;
    const uint32_t *begin, *w_sum; /* of 16 channels */
    uint8_t *y;
    int64_t parts, kernel_rows, groups;
    int64_t row_step,
        tap_step;        /* bytes of x from an output row, a kernel row to the next */
    int64_t column_step; /* and from an output of a row to the next */
    int64_t rows, columns;
    struct attn_requantize to;
};

/* y = clamp(round((a - a_zero) a_ratio + (b - b_zero) b_ratio + zero), 0, 255), or with
 * `multiply` of (a - a_zero)(b - b_zero) a_ratio; each operation is rounded, halves to even.
 * Bytes of a, b and y are flipped: 0, or 128 for i8, whose zero points are 128 more. */
struct attn_binary_u8 {
    const uint8_t *a, *b;
    float a_zero, b_zero, a_ratio, b_ratio, zero;
    uint32_t flip;
    bool multiply, b_repeats; /* b is 16 bytes, again and again */
};

#endif

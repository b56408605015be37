/* blocked_byte_pack.c - packs the weights of convolutions of blocked maps of u8, once.
 *
 * In: W [rows, channels of a group, height, width] of u8 or i8, zero points, i32 biases,
 * factors. Out: a header (whether zero points are left to the run, and the number of
 * parts). Then follow, for each column, filled up to blocks of 16: the number that its
 * sum begins with, the sum of its weights, its zero point and its factor. Then, for each
 * row of words, which of its bytes are channels. Last come the weights as i8 in panels of
 * columns, a word of 4 inputs of a tap after the other, in the order channels that lie side
 * by side (blocked_inputs), tap, word of these channels. 128 is subtracted from u8 weights
 * and their zero points. In a depthwise convolution the zero points are subtracted from the
 * weights; if a difference does not fit a byte, the weights are sums of two parts, or of three
 * for 255, which is 127 + 127 + 1. The layout is then [block][part][kernel row][group of 4
 * pixels][2 outputs][16] words. Cost: one pass over W, at load. */
#include "../../runtime/poll.h"
#include "blocked_bytes.h"

enum { HEADER = 16 /* words */, PARTS = 3 };

struct sizes {
    int64_t columns, rows, taps, bytes; /* rows: of words; bytes: of weights */
};

static int64_t inputs_of(const struct blocked_byte_weights *p)
{
    return blocked_inputs(p->kernels, p->w->dims[1], p->plain, true, false);
}

/* Words of a tap for the channels from c on. */
static int64_t words_from(const struct blocked_byte_weights *p, int64_t c)
{
    return blocked_rows_from(p->kernels, p->w->dims[1], inputs_of(p), c, p->w->dims[3],
                             true, false);
}

static bool packed_sizes(const struct blocked_byte_weights *p, struct sizes *s)
{
    const int64_t *dims = p->w->dims, in = inputs_of(p);
    int64_t words;
    s->columns =
        p->by_itself || p->groups == 1 ? blocked_count(dims[0]) * ATTN_BLOCK : dims[0];
    if (!ck_mul(dims[2], dims[3], &s->taps) || s->taps > ATTN_MAX_ELEMENTS)
        return false;
    if (p->by_itself) {
        s->rows = 0;
        words = dims[2] * blocked_pair_groups(dims[3], p->stride) * PARTS * 2;
        return ck_mul(words, s->columns * 4, &s->bytes) && s->bytes < ATTN_MAX_ELEMENTS;
    }
    const int64_t last = ceil_div(dims[1], in) - 1;
    words = last * words_from(p, 0) + words_from(p, last * in);
    return ck_mul(words, s->taps, &s->rows) && s->rows < ATTN_MAX_ELEMENTS &&
           ck_mul(s->rows, s->columns * 4, &s->bytes) && s->bytes < ATTN_MAX_ELEMENTS;
}

static int64_t weights_at(int64_t columns, int64_t rows) /* in words */
{
    return (HEADER + 4 * columns + rows + 15) / 16 * 16;
}

int64_t attn_blocked_byte_packed(const struct blocked_byte_weights *p)
{
    struct sizes s;
    return packed_sizes(p, &s) ? weights_at(s.columns, s.rows) * 4 + s.bytes : -1;
}

struct blocked_byte_packed attn_blocked_byte_packed_at(const void *packed,
                                                       int64_t columns, int64_t rows)
{
    const uint32_t *words = packed;
    struct blocked_byte_packed at = { .any_zero = words[0] != 0, .parts = words[1] };
    at.begin = words + HEADER;
    at.w_sum = at.begin + columns;
    at.w_zero = at.w_sum + columns;
    at.factor = (const float *)(const void *)(at.w_zero + columns);
    at.ones = at.w_zero + 2 * columns;
    at.w = (const uint8_t *)(words + weights_at(columns, rows));
    return at;
}

/* As i8: 128 is subtracted from those of u8. */
static int32_t byte_at(const attnrun_tensor *t, int64_t i)
{
    return t->dtype == ATTNRUN_I8 ? ((const int8_t *)t->data)[i]
                                  : ((const uint8_t *)t->data)[i] - 128;
}
static int32_t zero_of(const struct blocked_byte_weights *p, int64_t row)
{
    return byte_at(p->w_zero, tensor_count(p->w_zero) == 1 ? 0 : row);
}

/* ---- dense ---- */

/* Packs the weights of output channel `row` as a column of a panel of `width` columns.
 * Returns their sum. */
static uint32_t pack_column(const struct blocked_byte_weights *p, const struct sizes *s,
                            uint8_t *to, int64_t width, int64_t row)
{
    const int64_t in = inputs_of(p), channels = p->w->dims[1];
    uint32_t sum = 0;
    for (int64_t first = 0; first < channels; first += in) {
        const int64_t n = min64(channels - first, in);
        const int64_t words = words_from(p, first);
        for (int64_t t = 0; t < s->taps; t++, to += words * 4 * width)
            for (int64_t c = 0; c < n; c++) {
                const int32_t w =
                    byte_at(p->w, (row * channels + first + c) * s->taps + t);
                to[c / 4 * 4 * width + c % 4] = (uint8_t)w;
                sum += (uint32_t)w;
            }
    }
    return sum;
}

static void put_ones(const struct blocked_byte_weights *p, const struct sizes *s,
                     uint32_t *ones)
{
    const int64_t in = inputs_of(p), channels = p->w->dims[1];
    for (int64_t first = 0; first < channels; first += in) {
        const int64_t n = min64(channels - first, in);
        const int64_t words = words_from(p, first);
        for (int64_t t = 0; t < s->taps; t++, ones += words)
            for (int64_t c = 0; c < n; c++)
                ones[c / 4] |= 1u << c % 4 * 8;
    }
}

static void pack_dense(const struct blocked_byte_weights *p, const struct sizes *s,
                       uint32_t *columns, uint32_t *ones, uint8_t *weights)
{
    const int64_t rows = p->w->dims[0], n = s->columns;
    const int64_t of_group = p->groups == 1 ? n : rows / p->groups;
    const uint32_t count = (uint32_t)(p->w->dims[1] * s->taps);
    put_ones(p, s, ones);
    for (int64_t row = 0; row < rows && !attn_stops_node(row); row++) {
        const int64_t group = row / of_group, column = row % of_group;
        const int64_t first = column / p->panel * p->panel;
        uint8_t *to = weights + (group * of_group + first) * s->rows * 4;
        const uint32_t zero = (uint32_t)zero_of(p, row),
                       sum = pack_column(p, s, to + 4 * (column - first),
                                         min64(of_group - first, p->panel), row);
        columns[row] -= (uint32_t)p->x_zero * (sum - count * zero);
        columns[n + row] = sum;
        columns[2 * n + row] = zero;
    }
}

/* ---- depthwise ---- */

static void put_word(uint8_t *to, int64_t pixel, int32_t w)
{
    /* a word of 16 lanes for each of 2 outputs and group of 4 pixels */
    to[pixel / 4 * 8 * ATTN_BLOCK + pixel % 4] = (uint8_t)w;
}

static void pack_by_itself(const struct blocked_byte_weights *p, const struct sizes *s,
                           uint32_t *columns, uint8_t *weights, int64_t parts)
{
    const int64_t *dims = p->w->dims, n = s->columns;
    const int64_t line = blocked_pair_groups(dims[3], p->stride) * 8 * ATTN_BLOCK,
                  part = line * dims[2];
    for (int64_t c = 0; c < dims[0] && !attn_stops(c); c++) {
        uint8_t *to = weights + c / ATTN_BLOCK * parts * part + c % ATTN_BLOCK * 4;
        uint32_t sum = 0;
        for (int64_t t = 0; t < s->taps; t++) {
            const int64_t i = t / dims[3], j = t % dims[3];
            int32_t w = byte_at(p->w, c * s->taps + t) - zero_of(p, c);
            sum += (uint32_t)w;
            for (int64_t k = 0; k < parts; k++) {
                const int32_t byte = w < -128 ? -128 : w > 127 ? 127 : w;
                uint8_t *at = to + k * part + i * line;
                put_word(at, j, byte);
                put_word(at + 4 * ATTN_BLOCK, j + p->stride, byte);
                w -= byte;
            }
        }
        columns[c] -= (uint32_t)p->x_zero * sum;
        columns[n + c] = sum;
    }
}

void attn_blocked_byte_pack(void *packed, const struct blocked_byte_weights *p)
{
    struct sizes s;
    uint32_t *words = packed, *columns = words + HEADER, any = 0, parts = 1;
    const int64_t rows = p->w->dims[0], weights_of_row = tensor_count(p->w) / rows;
    if (!packed_sizes(p, &s))
        return;
    memset(packed, 0, (size_t)attn_blocked_byte_packed(p));
    if (p->bias != NULL)
        memcpy(columns, p->bias, (size_t)rows * sizeof *p->bias);
    memcpy(columns + 3 * s.columns, p->factor, (size_t)rows * sizeof *p->factor);
    for (int64_t row = 0; row < rows; row++) {
        any |= zero_of(p, row) != 0;
        for (int64_t i = 0; p->by_itself && i < weights_of_row; i++) {
            const int32_t w = byte_at(p->w, row * weights_of_row + i) - zero_of(p, row);
            const uint32_t needed = w > 254 ? 3 : w < -128 || w > 127 ? 2 : 1;
            parts = needed > parts ? needed : parts;
        }
    }
    words[0] = any;
    words[1] = parts;
    uint8_t *weights = (uint8_t *)(words + weights_at(s.columns, s.rows));
    if (p->by_itself)
        pack_by_itself(p, &s, columns, weights, parts);
    else
        pack_dense(p, &s, columns, columns + 4 * s.columns, weights);
}

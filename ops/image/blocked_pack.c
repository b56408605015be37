/* blocked_pack.c - packs the weights of convolutions of blocked maps, once at load.
 *
 * In: W [rows, channels of a group, height, width], a bias and a scale.
 * Out: the bias [columns], then the scale [columns] if it is stored, then the weights. Columns are
 * the rows of W, filled up with zeros to blocks of 16. The form of the weights depends on the
 * convolution:
 *
 *   blocked maps     for each group, panels of columns with a row for each input of a pixel:
 *                    [channels that lie side by side (blocked_inputs)][tap][one of these]
 *   plain maps       the same panels with rows [channel][tap]
 *   depthwise        [block of 16 channels][tap][16]
 *   Winograd         for each group, 16 times the panels of a 1 x 1 convolution, one for each
 *                    place of a tile
 *
 * If products multiply bf16, a row of a panel holds words of two such channels, of plain maps, too.
 *
 * Weights of f16 and bf16 keep their type unless they become such words. Their scale is then
 * stored after the bias; in all other forms it is multiplied into the weights. For Winograd they
 * stay 3 x 3 taps, in panels [channel][tap], and a run computes their places
 * (winograd_weights_f32). */
#include "../../runtime/poll.h"
#include "blocked.h"

enum { PLACES = ATTN_WINOGRAD_PLACES };

/* Words of two bf16 along the inputs. */
static bool is_words(const struct blocked_weights *p)
{
    return !p->floats &&
           blocked_has_words(p->kernels, p->w->dims[1], p->plain, p->by_itself);
}

/* Packed in the 16 bits that the file has. */
static bool is_half(const struct blocked_weights *p)
{
    return blocked_w_type(p->w->dtype, is_words(p)) != ATTN_B_F32;
}

static int64_t rows_of(const struct blocked_weights *p)
{
    return p->w->dims[p->transposed ? 1 : 0];
}

/* Columns of a group: rows of W, which fill whole blocks where there are several groups. */
static int64_t columns_of_group(const struct blocked_weights *p)
{
    const int64_t rows = rows_of(p);
    return p->groups == 1 ? blocked_count(rows) * ATTN_BLOCK : rows / p->groups;
}

/* Bias, and scale where it is no part of the weights, in floats. */
static int64_t head_floats(const struct blocked_weights *p)
{
    const int64_t columns = blocked_count(rows_of(p)) * ATTN_BLOCK;
    return is_half(p) && p->scale != NULL ? 2 * columns : columns;
}

static int64_t words_from(const struct blocked_weights *p, int64_t channels,
                          int64_t inputs, int64_t c)
{
    return blocked_rows_from(p->kernels, channels, inputs, c, p->w->dims[3], false, true);
}

/* Words of all channels of a tap; of a place of Winograd's tiles. */
static int64_t words_of_tap(const struct blocked_weights *p, int64_t channels)
{
    if (p->winograd)
        return (channels + 1) / 2;
    const int64_t inputs = blocked_inputs(p->kernels, channels, p->plain, false, true);
    const int64_t last = ceil_div(channels, inputs) - 1;
    return last * words_from(p, channels, inputs, 0) +
           words_from(p, channels, inputs, last * inputs);
}

/* Elements of the packed weights; -1 where they are too many. */
static int64_t packed_elements(const struct blocked_weights *p)
{
    const int64_t *dims = p->w->dims, channels = dims[p->transposed ? 0 : 1];
    int64_t taps, rows, all, inputs = p->by_itself ? 1 : channels;
    if (is_words(p))
        inputs = words_of_tap(p, channels);
    const int64_t columns = p->by_itself || p->groups == 1
                                ? blocked_count(rows_of(p)) * ATTN_BLOCK
                                : rows_of(p);
    if (!ck_mul(dims[2], dims[3], &taps) ||
        !ck_mul(p->winograd && !is_half(p) ? PLACES : taps, inputs, &rows) ||
        !ck_mul(rows, columns, &all) || all > ATTN_MAX_ELEMENTS)
        return -1;
    return all;
}

int64_t attn_blocked_packed_bytes(const struct blocked_weights *p)
{
    const int64_t elements = packed_elements(p);
    if (elements < 0)
        return -1;
    return head_floats(p) * (int64_t)sizeof(float) + elements * (is_half(p) ? 2 : 4);
}

/* Weight i of W, and the factor of a row. */
static float weight_at(const struct blocked_weights *p, int64_t i)
{
    float x;
    if (attn_stored_narrow(p->w->dtype))
        attn_stored_to_floats(p->kernels, p->w->dtype, &x,
                              attn_stored_at(p->w->dtype, p->w->data, i), 1);
    else
        x = ((const float *)p->w->data)[i];
    return x;
}
static float scale_of(const struct blocked_weights *p, int64_t row)
{
    return p->scale != NULL ? p->scale[row] : 1.0f;
}

static void pack_by_itself(void *packed, const struct blocked_weights *p)
{
    const int64_t taps = p->w->dims[2] * p->w->dims[3];
    const bool half = is_half(p);
    float *const floats = packed;
    uint16_t *const halves = packed;
    for (int64_t c = 0; c < p->w->dims[0] && !attn_stops(c); c++)
        for (int64_t t = 0; t < taps; t++) {
            const int64_t to = (c / ATTN_BLOCK * taps + t) * ATTN_BLOCK + c % ATTN_BLOCK;
            if (half)
                halves[to] = ((const uint16_t *)p->w->data)[c * taps + t];
            else
                floats[to] = weight_at(p, c * taps + t) * scale_of(p, c);
        }
}

/* A column of a panel of `width` columns, from the weights `from` of one output channel: floats
 * times `scale`, or elements of 16 bits as they are. */
static void pack_column(void *to, int64_t width, const void *from, bool half,
                        int64_t channels, int64_t taps, bool plain, float scale)
{
    const int64_t block = plain ? 1 : ATTN_BLOCK;
    int64_t at = 0;
    for (int64_t first = 0; first < channels; first += block) {
        const int64_t n = min64(channels - first, block);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < n; c++, at += width) {
                const int64_t source = (first + c) * taps + t;
                if (half)
                    ((uint16_t *)to)[at] = ((const uint16_t *)from)[source];
                else
                    ((float *)to)[at] = ((const float *)from)[source] * scale;
            }
    }
}

/* The same as words of two channels, of the weights from element `from` on. */
static void pack_words(const struct blocked_weights *p, float *to, int64_t width,
                       int64_t from, float scale)
{
    enum { MAX_INPUTS = 2 * ATTN_BLOCK };
    const int64_t channels = p->w->dims[1], *kernel = p->w->dims + 2;
    const int64_t taps = kernel[0] * kernel[1],
                  inputs = blocked_inputs(p->kernels, channels, p->plain, false, true);
    for (int64_t first = 0; first < channels; first += inputs) {
        const int64_t n = min64(channels - first, inputs),
                      words = words_from(p, channels, inputs, first);
        for (int64_t t = 0; t < taps; t++) {
            float tap[MAX_INPUTS] = { 0 };
            uint32_t pairs[MAX_INPUTS / 2];
            for (int64_t c = 0; c < n; c++)
                tap[c] = weight_at(p, from + (first + c) * taps + t) * scale;
            p->kernels->words_bf16(pairs, tap, MAX_INPUTS / 2);
            for (int64_t c = 0; c < words; c++, to += width)
                memcpy(to, &pairs[c], sizeof *to);
        }
    }
}

/* G g G' of 3 x 3 weights from element `from` on, with rows 1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2,
 * 0 0 1 of G: place i of its 16 goes to to[i * step]. */
static void transform_weights(float *to, int64_t step, const struct blocked_weights *p,
                              int64_t from, float scale)
{
    double rows[4][3], d[3];
    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < 3; i++)
            d[i] = (double)(weight_at(p, from + 3 * i + j) * scale);
        rows[0][j] = d[0];
        rows[1][j] = (d[0] + d[1] + d[2]) / 2;
        rows[2][j] = (d[0] - d[1] + d[2]) / 2;
        rows[3][j] = d[2];
    }
    for (int i = 0; i < 4; i++, to += 4 * step) {
        const double *r = rows[i];
        to[0] = (float)r[0];
        to[step] = (float)((r[0] + r[1] + r[2]) / 2);
        to[2 * step] = (float)((r[0] - r[1] + r[2]) / 2);
        to[3 * step] = (float)r[2];
    }
}

/* The words of the places of two channels, of which the second may be missing. */
static void transform_pair(float *to, int64_t step, const struct blocked_weights *p,
                           int64_t from, float scale, bool two)
{
    float both[2 * PLACES] = { 0 };
    uint32_t words[PLACES];
    transform_weights(both, 2, p, from, scale);
    if (two)
        transform_weights(both + 1, 2, p, from + 9, scale);
    p->kernels->words_bf16(words, both, PLACES);
    for (int i = 0; i < PLACES; i++)
        memcpy(to + i * step, &words[i], sizeof *to);
}

/* For each place what pack_column() or pack_words() makes of weights of 1 x 1. */
static void pack_winograd(float *packed, const struct blocked_weights *p,
                          int64_t of_place)
{
    const int64_t rows = p->w->dims[0], channels = p->w->dims[1];
    const int64_t columns = columns_of_group(p), panel = blocked_panel(p->kernels);
    int64_t from = 0;
    for (int64_t row = 0; row < rows && !attn_stops_node(row); row++) {
        const int64_t column = row % columns, first = column / panel * panel;
        const int64_t width = min64(columns - first, panel);
        const float scale = scale_of(p, row);
        float *to = packed + (row - column) * of_place * PLACES + first * of_place +
                    column - first;
        for (int64_t c = 0; c < channels; c++, from += 9, to += width) {
            if (!is_words(p)) {
                transform_weights(to, columns * of_place, p, from, scale);
                continue;
            }
            const bool two = ++c < channels;
            transform_pair(to, columns * of_place, p, from, scale, two);
            from += two ? 9 : 0;
        }
    }
}

/* Row `c` of a panel of W[channels, rows], from column `first` on, as floats times their scales;
 * of words, rows c and c + 1. */
static void pack_transposed_row(float *to, const struct blocked_weights *p, int64_t c,
                                int64_t first, int64_t width)
{
    const int64_t channels = p->w->dims[0], rows = p->w->dims[1];
    const int64_t n = min64(rows - first, width);
    const int step = is_words(p) ? 2 : 1;
    float pairs[8 * ATTN_BLOCK] = { 0 };
    for (int64_t k = 0; k < step && c + k < channels; k++)
        for (int64_t i = 0; i < n; i++)
            pairs[step * i + k] =
                weight_at(p, (c + k) * rows + first + i) * scale_of(p, first + i);
    if (step == 1)
        memcpy(to, pairs, (size_t)width * sizeof *to);
    else
        p->kernels->words_bf16((uint32_t *)(void *)to, pairs, (size_t)width);
}

/* Of W[channels, rows], whose rows lie as those of a panel do. Elements of 16 bits stay as they
 * are. */
static void pack_transposed(void *packed, const struct blocked_weights *p,
                            int64_t weight_rows)
{
    const int64_t channels = p->w->dims[0], rows = p->w->dims[1];
    const int64_t columns = blocked_count(rows) * ATTN_BLOCK;
    const int64_t panel = blocked_panel(p->kernels);
    const int64_t step = is_words(p) ? 2 : 1;
    const bool half = is_half(p);
    const int64_t bytes = half ? 2 : 4; /* of an element */
    for (int64_t first = 0; first < columns; first += panel) {
        const int64_t width = min64(columns - first, panel);
        char *to = (char *)packed + first * weight_rows * bytes;
        for (int64_t c = 0; c < channels; c += step, to += width * bytes) {
            if (attn_poll_work(2 * step * width * bytes) != ATTNRUN_OK)
                return; /* the caller sees it at its next poll */
            if (half)
                memcpy(to, (const uint16_t *)p->w->data + c * rows + first,
                       (size_t)(min64(rows - first, width) * bytes));
            else
                pack_transposed_row((float *)(void *)to, p, c, first, width);
        }
    }
}

/* Bias and scale. */
static void pack_head(float *packed, const struct blocked_weights *p)
{
    const int64_t rows = rows_of(p), columns = blocked_count(rows) * ATTN_BLOCK;
    for (int64_t row = 0; p->bias != NULL && row < rows && !attn_stops(row); row++)
        packed[row] = p->bias[row];
    if (head_floats(p) > columns)
        memcpy(packed + columns, p->scale, (size_t)rows * sizeof *packed);
}

/* The panels of all groups, a row of W after the other. */
static void pack_rows(void *packed, const struct blocked_weights *p, int64_t weight_rows)
{
    const attnrun_tensor *w = p->w;
    const int64_t taps = w->dims[2] * w->dims[3], rows = w->dims[0];
    const int64_t of_row = w->dims[1] * taps, panel = blocked_panel(p->kernels);
    const int64_t of_group = columns_of_group(p);
    const bool half = is_half(p);
    const int64_t bytes = half ? 2 : 4; /* of an element */
    for (int64_t row = 0; row < rows && !attn_stops_node(row); row++) {
        const int64_t group = row / of_group, column = row % of_group;
        const int64_t first = column / panel * panel;
        const int64_t width = min64(of_group - first, panel);
        const int64_t to = (group * of_group + first) * weight_rows + column - first;
        if (is_words(p)) {
            pack_words(p, (float *)packed + to, width, row * of_row, scale_of(p, row));
            continue;
        }
        /* The places of Winograd's tiles are computed from [channel][tap]. */
        pack_column((char *)packed + to * bytes, width,
                    (const char *)w->data + row * of_row * bytes, half, w->dims[1], taps,
                    p->plain || p->winograd, scale_of(p, row));
    }
}

void attn_blocked_pack(void *packed, const struct blocked_weights *p)
{
    const int64_t columns = blocked_count(rows_of(p)) * ATTN_BLOCK;
    const int64_t weight_rows = packed_elements(p) / columns;
    memset(packed, 0, (size_t)attn_blocked_packed_bytes(p));
    pack_head(packed, p);
    void *const weights = (float *)packed + head_floats(p);
    if (p->by_itself)
        pack_by_itself(weights, p);
    else if (p->transposed)
        pack_transposed(weights, p, weight_rows);
    else if (p->winograd && !is_half(p))
        pack_winograd(weights, p, weight_rows / PLACES);
    else
        pack_rows(weights, p, weight_rows);
}

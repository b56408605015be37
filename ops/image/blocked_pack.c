/* blocked_pack.c - the weights of convolutions of blocked maps, packed once.
 *
 * In: W [rows, channels of a group, height, width] and a bias. Out: the bias, filled up with
 * zeros to blocks of 16; then for each group panels of columns, a row for each input that a
 * tile meets: block of channels, tap, channel of the block; of plain maps channel, tap. Where
 * each channel is by itself: [block][tap][16]; for Winograd's tiles 16 times the panels of 1 x
 * 1, one for each place of a tile. What fills up columns is 0. With products of bf16 a row of
 * panels has words of two inputs of a block. */
#include "../../runtime/poll.h"
#include "blocked.h"

enum { PLACES = ATTN_WINOGRAD_PLACES };

/* Words of two bf16 along the inputs. */
static bool is_words(const struct blocked_weights *p)
{
    return p->kernels->dots_bf16 && !p->plain && !p->by_itself && !p->floats;
}

int64_t attn_blocked_packed_floats(const struct blocked_weights *p)
{
    const int64_t *dims = p->w->dims, channels = dims[p->transposed ? 0 : 1];
    int64_t taps, rows, all, inputs = p->by_itself ? 1 : channels;
    if (is_words(p))
        inputs = channels / ATTN_BLOCK * (ATTN_BLOCK / 2) +
                 (channels % ATTN_BLOCK > 0
                      ? blocked_pairs(channels % ATTN_BLOCK, p->winograd ? 1 : dims[3])
                      : 0);
    const int64_t of_w = dims[p->transposed ? 1 : 0];
    const int64_t columns =
        p->by_itself || p->groups == 1 ? blocked_count(of_w) * ATTN_BLOCK : of_w;
    if (!ck_mul(dims[2], dims[3], &taps) ||
        !ck_mul(p->winograd ? PLACES : taps, inputs, &rows) ||
        !ck_mul(rows, columns, &all) || all > ATTN_MAX_ELEMENTS)
        return -1;
    return columns + all;
}

static void pack_by_itself(float *to, const attnrun_tensor *w)
{
    const int64_t taps = w->dims[2] * w->dims[3];
    const float *from = w->data;
    for (int64_t c = 0; c < w->dims[0] && !attn_stops(c); c++)
        for (int64_t t = 0; t < taps; t++)
            to[(c / ATTN_BLOCK * taps + t) * ATTN_BLOCK + c % ATTN_BLOCK] =
                from[c * taps + t];
}

/* Column `column` of a panel of `width`, from the weights of one output channel. */
static void pack_column(float *to, int64_t width, const float *from, int64_t channels,
                        int64_t taps, bool plain, float scale)
{
    const int64_t block = plain ? 1 : ATTN_BLOCK;
    for (int64_t first = 0; first < channels; first += block) {
        const int64_t n = min64(channels - first, block);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < n; c++, to += width)
                *to = from[(first + c) * taps + t] * scale;
    }
}

/* The same as words of two channels. */
static void pack_words(const struct attn_kernels *kernels, float *to, int64_t width,
                       const float *from, int64_t channels, const int64_t *kernel,
                       float scale)
{
    const int64_t taps = kernel[0] * kernel[1];
    for (int64_t first = 0; first < channels; first += ATTN_BLOCK) {
        const int64_t n = min64(channels - first, ATTN_BLOCK),
                      words = blocked_pairs(n, kernel[1]);
        for (int64_t t = 0; t < taps; t++) {
            float tap[ATTN_BLOCK] = { 0 };
            uint32_t pairs[ATTN_BLOCK / 2];
            for (int64_t c = 0; c < n; c++)
                tap[c] = from[(first + c) * taps + t] * scale;
            kernels->words_bf16(pairs, tap, ATTN_BLOCK / 2);
            for (int64_t c = 0; c < words; c++, to += width)
                memcpy(to, &pairs[c], sizeof *to);
        }
    }
}

/* G g G' of 3 x 3 weights, with rows 1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1 of G: place i of
 * its 16 goes to to[i * step]. */
static void transform_weights(float *to, int64_t step, const float *g)
{
    double rows[4][3], d[3];
    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < 3; i++)
            d[i] = (double)g[3 * i + j];
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
static void transform_pair(const struct attn_kernels *kernels, float *to, int64_t step,
                           const float *g, bool two)
{
    float both[2 * PLACES] = { 0 };
    uint32_t words[PLACES];
    transform_weights(both, 2, g);
    if (two)
        transform_weights(both + 1, 2, g + 9);
    kernels->words_bf16(words, both, PLACES);
    for (int i = 0; i < PLACES; i++)
        memcpy(to + i * step, &words[i], sizeof *to);
}

/* For each place what pack_column() or pack_words() makes of weights of 1 x 1. */
static void pack_winograd(float *packed, const struct blocked_weights *p,
                          int64_t of_place)
{
    const int64_t rows = p->w->dims[0], channels = p->w->dims[1];
    const int64_t columns = blocked_count(rows) * ATTN_BLOCK;
    const int64_t panel = blocked_panel(p->kernels);
    const float *from = p->w->data;
    for (int64_t row = 0; row < rows && !attn_stops_node(row); row++) {
        const int64_t first = row / panel * panel;
        const int64_t width = min64(columns - first, panel);
        float *to = packed + first * of_place + row - first;
        for (int64_t c = 0; c < channels; c++, from += 9, to += width) {
            if (!is_words(p)) {
                transform_weights(to, columns * of_place, from);
                continue;
            }
            const bool two = ++c < channels;
            transform_pair(p->kernels, to, columns * of_place, from, two);
            from += two ? 9 : 0;
        }
    }
}

/* Of W[channels, rows], whose rows lie as those of a panel do. */
static void pack_transposed(float *packed, const struct blocked_weights *p)
{
    const int64_t channels = p->w->dims[0], rows = p->w->dims[1];
    const int64_t columns = blocked_count(rows) * ATTN_BLOCK;
    const int64_t panel = blocked_panel(p->kernels);
    const int step = is_words(p) ? 2 : 1;
    const float *w = p->w->data;
    for (int64_t first = 0; first < columns; first += panel) {
        const int64_t width = min64(columns - first, panel),
                      n = min64(rows - first, width);
        for (int64_t c = 0; c < channels; c += step, packed += width) {
            if (attn_poll_work(2 * step * width * (int64_t)sizeof *w) != ATTNRUN_OK)
                return; /* who called sees it at the next poll */
            float pairs[8 * ATTN_BLOCK] = { 0 };
            for (int64_t k = 0; k < step && c + k < channels; k++)
                for (int64_t i = 0; i < n; i++)
                    pairs[step * i + k] = w[(c + k) * rows + first + i] *
                                          (p->scale != NULL ? p->scale[first + i] : 1.0f);
            if (step == 1)
                memcpy(packed, pairs, (size_t)width * sizeof *packed);
            else
                p->kernels->words_bf16((uint32_t *)(void *)packed, pairs, (size_t)width);
        }
    }
}

static void pack_bias(float *packed, const struct blocked_weights *p, int64_t rows)
{
    for (int64_t row = 0; p->bias != NULL && row < rows && !attn_stops(row); row++)
        packed[row] = p->bias[row] * (p->scale != NULL ? p->scale[row] : 1.0f);
}

void attn_blocked_pack(float *packed, const struct blocked_weights *p)
{
    const attnrun_tensor *w = p->w;
    const int64_t taps = w->dims[2] * w->dims[3], rows = w->dims[p->transposed ? 1 : 0];
    const int64_t of_row = w->dims[1] * taps, panel = blocked_panel(p->kernels);
    const int64_t columns = blocked_count(rows) * ATTN_BLOCK;
    const int64_t of_group = p->by_itself || p->groups == 1 ? columns : rows / p->groups;
    const int64_t weight_rows = (attn_blocked_packed_floats(p) - columns) / columns;
    memset(packed, 0, (size_t)attn_blocked_packed_floats(p) * sizeof(float));
    pack_bias(packed, p, rows);
    packed += columns;
    if (p->transposed)
        pack_transposed(packed, p);
    else if (p->by_itself)
        pack_by_itself(packed, w);
    else if (p->winograd)
        pack_winograd(packed, p, weight_rows / PLACES);
    if (p->by_itself || p->winograd || p->transposed)
        return;
    for (int64_t row = 0; row < rows && !attn_stops_node(row); row++) {
        const int64_t group = row / of_group, column = row % of_group;
        const int64_t first = column / panel * panel;
        const int64_t width = min64(of_group - first, panel);
        const float *from = (const float *)w->data + row * of_row;
        const float scale = p->scale != NULL ? p->scale[row] : 1.0f;
        float *to = packed + (group * of_group + first) * weight_rows + column - first;
        if (is_words(p))
            pack_words(p->kernels, to, width, from, w->dims[1], w->dims + 2, scale);
        else
            pack_column(to, width, from, w->dims[1], taps, p->plain, scale);
    }
}

/* blocked_pack.c - the weights of convolutions of blocked maps, packed once.
 *
 * In: W [rows, channels of a group, height, width] and a bias. Out: the bias, filled up with
 * zeros to blocks of 16; then for each group panels of columns, a row for each input that a
 * tile meets: block of channels, tap, channel of the block; of plain maps channel, tap. Where
 * each channel is by itself: [block][tap][16]. What fills up columns is 0. */
#include "../../runtime/poll.h"
#include "blocked.h"

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

int64_t attn_blocked_packed_floats(const attnrun_tensor *w, int64_t groups,
                                   bool by_itself)
{
    int64_t taps, rows, all;
    const int64_t columns =
        by_itself || groups == 1 ? blocked_count(w->dims[0]) * ATTN_BLOCK : w->dims[0];
    if (!ck_mul(w->dims[2], w->dims[3], &taps) ||
        !ck_mul(taps, by_itself ? 1 : w->dims[1], &rows) ||
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
                        int64_t taps, bool plain)
{
    const int64_t block = plain ? 1 : ATTN_BLOCK;
    for (int64_t first = 0; first < channels; first += block) {
        const int64_t n = at_most(channels - first, block);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < n; c++, to += width)
                *to = from[(first + c) * taps + t];
    }
}

void attn_blocked_pack(float *packed, const attnrun_tensor *w, const float *bias,
                       int64_t groups, bool plain, bool by_itself, int vec_bytes)
{
    const int64_t taps = w->dims[2] * w->dims[3], rows = w->dims[0];
    const int64_t weight_rows = w->dims[1] * taps, panel = attn_blocked_panel(vec_bytes);
    const int64_t columns = blocked_count(rows) * ATTN_BLOCK;
    const int64_t of_group = by_itself || groups == 1 ? columns : rows / groups;
    memset(packed, 0,
           (size_t)attn_blocked_packed_floats(w, groups, by_itself) * sizeof(float));
    if (bias != NULL)
        memcpy(packed, bias, (size_t)rows * sizeof(float));
    packed += columns;
    if (by_itself) {
        pack_by_itself(packed, w);
        return;
    }
    for (int64_t row = 0; row < rows && !attn_stops_node(row); row++) {
        const int64_t group = row / of_group, column = row % of_group;
        const int64_t first = column / panel * panel;
        float *to = packed + (group * of_group + first) * weight_rows;
        pack_column(to + column - first, at_most(of_group - first, panel),
                    (const float *)w->data + row * weight_rows, w->dims[1], taps, plain);
    }
}

/* blocked_groups.c - which groups of a convolution BlockedConv takes, and how narrow groups become
 * such ones.
 *
 * BlockedConv reads and writes whole blocks of 16 channels of a group. Up to 4 groups that are
 * narrower, or no multiple of 16, become one, whose weights are 0 between the channels of different
 * groups:
 *
 *   W [M, C / G, kh, kw]   ->   [M, merged C / G, kh, kw], of which each row has
 *                               C / G kh kw weights that are not 0
 *
 * In: the weights and the group of a Conv. Out: how many groups are merged; the new weights, of the
 * type of the old ones. The sums add zeros, so that they have the same values. An infinite input
 * becomes NaN in the outputs of the groups that it was merged with. Cost: `merged` times the
 * products and the weights. Groups of 8 channels with ResNeXt's shapes take half of the time that
 * they take on plain maps, and the maps around them stay in blocks. */
#include "../../runtime/checked.h"
#include "../../runtime/poll.h"
#include "../kernels/kernel_types.h"
#include "blocked_layout.h"

enum { MAX_MERGED = 4 };

static bool all_positive(const attnrun_tensor *w)
{
    for (int i = 0; i < 4; i++)
        if (w->dims[i] < 1)
            return false;
    return true;
}

bool attn_blocked_groups(const attnrun_tensor *w, int64_t group, int64_t channels,
                         bool *by_itself)
{
    const int64_t rows = w->dims[0];
    if (!all_positive(w) || group < 1 || w->dims[1] * group != channels)
        return false;
    *by_itself = group > 1 && group == channels && group == rows;
    return group == 1 || *by_itself ||
           (w->dims[1] % ATTN_BLOCK == 0 && rows / group % ATTN_BLOCK == 0);
}

int64_t attn_blocked_merged(const attnrun_tensor *w, int64_t group, int64_t channels)
{
    bool by_itself;
    if (attn_blocked_groups(w, group, channels, &by_itself))
        return 1;
    if (!all_positive(w) || group < 1 || w->dims[1] * group != channels ||
        w->dims[0] % group != 0)
        return 0;
    const int64_t inputs = w->dims[1], outputs = w->dims[0] / group;
    int64_t n = 2;
    while (n <= MAX_MERGED && (group % n != 0 || n * inputs % ATTN_BLOCK != 0 ||
                               n * outputs % ATTN_BLOCK != 0))
        n++;
    return n <= MAX_MERGED ? n : 0;
}

attn_status attn_blocked_merge(struct attn_graph *graph, int32_t *weights, int64_t group,
                               int64_t merged)
{
    const attnrun_tensor w = graph->values[*weights].data;
    const int64_t outputs = w.dims[0] / group;
    const int64_t dims[4] = { w.dims[0], w.dims[1] * merged, w.dims[2], w.dims[3] };
    int64_t of_row = tensor_bytes(&w) / w.dims[0], bytes;
    void *data;
    if (!ck_mul(of_row * merged, w.dims[0], &bytes))
        return ATTNRUN_E_MEMORY;
    TRY(attn_graph_new_constant(graph, w.dtype, 4, dims, weights, &data));
    memset(data, 0, (size_t)bytes);
    for (int64_t row = 0; row < w.dims[0]; row++) {
        const int64_t place =
            row / outputs % merged; /* among the groups that are merged */
        memcpy((char *)data + (row * merged + place) * of_row,
               (const char *)w.data + row * of_row, (size_t)of_row);
        TRY(attn_poll_work(of_row / 4 + 64));
    }
    return ATTNRUN_OK;
}

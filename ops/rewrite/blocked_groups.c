/* blocked_groups.c - which groups of a convolution BlockedConv takes.
 *
 * In: the weights [M, C / G, kh, kw] of a Conv and its group. Out: whether there is one group, each
 * channel is by itself, or each group has whole blocks of 16 channels. Cost: O(1). */
#include "../kernels/kernel_types.h"
#include "blocked_layout.h"

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

/* mask_order.c - puts the masks between a product and its softmax in the order of a mask
 * program: first those of Where, then those that are added, or the reverse. In: masks,
 * from the softmax on. Out: what attn_mask_write() reads.
 *
 * Masks of Where may put different numbers in the place of scores, if nothing is
 * added. The one nearest to the softmax then decides. */
#include <math.h>

#include "block_window.h"
#include "write_mask.h"

static bool same(float a, float b) { return a >= b && a <= b; }

bool attn_block_masks_order(const struct attn_block_mask *masks, int n_masks,
                            struct attn_mask_source *source)
{
    int n_keep = 0, n_add = 0;
    for (int i = 0; i < MASK_ADDS; i++)
        source->add[i] = -1;
    source->many_fills = false;
    for (int i = 0; i < MASK_KEEPS; i++)
        source->keep[i] = -1;
    for (int m = 0; m < n_masks; m++) {
        const struct attn_block_mask *mask = &masks[m];
        const bool changed = m > 0 && mask->added != masks[m - 1].added;
        if ((changed && m > 1 && mask->added == masks[0].added) ||
            (mask->added ? n_add == MASK_ADDS : n_keep == MASK_KEEPS))
            return false;
        if (mask->added) {
            source->add[n_add++] = mask->value;
            continue;
        }
        if (isnan((float)mask->fill))
            return false;
        source->fills[n_keep] = (float)mask->fill;
        source->many_fills =
            source->many_fills || !same(source->fills[0], source->fills[n_keep]);
        source->drops[n_keep] = mask->drops;
        source->keep[n_keep++] = mask->value;
    }
    source->fill = source->fills[0];
    source->filled_last = n_keep > 0 && n_add > 0 && !masks[0].added;
    return !source->many_fills || n_add == 0;
}

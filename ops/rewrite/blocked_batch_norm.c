/* blocked_batch_norm.c - BatchNormalization that follows no convolution, as in networks that
 * normalize before they multiply, on maps in blocks of 16 channels. blocked_layout.c has the whole
 * pass. It becomes a BlockedConv of one tap that takes each channel by itself, so that
 * blocked_epilogue can add the activation behind it.
 *
 * In: a node of the graph. Out: whether it has that form, and the node that replaces it. */
#include "batch_norm.h"

#include "blocked_layout.h"

bool attn_blocked_is_batch_norm(const struct layout *l, const struct attn_node *node)
{
    if (!node_is(node, "BatchNormalization") || !layout_is_member_map(l, node->in[0]))
        return false;
    struct batch_norm norm = { .channels = layout_channels(l, node->in[0]) };
    return attn_match_batch_norm(l->graph, node, &norm);
}

attn_status attn_batch_norm_rewrite(struct layout *l, struct attn_node *node, int32_t out)
{
    const int64_t channels = layout_channels(l, node->in[0]);
    const struct attn_attr attrs[] = { MATCH_INT("channels", channels),
                                       MATCH_INT("group", channels) };
    struct batch_norm norm = { .channels = channels };
    int32_t in[3];
    (void)attn_match_batch_norm(l->graph, node, &norm); /* it was one before */
    TRY(attn_batch_norm_vectors(l->graph, &norm, 4, &in[1], &in[2]));
    TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    return attn_layout_insert(l, node, "BlockedConv", 3, in, out, 2, attrs);
}

/* blocked_cbam.c - CBAM and SqueezeExcite of maps in blocks of 16 channels.
 * blocked_layout.c has the whole pass.
 *
 *   CBAM of pools avg and max       BlockedCBAM
 *   SqueezeExcite, two matrices     the same without a gate of pixels
 *
 * In: a node of the graph. Out: whether it has that form, and the node that replaces it.
 */
#include "../kernels/kernel_types.h"
#include "blocked_layout.h"

enum { INPUTS = 8, IDENTITY = 7, EXCITE_IDENTITY = 5, W2 = 3 };

static bool is_excite(const struct attn_node *node)
{
    return node_is_of(node, "attnrun", "SqueezeExcite");
}

static int32_t input_of(const struct attn_node *node, int32_t in)
{
    return in < node->pub.n_in ? node->in[in] : -1;
}

static int32_t identity_of(const struct attn_node *node)
{
    return input_of(node, is_excite(node) ? EXCITE_IDENTITY : IDENTITY);
}

static bool has_pools(const struct attn_node *node)
{
    if (is_excite(node)) {
        const struct attn_attr *pool = attn_node_attr(node, "pool");
        return input_of(node, W2) >= 0 &&
               (pool == NULL || attn_match_string(node, "pool", "avg") ||
                attn_match_string(node, "pool", "max"));
    }
    const struct attn_attr *pools = attn_node_attr(node, "pools");
    if (pools != NULL && pools->kind != ATTN_ATTR_STRINGS)
        return false;
    for (int64_t i = 0; pools != NULL && i < pools->strings.n; i++)
        if (!op_text_is(pools->strings.v[i], "avg") &&
            !op_text_is(pools->strings.v[i], "max"))
            return false;
    return pools == NULL || pools->strings.n > 0;
}

bool attn_blocked_is_cbam(const struct layout *l, const struct attn_node *node)
{
    if (!node_is_of(node, "attnrun", "CBAM") && !is_excite(node))
        return false;
    const int32_t identity = identity_of(node);
    return layout_is_member_map(l, node->in[0]) &&
           attn_match_same_shape(l->graph, node->in[0], node->out[0]) &&
           (identity < 0 || layout_is_map(l, identity)) && has_pools(node) &&
           node->n_attrs <= BLOCKED_MAX_ATTRS - 2;
}

attn_status attn_cbam_rewrite(struct layout *l, struct attn_node *node, int32_t out)
{
    static const attnrun_string words[2] = { { "avg", 3 }, { "max", 3 } };
    const bool excite = is_excite(node);
    const int32_t identity = identity_of(node);
    struct attn_attr attrs[BLOCKED_MAX_ATTRS];
    int32_t in[INPUTS], n = 0;
    attrs[n++] = (struct attn_attr)MATCH_INT("channels", layout_channels(l, node->in[0]));
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (!excite || strcmp(node->attrs[i].name, "pool") != 0)
            attrs[n++] = node->attrs[i];
    if (excite)
        attrs[n++] = (struct attn_attr){
            .name = "pools",
            .kind = ATTN_ATTR_STRINGS,
            .strings = { words + attn_match_string(node, "pool", "max"), 1 }
        };
    for (int32_t i = 0; i < INPUTS; i++)
        in[i] = excite && i >= EXCITE_IDENTITY ? -1 : input_of(node, i);
    TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    if (identity >= 0)
        TRY(attn_layout_blocked(l, node, identity, &in[IDENTITY]));
    return attn_layout_insert(l, node, "BlockedCBAM", INPUTS, in, out, n, attrs);
}

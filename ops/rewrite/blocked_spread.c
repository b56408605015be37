/* blocked_spread.c - ConvTranspose whose strides are its kernel, on maps in blocks of 16
 * channels. blocked_layout.c has the whole pass. Each pixel becomes a tile of pixels that
 * no other pixel reaches. This is a BlockedConv of one tap that has columns for each
 * place of the tile and spreads its pixels.
 *
 * In: a node of the graph. Out: whether it has that form, and the node that replaces it.
 */
#include "../../runtime/checked.h"
#include "../../runtime/poll.h"
#include "../storage.h"
#include "blocked_layout.h"

enum {
    MAX_SPREAD = 8 /* of an axis: more is rare, and its tiles leave the cache */
};

bool attn_spread_is(const struct layout *l, const struct attn_node *node)
{
    const struct attn_attr *strides = attn_node_attr(node, "strides");
    if (!node_is(node, "ConvTranspose") || !layout_is_member_map(l, node->in[0]) ||
        !layout_is_map(l, node->out[0]) || !attn_match_is_stored(l->graph, node->in[1]))
        return false;
    const attnrun_tensor *w = &l->graph->values[node->in[1]].data;
    /* Columns that only fill up blocks cost as much as the others. */
    if (w->rank == 4 && 2 * round_up(w->dims[1], ATTN_BLOCK) > 3 * w->dims[1])
        return false;
    if (w->rank != 4 || strides == NULL || strides->kind != ATTN_ATTR_INTS ||
        strides->ints.n != 2 || w->dims[1] < 1 ||
        w->dims[0] != layout_channels(l, node->in[0]))
        return false;
    for (int i = 0; i < 2; i++)
        if (w->dims[i + 2] != strides->ints.v[i] || w->dims[i + 2] < 1 ||
            w->dims[i + 2] > MAX_SPREAD)
            return false;
    if (node->pub.n_in > 2 && node->in[2] >= 0) {
        const attnrun_tensor *b = &l->graph->values[node->in[2]].data;
        if (b->data == NULL || b->dtype != ATTNRUN_F32 || b->rank != 1 ||
            b->dims[0] != w->dims[1])
            return false;
    }
    return attn_match_int(node, "group", 1) == 1 && attn_match_all(node, "pads", 0) &&
           attn_match_all(node, "dilations", 1) &&
           attn_match_all(node, "output_padding", 0) &&
           attn_node_attr(node, "output_shape") == NULL && attn_match_explicit_pads(node);
}

/* Makes [C, h w blocks 16, 1, 1] of [C, M, h, w], of the same type, so that the columns of a
 * place of the tile are whole blocks. */
static attn_status make_weights(struct layout *l, int32_t value, int64_t columns,
                                int32_t *made)
{
    const attnrun_tensor w = l->graph->values[value].data;
    const int64_t taps = w.dims[2] * w.dims[3], rows = w.dims[1];
    int64_t dims[4] = { w.dims[0], 0, 1, 1 }, all;
    void *data;
    if (!ck_mul(columns, taps, &dims[1]) || !ck_mul(dims[1], dims[0], &all))
        return ATTNRUN_E_LIMIT;
    TRY(attn_graph_new_constant(l->graph, w.dtype, 4, dims, made, &data));
    const size_t bytes = (size_t)attn_stored_bytes(w.dtype);
    char *to = data;
    memset(data, 0, (size_t)all * bytes);
    for (int64_t c = 0; c < dims[0]; c++)
        for (int64_t t = 0; t < taps; t++, to += (size_t)columns * bytes) {
            for (int64_t m = 0; m < rows; m++)
                memcpy(to + (size_t)m * bytes,
                       attn_stored_at(w.dtype, w.data, (c * rows + m) * taps + t), bytes);
            TRY(attn_poll_work(2 * columns * (int64_t)bytes));
        }
    return ATTNRUN_OK;
}

static attn_status make_bias(struct layout *l, int32_t value, int64_t columns,
                             int64_t taps, int32_t *made)
{
    const attnrun_tensor b = l->graph->values[value].data;
    const int64_t n = columns * taps;
    void *data;
    TRY(attn_graph_new_constant(l->graph, ATTNRUN_F32, 1, &n, made, &data));
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        ((float *)data)[i] =
            i % columns < b.dims[0] ? match_f32_at(&b, i % columns) : 0.0f;
    return ATTNRUN_OK;
}

attn_status attn_spread_rewrite(struct layout *l, struct attn_node *node, int32_t out)
{
    const attnrun_tensor w = l->graph->values[node->in[1]].data;
    const int64_t columns = ceil_div(w.dims[1], ATTN_BLOCK) * ATTN_BLOCK;
    const struct attn_attr attrs[] = {
        MATCH_INT("channels", w.dims[0]),
        MATCH_INT("transposed", 1),
        MATCH_INT("spread_h", w.dims[2]),
        MATCH_INT("spread_w", w.dims[3]),
    };
    int32_t in[3] = { -1, -1, -1 };
    TRY(make_weights(l, node->in[1], columns, &in[1]));
    if (node->pub.n_in > 2 && node->in[2] >= 0)
        TRY(make_bias(l, node->in[2], columns, w.dims[2] * w.dims[3], &in[2]));
    TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    return attn_layout_insert(l, node, "BlockedConv", 3, in, out, 4, attrs);
}

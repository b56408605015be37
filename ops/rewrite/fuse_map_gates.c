/* fuse_map_gates.c - gates over maps become operators of domain attnrun, which read the
 * map once for all pools and make no tensor of its size in between:
 *
 *   v = x * gate(sum over pools t of w2 act(w1 pool_t(x) + b1) + b2)    SqueezeExcite,
 *                                                                       CBAM
 *   Y = v * gate(conv(ws, [max over c of v; mean over c of v]) + bs)    CBAM
 *
 * Both gates together, and the second alone, become CBAM. The first alone becomes CBAM
 * with two pools, and SqueezeExcite with one pool or half of each of two. Products are
 * Conv of 1 x 1, Gemm or MatMul of constants; the weights of all pools are compared. If a
 * map goes from convolution to convolution, its gates of channels are left to
 * blocked_layout.c, which computes them in blocks. */
#include "../../runtime/poll.h"
#include "map_gates.h"

enum { MAX_FORWARD = 4 };

struct map_gates_match {
    int32_t x, result;
    bool channels, pixels;
    struct attn_channel_gate channel;
    struct attn_pixel_gate pixel;
};

/* Reads a product of a map and a gate of pixels; *v: the map. */
static bool read_pixels(const struct attn_graph *graph, const struct attn_node *times,
                        struct map_gates_match *found, int32_t *v)
{
    for (int side = 0; side < 2; side++) {
        *v = times->in[side];
        if (attn_match_is_map(graph, *v) &&
            attn_match_same_shape(graph, *v, times->out[0]) &&
            attn_pixel_gate_read(graph, *v, times->in[1 - side], &found->pixel))
            return true;
    }
    return false;
}

static bool read_channels(const struct attn_graph *graph, const struct attn_node *times,
                          struct map_gates_match *found)
{
    for (int side = 0; side < 2; side++) {
        found->x = times->in[side];
        if (attn_match_is_map(graph, found->x) &&
            attn_match_same_shape(graph, found->x, times->out[0]) &&
            attn_channel_gate_read(graph, found->x, times->in[1 - side], &found->channel))
            return true;
    }
    return false;
}

/* ---- maps of convolutions ---- */

static bool goes_to_conv(const struct attn_graph *graph, int32_t value)
{
    for (int k = 0; k < MAX_FORWARD; k++) {
        const struct attn_node *next = NULL;
        for (const struct attn_use *use = graph->values[value].uses; use;
             use = use->next) {
            if (use->node == NULL || use->inner != NULL)
                continue;
            if (attn_is_map_conv(graph, use->node) && use->index == 0)
                return true;
            next = attn_keeps_blocks(use->node) ? use->node : next;
        }
        if (next == NULL)
            return false;
        value = next->out[0];
    }
    return false;
}

/* ---- nodes ---- */

enum { MAX_ATTRS = 4 };

/* Makes w1, b1, w2 and b2. */
static attn_status make_products(struct attn_graph *graph,
                                 const struct attn_channel_gate *gate, int32_t in[4])
{
    TRY(attn_dense_make(graph, &gate->first, &in[0], &in[1]));
    if (gate->deep)
        TRY(attn_dense_make(graph, &gate->second, &in[2], &in[3]));
    return ATTNRUN_OK;
}

/* Makes ws with the plane of the max first. */
static attn_status make_kernel(struct attn_graph *graph,
                               const struct attn_pixel_gate *gate, int32_t *ws)
{
    *ws = gate->w;
    TRY(attn_match_as_f32(graph, ws));
    if (!gate->mean_first)
        return ATTNRUN_OK;
    const attnrun_tensor w = graph->values[*ws].data;
    const size_t plane = (size_t)(w.dims[2] * w.dims[3]) * sizeof(float);
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 4, w.dims, ws, &data));
    memcpy(data, (const char *)w.data + plane, plane);
    memcpy((char *)data + plane, w.data, plane);
    return ATTNRUN_OK;
}

static attn_status make_cbam(struct attn_graph *graph, struct attn_node *before,
                             const struct map_gates_match *found, struct attn_node **made)
{
    static const attnrun_string both[2] = { { "avg", 3 }, { "max", 3 } };
    int32_t in[7] = { found->x, -1, -1, -1, -1, -1, -1 }, n = 0;
    struct attn_attr attrs[MAX_ATTRS];
    attrs[n++] = (struct attn_attr)MATCH_STRING(
        "gate", found->channels ? found->channel.gate : found->pixel.gate);
    if (found->channels) {
        TRY(make_products(graph, &found->channel, in + 1));
        attrs[n++] =
            (struct attn_attr)MATCH_STRING("activation", found->channel.activation);
        attrs[n++] = (struct attn_attr){
            .name = "pools",
            .kind = ATTN_ATTR_STRINGS,
            .strings = { both + (found->channel.pools == ATTN_POOLED_MAX),
                         1 + (found->channel.pools ==
                              (ATTN_POOLED_MEAN | ATTN_POOLED_MAX)) }
        };
    }
    if (found->pixels) {
        TRY(make_kernel(graph, &found->pixel, &in[5]));
        in[6] = found->pixel.bias;
    }
    return attn_match_make(graph, before, "attnrun", "CBAM", 7, in, found->result, n,
                           attrs, made);
}

static attn_status make_squeeze(struct attn_graph *graph, struct attn_node *before,
                                const struct map_gates_match *found,
                                struct attn_node **made)
{
    const struct attn_channel_gate *gate = &found->channel;
    int32_t in[5] = { found->x, -1, -1, -1, -1 };
    TRY(make_products(graph, gate, in + 1));
    const struct attn_attr attrs[] = {
        MATCH_STRING("gate", gate->gate),
        MATCH_STRING("activation", gate->activation),
        MATCH_STRING("pool", gate->half                       ? "avg_max"
                             : gate->pools == ATTN_POOLED_MAX ? "max"
                                                              : "avg"),
    };
    return attn_match_make(graph, before, "attnrun", "SqueezeExcite", 5, in,
                           found->result, 3, attrs, made);
}

/* Notes why a product that looks like one of a map and a gate does not fit. */
static attn_status note_left(struct attn_graph *graph, const struct attn_node *times)
{
    const char *why = NULL;
    for (int side = 0; side < 2 && why == NULL; side++) {
        const int32_t x = times->in[side], gate = times->in[1 - side];
        if (!attn_match_is_map(graph, x) ||
            !attn_match_same_shape(graph, x, times->out[0]))
            continue;
        why = attn_pixel_gate_why(graph, x, gate);
        if (why == NULL)
            why = attn_channel_gate_why(graph, x, gate);
    }
    return why != NULL ? attn_graph_note(graph, times, "map_gates", why) : ATTNRUN_OK;
}

static attn_status map_gates_try_node(struct attn_graph *graph, struct attn_node *times,
                                      int32_t *applied)
{
    struct map_gates_match found = { .x = -1, .result = times->out[0] };
    struct attn_node *made;
    int32_t v = -1;
    if (times->pub.n_in != 2 || !attn_match_is_map(graph, times->out[0]))
        return ATTNRUN_OK;
    found.pixels = read_pixels(graph, times, &found, &v);
    const struct attn_node *inner = found.pixels ? attn_graph_producer(graph, v) : times;
    const bool alone = !found.pixels || (graph->values[v].n_uses == 3 &&
                                         !(graph->values[v].flags & ATTN_VALUE_OUTPUT));
    if (node_is(inner, "Mul") && inner->pub.n_in == 2 && alone)
        found.channels = read_channels(graph, inner, &found);
    if (!found.channels && !found.pixels)
        return note_left(graph, times);
    TRY(attn_graph_note(graph, times, "map_gates", NULL));
    /* A gate of pixels that has another gate function, or a pool that CBAM lacks, becomes
     * an operator alone. */
    found.channels =
        found.channels && (!found.pixels || (found.channel.deep && !found.channel.half &&
                                             found.channel.gate == found.pixel.gate));
    if (!found.channels)
        found.x = v;
    if (!found.pixels &&
        (attn_conv_before(graph, found.x) != NULL || goes_to_conv(graph, found.result)))
        return ATTNRUN_OK;
    const bool one = found.channel.pools != (ATTN_POOLED_MEAN | ATTN_POOLED_MAX);
    if (!found.pixels && (found.channel.half || one))
        TRY(make_squeeze(graph, times, &found, &made));
    else
        TRY(make_cbam(graph, times, &found, &made));
    attn_match_replace(graph, found.result, made);
    ++*applied;
    return ATTNRUN_OK;
}

/* Goes from the last node to the first, so that a gate of pixels takes the gate of
 * channels before it. */
static attn_status run_map_gates(struct attn_graph *graph, int32_t *applied)
{
    for (int64_t n = graph->n_nodes - 1; n >= 0 && !attn_stops_node(n); n--)
        if (node_is(graph->nodes[n], "Mul") &&
            graph->values[graph->nodes[n]->out[0]].n_uses > 0)
            TRY(map_gates_try_node(graph, graph->nodes[n], applied));
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_map_gates = { .name = "map_gates",
                                               .run = run_map_gates };

/* blocked_layout.c - regions of convolutions, pooling and elementwise nodes use maps in blocks of
 * 16 channels, [N, ceil(C / 16), H, W, 16] (ops/image/blocked.h). These are ordinary tensors, so
 * elementwise nodes do not change.
 *
 *   Conv, FusedConv with constant weights          BlockedConv
 *   MaxPool, AveragePool                           BlockedPool
 *   ConvTranspose whose strides are its kernel     BlockedConv, see blocked_spread.c
 *   GlobalAveragePool, ReduceMean over the pixels  BlockedMean
 *   Mul of a map and a factor for each channel     BlockedGate
 *   Slice, Split into whole blocks                 Slice of blocks
 *   Resize, Upsample of height and width           BlockedResize, see blocked_resize.c
 *   CBAM, SqueezeExcite                            BlockedCBAM, see blocked_cbam.c
 *   BatchNormalization that follows no Conv        BlockedConv, see blocked_batch_norm.c
 *   Concat of whole blocks; elementwise nodes      the same node
 *   Transpose to channels that are last, and what  see blocked_last.c
 *   follows it up to the one back
 *   the same on quantized bytes                    see blocked_quantized.c
 *
 * A first walk over the nodes finds those that can be members of a region: every convolution of a
 * form that BlockedConv takes, and nodes that read a member. Members that read each other form a
 * region. A region is rewritten if the gain of its convolutions is larger than the cost of its
 * borders, where ToBlocked and FromBlocked copy the map. Convolutions of few channels read plain
 * maps, those of f16 and bf16 too, without their Cast to f32. A second walk rewrites the members of
 * these regions. The pass runs late, after conv_epilogue and others. Cost: linear in the number of
 * nodes. */
#include "../../runtime/checked.h"
#include "../../runtime/poll.h"
#include "../storage.h"
#include "blocked_layout.h"

/* Of a region; one suffices if it has Winograd's tiles, or multiplies bytes. */
enum { MIN_CONVS = 2 };
enum { PLAIN_CHANNELS = 16, MIN_WINOGRAD = 16, MIN_OF_WORDS = 64, MIN_TILES = 16 };

/* The number of elements of a map; an estimate where its sizes are not known. */
static double elements_of(const struct layout *l, int32_t value)
{
    const attnrun_type *t = layout_type(l, value);
    double n = 1.0;
    for (int i = 0; i < t->rank; i++)
        n *= dim_is_const(t->dims[i]) ? (double)t->dims[i].value : i == 0 ? 1.0 : 28.0;
    return n;
}

/* ---- runs ---- */

static int32_t first_of(struct layout *l, int32_t node)
{
    while (l->run[node] != node)
        node = l->run[node] = l->run[l->run[node]];
    return node;
}

/* Whether tiles of 2 x 2 outputs are faster: a group has many channels, and there are enough
 * tiles for reading the weights, which are 16 / 9 times as many. */
static bool pays_winograd(const struct layout *l, const struct attn_node *node)
{
    const attnrun_tensor *w = &l->graph->values[node->in[1]].data;
    const attnrun_type *y = layout_type(l, node->out[0]);
    const struct attn_kernels *kernels = attn_model_kernels(l->graph->model);
    const int64_t min = kernels->dots_bf16 ? MIN_OF_WORDS : MIN_WINOGRAD;
    double tiles = 1.0, pixels = 1.0;
    if (kernels->tiles_bf16) /* products cost less than both transforms */
        return false;
    for (int i = 2; i < 4; i++) {
        const int64_t n = dim_is_const(y->dims[i]) ? y->dims[i].value : 28;
        const int64_t apart = max64(attn_match_int_at(node, "dilations", i - 2, 1), 1);
        tiles *= (double)(min64(apart, n) * ceil_div(ceil_div(n, apart), 2));
        pixels *= (double)n;
    }
    return w->dims[2] == 3 && w->dims[3] == 3 &&
           w->dims[0] / attn_match_int(node, "group", 1) >= min && w->dims[1] >= min &&
           attn_match_all(node, "strides", 1) && tiles >= MIN_TILES &&
           pixels > 3.0 * tiles;
}

/* The gain of a convolution in nanoseconds, measured on AVX-512; it is smallest for
 * products with long sums. tiles: it has those of Winograd. */
static double conv_gain(const struct layout *l, const struct attn_node *node, bool tiles)
{
    if (l->member[node->pub.index] == MEMBER_PRODUCT)
        return elements_of(l, node->out[0]) * 0.1;
    const int32_t weights = node->in[l->member[node->pub.index] == MEMBER_QCONV ? 3 : 1];
    const attnrun_tensor *w = &l->graph->values[weights].data;
    const double outputs = elements_of(l, node->out[0]);
    const double products = (double)(w->dims[1] * w->dims[2] * w->dims[3]) * outputs;
    if (l->member[node->pub.index] == MEMBER_QCONV)
        return products * (attn_quantized_is_narrow(l, node) ? 0.08 : 0.01) +
               outputs * 2.0; /* and of what is between them */
    return products * (tiles ? 0.006 : 0.0015) + outputs * 0.2;
}

static bool reads_plain(const struct layout *l, const struct attn_node *node)
{
    return layout_giver(l, node->in[0]) < 0 &&
           layout_channels(l, node->in[0]) <= PLAIN_CHANNELS &&
           attn_match_int(node, "group", 1) == 1;
}

enum { COPY_PICOSECONDS = 500, COPY_BYTE_PICOSECONDS = 100 };
static double border(const struct layout *l, int32_t value)
{
    return elements_of(l, value) * 1e-3 *
           (layout_is_bytes(l, value) ? COPY_BYTE_PICOSECONDS : COPY_PICOSECONDS);
}

/* Joins a member with those that it reads, and adds up its gain and the cost of its
 * inputs. */
static void enter_member(struct layout *l, struct attn_node *node)
{
    const int32_t n = node->pub.index;
    const bool bytes = l->member[n] == MEMBER_QCONV;
    const bool conv =
        l->member[n] == MEMBER_CONV || l->member[n] == MEMBER_PRODUCT || bytes;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const int32_t from = layout_giver(l, node->in[i]);
        if (from >= 0) {
            const int32_t a = first_of(l, from), b = first_of(l, n);
            if (a == b)
                continue;
            l->run[b] = a;
            l->convs[a] += l->convs[b];
            l->gain[a] += l->gain[b];
        } else if ((layout_is_map(l, node->in[i]) || layout_is_bytes(l, node->in[i])) &&
                   !(conv && !bytes && i == 0 && reads_plain(l, node))) {
            l->gain[first_of(l, n)] -= border(l, node->in[i]);
        }
    }
    if (l->member[n] == MEMBER_SPREAD || l->member[n] == MEMBER_RESIZE ||
        l->member[n] == MEMBER_TO_LAST || l->member[n] == MEMBER_TO_FIRST)
        l->gain[first_of(l, n)] += border(l, node->out[0]);
    if (!conv)
        return;
    const bool tiles =
        l->member[n] == MEMBER_CONV && !reads_plain(l, node) && pays_winograd(l, node);
    l->convs[first_of(l, n)] += tiles || bytes ? MIN_CONVS : 1;
    l->gain[first_of(l, n)] += conv_gain(l, node, tiles);
}

/* Whether a node that is not a member reads a member's result. */
static bool leaves(const struct layout *l, int32_t value)
{
    const struct attn_value *v = &l->graph->values[value];
    int32_t inside = 0;
    for (const struct attn_use *use = v->uses; use != NULL; use = use->next) {
        const struct attn_node *user = use->node;
        inside += user != NULL && use->inner == NULL && l->member[user->pub.index];
    }
    return inside < v->n_uses;
}

/* Notes whether the channels of a member's result are last. */
static void note_last(struct layout *l, const struct attn_node *node)
{
    const enum member kind = l->member[node->pub.index];
    bool last = kind == MEMBER_TO_LAST;
    for (int32_t i = 0; kind != MEMBER_TO_FIRST && i < node->pub.n_in; i++)
        last = last || layout_is_last(l, node->in[i]);
    if (last)
        l->last[node->out[0]] = 1;
}

static void find_runs(struct layout *l)
{
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++) {
        l->run[n] = (int32_t)n;
        l->member[n] = MEMBER_NONE;
        l->member[n] = (uint8_t)attn_blocked_member(l, l->graph->nodes[n]);
        if (l->member[n] == MEMBER_NONE)
            continue;
        note_last(l, l->graph->nodes[n]);
        enter_member(l, l->graph->nodes[n]);
    }
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++) {
        const struct attn_node *node = l->graph->nodes[n];
        const int32_t n_out = l->member[n] == MEMBER_SPLIT ? node->pub.n_out : 1;
        for (int32_t i = 0; l->member[n] != MEMBER_NONE && i < n_out; i++)
            if (leaves(l, node->out[i]))
                l->gain[first_of(l, (int32_t)n)] -= border(l, node->out[i]);
    }
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++) {
        const int32_t first = first_of(l, (int32_t)n);
        if (l->member[n] != MEMBER_NONE &&
            (l->convs[first] < MIN_CONVS || l->gain[first] <= 0))
            l->member[n] = MEMBER_STOPPED;
    }
}

/* ---- rewriting ---- */

attn_status attn_layout_insert(struct layout *l, struct attn_node *node,
                               const char *op_type, int32_t n_in, const int32_t *in,
                               int32_t out, int32_t n_attrs,
                               const struct attn_attr *attrs)
{
    struct attn_node *made;
    return attn_graph_insert(l->graph, node, "attnrun.fused", op_type, n_in, in, 1, &out,
                             n_attrs, attrs, &made);
}

attn_status attn_layout_blocked(struct layout *l, struct attn_node *node, int32_t value,
                                int32_t *blocked)
{
    if (l->blocked[value] < 0) {
        int32_t made;
        TRY(attn_graph_add_value(l->graph, NULL, &made));
        TRY(attn_layout_insert(l, node, "ToBlocked", 1, &value, made, 0, NULL));
        l->blocked[value] = made;
    }
    *blocked = l->blocked[value];
    return ATTNRUN_OK;
}

/* S, filled up to whole blocks. */
static attn_status make_scale(struct layout *l, int32_t value, int32_t *made)
{
    const attnrun_tensor s = l->graph->values[value].data;
    const int64_t n = round_up(s.dims[0], ATTN_BLOCK);
    void *data;
    TRY(attn_graph_new_constant(l->graph, ATTNRUN_F32, 1, &n, made, &data));
    memset(data, 0, (size_t)n * sizeof(float));
    memcpy(data, s.data, (size_t)s.dims[0] * sizeof(float));
    return ATTNRUN_OK;
}

/* The plain map that a convolution reads: that in 16 bits where a Cast makes it f32. */
static int32_t plain_source(const struct layout *l, const struct attn_node *node)
{
    const struct attn_node *cast = attn_match_in(l->graph, node, 0, "Cast");
    return cast != NULL && attn_stored_narrow(layout_type(l, cast->in[0])->dtype) &&
                   layout_type(l, node->in[0])->dtype == ATTNRUN_F32
               ? cast->in[0]
               : node->in[0];
}

static attn_status make_conv(struct layout *l, struct attn_node *node, int32_t out)
{
    struct attn_attr attrs[BLOCKED_MAX_ATTRS];
    int32_t n = 0, in[5] = { -1, node->in[1], -1, -1, -1 }, n_in = node->pub.n_in;
    const bool plain = reads_plain(l, node) && l->blocked[node->in[0]] < 0;
    for (; n < node->n_attrs; n++)
        attrs[n] = node->attrs[n];
    attrs[n++] = (struct attn_attr)MATCH_INT("channels", layout_channels(l, node->in[0]));
    attrs[n++] = (struct attn_attr)MATCH_INT("plain", plain);
    attrs[n++] =
        (struct attn_attr)MATCH_INT("winograd", !plain && pays_winograd(l, node));
    if (plain)
        in[0] = plain_source(l, node);
    else
        TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    if (n_in > 2)
        in[2] = node->in[2];
    if (n_in > 3 && node->in[3] >= 0)
        TRY(attn_layout_blocked(l, node, node->in[3], &in[3]));
    if (n_in > 4 && node->in[4] >= 0)
        TRY(make_scale(l, node->in[4], &in[4]));
    return attn_layout_insert(l, node, "BlockedConv", n_in, in, out, n, attrs);
}

static attn_status make_pool(struct layout *l, struct attn_node *node, bool max,
                             int32_t out)
{
    struct attn_attr attrs[BLOCKED_MAX_ATTRS];
    int32_t n = 0, in;
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "storage_order") != 0)
            attrs[n++] = node->attrs[i];
    attrs[n++] = (struct attn_attr)MATCH_STRING("kind", max ? "max" : "average");
    TRY(attn_layout_blocked(l, node, node->in[0], &in));
    return attn_layout_insert(l, node, "BlockedPool", 1, &in, out, n, attrs);
}

static attn_status make_gate(struct layout *l, struct attn_node *node, int32_t out)
{
    int32_t in[2];
    const int map = attn_blocked_is_gate(l, node->in[1], node->in[0]) &&
                            attn_match_same_shape(l->graph, node->in[0], node->out[0])
                        ? 0
                        : 1;
    TRY(attn_layout_blocked(l, node, node->in[map], &in[0]));
    TRY(attn_layout_blocked(l, node, node->in[1 - map], &in[1]));
    return attn_layout_insert(l, node, "BlockedGate", 2, in, out, 0, NULL);
}

/* Makes a Slice of blocks [from, to) of a map. */
static attn_status make_slice(struct layout *l, struct attn_node *node, int32_t map,
                              int64_t from, int64_t to, int32_t out)
{
    const int64_t numbers[3] = { from, to, 1 };
    struct attn_node *made;
    int32_t in[4];
    TRY(attn_layout_blocked(l, node, map, &in[0]));
    for (int i = 0; i < 3; i++)
        TRY(attn_match_ints(l->graph, 1, &numbers[i], &in[i + 1]));
    return attn_graph_insert(l->graph, node, "", "Slice", 4, in, 1, &out, 0, NULL, &made);
}

/* Makes a Slice for each output but the first, whose blocked map is `out`. */
static attn_status make_split(struct layout *l, struct attn_node *node, int32_t out)
{
    int64_t from = 0;
    for (int32_t i = 0; i < node->pub.n_out; i++) {
        const int64_t to =
            from + (layout_channels(l, node->out[i]) + ATTN_BLOCK - 1) / ATTN_BLOCK;
        if (i > 0)
            TRY(attn_graph_add_value(l->graph, NULL, &out));
        TRY(make_slice(l, node, node->in[0], from, to, out));
        l->blocked[node->out[i]] = out;
        from = to;
    }
    return ATTNRUN_OK;
}

static attn_status keep_node(struct layout *l, struct attn_node *node, int32_t out)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        int32_t in = node->in[i];
        if (!layout_is_map(l, in) && !layout_is_last(l, in))
            continue;
        TRY(attn_layout_blocked(l, node, in, &in));
        attn_node_set_input(l->graph, node, i, in);
    }
    attn_node_set_output(l->graph, node, 0, out);
    return ATTNRUN_OK;
}

/* Makes one node of blocked maps, which replaces a member and gives `out`. */
static attn_status make_one(struct layout *l, struct attn_node *node, enum member kind,
                            int32_t out)
{
    int64_t from, to;
    int32_t in;
    switch (kind) {
    case MEMBER_CONV:
        return make_conv(l, node, out);
    case MEMBER_MAX_POOL:
    case MEMBER_AVERAGE_POOL:
        return make_pool(l, node, kind == MEMBER_MAX_POOL, out);
    case MEMBER_MEAN:
        TRY(attn_layout_blocked(l, node, node->in[0], &in));
        return attn_layout_insert(l, node, "BlockedMean", 1, &in, out, 0, NULL);
    case MEMBER_GATE:
        return make_gate(l, node, out);
    case MEMBER_SLICE:
        if (attn_blocked_slice(l, node, &from, &to))
            return make_slice(l, node, node->in[0], from, to, out);
        return ATTNRUN_OK;
    case MEMBER_SPREAD:
        return attn_spread_rewrite(l, node, out);
    case MEMBER_RESIZE:
        return attn_resize_rewrite(l, node, out);
    case MEMBER_CBAM:
        return attn_cbam_rewrite(l, node, out);
    case MEMBER_BATCH_NORM:
        return attn_batch_norm_rewrite(l, node, out);
    case MEMBER_SCALE:
    case MEMBER_NORM:
    case MEMBER_PRODUCT:
        return attn_last_rewrite(l, node, kind, out);
    default:
        return attn_quantized_rewrite(l, node, kind, out);
    }
}

/* Rewrites a member: its result is a blocked map, and no node gives the plain one. */
static attn_status rewrite_member(struct layout *l, struct attn_node *node,
                                  enum member kind)
{
    const int32_t value = node->out[0];
    int32_t out;
    if (kind == MEMBER_TO_LAST || kind == MEMBER_TO_FIRST) {
        TRY(attn_layout_blocked(l, node, node->in[0], &l->blocked[value]));
        attn_graph_remove(l->graph, node);
        return ATTNRUN_OK;
    }
    TRY(attn_graph_add_value(l->graph, NULL, &out));
    switch (kind) {
    case MEMBER_SPLIT:
        TRY(make_split(l, node, out));
        attn_graph_remove(l->graph, node);
        return ATTNRUN_OK;
    case MEMBER_AS_IS:
    case MEMBER_CONCAT:
        TRY(keep_node(l, node, out));
        l->blocked[value] = out;
        return ATTNRUN_OK;
    default:
        TRY(make_one(l, node, kind, out));
        attn_graph_remove(l->graph, node);
        l->blocked[value] = out;
        return ATTNRUN_OK;
    }
}

static attn_status make_last(struct layout *l, int32_t map, int32_t last)
{
    static const int64_t perm[4] = { 0, 2, 3, 1 };
    const struct attn_attr attr = { .name = "perm",
                                    .kind = ATTN_ATTR_INTS,
                                    .ints = { perm, 4 } };
    struct attn_node *made;
    return attn_graph_insert(l->graph, NULL, "", "Transpose", 1, &map, 1, &last, 1, &attr,
                             &made);
}

/* Gives the plain maps of members that are still read. */
static attn_status close_borders(struct layout *l)
{
    for (int32_t value = 0; value < l->n_values; value++) {
        const struct attn_value *v = &l->graph->values[value];
        if (l->blocked[value] < 0 || v->producer >= 0 || (v->flags & ATTN_VALUE_INPUT) ||
            (v->flags & ATTN_VALUE_CAPTURE))
            continue;
        if (v->n_uses == 0) { /* so that plans and profiles have the file's name */
            attn_graph_swap_names(l->graph, value, l->blocked[value]);
            continue;
        }
        const struct attn_attr attrs[] = {
            MATCH_INT("channels", layout_channels(l, value)),
            MATCH_INT("is_signed", layout_type(l, value)->dtype == ATTNRUN_I8)
        };
        int32_t first = value;
        if (layout_is_last(l, value))
            TRY(attn_graph_add_value(l->graph, NULL, &first));
        TRY(attn_layout_insert(l, NULL, "FromBlocked", 1, &l->blocked[value], first, 2,
                               attrs));
        if (first != value)
            TRY(make_last(l, first, value));
    }
    return ATTNRUN_OK;
}

static attn_status rewrite_runs(struct layout *l, int32_t *applied)
{
    const int32_t before = *applied;
    for (int32_t value = 0; value < l->n_values; value++)
        l->blocked[value] = -1;
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++) {
        const enum member kind = l->member[n];
        if (kind == MEMBER_NONE || kind == MEMBER_STOPPED)
            continue;
        TRY(rewrite_member(l, l->graph->nodes[n], kind));
        ++*applied;
    }
    return *applied > before ? close_borders(l) : ATTNRUN_OK;
}

static attn_status run_blocked_layout(struct attn_graph *graph, int32_t *applied)
{
    struct layout l = { .graph = graph,
                        .n_nodes = graph->n_nodes,
                        .n_values = graph->n_values };
    struct attn_pool pool;
    attn_status status = ATTNRUN_E_MEMORY;
    bool any = false;
    for (int64_t n = 0; n < graph->n_nodes && !any; n++)
        any = graph->nodes[n] != NULL && (attn_blocked_is_conv(graph->nodes[n]) ||
                                          attn_quantized_is_conv(graph->nodes[n]));
    if (!any)
        return ATTNRUN_OK;
    attn_pool_init(&pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    l.member = attn_pool_alloc(&pool, l.n_nodes);
    l.run = attn_pool_alloc(&pool, l.n_nodes * (int64_t)sizeof *l.run);
    l.convs = attn_pool_alloc(&pool, l.n_nodes * (int64_t)sizeof *l.convs);
    l.gain = attn_pool_alloc(&pool, l.n_nodes * (int64_t)sizeof *l.gain);
    l.blocked = attn_pool_alloc(&pool, l.n_values * (int64_t)sizeof *l.blocked);
    l.last = attn_pool_alloc(&pool, l.n_values);
    if (l.member != NULL && l.run != NULL && l.convs != NULL && l.gain != NULL &&
        l.blocked != NULL && l.last != NULL) {
        memset(l.last, 0, (size_t)l.n_values);
        memset(l.member, 0, (size_t)l.n_nodes);
        memset(l.convs, 0, (size_t)l.n_nodes * sizeof *l.convs);
        for (int64_t n = 0; n < l.n_nodes; n++)
            l.gain[n] = 0;
        find_runs(&l);
        status = rewrite_runs(&l, applied);
    }
    attn_pool_free(&pool);
    return status;
}

const struct attn_pass attn_pass_blocked_layout = { .name = "blocked_layout",
                                                    .run = run_blocked_layout,
                                                    .last = true };

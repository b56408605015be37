/* blocked_layout.c - runs of convolutions, pooling and elementwise nodes over maps go to maps
 * in blocks of 16 channels, [N, ceil(C / 16), H, W, 16] (ops/image/blocked.h), which are
 * ordinary tensors: elementwise nodes stay as they are.
 *
 *   Conv, FusedConv with constant weights          BlockedConv
 *   MaxPool, AveragePool                           BlockedPool
 *   GlobalAveragePool, ReduceMean over the pixels  BlockedMean
 *   Mul of a map and a factor for each channel     BlockedGate
 *   Concat of whole blocks; elementwise nodes      the same node
 *
 * A first walk finds out which nodes can be members of runs: every convolution of the forms
 * that BlockedConv takes, and what reads a member. Members that read each other are a run. It
 * is taken where what its convolutions gain pays for its borders, where ToBlocked and
 * FromBlocked copy the map; convolutions of few channels read plain maps. A second walk
 * rewrites the members of these runs. Late: conv_epilogue and others come first. */
#include "../../runtime/poll.h"
#include "../kernels/kernel_types.h"
#include "match.h"

enum member {
    MEMBER_NONE,
    MEMBER_CONV,
    MEMBER_MAX_POOL,
    MEMBER_AVERAGE_POOL,
    MEMBER_MEAN,
    MEMBER_GATE,   /* in[0] is the map, in[1] the gate, or the other way round */
    MEMBER_AS_IS,  /* all inputs that are maps become blocked ones */
    MEMBER_CONCAT, /* axis 1 */
    MEMBER_STOPPED
};
enum { MOST_ATTRS = 15, PLAIN_CHANNELS = 16, LEAST_WINOGRAD = 32, LEAST_TILES = 40 };

struct layout {
    struct attn_graph *graph;
    int64_t n_nodes, n_values; /* before any edit */
    uint8_t *member;           /* of each node */
    int32_t *run;     /* of each node: the next node on the way to the run's first */
    int32_t *convs;   /* of a run's first node */
    double *gain;     /* nanoseconds, less those of borders */
    int32_t *blocked; /* of each value: the blocked one, or -1 */
};

/* ---- what a value is ---- */

static const attnrun_type *type_of(const struct layout *l, int32_t value)
{
    return &l->graph->values[value].type;
}

/* A plain map of known channels. */
static bool is_map(const struct layout *l, int32_t value)
{
    if (value < 0 || !attn_match_is_f32(l->graph, value))
        return false;
    const attnrun_type *t = type_of(l, value);
    return t->rank == 4 && dim_is_const(t->dims[1]) && t->dims[1].value > 0 &&
           !match_is_constant(l->graph, value);
}

/* The member that gives a value, or -1. */
static int32_t giver(const struct layout *l, int32_t value)
{
    const struct attn_node *node =
        value >= 0 && value < l->n_values ? attn_graph_producer(l->graph, value) : NULL;
    if (node == NULL || node->pub.index >= l->n_nodes ||
        l->member[node->pub.index] == MEMBER_NONE ||
        l->member[node->pub.index] == MEMBER_STOPPED || node->out[0] != value)
        return -1;
    return node->pub.index;
}

static bool is_member_map(const struct layout *l, int32_t value)
{
    return is_map(l, value) && giver(l, value) >= 0;
}

static int64_t channels_of(const struct layout *l, int32_t value)
{
    return type_of(l, value)->dims[1].value;
}

/* Elements of a map; where sizes are not known, a guess of some. */
static double elements_of(const struct layout *l, int32_t value)
{
    const attnrun_type *t = type_of(l, value);
    double n = 1.0;
    for (int i = 0; i < t->rank; i++)
        n *= dim_is_const(t->dims[i]) ? (double)t->dims[i].value : i == 0 ? 1.0 : 28.0;
    return n;
}

/* [N, C, 1, 1] for a map [N, C, H, W]. */
static bool is_gate_of(const struct layout *l, int32_t gate, int32_t map)
{
    if (!is_map(l, gate))
        return false;
    const attnrun_type *g = type_of(l, gate), *m = type_of(l, map);
    return dim_is(g->dims[2], 1) && dim_is(g->dims[3], 1) &&
           dim_equal(g->dims[1], m->dims[1]) &&
           (dim_equal(g->dims[0], m->dims[0]) || dim_is(g->dims[0], 1));
}

/* ---- which nodes can be members ---- */

static bool is_conv(const struct attn_node *node)
{
    return node_is(node, "Conv") || node_is_of(node, "attnrun.fused", "FusedConv");
}

static bool can_conv(const struct layout *l, const struct attn_node *node)
{
    const struct attn_graph *graph = l->graph;
    if (!is_conv(node) || !is_map(l, node->in[0]) || !is_map(l, node->out[0]) ||
        !match_is_constant(graph, node->in[1]) || node->n_attrs > MOST_ATTRS - 3)
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    if (w->dtype != ATTNRUN_F32 || w->rank != 4)
        return false;
    if (node->pub.n_in > 2 && node->in[2] >= 0 &&
        (!match_is_constant(graph, node->in[2]) ||
         graph->values[node->in[2]].data.dtype != ATTNRUN_F32))
        return false;
    if (node->pub.n_in > 3 && node->in[3] >= 0 && !is_map(l, node->in[3]))
        return false;
    const int64_t group = attn_match_int(node, "group", 1), rows = w->dims[0];
    const int64_t channels = channels_of(l, node->in[0]);
    for (int i = 0; i < 4; i++)
        if (w->dims[i] < 1)
            return false;
    if (group < 1 || w->dims[1] * group != channels)
        return false;
    const bool by_itself = group == channels && group == rows;
    return group == 1 || by_itself ||
           (w->dims[1] % ATTN_BLOCK == 0 && rows / group % ATTN_BLOCK == 0);
}

static bool is_elementwise(const struct attn_node *node)
{
    static const char *const names[] = {
        "Relu",      "Sigmoid",
        "Tanh",      "HardSigmoid",
        "HardSwish", "Swish",
        "Clip",      "LeakyRelu",
        "Elu",       "Celu",
        "Selu",      "Softplus",
        "Gelu",      "Mish",
        "Softsign",  "Abs",
        "Neg",       "Exp",
        "Square",    "Sqrt",
        "Erf",       "ThresholdedRelu",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (node_is(node, names[i]))
            return true;
    return node->pub.n_in == 1 && (node_is_of(node, "com.microsoft", "Gelu") ||
                                   node_is_of(node, "com.microsoft", "QuickGelu"));
}

/* Operands of a binary node: maps of members of one shape, or one and a number. */
static bool can_binary(const struct layout *l, const struct attn_node *node)
{
    static const char *const names[] = { "Add", "Sub", "Mul", "Div", "Max", "Min" };
    bool known = false;
    int maps = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known = known || node_is(node, names[i]);
    if (!known || node->pub.n_in != 2 || node->pub.opset < 8)
        return false;
    for (int i = 0; i < 2; i++) {
        double x;
        const bool same = is_member_map(l, node->in[i]) &&
                          attn_match_same_shape(l->graph, node->in[i], node->out[0]);
        if (same)
            maps++;
        else if (!attn_value_scalar(l->graph, node->in[i], &x) ||
                 type_of(l, node->in[i])->rank > 4)
            return false;
    }
    return maps > 0;
}

static bool can_gate(const struct layout *l, const struct attn_node *node)
{
    if (!node_is(node, "Mul") || node->pub.opset < 7)
        return false;
    for (int i = 0; i < 2; i++)
        if (is_member_map(l, node->in[i]) &&
            attn_match_same_shape(l->graph, node->in[i], node->out[0]) &&
            is_gate_of(l, node->in[1 - i], node->in[i]))
            return true;
    return false;
}

static bool can_concat(const struct layout *l, const struct attn_node *node)
{
    if (!node_is(node, "Concat") || attn_match_int(node, "axis", 0) != 1)
        return false;
    for (int32_t i = 0; i < node->pub.n_in; i++)
        if (!is_member_map(l, node->in[i]) ||
            (i + 1 < node->pub.n_in && channels_of(l, node->in[i]) % ATTN_BLOCK != 0))
            return false;
    return node->pub.n_in > 0;
}

/* ReduceMean over axes 2 and 3 that keeps them. */
static bool is_mean(const struct layout *l, const struct attn_node *node)
{
    if (node_is(node, "GlobalAveragePool"))
        return true;
    if (!node_is(node, "ReduceMean") || attn_match_int(node, "keepdims", 1) != 1)
        return false;
    const struct attn_attr *attr = attn_node_attr(node, "axes");
    int64_t axes[2];
    if (attr != NULL && attr->kind == ATTN_ATTR_INTS && attr->ints.n == 2) {
        axes[0] = attr->ints.v[0];
        axes[1] = attr->ints.v[1];
    } else if (node->pub.n_in == 2 && match_is_constant(l->graph, node->in[1])) {
        const attnrun_tensor *t = &l->graph->values[node->in[1]].data;
        if (t->dtype != ATTNRUN_I64 || t->rank != 1 || t->dims[0] != 2)
            return false;
        memcpy(axes, t->data, sizeof axes);
    } else {
        return false;
    }
    for (int i = 0; i < 2; i++)
        axes[i] += axes[i] < 0 ? 4 : 0;
    return (axes[0] == 2 && axes[1] == 3) || (axes[0] == 3 && axes[1] == 2);
}

static bool can_pool(const struct attn_node *node)
{
    const struct attn_attr *kernel = attn_node_attr(node, "kernel_shape");
    if (node->pub.n_out > 1 && node->out[1] >= 0)
        return false;
    return kernel != NULL && kernel->kind == ATTN_ATTR_INTS && kernel->ints.n == 2 &&
           node->n_attrs <= MOST_ATTRS - 1;
}

static enum member member_kind(const struct layout *l, const struct attn_node *node)
{
    if (node == NULL || node->n_graphs > 0 || node->pub.n_in < 1 || node->pub.n_out < 1 ||
        node->out[0] < 0 || !is_map(l, node->out[0]))
        return MEMBER_NONE;
    if (can_conv(l, node))
        return MEMBER_CONV;
    if (can_concat(l, node))
        return MEMBER_CONCAT;
    if (can_binary(l, node))
        return MEMBER_AS_IS;
    if (can_gate(l, node))
        return MEMBER_GATE;
    if (!is_member_map(l, node->in[0]))
        return MEMBER_NONE;
    if (is_elementwise(node) &&
        attn_match_same_shape(l->graph, node->in[0], node->out[0]))
        return MEMBER_AS_IS;
    if (node_is(node, "MaxPool") && can_pool(node))
        return MEMBER_MAX_POOL;
    if (node_is(node, "AveragePool") && can_pool(node))
        return MEMBER_AVERAGE_POOL;
    return is_mean(l, node) ? MEMBER_MEAN : MEMBER_NONE;
}

/* ---- runs ---- */

static int32_t first_of(struct layout *l, int32_t node)
{
    while (l->run[node] != node)
        node = l->run[node] = l->run[l->run[node]];
    return node;
}

/* What a convolution saves; measured on AVX-512, with products of long sums the least. */
static double conv_gain(const struct layout *l, const struct attn_node *node)
{
    const attnrun_tensor *w = &l->graph->values[node->in[1]].data;
    const double outputs = elements_of(l, node->out[0]);
    const double products = (double)(w->dims[1] * w->dims[2] * w->dims[3]) * outputs;
    return products * 0.0015 + outputs * 0.2;
}

static bool reads_plain(const struct layout *l, const struct attn_node *node)
{
    return giver(l, node->in[0]) < 0 && channels_of(l, node->in[0]) <= PLAIN_CHANNELS &&
           attn_match_int(node, "group", 1) == 1;
}

enum { COPY_PICOSECONDS = 500 /* of an element */ };
static double border(const struct layout *l, int32_t value)
{
    return elements_of(l, value) * COPY_PICOSECONDS * 1e-3;
}

/* Joins a member with those it reads, and counts what it gains and what its inputs cost. */
static void enter_member(struct layout *l, struct attn_node *node)
{
    const int32_t n = node->pub.index;
    const bool conv = l->member[n] == MEMBER_CONV;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const int32_t from = giver(l, node->in[i]);
        if (from >= 0) {
            const int32_t a = first_of(l, from), b = first_of(l, n);
            if (a == b)
                continue;
            l->run[b] = a;
            l->convs[a] += l->convs[b];
            l->gain[a] += l->gain[b];
        } else if (is_map(l, node->in[i]) && !(conv && i == 0 && reads_plain(l, node))) {
            l->gain[first_of(l, n)] -= border(l, node->in[i]);
        }
    }
    if (!conv)
        return;
    l->convs[first_of(l, n)]++;
    l->gain[first_of(l, n)] += conv_gain(l, node);
}

/* Whether somebody reads a member's result who is none. */
static bool leaves(const struct layout *l, const struct attn_node *node)
{
    const struct attn_value *v = &l->graph->values[node->out[0]];
    int32_t inside = 0;
    for (const struct attn_use *use = v->uses; use != NULL; use = use->next) {
        const struct attn_node *user = use->node;
        inside += user != NULL && use->inner == NULL && l->member[user->pub.index];
    }
    return inside < v->n_uses;
}

static void find_runs(struct layout *l)
{
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++) {
        l->run[n] = (int32_t)n;
        l->member[n] = MEMBER_NONE;
        l->member[n] = (uint8_t)member_kind(l, l->graph->nodes[n]);
        if (l->member[n] != MEMBER_NONE)
            enter_member(l, l->graph->nodes[n]);
    }
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++)
        if (l->member[n] != MEMBER_NONE && leaves(l, l->graph->nodes[n]))
            l->gain[first_of(l, (int32_t)n)] -= border(l, l->graph->nodes[n]->out[0]);
    for (int64_t n = 0; n < l->n_nodes && !attn_stops_node(n); n++) {
        const int32_t first = first_of(l, (int32_t)n);
        if (l->member[n] != MEMBER_NONE && (l->convs[first] < 2 || l->gain[first] <= 0))
            l->member[n] = MEMBER_STOPPED;
    }
}

/* ---- rewriting ---- */

static attn_status insert(struct layout *l, struct attn_node *node, const char *op_type,
                          int32_t n_in, const int32_t *in, int32_t out, int32_t n_attrs,
                          const struct attn_attr *attrs)
{
    struct attn_node *made;
    return attn_graph_insert(l->graph, node, "attnrun.fused", op_type, n_in, in, 1, &out,
                             n_attrs, attrs, &made);
}

/* The blocked form of a map: that of a member, or a copy before `node`. */
static attn_status find_blocked(struct layout *l, struct attn_node *node, int32_t value,
                                int32_t *blocked)
{
    if (l->blocked[value] < 0) {
        int32_t made;
        TRY(attn_graph_add_value(l->graph, NULL, &made));
        TRY(insert(l, node, "ToBlocked", 1, &value, made, 0, NULL));
        l->blocked[value] = made;
    }
    *blocked = l->blocked[value];
    return ATTNRUN_OK;
}

static bool all_ones(const struct attn_node *node, const char *name)
{
    const struct attn_attr *attr = attn_node_attr(node, name);
    bool ones = attr == NULL || attr->kind == ATTN_ATTR_INTS;
    for (int64_t i = 0; ones && attr != NULL && i < attr->ints.n; i++)
        ones = attr->ints.v[i] == 1;
    return ones;
}

/* Tiles of 2 x 2 outputs pay where there are many channels, and tiles enough to read the
 * weights for, which are 16 / 9 times as many. */
static bool pays_winograd(const struct layout *l, const struct attn_node *node)
{
    const attnrun_tensor *w = &l->graph->values[node->in[1]].data;
    const attnrun_type *y = type_of(l, node->out[0]);
    double tiles = 1.0, pixels = 1.0;
    for (int i = 2; i < 4; i++) {
        const int64_t n = dim_is_const(y->dims[i]) ? y->dims[i].value : 28;
        tiles *= (double)(n / 2 + n % 2);
        pixels *= (double)n;
    }
    return w->dims[2] == 3 && w->dims[3] == 3 && w->dims[0] >= LEAST_WINOGRAD &&
           w->dims[1] >= LEAST_WINOGRAD && attn_match_int(node, "group", 1) == 1 &&
           all_ones(node, "strides") && all_ones(node, "dilations") &&
           tiles >= LEAST_TILES && pixels > 3.0 * tiles;
}

static attn_status make_conv(struct layout *l, struct attn_node *node, int32_t out)
{
    struct attn_attr attrs[MOST_ATTRS];
    int32_t n = 0, in[4] = { -1, node->in[1], -1, -1 }, n_in = node->pub.n_in;
    const bool plain = reads_plain(l, node) && l->blocked[node->in[0]] < 0;
    for (; n < node->n_attrs; n++)
        attrs[n] = node->attrs[n];
    attrs[n++] = (struct attn_attr)MATCH_INT("channels", channels_of(l, node->in[0]));
    attrs[n++] = (struct attn_attr)MATCH_INT("plain", plain);
    attrs[n++] =
        (struct attn_attr)MATCH_INT("winograd", !plain && pays_winograd(l, node));
    in[0] = node->in[0];
    if (!plain)
        TRY(find_blocked(l, node, node->in[0], &in[0]));
    if (n_in > 2)
        in[2] = node->in[2];
    if (n_in > 3 && node->in[3] >= 0)
        TRY(find_blocked(l, node, node->in[3], &in[3]));
    return insert(l, node, "BlockedConv", n_in, in, out, n, attrs);
}

static attn_status make_pool(struct layout *l, struct attn_node *node, bool max,
                             int32_t out)
{
    struct attn_attr attrs[MOST_ATTRS];
    int32_t n = 0, in;
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "storage_order") != 0)
            attrs[n++] = node->attrs[i];
    attrs[n++] = (struct attn_attr)MATCH_STRING("kind", max ? "max" : "average");
    TRY(find_blocked(l, node, node->in[0], &in));
    return insert(l, node, "BlockedPool", 1, &in, out, n, attrs);
}

static attn_status make_gate(struct layout *l, struct attn_node *node, int32_t out)
{
    int32_t in[2];
    const int map = is_gate_of(l, node->in[1], node->in[0]) &&
                            attn_match_same_shape(l->graph, node->in[0], node->out[0])
                        ? 0
                        : 1;
    TRY(find_blocked(l, node, node->in[map], &in[0]));
    TRY(find_blocked(l, node, node->in[1 - map], &in[1]));
    return insert(l, node, "BlockedGate", 2, in, out, 0, NULL);
}

static attn_status keep_node(struct layout *l, struct attn_node *node, int32_t out)
{
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        int32_t in = node->in[i];
        if (!is_map(l, in))
            continue;
        TRY(find_blocked(l, node, in, &in));
        attn_node_set_input(l->graph, node, i, in);
    }
    attn_node_set_output(l->graph, node, 0, out);
    return ATTNRUN_OK;
}

/* The member's result is a blocked map from now on; nothing gives the plain one. */
static attn_status rewrite_member(struct layout *l, struct attn_node *node,
                                  enum member kind)
{
    const int32_t value = node->out[0];
    int32_t out, in;
    TRY(attn_graph_add_value(l->graph, NULL, &out));
    switch (kind) {
    case MEMBER_CONV:
        TRY(make_conv(l, node, out));
        break;
    case MEMBER_MAX_POOL:
    case MEMBER_AVERAGE_POOL:
        TRY(make_pool(l, node, kind == MEMBER_MAX_POOL, out));
        break;
    case MEMBER_MEAN:
        TRY(find_blocked(l, node, node->in[0], &in));
        TRY(insert(l, node, "BlockedMean", 1, &in, out, 0, NULL));
        break;
    case MEMBER_GATE:
        TRY(make_gate(l, node, out));
        break;
    default:
        TRY(keep_node(l, node, out));
        l->blocked[value] = out;
        return ATTNRUN_OK;
    }
    attn_graph_remove(l->graph, node);
    l->blocked[value] = out;
    return ATTNRUN_OK;
}

/* Gives the plain maps of members that are still read. */
static attn_status close_borders(struct layout *l)
{
    for (int32_t value = 0; value < l->n_values; value++) {
        const struct attn_value *v = &l->graph->values[value];
        if (l->blocked[value] < 0 || v->producer >= 0 || (v->flags & ATTN_VALUE_INPUT) ||
            (v->flags & ATTN_VALUE_CAPTURE))
            continue;
        if (v->n_uses == 0) { /* plans and profiles show the name that the file has */
            attn_graph_swap_names(l->graph, value, l->blocked[value]);
            continue;
        }
        const struct attn_attr attr = MATCH_INT("channels", channels_of(l, value));
        TRY(insert(l, NULL, "FromBlocked", 1, &l->blocked[value], value, 1, &attr));
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

static attn_status run(struct attn_graph *graph, int32_t *applied)
{
    struct layout l = { graph, graph->n_nodes, graph->n_values, NULL, NULL, NULL, NULL,
                        NULL };
    struct attn_pool pool;
    attn_status status = ATTNRUN_E_MEMORY;
    bool any = false;
    for (int64_t n = 0; n < graph->n_nodes && !any; n++)
        any = graph->nodes[n] != NULL && is_conv(graph->nodes[n]);
    if (!any)
        return ATTNRUN_OK;
    attn_pool_init(&pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    l.member = attn_pool_alloc(&pool, l.n_nodes);
    l.run = attn_pool_alloc(&pool, l.n_nodes * (int64_t)sizeof *l.run);
    l.convs = attn_pool_alloc(&pool, l.n_nodes * (int64_t)sizeof *l.convs);
    l.gain = attn_pool_alloc(&pool, l.n_nodes * (int64_t)sizeof *l.gain);
    l.blocked = attn_pool_alloc(&pool, l.n_values * (int64_t)sizeof *l.blocked);
    if (l.member != NULL && l.run != NULL && l.convs != NULL && l.gain != NULL &&
        l.blocked != NULL) {
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
                                                    .run = run,
                                                    .late = true };

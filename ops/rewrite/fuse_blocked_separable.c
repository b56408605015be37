/* fuse_blocked_separable.c - a depthwise convolution and the convolutions of one pixel around it
 * become one node, which computes large maps in strips of lines that stay in L2:
 *
 *   before                                               after
 *   BlockedConv 1 x 1, depthwise, BlockedConv 1 x 1      BlockedSeparable
 *   the first two of them, or the last two               BlockedSeparable
 *
 * In: the nodes that blocked_layout.c and blocked_epilogue.c have written, with weights of one
 * type. Out: a graph without the maps between them. The pass fuses two nodes only if the map
 * between them has no other reader and would not stay in L2. It leaves products of bf16 alone:
 * they are faster apart, and ops/image/blocked_separable.c multiplies floats. */
#include "../kernels/kernels.h"
#include "match.h"

enum { MAX_ATTRS = 16, S = 4, MAX_IN = 11 };
enum {
    LARGE_BYTES = 9 << 16, /* of a map: it leaves L2 before it is read */
    LINE_BYTES = 3 << 18   /* of the lines that one line of the result sees: they fit */
};

/* A BlockedConv of floats by constants, whose channels fill one group or are each by itself. */
static bool is_conv(const struct attn_graph *graph, const struct attn_node *node)
{
    if (node == NULL || !node_is_of(node, "attnrun.fused", "BlockedConv") ||
        node->pub.n_in < 2 || !match_is_constant(graph, node->in[1]) ||
        graph->values[node->in[1]].data.rank != 4 ||
        !attn_match_is_f32_of(graph, node->in[0], 5))
        return false;
    for (int in = 2; in < node->pub.n_in; in++)
        if (in != 3 && node->in[in] >= 0 &&
            (!match_is_constant(graph, node->in[in]) ||
             !attn_match_is_f32_of(graph, node->in[in], 1)))
            return false;
    return attn_match_int(node, "plain", 0) == 0 &&
           attn_match_int(node, "winograd", 0) == 0 &&
           attn_match_int(node, "transposed", 0) == 0 &&
           attn_match_int(node, "to_bf16", 0) == 0;
}

static const int64_t *weights(const struct attn_graph *graph,
                              const struct attn_node *conv)
{
    return graph->values[conv->in[1]].data.dims;
}

static bool adds_map(const struct attn_node *conv)
{
    return conv->pub.n_in > 3 && conv->in[3] >= 0;
}

static bool is_pointwise(const struct attn_graph *graph, const struct attn_node *node)
{
    if (!is_conv(graph, node))
        return false;
    const int64_t *w = weights(graph, node);
    return w[2] == 1 && w[3] == 1 && attn_match_int(node, "group", 1) == 1 &&
           attn_match_all(node, "strides", 1) && attn_match_all(node, "pads", 0);
}

static bool is_by_itself(const struct attn_graph *graph, const struct attn_node *node)
{
    if (!is_conv(graph, node) || adds_map(node))
        return false;
    const int64_t group = attn_match_int(node, "group", 1);
    return group > 1 && group == weights(graph, node)[0] &&
           weights(graph, node)[1] == 1 && group == attn_match_int(node, "channels", 0);
}

/* Bytes of a map of one image, and of one line of it; false where they are not known. */
static bool bytes_of(const struct attn_graph *graph, int32_t value, double *map,
                     double *line)
{
    const attnrun_type *t = &graph->values[value].type;
    if (t->rank != 5 || !dim_is_const(t->dims[1]) || !dim_is_const(t->dims[2]) ||
        !dim_is_const(t->dims[3]))
        return false;
    *line = (double)t->dims[1].value * (double)t->dims[3].value * ATTN_BLOCK * 4.0;
    *map = *line * (double)t->dims[2].value;
    return true;
}

/* Whether a map that one convolution gives and another reads is worth strips, of which one line
 * sees `lines` of it. */
static bool pays(const struct attn_graph *graph, int32_t value, int64_t lines)
{
    double map, line;
    return bytes_of(graph, value, &map, &line) && map >= LARGE_BYTES &&
           line * (double)lines <= LINE_BYTES;
}

/* Lines that one line of the result sees. */
static int64_t lines_seen(const struct attn_graph *graph, const struct attn_node *own)
{
    return (weights(graph, own)[2] - 1) * attn_match_int_at(own, "dilations", 0, 1) + 1;
}

/* The weights of one node are of one type. */
static bool same_type(const struct attn_graph *graph, const struct attn_node *a,
                      const struct attn_node *b)
{
    return graph->values[a->in[1]].data.dtype == graph->values[b->in[1]].data.dtype;
}

/* ---- the node ---- */

struct made {
    struct attn_attr attrs[MAX_ATTRS];
    int32_t n_attrs;
    int32_t in[MAX_IN];
};

static void add_activation(struct made *made, const struct attn_node *conv,
                           const char *const names[3])
{
    static const char *const from[3] = { "activation", "alpha", "beta" };
    for (int i = 0; i < 3; i++) {
        const struct attn_attr *attr = attn_node_attr(conv, from[i]);
        if (attr == NULL)
            continue;
        made->attrs[made->n_attrs] = *attr;
        made->attrs[made->n_attrs++].name = names[i];
    }
}

static void add_weights(struct made *made, int at, const struct attn_node *conv)
{
    made->in[at] = conv->in[1];
    made->in[at + 1] = conv->pub.n_in > 2 ? conv->in[2] : -1;
    made->in[at + 2] = conv->pub.n_in > S ? conv->in[S] : -1;
}

static void describe(struct made *made, const struct attn_node *first,
                     const struct attn_node *own, const struct attn_node *last)
{
    static const char *const window[] = { "auto_pad", "kernel_shape", "strides", "pads",
                                          "dilations" };
    static const char *const names[3][3] = {
        { "expand", "expand_alpha", "expand_beta" },
        { "activation", "alpha", "beta" },
        { "project", "project_alpha", "project_beta" },
    };
    const struct attn_node *reader = first != NULL ? first : own;
    made->n_attrs = 0;
    for (size_t i = 0; i < sizeof window / sizeof *window; i++)
        if (attn_node_attr(own, window[i]) != NULL)
            made->attrs[made->n_attrs++] = *attn_node_attr(own, window[i]);
    made->attrs[made->n_attrs++] =
        (struct attn_attr)MATCH_INT("channels", attn_match_int(reader, "channels", 0));
    for (int i = 0; i < MAX_IN; i++)
        made->in[i] = -1;
    made->in[0] = reader->in[0];
    add_weights(made, 1, own);
    add_activation(made, own, names[1]);
    if (first != NULL) {
        add_weights(made, 4, first);
        add_activation(made, first, names[0]);
    }
    if (last != NULL) {
        add_weights(made, 7, last);
        add_activation(made, last, names[2]);
        made->in[10] = adds_map(last) ? last->in[3] : -1;
    }
}

static attn_status join_convolutions(struct attn_graph *graph, struct attn_node *first,
                                     struct attn_node *own, struct attn_node *last)
{
    struct attn_node *const end = last != NULL ? last : own;
    const int32_t old = end->out[0];
    const bool named = (graph->values[old].flags & ATTN_VALUE_OUTPUT) != 0;
    struct made made;
    struct attn_node *node;
    int32_t out;
    describe(&made, first, own, last);
    TRY(attn_graph_add_value(graph, NULL, &out));
    graph->values[out].type = graph->values[old].type; /* which the next one looks at */
    TRY(attn_graph_insert(graph, end, "attnrun.fused", "BlockedSeparable", MAX_IN,
                          made.in, 1, &out, made.n_attrs, made.attrs, &node));
    attn_graph_replace(graph, old, out);
    attn_graph_remove(graph, end);
    if (end != own)
        attn_graph_remove(graph, own);
    if (first != NULL)
        attn_graph_remove(graph, first);
    if (!named) /* else it has the name already */
        attn_graph_swap_names(graph, old, out);
    return ATTNRUN_OK;
}

static attn_status try_own(struct attn_graph *graph, struct attn_node *own,
                           int32_t *applied)
{
    if (attn_model_kernels(graph->model)->dots_bf16 || own->pub.n_in < 2 ||
        !is_by_itself(graph, own))
        return ATTNRUN_OK;
    struct attn_node *first = attn_graph_producer(graph, own->in[0]);
    struct attn_node *last = attn_graph_only_user(graph, own->out[0]);
    if (!is_pointwise(graph, first) || adds_map(first) ||
        attn_graph_only_user(graph, own->in[0]) != own ||
        !pays(graph, own->in[0], lines_seen(graph, own)))
        first = NULL;
    if (!is_pointwise(graph, last) || last->in[0] != own->out[0] ||
        (adds_map(last) && last->in[3] == own->out[0]) ||
        (first == NULL && !pays(graph, own->out[0], 1)))
        last = NULL;
    if ((first != NULL && !same_type(graph, first, own)) ||
        (last != NULL && !same_type(graph, last, own)) || (first == NULL && last == NULL))
        return ATTNRUN_OK;
    ++*applied;
    return join_convolutions(graph, first, own, last);
}

const struct attn_pass attn_pass_blocked_separable = { .name = "blocked_separable",
                                                       .try_node = try_own,
                                                       .last = true };

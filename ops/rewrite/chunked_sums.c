/* chunked_sums.c - a loop over chunks of tokens that carries cumulative sums from chunk to chunk,
 * as an exporter unrolls it, becomes what it computes without chunks. performer-pytorch writes its
 * causal attention so.
 *
 *   T_i = last of T_{i-1} + CumSum(f(x_i)),  y_i = g(x_i, T_i),  Y = Concat(y_0, y_1, …)
 *   T = CumSum(f(X)),  Y = g(X, T)
 *
 * x_i are the outputs of Splits of some X. f and g are nodes that treat each token by itself:
 * Einsum, and arithmetic with numbers or with each other. All chunks must have the same nodes, but
 * for the first one, which has no sum before it. Every CumSum of a chunk carries its sum.
 * In: a Concat. Out: the nodes of one chunk on all tokens. Cost: a few steps for each node of each
 * chunk, once. Rounding differs as the order of the sums does. */
#include "../../runtime/fold.h"
#include "../../runtime/poll.h"
#include "product.h"

enum { MAX_VALUES = 32, MAX_DEPTH = 16 };

/* A value of the first chunk. */
struct chunk_value {
    int32_t first;  /* its id */
    int32_t here;   /* the same of the chunk at hand; -1: not found yet */
    int32_t before; /* of the chunk before it */
    int32_t whole;  /* the same of all tokens; -1: not made yet */
    int axis;       /* that of the tokens */
    bool sums;      /* a CumSum along it */
};

struct chunks {
    struct attn_graph *graph;
    struct attn_node *concat;
    struct chunk_value values[MAX_VALUES];
    int n;
    int32_t number; /* of the chunk at hand */
    int64_t size;   /* its tokens; 0: not read yet */
};

static struct chunk_value *find_value(struct chunks *c, int32_t first)
{
    for (int i = 0; i < c->n; i++)
        if (c->values[i].first == first)
            return &c->values[i];
    return NULL;
}

/* ---- the first chunk ---- */

/* Of a Split or a Concat; a Split may have no first output. */
static int64_t axis_of(const struct chunks *c, const struct attn_node *node)
{
    const int64_t axis = attn_match_int(node, "axis", 0);
    return axis < 0 ? axis + match_type(c->graph, node->in[0])->rank : axis;
}

/* Whether a node is arithmetic on operands of one rank and constants of one element. */
static bool is_arithmetic(const struct attn_node *node)
{
    static const char *const words[] = { "Add", "Sub",        "Mul", "Div",
                                         "Neg", "Reciprocal", "Exp", "Relu" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (node_is(node, words[i]))
            return true;
    return false;
}

static bool read_value(struct chunks *c, int32_t value, int depth, int *axis);

/* The axis of tokens of an arithmetic node. */
static bool read_arithmetic(struct chunks *c, const struct attn_node *node, int depth,
                            int *axis)
{
    double x;
    *axis = -1;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        int own;
        if (attn_value_scalar(c->graph, node->in[i], &x))
            continue;
        if (!read_value(c, node->in[i], depth, &own) || (*axis >= 0 && own != *axis) ||
            !attn_match_same_rank(c->graph, node->in[i], node->out[0]))
            return false;
        *axis = own;
    }
    return *axis >= 0;
}

/* The axis of tokens of an Einsum, whose label all operands have. */
static bool read_einsum(struct chunks *c, const struct attn_node *node, int depth,
                        int *axis)
{
    struct attn_product p;
    char label = 0;
    if (!attn_einsum_read(c->graph, node, &p))
        return false;
    for (int i = 0; i < p.n_in; i++) {
        int own;
        if (!read_value(c, p.in[i].value, depth, &own) ||
            (label != 0 && p.in[i].labels[own] != label))
            return false;
        label = p.in[i].labels[own];
    }
    if (label == 0 || !attn_labelled_has(&p.out, label))
        return false;
    *axis = attn_labelled_place(&p.out, label);
    return true;
}

static bool read_sums(struct chunks *c, const struct attn_node *node, int depth,
                      int *axis)
{
    double at;
    const int rank = match_type(c->graph, node->out[0])->rank;
    if (attn_match_int(node, "exclusive", 0) != 0 ||
        attn_match_int(node, "reverse", 0) != 0 ||
        !attn_value_scalar(c->graph, node->in[1], &at) ||
        !read_value(c, node->in[0], depth, axis))
        return false;
    return (int)(at < 0 ? at + rank : at) == *axis;
}

/* The tokens of a value, which is known to have some; -1 where their number is none. */
static int64_t tokens_of(const struct chunks *c, int32_t value, int axis)
{
    const attnrun_type *t = match_type(c->graph, value);
    return t->rank > axis && dim_is_const(t->dims[axis]) ? t->dims[axis].value : -1;
}

/* Whether output `number` of a Split is `value`, and has as many tokens as those of the other
 * Splits. */
static bool is_of_split(struct chunks *c, const struct attn_node *split, int axis,
                        int32_t value)
{
    const int64_t n = tokens_of(c, value, axis);
    if (split->out[c->number] != value || n < 1 || (c->size != 0 && n != c->size))
        return false;
    c->size = n;
    return true;
}

/* Whether a value is tokens of the first chunk: output 0 of a Split into as many chunks. */
static bool read_split(struct chunks *c, const struct attn_node *node, int32_t value,
                       int *axis)
{
    *axis = (int)axis_of(c, node);
    return node->pub.n_out == c->concat->pub.n_in && is_of_split(c, node, *axis, value);
}

/* Reads a value of the first chunk, and what it is made of; *axis is that of tokens. */
static bool read_value(struct chunks *c, int32_t value, int depth, int *axis)
{
    struct attn_node *node = attn_graph_producer(c->graph, value);
    const struct chunk_value *known = find_value(c, value);
    if (known != NULL) {
        *axis = known->axis;
        return true;
    }
    if (node == NULL || depth == MAX_DEPTH || !attn_match_is_f32(c->graph, value) ||
        node->pub.op == NULL || (node->pub.n_out != 1 && !node_is(node, "Split")))
        return false;
    const bool right =
        node_is(node, "Split")    ? read_split(c, node, value, axis)
        : node_is(node, "CumSum") ? read_sums(c, node, depth + 1, axis)
        : node_is(node, "Einsum")
            ? read_einsum(c, node, depth + 1, axis)
            : is_arithmetic(node) && read_arithmetic(c, node, depth + 1, axis);
    if (!right || c->n == MAX_VALUES)
        return false;
    c->values[c->n++] = (struct chunk_value){ .first = value,
                                              .here = value,
                                              .whole = -1,
                                              .axis = *axis,
                                              .sums = node_is(node, "CumSum") };
    return true;
}

/* ---- the others ---- */

/* Whether `value` is the last token of `sums`. */
static bool is_last(const struct chunks *c, int32_t value, int32_t sums, int axis)
{
    int64_t from, to;
    const int64_t n = tokens_of(c, sums, axis);
    const struct attn_node *slice = attn_graph_producer(c->graph, value);
    if (value == sums)
        return n == 1;
    return n > 0 && attn_match_slice(c->graph, slice, axis, &from, &to) &&
           slice->in[0] == sums && from == n - 1 && to == n;
}

static bool is_same(struct chunks *c, int32_t first, int32_t here);

/* Whether two nodes are the same, with the same operands in their chunks. */
static bool are_same_nodes(struct chunks *c, const struct attn_node *first,
                           const struct attn_node *here)
{
    if (here == NULL || first->pub.op != here->pub.op ||
        first->pub.n_in != here->pub.n_in || first->n_attrs != here->n_attrs ||
        here->pub.n_out != 1)
        return false;
    for (int32_t i = 0; i < first->n_attrs; i++)
        if (!attn_attr_is_same(&first->attrs[i], &here->attrs[i]))
            return false;
    for (int32_t i = 0; i < first->pub.n_in; i++)
        if (!is_same(c, first->in[i], here->in[i]))
            return false;
    return true;
}

/* Whether `here` is the sum of the chunk before and the cumulative sums of this one. */
static bool carries(struct chunks *c, const struct chunk_value *v, int32_t here)
{
    const struct attn_node *add = attn_graph_producer(c->graph, here),
                           *first = attn_graph_producer(c->graph, v->first);
    if (!node_is(add, "Add") || add->pub.n_in != 2)
        return false;
    for (int side = 0; side < 2; side++)
        if (is_last(c, add->in[1 - side], v->before, v->axis) &&
            are_same_nodes(c, first, attn_graph_producer(c->graph, add->in[side])))
            return true;
    return false;
}

/* Whether `here` is in the chunk at hand what `first` is in the first one. */
static bool is_same(struct chunks *c, int32_t first, int32_t here)
{
    double x, y;
    struct chunk_value *v = find_value(c, first);
    if (v == NULL)
        return first == here || (attn_value_scalar(c->graph, first, &x) &&
                                 attn_value_scalar(c->graph, here, &y) && x <= y &&
                                 x >= y && attn_match_same_rank(c->graph, first, here));
    if (v->here >= 0)
        return v->here == here;
    const struct attn_node *node = attn_graph_producer(c->graph, first);
    const bool same = node_is(node, "Split") ? is_of_split(c, node, v->axis, here)
                      : v->sums
                          ? carries(c, v, here)
                          : are_same_nodes(c, node, attn_graph_producer(c->graph, here));
    if (same)
        v->here = here;
    return same;
}

static bool read_chunks(struct chunks *c)
{
    int axis;
    const struct attn_node *concat = c->concat;
    bool sums = false;
    if (!read_value(c, concat->in[0], 0, &axis) || axis != axis_of(c, concat))
        return false;
    for (int i = 0; i < c->n; i++)
        sums = sums || c->values[i].sums;
    for (c->number = 1; sums && c->number < concat->pub.n_in; c->number++) {
        c->size = 0;
        for (int i = 0; i < c->n; i++) {
            struct chunk_value *v = &c->values[i];
            v->before = v->here;
            v->here = -1;
        }
        if (attn_stops_node(c->number) ||
            !is_same(c, concat->in[0], concat->in[c->number]))
            return false;
    }
    return sums;
}

/* ---- the whole ---- */

/* *whole is what `first` is of all tokens, by new nodes in front of the Concat. */
static attn_status make_whole(struct chunks *c, int32_t first, int32_t *whole)
{
    struct chunk_value *v = find_value(c, first);
    const struct attn_node *node = attn_graph_producer(c->graph, first);
    int32_t in[3];
    if (v == NULL || v->whole >= 0) {
        *whole = v == NULL ? first : v->whole;
        return ATTNRUN_OK;
    }
    if (node_is(node, "Split")) {
        *whole = v->whole = node->in[0];
        return ATTNRUN_OK;
    }
    for (int32_t i = 0; i < node->pub.n_in; i++)
        TRY(make_whole(c, node->in[i], &in[i]));
    TRY(attn_match_add(c->graph, c->concat, node->pub.op_type, node->pub.n_in, in,
                       node->n_attrs, node->attrs, whole));
    v->whole = *whole;
    return ATTNRUN_OK;
}

static attn_status try_concat(struct attn_graph *graph, struct attn_node *concat,
                              int32_t *applied)
{
    struct chunks c = { .graph = graph, .concat = concat };
    int32_t whole;
    if (concat->pub.n_in < 2 || !attn_match_is_f32(graph, concat->out[0]) ||
        !read_chunks(&c))
        return ATTNRUN_OK;
    TRY(make_whole(&c, concat->in[0], &whole));
    graph->values[whole].type = *match_type(graph, concat->out[0]);
    attn_match_replace(graph, concat->out[0], attn_graph_producer(graph, whole));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_chunked_sums = { .name = "chunked_sums",
                                                  .op_type = "Concat",
                                                  .try_node = try_concat };

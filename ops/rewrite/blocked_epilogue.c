/* blocked_epilogue.c - nodes behind a convolution of blocked maps, which no other node
 * reads, become part of it:
 *
 *   BlockedConv, BlockedGate by constants    BlockedConv with S, and B times it
 *   BlockedConv, Add of a map                BlockedConv with Z
 *   BlockedConv, an activation               BlockedConv with it
 *
 * With products of bf16, maps that only dense convolutions read become bf16. Those that
 * are multiplied would be rounded anyway, to the same bits; those that are added to sums,
 * as residual maps are, are rounded once more, which halves the bytes of the largest maps
 * of a network. conv_epilogue does the first three on plain maps. This pass takes those that
 * it could not see, because the channels were last or in another order.
 *
 * In: what blocked_layout.c has written. Out: fewer nodes, and maps of half the size. */
#include "../../runtime/poll.h"
#include "../kernels/kernels.h"
#include "epilogue.h"

enum { MAX_IN = 5, MAX_ATTRS = 22, B = 2, Z = 3, S = 4 };

static bool is_conv(const struct attn_node *node)
{
    return node_is_of(node, "attnrun.fused", "BlockedConv");
}

static bool has_in(const struct attn_node *node, int in)
{
    return node->pub.n_in > in && node->in[in] >= 0;
}

static int64_t blocked_epilogue_rows_of(const struct attn_graph *graph,
                                        const struct attn_node *conv)
{
    const bool transposed = attn_match_int(conv, "transposed", 0) != 0;
    return graph->values[conv->in[1]].data.dims[transposed ? 1 : 0];
}

/* Whether a convolution is dense: not depthwise, and not by tiles. */
static bool is_dense(const struct attn_graph *graph, const struct attn_node *conv)
{
    const int64_t group = attn_match_int(conv, "group", 1);
    const bool by_itself = group > 1 && group == attn_match_int(conv, "channels", 0) &&
                           group == blocked_epilogue_rows_of(graph, conv);
    return !by_itself && attn_match_int(conv, "winograd", 0) == 0;
}

/* Whether a convolution was a ConvTranspose: its blocks of columns are not those of its
 * result. */
static bool spreads(const struct attn_node *conv)
{
    return attn_match_int(conv, "spread_h", 1) * attn_match_int(conv, "spread_w", 1) != 1;
}

/* The convolution without an activation that gives input `in` of a node only to it, or NULL. */
static struct attn_node *bare_conv(const struct attn_graph *graph,
                                   const struct attn_node *node, int in)
{
    struct attn_node *conv = attn_graph_producer(graph, node->in[in]);
    const struct attn_attr *activation;
    if (conv == NULL || !is_conv(conv) || spreads(conv) ||
        attn_graph_only_user(graph, node->in[in]) != node ||
        conv->n_attrs > MAX_ATTRS - 1)
        return NULL;
    activation = attn_node_attr(conv, "activation");
    return activation == NULL || attn_match_string(conv, "activation", "none") ? conv
                                                                               : NULL;
}

/* The same of one that does no more to its sums than add a bias and multiply. */
static struct attn_node *linear_conv(const struct attn_graph *graph,
                                     const struct attn_node *node, int in)
{
    struct attn_node *conv = bare_conv(graph, node, in);
    return conv != NULL && !has_in(conv, Z) ? conv : NULL;
}

/* Adds a convolution of these inputs and attributes that replaces `conv` and `node` behind it. */
static attn_status replace_both(struct attn_graph *graph, struct attn_node *conv,
                                struct attn_node *node, int32_t n_in,
                                const int32_t *inputs, int32_t n_attrs,
                                const struct attn_attr *attrs)
{
    const int32_t old = node->out[0];
    const bool named = (graph->values[old].flags & ATTN_VALUE_OUTPUT) != 0;
    int32_t out;
    struct attn_node *made;
    TRY(attn_graph_add_value(graph, NULL, &out));
    TRY(attn_graph_insert(graph, node, "attnrun.fused", "BlockedConv", n_in, inputs, 1,
                          &out, n_attrs, attrs, &made));
    attn_graph_replace(graph, old, out);
    attn_graph_remove(graph, node);
    attn_graph_remove(graph, conv);
    if (!named) /* else it has the name already */
        attn_graph_swap_names(graph, old, out);
    return ATTNRUN_OK;
}

/* The same with another input, and with `bias` if there is one. */
static attn_status take_place(struct attn_graph *graph, struct attn_node *conv,
                              struct attn_node *node, int in, int32_t value, int32_t bias)
{
    const int32_t n_in = conv->pub.n_in > in ? conv->pub.n_in : in + 1;
    int32_t inputs[MAX_IN] = { -1, -1, -1, -1, -1 };
    for (int32_t i = 0; i < conv->pub.n_in; i++)
        inputs[i] = conv->in[i];
    inputs[in] = value;
    if (bias >= 0)
        inputs[B] = bias;
    return replace_both(graph, conv, node, n_in, inputs, conv->n_attrs, conv->attrs);
}

static attn_status try_activation(struct attn_graph *graph, struct attn_node *node,
                                  int32_t *applied)
{
    static const char *const names[] = { "activation", "alpha", "beta" };
    struct attn_node *conv = bare_conv(graph, node, 0);
    struct attn_attr attrs[MAX_ATTRS];
    struct epilogue epilogue;
    int32_t n = 0;
    if (conv == NULL || conv->n_attrs > MAX_ATTRS - 3 ||
        !attn_match_activation(graph, node, &epilogue))
        return ATTNRUN_OK;
    for (int32_t i = 0; i < conv->n_attrs; i++) {
        bool other = true;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            other = other && strcmp(conv->attrs[i].name, names[k]) != 0;
        if (other)
            attrs[n++] = conv->attrs[i];
    }
    attrs[n++] = (struct attn_attr)MATCH_STRING("activation", epilogue.activation);
    attrs[n++] = (struct attn_attr)MATCH_FLOAT("alpha", epilogue.alpha);
    attrs[n++] = (struct attn_attr)MATCH_FLOAT("beta", epilogue.beta);
    ++*applied;
    return replace_both(graph, conv, node, conv->pub.n_in, conv->in, n, attrs);
}

/* A constant vector of at most as many f32 as `scale` has. */
static bool can_multiply(const struct attn_graph *graph, int32_t scale, int32_t value)
{
    const attnrun_tensor *x = &graph->values[value].data;
    return match_is_constant(graph, value) && x->dtype == ATTNRUN_F32 && x->rank == 1 &&
           x->dims[0] <= tensor_count(&graph->values[scale].data);
}

/* *value becomes its product with the first numbers of `scale`. */
static attn_status fold_factor(struct attn_graph *graph, int32_t scale, int32_t *value)
{
    const attnrun_tensor x = graph->values[*value].data, s = graph->values[scale].data;
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 1, x.dims, value, &data));
    for (int64_t i = 0; i < x.dims[0] && !attn_stops(i); i++)
        ((float *)data)[i] = match_f32_at(&x, i) * match_f32_at(&s, i);
    return ATTNRUN_OK;
}

static attn_status try_scale(struct attn_graph *graph, struct attn_node *gate,
                             int32_t *applied)
{
    if (!match_is_constant(graph, gate->in[1]))
        return ATTNRUN_OK;
    const attnrun_tensor *t = &graph->values[gate->in[1]].data;
    struct attn_node *conv = linear_conv(graph, gate, 0);
    if (conv == NULL || !is_dense(graph, conv) || t->dtype != ATTNRUN_F32 ||
        t->rank != 5 || t->dims[0] != 1)
        return ATTNRUN_OK;
    int32_t factor = gate->in[1], scale = has_in(conv, S) ? conv->in[S] : -1;
    int32_t bias = has_in(conv, B) ? conv->in[B] : -1;
    if ((scale >= 0 && !can_multiply(graph, factor, scale)) ||
        (bias >= 0 && !can_multiply(graph, factor, bias)))
        return ATTNRUN_OK;
    TRY(attn_match_as_vector(graph, &factor));
    if (scale >= 0)
        TRY(fold_factor(graph, factor, &scale));
    if (bias >= 0)
        TRY(fold_factor(graph, factor, &bias));
    ++*applied;
    return take_place(graph, conv, gate, S, scale >= 0 ? scale : factor, bias);
}

static attn_status try_residual(struct attn_graph *graph, struct attn_node *add,
                                int32_t *applied)
{
    for (int i = 0; i < 2; i++) {
        struct attn_node *conv = linear_conv(graph, add, i);
        const int32_t other = add->in[1 - i];
        if (conv == NULL || other == add->in[i] || !attn_match_is_f32(graph, other) ||
            match_is_constant(graph, other) ||
            !attn_match_same_shape(graph, other, add->out[0]))
            continue;
        ++*applied;
        return take_place(graph, conv, add, Z, other, -1);
    }
    return ATTNRUN_OK;
}

/* ---- maps of bf16 ---- */

/* Whether the activation of a convolution is no more than two limits. */
static bool clips(const struct attn_node *conv)
{
    static const char *const names[] = { "none", "relu", "relu6", "clip" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (attn_match_string(conv, "activation", names[i]))
            return true;
    return attn_node_attr(conv, "activation") == NULL;
}

/* Whether a map may be bf16 for one of its readers: a dense convolution, which rounds it anyway,
 * or adds it to its sums. */
static bool rounds(const struct attn_graph *graph, const struct attn_use *use,
                   int32_t value)
{
    const struct attn_node *conv = use->node;
    if (conv == NULL || use->inner != NULL || !is_conv(conv) || !is_dense(graph, conv) ||
        attn_match_int(conv, "plain", 0) != 0)
        return false;
    for (int32_t i = 1; i < conv->pub.n_in; i++)
        if (i != Z && conv->in[i] == value)
            return false;
    return conv->in[0] != value || attn_match_int(conv, "channels", 0) % ATTN_BLOCK == 0;
}

static bool gives_words(const struct attn_graph *graph, const struct attn_node *node)
{
    if (attn_match_int(node, "to_bf16", 0) != 0 || node->n_attrs > MAX_ATTRS - 1)
        return false;
    if (node_is_of(node, "attnrun.fused", "BlockedNorm"))
        return true;
    return is_conv(node) && !spreads(node) && is_dense(graph, node) &&
           (!has_in(node, Z) || clips(node));
}

static attn_status try_words(struct attn_graph *graph, struct attn_node *node,
                             int32_t *applied)
{
    const int32_t value = node->out[0];
    const struct attn_value *v = &graph->values[value];
    if (!gives_words(graph, node) || v->n_uses == 0 || (v->flags & ATTN_VALUE_OUTPUT))
        return ATTNRUN_OK;
    for (const struct attn_use *use = v->uses; use != NULL; use = use->next)
        if (!rounds(graph, use, value))
            return ATTNRUN_OK;
    struct attn_attr attrs[MAX_ATTRS];
    struct attn_node *made;
    int32_t words;
    for (int32_t i = 0; i < node->n_attrs; i++)
        attrs[i] = node->attrs[i];
    attrs[node->n_attrs] = (struct attn_attr)MATCH_INT("to_bf16", 1);
    TRY(attn_graph_add_value(graph, NULL, &words));
    TRY(attn_graph_insert(graph, node, "attnrun.fused", node->pub.op_type, node->pub.n_in,
                          node->in, 1, &words, node->n_attrs + 1, attrs, &made));
    attn_graph_replace(graph, value, words);
    attn_graph_remove(graph, node);
    attn_graph_swap_names(graph, value, words);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run_blocked_epilogue(struct attn_graph *graph, int32_t *applied)
{
    const int64_t before = graph->n_nodes;
    for (int64_t n = 0; n < before && !attn_stops_node(n); n++) {
        struct attn_node *node = graph->nodes[n];
        if (node == NULL || node->pub.n_in < 1 || node->pub.n_out < 1 ||
            node->in[0] < 0 || node->out[0] < 0)
            continue;
        if (node_is_of(node, "attnrun.fused", "BlockedGate"))
            TRY(try_scale(graph, node, applied));
        else if (node_is(node, "Add") && node->pub.opset >= 7)
            TRY(try_residual(graph, node, applied));
        else
            TRY(try_activation(graph, node, applied));
    }
    const int64_t then = attn_model_kernels(graph->model)->dots_bf16 ? graph->n_nodes : 0;
    for (int64_t n = 0; n < then && !attn_stops_node(n); n++)
        if (graph->nodes[n] != NULL && graph->nodes[n]->pub.n_out > 0 &&
            graph->nodes[n]->out[0] >= 0)
            TRY(try_words(graph, graph->nodes[n], applied));
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_blocked_epilogue = { .name = "blocked_epilogue",
                                                      .run = run_blocked_epilogue,
                                                      .last = true };

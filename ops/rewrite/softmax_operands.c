/* softmax_operands.c - brings the nodes around a softmax over keys into the form that
 * fuse_attention.c recognises. It runs before that pass, and fuse_block_attention.c before it.
 *
 *   before                      after
 *   Softmax(S - max S)          Softmax(S), which subtracts the max itself
 *   Einsum of two operands      MatMul of their Transposes
 *   scores + mask, of (…, ?)    scores + Expand(mask, the number of keys), a view where it has them
 *   c (scores + mask)           c scores + c mask, as CodeGen scales them; the same of Where
 *   scores - mask               scores + -mask
 *
 * einsum_matmul.c says which Einsum is rewritten.
 *
 * The pass looks at the product that makes the scores, behind scalars, masks and sums, and at the
 * product with the values, if it alone reads the weights. Results differ at most in their last
 * bits, where a product adds in another order. */
#include "product.h"

enum { MAX_SUMS = 4 };

/* ---- the max ---- */

static attn_status drop_max(struct attn_graph *graph, struct attn_node *softmax,
                            int32_t *applied)
{
    const struct attn_node *sub = attn_match_in(graph, softmax, 0, "Sub");
    const struct attn_node *max = sub ? attn_match_in(graph, sub, 1, "ReduceMax") : NULL;
    if (max == NULL || max->in[0] != sub->in[0] || !attn_match_reduces_last(graph, max) ||
        !attn_match_is_f32(graph, sub->in[0]) ||
        !attn_match_same_shape(graph, sub->in[0], sub->out[0]))
        return ATTNRUN_OK;
    attn_node_set_input(graph, softmax, 0, sub->in[0]);
    ++*applied;
    return ATTNRUN_OK;
}

/* ---- scalars and signs of what is added ---- */

/* Which input of a sum or a choice is made of the scores; -1: none, or several. */
static int side_of_scores(const struct attn_graph *graph, const struct attn_node *node)
{
    int side = -1;
    const bool chooses = node_is(node, "Where");
    if (!chooses && !node_is(node, "Add"))
        return -1;
    for (int i = chooses; i < node->pub.n_in; i++) {
        if (attn_product_behind(graph, node->in[i]) == NULL)
            continue;
        if (side >= 0)
            return -1;
        side = i;
    }
    return side;
}

/* Input `k` of a node, which is a scalar times a sum or a choice, becomes that of what the scalar
 * multiplies; *inner: the new node, and *side which of its inputs is made of the scores. NULL where
 * nothing changed. */
static attn_status spread_scalar(struct attn_graph *graph, struct attn_node *node, int k,
                                 struct attn_node **inner, int *side)
{
    double x;
    int32_t other, in[3], out;
    struct attn_node *scaled = attn_graph_producer(graph, node->in[k]);
    const bool times = node_is(scaled, "Mul");
    *inner = NULL;
    if ((!times && !node_is(scaled, "Div")) ||
        !attn_match_scalar(graph, scaled, times, &x, &other) ||
        !attn_match_same_shape(graph, other, node->in[k]) ||
        !match_read_once(graph, node->in[k]) || !match_read_once(graph, other))
        return ATTNRUN_OK;
    struct attn_node *sum = attn_graph_producer(graph, other);
    *side = side_of_scores(graph, sum);
    if (*side < 0)
        return ATTNRUN_OK;
    for (int i = 0; i < sum->pub.n_in; i++) {
        int32_t both[2] = { scaled->in[0], scaled->in[1] };
        both[scaled->in[1] == other] = in[i] = sum->in[i];
        if (i > 0 || !node_is(sum, "Where"))
            TRY(attn_match_add(graph, node, scaled->pub.op_type, 2, both, 0, NULL,
                               &in[i]));
    }
    if (attn_match_same_shape(graph, sum->in[*side], other)) /* the next one asks */
        graph->values[in[*side]].type = graph->values[other].type;
    TRY(attn_match_add(graph, node, sum->pub.op_type, sum->pub.n_in, in, 0, NULL, &out));
    attn_node_set_input(graph, node, k, out);
    attn_graph_remove(graph, scaled);
    attn_graph_remove(graph, sum);
    *inner = attn_graph_producer(graph, out);
    return ATTNRUN_OK;
}

static attn_status spread_scalars(struct attn_graph *graph, struct attn_node *softmax,
                                  int32_t *applied)
{
    struct attn_node *node = softmax, *inner;
    for (int k = 0, side = 0; k < MAX_SUMS; k++) {
        const int input = side;
        TRY(spread_scalar(graph, node, input, &inner, &side));
        if (inner == NULL)
            return ATTNRUN_OK;
        node = inner;
        ++*applied;
    }
    return ATTNRUN_OK;
}

/* What is subtracted from the scores is added. */
static attn_status add_negative(struct attn_graph *graph, struct attn_node *softmax,
                                int32_t *applied)
{
    struct attn_node *sub = attn_match_in(graph, softmax, 0, "Sub");
    if (sub == NULL || !match_read_once(graph, softmax->in[0]) ||
        attn_product_behind(graph, sub->in[0]) == NULL ||
        attn_product_behind(graph, sub->in[1]) != NULL)
        return ATTNRUN_OK;
    int32_t in[2] = { sub->in[0], sub->in[1] }, out;
    TRY(attn_match_add(graph, softmax, "Neg", 1, &in[1], 0, NULL, &in[1]));
    TRY(attn_match_add(graph, softmax, "Add", 2, in, 0, NULL, &out));
    attn_node_set_input(graph, softmax, 0, out);
    ++*applied;
    return ATTNRUN_OK;
}

/* ---- what is added ---- */

static attnrun_dim last_dim(const struct attn_graph *graph, int32_t value)
{
    const attnrun_type *t = match_type(graph, value);
    return t->rank > 0 ? t->dims[t->rank - 1] : dim_of(1);
}

/* What is added to a known number of keys, two or more, has this many, or one that is broadcast. */
static attn_status expand_added(struct attn_graph *graph, struct attn_node *add,
                                int32_t *applied)
{
    for (int side = 0; side < 2; side++) {
        const attnrun_dim keys = last_dim(graph, add->in[1 - side]);
        int32_t in[2] = { add->in[side], -1 };
        if (!dim_is_const(keys) || keys.value < 2 ||
            dim_is_const(last_dim(graph, in[0])) || match_type(graph, in[0])->rank < 1)
            continue;
        TRY(attn_match_ints(graph, 1, &keys.value, &in[1]));
        TRY(attn_match_add(graph, add, "Expand", 2, in, 0, NULL, &in[0]));
        attn_node_set_input(graph, add, side, in[0]);
        ++*applied;
    }
    return ATTNRUN_OK;
}

static attn_status expand_all_added(struct attn_graph *graph,
                                    const struct attn_node *softmax, int32_t *applied)
{
    int32_t value = softmax->in[0];
    for (int k = 0; k < 2; k++) { /* as many as fuse_attention.c reads */
        struct attn_node *add = attn_graph_producer(graph, value);
        if (!node_is(add, "Add"))
            return ATTNRUN_OK;
        TRY(expand_added(graph, add, applied));
        value = node_is(attn_graph_producer(graph, add->in[0]), "Add") ? add->in[0]
                                                                       : add->in[1];
    }
    return ATTNRUN_OK;
}

static attn_status try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                               int32_t *applied)
{
    const int64_t axis =
        attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    const int rank = graph->values[softmax->in[0]].type.rank;
    if (!attn_match_is_f32(graph, softmax->in[0]) || rank < 2 ||
        (axis != -1 && axis != rank - 1))
        return ATTNRUN_OK;
    TRY(drop_max(graph, softmax, applied));
    struct attn_node *user = attn_graph_only_user(graph, softmax->out[0]);
    struct attn_node *scores = attn_product_behind(graph, softmax->in[0]);
    if (scores == NULL || (!node_is(user, "Einsum") && !node_is(user, "MatMul")))
        return ATTNRUN_OK; /* a softmax of features, as linear attention has it */
    TRY(spread_scalars(graph, softmax, applied));
    TRY(add_negative(graph, softmax, applied));
    TRY(expand_all_added(graph, softmax, applied));
    if (node_is(scores, "Einsum"))
        TRY(attn_einsum_to_matmul(graph, scores, applied));
    return node_is(user, "Einsum") ? attn_einsum_to_matmul(graph, user, applied)
                                   : ATTNRUN_OK;
}

const struct attn_pass attn_pass_softmax_operands = { .name = "softmax_operands",
                                                      .op_type = "Softmax",
                                                      .try_node = try_softmax };

/* softmax_operands.c - brings the nodes around a softmax over keys into the form that
 * fuse_attention.c recognises. It runs before that pass, and fuse_block_attention.c before it.
 *
 *   before                      after
 *   Softmax(S - max S)          Softmax(S), which subtracts the max itself
 *   Einsum of two operands      MatMul of their Transposes
 *   scores + mask, of (…, ?)    scores + Expand(mask, the number of keys), a view where it has them
 *
 * einsum_matmul.c says which Einsum is rewritten.
 *
 * The pass looks at the product that makes the scores, behind scalars, masks and sums, and at the
 * product with the values, if it alone reads the weights. Results differ at most in their last
 * bits, where a product adds in another order. */
#include "product.h"

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
    TRY(expand_all_added(graph, softmax, applied));
    if (node_is(scores, "Einsum"))
        TRY(attn_einsum_to_matmul(graph, scores, applied));
    return node_is(user, "Einsum") ? attn_einsum_to_matmul(graph, user, applied)
                                   : ATTNRUN_OK;
}

const struct attn_pass attn_pass_softmax_operands = { .name = "softmax_operands",
                                                      .op_type = "Softmax",
                                                      .try_node = try_softmax };

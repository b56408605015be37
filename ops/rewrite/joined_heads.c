/* joined_heads.c - attention over operands of rank 5, blocks of tokens beside heads, becomes one
 * over operands of rank 4 whose heads are both, which is recognised then (fuse_attention.c):
 *
 *   Softmax(S) V     S = Q K' and what scalars, Where and Add make of it
 *
 * Q, K', V and S are (batch, heads, blocks, …), where all sizes but the batch are numbers; masks
 * have the heads and blocks of the scores, or neither. In Routing Transformers the blocks are
 * clusters. Reshapes, which are views; exact: no number changes. */
#include "product.h"

enum { RANK = 5, MAX_STEPS = 6, MAX_IN = 3 };

/* From the softmax down to the product; side[k]: which operand of step k is made of it. */
struct joined_heads_chain {
    struct attn_node *steps[MAX_STEPS], *product;
    int32_t side[MAX_STEPS];
    int n;
};

/* (batch, heads, blocks, a, b) of f32, all numbers but the batch, with the heads and blocks of the
 * scores. */
static bool is_sized(const struct attn_graph *graph, int32_t value,
                     const attnrun_dim *scores)
{
    int64_t joined;
    if (!attn_match_is_f32_of(graph, value, RANK))
        return false;
    const attnrun_dim *d = match_type(graph, value)->dims;
    for (int i = 1; i < RANK; i++)
        if (!dim_is_const(d[i]) || d[i].value < 1)
            return false;
    return dim_equal(d[1], scores[1]) && dim_equal(d[2], scores[2]) &&
           ck_mul(d[1].value, d[2].value, &joined);
}

static bool is_step(const struct attn_node *node)
{
    return node_is(node, "Mul") || node_is(node, "Div") || node_is(node, "Add") ||
           node_is(node, "Where");
}

/* Which operand of a step is made of the product; -1: none. */
static int32_t side_of(const struct attn_graph *graph, const struct attn_node *step,
                       const attnrun_dim *scores)
{
    for (int32_t i = node_is(step, "Where"); i < step->pub.n_in; i++)
        if (is_sized(graph, step->in[i], scores) &&
            graph->values[step->in[i]].n_uses == 1) {
            const struct attn_node *from = attn_graph_producer(graph, step->in[i]);
            if (node_is(from, "MatMul") ||
                (is_step(from) && attn_product_behind(graph, step->in[i]) != NULL))
                return i;
        }
    return -1;
}

/* A value of a step beside the scores: a scalar, or one whose heads and blocks are those of the
 * scores or both of 1. */
static bool is_beside(const struct attn_graph *graph, int32_t value,
                      const attnrun_dim *scores)
{
    const attnrun_type *t = match_type(graph, value);
    if (t->kind != ATTNRUN_TENSOR || t->rank < 0 || t->rank > RANK)
        return false;
    attnrun_dim d[RANK];
    for (int i = 0; i < RANK; i++)
        d[i] = i < RANK - t->rank ? dim_of(1) : t->dims[i - RANK + t->rank];
    const bool full = dim_equal(d[1], scores[1]) && dim_equal(d[2], scores[2]);
    return (dim_is(d[1], 1) && dim_is(d[2], 1)) ||
           (full && t->rank == RANK && dim_is_const(d[3]) && dim_is_const(d[4]));
}

static bool read_chain(const struct attn_graph *graph, const struct attn_node *softmax,
                       struct joined_heads_chain *chain)
{
    const attnrun_dim *scores = match_type(graph, softmax->in[0])->dims;
    int32_t value = softmax->in[0];
    chain->n = 0;
    while (is_sized(graph, value, scores) && graph->values[value].n_uses == 1 &&
           attn_match_same_shape(graph, value, softmax->in[0])) {
        struct attn_node *node = attn_graph_producer(graph, value);
        chain->product = node;
        if (node_is(node, "MatMul"))
            return is_sized(graph, node->in[0], scores) &&
                   is_sized(graph, node->in[1], scores);
        const int32_t side = is_step(node) ? side_of(graph, node, scores) : -1;
        if (side < 0 || chain->n == MAX_STEPS)
            return false;
        for (int32_t i = 0; i < node->pub.n_in; i++)
            if (i != side && !is_beside(graph, node->in[i], scores))
                return false;
        chain->steps[chain->n] = node;
        chain->side[chain->n++] = side;
        value = node->in[side];
    }
    return false;
}

/* ---- the same of rank 4 ---- */

/* (batch, heads * blocks, a, b); a value beside scores whose heads and blocks are of 1 keeps its
 * meaning as it is, but for one axis of 1 too many. */
static attn_status join_heads(struct attn_graph *graph, struct attn_node *before,
                              int32_t *value)
{
    const attnrun_type *t = match_type(graph, *value);
    const attnrun_dim *d = t->dims;
    if (t->rank < RANK)
        return ATTNRUN_OK;
    const bool numbers = dim_is_const(d[3]) && dim_is_const(d[4]);
    const int64_t joined[RANK - 1] = { 0, d[1].value * d[2].value, d[3].value,
                                       d[4].value };
    if (numbers)
        return attn_match_reshape(graph, before, RANK - 1, joined, value);
    static const int64_t second = 1;
    int32_t in[2] = { *value, -1 };
    TRY(attn_match_ints(graph, 1, &second, &in[1]));
    return attn_match_add(graph, before, "Squeeze", 2, in, 0, NULL, value);
}

/* K', behind the Transpose that makes it, where there is one. */
static attn_status join_right(struct attn_graph *graph, struct attn_node *before,
                              int32_t *value)
{
    static const int64_t swap5[] = { 0, 1, 2, 4, 3 };
    const struct attn_node *node = attn_graph_producer(graph, *value);
    const struct attn_attr *perm = node ? attn_node_attr(node, "perm") : NULL;
    if (!node_is(node, "Transpose") || perm == NULL || perm->kind != ATTN_ATTR_INTS ||
        perm->ints.n != RANK || memcmp(perm->ints.v, swap5, sizeof swap5) != 0)
        return join_heads(graph, before, value);
    *value = node->in[0];
    TRY(join_heads(graph, before, value));
    return attn_labels_transpose(graph, before, "abcd", "abdc", RANK - 1, value);
}

static attn_status joined_add_node(struct attn_graph *graph, struct attn_node *before,
                                   const struct attn_node *like, const int32_t *in,
                                   int32_t *out)
{
    return attn_match_add(graph, before, like->pub.op_type, like->pub.n_in, in,
                          like->n_attrs, like->attrs, out);
}

static attn_status replace(struct attn_graph *graph, struct attn_node *softmax,
                           struct attn_node *last, const struct joined_heads_chain *chain)
{
    static const struct attn_attr axis = MATCH_INT("axis", -1);
    const attnrun_dim *d = match_type(graph, last->out[0])->dims;
    const int64_t apart[RANK] = { 0, d[1].value, d[2].value, d[3].value, d[4].value };
    int32_t in[MAX_IN] = { chain->product->in[0], chain->product->in[1] }, scores, y;
    TRY(join_heads(graph, softmax, &in[0]));
    TRY(join_right(graph, softmax, &in[1]));
    TRY(joined_add_node(graph, softmax, chain->product, in, &scores));
    for (int k = chain->n - 1; k >= 0; k--) {
        const struct attn_node *step = chain->steps[k];
        for (int32_t i = 0; i < step->pub.n_in; i++) {
            in[i] = i == chain->side[k] ? scores : step->in[i];
            if (i != chain->side[k])
                TRY(join_heads(graph, softmax, &in[i]));
        }
        TRY(joined_add_node(graph, softmax, step, in, &scores));
    }
    in[0] = scores;
    TRY(attn_match_add(graph, softmax, "Softmax", 1, in, 1, &axis, &scores));
    in[0] = scores;
    in[1] = last->in[1];
    TRY(join_heads(graph, softmax, &in[1]));
    TRY(joined_add_node(graph, softmax, last, in, &y));
    TRY(attn_match_reshape(graph, softmax, RANK, apart, &y));
    attn_match_replace(graph, last->out[0], attn_graph_producer(graph, y));
    return ATTNRUN_OK;
}

static attn_status try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                               int32_t *applied)
{
    struct joined_heads_chain chain = { .n = 0 };
    const int64_t axis =
        attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    if (!attn_match_is_f32_of(graph, softmax->in[0], RANK) ||
        (axis != -1 && axis != RANK - 1))
        return ATTNRUN_OK;
    struct attn_node *last = attn_match_user(graph, softmax, "MatMul");
    if (last == NULL || attn_product_behind(graph, softmax->in[0]) == NULL)
        return ATTNRUN_OK;
    const attnrun_dim *scores = match_type(graph, softmax->in[0])->dims;
    const char *why = NULL;
    if (last->in[0] != softmax->out[0] || last->in[1] == softmax->out[0] ||
        !is_sized(graph, last->in[1], scores) || !is_sized(graph, last->out[0], scores) ||
        !read_chain(graph, softmax, &chain))
        why = "its operands of rank 5 do not have the axes of heads and blocks that "
              "masks share";
    TRY(attn_graph_note(graph, softmax, "joined_heads", why));
    if (why != NULL)
        return ATTNRUN_OK;
    ++*applied;
    return replace(graph, softmax, last, &chain);
}

const struct attn_pass attn_pass_joined_heads = { .name = "joined_heads",
                                                  .op_type = "Softmax",
                                                  .try_node = try_softmax };

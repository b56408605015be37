/* softmax_operands.c - brings the nodes around a softmax over keys into the form that
 * fuse_attention.c recognises. It runs before that pass, and fuse_block_attention.c before it.
 *
 *   before                      after
 *   Softmax(c (S - max S))      Softmax(c S), which subtracts the max itself; so does CogView, with
 *                               c = 32 and S = scores / c
 *   Einsum of two operands      MatMul of their Transposes
 *   scores + mask, of (…, ?)    scores + Expand(mask, the number of keys), a view where it has them
 *   c (scores + mask)           c scores + c mask, as CodeGen scales them; the same of Where
 *   scores - mask               scores + -mask
 *   mask * scores               Where(mask, scores, 0), of a mask of zeros and ones (OpenAI's GPT)
 *
 * einsum_matmul.c says which Einsum is rewritten.
 *
 * The pass looks at the product that makes the scores, behind scalars, masks and sums, and at the
 * product with the values, if it alone reads the weights. Results differ at most in their last
 * bits, where a product adds in another order. */
#include "product.h"

#include <math.h>

#include "../../runtime/poll.h"

enum { MAX_SUMS = 4, MAX_SLICES = 8 };

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

/* ---- the max ---- */

/* Whether a value is the max of each row of `of`. */
static bool is_max_of_rows(const struct attn_graph *graph, int32_t value, int32_t of)
{
    double at;
    int axis;
    const int last = match_type(graph, of)->rank - 1;
    const struct attn_node *max = attn_graph_producer(graph, value);
    const bool apart = node_is(max, "Unsqueeze");
    if (apart) {
        if (max->pub.n_in < 2 || !attn_value_scalar(graph, max->in[1], &at) ||
            (at != -1 && at != last))
            return false;
        max = attn_graph_producer(graph, max->in[0]);
    }
    return node_is(max, "ReduceMax") && max->in[0] == of &&
           attn_match_axis(graph, max, &axis) && axis == last &&
           attn_match_int(max, "keepdims", 1) == !apart;
}

static attn_status drop_max(struct attn_graph *graph, struct attn_node *softmax,
                            int32_t *applied)
{
    double factor = 1;
    const struct attn_node *sub = attn_graph_producer(
        graph, attn_match_strip_scale(graph, softmax->in[0], &factor));
    if (!node_is(sub, "Sub") || !is_max_of_rows(graph, sub->in[1], sub->in[0]) ||
        !attn_match_is_f32(graph, sub->in[0]) ||
        !attn_match_same_shape(graph, sub->in[0], sub->out[0]) ||
        !(fabs(factor) > 1e-6 && fabs(factor) < 1e6))
        return ATTNRUN_OK;
    double whole = factor;
    int32_t in[2] = { sub->in[0], -1 };
    const int32_t scores = attn_match_strip_scale(graph, in[0], &whole);
    if (fabs(whole - 1) <= 1e-6)
        in[0] = scores;
    else if (fabs(factor - 1) > 0) {
        void *data;
        TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &in[1], &data));
        *(float *)data = (float)factor;
        TRY(attn_match_add(graph, softmax, "Mul", 2, in, 0, NULL, &in[0]));
    }
    attn_node_set_input(graph, softmax, 0, in[0]);
    ++*applied;
    return ATTNRUN_OK;
}

/* ---- masks of zeros and ones ---- */

/* Where a factor is 1, of one that has nothing but zeros and ones: what a Cast makes of conditions,
 * or a constant, or a part of one. *keep: -1 for any other factor. */
static attn_status read_ones(struct attn_graph *graph, struct attn_node *before,
                             int32_t factor, int32_t *keep)
{
    static const struct attn_attr to = MATCH_INT("to", ATTNRUN_BOOL);
    const struct attn_node *node = attn_graph_producer(graph, factor);
    int32_t whole = factor;
    *keep = -1;
    if (node_is(node, "Cast") && match_type(graph, node->in[0])->dtype == ATTNRUN_BOOL) {
        *keep = node->in[0];
        return ATTNRUN_OK;
    }
    for (int k = 0; k < MAX_SLICES && node_is(node, "Slice"); k++) {
        whole = node->in[0];
        node = attn_graph_producer(graph, whole);
    }
    if (!match_is_constant(graph, whole) || !attn_match_is_f32(graph, whole) ||
        match_type(graph, whole)->rank < 2)
        return ATTNRUN_OK;
    const attnrun_tensor *x = &graph->values[whole].data;
    const int64_t n = tensor_count(x);
    for (int64_t i = 0; i < n; i++) {
        const float one = match_f32_at(x, i);
        if (one != 0.0f && one != 1.0f)
            return ATTNRUN_OK;
        if (i % 65536 == 0)
            TRY(attn_poll_work(65536));
    }
    return attn_match_add(graph, before, "Cast", 1, &factor, 1, &to, keep);
}

/* Whether a value is a product times scalars: no number of a mask, which may be -infinity, is among
 * the scores, and 0 times these is 0. */
static bool is_scaled_product(const struct attn_graph *graph, int32_t value)
{
    double factor = 1;
    const struct attn_node *product = attn_product_behind(graph, value);
    value = attn_match_strip_scale(graph, value, &factor);
    return product != NULL && product == attn_graph_producer(graph, value);
}

/* A factor of zeros and ones in front of the scores, behind which others are added. */
static attn_status choose_scores(struct attn_graph *graph, struct attn_node *softmax,
                                 int32_t *applied)
{
    struct attn_node *reader = softmax;
    for (int k = 0, side = 0; k <= MAX_SUMS && side >= 0; k++) {
        struct attn_node *node = attn_graph_producer(graph, reader->in[side]);
        if (node == NULL || !match_read_once(graph, reader->in[side]))
            return ATTNRUN_OK;
        for (int i = 0; i < 2 && node_is(node, "Mul"); i++) {
            int32_t in[3] = { -1, node->in[i], -1 }, out;
            void *zero;
            if (!is_scaled_product(graph, in[1]) ||
                !attn_match_same_shape(graph, in[1], node->out[0]))
                continue;
            TRY(read_ones(graph, node, node->in[1 - i], &in[0]));
            if (in[0] < 0)
                continue;
            TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &in[2], &zero));
            TRY(attn_match_add(graph, node, "Where", 3, in, 0, NULL, &out));
            graph->values[out].type = graph->values[node->out[0]].type;
            attn_node_set_input(graph, reader, side, out);
            ++*applied;
            return ATTNRUN_OK;
        }
        reader = node;
        side = node_is(node, "Add") ? side_of_scores(graph, node) : -1;
    }
    return ATTNRUN_OK;
}

/* ---- scalars and signs of what is added ---- */

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
    TRY(choose_scores(graph, softmax, applied));
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

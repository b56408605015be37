/* head_groups.c - batched products over (batch * heads, …), as bmm has them, become
 * products over (batch, heads, …), in which attention is recognized. The pass looks for a
 * MatMul between Reshapes that only join and split the leading dims, and for a Softmax
 * behind one. Between the product and its Reshape there may be scalars, and numbers of each key
 * of a head, as baddbmm adds them (Bloom's ALiBi). Exact: no number moves. */
#include "match.h"

enum { MAX_STEPS = 4 };

/* From a product (batch * heads, m, n) to the Reshape that splits its leading dim; side[k]: which
 * operand of step k is made of the product. */
struct head_groups_chain {
    const struct attn_node *steps[MAX_STEPS];
    int32_t side[MAX_STEPS];
    int n;
    bool pairs; /* numbers of all pairs are added */
    struct attn_node *part;
};

static bool is_rank(const struct attn_graph *graph, int32_t value, int rank)
{
    return match_type(graph, value)->kind == ATTNRUN_TENSOR &&
           match_type(graph, value)->rank == rank;
}

/* The value (batch, heads, m, n) that `value` (batch * heads, m, n) was made of, or
 * -1. */
static int32_t parted(const struct attn_graph *graph, int32_t value)
{
    struct attn_node *node = attn_graph_producer(graph, value);
    if (!node_is(node, "Reshape") || !is_rank(graph, value, 3) || node->pub.n_in != 2 ||
        !is_rank(graph, node->in[0], 4))
        return -1;
    const attnrun_dim *four = match_type(graph, node->in[0])->dims,
                      *three = match_type(graph, value)->dims;
    bool same = dim_equal(four[2], three[1]) && dim_equal(four[3], three[2]);
    return same ? node->in[0] : -1;
}

/* A right operand: one that was parted, or the Transpose of one, *transposed then; scalars
 * that multiply it are left in *scalar. */
static int32_t parted_right(const struct attn_graph *graph, int32_t value,
                            bool *transposed, const struct attn_node **scalar)
{
    double x;
    int32_t other;
    struct attn_node *node = attn_graph_producer(graph, value);
    *scalar = NULL;
    *transposed = false;
    if ((node_is(node, "Mul") || node_is(node, "Div")) &&
        attn_match_scalar(graph, node, node_is(node, "Mul"), &x, &other) &&
        attn_match_same_shape(graph, other, value)) {
        *scalar = node;
        value = other;
        node = attn_graph_producer(graph, value);
    }
    const struct attn_attr *perm =
        node_is(node, "Transpose") ? attn_node_attr(node, "perm") : NULL;
    static const int64_t swap[] = { 0, 2, 1 };
    if (perm == NULL || perm->kind != ATTN_ATTR_INTS || perm->ints.n != 3 ||
        memcmp(perm->ints.v, swap, sizeof swap) != 0)
        return parted(graph, value);
    *transposed = true;
    return parted(graph, node->in[0]);
}

static bool same_leading(const struct attn_graph *graph, int32_t a, int32_t b)
{
    const attnrun_dim *x = match_type(graph, a)->dims, *y = match_type(graph, b)->dims;
    return dim_equal(x[0], y[0]) && dim_equal(x[1], y[1]);
}

/* The Reshape behind a product, with what is between. */
static bool read_chain(const struct attn_graph *graph, const struct attn_node *product,
                       struct head_groups_chain *chain)
{
    const int32_t like = product->out[0];
    const attnrun_dim *dims = match_type(graph, like)->dims;
    int32_t value = like;
    chain->n = 0;
    chain->pairs = false;
    for (;;) {
        struct attn_node *node = attn_graph_only_user(graph, value);
        chain->part = node;
        if (node_is(node, "Reshape"))
            return node->in[0] == value;
        if (chain->n == MAX_STEPS ||
            (!node_is(node, "Mul") && !node_is(node, "Div") && !node_is(node, "Add")) ||
            !attn_match_same_shape(graph, node->out[0], like))
            return false;
        const int32_t side = node->in[1] == value, other = node->in[1 - side];
        const attnrun_type *t = match_type(graph, other);
        double x;
        const bool pairs =
            node_is(node, "Add") && attn_match_same_shape(graph, other, like);
        chain->pairs = chain->pairs || pairs;
        if (other == value || (node_is(node, "Div") && side == 1) ||
            (!attn_value_scalar(graph, other, &x) && !pairs &&
             !(attn_match_is_f32_of(graph, other, 3) && dim_equal(t->dims[0], dims[0]) &&
               dim_is(t->dims[1], 1))))
            return false;
        chain->steps[chain->n] = node;
        chain->side[chain->n++] = side;
        value = node->out[0];
    }
}

/* (batch * heads, 1, n) as (batch, heads, 1, n). */
static attn_status part_numbers(struct attn_graph *graph, struct attn_node *before,
                                int64_t heads, int32_t *value)
{
    static const int64_t second = 2;
    const int64_t dims[3] = { -1, heads, 0 };
    int32_t in[2] = { *value };
    TRY(attn_match_reshape(graph, before, 3, dims, &in[0]));
    TRY(attn_match_ints(graph, 1, &second, &in[1]));
    return attn_match_add(graph, before, "Unsqueeze", 2, in, 0, NULL, value);
}

/* The steps of a chain on *scores (batch, heads, m, n). */
static attn_status part_steps(struct attn_graph *graph,
                              const struct head_groups_chain *chain,
                              struct attn_node **made)
{
    for (int k = 0; k < chain->n; k++) {
        const struct attn_node *step = chain->steps[k];
        int32_t in[2] = { step->in[0], step->in[1] };
        double x;
        in[chain->side[k]] = (*made)->out[0];
        if (!attn_value_scalar(graph, in[1 - chain->side[k]], &x))
            TRY(part_numbers(graph, chain->part,
                             match_type(graph, chain->part->out[0])->dims[1].value,
                             &in[1 - chain->side[k]]));
        TRY(attn_match_make(graph, chain->part, "", step->pub.op_type, 2, in,
                            chain->part->out[0], 0, NULL, made));
    }
    return ATTNRUN_OK;
}

/* Reshape(MatMul(joined a, joined b)) to (batch, heads, …). */
static attn_status try_product(struct attn_graph *graph, struct attn_node *node,
                               int32_t *applied)
{
    static const int64_t swap[] = { 0, 1, 3, 2 };
    static const struct attn_attr perm = { .name = "perm",
                                           .kind = ATTN_ATTR_INTS,
                                           .ints = { swap, 4 } };
    bool transposed;
    const struct attn_node *scalar;
    struct head_groups_chain chain;
    if (!is_rank(graph, node->out[0], 3) || !read_chain(graph, node, &chain) ||
        !attn_match_is_f32_of(graph, chain.part->out[0], 4))
        return ATTNRUN_OK;
    const struct attn_node *part = chain.part;
    int32_t in[2] = { parted(graph, node->in[0]),
                      parted_right(graph, node->in[1], &transposed, &scalar) };
    if (in[0] < 0 || in[1] < 0 || !same_leading(graph, in[0], in[1]) ||
        !same_leading(graph, in[0], part->out[0]))
        return ATTNRUN_OK;
    const attnrun_dim *three = match_type(graph, node->out[0])->dims,
                      *four = match_type(graph, part->out[0])->dims;
    if (!dim_equal(three[1], four[2]) || !dim_equal(three[2], four[3]) ||
        (chain.n > 0 && (!dim_is_const(four[1]) || four[1].value < 1)))
        return ATTNRUN_OK;
    if (chain.pairs)
        return attn_graph_note(
            graph, node, "head_groups",
            "numbers of all pairs are added to its scores, which exist "
            "anyway");
    if (transposed) {
        TRY(attn_match_add(graph, node, "Transpose", 1, &in[1], 1, &perm, &in[1]));
    }
    if (scalar != NULL) {
        int32_t both[2] = { scalar->in[0], scalar->in[1] };
        double x;
        both[attn_value_scalar(graph, both[1], &x) ? 0 : 1] = in[1];
        TRY(attn_match_add(graph, node, scalar->pub.op_type, 2, both, 0, NULL, &in[1]));
    }
    struct attn_node *made;
    TRY(attn_match_make(graph, node, "", "MatMul", 2, in, part->out[0], 0, NULL, &made));
    TRY(part_steps(graph, &chain, &made));
    attn_match_replace(graph, part->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

/* Softmax(joined x) becomes joined Softmax(x). */
static attn_status head_groups_try_softmax(struct attn_graph *graph,
                                           struct attn_node *node, int32_t *applied)
{
    int64_t axis = attn_match_int(node, "axis", node->pub.opset < 13 ? 1 : -1);
    int32_t from = parted(graph, node->in[0]);
    if (from < 0 || (axis != 2 && axis != -1) || !attn_match_is_f32(graph, from))
        return ATTNRUN_OK;
    struct attn_node *join = attn_graph_producer(graph, node->in[0]), *made;
    struct attn_attr last = MATCH_INT("axis", -1);
    TRY(attn_match_make(graph, node, "", "Softmax", 1, &from, from, 1, &last, &made));
    const int32_t in[2] = { made->out[0], join->in[1] };
    TRY(attn_match_make(graph, node, "", "Reshape", 2, in, node->out[0], join->n_attrs,
                        join->attrs, &made));
    attn_match_replace(graph, node->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_head_groups(struct attn_graph *graph, struct attn_node *node,
                                   int32_t *applied)
{
    if (node_is(node, "MatMul"))
        return try_product(graph, node, applied);
    return node_is(node, "Softmax") ? head_groups_try_softmax(graph, node, applied)
                                    : ATTNRUN_OK;
}

const struct attn_pass attn_pass_head_groups = { .name = "head_groups",
                                                 .try_node = try_head_groups };

/* softmax_operands.c - brings the nodes around a softmax over keys into the form that
 * fuse_attention.c recognises. It runs before that pass, and fuse_block_attention.c before it.
 *
 *   before                      after
 *   Softmax(S - max S)          Softmax(S), which subtracts the max itself
 *   Einsum of two operands      MatMul of their Transposes
 *   scores + mask, of (…, ?)    scores + Expand(mask, the number of keys), a view where it has them
 *
 * An Einsum is rewritten if one label is summed, one is the rows, one the columns, and both
 * operands have all others. A label that only one operand has beside these (keys and values that
 * all heads share) becomes an axis of size 1 of the other operand.
 *
 * The pass looks at the product that makes the scores, behind scalars, masks and sums, and at the
 * product with the values, if it alone reads the weights. Results differ at most in their last
 * bits, where a product adds in another order. */
#include "product.h"

enum { RANK = PRODUCT_RANK };

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

/* ---- Einsum ---- */

/* Labels of the result of a MatMul: those of both operands, then rows and columns. */
struct matrices {
    char shared[RANK + 1];
    int n_shared;
    char row, column, summed;
    int left; /* which operand has the rows */
};

static bool of_both(const struct attn_product *p, char label)
{
    return attn_labelled_has(&p->in[0], label) && attn_labelled_has(&p->in[1], label);
}

/* Rows and columns are the last labels of the result that only one operand has. */
static bool read_matrices(const struct attn_product *p, struct matrices *m)
{
    *m = (struct matrices){ .row = 0 };
    for (int i = p->out.n - 1; i >= 0; i--) {
        const char label = p->out.labels[i];
        const int side = attn_labelled_has(&p->in[0], label) ? 0 : 1;
        if (of_both(p, label) || (m->column != 0 && m->row != 0))
            continue;
        if (m->column == 0) {
            m->column = label;
            m->left = 1 - side;
        } else if (side == m->left) {
            m->row = label;
        }
    }
    for (int i = 0; i < p->out.n; i++)
        if (p->out.labels[i] != m->row && p->out.labels[i] != m->column)
            m->shared[m->n_shared++] = p->out.labels[i];
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < p->in[o].n; i++) {
            const char label = p->in[o].labels[i];
            if (attn_labelled_has(&p->out, label))
                continue;
            if (!of_both(p, label) || (m->summed != 0 && m->summed != label))
                return false;
            m->summed = label;
        }
    return m->row != 0 && m->column != 0 && m->summed != 0 && m->n_shared + 2 <= RANK;
}

/* An operand with axes shared, a, b; those that it has not are of 1. */
static attn_status arrange(struct attn_graph *graph, struct attn_node *before,
                           const struct matrices *m, const struct attn_labelled *x,
                           char a, char b, int32_t *value)
{
    char to[RANK + 1] = { 0 };
    int64_t missing[RANK];
    int n_missing = 0;
    int n = 0;
    for (int i = 0; i < m->n_shared; i++)
        if (attn_labelled_has(x, m->shared[i]))
            to[n++] = m->shared[i];
        else
            missing[n_missing++] = i;
    to[n++] = a;
    to[n++] = b;
    *value = x->value;
    TRY(attn_labels_transpose(graph, before, x->labels, to, n, value));
    if (n_missing == 0)
        return ATTNRUN_OK;
    int32_t axes;
    TRY(attn_match_ints(graph, n_missing, missing, &axes));
    const int32_t in[2] = { *value, axes };
    return attn_match_add(graph, before, "Unsqueeze", 2, in, 0, NULL, value);
}

static attn_status replace_einsum(struct attn_graph *graph, struct attn_node *einsum,
                                  int32_t *applied)
{
    struct attn_product p;
    struct matrices m;
    if (!attn_product_read(graph, einsum->out[0], &p) || p.n_in != 2 ||
        !read_matrices(&p, &m))
        return ATTNRUN_OK;
    const struct attn_labelled *left = &p.in[m.left], *right = &p.in[1 - m.left];
    /* Einsum broadcasts an axis of 1 that is summed, MatMul does not. */
    if (!attn_labelled_has(left, m.row) || !attn_labelled_has(right, m.column) ||
        !dim_equal(attn_labelled_dim(graph, left, m.summed),
                   attn_labelled_dim(graph, right, m.summed)))
        return ATTNRUN_OK;
    char order[RANK + 1];
    memcpy(order, m.shared, sizeof order);
    order[m.n_shared] = m.row;
    order[m.n_shared + 1] = m.column;
    int32_t in[2], y;
    struct attn_node *made;
    TRY(arrange(graph, einsum, &m, left, m.row, m.summed, &in[0]));
    TRY(arrange(graph, einsum, &m, right, m.summed, m.column, &in[1]));
    TRY(attn_match_add(graph, einsum, "MatMul", 2, in, 0, NULL, &y));
    TRY(attn_labels_transpose(graph, einsum, order, p.out.labels, p.out.n, &y));
    made = attn_graph_producer(graph, y);
    attn_match_replace(graph, einsum->out[0], made);
    ++*applied;
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
        TRY(replace_einsum(graph, scores, applied));
    return node_is(user, "Einsum") ? replace_einsum(graph, user, applied) : ATTNRUN_OK;
}

static attn_status run_softmax_operands(struct attn_graph *graph, int32_t *applied)
{
    return attn_match_each(graph, "Softmax", try_softmax, applied);
}

const struct attn_pass attn_pass_softmax_operands = { .name = "softmax_operands",
                                                      .run = run_softmax_operands };

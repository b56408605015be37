/* einsum_matmul.c - an Einsum of two operands as a MatMul of their Transposes: see product.h.
 *
 * An Einsum is rewritten if one label is summed, one is the rows, one the columns, and both
 * operands have all others. A label that only one operand has beside these (keys and values that
 * all heads share) becomes an axis of size 1 of the other operand. */
#include "product.h"

enum { RANK = PRODUCT_RANK };

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

attn_status attn_einsum_to_matmul(struct attn_graph *graph, struct attn_node *einsum,
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

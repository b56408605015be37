/* linear_roles.c - the roles of axes in attention by associativity: see linear_roles.h. Each axis
 * of each operand has a label; what the labels of two operands share decides what is summed, so
 * that transposes cost nothing and prove nothing wrong. */
#include "linear_roles.h"

enum { SUMMED = '#' };

/* ---- who is who ---- */

/* Operands of a product by the labels of its result; what both have and it has not, and
 * nothing else, is SUMMED. */
static bool take_sum(const struct attn_graph *graph, const char *to, int rank,
                     struct attn_labelled *k, struct attn_labelled *v)
{
    struct attn_labelled *const operands[] = { k, v };
    char summed[2] = { 0 };
    attn_labelled_untranspose(graph, k);
    attn_labelled_untranspose(graph, v);
    if (k->n != rank || v->n != rank)
        return false;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < rank; i++) {
            char *const label = &operands[o]->labels[i];
            if (to[*label - 'a'] != 0) {
                *label = to[*label - 'a'];
                continue;
            }
            if (summed[o] != 0)
                return false;
            summed[o] = *label;
            *label = SUMMED;
        }
    return summed[0] != 0 && summed[0] == summed[1];
}

/* Labels of Q by where else they are; the one of Y alone is that of dims of values. */
static bool read_labels(const struct attn_labelled *kv, struct attn_linear_roles *r)
{
    for (int i = 0; i < r->q.n; i++) {
        const char label = r->q.labels[i];
        const bool in_y = attn_labelled_has(&r->y, label),
                   in_kv = attn_labelled_has(kv, label);
        char *const role = in_y && in_kv ? (r->batch ? &r->head : &r->batch)
                           : in_y        ? &r->query
                           : in_kv       ? &r->dim
                                         : NULL;
        if (role == NULL || *role != 0)
            return false;
        *role = label;
    }
    for (int i = 0; i < r->y.n; i++)
        if (!attn_labelled_has(&r->q, r->y.labels[i]))
            r->v_dim = r->y.labels[i];
    return r->batch != 0 && r->dim != 0 && r->query != 0 && r->v_dim != 0 &&
           attn_labelled_has(kv, r->v_dim);
}

/* The axes of K and V, but those that a product of theirs sums. */
static bool is_keys_values(const struct attn_linear_roles *r,
                           const struct attn_labelled *k, const struct attn_labelled *v)
{
    const struct attn_labelled *const both[] = { k, v };
    for (int o = 0; o < 2; o++)
        if (!attn_labelled_has(both[o], r->batch) ||
            (r->head != 0 && !attn_labelled_has(both[o], r->head)))
            return false;
    return attn_labelled_has(k, r->dim) && attn_labelled_has(v, r->v_dim);
}

bool attn_linear_roles_read(const struct attn_graph *graph,
                            const struct attn_product *product, int q_in, int kv_in,
                            struct attn_linear_roles *roles)
{
    struct attn_product kv;
    struct attn_labelled inner = product->in[kv_in];
    char to[26] = { 0 };
    *roles = (struct attn_linear_roles){ .q = product->in[q_in], .y = product->out };
    attn_labelled_untranspose(graph, &roles->q);
    attn_labelled_untranspose(graph, &inner);
    const int rank = roles->q.n;
    if ((rank != 3 && rank != 4) || inner.n != rank || product->out.n != rank ||
        !attn_product_read(graph, inner.value, &kv) || kv.n_in != 2 || kv.out.n != rank ||
        !read_labels(&inner, roles))
        return false;
    for (int i = 0; i < rank; i++)
        to[kv.out.labels[i] - 'a'] = inner.labels[i];
    for (int side = 0; side < 2; side++) {
        struct attn_labelled k = kv.in[side], v = kv.in[1 - side];
        if (!take_sum(graph, to, rank, &k, &v) || !is_keys_values(roles, &k, &v))
            continue;
        roles->k = k;
        roles->v = v;
        roles->key = SUMMED;
        return true;
    }
    return false;
}

/* ---- order and sizes ---- */

/* Heads before tokens: 0; behind them, or none: 1; -1: another order. */
static int order_of(const struct attn_linear_roles *r, const struct attn_labelled *x,
                    char token, char dim)
{
    const char orders[2][4] = { { r->batch, r->head, token, dim },
                                { r->batch, token, r->head, dim } },
               no_heads[3] = { r->batch, token, dim };
    if (x->n == 3)
        return memcmp(x->labels, no_heads, 3) == 0 ? 1 : -1;
    for (int k = 0; k < 2; k++)
        if (memcmp(x->labels, orders[k], 4) == 0)
            return k;
    return -1;
}

static int common_order(struct attn_linear_roles *r)
{
    if (r->head != 0 &&
        attn_labelled_place(&r->q, r->batch) > attn_labelled_place(&r->q, r->head)) {
        const char batch = r->batch;
        r->batch = r->head;
        r->head = batch;
    }
    const int order = order_of(r, &r->q, r->query, r->dim);
    return order_of(r, &r->k, r->key, r->dim) == order &&
                   order_of(r, &r->v, r->key, r->v_dim) == order &&
                   order_of(r, &r->y, r->query, r->v_dim) == order
               ? order
               : -1;
}

static bool equal_dims(const struct attn_graph *graph, const struct attn_labelled *a,
                       const struct attn_labelled *b, char label)
{
    return label == 0 || dim_equal(attn_labelled_dim(graph, a, label),
                                   attn_labelled_dim(graph, b, label));
}

const char *attn_linear_roles_fit(const struct attn_graph *graph,
                                  struct attn_linear_roles *roles, bool *by_token)
{
    const struct attn_linear_roles *r = roles;
    const struct attn_labelled *const operands[] = { &r->k, &r->v, &r->y };
    const int order = common_order(roles);
    bool fits = order >= 0;
    for (int i = 0; i < 3; i++)
        fits = fits && equal_dims(graph, operands[i], &r->q, r->batch) &&
               equal_dims(graph, operands[i], &r->q, r->head);
    if (!fits || !equal_dims(graph, &r->q, &r->k, r->dim) ||
        !equal_dims(graph, &r->k, &r->v, r->key))
        return "its operands have axes in different orders, or sizes that are not known "
               "to "
               "be equal";
    *by_token = order == 1;
    const bool known =
        dim_is_const(attn_labelled_dim(graph, &r->q, r->dim)) &&
        dim_is_const(attn_labelled_dim(graph, &r->v, r->v_dim)) &&
        (r->head == 0 || (dim_is_const(attn_labelled_dim(graph, &r->q, r->head)) &&
                          attn_labelled_dim(graph, &r->q, r->head).value >= 1));
    return known ? NULL : "its heads and their sizes are not known";
}

/* linear_roles.c - finds the roles of axes in attention by associativity: see linear_roles.h. The
 * labels that two operands share decide what a product sums. A Transpose only renames the axes of
 * its input, so the pass looks through it. */
#include "linear_roles.h"

enum { SUMMED = '#', MAX_MOVES = 2 };

/* ---- roles ---- */

/* Renames the axes of the operands k and v of a product to those of its result: to[label - 'a'].
 * The one axis that both have and the result has not becomes SUMMED; false if there is another
 * number of such axes. */
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

/* Finds the roles of the axes of Q by the operands that have them, too. The axis that only Y has
 * is the dim of a value. */
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

/* Whether k and v have the axes of keys and of values, besides the summed one. */
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

/* ---- sizes ---- */

static bool equal_dims(const struct attn_graph *graph, const struct attn_labelled *a,
                       const struct attn_labelled *b, char label)
{
    return label == 0 || dim_equal(attn_labelled_dim(graph, a, label),
                                   attn_labelled_dim(graph, b, label));
}

/* Of the two axes that all operands have, the first one of Q is the batch. */
static void name_batch(struct attn_linear_roles *r)
{
    if (r->head == 0 ||
        attn_labelled_place(&r->q, r->batch) < attn_labelled_place(&r->q, r->head))
        return;
    const char batch = r->batch;
    r->batch = r->head;
    r->head = batch;
}

/* ---- order ---- */

static void write_order(const struct attn_linear_roles *r, enum attn_linear_axes axes,
                        char token, char dim, char *labels)
{
    const char orders[ATTN_AXES_N][4] = { { r->batch, r->head, token, dim },
                                          { r->batch, token, r->head, dim },
                                          { r->batch, r->head, dim, token } },
               no_heads[ATTN_AXES_N][4] = { { 0 },
                                            { r->batch, token, dim },
                                            { r->batch, dim, token } };
    memcpy(labels, r->head == 0 ? no_heads[axes] : orders[axes], 4);
}

/* Y behind a Transpose that alone reads it; false where there is none. */
static bool transposed_result(const struct attn_graph *graph,
                              const struct attn_labelled *y, struct attn_labelled *behind)
{
    const struct attn_node *node = attn_graph_only_user(graph, y->value);
    const struct attn_attr *perm = node ? attn_node_attr(node, "perm") : NULL;
    if (!node_is(node, "Transpose") || perm == NULL || perm->kind != ATTN_ATTR_INTS ||
        perm->ints.n != y->n)
        return false;
    *behind = (struct attn_labelled){ .value = node->out[0], .n = y->n };
    for (int i = 0; i < y->n; i++)
        behind->labels[i] = y->labels[perm->ints.v[i]];
    return true;
}

/* Counts the operands whose axes are in another order than `axes`; *y: the result in that order,
 * which may be behind a Transpose. */
static int count_moves(const struct attn_graph *graph, const struct attn_linear_roles *r,
                       enum attn_linear_axes axes, struct attn_labelled *y)
{
    char labels[4];
    struct attn_labelled behind;
    const size_t n = (size_t)r->q.n;
    write_order(r, axes, r->query, r->dim, labels);
    int moves = memcmp(labels, r->q.labels, n) != 0;
    write_order(r, axes, r->key, r->dim, labels);
    moves += memcmp(labels, r->k.labels, n) != 0;
    write_order(r, axes, r->key, r->v_dim, labels);
    moves += memcmp(labels, r->v.labels, n) != 0;
    write_order(r, axes, r->query, r->v_dim, labels);
    *y = r->y;
    if (memcmp(labels, y->labels, n) == 0)
        return moves;
    if (!transposed_result(graph, y, &behind) || memcmp(labels, behind.labels, n) != 0)
        return moves + 1;
    *y = behind;
    return moves;
}

/* The order that the fewest operands, *moves, are not in, and Y in it. */
static enum attn_linear_axes choose_order(const struct attn_graph *graph,
                                          const struct attn_linear_roles *r, int *moves,
                                          struct attn_labelled *y)
{
    enum attn_linear_axes chosen =
        r->head == 0 ? ATTN_AXES_TOKENS_FIRST : ATTN_AXES_HEADS_FIRST;
    *moves = count_moves(graph, r, chosen, y);
    for (int axes = (int)chosen + 1; axes < ATTN_AXES_N; axes++) {
        struct attn_labelled other;
        const int n = count_moves(graph, r, (enum attn_linear_axes)axes, &other);
        if (n >= *moves)
            continue;
        chosen = (enum attn_linear_axes)axes;
        *moves = n;
        *y = other;
    }
    return chosen;
}

const char *attn_linear_roles_fit(const struct attn_graph *graph,
                                  struct attn_linear_roles *roles)
{
    const struct attn_linear_roles *r = roles;
    const struct attn_labelled *const operands[] = { &r->k, &r->v, &r->y };
    name_batch(roles);
    bool fits = equal_dims(graph, &r->q, &r->k, r->dim) &&
                equal_dims(graph, &r->k, &r->v, r->key);
    for (int i = 0; i < 3; i++)
        fits = fits && equal_dims(graph, operands[i], &r->q, r->batch) &&
               equal_dims(graph, operands[i], &r->q, r->head);
    if (!fits)
        return "the sizes of its operands are not known to be equal";
    int64_t joined;
    const attnrun_dim heads = r->head == 0 ? dim_of(1)
                                           : attn_labelled_dim(graph, &r->q, r->head),
                      dim = attn_labelled_dim(graph, &r->q, r->dim),
                      v_dim = attn_labelled_dim(graph, &r->v, r->v_dim);
    const bool known = dim_is_const(heads) && dim_is_const(dim) && dim_is_const(v_dim) &&
                       heads.value >= 1 && heads.value <= INT32_MAX && dim.value >= 1 &&
                       v_dim.value >= 1 && ck_mul(heads.value, dim.value, &joined) &&
                       ck_mul(heads.value, v_dim.value, &joined);
    if (!known)
        return "its heads and their sizes are not known to be above 0";
    struct attn_labelled y;
    int moves;
    choose_order(graph, r, &moves, &y);
    return moves <= MAX_MOVES ? NULL
                              : "most of its operands have their axes in a different "
                                "order, in which separate products are as fast";
}

attn_status attn_linear_roles_arrange(struct attn_graph *graph, struct attn_node *node,
                                      const struct attn_linear_roles *roles,
                                      struct attn_linear_order *order)
{
    const struct attn_linear_roles *r = roles;
    const struct attn_labelled *const operands[] = { &r->q, &r->k, &r->v };
    const char tokens[] = { r->query, r->key, r->key },
               dims[] = { r->dim, r->dim, r->v_dim };
    struct attn_labelled y;
    int moves;
    *order = (struct attn_linear_order){ .axes = choose_order(graph, r, &moves, &y) };
    for (int i = 0; i < 3; i++) {
        char labels[4];
        write_order(r, order->axes, tokens[i], dims[i], labels);
        order->in[i] = operands[i]->value;
        TRY(attn_labels_transpose(graph, node, operands[i]->labels, labels,
                                  operands[i]->n, &order->in[i]));
    }
    order->y = y.value;
    write_order(r, order->axes, r->query, r->v_dim, order->made);
    memcpy(order->y_labels, y.labels, 4);
    return ATTNRUN_OK;
}

/* attention.c - decomposed softmax attention becomes FusedAttention, which never holds
 * the scores: Y = MatMul(Softmax(scale * MatMul(Q, K') + mask), V) Recognised on the way:
 * scalars on either operand or on the product; K transposed by one Transpose or by
 * Reshape, Transpose, Reshape; Where(keep, scores, -big) as a mask; key and value heads
 * repeated by Unsqueeze, Expand, Reshape; IsNaN and Where behind the Softmax, which turn
 * rows without a key into zeros. Without those, such rows stay NaN (nan_rows). */
#include "match.h"

struct found {
    struct attn_node *softmax;
    int32_t q, k, v;
    int32_t mask, mask2;     /* added to the scores; -1: none */
    bool k_by_token;         /* k is (batch, tokens, heads, dim) */
    int32_t keep, keep_fill; /* Where's condition and filling, or -1 */
    double scale;
    int32_t result;
    bool nan_rows;
};

static bool is_rank4(const struct attn_graph *graph, int32_t value)
{
    return attn_match_is_f32(graph, value) && graph->values[value].type.rank == 4;
}

static attnrun_dim dim_at(const struct attn_graph *graph, int32_t value, int axis)
{
    return graph->values[value].type.dims[axis];
}

static bool has_perm(const struct attn_node *node, int n, const int64_t *perm)
{
    const struct attn_attr *attr = attn_node_attr(node, "perm");
    return attr != NULL && attr->kind == ATTN_ATTR_INTS && attr->ints.n == n &&
           memcmp(attr->ints.v, perm, (size_t)n * sizeof *perm) == 0;
}

/* Takes scalars off a value: it is *scale times what is returned. */
static int32_t strip_scalars(const struct attn_graph *graph, int32_t value, double *scale)
{
    for (int k = 0; k < 4; k++) {
        double x;
        int32_t other;
        struct attn_node *node = attn_graph_producer(graph, value);
        if (node_is(node, "Mul") && attn_match_scalar(graph, node, true, &x, &other))
            *scale *= x;
        else if (node_is(node, "Div") &&
                 attn_match_scalar(graph, node, false, &x, &other) && (x < 0 || x > 0))
            *scale /= x;
        else
            break;
        if (!attn_match_same_shape(graph, other, value))
            break;
        value = other;
    }
    return value;
}

/* The value of rank 4 that `value` is with its last two dims exchanged; -1 where it is
 * not. *by_token: it has tokens before heads, too. */
static int32_t untransposed(const struct attn_graph *graph, int32_t value, bool *by_token)
{
    static const int64_t swap3[] = { 0, 2, 1 }, swap4[] = { 0, 1, 3, 2 };
    static const int64_t from_tokens[] = { 0, 2, 3, 1 };
    struct attn_node *node = attn_graph_producer(graph, value);
    *by_token = node_is(node, "Transpose") && has_perm(node, 4, from_tokens);
    if (node_is(node, "Transpose"))
        return (*by_token || has_perm(node, 4, swap4)) && is_rank4(graph, node->in[0])
                   ? node->in[0]
                   : -1;
    if (!node_is(node, "Reshape"))
        return -1;
    struct attn_node *transpose = attn_match_in(graph, node, 0, "Transpose");
    struct attn_node *flat =
        transpose ? attn_match_in(graph, transpose, 0, "Reshape") : NULL;
    if (flat == NULL || !has_perm(transpose, 3, swap3) || !is_rank4(graph, flat->in[0]) ||
        graph->values[flat->out[0]].type.rank != 3)
        return -1;
    int32_t from = flat->in[0];
    bool same = dim_equal(dim_at(graph, from, 0), dim_at(graph, value, 0)) &&
                dim_equal(dim_at(graph, from, 1), dim_at(graph, value, 1)) &&
                dim_equal(dim_at(graph, from, 2), dim_at(graph, value, 3)) &&
                dim_equal(dim_at(graph, from, 3), dim_at(graph, value, 2)) &&
                dim_equal(dim_at(graph, from, 2), dim_at(graph, flat->out[0], 1)) &&
                dim_equal(dim_at(graph, from, 3), dim_at(graph, flat->out[0], 2));
    return same ? from : -1;
}

/* MatMul(Q, K') times scalars. */
static bool read_scores(const struct attn_graph *graph, int32_t value,
                        struct found *found)
{
    found->scale = 1;
    value = strip_scalars(graph, value, &found->scale);
    struct attn_node *product = attn_graph_producer(graph, value);
    if (!node_is(product, "MatMul"))
        return false;
    found->q = strip_scalars(graph, product->in[0], &found->scale);
    found->k = untransposed(graph, strip_scalars(graph, product->in[1], &found->scale),
                            &found->k_by_token);
    if (found->k >= 0)
        found->k = strip_scalars(graph, found->k, &found->scale);
    return found->k >= 0 && is_rank4(graph, found->q) && is_rank4(graph, found->k);
}

/* Scores, or Where(keep, scores, filling) with a large negative filling. */
static bool read_kept(const struct attn_graph *graph, int32_t value, struct found *found)
{
    double fill;
    found->keep = found->keep_fill = -1;
    struct attn_node *where = attn_graph_producer(graph, value);
    if (!node_is(where, "Where"))
        return read_scores(graph, value, found);
    if (!attn_value_scalar(graph, where->in[2], &fill) || fill > -1e4)
        return false;
    found->keep = where->in[0];
    found->keep_fill = where->in[2];
    return read_scores(graph, where->in[1], found);
}

/* scores + mask, or scores + mask + mask2 as a chain of two Adds. */
static bool read_masked(const struct attn_graph *graph, int32_t value,
                        struct found *found)
{
    int32_t *const masks[] = { &found->mask, &found->mask2 };
    found->mask = found->mask2 = -1;
    for (int k = 0; k < 2; k++) {
        struct attn_node *add = attn_graph_producer(graph, value);
        if (!node_is(add, "Add"))
            break;
        for (int in = 0; in < 2; in++)
            if (read_kept(graph, add->in[in], found)) {
                *masks[k] = add->in[1 - in];
                return attn_match_is_f32(graph, *masks[k]);
            }
        int scores = node_is(attn_graph_producer(graph, add->in[0]), "Add") ? 0 : 1;
        *masks[k] = add->in[1 - scores];
        if (k == 1 || !attn_match_is_f32(graph, *masks[k]))
            return false;
        value = add->in[scores];
    }
    return found->mask < 0 && read_kept(graph, value, found);
}

/* Dim `axis` of K as (batch, heads, tokens, dim). */
static attnrun_dim k_dim(const struct attn_graph *graph, const struct found *found,
                         int axis)
{
    bool swap = found->k_by_token && (axis == 1 || axis == 2);
    return dim_at(graph, found->k, swap ? 3 - axis : axis);
}

/* A mask's last dim must be the number of keys: Attention reads a shorter one otherwise.
 */
static bool mask_fits(const struct attn_graph *graph, const struct found *found,
                      int32_t mask)
{
    if (mask < 0)
        return true;
    int rank = graph->values[mask].type.rank;
    return rank >= 2 && rank <= 4 &&
           dim_equal(dim_at(graph, mask, rank - 1), k_dim(graph, found, 2));
}

/* Behind the Softmax: what zeroes NaN rows, and the product with V. */
static bool read_product(const struct attn_graph *graph, struct found *found)
{
    int32_t p = found->softmax->out[0];
    found->nan_rows = true;
    struct attn_node *user = attn_graph_only_user(graph, p);
    if (user == NULL && graph->values[p].n_uses == 2 &&
        !(graph->values[p].flags & ATTN_VALUE_OUTPUT)) {
        for (int64_t n = 0; n < graph->n_nodes && user == NULL; n++) {
            struct attn_node *where = graph->nodes[n];
            double zero;
            if (node_is(where, "Where") && where->in[2] == p &&
                attn_value_scalar(graph, where->in[1], &zero) && zero <= 0 && zero >= 0) {
                struct attn_node *nan = attn_match_in(graph, where, 0, "IsNaN");
                user = nan != NULL && nan->in[0] == p ? where : NULL;
            }
        }
        if (user == NULL)
            return false;
        found->nan_rows = false;
        p = user->out[0];
        user = attn_graph_only_user(graph, p);
    }
    if (!node_is(user, "MatMul") || user->in[0] != p)
        return false;
    found->v = user->in[1];
    found->result = user->out[0];
    return is_rank4(graph, found->v);
}

/* The value before each head was repeated; `value` itself where none was. */
static int32_t unrepeated(const struct attn_graph *graph, int32_t value)
{
    struct attn_node *reshape = attn_graph_producer(graph, value);
    struct attn_node *expand =
        node_is(reshape, "Reshape") ? attn_match_in(graph, reshape, 0, "Expand") : NULL;
    struct attn_node *unsqueeze =
        expand ? attn_match_in(graph, expand, 0, "Unsqueeze") : NULL;
    if (unsqueeze == NULL || !is_rank4(graph, unsqueeze->in[0]))
        return value;
    int32_t from = unsqueeze->in[0], wide = expand->out[0], narrow = unsqueeze->out[0];
    const attnrun_type *w = &graph->values[wide].type, *n = &graph->values[narrow].type;
    if (w->rank != 5 || n->rank != 5 || !dim_is(n->dims[2], 1) ||
        !dim_is_const(w->dims[2]))
        return value;
    bool same = true;
    for (int d = 0; d < 4; d++) {
        attnrun_dim inner = dim_at(graph, from, d);
        same = same && dim_equal(inner, w->dims[d < 2 ? d : d + 1]) &&
               (d == 1 || dim_equal(inner, dim_at(graph, value, d)));
    }
    return same ? from : value;
}

static void share_heads(const struct attn_graph *graph, struct found *found)
{
    int32_t k = unrepeated(graph, found->k), v = unrepeated(graph, found->v);
    if (k == found->k || v == found->v ||
        !dim_equal(dim_at(graph, k, 1), dim_at(graph, v, 1)))
        return;
    found->k = k;
    found->v = v;
}

/* A node in front of the Softmax; *out is its only output. */
static attn_status add_before(struct attn_graph *graph, const struct found *found,
                              const char *op_type, int32_t n_in, const int32_t *in,
                              int32_t n_attrs, const struct attn_attr *attrs,
                              int32_t *out)
{
    TRY(attn_graph_add_value(graph, NULL, out));
    struct attn_node *made = attn_graph_insert(graph, found->softmax, "", op_type, n_in,
                                               in, 1, out, n_attrs, attrs);
    return made ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

/* All that is added to the scores as one mask: Where(keep, 0, filling) + mask + mask2. */
static attn_status join_masks(struct attn_graph *graph, struct found *found)
{
    int32_t zero;
    void *data;
    if (found->keep >= 0) {
        TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &zero, &data));
        int32_t in[3] = { found->keep, zero, found->keep_fill };
        int32_t *free_place = found->mask < 0 ? &found->mask : &found->keep_fill;
        TRY(add_before(graph, found, "Where", 3, in, 0, NULL, free_place));
        if (free_place == &found->keep_fill) {
            int32_t both[2] = { found->keep_fill, found->mask };
            TRY(add_before(graph, found, "Add", 2, both, 0, NULL, &found->mask));
        }
    }
    if (found->mask2 < 0)
        return ATTNRUN_OK;
    int32_t both[2] = { found->mask2, found->mask };
    return add_before(graph, found, "Add", 2, both, 0, NULL, &found->mask);
}

static attn_status split_k(struct attn_graph *graph, struct found *found)
{
    static const int64_t perm[] = { 0, 2, 1, 3 };
    struct attn_attr attr = { .name = "perm",
                              .kind = ATTN_ATTR_INTS,
                              .ints = { perm, 4 } };
    int32_t k = found->k;
    if (!found->k_by_token)
        return ATTNRUN_OK;
    return add_before(graph, found, "Transpose", 1, &k, 1, &attr, &found->k);
}

static attn_status replace_attention(struct attn_graph *graph, struct found *found)
{
    TRY(join_masks(graph, found));
    TRY(split_k(graph, found));
    int32_t in[4] = { found->q, found->k, found->v, found->mask };
    struct attn_attr attrs[] = { MATCH_FLOAT("scale", (float)found->scale),
                                 MATCH_INT("nan_rows", found->nan_rows) };
    struct attn_node *made =
        attn_match_make(graph, found->softmax, "attnrun.fused", "FusedAttention",
                        found->mask >= 0 ? 4 : 3, in, found->result, 2, attrs);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    attn_match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

static bool last_axis(const struct attn_graph *graph, const struct attn_node *softmax)
{
    int64_t axis = attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    return graph->values[softmax->in[0]].type.rank == 4 && (axis == 3 || axis == -1);
}

static attn_status try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                               int32_t *applied)
{
    struct found found = { .softmax = softmax };
    if (!attn_match_is_f32(graph, softmax->in[0]) || !last_axis(graph, softmax) ||
        !read_masked(graph, softmax->in[0], &found) || !read_product(graph, &found))
        return ATTNRUN_OK;
    if (!mask_fits(graph, &found, found.mask) || !mask_fits(graph, &found, found.mask2) ||
        !mask_fits(graph, &found, found.keep) ||
        !dim_equal(k_dim(graph, &found, 2), dim_at(graph, found.v, 2)) ||
        !dim_equal(k_dim(graph, &found, 1), dim_at(graph, found.v, 1)) ||
        !dim_equal(dim_at(graph, found.q, 1), k_dim(graph, &found, 1)))
        return ATTNRUN_OK;
    if (!found.k_by_token)
        share_heads(graph, &found);
    TRY(replace_attention(graph, &found));
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run(struct attn_graph *graph, int32_t *applied)
{
    int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes; n++)
        if (node_is(graph->nodes[n], "Softmax") &&
            graph->values[graph->nodes[n]->out[0]].n_uses > 0)
            TRY(try_softmax(graph, graph->nodes[n], applied));
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_attention = { .name = "attention", .run = run };

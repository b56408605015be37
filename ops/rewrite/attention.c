/* attention.c - decomposed softmax attention becomes FusedAttention, which never holds the
 * scores:
 *   Y = MatMul(Softmax(scale * MatMul(Q, K') + mask), V)
 * Recognised on the way: scalars on either operand or on the product; K transposed by one
 * Transpose or by Reshape, Transpose, Reshape; Where(keep, scores, -big) as a mask; key and
 * value heads repeated by Unsqueeze, Expand, Reshape; IsNaN and Where behind the Softmax,
 * which turn rows without a key into zeros. Without those, such rows stay NaN (nan_rows). */
#include "match.h"

struct found {
    struct attn_node *softmax;
    int32_t q, k, v, mask; /* values; mask -1: none */
    int32_t keep, keep_fill; /* Where's condition and filling, or -1 */
    double scale;
    int32_t result;
    bool nan_rows;
};

static bool is_rank4(const struct attn_graph *graph, int32_t value)
{
    return match_is_f32(graph, value) && graph->values[value].type.rank == 4;
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
        if (node_is(node, "Mul") && match_scalar(graph, node, true, &x, &other))
            *scale *= x;
        else if (node_is(node, "Div") && match_scalar(graph, node, false, &x, &other) &&
                 (x < 0 || x > 0))
            *scale /= x;
        else
            break;
        if (!match_same_shape(graph, other, value))
            break;
        value = other;
    }
    return value;
}

/* The value of rank 4 that `value` is with its last two dims exchanged; -1 where it is not. */
static int32_t untransposed(const struct attn_graph *graph, int32_t value)
{
    static const int64_t swap3[] = { 0, 2, 1 }, swap4[] = { 0, 1, 3, 2 };
    struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Transpose"))
        return has_perm(node, 4, swap4) && is_rank4(graph, node->in[0]) ? node->in[0] : -1;
    if (!node_is(node, "Reshape"))
        return -1;
    struct attn_node *transpose = match_in(graph, node, 0, "Transpose");
    struct attn_node *flat = transpose ? match_in(graph, transpose, 0, "Reshape") : NULL;
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
static bool read_scores(const struct attn_graph *graph, int32_t value, struct found *found)
{
    found->scale = 1;
    value = strip_scalars(graph, value, &found->scale);
    struct attn_node *product = attn_graph_producer(graph, value);
    if (!node_is(product, "MatMul"))
        return false;
    found->q = strip_scalars(graph, product->in[0], &found->scale);
    found->k = untransposed(graph, strip_scalars(graph, product->in[1], &found->scale));
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

static bool read_masked(const struct attn_graph *graph, int32_t value, struct found *found)
{
    struct attn_node *add = attn_graph_producer(graph, value);
    found->mask = -1;
    if (!node_is(add, "Add"))
        return read_kept(graph, value, found);
    for (int in = 0; in < 2; in++)
        if (read_kept(graph, add->in[in], found)) {
            found->mask = add->in[1 - in];
            return match_is_f32(graph, found->mask);
        }
    return false;
}

/* A mask's last dim must be the number of keys: Attention reads a shorter one otherwise. */
static bool mask_fits(const struct attn_graph *graph, int32_t mask, int32_t k)
{
    if (mask < 0)
        return true;
    int rank = graph->values[mask].type.rank;
    return rank >= 2 && rank <= 4 &&
           dim_equal(dim_at(graph, mask, rank - 1), dim_at(graph, k, 2));
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
                struct attn_node *nan = match_in(graph, where, 0, "IsNaN");
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
        node_is(reshape, "Reshape") ? match_in(graph, reshape, 0, "Expand") : NULL;
    struct attn_node *unsqueeze = expand ? match_in(graph, expand, 0, "Unsqueeze") : NULL;
    if (unsqueeze == NULL || !is_rank4(graph, unsqueeze->in[0]))
        return value;
    int32_t from = unsqueeze->in[0], wide = expand->out[0], narrow = unsqueeze->out[0];
    const attnrun_type *w = &graph->values[wide].type, *n = &graph->values[narrow].type;
    if (w->rank != 5 || n->rank != 5 || !dim_is(n->dims[2], 1) || !dim_is_const(w->dims[2]))
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

/* Where(keep, 0, filling) as a mask to add, alone or on top of the other one. */
static attn_status add_keep(struct attn_graph *graph, struct found *found)
{
    int32_t zero, out;
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &zero, &data));
    TRY(attn_graph_add_value(graph, NULL, &out));
    int32_t in[3] = { found->keep, zero, found->keep_fill };
    if (attn_graph_insert(graph, found->softmax, "", "Where", 3, in, 1, &out, 0, NULL) == NULL)
        return ATTNRUN_E_MEMORY;
    if (found->mask >= 0) {
        int32_t sum, both[2] = { out, found->mask };
        TRY(attn_graph_add_value(graph, NULL, &sum));
        if (attn_graph_insert(graph, found->softmax, "", "Add", 2, both, 1, &sum, 0, NULL) ==
            NULL)
            return ATTNRUN_E_MEMORY;
        out = sum;
    }
    found->mask = out;
    return ATTNRUN_OK;
}

static attn_status replace_attention(struct attn_graph *graph, struct found *found)
{
    if (found->keep >= 0)
        TRY(add_keep(graph, found));
    int32_t in[4] = { found->q, found->k, found->v, found->mask };
    struct attn_attr attrs[] = { MATCH_FLOAT("scale", (float)found->scale),
                                 MATCH_INT("nan_rows", found->nan_rows) };
    struct attn_node *made = match_make(graph, found->softmax, "attnrun.fused",
                                        "FusedAttention", found->mask >= 0 ? 4 : 3, in,
                                        found->result, 2, attrs);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

static bool last_axis(const struct attn_graph *graph, const struct attn_node *softmax)
{
    int64_t axis = match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    return graph->values[softmax->in[0]].type.rank == 4 && (axis == 3 || axis == -1);
}

static attn_status try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                               int32_t *applied)
{
    struct found found = { .softmax = softmax };
    if (!match_is_f32(graph, softmax->in[0]) || !last_axis(graph, softmax) ||
        !read_masked(graph, softmax->in[0], &found) || !read_product(graph, &found))
        return ATTNRUN_OK;
    if (!mask_fits(graph, found.mask, found.k) || !mask_fits(graph, found.keep, found.k) ||
        !dim_equal(dim_at(graph, found.k, 2), dim_at(graph, found.v, 2)) ||
        !dim_equal(dim_at(graph, found.k, 1), dim_at(graph, found.v, 1)) ||
        !dim_equal(dim_at(graph, found.q, 1), dim_at(graph, found.k, 1)))
        return ATTNRUN_OK;
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

/* attention_match.c - reads the nodes of decomposed softmax attention:
 *
 *   Y = MatMul(Softmax(scale * MatMul(Q, K') + mask), V)
 *
 * In: a Softmax. Out: the operands, the scale and the masks, or the condition that failed. */
#include "attention_match.h"

#include <math.h>

static attnrun_dim dim_at(const struct attn_graph *graph, int32_t value, int axis)
{
    return graph->values[value].type.dims[axis];
}

attnrun_dim attn_attention_dim(const struct attn_graph *graph, int32_t value, int axis)
{
    axis -= 4 - graph->values[value].type.rank;
    return axis < 0 ? dim_of(1) : dim_at(graph, value, axis);
}

static bool has_perm(const struct attn_node *node, int n, const int64_t *perm)
{
    const struct attn_attr *attr = attn_node_attr(node, "perm");
    return attr != NULL && attr->kind == ATTN_ATTR_INTS && attr->ints.n == n &&
           memcmp(attr->ints.v, perm, (size_t)n * sizeof *perm) == 0;
}

/* Takes scalars off a value: it is *scale times what is returned. `sole`: nobody else
 * may read what is in between. */
static int32_t strip_scalars(const struct attn_graph *graph, int32_t value, double *scale,
                             bool sole)
{
    for (int k = 0; k < 4 && (!sole || match_read_once(graph, value)) &&
                    attn_match_take_scale(graph, &value, scale, attn_match_same_shape);
         k++)
        ;
    return value;
}

/* The value that `value`, which is K', was made of by Reshape, Transpose, Reshape, or
 * -1. */
static int32_t reshaped_k(const struct attn_graph *graph, int32_t value)
{
    struct attn_node *node = attn_graph_producer(graph, value);
    if (!node_is(node, "Reshape"))
        return -1;
    struct attn_node *transpose = attn_match_in(graph, node, 0, "Transpose");
    struct attn_node *flat =
        transpose ? attn_match_in(graph, transpose, 0, "Reshape") : NULL;
    if (flat == NULL || !has_perm(transpose, 3, match_swap3) ||
        !attn_match_is_f32_of(graph, flat->in[0], 4) ||
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

/* K, of which `value` is the transpose in a form that costs nothing; else `value`. */
static int32_t untransposed(const struct attn_graph *graph, int32_t value,
                            enum attn_k_form *form)
{
    static const int64_t from_tokens[] = { 0, 2, 3, 1 };
    struct attn_node *node = attn_graph_producer(graph, value);
    bool transposed = node_is(node, "Transpose") && attn_match_is_f32(graph, node->in[0]);
    *form = K_AS_GIVEN;
    if (transposed && (has_perm(node, 4, match_swap4) || has_perm(node, 3, match_swap3)))
        return node->in[0];
    *form = K_BY_TOKEN;
    if (transposed && has_perm(node, 4, from_tokens))
        return node->in[0];
    *form = K_AS_GIVEN;
    int32_t from = reshaped_k(graph, value);
    if (from >= 0)
        return from;
    *form = K_BY_DIM;
    return value;
}

/* MatMul, or FusedMatMul as ONNX Runtime writes it: A B' where *transposed, times
 * *scale. */
static bool is_product(const struct attn_node *node, bool *transposed, double *scale)
{
    *transposed = false;
    if (node_is(node, "MatMul"))
        return true;
    if (!node_is_of(node, "com.microsoft", "FusedMatMul") ||
        attn_match_int(node, "transA", 0) != 0 ||
        attn_match_int(node, "transBatchA", 0) != 0 ||
        attn_match_int(node, "transBatchB", 0) != 0)
        return false;
    *transposed = attn_match_int(node, "transB", 0) != 0;
    *scale *= (double)attn_match_float(node, "alpha", 1);
    return true;
}

/* cap tanh(score / cap), which is read once: *value becomes that score, by found->scale. */
static void take_softcap(const struct attn_graph *graph, int32_t *value,
                         struct attn_attention_match *found)
{
    double factor = 1;
    const int32_t scaled = strip_scalars(graph, *value, &factor, true);
    struct attn_node *tanh = attn_graph_producer(graph, scaled);
    found->softcap = 0;
    if (!node_is(tanh, "Tanh") || !match_read_once(graph, scaled) ||
        !(fabs(factor) > 1e-6 && fabs(factor) < 1e6))
        return;
    found->softcap = fabs(factor);
    found->scale *= factor;
    *value = tanh->in[0];
}

/* Numbers that are those of all keys of a row of scores, so that they may scale the queries. Not a
 * constant scalar: strip_scalars() left it, since floats may not hold the queries times it. */
static bool is_of_rows(const struct attn_graph *graph, int32_t factor, int32_t scores)
{
    double x;
    const attnrun_type *f = match_type(graph, factor), *t = match_type(graph, scores);
    if (!attn_match_is_f32(graph, factor) || f->rank > t->rank ||
        attn_value_scalar(graph, factor, &x))
        return false;
    for (int i = 1; i <= f->rank; i++)
        if (!dim_is(f->dims[f->rank - i], 1) &&
            (i == 1 || !dim_equal(f->dims[f->rank - i], t->dims[t->rank - i])))
            return false;
    return true;
}

/* A factor of each head, as cosine attention has it, or of each query: *value becomes what it
 * scales. */
static void take_row_factor(const struct attn_graph *graph, int32_t *value,
                            struct attn_attention_match *found)
{
    const struct attn_node *node = attn_graph_producer(graph, *value);
    const bool times = node_is(node, "Mul");
    found->q_factor = -1;
    if ((!times && !node_is(node, "Div")) || !match_read_once(graph, *value))
        return;
    for (int side = 0; side < 1 + times; side++)
        if (attn_match_same_shape(graph, node->in[side], *value) &&
            is_of_rows(graph, node->in[1 - side], *value)) {
            found->q_factor = node->in[1 - side];
            found->q_with = times ? "Mul" : "Div";
            *value = node->in[side];
            return;
        }
}

/* ---- windows ---- */

/* Whether two values have the same last three dims. */
static bool same_pairs(const struct attn_graph *graph, int32_t four, int32_t five)
{
    for (int axis = 1; axis < 4; axis++)
        if (!dim_equal(dim_at(graph, four, axis), dim_at(graph, five, axis + 1)))
            return false;
    return true;
}

/* Whether masks outside of the windows are the same for all samples and windows. */
static bool masks_are_shared(const struct attn_graph *graph,
                             const struct attn_attention_match *found)
{
    for (int k = 0; k <= MASK_ADDS; k++) {
        const int32_t mask = k < MASK_ADDS ? found->added[k] : found->keep;
        const bool inside =
            k < MASK_ADDS ? found->added_in_windows[k] : found->keep_in_windows;
        if (mask >= 0 && !inside && match_type(graph, mask)->rank >= 4 &&
            !dim_is(dim_at(graph, mask, 0), 1))
            return false;
    }
    return true;
}

/* Scores (batch, heads, …) that a Reshape, which only splits the batch or joins it again, makes
 * of scores that are read once: *value becomes what it reads. From the softmax on the batch is
 * joined first, and split before that. */
static void take_reshape(const struct attn_graph *graph, int32_t *value,
                         struct attn_attention_match *found)
{
    struct attn_node *node = attn_graph_producer(graph, *value);
    const int rank = found->in_windows ? 5 : 4;
    if (!node_is(node, "Reshape") || !match_read_once(graph, *value) ||
        (!found->in_windows && found->windows > 0) ||
        !attn_match_is_f32_of(graph, *value, rank) ||
        !attn_match_is_f32_of(graph, node->in[0], 9 - rank))
        return;
    const int32_t four = rank == 4 ? *value : node->in[0],
                  five = rank == 4 ? node->in[0] : *value;
    const attnrun_dim windows = dim_at(graph, five, 1);
    if (!same_pairs(graph, four, five) || !dim_is_const(windows) || windows.value < 1 ||
        (found->in_windows && windows.value != found->windows))
        return;
    found->in_windows = !found->in_windows;
    found->windows = windows.value;
    found->samples = dim_at(graph, five, 0);
    *value = node->in[0];
}

/* ---- the scores and what is between them and the softmax ---- */

/* MatMul(Q, K') times scalars. */
static bool read_scores(const struct attn_graph *graph, int32_t value,
                        struct attn_attention_match *found)
{
    bool transposed;
    take_reshape(graph, &value, found);
    if (found->in_windows)
        return false;
    found->scale = 1;
    take_softcap(graph, &value, found);
    value = strip_scalars(graph, value, &found->scale, true);
    take_row_factor(graph, &value, found);
    if (found->q_factor >= 0)
        value = strip_scalars(graph, value, &found->scale, true);
    struct attn_node *product = attn_graph_producer(graph, value);
    if (!is_product(product, &transposed, &found->scale) ||
        !match_read_once(graph, value))
        return false;
    found->rank = graph->values[value].type.rank;
    found->scores = value;
    found->q = strip_scalars(graph, product->in[0], &found->scale, false);
    found->k = strip_scalars(graph, product->in[1], &found->scale, false);
    found->k_form = K_AS_GIVEN;
    if (!transposed)
        found->k = untransposed(graph, found->k, &found->k_form);
    found->k = strip_scalars(graph, found->k, &found->scale, false);
    /* The scale of a FusedMatMul has passed no check yet. */
    return (found->rank == 3 || found->rank == 4) && match_is_scale(found->scale) &&
           attn_match_is_f32_of(graph, found->q, found->rank) &&
           attn_match_is_f32_of(graph, found->k, found->rank);
}

/* Where(keep, x, filling) or Where(drop, filling, x), which is read once: *value becomes x. */
static bool take_where(const struct attn_graph *graph, int32_t *value,
                       struct attn_attention_match *found)
{
    struct attn_node *where = attn_graph_producer(graph, *value);
    if (!node_is(where, "Where") || !match_read_once(graph, *value))
        return false;
    found->drops = attn_value_scalar(graph, where->in[1], &found->fill);
    if ((!found->drops && !attn_value_scalar(graph, where->in[2], &found->fill)) ||
        isnan(found->fill))
        return false;
    found->keep_in_windows = found->in_windows;
    found->keep = where->in[0];
    found->keep_fill = where->in[found->drops ? 1 : 2];
    *value = where->in[found->drops ? 2 : 1];
    return true;
}

/* Scores, or those that a Where keeps. */
static bool read_kept(const struct attn_graph *graph, int32_t value,
                      struct attn_attention_match *found)
{
    found->keep = found->keep_fill = -1;
    take_reshape(graph, &value, found);
    if (!found->filled_last && node_is(attn_graph_producer(graph, value), "Where") &&
        !take_where(graph, &value, found))
        return false;
    return read_scores(graph, value, found);
}

/* Whether a value is a sum, behind a Reshape or not. */
static bool is_sum(const struct attn_graph *graph, int32_t value,
                   const struct attn_attention_match *found)
{
    struct attn_attention_match trial = *found;
    take_reshape(graph, &value, &trial);
    return node_is(attn_graph_producer(graph, value), "Add");
}

/* scores + mask, or a chain of sums of scores and masks. */
static bool read_added(const struct attn_graph *graph, int32_t value,
                       struct attn_attention_match *found)
{
    for (int k = 0; k < MASK_ADDS; k++)
        found->added[k] = -1;
    for (int k = 0; k < MASK_ADDS; k++) {
        take_reshape(graph, &value, found);
        struct attn_node *add = attn_graph_producer(graph, value);
        if (!node_is(add, "Add") || !match_read_once(graph, value))
            return k == 0 && read_kept(graph, value, found);
        found->added_in_windows[k] = found->in_windows;
        const struct attn_attention_match before = *found;
        for (int in = 0; in < 2; in++, *found = before)
            if (read_kept(graph, add->in[in], found)) {
                found->added[k] = add->in[1 - in];
                return attn_match_is_f32(graph, found->added[k]);
            }
        const int scores = is_sum(graph, add->in[0], found) ? 0 : 1;
        found->added[k] = add->in[1 - scores];
        if (!attn_match_is_f32(graph, found->added[k]))
            return false;
        value = add->in[scores];
    }
    return false;
}

/* Scores and what is added to them; a Where behind the sum takes both away. */
static bool read_masked(const struct attn_graph *graph, int32_t value,
                        struct attn_attention_match *found)
{
    struct attn_attention_match outer = *found;
    int32_t sum = value;
    take_reshape(graph, &sum, &outer);
    outer.filled_last = take_where(graph, &sum, &outer) && is_sum(graph, sum, &outer);
    if (outer.filled_last)
        *found = outer;
    if (!read_added(graph, outer.filled_last ? sum : value, found))
        return false;
    if (outer.filled_last) {
        found->keep = outer.keep;
        found->keep_in_windows = outer.keep_in_windows;
        found->keep_fill = outer.keep_fill;
        found->fill = outer.fill;
        found->drops = outer.drops;
    }
    return true;
}

attnrun_dim attn_attention_k_dim(const struct attn_graph *graph,
                                 const struct attn_attention_match *found, int axis)
{
    if (found->k_form == K_BY_TOKEN && (axis == 1 || axis == 2))
        axis = 3 - axis;
    if (found->k_form == K_BY_DIM && axis >= 2)
        axis = 5 - axis;
    return attn_attention_dim(graph, found->k, axis);
}

/* Of two users of a value: the Where that puts zeros where IsNaN of it holds, or NULL. */
static struct attn_node *zeroes_nan_rows(const struct attn_graph *graph, int32_t value)
{
    for (const struct attn_use *use = graph->values[value].uses; use; use = use->next) {
        struct attn_node *where = use->node;
        double zero;
        if (!node_is(where, "Where") || where->in[2] != value ||
            !attn_value_scalar(graph, where->in[1], &zero) || zero != 0 ||
            !attn_match_same_rank(graph, where->out[0], value))
            continue;
        struct attn_node *nan = attn_match_in(graph, where, 0, "IsNaN");
        if (nan != NULL && nan->in[0] == value)
            return where;
    }
    return NULL;
}

/* MatMul(V', P'), as maps have it: (batch, channels, pixels). */
static bool read_transposed_product(const struct attn_graph *graph,
                                    const struct attn_node *user,
                                    struct attn_attention_match *found)
{
    const int64_t *swap = found->rank == 4 ? match_swap4 : match_swap3;
    if (!node_is(user, "Transpose") || !has_perm(user, found->rank, swap))
        return false;
    const int32_t transposed = user->out[0];
    struct attn_node *product = attn_match_user(graph, user, "MatMul");
    if (product == NULL || product->in[1] != transposed || product->in[0] == transposed)
        return false;
    found->v = product->in[0];
    found->result = product->out[0];
    found->by_dim = true;
    return attn_match_is_f32_of(graph, found->v, found->rank);
}

/* Behind the Softmax: what zeroes NaN rows, and the product with V. */
static bool read_product(const struct attn_graph *graph,
                         struct attn_attention_match *found)
{
    int32_t p = found->softmax->out[0];
    found->nan_rows = 1;
    struct attn_node *user = attn_graph_only_user(graph, p);
    if (user == NULL && graph->values[p].n_uses == 2 &&
        !(graph->values[p].flags & ATTN_VALUE_OUTPUT)) {
        user = zeroes_nan_rows(graph, p);
        if (user == NULL)
            return false;
        found->nan_rows = -1;
        p = user->out[0];
        user = attn_graph_only_user(graph, p);
    }
    bool transposed;
    double scale = 1;
    if (user != NULL && read_transposed_product(graph, user, found))
        return true;
    if (user == NULL || !is_product(user, &transposed, &scale) || transposed ||
        scale != 1 || user->in[0] != p || user->in[1] == p)
        return false;
    found->v = user->in[1];
    found->result = user->out[0];
    return attn_match_is_f32_of(graph, found->v, found->rank);
}

static bool last_axis(const struct attn_graph *graph, const struct attn_node *softmax)
{
    int64_t axis = attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    int rank = graph->values[softmax->in[0]].type.rank;
    return rank > 0 && (axis == rank - 1 || axis == -1);
}

/* One head of keys and values for all queries' heads, which the operator has, too. */
static bool one_kv_head(const struct attn_graph *graph,
                        const struct attn_attention_match *found)
{
    return found->rank == 4 && dim_is(attn_attention_k_dim(graph, found, 1), 1) &&
           dim_is(attn_attention_dim(graph, found->v, 1), 1) &&
           dim_is_const(attn_attention_dim(graph, found->q, 1)) &&
           attn_attention_dim(graph, found->q, 1).value > 0;
}

/* Nothing is broadcast but masks and heads. */
static bool operands_fit(const struct attn_graph *graph,
                         const struct attn_attention_match *found)
{
    for (int axis = 0; axis < 3; axis++) {
        const int v_axis = axis == 2 && found->by_dim ? 3 : axis;
        if (!dim_equal(attn_attention_k_dim(graph, found, axis),
                       attn_attention_dim(graph, found->v, v_axis)))
            return false;
        if (axis < 2 &&
            !dim_equal(attn_attention_k_dim(graph, found, axis),
                       attn_attention_dim(graph, found->q, axis)) &&
            !(axis == 1 && one_kv_head(graph, found)))
            return false;
    }
    return true;
}

const char *attn_attention_read(const struct attn_graph *graph,
                                struct attn_attention_match *found)
{
    if (!last_axis(graph, found->softmax))
        return "its softmax is not over the last axis";
    if (!read_masked(graph, found->softmax->in[0], found))
        return "its scores are not a product that is scaled and masked, or other nodes "
               "read them";
    if (!attn_match_same_rank(graph, found->scores, found->softmax->in[0]))
        return "its mask raises the rank of its scores";
    if (found->added[0] < 0 && found->keep < 0)
        found->windows = 0;
    if (found->windows > 0 && !masks_are_shared(graph, found))
        return "masks of samples are beside masks of windows";
    if (!read_product(graph, found))
        return "other nodes read its weights, or the weights do not multiply values";
    return operands_fit(graph, found)
               ? NULL
               : "the sizes of its operands are not known to be equal";
}

/* fuse_attention.c - decomposed softmax attention becomes FusedAttention, which never holds the
 * scores:
 *
 *   Y = MatMul(Softmax(scale * MatMul(Q, K') + mask), V)
 *
 * Recognized forms: operands of rank 4, or of rank 3, whose batch becomes the heads; scalars on
 * either operand or on the product; K transposed by one Transpose or by Reshape, Transpose,
 * Reshape, or given transposed; com.microsoft FusedMatMul as a product; V' and the scores
 * transposed, as maps have them; Where(keep, scores, filling) and Where(drop, filling, scores)
 * as masks, before or behind masks that are added; key and value heads repeated by Unsqueeze,
 * Expand, Reshape; IsNaN and Where behind the Softmax, which make zeros of rows without a key.
 * Without the last, such rows stay NaN (nan_rows). If another node reads the scores, the pass
 * leaves the nodes alone, since nothing is gained. A mask that is made of data and is not one
 * tensor of all pairs becomes a program of the node (write_mask.c), and its nodes go. */
#include <math.h>

#include "product.h"
#include "write_mask.h"

/* k is (batch, heads, tokens, dim), (batch, tokens, heads, dim), (batch, heads, dim,
 * tokens). */
enum k_form { K_AS_GIVEN, K_BY_TOKEN, K_BY_DIM };

struct attention_match {
    struct attn_node *softmax;
    int rank; /* of the operands: 4, or 3 without heads */
    int32_t q, k, v;
    int32_t mask, mask2; /* added to the scores; -1: none */
    enum k_form k_form;
    int32_t scores;          /* the product */
    int32_t keep, keep_fill; /* Where's condition and filling, or -1 */
    double fill;
    bool drops;       /* the condition chooses the filling */
    bool filled_last; /* what is added goes with the scores */
    double scale;
    int32_t result;
    bool nan_rows;
    bool by_dim; /* V and the result are (…, dim, tokens): V' P' */
};

static attnrun_dim dim_at(const struct attn_graph *graph, int32_t value, int axis)
{
    return graph->values[value].type.dims[axis];
}

/* Dim `axis` of a value as one of rank 4, where those of rank 3 have no batch. */
static attnrun_dim dim_of_4(const struct attn_graph *graph, int32_t value, int axis)
{
    axis -= 4 - graph->values[value].type.rank;
    return axis < 0 ? dim_of(1) : dim_at(graph, value, axis);
}

static bool read_once(const struct attn_graph *graph, int32_t value)
{
    return graph->values[value].n_uses == 1 &&
           !(graph->values[value].flags & ATTN_VALUE_OUTPUT);
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
    for (int k = 0; k < 4; k++) {
        double x;
        int32_t other;
        struct attn_node *node = attn_graph_producer(graph, value);
        bool times =
            node_is(node, "Mul") && attn_match_scalar(graph, node, true, &x, &other);
        if (!times &&
            !(node_is(node, "Div") && attn_match_scalar(graph, node, false, &x, &other) &&
              (x < 0 || x > 0)))
            break;
        if (!attn_match_same_shape(graph, other, value) ||
            (sole && !read_once(graph, value)))
            break;
        *scale *= times ? x : 1 / x;
        value = other;
    }
    return value;
}

static const int64_t swap3[] = { 0, 2, 1 }, swap4[] = { 0, 1, 3, 2 };

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
    if (flat == NULL || !has_perm(transpose, 3, swap3) ||
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
                            enum k_form *form)
{
    static const int64_t from_tokens[] = { 0, 2, 3, 1 };
    struct attn_node *node = attn_graph_producer(graph, value);
    bool transposed = node_is(node, "Transpose") && attn_match_is_f32(graph, node->in[0]);
    *form = K_AS_GIVEN;
    if (transposed && (has_perm(node, 4, swap4) || has_perm(node, 3, swap3)))
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

/* MatMul(Q, K') times scalars. */
static bool read_scores(const struct attn_graph *graph, int32_t value,
                        struct attention_match *found)
{
    bool transposed;
    found->scale = 1;
    value = strip_scalars(graph, value, &found->scale, true);
    struct attn_node *product = attn_graph_producer(graph, value);
    if (!is_product(product, &transposed, &found->scale) || !read_once(graph, value))
        return false;
    found->rank = graph->values[value].type.rank;
    found->scores = value;
    found->q = strip_scalars(graph, product->in[0], &found->scale, false);
    found->k = strip_scalars(graph, product->in[1], &found->scale, false);
    found->k_form = K_AS_GIVEN;
    if (!transposed)
        found->k = untransposed(graph, found->k, &found->k_form);
    found->k = strip_scalars(graph, found->k, &found->scale, false);
    return (found->rank == 3 || found->rank == 4) &&
           attn_match_is_f32_of(graph, found->q, found->rank) &&
           attn_match_is_f32_of(graph, found->k, found->rank);
}

/* Where(keep, x, filling) or Where(drop, filling, x), which is read once: *value becomes x. */
static bool take_where(const struct attn_graph *graph, int32_t *value,
                       struct attention_match *found)
{
    struct attn_node *where = attn_graph_producer(graph, *value);
    if (!node_is(where, "Where") || !read_once(graph, *value))
        return false;
    found->drops = attn_value_scalar(graph, where->in[1], &found->fill);
    if ((!found->drops && !attn_value_scalar(graph, where->in[2], &found->fill)) ||
        isnan(found->fill))
        return false;
    found->keep = where->in[0];
    found->keep_fill = where->in[found->drops ? 1 : 2];
    *value = where->in[found->drops ? 2 : 1];
    return true;
}

/* Scores, or those that a Where keeps. */
static bool read_kept(const struct attn_graph *graph, int32_t value,
                      struct attention_match *found)
{
    found->keep = found->keep_fill = -1;
    if (!found->filled_last && node_is(attn_graph_producer(graph, value), "Where") &&
        !take_where(graph, &value, found))
        return false;
    return read_scores(graph, value, found);
}

/* scores + mask, or scores + mask + mask2 as a chain of two Adds. */
static bool read_added(const struct attn_graph *graph, int32_t value,
                       struct attention_match *found)
{
    int32_t *const masks[] = { &found->mask, &found->mask2 };
    found->mask = found->mask2 = -1;
    for (int k = 0; k < 2; k++) {
        struct attn_node *add = attn_graph_producer(graph, value);
        if (!node_is(add, "Add") || !read_once(graph, value))
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

/* Scores and what is added to them; a Where behind the sum takes both away. */
static bool read_masked(const struct attn_graph *graph, int32_t value,
                        struct attention_match *found)
{
    struct attention_match outer = *found;
    int32_t sum = value;
    found->filled_last = take_where(graph, &sum, &outer) &&
                         node_is(attn_graph_producer(graph, sum), "Add");
    if (!read_added(graph, found->filled_last ? sum : value, found))
        return false;
    if (found->filled_last) {
        found->keep = outer.keep;
        found->keep_fill = outer.keep_fill;
        found->fill = outer.fill;
        found->drops = outer.drops;
    }
    return true;
}

/* Dim `axis` of K as (batch, heads, tokens, dim). */
static attnrun_dim k_dim(const struct attn_graph *graph,
                         const struct attention_match *found, int axis)
{
    if (found->k_form == K_BY_TOKEN && (axis == 1 || axis == 2))
        axis = 3 - axis;
    if (found->k_form == K_BY_DIM && axis >= 2)
        axis = 5 - axis;
    return dim_of_4(graph, found->k, axis);
}

/* A mask's last dim must be the number of keys: Attention reads a shorter one
 * otherwise. */
static bool mask_fits(const struct attn_graph *graph, const struct attention_match *found,
                      int32_t mask)
{
    if (mask < 0)
        return true;
    int rank = graph->values[mask].type.rank;
    return rank >= 1 && rank <= 4 &&
           dim_equal(dim_at(graph, mask, rank - 1), k_dim(graph, found, 2));
}

/* Of two users of a value: the Where that puts zeros where IsNaN of it holds, or NULL. */
static struct attn_node *zeroes_nan_rows(const struct attn_graph *graph, int32_t value)
{
    for (const struct attn_use *use = graph->values[value].uses; use; use = use->next) {
        struct attn_node *where = use->node;
        double zero;
        if (!node_is(where, "Where") || where->in[2] != value ||
            !attn_value_scalar(graph, where->in[1], &zero) || zero != 0)
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
                                    struct attention_match *found)
{
    const int64_t *swap = found->rank == 4 ? swap4 : swap3;
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
static bool read_product(const struct attn_graph *graph, struct attention_match *found)
{
    int32_t p = found->softmax->out[0];
    found->nan_rows = true;
    struct attn_node *user = attn_graph_only_user(graph, p);
    if (user == NULL && graph->values[p].n_uses == 2 &&
        !(graph->values[p].flags & ATTN_VALUE_OUTPUT)) {
        user = zeroes_nan_rows(graph, p);
        if (user == NULL)
            return false;
        found->nan_rows = false;
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

/* A node in front of the Softmax; *out is its only output. */
static attn_status add_before(struct attn_graph *graph,
                              const struct attention_match *found, const char *op_type,
                              int32_t n_in, const int32_t *in, int32_t n_attrs,
                              const struct attn_attr *attrs, int32_t *out)
{
    return attn_match_add(graph, found->softmax, op_type, n_in, in, n_attrs, attrs, out);
}

/* All that is added to the scores as one mask: Where(keep, 0, filling) + mask + mask2. */
static attn_status join_masks(struct attn_graph *graph, struct attention_match *found)
{
    int32_t zero;
    void *data;
    if (found->keep >= 0 && !found->filled_last) {
        TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &zero, &data));
        int32_t in[3] = { found->keep, zero, found->keep_fill };
        int32_t *free_place = found->mask < 0 ? &found->mask : &found->keep_fill;
        TRY(add_before(graph, found, "Where", 3, in, 0, NULL, free_place));
        if (free_place == &found->keep_fill) {
            int32_t both[2] = { found->keep_fill, found->mask };
            TRY(add_before(graph, found, "Add", 2, both, 0, NULL, &found->mask));
        }
    }
    const int32_t both[2] = { found->mask2, found->mask };
    if (found->mask2 >= 0)
        TRY(add_before(graph, found, "Add", 2, both, 0, NULL, &found->mask));
    const int32_t filled[3] = { found->keep, found->mask, found->keep_fill };
    return found->filled_last
               ? add_before(graph, found, "Where", 3, filled, 0, NULL, &found->mask)
               : ATTNRUN_OK;
}

/* K as (batch, heads, tokens, dim). */
static attn_status transpose_k(struct attn_graph *graph, struct attention_match *found)
{
    static const int64_t swap_heads[] = { 0, 2, 1, 3 };
    const int64_t *perm = found->k_form == K_BY_TOKEN ? swap_heads
                          : found->rank == 4          ? swap4
                                                      : swap3;
    struct attn_attr attr = { .name = "perm",
                              .kind = ATTN_ATTR_INTS,
                              .ints = { perm, found->rank } };
    int32_t k = found->k;
    if (found->k_form == K_AS_GIVEN)
        return ATTNRUN_OK;
    found->k_form = K_AS_GIVEN;
    return add_before(graph, found, "Transpose", 1, &k, 1, &attr, &found->k);
}

/* Exchanges the last two axes of a value of the operands' rank. */
static attn_status swap_last(struct attn_graph *graph,
                             const struct attention_match *found, int32_t *value)
{
    const struct attn_attr attr = { .name = "perm",
                                    .kind = ATTN_ATTR_INTS,
                                    .ints = { found->rank == 4 ? swap4 : swap3,
                                              found->rank } };
    const int32_t from = *value;
    return add_before(graph, found, "Transpose", 1, &from, 1, &attr, value);
}

/* Operands of rank 3 get a batch of 1 before what are the heads then. *axis: a constant
 * that says so. */
static attn_status raise(struct attn_graph *graph, struct attention_match *found,
                         int32_t *axis)
{
    static const int64_t first = 0;
    int32_t *const operands[] = { &found->q, &found->k, &found->v };
    if (found->rank == 4)
        return ATTNRUN_OK;
    TRY(attn_match_ints(graph, 1, &first, axis));
    for (int i = 0; i < 3; i++) {
        int32_t in[2] = { *operands[i], *axis };
        TRY(add_before(graph, found, "Unsqueeze", 2, in, 0, NULL, operands[i]));
    }
    return ATTNRUN_OK;
}

/* The result (1, heads, tokens, dim) of the fused node as the file has it; *made gives it. */
static attn_status shape_result(struct attn_graph *graph,
                                const struct attention_match *found, int32_t y,
                                int32_t axis, struct attn_node **made)
{
    const int32_t both[2] = { y, axis };
    const struct attn_attr perm = { .name = "perm",
                                    .kind = ATTN_ATTR_INTS,
                                    .ints = { found->rank == 4 ? swap4 : swap3,
                                              found->rank } };
    if (found->rank == 3 && !found->by_dim)
        return attn_match_make(graph, found->softmax, "", "Squeeze", 2, both,
                               found->result, 0, NULL, made);
    if (found->rank == 3)
        TRY(add_before(graph, found, "Squeeze", 2, both, 0, NULL, &y));
    if (!found->by_dim)
        return ATTNRUN_OK;
    return attn_match_make(graph, found->softmax, "", "Transpose", 1, &y, found->result,
                           1, &perm, made);
}

/* `program`: of the mask, or NULL. */
static attn_status replace_attention(struct attn_graph *graph,
                                     struct attention_match *found,
                                     const struct attn_mask_written *program)
{
    int32_t axis = -1, y, in[MASK_LEAF + MASK_MAX_LEAVES], n_in = 3;
    struct attn_attr attrs[2 + MASK_ATTRS] = { MATCH_FLOAT("scale", (float)found->scale),
                                               MATCH_INT("nan_rows", found->nan_rows) };
    if (program == NULL)
        TRY(join_masks(graph, found));
    else
        TRY(attn_mask_attrs(graph, program, attrs + 2));
    TRY(transpose_k(graph, found));
    if (found->by_dim)
        TRY(swap_last(graph, found, &found->v));
    TRY(raise(graph, found, &axis));
    in[0] = found->q;
    in[1] = found->k;
    in[2] = found->v;
    if (program != NULL)
        n_in = attn_mask_inputs(program, in);
    else if (found->mask >= 0)
        in[n_in++] = found->mask;
    TRY(attn_graph_add_value(graph, NULL, &y));
    if (found->rank == 4 && !found->by_dim)
        graph->values[y].type = graph->values[found->result].type;
    struct attn_node *made;
    TRY(attn_graph_insert(graph, found->softmax, "attnrun.fused", "FusedAttention", n_in,
                          in, 1, &y, program != NULL ? 2 + MASK_ATTRS : 2, attrs, &made));
    TRY(shape_result(graph, found, y, axis, &made));
    attn_match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

static bool last_axis(const struct attn_graph *graph, const struct attn_node *softmax)
{
    int64_t axis = attn_match_int(softmax, "axis", softmax->pub.opset < 13 ? 1 : -1);
    int rank = graph->values[softmax->in[0]].type.rank;
    return rank > 0 && (axis == rank - 1 || axis == -1);
}

/* One head of keys and values for all queries' heads, which the operator has, too. */
static bool one_kv_head(const struct attn_graph *graph,
                        const struct attention_match *found)
{
    return found->rank == 4 && dim_is(k_dim(graph, found, 1), 1) &&
           dim_is(dim_of_4(graph, found->v, 1), 1) &&
           dim_is_const(dim_of_4(graph, found->q, 1)) &&
           dim_of_4(graph, found->q, 1).value > 0;
}

/* Nothing is broadcast but masks and heads. */
static bool operands_fit(const struct attn_graph *graph,
                         const struct attention_match *found)
{
    for (int axis = 0; axis < 3; axis++) {
        const int v_axis = axis == 2 && found->by_dim ? 3 : axis;
        if (!dim_equal(k_dim(graph, found, axis), dim_of_4(graph, found->v, v_axis)))
            return false;
        if (axis < 2 &&
            !dim_equal(k_dim(graph, found, axis), dim_of_4(graph, found->q, axis)) &&
            !(axis == 1 && one_kv_head(graph, found)))
            return false;
    }
    return true;
}

/* Masks are broadcast to the shape of the product. */
static bool masks_fit(const struct attn_graph *graph, const struct attention_match *found)
{
    return mask_fits(graph, found, found->mask) &&
           mask_fits(graph, found, found->mask2) &&
           mask_fits(graph, found, found->keep) &&
           attn_match_same_shape(graph, found->scores, found->softmax->in[0]);
}

/* The program of all masks; *done: there is one, and something is gained by it. */
static attn_status write_program(const struct attn_graph *graph,
                                 const struct attention_match *found,
                                 struct attn_mask_written *program, bool *done)
{
    const struct attn_mask_source source = {
        .keep = { found->keep, -1, -1, -1 },
        .add = { found->mask, found->mask2 },
        .fill = found->keep >= 0 ? (float)found->fill : 0.0f,
        .drops = { found->drops },
        .filled_last = found->filled_last,
        .axes = attn_mask_axes_of_heads,
        .rank = 4,
        .dims = { dim_of(1), dim_of_4(graph, found->q, 0), dim_of_4(graph, found->q, 1),
                  dim_of_4(graph, found->q, 2), k_dim(graph, found, 2) }
    };
    *done = false;
    if (found->keep < 0 && found->mask < 0)
        return ATTNRUN_OK;
    TRY(attn_mask_write(graph, &source, program, done));
    *done = *done && !program->trivial;
    return ATTNRUN_OK;
}

static bool multiplies(const struct attn_node *node)
{
    return node_is(node, "MatMul") || node_is(node, "Einsum") ||
           node_is_of(node, "com.microsoft", "FusedMatMul");
}

/* A softmax between two products, beside scalars and masks: someone's attention. */
static bool is_candidate(const struct attn_graph *graph, const struct attn_node *softmax)
{
    const struct attn_use *use = graph->values[softmax->out[0]].uses;
    const int32_t rank = graph->values[softmax->in[0]].type.rank;
    while (use != NULL && !multiplies(use->node))
        use = use->next;
    return use != NULL && (rank == 3 || rank == 4) &&
           attn_product_behind(graph, softmax->in[0]) != NULL;
}

/* What of an attention there is; NULL, or the first condition that failed. */
static const char *read_attention(const struct attn_graph *graph,
                                  struct attention_match *found)
{
    if (!last_axis(graph, found->softmax))
        return "its softmax is not over the last axis";
    if (!read_masked(graph, found->softmax->in[0], found))
        return "its scores are not a product that is scaled and masked, or other nodes "
               "read them";
    if (!read_product(graph, found))
        return "other nodes read its weights, or the weights do not multiply values";
    return operands_fit(graph, found)
               ? NULL
               : "the sizes of its operands are not known to be equal";
}

static attn_status try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                               int32_t *applied)
{
    struct attention_match found = { .softmax = softmax };
    struct attn_mask_written program;
    bool done;
    if (!attn_match_is_f32(graph, softmax->in[0]))
        return ATTNRUN_OK;
    const char *why = read_attention(graph, &found);
    if (why == NULL) {
        const bool fit = masks_fit(graph, &found);
        TRY(write_program(graph, &found, &program, &done));
        done = done && (fit || program.fits);
        if (!done && (!fit || (found.keep >= 0 && (found.drops || found.fill > -1e4))))
            why = "its mask is not known to mask scores, or to have their size";
    }
    if (why != NULL)
        return is_candidate(graph, softmax)
                   ? attn_graph_note(graph, softmax, "attention", why)
                   : ATTNRUN_OK;
    TRY(attn_graph_note(graph, softmax, "attention", NULL));
    if (found.k_form == K_AS_GIVEN && found.rank == 4 && !found.by_dim)
        attn_match_share_heads(graph, &found.k, &found.v);
    TRY(replace_attention(graph, &found, done ? &program : NULL));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_attention = { .name = "attention",
                                               .op_type = "Softmax",
                                               .try_node = try_softmax };

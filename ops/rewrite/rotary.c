/* rotary.c - a decomposed rotary embedding becomes FusedRotary. Its form is Add(Mul(x,
 * cosine), Mul(Concat(Neg(second half of x), first half), sine)), with the halves by
 * Slice or by Split. The Transpose before it that makes heads of tokens becomes part of
 * it. A Transpose before a RotaryEmbedding moves behind it, where attention can take it
 * in. */
#include "match.h"

static attnrun_dim last_dim(const struct attn_graph *graph, int32_t value)
{
    const attnrun_type *t = &graph->values[value].type;
    return t->dims[t->rank - 1];
}

/* A constant of one integer, or an input that is not there. */
static bool is_number(const struct attn_graph *graph, const struct attn_node *node,
                      int in, int64_t a, int64_t b)
{
    double x;
    if (in >= node->pub.n_in || node->in[in] < 0)
        return true;
    if (!attn_value_scalar(graph, node->in[in], &x))
        return false;
    return (x >= (double)a && x <= (double)a) || (x >= (double)b && x <= (double)b);
}

/* Half 0 or 1 of which value? -1: of none. */
static int32_t half_of(const struct attn_graph *graph, int32_t value, int half)
{
    struct attn_node *node = attn_graph_producer(graph, value);
    if (node == NULL || !attn_match_is_f32_of(graph, value, 4) ||
        !dim_is_const(last_dim(graph, value)))
        return -1;
    const int32_t from = node->in[0];
    const int64_t n = last_dim(graph, value).value;
    if (!attn_match_is_f32_of(graph, from, 4) || !dim_is(last_dim(graph, from), 2 * n))
        return -1;
    if (node_is(node, "Split")) {
        int64_t axis = attn_match_int(node, "axis", 0);
        bool halves = node->pub.n_out == 2 && (axis == 3 || axis == -1);
        return halves && node->out[half] == value ? from : -1;
    }
    /* of half the length, so the end need not be checked */
    const int64_t start = half * n;
    if (!node_is(node, "Slice") || node->pub.n_in < 4 ||
        !is_number(graph, node, 1, start, start - 2 * n) ||
        !is_number(graph, node, 3, 3, -1) || !is_number(graph, node, 4, 1, 1))
        return -1;
    return from;
}

/* Concat(Neg(second half), first half): of which value. */
static int32_t rotated(const struct attn_graph *graph, int32_t value)
{
    struct attn_node *join = attn_graph_producer(graph, value);
    if (!node_is(join, "Concat") || join->pub.n_in != 2 ||
        !attn_match_is_f32_of(graph, value, 4))
        return -1;
    int64_t axis = attn_match_int(join, "axis", 0);
    struct attn_node *neg = attn_match_in(graph, join, 0, "Neg");
    if ((axis != 3 && axis != -1) || neg == NULL)
        return -1;
    int32_t second = half_of(graph, neg->in[0], 1),
            first = half_of(graph, join->in[1], 0);
    return first == second ? first : -1;
}

/* Cosine or sine broadcast to x, without heads. */
static bool is_angle(const struct attn_graph *graph, int32_t angle, int32_t x)
{
    const attnrun_type *t = &graph->values[angle].type, *like = &graph->values[x].type;
    if (!attn_match_is_f32(graph, angle) || t->rank < 1 || t->rank > 4)
        return false;
    for (int i = t->rank - 1, at = 3; i >= 0; i--, at--) {
        bool one = at < 3 && dim_is(t->dims[i], 1);
        if (!one && (at == 1 || !dim_equal(t->dims[i], like->dims[at])))
            return false;
    }
    return true;
}

/* add = x * cosine + rotated(x) * sine, with the factors in any order. */
static bool read_sum(const struct attn_graph *graph, const struct attn_node *add,
                     int32_t *in)
{
    for (int side = 0; side < 2; side++) {
        struct attn_node *with_sine = attn_match_in(graph, add, side, "Mul");
        struct attn_node *with_cosine = attn_match_in(graph, add, 1 - side, "Mul");
        for (int i = 0; with_sine != NULL && with_cosine != NULL && i < 2; i++) {
            in[0] = rotated(graph, with_sine->in[i]);
            in[2] = with_sine->in[1 - i];
            in[1] = in[0] >= 0 ? attn_match_other(with_cosine, in[0]) : -1;
            if (in[1] >= 0)
                return is_angle(graph, in[1], in[0]) && is_angle(graph, in[2], in[0]);
        }
    }
    return false;
}

static bool makes_heads(const struct attn_node *node)
{
    static const int64_t heads[] = { 0, 2, 1, 3 };
    const struct attn_attr *perm =
        node_is(node, "Transpose") ? attn_node_attr(node, "perm") : NULL;
    return perm != NULL && perm->kind == ATTN_ATTR_INTS && perm->ints.n == 4 &&
           memcmp(perm->ints.v, heads, sizeof heads) == 0;
}

static attn_status try_add(struct attn_graph *graph, struct attn_node *add,
                           int32_t *applied)
{
    int32_t in[3];
    if (!attn_match_is_f32_of(graph, add->out[0], 4) || !read_sum(graph, add, in))
        return ATTNRUN_OK;
    struct attn_node *transpose = attn_graph_producer(graph, in[0]);
    bool by_token = makes_heads(transpose);
    if (by_token)
        in[0] = transpose->in[0];
    struct attn_attr attr = MATCH_INT("by_token", by_token);
    struct attn_node *made;
    TRY(attn_match_make(graph, add, "attnrun.fused", "FusedRotary", 3, in, add->out[0], 1,
                        &attr, &made));
    attn_match_replace(graph, add->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

/* A Reshape to (as it was, as it was, sizes…). */
static attn_status reshape(struct attn_graph *graph, struct attn_node *before,
                           int32_t value, int64_t n, const int64_t *sizes,
                           struct attn_node **made)
{
    const int64_t rank = 2 + n;
    int32_t in[2] = { value, -1 };
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_I64, 1, &rank, &in[1], &data));
    memcpy((int64_t *)data + 2, sizes, (size_t)n * sizeof *sizes);
    TRY(attn_match_make(graph, before, "", "Reshape", 2, in, value, 0, NULL, made));
    attnrun_type *type = &graph->values[(*made)->out[0]].type;
    type->rank = (int32_t)rank;
    for (int64_t i = 0; i < n; i++)
        type->dims[2 + i] = dim_of(sizes[i]);
    return ATTNRUN_OK;
}

/* RotaryEmbedding(Transpose(x)), x (batch, tokens, heads, dim), becomes
 * Transpose(RotaryEmbedding(x)). */
static attn_status try_operator(struct attn_graph *graph, struct attn_node *node,
                                int32_t *applied)
{
    struct attn_node *transpose = attn_graph_producer(graph, node->in[0]), *made;
    if (!attn_match_is_f32_of(graph, node->in[0], 4) || !makes_heads(transpose) ||
        node->n_attrs > 3)
        return ATTNRUN_OK;
    if (node_is(attn_graph_only_user(graph, node->out[0]), "Concat"))
        return ATTNRUN_OK; /* a cache by heads follows */
    const attnrun_dim *x = graph->values[transpose->in[0]].type.dims;
    if (!dim_is_const(x[2]) || !dim_is_const(x[3]) || x[2].value < 1 || x[3].value < 1)
        return ATTNRUN_OK;
    const int64_t sizes[2] = { x[2].value, x[3].value }, width = sizes[0] * sizes[1];
    struct attn_attr attrs[4];
    int32_t n = 0, in[4] = { -1, -1, -1, -1 };
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "num_heads") != 0)
            attrs[n++] = node->attrs[i];
    attrs[n++] = (struct attn_attr)MATCH_INT("num_heads", sizes[0]);
    for (int32_t i = 1; i < node->pub.n_in && i < 4; i++)
        in[i] = node->in[i];
    TRY(reshape(graph, node, transpose->in[0], 1, &width, &made));
    in[0] = made->out[0];
    TRY(attn_match_make(graph, node, "", "RotaryEmbedding", node->pub.n_in, in, in[0], n,
                        attrs, &made));
    TRY(reshape(graph, node, made->out[0], 2, sizes, &made));
    const int32_t transposed = made->out[0];
    TRY(attn_match_make(graph, node, "", "Transpose", 1, &transposed, node->out[0],
                        transpose->n_attrs, transpose->attrs, &made));
    attn_match_replace(graph, node->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_rotary(struct attn_graph *graph, struct attn_node *node,
                              int32_t *applied)
{
    if (node_is(node, "Add"))
        return try_add(graph, node, applied);
    return node_is(node, "RotaryEmbedding") ? try_operator(graph, node, applied)
                                            : ATTNRUN_OK;
}

const struct attn_pass attn_pass_rotary = { .name = "rotary", .try_node = try_rotary };

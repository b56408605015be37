/* linear_heads.c - attention of linear cost reads its operands where they lie: LinearAttention,
 * PerformerAttention, LocalAttention and ChunkedLocalAttention of domain attnrun. Queries, keys and
 * values that Transpose split into heads before tokens are (batch, tokens, heads, dim) in front of
 * it, which the operators take as (batch, tokens, heads * dim). Reshapes behind it may have made
 * one axis of batch and heads. The result goes back the same way. Behind the passes that make
 * these operators. Four transposes less. */
#include "product.h"

enum { RANK = 4, MAX_IN = 6, MAX_ATTRS = 16 };

struct linear_heads {
    struct attn_node *node;
    const struct attn_node *bounded,
        *back; /* BoundedScores before, Transpose behind it */
    int32_t in[MAX_IN];
    bool reshaped;
};

static const attnrun_dim *dims_of(const struct attn_graph *graph, int32_t value)
{
    return graph->values[value].type.dims;
}

/* Exchanges the two axes in the middle. */
static bool swaps_heads(const struct attn_node *node)
{
    static const int64_t perm[] = { 0, 2, 1, 3 };
    const struct attn_attr *attr = node ? attn_node_attr(node, "perm") : NULL;
    return node_is(node, "Transpose") && attr != NULL && attr->kind == ATTN_ATTR_INTS &&
           attr->ints.n == RANK && memcmp(attr->ints.v, perm, sizeof perm) == 0;
}

/* Back through the Reshapes that made a value. */
static int32_t before_reshapes(const struct attn_graph *graph, int32_t value)
{
    for (int k = 0; k < 4; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (!node_is(node, "Reshape"))
            break;
        value = node->in[0];
    }
    return value;
}

/* (batch, tokens, heads, dim) that an operand (…, tokens, dim) of rank 4 is made of, -1 where it is
 * not. */
static int32_t by_token(const struct attn_graph *graph, int32_t value)
{
    const struct attn_node *transpose =
        attn_graph_producer(graph, before_reshapes(graph, value));
    if (!attn_match_is_f32_of(graph, value, RANK) || !swaps_heads(transpose) ||
        !attn_match_is_f32_of(graph, transpose->in[0], RANK))
        return -1;
    int64_t joined;
    const attnrun_dim *d = dims_of(graph, transpose->in[0]), *own = dims_of(graph, value);
    return dim_is_const(d[2]) && dim_is_const(d[3]) && d[2].value > 0 && d[3].value > 0 &&
                   dim_equal(own[2], d[1]) && dim_equal(own[3], d[3]) &&
                   d[2].value <= INT32_MAX && ck_mul(d[2].value, d[3].value, &joined)
               ? transpose->in[0]
               : -1;
}

/* Whether the operands have the axes of batch and heads that they had before their Reshapes, or all
 * have the same ones: heads may be samples then, and samples heads. Of other inputs only directions
 * (features, dim), and of attributes single numbers, are those of all samples and heads. */
static bool heads_fit(const struct attn_graph *graph, const struct linear_heads *found)
{
    const attnrun_dim *q = dims_of(graph, found->in[0]);
    for (int i = 0; i < found->node->pub.n_in && found->reshaped; i++) {
        const attnrun_dim *d = found->in[i] >= 0 ? dims_of(graph, found->in[i]) : NULL;
        if (i < 3 ? !dim_equal(d[0], q[0]) || !dim_equal(d[2], q[2])
                  : d != NULL && !attn_match_is_f32_of(graph, found->in[i], 2))
            return false;
    }
    for (int i = 0; i < found->node->n_attrs && found->reshaped; i++)
        if (found->node->attrs[i].kind == ATTN_ATTR_INTS &&
            found->node->attrs[i].ints.n > 1)
            return false;
    return true;
}

/* Finds the operands; false where one is not made so. */
static bool read_operands(const struct attn_graph *graph, struct linear_heads *found)
{
    const struct attn_node *node = found->node;
    for (int i = 0; i < node->pub.n_in; i++) {
        int32_t value = node->in[i];
        const struct attn_node *checks = attn_graph_producer(graph, value);
        if (i == 0 && node_is_of(checks, "attnrun.fused", "BoundedScores")) {
            found->bounded = checks;
            value = checks->in[0];
        }
        found->in[i] = i < 3 ? by_token(graph, value) : value;
        if (i < 3 && found->in[i] < 0)
            return false;
        found->reshaped =
            found->reshaped || (i < 3 && before_reshapes(graph, value) != value);
    }
    return heads_fit(graph, found);
}

/* The Transpose back to (batch, tokens, heads, dim) that alone reads the result, through Reshapes;
 * NULL: none. */
static const struct attn_node *find_back(const struct attn_graph *graph,
                                         const struct linear_heads *found)
{
    const struct attn_node *user = attn_graph_only_user(graph, found->node->out[0]);
    const attnrun_dim *q = dims_of(graph, found->in[0]),
                      *v = dims_of(graph, found->in[2]);
    for (int k = 0; k < 4 && node_is(user, "Reshape"); k++)
        user = attn_graph_only_user(graph, user->out[0]);
    if (!swaps_heads(user) || !attn_match_is_f32_of(graph, user->in[0], RANK))
        return NULL;
    const attnrun_dim *d = dims_of(graph, user->in[0]);
    return dim_equal(d[0], q[0]) && dim_equal(d[1], q[2]) && dim_equal(d[2], q[1]) &&
                   dim_equal(d[3], v[3])
               ? user
               : NULL;
}

/* All attributes but the numbers of heads, and those; returns how many. */
static int32_t write_attrs(const struct attn_node *node, int64_t q_heads,
                           int64_t kv_heads, struct attn_attr attrs[MAX_ATTRS])
{
    int32_t n = 0;
    for (int32_t i = 0; i < node->n_attrs; i++) {
        if (strcmp(node->attrs[i].name, "q_num_heads") != 0 &&
            strcmp(node->attrs[i].name, "kv_num_heads") != 0)
            attrs[n++] = node->attrs[i];
    }
    attrs[n++] = (struct attn_attr)MATCH_INT("q_num_heads", q_heads);
    attrs[n++] = (struct attn_attr)MATCH_INT("kv_num_heads", kv_heads);
    return n;
}

/* The result, or what a Transpose that alone reads it gives. */
static attn_status place_result(struct attn_graph *graph,
                                const struct linear_heads *found, int32_t y)
{
    const int64_t heads = dims_of(graph, found->in[0])[2].value,
                  v_dim = dims_of(graph, found->in[2])[3].value;
    const int64_t apart[RANK] = { 0, 0, heads, v_dim };
    const int32_t old = found->back != NULL ? found->back->out[0] : found->node->out[0];
    TRY(attn_match_reshape(graph, found->node, RANK, apart, &y));
    if (found->back == NULL)
        TRY(attn_labels_transpose(graph, found->node, "bnhd", "bhnd", RANK, &y));
    graph->values[y].type = graph->values[old].type;
    attn_match_replace(graph, old, attn_graph_producer(graph, y));
    return ATTNRUN_OK;
}

static attn_status replace(struct attn_graph *graph, const struct linear_heads *found)
{
    struct attn_node *const node = found->node;
    struct attn_node *made;
    int32_t in[MAX_IN], y;
    struct attn_attr attrs[MAX_ATTRS];
    const int64_t kv_heads = dims_of(graph, found->in[2])[2].value;
    const int32_t n_attrs =
        write_attrs(node, dims_of(graph, found->in[0])[2].value, kv_heads, attrs);
    memcpy(in, found->in, sizeof in);
    for (int i = 0; i < 3; i++) {
        const attnrun_dim *d = dims_of(graph, in[i]);
        const int64_t joined[3] = { 0, 0, d[2].value * d[3].value };
        TRY(attn_match_reshape(graph, node, 3, joined, &in[i]));
    }
    if (found->bounded != NULL) {
        TRY(attn_graph_add_value(graph, NULL, &y));
        TRY(attn_graph_insert(graph, node, "attnrun.fused", "BoundedScores", 2, in, 1, &y,
                              found->bounded->n_attrs, found->bounded->attrs, &made));
        in[0] = y;
    }
    TRY(attn_graph_add_value(graph, NULL, &y));
    TRY(attn_graph_insert(graph, node, "attnrun", node->pub.op_type, node->pub.n_in, in,
                          1, &y, n_attrs, attrs, &made));
    return place_result(graph, found, y);
}

static bool reads_heads(const struct attn_node *node)
{
    return node_is_of(node, "attnrun", "LinearAttention") ||
           node_is_of(node, "attnrun", "PerformerAttention") ||
           node_is_of(node, "attnrun", "LocalAttention") ||
           node_is_of(node, "attnrun", "ChunkedLocalAttention");
}

static attn_status try_linear_heads(struct attn_graph *graph, struct attn_node *node,
                                    int32_t *applied)
{
    struct linear_heads found = { .node = node };
    if (!reads_heads(node) || node->pub.n_in < 3 || node->pub.n_in > MAX_IN ||
        node->pub.n_out != 1 || node->n_attrs + 2 > MAX_ATTRS ||
        attn_match_int(node, "dims_first", 0) != 0 || !read_operands(graph, &found))
        return ATTNRUN_OK;
    found.back = find_back(graph, &found);
    if (found.reshaped && found.back == NULL)
        return ATTNRUN_OK;
    ++*applied;
    return replace(graph, &found);
}

const struct attn_pass attn_pass_linear_heads = { .name = "linear_heads",
                                                  .try_node = try_linear_heads };

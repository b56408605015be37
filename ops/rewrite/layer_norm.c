/* layer_norm.c - the decomposed normalizations of exporters over the last axis become one
 * node:
 *
 *   d / sqrt(mean d^2 + epsilon) [* scale] [+ bias], d = x - mean x  ->  LayerNormalization
 *   x * (1 / sqrt(mean x^2 + epsilon)) [* scale]                     ->  RMSNormalization
 */
#include "../../runtime/poll.h"
#include "match.h"

/* y^2 as Pow(y, 2) or y * y: y, or -1. */
static int32_t square_argument(const struct attn_graph *graph,
                               const struct attn_node *node)
{
    int32_t y;
    if (node_is(node, "Pow") && attn_match_number(graph, node, false, 2, &y))
        return y;
    return node_is(node, "Mul") && node->in[0] == node->in[1] ? node->in[0] : -1;
}

/* sqrt(mean y^2 + epsilon): y, or -1. */
static int32_t root_argument(const struct attn_graph *graph, const struct attn_node *root,
                             double *epsilon)
{
    int32_t mean_value;
    struct attn_node *sum = attn_match_in(graph, root, 0, "Add");
    if (!node_is(root, "Sqrt") || sum == NULL ||
        !attn_match_scalar(graph, sum, true, epsilon, &mean_value))
        return -1;
    struct attn_node *mean = attn_graph_producer(graph, mean_value);
    if (!node_is(mean, "ReduceMean") || !attn_match_reduces_last(graph, mean))
        return -1;
    struct attn_node *square = attn_graph_producer(graph, mean->in[0]);
    return square ? square_argument(graph, square) : -1;
}

/* d = x - mean x: x, or -1. */
static int32_t centred_argument(const struct attn_graph *graph, int32_t d)
{
    struct attn_node *sub = attn_graph_producer(graph, d);
    if (!node_is(sub, "Sub"))
        return -1;
    struct attn_node *mean = attn_match_in(graph, sub, 1, "ReduceMean");
    if (mean == NULL || !attn_match_reduces_last(graph, mean) ||
        mean->in[0] != sub->in[0])
        return -1;
    return sub->in[0];
}

/* The size of the last axis where it is constant, else -1. */
static int64_t last_dim(const struct attn_graph *graph, int32_t value)
{
    const attnrun_type *type = &graph->values[value].type;
    if (type->rank < 1 || !dim_is_const(type->dims[type->rank - 1]))
        return -1;
    return type->dims[type->rank - 1].value;
}

/* The vector that the only user of `value`, an `op_type`, applies to it; *result moves
 * on. */
static int32_t applied_vector(struct attn_graph *graph, int32_t *result,
                              const char *op_type, int64_t n)
{
    int64_t found;
    struct attn_node *user = attn_graph_only_user(graph, *result);
    if (!node_is(user, op_type))
        return -1;
    int32_t vector = attn_match_other(user, *result);
    if (vector < 0 || !attn_match_vector(graph, vector, &found) || found != n ||
        !attn_match_same_rank(graph, user->out[0], *result))
        return -1;
    *result = user->out[0];
    return vector;
}

static attn_status ones(struct attn_graph *graph, int64_t n, int32_t *value)
{
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 1, &n, value, &data));
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        ((float *)data)[i] = 1.0f;
    return ATTNRUN_OK;
}

static attn_status replace_norm(struct attn_graph *graph, struct attn_node *node,
                                int32_t x, int32_t result, double epsilon, bool centred)
{
    int64_t n = last_dim(graph, x);
    int32_t in[3] = { x, applied_vector(graph, &result, "Mul", n), -1 };
    if (centred)
        in[2] = applied_vector(graph, &result, "Add", n);
    if (in[1] < 0)
        TRY(ones(graph, n, &in[1]));
    for (int i = 1; i < 3; i++)
        if (in[i] >= 0)
            TRY(attn_match_as_vector(graph, &in[i]));
    struct attn_attr attrs[] = { MATCH_INT("axis", -1),
                                 MATCH_FLOAT("epsilon", (float)epsilon) };
    struct attn_node *made;
    TRY(attn_match_make(graph, node, "",
                        centred ? "LayerNormalization" : "RMSNormalization",
                        in[2] >= 0 ? 3 : 2, in, result, 2, attrs, &made));
    attn_match_replace(graph, result, made);
    return ATTNRUN_OK;
}

/* d / sqrt(…), where d is centred. */
static attn_status try_layer_norm(struct attn_graph *graph, struct attn_node *div,
                                  int32_t *applied)
{
    double epsilon;
    struct attn_node *root = attn_match_in(graph, div, 1, "Sqrt");
    int32_t d = root ? root_argument(graph, root, &epsilon) : -1;
    int32_t x = d >= 0 && d == div->in[0] ? centred_argument(graph, d) : -1;
    if (x < 0 || !attn_match_is_f32(graph, x) || last_dim(graph, x) < 1 ||
        !attn_match_same_rank(graph, x, div->out[0]))
        return ATTNRUN_OK;
    ++*applied;
    return replace_norm(graph, div, x, div->out[0], epsilon, true);
}

/* 1 / sqrt(…) as Reciprocal or Div: the Sqrt, or NULL. */
static struct attn_node *inverse_root(const struct attn_graph *graph,
                                      const struct attn_node *node)
{
    double one;
    if (node_is(node, "Reciprocal"))
        return attn_match_in(graph, node, 0, "Sqrt");
    if (node_is(node, "Div") && attn_value_scalar(graph, node->in[0], &one) && one == 1)
        return attn_match_in(graph, node, 1, "Sqrt");
    return NULL;
}

static attn_status try_rms_norm(struct attn_graph *graph, struct attn_node *product,
                                int32_t *applied)
{
    for (int in = 0; in < 2; in++) {
        double epsilon;
        struct attn_node *inverse = attn_graph_producer(graph, product->in[in]);
        struct attn_node *root = inverse ? inverse_root(graph, inverse) : NULL;
        int32_t x = root ? root_argument(graph, root, &epsilon) : -1;
        if (x < 0 || x != product->in[1 - in] || !attn_match_is_f32(graph, x) ||
            last_dim(graph, x) < 1 || !attn_match_same_rank(graph, x, product->out[0]))
            continue;
        ++*applied;
        return replace_norm(graph, product, x, product->out[0], epsilon, false);
    }
    return ATTNRUN_OK;
}

static attn_status try_norm(struct attn_graph *graph, struct attn_node *node,
                            int32_t *applied)
{
    if (node_is(node, "Div"))
        return try_layer_norm(graph, node, applied);
    return node_is(node, "Mul") && node->pub.n_in == 2
               ? try_rms_norm(graph, node, applied)
               : ATTNRUN_OK;
}

const struct attn_pass attn_pass_layer_norm = { .name = "layer_norm",
                                                .try_node = try_norm };

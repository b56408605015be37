/* residual_relu.c - a residual-ReLU epilogue for operators over maps: the operator, then
 * Add of a tensor of the result's shape, and Relu become one node with an identity and a
 * post_activation. The map is read and written once less, and its bits are the same. A
 * sum that other nodes read stays. */
#include "../../runtime/poll.h"
#include "match.h"

/* The place of `identity` among the inputs. */
static const struct {
    const char *op_type;
    int32_t identity;
} with_tail[] = {
    { "SqueezeExcite", 5 },     { "CBAM", 7 }, { "BAM", 13 }, { "SKSelect", 4 },
    { "ExternalAttention", 4 },
};
enum {
    OPERATORS = sizeof with_tail / sizeof *with_tail,
    MAX_INPUTS = 16,
    MAX_ATTRS = 12
};

struct tail {
    struct attn_node *node;
    int32_t place; /* of identity */
    int32_t added; /* -1: nothing */
    int32_t result;
    bool relu;
};

/* A node with a tail that ends in nothing yet. */
static bool is_core(struct attn_node *node, struct tail *tail)
{
    int i = 0;
    if (node == NULL || (attn_node_attr(node, "post_activation") != NULL &&
                         !attn_match_string(node, "post_activation", "none")))
        return false;
    while (i < OPERATORS && !node_is_of(node, "attnrun", with_tail[i].op_type))
        i++;
    if (i == OPERATORS || node->pub.n_in > MAX_INPUTS || node->n_attrs > MAX_ATTRS)
        return false;
    *tail = (struct tail){ node, with_tail[i].identity, -1, node->out[0], false };
    return true;
}

static void take_sum(const struct attn_graph *graph, struct tail *tail)
{
    const struct attn_node *add = attn_graph_only_user(graph, tail->result);
    if (tail->place < tail->node->pub.n_in && tail->node->in[tail->place] >= 0)
        return;
    const int32_t other = node_is(add, "Add") ? attn_match_other(add, tail->result) : -1;
    if (other < 0 || !attn_match_is_f32(graph, other) ||
        !attn_match_same_shape(graph, other, tail->result))
        return;
    tail->added = other;
    tail->result = add->out[0];
}

static attn_status make_fused(struct attn_graph *graph, const struct tail *tail,
                              struct attn_node **made)
{
    const struct attn_node *node = tail->node;
    struct attn_attr attrs[MAX_ATTRS + 1];
    int32_t in[MAX_INPUTS], n_attrs = 0, n_in = node->pub.n_in;
    for (int32_t i = 0; i < MAX_INPUTS; i++)
        in[i] = i < n_in ? node->in[i] : -1;
    if (tail->added >= 0) {
        in[tail->place] = tail->added;
        n_in = n_in > tail->place ? n_in : tail->place + 1;
    }
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "post_activation") != 0)
            attrs[n_attrs++] = node->attrs[i];
    if (tail->relu)
        attrs[n_attrs++] = (struct attn_attr)MATCH_STRING("post_activation", "relu");
    return attn_match_make(graph, tail->node, "attnrun", node->pub.op_type, n_in, in,
                           tail->result, n_attrs, attrs, made);
}

static attn_status residual_relu_try_node(struct attn_graph *graph,
                                          struct attn_node *node, int32_t *applied)
{
    struct tail tail;
    if (!is_core(node, &tail) || !attn_match_is_f32(graph, tail.result))
        return ATTNRUN_OK;
    take_sum(graph, &tail);
    const struct attn_node *relu = attn_graph_only_user(graph, tail.result);
    if (node_is(relu, "Relu")) {
        tail.relu = true;
        tail.result = relu->out[0];
    }
    if (tail.result == node->out[0])
        return ATTNRUN_OK;
    struct attn_node *made;
    TRY(make_fused(graph, &tail, &made));
    attn_match_replace(graph, tail.result, made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run_residual_relu(struct attn_graph *graph, int32_t *applied)
{
    int64_t n_nodes = graph->n_nodes;
    for (int64_t n = 0; n < n_nodes && !attn_stops_node(n); n++)
        TRY(residual_relu_try_node(graph, graph->nodes[n], applied));
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_residual_relu = { .name = "residual_relu",
                                                   .run = run_residual_relu };

/* residual_relu.c - a residual-ReLU epilogue for operators over maps: the operator, then
 * Add of a tensor of the result's shape, and Relu become one node with an identity and a
 * post_activation. The map is read and written once less, and its bits are the same. A
 * sum that other nodes read stays. */
#include "match.h"

/* The operators that have such an epilogue, and the input that is added. */
static const struct {
    const char *op_type;
    int32_t identity;
} with_epilogue[] = {
    { "SqueezeExcite", 5 },     { "CBAM", 7 }, { "BAM", 13 }, { "SKSelect", 4 },
    { "ExternalAttention", 4 },
};
enum {
    OPERATORS = sizeof with_epilogue / sizeof *with_epilogue,
    MAX_INPUTS = 16,
    MAX_ATTRS = 12
};

struct epilogue {
    struct attn_node *node;
    int32_t place; /* of identity */
    int32_t added; /* -1: nothing */
    int32_t result;
    bool relu;
};

/* Whether a node may get an epilogue and has none yet; *epilogue is then an empty one. */
static bool is_core(struct attn_node *node, struct epilogue *epilogue)
{
    int i = 0;
    if (node == NULL || (attn_node_attr(node, "post_activation") != NULL &&
                         !attn_match_string(node, "post_activation", "none")))
        return false;
    while (i < OPERATORS && !node_is_of(node, "attnrun", with_epilogue[i].op_type))
        i++;
    if (i == OPERATORS || node->pub.n_in > MAX_INPUTS || node->n_attrs > MAX_ATTRS)
        return false;
    *epilogue =
        (struct epilogue){ node, with_epilogue[i].identity, -1, node->out[0], false };
    return true;
}

/* Takes the Add behind the node into the epilogue, if its other term has the same shape. */
static void take_sum(const struct attn_graph *graph, struct epilogue *epilogue)
{
    const struct attn_node *add = attn_graph_only_user(graph, epilogue->result);
    if (epilogue->place < epilogue->node->pub.n_in &&
        epilogue->node->in[epilogue->place] >= 0)
        return;
    const int32_t other =
        node_is(add, "Add") ? attn_match_other(add, epilogue->result) : -1;
    if (other < 0 || !attn_match_is_f32(graph, other) ||
        !attn_match_same_shape(graph, other, epilogue->result))
        return;
    epilogue->added = other;
    epilogue->result = add->out[0];
}

static attn_status make_fused(struct attn_graph *graph, const struct epilogue *epilogue,
                              struct attn_node **made)
{
    const struct attn_node *node = epilogue->node;
    struct attn_attr attrs[MAX_ATTRS + 1];
    int32_t in[MAX_INPUTS], n_attrs = 0, n_in = node->pub.n_in;
    for (int32_t i = 0; i < MAX_INPUTS; i++)
        in[i] = i < n_in ? node->in[i] : -1;
    if (epilogue->added >= 0) {
        in[epilogue->place] = epilogue->added;
        n_in = n_in > epilogue->place ? n_in : epilogue->place + 1;
    }
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "post_activation") != 0)
            attrs[n_attrs++] = node->attrs[i];
    if (epilogue->relu)
        attrs[n_attrs++] = (struct attn_attr)MATCH_STRING("post_activation", "relu");
    return attn_match_make(graph, epilogue->node, "attnrun", node->pub.op_type, n_in, in,
                           epilogue->result, n_attrs, attrs, made);
}

static attn_status residual_relu_try_node(struct attn_graph *graph,
                                          struct attn_node *node, int32_t *applied)
{
    struct epilogue epilogue;
    if (!is_core(node, &epilogue) || !attn_match_is_f32(graph, epilogue.result))
        return ATTNRUN_OK;
    take_sum(graph, &epilogue);
    const struct attn_node *relu = attn_graph_only_user(graph, epilogue.result);
    if (node_is(relu, "Relu")) {
        epilogue.relu = true;
        epilogue.result = relu->out[0];
    }
    if (epilogue.result == node->out[0])
        return ATTNRUN_OK;
    struct attn_node *made;
    TRY(make_fused(graph, &epilogue, &made));
    attn_match_replace(graph, epilogue.result, made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_residual_relu = { .name = "residual_relu",
                                                   .try_node = residual_relu_try_node };

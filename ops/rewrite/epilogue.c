/* epilogue.c - recognizes residuals and activations that a product or a convolution can apply to
 * its result. epilogue.h has the interface. */
#include "epilogue.h"

static bool match_clip(const struct attn_graph *graph, const struct attn_node *node,
                       struct epilogue *epilogue)
{
    double low, high;
    if (node->pub.n_in == 1 && attn_node_attr(node, "min") &&
        attn_node_attr(node, "max")) {
        low = (double)attn_match_float(node, "min", 0);
        high = (double)attn_match_float(node, "max", 0);
    } else if (node->pub.n_in != 3 || !attn_value_scalar(graph, node->in[1], &low) ||
               !attn_value_scalar(graph, node->in[2], &high)) {
        return false;
    }
    *epilogue = (struct epilogue){ "clip", (float)low, (float)high };
    return true;
}

/* The word of an activation of com.microsoft, or NULL. */
static const char *microsoft_word(const struct attn_node *node)
{
    if (node->pub.n_in != 1)
        return NULL;
    if (node_is_of(node, "com.microsoft", "Gelu"))
        return "gelu";
    bool silu = node_is_of(node, "com.microsoft", "QuickGelu") &&
                attn_match_float(node, "alpha", 1.702f) == 1.0f;
    return silu ? "silu" : NULL;
}

bool attn_match_activation(const struct attn_graph *graph, const struct attn_node *node,
                           struct epilogue *epilogue)
{
    static const struct {
        const char *op_type, *word;
    } plain[] = {
        { "Relu", "relu" },
        { "Tanh", "tanh" },
        { "Sigmoid", "sigmoid" },
        { "HardSwish", "hardswish" },
    };
    if (node == NULL || !attn_match_is_f32(graph, node->out[0]))
        return false;
    *epilogue = (struct epilogue){ microsoft_word(node), 0, 0 };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (node_is(node, plain[i].op_type))
            epilogue->activation = plain[i].word;
    if (node_is(node, "Gelu"))
        epilogue->activation =
            attn_match_string(node, "approximate", "tanh") ? "gelu_tanh" : "gelu";
    if (node_is(node, "Swish") && attn_match_float(node, "alpha", 1.0f) == 1.0f)
        epilogue->activation = "silu";
    if (node_is(node, "LeakyRelu"))
        *epilogue =
            (struct epilogue){ "leakyrelu", attn_match_float(node, "alpha", 0.01f), 0 };
    if (node_is(node, "HardSigmoid"))
        *epilogue =
            (struct epilogue){ "hardsigmoid", attn_match_float(node, "alpha", 0.2f),
                               attn_match_float(node, "beta", 0.5f) };
    if (node_is(node, "Clip"))
        return match_clip(graph, node, epilogue);
    return epilogue->activation != NULL;
}

int32_t attn_match_residual(const struct attn_graph *graph, int32_t result,
                            const struct attn_node **add)
{
    *add = attn_graph_only_user(graph, result);
    if (!node_is(*add, "Add"))
        return -1;
    const int32_t other = attn_match_other(*add, result);
    const bool fits = other >= 0 && attn_match_is_f32(graph, other) &&
                      !match_is_constant(graph, other) &&
                      attn_match_same_shape(graph, other, result);
    return fits ? other : -1;
}

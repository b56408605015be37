/* conv_epilogue.c - Conv, then Add of a tensor of the result's shape, and an activation
 * become one FusedConv: y = activation(S conv(X, W) + B + Z). The pass runs after
 * conv_batch_norm, which makes some nodes FusedConv with S alone. */
#include "epilogue.h"

enum { MAX_ATTRS = 12 };

struct fusion {
    struct attn_node *conv;
    int32_t residual; /* -1: none */
    int32_t result;
    int n_fused;
    struct epilogue epilogue;
};

static void take_residual(const struct attn_graph *graph, struct fusion *fusion)
{
    const struct attn_node *add;
    const int32_t residual = attn_match_residual(graph, fusion->result, &add);
    if (residual < 0)
        return;
    fusion->residual = residual;
    fusion->result = add->out[0];
    fusion->n_fused++;
}

static void take_activation(const struct attn_graph *graph, struct fusion *fusion)
{
    struct attn_node *user = attn_graph_only_user(graph, fusion->result);
    if (attn_match_activation(graph, user, &fusion->epilogue)) {
        fusion->result = user->out[0];
        fusion->n_fused++;
        return;
    }
    fusion->epilogue = (struct epilogue){ "none", 0, 0 };
}

static attn_status make_fused(struct attn_graph *graph, const struct fusion *fusion,
                              struct attn_node **made)
{
    struct attn_node *conv = fusion->conv;
    struct attn_attr attrs[MAX_ATTRS + 3];
    int32_t n = conv->n_attrs;
    for (int32_t i = 0; i < n; i++)
        attrs[i] = conv->attrs[i];
    attrs[n++] =
        (struct attn_attr)MATCH_STRING("activation", fusion->epilogue.activation);
    attrs[n++] = (struct attn_attr)MATCH_FLOAT("alpha", fusion->epilogue.alpha);
    attrs[n++] = (struct attn_attr)MATCH_FLOAT("beta", fusion->epilogue.beta);
    int32_t in[5] = { conv->in[0], conv->in[1], conv->pub.n_in > 2 ? conv->in[2] : -1,
                      fusion->residual, conv->pub.n_in > 4 ? conv->in[4] : -1 };
    return attn_match_make(graph, conv, "attnrun.fused", "FusedConv",
                           in[4] >= 0   ? 5
                           : in[3] >= 0 ? 4
                                        : 3,
                           in, fusion->result, n, attrs, made);
}

/* A FusedConv with neither Z nor an activation. */
static bool is_bare(const struct attn_node *node)
{
    return node_is_of(node, "attnrun.fused", "FusedConv") &&
           attn_node_attr(node, "activation") == NULL &&
           (node->pub.n_in < 4 || node->in[3] < 0);
}

static attn_status try_conv(struct attn_graph *graph, struct attn_node *conv,
                            int32_t *applied)
{
    struct fusion fusion = { .conv = conv, .residual = -1, .result = conv->out[0] };
    if (!node_is(conv, "Conv") && !is_bare(conv))
        return ATTNRUN_OK;
    if (!attn_match_is_f32(graph, conv->out[0]) || conv->n_attrs > MAX_ATTRS)
        return ATTNRUN_OK;
    if (attn_match_user(graph, conv, "BatchNormalization") != NULL)
        return ATTNRUN_OK;
    take_residual(graph, &fusion);
    take_activation(graph, &fusion);
    if (fusion.n_fused == 0)
        return ATTNRUN_OK;
    struct attn_node *made;
    TRY(make_fused(graph, &fusion, &made));
    attn_match_replace(graph, fusion.result, made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_conv_epilogue = { .name = "conv_epilogue",
                                                   .try_node = try_conv };

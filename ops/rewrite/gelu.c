/* gelu.c - the decomposed Gelu, Silu and HardSwish of exporters become one node, with the
 * factors in any order:
 *
 *   x * 0.5 * (1 + erf(x / sqrt 2))                         -> Gelu
 *   x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))   -> Gelu, approximate "tanh"
 *   x * sigmoid(x)                                          -> Swish
 *   x * clip(x + 3, 0, 6) / 6                               -> HardSwish */
#include "epilogue.h"

/* The Erf's input is x / sqrt 2: x, or -1. */
static int32_t erf_argument(const struct attn_graph *graph, const struct attn_node *erf)
{
    int32_t x;
    struct attn_node *scale = attn_match_in(graph, erf, 0, "Div");
    if (scale != NULL && attn_match_number(graph, scale, false, 1.4142135623730951, &x))
        return x;
    scale = attn_match_in(graph, erf, 0, "Mul");
    if (scale != NULL && attn_match_number(graph, scale, true, 0.7071067811865476, &x))
        return x;
    return -1;
}

/* x^3 as Pow(x, 3) or x * (x * x): x, or -1. */
static int32_t cube_argument(const struct attn_graph *graph, const struct attn_node *node)
{
    int32_t x, y;
    if (node_is(node, "Pow"))
        return attn_match_number(graph, node, false, 3, &x) ? x : -1;
    if (!node_is(node, "Mul"))
        return -1;
    struct attn_node *square = attn_match_either(graph, node, "Mul", &x);
    if (square != NULL && square->in[0] == x && square->in[1] == x)
        return x;
    square = attn_match_either(graph, node, "Pow", &y);
    return square != NULL && attn_match_number(graph, square, false, 2, &x) && x == y
               ? x
               : -1;
}

/* 0.044715 * x^3: x, or -1. */
static int32_t cubic_term(const struct attn_graph *graph, const struct attn_node *node)
{
    int32_t rest;
    if (!node_is(node, "Mul"))
        return -1;
    if (attn_match_number(graph, node, true, 0.044715, &rest)) {
        struct attn_node *cube = attn_graph_producer(graph, rest);
        return cube ? cube_argument(graph, cube) : -1;
    }
    return -1;
}

/* sqrt(2/pi) * (x + 0.044715 x^3): x, or -1. */
static int32_t tanh_argument(const struct attn_graph *graph, const struct attn_node *tanh)
{
    int32_t inner;
    struct attn_node *scale = attn_match_in(graph, tanh, 0, "Mul");
    if (scale == NULL ||
        !attn_match_number(graph, scale, true, 0.7978845608028654, &inner))
        return -1;
    struct attn_node *sum = attn_graph_producer(graph, inner);
    if (!node_is(sum, "Add"))
        return -1;
    for (int in = 0; in < 2; in++) {
        struct attn_node *term = attn_graph_producer(graph, sum->in[in]);
        int32_t x = term ? cubic_term(graph, term) : -1;
        if (x >= 0 && x == sum->in[1 - in])
            return x;
    }
    return -1;
}

/* From the value 1 + f(x), read once, to the value x * 0.5 * (1 + f(x)); -1 where it is
 * not of that form. */
static int32_t halved_product(const struct attn_graph *graph, const struct attn_node *sum,
                              int32_t x)
{
    int32_t rest, other;
    struct attn_node *first = attn_match_user(graph, sum, "Mul");
    if (first == NULL)
        return -1;
    other = attn_match_other(first, sum->out[0]);
    if (other == x) { /* (x * s) * 0.5 */
        struct attn_node *half = attn_match_user(graph, first, "Mul");
        return half && attn_match_number(graph, half, true, 0.5, &rest) ? half->out[0]
                                                                        : -1;
    }
    if (attn_match_number(graph, first, true, 0.5, &rest)) { /* x * (0.5 * s) */
        struct attn_node *product = attn_match_user(graph, first, "Mul");
        return product && attn_match_other(product, first->out[0]) == x ? product->out[0]
                                                                        : -1;
    }
    struct attn_node *half = attn_graph_producer(graph, other); /* (0.5 * x) * s */
    if (node_is(half, "Mul") && attn_match_number(graph, half, true, 0.5, &rest) &&
        rest == x)
        return first->out[0];
    return -1;
}

static attn_status try_gelu(struct attn_graph *graph, struct attn_node *node,
                            bool is_tanh, int32_t *applied)
{
    int32_t rest, x = is_tanh ? tanh_argument(graph, node) : erf_argument(graph, node);
    if (x < 0 || !attn_match_is_f32(graph, x))
        return ATTNRUN_OK;
    struct attn_node *sum = attn_match_user(graph, node, "Add");
    if (sum == NULL || !attn_match_number(graph, sum, true, 1, &rest))
        return ATTNRUN_OK;
    int32_t old = halved_product(graph, sum, x);
    if (old < 0 || !attn_match_same_rank(graph, x, old))
        return ATTNRUN_OK;
    struct attn_attr attr = MATCH_STRING("approximate", is_tanh ? "tanh" : "none");
    struct attn_node *gelu;
    TRY(attn_match_make(graph, node, "", "Gelu", 1, &x, old, 1, &attr, &gelu));
    attn_match_replace(graph, old, gelu);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_silu(struct attn_graph *graph, struct attn_node *sigmoid,
                            int32_t *applied)
{
    struct attn_node *product = attn_match_user(graph, sigmoid, "Mul");
    int32_t x = sigmoid->in[0];
    if (product == NULL || !attn_match_is_f32(graph, x) ||
        attn_match_other(product, sigmoid->out[0]) != x)
        return ATTNRUN_OK;
    struct attn_node *swish;
    TRY(attn_match_make(graph, sigmoid, "", "Swish", 1, &x, product->out[0], 0, NULL,
                        &swish));
    attn_match_replace(graph, product->out[0], swish);
    ++*applied;
    return ATTNRUN_OK;
}

/* Whether a node divides by 6; *x: what. */
static bool is_sixth(const struct attn_graph *graph, const struct attn_node *node,
                     int32_t *x)
{
    if (node_is(node, "Div"))
        return attn_match_number(graph, node, false, 6, x);
    return node_is(node, "Mul") && attn_match_number(graph, node, true, 1.0 / 6.0, x);
}

/* From clip(x + 3, 0, 6) to the value that is HardSwish of x, or -1. */
static int32_t hard_swish_of(const struct attn_graph *graph, const struct attn_node *clip,
                             int32_t x)
{
    int32_t of;
    struct attn_node *next = attn_graph_only_user(graph, clip->out[0]);
    if (is_sixth(graph, next, &of)) {
        struct attn_node *product = attn_match_user(graph, next, "Mul");
        return product != NULL && attn_match_other(product, next->out[0]) == x
                   ? product->out[0]
                   : -1;
    }
    if (!node_is(next, "Mul") || attn_match_other(next, clip->out[0]) != x)
        return -1;
    struct attn_node *last = attn_graph_only_user(graph, next->out[0]);
    return is_sixth(graph, last, &of) && of == next->out[0] ? last->out[0] : -1;
}

static attn_status try_hard_swish(struct attn_graph *graph, struct attn_node *clip,
                                  int32_t *applied)
{
    struct attn_node *sum = attn_match_in(graph, clip, 0, "Add"), *made;
    struct epilogue bounds;
    int32_t x;
    if (sum == NULL || !attn_match_number(graph, sum, true, 3, &x) ||
        !attn_match_activation(graph, clip, &bounds) || bounds.alpha != 0.0f ||
        bounds.beta != 6.0f)
        return ATTNRUN_OK;
    const int32_t old = hard_swish_of(graph, clip, x);
    if (old < 0 || !attn_match_same_rank(graph, x, old))
        return ATTNRUN_OK;
    TRY(attn_match_make(graph, clip, "", "HardSwish", 1, &x, old, 0, NULL, &made));
    attn_match_replace(graph, old, made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status try_activation(struct attn_graph *graph, struct attn_node *node,
                                  int32_t *applied)
{
    if (node_is(node, "Erf") || node_is(node, "Tanh"))
        return try_gelu(graph, node, node_is(node, "Tanh"), applied);
    if (node_is(node, "Sigmoid"))
        return try_silu(graph, node, applied);
    return node_is(node, "Clip") ? try_hard_swish(graph, node, applied) : ATTNRUN_OK;
}

const struct attn_pass attn_pass_gelu = { .name = "gelu", .try_node = try_activation };

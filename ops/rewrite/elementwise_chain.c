/* elementwise_chain.c - elementwise nodes on f32 whose results no other node reads become
 * one FusedElementwise, which goes over its operands once.
 *
 * The nodes of a chain have provably equal output dims; their other operands may be of
 * any shape, since an elementwise operator may broadcast before or after. Constants of
 * one number go into the program. Runs when no other pass finds anything more. */
#include <math.h>

#include "../../runtime/poll.h"
#include "../elementwise/fused_elementwise.h"
#include "match.h"

/* An operand that is the result of instruction k, until the number of inputs is known. */
enum { RESULT = 1 << 20 };

struct chain {
    struct attn_graph *graph;
    struct attn_node *nodes[FUSED_MAX_CODE]; /* nodes[0] gives the result */
    struct attn_node *order[FUSED_MAX_CODE]; /* the same in an order of execution */
    int32_t n_nodes;
    int32_t in[FUSED_MAX_INPUTS], result_of[FUSED_MAX_CODE]; /* values */
    int64_t code[FUSED_MAX_CODE * FUSED_WORDS];
    float numbers[FUSED_MAX_CODE * 3];
    int32_t n_in, n_code, n_numbers;
    bool failed; /* too long, too many inputs, or a node that has no instruction */
};

/* ---- from nodes to instructions ---- */

static int64_t put_number(struct chain *chain, float x)
{
    if (chain->n_numbers == (int32_t)(sizeof chain->numbers / sizeof *chain->numbers)) {
        chain->failed = true;
        return 0;
    }
    chain->numbers[chain->n_numbers] = x;
    return chain->n_numbers++;
}

static int64_t put_constant(struct chain *chain, float x)
{
    return -1 - put_number(chain, x);
}

static int64_t put_input(struct chain *chain, int32_t value)
{
    for (int32_t i = 0; i < chain->n_in; i++)
        if (chain->in[i] == value)
            return i;
    if (value < 0 || chain->n_in == FUSED_MAX_INPUTS) {
        chain->failed = true;
        return 0;
    }
    chain->in[chain->n_in] = value;
    return chain->n_in++;
}

/* What an instruction reads of a value; `number`: a constant may become one. */
static int64_t operand_of(struct chain *chain, int32_t value, bool number)
{
    double x;
    for (int32_t k = 0; k < chain->n_code && value >= 0; k++)
        if (chain->result_of[k] == value)
            return RESULT + k;
    if (!attn_match_is_f32(chain->graph, value)) {
        chain->failed = true;
        return 0;
    }
    if (number && attn_value_scalar(chain->graph, value, &x))
        return put_constant(chain, (float)x);
    return put_input(chain, value);
}

/* Returns the operand that its result is. */
static int64_t put_code(struct chain *chain, int64_t opcode, int64_t a, int64_t b,
                        int64_t c)
{
    if (chain->n_code == FUSED_MAX_CODE) {
        chain->failed = true;
        return 0;
    }
    const int64_t word[FUSED_WORDS] = { opcode, a, b, c };
    memcpy(chain->code + chain->n_code * FUSED_WORDS, word, sizeof word);
    chain->result_of[chain->n_code] = -1;
    return RESULT + chain->n_code++;
}

static void put_unary(struct chain *chain, int64_t opcode, const struct attn_node *node,
                      float p0, float p1)
{
    int64_t x = operand_of(chain, node->in[0], false);
    int64_t numbers = put_number(chain, p0);
    put_number(chain, p1);
    put_code(chain, opcode, x, numbers, 0);
}

struct unary_row {
    const char *op_type;
    int32_t opcode;
    const char *names[2];
    float defaults[2];
};
static const struct unary_row unary_rows[] = {
    { "Abs", FUSED_abs, { NULL }, { 0 } },
    { "Atan", FUSED_atan, { NULL }, { 0 } },
    { "Ceil", FUSED_ceil, { NULL }, { 0 } },
    { "Celu", FUSED_celu, { "alpha", NULL }, { 1, 0 } },
    { "Cos", FUSED_cos, { NULL }, { 0 } },
    { "Elu", FUSED_elu, { "alpha", NULL }, { 1, 0 } },
    { "Erf", FUSED_erf, { NULL }, { 0 } },
    { "Exp", FUSED_exp, { NULL }, { 0 } },
    { "Floor", FUSED_floor, { NULL }, { 0 } },
    { "HardSigmoid", FUSED_hard_sigmoid, { "alpha", "beta" }, { 0.2f, 0.5f } },
    { "HardSwish", FUSED_hard_swish, { NULL }, { 0 } },
    { "LeakyRelu", FUSED_leaky_relu, { "alpha", NULL }, { 0.01f, 0 } },
    { "Log", FUSED_log, { NULL }, { 0 } },
    { "Mish", FUSED_mish, { NULL }, { 0 } },
    { "Neg", FUSED_neg, { NULL }, { 0 } },
    { "Reciprocal", FUSED_reciprocal, { NULL }, { 0 } },
    { "Relu", FUSED_relu, { NULL }, { 0 } },
    { "Round", FUSED_round, { NULL }, { 0 } },
    { "Sigmoid", FUSED_sigmoid, { NULL }, { 0 } },
    { "Sign", FUSED_sign, { NULL }, { 0 } },
    { "Sin", FUSED_sin, { NULL }, { 0 } },
    { "Softplus", FUSED_softplus, { NULL }, { 0 } },
    { "Softsign", FUSED_softsign, { NULL }, { 0 } },
    { "Sqrt", FUSED_sqrt, { NULL }, { 0 } },
    { "Swish", FUSED_swish, { "alpha", NULL }, { 1, 0 } },
    { "Tan", FUSED_tan, { NULL }, { 0 } },
    { "Tanh", FUSED_tanh, { NULL }, { 0 } },
    { "ThresholdedRelu", FUSED_thresholded_relu, { "alpha", NULL }, { 1, 0 } },
};

static bool translate_unary(struct chain *chain, const struct attn_node *node)
{
    float p[2];
    if (node_is(node, "Gelu")) {
        bool tanh = attn_match_string(node, "approximate", "tanh");
        put_unary(chain, tanh ? FUSED_gelu_tanh : FUSED_gelu, node, 0, 0);
        return true;
    }
    for (size_t i = 0; i < sizeof unary_rows / sizeof *unary_rows; i++) {
        const struct unary_row *row = &unary_rows[i];
        if (!node_is(node, row->op_type))
            continue;
        for (int k = 0; k < 2; k++)
            p[k] = row->names[k] ? attn_match_float(node, row->names[k], row->defaults[k])
                                 : 0;
        put_unary(chain, row->opcode, node, p[0], p[1]);
        return true;
    }
    return false;
}

/* Add, …: one form since opset 7. Max, …: any number of operands, from left to right. */
static bool translate_binary(struct chain *chain, const struct attn_node *node)
{
    static const struct {
        const char *op_type;
        int32_t opcode, min, max;
    } rows[] = {
        { "Add", FUSED_add, 2, 2 },     { "Sub", FUSED_sub, 2, 2 },
        { "Mul", FUSED_mul, 2, 2 },     { "Div", FUSED_div, 2, 2 },
        { "PRelu", FUSED_prelu, 2, 2 }, { "Max", FUSED_max, 2, 8 },
        { "Min", FUSED_min, 2, 8 },     { "Sum", FUSED_add, 2, 8 },
        { "Mean", FUSED_add, 2, 8 },
    };
    const int32_t n = node->pub.n_in;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!node_is(node, rows[i].op_type) || n < rows[i].min || n > rows[i].max ||
            (rows[i].max == 2 && node->pub.opset < 7))
            continue;
        int64_t x = operand_of(chain, node->in[0], true);
        for (int32_t in = 1; in < n; in++)
            x = put_code(chain, rows[i].opcode, x, operand_of(chain, node->in[in], true),
                         0);
        if (node_is(node, "Mean"))
            put_code(chain, FUSED_div, x, put_constant(chain, (float)n), 0);
        return true;
    }
    return false;
}

static bool translate_pow(struct chain *chain, const struct attn_node *node)
{
    double exponent;
    if (!node_is(node, "Pow") || node->pub.opset < 7 ||
        !attn_value_scalar(chain->graph, node->in[1], &exponent))
        return false;
    int64_t x = operand_of(chain, node->in[0], false);
    if (exponent == 2)
        put_code(chain, FUSED_mul, x, x, 0);
    else if (exponent == 3)
        put_unary(chain, FUSED_cube, node, 0, 0);
    else if (exponent == 0.5)
        put_unary(chain, FUSED_pow_half, node, 0, 0);
    else
        return false;
    return true;
}

static bool clip_bound(const struct chain *chain, const struct attn_node *node, int in,
                       double *bound)
{
    return in >= node->pub.n_in || node->in[in] < 0 ||
           attn_value_scalar(chain->graph, node->in[in], bound);
}

/* Bounds are attributes before opset 11, which are left alone. */
static bool translate_clip(struct chain *chain, const struct attn_node *node)
{
    double low = (double)-INFINITY, high = (double)INFINITY;
    if (!node_is(node, "Clip") || node->pub.opset < 11 ||
        !clip_bound(chain, node, 1, &low) || !clip_bound(chain, node, 2, &high))
        return false;
    put_unary(chain, FUSED_clip, node, (float)low, (float)high);
    return true;
}

static bool translate_where(struct chain *chain, const struct attn_node *node)
{
    if (!node_is(node, "Where"))
        return false;
    const attnrun_type *type = &chain->graph->values[node->in[0]].type;
    if (type->kind != ATTNRUN_TENSOR || type->dtype != ATTNRUN_BOOL)
        return false;
    int64_t condition = put_input(chain, node->in[0]);
    int64_t a = operand_of(chain, node->in[1], true);
    int64_t b = operand_of(chain, node->in[2], true);
    put_code(chain, FUSED_WHERE, condition, a, b);
    return true;
}

static void translate(struct chain *chain, const struct attn_node *node)
{
    if (node->pub.n_out != 1 || !attn_match_is_f32(chain->graph, node->out[0]) ||
        !(translate_unary(chain, node) || translate_binary(chain, node) ||
          translate_pow(chain, node) || translate_clip(chain, node) ||
          translate_where(chain, node)))
        chain->failed = true;
    if (!chain->failed)
        chain->result_of[chain->n_code - 1] = node->out[0];
}

/* ---- the nodes of a chain ---- */

static void add_member(struct chain *chain, struct attn_node *node)
{
    int32_t i = chain->n_nodes++;
    chain->nodes[i] = node;
    for (; i > 0 && chain->order[i - 1]->pub.index > node->pub.index; i--)
        chain->order[i] = chain->order[i - 1];
    chain->order[i] = node;
}

static void drop_last_member(struct chain *chain)
{
    const struct attn_node *node = chain->nodes[--chain->n_nodes];
    int32_t i = 0;
    while (chain->order[i] != node)
        i++;
    for (; i < chain->n_nodes; i++)
        chain->order[i] = chain->order[i + 1];
}

/* Writes the program of all nodes in their order; false where it cannot be. */
static bool write_program(struct chain *chain)
{
    chain->n_in = chain->n_code = chain->n_numbers = 0;
    chain->failed = false;
    for (int32_t i = 0; i < chain->n_nodes && !chain->failed; i++)
        translate(chain, chain->order[i]);
    /* Constants of one number that are in the program no longer raise the rank. */
    int32_t rank = -1;
    for (int32_t i = 0; i < chain->n_in; i++)
        if (chain->graph->values[chain->in[i]].type.rank > rank)
            rank = chain->graph->values[chain->in[i]].type.rank;
    return !chain->failed &&
           rank == chain->graph->values[chain->nodes[0]->out[0]].type.rank;
}

static bool is_member(const struct chain *chain, const struct attn_node *node)
{
    for (int32_t i = 0; i < chain->n_nodes; i++)
        if (chain->nodes[i] == node)
            return true;
    return false;
}

/* Whether nobody but the chain's nodes reads a value. */
static bool read_inside(const struct chain *chain, int32_t value)
{
    const struct attn_value *v = &chain->graph->values[value];
    int32_t reads = 0;
    for (int32_t i = 0; i < chain->n_nodes; i++)
        for (int32_t in = 0; in < chain->nodes[i]->pub.n_in; in++)
            reads += chain->nodes[i]->in[in] == value;
    return reads == v->n_uses && !(v->flags & ATTN_VALUE_OUTPUT);
}

/* Takes in the producer of an operand, where it can be. */
static bool take_producer(struct chain *chain, int32_t value)
{
    struct attn_node *node = attn_graph_producer(chain->graph, value);
    if (node == NULL || chain->n_nodes == FUSED_MAX_CODE || is_member(chain, node) ||
        !attn_match_same_shape(chain->graph, value, chain->nodes[0]->out[0]) ||
        !read_inside(chain, value))
        return false;
    add_member(chain, node);
    if (write_program(chain))
        return true;
    drop_last_member(chain);
    return false;
}

static void grow(struct chain *chain)
{
    bool grew = true;
    while (grew) {
        grew = false;
        for (int32_t i = 0; i < chain->n_nodes; i++)
            for (int32_t in = 0; in < chain->nodes[i]->pub.n_in; in++)
                grew |= take_producer(chain, chain->nodes[i]->in[in]);
    }
}

/* ---- the fused node ---- */

static attn_status make_node(struct chain *chain)
{
    struct attn_graph *graph = chain->graph;
    struct attn_pool *pool = &graph->model->pool;
    const int32_t n_words = chain->n_code * FUSED_WORDS;
    for (int32_t i = 0; i < n_words; i++)
        if (i % FUSED_WORDS != 0 && chain->code[i] >= RESULT)
            chain->code[i] += chain->n_in - RESULT;
    struct attn_attr attrs[] = {
        { .name = "code", .kind = ATTN_ATTR_INTS },
        { .name = "numbers", .kind = ATTN_ATTR_FLOATS },
    };
    attrs[0].ints.n = n_words;
    attrs[0].ints.v =
        attn_pool_copy(pool, chain->code, n_words * (int64_t)sizeof *chain->code);
    attrs[1].floats.n = chain->n_numbers;
    attrs[1].floats.v = attn_pool_copy(pool, chain->numbers,
                                       (chain->n_numbers + 1) * (int64_t)sizeof(float));
    if (attrs[0].ints.v == NULL || attrs[1].floats.v == NULL)
        return ATTNRUN_E_MEMORY;
    struct attn_node *root = chain->nodes[0];
    struct attn_node *made;
    TRY(attn_match_make(graph, root, "attnrun.fused", "FusedElementwise", chain->n_in,
                        chain->in, root->out[0], 2, attrs, &made));
    attn_match_replace(graph, root->out[0], made);
    for (int32_t i = 0; i < chain->n_nodes; i++)
        attn_graph_remove(graph, chain->nodes[i]);
    return ATTNRUN_OK;
}

static attn_status run_elementwise_chain(struct attn_graph *graph, int32_t *applied)
{
    for (int64_t n = graph->n_nodes - 1; n >= 0 && !attn_stops_node(n); n--) {
        struct chain chain;
        struct attn_node *root = graph->nodes[n];
        if (root == NULL || root->pub.n_out != 1 || root->out[0] < 0)
            continue;
        chain.graph = graph;
        chain.n_nodes = 0;
        add_member(&chain, root);
        if (!write_program(&chain))
            continue;
        grow(&chain);
        if (chain.n_nodes < 2 || !write_program(&chain))
            continue;
        TRY(make_node(&chain));
        ++*applied;
    }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_elementwise_chain = { .name = "elementwise_chain",
                                                       .run = run_elementwise_chain,
                                                       .last = true };

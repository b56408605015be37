/* elementwise_chain.c - elementwise nodes on f32 whose results no other node reads become
 * one FusedElementwise, which reads its operands once.
 *
 * The nodes of a chain have provably equal output dims. Their other operands may be of
 * any shape, since an elementwise operator may broadcast before or after. Constants of
 * one number go into the program. The pass runs when no other pass finds anything more.
 * Cost: linear in the number of nodes. */
#include <math.h>

#include "../../runtime/poll.h"
#include "../elementwise/fused_elementwise.h"
#include "match.h"

/* An operand that is the result of instruction k, until the number of inputs is known. */
enum { RESULT = 1 << 20, FUSED_MAX_NUMBERS = FUSED_MAX_CODE * 3 };

/* The program that nodes are translated into: one node, to see what it adds, or a
 * chain. */
struct program {
    const struct attn_graph *graph;
    int32_t in[FUSED_MAX_INPUTS], result_of[FUSED_MAX_CODE]; /* values */
    int64_t code[FUSED_MAX_CODE * FUSED_WORDS];
    float numbers[FUSED_MAX_NUMBERS];
    int32_t n_in, n_code, n_numbers;
    bool failed; /* too long, too many inputs, or a node that has no instruction */
};

/* The nodes of a chain, and how large their program is. */
struct chain {
    struct attn_graph *graph;
    struct attn_node *nodes[FUSED_MAX_CODE]; /* nodes[0] gives the result */
    struct attn_node *order[FUSED_MAX_CODE]; /* the same in an order of execution */
    int32_t in[FUSED_MAX_INPUTS];            /* values that the nodes read from outside */
    int32_t n_nodes, n_in, n_code, n_numbers;
};

/* ---- from nodes to instructions ---- */

static int64_t put_number(struct program *program, float x)
{
    if (program->n_numbers == FUSED_MAX_NUMBERS) {
        program->failed = true;
        return 0;
    }
    program->numbers[program->n_numbers] = x;
    return program->n_numbers++;
}

static int64_t put_constant(struct program *program, float x)
{
    return -1 - put_number(program, x);
}

static int64_t put_input(struct program *program, int32_t value)
{
    for (int32_t i = 0; i < program->n_in; i++)
        if (program->in[i] == value)
            return i;
    if (value < 0 || program->n_in == FUSED_MAX_INPUTS) {
        program->failed = true;
        return 0;
    }
    program->in[program->n_in] = value;
    return program->n_in++;
}

/* The operand by which an instruction reads a value; `number`: a constant may become
 * one. */
static int64_t operand_of(struct program *program, int32_t value, bool number)
{
    double x;
    for (int32_t k = 0; k < program->n_code && value >= 0; k++)
        if (program->result_of[k] == value)
            return RESULT + k;
    if (!attn_match_is_f32(program->graph, value)) {
        program->failed = true;
        return 0;
    }
    if (number && attn_value_scalar(program->graph, value, &x))
        return put_constant(program, (float)x);
    return put_input(program, value);
}

/* Returns the operand that its result is. */
static int64_t put_code(struct program *program, int64_t opcode, int64_t a, int64_t b,
                        int64_t c)
{
    if (program->n_code == FUSED_MAX_CODE) {
        program->failed = true;
        return 0;
    }
    const int64_t word[FUSED_WORDS] = { opcode, a, b, c };
    memcpy(program->code + program->n_code * FUSED_WORDS, word, sizeof word);
    program->result_of[program->n_code] = -1;
    return RESULT + program->n_code++;
}

static void put_unary(struct program *program, int64_t opcode,
                      const struct attn_node *node, float p0, float p1)
{
    int64_t x = operand_of(program, node->in[0], false);
    int64_t numbers = put_number(program, p0);
    put_number(program, p1);
    put_code(program, opcode, x, numbers, 0);
}

/* An operator that has instructions. */
struct form {
    const char *op_type;
    bool (*translate)(struct program *program, const struct attn_node *node,
                      const struct form *form);
    int32_t opcode;
    int32_t min_in, max_in; /* operands, of translate_binary() */
    const char *names[2];   /* attributes of one operand, and their defaults */
    float defaults[2];
};

static bool translate_unary(struct program *program, const struct attn_node *node,
                            const struct form *form)
{
    float p[2];
    for (int k = 0; k < 2; k++)
        p[k] = form->names[k] ? attn_match_float(node, form->names[k], form->defaults[k])
                              : 0;
    put_unary(program, form->opcode, node, p[0], p[1]);
    return true;
}

static bool translate_gelu(struct program *program, const struct attn_node *node,
                           const struct form *form)
{
    const bool tanh = attn_match_string(node, "approximate", "tanh");
    put_unary(program, tanh ? FUSED_gelu_tanh : form->opcode, node, 0, 0);
    return true;
}

/* Add, …: one form since opset 7. Max, …: any number of operands, from left to right. */
static bool translate_binary(struct program *program, const struct attn_node *node,
                             const struct form *form)
{
    const int32_t n = node->pub.n_in;
    if (n < form->min_in || n > form->max_in ||
        (form->max_in == 2 && node->pub.opset < 7))
        return false;
    int64_t x = operand_of(program, node->in[0], true);
    for (int32_t in = 1; in < n; in++)
        x = put_code(program, form->opcode, x, operand_of(program, node->in[in], true),
                     0);
    return true;
}

static bool translate_mean(struct program *program, const struct attn_node *node,
                           const struct form *form)
{
    if (!translate_binary(program, node, form))
        return false;
    const int64_t sum = RESULT + program->n_code - 1;
    put_code(program, FUSED_div, sum, put_constant(program, (float)node->pub.n_in), 0);
    return true;
}

static bool translate_pow(struct program *program, const struct attn_node *node,
                          const struct form *form)
{
    double exponent;
    if (node->pub.opset < 7 || !attn_value_scalar(program->graph, node->in[1], &exponent))
        return false;
    int64_t x = operand_of(program, node->in[0], false);
    if (exponent == 2)
        put_code(program, form->opcode, x, x, 0);
    else if (exponent == 3)
        put_unary(program, FUSED_cube, node, 0, 0);
    else if (exponent == 0.5)
        put_unary(program, FUSED_pow_half, node, 0, 0);
    else
        return false;
    return true;
}

static bool clip_bound(const struct program *program, const struct attn_node *node,
                       int in, double *bound)
{
    return in >= node->pub.n_in || node->in[in] < 0 ||
           attn_value_scalar(program->graph, node->in[in], bound);
}

/* Bounds are attributes before opset 11, which are left alone. */
static bool translate_clip(struct program *program, const struct attn_node *node,
                           const struct form *form)
{
    double low = (double)-INFINITY, high = (double)INFINITY;
    if (node->pub.opset < 11 || !clip_bound(program, node, 1, &low) ||
        !clip_bound(program, node, 2, &high))
        return false;
    put_unary(program, form->opcode, node, (float)low, (float)high);
    return true;
}

static bool translate_where(struct program *program, const struct attn_node *node,
                            const struct form *form)
{
    const attnrun_type *type = &program->graph->values[node->in[0]].type;
    if (type->kind != ATTNRUN_TENSOR || type->dtype != ATTNRUN_BOOL)
        return false;
    int64_t condition = put_input(program, node->in[0]);
    int64_t a = operand_of(program, node->in[1], true);
    int64_t b = operand_of(program, node->in[2], true);
    put_code(program, form->opcode, condition, a, b);
    return true;
}

#define UNARY(op_type, opcode, ...)                                                      \
    { op_type, translate_unary, opcode, 0, 0, __VA_ARGS__ }
#define BINARY(op_type, opcode, max_in)                                                  \
    { op_type, translate_binary, opcode, 2, max_in, { NULL }, { 0 } }

static const struct form forms[] = {
    BINARY("Add", FUSED_add, 2),
    BINARY("Mul", FUSED_mul, 2),
    BINARY("Sub", FUSED_sub, 2),
    BINARY("Div", FUSED_div, 2),
    BINARY("PRelu", FUSED_prelu, 2),
    BINARY("Max", FUSED_max, 8),
    BINARY("Min", FUSED_min, 8),
    BINARY("Sum", FUSED_add, 8),
    { "Mean", translate_mean, FUSED_add, 2, 8, { NULL }, { 0 } },
    { "Gelu", translate_gelu, FUSED_gelu, 0, 0, { NULL }, { 0 } },
    { "Pow", translate_pow, FUSED_mul, 0, 0, { NULL }, { 0 } },
    { "Clip", translate_clip, FUSED_clip, 0, 0, { NULL }, { 0 } },
    { "Where", translate_where, FUSED_WHERE, 0, 0, { NULL }, { 0 } },
    UNARY("Abs", FUSED_abs, { NULL }, { 0 }),
    UNARY("Atan", FUSED_atan, { NULL }, { 0 }),
    UNARY("Ceil", FUSED_ceil, { NULL }, { 0 }),
    UNARY("Celu", FUSED_celu, { "alpha", NULL }, { 1, 0 }),
    UNARY("Cos", FUSED_cos, { NULL }, { 0 }),
    UNARY("Elu", FUSED_elu, { "alpha", NULL }, { 1, 0 }),
    UNARY("Erf", FUSED_erf, { NULL }, { 0 }),
    UNARY("Exp", FUSED_exp, { NULL }, { 0 }),
    UNARY("Floor", FUSED_floor, { NULL }, { 0 }),
    UNARY("HardSigmoid", FUSED_hard_sigmoid, { "alpha", "beta" }, { 0.2f, 0.5f }),
    UNARY("HardSwish", FUSED_hard_swish, { NULL }, { 0 }),
    UNARY("LeakyRelu", FUSED_leaky_relu, { "alpha", NULL }, { 0.01f, 0 }),
    UNARY("Log", FUSED_log, { NULL }, { 0 }),
    UNARY("Mish", FUSED_mish, { NULL }, { 0 }),
    UNARY("Neg", FUSED_neg, { NULL }, { 0 }),
    UNARY("Reciprocal", FUSED_reciprocal, { NULL }, { 0 }),
    UNARY("Relu", FUSED_relu, { NULL }, { 0 }),
    UNARY("Round", FUSED_round, { NULL }, { 0 }),
    UNARY("Sigmoid", FUSED_sigmoid, { NULL }, { 0 }),
    UNARY("Sign", FUSED_sign, { NULL }, { 0 }),
    UNARY("Sin", FUSED_sin, { NULL }, { 0 }),
    UNARY("Softplus", FUSED_softplus, { NULL }, { 0 }),
    UNARY("Softsign", FUSED_softsign, { NULL }, { 0 }),
    UNARY("Sqrt", FUSED_sqrt, { NULL }, { 0 }),
    UNARY("Swish", FUSED_swish, { "alpha", NULL }, { 1, 0 }),
    UNARY("Tan", FUSED_tan, { NULL }, { 0 }),
    UNARY("Tanh", FUSED_tanh, { NULL }, { 0 }),
    UNARY("ThresholdedRelu", FUSED_thresholded_relu, { "alpha", NULL }, { 1, 0 }),
};

static const struct form *form_of(const struct attn_node *node)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (node_is(node, forms[i].op_type))
            return &forms[i];
    return NULL;
}

static void translate(struct program *program, const struct attn_node *node)
{
    const struct form *form = form_of(node);
    if (form == NULL || node->pub.n_out != 1 ||
        !attn_match_is_f32(program->graph, node->out[0]) ||
        !form->translate(program, node, form))
        program->failed = true;
    if (!program->failed)
        program->result_of[program->n_code - 1] = node->out[0];
}

static bool translate_all(const struct attn_graph *graph, int32_t n,
                          struct attn_node *const *nodes, struct program *program)
{
    program->graph = graph;
    program->n_in = program->n_code = program->n_numbers = 0;
    program->failed = false;
    for (int32_t i = 0; i < n && !program->failed; i++)
        translate(program, nodes[i]);
    return !program->failed;
}

/* ---- the nodes of a chain ---- */

static bool is_member(const struct chain *chain, const struct attn_node *node)
{
    for (int32_t i = 0; i < chain->n_nodes; i++)
        if (chain->nodes[i] == node)
            return true;
    return false;
}

/* Whether only the chain's nodes read a value. */
static bool read_inside(const struct chain *chain, int32_t value)
{
    const struct attn_value *v = &chain->graph->values[value];
    for (const struct attn_use *use = v->uses; use != NULL; use = use->next)
        if (use->node == NULL || !is_member(chain, use->node))
            return false;
    return true;
}

/* What the chain reads once `node`, which alone is `program`, is one of its nodes: false where
 * that is more than a program has room for. No node of the chain gives what `node` reads: all
 * but the first are read inside the chain only, and the first comes last. */
static bool join_inputs(const struct chain *chain, const struct attn_node *node,
                        const struct program *program, struct chain *joined)
{
    joined->n_in = 0;
    for (int32_t i = 0; i < chain->n_in; i++)
        if (chain->in[i] != node->out[0])
            joined->in[joined->n_in++] = chain->in[i];
    for (int32_t i = 0; i < program->n_in; i++) {
        int32_t k = 0;
        while (k < joined->n_in && joined->in[k] != program->in[i])
            k++;
        if (k == FUSED_MAX_INPUTS)
            return false;
        joined->in[k] = program->in[i];
        joined->n_in += k == joined->n_in;
    }
    return true;
}

/* Whether the result has its rank without constants of one number, which are in the
 * program. */
static bool has_rank(const struct chain *chain, int32_t result)
{
    int32_t rank = -1;
    for (int32_t i = 0; i < chain->n_in; i++)
        if (chain->graph->values[chain->in[i]].type.rank > rank)
            rank = chain->graph->values[chain->in[i]].type.rank;
    return rank == chain->graph->values[result].type.rank;
}

/* Adds a node, if the program then has space and gives the same result. The node is
 * translated alone, because instructions and numbers of several nodes add up. */
static bool add_member(struct chain *chain, struct attn_node *node)
{
    struct program program;
    struct chain joined;
    const struct attn_node *root = chain->n_nodes > 0 ? chain->nodes[0] : node;
    if (!translate_all(chain->graph, 1, &node, &program) ||
        chain->n_code + program.n_code > FUSED_MAX_CODE ||
        chain->n_numbers + program.n_numbers > FUSED_MAX_NUMBERS)
        return false;
    joined.graph = chain->graph;
    if (!join_inputs(chain, node, &program, &joined) || !has_rank(&joined, root->out[0]))
        return false;
    memcpy(chain->in, joined.in, (size_t)joined.n_in * sizeof *joined.in);
    chain->n_in = joined.n_in;
    chain->n_code += program.n_code;
    chain->n_numbers += program.n_numbers;
    int32_t i = chain->n_nodes++;
    chain->nodes[i] = node;
    for (; i > 0 && chain->order[i - 1]->pub.index > node->pub.index; i--)
        chain->order[i] = chain->order[i - 1];
    chain->order[i] = node;
    return true;
}

/* Adds the producer of an operand, if it fits. */
static bool take_producer(struct chain *chain, int32_t value)
{
    struct attn_node *node = attn_graph_producer(chain->graph, value);
    return node != NULL && chain->n_nodes < FUSED_MAX_CODE && !is_member(chain, node) &&
           attn_match_same_shape(chain->graph, value, chain->nodes[0]->out[0]) &&
           read_inside(chain, value) && add_member(chain, node);
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

static attn_status make_node(struct chain *chain, struct program *program)
{
    struct attn_graph *graph = chain->graph;
    struct attn_pool *pool = &graph->model->pool;
    const int32_t n_words = program->n_code * FUSED_WORDS;
    for (int32_t i = 0; i < n_words; i++)
        if (i % FUSED_WORDS != 0 && program->code[i] >= RESULT)
            program->code[i] += program->n_in - RESULT;
    struct attn_attr attrs[] = {
        { .name = "code", .kind = ATTN_ATTR_INTS },
        { .name = "numbers", .kind = ATTN_ATTR_FLOATS },
    };
    attrs[0].ints.n = n_words;
    attrs[0].ints.v =
        attn_pool_copy(pool, program->code, n_words * (int64_t)sizeof *program->code);
    attrs[1].floats.n = program->n_numbers;
    attrs[1].floats.v = attn_pool_copy(pool, program->numbers,
                                       (program->n_numbers + 1) * (int64_t)sizeof(float));
    if (attrs[0].ints.v == NULL || attrs[1].floats.v == NULL)
        return ATTNRUN_E_MEMORY;
    struct attn_node *root = chain->nodes[0];
    struct attn_node *made;
    TRY(attn_match_make(graph, root, "attnrun.fused", "FusedElementwise", program->n_in,
                        program->in, root->out[0], 2, attrs, &made));
    attn_match_replace(graph, root->out[0], made);
    for (int32_t i = 0; i < chain->n_nodes; i++)
        attn_graph_remove(graph, chain->nodes[i]);
    return ATTNRUN_OK;
}

static attn_status run_elementwise_chain(struct attn_graph *graph, int32_t *applied)
{
    struct program program;
    for (int64_t n = graph->n_nodes - 1; n >= 0 && !attn_stops_node(n); n--) {
        struct chain chain = { .graph = graph };
        struct attn_node *root = graph->nodes[n];
        if (root == NULL || root->pub.n_out != 1 || root->out[0] < 0 ||
            !add_member(&chain, root))
            continue;
        grow(&chain);
        if (chain.n_nodes < 2 ||
            !translate_all(graph, chain.n_nodes, chain.order, &program))
            continue;
        TRY(make_node(&chain, &program));
        ++*applied;
    }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_elementwise_chain = { .name = "elementwise_chain",
                                                       .run = run_elementwise_chain,
                                                       .last = true };

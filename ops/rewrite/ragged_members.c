/* ragged_members.c - tests which nodes work on tokens one by one. ragged_pass.c has the
 * whole pass.
 *
 * In: a node of a graph and the dims of a batch. Out: whether each row (b, s, …) of its
 * output depends only on the rows (b, s, …) of its inputs, so that the node may run on
 * packed rows (1, n, …). */
#include "ragged_region.h"

/* The first dims are the batch and its tokens. */
static bool region_has_rows(const struct region *r, int32_t value)
{
    if (value < 0)
        return false;
    const attnrun_type *t = region_type(r, value);
    return t->kind == ATTNRUN_TENSOR && t->rank >= 2 && dim_equal(t->dims[0], r->batch) &&
           dim_equal(t->dims[1], r->tokens) && attnrun_dtype_bits(t->dtype) >= 8 &&
           t->dtype != ATTNRUN_STRING;
}

/* ---- kinds of nodes ---- */

static bool is_one_of(const struct attn_node *node, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (node_is(node, names[i]))
            return true;
    return false;
}
#define IS_ONE_OF(node, names) is_one_of(node, names, sizeof(names) / sizeof *(names))

static bool is_elementwise(const struct attn_node *node)
{
    static const char *const names[] = {
        "Abs",     "Add",         "And",       "Cast",       "Celu",      "Clip",
        "Div",     "Elu",         "Equal",     "Erf",        "Exp",       "Gelu",
        "Greater", "HardSigmoid", "HardSwish", "Identity",   "LeakyRelu", "Less",
        "Log",     "Max",         "Min",       "Mish",       "Mul",       "Neg",
        "Not",     "Or",          "Pow",       "Reciprocal", "Relu",      "Selu",
        "Sigmoid", "Sign",        "Softplus",  "Softsign",   "Sqrt",      "Sub",
        "Swish",   "Tanh",        "Where"
    };
    /* Before opset 7 operands were broadcast in another way. */
    return (node->pub.opset >= 7 && IS_ONE_OF(node, names)) ||
           node_is_of(node, "attnrun.fused", "FusedElementwise");
}

static bool ragged_is_norm(const struct attn_node *node)
{
    static const char *const names[] = { "LayerNormalization", "RMSNormalization",
                                         "SimplifiedLayerNormalization" };
    return IS_ONE_OF(node, names);
}

static bool is_skip_norm(const struct attn_node *node)
{
    return node_is_of(node, "com.microsoft", "SkipLayerNormalization") ||
           node_is_of(node, "com.microsoft", "SkipSimplifiedLayerNormalization");
}

static bool is_product(const struct attn_node *node)
{
    return node_is(node, "MatMul") || node_is_of(node, "attnrun.fused", "FusedMatMul") ||
           node_is_of(node, "com.microsoft", "MatMulNBits");
}

static bool is_constant(const struct region *r, const struct attn_node *node, int32_t in)
{
    return node->in[in] < 0 || match_is_constant(r->graph, node->in[in]);
}

/* ---- operands ---- */

/* Beside an output of rank `rank`, as broadcasting aligns it. */
static enum region_operand beside(const struct region *r, int32_t value, int32_t rank)
{
    const attnrun_type *t = region_type(r, value);
    if (t->kind != ATTNRUN_TENSOR || t->rank < 0 || t->rank > rank)
        return REGION_REFUSED;
    if (t->rank <= rank - 2)
        return REGION_AS_IS;
    if (t->rank == rank - 1)
        return dim_is(t->dims[0], 1) ? REGION_AS_IS : REGION_REFUSED;
    if (dim_is(t->dims[0], 1) && dim_is(t->dims[1], 1))
        return REGION_AS_IS;
    const bool fits = dim_is(t->dims[0], 1) || dim_equal(t->dims[0], r->batch);
    return fits && attnrun_dtype_bits(t->dtype) >= 8 && t->dtype != ATTNRUN_STRING
               ? REGION_PACKED
               : REGION_REFUSED;
}

enum region_operand attn_region_operand(const struct region *r,
                                        const struct attn_node *node, int32_t in)
{
    const int32_t value = node->in[in], rank = region_type(r, node->out[0])->rank;
    const bool product = is_product(node), gather = node_is(node, "Gather");
    if (value < 0)
        return REGION_AS_IS;
    if (region_is_attention(node))
        return in < REGION_MASK ? REGION_PACKED : REGION_AS_IS;
    if (is_elementwise(node) || (is_skip_norm(node) && in < 2) ||
        (product && in == 3 && region_type(r, value)->rank == rank))
        return beside(r, value, rank);
    const bool rows = gather ? in == 1 : in == 0;
    if (rows)
        return region_has_rows(r, value) ? REGION_PACKED : REGION_REFUSED;
    if (node_is(node, "Reshape")) /* its dims are written anew */
        return REGION_AS_IS;
    return is_constant(r, node, in) ? REGION_AS_IS : REGION_REFUSED;
}

/* ---- nodes ---- */

/* Behind the first two dims alone. */
static bool normalizes_last(const struct region *r, const struct attn_node *node)
{
    const int64_t axis = attn_match_int(node, "axis", -1);
    const int32_t rank = region_type(r, node->out[0])->rank;
    return rank >= 3 && (axis >= 2 || (axis < 0 && axis + rank >= 2));
}

static bool multiplies_rows(const struct region *r, const struct attn_node *node)
{
    const attnrun_type *x = region_type(r, node->in[0]);
    if (x->rank < 3 || x->rank != region_type(r, node->out[0])->rank ||
        attn_match_int(node, "transA", 0) != 0)
        return false;
    return node_is_of(node, "com.microsoft", "MatMulNBits") ||
           region_type(r, node->in[1])->rank == 2;
}

/* The dims behind the first two are constants: the Reshape is within a row. */
static bool reshapes_rows(const struct region *r, const struct attn_node *node)
{
    const attnrun_type *y = region_type(r, node->out[0]);
    for (int i = 2; i < y->rank; i++)
        if (!dim_is_const(y->dims[i]) || y->dims[i].value < 1)
            return false;
    return y->rank > 2 && region_type(r, node->in[0])->rank > 2;
}

static bool is_of_rows(const struct region *r, const struct attn_node *node)
{
    if (is_elementwise(node) || is_skip_norm(node))
        return true;
    if (ragged_is_norm(node))
        return normalizes_last(r, node);
    if (is_product(node))
        return multiplies_rows(r, node);
    if (node_is(node, "Gather"))
        return attn_match_int(node, "axis", 0) == 0;
    return node_is(node, "Reshape") && reshapes_rows(r, node);
}

bool attn_region_takes(const struct region *r, const struct attn_node *node)
{
    bool rows = false;
    if (node->n_graphs > 0 || node->pub.n_out < 1 || node->pub.n_in > REGION_MAX_IN ||
        !region_has_rows(r, node->out[0]))
        return false;
    for (int32_t o = 1; o < node->pub.n_out; o++)
        if (node->out[o] >= 0 && r->graph->values[node->out[o]].n_uses > 0)
            return false;
    if (!is_of_rows(r, node))
        return false;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const enum region_operand how = attn_region_operand(r, node, i);
        if (how == REGION_REFUSED)
            return false;
        rows = rows || (how == REGION_PACKED && region_has_rows(r, node->in[i]));
    }
    return rows;
}

/* ---- attention ---- */

/* The layout of operand 0 … 2, or 3: of the output. */
static int64_t region_layout(const struct region *r, const struct attn_node *node,
                             int which)
{
    const struct attn_attr *layouts = attn_node_attr(node, "layouts");
    if (layouts != NULL && layouts->ints.n == 4)
        return layouts->ints.v[which];
    return which == 3 && region_type(r, node->in[0])->rank == 3 ? REGION_JOINED : 0;
}

static bool is_by_token(const struct region *r, const struct attn_node *node, int which)
{
    const int32_t value = which == 3 ? node->out[0] : node->in[which];
    const int64_t layout = region_layout(r, node, which);
    const attnrun_type *t = region_type(r, value);
    if (!region_has_rows(r, value) || t->dtype != ATTNRUN_F32 ||
        !dim_is_const(t->dims[t->rank - 1]))
        return false;
    if (t->rank == 4)
        return layout == REGION_BY_TOKEN && dim_is_const(t->dims[2]);
    return t->rank == 3 && layout == (which == 3 ? REGION_JOINED : 0);
}

/* A mask of rank up to 4, (batch, heads, tokens, tokens) broadcast. */
static bool takes_mask(const struct region *r, const struct attn_node *node)
{
    if (attn_node_attr(node, "mask") != NULL)
        return true;
    const int32_t mask = node->pub.n_in > REGION_MASK ? node->in[REGION_MASK] : -1;
    if (mask < 0)
        return false;
    const attnrun_type *t = region_type(r, mask);
    return t->rank >= 1 && t->rank <= 4 && dim_equal(t->dims[t->rank - 1], r->tokens) &&
           (t->dtype == ATTNRUN_F32 || t->dtype == ATTNRUN_BOOL);
}

bool attn_region_attends(const struct region *r, const struct attn_node *node)
{
    for (int which = 0; which < 4; which++)
        if (!is_by_token(r, node, which))
            return false;
    for (int32_t in = REGION_MASK + 1; in < REGION_LEAVES && in < node->pub.n_in; in++)
        if (node->in[in] >= 0)
            return false;
    return takes_mask(r, node) && attn_match_int(node, "is_causal", 0) == 0 &&
           attn_match_int(node, "left_window_size", -1) < 0 &&
           attn_match_int(node, "right_window_size", -1) < 0 &&
           attn_match_int(node, "windows", 1) == 1 &&
           !(attn_match_float(node, "softcap", 0) > 0);
}

/* ---- the mask ---- */

bool attn_region_is_masked(const struct region *r, int32_t value)
{
    while (value != r->mask) {
        const struct attn_node *node = attn_graph_producer(r->graph, value);
        if (node == NULL || !region_has_rows(r, value) ||
            !(node_is(node, "Cast") || node_is(node, "Unsqueeze") ||
              attn_match_expands(r->graph, node) || node_is(node, "Identity")) ||
            !region_has_rows(r, node->in[0]))
            return false;
        value = node->in[0];
    }
    return true;
}

/* Ids of tokens are no mask. */
static bool is_index(const struct attn_graph *graph, int32_t value)
{
    for (const struct attn_use *use = graph->values[value].uses; use; use = use->next)
        if (use->node != NULL && use->inner == NULL && use->index == 1 &&
            node_is(use->node, "Gather"))
            return true;
    return false;
}

static bool may_be_mask(const struct attn_graph *graph, int32_t value,
                        const attnrun_type *q)
{
    const attnrun_type *t = &graph->values[value].type;
    return t->kind == ATTNRUN_TENSOR && t->rank == 2 &&
           (t->dtype == ATTNRUN_I64 || t->dtype == ATTNRUN_I32 ||
            t->dtype == ATTNRUN_BOOL) &&
           dim_equal(t->dims[0], q->dims[0]) && dim_equal(t->dims[1], q->dims[1]) &&
           !is_index(graph, value);
}

attn_status attn_region_find_mask(struct attn_graph *graph, const struct attn_node *node,
                                  int32_t *mask)
{
    const attnrun_type *q = &graph->values[node->in[0]].type;
    const int64_t n = graph->n_values;
    struct attn_pool pool;
    *mask = -1;
    if (q->rank < 3)
        return ATTNRUN_OK;
    attn_pool_init(&pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    uint8_t *seen = attn_pool_alloc(&pool, n);
    int32_t *stack = attn_pool_alloc(&pool, n * (int64_t)sizeof *stack);
    int64_t depth = 0;
    bool sole = true;
    for (int32_t i = REGION_MASK; seen && stack && i < node->pub.n_in; i++)
        if (node->in[i] >= 0 && !seen[node->in[i]]) {
            seen[node->in[i]] = 1;
            stack[depth++] = node->in[i];
        }
    while (depth > 0 && sole) {
        const int32_t value = stack[--depth];
        const struct attn_node *from = attn_graph_producer(graph, value);
        if (from == NULL && (graph->values[value].flags & ATTN_VALUE_INPUT)) {
            sole = *mask < 0 && may_be_mask(graph, value, q);
            *mask = value;
        }
        if (from == NULL || node_is(from, "Shape") || node_is(from, "Size"))
            continue; /* these read no element */
        for (int32_t i = 0; i < from->pub.n_in + from->n_captures; i++)
            if (from->in[i] >= 0 && !seen[from->in[i]]) {
                seen[from->in[i]] = 1;
                stack[depth++] = from->in[i];
            }
    }
    const bool out = seen == NULL || stack == NULL;
    attn_pool_free(&pool);
    *mask = sole ? *mask : -1;
    return out ? ATTNRUN_E_MEMORY : ATTNRUN_OK;
}

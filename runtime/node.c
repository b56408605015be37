/* node.c - a node meets its operator row.
 *
 * In: domain, name, opset, operands and attributes of a node as the file has them. Out: the
 * row with the largest `since` up to the opset, its args struct filled from attributes and
 * defaults, and operands whose number, kinds and element types the row allows. An attribute
 * that the row does not know is refused. */
#include "node.h"
#include "operator.h"

#include <stdio.h>
#include <stdlib.h>

#include "step.h"

/* ---- attributes ---- */

static const char *const kind_names[] = {
    "nothing", "a float",         "an int",         "a string", "a tensor",
    "a graph", "floats",          "ints",           "strings",  "tensors",
    "graphs",  "a sparse tensor", "sparse tensors", "a type",   "types",
};

static attn_status wrong_kind(const struct attn_node *node, const struct attn_attr *attr,
                              const char *expected)
{
    return attn_fail_node(
        ATTNRUN_E_ATTR, &node->pub, "attribute '%s' is %s, expected %s",
        attn_quote(attr->name),
        attr->kind >= 0 && attr->kind <= 14 ? kind_names[attr->kind] : "?", expected);
}

static attn_status parse_enum(const struct attn_node *node, const attnrun_attr_def *def,
                              const struct attn_attr *attr, int32_t *value)
{
    if (attr->kind != ATTN_ATTR_STRING)
        return wrong_kind(node, attr, "a string");
    const char *word = def->text;
    /* Some exporters write an empty text for what is not set. */
    if (attr->s.n == 0 && strncmp(word, "NOTSET|", 7) == 0) {
        *value = 0;
        return ATTNRUN_OK;
    }
    for (int32_t index = 0; word != NULL; index++) {
        size_t length = strcspn(word, "|");
        if ((int64_t)length == attr->s.n && memcmp(word, attr->s.data, length) == 0) {
            *value = index;
            return ATTNRUN_OK;
        }
        word = word[length] == '|' ? word + length + 1 : NULL;
    }
    return attn_fail_node(ATTNRUN_E_ATTR, &node->pub,
                          "attribute '%s' is '%s', expected one of %s", def->name,
                          attn_quote(attr->s.data), def->text);
}

/* Whether `text`, like "0..3" or "1 10 11 16", lists the value. */
static bool is_listed(const char *text, int64_t value)
{
    while (*text != 0) {
        char *end;
        int64_t low = strtoll(text, &end, 10), high = low;
        if (strncmp(end, "..", 2) == 0)
            high = strtoll(end + 2, &end, 10);
        if (value >= low && value <= high)
            return true;
        if (end == text)
            return false;
        text = end + strspn(end, " ");
    }
    return false;
}

/* "0..1" and "1 10 11" as words: "0 or 1", "1, 10 or 11". */
static const char *list_words(const char *text, char *words, size_t bytes)
{
    size_t n = 0;
    words[0] = 0;
    while (*text != 0 && n + 24 < bytes) {
        char *end;
        long long low = strtoll(text, &end, 10), high = low;
        bool range = strncmp(end, "..", 2) == 0;
        if (range)
            high = strtoll(end + 2, &end, 10);
        if (end == text)
            break;
        text = end + strspn(end, " ");
        const char *between = n == 0 ? "" : *text != 0 ? ", " : " or ";
        n += (size_t)snprintf(words + n, bytes - n, "%s%lld", between, low);
        if (range && n < bytes)
            n += (size_t)snprintf(words + n, bytes - n,
                                  high == low + 1 ? " or %lld" : " to %lld", high);
    }
    return words;
}

static attn_status check_listed(const struct attn_node *node, const attnrun_attr_def *def,
                                int64_t n, const int64_t *values)
{
    for (int64_t i = 0; def->text != NULL && i < n; i++)
        if (!is_listed(def->text, values[i])) {
            char words[160];
            return attn_fail_node(ATTNRUN_E_ATTR, &node->pub,
                                  "attribute '%s' is %lld, expected %s", def->name,
                                  (long long)values[i],
                                  list_words(def->text, words, sizeof words));
        }
    return ATTNRUN_OK;
}

static attn_status parse_attr(const struct attn_node *node, const attnrun_attr_def *def,
                              const struct attn_attr *attr, void *member)
{
    static const struct {
        int32_t kind;
        const char *expected;
    } wanted[] = {
        [ATTNRUN_ATTR_INT] = { ATTN_ATTR_INT, "an int" },
        [ATTNRUN_ATTR_FLOAT] = { ATTN_ATTR_FLOAT, "a float" },
        [ATTNRUN_ATTR_STRING] = { ATTN_ATTR_STRING, "a string" },
        [ATTNRUN_ATTR_ENUM] = { ATTN_ATTR_STRING, "a string" },
        [ATTNRUN_ATTR_INTS] = { ATTN_ATTR_INTS, "ints" },
        [ATTNRUN_ATTR_FLOATS] = { ATTN_ATTR_FLOATS, "floats" },
        [ATTNRUN_ATTR_STRINGS] = { ATTN_ATTR_STRINGS, "strings" },
        [ATTNRUN_ATTR_TENSOR] = { ATTN_ATTR_TENSOR, "a tensor" },
        [ATTNRUN_ATTR_GRAPH] = { ATTN_ATTR_GRAPH, "a graph" },
        [ATTNRUN_ATTR_TYPE] = { ATTN_ATTR_TYPE_PROTO, "a type" },
    };
    if (def->kind == ATTNRUN_ATTR_IGNORED)
        return ATTNRUN_OK;
    bool dense_sparse =
        def->kind == ATTNRUN_ATTR_TENSOR && attr->kind == ATTN_ATTR_SPARSE_TENSOR;
    if (attr->kind != wanted[def->kind].kind && !dense_sparse)
        return wrong_kind(node, attr, wanted[def->kind].expected);
    switch (def->kind) {
    case ATTNRUN_ATTR_INT:
        *(int64_t *)member = attr->i;
        return check_listed(node, def, 1, &attr->i);
    case ATTNRUN_ATTR_FLOAT:
        *(float *)member = attr->f;
        break;
    case ATTNRUN_ATTR_STRING:
        *(attnrun_string *)member = attr->s;
        break;
    case ATTNRUN_ATTR_ENUM:
        return parse_enum(node, def, attr, member);
    case ATTNRUN_ATTR_INTS:
        *(attnrun_ints *)member = attr->ints;
        return check_listed(node, def, attr->ints.n, attr->ints.v);
    case ATTNRUN_ATTR_FLOATS:
        *(attnrun_floats *)member = attr->floats;
        break;
    case ATTNRUN_ATTR_STRINGS:
        *(attnrun_strings *)member = attr->strings;
        break;
    case ATTNRUN_ATTR_TENSOR:
        *(attnrun_tensor *)member = attr->tensor;
        break;
    case ATTNRUN_ATTR_GRAPH:
        *(int32_t *)member = attr->graph;
        break;
    default:
        *(attnrun_type *)member = attr->type;
        break;
    }
    return ATTNRUN_OK;
}

static void set_default(const attnrun_attr_def *def, void *member)
{
    switch (def->kind) {
    case ATTNRUN_ATTR_INT:
        *(int64_t *)member = def->int_default;
        break;
    case ATTNRUN_ATTR_ENUM:
        *(int32_t *)member = (int32_t)def->int_default;
        break;
    case ATTNRUN_ATTR_FLOAT:
        *(float *)member = def->float_default;
        break;
    case ATTNRUN_ATTR_STRING:
        if (def->text != NULL)
            *(attnrun_string *)member =
                (attnrun_string){ def->text, (int64_t)strlen(def->text) };
        break;
    case ATTNRUN_ATTR_GRAPH:
        *(int32_t *)member = -1;
        break;
    default: /* zero: absent */
        break;
    }
}

static const attnrun_attr_def *find_def(const attnrun_op_def *op, const char *name)
{
    for (const attnrun_attr_def *d = op->attrs; d != NULL && d->kind != ATTNRUN_ATTR_END;
         d++)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

static attn_status unknown_attr(const struct attn_node *node, const char *name)
{
    enum { MAX = 64 };
    const attnrun_op_def *op = node->pub.op;
    const char *names[MAX];
    int n = 0;
    for (const attnrun_attr_def *d = op->attrs;
         d != NULL && d->kind != ATTNRUN_ATTR_END && n < MAX; d++)
        names[n++] = d->name;
    attn_fail_node(ATTNRUN_E_ATTR, &node->pub, "%s-%d has no attribute '%s'", op->name,
                   op->since, attn_quote(name));
    attn_suggest(name, names, n);
    return ATTNRUN_E_ATTR;
}

static attn_status refuse_unknown(const struct attn_node *node)
{
    for (int32_t i = 0; i < node->n_attrs; i++) {
        const char *name = node->attrs[i].name;
        if (find_def(node->pub.op, name) == NULL && strcmp(name, "consumed_inputs") != 0)
            return unknown_attr(node, name);
    }
    return ATTNRUN_OK;
}

static attn_status parse_attrs(struct attn_graph *graph, struct attn_node *node)
{
    const attnrun_op_def *op = node->pub.op;
    char *args =
        attn_pool_alloc(&graph->model->pool, op->args_bytes > 0 ? op->args_bytes : 1);
    if (args == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(refuse_unknown(node)); /* first: a misspelt name leaves another one missing */
    for (const attnrun_attr_def *d = op->attrs; d != NULL && d->kind != ATTNRUN_ATTR_END;
         d++) {
        const struct attn_attr *attr = attn_node_attr(node, d->name);
        if (attr != NULL)
            TRY(parse_attr(node, d, attr, args + d->offset));
        else if (d->flags & ATTNRUN_ATTR_REQUIRED)
            return attn_fail_node(ATTNRUN_E_ATTR, &node->pub,
                                  "attribute '%s' is required and missing", d->name);
        else if (d->kind != ATTNRUN_ATTR_IGNORED)
            set_default(d, args + d->offset);
    }
    node->pub.args = args;
    return ATTNRUN_OK;
}

/* ---- arity ---- */

static attn_status check_arity(const struct attn_node *node)
{
    const attnrun_op_def *op = node->pub.op;
    const struct attn_row *row = node->row;
    bool variadic = row_is_variadic(row->in, row->n_in);
    if (node->pub.n_in > row->n_in && !variadic)
        return attn_fail_node(
            ATTNRUN_E_MODEL, &node->pub, "it has %s, but %s-%d takes %d",
            attn_plural(node->pub.n_in, "input"), op->name, op->since, row->n_in);
    for (int32_t i = 0; i < row->n_in; i++) {
        bool given = i < node->pub.n_in && node->in[i] >= 0;
        if (!given && !row->in[i].optional)
            return attn_fail_node(ATTNRUN_E_MODEL, &node->pub, "input %d '%s' is missing",
                                  i, row->in[i].name);
    }
    for (int32_t i = row->n_in - 1; variadic && i < node->pub.n_in; i++)
        if (node->in[i] < 0)
            return attn_fail_node(ATTNRUN_E_MODEL, &node->pub,
                                  "input %d is missing, but a later one is given", i);
    if (node->pub.n_out > row->n_out && !row_is_variadic(row->out, row->n_out))
        return attn_fail_node(
            ATTNRUN_E_MODEL, &node->pub, "it has %s, but %s-%d gives %d",
            attn_plural(node->pub.n_out, "output"), op->name, op->since, row->n_out);
    return ATTNRUN_OK;
}

/* Makes room for outputs up to the last that is not optional, though the file names fewer. */
static attn_status extend_outputs(struct attn_graph *graph, struct attn_node *node)
{
    int32_t n = node->row->n_out, old = node->pub.n_out;
    while (n > old && node->row->out[n - 1].optional)
        n--;
    if (n <= old)
        return ATTNRUN_OK;
    struct attn_pool *pool = &graph->model->pool;
    int32_t *out = attn_pool_alloc(pool, n * (int64_t)sizeof *out);
    const char **names = attn_pool_alloc(pool, n * (int64_t)sizeof *names);
    if (out == NULL || names == NULL)
        return ATTNRUN_E_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        out[i] = i < old ? node->out[i] : -1;
        names[i] = i < old ? node->pub.outputs[i] : "";
    }
    node->out = out;
    node->pub.outputs = names;
    node->pub.n_out = n;
    return ATTNRUN_OK;
}

/* An output that is not optional is written even where the file gives it no name: operators
 * need not look. */
static attn_status add_outputs(struct attn_graph *graph, struct attn_node *node)
{
    TRY(extend_outputs(graph, node));
    for (int32_t i = 0; i < node->pub.n_out; i++) {
        const struct attn_operand *operand =
            row_operand(node->row->out, node->row->n_out, i);
        if (node->out[i] < 0 && operand != NULL && !operand->optional)
            TRY(attn_graph_add_value(graph, NULL, &node->out[i]));
    }
    return ATTNRUN_OK;
}

static int64_t opset_of(const struct attn_model *model, const char *domain)
{
    for (int32_t i = 0; i < model->n_opsets; i++)
        if (strcmp(model->opsets[i].domain, domain) == 0)
            return model->opsets[i].version;
    return domain[0] == 0 ? INT32_MAX : 1;
}

static attn_status fail_missing(const struct attn_node *node)
{
    attn_fail_node(ATTNRUN_E_UNSUPPORTED, &node->pub,
                   "there is no operator %s%s%s for opset %d",
                   attn_quote(node->pub.domain), node->pub.domain[0] ? "." : "",
                   attn_quote(node->pub.op_type), node->pub.opset);
    if (attn_ops_listed)
        attn_hint("%s", ATTN_LISTED_HINT);
    return ATTNRUN_E_UNSUPPORTED;
}

attn_status attn_node_resolve(struct attn_graph *graph, struct attn_node *node)
{
    struct attn_model *model = graph->model;
    if (node->pub.opset <= 0)
        node->pub.opset = (int32_t)opset_of(model, node->pub.domain);
    struct attn_operator *found =
        attn_operator_find(model, node->pub.domain, node->pub.op_type, node->pub.opset);
    if (found == NULL)
        return ATTNRUN_E_MEMORY;
    node->pub.op = node->internal ? found->built_in : found->op;
    node->built_in = node->pub.op == found->built_in;
    if (node->pub.op == NULL)
        return fail_missing(node);
    if (node->built_in && !found->noted)
        attn_runtime_note_op(model->runtime, found->built_in);
    found->noted |= node->built_in;
    node->row = attn_row_read(&model->rows, &model->pool, node->pub.op);
    if (node->row == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(check_arity(node));
    TRY(add_outputs(graph, node));
    return parse_attrs(graph, node);
}

/* ---- element types ---- */

enum { MAX_TYPE_VARIABLES = 12 };
struct type_variables {
    struct {
        char type_variable[16];
        int32_t dtype;
        int in; /* the first input of it */
        bool promoted;
    } seen[MAX_TYPE_VARIABLES];
    int n;
};

static int find_type_variable(struct type_variables *type_variables,
                              const char *type_variable)
{
    for (int i = 0; i < type_variables->n; i++)
        if (strcmp(type_variables->seen[i].type_variable, type_variable) == 0)
            return i;
    return -1;
}

static bool may_promote(const attnrun_op_def *op, int32_t dtype, uint32_t dtypes)
{
    return attn_dtype_is_narrow(dtype) && dtype_in(ATTNRUN_F32, dtypes) &&
           !(op->flags & ATTNRUN_OP_NO_PROMOTION);
}

/* A constant that its operator reads in 16 bits beside operands in f32: so since the region
 * around it was promoted. */
static bool is_stored(const attnrun_step *step, int in)
{
    const int32_t dtype = step->in[in].dtype;
    return step_of(step)->graph->promoted && in < 32 &&
           (step->node->op->storage_in >> in & 1) && attn_dtype_is_narrow(dtype) &&
           step->x[in].data != NULL && in > 0 && step->in[0].dtype == ATTNRUN_F32;
}

static attn_status check_input(const attnrun_step *step, int in,
                               struct type_variables *type_variables, bool *promote)
{
    const attnrun_op_def *op = step->node->op;
    const attnrun_type *type = &step->in[in];
    static const char *const kinds[] = {
        "", "tensor", "sequence", "optional", "optional", "map", "sequence of maps",
    };
    const struct attn_row *row = step_of(step)->node->row;
    const struct attn_operand *operand = row_operand(row->in, row->n_in, in);
    *promote = false;
    if (operand->kind == ROW_ANY || type->kind == ATTNRUN_ABSENT)
        return ATTNRUN_OK;
    bool optional =
        operand->kind == ATTNRUN_OPTIONAL &&
        (type->kind == ATTNRUN_OPTIONAL_SEQUENCE || type->kind == ATTNRUN_TENSOR);
    if (type->kind != operand->kind && !optional)
        return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected a %s",
                             kinds[operand->kind]);
    if (type->dtype == 0 || is_stored(step, in))
        return ATTNRUN_OK;
    if (!dtype_in(type->dtype, operand->dtypes)) {
        if (!may_promote(op, type->dtype, operand->dtypes))
            return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected %s",
                                 attn_dtype_set_names(operand->dtypes));
        *promote = true;
    }
    if (operand->type_variable[0] == 0 || operand->mixed)
        return ATTNRUN_OK;
    int i = find_type_variable(type_variables, operand->type_variable);
    if (i >= 0 && type_variables->seen[i].dtype != type->dtype)
        return op_fail_input(
            step, in, ATTNRUN_E_DTYPE, "expected %s, as input %d '%s' is",
            attnrun_dtype_name(type_variables->seen[i].dtype), type_variables->seen[i].in,
            attn_quote(step->node->inputs[type_variables->seen[i].in]));
    if (i < 0 && type_variables->n < MAX_TYPE_VARIABLES) {
        i = type_variables->n++;
        memcpy(type_variables->seen[i].type_variable, operand->type_variable,
               sizeof operand->type_variable);
        type_variables->seen[i].dtype = type->dtype;
        type_variables->seen[i].in = in;
        type_variables->seen[i].promoted = *promote;
    }
    return ATTNRUN_OK;
}

attn_status attn_node_check_types(const attnrun_step *step,
                                  struct attn_promotion *promotion)
{
    const attnrun_op_def *op = step->node->op;
    const struct attn_row *row = step_of(step)->node->row;
    struct type_variables type_variables = { .n = 0 };
    memset(promotion, 0, sizeof *promotion);
    for (int i = 0; i < step->n_in; i++) {
        bool promote;
        TRY(check_input(step, i, &type_variables, &promote));
        if (promote)
            promotion->inputs |= UINT64_C(1) << (i < 63 ? i : 63);
    }
    for (int i = 0; promotion->inputs != 0 && i < step->n_out && i < 64; i++) {
        const struct attn_operand *operand = row_operand(row->out, row->n_out, i);
        const uint64_t bit = UINT64_C(1) << i;
        if (operand == NULL || operand->type_variable[0] == 0)
            continue;
        const int v = find_type_variable(&type_variables, operand->type_variable);
        if (v < 0 && may_promote(op, ATTNRUN_F16, operand->dtypes))
            promotion->open |= bit;
        if (v < 0 || !type_variables.seen[v].promoted)
            continue;
        promotion->outputs |= bit;
        if (type_variables.seen[v].dtype == ATTNRUN_BF16)
            promotion->bf16 |= bit;
    }
    return ATTNRUN_OK;
}

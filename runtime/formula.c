/* formula.c - reads formulas: the text that expand() of an operator row writes.
 *
 * In: text such as "d = X - mean; Y = d / Sqrt(ReduceMean(d * d, axes))" (attnrun.h has the
 * grammar), and the names of body.c. Out: a node for each operator and each call.
 *
 * Formulas are read by operator precedence with two stacks, so there is no recursion. They are
 * text of operator rows: what is malformed is a bug of the row, and fails as such. */
#include <stdlib.h>

#include "body.h"
#include "poll.h"

enum { MAX_STACK = 24, MAX_INTS = 16 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* A parenthesis that is open, with the call that it belongs to or NULL; or an operator. */
struct pending {
    char sign; /* '(' + - * / or NEGATE */
    struct body_call *call;
    int first_value; /* '(': on the stack of values */
};
enum { NEGATE = '~' };

struct formula {
    struct attnrun_body *body;
    const char *text, *at;
    int32_t values[MAX_STACK];
    struct pending pending[MAX_STACK];
    int n_values, n_pending;
    char targets[BODY_MAX_OUTPUTS][BODY_NAME_BYTES];
    int32_t n_targets;
    struct attn_node *made; /* the node that was written last */
};

static attn_status fail(const struct formula *f, const char *what)
{
    return attn_fail_node(ATTNRUN_E_INTERNAL, &f->body->call->pub,
                          "its formula '%s' is malformed at '%.20s': %s", f->text, f->at,
                          what);
}

static void skip_blanks(struct formula *f)
{
    while (*f->at == ' ')
        f->at++;
}

/* Takes the character, where it is the next one. */
static bool take(struct formula *f, char c)
{
    skip_blanks(f);
    if (*f->at != c)
        return false;
    f->at++;
    return true;
}

/* A name; with `dots`, that of an operator with its domain. */
static attn_status take_name(struct formula *f, bool dots, char name[BODY_NAME_BYTES])
{
    int n = 0;
    skip_blanks(f);
    while (n < BODY_NAME_BYTES - 1 && (is_letter(*f->at) || (n > 0 && is_digit(*f->at)) ||
                                       (n > 0 && dots && *f->at == '.')))
        name[n++] = *f->at++;
    name[n] = 0;
    return n > 0 && n < BODY_NAME_BYTES - 1 ? ATTNRUN_OK : fail(f, "expected a name");
}

static attn_status take_int(struct formula *f, int64_t *value)
{
    char *end;
    skip_blanks(f);
    *value = strtoll(f->at, &end, 10);
    if (end == f->at)
        return fail(f, "expected a whole number");
    f->at = end;
    return ATTNRUN_OK;
}

/* [1,2] */
static attn_status take_list(struct formula *f, int64_t values[MAX_INTS], int64_t *n)
{
    *n = 0;
    if (!take(f, '['))
        return fail(f, "expected a list");
    while (!take(f, ']')) {
        if (*n == MAX_INTS)
            return fail(f, "the list is too long");
        TRY(take_int(f, &values[(*n)++]));
        take(f, ',');
    }
    return ATTNRUN_OK;
}

static attn_status push_value(struct formula *f, int32_t value)
{
    if (f->n_values == MAX_STACK)
        return fail(f, "it is nested too deep");
    f->values[f->n_values++] = value;
    return ATTNRUN_OK;
}

static attn_status push_pending(struct formula *f, char sign, struct body_call *call)
{
    if (f->n_pending == MAX_STACK)
        return fail(f, "it is nested too deep");
    f->pending[f->n_pending++] = (struct pending){ sign, call, f->n_values };
    return ATTNRUN_OK;
}

/* ---- calls and their attributes ---- */

static attn_status take_text(struct formula *f, attnrun_string *text)
{
    const char *end = strchr(++f->at, '"');
    if (end == NULL)
        return fail(f, "the string is not terminated");
    char *copy = attn_pool_alloc(&f->body->graph->model->pool, end - f->at + 1);
    if (copy == NULL)
        return ATTNRUN_E_MEMORY;
    memcpy(copy, f->at, (size_t)(end - f->at));
    *text = (attnrun_string){ copy, end - f->at };
    f->at = end + 1;
    return ATTNRUN_OK;
}

/* The kind that the row of the call has for it. */
static int32_t attr_kind(const struct formula *f, const struct body_call *call,
                         const char *name)
{
    const attnrun_op_def *op = attn_runtime_find_op(
        f->body->graph->model->runtime, call->domain, call->op_type, call->opset);
    for (const attnrun_attr_def *d = op != NULL ? op->attrs : NULL;
         d != NULL && d->kind != ATTNRUN_ATTR_END; d++)
        if (strcmp(d->name, name) == 0)
            return d->kind;
    return ATTNRUN_ATTR_IGNORED;
}

static attn_status set_ints(struct formula *f, bool one, int64_t n, const int64_t *values,
                            struct attn_attr *attr)
{
    attr->kind = one ? ATTN_ATTR_INT : ATTN_ATTR_INTS;
    if (one && n != 1)
        return fail(f, "expected one number");
    if (one) {
        attr->i = values[0];
        return ATTNRUN_OK;
    }
    int64_t *copy = attn_pool_copy(&f->body->graph->model->pool, values,
                                   (n + 1) * (int64_t)sizeof *values);
    attr->ints = (attnrun_ints){ copy, n };
    return copy != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status take_attr_value(struct formula *f, int32_t kind,
                                   struct attn_attr *attr)
{
    int64_t values[MAX_INTS + 1] = { 0 }, n = 1;
    char word[BODY_NAME_BYTES];
    skip_blanks(f);
    if (*f->at == '"') {
        attr->kind = ATTN_ATTR_STRING;
        return take_text(f, &attr->s);
    }
    if (is_letter(*f->at)) {
        TRY(take_name(f, false, word));
        const struct body_name *name = attn_body_find(f->body, word);
        if (name == NULL || (name->kind != BODY_INTS && name->kind != BODY_NUMBER))
            return fail(f, "the name is neither a number nor a list");
        if (name->kind == BODY_INTS && (name->n < 0 || name->n > MAX_INTS))
            return fail(f, "the list is too long");
        if (name->kind == BODY_INTS && name->n > 0)
            memcpy(values, name->ints, (size_t)name->n * sizeof *values);
        if (name->kind == BODY_INTS)
            return set_ints(f, kind == ATTNRUN_ATTR_INT, name->n, values, attr);
        attr->kind = ATTN_ATTR_FLOAT;
        attr->f = (float)name->number;
        return ATTNRUN_OK;
    }
    TRY(*f->at == '[' ? take_list(f, values, &n) : take_int(f, values));
    if (kind != ATTNRUN_ATTR_FLOAT)
        return set_ints(f, kind == ATTNRUN_ATTR_INT, n, values, attr);
    attr->kind = ATTN_ATTR_FLOAT;
    attr->f = (float)values[0];
    return ATTNRUN_OK;
}

/* <axis=1, alpha=alpha> */
static attn_status take_attrs(struct formula *f, struct body_call *call)
{
    char name[BODY_NAME_BYTES];
    while (!take(f, '>')) {
        struct attn_attr *attr = &call->attrs[call->n_attrs];
        if (call->n_attrs++ == BODY_MAX_ATTRS)
            return fail(f, "there are too many attributes");
        TRY(take_name(f, false, name));
        *attr = (struct attn_attr){ .graph = -1, .type = { .rank = -1 } };
        attr->name = attn_pool_string(&f->body->graph->model->pool, name);
        if (attr->name == NULL)
            return ATTNRUN_E_MEMORY;
        if (!take(f, '='))
            return fail(f, "expected '='");
        TRY(take_attr_value(f, attr_kind(f, call, name), attr));
        take(f, ',');
    }
    return ATTNRUN_OK;
}

/* "domain.Op" */
static attn_status begin_call(struct formula *f, const char *name)
{
    const char *dot = strrchr(name, '.');
    struct body_call *call = attn_pool_alloc(f->body->scratch, (int64_t)sizeof *call);
    if (call == NULL)
        return ATTNRUN_E_MEMORY;
    call->op_type = attn_pool_string(f->body->scratch, dot != NULL ? dot + 1 : name);
    call->domain =
        attn_pool_printf(f->body->scratch, "%.*s", dot ? (int)(dot - name) : 0, name);
    if (call->op_type == NULL || call->domain == NULL)
        return ATTNRUN_E_MEMORY;
    call->opset = attn_body_opset(f->body, call->domain);
    if (take(f, '<'))
        TRY(take_attrs(f, call));
    return take(f, '(') ? push_pending(f, '(', call) : fail(f, "expected '('");
}

/* ---- operands ---- */

static attn_status push_named(struct formula *f, const char *word)
{
    struct body_name *name = attn_body_find(f->body, word);
    if (name == NULL || name->kind == BODY_OUTPUT)
        return fail(f, "the name before it has no value");
    if (name->kind == BODY_NUMBER && name->value < 0)
        TRY(attn_body_number(f->body, name->dtype, name->number, &name->value));
    if (name->kind == BODY_INTS && name->value < 0)
        TRY(attn_body_list(f->body, name->n, name->ints, &name->value));
    return push_value(f, name->value);
}

/* *more: what was taken is only the beginning of an operand. */
static attn_status take_operand(struct formula *f, bool *more)
{
    int64_t values[MAX_INTS], n;
    int32_t id;
    char name[BODY_NAME_BYTES];
    skip_blanks(f);
    *more = *f->at == '-' || *f->at == '(';
    if (take(f, '-'))
        return push_pending(f, NEGATE, NULL);
    if (take(f, '('))
        return push_pending(f, '(', NULL);
    if (*f->at == '[') {
        TRY(take_list(f, values, &n));
        TRY(attn_body_list(f->body, n, values, &id));
        return push_value(f, id);
    }
    if (is_digit(*f->at)) {
        TRY(take_int(f, &n));
        TRY(attn_body_number(f->body, f->body->dtype, (double)n, &id));
        return push_value(f, id);
    }
    TRY(take_name(f, true, name));
    skip_blanks(f);
    *more = *f->at == '(' || *f->at == '<';
    return *more ? begin_call(f, name) : push_named(f, name);
}

/* ---- operators ---- */

static int precedence(char sign)
{
    return sign == '(' ? 0 : sign == '+' || sign == '-' ? 1 : sign == NEGATE ? 3 : 2;
}

static attn_status apply(struct formula *f, const struct body_call *call, int n_in,
                         int32_t n_out)
{
    f->n_values -= n_in;
    TRY(attn_body_node(f->body, call, n_in, f->values + f->n_values, n_out, &f->made));
    return push_value(f, f->made->out[0]);
}

/* Applies the operators that bind at least as strongly as `min`. */
static attn_status apply_pending(struct formula *f, int min)
{
    while (f->n_pending > 0 && precedence(f->pending[f->n_pending - 1].sign) >= min) {
        const char sign = f->pending[--f->n_pending].sign;
        const struct body_call call = { .domain = "",
                                        .op_type = sign == '+'   ? "Add"
                                                   : sign == '-' ? "Sub"
                                                   : sign == '*' ? "Mul"
                                                   : sign == '/' ? "Div"
                                                                 : "Neg",
                                        .opset = ATTN_NEWEST_OPSET };
        TRY(apply(f, &call, sign == NEGATE ? 1 : 2, 1));
    }
    return ATTNRUN_OK;
}

static bool is_end(struct formula *f)
{
    skip_blanks(f);
    return *f->at == 0 || *f->at == ';';
}

static attn_status close_parenthesis(struct formula *f)
{
    TRY(apply_pending(f, 1));
    if (f->n_pending == 0)
        return fail(f, "nothing is open");
    const struct pending open = f->pending[--f->n_pending];
    if (open.call == NULL)
        return ATTNRUN_OK;
    const bool whole = f->n_pending == 0 && is_end(f);
    return apply(f, open.call, f->n_values - open.first_value, whole ? f->n_targets : 1);
}

/* What follows an operand. *done: the formula ends. */
static attn_status take_operator(struct formula *f, bool *operand_next, bool *done)
{
    *done = is_end(f);
    *operand_next = false;
    if (*done) {
        TRY(apply_pending(f, 1));
        return f->n_pending == 0 && f->n_values == 1 ? ATTNRUN_OK
                                                     : fail(f, "a ')' is missing");
    }
    if (take(f, ')'))
        return close_parenthesis(f);
    const char sign = *f->at++;
    *operand_next = true;
    if (sign == ',') {
        TRY(apply_pending(f, 1));
        return f->n_pending > 0 && f->pending[f->n_pending - 1].call != NULL
                   ? ATTNRUN_OK
                   : fail(f, "a ',' outside of a call");
    }
    if (sign != '+' && sign != '-' && sign != '*' && sign != '/')
        return fail(f, "expected an operator");
    TRY(apply_pending(f, precedence(sign)));
    return push_pending(f, sign, NULL);
}

/* ---- statements ---- */

/* Result `k` of the formula becomes what its target names. */
static attn_status assign(struct formula *f, int32_t k, int32_t value)
{
    struct attnrun_body *body = f->body;
    const struct body_name *name = attn_body_find(body, f->targets[k]);
    int32_t wanted = -1;
    if (name != NULL && name->kind == BODY_OUTPUT && name->out >= 0 &&
        name->out < body->call->pub.n_out)
        wanted = body->call->out[name->out];
    if (wanted >= 0) {
        const struct body_call identity = { .domain = "",
                                            .op_type = "Identity",
                                            .opset = ATTN_NEWEST_OPSET };
        struct attn_node *node = f->made;
        if (node == NULL || node->out[k] != value) /* an operand or a constant as it is */
            TRY(attn_body_node(body, &identity, 1, &value, 1, &node));
        attn_node_set_output(body->graph, node, node == f->made ? k : 0, wanted);
        value = wanted;
    }
    attn_body_set(body, f->targets[k],
                  (struct body_name){ .kind = BODY_VALUE, .value = value });
    return body->status;
}

static attn_status take_statement(struct formula *f)
{
    bool operand_next = true, done = false;
    f->n_values = f->n_pending = f->n_targets = 0;
    f->made = NULL;
    do {
        if (f->n_targets == BODY_MAX_OUTPUTS)
            return fail(f, "there are too many names");
        TRY(take_name(f, false, f->targets[f->n_targets++]));
    } while (take(f, ','));
    if (!take(f, '='))
        return fail(f, "expected '='");
    while (!done)
        TRY(operand_next ? take_operand(f, &operand_next)
                         : take_operator(f, &operand_next, &done));
    if (f->n_targets > 1 && (f->made == NULL || f->made->pub.n_out < f->n_targets))
        return fail(f, "expected a call with the same number of outputs");
    for (int32_t k = 0; k < f->n_targets; k++)
        TRY(assign(f, k, k == 0 ? f->values[0] : f->made->out[k]));
    return ATTNRUN_OK;
}

attnrun_status attnrun_body_add(attnrun_body *body, const char *formulas)
{
    struct formula f = { .body = body, .text = formulas, .at = formulas };
    if (body == NULL || formulas == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "body or formulas is NULL");
    TRY(body->status);
    do {
        TRY(take_statement(&f));
        TRY(attn_poll_work(4096));
    } while (take(&f, ';'));
    return ATTNRUN_OK;
}

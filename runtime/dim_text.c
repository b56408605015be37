/* dim_text.c - dimensions and types as text, and dim_param read back.
 *
 * Expressions in models come from exporters: "2*S+1", "past + sequence", "s0//2",
 * "floor(H/2) + 1". What is not understood as a whole is one symbol of that name. */
#include "dim_table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

/* ---- writing ---- */
struct dim_writer {
    char *text;
    size_t bytes, used; /* used counts what did not fit too */
};

ATTN_PRINTF(2, 3)
static void dim_text_put(struct dim_writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = w->used < w->bytes ? w->bytes - w->used : 0;
    int n = vsnprintf(left > 0 ? w->text + w->used : NULL, left, format, arguments);
    w->used += n > 0 ? (size_t)n : 0;
    va_end(arguments);
}

static void dim_text_put_dim(struct dim_writer *w, const struct attn_dims *dims,
                             attnrun_dim dim)
{
    if (dim.expr == 0) {
        dim_text_put(w, "%" PRId64, dim.value);
        return;
    }
    if (dim.expr < 0 || dims == NULL) {
        dim_text_put(w, dim.expr == ATTN_DIM_INVALID ? "overflow" : "?");
        return;
    }
    struct dim_expression e = dim_expression_of(dims, dim);
    for (int i = 0; i < e.n_terms; i++) {
        const char *text = dims->symbols[e.terms[i].symbol].text;
        int64_t k = e.terms[i].k;
        if (k == 1 || k == -1)
            dim_text_put(w, "%s%s", k < 0 ? "-" : i > 0 ? "+" : "", text);
        else
            dim_text_put(w, "%s%" PRId64 "*%s", k > 0 && i > 0 ? "+" : "", k, text);
    }
    if (e.constant != 0)
        dim_text_put(w, "%+" PRId64, e.constant);
}

const char *attn_dim_format(const struct attn_dims *dims, attnrun_dim dim, char *text,
                            size_t bytes)
{
    struct dim_writer w = { .text = text, .bytes = bytes };
    if (bytes > 0)
        text[0] = 0;
    dim_text_put_dim(&w, dims, dim);
    if (bytes > 0 && w.used >= bytes)
        attn_utf8_trim(text, bytes - 1);
    return text;
}

enum { TYPE_TEXT = 320, TYPE_BUFFERS = 8 };

static char *next_buffer(void)
{
    static _Thread_local char buffers[TYPE_BUFFERS][TYPE_TEXT];
    static _Thread_local unsigned next;
    char *text = buffers[next++ % TYPE_BUFFERS];
    text[0] = 0;
    return text;
}

const char *attn_type_format(const struct attn_dims *dims, const attnrun_type *type)
{
    struct dim_writer w = { .text = next_buffer(), .bytes = TYPE_TEXT };
    const char *const open[] = { "", "", "seq(", "optional(", "optional(seq(" };
    const char *const close[] = { "", "", ")", ")", "))" };
    if (type->kind == ATTNRUN_MAP || type->kind == ATTNRUN_MAP_SEQUENCE) {
        bool map = type->kind == ATTNRUN_MAP;
        dim_text_put(&w, "%s%s,%s%s", map ? "map(" : "seq(map(",
                     type->key_dtype != 0 ? attnrun_dtype_name(type->key_dtype) : "?",
                     attnrun_dtype_name(type->dtype), map ? ")" : "))");
        return w.text;
    }
    if (type->kind < ATTNRUN_TENSOR || type->kind > ATTNRUN_OPTIONAL_SEQUENCE) {
        dim_text_put(&w, "nothing");
        return w.text;
    }
    dim_text_put(&w, "%s%s", open[type->kind], attnrun_dtype_name(type->dtype));
    if (type->rank < 0)
        dim_text_put(&w, "[...]");
    else
        dim_text_put(&w, "[");
    for (int i = 0; i < type->rank && i < ATTNRUN_MAX_RANK; i++) {
        dim_text_put(&w, "%s", i > 0 ? "," : "");
        dim_text_put_dim(&w, dims, type->dims[i]);
    }
    dim_text_put(&w, "%s%s", type->rank < 0 ? "" : "]", close[type->kind]);
    return w.text;
}

const char *attn_tensor_format(const attnrun_tensor *tensor)
{
    attnrun_type type = { .kind = tensor->kind,
                          .dtype = tensor->dtype,
                          .rank = tensor->rank };
    for (int i = 0; i < tensor->rank && i < ATTNRUN_MAX_RANK; i++)
        type.dims[i] = dim_of(tensor->dims[i]);
    return attn_type_format(NULL, &type);
}

attnrun_dim attn_dim_trusted(struct attn_dims *dims, attnrun_dim dim, const char *input)
{
    char text[2 * DIM_TEXT];
    if (dim.expr > 0 && (input != NULL || attn_dims_plain_of(dims, dim) < 0)) {
        struct dim_writer w = { .text = text, .bytes = sizeof text };
        dim_text_put_dim(&w, dims, dim);
        if (input != NULL)
            dim_text_put(&w, ":%s", input);
        dim = attn_dim_symbol(dims, w.used < sizeof text ? text : NULL);
    }
    if (dim.expr > 0)
        attn_dims_give(dims, attn_dims_plain_of(dims, dim));
    return dim;
}

/* ---- reading: operator precedence with two stacks ---- */
enum { PARSE_STACK = 24, PARSE_NAME = 128 };

/* A marker on the operator stack: '(' or a function, all closed by ')'. */
enum { OPEN = '(', FLOOR = 'f', MIN = 'm', MAX = 'M', NEGATE = '~', FLOOR_DIV = '|' };

struct parser {
    struct attn_dims *dims;
    const char *at;
    attnrun_dim values[PARSE_STACK];
    bool ratio[PARSE_STACK]; /* a/b, whose fraction is not yet cut off by floor() */
    char operators[PARSE_STACK];
    int n_values, n_operators;
    bool failed;
};

static bool is_open(char c) { return c == OPEN || c == FLOOR || c == MIN || c == MAX; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int precedence(char c)
{
    return c == '+' || c == '-' ? 1 : c == NEGATE ? 3 : is_open(c) || c == ',' ? 0 : 2;
}

static void push_operator(struct parser *p, char c)
{
    if (p->n_operators == PARSE_STACK)
        p->failed = true;
    else
        p->operators[p->n_operators++] = c;
}

static void push_value(struct parser *p, attnrun_dim value)
{
    if (p->n_values == PARSE_STACK || value.expr < 0) {
        p->failed = true;
        return;
    }
    p->ratio[p->n_values] = false;
    p->values[p->n_values++] = value;
}

/* Applies a two-operand operation to the top of the stack. */
static void apply(struct parser *p, enum attn_dim_op op, bool ratio)
{
    if (p->n_values < 2 || p->ratio[p->n_values - 1] || p->ratio[p->n_values - 2]) {
        p->failed = true;
        return;
    }
    p->n_values -= 2;
    push_value(p, attn_dim_combine(p->dims, op, p->values[p->n_values],
                                   p->values[p->n_values + 1]));
    if (!p->failed)
        p->ratio[p->n_values - 1] = ratio;
}

static void apply_operator(struct parser *p, char c)
{
    if (c == '+')
        apply(p, DIM_ADD, false);
    else if (c == '-')
        apply(p, DIM_SUB, false);
    else if (c == '*')
        apply(p, DIM_MUL, false);
    else if (c == '/' || c == FLOOR_DIV)
        apply(p, DIM_DIV, c == '/');
    else if (c == NEGATE && p->n_values > 0 && !p->ratio[p->n_values - 1])
        p->values[p->n_values - 1] =
            attn_dim_combine(p->dims, DIM_SUB, dim_of(0), p->values[p->n_values - 1]);
    else
        p->failed = true;
}

/* Applies the operators on the stack that bind at least as tightly. */
static void reduce(struct parser *p, int min)
{
    while (!p->failed && p->n_operators > 0 &&
           precedence(p->operators[p->n_operators - 1]) >= min)
        apply_operator(p, p->operators[--p->n_operators]);
}

static void close_parenthesis(struct parser *p)
{
    reduce(p, 1);
    bool comma = p->n_operators > 0 && p->operators[p->n_operators - 1] == ',';
    if (comma)
        p->n_operators--;
    char open = p->n_operators > 0 ? p->operators[--p->n_operators] : 0;
    if (p->failed || !is_open(open) || comma != (open == MIN || open == MAX))
        p->failed = true;
    else if (comma)
        apply(p, open == MIN ? DIM_MIN : DIM_MAX, false);
    else if (open == FLOOR && p->n_values > 0)
        p->ratio[p->n_values - 1] = false;
}

static void read_number(struct parser *p)
{
    int64_t value = 0;
    for (; is_digit(*p->at); p->at++)
        if (!ck_mul(value, 10, &value) || !ck_add(value, *p->at - '0', &value))
            p->failed = true;
    if (is_letter(*p->at) || *p->at == '.')
        p->failed = true; /* "3x", "0.5" */
    push_value(p, dim_of(value));
}

/* A name; a '-' between two letters without spaces belongs to it: "batch-size". True
 * where it was a function and its parenthesis. */
static bool read_name(struct parser *p)
{
    static const struct {
        const char *name;
        char mark;
    } functions[] = {
        { "floor", FLOOR }, { "min", MIN }, { "Min", MIN }, { "max", MAX }, { "Max", MAX }
    };
    char name[PARSE_NAME];
    size_t n = 0;
    while (is_letter(*p->at) || is_digit(*p->at) || *p->at == '.' || *p->at == ':' ||
           (*p->at == '-' && n > 0 && is_letter(p->at[1]))) {
        if (n == sizeof name - 1) {
            p->failed = true;
            return false;
        }
        name[n++] = *p->at++;
    }
    name[n] = 0;
    if (*p->at == '(') {
        p->at++;
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            if (strcmp(name, functions[i].name) == 0) {
                push_operator(p, functions[i].mark);
                return true;
            }
        p->failed = true;
        return false;
    }
    push_value(p, attn_dim_symbol(p->dims, name));
    return false;
}

/* Reads an operand or what may come before one; returns whether one is still expected. */
static bool read_operand(struct parser *p)
{
    char c = *p->at;
    if (c == '(' || c == '-' || c == '+') {
        p->at++;
        if (c != '+')
            push_operator(p, c == '(' ? OPEN : NEGATE);
        return true;
    }
    if (is_letter(c))
        return read_name(p);
    if (is_digit(c))
        read_number(p);
    else
        p->failed = true;
    return false;
}

/* Reads what comes after an operand; returns whether another operand is expected. */
static bool read_operator(struct parser *p)
{
    char c = *p->at++;
    if (c == ')') {
        close_parenthesis(p);
        return false;
    }
    if (c == ',') {
        reduce(p, 1);
        if (p->n_operators == 0 || p->operators[p->n_operators - 1] == ',')
            p->failed = true;
    } else if (c == '+' || c == '-' || c == '*' || c == '/') {
        reduce(p, precedence(c));
        if (c == '/' && *p->at == '/') {
            p->at++;
            c = FLOOR_DIV;
        }
    } else {
        p->failed = true;
    }
    push_operator(p, c);
    return true;
}

attnrun_dim attn_dim_parse(struct attn_dims *dims, const char *text)
{
    struct parser p = { .dims = dims, .at = text };
    bool operand = true;
    if (dims == NULL || text == NULL || strcmp(text, "?") == 0)
        return attn_dim_symbol(dims, NULL);
    while (!p.failed) {
        p.at += strspn(p.at, " \t");
        if (*p.at == 0)
            break;
        operand = operand ? read_operand(&p) : read_operator(&p);
    }
    reduce(&p, 1);
    bool good = !p.failed && !operand && p.n_values == 1 && p.n_operators == 0;
    if (!good)
        return attn_dim_symbol(dims, text);
    if (dim_is_const(p.values[0]) && p.values[0].value < 0)
        return attn_dim_symbol(dims, NULL); /* "-1" */
    return p.values[0];
}

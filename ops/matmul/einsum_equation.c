/* einsum_equation.c - reads an einsum equation such as "bij,bjk->bik", "...ij->...",
 * "ii->i" or "ij,jk".
 *
 * In: the text and the ranks of the operands. Out: a label for each dim of each operand
 * and of the output, or a sentence that says what is wrong. Source: ONNX Einsum-12. */
#include "einsum_equation.h"

enum { LABELS = 128 };

struct equation_reader {
    const attnrun_step *step;
    const char *text;
    struct einsum_equation *e;
    int8_t label_of[LABELS]; /* of a label; -1: not seen yet */
    int8_t uses[LABELS];     /* in inputs */
    bool ellipsis;           /* in some input */
};

static attn_status malformed(const struct equation_reader *r, const char *what)
{
    return op_fail(r->step, ATTNRUN_E_ATTR, "equation '%.100s': %s", attn_quote(r->text),
                   what);
}

/* Of ASCII, in any locale: letters count the places of label_of. */
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static const char *equation_skip_spaces(const char *at)
{
    while (*at == ' ')
        at++;
    return at;
}

/* A term's labels and where its ellipsis stands (-1: nowhere). Stops at ',', '-', the
 * end. */
struct term {
    char labels[ATTNRUN_MAX_RANK];
    int n, ellipsis;
};

static attn_status read_term(const struct equation_reader *r, const char **at,
                             struct term *term)
{
    *term = (struct term){ .ellipsis = -1 };
    for (*at = equation_skip_spaces(*at); **at != 0 && **at != ',' && **at != '-';
         *at = equation_skip_spaces(*at)) {
        if (is_letter(**at)) {
            if (term->n == ATTNRUN_MAX_RANK)
                return malformed(r, "an operand has too many labels");
            term->labels[term->n++] = *(*at)++;
        } else if (strncmp(*at, "...", 3) == 0 && term->ellipsis < 0) {
            term->ellipsis = term->n;
            *at += 3;
        } else {
            return malformed(r, "expected labels, '...', ',' and '->'");
        }
    }
    return ATTNRUN_OK;
}

/* First pass: the number of dims that the widest ellipsis has. */
static attn_status count_ellipsis(const struct equation_reader *r)
{
    const char *at = r->text;
    for (int op = 0; op < r->step->n_in; op++) {
        struct term term;
        TRY(read_term(r, &at, &term));
        int left = r->step->in[op].rank - term.n;
        if (left < 0 || (left > 0 && term.ellipsis < 0))
            return op_fail_input(r->step, op, ATTNRUN_E_SHAPE,
                                 "expected rank %d by the equation '%.60s'", term.n,
                                 attn_quote(r->text));
        if (left > r->e->n_ellipsis)
            r->e->n_ellipsis = left;
        bool more = op + 1 < r->step->n_in;
        if (more ? *at != ',' : *at == ',')
            return malformed(r, "expected one operand for each input");
        at += more;
    }
    return ATTNRUN_OK;
}

static attn_status add_label(struct equation_reader *r, int op, char symbol)
{
    struct einsum_equation *e = r->e;
    int8_t *label = &r->label_of[(int)symbol];
    if (*label < 0) {
        if (op == EINSUM_OUT)
            return malformed(r, "the output has a label that no operand has");
        if (e->n_labels == EINSUM_LABELS)
            return malformed(r, "it has too many different labels");
        *label = (int8_t)e->n_labels++;
    }
    if (e->rank[op] == ATTNRUN_MAX_RANK)
        return malformed(r, "an operand or the output has too many dims");
    if (op != EINSUM_OUT && r->uses[(int)symbol] < 2)
        r->uses[(int)symbol]++;
    e->labels[op][e->rank[op]++] = *label;
    return ATTNRUN_OK;
}

/* `n` dims of the ellipsis, aligned to the right. */
static attn_status add_ellipsis(struct equation_reader *r, int op, int n)
{
    struct einsum_equation *e = r->e;
    if (e->rank[op] + n > ATTNRUN_MAX_RANK)
        return malformed(r, "an operand or the output has too many dims");
    for (int i = 0; i < n; i++)
        e->labels[op][e->rank[op]++] = (int8_t)(e->n_ellipsis - n + i);
    return ATTNRUN_OK;
}

static attn_status add_term(struct equation_reader *r, int op, const struct term *term,
                            int n_ellipsis)
{
    for (int i = 0; i <= term->n; i++) {
        if (term->ellipsis == i)
            TRY(add_ellipsis(r, op, n_ellipsis));
        if (i < term->n)
            TRY(add_label(r, op, term->labels[i]));
    }
    return ATTNRUN_OK;
}

/* Without "->": the ellipsis, then the labels that occur once, in order. */
static attn_status implicit_output(struct equation_reader *r)
{
    TRY(add_ellipsis(r, EINSUM_OUT, r->e->n_ellipsis));
    for (int symbol = 0; symbol < LABELS; symbol++)
        if (r->uses[symbol] == 1)
            TRY(add_label(r, EINSUM_OUT, (char)symbol));
    return ATTNRUN_OK;
}

static attn_status check_output(const struct equation_reader *r)
{
    const struct einsum_equation *e = r->e;
    for (int i = 0; i < e->rank[EINSUM_OUT]; i++)
        for (int j = 0; j < i; j++)
            if (e->labels[EINSUM_OUT][i] == e->labels[EINSUM_OUT][j])
                return malformed(r, "a label appears twice in the output");
    return ATTNRUN_OK;
}

attn_status attn_einsum_parse(const attnrun_step *step, attnrun_string whole,
                              struct einsum_equation *equation)
{
    const char *text = whole.data != NULL ? whole.data : "";
    struct equation_reader r = { .step = step, .text = text, .e = equation };
    *equation = (struct einsum_equation){ .n_operands = step->n_in };
    memset(r.label_of, -1, sizeof r.label_of);
    if (!op_text_is(whole, text))
        return malformed(&r, "there is text after a NUL");
    if (step->n_in > EINSUM_OPERANDS)
        return malformed(&r, "more operands than are supported");
    TRY(count_ellipsis(&r));
    equation->n_labels = equation->n_ellipsis;
    const char *at = text;
    struct term term;
    for (int op = 0; op < step->n_in; op++) {
        TRY(read_term(&r, &at, &term));
        TRY(add_term(&r, op, &term, step->in[op].rank - term.n));
        at += *at == ',';
    }
    if (*at == 0)
        return implicit_output(&r);
    if (strncmp(at, "->", 2) != 0)
        return malformed(&r, "expected '->'");
    at += 2;
    TRY(read_term(&r, &at, &term));
    if (*at != 0)
        return malformed(&r, "there is text after the output");
    TRY(add_term(&r, EINSUM_OUT, &term, equation->n_ellipsis));
    return check_output(&r);
}

/* dim.c - arithmetic of dimensions; see dim.h.
 *
 * In: dimensions, constants or expressions. Out: their sum, product, quotient or extremum. Sums
 * and products are carried out on polynomials of symbols, so that (S+1)*B is S*B + B and
 * (4*S*B)/B is 4*S. What is no polynomial becomes a derived symbol, and a constant that overflows
 * becomes INVALID. Cost: products of the numbers of terms, at most DIM_MAX_TERMS each. */
#include "dim.h"

#include <string.h>

#include "dim_table.h"

enum outcome { GOOD, OVERFLOW, TOO_BIG };

struct poly {
    int64_t constant;
    int n;
    struct dim_term terms[DIM_MAX_TERMS]; /* by rising symbol; no k is 0 */
};

static attnrun_dim unknown(void) { return (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN }; }
static attnrun_dim invalid(void) { return (attnrun_dim){ .expr = ATTN_DIM_INVALID }; }

static void load_poly(const struct attn_dims *dims, attnrun_dim dim, struct poly *p)
{
    struct dim_expression e = dim_expression_of(dims, dim);
    p->constant = e.constant;
    p->n = e.n_terms;
    if (e.n_terms > 0)
        memcpy(p->terms, e.terms, (size_t)e.n_terms * sizeof *e.terms);
}

static attnrun_dim intern(struct attn_dims *dims, enum outcome outcome,
                          const struct poly *p)
{
    if (outcome == OVERFLOW)
        return invalid();
    if (outcome == TOO_BIG)
        return unknown();
    return attn_dims_intern(dims, p->constant, p->terms, p->n);
}

/* p += k * symbol. */
static enum outcome add_term(struct poly *p, int64_t k, int32_t symbol)
{
    int at = 0;
    while (at < p->n && p->terms[at].symbol < symbol)
        at++;
    struct dim_term *term = &p->terms[at];
    size_t after = (size_t)(p->n - at) * sizeof *term;
    if (at < p->n && term->symbol == symbol) {
        if (!ck_add(term->k, k, &term->k))
            return OVERFLOW;
        if (term->k == 0) {
            memmove(term, term + 1, after - sizeof *term);
            p->n--;
        }
        return GOOD;
    }
    if (k == 0)
        return GOOD;
    if (p->n == DIM_MAX_TERMS)
        return TOO_BIG;
    memmove(term + 1, term, after);
    *term = (struct dim_term){ k, symbol };
    p->n++;
    return GOOD;
}

/* p += factor * q. */
static enum outcome add_scaled(struct poly *p, int64_t factor, const struct poly *q)
{
    int64_t k;
    if (!ck_mul(q->constant, factor, &k) || !ck_add(p->constant, k, &p->constant))
        return OVERFLOW;
    for (int i = 0; i < q->n; i++) {
        if (!ck_mul(q->terms[i].k, factor, &k))
            return OVERFLOW;
        enum outcome outcome = add_term(p, k, q->terms[i].symbol);
        if (outcome != GOOD)
            return outcome;
    }
    return GOOD;
}

/* ---- monomials: sorted lists of symbols that are no products ---- */
struct monomial {
    int n;
    int32_t symbols[DIM_MAX_FACTORS];
};

static void load_monomial(const struct attn_dims *dims, int32_t symbol,
                          struct monomial *m)
{
    const struct dim_symbol *s = &dims->symbols[symbol];
    if (s->kind == SYMBOL_PRODUCT) {
        m->n = s->n_factors;
        memcpy(m->symbols, s->factors, (size_t)m->n * sizeof *m->symbols);
    } else {
        m->n = 1;
        m->symbols[0] = symbol;
    }
}

/* The symbol of the product of two symbols; -1 where it gets too long. */
static int32_t multiply_symbols(struct attn_dims *dims, int32_t x, int32_t y)
{
    struct monomial a, b, product = { 0 };
    load_monomial(dims, x, &a);
    load_monomial(dims, y, &b);
    if (a.n + b.n > DIM_MAX_FACTORS)
        return -1;
    for (int i = 0, k = 0; i < a.n || k < b.n;) {
        bool from_a = k == b.n || (i < a.n && a.symbols[i] <= b.symbols[k]);
        product.symbols[product.n++] = from_a ? a.symbols[i++] : b.symbols[k++];
    }
    return attn_dims_factors(dims, product.symbols, product.n);
}

/* Graded lexicographic order, which multiplication keeps: > 0 where x comes first. */
static int compare_symbols(const struct attn_dims *dims, int32_t x, int32_t y)
{
    struct monomial a, b;
    load_monomial(dims, x, &a);
    load_monomial(dims, y, &b);
    if (a.n != b.n)
        return a.n > b.n ? 1 : -1;
    for (int i = 0; i < a.n; i++)
        if (a.symbols[i] != b.symbols[i])
            return a.symbols[i] < b.symbols[i] ? 1 : -1;
    return 0;
}

/* x / y where y's factors are among x's; n 0 is the constant 1. */
static bool divide_symbols(const struct attn_dims *dims, int32_t x, int32_t y,
                           struct monomial *quotient)
{
    struct monomial a, b;
    int k = 0;
    load_monomial(dims, x, &a);
    load_monomial(dims, y, &b);
    quotient->n = 0;
    for (int i = 0; i < a.n; i++) {
        if (k < b.n && a.symbols[i] == b.symbols[k])
            k++;
        else
            quotient->symbols[quotient->n++] = a.symbols[i];
    }
    return k == b.n;
}

/* ---- products ---- */
/* p += k * symbol * q; symbol -1 is 1. */
static enum outcome add_product(struct attn_dims *dims, struct poly *p, int64_t k,
                                int32_t symbol, const struct poly *q)
{
    int64_t product;
    if (symbol < 0)
        return add_scaled(p, k, q);
    if (!ck_mul(k, q->constant, &product))
        return OVERFLOW;
    enum outcome outcome = add_term(p, product, symbol);
    for (int i = 0; i < q->n && outcome == GOOD; i++) {
        int32_t both = multiply_symbols(dims, symbol, q->terms[i].symbol);
        if (both < 0)
            return TOO_BIG;
        if (!ck_mul(k, q->terms[i].k, &product))
            return OVERFLOW;
        outcome = add_term(p, product, both);
    }
    return outcome;
}

static enum outcome multiply(struct attn_dims *dims, const struct poly *a,
                             const struct poly *b, struct poly *product)
{
    product->constant = 0;
    product->n = 0;
    enum outcome outcome = add_scaled(product, a->constant, b);
    for (int i = 0; i < a->n && outcome == GOOD; i++)
        outcome = add_product(dims, product, a->terms[i].k, a->terms[i].symbol, b);
    return outcome;
}

/* ---- quotients ---- */
/* The term of p that comes first; p has terms. */
static struct dim_term leading_term(const struct attn_dims *dims, const struct poly *p)
{
    int first = 0;
    for (int i = 1; i < p->n; i++)
        if (compare_symbols(dims, p->terms[i].symbol, p->terms[first].symbol) > 0)
            first = i;
    return p->terms[first];
}

/* a / b by polynomial division; false where it leaves a rest or gets too big. */
static bool divide_exact(struct attn_dims *dims, struct poly rest, const struct poly *b,
                         struct poly *quotient)
{
    struct dim_term divisor = leading_term(dims, b);
    struct monomial m;
    quotient->constant = 0;
    quotient->n = 0;
    for (int step = 0; rest.n > 0; step++) {
        struct dim_term term = leading_term(dims, &rest);
        if (step == 2 * DIM_MAX_TERMS || term.k == INT64_MIN || term.k % divisor.k != 0 ||
            !divide_symbols(dims, term.symbol, divisor.symbol, &m))
            return false;
        int64_t k = term.k / divisor.k;
        int32_t symbol = -1;
        if (m.n > 0) {
            symbol = attn_dims_factors(dims, m.symbols, m.n);
            if (symbol < 0 || add_term(quotient, k, symbol) != GOOD)
                return false;
        } else if (!ck_add(quotient->constant, k, &quotient->constant)) {
            return false;
        }
        if (add_product(dims, &rest, -k, symbol, b) != GOOD)
            return false;
    }
    return rest.constant == 0;
}

/* 0 <= result < b, for b > 0. */
static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r < 0 ? r + b : r;
}

/* Divides what is left and its divisor by a factor of b and of all coefficients:
 * floor((g x + r) / (g b)) = floor((x + floor(r / g)) / b). */
static int64_t take_factor(struct poly *rest, int64_t b)
{
    int64_t g = b;
    for (int i = 0; i < rest->n; i++)
        for (int64_t k = rest->terms[i].k; k != 0;) {
            const int64_t r = g % k;
            g = k;
            k = r;
        }
    for (int i = 0; i < rest->n; i++)
        rest->terms[i].k /= g;
    rest->constant = dim_floor_div(rest->constant, g);
    return b / g;
}

/* a = b * q + r term by term, 0 <= coefficients of r < b: floor(a / b) = q + floor(r /
 * b). */
static attnrun_dim divide_by_constant(struct attn_dims *dims, const struct poly *a,
                                      int64_t b)
{
    struct poly quotient = { .constant = dim_floor_div(a->constant, b) };
    struct poly rest = { .constant = floor_mod(a->constant, b) };
    for (int i = 0; i < a->n; i++) {
        struct dim_term term = a->terms[i];
        int64_t k = dim_floor_div(term.k, b), r = floor_mod(term.k, b);
        if (k != 0)
            quotient.terms[quotient.n++] = (struct dim_term){ k, term.symbol };
        if (r != 0)
            rest.terms[rest.n++] = (struct dim_term){ r, term.symbol };
    }
    if (rest.n > 0) { /* a constant rest is below b */
        b = take_factor(&rest, b);
        attnrun_dim top = intern(dims, GOOD, &rest);
        int32_t symbol =
            top.expr < 0 ? -1 : attn_dims_derived(dims, SYMBOL_DIV, top, dim_of(b));
        if (symbol < 0)
            return unknown();
        return intern(dims, add_term(&quotient, 1, symbol), &quotient);
    }
    return intern(dims, GOOD, &quotient);
}

static attnrun_dim derive(struct attn_dims *dims, enum dim_symbol_kind kind,
                          attnrun_dim a, attnrun_dim b)
{
    int32_t symbol = attn_dims_derived(dims, kind, a, b);
    if (symbol < 0)
        return unknown();
    return attn_dims_intern(dims, 0, &(struct dim_term){ 1, symbol }, 1);
}

static attnrun_dim divide_by_number(struct attn_dims *dims, const struct poly *p,
                                    int64_t b)
{
    struct poly zero = { 0 };
    if (b > 0)
        return divide_by_constant(dims, p, b);
    if (b == 0 || b == INT64_MIN)
        return invalid();
    if (add_scaled(&zero, -1, p) != GOOD) /* a / b = -a / -b */
        return invalid();
    return divide_by_constant(dims, &zero, -b);
}

/* p / symbol, which all of its terms have; else false. */
static bool without_symbol(struct attn_dims *dims, const struct poly *p, int32_t symbol,
                           struct poly *quotient)
{
    struct monomial m;
    quotient->constant = 0;
    quotient->n = 0;
    for (int i = 0; i < p->n; i++) {
        if (!divide_symbols(dims, p->terms[i].symbol, symbol, &m))
            return false;
        const int32_t left = m.n > 0 ? attn_dims_factors(dims, m.symbols, m.n) : -1;
        if (m.n == 0 ? !ck_add(quotient->constant, p->terms[i].k, &quotient->constant)
                     : left < 0 || add_term(quotient, p->terms[i].k, left) != GOOD)
            return false;
    }
    return p->constant == 0 && p->n > 0;
}

/* Takes a symbol out of p and q that all of their terms have: B*S / (8*B) is S / 8 wherever it is
 * a number. */
static bool cancel_symbol(struct attn_dims *dims, struct poly *p, struct poly *q)
{
    struct monomial m;
    struct poly a, b;
    if (p->n == 0 || q->n == 0)
        return false;
    load_monomial(dims, q->terms[0].symbol, &m);
    for (int i = 0; i < m.n; i++)
        if (without_symbol(dims, p, m.symbols[i], &a) &&
            without_symbol(dims, q, m.symbols[i], &b)) {
            *p = a;
            *q = b;
            return true;
        }
    return false;
}

static attnrun_dim divide(struct attn_dims *dims, attnrun_dim a, attnrun_dim b)
{
    struct poly p, q, quotient;
    load_poly(dims, a, &p);
    if (dim_is_const(b))
        return divide_by_number(dims, &p, b.value);
    load_poly(dims, b, &q);
    if (divide_exact(dims, p, &q, &quotient))
        return intern(dims, GOOD, &quotient);
    while (cancel_symbol(dims, &p, &q))
        ;
    if (q.n == 0)
        return divide_by_number(dims, &p, q.constant);
    return derive(dims, SYMBOL_DIV, intern(dims, GOOD, &p), intern(dims, GOOD, &q));
}

/* ---- min, max, broadcast ---- */
/* < 0, > 0: always a <= b, a >= b; 0: not known. */
static int compare(const struct attn_dims *dims, attnrun_dim a, attnrun_dim b)
{
    struct poly p, q;
    int64_t min, max;
    load_poly(dims, a, &p);
    load_poly(dims, b, &q);
    if (add_scaled(&p, -1, &q) != GOOD)
        return 0;
    struct dim_expression difference = { .constant = p.constant,
                                         .terms = p.terms,
                                         .n_terms = p.n };
    attn_dims_bounds(dims, &difference, &min, &max);
    return min >= 0 ? 1 : max <= 0 ? -1 : 0;
}

/* The same symbol whichever operand comes first. */
static attnrun_dim derive_sorted(struct attn_dims *dims, enum dim_symbol_kind kind,
                                 attnrun_dim a, attnrun_dim b)
{
    bool swap = a.expr > b.expr;
    return derive(dims, kind, swap ? b : a, swap ? a : b);
}

/* The symbol of a dim that is a minimum; NULL: it is none. */
static const struct dim_symbol *min_of(const struct attn_dims *dims, attnrun_dim dim)
{
    struct dim_expression e = dim_expression_of(dims, dim);
    if (e.n_terms != 1 || e.constant != 0 || e.terms[0].k != 1)
        return NULL;
    const struct dim_symbol *symbol = &dims->symbols[e.terms[0].symbol];
    return symbol->kind == SYMBOL_MIN ? symbol : NULL;
}

/* Whether n is 1 or more where part is: always, or since runs check it, or a divisor of n. */
static bool is_some(struct attn_dims *dims, attnrun_dim n, attnrun_dim part)
{
    const struct dim_expression e = dim_expression_of(dims, n);
    if (compare(dims, n, dim_of(1)) > 0 || attn_dims_is_assumed(dims, n, part))
        return true;
    if (e.n_terms != 1 || e.constant != 0 || e.terms[0].k < 1)
        return false;
    const attnrun_dim size =
        attn_dims_intern(dims, 0, &(struct dim_term){ 1, e.terms[0].symbol }, 1);
    return attn_dims_is_assumed(dims, size, part) ||
           attn_dims_is_assumed(dims, size, dim_of(1));
}

/* Whether `a` is min(part, n). What Slice keeps behind max(0, c - part) of c elements is such a
 * minimum, too. */
static bool is_min_of(struct attn_dims *dims, attnrun_dim a, attnrun_dim part,
                      attnrun_dim *n)
{
    const struct dim_expression e = dim_expression_of(dims, a);
    if (e.n_terms != 1)
        return false;
    const struct dim_symbol *symbol = &dims->symbols[e.terms[0].symbol];
    const bool max = e.terms[0].k == -1 && symbol->kind == SYMBOL_MAX;
    attnrun_dim of[2] = { symbol->a, symbol->b };
    if (!max && min_of(dims, a) == NULL)
        return false;
    for (int i = 0; i < 2 && max; i++) /* c - max(a, b) is min(c - a, c - b) */
        of[i] = attn_dim_combine(dims, DIM_SUB, dim_of(e.constant), of[i]);
    *n = of[dim_equal(of[0], part)];
    return dim_equal(of[0], part) || dim_equal(of[1], part);
}

/* Whether `a` is min(part, n) for n > 0: the same as part, or 1, or not to be broadcast with it at
 * all. With n of 0 it is 0, and where part is 1, so is what they broadcast to. */
static bool is_part_of(struct attn_dims *dims, attnrun_dim a, attnrun_dim part)
{
    attnrun_dim n;
    return is_min_of(dims, a, part, &n) && is_some(dims, n, part);
}

/* broadcast(big, part) is big: part is big, the minimum of it and another, or one of
 * those of a dim that big was broadcast from. */
static bool absorbs(struct attn_dims *dims, attnrun_dim big, attnrun_dim part)
{
    attnrun_dim open[8] = { big }; /* broadcasts nest a few levels; deeper ones stay */
    int n = 1;
    while (n > 0) {
        attnrun_dim dim = open[--n];
        if (dim_equal(dim, part) || is_part_of(dims, part, dim))
            return true;
        struct dim_expression e = dim_expression_of(dims, dim);
        if (e.n_terms != 1 || e.constant != 0 || e.terms[0].k != 1 || n + 2 > 8)
            continue;
        const struct dim_symbol *symbol = &dims->symbols[e.terms[0].symbol];
        if (symbol->kind == SYMBOL_BROADCAST) {
            open[n++] = symbol->a;
            open[n++] = symbol->b;
        }
    }
    return false;
}

static attnrun_dim broadcast(struct attn_dims *dims, attnrun_dim a, attnrun_dim b)
{
    if (absorbs(dims, a, b))
        return a;
    if (absorbs(dims, b, a))
        return b;
    return derive_sorted(dims, SYMBOL_BROADCAST, a, b);
}

/* ---- the one entry ---- */
static attnrun_dim combine_constants(enum attn_dim_op op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool good = true;
    switch (op) {
    case DIM_ADD:
        good = ck_add(a, b, &result);
        break;
    case DIM_SUB:
        good = ck_sub(a, b, &result);
        break;
    case DIM_MUL:
        good = ck_mul(a, b, &result);
        break;
    case DIM_DIV:
        good = b != 0 && !(a == INT64_MIN && b == -1);
        result = good ? dim_floor_div(a, b) : 0;
        break;
    case DIM_MIN:
        result = a < b ? a : b;
        break;
    case DIM_MAX:
        result = a > b ? a : b;
        break;
    case DIM_BROADCAST:
        result = a == 1 ? b : a;
        good = a == b || a == 1 || b == 1;
        break;
    }
    return good ? dim_of(result) : invalid();
}

/* What holds whatever the operands that are no constants may be; false where nothing
 * does. */
static bool combine_simple(enum attn_dim_op op, attnrun_dim a, attnrun_dim b,
                           attnrun_dim *result)
{
    if (dim_is_const(a) && dim_is_const(b)) {
        *result = combine_constants(op, a.value, b.value);
        return true;
    }
    if (op == DIM_MUL && (dim_is(a, 0) || dim_is(b, 0)))
        *result = dim_of(0);
    else if ((op == DIM_DIV || op == DIM_SUB || op == DIM_MUL || op == DIM_ADD) &&
             dim_is(b, op == DIM_DIV || op == DIM_MUL ? 1 : 0))
        *result = a;
    else if ((op == DIM_MUL && dim_is(a, 1)) || (op == DIM_ADD && dim_is(a, 0)))
        *result = b;
    else if (op == DIM_BROADCAST && (dim_is(a, 1) || dim_is(b, 1)))
        *result = dim_is(a, 1) ? b : a;
    else if (op == DIM_BROADCAST && (dim_is_const(a) || dim_is_const(b)))
        *result = dim_is_const(a) ? a : b; /* the other one is this or 1 */
    else if (op == DIM_DIV && dim_is(b, 0))
        *result = invalid();
    else if (op >= DIM_MIN && dim_equal(a, b))
        *result = a;
    else
        return false;
    return true;
}

attnrun_dim attn_dim_combine(struct attn_dims *dims, enum attn_dim_op op, attnrun_dim a,
                             attnrun_dim b)
{
    struct poly p, q, product;
    attnrun_dim simple;
    int order;
    if (a.expr == ATTN_DIM_INVALID || b.expr == ATTN_DIM_INVALID || !dim_is_of(dims, a) ||
        !dim_is_of(dims, b))
        return invalid();
    if (combine_simple(op, a, b, &simple))
        return simple;
    if (dims == NULL || a.expr < 0 || b.expr < 0)
        return unknown();
    switch (op) {
    case DIM_ADD:
    case DIM_SUB:
        load_poly(dims, a, &p);
        load_poly(dims, b, &q);
        return intern(dims, add_scaled(&p, op == DIM_ADD ? 1 : -1, &q), &p);
    case DIM_MUL:
        load_poly(dims, a, &p);
        load_poly(dims, b, &q);
        return intern(dims, multiply(dims, &p, &q, &product), &product);
    case DIM_DIV:
        return divide(dims, a, b);
    case DIM_MIN:
    case DIM_MAX:
        order = compare(dims, a, b);
        if (order != 0)
            return (order < 0) == (op == DIM_MIN) ? a : b;
        return derive_sorted(dims, op == DIM_MIN ? SYMBOL_MIN : SYMBOL_MAX, a, b);
    case DIM_BROADCAST:
        return broadcast(dims, a, b);
    }
    return unknown();
}

attnrun_dim attn_dim_join(struct attn_dims *dims, attnrun_dim a, attnrun_dim b)
{
    for (int side = 0; side < 2 && dims != NULL && a.expr >= 0 && b.expr >= 0; side++) {
        const struct dim_symbol *min = min_of(dims, side == 0 ? b : a);
        const attnrun_dim parts[2] = { min != NULL ? min->a : a,
                                       min != NULL ? min->b : b };
        for (int k = 0; k < 2 && min != NULL; k++)
            if (dim_equal(attn_dim_combine(dims, DIM_ADD, side == 0 ? a : b, parts[k]),
                          parts[1 - k]))
                return parts[1 - k];
    }
    return attn_dim_combine(dims, DIM_ADD, a, b);
}

attnrun_dim attn_dim_div_exact(struct attn_dims *dims, attnrun_dim a, attnrun_dim b)
{
    if (dim_equal(a, b) && !dim_is(b, 0))
        return dim_of(1);
    if (dim_is_const(a) && dim_is_const(b) && b.value > 0 && a.value % b.value != 0)
        return invalid();
    return attn_dim_combine(dims, DIM_DIV, a, b);
}

attnrun_dim attn_dims_broadcast(struct attn_dims *dims, attnrun_dim a, attnrun_dim b)
{
    attnrun_dim n;
    if (dims != NULL && a.expr > 0 && b.expr > 0) {
        if (is_min_of(dims, b, a, &n) && !is_some(dims, n, a))
            attn_dims_assume_nonzero(dims, n, a);
        else if (is_min_of(dims, a, b, &n) && !is_some(dims, n, b))
            attn_dims_assume_nonzero(dims, n, b);
    }
    return attn_dim_combine(dims, DIM_BROADCAST, a, b);
}

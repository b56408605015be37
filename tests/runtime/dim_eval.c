/* dim_eval.c - see dim_eval.h. */
#include "dim_eval.h"

#include <string.h>

enum { EVAL_SYMBOLS = 256 }; /* derived symbols within one evaluation; a power of two */

/* Derived symbols done so far (open addressing), and those waiting for their parts. No
 * recursion: models nest expressions as deep as they like. */
struct eval {
    const struct attn_dims *dims;
    const int64_t *given;
    int32_t keys[2 * EVAL_SYMBOLS]; /* symbol + 1 */
    int64_t values[2 * EVAL_SYMBOLS];
    int32_t waiting[EVAL_SYMBOLS];
    int n_done, n_waiting;
};

static bool find_value(const struct eval *e, int32_t symbol, int64_t *value)
{
    if (e->given[symbol] >= 0) {
        *value = e->given[symbol];
        return true;
    }
    uint32_t mask = 2 * EVAL_SYMBOLS - 1, at = (uint32_t)symbol & mask;
    for (; e->keys[at] != 0; at = (at + 1) & mask)
        if (e->keys[at] == symbol + 1) {
            *value = e->values[at];
            return true;
        }
    return false;
}

static bool store_value(struct eval *e, int32_t symbol, int64_t value)
{
    uint32_t mask = 2 * EVAL_SYMBOLS - 1, at = (uint32_t)symbol & mask;
    if (e->n_done++ == EVAL_SYMBOLS)
        return false;
    while (e->keys[at] != 0)
        at = (at + 1) & mask;
    e->keys[at] = symbol + 1;
    e->values[at] = value;
    return true;
}

/* *missing: a symbol whose value is needed first. */
static bool eval_terms(const struct eval *e, const struct dim_expression *expression,
                       int64_t *value, int32_t *missing)
{
    *value = expression->constant;
    for (int i = 0; i < expression->n_terms; i++) {
        struct dim_term term = expression->terms[i];
        int64_t product;
        if (!find_value(e, term.symbol, &product)) {
            *missing = term.symbol;
            return false;
        }
        if (!ck_mul(product, term.k, &product) || !ck_add(*value, product, value))
            return false;
    }
    return true;
}

static bool eval_binary(enum dim_symbol_kind kind, int64_t a, int64_t b, int64_t *value)
{
    switch (kind) {
    case SYMBOL_DIV:
        if (b == 0 || (a == INT64_MIN && b == -1))
            return false;
        *value = dim_floor_div(a, b);
        return true;
    case SYMBOL_MIN:
        *value = a < b ? a : b;
        return true;
    case SYMBOL_MAX:
        *value = a > b ? a : b;
        return true;
    default: /* SYMBOL_BROADCAST */
        *value = a == 1 ? b : a;
        return a == b || a == 1 || b == 1;
    }
}

static bool eval_symbol(const struct eval *e, int32_t number, int64_t *value,
                        int32_t *missing)
{
    const struct dim_symbol *symbol = &e->dims->symbols[number];
    int64_t a, b;
    if (symbol->kind == SYMBOL_PLAIN)
        return false;
    if (symbol->kind != SYMBOL_PRODUCT) {
        struct dim_expression left = dim_expression_of(e->dims, symbol->a);
        struct dim_expression right = dim_expression_of(e->dims, symbol->b);
        return eval_terms(e, &left, &a, missing) && eval_terms(e, &right, &b, missing) &&
               eval_binary(symbol->kind, a, b, value);
    }
    *value = 1;
    for (int i = 0; i < symbol->n_factors; i++) {
        if (!find_value(e, symbol->factors[i], &a)) {
            *missing = symbol->factors[i];
            return false;
        }
        if (!ck_mul(*value, a, value))
            return false;
    }
    return true;
}

static bool eval_expression(const struct attn_dims *dims,
                            const struct dim_expression *expression, const int64_t *given,
                            int64_t *value)
{
    struct eval e;
    int64_t result;
    e.dims = dims;
    e.given = given;
    e.n_done = e.n_waiting = 0;
    memset(e.keys, 0, sizeof e.keys);
    for (;;) {
        int32_t missing = -1, symbol = e.n_waiting > 0 ? e.waiting[e.n_waiting - 1] : -1;
        bool good = symbol < 0 ? eval_terms(&e, expression, &result, &missing)
                               : eval_symbol(&e, symbol, &result, &missing);
        if (good && symbol < 0) {
            *value = result;
            return true;
        }
        if (good) {
            e.n_waiting--;
            if (!store_value(&e, symbol, result))
                return false;
        } else if (missing < 0 || e.n_waiting == EVAL_SYMBOLS) {
            return false;
        } else {
            e.waiting[e.n_waiting++] = missing;
        }
    }
}

bool dim_eval(const struct attn_dims *dims, attnrun_dim dim, const int64_t *symbol_values,
              int64_t *value)
{
    if (dim.expr == 0)
        *value = dim.value;
    if (dim.expr <= 0 || dims == NULL)
        return dim.expr == 0;
    struct dim_expression expression = dim_expression_of(dims, dim);
    return eval_expression(dims, &expression, symbol_values, value);
}

int32_t dims_n_symbols(const struct attn_dims *dims) { return (int32_t)dims->n_symbols; }

const char *dims_symbol_name(const struct attn_dims *dims, int32_t symbol)
{
    return dims->symbols[symbol].name;
}

int32_t dim_symbol_of(const struct attn_dims *dims, attnrun_dim dim)
{
    if (dims == NULL || dim.expr <= 0)
        return -1;
    struct dim_expression e = dim_expression_of(dims, dim);
    if (e.n_terms != 1 || e.constant != 0 || e.terms[0].k != 1 ||
        dims->symbols[e.terms[0].symbol].kind != SYMBOL_PLAIN)
        return -1;
    return e.terms[0].symbol;
}

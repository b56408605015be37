/* dim_table.h - the inside of the table of dimensions, for dim*.c. */
#ifndef ATTN_DIM_TABLE_H
#define ATTN_DIM_TABLE_H

#include "dim.h"

enum {
    DIM_MAX_EXPRESSIONS = 65536, /* beyond these: UNKNOWN */
    DIM_MAX_SYMBOLS = 65536,
    DIM_MAX_TERMS = 32,
    DIM_MAX_FACTORS = 16,
    DIM_TEXT = 160 /* bytes of the longest text of a symbol */
};

enum dim_symbol_kind {
    SYMBOL_PLAIN,
    SYMBOL_PRODUCT, /* of `factors`: sorted indices of symbols that are no products */
    SYMBOL_DIV,     /* floor(a / b) */
    SYMBOL_MIN,
    SYMBOL_MAX,
    SYMBOL_BROADCAST, /* the other one where one is 1 */
    SYMBOL_NONZERO    /* part of no dim: in each run, a is not 0, or b is 0 as well */
};

/* What a symbol passes on to all that are made of it. */
enum symbol_mark {
    SYMBOL_VAGUE = 1, /* a fresh symbol, or made of one */
    SYMBOL_NOT_GIVEN =
        2 /* neither a dim of an input nor made of these: not every run knows
                            its value */
};

/* A derived symbol comes after all symbols that it is made of. */
struct dim_symbol {
    enum dim_symbol_kind kind;
    int32_t n_factors;
    const int32_t *factors;
    attnrun_dim a, b;
    int64_t min, max; /* bounds of its value */
    const char *name; /* as in the file; of derived ones "" */
    const char *text; /* safe to print */
    uint32_t hash;
    uint8_t marks; /* of enum symbol_mark */
};

struct dim_term {
    int64_t k; /* never 0 */
    int32_t symbol;
};

struct dim_expression {
    int64_t constant;
    const struct dim_term *terms; /* by rising symbol */
    int32_t n_terms;
    uint32_t hash;
};

/* Open addressing: entry + 1 in slots, 0 where free. */
struct dim_index {
    int32_t *slots;
    int64_t n_slots; /* a power of two */
};

struct attn_dims {
    struct attn_pool *pool;
    struct dim_symbol *symbols;
    struct dim_expression *expressions; /* expr - 1 */
    int64_t n_symbols, n_expressions, symbols_capacity, expressions_capacity;
    struct dim_index symbol_index, expression_index;
    int32_t n_fresh;
    attnrun_fixed_dim *fixed; /* symbols that are constants */
    bool *met;                /* of each: a text named it */
    int64_t n_fixed;
    int64_t n_nonzero; /* symbols of this kind */
};

/* False for an expression that the table does not have. */
static inline bool dim_is_of(const struct attn_dims *dims, attnrun_dim dim)
{
    return dims == NULL || dim.expr <= dims->n_expressions;
}

/* The expression behind a dim; a constant has no terms. */
static inline struct dim_expression dim_expression_of(const struct attn_dims *dims,
                                                      attnrun_dim dim)
{
    if (dim.expr > 0)
        return dims->expressions[dim.expr - 1];
    return (struct dim_expression){ .constant = dim.value };
}

static inline int64_t dim_floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/* The symbol of this name, made where new; `vague`: as fresh ones are. -1 where the table is
 * full. */
int32_t attn_dims_plain(struct attn_dims *dims, const char *name, bool vague);
/* Every run knows the value of a symbol. What is made of it before this call is left as it is. */
void attn_dims_give(struct attn_dims *dims, int32_t symbol);
bool attn_dim_is_given(const struct attn_dims *dims, attnrun_dim dim);
/* The symbol that a dim is; -1 of constants, of unknown dims, and of what is made of symbols. */
int32_t attn_dims_plain_of(const struct attn_dims *dims, attnrun_dim dim);
/* The symbol made of a and b, or of sorted factors; -1 where the table is full. */
int32_t attn_dims_derived(struct attn_dims *dims, enum dim_symbol_kind kind,
                          attnrun_dim a, attnrun_dim b);
/* Whether every run checks that `size` is not 0 where `other` is not. */
bool attn_dims_is_assumed(const struct attn_dims *dims, attnrun_dim size,
                          attnrun_dim other);
int32_t attn_dims_factors(struct attn_dims *dims, const int32_t *factors, int n);
/* The handle of constant + terms (sorted, no zeros); UNKNOWN where the table is full. */
attnrun_dim attn_dims_intern(struct attn_dims *dims, int64_t constant,
                             const struct dim_term *terms, int n_terms);
/* Bounds of an expression's value, given that plain symbols are sizes. */
void attn_dims_bounds(const struct attn_dims *dims,
                      const struct dim_expression *expression, int64_t *min,
                      int64_t *max);

#endif

/* dim.h - dimensions: constants and expressions of symbols, in one checked type.
 *
 * An expression is c + sum of k_i * s_i over symbols s_i. What is not linear (S*B, S/2,
 * max(S, T)) is a derived symbol, so equal expressions have equal handles. A table
 * belongs to a model and is written at load only; the plans of contexts use constants, or
 * UNKNOWN. */
#ifndef ATTN_DIM_H
#define ATTN_DIM_H

#include <stdbool.h>

#include "alloc.h"
#include "checked.h"

enum { ATTN_DIM_UNKNOWN = -1, ATTN_DIM_INVALID = -2 }; /* values of attnrun_dim.expr */

#define ATTN_MAX_DIM      (INT64_C(1) << 47)
#define ATTN_MAX_ELEMENTS (INT64_C(1) << 46)

struct attn_dims; /* the table */

struct attn_dims *attn_dims_create(struct attn_pool *pool);
/* The symbol of this name, made where new. NULL or "": a fresh one, named "u1", "u2", …
 * A symbol is a size, 0 … ATTN_MAX_DIM: min(S, 2^62) is S. UNKNOWN where `dims` is NULL.
 */
attnrun_dim attn_dim_symbol(struct attn_dims *dims, const char *name);

/* These symbols are constants from now on; the list is copied. */
attn_status attn_dims_fix(struct attn_dims *dims, const attnrun_fixed_dim *fixed,
                          int64_t n);
/* One of them that no text has named yet, or NULL. */
const char *attn_dims_unmet(const struct attn_dims *dims);

static inline attnrun_dim dim_of(int64_t value)
{
    return (attnrun_dim){ .value = value };
}
static inline bool dim_is_const(attnrun_dim d) { return d.expr == 0; }
static inline bool dim_is(attnrun_dim d, int64_t value)
{
    return d.expr == 0 && d.value == value;
}
/* A dim of an input of the main graph, as it is trusted: every run knows it. What is made of
 * symbols becomes a symbol of its own: exporters write "past + 1" for masks that are longer in the
 * first run. `input`: so does every symbol, which is then named after this input, too; NULL where
 * equal names are equal sizes. */
attnrun_dim attn_dim_trusted(struct attn_dims *dims, attnrun_dim dim, const char *input);
/* The same constant or the same expression; unknown ones are never equal. */
static inline bool dim_equal(attnrun_dim a, attnrun_dim b)
{
    return a.expr == b.expr && a.expr >= 0 && (a.expr > 0 || a.value == b.value);
}
/* False only where both are constants and differ. */
static inline bool dim_may_equal(attnrun_dim a, attnrun_dim b)
{
    return a.expr != 0 || b.expr != 0 || a.value == b.value;
}

/* Made of a fresh symbol: nothing but its place is known. */
bool attn_dim_is_vague(const struct attn_dims *dims, attnrun_dim dim);

/* a + b, which are the sizes of two parts that are joined: n where one is n - c and the other
 * min(c, n). Slices of what is shorter than c give nothing and n, and the first of these is written
 * n - c, too. */
attnrun_dim attn_dim_join(struct attn_dims *dims, attnrun_dim a, attnrun_dim b);

enum attn_dim_op { DIM_ADD, DIM_SUB, DIM_MUL, DIM_DIV, DIM_MIN, DIM_MAX, DIM_BROADCAST };
/* `dims` NULL: whatever is not constant becomes UNKNOWN. */
attnrun_dim attn_dim_combine(struct attn_dims *dims, enum attn_dim_op op, attnrun_dim a,
                             attnrun_dim b);
/* a must be divisible by b: S*B*4 / 4. INVALID where both are constants and it is not. */
attnrun_dim attn_dim_div_exact(struct attn_dims *dims, attnrun_dim a, attnrun_dim b);
/* Every run checks from now on that `size` is not 0 where `other` is not (attn_inputs_agree()).
 * False, with nothing to check: `size` may be negative, or inputs do not say what it is. */
bool attn_dims_assume_nonzero(struct attn_dims *dims, attnrun_dim size,
                              attnrun_dim other);
/* DIM_BROADCAST of what every run computes: where one is the minimum of the other and n, runs check
 * that n is not 0, so that the result is the other one. */
attnrun_dim attn_dims_broadcast(struct attn_dims *dims, attnrun_dim a, attnrun_dim b);
/* Writes "2*S+1" (or "128", "?") and returns `text`. */
const char *attn_dim_format(const struct attn_dims *dims, attnrun_dim dim, char *text,
                            size_t bytes);
/* Parses "N", "2*S+1", "batch": what dim_param holds; any other text is a symbol name. */
attnrun_dim attn_dim_parse(struct attn_dims *dims, const char *text);

/* ---- types ---- */
/* "f32[B,128]" for messages; one of 8 rotating buffers of this thread. */
const char *attn_type_format(const struct attn_dims *dims, const attnrun_type *type);
const char *attn_tensor_format(const attnrun_tensor *tensor);
/* Product of dims from..to-1. */
attnrun_dim attn_dims_product(struct attn_dims *dims, const attnrun_dim *d, int from,
                              int to);

#endif

/* dim_eval.h - values of dimensions where values of symbols are given: what test_dim.c checks
 * the identities of runtime/dim.h with.
 *
 * In: a table of dimensions, and a value for each of its symbols by number, -1 where there is
 * none (for symbols derived from others, as S*B, that is normal). Out: a dimension's value. */
#ifndef ATTN_TEST_DIM_EVAL_H
#define ATTN_TEST_DIM_EVAL_H

#include "dim_table.h"

int32_t dims_n_symbols(const struct attn_dims *dims);
/* The name as in the file; "" for a derived symbol. */
const char *dims_symbol_name(const struct attn_dims *dims, int32_t symbol);
/* The number of the symbol where `dim` is one named symbol and nothing else, else -1. */
int32_t dim_symbol_of(const struct attn_dims *dims, attnrun_dim dim);
/* False where the value of a symbol is missing, and where the value overflows, divides by 0,
 * or broadcasts sizes that do not fit. */
bool dim_eval(const struct attn_dims *dims, attnrun_dim dim, const int64_t *symbol_values,
              int64_t *value);

#endif

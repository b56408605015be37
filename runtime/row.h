/* row.h - the operand lists of an operator row ("x:T axes:I? rest:T*"). */
#ifndef ATTN_ROW_H
#define ATTN_ROW_H

#include <stdbool.h>

#include "alloc.h"
#include "status.h"

enum { ROW_ANY = 0 }; /* attn_operand.kind: checked by infer() */

struct attn_operand {
    char name[32];
    char type_variable
        [16];        /* key into types, or "" where the dtypes are listed in place */
    uint32_t dtypes; /* allowed, one bit each */
    int32_t kind;    /* ATTNRUN_TENSOR, SEQUENCE, OPTIONAL, MAP, …, or ROW_ANY */
    bool optional, variadic, mixed; /* '?', '*', '!' */
};

/* Reads operand `index` of `list` (a variadic last one stands for all that follow). False
 * where there is none. Malformed text gives an operand without dtypes. */
bool attn_row_operand(const attnrun_op_def *row, const char *list, int index,
                      struct attn_operand *operand);
/* Operands listed; *variadic: the last one takes any number. */
int attn_row_count(const char *list, bool *variadic);

/* The lists of a row, read once for each model. */
struct attn_row {
    const attnrun_op_def *op;
    const struct attn_operand *in, *out;
    int32_t n_in, n_out;
    struct attn_row *next; /* of the same hash */
};

/* Rows by address; zero is an empty table. */
struct attn_row_table {
    struct attn_row *slots[256];
};

/* The lists of `op`, in the pool; NULL without memory. */
const struct attn_row *attn_row_read(struct attn_row_table *table, struct attn_pool *pool,
                                     const attnrun_op_def *op);
/* Operand `index` of a list of n; a variadic last one stands for all that follow. NULL where
 * there is none. */
static inline const struct attn_operand *row_operand(const struct attn_operand *list,
                                                     int32_t n, int32_t index)
{
    if (index < n)
        return &list[index];
    return n > 0 && list[n - 1].variadic ? &list[n - 1] : NULL;
}
static inline bool row_is_variadic(const struct attn_operand *list, int32_t n)
{
    return n > 0 && list[n - 1].variadic;
}
/* Fails with a sentence where the row breaks the rules. */
attn_status attn_row_check(const attnrun_op_def *row);

#endif

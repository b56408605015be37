/* row.h - the operand lists of an operator row ("x:T axes:I? rest:T*"), read on demand.
 */
#ifndef ATTN_ROW_H
#define ATTN_ROW_H

#include <stdbool.h>

#include "status.h"

enum { ROW_ANY = 0 }; /* attn_operand.kind: checked by infer() */

struct attn_operand {
    char name[32];
    char letter[16]; /* key into types, or "" where the dtypes are listed in place */
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
/* Fails with a sentence where the row breaks the rules. */
attn_status attn_row_check(const attnrun_op_def *row);

#endif

/* op_symbols.h - the names of the operators' rows in the static library. */
#ifndef ATTNRUN_TOOLS_OP_SYMBOLS_H
#define ATTNRUN_TOOLS_OP_SYMBOLS_H

#include <attnrun.h>

/* The static library has its rows under a prefix (tools/prefix_symbols.cmake). */
#define OP_SYMBOL_PREFIX "attn_"
extern const struct op_symbol {
    const char *symbol; /* "attn_op_relu_6" */
    const attnrun_op_def *row;
} op_symbols[];
extern const int32_t op_n_symbols;
/* The index of a built-in row, or -1: it is of a plugin. */
int32_t op_symbol_find(const attnrun_op_def *row);

#endif

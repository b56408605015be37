/* op_symbols.c - the names of the operators' rows, for what writes lists of them. In go the rows of
 * ops/op_list.def, through the build; out come their symbols. */
#include "op_symbols.h"

#define OP(row) extern const attnrun_op_def attn_##row;
#include "op_rows.def"
#undef OP
const struct op_symbol op_symbols[] = {
#define OP(row) { OP_SYMBOL_PREFIX #row, &attn_##row },
#include "op_rows.def"
#undef OP
};
const int32_t op_n_symbols = (int32_t)(sizeof op_symbols / sizeof *op_symbols);

int32_t op_symbol_find(const attnrun_op_def *row)
{
    for (int32_t i = 0; i < op_n_symbols; i++)
        if (op_symbols[i].row == row)
            return i;
    return -1;
}

/* op_list.c - the registry of operators. In: one line per operator row, grouped by folder
 * in the .def files, or the rows of the file that ATTNRUN_OPS of CMake names. Out:
 * attn_ops[]. */
#include "../runtime/graph.h"

#ifdef ATTN_OPS_LISTED
#define ROWS "op_rows_used.def"
#else
#define ROWS "op_list.def"
#endif

#define OP(row) extern const attnrun_op_def row;
#include ROWS
#undef OP

const attnrun_op_def *const attn_ops[] = {
#define OP(row) &row,
#include ROWS
#undef OP
    NULL
};

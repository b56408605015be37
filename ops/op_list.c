/* op_list.c - the registry: one line per operator row, grouped by folder in the .def
 * files. */
#include "../runtime/graph.h"

#define OP(row) extern const attnrun_op_def row;
#include "op_list.def"
#undef OP

const attnrun_op_def *const attn_ops[] = {
#define OP(row) &row,
#include "op_list.def"
#undef OP
    NULL
};

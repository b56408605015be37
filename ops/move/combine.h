/* combine.h - the reductions of the scatter operators: y[i] = y[i] op x[i], for each
 * element type. In: n elements x. Out: y, in place. */
#ifndef OP_COMBINE_H
#define OP_COMBINE_H

#include "../../runtime/op.h"

#define OP_REDUCTIONS "none|add|mul|max|min" /* in the order of the enum */
enum op_reduction {
    OP_REDUCE_NONE,
    OP_REDUCE_ADD,
    OP_REDUCE_MUL,
    OP_REDUCE_MAX,
    OP_REDUCE_MIN
};

/* y[i] = y[i] op x[i] for n dense elements. */
typedef void (*op_combine_fn)(void *y, const void *x, int64_t n);
/* NULL for OP_REDUCE_NONE, and where the type has no such reduction. */
op_combine_fn op_combine_find(int32_t dtype, int32_t reduction);
/* Fails where the reduction is not defined for the type of input 0. */
attn_status op_combine_check(const attnrun_step *step, int32_t reduction);

#endif

/* einsum_equation.h - an einsum equation as labels: one for each dim of each operand, and
 * for each dim of the output. */
#ifndef ATTN_EINSUM_EQUATION_H
#define ATTN_EINSUM_EQUATION_H

#include "../../runtime/op.h"

enum { EINSUM_OPERANDS = 16, EINSUM_LABELS = 32, EINSUM_OUT = EINSUM_OPERANDS };

/* The dims of "..." are labels 0 … n_ellipsis - 1, named labels follow in the order of the
 * text. */
struct einsum_equation {
    int n_operands, n_labels, n_ellipsis;
    int rank[EINSUM_OPERANDS + 1]; /* [EINSUM_OUT]: the output */
    int8_t labels[EINSUM_OPERANDS + 1][ATTNRUN_MAX_RANK];
};

/* Reads the equation for inputs of known ranks. E_ATTR where it is malformed, E_SHAPE
 * where it does not fit the ranks. */
attn_status attn_einsum_parse(const attnrun_step *step, attnrun_string whole,
                              struct einsum_equation *equation);

#endif

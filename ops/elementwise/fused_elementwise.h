/* fused_elementwise.h - the program of a FusedElementwise node, as the operator runs it
 * and as rewrite/elementwise_chain.c writes it. */
#ifndef ATTN_FUSED_ELEMENTWISE_H
#define ATTN_FUSED_ELEMENTWISE_H

/* An instruction is FUSED_WORDS numbers of the attribute `code`:
 *
 *   unary   opcode, operand, index of its two parameters in `numbers`, 0
 *   binary  opcode, operand, operand, 0
 *   where   FUSED_where, input that is b8, operand, operand
 *
 * An operand below 0 is numbers[-1 - operand], then come the inputs, then the results of
 * the instructions before. The last instruction gives the output. */
/* clang-format off */
enum fused_opcode {
#define UNARY_F32(name, expression) FUSED_##name,
#include "../kernels/unary_f32.def"
    UNARY_F32(sqrt, ) UNARY_F32(floor, ) UNARY_F32(ceil, ) UNARY_F32(round, )
#undef UNARY_F32
    FUSED_UNARY_END,
    FUSED_BEFORE_BINARY = FUSED_UNARY_END - 1,
#define BINARY_F32(name, expression) FUSED_##name,
#include "../kernels/binary_f32.def"
#undef BINARY_F32
    FUSED_where,
    FUSED_OPCODES
};
/* clang-format on */

enum {
    FUSED_WORDS = 4,
    FUSED_MOST_CODE = 48, /* instructions */
    FUSED_MOST_INPUTS = 12,
    FUSED_TILE = 1024 /* elements: 4 KiB a result */
};

#endif

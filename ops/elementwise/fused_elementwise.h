/* fused_elementwise.h - the program of a FusedElementwise node, which the operator runs
 * and rewrite/elementwise_chain.c writes. */
#ifndef ATTN_FUSED_ELEMENTWISE_H
#define ATTN_FUSED_ELEMENTWISE_H

/* An instruction is FUSED_WORDS numbers of the attribute `code`:
 *
 *   unary   opcode, operand, index of its two parameters in `numbers`, 0
 *   binary  opcode, operand, operand, 0
 *   where   FUSED_WHERE, input that is b8, operand, operand
 *
 * An operand below 0 is numbers[-1 - operand], then come the inputs, then the results of
 * the instructions before. The last instruction gives the output. */
/* clang-format off */
#define FUSED_UNARY_KERNELS(X)                                                           \
    X(abs) X(atan) X(ceil) X(celu) X(clip) X(cos) X(cube) X(elu) X(erf) X(exp) X(floor)  \
    X(gelu) X(gelu_tanh) X(hard_sigmoid) X(hard_swish) X(leaky_relu) X(log) X(mish)      \
    X(neg) X(pow_half) X(reciprocal) X(relu) X(round) X(sigmoid) X(sign) X(sin)          \
    X(softplus) X(softsign) X(sqrt) X(swish) X(tan) X(tanh) X(thresholded_relu)
#define FUSED_BINARY_KERNELS(X) X(add) X(sub) X(mul) X(div) X(max) X(min) X(prelu)

#define FUSED_OPCODE(kernel) FUSED_##kernel,
enum fused_opcode {
    FUSED_UNARY_KERNELS(FUSED_OPCODE)
    FUSED_UNARY_END,
    FUSED_LAST_UNARY = FUSED_UNARY_END - 1,
    FUSED_BINARY_KERNELS(FUSED_OPCODE)
    FUSED_WHERE,
    FUSED_OPCODES
};
/* clang-format on */

enum {
    FUSED_WORDS = 4,
    FUSED_MAX_CODE = 48, /* instructions */
    FUSED_MAX_INPUTS = 12,
    FUSED_TILE = 1024 /* elements: 4 KiB a result */
};

#endif

/* mask_code.h - the format of a mask program, which FusedAttention runs and
 * rewrite/write_mask.c writes. mask_program.h describes what a program computes. */
#ifndef ATTN_MASK_CODE_H
#define ATTN_MASK_CODE_H

enum attn_mask_opcode {
    MASK_INT,      /* the number a, of dtype b */
    MASK_FLOAT,    /* the f32 whose bits are a */
    MASK_AT_QUERY, /* i64: the position of the query */
    MASK_AT_KEY,
    MASK_NEG,
    MASK_ABS,
    MASK_NOT,
    MASK_CAST, /* a to dtype b */
    MASK_ADD,
    MASK_SUB,
    MASK_MUL,
    MASK_MIN,
    MASK_MAX,
    MASK_MOD, /* of integers, with the sign of b, a number above 0 */
    MASK_LESS,
    MASK_LESS_EQUAL,
    MASK_GREATER,
    MASK_GREATER_EQUAL,
    MASK_EQUAL,
    MASK_AND,
    MASK_OR,
    MASK_XOR,
    MASK_WHERE,
    MASK_OPCODES
};

/* The numbers of the attribute `mask`; there are MASK_CONSTANTS of them. */
enum attn_mask_fact {
    MASK_FACT_KEEP, /* operand, or -1 */
    MASK_FACT_ADD,
    MASK_FACT_FILL,    /* bits of an f32 */
    MASK_FACT_QUERIES, /* no more of them: the constants in the mask end; -1: any number */
    MASK_FACT_KEYS,
    MASK_CONSTANTS
};

/* The axes of pairs. In attention in blocks (masked.h) queries and keys are counted
 * within their block; otherwise there is one block. */
enum { MASK_BLOCK, MASK_BATCH, MASK_HEAD, MASK_QUERY, MASK_KEY, MASK_AXES };

enum { MASK_WORDS = 4, MASK_MAX_CODE = 40, MASK_MAX_LEAVES = 10 };

#endif

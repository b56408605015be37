/* isa_table.c - the table of kernels of one instruction set; the file is compiled once
 * for each set. If a set has no text of its own for a kind of rows, the kernels come from
 * its nearest parent that has one (ATTN_ISA_FLOATS …). In: the rows of kernels.def. Out:
 * one struct attn_kernels. */
#include "isa.h"
#include "kernels.h"

#define TABLE      ATTN_CAT4(attn_, table, _, ATTN_ISA_SUFFIX)
#define TABLE_BF16 ATTN_CAT4(attn_, table_bf16, _, ATTN_ISA_SUFFIX)
extern const struct attn_kernels TABLE, TABLE_BF16;

#ifdef ATTN_KERNELS_BY_USE
const struct attn_kernels TABLE = { .vec_bytes = VEC_BYTES,
                                    .tiles = V_HAS_TILES,
                                    .set = ATTN_ISA_SET };
const struct attn_kernels TABLE_BF16 = { .vec_bytes = VEC_BYTES,
                                         .products_bf16 = true,
                                         .dots_bf16 = V_HAS_DOT_BF16,
                                         .tiles = V_HAS_TILES,
                                         .tiles_bf16 = V_HAS_TILES_BF16,
                                         .set = ATTN_ISA_SET + 1 };
#else
#define OF(name, set) ATTN_CAT4(attn_, name, _, set)

#define KERNEL(type, name, arguments)       type OF(name, ATTN_ISA_FLOATS) arguments;
#define KERNEL_BYTES(type, name, arguments) type OF(name, ATTN_ISA_BYTES) arguments;
#define KERNEL_TILES(type, name, arguments) type OF(name, ATTN_ISA_TILES) arguments;
#define KERNEL_PAIRS(type, name, arguments) type OF(name, ATTN_ISA_PAIRS) arguments;
#include "kernels.def"
#undef KERNEL

#define ROW(name, set) .name = OF(name, set),
#if V_HAS_DOT_BF16
#define ROW_WORDS(name) ROW(name, ATTN_ISA_PAIRS)
#else
#define ROW_WORDS(name)
#endif

const struct attn_kernels TABLE = {
    .vec_bytes = VEC_BYTES,
    .tiles = V_HAS_TILES,
#define KERNEL(type, name, arguments)       ROW(name, ATTN_ISA_FLOATS)
#define KERNEL_BYTES(type, name, arguments) ROW(name, ATTN_ISA_BYTES)
#define KERNEL_TILES(type, name, arguments) ROW(name, ATTN_ISA_TILES)
#define KERNEL_PAIRS(type, name, arguments) ROW(name, ATTN_ISA_PAIRS)
#define KERNEL_WORDS(type, name, arguments) ROW_WORDS(name)
#include "kernels.def"
#undef KERNEL
};

/* The same for a model whose products are computed in bf16. */
const struct attn_kernels TABLE_BF16 = {
    .vec_bytes = VEC_BYTES,
    .products_bf16 = true,
    .dots_bf16 = V_HAS_DOT_BF16,
    .tiles = V_HAS_TILES,
    .tiles_bf16 = V_HAS_TILES_BF16,
#define KERNEL(type, name, arguments)               ROW(name, ATTN_ISA_FLOATS)
#define KERNEL_BYTES(type, name, arguments)         ROW(name, ATTN_ISA_BYTES)
#define KERNEL_TILES(type, name, arguments)         ROW(name, ATTN_ISA_TILES)
#define KERNEL_PAIRS(type, name, arguments)         ROW(name, ATTN_ISA_PAIRS)
#define KERNEL_WORDS(type, name, arguments)         ROW_WORDS(name)
#define KERNEL_PRODUCT(type, name, bf16, arguments) .name = OF(bf16, ATTN_ISA_PAIRS),
#include "kernels.def"
#undef KERNEL
};
#endif

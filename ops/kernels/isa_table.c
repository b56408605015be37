/* isa_table.c - the table of kernels of one instruction set, compiled once for each. A set
 * with texts of KERNEL_DOT rows alone has the other kernels from ATTN_ISA_FLOATS, its next
 * parent that has a text of all. */
#include "kernels.h"

#define CAT4_(a, b, c, d) a##b##c##d
#define CAT4(a, b, c, d)  CAT4_(a, b, c, d)
#define SHARED(name)      CAT4(attn_, name, _, ATTN_ISA_FLOATS)
#define OWN(name)         CAT4(attn_, name, _, ATTN_ISA_SUFFIX)

#define TABLE      CAT4(attn_, table, _, ATTN_ISA_SUFFIX)
#define TABLE_BF16 CAT4(attn_, table_bf16, _, ATTN_ISA_SUFFIX)
extern const struct attn_kernels TABLE, TABLE_BF16;

#ifdef ATTN_KERNELS_BY_USE
const struct attn_kernels TABLE = { .vec_bytes = VEC_BYTES, .set = ATTN_ISA_SET };
const struct attn_kernels TABLE_BF16 = { .vec_bytes = VEC_BYTES,
                                         .products_bf16 = true,
                                         .set = ATTN_ISA_SET + 1 };
#else
#define KERNEL(type, name, arguments)     type SHARED(name) arguments;
#define KERNEL_DOT(type, name, arguments) type OWN(name) arguments;
#include "kernels.def"
#undef KERNEL

const struct attn_kernels TABLE = {
    .vec_bytes = VEC_BYTES,
#define KERNEL(type, name, arguments)     .name = SHARED(name),
#define KERNEL_DOT(type, name, arguments) .name = OWN(name),
#include "kernels.def"
#undef KERNEL
};

/* The same for a model whose products are computed in bf16. */
const struct attn_kernels TABLE_BF16 = {
    .vec_bytes = VEC_BYTES,
    .products_bf16 = true,
#define KERNEL(type, name, arguments)               .name = SHARED(name),
#define KERNEL_DOT(type, name, arguments)           .name = OWN(name),
#define KERNEL_PRODUCT(type, name, bf16, arguments) .name = OWN(bf16),
#include "kernels.def"
#undef KERNEL
};
#endif

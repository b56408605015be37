/* by_use.c - the arrays of a library with ATTN_KERNELS_BY_USE (kernels.h): of each kernel the texts
 * of all sets, each twice, the second for models whose products are of bf16. In go the rows of
 * kernels.def and, from the build, FLOATS(name) and OWN(name): that list, of sets with a text of
 * all kernels and of the sets themselves; PRODUCTS(name, bf16); and TEXTS(), which declares all. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_types.h"
#include "kernel_sets.h"

#define KERNEL(type, name, arguments) TEXTS(type, name, arguments)
#include "kernels.def"
#undef KERNEL

#define KERNEL(type, name, arguments)                                                    \
    extern type(*const attn_kernel_##name[]) arguments;                                  \
    type(*const attn_kernel_##name[]) arguments = { FLOATS(name) };
#define KERNEL_DOT(type, name, arguments)                                                \
    extern type(*const attn_kernel_##name[]) arguments;                                  \
    type(*const attn_kernel_##name[]) arguments = { OWN(name) };
#define KERNEL_PRODUCT(type, name, bf16, arguments)                                      \
    extern type(*const attn_kernel_##name[]) arguments;                                  \
    type(*const attn_kernel_##name[]) arguments = { PRODUCTS(name, bf16) };
#include "kernels.def"
#undef KERNEL

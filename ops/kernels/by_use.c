/* by_use.c - the arrays of a library with ATTN_KERNELS_BY_USE (kernels.h). For each
 * kernel an array holds the texts of all instruction sets, each twice; the second one is
 * for models whose products are of bf16. In: the rows of kernels.def and, from the build,
 * for each kind of row FLOATS(name), BYTES(name) …: that list, of the sets that have the
 * texts; PRODUCTS(name, bf16); and TEXTS(), which declares all. Out: the arrays. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_types.h"
#include "kernel_sets.h"

#define KERNEL(type, name, arguments) TEXTS(type, name, arguments)
#include "kernels.def"
#undef KERNEL

#define ROW(type, name, arguments, ...)                                                  \
    extern type(*const attn_kernel_##name[]) arguments;                                  \
    type(*const attn_kernel_##name[]) arguments = { __VA_ARGS__ };
#define KERNEL(type, name, arguments)       ROW(type, name, arguments, FLOATS(name))
#define KERNEL_BYTES(type, name, arguments) ROW(type, name, arguments, BYTES(name))
#define KERNEL_TILES(type, name, arguments) ROW(type, name, arguments, TILES(name))
#define KERNEL_PAIRS(type, name, arguments) ROW(type, name, arguments, PAIRS(name))
#define KERNEL_WORDS(type, name, arguments) ROW(type, name, arguments, WORDS(name))
#define KERNEL_PRODUCT(type, name, bf16, arguments)                                      \
    ROW(type, name, arguments, PRODUCTS(name, bf16))
#include "kernels.def"
#undef KERNEL

/* kernels.h - the kernel table: one struct of function pointers per instruction set,
 * chosen once by the runtime. Rows are in kernels.def. Kernels see pointers, counts and
 * strides; no shapes, nodes or threads. */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_types.h"

struct attn_kernels {
    int vec_bytes;
    bool products_bf16; /* KERNEL_PRODUCT rows: those of bf16 */
#define KERNEL(type, name, arguments) type(*name) arguments;
#include "kernels.def"
#undef KERNEL
};

#endif

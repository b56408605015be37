/* kernels.h - the kernel table: one struct of function pointers per instruction set. The
 * runtime chooses a table once. The rows are in kernels.def. Kernels receive pointers,
 * counts and strides; they know no shapes, nodes or threads.
 *
 * A library with the operators of a list (ATTN_KERNELS_BY_USE) must not contain the
 * kernels that none of them calls, and a table would keep all of them. There each kernel
 * has an array of its own, with a pointer for each set, and the table is the index of a
 * set in these arrays. The member that an operator names is a macro of kernel_names.h,
 * which the build writes, for `set[the array]`. A linker that drops unreferenced sections
 * (--gc-sections) then drops arrays and kernels. */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_types.h"

#ifdef ATTN_KERNELS_BY_USE
struct attn_kernels {
    int vec_bytes;
    bool products_bf16, dots_bf16, tiles, tiles_bf16;
    int set; /* place in each array */
};
#define KERNEL(type, name, arguments) extern type(*const attn_kernel_##name[]) arguments;
#include "kernels.def"
#undef KERNEL
#include "kernel_names.h"
#else
struct attn_kernels {
    int vec_bytes;
    bool products_bf16; /* KERNEL_PRODUCT rows: those of bf16 */
    bool dots_bf16;     /* and the set multiplies pairs of bf16, else floats by weights
                         * of bf16; */
    bool tiles;         /* of bytes (AMX): KERNEL_TILES rows have a text for them */
    bool tiles_bf16;    /* tiles of pairs: some ten times as fast as floats */
#define KERNEL(type, name, arguments) type(*name) arguments;
#include "kernels.def"
#undef KERNEL
};
#endif

#endif

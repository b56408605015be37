/* table.c - the kernel table of each instruction set. Those with VNNI or AMX have the
 * kernels of KERNEL_DOT rows from a text of their own, the others are shared. */
#include "kernels.h"

#define KERNEL(type, name, arguments) type attn_##name##_base arguments;
#include "kernels.def"
#undef KERNEL
static const struct attn_kernels table_base = {
    .isa = 0,
    .vec_bytes = 16,
#define KERNEL(type, name, arguments) .name = attn_##name##_base,
#include "kernels.def"
#undef KERNEL
};

#if defined(__x86_64__)
#define KERNEL(type, name, arguments) type attn_##name##_avx2 arguments;
#include "kernels.def"
#undef KERNEL
static const struct attn_kernels table_avx2 = {
    .isa = 1,
    .vec_bytes = 32,
#define KERNEL(type, name, arguments) .name = attn_##name##_avx2,
#include "kernels.def"
#undef KERNEL
};

#if ATTN_HAVE_AVX_VNNI
#define KERNEL(type, name, arguments)
#define KERNEL_DOT(type, name, arguments) type attn_##name##_avx2_vnni arguments;
#include "kernels.def"
#undef KERNEL
static const struct attn_kernels table_avx2_vnni = {
    .isa = 1,
    .vec_bytes = 32,
#define KERNEL(type, name, arguments)     .name = attn_##name##_avx2,
#define KERNEL_DOT(type, name, arguments) .name = attn_##name##_avx2_vnni,
#include "kernels.def"
#undef KERNEL
};
#endif

#define KERNEL(type, name, arguments) type attn_##name##_avx512 arguments;
#include "kernels.def"
#undef KERNEL
static const struct attn_kernels table_avx512 = {
    .isa = 2,
    .vec_bytes = 64,
#define KERNEL(type, name, arguments) .name = attn_##name##_avx512,
#include "kernels.def"
#undef KERNEL
};

#define KERNEL(type, name, arguments)
#define KERNEL_DOT(type, name, arguments) type attn_##name##_avx512_vnni arguments;
#include "kernels.def"
#undef KERNEL
static const struct attn_kernels table_avx512_vnni = {
    .isa = 2,
    .vec_bytes = 64,
#define KERNEL(type, name, arguments)     .name = attn_##name##_avx512,
#define KERNEL_DOT(type, name, arguments) .name = attn_##name##_avx512_vnni,
#include "kernels.def"
#undef KERNEL
};

#if ATTN_HAVE_AMX
#define KERNEL(type, name, arguments)
#define KERNEL_DOT(type, name, arguments) type attn_##name##_avx512_amx arguments;
#include "kernels.def"
#undef KERNEL
static const struct attn_kernels table_avx512_amx = {
    .isa = 2,
    .vec_bytes = 64,
#define KERNEL(type, name, arguments)     .name = attn_##name##_avx512,
#define KERNEL_DOT(type, name, arguments) .name = attn_##name##_avx512_amx,
#include "kernels.def"
#undef KERNEL
};
#endif
#endif

const struct attn_kernels *attn_kernels_for(int isa, int dot);

/* What the compiler did not know is left out. */
const struct attn_kernels *attn_kernels_for(int isa, int dot)
{
#if defined(__x86_64__)
#if ATTN_HAVE_AMX
    if (isa == 2 && dot == 2)
        return &table_avx512_amx;
#endif
#if ATTN_HAVE_AVX_VNNI
    if (isa == 1 && dot != 0)
        return &table_avx2_vnni;
#endif
    if (isa == 2)
        return dot != 0 ? &table_avx512_vnni : &table_avx512;
    if (isa == 1)
        return &table_avx2;
#endif
    (void)isa;
    (void)dot;
    return &table_base;
}

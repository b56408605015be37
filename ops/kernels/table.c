/* table.c - the kernel table of each instruction set. */
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
#endif

const struct attn_kernels *attn_kernels_for(int isa);

const struct attn_kernels *attn_kernels_for(int isa)
{
#if defined(__x86_64__)
    if (isa == 2)
        return &table_avx512;
    if (isa == 1)
        return &table_avx2;
#endif
    (void)isa;
    return &table_base;
}

/* table.c - which table of kernels belongs to an instruction set; isa_table.c makes the
 * tables. In: the rows of isa.def and, from the build, ATTN_HAVE_<name>, which is 1 where
 * a set is in the library and else 0, and ATTN_BF16, whether models may have their
 * products computed in bf16. Out: attn_kernels_for(). */
#include "kernels.h"

#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)
#define DECLARE_0(name)
#define DECLARE_1(name)                                                                  \
    extern const struct attn_kernels attn_table_##name, attn_table_bf16_##name;
#define TABLE_0(name) { NULL, NULL },
#define TABLE_1(name) { &attn_table_##name, &attn_table_bf16_##name },

#define ISA(name, ...) CAT(DECLARE_, ATTN_HAVE_##name)(name)
#include "isa.def"

static const struct attn_kernels *const tables[][2] = {
#define ISA(name, ...) CAT(TABLE_, ATTN_HAVE_##name)(name)
#include "isa.def"
};

const struct attn_kernels *attn_kernels_for(int isa, bool bf16);

const struct attn_kernels *attn_kernels_for(int isa, bool bf16)
{
#if !ATTN_BF16
    if (bf16)
        return NULL;
#endif
    return tables[isa][bf16];
}

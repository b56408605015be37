/* cpu.h - what this CPU can do, asked once: the largest instruction set that has kernels
 * here, and its products of bytes. */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include "status.h"

enum attn_isa { ATTN_ISA_BASE, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_COUNT };

/* An ISA is a list of features; those beyond the kernel table's three steps are bits. */
enum {
    ATTN_CPU_VNNI = 1,
    ATTN_CPU_AVX512_BF16 = 2,
    ATTN_CPU_AVX_VNNI = 4,
    ATTN_CPU_AMX = 8
};

enum attn_isa attn_cpu_isa(void); /* the best that CPU and OS support */
uint32_t attn_cpu_features(void); /* ATTN_CPU_ bits */
/* Products of bytes beside vectors of `isa`: 0 none, 1 VNNI, 2 AMX, which the OS is asked
 * for: it keeps 8 KiB more of a thread's registers once they are used. */
int attn_cpu_dot(enum attn_isa isa);
const char *attn_isa_name(enum attn_isa isa);
/* Parses "base", "avx2", "avx512", lowered to what the CPU has. E_USAGE for other words.
 */
attn_status attn_isa_parse(const char *name, enum attn_isa *isa);

#endif

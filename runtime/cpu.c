/* cpu.c - the instruction sets of this CPU. This file is compiled without any of them, so
 * that it runs anywhere; __builtin_cpu_supports also asks whether the OS saves the wide
 * registers. */
#include "cpu.h"

#include <stdbool.h>
#include <string.h>

static const char *const isa_names[ATTN_ISA_COUNT] = { "base", "avx2", "avx512" };

const char *attn_isa_name(enum attn_isa isa)
{
    return isa_names[isa >= 0 && isa < ATTN_ISA_COUNT ? isa : ATTN_ISA_BASE];
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Every feature that the build of the kernels is given. */
enum attn_isa attn_cpu_isa(void)
{
    __builtin_cpu_init();
    unsigned a, b, c = 0, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
    if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return ATTN_ISA_BASE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return ATTN_ISA_AVX512;
    return ATTN_ISA_AVX2;
}

uint32_t attn_cpu_features(void)
{
    uint32_t features = 0;
    unsigned a = 0, b, c, d;
    enum attn_isa isa = attn_cpu_isa();
    if (isa >= ATTN_ISA_AVX512 && __builtin_cpu_supports("avx512vnni"))
        features |= ATTN_CPU_VNNI;
    /* Leaf 7, subleaf 1: EAX bit 4 is AVX-VNNI, bit 5 AVX512-BF16. */
    if (isa >= ATTN_ISA_AVX2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
        if ((a >> 4 & 1) != 0)
            features |= ATTN_CPU_AVX_VNNI;
        if (isa >= ATTN_ISA_AVX512 && (a >> 5 & 1) != 0)
            features |= ATTN_CPU_AVX512_BF16;
    }
    /* Leaf 7: EDX bit 24 is AMX-TILE, bit 25 AMX-INT8. */
    if (isa >= ATTN_ISA_AVX512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
        (d >> 24 & 3) == 3)
        features |= ATTN_CPU_AMX;
    return features;
}

/* Refused too where the OS does not know tiles. */
static bool may_use_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

int attn_cpu_dot(enum attn_isa isa)
{
    const uint32_t features = attn_cpu_features();
    if (isa == ATTN_ISA_AVX2)
        return (features & ATTN_CPU_AVX_VNNI) != 0;
    if (isa != ATTN_ISA_AVX512 || (features & ATTN_CPU_VNNI) == 0)
        return 0;
    return (features & ATTN_CPU_AMX) != 0 && may_use_tiles() ? 2 : 1;
}

#else

enum attn_isa attn_cpu_isa(void) { return ATTN_ISA_BASE; }
uint32_t attn_cpu_features(void) { return 0; }
int attn_cpu_dot(enum attn_isa isa)
{
    (void)isa;
    return 0;
}

#endif

attn_status attn_isa_parse(const char *name, enum attn_isa *isa)
{
    enum attn_isa best = attn_cpu_isa();
    for (int i = 0; i < ATTN_ISA_COUNT; i++)
        if (name != NULL && strcmp(name, isa_names[i]) == 0) {
            *isa = (enum attn_isa)i < best ? (enum attn_isa)i : best;
            return ATTNRUN_OK;
        }
    return attn_fail(ATTNRUN_E_USAGE,
                     "'%s' is no instruction set, expected base, avx2, avx512",
                     attn_quote(name));
}

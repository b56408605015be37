/* cpu.c - finds the instruction sets that this CPU can run.
 *
 * In: the rows of ops/kernels/isa.def, CPUID and XCR0 (x86-64) or getauxval() (aarch64). Out: the
 * sets whose features both the CPU and the OS have. The file is compiled for the plainest CPU of
 * the machine, since it runs before anything is known. Cost: some instructions, once. */
#include "cpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "graph.h"

/* ---- features ---- */

enum feature {
#define CPU_X86(name, ...)     FEATURE_##name,
#define CPU_AARCH64(name, ...) FEATURE_##name,
#include "../ops/kernels/isa.def"
    FEATURES
};
enum {
    NONE = 0,
#define CPU_X86(name, ...)     name = 1 << FEATURE_##name,
#define CPU_AARCH64(name, ...) name = 1 << FEATURE_##name,
#include "../ops/kernels/isa.def"
};

/* What CPUID said: a virtual machine takes 20 to 70 microseconds for each. */
struct cpu_words {
    struct {
        uint32_t leaf, subleaf, words[4];
    } known[8];
    int n;
    bool asked_saved;
    uint32_t max_leaf, saved;
};

struct feature_row {
    const char *text;
    bool (*found)(const struct feature_row *row, struct cpu_words *words);
    uint32_t leaf, subleaf, word, mask, state;
};

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* EAX … EDX of a leaf, zeros of one that the CPU does not have. */
static const uint32_t *x86_leaf(struct cpu_words *w, uint32_t leaf, uint32_t subleaf)
{
    static const uint32_t none[4];
    for (int i = 0; i < w->n; i++)
        if (w->known[i].leaf == leaf && w->known[i].subleaf == subleaf)
            return w->known[i].words;
    if (w->max_leaf == 0)
        w->max_leaf = __get_cpuid_max(0, NULL);
    if (leaf > w->max_leaf || w->n == (int)(sizeof w->known / sizeof w->known[0]))
        return none;
    uint32_t *words = w->known[w->n].words;
    w->known[w->n].leaf = leaf;
    w->known[w->n++].subleaf = subleaf;
    __cpuid_count(leaf, subleaf, words[0], words[1], words[2], words[3]);
    return words;
}

/* The registers that the OS saves: without OSXSAVE no more than those of SSE. */
static uint32_t saved_registers(struct cpu_words *w)
{
    enum { OSXSAVE = 27 };
    uint32_t high;
    if (w->asked_saved)
        return w->saved;
    w->asked_saved = true;
    w->saved = 3;
    if ((x86_leaf(w, 1, 0)[2] >> OSXSAVE & 1) != 0)
        __asm__ volatile("xgetbv" : "=a"(w->saved), "=d"(high) : "c"(0));
    return w->saved;
}

static bool x86_found(const struct feature_row *row, struct cpu_words *w)
{
    return (x86_leaf(w, row->leaf, row->subleaf)[row->word] & row->mask) == row->mask &&
           (saved_registers(w) & row->state) == row->state;
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

static bool aarch64_found(const struct feature_row *row, struct cpu_words *words)
{
    (void)row;
    (void)words;
    return false;
}

#else

static bool x86_found(const struct feature_row *row, struct cpu_words *words)
{
    (void)row;
    (void)words;
    return false;
}

static bool may_use_tiles(void) { return false; }

#if defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

static bool aarch64_found(const struct feature_row *row, struct cpu_words *words)
{
    (void)words;
    const unsigned long bits = getauxval(row->word == 0 ? AT_HWCAP : AT_HWCAP2);
    return (bits & row->mask) == row->mask;
}

#else

static bool aarch64_found(const struct feature_row *row, struct cpu_words *words)
{
    (void)row;
    (void)words;
    return false;
}

#endif
#endif

static const struct feature_row features[FEATURES] = {
#define CPU_X86(name, text, leaf, subleaf, word, mask, state)                            \
    { text, x86_found, leaf, subleaf, word, mask, state },
#define CPU_AARCH64(name, text, word, mask) { text, aarch64_found, 0, 0, word, mask, 0 },
#include "../ops/kernels/isa.def"
};

/* Found once in a process; threads that find it at the same time find the same. */
static uint32_t cpu_features(void)
{
    static _Atomic uint32_t known;
    const uint32_t is_known = UINT32_C(1) << 31;
    uint32_t found = atomic_load_explicit(&known, memory_order_relaxed);
    if ((found & is_known) != 0)
        return found & ~is_known;
    struct cpu_words words = { .n = 0 };
    found = 0;
    for (int i = 0; i < FEATURES; i++)
        if (features[i].found(&features[i], &words))
            found |= UINT32_C(1) << i;
    atomic_store_explicit(&known, found | is_known, memory_order_relaxed);
    return found;
}
_Static_assert(FEATURES < 31, "one bit says that the others are known");

/* ---- sets ---- */

static const struct isa_row {
    const char *name;
    enum attn_isa parent;
    bool all_texts;
    uint32_t features;
} rows[ATTN_ISA_COUNT] = {
#define TEXTS_all   true
#define TEXTS_bytes false
#define TEXTS_tiles false
#define TEXTS_pairs false
#define ISA(name, parent, machine, texts, bytes, registers, f32, i8, features, flags)    \
    { #name, ATTN_ISA_##parent, TEXTS_##texts, features },
#include "../ops/kernels/isa.def"
};

const char *attn_isa_name(enum attn_isa isa) { return rows[isa].name; }

enum attn_isa attn_isa_of_floats(enum attn_isa isa)
{
    while (!rows[isa].all_texts)
        isa = rows[isa].parent;
    return isa;
}

/* Whether a set or one of its parents needs one of the features. */
static bool needs(enum attn_isa isa, uint32_t any)
{
    while ((rows[isa].features & any) == 0 && rows[isa].parent != isa)
        isa = rows[isa].parent;
    return (rows[isa].features & any) != 0;
}

bool attn_isa_has_bf16(enum attn_isa isa) { return needs(isa, AVX512_BF16); }

bool attn_isa_has_dots(enum attn_isa isa)
{
    return needs(isa, AVX_VNNI | AVX512_VNNI | ASIMD_DOT);
}

bool attn_cpu_has(enum attn_isa isa)
{
    const uint32_t found = cpu_features();
    for (; attn_kernels_for((int)isa, false) != NULL; isa = rows[isa].parent) {
        if ((found & rows[isa].features) != rows[isa].features)
            return false;
        if (isa == rows[isa].parent)
            return true;
    }
    return false;
}

/* Intel's cores since Sapphire Rapids multiply pairs of bf16 at half the rate of floats, as their
 * tiles are meant to do it: without these, floats by weights of bf16 are faster there. */
static bool has_slow_pairs(enum attn_isa isa)
{
    const uint32_t both = INTEL | AVX512_FP16;
    return needs(isa, AVX512_BF16) && !needs(isa, AMX_BF16) &&
           (cpu_features() & both) == both;
}

enum attn_isa attn_cpu_isa(void)
{
    int isa = ATTN_ISA_COUNT - 1;
    while (!attn_cpu_has((enum attn_isa)isa) || has_slow_pairs((enum attn_isa)isa))
        isa--;
    return (enum attn_isa)isa;
}

enum attn_isa attn_cpu_permitted(enum attn_isa isa)
{
    while ((rows[isa].features & (AMX | AMX_BF16)) != 0 && !may_use_tiles())
        isa = rows[isa].parent;
    return isa;
}

bool attn_cpu_needs_prefetch(void) { return (cpu_features() & INTEL) != 0; }

/* ---- names ---- */

static void add_word(char *text, size_t bytes, const char *word)
{
    const size_t length = strlen(text);
    snprintf(text + length, bytes - length, "%s%s", length > 0 ? " " : "", word);
}

void attn_cpu_describe(char *text, size_t bytes)
{
    const uint32_t found = cpu_features();
    text[0] = 0;
    for (int i = 0; i < FEATURES; i++)
        if ((found >> i & 1) != 0)
            add_word(text, bytes, features[i].text);
}

void attn_cpu_list(char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < ATTN_ISA_COUNT; i++)
        if (attn_cpu_has((enum attn_isa)i))
            add_word(text, bytes, rows[i].name);
}

attn_status attn_isa_parse(const char *name, enum attn_isa *isa)
{
#define ISA(name, ...) ", " #name
    static const char names[] =
#include "../ops/kernels/isa.def"
        ;
    for (int i = 0; i < ATTN_ISA_COUNT; i++) {
        if (name == NULL || strcmp(name, rows[i].name) != 0)
            continue;
        *isa = (enum attn_isa)i;
        while (!attn_cpu_has(*isa))
            *isa = rows[*isa].parent;
        return ATTNRUN_OK;
    }
    return attn_fail(ATTNRUN_E_USAGE, "'%s' is not an instruction set; known are %s",
                     attn_quote(name), names + 2);
}

/* kernels_main.c - runs the check of every kernel for every ISA of this CPU: see
 * checks.h. */
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/cpu.h"

const struct attn_kernels *attn_kernels_for(int isa, bool bf16);

static const struct {
    const char *name;
    void (*check)(struct check *c);
    enum { FLOATS, BYTES, PAIRS, WORDS } kind; /* of row: kernels.def */
} checks[] = {
#define KERNEL(type, name, arguments)       { #name, check_##name, FLOATS },
#define KERNEL_BYTES(type, name, arguments) { #name, check_##name, BYTES },
#define KERNEL_PAIRS(type, name, arguments) { #name, check_##name, PAIRS },
#define KERNEL_WORDS(type, name, arguments) { #name, check_##name, WORDS },
#include "../../ops/kernels/kernels.def"
#undef KERNEL
    { NULL, NULL, FLOATS },
};

struct options {
    bool bench, worst;
    uint64_t seed;
    const char *isa;
    char **names;
    int n_names;
};

static bool wanted(const struct options *options, const char *name)
{
    for (int i = 0; i < options->n_names; i++)
        if (strncmp(name, options->names[i], strlen(options->names[i])) == 0)
            return true;
    return options->n_names == 0;
}

/* Returns the number of kernels that failed. */
static int check_isa(const struct options *options, enum attn_isa isa,
                     int64_t *comparisons)
{
    const bool all_texts = attn_isa_of_floats(isa) == isa;
    int failed = 0;
    for (int i = 0; checks[i].name != NULL; i++) {
        const struct attn_kernels *bf16 = attn_kernels_for((int)isa, true);
        if (!wanted(options, checks[i].name) ||
            (!all_texts && checks[i].kind == FLOATS) ||
            (checks[i].kind == WORDS && (bf16 == NULL || !bf16->dots_bf16)))
            continue;
        struct check c = { .k = attn_kernels_for((int)isa, false),
                           .dots_bf16 = bf16 != NULL && bf16->dots_bf16,
                           .isa = attn_isa_name(isa),
                           .kernel = checks[i].name,
                           .random = options->seed * 2654435761u + 1,
                           .bench = options->bench };
        checks[i].check(&c);
        check_again(&c);
        *comparisons += c.comparisons;
        if (options->worst)
            printf("worst %s %s %.3g ulp, %.3g of the bound\n", c.kernel, c.isa,
                   c.worst_ulp, c.worst_share);
        if (c.failures > 0)
            printf("FAILED %s %s: %lld of %lld comparisons\n", c.isa, c.kernel,
                   (long long)c.failures, (long long)c.comparisons);
        failed += c.failures > 0;
    }
    return failed;
}

int main(int argc, char **argv)
{
    struct options options = { .seed = 1, .names = argv + argc };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            options.bench = true;
        } else if (strcmp(argv[i], "--worst") == 0) {
            options.worst = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            options.seed = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            options.isa = argv[++i];
        } else {
            options.names = argv + i;
            options.n_names = argc - i;
            break;
        }
    }
    int failed = 0;
    int64_t comparisons = 0;
    for (int i = 0; i < ATTN_ISA_COUNT; i++) {
        const enum attn_isa isa = (enum attn_isa)i;
        const bool wanted_isa =
            options.isa == NULL || strcmp(options.isa, attn_isa_name(isa)) == 0;
        if (wanted_isa && attn_cpu_has(isa) && attn_cpu_permitted(isa) == isa)
            failed += check_isa(&options, isa, &comparisons);
    }
    printf("kernels: %d failed, %lld comparisons, seed %llu\n", failed,
           (long long)comparisons, (unsigned long long)options.seed);
    return failed > 0;
}

/* operators_main.c - runs the checks of the operators of domain attnrun: see operator_harness.h. */
#include "harness_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *name;
    void (*check)(struct check *c);
} checks[] = {
#define CHECK(name) { #name, check_##name },
#include "checks.def"
#undef CHECK
};
enum { N_CHECKS = sizeof checks / sizeof *checks };

static struct check now; /* the one under way */

/* A read or write beyond an operand ends here. */
static void crashed(int signal)
{
    printf("crashed (signal %d)\n", signal);
    check_describe(&now);
    fflush(stdout);
    _exit(3);
}

static bool wanted(const char *name, char **names)
{
    if (*names == NULL)
        return true;
    for (; *names != NULL; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

/* Sets options of `c`; the names that follow them. */
static char **read_options(char **argv, struct check *c)
{
    char **at = argv + 1;
    for (; *at != NULL && strncmp(*at, "--", 2) == 0; at++) {
        if (strcmp(*at, "--verbose") == 0)
            c->verbose = true;
        else if (strcmp(*at, "--seed") == 0 && at[1] != NULL)
            c->seed = strtoull(*++at, NULL, 10);
        else if (strcmp(*at, "--round") == 0 && at[1] != NULL)
            c->only_round = strtoll(*++at, NULL, 10);
        else if (strcmp(*at, "--isa") == 0 && at[1] != NULL)
            c->only_isa = *++at;
        else if (strcmp(*at, "--every-isa") == 0 && at[1] != NULL)
            c->every_isa = strtoll(*++at, NULL, 10);
        else
            return NULL;
    }
    return at;
}

int main(int argc, char **argv)
{
    struct check options = { .seed = 1, .only_round = -1 };
    char **names = read_options(argv, &options);
    int n_run = 0, n_failed = 0;
    (void)argc;
    if (names == NULL) {
        fprintf(stderr, "usage: attention_checks [--seed N] [--round N] [--isa NAME] "
                        "[--every-isa N] [--verbose] [name …]\n");
        return 2;
    }
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
    signal(SIGFPE, crashed);
    for (int i = 0; i < N_CHECKS; i++) {
        if (!wanted(checks[i].name, names))
            continue;
        now = options;
        now.name = checks[i].name;
        check_start(&now);
        checks[i].check(&now);
        check_end(&now);
        n_run++;
        n_failed += now.failures > 0;
        printf("%s %s: %lld comparisons, %lld failures, seed %llu\n",
               now.failures > 0 ? "FAILED" : "passed", now.name,
               (long long)now.comparisons, (long long)now.failures,
               (unsigned long long)now.seed);
    }
    return n_failed > 0 || n_run == 0;
}

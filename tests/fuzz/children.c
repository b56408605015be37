/* children.c - in: what makes a case of a seed; out: the seeds of the cases that ended their
 * process or hang: they took more than HANG_S seconds, of which the processor worked on them for a
 * quarter, or WAIT_S seconds (other programs may have the processors). See children.h. */
#include "children.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io.h"

enum { HANG_S = 60, WAIT_S = 600, MAX_FINDINGS = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of the processor that a process has used. */
static double used_by(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_done(const struct fuzz_cases *cases, const struct fuzz_progress *progress,
                    double end)
{
    return cases->only || now() >= end ||
           (cases->n > 0 && progress->seed - cases->seed >= cases->n);
}

static void child(const struct fuzz_cases *cases, struct fuzz_progress *progress,
                  double end)
{
    do {
        cases->one_case(progress);
        progress->seed++;
    } while (!is_done(cases, progress, end));
    if (cases->end != NULL)
        cases->end();
    exit(0);
}

/* Waits for the child; false where it did not end by itself. */
static bool wait_for(pid_t pid, const struct fuzz_progress *progress)
{
    uint64_t seen = UINT64_MAX;
    double since = now(), used = used_by(pid);
    for (;;) {
        int status;
        const struct timespec pause = { .tv_nsec = 20000000 };
        const pid_t done = waitpid(pid, &status, WNOHANG);
        const uint64_t seed = __atomic_load_n(&progress->seed, __ATOMIC_RELAXED);
        if (done == pid && WIFSIGNALED(status))
            fprintf(stderr, "signal %d (%s)\n", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
        if (done == pid)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (done < 0 && errno != EINTR)
            return false;
        if (seed != seen) {
            seen = seed;
            since = now();
            used = used_by(pid);
        }
        const double waited = now() - since;
        if (waited > WAIT_S || (waited > HANG_S && used_by(pid) - used > HANG_S / 4)) {
            fprintf(stderr, "seed %llu: still running after %.0f s\n",
                    (unsigned long long)seed, waited);
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return false;
        }
        nanosleep(&pause, NULL);
    }
}

/* How many findings there are, or -1. */
static int run_children(const struct fuzz_cases *cases, struct fuzz_progress *shared)
{
    const double end = now() + cases->seconds;
    int findings = 0;
    shared->seed = cases->seed;
    while (findings < MAX_FINDINGS) {
        fflush(NULL);
        const pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return findings > 0 ? findings : -1;
        }
        if (pid == 0)
            child(cases, shared, end);
        if (!wait_for(pid, shared)) {
            findings++;
            fprintf(stderr, "FINDING: seed %llu\n", (unsigned long long)shared->seed);
            shared->seed++;
        }
        if (is_done(cases, shared, end))
            break;
    }
    return findings;
}

bool fuzz_take_option(struct fuzz_cases *cases, int argc, char **argv, int *i)
{
    const bool only = strcmp(argv[*i], "--only") == 0;
    if (*i + 1 == argc)
        return false;
    if (strcmp(argv[*i], "--seconds") == 0) {
        cases->seconds = strtod(argv[++*i], NULL);
        return true;
    }
    if (strcmp(argv[*i], "--cases") == 0) {
        cases->n = strtoull(argv[++*i], NULL, 10);
        return true;
    }
    if (!only && strcmp(argv[*i], "--seed") != 0)
        return false;
    cases->only = cases->only || only;
    cases->seed = strtoull(argv[++*i], NULL, 10);
    return true;
}

static int (*open_any)(const char *path, int flags, int mode);

/* Each runtime reads some twenty files of the system to know how much of the machine is its own,
 * which is half of the time of a small case, and the same for all: here it finds none. */
static int open_no_limits(const char *path, int flags, int mode)
{
    if (strncmp(path, "/sys/", 5) != 0 && strncmp(path, "/proc/", 6) != 0)
        return open_any(path, flags, mode);
    errno = ENOENT;
    return -1;
}

int fuzz_run_cases(const struct fuzz_cases *cases, int n_models)
{
    open_any = attn_io.open;
    attn_io.open = open_no_limits;
    struct fuzz_progress *shared = mmap(NULL, cases->bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    const int findings = run_children(cases, shared);
    if (findings < 0)
        return 2;
    if (cases->report != NULL)
        cases->report(shared);
    printf("seeds %llu to %llu, %d models as a start: %llu cases, %llu ran to the end, "
           "%d findings\n",
           (unsigned long long)cases->seed, (unsigned long long)shared->seed, n_models,
           (unsigned long long)shared->cases, (unsigned long long)shared->good, findings);
    return findings > 0 || shared->good == 0 ? 1 : 0;
}

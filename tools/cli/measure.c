/* measure.c - the peaks of products and the read bandwidth of this machine.
 *
 * Each thread works off small blocks and counts them by windows of time that are the same
 * for all threads; the rates of one window add up, and the best window is the result. So
 * no thread waits for another, and what else runs on the machine costs windows only.
 *
 * The peak of fp32 is the better of two loops: chains of multiply-adds, and as many separate
 * multiplications and additions, which some CPUs do beside each other at the same rate. The
 * peaks of bf16 and int8 are those of the instructions that the set has (measure_products.c).
 */
#include "measure.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli.h"
#include "measure_block.h"

enum {
    BLOCK_ROUNDS = 1 << 14,    /* of an arithmetic loop: some 25 us */
    PRODUCT_ROUNDS = 1 << 9,   /* of a loop of narrow products: a few us, with tiles 20 */
    BLOCK_BYTES = 1 << 17,     /* of a reading loop: a few us */
    BIG_BYTES = 256 << 20,     /* more than the last cache */
    L2_BYTES = 256 << 10,      /* more than the first cache, less than the second */
    HUGE_PAGE_BYTES = 2 << 20, /* fewer misses of the page tables' cache */
    WINDOWS_MAX = 100
};

struct loops {
    void (*fma)(struct block *), (*mul_add)(struct block *), (*read)(struct block *);
    int32_t lanes;
};

#define LOOP(name) name##_base
#define LOOP_TARGET
#define LOOP_BYTES 16
#include "measure_loops.h"
#if defined(__x86_64__)
#define LOOP(name)  name##_avx2
#define LOOP_TARGET __attribute__((target("avx2,fma")))
#define LOOP_BYTES  32
#include "measure_loops.h"
#define LOOP(name)  name##_avx512
#define LOOP_TARGET __attribute__((target("avx512f")))
#define LOOP_BYTES  64
#include "measure_loops.h"
#endif

/* What all threads do. */
struct job {
    void (*loop)(struct block *);
    double per_block; /* FLOPs or bytes */
    double window_ms;
    int32_t windows; /* at most WINDOWS_MAX */
    double start_ms; /* of the first window */
};
struct worker {
    const struct job *job;
    struct block block;
    char *data; /* its part of the buffer: NULL or whole blocks */
    size_t bytes, at;
    double rate[WINDOWS_MAX]; /* per ms */
    pthread_t thread;
    bool started;
};

static const struct loops *loops_of(const char *isa)
{
#if defined(__x86_64__)
    if (strncmp(isa, "avx512", 6) == 0)
        return &loops_avx512;
    if (strncmp(isa, "avx2", 4) == 0)
        return &loops_avx2;
#else
    (void)isa;
#endif
    return &loops_base;
}

static void next_block(struct worker *w)
{
    if (w->data == NULL)
        return;
    w->block.data = w->data + w->at;
    w->at += BLOCK_BYTES;
    if (w->at + BLOCK_BYTES > w->bytes)
        w->at = 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    const struct job *job = w->job;
    double now = cli_now_ms();
    while (now < job->start_ms)
        now = cli_now_ms();
    for (int32_t i = 0; i < job->windows; i++) {
        double planned = job->start_ms + i * job->window_ms, n = 0;
        /* The last block reaches into this window; longer than that, it was asleep. */
        double begin = now - planned < job->window_ms / 10 ? now : planned;
        while (now < planned + job->window_ms) {
            next_block(w);
            job->loop(&w->block);
            n += job->per_block;
            now = cli_now_ms();
        }
        w->rate[i] = n == 0 ? 0 : n / (now - begin);
    }
    return NULL;
}

/* The best sum of the workers' rates, in 1e9 per second; 0 where threads do not start. */
static double best_rate(struct worker *workers, int32_t n, struct job job)
{
    double best = 0;
    bool good = true;
    job.start_ms = cli_now_ms() + (n > 1 ? 1 + 0.1 * n : 0);
    for (int32_t i = 0; i < n; i++)
        workers[i].job = &job;
    for (int32_t i = 1; i < n; i++) {
        struct worker *w = &workers[i];
        w->started = pthread_create(&w->thread, NULL, work, w) == 0;
        good = good && w->started;
    }
    work(&workers[0]);
    for (int32_t i = 1; i < n; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
    for (int32_t k = 0; k < job.windows && good; k++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += workers[i].rate[k];
        best = sum > best ? sum : best;
    }
    return best / 1e6;
}

/* Gives each of n workers its part of the first `bytes` of the buffer. */
static void share(struct worker *workers, int32_t n, char *buffer, size_t bytes)
{
    size_t part = bytes / BLOCK_BYTES / (size_t)n * BLOCK_BYTES;
    for (int32_t i = 0; i < n; i++) {
        workers[i].data = buffer + (size_t)i * part;
        workers[i].bytes = part;
        workers[i].at = 0;
    }
}

static void measure_peak(const struct loops *loops, struct worker *workers, int32_t n,
                         int32_t windows, double *gflops)
{
    double turn = 12.0 * loops->lanes * BLOCK_ROUNDS;
    double fma =
        best_rate(workers, n, (struct job){ loops->fma, 2 * turn, 2, windows, 0 });
    double both =
        best_rate(workers, n, (struct job){ loops->mul_add, turn, 2, windows, 0 });
    *gflops = fma > both ? fma : both;
}

/* The rate of one thread and of all; 0 without such a loop. */
static void measure_products(void (*loop)(struct block *), double per_turn,
                             struct worker *workers, int32_t n, double *one, double *all)
{
    const struct job job = { loop, per_turn * PRODUCT_ROUNDS, 2, WINDOWS_MAX / 2, 0 };
    *one = *all = 0;
    if (loop == NULL)
        return;
    for (int32_t i = 0; i < n; i++)
        workers[i].block.n = PRODUCT_ROUNDS;
    *one = best_rate(workers, 1, job);
    *all = best_rate(workers, n, job);
    for (int32_t i = 0; i < n; i++)
        workers[i].block.n = BLOCK_ROUNDS;
}

static void measure_narrow(const struct product_loops *loops, struct worker *workers,
                           int32_t n, struct measured *m)
{
    if (loops == NULL)
        return;
    measure_products(loops->bf16, loops->bf16_flops, workers, n, &m->bf16_peak_gflops,
                     &m->bf16_peak_all_gflops);
    measure_products(loops->int8, loops->int8_ops, workers, n, &m->int8_peak_gops,
                     &m->int8_peak_all_gops);
}

static void measure_all(const struct loops *loops, struct worker *workers, int32_t n,
                        char *buffer, struct measured *m)
{
    const struct job reading = { loops->read, BLOCK_BYTES, 10, 40, 0 };
    measure_peak(loops, workers, 1, WINDOWS_MAX, &m->fp32_peak_gflops);
    measure_peak(loops, workers, n, WINDOWS_MAX, &m->fp32_peak_all_gflops);
    share(workers, 1, buffer, L2_BYTES);
    m->l2_read_gbs = best_rate(workers, 1, reading);
    share(workers, 1, buffer, BIG_BYTES);
    m->read_gbs = best_rate(workers, 1, reading);
    share(workers, n, buffer, BIG_BYTES);
    m->read_all_gbs = best_rate(workers, n, reading);
}

/* Values that stay near 1 for a block: no slow denormal numbers. */
static void start_values(struct worker *w)
{
    for (int32_t i = 0; i < 12; i++)
        w->block.start[i] = 1 + (float)i / 16;
    w->block.factor = 0.99999f;
    w->block.term = 0.00001f;
    w->block.n = BLOCK_ROUNDS;
}

attnrun_status measure_machine(const char *isa, int32_t threads,
                               struct measured *measured)
{
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    char *buffer = aligned_alloc(HUGE_PAGE_BYTES, BIG_BYTES);
    *measured = (struct measured){ 0 };
    if (workers != NULL && buffer != NULL) {
        madvise(buffer, BIG_BYTES, MADV_HUGEPAGE); /* a wish: it may be refused */
        memset(buffer, 1, BIG_BYTES);
        for (int32_t i = 0; i < threads; i++)
            start_values(&workers[i]);
        measure_narrow(measure_products_of(isa), workers, threads, measured);
        measure_all(loops_of(isa), workers, threads, buffer, measured);
    }
    bool memory = workers != NULL && buffer != NULL;
    free(buffer);
    free(workers);
    if (!memory)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a buffer of %d MB to measure",
                         BIG_BYTES >> 20);
    if (measured->fp32_peak_all_gflops <= 0 || measured->read_all_gbs <= 0)
        return tool_fail(ATTNRUN_E_MEMORY, "cannot start %d threads to measure", threads);
    return ATTNRUN_OK;
}

double measure_fp32_peak(const char *isa)
{
    struct worker worker;
    double gflops = 0;
    memset(&worker, 0, sizeof worker);
    start_values(&worker);
    measure_peak(loops_of(isa), &worker, 1, 25, &gflops);
    return gflops;
}

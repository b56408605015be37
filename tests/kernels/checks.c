/* checks.c - guarded memory, random data, comparisons and timing of the kernel checker.
 */
#include "checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, PATTERN = 0xA7, MAX_SHOWN = 8, LAST_SMALL = 67, LARGE = 1000 };

/* ---- cases ---- */
static void report(struct check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void verify_block(struct check *c, const struct check_block *b)
{
    const uint8_t *end = b->map + b->map_bytes - PAGE;
    for (const uint8_t *p = b->map + PAGE; p < end; p++)
        if ((p < b->data || p >= b->data + b->bytes) && *p != PATTERN) {
            report(c, "wrote outside its memory, %td bytes from the start of %zu",
                   p - b->data, b->bytes);
            return;
        }
}

void check_again(struct check *c)
{
    for (int i = 0; i < c->n_blocks; i++) {
        verify_block(c, &c->blocks[i]);
        munmap(c->blocks[i].map, c->blocks[i].map_bytes);
    }
    c->n_blocks = 0;
    c->place = (c->place + 1) % CHECK_PLACES;
}

size_t check_first_size(struct check *c)
{
    check_again(c);
    c->step = 0;
    c->size = 0;
    return 0;
}

/* Every size flush with the guard page behind it and at one offset; 1000 at all of them.
 */
size_t check_next_size(struct check *c)
{
    check_again(c);
    c->step++;
    if (c->step >= 2 * (LAST_SMALL + 1) + CHECK_PLACES)
        return SIZE_MAX;
    if (c->step < 2 * (LAST_SMALL + 1)) {
        c->size = (size_t)c->step / 2;
        c->place = c->step % 2 == 0 ? 0 : 1 + (int)c->size % (CHECK_PLACES - 1);
    } else {
        c->size = LARGE;
        c->place = c->step - 2 * (LAST_SMALL + 1);
    }
    return c->size;
}

/* ---- data ---- */
uint32_t check_random(struct check *c)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = c->random ^ c->random >> 29;
    return (uint32_t)(x * 0xbf58476d1ce4e5b9u >> 32);
}

int64_t check_below(struct check *c, int64_t below)
{
    return (int64_t)((uint64_t)check_random(c) % (uint64_t)below);
}

float check_normal(struct check *c)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += check_random(c) / 4294967296.0;
    return (float)sum;
}

static void *place_memory(struct check *c, size_t bytes, size_t unit)
{
    if (c->n_blocks == CHECK_BLOCKS) {
        fprintf(stderr, "%s: more than %d blocks in a case\n", c->kernel, CHECK_BLOCKS);
        exit(2);
    }
    struct check_block *b = &c->blocks[c->n_blocks++];
    size_t inner = (bytes + unit * CHECK_PLACES + PAGE - 1) / PAGE * PAGE;
    b->map_bytes = inner + 2 * PAGE;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    if (b->map == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    memset(b->map + PAGE, PATTERN, inner);
    mprotect(b->map, PAGE, PROT_NONE);
    mprotect(b->map + PAGE + inner, PAGE, PROT_NONE);
    b->bytes = bytes;
    b->data = b->map + PAGE;
    b->data += c->place == 0 ? inner - bytes : unit * (size_t)c->place;
    return b->data;
}

void *check_memory(struct check *c, size_t bytes) { return place_memory(c, bytes, 4); }

double *check_memory_f64(struct check *c, size_t n)
{
    return place_memory(c, n * sizeof(double), sizeof(double));
}

float *check_normal_f32(struct check *c, size_t n)
{
    float *x = check_memory(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = check_normal(c);
    return x;
}

uint16_t *check_stored(struct check *c, float *x, size_t n, int32_t type)
{
    uint16_t *narrow = check_memory(c, n * sizeof *narrow);
    if (type == ATTN_B_F16) {
        c->k->f32_to_f16(narrow, x, n);
        c->k->f16_to_f32(x, narrow, n);
    } else {
        c->k->f32_to_bf16(narrow, x, n);
        c->k->bf16_to_f32(x, narrow, n);
    }
    return narrow;
}

float *check_edge_f32(struct check *c, size_t n)
{
    static const float edges[] = { 0.0f,     -0.0f,   INFINITY, -INFINITY, NAN,
                                   1e-45f,   -1e-45f, 1e-38f,   -1e-39f,   3.4e38f,
                                   -3.4e38f, 1e-20f,  1.0f,     -1.0f,     0.5f,
                                   -0.5f,    88.7f,   -87.3f,   -103.9f,   16777216,
                                   1e10f,    -1e10f };
    float *x = check_memory(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = 8.0f * check_normal(c);
        if (check_below(c, 3) == 0)
            x[i] = edges[check_below(c, sizeof edges / sizeof *edges)];
    }
    return x;
}

void *check_bytes(struct check *c, size_t bytes)
{
    uint8_t *x = check_memory(c, bytes);
    for (size_t i = 0; i < bytes; i++)
        x[i] = (uint8_t)check_random(c);
    return x;
}

/* ---- comparisons ---- */
#include <stdarg.h>
static void report(struct check *c, const char *format, ...)
{
    c->failures++;
    if (c->shown++ >= MAX_SHOWN)
        return;
    va_list arguments;
    va_start(arguments, format);
    printf("%s %s (n %zu, place %d): ", c->isa, c->kernel, c->size, c->place);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

/* The distance from |want| to the next float. */
static double unit_in_last_place(double want)
{
    float w = fabsf((float)want);
    if (w < 1.17549435e-38f)
        return 1.4012984643e-45;
    if (w >= 3.4028234e38f)
        return 2.028240960365167e31;
    return (double)nextafterf(w, INFINITY) - (double)w;
}

void check_f32(struct check *c, size_t at, float got, double want, double ulp)
{
    c->comparisons++;
    if (isnan(want) ? isnan(got) : got == (float)want)
        return;
    double error = fabs((double)got - want) / unit_in_last_place(want);
    c->worst_ulp = fmax(c->worst_ulp, error);
    if (!(isfinite(got) && isfinite(want) && error <= ulp))
        report(c, "[%zu] is %.9g, expected %.9g: %.2f ulp, allowed %.2f", at, (double)got,
               want, error, ulp);
}

void check_near(struct check *c, size_t at, double got, double want, double tolerance)
{
    c->comparisons++;
    if (isnan(want) ? isnan(got) : got == want)
        return;
    c->worst_share = fmax(c->worst_share, fabs(got - want) / tolerance);
    if (!(isfinite(got) && isfinite(want) && fabs(got - want) <= tolerance))
        report(c, "[%zu] is %.9g, expected %.9g: off by %.3g, allowed %.3g", at, got,
               want, fabs(got - want), tolerance);
}

void check_i64(struct check *c, size_t at, int64_t got, int64_t want)
{
    c->comparisons++;
    if (got != want)
        report(c, "[%zu] is %" PRId64 ", expected %" PRId64, at, got, want);
}

void check_true(struct check *c, size_t at, bool condition, const char *what)
{
    c->comparisons++;
    if (!condition)
        report(c, "[%zu] %s", at, what);
}

/* ---- speed ---- */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void check_bench_start(struct check *c)
{
    c->bench_runs = -1;
    c->bench_best = 1e30;
}

bool check_bench_more(struct check *c, const char *label, double work, const char *unit)
{
    enum { RUNS = 200 };
    if (!c->bench)
        return false;
    double time = now();
    if (c->bench_runs >= 0 && time - c->bench_start < c->bench_best)
        c->bench_best = time - c->bench_start;
    if (++c->bench_runs == RUNS) {
        printf("%-7s %-22s %-28s %9.2f us %8.2f %s\n", c->isa, c->kernel, label,
               c->bench_best * 1e6, work / c->bench_best * 1e-9, unit);
        return false;
    }
    c->bench_start = now();
    return true;
}

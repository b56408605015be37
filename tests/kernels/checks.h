/* checks.h - the kernel checker: every kernel of kernels.def, in the table of every ISA
 * that this CPU has, against plain C in double.
 *
 * TO ADD A CHECK: for a row KERNEL(void, relu_f32, (float *y, const float *x, size_t n))
 * write `void check_relu_f32(struct check *c)` in tests/kernels/check_<area>.c and list
 * that file in tests/kernels/sources.cmake. A row without a check does not link. The
 * function is called once per ISA; c->k is the table under test:
 *
 *     void check_relu_f32(struct check *c)
 *     {
 *         CHECK_SIZES(c, n) {                          0 … 67 and 1000, all placements
 *             const float *x = check_edge_f32(c, n);   inf, NaN, denormals, large, random
 *             float *y = check_memory(c, n * sizeof *y);
 *             c->k->relu_f32(y, x, n);
 *             for (size_t i = 0; i < n; i++)
 *                 check_f32(c, i, y[i], x[i] < 0 ? 0 : (double)x[i], 0);    0 ulp
 *         }
 *         CHECK_BENCH(c, "relu", 8.0 * 1000, "GB/s")   runs with --bench only
 *             c->k->relu_f32(y, x, 1000);
 *     }
 *
 * Memory comes from check_memory(): it ends right before a page that faults (c->place 0),
 * or starts 4 * c->place bytes behind one, with a pattern around it that is looked at
 * after the case: over- and underruns are found. It lives until the next size or
 * check_again(). Inputs are not made read-only: compare them if a kernel could write
 * there.
 *
 * Usage: kernels [--bench] [--worst] [--seed N] [--isa NAME] [start of a kernel's name …]
 * --worst prints how far the results of each kernel were off, for tests/kernels/worst.py. */
#ifndef ATTN_CHECKS_H
#define ATTN_CHECKS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../ops/kernels/kernels.h"

enum { CHECK_PLACES = 6, CHECK_BLOCKS = 24 };

struct check_block {
    uint8_t *map, *data;
    size_t map_bytes, bytes;
};

struct check {
    const struct attn_kernels *k; /* the table under test */
    bool dots_bf16; /* the set multiplies pairs of bf16: what is packed is these */
    const char *isa, *kernel;
    int place; /* 0: flush with the guard page behind; p: 4 * p bytes after the one before
                */
    size_t size; /* of CHECK_SIZES, for messages */
    uint64_t random;
    bool bench;
    int64_t failures, comparisons;
    double worst_ulp, worst_share; /* of check_f32(); of the tolerance of check_near() */
    int shown;
    struct check_block blocks[CHECK_BLOCKS];
    int n_blocks;
    double bench_start, bench_best; /* seconds */
    int64_t bench_runs;
    int step; /* of CHECK_SIZES */
};

/* ---- cases ---- */
/* n = 0 … 67 and 1000, for placements in turn; memory of the last case is verified and
 * freed. */
#define CHECK_SIZES(c, n)                                                                \
    for (size_t n = check_first_size(c); n != SIZE_MAX; n = check_next_size(c))
size_t check_first_size(struct check *c);
size_t check_next_size(struct check *c);
/* Verifies the patterns around all memory of this case and frees it; the next placement.
 */
void check_again(struct check *c);

/* ---- data ---- */
uint32_t check_random(struct check *c);
/* 0 … below - 1 */
int64_t check_below(struct check *c, int64_t below);
/* About normal, mean 0, deviation 1. */
float check_normal(struct check *c);
/* Undefined content (not zero), between guards. */
void *check_memory(struct check *c, size_t bytes);
/* The same for n doubles, aligned to 8 bytes. */
double *check_memory_f64(struct check *c, size_t n);
/* Filled with check_normal(). */
float *check_normal_f32(struct check *c, size_t n);
/* The n numbers of x as f16 or bf16 (ATTN_B_F16, ATTN_B_BF16), to which x is rounded. */
uint16_t *check_stored(struct check *c, float *x, size_t n, int32_t type);
/* A third of them edge values: +-0, +-inf, NaN, denormals, huge, tiny; else normal * 8.
 */
float *check_edge_f32(struct check *c, size_t n);
/* Random bytes. */
void *check_bytes(struct check *c, size_t bytes);

/* ---- comparisons; `at` is the index shown in the message ---- */
/* Within `ulp` units in the last place of `want` as a float; NaN equals NaN. */
void check_f32(struct check *c, size_t at, float got, double want, double ulp);
/* |got - want| <= tolerance; both NaN, or the same infinity, is equal. */
void check_near(struct check *c, size_t at, double got, double want, double tolerance);
void check_i64(struct check *c, size_t at, int64_t got, int64_t want);
void check_true(struct check *c, size_t at, bool condition, const char *what);

/* ---- speed: the body runs until the best time is steady; `work` per run in bytes or
 * operations, `unit` "GB/s", "GFLOP/s" (1e9 of them per second). ---- */
#define CHECK_BENCH(c, label, work, unit)                                                \
    for (check_bench_start(c); check_bench_more((c), (label), (work), (unit));)
void check_bench_start(struct check *c);
bool check_bench_more(struct check *c, const char *label, double work, const char *unit);

#define KERNEL(type, name, arguments) void check_##name(struct check *c);
#include "../../ops/kernels/kernels.def"
#undef KERNEL

/* For kernels with tiles (AMX): perhaps a grid of n_pixels, and taps of the same inputs. */
void check_make_grid(struct check *c, struct attn_pixel_grid *grid,
                     struct attn_blocked_tap *taps, int64_t n_taps, int32_t *pixels,
                     int64_t n_pixels);

#endif

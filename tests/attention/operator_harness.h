/* operator_harness.h - operators of domain attnrun, as models of one node, against plain
 * loops in double: every instruction set of this CPU, one and three threads, constant,
 * symbolic and unknown shapes, both layouts.
 *
 * TO ADD A CHECK of an operator: one line CHECK(linformer_attention) in checks.def and
 * tests/attention/check_linformer_attention.c with
 *
 *     void check_linformer_attention(struct check *c)
 *     {
 *         CHECK_ROUNDS(c, 60) {                       each round has a seed of its own
 *             int64_t b = check_between(c, 0, 2), n = check_between(c, 1, 300), …
 *             check_begin(c, "LinformerAttention");
 *             check_heads_attrs(c, h, hkv);           q_num_heads, kv_num_heads
 *             if (check_chance(c, 50))
 *                 check_float(c, "scale", 0.3f);
 *             float *q = check_heads(c, "Q", b, n, h, d);          (b, n, h * d), filled
 *             float *k = check_heads(c, "K", b, nk, hkv, d), *v = …;
 *             float *e = check_weight(c, "E", DIMS(nk, slots));    constant or an input
 *             check_absent(c);                                     F
 *             uint8_t *mask = check_mask(c, "key_mask", b, nk);
 *             double *y = check_heads_output(c, "Y", b, n, h, dv); to be filled with
 *             reference(y, q, k, v, e, mask, …);                   what is expected
 *             check_run(c, CHECK_A);
 *         }
 *         …a refusal: build the case (data does not matter), then
 *         check_refuses(c, ATTNRUN_E_SHAPE, "input 3|expected rank");
 *         …scratch: build the case with n = 16384 and c->blank = true, then
 *         check_extra_memory(c, 2 << 20);
 *     }
 *
 * check_run() runs the case as it was built and, where it has heads, once more with
 * inputs of rank 4, which must give the same bits. Inputs end at a page that faults. The
 * library's memory is filled with 0xA5 and has guards.
 *
 * Usage: attention_checks [--seed N] [--round N] [--isa NAME] [--every-isa N] [name …] */
#ifndef ATTN_ATTENTION_OPERATOR_HARNESS_H
#define ATTN_ATTENTION_OPERATOR_HARNESS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "attnrun.h"

enum { CHECK_OPERANDS = 20, CHECK_ATTRS = 24, CHECK_LIST = 16 };

/* Tolerances: |got - want| <= atol + rtol |want|. */
enum check_class {
    CHECK_EXACT,
    CHECK_A, /* 1e-6 + 1e-5 |want| */
    CHECK_B, /* 1e-5 + 1e-4 |want| */
    CHECK_P  /* 1e-5 + 1e-3 |want|: exponential features */
};
/* An element of an expected output that is not compared. */
#define CHECK_SKIP 1e300

/* Dims: DIMS(b, n, 3) are two arguments. */
#define DIMS(...)                                                                        \
    (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[]) \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

struct check_operand {
    char name[32];
    int32_t dtype; /* 0: absent */
    int rank;
    int64_t dims[ATTNRUN_MAX_RANK];
    bool constant;
    bool heads; /* (batch, tokens, heads * dim) */
    int64_t n_heads;
    void *data;   /* of an input */
    size_t bytes; /* of data: dims may be changed to larger ones, which are refused */
    double *want; /* of an output */
    void *map;    /* what to unmap */
    size_t map_bytes;
};

struct check_attr {
    char name[32];
    int kind; /* 'i', 'f', 's', 'I', 'S' */
    int n;
    int64_t ints[CHECK_LIST];
    float number;
    const char *words[CHECK_LIST];
};

struct check {
    bool blank;   /* inputs are zeros: only their shapes matter */
    bool no_twin; /* until check_begin(): inputs of rank 4 may give other bits */
    bool verbose;
    /* The case. */
    char op[48];
    struct check_operand in[CHECK_OPERANDS], out[4];
    struct check_attr attrs[CHECK_ATTRS];
    int n_in, n_out, n_attrs;
    /* Outputs of the last run of check_run(), dense; of the next check_begin() no more.
     */
    void *got[4];
    /* The work of operator_harness.c and harness_run.c. */
    const char *name;
    uint64_t seed, random;
    int64_t round, n_rounds, only_round;
    const char *only_isa;
    int64_t every_isa; /* 2 and more: a case runs on a share of the instruction sets */
    int64_t failures, comparisons;
    int64_t extra_bytes; /* of the last check_extra_memory() */
    struct check_runner *runner;
    /* In addition to the tolerance: of the largest magnitude of an output. A sum rounds by its
     * terms, not by what is left of them. 0: nothing. */
    double of_largest;
};

/* ---- rounds and numbers ---- */
#define CHECK_ROUNDS(c, n)                                                               \
    for (check_first_round((c), (n)); check_in_round(c); check_next_round(c))
void check_first_round(struct check *c, int64_t n);
bool check_in_round(struct check *c);
void check_next_round(struct check *c);
uint32_t check_random(struct check *c);
int64_t check_below(struct check *c, int64_t n);                  /* 0 … n - 1 */
int64_t check_between(struct check *c, int64_t min, int64_t max); /* both included */
bool check_chance(struct check *c, int percent);
float check_normal(struct check *c); /* mean 0, deviation 1 */

/* ---- a case ---- */
/* Forgets the case before. "Op" is of domain attnrun, "domain::Op" of another one. */
void check_begin(struct check *c, const char *op);
void check_int(struct check *c, const char *name, int64_t x);
void check_float(struct check *c, const char *name, float x);
void check_string(struct check *c, const char *name,
                  const char *x); /* kept, not copied */
void check_ints(struct check *c, const char *name, int n, const int64_t *x);
void check_strings(struct check *c, const char *name, int n, const char *const *x);
/* q_num_heads, and kv_num_heads where it differs or by chance. */
void check_heads_attrs(struct check *c, int64_t q_heads, int64_t kv_heads);

/* Inputs in the operator's order; what they return is theirs until check_begin(). */
float *check_f32(struct check *c, const char *name, int rank, const int64_t *dims);
/* The same, and an initializer of the model in about half of the rounds. */
float *check_weight(struct check *c, const char *name, int rank, const int64_t *dims);
float *check_heads(struct check *c, const char *name, int64_t batch, int64_t tokens,
                   int64_t heads, int64_t dim);
/* b8 (batch, n); samples are all true, random with some density, a prefix, all false. */
uint8_t *check_mask(struct check *c, const char *name, int64_t batch, int64_t n);
/* In half of the cases, after the expected outputs are made: something in each of `rows` rows of
 * x that the mask (or NULL) hides becomes NaN, or infinite. */
void check_hide(struct check *c, float *x, const uint8_t *mask, int64_t rows,
                int64_t width);
/* Of any dtype, zeros. */
void *check_data(struct check *c, const char *name, int32_t dtype, int rank,
                 const int64_t *dims);
/* An optional input that is left out. */
void check_absent(struct check *c);
/* Input `in` of a case that is made is left out. */
void check_leave_out(struct check *c, int in);
/* The last input is an initializer. */
void check_constant(struct check *c);

/* Outputs: zeros, to be filled with what is expected. */
double *check_output(struct check *c, const char *name, int rank, const int64_t *dims);
double *check_heads_output(struct check *c, const char *name, int64_t batch,
                           int64_t tokens, int64_t heads, int64_t dim);
/* Integers or bools, compared exactly. */
double *check_output_of(struct check *c, const char *name, int32_t dtype, int rank,
                        const int64_t *dims);

/* ---- what is claimed of it ---- */
void check_run(struct check *c, enum check_class tolerance);
void check_run_with(struct check *c, double rtol, double atol);
/* Opening or running the case fails with this status, and the sentence has all of
 * `words`, which are separated by '|', and names the node. */
void check_refuses(struct check *c, attnrun_status status, const char *words);
/* With one thread, scratch and shared memory of the node are at most `max` bytes. */
void check_extra_memory(struct check *c, int64_t max);
/* Anything else that is to hold in this case. */
void check_true(struct check *c, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(name) void check_##name(struct check *c);
#include "checks.def"
#undef CHECK

#endif

/* isa.h - what a kernel file needs to be compiled once per instruction set: the suffix of
 * its symbols, vector types of GCC/Clang vector extensions, and verbs. Arithmetic is
 * written as plain expressions (a * b + c). A verb exists only where the plain expression
 * is slower.
 *
 * In: from the build ATTN_ISA_SUFFIX, VEC_BYTES, ATTN_REGISTERS, ATTN_F32_ROWS and
 * ATTN_I8_ROWS, which are fields of a row of isa.def, ATTN_ONE_TEXT, and ATTN_ISA_VERBS, the header
 * isa/<name>.h of the set. That header defines the verbs that the set does better than
 * isa/plain.h, each with a macro of its own name, so that plain.h leaves it out. plain.h
 * has all verbs and says what they do. Kernel files have no #if on an instruction set. */
#ifndef ATTN_ISA_H
#define ATTN_ISA_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../runtime/meter.h"
#include "kernel_types.h"

#define ATTN_CAT_(a, b)        a##b
#define ATTN_CAT(a, b)         ATTN_CAT_(a, b)
#define ATTN_CAT4_(a, b, c, d) a##b##c##d
#define ATTN_CAT4(a, b, c, d)  ATTN_CAT4_(a, b, c, d)
/* The name of a kernel in this build: K(softmax_f32) is attn_softmax_f32_avx2. */
#define K(name) ATTN_CAT4(attn_, name, _, ATTN_ISA_SUFFIX)
/* The same for the set that has texts of all kernels: this set, or its parent. */
#define K_OF_FLOATS(name) ATTN_CAT4(attn_, name, _, ATTN_ISA_FLOATS)

/* For a loop of a constant number of iterations whose array must stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define ALWAYS_INLINE inline __attribute__((always_inline))

enum { ATTN_PREFETCH_DISTANCE = 8, ATTN_LINE = 16 /* floats */ };

/* Prefetches n floats of the row that is ATTN_PREFETCH_DISTANCE rows after x. The
 * CPU's own prefetcher does not recognize rows that are far apart. */
static ALWAYS_INLINE void prefetch_row(const float *x, ptrdiff_t row, size_t n)
{
    if (row > 2 * (ptrdiff_t)n)
        for (size_t i = 0; i < n; i += ATTN_LINE)
            __builtin_prefetch(x + ATTN_PREFETCH_DISTANCE * row + i);
}

/* Prototypes of all kernels of this ISA. */
#define KERNEL(type, name, arguments) type K(name) arguments;
#include "kernels.def"
#undef KERNEL
#define KERNEL(type, name, arguments) type K_OF_FLOATS(name) arguments;
#include "kernels.def"
#undef KERNEL

enum {
    VF = VEC_BYTES / 4, /* floats per vector */
    REGISTERS = ATTN_REGISTERS
};
typedef float v_f32 __attribute__((vector_size(VEC_BYTES)));
typedef int32_t v_i32 __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t v_u32 __attribute__((vector_size(VEC_BYTES)));
typedef int16_t v_i16 __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t v_u16 __attribute__((vector_size(VEC_BYTES)));
typedef double v_f64 __attribute__((vector_size(VEC_BYTES)));
typedef uint8_t v_bytes __attribute__((vector_size(VF))); /* one for each lane */
typedef float v_f32_u __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef int32_t v_i32_u __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

static inline v_f32 v_load(const float *p) { return *(const v_f32_u *)p; }
static inline void v_store(float *p, v_f32 v) { *(v_f32_u *)p = v; }
static inline v_f32 v_set(float x) { return x - (v_f32){ 0 }; }
/* Selects lane by lane: mask (all ones or zeros) ? a : b. */
static inline v_f32 v_select(v_i32 mask, v_f32 a, v_f32 b)
{
    return (v_f32)((mask & (v_i32)a) | (~mask & (v_i32)b));
}

/* ---- the rows of a register tile ---- */

/* A tile has n rows. Where min == max, n is a constant, and the compiler makes a text for this
 * number of rows alone. Else all numbers from min to max share a text, which compares n with each
 * number above min: these branches are hidden behind the products. */
struct rows {
    int n, min, max;
};
static ALWAYS_INLINE bool has_row(const struct rows rows, const int i)
{
    return rows.min == rows.max || i < rows.min || i < rows.n;
}
/* A loop over the rows of an array that must stay in registers. */
#define EACH_ROW(i, rows)                                                                \
    UNROLL                                                                               \
    for (int i = 0; i < (rows).max; i++)                                                 \
        if (has_row(rows, i))

/* F(min, max, x) for each text of tiles of up to n rows: ATTN_TEXTS(ATTN_F32_ROWS, F, x). Few rows,
 * whose steps are short, have texts of their own, and so have whole tiles, but for NARROW ones of
 * one vector of columns, which do little of the work. `base`, which few machines run, has one text
 * for all. */
#if ATTN_ONE_TEXT
#define ATTN_TEXTS(n, F, x)        F(1, n, x)
#define ATTN_NARROW_TEXTS(n, F, x) F(1, n, x)
#else
#define ATTN_TEXTS_4(F, x)         F(1, 1, x) F(2, 2, x) F(3, 3, x) F(4, 4, x)
#define ATTN_TEXTS_6(F, x)         F(1, 1, x) F(2, 2, x) F(3, 5, x) F(6, 6, x)
#define ATTN_TEXTS_8(F, x)         ATTN_TEXTS_4(F, x) F(5, 7, x) F(8, 8, x)
#define ATTN_TEXTS_12(F, x)        ATTN_TEXTS_4(F, x) F(5, 11, x) F(12, 12, x)
#define ATTN_TEXTS_14(F, x)        ATTN_TEXTS_4(F, x) F(5, 13, x) F(14, 14, x)
#define ATTN_TEXTS(n, F, x)        ATTN_CAT(ATTN_TEXTS_, n)(F, x)
#define ATTN_NARROW_4(F, x)        F(1, 1, x) F(2, 2, x) F(3, 4, x)
#define ATTN_NARROW_6(F, x)        F(1, 1, x) F(2, 2, x) F(3, 6, x)
#define ATTN_NARROW_8(F, x)        ATTN_TEXTS_4(F, x) F(5, 8, x)
#define ATTN_NARROW_12(F, x)       ATTN_TEXTS_4(F, x) F(5, 12, x)
#define ATTN_NARROW_14(F, x)       ATTN_TEXTS_4(F, x) F(5, 14, x)
#define ATTN_NARROW_TEXTS(n, F, x) ATTN_CAT(ATTN_NARROW_, n)(F, x)
#endif
/* Which of them has a tile of n of up to `max` rows. */
static inline size_t text_of(size_t n, size_t max)
{
    const size_t few = max > 6 ? 4 : 2;
    if (ATTN_ONE_TEXT)
        return 0;
    return n <= few ? n - 1 : n < max ? few : few + 1;
}
static inline size_t narrow_text_of(size_t n, size_t max)
{
    const size_t few = max > 6 ? 4 : 2;
    return ATTN_ONE_TEXT ? 0 : n <= few ? n - 1 : few;
}
/* The rows of the next tile of up to `max`, where n > 0 are left and the tiles have about the same
 * number of rows. */
static inline size_t even_rows(size_t n, size_t max) { return n / ((n + max - 1) / max); }
/* The same where most tiles are whole. A whole large tile is faster than one of fewer rows by the
 * branches of their text, so there are as many of them as possible, but the rest has not so few
 * rows that reading the weights takes longer than their products. Small tiles have about equal
 * numbers. */
static inline size_t next_rows(size_t n, size_t max)
{
    enum { LARGE = 8, MIN_REST = 4 };
    return max >= LARGE && n >= max + MIN_REST ? max : even_rows(n, max);
}

/* F(i, x) for i < VF, separated by commas: the lanes of a shuffle. */
#define V_FOUR(F, i, x)  F(i, x), F((i) + 1, x), F((i) + 2, x), F((i) + 3, x)
#define V_LANES_16(F, x) V_FOUR(F, 0, x)
#define V_LANES_32(F, x) V_FOUR(F, 0, x), V_FOUR(F, 4, x)
#define V_LANES_64(F, x) V_LANES_32(F, x), V_FOUR(F, 8, x), V_FOUR(F, 12, x)
#define V_LANES(F, x)    ATTN_CAT(V_LANES_, VEC_BYTES)(F, x)
/* The macro of a name that ends with the width; its expansion may use V_LANES. */
#define V_OF_WIDTH__(name, bytes) name##bytes
#define V_OF_WIDTH_(name, bytes)  V_OF_WIDTH__(name, bytes)
#define V_OF_WIDTH(name)          V_OF_WIDTH_(name, VEC_BYTES)
#define V_SHUFFLE(a, b, F, x)     __builtin_shufflevector(a, b, V_LANES(F, x))
/* Rotates the lanes by a constant n: lane i receives lane (i + n) mod VF. */
#define V_AT(i, n)     (((n) + (i)) % VF)
#define V_ROTATE(v, n) V_SHUFFLE(v, v, V_AT, n)
/* Reverses the lanes: lane i receives lane VF - 1 - i. */
#define V_FROM_END(i, unused) (VF - 1 - (i))
static ALWAYS_INLINE v_f32 v_backwards(v_f32 v) { return V_SHUFFLE(v, v, V_FROM_END, 0); }
/* The even lanes 0, 2, … of a and then of b. */
#define V_EVEN(i, unused) (2 * (i))
static ALWAYS_INLINE v_f32 v_every_second(v_f32 a, v_f32 b)
{
    return V_SHUFFLE(a, b, V_EVEN, 0);
}

#define V_ODD(i, unused) (2 * (i) + 1)

#include ATTN_ISA_VERBS
#include "isa/plain.h"

/* The first min(n, VF) floats at x, the rest is `fill`; and y[i] = lane i of them. */
static ALWAYS_INLINE v_f32 v_load_part(const float *x, size_t n, float fill)
{
    return n >= VF ? v_load(x) : v_load_tail(x, n, fill);
}
static ALWAYS_INLINE void v_store_part(float *y, v_f32 v, size_t n)
{
    if (n >= VF)
        v_store(y, v);
    else
        v_store_tail(y, v, n);
}

static ALWAYS_INLINE float v_reduce_add(v_f32 v)
{
    v += V_ROTATE(v, VF / 2);
    v += V_ROTATE(v, VF / 4);
    if (VF >= 8)
        v += V_ROTATE(v, VF / 8);
    if (VF >= 16)
        v += V_ROTATE(v, VF / 16);
    return v[0];
}
static ALWAYS_INLINE float v_reduce_max(v_f32 v)
{
    v = v_max(v, V_ROTATE(v, VF / 2));
    v = v_max(v, V_ROTATE(v, VF / 4));
    if (VF >= 8)
        v = v_max(v, V_ROTATE(v, VF / 8));
    if (VF >= 16)
        v = v_max(v, V_ROTATE(v, VF / 16));
    return v[0];
}

#endif

/* isa.h - what a kernel file needs to be compiled once per instruction set: the suffix of
 * its symbols, vector types of GCC/Clang vector extensions, and a few verbs. Arithmetic
 * is written a * b + c; verbs exist only where the plain expression loses.
 *
 * ATTN_ISA_SUFFIX, VEC_BYTES, … are the fields of a row of isa.def, set by the build. */
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

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AMX_INT8__)
#define ATTN_DOT 2
#elif defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define ATTN_DOT 1
#else
#define ATTN_DOT 0
#endif
#define ATTN_CAT4_(a, b, c, d) a##b##c##d
#define ATTN_CAT4(a, b, c, d)  ATTN_CAT4_(a, b, c, d)
/* The name of a kernel in this build: K(softmax_f32) is attn_softmax_f32_avx2. */
#define K(name) ATTN_CAT4(attn_, name, _, ATTN_ISA_SUFFIX)

/* Before a loop of a constant number of turns whose array must stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define ALWAYS_INLINE inline __attribute__((always_inline))

enum { ATTN_ROWS_AHEAD = 8, ATTN_LINE = 16 /* floats */ };

/* The CPU does not see rows coming that are far apart: asks for n floats of one that is
 * read soon. */
static ALWAYS_INLINE void ask_for_row(const float *x, ptrdiff_t row, size_t n)
{
    if (row > 2 * (ptrdiff_t)n)
        for (size_t i = 0; i < n; i += ATTN_LINE)
            __builtin_prefetch(x + ATTN_ROWS_AHEAD * row + i);
}

/* Prototypes of all kernels of this ISA. */
#define KERNEL(type, name, arguments) type K(name) arguments;
#include "kernels.def"
#undef KERNEL

enum { VF = VEC_BYTES / 4 }; /* floats per vector */
typedef float v_f32 __attribute__((vector_size(VEC_BYTES)));
typedef int32_t v_i32 __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t v_u32 __attribute__((vector_size(VEC_BYTES)));
typedef float v_f32_u __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef int32_t v_i32_u __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

static inline v_f32 v_load(const float *p) { return *(const v_f32_u *)p; }
static inline void v_store(float *p, v_f32 v) { *(v_f32_u *)p = v; }
static inline v_f32 v_set(float x) { return x - (v_f32){ 0 }; }

#if VEC_BYTES == 32 && defined(__AVX2__)
/* All ones in the first n lanes. */
static inline __m256i v_first(size_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}
#endif
/* The first n (< VF) floats at p; the rest is `fill`. */
static inline v_f32 v_load_tail(const float *p, size_t n, float fill)
{
#if VEC_BYTES == 64 && defined(__AVX512F__)
    const __mmask16 first = (__mmask16)((1u << n) - 1);
    return (v_f32)_mm512_mask_loadu_ps((__m512)v_set(fill), first, p);
#elif VEC_BYTES == 32 && defined(__AVX2__)
    const __m256i first = v_first(n);
    return (v_f32)_mm256_blendv_ps((__m256)v_set(fill), _mm256_maskload_ps(p, first),
                                   _mm256_castsi256_ps(first));
#else
    v_f32 v = v_set(fill);
    memcpy(&v, p, n * sizeof(float));
    return v;
#endif
}
static inline void v_store_tail(float *p, v_f32 v, size_t n)
{
#if VEC_BYTES == 64 && defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif VEC_BYTES == 32 && defined(__AVX2__)
    _mm256_maskstore_ps(p, v_first(n), (__m256)v);
#else
    memcpy(p, &v, n * sizeof(float));
#endif
}
/* x, and what comes next is not joined with the product that made it: a * b + c in one
 * rounding is not what a stored product and a sum give. */
static ALWAYS_INLINE v_f32 v_rounded(v_f32 x)
{
#if defined(__x86_64__) && VEC_BYTES == 64
    __asm__("" : "+v"(x));
#elif defined(__x86_64__)
    __asm__("" : "+x"(x));
#else
    __asm__("" : "+m"(x));
#endif
    return x;
}

/* max(a, b) where a NaN in either operand gives b: what maxps does. */
static inline v_f32 v_max(v_f32 a, v_f32 b)
{
#if VEC_BYTES == 64 && defined(__AVX512F__)
    return (v_f32)_mm512_max_ps((__m512)a, (__m512)b);
#elif VEC_BYTES == 32 && defined(__AVX__)
    return (v_f32)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
    return (v_f32)_mm_max_ps((__m128)a, (__m128)b);
#else
    return a > b ? a : b;
#endif
}
static inline v_f32 v_min(v_f32 a, v_f32 b)
{
#if VEC_BYTES == 64 && defined(__AVX512F__)
    return (v_f32)_mm512_min_ps((__m512)a, (__m512)b);
#elif VEC_BYTES == 32 && defined(__AVX__)
    return (v_f32)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
    return (v_f32)_mm_min_ps((__m128)a, (__m128)b);
#else
    return a < b ? a : b;
#endif
}
/* Lane by lane: mask (all ones or zeros) ? a : b. */
static inline v_f32 v_select(v_i32 mask, v_f32 a, v_f32 b)
{
    return (v_f32)((mask & (v_i32)a) | (~mask & (v_i32)b));
}
/* Lane i gets lane i + n, around the end; n is a constant. */
#define V_AT(n, i)   (((n) + (i)) % VF)
#define V_FOUR(n, i) V_AT(n, i), V_AT(n, (i) + 1), V_AT(n, (i) + 2), V_AT(n, (i) + 3)
#if VEC_BYTES == 64
#define V_TURN(v, n)                                                                     \
    __builtin_shufflevector(v, v, V_FOUR(n, 0), V_FOUR(n, 4), V_FOUR(n, 8), V_FOUR(n, 12))
#elif VEC_BYTES == 32
#define V_TURN(v, n) __builtin_shufflevector(v, v, V_FOUR(n, 0), V_FOUR(n, 4))
#else
#define V_TURN(v, n) __builtin_shufflevector(v, v, V_FOUR(n, 0))
#endif
static ALWAYS_INLINE float v_reduce_add(v_f32 v)
{
    v += V_TURN(v, VF / 2);
    v += V_TURN(v, VF / 4);
    if (VF >= 8)
        v += V_TURN(v, VF / 8);
    if (VF >= 16)
        v += V_TURN(v, VF / 16);
    return v[0];
}
static ALWAYS_INLINE float v_reduce_max(v_f32 v)
{
    v = v_max(v, V_TURN(v, VF / 2));
    v = v_max(v, V_TURN(v, VF / 4));
    if (VF >= 8)
        v = v_max(v, V_TURN(v, VF / 8));
    if (VF >= 16)
        v = v_max(v, V_TURN(v, VF / 16));
    return v[0];
}

#endif

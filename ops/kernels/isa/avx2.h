/* avx2.h - the verbs of AVX2 with FMA and F16C. isa/plain.h says what each verb does. */
#ifndef ATTN_ISA_AVX2_H
#define ATTN_ISA_AVX2_H

#include <immintrin.h>

#define v_rounded v_rounded
static ALWAYS_INLINE v_f32 v_rounded(v_f32 x)
{
    __asm__("" : "+x"(x));
    return x;
}
/* All ones in the first n lanes. */
static inline __m256i v_first(size_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}
#define v_load_tail v_load_tail
static inline v_f32 v_load_tail(const float *p, size_t n, float fill)
{
    const __m256i first = v_first(n);
    return (v_f32)_mm256_blendv_ps((__m256)v_set(fill), _mm256_maskload_ps(p, first),
                                   _mm256_castsi256_ps(first));
}
#define v_store_tail v_store_tail
static inline void v_store_tail(float *p, v_f32 v, size_t n)
{
    _mm256_maskstore_ps(p, v_first(n), (__m256)v);
}
#define v_lanes v_lanes
typedef v_i32 v_mask;
static ALWAYS_INLINE v_mask v_lanes(uint32_t bits)
{
    const v_i32 bit = { 1, 2, 4, 8, 16, 32, 64, 128 };
    return ((v_i32)_mm256_set1_epi32((int)bits) & bit) == bit;
}
static ALWAYS_INLINE v_f32 v_load_lanes(const float *x, v_mask mask)
{
    return (v_f32)_mm256_maskload_ps(x, (__m256i)mask);
}
static ALWAYS_INLINE void v_store_lanes(float *y, v_mask mask, v_f32 v)
{
    _mm256_maskstore_ps(y, (__m256i)mask, (__m256)v);
}
#define v_max v_max
static inline v_f32 v_max(v_f32 a, v_f32 b)
{
    return (v_f32)_mm256_max_ps((__m256)a, (__m256)b);
}
#define v_min v_min
static inline v_f32 v_min(v_f32 a, v_f32 b)
{
    return (v_f32)_mm256_min_ps((__m256)a, (__m256)b);
}
#define v_add_product v_add_product
static ALWAYS_INLINE v_f32 v_add_product(v_f32 z, v_f32 x, v_f32 y)
{
    return (v_f32)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
}
#define v_sqrt v_sqrt
static inline v_f32 v_sqrt(v_f32 x) { return (v_f32)_mm256_sqrt_ps((__m256)x); }
#define v_any v_any
static inline bool v_any(v_i32 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#define v_promote v_promote
static inline v_f64 v_promote(v_f32 x, const bool upper)
{
    return (v_f64)_mm256_cvtps_pd(upper ? _mm256_extractf128_ps((__m256)x, 1)
                                        : _mm256_castps256_ps128((__m256)x));
}
#define v_narrow v_narrow
static inline v_f32 v_narrow(v_f64 lower, v_f64 upper)
{
    __m256 low = _mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)lower));
    return (v_f32)_mm256_insertf128_ps(low, _mm256_cvtpd_ps((__m256d)upper), 1);
}
#define V_HAS_F16 V_HAS_F16
enum { V_HAS_F16 = 1 };
static inline v_f32 v_load_f16(const uint16_t *x)
{
    return (v_f32)_mm256_cvtph_ps(_mm_loadu_si128((const void *)x));
}
static inline void v_store_f16(uint16_t *y, v_f32 x)
{
    _mm_storeu_si128((void *)y, _mm256_cvtps_ph((__m256)x, 0));
}
#define v_load_bf16 v_load_bf16
static ALWAYS_INLINE v_f32 v_load_bf16(const uint16_t *x)
{
    return (v_f32)_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x)), 16);
}
#define v_load_u8 v_load_u8
static ALWAYS_INLINE v_u32 v_load_u8(const uint8_t *x)
{
    return (v_u32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)x));
}
#define v_from_bytes v_from_bytes
static ALWAYS_INLINE v_i32 v_from_bytes(v_bytes x)
{
    int64_t all;
    memcpy(&all, &x, sizeof all);
    return (v_i32)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(all));
}
#define v_look_up v_look_up
static ALWAYS_INLINE v_f32 v_look_up(const float *table, v_i32 index)
{
    const __m256i at = (__m256i)index;
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), at);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), at);
    return (v_f32)_mm256_blendv_ps(low, high,
                                   _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
#define v_pairs v_pairs
static ALWAYS_INLINE v_u32 v_pairs(v_i16 a, v_i16 b)
{
    return (v_u32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
#define v_bits_not_below v_bits_not_below
static ALWAYS_INLINE uint32_t v_bits_not_below(v_f32 x, v_f32 t)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, (__m256)t, _CMP_NLT_UQ));
}

#define v_whole v_whole
static ALWAYS_INLINE v_f32 v_whole(v_f32 x)
{
    return (v_f32)_mm256_round_ps((__m256)x,
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#define v_nearest v_nearest
static ALWAYS_INLINE v_u32 v_nearest(v_f32 x)
{
    return (v_u32)_mm256_cvtps_epi32((__m256)x);
}
#define v_store_pixels v_store_pixels
static ALWAYS_INLINE void v_store_pixels(uint8_t *y, int step, const v_u32 *x,
                                         const int n, const struct attn_byte_limits to,
                                         const bool clip)
{
    __m256i low = _mm256_packs_epi32((__m256i)x[0], (__m256i)x[n > 1]),
            high = n > 2 ? _mm256_packs_epi32((__m256i)x[2], (__m256i)x[3]) : low;
    if (clip) {
        const __m256i zeros = _mm256_set1_epi16((short)to.zero);
        low = _mm256_adds_epi16(low, zeros);
        high = n > 2 ? _mm256_adds_epi16(high, zeros) : low;
    }
    __m256i bytes = _mm256_packus_epi16(low, high);
    if (clip) {
        bytes = _mm256_max_epu8(bytes, _mm256_set1_epi8((char)to.low));
        bytes = _mm256_min_epu8(bytes, _mm256_set1_epi8((char)to.high));
    }
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m128i first = _mm256_castsi256_si128(bytes),
                  last = _mm256_extracti128_si256(bytes, 1);
    const int64_t rows[4] = { _mm_cvtsi128_si64(first), _mm_extract_epi64(first, 1),
                              _mm_cvtsi128_si64(last), _mm_extract_epi64(last, 1) };
    UNROLL
    for (int i = 0; i < n; i++)
        memcpy(y + i * step, &rows[i], sizeof rows[i]);
}

#endif

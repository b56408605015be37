/* avx512.h - the verbs of AVX-512: F, VL, BW and DQ. isa/plain.h says what each verb
 * does. */
#ifndef ATTN_ISA_AVX512_H
#define ATTN_ISA_AVX512_H

#include <immintrin.h>

#define v_rounded v_rounded
static ALWAYS_INLINE v_f32 v_rounded(v_f32 x)
{
    __asm__("" : "+v"(x));
    return x;
}
#define v_load_tail v_load_tail
static inline v_f32 v_load_tail(const float *p, size_t n, float fill)
{
    const __mmask16 first = (__mmask16)((1u << n) - 1);
    return (v_f32)_mm512_mask_loadu_ps((__m512)v_set(fill), first, p);
}
#define v_store_tail v_store_tail
static inline void v_store_tail(float *p, v_f32 v, size_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
#define v_lanes v_lanes
typedef __mmask16 v_mask;
static ALWAYS_INLINE v_mask v_lanes(uint32_t bits) { return (v_mask)bits; }
static ALWAYS_INLINE v_f32 v_load_lanes(const float *x, v_mask mask)
{
    return (v_f32)_mm512_maskz_loadu_ps(mask, x);
}
static ALWAYS_INLINE void v_store_lanes(float *y, v_mask mask, v_f32 v)
{
    _mm512_mask_storeu_ps(y, mask, (__m512)v);
}
#define v_max v_max
static inline v_f32 v_max(v_f32 a, v_f32 b)
{
    return (v_f32)_mm512_max_ps((__m512)a, (__m512)b);
}
#define v_min v_min
static inline v_f32 v_min(v_f32 a, v_f32 b)
{
    return (v_f32)_mm512_min_ps((__m512)a, (__m512)b);
}
#define v_add_product v_add_product
static ALWAYS_INLINE v_f32 v_add_product(v_f32 z, v_f32 x, v_f32 y)
{
    return (v_f32)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
}
#define v_sqrt v_sqrt
static inline v_f32 v_sqrt(v_f32 x) { return (v_f32)_mm512_sqrt_ps((__m512)x); }
#define v_over v_over
static ALWAYS_INLINE v_f32 v_over(v_f32 w, v_f32 x)
{
    v_f32 r = (v_f32)_mm512_rcp14_ps((__m512)x);
    return w * (r + r * (1.0f - x * r));
}
#define v_scale2 v_scale2
static inline v_f32 v_scale2(v_f32 x, v_i32 k)
{
    return (v_f32)_mm512_scalef_ps((__m512)x, _mm512_cvtepi32_ps((__m512i)k));
}
#define v_scale2_shifted v_scale2_shifted
static ALWAYS_INLINE v_f32 v_scale2_shifted(v_f32 x, v_f32 k, v_f32 shifted)
{
    (void)shifted;
    return (v_f32)_mm512_scalef_ps((__m512)x, (__m512)k);
}
#define v_fraction v_fraction
/* x - floor(x); 0 where x is infinite. */
static ALWAYS_INLINE v_f32 v_fraction(v_f32 x)
{
    return (v_f32)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
/* x * 2^floor(t), or 0 where t < min. */
static ALWAYS_INLINE v_f32 v_scale2_from(v_f32 x, v_f32 t, float min)
{
    const __mmask16 counts =
        _mm512_cmp_ps_mask((__m512)t, _mm512_set1_ps(min), _CMP_NLT_UQ);
    return (v_f32)_mm512_maskz_scalef_ps(counts, (__m512)x, (__m512)t);
}
#define v_any v_any
static inline bool v_any(v_i32 mask)
{
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
#define v_promote v_promote
static inline v_f64 v_promote(v_f32 x, const bool upper)
{
    return (v_f64)_mm512_cvtps_pd(upper ? _mm512_extractf32x8_ps((__m512)x, 1)
                                        : _mm512_castps512_ps256((__m512)x));
}
#define v_narrow v_narrow
static inline v_f32 v_narrow(v_f64 lower, v_f64 upper)
{
    __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)lower));
    return (v_f32)_mm512_insertf32x8(low, _mm512_cvtpd_ps((__m512d)upper), 1);
}
#define V_HAS_F16 V_HAS_F16
enum { V_HAS_F16 = 1 };
static inline v_f32 v_load_f16(const uint16_t *x)
{
    return (v_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}
static inline void v_store_f16(uint16_t *y, v_f32 x)
{
    _mm256_storeu_si256((void *)y, _mm512_cvtps_ph((__m512)x, 0));
}
/* gcc takes five instructions to promote sixteen halves by itself. */
#define v_load_bf16 v_load_bf16
static ALWAYS_INLINE v_f32 v_load_bf16(const uint16_t *x)
{
    return (v_f32)_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16);
}
#define v_load_u8 v_load_u8
static ALWAYS_INLINE v_u32 v_load_u8(const uint8_t *x)
{
    return (v_u32)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)x));
}
#define v_from_bytes v_from_bytes
static ALWAYS_INLINE v_i32 v_from_bytes(v_bytes x) /* GCC 12 converts one by one */
{
    return (v_i32)_mm512_cvtepu8_epi32((__m128i)x);
}
#define v_store_bytes v_store_bytes
static ALWAYS_INLINE void v_store_bytes(uint8_t *y, v_u32 x)
{
    _mm_storeu_si128((void *)y, _mm512_cvtepi32_epi8((__m512i)x));
}
#define v_whole v_whole
static ALWAYS_INLINE v_f32 v_whole(v_f32 x)
{
    return (v_f32)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT);
}
#define v_nearest v_nearest
static ALWAYS_INLINE v_u32 v_nearest(v_f32 x)
{
    return (v_u32)_mm512_cvtps_epi32((__m512)x);
}
#define v_store_pixels v_store_pixels
static ALWAYS_INLINE void v_store_pixels(uint8_t *y, int step, const v_u32 *x,
                                         const int n, const struct attn_byte_limits to,
                                         const bool clip)
{
    const __m512i across =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32((__m512i)x[0], (__m512i)x[n > 1]),
            high = n > 2 ? _mm512_packs_epi32((__m512i)x[2], (__m512i)x[3]) : low;
    (void)step;
    if (clip) {
        const __m512i zeros = _mm512_set1_epi16((short)to.zero);
        low = _mm512_adds_epi16(low, zeros);
        high = n > 2 ? _mm512_adds_epi16(high, zeros) : low;
    }
    __m512i bytes = _mm512_packus_epi16(low, high);
    if (clip) {
        bytes = _mm512_max_epu8(bytes, _mm512_set1_epi8((char)to.low));
        bytes = _mm512_min_epu8(bytes, _mm512_set1_epi8((char)to.high));
    }
    bytes = _mm512_permutexvar_epi32(across, bytes);
    if (n == 4)
        _mm512_storeu_si512(y, bytes);
    else if (n == 2)
        _mm256_storeu_si256((void *)y, _mm512_castsi512_si256(bytes));
    else
        _mm_storeu_si128((void *)y, _mm512_castsi512_si128(bytes));
}
#define v_look_up_u8 v_look_up_u8
static inline void v_look_up_u8(uint8_t *y, const uint8_t *x, const uint8_t *table)
{
    const __m512i bytes = _mm512_loadu_si512(x), low = _mm512_set1_epi8(15);
    const __m512i part = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low);
    const __m512i at = _mm512_and_si512(bytes, low);
    __m512i found = at;
    for (int i = 0; i < 16; i++) {
        const __mmask64 here = _mm512_cmpeq_epi8_mask(part, _mm512_set1_epi8((char)i));
        const __m128i some = _mm_loadu_si128((const __m128i *)(const void *)table + i);
        found = _mm512_mask_shuffle_epi8(found, here, _mm512_broadcast_i32x4(some), at);
    }
    _mm512_storeu_si512(y, found);
}
#define v_four_pixels v_four_pixels
static ALWAYS_INLINE void v_four_pixels(v_u32 *to, const uint8_t *x)
{
    const __m512i across =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i within = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i words = _mm512_permutexvar_epi32(across, _mm512_loadu_si512(x));
    *to = (v_u32)_mm512_shuffle_epi8(words, within);
}
#define v_look_up v_look_up
static ALWAYS_INLINE v_f32 v_look_up(const float *table, v_i32 index)
{
    return (v_f32)_mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(table));
}
#define v_pairs v_pairs
static ALWAYS_INLINE v_u32 v_pairs(v_i16 a, v_i16 b)
{
    return (v_u32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
#define v_bits_not_below v_bits_not_below
static ALWAYS_INLINE uint32_t v_bits_not_below(v_f32 x, v_f32 t)
{
    return _mm512_cmp_ps_mask((__m512)x, (__m512)t, _CMP_NLT_UQ);
}
#define v_store_chosen v_store_chosen
static ALWAYS_INLINE size_t v_store_chosen(int32_t *index, float *value, uint32_t bits,
                                           v_i32 places, v_f32 x)
{
    const int n = __builtin_popcount(bits);
    const __mmask16 some = (__mmask16)bits, first = (__mmask16)((UINT32_C(1) << n) - 1);
    _mm512_mask_storeu_epi32(index, first,
                             _mm512_maskz_compress_epi32(some, (__m512i)places));
    _mm512_mask_storeu_ps(value, first, _mm512_maskz_compress_ps(some, (__m512)x));
    return (size_t)n;
}
#define V_HAS_BITS V_HAS_BITS
enum { V_HAS_BITS = 1 };
static ALWAYS_INLINE uint32_t v_bits_above(v_i32 a, v_i32 b)
{
    return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, _MM_CMPINT_NLE);
}
static ALWAYS_INLINE uint32_t v_bits_from(v_i32 a, v_i32 b)
{
    return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, _MM_CMPINT_NLT);
}
static ALWAYS_INLINE uint32_t v_bits_equal(v_i32 a, v_i32 b)
{
    return _mm512_cmp_epi32_mask((__m512i)a, (__m512i)b, _MM_CMPINT_EQ);
}

#endif

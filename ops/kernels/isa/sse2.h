/* sse2.h - the verbs of SSE2, which every x86-64 has. isa/plain.h says what each verb
 * does. */
#ifndef ATTN_ISA_SSE2_H
#define ATTN_ISA_SSE2_H

#include <immintrin.h>

#define v_rounded v_rounded
static ALWAYS_INLINE v_f32 v_rounded(v_f32 x)
{
    __asm__("" : "+x"(x));
    return x;
}
#define v_max v_max
static inline v_f32 v_max(v_f32 a, v_f32 b)
{
    return (v_f32)_mm_max_ps((__m128)a, (__m128)b);
}
#define v_min v_min
static inline v_f32 v_min(v_f32 a, v_f32 b)
{
    return (v_f32)_mm_min_ps((__m128)a, (__m128)b);
}
#define v_sqrt v_sqrt
static inline v_f32 v_sqrt(v_f32 x) { return (v_f32)_mm_sqrt_ps((__m128)x); }
#define v_any v_any
static inline bool v_any(v_i32 mask) { return _mm_movemask_ps((__m128)mask) != 0; }
#define v_promote v_promote
static inline v_f64 v_promote(v_f32 x, const bool upper)
{
    return (v_f64)_mm_cvtps_pd(upper ? _mm_movehl_ps((__m128)x, (__m128)x) : (__m128)x);
}
#define v_narrow v_narrow
static inline v_f32 v_narrow(v_f64 lower, v_f64 upper)
{
    return (v_f32)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)lower),
                                _mm_cvtpd_ps((__m128d)upper));
}
#define v_load_u8 v_load_u8
static ALWAYS_INLINE v_u32 v_load_u8(const uint8_t *x)
{
    const __m128i none = _mm_setzero_si128();
    int32_t four;
    memcpy(&four, x, sizeof four);
    return (v_u32)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), none),
                                     none);
}
#define v_pairs v_pairs
static ALWAYS_INLINE v_u32 v_pairs(v_i16 a, v_i16 b)
{
    return (v_u32)_mm_madd_epi16((__m128i)a, (__m128i)b);
}

#endif

/* neon.h - the verbs of Advanced SIMD of AArch64. isa/plain.h says what each verb does.
 */
#ifndef ATTN_ISA_NEON_H
#define ATTN_ISA_NEON_H

#include <arm_neon.h>

/* ---- parts of vectors ---- */

#define v_load_tail v_load_tail
static inline v_f32 v_load_tail(const float *p, size_t n, float fill)
{
    v_f32 v = v_set(fill);
    if (n > 0)
        v[0] = p[0];
    if (n > 1)
        v[1] = p[1];
    if (n > 2)
        v[2] = p[2];
    if (n > 3)
        v[3] = p[3];
    return v;
}
#define v_store_tail v_store_tail
static inline void v_store_tail(float *p, v_f32 v, size_t n)
{
    if (n > 0)
        p[0] = v[0];
    if (n > 1)
        p[1] = v[1];
    if (n > 2)
        p[2] = v[2];
    if (n > 3)
        p[3] = v[3];
}

/* ---- arithmetic ---- */

#define v_rounded v_rounded
static ALWAYS_INLINE v_f32 v_rounded(v_f32 x)
{
    __asm__("" : "+w"(x));
    return x;
}
#define v_add_product v_add_product
static ALWAYS_INLINE v_f32 v_add_product(v_f32 z, v_f32 x, v_f32 y)
{
    return (v_f32)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
}
#define v_sqrt v_sqrt
static inline v_f32 v_sqrt(v_f32 x) { return (v_f32)vsqrtq_f32((float32x4_t)x); }
#define v_any v_any
static inline bool v_any(v_i32 mask) { return vmaxvq_u32((uint32x4_t)mask) != 0; }

/* ---- other types ---- */

#define v_promote v_promote
static inline v_f64 v_promote(v_f32 x, const bool upper)
{
    return (v_f64)(upper ? vcvt_high_f64_f32((float32x4_t)x)
                         : vcvt_f64_f32(vget_low_f32((float32x4_t)x)));
}
#define v_narrow v_narrow
static inline v_f32 v_narrow(v_f64 lower, v_f64 upper)
{
    return (v_f32)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)lower), (float64x2_t)upper);
}
#define V_HAS_F16 V_HAS_F16
enum { V_HAS_F16 = 1 };
static inline v_f32 v_load_f16(const uint16_t *x)
{
    return (v_f32)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}
static inline void v_store_f16(uint16_t *y, v_f32 x)
{
    vst1_u16(y, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
}
#define v_load_u8 v_load_u8
static ALWAYS_INLINE v_u32 v_load_u8(const uint8_t *x)
{
    uint32_t four;
    memcpy(&four, x, sizeof four);
    return (v_u32)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
}
#define v_from_bytes v_from_bytes
static ALWAYS_INLINE v_i32 v_from_bytes(v_bytes x)
{
    uint8_t bytes[VF];
    memcpy(bytes, &x, sizeof bytes);
    return (v_i32)v_load_u8(bytes);
}
#define v_look_up v_look_up
static ALWAYS_INLINE v_f32 v_look_up(const float *table, v_i32 index)
{
    const uint8x16x4_t bytes = {
        { (uint8x16_t)v_load(table), (uint8x16_t)v_load(table + 4),
          (uint8x16_t)v_load(table + 8), (uint8x16_t)v_load(table + 12) }
    };
    return (v_f32)vqtbl4q_u8(bytes, (uint8x16_t)(index * 0x04040404 + 0x03020100));
}

/* ---- products of bytes ---- */

#define v_pairs v_pairs
static ALWAYS_INLINE v_u32 v_pairs(v_i16 a, v_i16 b)
{
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (v_u32)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)),
                             vmull_high_s16(x, y));
}

/* ---- the tile of gemm_f32 ---- */

#define V_BY_LANE V_BY_LANE
enum { V_BY_LANE = 1 };

/* Sums of 12 rows of 8 columns in v0 … v23, a row in two; v24 … v27 are four vectors of a,
 * v28 … v31 of b: 96 products for 5 loads. In C the 24 sums do not stay in registers. */
#define NEON_FMA(sum, b, a, lane)                                                        \
    "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n\t"
#define NEON_4_ROWS(s0, s1, s2, s3, s4, s5, s6, s7, b0, b1, a)                           \
    NEON_FMA(s0, b0, a, 0)                                                               \
    NEON_FMA(s1, b1, a, 0)                                                               \
    NEON_FMA(s2, b0, a, 1)                                                               \
    NEON_FMA(s3, b1, a, 1)                                                               \
    NEON_FMA(s4, b0, a, 2)                                                               \
    NEON_FMA(s5, b1, a, 2)                                                               \
    NEON_FMA(s6, b0, a, 3)                                                               \
    NEON_FMA(s7, b1, a, 3)
#define NEON_LOW(b0, b1, a)    NEON_4_ROWS(0, 1, 2, 3, 4, 5, 6, 7, b0, b1, a)
#define NEON_MIDDLE(b0, b1, a) NEON_4_ROWS(8, 9, 10, 11, 12, 13, 14, 15, b0, b1, a)
#define NEON_HIGH(b0, b1, a)   NEON_4_ROWS(16, 17, 18, 19, 20, 21, 22, 23, b0, b1, a)
#define NEON_LOAD_A            "ld1 {v24.4s - v27.4s}, [%[a]], #64\n\t"
#define NEON_LOAD_B            "ld1 {v28.4s - v31.4s}, [%[b]], #64\n\t"
#define NEON_4_STEPS                                                                     \
    NEON_LOAD_A                                                                          \
    NEON_LOAD_B                                                                          \
    NEON_LOW(28, 29, 24)                                                                 \
    NEON_MIDDLE(28, 29, 25)                                                              \
    NEON_HIGH(28, 29, 26)                                                                \
    NEON_LOW(30, 31, 27)                                                                 \
    NEON_LOAD_A                                                                          \
    NEON_MIDDLE(30, 31, 24)                                                              \
    NEON_HIGH(30, 31, 25)                                                                \
    NEON_LOAD_B                                                                          \
    NEON_LOW(28, 29, 26)                                                                 \
    NEON_MIDDLE(28, 29, 27)                                                              \
    NEON_LOAD_A                                                                          \
    NEON_HIGH(28, 29, 24)                                                                \
    NEON_LOW(30, 31, 25)                                                                 \
    NEON_MIDDLE(30, 31, 26)                                                              \
    NEON_HIGH(30, 31, 27)
#define NEON_ZERO(i) "movi v" #i ".4s, #0\n\t"

#define V_HAS_TILE V_HAS_TILE
enum { V_HAS_TILE = 1 };
static inline void v_tile_sum(v_f32 (*sum)[2], const float *a, const float *b,
                              size_t strips, const char *next, size_t step)
{
    __asm__ volatile(
        NEON_ZERO(0) NEON_ZERO(1) NEON_ZERO(2) NEON_ZERO(3) NEON_ZERO(4) NEON_ZERO(5)
            NEON_ZERO(6) NEON_ZERO(7) NEON_ZERO(8) NEON_ZERO(9) NEON_ZERO(10) NEON_ZERO(
                11) NEON_ZERO(12) NEON_ZERO(13) NEON_ZERO(14) NEON_ZERO(15) NEON_ZERO(16)
                NEON_ZERO(17) NEON_ZERO(18) NEON_ZERO(19) NEON_ZERO(20) NEON_ZERO(21)
                    NEON_ZERO(22) NEON_ZERO(
                        23) "cbz %[strips], 2f\n"
                            "1:\n\t"
                            "prfm pldl2keep, [%[next]]\n\t"
                            "add %[next], %[next], %[step]\n\t" NEON_4_STEPS NEON_4_STEPS
                            "subs %[strips], %[strips], #1\n\t"
                            "b.ne 1b\n"
                            "2:\n\t"
                            "st1 {v0.4s - v3.4s}, [%[sum]], #64\n\t"
                            "st1 {v4.4s - v7.4s}, [%[sum]], #64\n\t"
                            "st1 {v8.4s - v11.4s}, [%[sum]], #64\n\t"
                            "st1 {v12.4s - v15.4s}, [%[sum]], #64\n\t"
                            "st1 {v16.4s - v19.4s}, [%[sum]], #64\n\t"
                            "st1 {v20.4s - v23.4s}, [%[sum]]\n\t"
        : [sum] "+r"(sum), [a] "+r"(a), [b] "+r"(b), [strips] "+r"(strips),
          [next] "+r"(next)
        : [step] "r"(step)
        : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
          "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
          "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
}

#endif

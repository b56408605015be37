/* plain.h - every verb of the kernels in plain C, which any machine can run. This file is also
 * the description of the verbs: the comment of each says what goes in and what comes out.
 *
 * An instruction set that does a verb better defines it in isa/<name>.h, together with a macro of
 * the same name. That file is included first, and the #ifndef around each verb here then skips the
 * plain one. */
#ifndef ATTN_ISA_PLAIN_H
#define ATTN_ISA_PLAIN_H

/* ---- parts of vectors ---- */

/* The first n (<= VF) floats at p; the rest is `fill`. */
#ifndef v_load_tail
static inline v_f32 v_load_tail(const float *p, size_t n, float fill)
{
    v_f32 v = v_set(fill);
    memcpy(&v, p, n * sizeof(float));
    return v;
}
#endif
#ifndef v_store_tail
static inline void v_store_tail(float *p, v_f32 v, size_t n)
{
    memcpy(p, &v, n * sizeof(float));
}
#endif

/* Masks of loads and stores, see lanes.h: bit l is lane l. */
#ifndef v_lanes
typedef uint32_t v_mask;
static ALWAYS_INLINE v_mask v_lanes(uint32_t bits) { return bits; }
/* Mostly all of them; the rest are no part of each loop. */
static __attribute__((noinline, unused)) v_f32 load_some(const float *x, v_mask mask)
{
    float lanes[VF];
    for (int i = 0; i < VF; i++)
        lanes[i] = mask >> i & 1 ? x[i] : 0.0f;
    return v_load(lanes);
}
static __attribute__((noinline, unused)) void store_some(float *y, v_mask mask, v_f32 v)
{
    for (int i = 0; i < VF; i++)
        if (mask >> i & 1)
            y[i] = v[i];
}
static ALWAYS_INLINE v_f32 v_load_lanes(const float *x, v_mask mask)
{
    return mask == (1u << VF) - 1 ? v_load(x) : load_some(x, mask);
}
static ALWAYS_INLINE void v_store_lanes(float *y, v_mask mask, v_f32 v)
{
    if (mask == (1u << VF) - 1)
        v_store(y, v);
    else
        store_some(y, mask, v);
}
#endif

/* ---- arithmetic ---- */

/* x, and what comes next is not joined with the product that made it: a * b + c in one
 * rounding is not what a stored product and a sum give. */
#ifndef v_rounded
static ALWAYS_INLINE v_f32 v_rounded(v_f32 x)
{
    __asm__("" : "+m"(x));
    return x;
}
#endif
/* z + x * y in one rounding where the set has such an instruction. Compilers join a product and a
 * sum in some copies of a loop and not in others, so that bits would depend on the copy; sets with
 * the instruction write it. */
#ifndef v_add_product
static ALWAYS_INLINE v_f32 v_add_product(v_f32 z, v_f32 x, v_f32 y) { return z + x * y; }
#endif
/* max(a, b) where a NaN in either operand gives b. */
#ifndef v_max
static inline v_f32 v_max(v_f32 a, v_f32 b) { return v_select(a > b, a, b); }
#endif
#ifndef v_min
static inline v_f32 v_min(v_f32 a, v_f32 b) { return v_select(a < b, a, b); }
#endif
#ifndef v_sqrt
static inline v_f32 v_sqrt(v_f32 x)
{
    for (int i = 0; i < VF; i++)
        x[i] = sqrtf(x[i]);
    return x;
}
#endif
/* w / x of normal x below 2^126: 1 ulp. */
#ifndef v_over
static ALWAYS_INLINE v_f32 v_over(v_f32 w, v_f32 x) { return w / x; }
#endif
/* Whether a product takes one lane of a vector as its factor, so that factors that lie side
 * by side are best loaded together. */
#ifndef V_BY_LANE
enum { V_BY_LANE = 0 };
#endif
/* x * 2^k for whole k in [-252, 254], rounded once where the result is denormal. */
#ifndef v_scale2
static inline v_f32 v_scale2(v_f32 x, v_i32 k)
{
    v_i32 half = k >> 1; /* 2^k itself may be out of range */
    v_f32 low = (v_f32)((v_u32)(half + 127) << 23);
    v_f32 high = (v_f32)((v_u32)(k - half + 127) << 23);
    return x * low * high;
}
#endif
/* The same where k is a float, and `shifted` that plus 1.5 * 2^23; v_scale2_normal() for k in
 * [-126, 127]. The bits of `shifted` above k leave the word. A factor instead of a sum of
 * exponents, so that any NaN stays one. */
#ifdef v_scale2_shifted
#define v_scale2_normal v_scale2_shifted
#else
static ALWAYS_INLINE v_f32 v_scale2_normal(v_f32 x, v_f32 k, v_f32 shifted)
{
    (void)k;
    return x * (v_f32)(((v_u32)shifted << 23) + (v_u32)v_set(1.0f));
}
static ALWAYS_INLINE v_f32 v_scale2_shifted(v_f32 x, v_f32 k, v_f32 shifted)
{
    (void)k;
    return v_scale2(x, (v_i32)shifted - (v_i32)v_set(12582912.0f));
}
#endif
/* Whether any lane of a mask is set. */
#ifndef v_any
static inline bool v_any(v_i32 mask)
{
    int32_t any = 0;
    for (int i = 0; i < VF; i++)
        any |= mask[i];
    return any != 0;
}
#endif

/* ---- other types ---- */

/* The lower or upper half of x as doubles, and back. */
#ifndef v_promote
static inline v_f64 v_promote(v_f32 x, const bool upper)
{
    v_f64 y;
    for (int i = 0; i < VF / 2; i++)
        y[i] = (double)x[i + (upper ? VF / 2 : 0)];
    return y;
}
#endif
#ifndef v_narrow
static inline v_f32 v_narrow(v_f64 lower, v_f64 upper)
{
    v_f32 y;
    for (int i = 0; i < VF; i++)
        y[i] = (float)(i < VF / 2 ? lower[i] : upper[i - VF / 2]);
    return y;
}
#endif
/* VF f16 as floats, and rounded back. A set without instructions for them has no way back, and
 * takes some ten operations to load them. */
#ifndef V_HAS_F16
enum { V_HAS_F16 = 0 };
static inline v_f32 v_load_f16(const uint16_t *x)
{
    typedef uint16_t v_halves __attribute__((vector_size(VEC_BYTES / 2)));
    v_halves halves;
    memcpy(&halves, x, sizeof halves);
    const v_u32 bits = __builtin_convertvector(halves, v_u32);
    const v_f32 finite = (v_f32)((bits & 0x7fff) << 13) * 0x1p112f;
    const v_u32 beyond = (v_u32)((bits & 0x7c00) == 0x7c00) & 0x7f800000u;
    return (v_f32)((v_u32)finite | beyond | (bits & 0x8000) << 16);
}
static inline void v_store_f16(uint16_t *y, v_f32 x)
{
    (void)y;
    (void)x;
}
#endif
/* VF bf16 as floats. */
#ifndef v_load_bf16
static ALWAYS_INLINE v_f32 v_load_bf16(const uint16_t *x)
{
    typedef uint16_t v_halves __attribute__((vector_size(VEC_BYTES / 2)));
    v_halves bits;
    memcpy(&bits, x, sizeof bits);
    return (v_f32)(__builtin_convertvector(bits, v_u32) << 16);
}
#endif
/* VF elements of f16, or of bf16, as floats. */
static ALWAYS_INLINE v_f32 v_load_half(const uint16_t *x, const bool f16)
{
    return f16 ? v_load_f16(x) : v_load_bf16(x);
}
/* VF bytes, one in each lane. */
#ifndef v_load_u8
static ALWAYS_INLINE v_u32 v_load_u8(const uint8_t *x)
{
    v_u32 y = { 0 };
    for (int i = 0; i < VF; i++)
        y[i] = x[i];
    return y;
}
#endif
/* The same of a vector. */
#ifndef v_from_bytes
static ALWAYS_INLINE v_i32 v_from_bytes(v_bytes x)
{
    return __builtin_convertvector(x, v_i32);
}
#endif
/* table[index], 0 <= index < 16. */
#ifndef v_look_up
static ALWAYS_INLINE v_f32 v_look_up(const float *table, v_i32 index)
{
    v_f32 y;
    for (int i = 0; i < VF; i++)
        y[i] = table[index[i]];
    return y;
}
#endif

/* ---- products of bytes ---- */

/* By words of two i16: the sum of the products of their halves. */
#ifndef v_pairs
static ALWAYS_INLINE v_u32 v_pairs(v_i16 a, v_i16 b)
{
    const v_i32 low = (v_i32)((v_u32)a << 16) >> 16, high = (v_i32)a >> 16;
    return (v_u32)(low * ((v_i32)((v_u32)b << 16) >> 16) + high * ((v_i32)b >> 16));
}
#endif
/* The same with those of one word. */
static ALWAYS_INLINE v_u32 v_pair_products(v_i16 b, uint32_t a)
{
    return v_pairs(b, (v_i16)(a - (v_u32){ 0 }));
}
/* Words of two bf16: x rounded to nearest even in the low half, y in the high one. */
#ifndef v_pair_bf16
static ALWAYS_INLINE v_u32 v_round_bf16(v_f32 x) /* as the upper halves of words */
{
    const v_u32 bits = (v_u32)x;
    const v_u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const v_u32 quiet = bits | 0x400000;
    return (v_u32)v_select(x != x, (v_f32)quiet, (v_f32)rounded) & 0xffff0000u;
}
static ALWAYS_INLINE v_u32 v_pair_bf16(v_f32 x, v_f32 y)
{
    return v_round_bf16(x) >> 16 | v_round_bf16(y);
}
/* The same of the lanes of x and then of y that follow each other; of 2 VF floats. */
static ALWAYS_INLINE v_u32 v_join_bf16(v_f32 x, v_f32 y)
{
    return v_pair_bf16(v_every_second(x, y), V_SHUFFLE(x, y, V_ODD, 0));
}
static ALWAYS_INLINE v_u32 v_words_bf16(const float *x)
{
    return v_join_bf16(v_load(x), v_load(x + VF));
}
#endif
/* acc + the products of the halves of b with those of the word a; a set may flush
 * denormal values to zero. V_HAS_DOT_BF16: it has an instruction for that. */
#ifndef V_HAS_DOT_BF16
#define V_HAS_DOT_BF16 0
static ALWAYS_INLINE v_f32 v_dot_bf16(v_f32 acc, v_u32 b, uint32_t a)
{
    const v_u32 word = b - b + a;
    acc += (v_f32)(b << 16) * (v_f32)(word << 16);
    return acc + (v_f32)(b & 0xffff0000u) * (v_f32)(word & 0xffff0000u);
}
#endif
/* By words of 4 bytes: acc + their products with those of a, which are u8 (V_DOT_U8) or i8
 * (V_DOT_I8) and those of b i8. V_DOT_NONE: a set has no such instruction. */
enum { V_DOT_NONE, V_DOT_U8, V_DOT_I8 };
#ifndef V_DOT
#define V_DOT V_DOT_NONE
static ALWAYS_INLINE v_u32 v_dot_words(v_u32 acc, v_u32 b, v_u32 a)
{
    (void)b;
    (void)a;
    return acc;
}
#endif
/* The same with those of one word. */
static ALWAYS_INLINE v_u32 v_dot(v_u32 acc, v_u32 b, uint32_t a)
{
    return v_dot_words(acc, b, a - (v_u32){ 0 });
}
/* The same with those of the word a as i8, and those of b as u8 (V_DOT_U8) or i8. */
static ALWAYS_INLINE v_u32 v_dot_i8(v_u32 acc, v_u32 b, uint32_t a)
{
    return v_dot_words(acc, a - (v_u32){ 0 }, b);
}
/* The lowest byte of each lane. */
#ifndef v_store_bytes
static ALWAYS_INLINE void v_store_bytes(uint8_t *y, v_u32 x)
{
    const v_bytes bytes = __builtin_convertvector(x & 255, v_bytes);
    memcpy(y, &bytes, sizeof bytes);
}
#endif
#define V_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */
/* x rounded to a whole number, halves to even; |x| <= 2^22. */
#ifndef v_whole
static ALWAYS_INLINE v_f32 v_whole(v_f32 x)
{
    const v_f32 magic = v_set(V_MAGIC);
    return v_rounded(x + magic) - magic;
}
#endif
/* The nearest whole numbers of x <= 255, halves to even; some number below -65535 where x is less,
 * or NaN. */
#ifndef v_nearest
static ALWAYS_INLINE v_u32 v_nearest(v_f32 x)
{
    const v_f32 magic = v_set(V_MAGIC);
    return (v_u32)(v_max(x, v_set(-65536.0f)) + magic) - (v_u32)magic;
}
#endif
/* clamp(x[i][lane] + zero, low, high) for n vectors, 1, 2 or 4, as bytes at y + i step; without
 * `clip` clamp(x[i][lane], 0, 255). Where VF is 16, step is VF. */
#ifndef v_store_pixels
static ALWAYS_INLINE void v_store_pixels(uint8_t *y, int step, const v_u32 *x,
                                         const int n, const struct attn_byte_limits to,
                                         const bool clip)
{
    const v_i32 low = (clip ? to.low : 0) - (v_i32){ 0 };
    const v_i32 high = (clip ? to.high : 255) - (v_i32){ 0 };
    UNROLL
    for (int i = 0; i < n; i++) {
        v_i32 q = (v_i32)x[i] + (clip ? to.zero : 0);
        q = (v_i32)v_select(q > low, (v_f32)q, (v_f32)low);
        q = (v_i32)v_select(q < high, (v_f32)q, (v_f32)high);
        v_store_bytes(y + i * step, (v_u32)q);
    }
}
#endif
/* y[i] = table[x[i]] for VEC_BYTES bytes; y may be x. */
#ifndef v_look_up_u8
static inline void v_look_up_u8(uint8_t *y, const uint8_t *x, const uint8_t *table)
{
    for (int i = 0; i < VEC_BYTES; i++)
        y[i] = table[x[i]];
}
#endif
/* Four pixels of 16 bytes, one after the other, as words: vector i has of each byte i VF + l
 * of a pixel the word of the four pixels in lane l. */
#ifndef v_four_pixels
static ALWAYS_INLINE void v_four_pixels(v_u32 to[16 / VF], const uint8_t *x)
{
    UNROLL
    for (int i = 0; i < 16 / VF; i++)
        to[i] = v_load_u8(x + i * VF) | v_load_u8(x + 16 + i * VF) << 8 |
                v_load_u8(x + 32 + i * VF) << 16 | v_load_u8(x + 48 + i * VF) << 24;
}
#endif
/* The register tile of gemm_f32 where the compiler's is not good enough: sum[i] = the sum
 * over k of a[k][i] b[k] for i < ATTN_F32_ROWS and two vectors of columns, a and b without
 * gaps; 8 steps of k a strip, each of which fetches the line at `next`, `step` bytes apart. */
#ifndef V_HAS_TILE
enum { V_HAS_TILE = 0 };
static inline void v_tile_sum(v_f32 (*sum)[2], const float *a, const float *b,
                              size_t strips, const char *next, size_t step)
{
    (void)sum, (void)a, (void)b, (void)strips, (void)next, (void)step;
}
#endif
/* Tiles of 16 rows of 16 words: see avx512_amx.h. */
#ifndef V_HAS_TILES
enum { V_HAS_TILES = 0 };
static inline void v_tiles_begin(void) {}
static inline void v_tiles_end(void) {}
static inline void v_tiles_sum(uint32_t *out, size_t out_row, const uint32_t *a,
                               size_t a_row, const uint8_t *b, size_t words)
{
    (void)out, (void)out_row, (void)a, (void)a_row, (void)b, (void)words;
}
#endif
/* V_HAS_TILES_BF16: products of tiles of words of two bf16, too: see avx512_amx_bf16.h. */
#ifndef V_HAS_TILES_BF16
#define V_HAS_TILES_BF16 0
#endif

/* ---- selection ---- */

/* Bit i: x[i] is not below t, or NaN. */
#ifndef v_bits_not_below
static ALWAYS_INLINE uint32_t v_bits_not_below(v_f32 x, v_f32 t)
{
    uint32_t bits = 0;
    v_i32 below = x < t;
    for (int i = 0; i < VF; i++)
        bits |= (uint32_t)(below[i] == 0) << i;
    return bits;
}
#endif
/* Stores the lanes of places and x whose bit is set, in order; returns how many. */
#ifndef v_store_chosen
static ALWAYS_INLINE size_t v_store_chosen(int32_t *index, float *value, uint32_t bits,
                                           v_i32 places, v_f32 x)
{
    size_t n = 0;
    for (; bits != 0; bits &= bits - 1) {
        const int at = __builtin_ctz(bits);
        index[n] = places[at];
        value[n++] = x[at];
    }
    return n;
}
#endif
/* Bits of comparisons of i32, where a set has them in one instruction. */
#ifndef V_HAS_BITS
enum { V_HAS_BITS = 0 };
static ALWAYS_INLINE uint32_t v_bits_above(v_i32 a, v_i32 b)
{
    (void)a, (void)b;
    return 0;
}
static ALWAYS_INLINE uint32_t v_bits_from(v_i32 a, v_i32 b)
{
    (void)a, (void)b;
    return 0;
}
static ALWAYS_INLINE uint32_t v_bits_equal(v_i32 a, v_i32 b)
{
    (void)a, (void)b;
    return 0;
}
#endif

#endif

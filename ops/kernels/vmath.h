/* vmath.h - exp, log, tanh, erf and sigmoid of a vector of floats. Each bound is the
 * largest error over its range, checked against double by
 * tests/kernels/check_elementwise.c. NaN gives NaN.
 *
 * v_exp      1 ulp, denormal results included; exp(-inf) = 0, exp(x > 88.73) = inf
 * v_log      1 ulp; log(0) = -inf, log(x < 0) = NaN, log(inf) = inf
 * v_tanh     2 ulp, odd, |y| <= 1
 * v_erf      2 ulp, odd, |y| <= 1
 * v_sigmoid  2 ulp for x > -87, 0 below -89
 * v_exp2     2^t for t <= 128, where it is inf: 1 ulp, denormal results included; 0 below -151
 * v_gelu     x Phi(x): 3e-7 + 4 ulp, not denormal where x <= -1;
 *            v_gelu_tanh the tanh form of it
 * v_silu     x sigmoid(x)
 *            of -inf all three are NaN, as products of -inf and 0 and as PyTorch has them
 *
 * The polynomials are weighted minimax fits of our own, coefficients rounded one after
 * the other, lowest power first. */
#ifndef ATTN_VMATH_H
#define ATTN_VMATH_H

#include "isa.h"

/* e^r - 1 of r = x - k ln 2 in [-0.36, 0.36]. */
static ALWAYS_INLINE v_f32 v_exp_less_1(v_f32 x, v_f32 k)
{
    /* ln 2 in two parts; the first has 10 bits, so k * 0.693359375 is exact. */
    v_f32 r = x - k * 0.693359375f;
    r = r - k * -2.12194440e-4f;
    v_f32 q = 1.381893875e-03f * r + 8.368703537e-03f;
    q = q * r + 4.166828841e-02f;
    q = q * r + 1.666652113e-01f;
    q = q * r + 4.999999404e-01f;
    return q * (r * r) + r;
}

/* exp of x in [-104, 89], or NaN. */
static inline v_f32 v_exp_core(v_f32 x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    v_f32 t = x * 1.44269504f + magic;
    v_f32 k = t - magic;
    return v_scale2_shifted(v_exp_less_1(x, k) + 1.0f, k, t);
}

static inline v_f32 v_exp(v_f32 x)
{
    return v_exp_core(v_max(v_set(-104.0f), v_min(v_set(89.0f), x)));
}

/* exp of x <= 0, or NaN. */
static inline v_f32 v_exp_negative(v_f32 x)
{
    return v_exp_core(v_max(v_set(-104.0f), x));
}

#define LOG2E 1.44269504f

/* 2^r for |r| <= 0.5. */
static ALWAYS_INLINE v_f32 v_exp2_fraction(v_f32 r)
{
    v_f32 p = 1.532647293e-04f * r + 1.339080627e-03f;
    p = p * r + 9.618505836e-03f;
    p = p * r + 5.550359935e-02f;
    p = p * r + 2.402264774e-01f;
    p = p * r + 6.931471825e-01f;
    return p * r + 1.0f;
}

/* 2^t of t in [-152, 128], or NaN; v_exp2_normal() of t in [-126, 127]. */
static ALWAYS_INLINE v_f32 v_exp2_core(v_f32 t)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    v_f32 shifted = t + magic, k = shifted - magic;
    return v_scale2_shifted(v_exp2_fraction(t - k), k, shifted);
}
static ALWAYS_INLINE v_f32 v_exp2_normal(v_f32 t)
{
    const float magic = 12582912.0f;
    v_f32 shifted = t + magic, k = shifted - magic;
    return v_scale2_normal(v_exp2_fraction(t - k), k, shifted);
}

/* 2^t of t <= 128, or NaN. */
static ALWAYS_INLINE v_f32 v_exp2(v_f32 t)
{
    return v_exp2_core(v_max(v_set(-152.0f), t));
}

static inline v_f32 v_log(v_f32 x)
{
    v_i32 tiny = x < 1.17549435e-38f; /* 0 and negative ones too; mended at the end */
    v_f32 scaled = v_select(tiny, x * 8388608.0f, x);
    /* x = 2^e (1 + f) with sqrt(1/2) <= 1 + f < sqrt 2 */
    v_i32 shifted = (v_i32)((v_u32)scaled - 0x3f3504f3u); /* wraps for negative x */
    v_i32 e = (shifted >> 23) - (tiny & 23);
    v_f32 f = (v_f32)((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
    v_f32 p = -7.635800540e-02f * f + 1.276586950e-01f;
    p = p * f + -1.316153407e-01f;
    p = p * f + 1.420122236e-01f;
    p = p * f + -1.662318856e-01f;
    p = p * f + 2.000124902e-01f;
    p = p * f + -2.500082552e-01f;
    p = p * f + 3.333333135e-01f;
    v_f32 k = __builtin_convertvector(e, v_f32);
    v_f32 square = f * f;
    v_f32 low = p * (square * f) + k * -2.12194440e-4f;
    low = low - 0.5f * square;
    v_f32 y = k * 0.693359375f + (f + low);
    y = v_select(x < INFINITY, y, x); /* inf and NaN */
    y = v_select(x == 0.0f, v_set(-INFINITY), y);
    return v_select(x < 0.0f, v_set(NAN), y);
}

static inline v_f32 v_abs(v_f32 x) { return (v_f32)((v_i32)x & 0x7fffffff); }
/* |magnitude| with the sign of `sign`; magnitude must not be negative. */
static inline v_f32 v_with_sign(v_f32 magnitude, v_f32 sign)
{
    return (v_f32)((v_u32)magnitude | ((v_u32)sign & 0x80000000u));
}

static inline v_f32 v_tanh(v_f32 x)
{
    v_f32 a = v_abs(x);
    v_f32 z = a * a;
    v_f32 p = -5.680683535e-03f * z + 2.061959729e-02f;
    p = p * z + -5.373455957e-02f;
    p = p * z + 1.333139241e-01f;
    p = p * z + -3.333328068e-01f;
    v_f32 small = p * z * a + a;
    v_f32 large = 1.0f - 2.0f / (v_exp(a + a) + 1.0f);
    return v_with_sign(v_select(a < 0.625f, small, large), x);
}

static inline v_f32 v_erf(v_f32 x)
{
    v_f32 a = v_abs(x);
    v_f32 z = a * a;
    v_f32 p = -6.697424105e-04f * z + 5.113041494e-03f;
    p = p * z + -2.683583647e-02f;
    p = p * z + 1.128342301e-01f;
    p = p * z + -3.761262298e-01f;
    p = p * z + 1.283791661e-01f; /* 2 / sqrt(pi) - 1 */
    v_f32 small = p * a + a;
    v_f32 b = v_min(v_set(4.0f), a); /* from there on erf rounds to 1 */
    v_f32 g = 2.189824590e-04f * b + -3.257621545e-03f;
    g = g * b + 2.303464152e-02f;
    g = g * b + -1.055097580e-01f;
    g = g * b + -6.354940534e-01f;
    g = g * b + -1.128614187e+00f;
    g = g * b + 1.649027399e-05f; /* ln erfc on [0.645, 4] */
    return v_with_sign(v_select(a < 0.65f, small, 1.0f - v_exp(g)), x);
}

/* e^x + 1 of any x, as (2^k (e^r - 1) + 1) + 2^k: e^x itself is not rounded. It is 2^-126 at least,
 * which is nothing beside 1, and k is 127 at most: a larger x leaves an r that makes the sum
 * infinite. */
static inline v_f32 v_exp_and_1(v_f32 x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    x = v_max(v_set(-87.0f), x);
    v_f32 t = v_min(v_set(magic + 127.0f), x * 1.44269504f + magic);
    v_f32 k = t - magic;
    v_f32 p = v_exp_less_1(x, k), power = v_scale2_shifted(v_set(1.0f), k, t);
    return (p * power + 1.0f) + power;
}

static inline v_f32 v_sigmoid(v_f32 x) { return 1.0f / v_exp_and_1(-x); }
static inline v_f32 v_silu(v_f32 x) { return x * v_sigmoid(x); }
static inline v_f32 v_relu(v_f32 x) { return v_max(v_set(0.0f), x); }
/* 2^t of t <= 126, but 0 below -110; for factors of terms beside which denormal ones are
 * nothing: what multiplies those takes many times as long. */
static ALWAYS_INLINE v_f32 v_exp2_that_counts(v_f32 t)
{
    return v_exp2_core(v_select(t < -110.0f, v_set(-152.0f), t));
}

/* max(x, 0), but NaN of -inf. */
static ALWAYS_INLINE v_f32 v_positive_part(v_f32 x) { return x - v_min(x, v_set(0.0f)); }
/* x Phi(x) = max(x, 0) - |x| Phi(-|x|), and Phi(-a) = 2^P(a). */
static inline v_f32 v_gelu(v_f32 x)
{
    v_f32 a = v_min(v_set(14.0f), v_abs(x));
    v_f32 p = -1.697923224e-08f * a + 5.429434964e-07f;
    p = p * a + -7.435021871e-06f;
    p = p * a + 5.491970660e-05f;
    p = p * a + -2.017567895e-04f;
    p = p * a + -1.705124887e-04f;
    p = p * a + 7.167764939e-03f;
    p = p * a + -5.259968713e-02f;
    p = p * a + -4.591662884e-01f;
    p = p * a + -1.151110530e+00f;
    p = p * a + -1.0f;
    return v_positive_part(x) - a * v_exp2_that_counts(p);
}
/* x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3): the same with e = exp(-2 |u|)
 * and e / (1 + e). */
static inline v_f32 v_gelu_tanh(v_f32 x)
{
    v_f32 a = v_min(v_set(14.0f), v_abs(x));
    v_f32 t = a * (-2.302208198f + -0.1029432397f * (a * a));
    v_f32 e = v_exp2_that_counts(t);
    return v_positive_part(x) - a * (e / (1.0f + e));
}

#endif

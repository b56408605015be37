/* vtrig.h - sin, cos, tan and atan of a vector of floats. Bounds are checked against
 * double by tests/kernels/check_elementwise.c. NaN and infinite angles give NaN.
 *
 * v_sin, v_cos  2 ulp; v_tan 4 ulp; angles above 4e8 lane by lane by libm
 * v_atan        3 ulp, odd
 *
 * Angles are reduced in double: x - k pi/2 for a whole k < 2^28, with pi/2 in two parts
 * of which the first has 25 bits, so k times it is exact. The polynomials are weighted
 * minimax fits of our own on |r| <= pi/4 and |t| <= tan(pi/8), coefficients rounded one
 * after the other, lowest power first. */
#ifndef ATTN_VTRIG_H
#define ATTN_VTRIG_H

#include "vmath.h"

/* x - k pi/2 in [-pi/4, pi/4]; *quadrant is k mod 4. */
static inline v_f64 reduced_half(v_f64 x, v_f64 *quadrant)
{
    const double magic = 0x1.8p52; /* adding it rounds to a whole number */
    v_f64 t = x * 6.36619772367581382433e-01 + magic;
    v_f64 k = t - magic;
    v_f64 fours = k * 0.25 - 0.375;
    fours = fours + magic;
    fours = fours - magic;
    *quadrant = k - 4.0 * fours;
    v_f64 r = x - k * 1.57079631090164184570;
    return r - k * 1.58932547735281960548e-08;
}

static inline v_f32 v_reduce_angle(v_f32 x, v_i32 *quadrant)
{
    v_f64 q0, q1;
    v_f64 r0 = reduced_half(v_promote(x, false), &q0);
    v_f64 r1 = reduced_half(v_promote(x, true), &q1);
    *quadrant = __builtin_convertvector(v_narrow(q0, q1), v_i32);
    return v_narrow(r0, r1);
}

static inline v_f32 sin_of_reduced(v_f32 r)
{
    v_f32 z = r * r;
    v_f32 p = -1.951790327e-04f * z + 8.332187310e-03f;
    p = p * z + -1.666665524e-01f;
    return p * (z * r) + r;
}

static inline v_f32 cos_of_reduced(v_f32 r)
{
    v_f32 z = r * r;
    v_f32 p = 2.443232734e-05f * z + -1.388730947e-03f;
    p = p * z + 4.166664556e-02f;
    return p * (z * z) + (1.0f - 0.5f * z);
}

/* f lane by lane where the angle is beyond the reduction. */
static __attribute__((noinline, cold)) v_f32 v_each_large(v_f32 x, v_f32 y,
                                                          float (*f)(float))
{
    for (int i = 0; i < VF; i++)
        if (fabsf(x[i]) > 4e8f)
            y[i] = f(x[i]);
    return y;
}

static inline v_i32 v_is_large(v_f32 x)
{
    return (v_abs(x) > 4e8f) & (v_abs(x) < INFINITY);
}

/* The sine of r + quadrant * pi/2. */
static inline v_f32 sin_of_quadrant(v_f32 r, v_i32 quadrant)
{
    v_f32 y = v_select((quadrant & 1) != 0, cos_of_reduced(r), sin_of_reduced(r));
    return (v_f32)((v_i32)y ^ ((quadrant & 2) << 30));
}

static inline v_f32 v_sin(v_f32 x)
{
    v_i32 quadrant;
    v_f32 r = v_reduce_angle(x, &quadrant);
    v_f32 y = v_select(x == 0.0f, x, sin_of_quadrant(r, quadrant)); /* -0 stays */
    return v_any(v_is_large(x)) ? v_each_large(x, y, sinf) : y;
}

static inline v_f32 v_cos(v_f32 x)
{
    v_i32 quadrant;
    v_f32 r = v_reduce_angle(x, &quadrant);
    v_f32 y = sin_of_quadrant(r, quadrant + 1);
    return v_any(v_is_large(x)) ? v_each_large(x, y, cosf) : y;
}

static inline v_f32 v_tan(v_f32 x)
{
    v_i32 quadrant;
    v_f32 r = v_reduce_angle(x, &quadrant);
    v_i32 odd = (quadrant & 1) != 0;
    v_f32 s = sin_of_reduced(r), c = cos_of_reduced(r);
    v_f32 y = v_select(odd, -c, s) / v_select(odd, s, c);
    y = v_select(x == 0.0f, x, y);
    return v_any(v_is_large(x)) ? v_each_large(x, y, tanf) : y;
}

/* t = a, (a - 1) / (a + 1) or -1 / a, with |t| <= tan(pi/8). */
static inline v_f32 v_atan(v_f32 x)
{
    v_f32 a = v_abs(x);
    v_i32 large = a > 2.41421356f, middle = a > 0.414213562f;
    v_f32 above = v_select(large, v_set(-1.0f), v_select(middle, a - 1.0f, a));
    v_f32 below = v_select(large, a, v_select(middle, a + 1.0f, v_set(1.0f)));
    v_f32 from = v_select(large, v_set(1.57079633f),
                          v_select(middle, v_set(0.785398163f), v_set(0.0f)));
    v_f32 t = above / below;
    v_f32 z = t * t;
    v_f32 p = -6.088735536e-02f * z + 1.059872806e-01f;
    p = p * z + -1.424434483e-01f;
    p = p * z + 1.999852657e-01f;
    p = p * z + -3.333331645e-01f;
    return v_with_sign(from + (p * (z * t) + t), x);
}

#endif

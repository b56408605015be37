/* check_elementwise.c - the kernels of elementwise.def against libm in double. */
#include <string.h>

#include "checks.h"

typedef void unary_kernel(float *y, const float *x, size_t n, const float *p);
typedef double unary_reference(double x, const float *p);

/* With the parameters p: within `ulp` of the double result, or `absolute` off; in place the same
 * bits. */
static void check_values(struct check *c, unary_kernel *kernel, const float *p,
                         unary_reference *reference, double ulp, double absolute)
{
    CHECK_SIZES(c, n)
    {
        float *x = check_edge_f32(c, n), *y = check_memory(c, n * sizeof *y);
        kernel(y, x, n, p);
        for (size_t i = 0; i < n; i++) {
            double want = reference((double)x[i], p);
            if (fabs(want) < 1e-37 && fabs((double)y[i]) < 1e-37)
                want = (double)y[i]; /* denormal results may be flushed by the formula */
            if (isfinite(want) && fabs((double)y[i] - want) <= absolute)
                check_true(c, i, true, "");
            else
                check_f32(c, i, y[i], want, ulp);
        }
        kernel(x, x, n, p);
        check_true(c, 0, n == 0 || memcmp(x, y, n * sizeof *x) == 0, "differs in place");
    }
}

static void check_unary(struct check *c, unary_kernel *kernel, unary_reference *reference,
                        double ulp, double absolute)
{
    const float p[2] = { 0.75f, 1.25f };
    check_values(c, kernel, p, reference, ulp, absolute);
    float *x = check_normal_f32(c, 4096), *y = check_memory(c, 4096 * sizeof *y);
    CHECK_BENCH(c, "4096", 8.0 * 4096, "GB/s")
    kernel(y, x, 4096, p);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Where activations are far below 0, products with what is left of them are to be fast.
 */
static void check_no_denormals(struct check *c, unary_kernel *kernel)
{
    enum { N = 4000 };
    const float p[2] = { 0 };
    float *x = check_memory(c, N * sizeof *x), *y = check_memory(c, N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = -0.01f * (float)(i + 1);
    kernel(y, x, N, p);
    for (size_t i = 0; i < N; i++)
        check_true(c, i, fpclassify(y[i]) != FP_SUBNORMAL, "is denormal");
}

#define REFERENCE(name, f)                                                               \
    static double name##_of(double x, const float *p)                                    \
    {                                                                                    \
        double p0 = (double)p[0], p1 = (double)p[1];                                     \
        (void)p0;                                                                        \
        (void)p1;                                                                        \
        return f;                                                                        \
    }
#define UNARY(name, ulp, absolute, f)                                                    \
    REFERENCE(name, f)                                                                   \
    void check_##name##_f32(struct check *c)                                             \
    {                                                                                    \
        check_unary(c, c->k->name##_f32, name##_of, ulp, absolute);                      \
    }
UNARY(abs, 0, 0, fabs(x))
UNARY(neg, 0, 0, -x)
UNARY(reciprocal, 0.5, 0, 1 / x)
UNARY(relu, 0, 0, x < 0 ? 0 : x)
UNARY(leaky_relu, 0.5, 0, x < 0 ? p0 * x : x)
UNARY(thresholded_relu, 0, 0, x > p0 ? x : 0)
UNARY(clip, 0, 0, x<p0 ? p0 : x> p1 ? p1 : x)
UNARY(hard_sigmoid, 1, 1e-7, isnan(x) ? x : fmax(0, fmin(1, p0 *x + p1)))
UNARY(hard_swish, 2, 1e-6, isnan(x) ? x : x * fmax(0, fmin(1, x / 6 + 0.5)))
UNARY(exp, 2, 0, exp(x))
UNARY(log, 2, 0, log(x))
UNARY(tanh, 2, 0, tanh(x))
UNARY(erf, 2, 0, erf(x))
UNARY(sigmoid, 2, 1e-37, sigmoid(x))
REFERENCE(gelu, isnan(x) ? x : 0.5 * x * (1 + erf(x * 0.70710678118654752)))
void check_gelu_f32(struct check *c)
{
    check_unary(c, c->k->gelu_f32, gelu_of, 4, 2e-6);
    check_no_denormals(c, c->k->gelu_f32);
}
REFERENCE(gelu_tanh,
          isnan(x)
              ? x
              : 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))))
void check_gelu_tanh_f32(struct check *c)
{
    check_unary(c, c->k->gelu_tanh_f32, gelu_tanh_of, 4, 2e-6);
    check_no_denormals(c, c->k->gelu_tanh_f32);
}
/* As the nodes Mul, Sigmoid and Mul compute it: p0 * x is a float. From x in double it may be
 * |p0 x| ulp more where p0 x < 0, as the half ulp of the product is one of an exponent there. */
UNARY(swish, 3, 1e-37, isnan(x) ? x : x * sigmoid((double)((float)p0 * (float)x)))
UNARY(elu, 4, 1e-37, x < 0 ? p0 * expm1(x) : x)
REFERENCE(celu, x < 0 ? p0 * expm1(x / p0) : x)
void check_celu_f32(struct check *c)
{
    const float negative[2] = { -1 }; /* the exponent is positive then */
    check_unary(c, c->k->celu_f32, celu_of, 5, 1e-37);
    check_values(c, c->k->celu_f32, negative, celu_of, 5, 1e-37);
}
UNARY(selu, 5, 1e-37, p1 *(x <= 0 ? p0 * expm1(x) : x))
UNARY(softplus, 4, 1e-37, isnan(x) ? x : fmax(x, 0) + log1p(exp(-fabs(x))))
UNARY(softsign, 2, 0, isinf(x) ? (double)NAN : x / (1 + fabs(x)))
UNARY(mish, 6, 1e-36, isnan(x) ? x : x * tanh(fmax(x, 0) + log1p(exp(-fabs(x)))))
UNARY(sin, 2, 0, sin(x))
UNARY(cos, 2, 0, cos(x))
UNARY(tan, 4, 0, tan(x))
UNARY(atan, 3, 0, atan(x))
UNARY(sign, 0, 0, isnan(x) || x == 0 ? x : copysign(1, x))
UNARY(sqrt, 0.5, 0, sqrt(x))
UNARY(cube, 1.5, 0, x * x * x)
UNARY(pow_half, 0.5, 0, pow(x, 0.5))
UNARY(floor, 0, 0, floor(x))
UNARY(ceil, 0, 0, ceil(x))
UNARY(round, 0, 0, nearbyint(x))

typedef void binary_kernel(float *y, const float *a, size_t a_step, const float *b,
                           size_t b_step, size_t n);
typedef double binary_reference(double a, double b);

static void compare_binary(struct check *c, const float *y, const float *a, size_t a_step,
                           const float *b, size_t b_step, size_t n,
                           binary_reference *reference)
{
    for (size_t i = 0; i < n; i++)
        check_f32(c, i, y[i], reference((double)a[i * a_step], (double)b[i * b_step]),
                  0.5);
}

static void check_binary(struct check *c, binary_kernel *kernel,
                         binary_reference *reference)
{
    CHECK_SIZES(c, n)
    {
        size_t a_step = check_below(c, 3) != 0, b_step = check_below(c, 3) != 0;
        float *a = check_edge_f32(c, a_step ? n : 1),
              *b = check_edge_f32(c, b_step ? n : 1);
        float *y = check_memory(c, n * sizeof *y);
        kernel(y, a, a_step, b, b_step, n);
        compare_binary(c, y, a, a_step, b, b_step, n, reference);
        if (a_step) {
            kernel(a, a, 1, b, b_step, n);
            check_true(c, 0, n == 0 || memcmp(a, y, n * sizeof *a) == 0,
                       "differs in place");
        }
    }
    float *a = check_normal_f32(c, 4096), *y = check_memory(c, 4096 * sizeof *y);
    CHECK_BENCH(c, "4096", 12.0 * 4096, "GB/s")
    kernel(y, a, 1, a, 1, 4096);
}

#define BINARY(name, f)                                                                  \
    static double name##_of(double a, double b) { return f; }                            \
    void check_##name##_f32(struct check *c)                                             \
    {                                                                                    \
        check_binary(c, c->k->name##_f32, name##_of);                                    \
    }
BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a *b)
BINARY(div, a / b)
BINARY(max, a > b || isnan(a) ? a : b)
BINARY(min, a < b || isnan(a) ? a : b)
BINARY(prelu, a < 0 ? a * b : a)

typedef void compare_kernel(uint8_t *y, const float *a, size_t a_step, const float *b,
                            size_t b_step, size_t n);

static void check_compare(struct check *c, compare_kernel *kernel,
                          bool (*so)(float a, float b))
{
    CHECK_SIZES(c, n)
    {
        size_t a_step = check_below(c, 3) != 0, b_step = check_below(c, 3) != 0;
        const float *a = check_edge_f32(c, a_step ? n : 1);
        float *b = check_edge_f32(c, b_step ? n : 1);
        uint8_t *y = check_memory(c, n);
        for (size_t i = 0; a_step && b_step && i < n; i += 2)
            b[i] = a[i];
        kernel(y, a, a_step, b, b_step, n);
        for (size_t i = 0; i < n; i++)
            check_i64(c, i, y[i], so(a[i * a_step], b[i * b_step]));
    }
    float *a = check_normal_f32(c, 4096);
    uint8_t *y = check_memory(c, 4096);
    CHECK_BENCH(c, "4096", 9.0 * 4096, "GB/s")
    kernel(y, a, 1, a, 1, 4096);
}

#define COMPARE_F32(name, relation)                                                      \
    static bool name##_of(float a, float b) { return a relation b; }                     \
    void check_##name##_f32(struct check *c)                                             \
    {                                                                                    \
        check_compare(c, c->k->name##_f32, name##_of);                                   \
    }
#include "../../ops/kernels/compare_f32.def"

void check_where_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        size_t c_step = check_below(c, 4) != 0, a_step = check_below(c, 3) != 0,
               b_step = check_below(c, 3) != 0;
        uint8_t *which = check_bytes(c, c_step ? n : 1);
        for (size_t i = 0; c_step && i < n; i++)
            which[i] = (uint8_t)(which[i] < 100 ? 0 : which[i] < 200 ? 1 : which[i]);
        float *a = check_edge_f32(c, a_step ? n : 1),
              *b = check_edge_f32(c, b_step ? n : 1);
        float *y = check_memory(c, n * sizeof *y);
        c->k->where_f32(y, which, c_step, a, a_step, b, b_step, n);
        for (size_t i = 0; i < n; i++) {
            const float *want = which[i * c_step] ? a + i * a_step : b + i * b_step;
            check_true(c, i, memcmp(y + i, want, sizeof *y) == 0, "is another number");
        }
        float *in_place = a_step ? a : b;
        if (a_step || b_step) {
            c->k->where_f32(in_place, which, c_step, a, a_step, b, b_step, n);
            check_true(c, 0, n == 0 || memcmp(in_place, y, n * sizeof *y) == 0,
                       "differs in place");
        }
    }
    uint8_t *which = check_bytes(c, 4096);
    float *a = check_normal_f32(c, 4096), *y = check_memory(c, 4096 * sizeof *y);
    CHECK_BENCH(c, "4096", 13.0 * 4096, "GB/s")
    c->k->where_f32(y, which, 1, a, 1, a, 1, 4096);
}

/* ---- 16-bit floats and bytes ---- */

static double f16_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

static double bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void check_promote(struct check *c,
                          void (*kernel)(float *, const uint16_t *, size_t),
                          double (*value)(uint16_t))
{
    CHECK_SIZES(c, n)
    {
        const uint16_t *x = check_bytes(c, n * sizeof *x);
        float *y = check_memory(c, n * sizeof *y);
        kernel(y, x, n);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, y[i], value(x[i]), 0);
    }
}

/* The nearest: neither neighbour is nearer, and halves are even. */
static void check_narrow(struct check *c,
                         void (*kernel)(uint16_t *, const float *, size_t),
                         double (*value)(uint16_t), double overflow)
{
    CHECK_SIZES(c, n)
    {
        const float *x = check_edge_f32(c, n);
        uint16_t *y = check_memory(c, n * sizeof *y);
        kernel(y, x, n);
        for (size_t i = 0; i < n; i++) {
            double want = (double)x[i], got = value(y[i]), error = fabs(got - want);
            if (isnan(want) || fabs(want) >= overflow) {
                check_near(c, i, got,
                           isnan(want) ? want : copysign((double)INFINITY, want), 0);
                continue;
            }
            double above = fabs(value((uint16_t)(y[i] + 1)) - want);
            double below =
                (y[i] & 0x7fff) ? fabs(value((uint16_t)(y[i] - 1)) - want) : above;
            bool even = (y[i] & 1) == 0;
            check_true(c, i, isfinite(got) && (!(above < error) && !(below < error)),
                       "a neighbour is nearer");
            check_true(c, i, even || (above != error && below != error),
                       "half is not even");
        }
    }
}

void check_f16_to_f32(struct check *c) { check_promote(c, c->k->f16_to_f32, f16_value); }
void check_bf16_to_f32(struct check *c)
{
    check_promote(c, c->k->bf16_to_f32, bf16_value);
}
void check_f32_to_f16(struct check *c)
{
    check_narrow(c, c->k->f32_to_f16, f16_value, 65520);
}
void check_f32_to_bf16(struct check *c)
{
    check_narrow(c, c->k->f32_to_bf16, bf16_value, 3.3961775292304952e38);
}

static double quantized(float x, float scale, float zero, double low, double high)
{
    double v = nearbyint((double)(x / scale)) + (double)zero;
    return v > low ? fmin(v, high) : low; /* NaN too */
}

/* Scales of all kinds, and numbers beside the halves of them, where a product by 1 / scale is
 * rounded to the other side. */
static float make_near_halves(struct check *c, float *x, size_t n, float zero)
{
    static const float rare[] = { 0x1p-140f, 0x1p-101f, 0x1p100f,
                                  0x1p127f,  -0.3f,     INFINITY };
    const int64_t kind = check_below(c, 16);
    const float scale =
        kind < 6 ? rare[kind] : (float)(1 + check_below(c, 9999)) / 7001.0f;
    for (size_t i = 0; i < n; i += 1 + (size_t)check_below(c, 3)) {
        x[i] = ((float)check_below(c, 300) + 0.5f - zero) * scale;
        for (int64_t k = check_below(c, 3); k > 0; k--)
            x[i] = nextafterf(x[i], check_below(c, 2) == 0 ? -INFINITY : INFINITY);
    }
    return scale;
}

void check_quantize_u8_f32(struct check *c)
{
    for (int round = 0; round < 40; round++)
        CHECK_SIZES(c, n)
        {
            float *x = check_edge_f32(c, n);
            uint8_t *y = check_memory(c, n);
            float zero = (float)check_below(c, 256);
            const float scale = make_near_halves(c, x, n, zero);
            c->k->quantize_u8_f32(y, x, scale, zero, n);
            for (size_t i = 0; i < n; i++)
                check_i64(c, i, y[i], (int64_t)quantized(x[i], scale, zero, 0, 255));
        }
}

void check_quantize_i8_f32(struct check *c)
{
    for (int round = 0; round < 40; round++)
        CHECK_SIZES(c, n)
        {
            float *x = check_edge_f32(c, n);
            int8_t *y = check_memory(c, n);
            float zero = (float)(check_below(c, 256) - 128);
            const float scale = make_near_halves(c, x, n, zero);
            c->k->quantize_i8_f32(y, x, scale, zero, n);
            for (size_t i = 0; i < n; i++)
                check_i64(c, i, y[i], (int64_t)quantized(x[i], scale, zero, -128, 127));
        }
}

void check_dequantize_u8_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const uint8_t *x = check_bytes(c, n);
        float *y = check_memory(c, n * sizeof *y);
        c->k->dequantize_u8_f32(y, x, 0.3f, 7, n);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, y[i], (double)(((float)x[i] - 7) * 0.3f), 0);
    }
}

void check_dequantize_i8_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const int8_t *x = check_bytes(c, n);
        float *y = check_memory(c, n * sizeof *y);
        c->k->dequantize_i8_f32(y, x, 0.3f, 7, n);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, y[i], (double)(((float)x[i] - 7) * 0.3f), 0);
    }
}

void check_dequantize_u4_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const uint8_t *x = check_bytes(c, (n + 1) / 2);
        float *y = check_memory(c, n * sizeof *y);
        c->k->dequantize_u4_f32(y, x, 0.3f, 7, n);
        for (size_t i = 0; i < n; i++) {
            const int half = i % 2 == 0 ? x[i / 2] & 15 : x[i / 2] >> 4;
            check_f32(c, i, y[i], (double)(((float)half - 7) * 0.3f), 0);
        }
    }
}

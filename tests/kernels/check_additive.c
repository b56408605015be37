/* check_additive.c - scores of additive attention. */
#include "checks.h"

enum { UNITS = 37, FORM_TANH = 0, FORM_RELU, FORM_EXP };

struct scores {
    float *s, *k;
    float q[UNITS], v[UNITS];
    ptrdiff_t k_row;
    size_t u, n;
};

static struct scores make(struct check *c, size_t n, int form)
{
    struct scores x = { .n = n };
    x.u = (size_t)check_below(c, UNITS + 1);
    x.k_row = (ptrdiff_t)n + (ptrdiff_t)check_below(c, 3);
    const size_t all = x.u == 0 ? 0 : (x.u - 1) * (size_t)x.k_row + n;
    x.s = check_memory(c, n * sizeof(float));
    x.k = check_memory(c, all * sizeof(float));
    for (size_t i = 0; i < all; i++)
        x.k[i] = form == FORM_EXP ? expf(9 * check_normal(c)) : 3 * check_normal(c);
    for (size_t i = 0; i < x.u; i++) {
        x.q[i] = form == FORM_EXP ? expf(9 * check_normal(c)) : 3 * check_normal(c);
        x.v[i] = check_normal(c);
    }
    return x;
}

static double term(int form, double q, double v, double k)
{
    return form == FORM_EXP    ? v / (q * k + 1)
           : form == FORM_TANH ? v * tanh(q + k)
                               : v * fmax(q + k, 0);
}

static void compare(struct check *c, const struct scores *x, int form, double base)
{
    for (size_t j = 0; j < x->n; j++) {
        double want = base, size = fabs(base);
        for (size_t i = 0; i < x->u; i++) {
            const double k = (double)x->k[(ptrdiff_t)i * x->k_row + (ptrdiff_t)j];
            const double part = term(form, (double)x->q[i], (double)x->v[i], k);
            want += part;
            size += fabs(part);
        }
        check_near(c, j, (double)x->s[j], want, 2e-6 * size + 1e-30);
    }
}

/* Terms of one size, each of which a long sum would round the same way. */
static void many_units(struct check *c, int form)
{
    enum { MANY = 4001, KEYS = 20 };
    const float one = form == FORM_EXP ? 1.3f : 0.3f;
    float *k = check_memory(c, MANY * KEYS * sizeof *k), *s, *q, *v;
    s = check_memory(c, KEYS * sizeof *s);
    q = check_memory(c, MANY * sizeof *q);
    v = check_memory(c, MANY * sizeof *v);
    for (int i = 0; i < MANY; i++)
        q[i] = v[i] = one;
    for (int i = 0; i < MANY * KEYS; i++)
        k[i] = one + (float)(i % KEYS) / 8.0f;
    if (form == FORM_TANH)
        c->k->additive_tanh_f32(s, q, v, k, KEYS, MANY, KEYS);
    else if (form == FORM_RELU)
        c->k->additive_relu_f32(s, q, v, k, KEYS, MANY, KEYS);
    else
        c->k->additive_exp_f32(s, 0.0f, q, v, k, KEYS, MANY, KEYS);
    for (size_t j = 0; j < KEYS; j++) {
        const double want = MANY * term(form, (double)one, (double)one, (double)k[j]);
        check_near(c, j, (double)s[j], want, 2e-6 * fabs(want));
    }
}

void check_additive_tanh_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct scores x = make(c, n, FORM_TANH);
        c->k->additive_tanh_f32(x.s, x.q, x.v, x.k, x.k_row, x.u, n);
        compare(c, &x, FORM_TANH, 0);
    }
    many_units(c, FORM_TANH);
    const float *k = check_normal_f32(c, 64 * 256), *q = check_normal_f32(c, 64);
    float *s = check_memory(c, 256 * sizeof *s);
    CHECK_BENCH(c, "64 x 256", 64.0 * 256, "G terms/s")
    c->k->additive_tanh_f32(s, q, q, k, 256, 64, 256);
}

void check_additive_relu_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct scores x = make(c, n, FORM_RELU);
        c->k->additive_relu_f32(x.s, x.q, x.v, x.k, x.k_row, x.u, n);
        compare(c, &x, FORM_RELU, 0);
    }
    many_units(c, FORM_RELU);
}

void check_additive_exp_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        struct scores x = make(c, n, FORM_EXP);
        c->k->additive_exp_f32(x.s, 3.5f, x.q, x.v, x.k, x.k_row, x.u, n);
        compare(c, &x, FORM_EXP, 3.5);
    }
    many_units(c, FORM_EXP);
    float *k = check_normal_f32(c, 64 * 256), *s = check_memory(c, 256 * sizeof *s);
    for (int i = 0; i < 64 * 256; i++)
        k[i] = expf(k[i]);
    CHECK_BENCH(c, "64 x 256", 64.0 * 256, "G terms/s")
    c->k->additive_exp_f32(s, 0.0f, k, k, k, 256, 64, 256);
}

/* check_sagan_attention.c - SAGANAttention against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

struct sagan {
    int64_t b, c, h, w, d, e, pool;
    bool with_wo, biases[4]; /* bq bk bv bo */
    float scale, gain;       /* what wq and wk are multiplied by */
    const float *x, *wq, *bq, *wk, *bk, *wv, *bv, *gamma, *wo, *bo;
};

/* (w x + bias)_r at a pixel of one sample. */
static double project(const struct sagan *s, const float *x, const float *w,
                      const float *bias, int64_t r, int64_t pixel)
{
    double sum = bias != NULL ? (double)bias[r] : 0;
    for (int64_t c = 0; c < s->c; c++)
        sum += (double)w[r * s->c + c] * (double)x[c * s->h * s->w + pixel];
    return sum;
}

/* out (keys, rows) */
static void pool(const struct sagan *s, const float *x, const float *w, const float *bias,
                 int64_t rows, double *out)
{
    const int64_t columns = s->w / s->pool;
    for (int64_t key = 0; key < s->h / s->pool * columns; key++)
        for (int64_t r = 0; r < rows; r++) {
            double max = -HUGE_VAL;
            for (int64_t i = 0; i < s->pool * s->pool; i++) {
                const int64_t row = key / columns * s->pool + i / s->pool;
                const int64_t column = key % columns * s->pool + i % s->pool;
                const double v = project(s, x, w, bias, r, row * s->w + column);
                max = v > max || isnan(v) || isnan(max) ? (isnan(max) ? max : v) : max;
            }
            out[key * rows + r] = max;
        }
}

/* o (e) of a query. */
static void look(const struct sagan *s, const double *q, const double *k, const double *v,
                 int64_t keys, double *scores, double *o)
{
    double max = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = 0;
        for (int64_t i = 0; i < s->d; i++)
            scores[j] += (double)s->scale * q[i] * k[j * s->d + i];
        max = scores[j] > max || isnan(scores[j]) ? scores[j] : max;
    }
    for (int64_t i = 0; i < s->e; i++)
        o[i] = 0;
    for (int64_t j = 0; j < keys; j++) {
        const double p = exp(scores[j] - max);
        sum += p;
        for (int64_t i = 0; i < s->e; i++)
            o[i] += p * v[j * s->e + i];
    }
    for (int64_t i = 0; i < s->e; i++)
        o[i] /= sum;
}

static void store(const struct sagan *s, const float *x, const double *o, double *y)
{
    for (int64_t c = 0; c < s->c; c++) {
        double v = s->wo == NULL ? o[c] : s->bo != NULL ? (double)s->bo[c] : 0;
        for (int64_t i = 0; s->wo != NULL && i < s->e; i++)
            v += (double)s->wo[c * s->e + i] * o[i];
        y[c * s->h * s->w] = (double)*s->gamma * v + (double)x[c * s->h * s->w];
    }
}

static void reference(const struct sagan *s, double *y)
{
    const int64_t n = s->h * s->w, keys = n / s->pool / s->pool;
    double *k = malloc((size_t)(keys * (s->d + s->e + 1) + s->d + s->e) * sizeof *k);
    double *v = k + keys * s->d, *scores = v + keys * s->e, *q = scores + keys;
    for (int64_t b = 0; b < s->b; b++) {
        const float *x = s->x + b * s->c * n;
        pool(s, x, s->wk, s->bk, s->d, k);
        pool(s, x, s->wv, s->bv, s->e, v);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t r = 0; r < s->d; r++)
                q[r] = project(s, x, s->wq, s->bq, r, i);
            look(s, q, k, v, keys, scores, q + s->d);
            store(s, x + i, q + s->d, y + b * s->c * n + i);
        }
    }
    free(k);
}

/* A matrix of rows with deviation `gain` / sqrt(columns). */
static const float *add_matrix(struct check *c, const char *name, int64_t rows,
                               int64_t columns, float gain)
{
    float *w = check_weight(c, name, DIMS(rows, columns));
    for (int64_t i = 0; i < rows * columns; i++)
        w[i] *= gain / sqrtf((float)columns);
    return w;
}

/* Of deviation 1/4: scores stay small enough for floats. */
static const float *add_bias(struct check *c, const char *name, bool given, int64_t n)
{
    if (!given) {
        check_absent(c);
        return NULL;
    }
    float *bias = check_weight(c, name, DIMS(n));
    for (int64_t i = 0; i < n; i++)
        bias[i] *= 0.25f;
    return bias;
}

static double *build(struct check *c, struct sagan *s)
{
    check_begin(c, "SAGANAttention");
    if (s->pool != 1 || check_chance(c, 30))
        check_int(c, "kv_pool", s->pool);
    if (s->scale != 1.0f)
        check_float(c, "scale", s->scale);
    s->x = check_f32(c, "x", DIMS(s->b, s->c, s->h, s->w));
    s->wq = add_matrix(c, "wq", s->d, s->c, s->gain);
    s->bq = add_bias(c, "bq", s->biases[0], s->d);
    s->wk = add_matrix(c, "wk", s->d, s->c, s->gain);
    s->bk = add_bias(c, "bk", s->biases[1], s->d);
    s->wv = add_matrix(c, "wv", s->e, s->c, 1);
    s->bv = add_bias(c, "bv", s->biases[2], s->e);
    s->gamma = check_weight(c, "gamma", s->d % 2 != 0, (const int64_t[]){ 1 });
    s->wo = s->bo = NULL;
    if (s->with_wo)
        s->wo = add_matrix(c, "wo", s->c, s->e, 1);
    if (s->with_wo && s->biases[3])
        s->bo = add_bias(c, "bo", true, s->c);
    double *y = check_output(c, "Y", DIMS(s->b, s->c, s->h, s->w));
    if (!c->blank)
        reference(s, y);
    return y;
}

/* Mostly small; narrow, wide and square maps, so that tiles are cut in all ways. */
static struct sagan draw(struct check *c)
{
    const int form = (int)check_below(c, 10);
    struct sagan s = { .b = check_between(c, 0, 3),
                       .c = check_between(c, 1, form == 0 ? 150 : 40),
                       .h = check_between(c, 1, form < 2 ? 24 : 9),
                       .w = check_between(c, 1, form < 2 ? 24 : 9),
                       .d = check_between(c, 1, form == 0 ? 140 : 20),
                       .pool = check_between(c, 1, 2),
                       .with_wo = check_chance(c, 60),
                       .scale = check_chance(c, 70) ? 1.0f : 0.3f };
    if (form == 2) {
        s.b = 1;
        s.c = check_between(c, 1, 6);
        s.h = check_between(c, 1, 3);
        s.w = check_between(c, 200, 320);
    }
    s.h *= s.pool;
    s.w *= s.pool;
    s.e = !s.with_wo || check_chance(c, 30) ? s.c : check_between(c, 1, 2 * s.c);
    if (form == 0 && s.with_wo)
        s.e = check_between(c, 120, 150);
    for (int i = 0; i < 4; i++)
        s.biases[i] = check_chance(c, 50);
    s.gain = 1.5f / sqrtf(sqrtf((float)s.d) * s.scale);
    return s;
}

/* With gamma 0 Y is x. */
static void without_gamma(struct check *c)
{
    struct sagan s = draw(c);
    s.b = 2;
    double *y = build(c, &s);
    *(float *)c->in[7].data = 0;
    for (int64_t i = 0; i < s.b * s.c * s.h * s.w; i++)
        y[i] = (double)s.x[i];
    check_run(c, CHECK_EXACT);
}

/* A pixel that is not finite: NaN everywhere in its sample for NaN; the other samples are
 * as they were. */
static void one_pixel(struct check *c, int64_t kv_pool, bool with_wo)
{
    struct sagan s = draw(c);
    s.b = 3;
    s.h = s.w = 6;
    s.pool = kv_pool;
    s.with_wo = with_wo;
    s.e = s.c;
    double *y = build(c, &s);
    const int64_t n = s.c * s.h * s.w;
    float *x = c->in[0].data;
    x[n + 7] = NAN;
    for (int64_t i = 0; i < n; i++)
        y[n + i] = (double)NAN;
    check_run(c, CHECK_B);
    /* All keys but one are hidden by scores that are far below. */
    s.d = s.c = s.e = 1;
    s.with_wo = false;
    s.scale = 1;
    y = build(c, &s);
    x = c->in[0].data;
    ((float *)c->in[1].data)[0] = ((float *)c->in[3].data)[0] = 1;
    if (s.bq != NULL)
        ((float *)c->in[2].data)[0] = 0;
    for (int64_t i = 0; i < s.b * s.h * s.w; i++)
        x[i] = i % (s.h * s.w) == 9 ? 1000.0f : 1.0f;
    reference(&s, y);
    check_run(c, CHECK_B);
}

static void refuse_shapes(struct check *c, const struct sagan *plain)
{
    struct sagan s = *plain;
    build(c, &s);
    c->in[0].rank = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|expected rank 4");
    build(c, &s);
    c->in[0].dims[1] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|dim 1 is 0");
    build(c, &s);
    c->in[0].dims[3] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|dim 3 is 0");
    build(c, &s);
    c->in[1].dims[1] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 wq|expected 6 in dim 1");
    build(c, &s);
    c->in[2].dims[0] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE,
                  "input 2 bq|expected 2 in dim 0|rows of its matrix");
    build(c, &s);
    c->in[3].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 3 wk|expected 2 in dim 0");
    build(c, &s);
    c->in[5].rank = 1;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 5 wv|expected rank 2");
    build(c, &s);
    c->in[7].rank = 1;
    c->in[7].dims[0] = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 7 gamma|expected 1 in dim 0");
    build(c, &s);
    c->in[8].dims[1] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 8 wo|expected 3 in dim 1");
    build(c, &s);
    c->in[8].dims[0] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 8 wo|expected 6 in dim 0");
    build(c, &s);
    c->in[9].dims[0] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 9 bo|expected 6 in dim 0");
    build(c, &s);
    check_leave_out(c, 8);
    check_refuses(c, ATTNRUN_E_SHAPE, "input 9 bo|only with wo");
    build(c, &s);
    c->in[1].dims[0] = c->in[2].dims[0] = c->in[3].dims[0] = c->in[4].dims[0] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 wq|dim 0 is 0");
}

static void refusals(struct check *c)
{
    const struct sagan plain = { .b = 1,
                                 .c = 6,
                                 .h = 4,
                                 .w = 8,
                                 .d = 2,
                                 .e = 3,
                                 .pool = 2,
                                 .with_wo = true,
                                 .biases = { true, true, true, true },
                                 .scale = 1 };
    struct sagan s = plain;
    c->blank = true;
    refuse_shapes(c, &plain);
    build(c, &s);
    c->in[0].dims[2] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|an even dim 2 for kv_pool 2");
    build(c, &s);
    c->in[0].dims[3] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|an even dim 3 for kv_pool 2");
    s.with_wo = false;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "input 5 wv|expected 6 rows|wo is absent");
    s = plain;
    s.scale = NAN;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "scale is nan|finite");
    s = plain;
    s.pool = 3;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "kv_pool is 3");
    s.pool = 2;
    build(c, &s);
    check_int(c, "num_heads", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "num_heads");
}

void check_sagan_attention(struct check *c)
{
    CHECK_ROUNDS(c, 80)
    {
        struct sagan s = draw(c);
        build(c, &s);
        check_run(c, CHECK_B);
    }
    for (int i = 0; i < 3; i++)
        without_gamma(c);
    for (int64_t kv_pool = 1; kv_pool <= 2; kv_pool++) {
        one_pixel(c, kv_pool, false);
        one_pixel(c, kv_pool, true);
    }
    refusals(c);
    for (int64_t kv_pool = 1; kv_pool <= 2; kv_pool++) {
        struct sagan s = { .b = 1,
                           .c = 256,
                           .h = 128,
                           .w = 128,
                           .d = 32,
                           .e = kv_pool == 1 ? 256 : 128,
                           .pool = kv_pool,
                           .with_wo = kv_pool == 2,
                           .scale = 1 };
        const int64_t keys = s.h * s.w / kv_pool / kv_pool;
        c->blank = true;
        build(c, &s);
        check_extra_memory(c, keys * (s.d + s.e) * 4 + (1 << 20));
    }
}

/* check_attnrun_linear_attention.c - LinearAttention of domain attnrun: every query sums
 * over its keys. */
#include <stdlib.h>

#include "operator_harness.h"

struct sizes {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim;
    bool causal, masked, past, present, dims_first;
    bool hidden;                             /* what is masked is NaN */
    const char *map_q, *map_k, *denominator; /* NULL: absent */
    double epsilon, scale;
};

struct operands {
    const float *q, *k, *v, *past_kv, *past_z;
    const uint8_t *keep;
    double *f_k; /* features of keys (batch, kv_heads, kv_len, dim) */
    double *y, *kv, *z;
};

static double feature(const char *map, double x)
{
    if (map != NULL && strcmp(map, "relu") == 0)
        return fmax(x, 0);
    if (map != NULL && strcmp(map, "identity") == 0)
        return x;
    if (map != NULL && strcmp(map, "exp") == 0)
        return exp(x);
    return x > 0 ? x + 1 : exp(x);
}

static bool kept(const struct sizes *s, const struct operands *o, int64_t b, int64_t j)
{
    return o->keep == NULL || o->keep[b * s->kv_len + j] != 0;
}

/* Features of one key head; those of masked keys are 0. */
static void key_features(const struct sizes *s, const struct operands *o, int64_t b,
                         int64_t g)
{
    double *f = o->f_k + (b * s->kv_heads + g) * s->kv_len * s->dim;
    const float *k = o->k + (b * s->kv_len * s->kv_heads + g) * s->dim;
    const bool softmax = s->map_k != NULL && strcmp(s->map_k, "softmax_n") == 0;
    for (int64_t d = 0; d < s->dim; d++) {
        double max = -HUGE_VAL, sum = 0;
        for (int64_t j = 0; j < s->kv_len; j++)
            if (kept(s, o, b, j))
                max = fmax(max, (double)k[j * s->kv_heads * s->dim + d]);
        for (int64_t j = 0; j < s->kv_len; j++) {
            double x = (double)k[j * s->kv_heads * s->dim + d];
            double y = softmax ? exp(x - max) : feature(s->map_k, x);
            f[j * s->dim + d] = kept(s, o, b, j) ? y : 0;
            sum += f[j * s->dim + d];
        }
        for (int64_t j = 0; softmax && sum > 0 && j < s->kv_len; j++)
            f[j * s->dim + d] /= sum;
    }
}

static void query_features(const struct sizes *s, const float *q, double *f)
{
    double max = -HUGE_VAL, sum = 0;
    const bool softmax = s->map_q != NULL && strcmp(s->map_q, "softmax_d") == 0;
    for (int64_t d = 0; d < s->dim; d++)
        max = fmax(max, (double)q[d]);
    for (int64_t d = 0; d < s->dim; d++) {
        f[d] = softmax ? exp((double)q[d] - max) : feature(s->map_q, (double)q[d]);
        sum += f[d];
    }
    for (int64_t d = 0; softmax && d < s->dim; d++)
        f[d] /= sum;
}

static double divisor(const struct sizes *s, const double *f, double r)
{
    if (s->denominator != NULL && strcmp(s->denominator, "add_keys") == 0) {
        for (int64_t d = 0; d < s->dim; d++)
            r += f[d] * s->epsilon;
        return r;
    }
    if (s->denominator == NULL || strcmp(s->denominator, "add") == 0)
        return r + s->epsilon;
    return strcmp(s->denominator, "clamp") == 0 ? fmax(r, s->epsilon) : 1;
}

static void one_query(const struct sizes *s, const struct operands *o, int64_t b,
                      int64_t h, int64_t i)
{
    const int64_t g = h / (s->q_heads / s->kv_heads), head = b * s->kv_heads + g;
    double f[64], r = 0, *y = o->y + ((b * s->q_len + i) * s->q_heads + h) * s->v_dim;
    bool any = s->past;
    query_features(s, o->q + ((b * s->q_len + i) * s->q_heads + h) * s->dim, f);
    for (int64_t d = 0; s->past && d < s->dim; d++) {
        r += f[d] * (double)o->past_z[head * s->dim + d];
        for (int64_t e = 0; e < s->v_dim; e++)
            y[e] += f[d] * (double)o->past_kv[(head * s->dim + d) * s->v_dim + e];
    }
    for (int64_t j = 0; j < s->kv_len; j++) {
        double a = 0;
        if ((s->causal && j > i + s->kv_len - s->q_len) || !kept(s, o, b, j))
            continue;
        any = true;
        for (int64_t d = 0; d < s->dim; d++)
            a += f[d] * o->f_k[(head * s->kv_len + j) * s->dim + d];
        r += a;
        for (int64_t e = 0; e < s->v_dim; e++)
            y[e] +=
                a * (double)o->v[((b * s->kv_len + j) * s->kv_heads + g) * s->v_dim + e];
    }
    for (int64_t e = 0; e < s->v_dim; e++)
        y[e] = any ? s->scale * y[e] / divisor(s, f, r) : 0;
}

static void states(const struct sizes *s, const struct operands *o, int64_t b, int64_t g)
{
    const int64_t head = b * s->kv_heads + g;
    for (int64_t d = 0; d < s->dim; d++) {
        const int64_t at = head * s->dim + d;
        o->z[at] = s->past ? (double)o->past_z[at] : 0;
        for (int64_t e = 0; e < s->v_dim; e++)
            o->kv[at * s->v_dim + e] =
                s->past ? (double)o->past_kv[at * s->v_dim + e] : 0;
        for (int64_t j = 0; j < s->kv_len; j++) {
            if (!kept(s, o, b, j))
                continue;
            double f = o->f_k[(head * s->kv_len + j) * s->dim + d];
            o->z[at] += f;
            for (int64_t e = 0; e < s->v_dim; e++)
                o->kv[at * s->v_dim + e] +=
                    f *
                    (double)o->v[((b * s->kv_len + j) * s->kv_heads + g) * s->v_dim + e];
        }
    }
}

static void reference(const struct sizes *s, struct operands *o)
{
    o->f_k =
        calloc((size_t)(s->batch * s->kv_heads * s->kv_len * s->dim + 1), sizeof *o->f_k);
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t g = 0; g < s->kv_heads; g++) {
            key_features(s, o, b, g);
            if (s->present)
                states(s, o, b, g);
        }
        for (int64_t h = 0; h < s->q_heads; h++)
            for (int64_t i = 0; i < s->q_len; i++)
                one_query(s, o, b, h, i);
    }
    free(o->f_k);
}

static void build_attributes(struct check *c, const struct sizes *s)
{
    check_begin(c, "LinearAttention");
    check_heads_attrs(c, s->q_heads, s->kv_heads);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->map_q != NULL)
        check_string(c, "feature_map_q", s->map_q);
    if (s->map_k != NULL)
        check_string(c, "feature_map_k", s->map_k);
    if (s->denominator != NULL)
        check_string(c, "denominator", s->denominator);
    if (s->epsilon != 1e-6)
        check_float(c, "epsilon", (float)s->epsilon);
    if (s->scale != 1)
        check_float(c, "scale", (float)s->scale);
    if (s->dims_first)
        check_int(c, "dims_first", 1);
}

/* ---- tokens last ---- */

/* An operand (batch, heads * dim, tokens), and the same as (batch, tokens, heads * dim), which
 * is the caller's. */
static float *operand_by_dim(struct check *c, const char *name, int64_t batch,
                             int64_t tokens, int64_t width)
{
    const float *x = check_f32(c, name, DIMS(batch, width, tokens));
    float *transposed = calloc((size_t)(batch * tokens * width + 1), sizeof *transposed);
    for (int64_t b = 0; b < batch && !c->blank; b++)
        for (int64_t i = 0; i < tokens; i++)
            for (int64_t d = 0; d < width; d++)
                transposed[(b * tokens + i) * width + d] =
                    x[(b * width + d) * tokens + i];
    return transposed;
}

static void build_dims_first(struct check *c, const struct sizes *s)
{
    struct operands o = { 0 };
    const int64_t width = s->q_heads * s->v_dim;
    build_attributes(c, s);
    float *q = operand_by_dim(c, "Q", s->batch, s->q_len, s->q_heads * s->dim);
    float *k = operand_by_dim(c, "K", s->batch, s->kv_len, s->kv_heads * s->dim);
    float *v = operand_by_dim(c, "V", s->batch, s->kv_len, s->kv_heads * s->v_dim);
    if (s->masked)
        check_mask(c, "key_mask", s->batch, s->kv_len);
    double *y = check_output(c, "Y", DIMS(s->batch, width, s->q_len));
    o.q = q;
    o.k = k;
    o.v = v;
    o.y = calloc((size_t)(s->batch * s->q_len * width + 1), sizeof *o.y);
    if (!c->blank)
        reference(s, &o);
    for (int64_t b = 0; b < s->batch && !c->blank; b++)
        for (int64_t i = 0; i < s->q_len; i++)
            for (int64_t d = 0; d < width; d++)
                y[(b * width + d) * s->q_len + i] = o.y[(b * s->q_len + i) * width + d];
    free(q);
    free(k);
    free(v);
    free(o.y);
}

static void build(struct check *c, const struct sizes *s)
{
    struct operands o = { 0 };
    build_attributes(c, s);
    o.q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    o.k = k;
    o.v = v;
    if (s->masked)
        o.keep = check_mask(c, "key_mask", s->batch, s->kv_len);
    else if (s->past)
        check_absent(c);
    for (int64_t i = 0; s->hidden && i < s->batch * s->kv_len; i++) {
        if (o.keep[i] != 0)
            continue;
        k[i * s->kv_heads * s->dim] = NAN;
        v[(i + 1) * s->kv_heads * s->v_dim - 1] = NAN;
    }
    if (s->past) {
        o.past_kv =
            check_f32(c, "past_kv", DIMS(s->batch, s->kv_heads, s->dim, s->v_dim));
        float *z = check_f32(c, "past_z", DIMS(s->batch, s->kv_heads, s->dim));
        for (int64_t i = 0; i < s->batch * s->kv_heads * s->dim; i++)
            z[i] = 1 + fabsf(z[i]); /* a sum of positive features */
        o.past_z = z;
    }
    o.y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    if (s->present) {
        o.kv =
            check_output(c, "present_kv", DIMS(s->batch, s->kv_heads, s->dim, s->v_dim));
        o.z = check_output(c, "present_z", DIMS(s->batch, s->kv_heads, s->dim));
    }
    if (!c->blank)
        reference(s, &o);
}

static struct sizes random_sizes(struct check *c)
{
    static const char *const maps[] = { NULL, "elu1", "relu", "identity" };
    static const char *const denominators[] = { NULL, "add", "clamp", "none" };
    const bool large = c->round % 6 == 0;
    struct sizes s = { .batch = check_between(c, 0, 2),
                       .q_len = check_between(c, 1, large ? 700 : 90),
                       .kv_heads = check_between(c, 1, 3),
                       .dim = check_between(c, 1, check_chance(c, 50) ? 64 : 20),
                       .v_dim = check_between(c, 1, check_chance(c, 50) ? 70 : 20),
                       .causal = check_chance(c, 50),
                       .masked = check_chance(c, 40),
                       .present = check_chance(c, 40),
                       .epsilon = 1e-6,
                       .scale = 1 };
    s.hidden = s.masked && check_chance(c, 50);
    s.kv_len = s.causal ? s.q_len : check_between(c, 0, large ? 900 : 90);
    s.q_heads = s.kv_heads * check_between(c, 1, 3);
    s.past = s.causal && check_chance(c, 50);
    if (s.past && check_chance(c, 50))
        s.kv_len = check_between(c, 0, large ? 500 : 90);
    s.map_q = maps[check_below(c, 4)];
    s.map_k = maps[check_below(c, 4)];
    if (check_chance(c, 25))
        s.map_q = "softmax_d";
    if (check_chance(c, 20))
        s.map_k = "exp";
    if (!s.causal && !s.present && check_chance(c, 40))
        s.map_k = "softmax_n";
    s.denominator = denominators[check_below(c, 4)];
    if (s.causal && !s.past && !s.present && check_chance(c, 30))
        s.denominator = "add_keys";
    const bool any_sign = (s.map_q != NULL && strcmp(s.map_q, "identity") == 0) ||
                          (s.map_k != NULL && strcmp(s.map_k, "identity") == 0);
    if (any_sign) /* a sum near 0 would be divided by */
        s.denominator = "none";
    else if (check_chance(c, 50))
        s.epsilon = (double)(float)check_between(c, 1, 50) * 0.03125;
    else if (s.map_q != NULL && strcmp(s.map_q, "relu") == 0)
        s.epsilon = 0.5; /* 0 + epsilon */
    else if (s.map_k != NULL && strcmp(s.map_k, "relu") == 0)
        s.epsilon = 0.5;
    if (check_chance(c, 30))
        s.scale = -0.375;
    return s;
}

static struct sizes small_case(void)
{
    return (struct sizes){ .batch = 1,
                           .q_len = 5,
                           .kv_len = 5,
                           .q_heads = 2,
                           .kv_heads = 2,
                           .dim = 4,
                           .v_dim = 4,
                           .epsilon = 1e-6,
                           .scale = 1 };
}

static void refusals(struct check *c)
{
    const struct sizes plain = small_case();
    struct sizes s = plain;
    s.causal = true;
    s.kv_len = 6;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "'K'|length is 6|expected 5");
    s = plain;
    s.map_k = "softmax_n";
    s.causal = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "softmax_n|is_causal");
    s.causal = false;
    s.present = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "softmax_n|state");
    s = plain;
    s.past = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "past|is_causal");
    s = plain;
    s.causal = s.dims_first = true;
    build_dims_first(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "dims_first|is_causal");
    s.causal = false;
    s.masked = true;
    build_dims_first(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "dims_first|key_mask");
    s = plain;
    s.denominator = "add_keys";
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "add_keys|is_causal");
    s.causal = s.present = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "add_keys|present_kv");
    s = plain;
    s.epsilon = -1;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "epsilon|-1");
    s = plain;
    s.scale = 0;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "scale|0");
    s = plain;
    s.map_q = "softmax_n";
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "feature_map_q|softmax_n");
    s = plain;
    s.denominator = "guard";
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "denominator|guard");
}

static void refusals_of_operands(struct check *c)
{
    const struct sizes plain = small_case();
    struct sizes s = plain;
    s.causal = true;
    build(c, &s);
    check_absent(c);
    check_f32(c, "past_kv", DIMS(1, 2, 4, 4));
    check_refuses(c, ATTNRUN_E_INPUT, "past_kv and past_z go together");
    build(c, &s);
    check_absent(c);
    check_f32(c, "past_kv", DIMS(1, 2, 3, 4));
    check_f32(c, "past_z", DIMS(1, 2, 4));
    check_refuses(c, ATTNRUN_E_SHAPE, "past_kv|head size of keys");
    build(c, &plain);
    check_data(c, "key_mask", ATTNRUN_BOOL, DIMS(1, 4));
    check_refuses(c, ATTNRUN_E_SHAPE, "key_mask|number of keys");
    build(c, &plain);
    check_data(c, "key_mask", ATTNRUN_F32, DIMS(1, 5));
    check_refuses(c, ATTNRUN_E_DTYPE, "key_mask");
}

void check_attnrun_linear_attention(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    {
        struct sizes s = random_sizes(c);
        build(c, &s);
        /* Sums of both signs are near 0 here and there. */
        if (s.denominator != NULL && strcmp(s.denominator, "none") == 0)
            check_run_with(c, 1e-4, 1e-5 * (double)(s.kv_len + 10));
        else if (s.present)
            check_run_with(c, 1e-4, 1e-5 + 3e-7 * (double)s.kv_len);
        else
            check_run(c, CHECK_B);
    }
    CHECK_ROUNDS(c, 4) /* slices */
    {
        struct sizes s = { .batch = 1,
                           .q_len = 4500,
                           .kv_len = 4500,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .dim = 8,
                           .v_dim = 4,
                           .causal = c->round % 2,
                           .masked = true,
                           .present = c->round >= 2,
                           .epsilon = 1e-6,
                           .scale = 1 };
        s.map_k = c->round == 0 ? "softmax_n" : NULL;
        s.past = c->round == 3;
        build(c, &s);
        check_run_with(c, 1e-4, 1e-4);
    }
    CHECK_ROUNDS(c, 60)
    {
        struct sizes s = random_sizes(c);
        s.causal = s.past = s.present = s.masked = false;
        s.dims_first = true;
        if (s.denominator != NULL && strcmp(s.denominator, "add_keys") == 0)
            s.denominator = NULL; /* causal alone */
        if (c->round % 10 == 0)   /* slices */
            s.batch = s.kv_heads = s.q_heads = 1, s.kv_len = 4100;
        build_dims_first(c, &s);
        if (s.denominator != NULL && strcmp(s.denominator, "none") == 0)
            check_run_with(c, 1e-4, 1e-5 * (double)(s.kv_len + 10));
        else
            check_run_with(c, 1e-4, 1e-5 + 3e-7 * (double)s.kv_len);
    }
    refusals(c);
    refusals_of_operands(c);
    struct sizes large = { .batch = 1,
                           .q_len = 16384,
                           .kv_len = 16384,
                           .q_heads = 8,
                           .kv_heads = 8,
                           .dim = 64,
                           .v_dim = 64,
                           .epsilon = 1e-6,
                           .scale = 1 };
    for (int causal = 0; causal < 2; causal++) {
        large.causal = causal;
        c->blank = true;
        build(c, &large);
        check_extra_memory(c, 2 << 20);
    }
    large.causal = false;
    large.dims_first = true;
    c->blank = true;
    build_dims_first(c, &large);
    check_extra_memory(c, 2 << 20);
}

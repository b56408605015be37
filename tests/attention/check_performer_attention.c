/* check_performer_attention.c - PerformerAttention: every query sums over its keys, with
 * features as the formula has them. */
#include <stdlib.h>

#include "operator_harness.h"

struct sizes {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim, rows;
    bool causal, masked, by_head;
    const char *features, *kernel_fn, *denominator; /* NULL: absent */
    bool normalize, ratio, stabilizer, mask_in_max;
    double scale, epsilon; /* scale NAN: absent */
    float odd_key;         /* not 0: the first number of the last key, and of no other */
    bool hidden;           /* what is masked is NaN, or infinite */
};

struct operands {
    const float *q, *k, *v, *w;
    const uint8_t *keep;
    double *f_q, *f_k, *y;
};

static bool is(const char *word, const char *what)
{
    return word != NULL && strcmp(word, what) == 0;
}

static int64_t count_of(const struct sizes *s)
{
    if (s->rows == 0)
        return s->dim;
    return is(s->features, "softmax_hyp") || is(s->features, "softmax_trig") ? 2 * s->rows
                                                                             : s->rows;
}

static double kernel(const char *f, double x)
{
    if (is(f, "requ"))
        return x > 0 ? x * x : 0;
    if (is(f, "exp"))
        return exp(x);
    if (is(f, "elu1"))
        return x > 0 ? x + 1 : exp(x);
    if (is(f, "sigmoid"))
        return 1 / (1 + exp(-x));
    if (is(f, "tanh"))
        return tanh(x);
    if (is(f, "gelu"))
        return x / 2 * (1 + erf(x / sqrt(2.0)));
    if (is(f, "abs"))
        return fabs(x);
    if (is(f, "cos"))
        return cos(x);
    if (is(f, "sin"))
        return sin(x);
    return is(f, "identity") ? x : fmax(x, 0);
}

/* u and n of one row. */
static double project(const struct sizes *s, const float *x, const float *w, double *u)
{
    const double scale = isnan(s->scale) ? 1 / sqrt((double)s->dim) : s->scale;
    const double root = s->normalize ? sqrt(scale) : 1;
    double n = 0;
    for (int64_t d = 0; d < s->dim; d++)
        n += root * root * (double)x[d] * (double)x[d] / 2;
    for (int64_t m = 0; m < s->rows; m++) {
        u[m] = 0;
        for (int64_t d = 0; d < s->dim; d++)
            u[m] += root * (double)x[d] * (double)w[m * s->dim + d];
    }
    for (int64_t d = 0; s->rows == 0 && d < s->dim; d++)
        u[d] = root * (double)x[d];
    return n;
}

/* NaN where either is. */
static double larger(double a, double b) { return a > b || isnan(a) ? a : b; }

/* Features of n rows of a head, `row` apart; keep NULL: no row is left out of maxima. */
static void features(const struct sizes *s, bool keys, const float *x, int64_t row,
                     int64_t n, const float *w, const uint8_t *keep, double *f)
{
    double u[128], norm, max = -HUGE_VAL, largest = -HUGE_VAL;
    const double m = (double)s->rows;
    for (int64_t i = 0; i < n; i++) {
        norm = project(s, x + i * row, w, u);
        largest = larger(largest, norm);
        for (int64_t r = 0; r < s->rows; r++)
            if (keep == NULL || keep[i] != 0)
                max = larger(max, u[r]);
    }
    for (int64_t i = 0; i < n; i++) {
        double *y = f + i * count_of(s), c = max;
        norm = project(s, x + i * row, w, u);
        if (!keys) {
            c = -HUGE_VAL;
            for (int64_t r = 0; r < s->rows; r++)
                c = larger(c, u[r]);
        }
        if (!s->stabilizer || c == -HUGE_VAL)
            c = 0;
        for (int64_t r = 0; is(s->features, "generalized") && r < count_of(s); r++)
            y[r] = kernel(s->kernel_fn, s->ratio && m > 0 ? u[r] / sqrt(m) : u[r]) + 1e-3;
        for (int64_t r = 0; !is(s->features, "generalized") && r < s->rows; r++) {
            if (is(s->features, "softmax_hyp")) {
                double by = exp(-norm - (s->stabilizer ? 2 * largest : 0)) / sqrt(2 * m);
                y[r] = exp(u[r]) * by;
                y[r + s->rows] = exp(-u[r]) * by;
            } else if (is(s->features, "softmax_trig")) {
                y[r] = cos(u[r]) * exp(norm - largest) / sqrt(m);
                y[r + s->rows] = sin(u[r]) * exp(norm - largest) / sqrt(m);
            } else {
                y[r] = (exp(u[r] - norm - c) + 1e-4) / sqrt(m);
            }
        }
    }
}

static double divisor(const struct sizes *s, double r, double sum_f)
{
    if (is(s->denominator, "add"))
        return r + s->epsilon;
    if (is(s->denominator, "add_keys"))
        return r + s->epsilon * sum_f;
    return is(s->denominator, "guard") && fabs(r) <= s->epsilon ? r + 2 * s->epsilon : r;
}

/* Sums that cancel are not compared: `size` is the sum of absolute terms. */
static void one_query(const struct sizes *s, const struct operands *o, int64_t b,
                      int64_t h, int64_t i)
{
    const int64_t g = h / (s->q_heads / s->kv_heads), count = count_of(s);
    const double *f = o->f_q + i * count;
    double r = 0, size = 0, sum_f = 0;
    double *y = o->y + ((b * s->q_len + i) * s->q_heads + h) * s->v_dim;
    bool any = false;
    for (int64_t m = 0; m < count; m++)
        sum_f += f[m];
    for (int64_t j = 0; j < s->kv_len; j++) {
        double a = 0;
        if ((s->causal && j > i + s->kv_len - s->q_len) ||
            (o->keep != NULL && o->keep[b * s->kv_len + j] == 0))
            continue;
        any = true;
        for (int64_t m = 0; m < count; m++) {
            a += f[m] * o->f_k[j * count + m];
            size += fabs(f[m] * o->f_k[j * count + m]);
        }
        r += a;
        for (int64_t e = 0; e < s->v_dim; e++)
            y[e] +=
                a * (double)o->v[((b * s->kv_len + j) * s->kv_heads + g) * s->v_dim + e];
    }
    const double by = divisor(s, r, sum_f);
    for (int64_t e = 0; e < s->v_dim; e++)
        y[e] = !any ? 0 : fabs(by) < 0.05 * size ? CHECK_SKIP : y[e] / by;
}

static void reference(const struct sizes *s, struct operands *o)
{
    const int64_t count = count_of(s);
    o->f_q = calloc((size_t)(s->q_len * count + 1), sizeof *o->f_q);
    o->f_k = calloc((size_t)(s->kv_len * count + 1), sizeof *o->f_k);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->q_heads; h++) {
            const int64_t g = h / (s->q_heads / s->kv_heads);
            const float *w = o->w + (s->by_head ? g * s->rows * s->dim : 0);
            const uint8_t *keep =
                o->keep != NULL && s->mask_in_max ? o->keep + b * s->kv_len : NULL;
            features(s, false, o->q + (b * s->q_len * s->q_heads + h) * s->dim,
                     s->q_heads * s->dim, s->q_len, w, NULL, o->f_q);
            features(s, true, o->k + (b * s->kv_len * s->kv_heads + g) * s->dim,
                     s->kv_heads * s->dim, s->kv_len, w, keep, o->f_k);
            for (int64_t i = 0; i < s->q_len; i++)
                one_query(s, o, b, h, i);
        }
    free(o->f_q);
    free(o->f_k);
}

static void build(struct check *c, const struct sizes *s)
{
    struct operands o = { 0 };
    check_begin(c, "PerformerAttention");
    check_heads_attrs(c, s->q_heads, s->kv_heads);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->features != NULL)
        check_string(c, "features", s->features);
    if (s->kernel_fn != NULL)
        check_string(c, "kernel_fn", s->kernel_fn);
    if (s->denominator != NULL)
        check_string(c, "denominator", s->denominator);
    if (!isnan(s->scale))
        check_float(c, "scale", (float)s->scale);
    if (!s->normalize)
        check_int(c, "normalize_inputs", 0);
    if (s->ratio)
        check_int(c, "feature_ratio", 1);
    if (!s->stabilizer)
        check_int(c, "stabilizer", 0);
    if (s->mask_in_max)
        check_int(c, "mask_in_max", 1);
    check_float(c, "denominator_epsilon", (float)s->epsilon);
    o.q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    if (s->odd_key != 0)
        k[(s->kv_len - 1) * s->kv_heads * s->dim] = s->odd_key;
    o.k = k;
    float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    o.v = v;
    if (s->rows > 0 && s->by_head)
        o.w = check_weight(c, "projection", DIMS(s->kv_heads, s->rows, s->dim));
    else if (s->rows > 0)
        o.w = check_weight(c, "projection", DIMS(s->rows, s->dim));
    else if (s->masked)
        check_absent(c);
    if (s->masked)
        o.keep = check_mask(c, "key_mask", s->batch, s->kv_len);
    for (int64_t i = 0; s->hidden && i < s->batch * s->kv_len; i++) {
        if (o.keep[i] != 0)
            continue;
        k[i * s->kv_heads * s->dim] = is(s->features, "generalized") ? INFINITY : NAN;
        v[(i + 1) * s->kv_heads * s->v_dim - 1] = NAN;
    }
    o.y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    if (!c->blank)
        reference(s, &o);
}

static struct sizes random_sizes(struct check *c)
{
    static const char *const features_of[] = { NULL, "softmax_pos", "softmax_hyp",
                                               "softmax_trig", "generalized" };
    static const char *const kernels[] = { NULL,      "requ", "exp",     "elu1",
                                           "sigmoid", "tanh", "gelu",    "abs",
                                           "cos",     "sin",  "identity" };
    static const char *const denominators[] = { NULL, "add", "add_keys", "guard" };
    const bool large = c->round % 6 == 0;
    struct sizes s = { .batch = check_between(c, 0, 2),
                       .q_len = check_between(c, 1, large ? 400 : 80),
                       .kv_heads = check_between(c, 1, 2),
                       .dim = check_between(c, 1, 20),
                       .v_dim = check_between(c, 1, check_chance(c, 50) ? 70 : 20),
                       .rows = check_between(c, 1, 60),
                       .causal = check_chance(c, 50),
                       .masked = check_chance(c, 50),
                       .normalize = check_chance(c, 70),
                       .stabilizer = check_chance(c, 70),
                       .mask_in_max = check_chance(c, 30),
                       .by_head = check_chance(c, 30),
                       .scale = check_chance(c, 50) ? (double)0.3f : (double)NAN,
                       .epsilon = (double)1e-6f };
    s.kv_len = check_chance(c, 50) ? s.q_len : check_between(c, 0, large ? 600 : 90);
    s.q_heads = s.kv_heads * check_between(c, 1, 3);
    s.features = features_of[check_below(c, 5)];
    s.denominator = denominators[check_below(c, 4)];
    if (!s.normalize && s.dim > 6)
        s.dim = 6; /* else exp(-n) is 0 */
    if (is(s.features, "generalized")) {
        s.kernel_fn = kernels[check_below(c, 11)];
        s.ratio = check_chance(c, 50);
        if (check_chance(c, 30))
            s.rows = 0;
    }
    if (is(s.features, "softmax_hyp") && s.stabilizer && is(s.denominator, "guard"))
        s.denominator = "none";
    const bool maxima =
        is(s.features, "softmax_trig") ||
        (s.stabilizer && (!s.mask_in_max || is(s.features, "softmax_hyp")));
    s.hidden = s.masked && (is(s.features, "generalized") || !maxima);
    return s;
}

static void refusals(struct check *c)
{
    const struct sizes plain = { .batch = 1,
                                 .q_len = 5,
                                 .kv_len = 5,
                                 .q_heads = 2,
                                 .kv_heads = 2,
                                 .dim = 4,
                                 .v_dim = 4,
                                 .rows = 6,
                                 .normalize = true,
                                 .stabilizer = true,
                                 .scale = (double)NAN,
                                 .epsilon = 0 };
    struct sizes s = plain;
    s.rows = 0;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_INPUT, "need the input projection");
    s = plain;
    s.features = "softmax_hyp";
    s.ratio = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "feature_ratio|softmax_hyp");
    s = plain;
    s.scale = -1;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "scale|-1|positive");
    s = plain;
    s.features = "favor";
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "features|favor");
    s = plain;
    s.rows = 0;
    build(c, &s);
    check_f32(c, "projection", DIMS(0, 4));
    check_refuses(c, ATTNRUN_E_SHAPE, "projection|expected at least one feature");
    build(c, &s);
    check_f32(c, "projection", DIMS(6, 5));
    check_refuses(c, ATTNRUN_E_SHAPE, "projection|head size");
    build(c, &s);
    check_f32(c, "projection", DIMS(3, 6, 4));
    check_refuses(c, ATTNRUN_E_SHAPE, "projection|key heads");
}

void check_performer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    {
        struct sizes s = random_sizes(c);
        build(c, &s);
        check_run(c, CHECK_P);
    }
    CHECK_ROUNDS(c, 3) /* slices */
    {
        struct sizes s = { .batch = 1,
                           .q_len = 4100,
                           .kv_len = 4100,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .dim = 6,
                           .v_dim = 4,
                           .rows = 9,
                           .causal = c->round == 2,
                           .masked = c->round > 0,
                           .normalize = true,
                           .stabilizer = true,
                           .scale = (double)NAN,
                           .epsilon = (double)1e-6f };
        build(c, &s);
        check_run(c, CHECK_P);
    }
    CHECK_ROUNDS(c,
                 8) /* the largest u of all keys: one NaN or infinity is a whole head's */
    {
        static const char *const words[] = { "softmax_pos", "softmax_hyp", "softmax_trig",
                                             "softmax_pos" };
        struct sizes s = { .batch = 1,
                           .q_len = 21,
                           .kv_len = 21,
                           .q_heads = 2,
                           .kv_heads = 2,
                           .dim = 8,
                           .v_dim = 8,
                           .rows = 20,
                           .causal = c->round < 4,
                           .features = words[c->round % 4],
                           .normalize = true,
                           .stabilizer = true,
                           .scale = (double)NAN,
                           .odd_key = c->round % 4 == 3 ? INFINITY : NAN };
        build(c, &s);
        check_run(c, CHECK_P);
    }
    refusals(c);
    struct sizes large = { .batch = 1,
                           .q_len = 16384,
                           .kv_len = 16384,
                           .q_heads = 8,
                           .kv_heads = 8,
                           .dim = 64,
                           .v_dim = 64,
                           .rows = 256,
                           .normalize = true,
                           .stabilizer = true,
                           .scale = (double)NAN };
    for (int causal = 0; causal < 2; causal++) {
        large.causal = causal;
        c->blank = true;
        build(c, &large);
        check_extra_memory(c, 2 << 20);
    }
}

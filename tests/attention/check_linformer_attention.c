/* check_linformer_attention.c - LinformerAttention: slots, then softmax over them. */
#include <stdlib.h>

#include "operator_harness.h"

struct sizes {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim, slots, max, f_max;
    bool e_by_head, f, f_by_head, e_bias, f_bias, masked, scaled;
    bool odd; /* what is masked is NaN, or infinite */
};

struct operands {
    const float *q, *k, *v, *e, *f, *e_bias, *f_bias;
    const uint8_t *keep;
    double *y;
};

/* (slots, dim) of one key head. */
static void project(const struct sizes *s, const float *x, int64_t dim, const float *e,
                    const float *bias, const uint8_t *keep, double *to)
{
    for (int64_t i = 0; i < s->slots; i++)
        for (int64_t d = 0; d < dim; d++) {
            double sum = bias != NULL ? (double)bias[i] : 0;
            for (int64_t j = 0; j < s->kv_len; j++)
                if (keep == NULL || keep[j] != 0)
                    sum += (double)e[j * s->slots + i] *
                           (double)x[j * s->kv_heads * dim + d];
            to[i * dim + d] = sum;
        }
}

static void one_query(const struct sizes *s, const float *q, const double *k,
                      const double *v, double *y)
{
    const double scale = s->scaled ? (double)0.3f : 1 / sqrt((double)s->dim);
    double p[400], max = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < s->slots; i++) {
        p[i] = 0;
        for (int64_t d = 0; d < s->dim; d++)
            p[i] += scale * (double)q[d] * k[i * s->dim + d];
        max = fmax(max, p[i]);
    }
    for (int64_t i = 0; i < s->slots; i++)
        sum += p[i] = exp(p[i] - max);
    for (int64_t i = 0; i < s->slots; i++)
        for (int64_t d = 0; d < s->v_dim; d++)
            y[d] += p[i] / sum * v[i * s->v_dim + d];
}

static void reference(const struct sizes *s, const struct operands *o)
{
    double *k = calloc((size_t)(s->slots * s->dim), sizeof *k);
    double *v = calloc((size_t)(s->slots * s->v_dim), sizeof *v);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->q_heads; h++) {
            const int64_t g = h / (s->q_heads / s->kv_heads), row = s->q_heads * s->dim;
            const int64_t matrix = s->max * s->slots, f_matrix = s->f_max * s->slots;
            const uint8_t *keep = o->keep != NULL ? o->keep + b * s->kv_len : NULL;
            project(s, o->k + (b * s->kv_len * s->kv_heads + g) * s->dim, s->dim,
                    o->e + (s->e_by_head ? g * matrix : 0), o->e_bias, keep, k);
            project(s, o->v + (b * s->kv_len * s->kv_heads + g) * s->v_dim, s->v_dim,
                    s->f ? o->f + (s->f_by_head ? g * f_matrix : 0)
                         : o->e + (s->e_by_head ? g * matrix : 0),
                    o->f_bias, keep, v);
            for (int64_t i = 0; i < s->q_len; i++)
                one_query(s, o->q + (b * s->q_len + i) * row + h * s->dim, k, v,
                          o->y + ((b * s->q_len + i) * s->q_heads + h) * s->v_dim);
        }
    free(k);
    free(v);
}

static float *projection(struct check *c, const struct sizes *s, const char *name,
                         int64_t max, bool by_head)
{
    float *e = by_head ? check_weight(c, name, DIMS(s->kv_heads, max, s->slots))
                       : check_weight(c, name, DIMS(max, s->slots));
    const int64_t n = (by_head ? s->kv_heads : 1) * max * s->slots;
    for (int64_t i = 0; !c->blank && i < n; i++)
        e[i] /= sqrtf((float)(s->kv_len + 1));
    return e;
}

static void build(struct check *c, const struct sizes *s)
{
    struct operands o = { 0 };
    check_begin(c, "LinformerAttention");
    check_heads_attrs(c, s->q_heads, s->kv_heads);
    if (s->scaled)
        check_float(c, "scale", 0.3f);
    o.q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    o.k = k;
    o.v = v;
    o.e = projection(c, s, "E", s->max, s->e_by_head);
    if (s->f)
        o.f = projection(c, s, "F", s->f_max, s->f_by_head);
    else
        check_absent(c);
    if (s->e_bias)
        o.e_bias = check_weight(c, "E_bias", DIMS(s->slots));
    else
        check_absent(c);
    if (s->f_bias)
        o.f_bias = check_weight(c, "F_bias", DIMS(s->slots));
    else
        check_absent(c);
    if (s->masked)
        o.keep = check_mask(c, "key_mask", s->batch, s->kv_len);
    for (int64_t i = 0; s->odd && !c->blank && i < s->batch * s->kv_len; i++) {
        if (o.keep[i] != 0)
            continue;
        k[i * s->kv_heads * s->dim] = NAN;
        v[(i + 1) * s->kv_heads * s->v_dim - 1] = INFINITY;
    }
    o.y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    if (!c->blank)
        reference(s, &o);
}

static struct sizes random_sizes(struct check *c)
{
    const bool large = c->round % 5 == 0;
    struct sizes s = { .batch = check_between(c, 0, 2),
                       .q_len = check_between(c, 1, large ? 300 : 40),
                       .kv_len = check_between(c, 0, large ? 600 : 40),
                       .kv_heads = check_between(c, 1, 6),
                       .dim = check_between(c, 1, 20),
                       .v_dim = check_between(c, 1, 20),
                       .slots = check_between(c, 1, large ? 300 : 30),
                       .e_by_head = check_chance(c, 30),
                       .f = check_chance(c, 50),
                       .f_by_head = check_chance(c, 30),
                       .e_bias = check_chance(c, 30),
                       .f_bias = check_chance(c, 30),
                       .masked = check_chance(c, 40),
                       .scaled = check_chance(c, 40) };
    s.odd = s.masked && check_chance(c, 50);
    s.q_heads = s.kv_heads * (large ? 1 : check_between(c, 1, 3));
    s.max = s.kv_len + (check_chance(c, 50) ? 0 : check_between(c, 0, 20));
    if (s.max == 0)
        s.max = 1;
    s.f_max = check_chance(c, 50) ? s.max : s.kv_len + 1 + check_between(c, 0, 20);
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
                                 .slots = 3,
                                 .max = 5 };
    struct sizes s = plain;
    s.max = 4;
    c->blank = true;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "'E'|at most 4|5");
    build(c, &plain);
    check_int(c, "is_causal", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "is_causal");
    check_begin(c, "LinformerAttention");
    check_heads_attrs(c, 2, 2);
    check_heads(c, "Q", 1, 5, 2, 4);
    check_heads(c, "K", 1, 5, 2, 4);
    check_heads(c, "V", 1, 5, 2, 4);
    check_f32(c, "E", DIMS(5, 3));
    check_f32(c, "F", DIMS(5, 2));
    check_heads_output(c, "Y", 1, 5, 2, 4);
    check_refuses(c, ATTNRUN_E_SHAPE, "'F'|slots");
}

void check_linformer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        struct sizes s = random_sizes(c);
        build(c, &s);
        c->no_twin = s.q_heads != s.kv_heads; /* groups are rows of one matrix there */
        check_run(c, CHECK_B);
    }
    refusals(c);
    struct sizes large = { .batch = 1,
                           .q_len = 16384,
                           .kv_len = 16384,
                           .q_heads = 8,
                           .kv_heads = 8,
                           .dim = 64,
                           .v_dim = 64,
                           .slots = 256,
                           .max = 16384,
                           .f_max = 16384,
                           .f = true };
    c->blank = true;
    build(c, &large);
    check_extra_memory(c, 3 << 20);
}

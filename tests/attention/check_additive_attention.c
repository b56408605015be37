/* check_additive_attention.c - AdditiveAttention against its formula. */
#include "single_head.h"

struct sizes {
    int64_t batch, q_len, kv_len, units, v_dim;
    bool flat, relu;
    float near; /* queries and keys are that small, v is as much larger; 0: no */
};

static double score(const struct single_head *u, int64_t b, int64_t i, int64_t j)
{
    const bool relu = u->form != 0;
    double s = 0;
    for (int64_t d = 0; d < u->units; d++) {
        const double x = (double)u->q[(b * u->q_len + i) * u->units + d] +
                         (double)u->k[(b * u->kv_len + j) * u->units + d] +
                         (u->bias != NULL ? (double)u->bias[d] : 0);
        s += (double)u->v[d] * (relu ? fmax(x, 0) : tanh(x));
    }
    return s;
}

static void build(struct check *c, const struct sizes *s, float spread)
{
    struct single_head u = { .batch = s->batch,
                             .q_len = s->q_len,
                             .kv_len = s->kv_len,
                             .units = s->units,
                             .form = s->relu,
                             .score = score };
    check_begin(c, "AdditiveAttention");
    if (s->relu)
        check_string(c, "activation", "relu");
    float *q = s->flat ? check_f32(c, "query", DIMS(s->batch, s->units))
                       : check_f32(c, "query", DIMS(s->batch, s->q_len, s->units));
    for (int64_t i = 0; !c->blank && i < s->batch * s->q_len * s->units; i++)
        q[i] *= s->near != 0.0f ? s->near : spread;
    u.q = q;
    float *k = check_f32(c, "keys", DIMS(s->batch, s->kv_len, s->units));
    for (int64_t i = 0; s->near != 0.0f && i < s->batch * s->kv_len * s->units; i++)
        k[i] *= s->near;
    u.k = k;
    float *v = check_weight(c, "v", DIMS(s->units));
    for (int64_t i = 0; i < s->units; i++)
        v[i] /= (s->near != 0.0f ? s->near : 1.0f) * sqrtf((float)s->units);
    u.v = v;
    if (check_chance(c, 50)) {
        float *bias = check_weight(c, "bias", DIMS(s->units));
        for (int64_t i = 0; s->near != 0.0f && i < s->units; i++)
            bias[i] *= s->near;
        u.bias = bias;
    } else {
        check_absent(c);
    }
    single_head_values(c, &u, s->v_dim);
    if (check_chance(c, 60))
        u.mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    single_head_outputs(c, &u, s->flat, check_chance(c, 50));
    single_head_hide(c, &u, 4);
    c->no_twin = true;
}

static void refusals(struct check *c)
{
    const struct sizes s = { 2, 3, 5, 4, 6, false, false, 0 };
    build(c, &s, 1);
    check_string(c, "activation", "gelu");
    check_refuses(c, ATTNRUN_E_ATTR, "activation|gelu");
    build(c, &s, 1);
    check_float(c, "scale", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "scale");
    build(c, &s, 1);
    c->in[1].dims[2] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "keys|expected 4|dim 2");
    build(c, &s, 1);
    c->in[1].dims[0] = 1;
    check_refuses(c, ATTNRUN_E_SHAPE, "keys|expected 2|batch");
    build(c, &s, 1);
    c->in[2].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 2 v|expected 4");
    build(c, &s, 1);
    c->in[1].rank = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "keys|rank 3");
    build(c, &s, 1);
    c->in[0].rank = 1;
    check_refuses(c, ATTNRUN_E_SHAPE, "query|rank");
}

void check_additive_attention(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        const bool long_ones = c->round % 6 == 0;
        struct sizes s = { .batch = check_between(c, 0, 3),
                           .q_len = check_between(c, 0, long_ones ? 150 : 9),
                           .kv_len = check_between(c, 0, long_ones ? 700 : 40),
                           .units = check_between(c, 1, 40),
                           .v_dim = check_between(c, 1, 20),
                           .flat = check_chance(c, 25),
                           .relu = check_chance(c, 25) };
        s.q_len = s.flat ? 1 : s.q_len;
        if (c->round == 7) { /* one query, parts of the keys */
            s = (struct sizes){ 1, 1, 7000, 24, 8, true, false, 0 };
        }
        s.near = c->round % 6 == 3 && !s.relu ? 1e-4f : 0.0f;
        build(c, &s, !s.relu && check_chance(c, 25) ? 15.0f : 1.0f);
        check_run(c, CHECK_A);
    }
    refusals(c);
    c->blank = true;
    build(c, &(struct sizes){ 1, 16384, 16384, 512, 64, false, false, 0 }, 1);
    c->n_out = 1; /* without weights */
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}

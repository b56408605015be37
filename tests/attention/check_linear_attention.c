/* check_linear_attention.c - LinearAttention of ONNX and of com.microsoft: the
 * recurrence, token by token. */
#include <stdlib.h>

#include "operator_harness.h"

enum rule { LINEAR, GATED, DELTA, GATED_DELTA };

struct sizes {
    int64_t batch, tokens, q_heads, kv_heads, d_k, d_v, window; /* window -1: ai.onnx */
    enum rule rule;
    bool past, present, per_key, one_beta;
    double decay; /* the strongest, as an exponent */
    double scale; /* 0: by default */
};

struct operands {
    const float *q, *k, *v, *past, *decay, *beta;
    double *y, *present;
};

static bool gated(const struct sizes *s)
{
    return s->rule == GATED || s->rule == GATED_DELTA;
}
static bool delta(const struct sizes *s) { return s->rule >= DELTA; }

/* S takes the token in `row` (sample * tokens + token) of key head g. */
static void learn(const struct sizes *s, const struct operands *o, double *state,
                  int64_t row, int64_t g)
{
    const float *k = o->k + (row * s->kv_heads + g) * s->d_k;
    const float *v = o->v + (row * s->kv_heads + g) * s->d_v;
    for (int64_t d = 0; gated(s) && d < s->d_k; d++) {
        const int64_t at = row * s->kv_heads + g;
        const double by =
            exp((double)(s->per_key ? o->decay[at * s->d_k + d] : o->decay[at]));
        for (int64_t e = 0; e < s->d_v; e++)
            state[d * s->d_v + e] *= by;
    }
    for (int64_t e = 0; e < s->d_v; e++) {
        double u = (double)v[e];
        for (int64_t d = 0; delta(s) && d < s->d_k; d++)
            u -= (double)k[d] * state[d * s->d_v + e];
        if (delta(s))
            u *= (double)o->beta[s->one_beta ? row : row * s->kv_heads + g];
        for (int64_t d = 0; d < s->d_k; d++)
            state[d * s->d_v + e] += (double)k[d] * u;
    }
}

static void answer(const struct sizes *s, const struct operands *o, const double *state,
                   int64_t row, int64_t h)
{
    const float *q = o->q + (row * s->q_heads + h) * s->d_k;
    double *y = o->y + (row * s->q_heads + h) * s->d_v;
    for (int64_t d = 0; d < s->d_k; d++)
        for (int64_t e = 0; e < s->d_v; e++)
            y[e] += (double)q[d] * state[d * s->d_v + e];
    for (int64_t e = 0; e < s->d_v; e++)
        y[e] *= s->scale != 0 ? s->scale : 1 / sqrt((double)s->d_k);
}

/* All tokens of key head `head` (sample * kv_heads + head). */
static void one_head(const struct sizes *s, const struct operands *o, int64_t head)
{
    const int64_t n = s->d_k * s->d_v, all = s->batch * s->kv_heads * n;
    const int64_t g = head % s->kv_heads, group = s->q_heads / s->kv_heads;
    const int64_t slots = s->window > 0 ? s->window : 1;
    double *state = calloc((size_t)n + 1, sizeof *state);
    for (int64_t i = 0; s->past && i < n; i++)
        state[i] = (double)o->past[(slots - 1) * all + head * n + i];
    for (int64_t t = 0; t < s->tokens; t++) {
        const int64_t row = head / s->kv_heads * s->tokens + t;
        const int64_t slot = slots - s->tokens + t;
        learn(s, o, state, row, g);
        for (int64_t h = g * group; h < (g + 1) * group; h++)
            answer(s, o, state, row, h);
        for (int64_t i = 0; s->present && slot >= 0 && i < n; i++)
            o->present[slot * all + head * n + i] = state[i];
    }
    for (int64_t i = 0; s->present && s->tokens == 0 && i < n; i++)
        o->present[(slots - 1) * all + head * n + i] = state[i];
    free(state);
}

static void fill(struct check *c, const struct sizes *s, float *k, float *decay,
                 float *beta)
{
    const int64_t rows = s->batch * s->tokens, heads = rows * s->kv_heads;
    for (int64_t i = 0; k != NULL && i < heads * s->d_k; i++)
        k[i] /= sqrtf((float)s->d_k); /* about of length 1 */
    for (int64_t i = 0; decay != NULL && i < heads * (s->per_key ? s->d_k : 1); i++)
        decay[i] = (float)(-s->decay * (double)check_below(c, 1000) / 1000);
    for (int64_t i = 0; beta != NULL && i < rows * (s->one_beta ? 1 : s->kv_heads); i++)
        beta[i] = (float)check_below(c, 1000) / 1000;
}

static void build_attributes(struct check *c, const struct sizes *s)
{
    static const char *const rules[] = { "linear", "gated", "delta", "gated_delta" };
    check_begin(c,
                s->window < 0 ? "::LinearAttention" : "com.microsoft::LinearAttention");
    check_int(c, "q_num_heads", s->q_heads);
    check_int(c, "kv_num_heads", s->kv_heads);
    if (s->rule != GATED_DELTA || check_chance(c, 50))
        check_string(c, "update_rule", rules[s->rule]);
    if (s->scale != 0)
        check_float(c, "scale", (float)s->scale);
    if (s->window > 0)
        check_int(c, "state_window", s->window);
    if (check_chance(c, 20))
        check_int(c, "chunk_size", 16);
}

static float *state_input(struct check *c, const struct sizes *s)
{
    if (s->past && s->window > 0)
        return check_f32(c, "past_state",
                         DIMS(s->window, s->batch, s->kv_heads, s->d_k, s->d_v));
    if (s->past)
        return check_f32(c, "past_state", DIMS(s->batch, s->kv_heads, s->d_k, s->d_v));
    if (s->rule != LINEAR)
        check_absent(c);
    return NULL;
}

static void build(struct check *c, const struct sizes *s)
{
    float *k, *decay = NULL, *beta = NULL;
    struct operands o = { 0 };
    build_attributes(c, s);
    o.q = check_f32(c, "query", DIMS(s->batch, s->tokens, s->q_heads * s->d_k));
    o.k = k = check_f32(c, "key", DIMS(s->batch, s->tokens, s->kv_heads * s->d_k));
    o.v = check_f32(c, "value", DIMS(s->batch, s->tokens, s->kv_heads * s->d_v));
    o.past = state_input(c, s);
    if (gated(s))
        o.decay = decay =
            check_f32(c, "decay",
                      DIMS(s->batch, s->tokens, s->kv_heads * (s->per_key ? s->d_k : 1)));
    else if (delta(s))
        check_absent(c);
    if (delta(s))
        o.beta = beta = check_f32(
            c, "beta", DIMS(s->batch, s->tokens, s->one_beta ? 1 : s->kv_heads));
    o.y = check_output(c, "output", DIMS(s->batch, s->tokens, s->q_heads * s->d_v));
    if (s->present && s->window > 0)
        o.present = check_output(c, "present_state",
                                 DIMS(s->window, s->batch, s->kv_heads, s->d_k, s->d_v));
    else if (s->present)
        o.present =
            check_output(c, "present_state", DIMS(s->batch, s->kv_heads, s->d_k, s->d_v));
    if (c->blank)
        return;
    fill(c, s, k, decay, beta);
    for (int64_t head = 0; head < s->batch * s->kv_heads; head++)
        one_head(s, &o, head);
}

static struct sizes random_sizes(struct check *c)
{
    static const double decays[] = { 0.01, 1, 20, 200 };
    struct sizes s = { .batch = check_between(c, 0, 2),
                       .tokens = check_between(c, 0, check_chance(c, 30) ? 300 : 20),
                       .kv_heads = check_between(c, 1, check_chance(c, 20) ? 9 : 3),
                       .d_k = check_between(c, 1, check_chance(c, 50) ? 70 : 20),
                       .d_v = check_between(c, 1, check_chance(c, 50) ? 140 : 20),
                       .rule = (enum rule)(c->round % 4),
                       .past = check_chance(c, 50),
                       .present = check_chance(c, 60),
                       .per_key = check_chance(c, 50),
                       .one_beta = check_chance(c, 30),
                       .decay = decays[check_below(c, 4)],
                       .scale = check_chance(c, 50) ? -0.25 : 0,
                       .window = check_chance(c, 60) ? -1 : check_between(c, 0, 8) };
    if (s.kv_heads > 3) {
        s.d_k = s.d_v = 16;
        s.tokens += 50;
    }
    if (check_chance(c, 30))
        s.d_v = 16 * check_between(c, 1, 8);
    if (s.window > 0 && check_chance(c, 50))
        s.tokens = check_between(c, 0, 9);
    s.q_heads = s.kv_heads * check_between(c, 1, 3);
    if (s.d_k == 1)
        s.per_key = false;
    if (s.kv_heads == 1)
        s.one_beta = true;
    return s;
}

static void refusals(struct check *c)
{
    struct sizes s = {
        1, 5, 2, 2, 4, 4, -1, GATED_DELTA, true, true, false, false, 1, 0
    };
    s.q_heads = 3;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "q_num_heads is 3|kv_num_heads, 2");
    s.q_heads = 2;
    s.window = 9;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "state_window is 9|0 to 8");
    s.window = -1;
    s.rule = DELTA; /* beta takes the place of decay */
    s.d_v = 6;
    build(c, &s);
    c->in[4] = c->in[5];
    c->n_in = 5;
    c->in[5].map = NULL;
    check_refuses(c, ATTNRUN_E_INPUT, "this update rule does not take a decay");
    s.rule = GATED;
    build(c, &s);
    c->in[3].dims[3] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "'past_state'|the dim of a value");
    build(c, &s);
    c->in[4].dims[2] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "'decay'|last dim of 2 or 8");
}

void check_linear_attention(struct check *c)
{
    CHECK_ROUNDS(c, 160)
    {
        struct sizes s = random_sizes(c);
        build(c, &s);
        check_run_with(c, 1e-4, 2e-5 * sqrt((double)(s.tokens + 1)));
    }
    refusals(c);
    struct sizes large = { 1,           16384, 8,    8,     64,    64, -1,
                           GATED_DELTA, true,  true, false, false, 1,  0 };
    c->blank = true;
    build(c, &large);
    check_extra_memory(c, 256 << 10);
}

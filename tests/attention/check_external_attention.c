/* check_external_attention.c - ExternalAttention against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

struct external {
    int64_t b, h, w; /* w 0: rank 3 with h tokens */
    int64_t heads, ch, slots, co;
    bool own_mk, own_mv, own_bv; /* one for each head */
    bool with_bv, with_identity, relu;
    bool nan_rows;
    float epsilon, gain; /* what mk is multiplied by */
    const float *x, *mk, *mv, *bv, *identity;
};

static int64_t tokens_of(const struct external *s)
{
    return s->w > 0 ? s->h * s->w : s->h;
}

/* Element of token i and channel c, of `channels`, in either layout. */
static int64_t at(const struct external *s, int64_t b, int64_t i, int64_t c,
                  int64_t channels)
{
    const int64_t n = tokens_of(s);
    return s->w > 0 ? (b * channels + c) * n + i : (b * n + i) * channels + c;
}

/* e (n, slots): the softmax over tokens of each slot. */
static void look(const struct external *s, int64_t b, int64_t head, double *e)
{
    const int64_t n = tokens_of(s);
    const float *mk = s->mk + (s->own_mk ? head : 0) * s->slots * s->ch;
    for (int64_t slot = 0; slot < s->slots; slot++) {
        double max = -HUGE_VAL, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double l = 0;
            for (int64_t c = 0; c < s->ch; c++)
                l += (double)mk[slot * s->ch + c] *
                     (double)s->x[at(s, b, i, head * s->ch + c, s->heads * s->ch)];
            e[i * s->slots + slot] = l;
            max = l > max || isnan(l) ? l : max;
        }
        for (int64_t i = 0; i < n; i++) {
            e[i * s->slots + slot] = exp(e[i * s->slots + slot] - max);
            sum += e[i * s->slots + slot];
        }
        for (int64_t i = 0; i < n; i++)
            e[i * s->slots + slot] /= sum;
    }
}

static void find_token(const struct external *s, int64_t b, int64_t head, int64_t i,
                       const double *e, double *y)
{
    const float *mv = s->mv + (s->own_mv ? head : 0) * s->co * s->slots;
    double sum = 0;
    for (int64_t slot = 0; slot < s->slots; slot++)
        sum += e[slot];
    for (int64_t c = 0; c < s->co; c++) {
        const int64_t to = at(s, b, i, head * s->co + c, s->heads * s->co);
        double v = s->bv != NULL ? (double)s->bv[(s->own_bv ? head : 0) * s->co + c] : 0;
        for (int64_t slot = 0; slot < s->slots; slot++)
            v += e[slot] / ((double)s->epsilon + sum) * (double)mv[c * s->slots + slot];
        v += s->identity != NULL ? (double)s->identity[to] : 0;
        y[to] = s->relu && v < 0 ? 0 : v;
        /* Floats of e are too small there: see far_token(). */
        if (sum < 1e-25 && s->epsilon < 1e-20f)
            y[to] = CHECK_SKIP;
    }
}

static void reference(const struct external *s, double *y)
{
    const int64_t n = tokens_of(s);
    double *e = calloc((size_t)(n * s->slots) + 1, sizeof *e);
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t head = 0; head < s->heads; head++) {
            look(s, b, head, e);
            for (int64_t i = 0; i < n; i++)
                find_token(s, b, head, i, e + i * s->slots, y);
        }
    free(e);
}

static float *add_map(struct check *c, const struct external *s, const char *name,
                      int64_t channels)
{
    return s->w > 0 ? check_f32(c, name, DIMS(s->b, channels, s->h, s->w))
                    : check_f32(c, name, DIMS(s->b, s->h, channels));
}

static double *add_output(struct check *c, const struct external *s)
{
    const int64_t channels = s->heads * s->co;
    return s->w > 0 ? check_output(c, "Y", DIMS(s->b, channels, s->h, s->w))
                    : check_output(c, "Y", DIMS(s->b, s->h, channels));
}

static float *add_weight(struct check *c, const struct external *s, const char *name,
                         bool own, int64_t rows, int64_t columns)
{
    return own ? check_weight(c, name, DIMS(s->heads, rows, columns))
               : check_weight(c, name, DIMS(rows, columns));
}

static double *build(struct check *c, struct external *s)
{
    check_begin(c, "ExternalAttention");
    if (s->heads != 1 || check_chance(c, 30))
        check_int(c, "num_heads", s->heads);
    if (s->epsilon != 0.0f)
        check_float(c, "epsilon", s->epsilon);
    if (s->nan_rows)
        check_int(c, "nan_rows", 1);
    const bool says_none = check_chance(c, 30); /* drawn in any case: see tail() */
    if (s->relu || says_none)
        check_string(c, "post_activation", s->relu ? "relu" : "none");
    s->x = add_map(c, s, "x", s->heads * s->ch);
    float *mk = add_weight(c, s, "mk", s->own_mk, s->slots, s->ch);
    for (int64_t i = 0; i < (s->own_mk ? s->heads : 1) * s->slots * s->ch; i++)
        mk[i] *= s->gain;
    s->mk = mk;
    s->mv = add_weight(c, s, "mv", s->own_mv, s->co, s->slots);
    s->bv = s->identity = NULL;
    if (s->with_bv)
        s->bv = s->own_bv ? check_weight(c, "bv", DIMS(s->heads, s->co))
                          : check_weight(c, "bv", DIMS(s->co));
    else if (s->with_identity)
        check_absent(c);
    if (s->with_identity)
        s->identity = add_map(c, s, "identity", s->heads * s->co);
    double *y = add_output(c, s);
    if (!c->blank)
        reference(s, y);
    return y;
}

static struct external draw(struct check *c)
{
    const bool large = check_chance(c, 25);
    struct external s = { .b = check_between(c, 0, 3),
                          .h = check_between(c, 1, large ? 23 : 9),
                          .w = check_between(c, 1, large ? 19 : 9),
                          .heads = check_chance(c, 50) ? 1 : check_between(c, 2, 8),
                          .ch = check_between(c, 1, large ? 70 : 20),
                          .slots = check_between(c, 1, large ? 140 : 40),
                          .co = check_between(c, 1, large ? 150 : 40),
                          .own_mk = check_chance(c, 50),
                          .own_mv = check_chance(c, 50),
                          .own_bv = check_chance(c, 50),
                          .with_bv = check_chance(c, 50),
                          .with_identity = check_chance(c, 50),
                          .relu = check_chance(c, 40),
                          .epsilon = check_chance(c, 60)   ? 0.0f
                                     : check_chance(c, 50) ? 1e-9f
                                                           : 0.3f };
    if (check_chance(c, 50)) {
        s.h *= s.w;
        s.w = 0;
    }
    if (check_chance(c, 5))
        s.slots = 400;
    s.gain = 1 / sqrtf((float)s.ch);
    return s;
}

/* The tail gives the bits of Add and Relu behind the operator, whatever S is. */
static void tail(struct check *c, int64_t slots)
{
    struct external s = draw(c);
    s.b = 2;
    s.slots = slots;
    s.with_identity = s.relu = false;
    const uint64_t random = c->random;
    build(c, &s);
    check_run(c, CHECK_A);
    const int64_t n = s.b * tokens_of(&s) * s.heads * s.co;
    float *plain = malloc((size_t)n * sizeof *plain);
    if (c->got[0] != NULL)
        memcpy(plain, c->got[0], (size_t)n * sizeof *plain);
    c->random = random;
    s.with_identity = s.relu = true;
    build(c, &s);
    check_run(c, CHECK_A);
    int64_t wrong = 0;
    for (int64_t i = 0; c->got[0] != NULL && i < n; i++) {
        const float sum = plain[i] + s.identity[i];
        wrong += ((const float *)c->got[0])[i] != (sum > 0 ? sum : 0);
    }
    check_true(c, wrong == 0, "%lld elements differ from those of Add and Relu",
               (long long)wrong);
    free(plain);
}

/* One token of a sample is NaN: the sample is; the others are not. */
static void not_a_number(struct check *c)
{
    struct external s = draw(c);
    s.b = 3;
    s.relu = check_chance(c, 50);
    build(c, &s);
    float *x = c->in[0].data;
    x[at(&s, 1, tokens_of(&s) - 1, 0, s.heads * s.ch)] = NAN;
    const int64_t n = tokens_of(&s) * s.heads * s.co;
    for (int64_t b = 0; b < s.b; b++)
        for (int64_t i = 0; i < tokens_of(&s); i++)
            for (int64_t o = 0; o < s.co && b == 1; o++)
                c->out[0].want[at(&s, b, i, o, s.heads * s.co)] = (double)NAN;
    check_true(c, n > 0, "there is nothing to compare");
    check_run(c, CHECK_A);
}

/* Tokens in another order give the same in that order. */
static void permuted(struct check *c)
{
    struct external s = draw(c);
    s.b = 1;
    s.h = 300;
    s.w = 0;
    s.with_identity = false;
    const uint64_t random = c->random;
    const int64_t in = s.heads * s.ch, out = s.heads * s.co;
    float *y = calloc((size_t)(s.h * out), sizeof *y);
    float *x = malloc((size_t)(s.h * in) * sizeof *x);
    build(c, &s);
    memcpy(x, s.x, (size_t)(s.h * in) * sizeof *x);
    check_run(c, CHECK_A);
    if (c->got[0] != NULL)
        memcpy(y, c->got[0], (size_t)(s.h * out) * sizeof *y);
    c->random = random;
    double *want = build(c, &s);
    for (int64_t i = 0; i < s.h; i++) {
        memcpy((float *)c->in[0].data + i * 7 % s.h * in, x + i * in,
               (size_t)in * sizeof *x);
        for (int64_t o = 0; o < out; o++)
            want[i * 7 % s.h * out + o] = (double)y[i * out + o];
    }
    check_run(c, CHECK_A);
    free(x);
    free(y);
}

/* Where a token is far from all others, these have e = 0, a = 0 and y = bv; a little
 * nearer they have an e that is no normal float, and a that adds up to 1. */
static void far_token(struct check *c, float far, bool zero, bool nan_rows)
{
    struct external s = {
        .b = 1, .h = 2, .w = 3, .heads = 1, .ch = 1, .slots = 2, .co = 3
    };
    s.with_bv = true;
    s.nan_rows = nan_rows;
    s.gain = 1;
    double *y = build(c, &s);
    float *x = c->in[0].data, *mk = c->in[1].data;
    for (int64_t i = 0; i < 6; i++)
        x[i] = i == 2 ? far : 0.0f;
    mk[0] = mk[1] = 1;
    for (int64_t o = 0; o < s.co; o++)
        for (int64_t i = 0; i < 6; i++) {
            const double mean = ((double)s.mv[2 * o] + (double)s.mv[2 * o + 1]) / 2;
            y[o * 6 + i] =
                (double)s.bv[o] + (zero && i != 2 ? nan_rows ? (double)NAN : 0 : mean);
        }
    check_run(c, CHECK_A);
}

static void refuse_shapes(struct check *c, const struct external *plain)
{
    struct external s = *plain;
    build(c, &s);
    c->in[0].rank = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|expected rank 3 to 4");
    build(c, &s);
    c->in[1].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 mk|expected 3 in dim 1|head of x");
    build(c, &s);
    c->in[1].dims[0] = c->in[2].dims[1] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 mk|at least 1 slot");
    build(c, &s);
    c->in[2].dims[1] = 6;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 2 mv|expected 5 in dim 1|slots of mk");
    build(c, &s);
    c->in[2].rank = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 2 mv|expected rank 2 to 3");
    build(c, &s);
    c->in[3].dims[0] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 3 bv|expected 4 in dim 0|rows of mv");
    build(c, &s);
    c->in[4].dims[3] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 4 identity|expected 7 in dim 3|that of Y");
    build(c, &s);
    c->in[4].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 4 identity|expected 8 in dim 1|that of Y");
    build(c, &s);
    c->in[4].rank = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 4 identity|expected rank 4");
    build(c, &s);
    c->in[0].dims[2] = c->in[4].dims[2] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|dim 2 is 0");
    build(c, &s);
    c->in[0].dims[1] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|dim 1 is 0");
    s.own_mk = true;
    build(c, &s);
    c->in[1].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 mk|expected 2 in dim 0|num_heads");
}

static void refusals(struct check *c)
{
    const struct external plain = { .b = 1,
                                    .h = 6,
                                    .w = 7,
                                    .heads = 2,
                                    .ch = 3,
                                    .slots = 5,
                                    .co = 4,
                                    .with_bv = true,
                                    .with_identity = true };
    struct external s = plain;
    c->blank = true;
    refuse_shapes(c, &plain);
    build(c, &s);
    c->in[0].dims[1] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|channels, 7|not a multiple of 2 heads");
    s.epsilon = -1;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "epsilon is -1|expected 0 or more");
    s.epsilon = INFINITY;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "epsilon is inf|finite");
    s.epsilon = 0;
    s.heads = 0;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "num_heads is 0");
    s = plain;
    s.relu = true;
    build(c, &s);
    c->attrs[c->n_attrs - 1].words[0] = "gelu";
    check_refuses(c, ATTNRUN_E_ATTR, "post_activation");
    build(c, &s);
    check_int(c, "kernel_size", 3);
    check_refuses(c, ATTNRUN_E_ATTR, "kernel_size");
}

void check_external_attention(struct check *c)
{
    CHECK_ROUNDS(c, 70)
    {
        struct external s = draw(c);
        const bool steep = check_chance(c, 20);
        s.gain *= steep ? 10 : 1;
        build(c, &s);
        check_run(c, steep ? CHECK_B : CHECK_A);
    }
    tail(c, 9);
    tail(c, 400);
    not_a_number(c);
    permuted(c);
    far_token(c, 1000, true, false);
    far_token(c, 1000, true, true);
    far_token(c, 95, false, true);
    refusals(c);
    for (int64_t w = 0; w <= 128; w += 128) {
        struct external s = { .b = 1,
                              .h = w > 0 ? 128 : 16384,
                              .w = w,
                              .heads = 1,
                              .ch = 256,
                              .slots = 64,
                              .co = 256,
                              .with_identity = true };
        c->blank = true;
        build(c, &s);
        check_extra_memory(c, (4 << 20) + (512 << 10));
    }
}

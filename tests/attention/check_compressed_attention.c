/* check_compressed_attention.c - CompressedAttention: the convolution, then softmax over
 * the slots that a query sees. */
#include <stdlib.h>

#include "operator_harness.h"

struct sizes {
    int64_t batch, q_len, kv_len, heads, dim, v_dim, ratio, groups; /* groups 0: absent */
    bool causal, masked, bk, wv, bv, null, scaled;
};

struct operands {
    const float *q, *k, *v, *wk, *bk, *wv, *bv, *null_k, *null_v;
    const uint8_t *keep;
    double *y;
};

static int64_t slots_of(const struct sizes *s)
{
    return (s->kv_len + s->ratio - 1) / s->ratio;
}

/* Slot c of x (kv_len, width): all channels. */
static void make_slot(const struct sizes *s, const float *x, int64_t width,
                      const float *w, const float *bias, const uint8_t *keep, int64_t c,
                      double *to)
{
    const int64_t pad = slots_of(s) * s->ratio - s->kv_len;
    const int64_t groups = s->groups > 0 ? s->groups : s->heads, part = width / groups;
    for (int64_t o = 0; o < width; o++) {
        to[o] = bias != NULL ? (double)bias[o] : 0;
        for (int64_t t = 0; t < s->ratio; t++) {
            const int64_t j = c * s->ratio - pad + t;
            if (j < 0 || (keep != NULL && keep[j] == 0))
                continue;
            for (int64_t i = 0; i < part; i++)
                to[o] += (double)w[(o * part + i) * s->ratio + t] *
                         (double)x[j * width + o / part * part + i];
        }
    }
}

static bool sees(const struct sizes *s, const uint8_t *keep, int64_t i, int64_t c)
{
    const int64_t first = c * s->ratio - (slots_of(s) * s->ratio - s->kv_len);
    bool any = keep == NULL;
    for (int64_t j = first < 0 ? 0 : first; j < first + s->ratio && !any; j++)
        any = keep[j] != 0;
    return any && (!s->causal || first + s->ratio - 1 <= i + s->kv_len - s->q_len);
}

static void one_query(const struct sizes *s, const struct operands *o, int64_t b,
                      int64_t h, int64_t i, const double *k, const double *v)
{
    const int64_t n = slots_of(s) + s->null;
    const uint8_t *keep = o->keep != NULL ? o->keep + b * s->kv_len : NULL;
    const float *q = o->q + ((b * s->q_len + i) * s->heads + h) * s->dim;
    double *y = o->y + ((b * s->q_len + i) * s->heads + h) * s->v_dim;
    const double scale = s->scaled ? (double)0.3f : 1 / sqrt((double)s->dim);
    double p[700], max = -HUGE_VAL, sum = 0;
    for (int64_t c = 0; c < n; c++) {
        p[c] = 0;
        for (int64_t d = 0; d < s->dim; d++)
            p[c] += scale * (double)q[d] * k[(c * s->heads + h) * s->dim + d];
        if (!(s->null && c == 0) && !sees(s, keep, i, c - s->null))
            p[c] = -HUGE_VAL;
        max = fmax(max, p[c]);
    }
    for (int64_t c = 0; c < n && isfinite(max); c++)
        sum += p[c] = exp(p[c] - max);
    for (int64_t c = 0; c < n && sum > 0; c++)
        for (int64_t d = 0; d < s->v_dim; d++)
            y[d] += p[c] / sum * v[(c * s->heads + h) * s->v_dim + d];
}

static void reference(const struct sizes *s, const struct operands *o)
{
    const int64_t width = s->heads * s->dim, v_width = s->heads * s->v_dim;
    const int64_t n = slots_of(s) + s->null;
    double *k = calloc((size_t)(n * width + 1), sizeof *k);
    double *v = calloc((size_t)(n * v_width + 1), sizeof *v);
    for (int64_t b = 0; b < s->batch; b++) {
        const uint8_t *keep = o->keep != NULL ? o->keep + b * s->kv_len : NULL;
        for (int64_t d = 0; s->null && d < width; d++)
            k[d] = (double)o->null_k[d];
        for (int64_t d = 0; s->null && d < v_width; d++)
            v[d] = (double)o->null_v[d];
        for (int64_t c = 0; c < slots_of(s); c++) {
            make_slot(s, o->k + b * s->kv_len * width, width, o->wk, o->bk, keep, c,
                      k + (c + s->null) * width);
            make_slot(s, o->v + b * s->kv_len * v_width, v_width, s->wv ? o->wv : o->wk,
                      o->bv != NULL ? o->bv
                      : s->wv       ? NULL
                                    : o->bk,
                      keep, c, v + (c + s->null) * v_width);
        }
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->q_len; i++)
                one_query(s, o, b, h, i, k, v);
    }
    free(k);
    free(v);
}

static float *weight(struct check *c, const char *name, int64_t width, int64_t part,
                     int64_t ratio)
{
    float *w = check_weight(c, name, DIMS(width, part, ratio));
    for (int64_t i = 0; !c->blank && i < width * part * ratio; i++)
        w[i] /= sqrtf((float)(part * ratio));
    return w;
}

static float *vector(struct check *c, bool given, const char *name, int64_t width)
{
    if (given)
        return check_weight(c, name, DIMS(width));
    check_absent(c);
    return NULL;
}

static void build(struct check *c, const struct sizes *s)
{
    struct operands o = { 0 };
    const int64_t width = s->heads * s->dim, v_width = s->heads * s->v_dim;
    const int64_t groups = s->groups > 0 ? s->groups : s->heads;
    check_begin(c, "CompressedAttention");
    check_heads_attrs(c, s->heads, s->heads);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->scaled)
        check_float(c, "scale", 0.3f);
    if (s->ratio != 3)
        check_int(c, "compression", s->ratio);
    if (s->groups > 0)
        check_int(c, "groups", s->groups);
    o.q = check_heads(c, "Q", s->batch, s->q_len, s->heads, s->dim);
    o.k = check_heads(c, "K", s->batch, s->kv_len, s->heads, s->dim);
    o.v = check_heads(c, "V", s->batch, s->kv_len, s->heads, s->v_dim);
    o.wk = weight(c, "Wk", width, width / groups, s->ratio);
    o.bk = vector(c, s->bk, "bk", width);
    if (s->wv)
        o.wv = weight(c, "Wv", v_width, v_width / groups, s->ratio);
    else
        check_absent(c);
    o.bv = vector(c, s->bv, "bv", v_width);
    o.null_k = vector(c, s->null, "null_k", width);
    o.null_v = vector(c, s->null, "null_v", v_width);
    if (s->masked)
        o.keep = check_mask(c, "key_mask", s->batch, s->kv_len);
    o.y = check_heads_output(c, "Y", s->batch, s->q_len, s->heads, s->v_dim);
    if (!c->blank)
        reference(s, &o);
}

static struct sizes random_sizes(struct check *c)
{
    const bool large = c->round % 5 == 0;
    struct sizes s = { .batch = check_between(c, 0, 2),
                       .q_len = check_between(c, 1, large ? 600 : 40),
                       .kv_len = check_between(c, 0, large ? 600 : 40),
                       .heads = check_between(c, 1, 5),
                       .dim = check_between(c, 1, 12),
                       .v_dim = check_between(c, 1, 12),
                       .ratio = check_between(c, 1, 6),
                       .causal = check_chance(c, 50),
                       .masked = check_chance(c, 40),
                       .bk = check_chance(c, 50),
                       .wv = check_chance(c, 50),
                       .bv = check_chance(c, 40),
                       .null = check_chance(c, 50),
                       .scaled = check_chance(c, 40) };
    if (c->round % 20 == 3) { /* slots come in parts of 256 */
        s.q_len = check_between(c, 500, 560);
        s.heads = 4;
        s.dim = s.v_dim = 130;
        s.ratio = check_between(c, 1, 2);
    }
    if (c->round % 20 == 3 || check_chance(c, 60))
        s.kv_len = s.q_len;
    if (!s.wv)
        s.v_dim = s.dim;
    if (check_chance(c, 40))
        s.groups = check_chance(c, 50) ? s.heads : 1;
    return s;
}

static void refusals(struct check *c)
{
    const struct sizes plain = {
        .batch = 1, .q_len = 5, .kv_len = 5, .heads = 2, .dim = 4, .v_dim = 4, .ratio = 3
    };
    struct sizes s = plain;
    c->blank = true;
    s.v_dim = 3;
    build(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "'V'|no Wv");
    build(c, &plain);
    check_int(c, "compression", 0);
    check_refuses(c, ATTNRUN_E_ATTR, "compression is 0");
    build(c, &plain);
    check_int(c, "groups", 3);
    check_refuses(c, ATTNRUN_E_ATTR, "groups is 3|8 channels");
    build(c, &plain);
    check_int(c, "compression", 2);
    check_refuses(c, ATTNRUN_E_SHAPE, "Wk|compression");
    check_begin(c, "CompressedAttention");
    check_int(c, "groups", 1);
    check_f32(c, "Q", DIMS(1, 2, 5, 4));
    check_f32(c, "K", DIMS(1, 2, 5, 4));
    check_f32(c, "V", DIMS(1, 2, 5, 4));
    check_f32(c, "Wk", DIMS(8, 8, 3));
    check_output(c, "Y", DIMS(1, 2, 5, 4));
    check_refuses(c, ATTNRUN_E_ATTR, "groups is 1|rank 4");
    check_begin(c, "CompressedAttention");
    check_heads_attrs(c, 2, 2);
    for (const char *const *name = (const char *const[]){ "Q", "K", "V", NULL };
         *name != NULL; name++)
        check_heads(c, *name, 1, 5, 2, 4);
    check_f32(c, "Wk", DIMS(8, 4, 3));
    for (int i = 0; i < 3; i++)
        check_absent(c);
    check_f32(c, "null_k", DIMS(8));
    check_heads_output(c, "Y", 1, 5, 2, 4);
    check_refuses(c, ATTNRUN_E_INPUT, "null_k and null_v go together");
}

void check_compressed_attention(struct check *c)
{
    CHECK_ROUNDS(c, 80)
    {
        struct sizes s = random_sizes(c);
        build(c, &s);
        c->no_twin = s.groups > 0 && s.groups != s.heads; /* rank 4 is refused */
        check_run(c, CHECK_B);
    }
    refusals(c);
    struct sizes large = { .batch = 1,
                           .q_len = 16384,
                           .kv_len = 16384,
                           .heads = 8,
                           .dim = 64,
                           .v_dim = 64,
                           .ratio = 4 };
    c->blank = true;
    build(c, &large);
    check_extra_memory(c, 2 << 20);
}

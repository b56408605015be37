/* check_routing_attention.c - RoutingAttention, cluster by cluster. Some tokens are
 * equal, so that places decide; heads in which a choice is closer than that are left out.
 */
#include "operator_harness.h"

enum { MAX = 900, MAX_DIM = 40 };

struct routing {
    int64_t batch, q_len, kv_len, heads, dim, v_dim, clusters, memory, window[2];
    bool causal, shared;
    float scale, epsilon;
    const float *q, *k, *v, *means, *mem_k, *mem_v;
    const uint8_t *key_mask, *query_mask;
};

/* Marks the `window` tokens of a cluster; false where that is too close to tell. */
static bool choose(const struct routing *s, const float *x, int64_t n, int64_t b,
                   int64_t h, int64_t c, int64_t window, bool *chosen)
{
    static double distance[MAX];
    const float *mean = s->means + (h * s->clusters + c) * s->dim;
    double last = HUGE_VAL, next = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        const float *row = x + ((b * n + i) * s->heads + h) * s->dim;
        double dot = 0, square = 0;
        for (int64_t d = 0; d < s->dim; d++) {
            dot += (double)row[d] * (double)mean[d];
            square += (double)row[d] * (double)row[d];
        }
        distance[i] = dot / fmax(sqrt(square), 1e-12);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < n; j++)
            before += distance[j] > distance[i] || (distance[j] == distance[i] && j < i);
        chosen[i] = before < window;
        if (chosen[i])
            last = fmin(last, distance[i]);
        else
            next = fmax(next, distance[i]);
    }
    return last == next || last - next > 1e-5;
}

/* Score of query i and key j of a cluster (j < memory: of memory); false: not seen. */
static bool score(const struct routing *s, int64_t b, int64_t h, int64_t c, int64_t i,
                  int64_t j, double *out)
{
    const float *q = s->q + ((b * s->q_len + i) * s->heads + h) * s->dim, *k;
    const int64_t key = j - s->memory;
    double dot = 0, square = 0;
    if (key < 0)
        k = s->mem_k + ((h * s->clusters + c) * s->memory + j) * s->dim;
    else
        k = (s->shared ? s->q : s->k) + ((b * s->kv_len + key) * s->heads + h) * s->dim;
    for (int64_t d = 0; d < s->dim; d++) {
        dot += (double)q[d] * (double)k[d];
        square += (double)k[d] * (double)k[d];
    }
    *out = dot * (s->scale != 0.0f ? (double)s->scale : 1 / sqrt((double)s->dim));
    if (key < 0)
        return true;
    if (s->shared) {
        *out /= fmax(sqrt(square), 1e-12);
        if (i == key)
            *out = -5e4;
        if (i == key)
            return true;
    }
    return (s->query_mask == NULL || s->query_mask[b * s->q_len + i]) &&
           (s->key_mask == NULL || s->key_mask[b * s->kv_len + key]) &&
           !(s->causal && key > i + s->kv_len - s->q_len);
}

static void attend(const struct routing *s, int64_t b, int64_t h, int64_t c, int64_t i,
                   const bool *keys, double *y)
{
    double max = -HUGE_VAL, sum = 0, x, one[MAX_DIM] = { 0 };
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < s->memory + s->kv_len; j++) {
            if (j >= s->memory && !keys[j - s->memory])
                continue;
            if (!score(s, b, h, c, i, j, &x))
                continue;
            if (pass == 0) {
                max = fmax(max, x);
                continue;
            }
            const int64_t key = j - s->memory;
            const float *v =
                key < 0 ? s->mem_v + ((h * s->clusters + c) * s->memory + j) * s->v_dim
                        : s->v + ((b * s->kv_len + key) * s->heads + h) * s->v_dim;
            sum += exp(x - max);
            for (int64_t d = 0; d < s->v_dim; d++)
                one[d] += exp(x - max) * (double)v[d];
        }
    for (int64_t d = 0; d < s->v_dim && sum > 0; d++)
        y[d] += one[d] / sum;
}

static void run_head(const struct routing *s, int64_t b, int64_t h, double *y)
{
    static bool queries[MAX], keys[MAX];
    static int64_t count[MAX];
    bool clear = true;
    memset(count, 0, sizeof count);
    for (int64_t c = 0; c < s->clusters; c++) {
        clear &= choose(s, s->q, s->q_len, b, h, c, s->window[0], queries);
        clear &=
            choose(s, s->shared ? s->q : s->k, s->kv_len, b, h, c, s->window[1], keys);
        for (int64_t i = 0; i < s->q_len; i++)
            if (queries[i]) {
                count[i]++;
                attend(s, b, h, c, i, keys,
                       y + ((b * s->q_len + i) * s->heads + h) * s->v_dim);
            }
    }
    for (int64_t i = 0; i < s->q_len; i++)
        for (int64_t d = 0; d < s->v_dim; d++) {
            double *out = y + ((b * s->q_len + i) * s->heads + h) * s->v_dim + d;
            if (count[i] > 0)
                *out /= (double)count[i] + (double)s->epsilon;
            *out = clear ? *out : CHECK_SKIP;
        }
}

/* A few tokens become equal to others. */
static void repeat(struct check *c, float *x, int64_t tokens, int64_t width)
{
    for (int64_t i = 0; i < tokens / 6; i++) {
        const int64_t to = check_below(c, tokens), from = check_below(c, tokens);
        memmove(x + to * width, x + from * width, (size_t)width * sizeof *x);
    }
}

static void build(struct check *c, struct routing *s)
{
    check_begin(c, "RoutingAttention");
    check_heads_attrs(c, s->heads, s->heads);
    check_int(c, "window", s->window[0]);
    check_int(c, "shared_qk", s->shared);
    check_int(c, "is_causal", s->causal);
    check_float(c, "epsilon", s->epsilon);
    if (s->window[1] != s->window[0])
        check_int(c, "context_window", s->window[1]);
    if (s->scale != 0.0f)
        check_float(c, "scale", s->scale);
    float *q = check_heads(c, "Q", s->batch, s->q_len, s->heads, s->dim);
    float *k = check_heads(c, "K", s->batch, s->kv_len, s->heads, s->dim);
    s->v = check_heads(c, "V", s->batch, s->kv_len, s->heads, s->v_dim);
    s->q = q;
    s->k = k;
    repeat(c, q, c->blank ? 0 : s->batch * s->q_len, s->heads * s->dim);
    repeat(c, k, c->blank ? 0 : s->batch * s->kv_len, s->heads * s->dim);
    s->means = check_weight(c, "means", 3, (int64_t[]){ s->heads, s->clusters, s->dim });
    if (s->memory > 0) {
        s->mem_k = check_weight(c, "mem_k", 4,
                                (int64_t[]){ s->heads, s->clusters, s->memory, s->dim });
        s->mem_v = check_weight(
            c, "mem_v", 4, (int64_t[]){ s->heads, s->clusters, s->memory, s->v_dim });
    } else {
        check_absent(c);
        check_absent(c);
    }
    if (!c->blank && check_chance(c, 40))
        s->key_mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    else
        check_absent(c);
    if (!c->blank && check_chance(c, 40))
        s->query_mask = check_mask(c, "query_mask", s->batch, s->q_len);
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->heads, s->v_dim);
    for (int64_t b = 0; !c->blank && b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            run_head(s, b, h, y);
}

static struct routing sizes(struct check *c)
{
    const int64_t max = c->round % 8 == 0 ? MAX : c->round % 3 == 0 ? 200 : 40;
    struct routing s = { .batch = check_between(c, 0, max > 200 ? 1 : 2),
                         .q_len = check_between(c, 0, max),
                         .kv_len = check_between(c, 0, max),
                         .heads = c->round % 6 == 1
                                      ? 8
                                      : check_between(c, 1, max > 200 ? 1 : 3),
                         .dim = check_between(c, 2, MAX_DIM), /* of 1: all tie */
                         .v_dim = check_between(c, 1, MAX_DIM),
                         .clusters = check_between(c, 0, max > 200 ? 3 : 6),
                         .memory = check_chance(c, 50) ? check_between(c, 1, 5) : 0,
                         .causal = check_chance(c, 50),
                         .shared = check_chance(c, 40),
                         .scale = check_chance(c, 50) ? 0.3f : 0.0f,
                         .epsilon = check_chance(c, 20) ? 0.0f : 1e-5f };
    if (s.shared)
        s.kv_len = s.q_len;
    s.window[0] = check_between(c, 1, c->round % 2 == 0 ? max : 20);
    s.window[1] = check_chance(c, 50) ? s.window[0] : check_between(c, 1, max);
    return s;
}

static void refuse(struct check *c, struct routing s, attnrun_status status,
                   const char *words)
{
    build(c, &s);
    check_refuses(c, status, words);
}

static void refusals(struct check *c)
{
    const struct routing s = { .batch = 1,
                               .q_len = 9,
                               .kv_len = 9,
                               .heads = 2,
                               .dim = 8,
                               .v_dim = 8,
                               .clusters = 3,
                               .window = { 4, 4 },
                               .epsilon = 1e-5f };
    struct routing bad = s;
    bad.window[0] = bad.window[1] = 0;
    refuse(c, bad, ATTNRUN_E_ATTR, "window is 0|expected 1");
    bad = s;
    bad.window[1] = -3;
    refuse(c, bad, ATTNRUN_E_ATTR, "context_window is -3");
    bad = s;
    bad.shared = true;
    bad.kv_len = 10;
    refuse(c, bad, ATTNRUN_E_SHAPE, "shared_qk|9 queries|10 keys");
    bad = s;
    bad.epsilon = -1.0f;
    refuse(c, bad, ATTNRUN_E_ATTR, "epsilon is -1");
    check_begin(c, "RoutingAttention");
    check_heads_attrs(c, 2, 2);
    check_int(c, "window", 4);
    check_heads(c, "Q", 1, 9, 2, 8);
    check_heads(c, "K", 1, 9, 2, 8);
    check_heads(c, "V", 1, 9, 2, 8);
    check_f32(c, "means", 3, (int64_t[]){ 3, 3, 8 });
    check_heads_output(c, "Y", 1, 9, 2, 8);
    check_refuses(c, ATTNRUN_E_SHAPE, "means|heads");
    check_begin(c, "RoutingAttention");
    check_heads_attrs(c, 2, 2);
    check_int(c, "window", 4);
    check_heads(c, "Q", 1, 9, 2, 8);
    check_heads(c, "K", 1, 9, 2, 8);
    check_heads(c, "V", 1, 9, 2, 8);
    check_f32(c, "means", 3, (int64_t[]){ 2, 3, 8 });
    check_f32(c, "mem_k", 4, (int64_t[]){ 2, 3, 1, 8 });
    check_heads_output(c, "Y", 1, 9, 2, 8);
    check_refuses(c, ATTNRUN_E_MODEL, "mem_k is given without mem_v");
}

void check_routing_attention(struct check *c)
{
    CHECK_ROUNDS(c, 100)
    {
        struct routing s = sizes(c);
        build(c, &s);
        check_run(c, CHECK_A);
    }
    c->blank = true;
    refusals(c);
    struct routing large = { .batch = 1,
                             .q_len = 16384,
                             .kv_len = 16384,
                             .heads = 8,
                             .dim = 64,
                             .v_dim = 64,
                             .clusters = 64,
                             .window = { 256, 256 },
                             .memory = 1,
                             .epsilon = 1e-5f };
    build(c, &large);
    check_extra_memory(c, 2 << 20);
    /* Norms and chosen tokens: 16 bytes a token and head. */
    large.heads = 5;
    build(c, &large);
    check_extra_memory(c, 5 * 16384 * 16 + (2 << 20));
}

/* check_chunked_local_attention.c - ChunkedLocalAttention, chunk by chunk. */
#include "plain_softmax.h"

struct chunked {
    struct plain_sizes s;
    int64_t chunk, before, after;
    bool causal, wrap, exact, shared;
    const uint8_t *key_mask;
};

static int sees(const void *arg, int64_t b, int64_t h, int64_t i, int64_t j,
                double *score)
{
    const struct chunked *t = arg;
    const int64_t n = t->s.q_len / t->chunk + (t->s.q_len % t->chunk != 0),
                  a = i / t->chunk, before = n > 1 || !t->wrap ? t->before : 0,
                  after = n > 1 || !t->wrap ? t->after : 0;
    int times = 0;
    (void)h;
    for (int64_t c = a - before; c <= a + after; c++) {
        const int64_t in = t->wrap ? (c % n + n) % n : c;
        times += j / t->chunk == in;
    }
    const double chunk = (double)t->chunk, distance = (double)(j - i);
    if (t->exact &&
        (distance < -(double)t->before * chunk || distance > (double)t->after * chunk))
        times = 0;
    if ((t->causal && j > i) ||
        (t->key_mask != NULL && t->key_mask[b * t->s.kv_len + j] == 0))
        times = 0;
    if (t->shared && i == j)
        *score = -5e4;
    return times;
}

/* Keys of shared_qk. */
static void normalize(const struct plain_sizes *s, const float *q, float *k)
{
    for (int64_t row = 0; row < s->batch * s->q_len * s->q_heads; row++) {
        double sum = 0;
        for (int64_t d = 0; d < s->dim; d++)
            sum += (double)q[row * s->dim + d] * (double)q[row * s->dim + d];
        for (int64_t d = 0; d < s->dim; d++)
            k[row * s->dim + d] =
                (float)((double)q[row * s->dim + d] / fmax(sqrt(sum), 1e-12));
    }
}

static void set_attributes(struct check *c, struct chunked *t)
{
    check_heads_attrs(c, t->s.q_heads, t->s.kv_heads);
    check_int(c, "chunk_size", t->chunk);
    t->s.scale = 1 / sqrt((double)t->s.dim);
    t->before = 1;
    t->causal = check_chance(c, 40);
    t->after = !t->causal;
    if (t->causal)
        check_int(c, "is_causal", 1);
    if (check_chance(c, 60))
        check_int(c, "chunks_before", t->before = check_between(c, 0, 4));
    if (check_chance(c, 60))
        check_int(c, "chunks_after", t->after = t->causal ? 0 : check_between(c, 0, 4));
    if (t->wrap || check_chance(c, 20))
        check_string(c, "edge", t->wrap ? "wrap" : "pad");
    if ((t->exact = check_chance(c, 40)))
        check_int(c, "exact_window", 1);
    if (t->shared)
        check_int(c, "shared_qk", 1);
}

static void random_case(struct check *c, struct chunked *t)
{
    struct plain_sizes *s = &t->s;
    check_begin(c, "ChunkedLocalAttention");
    set_attributes(c, t);
    const float *q = check_heads(c, "Q", s->batch, s->q_len, s->q_heads, s->dim);
    const float *k = check_heads(c, "K", s->batch, s->kv_len, s->kv_heads, s->dim);
    const float *v = check_heads(c, "V", s->batch, s->kv_len, s->kv_heads, s->v_dim);
    float *made = malloc((size_t)(s->batch * s->q_len * s->q_heads * s->dim + 1) * 4);
    if (t->shared)
        normalize(s, q, made);
    if (check_chance(c, 50))
        t->key_mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->q_heads, s->v_dim);
    plain_softmax(s, q, t->shared ? made : k, v, sees, t, y);
    check_run(c, CHECK_A);
    free(made);
}

static void blank_case(struct check *c, int64_t n, int64_t kv, int64_t kv_heads)
{
    c->blank = true;
    check_begin(c, "ChunkedLocalAttention");
    check_heads_attrs(c, 8, kv_heads);
    check_heads(c, "Q", 1, n, 8, 64);
    check_heads(c, "K", 1, kv, kv_heads, 64);
    check_heads(c, "V", 1, kv, kv_heads, 64);
    check_heads_output(c, "Y", 1, n, 8, 64);
}

static void refuse(struct check *c, const char *name, int64_t value, const char *words)
{
    blank_case(c, 6, 6, 8);
    if (strcmp(name, "chunk_size") != 0)
        check_int(c, "chunk_size", 2);
    check_int(c, name, value);
    check_refuses(c, ATTNRUN_E_ATTR, words);
}

void check_chunked_local_attention(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    {
        const bool large = c->round % 12 == 0;
        struct chunked t = { .s = { .batch = check_between(c, 0, 2),
                                    .q_len = check_between(c, 1, large ? 600 : 40),
                                    .kv_heads = check_between(c, 1, 3),
                                    .dim = check_between(c, 1, large ? 8 : 30),
                                    .v_dim = check_between(c, 1, large ? 8 : 30) } };
        t.chunk = check_between(c, 1, large ? 200 : 12);
        t.wrap = check_chance(c, 40);
        if (t.wrap)
            t.s.q_len = (t.s.q_len + t.chunk - 1) / t.chunk * t.chunk;
        if (t.wrap && c->round % 5 == 0) /* one chunk, full or short */
            t.chunk = t.s.q_len + c->round % 3;
        if (!t.wrap && c->round % 9 == 0)
            t.chunk = INT64_MAX;
        t.shared = check_chance(c, 30);
        t.s.kv_len = t.s.q_len;
        t.s.q_heads = t.s.kv_heads * (t.shared ? 1 : check_between(c, 1, 2));
        random_case(c, &t);
    }
    blank_case(c, 16384, 16384, 8);
    check_int(c, "chunk_size", 256);
    check_int(c, "shared_qk", 1);
    check_mask(c, "key_mask", 1, 16384);
    check_extra_memory(c, 2 << 20);
    refuse(c, "chunk_size", 0, "chunk_size|0");
    refuse(c, "chunks_before", -1, "chunks_before|-1");
    refuse(c, "chunks_after", -1, "chunks_after|-1");
    refuse(c, "exact_window", 2, "exact_window|2");
    refuse(c, "shared_qk", 3, "shared_qk|3");
    blank_case(c, 6, 6, 8);
    check_refuses(c, ATTNRUN_E_ATTR, "chunk_size");
    blank_case(c, 6, 6, 8);
    check_int(c, "chunk_size", 2);
    check_int(c, "chunks_after", 1);
    check_int(c, "is_causal", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "chunks_after|is_causal");
    blank_case(c, 6, 7, 8);
    check_int(c, "chunk_size", 2);
    check_refuses(c, ATTNRUN_E_SHAPE, "length|7");
    blank_case(c, 7, 7, 8);
    check_int(c, "chunk_size", 2);
    check_string(c, "edge", "wrap");
    check_refuses(c, ATTNRUN_E_SHAPE, "multiple of chunk_size|7|key_mask");
    blank_case(c, 6, 6, 8);
    check_int(c, "chunk_size", 2);
    check_string(c, "edge", "reflect");
    check_refuses(c, ATTNRUN_E_ATTR, "edge|reflect");
    blank_case(c, 6, 6, 4);
    check_int(c, "chunk_size", 2);
    check_int(c, "shared_qk", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "kv_num_heads");
}

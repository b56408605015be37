/* check_reformer_attention.c - ReformerAttention round by round, with (m, l) of each. Its
 * numbers are small multiples of 1/4, so that hashes are exact and some of them tie. */
#include <stdlib.h>

#include "operator_harness.h"

enum { FACTORS = 3, MAX_TOKENS = 1400, MAX_PLACES = 16384, MAX_SEEN = 8192 };

struct lsh {
    int64_t batch, n, heads, dim, v_dim, rounds, chunk, before, after;
    int64_t n_factors, factors[FACTORS], n_buckets, features, rotation_heads;
    bool causal, across, dedup, full, l2, hashed, want_buckets;
    float scale, self;
    const float *qk, *v, *rotations;
    const uint8_t *mask;
    int32_t *given;
};

/* Of one head. */
struct state {
    const struct lsh *s;
    int64_t b, h, padded, chunks;
    int64_t raw[MAX_PLACES], bucket[MAX_PLACES]; /* (rounds, n) */
    int64_t token[MAX_PLACES];                   /* (rounds, padded): n and more: none */
    int64_t place[MAX_PLACES];                   /* (rounds, n): chunk of a token */
    double score[MAX_SEEN];
    int64_t key[MAX_SEEN];
    double max[MAX_TOKENS], sum[MAX_TOKENS];
    double y[MAX_TOKENS][48];
};

static const float *row_of(const struct state *t, const float *x, int64_t i, int64_t dim)
{
    return x + ((t->b * t->s->n + i) * t->s->heads + t->h) * dim;
}

static int64_t hash(const struct state *t, int64_t round, int64_t i)
{
    const struct lsh *s = t->s;
    const int64_t head = s->rotation_heads == 1 ? 0 : t->h;
    const float *x = row_of(t, s->qk, i, s->dim);
    int64_t bucket = 0, times = 1, first = 0;
    for (int64_t f = 0; f < s->n_factors; f++) {
        const int64_t half = s->factors[f] / 2;
        double best = -HUGE_VAL;
        int64_t at = 0;
        for (int64_t k = 0; k < 2 * half; k++) {
            double u = 0;
            for (int64_t d = 0; d < s->dim; d++)
                u += (double)x[d] *
                     (double)s->rotations[((head * s->dim + d) * s->rounds + round) *
                                              s->features +
                                          first + k % half];
            u = k < half ? u : -u;
            at = u > best ? k : at;
            best = fmax(u, best);
        }
        bucket += at * times;
        times *= s->factors[f];
        first += half;
    }
    return bucket;
}

static void sort(struct state *t, int64_t round)
{
    const struct lsh *s = t->s;
    int64_t *token = t->token + round * t->padded, *bucket = t->bucket + round * s->n;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t at = i;
        for (; at > 0 && bucket[token[at - 1]] > bucket[i]; at--)
            token[at] = token[at - 1];
        token[at] = i;
    }
    for (int64_t i = s->n; i < t->padded; i++)
        token[i] = i;
    for (int64_t i = 0; i < s->n; i++)
        t->place[round * s->n + token[i]] = (round * t->padded + i) / s->chunk;
}

/* False where the pair is not seen. */
static bool score(const struct state *t, int64_t i, int64_t i_place, int64_t j,
                  int64_t j_place, double *out)
{
    const struct lsh *s = t->s;
    if (j >= s->n)
        return false;
    const float *q = row_of(t, s->qk, i, s->dim), *k = row_of(t, s->qk, j, s->dim);
    double dot = 0, square = 0;
    for (int64_t d = 0; d < s->dim; d++) {
        dot += (double)q[d] * (double)k[d];
        square += (double)k[d] * (double)k[d];
    }
    dot *= (double)s->scale;
    *out = s->l2 ? dot / fmax(sqrt(square), 1e-12)
                 : dot / sqrt((double)s->dim * (square / (double)s->dim + 1e-6));
    bool seen = (s->mask == NULL || s->mask[t->b * s->n + j]) && !(s->causal && j > i);
    if (!s->across && !s->full) {
        int64_t ti = i_place / t->padded, tj = j_place / t->padded;
        seen = seen && ti == tj && t->bucket[ti * s->n + i] == t->bucket[tj * s->n + j];
    }
    if (i == j) {
        *out = (double)s->self;
        seen = true;
    }
    if (s->dedup && !s->full) {
        int count = 0;
        for (int64_t round = 0; round < s->rounds; round++) {
            int64_t a = t->place[round * s->n + i], c = t->place[round * s->n + j];
            count += (a == c) + (a == (c + 1) % t->chunks);
        }
        *out -= log((double)count + 1e-9);
    }
    return seen;
}

/* Adds what a query sees in one round, by its (m, l). */
static void attend(struct state *t, int64_t place)
{
    const struct lsh *s = t->s;
    const int64_t i = t->token[place], chunk = place / s->chunk;
    int64_t n = 0;
    double max = -HUGE_VAL, y[48] = { 0 }, sum = 0;
    for (int64_t a = chunk - s->before; a <= chunk + s->after; a++)
        for (int64_t c = 0; c < s->chunk; c++) {
            int64_t at = ((a % t->chunks + t->chunks) % t->chunks) * s->chunk + c;
            t->key[n] = t->token[at];
            if (score(t, i, place, t->token[at], at, &t->score[n])) {
                max = fmax(max, t->score[n]);
                n++;
            }
        }
    for (int64_t k = 0; k < n; k++) {
        const double p = exp(t->score[k] - max);
        const float *v = row_of(t, s->v, t->key[k], s->v_dim);
        sum += p;
        for (int64_t d = 0; d < s->v_dim; d++)
            y[d] += p * (double)v[d];
    }
    const double largest = fmax(max, t->max[i]);
    const double old = exp(t->max[i] - largest), new = exp(max - largest);
    t->max[i] = largest;
    t->sum[i] = t->sum[i] * old + sum * new;
    for (int64_t d = 0; d < s->v_dim; d++)
        t->y[i][d] = t->y[i][d] * old + y[d] * new;
}

static void hash_all(struct state *t)
{
    const struct lsh *s = t->s;
    for (int64_t round = 0; round < s->rounds; round++)
        for (int64_t i = 0; i < s->n; i++) {
            const int64_t at = round * s->n + i;
            if (s->given != NULL)
                t->raw[at] = s->given[(t->b * s->heads + t->h) * s->rounds * s->n + at];
            else if (s->rotations != NULL)
                t->raw[at] = hash(t, round, i);
            t->bucket[at] = t->raw[at];
            if (s->given == NULL && s->mask != NULL && !s->mask[t->b * s->n + i])
                t->bucket[at] = s->n_buckets;
        }
}

static void run_head(struct state *t, double *y, double *buckets)
{
    const struct lsh *s = t->s;
    const int64_t rounds = s->full ? 1 : s->rounds;
    t->padded = (s->n + s->chunk - 1) / s->chunk * s->chunk;
    t->chunks = rounds * t->padded / s->chunk;
    hash_all(t);
    for (int64_t round = 0; round < rounds; round++)
        sort(t, round);
    for (int64_t i = 0; i < s->n; i++) {
        t->max[i] = -HUGE_VAL;
        t->sum[i] = 0;
        memset(t->y[i], 0, sizeof t->y[i]);
    }
    for (int64_t place = 0; place < rounds * t->padded; place++)
        if (t->token[place] < s->n)
            attend(t, place);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t d = 0; d < s->v_dim; d++)
            y[((t->b * s->n + i) * s->heads + t->h) * s->v_dim + d] =
                t->y[i][d] / t->sum[i];
    for (int64_t i = 0; buckets != NULL && i < s->rounds * s->n; i++)
        buckets[(t->b * s->heads + t->h) * s->rounds * s->n + i] = (double)t->raw[i];
}

static void reference(const struct lsh *s, double *y, double *buckets)
{
    struct state *t = calloc(1, sizeof *t);
    struct lsh one = *s;
    if (one.full) {
        one.chunk = s->n > 1 ? s->n : 1;
        one.before = one.after = 0;
    }
    t->s = &one;
    for (t->b = 0; t->b < s->batch; t->b++)
        for (t->h = 0; t->h < s->heads; t->h++)
            run_head(t, y, buckets);
    free(t);
}

static void quarters(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = nearbyintf(x[i] * 4) / 4;
}

static void build(struct check *c, struct lsh *s)
{
    const char *norms[] = { "rms", "l2" };
    const int64_t places = s->batch * s->heads * s->rounds * s->n;
    check_begin(c, "ReformerAttention");
    check_heads_attrs(c, s->heads, s->heads);
    check_int(c, "num_hashes", s->rounds);
    check_ints(c, "num_buckets", (int)s->n_factors, s->factors);
    check_int(c, "chunk_length", s->chunk);
    check_int(c, "chunks_before", s->before);
    check_int(c, "chunks_after", s->after);
    check_int(c, "is_causal", s->causal);
    check_int(c, "attend_across_buckets", s->across);
    check_int(c, "deduplicate", s->dedup);
    check_int(c, "full_below_chunk", s->full);
    check_string(c, "key_norm", norms[s->l2]);
    check_float(c, "self_value", s->self);
    if (s->scale != 1.0f)
        check_float(c, "scale", s->scale);
    s->full = s->full && s->n <= s->chunk;
    float *qk = check_heads(c, "QK", s->batch, s->n, s->heads, s->dim);
    s->v = check_heads(c, "V", s->batch, s->n, s->heads, s->v_dim);
    quarters(qk, c->blank ? 0 : s->batch * s->n * s->heads * s->dim);
    s->qk = qk;
    if (s->hashed) {
        int64_t dims[] = { s->rotation_heads, s->dim, s->rounds, s->features };
        float *r = check_weight(c, "rotations", 4, dims);
        quarters(r, c->blank ? 0 : dims[0] * dims[1] * dims[2] * dims[3]);
        s->rotations = r;
        check_absent(c);
    } else {
        check_absent(c);
        s->given = check_data(c, "buckets", ATTNRUN_I32, 4,
                              (int64_t[]){ s->batch, s->heads, s->rounds, s->n });
        for (int64_t i = 0; !c->blank && i < places; i++)
            s->given[i] = (int32_t)check_below(c, s->n_buckets);
    }
    if (check_chance(c, 40) && !c->blank)
        s->mask = check_mask(c, "key_mask", s->batch, s->n);
    double *y = check_heads_output(c, "Y", s->batch, s->n, s->heads, s->v_dim);
    double *buckets = NULL;
    if (s->want_buckets)
        buckets = check_output_of(c, "buckets_out", ATTNRUN_I32, 4,
                                  (int64_t[]){ s->batch, s->heads, s->rounds, s->n });
    if (!c->blank)
        reference(s, y, buckets);
}

static struct lsh sizes(struct check *c)
{
    const bool large = c->round % 8 == 0;
    struct lsh s = { .batch = check_between(c, 0, 2),
                     .n = check_between(c, 0, c->round % 3 == 0 ? 150 : 40),
                     .heads = c->round % 6 == 1 ? 8 : check_between(c, 1, 3),
                     .dim = check_between(c, 1, 40),
                     .v_dim = check_between(c, 1, 40),
                     .rounds = check_between(c, 1, c->round % 5 == 0 ? 11 : 4),
                     .chunk = check_between(c, 1, 40),
                     .n_factors = check_between(c, 1, FACTORS),
                     .n_buckets = 1,
                     .hashed = check_chance(c, 70),
                     .causal = check_chance(c, 50),
                     .across = check_chance(c, 70),
                     .full = check_chance(c, 70),
                     .l2 = check_chance(c, 50),
                     .want_buckets = check_chance(c, 50),
                     .scale = check_chance(c, 50) ? 1.0f : 0.3f,
                     .self = check_chance(c, 50) ? -1e5f : -5e4f };
    if (large) { /* several blocks of queries, chunks of several groups */
        s.batch = s.heads = 1;
        s.n = check_between(c, 600, MAX_TOKENS);
        s.rounds = check_between(c, 1, 3);
        s.chunk = c->round % 16 == 0 ? 64 : check_between(c, 30, 1300);
    }
    const int64_t chunks = s.rounds * ((s.n + s.chunk - 1) / s.chunk);
    s.dedup = s.across && check_chance(c, 30) && chunks > 0;
    s.before = s.dedup ? 1 : check_between(c, 0, chunks < 2 ? chunks : 2);
    s.after = s.dedup ? 0 : check_between(c, 0, chunks < 1 ? chunks : 1);
    if (s.full && s.n <= s.chunk && !s.dedup)
        s.before = s.after = 3;
    for (int64_t f = 0; f < s.n_factors; f++) {
        s.factors[f] = 2 * check_between(c, 1, s.n_factors == 1 ? 150 : 20);
        s.n_buckets *= s.factors[f];
        s.features += s.factors[f] / 2;
    }
    s.rotation_heads = check_chance(c, 50) ? 1 : s.heads;
    return s;
}

static void refuse(struct check *c, struct lsh s, attnrun_status status,
                   const char *words)
{
    s.n_buckets = 1;
    build(c, &s);
    check_refuses(c, status, words);
}

static void refusals(struct check *c)
{
    struct lsh s = { 1,     20,   2,     8,    8,     2,    4,     1,    0,     1,
                     { 4 }, 4,    2,     2,    false, true, false, true, false, true,
                     false, 1.0f, -1e5f, NULL, NULL,  NULL, NULL,  NULL };
    struct lsh bad = s;
    bad.factors[0] = 5;
    refuse(c, bad, ATTNRUN_E_ATTR, "num_buckets|5|even");
    bad = s;
    bad.features = 3;
    refuse(c, bad, ATTNRUN_E_SHAPE, "rotations|num_buckets");
    bad = s;
    bad.before = 11;
    refuse(c, bad, ATTNRUN_E_ATTR, "chunks_before is 11|at most 10");
    bad = s;
    bad.after = 12;
    refuse(c, bad, ATTNRUN_E_ATTR, "chunks_after is 12");
    bad = s;
    bad.dedup = true;
    bad.after = 1;
    refuse(c, bad, ATTNRUN_E_ATTR, "deduplicate|chunks_after 0");
    bad.after = 0;
    bad.across = false;
    refuse(c, bad, ATTNRUN_E_ATTR, "deduplicate|attend_across_buckets 1");
    bad = s;
    bad.rounds = 0;
    refuse(c, bad, ATTNRUN_E_ATTR, "num_hashes is 0");
    bad = s;
    bad.scale = 0.0f;
    refuse(c, bad, ATTNRUN_E_ATTR, "scale is 0");
    bad = s;
    bad.self = INFINITY;
    refuse(c, bad, ATTNRUN_E_ATTR, "self_value");
    bad = s;
    bad.rotation_heads = 3;
    refuse(c, bad, ATTNRUN_E_SHAPE, "rotations|heads");
}

static void refused_operands(struct check *c)
{
    check_begin(c, "ReformerAttention");
    check_heads_attrs(c, 2, 2);
    check_ints(c, "num_buckets", 1, (int64_t[]){ 4 });
    check_int(c, "chunk_length", 4);
    check_heads(c, "QK", 1, 9, 2, 8);
    check_heads(c, "V", 1, 9, 2, 8);
    check_heads_output(c, "Y", 1, 9, 2, 8);
    check_refuses(c, ATTNRUN_E_MODEL, "neither rotations nor buckets");
    check_begin(c, "ReformerAttention");
    check_heads_attrs(c, 2, 2);
    check_ints(c, "num_buckets", 1, (int64_t[]){ 4 });
    check_int(c, "chunk_length", 4);
    check_heads(c, "QK", 1, 9, 2, 8);
    check_heads(c, "V", 1, 9, 2, 8);
    check_absent(c);
    int32_t *buckets =
        check_data(c, "buckets", ATTNRUN_I32, 4, (int64_t[]){ 1, 2, 1, 9 });
    buckets[17] = 4;
    check_heads_output(c, "Y", 1, 9, 2, 8);
    check_refuses(c, ATTNRUN_E_RANGE, "buckets|holds 4|0 to 3");
}

void check_reformer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 120)
    {
        struct lsh s = sizes(c);
        build(c, &s);
        check_run(c, s.dedup ? CHECK_B : CHECK_A); /* log 1e-9 makes scores large */
    }
    refusals(c);
    refused_operands(c);
    c->blank = true;
    struct lsh large = { .batch = 1,
                         .n = 16384,
                         .heads = 8,
                         .dim = 64,
                         .v_dim = 64,
                         .rounds = 4,
                         .chunk = 64,
                         .before = 1,
                         .n_factors = 1,
                         .factors = { 512 },
                         .n_buckets = 512,
                         .features = 256,
                         .rotation_heads = 8,
                         .across = true,
                         .full = true,
                         .hashed = true,
                         .scale = 1.0f,
                         .self = -1e5f };
    build(c, &large);
    check_extra_memory(c, 2 << 20);
    /* Heads that leave threads without work keep 4 bytes for a token, head and round, and
     * 16 for a token and head. */
    large.heads = large.rotation_heads = 5;
    build(c, &large);
    check_extra_memory(c, 5 * 16384 * (4 * 4 + 16) + (2 << 20));
}

/* reformer_hash.c - computes the buckets of tokens and sorts the tokens by them.
 * reformer_attention.c has the formula.
 *
 * In: queries and rotations, or buckets that are given. Out: for each round the tokens of
 * a head in the order of (bucket, position), with masked tokens last. Cost: 2 n dim
 * features FLOPs and a radix sort for each round and head. */
#include "reformer.h"
#include "../../tile.h"

#include <math.h>

enum { TOKENS = REFORMER_TOKENS, FEATURES = REFORMER_FEATURES };

/* ---- hashing ---- */

/* Tokens are columns here, so that their extremes are computed together. */
struct hash {
    const struct reformer *s;
    const struct attn_kernels *kernels;
    const float *transposed; /* (hashes * features, dim) of the head */
    float *tokens;           /* packed (dim, n) */
    float *u;                /* (FEATURES, TOKENS): rotated, from feature `first` on */
    float *gemm;
    struct attn_extremes extremes;
    int64_t n, first, end;
};

bool attn_reformer_hash_place(struct reformer *s, int64_t *bytes)
{
    const int64_t dim = s->sizes.dim, all = s->hashes * s->features;
    *bytes = 0;
    if (!s->hashed)
        return true;
    if (dim > INT64_MAX / (1 << 20) || all > INT64_MAX / (1 << 10) / dim)
        return false;
    const int64_t gemm =
        (int64_t)attn_gemm_scratch((size_t)FEATURES, (size_t)TOKENS, (size_t)dim);
    return op_slot(&s->gemm_at, bytes, gemm, sizeof(float)) &&
           op_slot(&s->u_at, bytes, FEATURES * TOKENS, sizeof(float)) &&
           op_slot(&s->extremes_at, bytes, 4 * TOKENS, sizeof(float)) &&
           op_slot_rows(&s->tokens_at, bytes, TOKENS, dim, sizeof(float)) &&
           op_slot_rows(&s->transposed_at, bytes, all, dim, sizeof(float));
}

static void reformer_hash_begin(struct hash *t, const struct reformer *s,
                                const struct attn_kernels *kernels,
                                const struct reformer_operands *o, int64_t head,
                                void *scratch)
{
    const int64_t dim = s->sizes.dim, all = s->hashes * s->features;
    const int64_t matrix = (s->rotation_heads == 1 ? 0 : head % s->sizes.q_heads) * dim;
    *t = (struct hash){ .s = s, .kernels = kernels };
    t->gemm = op_slot_floats(scratch, s->gemm_at);
    t->u = op_slot_floats(scratch, s->u_at);
    t->extremes.max = op_slot_floats(scratch, s->extremes_at);
    t->extremes.min = t->extremes.max + TOKENS;
    t->extremes.at_max = (int32_t *)(void *)(t->extremes.min + TOKENS);
    t->extremes.at_min = t->extremes.at_max + TOKENS;
    t->tokens = op_slot_floats(scratch, s->tokens_at);
    if (o->transposed != NULL) {
        t->transposed = o->transposed + matrix * all;
        return;
    }
    float *transposed = op_slot_floats(scratch, s->transposed_at);
    kernels->transpose_f32(transposed, dim, o->rotations + matrix * all, all, (size_t)dim,
                           (size_t)all);
    t->transposed = transposed;
}

/* Computes features from `first` on, as many as fit. */
static void rotate(struct hash *t, int64_t first)
{
    const int64_t dim = t->s->sizes.dim, all = t->s->hashes * t->s->features;
    t->first = first;
    t->end = min64(all, first + FEATURES);
    const struct attn_gemm_f32 g = { .a = t->transposed + first * dim,
                                     .a_row = dim,
                                     .b = t->tokens,
                                     .packed = 1,
                                     .c = t->u,
                                     .c_row = TOKENS,
                                     .m = (size_t)(t->end - first),
                                     .n = (size_t)t->n,
                                     .k = (size_t)dim,
                                     .exact = 1, /* its signs are the buckets */
                                     .scratch = t->gemm };
    t->kernels->gemm_f32(&g);
}

/* Adds times * (the index of the first largest of u and -u) of `width` features to the
 * buckets. */
static void add_factor(struct hash *t, int32_t *bucket, int64_t feature, int64_t width,
                       int64_t times)
{
    struct attn_extremes *e = &t->extremes;
    for (int64_t i = 0; i < t->n; i++) {
        e->max[i] = -INFINITY;
        e->min[i] = INFINITY;
        e->at_max[i] = e->at_min[i] = 0;
    }
    for (int64_t done = 0; done < width;) {
        if (feature + done >= t->end)
            rotate(t, feature + done);
        int64_t rows = min64(width - done, t->end - feature - done);
        t->kernels->extremes_f32(t->u + (feature + done - t->first) * TOKENS, TOKENS,
                                 (size_t)rows, (size_t)t->n, (int32_t)done, e);
        done += rows;
    }
    for (int64_t i = 0; i < t->n; i++) {
        bool positive = !(-e->min[i] > e->max[i]);
        int64_t at = positive ? e->at_max[i] : width + e->at_min[i];
        bucket[i] += (int32_t)(times * at);
    }
}

static void hash_tokens(struct hash *t, const float *x, int64_t row, int32_t *buckets)
{
    const struct reformer *s = t->s;
    int64_t feature = 0;
    t->kernels->gemm_pack_f32(t->tokens, x, 1, row, (size_t)s->sizes.dim, (size_t)t->n);
    t->end = 0;
    for (int64_t round = 0; round < s->hashes; round++, buckets += s->sizes.q_len) {
        int64_t times = 1;
        memset(buckets, 0, (size_t)t->n * sizeof *buckets);
        for (int64_t f = 0; f < s->n_factors; f++) {
            add_factor(t, buckets, feature, s->widths[f], times);
            feature += s->widths[f];
            times *= 2 * s->widths[f];
        }
    }
}

static attn_status take_given(const attnrun_step *step, const struct reformer *s,
                              const attnrun_tensor *x, int64_t head, int64_t first,
                              int64_t n, int32_t *buckets)
{
    for (int64_t round = 0; round < s->hashes; round++, buckets += s->sizes.q_len) {
        const int64_t at = (head * s->hashes + round) * s->sizes.q_len + first;
        for (int64_t i = 0; i < n; i++) {
            int64_t bucket = x->dtype == ATTNRUN_I64 ? ((const int64_t *)x->data)[at + i]
                                                     : ((const int32_t *)x->data)[at + i];
            if (bucket < 0 || bucket >= s->n_buckets)
                return op_fail_input(step, REFORMER_BUCKETS, ATTNRUN_E_RANGE,
                                     "holds %lld, expected 0 to %lld", (long long)bucket,
                                     (long long)s->n_buckets - 1);
            buckets[i] = (int32_t)bucket;
        }
    }
    return ATTNRUN_OK;
}

attn_status attn_reformer_hash(const attnrun_step *step, const struct reformer *s,
                               const struct reformer_operands *o, int64_t head,
                               int64_t block, void *scratch)
{
    const struct attn_sizes *z = &s->sizes;
    const int64_t first = block * TOKENS, n = min64(TOKENS, z->q_len - first);
    const float *x = reformer_head(o->qk, &z->q, s, head) + first * z->q.row;
    const float add = s->l2 ? 0.0f : (float)((double)z->dim * 1e-6);
    int32_t *buckets = o->order + reformer_items_at(s, o, head, 0) + first;
    step->kernels->inverse_norms_f32(o->norms + reformer_tokens_at(s, o, head) + first, x,
                                     z->q.row, (size_t)n, (size_t)z->dim, add, 1e-12f);
    if (s->given)
        return take_given(step, s, o->given, head, first, n, buckets);
    if (s->hashed) {
        struct hash t;
        reformer_hash_begin(&t, s, step->kernels, o, head, scratch);
        t.n = n;
        hash_tokens(&t, x, z->q.row, buckets);
    }
    return ATTNRUN_OK;
}

/* ---- order ---- */

enum { DIGIT = 11, DIGITS = 1 << DIGIT };

int64_t attn_reformer_sort_bytes(const struct reformer *s)
{
    if (s->whole)
        return 0;
    return (DIGITS + 2 * s->sizes.q_len) * (int64_t)sizeof(int32_t);
}

/* Sorts from (NULL: 0, 1, …) by a digit of the buckets into `to`; equal ones keep their
 * order. */
static void sort_digit(int32_t *to, const int32_t *from, const int32_t *bucket, int64_t n,
                       int shift, int32_t *count)
{
    int32_t sum = 0;
    memset(count, 0, DIGITS * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        count[bucket[i] >> shift & (DIGITS - 1)]++;
    for (int64_t d = 0; d < DIGITS; d++) {
        int32_t here = count[d];
        count[d] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t token = from != NULL ? from[i] : (int32_t)i;
        to[count[bucket[token] >> shift & (DIGITS - 1)]++] = token;
    }
}

static const int32_t *sorted(const struct reformer *s, const int32_t *bucket,
                             int32_t *scratch)
{
    const int64_t n = s->sizes.q_len;
    int32_t *to = scratch + DIGITS, *from = NULL;
    for (int shift = 0; shift == 0 || (shift < 31 && s->n_buckets >> shift > 0);
         shift += DIGIT) {
        sort_digit(to, from, bucket, n, shift, scratch);
        from = to;
        to = scratch + DIGITS + (from == scratch + DIGITS ? n : 0);
    }
    return from;
}

void attn_reformer_sort(const struct reformer *s, const struct reformer_operands *o,
                        int64_t head, int64_t round, void *scratch)
{
    const int64_t n = s->sizes.q_len, at = reformer_items_at(s, o, head, round);
    int32_t *order = o->order + at;
    if (o->buckets_out != NULL)
        memcpy(o->buckets_out + (head * s->hashes + round) * n, order,
               (size_t)n * sizeof *order);
    if (s->whole) {
        for (int64_t i = 0; i < n; i++)
            order[i] = (int32_t)i;
        return;
    }
    if (o->key_mask != NULL && !s->given) {
        const uint8_t *keep = o->key_mask + head / s->sizes.q_heads * n;
        for (int64_t i = 0; i < n; i++)
            order[i] = keep[i] ? order[i] : (int32_t)s->n_buckets;
    }
    const int32_t *tokens = sorted(s, order, scratch);
    for (int64_t i = 0; s->by_bucket && i < n; i++)
        o->group[at + i] = order[tokens[i]];
    for (int64_t i = 0; s->deduplicate && i < n; i++)
        o->place[at + tokens[i]] = (int32_t)((round * s->padded + i) / s->chunk);
    memcpy(order, tokens, (size_t)n * sizeof *order);
}

/* mixture_route.c - chooses the experts of a token and their weights. mixture.h describes
 * the operands.
 *
 * use_sparse_mixer  the first expert has the largest logit m. Its weight is that of a
 *                   softmax over the logits l for which (m - l) / max(|l|, m) <= 0.02.
 *                   The second is chosen in the same way among the others
 *
 * Cost: O(E k) a token. Source: SparseMixer, Liu et al. 2023, arXiv:2310.00811, as in
 * Phi-3.5-MoE; ONNX Runtime's kernel for CPUs ignores this attribute. */
#include <math.h>

#include "mixture.h"

struct choice {
    float *values;  /* softmax, or logits */
    uint8_t *taken; /* by an expert before */
    int64_t experts;
};

int64_t attn_mixture_route_bytes(int64_t experts) { return 5 * experts + 64; }

/* The largest of those left; among equals the last, or with `first` the first one. */
static int64_t greatest(const struct choice *c, bool first)
{
    int64_t best = -1;
    for (int64_t e = 0; e < c->experts; e++) {
        if (c->taken[e])
            continue;
        if (best < 0 || c->values[e] > c->values[best] ||
            (!first && c->values[e] == c->values[best]))
            best = e;
    }
    return best;
}

static void mixture_route_softmax(float *y, const float *x, int64_t n)
{
    float max = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - max);
        sum += y[i];
    }
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static float sparse_weight(const struct choice *c, int64_t chosen)
{
    const float max = c->values[chosen];
    float sum = 0;
    for (int64_t e = 0; e < c->experts; e++) {
        const float x = c->values[e], size = fmaxf(fabsf(x), max);
        if (!c->taken[e] && !((max - x) / size > 0.02f))
            sum += expf(x - max);
    }
    return 1.0f / sum;
}

static void route_token(const struct mixture_args *args, const struct mixture_state *s,
                        bool normalized, const float *logits, const float *mix,
                        int32_t *expert, float *weight, struct choice *c)
{
    const bool sparse = args->use_sparse_mixer != 0;
    const bool divided = mix != NULL ? args->normalize_routing_weights != 0
                                     : (normalized || args->normalize_routing_weights);
    float sum = 0;
    memset(c->taken, 0, (size_t)c->experts);
    if (sparse)
        memcpy(c->values, logits, (size_t)c->experts * sizeof *logits);
    else
        mixture_route_softmax(c->values, logits, c->experts);
    /* Logits of infinity choose, too, where other numbers weigh. */
    if (mix != NULL && isnan(c->values[0]))
        memcpy(c->values, logits, (size_t)c->experts * sizeof *logits);
    for (int64_t j = 0; j < s->k && attn_poll_work(8 * c->experts) == ATTNRUN_OK; j++) {
        const int64_t best = greatest(c, sparse);
        expert[j] = (int32_t)best;
        weight[j] = sparse ? sparse_weight(c, best) : c->values[best];
        if (mix != NULL)
            weight[j] = mix[best];
        c->taken[best] = 1;
        sum += weight[j];
    }
    for (int64_t j = 0; divided && !sparse && j < s->k; j++)
        weight[j] = sum != 0 ? weight[j] / sum : 0;
}

void attn_mixture_route(const struct mixture_args *args, const struct mixture_state *s,
                        bool normalized, const float *logits, const float *mix,
                        int64_t begin, int64_t end, int32_t *expert, float *weight,
                        void *scratch)
{
    struct choice c = { .values = scratch, .experts = s->experts };
    c.taken = (uint8_t *)(c.values + s->experts);
    for (int64_t t = begin; t < end && attn_poll_work(s->experts * 8) == ATTNRUN_OK; t++)
        route_token(args, s, normalized, logits + t * s->experts,
                    mix != NULL ? mix + t * s->experts : NULL, expert + t * s->k,
                    weight + t * s->k, &c);
}

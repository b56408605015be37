/* map_words.h - activations, gates and pools of operators over maps, in double. SiLU and
 * GELU of -inf are NaN, as in PyTorch. */
#ifndef ATTN_MAP_WORDS_H
#define ATTN_MAP_WORDS_H

#include "operator_harness.h"

static const char *const map_activations[] = { "none", "relu", "silu", "gelu",
                                               "hardswish" };
static const char *const map_gates[] = { "sigmoid", "hard_sigmoid" };

static inline double map_hard(double x) { return fmin(fmax(x / 6 + 0.5, 0), 1); }

static inline double map_activate(const char *word, double x)
{
    switch (word[0]) {
    case 'r':
        return isnan(x) ? x : fmax(x, 0);
    case 's':
        return x / (1 + exp(-x));
    case 'g':
        return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    case 'h':
        return x * map_hard(x);
    default:
        return x;
    }
}

static inline double map_gate(const char *word, double x)
{
    if (word[0] == 's' || isnan(x))
        return 1 / (1 + exp(-x));
    return map_hard(x);
}

/* Of n pixels: avg, max, lp or lse. */
static inline double map_pool(const char *word, const float *x, int64_t n)
{
    double sum = 0, squares = 0, max = -(double)INFINITY, exponentials = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        sum += v;
        squares += v * v;
        max = isnan(v) || isnan(max) ? (double)NAN : fmax(max, v);
    }
    for (int64_t i = 0; i < n; i++)
        exponentials += exp((double)x[i] - max);
    if (strcmp(word, "avg") == 0)
        return sum / (double)n;
    if (strcmp(word, "max") == 0)
        return max;
    return strcmp(word, "lp") == 0 ? sqrt(squares) : max + log(exponentials);
}

#endif

/* performer.h - what PerformerAttention (performer_attention.c) and its features
 * (performer_features.c) share: the kinds of features, their constants, and the maxima of
 * heads. */
#ifndef ATTN_PERFORMER_H
#define ATTN_PERFORMER_H

#include "../core/feature_attention.h"

struct performer_args {
    struct attn_heads_args heads;
    int32_t features, kernel_fn, denominator;
    int64_t normalize_inputs, feature_ratio, stabilizer, mask_in_max;
    float feature_epsilon, kernel_epsilon, denominator_epsilon;
};
enum { PERFORMER_POS, PERFORMER_HYP, PERFORMER_TRIG, PERFORMER_GENERALIZED };
enum { PERFORMER_MAX = 1, PERFORMER_VALUES = 2 }; /* of a sum: c so far, sums of values */
enum { PERFORMER_TILE = 256 };

struct performer_state {
    struct attn_feature_plan plan;
    int64_t rows;        /* M; 0: no projection */
    int64_t projections; /* 1, or one for each key head */
    int64_t panel_floats, gemm_floats;
    int64_t q_max_at, k_max_at, weights_at, panels_at; /* slots of shared memory */
    bool one_pass;                                     /* c is the largest u so far */
    bool extremes;                                     /* phase 0 finds c */
    float x_scale;      /* of u: sqrt(scale), in units of log 2 where 2^u is taken */
    float norm_scale;   /* n = norm_scale |x|^2, in the same units */
    float keys_epsilon; /* add_keys: what z begins with */
};

/* The argument of the callbacks. Shared memory holds c of query heads and of key heads,
 * W, and W packed. */
struct performer {
    const struct performer_args *args;
    const struct performer_state *state;
    float *q_max, *k_max, *weights, *panels;
};

extern const struct attn_feature_callbacks attn_performer_projected, attn_performer_plain;

/* Places them in shared memory, *bytes of which are taken; finds them again. */
bool attn_performer_place(struct performer_state *s, int64_t *bytes);
struct performer attn_performer_open(const attnrun_step *step, const attnrun_work *work);
/* Runs a task of phase 0: W in units of the exponent, then the maximum of each head. `w`:
 * the projection as given, or NULL. */
attn_status attn_performer_prepare(const struct attn_feature_call *c, const float *w,
                                   int64_t task);

#endif

/* feature_attention.h - attention by features instead of a softmax. Its time is linear in
 * the number of tokens. The operator computes rows of features f(q) and f(k) of F
 * numbers:
 *
 *   S = sum over j of f(k_j)' v_j, (F, v_dim);   z = sum over j of f(k_j), (F)
 *   y_i = scale f(q_i) S / g(f(q_i) z)
 *
 * The sums are over all keys, or, causal, over j <= i + kv_len - q_len. A query that sees no key
 * gives zeros, where a mask or its position hides all; where there is none, 0 / g(0). Keys come in
 * tiles, so their features never exist all at once. The causal form takes chunks of 64 queries: S
 * and z hold what comes before a chunk, and a 64 x 64 triangle of scores covers the chunk itself.
 *
 * With sizes.dims_first, the operands have their tokens last, and so have the features of
 * keys (`transposed`) and of queries: (F, n), in rows ATTN_TRANSPOSED_ROW floats apart.
 * Nothing is transposed; y is S' times the features of queries. Neither causal nor masked.
 *
 *   infer:  fill in struct attn_feature_plan; attn_feature_plan_make() states phases from
 *           `first_phase` on, scratch and shared memory
 *   run:    attn_feature_run() for those phases
 *
 * There are three phases: the sums of slices of the keys, S of each head, and the answers. Slices
 * follow from the shapes of one sample, and are added in order, so the bits of a sample do not
 * depend on the batch. They have at most 2^15 keys, and a sum begins anew with each of them and
 * with each tile, so that a million keys keep their digits. With many heads a task is a head, and
 * there is one phase.
 * Cost: O((q_len + kv_len) F v_dim) for each head; causal, 64 (F + v_dim) more a query.
 * Memory: F (v_dim + 1) floats for each key head and slice in shared memory (in scratch
 * where a task is a head), and the features of a tile in scratch. Source: Katharopoulos
 * 2020, arXiv:2006.16236. */
#ifndef ATTN_FEATURE_ATTENTION_H
#define ATTN_FEATURE_ATTENTION_H

#include "heads.h"

struct attn_feature_call;

enum {
    ATTN_TRANSPOSED_ROW = 256 + 16, /* rows 1 KiB apart would share a few lines of L1 */
    ATTN_FEATURE_CHUNK = 64,        /* causal: tokens of a triangle */
    ATTN_FEATURE_PANEL = 32,        /* rows of it that are computed together */
    ATTN_FEATURE_TOGETHER = 8       /* the most heads that are computed in turns */
};

/* The sums of a head in one memory: S, z, and the numbers that the operator keeps with
 * them. more[0] is the number of keys seen. tile_z: of the keys of a tile, for keys(). */
struct attn_feature_sum {
    float *s, *z, *more, *tile_z;
};

/* Tokens first … first + n - 1 of a query head or of a key head. */
struct attn_feature_tile {
    int64_t batch, head, first, n;
};

/* The callbacks of an operator. Their results may depend only on the tile and the sum. */
struct attn_feature_callbacks {
    /* Writes the features of a tile of keys: (n, F), or (F, n) where `transposed`, with
     * rows ATTN_TRANSPOSED_ROW floats apart. Adds them up in sum->tile_z. The features of
     * masked keys are 0. It may scale the other numbers in `sum`. */
    void (*keys)(const struct attn_feature_call *call, struct attn_feature_tile tile,
                 float *features, const struct attn_feature_sum *sum);
    /* Writes the features (n, F) of queries, in rows that are `query_row` floats apart;
     * dots[i] = features_i z. */
    void (*queries)(const struct attn_feature_call *call, struct attn_feature_tile tile,
                    float *features, const float *z, float *dots);
    /* Each may be NULL. begin() initializes an empty sum of zeros. combine() adds what
     * `from` holds besides plain sums to `into`; the caller adds the plain sums. end() is
     * called after the last key. */
    void (*begin)(const struct attn_feature_call *call, const struct attn_feature_sum *);
    void (*combine)(const struct attn_feature_call *call,
                    const struct attn_feature_sum *into,
                    const struct attn_feature_sum *from);
    void (*end)(const struct attn_feature_call *call, const struct attn_feature_sum *);
};

enum attn_feature_denominator {
    ATTN_DENOMINATOR_NONE,  /* 1 */
    ATTN_DENOMINATOR_ADD,   /* R + epsilon */
    ATTN_DENOMINATOR_CLAMP, /* max(R, epsilon) */
    ATTN_DENOMINATOR_GUARD  /* R + 2 epsilon where |R| <= epsilon */
};

struct attn_feature_plan {
    struct attn_sizes sizes;
    const struct attn_feature_callbacks *callbacks;
    int64_t features, more;  /* F; floats of `more`, at least 1 */
    int64_t tile;            /* keys of a tile: a multiple of 64, at most 256 */
    bool transposed, masked; /* masked: there is a mask of keys */
    int32_t denominator;
    float epsilon, scale, z_begin; /* z_begin: z of no key, causal */
    int first_phase;
    int64_t rule_gemm; /* floats of `gemm` that the callbacks need, or 0 */
    double token_cost; /* nanoseconds to make the features of a token */
    /* By attn_feature_plan_make(): */
    int64_t query_row;                    /* from the features of a query to the next */
    int64_t chunk;                        /* queries and, causal, keys at one time */
    int64_t slices, slice, blocks, block; /* of keys; of queries in a head */
    int64_t sum_floats, panel_floats, shared_offset, features_floats, values_floats;
    int64_t together; /* heads that are computed in turns */
    bool whole;       /* a task is a key head */
};

struct attn_feature_operands {
    const float *q, *k, *v;
    const uint8_t *keep;           /* (batch, kv_len), or NULL */
    const float *past_kv, *past_z; /* both or none */
    float *y;                      /* or NULL */
    float *present_kv, *present_z; /* or NULL */
};

/* The state of one call of run(). */
struct attn_feature_call {
    const struct attn_feature_plan *plan;
    const struct attn_kernels *kernels;
    const struct attn_feature_operands *o;
    const void *rule_arg;
    /* Parts of the worker's scratch: */
    float *features, *queries, *dots, *tile_z, *scores, *column, *packed, *gemm, *values,
        *sum, *rule_scratch;
    const attnrun_work *work;
};

/* Plans the phases. `rule_floats`: floats of scratch for the callbacks. E_LIMIT where
 * sizes overflow. */
attn_status attn_feature_plan_make(attnrun_step *step, struct attn_feature_plan *plan,
                                   int64_t rule_floats);
/* Opens a call with its scratch, for phases of the operator's own. */
struct attn_feature_call attn_feature_open(const struct attn_feature_plan *plan,
                                           const struct attn_kernels *kernels,
                                           const struct attn_feature_operands *o,
                                           const void *rule_arg,
                                           const attnrun_work *work);
/* Runs the tasks of `work`, whose phase is first_phase or later. E_CANCELLED. */
attn_status attn_feature_run(const struct attn_feature_plan *plan,
                             const struct attn_kernels *kernels,
                             const struct attn_feature_operands *o, const void *rule_arg,
                             const attnrun_work *work);

/* Multiplies column j of `rows` rows of x, j < n, by factors[j]. */
void attn_feature_scale_columns(const struct attn_feature_call *call, float *x,
                                int64_t row, int64_t rows, int64_t n,
                                const float *factors);

/* The first row of a tile. */
static inline const float *attn_tile_rows(const float *x,
                                          const struct attn_heads *strides,
                                          struct attn_feature_tile t)
{
    return x + t.batch * strides->batch + t.head * strides->head + t.first * strides->row;
}
/* The values of a tile of keys, *row floats apart, with zeros for those that are masked. */
const float *attn_tile_values(const struct attn_feature_call *call,
                              struct attn_feature_tile t, int64_t *row);
/* The mask of a tile of keys, or NULL. */
static inline const uint8_t *attn_tile_keep(const struct attn_feature_call *call,
                                            struct attn_feature_tile t)
{
    return call->o->keep == NULL
               ? NULL
               : call->o->keep + t.batch * call->plan->sizes.kv_len + t.first;
}
/* The number of keys of a tile that count. */
float attn_tile_count(const struct attn_feature_call *call, struct attn_feature_tile t);
/* The number of masked keys before the first one of a tile that is not. */
int64_t attn_tile_hidden(const struct attn_feature_call *call,
                         struct attn_feature_tile t);
/* 1 or 0 for each key of a tile, in `factors`; NULL where all keys count. */
float *attn_tile_keep_factors(const struct attn_feature_call *call,
                              struct attn_feature_tile t, float *factors);

#endif

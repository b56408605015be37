/* synthetic.h - what the checks (synthetic_attention.c) and the arithmetic
 * (synthetic_run.c) of SyntheticAttention share.
 *
 * The components that are products (dot, dense, factorized_random) become one product:
 * their queries and keys are put side by side, and the coefficient of each component is
 * multiplied into its queries. The other components are added to the scores of a tile. */
#ifndef ATTN_SYNTHETIC_H
#define ATTN_SYNTHETIC_H

#include "../core/heads.h"
#include "../core/stream.h"

enum {
    SYNTHETIC_V,
    SYNTHETIC_Q,
    SYNTHETIC_K,
    SYNTHETIC_HID,
    SYNTHETIC_W2,
    SYNTHETIC_B2,
    SYNTHETIC_A,
    SYNTHETIC_B,
    SYNTHETIC_R,
    SYNTHETIC_R1,
    SYNTHETIC_R2,
    SYNTHETIC_ALPHA,
    SYNTHETIC_KEY_MASK
};

/* The kinds of components; products come first. */
enum synthetic_kind {
    SYNTHETIC_DOT,
    SYNTHETIC_DENSE,
    SYNTHETIC_FACTORS, /* factorized_random */
    SYNTHETIC_RANDOM,
    SYNTHETIC_OUTER, /* factorized_dense */
    SYNTHETIC_KINDS,
    SYNTHETIC_PRODUCTS = SYNTHETIC_RANDOM
};

struct synthetic_args {
    struct attn_heads_args heads;
    attnrun_strings components;
    int64_t tile_a, tile_b; /* 0: tile, 1: repeat */
    int64_t normalize;
};

/* Queries (q_len, dim) and keys (kv_len, dim) of a sample and head. A stride of 0 means
 * that samples or heads share them. The elements of a query are dense. */
struct synthetic_product {
    int q_in, k_in; /* inputs */
    int64_t dim;    /* 0: is no component */
    struct attn_heads q, k;
    int64_t k_col; /* along a key */
};

/* A factor of factorized_dense: key j uses element index(j) of n. */
struct synthetic_factor {
    struct attn_heads x;
    int64_t n;
    int64_t repeat; /* j / repeat; 0: j mod n */
};

struct synthetic_state {
    struct attn_sizes sizes;
    unsigned kinds; /* bit: is a component */
    struct synthetic_product products[SYNTHETIC_PRODUCTS];
    int64_t inner; /* sum of their dims */
    bool joined;   /* their keys are put together tile by tile */
    int64_t b2_head, r_head, r_row;
    struct synthetic_factor a, b;
    /* By attn_synthetic_plan(): */
    int64_t samples, groups; /* samples of a task: several where they share the weights */
    int64_t block, blocks;   /* queries of a task */
    int64_t keys_at, values_at; /* bytes into the scratch */
    int64_t n_tasks, task_cost, scratch_bytes;
};

/* The kind of component m; -1 where its name is unknown. */
int attn_synthetic_kind(const struct synthetic_args *args, int64_t m);
attn_status attn_synthetic_plan(const attnrun_step *step, struct synthetic_state *s);
attn_status attn_synthetic_run(const attnrun_step *step, const attnrun_work *work);

#endif

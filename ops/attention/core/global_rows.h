/* global_rows.h - global queries with projections of their own, which LongformerAttention
 * and com.microsoft LongformerAttention share. Where token i is global, row i of Y is,
 * head by head and over all keys,
 *
 *   softmax(scale (x_i Wq + bq) (X Wk + bk)') (X Wv + bv)
 *
 * With few global tokens (their number times the heads is at most the columns of X)
 * neither X Wk nor X Wv is formed, because q (X Wk)' = (q Wk') X' and P (X Wv) = (P X)
 * Wv. bk adds the same to all scores of a row and is dropped. With more global tokens
 * keys and values are computed a tile at a time, by each head for up to a block of its
 * global rows.
 * Cost: 4 globals heads n width FLOPs in the first form, 2 n width (dim + v_dim) heads
 * for each block of global rows in the second. Without global tokens there is no cost.
 * Scratch: 64 rows of 2 width, or a block of the second kind. Source: Beltagy 2020,
 * arXiv:2004.05150. */
#ifndef ATTN_GLOBAL_ROWS_H
#define ATTN_GLOBAL_ROWS_H

#include "window.h"

struct attn_global_rows {
    struct attn_sizes s;
    int64_t width;      /* of X */
    int64_t wq, wk, wv; /* floats from one row of a weight to the next */
    /* By attn_global_rows_plan(): */
    int64_t block, blocks, per_batch, n_tasks, task_cost, scratch_bytes;
    int64_t gemm_at, x_at, projected_at, k_at, v_at, keep_at; /* slots of scratch */
};

struct attn_global_rows_operands {
    const float *x;            /* (batch, kv_len, width) */
    const float *wq, *wk, *wv; /* (width, heads * dim), … v_dim */
    const float *bq, *bv;      /* (heads * dim), (heads * v_dim), or NULL */
    const uint8_t *key_mask;
    struct attn_window_lists lists;
    float *y;
};

attn_status attn_global_rows_plan(const attnrun_step *step, struct attn_global_rows *g);
attn_status attn_global_rows_run(const struct attn_global_rows *g,
                                 const struct attn_kernels *kernels,
                                 const struct attn_global_rows_operands *o, int64_t task,
                                 const attnrun_work *work);

#endif

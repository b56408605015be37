/* luong_local.h - LuongAttention whose queries see a window of keys around a centre.
 * luong_attention.c has the formula; luong_local.c computes it. */
#ifndef ATTN_LUONG_LOCAL_H
#define ATTN_LUONG_LOCAL_H

#include "additive.h"

struct attn_luong_local {
    int64_t batch, q_len, kv_len, units, v_dim;
    int64_t window, offset; /* keys on each side of the centre; the centre of query 0 */
    double sigma;           /* 0: no gaussian */
    bool before;            /* the gaussian multiplies scores, not weights */
    bool concat, masked;
    float scale;
    /* By attn_luong_local_plan(): */
    struct attn_additive additive;
    int64_t max; /* keys of a window */
    int64_t rows, blocks;
    int64_t scores_at, bell_at, gemm_at, additive_at; /* slots of scratch */
};

struct attn_luong_operands {
    const float *q, *k, *values, *v, *pos; /* pos NULL: centres are offset + i */
    const uint8_t *mask;
    float *y, *weights;
};

/* Phase 0 counts the keys of each sample where there is a mask; phase 1 computes the
 * attention. */
attn_status attn_luong_local_plan(attnrun_step *step, struct attn_luong_local *s);
attn_status attn_luong_local_run(const attnrun_step *step,
                                 const struct attn_luong_local *s,
                                 const struct attn_luong_operands *o,
                                 const attnrun_work *work);

#endif

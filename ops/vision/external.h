/* external.h - what infer, pack and run of ExternalAttention share. external_attention.c
 * has the formula. */
#ifndef ATTN_EXTERNAL_H
#define ATTN_EXTERNAL_H

#include "../../runtime/op.h"
#include "../tile.h"

struct attn_external_args {
    int64_t num_heads, nan_rows;
    float epsilon;
    int32_t post_activation;
};

enum { X, MK, MV, BV, IDENTITY };
enum { LOGITS, WORTH, VALUES };              /* phases */
enum { TILE = 128, ROWS = OP_PRODUCT_ROWS }; /* tokens; rows of a product */

struct attn_external {
    int64_t batch, n, heads, ch, slots, co;
    bool tokens; /* rank 3 */
    bool alone;  /* a task is a group: a head of a sample */
    int64_t groups, tiles, width;
    /* The memory of a group: logits (tiles, slots, width), largest (tiles, slots),
     * sums. */
    int64_t group_floats;
    int64_t transposed_floats, panel_floats, gemm_floats;
};

/* Where x is tokens x channels, mk' and mv' are right operands; constant ones are
 * packed. */
struct attn_external_packed {
    int64_t mk_bytes, mv_bytes; /* 0: read where it is. mk, then mv, head by head */
    int64_t reserved[6];
};

attn_status attn_external_run(const attnrun_step *step, const attnrun_work *work);

#endif

/* packed_qkv.h - operators of com.microsoft over packed QKV, which make query, key and
 * value by one product and then attend. Attention and QAttention share this file. The
 * args of their rows begin with struct attn_packed_qkv_args, and their state with struct
 * attn_packed_qkv.
 *
 *   infer:  attn_packed_qkv_infer(), then where step->concrete attn_gemm_plan() of
 *           `gemm`, the tasks of its own phases, and attn_packed_qkv_tasks()
 *   run:    the product into the shared memory, rows of `width` floats (query, key,
 *           value); attn_packed_qkv_run() for the phases from `phase` on
 *
 * The shared memory begins with `floats` floats, which are the projections. */
#ifndef ATTN_PACKED_QKV_H
#define ATTN_PACKED_QKV_H

#include "../../matmul/gemm.h"
#include "sdpa.h"

struct attn_packed_qkv_args {
    int64_t num_heads, unidirectional, do_rotary, past_present_share_buffer;
    float scale, mask_filter_value;
    attnrun_ints qkv_hidden_sizes; /* v NULL: a third of the columns each */
};
#define ATTN_PACKED_QKV_ATTRS(args)                                                      \
    ATTR_INT_REQUIRED(args, num_heads), ATTR_FLAG(args, unidirectional, 0),              \
        ATTR_FLAG(args, do_rotary, 0), ATTR_FLAG(args, past_present_share_buffer, 0),    \
        ATTR_FLOAT(args, scale, 0.0f), ATTR_FLOAT(args, mask_filter_value, -10000.0f)

enum { ATTN_PACKED_QKV_X, ATTN_PACKED_QKV_WEIGHTS, ATTN_PACKED_QKV_BIAS };
enum { ATTN_PACKED_QKV_Y, ATTN_PACKED_QKV_PRESENT };

/* The indexes of the inputs behind the first three; an operator without one of them has
 * ATTN_PACKED_QKV_NONE there. */
enum { ATTN_PACKED_QKV_NONE = 1 << 20 };
struct attn_packed_qkv_inputs {
    int mask, past, score_bias, past_len;
};

struct attn_packed_qkv {
    struct attn_gemm gemm; /* x by weights into dense rows */
    struct attn_sdpa core;
    struct attn_packed_qkv_inputs in;
    int64_t floats; /* of the shared memory */
    int64_t width;  /* of a row of the projections */
    int32_t phase;  /* the first one of attn_packed_qkv_run() */
};

/* Checks attributes and shapes, sets outputs, and fills step->state where concrete. */
attn_status attn_packed_qkv_infer(attnrun_step *step,
                                  const struct attn_packed_qkv_inputs *in);
/* Adds two phases from `phase` on, shared memory of `floats` floats, and scratch. */
void attn_packed_qkv_tasks(attnrun_step *step, int phase);
attn_status attn_packed_qkv_run(const attnrun_step *step, const attnrun_work *work);

#endif

/* heads.h - what the attention operators of domain attnrun share: queries, keys and
 * values in heads, their attributes, checks and strides.
 *
 * Q  f32 (batch, q_len, q_heads * dim)    or (batch, q_heads, q_len, dim)
 * K  f32 (batch, kv_len, kv_heads * dim)  or (batch, kv_heads, kv_len, dim)
 * V  f32 as K, with v_dim
 *
 * With ATTN_DIMS_FIRST, the tokens are the last axis: (batch, q_heads * dim, q_len) or
 * (batch, q_heads, dim, q_len), and so on.
 *
 * All three have the same rank. Rank 3 needs q_num_heads (kv_num_heads is the same by
 * default), and rank 4 must not have either. Query head h reads key head h / group. A
 * causal query i sees the keys j <= i + offset, where offset = kv_len - q_len.
 *
 *   args:   struct my_args { struct attn_heads_args heads; … };
 *   attrs:  { ATTN_HEADS_ATTRS(struct my_args), … ATTR_END }
 *   infer:  struct attn_qkv shape;
 *           TRY(attn_qkv_infer(step, &args->heads, Q, K, V, 0, &shape));
 *           TRY(attn_key_mask_check(step, KEY_MASK, shape.batch, shape.kv_len));
 *           TRY(attn_qkv_output(step, &shape, Y));
 *           if (!step->concrete) return ATTNRUN_OK;
 *           TRY(attn_qkv_sizes(step, &args->heads, &shape, &state->sizes)); … */
#ifndef ATTN_HEADS_H
#define ATTN_HEADS_H

#include "../../kernels/kernels.h"
#include "sdpa.h"

struct attn_heads_args {
    int64_t q_num_heads, kv_num_heads; /* OP_INT_ABSENT */
    int64_t is_causal;
    float scale; /* see attn_scale_given() */
};

/* The value of an absent scale, which means 1 / sqrt(dim): a NaN that no file writes. */
#define ATTN_SCALE_ABSENT __builtin_nanf("0x5ca1e")

#define ATTN_HEADS_ATTR(type, member, value)                                             \
    { .name = #member,                                                                   \
      .kind = ATTNRUN_ATTR_INT,                                                          \
      .offset = offsetof(type, heads.member),                                            \
      .int_default = (value) }
#define ATTN_HEADS_SCALE(type, value)                                                    \
    { .name = "scale",                                                                   \
      .kind = ATTNRUN_ATTR_FLOAT,                                                        \
      .offset = offsetof(type, heads.scale),                                             \
      .float_default = (value) }
/* The attribute rows, with the defaults of is_causal and scale. */
#define ATTN_HEADS_ATTRS_WITH(type, causal_default, scale_default)                       \
    ATTN_HEADS_ATTR(type, q_num_heads, OP_INT_ABSENT),                                   \
        ATTN_HEADS_ATTR(type, kv_num_heads, OP_INT_ABSENT),                              \
        ATTN_HEADS_ATTR(type, is_causal, causal_default),                                \
        ATTN_HEADS_SCALE(type, scale_default)
#define ATTN_HEADS_ATTRS(type) ATTN_HEADS_ATTRS_WITH(type, 0, ATTN_SCALE_ABSENT)
/* The attribute rows of an operator without is_causal: the attribute is refused by its
 * name. */
#define ATTN_HEADS_ATTRS_NOT_CAUSAL(type)                                                \
    ATTN_HEADS_ATTR(type, q_num_heads, OP_INT_ABSENT),                                   \
        ATTN_HEADS_ATTR(type, kv_num_heads, OP_INT_ABSENT),                              \
        ATTN_HEADS_SCALE(type, ATTN_SCALE_ABSENT)

enum {
    ATTN_SAME_LENGTH = 1, /* q_len == kv_len */
    ATTN_SAME_HEADS = 2,  /* q_heads == kv_heads */
    ATTN_DIMS_FIRST = 4   /* the tokens are the last axis */
};

/* The shapes as far as infer knows them. rank -1: the rank of none of the three is known,
 * and all dims are unknown. */
struct attn_qkv {
    int32_t rank, dtype;
    bool dims_first;
    attnrun_dim batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim;
};

/* The shapes as numbers, where step->concrete. Strides are those of dense operands. With
 * dims_first, the rows of tokens are 1 apart, and the numbers of a row as far as there
 * are tokens. */
struct attn_sizes {
    int64_t batch, q_len, kv_len, q_heads, kv_heads, dim, v_dim;
    int64_t group;  /* q_heads / kv_heads */
    int64_t offset; /* kv_len - q_len: query i is at position i + offset */
    float scale;
    bool causal, dims_first;
    struct attn_heads q, k, v, y;
};

/* Where head `head` begins, where heads count through all samples. */
static inline int64_t attn_head_at(const struct attn_heads *at, int64_t heads,
                                   int64_t head)
{
    return head / heads * at->batch + head % heads * at->head;
}

/* Whether the attribute scale is given. */
bool attn_scale_given(float scale);
/* Fails unless `value` is finite, and not 0 where `nonzero`. */
attn_status attn_need_finite(const attnrun_step *step, const char *attribute, float value,
                             bool nonzero);
/* Fails unless the number is finite and 0 or more. */
attn_status attn_need_not_negative(const attnrun_step *step, const char *attribute,
                                   float value);
/* Fails unless min <= value <= max. */
attn_status attn_need_int(const attnrun_step *step, const char *attribute, int64_t value,
                          int64_t min, int64_t max);
/* Fails unless the list has n numbers, all from 0 to `max`. */
attn_status attn_need_ints(const attnrun_step *step, const char *attribute,
                           attnrun_ints ints, int64_t n, int64_t max);
/* Fails with "its <what> is <found>, expected <expected>" where both are constants and
 * differ. */
attn_status attn_need_equal(const attnrun_step *step, int in, attnrun_dim found,
                            attnrun_dim expected, const char *what);

/* Checks the inputs q, k and v and the attributes, and fills in the known shapes. The
 * indexes of inputs may coincide, where keys are values. */
attn_status attn_qkv_infer(const attnrun_step *step, const struct attn_heads_args *args,
                           int q, int k, int v, unsigned flags, struct attn_qkv *shape);
/* Gives output `out` the layout of Q, with v_dim. */
attn_status attn_qkv_output(attnrun_step *step, const struct attn_qkv *shape, int out);
/* Fills in the sizes. E_LIMIT where a product of sizes overflows, or a length exceeds
 * 2^31 - 1. */
attn_status attn_qkv_sizes(const attnrun_step *step, const struct attn_heads_args *args,
                           const struct attn_qkv *shape, struct attn_sizes *sizes);
/* Fails unless input `in`, where given, is (batch, kv_len). The operator row checks its
 * dtype. */
attn_status attn_key_mask_check(const attnrun_step *step, int in, attnrun_dim batch,
                                attnrun_dim kv_len);

/* Rows of n tokens, *row floats apart, of which those that `keep` masks are zeros, whatever
 * they hold: x itself, where it masks none or is NULL, or copies in `room`. */
const float *attn_kept_rows(const float *x, int64_t *row, int64_t dim,
                            const uint8_t *keep, int64_t n, float *room);

/* The strides of heads of `dim` floats in dense tensors of rank 3 (batch, tokens, heads *
 * dim) or rank 4 (batch, heads, tokens, dim). */
struct attn_heads attn_heads_dense(int rank, int64_t heads, int64_t tokens, int64_t dim);

/* The number of tasks from `task` on and before `end` that are of one sample, at most
 * `max`. A task is a head; heads count through all samples. */
static inline int64_t attn_heads_interleaved(int64_t task, int64_t end, int64_t heads,
                                             int64_t max)
{
    const int64_t left = heads - task % heads;
    const int64_t n = end - task < left ? end - task : left;
    return n < max ? n : max;
}

#endif

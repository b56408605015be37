/* group_query.h - what the two files of com.microsoft GroupQueryAttention share:
 * attributes, operands and sizes, and the interface to group_query_cache.c, which fills
 * the caches and rotates the queries before the attention. */
#ifndef ATTN_GROUP_QUERY_H
#define ATTN_GROUP_QUERY_H

#include "../core/kv_cache.h"
#include "../core/quantized_cache.h"

struct gqa_args {
    int64_t num_heads, kv_num_heads, do_rotary, rotary_interleaved, local_window_size;
    int64_t smooth_softmax, causal, qk_output, sliding_window_cache, kv_cache_bit_width;
    int32_t k_quant_type, v_quant_type;
    float scale, softcap;
};
enum { Q, K, V, PAST_K, PAST_V, SEQLENS, TOTAL, COS, SIN, POSITIONS, SCORE_BIAS, SINK };
enum { K_SCALE = SINK + 1, V_SCALE, Q_NORM, K_NORM };
enum { Y, PRESENT_K, PRESENT_V, QK, MAX_HEADS = 1 << 16 };
enum { NO_QK, QK_BEFORE, QK_AFTER }; /* qk_output */
enum { NO_TYPE, PER_TENSOR, PER_CHANNEL };

struct gqa_state {
    struct attn_sdpa
        core; /* over present keys and values, rotated queries in shared memory */
    int64_t past, total, new_tokens, dim, half, positions;
    int64_t q_row, k_row, k_offset,
        v_offset;        /* floats per token of the inputs; packed offsets */
    int64_t k_at, v_at;  /* bytes into the shared memory */
    int32_t in_place[2]; /* the past is in present_key, present_value already */
    struct attn_quantized quantized; /* bits 0: the caches are floats */
    int64_t token_bytes;             /* of a head of a cache */
    int64_t room;                    /* keys that attention walks over */
    int64_t
        samples_at; /* sliding: bytes into the shared memory, see attn_gqa_samples() */
};

static inline bool gqa_slides(const attnrun_step *step)
{
    return ((const struct gqa_args *)step->args)->sliding_window_cache != 0;
}

static inline int32_t gqa_cache_dtype(const struct gqa_args *args)
{
    return args->kv_cache_bit_width == 8   ? ATTNRUN_I8
           : args->kv_cache_bit_width == 4 ? ATTNRUN_U8
                                           : ATTNRUN_F32;
}

/* Whether the attention reads keys or values from an output. */
static inline bool gqa_cache_is_out(const attnrun_step *step, int out)
{
    return op_has_out(step, out) && !gqa_slides(step);
}

/* The tensor of all keys or values (PRESENT_K, PRESENT_V) that the attention reads. */
attnrun_tensor attn_gqa_cache(const attnrun_step *step, int out, void *shared);
/* The scales (K_SCALE, V_SCALE) of key head h. */
const float *attn_gqa_scale(const attnrun_step *step, int in, int64_t h);
/* For each sample of a sliding cache: the number of keys that the attention reads, and
 * then the positions of the first ones. */
int64_t *attn_gqa_samples(const attnrun_step *step, void *shared);
/* In phase 0, before anything is written: the lengths of all samples, where the past is a state of
 * the context. A run that one of them ends leaves the state as it was. */
attn_status attn_gqa_check(const attnrun_step *step);
/* Runs task b * kv_heads + h: the caches of a head, and the queries that share it. */
attn_status attn_gqa_fill(const attnrun_step *step, int64_t task,
                          const attnrun_work *work);

#endif

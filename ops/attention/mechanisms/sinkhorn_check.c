/* sinkhorn_check.c - checks the attributes and the optional inputs of SinkhornAttention.
 * A message names the attribute or the input that does not fit. */
#include "sinkhorn.h"

enum { MAX_ITERS = 1000 };

attn_status attn_sinkhorn_check_args(const attnrun_step *step)
{
    const struct sinkhorn_args *args = step->args;
    const bool causal = args->heads.is_causal != 0;
    TRY(attn_need_int(step, "bucket_size", args->bucket_size, 1, INT32_MAX));
    if (args->kv_bucket_size != OP_INT_ABSENT)
        TRY(attn_need_int(step, "kv_bucket_size", args->kv_bucket_size, 1, INT32_MAX));
    TRY(attn_need_int(step, "top_buckets", args->top_buckets, 1, INT32_MAX));
    TRY(attn_need_int(step, "iters", args->iters, 0, MAX_ITERS));
    TRY(attn_need_int(step, "sortcut", args->sortcut, 0, INT32_MAX));
    TRY(attn_need_finite(step, "temperature", args->temperature, true));
    if (args->temperature < 0.0f)
        return op_fail(step, ATTNRUN_E_ATTR, "temperature is %g, expected more than 0",
                       (double)args->temperature);
    if (args->mode == SINKHORN_BALANCED && args->sortcut > 0)
        return op_fail(step, ATTNRUN_E_ATTR, "sortcut needs mode topk");
    if (!causal)
        return ATTNRUN_OK;
    if (args->mode == SINKHORN_BALANCED || args->sortcut > 0)
        return op_fail(step, ATTNRUN_E_ATTR, "is_causal needs mode topk without sortcut");
    if (args->kv_bucket_size != OP_INT_ABSENT &&
        args->kv_bucket_size != args->bucket_size)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "is_causal needs kv_bucket_size equal to bucket_size");
    if (!op_has_in(step, SINKHORN_NULL_K) || !op_has_in(step, SINKHORN_NULL_V))
        return op_fail(step, ATTNRUN_E_INPUT, "is_causal needs null_k and null_v");
    return ATTNRUN_OK;
}

attn_status attn_sinkhorn_check_operands(const attnrun_step *step,
                                         const struct attn_qkv *shape)
{
    const struct sinkhorn_args *args = step->args;
    for (int in = SINKHORN_LOGITS; in <= SINKHORN_GUMBEL; in++)
        if (op_has_in(step, in))
            TRY(op_need_rank(step, in, 4));
    for (int in = SINKHORN_NULL_K; in <= SINKHORN_NULL_V; in++)
        if (op_has_in(step, in)) {
            TRY(op_need_rank(step, in, 2));
            TRY(op_need_dim(step, in, 0, shape->q_heads, "the heads"));
            TRY(op_need_dim(step, in, 1,
                            in == SINKHORN_NULL_K ? shape->dim : shape->v_dim,
                            "the head size"));
        }
    if (args->sorted_values == SINKHORN_KEYS)
        TRY(attn_need_equal(step, SINKHORN_V, shape->v_dim, shape->dim,
                            "head size, of keys that are values,"));
    return attn_key_mask_check(step, SINKHORN_MASK, shape->batch, shape->kv_len);
}

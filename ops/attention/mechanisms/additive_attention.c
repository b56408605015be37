/* additive_attention.c - AdditiveAttention of Bahdanau:
 *
 *   s_ij = v . f(q_i + k_j + bias)      Y_i = sum over j of softmax_j(s_ij) values_j
 *
 * query      f32 (batch, q_len, units) or (batch, units), already projected
 * keys       f32 (batch, kv_len, units), already projected
 * v          f32 (units); the factor of a normalized form is already multiplied into it
 * bias       f32 (units), optional
 * values     f32 (batch, kv_len, v_dim); the keys by default
 * key_mask   b8 (batch, kv_len), optional: false masks a key; a query without any key
 *            gives zeros
 * Y          f32 (batch, q_len, v_dim), or (batch, v_dim) for queries of rank 2
 * weights    f32 (batch, q_len, kv_len), or (batch, kv_len); optional
 * activation f, tanh or relu
 *
 * Refused: other ranks, sizes that disagree, 0 units.
 * Cost: q_len kv_len units terms. A term of tanh is a product, a reciprocal and a sum
 * where the block has several queries and |q + bias| and |k| are at most 20 (see
 * additive.h); elsewhere it takes an exponential more. Scratch: a block of 64 queries and
 * a tile of keys, at most about 1 MiB for 512 units.
 * Source: Bahdanau 2014, arXiv:1409.0473. Compared with keras 3.15.1
 * layers.AdditiveAttention and d2l 1.0.3 AdditiveAttention. For a row without keys d2l
 * gives uniform weights; this operator gives zeros. */
#include "additive.h"

enum { QUERY, KEYS, V, BIAS, VALUES, KEY_MASK, ROWS = 64 };

struct additive_args {
    int32_t activation;
};

static const attnrun_attr_def additive_attrs[] = {
    ATTR_ENUM(struct additive_args, activation, "tanh|relu", ATTN_ADDITIVE_TANH),
    ATTR_END,
};

struct additive_state {
    struct attn_additive scores;
    struct attn_pooling pooling;
};

static attn_status additive_infer(attnrun_step *step)
{
    const struct additive_args *args = step->args;
    struct additive_state *s = step->state;
    const struct attn_single_head_inputs in = { QUERY, KEYS, VALUES, KEY_MASK, 2 };
    struct attn_single_head shape;
    TRY(attn_single_head_infer(step, &in, &shape));
    TRY(attn_single_head_vector(step, V, &shape));
    TRY(attn_single_head_vector(step, BIAS, &shape));
    TRY(attn_single_head_outputs(step, &shape));
    if (!step->concrete)
        return ATTNRUN_OK;
    attn_single_head_sizes(&shape, &s->pooling);
    return attn_additive_plan(step, &s->scores, args->activation, 1.0f, shape.units.value,
                              ROWS, &s->pooling);
}

static attn_status additive_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct additive_state *s = step->state;
    const int values = op_has_in(step, VALUES) ? VALUES : KEYS;
    const struct attn_additive_operands o = {
        .q = step->x[QUERY].data,
        .k = step->x[KEYS].data,
        .values = step->x[values].data,
        .bias = op_in_data(step, BIAS),
        .v = step->x[V].data,
        .mask = op_in_data(step, KEY_MASK),
        .y = step->y[0].data,
        .weights = op_has_out(step, 1) ? step->y[1].data : NULL,
    };
    return attn_additive_run(&s->scores, &s->pooling, step->kernels, &o, work);
}

const attnrun_op_def op_additive_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "AdditiveAttention",
    .since = 1,
    .inputs = "query:T keys:T v:T bias:T? values:T? key_mask:b8?",
    .outputs = "Y:T weights:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct additive_args),
    .state_bytes = sizeof(struct additive_state),
    .attrs = additive_attrs,
    .infer = additive_infer,
    .run = additive_run,
    .cost = "O(n_q n_k units), scratch O(tile units)",
    .source = "Bahdanau 2014, arXiv:1409.0473",
};

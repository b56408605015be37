/* linear_attention.h - what the files of LinearAttention share: linear_attention.c has
 * the operator rows, the shapes and the plan, and linear_memory.c the recurrence on S. */
#ifndef ATTN_LINEAR_ATTENTION_H
#define ATTN_LINEAR_ATTENTION_H

#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"

struct linear_args {
    int64_t q_num_heads, kv_num_heads;
    float scale; /* 0: 1 / sqrt(d_k) */
    int64_t state_window;
    int32_t update_rule;
};

enum { LINEAR_QUERY, LINEAR_KEY, LINEAR_VALUE, LINEAR_PAST, LINEAR_DECAY, LINEAR_BETA };
enum { RULE_LINEAR, RULE_GATED, RULE_DELTA, RULE_GATED_DELTA };
enum {
    LINEAR_BLOCK = 64, /* floats of a row of S in scratch: columns of a task */
    LINEAR_VECTOR = 16,
    LINEAR_TOGETHER = 8, /* the most tasks that are computed in turns, … */
    LINEAR_CHUNK = 64    /* … tokens of one before those of the next */
};

struct linear_state {
    int64_t batch, tokens, d_k, d_v;
    int64_t group;         /* query heads that read one S */
    int64_t key_heads;     /* each writes to kv_num_heads / key_heads of S */
    int64_t answer_heads;  /* the larger of q_num_heads and kv_num_heads */
    int64_t block, blocks; /* of columns of S */
    int64_t together;      /* tasks that are computed in turns */
    int64_t slots;         /* states in past and present */
    int64_t state_floats;  /* of one of them: all heads of all samples */
    bool per_key;          /* a decay for each row of S */
    bool past_in_place, present_in_place; /* S is read and written where it is */
    bool v_major;                         /* past and present are (…, d_v, d_k) */
    /* Sample b has the tokens starts[b] … starts[b + 1] - 1. NULL: all samples have the
     * same number of tokens. */
    const int32_t *starts;
    float scale;
};

static inline bool linear_gated(const struct linear_args *args)
{
    return args->update_rule == RULE_GATED || args->update_rule == RULE_GATED_DELTA;
}

static inline bool linear_delta(const struct linear_args *args)
{
    return args->update_rule >= RULE_DELTA;
}

/* The floats of scratch: S of the tasks that are computed in turns, and rows of tokens.
 * False: there are too many. */
static inline bool linear_scratch(const struct linear_state *state, int64_t *floats)
{
    /* keys, what they become and decays of four tokens, queries of two; values and
     * answers of two, and what two keys find */
    const int64_t rows = 14 * (state->d_k + LINEAR_VECTOR) + 6 * LINEAR_BLOCK;
    return ck_mul(state->d_k, state->together * LINEAR_BLOCK, floats) &&
           ck_add(*floats, rows, floats);
}

/* Fills in the rest of the state, except the operands that are read in place. The caller
 * has set batch, tokens, d_k, d_v, slots, per_key, and the heads of args. */
attn_status attn_linear_plan(attnrun_step *step, int phase,
                             const struct linear_args *args, struct linear_state *state);
attn_status attn_linear_run(const attnrun_step *step, const attnrun_work *work);

#endif

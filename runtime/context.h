/* context.h - the context object, and what its calls do: context_api.c calls these once
 * it knows that no other thread is in the context. */
#ifndef ATTN_CONTEXT_H
#define ATTN_CONTEXT_H

#include "frame.h"
#include "model.h"
#include "ragged.h"
#include "selection.h"

struct attnrun_context {
    struct attn_model *model;
    struct attn_frame *frame;
    struct attn_control control;
    attnrun_run_options options; /* of the run */
    attnrun_tensor *inputs;      /* as set; kind ABSENT: not set */
    attnrun_tensor *bound;       /* of the run: inputs, and states in their place */
    attnrun_tensor *outputs;     /* the caller's memory; kind ABSENT: the context's own */
    struct attn_selection selection;
    struct attn_heap copies;
    struct attn_ragged_lists ragged;
    struct attn_heap_list owned; /* copies of inputs that outputs may show */
    int32_t n_inputs, n_outputs;
    int64_t sequence;    /* whose states are in place; those of others are parked */
    int64_t timeout_us;  /* of calls without a time of their own; 0: none */
    int32_t busy;        /* a call is under way */
    bool shows_strings;  /* an output or a watched value may hold strings */
    bool shows_elements; /* one of them may be a sequence or an optional */
};

/* What a context takes besides its frame. */
int64_t attn_context_own_bytes(const struct attn_graph *graph);
/* From now on, runs show a value of that type: an output, or one that is watched. */
void attn_context_note_shown(struct attnrun_context *context, const attnrun_type *type);
/* Whether a tensor may be input `index`; of the context only the model is looked at. */
attn_status attn_context_check_input(const struct attnrun_context *context, int32_t index,
                                     const attnrun_tensor *tensor);
attn_status attn_context_set_input(struct attnrun_context *context, int32_t index,
                                   const attnrun_tensor *tensor);
attn_status attn_context_set_output(struct attnrun_context *context, int32_t index,
                                    const attnrun_tensor *tensor);
attn_status attn_context_choose_outputs(struct attnrun_context *context,
                                        const int32_t *indices, int32_t n);
attn_status attn_context_watch(struct attnrun_context *context, const char *name);
attn_status attn_context_value(const struct attnrun_context *context, const char *name,
                               attnrun_tensor *tensor);
/* E_USAGE where the model has no such pair of a state. */
attn_status attn_context_check_pair(const struct attn_model *model, int32_t input,
                                    int32_t output, int64_t capacity_bytes);
attn_status attn_context_add_state(struct attnrun_context *context, int32_t input,
                                   int32_t output, int64_t capacity_bytes);
attn_status attn_context_truncate_state(struct attnrun_context *context, int32_t input,
                                        int64_t length);
void attn_context_reset_states(struct attnrun_context *context);
attn_status attn_context_reorder_states(struct attnrun_context *context, int32_t input,
                                        int32_t axis, const int64_t *rows, int64_t n);
attn_status attn_context_copy_states(struct attnrun_context *to,
                                     const struct attnrun_context *from,
                                     int64_t sequence);
attn_status attn_context_select_sequence(struct attnrun_context *context,
                                         int64_t sequence);
attn_status attn_context_drop_sequence(struct attnrun_context *context, int64_t sequence);
/* Binds states that the plan appends in place: their memory, with room for what the run adds. */
attn_status attn_context_extend_states(struct attnrun_context *context,
                                       const struct attn_plan *plan);
/* Room in the states for a run of that plan. */
attn_status attn_context_reserve_states(struct attnrun_context *context,
                                        const struct attn_plan *plan);
/* What the run made becomes the states: all of them or, where there is no memory, none. A run that
 * failed can be tried again. */
attn_status attn_context_keep_states(struct attnrun_context *context);
/* After a run of that plan, which may have failed: then states that a step has written over are
 * lost. */
void attn_context_end_states(struct attnrun_context *context,
                             const struct attn_plan *plan, bool failed);
attn_status attn_context_run(struct attnrun_context *context,
                             const attnrun_run_options *options);
attn_status attn_context_plan(struct attnrun_context *context,
                              const attnrun_tensor *inputs, attnrun_plan_info *info);
attn_status attn_context_reserve(struct attnrun_context *context,
                                 const attnrun_tensor *inputs);
attn_status attn_context_plan_block(struct attnrun_context *context, int32_t index,
                                    attnrun_plan_block *block);
attn_status attn_context_plan_step(struct attnrun_context *context, int32_t index,
                                   attnrun_plan_step *step);
attn_status attn_context_set_max_plans(struct attnrun_context *context, int32_t n);
attn_status attn_context_set_arena(struct attnrun_context *context, void *memory,
                                   int64_t bytes);
attn_status attn_context_plan_output(struct attnrun_context *context, int32_t index,
                                     attnrun_tensor *tensor);
attn_status attn_context_memory(struct attnrun_context *context,
                                attnrun_memory_info *info);
void attn_context_trim(struct attnrun_context *context);

#endif

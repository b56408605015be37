/* state.h - tensors that a context carries from one run to the next: an output of the model
 * that is an input of the next run, such as a cache of keys or values. */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "alloc.h"
#include "tensor.h"

struct attn_state {
    struct attn_state *next;
    int32_t input, output; /* of the model */
    int32_t axis;          /* on which runs make it longer; -1: not known */
    attnrun_tensor tensor; /* kind ABSENT: nothing kept yet */
    void *memory;
    int64_t capacity_bytes;
};

/* Adds a pair to *list. */
attn_status attn_state_add(struct attn_memory *memory, struct attn_state **list,
                           int32_t input, int32_t output, int64_t capacity_bytes);
/* Room for a run's output that is copied; the memory doubles where it is too small. What
 * the state holds stays. */
attn_status attn_state_reserve(struct attn_memory *memory, struct attn_state *state,
                               const attnrun_tensor *made);
/* Keeps a copy of an output that there is room for. */
void attn_state_keep(struct attn_state *state, const attnrun_tensor *made);
/* Finds the axis by what a run made of `past`. */
void attn_state_note_axis(struct attn_state *state, const attnrun_tensor *past,
                          const attnrun_tensor *made);
/* For a run that appends in place: *view becomes `past` in the state's memory, with room
 * for `made`, which is longer along `axis`. `past` is what the state holds, or what the
 * caller gave, which is copied; or ABSENT: then there is only made room. What the state
 * holds stays; *view ends with the run. */
attn_status attn_state_extend(struct attn_memory *memory, struct attn_state *state,
                              int32_t axis, const attnrun_tensor *past,
                              const attnrun_tensor *made, attnrun_tensor *view);
/* Keeps an output that was written in place. */
static inline void attn_state_keep_extended(struct attn_state *state,
                                            const attnrun_tensor *made)
{
    state->tensor = *made;
}
void attn_state_free(struct attn_memory *memory, struct attn_state *list);

#endif

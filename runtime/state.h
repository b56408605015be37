/* state.h - tensors that a context carries from one run to the next. */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "alloc.h"
#include "tensor.h"

struct attn_state {
    struct attn_state *next;
    int32_t input, output; /* of the model */
    attnrun_tensor tensor; /* kind ABSENT: nothing kept yet */
    void *memory;
    int64_t capacity_bytes;
};

/* Adds a pair to *list. */
attn_status attn_state_add(struct attn_memory *memory, struct attn_state **list,
                           int32_t input, int32_t output, int64_t capacity_bytes);
/* Room for a run's output; the memory grows by half where it is too small. What the state
 * holds stays. */
attn_status attn_state_reserve(struct attn_memory *memory, struct attn_state *state,
                               const attnrun_tensor *made);
/* Keeps a copy of an output that there is room for. */
void attn_state_keep(struct attn_state *state, const attnrun_tensor *made);
void attn_state_free(struct attn_memory *memory, struct attn_state *list);

#endif

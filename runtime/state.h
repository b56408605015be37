/* state.h - tensors that a context carries from one run to the next: an output of the model
 * that is an input of the next run, such as a cache of keys or values.
 *
 * In: pairs of an output and an input, and what each run made. Out: the input of the next run. An
 * output that is longer than its input along one axis is appended in place, in memory with room
 * behind that axis; other outputs are copied. Sequences that are not current are parked.
 * Cost: a copy of the tensor where it is not appended in place or its memory must grow. */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "alloc.h"
#include "tensor.h"

/* What a state holds of a sequence that is not the context's current one. */
struct attn_parked {
    struct attn_parked *next;
    int64_t sequence;
    int32_t axis;
    attnrun_tensor tensor;
    void *memory;
    int64_t capacity_bytes;
};

struct attn_state {
    struct attn_state *next;
    int32_t input, output; /* of the model */
    int32_t axis;          /* on which runs make it longer; -1: not known */
    attnrun_tensor tensor; /* kind ABSENT: nothing kept yet */
    void *memory;
    int64_t capacity_bytes;
    struct attn_parked *parked;
};

/* What a copy of a state is made of: a state, the current one or parked, and some of its rows
 * along one axis, in this order. */
struct attn_state_rows {
    const attnrun_tensor *tensor;
    int64_t capacity_bytes;
    int32_t append_axis; /* of the state */
    int32_t axis;        /* of the rows; -1: all of it */
    const int64_t *rows;
    int64_t n;
};

/* A copy in new memory, with as much room behind it for each row: only the tensor, the memory,
 * the capacity and the axis of *made are set. */
attn_status attn_state_copy(struct attn_memory *memory,
                            const struct attn_state_rows *from, struct attn_parked *made);
/* The copy takes the place of what the state holds. */
void attn_state_put(struct attn_memory *memory, struct attn_state *state,
                    const struct attn_parked *made);
/* Parks what the state holds as sequence `from` and takes up sequence `to`, which is empty
 * where nothing of it is parked. *spare comes from ATTN_MEM_PLAN and holds the former. */
void attn_state_select(struct attn_memory *memory, struct attn_state *state, int64_t from,
                       int64_t to, struct attn_parked *spare);
/* Frees what is parked as `sequence`. */
void attn_state_drop(struct attn_memory *memory, struct attn_state *state,
                     int64_t sequence);
const struct attn_parked *attn_state_parked(const struct attn_state *state,
                                            int64_t sequence);

/* Adds a pair to *list. */
attn_status attn_state_add(struct attn_memory *memory, struct attn_state **list,
                           int32_t input, int32_t output, int64_t capacity_bytes);
/* Room for a run's output that is copied; the memory doubles where it is too small and the budget
 * has `others` bytes beside that. What the state holds stays. */
attn_status attn_state_reserve(struct attn_memory *memory, struct attn_state *state,
                               const attnrun_tensor *made, int64_t others);
/* Keeps a copy of an output that there is room for. */
void attn_state_keep(struct attn_state *state, const attnrun_tensor *made);
/* Finds the axis by what a run made of `past`. */
void attn_state_note_axis(struct attn_state *state, const attnrun_tensor *past,
                          const attnrun_tensor *made);
/* For a run that appends in place: *view becomes `past` in the state's memory, with room
 * for `made`, which is longer along `axis`, and for twice as much where the budget has `others`
 * bytes beside that. `past` is what the state holds, or what the
 * caller gave, which is copied; or ABSENT: then there is only made room. What the state
 * holds stays; *view ends with the run. */
attn_status attn_state_extend(struct attn_memory *memory, struct attn_state *state,
                              int32_t axis, const attnrun_tensor *past,
                              const attnrun_tensor *made, int64_t others,
                              attnrun_tensor *view);
/* Keeps an output that was written in place. */
static inline void attn_state_keep_extended(struct attn_state *state,
                                            const attnrun_tensor *made)
{
    state->tensor = *made;
}
void attn_state_free(struct attn_memory *memory, struct attn_state *list);

#endif

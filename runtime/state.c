/* state.c - tensors that a context carries from one run to the next. What is appended in
 * place lies in its memory with room behind one axis: the dims before the axis step over
 * as many places as the memory holds, however many of them are filled. What other sequences
 * of the context hold is parked beside it. */
#include "state.h"

#include <string.h>

/* As much as is wanted where the budget has it beside `others`, else what is needed. */
static int64_t affordable(struct attn_memory *memory, int64_t needed, int64_t wanted,
                          int64_t others)
{
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    const uint64_t left = counts.max_bytes - counts.used_bytes;
    if (counts.used_bytes > counts.max_bytes || (uint64_t)others > left ||
        (uint64_t)wanted > left - (uint64_t)others)
        return needed;
    return wanted;
}

/* New memory in the place of the state's, with `tensor` copied to where `view`, which has
 * its place in the new memory yet to be set, says. */
static attn_status move(struct attn_memory *memory, struct attn_state *state,
                        int64_t capacity, const attnrun_tensor *tensor,
                        attnrun_tensor *view)
{
    void *made = attn_alloc(memory, ATTN_MEM_HEAP, capacity);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    view->data = made;
    if (tensor->kind == ATTNRUN_TENSOR)
        tensor_copy(view, tensor);
    if (state->tensor.kind != ATTNRUN_ABSENT)
        state->tensor = *view;
    attn_free(memory, ATTN_MEM_HEAP, state->memory, state->capacity_bytes);
    state->memory = made;
    state->capacity_bytes = capacity;
    return ATTNRUN_OK;
}

attn_status attn_state_add(struct attn_memory *memory, struct attn_state **list,
                           int32_t input, int32_t output, int64_t capacity_bytes)
{
    struct attn_state *state =
        attn_alloc_zeroed(memory, ATTN_MEM_PLAN, (int64_t)sizeof *state);
    if (state == NULL)
        return ATTNRUN_E_MEMORY;
    state->input = input;
    state->output = output;
    state->axis = -1;
    state->next = *list;
    state->memory = attn_alloc(memory, ATTN_MEM_HEAP, capacity_bytes);
    if (state->memory == NULL) {
        attn_free(memory, ATTN_MEM_PLAN, state, (int64_t)sizeof *state);
        return ATTNRUN_E_MEMORY;
    }
    state->capacity_bytes = capacity_bytes;
    *list = state;
    return ATTNRUN_OK;
}

void attn_state_note_axis(struct attn_state *state, const attnrun_tensor *past,
                          const attnrun_tensor *made)
{
    int32_t axis = -1, n = past->rank == made->rank ? 0 : 2;
    for (int32_t i = 0; i < made->rank && n < 2; i++)
        if (past->dims[i] != made->dims[i]) {
            axis = i;
            n++;
        }
    if (n > 0) /* else it stays as it was */
        state->axis = n == 1 ? axis : -1;
}

/* ---- copied ---- */

attn_status attn_state_reserve(struct attn_memory *memory, struct attn_state *state,
                               const attnrun_tensor *made, int64_t others)
{
    if (made->kind != ATTNRUN_TENSOR || made->dtype == ATTNRUN_STRING)
        return attn_fail(ATTNRUN_E_USAGE, "a state must be a tensor of numbers");
    int64_t bytes = tensor_bytes(made), twice;
    if (bytes <= state->capacity_bytes)
        return ATTNRUN_OK;
    if (!ck_mul(state->capacity_bytes, 2, &twice) || twice < bytes)
        twice = bytes;
    attnrun_tensor view = state->tensor;
    tensor_set_dense(&view);
    return move(memory, state, affordable(memory, bytes, twice, others), &state->tensor,
                &view);
}

void attn_state_keep(struct attn_state *state, const attnrun_tensor *made)
{
    state->tensor = *made;
    tensor_set_dense(&state->tensor);
    state->tensor.data = state->memory;
    tensor_copy(&state->tensor, made);
}

/* ---- appended in place ---- */

/* Strides of `t` in memory of `capacity` bytes with the room behind `axis`. They do not depend on
 * how much is filled: what the memory holds may be longer than `t`. */
static void state_lay_out(attnrun_tensor *t, int32_t axis, int64_t capacity)
{
    int64_t before = tensor_dims_product(t, 0, axis);
    tensor_set_dense(t);
    const int64_t row = t->strides[axis];
    if (before <= 1 || row == 0)
        return;
    int64_t stride = capacity / before / row * row;
    for (int32_t i = axis - 1; i >= 0; i--) {
        t->strides[i] = stride;
        stride *= t->dims[i];
    }
}

/* Of the dims that have a next element. */
static bool same_strides(const attnrun_tensor *a, const attnrun_tensor *b)
{
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i] > 1 && a->strides[i] != b->strides[i])
            return false;
    return true;
}

static bool overlaps(const struct attn_state *state, const attnrun_tensor *t)
{
    uintptr_t at = (uintptr_t)t->data, from = (uintptr_t)state->memory;
    return tensor_count(t) > 0 && at >= from &&
           at - from < (uintptr_t)state->capacity_bytes;
}

attn_status attn_state_extend(struct attn_memory *memory, struct attn_state *state,
                              int32_t axis, const attnrun_tensor *past,
                              const attnrun_tensor *made, int64_t others,
                              attnrun_tensor *view)
{
    int64_t bytes = tensor_bytes(made), capacity = state->capacity_bytes, twice;
    if (bytes > capacity) {
        if (!ck_mul(bytes, 2, &twice))
            twice = bytes;
        capacity = affordable(memory, bytes, twice, others);
    }
    attnrun_tensor whole = *made; /* strides depend on all dims but the axis */
    state_lay_out(&whole, axis, capacity);
    *view = *past;
    memcpy(view->strides, whole.strides, sizeof view->strides);
    view->data = state->memory;
    if (capacity == state->capacity_bytes) {
        if (past->kind != ATTNRUN_TENSOR)
            return ATTNRUN_OK;
        if (past->data == view->data && same_strides(past, view))
            return ATTNRUN_OK;
        if (!overlaps(state, past)) {
            tensor_copy(view, past);
            return ATTNRUN_OK;
        }
    }
    return move(memory, state, capacity, past, view);
}

/* ---- copies, rows and sequences ---- */

static void copy_rows(const attnrun_tensor *to, const struct attn_state_rows *from)
{
    attnrun_tensor source = *from->tensor, target = *to;
    if (from->axis < 0) {
        tensor_copy(to, from->tensor);
        return;
    }
    source.dims[from->axis] = target.dims[from->axis] = 1;
    for (int64_t i = 0; i < from->n; i++) {
        source.data =
            (char *)from->tensor->data + from->rows[i] * source.strides[from->axis];
        target.data = (char *)to->data + i * target.strides[from->axis];
        tensor_copy(&target, &source);
    }
}

attn_status attn_state_copy(struct attn_memory *memory,
                            const struct attn_state_rows *from, struct attn_parked *made)
{
    attnrun_tensor copy = *from->tensor;
    int64_t capacity = from->capacity_bytes, had = 1;
    if (from->axis >= 0) {
        had = copy.dims[from->axis];
        copy.dims[from->axis] = from->n;
    }
    int64_t bytes = tensor_bytes(&copy);
    if (bytes < 0)
        return attn_fail(ATTNRUN_E_MEMORY,
                         "%lld rows of a state need more than 2^63 - 1 bytes",
                         (long long)copy.dims[from->axis < 0 ? 0 : from->axis]);
    if (from->axis >= 0 && (had == 0 || !ck_mul(capacity / had, from->n, &capacity)))
        capacity = bytes;
    capacity = affordable(memory, bytes, capacity > bytes ? capacity : bytes, 0);
    copy.data = attn_alloc(memory, ATTN_MEM_HEAP, capacity);
    if (copy.data == NULL)
        return ATTNRUN_E_MEMORY;
    if (tensor_is_dense(from->tensor) || from->append_axis < 0)
        tensor_set_dense(&copy);
    else
        state_lay_out(&copy, from->append_axis, capacity);
    copy_rows(&copy, from);
    made->tensor = copy;
    made->memory = copy.data;
    made->capacity_bytes = capacity;
    made->axis = from->append_axis;
    return ATTNRUN_OK;
}

void attn_state_put(struct attn_memory *memory, struct attn_state *state,
                    const struct attn_parked *made)
{
    attn_free(memory, ATTN_MEM_HEAP, state->memory, state->capacity_bytes);
    state->tensor = made->tensor;
    state->memory = made->memory;
    state->capacity_bytes = made->capacity_bytes;
    state->axis = made->axis;
}

static struct attn_parked **find_parked(struct attn_state *state, int64_t sequence)
{
    struct attn_parked **at = &state->parked;
    while (*at != NULL && (*at)->sequence != sequence)
        at = &(*at)->next;
    return at;
}

const struct attn_parked *attn_state_parked(const struct attn_state *state,
                                            int64_t sequence)
{
    const struct attn_parked *at = state->parked;
    while (at != NULL && at->sequence != sequence)
        at = at->next;
    return at;
}

void attn_state_select(struct attn_memory *memory, struct attn_state *state, int64_t from,
                       int64_t to, struct attn_parked *spare)
{
    struct attn_parked **at = find_parked(state, to), *found = *at;
    *spare = (struct attn_parked){ .sequence = from,
                                   .axis = state->axis,
                                   .tensor = state->tensor,
                                   .memory = state->memory,
                                   .capacity_bytes = state->capacity_bytes };
    state->memory = NULL;
    state->capacity_bytes = 0;
    state->tensor.kind = ATTNRUN_ABSENT;
    state->axis = -1;
    if (found != NULL) {
        *at = found->next;
        attn_state_put(memory, state, found);
        attn_free(memory, ATTN_MEM_PLAN, found, (int64_t)sizeof *found);
    }
    spare->next = state->parked;
    state->parked = spare;
}

void attn_state_drop(struct attn_memory *memory, struct attn_state *state,
                     int64_t sequence)
{
    struct attn_parked **at = find_parked(state, sequence), *found = *at;
    if (found == NULL)
        return;
    *at = found->next;
    attn_free(memory, ATTN_MEM_HEAP, found->memory, found->capacity_bytes);
    attn_free(memory, ATTN_MEM_PLAN, found, (int64_t)sizeof *found);
}

void attn_state_free(struct attn_memory *memory, struct attn_state *list)
{
    while (list != NULL) {
        struct attn_state *next = list->next;
        while (list->parked != NULL)
            attn_state_drop(memory, list, list->parked->sequence);
        attn_free(memory, ATTN_MEM_HEAP, list->memory, list->capacity_bytes);
        attn_free(memory, ATTN_MEM_PLAN, list, (int64_t)sizeof *list);
        list = next;
    }
}

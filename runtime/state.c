/* state.c - tensors that a context carries from one run to the next. */
#include "state.h"

#include <string.h>

static attn_status make_room(struct attn_memory *memory, struct attn_state *state,
                             int64_t bytes)
{
    if (bytes <= state->capacity_bytes && state->memory != NULL)
        return ATTNRUN_OK;
    int64_t capacity;
    if (!ck_add(bytes, state->capacity_bytes / 2, &capacity))
        capacity = bytes;
    void *made = attn_alloc(memory, ATTN_MEM_HEAP, capacity);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    if (state->tensor.kind != ATTNRUN_ABSENT) {
        memcpy(made, state->memory, (size_t)tensor_bytes(&state->tensor));
        state->tensor.data = made;
    }
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
    state->next = *list;
    attn_status status = make_room(memory, state, capacity_bytes);
    if (status != ATTNRUN_OK) {
        attn_free(memory, ATTN_MEM_PLAN, state, (int64_t)sizeof *state);
        return status;
    }
    *list = state;
    return ATTNRUN_OK;
}

attn_status attn_state_reserve(struct attn_memory *memory, struct attn_state *state,
                               const attnrun_tensor *made)
{
    if (made->kind != ATTNRUN_TENSOR || made->dtype == ATTNRUN_STRING)
        return attn_fail(ATTNRUN_E_USAGE, "a state must be a tensor of numbers");
    return make_room(memory, state, tensor_bytes(made));
}

void attn_state_keep(struct attn_state *state, const attnrun_tensor *made)
{
    state->tensor = *made;
    tensor_set_dense(&state->tensor);
    state->tensor.data = state->memory;
    tensor_copy(&state->tensor, made);
}

void attn_state_free(struct attn_memory *memory, struct attn_state *list)
{
    while (list != NULL) {
        struct attn_state *next = list->next;
        attn_free(memory, ATTN_MEM_HEAP, list->memory, list->capacity_bytes);
        attn_free(memory, ATTN_MEM_PLAN, list, (int64_t)sizeof *list);
        list = next;
    }
}

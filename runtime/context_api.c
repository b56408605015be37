/* context_api.c - the calls on contexts.
 *
 * In: the arguments of a caller. Out: what context.c and its neighbours answer. Each call has the
 * context to itself while it works, and is refused with E_USAGE while another one does; a call
 * that succeeds leaves the error of an earlier call as it was. */
#include "context.h"

/* A call under way. */
struct call {
    attnrun_context *context;
    attnrun_error before;
};

static attn_status enter(attnrun_context *context)
{
    if (context == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the context is NULL");
    if (__atomic_exchange_n(&context->busy, 1, __ATOMIC_ACQUIRE) == 0)
        return ATTNRUN_OK;
    attn_fail(ATTNRUN_E_USAGE, "another call is using this context");
    attn_hint("a context is for one thread at a time; a model may have many of them");
    return ATTNRUN_E_USAGE;
}

static attn_status leave(attnrun_context *context, attn_status status)
{
    __atomic_store_n(&context->busy, 0, __ATOMIC_RELEASE);
    return status;
}

/* Of calls on whose way something may fail without harm. */
static attn_status begin(struct call *call, attnrun_context *context)
{
    TRY(enter(context));
    call->context = context;
    attn_call_begin(&call->before);
    return ATTNRUN_OK;
}

static attn_status end(const struct call *call, attn_status status)
{
    return leave(call->context, attn_call_end(status, &call->before));
}

/* ---- inputs and outputs ---- */

attnrun_status attnrun_set_input(attnrun_context *context, int32_t index,
                                 const attnrun_tensor *tensor)
{
    TRY(enter(context));
    return leave(context, attn_context_set_input(context, index, tensor));
}

attnrun_status attnrun_set_output(attnrun_context *context, int32_t index,
                                  const attnrun_tensor *tensor)
{
    TRY(enter(context));
    return leave(context, attn_context_set_output(context, index, tensor));
}

attnrun_status attnrun_choose_outputs(attnrun_context *context, const int32_t *indices,
                                      int32_t n)
{
    TRY(enter(context));
    return leave(context, attn_context_choose_outputs(context, indices, n));
}

attnrun_status attnrun_watch(attnrun_context *context, const char *name)
{
    TRY(enter(context));
    return leave(context, attn_context_watch(context, name));
}

attnrun_status attnrun_value(attnrun_context *context, const char *name,
                             attnrun_tensor *tensor)
{
    TRY(enter(context));
    attn_status status =
        tensor ? attn_context_value(context, name, tensor)
               : attn_fail(ATTNRUN_E_USAGE, "the tensor for a value is NULL");
    return leave(context, status);
}

attnrun_status attnrun_output(attnrun_context *context, int32_t index,
                              attnrun_tensor *tensor)
{
    TRY(enter(context));
    attn_status status =
        tensor ? attn_frame_output(context->frame, index, tensor)
               : attn_fail(ATTNRUN_E_USAGE, "the tensor for output %d is NULL", index);
    return leave(context, status);
}

/* ---- states ---- */

attnrun_status attnrun_add_state(attnrun_context *context, int32_t input, int32_t output,
                                 int64_t capacity_bytes)
{
    TRY(enter(context));
    return leave(context, attn_context_add_state(context, input, output, capacity_bytes));
}

attnrun_status attnrun_truncate_state(attnrun_context *context, int32_t input,
                                      int64_t length)
{
    TRY(enter(context));
    return leave(context, attn_context_truncate_state(context, input, length));
}

void attnrun_reset_states(attnrun_context *context)
{
    if (context == NULL || enter(context) != ATTNRUN_OK)
        return;
    attn_context_reset_states(context);
    leave(context, ATTNRUN_OK);
}

attnrun_status attnrun_select_sequence(attnrun_context *context, int64_t sequence)
{
    TRY(enter(context));
    return leave(context, attn_context_select_sequence(context, sequence));
}

attnrun_status attnrun_drop_sequence(attnrun_context *context, int64_t sequence)
{
    TRY(enter(context));
    return leave(context, attn_context_drop_sequence(context, sequence));
}

attnrun_status attnrun_copy_states(attnrun_context *to, attnrun_context *from,
                                   int64_t sequence)
{
    TRY(enter(to));
    if (from == to)
        return leave(to, attn_context_copy_states(to, to, sequence));
    attn_status status = enter(from);
    if (status == ATTNRUN_OK)
        status = leave(from, attn_context_copy_states(to, from, sequence));
    return leave(to, status);
}

attnrun_status attnrun_reorder_states(attnrun_context *context, int32_t input,
                                      int32_t axis, const int64_t *rows, int64_t n)
{
    TRY(enter(context));
    return leave(context, attn_context_reorder_states(context, input, axis, rows, n));
}

/* ---- runs ---- */

attnrun_status attnrun_run(attnrun_context *context, const attnrun_run_options *options)
{
    struct call call;
    TRY(begin(&call, context));
    return end(&call, attn_context_run(context, options));
}

void attnrun_cancel(attnrun_context *context)
{
    if (context != NULL)
        __atomic_store_n(&context->control.stop, ATTN_STOP_CANCEL, __ATOMIC_RELAXED);
}

attnrun_status attnrun_set_timeout(attnrun_context *context, int64_t timeout_us)
{
    TRY(enter(context));
    if (timeout_us < 0)
        return leave(
            context,
            attn_fail(ATTNRUN_E_USAGE,
                      "the timeout is %lld microseconds, expected 0 (none) or more",
                      (long long)timeout_us));
    context->timeout_us = timeout_us;
    return leave(context, ATTNRUN_OK);
}

/* ---- plans and memory ---- */

attnrun_status attnrun_plan(attnrun_context *context, const attnrun_tensor *inputs,
                            attnrun_plan_info *info)
{
    struct call call;
    TRY(begin(&call, context));
    return end(&call, attn_context_plan(context, inputs, info));
}

attnrun_status attnrun_reserve(attnrun_context *context, const attnrun_tensor *inputs)
{
    struct call call;
    TRY(begin(&call, context));
    return end(&call, attn_context_reserve(context, inputs));
}

attnrun_status attnrun_plan_output(attnrun_context *context, int32_t index,
                                   attnrun_tensor *tensor)
{
    if (tensor == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_plan_output: tensor is NULL");
    TRY(enter(context));
    return leave(context, attn_context_plan_output(context, index, tensor));
}

attnrun_status attnrun_plan_get_block(attnrun_context *context, int32_t index,
                                      attnrun_plan_block *block)
{
    TRY(enter(context));
    return leave(context, attn_context_plan_block(context, index, block));
}

attnrun_status attnrun_plan_get_step(attnrun_context *context, int32_t index,
                                     attnrun_plan_step *step)
{
    TRY(enter(context));
    return leave(context, attn_context_plan_step(context, index, step));
}

attnrun_status attnrun_set_max_plans(attnrun_context *context, int32_t n)
{
    TRY(enter(context));
    return leave(context, attn_context_set_max_plans(context, n));
}

attnrun_status attnrun_set_arena(attnrun_context *context, void *memory, int64_t bytes)
{
    TRY(enter(context));
    return leave(context, attn_context_set_arena(context, memory, bytes));
}

attnrun_status attnrun_context_memory(const attnrun_context *context,
                                      attnrun_memory_info *info)
{
    attnrun_context *writable = (attnrun_context *)(uintptr_t)context;
    TRY(enter(writable));
    return leave(writable, attn_context_memory(writable, info));
}

void attnrun_trim(attnrun_context *context)
{
    if (context == NULL || enter(context) != ATTNRUN_OK)
        return;
    attn_context_trim(context);
    leave(context, ATTNRUN_OK);
}

/* context_states.c - the states of a context around a run: room for what it makes of them, and what
 * it leaves to the next run.
 *
 * In: a plan, and what is bound to the inputs. Out: states that the plan appends in place, in
 * their memory with room behind; copies of the others. state.c has one state. */
#include "checked.h"
#include "context.h"
#include "state.h"

/* What a run of that plan makes of a state, where its memory does not hold it, else 0. */
static int64_t state_grows(const struct attnrun_context *context,
                           const struct attn_plan *plan, const struct attn_state *s)
{
    const struct attn_append *append = &plan->appends[s->input];
    const int32_t id =
        append->axis >= 0 ? append->output : context->frame->graph->outputs[s->output];
    const attnrun_tensor *made = &plan->values[id].tensor;
    if (plan->values[id].place == ATTN_PLACE_DYNAMIC || made->kind != ATTNRUN_TENSOR)
        return 0;
    const int64_t bytes = tensor_bytes(made);
    return bytes > s->capacity_bytes ? bytes : 0;
}

/* A state that doubles leaves room for what this run takes besides: other states, and what depends
 * on data. */
static int64_t states_grow(const struct attnrun_context *context,
                           const struct attn_plan *plan)
{
    int64_t sum = plan->heap_bytes;
    for (const struct attn_state *s = context->frame->states; s != NULL; s = s->next)
        if (!ck_add(sum, state_grows(context, plan, s), &sum))
            return INT64_MAX;
    return sum;
}

attn_status attn_context_extend_states(struct attnrun_context *context,
                                       const struct attn_plan *plan)
{
    int64_t others = states_grow(context, plan);
    for (struct attn_state *s = context->frame->states; s != NULL; s = s->next) {
        const struct attn_append *append = &plan->appends[s->input];
        attnrun_tensor past = context->bound[s->input];
        others -= state_grows(context, plan, s);
        if (append->axis >= 0)
            TRY(attn_state_extend(context->frame->memory, s, append->axis, &past,
                                  &plan->values[append->output].tensor, others,
                                  &context->bound[s->input]));
    }
    return ATTNRUN_OK;
}

attn_status attn_context_reserve_states(struct attnrun_context *context,
                                        const struct attn_plan *plan)
{
    int64_t others = states_grow(context, plan);
    for (struct attn_state *s = context->frame->states; s != NULL; s = s->next) {
        const struct attn_append *append = &plan->appends[s->input];
        attnrun_tensor past = s->tensor, view;
        others -= state_grows(context, plan, s);
        if (append->axis < 0)
            continue;
        const attnrun_tensor *made = &plan->values[append->output].tensor;
        bool fits = past.kind == ATTNRUN_ABSENT || past.rank == made->rank;
        for (int32_t i = 0; fits && i < past.rank; i++)
            fits = i == append->axis || past.dims[i] == made->dims[i];
        if (fits) /* else what it holds is not a past of that plan */
            TRY(attn_state_extend(context->frame->memory, s, append->axis, &past, made,
                                  others, &view));
    }
    return ATTNRUN_OK;
}

attn_status attn_context_keep_states(struct attnrun_context *context)
{
    attnrun_tensor made;
    const struct attn_plan *plan = context->frame->current;
    const struct attn_append *appends = plan->appends;
    int64_t others = states_grow(context, plan);
    for (struct attn_state *s = context->frame->states; s != NULL; s = s->next) {
        TRY(attn_frame_output(context->frame, s->output, &made));
        others -= state_grows(context, plan, s);
        if (appends[s->input].axis < 0)
            TRY(attn_state_reserve(context->frame->memory, s, &made, others));
    }
    for (struct attn_state *s = context->frame->states; s != NULL; s = s->next) {
        TRY(attn_frame_output(context->frame, s->output, &made));
        attn_state_note_axis(s, &context->bound[s->input], &made);
        if (appends[s->input].axis < 0)
            attn_state_keep(s, &made);
        else
            attn_state_keep_extended(s, &made);
    }
    return ATTNRUN_OK;
}

static void forget(struct attnrun_context *context, struct attn_state *state)
{
    state->tensor.kind = ATTNRUN_ABSENT;
    state->axis = -1;
    context->inputs[state->input].kind = ATTNRUN_ABSENT; /* it is long gone, maybe */
}

void attn_context_reset_states(struct attnrun_context *context)
{
    for (struct attn_state *s = context->frame->states; s != NULL; s = s->next)
        forget(context, s);
}

void attn_context_end_states(struct attnrun_context *context,
                             const struct attn_plan *plan, bool failed)
{
    for (struct attn_state *s = context->frame->states; s != NULL; s = s->next) {
        const struct attn_append *append = &plan->appends[s->input];
        if (append->axis >= 0 && failed && s->tensor.kind != ATTNRUN_ABSENT &&
            plan->steps[plan->values[append->output].producer]->overwrote)
            forget(context, s);
    }
    for (int32_t i = 0; context->frame->states != NULL && i < plan->n_steps; i++)
        plan->steps[i]->overwrote = false;
}

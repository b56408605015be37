/* append.c - which states a plan appends in place. The output of a state then shows the
 * state's own memory, in which the input already is: the step that makes it writes only
 * what is new. That needs a producer that says so (attnrun_step_append), readers that
 * take the strides of a buffer with room in it, and no later reader of the input. */
#include "frame.h"
#include "plan.h"
#include "state.h"

/* The output of its step that value `id` is. */
static int32_t output_of(const struct attn_step *step, int32_t id)
{
    int32_t out = 0;
    while (out < step->pub.n_out && step->node->out[out] != id)
        out++;
    return out;
}

/* `to` is `from` with more behind it along `axis`. */
static bool extends(const attnrun_tensor *to, const attnrun_tensor *from, int32_t axis)
{
    if (axis < 0 || axis >= from->rank || to->rank != from->rank ||
        to->dtype != from->dtype || dtype_bits(to->dtype) < 8 ||
        to->dtype == ATTNRUN_STRING)
        return false;
    for (int32_t i = 0; i < to->rank; i++)
        if (i == axis ? to->dims[i] < from->dims[i] : to->dims[i] != from->dims[i])
            return false;
    return true;
}

static bool can_append(const struct attn_plan *plan, int32_t input, int32_t output,
                       int32_t *axis)
{
    const struct attn_plan_value *from = &plan->values[input];
    const struct attn_plan_value *to = &plan->values[output];
    if (to->place != ATTN_PLACE_ARENA || to->producer < 0 ||
        from->type.kind != ATTNRUN_TENSOR || from->last_use != to->producer)
        return false;
    const struct attn_step *step = plan->steps[to->producer];
    int32_t out = output_of(step, output), in = step->known_outputs[out].append_to;
    *axis = step->known_outputs[out].append_axis;
    if (step->dynamic || in < 0 || step->node->in[in] != input ||
        (step->node->pub.op->flags & (ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS)) != 0 ||
        !extends(&to->tensor, &from->tensor, *axis))
        return false;
    /* With one block before the axis the room is behind everything: that is dense. */
    return tensor_dims_product(&to->tensor, 0, *axis) <= 1 ||
           (!from->read_dense && !to->read_dense);
}

attn_status attn_plan_append_states(struct attn_frame *frame, struct attn_plan *plan,
                                    const attnrun_tensor *inputs)
{
    for (const struct attn_state *s = frame->states; s != NULL; s = s->next) {
        int32_t input = plan->graph->inputs[s->input], axis;
        int32_t output = plan->graph->outputs[s->output];
        struct attn_plan_value *from = &plan->values[input], *to = &plan->values[output];
        if (!can_append(plan, input, output, &axis))
            continue;
        plan->appends[s->input] = (struct attn_append){ .axis = axis, .output = output };
        plan->key[s->input].strides[0] = ATTN_KEY_ANY;
        from->place = to->place = ATTN_PLACE_INPUT;
        from->tensor = inputs[s->input];
        from->tensor.data = NULL;
        from->in_state = to->in_state = true;
        to->input = s->input;
        struct attn_step *step = plan->steps[to->producer];
        step->appended |= UINT32_C(1) << output_of(step, output);
        TRY(attn_step_infer(step));
    }
    return ATTNRUN_OK;
}

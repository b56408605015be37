/* plan_bind.c - the data pointers of a plan's operands: which follow the arena, which the inputs
 * and outputs of the caller, and setting them. See plan.h.
 *
 * In: a plan whose values have their places. Out: patches, those that may move from run to run
 * first; then, before each run, the pointers. Cost: one store for each operand that moves. */
#include <string.h>

#include "frame.h"
#include "plan.h"

/* ---- patches ---- */

static void patch_operand(struct attn_plan *plan, int32_t id, attnrun_tensor *tensor,
                          bool moving)
{
    const struct attn_plan_value *value = &plan->values[id];
    bool is_input =
        value->place == ATTN_PLACE_INPUT && value->type.kind == ATTNRUN_TENSOR;
    if (!is_input && value->place != ATTN_PLACE_ARENA)
        return;
    int32_t given = is_input ? -1 : plan->values[value->root].given;
    if ((is_input || given >= 0) != moving)
        return;
    int64_t offset = value->offset;
    if (!moving)
        offset += plan->blocks[plan->values[value->root].block].offset;
    plan->patches[plan->n_patches++] =
        (struct attn_patch){ .tensor = tensor,
                             .offset = offset,
                             .input = is_input ? value->input : -1,
                             .output = given,
                             .strided = value->in_state };
}

static void collect_patches(struct attn_plan *plan, bool moving)
{
    for (int32_t s = 0; s < plan->n_steps && !attn_stops_node(s); s++) {
        struct attn_step *step = plan->steps[s];
        attnrun_tensor *x = (attnrun_tensor *)(uintptr_t)step->pub.x;
        for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++)
            if (step->node->in[i] >= 0) {
                x[i] = plan->values[step->node->in[i]].tensor;
                patch_operand(plan, step->node->in[i], &x[i], moving);
                if (attn_step_is_replaced(step, i))
                    x[i].data = NULL;
            }
        for (int32_t i = 0; i < step->pub.n_out; i++)
            if (step->node->out[i] >= 0) {
                step->pub.y[i] = plan->values[step->node->out[i]].tensor;
                patch_operand(plan, step->node->out[i], &step->pub.y[i], moving);
            }
    }
    for (int64_t v = 0; v < plan->graph->n_values; v++)
        patch_operand(plan, (int32_t)v, &plan->values[v].tensor, moving);
}

attn_status attn_plan_make_patches(struct attn_plan *plan)
{
    int64_t max = plan->graph->n_values;
    for (int32_t s = 0; s < plan->n_steps; s++)
        max += plan->steps[s]->pub.n_in + plan->steps[s]->node->n_captures +
               plan->steps[s]->pub.n_out;
    plan->patches =
        attn_pool_alloc(&plan->pool, (max + 1) * (int64_t)sizeof *plan->patches);
    if (plan->patches == NULL)
        return ATTNRUN_E_MEMORY;
    collect_patches(plan, true);
    plan->n_moving = plan->n_patches;
    collect_patches(plan, false);
    TRY(attn_poll());
    for (int32_t s = 0; s < plan->n_steps; s++) {
        struct attn_step *step = plan->steps[s];
        step->is_view =
            !step->dynamic && !(step->pub.node->op->flags & ATTNRUN_OP_IMPURE);
        for (int32_t i = 0; i < step->pub.n_out; i++) {
            int32_t id = step->node->out[i], in = step->known_outputs[i].view_of;
            if (id < 0)
                continue;
            const struct attn_plan_value *value = &plan->values[id];
            bool view = in >= 0 && step->node->in[in] >= 0 &&
                        value->place == plan->values[step->node->in[in]].place &&
                        (value->place == ATTN_PLACE_CONST ||
                         (value->root == plan->values[step->node->in[in]].root &&
                          value->root != id));
            step->is_view = step->is_view && view;
        }
    }
    return ATTNRUN_OK;
}

/* ---- binding ---- */

static void bind_moving(const struct attn_patch *patch, const attnrun_tensor *inputs,
                        const attnrun_tensor *outputs)
{
    const attnrun_tensor *from =
        patch->input >= 0 ? &inputs[patch->input] : &outputs[patch->output];
    patch->tensor->data = (char *)from->data + patch->offset;
    if (patch->strided)
        memcpy(patch->tensor->strides, from->strides, sizeof from->strides);
}

void attn_plan_bind(struct attn_plan *plan, char *arena, const attnrun_tensor *inputs,
                    const attnrun_tensor *outputs)
{
    for (int64_t i = 0; i < plan->n_moving; i++)
        bind_moving(&plan->patches[i], inputs, outputs);
    if (plan->bound_arena == arena && arena != NULL)
        return;
    for (int64_t i = plan->n_moving; i < plan->n_patches; i++)
        plan->patches[i].tensor->data = arena + plan->patches[i].offset;
    for (int32_t s = 0; s < plan->n_steps; s++) {
        struct attn_step *step = plan->steps[s];
        if (step->scratch_block < 0)
            continue;
        step->own.each = arena + plan->blocks[step->scratch_block].offset;
        step->own.shared = step->own.each + step->own.stride * step->own.n_workers;
    }
    plan->bound_arena = arena;
}

/* context_plan.c - a context's last plan as users see it: its blocks, its steps, the shapes of its
 * outputs. In: an index. Out: what the plan says of it; names belong to the model. And what users
 * say of plans: how many are kept, whose memory the arena is. */
#include "abi.h"
#include "context.h"
#include "node_profile.h"

attn_status attn_context_plan_block(struct attnrun_context *context, int32_t index,
                                    attnrun_plan_block *block)
{
    const struct attn_plan *plan = context->frame->shown;
    if (plan == NULL || index < 0 || index >= plan->n_blocks)
        return attn_fail(ATTNRUN_E_USAGE, "there is no plan, or no block %d in it",
                         index);
    const struct attn_block *from = &plan->blocks[index];
    attnrun_plan_block filled = { .first_step = from->first,
                                  .last_step = from->last,
                                  .offset = from->offset,
                                  .bytes = from->bytes,
                                  .name = "scratch",
                                  .op_type = "" };
    if (from->value >= 0) {
        filled.name = plan->graph->values[from->value].name;
        filled.tensor = plan->values[from->value].tensor;
        filled.tensor.data = NULL;
    }
    if (from->first < plan->n_steps &&
        (from->value < 0 || plan->values[from->value].producer >= 0))
        filled.op_type = plan->steps[from->first]->pub.node->op_type;
    return attn_struct_write(block, &filled, sizeof filled, "attnrun_plan_block");
}

attn_status attn_context_plan_output(struct attnrun_context *context, int32_t index,
                                     attnrun_tensor *tensor)
{
    const struct attn_plan *plan = context->frame->shown;
    if (plan == NULL || index < 0 || index >= context->n_outputs)
        return attn_fail(ATTNRUN_E_USAGE, "there is no plan, or no output %d in it",
                         index);
    const struct attn_plan_value *value = &plan->values[plan->graph->outputs[index]];
    if (plan->modes[index] == ATTN_OUTPUT_SKIPPED)
        return attn_fail(ATTNRUN_E_USAGE, "output %d was not chosen for this plan",
                         index);
    if (value->place == ATTN_PLACE_DYNAMIC || value->tensor.kind != ATTNRUN_TENSOR)
        return attn_fail(ATTNRUN_E_SHAPE, "the shape of output %d depends on data",
                         index);
    *tensor = value->tensor;
    tensor_set_dense(tensor);
    tensor->data = NULL;
    return ATTNRUN_OK;
}

attn_status attn_context_plan_step(struct attnrun_context *context, int32_t index,
                                   attnrun_plan_step *step)
{
    const struct attn_plan *plan = context->frame->shown;
    if (plan == NULL || index < 0 || index >= plan->n_steps)
        return attn_fail(ATTNRUN_E_USAGE, "there is no plan, or no step %d in it", index);
    const struct attn_step *from = plan->steps[index];
    attnrun_plan_step filled = { .node_index = from->pub.node->index,
                                 .name = from->pub.node->name,
                                 .op_type = from->pub.node->op_type,
                                 .flops = from->flops };
    if (!from->is_view) {
        filled.n_phases = from->pub.n_phases;
        filled.shared = attn_step_shared_phases(from);
        filled.read_bytes = attn_step_read_bytes(from);
        filled.written_bytes = attn_step_written_bytes(from);
        memcpy(filled.phases, from->pub.phases,
               (size_t)filled.n_phases * sizeof filled.phases[0]);
    }
    return attn_struct_write(step, &filled, sizeof filled, "attnrun_plan_step");
}

attn_status attn_context_set_max_plans(struct attnrun_context *context, int32_t n)
{
    if (n < 1 || n > ATTN_MAX_PLANS)
        return attn_fail(ATTNRUN_E_USAGE, "%s to keep, expected 1 to %d",
                         attn_plural(n, "plan"), ATTN_MAX_PLANS);
    attn_frame_keep_plans(context->frame, n);
    return ATTNRUN_OK;
}

attn_status attn_context_set_arena(struct attnrun_context *context, void *memory,
                                   int64_t bytes)
{
    if (bytes < 0 || (memory == NULL && bytes != 0))
        return attn_fail(
            ATTNRUN_E_USAGE,
            "attnrun_set_arena: memory is %s and bytes is %lld, expected memory "
            "of 0 bytes or more",
            memory == NULL ? "NULL" : "given", (long long)bytes);
    if ((uintptr_t)memory % ATTNRUN_ARENA_ALIGN != 0)
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_set_arena: the memory begins at an address that is not "
                         "a multiple of %d",
                         ATTNRUN_ARENA_ALIGN);
    attn_frame_set_arena(context->frame, memory, bytes);
    return ATTNRUN_OK;
}

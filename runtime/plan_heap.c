/* plan_heap.c - the most that a run takes from the side heap, as far as a plan knows it:
 * what operators state for outputs whose sizes depend on data, scratch of dynamic-shape
 * steps, and what subgraphs need. */
#include "frame.h"

/* Outputs that have no place in the plan, or whose elements are elsewhere. */
static int32_t count_heap_outputs(const struct attn_plan *plan,
                                  const struct attn_step *step, bool *dynamic)
{
    int32_t n = 0;
    *dynamic = false;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const int32_t id = step->node->out[i];
        const attnrun_type *type = &step->pub.out[i];
        if (id < 0)
            continue;
        const bool unplaced = plan->values[id].place == ATTN_PLACE_DYNAMIC;
        n += unplaced || type->kind != ATTNRUN_TENSOR || type->dtype == ATTNRUN_STRING;
        *dynamic = *dynamic || unplaced;
    }
    return n;
}

/* What the step keeps for its outputs: true where a bound is known. */
static bool kept_bytes(const struct attn_plan *plan, const struct attn_step *step,
                       int64_t *kept)
{
    uint32_t flags = step->node->pub.op->flags;
    bool dynamic_out;
    const int64_t n_heap = count_heap_outputs(plan, step, &dynamic_out);
    *kept = step->inner_bytes;
    if (step->heap_bound >= 0)
        return ck_add(step->heap_bound, n_heap * ATTN_HEAP_HEADER, kept);
    if (dynamic_out || !step->pub.concrete)
        return false;
    return (flags & ATTNRUN_OP_GRAPHS) ? step->inner_bytes >= 0
                                       : !(flags & ATTNRUN_OP_DYNAMIC);
}

/* Scratch of a dynamic-shape step, which is given back at its end. */
static bool passing_bytes(const struct attn_frame *frame, const struct attn_step *step,
                          int64_t *bytes)
{
    int64_t each;
    *bytes = 0;
    if (!step->dynamic)
        return true;
    return ck_align(step->pub.scratch_bytes, ATTN_ARENA_ALIGN, &each) &&
           ck_mul(each, attn_threads_count(frame->threads), bytes) &&
           ck_add(*bytes, step->pub.shared_bytes, bytes) &&
           ck_add(*bytes, 2 * ATTN_HEAP_HEADER, bytes);
}

void attn_plan_bound_heap(const struct attn_frame *frame, struct attn_plan *plan)
{
    int64_t kept, passing, max = 0;
    plan->heap_bytes = 0;
    plan->n_unbounded = 0;
    for (int32_t s = 0; s < plan->n_steps; s++) {
        const struct attn_step *step = plan->steps[s];
        if (!kept_bytes(plan, step, &kept) || !passing_bytes(frame, step, &passing) ||
            !ck_add(plan->heap_bytes, kept, &kept)) {
            plan->n_unbounded++;
            continue;
        }
        plan->heap_bytes = kept;
        max = passing > max ? passing : max;
    }
    if (!ck_add(plan->heap_bytes, max, &plan->heap_bytes))
        plan->heap_bytes = INT64_MAX;
}

/* dynamic_shape.c - steps that are inferred at run: those with dynamic shapes (`dynamic`), whose
 * output shapes depend on data, and planned ones for which infer() lacked values (`recheck`).
 *
 * In: a step whose inputs are there. Out: its outputs, of dynamic-shape steps in blocks of the
 * side heap that are released when their last reader is done. */
#include "frame.h"
#include "infer.h"
#include "operand.h"

/* ---- dynamic-shape steps: shapes are known only now ---- */

static void load_dynamic(struct attn_plan *plan, struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++) {
        int32_t id = step->node->in[i];
        if (id < 0)
            continue;
        attn_step_x(step)[i] = plan->values[id].tensor;
        attn_tensor_to_type(&step->pub.x[i], &attn_step_in(step)[i]);
        if (attn_step_is_replaced(step, i))
            attn_step_x(step)[i].data = NULL;
        step->known[i] = NULL;
    }
    for (int32_t i = 0; i < step->pub.n_out; i++)
        if (step->node->out[i] >= 0 &&
            plan->values[step->node->out[i]].place == ATTN_PLACE_DYNAMIC)
            step->pub.y[i] = (attnrun_tensor){ .kind = ATTNRUN_ABSENT };
}

/* Its run() makes its outputs, and attnrun_step_alloc() compares them with what was planned. */
static bool makes_outputs(const struct attn_step *step)
{
    return (step->pub.node->op->flags & (ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_GRAPHS)) != 0;
}

/* What infer() says of a planned output now; `open`: it need not know the dims. */
static bool is_as_planned(const attnrun_type *type, const attnrun_type *planned,
                          bool open)
{
    if (type->kind != planned->kind || type->dtype != planned->dtype)
        return false;
    if (type->rank != planned->rank)
        return open && type->rank < 0;
    for (int d = 0; d < planned->rank; d++)
        if (!dim_is(type->dims[d], planned->dims[d].value) &&
            !(open && type->dims[d].expr == ATTN_DIM_UNKNOWN))
            return false;
    return true;
}

/* The outputs that have a place in the arena are what they were planned as. */
static attn_status check_planned(const struct attn_plan *plan,
                                 const struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        const attnrun_type *type = &step->pub.out[i];
        if (id < 0 || plan->values[id].place == ATTN_PLACE_DYNAMIC)
            continue;
        const attnrun_type *planned = &plan->values[id].type;
        if (!is_as_planned(type, planned, makes_outputs(step)))
            return op_fail(&step->pub, ATTNRUN_E_SHAPE,
                           "output %d is %s with the given values, but was planned as %s",
                           i, attn_type_format(NULL, type),
                           attn_type_format(NULL, planned));
    }
    return ATTNRUN_OK;
}

static attn_status allocate_dynamic(struct attn_frame *frame, struct attn_plan *plan,
                                    struct attn_step *step)
{
    TRY(check_planned(plan, step));
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        const attnrun_type *type = &step->pub.out[i];
        if (id < 0 || plan->values[id].place != ATTN_PLACE_DYNAMIC)
            continue;
        if (!attn_type_is_concrete(type)) {
            if (!makes_outputs(step))
                return op_fail(&step->pub, ATTNRUN_E_INTERNAL,
                               "output %d has no known shape", i);
            continue;
        }
        TRY(attn_type_to_tensor(type, &step->pub.y[i]));
        TRY(op_check_growth(&step->pub, i, tensor_bytes(&step->pub.y[i])));
        step->pub.y[i].data =
            attn_heap_alloc(&frame->heap, &step->lists[i], tensor_bytes(&step->pub.y[i]));
        if (step->pub.y[i].data == NULL)
            return ATTNRUN_E_MEMORY;
    }
    return ATTNRUN_OK;
}

static attn_status scratch_dynamic(struct attn_frame *frame, struct attn_step *step,
                                   struct attn_heap_list *list)
{
    int64_t bytes;
    step->own.n_workers = attn_threads_count(frame->threads);
    if (!ck_align(step->pub.scratch_bytes, ATTN_ARENA_ALIGN, &step->own.stride) ||
        !ck_mul(step->own.stride, step->own.n_workers, &bytes))
        return op_fail(&step->pub, ATTNRUN_E_MEMORY,
                       "the size of its scratch memory overflows");
    TRY(op_check_growth(&step->pub, -1, bytes));
    TRY(op_check_growth(&step->pub, -1, step->pub.shared_bytes));
    step->own.each = attn_heap_alloc(&frame->heap, list, bytes);
    step->own.shared = attn_heap_alloc(&frame->heap, list, step->pub.shared_bytes);
    return step->own.each && step->own.shared ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

attn_status attn_frame_run_dynamic(struct attn_frame *frame, struct attn_plan *plan,
                                   struct attn_step *step)
{
    struct attn_heap_list scratch = { NULL };
    load_dynamic(plan, step);
    step->pool = NULL; /* nobody reads the values that infer() hands on */
    step->heap = &frame->heap;
    for (int32_t i = 0; i < step->pub.n_out; i++)
        attn_heap_release(&frame->heap, &step->lists[i]);
    attn_status status = attn_step_check_inputs(step);
    if (status == ATTNRUN_OK)
        status = attn_step_infer(step);
    if (status == ATTNRUN_OK)
        status = allocate_dynamic(frame, plan, step);
    if (status == ATTNRUN_OK)
        status = scratch_dynamic(frame, step, &scratch);
    if (status == ATTNRUN_OK)
        status = attn_frame_run_step(frame, step);
    attn_heap_release(&frame->heap, &scratch);
    TRY(status);
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        if (id < 0 || plan->values[id].place != ATTN_PLACE_DYNAMIC)
            continue;
        if (step->pub.y[i].kind == ATTNRUN_ABSENT)
            return op_fail(&step->pub, ATTNRUN_E_INTERNAL, "output %d was not written",
                           i);
        TRY(attn_step_check_output(step, i, step->pub.y[i].kind, step->pub.y[i].dtype));
        plan->values[id].tensor = step->pub.y[i];
    }
    return ATTNRUN_OK;
}

/* ---- planned steps that are inferred again ---- */

/* infer() lacked values when the outputs were planned: now they are there. */
static attn_status recheck(struct attn_plan *plan, struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_in; i++)
        step->known[i] = NULL;
    step->pool = NULL;
    TRY(attn_step_infer(step));
    return check_planned(plan, step);
}

/* With the values known it may need more scratch than without. */
static bool scratch_fits(const struct attn_step *step)
{
    return step->pub.scratch_bytes <= step->own.stride &&
           step->pub.shared_bytes <= step->own.shared_bytes;
}

attn_status attn_frame_run_planned(struct attn_frame *frame, struct attn_plan *plan,
                                   struct attn_step *step)
{
    step->heap = &frame->heap;
    if (step->recheck)
        TRY(recheck(plan, step));
    if (step->is_view)
        return ATTNRUN_OK;
    if (scratch_fits(step))
        return attn_frame_run_step(frame, step);
    struct attn_heap_list scratch = { NULL };
    struct attn_step_scratch own = step->own;
    attn_status status = scratch_dynamic(frame, step, &scratch);
    if (status == ATTNRUN_OK)
        status = attn_frame_run_step(frame, step);
    attn_heap_release(&frame->heap, &scratch);
    step->own = own;
    return status;
}

/* Frees values of dynamic shape that this step was the last to read. Strings stay: elements
 * that were moved since then share their bytes. */
void attn_frame_release_dynamic(struct attn_frame *frame, struct attn_plan *plan,
                                const struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_in + step->node->n_captures; i++) {
        int32_t id = step->node->in[i];
        if (id < 0 || plan->values[id].place != ATTN_PLACE_DYNAMIC ||
            plan->values[id].last_use != step->index || plan->values[id].producer < 0)
            continue;
        struct attn_step *producer = plan->steps[plan->values[id].producer];
        for (int32_t o = 0; o < producer->pub.n_out; o++)
            if (producer->node->out[o] == id &&
                producer->pub.out[o].dtype != ATTNRUN_STRING)
                attn_heap_release(&frame->heap, &producer->lists[o]);
    }
}

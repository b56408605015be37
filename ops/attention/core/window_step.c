/* window_step.c - a step whose operator is a window with global tokens: its tasks, and its run in
 * three phases. window.h describes the operands.
 *
 * In: struct attn_window as the operator filled it in, and which tokens are global. Out: the
 * tasks and memory of the step, and Y. Cost: see window.h. */
#include "window.h"

attn_status attn_window_plan_step(attnrun_step *step, struct attn_window *w)
{
    TRY(attn_window_plan(step, w));
    step->scratch_bytes = w->scratch_bytes;
    step->shared_bytes = w->list_bytes;
    op_tasks(step, ATTN_WINDOW_LIST, w->globals ? w->s.batch : 0, w->s.kv_len);
    op_tasks(step, ATTN_WINDOW_TILES, w->n_tasks, w->task_cost);
    op_tasks(step, ATTN_WINDOW_ROWS, w->row_tasks, w->row_cost);
    return ATTNRUN_OK;
}

/* Lists the global tokens of sample b. */
static void window_list(const struct attn_window *w, const struct attn_window_operands *o,
                        const struct attn_window_globals *globals, int64_t b)
{
    const int64_t at = b * w->s.kv_len;
    attn_window_list(w, &o->lists, b, globals->first,
                     globals->mask != NULL ? globals->mask + at : NULL,
                     o->key_mask != NULL ? o->key_mask + at : NULL, globals->needs_key);
}

attn_status attn_window_run_step(const attnrun_step *step, const struct attn_window *w,
                                 const struct attn_window_operands *operands,
                                 const struct attn_window_globals *globals,
                                 const attnrun_work *work, attn_window_rows_fn *rows)
{
    struct attn_window_operands o = *operands;
    if (o.y == NULL)
        return ATTNRUN_OK;
    o.lists = attn_window_lists_at(w, work->shared);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == ATTN_WINDOW_LIST)
            window_list(w, &o, globals, task);
        else if (work->phase == ATTN_WINDOW_TILES)
            TRY(attn_window_run(w, step->kernels, &o, task, work));
        else if (rows != NULL)
            TRY(rows(step, &o, task, work));
        else
            TRY(attn_window_run_rows(w, step->kernels, &o, task, work));
    }
    return ATTNRUN_OK;
}

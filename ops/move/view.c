/* view.c - what Reshape, Squeeze, Unsqueeze and Flatten share: the output has the elements of
 * the input under other dims. view.h has the interface. Cost: none where the plan lets the output
 * share the memory of the input, else one copy. */
#include "view.h"

attn_status op_view_out(attnrun_step *step, int rank, const attnrun_dim *dims)
{
    TRY(op_out(step, 0, step->in[0].dtype, rank, dims));
    op_move_values_along(step);
    if (step->concrete && step->in[0].rank >= 0)
        op_move_tasks(step, 0,
                      dtype_bytes_of(step->in[0].dtype,
                                     op_count(&step->in[0], 0, step->in[0].rank)));
    attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

attn_status op_view_run(const attnrun_step *step, const attnrun_work *work)
{
    op_move_copy_chunks(step->y[0].data, step->x[0].data, tensor_bytes(&step->x[0]),
                        work->begin, work->end);
    return ATTNRUN_OK;
}

attn_status op_view_axes(const attnrun_step *step, const int64_t *axes, int n, int rank,
                         bool *marked)
{
    uint32_t seen = 0;
    for (int i = 0; i < n; i++) {
        int axis = 0;
        TRY(op_axis_once(step, axes[i], rank, &seen, &axis));
        marked[axis] = true;
    }
    return ATTNRUN_OK;
}

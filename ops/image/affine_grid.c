/* affine_grid.c - AffineGrid: the grid of GridSample for an affine map.
 *
 * theta  f32 or f64 [N, 2, 3] or [N, 3, 4]
 * size   i64: (N, C, H, W) or (N, C, D, H, W)
 * Y      [N, H, W, 2] or [N, D, H, W, 3]: theta times (x, y, 1) or (x, y, z, 1)
 *
 * x, y and z run over the pixel centres of [-1, 1], with align_corners from corner to
 * corner; a single pixel is then at the first corner, as in the reference.
 * A task is a line of the grid. Cost: 3 or 4 terms for each number of Y. Source: ONNX
 * AffineGrid-20. */
#include "real_pixels.h"
#include "../tile.h"

struct affine_args {
    int64_t align_corners;
};
struct affine_state {
    int32_t axes;
    int64_t size[3];
};

static const attnrun_attr_def affine_attrs[] = {
    ATTR_FLAG(struct affine_args, align_corners, 0), ATTR_END
};

static attn_status affine_infer(attnrun_step *step)
{
    struct affine_state *state = step->state;
    attnrun_dim size[5], out[5];
    int n = 0;
    bool known = false;
    TRY(op_dims(step, 1, size, 5, &n, &known));
    if (!known)
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    if (n != 4 && n != 5)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected 4 or 5 numbers");
    int axes = n - 2;
    if (op_rank_known(step, 0)) {
        TRY(op_need_rank(step, 0, 3));
        TRY(op_need_dim(step, 0, 0, size[0], "the batch in size"));
        TRY(op_need_dim(step, 0, 1, dim_of(axes), "the spatial axes in size"));
        TRY(op_need_dim(step, 0, 2, dim_of(axes + 1), "the spatial axes in size and 1"));
    }
    out[0] = size[0];
    for (int i = 0; i < axes; i++)
        out[i + 1] = size[i + 2];
    out[axes + 1] = dim_of(axes);
    for (int i = 0; i < n; i++)
        if (dim_is_const(size[i]) && (size[i].value < 0 || size[i].value > ATTN_MAX_DIM))
            return op_fail(step, ATTNRUN_E_SHAPE, "size holds %lld, expected 0 to 2^47",
                           (long long)size[i].value);
    TRY(op_out(step, 0, step->in[0].dtype, n, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->axes = axes;
    for (int i = 0; i < 3; i++)
        state->size[i] = i >= 3 - axes ? out[i - (3 - axes) + 1].value : 1;
    int64_t tasks = op_count(&step->out[0], 0, axes);
    if (tasks < 0)
        return op_fail_size(step, "the number of lines of the grid", "2^63 - 1");
    op_tasks(step, 0, state->size[2] > 0 ? tasks : 0, state->size[2] * 10 + 20);
    return ATTNRUN_OK;
}

static double centre(int64_t i, int64_t n, bool align)
{
    if (align)
        return n > 1 ? -1.0 + 2.0 * (double)i / (double)(n - 1) : -1.0;
    return (2.0 * (double)i + 1.0) / (double)n - 1.0;
}

static attn_status affine_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct affine_args *args = step->args;
    const struct affine_state *s = step->state;
    bool align = args->align_corners != 0;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t image = task, row = op_take(&image, s->size[1]),
                plane = op_take(&image, s->size[0]);
        double at[4] = { 0.0, centre(row, s->size[1], align),
                         centre(plane, s->size[0], align), 1.0 };
        at[s->axes] = 1.0;
        for (int64_t i = 0; i < s->size[2] && !attn_stops(i); i++) {
            at[0] = centre(i, s->size[2], align);
            for (int64_t r = 0; r < s->axes; r++) {
                double sum = 0.0;
                for (int64_t c = 0; c <= s->axes; c++)
                    sum += at[c] * real_get(&step->x[0],
                                            (image * s->axes + r) * (s->axes + 1) + c);
                real_put(&step->y[0], (task * s->size[2] + i) * s->axes + r, sum);
            }
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_affine_grid_20 = {
    OP_ROW,
    .name = "AffineGrid",
    .since = 20,
    .args_bytes = sizeof(struct affine_args),
    .state_bytes = sizeof(struct affine_state),
    .inputs = "theta:T size:i64",
    .outputs = "grid:T",
    .types = "T=f32,f64",
    .attrs = affine_attrs,
    .infer = affine_infer,
    .run = affine_run,
};

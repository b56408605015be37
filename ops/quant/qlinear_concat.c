/* qlinear_concat.c - com.microsoft QLinearConcat: joins tensors of bytes along one axis,
 * each converted to the scale and zero point of the result.
 *
 * Y_scale, Y_zero_point, then for each part: tensor (u8 or i8 like Y_zero_point), scale
 * (f32), zero point; scales and zero points are one number each
 *
 * Cost: one pass. Source: ONNX Runtime contrib operators; compared with onnxruntime
 * 1.32.0. */
#include "../tile.h"
#include "qlinear.h"

enum { Y_SCALE, Y_ZERO, FIRST };
enum { SHARE_BYTES = 1 << 15, MAX_SHARES = 64 /* of a part: its tasks */ };

struct qlinear_concat_state {
    int64_t shares;
};

struct qlinear_concat_args {
    int64_t axis;
};
static const attnrun_attr_def concat_attrs[] = {
    ATTR_INT_REQUIRED(struct qlinear_concat_args, axis), ATTR_END
};

static attn_status check_part(const attnrun_step *step, int in)
{
    if (step->in[in].kind != ATTNRUN_TENSOR ||
        step->in[in].dtype != step->in[Y_ZERO].dtype)
        return op_fail_input(step, in, ATTNRUN_E_DTYPE,
                             "expected the type of Y_zero_point");
    if (step->in[in + 1].kind != ATTNRUN_TENSOR || step->in[in + 1].dtype != ATTNRUN_F32)
        return op_fail_input(step, in + 1, ATTNRUN_E_DTYPE, "expected a scale, f32");
    if (step->in[in + 2].kind != ATTNRUN_TENSOR ||
        step->in[in + 2].dtype != step->in[in].dtype)
        return op_fail_input(step, in + 2, ATTNRUN_E_DTYPE,
                             "expected a zero point of its tensor's type");
    return op_qlinear_check(step, in + 1, in + 2);
}

static attn_status qlinear_concat_infer(attnrun_step *step)
{
    const struct qlinear_concat_args *args = step->args;
    const int n = step->n_in;
    int axis = 0, rank = -1;
    bool known = true;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    if (n <= FIRST || (n - FIRST) % 3 != 0)
        return op_fail(step, ATTNRUN_E_INPUT, "it has %s, expected 2 and 3 for each part",
                       attn_plural(n, "input"));
    TRY(op_qlinear_check(step, Y_SCALE, Y_ZERO));
    for (int in = FIRST; in < n; in += 3) {
        const attnrun_type *x = &step->in[in];
        TRY(check_part(step, in));
        known = known && x->rank >= 0;
        if (!known)
            continue;
        if (rank >= 0)
            TRY(op_need_rank(step, in, rank));
        else
            TRY(op_axis(step, args->axis, x->rank, false, &axis));
        for (int d = 0; d < x->rank; d++) {
            if (rank >= 0 && d != axis)
                TRY(op_need_dim(step, in, d, dims[d], "as the first part"));
            else
                dims[d] =
                    rank < 0 ? x->dims[d] : attnrun_dim_add(step, dims[d], x->dims[d]);
        }
        rank = x->rank;
    }
    if (!known)
        return op_out(step, 0, step->in[Y_ZERO].dtype, -1, NULL);
    TRY(op_out(step, 0, step->in[Y_ZERO].dtype, rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct qlinear_concat_state *state = step->state;
    const int64_t parts = (n - FIRST) / 3, bytes = op_count(&step->out[0], 0, rank);
    if (bytes < 0 || bytes > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "the number of elements of the result", "2^46");
    state->shares = min64(max64(bytes / parts / SHARE_BYTES, 1), MAX_SHARES);
    op_tasks(step, 0, parts * state->shares, bytes / parts / state->shares / 8 + 200);
    return ATTNRUN_OK;
}

/* The rows of part `in` that task `share` of so many of them has. */
static attn_status copy_part(const attnrun_step *step, const attnrun_work *work, int in,
                             int64_t share, int64_t shares, const uint8_t *table)
{
    const attnrun_tensor *x = &step->x[in], *y = &step->y[0];
    const int64_t named = ((const struct qlinear_concat_args *)step->args)->axis;
    const int axis = (int)(named < 0 ? named + y->rank : named);
    const int64_t row = tensor_dims_product(x, axis, x->rank);
    const int64_t y_row = tensor_dims_product(y, axis, y->rank);
    const int64_t rows = tensor_dims_product(x, 0, axis);
    const int64_t from = row * share / shares, n = row * (share + 1) / shares - from;
    int64_t before = 0;
    for (int i = FIRST; i < in; i += 3)
        before += tensor_dims_product(&step->x[i], axis, x->rank);
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *of_x = (const uint8_t *)x->data + r * row + from;
        uint8_t *to = (uint8_t *)y->data + r * y_row + before + from;
        if (OP_CANCELLED_AFTER(work, 2 * n))
            return ATTNRUN_E_CANCELLED;
        if (table == NULL)
            memcpy(to, of_x, (size_t)n);
        else
            step->kernels->look_up_u8(to, of_x, table, (size_t)n);
    }
    return ATTNRUN_OK;
}

static attn_status qlinear_concat_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct qlinear_concat_state *state = step->state;
    const struct op_qlinear to = op_qlinear_of(step, Y_SCALE, Y_ZERO);
    uint8_t table[256];
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t part = t;
        const int64_t share = op_take(&part, state->shares);
        const int in = FIRST + 3 * (int)part;
        const struct op_qlinear from = op_qlinear_of(step, in + 1, in + 2);
        const bool same = from.scale == to.scale && from.zero == to.zero;
        if (!same)
            op_qlinear_table(table, step->in[in].dtype == ATTNRUN_I8, from, to, NULL, 0);
        TRY(copy_part(step, work, in, share, state->shares, same ? NULL : table));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_concat_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QLinearConcat",
    .since = 1,
    .inputs = "Y_scale:f32 Y_zero_point:T inputs:any*!",
    .outputs = "Y:T",
    .types = "T=u8,i8",
    .args_bytes = sizeof(struct qlinear_concat_args),
    .state_bytes = sizeof(struct qlinear_concat_state),
    .attrs = concat_attrs,
    .infer = qlinear_concat_infer,
    .run = qlinear_concat_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};

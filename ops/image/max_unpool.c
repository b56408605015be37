/* max_unpool.c - MaxUnpool: puts pooled elements back where MaxPool found them, and zeros
 * elsewhere.
 *
 * X             f32 or f64 [N, C, in]
 * I             [N, C, in], i64 as MaxPool's Indices
 * output_shape  i64, all dims; without it (in - 1) stride - pads + kernel along each axis
 * Y             [N, C, out]
 *
 * The indices count over the shape that would hold without output_shape; this shape fills
 * the front of a larger output. Cost: one write of Y and one read of X and I. Source:
 * ONNX MaxUnpool-11. */
#include "real_pixels.h"
#include "sliding_window.h"
#include "../tile.h"

struct unpool_state {
    int64_t natural[ATTNRUN_MAX_RANK];
    int64_t natural_count;
};

static const attnrun_attr_def unpool_attrs[] = {
    ATTR_INTS_REQUIRED(struct window_attrs, kernel_shape),
    ATTR_INTS(struct window_attrs, strides), ATTR_INTS(struct window_attrs, pads),
    ATTR_END
};

static attnrun_dim natural_dim(const attnrun_step *step, int n, int i)
{
    const struct window_attrs *args = step->args;
    attnrun_dim in = attnrun_dim_sub(step, step->in[0].dims[i + 2], dim_of(1));
    int64_t pads = window_attr(args->pads, i, 0) + window_attr(args->pads, i + n, 0);
    in = attnrun_dim_mul(step, in, dim_of(window_attr(args->strides, i, 1)));
    return attnrun_dim_add(step, in,
                           dim_of(window_attr(args->kernel_shape, i, 1) - pads));
}

static attn_status check_output(const attnrun_step *step, int rank,
                                const attnrun_dim *natural, const attnrun_dim *out)
{
    for (int i = 0; i < rank; i++)
        if (dim_is_const(natural[i]) && dim_is_const(out[i]) &&
            (natural[i].value < 0 || out[i].value < natural[i].value))
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "axis %d of the output is %lld, expected at least %lld", i,
                           (long long)out[i].value, (long long)natural[i].value);
    return ATTNRUN_OK;
}

static attn_status unpool_infer(attnrun_step *step)
{
    const struct window_attrs *args = step->args;
    struct unpool_state *state = step->state;
    int n;
    TRY(attn_window_rank(step, &n));
    if (n < 0)
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(attn_window_check(step, args, n));
    if (op_rank_known(step, 1)) {
        TRY(op_need_rank(step, 1, n + 2));
        for (int i = 0; i < n + 2; i++)
            TRY(op_need_dim(step, 1, i, step->in[0].dims[i], "X"));
    }
    attnrun_dim natural[ATTNRUN_MAX_RANK], out[ATTNRUN_MAX_RANK];
    memcpy(natural, step->in[0].dims, 2 * sizeof *natural);
    for (int i = 0; i < n; i++)
        natural[i + 2] = natural_dim(step, n, i);
    memcpy(out, natural, sizeof out);
    if (op_has_in(step, 2)) {
        int given = 0;
        bool known = false;
        TRY(op_dims(step, 2, out, ATTNRUN_MAX_RANK, &given, &known));
        if (known && given != n + 2)
            return op_fail_input(step, 2, ATTNRUN_E_SHAPE, "expected %s",
                                 attn_plural(n + 2, "number"));
        for (int i = 0; !known && i < n + 2; i++)
            out[i] = attnrun_dim_unknown(step);
    }
    TRY(check_output(step, n + 2, natural, out));
    TRY(op_out(step, 0, step->in[0].dtype, n + 2, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->natural_count = 1;
    for (int i = 0; i < n + 2; i++) {
        state->natural[i] = natural[i].value;
        if (!ck_mul(state->natural_count, natural[i].value, &state->natural_count))
            return op_fail_size(step, "the number of elements of the unpooled image",
                                "2^63 - 1");
    }
    return ATTNRUN_OK;
}

static attn_status unpool_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct unpool_state *state = step->state;
    const attnrun_tensor *y = &step->y[0];
    const int64_t *index = step->x[1].data;
    int64_t n = tensor_count(&step->x[0]), bytes = dtype_bytes(y->dtype);
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        if (index[i] < 0 || index[i] >= state->natural_count)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "index %lld is %lld, expected 0 to %lld", (long long)i,
                           (long long)index[i], (long long)state->natural_count - 1);
    TRY(attn_poll_fill(y->data, 0, tensor_bytes(y)));
    for (int64_t i = 0; i < n; i++) {
        if ((i & 0xffff) == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t rest = index[i], at = 0, scale = 1;
        for (int a = y->rank - 1; a >= 0; a--) {
            at += op_take(&rest, state->natural[a]) * scale;
            scale *= y->dims[a];
        }
        memcpy((uint8_t *)y->data + at * bytes,
               (const uint8_t *)step->x[0].data + i * bytes, (size_t)bytes);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_max_unpool_9 = {
    OP_ROW,
    .name = "MaxUnpool",
    .since = 9,
    .args_bytes = sizeof(struct window_attrs),
    .state_bytes = sizeof(struct unpool_state),
    .inputs = "X:T I:i64 output_shape:i64?",
    .outputs = "output:T",
    .types = "T=f32,f64",
    .attrs = unpool_attrs,
    .infer = unpool_infer,
    .run = unpool_run,
};

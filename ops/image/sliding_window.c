/* sliding_window.c - checks and sizes of sliding windows. sliding_window.h describes
 * struct window.
 *
 *   out = floor((in + before + after - ((kernel - 1) * dilation + 1)) / stride) + 1
 *
 * With ceil_mode the division rounds up, but a last window that would start behind the
 * input and its front pad is left out. Nothing, with pads that keep the size, gives nothing.
 * auto_pad SAME_*: out = ceil(in / stride), and the odd pixel of padding goes to the end (UPPER) or
 * to the front (LOWER). Source: ONNX Conv-11, MaxPool-12. */
#include "sliding_window.h"

static attn_status window_check_list(const attnrun_step *step, const char *name,
                                     attnrun_ints ints, int64_t n, int64_t min)
{
    if (ints.v == NULL)
        return ATTNRUN_OK;
    if (ints.n != n)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute %s has %s, expected %lld", name,
                       attn_plural(ints.n, "number"), (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (ints.v[i] < min || ints.v[i] > INT32_MAX)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "attribute %s holds %lld, expected %lld to 2147483647", name,
                           (long long)ints.v[i], (long long)min);
    return ATTNRUN_OK;
}

attn_status attn_window_check(const attnrun_step *step, const struct window_attrs *attrs,
                              int n)
{
    TRY(window_check_list(step, "kernel_shape", attrs->kernel_shape, n, 1));
    TRY(window_check_list(step, "strides", attrs->strides, n, 1));
    TRY(window_check_list(step, "dilations", attrs->dilations, n, 1));
    return window_check_list(step, "pads", attrs->pads, 2 * (int64_t)n, 0);
}

attn_status attn_window_rank(const attnrun_step *step, int *n)
{
    *n = -1;
    if (!op_rank_known(step, 0))
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, 0, 3, 2 + WINDOW_AXES));
    *n = step->in[0].rank - 2;
    return ATTNRUN_OK;
}

/* The distance that the window can move: in + before + after - (kernel - 1) * dilation -
 * 1. */
static attnrun_dim travel(const attnrun_step *step, const struct window_attrs *attrs,
                          int n, int axis, attnrun_dim in, attnrun_dim kernel)
{
    int64_t pads = 0;
    if (attrs->auto_pad == WINDOW_NOTSET)
        pads = window_attr(attrs->pads, axis, 0) + window_attr(attrs->pads, axis + n, 0);
    attnrun_dim reach = attnrun_dim_sub(step, kernel, dim_of(1));
    reach = attnrun_dim_mul(step, reach, dim_of(window_attr(attrs->dilations, axis, 1)));
    attnrun_dim room = attnrun_dim_add(step, in, dim_of(pads - 1));
    return attnrun_dim_sub(step, room, reach);
}

attn_status attn_window_out(const attnrun_step *step, const struct window_attrs *attrs,
                            int n, int axis, attnrun_dim in, attnrun_dim kernel,
                            bool ceil_mode, attnrun_dim *out)
{
    attnrun_dim stride = dim_of(window_attr(attrs->strides, axis, 1));
    attnrun_dim up = dim_of(stride.value - 1);
    if (dim_is_const(kernel) && (kernel.value < 1 || kernel.value > INT32_MAX))
        return op_fail(
            step, ATTNRUN_E_SHAPE,
            "the kernel is %lld wide along spatial axis %d, expected 1 to 2147483647",
            (long long)kernel.value, axis);
    if (attrs->auto_pad == WINDOW_SAME_UPPER || attrs->auto_pad == WINDOW_SAME_LOWER) {
        *out = attnrun_dim_div(step, attnrun_dim_add(step, in, up), stride);
        return ATTNRUN_OK;
    }
    attnrun_dim room = travel(step, attrs, n, axis, in, kernel);
    ceil_mode = ceil_mode && stride.value > 1;
    int64_t min = ceil_mode ? 1 - stride.value : 0; /* ceil: one window may hang over */
    if (dim_is(in, 0) && dim_is(room, -1)) {        /* by pads that auto_pads.c writes */
        *out = in;
        return ATTNRUN_OK;
    }
    if (dim_is_const(room) && room.value < min)
        return op_fail(
            step, ATTNRUN_E_SHAPE,
            "spatial axis %d: the input of size %lld, with its padding, is smaller "
            "than the kernel of size %lld with dilation %lld",
            axis, (long long)in.value, (long long)kernel.value,
            (long long)window_attr(attrs->dilations, axis, 1));
    if (ceil_mode)
        room = attnrun_dim_add(step, room, up);
    *out = attnrun_dim_add(step, attnrun_dim_div(step, room, stride), dim_of(1));
    if (ceil_mode) {
        int64_t front =
            attrs->auto_pad == WINDOW_NOTSET ? window_attr(attrs->pads, axis, 0) : 0;
        attnrun_dim max = attnrun_dim_add(step, in, dim_of(front - 1));
        max = attnrun_dim_div(step, max, stride);
        *out = attnrun_dim_min(step, *out, attnrun_dim_add(step, max, dim_of(1)));
    }
    return ATTNRUN_OK;
}

static void same_pads(const struct window_attrs *attrs, struct window *w, int a)
{
    int64_t reach = (w->kernel[a] - 1) * w->dilation[a] + 1;
    int64_t total = (w->out[a] - 1) * w->stride[a] + reach - w->in[a];
    if (total < 0)
        total = 0;
    int64_t half = total / 2;
    w->before[a] = attrs->auto_pad == WINDOW_SAME_UPPER ? half : total - half;
    w->after[a] = total - w->before[a];
}

attn_status attn_window_resolve(const attnrun_step *step,
                                const struct window_attrs *attrs, int n,
                                const attnrun_dim *in, const attnrun_dim *kernel,
                                bool ceil_mode, struct window *w)
{
    for (int a = 0; a < WINDOW_AXES; a++) {
        w->in[a] = w->out[a] = w->kernel[a] = w->stride[a] = w->dilation[a] = 1;
        w->before[a] = w->after[a] = 0;
    }
    for (int i = 0; i < n; i++) {
        int a = WINDOW_AXES - n + i;
        attnrun_dim out;
        TRY(attn_window_out(step, attrs, n, i, in[i], kernel[i], ceil_mode, &out));
        w->in[a] = in[i].value;
        w->out[a] = out.value;
        w->kernel[a] = kernel[i].value;
        w->stride[a] = window_attr(attrs->strides, i, 1);
        w->dilation[a] = window_attr(attrs->dilations, i, 1);
        if (attrs->auto_pad == WINDOW_NOTSET) {
            w->before[a] = window_attr(attrs->pads, i, 0);
            w->after[a] = window_attr(attrs->pads, i + n, 0);
        } else if (attrs->auto_pad != WINDOW_VALID) {
            same_pads(attrs, w, a);
        }
    }
    return ATTNRUN_OK;
}

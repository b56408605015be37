/* conv_plain.c - convolution of f64 in plain loops. A task is one row of output pixels of
 * all output channels of a group. In: X, W, bias. Out: rows of Y. Cost: see conv.h,
 * without vectors. Source: ONNX Conv-11. */
#include "conv.h"

struct plain_row {
    int64_t at[2];   /* output depth and row */
    int64_t x;       /* element of X where the group begins */
    int64_t channel; /* first output channel of the group */
    int64_t y;       /* element of Y of the row in that channel */
};

/* Adds all taps of one output channel to a row of output pixels; `x` is the first channel
 * of the group, `w` the weights of the output channel. */
static void plain_add_row(double *sum, const double *x, const double *w,
                          const struct conv_shape *s, const int64_t row[2])
{
    const struct window *win = &s->w;
    for (int64_t tap = 0; tap < s->k; tap++) {
        int64_t kw = tap % win->kernel[2], kh = tap / win->kernel[2] % win->kernel[1];
        int64_t kd = tap / (win->kernel[2] * win->kernel[1]) % win->kernel[0];
        int64_t d = row[0] * win->stride[0] - win->before[0] + kd * win->dilation[0];
        int64_t h = row[1] * win->stride[1] - win->before[1] + kh * win->dilation[1];
        int64_t offset = kw * win->dilation[2], from, to;
        window_valid(win, 2, offset, &from, &to);
        if (attn_poll_work(8 * (to - from) + 4) != ATTNRUN_OK)
            return;
        if (d < 0 || d >= win->in[0] || h < 0 || h >= win->in[1])
            continue;
        const double *at =
            x + ((tap / s->taps * win->in[0] + d) * win->in[1] + h) * win->in[2];
        int64_t stride = win->stride[2], shift = offset - win->before[2];
        for (int64_t i = from; i < to; i++)
            sum[i] += w[tap] * at[i * stride + shift];
    }
}

attn_status attn_conv_plain_plan(attnrun_step *step, const struct conv_shape *s)
{
    double macs = (double)s->rows * (double)s->k * (double)s->w.out[2];
    op_tasks(step, 0, s->batch * s->groups * s->w.out[0] * s->w.out[1],
             window_cost(macs * 0.5 + 200.0));
    return ATTNRUN_OK;
}

static void plain_find_row(const struct conv_shape *s, int64_t task,
                           struct plain_row *row)
{
    row->at[1] = op_take(&task, s->w.out[1]);
    row->at[0] = op_take(&task, s->w.out[0]);
    row->x = task * s->channels * s->inputs; /* task: the group of all images */
    row->y = task * s->rows * s->pixels +
             (row->at[0] * s->w.out[1] + row->at[1]) * s->w.out[2];
    row->channel = op_take(&task, s->groups) * s->rows;
}

attn_status attn_conv_f64_run(const attnrun_step *step, const attnrun_work *work,
                              const struct conv_shape *s)
{
    const double *x = step->x[0].data, *w = step->x[1].data;
    const double *bias = op_in_data(step, 2);
    double *y = step->y[0].data;
    for (int64_t task = work->begin; task < work->end; task++) {
        struct plain_row row;
        plain_find_row(s, task, &row);
        for (int64_t m = 0; m < s->rows; m++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            double *sum = y + row.y + m * s->pixels;
            for (int64_t i = 0; i < s->w.out[2]; i++)
                sum[i] = bias != NULL ? bias[row.channel + m] : 0.0;
            plain_add_row(sum, x + row.x, w + (row.channel + m) * s->k, s, row.at);
        }
    }
    return ATTNRUN_OK;
}

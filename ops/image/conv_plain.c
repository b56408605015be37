/* conv_plain.c - convolution in plain loops: f64, and 8-bit integers with 32-bit sums.
 * One task is one row of output pixels of all output channels of a group. */
#include "conv_plain.h"

#define ROW_NAME row_f64
#define ROW_X    double
#define ROW_W    double
#define ROW_SUM  double
#include "conv_row.h"
#define ROW_NAME row_u8_u8
#define ROW_X    uint8_t
#define ROW_W    uint8_t
#define ROW_SUM  uint32_t
#include "conv_row.h"
#define ROW_NAME row_u8_i8
#define ROW_X    uint8_t
#define ROW_W    int8_t
#define ROW_SUM  uint32_t
#include "conv_row.h"
#define ROW_NAME row_i8_u8
#define ROW_X    int8_t
#define ROW_W    uint8_t
#define ROW_SUM  uint32_t
#include "conv_row.h"
#define ROW_NAME row_i8_i8
#define ROW_X    int8_t
#define ROW_W    int8_t
#define ROW_SUM  uint32_t
#include "conv_row.h"

attn_status attn_conv_plain_plan(attnrun_step *step, const struct conv_shape *s)
{
    double macs = (double)s->rows * (double)s->k * (double)s->w.out[2];
    op_tasks(step, 0, s->batch * s->groups * s->w.out[0] * s->w.out[1],
             window_cost(macs * 0.5 + 200.0));
    return ATTNRUN_OK;
}

void attn_conv_plain_at(const struct conv_shape *s, int64_t task,
                        struct conv_plain_row *row)
{
    int64_t rows = s->w.out[0] * s->w.out[1];
    int64_t group = task / rows % s->groups, image = task / rows / s->groups;
    row->at[0] = task % rows / s->w.out[1];
    row->at[1] = task % rows % s->w.out[1];
    row->x = (image * s->groups + group) * s->channels * s->inputs;
    row->channel = group * s->rows;
    row->y =
        (image * s->groups + group) * s->rows * s->pixels + task % rows * s->w.out[2];
}

attn_status attn_conv_f64_run(const attnrun_step *step, const attnrun_work *work,
                              const struct conv_shape *s)
{
    const double *x = step->x[0].data, *w = step->x[1].data;
    const double *bias = op_in_data(step, 2);
    double *y = step->y[0].data;
    for (int64_t task = work->begin; task < work->end; task++) {
        struct conv_plain_row row;
        attn_conv_plain_at(s, task, &row);
        for (int64_t m = 0; m < s->rows; m++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            double *sum = y + row.y + m * s->pixels;
            for (int64_t i = 0; i < s->w.out[2]; i++)
                sum[i] = bias != NULL ? bias[row.channel + m] : 0.0;
            row_f64(sum, x + row.x, w + (row.channel + m) * s->k, s, row.at, 0.0, 0.0);
        }
    }
    return ATTNRUN_OK;
}

void attn_conv_int_row(uint32_t *sum, const attnrun_tensor *x, const attnrun_tensor *w,
                       const struct conv_shape *s, const struct conv_plain_row *row,
                       int64_t m, int32_t x_zero, int32_t w_zero)
{
    const void *from = (const uint8_t *)x->data + row->x;
    const void *weights = (const uint8_t *)w->data + (row->channel + m) * s->k;
    bool x_signed = x->dtype == ATTNRUN_I8, w_signed = w->dtype == ATTNRUN_I8;
    uint32_t xz = (uint32_t)x_zero, wz = (uint32_t)w_zero;
    if (x_signed && w_signed)
        row_i8_i8(sum, from, weights, s, row->at, xz, wz);
    else if (x_signed)
        row_i8_u8(sum, from, weights, s, row->at, xz, wz);
    else if (w_signed)
        row_u8_i8(sum, from, weights, s, row->at, xz, wz);
    else
        row_u8_u8(sum, from, weights, s, row->at, xz, wz);
}

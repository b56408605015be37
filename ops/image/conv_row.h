/* conv_row.h - template: adds to one row of output pixels what all taps of one output
 * channel give. Parameters, undefined at the end: ROW_NAME  the function;  ROW_X, ROW_W
 * element types;  ROW_SUM  type of the sums `x` is the first channel of the group, `w`
 * the weights of the output channel. */
static void ROW_NAME(ROW_SUM *sum, const ROW_X *x, const ROW_W *w,
                     const struct conv_shape *s, const int64_t row[2], ROW_SUM x_zero,
                     ROW_SUM w_zero)
{
    const struct window *win = &s->w;
    for (int64_t tap = 0; tap < s->k; tap++) {
        int64_t kw = tap % win->kernel[2], kh = tap / win->kernel[2] % win->kernel[1];
        int64_t kd = tap / (win->kernel[2] * win->kernel[1]) % win->kernel[0];
        int64_t d = row[0] * win->stride[0] - win->before[0] + kd * win->dilation[0];
        int64_t h = row[1] * win->stride[1] - win->before[1] + kh * win->dilation[1];
        if (d < 0 || d >= win->in[0] || h < 0 || h >= win->in[1])
            continue;
        int64_t offset = kw * win->dilation[2], from, to;
        window_valid(win, 2, offset, &from, &to);
        const ROW_X *at =
            x + ((tap / s->taps * win->in[0] + d) * win->in[1] + h) * win->in[2];
        const ROW_SUM weight = (ROW_SUM)w[tap] - w_zero;
        int64_t stride = win->stride[2], shift = offset - win->before[2];
        if (stride == 1)
            for (int64_t i = from; i < to; i++)
                sum[i] += weight * ((ROW_SUM)at[i + shift] - x_zero);
        else
            for (int64_t i = from; i < to; i++)
                sum[i] += weight * ((ROW_SUM)at[i * stride + shift] - x_zero);
    }
}
#undef ROW_NAME
#undef ROW_X
#undef ROW_W
#undef ROW_SUM

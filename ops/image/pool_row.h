/* pool_row.h - template: one row of output pixels of a pooling of one plane. First the
 * rows of the input that the windows see are joined into `line`, then the taps along the
 * row. Parameters, undefined at the end:
 *
 *   POOL_NAME        the function
 *   POOL_T           the type of y and line
 *   POOL_X           the element type of x; POOL_T where undefined
 *   POOL_FIRST       the result of an empty window
 *   POOL_IN(v, p)    an input element, before it is joined
 *   POOL_JOIN(a, v)  the result a joined with v
 *
 * y must hold w->out[2] elements, and line w->in[2]. It polls, and may leave y unfinished.
 * Cost: one POOL_JOIN for each tap. */
#ifndef POOL_X
#define POOL_X POOL_T
#endif
static void POOL_NAME(POOL_T *y, POOL_T *line, const POOL_X *x, const struct window *w,
                      const int64_t at[2], double p)
{
    int64_t d0, d1, h0, h1, k0, k1;
    attn_pool_taps(w, 0, at[0], at[0], &d0, &d1);
    attn_pool_taps(w, 1, at[1], at[1], &h0, &h1);
    attn_pool_taps(w, 2, 0, w->out[2] - 1, &k0, &k1);
    for (int64_t i = 0; i < w->out[2]; i++)
        y[i] = POOL_FIRST;
    if (d0 >= d1 || h0 >= h1 || w->in[2] == 0)
        return;
    for (int64_t i = 0; i < w->in[2]; i++)
        line[i] = POOL_FIRST;
    (void)p;
    for (int64_t kd = d0; kd < d1; kd++)
        for (int64_t kh = h0; kh < h1 && !attn_pool_stops(8 * w->in[2]); kh++) {
            int64_t d = at[0] * w->stride[0] - w->before[0] + kd * w->dilation[0];
            int64_t h = at[1] * w->stride[1] - w->before[1] + kh * w->dilation[1];
            const POOL_X *row = x + (d * w->in[1] + h) * w->in[2];
            for (int64_t i = 0; i < w->in[2]; i++) {
                const POOL_T v = (POOL_T)POOL_IN(row[i], p);
                line[i] = POOL_JOIN(line[i], v);
            }
        }
    for (int64_t kw = k0; kw < k1 && !attn_pool_stops(8 * w->out[2]); kw++) {
        int64_t offset = kw * w->dilation[2], from, to;
        window_valid(w, 2, offset, &from, &to);
        if (from >= to) {
            kw = attn_pool_skip(w, kw);
            continue;
        }
        const POOL_T *tap = line + offset - w->before[2];
        if (w->stride[2] == 1)
            for (int64_t i = from; i < to; i++)
                y[i] = POOL_JOIN(y[i], tap[i]);
        else if (w->stride[2] == 2 && sizeof(POOL_T) < 8) /* a vector has some */
            for (int64_t i = from; i < to; i++)
                y[i] = POOL_JOIN(y[i], tap[2 * i]);
        else
            for (int64_t i = from; i < to; i++)
                y[i] = POOL_JOIN(y[i], tap[i * w->stride[2]]);
    }
}
#undef POOL_NAME
#undef POOL_T
#undef POOL_X
#undef POOL_FIRST
#undef POOL_IN
#undef POOL_JOIN

/* clip_template.h - the loop of Clip for one element type. for_each_dtype.h describes the
 * parameters. */
static void N(clip_loop)(void *to, const void *from, int64_t n, const void *low_at,
                         const void *high_at)
{
    T *y = to;
    const T *x = from;
    T low = low_at ? *(const T *)low_at : 0, high = high_at ? *(const T *)high_at : 0;
    for (int64_t i = 0; i < n; i++) {
        T v = x[i];
        if (low_at != NULL && v < low)
            v = low;
        if (high_at != NULL && v > high)
            v = high;
        y[i] = v;
    }
}

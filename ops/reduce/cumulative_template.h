/* cumulative_template.h - running sum or product of a line, for one element type.
 * for_each_dtype.h describes the parameters. Floats are summed in double, integers wrap.
 * There is no include guard. */
#if T_FLOAT
#define RUNNING double
#else
#define RUNNING W
#endif
static void N(cumulate)(void *to, const void *line, int64_t n, int64_t stride,
                        bool product, bool exclusive)
{
    const T *x = line;
    T *y = to;
    RUNNING running = product ? 1 : 0;
    for (int64_t i = 0; i < n && !attn_stops(i); i++) {
        RUNNING before = running;
        T v = x[i * stride];
        running = product ? running * (RUNNING)v : running + (RUNNING)v;
        y[i * stride] = (T)(exclusive ? before : running);
    }
}
#undef RUNNING

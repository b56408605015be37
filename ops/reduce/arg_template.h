/* arg_template.h - the index of the best element of a line, for one element type.
 * for_each_dtype.h describes the parameters. The first NaN is the best. There is no
 * include guard. */
static int64_t N(best_index)(const void *line, int64_t n, int64_t stride, bool largest,
                             bool last)
{
    const T *x = line;
    int64_t found = 0;
    T best = x[0];
    for (int64_t i = 1; i < n && !IS_NAN(best) && !attn_stops(i); i++) {
        T v = x[i * stride];
        bool better = largest ? v > best : v < best;
        if (better || IS_NAN(v) || (last && v == best)) {
            best = v;
            found = i;
        }
    }
    return found;
}

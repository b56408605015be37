/* combine_type.h - template: y[i] = y[i] op x[i] for one element type. Parameters,
 * undefined at the end: C (the C type), NAME(op), ADD(a, b), MUL(a, b), LESS(a, b) (false
 * for NaN), IS_NAN(a). */
static void NAME(add)(void *to, const void *from, int64_t n)
{
    C *y = to;
    const C *x = from;
    for (int64_t i = 0; i < n; i++)
        y[i] = ADD(y[i], x[i]);
}

static void NAME(mul)(void *to, const void *from, int64_t n)
{
    C *y = to;
    const C *x = from;
    for (int64_t i = 0; i < n; i++)
        y[i] = MUL(y[i], x[i]);
}

/* A NaN on either side stays, as numpy's maximum does. */
static void NAME(max)(void *to, const void *from, int64_t n)
{
    C *y = to;
    const C *x = from;
    for (int64_t i = 0; i < n; i++)
        if (IS_NAN(x[i]) || LESS(y[i], x[i]))
            y[i] = x[i];
}

static void NAME(min)(void *to, const void *from, int64_t n)
{
    C *y = to;
    const C *x = from;
    for (int64_t i = 0; i < n; i++)
        if (IS_NAN(x[i]) || LESS(x[i], y[i]))
            y[i] = x[i];
}
#undef C
#undef NAME
#undef ADD
#undef MUL
#undef LESS
#undef IS_NAN

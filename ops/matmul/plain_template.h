/* plain_template.h - a row of a matrix product. Parameters: T is the element type
 * (unsigned for integers, so that they wrap), and N(name) is the name with its suffix. */
static attn_status N(plain_row)(const struct attn_gemm *g, const struct attn_plain *p,
                                const T *a, const T *b, const T *c0, T *c,
                                const attnrun_work *work)
{
    for (int64_t j = 0; j < g->n; j++)
        c[j] = 0;
    const int64_t each = g->n > 4096 ? 1 : 64; /* terms between two polls */
    for (int64_t k = 0; k < g->k; k++) {
        T x = a[k * g->a_col];
        const T *row = b + k * g->b_row;
        if ((k & (each - 1)) == each - 1 &&
            OP_CANCELLED_AFTER(work, each * g->n * (int64_t)sizeof(T)))
            return ATTNRUN_E_CANCELLED;
        for (int64_t j = 0; j < g->n; j++)
            c[j] = (T)(c[j] + x * row[j * g->b_col]);
    }
    if (p->alpha == 1.0 && c0 == NULL)
        return ATTNRUN_OK;
    const T alpha = N(plain_scale)(p->alpha), beta = N(plain_scale)(p->beta);
    for (int64_t j = 0; j < g->n; j++)
        c[j] = (T)(alpha * c[j] + (c0 != NULL ? (T)(beta * c0[j * p->c0_col]) : 0));
    return ATTNRUN_OK;
}

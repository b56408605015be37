/* sdpa_mask.c - what is added to the scores of softmax attention, in a plan: a mask, or numbers of
 * the rows and columns of a map of keys. In: the types of inputs. Out: the members of struct
 * attn_sdpa that describe the mask (sdpa.h). */
#include "sdpa.h"

attn_status attn_sdpa_plan_mask(const attnrun_step *step, int in, struct attn_sdpa *s)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    const attnrun_type *t = &step->in[in];
    TRY(op_need_rank_between(step, in, 1, 4));
    const int64_t want[3] = { s->batch, s->q_heads, s->q_len };
    int64_t strides[3] = { 0, 0, 0 }, stride = t->dims[t->rank - 1].value;
    s->mask_len = stride;
    for (int i = 2, at = t->rank - 2; at >= 0; i--, at--) {
        int64_t dim = t->dims[at].value;
        if (dim != 1 && dim != want[i])
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "dim %d cannot be broadcast to %lld", at,
                                 (long long)want[i]);
        strides[i] = dim == 1 ? 0 : stride;
        if (dim > 0) /* an empty mask is not read */
            stride *= dim;
    }
    if (s->mask_len > s->kv_len)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected at most %s",
                             attn_plural(s->kv_len, "key"));
    s->mask = (struct attn_heads){ strides[0], strides[1], strides[2] };
    s->mask_kind = attn_mask_kind_of(t->dtype);
    s->mask_dtype = t->dtype;
    return ATTNRUN_OK;
}

/* The strides of `n` numbers for each query. */
static struct attn_heads of_queries(const struct attn_sdpa *s, int64_t n)
{
    return (struct attn_heads){ s->q_heads * s->q_len * n, s->q_len * n, n };
}

/* Fails unless there are `n` numbers for each query. */
static attn_status need_numbers(const attnrun_step *step, int in,
                                const struct attn_sdpa *s, int64_t n)
{
    const attnrun_type *t = &step->in[in];
    const int64_t queries = s->batch * s->q_heads * s->q_len;
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++)
        if (!ck_mul(count, t->dims[i].value, &count))
            count = -1;
    if (op_has_in(step, in) && t->dtype == ATTNRUN_F32 && count == queries * n)
        return ATTNRUN_OK;
    return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                         "expected f32 with %lld for each of %s", (long long)n,
                         attn_plural(queries, "query"));
}

attn_status attn_sdpa_plan_map(const attnrun_step *step, int mask, int rows,
                               int64_t columns, struct attn_sdpa *s)
{
    if (columns < 1 || step->n_in != rows + 2 || op_has_in(step, mask) ||
        s->kv_len % columns != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "key_columns is %lld, expected a divisor of %s, no attn_mask, and "
                       "2 leaves",
                       (long long)columns, attn_plural(s->kv_len, "key"));
    const int64_t n_rows = s->kv_len / columns;
    TRY(need_numbers(step, rows, s, n_rows));
    TRY(need_numbers(step, rows + 1, s, columns));
    s->mask_kind = ATTN_MASK_MAP;
    s->mask_len = s->kv_len;
    s->mask = of_queries(s, n_rows);
    s->columns = of_queries(s, columns);
    return ATTNRUN_OK;
}

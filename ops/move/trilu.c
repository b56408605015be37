/* trilu.c - Trilu: keeps the upper (or lower) triangle of each matrix; the rest is zero.
 *
 * x, y   any real type or b8, (…, n, m)
 * k      the diagonal where the triangle begins, 0 by default; > 0 above the main one
 * upper  1 by default
 *
 * Cost: one copy. Source: ONNX Trilu-14; ONNX Runtime contrib operators. */
#include "move.h"

struct trilu_args {
    int64_t upper;
};
static const attnrun_attr_def trilu_attrs[] = { ATTR_FLAG(struct trilu_args, upper, 1),
                                                ATTR_END };

static attn_status trilu_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    TRY(op_out_like(step, 0, 0));
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    attnrun_step_inplace(step, 0, 0);
    if (op_has_in(step, 1) && op_rank_known(step, 1)) {
        attnrun_dim one = op_dims_product(step, step->in[1].dims, 0, step->in[1].rank);
        if (!dim_may_equal(one, dim_of(1)))
            return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected one element");
    }
    if (!op_move_planned(step, 0))
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 0));
    int64_t columns = in->dims[in->rank - 1].value;
    op_tasks(step, 0, columns == 0 ? 0 : op_count(in, 0, in->rank - 1), columns / 4 + 10);
    return ATTNRUN_OK;
}

/* Bytes [keep, end) of a row of n bytes; the others are zero. */
static attn_status trilu_row(char *to, const char *from, int64_t keep, int64_t end,
                             int64_t n)
{
    if (n <= ATTN_POLL_BYTES) {
        if (to != from)
            memcpy(to + keep, from + keep, (size_t)(end - keep));
        memset(to, 0, (size_t)keep);
        memset(to + end, 0, (size_t)(n - end));
        return attn_poll_work(n + 16);
    }
    if (to != from)
        TRY(attn_poll_copy(to + keep, from + keep, end - keep));
    TRY(attn_poll_fill(to, 0, keep));
    return attn_poll_fill(to + end, 0, n - end);
}

static attn_status trilu_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct trilu_args *args = step->args;
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    int64_t rows = x->dims[x->rank - 2], n = x->dims[x->rank - 1], begin = 0;
    int64_t bytes = dtype_bytes(x->dtype);
    int64_t k = op_has_in(step, 1) ? *(const int64_t *)step->x[1].data : 0;
    for (int64_t r = work->begin; r < work->end && y->data != NULL; r++) {
        const char *from = (const char *)x->data + r * n * bytes;
        char *to = (char *)y->data + r * n * bytes;
        /* The upper triangle begins at column row + k; the lower one ends there,
         * inclusive. */
        if (!ck_add(r % rows + (args->upper != 0 ? 0 : 1), k, &begin))
            begin = n;
        begin = begin < 0 ? 0 : begin > n ? n : begin;
        int64_t keep = args->upper != 0 ? begin : 0, end = args->upper != 0 ? n : begin;
        TRY(trilu_row(to, from, keep * bytes, end * bytes, n * bytes));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_trilu_14 = { OP_ROW,
                                     .name = "Trilu",
                                     .since = 14,
                                     .inputs = "input:T k:i64?",
                                     .outputs = "output:T",
                                     .types = "T=num,b8",
                                     .args_bytes = sizeof(struct trilu_args),
                                     .attrs = trilu_attrs,
                                     .infer = trilu_infer,
                                     .run = trilu_run };
const attnrun_op_def op_ms_trilu_1 = { OP_ROW_OF("com.microsoft"),
                                       .name = "Trilu",
                                       .since = 1,
                                       .inputs = "X:T k:i64?",
                                       .outputs = "Y:T",
                                       .types = "T=num,b8",
                                       .args_bytes = sizeof(struct trilu_args),
                                       .attrs = trilu_attrs,
                                       .infer = trilu_infer,
                                       .run = trilu_run };

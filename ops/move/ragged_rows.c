/* ragged_rows.c - PackTokens and UnpackTokens: from a batch with padding to its tokens alone, and
 * back.
 *
 * PackTokens    (x, tokens, shape_like) -> (1, rows, …): row r is x[b, s] of the token at place
 *               tokens[r] = b * S + s of the batch, and 0 where that is -1. x is (B, S, …), or has
 *               1 in the place of B or S and is broadcast
 * UnpackTokens  (x, samples, shape_like) -> (B, S, …): the tokens first … last - 1 of sample b are
 *               the rows of x from start on; other tokens are 0. samples: i64 (B, 3), start,
 *               first, last
 *
 * B and S are the first dims of shape_like; nothing else of it is used. runtime/ragged.c computes
 * tokens and samples from the mask. Indexes are checked. Domain attnrun.fused:
 * ops/rewrite/ragged_pass.c writes them. Cost: one copy of the result. */
#include "../../runtime/ragged_sample.h"
#include "move.h"

enum { X, INDEXES, SHAPE_LIKE };

struct ragged_rows_state {
    int64_t batch, tokens;   /* B, S */
    int64_t rows, row_bytes; /* packed rows; bytes of one */
    int64_t by_batch,
        by_token; /* PackTokens: bytes of x from one to the next; 0: broadcast */
    int64_t per_task;
};

static attn_status check(const attnrun_step *step, int rank, bool *known)
{
    *known = op_rank_known(step, X) && op_rank_known(step, INDEXES) &&
             op_rank_known(step, SHAPE_LIKE);
    TRY(op_need_rank_between(step, X, 2, ATTNRUN_MAX_RANK));
    TRY(op_need_rank(step, INDEXES, rank));
    TRY(op_move_need_bytes(step, X));
    return op_need_rank_between(step, SHAPE_LIKE, 2, ATTNRUN_MAX_RANK);
}

/* Output 0: (first, second, …), with the dims of a row of x. */
static attn_status out_rows(attnrun_step *step, attnrun_dim first, attnrun_dim second)
{
    const attnrun_type *x = &step->in[X];
    attnrun_dim dims[ATTNRUN_MAX_RANK] = { first, second };
    for (int axis = 2; axis < x->rank; axis++)
        dims[axis] = x->dims[axis];
    return op_out(step, 0, x->dtype, x->rank, dims);
}

/* What both share; `tasks` units of so many rows. An output without elements has no tasks: the
 * other dims may be of any size then. */
static void plan_rows(attnrun_step *step, int64_t rows, int64_t tasks,
                      int64_t rows_of_task)
{
    struct ragged_rows_state *s = step->state;
    const attnrun_type *x = &step->in[X], *like = &step->in[SHAPE_LIKE];
    op_tasks(step, 0, 0, 0);
    if (op_count(&step->out[0], 0, step->out[0].rank) <= 0)
        return;
    s->batch = like->dims[0].value;
    s->tokens = like->dims[1].value;
    s->rows = rows;
    s->row_bytes = op_count(x, 2, x->rank) * dtype_bytes(x->dtype);
    s->per_task = op_move_rows_per_task(rows_of_task * s->row_bytes);
    op_unit_tasks(step, 0, tasks, s->per_task, op_move_ns(rows_of_task * s->row_bytes));
}

static attn_status pack_infer(attnrun_step *step)
{
    struct ragged_rows_state *s = step->state;
    const attnrun_type *x = &step->in[X], *like = &step->in[SHAPE_LIKE];
    bool known;
    TRY(check(step, 1, &known));
    if (!known)
        return op_out(step, 0, x->dtype, -1, NULL);
    for (int axis = 0; axis < 2; axis++)
        if (!dim_is(x->dims[axis], 1))
            TRY(op_need_dim(step, X, axis, like->dims[axis], "that of the mask"));
    const attnrun_dim rows = step->in[INDEXES].dims[0];
    TRY(out_rows(step, dim_of(1), rows));
    if (!step->concrete)
        return ATTNRUN_OK;
    plan_rows(step, rows.value, rows.value, 1);
    s->by_token = x->dims[1].value == 1 ? 0 : s->row_bytes;
    s->by_batch = x->dims[0].value == 1 ? 0 : x->dims[1].value * s->row_bytes;
    return ATTNRUN_OK;
}

static attn_status pack_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct ragged_rows_state *s = step->state;
    const int64_t *places = step->x[INDEXES].data;
    const size_t bytes = (size_t)s->row_bytes;
    const int64_t end = min64(work->end * s->per_task, s->rows);
    char *y = step->y[0].data;
    for (int64_t r = work->begin * s->per_task; r < end && y != NULL; r++) {
        const int64_t place = places[r];
        if (OP_CANCELLED_AFTER(work, s->row_bytes + 16))
            return ATTNRUN_E_CANCELLED;
        if (place < -1 || s->tokens == 0 || place / s->tokens >= s->batch)
            return op_fail_input(step, INDEXES, ATTNRUN_E_RANGE,
                                 "holds the row %lld, which is not in the batch",
                                 (long long)place);
        if (place < 0)
            memset(y + r * s->row_bytes, 0, bytes);
        else
            memcpy(y + r * s->row_bytes,
                   (const char *)step->x[X].data + place / s->tokens * s->by_batch +
                       place % s->tokens * s->by_token,
                   bytes);
    }
    return ATTNRUN_OK;
}

static attn_status unpack_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[X], *like = &step->in[SHAPE_LIKE];
    bool known;
    TRY(check(step, 2, &known));
    if (!known)
        return op_out(step, 0, x->dtype, -1, NULL);
    TRY(op_need_dim(step, X, 0, dim_of(1), "the batch of packed tokens"));
    TRY(op_need_dim(step, INDEXES, 0, like->dims[0], "the batch"));
    TRY(op_need_dim(step, INDEXES, 1, dim_of(ATTN_RAGGED_FIELDS), "the fields"));
    TRY(out_rows(step, like->dims[0], like->dims[1]));
    if (step->concrete)
        plan_rows(step, x->dims[1].value, like->dims[0].value, like->dims[1].value);
    return ATTNRUN_OK;
}

static attn_status unpack_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct ragged_rows_state *s = step->state;
    const struct attn_ragged_sample *samples = step->x[INDEXES].data;
    const int64_t bytes = s->row_bytes, end = min64(work->end * s->per_task, s->batch);
    char *y = step->y[0].data;
    for (int64_t b = work->begin * s->per_task; b < end && y != NULL; b++) {
        const struct attn_ragged_sample at = samples[b];
        char *sample = y + b * s->tokens * bytes;
        if (!attn_ragged_fits(&at, s->rows, s->tokens))
            return op_fail_input(step, INDEXES, ATTNRUN_E_RANGE,
                                 "holds sample %lld, whose rows are not in the input",
                                 (long long)b);
        TRY(attn_poll_fill(sample, 0, at.first * bytes));
        TRY(attn_poll_copy(sample + at.first * bytes,
                           (const char *)step->x[X].data + at.start * bytes,
                           (at.last - at.first) * bytes));
        TRY(attn_poll_fill(sample + at.last * bytes, 0, (s->tokens - at.last) * bytes));
        if (OP_CANCELLED_AFTER(work, 64))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_pack_tokens_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "PackTokens",
    .since = 1,
    .inputs = "x:T tokens:i64 shape_like:U",
    .outputs = "y:T",
    .types = "T=fixed U=fixed",
    .state_bytes = sizeof(struct ragged_rows_state),
    .infer = pack_infer,
    .run = pack_run,
    .unaligned_in = 1 << X | 1 << SHAPE_LIKE,
};
const attnrun_op_def op_unpack_tokens_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "UnpackTokens",
    .since = 1,
    .inputs = "x:T samples:i64 shape_like:U",
    .outputs = "y:T",
    .types = "T=fixed U=fixed",
    .state_bytes = sizeof(struct ragged_rows_state),
    .infer = unpack_infer,
    .run = unpack_run,
    .unaligned_in = 1 << X | 1 << SHAPE_LIKE,
};

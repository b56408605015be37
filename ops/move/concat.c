/* concat.c - Concat: joins tensors of any one type along one axis. All other dims must be
 * equal.
 *
 * axis   1 by default up to 3, required from 4
 *
 * A task is a block of 64 KiB of the result. The first input is not copied where the plan
 * lets the result begin in its memory. Parts of few bytes of two inputs are interleaved without a
 * search for each. Cost: one copy. Source: ONNX Concat-1, 4. */
#include "move.h"

struct concat_args {
    int64_t axis;
};
static const attnrun_attr_def concat_1_attrs[] = { ATTR_INT(struct concat_args, axis, 1),
                                                   ATTR_END };
static const attnrun_attr_def concat_4_attrs[] = {
    ATTR_INT_REQUIRED(struct concat_args, axis), ATTR_END
};
struct concat_state {
    int64_t row_bytes, kept_bytes; /* of one index of the dims before the axis */
    int64_t total_bytes;           /* to be written */
    int32_t axis, first;           /* input that is written first */
};

/* The elements of the result in order, where only the axis has an extent before the
 * parts. */
static void concat_values(attnrun_step *step, int axis)
{
    attnrun_dim values[64];
    int64_t n = 0;
    for (int i = 0; i < axis; i++)
        if (!dim_is(step->out[0].dims[i], 1))
            return;
    for (int i = 0; i < step->n_in; i++) {
        int64_t count = op_move_n_values(step, i);
        if (count < 0 || n + count > 64)
            return;
        for (int64_t k = 0; k < count; k++, n++)
            if (!op_move_peek(step, i, k, &values[n]))
                values[n] = op_move_no_value();
    }
    attnrun_step_set_values(step, 0, n, values);
}

static attn_status concat_plan(attnrun_step *step, int axis)
{
    struct concat_state *state = step->state;
    const attnrun_type *out = &step->out[0];
    int64_t count = op_count(out, 0, out->rank), row = op_count(out, axis, out->rank);
    state->axis = axis;
    if (count <= 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    bool one = row == count; /* a single row: parts need whole bytes only */
    for (int i = 0; i < step->n_in && dtype_bits(out->dtype) < 8; i++) {
        const attnrun_type *in = &step->in[i];
        if (!one || op_count(in, 0, in->rank) * dtype_bits(out->dtype) % 8 != 0)
            return op_move_need_bytes(step, i);
    }
    state->row_bytes = dtype_bytes_of(out->dtype, row);
    state->total_bytes = dtype_bytes_of(out->dtype, count);
    if (dtype_bits(out->dtype) >= 8)
        state->first = attnrun_step_append(step, 0, 0, axis);
    if (state->first > 0) {
        const attnrun_type *kept = &step->in[0];
        int64_t kept_count = op_count(kept, 0, kept->rank);
        state->kept_bytes = dtype_bytes_of(kept->dtype, op_count(kept, axis, kept->rank));
        state->total_bytes -= dtype_bytes_of(kept->dtype, kept_count);
    }
    op_move_tasks(step, 0, state->total_bytes);
    return ATTNRUN_OK;
}

static attn_status concat_infer(attnrun_step *step)
{
    const struct concat_args *args = step->args;
    int rank = -1, axis = 0, known = 0;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    for (int i = 0; i < step->n_in; i++) {
        if (!op_rank_known(step, i))
            continue;
        if (rank >= 0)
            TRY(op_need_rank(step, i, rank));
        if (rank < 0) {
            rank = step->in[i].rank;
            TRY(op_axis(step, args->axis, rank, false, &axis));
            memcpy(dims, step->in[i].dims, sizeof dims);
        } else {
            for (int k = 0; k < rank; k++)
                if (k != axis)
                    TRY(op_move_same(step, i, k, dims[k], &dims[k]));
            dims[axis] = step->n_in == 2
                             ? op_dim_join(step, dims[axis], step->in[i].dims[axis])
                             : attnrun_dim_add(step, dims[axis], step->in[i].dims[axis]);
        }
        known++;
    }
    if (rank < 0)
        return op_move_unknown(step, 0, step->in[0].dtype, -1);
    if (known < step->n_in)
        dims[axis] = attnrun_dim_unknown(step);
    TRY(op_out(step, 0, step->in[0].dtype, rank, dims));
    if (known == step->n_in)
        concat_values(step, axis);
    return op_move_planned(step, 0) ? concat_plan(step, axis) : ATTNRUN_OK;
}

/* The bytes of a tensor in order, in runs that lie densely. */
struct bytes {
    const attnrun_tensor *t;
    int64_t run_bytes;
    int32_t rank; /* dims that count the runs */
};

static struct bytes bytes_of(const attnrun_tensor *t)
{
    struct bytes b = { t, INT64_MAX, attn_tensor_dense_from(t) };
    if (b.rank > 0)
        b.run_bytes = dtype_bytes_of(t->dtype, tensor_dims_product(t, b.rank, t->rank));
    return b;
}

/* Byte `at`; *n is cut to what lies behind it in its run. */
static char *find_byte(const struct bytes *b, int64_t at, int64_t *n)
{
    if (b->rank == 0)
        return (char *)b->t->data + at;
    int64_t left = b->run_bytes - at % b->run_bytes;
    *n = *n < left ? *n : left;
    return attn_tensor_at(b->t, b->rank, at / b->run_bytes) + at % b->run_bytes;
}

struct segment {
    struct bytes x;
    int64_t row_bytes;
};

static struct segment segment_of(const attnrun_step *step, int i)
{
    const attnrun_tensor *x = &step->x[i];
    const struct concat_state *state = step->state;
    int64_t row = tensor_dims_product(x, state->axis, x->rank);
    return (struct segment){ bytes_of(x), dtype_bytes_of(x->dtype, row) };
}

/* ---- two parts of 4 or 8 bytes each ---- */

/* Part `row` of an input whose rows have `bytes` bytes; *n rows behind it are *step bytes apart. */
static const char *find_row(const struct bytes *x, int64_t row, int64_t bytes, int64_t *n,
                            int64_t *step)
{
    *step = bytes;
    if (x->rank == 0)
        return (const char *)x->t->data + row * bytes;
    const bool alone = x->run_bytes == bytes;
    const int64_t run = alone ? x->t->dims[x->rank - 1] : x->run_bytes / bytes;
    const int64_t left = run - row % run;
    *n = *n < left ? *n : left;
    if (alone) {
        *step = x->t->strides[x->rank - 1];
        return attn_tensor_at(x->t, x->rank, row);
    }
    return attn_tensor_at(x->t, x->rank, row / run) + row % run * bytes;
}

/* y = a[0], b[0], a[1], b[1], … */
static void interleave(char *restrict y, const char *restrict a, int64_t a_step,
                       const char *restrict b, int64_t b_step, int64_t n, int64_t bytes)
{
    for (int64_t i = 0; bytes == 4 && i < n; i++) {
        memcpy(y + 8 * i, a + i * a_step, 4);
        memcpy(y + 8 * i + 4, b + i * b_step, 4);
    }
    for (int64_t i = 0; bytes == 8 && i < n; i++) {
        memcpy(y + 16 * i, a + i * a_step, 8);
        memcpy(y + 16 * i + 8, b + i * b_step, 8);
    }
}

/* Whether the parts of two inputs have 4 or 8 bytes each, as rotary positions and complex numbers
 * are stacked. */
static bool is_pairs(const attnrun_step *step, const struct segment *s,
                     const struct bytes *y)
{
    const struct concat_state *state = step->state;
    return step->n_in == 2 && state->kept_bytes == 0 && state->first == 0 &&
           s[0].row_bytes == s[1].row_bytes &&
           (s[0].row_bytes == 4 || s[0].row_bytes == 8) &&
           (y->rank == 0 || y->run_bytes % (2 * s[0].row_bytes) == 0) &&
           (s[0].x.rank == 0 || s[0].x.run_bytes % s[0].row_bytes == 0) &&
           (s[1].x.rank == 0 || s[1].x.run_bytes % s[0].row_bytes == 0);
}

/* Bytes [at, end) of the result. */
static attn_status interleave_pairs(const struct segment *s, const struct bytes *y,
                                    int64_t at, int64_t end, const attnrun_work *work)
{
    const int64_t bytes = s[0].row_bytes;
    while (at < end) {
        int64_t room = end - at, a_step, b_step;
        char *to = find_byte(y, at, &room);
        int64_t n = room / (2 * bytes);
        const char *a = find_row(&s[0].x, at / (2 * bytes), bytes, &n, &a_step);
        const char *b = find_row(&s[1].x, at / (2 * bytes), bytes, &n, &b_step);
        interleave(to, a, a_step, b, b_step, n, bytes);
        at += n * 2 * bytes;
        if (OP_CANCELLED_AFTER(work, n * 2 * bytes))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

/* ---- any parts ---- */

enum { KNOWN_SEGMENTS = 32 }; /* that are read once a call */

static attn_status concat_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct concat_state *state = step->state;
    const struct bytes y = bytes_of(&step->y[0]);
    const int64_t written = state->row_bytes - state->kept_bytes;
    struct segment known[KNOWN_SEGMENTS];
    for (int i = 0; i < step->n_in && i < KNOWN_SEGMENTS; i++)
        known[i] = segment_of(step, i);
    int64_t at = work->begin * OP_MOVE_CHUNK, end = work->end * OP_MOVE_CHUNK;
    if (end > state->total_bytes)
        end = state->total_bytes;
    if (y.t->data != NULL && is_pairs(step, known, &y) && end > at)
        return interleave_pairs(known, &y, at, end, work);
    while (y.t->data != NULL && at < end) {
        int64_t row = at / written, skip = at % written;
        for (int i = state->first; i < step->n_in && at < end;) {
            const struct segment segment =
                i < KNOWN_SEGMENTS ? known[i] : segment_of(step, i);
            if (skip >= segment.row_bytes) {
                skip -= segment.row_bytes;
                i++;
                continue;
            }
            int64_t left = segment.row_bytes - skip,
                    n = left < end - at ? left : end - at;
            const char *from = find_byte(&segment.x, row * segment.row_bytes + skip, &n);
            char *to = find_byte(&y, at + (row + 1) * state->kept_bytes, &n);
            n = min64(n, ATTN_POLL_BYTES);
            memcpy(to, from, (size_t)n);
            at += n;
            skip += n;
            if (OP_CANCELLED_AFTER(work, n))
                return ATTNRUN_E_CANCELLED;
        }
    }
    return ATTNRUN_OK;
}

#define CONCAT_ROW                                                                       \
    .inputs = "inputs:T*", .outputs = "concat_result:T", .types = "T=all",               \
    .args_bytes = sizeof(struct concat_args),                                            \
    .state_bytes = sizeof(struct concat_state), .infer = concat_infer,                   \
    .run = concat_run, .strided_in = UINT32_MAX
const attnrun_op_def op_concat_1 = {
    OP_ROW, .name = "Concat", .since = 1, .attrs = concat_1_attrs, CONCAT_ROW,
};
const attnrun_op_def op_concat_4 = {
    OP_ROW, .name = "Concat", .since = 4, .attrs = concat_4_attrs, CONCAT_ROW,
};

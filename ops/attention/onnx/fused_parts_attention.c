/* fused_parts_attention.c - FusedPartsAttention: softmax attention whose keys come in
 * several tensors (parts). Of a part, each block of queries sees its own block, a segment
 * of blocks, or a block that all queries see.
 *
 *   Y_w = softmax over all parts p of (scale Q_w K_pw' + mask_p), times their V_pw
 *
 * Q        f32 (batch, heads, blocks, tokens, dim)
 * K_p      f32 (batch, heads, blocks + window - 1, keys, dim): block w of the queries
 *          sees the blocks w … w + window - 1; or of 1 block, which all of them see
 * V_p      the same with the dim of Y
 * mask_p   f32, is broadcast to (batch, heads, blocks, tokens, window keys)
 * Y        as Q, with the dim of V
 * parts    two numbers a part: window, and whether it has a mask
 *
 * A query that sees no key gives NaN, as a plain Softmax does.
 * Domain attnrun.fused: rewrite passes write it for scores that are computed apart and
 * joined in front of the softmax; exporters never do. Cost: O(n keys dim) a head, where n
 * is the number of queries and keys is what one of them sees; scratch is O(tile). */
#include <math.h>

#include "../core/sdpa.h"
#include "../core/stream.h"
#include "../../tile.h"

enum { Q, PARTS, Y = 0, RANK = 5, MAX_PARTS = 16, MAX_WINDOW = 4096 };

struct parts_args {
    float scale;
    attnrun_ints parts;
};
static const attnrun_attr_def parts_attrs[] = {
    ATTR_FLOAT(struct parts_args, scale, 1.0f),
    ATTR_INTS(struct parts_args, parts),
    ATTR_END,
};

/* Strides in elements, along batch, heads, blocks, tokens and the last axis; 0: broadcast. */
struct attention_part {
    int in, mask; /* inputs: K, V behind it; mask -1: none */
    int64_t window, keys;
    int64_t k[RANK], v[RANK], m[RANK];
};

struct parts_plan {
    int n;
    struct attention_part part[MAX_PARTS];
    int64_t sizes[RANK], v_dim, keys; /* of Q; keys of all parts */
    int64_t rows, pieces;             /* queries of a task, tasks of a block */
    int64_t q[RANK], y[RANK];
};

/* ---- infer ---- */

/* Finds the inputs of each part. */
static attn_status read_parts(const attnrun_step *step, struct parts_plan *p)
{
    const attnrun_ints parts = ((const struct parts_args *)step->args)->parts;
    int in = PARTS;
    if (parts.n < 2 || parts.n % 2 != 0 || parts.n > 2 * MAX_PARTS)
        return op_fail(step, ATTNRUN_E_ATTR, "parts has %s, expected 2 to %d",
                       attn_plural(parts.n, "number"), 2 * MAX_PARTS);
    p->n = (int)parts.n / 2;
    for (int i = 0; i < p->n; i++) {
        const int64_t window = parts.v[2 * i];
        if (window < 1 || window > MAX_WINDOW)
            return op_fail(step, ATTNRUN_E_ATTR, "a window is %lld, expected 1 to %d",
                           (long long)window, MAX_WINDOW);
        p->part[i] = (struct attention_part){ .in = in, .mask = -1, .window = window };
        in += 2;
        if (parts.v[2 * i + 1] != 0)
            p->part[i].mask = in++;
    }
    return in == step->n_in
               ? ATTNRUN_OK
               : op_fail(step, ATTNRUN_E_ATTR, "parts is for %s, but there are %d",
                         attn_plural(in, "input"), step->n_in);
}

static bool ranks_known(const attnrun_step *step)
{
    for (int i = 0; i < step->n_in; i++)
        if (!op_rank_known(step, i))
            return false;
    return true;
}

static attn_status check_part(const attnrun_step *step, const struct attention_part *part)
{
    const attnrun_type *q = &step->in[Q], *k = &step->in[part->in];
    for (int side = 0; side < 2; side++) {
        const int in = part->in + side;
        TRY(op_need_rank(step, in, RANK));
        TRY(op_need_dim(step, in, 0, q->dims[0], "the batch"));
        TRY(op_need_dim(step, in, 1, q->dims[1], "the heads"));
        if (part->window > 1 || !dim_is(step->in[in].dims[2], 1))
            TRY(op_need_dim(step, in, 2,
                            attnrun_dim_add(step, q->dims[2], dim_of(part->window - 1)),
                            "the blocks and those beside them"));
    }
    TRY(op_need_dim(step, part->in, 4, q->dims[4], "the dim of a head"));
    TRY(op_need_dim(step, part->in + 1, 3, k->dims[3], "the keys"));
    return op_need_dim(step, part->in + 1, 4, step->in[PARTS + 1].dims[4],
                       "the dim of all values");
}

/* Stores the strides of a tensor whose axes are the last ones of five. */
static void put_strides(const attnrun_type *t, int64_t *strides)
{
    int64_t stride = 1;
    for (int a = RANK - 1; a >= 0; a--) {
        const int axis = a - RANK + t->rank;
        const int64_t n = axis < 0 ? 1 : t->dims[axis].value;
        strides[a] = n == 1 ? 0 : stride;
        stride *= n;
    }
}

static attn_status check_mask(const attnrun_step *step, const struct parts_plan *p,
                              struct attention_part *part)
{
    const attnrun_type *m = &step->in[part->mask];
    TRY(op_need_rank_between(step, part->mask, 0, RANK));
    for (int a = 0; a < m->rank; a++) {
        const int axis = a + RANK - m->rank;
        if (!dim_is(m->dims[a], 1))
            TRY(op_need_dim(step, part->mask, a,
                            dim_of(axis < RANK - 1 ? p->sizes[axis] : part->keys),
                            "what it masks"));
    }
    put_strides(m, part->m);
    return ATTNRUN_OK;
}

static attn_status plan_fused_parts(attnrun_step *step, struct parts_plan *p)
{
    int64_t tasks, blocks;
    for (int a = 0; a < RANK; a++)
        p->sizes[a] = step->in[Q].dims[a].value;
    p->v_dim = step->in[PARTS + 1].dims[4].value;
    put_strides(&step->in[Q], p->q);
    put_strides(&step->out[Y], p->y);
    for (int i = 0; i < p->n; i++) {
        struct attention_part *part = &p->part[i];
        const attnrun_type *k = &step->in[part->in];
        if (!ck_mul(k->dims[3].value, part->window, &part->keys) ||
            !ck_add(p->keys, part->keys, &p->keys))
            return op_fail(step, ATTNRUN_E_LIMIT, "the attention is too large");
        put_strides(k, part->k);
        put_strides(&step->in[part->in + 1], part->v);
        if (part->mask >= 0)
            TRY(check_mask(step, p, part));
    }
    const int64_t *s = p->sizes;
    p->rows = min64(s[3], ATTN_STREAM_ROWS);
    p->pieces = p->rows > 0 ? ceil_div(s[3], p->rows) : 0;
    if (!ck_mul(s[0], s[2], &blocks) || !ck_mul(blocks, s[1], &tasks) ||
        !ck_mul(tasks, p->pieces, &tasks))
        return op_fail(step, ATTNRUN_E_LIMIT, "the attention is too large");
    TRY(attn_sdpa_fits(step, blocks, s[1], s[3], p->keys, s[4] + p->v_dim));
    step->scratch_bytes = attn_stream_bytes(p->rows, s[4], p->v_dim);
    if (step->scratch_bytes < 0)
        return op_fail(step, ATTNRUN_E_LIMIT, "the attention is too large");
    const double cost =
        2.0 * (double)p->rows * (double)p->keys * (double)(s[4] + p->v_dim + 32) / 100.0;
    op_tasks(step, 0, p->v_dim > 0 ? tasks : 0, op_ns(cost + 500));
    return ATTNRUN_OK;
}

static attn_status parts_infer(attnrun_step *step)
{
    struct parts_plan *p = step->state;
    struct parts_plan found = { .n = 0 };
    const attnrun_type *q = &step->in[Q];
    TRY(read_parts(step, &found));
    if (!ranks_known(step))
        return op_out(step, Y, q->dtype, -1, NULL);
    TRY(op_need_rank(step, Q, RANK));
    for (int i = 0; i < found.n; i++)
        TRY(check_part(step, &found.part[i]));
    attnrun_dim y[RANK];
    memcpy(y, q->dims, sizeof y);
    y[RANK - 1] = step->in[PARTS + 1].dims[RANK - 1];
    TRY(op_out(step, Y, q->dtype, RANK, y));
    if (!step->concrete)
        return ATTNRUN_OK;
    *p = found;
    return plan_fused_parts(step, p);
}

/* ---- run ---- */

struct parts_walk {
    const struct parts_plan *p;
    const struct attn_kernels *kernels;
    const struct attention_part *part;
    const float *mask; /* of the first query and key of the tile */
};

static void fused_parts_prepare(void *arg, float *scores, int64_t row, int64_t rows,
                                int64_t from, int64_t to)
{
    const struct parts_walk *t = arg;
    const int64_t *m = t->part->m;
    for (int64_t r = 0; r < rows; r++) {
        float *x = scores + r * ATTN_STREAM_SCORES;
        t->kernels->add_f32(x, x, 1, t->mask + (row + r) * m[3] + from * m[4],
                            (ptrdiff_t)m[4], (size_t)(to - from));
    }
}

/* The offset of block w of head h of sample b in an operand. */
static int64_t fused_parts_place(const int64_t *strides, const int64_t *at)
{
    return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] +
           at[3] * strides[3];
}

static attn_status see_part(const attnrun_step *step, struct parts_walk *t,
                            const int64_t *at, struct attn_stream *stream,
                            const attnrun_work *work)
{
    const struct attention_part *part = t->part;
    const int64_t first[RANK] = { at[0], at[1], at[2], 0 };
    const int64_t k_row = t->p->sizes[4], v_row = t->p->v_dim;
    const float *k =
        (const float *)step->x[part->in].data + fused_parts_place(part->k, first);
    const float *v =
        (const float *)step->x[part->in + 1].data + fused_parts_place(part->v, first);
    for (int64_t j = 0; j < part->keys; j += ATTN_STREAM_KEYS) {
        const struct attn_keys keys = { .k = k + j * k_row,
                                        .v = v + j * v_row,
                                        .k_row = k_row,
                                        .v_row = v_row,
                                        .n = min64(ATTN_STREAM_KEYS, part->keys - j) };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (part->mask >= 0)
            t->mask = (const float *)step->x[part->mask].data +
                      fused_parts_place(part->m, at) + j * part->m[4];
        attn_stream_tile(stream, &keys, part->mask >= 0 ? fused_parts_prepare : NULL, t);
    }
    return ATTNRUN_OK;
}

static attn_status fused_parts_attend(const attnrun_step *step, int64_t task,
                                      const attnrun_work *work)
{
    const struct parts_plan *p = step->state;
    const int64_t *s = p->sizes;
    int64_t at[RANK];
    at[3] = op_take(&task, p->pieces) * p->rows;
    at[2] = op_take(&task, s[2]);
    at[1] = op_take(&task, s[1]);
    at[0] = task;
    const int64_t n = min64(p->rows, s[3] - at[3]);
    struct attn_stream stream;
    struct parts_walk t = { .p = p, .kernels = step->kernels };
    attn_stream_begin(&stream, step->kernels, p->rows, s[4], p->v_dim, work->scratch);
    attn_stream_reset(&stream, n);
    attn_stream_load(&stream, 0,
                     (const float *)step->x[Q].data + fused_parts_place(p->q, at), s[4],
                     n, ((const struct parts_args *)step->args)->scale);
    for (int i = 0; i < p->n; i++) {
        t.part = &p->part[i];
        TRY(see_part(step, &t, at, &stream, work));
    }
    attn_stream_store_rows(&stream, 0, n,
                           (float *)step->y[Y].data + fused_parts_place(p->y, at),
                           p->v_dim, p->keys > 0 ? NAN : 0.0f);
    return ATTNRUN_OK;
}

static attn_status parts_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(fused_parts_attend(step, task, work));
    return ATTNRUN_OK;
}

const attnrun_op_def op_fused_parts_attention_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedPartsAttention",
    .since = 1,
    .inputs = "Q:T part:T*",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct parts_args),
    .state_bytes = sizeof(struct parts_plan),
    .attrs = parts_attrs,
    .infer = parts_infer,
    .run = parts_run,
    .cost = "O(n keys d), scratch O(tile)",
};

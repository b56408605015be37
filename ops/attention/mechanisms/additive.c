/* additive.c - computes the scores of additive attention. additive.h describes the
 * operands and the cost. */
#include "additive.h"

#define LARGE 8.0 /* length of v; a usual one is about 1 */

int64_t attn_additive_floats(const struct attn_additive *a, int64_t max_rows)
{
    int64_t floats, keys;
    if (!ck_mul(a->units, 2 * max_rows + 2, &floats) ||
        !ck_mul(a->units, a->tile, &keys) || !ck_add(floats, keys, &floats) ||
        !ck_add(floats, 64, &floats))
        return -1;
    return floats;
}

/* Computes x = exp(2 x). False where a result is above exp(40) or below its inverse.
 * *close becomes false where a result is above exp(1/2) or below its inverse. */
static bool exponentials(const struct attn_kernels *kernels, float *y, const float *x,
                         int64_t n, bool *close)
{
    const float two = 2.0f, none[2] = { 0.0f, 0.0f }, limit = 2.3e17f, near = 1.65f;
    if (n == 0)
        return true;
    kernels->mul_f32(y, x, 1, &two, 0, (size_t)n);
    kernels->exp_f32(y, y, (size_t)n, none);
    const float max = kernels->reduce_max_f32(y, (size_t)n);
    const float min = kernels->reduce_min_f32(y, (size_t)n);
    *close = *close && max < near && min > 1.0f / near;
    return max < limit && min > 1.0f / limit;
}

void attn_additive_load(struct attn_additive_block *block, const struct attn_additive *a,
                        const struct attn_kernels *kernels, const float *q, int64_t q_row,
                        int64_t rows, const float *bias, const float *v, float *scratch)
{
    const size_t units = (size_t)a->units;
    *block = (struct attn_additive_block){ .a = a, .kernels = kernels, .rows = rows };
    block->keys = scratch;
    block->q = scratch + round_up(a->units * a->tile, 16);
    block->q_exp = block->q + rows * a->units;
    block->v = block->q_exp + rows * a->units;
    block->v_twice = block->v + a->units;
    kernels->mul_f32(block->v, v, 1, &a->scale, 0, units);
    for (int64_t r = 0; r < rows; r++) {
        float *row = block->q + r * a->units;
        if (bias != NULL)
            kernels->add_f32(row, q + r * q_row, 1, bias, 1, units);
        else
            memcpy(row, q + r * q_row, units * sizeof *row);
    }
    if (a->form != ATTN_ADDITIVE_TANH || rows < 2) /* a single row saves nothing */
        return;
    double total = 0, square = 0;
    for (size_t i = 0; i < units; i++) {
        block->v_twice[i] = -2.0f * block->v[i];
        total += (double)block->v[i];
        square += (double)block->v[i] * (double)block->v[i];
    }
    block->total = (float)total;
    block->close = square > LARGE * LARGE;
    block->small =
        exponentials(kernels, block->q_exp, block->q, rows * a->units, &block->close);
}

/* Stores keys as columns: exp(2 k) where it returns true, else k. It returns false where
 * all is close to 0 and v is large, because 1 - 2 / (exp(2 x) + 1) has an error of 2^-24
 * however small x is. */
static bool load_keys(const struct attn_additive_block *block, const float *k,
                      int64_t k_row, int64_t n)
{
    const struct attn_additive *a = block->a;
    const struct attn_kernels *kernels = block->kernels;
    bool small = block->small, close = block->close;
    kernels->transpose_f32(block->keys, a->tile, k, k_row, (size_t)n, (size_t)a->units);
    for (int64_t i = 0; small && i < a->units; i++)
        small = exponentials(kernels, block->keys + i * a->tile,
                             block->keys + i * a->tile, n, &close);
    small = small && !close;
    if (block->small && !small)
        kernels->transpose_f32(block->keys, a->tile, k, k_row, (size_t)n,
                               (size_t)a->units);
    return small;
}

void attn_additive_scores(const struct attn_additive_block *block, float *scores,
                          const float *k, int64_t k_row, int64_t n)
{
    const struct attn_additive *a = block->a;
    const struct attn_kernels *kernels = block->kernels;
    const bool small = load_keys(block, k, k_row, n);
    const size_t units = (size_t)a->units, keys = (size_t)n;
    for (int64_t r = 0; r < block->rows; r++) {
        const float *q = block->q + r * a->units;
        float *s = scores + r * a->tile;
        if (small)
            kernels->additive_exp_f32(s, block->total, block->q_exp + r * a->units,
                                      block->v_twice, block->keys, a->tile, units, keys);
        else if (a->form == ATTN_ADDITIVE_RELU)
            kernels->additive_relu_f32(s, q, block->v, block->keys, a->tile, units, keys);
        else
            kernels->additive_tanh_f32(s, q, block->v, block->keys, a->tile, units, keys);
    }
}

/* ---- shapes ---- */

attn_status attn_single_head_infer(const attnrun_step *step,
                                   const struct attn_single_head_inputs *in,
                                   struct attn_single_head *shape)
{
    struct attn_single_head s = { .rank = step->in[in->query].rank };
    TRY(op_need_rank_between(step, in->query, in->min_rank, 3));
    TRY(op_need_rank(step, in->keys, 3));
    s.batch = attn_known_of(attn_dim_of_input(step, in->query, 0),
                            attn_dim_of_input(step, in->keys, 0));
    s.q_len = s.rank == 2 ? dim_of(1) : attn_dim_of_input(step, in->query, 1);
    s.kv_len = attn_dim_of_input(step, in->keys, 1);
    s.units = attn_known_of(s.rank < 0 ? attnrun_dim_unknown(step)
                                       : attn_dim_of_input(step, in->query, s.rank - 1),
                            attn_dim_of_input(step, in->keys, 2));
    s.v_dim = attn_dim_of_input(step, in->keys, 2);
    TRY(op_need_dim(step, in->keys, 0, s.batch, "the batch of the queries"));
    TRY(op_need_dim(step, in->keys, 2, s.units, "the size of the queries"));
    if (dim_is(s.units, 0))
        return op_fail_input(step, in->keys, ATTNRUN_E_SHAPE,
                             "its dim 2 is 0, expected 1 or more");
    if (op_has_in(step, in->values)) {
        TRY(op_need_rank(step, in->values, 3));
        TRY(op_need_dim(step, in->values, 0, s.batch, "the batch of the queries"));
        TRY(op_need_dim(step, in->values, 1, s.kv_len, "the number of keys"));
        s.kv_len = attn_known_of(s.kv_len, attn_dim_of_input(step, in->values, 1));
        s.v_dim = attn_dim_of_input(step, in->values, 2);
    }
    TRY(attn_key_mask_check(step, in->key_mask, s.batch, s.kv_len));
    *shape = s;
    return ATTNRUN_OK;
}

attn_status attn_single_head_vector(const attnrun_step *step, int in,
                                    const struct attn_single_head *shape)
{
    return op_need_vector(step, in, shape->units, "the size of the queries");
}

attn_status attn_single_head_outputs(attnrun_step *step,
                                     const struct attn_single_head *shape)
{
    const attnrun_dim y[3] = { shape->batch, shape->q_len, shape->v_dim };
    const attnrun_dim weights[3] = { shape->batch, shape->q_len, shape->kv_len };
    const attnrun_dim y_two[2] = { shape->batch, shape->v_dim };
    const attnrun_dim weights_two[2] = { shape->batch, shape->kv_len };
    const bool two = shape->rank == 2;
    TRY(op_out(step, 0, ATTNRUN_F32, shape->rank, two ? y_two : y));
    return op_out(step, 1, ATTNRUN_F32, shape->rank, two ? weights_two : weights);
}

void attn_single_head_sizes(const struct attn_single_head *shape, struct attn_pooling *w)
{
    w->batch = shape->batch.value;
    w->rows = shape->q_len.value;
    w->tokens = shape->kv_len.value;
    w->v_dim = shape->v_dim.value;
}

/* ---- the operator ---- */

attn_status attn_additive_plan(attnrun_step *step, struct attn_additive *a, int32_t form,
                               float scale, int64_t units, int64_t rows,
                               struct attn_pooling *w)
{
    w->block = rows < w->rows ? rows : w->rows;
    w->tile = attn_pooling_tile(units);
    *a = (struct attn_additive){
        .units = units, .tile = w->tile, .form = form, .scale = scale
    };
    w->extra_floats = attn_additive_floats(a, w->block);
    if (w->extra_floats < 0)
        return op_fail_scratch(step);
    w->token_ns = (double)w->block * (0.1 * (double)units + 0.02 * (double)w->v_dim) +
                  0.5 * (double)units;
    TRY(attn_pooling_plan(step, w));
    attn_pooling_tasks(step, w);
    return ATTNRUN_OK;
}

/* The operands of the scores of a task. */
struct query_block {
    struct attn_additive_block block;
    const float *k; /* of the sample */
};

static void additive_scores(void *arg, const struct attn_pooling_task *task,
                            float *scores, int64_t first, int64_t n)
{
    const struct query_block *q = arg;
    const int64_t units = q->block.a->units;
    (void)task;
    attn_additive_scores(&q->block, scores, q->k + first * units, units, n);
}

attn_status attn_additive_run(const struct attn_additive *a, const struct attn_pooling *w,
                              const struct attn_kernels *kernels,
                              const struct attn_additive_operands *o,
                              const attnrun_work *work)
{
    struct query_block q;
    struct attn_pooling_operands pooling =
        attn_pooling_dense(w, o->values, o->mask, o->y, o->weights);
    pooling.scores = additive_scores;
    pooling.arg = &q;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == 1) {
            attn_pooling_merge(w, kernels, &pooling, task, work);
            continue;
        }
        const struct attn_pooling_task t = attn_pooling_at(w, task, work->scratch);
        q.k = o->k + t.b * w->tokens * a->units;
        attn_additive_load(&q.block, a, kernels,
                           o->q + (t.b * w->rows + t.row) * a->units, a->units, t.rows,
                           o->bias, o->v, t.extra);
        TRY(attn_pooling_run(w, kernels, &pooling, &t, work));
    }
    return ATTNRUN_OK;
}

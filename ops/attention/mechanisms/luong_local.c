/* luong_local.c - computes the windows of LuongAttention, one query at a time.
 * luong_attention.c has the formula.
 *
 * In: a query, and the keys and values of its window. Out: its row of Y and of the
 * weights. Cost: (2 window + 1) (units + v_dim) terms a query. Scratch: the scores of a
 * window. */
#include "luong_local.h"

#include <math.h>

#include "../../tile.h"

static int64_t luong_local_gemm_floats(const struct attn_luong_local *s)
{
    const size_t keys = (size_t)s->max;
    const size_t scores = attn_gemm_scratch(1, keys, (size_t)s->units),
                 values = attn_gemm_scratch(1, (size_t)s->v_dim, keys);
    return (int64_t)(scores > values ? scores : values);
}

attn_status attn_luong_local_plan(attnrun_step *step, struct attn_luong_local *s)
{
    const int64_t limit = INT64_C(1) << 40;
    int64_t pairs, extra;
    s->max = s->window < s->kv_len ? min64(2 * s->window + 1, s->kv_len) : s->kv_len;
    s->additive = (struct attn_additive){ .units = s->units,
                                          .tile = attn_pooling_tile(s->units),
                                          .form = ATTN_ADDITIVE_TANH,
                                          .scale = s->scale };
    extra = s->concat ? attn_additive_floats(&s->additive, 1) : 0;
    if (extra < 0 || extra > limit || s->units > limit || s->v_dim > limit ||
        s->kv_len > INT32_MAX || s->q_len > INT32_MAX ||
        !ck_mul(max64(1, s->batch), s->q_len, &pairs) ||
        !ck_mul(pairs, s->kv_len, &pairs))
        return op_fail_size(step,
                            "the number of queries or of keys would be over 2^31 - 1, of "
                            "units or of columns of V over 2^40, or of scores",
                            "2^63 - 1");
    const double key_ns = s->concat ? 1.2 * (double)s->units : 0.05 * (double)s->units;
    const double row_ns = 150 + (double)s->max * (key_ns + 0.05 * (double)s->v_dim + 1);
    s->rows = max64(1, min64(s->q_len, (int64_t)(50000 / row_ns)));
    s->blocks = ceil_div(s->q_len, s->rows);
    op_tasks(step, 0, s->masked ? s->batch : 0, 100 + s->kv_len);
    op_tasks(step, 1, s->batch * s->blocks, op_ns(row_ns * (double)s->rows));
    step->shared_bytes = s->masked ? s->batch * (int64_t)sizeof(int64_t) : 0;
    step->scratch_bytes = 0;
    return op_slot(&s->scores_at, &step->scratch_bytes, s->max, sizeof(float)) &&
                   op_slot(&s->bell_at, &step->scratch_bytes, s->max, sizeof(float)) &&
                   op_slot(&s->gemm_at, &step->scratch_bytes, luong_local_gemm_floats(s),
                           sizeof(float)) &&
                   op_slot(&s->additive_at, &step->scratch_bytes, extra, sizeof(float))
               ? ATTNRUN_OK
               : op_fail_scratch(step);
}

/* Counts the keys of a sample that are not masked; they must come first. */
static attn_status count_keys(const attnrun_step *step, const struct attn_luong_local *s,
                              const uint8_t *mask, int64_t b, int64_t *len)
{
    const uint8_t *row = mask + b * s->kv_len;
    int64_t n = 0;
    while (n < s->kv_len && row[n] != 0)
        n++;
    for (int64_t j = n; j < s->kv_len; j++)
        if (row[j] != 0)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "key_mask [%lld,%lld] is true after a false one; in local "
                           "modes the true ones must come first",
                           (long long)b, (long long)j);
    *len = n;
    return ATTNRUN_OK;
}

/* A query: its keys from … to - 1, their scores and weights, and the centre. */
struct luong_local_row {
    const struct attn_luong_local *s;
    const struct attn_kernels *kernels;
    float *scores, *bell, *gemm, *additive;
    int64_t from, to;
    double centre;
};

static void find_window(struct luong_local_row *r, const struct attn_luong_operands *o,
                        int64_t b, int64_t i, int64_t len)
{
    const struct attn_luong_local *s = r->s;
    r->centre = (double)i + (double)s->offset;
    if (o->pos != NULL)
        r->centre = (double)len * (double)o->pos[b * s->q_len + i];
    const double from = floor(r->centre) - (double)s->window,
                 to = floor(r->centre) + (double)s->window + 1;
    r->from = r->to = 0;
    if (!(to > 0 && from < (double)len)) /* NaN, too */
        return;
    r->from = from > 0 ? (int64_t)from : 0;
    r->to = to < (double)len ? (int64_t)to : len;
}

static void luong_local_score(const struct luong_local_row *r, const float *q,
                              const float *k, const float *v)
{
    const struct attn_luong_local *s = r->s;
    const int64_t n = r->to - r->from;
    k += r->from * s->units;
    if (s->concat) {
        struct attn_additive_block block;
        attn_additive_load(&block, &s->additive, r->kernels, q, s->units, 1, NULL, v,
                           r->additive);
        for (int64_t j = 0; j < n; j += s->additive.tile)
            attn_additive_scores(&block, r->scores + j, k + j * s->units, s->units,
                                 min64(s->additive.tile, n - j));
        return;
    }
    const struct attn_epilogue scale = { .kind = ATTN_EPI_SCALE, .alpha = s->scale };
    struct attn_gemm_f32 g = { .a = q,
                               .a_row = s->units,
                               .b = k,
                               .b_row = 1,
                               .b_col = s->units,
                               .c = r->scores,
                               .c_row = n,
                               .m = 1,
                               .n = (size_t)n,
                               .k = (size_t)s->units,
                               .epilogue = &scale,
                               .n_epilogue = 1,
                               .scratch = r->gemm };
    r->kernels->gemm_f32(&g);
}

/* Turns scores into weights. */
static void pooling(const struct luong_local_row *r)
{
    const struct attn_luong_local *s = r->s;
    const size_t n = (size_t)(r->to - r->from);
    const float none[2] = { 0.0f, 0.0f };
    if (s->sigma > 0) {
        for (size_t j = 0; j < n; j++) {
            const double x = ((double)r->from + (double)j - r->centre) / s->sigma;
            r->bell[j] = (float)(-0.5 * x * x);
        }
        r->kernels->exp_f32(r->bell, r->bell, n, none);
    }
    if (s->sigma > 0 && s->before)
        r->kernels->mul_f32(r->scores, r->scores, 1, r->bell, 1, n);
    r->kernels->softmax_f32(r->scores, r->scores, n, 0);
    if (s->sigma > 0 && !s->before)
        r->kernels->mul_f32(r->scores, r->scores, 1, r->bell, 1, n);
}

static void sum_values(const struct luong_local_row *r, const float *values, float *y)
{
    const struct attn_luong_local *s = r->s;
    struct attn_gemm_f32 g = { .a = r->scores,
                               .a_row = r->to - r->from,
                               .b = values + r->from * s->v_dim,
                               .b_row = s->v_dim,
                               .b_col = 1,
                               .c = y,
                               .c_row = s->v_dim,
                               .m = 1,
                               .n = (size_t)s->v_dim,
                               .k = (size_t)(r->to - r->from),
                               .scratch = r->gemm };
    r->kernels->gemm_f32(&g);
}

static void luong_local_run_row(struct luong_local_row *r,
                                const struct attn_luong_operands *o, int64_t b, int64_t i,
                                int64_t len)
{
    const struct attn_luong_local *s = r->s;
    const int64_t at = b * s->q_len + i, n_all = s->kv_len;
    float *y = o->y + at * s->v_dim;
    find_window(r, o, b, i, len);
    const int64_t n = r->to - r->from;
    if (o->weights != NULL)
        memset(o->weights + at * n_all, 0, (size_t)n_all * sizeof *o->weights);
    if (n == 0) {
        memset(y, 0, (size_t)s->v_dim * sizeof *y);
        return;
    }
    luong_local_score(r, o->q + at * s->units, o->k + b * n_all * s->units, o->v);
    pooling(r);
    if (o->weights != NULL)
        memcpy(o->weights + at * n_all + r->from, r->scores, (size_t)n * sizeof(float));
    sum_values(r, o->values + b * n_all * s->v_dim, y);
}

attn_status attn_luong_local_run(const attnrun_step *step,
                                 const struct attn_luong_local *s,
                                 const struct attn_luong_operands *o,
                                 const attnrun_work *work)
{
    int64_t *lens = work->shared;
    struct luong_local_row r = { .s = s,
                                 .kernels = step->kernels,
                                 .scores = op_slot_at(work->scratch, s->scores_at),
                                 .bell = op_slot_at(work->scratch, s->bell_at),
                                 .gemm = op_slot_at(work->scratch, s->gemm_at),
                                 .additive = op_slot_at(work->scratch, s->additive_at) };
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == 0) {
            TRY(count_keys(step, s, o->mask, task, &lens[task]));
            continue;
        }
        int64_t b = task, first = op_take(&b, s->blocks) * s->rows;
        for (int64_t i = first; i < min64(first + s->rows, s->q_len); i++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            luong_local_run_row(&r, o, b, i, s->masked ? lens[b] : s->kv_len);
        }
    }
    return ATTNRUN_OK;
}

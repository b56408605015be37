/* bounded_scores.c - BoundedScores: y is q, if no product of a row of q and a row of k
 * can reach the limit.
 *
 *   |q_i k_j| scale <= scale max_i |q_i| max_j |k_j| < limit
 *
 * q, k   f32, of any shapes, rows of `dim` elements;  y as q
 * dim    1 by default;  scale 1, limit 2^28: finite numbers
 *
 * Some files put a number in the place of masked scores (-1e30, or the smallest float),
 * while the operator that a rewrite pass writes leaves these keys out. The pass then
 * writes BoundedScores in front of it. The results are those of the file where all scores
 * are closer to 0 than the limit, and where a score is NaN (then both are NaN). Otherwise
 * the run fails. The streaming softmax has the same limit, because its exponents are off
 * by up to half a step of the largest score.
 *
 * y is a view of q where the plan permits it (an output of the model has memory of its
 * own). The step runs all the same (ATTNRUN_OP_IMPURE).
 *
 * Phase 0 takes the rows of q and k in parts of about 65,536 elements, and phase 1
 * compares. Cost: reads q and k once. Memory: a number for each part. Domain
 * attnrun.fused; ops/rewrite writes it. */
#include <math.h>

#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"

enum { Q, K };
enum { PIECES, COMPARE };
enum { PIECE = 1 << 16 };

struct bounded_args {
    int64_t dim;
    float scale, limit;
};
static const attnrun_attr_def bounded_attrs[] = {
    ATTR_INT(struct bounded_args, dim, 1),
    ATTR_FLOAT(struct bounded_args, scale, 1.0f),
    ATTR_FLOAT(struct bounded_args, limit, 0x1p28f),
    ATTR_END,
};

struct bounded_state {
    int64_t rows[2], pieces[2]; /* of q, of k */
    int64_t piece;              /* rows */
};

static attn_status bounded_infer(attnrun_step *step)
{
    const struct bounded_args *args = step->args;
    struct bounded_state *s = step->state;
    TRY(op_out_like(step, 0, Q));
    attnrun_step_view(step, 0, Q, 0);
    if (args->dim < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "dim is %lld, expected 1 or more",
                       (long long)args->dim);
    if (!step->concrete)
        return ATTNRUN_OK;
    s->piece = PIECE / args->dim + 1;
    for (int in = Q; in <= K; in++) {
        int64_t n = 1;
        for (int i = 0; i < step->in[in].rank; i++)
            if (!ck_mul(n, step->in[in].dims[i].value, &n))
                return op_fail_input(step, in, ATTNRUN_E_LIMIT,
                                     "expected at most 2^63 - 1 elements");
        if (n % args->dim != 0)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "expected a multiple of dim, %lld, elements",
                                 (long long)args->dim);
        s->rows[in] = n / args->dim;
        s->pieces[in] = ceil_div(s->rows[in], s->piece);
    }
    op_tasks(step, PIECES, s->pieces[Q] + s->pieces[K], PIECE / 8);
    op_tasks(step, COMPARE, 1, 1000);
    step->shared_bytes = (s->pieces[Q] + s->pieces[K]) * (int64_t)sizeof(double);
    return ATTNRUN_OK;
}

/* The squared length of a row, also where squares overflow a float. NaN elements do not
 * count. */
static double square_of(const attnrun_step *step, const float *x, int64_t dim)
{
    double sum = step->kernels->sum_square_f32(x, (size_t)dim);
    if (sum > 1e-30 && sum < HUGE_VAL)
        return sum;
    sum = 0;
    for (int64_t i = 0; i < dim; i++)
        sum += isnan(x[i]) ? 0 : (double)x[i] * (double)x[i];
    return sum;
}

static attn_status bounded_compare(const attnrun_step *step, const double *largest)
{
    const struct bounded_args *args = step->args;
    const struct bounded_state *s = step->state;
    double max[2] = { 0, 0 };
    for (int64_t i = 0; i < s->pieces[Q] + s->pieces[K]; i++) {
        double *of = &max[i >= s->pieces[Q]];
        *of = largest[i] > *of ? largest[i] : *of;
    }
    const double bound = 1.001 * sqrt(max[Q]) * sqrt(max[K]) * fabs((double)args->scale);
    if (bound < (double)args->limit)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_RANGE,
                   "the scores of a window may reach %g, but the mask values of the file "
                   "are only certain to mask scores below %g; without the pass "
                   "block_attention the file is computed as it is",
                   bound, (double)args->limit);
}

static attn_status bounded_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct bounded_state *s = step->state;
    const int64_t dim = ((const struct bounded_args *)step->args)->dim;
    double *largest = work->shared;
    if (work->phase == COMPARE)
        return bounded_compare(step, largest);
    for (int64_t task = work->begin; task < work->end; task++) {
        const int in = task < s->pieces[Q] ? Q : K;
        const int64_t first = (task - (in == K ? s->pieces[Q] : 0)) * s->piece;
        const int64_t left = s->rows[in] - first,
                      rows = left < s->piece ? left : s->piece;
        const float *x = (const float *)step->x[in].data + first * dim;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        largest[task] = 0;
        for (int64_t r = 0; r < rows; r++) {
            const double square = square_of(step, x + r * dim, dim);
            largest[task] = square > largest[task] ? square : largest[task];
        }
        if (in == Q && step->y[0].data != step->x[Q].data)
            memcpy((float *)step->y[0].data + first * dim, x,
                   (size_t)(rows * dim) * sizeof *x);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_bounded_scores_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "BoundedScores",
    .since = 1,
    .inputs = "q:T k:T",
    .outputs = "y:T",
    .types = "T=f32",
    .flags = ATTNRUN_OP_IMPURE,
    .args_bytes = sizeof(struct bounded_args),
    .state_bytes = sizeof(struct bounded_state),
    .attrs = bounded_attrs,
    .infer = bounded_infer,
    .run = bounded_run,
};

/* ml.c - the shapes, tasks and post_transform that the operators of ai.onnx.ml share. ml.h has
 * the interface and the cost. SOFTMAX_ZERO leaves scores of 0 unshifted, as the reference does. */
#include "ml.h"

#include <math.h>

#include "../tile.h"

enum { TASK_NS = 50000 };

attn_status op_ml_rows(const attnrun_step *step, attnrun_dim *rows, attnrun_dim *features)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_need_rank_between(step, 0, 1, 2));
    *rows = attnrun_dim_unknown(step);
    *features = attnrun_dim_unknown(step);
    if (x->rank < 0)
        return ATTNRUN_OK;
    *rows = x->rank == 2 ? x->dims[0] : dim_of(1);
    *features = x->dims[x->rank - 1];
    return ATTNRUN_OK;
}

void op_ml_tasks(attnrun_step *step, int phase, struct ml_tasks *tasks, int64_t rows,
                 double cost_of_row)
{
    cost_of_row = cost_of_row < 1e12 ? cost_of_row + 1 : 1e12;
    tasks->rows = rows;
    tasks->per_task = (int64_t)(TASK_NS / cost_of_row) + 1;
    op_tasks(step, phase, ceil_div(rows, tasks->per_task),
             op_ns((double)tasks->per_task * cost_of_row));
}

static void ml_softmax(double *s, int64_t n, bool keep_zero)
{
    double max = s[0], sum = 0;
    for (int64_t i = 1; i < n && !op_ml_stops(i); i++)
        max = s[i] > max ? s[i] : max;
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++) {
        bool zero = keep_zero && fabs(s[i]) <= 1e-7;
        s[i] = zero ? s[i] * exp(-max) : exp(s[i] - max);
        sum += s[i];
    }
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++)
        s[i] = sum == 0 ? 0.5 : s[i] / sum;
}

/* sqrt 2 erfinv(2 p - 1), by Winitzki's formula, as the reference. */
static double probit(double p)
{
    double x = 2 * p - 1, rest = (1 - x) * (1 + x);
    if (rest == 0)
        return 0;
    double logarithm = log(rest);
    double a = 2 / (3.14159265358979 * 0.147) + 0.5 * logarithm;
    double root = sqrt(sqrt(a * a - logarithm / 0.147) - a);
    return 1.41421356 * (x < 0 ? -root : root);
}

bool op_ml_stops(int64_t i) { return attn_stops(i); }

int64_t op_ml_best(const double *scores, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = scores[i] > scores[best] ? i : best;
    return best;
}

void op_ml_post(double *scores, int64_t n, int32_t post)
{
    if (n < 1)
        return;
    if (post == ML_SOFTMAX || post == ML_SOFTMAX_ZERO)
        ml_softmax(scores, n, post == ML_SOFTMAX_ZERO);
    for (int64_t i = 0; i < n && !op_ml_stops(i); i++) {
        if (post == ML_LOGISTIC)
            scores[i] = 1 / (1 + exp(-scores[i]));
        else if (post == ML_PROBIT)
            scores[i] = probit(scores[i]);
    }
}

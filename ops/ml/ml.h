/* ml.h - what the operators of ai.onnx.ml share.
 *
 *   rows     input 0 is (N, F), or (F), which is one row of features
 *   tasks    rows in groups of about 50 us
 *   scores   the post_transform of a row: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT
 *
 * In: a step, or the scores of a row in f64. Out: its dims and tasks, or the scores in place.
 * Cost: O(scores). Source: ONNX ai.onnx.ml, TreeEnsemble and LinearClassifier. */
#ifndef ATTN_ML_H
#define ATTN_ML_H

#include "../../runtime/op.h"

#define ML_DOMAIN OP_ROW_OF("ai.onnx.ml"), .since = 1
#define ML_REALS  "f32,f64,i64,i32"

enum ml_post { ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT };
#define ML_POST_WORDS "NONE|SOFTMAX|LOGISTIC|SOFTMAX_ZERO|PROBIT"

/* Input 0 is (N, F), or (F): one row. Unknown dims where its rank is unknown. */
attn_status op_ml_rows(const attnrun_step *step, attnrun_dim *rows,
                       attnrun_dim *features);
/* Phase `phase`: tasks of whole rows; the rows of a task. */
struct ml_tasks {
    int64_t rows, per_task;
};
void op_ml_tasks(attnrun_step *step, int phase, struct ml_tasks *tasks, int64_t rows,
                 double cost_of_row);
static inline int64_t ml_rows_end(const struct ml_tasks *tasks, int64_t task)
{
    return task > tasks->rows / tasks->per_task ? tasks->rows : task * tasks->per_task;
}
/* attn_stops(), called: these loops are many and not short. */
bool op_ml_stops(int64_t i);
/* The first of the largest scores. A label is chosen by it before op_ml_post(), which makes
 * large scores equal. */
int64_t op_ml_best(const double *scores, int64_t n);
/* n scores in place. */
void op_ml_post(double *scores, int64_t n, int32_t post);

#endif

/* training.h - what the optimizers share: a step updates tensors that come in groups.
 *
 * inputs   R (one real: the learning rate), T (one i64: the count of updates), then n
 *          tensors of each kind: X1 … Xn, G1 … Gn, …; outputs likewise
 * Tensors of one number have the same dims and dtype (f32, f64). Numbers are computed in
 * f64, element by element. */
#ifndef ATTN_TRAINING_H
#define ATTN_TRAINING_H

#include "../../runtime/op.h"

enum { TRAINING_MOST_KINDS = 4 };

/* Elements [begin, end) of the tensors of one number. */
struct training_span {
    int64_t begin, end, t;
    double r;
    const attnrun_tensor *in[TRAINING_MOST_KINDS];
    attnrun_tensor *out[TRAINING_MOST_KINDS];
};
typedef void training_update(const void *args, const struct training_span *span);

struct training_state {
    int64_t n; /* tensors of each kind */
};

/* in_kinds, out_kinds: how many kinds there are; output kind k is like input kind
 * like[k]. */
attn_status op_training_infer(attnrun_step *step, int in_kinds, int out_kinds,
                              const int *like);
attn_status op_training_run(const attnrun_step *step, const attnrun_work *work,
                            int in_kinds, int out_kinds, training_update *update);

static inline double training_get(const attnrun_tensor *x, int64_t i)
{
    return x->dtype == ATTNRUN_F64 ? ((const double *)x->data)[i]
                                   : (double)((const float *)x->data)[i];
}
static inline void training_put(attnrun_tensor *y, int64_t i, double value)
{
    if (y->data == NULL)
        return;
    if (y->dtype == ATTNRUN_F64)
        ((double *)y->data)[i] = value;
    else
        ((float *)y->data)[i] = (float)value;
}

#define TRAINING_ROW(row, onnx_name, args_type, attributes, infers, runs)                \
    const attnrun_op_def row = {                                                         \
        .struct_size = sizeof(attnrun_op_def),                                           \
        .domain = "ai.onnx.preview.training",                                            \
        .name = onnx_name,                                                               \
        .since = 1,                                                                      \
        .inputs = "R:R T:i64 inputs:T*!",                                                \
        .outputs = "outputs:T*!",                                                        \
        .types = "R=f32,f64 T=f32,f64",                                                  \
        .args_bytes = sizeof(args_type),                                                 \
        .state_bytes = sizeof(struct training_state),                                    \
        .attrs = attributes,                                                             \
        .infer = infers,                                                                 \
        .run = runs,                                                                     \
        .cost = "O(n)",                                                                  \
    }

#endif

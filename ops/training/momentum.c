/* momentum.c - Momentum: G = norm X + G;  V = a V + b' G, b' = b where t > 0, else 1;
 * X -= r V (standard), or X -= r (G + a V) (nesterov).
 *
 * inputs R, T, X…, G… (gradients), V… (momenta); outputs X…, V…
 * Source: ONNX ai.onnx.preview.training Momentum-1. */
#include "training.h"

struct momentum_args {
    float alpha, beta, norm_coefficient;
    int32_t mode;
};
static const attnrun_attr_def momentum_attrs[] = {
    ATTR_FLOAT(struct momentum_args, alpha, 0.0f),
    ATTR_FLOAT(struct momentum_args, beta, 0.0f),
    ATTR_FLOAT(struct momentum_args, norm_coefficient, 0.0f),
    ATTR_ENUM(struct momentum_args, mode, "standard|nesterov", 0), ATTR_END
};

enum { X, G, V };
enum { NEW_X, NEW_V };

static void momentum_update(const void *arguments, const struct training_span *s)
{
    const struct momentum_args *args = arguments;
    const double a = (double)args->alpha, b = s->t > 0 ? (double)args->beta : 1;
    for (int64_t i = s->begin; i < s->end; i++) {
        double x = training_get(s->in[X], i);
        double g = (double)args->norm_coefficient * x + training_get(s->in[G], i);
        double v = a * training_get(s->in[V], i) + b * g;
        training_put(s->out[NEW_X], i, x - s->r * (args->mode == 0 ? v : g + a * v));
        training_put(s->out[NEW_V], i, v);
    }
}

static attn_status momentum_infer(attnrun_step *step)
{
    static const int like[] = { X, V };
    return op_training_infer(step, 3, 2, like);
}

static attn_status momentum_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_training_run(step, work, 3, 2, momentum_update);
}

TRAINING_ROW(op_momentum_1, "Momentum", struct momentum_args, momentum_attrs,
             momentum_infer, momentum_run);

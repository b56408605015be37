/* adam.c - Adam: G = norm X + G;  V = a V + (1 - a) G;  H = b H + (1 - b) G²;
 * X = (1 - norm_post) (X - r' V / (sqrt H + e)),  r' = r sqrt(1 - b^t) / (1 - a^t) where
 * t > 0, else r.
 *
 * inputs R, T, X…, G… (gradients), V…, H… (averages); outputs X…, V…, H…
 * Source: ONNX ai.onnx.preview.training Adam-1. */
#include <math.h>

#include "training.h"

struct adam_args {
    float alpha, beta, epsilon, norm_coefficient, norm_coefficient_post;
};
static const attnrun_attr_def adam_attrs[] = {
    ATTR_FLOAT(struct adam_args, alpha, 0.9f),
    ATTR_FLOAT(struct adam_args, beta, 0.999f),
    ATTR_FLOAT(struct adam_args, epsilon, 1e-6f),
    ATTR_FLOAT(struct adam_args, norm_coefficient, 0.0f),
    ATTR_FLOAT(struct adam_args, norm_coefficient_post, 0.0f),
    ATTR_END
};

enum { X, G, V, H };
enum { NEW_X, NEW_V, NEW_H };

static void adam_update(const void *arguments, const struct training_span *s)
{
    const struct adam_args *args = arguments;
    const double a = (double)args->alpha, b = (double)args->beta, t = (double)s->t;
    double r = s->r;
    if (s->t > 0)
        r *= sqrt(1 - pow(b, t)) / (1 - pow(a, t));
    for (int64_t i = s->begin; i < s->end; i++) {
        double x = training_get(s->in[X], i);
        double g = (double)args->norm_coefficient * x + training_get(s->in[G], i);
        double v = a * training_get(s->in[V], i) + (1 - a) * g;
        double h = b * training_get(s->in[H], i) + (1 - b) * g * g;
        x -= r * (v / (sqrt(h) + (double)args->epsilon));
        training_put(s->out[NEW_X], i, (1 - (double)args->norm_coefficient_post) * x);
        training_put(s->out[NEW_V], i, v);
        training_put(s->out[NEW_H], i, h);
    }
}

static attn_status adam_infer(attnrun_step *step)
{
    static const int like[] = { X, V, H };
    return op_training_infer(step, 4, 3, like);
}

static attn_status adam_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_training_run(step, work, 4, 3, adam_update);
}

TRAINING_ROW(op_adam_1, "Adam", struct adam_args, adam_attrs, adam_infer, adam_run);

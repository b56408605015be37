/* adagrad.c - Adagrad: G = norm X + G;  H += G G;
 * X -= r / (1 + t decay) G / (sqrt H + e).
 *
 * inputs R, T, X…, G… (gradients), H… (sums of squared gradients); outputs X…, H…
 * Source: ONNX ai.onnx.preview.training Adagrad-1. */
#include <math.h>

#include "training.h"

struct adagrad_args {
    float decay_factor, epsilon, norm_coefficient;
};
static const attnrun_attr_def adagrad_attrs[] = {
    ATTR_FLOAT(struct adagrad_args, decay_factor, 0.0f),
    ATTR_FLOAT(struct adagrad_args, epsilon, 1e-6f),
    ATTR_FLOAT(struct adagrad_args, norm_coefficient, 0.0f), ATTR_END
};

enum { X, G, H };
enum { NEW_X, NEW_H };

static void adagrad_update(const void *arguments, const struct training_span *s)
{
    const struct adagrad_args *args = arguments;
    double r = s->r / (1 + (double)s->t * (double)args->decay_factor);
    for (int64_t i = s->begin; i < s->end; i++) {
        double x = training_get(s->in[X], i);
        double g = (double)args->norm_coefficient * x + training_get(s->in[G], i);
        double h = training_get(s->in[H], i) + g * g;
        training_put(s->out[NEW_X], i, x - r * g / (sqrt(h) + (double)args->epsilon));
        training_put(s->out[NEW_H], i, h);
    }
}

static attn_status adagrad_infer(attnrun_step *step)
{
    static const int like[] = { X, H };
    return op_training_infer(step, 3, 2, like);
}

static attn_status adagrad_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_training_run(step, work, 3, 2, adagrad_update);
}

TRAINING_ROW(op_adagrad_1, "Adagrad", struct adagrad_args, adagrad_attrs, adagrad_infer,
             adagrad_run);

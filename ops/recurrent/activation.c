/* activation.c - the activation functions of recurrent layers, by name.
 *
 * In: the lists `activations`, alpha and beta of a node. Out: a function for each gate.
 * Names are compared without case. alpha and beta are taken from their lists in the order
 * of the functions that use them; the defaults are those of the ONNX operators of the
 * same name. Source: ONNX LSTM-14. */
#include <math.h>
#include <strings.h>

#include "../storage.h"
#include "recurrent.h"

enum {
    F_RELU,
    F_TANH,
    F_SIGMOID,
    F_AFFINE,
    F_LEAKY_RELU,
    F_THRESHOLDED_RELU,
    F_SCALED_TANH,
    F_HARD_SIGMOID,
    F_ELU,
    F_SOFTSIGN,
    F_SOFTPLUS,
    F_COUNT
};

static const struct {
    const char *name;
    int32_t parameters; /* 1: alpha; 2: alpha and beta */
    float alpha, beta;
} functions[F_COUNT] = {
    [F_RELU] = { "Relu", 0, 0.0f, 0.0f },
    [F_TANH] = { "Tanh", 0, 0.0f, 0.0f },
    [F_SIGMOID] = { "Sigmoid", 0, 0.0f, 0.0f },
    [F_AFFINE] = { "Affine", 2, 1.0f, 0.0f },
    [F_LEAKY_RELU] = { "LeakyRelu", 1, 0.01f, 0.0f },
    [F_THRESHOLDED_RELU] = { "ThresholdedRelu", 1, 1.0f, 0.0f },
    [F_SCALED_TANH] = { "ScaledTanh", 2, 1.0f, 1.0f },
    [F_HARD_SIGMOID] = { "HardSigmoid", 2, 0.2f, 0.5f },
    [F_ELU] = { "Elu", 1, 1.0f, 0.0f },
    [F_SOFTSIGN] = { "Softsign", 0, 0.0f, 0.0f },
    [F_SOFTPLUS] = { "Softplus", 0, 0.0f, 0.0f },
};

static int find_activation(const char *name)
{
    for (int i = 0; i < F_COUNT; i++)
        if (strcasecmp(name, functions[i].name) == 0)
            return i;
    return -1;
}

attn_status attn_recurrent_functions(const attnrun_step *step,
                                     const struct recurrent_kind *kind,
                                     struct recurrent_state *state)
{
    const struct recurrent_args *args = step->args;
    int64_t given = args->activations.v != NULL ? args->activations.n : 0;
    int64_t wanted = (int64_t)kind->functions * state->directions, alphas = 0, betas = 0;
    if (given > 0 && given != wanted)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute activations has %s, expected %lld",
                       attn_plural(given, "name"), (long long)wanted);
    for (int64_t i = 0; i < wanted; i++) {
        struct recurrent_function *f =
            &state->functions[i / kind->functions][i % kind->functions];
        const char *name = kind->activations[i % kind->functions];
        if (given > 0)
            name = args->activations.v[i].data;
        /* A name of a file may hold a NUL. */
        const bool whole =
            name != NULL && (given == 0 || op_text_is(args->activations.v[i], name));
        f->kind = whole ? find_activation(name) : -1;
        if (f->kind < 0)
            return op_fail(step, ATTNRUN_E_ATTR, "activation '%s' is not known",
                           name != NULL ? attn_quote(name) : "");
        f->p[0] = functions[f->kind].alpha;
        f->p[1] = functions[f->kind].beta;
        if (functions[f->kind].parameters > 0 && alphas < args->activation_alpha.n)
            f->p[0] = args->activation_alpha.v[alphas++];
        if (functions[f->kind].parameters > 1 && betas < args->activation_beta.n)
            f->p[1] = args->activation_beta.v[betas++];
    }
    return ATTNRUN_OK;
}

double attn_recurrent_function_f64(const struct recurrent_function *f, double x)
{
    double alpha = (double)f->p[0], beta = (double)f->p[1];
    switch (f->kind) {
    case F_RELU:
        return x < 0.0 ? 0.0 : x;
    case F_TANH:
        return tanh(x);
    case F_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case F_AFFINE:
        return alpha * x + beta;
    case F_LEAKY_RELU:
        return x < 0.0 ? alpha * x : x;
    case F_THRESHOLDED_RELU:
        return x > alpha ? x : 0.0;
    case F_SCALED_TANH:
        return alpha * tanh(beta * x);
    case F_HARD_SIGMOID:
        x = alpha * x + beta; /* NaN stays */
        return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x;
    case F_ELU:
        return x < 0.0 ? alpha * expm1(x) : x;
    case F_SOFTSIGN:
        return x / (1.0 + fabs(x));
    default:
        return fmax(x, 0.0) + log1p(exp(-fabs(x)));
    }
}

static void scale_and_add(const struct attn_kernels *k, float *y, const float *x,
                          int64_t n, const float *scale, const float *add)
{
    k->mul_f32(y, x, 1, scale, 0, (size_t)n);
    if (add != NULL)
        k->add_f32(y, y, 1, add, 0, (size_t)n);
}

void attn_recurrent_apply(const struct attn_kernels *k,
                          const struct recurrent_function *f, float *y, const float *x,
                          int64_t n)
{
    size_t count = (size_t)n;
    switch (f->kind) {
    case F_RELU:
        k->relu_f32(y, x, count, f->p);
        break;
    case F_TANH:
        k->tanh_f32(y, x, count, f->p);
        break;
    case F_SIGMOID:
        k->sigmoid_f32(y, x, count, f->p);
        break;
    case F_AFFINE:
        scale_and_add(k, y, x, n, &f->p[0], &f->p[1]);
        break;
    case F_LEAKY_RELU:
        k->leaky_relu_f32(y, x, count, f->p);
        break;
    case F_THRESHOLDED_RELU:
        k->thresholded_relu_f32(y, x, count, f->p);
        break;
    case F_SCALED_TANH: /* alpha tanh(beta x) */
        scale_and_add(k, y, x, n, &f->p[1], NULL);
        k->tanh_f32(y, y, count, f->p);
        scale_and_add(k, y, y, n, &f->p[0], NULL);
        break;
    case F_HARD_SIGMOID:
        k->hard_sigmoid_f32(y, x, count, f->p);
        break;
    case F_ELU:
        k->elu_f32(y, x, count, f->p);
        break;
    case F_SOFTSIGN:
        k->softsign_f32(y, x, count, f->p);
        break;
    default:
        k->softplus_f32(y, x, count, f->p);
        break;
    }
}

void attn_recurrent_clip(const struct recurrent_cell *cell, float *x, int64_t n)
{
    const struct recurrent_args *args = cell->step->args;
    const float p[2] = { -args->clip, args->clip };
    if (args->clip > 0.0f)
        cell->step->kernels->clip_f32(x, x, (size_t)n, p);
}

void attn_recurrent_product(const struct recurrent_cell *cell, const float *h,
                            const void *packed, int64_t n, float *out, int64_t out_row,
                            bool add)
{
    struct attn_epilogue sum = {
        .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = out_row, .col = 1, .data = out
    };
    struct attn_gemm_f32 g = { .a = h,
                               .a_row = cell->state->hidden,
                               .b = packed,
                               .b_type = attn_stored_as(cell->state->r_dtype),
                               .packed = 1,
                               .c = out,
                               .c_row = out_row,
                               .m = (size_t)cell->rows,
                               .n = (size_t)n,
                               .k = (size_t)cell->state->hidden,
                               .epilogue = &sum,
                               .n_epilogue = add ? 1 : 0,
                               .scratch = cell->scratch };
    cell->step->kernels->gemm_f32(&g);
}

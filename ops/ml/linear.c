/* linear.c - LinearRegressor, LinearClassifier: scores = X W' + intercepts, then a
 * transform. The classifier also gives the label of the best score.
 *
 * X             f32, f64, i64 or i32 (N, F), or (F): one row; coefficients: S rows of F;
 *               intercepts: S or none
 * Y (regressor) f32 (N, S), S = targets
 * Y, Z          labels (N) and f32 scores (N, S), S = number of labels. Two labels and
 *               one row of coefficients: scores -s and s. One label: that label where s
 *               is at least 0 (0.5 after a transform), else 0 or "". The label of several
 *               is chosen before the transform
 *
 * Cost: 2 N F S FLOPs. Source: ONNX ai.onnx.ml LinearRegressor-1, LinearClassifier-1. */
#include "ml.h"

struct linear_args {
    attnrun_floats coefficients, intercepts;
    attnrun_ints classlabels_ints;
    attnrun_strings classlabels_strings;
    int64_t targets;
    int32_t post_transform;
};
static const attnrun_attr_def regressor_attrs[] = {
    ATTR_FLOATS(struct linear_args, coefficients),
    ATTR_FLOATS(struct linear_args, intercepts), ATTR_INT(struct linear_args, targets, 1),
    ATTR_ENUM(struct linear_args, post_transform, ML_POST_WORDS, ML_NONE), ATTR_END
};
static const attnrun_attr_def classifier_attrs[] = {
    ATTR_FLOATS(struct linear_args, coefficients),
    ATTR_FLOATS(struct linear_args, intercepts),
    ATTR_INTS(struct linear_args, classlabels_ints),
    ATTR_STRINGS(struct linear_args, classlabels_strings),
    ATTR_ENUM(struct linear_args, post_transform, ML_POST_WORDS, ML_NONE),
    ATTR_IGNORED("multi_class"),
    ATTR_END
};

struct linear_state {
    struct ml_tasks tasks;
    int64_t features, rows_of_w, scores;
};

/* Sets state->features …; `w`: rows of coefficients. */
static attn_status linear_plan(attnrun_step *step, attnrun_dim rows, attnrun_dim features,
                               int64_t w, int64_t scores)
{
    const struct linear_args *args = step->args;
    struct linear_state *state = step->state;
    int64_t needed;
    if (!ck_mul(w, features.value, &needed) || needed != args->coefficients.n)
        return op_fail(step, ATTNRUN_E_ATTR, "coefficients has %s, expected %s of %s",
                       attn_plural(args->coefficients.n, "element"),
                       attn_plural(w, "row"), attn_plural(features.value, "feature"));
    if (!ck_mul(scores, (int64_t)sizeof(double), &step->scratch_bytes))
        return op_fail(step, ATTNRUN_E_LIMIT,
                       "the %lld scores of a row need more than 2^63 - 1 bytes",
                       (long long)scores);
    state->features = features.value;
    state->rows_of_w = w;
    state->scores = scores;
    op_ml_tasks(step, 0, &state->tasks, rows.value, (double)needed * 3);
    return ATTNRUN_OK;
}

static attn_status check_intercepts(const attnrun_step *step, int64_t w)
{
    const struct linear_args *args = step->args;
    if (args->intercepts.n == 0 || args->intercepts.n == w)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_ATTR, "intercepts has %s, expected %lld",
                   attn_plural(args->intercepts.n, "element"), (long long)w);
}

/* Scores of a row after the transform; returns which was the best before it. */
static int64_t score_row(const attnrun_step *step, int64_t row, double *scores)
{
    const struct linear_args *args = step->args;
    const struct linear_state *state = step->state;
    const float *w = args->coefficients.v;
    for (int64_t s = 0;
         s < state->rows_of_w && attn_poll_work(8 * state->features) == ATTNRUN_OK;
         s++, w += state->features) {
        double sum = args->intercepts.n > 0 ? (double)args->intercepts.v[s] : 0;
        for (int64_t f = 0; f < state->features; f++)
            sum += (double)w[f] * tensor_get_real(&step->x[0], row * state->features + f);
        scores[s] = sum;
    }
    if (state->scores == 2 && state->rows_of_w == 1) {
        scores[1] = scores[0];
        scores[0] = -scores[0];
    }
    const int64_t best = op_ml_best(scores, state->scores);
    op_ml_post(scores, state->scores, args->post_transform);
    return best;
}

static void put_scores(attnrun_tensor *y, int64_t row, const double *scores, int64_t n)
{
    for (int64_t s = 0; y->data != NULL && s < n; s++)
        ((float *)y->data)[row * n + s] = (float)scores[s];
}

static attn_status regressor_infer(attnrun_step *step)
{
    const struct linear_args *args = step->args;
    attnrun_dim rows, features;
    if (args->targets < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "targets is %lld, expected 1 or more",
                       (long long)args->targets);
    if (args->coefficients.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR, "coefficients is missing");
    TRY(check_intercepts(step, args->targets));
    TRY(op_ml_rows(step, &rows, &features));
    attnrun_dim dims[2] = { rows, dim_of(args->targets) };
    TRY(op_out(step, 0, ATTNRUN_F32, 2, dims));
    return step->concrete
               ? linear_plan(step, rows, features, args->targets, args->targets)
               : ATTNRUN_OK;
}

/* The rows of some tasks. label: writes the label of a row, whose best class is the last argument,
 * or NULL; output `out` gets the scores, where it is there. */
static attn_status
linear_run(const attnrun_step *step, const attnrun_work *work,
           void (*label)(const attnrun_step *, int64_t, const double *, int64_t), int out)
{
    const struct linear_state *state = step->state;
    int64_t row = ml_rows_end(&state->tasks, work->begin);
    int64_t end = ml_rows_end(&state->tasks, work->end);
    for (; row < end; row++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const int64_t best = score_row(step, row, work->scratch);
        if (label != NULL)
            label(step, row, work->scratch, best);
        if (out < step->n_out)
            put_scores(&step->y[out], row, work->scratch, state->scores);
    }
    return ATTNRUN_OK;
}

static attn_status regressor_run(const attnrun_step *step, const attnrun_work *work)
{
    return linear_run(step, work, NULL, 0);
}

const attnrun_op_def op_ml_linear_regressor_1 = {
    ML_DOMAIN,
    .name = "LinearRegressor",
    .inputs = "X:T",
    .outputs = "Y:f32",
    .types = "T=" ML_REALS,
    .args_bytes = sizeof(struct linear_args),
    .state_bytes = sizeof(struct linear_state),
    .attrs = regressor_attrs,
    .infer = regressor_infer,
    .run = regressor_run,
    .cost = "O(N F S)",
};

/* ---- LinearClassifier ---- */

static int64_t n_labels(const struct linear_args *args)
{
    return args->classlabels_ints.v != NULL ? args->classlabels_ints.n
                                            : args->classlabels_strings.n;
}

static attn_status classifier_infer(attnrun_step *step)
{
    const struct linear_args *args = step->args;
    bool strings = args->classlabels_strings.v != NULL;
    int64_t labels = n_labels(args), w = labels;
    attnrun_dim rows, features;
    if (strings == (args->classlabels_ints.v != NULL) || labels < 1 ||
        args->coefficients.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "expected coefficients and one list of class labels");
    TRY(op_ml_rows(step, &rows, &features));
    if (labels == 2 && dim_is(features, args->coefficients.n))
        w = 1;
    attnrun_dim dims[2] = { rows, dim_of(labels) };
    TRY(op_out(step, 0, strings ? ATTNRUN_STRING : ATTNRUN_I64, 1, dims));
    if (step->n_out > 1)
        TRY(op_out(step, 1, ATTNRUN_F32, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(check_intercepts(step, w));
    return linear_plan(step, rows, features, w, labels);
}

static void put_label(const attnrun_step *step, int64_t row, const double *scores,
                      int64_t best)
{
    const struct linear_args *args = step->args;
    bool none =
        n_labels(args) == 1 && scores[0] < (args->post_transform == ML_NONE ? 0 : 0.5);
    if (step->y[0].data == NULL)
        return;
    if (args->classlabels_ints.v != NULL)
        ((int64_t *)step->y[0].data)[row] = none ? 0 : args->classlabels_ints.v[best];
    else
        ((attnrun_string *)step->y[0].data)[row] =
            none ? (attnrun_string){ "", 0 } : args->classlabels_strings.v[best];
}

static attn_status classifier_run(const attnrun_step *step, const attnrun_work *work)
{
    return linear_run(step, work, put_label, 1);
}

const attnrun_op_def op_ml_linear_classifier_1 = {
    ML_DOMAIN,
    .name = "LinearClassifier",
    .inputs = "X:T",
    .outputs = "Y:U Z:f32?",
    .types = "T=" ML_REALS " U=string,i64",
    .args_bytes = sizeof(struct linear_args),
    .state_bytes = sizeof(struct linear_state),
    .attrs = classifier_attrs,
    .infer = classifier_infer,
    .run = classifier_run,
    .cost = "O(N F S)",
};

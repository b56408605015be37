/* svm.c - SVMRegressor, SVMClassifier: a row of features against support vectors.
 *
 * X              f32, f64, i64 or i32 (N, F), or (F): one row; support_vectors: V rows of
 *                F
 * kernel         LINEAR a.b, POLY (gamma a.b + coef0)^degree, RBF exp(-gamma |a - b|^2),
 *                SIGMOID tanh(gamma a.b + coef0)
 * Y (regressor)  f32 (N, 1): sum of coefficients[k] kernel(x, vector k) + rho[0]. Without
 *                support vectors, the coefficients are F weights of the row itself. With
 *                one_class, Y is 1 where that is above 0, else -1. There is no transform
 * Y, Z           of a classifier of C classes: labels (N) and f32 scores
 *
 * For each of the C (C - 1) / 2 pairs of classes one of the two wins a vote; the
 * coefficients are C - 1 rows of V. The class with the most votes, the first of equals,
 * is the label.
 *   prob_a, prob_b   Z (N, C): the probabilities that fit those of all pairs
 *   C > 2            Z (N, C (C - 1) / 2): the scores of the pairs, transformed
 *   C = 2            Z (N, 2): -s and s of the one pair; LOGISTIC of both; with another
 *                    transform, which is not applied, 1 - s and s
 *   no vectors       Z (N, C): x times the row of coefficients of a class + rho[0]
 * Where the text of ONNX says nothing, results are those of ONNX Runtime 1.32.0. The
 * coupling of probabilities: Wu, Lin, Weng 2004, second approach, algorithm 2. Cost: O(N
 * V (F + C)).
 * Source: ONNX ai.onnx.ml SVMRegressor-1, SVMClassifier-1. */
#include <math.h>

#include "ml.h"

enum { MAX_CLASSES = 65535, COUPLING_ROUNDS = 100 };
enum kernel { KERNEL_LINEAR, KERNEL_POLY, KERNEL_RBF, KERNEL_SIGMOID };

struct svm_args {
    attnrun_floats kernel_params, coefficients, support_vectors, rho, prob_a, prob_b;
    attnrun_ints vectors_per_class, classlabels_ints;
    attnrun_strings classlabels_strings;
    int64_t n_supports, one_class;
    int32_t kernel_type, post_transform;
};
#define SVM_COMMON                                                                       \
    ATTR_FLOATS(struct svm_args, kernel_params),                                         \
        ATTR_FLOATS(struct svm_args, coefficients),                                      \
        ATTR_FLOATS(struct svm_args, support_vectors),                                   \
        ATTR_FLOATS(struct svm_args, rho),                                               \
        ATTR_ENUM(struct svm_args, kernel_type, "LINEAR|POLY|RBF|SIGMOID",               \
                  KERNEL_LINEAR),                                                        \
        ATTR_ENUM(struct svm_args, post_transform, ML_POST_WORDS, ML_NONE)
static const attnrun_attr_def regressor_attrs[] = {
    SVM_COMMON, ATTR_INT(struct svm_args, n_supports, 0),
    ATTR_INT(struct svm_args, one_class, 0), ATTR_END
};
static const attnrun_attr_def classifier_attrs[] = {
    SVM_COMMON,
    ATTR_FLOATS(struct svm_args, prob_a),
    ATTR_FLOATS(struct svm_args, prob_b),
    ATTR_INTS(struct svm_args, vectors_per_class),
    ATTR_INTS(struct svm_args, classlabels_ints),
    ATTR_STRINGS(struct svm_args, classlabels_strings),
    ATTR_END
};

struct svm_state {
    struct ml_tasks tasks;
    int64_t features, vectors, classes, pairs, scores; /* scores: of a row of Z */
    bool positive;                                     /* no coefficient is negative */
};

/* ---- kernels ---- */

/* gamma, coef0, degree; all 0 where they are not given. */
static double param(const struct svm_args *args, int i)
{
    return i < args->kernel_params.n ? (double)args->kernel_params.v[i] : 0;
}

/* Polls, before n more elements and what is done once for them. */
static __attribute__((noinline)) bool goes_on(int64_t n)
{
    return attn_poll_work(16 * (n + 1)) == ATTNRUN_OK;
}

static double dot(const attnrun_tensor *x, int64_t first, const float *w, int64_t n)
{
    double sum = 0;
    for (int64_t f = 0; f < n; f++)
        sum += tensor_get_real(x, first + f) * (double)w[f];
    return sum;
}

static double square_distance(const attnrun_tensor *x, int64_t first, const float *w,
                              int64_t n)
{
    double sum = 0;
    for (int64_t f = 0; f < n; f++) {
        double d = tensor_get_real(x, first + f) - (double)w[f];
        sum += d * d;
    }
    return sum;
}

/* Of the row that begins at element `first`, and support vector `k`. */
static double kernel_of(const struct svm_args *args, const struct svm_state *state,
                        const attnrun_tensor *x, int64_t first, int64_t k)
{
    const float *vector = args->support_vectors.v + k * state->features;
    const double gamma = param(args, 0), coef0 = param(args, 1);
    if (args->kernel_type == KERNEL_RBF)
        return exp(-gamma * square_distance(x, first, vector, state->features));
    double product = dot(x, first, vector, state->features);
    if (args->kernel_type == KERNEL_POLY)
        return pow(gamma * product + coef0, param(args, 2));
    return args->kernel_type == KERNEL_SIGMOID ? tanh(gamma * product + coef0) : product;
}

/* ---- SVMRegressor ---- */

static attn_status fail_counts(const attnrun_step *step, const char *what, int64_t have,
                               int64_t need)
{
    return op_fail(step, ATTNRUN_E_ATTR, "%s has %s, expected %lld", what,
                   attn_plural(have, "element"), (long long)need);
}

/* V rows of F support vectors, or none. */
static attn_status check_vectors(const attnrun_step *step, int64_t vectors,
                                 int64_t features)
{
    const struct svm_args *args = step->args;
    int64_t need;
    if (!ck_mul(vectors, features, &need) || args->support_vectors.n != need)
        return fail_counts(step, "support_vectors", args->support_vectors.n, need);
    return ATTNRUN_OK;
}

static attn_status regressor_infer(attnrun_step *step)
{
    const struct svm_args *args = step->args;
    struct svm_state *state = step->state;
    attnrun_dim rows, features, dims[2];
    if (args->n_supports < 0 || args->rho.n < 1 || args->coefficients.n < 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "n_supports is %lld, or rho or coefficients "
                       "are missing",
                       (long long)args->n_supports);
    TRY(op_ml_rows(step, &rows, &features));
    dims[0] = rows;
    dims[1] = dim_of(1);
    TRY(op_out(step, 0, ATTNRUN_F32, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->features = features.value;
    state->vectors = args->n_supports;
    int64_t weights = state->vectors > 0 ? state->vectors : state->features;
    if (args->coefficients.n != weights)
        return fail_counts(step, "coefficients", args->coefficients.n, weights);
    if (state->vectors > 0)
        TRY(check_vectors(step, state->vectors, state->features));
    op_ml_tasks(step, 0, &state->tasks, rows.value,
                (double)weights * (double)(state->vectors > 0 ? state->features * 3 : 3));
    return ATTNRUN_OK;
}

static double regress(const attnrun_step *step, int64_t row)
{
    const struct svm_args *args = step->args;
    const struct svm_state *state = step->state;
    const int64_t first = row * state->features;
    double sum = (double)args->rho.v[0];
    if (state->vectors == 0)
        sum += dot(&step->x[0], first, args->coefficients.v, state->features);
    for (int64_t k = 0; k < state->vectors && goes_on(state->features); k++)
        sum += (double)args->coefficients.v[k] *
               kernel_of(args, state, &step->x[0], first, k);
    return args->one_class == 0 ? sum : sum > 0 ? 1 : -1;
}

static attn_status regressor_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct svm_state *state = step->state;
    int64_t row = ml_rows_end(&state->tasks, work->begin);
    int64_t end = ml_rows_end(&state->tasks, work->end);
    for (; row < end; row++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        ((float *)step->y[0].data)[row] = (float)regress(step, row);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_svm_regressor_1 = { ML_DOMAIN,
                                               .name = "SVMRegressor",
                                               .inputs = "X:T",
                                               .outputs = "Y:f32",
                                               .types = "T=" ML_REALS,
                                               .args_bytes = sizeof(struct svm_args),
                                               .state_bytes = sizeof(struct svm_state),
                                               .attrs = regressor_attrs,
                                               .infer = regressor_infer,
                                               .run = regressor_run,
                                               .cost = "O(N V F)" };

/* ---- SVMClassifier: what is there ---- */

static int64_t n_labels(const struct svm_args *args)
{
    return args->classlabels_ints.n > 0 ? args->classlabels_ints.n
                                        : args->classlabels_strings.n;
}

/* Sets the counts; those of the features come later. */
static attn_status count_classes(const attnrun_step *step, struct svm_state *state)
{
    const struct svm_args *args = step->args;
    const int64_t classes = n_labels(args);
    memset(state, 0, sizeof *state);
    state->classes = classes;
    state->pairs = classes * (classes - 1) / 2;
    state->positive = true;
    for (int64_t i = 0; i < args->vectors_per_class.n; i++)
        if (args->vectors_per_class.v[i] < 0 ||
            !ck_add(state->vectors, args->vectors_per_class.v[i], &state->vectors))
            return op_fail(step, ATTNRUN_E_ATTR,
                           "vectors_per_class holds %lld, expected 0 or more",
                           (long long)args->vectors_per_class.v[i]);
    for (int64_t i = 0; i < args->coefficients.n; i++)
        state->positive &= args->coefficients.v[i] >= 0;
    bool pairs = state->vectors > 0 && args->prob_a.n == 0;
    state->scores = !pairs ? classes : classes > 2 ? state->pairs : 2;
    if (state->vectors > 0 && args->vectors_per_class.n != classes)
        return fail_counts(step, "vectors_per_class", args->vectors_per_class.n, classes);
    if (args->prob_a.n != args->prob_b.n ||
        (args->prob_a.n > 0 && args->prob_a.n < state->pairs))
        return fail_counts(step, "prob_a or prob_b", args->prob_b.n, state->pairs);
    return ATTNRUN_OK;
}

static attn_status check_classifier(const attnrun_step *step,
                                    const struct svm_state *state)
{
    const struct svm_args *args = step->args;
    int64_t rho = 1, need;
    if (state->vectors == 0) {
        if (!ck_mul(state->classes, state->features, &need) ||
            args->coefficients.n != need)
            return fail_counts(step, "coefficients", args->coefficients.n, need);
    } else {
        TRY(check_vectors(step, state->vectors, state->features));
        rho = state->pairs;
        if (!ck_mul(state->classes - 1, state->vectors, &need) ||
            args->coefficients.n < need)
            return fail_counts(step, "coefficients", args->coefficients.n, need);
    }
    return args->rho.n < rho ? fail_counts(step, "rho", args->rho.n, rho) : ATTNRUN_OK;
}

/* The scratch of a worker: what a row needs. */
struct svm_room {
    double *kernels; /* of the row and each vector */
    double *pairs;   /* scores of the pairs */
    double *scores;  /* of the row of Z */
    double *won;     /* the votes of each class */
    double *r, *q;   /* of coupling: C x C each */
    double *p, *qp;  /* C each */
};

static int64_t room_layout(const struct svm_state *state, bool coupled, double *memory,
                           struct svm_room *room)
{
    const int64_t c = state->classes, square = coupled ? c * c : 0;
    double base = 0, *at = memory != NULL ? memory : &base, *start = at;
    double **const parts[] = { &room->kernels, &room->pairs, &room->scores, &room->won,
                               &room->r,       &room->q,     &room->p,      &room->qp };
    const int64_t counts[] = {
        state->vectors, state->pairs, state->scores, c, square, square, c, c
    };
    int64_t total = 0;
    (void)start;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (memory != NULL)
            *parts[i] = at + total;
        total += counts[i];
    }
    return total * (int64_t)sizeof(double);
}

static attn_status classifier_infer(attnrun_step *step)
{
    const struct svm_args *args = step->args;
    struct svm_state *state = step->state;
    const int64_t classes = n_labels(args);
    attnrun_dim rows, features;
    if ((args->classlabels_ints.n > 0) == (args->classlabels_strings.n > 0) ||
        classes > MAX_CLASSES || args->coefficients.n < 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "expected coefficients and one list of up to %d class labels",
                       MAX_CLASSES);
    TRY(op_ml_rows(step, &rows, &features));
    TRY(count_classes(step, state));
    attnrun_dim dims[2] = { rows, dim_of(state->scores) };
    TRY(op_out(step, 0, args->classlabels_ints.n > 0 ? ATTNRUN_I64 : ATTNRUN_STRING, 1,
               dims));
    TRY(op_out(step, 1, ATTNRUN_F32, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct svm_room room;
    state->features = features.value;
    TRY(check_classifier(step, state));
    step->scratch_bytes = room_layout(state, args->prob_a.n > 0, NULL, &room);
    op_ml_tasks(step, 0, &state->tasks, rows.value,
                (double)(state->vectors + classes) * (double)state->features * 3 +
                    (double)classes * (double)state->vectors +
                    (double)room_layout(state, args->prob_a.n > 0, NULL, &room));
    return ATTNRUN_OK;
}

/* ---- SVMClassifier: a row ---- */

/* Scores of all pairs, and who wins them. */
static void score_pairs(const struct svm_args *args, const struct svm_state *state,
                        struct svm_room *room)
{
    const float *coefficients = args->coefficients.v;
    const int64_t *counts = args->vectors_per_class.v, v = state->vectors;
    int64_t pair = 0;
    memset(room->won, 0, (size_t)state->classes * sizeof *room->won);
    for (int64_t i = 0, at_i = 0; i < state->classes && goes_on(v); at_i += counts[i++])
        for (int64_t j = i + 1, at_j = at_i + counts[i]; j < state->classes;
             at_j += counts[j++]) {
            double sum = (double)args->rho.v[pair];
            for (int64_t k = at_i; k < at_i + counts[i]; k++)
                sum += (double)coefficients[(j - 1) * v + k] * room->kernels[k];
            for (int64_t k = at_j; k < at_j + counts[j]; k++)
                sum += (double)coefficients[i * v + k] * room->kernels[k];
            room->pairs[pair++] = sum;
            room->won[sum > 0 ? i : j]++;
        }
}

/* r[i C + j]: how probable class i is, of the pair (i, j). */
static void pair_probabilities(const struct svm_args *args, int64_t c,
                               struct svm_room *room)
{
    int64_t pair = 0;
    for (int64_t i = 0; i < c && goes_on(c); i++)
        for (int64_t j = i + 1; j < c; j++, pair++) {
            double z = room->pairs[pair] * (double)args->prob_a.v[pair] +
                       (double)args->prob_b.v[pair];
            double p = 1 / (1 + exp(z));
            p = p < 1e-7 ? 1e-7 : p > 1 - 1e-7 ? 1 - 1e-7 : p; /* NaN stays */
            room->r[i * c + j] = p;
            room->r[j * c + i] = 1 - p;
        }
}

static double quadratic(const struct svm_room *room, int64_t c)
{
    double sum = 0;
    for (int64_t i = 0; i < c && goes_on(c); i++) {
        room->qp[i] = 0;
        for (int64_t j = 0; j < c; j++)
            room->qp[i] += room->q[i * c + j] * room->p[j];
        sum += room->p[i] * room->qp[i];
    }
    return sum;
}

/* One pass over the classes, each fitted to the others. */
static void fit_once(const struct svm_room *room, int64_t c, double pqp)
{
    for (int64_t i = 0; i < c && goes_on(c); i++) {
        const double *q = room->q + i * c;
        double change = (pqp - room->qp[i]) / q[i], scale = 1 / (1 + change);
        room->p[i] += change;
        pqp = (pqp + change * (change * q[i] + 2 * room->qp[i])) * scale * scale;
        for (int64_t j = 0; j < c; j++) {
            room->qp[j] = (room->qp[j] + change * q[j]) * scale;
            room->p[j] *= scale;
        }
    }
}

/* The probabilities p of c classes that minimise p' Q p. */
static void couple(const struct svm_room *room, int64_t c)
{
    for (int64_t i = 0; i < c && goes_on(c); i++) {
        room->p[i] = 1 / (double)c;
        double own = 0;
        for (int64_t j = 0; j < c; j++) {
            double r = j == i ? 0 : room->r[j * c + i];
            own += r * r;
            room->q[i * c + j] = j == i ? 0 : -r * room->r[i * c + j];
        }
        room->q[i * c + i] = own;
    }
    for (int round = 0; round < COUPLING_ROUNDS; round++) {
        double pqp = quadratic(room, c), error = 0;
        for (int64_t i = 0; i < c; i++)
            error = fmax(error, fabs(room->qp[i] - pqp));
        if (error < 0.005 / (double)c)
            return;
        fit_once(room, c, pqp);
    }
}

/* The scores of row `row`; returns its class. */
static int64_t classify(const attnrun_step *step, int64_t row, struct svm_room *room)
{
    const struct svm_args *args = step->args;
    const struct svm_state *state = step->state;
    const int64_t first = row * state->features, c = state->classes;
    if (state->vectors == 0) {
        const float *w = args->coefficients.v;
        for (int64_t i = 0; i < c && goes_on(state->features); i++, w += state->features)
            room->scores[i] =
                dot(&step->x[0], first, w, state->features) + (double)args->rho.v[0];
        int64_t best = op_ml_best(room->scores, c);
        double max = room->scores[best];
        op_ml_post(room->scores, c, args->post_transform);
        return c == 2 && (state->positive ? max >= 0.5 : max > 0) ? 1 : best;
    }
    for (int64_t k = 0; k < state->vectors && goes_on(state->features); k++)
        room->kernels[k] = kernel_of(args, state, &step->x[0], first, k);
    score_pairs(args, state, room);
    if (args->prob_a.n > 0) {
        pair_probabilities(args, c, room);
        couple(room, c);
        memcpy(room->scores, room->p, (size_t)c * sizeof *room->p);
        op_ml_post(room->scores, c, args->post_transform);
    } else if (c > 2) {
        memcpy(room->scores, room->pairs, (size_t)state->pairs * sizeof *room->pairs);
        op_ml_post(room->scores, state->pairs, args->post_transform);
    } else {
        double s = c == 2 ? room->pairs[0] : 0;
        bool mirrored =
            args->post_transform == ML_NONE || args->post_transform == ML_LOGISTIC;
        room->scores[0] = mirrored ? -s : 1 - s;
        room->scores[1] = s;
        if (mirrored)
            op_ml_post(room->scores, 2, args->post_transform);
    }
    return op_ml_best(room->won, c);
}

static attn_status classifier_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct svm_args *args = step->args;
    const struct svm_state *state = step->state;
    int64_t row = ml_rows_end(&state->tasks, work->begin);
    int64_t end = ml_rows_end(&state->tasks, work->end);
    struct svm_room room = { .kernels = NULL };
    room_layout(state, args->prob_a.n > 0, work->scratch, &room);
    for (; row < end; row++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t best = classify(step, row, &room);
        if (step->y[0].data != NULL && args->classlabels_ints.n > 0)
            ((int64_t *)step->y[0].data)[row] = args->classlabels_ints.v[best];
        else if (step->y[0].data != NULL)
            ((attnrun_string *)step->y[0].data)[row] = args->classlabels_strings.v[best];
        for (int64_t i = 0; step->y[1].data != NULL && i < state->scores; i++)
            ((float *)step->y[1].data)[row * state->scores + i] = (float)room.scores[i];
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_svm_classifier_1 = {
    ML_DOMAIN,
    .name = "SVMClassifier",
    .inputs = "X:T",
    .outputs = "Y:U Z:f32",
    .types = "T=" ML_REALS " U=string,i64",
    .args_bytes = sizeof(struct svm_args),
    .state_bytes = sizeof(struct svm_state),
    .attrs = classifier_attrs,
    .infer = classifier_infer,
    .run = classifier_run,
    .cost = "O(N V (F + C))",
};

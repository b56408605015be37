/* rows.c - operators of ai.onnx.ml on rows of features (N, F), or one row (F), f32, f64,
 * i64 or i32:
 *
 * Normalizer         y = x / norm of its row: MAX (of absolute values), L1, L2; a row of
 *                    zeros stays
 * FeatureVectorizer  y = the inputs side by side as f32, each cut or filled up with zeros
 *                    to its size in inputdimensions; a vector is one row
 *
 * Cost: one pass. Source: ONNX ai.onnx.ml, version 1 of each. */
#include <math.h>

#include "ml.h"

struct normalizer_args {
    int32_t norm;
};
enum { NORM_MAX, NORM_L1, NORM_L2 };
static const attnrun_attr_def normalizer_attrs[] = {
    ATTR_ENUM(struct normalizer_args, norm, "MAX|L1|L2", NORM_MAX), ATTR_END
};

static attn_status normalizer_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    attnrun_dim rows, features;
    TRY(op_ml_rows(step, &rows, &features));
    TRY(op_out(step, 0, ATTNRUN_F32, x->rank, x->dims));
    if (step->concrete)
        op_ml_tasks(step, 0, step->state, rows.value, (double)features.value * 8);
    return ATTNRUN_OK;
}

static double norm_of(const attnrun_tensor *x, int64_t first, int64_t n, int32_t norm)
{
    double sum = 0;
    for (int64_t i = first; i < first + n && !op_ml_stops(i); i++) {
        double value = fabs(tensor_get_real(x, i));
        if (norm == NORM_MAX)
            sum = value > sum || isnan(value) ? value : sum;
        else
            sum += norm == NORM_L1 ? value : value * value;
    }
    return norm == NORM_L2 ? sqrt(sum) : sum;
}

static attn_status normalizer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct normalizer_args *args = step->args;
    const struct ml_tasks *tasks = step->state;
    const attnrun_tensor *x = &step->x[0];
    const int64_t n = x->dims[x->rank - 1];
    int64_t row = ml_rows_end(tasks, work->begin), end = ml_rows_end(tasks, work->end);
    float *y = step->y[0].data;
    for (; y != NULL && row < end; row++) {
        double norm = norm_of(x, row * n, n, args->norm);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t i = row * n; i < (row + 1) * n && !op_ml_stops(i); i++)
            y[i] = (float)(tensor_get_real(x, i) / (norm == 0 ? 1 : norm));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_normalizer_1 = { ML_DOMAIN,
                                            .name = "Normalizer",
                                            .inputs = "X:T",
                                            .outputs = "Y:f32",
                                            .types = "T=" ML_REALS,
                                            .args_bytes = sizeof(struct normalizer_args),
                                            .state_bytes = sizeof(struct ml_tasks),
                                            .attrs = normalizer_attrs,
                                            .infer = normalizer_infer,
                                            .run = normalizer_run };

/* ---- FeatureVectorizer ---- */

struct vectorizer_args {
    attnrun_ints inputdimensions;
};
static const attnrun_attr_def vectorizer_attrs[] = {
    ATTR_INTS(struct vectorizer_args, inputdimensions), ATTR_END
};

/* Columns that input `in` gives. */
static attnrun_dim width_of(const attnrun_step *step, int in)
{
    const struct vectorizer_args *args = step->args;
    const attnrun_type *x = &step->in[in];
    if (args->inputdimensions.v != NULL)
        return dim_of(args->inputdimensions.v[in]);
    if (x->rank < 0)
        return attnrun_dim_unknown(step);
    attnrun_dim width = dim_of(1); /* all that a row has, as OneHotEncoder gives it */
    for (int d = x->rank > 1; d < x->rank; d++)
        width = attnrun_dim_mul(step, width, x->dims[d]);
    return width;
}

static attn_status vectorizer_infer(attnrun_step *step)
{
    const struct vectorizer_args *args = step->args;
    attnrun_dim dims[2] = { attnrun_dim_unknown(step), dim_of(0) };
    if (step->n_in < 1 ||
        (args->inputdimensions.v != NULL && args->inputdimensions.n != step->n_in))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "inputdimensions has %s, expected %d, one for each input",
                       attn_plural(args->inputdimensions.n, "element"), step->n_in);
    for (int in = 0; in < step->n_in; in++) {
        const attnrun_type *x = &step->in[in];
        if (!op_has_in(step, in))
            return op_fail(step, ATTNRUN_E_INPUT, "input %d is missing", in);
        TRY(op_need_rank_between(step, in, 1, ATTNRUN_MAX_RANK));
        attnrun_dim width = width_of(step, in);
        if (dim_is_const(width) && width.value < 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "inputdimensions holds %lld, expected 0 or more",
                           (long long)width.value);
        if (x->rank >= 0) {
            attnrun_dim rows = x->rank > 1 ? x->dims[0] : dim_of(1);
            if (!dim_may_equal(rows, dims[0]))
                return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected %s",
                                     attn_plural(dims[0].value, "row"));
            dims[0] = dim_is_const(dims[0]) ? dims[0] : rows;
        }
        dims[1] = attnrun_dim_add(step, dims[1], width);
    }
    TRY(op_out(step, 0, ATTNRUN_F32, 2, dims));
    if (step->concrete)
        op_ml_tasks(step, 0, step->state, dims[0].value, (double)dims[1].value * 4);
    return ATTNRUN_OK;
}

static attn_status vectorizer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct ml_tasks *tasks = step->state;
    int64_t row = ml_rows_end(tasks, work->begin), end = ml_rows_end(tasks, work->end);
    for (; row < end; row++) {
        float *y = (float *)step->y[0].data + row * step->y[0].dims[1];
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int in = 0; in < step->n_in; in++) {
            const attnrun_tensor *x = &step->x[in];
            int64_t have = tensor_count(x) / (x->rank > 1 ? x->dims[0] : 1),
                    width = width_of(step, in).value;
            for (int64_t i = 0; i < width && !op_ml_stops(i); i++)
                *y++ = i < have ? (float)tensor_get_real(x, row * have + i) : 0;
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_feature_vectorizer_1 = {
    ML_DOMAIN,
    .name = "FeatureVectorizer",
    .inputs = "X:T*",
    .outputs = "Y:f32",
    .types = "T=" ML_REALS,
    .args_bytes = sizeof(struct vectorizer_args),
    .state_bytes = sizeof(struct ml_tasks),
    .attrs = vectorizer_attrs,
    .infer = vectorizer_infer,
    .run = vectorizer_run,
};

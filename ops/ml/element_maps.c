/* element_maps.c - operators of ai.onnx.ml on single elements of any shape, f32, f64, i64
 * or i32:
 *
 * Binarizer      y = x > threshold ? 1 : 0
 * Scaler         y = (x - offset) * scale as f32; one of each, or one per feature (the
 *                last dim). With f64 it is rounded at the end, else after each step,
 *                because trees behind it compare with values that were made so
 * Imputer        y = imputed where x equals the replaced value (NaN equals NaN); one, or
 *                one per feature
 * OneHotEncoder  y[…, k] = 1 as f32 where x (strings too) is category k; reals are
 *                truncated to integers
 *
 * Cost: one pass; OneHotEncoder compares with each category. Source: ONNX ai.onnx.ml,
 * version 1 of each. */
#include <math.h>

#include "../sequence/values.h"
#include "ml.h"

static void put_real(attnrun_tensor *y, int64_t i, double value)
{
    if (y->dtype == ATTNRUN_F32)
        ((float *)y->data)[i] = (float)value;
    else if (y->dtype == ATTNRUN_F64)
        ((double *)y->data)[i] = value;
    else if (y->dtype == ATTNRUN_I64)
        ((int64_t *)y->data)[i] = (int64_t)value;
    else
        ((int32_t *)y->data)[i] = (int32_t)value;
}

static attn_status elements_infer(attnrun_step *step, int32_t dtype)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_out(step, 0, dtype, x->rank, x->dims));
    if (step->concrete)
        op_unit_tasks(step, 0, op_count(x, 0, x->rank), OP_CHUNK, 4);
    return ATTNRUN_OK;
}

/* The elements of a call. */
static int64_t elements_of(const attnrun_step *step, const attnrun_work *work,
                           int64_t *begin)
{
    int64_t n = tensor_count(&step->x[0]);
    *begin = work->begin * OP_CHUNK;
    return work->end > n / OP_CHUNK ? n : work->end * OP_CHUNK;
}

/* Lists of one value or one per feature, which are in the last dim. */
static attn_status maps_check_list(const attnrun_step *step, int64_t n, const char *name)
{
    const attnrun_type *x = &step->in[0];
    if (n == 1 || x->rank < 0)
        return ATTNRUN_OK;
    attnrun_dim features = x->rank == 0 ? dim_of(1) : x->dims[x->rank - 1];
    if (n < 1 || (dim_is_const(features) && features.value != n))
        return op_fail(step, ATTNRUN_E_ATTR, "%s has %s, expected 1 or one per feature",
                       name, attn_plural(n, "element"));
    return ATTNRUN_OK;
}

#define MAP_ROW(subject)                                                                 \
    ML_DOMAIN, .inputs = "X:T", .args_bytes = sizeof(struct subject##_args),             \
        .attrs = subject##_attrs, .infer = subject##_infer, .run = subject##_run

/* ---- Binarizer ---- */

struct binarizer_args {
    float threshold;
};
static const attnrun_attr_def binarizer_attrs[] = {
    ATTR_FLOAT(struct binarizer_args, threshold, 0.0f), ATTR_END
};

static attn_status binarizer_infer(attnrun_step *step)
{
    return elements_infer(step, step->in[0].dtype);
}

static attn_status binarizer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct binarizer_args *args = step->args;
    int64_t i, end = elements_of(step, work, &i);
    for (; i < end && !op_ml_stops(i); i++)
        put_real(&step->y[0], i,
                 tensor_get_real(&step->x[0], i) > (double)args->threshold);
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_binarizer_1 = {
    MAP_ROW(binarizer),
    .name = "Binarizer",
    .outputs = "Y:T",
    .types = "T=" ML_REALS,
};

/* ---- Scaler ---- */

struct scaler_args {
    attnrun_floats offset, scale;
};
static const attnrun_attr_def scaler_attrs[] = { ATTR_FLOATS(struct scaler_args, offset),
                                                 ATTR_FLOATS(struct scaler_args, scale),
                                                 ATTR_END };

static attn_status scaler_infer(attnrun_step *step)
{
    const struct scaler_args *args = step->args;
    if (args->offset.v != NULL)
        TRY(maps_check_list(step, args->offset.n, "offset"));
    if (args->scale.v != NULL)
        TRY(maps_check_list(step, args->scale.n, "scale"));
    return elements_infer(step, ATTNRUN_F32);
}

static attn_status scaler_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct scaler_args *args = step->args;
    int64_t i, end = elements_of(step, work, &i);
    const bool f64 = step->x[0].dtype == ATTNRUN_F64;
    for (; i < end && !op_ml_stops(i); i++) {
        double x = tensor_get_real(&step->x[0], i);
        float offset = args->offset.v != NULL ? args->offset.v[i % args->offset.n] : 0;
        float scale = args->scale.v != NULL ? args->scale.v[i % args->scale.n] : 1;
        ((float *)step->y[0].data)[i] =
            f64 ? (float)((x - (double)offset) * (double)scale)
                : ((float)x - offset) * scale;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_scaler_1 = {
    MAP_ROW(scaler),
    .name = "Scaler",
    .outputs = "Y:f32",
    .types = "T=" ML_REALS,
};

/* ---- Imputer ---- */

struct imputer_args {
    attnrun_floats imputed_value_floats;
    attnrun_ints imputed_value_int64s;
    float replaced_value_float;
    int64_t replaced_value_int64;
};
static const attnrun_attr_def imputer_attrs[] = {
    ATTR_FLOATS(struct imputer_args, imputed_value_floats),
    ATTR_INTS(struct imputer_args, imputed_value_int64s),
    ATTR_FLOAT(struct imputer_args, replaced_value_float, 0.0f),
    ATTR_INT(struct imputer_args, replaced_value_int64, 0), ATTR_END
};

static attn_status imputer_infer(attnrun_step *step)
{
    const struct imputer_args *args = step->args;
    const attnrun_ints *ints = &args->imputed_value_int64s;
    bool real = dtype_in(step->in[0].dtype, ATTN_DT(F32) | ATTN_DT(F64));
    if (real ? args->imputed_value_floats.v == NULL : ints->v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR, "the values to impute are missing");
    TRY(maps_check_list(step, real ? args->imputed_value_floats.n : ints->n,
                        "the list of imputed values"));
    for (int64_t k = 0; step->in[0].dtype == ATTNRUN_I32 && k < ints->n; k++)
        if (ints->v[k] < INT32_MIN || ints->v[k] > INT32_MAX)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "the imputed value is %lld, expected one of 32 bits",
                           (long long)ints->v[k]);
    return elements_infer(step, step->in[0].dtype);
}

static void impute_real(const attnrun_step *step, int64_t i)
{
    const struct imputer_args *args = step->args;
    double x = tensor_get_real(&step->x[0], i), old = (double)args->replaced_value_float;
    if (x == old || (isnan(x) && isnan(old)))
        x = (double)args->imputed_value_floats.v[i % args->imputed_value_floats.n];
    put_real(&step->y[0], i, x);
}

static void impute_int(const attnrun_step *step, int64_t i)
{
    const struct imputer_args *args = step->args;
    int64_t x = tensor_get_int(&step->x[0], i);
    if (x == args->replaced_value_int64)
        x = args->imputed_value_int64s.v[i % args->imputed_value_int64s.n];
    if (step->y[0].dtype == ATTNRUN_I64)
        ((int64_t *)step->y[0].data)[i] = x;
    else
        ((int32_t *)step->y[0].data)[i] = (int32_t)x;
}

static attn_status imputer_run(const attnrun_step *step, const attnrun_work *work)
{
    bool real = dtype_in(step->x[0].dtype, ATTN_DT(F32) | ATTN_DT(F64));
    int64_t i, end = elements_of(step, work, &i);
    for (; i < end && !op_ml_stops(i); i++) {
        if (real)
            impute_real(step, i);
        else
            impute_int(step, i);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_imputer_1 = {
    MAP_ROW(imputer),
    .name = "Imputer",
    .outputs = "Y:T",
    .types = "T=" ML_REALS,
};

/* ---- OneHotEncoder ---- */

struct one_hot_args {
    attnrun_strings cats_strings;
    attnrun_ints cats_int64s;
    int64_t zeros;
};
static const attnrun_attr_def one_hot_attrs[] = {
    ATTR_STRINGS(struct one_hot_args, cats_strings),
    ATTR_INTS(struct one_hot_args, cats_int64s), ATTR_FLAG(struct one_hot_args, zeros, 1),
    ATTR_END
};

static attn_status one_hot_infer(attnrun_step *step)
{
    const struct one_hot_args *args = step->args;
    const attnrun_type *x = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    bool strings = x->dtype == ATTNRUN_STRING;
    int64_t n = strings ? args->cats_strings.n : args->cats_int64s.n;
    if (strings ? args->cats_strings.v == NULL : args->cats_int64s.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "there are no categories of the input's type");
    TRY(op_need_rank_between(step, 0, 0, ATTNRUN_MAX_RANK - 1));
    if (x->rank >= 0) {
        memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
        dims[x->rank] = dim_of(n);
    }
    TRY(op_out(step, 0, ATTNRUN_F32, x->rank < 0 ? -1 : x->rank + 1, dims));
    if (step->concrete)
        op_unit_tasks(step, 0, op_count(x, 0, x->rank), OP_CHUNK, (double)n + 4);
    return ATTNRUN_OK;
}

/* The category of element i, -1 where it is none. */
static int64_t category_of(const attnrun_step *step, int64_t i)
{
    const struct one_hot_args *args = step->args;
    int64_t k;
    if (step->x[0].dtype == ATTNRUN_STRING) {
        const attnrun_string *x = (const attnrun_string *)step->x[0].data + i;
        const attnrun_string *c = args->cats_strings.v;
        for (k = args->cats_strings.n - 1; k >= 0; k--)
            if (op_texts_equal(&c[k], x))
                break;
        return k;
    }
    int64_t value;
    if (dtype_in(step->x[0].dtype, ATTN_DT(F32) | ATTN_DT(F64))) {
        double real = tensor_get_real(&step->x[0], i);
        if (!(fabs(real) < 9.2e18))
            return -1;
        value = (int64_t)real;
    } else {
        value = tensor_get_int(&step->x[0], i);
    }
    k = args->cats_int64s.n - 1;
    while (k >= 0 && args->cats_int64s.v[k] != value)
        k--;
    return k;
}

static attn_status one_hot_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct one_hot_args *args = step->args;
    int64_t n =
        step->x[0].dtype == ATTNRUN_STRING ? args->cats_strings.n : args->cats_int64s.n;
    int64_t i, end = elements_of(step, work, &i);
    for (; i < end; i++) {
        float *y = (float *)step->y[0].data + i * n;
        int64_t k = category_of(step, i);
        if (OP_CANCELLED_AFTER(work, (n + 16) * (int64_t)sizeof *y))
            return ATTNRUN_E_CANCELLED;
        if (k < 0 && args->zeros == 0)
            return op_fail_input(
                step, 0, ATTNRUN_E_RANGE,
                "element %lld is not one of the categories, and zeros is 0",
                (long long)i);
        memset(y, 0, (size_t)n * sizeof *y);
        if (k >= 0)
            y[k] = 1;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_one_hot_encoder_1 = {
    ML_DOMAIN,
    .name = "OneHotEncoder",
    .inputs = "X:T",
    .outputs = "Y:f32",
    .types = "T=string," ML_REALS,
    .args_bytes = sizeof(struct one_hot_args),
    .attrs = one_hot_attrs,
    .infer = one_hot_infer,
    .run = one_hot_run,
    .cost = "O(n categories)",
};

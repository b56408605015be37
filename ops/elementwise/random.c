/* random.c - RandomNormal, RandomUniform (and …Like), Bernoulli, Multinomial.
 *
 * seed   the stream; without it one that depends only on the node's place, so a run
 *        repeats
 * shape  of y; …Like and Bernoulli take x's
 * dtype  of y, a float; x's where absent
 * Multinomial  x (batch, classes) unnormalized log-probabilities; y (batch, sample_size)
 *
 * The numbers are not those of other implementations. Cost: one hash for each element.
 * Source: ONNX, since 1, 15 and 7. */
#include "convert_dtypes.h"
#include "elementwise.h"
#include "random.h"

#include "../../runtime/tensor.h"

struct random_args {
    int64_t dtype, sample_size;
    float seed, mean, scale, low, high;
    attnrun_ints shape;
};
#define F(member, value) ATTR_FLOAT(struct random_args, member, value)
#define DTYPE(value)     ATTR_INT(struct random_args, dtype, value)
#define NO_SEED          __builtin_nanf("")
static const attnrun_attr_def normal_attrs[] = { ATTR_INTS_REQUIRED(struct random_args,
                                                                    shape),
                                                 DTYPE(ATTNRUN_F32),
                                                 F(seed, NO_SEED),
                                                 F(mean, 0.0f),
                                                 F(scale, 1.0f),
                                                 ATTR_END };
static const attnrun_attr_def uniform_attrs[] = { ATTR_INTS_REQUIRED(struct random_args,
                                                                     shape),
                                                  DTYPE(ATTNRUN_F32),
                                                  F(seed, NO_SEED),
                                                  F(low, 0.0f),
                                                  F(high, 1.0f),
                                                  ATTR_END };
static const attnrun_attr_def normal_like_attrs[] = { DTYPE(0), F(seed, NO_SEED),
                                                      F(mean, 0.0f), F(scale, 1.0f),
                                                      ATTR_END };
static const attnrun_attr_def uniform_like_attrs[] = { DTYPE(0), F(seed, NO_SEED),
                                                       F(low, 0.0f), F(high, 1.0f),
                                                       ATTR_END };
static const attnrun_attr_def bernoulli_attrs[] = { DTYPE(0), F(seed, NO_SEED),
                                                    ATTR_END };
static const attnrun_attr_def multinomial_attrs[] = {
    DTYPE(ATTNRUN_I32), ATTR_INT(struct random_args, sample_size, 1), F(seed, NO_SEED),
    ATTR_END
};

/* ---- infer ---- */

static attn_status output_dtype(const attnrun_step *step, uint32_t allowed,
                                int32_t *dtype)
{
    const struct random_args *args = step->args;
    int64_t wanted = args->dtype == 0 && step->n_in > 0 ? step->in[0].dtype : args->dtype;
    *dtype = wanted > 0 && wanted < ATTNRUN_DTYPE_COUNT ? (int32_t)wanted : 0;
    if (!dtype_in(*dtype, allowed))
        return op_fail(step, ATTNRUN_E_ATTR, "'dtype' is %lld (%s), expected %s",
                       (long long)wanted, attnrun_dtype_name(*dtype),
                       attn_dtype_set_names(allowed));
    return ATTNRUN_OK;
}

static attn_status random_infer(attnrun_step *step)
{
    const struct random_args *args = step->args;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int32_t dtype;
    TRY(output_dtype(step, ATTN_DT_FLOAT, &dtype));
    if (args->shape.n > ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED, "'shape' has %s, expected at most %d",
                       attn_plural(args->shape.n, "dim"), ATTNRUN_MAX_RANK);
    for (int64_t d = 0; d < args->shape.n; d++) {
        if (args->shape.v[d] < 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "'shape' holds %lld, expected no negative dim",
                           (long long)args->shape.v[d]);
        dims[d] = dim_of(args->shape.v[d]);
    }
    TRY(op_out(step, 0, dtype, (int)args->shape.n, dims));
    elementwise_tasks(step, 20000);
    return ATTNRUN_OK;
}

static attn_status like_infer(attnrun_step *step, uint32_t allowed)
{
    int32_t dtype;
    TRY(output_dtype(step, allowed, &dtype));
    TRY(op_out(step, 0, dtype, step->in[0].rank, step->in[0].dims));
    elementwise_tasks(step, 20000);
    return ATTNRUN_OK;
}

static attn_status random_like_infer(attnrun_step *step)
{
    return like_infer(step, ATTN_DT_FLOAT);
}

static attn_status bernoulli_infer(attnrun_step *step)
{
    return like_infer(step, ATTN_DT_NUM | ATTN_DT(BOOL));
}

static attn_status multinomial_infer(attnrun_step *step)
{
    const struct random_args *args = step->args;
    int32_t dtype;
    TRY(output_dtype(step, ATTN_DT(I32) | ATTN_DT(I64), &dtype));
    TRY(op_need_rank(step, 0, 2));
    if (args->sample_size < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "'sample_size' is %lld, expected 0 or more",
                       (long long)args->sample_size);
    attnrun_dim dims[2] = { step->in[0].rank == 2 ? step->in[0].dims[0]
                                                  : attnrun_dim_unknown(step),
                            dim_of(args->sample_size) };
    return op_out(step, 0, dtype, 2, dims);
}

/* ---- run ---- */

typedef double random_number(const struct random_args *args, uint64_t seed, int64_t k);

static double normal_number(const struct random_args *args, uint64_t seed, int64_t k)
{
    return (double)args->mean + (double)args->scale * random_normal(seed, (uint64_t)k);
}

static double uniform_number(const struct random_args *args, uint64_t seed, int64_t k)
{
    double low = (double)args->low, high = (double)args->high;
    return low + (high - low) * random_unit(seed, (uint64_t)k);
}

static attn_status random_fill(const attnrun_step *step, const attnrun_work *work,
                               random_number *number)
{
    const struct convert_rule rule = { true, ROUND_UP };
    const struct random_args *args = step->args;
    const attnrun_tensor *y = &step->y[0];
    uint64_t seed = random_seed(args->seed, step->node->index);
    union convert_run run;
    int64_t begin, end;
    elementwise_range(work, tensor_count(y), &begin, &end);
    for (int64_t k = begin; k < end; k += CONVERT_RUN) {
        int64_t n = end - k < CONVERT_RUN ? end - k : CONVERT_RUN;
        for (int64_t i = 0; i < n; i++)
            run.f64[i] = number(args, seed, k + i);
        attn_convert_store(y->dtype, y->data, k, n, ATTNRUN_F64, &run, &rule);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status normal_run(const attnrun_step *step, const attnrun_work *work)
{
    return random_fill(step, work, normal_number);
}

static attn_status uniform_run(const attnrun_step *step, const attnrun_work *work)
{
    return random_fill(step, work, uniform_number);
}

/* y = 1 with probability x, else 0. */
static attn_status bernoulli_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct random_args *args = step->args;
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    uint64_t seed = random_seed(args->seed, step->node->index);
    float run[CONVERT_RUN];
    int64_t begin, end;
    elementwise_range(work, tensor_count(y), &begin, &end);
    for (int64_t k = begin; k < end; k += CONVERT_RUN) {
        int64_t n = end - k < CONVERT_RUN ? end - k : CONVERT_RUN;
        attn_convert_load_f32(run, x->dtype, x->data, k, n);
        for (int64_t i = 0; i < n; i++)
            run[i] = random_unit(seed, (uint64_t)(k + i)) < (double)run[i] ? 1.0f : 0.0f;
        attn_convert_store_f32(y->dtype, y->data, k, n, run);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

/* The class at which the running sum of exp(x - top) passes u times the whole sum. */
static int64_t draw_class(const attnrun_tensor *x, int64_t row, double top, double sum,
                          double u)
{
    int64_t classes = x->dims[1];
    double running = 0;
    for (int64_t c = 0; c < classes && !attn_stops(c); c++) {
        running += exp(tensor_get_real(x, row * classes + c) - top);
        if (running > u * sum)
            return c;
    }
    return classes - 1;
}

static attn_status multinomial_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct random_args *args = step->args;
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    uint64_t seed = random_seed(args->seed, step->node->index);
    int64_t classes = x->dims[1], samples = y->dims[1];
    if (classes == 0 && tensor_count(y) > 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected at least one class");
    for (int64_t row = 0; row < x->dims[0]; row++) {
        double top = -HUGE_VAL, sum = 0;
        for (int64_t c = 0; c < classes && !attn_stops(c); c++)
            top = fmax(top, tensor_get_real(x, row * classes + c));
        for (int64_t c = 0; c < classes && !attn_stops(c); c++)
            sum += exp(tensor_get_real(x, row * classes + c) - top);
        for (int64_t s = 0; s < samples; s++) {
            int64_t k = row * samples + s;
            int64_t found = draw_class(x, row, top, sum, random_unit(seed, (uint64_t)k));
            if (y->dtype == ATTNRUN_I32)
                ((int32_t *)y->data)[k] = (int32_t)found;
            else
                ((int64_t *)y->data)[k] = found;
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
        }
    }
    return ATTNRUN_OK;
}

#define RANDOM_ROW(Name, first, in, attributes, infer_function, run_function)            \
    {                                                                                    \
        OP_ROW,                                                                          \
        .name = (Name),                                                                  \
        .since = (first),                                                                \
        .flags = ATTNRUN_OP_IMPURE,                                                      \
        .inputs = (in),                                                                  \
        .outputs = "y:B",                                                                \
        .types = "A=all B=all F=float",                                                  \
        .args_bytes = sizeof(struct random_args),                                        \
        .attrs = (attributes),                                                           \
        .infer = (infer_function),                                                       \
        .run = (run_function),                                                           \
    }
const attnrun_op_def op_random_normal_1 =
    RANDOM_ROW("RandomNormal", 1, "", normal_attrs, random_infer, normal_run);
const attnrun_op_def op_random_uniform_1 =
    RANDOM_ROW("RandomUniform", 1, "", uniform_attrs, random_infer, uniform_run);
const attnrun_op_def op_random_normal_like_1 = RANDOM_ROW(
    "RandomNormalLike", 1, "x:A", normal_like_attrs, random_like_infer, normal_run);
const attnrun_op_def op_random_uniform_like_1 = RANDOM_ROW(
    "RandomUniformLike", 1, "x:A", uniform_like_attrs, random_like_infer, uniform_run);
const attnrun_op_def op_bernoulli_15 =
    RANDOM_ROW("Bernoulli", 15, "x:F", bernoulli_attrs, bernoulli_infer, bernoulli_run);
const attnrun_op_def op_multinomial_7 = RANDOM_ROW(
    "Multinomial", 7, "x:F", multinomial_attrs, multinomial_infer, multinomial_run);

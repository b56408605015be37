/* range.c - Range: y[i] = start + i * delta, for all values before limit.
 *
 * start, limit, delta   one element each; delta is not 0, com.microsoft's 1 by default
 * n                     max(0, ceil((limit - start) / delta))
 * y                     (n), of the type of start
 *
 * Cost: one write of y. Source: ONNX Range-11, 27; ONNX Runtime contrib operators. */
#include <math.h>

#include "move.h"

struct range_args {
    int64_t stash_type;
};
static const attnrun_attr_def range_27_attrs[] = {
    ATTR_CHOICE(struct range_args, stash_type, OP_REAL_DTYPES, 1), ATTR_END
};

static bool is_int(int32_t dtype) { return dtype_in(dtype, ATTN_DT_SINT | ATTN_DT_UINT); }

/* Start (0), limit (1) or delta (2), where it is known at infer time. */
static bool part_value(const attnrun_step *step, int in, attnrun_dim *value)
{
    if (in == 2 && !op_has_in(step, 2)) {
        *value = dim_of(1);
        return true;
    }
    return op_move_value(step, in, 0, value);
}

static double delta_real(const attnrun_step *step)
{
    return op_has_in(step, 2) ? tensor_get_real(&step->x[2], 0) : 1.0;
}

/* -1 where it overflows. */
static int64_t count_ints(int64_t start, int64_t limit, int64_t delta)
{
    if (delta > 0 ? start >= limit : start <= limit)
        return 0;
    uint64_t span =
        delta > 0 ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t pace = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
    uint64_t n = span / pace + (span % pace != 0);
    return n > (uint64_t)ATTN_MAX_DIM ? -1 : (int64_t)n;
}

static int64_t count_reals(double start, double limit, double delta)
{
    double n = ceil((limit - start) / delta);
    if (!(n > 0)) /* NaN too */
        return isnan(n) ? -1 : 0;
    return n > (double)ATTN_MAX_DIM ? -1 : (int64_t)n;
}

static attn_status range_counted(attnrun_step *step, int64_t n)
{
    attnrun_dim dim = dim_of(n), values[64], start, delta;
    if (n < 0)
        return op_fail(
            step, ATTNRUN_E_RANGE,
            "start, limit and delta do not give a number of elements below 2^47");
    TRY(op_out(step, 0, step->in[0].dtype, 1, &dim));
    op_unit_tasks(step, 0, n, OP_CHUNK, 1);
    if (n > 64 || !is_int(step->in[0].dtype) || !part_value(step, 0, &start) ||
        !part_value(step, 2, &delta))
        return ATTNRUN_OK;
    for (int64_t k = 0; k < n; k++)
        values[k] = dim_of(
            (int64_t)((uint64_t)start.value + (uint64_t)k * (uint64_t)delta.value));
    attnrun_step_set_values(step, 0, n, values);
    return ATTNRUN_OK;
}

/* Symbolic: 0 … S has S elements; by steps of d, floor((S + d - 1) / d). */
static attn_status range_symbolic(attnrun_step *step)
{
    attnrun_dim v[3], n = attnrun_dim_unknown(step);
    bool known = is_int(step->in[0].dtype) && dtype_bits(step->in[0].dtype) >= 32;
    for (int i = 0; i < 3; i++)
        known = known && part_value(step, i, &v[i]);
    if (known && dim_is_const(v[2]) && v[2].value == 1)
        n = attnrun_dim_max(step, dim_of(0), attnrun_dim_sub(step, v[1], v[0]));
    else if (known && dim_is_const(v[2]) && v[2].value > 1 && v[2].value < ATTN_MAX_DIM) {
        const attnrun_dim span = attnrun_dim_add(step, attnrun_dim_sub(step, v[1], v[0]),
                                                 dim_of(v[2].value - 1));
        n = attnrun_dim_max(step, dim_of(0), attnrun_dim_div(step, span, v[2]));
    }
    return op_out(step, 0, step->in[0].dtype, 1, &n);
}

static attn_status range_infer(attnrun_step *step)
{
    attnrun_dim v[3];
    bool data = true, ints = is_int(step->in[0].dtype), known = ints;
    for (int i = 0; i < 3; i++) {
        if (!op_has_in(step, i))
            continue;
        TRY(op_need_rank_between(step, i, 0, 1));
        if (step->in[i].rank == 1)
            TRY(op_need_dim(step, i, 0, dim_of(1), "one element"));
        data = data && op_known(step, i);
    }
    for (int i = 0; i < 3 && known; i++)
        known = part_value(step, i, &v[i]) && dim_is_const(v[i]);
    if (known ? v[2].value == 0 : !ints && data && !(delta_real(step) != 0))
        return op_fail(step, ATTNRUN_E_RANGE,
                       "delta is 0, expected a number other than 0");
    if (known)
        return range_counted(step, count_ints(v[0].value, v[1].value, v[2].value));
    if (ints || !data)
        return range_symbolic(step);
    return range_counted(step,
                         count_reals(tensor_get_real(&step->x[0], 0),
                                     tensor_get_real(&step->x[1], 0), delta_real(step)));
}

static void write_range(const attnrun_step *step, int64_t from, int64_t end)
{
    const attnrun_tensor *y = &step->y[0];
    bool ints = is_int(y->dtype);
    int64_t a = ints ? tensor_get_int(&step->x[0], 0) : 0;
    int64_t d = 1;
    if (ints && op_has_in(step, 2))
        d = tensor_get_int(&step->x[2], 0);
    double start = ints ? 0 : tensor_get_real(&step->x[0], 0);
    double delta = ints ? 0 : delta_real(step);
    for (int64_t i = from; i < end; i++) {
        int64_t k = (int64_t)((uint64_t)a + (uint64_t)i * (uint64_t)d);
        double real = start + (double)i * delta;
        switch (y->dtype) {
        case ATTNRUN_F32:
            ((float *)y->data)[i] = (float)real;
            break;
        case ATTNRUN_F64:
            ((double *)y->data)[i] = real;
            break;
        case ATTNRUN_F16:
            ((uint16_t *)y->data)[i] = attn_f32_to_f16((float)real);
            break;
        case ATTNRUN_BF16:
            ((uint16_t *)y->data)[i] = attn_f32_to_bf16((float)real);
            break;
        case ATTNRUN_I16:
            ((int16_t *)y->data)[i] = (int16_t)k;
            break;
        case ATTNRUN_I32:
            ((int32_t *)y->data)[i] = (int32_t)k;
            break;
        default:
            ((int64_t *)y->data)[i] = k;
        }
    }
}

static attn_status range_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t n = step->y[0].dims[0];
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t end = (t + 1) * OP_CHUNK;
        write_range(step, t * OP_CHUNK, end < n ? end : n);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define RANGE_ROW                                                                        \
    OP_ROW, .name = "Range", .inputs = "start:T limit:T delta:T", .outputs = "output:T", \
        .types = "T=f32,f64,f16,bf16,i16,i32,i64", .infer = range_infer,                 \
        .run = range_run

const attnrun_op_def op_range_11 = { RANGE_ROW, .since = 11 };
const attnrun_op_def op_range_27 = { RANGE_ROW, .since = 27,
                                     .args_bytes = sizeof(struct range_args),
                                     .attrs = range_27_attrs };
const attnrun_op_def op_ms_range_1 = { OP_ROW_OF("com.microsoft"),
                                       .name = "Range",
                                       .since = 1,
                                       .inputs = "start:T limit:T delta:T?",
                                       .outputs = "Y:T",
                                       .types = "T=f32,f64,i16,i32,i64",
                                       .infer = range_infer,
                                       .run = range_run };

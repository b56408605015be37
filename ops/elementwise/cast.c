/* cast.c - Cast and CastLike: elements to another dtype.
 *
 * x           any shape, any dtype but complex
 * to          the dtype: a number; its name before opset 6; target_type's for CastLike
 * saturate    1: f8 values out of range become the largest, else NaN or infinity
 * round_mode  of f8e8m0: up, down, nearest
 *
 * Floats become integers towards zero and then modulo the width. f64 becomes f16 in one
 * rounding, as in NumPy, and bf16 and smaller floats by way of f32, as in ml_dtypes, which
 * ONNX's reference uses, and in ONNX Runtime. Text is decimal in both directions, and the
 * shortest that gives the same number. Cost: one pass. Source: ONNX Cast-1 to 28,
 * CastLike-15 to 25. */
#include "convert_dtypes.h"
#include "elementwise.h"
#include "text_number.h"

#include <stdio.h>

struct cast_args {
    int64_t to, saturate;
    attnrun_string to_name; /* opset 1 */
    int32_t round_mode;
};
static const attnrun_attr_def cast_attrs[] = {
    ATTR_INT_REQUIRED(struct cast_args, to), ATTR_FLAG(struct cast_args, saturate, 1),
    ATTR_ENUM(struct cast_args, round_mode, "up|down|nearest", ROUND_UP), ATTR_END
};
static const attnrun_attr_def cast_like_attrs[] = {
    ATTR_FLAG(struct cast_args, saturate, 1),
    ATTR_ENUM(struct cast_args, round_mode, "up|down|nearest", ROUND_UP), ATTR_END
};
static const attnrun_attr_def cast_1_attrs[] = { { .name = "to",
                                                   .kind = ATTNRUN_ATTR_STRING,
                                                   .offset = offsetof(struct cast_args,
                                                                      to_name),
                                                   .flags = ATTNRUN_ATTR_REQUIRED },
                                                 ATTR_END };

static attnrun_dim cast_value(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    int32_t to = step->out[0].dtype;
    (void)b;
    if (to == ATTNRUN_BOOL)
        return dim_is_const(a) ? dim_of(a.value != 0)
                               : (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    if (to == ATTNRUN_I32 && dim_is_const(a) &&
        (a.value > INT32_MAX || a.value < INT32_MIN))
        return (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    return a;
}

/* The longest text of a number of that dtype: sign, digits, and ".0" or "e-308"
 * behind. */
static int64_t text_width(int32_t dtype)
{
    if (dtype_in(dtype, ATTN_DT_FLOAT) || attn_convert_wide(dtype) == ATTNRUN_F32)
        return 24;
    return dtype_bits(dtype) <= 8 ? 5 : dtype_bits(dtype) <= 32 ? 11 : 20;
}

/* Text of all elements of constant dims; -1 where that overflows. */
static int64_t text_bytes(const attnrun_type *x)
{
    int64_t bytes;
    return ck_mul(op_count(x, 0, x->rank), text_width(x->dtype), &bytes) ? bytes : -1;
}

static attn_status cast_infer_to(attnrun_step *step, int64_t to)
{
    const attnrun_type *x = &step->in[0];
    int32_t dtype = to > 0 && to < ATTNRUN_DTYPE_COUNT ? (int32_t)to : ATTNRUN_UNDEFINED;
    if (dtype != ATTNRUN_STRING && attn_convert_wide(dtype) == ATTNRUN_UNDEFINED)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "'to' is %lld, expected a real type or string", (long long)to);
    if (x->dtype != ATTNRUN_UNDEFINED && x->dtype != ATTNRUN_STRING &&
        attn_convert_wide(x->dtype) == ATTNRUN_UNDEFINED)
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE, "expected a real type or string");
    TRY(op_out(step, 0, dtype, x->rank, x->dims));
    if (dtype == x->dtype)
        attnrun_step_view(step, 0, 0, 0);
    else if (dtype_bits(dtype) >= 8 && dtype != ATTNRUN_STRING &&
             x->dtype != ATTNRUN_STRING)
        op_elementwise_inplace(step, 0);
    if (dtype_in(x->dtype, ATTN_DT(I32) | ATTN_DT(I64) | ATTN_DT(BOOL)))
        op_elementwise_known(step, 0, -1, cast_value);
    if (dtype != ATTNRUN_STRING)
        elementwise_tasks(step, x->dtype != ATTNRUN_STRING ? 500 : 300000);
    else if (step->concrete && x->dtype != ATTNRUN_STRING)
        attnrun_step_heap_bound(step, text_bytes(x));
    return ATTNRUN_OK;
}

static attn_status cast_infer(attnrun_step *step)
{
    const struct cast_args *args = step->args;
    return cast_infer_to(step, args->to);
}

static attn_status cast_like_infer(attnrun_step *step)
{
    return cast_infer_to(step, step->in[1].dtype);
}

static attn_status cast_1_infer(attnrun_step *step)
{
    static const struct {
        const char *name;
        int32_t dtype;
    } names[] = { { "FLOAT", ATTNRUN_F32 },    { "UINT8", ATTNRUN_U8 },
                  { "INT8", ATTNRUN_I8 },      { "UINT16", ATTNRUN_U16 },
                  { "INT16", ATTNRUN_I16 },    { "INT32", ATTNRUN_I32 },
                  { "INT64", ATTNRUN_I64 },    { "BOOL", ATTNRUN_BOOL },
                  { "FLOAT16", ATTNRUN_F16 },  { "DOUBLE", ATTNRUN_F64 },
                  { "UINT32", ATTNRUN_U32 },   { "UINT64", ATTNRUN_U64 },
                  { "STRING", ATTNRUN_STRING } };
    const struct cast_args *args = step->args;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (op_text_is(args->to_name, names[i].name))
            return cast_infer_to(step, names[i].dtype);
    return op_fail(step, ATTNRUN_E_ATTR, "'to' is '%s', expected FLOAT, INT64, …",
                   args->to_name.data ? attn_quote(args->to_name.data) : "");
}

/* ---- numbers ---- */

/* The pairs that have kernels. */
static bool cast_kernel(const attnrun_step *step, int64_t begin, int64_t n)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    const struct attn_kernels *kernels = step->kernels;
    const char *from = (const char *)x->data + begin * dtype_bytes(x->dtype);
    char *to = (char *)y->data + begin * dtype_bytes(y->dtype);
    if (x->dtype == ATTNRUN_F32 && y->dtype == ATTNRUN_F16)
        kernels->f32_to_f16((void *)to, (const void *)from, (size_t)n);
    else if (x->dtype == ATTNRUN_F32 && y->dtype == ATTNRUN_BF16)
        kernels->f32_to_bf16((void *)to, (const void *)from, (size_t)n);
    else if (x->dtype == ATTNRUN_F16 && y->dtype == ATTNRUN_F32)
        kernels->f16_to_f32((void *)to, (const void *)from, (size_t)n);
    else if (x->dtype == ATTNRUN_BF16 && y->dtype == ATTNRUN_F32)
        kernels->bf16_to_f32((void *)to, (const void *)from, (size_t)n);
    else
        return false;
    return true;
}

static attn_status cast_numbers(const attnrun_step *step, int64_t begin, int64_t end,
                                const attnrun_work *work)
{
    const struct cast_args *args = step->args;
    const struct convert_rule rule = {
        args->saturate != 0 || step->node->op->attrs == cast_1_attrs, args->round_mode
    };
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    int32_t wide = attn_convert_wide(x->dtype);
    union convert_run run;
    int64_t size = dtype_bytes(x->dtype);
    if (end > begin && cast_kernel(step, begin, end - begin))
        return ATTNRUN_OK;
    for (int64_t k = begin; k < end; k += CONVERT_RUN) {
        int64_t n = end - k < CONVERT_RUN ? end - k : CONVERT_RUN;
        const void *from = &run;
        if (wide == x->dtype && y->data != x->data)
            from = (const char *)x->data + k * size;
        else if (x->dtype == ATTNRUN_F16)
            step->kernels->f16_to_f32(run.f32, (const uint16_t *)x->data + k, (size_t)n);
        else
            attn_convert_load(&run, x->dtype, x->data, k, n);
        attn_convert_store(y->dtype, y->data, k, n, wide, from, &rule);
        if (k % OP_CHUNK == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

/* ---- text ---- */

static int number_to_text(char text[TEXT_NUMBER_BYTES], const attnrun_tensor *x,
                          int64_t k)
{
    union convert_run run;
    int32_t wide = attn_convert_wide(x->dtype);
    attn_convert_load(&run, x->dtype, x->data, k, 1);
    if (x->dtype == ATTNRUN_BOOL)
        return snprintf(text, TEXT_NUMBER_BYTES, "%s", run.i64[0] ? "True" : "False");
    if (wide == ATTNRUN_I64)
        return snprintf(text, TEXT_NUMBER_BYTES, "%lld", (long long)run.i64[0]);
    if (wide == ATTNRUN_U64)
        return snprintf(text, TEXT_NUMBER_BYTES, "%llu", (unsigned long long)run.u64[0]);
    return attn_text_from_real(
        text, wide == ATTNRUN_F64 ? run.f64[0] : (double)run.f32[0], x->dtype);
}

/* Of work for the shortest digits of a number, which take some microseconds, and for those of a
 * text. */
enum { NUMBER_BYTES = 4096, TEXT_BYTES = 512 };

static attn_status cast_to_text(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    attnrun_string *y = step->y[0].data;
    int64_t count = tensor_count(x), width = text_width(x->dtype), bytes;
    char text[TEXT_NUMBER_BYTES];
    if (!ck_mul(count, width, &bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "the strings of %lld numbers take more than 2^63 - 1 bytes",
                       (long long)count);
    char *room = op_heap(step, 0, bytes);
    if (room == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t k = 0; k < count; k++) {
        int n = number_to_text(text, x, k);
        if (n < 0 || n > width)
            return op_fail(step, ATTNRUN_E_INTERNAL, "a number has %d characters", n);
        memcpy(room, text, (size_t)n);
        y[k] = (attnrun_string){ room, n };
        room += n;
        if (OP_CANCELLED_AFTER(work, NUMBER_BYTES))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status cast_from_text(const attnrun_step *step, int64_t begin, int64_t end)
{
    const struct convert_rule rule = { true, ROUND_UP };
    const attnrun_string *x = step->x[0].data;
    const attnrun_tensor *y = &step->y[0];
    bool whole = attn_convert_wide(y->dtype) == ATTNRUN_I64 || y->dtype == ATTNRUN_U64;
    for (int64_t k = begin; k < end; k++) {
        union convert_run run;
        int32_t wide = ATTNRUN_F64;
        if (whole && attn_text_to_int(x[k].data, x[k].n, &run.i64[0]))
            wide = y->dtype == ATTNRUN_U64 ? ATTNRUN_U64 : ATTNRUN_I64;
        else if (!attn_text_to_real(x[k].data, x[k].n, &run.f64[0]))
            return op_fail(step, ATTNRUN_E_RANGE,
                           "element %lld is '%.*s', expected a number", (long long)k,
                           (int)min64(x[k].n, 40), x[k].n > 0 ? x[k].data : "");
        attn_convert_store(y->dtype, y->data, k, 1, wide, &run, &rule);
        TRY(attn_poll_work(TEXT_BYTES + x[k].n));
    }
    return ATTNRUN_OK;
}

static attn_status cast_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    int64_t begin, end;
    if (x->dtype == y->dtype) {
        if (work->begin == 0 && x->data != y->data)
            memmove(y->data, x->data, (size_t)tensor_bytes(x));
        return ATTNRUN_OK;
    }
    if (y->dtype == ATTNRUN_STRING)
        return cast_to_text(step, work);
    elementwise_range(work, tensor_count(x), &begin, &end);
    if (x->dtype == ATTNRUN_STRING)
        return cast_from_text(step, begin, end);
    return cast_numbers(step, begin, end, work);
}

#define CAST_ROW                                                                         \
    OP_ROW, .outputs = "y:B", .types = "A=all B=all",                                    \
        .args_bytes = sizeof(struct cast_args), .run = cast_run
const attnrun_op_def op_cast_1 = {
    CAST_ROW,        .name = "Cast",        .since = 1,
    .inputs = "x:A", .attrs = cast_1_attrs, .infer = cast_1_infer
};
const attnrun_op_def op_cast_6 = {
    CAST_ROW,        .name = "Cast",      .since = 6,
    .inputs = "x:A", .attrs = cast_attrs, .infer = cast_infer
};
const attnrun_op_def op_cast_like_15 = { CAST_ROW,
                                         .name = "CastLike",
                                         .since = 15,
                                         .inputs = "x:A target_type:B",
                                         .attrs = cast_like_attrs,
                                         .infer = cast_like_infer };

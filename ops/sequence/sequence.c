/* sequence.c - SequenceConstruct, -Empty, -At, -Insert, -Erase, -Length: lists of tensors
 * of one dtype. Values are immutable, so a result holds copies. All are dynamic-shape
 * steps.
 *
 * position   one i32 or i64; negative counts from the end; E_RANGE outside
 *
 * Cost: a copy of the tensors of the result. Source: ONNX Sequence*-11. */
#include "values.h"

static attn_status construct_infer(attnrun_step *step)
{
    int64_t bytes = step->n_in * (int64_t)(sizeof(attnrun_tensor) + OP_HEAP_BLOCK);
    bool known = step->concrete && step->in[0].dtype != ATTNRUN_STRING;
    for (int i = 0; known && i < step->n_in; i++) {
        const attnrun_type *in = &step->in[i];
        int64_t more = dtype_bytes_of(in->dtype, op_count(in, 0, in->rank));
        known = more >= 0 && ck_add(bytes, more, &bytes);
    }
    if (known)
        attnrun_step_heap_bound(step, bytes);
    return op_value_unknown(step, 0, ATTNRUN_SEQUENCE, step->in[0].dtype);
}

static attn_status construct_run(const attnrun_step *step, const attnrun_work *work)
{
    TRY(op_sequence(step, 0, step->n_in));
    attnrun_tensor *items = step->y[0].data;
    step->y[0].dtype = step->in[0].dtype;
    for (int i = 0; i < step->n_in && op_has_out(step, 0); i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(op_heap_copy(step, 0, &step->x[i], &items[i]));
    }
    return ATTNRUN_OK;
}

struct empty_args {
    int64_t dtype;
};
static const attnrun_attr_def empty_attrs[] = {
    ATTR_CHOICE(struct empty_args, dtype, "1..28", ATTNRUN_F32), ATTR_END
};

static attn_status empty_infer(attnrun_step *step)
{
    const struct empty_args *args = step->args;
    if (args->dtype <= 0 || args->dtype >= ATTNRUN_DTYPE_COUNT)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "dtype is %lld, expected the number of an element type",
                       (long long)args->dtype);
    attnrun_step_heap_bound(step, 0);
    return op_value_unknown(step, 0, ATTNRUN_SEQUENCE, (int32_t)args->dtype);
}

static attn_status empty_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct empty_args *args = step->args;
    (void)work;
    TRY(op_sequence(step, 0, 0));
    if (op_has_out(step, 0))
        step->y[0].dtype = (int32_t)args->dtype;
    return ATTNRUN_OK;
}

/* The position in input `in` of a list of n elements, up to `last`, which it is where it is not
 * given. */
static attn_status position_of(const attnrun_step *step, int in, int64_t n, int64_t last,
                               int64_t *position)
{
    if (!op_has_in(step, in)) {
        *position = last;
        return ATTNRUN_OK;
    }
    if (tensor_count(&step->x[in]) != 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one element");
    int64_t at = tensor_get_int(&step->x[in], 0);
    if (at < -n || at > last)
        return op_fail(step, ATTNRUN_E_RANGE, "position is %lld, expected %lld to %lld",
                       (long long)at, (long long)-n, (long long)last);
    *position = at < 0 ? at + n : at;
    return ATTNRUN_OK;
}

static attn_status at_infer(attnrun_step *step)
{
    return op_value_unknown(step, 0, ATTNRUN_TENSOR, step->in[0].dtype);
}

static attn_status at_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t at = 0;
    (void)work;
    TRY(position_of(step, 1, step->x[0].dims[0], step->x[0].dims[0] - 1, &at));
    if (step->x[0].dims[0] == 0)
        return op_fail(step, ATTNRUN_E_RANGE, "the sequence is empty");
    return op_value_out(step, 0, (const attnrun_tensor *)step->x[0].data + at);
}

static attn_status insert_infer(attnrun_step *step)
{
    return op_value_unknown(step, 0, ATTNRUN_SEQUENCE, step->in[1].dtype);
}

static attn_status insert_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *list = &step->x[0], *items = list->data;
    int64_t n = list->dims[0], at = 0;
    TRY(position_of(step, 2, n, n, &at)); /* n itself: at the end */
    TRY(op_sequence(step, 0, n + 1));
    attnrun_tensor *made = step->y[0].data;
    if (!op_has_out(step, 0))
        return ATTNRUN_OK;
    step->y[0].dtype = step->x[1].dtype;
    for (int64_t i = 0; i <= n; i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(op_heap_copy(step, 0, i == at ? &step->x[1] : &items[i < at ? i : i - 1],
                         &made[i]));
    }
    return ATTNRUN_OK;
}

static attn_status erase_infer(attnrun_step *step)
{
    return op_value_unknown(step, 0, ATTNRUN_SEQUENCE, step->in[0].dtype);
}

static attn_status erase_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *list = &step->x[0], *items = list->data;
    int64_t n = list->dims[0], at = 0;
    if (n == 0)
        return op_fail(step, ATTNRUN_E_RANGE, "the sequence is empty");
    TRY(position_of(step, 1, n, n - 1, &at));
    TRY(op_sequence(step, 0, n - 1));
    attnrun_tensor *made = step->y[0].data;
    if (!op_has_out(step, 0))
        return ATTNRUN_OK;
    step->y[0].dtype = list->dtype;
    for (int64_t i = 0; i < n - 1; i++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(op_heap_copy(step, 0, &items[i < at ? i : i + 1], &made[i]));
    }
    return ATTNRUN_OK;
}

static attn_status length_infer(attnrun_step *step)
{
    attnrun_step_heap_bound(step, 0);
    return op_out(step, 0, ATTNRUN_I64, 0, NULL);
}

static attn_status length_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    if (step->y[0].data != NULL)
        *(int64_t *)step->y[0].data = step->x[0].dims[0];
    return ATTNRUN_OK;
}

#define SEQUENCE_ROW                                                                     \
    OP_ROW, .since = 11, .flags = ATTNRUN_OP_DYNAMIC, .types = "T=all I=i32,i64"

const attnrun_op_def op_sequence_construct_11 = { SEQUENCE_ROW,
                                                  .name = "SequenceConstruct",
                                                  .inputs = "inputs:T*",
                                                  .outputs = "output_sequence:seq(T)",
                                                  .infer = construct_infer,
                                                  .run = construct_run };
const attnrun_op_def op_sequence_empty_11 = { SEQUENCE_ROW,
                                              .name = "SequenceEmpty",
                                              .inputs = "",
                                              .outputs = "output:seq(T)",
                                              .args_bytes = sizeof(struct empty_args),
                                              .attrs = empty_attrs,
                                              .infer = empty_infer,
                                              .run = empty_run };
const attnrun_op_def op_sequence_at_11 = { SEQUENCE_ROW,
                                           .name = "SequenceAt",
                                           .inputs = "input_sequence:seq(T) position:I",
                                           .outputs = "tensor:T",
                                           .infer = at_infer,
                                           .run = at_run };
const attnrun_op_def op_sequence_insert_11 = {
    SEQUENCE_ROW,
    .name = "SequenceInsert",
    .inputs = "input_sequence:seq(T) tensor:T position:I?",
    .outputs = "output_sequence:seq(T)",
    .infer = insert_infer,
    .run = insert_run
};
const attnrun_op_def op_sequence_erase_11 = { SEQUENCE_ROW,
                                              .name = "SequenceErase",
                                              .inputs =
                                                  "input_sequence:seq(T) position:I?",
                                              .outputs = "output_sequence:seq(T)",
                                              .infer = erase_infer,
                                              .run = erase_run };
const attnrun_op_def op_sequence_length_11 = { OP_ROW,
                                               .name = "SequenceLength",
                                               .since = 11,
                                               .inputs = "input_sequence:seq(T)",
                                               .outputs = "length:i64",
                                               .types = "T=all",
                                               .infer = length_infer,
                                               .run = length_run };

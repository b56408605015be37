/* optional.c - Optional, OptionalGetElement, OptionalHasElement: a tensor, a sequence, or
 * nothing. The result holds a copy.
 *
 * Optional without an input is empty, of the type that its attribute states. Cost: one
 * copy. Source: ONNX Optional-15, OptionalGetElement-15, 18, OptionalHasElement-15, 18.
 */
#include "values.h"

struct optional_args {
    attnrun_type type;
};
static const attnrun_attr_def optional_attrs[] = { ATTR_TYPE(struct optional_args, type),
                                                   ATTR_END };

static int32_t optional_kind(int32_t inner)
{
    return inner == ATTNRUN_SEQUENCE ? ATTNRUN_OPTIONAL_SEQUENCE : ATTNRUN_OPTIONAL;
}

/* The kind and dtype of the resulting optional. */
static attn_status made_kind(const attnrun_step *step, int32_t *kind, int32_t *dtype)
{
    const struct optional_args *args = step->args;
    const attnrun_type *type = op_has_in(step, 0) ? &step->in[0] : &args->type;
    if (type->kind != ATTNRUN_TENSOR && type->kind != ATTNRUN_SEQUENCE)
        return op_has_in(step, 0)
                   ? op_fail_input(step, 0, ATTNRUN_E_DTYPE,
                                   "expected a tensor or a sequence")
                   : op_fail(step, ATTNRUN_E_ATTR,
                             "there is no input, and attribute type is not that of a "
                             "tensor or a sequence");
    *kind = optional_kind(type->kind);
    *dtype = type->dtype;
    return ATTNRUN_OK;
}

static attn_status optional_infer(attnrun_step *step)
{
    int32_t kind = 0, dtype = 0;
    TRY(made_kind(step, &kind, &dtype));
    return op_value_unknown(step, 0, kind, dtype);
}

static attn_status optional_run(const attnrun_step *step, const attnrun_work *work)
{
    attnrun_tensor made = { .kind = 0 };
    (void)work;
    if (!op_has_out(step, 0))
        return ATTNRUN_OK;
    TRY(made_kind(step, &made.kind, &made.dtype));
    if (op_has_in(step, 0)) {
        made.data = op_heap(step, 0, (int64_t)sizeof made);
        if (made.data == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(op_heap_copy(step, 0, &step->x[0], made.data));
    }
    step->y[0] = made;
    return ATTNRUN_OK;
}

static attn_status get_infer(attnrun_step *step)
{
    int32_t kind = step->in[0].kind;
    bool list = kind == ATTNRUN_SEQUENCE || kind == ATTNRUN_OPTIONAL_SEQUENCE;
    return op_value_unknown(step, 0, list ? ATTNRUN_SEQUENCE : ATTNRUN_TENSOR,
                            step->in[0].dtype);
}

static attn_status get_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    (void)work;
    if (x->kind == ATTNRUN_OPTIONAL || x->kind == ATTNRUN_OPTIONAL_SEQUENCE) {
        if (x->data == NULL)
            return op_fail(step, ATTNRUN_E_RANGE, "the optional holds nothing");
        x = x->data;
    }
    return op_value_out(step, 0, x);
}

static attn_status has_infer(attnrun_step *step)
{
    attnrun_step_heap_bound(step, 0);
    return op_out(step, 0, ATTNRUN_BOOL, 0, NULL);
}

static attn_status has_run(const attnrun_step *step, const attnrun_work *work)
{
    bool has = op_has_in(step, 0);
    (void)work;
    if (has && (step->x[0].kind == ATTNRUN_OPTIONAL ||
                step->x[0].kind == ATTNRUN_OPTIONAL_SEQUENCE))
        has = step->x[0].data != NULL;
    if (step->y[0].data != NULL)
        *(uint8_t *)step->y[0].data = has;
    return ATTNRUN_OK;
}

const attnrun_op_def op_optional_15 = { OP_ROW,
                                        .flags = ATTNRUN_OP_DYNAMIC,
                                        .name = "Optional",
                                        .since = 15,
                                        .inputs = "input:any?",
                                        .outputs = "output:any",
                                        .args_bytes = sizeof(struct optional_args),
                                        .attrs = optional_attrs,
                                        .infer = optional_infer,
                                        .run = optional_run };
const attnrun_op_def op_optional_get_element_15 = { OP_ROW,
                                                    .flags = ATTNRUN_OP_DYNAMIC,
                                                    .name = "OptionalGetElement",
                                                    .since = 15,
                                                    .inputs = "input:any",
                                                    .outputs = "output:any",
                                                    .infer = get_infer,
                                                    .run = get_run };
const attnrun_op_def op_optional_has_element_15 = { OP_ROW,
                                                    .name = "OptionalHasElement",
                                                    .since = 15,
                                                    .inputs = "input:any?",
                                                    .outputs = "output:b8",
                                                    .infer = has_infer,
                                                    .run = has_run };

/* pad.c - Pad: puts elements before and after each axis; negative counts remove some.
 *
 * data     any type and shape
 * pads     all befores, then all afters (attribute up to 10, then input), of all axes or
 *          of `axes` (from 18); com.microsoft's may be (1, 2 rank)
 * mode     constant (0 by default), reflect (without the edge), edge, wrap
 *
 * Cost: one write of the result. Source: ONNX Pad-1, 2, 11, 18, 19; ONNX Runtime contrib
 * operators. */
#include "padding.h"

struct pad_args {
    attnrun_ints pads;
    float value;
    int32_t mode;
};
#define MODES "constant|reflect|edge|wrap"
static const attnrun_attr_def pad_1_attrs[] = {
    { .name = "paddings",
      .kind = ATTNRUN_ATTR_INTS,
      .flags = ATTNRUN_ATTR_REQUIRED,
      .offset = offsetof(struct pad_args, pads) },
    ATTR_FLOAT(struct pad_args, value, 0),
    ATTR_ENUM(struct pad_args, mode, MODES, 0),
    ATTR_END
};
static const attnrun_attr_def pad_2_attrs[] = {
    ATTR_INTS_REQUIRED(struct pad_args, pads), ATTR_FLOAT(struct pad_args, value, 0),
    ATTR_ENUM(struct pad_args, mode, MODES, 0), ATTR_END
};
static const attnrun_attr_def pad_11_attrs[] = {
    ATTR_ENUM(struct pad_args, mode, MODES, 0), ATTR_END
};

/* The pads of all axes; expr -1 where not known. */
struct pads {
    attnrun_dim begin[ATTNRUN_MAX_RANK], end[ATTNRUN_MAX_RANK];
};

static attn_status pads_of_attribute(const attnrun_step *step, struct pads *pads)
{
    const struct pad_args *args = step->args;
    int rank = step->in[0].rank;
    if (args->pads.n != 2 * rank)
        return op_fail(step, ATTNRUN_E_ATTR, "pads has %s, expected %d",
                       attn_plural(args->pads.n, "element"), 2 * rank);
    for (int i = 0; i < rank; i++) {
        pads->begin[i] = dim_of(args->pads.v[i]);
        pads->end[i] = dim_of(args->pads.v[rank + i]);
    }
    return ATTNRUN_OK;
}

static attn_status pads_of_input(const attnrun_step *step, struct pads *pads)
{
    int rank = step->in[0].rank, n = rank, at = 0;
    int64_t axes[ATTNRUN_MAX_RANK];
    uint32_t seen = 0;
    bool known = true;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    if (op_has_in(step, 3))
        TRY(op_ints(step, 3, axes, ATTNRUN_MAX_RANK, &n, &known));
    for (int i = 0; i < rank; i++)
        pads->begin[i] = pads->end[i] = known ? dim_of(0) : op_move_no_value();
    if (!known)
        return ATTNRUN_OK;
    if (op_rank_known(step, 1)) {
        int list = step->in[1].rank - 1;
        TRY(op_need_rank_between(step, 1, 1, step->node->domain[0] != '\0' ? 2 : 1));
        if (list == 1)
            TRY(op_need_dim(step, 1, 0, dim_of(1), "one list"));
        TRY(op_need_dim(step, 1, list, dim_of(2 * n), "two for each axis"));
    }
    for (int i = 0; i < n; i++) {
        TRY(op_axis_once(step, axes[i], rank, &seen, &at));
        if (!op_move_value(step, 1, i, &pads->begin[at]))
            pads->begin[at] = op_move_no_value();
        if (!op_move_value(step, 1, n + i, &pads->end[at]))
            pads->end[at] = op_move_no_value();
    }
    return ATTNRUN_OK;
}

static attn_status pad_axis(const attnrun_step *step, int i, attnrun_dim begin,
                            attnrun_dim end, attnrun_dim *dim, bool *planned)
{
    attnrun_dim extent = step->in[0].dims[i];
    if (begin.expr < 0 || end.expr < 0) {
        *dim = attnrun_dim_unknown(step);
        *planned = false;
        return ATTNRUN_OK;
    }
    *dim = attnrun_dim_add(step, attnrun_dim_add(step, extent, begin), end);
    if (dim->expr == ATTN_DIM_INVALID)
        return op_fail(step, ATTNRUN_E_LIMIT,
                       "the padded size of axis %d is over 2^63 - 1", i);
    *planned = *planned && dim_is_const(begin) && dim_is_const(end);
    if (dim_is_const(*dim) && dim_is_const(begin) && dim_is_const(end) && dim->value < 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected more elements along axis %d than the pads remove",
                             i);
    return ATTNRUN_OK;
}

static attn_status pad_infer(attnrun_step *step)
{
    const struct pad_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    int64_t begin[ATTNRUN_MAX_RANK], end[ATTNRUN_MAX_RANK];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    bool planned = step->concrete != 0;
    struct pads pads;
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    if (step->n_in > 1)
        TRY(pads_of_input(step, &pads));
    else
        TRY(pads_of_attribute(step, &pads));
    for (int i = 0; i < in->rank; i++) {
        TRY(pad_axis(step, i, pads.begin[i], pads.end[i], &dims[i], &planned));
        begin[i] = pads.begin[i].value;
        end[i] = pads.end[i].value;
        if (planned && args->mode != OP_PAD_CONSTANT &&
            (begin[i] < -in->dims[i].value || end[i] < -in->dims[i].value))
            return op_fail_input(
                step, 0, ATTNRUN_E_SHAPE,
                "expected more elements along axis %d than the pads remove", i);
    }
    TRY(op_out(step, 0, in->dtype, in->rank, dims));
    if (op_has_in(step, 2) && op_rank_known(step, 2)) {
        attnrun_dim one = op_dims_product(step, step->in[2].dims, 0, step->in[2].rank);
        if (!dim_may_equal(one, dim_of(1)))
            return op_fail_input(step, 2, ATTNRUN_E_SHAPE, "expected one element");
    }
    return planned && op_move_planned(step, 0)
               ? op_padding_plan(step, step->state, args->mode, begin, end)
               : ATTNRUN_OK;
}

static attn_status pad_run(const attnrun_step *step, const attnrun_work *work)
{
    static const attnrun_string empty = { "", 0 };
    const struct pad_args *args = step->args;
    char value[16] = { 0 };
    int32_t dtype = step->in[0].dtype;
    double real = (double)args->value;
    uint16_t half = dtype == ATTNRUN_BF16 ? attn_f32_to_bf16(args->value)
                                          : attn_f32_to_f16(args->value);
    if (op_has_in(step, 2))
        memcpy(value, step->x[2].data, (size_t)dtype_bytes(dtype));
    else if (dtype == ATTNRUN_STRING)
        memcpy(value, &empty, sizeof empty);
    else if (dtype == ATTNRUN_F32)
        memcpy(value, &args->value, 4);
    else if (dtype == ATTNRUN_F64)
        memcpy(value, &real, 8);
    else if (dtype == ATTNRUN_F16 || dtype == ATTNRUN_BF16)
        memcpy(value, &half, 2);
    return op_padding_run(step, step->state, work, value);
}

#define PAD_ROW                                                                          \
    OP_ROW, .name = "Pad", .outputs = "output:T", .args_bytes = sizeof(struct pad_args), \
        .state_bytes = sizeof(struct op_padding), .infer = pad_infer, .run = pad_run

const attnrun_op_def op_pad_1 = { PAD_ROW, .since = 1, .inputs = "data:T",
                                  .types = "T=f32,f64,f16,bf16", .attrs = pad_1_attrs };
const attnrun_op_def op_pad_2 = { PAD_ROW, .since = 2, .inputs = "data:T",
                                  .types = "T=f32,f64,f16,bf16", .attrs = pad_2_attrs };
const attnrun_op_def op_pad_11 = { PAD_ROW, .since = 11, .types = "T=all",
                                   .inputs = "data:T pads:i64 constant_value:T?",
                                   .attrs = pad_11_attrs };
const attnrun_op_def op_pad_18 = { PAD_ROW, .since = 18, .types = "T=all I=i32,i64",
                                   .inputs = "data:T pads:i64 constant_value:T? axes:I?",
                                   .attrs = pad_11_attrs };
const attnrun_op_def op_ms_pad_1 = { OP_ROW_OF("com.microsoft"),
                                     .name = "Pad",
                                     .since = 1,
                                     .inputs = "data:T pads:i64 value:T?",
                                     .outputs = "output:T",
                                     .types = "T=f32,f64,f16",
                                     .args_bytes = sizeof(struct pad_args),
                                     .state_bytes = sizeof(struct op_padding),
                                     .attrs = pad_11_attrs,
                                     .infer = pad_infer,
                                     .run = pad_run };

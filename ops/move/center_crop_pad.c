/* center_crop_pad.c - CenterCropPad: each axis is cropped or zero-padded around its
 * centre.
 *
 * input   any type and shape
 * shape   the extents wanted, of all axes or of `axes`
 *
 * An odd difference leaves one element more behind than before. Cost: one copy of the
 * result. Source: ONNX CenterCropPad-18. */
#include "padding.h"

struct center_args {
    attnrun_ints axes;
};
static const attnrun_attr_def center_attrs[] = { ATTR_INTS(struct center_args, axes),
                                                 ATTR_END };

static attn_status center_infer(attnrun_step *step)
{
    const struct center_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    int64_t begin[ATTNRUN_MAX_RANK] = { 0 }, end[ATTNRUN_MAX_RANK] = { 0 };
    attnrun_dim dims[ATTNRUN_MAX_RANK], wanted;
    uint32_t seen = 0;
    bool planned = step->concrete != 0;
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    int64_t n = args->axes.v != NULL ? args->axes.n : in->rank;
    if (n > in->rank)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "axes has %s, expected at most %d, the rank of the input",
                       attn_plural(n, "element"), in->rank);
    TRY(op_need_rank(step, 1, 1));
    if (op_rank_known(step, 1))
        TRY(op_need_dim(step, 1, 0, dim_of(n), "one for each axis"));
    memcpy(dims, in->dims, sizeof dims);
    for (int i = 0; i < n; i++) {
        int axis = i;
        if (args->axes.v != NULL)
            TRY(op_axis_once(step, args->axes.v[i], in->rank, &seen, &axis));
        bool known = op_move_value(step, 1, i, &wanted);
        dims[axis] = known ? wanted : attnrun_dim_unknown(step);
        if (!known || !dim_is_const(wanted) || !dim_is_const(in->dims[axis])) {
            planned = false;
            continue;
        }
        if (wanted.value < 0 || wanted.value > ATTN_MAX_DIM)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "element %d of the shape is %lld, expected 0 or more", i,
                           (long long)wanted.value);
        int64_t more = wanted.value - in->dims[axis].value;
        begin[axis] = more / 2; /* towards 0: the larger half is behind */
        end[axis] = more - more / 2;
    }
    TRY(op_out(step, 0, in->dtype, in->rank, dims));
    return planned && op_move_planned(step, 0)
               ? op_padding_plan(step, step->state, OP_PAD_CONSTANT, begin, end)
               : ATTNRUN_OK;
}

static attn_status center_run(const attnrun_step *step, const attnrun_work *work)
{
    static const attnrun_string empty = { "", 0 };
    char value[16] = { 0 };
    if (step->in[0].dtype == ATTNRUN_STRING)
        memcpy(value, &empty, sizeof empty);
    return op_padding_run(step, step->state, work, value);
}

const attnrun_op_def op_center_crop_pad_18 = { OP_ROW,
                                               .name = "CenterCropPad",
                                               .since = 18,
                                               .inputs = "input_data:T shape:I",
                                               .outputs = "output_data:T",
                                               .types = "T=all I=i32,i64",
                                               .args_bytes = sizeof(struct center_args),
                                               .state_bytes = sizeof(struct op_padding),
                                               .attrs = center_attrs,
                                               .infer = center_infer,
                                               .run = center_run };

/* depth_to_space.c - DepthToSpace and SpaceToDepth: blocks of b x b pixels to and from
 * channels of an image (N, C, H, W) of any type.
 *
 * blocksize   b > 0
 * mode        DCR: the channel is (row, column, depth); CRD: (depth, row, column)
 *
 * Cost: one copy. Source: ONNX DepthToSpace-1, 11; SpaceToDepth-1, 28. */
#include "move.h"

struct depth_args {
    int64_t blocksize;
    int32_t mode;
};
enum { DCR, CRD };
static const attnrun_attr_def depth_1_attrs[] = {
    ATTR_INT_REQUIRED(struct depth_args, blocksize), ATTR_END
};
static const attnrun_attr_def depth_11_attrs[] = {
    ATTR_INT_REQUIRED(struct depth_args, blocksize),
    ATTR_ENUM(struct depth_args, mode, "DCR|CRD", DCR), ATTR_END
};

/* `divided` must be divisible by `by`; what then is left. */
static attn_status divide(const attnrun_step *step, int axis, int64_t by,
                          attnrun_dim *dim)
{
    attnrun_dim d = step->in[0].dims[axis];
    if (dim_is_const(d) && d.value % by != 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected dim %d divisible by %lld", axis, (long long)by);
    *dim = dim_is_const(d) ? dim_of(d.value / by) : attnrun_dim_div(step, d, dim_of(by));
    return ATTNRUN_OK;
}

static attn_status check_block(const attnrun_step *step)
{
    const struct depth_args *args = step->args;
    TRY(op_need_rank(step, 0, 4));
    if (args->blocksize < 1 || args->blocksize > 65536)
        return op_fail(step, ATTNRUN_E_ATTR, "blocksize is %lld, expected 1 to 65536",
                       (long long)args->blocksize);
    return ATTNRUN_OK;
}

/* Six dims of the result with the places in the source that they have strides of. */
static void plan_six(attnrun_step *step, const int64_t *source, const int *order)
{
    int64_t strides[6], dims[6], from[6], to[6];
    if (op_count(&step->out[0], 0, 4) == 0) {
        op_tasks(step, 0, 0, 0);
        return;
    }
    op_move_strides(6, source, strides);
    for (int i = 0; i < 6; i++) {
        dims[i] = source[order[i]];
        from[i] = strides[order[i]];
    }
    op_move_strides(6, dims, to);
    op_copy_plan(step->state, step->in[0].dtype, 6, dims, from, 0, to, 0);
    op_copy_tasks(step, 0, step->state);
}

static attn_status depth_to_space_infer(attnrun_step *step)
{
    static const int orders[2][6] = { [DCR] = { 0, 3, 4, 1, 5, 2 },
                                      [CRD] = { 0, 1, 4, 2, 5, 3 } };
    const struct depth_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    int64_t b = args->blocksize;
    TRY(check_block(step));
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, 4);
    attnrun_dim dims[4] = { in->dims[0], in->dims[1],
                            attnrun_dim_mul(step, in->dims[2], dim_of(b)),
                            attnrun_dim_mul(step, in->dims[3], dim_of(b)) };
    TRY(divide(step, 1, b * b, &dims[1]));
    TRY(op_out(step, 0, in->dtype, 4, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    int64_t n = dims[0].value, c = dims[1].value, h = in->dims[2].value,
            w = in->dims[3].value;
    int64_t dcr[6] = { n, b, b, c, h, w }, crd[6] = { n, c, b, b, h, w };
    plan_six(step, args->mode == DCR ? dcr : crd, orders[args->mode]);
    return ATTNRUN_OK;
}

static attn_status space_to_depth_infer(attnrun_step *step)
{
    static const int orders[2][6] = { [DCR] = { 0, 3, 5, 1, 2, 4 },
                                      [CRD] = { 0, 1, 3, 5, 2, 4 } };
    const struct depth_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    int64_t b = args->blocksize;
    TRY(check_block(step));
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, 4);
    attnrun_dim dims[4] = { in->dims[0],
                            attnrun_dim_mul(step, in->dims[1], dim_of(b * b)),
                            in->dims[2], in->dims[3] };
    TRY(divide(step, 2, b, &dims[2]));
    TRY(divide(step, 3, b, &dims[3]));
    TRY(op_out(step, 0, in->dtype, 4, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    int64_t source[6] = { dims[0].value, in->dims[1].value,
                          dims[2].value, b,
                          dims[3].value, b };
    plan_six(step, source, orders[args->mode]);
    return ATTNRUN_OK;
}

static attn_status depth_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_copy_run(step->state, work, step->y[0].data, step->x[0].data);
}

#define DEPTH_ROW                                                                        \
    OP_ROW, .inputs = "input:T", .outputs = "output:T", .types = "T=all",                \
        .args_bytes = sizeof(struct depth_args), .state_bytes = sizeof(struct op_copy),  \
        .run = depth_run

const attnrun_op_def op_depth_to_space_1 = { DEPTH_ROW, .name = "DepthToSpace",
                                             .since = 1, .attrs = depth_1_attrs,
                                             .infer = depth_to_space_infer };
const attnrun_op_def op_depth_to_space_11 = { DEPTH_ROW, .name = "DepthToSpace",
                                              .since = 11, .attrs = depth_11_attrs,
                                              .infer = depth_to_space_infer };
const attnrun_op_def op_space_to_depth_1 = { DEPTH_ROW, .name = "SpaceToDepth",
                                             .since = 1, .attrs = depth_1_attrs,
                                             .infer = space_to_depth_infer };
const attnrun_op_def op_space_to_depth_28 = { DEPTH_ROW, .name = "SpaceToDepth",
                                              .since = 28, .attrs = depth_11_attrs,
                                              .infer = space_to_depth_infer };

/* tile.c - Tile: repeats x along its axes.
 *
 * x            any type and shape; y: each extent times its count
 * repeats      one count per axis (from 6)
 * tiles, axis  one count and one axis (1)
 *
 * Cost: one write of y. Source: ONNX Tile-1, 6. */
#include "move.h"

/* y's axis i is (repeats, extent) with a source stride of 0 for the repeats. */
static attn_status tile_plan(attnrun_step *step, const int64_t *repeats)
{
    const attnrun_type *in = &step->in[0];
    int64_t n[ATTNRUN_MAX_RANK], strides[ATTNRUN_MAX_RANK], dims[OP_COPY_RANK];
    int64_t from[OP_COPY_RANK], to[OP_COPY_RANK], offset = 0;
    op_move_dims(in, n);
    op_move_strides(in->rank, n, strides);
    for (int i = 0; i < in->rank; i++) {
        dims[2 * i] = repeats[i];
        from[2 * i] = 0;
        dims[2 * i + 1] = n[i];
        from[2 * i + 1] = strides[i];
    }
    op_move_strides(2 * in->rank, dims, to);
    op_copy_plan(step->state, in->dtype, 2 * in->rank, dims, from, 0, to, 0);
    op_copy_tasks(step, 0, step->state);
    if (op_copy_is_view(step->state, &offset))
        attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

static attn_status tile_dims(attnrun_step *step, const attnrun_dim *repeats, bool known)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int64_t counts[ATTNRUN_MAX_RANK];
    bool planned = step->concrete && known;
    for (int i = 0; i < in->rank; i++) {
        if (dim_is_const(repeats[i]) && repeats[i].value < 0)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "the repeats of axis %d are %lld, expected 0 or more", i,
                           (long long)repeats[i].value);
        dims[i] = repeats[i].expr >= 0 ? attnrun_dim_mul(step, in->dims[i], repeats[i])
                                       : attnrun_dim_unknown(step);
        if (dims[i].expr == ATTN_DIM_INVALID)
            return op_fail(step, ATTNRUN_E_MEMORY, "axis %d repeated %s overflows", i,
                           attn_plural(repeats[i].value, "time"));
        counts[i] = repeats[i].value;
        planned = planned && dim_is_const(repeats[i]) && dim_is_const(dims[i]);
    }
    TRY(op_out(step, 0, in->dtype, in->rank, dims));
    planned = planned && op_move_planned(step, 0);
    if (planned && op_count(&step->out[0], 0, in->rank) == 0)
        op_tasks(step, 0, 0, 0);
    else if (planned)
        return tile_plan(step, counts);
    return ATTNRUN_OK;
}

static attn_status tile_1_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim repeats[ATTNRUN_MAX_RANK];
    int axis = 0;
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    if (in->rank < 0 || !op_known(step, 1) || !op_known(step, 2))
        return op_move_unknown(step, 0, in->dtype, in->rank);
    for (int i = 1; i <= 2; i++)
        if (tensor_count(&step->x[i]) != 1 || dtype_bits(step->x[i].dtype) < 8 ||
            !dtype_in(step->x[i].dtype, ATTN_DT_NUM))
            return op_fail_input(step, i, ATTNRUN_E_SHAPE, "expected one number");
    double tiles = tensor_get_real(&step->x[1], 0), at = tensor_get_real(&step->x[2], 0);
    if (!(tiles >= 0 && tiles < 1e12) || !(at > -16 && at < 16))
        return op_fail(
            step, ATTNRUN_E_RANGE,
            "tiles is %g and axis %g, expected 0 or more and an axis of the input", tiles,
            at);
    TRY(op_axis(step, (int64_t)at, in->rank, false, &axis));
    for (int i = 0; i < in->rank; i++)
        repeats[i] = dim_of(i == axis ? (int64_t)tiles : 1);
    return tile_dims(step, repeats, true);
}

static attn_status tile_6_infer(attnrun_step *step)
{
    const attnrun_type *in = &step->in[0];
    attnrun_dim repeats[ATTNRUN_MAX_RANK];
    bool known = true;
    TRY(op_need_rank(step, 1, 1));
    if (in->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    if (op_rank_known(step, 1))
        TRY(op_need_dim(step, 1, 0, dim_of(in->rank), "the rank of input 0"));
    for (int i = 0; i < in->rank; i++)
        if (!op_move_value(step, 1, i, &repeats[i])) {
            repeats[i] = op_move_no_value();
            known = false;
        }
    return tile_dims(step, repeats, known);
}

static attn_status tile_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_copy_run(step->state, work, step->y[0].data, step->x[0].data);
}

const attnrun_op_def op_tile_1 = { OP_ROW,
                                   .name = "Tile",
                                   .since = 1,
                                   .inputs = "input:T tiles:T axis:T",
                                   .outputs = "output:T",
                                   .types = "T=fixed",
                                   .state_bytes = sizeof(struct op_copy),
                                   .infer = tile_1_infer,
                                   .run = tile_run };
const attnrun_op_def op_tile_6 = { OP_ROW,
                                   .name = "Tile",
                                   .since = 6,
                                   .inputs = "input:T repeats:i64",
                                   .outputs = "output:T",
                                   .types = "T=all",
                                   .state_bytes = sizeof(struct op_copy),
                                   .infer = tile_6_infer,
                                   .run = tile_run };

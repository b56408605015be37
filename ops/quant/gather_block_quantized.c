/* gather_block_quantized.c - com.microsoft GatherBlockQuantized: rows of a quantized
 * table as real numbers, (data - zero_point) * scale.
 *
 * data           i4, u4; or u8 with `bits` 4 or 8 an element (4 by default), the first
 *                one of two in the low bits of a byte: then its last dim counts bytes
 * indices        i32, i64; negative ones count from the end
 * scales         data's shape with quantize_axis divided by block_size, rounded up
 * zero_points    of data's type and the scales' shape (bytes of u8 hold several along the
 *                last dim); 0 by default, for u8 2^(bits - 1)
 * output         of the scales' type: indices' dims in the place of gather_axis
 *
 * The defaults are gather_axis 0, quantize_axis 1 (of u8 the last one) and block_size
 * 128. Cost: O(output). Source: ONNX Runtime contrib operators; compared with onnxruntime
 * 1.32.0. */
#include "../elementwise/convert_dtypes.h"
#include "../elementwise/elementwise.h"

enum { DATA, INDICES, SCALES, ZEROS };

struct gather_args {
    int64_t bits, block_size, gather_axis, quantize_axis;
};
static const attnrun_attr_def gather_attrs[] = {
    ATTR_INT(struct gather_args, bits, 4), ATTR_INT(struct gather_args, block_size, 128),
    ATTR_INT(struct gather_args, gather_axis, 0),
    ATTR_INT(struct gather_args, quantize_axis, 1), ATTR_END
};

struct gather_state {
    int64_t rows, inner; /* along the axis; elements behind it */
    int64_t n_indices;
    int64_t length, behind; /* of the quantized axis: elements, and what lies behind */
    int64_t blocks, zeros_last; /* scales along it; bytes of a line of zero points (u8) */
    int32_t per;                /* elements of a byte of u8; 1 for other types */
};

/* data's dims, counted in elements. */
static void element_dims(const attnrun_step *step, attnrun_dim *dims)
{
    const struct gather_args *args = step->args;
    const attnrun_type *data = &step->in[DATA];
    memcpy(dims, data->dims, sizeof data->dims);
    if (data->dtype == ATTNRUN_U8)
        dims[data->rank - 1] =
            attnrun_dim_mul(step, dims[data->rank - 1], dim_of(8 / args->bits));
}

static attn_status check_scales(const attnrun_step *step, const attnrun_dim *dims,
                                int axis)
{
    const struct gather_args *args = step->args;
    const int rank = step->in[DATA].rank;
    TRY(op_need_rank(step, SCALES, rank));
    if (op_has_in(step, ZEROS))
        TRY(op_need_rank(step, ZEROS, rank));
    for (int d = 0; d < rank; d++) {
        attnrun_dim n = dims[d];
        if (d == axis) {
            n = attnrun_dim_add(step, n, dim_of(args->block_size - 1));
            n = attnrun_dim_div(step, n, dim_of(args->block_size));
        }
        TRY(op_need_dim(step, SCALES, d, n, d == axis ? "blocks" : "as data"));
        if (d == rank - 1 && step->in[DATA].dtype == ATTNRUN_U8) {
            const int64_t per = 8 / args->bits;
            n = attnrun_dim_div(step, attnrun_dim_add(step, n, dim_of(per - 1)),
                                dim_of(per));
        }
        if (op_has_in(step, ZEROS))
            TRY(op_need_dim(step, ZEROS, d, n, "as scales"));
    }
    return ATTNRUN_OK;
}

static attn_status gather_quantized_check_args(const attnrun_step *step,
                                               const struct gather_args *args,
                                               int *gather, int *quantize)
{
    const attnrun_type *data = &step->in[DATA];
    const int64_t block = args->block_size;
    if (data->dtype == ATTNRUN_U8 && args->bits != 4 && args->bits != 8 &&
        args->bits != 2)
        return op_fail(step, ATTNRUN_E_ATTR, "bits is %lld, expected 2, 4 or 8",
                       (long long)args->bits);
    if (block < 16 || block > 1 << 30 || (block & (block - 1)) != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "block_size is %lld, expected a power of 2 from 16 on",
                       (long long)block);
    if (data->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, DATA, 1, ATTNRUN_MAX_RANK));
    TRY(op_axis(step, args->gather_axis, data->rank, false, gather));
    TRY(op_axis(step, args->quantize_axis, data->rank, false, quantize));
    if (*gather == *quantize)
        return op_fail(step, ATTNRUN_E_ATTR, "gather_axis and quantize_axis are both %d",
                       *gather);
    if (data->dtype == ATTNRUN_U8 && *quantize != data->rank - 1)
        return op_fail(step, ATTNRUN_E_ATTR, "quantize_axis is %d, expected the last one",
                       *quantize);
    return ATTNRUN_OK;
}

static attn_status gather_infer(attnrun_step *step)
{
    const struct gather_args *args = step->args;
    const attnrun_type *data = &step->in[DATA], *indices = &step->in[INDICES];
    struct gather_state *s = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK], out[2 * ATTNRUN_MAX_RANK];
    int gather = 0, quantize = 0, rank = 0;
    TRY(gather_quantized_check_args(step, args, &gather, &quantize));
    if (data->rank < 0 || indices->rank < 0)
        return op_out(step, 0, step->in[SCALES].dtype, -1, NULL);
    element_dims(step, dims);
    TRY(check_scales(step, dims, quantize));
    if (data->rank + indices->rank - 1 > ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "the result would have more than %d dims", ATTNRUN_MAX_RANK);
    for (int d = 0; d < data->rank; d++)
        for (int k = 0; k < (d == gather ? indices->rank : 1); k++)
            out[rank++] = d == gather ? indices->dims[k] : dims[d];
    TRY(op_out(step, 0, step->in[SCALES].dtype, rank, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    *s = (struct gather_state){ .rows = dims[gather].value,
                                .inner = 1,
                                .n_indices = op_count(indices, 0, indices->rank),
                                .length = dims[quantize].value,
                                .behind = 1,
                                .per = data->dtype == ATTNRUN_U8
                                           ? (int32_t)(8 / args->bits)
                                           : 1 };
    for (int d = 0; d < data->rank; d++) {
        s->inner *= d > gather ? dims[d].value : 1;
        s->behind *= d > quantize ? dims[d].value : 1;
    }
    s->blocks = ceil_div(s->length, args->block_size);
    s->zeros_last = ceil_div(s->blocks, s->per);
    elementwise_tasks(step, 5000);
    return ATTNRUN_OK;
}

/* Element i of u8 data (or zero points) of `per` elements a byte. */
static float part_of(const uint8_t *bytes, int64_t i, int32_t per)
{
    const int bits = 8 / per;
    return (float)(bytes[i / per] >> (i % per * bits) & ((1 << bits) - 1));
}

/* The real number of element `at` of data. */
static float real_at(const attnrun_step *step, int64_t at)
{
    const struct gather_args *args = step->args;
    const struct gather_state *s = step->state;
    const attnrun_tensor *data = &step->x[DATA];
    const int64_t behind = at % s->behind, line = at / s->behind;
    const int64_t block = line % s->length / args->block_size, front = line / s->length;
    const int64_t scale_at = (front * s->blocks + block) * s->behind + behind;
    float scale, value, zero = 0.0f;
    attn_convert_load_f32(&scale, step->x[SCALES].dtype, step->x[SCALES].data, scale_at,
                          1);
    if (data->dtype != ATTNRUN_U8) {
        attn_convert_load_f32(&value, data->dtype, data->data, at, 1);
        if (op_has_in(step, ZEROS))
            attn_convert_load_f32(&zero, data->dtype, step->x[ZEROS].data, scale_at, 1);
        return (value - zero) * scale;
    }
    value = part_of(data->data, at, s->per);
    zero = (float)(1 << (8 / s->per - 1));
    if (op_has_in(step, ZEROS))
        zero = part_of((const uint8_t *)step->x[ZEROS].data + front * s->zeros_last,
                       block, s->per);
    return (value - zero) * scale;
}

static attn_status gather_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gather_state *s = step->state;
    const attnrun_tensor *y = &step->y[0];
    int64_t begin, end;
    elementwise_range(work, tensor_count(y), &begin, &end);
    for (int64_t i = begin; i < end && y->data != NULL;) {
        const int64_t row = i / s->inner, which = row % s->n_indices;
        const int64_t named = tensor_get_int(&step->x[INDICES], which);
        const int64_t index = named < 0 ? named + s->rows : named;
        int64_t n = s->inner - i % s->inner;
        float values[CONVERT_RUN];
        n = n < end - i ? n : end - i;
        n = n < CONVERT_RUN ? n : CONVERT_RUN;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (index < 0 || index >= s->rows)
            return op_fail(step, ATTNRUN_E_RANGE,
                           "an index is %lld, expected %lld to %lld", (long long)named,
                           (long long)-s->rows, (long long)(s->rows - 1));
        const int64_t from =
            (row / s->n_indices * s->rows + index) * s->inner + i % s->inner;
        for (int64_t k = 0; k < n; k++)
            values[k] = real_at(step, from + k);
        attn_convert_store_f32(y->dtype, y->data, i, n, values);
        i += n;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_gather_block_quantized_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "GatherBlockQuantized",
    .since = 1,
    .inputs = "data:T1 indices:I scales:T2 zero_points:T1?",
    .outputs = "output:T2",
    .types = "T1=i4,u4,u8 I=i32,i64 T2=f32,f16",
    .args_bytes = sizeof(struct gather_args),
    .state_bytes = sizeof(struct gather_state),
    .attrs = gather_attrs,
    .infer = gather_infer,
    .run = gather_run,
    .cost = "O(output)",
    .source = "ONNX Runtime contrib operators",
};

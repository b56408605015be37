/* array_feature_extractor.c - ArrayFeatureExtractor: z[…, j] = x[…, y[j]].
 *
 * x   (…, F), of any type of ai.onnx.ml; a vector is taken as one row
 * y   i64, any shape, k indexes in 0 to F - 1
 * z   (…, k)
 *
 * Cost: one write of z. Source: ONNX ai.onnx.ml ArrayFeatureExtractor-1. */
#include "../../runtime/op.h"

static attn_status extract_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0], *y = &step->in[1];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    if (x->rank < 0)
        return op_out(step, 0, x->dtype, -1, NULL);
    int rank = x->rank == 1 ? 2 : x->rank;
    dims[0] = dim_of(1);
    if (x->rank > 1)
        memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    dims[rank - 1] = y->rank < 0 ? attnrun_dim_unknown(step)
                                 : op_dims_product(step, y->dims, 0, y->rank);
    TRY(op_out(step, 0, x->dtype, rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    op_unit_tasks(step, 0, op_count(&step->out[0], 0, rank), OP_CHUNK, 2);
    return ATTNRUN_OK;
}

/* All, as an index may be read by any task. */
static attn_status check_indexes(const attnrun_step *step, int64_t features)
{
    const int64_t *index = step->x[1].data;
    int64_t n = tensor_count(&step->x[1]);
    for (int64_t j = 0; j < n; j++)
        if (index[j] < 0 || index[j] >= features)
            return op_fail_input(
                step, 1, ATTNRUN_E_RANGE, "its element %lld is %lld, expected 0 to %lld",
                (long long)j, (long long)index[j], (long long)features - 1);
    return ATTNRUN_OK;
}

static attn_status extract_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    const int64_t *index = step->x[1].data;
    const int64_t features = x->dims[x->rank - 1], k = tensor_count(&step->x[1]);
    const int64_t bytes = dtype_bytes(x->dtype), n = tensor_count(&step->y[0]);
    int64_t i = work->begin * OP_CHUNK;
    int64_t end = work->end > n / OP_CHUNK ? n : work->end * OP_CHUNK;
    TRY(check_indexes(step, features));
    for (; i < end && !attn_stops(i); i++)
        memcpy((char *)step->y[0].data + i * bytes,
               (const char *)x->data + (i / k * features + index[i % k]) * bytes,
               (size_t)bytes);
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_array_feature_extractor_1 = {
    OP_ROW_OF("ai.onnx.ml"),
    .name = "ArrayFeatureExtractor",
    .since = 1,
    .inputs = "X:T Y:i64",
    .outputs = "Z:T",
    .types = "T=f32,f64,i64,i32,string",
    .infer = extract_infer,
    .run = extract_run,
    .cost = "O(n)",
};

/* onnx_sparse.c - SparseTensorProto as a dense tensor.
 *
 * values   [n], n elements that are not zero
 * indices  [n]: places in the flattened tensor, or [n, rank]: places by axis; i64
 * dims     of the dense tensor. Places rise from one to the next. */
#include <string.h>

#include "onnx_tensor.h"
#include "../runtime/poll.h"

static attn_status check_parts(const char *name, const attnrun_tensor *values,
                               const attnrun_tensor *indices, const attnrun_tensor *dense)
{
    if (values->rank != 1)
        return attn_fail(ATTNRUN_E_MODEL,
                         "sparse tensor '%s': values are %s, expected rank 1", name,
                         attn_tensor_format(values));
    bool flat = indices->rank == 1 && indices->dims[0] == values->dims[0];
    bool by_axis = indices->rank == 2 && indices->dims[0] == values->dims[0] &&
                   indices->dims[1] == dense->rank;
    if (indices->dtype != ATTNRUN_I64 || !(flat || by_axis))
        return attn_fail(ATTNRUN_E_MODEL,
                         "sparse tensor '%s': indices are %s for values %s of %s", name,
                         attn_tensor_format(indices), attn_tensor_format(values),
                         attn_tensor_format(dense));
    if (dtype_bits(values->dtype) % 8 != 0 || values->dtype == ATTNRUN_STRING)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "sparse tensor '%s': elements of type %s are not supported",
                         name, attnrun_dtype_name(values->dtype));
    return ATTNRUN_OK;
}

static attn_status fail_index(const char *name, int64_t k, int64_t index, int64_t size)
{
    return attn_fail(ATTNRUN_E_MODEL,
                     "sparse tensor '%s': index %lld is %lld, expected 0 to "
                     "%lld",
                     name, (long long)k, (long long)index, (long long)size - 1);
}

/* The place of value k in the flattened tensor. */
static attn_status place_of(const char *name, const attnrun_tensor *indices,
                            const attnrun_tensor *dense, int64_t k, int64_t *place)
{
    const int64_t *index = indices->data;
    if (indices->rank == 1) {
        int64_t count = tensor_count(dense);
        *place = index[k];
        return *place >= 0 && *place < count ? ATTNRUN_OK
                                             : fail_index(name, k, *place, count);
    }
    *place = 0;
    for (int axis = 0; axis < dense->rank; axis++) {
        int64_t at = index[k * dense->rank + axis];
        if (at < 0 || at >= dense->dims[axis])
            return fail_index(name, k, at, dense->dims[axis]);
        /* Below the count, which was checked; where that is 0, an index fails later. */
        *place = (int64_t)((uint64_t)*place * (uint64_t)dense->dims[axis] + (uint64_t)at);
    }
    return ATTNRUN_OK;
}

attn_status attn_read_sparse(struct attn_tensor_reader *reader,
                             const PB(SparseTensorProto) * pb, attnrun_tensor *tensor)
{
    if (pb->values == NULL || pb->indices == NULL)
        return attn_fail(ATTNRUN_E_MODEL, "a sparse tensor has no values or no indices");
    if (attn_tensor_made(reader, pb, tensor))
        return ATTNRUN_OK;
    const char *name = attn_quote(pb_text(pb->values->name));
    struct attn_tensor_reader aligned = *reader;
    aligned.unaligned_above = INT64_MAX;
    attnrun_tensor values, indices;
    TRY(attn_read_tensor(&aligned, pb->values, &values));
    TRY(attn_read_tensor(&aligned, pb->indices, &indices));
    TRY(attn_read_shape(reader->limits, pb_text(pb->values->name), values.dtype,
                        pb->n_dims, pb->dims, tensor));
    if (tensor_bytes(tensor) > reader->limits->made_bytes)
        return attn_fail_limit(
            ATTN_LIMIT_MADE_BYTES,
            "sparse tensor '%s': %s is %lld bytes, expected at most %lld", name,
            attn_tensor_format(tensor), (long long)tensor_bytes(tensor),
            (long long)reader->limits->made_bytes);
    TRY(check_parts(name, &values, &indices, tensor));
    int64_t bytes = tensor_bytes(tensor), item = dtype_bytes(values.dtype);
    char *dense = attn_pool_alloc(reader->pool, bytes > 0 ? bytes : 1);
    if (dense == NULL)
        return ATTNRUN_E_MEMORY;
    tensor->data = dense;
    for (int64_t k = 0, before = -1, place = 0; k < values.dims[0]; k++, before = place) {
        TRY(attn_poll_work(64 + item));
        TRY(place_of(name, &indices, tensor, k, &place));
        if (place <= before)
            return attn_fail(ATTNRUN_E_MODEL,
                             "sparse tensor '%s': index %lld is not greater than "
                             "the one before it",
                             name, (long long)k);
        memcpy(dense + place * item, (const char *)values.data + k * item, (size_t)item);
    }
    return attn_tensor_keep(reader, pb, tensor);
}

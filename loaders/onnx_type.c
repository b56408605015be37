/* onnx_type.c - TypeProto to attnrun_type: tensors, sequences and optionals of tensors,
 * maps and sequences of maps. In: an unpacked message. Out: kind, dtype and dims, of which
 * names become symbols of the model; deeper nesting is refused. */
#include <string.h>

#include "onnx_load.h"

static attn_status read_dim(const attnrun_limits *limits, struct attn_dims *dims,
                            const PB(TensorShapeProto__Dimension) * pb, bool fresh,
                            attnrun_dim *dim)
{
    *dim = (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    if (pb->value_case == ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
        int64_t value = pb->dim_value;
        if (value < -1) /* -1 is how some exporters write "any" */
            return attn_fail(ATTNRUN_E_MODEL,
                             "a declared dim is %lld, expected 0 or more",
                             (long long)value);
        if (value > limits->dim)
            return attn_fail_limit(ATTN_LIMIT_DIM,
                                   "a declared dim is %lld, expected at most %lld",
                                   (long long)value, (long long)limits->dim);
        if (value >= 0) {
            *dim = dim_of(value);
            return ATTNRUN_OK;
        }
    }
    const char *name = "";
    if (pb->value_case == ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
        name = pb_text(pb->dim_param);
    if (name[0] != 0) {
        *dim = attn_dim_parse(dims, name);
        if (dim_is_const(*dim)) /* "4" is a name, too, and any size may have it */
            *dim = attn_dim_symbol(dims, name);
    } else if (fresh) {
        *dim = attn_dim_symbol(dims, NULL);
    }
    return ATTNRUN_OK;
}

static attn_status read_tensor_type(const attnrun_limits *limits, struct attn_dims *dims,
                                    const PB(TypeProto__Tensor) * pb, bool fresh,
                                    attnrun_type *type)
{
    type->dtype = pb->elem_type;
    type->rank = -1;
    if (type->dtype == 0) /* not said */
        return ATTNRUN_OK;
    if (attnrun_dtype_bits(type->dtype) == 0)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the element type is %d, expected 1 to %d", type->dtype,
                         ATTNRUN_DTYPE_COUNT - 1);
    if (pb->shape == NULL)
        return ATTNRUN_OK;
    if (pb->shape->n_dim > (size_t)limits->rank)
        return attn_fail_limit(ATTN_LIMIT_RANK, "the type has %s, expected at most %d",
                               attn_plural((int64_t)pb->shape->n_dim, "dim"),
                               (int)limits->rank);
    type->rank = (int32_t)pb->shape->n_dim;
    for (int32_t k = 0; k < type->rank; k++)
        TRY(read_dim(limits, dims, pb->shape->dim[k], fresh, &type->dims[k]));
    return ATTNRUN_OK;
}

/* The type of the elements of a sequence, optional or map, at most two levels down. */
static attn_status read_elements(const attnrun_limits *limits, struct attn_dims *dims,
                                 const PB(TypeProto) * pb, attnrun_type *type)
{
    if (pb == NULL || pb->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE__NOT_SET)
        return ATTNRUN_OK;
    if (pb->value_case != ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return attn_fail(
            ATTNRUN_E_UNSUPPORTED,
            "a sequence, an optional or a map holds something other than tensors");
    attnrun_type element = { .rank = -1 };
    TRY(read_tensor_type(limits, dims, pb->tensor_type, false, &element));
    type->dtype = element.dtype;
    return ATTNRUN_OK;
}

static attn_status read_map(const attnrun_limits *limits, struct attn_dims *dims,
                            const PB(TypeProto__Map) * pb, attnrun_type *type)
{
    if (pb->key_type != ATTNRUN_I64 && pb->key_type != ATTNRUN_STRING)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "a map has keys of element type %d, expected i64 or strings",
                         (int)pb->key_type);
    type->key_dtype = pb->key_type;
    return read_elements(limits, dims, pb->value_type, type);
}

attn_status attn_read_type(const attnrun_limits *limits, struct attn_dims *dims,
                           const PB(TypeProto) * pb, bool fresh, attnrun_type *type)
{
    *type = (attnrun_type){ .rank = -1 };
    if (pb == NULL)
        return ATTNRUN_OK;
    const PB(TypeProto) * inner;
    switch (pb->value_case) {
    case ATTNRUN__ONNX__TYPE_PROTO__VALUE__NOT_SET:
        return ATTNRUN_OK;
    case ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE:
        type->kind = ATTNRUN_TENSOR;
        return read_tensor_type(limits, dims, pb->tensor_type, fresh, type);
    case ATTNRUN__ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
        inner = pb->sequence_type->elem_type;
        if (inner != NULL &&
            inner->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_MAP_TYPE) {
            type->kind = ATTNRUN_MAP_SEQUENCE;
            return read_map(limits, dims, inner->map_type, type);
        }
        type->kind = ATTNRUN_SEQUENCE;
        return read_elements(limits, dims, inner, type);
    case ATTNRUN__ONNX__TYPE_PROTO__VALUE_MAP_TYPE:
        type->kind = ATTNRUN_MAP;
        return read_map(limits, dims, pb->map_type, type);
    case ATTNRUN__ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
        inner = pb->optional_type->elem_type;
        type->kind = ATTNRUN_OPTIONAL;
        if (inner != NULL &&
            inner->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE) {
            type->kind = ATTNRUN_OPTIONAL_SEQUENCE;
            inner = inner->sequence_type->elem_type;
        }
        return read_elements(limits, dims, inner, type);
    default:
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the type is sparse or opaque, expected a tensor");
    }
}

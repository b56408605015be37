/* tensor.c - sizes, strides and elements of views: counts and bytes that cannot overflow
 * unseen, dense strides, copies between strided views, and the last bits of packed types. */
#include "tensor.h"

#include <inttypes.h>
#include <string.h>

#include "checked.h"
#include "dim.h"
#include "poll.h"

int64_t attnrun_tensor_count(const attnrun_tensor *tensor)
{
    int64_t count = 1;
    bool fits = true, empty = false;
    if (tensor == NULL || tensor->rank < 0 || tensor->rank > ATTNRUN_MAX_RANK)
        return -1;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dims[i] < 0)
            return -1;
        empty |= tensor->dims[i] == 0;
        fits = fits && ck_mul(count, tensor->dims[i], &count);
    }
    return empty ? 0 : fits ? count : -1;
}

bool attn_tensor_can_exist(const attnrun_tensor *t)
{
    int64_t extent = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0 || t->dims[i] > ATTN_MAX_DIM ||
            (t->dims[i] > 0 && !ck_mul(extent, t->dims[i], &extent)) ||
            extent > ATTN_MAX_ELEMENTS)
            return false;
    return tensor_bytes(t) >= 0;
}

int64_t attnrun_tensor_bytes(const attnrun_tensor *tensor)
{
    return tensor == NULL ? -1
                          : dtype_bytes_of(tensor->dtype, attnrun_tensor_count(tensor));
}

attnrun_status attnrun_tensor_make(int32_t dtype, int32_t rank, const int64_t *dims,
                                   void *data, attnrun_tensor *tensor)
{
    if (tensor == NULL || (rank > 0 && dims == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_tensor_make: a pointer is NULL");
    if (attnrun_dtype_bits(dtype) == 0)
        return attn_fail(ATTNRUN_E_DTYPE, "%" PRId32 " is not an element type", dtype);
    if (rank < 0 || rank > ATTNRUN_MAX_RANK)
        return attn_fail(ATTNRUN_E_LIMIT, "rank %" PRId32 ", expected 0 to %d", rank,
                         ATTNRUN_MAX_RANK);
    attnrun_tensor made = {
        .kind = ATTNRUN_TENSOR, .dtype = dtype, .rank = rank, .data = data
    };
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return attn_fail(ATTNRUN_E_SHAPE, "dim %d is %" PRId64 ", expected 0 or more",
                             i, dims[i]);
        made.dims[i] = dims[i];
    }
    if (attnrun_tensor_bytes(&made) < 0)
        return attn_fail(ATTNRUN_E_LIMIT, "a tensor of these dims overflows 64 bits");
    attn_tensor_set_dense(&made);
    *tensor = made;
    return ATTNRUN_OK;
}

/* Of an empty tensor the outer strides may not fit 64 bits: they are 0 then. */
void attn_tensor_set_dense(attnrun_tensor *t)
{
    int64_t stride = dtype_bytes(t->dtype);
    for (int i = t->rank - 1; i >= 0; i--) {
        t->strides[i] = stride;
        if (t->dims[i] > 1 && !ck_mul(stride, t->dims[i], &stride))
            stride = 0;
    }
}

bool attn_tensor_is_dense(const attnrun_tensor *t)
{
    int64_t stride = dtype_bytes(t->dtype);
    if (dtype_bits(t->dtype) < 8)
        return true;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0)
            return true;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] == 1)
            continue;
        if (t->strides[i] != stride || !ck_mul(stride, t->dims[i], &stride))
            return false;
    }
    return true;
}

int attn_tensor_dense_from(const attnrun_tensor *t)
{
    int64_t stride = dtype_bytes(t->dtype);
    if (attn_tensor_is_dense(t))
        return 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] == 1)
            continue;
        if (t->strides[i] != stride)
            return i + 1;
        stride *= t->dims[i];
    }
    return 0;
}

char *attn_tensor_at(const attnrun_tensor *t, int rank, int64_t k)
{
    char *at = t->data;
    for (int i = rank - 1; i >= 0 && k > 0; i--) {
        at += k % t->dims[i] * t->strides[i];
        k /= t->dims[i];
    }
    return at;
}

int64_t attn_tensor_dims_product(const attnrun_tensor *t, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; i++)
        if (!ck_mul(product, t->dims[i], &product))
            return 0;
    return product;
}

/* ---- copying ---- */
struct copy_axis {
    int64_t n, to, from; /* elements; strides in bytes */
};

/* The axes of more than one element, outermost first, with neighbours merged where both
 * sides step evenly; returns how many. */
static int merge_axes(const attnrun_tensor *to, const attnrun_tensor *from,
                      struct copy_axis *axes)
{
    int n = 0;
    for (int i = 0; i < to->rank; i++) {
        struct copy_axis axis = { to->dims[i], to->strides[i], from->strides[i] };
        if (axis.n == 1)
            continue;
        if (n > 0 && axes[n - 1].to == axis.to * axis.n &&
            axes[n - 1].from == axis.from * axis.n) {
            axis.n *= axes[n - 1].n;
            n--;
        }
        axes[n++] = axis;
    }
    return n;
}

/* Inlined with a constant `bytes`, so that each memcpy is one move. */
static inline void copy_elements(char *to, const char *from, const struct copy_axis *axis,
                                 size_t bytes)
{
    for (int64_t i = 0; i < axis->n; i++)
        memcpy(to + i * axis->to, from + i * axis->from, bytes);
}

static void copy_line(char *to, const char *from, const struct copy_axis *axis,
                      int64_t bytes)
{
    if (axis->to == bytes && axis->from == bytes) {
        memcpy(to, from, (size_t)(axis->n * bytes));
        return;
    }
    switch (bytes) {
    case 1:
        copy_elements(to, from, axis, 1);
        break;
    case 2:
        copy_elements(to, from, axis, 2);
        break;
    case 4:
        copy_elements(to, from, axis, 4);
        break;
    case 8:
        copy_elements(to, from, axis, 8);
        break;
    default:
        copy_elements(to, from, axis, 16);
        break;
    }
}

void attn_tensor_copy(const attnrun_tensor *to, const attnrun_tensor *from)
{
    struct copy_axis axes[ATTNRUN_MAX_RANK + 1];
    int64_t bytes = dtype_bytes(to->dtype), index[ATTNRUN_MAX_RANK] = { 0 };
    int64_t total = tensor_bytes(to);
    if (total <= 0 || to->data == from->data)
        return;
    if (attn_tensor_is_dense(to) && attn_tensor_is_dense(from)) {
        memcpy(to->data, from->data, (size_t)total);
        return;
    }
    int n = merge_axes(to, from, axes);
    if (n == 0)
        axes[n++] = (struct copy_axis){ 1, bytes, bytes };
    char *target = to->data;
    const char *source = from->data;
    for (;;) {
        int axis = n - 2;
        copy_line(target, source, &axes[n - 1], bytes);
        for (; axis >= 0; axis--) { /* the next line */
            target += axes[axis].to;
            source += axes[axis].from;
            if (++index[axis] < axes[axis].n)
                break;
            target -= axes[axis].to * axes[axis].n;
            source -= axes[axis].from * axes[axis].n;
            index[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

/* A part is as many indexes of one dim as have ATTN_POLL_BYTES together. */
attn_status attn_tensor_copy_polled(const attnrun_tensor *to, const attnrun_tensor *from)
{
    attnrun_tensor target = *to, source = *from;
    int64_t bytes = tensor_bytes(to);
    int axis = 0;
    if (bytes <= ATTN_POLL_BYTES || to->data == from->data) {
        tensor_copy(to, from);
        return ATTNRUN_OK;
    }
    if (dtype_bits(to->dtype) < 8) /* they are dense */
        return attn_poll_copy(to->data, from->data, bytes);
    for (; (bytes /= to->dims[axis]) > ATTN_POLL_BYTES; axis++)
        target.dims[axis] = source.dims[axis] = 1;
    const int64_t max = ATTN_POLL_BYTES / bytes, n = to->dims[axis],
                  before = tensor_dims_product(to, 0, axis);
    for (int64_t k = 0; k < before; k++)
        for (int64_t at = 0, part; at < n; at += part) {
            part = max < n - at ? max : n - at;
            target.dims[axis] = source.dims[axis] = part;
            target.data = attn_tensor_at(to, axis, k) + at * to->strides[axis];
            source.data = attn_tensor_at(from, axis, k) + at * from->strides[axis];
            tensor_copy(&target, &source);
            TRY(attn_poll_work(part * bytes));
        }
    return ATTNRUN_OK;
}

void attn_tensor_clear_padding(const attnrun_tensor *t)
{
    int64_t bits = dtype_bits(t->dtype), count = tensor_count(t);
    int64_t used = bits < 8 && count > 0 ? count * bits % 8 : 0;
    if (used != 0 && t->data != NULL)
        ((uint8_t *)t->data)[count * bits / 8] &= (uint8_t)((1 << used) - 1);
}

/* ---- single elements; those of a mapped file may be unaligned ---- */
#define LOAD(type)                                                                       \
    static inline type load_##type(const void *data, int64_t k)                          \
    {                                                                                    \
        type value;                                                                      \
        memcpy(&value, (const char *)data + k * (int64_t)sizeof value, sizeof value);    \
        return value;                                                                    \
    }
LOAD(uint16_t)
LOAD(int16_t)
LOAD(uint32_t)
LOAD(int32_t)
LOAD(uint64_t)
LOAD(int64_t)
LOAD(float)
LOAD(double)
#undef LOAD

int64_t attn_tensor_get_int(const attnrun_tensor *t, int64_t k)
{
    const void *data = t->data;
    switch (t->dtype) {
    case ATTNRUN_BOOL:
        return ((const uint8_t *)data)[k] != 0;
    case ATTNRUN_U8:
        return ((const uint8_t *)data)[k];
    case ATTNRUN_I8:
        return ((const int8_t *)data)[k];
    case ATTNRUN_U16:
        return load_uint16_t(data, k);
    case ATTNRUN_I16:
        return load_int16_t(data, k);
    case ATTNRUN_U32:
        return load_uint32_t(data, k);
    case ATTNRUN_I32:
        return load_int32_t(data, k);
    case ATTNRUN_U64:
        return (int64_t)load_uint64_t(data, k);
    case ATTNRUN_I64:
        return load_int64_t(data, k);
    case ATTNRUN_U4:
    case ATTNRUN_I4:
    case ATTNRUN_U2:
    case ATTNRUN_I2:
        return attn_subbyte_get(t->dtype, data, k);
    default:
        return 0;
    }
}

double attn_tensor_get_real(const attnrun_tensor *t, int64_t k)
{
    const void *data = t->data;
    switch (t->dtype) {
    case ATTNRUN_F32:
        return (double)load_float(data, k);
    case ATTNRUN_F64:
        return load_double(data, k);
    case ATTNRUN_F16:
        return (double)attn_f16_to_f32(load_uint16_t(data, k));
    case ATTNRUN_BF16:
        return (double)attn_bf16_to_f32(load_uint16_t(data, k));
    case ATTNRUN_U64:
        return (double)load_uint64_t(data, k);
    case ATTNRUN_F8E4M3FN:
    case ATTNRUN_F8E4M3FNUZ:
    case ATTNRUN_F8E5M2:
    case ATTNRUN_F8E5M2FNUZ:
    case ATTNRUN_F8E8M0:
        return (double)attn_small_float_to_f32(t->dtype, ((const uint8_t *)data)[k]);
    case ATTNRUN_F6E2M3:
    case ATTNRUN_F6E3M2:
    case ATTNRUN_F4E2M1:
        return (double)attn_small_float_to_f32(
            t->dtype, (uint8_t)attn_subbyte_get(t->dtype, data, k));
    default:
        return (double)attn_tensor_get_int(t, k);
    }
}

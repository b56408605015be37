/* onnx_tensor.c - TensorProto to attnrun_tensor.
 *
 * The elements are in one of these places, never in two:
 *
 *   raw_data           little-endian, packed; in the file (bulk) or in the message (small)
 *   float_data         f32, c64 (pairs)
 *   double_data        f64, c128 (pairs)
 *   int64_data         i64
 *   uint64_data        u32, u64
 *   string_data        strings
 *   int32_data         all others; one element in each number, but two of the 4-bit types
 *                      and four of the 2-bit ones
 *   a file beside the model (external_data)
 *
 * Bytes that are right where they are stay there: the tensor is a view of the mapped file.
 */
#include "onnx_tensor.h"
#include "../runtime/poll.h"

#include <string.h>

enum { /* field numbers of TensorProto */
       FLOAT_DATA = 4,
       INT32_DATA = 5,
       STRING_DATA = 6,
       INT64_DATA = 7,
       RAW_DATA = 9,
       DOUBLE_DATA = 10,
       UINT64_DATA = 11
};

enum { MADE_BYTES = 1024 }; /* smaller tensors are read again and again */

/* Where the elements are: bytes as in the file, or numbers already unpacked. */
struct elements {
    uint32_t field;       /* 0: nowhere */
    const uint8_t *bytes; /* raw, or the wire form of a typed field */
    int64_t n_bytes;
    const void *items; /* unpacked: float, int32_t, int64_t, double or uint64_t */
    int64_t n_items;
};

/* ---- dtype and dims ---- */

static attn_status check_dim(const attnrun_limits *limits, const char *name, size_t k,
                             int64_t dim)
{
    if (dim < 0)
        return attn_fail(ATTNRUN_E_MODEL,
                         "tensor '%s': dims[%zu] is %lld, expected 0 or more",
                         attn_quote(name), k, (long long)dim);
    if (dim > limits->dim)
        return attn_fail_limit(
            ATTN_LIMIT_DIM, "tensor '%s': dims[%zu] is %lld, expected at most %lld",
            attn_quote(name), k, (long long)dim, (long long)limits->dim);
    return ATTNRUN_OK;
}

attn_status attn_read_shape(const attnrun_limits *limits, const char *name, int32_t dtype,
                            size_t rank, const int64_t *dims, attnrun_tensor *tensor)
{
    *tensor = (attnrun_tensor){ .kind = ATTNRUN_TENSOR, .dtype = dtype };
    if (attnrun_dtype_bits(dtype) == 0)
        return attn_fail(ATTNRUN_E_MODEL,
                         "tensor '%s': data_type is %d, expected 1 to %d",
                         attn_quote(name), dtype, ATTNRUN_DTYPE_COUNT - 1);
    if (rank > (size_t)limits->rank)
        return attn_fail_limit(ATTN_LIMIT_RANK, "tensor '%s' has %s, expected at most %d",
                               attn_quote(name), attn_plural((int64_t)rank, "dim"),
                               (int)limits->rank);
    tensor->rank = (int32_t)rank;
    attnrun_tensor full = *tensor; /* a size of 0 excuses no other one */
    for (size_t k = 0; k < rank; k++) {
        TRY(check_dim(limits, name, k, dims[k]));
        tensor->dims[k] = dims[k];
        full.dims[k] = dims[k] > 0 ? dims[k] : 1;
    }
    const int64_t n = tensor_count(&full);
    if (n < 0 || n > limits->elements)
        return attn_fail_limit(
            ATTN_LIMIT_ELEMENTS, "tensor '%s' is %s, expected at most %lld elements",
            attn_quote(name), attn_tensor_format(tensor), (long long)limits->elements);
    int64_t bytes = dtype_bytes_of(dtype, n);
    if (bytes < 0)
        return attn_fail_limit(ATTN_LIMIT_ELEMENTS,
                               "tensor '%s': the bytes of %s overflow", attn_quote(name),
                               attn_tensor_format(tensor));
    tensor_set_dense(tensor);
    return ATTNRUN_OK;
}

/* ---- where the elements are ---- */

static uint32_t typed_field(int32_t dtype)
{
    switch (dtype) {
    case ATTNRUN_F32:
    case ATTNRUN_C64:
        return FLOAT_DATA;
    case ATTNRUN_F64:
    case ATTNRUN_C128:
        return DOUBLE_DATA;
    case ATTNRUN_I64:
        return INT64_DATA;
    case ATTNRUN_U32:
    case ATTNRUN_U64:
        return UINT64_DATA;
    case ATTNRUN_STRING:
        return STRING_DATA;
    default:
        return INT32_DATA;
    }
}

static const char *field_text(uint32_t field)
{
    switch (field) {
    case FLOAT_DATA:
        return "float_data";
    case INT32_DATA:
        return "int32_data";
    case STRING_DATA:
        return "string_data";
    case INT64_DATA:
        return "int64_data";
    case RAW_DATA:
        return "raw_data";
    case DOUBLE_DATA:
        return "double_data";
    default:
        return "uint64_data";
    }
}

static bool add_place(struct elements *e, uint32_t field, const void *items, size_t n)
{
    if (n == 0)
        return true;
    if (e->field != 0)
        return false;
    e->field = field;
    if (field == RAW_DATA) {
        e->bytes = items;
        e->n_bytes = (int64_t)n;
    } else {
        e->items = items;
        e->n_items = (int64_t)n;
    }
    return true;
}

static attn_status find_elements(const struct attn_tensor_reader *reader,
                                 const PB(TensorProto) * pb, struct elements *e)
{
    *e = (struct elements){ 0 };
    const struct attn_bulk *bulk = attn_scan_bulk(reader->scan, &pb->base);
    if (bulk != NULL)
        *e = (struct elements){ .field = bulk->id,
                                .bytes = reader->scan->data + bulk->offset,
                                .n_bytes = bulk->bytes };
    bool once = add_place(e, FLOAT_DATA, pb->float_data, pb->n_float_data) &&
                add_place(e, INT32_DATA, pb->int32_data, pb->n_int32_data) &&
                add_place(e, STRING_DATA, pb->string_data, pb->n_string_data) &&
                add_place(e, INT64_DATA, pb->int64_data, pb->n_int64_data) &&
                add_place(e, DOUBLE_DATA, pb->double_data, pb->n_double_data) &&
                add_place(e, UINT64_DATA, pb->uint64_data, pb->n_uint64_data) &&
                add_place(e, RAW_DATA, pb->raw_data.data, pb->raw_data.len);
    if (!once)
        return attn_fail(ATTNRUN_E_MODEL, "tensor '%s' has data in more than one field",
                         attn_quote(pb_text(pb->name)));
    uint32_t typed = typed_field(pb->data_type);
    bool raw = e->field == RAW_DATA && pb->data_type != ATTNRUN_STRING;
    if (e->field != 0 && e->field != typed && !raw)
        return attn_fail(ATTNRUN_E_MODEL, "tensor '%s': %s in %s, expected %s",
                         attn_quote(pb_text(pb->name)), attnrun_dtype_name(pb->data_type),
                         field_text(e->field), field_text(typed));
    return ATTNRUN_OK;
}

/* ---- bytes that are the elements ---- */

static bool bools_are_clean(const uint8_t *bytes, int64_t n)
{
    uint8_t any = 0;
    for (int64_t k = 0; k < n && !attn_stops(k); k++)
        any |= bytes[k];
    return any <= 1;
}

static attn_status take_bytes(struct attn_tensor_reader *reader, const uint8_t *bytes,
                              int64_t n, bool stays, attnrun_tensor *tensor)
{
    bool is_bool = tensor->dtype == ATTNRUN_BOOL;
    uintptr_t align = (uintptr_t)attn_dtype_align(tensor->dtype);
    bool aligned = (uintptr_t)bytes % align == 0 || n > reader->unaligned_above;
    if (stays && n > 0 && !reader->copy && aligned &&
        !(is_bool && !bools_are_clean(bytes, n))) {
        tensor->data = (void *)(uintptr_t)bytes;
        return ATTNRUN_OK;
    }
    uint8_t *data = attn_pool_alloc(reader->pool, n > 0 ? n : 1);
    if (data == NULL)
        return ATTNRUN_E_MEMORY;
    if (n > 0)
        TRY(attn_poll_copy(data, bytes, n));
    for (int64_t k = 0; is_bool && k < n && !attn_stops(k); k++)
        data[k] = data[k] != 0;
    tensor->data = data;
    return ATTNRUN_OK;
}

static attn_status fail_size(const PB(TensorProto) * pb, const attnrun_tensor *tensor,
                             const struct elements *e, int64_t found, int64_t expected,
                             const char *what)
{
    if (e->field == 0)
        return attn_fail(ATTNRUN_E_MODEL, "tensor '%s' has no data, expected %s",
                         attn_quote(pb_text(pb->name)), attn_tensor_format(tensor));
    return attn_fail(ATTNRUN_E_MODEL, "tensor '%s': %s has %s, expected %lld for %s",
                     attn_quote(pb_text(pb->name)), field_text(e->field),
                     attn_plural(found, what), (long long)expected,
                     attn_tensor_format(tensor));
}

/* ---- numbers that become elements ---- */

/* Of types whose field is not that of floats. */
static int64_t items_for(int32_t dtype, int64_t n)
{
    switch (dtype) {
    case ATTNRUN_U4:
    case ATTNRUN_I4:
    case ATTNRUN_F4E2M1:
    case ATTNRUN_U2:
    case ATTNRUN_I2:
        return dtype_bytes_of(dtype, n);
    default:
        return n;
    }
}

/* Stores number k of a typed field; the low bits are kept, as ONNX's own readers do. */
static void store_item(int32_t dtype, void *data, int64_t k, uint64_t value)
{
    switch (dtype) {
    case ATTNRUN_BOOL:
        ((uint8_t *)data)[k] = value != 0;
        break;
    case ATTNRUN_F6E2M3:
    case ATTNRUN_F6E3M2:
        attn_subbyte_set(dtype, data, k, (int32_t)(value & 63));
        break;
    case ATTNRUN_I32:
    case ATTNRUN_U32:
        ((uint32_t *)data)[k] = (uint32_t)value;
        break;
    case ATTNRUN_I64:
    case ATTNRUN_U64:
        ((uint64_t *)data)[k] = value;
        break;
    case ATTNRUN_I16:
    case ATTNRUN_U16:
    case ATTNRUN_F16:
    case ATTNRUN_BF16:
        ((uint16_t *)data)[k] = (uint16_t)value;
        break;
    default: /* a byte, or packed elements of less */
        ((uint8_t *)data)[k] = (uint8_t)value;
        break;
    }
}

static attn_status count_varints(const PB(TensorProto) * pb, struct elements *e)
{
    const uint8_t *p = e->bytes, *end = p + e->n_bytes;
    uint64_t value;
    for (e->n_items = 0; p < end; e->n_items++) {
        if (attn_stops(e->n_items))
            return attn_poll();
        int used = attn_varint(p, end, &value);
        if (used == 0)
            return attn_fail(ATTNRUN_E_PARSE,
                             "tensor '%s': %s ends in the middle of a number",
                             attn_quote(pb_text(pb->name)), field_text(e->field));
        p += used;
    }
    return ATTNRUN_OK;
}

static uint64_t item_at(const struct elements *e, int64_t k)
{
    if (e->field == INT32_DATA)
        return (uint64_t)(int64_t)((const int32_t *)e->items)[k];
    return ((const uint64_t *)e->items)[k];
}

static attn_status take_integers(struct attn_tensor_reader *reader,
                                 const PB(TensorProto) * pb, struct elements *e,
                                 attnrun_tensor *tensor)
{
    if (e->bytes != NULL)
        TRY(count_varints(pb, e));
    int64_t wanted = items_for(tensor->dtype, tensor_count(tensor));
    if (e->n_items != wanted)
        return fail_size(pb, tensor, e, e->n_items, wanted, "number");
    int64_t bytes = tensor_bytes(tensor);
    tensor->data = attn_pool_alloc(reader->pool, bytes > 0 ? bytes : 1);
    if (tensor->data == NULL)
        return ATTNRUN_E_MEMORY;
    const uint8_t *p = e->bytes, *end = e->bytes != NULL ? p + e->n_bytes : NULL;
    for (int64_t k = 0; k < wanted && !attn_stops(k); k++) {
        uint64_t value;
        if (p != NULL)
            p += attn_varint(p, end, &value);
        else
            value = item_at(e, k);
        store_item(tensor->dtype, tensor->data, k, value);
    }
    return ATTNRUN_OK;
}

/* float_data and double_data: their wire form is the element's own. */
static attn_status take_floats(struct attn_tensor_reader *reader,
                               const PB(TensorProto) * pb, const struct elements *e,
                               attnrun_tensor *tensor)
{
    int64_t item = e->field == DOUBLE_DATA ? 8 : 4;
    int64_t bytes = tensor_bytes(tensor);
    int64_t found = e->bytes != NULL ? e->n_bytes : e->n_items * item;
    if (found != bytes)
        return fail_size(pb, tensor, e, found / item, bytes / item, "number");
    const uint8_t *from = e->bytes != NULL ? e->bytes : e->items;
    return take_bytes(reader, from, bytes, e->bytes != NULL, tensor);
}

static attn_status take_strings(struct attn_tensor_reader *reader,
                                const PB(TensorProto) * pb, const struct elements *e,
                                attnrun_tensor *tensor)
{
    int64_t n = tensor_count(tensor), text = 0;
    if (e->n_items != n)
        return fail_size(pb, tensor, e, e->n_items, n, "string");
    for (int64_t k = 0; k < n && !attn_stops(k); k++)
        if (!ck_add(text, (int64_t)pb->string_data[k].len + 1, &text))
            return attn_fail(ATTNRUN_E_LIMIT,
                             "tensor '%s': its strings have more than 2^63 - 1 bytes",
                             attn_quote(pb_text(pb->name)));
    int64_t head = n * (int64_t)sizeof(attnrun_string), bytes;
    if (!ck_add(head, text, &bytes))
        return ATTNRUN_E_LIMIT;
    attnrun_string *strings = attn_pool_alloc(reader->pool, bytes > 0 ? bytes : 1);
    if (strings == NULL)
        return ATTNRUN_E_MEMORY;
    char *at = (char *)strings + head;
    TRY(attn_poll());
    for (int64_t k = 0; k < n && !attn_stops(k); k++) {
        size_t length = pb->string_data[k].len;
        if (length > 0)
            memcpy(at, pb->string_data[k].data, length);
        strings[k] = (attnrun_string){ at, (int64_t)length };
        at += length + 1;
    }
    tensor->data = strings;
    return ATTNRUN_OK;
}

/* ---- all together ---- */

static attn_status read_inner(struct attn_tensor_reader *reader,
                              const PB(TensorProto) * pb, attnrun_tensor *tensor)
{
    struct elements e;
    TRY(find_elements(reader, pb, &e));
    int64_t bytes = tensor_bytes(tensor);
    if (tensor->dtype == ATTNRUN_STRING)
        return take_strings(reader, pb, &e, tensor);
    if (e.field == RAW_DATA || (e.field == 0 && bytes == 0)) {
        if (e.n_bytes != bytes)
            return fail_size(pb, tensor, &e, e.n_bytes, bytes, "byte");
        bool stays = attn_scan_bulk(reader->scan, &pb->base) != NULL;
        return take_bytes(reader, e.bytes, bytes, stays, tensor);
    }
    if (e.field == 0)
        return fail_size(pb, tensor, &e, 0, 0, "");
    if (e.field == FLOAT_DATA || e.field == DOUBLE_DATA)
        return take_floats(reader, pb, &e, tensor);
    return take_integers(reader, pb, &e, tensor);
}

static attn_status read_external(struct attn_tensor_reader *reader,
                                 const PB(TensorProto) * pb, attnrun_tensor *tensor)
{
    const char *name = attn_quote(pb_text(pb->name));
    if (tensor->dtype == ATTNRUN_STRING)
        return attn_fail(ATTNRUN_E_MODEL, "tensor '%s': strings cannot be external",
                         name);
    struct elements e;
    TRY(find_elements(reader, pb, &e));
    if (e.field != 0)
        return attn_fail(ATTNRUN_E_MODEL, "tensor '%s' is external and has %s", name,
                         field_text(e.field));
    if (reader->external == NULL)
        return attn_fail(ATTNRUN_E_PATH, "tensor '%s': external data is not allowed here",
                         name);
    const uint8_t *bytes = NULL;
    TRY(attn_external_bytes(reader->external, pb, tensor_bytes(tensor), &bytes));
    return take_bytes(reader, bytes, tensor_bytes(tensor), true, tensor);
}

static attn_status read_tensor(struct attn_tensor_reader *reader,
                               const PB(TensorProto) * pb, attnrun_tensor *tensor)
{
    const char *name = pb_text(pb->name);
    bool external =
        pb->data_location == ATTNRUN__ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    TRY(attn_read_shape(reader->limits, name, pb->data_type, pb->n_dims, pb->dims,
                        tensor));
    if (pb->segment != NULL)
        return attn_fail(ATTNRUN_E_UNSUPPORTED, "tensor '%s': segments are not supported",
                         attn_quote(name));
    if (!external && tensor_bytes(tensor) > reader->limits->file_bytes)
        return attn_fail_limit(
            ATTN_LIMIT_FILE_BYTES, "tensor '%s': %s is %lld bytes, expected at most %lld",
            attn_quote(name), attn_tensor_format(tensor), (long long)tensor_bytes(tensor),
            (long long)reader->limits->file_bytes);
    if (external)
        return read_external(reader, pb, tensor);
    if (pb->data_location != 0)
        return attn_fail(ATTNRUN_E_MODEL,
                         "tensor '%s': data_location %d, expected 0 or 1",
                         attn_quote(name), (int)pb->data_location);
    return read_inner(reader, pb, tensor);
}

/* A tensor by the message that it was made of. */
struct made_tensor {
    const void *message;
    attnrun_tensor tensor;
};

bool attn_tensor_made(const struct attn_tensor_reader *reader, const void *message,
                      attnrun_tensor *tensor)
{
    const int64_t *made = reader->made != NULL ? attn_map_find(reader->made, &message,
                                                               (int64_t)sizeof message)
                                               : NULL;
    if (made != NULL)
        *tensor = ((const struct made_tensor *)(intptr_t)*made)->tensor;
    return made != NULL;
}

attn_status attn_tensor_keep(struct attn_tensor_reader *reader, const void *message,
                             const attnrun_tensor *tensor)
{
    if (reader->made == NULL || tensor_bytes(tensor) < MADE_BYTES)
        return ATTNRUN_OK;
    struct made_tensor *made = attn_pool_alloc(reader->made->pool, (int64_t)sizeof *made);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    *made = (struct made_tensor){ message, *tensor };
    return attn_map_add(reader->made, &made->message, (int64_t)sizeof message,
                        (int64_t)(intptr_t)made);
}

attn_status attn_read_tensor(struct attn_tensor_reader *reader,
                             const PB(TensorProto) * pb, attnrun_tensor *tensor)
{
    if (attn_tensor_made(reader, pb, tensor))
        return ATTNRUN_OK;
    TRY(read_tensor(reader, pb, tensor));
    return attn_tensor_keep(reader, pb, tensor);
}

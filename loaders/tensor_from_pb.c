/* tensor_from_pb.c - serialized TensorProto, SequenceProto, OptionalProto and MapProto,
 * as test data has them, as tensors of the caller.
 *
 * SequenceProto: name = 1, elem_type = 2, tensor_values = 3, map_values = 6, …
 * OptionalProto: name = 1, elem_type = 2, tensor_value = 3, sequence_value = 5, …
 * MapProto: name = 1, key_type = 2, keys = 3, string_keys = 4, values = 5 (a sequence)
 * They are flat enough to be read by hand. Sequences of sequences are refused, and the
 * values of a map are single numbers or strings, so nothing here nests. */
#include <string.h>

#include "onnx_tensor.h"

enum { NAME = 1, ELEM_TYPE = 2, TENSOR_VALUE = 3, SPARSE_VALUE = 4, SEQUENCE_VALUE = 5 };
enum { MAP_VALUE = 6, KEY_TYPE = 2, INT_KEYS = 3, STRING_KEYS = 4, MAP_VALUES = 5 };
enum { MAX_ELEMENTS = 1 << 20 };

struct owned_tensor {
    attnrun_tensor tensor; /* first: what the caller sees */
    attnrun_runtime *runtime;
    struct attn_pool pool;
    const char *name;
};

struct tensor_from_pb_part {
    const uint8_t *data;
    int64_t bytes;
};

/* One field of a message: its bytes, or its number in part.bytes with part.data NULL. */
static attn_status next_field(struct tensor_from_pb_part *message, uint32_t *id,
                              struct tensor_from_pb_part *field)
{
    const uint8_t *p = message->data, *end = p + message->bytes;
    uint64_t tag = 0, value = 0;
    int used = attn_varint(p, end, &tag);
    p += used;
    int more = used > 0 ? attn_varint(p, end, &value) : 0;
    p += more;
    bool text = (tag & 7) == 2;
    if (used == 0 || more == 0 || (tag & ~UINT64_C(2)) >> 3 == 0 ||
        (tag >> 3) > UINT32_MAX || !(text || (tag & 7) == 0) ||
        (text && value > (uint64_t)(end - p)))
        return attn_fail(ATTNRUN_E_PARSE, "not a sequence, optional or map");
    *id = (uint32_t)(tag >> 3);
    *field = (struct tensor_from_pb_part){ text ? p : NULL, (int64_t)value };
    p += text ? value : 0;
    *message = (struct tensor_from_pb_part){ p, end - p };
    return ATTNRUN_OK;
}

static attn_status need_message(const struct tensor_from_pb_part *field)
{
    return field->data != NULL
               ? ATTNRUN_OK
               : attn_fail(ATTNRUN_E_PARSE,
                           "there is a number where a message was expected");
}

static attn_status set_name(struct owned_tensor *owned,
                            const struct tensor_from_pb_part *text)
{
    if (text->data == NULL || text->bytes > ATTN_SCAN_NAME)
        return attn_fail(ATTNRUN_E_PARSE, "the name is not a string of at most %d bytes",
                         (int)ATTN_SCAN_NAME);
    char *name = attn_pool_alloc(&owned->pool, text->bytes + 1);
    if (name == NULL)
        return ATTNRUN_E_MEMORY;
    if (text->bytes > 0)
        memcpy(name, text->data, (size_t)text->bytes);
    owned->name = name;
    return ATTNRUN_OK;
}

static attn_status unpack_tensor(struct owned_tensor *owned, struct attn_scan *scan,
                                 struct attn_pool *pool,
                                 const struct tensor_from_pb_part *part,
                                 attnrun_tensor *tensor, bool named)
{
    const ProtobufCMessageDescriptor *descriptor =
        &attnrun__onnx__tensor_proto__descriptor;
    TRY(attn_wire_scan(pool->memory, &attn_limits_standard, descriptor, part->data,
                       part->bytes, scan));
    ProtobufCMessage *message;
    TRY(attn_scan_unpack(scan, pool, descriptor, &message));
    const PB(TensorProto) *pb = (const PB(TensorProto) *)message;
    struct attn_tensor_reader reader = {
        .limits = &attn_limits_standard, .pool = &owned->pool, .scan = scan, .copy = true
    };
    TRY(attn_read_tensor(&reader, pb, tensor));
    if (named)
        owned->name = attn_pool_string(&owned->pool, pb_text(pb->name));
    return owned->name != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status read_tensor(struct owned_tensor *owned,
                               const struct tensor_from_pb_part *part,
                               attnrun_tensor *tensor, bool named)
{
    static const uint8_t nothing[1] = { 0 };
    struct tensor_from_pb_part bytes = *part;
    if (bytes.data == NULL)
        bytes.data = nothing;
    struct attn_scan scan = { .memory = owned->pool.memory };
    struct attn_pool pool;
    attn_pool_init(&pool, owned->pool.memory, ATTN_MEM_HEAP);
    attn_status status = unpack_tensor(owned, &scan, &pool, &bytes, tensor, named);
    attn_scan_free(&scan);
    attn_pool_free(&pool);
    return status;
}

static attn_status fail_element(uint32_t id, bool maps)
{
    return attn_fail(ATTNRUN_E_UNSUPPORTED,
                     "elements of field %u: only %s are supported here", id,
                     maps ? "maps" : "tensors");
}

/* The elements of a sequence, all of `field_id`, read by `read`. */
typedef attn_status element_reader(struct owned_tensor *owned,
                                   const struct tensor_from_pb_part *part,
                                   attnrun_tensor *tensor, bool named);

static attn_status read_elements(struct owned_tensor *owned,
                                 struct tensor_from_pb_part message, bool maps,
                                 element_reader *read, attnrun_tensor *sequence,
                                 bool named)
{
    attnrun_tensor *items = NULL;
    int64_t n = 0, capacity = 0;
    while (message.bytes > 0) {
        uint32_t id = 0;
        struct tensor_from_pb_part field;
        TRY(next_field(&message, &id, &field));
        if (id == NAME && named)
            TRY(set_name(owned, &field));
        if (id >= TENSOR_VALUE && id != (maps ? MAP_VALUE : TENSOR_VALUE))
            return fail_element(id, maps);
        if (id < TENSOR_VALUE)
            continue;
        TRY(need_message(&field));
        if (n == MAX_ELEMENTS)
            return attn_fail(ATTNRUN_E_LIMIT, "the sequence has more than %d elements",
                             MAX_ELEMENTS);
        if (n == capacity)
            TRY(attn_pool_grow(&owned->pool, (void **)&items, &capacity, n,
                               (int64_t)sizeof *items));
        TRY(read(owned, &field, &items[n], false));
        if (!maps && named && items[n].dtype != items[0].dtype)
            return attn_fail(ATTNRUN_E_DTYPE,
                             "element %lld of the sequence is %s, but the first is %s",
                             (long long)n, attn_tensor_format(&items[n]),
                             attn_tensor_format(&items[0]));
        n++;
    }
    if (items == NULL)
        items = attn_pool_alloc(&owned->pool, (int64_t)sizeof *items);
    if (items == NULL)
        return ATTNRUN_E_MEMORY;
    *sequence = (attnrun_tensor){ .kind = maps ? ATTNRUN_MAP_SEQUENCE : ATTNRUN_SEQUENCE,
                                  .dtype = n > 0 ? items[0].dtype : 0,
                                  .rank = 1,
                                  .dims = { n },
                                  .data = items };
    return ATTNRUN_OK;
}

static attn_status read_tensors(struct owned_tensor *owned,
                                struct tensor_from_pb_part message,
                                attnrun_tensor *sequence, bool named)
{
    return read_elements(owned, message, false, read_tensor, sequence, named);
}

/* ---- maps ---- */

/* Keys in the order of the file, all of one type. */
struct keys {
    int32_t dtype; /* 0: none so far, and no key_type */
    int64_t n, capacity;
    void *data; /* int64_t or attnrun_string */
};

static attn_status add_key(struct owned_tensor *owned, struct keys *keys, int32_t dtype,
                           int64_t number, const struct tensor_from_pb_part *text)
{
    if (keys->n == MAX_ELEMENTS)
        return attn_fail(ATTNRUN_E_LIMIT, "the map has more than %d entries",
                         MAX_ELEMENTS);
    if (keys->n > 0 && keys->dtype != dtype)
        return attn_fail(ATTNRUN_E_PARSE, "the map has keys of two types");
    keys->dtype = dtype;
    if (keys->n == keys->capacity)
        TRY(attn_pool_grow(&owned->pool, &keys->data, &keys->capacity, keys->n,
                           dtype_bytes(dtype)));
    if (dtype == ATTNRUN_I64) {
        ((int64_t *)keys->data)[keys->n++] = number;
        return ATTNRUN_OK;
    }
    char *copy = attn_pool_alloc(&owned->pool, text->bytes + 1);
    if (copy == NULL)
        return ATTNRUN_E_MEMORY;
    if (text->bytes > 0)
        memcpy(copy, text->data, (size_t)text->bytes);
    ((attnrun_string *)keys->data)[keys->n++] = (attnrun_string){ copy, text->bytes };
    return ATTNRUN_OK;
}

/* One number, or a packed list of them. */
static attn_status add_int_keys(struct owned_tensor *owned, struct keys *keys,
                                const struct tensor_from_pb_part *field)
{
    const uint8_t *p = field->data, *end = p + (p != NULL ? field->bytes : 0);
    if (p == NULL)
        return add_key(owned, keys, ATTNRUN_I64, field->bytes, NULL);
    while (p < end) {
        uint64_t value;
        int used = attn_varint(p, end, &value);
        if (used == 0)
            return attn_fail(ATTNRUN_E_PARSE, "a map has fewer keys than values");
        p += used;
        TRY(add_key(owned, keys, ATTNRUN_I64, (int64_t)value, NULL));
    }
    return ATTNRUN_OK;
}

static attn_status make_column(struct owned_tensor *owned, int32_t dtype, int64_t n,
                               attnrun_tensor *column)
{
    TRY(attnrun_tensor_make(dtype, 1, &n, NULL, column));
    column->data = attn_pool_alloc(&owned->pool, tensor_bytes(column) + 1);
    return column->data != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

/* The tensors of one element each, side by side. */
static attn_status join_values(struct owned_tensor *owned, const attnrun_tensor *values,
                               int64_t n, attnrun_tensor *column)
{
    const attnrun_tensor *items = values->data;
    const int32_t dtype = n > 0 ? items[0].dtype : ATTNRUN_F32;
    if (values->dims[0] != n)
        return attn_fail(ATTNRUN_E_PARSE, "the map has %s and %s, expected equal numbers",
                         attn_plural(n, "key"), attn_plural(values->dims[0], "value"));
    if (attnrun_dtype_bits(dtype) < 8)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the map has values of %s, expected a type of whole bytes",
                         attnrun_dtype_name(dtype));
    TRY(make_column(owned, dtype, n, column));
    for (int64_t i = 0; i < n; i++) {
        if (items[i].dtype != dtype || tensor_count(&items[i]) != 1)
            return attn_fail(ATTNRUN_E_UNSUPPORTED,
                             "value %lld of a map is %s, expected one %s", (long long)i,
                             attn_tensor_format(&items[i]), attnrun_dtype_name(dtype));
        memcpy((char *)column->data + i * dtype_bytes(dtype), items[i].data,
               (size_t)dtype_bytes(dtype));
    }
    return ATTNRUN_OK;
}

static attn_status read_map(struct owned_tensor *owned,
                            const struct tensor_from_pb_part *part, attnrun_tensor *map,
                            bool named)
{
    struct tensor_from_pb_part message = *part;
    struct keys keys = { .n = 0 };
    struct tensor_from_pb_part values = { NULL, 0 };
    while (message.bytes > 0) {
        uint32_t id = 0;
        struct tensor_from_pb_part field;
        TRY(next_field(&message, &id, &field));
        if (id == NAME && named)
            TRY(set_name(owned, &field));
        else if (id == KEY_TYPE && keys.n == 0 && field.bytes == ATTNRUN_STRING)
            keys.dtype = ATTNRUN_STRING;
        else if (id == INT_KEYS)
            TRY(add_int_keys(owned, &keys, &field));
        if (id == STRING_KEYS || id == MAP_VALUES)
            TRY(need_message(&field));
        if (id == STRING_KEYS)
            TRY(add_key(owned, &keys, ATTNRUN_STRING, 0, &field));
        else if (id == MAP_VALUES)
            values = field;
    }
    attnrun_tensor list,
        *columns = attn_pool_alloc(&owned->pool, 2 * (int64_t)sizeof *columns);
    if (columns == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(make_column(owned, keys.dtype != 0 ? keys.dtype : ATTNRUN_I64, keys.n,
                    &columns[0]));
    if (keys.n > 0)
        memcpy(columns[0].data, keys.data, (size_t)tensor_bytes(&columns[0]));
    TRY(read_tensors(owned, values, &list, false));
    TRY(join_values(owned, &list, keys.n, &columns[1]));
    *map = (attnrun_tensor){ .kind = ATTNRUN_MAP,
                             .dtype = columns[1].dtype,
                             .rank = 1,
                             .dims = { keys.n },
                             .data = columns };
    return ATTNRUN_OK;
}

/* ---- whole messages ---- */

static attn_status read_optional(struct owned_tensor *owned,
                                 struct tensor_from_pb_part message, int32_t kind)
{
    attnrun_tensor *optional = &owned->tensor;
    *optional = (attnrun_tensor){ .kind = kind };
    while (message.bytes > 0) {
        uint32_t id = 0;
        struct tensor_from_pb_part field;
        TRY(next_field(&message, &id, &field));
        if (id == NAME)
            TRY(set_name(owned, &field));
        if (id == SPARSE_VALUE || id > SEQUENCE_VALUE)
            return fail_element(id, false);
        if (id != TENSOR_VALUE && id != SEQUENCE_VALUE)
            continue;
        TRY(need_message(&field));
        attnrun_tensor *inner = attn_pool_alloc(&owned->pool, (int64_t)sizeof *inner);
        if (inner == NULL)
            return ATTNRUN_E_MEMORY;
        bool sequence = id == SEQUENCE_VALUE;
        TRY(sequence ? read_tensors(owned, field, inner, false)
                     : read_tensor(owned, &field, inner, false));
        optional->kind = sequence ? ATTNRUN_OPTIONAL_SEQUENCE : ATTNRUN_OPTIONAL;
        optional->dtype = inner->dtype;
        optional->data = inner;
    }
    return ATTNRUN_OK;
}

static attn_status read_message(struct owned_tensor *owned,
                                const struct tensor_from_pb_part *part, int32_t kind)
{
    switch (kind) {
    case ATTNRUN_TENSOR:
        return read_tensor(owned, part, &owned->tensor, true);
    case ATTNRUN_SEQUENCE:
        return read_tensors(owned, *part, &owned->tensor, true);
    case ATTNRUN_MAP_SEQUENCE:
        return read_elements(owned, *part, true, read_map, &owned->tensor, true);
    case ATTNRUN_MAP:
        return read_map(owned, part, &owned->tensor, true);
    case ATTNRUN_OPTIONAL:
    case ATTNRUN_OPTIONAL_SEQUENCE:
        return read_optional(owned, *part, kind);
    default:
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_tensor_from_pb: the kind %d is unknown", kind);
    }
}

static void free_owned(struct owned_tensor *owned)
{
    attnrun_runtime *runtime = owned->runtime;
    struct attn_memory *memory = owned->pool.memory;
    attn_pool_free(&owned->pool);
    attn_free(memory, ATTN_MEM_HEAP, owned, (int64_t)sizeof *owned);
    attn_runtime_release(runtime);
}

attnrun_status attnrun_tensor_from_pb(attnrun_runtime *runtime, const void *data,
                                      uint64_t bytes, int32_t kind,
                                      attnrun_tensor **tensor, const char **name)
{
    if (tensor == NULL || (data == NULL && bytes > 0))
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_tensor_from_pb: the tensor or the data is NULL");
    if (bytes > (uint64_t)attn_limits_standard.file_bytes)
        return attn_fail(ATTNRUN_E_LIMIT,
                         "the message has %llu bytes (limit 'file_bytes')",
                         (unsigned long long)bytes);
    if (runtime == NULL)
        TRY(attn_runtime_default(&runtime));
    else
        attn_runtime_retain(runtime);
    struct attn_memory *memory = attn_runtime_memory(runtime);
    struct owned_tensor *owned =
        attn_alloc_zeroed(memory, ATTN_MEM_HEAP, (int64_t)sizeof *owned);
    if (owned == NULL) {
        attn_runtime_release(runtime);
        return ATTNRUN_E_MEMORY;
    }
    owned->runtime = runtime;
    owned->name = "";
    attn_pool_init(&owned->pool, memory, ATTN_MEM_HEAP);
    struct tensor_from_pb_part part = { data, (int64_t)bytes };
    attn_status status = read_message(owned, &part, kind);
    if (status != ATTNRUN_OK) {
        free_owned(owned);
        return status;
    }
    *tensor = &owned->tensor;
    if (name != NULL)
        *name = owned->name;
    return ATTNRUN_OK;
}

void attnrun_tensor_free(attnrun_runtime *runtime, attnrun_tensor *tensor)
{
    (void)runtime; /* the tensor knows it */
    if (tensor != NULL)
        free_owned((struct owned_tensor *)(void *)tensor);
}

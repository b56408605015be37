/* tensor_from_pb.c - serialized TensorProto, SequenceProto and OptionalProto, as test
 * data has them, as tensors of the caller.
 *
 * SequenceProto: name = 1, elem_type = 2, tensor_values = 3, sequence_values = 5, …
 * OptionalProto: name = 1, elem_type = 2, tensor_value = 3, sequence_value = 5, …
 * The two are flat enough to be read by hand; sequences of sequences are refused, so
 * nothing here nests. */
#include <string.h>

#include "onnx_tensor.h"

enum { NAME = 1, ELEM_TYPE = 2, TENSOR_VALUE = 3, SPARSE_VALUE = 4, SEQUENCE_VALUE = 5 };
enum { MAX_ELEMENTS = 1 << 20 };

struct owned_tensor {
    attnrun_tensor tensor; /* first: what the caller sees */
    attnrun_runtime *runtime;
    struct attn_pool pool;
    const char *name;
};

struct part {
    const uint8_t *data;
    int64_t bytes;
};

/* One field of a message: its bytes, or its number in part.bytes with part.data NULL. */
static attn_status next_field(struct part *message, uint32_t *id, struct part *field)
{
    const uint8_t *p = message->data, *end = p + message->bytes;
    uint64_t tag, value = 0;
    int used = attn_varint(p, end, &tag);
    p += used;
    int more = used > 0 ? attn_varint(p, end, &value) : 0;
    p += more;
    bool text = (tag & 7) == 2;
    if (used == 0 || more == 0 || (tag & ~UINT64_C(2)) >> 3 == 0 ||
        (tag >> 3) > UINT32_MAX || !(text || (tag & 7) == 0) ||
        (text && value > (uint64_t)(end - p)))
        return attn_fail(ATTNRUN_E_PARSE, "not a sequence or optional of tensors");
    *id = (uint32_t)(tag >> 3);
    *field = text ? (struct part){ p, (int64_t)value } : (struct part){ NULL, 0 };
    p += text ? value : 0;
    *message = (struct part){ p, end - p };
    return ATTNRUN_OK;
}

static attn_status set_name(struct owned_tensor *owned, const struct part *text)
{
    if (text->data == NULL || text->bytes > ATTN_SCAN_NAME)
        return attn_fail(ATTNRUN_E_PARSE, "a name of %lld bytes", (long long)text->bytes);
    char *name = attn_pool_alloc(&owned->pool, text->bytes + 1);
    if (name == NULL)
        return ATTNRUN_E_MEMORY;
    if (text->bytes > 0)
        memcpy(name, text->data, (size_t)text->bytes);
    owned->name = name;
    return ATTNRUN_OK;
}

static attn_status unpack_tensor(struct owned_tensor *owned, struct attn_scan *scan,
                                 struct attn_pool *pool, const struct part *part,
                                 attnrun_tensor *tensor, bool named)
{
    const ProtobufCMessageDescriptor *descriptor =
        &attnrun__onnx__tensor_proto__descriptor;
    TRY(attn_wire_scan(pool->memory, descriptor, part->data, part->bytes, scan));
    const PB(TensorProto) *pb =
        (const PB(TensorProto) *)attn_scan_unpack(scan, pool, descriptor);
    if (pb == NULL)
        return attnrun_last_error()->status;
    struct attn_tensor_reader reader = { .pool = &owned->pool,
                                         .scan = scan,
                                         .copy = true };
    TRY(attn_read_tensor(&reader, pb, tensor));
    if (named)
        owned->name = attn_pool_string(&owned->pool, pb_text(pb->name));
    return owned->name != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status read_tensor(struct owned_tensor *owned, const struct part *part,
                               attnrun_tensor *tensor, bool named)
{
    static const uint8_t nothing[1] = { 0 };
    struct part bytes = *part;
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

static attn_status fail_element(uint32_t id)
{
    return attn_fail(ATTNRUN_E_UNSUPPORTED,
                     "elements of field %u: only tensors are supported", id);
}

static attn_status read_sequence(struct owned_tensor *owned, struct part message,
                                 attnrun_tensor *sequence, bool named)
{
    attnrun_tensor *items = NULL;
    int64_t n = 0, capacity = 0;
    while (message.bytes > 0) {
        uint32_t id = 0;
        struct part field;
        TRY(next_field(&message, &id, &field));
        if (id == NAME && named)
            TRY(set_name(owned, &field));
        if (id == SPARSE_VALUE || id >= SEQUENCE_VALUE)
            return fail_element(id);
        if (id != TENSOR_VALUE)
            continue;
        if (n == MAX_ELEMENTS)
            return attn_fail(ATTNRUN_E_LIMIT, "a sequence of over %d tensors",
                             MAX_ELEMENTS);
        if (n == capacity)
            TRY(attn_pool_grow(&owned->pool, (void **)&items, &capacity, n,
                               (int64_t)sizeof *items));
        TRY(read_tensor(owned, &field, &items[n], false));
        if (items[n].dtype != items[0].dtype)
            return attn_fail(ATTNRUN_E_DTYPE,
                             "element %lld of the sequence is %s, the first is %s",
                             (long long)n, attn_tensor_format(&items[n]),
                             attn_tensor_format(&items[0]));
        n++;
    }
    if (items == NULL)
        items = attn_pool_alloc(&owned->pool, (int64_t)sizeof *items);
    if (items == NULL)
        return ATTNRUN_E_MEMORY;
    *sequence = (attnrun_tensor){ .kind = ATTNRUN_SEQUENCE,
                                  .dtype = n > 0 ? items[0].dtype : 0,
                                  .rank = 1,
                                  .dims = { n },
                                  .data = items };
    return ATTNRUN_OK;
}

static attn_status read_optional(struct owned_tensor *owned, struct part message,
                                 int32_t kind)
{
    attnrun_tensor *optional = &owned->tensor;
    *optional = (attnrun_tensor){ .kind = kind };
    while (message.bytes > 0) {
        uint32_t id = 0;
        struct part field;
        TRY(next_field(&message, &id, &field));
        if (id == NAME)
            TRY(set_name(owned, &field));
        if (id == SPARSE_VALUE || id > SEQUENCE_VALUE)
            return fail_element(id);
        if (id != TENSOR_VALUE && id != SEQUENCE_VALUE)
            continue;
        attnrun_tensor *inner = attn_pool_alloc(&owned->pool, (int64_t)sizeof *inner);
        if (inner == NULL)
            return ATTNRUN_E_MEMORY;
        bool sequence = id == SEQUENCE_VALUE;
        TRY(sequence ? read_sequence(owned, field, inner, false)
                     : read_tensor(owned, &field, inner, false));
        optional->kind = sequence ? ATTNRUN_OPTIONAL_SEQUENCE : ATTNRUN_OPTIONAL;
        optional->dtype = inner->dtype;
        optional->data = inner;
    }
    return ATTNRUN_OK;
}

static attn_status read_message(struct owned_tensor *owned, const struct part *part,
                                int32_t kind)
{
    switch (kind) {
    case ATTNRUN_TENSOR:
        return read_tensor(owned, part, &owned->tensor, true);
    case ATTNRUN_SEQUENCE:
        return read_sequence(owned, *part, &owned->tensor, true);
    case ATTNRUN_OPTIONAL:
    case ATTNRUN_OPTIONAL_SEQUENCE:
        return read_optional(owned, *part, kind);
    default:
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_tensor_from_pb: kind %d", kind);
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
    if (tensor == NULL || (data == NULL && bytes > 0) || bytes > (uint64_t)ATTN_SCAN_FILE)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_tensor_from_pb: no tensor or no data");
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
    struct part part = { data, (int64_t)bytes };
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

/* scan_unpack.c - from the compact copy of a message, which wire_scan.c makes, to the
 * structs of protobuf-c, and from an unpacked tensor to the data that stayed in the file.
 *
 * All memory comes from a pool and goes with it. The clock is polled at each allocation:
 * a NULL from there ends the unpacking. */
#include "../runtime/poll.h"
#include "wire_scan.h"

enum { MESSAGE_BYTES = 64 }; /* of work for an allocation, besides its bytes */

const struct attn_bulk *attn_scan_bulk(const struct attn_scan *scan,
                                       const ProtobufCMessage *tensor)
{
    for (unsigned k = 0; k < tensor->n_unknown_fields; k++) {
        const ProtobufCMessageUnknownField *field = &tensor->unknown_fields[k];
        if (field->tag != ATTN_SCAN_BULK_FIELD || field->len != 4)
            continue;
        uint32_t index = (uint32_t)field->data[0] | (uint32_t)field->data[1] << 8 |
                         (uint32_t)field->data[2] << 16 | (uint32_t)field->data[3] << 24;
        return index < scan->n_bulk ? &scan->bulk[index] : NULL;
    }
    return NULL;
}

/* ---- unpacking ---- */

struct unpacking {
    struct attn_pool *pool;
    attn_status status; /* why there was no memory: the unpacking ends then */
};

static void *unpack_alloc(void *data, size_t bytes)
{
    struct unpacking *unpacking = data;
    unpacking->status =
        bytes > INT64_MAX / 2
            ? attn_fail(ATTNRUN_E_PARSE,
                        "a message has %zu bytes, expected at most 2^62 - 1", bytes)
            : attn_poll_work((int64_t)bytes + MESSAGE_BYTES);
    if (unpacking->status != ATTNRUN_OK)
        return NULL;
    void *block = attn_pool_alloc(unpacking->pool, (int64_t)bytes);
    if (block == NULL)
        unpacking->status = ATTNRUN_E_MEMORY;
    return block;
}

static void unpack_free(void *data, void *block)
{
    (void)data; /* all at once, with the pool */
    (void)block;
}

attn_status attn_scan_unpack(const struct attn_scan *scan, struct attn_pool *pool,
                             const ProtobufCMessageDescriptor *descriptor,
                             ProtobufCMessage **message)
{
    struct unpacking unpacking = { .pool = pool };
    ProtobufCAllocator allocator = { unpack_alloc, unpack_free, &unpacking };
    static const uint8_t nothing[1] = { 0 };
    const uint8_t *copy = scan->copy_bytes > 0 ? scan->copy : nothing;
    *message =
        protobuf_c_message_unpack(descriptor, &allocator, (size_t)scan->copy_bytes, copy);
    TRY(unpacking.status);
    return *message != NULL
               ? ATTNRUN_OK
               : attn_fail(ATTNRUN_E_PARSE, "not a valid %s", descriptor->short_name);
}

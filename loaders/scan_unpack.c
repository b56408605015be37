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

static void *unpack_alloc(void *pool, size_t bytes)
{
    if (bytes > INT64_MAX / 2 ||
        attn_poll_work((int64_t)bytes + MESSAGE_BYTES) != ATTNRUN_OK)
        return NULL; /* ends the unpacking */
    return attn_pool_alloc(pool, (int64_t)bytes);
}

static void unpack_free(void *pool, void *block)
{
    (void)pool; /* all at once, with the pool */
    (void)block;
}

ProtobufCMessage *attn_scan_unpack(const struct attn_scan *scan, struct attn_pool *pool,
                                   const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCAllocator allocator = { unpack_alloc, unpack_free, pool };
    static const uint8_t nothing[1] = { 0 };
    const uint8_t *copy = scan->copy_bytes > 0 ? scan->copy : nothing;
    attn_fail(ATTNRUN_E_PARSE, "not a valid %s", descriptor->short_name);
    return protobuf_c_message_unpack(descriptor, &allocator, (size_t)scan->copy_bytes,
                                     copy);
}

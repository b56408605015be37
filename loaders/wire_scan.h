/* wire_scan.h - the guard in front of protobuf-c: walks the bytes of a message once,
 * without recursion, bounds everything, and writes a compact copy that is safe to unpack.
 */
#ifndef ATTN_WIRE_SCAN_H
#define ATTN_WIRE_SCAN_H

#include <protobuf-c/protobuf-c.h>

#include "../runtime/alloc.h"
#include "../runtime/file_limits.h"

enum {
    ATTN_SCAN_DEPTH = 112,    /* messages within messages: 3 a subgraph, and types */
    ATTN_SCAN_SUBGRAPHS = 32, /* graphs within graphs, the outermost not counted */
    ATTN_SCAN_NAME = 4096,    /* bytes of a name */
    ATTN_SCAN_BULK = 1024     /* tensor data of more bytes than this is cut out */
};
#define ATTN_SCAN_BULK_FIELD 19000u /* of the copy: the number of a tensor's bulk data */

/* Tensor data that stayed where it was: field `id` of the tensor, bytes [offset, +bytes).
 */
struct attn_bulk {
    uint32_t id;
    int64_t offset, bytes;
};

struct attn_scan {
    struct attn_memory *memory;
    const uint8_t *data; /* what was scanned */
    uint8_t *copy;       /* the message without bulk data and without what nobody reads */
    int64_t copy_bytes, copy_capacity;
    struct attn_bulk *bulk; /* in the order of the tensors in the file */
    int64_t n_bulk, bulk_capacity;
    int64_t n_nodes, n_tensors;
};

/* Scans `bytes` bytes as a message of type `descriptor`. E_PARSE, E_MODEL or E_LIMIT with
 * a sentence; attn_scan_free() is right after success and failure. */
attn_status attn_wire_scan(struct attn_memory *memory, const attnrun_limits *limits,
                           const ProtobufCMessageDescriptor *descriptor,
                           const uint8_t *data, int64_t bytes, struct attn_scan *scan);
void attn_scan_free(struct attn_scan *scan);

/* The bulk data of an unpacked tensor, or NULL where it has none. */
const struct attn_bulk *attn_scan_bulk(const struct attn_scan *scan,
                                       const ProtobufCMessage *tensor);

/* Unpacks the compact copy into memory of `pool`. */
attn_status attn_scan_unpack(const struct attn_scan *scan, struct attn_pool *pool,
                             const ProtobufCMessageDescriptor *descriptor,
                             ProtobufCMessage **message);

/* A varint at p: its length in bytes, or 0 where there is none before `end`. */
int attn_varint(const uint8_t *p, const uint8_t *end, uint64_t *value);

#endif

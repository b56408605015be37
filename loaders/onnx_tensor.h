/* onnx_tensor.h - tensors of a file as attnrun tensors: views of the mapped file where the
 * bytes are right where they are, else copies in memory of the model. */
#ifndef ATTN_ONNX_TENSOR_H
#define ATTN_ONNX_TENSOR_H

#include "../runtime/align.h"
#include "../runtime/graph.h"
#include "../runtime/io.h"
#include "name_map.h"
#include "onnx.pb-c.h"
#include "wire_scan.h"

#define PB(message) Attnrun__Onnx__##message

/* An absent string of a message is NULL. */
static inline const char *pb_text(const char *text) { return text != NULL ? text : ""; }

/* The files that tensors of a model name, opened once each and kept by the model. */
struct attn_external {
    struct attn_model *model;
    const char *dir; /* NULL: external data is refused */
    struct attn_name_map by_location;
    struct attn_file *files;
    int64_t n, capacity, bytes;
};

struct attn_tensor_reader {
    const attnrun_limits *limits;
    struct attn_pool *pool; /* for data that cannot stay where it is */
    const struct attn_scan *scan;
    struct attn_external *external; /* NULL: external data is refused */
    /* Data in place that is not aligned for its elements is copied, but for tensors of
     * more bytes than this. */
    int64_t unaligned_above;
    bool copy; /* no views of the file at all */
    /* What was made of large messages: a body is read once for each call. NULL: nothing is read
     * twice. */
    struct attn_name_map *made;
};

/* E_MODEL, E_LIMIT, E_IO, E_PATH, E_UNSUPPORTED. Data is never NULL, dense, and of
 * exactly the bytes that dims say; bytes of a bool are 0 or 1. */
attn_status attn_read_tensor(struct attn_tensor_reader *reader,
                             const PB(TensorProto) * pb, attnrun_tensor *tensor);
/* The same as a dense tensor. */
attn_status attn_read_sparse(struct attn_tensor_reader *reader,
                             const PB(SparseTensorProto) * pb, attnrun_tensor *tensor);
/* What was made of this message before; and notes that, if it is large. */
bool attn_tensor_made(const struct attn_tensor_reader *reader, const void *message,
                      attnrun_tensor *tensor);
attn_status attn_tensor_keep(struct attn_tensor_reader *reader, const void *message,
                             const attnrun_tensor *tensor);
/* Checks dtype and dims and makes a view without data. */
attn_status attn_read_shape(const attnrun_limits *limits, const char *name, int32_t dtype,
                            size_t rank, const int64_t *dims, attnrun_tensor *tensor);
/* The bytes of an external tensor of `wanted` bytes. */
attn_status attn_external_bytes(struct attn_external *external,
                                const PB(TensorProto) * pb, int64_t wanted,
                                const uint8_t **bytes);

#endif

/* wire_write.h - the wire format of protobuf, written: varints, fields and messages in a
 * buffer that grows. In: field numbers and values. Out: bytes.
 *
 * Whatever writes ONNX here uses it: the library, the operators for ONNX Runtime, the tests.
 * It includes nothing of the library. Without memory a buffer stays as it is and says so. */
#ifndef ATTN_WIRE_WRITE_H
#define ATTN_WIRE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of ONNX's fields that more than one writer needs. */
enum {
    WIRE_MODEL_IR_VERSION = 1,
    WIRE_MODEL_GRAPH = 7,
    WIRE_MODEL_OPSET_IMPORT = 8,
    WIRE_MODEL_FUNCTIONS = 25,
    WIRE_OPSET_DOMAIN = 1,
    WIRE_OPSET_VERSION = 2,
    WIRE_GRAPH_NODE = 1,
    WIRE_GRAPH_NAME = 2,
    WIRE_GRAPH_INITIALIZER = 5,
    WIRE_GRAPH_DOC = 10,
    WIRE_GRAPH_INPUT = 11,
    WIRE_GRAPH_OUTPUT = 12,
    WIRE_NODE_INPUT = 1,
    WIRE_NODE_OUTPUT = 2,
    WIRE_NODE_NAME = 3,
    WIRE_NODE_OP_TYPE = 4,
    WIRE_NODE_ATTRIBUTE = 5,
    WIRE_NODE_DOMAIN = 7,
    WIRE_NODE_OVERLOAD = 8,
    WIRE_TENSOR_DIMS = 1,
    WIRE_TENSOR_DATA_TYPE = 2,
    WIRE_TENSOR_NAME = 8,
    WIRE_TENSOR_RAW_DATA = 9,
    WIRE_VALUE_NAME = 1,
    WIRE_VALUE_TYPE = 2,
    WIRE_ATTR_NAME = 1,
    WIRE_ATTR_F = 2,
    WIRE_ATTR_I = 3,
    WIRE_ATTR_S = 4,
    WIRE_ATTR_T = 5,
    WIRE_ATTR_G = 6,
    WIRE_ATTR_FLOATS = 7,
    WIRE_ATTR_INTS = 8,
    WIRE_ATTR_STRINGS = 9,
    WIRE_ATTR_TENSORS = 10,
    WIRE_ATTR_GRAPHS = 11,
    WIRE_ATTR_TYPE_PROTO = 14,
    WIRE_ATTR_TYPE = 20
};

struct wire_buffer {
    uint8_t *data;
    size_t n, room;
    bool failed; /* no memory: bytes are missing */
    /* As realloc(), which also knows the former size and frees where `to` is 0; NULL:
     * realloc() of the C library. */
    void *(*resize)(void *user, void *data, size_t from, size_t to);
    void *user;
};

/* An empty buffer with the memory of another one. */
static inline struct wire_buffer wire_beside(const struct wire_buffer *b)
{
    return (struct wire_buffer){ .resize = b->resize, .user = b->user };
}

static inline void wire_free(struct wire_buffer *b)
{
    if (b->resize == NULL)
        free(b->data);
    else if (b->data != NULL)
        b->resize(b->user, b->data, b->room, 0);
    *b = wire_beside(b);
}

static inline void wire_put(struct wire_buffer *b, const void *data, size_t n)
{
    if (b->n + n > b->room && !b->failed) {
        const size_t room = 2 * b->n + n + 64;
        uint8_t *grown = b->resize == NULL ? realloc(b->data, room)
                                           : b->resize(b->user, b->data, b->room, room);
        b->failed = grown == NULL;
        if (grown != NULL) {
            b->data = grown;
            b->room = room;
        }
    }
    if (b->failed || n == 0)
        return;
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void wire_varint(struct wire_buffer *b, uint64_t x)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; x >= 128; x >>= 7)
        bytes[n++] = (uint8_t)(x | 128);
    bytes[n++] = (uint8_t)x;
    wire_put(b, bytes, n);
}

static inline void wire_int(struct wire_buffer *b, int field, int64_t x)
{
    wire_varint(b, (uint64_t)field << 3);
    wire_varint(b, (uint64_t)x);
}

static inline void wire_float(struct wire_buffer *b, int field, float x)
{
    wire_varint(b, (uint64_t)field << 3 | 5);
    wire_put(b, &x, sizeof x);
}

/* The tag and the length of n bytes that follow. */
static inline void wire_head(struct wire_buffer *b, int field, size_t n)
{
    wire_varint(b, (uint64_t)field << 3 | 2);
    wire_varint(b, n);
}

static inline void wire_bytes(struct wire_buffer *b, int field, const void *data,
                              size_t n)
{
    wire_head(b, field, n);
    wire_put(b, data, n);
}

static inline void wire_text(struct wire_buffer *b, int field, const char *text)
{
    wire_bytes(b, field, text, strlen(text));
}

/* Moves a message that was made aside into `to`. */
static inline void wire_message(struct wire_buffer *to, int field,
                                struct wire_buffer *message)
{
    wire_bytes(to, field, message->data, message->n);
    to->failed = to->failed || message->failed;
    wire_free(message);
}

#endif

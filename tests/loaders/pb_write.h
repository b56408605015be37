/* pb_write.h - writes protobuf messages by hand, right or wrong, for the tests of
 * loaders/. */
#ifndef ATTN_TESTS_PB_WRITE_H
#define ATTN_TESTS_PB_WRITE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct pb {
    uint8_t *data;
    size_t bytes, capacity;
};

static inline void pb_put(struct pb *m, const void *data, size_t bytes)
{
    if (m->bytes + bytes > m->capacity) {
        m->capacity = (m->bytes + bytes) * 2 + 64;
        m->data = realloc(m->data, m->capacity);
        if (m->data == NULL)
            abort();
    }
    if (bytes > 0)
        memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

static inline void pb_varint(struct pb *m, uint64_t value)
{
    uint8_t byte;
    while (value >= 0x80) {
        byte = (uint8_t)(value | 0x80);
        pb_put(m, &byte, 1);
        value >>= 7;
    }
    byte = (uint8_t)value;
    pb_put(m, &byte, 1);
}

static inline void pb_int(struct pb *m, uint32_t field, int64_t value)
{
    pb_varint(m, (uint64_t)field << 3);
    pb_varint(m, (uint64_t)value);
}

static inline void pb_bytes(struct pb *m, uint32_t field, const void *data, size_t bytes)
{
    pb_varint(m, (uint64_t)field << 3 | 2);
    pb_varint(m, bytes);
    pb_put(m, data, bytes);
}

static inline void pb_string(struct pb *m, uint32_t field, const char *text)
{
    pb_bytes(m, field, text, strlen(text));
}

/* Appends `inner` as a field and frees it. */
static inline void pb_message(struct pb *m, uint32_t field, struct pb *inner)
{
    pb_bytes(m, field, inner->data, inner->bytes);
    free(inner->data);
    *inner = (struct pb){ 0 };
}

static inline void pb_free(struct pb *m)
{
    free(m->data);
    *m = (struct pb){ 0 };
}

/* ---- pieces of ONNX ---- */

/* "a,b" as a repeated string field; "" gives nothing. */
static inline void pb_names(struct pb *m, uint32_t field, const char *names)
{
    while (names[0] != 0) {
        size_t n = strcspn(names, ",");
        pb_bytes(m, field, names, n);
        names += n + (names[n] == ',');
    }
}

static inline struct pb pb_node(const char *domain, const char *op_type, const char *in,
                                const char *out)
{
    struct pb node = { 0 };
    pb_names(&node, 1, in);
    pb_names(&node, 2, out);
    pb_string(&node, 4, op_type);
    if (domain[0] != 0)
        pb_string(&node, 7, domain);
    return node;
}

static inline void pb_add_node(struct pb *m, uint32_t field, const char *domain,
                               const char *op_type, const char *in, const char *out)
{
    struct pb node = pb_node(domain, op_type, in, out);
    pb_message(m, field, &node);
}

/* A StringStringEntryProto, as of external data and metadata. */
static inline void pb_entry(struct pb *m, uint32_t field, const char *key,
                            const char *value)
{
    struct pb entry = { 0 };
    pb_string(&entry, 1, key);
    pb_string(&entry, 2, value);
    pb_message(m, field, &entry);
}

/* A ValueInfoProto of a type. */
static inline void pb_value_of(struct pb *m, uint32_t field, const char *name,
                               struct pb type)
{
    struct pb info = { 0 };
    pb_string(&info, 1, name);
    pb_message(&info, 2, &type);
    pb_message(m, field, &info);
}
/* f32[n], or of unknown rank where n is negative. */
static inline void pb_value(struct pb *m, uint32_t field, const char *name, int64_t n)
{
    struct pb type = { 0 }, tensor = { 0 }, shape = { 0 }, dim = { 0 };
    pb_int(&tensor, 1, 1);
    if (n >= 0) {
        pb_int(&dim, 1, n);
        pb_message(&shape, 1, &dim);
        pb_message(&tensor, 2, &shape);
    }
    pb_message(&type, 1, &tensor);
    pb_value_of(m, field, name, type);
}

static inline struct pb pb_f32(const char *name, const float *values, int64_t n)
{
    struct pb tensor = { 0 };
    pb_int(&tensor, 1, n);
    pb_int(&tensor, 2, 1);
    pb_string(&tensor, 8, name);
    pb_bytes(&tensor, 9, values, (size_t)n * sizeof *values);
    return tensor;
}

static inline void pb_opset(struct pb *m, uint32_t field, const char *domain,
                            int64_t version)
{
    struct pb opset = { 0 };
    if (domain[0] != 0)
        pb_string(&opset, 1, domain);
    pb_int(&opset, 2, version);
    pb_message(m, field, &opset);
}

/* A model around a graph (which is freed). Functions may be added to the result. */
static inline struct pb pb_model(struct pb *graph)
{
    struct pb model = { 0 };
    pb_int(&model, 1, 8);
    pb_opset(&model, 8, "", 18);
    pb_opset(&model, 8, "f", 1);
    pb_message(&model, 7, graph);
    return model;
}

#endif

/* wire.h - pieces of ONNX files that the generator of the fuzz needs beside pb_write.h.
 */
#ifndef ATTN_FUZZ_WIRE_H
#define ATTN_FUZZ_WIRE_H

#include "../loaders/pb_write.h"

#include "attnrun.h"

enum { /* AttributeProto.type */
       WIRE_FLOAT = 1,
       WIRE_INT,
       WIRE_STRING,
       WIRE_TENSOR,
       WIRE_GRAPH,
       WIRE_FLOATS,
       WIRE_INTS,
       WIRE_STRINGS,
       WIRE_TYPE = 13
};

static inline void wire_float(struct pb *m, uint32_t field, float x)
{
    pb_varint(m, (uint64_t)field << 3 | 5);
    pb_put(m, &x, sizeof x);
}

/* An attribute without its value. */
static inline struct pb wire_attr(const char *name, int type)
{
    struct pb attr = { 0 };
    pb_string(&attr, 1, name);
    pb_int(&attr, 20, type);
    return attr;
}

/* A TypeProto; rank below 0: no shape; dims below 0: a symbol of that number. */
static inline struct pb wire_type(int32_t kind, int32_t dtype, int rank,
                                  const int64_t *dims)
{
    struct pb tensor = { 0 }, shape = { 0 }, type = { 0 };
    pb_int(&tensor, 1, dtype);
    for (int i = 0; i < rank; i++) {
        struct pb dim = { 0 };
        char name[2] = { (char)('A' + (-dims[i] & 7)), 0 };
        if (dims[i] < 0)
            pb_string(&dim, 2, name);
        else
            pb_int(&dim, 1, dims[i]);
        pb_message(&shape, 1, &dim);
    }
    if (rank >= 0)
        pb_message(&tensor, 2, &shape);
    pb_free(&shape);
    pb_message(&type, 1, &tensor);
    for (int level = 0; level < 2; level++) {
        bool sequence =
            level == 0 && (kind == ATTNRUN_SEQUENCE || kind == ATTNRUN_OPTIONAL_SEQUENCE);
        bool optional =
            level == 1 && (kind == ATTNRUN_OPTIONAL || kind == ATTNRUN_OPTIONAL_SEQUENCE);
        struct pb element = { 0 }, outer = { 0 };
        if (!sequence && !optional)
            continue;
        pb_message(&element, 1, &type);
        pb_message(&outer, sequence ? 4 : 9, &element);
        type = outer;
    }
    return type;
}

static inline void wire_info(struct pb *graph, uint32_t field, const char *name,
                             struct pb *type)
{
    struct pb info = { 0 };
    pb_string(&info, 1, name);
    if (type != NULL)
        pb_message(&info, 2, type);
    pb_message(graph, field, &info);
}

static inline struct pb wire_tensor(const char *name, const attnrun_tensor *t)
{
    struct pb tensor = { 0 };
    for (int i = 0; i < t->rank; i++)
        pb_int(&tensor, 1, t->dims[i]);
    pb_int(&tensor, 2, t->dtype);
    pb_string(&tensor, 8, name);
    if (t->dtype != ATTNRUN_STRING) {
        pb_bytes(&tensor, 9, t->data, (size_t)attnrun_tensor_bytes(t));
        return tensor;
    }
    for (int64_t i = 0; i < attnrun_tensor_count(t); i++) {
        const attnrun_string *s = (const attnrun_string *)t->data + i;
        pb_bytes(&tensor, 6, s->data, (size_t)s->n);
    }
    return tensor;
}

#endif

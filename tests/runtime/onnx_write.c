/* onnx_write.c - the wire format of the few messages that small models need. */
#include "onnx_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnrun.h"

enum { MAX_DEPTH = 40 };

struct buffer {
    uint8_t *data;
    size_t n, room;
};

struct onnx_writer {
    struct buffer graph[MAX_DEPTH], node[MAX_DEPTH];
    char attribute[MAX_DEPTH][64]; /* that the subgraph of this depth is for */
    char domains[4][64];
    int n_domains, depth;
    int64_t opset;
};

/* A test that calls this wrongly, or has no memory, has nothing more to say. */
static void need(int good)
{
    if (!good)
        abort();
}

/* ---- the wire ---- */

static void put(struct buffer *b, const void *data, size_t n)
{
    if (b->n + n > b->room) {
        b->room = (b->n + n) * 2 + 64;
        b->data = realloc(b->data, b->room);
        need(b->data != NULL);
    }
    if (n > 0)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_varint(struct buffer *b, uint64_t x)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; x >= 128; x >>= 7)
        bytes[n++] = (uint8_t)(x | 128);
    bytes[n++] = (uint8_t)x;
    put(b, bytes, n);
}

static void put_int(struct buffer *b, int field, int64_t x)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)x);
}

static void put_float(struct buffer *b, int field, float x)
{
    put_varint(b, (uint64_t)field << 3 | 5);
    put(b, &x, sizeof x);
}

static void put_bytes(struct buffer *b, int field, const void *data, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    put(b, data, n);
}

static void put_text(struct buffer *b, int field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

/* A message made aside: moved into `to` and freed. */
static void put_message(struct buffer *to, int field, struct buffer *message)
{
    put_bytes(to, field, message->data, message->n);
    free(message->data);
    *message = (struct buffer){ 0 };
}

/* The next word before a comma; false at the end. "" is one empty word less than none. */
static int next_word(const char **list, char *word, size_t room)
{
    if (*list == NULL)
        return 0;
    size_t n = strcspn(*list, ",");
    need(n < room);
    memcpy(word, *list, n);
    word[n] = 0;
    *list = (*list)[n] == ',' ? *list + n + 1 : NULL;
    return 1;
}

/* ---- the graph under way ---- */

static struct buffer *graph_of(struct onnx_writer *w) { return &w->graph[w->depth]; }

static void flush_node(struct onnx_writer *w)
{
    if (w->node[w->depth].n > 0)
        put_message(graph_of(w), 1, &w->node[w->depth]);
}

struct onnx_writer *onnx_begin(int64_t opset)
{
    struct onnx_writer *w = calloc(1, sizeof *w);
    need(w != NULL);
    w->opset = opset;
    put_text(graph_of(w), 2, "test");
    return w;
}

/* `type` becomes that of a sequence or an optional of what it was. */
static void wrap_type(struct buffer *type, int field)
{
    struct buffer inner = *type, holder = { 0 };
    *type = (struct buffer){ 0 };
    put_message(&holder, 1, &inner);
    put_message(type, field, &holder);
}

static void put_value(struct onnx_writer *w, int field, const char *name, int32_t kind,
                      int32_t dtype, const char *dims)
{
    enum { SEQUENCE_TYPE = 4, OPTIONAL_TYPE = 9 };
    struct buffer shape = { 0 }, tensor = { 0 }, type = { 0 }, value = { 0 };
    char word[64];
    const char *rest = dims != NULL && dims[0] == 0 ? NULL : dims;
    while (next_word(&rest, word, sizeof word)) {
        struct buffer dim = { 0 };
        char *end;
        long long x = strtoll(word, &end, 10);
        if (word[0] != 0 && *end == 0)
            put_int(&dim, 1, x);
        else
            put_text(&dim, 2, word);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, dtype);
    if (dims != NULL)
        put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    if (kind == ATTNRUN_SEQUENCE || kind == ATTNRUN_OPTIONAL_SEQUENCE)
        wrap_type(&type, SEQUENCE_TYPE);
    if (kind == ATTNRUN_OPTIONAL || kind == ATTNRUN_OPTIONAL_SEQUENCE)
        wrap_type(&type, OPTIONAL_TYPE);
    put_text(&value, 1, name);
    if (dtype != 0 || kind != ATTNRUN_TENSOR)
        put_message(&value, 2, &type);
    put_message(graph_of(w), field, &value);
    free(type.data);
}

void onnx_input(struct onnx_writer *w, const char *name, int32_t dtype, const char *dims)
{
    put_value(w, 11, name, ATTNRUN_TENSOR, dtype, dims);
}

void onnx_input_of(struct onnx_writer *w, const char *name, int32_t kind, int32_t dtype)
{
    put_value(w, 11, name, kind, dtype, NULL);
}

void onnx_output(struct onnx_writer *w, const char *name, int32_t dtype, const char *dims)
{
    put_value(w, 12, name, ATTNRUN_TENSOR, dtype, dims);
}

void onnx_constant(struct onnx_writer *w, const char *name, int32_t dtype,
                   const char *dims, const void *data)
{
    struct buffer tensor = { 0 };
    char word[32];
    const char *rest = dims[0] == 0 ? NULL : dims;
    size_t count = 1;
    while (next_word(&rest, word, sizeof word)) {
        put_int(&tensor, 1, atoll(word));
        count *= (size_t)atoll(word);
    }
    put_int(&tensor, 2, dtype);
    put_text(&tensor, 8, name);
    put_bytes(&tensor, 9, data, count * (size_t)attnrun_dtype_bits(dtype) / 8);
    put_message(graph_of(w), 5, &tensor);
}

void onnx_float(struct onnx_writer *w, const char *name, float x)
{
    onnx_constant(w, name, ATTNRUN_F32, "", &x);
}

void onnx_int(struct onnx_writer *w, const char *name, int64_t x)
{
    onnx_constant(w, name, ATTNRUN_I64, "", &x);
}

void onnx_ints(struct onnx_writer *w, const char *name, int n, const int64_t *x)
{
    char dims[16];
    snprintf(dims, sizeof dims, "%d", n);
    onnx_constant(w, name, ATTNRUN_I64, dims, x);
}

/* ---- nodes ---- */

void onnx_node(struct onnx_writer *w, const char *op_type, const char *inputs,
               const char *outputs)
{
    char word[64];
    flush_node(w);
    struct buffer *node = &w->node[w->depth];
    const char *rest = inputs[0] == 0 ? NULL : inputs;
    while (next_word(&rest, word, sizeof word))
        put_text(node, 1, word);
    rest = outputs;
    while (next_word(&rest, word, sizeof word))
        put_text(node, 2, word);
    const char *colons = strstr(op_type, "::");
    if (colons != NULL)
        put_bytes(node, 7, op_type, (size_t)(colons - op_type));
    put_text(node, 4, colons != NULL ? colons + 2 : op_type);
}

void onnx_node_name(struct onnx_writer *w, const char *name)
{
    put_text(&w->node[w->depth], 3, name);
}

static void put_attr(struct onnx_writer *w, struct buffer *attr, int32_t kind)
{
    put_int(attr, 20, kind);
    put_message(&w->node[w->depth], 5, attr);
}

void onnx_attr_int(struct onnx_writer *w, const char *name, int64_t x)
{
    struct buffer attr = { 0 };
    put_text(&attr, 1, name);
    put_int(&attr, 3, x);
    put_attr(w, &attr, 2);
}

void onnx_attr_float(struct onnx_writer *w, const char *name, float x)
{
    struct buffer attr = { 0 };
    put_text(&attr, 1, name);
    put_float(&attr, 2, x);
    put_attr(w, &attr, 1);
}

void onnx_attr_string(struct onnx_writer *w, const char *name, const char *x)
{
    struct buffer attr = { 0 };
    put_text(&attr, 1, name);
    put_text(&attr, 4, x);
    put_attr(w, &attr, 3);
}

void onnx_attr_ints(struct onnx_writer *w, const char *name, int n, const int64_t *x)
{
    struct buffer attr = { 0 };
    put_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        put_int(&attr, 8, x[i]);
    put_attr(w, &attr, 7);
}

void onnx_attr_strings(struct onnx_writer *w, const char *name, int n,
                       const char *const *x)
{
    struct buffer attr = { 0 };
    put_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        put_text(&attr, 9, x[i]);
    put_attr(w, &attr, 8);
}

static int is_list(const char *name, const char *value)
{
    static const char *const names[] = { "axes",    "perm",      "pads",
                                         "strides", "dilations", "kernel_shape" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return strchr(value, ',') != NULL;
}

static void put_attr_text(struct onnx_writer *w, const char *name, const char *value)
{
    int64_t numbers[16];
    int n = 0;
    if (is_list(name, value)) {
        for (const char *p = value; p != NULL; p = strchr(p, ','), p = p ? p + 1 : NULL) {
            need(n < 16);
            numbers[n++] = atoll(p);
        }
        onnx_attr_ints(w, name, n, numbers);
    } else if (value[0] >= 'A') {
        onnx_attr_string(w, name, value);
    } else if (strchr(value, '.') != NULL) {
        onnx_attr_float(w, name, (float)atof(value));
    } else {
        onnx_attr_int(w, name, atoll(value));
    }
}

void onnx_attrs(struct onnx_writer *w, const char *text)
{
    char copy[256], *rest = copy, *word;
    need(strlen(text) < sizeof copy);
    snprintf(copy, sizeof copy, "%s", text);
    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        char *value = strchr(word, '=');
        need(value != NULL);
        *value++ = 0;
        put_attr_text(w, word, value);
    }
}

void onnx_graph(struct onnx_writer *w, const char *attribute)
{
    need(w->depth + 1 < MAX_DEPTH && w->node[w->depth].n > 0);
    w->depth++;
    snprintf(w->attribute[w->depth], sizeof w->attribute[0], "%s", attribute);
    put_text(graph_of(w), 2, attribute);
}

void onnx_graph_end(struct onnx_writer *w)
{
    struct buffer attr = { 0 };
    flush_node(w);
    put_text(&attr, 1, w->attribute[w->depth]);
    put_message(&attr, 6, graph_of(w));
    w->depth--;
    put_attr(w, &attr, 5);
}

void onnx_domain(struct onnx_writer *w, const char *domain)
{
    need(w->n_domains < 4);
    snprintf(w->domains[w->n_domains++], sizeof w->domains[0], "%s", domain);
}

uint8_t *onnx_end(struct onnx_writer *w, size_t *bytes)
{
    struct buffer model = { 0 }, opset = { 0 };
    need(w->depth == 0);
    flush_node(w);
    put_int(&model, 1, 8);
    put_int(&opset, 2, w->opset);
    put_message(&model, 8, &opset);
    for (int i = 0; i < w->n_domains; i++) {
        put_text(&opset, 1, w->domains[i]);
        put_int(&opset, 2, 1);
        put_message(&model, 8, &opset);
    }
    put_message(&model, 7, graph_of(w));
    free(w);
    *bytes = model.n;
    return model.data;
}

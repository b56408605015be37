/* onnx_write.c - the wire format of the few messages that small models need. */
#include "onnx_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnrun.h"
#include "../../loaders/wire_write.h"

enum { MAX_DEPTH = 40 };

struct onnx_writer {
    struct wire_buffer graph[MAX_DEPTH], node[MAX_DEPTH];
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

static struct wire_buffer *graph_of(struct onnx_writer *w) { return &w->graph[w->depth]; }

static void flush_node(struct onnx_writer *w)
{
    if (w->node[w->depth].n > 0)
        wire_message(graph_of(w), 1, &w->node[w->depth]);
}

struct onnx_writer *onnx_begin(int64_t opset)
{
    struct onnx_writer *w = calloc(1, sizeof *w);
    need(w != NULL);
    w->opset = opset;
    wire_text(graph_of(w), 2, "test");
    return w;
}

/* `type` becomes that of a sequence or an optional of what it was. */
static void wrap_type(struct wire_buffer *type, int field)
{
    struct wire_buffer inner = *type, holder = { 0 };
    *type = (struct wire_buffer){ 0 };
    wire_message(&holder, 1, &inner);
    wire_message(type, field, &holder);
}

/* `type` becomes that of a map from i64 to what it was. */
static void wrap_map(struct wire_buffer *type)
{
    struct wire_buffer inner = *type, map = { 0 };
    *type = (struct wire_buffer){ 0 };
    wire_int(&map, 1, ATTNRUN_I64);
    wire_message(&map, 2, &inner);
    wire_message(type, 5, &map);
}

static void put_value(struct onnx_writer *w, int field, const char *name, int32_t kind,
                      int32_t dtype, const char *dims)
{
    enum { SEQUENCE_TYPE = 4, OPTIONAL_TYPE = 9 };
    struct wire_buffer shape = { 0 }, tensor = { 0 }, type = { 0 }, value = { 0 };
    char word[128];
    const char *rest = dims != NULL && dims[0] == 0 ? NULL : dims;
    while (next_word(&rest, word, sizeof word)) {
        struct wire_buffer dim = { 0 };
        char *end;
        long long x = strtoll(word, &end, 10);
        if (word[0] != 0 && *end == 0)
            wire_int(&dim, 1, x);
        else
            wire_text(&dim, 2, word);
        wire_message(&shape, 1, &dim);
    }
    wire_int(&tensor, 1, dtype);
    if (dims != NULL)
        wire_message(&tensor, 2, &shape);
    wire_message(&type, 1, &tensor);
    if (kind == ATTNRUN_SEQUENCE || kind == ATTNRUN_OPTIONAL_SEQUENCE)
        wrap_type(&type, SEQUENCE_TYPE);
    if (kind == ATTNRUN_OPTIONAL || kind == ATTNRUN_OPTIONAL_SEQUENCE)
        wrap_type(&type, OPTIONAL_TYPE);
    if (kind == ATTNRUN_MAP)
        wrap_map(&type);
    wire_text(&value, 1, name);
    if (dtype != 0 || kind != ATTNRUN_TENSOR)
        wire_message(&value, 2, &type);
    wire_message(graph_of(w), field, &value);
    wire_free(&type);
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
    struct wire_buffer tensor = { 0 };
    char word[32];
    const char *rest = dims[0] == 0 ? NULL : dims;
    size_t count = 1;
    while (next_word(&rest, word, sizeof word)) {
        wire_int(&tensor, 1, atoll(word));
        count *= (size_t)atoll(word);
    }
    wire_int(&tensor, 2, dtype);
    wire_text(&tensor, 8, name);
    wire_bytes(&tensor, 9, data, count * (size_t)attnrun_dtype_bits(dtype) / 8);
    wire_message(graph_of(w), 5, &tensor);
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
    struct wire_buffer *node = &w->node[w->depth];
    const char *rest = inputs[0] == 0 ? NULL : inputs;
    while (next_word(&rest, word, sizeof word))
        wire_text(node, 1, word);
    rest = outputs;
    while (next_word(&rest, word, sizeof word))
        wire_text(node, 2, word);
    const char *colons = strstr(op_type, "::");
    if (colons != NULL)
        wire_bytes(node, 7, op_type, (size_t)(colons - op_type));
    wire_text(node, 4, colons != NULL ? colons + 2 : op_type);
}

void onnx_node_name(struct onnx_writer *w, const char *name)
{
    wire_text(&w->node[w->depth], 3, name);
}

static void put_attr(struct onnx_writer *w, struct wire_buffer *attr, int32_t kind)
{
    wire_int(attr, 20, kind);
    wire_message(&w->node[w->depth], 5, attr);
}

void onnx_attr_int(struct onnx_writer *w, const char *name, int64_t x)
{
    struct wire_buffer attr = { 0 };
    wire_text(&attr, 1, name);
    wire_int(&attr, 3, x);
    put_attr(w, &attr, 2);
}

void onnx_attr_float(struct onnx_writer *w, const char *name, float x)
{
    struct wire_buffer attr = { 0 };
    wire_text(&attr, 1, name);
    wire_float(&attr, 2, x);
    put_attr(w, &attr, 1);
}

void onnx_attr_string(struct onnx_writer *w, const char *name, const char *x)
{
    struct wire_buffer attr = { 0 };
    wire_text(&attr, 1, name);
    wire_text(&attr, 4, x);
    put_attr(w, &attr, 3);
}

void onnx_attr_ints(struct onnx_writer *w, const char *name, int n, const int64_t *x)
{
    struct wire_buffer attr = { 0 };
    wire_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        wire_int(&attr, 8, x[i]);
    put_attr(w, &attr, 7);
}

void onnx_attr_strings(struct onnx_writer *w, const char *name, int n,
                       const char *const *x)
{
    struct wire_buffer attr = { 0 };
    wire_text(&attr, 1, name);
    for (int i = 0; i < n; i++)
        wire_text(&attr, 9, x[i]);
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
    wire_text(graph_of(w), 2, attribute);
}

void onnx_graph_end(struct onnx_writer *w)
{
    struct wire_buffer attr = { 0 };
    flush_node(w);
    wire_text(&attr, 1, w->attribute[w->depth]);
    wire_message(&attr, 6, graph_of(w));
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
    struct wire_buffer model = { 0 }, opset = { 0 };
    need(w->depth == 0);
    flush_node(w);
    wire_int(&model, 1, 8);
    wire_int(&opset, 2, w->opset);
    wire_message(&model, 8, &opset);
    for (int i = 0; i < w->n_domains; i++) {
        wire_text(&opset, 1, w->domains[i]);
        wire_int(&opset, 2, 1);
        wire_message(&model, 8, &opset);
    }
    wire_message(&model, 7, graph_of(w));
    need(!model.failed);
    free(w);
    *bytes = model.n;
    return model.data;
}

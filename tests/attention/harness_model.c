/* harness_model.c - a case as the bytes of a model of one node: see harness.h. */
#include "harness_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/onnx_write.h"

enum { NODE_TEXT = 2048 };

/* The dims of an operand in a layout of rank 3 or 4. */
int case_dims(const struct check_operand *o, int layout, int64_t *dims)
{
    memcpy(dims, o->dims, sizeof o->dims);
    if (!o->heads || layout == 3)
        return o->rank;
    dims[1] = o->n_heads;
    dims[2] = o->dims[1];
    dims[3] = o->n_heads > 0 ? o->dims[2] / o->n_heads : 0;
    return 4;
}

/* The declared shape: NULL, "2,3", or "d2_0,d1_1,3" with symbols for the first two dims, of which
 * inputs of the same first size share one. */
static const char *shape_text(const struct check_operand *o, int layout, int number,
                              enum case_shapes style, char *text, size_t bytes)
{
    int64_t dims[ATTNRUN_MAX_RANK];
    const int rank = case_dims(o, layout, dims);
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < rank && n < bytes; i++) {
        const char *comma = i > 0 ? "," : "";
        if (style == CONSTANT || (style == SYMBOLIC && i >= 2))
            n += (size_t)snprintf(text + n, bytes - n, "%s%lld", comma,
                                  (long long)dims[i]);
        else
            n += (size_t)snprintf(text + n, bytes - n, "%sd%d_%d", comma,
                                  style == SYMBOLIC && i == 0 ? (int)dims[0] : number, i);
    }
    return style == UNKNOWN ? NULL : text;
}

static void add_attr(struct onnx_writer *w, const struct check_attr *a)
{
    switch (a->kind) {
    case 'i':
        onnx_attr_int(w, a->name, a->ints[0]);
        break;
    case 'f':
        onnx_attr_float(w, a->name, a->number);
        break;
    case 's':
        onnx_attr_string(w, a->name, a->words[0]);
        break;
    case 'I':
        onnx_attr_ints(w, a->name, a->n, a->ints);
        break;
    default:
        onnx_attr_strings(w, a->name, a->n, a->words);
    }
}

static void add_operand_names(const struct check_operand *o, int n, char *text)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < n && at < NODE_TEXT; i++)
        at += (size_t)snprintf(text + at, NODE_TEXT - at, "%s%s", i > 0 ? "," : "",
                               o[i].name);
}

/* Heads of (batch, heads, tokens, dim) are no attributes. */
static bool for_layout(const struct check_attr *a, int layout)
{
    return layout == 3 ||
           (strcmp(a->name, "q_num_heads") != 0 && strcmp(a->name, "kv_num_heads") != 0);
}

/* A constant of dims that were made larger than its data gets zeros behind them. */
static void add_constant(struct onnx_writer *w, const struct check_operand *o,
                         const char *shape)
{
    size_t bytes = (size_t)attnrun_dtype_bits(o->dtype);
    for (int i = 0; i < o->rank; i++)
        bytes *= (size_t)o->dims[i];
    bytes /= 8;
    if (bytes <= o->bytes) {
        onnx_constant(w, o->name, o->dtype, shape, o->data);
        return;
    }
    void *data = calloc(1, bytes);
    if (data != NULL)
        memcpy(data, o->data, o->bytes);
    onnx_constant(w, o->name, o->dtype, shape, data);
    free(data);
}

uint8_t *case_model(const struct check *c, int layout, enum case_shapes style,
                    size_t *bytes)
{
    char names[NODE_TEXT], outs[NODE_TEXT], text[256];
    struct onnx_writer *w = onnx_begin(27);
    const char *colons = strstr(c->op, "::");
    if (colons != NULL && colons != c->op) {
        snprintf(text, sizeof text, "%.*s", (int)(colons - c->op), c->op);
        onnx_domain(w, text);
    }
    for (int i = 0; i < c->n_in; i++) {
        const struct check_operand *o = &c->in[i];
        const bool told = style == UNKNOWN && (c->round / SHAPE_STYLES + i) % 3 == 0;
        const enum case_shapes as = o->constant ? CONSTANT : told ? RANK_ONLY : style;
        const char *shape = shape_text(o, layout, i, as, text, sizeof text);
        if (o->constant)
            add_constant(w, o, shape);
        else if (o->dtype != 0)
            onnx_input(w, o->name, o->dtype, shape);
    }
    for (int i = 0; i < c->n_out; i++)
        onnx_output(w, c->out[i].name, c->out[i].dtype, NULL);
    add_operand_names(c->in, c->n_in, names);
    add_operand_names(c->out, c->n_out, outs);
    onnx_node(w, colons == c->op ? c->op + 2 : c->op, names, outs);
    onnx_node_name(w, "node.under.test");
    for (int i = 0; i < c->n_attrs; i++)
        if (for_layout(&c->attrs[i], layout))
            add_attr(w, &c->attrs[i]);
    return onnx_end(w, bytes);
}

/* one_node.c - a node of another runtime as the only node of an ONNX model.
 *
 * In: what ONNX Runtime knows of the node while its kernel is created: attributes, names,
 * element types, constant inputs. Out: the bytes of a model, for attnrun_model_open().
 * An attribute is asked for in each type that ONNX has and is written as it was found, so that
 * one of a wrong type is refused by the library, not ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../loaders/wire_write.h"
#include "door.h"

struct constant {
    int32_t index; /* of the node's input */
    const ort_value *value;
};

struct node_writer {
    const struct door_op *op;
    const ort_api *api;
    const ort_info *info;
    struct wire_buffer node, graph; /* graph: all but the constants */
    struct constant constants[DOOR_MAX_IN];
    int32_t n_constants;
};

#define TRY(call)                                                                        \
    do {                                                                                 \
        ort_status *status_ = (call);                                                    \
        if (status_ != NULL)                                                             \
            return status_;                                                              \
    } while (0)

/* ---- attributes ---- */

enum { TYPE_FLOAT = 1, TYPE_INT, TYPE_STRING, TYPE_FLOATS = 6, TYPE_INTS, TYPE_STRINGS };

/* Whether the host gave an answer; a refusal means that the attribute is not of that type. */
static bool there(const struct node_writer *w, ort_status *status)
{
    if (status != NULL)
        w->api->release_status(status);
    return status == NULL;
}

static int put_single(struct node_writer *w, const char *name,
                      struct wire_buffer *attribute)
{
    float f;
    int64_t i;
    size_t n = 0;
    if (there(w, w->api->attribute_int(w->info, name, &i))) {
        wire_int(attribute, WIRE_ATTR_I, i);
        return TYPE_INT;
    }
    if (there(w, w->api->attribute_float(w->info, name, &f))) {
        wire_float(attribute, WIRE_ATTR_F, f);
        return TYPE_FLOAT;
    }
    if (!there(w, w->api->attribute_string(w->info, name, NULL, &n)))
        return 0;
    char *text = calloc(n + 1, 1);
    if (text == NULL || !there(w, w->api->attribute_string(w->info, name, text, &n)))
        attribute->failed = true;
    else
        wire_text(attribute, WIRE_ATTR_S, text);
    free(text);
    return TYPE_STRING;
}

/* A list of numbers of one type; false where there is none, or an empty one: the host says 0
 * for lists of another type, too. */
static bool put_ints(struct node_writer *w, const char *name,
                     struct wire_buffer *attribute)
{
    size_t n = 0;
    if (!there(w, w->api->attribute_ints(w->info, name, NULL, &n)) || n == 0)
        return false;
    int64_t *x = calloc(n, sizeof *x);
    if (x == NULL || !there(w, w->api->attribute_ints(w->info, name, x, &n)))
        attribute->failed = true;
    for (size_t i = 0; i < n && !attribute->failed; i++)
        wire_int(attribute, WIRE_ATTR_INTS, x[i]);
    free(x);
    return true;
}

static bool put_floats(struct node_writer *w, const char *name,
                       struct wire_buffer *attribute)
{
    size_t n = 0;
    if (!there(w, w->api->attribute_floats(w->info, name, NULL, &n)) || n == 0)
        return false;
    float *x = calloc(n, sizeof *x);
    if (x == NULL || !there(w, w->api->attribute_floats(w->info, name, x, &n)))
        attribute->failed = true;
    for (size_t i = 0; i < n && !attribute->failed; i++)
        wire_float(attribute, WIRE_ATTR_FLOATS, x[i]);
    free(x);
    return true;
}

static bool put_strings(struct node_writer *w, const char *name,
                        struct wire_buffer *attribute)
{
    size_t n = 0;
    char **texts = NULL;
    ort_allocator *allocator;
    if (w->op->door->minor < ORT_STRING_ARRAYS ||
        !there(w, w->api->default_allocator(&allocator)) ||
        !there(w, w->api->string_array(w->info, name, allocator, &texts, &n)))
        return false;
    for (size_t i = 0; i < n && texts != NULL; i++) {
        wire_text(attribute, WIRE_ATTR_STRINGS, texts[i]);
        there(w, w->api->allocator_free(allocator, texts[i]));
    }
    if (texts != NULL)
        there(w, w->api->allocator_free(allocator, texts));
    return n > 0;
}

static bool is_list(const attnrun_attr_def *def)
{
    return def->kind == ATTNRUN_ATTR_INTS || def->kind == ATTNRUN_ATTR_FLOATS ||
           def->kind == ATTNRUN_ATTR_STRINGS;
}

/* The type of an attribute, whose value is written; 0: not given. */
static int put_content(struct node_writer *w, const attnrun_attr_def *def,
                       struct wire_buffer *attribute)
{
    size_t n = 0;
    int type = put_single(w, def->name, attribute);
    if (type != 0)
        return type;
    if (put_strings(w, def->name, attribute))
        return TYPE_STRINGS;
    if (put_ints(w, def->name, attribute))
        return TYPE_INTS;
    if (put_floats(w, def->name, attribute))
        return TYPE_FLOATS;
    if (!is_list(def) || !there(w, w->api->attribute_ints(w->info, def->name, NULL, &n)))
        return 0;
    return def->kind == ATTNRUN_ATTR_INTS     ? TYPE_INTS
           : def->kind == ATTNRUN_ATTR_FLOATS ? TYPE_FLOATS
                                              : TYPE_STRINGS;
}

static ort_status *put_attribute(struct node_writer *w, const attnrun_attr_def *def)
{
    struct wire_buffer attribute = { 0 };
    wire_text(&attribute, WIRE_ATTR_NAME, def->name);
    if (def->kind == ATTNRUN_ATTR_STRINGS && w->op->door->minor < ORT_STRING_ARRAYS) {
        wire_free(&attribute); /* it may be there, out of reach */
        return door_fail(w->op->door, ORT_NOT_IMPLEMENTED,
                         "attnrun: an operator with a list of strings needs "
                         "ONNX Runtime 1.31 or later");
    }
    int type = put_content(w, def, &attribute);
    if (type == 0) {
        wire_free(&attribute);
        return NULL;
    }
    wire_int(&attribute, WIRE_ATTR_TYPE, type);
    wire_message(&w->node, 5, &attribute);
    return NULL;
}

/* ---- operands ---- */

/* The operand of a row that input or output `index` of a node belongs to; variadic ones get
 * a number behind their name. */
static void operand_name(const struct door_operand *operands, int32_t n, size_t index,
                         char name[static DOOR_NAME + 16])
{
    size_t last = (size_t)n - 1;
    if (index < last || (index == last && operands[last].form != ORT_VARIADIC))
        snprintf(name, DOOR_NAME + 16, "%s", operands[index].name);
    else
        snprintf(name, DOOR_NAME + 16, "%s%zu", operands[last].name, index - last);
}

static void put_value(struct wire_buffer *graph, int field, const char *name,
                      int32_t dtype)
{
    struct wire_buffer tensor = { 0 }, type = { 0 }, value = { 0 };
    wire_text(&value, 1, name);
    if (dtype != 0) {
        wire_int(&tensor, 1, dtype);
        wire_message(&type, 1, &tensor);
        wire_message(&value, 2, &type);
    }
    wire_message(graph, field, &value);
}

static ort_status *input_dtype(const struct node_writer *w, size_t index, int32_t *dtype)
{
    ort_type *type;
    const ort_shape *shape;
    TRY(w->api->input_type(w->info, index, &type));
    ort_status *status = w->api->type_shape(type, &shape);
    if (status == NULL && shape == NULL)
        status = door_fail(w->op->door, ORT_INVALID_ARGUMENT, "attnrun: not a tensor");
    if (status == NULL)
        status = w->api->element_type(shape, dtype);
    w->api->release_type(type);
    return status;
}

static ort_status *put_input(struct node_writer *w, size_t index, struct one_node *node)
{
    char name[DOOR_NAME + 16];
    size_t length = 0;
    int constant = 0;
    int32_t dtype = 0;
    const ort_value *value = NULL;
    TRY(w->api->input_name(w->info, index, NULL, &length));
    if (length <= 1) { /* left out */
        wire_text(&w->node, 1, "");
        return NULL;
    }
    operand_name(w->op->in, w->op->n_in, index, name);
    wire_text(&w->node, 1, name);
    TRY(w->api->constant_input(w->info, index, &constant, &value));
    if (constant && value != NULL) {
        w->constants[w->n_constants++] = (struct constant){ (int32_t)index, value };
        return NULL;
    }
    TRY(input_dtype(w, index, &dtype));
    put_value(&w->graph, 11, name, dtype);
    node->from[node->n_in++] = (int32_t)index;
    return NULL;
}

static ort_status *put_output(struct node_writer *w, size_t index, struct one_node *node)
{
    char name[DOOR_NAME + 16];
    size_t length = 0;
    TRY(w->api->output_name(w->info, index, NULL, &length));
    if (length <= 1) {
        wire_text(&w->node, 2, "");
        return NULL;
    }
    operand_name(w->op->out, w->op->n_out, index, name);
    wire_text(&w->node, 2, name);
    put_value(&w->graph, 12, name, 0);
    node->to[node->n_out++] = (int32_t)index;
    return NULL;
}

/* ---- the model ---- */

/* A constant: its message without the data, and the data. */
static ort_status *constant_head(const struct node_writer *w, int32_t k,
                                 struct wire_buffer *head, void **data, size_t *n)
{
    char name[DOOR_NAME + 16];
    int64_t dims[ATTNRUN_MAX_RANK];
    size_t rank;
    int32_t dtype = 0;
    ort_shape *shape;
    attnrun_tensor tensor;
    const struct door *door = w->op->door;
    ort_value *value = (ort_value *)(uintptr_t)w->constants[k].value;
    operand_name(w->op->in, w->op->n_in, (size_t)w->constants[k].index, name);
    TRY(w->api->tensor_shape(value, &shape));
    ort_status *status = w->api->element_type(shape, &dtype);
    if (status == NULL)
        status = w->api->rank(shape, &rank);
    if (status == NULL && rank > ATTNRUN_MAX_RANK)
        status =
            door_fail(door, ORT_INVALID_ARGUMENT, "attnrun: a constant of rank over 8");
    if (status == NULL)
        status = w->api->dims(shape, dims, rank);
    w->api->release_shape(shape);
    TRY(status);
    TRY(w->api->tensor_data(value, data));
    if (attnrun_tensor_make(dtype, (int32_t)rank, dims, *data, &tensor) != ATTNRUN_OK)
        return door_failed(door);
    *n = (size_t)attnrun_tensor_bytes(&tensor);
    for (size_t i = 0; i < rank; i++)
        wire_int(head, 1, dims[i]);
    wire_int(head, 2, dtype);
    wire_text(head, 8, name);
    wire_head(head, 9, *n);
    return NULL;
}

/* The constants are written once, straight from the host's memory. */
static ort_status *assemble(struct node_writer *w, struct wire_buffer *model)
{
    struct wire_buffer heads[DOOR_MAX_IN] = { 0 }, opset = { 0 },
                       tags[DOOR_MAX_IN] = { 0 };
    void *data[DOOR_MAX_IN];
    size_t sizes[DOOR_MAX_IN], total = w->graph.n;
    ort_status *status = NULL;
    for (int32_t k = 0; k < w->n_constants && status == NULL; k++) {
        status = constant_head(w, k, &heads[k], &data[k], &sizes[k]);
        if (status == NULL) {
            wire_head(&tags[k], 5, heads[k].n + sizes[k]);
            total += tags[k].n + heads[k].n + sizes[k];
        }
    }
    wire_text(&opset, 1, w->op->row->domain);
    wire_int(&opset, 2, w->op->row->since);
    wire_int(model, 1, 10);
    wire_message(model, 8, &opset);
    wire_head(model, 7, total);
    wire_put(model, w->graph.data, w->graph.n);
    for (int32_t k = 0; k < w->n_constants; k++) {
        if (status == NULL) {
            wire_put(model, tags[k].data, tags[k].n);
            wire_put(model, heads[k].data, heads[k].n);
            wire_put(model, data[k], sizes[k]);
            model->failed = model->failed || tags[k].failed || heads[k].failed;
        }
        wire_free(&tags[k]);
        wire_free(&heads[k]);
    }
    return status;
}

static ort_status *put_node(struct node_writer *w, struct one_node *node)
{
    size_t n_in, n_out, n = 0;
    char name[128] = "";
    TRY(w->api->input_count(w->info, &n_in));
    TRY(w->api->output_count(w->info, &n_out));
    if (n_in > DOOR_MAX_IN || n_out > DOOR_MAX_OUT)
        return door_fail(w->op->door, ORT_INVALID_ARGUMENT,
                         "attnrun: a node with more than 32 inputs or 8 outputs");
    for (size_t i = 0; i < n_in; i++)
        TRY(put_input(w, i, node));
    for (size_t i = 0; i < n_out; i++)
        TRY(put_output(w, i, node));
    n = sizeof name;
    if (!there(w, w->api->node_name(w->info, name, &n)))
        name[0] = 0; /* longer than ours: sentences go without it */
    wire_text(&w->node, 3, name);
    wire_text(&w->node, 4, w->op->row->name);
    wire_text(&w->node, 7, w->op->row->domain);
    for (const attnrun_attr_def *a = w->op->row->attrs; a != NULL && a->kind != 0; a++)
        TRY(put_attribute(w, a));
    wire_message(&w->graph, 1, &w->node);
    wire_text(&w->graph, 2, "one node");
    return NULL;
}

ort_status *one_node_write(const struct door_op *op, const ort_info *info,
                           struct one_node *node)
{
    struct node_writer w = { .op = op, .api = op->door->api, .info = info };
    struct wire_buffer model = { 0 };
    *node = (struct one_node){ 0 };
    ort_status *status = put_node(&w, node);
    if (status == NULL)
        status = assemble(&w, &model);
    if (status == NULL && (model.failed || w.graph.failed))
        status =
            door_fail(op->door, ORT_FAIL, "attnrun: no memory for a node's constants");
    wire_free(&w.node);
    wire_free(&w.graph);
    if (status != NULL) {
        free(model.data);
        return status;
    }
    node->bytes = model.data;
    node->n_bytes = model.n;
    return NULL;
}

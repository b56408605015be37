/* mutate.c - in: model.onnx and input_N.pb of a test folder; out: a model whose
 * attributes, operands, constants, declared types or opsets differ a little, and the
 * inputs. See mutate.h. What a change makes of the model is left to chance. */
#include "mutate.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "onnx.pb-c.h"
#include "rewire.h"
#include "sizes.h"

#define PB(message) Attnrun__Onnx__##message

enum { LEVELS = 3, MAX_BYTES = 1 << 18, PATH_ROOM = 1024 };

/* ---- the corpus ---- */

static void add_below(struct fuzz_corpus *corpus, const char *path, int levels)
{
    char below[PATH_ROOM];
    struct stat st;
    snprintf(below, sizeof below, "%s/model.onnx", path);
    if (stat(below, &st) == 0) {
        if (st.st_size > MAX_BYTES)
            return;
        char **more = realloc(corpus->folders, ((size_t)corpus->n + 1) * sizeof *more);
        if (more == NULL)
            abort();
        corpus->folders = more;
        corpus->folders[corpus->n++] = strdup(path);
        return;
    }
    struct dirent **names;
    int n = levels > 0 ? scandir(path, &names, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            snprintf(below, sizeof below, "%s/%s", path, names[i]->d_name);
            if (stat(below, &st) == 0 && S_ISDIR(st.st_mode))
                add_below(corpus, below, levels - 1);
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

void fuzz_corpus_add(struct fuzz_corpus *corpus, const char *path)
{
    add_below(corpus, path, LEVELS);
}

void fuzz_corpus_free(struct fuzz_corpus *corpus)
{
    for (int i = 0; i < corpus->n; i++)
        free(corpus->folders[i]);
    free(corpus->folders);
}

static uint8_t *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = file != NULL ? malloc(MAX_BYTES) : NULL;
    *bytes = data != NULL ? fread(data, 1, MAX_BYTES, file) : 0;
    if (file != NULL)
        fclose(file);
    return data;
}

/* ---- inputs ---- */

static attnrun_tensor copy_value(struct fuzz_case *c, const attnrun_tensor *from)
{
    attnrun_tensor to = *from;
    if (from->kind == ATTNRUN_TENSOR && from->dtype != ATTNRUN_STRING) {
        to.data = fuzz_hold(c, attnrun_tensor_bytes(from));
        memcpy(to.data, from->data, (size_t)attnrun_tensor_bytes(from));
    } else if (from->kind == ATTNRUN_TENSOR) {
        int64_t n = attnrun_tensor_count(from);
        attnrun_string *strings = fuzz_hold(c, n * (int64_t)sizeof *strings);
        for (int64_t i = 0; i < n; i++) {
            strings[i] = ((const attnrun_string *)from->data)[i];
            char *text = fuzz_hold(c, strings[i].n);
            memcpy(text, strings[i].data, (size_t)strings[i].n);
            strings[i].data = text;
        }
        to.data = strings;
    } else if (from->data != NULL) {
        int64_t n = from->kind == ATTNRUN_SEQUENCE ? from->dims[0] : 1;
        attnrun_tensor *items = fuzz_hold(c, n * (int64_t)sizeof *items);
        for (int64_t i = 0; i < n; i++)
            items[i] = copy_value(c, (const attnrun_tensor *)from->data + i);
        to.data = items;
    }
    return to;
}

/* What input_N.pb holds, by the kind that the model declares. */
static void read_inputs(struct fuzz_case *c, const PB(GraphProto) * graph,
                        const char *folder)
{
    for (int k = 0; k < (int)graph->n_input && k < FUZZ_INPUTS; k++) {
        const PB(TypeProto) *type = graph->input[k]->type;
        char path[PATH_ROOM];
        size_t bytes;
        int32_t kind = ATTNRUN_TENSOR;
        attnrun_tensor *value = NULL;
        if (type != NULL && type->sequence_type != NULL &&
            type->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE)
            kind = ATTNRUN_SEQUENCE;
        if (type != NULL &&
            type->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE)
            kind = ATTNRUN_OPTIONAL;
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder, k);
        uint8_t *data = read_file(path, &bytes);
        if (data != NULL &&
            attnrun_tensor_from_pb(NULL, data, bytes, kind, &value, NULL) == ATTNRUN_OK) {
            c->given[k] = copy_value(c, value);
            attnrun_tensor_free(NULL, value);
        }
        free(data);
    }
}

/* ---- changes ---- */

/* One of the graph's nodes, or of a subgraph's. */
static PB(NodeProto) *
    pick_node(struct fuzz_random *r, PB(GraphProto) * graph, PB(GraphProto) * *home)
{
    PB(NodeProto) *node = NULL;
    for (int depth = 0; depth < 6 && graph->n_node > 0; depth++) {
        PB(GraphProto) *inner = NULL;
        node = graph->node[fuzz_below(r, (int64_t)graph->n_node)];
        *home = graph;
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g != NULL && fuzz_chance(r, 60))
                inner = node->attribute[k]->g;
        if (inner == NULL)
            break;
        graph = inner;
    }
    return node;
}

static void change_list(struct fuzz_random *r, size_t *n, int64_t *list)
{
    if (*n == 0)
        return;
    if (fuzz_chance(r, 25)) {
        --*n;
        return;
    }
    int64_t at = fuzz_below(r, (int64_t)*n);
    list[at] = fuzz_chance(r, 40)   ? fuzz_near(r, list[at], 2)
               : fuzz_chance(r, 40) ? list[fuzz_below(r, (int64_t)*n)]
                                    : fuzz_int(r);
}

static void change_dims_or_data(struct fuzz_random *r, PB(TensorProto) * t)
{
    if (fuzz_chance(r, 30))
        change_list(r, &t->n_dims, t->dims);
    else if (fuzz_chance(r, 10))
        t->data_type = 1 + (int32_t)fuzz_below(r, ATTNRUN_DTYPE_COUNT - 1);
    else if (t->n_int64_data > 0)
        t->int64_data[fuzz_below(r, (int64_t)t->n_int64_data)] = fuzz_int(r);
    else if (t->has_raw_data && t->raw_data.len >= 8 && t->data_type == ATTNRUN_I64) {
        int64_t x = fuzz_int(r), at = fuzz_below(r, (int64_t)t->raw_data.len / 8);
        memcpy(t->raw_data.data + at * 8, &x, sizeof x);
    } else if (t->has_raw_data && t->raw_data.len > 0) {
        t->raw_data.data[fuzz_below(r, (int64_t)t->raw_data.len)] = (uint8_t)fuzz_next(r);
    }
}

static void change_attribute(struct fuzz_random *r, PB(NodeProto) * node)
{
    static const char *const words[] = { "linear",  "gated",      "NONE", "SOFTMAX",
                                         "reflect", "PER_TENSOR", "x",    "" };
    if (node->n_attribute == 0)
        return;
    PB(AttributeProto) *a = node->attribute[fuzz_below(r, (int64_t)node->n_attribute)];
    if (fuzz_chance(r, 8)) { /* another takes its place */
        PB(AttributeProto) *last = node->attribute[--node->n_attribute];
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k] == a)
                node->attribute[k] = last;
        attnrun__onnx__attribute_proto__free_unpacked(a, NULL);
    } else if (a->n_ints > 0) {
        change_list(r, &a->n_ints, a->ints);
    } else if (a->n_floats > 0) {
        a->floats[fuzz_below(r, (int64_t)a->n_floats)] = fuzz_float(r);
    } else if (a->has_i) {
        a->i = fuzz_chance(r, 50) ? fuzz_near(r, a->i, 2) : fuzz_int(r);
    } else if (a->has_f) {
        a->f = fuzz_float(r);
    } else if (a->t != NULL) {
        change_dims_or_data(r, a->t);
    } else if (a->has_s) {
        free(a->s.data);
        a->s.data = (uint8_t *)strdup(words[fuzz_below(r, 8)]);
        a->s.len = strlen((char *)a->s.data);
    }
}

static void change_operands(struct fuzz_random *r, PB(NodeProto) * node,
                            const PB(GraphProto) * home)
{
    if (node->n_input == 0)
        return;
    int64_t at = fuzz_below(r, (int64_t)node->n_input);
    switch (fuzz_below(r, 5)) {
    case 0:
        fuzz_set_text(&node->input[at], "");
        break;
    case 1:
        if (node->n_input > 1)
            fuzz_swap_operands(node, (size_t)at,
                               (size_t)fuzz_below(r, (int64_t)node->n_input));
        break;
    case 2:
        if (home->n_input > 0)
            fuzz_set_text(&node->input[at],
                          home->input[fuzz_below(r, (int64_t)home->n_input)]->name);
        break;
    case 3:
        if (node->n_input > 1) {
            char *last = node->input[--node->n_input];
            if (last != protobuf_c_empty_string)
                free(last);
        }
        break;
    default:
        if (node->n_output > 0)
            fuzz_set_text(&node->output[fuzz_below(r, (int64_t)node->n_output)], "");
    }
}

static PB(TypeProto__Tensor) * tensor_type(PB(TypeProto) * type)
{
    for (int depth = 0; type != NULL && depth < 3; depth++) {
        if (type->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            return type->tensor_type;
        if (type->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE)
            type = type->sequence_type->elem_type;
        else if (type->value_case == ATTNRUN__ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE)
            type = type->optional_type->elem_type;
        else
            return NULL;
    }
    return NULL;
}

static void change_input(struct fuzz_random *r, PB(GraphProto) * graph)
{
    if (graph->n_input == 0)
        return;
    PB(TypeProto__Tensor) *t =
        tensor_type(graph->input[fuzz_below(r, (int64_t)graph->n_input)]->type);
    if (t == NULL)
        return;
    if (fuzz_chance(r, 30))
        t->elem_type = 1 + (int32_t)fuzz_below(r, ATTNRUN_DTYPE_COUNT - 1);
    else if (t->shape != NULL && fuzz_chance(r, 50)) {
        attnrun__onnx__tensor_shape_proto__free_unpacked(t->shape, NULL);
        t->shape = NULL;
    } else if (t->shape != NULL && t->shape->n_dim > 0) {
        PB(TensorShapeProto__Dimension) *dim =
            t->shape->dim[fuzz_below(r, (int64_t)t->shape->n_dim)];
        if (dim->value_case ==
            ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
            dim->dim_value = fuzz_below(r, 8);
    }
}

static void change(struct fuzz_random *r, PB(ModelProto) * model)
{
    PB(GraphProto) *home = model->graph;
    PB(NodeProto) *node = pick_node(r, model->graph, &home);
    int64_t what = fuzz_below(r, 100);
    if (what < 10)
        change_input(r, model->graph);
    else if (what < 25 && home->n_initializer > 0)
        change_dims_or_data(
            r, home->initializer[fuzz_below(r, (int64_t)home->n_initializer)]);
    else if (what < 28 && model->n_opset_import > 0)
        model->opset_import[0]->version = 1 + fuzz_below(r, 28);
    else if (what < 70 && node != NULL)
        change_attribute(r, node);
    else if (node != NULL)
        change_operands(r, node, home);
}

bool fuzz_mutate(struct fuzz_case *c, struct fuzz_random *r,
                 const struct fuzz_corpus *corpus, struct fuzz_changes max)
{
    const char *folder = corpus->folders[fuzz_below(r, corpus->n)];
    char path[PATH_ROOM];
    size_t bytes;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    uint8_t *data = read_file(path, &bytes);
    PB(ModelProto) *model =
        data != NULL ? attnrun__onnx__model_proto__unpack(NULL, bytes, data) : NULL;
    free(data);
    if (model == NULL || model->graph == NULL) {
        attnrun__onnx__model_proto__free_unpacked(model, NULL);
        return false;
    }
    read_inputs(c, model->graph, folder);
    for (size_t k = 0; k < model->graph->n_output;
         k++) /* else every change of type fails */
        if (model->graph->output[k]->type != NULL && max.fields > 0 && fuzz_chance(r, 70))
            fuzz_forget_type(model->graph->output[k]);
    for (int64_t n = fuzz_below(r, max.fields + 1); n > 0; n--)
        change(r, model);
    for (size_t k = 0; k < model->graph->n_output && max.graph > 0; k++)
        fuzz_forget_type(model->graph->output[k]);
    /* passes believe what a file says */
    for (size_t k = 0; k < model->graph->n_value_info && max.graph > 0; k++)
        fuzz_forget_type(model->graph->value_info[k]);
    for (int64_t n = max.graph > 0 ? 1 + fuzz_below(r, max.graph) : 0; n > 0; n--)
        fuzz_rewire(r, model);
    if (max.sizes)
        fuzz_sizes_change(c, r, model);
    if (max.misfits)
        fuzz_sizes_misfit(c, r, model);
    c->bytes = attnrun__onnx__model_proto__get_packed_size(model);
    c->model = malloc(c->bytes + 1);
    if (c->model == NULL)
        abort();
    attnrun__onnx__model_proto__pack(model, c->model);
    attnrun__onnx__model_proto__free_unpacked(model, NULL);
    return true;
}

/* sizes.c - in: a model, its inputs and random numbers; out: the same with other sizes. See
 * sizes.h. A size of nothing excuses no other one: products of all sizes of a tensor without an
 * element may be above 2^63, and so may what an operator computes of them. */
#include "sizes.h"

#include <stdlib.h>
#include <string.h>

#include "rewire.h"

#define PB(message) Attnrun__Onnx__##message

enum { SIZES = 32, LIST = 16, FEW = 8 };

struct sizes {
    int64_t from[SIZES], to[SIZES];
    int n;
};

/* Mostly a multiple, which can still be divided by what divided the size before. */
static int64_t another(struct fuzz_random *r, int64_t size)
{
    static const int64_t borders[] = { 1,
                                       INT32_MAX,
                                       INT64_C(1) << 32,
                                       (INT64_C(1) << 46) - 1,
                                       INT64_C(1) << 46,
                                       (INT64_C(1) << 47) - 1,
                                       INT64_C(1) << 47 };
    static const int shifts[] = { 1, 4, 10, 16, 24, 31, 40 };
    const int64_t what = fuzz_below(r, 100);
    if (what < 35)
        return size;
    if (what < 55)
        return 0;
    if (what < 65)
        return borders[fuzz_below(r, (int64_t)(sizeof borders / sizeof *borders))];
    const int shift = shifts[fuzz_below(r, (int64_t)(sizeof shifts / sizeof *shifts))];
    return size < 1 || size > (INT64_C(1) << 47) >> shift ? size : size << shift;
}

static int64_t size_of(struct sizes *s, struct fuzz_random *r, int64_t size)
{
    for (int i = 0; i < s->n; i++)
        if (s->from[i] == size)
            return fuzz_chance(r, 95) ? s->to[i] : another(r, size);
    const int64_t to = another(r, size);
    if (s->n < SIZES) {
        s->from[s->n] = size;
        s->to[s->n++] = to;
    }
    return to;
}

static int64_t number_of(struct sizes *s, struct fuzz_random *r, int64_t number)
{
    for (int i = 0; i < s->n; i++)
        if (s->from[i] == number && number > 1 && fuzz_chance(r, 80))
            return s->to[i];
    return number;
}

/* ---- constants and inputs ---- */

static void *must(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static bool is_float(int32_t dtype)
{
    return dtype == ATTNRUN_F32 || dtype == ATTNRUN_F64 || dtype == ATTNRUN_F16 ||
           dtype == ATTNRUN_BF16;
}

static int find_input(const PB(GraphProto) * graph, const char *name)
{
    for (size_t k = 0; k < graph->n_input; k++)
        if (strcmp(graph->input[k]->name, name) == 0)
            return (int)k;
    return -1;
}

/* An input of this type, of which no shape is said. */
static PB(ValueInfoProto) * new_input(const char *name, int32_t dtype)
{
    PB(ValueInfoProto) *info = must(malloc(sizeof *info));
    PB(TypeProto) *type = must(malloc(sizeof *type));
    PB(TypeProto__Tensor) *tensor = must(malloc(sizeof *tensor));
    attnrun__onnx__value_info_proto__init(info);
    attnrun__onnx__type_proto__init(type);
    attnrun__onnx__type_proto__tensor__init(tensor);
    info->name = must(strdup(name));
    info->type = type;
    type->value_case = ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = dtype;
    return info;
}

/* Constants of floats become inputs: all, but some of the short ones, whose numbers may matter. */
static void free_constants(struct fuzz_case *c, struct fuzz_random *r,
                           PB(GraphProto) * graph)
{
    size_t left = 0;
    for (size_t k = 0; k < graph->n_initializer; k++) {
        PB(TensorProto) *t = graph->initializer[k];
        attnrun_tensor given = { .kind = ATTNRUN_TENSOR,
                                 .dtype = t->data_type,
                                 .rank = (int32_t)t->n_dims };
        const int at = find_input(graph, t->name);
        const size_t input = at >= 0 ? (size_t)at : graph->n_input;
        if (!is_float(t->data_type) || t->n_dims < 1 || t->n_dims > ATTNRUN_MAX_RANK ||
            input >= FUZZ_INPUTS || (t->dims[0] <= FEW && fuzz_chance(r, 40))) {
            graph->initializer[left++] = t;
            continue;
        }
        memcpy(given.dims, t->dims, t->n_dims * sizeof *t->dims);
        c->given[input] = given;
        if (at < 0)
            fuzz_list_add(&graph->input, &graph->n_input, input,
                          new_input(t->name, t->data_type));
        attnrun__onnx__tensor_proto__free_unpacked(t, NULL);
    }
    graph->n_initializer = left;
}

static PB(TensorProto) * new_constant(struct sizes *s, struct fuzz_random *r,
                                      const char *name, const attnrun_tensor *t)
{
    const size_t bytes = (size_t)attnrun_tensor_bytes(t);
    const size_t each = (size_t)attnrun_dtype_bits(t->dtype) / 8;
    PB(TensorProto) *made = must(malloc(sizeof *made));
    attnrun__onnx__tensor_proto__init(made);
    made->name = must(strdup(name));
    made->has_data_type = 1;
    made->data_type = t->dtype;
    made->n_dims = (size_t)t->rank;
    made->dims = must(malloc(sizeof *made->dims * (made->n_dims + 1)));
    memcpy(made->dims, t->dims, made->n_dims * sizeof *made->dims);
    made->has_raw_data = 1;
    made->raw_data.len = bytes;
    made->raw_data.data = must(malloc(bytes + 1));
    memcpy(made->raw_data.data, t->data, bytes);
    for (size_t k = 0; k < bytes; k += each) {
        int64_t number = 0; /* little-endian; a negative one is no size */
        memcpy(&number, made->raw_data.data + k, each);
        number = number_of(s, r, number);
        memcpy(made->raw_data.data + k, &number, each);
    }
    return made;
}

/* A short list of integers, such as the target of a Reshape. */
static bool is_list(const attnrun_tensor *t)
{
    return t->kind == ATTNRUN_TENSOR && t->data != NULL && t->rank <= 1 &&
           (t->dtype == ATTNRUN_I64 || t->dtype == ATTNRUN_I32) &&
           attnrun_tensor_count(t) <= LIST;
}

/* Input k of the graph becomes a constant; those behind it move. */
static void fix_input(struct fuzz_case *c, struct sizes *s, struct fuzz_random *r,
                      PB(GraphProto) * graph, size_t k)
{
    fuzz_list_add(&graph->initializer, &graph->n_initializer, graph->n_initializer,
                  new_constant(s, r, graph->input[k]->name, &c->given[k]));
    attnrun__onnx__value_info_proto__free_unpacked(graph->input[k], NULL);
    graph->n_input--;
    for (; k < graph->n_input; k++) {
        c->given[k] = c->given[k + 1];
        graph->input[k] = graph->input[k + 1];
    }
}

static void fix_lists(struct fuzz_case *c, struct sizes *s, struct fuzz_random *r,
                      PB(GraphProto) * graph)
{
    for (size_t k = graph->n_input <= FUZZ_INPUTS ? graph->n_input : 0; k-- > 0;)
        if (is_list(&c->given[k]) && !fuzz_chance(r, 10))
            fix_input(c, s, r, graph, k);
}

/* ---- one size alone ---- */

/* The elements of `from`, again and again, so that indices and lengths stay what they were. */
static void repeat(struct fuzz_case *c, const attnrun_tensor *from, attnrun_tensor *to)
{
    const int64_t bits = attnrun_dtype_bits(to->dtype), n = attnrun_tensor_bytes(from);
    to->data = NULL; /* else fuzz_fill() makes some */
    if (from->data == NULL || n < 1 || bits < 8)
        return;
    const int64_t bytes = attnrun_tensor_bytes(to);
    char *data = fuzz_hold(c, bytes);
    for (int64_t at = 0; at < bytes; at += n)
        memcpy(data + at, from->data, (size_t)(n < bytes - at ? n : bytes - at));
    to->data = data;
    fuzz_set_dense(to);
}

static int64_t near_size(struct fuzz_random *r, const attnrun_tensor *t, int64_t size)
{
    switch (fuzz_below(r, 8)) {
    case 0:
        return 0;
    case 1:
        return size - 1 < 0 ? 2 : size - 1;
    case 2:
        return size + 1;
    case 3:
        return 2 * size;
    case 4:
        return t->dims[fuzz_below(r, t->rank)];
    case 5:
        return fuzz_below(r, 9);
    default: /* what is broadcast, or seems to be */
        return size == 1 ? 2 : 1;
    }
}

static void remove_axis(attnrun_tensor *t, int64_t axis)
{
    t->rank--;
    for (int64_t i = axis; i < t->rank; i++)
        t->dims[i] = t->dims[i + 1];
}

static void insert_axis(attnrun_tensor *t, int64_t axis, int64_t size)
{
    for (int64_t i = t->rank; i > axis; i--)
        t->dims[i] = t->dims[i - 1];
    t->dims[axis] = size;
    t->rank++;
}

/* Another shape, or the same one where that would be large. */
static void misfit(struct fuzz_case *c, struct fuzz_random *r, attnrun_tensor *t)
{
    enum { MAX_ELEMENTS = 1 << 14 };
    const attnrun_tensor from = *t;
    const int64_t what = fuzz_below(r, 100);
    const int64_t axis = t->rank > 0 ? fuzz_below(r, t->rank) : 0;
    if (t->rank > 0 && what < 75)
        t->dims[axis] = near_size(r, t, t->dims[axis]);
    else if (t->rank > 0 && what < 83)
        remove_axis(t, axis);
    else if (t->rank < ATTNRUN_MAX_RANK && what < 92)
        insert_axis(t, axis, 1 + fuzz_below(r, 2));
    else if (t->rank > 1) {
        t->dims[axis] = from.dims[(axis + 1) % t->rank];
        t->dims[(axis + 1) % t->rank] = from.dims[axis];
    }
    if (attnrun_tensor_count(t) > MAX_ELEMENTS)
        *t = from;
    else
        repeat(c, &from, t);
}

static bool has_numbers(const attnrun_tensor *t)
{
    return t->kind == ATTNRUN_TENSOR && t->data != NULL && t->dtype != ATTNRUN_STRING &&
           attnrun_dtype_bits(t->dtype) >= 8;
}

/* A constant becomes one of another shape. */
static void misfit_constant(struct fuzz_case *c, struct fuzz_random *r,
                            PB(TensorProto) * *constant)
{
    struct sizes same = { .n = 0 };
    const size_t bytes = attnrun__onnx__tensor_proto__get_packed_size(*constant);
    uint8_t *packed = must(malloc(bytes + 1));
    attnrun_tensor *read = NULL;
    attnrun__onnx__tensor_proto__pack(*constant, packed);
    if (attnrun_tensor_from_pb(NULL, packed, bytes, ATTNRUN_TENSOR, &read, NULL) ==
            ATTNRUN_OK &&
        has_numbers(read)) {
        attnrun_tensor t = *read;
        misfit(c, r, &t);
        if (t.data == NULL)
            fuzz_fill(c, r, &t);
        PB(TensorProto) *made = new_constant(&same, r, (*constant)->name, &t);
        attnrun__onnx__tensor_proto__free_unpacked(*constant, NULL);
        *constant = made;
    }
    attnrun_tensor_free(NULL, read);
    free(packed);
}

/* ---- all ---- */

static void forget_dims(PB(TypeProto) * type)
{
    if (type == NULL ||
        type->value_case != ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        type->tensor_type->shape == NULL)
        return;
    attnrun__onnx__tensor_shape_proto__free_unpacked(type->tensor_type->shape, NULL);
    type->tensor_type->shape = NULL;
}

/* Inputs of which no test data are there: of the declared shapes, equal symbols of equal sizes. */
static void give_declared(struct fuzz_case *c, PB(GraphProto) * graph)
{
    for (size_t k = 0; k < graph->n_input && k < FUZZ_INPUTS; k++) {
        const PB(TypeProto) *type = graph->input[k]->type;
        attnrun_tensor t = { .kind = ATTNRUN_TENSOR };
        if (c->given[k].kind != ATTNRUN_ABSENT || type == NULL ||
            type->value_case != ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
            type->tensor_type->shape == NULL ||
            type->tensor_type->shape->n_dim > ATTNRUN_MAX_RANK)
            continue;
        const PB(TensorShapeProto) *shape = type->tensor_type->shape;
        t.dtype = type->tensor_type->elem_type;
        t.rank = (int32_t)shape->n_dim;
        for (int32_t i = 0; i < t.rank; i++) {
            const char *symbol = shape->dim[i]->dim_param;
            t.dims[i] =
                shape->dim[i]->value_case ==
                        ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE
                    ? shape->dim[i]->dim_value
                    : 2 + (symbol != NULL ? symbol[0] % 3 : 0);
        }
        if (attnrun_dtype_bits(t.dtype) > 0 && attnrun_tensor_count(&t) >= 0)
            c->given[k] = t;
    }
}

/* What the model says of its own shapes is forgotten. */
static void forget_all(PB(GraphProto) * graph)
{
    for (size_t k = 0; k < graph->n_input; k++)
        forget_dims(graph->input[k]->type);
    for (size_t k = 0; k < graph->n_output; k++)
        forget_dims(graph->output[k]->type);
    for (size_t k = 0; k < graph->n_value_info; k++)
        forget_dims(graph->value_info[k]->type);
}

void fuzz_forget_type(PB(ValueInfoProto) * info)
{
    attnrun__onnx__type_proto__free_unpacked(info->type, NULL);
    info->type = NULL;
}

/* Inputs of f32 take another type, all of them the same. */
static void retype(struct fuzz_case *c, struct fuzz_random *r, PB(GraphProto) * graph)
{
    static const int32_t others[] = { ATTNRUN_F16, ATTNRUN_BF16, ATTNRUN_F64,
                                      ATTNRUN_I64, ATTNRUN_I32,  ATTNRUN_U8,
                                      ATTNRUN_I8,  ATTNRUN_BOOL, ATTNRUN_STRING };
    const int64_t n = (int64_t)(sizeof others / sizeof *others);
    const int32_t other =
        others[fuzz_chance(r, 75) ? fuzz_below(r, 3) : fuzz_below(r, n)];
    for (size_t k = 0; k < graph->n_input && k < FUZZ_INPUTS; k++) {
        PB(TypeProto) *type = graph->input[k]->type;
        attnrun_tensor *t = &c->given[k];
        if (t->kind != ATTNRUN_TENSOR || t->dtype != ATTNRUN_F32 || type == NULL ||
            type->value_case != ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
            continue;
        type->tensor_type->elem_type = other;
        t->dtype = other;
        t->data = NULL;
    }
    for (size_t k = 0; k < graph->n_output; k++)
        fuzz_forget_type(graph->output[k]);
    for (size_t k = 0; k < graph->n_value_info; k++)
        fuzz_forget_type(graph->value_info[k]);
}

void fuzz_sizes_misfit(struct fuzz_case *c, struct fuzz_random *r, PB(ModelProto) * model)
{
    PB(GraphProto) *graph = model->graph;
    give_declared(c, graph);
    const bool retypes = fuzz_chance(r, 20);
    if (retypes || fuzz_chance(r, 60))
        free_constants(c, r, graph);
    forget_all(graph);
    if (retypes)
        retype(c, r, graph);
    const int64_t inputs =
        (int64_t)graph->n_input < FUZZ_INPUTS ? (int64_t)graph->n_input : FUZZ_INPUTS;
    const int64_t constants = (int64_t)graph->n_initializer;
    const int64_t changes = 1 + (fuzz_chance(r, 30) ? fuzz_below(r, 3) : 0);
    for (int64_t i = 0; i < changes && inputs + constants > 0; i++) {
        const int64_t k = fuzz_below(r, inputs + constants);
        /* two that belong together may be wrong in the same way */
        const int64_t twin = fuzz_chance(r, 15) && k + 1 < inputs ? k + 1 : k;
        const struct fuzz_random again = { fuzz_next(r) };
        for (int64_t at = k; at <= twin; at++) {
            struct fuzz_random same = again;
            if (at >= inputs)
                misfit_constant(c, &same, &graph->initializer[at - inputs]);
            else if (c->given[at].kind == ATTNRUN_TENSOR)
                misfit(c, &same, &c->given[at]);
        }
    }
    struct sizes same = { .n = 0 };
    const bool fixes = graph->n_input <= FUZZ_INPUTS && fuzz_chance(r, 50);
    for (size_t k = fixes ? graph->n_input : 0; k-- > 1;)
        if (has_numbers(&c->given[k]) && fuzz_chance(r, 60))
            fix_input(c, &same, r, graph, k);
}

void fuzz_sizes_change(struct fuzz_case *c, struct fuzz_random *r, PB(ModelProto) * model)
{
    struct sizes s = { .n = 0 };
    PB(GraphProto) *graph = model->graph;
    give_declared(c, graph);
    free_constants(c, r, graph);
    for (size_t k = 0; k < graph->n_input && k < FUZZ_INPUTS; k++) {
        attnrun_tensor *t = &c->given[k];
        if (t->kind == ATTNRUN_TENSOR && !is_list(t)) {
            for (int32_t i = 0; i < t->rank; i++)
                t->dims[i] = size_of(&s, r, t->dims[i]);
            t->data = NULL;
        }
    }
    forget_all(graph);
    fix_lists(c, &s, r, graph);
}

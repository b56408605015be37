/* rewire.c - in: a model and random numbers; out: the model with one change of its graph. See
 * rewire.h. Lists grow by copies, since protobuf-c frees each of them as one block. */
#include "rewire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PB(message) Attnrun__Onnx__##message

enum { KINDS = 10, MEMBERS = 18, FLOAT = 1, INT64 = 7, FEW = 8 };

/* Operators of one kind read the same operands. */
static const char *const kinds[KINDS][MEMBERS] = {
    { "Exp", "Neg", "Relu", "Sigmoid", "Tanh", "Sqrt", "Erf", "Abs", "Identity",
      "Softplus", "Reciprocal", "Sin", "Cos", "Floor", "Softsign", "Elu", "HardSwish" },
    { "Add", "Sub", "Mul", "Div", "Max", "Min", "Pow" },
    { "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual" },
    { "And", "Or", "Xor" },
    { "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1",
      "ReduceSumSquare", "ReduceLogSumExp" },
    { "Softmax", "LogSoftmax", "Hardmax" },
    { "MaxPool", "AveragePool" },
    { "GlobalAveragePool", "GlobalMaxPool" },
    { "MatMul", "Add", "Mul" },
    { "Unsqueeze", "Squeeze" },
};

/* New nodes in front of an operand. */
static const char *const fronts[] = { "Neg",     "Relu", "Exp",  "Identity", "Transpose",
                                      "Softmax", "Abs",  "Tanh", "Shape" };

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

void fuzz_set_text(char **text, const char *to)
{
    char *const before = *text;
    *text = strdup(to); /* which may be a part of what was there */
    if (before != NULL && before != protobuf_c_empty_string)
        free(before);
}

void fuzz_list_add(void *list, size_t *n, size_t at, void *item)
{
    void **old = *(void ***)list, **more = take((*n + 1) * sizeof *more);
    for (size_t k = 0; k < *n; k++)
        more[k + (k >= at)] = old[k];
    more[at] = item;
    ++*n;
    free(old);
    *(void ***)list = more;
}

/* ---- picking ---- */

static size_t pick(struct fuzz_random *r, size_t n)
{
    return (size_t)fuzz_below(r, (int64_t)n);
}

static PB(NodeProto) *
    any_node(struct fuzz_random *r, const PB(GraphProto) * graph, size_t *at)
{
    *at = pick(r, graph->n_node);
    return graph->n_node > 0 ? graph->node[*at] : NULL;
}

/* A value that exists in front of node `end`; mostly a near one, which has its shape more often. */
static const char *any_value(struct fuzz_random *r, const PB(GraphProto) * graph,
                             size_t end)
{
    const int64_t what = fuzz_below(r, 100);
    if (what < 60 && end > 0) {
        const size_t back = fuzz_chance(r, 70) && end > 6 ? 6 : end;
        const PB(NodeProto) *node = graph->node[end - 1 - pick(r, back)];
        return node->n_output > 0 ? node->output[pick(r, node->n_output)] : NULL;
    }
    if (what < 85 && graph->n_input > 0)
        return graph->input[pick(r, graph->n_input)]->name;
    return graph->n_initializer > 0
               ? graph->initializer[pick(r, graph->n_initializer)]->name
               : NULL;
}

/* A constant tensor: an initializer, or the value of a Constant. */
static PB(TensorProto) * any_constant(struct fuzz_random *r, const PB(GraphProto) * graph)
{
    size_t constants = 0;
    for (size_t k = 0; k < graph->n_node; k++)
        constants += strcmp(graph->node[k]->op_type, "Constant") == 0;
    size_t at = pick(r, constants + graph->n_initializer);
    if (at < graph->n_initializer)
        return graph->initializer[at];
    at -= graph->n_initializer;
    for (size_t k = 0; k < graph->n_node; k++) {
        const PB(NodeProto) *node = graph->node[k];
        if (strcmp(node->op_type, "Constant") == 0 && at-- == 0)
            return node->n_attribute > 0 ? node->attribute[0]->t : NULL;
    }
    return NULL;
}

/* ---- changes ---- */

static void another_operator(struct fuzz_random *r, PB(NodeProto) * node)
{
    const size_t first = pick(r, KINDS);
    for (size_t i = 0; i < KINDS; i++) {
        const char *const *kind = kinds[(first + i) % KINDS];
        size_t n = 0;
        bool member = false;
        for (; n < MEMBERS && kind[n] != NULL; n++)
            member = member || strcmp(kind[n], node->op_type) == 0;
        if (member) {
            fuzz_set_text(&node->op_type, kind[pick(r, n)]);
            return;
        }
    }
}

static void another_operand(struct fuzz_random *r, const PB(GraphProto) * graph,
                            PB(NodeProto) * node, size_t at)
{
    const char *value = any_value(r, graph, at);
    if (node->n_input > 0 && value != NULL)
        fuzz_set_text(&node->input[pick(r, node->n_input)], value);
}

void fuzz_swap_operands(PB(NodeProto) * node, size_t a, size_t b)
{
    char *name = node->input[a];
    node->input[a] = node->input[b];
    node->input[b] = name;
}

static void swap_two_operands(struct fuzz_random *r, PB(NodeProto) * node)
{
    if (node->n_input < 2)
        return;
    const size_t a = pick(r, node->n_input), b = pick(r, node->n_input);
    fuzz_swap_operands(node, a, b);
}

static bool is_output(const PB(GraphProto) * graph, const char *name)
{
    for (size_t k = 0; k < graph->n_output; k++)
        if (strcmp(graph->output[k]->name, name) == 0)
            return true;
    return false;
}

static void another_output(struct fuzz_random *r, PB(GraphProto) * graph,
                           PB(NodeProto) * node)
{
    const char *name = node->n_output > 0 ? node->output[pick(r, node->n_output)] : "";
    if (name[0] == 0 || is_output(graph, name))
        return;
    PB(ValueInfoProto) *info = take(sizeof *info);
    attnrun__onnx__value_info_proto__init(info);
    info->name = strdup(name);
    fuzz_list_add(&graph->output, &graph->n_output, graph->n_output, info);
}

static void node_in_front(struct fuzz_random *r, PB(GraphProto) * graph,
                          PB(NodeProto) * node, size_t at)
{
    if (node->n_input == 0 || strcmp(node->op_type, "Constant") == 0)
        return;
    char name[64];
    char **operand = &node->input[pick(r, node->n_input)];
    PB(NodeProto) *front = take(sizeof *front);
    attnrun__onnx__node_proto__init(front);
    snprintf(name, sizeof name, "in_front_of_%zu_%zu", at, graph->n_node);
    front->op_type = strdup(fronts[pick(r, sizeof fronts / sizeof *fronts)]);
    front->n_input = front->n_output = 1;
    front->input = take(sizeof *front->input);
    front->output = take(sizeof *front->output);
    front->input[0] = strdup(*operand);
    front->output[0] = strdup(name);
    fuzz_set_text(operand, name);
    fuzz_list_add(&graph->node, &graph->n_node, at, front);
}

/* Who read the node's first output reads its first operand. */
static void leave_out(PB(GraphProto) * graph, const PB(NodeProto) * node)
{
    if (node->n_input == 0 || node->n_output == 0 || node->input[0][0] == 0)
        return;
    for (size_t k = 0; k < graph->n_node; k++)
        for (size_t i = 0; i < graph->node[k]->n_input; i++)
            if (strcmp(graph->node[k]->input[i], node->output[0]) == 0)
                fuzz_set_text(&graph->node[k]->input[i], node->input[0]);
}

static float near_float(struct fuzz_random *r, float x)
{
    const float all[] = { -x, 2 * x, x / 2, 1 / x, x + 1, x - 1,
                          0,  1,     -1,    2,     0.5f,  x * 1.001f };
    return all[pick(r, sizeof all / sizeof *all)];
}

static void swap_ints(struct fuzz_random *r, int64_t *list, size_t n)
{
    const size_t a = pick(r, n), b = pick(r, n);
    if (n == 0)
        return;
    const int64_t x = list[a];
    list[a] = list[b];
    list[b] = x;
    if (a == b)
        list[a] = fuzz_near(r, list[a], 1);
}

/* A few numbers: where the data lie in bytes, they are copied to where they are aligned. */
static void another_constant(struct fuzz_random *r, PB(TensorProto) * t)
{
    const size_t size = t->data_type == FLOAT ? sizeof(float) : sizeof(int64_t);
    if (t->data_type != FLOAT && t->data_type != INT64)
        return;
    if (t->data_type == FLOAT && t->n_float_data > 0) {
        float *x = &t->float_data[pick(r, t->n_float_data)];
        *x = near_float(r, *x);
    } else if (t->data_type == INT64 && t->n_int64_data > 0) {
        swap_ints(r, t->int64_data, t->n_int64_data);
    } else if (t->has_raw_data && t->raw_data.len >= size) {
        const size_t n = t->raw_data.len / size, few = n < FEW ? n : FEW;
        uint8_t *at = t->raw_data.data + size * pick(r, n - few + 1);
        if (t->data_type == FLOAT) {
            float x;
            at = t->raw_data.data + size * pick(r, n);
            memcpy(&x, at, sizeof x);
            x = near_float(r, x);
            memcpy(at, &x, sizeof x);
        } else {
            int64_t list[FEW];
            memcpy(list, at, few * size);
            swap_ints(r, list, few);
            memcpy(at, list, few * size);
        }
    }
}

static void another_attribute(struct fuzz_random *r, PB(NodeProto) * node)
{
    if (node->n_attribute == 0)
        return;
    PB(AttributeProto) *a = node->attribute[pick(r, node->n_attribute)];
    if (a->n_ints > 0)
        swap_ints(r, a->ints, a->n_ints);
    else if (a->has_i)
        a->i = fuzz_near(r, a->i, 2);
    else if (a->has_f)
        a->f = near_float(r, a->f);
    else if (a->t != NULL)
        another_constant(r, a->t);
}

static void another_axis(struct fuzz_random *r, const PB(GraphProto) * graph)
{
    if (graph->n_input == 0)
        return;
    const PB(TypeProto) *type = graph->input[pick(r, graph->n_input)]->type;
    if (type == NULL ||
        type->value_case != ATTNRUN__ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        type->tensor_type->shape == NULL || type->tensor_type->shape->n_dim == 0)
        return;
    PB(TensorShapeProto__Dimension) *dim =
        type->tensor_type->shape->dim[pick(r, type->tensor_type->shape->n_dim)];
    const bool is_number =
        dim->value_case == ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (is_number && fuzz_chance(r, 50)) {
        dim->dim_value = fuzz_chance(r, 20) ? 1 : fuzz_near(r, dim->dim_value, 1);
    } else if (is_number) {
        dim->value_case = ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        dim->dim_param = strdup(fuzz_chance(r, 50) ? "N" : "M");
    } else if (dim->value_case ==
               ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) {
        free(dim->dim_param);
        dim->value_case = ATTNRUN__ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        dim->dim_value = 1 + fuzz_below(r, 6);
    }
}

void fuzz_rewire(struct fuzz_random *r, PB(ModelProto) * model)
{
    PB(GraphProto) *graph = model->graph;
    size_t at = 0;
    PB(NodeProto) *node = any_node(r, graph, &at);
    const int64_t what = fuzz_below(r, 100);
    PB(TensorProto) *constant = what < 20 ? any_constant(r, graph) : NULL;
    if (constant != NULL)
        another_constant(r, constant);
    else if (what < 26 || node == NULL)
        another_axis(r, graph);
    else if (what < 44)
        another_operator(r, node);
    else if (what < 56)
        another_operand(r, graph, node, at);
    else if (what < 62)
        swap_two_operands(r, node);
    else if (what < 72)
        another_output(r, graph, node);
    else if (what < 80)
        node_in_front(r, graph, node, at);
    else if (what < 86)
        leave_out(graph, node);
    else
        another_attribute(r, node);
}

/* onnx_constant.c - Constant nodes are constants at load. One attribute says the value:
 * value, sparse_value, value_int, value_ints, value_float, value_floats, value_string,
 * value_strings; in a function it may come from the call. */
#include <string.h>

#include "onnx_load.h"

static attn_status make(int32_t dtype, int32_t rank, int64_t n, const void *data,
                        attnrun_tensor *tensor)
{
    return attnrun_tensor_make(dtype, rank, &n, (void *)(uintptr_t)data, tensor);
}

static attn_status copy_scalar(struct attn_load *load, int32_t dtype, const void *item,
                               int64_t bytes, attnrun_tensor *tensor)
{
    void *copy = attn_pool_copy(&load->model->pool, item, bytes);
    return copy != NULL ? make(dtype, 0, 0, copy, tensor) : ATTNRUN_E_MEMORY;
}

static attn_status from_attr(struct attn_load *load, const struct attn_attr *attr,
                             attnrun_tensor *tensor)
{
    switch (attr->kind) {
    case ATTN_ATTR_TENSOR:
    case ATTN_ATTR_SPARSE_TENSOR:
        *tensor = attr->tensor;
        return ATTNRUN_OK;
    case ATTN_ATTR_INT:
        return copy_scalar(load, ATTNRUN_I64, &attr->i, (int64_t)sizeof attr->i, tensor);
    case ATTN_ATTR_FLOAT:
        return copy_scalar(load, ATTNRUN_F32, &attr->f, (int64_t)sizeof attr->f, tensor);
    case ATTN_ATTR_STRING:
        return copy_scalar(load, ATTNRUN_STRING, &attr->s, (int64_t)sizeof attr->s,
                           tensor);
    case ATTN_ATTR_INTS:
        return make(ATTNRUN_I64, 1, attr->ints.n, attr->ints.v, tensor);
    case ATTN_ATTR_FLOATS:
        return make(ATTNRUN_F32, 1, attr->floats.n, attr->floats.v, tensor);
    default: /* ATTN_ATTR_STRINGS: kind_of_name() has no others */
        return make(ATTNRUN_STRING, 1, attr->strings.n, attr->strings.v, tensor);
    }
}

/* The kind that an attribute name stands for, 0 for another name. */
static int32_t kind_of_name(const char *name)
{
    static const struct {
        const char *name;
        int32_t kind;
    } names[] = {
        { "value", ATTN_ATTR_TENSOR },        { "sparse_value", ATTN_ATTR_SPARSE_TENSOR },
        { "value_int", ATTN_ATTR_INT },       { "value_ints", ATTN_ATTR_INTS },
        { "value_float", ATTN_ATTR_FLOAT },   { "value_floats", ATTN_ATTR_FLOATS },
        { "value_string", ATTN_ATTR_STRING }, { "value_strings", ATTN_ATTR_STRINGS },
    };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(name, names[k].name) == 0)
            return names[k].kind;
    return 0;
}

attn_status attn_load_constant(struct attn_load *load, struct attn_load_scope *scope,
                               const PB(NodeProto) * pb, attnrun_tensor *tensor)
{
    int found = 0;
    if (pb->n_input > 0 || pb->n_output != 1)
        return attn_fail(ATTNRUN_E_MODEL, "the constant has %s and %s, expected 0 and 1",
                         attn_plural((int64_t)pb->n_input, "input"),
                         attn_plural((int64_t)pb->n_output, "output"));
    for (size_t k = 0; k < pb->n_attribute; k++) {
        const char *name = pb_text(pb->attribute[k]->name);
        struct attn_binding binding;
        TRY(attn_attr_resolve(scope, pb->attribute[k], &binding));
        if (binding.pb == NULL || kind_of_name(name) == 0)
            continue;
        struct attn_attr attr;
        TRY(attn_read_attr(load, binding.pb, &attr));
        if (attr.kind != kind_of_name(name))
            return attn_fail(ATTNRUN_E_MODEL, "attribute '%s' is of type %d, expected %d",
                             attn_quote(name), attr.kind, kind_of_name(name));
        TRY(from_attr(load, &attr, tensor));
        found++;
    }
    if (found != 1)
        return attn_fail(ATTNRUN_E_MODEL, "the node has %s, expected 1",
                         attn_plural(found, "value"));
    return ATTNRUN_OK;
}

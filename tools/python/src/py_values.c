/* py_values.c - Python values as tensors, and tensors as numpy arrays.
 *
 * In: whatever has the buffer protocol (numpy arrays among them) or __dlpack__, viewed without
 * a copy whatever its strides; all else goes through to_native() of attnrun/_values.py, which
 * answers with
 *     (array, dtype number, shape)  memory of that dtype (bfloat16 as uint16, say), dense
 *     (list of bytes, shape)        strings
 *     list                          a sequence, of values or maps
 *     (value,) or ()                an optional with or without content
 *     (keys, values)                a map: two arrays of one length
 * For memory that a run writes (kind VALUE_OUTPUT) it shares the memory or raises.
 * Out: arrays that own a copy, lists for sequences, dicts for maps. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_OUTPUT = -1 };

/* ---- in ---- */

/* The dtype number of a format of the struct module, 0 for an unknown one. */
static int32_t dtype_of_format(const char *format, Py_ssize_t item)
{
    if (format == NULL)
        return ATTNRUN_U8;
    if (*format == '<' || *format == '=' || *format == '@')
        format++;
    const bool complex_type = *format == 'Z';
    format += complex_type;
    if (format[0] == '\0' || format[1] != '\0')
        return 0;
    if (complex_type)
        return *format == 'f' ? ATTNRUN_C64 : *format == 'd' ? ATTNRUN_C128 : 0;
    static const int32_t integers[2][9] = {
        { 0, ATTNRUN_I8, ATTNRUN_I16, 0, ATTNRUN_I32, 0, 0, 0, ATTNRUN_I64 },
        { 0, ATTNRUN_U8, ATTNRUN_U16, 0, ATTNRUN_U32, 0, 0, 0, ATTNRUN_U64 }
    };
    switch (*format) {
    case 'f':
        return ATTNRUN_F32;
    case 'd':
        return ATTNRUN_F64;
    case 'e':
        return ATTNRUN_F16;
    case '?':
        return ATTNRUN_BOOL;
    default:
        if (strchr("bhilqn", *format) != NULL)
            return item <= 8 ? integers[0][item] : 0;
        return strchr("BHILQN", *format) != NULL && item <= 8 ? integers[1][item] : 0;
    }
}

/* Fills the tensor from bound->buffer; 1: done, 0: not a type of ours, -1: exception. */
static int view_buffer(struct bound_value *bound)
{
    const Py_buffer *view = &bound->buffer;
    const int32_t dtype = dtype_of_format(view->format, view->itemsize);
    if (dtype == 0 || view->ndim > ATTNRUN_MAX_RANK)
        return 0;
    attnrun_tensor *t = &bound->tensor;
    *t = (attnrun_tensor){
        .kind = ATTNRUN_TENSOR, .dtype = dtype, .rank = view->ndim, .data = view->buf
    };
    int64_t dense = view->itemsize;
    for (int i = view->ndim - 1; i >= 0; i--) {
        t->dims[i] = view->shape[i];
        t->strides[i] = view->strides != NULL ? view->strides[i] : dense;
        if (view->strides == NULL) /* arrays of ctypes give none, though asked for them */
            dense *= view->shape[i];
    }
    return 1;
}

static int bind_buffer(PyObject *value, struct bound_value *bound)
{
    if (PyBytes_Check(value) || !PyObject_CheckBuffer(value))
        return 0;
    if (PyObject_GetBuffer(value, &bound->buffer, PyBUF_RECORDS_RO) != 0) {
        PyErr_Clear(); /* a type that the buffer protocol lacks: bfloat16 of ml_dtypes */
        return 0;
    }
    bound->has_buffer = true;
    const int done = view_buffer(bound);
    if (done == 0) {
        PyBuffer_Release(&bound->buffer);
        bound->has_buffer = false;
    }
    return done;
}

/* A shape tuple into dims; -1 with an exception. */
static int read_shape(PyObject *shape, int64_t *dims)
{
    const Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > ATTNRUN_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "an array of %zd dims; at most 8 are supported",
                     rank);
        return -1;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (dims[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a negative dim");
            return -1;
        }
    }
    return rank < 0 ? -1 : (int)rank;
}

static int make_tensor(int32_t dtype, PyObject *shape, void *data, Py_ssize_t bytes,
                       attnrun_tensor *tensor)
{
    int64_t dims[ATTNRUN_MAX_RANK];
    const int rank = read_shape(shape, dims);
    if (rank < 0)
        return -1;
    const attnrun_status status = attnrun_tensor_make(dtype, rank, dims, data, tensor);
    if (status != ATTNRUN_OK) {
        binding_raise(status);
        return -1;
    }
    if (attnrun_tensor_bytes(tensor) > bytes) {
        PyErr_SetString(PyExc_ValueError, "the memory is smaller than its shape");
        return -1;
    }
    return 0;
}

static int bind_strings(PyObject *list, PyObject *shape, struct bound_value *bound)
{
    const Py_ssize_t n = PyList_Size(list);
    attnrun_string *strings = calloc((size_t)n + 1, sizeof *strings);
    bound->memory = strings;
    if (n < 0 || strings == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &text, &length) != 0)
            return -1;
        strings[i] = (attnrun_string){ text, length };
    }
    return make_tensor(ATTNRUN_STRING, shape, strings, n * (Py_ssize_t)sizeof *strings,
                       &bound->tensor);
}

/* What a sequence or an optional of this kind holds. */
static int32_t kind_of_part(int32_t kind)
{
    return kind == ATTNRUN_OPTIONAL_SEQUENCE ? ATTNRUN_SEQUENCE
           : kind == ATTNRUN_MAP_SEQUENCE    ? ATTNRUN_MAP
                                             : ATTNRUN_TENSOR;
}

/* The values of a list or tuple, each bound, as one tensor of tensors. */
static int bind_parts(PyObject *values, int32_t kind, int32_t dtype,
                      struct bound_value *bound)
{
    const bool optional = PyTuple_Check(values);
    const Py_ssize_t n = PySequence_Size(values);
    bound->parts = calloc((size_t)n + 1, sizeof *bound->parts);
    attnrun_tensor *tensors = bound->memory = calloc((size_t)n + 1, sizeof *tensors);
    if (n < 0 || bound->parts == NULL || tensors == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *part = PySequence_GetItem(values, i);
        bound->n_parts = i + 1;
        const bool failed = part == NULL || value_bind(part, kind_of_part(kind), dtype,
                                                       &bound->parts[i]) != 0;
        Py_XDECREF(part);
        if (failed)
            return -1;
        tensors[i] = bound->parts[i].tensor;
    }
    const int32_t list = kind == ATTNRUN_MAP_SEQUENCE ? kind : ATTNRUN_SEQUENCE;
    bound->tensor = (attnrun_tensor){ .kind = optional ? kind : list,
                                      .dtype = dtype,
                                      .rank = optional ? 0 : 1,
                                      .dims = { optional ? 0 : n },
                                      .data = optional && n == 0 ? NULL : tensors };
    if (n > 0)
        bound->tensor.dtype = tensors[0].dtype;
    return 0;
}

/* The keys and values of a map. */
static int bind_map(PyObject *columns, int32_t dtype, struct bound_value *bound)
{
    bound->parts = calloc(2, sizeof *bound->parts);
    attnrun_tensor *tensors = bound->memory = calloc(2, sizeof *tensors);
    if (bound->parts == NULL || tensors == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        bound->n_parts = i + 1;
        if (value_bind(PyTuple_GetItem(columns, i), ATTNRUN_TENSOR, i == 1 ? dtype : 0,
                       &bound->parts[i]) != 0)
            return -1;
        tensors[i] = bound->parts[i].tensor;
    }
    bound->tensor = (attnrun_tensor){ .kind = ATTNRUN_MAP,
                                      .dtype = tensors[1].dtype,
                                      .rank = 1,
                                      .dims = { tensors[1].dims[0] },
                                      .data = tensors };
    return 0;
}

static int bind_native(PyObject *native, int32_t kind, int32_t dtype,
                       struct bound_value *bound)
{
    bound->keep = native;
    const Py_ssize_t n = PyTuple_Check(native) ? PyTuple_Size(native) : -1;
    if (PyList_Check(native) || n == 0 || n == 1)
        return bind_parts(native, kind, dtype, bound);
    PyObject *first = n > 0 ? PyTuple_GetItem(native, 0) : NULL;
    if (n == 2 && PyList_Check(first))
        return bind_strings(first, PyTuple_GetItem(native, 1), bound);
    if (n == 2)
        return bind_map(native, dtype, bound);
    if (n != 3) {
        PyErr_SetString(PyExc_TypeError, "to_native() returned an unknown object");
        return -1;
    }
    if (PyObject_GetBuffer(first, &bound->buffer, PyBUF_SIMPLE) != 0)
        return -1;
    bound->has_buffer = true;
    return make_tensor((int32_t)PyLong_AsLong(PyTuple_GetItem(native, 1)),
                       PyTuple_GetItem(native, 2), bound->buffer.buf, bound->buffer.len,
                       &bound->tensor);
}

/* Bytes or words for a model that takes a type that numpy lacks: to_native() knows how its
 * elements lie in them. */
static bool holds_codes(const struct bound_value *bound, int32_t dtype)
{
    const int32_t given = bound->tensor.dtype;
    return dtype > 0 && (given == ATTNRUN_U8 || given == ATTNRUN_U16) &&
           PyTuple_GetItem(binding_hooks.dtypes, dtype) == Py_None;
}

int value_bind(PyObject *value, int32_t kind, int32_t dtype, struct bound_value *bound)
{
    memset(bound, 0, sizeof *bound);
    int done = 0;
    if (kind <= ATTNRUN_TENSOR && dtype != ATTNRUN_STRING) {
        done = bind_buffer(value, bound);
        if (done == 1 && holds_codes(bound, dtype)) {
            value_release(bound);
            done = 0;
        }
        /* a view of bfloat16 has the buffer protocol in vain */
        if (done == 0 && (PyObject_CheckBuffer(value) == 0 ||
                          Py_TYPE(value) == (PyTypeObject *)tensor_type))
            done = dlpack_bind(value, bound);
    }
    if (done == 0) {
        PyObject *native = PyObject_CallFunction(binding_hooks.to_native, "Oii", value,
                                                 (int)kind, (int)dtype);
        done = native == NULL ? -1 : bind_native(native, kind, dtype, bound);
    }
    if (done >= 0)
        return 0;
    value_release(bound);
    return -1;
}

int value_bind_output(PyObject *value, int32_t dtype, struct bound_value *bound)
{
    if (value_bind(value, VALUE_OUTPUT, dtype, bound) != 0)
        return -1;
    if ((bound->has_buffer && bound->buffer.readonly) || bound->memory != NULL) {
        value_release(bound);
        PyErr_SetString(PyExc_ValueError,
                        "an output needs writable memory of its own type");
        return -1;
    }
    return 0;
}

void value_release(struct bound_value *bound)
{
    for (int64_t i = 0; i < bound->n_parts; i++)
        value_release(&bound->parts[i]);
    if (bound->has_buffer)
        PyBuffer_Release(&bound->buffer);
    Py_CLEAR(bound->keep);
    free(bound->memory);
    free(bound->parts);
    memset(bound, 0, sizeof *bound);
}

/* ---- out ---- */

PyObject *value_shape(const attnrun_tensor *tensor)
{
    PyObject *shape = PyTuple_New(tensor->rank);
    for (int32_t i = 0; shape != NULL && i < tensor->rank; i++) {
        PyObject *dim = PyLong_FromLongLong(tensor->dims[i]);
        if (dim == NULL || PyTuple_SetItem(shape, i, dim) != 0)
            Py_CLEAR(shape);
    }
    return shape;
}

/* Copies a tensor of any strides into dense memory. */
static void copy_dense(const attnrun_tensor *t, char *to)
{
    const int64_t item = attnrun_dtype_bits(t->dtype) / 8;
    int64_t run = item, index[ATTNRUN_MAX_RANK] = { 0 };
    int32_t outer = t->rank; /* dims below it are walked over, the others are dense */
    if (attnrun_dtype_bits(t->dtype) % 8 != 0)
        outer = 0, run = attnrun_tensor_bytes(t);
    while (outer > 0 && (t->strides[outer - 1] == run || t->dims[outer - 1] == 1))
        run *= t->dims[--outer];
    if (run == 0 || attnrun_tensor_count(t) == 0)
        return;
    for (;;) {
        const char *from = t->data;
        for (int32_t d = 0; d < outer; d++)
            from += index[d] * t->strides[d];
        memcpy(to, from, (size_t)run);
        to += run;
        int32_t d = outer - 1;
        while (d >= 0 && ++index[d] == t->dims[d])
            index[d--] = 0;
        if (d < 0)
            return;
    }
}

static PyObject *copy_strings(const attnrun_tensor *t, PyObject *shape)
{
    const int64_t n = attnrun_tensor_count(t);
    PyObject *list = PyList_New((Py_ssize_t)n);
    attnrun_string *dense = malloc((size_t)(n + 1) * sizeof *dense);
    if (dense != NULL)
        copy_dense(t, (char *)dense);
    for (int64_t i = 0; list != NULL && dense != NULL && i < n; i++) {
        PyObject *text = PyBytes_FromStringAndSize(dense[i].data, (Py_ssize_t)dense[i].n);
        if (text == NULL || PyList_SetItem(list, (Py_ssize_t)i, text) != 0)
            Py_CLEAR(list);
    }
    PyObject *array = NULL;
    if (dense == NULL)
        PyErr_NoMemory();
    else if (list != NULL)
        array = PyObject_CallFunctionObjArgs(binding_hooks.to_strings, list, shape, NULL);
    free(dense);
    Py_XDECREF(list);
    return array;
}

/* numpy.empty(shape, dtype) with the tensor's bytes in it. */
static PyObject *copy_to_array(const attnrun_tensor *t, PyObject *shape, PyObject *dtype)
{
    PyObject *array =
        PyObject_CallFunctionObjArgs(binding_hooks.empty, shape, dtype, NULL);
    Py_buffer view;
    if (array == NULL || PyObject_GetBuffer(array, &view, PyBUF_WRITABLE) != 0) {
        Py_XDECREF(array);
        return NULL;
    }
    copy_dense(t, view.buf);
    PyBuffer_Release(&view);
    return array;
}

static PyObject *copy_tensor(const attnrun_tensor *t)
{
    PyObject *shape = value_shape(t), *array = NULL;
    if (shape == NULL)
        return NULL;
    PyObject *dtype = PyTuple_GetItem(binding_hooks.dtypes, t->dtype);
    if (t->dtype == ATTNRUN_STRING) {
        array = copy_strings(t, shape);
    } else if (dtype != NULL && dtype != Py_None) {
        array = copy_to_array(t, shape, dtype);
    } else if (dtype != NULL) {
        PyObject *flat = Py_BuildValue("(L)", (long long)attnrun_tensor_bytes(t));
        PyObject *bytes = PyTuple_GetItem(binding_hooks.dtypes, ATTNRUN_U8);
        PyObject *raw = flat ? copy_to_array(t, flat, bytes) : NULL;
        if (raw != NULL)
            array = PyObject_CallFunction(binding_hooks.to_python, "OiO", raw,
                                          (int)t->dtype, shape);
        Py_XDECREF(raw);
        Py_XDECREF(flat);
    }
    Py_DECREF(shape);
    return array;
}

/* {key: value} of Python's own types. */
static PyObject *copy_map(const attnrun_tensor *columns)
{
    PyObject *lists[2] = { NULL, NULL }, *map = PyDict_New();
    for (int i = 0; map != NULL && i < 2; i++) {
        PyObject *array = copy_tensor(&columns[i]);
        lists[i] = array ? PyObject_CallMethod(array, "tolist", NULL) : NULL;
        Py_XDECREF(array);
        if (lists[i] == NULL)
            Py_CLEAR(map);
    }
    for (Py_ssize_t k = 0; map != NULL && k < PyList_Size(lists[0]); k++)
        if (PyDict_SetItem(map, PyList_GetItem(lists[0], k),
                           PyList_GetItem(lists[1], k)) != 0)
            Py_CLEAR(map);
    Py_XDECREF(lists[0]);
    Py_XDECREF(lists[1]);
    return map;
}

PyObject *value_copy(const attnrun_tensor *t)
{
    const attnrun_tensor *parts = t->data;
    if (t->kind == ATTNRUN_TENSOR)
        return copy_tensor(t);
    if (t->kind == ATTNRUN_MAP)
        return copy_map(parts);
    if (t->kind != ATTNRUN_SEQUENCE && t->kind != ATTNRUN_MAP_SEQUENCE)
        return t->kind == ATTNRUN_ABSENT || parts == NULL ? Py_NewRef(Py_None)
                                                          : value_copy(parts);
    PyObject *list = PyList_New((Py_ssize_t)t->dims[0]);
    for (int64_t i = 0; list != NULL && i < t->dims[0]; i++) {
        PyObject *part = value_copy(&parts[i]);
        if (part == NULL || PyList_SetItem(list, (Py_ssize_t)i, part) != 0)
            Py_CLEAR(list);
    }
    return list;
}

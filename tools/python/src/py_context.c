/* py_context.c - runs: the type Context.
 *
 * In: inputs by name. Out: arrays that own a copy, or (Context.view) tensors over the memory
 * of the context; as long as one of these lives, the context refuses to run, as a bytearray
 * with exports refuses to grow. A context is used by one thread at a time: a second one gets
 * an exception. The GIL is released while the library plans and computes. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

typedef struct context_object {
    PyObject_HEAD attnrun_context *context;
    model_object *model;
    struct bound_value *inputs, *outputs; /* of the run that is under way */
    attnrun_tensor *lent; /* by output: the caller's memory that the last success wrote */
    int32_t busy;         /* atomic */
    Py_ssize_t views;     /* atomic: tensors that show this context's memory */
} context_object;

/* ---- life ---- */

PyObject *context_new(model_object *model)
{
    attnrun_context *made = NULL;
    attnrun_status status;
    const bool interruptible = interrupt_begin(NULL, &model->cancel);
    Py_BEGIN_ALLOW_THREADS status = attnrun_context_create(model->model, &made);
    Py_END_ALLOW_THREADS if (interruptible) interrupt_end();
    if (status != ATTNRUN_OK)
        return binding_raise_stopped(status);
    context_object *c = PyObject_New(context_object, (PyTypeObject *)context_type);
    if (c == NULL) {
        attnrun_context_destroy(made);
        return NULL;
    }
    c->context = made;
    c->model = (model_object *)Py_NewRef((PyObject *)model);
    c->busy = 0;
    c->views = 0;
    c->inputs = calloc((size_t)model->n_inputs + 1, sizeof *c->inputs);
    c->outputs = calloc((size_t)model->n_outputs + 1, sizeof *c->outputs);
    c->lent = calloc((size_t)model->n_outputs + 1, sizeof *c->lent);
    if (c->inputs == NULL || c->outputs == NULL || c->lent == NULL) {
        Py_DECREF((PyObject *)c);
        return PyErr_NoMemory();
    }
    return (PyObject *)c;
}

static PyObject *context_create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)type;
    PyObject *model;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "Context takes one argument, a model");
    return PyArg_ParseTuple(args, "O!", model_type, &model)
               ? context_new((model_object *)model)
               : NULL;
}

static void context_dealloc(PyObject *self)
{
    context_object *c = (context_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    attnrun_context_destroy(c->context);
    Py_XDECREF((PyObject *)c->model);
    free(c->inputs);
    free(c->outputs);
    free(c->lent);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static bool context_take(context_object *c)
{
    int32_t free_to_use = 0;
    if (__atomic_compare_exchange_n(&c->busy, &free_to_use, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return true;
    binding_refuse(ATTNRUN_E_USAGE, "",
                   "another thread uses this context; make one for each thread");
    return false;
}

static bool context_take_to_write(context_object *c)
{
    if (!context_take(c))
        return false;
    const Py_ssize_t views = __atomic_load_n(&c->views, __ATOMIC_ACQUIRE);
    if (views == 0)
        return true;
    __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
    PyErr_Format(PyExc_BufferError,
                 views == 1
                     ? "%zd tensor of view() still shows the memory of this context; "
                       "delete it before the next run"
                     : "%zd tensors of view() still show the memory of this context; "
                       "delete them before the next run",
                 views);
    return false;
}

static void context_give(context_object *c)
{
    __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
}

/* ---- binding ---- */

static int32_t index_of(PyObject *names, PyObject *name)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *candidate = PyTuple_GetItem(names, i);
        if (candidate == name || PyObject_RichCompareBool(candidate, name, Py_EQ) == 1)
            return (int32_t)i;
    }
    return -1;
}

static int refuse_name(const char *what, PyObject *names, PyObject *name)
{
    PyObject *text = binding_utf8(PyObject_Str(name)),
             *known = binding_utf8(PyObject_Repr(names));
    if (text != NULL && known != NULL)
        binding_refuse(ATTNRUN_E_INPUT, PyBytes_AsString(text),
                       "the model has no %s '%.200s'; it has %.400s", what,
                       PyBytes_AsString(text), PyBytes_AsString(known));
    Py_XDECREF(text);
    Py_XDECREF(known);
    return -1;
}

/* A name of `feeds` that is none of `names`: -1 with an exception; else 0. */
static int refuse_unknown(const char *what, PyObject *names, PyObject *feeds)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(feeds, &at, &key, &value))
        if (index_of(names, key) < 0)
            return refuse_name(what, names, key);
    return 0;
}

static int bind_inputs(context_object *c, PyObject *feeds)
{
    const model_object *m = c->model;
    Py_ssize_t found = 0;
    for (int32_t i = 0; i < m->n_inputs; i++) {
        PyObject *value =
            PyDict_GetItemWithError(feeds, PyTuple_GetItem(m->input_names, i));
        if (value == NULL && PyErr_Occurred())
            return -1;
        if (value == NULL)
            continue;
        found++;
        if (value_bind(value, m->input_kinds[i], m->input_dtypes[i], &c->inputs[i]) != 0)
            return binding_refuse_value(ATTNRUN_E_INPUT, "input",
                                        PyTuple_GetItem(m->input_names, i));
        const attnrun_status status =
            attnrun_set_input(c->context, i, &c->inputs[i].tensor);
        if (status != ATTNRUN_OK) {
            binding_raise(status);
            return -1;
        }
    }
    return found == PyDict_Size(feeds) ? 0
                                       : refuse_unknown("input", m->input_names, feeds);
}

static int bind_outputs(context_object *c, PyObject *out)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(out, &at, &key, &value)) {
        const int32_t i = index_of(c->model->output_names, key);
        attnrun_value_info info = { .struct_size = sizeof info };
        if (i < 0)
            return refuse_name("output", c->model->output_names, key);
        attnrun_status status = attnrun_model_output(c->model->model, i, &info);
        if (status == ATTNRUN_OK &&
            value_bind_output(value, info.dtype, &c->outputs[i]) != 0)
            return binding_refuse_value(ATTNRUN_E_USAGE, "output", key);
        if (status == ATTNRUN_OK)
            status = attnrun_set_output(c->context, i, &c->outputs[i].tensor);
        if (status != ATTNRUN_OK) {
            binding_raise(status);
            return -1;
        }
    }
    return 0;
}

/* The library must not keep what Python may free. */
static void unbind(context_object *c, bool outputs)
{
    for (int32_t i = 0; i < c->model->n_inputs; i++) {
        attnrun_set_input(c->context, i, NULL);
        value_release(&c->inputs[i]);
    }
    for (int32_t i = 0; outputs && i < c->model->n_outputs; i++) {
        attnrun_set_output(c->context, i, NULL);
        value_release(&c->outputs[i]);
    }
}

/* ---- runs ---- */

static int run_bound(context_object *c, const attnrun_run_options *options)
{
    const bool interruptible = interrupt_begin(c->context, NULL);
    attnrun_status status;
    Py_BEGIN_ALLOW_THREADS status = attnrun_run(c->context, options);
    Py_END_ALLOW_THREADS if (interruptible) interrupt_end();
    for (int32_t i = 0; status == ATTNRUN_OK && i < c->model->n_outputs; i++)
        c->lent[i] = c->outputs[i].tensor;
    if (status == ATTNRUN_OK)
        return 0;
    binding_raise_stopped(status);
    return -1;
}

/* What a run gives back: {name: array}; the caller's own object where it gave `out`. */
static PyObject *collect(context_object *c, PyObject *wanted, PyObject *out)
{
    PyObject *results = PyDict_New(), *names = wanted ? wanted : c->model->output_names;
    for (Py_ssize_t k = 0; results != NULL && k < PyTuple_Size(names); k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        PyObject *value = out ? PyDict_GetItemWithError(out, name) : NULL;
        attnrun_tensor tensor;
        if (value != NULL) {
            Py_INCREF(value);
        } else if (!PyErr_Occurred()) {
            const int32_t i =
                wanted ? index_of(c->model->output_names, name) : (int32_t)k;
            const attnrun_status status =
                i < 0 ? ATTNRUN_E_INPUT : attnrun_output(c->context, i, &tensor);
            if (i < 0)
                refuse_name("output", c->model->output_names, name);
            else
                value = status ? binding_raise(status) : value_copy(&tensor);
        }
        if (value == NULL || PyDict_SetItem(results, name, value) != 0)
            Py_CLEAR(results);
        Py_XDECREF(value);
    }
    return results;
}

static PyObject *run_taken(context_object *c, PyObject *feeds, PyObject *wanted,
                           PyObject *out, const attnrun_run_options *options)
{
    PyObject *results = NULL;
    if (bind_inputs(c, feeds) == 0 && (out == NULL || bind_outputs(c, out) == 0) &&
        run_bound(c, options) == 0)
        results = collect(c, wanted, out);
    unbind(c, out != NULL);
    return results;
}

static PyObject *context_run(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self;
    PyObject *feeds, *wanted, *out;
    int validate, all_tokens = 0;
    long long timeout;
    if (!PyArg_ParseTuple(args, "O!OOpL|p", &PyDict_Type, &feeds, &wanted, &out,
                          &validate, &timeout, &all_tokens))
        return NULL;
    if (wanted != Py_None && !PyTuple_Check(wanted))
        return PyErr_Format(PyExc_TypeError, "outputs must be a tuple of names");
    if (out != Py_None && !PyDict_Check(out))
        return PyErr_Format(PyExc_TypeError, "out must be a dict of arrays");
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .validate = validate,
                                          .timeout_us = timeout,
                                          .all_tokens = all_tokens };
    if (!context_take_to_write(c))
        return NULL;
    PyObject *results = run_taken(c, feeds, wanted == Py_None ? NULL : wanted,
                                  out == Py_None ? NULL : out, &options);
    context_give(c);
    return results;
}

PyObject *context_call(PyObject *self, PyObject *feeds)
{
    context_object *c = (context_object *)self;
    PyObject *results = NULL;
    if (context_take_to_write(c)) {
        results = run_taken(c, feeds, NULL, NULL, NULL);
        context_give(c);
    }
    return results;
}

/* Whether a tensor lies in memory of the caller, be it as a part of an output there. */
static bool is_lent(const context_object *c, const attnrun_tensor *tensor)
{
    for (int32_t i = 0; i < c->model->n_outputs; i++) {
        const char *begin = c->lent[i].data, *at = tensor->data;
        if (begin != NULL && at >= begin &&
            at < begin + attnrun_tensor_bytes(&c->lent[i]))
            return true;
    }
    return false;
}

static PyObject *context_view(PyObject *self, PyObject *name)
{
    context_object *c = (context_object *)self;
    const int32_t i = index_of(c->model->output_names, name);
    attnrun_tensor tensor;
    if (i < 0) {
        refuse_name("output", c->model->output_names, name);
        return NULL;
    }
    if (!context_take(c))
        return NULL;
    const attnrun_status status = attnrun_output(c->context, i, &tensor);
    PyObject *made = NULL;
    if (status != ATTNRUN_OK)
        binding_raise(status);
    else if (is_lent(c, &tensor)) /* nothing keeps it alive any more */
        binding_refuse(
            ATTNRUN_E_USAGE, "",
            "the last run wrote this output into the memory of out=, which has "
            "no view");
    else if (tensor.kind != ATTNRUN_TENSOR || tensor.dtype == ATTNRUN_STRING ||
             attnrun_dtype_bits(tensor.dtype) % 8 != 0)
        PyErr_SetString(PyExc_TypeError, "strings, sequences and types below 8 bits have "
                                         "no view");
    else
        made = tensor_new(self, &tensor);
    __atomic_add_fetch(&c->views, made != NULL, __ATOMIC_RELAXED);
    context_give(c);
    return made;
}

void context_drop_view(PyObject *self)
{
    __atomic_sub_fetch(&((context_object *)self)->views, 1, __ATOMIC_RELEASE);
    Py_DECREF(self);
}

/* ---- plans and states ---- */

static void refuse_shape(PyObject *name)
{
    PyObject *text = binding_utf8(Py_NewRef(name));
    if (text != NULL)
        binding_refuse(ATTNRUN_E_INPUT, PyBytes_AsString(text),
                       "the shape of input '%.200s' is missing, or is not a tuple of at "
                       "most 8 numbers",
                       PyBytes_AsString(text));
    Py_XDECREF(text);
}

/* {input: shape} as tensors without data. */
static int read_shapes(context_object *c, PyObject *shapes, attnrun_tensor *tensors)
{
    const model_object *m = c->model;
    for (int32_t i = 0; i < m->n_inputs; i++) {
        PyObject *name = PyTuple_GetItem(m->input_names, i);
        PyObject *shape = PyDict_GetItemWithError(shapes, name);
        int64_t dims[ATTNRUN_MAX_RANK];
        if (shape == NULL || !PyTuple_Check(shape) ||
            PyTuple_Size(shape) > ATTNRUN_MAX_RANK) {
            if (!PyErr_Occurred())
                refuse_shape(name);
            return -1;
        }
        const Py_ssize_t rank = PyTuple_Size(shape);
        for (Py_ssize_t d = 0; d < rank; d++)
            dims[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        if (PyErr_Occurred())
            return -1;
        const attnrun_status status = attnrun_tensor_make(
            m->input_dtypes[i], (int32_t)rank, dims, NULL, &tensors[i]);
        if (status != ATTNRUN_OK) {
            binding_raise(status);
            return -1;
        }
    }
    return refuse_unknown("input", m->input_names, shapes);
}

static PyObject *plan_taken(context_object *c, PyObject *shapes, int reserve)
{
    attnrun_tensor *tensors = calloc((size_t)c->model->n_inputs + 1, sizeof *tensors);
    attnrun_plan_info info = { .struct_size = sizeof info };
    if (tensors == NULL)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    if (read_shapes(c, shapes, tensors) == 0) {
        attnrun_status status;
        Py_BEGIN_ALLOW_THREADS status = attnrun_plan(c->context, tensors, &info);
        if (status == ATTNRUN_OK && reserve)
            status = attnrun_reserve(c->context, tensors);
        Py_END_ALLOW_THREADS result =
            status ? binding_raise(status)
                   : Py_BuildValue(
                         "(LLLLLiiiNNLi)", (long long)info.arena_bytes,
                         (long long)info.lower_bound_bytes, (long long)info.weights_bytes,
                         (long long)info.packed_bytes, (long long)info.folded_bytes,
                         (int)info.n_steps, (int)info.n_dynamic_steps, (int)info.n_blocks,
                         binding_text(info.peak_node), binding_text(info.peak_op),
                         (long long)info.side_heap_bytes, (int)info.n_unbounded_steps);
    }
    free(tensors);
    return result;
}

static PyObject *context_plan(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self;
    PyObject *shapes;
    int reserve;
    if (!PyArg_ParseTuple(args, "O!p", &PyDict_Type, &shapes, &reserve) ||
        !context_take_to_write(c))
        return NULL;
    PyObject *result = plan_taken(c, shapes, reserve);
    context_give(c);
    return result;
}

static PyObject *context_add_state(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self;
    PyObject *input, *output;
    long long capacity;
    if (!PyArg_ParseTuple(args, "UUL", &input, &output, &capacity) ||
        !context_take_to_write(c))
        return NULL;
    const attnrun_status status =
        attnrun_add_state(c->context, index_of(c->model->input_names, input),
                          index_of(c->model->output_names, output), capacity);
    context_give(c);
    return status ? binding_raise(status) : Py_NewRef(Py_None);
}

static PyObject *context_truncate_state(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self;
    PyObject *input;
    long long length;
    if (!PyArg_ParseTuple(args, "UL", &input, &length) || !context_take_to_write(c))
        return NULL;
    const attnrun_status status = attnrun_truncate_state(
        c->context, index_of(c->model->input_names, input), length);
    context_give(c);
    return status ? binding_raise(status) : Py_NewRef(Py_None);
}

/* rows: what a list of n numbers says; NULL with the exception. */
static int64_t *rows_of(PyObject *list, Py_ssize_t n)
{
    int64_t *rows = PyMem_Malloc(((size_t)n + 1) * sizeof *rows);
    if (rows == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        rows[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
    if (!PyErr_Occurred())
        return rows;
    PyMem_Free(rows);
    return NULL;
}

static PyObject *context_reorder_states(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self;
    PyObject *input, *list;
    int axis;
    if (!PyArg_ParseTuple(args, "OO!i", &input, &PyList_Type, &list, &axis))
        return NULL;
    const int32_t index = input == Py_None ? -1 : index_of(c->model->input_names, input);
    if (index < 0 && input != Py_None) {
        refuse_name("input", c->model->input_names, input);
        return NULL;
    }
    const Py_ssize_t n = PyList_Size(list);
    int64_t *rows = rows_of(list, n);
    if (rows == NULL || !context_take_to_write(c)) {
        PyMem_Free(rows);
        return NULL;
    }
    const attnrun_status status =
        attnrun_reorder_states(c->context, index, axis, rows, n);
    PyMem_Free(rows);
    context_give(c);
    return status ? binding_raise(status) : Py_NewRef(Py_None);
}

static PyObject *context_sequence(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self;
    long long sequence;
    int drop;
    if (!PyArg_ParseTuple(args, "Lp", &sequence, &drop) || !context_take_to_write(c))
        return NULL;
    const attnrun_status status = drop ? attnrun_drop_sequence(c->context, sequence)
                                       : attnrun_select_sequence(c->context, sequence);
    context_give(c);
    return status ? binding_raise(status) : Py_NewRef(Py_None);
}

static PyObject *context_copy_states(PyObject *self, PyObject *args)
{
    context_object *c = (context_object *)self, *from;
    PyObject *other;
    long long sequence;
    if (!PyArg_ParseTuple(args, "O!L", Py_TYPE(self), &other, &sequence))
        return NULL;
    from = (context_object *)other;
    if (!context_take_to_write(c))
        return NULL;
    if (from != c && !context_take(from)) {
        context_give(c);
        return NULL;
    }
    const attnrun_status status =
        attnrun_copy_states(c->context, from->context, sequence);
    if (from != c)
        context_give(from);
    context_give(c);
    return status ? binding_raise(status) : Py_NewRef(Py_None);
}

static PyObject *context_reset(PyObject *self, PyObject *trim)
{
    context_object *c = (context_object *)self;
    const int also_trim = PyObject_IsTrue(trim);
    if (also_trim < 0 || !context_take_to_write(c))
        return NULL;
    if (also_trim)
        attnrun_trim(c->context);
    else
        attnrun_reset_states(c->context);
    context_give(c);
    return Py_NewRef(Py_None);
}

static PyObject *context_cancel(PyObject *self, PyObject *none)
{
    (void)none;
    attnrun_cancel(((context_object *)self)->context);
    return Py_NewRef(Py_None);
}

static PyObject *context_memory(PyObject *self, PyObject *none)
{
    (void)none;
    context_object *c = (context_object *)self;
    attnrun_memory_info info = { .struct_size = sizeof info };
    if (!context_take(c))
        return NULL;
    const attnrun_status status = attnrun_context_memory(c->context, &info);
    context_give(c);
    return status ? binding_raise(status)
                  : Py_BuildValue("(LLLi)", (long long)info.arena_bytes,
                                  (long long)info.arena_used_bytes,
                                  (long long)info.side_heap_bytes, (int)info.n_plans);
}

static PyMethodDef context_methods[] = {
    { "_run", context_run, METH_VARARGS, NULL },
    { "view", context_view, METH_O,
      "view(name)\n--\n\nThe output `name` of the last run, without a copy: a Tensor "
      "over "
      "the context's memory.\nThe context refuses to run as long as the Tensor is "
      "alive." },
    { "_plan", context_plan, METH_VARARGS, NULL },
    { "_add_state", context_add_state, METH_VARARGS, NULL },
    { "_truncate_state", context_truncate_state, METH_VARARGS, NULL },
    { "_reorder_states", context_reorder_states, METH_VARARGS, NULL },
    { "_sequence", context_sequence, METH_VARARGS, NULL },
    { "_copy_states", context_copy_states, METH_VARARGS, NULL },
    { "_reset", context_reset, METH_O, NULL },
    { "_memory", context_memory, METH_NOARGS, NULL },
    { "cancel", context_cancel, METH_NOARGS,
      "cancel()\n--\n\nStops the run of another thread, which then raises Error "
      "(CANCELLED)." },
    { NULL, NULL, 0, NULL }
};

static PyType_Slot context_slots[] = { { Py_tp_new, context_create },
                                       { Py_tp_dealloc, context_dealloc },
                                       { Py_tp_methods, context_methods },
                                       { 0, NULL } };
PyType_Spec context_spec = { "attnrun._attnrun.Context", sizeof(context_object), 0,
                             Py_TPFLAGS_DEFAULT, context_slots };

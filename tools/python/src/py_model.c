/* py_model.c - the types Runtime, Model (one loaded file) and Pool (a model that is
 * called).
 *
 * A Pool keeps contexts that are idle, so that any number of threads may call one model. It is
 * an object of its own because a context holds its model: in one object that would be a cycle
 * that only the garbage collector ends. */
#include "binding.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- Runtime ---- */

typedef struct runtime_object {
    PyObject_HEAD attnrun_runtime *runtime;
    PyObject *log;
} runtime_object;

static void pass_log(void *user, int32_t level, const char *message)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallFunction(user, "iN", (int)level, binding_text(message));
    if (done == NULL)
        PyErr_WriteUnraisable(user);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

static PyObject *runtime_create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int threads = 0;
    const char *isa = NULL;
    unsigned long long max_memory = 0;
    PyObject *log = Py_None;
    static char *names[] = { "threads", "isa", "max_memory", "log", NULL };
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|izKO", names, &threads, &isa,
                                     &max_memory, &log))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    runtime_object *self = (runtime_object *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->log = log == Py_None ? NULL : Py_NewRef(log);
    const attnrun_runtime_options options = { .struct_size = sizeof options,
                                              .threads = threads,
                                              .isa = isa,
                                              .max_memory = max_memory,
                                              .log = self->log ? pass_log : NULL,
                                              .log_user = self->log };
    const attnrun_status status = attnrun_runtime_create(&options, &self->runtime);
    if (status == ATTNRUN_OK)
        return (PyObject *)self;
    binding_raise(status);
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static void runtime_dealloc(PyObject *self)
{
    runtime_object *r = (runtime_object *)self;
    attnrun_runtime_destroy(r->runtime);
    Py_XDECREF(r->log);
    free_object(self);
}

static PyObject *runtime_info(PyObject *self, PyObject *none)
{
    (void)none;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    const attnrun_status status =
        attnrun_runtime_query(((runtime_object *)self)->runtime, &info);
    return status ? binding_raise(status)
                  : Py_BuildValue("{s:i,s:s,s:s,s:s,s:s,s:K,s:K,s:K}", "threads",
                                  (int)info.threads, "isa", info.isa, "isas", info.isas,
                                  "cpu_features", info.cpu_features, "blas", info.blas,
                                  "max_memory", (unsigned long long)info.max_memory,
                                  "used_memory", (unsigned long long)info.used_memory,
                                  "peak_memory", (unsigned long long)info.peak_memory);
}

static PyObject *runtime_load_plugin(PyObject *self, PyObject *path)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, (void *)&bytes))
        return NULL;
    const attnrun_status status =
        attnrun_load_plugin(((runtime_object *)self)->runtime, PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    return status ? binding_raise(status) : Py_NewRef(Py_None);
}

static PyMethodDef runtime_methods[] = {
    { "info", runtime_info, METH_NOARGS,
      "info()\n--\n\nReturns the threads, the instruction set, the BLAS library and "
      "bytes of "
      "memory:\nthe budget, those that are held now, and the most that were held." },
    { "load_plugin", runtime_load_plugin, METH_O,
      "load_plugin(path)\n--\n\nAdds the operators of a shared library. Raises Error." },
    { NULL, NULL, 0, NULL }
};
static PyType_Slot runtime_slots[] = {
    { Py_tp_new, runtime_create },
    { Py_tp_dealloc, runtime_dealloc },
    { Py_tp_methods, runtime_methods },
    { Py_tp_doc,
      "Runtime(threads=0, isa=None, max_memory=0, log=None)\n--\n\n"
      "The threads, the instruction set ('base', 'avx2', ...), the memory "
      "budget in bytes and the\nlog of the models that are opened with it. With 0 "
      "and None the library chooses. The library\ncalls log(level, message) in the "
      "thread of the caller. Raises Error (USAGE)." },
    { 0, NULL }
};
PyType_Spec runtime_spec = { "attnrun.Runtime", sizeof(runtime_object), 0,
                             Py_TPFLAGS_DEFAULT, runtime_slots };

/* ---- Model ---- */

/* (name, kind, dtype number, dims or None, dtype number of keys): a dim is a number, or a str
 * where it is symbolic. */
static PyObject *describe(const attnrun_value_info *info)
{
    PyObject *dims = info->rank < 0 ? Py_NewRef(Py_None) : PyTuple_New(info->rank);
    for (int32_t i = 0; dims != NULL && i < info->rank; i++) {
        PyObject *dim = info->dims[i] >= 0 ? PyLong_FromLongLong(info->dims[i])
                                           : binding_name(info->dim_names[i]);
        if (dim == NULL || PyTuple_SetItem(dims, i, dim) != 0)
            Py_CLEAR(dims);
    }
    return dims == NULL
               ? NULL
               : Py_BuildValue("(NiiNi)", binding_name(info->name), (int)info->kind,
                               (int)info->dtype, dims, (int)info->key_dtype);
}

typedef attnrun_status (*value_query)(const attnrun_model *model, int32_t index,
                                      attnrun_value_info *info);

static PyObject *describe_all(model_object *m, int32_t n, value_query query)
{
    PyObject *list = PyTuple_New(n);
    for (int32_t i = 0; list != NULL && i < n; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        const attnrun_status status = query(m->model, i, &info);
        PyObject *one = status ? binding_raise(status) : describe(&info);
        if (one == NULL || PyTuple_SetItem(list, i, one) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *model_inputs(PyObject *self, void *closure)
{
    (void)closure;
    model_object *m = (model_object *)self;
    return describe_all(m, m->n_inputs, attnrun_model_input);
}

static PyObject *model_outputs(PyObject *self, void *closure)
{
    (void)closure;
    model_object *m = (model_object *)self;
    return describe_all(m, m->n_outputs, attnrun_model_output);
}

static PyObject *names_of(model_object *m, int32_t n, value_query query)
{
    PyObject *names = PyTuple_New(n);
    for (int32_t i = 0; names != NULL && i < n; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        PyObject *name = query(m->model, i, &info) ? NULL : binding_name(info.name);
        if (name != NULL)
            PyUnicode_InternInPlace(&name);
        if (name == NULL || PyTuple_SetItem(names, i, name) != 0)
            Py_CLEAR(names);
    }
    return names;
}

static int prepare(model_object *m)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    if (attnrun_model_query(m->model, &info) != ATTNRUN_OK)
        return -1;
    m->n_inputs = info.n_inputs;
    m->n_outputs = info.n_outputs;
    m->input_names = names_of(m, m->n_inputs, attnrun_model_input);
    m->output_names = names_of(m, m->n_outputs, attnrun_model_output);
    m->input_kinds = calloc((size_t)m->n_inputs + 1, sizeof *m->input_kinds);
    m->input_dtypes = calloc((size_t)m->n_inputs + 1, sizeof *m->input_dtypes);
    if (!m->input_names || !m->output_names || !m->input_kinds || !m->input_dtypes)
        return -1;
    for (int32_t i = 0; i < m->n_inputs; i++) {
        attnrun_value_info value = { .struct_size = sizeof value };
        if (attnrun_model_input(m->model, i, &value) != ATTNRUN_OK)
            return -1;
        m->input_kinds[i] = value.kind;
        m->input_dtypes[i] = value.dtype;
    }
    return 0;
}

/* ((symbol, size), …) as an array for PyMem_Free(); NULL with an exception. The symbols are those
 * of the tuple. */
static attnrun_fixed_dim *fixed_dims(PyObject *pairs)
{
    const Py_ssize_t n = PyTuple_Size(pairs);
    attnrun_fixed_dim *fixed = PyMem_Calloc((size_t)n + 1, sizeof *fixed);
    if (fixed == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; fixed != NULL && i < n; i++) {
        long long size;
        if (PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "sL", &fixed[i].symbol, &size)) {
            fixed[i].size = size;
        } else {
            PyMem_Free(fixed);
            fixed = NULL;
        }
    }
    return fixed;
}

/* Opens `path`, or what `bytes` holds: mapped where nobody can write it, else copied. */
static int open_source(model_object *m, PyObject *path, PyObject *bytes,
                       PyObject *runtime, attnrun_source *source)
{
    PyObject *encoded = NULL;
    m->runtime = runtime == Py_None ? NULL : Py_NewRef(runtime);
    if (path != Py_None) {
        if (!PyUnicode_FSConverter(path, (void *)&encoded))
            return -1;
        source->path = PyBytes_AsString(encoded);
    } else {
        if (PyObject_GetBuffer(bytes, &m->bytes, PyBUF_SIMPLE) != 0)
            return -1;
        m->has_bytes = true;
        source->data = m->bytes.buf;
        source->bytes = (uint64_t)m->bytes.len;
        source->flags |= PyBytes_Check(bytes) ? 0 : ATTNRUN_COPY;
    }
    source->cancel = &m->cancel;
    attnrun_status status;
    const bool interruptible = interrupt_begin(NULL, &m->cancel);
    Py_BEGIN_ALLOW_THREADS status = attnrun_model_open(
        m->runtime ? ((runtime_object *)m->runtime)->runtime : NULL, source, &m->model);
    Py_END_ALLOW_THREADS if (interruptible) interrupt_end();
    Py_XDECREF(encoded);
    if (status != ATTNRUN_OK) {
        binding_raise_stopped(status);
        return -1;
    }
    return 0;
}

static PyObject *model_create(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)keywords;
    PyObject *path, *bytes, *runtime, *dims;
    attnrun_source source = { .struct_size = sizeof source };
    int flags;
    if (!PyArg_ParseTuple(args, "OOOizziiO!", &path, &bytes, &runtime, &flags,
                          &source.external_dir, &source.disable_passes, &source.precision,
                          &source.ragged, &PyTuple_Type, &dims))
        return NULL;
    if (runtime != Py_None && Py_TYPE(runtime) != (PyTypeObject *)runtime_type)
        return PyErr_Format(PyExc_TypeError, "runtime must be an attnrun.Runtime");
    source.flags = (uint32_t)flags;
    attnrun_fixed_dim *fixed = fixed_dims(dims);
    if (fixed == NULL)
        return NULL;
    source.fixed_dims = fixed;
    source.n_fixed_dims = PyTuple_Size(dims);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    model_object *m = (model_object *)allocate(type, 0);
    const bool opened = m != NULL && open_source(m, path, bytes, runtime, &source) == 0;
    PyMem_Free(fixed);
    if (opened && prepare(m) == 0)
        return (PyObject *)m;
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_XDECREF((PyObject *)m);
    return NULL;
}

static void model_dealloc(PyObject *self)
{
    model_object *m = (model_object *)self;
    attnrun_model_release(m->model);
    if (m->has_bytes)
        PyBuffer_Release(&m->bytes);
    Py_XDECREF(m->runtime);
    Py_XDECREF(m->input_names);
    Py_XDECREF(m->output_names);
    free(m->input_kinds);
    free(m->input_dtypes);
    free_object(self);
}

static PyObject *model_metadata(model_object *m, int32_t n)
{
    PyObject *all = PyDict_New();
    for (int32_t i = 0; all != NULL && i < n; i++) {
        const char *key, *value;
        if (attnrun_model_metadata(m->model, i, &key, &value) != ATTNRUN_OK)
            continue;
        PyObject *name = binding_name(key), *text = binding_text(value);
        if (name == NULL || text == NULL || PyDict_SetItem(all, name, text) != 0)
            Py_CLEAR(all);
        Py_XDECREF(name);
        Py_XDECREF(text);
    }
    return all;
}

static PyObject *model_info(PyObject *self, void *closure)
{
    (void)closure;
    model_object *m = (model_object *)self;
    attnrun_model_info info = { .struct_size = sizeof info };
    const attnrun_status status = attnrun_model_query(m->model, &info);
    PyObject *metadata =
        status ? binding_raise(status) : model_metadata(m, info.n_metadata);
    return metadata == NULL
               ? NULL
               : Py_BuildValue(
                     "{s:L,s:L,s:i,s:L,s:L,s:L,s:N,s:N,s:N,s:N,s:N,s:N,s:s,s:N}",
                     "ir_version", (long long)info.ir_version, "model_version",
                     (long long)info.model_version, "nodes", (int)info.n_nodes,
                     "parameters", (long long)info.n_parameters, "weights_bytes",
                     (long long)info.weights_bytes, "file_bytes",
                     (long long)info.file_bytes, "producer", binding_text(info.producer),
                     "producer_version", binding_text(info.producer_version), "domain",
                     binding_text(info.domain), "doc", binding_text(info.doc),
                     "graph_name", binding_text(info.graph_name), "graph_doc",
                     binding_text(info.graph_doc), "packed_for", info.packed_for,
                     "metadata", metadata);
}

/* Gives a piece of the packed file to a Python function; called without the GIL. */
static int32_t write_piece(void *user, const void *bytes, uint64_t n)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *segment =
        PyMemoryView_FromMemory((char *)(uintptr_t)bytes, (Py_ssize_t)n, PyBUF_READ);
    PyObject *done =
        segment == NULL ? NULL : PyObject_CallFunctionObjArgs(user, segment, NULL);
    const int32_t failed = done == NULL;
    Py_XDECREF(done);
    Py_XDECREF(segment);
    PyGILState_Release(gil);
    return failed;
}

/* _save(write): the packed file, piece by piece. What `write` raises is raised here. */
static PyObject *model_save(PyObject *self, PyObject *write)
{
    attnrun_model *model = ((model_object *)self)->model;
    attnrun_status status;
    Py_BEGIN_ALLOW_THREADS status = attnrun_model_save(model, write_piece, write);
    Py_END_ALLOW_THREADS if (status == ATTNRUN_OK) Py_RETURN_NONE;
    return PyErr_Occurred() ? NULL : binding_raise(status);
}

static PyMethodDef model_methods[] = { { "_save", model_save, METH_O, NULL },
                                       { NULL, NULL, 0, NULL } };
static PyGetSetDef model_members[] = { { "inputs", model_inputs, NULL, NULL, NULL },
                                       { "outputs", model_outputs, NULL, NULL, NULL },
                                       { "info", model_info, NULL, NULL, NULL },
                                       { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot model_slots[] = { { Py_tp_new, model_create },
                                     { Py_tp_dealloc, model_dealloc },
                                     { Py_tp_getset, model_members },
                                     { Py_tp_methods, model_methods },
                                     { 0, NULL } };
PyType_Spec model_spec = { "attnrun._attnrun.Model", sizeof(model_object), 0,
                           Py_TPFLAGS_DEFAULT, model_slots };

/* ---- Pool ---- */

typedef struct pool_object {
    PyObject_HEAD PyObject *model; /* NULL before __init__() */
    PyObject **idle;               /* contexts that nobody uses, each with a reference */
    size_t n_idle, room;
    int32_t
        lock; /* atomic: of the three above; no call of Python's API is made under it, so
                   * that its holder is never stopped by Python */
} pool_object;

static void pool_lock(pool_object *p)
{
    int32_t open = 0;
    while (!__atomic_compare_exchange_n(&p->lock, &open, 1, true, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
        open = 0;
        sched_yield();
    }
}

static void pool_unlock(pool_object *p)
{
    __atomic_store_n(&p->lock, 0, __ATOMIC_RELEASE);
}

/* A context with its reference, or NULL where all are in use. */
static PyObject *pool_pop(pool_object *p)
{
    pool_lock(p);
    PyObject *context = p->n_idle > 0 ? p->idle[--p->n_idle] : NULL;
    pool_unlock(p);
    return context;
}

/* Keeps a context; where memory is short it goes. Takes the reference. */
static void pool_push(pool_object *p, PyObject *context)
{
    pool_lock(p);
    if (p->n_idle == p->room) {
        const size_t room = p->room + 8;
        PyObject **more = realloc(p->idle, room * sizeof *more);
        if (more != NULL)
            p->idle = more, p->room = room;
    }
    const bool is_kept = p->n_idle < p->room;
    if (is_kept)
        p->idle[p->n_idle++] = context;
    pool_unlock(p);
    if (!is_kept)
        Py_DECREF(context);
}

static int pool_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    pool_object *p = (pool_object *)self;
    PyObject *model;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!", model_type, &model))
        return -1;
    if (p->model != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "__init__() was called before");
        return -1;
    }
    p->model = Py_NewRef(model);
    return 0;
}

static void pool_dealloc(PyObject *self)
{
    pool_object *p = (pool_object *)self;
    while (p->n_idle > 0)
        Py_DECREF(p->idle[--p->n_idle]);
    free(p->idle);
    Py_XDECREF(p->model);
    free_object(self);
}

static PyObject *pool_take(PyObject *self, PyObject *none)
{
    (void)none;
    pool_object *p = (pool_object *)self;
    if (p->model == NULL)
        return PyErr_Format(PyExc_RuntimeError, "__init__() was not called");
    PyObject *context = pool_pop(p);
    return context ? context : context_new((model_object *)p->model);
}

static PyObject *pool_call(PyObject *self, PyObject *args, PyObject *feeds)
{
    if (args != NULL && PyTuple_Size(args) > 0)
        return PyErr_Format(PyExc_TypeError, "inputs are given by name: model(x=...)");
    PyObject *context = pool_take(self, NULL);
    PyObject *given = feeds ? Py_NewRef(feeds) : PyDict_New();
    PyObject *results = context && given ? context_call(context, given) : NULL;
    if (context != NULL)
        pool_push((pool_object *)self, context);
    Py_XDECREF(given);
    return results;
}

static PyObject *pool_give(PyObject *self, PyObject *context)
{
    if (Py_TYPE(context) != (PyTypeObject *)context_type)
        return PyErr_Format(PyExc_TypeError, "a context of this model is given back");
    pool_push((pool_object *)self, Py_NewRef(context));
    return Py_NewRef(Py_None);
}

static PyMethodDef pool_methods[] = { { "_take", pool_take, METH_NOARGS, NULL },
                                      { "_give", pool_give, METH_O, NULL },
                                      { NULL, NULL, 0, NULL } };
static PyType_Slot pool_slots[] = { { Py_tp_init, pool_init },
                                    { Py_tp_dealloc, pool_dealloc },
                                    { Py_tp_call, pool_call },
                                    { Py_tp_methods, pool_methods },
                                    { 0, NULL } };
PyType_Spec pool_spec = { "attnrun._attnrun.Pool", sizeof(pool_object), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, pool_slots };

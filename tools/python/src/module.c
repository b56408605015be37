/* module.c - the module attnrun._attnrun: its types, setup(), and errors as exceptions. */
#include "binding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct binding_hooks binding_hooks;
PyObject *runtime_type, *model_type, *pool_type, *context_type, *tensor_type;

/* ---- errors ---- */

PyObject *binding_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *binding_name(const char *name)
{
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "surrogateescape");
}

static PyObject *raise_error(const attnrun_error *error)
{
    PyObject *made = PyObject_CallFunction(
        binding_hooks.error, "NsiNiNNN", binding_text(error->message),
        attnrun_status_name(error->status), (int)error->status,
        binding_text(error->node_name), (int)error->node_index,
        binding_text(error->op_type), binding_text(error->tensor),
        binding_text(error->hint));
    if (made != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(made), made);
        Py_DECREF(made);
    }
    return NULL;
}

PyObject *binding_raise(attnrun_status status)
{
    attnrun_error error = *attnrun_last_error();
    error.status = status;
    return raise_error(&error);
}

PyObject *binding_raise_stopped(attnrun_status status)
{
    if (status == ATTNRUN_E_CANCELLED && PyErr_CheckSignals() != 0)
        return NULL;
    return binding_raise(status);
}

PyObject *binding_refuse(attnrun_status status, const char *tensor, const char *format,
                         ...)
{
    attnrun_error error = { .status = status, .node_index = -1 };
    va_list list;
    const int n = snprintf(error.message, sizeof error.message,
                           "%s: ", attnrun_status_name(status));
    va_start(list, format);
    vsnprintf(error.message + n, sizeof error.message - (size_t)n, format, list);
    va_end(list);
    snprintf(error.tensor, sizeof error.tensor, "%s", tensor ? tensor : "");
    return raise_error(&error);
}

PyObject *binding_utf8(PyObject *text)
{
    PyObject *bytes =
        text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;
    Py_XDECREF(text);
    return bytes;
}

int binding_refuse_value(attnrun_status status, const char *what, PyObject *name)
{
    PyObject *type, *cause, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception) ||
        PyErr_ExceptionMatches(PyExc_MemoryError) ||
        PyErr_ExceptionMatches(binding_hooks.error))
        return -1;
    PyErr_Fetch(&type, &cause, &trace);
    PyErr_NormalizeException(&type, &cause, &trace);
    PyObject *said = binding_utf8(PyObject_Str(cause)),
             *named = binding_utf8(PyObject_Str(name));
    if (said != NULL && named != NULL) {
        PyObject *new_type, *made, *new_trace;
        binding_refuse(status, PyBytes_AsString(named),
                       "%s '%.200s' cannot be used: %.400s", what,
                       PyBytes_AsString(named), PyBytes_AsString(said));
        PyErr_Fetch(&new_type, &made, &new_trace);
        PyErr_NormalizeException(&new_type, &made, &new_trace);
        PyException_SetCause(made, Py_NewRef(cause));
        PyErr_Restore(new_type, made, new_trace);
    }
    Py_XDECREF(said);
    Py_XDECREF(named);
    Py_XDECREF(type);
    Py_XDECREF(cause);
    Py_XDECREF(trace);
    return -1;
}

/* ---- the module ---- */

static PyObject *setup(PyObject *self, PyObject *args)
{
    (void)self;
    struct binding_hooks h;
    if (!PyArg_ParseTuple(args, "OOO!OOO", &h.error, &h.empty, &PyTuple_Type, &h.dtypes,
                          &h.to_native, &h.to_python, &h.to_strings))
        return NULL;
    if (PyTuple_Size(h.dtypes) != ATTNRUN_DTYPE_COUNT)
        return PyErr_Format(PyExc_ValueError, "setup() takes %d dtypes",
                            ATTNRUN_DTYPE_COUNT);
    Py_INCREF(h.error), Py_INCREF(h.empty), Py_INCREF(h.dtypes); /* kept to the end */
    Py_INCREF(h.to_native), Py_INCREF(h.to_python), Py_INCREF(h.to_strings);
    binding_hooks = h;
    interrupt_setup();
    return Py_NewRef(Py_None);
}

static PyObject *dtype_name(PyObject *self, PyObject *number)
{
    (void)self;
    const long dtype = PyLong_AsLong(number);
    return PyErr_Occurred() ? NULL
                            : PyUnicode_FromString(attnrun_dtype_name((int32_t)dtype));
}

static PyMethodDef functions[] = { { "setup", setup, METH_VARARGS, NULL },
                                   { "dtype_name", dtype_name, METH_O, NULL },
                                   { NULL, NULL, 0, NULL } };
static struct PyModuleDef definition = { PyModuleDef_HEAD_INIT,
                                         "_attnrun",
                                         "The C half of attnrun.",
                                         -1,
                                         functions,
                                         NULL,
                                         NULL,
                                         NULL,
                                         NULL };

static int add_type(PyObject *module, const char *name, PyType_Spec *spec,
                    PyObject **type)
{
    *type = PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL ? -1 : PyModule_AddObjectRef(module, name, *type);
}

/* In a free-threaded Python the module needs no GIL: contexts are taken by one thread at a time,
 * the list of idle ones has a lock, and dicts that are read were made for the call. */
static int allow_threads(PyObject *module)
{
#ifdef Py_GIL_DISABLED
    return PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#else
    (void)module;
    return 0;
#endif
}

/* The name is Python's. NOLINTBEGIN(readability-identifier-naming) */
PyMODINIT_FUNC PyInit__attnrun(void);
PyMODINIT_FUNC PyInit__attnrun(void)
/* NOLINTEND(readability-identifier-naming) */
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL &&
        add_type(module, "Runtime", &runtime_spec, &runtime_type) == 0 &&
        add_type(module, "Model", &model_spec, &model_type) == 0 &&
        add_type(module, "Pool", &pool_spec, &pool_type) == 0 &&
        add_type(module, "Context", &context_spec, &context_type) == 0 &&
        add_type(module, "Tensor", &tensor_spec, &tensor_type) == 0 &&
        PyModule_AddStringConstant(module, "version", attnrun_version()) == 0 &&
        allow_threads(module) == 0)
        return module;
    Py_XDECREF(module);
    return NULL;
}

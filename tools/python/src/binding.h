/* binding.h - what the files of the Python binding share.
 *
 * In: Python objects. Out: calls of attnrun.h, and Python objects again. All of it uses the
 * limited API of Python 3.11 (abi3), so that one build serves every later Python; a free-threaded
 * Python has no such API and needs a build of its own, from the same calls. What is rare
 * (strings, sequences, types that numpy lacks) is converted by attnrun/_values.py, which
 * setup() registers; what is frequent never leaves C. */
#ifndef ATTNRUN_BINDING_H
#define ATTNRUN_BINDING_H

#include <pyconfig.h>

#define PY_SSIZE_T_CLEAN
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <attnrun.h>
#include <stdbool.h>

/* What setup() registered: objects of the Python half of the package. */
struct binding_hooks {
    PyObject *error;      /* the class of exceptions */
    PyObject *empty;      /* numpy.empty */
    PyObject *dtypes;     /* tuple by dtype number: numpy dtype, or None for a rare one */
    PyObject *to_native;  /* (value, kind, dtype number) -> see value_bind() */
    PyObject *to_python;  /* (raw bytes as an array, dtype number, shape) -> array */
    PyObject *to_strings; /* (list of bytes, shape) -> array */
};
extern struct binding_hooks binding_hooks;

typedef struct model_object {
    PyObject_HEAD attnrun_model *model;
    PyObject *runtime;                   /* the RuntimeObject, or NULL */
    PyObject *input_names;               /* tuple of str */
    PyObject *output_names;              /* tuple of str */
    int32_t *input_kinds, *input_dtypes; /* 0 where unknown */
    int32_t n_inputs, n_outputs;
    int32_t cancel;  /* atomic: SIGINT ends the opening, or the packing of weights */
    Py_buffer bytes; /* the file's, where it was given as bytes */
    bool has_bytes;
} model_object;

/* A Python value as a tensor, with what it holds on to until value_release(). */
struct bound_value {
    attnrun_tensor tensor;
    Py_buffer buffer;
    bool has_buffer;
    PyObject *keep;
    void *memory;              /* elements of a sequence or strings */
    struct bound_value *parts; /* of a sequence or an optional */
    int64_t n_parts;
};

/* ---- module.c ---- */
/* Raises attnrun.Error with what attnrun_last_error() says; returns NULL. */
PyObject *binding_raise(attnrun_status status);
/* The same for a call that SIGINT may have ended: then KeyboardInterrupt. */
PyObject *binding_raise_stopped(attnrun_status status);
/* Raises attnrun.Error with a sentence of the binding's own; returns NULL. */
PyObject *binding_refuse(attnrun_status status, const char *tensor, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));
/* What was raised while a value was read becomes the cause of attnrun.Error, whose sentence names
 * the input or output; errors of ours, MemoryError and KeyboardInterrupt stay. Returns -1. */
int binding_refuse_value(attnrun_status status, const char *what, PyObject *name);
/* A str in UTF-8, what UTF-8 lacks escaped, as bytes; consumes the reference, which may be NULL. */
PyObject *binding_utf8(PyObject *text);
/* A text of a file or the library as a str; what is no UTF-8 becomes U+FFFD. */
PyObject *binding_text(const char *text);
/* A name of a file as a str; bytes that are no UTF-8 stay apart, as in names of files. */
PyObject *binding_name(const char *name);
extern PyObject *runtime_type, *model_type, *pool_type, *context_type, *tensor_type;

/* ---- values.c ---- */
/* Views `value` as a tensor of `dtype` (0: its own). Returns 0, or -1 with an exception. */
int value_bind(PyObject *value, int32_t kind, int32_t dtype, struct bound_value *bound);
/* As value_bind(), for memory that a run writes: dense, writable, of its own dtype. */
int value_bind_output(PyObject *value, int32_t dtype, struct bound_value *bound);
void value_release(struct bound_value *bound);
/* A numpy array (list for a sequence, None for an empty optional) with a copy. */
PyObject *value_copy(const attnrun_tensor *tensor);
PyObject *value_shape(const attnrun_tensor *tensor);

/* ---- dlpack.c ---- */
/* Views what `value.__dlpack__()` gives; 1: done, 0: it has none, -1: an exception. */
int dlpack_bind(PyObject *value, struct bound_value *bound);
/* A capsule over a tensor whose memory `owner` keeps alive. */
PyObject *dlpack_capsule(const attnrun_tensor *tensor, PyObject *owner);

/* ---- model.c ---- */
extern PyType_Spec model_spec, pool_spec, runtime_spec;

/* ---- context.c ---- */
extern PyType_Spec context_spec;
PyObject *context_new(model_object *model);
/* Runs with these inputs (a dict); all outputs as a dict of arrays. */
PyObject *context_call(PyObject *self, PyObject *feeds);
/* A tensor of view() is gone: the context may run again. Drops the tensor's reference. */
void context_drop_view(PyObject *self);

/* ---- tensor.c ---- */
extern PyType_Spec tensor_spec;
/* A view of the memory of `context`, to which it takes a reference. */
PyObject *tensor_new(PyObject *context, const attnrun_tensor *tensor);

/* ---- interrupt.c ---- */
/* In the main thread, SIGINT also cancels `context`, or sets `flag`, until interrupt_end(); one of
 * the two is NULL. Returns whether the second call is needed. */
bool interrupt_begin(attnrun_context *context, int32_t *flag);
void interrupt_end(void);
/* Remembers the calling thread as the main one. */
void interrupt_setup(void);

#endif

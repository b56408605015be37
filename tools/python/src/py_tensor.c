/* py_tensor.c - the type Tensor: an output where it lies in the memory of its context.
 *
 * Gives the buffer protocol (numpy.asarray(tensor)), __dlpack__ (torch.from_dlpack(tensor)),
 * shape and dtype name. Read-only for the buffer protocol. bfloat16 and what else the struct
 * module has no letter for is seen through DLPack only. */
#include "binding.h"

#include <stdlib.h>

typedef struct tensor_object {
    PyObject_HEAD PyObject *context;
    attnrun_tensor tensor;
} tensor_object;

PyObject *tensor_new(PyObject *context, const attnrun_tensor *tensor)
{
    tensor_object *made = PyObject_New(tensor_object, (PyTypeObject *)tensor_type);
    if (made != NULL) {
        made->context = Py_NewRef(context);
        made->tensor = *tensor;
    }
    return (PyObject *)made;
}

static void tensor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    context_drop_view(((tensor_object *)self)->context);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static const char *format_of_dtype(int32_t dtype)
{
    switch (dtype) {
    case ATTNRUN_F32:
        return "f";
    case ATTNRUN_F64:
        return "d";
    case ATTNRUN_F16:
        return "e";
    case ATTNRUN_BOOL:
        return "?";
    case ATTNRUN_I8:
        return "b";
    case ATTNRUN_I16:
        return "h";
    case ATTNRUN_I32:
        return "i";
    case ATTNRUN_I64:
        return "l"; /* 8 bytes on every Linux that this builds for */
    case ATTNRUN_U8:
        return "B";
    case ATTNRUN_U16:
        return "H";
    case ATTNRUN_U32:
        return "I";
    case ATTNRUN_U64:
        return "L";
    case ATTNRUN_C64:
        return "Zf";
    case ATTNRUN_C128:
        return "Zd";
    default:
        return NULL;
    }
}

/* Shape and strides of the view are `internal`: memory of the exporter's. */
static int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const attnrun_tensor *t = &((tensor_object *)self)->tensor;
    const char *format = format_of_dtype(t->dtype);
    const Py_ssize_t item = attnrun_dtype_bits(t->dtype) / 8;
    attnrun_tensor dense;
    bool is_dense = attnrun_tensor_make(t->dtype, t->rank, t->dims, t->data, &dense) == 0;
    for (int32_t i = 0; i < t->rank; i++)
        is_dense = is_dense && (dense.strides[i] == t->strides[i] || t->dims[i] <= 1);
    view->obj = NULL;
    if (format == NULL || (flags & PyBUF_WRITABLE) ||
        (!is_dense && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)) {
        PyErr_Format(PyExc_BufferError,
                     "only a read-only view with strides of %s is available",
                     attnrun_dtype_name(t->dtype));
        return -1;
    }
    Py_ssize_t *dims = malloc(2 * ATTNRUN_MAX_RANK * sizeof *dims);
    if (dims == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int32_t i = 0; i < t->rank; i++) {
        dims[i] = (Py_ssize_t)t->dims[i];
        dims[ATTNRUN_MAX_RANK + i] = (Py_ssize_t)t->strides[i];
    }
    *view = (Py_buffer){ .buf = t->data,
                         .obj = Py_NewRef(self),
                         .len = (Py_ssize_t)attnrun_tensor_bytes(t),
                         .itemsize = item,
                         .readonly = 1,
                         .ndim = t->rank,
                         .format = flags & PyBUF_FORMAT ? (char *)format : NULL,
                         .shape = flags & PyBUF_ND ? dims : NULL,
                         .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES
                                        ? dims + ATTNRUN_MAX_RANK
                                        : NULL,
                         .internal = dims };
    return 0;
}

static void tensor_releasebuffer(PyObject *self, Py_buffer *view)
{
    (void)self;
    free(view->internal);
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    static char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &stream, &version,
                                     &device, &copy))
        return NULL;
    if (copy == Py_True)
        return PyErr_Format(PyExc_BufferError, "this tensor makes no copies");
    return dlpack_capsule(&((tensor_object *)self)->tensor, self);
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return Py_BuildValue("(ii)", 1, 0);
}

static PyObject *tensor_get_shape(PyObject *self, void *closure)
{
    (void)closure;
    return value_shape(&((tensor_object *)self)->tensor);
}

static PyObject *tensor_get_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(
        attnrun_dtype_name(((tensor_object *)self)->tensor.dtype));
}

static PyMethodDef tensor_methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack,
      METH_VARARGS | METH_KEYWORDS, "A DLPack capsule over the context's memory." },
    { "__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "(1, 0): the CPU." },
    { NULL, NULL, 0, NULL }
};

static PyGetSetDef tensor_members[] = {
    { "shape", tensor_get_shape, NULL, "The dims, a tuple of int.", NULL },
    { "dtype", tensor_get_dtype, NULL, "The name of the element type: 'f32', 'bf16'.",
      NULL },
    { NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot tensor_slots[] = {
    { Py_tp_dealloc, tensor_dealloc },
    { Py_tp_methods, tensor_methods },
    { Py_tp_getset, tensor_members },
    { Py_bf_getbuffer, tensor_getbuffer },
    { Py_bf_releasebuffer, tensor_releasebuffer },
    { Py_tp_doc,
      "Tensor\n\nAn output in the memory of its context (Context.view). "
      "numpy.asarray(t) and\ntorch.from_dlpack(t) read it without a copy. The "
      "context refuses to run as long as it, or an\narray made of it, is alive." },
    { 0, NULL }
};
PyType_Spec tensor_spec = { "attnrun._attnrun.Tensor", sizeof(tensor_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            tensor_slots };

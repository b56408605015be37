/* dlpack.c - tensors of other packages in and out without a copy, by DLPack's capsules.
 *
 * The structs are those of the DLPack specification (version 0, the capsule named
 * "dltensor"), which every producer still gives when no version is named. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements; NULL: dense */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

enum { DL_CPU = 1, DL_INT = 0, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_COMPLEX, DL_BOOL };

static const struct {
    uint8_t code, bits;
    int32_t dtype;
} dl_types[] = {
    { DL_FLOAT, 32, ATTNRUN_F32 },     { DL_FLOAT, 64, ATTNRUN_F64 },
    { DL_FLOAT, 16, ATTNRUN_F16 },     { DL_BFLOAT, 16, ATTNRUN_BF16 },
    { DL_INT, 8, ATTNRUN_I8 },         { DL_INT, 16, ATTNRUN_I16 },
    { DL_INT, 32, ATTNRUN_I32 },       { DL_INT, 64, ATTNRUN_I64 },
    { DL_UINT, 8, ATTNRUN_U8 },        { DL_UINT, 16, ATTNRUN_U16 },
    { DL_UINT, 32, ATTNRUN_U32 },      { DL_UINT, 64, ATTNRUN_U64 },
    { DL_BOOL, 8, ATTNRUN_BOOL },      { DL_COMPLEX, 64, ATTNRUN_C64 },
    { DL_COMPLEX, 128, ATTNRUN_C128 },
};
enum { DL_TYPES = sizeof dl_types / sizeof dl_types[0] };

static int view_managed(const dl_tensor *dl, attnrun_tensor *tensor)
{
    int32_t dtype = 0;
    for (int i = 0; i < DL_TYPES; i++)
        if (dl_types[i].code == dl->dtype.code && dl_types[i].bits == dl->dtype.bits)
            dtype = dl_types[i].dtype;
    if (dl->device.type != DL_CPU || dtype == 0 || dl->dtype.lanes != 1 || dl->ndim < 0 ||
        dl->ndim > ATTNRUN_MAX_RANK) {
        PyErr_Format(PyExc_TypeError,
                     "a DLPack tensor of device %d, type %d with %d bits and rank %d is "
                     "not supported; expected a CPU tensor of at most 8 dims",
                     (int)dl->device.type, (int)dl->dtype.code, (int)dl->dtype.bits,
                     (int)dl->ndim);
        return -1;
    }
    if (attnrun_tensor_make(dtype, dl->ndim, dl->shape, NULL, tensor) != ATTNRUN_OK) {
        binding_raise(attnrun_last_error()->status);
        return -1;
    }
    for (int32_t i = 0; dl->strides != NULL && i < dl->ndim; i++)
        tensor->strides[i] = dl->strides[i] * (attnrun_dtype_bits(dtype) / 8);
    tensor->data = dl->data != NULL ? (char *)dl->data + dl->byte_offset : NULL;
    return 1;
}

/* A tensor of torch may be the negative of what lies in its memory, which DLPack cannot say. */
static int refuse_negative(PyObject *value)
{
    if (PyObject_HasAttrString(value, "is_neg") == 0)
        return 0;
    PyObject *answer = PyObject_CallMethod(value, "is_neg", NULL);
    const bool negative = answer == Py_True;
    if (negative)
        PyErr_SetString(PyExc_TypeError,
                        "the tensor is a lazy negative of its memory; give "
                        "what its resolve_neg() returns");
    Py_XDECREF(answer);
    return answer == NULL || negative ? -1 : 0;
}

int dlpack_bind(PyObject *value, struct bound_value *bound)
{
    if (PyObject_HasAttrString(value, "__dlpack__") == 0)
        return 0;
    if (refuse_negative(value) != 0)
        return -1;
    PyObject *capsule = PyObject_CallMethod(value, "__dlpack__", NULL);
    if (capsule == NULL)
        return -1;
    const dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    bound->keep = capsule; /* its destructor gives the tensor back, as nobody takes it */
    return managed == NULL ? -1 : view_managed(&managed->tensor, &bound->tensor);
}

/* ---- out ---- */

struct dl_export {
    dl_managed managed;
    int64_t shape[ATTNRUN_MAX_RANK], strides[ATTNRUN_MAX_RANK];
};

static void export_free(dl_managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->context);
    PyGILState_Release(state);
    free(managed);
}

static void capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    }
}

PyObject *dlpack_capsule(const attnrun_tensor *tensor, PyObject *owner)
{
    int type = 0;
    while (type < DL_TYPES && dl_types[type].dtype != tensor->dtype)
        type++;
    if (tensor->kind != ATTNRUN_TENSOR || type == DL_TYPES)
        return PyErr_Format(PyExc_TypeError, "DLPack has no type for %s",
                            attnrun_dtype_name(tensor->dtype));
    struct dl_export *made = calloc(1, sizeof *made);
    if (made == NULL)
        return PyErr_NoMemory();
    const int32_t item = attnrun_dtype_bits(tensor->dtype) / 8;
    for (int32_t i = 0; i < tensor->rank; i++) {
        made->shape[i] = tensor->dims[i];
        made->strides[i] = tensor->strides[i] / item;
    }
    made->managed.tensor =
        (dl_tensor){ .data = tensor->data,
                     .device = { DL_CPU, 0 },
                     .ndim = tensor->rank,
                     .dtype = { dl_types[type].code, dl_types[type].bits, 1 },
                     .shape = made->shape,
                     .strides = made->strides };
    made->managed.context = owner;
    made->managed.deleter = export_free;
    PyObject *capsule = PyCapsule_New(&made->managed, "dltensor", capsule_free);
    if (capsule == NULL)
        free(made);
    else
        Py_INCREF(owner);
    return capsule;
}

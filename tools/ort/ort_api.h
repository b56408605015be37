/* ort_api.h - the few entries of ONNX Runtime's C interface that this library calls, declared
 * here so that building needs nothing of ONNX Runtime.
 *
 * The interface is a table of functions whose order never changes: entries are only added at
 * its end. Places between those named here are gaps; check_place() compares each with its
 * number. The tests run every operator through the released library.
 * Source: the public documentation of OrtApi and OrtCustomOp, versions 17 to 32. */
#ifndef ATTNRUN_ORT_API_H
#define ATTNRUN_ORT_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct ort_status ort_status; /* NULL: ok */
typedef struct ort_options ort_options;
typedef struct ort_domain ort_domain;
typedef struct ort_value ort_value;
typedef struct ort_type ort_type;
typedef struct ort_shape ort_shape;
typedef struct ort_info ort_info;       /* of a node while its kernel is created */
typedef struct ort_context ort_context; /* of one run of a kernel */
typedef struct ort_allocator ort_allocator;
struct ort_custom_op;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1, ORT_VARIADIC = 2 };
enum {
    ORT_OLDEST = 17,       /* has all but string_array */
    ORT_STRING_ARRAYS = 31 /* the oldest version known to have string_array */
};

#define GAP(from, to) void *gap_##from[(to) - (from)]

/* Names as attributes, operands and nodes have them; where `size` is in and out, it counts
 * the NUL of a string. Element types are ONNX's numbers. */
typedef struct ort_api {
    ort_status *(*create_status)(int32_t code, const char *message);
    GAP(1, 26);
    ort_status *(*create_domain)(const char *name, ort_domain **domain);
    ort_status *(*domain_add)(ort_domain *domain, const struct ort_custom_op *op);
    ort_status *(*add_domain)(ort_options *options, ort_domain *domain);
    GAP(29, 51);
    ort_status *(*tensor_data)(ort_value *value, void **data);
    GAP(52, 55);
    ort_status *(*type_shape)(const ort_type *type,
                              const ort_shape **shape); /* borrowed */
    GAP(56, 60);
    ort_status *(*element_type)(const ort_shape *shape, int32_t *dtype);
    ort_status *(*rank)(const ort_shape *shape, size_t *rank);
    ort_status *(*dims)(const ort_shape *shape, int64_t *dims, size_t rank);
    GAP(63, 65);
    ort_status *(*tensor_shape)(const ort_value *value, ort_shape **shape);
    GAP(66, 76);
    ort_status *(*allocator_free)(ort_allocator *allocator, void *memory);
    GAP(77, 78);
    ort_status *(*default_allocator)(ort_allocator **allocator);
    GAP(79, 85);
    ort_status *(*attribute_float)(const ort_info *info, const char *name, float *x);
    ort_status *(*attribute_int)(const ort_info *info, const char *name, int64_t *x);
    ort_status *(*attribute_string)(const ort_info *info, const char *name, char *text,
                                    size_t *size);
    GAP(88, 90);
    ort_status *(*input)(const ort_context *context, size_t index,
                         const ort_value **value);
    ort_status *(*output)(ort_context *context, size_t index, const int64_t *dims,
                          size_t rank, ort_value **value);
    GAP(92, 93);
    void (*release_status)(ort_status *status);
    GAP(94, 98);
    void (*release_type)(ort_type *type);
    void (*release_shape)(ort_shape *shape);
    GAP(100, 162);
    ort_status *(*attribute_floats)(const ort_info *info, const char *name, float *x,
                                    size_t *n);
    ort_status *(*attribute_ints)(const ort_info *info, const char *name, int64_t *x,
                                  size_t *n);
    GAP(164, 230);
    ort_status *(*input_count)(const ort_info *info, size_t *n);
    ort_status *(*output_count)(const ort_info *info, size_t *n);
    ort_status *(*input_name)(const ort_info *info, size_t index, char *name,
                              size_t *size);
    ort_status *(*output_name)(const ort_info *info, size_t index, char *name,
                               size_t *size);
    ort_status *(*input_type)(const ort_info *info, size_t index, ort_type **type);
    GAP(235, 238);
    ort_status *(*config_entry)(const ort_options *options, const char *key, char *value,
                                size_t *size);
    GAP(239, 244);
    ort_status *(*node_name)(const ort_info *info, char *name, size_t *size);
    GAP(245, 249);
    ort_status *(*constant_input)(const ort_info *info, size_t index, int *is_constant,
                                  const ort_value **value);
    GAP(250, 274);
    ort_status *(*parallel_for)(const ort_context *context, void (*fn)(void *, size_t),
                                size_t n, size_t batches, void *user);
    GAP(275, 417);
    ort_status *(*string_array)(const ort_info *info, const char *name,
                                ort_allocator *allocator, char ***texts,
                                size_t *n); /* from ORT_STRING_ARRAYS on */
} ort_api;

#define CHECK_PLACE(name, number)                                                        \
    _Static_assert(offsetof(ort_api, name) == (number) * sizeof(void *), #name)
CHECK_PLACE(add_domain, 28);
CHECK_PLACE(tensor_data, 51);
CHECK_PLACE(type_shape, 55);
CHECK_PLACE(dims, 62);
CHECK_PLACE(tensor_shape, 65);
CHECK_PLACE(default_allocator, 78);
CHECK_PLACE(attribute_string, 87);
CHECK_PLACE(output, 91);
CHECK_PLACE(release_status, 93);
CHECK_PLACE(release_shape, 99);
CHECK_PLACE(attribute_ints, 163);
CHECK_PLACE(input_type, 234);
CHECK_PLACE(config_entry, 238);
CHECK_PLACE(node_name, 244);
CHECK_PLACE(constant_input, 249);
CHECK_PLACE(parallel_for, 274);
CHECK_PLACE(string_array, 417);

typedef struct ort_api_base {
    const ort_api *(*api)(uint32_t version); /* NULL: not there; it also prints a line */
    const char *(*version)(void);            /* "1.32.0" */
} ort_api_base;

/* An operator, in the form of version 17. What is NULL has a default or is not called. */
typedef struct ort_custom_op {
    uint32_t version;
    void *(*create)(const struct ort_custom_op *op, const ort_api *api,
                    const ort_info *info);
    const char *(*name)(const struct ort_custom_op *op);
    const char *(*provider)(const struct ort_custom_op *op); /* NULL: the CPU's */
    int32_t (*input_type)(const struct ort_custom_op *op, size_t index); /* 0: any */
    size_t (*input_count)(const struct ort_custom_op *op);
    int32_t (*output_type)(const struct ort_custom_op *op, size_t index);
    size_t (*output_count)(const struct ort_custom_op *op);
    void (*compute)(void *kernel, ort_context *context);
    void (*destroy)(void *kernel);
    int32_t (*input_form)(const struct ort_custom_op *op, size_t index);
    int32_t (*output_form)(const struct ort_custom_op *op, size_t index);
    int32_t (*input_memory)(const struct ort_custom_op *op, size_t index);
    int (*min_inputs)(const struct ort_custom_op *op);
    int (*same_inputs)(const struct ort_custom_op *op);
    int (*min_outputs)(const struct ort_custom_op *op);
    int (*same_outputs)(const struct ort_custom_op *op);
    ort_status *(*create_v2)(const struct ort_custom_op *op, const ort_api *api,
                             const ort_info *info, void **kernel);
    ort_status *(*compute_v2)(void *kernel, ort_context *context);
    void *infer;
    int (*start_version)(const struct ort_custom_op *op);
    int (*end_version)(const struct ort_custom_op *op);
    void *rest[4];
} ort_custom_op;

#endif

/* value.h - elements of dense tensors as numbers, and tensors that the tools own. */
#ifndef TOOL_VALUE_H
#define TOOL_VALUE_H

#include <stdbool.h>

#include "fail.h"

/* A tensor and what holds its bytes: malloc's memory, or the library's. */
struct held {
    attnrun_tensor tensor;
    void *memory;
    attnrun_runtime *runtime; /* with `library` */
    attnrun_tensor *library;
    struct held *columns; /* of a map: what holds its keys and its values */
};

/* Zeroed dense memory for these dims. E_MEMORY over `max_bytes` (0: no bound). */
attnrun_status held_make(struct held *held, int32_t dtype, int32_t rank,
                         const int64_t *dims, uint64_t max_bytes);
void held_free(struct held *held);

bool value_is_float(int32_t dtype); /* f32, f64, f16, bf16 and the smaller ones */
bool value_is_int(int32_t dtype);   /* i*, u*; bool is neither */
bool value_is_complex(int32_t dtype);
/* One code of a small type is one number of `bits` bits: 0 for types above 16 bits. */
bool value_has_code(int32_t dtype);

/* Element k as a double (of a complex: the real part; a string: 0). */
double value_get(const attnrun_tensor *tensor, int64_t k);
double value_get_imaginary(const attnrun_tensor *tensor, int64_t k);
/* Integers and bool, exactly; u64 above 2^63 wraps. */
int64_t value_get_int(const attnrun_tensor *tensor, int64_t k);
/* Position of the code of element k among all codes in the order of their values:
 * neighbours differ by one, -0 equals 0. For floats of all types. */
int64_t value_step(const attnrun_tensor *tensor, int64_t k);

/* Stores a number; floats round to nearest even. False where it does not fit. */
bool value_set(const attnrun_tensor *tensor, int64_t k, double value);
bool value_set_int(const attnrun_tensor *tensor, int64_t k, int64_t value);

/* "f32[2,512]"; one of 8 rotating buffers. */
const char *value_shape(const attnrun_tensor *tensor);
/* Element k as text; one of 8 rotating buffers. */
const char *value_text(const attnrun_tensor *tensor, int64_t k);
/* The shortest text that reads back as this number of a float type; one of 8 rotating
 * buffers. */
const char *value_number(double value, int32_t dtype);
/* "tensor", "sequence", … for ATTNRUN_TENSOR, …. */
const char *value_kind_name(int32_t kind);
/* "[1,2]": the index of element k. */
const char *value_index(const attnrun_tensor *tensor, int64_t k);

#endif

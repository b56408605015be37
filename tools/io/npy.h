/* npy.h - NumPy's array files: versions 1, 2 and 3; all numeric types, bool and text. */
#ifndef TOOL_NPY_H
#define TOOL_NPY_H

#include "file.h"
#include "value.h"

/* Reads with a bound on the bytes of the array (0: none). Fortran order and big-endian
 * are converted, text becomes strings; pickled objects and records are refused. */
attnrun_status npy_read(const char *path, uint64_t max_bytes, struct held *held);
/* The same from the bytes of a file; `name` is for messages. */
attnrun_status npy_parse(const char *name, const uint8_t *data, int64_t bytes,
                         uint64_t max_bytes, struct held *held);
/* The wider type that NumPy's files hold elements of `dtype` as, where they lack it; else 0.
 */
int32_t npy_wider_type(int32_t dtype);
/* Bytes of the file that holds `tensor`, and its writer, which refuses other kinds of values. Types
 * that NumPy lacks become the next wider one (bf16, f8: f32; i4: i8); strings become bytes of one
 * length. */
int64_t npy_file_bytes(const attnrun_tensor *tensor);
typedef attnrun_status npy_sink(void *user, const void *data, int64_t bytes);
attnrun_status npy_write(const attnrun_tensor *tensor, npy_sink *sink, void *user);
attnrun_status npy_save(const char *path, const attnrun_tensor *tensor);

#endif

/* npy_write.c - writes NumPy's array files, version 1.0, row-major.
 *
 * In: a dense tensor. Out: a header and the elements. Types that NumPy lacks (bf16, f8, 4 and 2
 * bits) become the next wider type that it has. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "npy.h"

enum { HEADER_BYTES = 256, CHUNK = 4096 }; /* header: rank 8 fits with room */

/* Strings are padded to the longest one. More bytes than these are written only where the strings
 * themselves, with 16 bytes for each, are a PADDING-th of them. */
enum { PADDING = 16 };
#define MAX_PADDED (INT64_C(1) << 32)

/* The NumPy type of an element, and the type it is written as. */
static const char *descr_of(const attnrun_tensor *tensor, int32_t *stored, char *buffer,
                            size_t bytes)
{
    *stored = tensor->dtype;
    switch (tensor->dtype) {
    case ATTNRUN_F64:
        return "<f8";
    case ATTNRUN_F32:
        return "<f4";
    case ATTNRUN_F16:
        return "<f2";
    case ATTNRUN_BOOL:
        return "|b1";
    case ATTNRUN_I8:
        return "|i1";
    case ATTNRUN_U8:
        return "|u1";
    case ATTNRUN_C64:
        return "<c8";
    case ATTNRUN_C128:
        return "<c16";
    case ATTNRUN_I4:
    case ATTNRUN_I2:
        *stored = ATTNRUN_I8;
        return "|i1";
    case ATTNRUN_U4:
    case ATTNRUN_U2:
        *stored = ATTNRUN_U8;
        return "|u1";
    case ATTNRUN_I16:
    case ATTNRUN_I32:
    case ATTNRUN_I64:
        snprintf(buffer, bytes, "<i%d", attnrun_dtype_bits(tensor->dtype) / 8);
        return buffer;
    case ATTNRUN_U16:
    case ATTNRUN_U32:
    case ATTNRUN_U64:
        snprintf(buffer, bytes, "<u%d", attnrun_dtype_bits(tensor->dtype) / 8);
        return buffer;
    default:
        *stored = ATTNRUN_F32; /* bf16 and smaller floats */
        return "<f4";
    }
}

int32_t npy_wider_type(int32_t dtype)
{
    const attnrun_tensor tensor = { .kind = ATTNRUN_TENSOR, .dtype = dtype };
    char buffer[32];
    int32_t stored;
    if (dtype == ATTNRUN_STRING)
        return 0;
    descr_of(&tensor, &stored, buffer, sizeof buffer);
    return stored == dtype ? 0 : stored;
}

static int64_t longest_string(const attnrun_tensor *tensor)
{
    const attnrun_string *s = tensor->data;
    int64_t longest = 1, n = attnrun_tensor_count(tensor);
    for (int64_t k = 0; k < n; k++)
        longest = s[k].n > longest ? s[k].n : longest;
    return longest;
}

static int64_t stored_bytes(const attnrun_tensor *tensor)
{
    char buffer[32];
    int32_t stored;
    if (tensor->dtype == ATTNRUN_STRING)
        return attnrun_tensor_count(tensor) * longest_string(tensor);
    descr_of(tensor, &stored, buffer, sizeof buffer);
    return attnrun_tensor_count(tensor) * (attnrun_dtype_bits(stored) / 8);
}

int64_t npy_file_bytes(const attnrun_tensor *tensor)
{
    return HEADER_BYTES + stored_bytes(tensor);
}

static attnrun_status write_header(const attnrun_tensor *tensor, const char *descr,
                                   npy_sink *sink, void *user)
{
    char header[HEADER_BYTES];
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(uint8_t)((HEADER_BYTES - 10) & 255);
    header[9] = (char)((HEADER_BYTES - 10) >> 8);
    size_t n = 10;
    n += (size_t)snprintf(header + n, sizeof header - n,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int32_t i = 0; i < tensor->rank; i++)
        n += (size_t)snprintf(header + n, sizeof header - n, "%" PRId64 "%s",
                              tensor->dims[i],
                              i + 1 < tensor->rank ? ", "
                              : tensor->rank == 1  ? ","
                                                   : "");
    n += (size_t)snprintf(header + n, sizeof header - n, "), }");
    memset(header + n, ' ', sizeof header - n);
    header[sizeof header - 1] = '\n';
    return sink(user, header, sizeof header);
}

static attnrun_status check_padding(const attnrun_tensor *tensor, int64_t width)
{
    const attnrun_string *s = tensor->data;
    const int64_t n = attnrun_tensor_count(tensor);
    int64_t padded, held = 0;
    const bool fits = !__builtin_mul_overflow(n, width, &padded);
    if (fits && padded <= MAX_PADDED)
        return ATTNRUN_OK;
    for (int64_t k = 0; k < n; k++)
        held += s[k].n + (int64_t)sizeof *s;
    if (fits && padded / PADDING <= held)
        return ATTNRUN_OK;
    return tool_fail(ATTNRUN_E_LIMIT,
                     "%" PRId64 " strings would each take the %" PRId64
                     " bytes of the longest one in a file of NumPy's, which is too much; "
                     "write JSON (-o FILE.json)",
                     n, width);
}

static attnrun_status write_strings(const attnrun_tensor *tensor, int64_t width,
                                    npy_sink *sink, void *user)
{
    static const char zeros[CHUNK];
    const attnrun_string *s = tensor->data;
    int64_t n = attnrun_tensor_count(tensor);
    for (int64_t k = 0; k < n; k++) {
        TRY(sink(user, s[k].data, s[k].n));
        for (int64_t rest = width - s[k].n; rest > 0; rest -= CHUNK)
            TRY(sink(user, zeros, rest < CHUNK ? rest : CHUNK));
    }
    return ATTNRUN_OK;
}

/* Element by element through a buffer of `stored`. */
static attnrun_status write_converted(const attnrun_tensor *tensor, int32_t stored,
                                      npy_sink *sink, void *user)
{
    float buffer[CHUNK / 4];
    attnrun_tensor part = { .kind = ATTNRUN_TENSOR, .dtype = stored, .data = buffer };
    int64_t n = attnrun_tensor_count(tensor), item = attnrun_dtype_bits(stored) / 8;
    for (int64_t k = 0; k < n;) {
        int64_t m = n - k < CHUNK / item ? n - k : CHUNK / item;
        for (int64_t i = 0; i < m; i++)
            value_set(&part, i, value_get(tensor, k + i));
        TRY(sink(user, buffer, m * item));
        k += m;
    }
    return ATTNRUN_OK;
}

attnrun_status npy_write(const attnrun_tensor *tensor, npy_sink *sink, void *user)
{
    char buffer[32];
    int32_t stored;
    if (tensor->kind != ATTNRUN_TENSOR)
        return tool_fail(ATTNRUN_E_UNSUPPORTED, "NumPy's files hold tensors, not a %s",
                         value_shape(tensor));
    if (tensor->dtype == ATTNRUN_STRING) {
        int64_t width = longest_string(tensor);
        TRY(check_padding(tensor, width));
        snprintf(buffer, sizeof buffer, "|S%" PRId64, width);
        TRY(write_header(tensor, buffer, sink, user));
        return write_strings(tensor, width, sink, user);
    }
    const char *descr = descr_of(tensor, &stored, buffer, sizeof buffer);
    TRY(write_header(tensor, descr, sink, user));
    if (stored != tensor->dtype)
        return write_converted(tensor, stored, sink, user);
    return sink(user, tensor->data, attnrun_tensor_bytes(tensor));
}

static attnrun_status to_file(void *user, const void *data, int64_t bytes)
{
    return output_file_write(user, data, bytes);
}

attnrun_status npy_save(const char *path, const attnrun_tensor *tensor)
{
    struct output_file file;
    TRY(output_file_open(&file, path));
    attnrun_status status = npy_write(tensor, to_file, &file);
    if (status != ATTNRUN_OK) {
        output_file_abandon(&file);
        return status;
    }
    return output_file_commit(&file);
}

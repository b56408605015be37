/* file_kind.h - what a file is that is no ONNX model, by its first bytes. */
#ifndef ATTN_FILE_KIND_H
#define ATTN_FILE_KIND_H

#include <stdint.h>

struct attn_file_kind {
    const char *name; /* "a Git LFS pointer", or NULL: not known */
    const char *hint; /* how to come to an ONNX model, or "" */
};

/* To be asked of bytes that did not parse: a model may begin with any of these by chance. */
struct attn_file_kind attn_file_kind_of(const uint8_t *data, int64_t bytes);

#endif

/* oracle_packed.h - a model becomes that of its packed file, or of the ONNX file that is written of
 * it. In: a model, or its source. Out: the same one, written to memory at a multiple of 64 bytes
 * and opened from there; the caller frees the bytes behind it. */
#ifndef ATTN_ORACLE_PACKED_H
#define ATTN_ORACLE_PACKED_H

#include <stdlib.h>
#include <string.h>

#include "../../runtime/attnrun.h"

struct bytes {
    char *data;
    size_t n, capacity;
};

static int32_t append(void *user, const void *data, uint64_t n)
{
    struct bytes *bytes = user;
    if (bytes->n + n > bytes->capacity) {
        const size_t capacity = (2 * bytes->capacity + n + 4096) / 64 * 64;
        char *grown = aligned_alloc(64, capacity);
        if (grown == NULL)
            return 1;
        if (bytes->n > 0)
            memcpy(grown, bytes->data, bytes->n);
        free(bytes->data);
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return 0;
}

/* The model is another one then: that of `bytes`, which live as long as it. */
static attnrun_status open_packed(attnrun_runtime *runtime, attnrun_model **model,
                                  struct bytes *bytes)
{
    attnrun_source source = { .struct_size = sizeof source };
    attnrun_status status = attnrun_model_save(*model, append, bytes);
    attnrun_model *packed = NULL;
    source.data = bytes->data;
    source.bytes = bytes->n;
    if (status == ATTNRUN_OK)
        status = attnrun_model_open(runtime, &source, &packed);
    attnrun_model_release(*model);
    *model = packed;
    return status;
}

/* The source becomes the ONNX model that attnrun_save_onnx() writes of it, simplified, where that
 * can be written. */
static attnrun_status write_again(attnrun_runtime *runtime, attnrun_source *source,
                                  struct bytes *bytes)
{
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .flags = ATTNRUN_ONNX_SIMPLIFY };
    const attnrun_status status =
        attnrun_save_onnx(runtime, source, &edit, append, bytes, NULL);
    if (status == ATTNRUN_E_UNSUPPORTED)
        return ATTNRUN_OK;
    source->path = NULL;
    source->data = bytes->data;
    source->bytes = bytes->n;
    return status;
}

#endif

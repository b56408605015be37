/* onnx_external.c - tensor data in files beside the model: location, offset, length.
 *
 * A model may only name regular files beneath its own directory; attn_file_open_beneath()
 * sees to that on the file that it opened. Each file is opened once and kept by the
 * model. */
#include <stdio.h>
#include <string.h>

#include "file_kind.h"
#include "load_error.h"
#include "onnx_tensor.h"

enum { MAX_LOCATION = 4095 };

struct onnx_external_place {
    const char *location, *offset_text, *length_text;
    int64_t offset, length; /* length -1: to the end */
};

static attn_status parse_number(const char *tensor, const char *key, const char *text,
                                int64_t *value)
{
    int64_t n = 0;
    bool valid = text[0] != 0;
    for (const char *p = text; valid && *p != 0; p++)
        valid = *p >= '0' && *p <= '9' && ck_mul(n, 10, &n) && ck_add(n, *p - '0', &n);
    if (!valid)
        return attn_fail(ATTNRUN_E_MODEL,
                         "tensor '%s': external %s is '%s', expected a number below 2^63",
                         attn_quote(tensor), key, attn_quote(text));
    *value = n;
    return ATTNRUN_OK;
}

static attn_status take_once(const char *tensor, const char *key, const char **slot,
                             const char *value)
{
    if (*slot != NULL)
        return attn_fail(strcmp(key, "location") == 0 ? ATTNRUN_E_PATH : ATTNRUN_E_MODEL,
                         "tensor '%s': external data has two entries '%s'",
                         attn_quote(tensor), key);
    *slot = value;
    return ATTNRUN_OK;
}

/* Other keys (checksum, what writers add) are left alone. */
static attn_status find_place(const PB(TensorProto) * pb,
                              struct onnx_external_place *place)
{
    const char *name = pb_text(pb->name);
    *place = (struct onnx_external_place){ .length = -1 };
    for (size_t k = 0; k < pb->n_external_data; k++) {
        const char *key = pb_text(pb->external_data[k]->key);
        const char *value = pb_text(pb->external_data[k]->value);
        if (strcmp(key, "location") == 0)
            TRY(take_once(name, key, &place->location, value));
        else if (strcmp(key, "offset") == 0)
            TRY(take_once(name, key, &place->offset_text, value));
        else if (strcmp(key, "length") == 0)
            TRY(take_once(name, key, &place->length_text, value));
    }
    if (place->location == NULL || place->location[0] == 0)
        return attn_fail(ATTNRUN_E_MODEL,
                         "tensor '%s': its external data has no location",
                         attn_quote(name));
    /* "*" starts the tags by which other runtimes mean memory of the process. */
    if (place->location[0] == '*' || strlen(place->location) > MAX_LOCATION)
        return attn_fail(ATTNRUN_E_PATH,
                         "tensor '%s': external location '%s' is not a path",
                         attn_quote(name), attn_quote(place->location));
    if (place->offset_text != NULL)
        TRY(parse_number(name, "offset", place->offset_text, &place->offset));
    if (place->length_text != NULL)
        TRY(parse_number(name, "length", place->length_text, &place->length));
    return ATTNRUN_OK;
}

static attn_status open_file(struct attn_external *external, const char *location,
                             const struct attn_file **file)
{
    int64_t length = (int64_t)strlen(location);
    int64_t *known = attn_map_find(&external->by_location, location, length);
    if (known != NULL) {
        *file = &external->files[*known];
        return ATTNRUN_OK;
    }
    struct attn_model *model = external->model;
    const attnrun_limits *limits = &model->limits;
    const struct attn_file_limit left = { limits->external_bytes - external->bytes,
                                          ATTN_LIMIT_EXTERNAL_BYTES };
    if (external->n == limits->external_files)
        return attn_fail_limit(ATTN_LIMIT_EXTERNAL_FILES,
                               "there are more external files than %lld",
                               (long long)limits->external_files);
    struct attn_file opened;
    TRY(attn_file_open_beneath(attn_runtime_memory(model->runtime), external->dir,
                               location, left, (model->flags & ATTNRUN_COPY) != 0,
                               &opened));
    attn_status status = attn_model_keep_file(model, &opened);
    if (status != ATTNRUN_OK) {
        attn_file_close(attn_runtime_memory(model->runtime), &opened);
        return status;
    }
    if (external->n == external->capacity)
        TRY(attn_pool_grow(external->by_location.pool, (void **)&external->files,
                           &external->capacity, external->n, (int64_t)sizeof opened));
    TRY(attn_map_add(&external->by_location, location, length, external->n));
    external->files[external->n] = opened;
    *file = &external->files[external->n++];
    external->bytes += opened.bytes;
    model->file_bytes += opened.bytes;
    return ATTNRUN_OK;
}

/* Names the tensor, and the folder where its file was looked for. */
static attn_status fail_file(const struct attn_external *external, attn_status status,
                             uint64_t errors, const char *name)
{
    struct attn_load_failure failure;
    attn_load_failure_read(errors, status, &failure);
    attn_fail(status, "tensor '%s': %s (in the folder '%s')", attn_quote(name),
              failure.sentence, attn_quote(external->dir));
    attn_fail_tensor(name);
    if (status == ATTNRUN_E_IO)
        attn_hint("keep the model and its external files in one folder");
    return attn_load_failure_hint(&failure, status);
}

attn_status attn_external_bytes(struct attn_external *external,
                                const PB(TensorProto) * pb, int64_t wanted,
                                const uint8_t **bytes)
{
    const char *name = pb_text(pb->name);
    struct onnx_external_place place;
    TRY(find_place(pb, &place));
    if (external->dir == NULL)
        return attn_fail(
            ATTNRUN_E_PATH,
            "tensor '%s' is in file '%s', but there is no directory to look in",
            attn_quote(name), attn_quote(place.location));
    const struct attn_file *file = NULL;
    uint64_t errors = attn_error_count();
    attn_status status = open_file(external, place.location, &file);
    if (status != ATTNRUN_OK)
        return fail_file(external, status, errors, name);
    if (place.offset > file->bytes || wanted > file->bytes - place.offset) {
        struct attn_file_kind kind = attn_file_kind_of(file->data, file->bytes);
        if (kind.name != NULL && strncmp(kind.name, "a Git", 5) == 0) {
            attn_fail(ATTNRUN_E_IO, "tensor '%s': '%s' is %s", attn_quote(name),
                      attn_quote(place.location), kind.name);
            attn_hint("%s", kind.hint);
            return ATTNRUN_E_IO;
        }
        return attn_fail(
            ATTNRUN_E_IO, "tensor '%s' needs %s at offset %lld of '%s', which has %lld",
            attn_quote(name), attn_plural(wanted, "byte"), (long long)place.offset,
            attn_quote(place.location), (long long)file->bytes);
    }
    if (place.length >= 0 && place.length != wanted)
        return attn_fail(ATTNRUN_E_MODEL,
                         "tensor '%s': external length is %lld, expected %lld",
                         attn_quote(name), (long long)place.length, (long long)wanted);
    *bytes = file->data + place.offset;
    return ATTNRUN_OK;
}

/* model_open.c - attnrun_model_open(): a file or memory -> model. Packed files, known by their
 * first bytes, go to packed_open.c, others to onnx_open.c.
 *
 * In: a source of the caller, whose bytes are hostile. Out: a model, or a status with a
 * sentence and nothing left behind. */
#include <string.h>

#include "../runtime/abi.h"
#include "../runtime/io.h"
#include "../runtime/poll.h"
#include "model_open.h"
#include "packed_format.h"
#include "save_onnx.h"

enum {
    KNOWN_FLAGS = ATTNRUN_COPY | ATTNRUN_NO_FUSION | ATTNRUN_FORCE_BODIES |
    ATTNRUN_ALLOW_NEWER | ATTNRUN_ALLOW_MISSING | ATTNRUN_VERIFY | ATTNRUN_IN_PLACE |
    ATTNRUN_SEPARATE_DIMS
};

static attn_status check_fixed_dims(const attnrun_source *source)
{
    const attnrun_fixed_dim *fixed = source->fixed_dims;
    if (source->n_fixed_dims < 0 || (source->n_fixed_dims > 0 && fixed == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_open: fixed_dims is NULL");
    for (int64_t i = 0; i < source->n_fixed_dims; i++) {
        if (fixed[i].symbol == NULL || fixed[i].symbol[0] == 0 || fixed[i].size < 0 ||
            fixed[i].size > ATTN_MAX_DIM)
            return attn_fail(ATTNRUN_E_USAGE,
                             "attnrun_model_open: fixed_dims[%lld] has no name or a size "
                             "out of range",
                             (long long)i);
        for (int64_t k = 0; k < i; k++)
            if (strcmp(fixed[k].symbol, fixed[i].symbol) == 0)
                return attn_fail(ATTNRUN_E_USAGE,
                                 "attnrun_model_open: fixed_dims[%lld] and "
                                 "fixed_dims[%lld] both name '%s'",
                                 (long long)k, (long long)i, attn_quote(fixed[i].symbol));
    }
    return ATTNRUN_OK;
}

static attn_status check_source(const attnrun_source *source)
{
    if (source->flags & ~(uint32_t)KNOWN_FLAGS)
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_model_open: the flags 0x%x are unknown",
                         source->flags & ~(uint32_t)KNOWN_FLAGS);
    if (source->precision < ATTNRUN_PRECISION_F32 ||
        source->precision > ATTNRUN_PRECISION_AUTO)
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_model_open: the precision %d is unknown",
                         source->precision);
    if (source->ragged < ATTNRUN_RAGGED_OFF || source->ragged > ATTNRUN_RAGGED_AUTO)
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_model_open: ragged is %d, expected 0 to 2",
                         source->ragged);
    if (source->timeout_us < 0)
        return attn_fail(ATTNRUN_E_USAGE,
                         "the timeout is %lld microseconds, expected 0 (none) or more",
                         (long long)source->timeout_us);
    if ((source->path == NULL) == (source->data == NULL))
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_model_open: expected either path or data");
    if (source->n_more_outputs < 0 ||
        (source->n_more_outputs > 0 && source->more_outputs == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_open: more_outputs is NULL");
    for (int64_t i = 0; i < source->n_more_outputs; i++)
        if (source->more_outputs[i] == NULL)
            return attn_fail(ATTNRUN_E_USAGE,
                             "attnrun_model_open: more_outputs[%lld] is NULL",
                             (long long)i);
    return check_fixed_dims(source);
}

/* The bytes of the model, kept open by it. */
static attn_status open_bytes(struct attn_model *model, const attnrun_source *source,
                              struct attn_file *file)
{
    struct attn_memory *memory = attn_runtime_memory(model->runtime);
    bool copy = (source->flags & ATTNRUN_COPY) != 0;
    const int64_t limit = model->limits.file_bytes;
    if (source->data != NULL && source->bytes > (uint64_t)limit)
        return attn_fail_limit(ATTN_LIMIT_FILE_BYTES,
                               "the model has %llu bytes, expected at most %lld",
                               (unsigned long long)source->bytes, (long long)limit);
    if (source->path != NULL) {
        const struct attn_file_limit most = { limit, ATTN_LIMIT_FILE_BYTES };
        TRY(attn_file_open(memory, source->path, most, copy, file));
        attn_status status = attn_model_keep_file(model, file);
        if (status != ATTNRUN_OK)
            attn_file_close(memory, file);
        return status;
    }
    *file = (struct attn_file){ .data = source->data, .bytes = (int64_t)source->bytes };
    if (!copy)
        return ATTNRUN_OK;
    void *bytes = attn_pool_room(&model->weights, file->bytes > 0 ? file->bytes : 1);
    if (bytes == NULL)
        return ATTNRUN_E_MEMORY;
    if (file->bytes > 0)
        TRY(attn_poll_copy(bytes, source->data, file->bytes));
    file->data = bytes;
    return ATTNRUN_OK;
}

/* Errors of a packed file name it, too. */
static attn_status load_packed(struct attn_model *model, const attnrun_source *source,
                               const struct attn_file *file)
{
    const uint64_t errors = attn_error_count();
    attn_status status = attn_packed_load(model, source, file->data, file->bytes);
    if (status == ATTNRUN_OK || attnrun_last_error()->op_type[0] != 0)
        return status; /* or it names its node */
    return attn_open_fail(errors, status, source);
}

/* The bytes as a packed file, or as an ONNX model. */
static attn_status load_bytes(struct attn_model *model, const attnrun_source *source)
{
    struct attn_file file;
    const uint64_t errors = attn_error_count();
    TRY(open_bytes(model, source, &file));
    model->file_bytes = file.bytes;
    if (file.bytes == 0)
        return attn_open_fail(errors, attn_fail(ATTNRUN_E_PARSE, "the file is empty"),
                              source);
    const bool packed = attn_packed_is(file.data, file.bytes);
    if (model->origin != NULL && packed)
        return attn_open_fail(errors,
                              attn_fail(ATTNRUN_E_UNSUPPORTED,
                                        "this is a packed file, expected an ONNX model"),
                              source);
    if (model->origin != NULL) {
        model->origin->data = file.data;
        model->origin->bytes = file.bytes;
    }
    return packed ? load_packed(model, source, &file)
                  : attn_onnx_open(model, source, &file);
}

/* `origin`: NULL, or of a model that is to be written. *pass: a rewrite pass that failed for want
 * of a row, or NULL. */
static attn_status open_once(attnrun_runtime *runtime, const attnrun_source *source,
                             const struct attn_origin *origin, const char **pass,
                             struct attn_model **opened)
{
    struct attn_model *model;
    *pass = NULL;
    TRY(attn_model_create(runtime, source, &model));
    if (origin != NULL) {
        model->origin = attn_pool_copy(&model->pool, origin, (int64_t)sizeof *origin);
        if (model->origin == NULL) {
            attn_model_destroy(model);
            return ATTNRUN_E_MEMORY;
        }
    }
    attn_status status = load_bytes(model, source);
    *pass = model->failed_pass;
    if (status == ATTNRUN_OK)
        *opened = model;
    else
        attn_model_destroy(model);
    return status;
}

/* In a library with the rows of a list, a pass that would write another one does not run. */
static attn_status open_model(attnrun_runtime *runtime, const attnrun_source *source,
                              const struct attn_origin *origin,
                              struct attn_model **opened)
{
    attnrun_source given = *source;
    const char *pass;
    struct attn_pool names;
    attn_pool_init(&names, attn_runtime_memory(runtime), ATTN_MEM_MODEL);
    attn_status status = open_once(runtime, &given, origin, &pass, opened);
    while (status == ATTNRUN_E_UNSUPPORTED && pass != NULL) {
        const char *before = given.disable_passes != NULL ? given.disable_passes : "";
        given.disable_passes = attn_pool_printf(&names, "%s,%s", before, pass);
        status = given.disable_passes != NULL
                     ? open_once(runtime, &given, origin, &pass, opened)
                     : ATTNRUN_E_MEMORY;
    }
    attn_pool_free(&names);
    return status;
}

/* Opens what `source` says, under its timeout and its flag. */
static attn_status open_source(attnrun_runtime *runtime, const attnrun_source *source,
                               const struct attn_origin *origin,
                               struct attn_model **opened)
{
    attnrun_source given;
    TRY(attn_struct_read(source, &given, sizeof given, "attnrun_source"));
    TRY(check_source(&given));
    bool own = runtime == NULL;
    if (own)
        TRY(attn_runtime_default(&runtime));
    struct attn_control control = { .caller_flag = given.cancel };
    attn_control_start(&control, given.timeout_us);
    struct attn_meter polled = attn_poll_enter(&control);
    attn_status status = open_model(runtime, &given, origin, opened);
    attn_poll_leave(polled);
    if (own)
        attn_runtime_release(runtime); /* the model holds it */
    return status;
}

attn_status attn_model_open_to_write(attnrun_runtime *runtime,
                                     const attnrun_source *source,
                                     const struct attn_origin *origin,
                                     struct attn_model **opened)
{
    return open_source(runtime, source, origin, opened);
}

attnrun_status attnrun_model_open(attnrun_runtime *runtime, const attnrun_source *source,
                                  attnrun_model **model)
{
    attnrun_error before;
    struct attn_model *opened = NULL;
    if (model == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_open: model is NULL");
    attn_call_begin(&before);
    attn_status status = open_source(runtime, source, NULL, &opened);
    if (status == ATTNRUN_OK)
        *model = (attnrun_model *)opened;
    return attn_call_end(status, &before);
}

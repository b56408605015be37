/* model_open.c - attnrun_model_open(): a file or memory -> scan -> unpack -> graph ->
 * prepare. Packed files, known by their first bytes, go to packed_open.c.
 *
 * In: a source of the caller, whose bytes are hostile. Out: a model, or a status with a
 * sentence and nothing left behind. Large tensor data stays in the mapped file. */
#include <stdio.h>
#include <string.h>

#include "../runtime/abi.h"
#include "../runtime/dim_table.h"
#include "../runtime/poll.h"
#include "file_kind.h"
#include "onnx_load.h"
#include "packed_format.h"
#include "save_onnx.h"

/* Tensors of more bytes stay in the mapped file even where they are not aligned for their
 * elements: runtime/align.h. */
enum { KEEP_BYTES = 65536 };

enum {
    KNOWN_FLAGS = ATTNRUN_COPY | ATTNRUN_NO_FUSION | ATTNRUN_FORCE_BODIES |
    ATTNRUN_ALLOW_NEWER | ATTNRUN_ALLOW_MISSING | ATTNRUN_VERIFY
};

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
    if ((source->path == NULL) == (source->data == NULL))
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_model_open: path or data, one of them");
    if (source->n_more_outputs < 0 ||
        (source->n_more_outputs > 0 && source->more_outputs == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_open: more_outputs is NULL");
    if (source->n_fixed_dims < 0 ||
        (source->n_fixed_dims > 0 && source->fixed_dims == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_open: fixed_dims is NULL");
    for (int64_t i = 0; i < source->n_fixed_dims; i++)
        if (source->fixed_dims[i].symbol == NULL ||
            source->fixed_dims[i].symbol[0] == 0 || source->fixed_dims[i].size < 0 ||
            source->fixed_dims[i].size > ATTN_MAX_DIM)
            return attn_fail(ATTNRUN_E_USAGE,
                             "attnrun_model_open: fixed_dims[%lld] has no name or a size "
                             "out of range",
                             (long long)i);
    return ATTNRUN_OK;
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
                               "a model of %llu bytes, at most %lld",
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
    void *bytes = attn_pool_alloc(&model->weights, file->bytes > 0 ? file->bytes : 1);
    if (bytes == NULL)
        return ATTNRUN_E_MEMORY;
    if (file->bytes > 0)
        TRY(attn_poll_copy(bytes, source->data, file->bytes));
    file->data = bytes;
    return ATTNRUN_OK;
}

/* Where external data is looked for, or NULL. */
static attn_status external_dir(struct attn_pool *pool, const attnrun_source *source,
                                const char **dir)
{
    *dir = NULL;
    if (source->external_dir != NULL) {
        *dir = attn_pool_string(pool, source->external_dir);
        return *dir != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
    }
    if (source->path == NULL)
        return ATTNRUN_OK;
    const char *slash = strrchr(source->path, '/');
    if (slash == NULL)
        *dir = attn_pool_string(pool, ".");
    else if (slash == source->path)
        *dir = attn_pool_string(pool, "/");
    else
        *dir = attn_pool_printf(pool, "%.*s", (int)(slash - source->path), source->path);
    return *dir != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status take_text(struct attn_model *model, const char *text, const char **to)
{
    *to = attn_pool_string(&model->pool, pb_text(text));
    return *to != NULL ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

static attn_status read_header(struct attn_load *load, const PB(ModelProto) * pb)
{
    struct attn_model *model = load->model;
    model->ir_version = pb->ir_version;
    if (pb->ir_version < 1)
        return attn_fail(ATTNRUN_E_MODEL, "ir_version %lld, expected 3 to %d",
                         (long long)pb->ir_version, ATTN_LOAD_IR);
    bool newer = pb->ir_version > ATTN_LOAD_IR && !(model->flags & ATTNRUN_ALLOW_NEWER);
    if (pb->ir_version < 3 || newer)
        return attn_fail(ATTNRUN_E_VERSION, "ir_version %lld, known are 3 to %d",
                         (long long)pb->ir_version, ATTN_LOAD_IR);
    if (pb->graph == NULL)
        return attn_fail(ATTNRUN_E_MODEL, "the model has no graph");
    if (pb->n_opset_import == 0)
        return attn_fail(ATTNRUN_E_MODEL, "the model imports no opset");
    TRY(take_text(model, pb->producer_name, &model->producer));
    TRY(take_text(model, pb->producer_version, &model->producer_version));
    TRY(take_text(model, pb->graph->name, &model->graph_name));
    TRY(take_text(model, pb->doc_string, &model->doc));
    model->metadata = attn_pool_alloc(&model->pool, ((int64_t)pb->n_metadata_props + 1) *
                                                        (int64_t)sizeof *model->metadata);
    if (model->metadata == NULL)
        return ATTNRUN_E_MEMORY;
    for (size_t k = 0; k < pb->n_metadata_props; k++) {
        TRY(take_text(model, pb->metadata_props[k]->key, &model->metadata[k].key));
        TRY(take_text(model, pb->metadata_props[k]->value, &model->metadata[k].value));
    }
    model->n_metadata = (int32_t)pb->n_metadata_props;
    return ATTNRUN_OK;
}

/* E_USAGE where the caller fixes a symbol that the file does not have. */
static attn_status check_fixed(const struct attn_model *model)
{
    enum { MAX = 64 };
    const char *symbol = attn_dims_unmet(model->dims), *names[MAX];
    int64_t n = 0;
    if (symbol == NULL)
        return ATTNRUN_OK;
    for (int64_t i = 0; i < model->dims->n_symbols && n < MAX; i++)
        if (model->dims->symbols[i].kind == SYMBOL_PLAIN &&
            !model->dims->symbols[i].vague)
            names[n++] = model->dims->symbols[i].name;
    attn_fail(ATTNRUN_E_USAGE, "no value of the model has a dimension '%s'",
              attn_quote(symbol));
    attn_suggest(symbol, names, n);
    return ATTNRUN_E_USAGE;
}

static attn_status build(struct attn_load *load, const PB(ModelProto) * pb)
{
    struct attn_model *model = load->model;
    const struct attn_opset *opsets;
    TRY(read_header(load, pb));
    TRY(attn_read_opsets(load, pb->n_opset_import, pb->opset_import, &opsets,
                         &model->n_opsets));
    model->opsets = (struct attn_opset *)(uintptr_t)opsets;
    TRY(attn_load_functions(load, pb));
    load->attrs = attn_pool_alloc(load->pool, model->limits.attributes *
                                                  (int64_t)sizeof *load->attrs);
    if (load->attrs == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_load_main(load, pb->graph, opsets, model->n_opsets));
    return check_fixed(model);
}

/* Errors of the bytes as such name the file; what is no model at all is said in their place. */
static attn_status fail_bytes(const struct attn_load *load, attn_status status,
                              const attnrun_source *source, const struct attn_file *file)
{
    const char *path = source->path == NULL ? "" : source->path;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct attn_file_kind kind = { NULL, "" };
    if (status == ATTNRUN_E_PARSE)
        kind = attn_file_kind_of(file->data, file->bytes);
    if (kind.name != NULL) {
        attn_fail(status, "%s%s%s is %s, expected an ONNX model",
                  path[0] != 0 ? "'" : "the model", attn_quote(name),
                  path[0] != 0 ? "'" : "", kind.name);
        attn_hint("%s", kind.hint);
        return status;
    }
    if (source->path == NULL)
        return status;
    attn_load_fail_in(load, status, "file", name);
    if (status == ATTNRUN_E_PARSE)
        attn_hint("is '%s' an ONNX model, and complete?", attn_quote(path));
    return status;
}

/* Errors of a packed file name it, too. */
static attn_status load_packed(struct attn_load *load, const attnrun_source *source,
                               const struct attn_file *file)
{
    attn_status status = attn_packed_load(load->model, source, file->data, file->bytes);
    if (status == ATTNRUN_OK || source->path == NULL ||
        attnrun_last_error()->op_type[0] != 0)
        return status;
    char hint[sizeof attnrun_last_error()->hint];
    const char *slash = strrchr(source->path, '/');
    snprintf(hint, sizeof hint, "%s", attnrun_last_error()->hint);
    attn_load_fail_in(load, status, "file", slash != NULL ? slash + 1 : source->path);
    if (hint[0] != 0)
        attn_hint("%s", hint);
    return status;
}

/* Scan, unpack, build: what `pool` and `scan` hold ends with the load. */
static attn_status load_model(struct attn_model *model, const attnrun_source *source,
                              struct attn_pool *pool, struct attn_scan *scan)
{
    struct attn_file file;
    struct attn_external external = { .model = model, .by_location = { .pool = pool } };
    struct attn_load load = { .model = model,
                              .pool = pool,
                              .source = source,
                              .reader = { .pool = &model->weights,
                                          .limits = &model->limits,
                                          .scan = scan,
                                          .external = &external,
                                          .unaligned_above = KEEP_BYTES },
                              .by_name = { .pool = pool },
                              .errors = attn_error_count() };
    TRY(open_bytes(model, source, &file));
    TRY(external_dir(pool, source, &external.dir));
    model->file_bytes = file.bytes;
    if (file.bytes == 0)
        return fail_bytes(&load, attn_fail(ATTNRUN_E_PARSE, "is empty"), source, &file);
    if (model->origin != NULL && attn_packed_is(file.data, file.bytes))
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "'%s' is a packed file, expected an ONNX "
                         "model",
                         attn_quote(source->path == NULL ? "" : source->path));
    if (model->origin != NULL)
        *model->origin = (struct attn_origin){ .data = file.data,
                                               .bytes = file.bytes,
                                               .keep_nodes = model->origin->keep_nodes };
    if (attn_packed_is(file.data, file.bytes))
        return load_packed(&load, source, &file);
    const ProtobufCMessageDescriptor *descriptor =
        &attnrun__onnx__model_proto__descriptor;
    ProtobufCMessage *message = NULL;
    attn_status status =
        attn_wire_scan(attn_runtime_memory(model->runtime), &model->limits, descriptor,
                       file.data, file.bytes, scan);
    if (status == ATTNRUN_OK)
        status = attn_scan_unpack(scan, pool, descriptor, &message);
    if (status != ATTNRUN_OK)
        return fail_bytes(&load, status, source, &file);
    const PB(ModelProto) *pb = (const PB(ModelProto) *)message;
    attn_free(scan->memory, ATTN_MEM_MODEL, scan->copy, scan->copy_capacity);
    scan->copy = NULL;
    scan->copy_capacity = scan->copy_bytes = 0;
    return build(&load, pb);
}

/* `origin`: NULL, or of a model that is to be written. */
static attn_status open_model(attnrun_runtime *runtime, const attnrun_source *source,
                              const struct attn_origin *origin,
                              struct attn_model **opened)
{
    struct attn_model *model;
    TRY(attn_model_create(runtime, source, &model));
    if (origin != NULL) {
        model->origin = attn_pool_copy(&model->pool, origin, (int64_t)sizeof *origin);
        if (model->origin == NULL) {
            attn_model_destroy(model);
            return ATTNRUN_E_MEMORY;
        }
    }
    struct attn_scan scan = { .memory = attn_runtime_memory(runtime) };
    struct attn_pool pool;
    attn_pool_init(&pool, attn_runtime_memory(runtime), ATTN_MEM_MODEL);
    attn_status status = load_model(model, source, &pool, &scan);
    attn_scan_free(&scan);
    attn_pool_free(&pool);
    if (status == ATTNRUN_OK && !model->rewritten)
        status = attn_model_prepare(model);
    if (status == ATTNRUN_OK)
        *opened = model;
    else
        attn_model_destroy(model);
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
                                     const attnrun_source *source, bool keep_nodes,
                                     struct attn_model **opened)
{
    const struct attn_origin origin = { .keep_nodes = keep_nodes };
    return open_source(runtime, source, &origin, opened);
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

/* onnx_open.c - the bytes of an ONNX model -> scan -> unpack -> graph -> prepare.
 *
 * In: bytes that model_open.c has open, hostile. Out: a model that may be run, or written, or a
 * status with a sentence. Large tensor data stays in the mapped file. */
#include <string.h>

#include "../runtime/dim_table.h"
#include "file_kind.h"
#include "model_open.h"
#include "onnx_load.h"

/* Tensors of more bytes stay in the mapped file even where they are not aligned for their
 * elements: runtime/align.h. */
enum { KEEP_BYTES = 65536 };

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
        return attn_fail(ATTNRUN_E_VERSION, "ir_version is %lld, expected 3 to %d",
                         (long long)pb->ir_version, ATTN_LOAD_IR);
    if (pb->graph == NULL)
        return attn_fail(ATTNRUN_E_MODEL, "the model has no graph");
    if (pb->n_opset_import == 0)
        return attn_fail(ATTNRUN_E_MODEL, "the model imports no opset");
    TRY(take_text(model, pb->producer_name, &model->producer));
    TRY(take_text(model, pb->producer_version, &model->producer_version));
    TRY(take_text(model, pb->domain, &model->domain));
    TRY(take_text(model, pb->doc_string, &model->doc));
    TRY(take_text(model, pb->graph->name, &model->graph_name));
    TRY(take_text(model, pb->graph->doc_string, &model->graph_doc));
    if (pb->has_model_version)
        model->model_version = pb->model_version;
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
            (model->dims->symbols[i].marks & SYMBOL_VAGUE) == 0)
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
    TRY(attn_load_main(load, pb->graph, opsets, model->n_opsets));
    return check_fixed(model);
}

/* Errors of the bytes as such; what is no model at all is said in their place. */
static attn_status fail_bytes(const struct attn_load *load, attn_status status,
                              const attnrun_source *source, const struct attn_file *file)
{
    struct attn_file_kind kind = { NULL, "" };
    if (status == ATTNRUN_E_PARSE)
        kind = attn_file_kind_of(file->data, file->bytes);
    if (kind.name == NULL) {
        if (status == ATTNRUN_E_PARSE && source->path != NULL &&
            attn_error_is_of(status, load->errors))
            attn_hint("check that '%s' is a complete ONNX model",
                      attn_quote(source->path));
        return attn_open_fail(load->errors, status, source);
    }
    const bool named = source->path != NULL;
    attn_fail(status, "%s%s%s is %s, expected an ONNX model", named ? "'" : "the model",
              attn_quote(attn_open_name(source)), named ? "'" : "", kind.name);
    attn_hint("%s", kind.hint);
    return status;
}

/* Scan, unpack, build: what `pool` and `scan` hold ends with the load. */
static attn_status load_model(struct attn_model *model, const attnrun_source *source,
                              const struct attn_file *file, struct attn_pool *pool,
                              struct attn_scan *scan)
{
    struct attn_external external = { .model = model, .by_location = { .pool = pool } };
    struct attn_name_map made = { .pool = pool };
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
    const ProtobufCMessageDescriptor *descriptor =
        &attnrun__onnx__model_proto__descriptor;
    ProtobufCMessage *message = NULL;
    TRY(external_dir(pool, source, &external.dir));
    attn_status status =
        attn_wire_scan(attn_runtime_memory(model->runtime), &model->limits, descriptor,
                       file->data, file->bytes, scan);
    if (status == ATTNRUN_OK)
        status = attn_scan_unpack(scan, pool, descriptor, &message);
    if (status != ATTNRUN_OK)
        return fail_bytes(&load, status, source, file);
    const PB(ModelProto) *pb = (const PB(ModelProto) *)message;
    load.reader.made = pb->n_functions > 0 ? &made : NULL;
    load.file_parts = scan->copy_bytes; /* each has two bytes or more */
    attn_free(scan->memory, ATTN_MEM_MODEL, scan->copy, scan->copy_capacity);
    scan->copy = NULL;
    scan->copy_capacity = scan->copy_bytes = 0;
    return build(&load, pb);
}

attn_status attn_onnx_open(struct attn_model *model, const attnrun_source *source,
                           const struct attn_file *file)
{
    struct attn_scan scan = { .memory = attn_runtime_memory(model->runtime) };
    struct attn_pool pool;
    attn_pool_init(&pool, scan.memory, ATTN_MEM_MODEL);
    attn_status status = load_model(model, source, file, &pool, &scan);
    attn_scan_free(&scan);
    attn_pool_free(&pool);
    return status == ATTNRUN_OK ? attn_model_prepare(model) : status;
}

/* save_onnx.c - attnrun_save_onnx(): an ONNX model made of another one.
 *
 * In: a source, what becomes of it, and a function of the caller that takes bytes. Out: a
 * model of the same nodes, simplified where that is asked for, or those of its nodes that lie
 * between some values. Constants are written from where they lie, so memory is that of the
 * graph:
 *
 *   ir, opsets, texts, functions | graph: nodes, inputs, outputs | head, bytes | head, bytes ...
 */
#include "../runtime/abi.h"
#include "../runtime/poll.h"
#include "onnx_load.h"
#include "save_onnx.h"
#include "wire_scan.h"
#include "write_all.h"

enum {
    APART_BYTES = 1024, /* constants of fewer bytes are copied with their heads */
    EXTERNAL_BYTES = 65536,
    EXTERNAL_ALIGN = 4096,
    IR_INITIALIZERS = 4 /* from here on an initializer need not be an input */
};

/* ---- what stays ---- */

static attn_status find_value(const struct attn_graph *graph, const char *name,
                              int32_t *id)
{
    *id = name != NULL ? attn_graph_find(graph, name) : -1;
    if (*id >= 0)
        return ATTNRUN_OK;
    return attn_fail(ATTNRUN_E_USAGE, "the main graph has no value '%s'",
                     attn_quote(name != NULL ? name : ""));
}

/* A value that is read: its node is live, or it is a constant or an input. */
static attn_status need_value(struct attn_onnx_save *save, int32_t id)
{
    const struct attn_graph *graph = save->model->graph;
    const struct attn_value *value = id >= 0 ? &graph->values[id] : NULL;
    if (value == NULL || save->cut[id])
        return ATTNRUN_OK;
    if (value->data.data != NULL) {
        save->kept[id] = true;
    } else if (value->flags & ATTN_VALUE_INPUT) {
        if (save->edit->n_inputs > 0) {
            attn_fail(ATTNRUN_E_USAGE,
                      "the outputs need the input '%s' of the model, which is not among "
                      "the inputs of the part",
                      attn_quote(value->name));
            attn_hint("add it to the inputs, or a value between it and the outputs");
            return ATTNRUN_E_USAGE;
        }
        save->cut[id] = true;
    } else {
        save->live[value->producer] = true;
    }
    return ATTNRUN_OK;
}

/* What stands for a value of a subgraph in the main graph, or nothing. */
static attn_status need_outer(struct attn_onnx_save *save, const struct attn_graph *graph,
                              int32_t id)
{
    while (id >= 0 && graph->outer != NULL) {
        const struct attn_value *value = &graph->values[id];
        id = value->flags & ATTN_VALUE_CAPTURE ? value->outer : -1;
        graph = graph->outer;
    }
    return need_value(save, id);
}

/* What the nodes of a subgraph read, and those of the graphs within it: as deep as the limit
 * subgraph_depth. The values that a node captures are more: its list keeps those whose readers
 * were computed. */
static attn_status need_captures(struct attn_onnx_save *save,
                                 const struct attn_graph *graph)
{
    for (int32_t i = 0; i < graph->n_outputs; i++)
        TRY(need_outer(save, graph, graph->outputs[i]));
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; node != NULL && i < node->pub.n_in; i++)
            TRY(need_outer(save, graph, node->in[i]));
        for (int32_t g = 0; node != NULL && g < node->n_graphs; g++)
            TRY(need_captures(save, node->graphs[g]));
        TRY(attn_poll_work(256));
    }
    return ATTNRUN_OK;
}

/* From the outputs back; nodes are in an order of execution. */
static attn_status find_live(struct attn_onnx_save *save)
{
    const struct attn_graph *graph = save->model->graph;
    for (int32_t i = 0; i < save->n_outputs; i++)
        TRY(need_value(save, save->outputs[i]));
    for (int64_t n = graph->n_nodes - 1; n >= 0; n--) {
        const struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; save->live[n] && i < node->pub.n_in; i++)
            TRY(need_value(save, node->in[i]));
        for (int32_t g = 0; save->live[n] && g < node->n_graphs; g++)
            TRY(need_captures(save, node->graphs[g]));
        TRY(attn_poll_work(256));
    }
    return ATTNRUN_OK;
}

static attn_status list_values(const struct attn_graph *graph, const char *const *names,
                               int64_t n, int32_t *ids)
{
    for (int64_t i = 0; i < n; i++) {
        TRY(find_value(graph, names[i], &ids[i]));
        for (int64_t k = 0; k < i; k++)
            if (ids[k] == ids[i])
                return attn_fail(ATTNRUN_E_USAGE, "the value '%s' is listed twice",
                                 attn_quote(names[i]));
    }
    return ATTNRUN_OK;
}

/* Inputs of the model that nothing needs stay, unless a part was asked for. */
static void choose_inputs(struct attn_onnx_save *save)
{
    const struct attn_graph *graph = save->model->graph;
    if (save->edit->n_inputs > 0) {
        save->n_inputs = (int32_t)save->edit->n_inputs;
        return;
    }
    for (int32_t i = 0; i < graph->n_inputs; i++)
        if (save->edit->n_outputs == 0 || save->cut[graph->inputs[i]])
            save->inputs[save->n_inputs++] = graph->inputs[i];
}

static attn_status check_type(const struct attn_graph *graph, int32_t id)
{
    const struct attn_value *value = &graph->values[id];
    if (value->type.kind != ATTNRUN_ABSENT && value->type.dtype != 0)
        return ATTNRUN_OK;
    return attn_fail(ATTNRUN_E_UNSUPPORTED,
                     "the element type of '%s' is not known, so it cannot be an input",
                     attn_quote(value->name));
}

/* A node that is written for its other outputs gives a value that is an input now: there it gets
 * another name. */
static attn_status part_from_nodes(struct attn_onnx_save *save)
{
    struct attn_graph *graph = save->model->graph;
    for (int64_t i = 0; i < save->edit->n_inputs; i++) {
        const int32_t id = save->inputs[i], producer = graph->values[id].producer;
        const struct attn_node *node =
            producer >= 0 && save->live[producer] ? graph->nodes[producer] : NULL;
        for (int32_t k = 0; node != NULL && k < node->pub.n_out; k++)
            if (node->out[k] == id)
                TRY(attn_graph_add_value(graph, NULL, &node->out[k]));
    }
    return ATTNRUN_OK;
}

static attn_status choose(struct attn_onnx_save *save)
{
    const struct attn_graph *graph = save->model->graph;
    const attnrun_onnx_edit *edit = save->edit;
    const bool all = edit->n_outputs == 0;
    struct attn_pool *pool = &save->pool;
    const int64_t n_outputs = all ? save->model->origin->n_outputs : edit->n_outputs,
                  n_inputs = edit->n_inputs > 0 ? edit->n_inputs : graph->n_inputs,
                  n_values = graph->n_values + edit->n_inputs; /* part_from_nodes() */
    save->live = attn_pool_alloc(pool, graph->n_nodes + 1);
    save->cut = attn_pool_alloc(pool, n_values + 1);
    save->kept = attn_pool_alloc(pool, n_values + 1);
    save->inputs = attn_pool_alloc(pool, (n_inputs + 1) * (int64_t)sizeof(int32_t));
    save->outputs = attn_pool_alloc(pool, (n_outputs + 1) * (int64_t)sizeof(int32_t));
    if (!save->live || !save->cut || !save->kept || !save->inputs || !save->outputs)
        return ATTNRUN_E_MEMORY;
    TRY(list_values(graph, edit->outputs, edit->n_outputs, save->outputs));
    TRY(list_values(graph, edit->inputs, edit->n_inputs, save->inputs));
    save->n_outputs = (int32_t)n_outputs;
    for (int32_t i = 0; all && i < save->n_outputs; i++)
        save->outputs[i] = graph->outputs[i];
    for (int64_t i = 0; i < edit->n_inputs; i++) {
        TRY(check_type(graph, save->inputs[i]));
        save->cut[save->inputs[i]] = true;
    }
    TRY(find_live(save));
    choose_inputs(save);
    return part_from_nodes(save);
}

/* ---- constants ---- */

static int64_t align_external(int64_t at)
{
    return ceil_div(at, EXTERNAL_ALIGN) * EXTERNAL_ALIGN;
}

static void put_entry(struct wire_buffer *b, const char *key, const char *value)
{
    enum { TENSOR_EXTERNAL = 13, KEY = 1, VALUE = 2 };
    struct wire_buffer entry = wire_beside(b);
    wire_text(&entry, KEY, key);
    wire_text(&entry, VALUE, value);
    wire_message(b, TENSOR_EXTERNAL, &entry);
}

/* Where the bytes are in the file beside the model. */
static attn_status put_external(struct attn_onnx_save *save, struct wire_buffer *b,
                                struct attn_onnx_constant *constant)
{
    enum { TENSOR_LOCATION = 14, EXTERNAL = 1 };
    constant->external_at = align_external(save->external_bytes);
    save->external_bytes = constant->external_at + constant->bytes;
    char *offset =
             attn_pool_printf(&save->pool, "%lld", (long long)constant->external_at),
         *length = attn_pool_printf(&save->pool, "%lld", (long long)constant->bytes);
    if (offset == NULL || length == NULL)
        return ATTNRUN_E_MEMORY;
    put_entry(b, "location", save->edit->external_name);
    put_entry(b, "offset", offset);
    put_entry(b, "length", length);
    wire_int(b, TENSOR_LOCATION, EXTERNAL);
    return ATTNRUN_OK;
}

/* The head of one constant: its message up to the bytes that are written from their place. */
static attn_status add_constant(struct attn_onnx_save *save,
                                const struct attn_value *value)
{
    const attnrun_tensor *tensor = &value->data;
    struct wire_buffer message = wire_beside(&save->heads);
    struct attn_onnx_constant *constant = &save->constants[save->n_constants++];
    const int64_t bytes = tensor->dtype == ATTNRUN_STRING ? 0 : tensor_bytes(tensor);
    const bool external = save->edit->external_name != NULL && bytes >= EXTERNAL_BYTES,
               apart = external || bytes >= APART_BYTES;
    attn_status status = ATTNRUN_OK;
    *constant =
        (struct attn_onnx_constant){ .head_at = save->heads.n, .external_at = -1 };
    attn_save_tensor(&message, tensor, value->name, apart);
    if (apart) {
        constant->data = tensor->data;
        constant->bytes = bytes;
    }
    if (external)
        status = put_external(save, &message, constant);
    else if (apart)
        wire_head(&message, WIRE_TENSOR_RAW_DATA, (size_t)bytes);
    wire_head(&save->heads, WIRE_GRAPH_INITIALIZER,
              message.n + (apart && !external ? (size_t)bytes : 0));
    wire_put(&save->heads, message.data, message.n);
    save->heads.failed = save->heads.failed || message.failed;
    wire_free(&message);
    constant->head_bytes = save->heads.n - constant->head_at;
    return status;
}

static attn_status add_constants(struct attn_onnx_save *save)
{
    const struct attn_graph *graph = save->model->graph;
    int64_t n = 0;
    for (int64_t v = 0; v < graph->n_values; v++)
        n += save->kept[v];
    save->constants =
        attn_pool_alloc(&save->pool, (n + 1) * (int64_t)sizeof *save->constants);
    if (save->constants == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t v = 0; v < graph->n_values; v++)
        if (save->kept[v])
            TRY(add_constant(save, &graph->values[v]));
    return save->heads.failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK;
}

/* ---- functions of the file ---- */

static bool take_varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    const int bytes = attn_varint(*at, end, value);
    *at += bytes;
    return bytes > 0;
}

/* The next field of a message that the scan has passed: its number, and its bytes where it
 * has a length. False at the end. */
static bool next_field(const uint8_t **at, const uint8_t *end, int *field,
                       const uint8_t **data, uint64_t *n)
{
    enum { FIXED_64 = 1, LENGTH = 2, FIXED_32 = 5 };
    uint64_t tag, value;
    if (*at >= end || !take_varint(at, end, &tag))
        return false;
    const int type = (int)(tag & 7);
    *field = (int)(tag >> 3);
    *data = NULL;
    *n = type == FIXED_64 ? 8 : type == FIXED_32 ? 4 : 0;
    if ((type == LENGTH && !take_varint(at, end, n)) ||
        (type == 0 && !take_varint(at, end, &value)))
        return false;
    if (type == LENGTH)
        *data = *at;
    if (*n > (uint64_t)(end - *at))
        return false;
    *at += *n;
    return true;
}

/* Whether a node has a function of the file, or one within its subgraphs. `live`: the nodes that
 * are written, NULL: all. */
static attn_status find_call(const struct attn_graph *graph, const bool *live,
                             bool *called)
{
    for (int64_t i = 0; i < graph->n_nodes && !*called; i++) {
        const struct attn_node *node = graph->nodes[i];
        if (node == NULL || (live != NULL && !live[i]))
            continue;
        *called = node->has_body;
        for (int32_t g = 0; g < node->n_graphs && !*called; g++)
            TRY(find_call(node->graphs[g], NULL, called));
        TRY(attn_poll_work(16));
    }
    return ATTNRUN_OK;
}

/* All functions of the file where one is called, since it may call the others: their bytes as
 * they are. */
static attn_status put_functions(const struct attn_onnx_save *save,
                                 struct wire_buffer *head)
{
    const struct attn_origin *origin = save->model->origin;
    const uint8_t *at = origin->data, *end = at + origin->bytes, *data;
    bool called = false;
    uint64_t n;
    int field;
    TRY(find_call(save->model->graph, save->live, &called));
    while (called && next_field(&at, end, &field, &data, &n)) {
        TRY(attn_poll_work(1024));
        if (field == WIRE_MODEL_FUNCTIONS && data != NULL)
            wire_bytes(head, field, data, (size_t)n);
    }
    return ATTNRUN_OK;
}

/* ---- the model ---- */

static void put_opset(struct wire_buffer *head, const char *domain, int64_t version)
{
    struct wire_buffer opset = wire_beside(head);
    if (domain[0] != 0)
        wire_text(&opset, WIRE_OPSET_DOMAIN, domain);
    wire_int(&opset, WIRE_OPSET_VERSION, version);
    wire_message(head, WIRE_MODEL_OPSET_IMPORT, &opset);
}

static attn_status put_head(const struct attn_onnx_save *save, struct wire_buffer *head)
{
    enum { PRODUCER = 2, PRODUCER_VERSION, DOMAIN, MODEL_VERSION, DOC, METADATA = 14 };
    enum { KEY = 1, VALUE };
    const struct attn_model *model = save->model;
    wire_int(head, WIRE_MODEL_IR_VERSION,
             model->ir_version > IR_INITIALIZERS ? model->ir_version : IR_INITIALIZERS);
    for (int32_t i = 0; i < model->n_opsets; i++)
        put_opset(head, model->opsets[i].domain, model->opsets[i].version);
    wire_text(head, PRODUCER, model->producer);
    wire_text(head, PRODUCER_VERSION, model->producer_version);
    if (model->domain[0] != 0)
        wire_text(head, DOMAIN, model->domain);
    if (model->model_version != INT64_MAX)
        wire_int(head, MODEL_VERSION, model->model_version);
    if (model->doc[0] != 0)
        wire_text(head, DOC, model->doc);
    for (int32_t i = 0; i < model->n_metadata; i++) {
        struct wire_buffer entry = wire_beside(head);
        wire_text(&entry, KEY, model->metadata[i].key);
        wire_text(&entry, VALUE, model->metadata[i].value);
        wire_message(head, METADATA, &entry);
    }
    return put_functions(save, head);
}

/* ---- writing ---- */

struct sink {
    attnrun_write_fn write;
    void *user;
    int64_t bytes;
};

static attn_status give(struct sink *sink, const void *bytes, int64_t n)
{
    TRY(attn_write_all(sink->write, sink->user, bytes, n, "model"));
    sink->bytes += n;
    return ATTNRUN_OK;
}

static attn_status give_constants(const struct attn_onnx_save *save, struct sink *model,
                                  struct sink *beside)
{
    static const char zeros[EXTERNAL_ALIGN];
    for (int64_t i = 0; i < save->n_constants; i++) {
        const struct attn_onnx_constant *constant = &save->constants[i];
        const bool external = constant->external_at >= 0;
        TRY(give(model, save->heads.data + constant->head_at,
                 (int64_t)constant->head_bytes));
        if (external)
            TRY(give(beside, zeros, constant->external_at - beside->bytes));
        TRY(give(external ? beside : model, constant->data, constant->bytes));
    }
    return ATTNRUN_OK;
}

static attn_status check_size(int64_t bytes)
{
    if (bytes <= INT32_MAX)
        return ATTNRUN_OK;
    attn_fail(ATTNRUN_E_LIMIT,
              "the model would be %lld bytes, expected at most %d: write the constants "
              "to an external file",
              (long long)bytes, INT32_MAX);
    return ATTNRUN_E_LIMIT;
}

static attn_status save_model(struct attn_onnx_save *save, struct sink *model,
                              struct sink *beside)
{
    struct wire_buffer head = wire_beside(&save->graph);
    TRY(attn_save_share(save->model, &save->pool));
    TRY(choose(save));
    TRY(attn_save_graph(save));
    TRY(add_constants(save));
    int64_t bytes = (int64_t)(save->graph.n + save->heads.n);
    for (int64_t i = 0; i < save->n_constants; i++)
        bytes += save->constants[i].external_at < 0 ? save->constants[i].bytes : 0;
    attn_status status = put_head(save, &head);
    wire_head(&head, WIRE_MODEL_GRAPH, (size_t)bytes);
    if (status == ATTNRUN_OK && head.failed)
        status = ATTNRUN_E_MEMORY;
    if (status == ATTNRUN_OK)
        status = check_size(bytes + (int64_t)head.n);
    if (status == ATTNRUN_OK)
        status = give(model, head.data, (int64_t)head.n);
    wire_free(&head);
    TRY(status);
    TRY(give(model, save->graph.data, (int64_t)save->graph.n));
    return give_constants(save, model, beside);
}

/* ---- the call ---- */

/* Room in the memory of the model, for buffers that grow. */
static void *resize(void *user, void *data, size_t from, size_t to)
{
    struct attn_memory *memory = user;
    void *grown = to > 0 ? attn_alloc(memory, ATTN_MEM_MODEL, (int64_t)to) : NULL;
    if (to > 0 && grown == NULL)
        return NULL;
    if (grown != NULL && from > 0)
        memcpy(grown, data, from < to ? from : to);
    attn_free(memory, ATTN_MEM_MODEL, data, (int64_t)from);
    return grown;
}

static attn_status check_edit(const attnrun_onnx_edit *edit, attnrun_write_fn write)
{
    if (write == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_save_onnx: write is NULL");
    if (edit->flags & ~(uint32_t)ATTNRUN_ONNX_SIMPLIFY)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_save_onnx: the flags 0x%x are unknown",
                         edit->flags & ~(uint32_t)ATTNRUN_ONNX_SIMPLIFY);
    if (edit->n_inputs < 0 || edit->n_outputs < 0 || edit->n_inputs > INT32_MAX / 4 ||
        edit->n_outputs > INT32_MAX / 4 || (edit->n_inputs > 0 && edit->inputs == NULL) ||
        (edit->n_outputs > 0 && edit->outputs == NULL))
        return attn_fail(ATTNRUN_E_USAGE,
                         "attnrun_save_onnx: inputs or outputs are NULL, or too many");
    for (int64_t i = 0; i < edit->n_inputs + edit->n_outputs; i++)
        if ((i < edit->n_inputs ? edit->inputs[i] : edit->outputs[i - edit->n_inputs]) ==
            NULL)
            return attn_fail(ATTNRUN_E_USAGE,
                             "attnrun_save_onnx: a name of inputs or outputs is NULL");
    if ((edit->external_name != NULL) != (edit->write_external != NULL))
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_save_onnx: expected both "
                                          "external_name and write_external, or neither");
    return ATTNRUN_OK;
}

/* The values that are named must not be folded away: they are outputs while it is opened. */
static attn_status open_source(struct attn_onnx_save *save, attnrun_runtime *runtime,
                               const attnrun_source *source)
{
    const attnrun_onnx_edit *edit = save->edit;
    attnrun_source given = *source;
    const int64_t n = edit->n_inputs + edit->n_outputs;
    const char **names = attn_pool_alloc(&save->pool, (n + 1) * (int64_t)sizeof *names);
    if (names == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < edit->n_outputs; i++)
        names[i] = edit->outputs[i];
    for (int64_t i = 0; i < edit->n_inputs; i++)
        names[edit->n_outputs + i] = edit->inputs[i];
    given.struct_size = sizeof given; /* a copy, of this library's size */
    given.more_outputs = names;
    given.n_more_outputs = n;
    const struct attn_origin origin = {
        .keep_nodes = (edit->flags & ATTNRUN_ONNX_SIMPLIFY) == 0,
        .inputs = edit->inputs,
        .n_inputs = edit->n_inputs,
    };
    return attn_model_open_to_write(runtime, &given, &origin, &save->model);
}

static attn_status save_source(attnrun_runtime *runtime, const attnrun_source *source,
                               const attnrun_onnx_edit *edit, struct sink *model,
                               struct sink *beside, attnrun_onnx_saved *saved)
{
    struct attn_onnx_save save = { .edit = edit };
    struct attn_memory *memory = attn_runtime_memory(runtime);
    attn_pool_init(&save.pool, memory, ATTN_MEM_MODEL);
    save.graph = save.heads = (struct wire_buffer){ .resize = resize, .user = memory };
    attn_status status = open_source(&save, runtime, source);
    if (status == ATTNRUN_OK) {
        status = save_model(&save, model, beside);
        saved->n_file_nodes = save.model->n_file_nodes;
        saved->n_nodes = (int32_t)save.n_nodes;
        saved->bytes = model->bytes;
        saved->external_bytes = beside->bytes;
    }
    wire_free(&save.graph);
    wire_free(&save.heads);
    attn_pool_free(&save.pool);
    attn_model_destroy(save.model);
    return status;
}

attnrun_status attnrun_save_onnx(attnrun_runtime *runtime, const attnrun_source *source,
                                 const attnrun_onnx_edit *edit, attnrun_write_fn write,
                                 void *user, attnrun_onnx_saved *saved)
{
    attnrun_error before;
    attnrun_source given;
    attnrun_onnx_edit own;
    attnrun_onnx_saved done = { .n_nodes = 0 };
    TRY(attn_struct_read(source, &given, sizeof given, "attnrun_source"));
    TRY(attn_struct_read(edit, &own, sizeof own, "attnrun_onnx_edit"));
    if (saved != NULL)
        TRY(attn_struct_check(saved, sizeof *saved, "attnrun_onnx_saved"));
    TRY(check_edit(&own, write));
    if (given.n_more_outputs > 0)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_save_onnx: name the outputs in "
                                          "attnrun_onnx_edit, not in more_outputs");
    attn_call_begin(&before);
    const bool made = runtime == NULL;
    if (made)
        TRY(attn_runtime_default(&runtime));
    struct sink model = { .write = write, .user = user },
                beside = { .write = own.write_external, .user = user };
    attn_status status = save_source(runtime, &given, &own, &model, &beside, &done);
    if (made)
        attn_runtime_release(runtime);
    TRY(attn_call_end(status, &before));
    return saved == NULL
               ? ATTNRUN_OK
               : attn_struct_write(saved, &done, sizeof done, "attnrun_onnx_saved");
}

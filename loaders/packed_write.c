/* packed_write.c - the graph part of a packed file.
 *
 * In: a model that is laid out (packed_layout.c). Out: words of 8 bytes, which packed_graph.c
 * reads in the same order:
 *
 *   model    producer, versions, opsets, metadata, counts of passes, sizes
 *   symbols  of dims: names, or what they are made of
 *   graphs   for each the number of that around it
 *   graph    name, values, inputs, outputs, nodes; once for each
 *   value    name, kind of place, type, where its bytes are
 *   node     domain, operator, name, opset, operands, attributes, subgraphs, packed weights
 */
#include <string.h>

#include "../runtime/dim_table.h"
#include "../runtime/poll.h"
#include "packed_format.h"

/* ---- words ---- */

/* Room for n more; the words are of the allocator itself, since they may be many. */
static bool packed_make_room(struct attn_packed_writer *w, int64_t n)
{
    if (w->n_words + n <= w->words_capacity)
        return true;
    int64_t capacity = 2 * w->words_capacity + n + 1024;
    int64_t *words = attn_alloc(w->model->pool.memory, ATTN_MEM_MODEL, capacity * 8);
    if (words == NULL)
        return false;
    if (w->n_words > 0)
        memcpy(words, w->words, (size_t)w->n_words * 8);
    attn_free(w->model->pool.memory, ATTN_MEM_MODEL, w->words, w->words_capacity * 8);
    w->words = words;
    w->words_capacity = capacity;
    return true;
}

static void packed_put(struct attn_packed_writer *w, int64_t word)
{
    if (packed_make_room(w, 1))
        w->words[w->n_words++] = word;
    else
        w->pool.failed = true;
}

/* `bytes` bytes, filled up with zeros: `more` of them at least. */
static void put_bytes(struct attn_packed_writer *w, const void *from, int64_t bytes,
                      int64_t more)
{
    const int64_t n = (bytes + more + 7) / 8;
    if (n == 0)
        return;
    if (!packed_make_room(w, n)) {
        w->pool.failed = true;
        return;
    }
    w->words[w->n_words + n - 1] = 0;
    if (bytes > 0)
        memcpy(w->words + w->n_words, from, (size_t)bytes);
    w->n_words += n;
}

static void put_string(struct attn_packed_writer *w, attnrun_string text)
{
    packed_put(w, text.n);
    put_bytes(w, text.data, text.n, 1);
}

static void packed_put_text(struct attn_packed_writer *w, const char *text)
{
    put_string(w, (attnrun_string){ text, (int64_t)strlen(text) });
}

/* ---- dims and types ---- */

static void packed_put_dim(struct attn_packed_writer *w, attnrun_dim dim)
{
    if (dim.expr == 0) {
        packed_put(w, 0);
        packed_put(w, dim.value);
        return;
    }
    if (dim.expr < 0) {
        packed_put(w, -1);
        return;
    }
    const struct dim_expression e = dim_expression_of(w->model->dims, dim);
    packed_put(w, e.n_terms);
    packed_put(w, e.constant);
    for (int32_t i = 0; i < e.n_terms; i++) {
        packed_put(w, e.terms[i].k);
        packed_put(w, e.terms[i].symbol);
    }
}

static void put_type(struct attn_packed_writer *w, const attnrun_type *type)
{
    packed_put(w, type->kind);
    packed_put(w, type->dtype);
    packed_put(w, type->rank);
    packed_put(w, type->key_dtype);
    for (int i = 0; i < type->rank; i++)
        packed_put_dim(w, type->dims[i]);
}

static void put_symbols(struct attn_packed_writer *w)
{
    const struct attn_dims *dims = w->model->dims;
    packed_put(w, dims->n_symbols);
    for (int64_t i = 0; i < dims->n_symbols; i++) {
        const struct dim_symbol *symbol = &dims->symbols[i];
        packed_put(w, symbol->kind);
        if (symbol->kind == SYMBOL_PLAIN) {
            packed_put_text(w, symbol->name);
            packed_put(w, (symbol->marks & SYMBOL_VAGUE) != 0);
            packed_put(w, (symbol->marks & SYMBOL_NOT_GIVEN) == 0);
        } else if (symbol->kind == SYMBOL_PRODUCT) {
            packed_put(w, symbol->n_factors);
            for (int32_t f = 0; f < symbol->n_factors; f++)
                packed_put(w, symbol->factors[f]);
        } else {
            packed_put_dim(w, symbol->a);
            packed_put_dim(w, symbol->b);
        }
    }
}

/* ---- constants ---- */

static void put_constant(struct attn_packed_writer *w, const attnrun_tensor *tensor,
                         bool released)
{
    if (tensor->data == NULL) {
        packed_put(w, PACKED_NONE);
    } else if (released) {
        packed_put(w, PACKED_RELEASED);
    } else if (tensor->dtype == ATTNRUN_STRING) {
        const attnrun_string *texts = tensor->data;
        packed_put(w, PACKED_STRINGS);
        for (int64_t i = 0; i < tensor_count(tensor); i++)
            put_string(w, texts[i]);
    } else {
        packed_put(w, attn_packed_offset(w, tensor->data));
    }
}

static void put_tensor(struct attn_packed_writer *w, const attnrun_tensor *tensor)
{
    attnrun_type type = { .kind = tensor->kind,
                          .dtype = tensor->dtype,
                          .rank = tensor->rank };
    for (int i = 0; i < tensor->rank; i++)
        type.dims[i] = dim_of(tensor->dims[i]);
    put_type(w, &type);
    put_constant(w, tensor, false);
}

/* ---- nodes ---- */

static void put_attr(struct attn_packed_writer *w, const struct attn_attr *attr)
{
    packed_put_text(w, attr->name);
    packed_put(w, attr->kind);
    switch (attr->kind) {
    case ATTN_ATTR_INT:
        packed_put(w, attr->i);
        break;
    case ATTN_ATTR_FLOAT:
        put_bytes(w, &attr->f, sizeof attr->f, 0);
        break;
    case ATTN_ATTR_STRING:
        put_string(w, attr->s);
        break;
    case ATTN_ATTR_INTS:
        packed_put(w, attr->ints.n);
        put_bytes(w, attr->ints.v, attr->ints.n * (int64_t)sizeof *attr->ints.v, 0);
        break;
    case ATTN_ATTR_FLOATS:
        packed_put(w, attr->floats.n);
        put_bytes(w, attr->floats.v, attr->floats.n * (int64_t)sizeof *attr->floats.v, 0);
        break;
    case ATTN_ATTR_STRINGS:
        packed_put(w, attr->strings.n);
        for (int64_t i = 0; i < attr->strings.n; i++)
            put_string(w, attr->strings.v[i]);
        break;
    case ATTN_ATTR_TENSOR:
    case ATTN_ATTR_SPARSE_TENSOR:
        put_tensor(w, &attr->tensor);
        break;
    case ATTN_ATTR_GRAPH:
        packed_put(w, attr->graph);
        break;
    case ATTN_ATTR_TYPE_PROTO:
        put_type(w, &attr->type);
        break;
    default: /* kinds that no row takes have no value here either */
        break;
    }
}

static void put_ids(struct attn_packed_writer *w, const int32_t *ids, const int32_t *of,
                    int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        packed_put(w, of[i] < 0 ? -1 : ids[of[i]]);
}

/* Subgraphs have numbers in the order in which list_graphs() has met them: *next. */
static void put_node(struct attn_packed_writer *w, const struct attn_node *node,
                     const int32_t *ids, int64_t *next)
{
    packed_put_text(w, node->pub.domain);
    packed_put_text(w, node->pub.op_type);
    packed_put_text(w, node->pub.name);
    packed_put_text(w, node->pub.function);
    packed_put(w, node->pub.opset);
    packed_put(w, node->internal | node->formula << 1);
    packed_put(w, node->pub.n_in);
    packed_put(w, node->n_captures);
    packed_put(w, node->pub.n_out);
    put_ids(w, ids, node->in, node->pub.n_in + node->n_captures);
    put_ids(w, ids, node->out, node->pub.n_out);
    packed_put(w, node->n_graphs);
    for (int32_t g = 0; g < node->n_graphs; g++)
        packed_put(w, (*next)++);
    packed_put(w, node->n_attrs);
    for (int32_t i = 0; i < node->n_attrs; i++)
        put_attr(w, &node->attrs[i]);
    const bool packed = node->pub.packed != NULL && node->pub.op->check_packed != NULL;
    packed_put(w, packed ? attn_packed_offset(w, node->pub.packed) : PACKED_NONE);
    packed_put(w, packed ? node->packed_bytes : 0);
}

/* ---- graphs ---- */

static void put_value(struct attn_packed_writer *w, const struct attn_value *value,
                      const int32_t *outer_ids)
{
    const bool captured = (value->flags & ATTN_VALUE_CAPTURE) != 0;
    const attnrun_tensor none = { .kind = ATTNRUN_ABSENT };
    packed_put_text(w, value->name);
    packed_put(w, captured ? outer_ids[value->outer] : -1);
    put_type(w, &value->type);
    put_constant(w, attn_packed_is_constant(value) ? &value->data : &none,
                 !attn_packed_is_read(value));
}

static attn_status put_graph(struct attn_packed_writer *w, int64_t g, int64_t outer,
                             int64_t *next)
{
    const struct attn_graph *graph = w->graphs[g];
    const int32_t *ids = w->ids[g], *outer_ids = outer >= 0 ? w->ids[outer] : NULL;
    int64_t n = 0;
    for (int64_t v = 0; v < graph->n_values; v++)
        n += ids[v] >= 0;
    packed_put_text(w, graph->name);
    packed_put(w, graph->promoted);
    packed_put(w, n);
    for (int64_t v = 0; v < graph->n_values; v++)
        if (ids[v] >= 0)
            put_value(w, &graph->values[v], outer_ids);
    packed_put(w, graph->n_inputs);
    put_ids(w, ids, graph->inputs, graph->n_inputs);
    packed_put(w, graph->n_outputs);
    put_ids(w, ids, graph->outputs, graph->n_outputs);
    for (int32_t i = 0; i < graph->n_outputs; i++)
        packed_put(w, max64(graph->output_ranks[i], 0));
    packed_put(w, graph->n_nodes);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        put_node(w, graph->nodes[i], ids, next);
        TRY(attn_poll_work(4096));
    }
    return w->pool.failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK;
}

static int64_t number_of(const struct attn_packed_writer *w,
                         const struct attn_graph *graph)
{
    int64_t g = -1;
    if (graph != NULL)
        for (g = 0; w->graphs[g] != graph; g++)
            ;
    return g;
}

/* ---- the model ---- */

static void put_model(struct attn_packed_writer *w)
{
    const struct attn_model *model = w->model;
    packed_put_text(w, model->producer);
    packed_put_text(w, model->producer_version);
    packed_put_text(w, model->domain);
    packed_put_text(w, model->doc);
    packed_put_text(w, model->graph_name);
    packed_put_text(w, model->graph_doc);
    packed_put(w, model->ir_version);
    packed_put(w, model->model_version);
    packed_put(w, model->n_parameters);
    packed_put(w, model->weights_bytes);
    packed_put(w, model->n_functions);
    packed_put(w, model->n_file_nodes);
    packed_put(w, model->n_opsets);
    for (int32_t i = 0; i < model->n_opsets; i++) {
        packed_put_text(w, model->opsets[i].domain);
        packed_put(w, model->opsets[i].version);
    }
    packed_put(w, model->n_metadata);
    for (int32_t i = 0; i < model->n_metadata; i++) {
        packed_put_text(w, model->metadata[i].key);
        packed_put_text(w, model->metadata[i].value);
    }
    packed_put(w, model->n_passes);
    for (int32_t i = 0; i < model->n_passes; i++)
        packed_put(w, model->applied[i]);
}

attn_status attn_packed_write_graph(struct attn_packed_writer *w)
{
    int64_t next = 1; /* graph 0 is the main graph */
    put_model(w);
    put_symbols(w);
    packed_put(w, w->n_graphs);
    for (int64_t g = 0; g < w->n_graphs; g++)
        packed_put(w, number_of(w, w->graphs[g]->outer));
    for (int64_t g = 0; g < w->n_graphs; g++)
        TRY(put_graph(w, g, number_of(w, w->graphs[g]->outer), &next));
    return w->pool.failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK;
}

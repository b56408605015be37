/* onnx_attr.c - AttributeProto to struct attn_attr.
 *
 * In: an attribute of a node, or, in the body of a function, a reference to one of the call.
 * Out: its kind and value, in the pool of the model; graphs are left to onnx_graph.c. */
#include <string.h>

#include "onnx_load.h"

/* Whether the message has a value of this kind, which for a list is not an empty one. */
static bool has_value(const PB(AttributeProto) * pb, int32_t kind)
{
    switch (kind) {
    case ATTN_ATTR_FLOAT:
        return pb->has_f;
    case ATTN_ATTR_INT:
        return pb->has_i;
    case ATTN_ATTR_STRING:
        return pb->has_s;
    case ATTN_ATTR_TENSOR:
        return pb->t != NULL;
    case ATTN_ATTR_GRAPH:
        return pb->g != NULL;
    case ATTN_ATTR_FLOATS:
        return pb->n_floats > 0;
    case ATTN_ATTR_INTS:
        return pb->n_ints > 0;
    case ATTN_ATTR_STRINGS:
        return pb->n_strings > 0;
    case ATTN_ATTR_SPARSE_TENSOR:
        return pb->sparse_tensor != NULL;
    case ATTN_ATTR_TYPE_PROTO:
        return pb->tp != NULL;
    default: /* a list of messages: files that have one say so */
        return false;
    }
}

/* Files of IR 1 have no type: the field that is there says it. */
static int32_t guess_kind(const PB(AttributeProto) * pb)
{
    int32_t kind = ATTN_ATTR_FLOAT;
    while (kind <= ATTN_ATTR_TYPE_PROTOS && !has_value(pb, kind))
        kind++;
    return kind <= ATTN_ATTR_TYPE_PROTOS ? kind : 0;
}

/* The kind, also where the message leaves it open. E_MODEL where it has no value of it: some
 * writers leave out the number 0, the empty text and the empty list. */
static attn_status attr_kind(const PB(AttributeProto) * pb, int32_t *kind)
{
    const int32_t found = guess_kind(pb);
    *kind = pb->has_type ? (int32_t)pb->type : 0;
    if (*kind == 0)
        *kind = found;
    if (*kind < ATTN_ATTR_FLOAT || *kind > ATTN_ATTR_TYPE_PROTOS)
        return attn_fail(ATTNRUN_E_MODEL,
                         "attribute '%s' is of type %d, expected 1 to 14",
                         attn_quote(pb_text(pb->name)), *kind);
    if (has_value(pb, *kind))
        return ATTNRUN_OK;
    if (*kind == ATTN_ATTR_TENSOR || *kind == ATTN_ATTR_GRAPH ||
        *kind == ATTN_ATTR_SPARSE_TENSOR || *kind == ATTN_ATTR_TYPE_PROTO)
        return attn_fail(ATTNRUN_E_MODEL,
                         "attribute '%s' is declared as %s, but has none",
                         attn_quote(pb_text(pb->name)),
                         *kind == ATTN_ATTR_TENSOR          ? "a tensor"
                         : *kind == ATTN_ATTR_GRAPH         ? "a graph"
                         : *kind == ATTN_ATTR_SPARSE_TENSOR ? "a sparse tensor"
                                                            : "a type");
    if (found != 0)
        return attn_fail(ATTNRUN_E_MODEL,
                         "attribute '%s' is of type %d, but holds a value of type %d",
                         attn_quote(pb_text(pb->name)), *kind, found);
    return ATTNRUN_OK;
}

attn_status attn_attr_resolve(struct attn_load_scope *scope,
                              const PB(AttributeProto) * pb, struct attn_binding *binding)
{
    const char *wanted = pb_text(pb->ref_attr_name);
    *binding = (struct attn_binding){ pb_text(pb->name), pb, scope };
    if (wanted[0] == 0)
        return ATTNRUN_OK;
    while (scope->function != NULL && scope->bindings == NULL && scope->around != NULL)
        scope = scope->around; /* from a subgraph to the function that it is in */
    if (scope->function == NULL)
        return attn_fail(
            ATTNRUN_E_MODEL,
            "attribute '%s' refers to '%s', but the node is not in a function",
            attn_quote(binding->name), attn_quote(wanted));
    binding->pb = NULL;
    for (int64_t k = 0; k < scope->n_bindings; k++)
        if (strcmp(scope->bindings[k].name, wanted) == 0) {
            binding->pb = scope->bindings[k].pb;
            binding->scope = scope->bindings[k].scope;
        }
    if (binding->pb == NULL || !pb->has_type || pb->type == 0)
        return ATTNRUN_OK;
    int32_t kind;
    TRY(attr_kind(binding->pb, &kind));
    if (kind != (int32_t)pb->type)
        return attn_fail(
            ATTNRUN_E_MODEL, "attribute '%s' refers to '%s' of type %d, expected type %d",
            attn_quote(binding->name), attn_quote(wanted), kind, (int)pb->type);
    return ATTNRUN_OK;
}

static attn_status copy_string(struct attn_pool *pool, ProtobufCBinaryData bytes,
                               attnrun_string *string)
{
    char *text = attn_pool_alloc(pool, (int64_t)bytes.len + 1);
    if (text == NULL)
        return ATTNRUN_E_MEMORY;
    if (bytes.len > 0)
        memcpy(text, bytes.data, bytes.len);
    *string = (attnrun_string){ text, (int64_t)bytes.len };
    return ATTNRUN_OK;
}

/* Lists of a few words, again and again (the modes of tree nodes), share their text. */
enum { RECENT_WORDS = 4 };

static bool same_bytes(const attnrun_string *a, const ProtobufCBinaryData *b)
{
    return a->n == (int64_t)b->len &&
           (b->len == 0 || memcmp(a->data, b->data, b->len) == 0);
}

static attn_status copy_strings(struct attn_pool *pool, const PB(AttributeProto) * pb,
                                attnrun_strings *strings)
{
    int64_t recent[RECENT_WORDS] = { 0 }, copied = 0;
    int64_t n = (int64_t)pb->n_strings;
    attnrun_string *items = attn_pool_alloc(pool, (n + 1) * (int64_t)sizeof *items);
    if (items == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t k = 0; k < n; k++) {
        int64_t r = copied < RECENT_WORDS ? copied : RECENT_WORDS;
        while (--r >= 0 && !same_bytes(&items[recent[r]], &pb->strings[k]))
            ;
        if (r >= 0) {
            items[k] = items[recent[r]];
            continue;
        }
        TRY(copy_string(pool, pb->strings[k], &items[k]));
        recent[copied++ % RECENT_WORDS] = k;
    }
    *strings = (attnrun_strings){ items, n };
    return ATTNRUN_OK;
}

/* An array in the pool; never NULL, so that an empty one differs from an absent one. */
static attn_status copy_array(struct attn_pool *pool, const void *items, size_t n,
                              size_t item, const void **copy)
{
    void *to = attn_pool_alloc(pool, (int64_t)((n + 1) * item));
    if (to == NULL)
        return ATTNRUN_E_MEMORY;
    if (n > 0)
        memcpy(to, items, n * item);
    *copy = to;
    return ATTNRUN_OK;
}

/* TENSORS and SPARSE_TENSORS come as one sequence. */
static attn_status read_tensors(struct attn_load *load, const PB(AttributeProto) * pb,
                                bool sparse, attnrun_tensor *sequence)
{
    int64_t n = (int64_t)(sparse ? pb->n_sparse_tensors : pb->n_tensors);
    attnrun_tensor *items =
        attn_pool_alloc(&load->model->pool, (n + 1) * (int64_t)sizeof *items);
    if (items == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t k = 0; k < n; k++) {
        TRY(sparse ? attn_read_sparse(&load->reader, pb->sparse_tensors[k], &items[k])
                   : attn_read_tensor(&load->reader, pb->tensors[k], &items[k]));
        TRY(attn_tensor_align(&load->model->weights, &items[k]));
    }
    *sequence = (attnrun_tensor){ .kind = ATTNRUN_SEQUENCE,
                                  .dtype = n > 0 ? items[0].dtype : 0,
                                  .rank = 1,
                                  .dims = { n },
                                  .data = items };
    return ATTNRUN_OK;
}

static attn_status read_value(struct attn_load *load, const PB(AttributeProto) * pb,
                              struct attn_attr *attr)
{
    struct attn_pool *pool = &load->model->pool;
    const void *copy = NULL;
    switch (attr->kind) {
    case ATTN_ATTR_FLOAT:
        attr->f = pb->f;
        return ATTNRUN_OK;
    case ATTN_ATTR_INT:
        attr->i = pb->i;
        return ATTNRUN_OK;
    case ATTN_ATTR_STRING:
        return copy_string(pool, pb->s, &attr->s);
    case ATTN_ATTR_TENSOR:
        return attn_read_tensor(&load->reader, pb->t, &attr->tensor);
    case ATTN_ATTR_SPARSE_TENSOR:
        return attn_read_sparse(&load->reader, pb->sparse_tensor, &attr->tensor);
    case ATTN_ATTR_TENSORS:
    case ATTN_ATTR_SPARSE_TENSORS:
        return read_tensors(load, pb, attr->kind == ATTN_ATTR_SPARSE_TENSORS,
                            &attr->tensor);
    case ATTN_ATTR_FLOATS:
        TRY(copy_array(pool, pb->floats, pb->n_floats, sizeof(float), &copy));
        attr->floats = (attnrun_floats){ copy, (int64_t)pb->n_floats };
        return ATTNRUN_OK;
    case ATTN_ATTR_INTS:
        TRY(copy_array(pool, pb->ints, pb->n_ints, sizeof(int64_t), &copy));
        attr->ints = (attnrun_ints){ copy, (int64_t)pb->n_ints };
        return ATTNRUN_OK;
    case ATTN_ATTR_STRINGS:
        return copy_strings(pool, pb, &attr->strings);
    case ATTN_ATTR_TYPE_PROTO:
        return attn_read_type(&load->model->limits, load->model->dims, pb->tp, false,
                              &attr->type);
    case ATTN_ATTR_TYPE_PROTOS:
        attr->i = (int64_t)pb->n_type_protos;
        return pb->n_type_protos == 0
                   ? ATTNRUN_OK
                   : attn_read_type(&load->model->limits, load->model->dims,
                                    pb->type_protos[0], false, &attr->type);
    default: /* graphs are the node's */
        return ATTNRUN_OK;
    }
}

attn_status attn_read_attr(struct attn_load *load, const PB(AttributeProto) * pb,
                           struct attn_attr *attr)
{
    *attr = (struct attn_attr){ .graph = -1, .type = { .rank = -1 } };
    TRY(attr_kind(pb, &attr->kind));
    attr->name = attn_pool_string(&load->model->pool, pb->name);
    if (attr->name == NULL)
        return ATTNRUN_E_MEMORY;
    return read_value(load, pb, attr);
}

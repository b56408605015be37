/* fold.c - constants computed at load.
 *
 * in:  a step whose inputs are all constant
 * out: its outputs, as constants of the model
 *
 * A node that computes what another one computed already (the same operator and
 * attributes on the same constants) takes those results. When the weights are packed, the
 * constants that only packing read are released. */
#include "fold.h"

#include <stdlib.h>

#include "align.h"
#include "hash.h"
#include "poll.h"

enum {
    FOLD_SMALL_ELEMENTS = 4096, /* folded even where fusion is off */
    FOLD_LARGE_BYTES = 1 << 20, /* of indices: postponed where they are … */
    FOLD_MADE_OF_FEW = 64       /* … so many times the bytes that they are made of */
};

/* For a file, a constant takes the place of a node where that makes the file no larger, and
 * where the node is not how the weight is stored: integers with a scale stay so, since other
 * runtimes multiply them as they are. An input that others read, too, stays in the file unless all
 * of them are computed, so each may give its share of the bytes. */
static bool worth_writing(const struct attn_graph *graph, const struct attn_step *step)
{
    int64_t in = FOLD_SMALL_ELEMENTS, out = 0;
    const attnrun_tensor *x = step->pub.x;
    if (step->pub.n_in > 1 && step->pub.n_out > 0 && x[0].dtype != 0 &&
        !dtype_in(x[0].dtype, ATTN_DT_FLOAT) &&
        dtype_in(step->pub.out[0].dtype, ATTN_DT_FLOAT))
        return false;
    for (int32_t i = 0; i < step->pub.n_in; i++) {
        const int32_t id = step->node->in[i];
        if (id >= 0 && x[i].dtype != ATTNRUN_STRING)
            in += tensor_bytes(&x[i]) /
                  (graph->values[id].n_uses > 1 ? graph->values[id].n_uses : 1);
    }
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const attnrun_type *type = &step->pub.out[i];
        if (type->kind != ATTNRUN_ABSENT && attn_type_is_concrete(type))
            out += dtype_bytes_of(type->dtype, op_count(type, 0, type->rank));
    }
    return out <= in;
}

/* Whether a step makes large indices of few numbers, as Expand does. */
static bool makes_indices(const struct attn_step *step)
{
    int64_t in = 1, out = 0;
    for (int32_t i = 0; i < step->pub.n_in; i++)
        if (step->node->in[i] >= 0 && step->pub.x[i].dtype != ATTNRUN_STRING)
            in += tensor_bytes(&step->pub.x[i]);
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const attnrun_type *type = &step->pub.out[i];
        if (type->kind == ATTNRUN_ABSENT)
            continue;
        if ((type->dtype != ATTNRUN_I64 && type->dtype != ATTNRUN_I32) ||
            !attn_type_is_concrete(type))
            return false;
        out += dtype_bytes_of(type->dtype, op_count(type, 0, type->rank));
    }
    return out > FOLD_LARGE_BYTES && out / FOLD_MADE_OF_FEW > in;
}

bool attn_fold_is_possible(struct attn_graph *graph, const struct attn_step *step)
{
    const attnrun_op_def *op = step->pub.node->op;
    if ((op->flags & (ATTNRUN_OP_IMPURE | ATTNRUN_OP_GRAPHS)) || op->expand != NULL ||
        step->node->n_captures > 0 || graph->model->rewritten ||
        attn_fold_keeps_nodes(graph))
        return false;
    for (int32_t i = 0; i < step->pub.n_in; i++)
        if (step->node->in[i] >= 0 && step->pub.x[i].data == NULL)
            return false;
    const attnrun_limits *limits = &graph->model->limits;
    bool fuse = !(graph->model->flags & ATTNRUN_NO_FUSION);
    int64_t left = attn_memory_left(graph->model->pool.memory);
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        const attnrun_type *type = &step->pub.out[i];
        if (type->kind == ATTNRUN_ABSENT)
            continue;
        if (type->kind != ATTNRUN_TENSOR || type->dtype == ATTNRUN_STRING)
            return false;
        if (!attn_type_is_concrete(type)) {
            if (!(op->flags & ATTNRUN_OP_DYNAMIC))
                return false;
            continue;
        }
        int64_t count = op_count(type, 0, type->rank);
        int64_t bytes = dtype_bytes_of(type->dtype, count);
        bool small = count <= FOLD_SMALL_ELEMENTS;
        if (bytes < 0 || bytes > limits->fold_bytes || (!fuse && !small) ||
            (!small && bytes > left / 2) ||
            graph->model->folded_bytes + bytes > limits->folded_bytes)
            return false;
    }
    if (!graph->folds_all && makes_indices(step)) {
        graph->postponed = true;
        return false;
    }
    return graph->model->origin == NULL || worth_writing(graph, step);
}

/* Inputs that are only shown as outputs stay where they are. */
static attn_status align_inputs(struct attn_step *step, struct attn_pool *scratch)
{
    attnrun_tensor *x = attn_step_x(step);
    for (int32_t i = 0; i < step->pub.n_in; i++) {
        bool shown = false;
        for (int32_t o = 0; o < step->pub.n_out; o++)
            shown = shown || step->known_outputs[o].view_of == i;
        if (!shown)
            TRY(attn_tensor_align(scratch, &x[i]));
    }
    return ATTNRUN_OK;
}

/* ---- nodes that give the same ---- */

/* A node that was folded: its operator, attributes, constant inputs and results. */
struct fold_entry {
    const struct attn_graph *graph;
    const struct attn_node *node;
    uint64_t hash;
    struct fold_entry *next;
};

struct attn_fold_table {
    struct fold_entry **slots; /* chains by hash */
    int64_t n_slots, n;        /* n_slots: a power of two */
};

static const attnrun_tensor *input_of(const struct attn_graph *graph,
                                      const struct attn_node *node, int32_t i)
{
    return node->in[i] < 0 ? NULL : &graph->values[node->in[i]].data;
}

/* False where no other node gives the same. */
static bool hash_node(const struct attn_graph *graph, const struct attn_node *node,
                      uint64_t *hash)
{
    *hash = (uintptr_t)node->pub.op;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const attnrun_tensor *x = input_of(graph, node, i);
        *hash = *hash * UINT64_C(0x9E3779B97F4A7C15) + (x ? (uintptr_t)x->data : 1);
    }
    const bool may_repeat = attn_attrs_hash(node, hash);
    *hash ^= *hash >> 31;
    return may_repeat;
}

bool attn_tensor_is_same(const attnrun_tensor *a, const attnrun_tensor *b)
{
    return a->kind == b->kind && a->data == b->data && a->dtype == b->dtype &&
           a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* What an attribute holds, and its size; -1: it is taken as different from all others. */
static const void *bytes_of(const struct attn_attr *attr, int64_t *n)
{
    switch (attr->kind) {
    case ATTN_ATTR_INT:
        *n = sizeof attr->i;
        return &attr->i;
    case ATTN_ATTR_FLOAT:
        *n = sizeof attr->f;
        return &attr->f;
    case ATTN_ATTR_STRING:
        *n = attr->s.n;
        return attr->s.data;
    case ATTN_ATTR_INTS:
        *n = attr->ints.n * (int64_t)sizeof *attr->ints.v;
        return attr->ints.v;
    case ATTN_ATTR_FLOATS:
        *n = attr->floats.n * (int64_t)sizeof *attr->floats.v;
        return attr->floats.v;
    default:
        *n = -1;
        return NULL;
    }
}

bool attn_attr_is_same(const struct attn_attr *a, const struct attn_attr *b)
{
    int64_t n, n_b;
    const void *x = bytes_of(a, &n), *y = bytes_of(b, &n_b);
    return a->kind == b->kind && n >= 0 && n == n_b && strcmp(a->name, b->name) == 0 &&
           (n == 0 || memcmp(x, y, (size_t)n) == 0);
}

bool attn_attrs_hash(const struct attn_node *node, uint64_t *hash)
{
    for (int32_t i = 0; i < node->n_attrs; i++) {
        int64_t n;
        const void *bytes = bytes_of(&node->attrs[i], &n);
        if (n < 0)
            return false;
        *hash = attn_hash_keyed(*hash, bytes, n);
    }
    return true;
}

bool attn_node_is_alike(const struct attn_node *a, const struct attn_node *b)
{
    if (a->pub.op != b->pub.op || a->pub.n_in != b->pub.n_in ||
        a->pub.n_out != b->pub.n_out || a->n_attrs != b->n_attrs ||
        (a->pub.opset != b->pub.opset && !a->internal && !b->internal))
        return false;
    for (int32_t i = 0; i < a->pub.n_out; i++)
        if ((a->out[i] < 0) != (b->out[i] < 0))
            return false;
    for (int32_t i = 0; i < a->n_attrs; i++)
        if (!attn_attr_is_same(&a->attrs[i], &b->attrs[i]))
            return false;
    return true;
}

static bool same_node(const struct fold_entry *entry, const struct attn_graph *graph,
                      const struct attn_node *node)
{
    graph->model->counts.compared++;
    if (!attn_node_is_alike(entry->node, node))
        return false;
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const attnrun_tensor *a = input_of(entry->graph, entry->node, i),
                             *b = input_of(graph, node, i);
        if ((a == NULL) != (b == NULL) || (a != NULL && !attn_tensor_is_same(a, b)))
            return false;
    }
    return true;
}

/* ---- folding ---- */

static void keep_folded(struct attn_graph *graph, const struct attn_node *node,
                        int32_t id, const attnrun_tensor *data)
{
    if (id < 0)
        return;
    struct attn_value *value = &graph->values[id];
    value->data = *data;
    value->flags |= ATTN_VALUE_FOLDED;
    value->folded_by = node;
    attn_tensor_to_type(&value->data, &value->type);
}

/* Where the same was folded before: its results. */
static bool fold_again(struct attn_graph *graph, const struct attn_node *node,
                       uint64_t hash)
{
    const struct attn_fold_table *table = graph->model->fold_table;
    const struct fold_entry *entry =
        table ? table->slots[hash & (uint64_t)(table->n_slots - 1)] : NULL;
    while (entry != NULL && (entry->hash != hash || !same_node(entry, graph, node)))
        entry = entry->next;
    for (int32_t i = 0; entry != NULL && i < node->pub.n_out; i++)
        if (node->out[i] >= 0)
            keep_folded(graph, node, node->out[i],
                        &entry->graph->values[entry->node->out[i]].data);
    return entry != NULL;
}

static void add_entry(struct attn_fold_table *table, struct fold_entry *entry)
{
    struct fold_entry **slot =
        &table->slots[entry->hash & (uint64_t)(table->n_slots - 1)];
    entry->next = *slot;
    *slot = entry;
}

static bool grow_table(struct attn_fold_table *table, struct attn_pool *pool)
{
    struct attn_fold_table grown = { .n_slots = table->n_slots ? 4 * table->n_slots : 32,
                                     .n = table->n };
    grown.slots = attn_pool_alloc(pool, grown.n_slots * (int64_t)sizeof *grown.slots);
    if (grown.slots == NULL)
        return false;
    for (int64_t s = 0; s < table->n_slots; s++)
        for (struct fold_entry *entry = table->slots[s]; entry != NULL;) {
            struct fold_entry *next = entry->next;
            add_entry(&grown, entry);
            entry = next;
        }
    *table = grown;
    return true;
}

/* Notes what a node gave, for those that would give the same. */
static attn_status note_folded(struct attn_graph *graph, const struct attn_node *node,
                               uint64_t hash)
{
    struct attn_pool *pool = &graph->model->pool;
    struct attn_fold_table **table = &graph->model->fold_table;
    struct fold_entry *entry = attn_pool_alloc(pool, (int64_t)sizeof *entry);
    if (*table == NULL)
        *table = attn_pool_alloc(pool, (int64_t)sizeof **table);
    if (entry == NULL || *table == NULL ||
        ((*table)->n >= (*table)->n_slots && !grow_table(*table, pool)))
        return ATTNRUN_E_MEMORY;
    *entry = (struct fold_entry){ .graph = graph, .node = node, .hash = hash };
    add_entry(*table, entry);
    (*table)->n++;
    return ATTNRUN_OK;
}

attn_status attn_fold_node(struct attn_graph *graph, struct attn_step *step, bool *done)
{
    struct attn_model *model = graph->model;
    uint64_t hash;
    const bool may_repeat = hash_node(graph, step->node, &hash);
    *done = may_repeat && fold_again(graph, step->node, hash);
    if (*done)
        return ATTNRUN_OK;
    struct attn_pool scratch; /* for inputs that a mapped file has at odd addresses */
    attn_pool_init(&scratch, model->pool.memory, ATTN_MEM_WEIGHTS);
    attn_status status = align_inputs(step, &scratch);
    if (status == ATTNRUN_OK)
        status = attn_step_execute(step, &model->heap);
    attn_pool_free(&scratch);
    if (status != ATTNRUN_OK) {
        for (int32_t i = 0; i < step->pub.n_out; i++)
            attn_heap_release(&model->heap, &step->lists[i]);
        return status == ATTNRUN_E_MEMORY || attn_is_stop(status) ? status : ATTNRUN_OK;
    }
    *done = true;
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        attn_heap_move(&model->folded, &step->lists[i]);
        keep_folded(graph, step->node, step->node->out[i], &step->pub.y[i]);
        if (step->node->out[i] >= 0 && step->known_outputs[i].view_of < 0)
            model->folded_bytes += tensor_bytes(&step->pub.y[i]);
    }
    return may_repeat ? note_folded(graph, step->node, hash) : ATTNRUN_OK;
}

/* ---- after packing ---- */

/* Addresses of constants that are still read, sorted. */
struct readers {
    const char **data;
    int64_t n, capacity;
    struct attn_pool pool;
};

static attn_status add_reader(struct readers *readers, const struct attn_graph *graph,
                              int32_t id)
{
    if (id < 0 || graph->values[id].data.data == NULL)
        return ATTNRUN_OK;
    if (readers->n == readers->capacity)
        TRY(attn_pool_grow(&readers->pool, (void **)&readers->data, &readers->capacity,
                           readers->n, (int64_t)sizeof *readers->data));
    readers->data[readers->n++] = graph->values[id].data.data;
    return ATTNRUN_OK;
}

static attn_status add_readers(struct readers *readers, const struct attn_graph *graph)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const struct attn_node *node = graph->nodes[n];
        for (int32_t i = 0; i < node->pub.n_in + node->n_captures; i++)
            if (i >= 32 || !(node->pack_replaces >> i & 1))
                TRY(add_reader(readers, graph, node->in[i]));
        for (int32_t g = 0; g < node->n_graphs; g++)
            TRY(add_readers(readers, node->graphs[g]));
    }
    for (int32_t i = 0; i < graph->n_outputs; i++)
        TRY(add_reader(readers, graph, graph->outputs[i]));
    return ATTNRUN_OK;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)*(const char *const *)a,
              y = (uintptr_t)*(const char *const *)b;
    return (x > y) - (x < y);
}

/* Is there a reader in [first, end)? */
static bool is_read(const void *arg, const char *first, const char *end)
{
    const struct readers *readers = arg;
    int64_t low = 0, high = readers->n; /* the first address that is not below `first` */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (readers->data[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < readers->n && readers->data[low] < end;
}

static void forget_released(struct attn_graph *graph, const struct readers *readers)
{
    for (int64_t v = 0; v < graph->n_values; v++) {
        struct attn_value *value = &graph->values[v];
        const char *data = value->data.data;
        if ((value->flags & ATTN_VALUE_FOLDED) && data != NULL &&
            !is_read(readers, data, data + 1))
            value->flags |= ATTN_VALUE_RELEASED;
    }
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            forget_released(graph->nodes[n]->graphs[g], readers);
}

attn_status attn_fold_unread(struct attn_model *model, struct attn_memory *memory,
                             int64_t *bytes)
{
    struct readers readers = { .data = NULL };
    attn_pool_init(&readers.pool, memory, ATTN_MEM_MODEL);
    attn_status status = add_readers(&readers, model->graph);
    if (readers.n > 0)
        qsort(readers.data, (size_t)readers.n, sizeof *readers.data, by_address);
    *bytes = attn_heap_unread(&model->folded, is_read, &readers);
    attn_pool_free(&readers.pool);
    return status;
}

attn_status attn_fold_release(struct attn_model *model)
{
    struct readers readers = { .data = NULL };
    attn_pool_init(&readers.pool, model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = add_readers(&readers, model->graph);
    if (status == ATTNRUN_OK) {
        int64_t before = model->heap.used_bytes;
        if (readers.n > 0)
            qsort(readers.data, (size_t)readers.n, sizeof *readers.data, by_address);
        forget_released(model->graph, &readers);
        attn_heap_sweep(&model->heap, &model->folded, is_read, &readers);
        model->folded_bytes -= before - model->heap.used_bytes;
        if (model->folded_bytes < 0) /* headers of blocks are in the difference */
            model->folded_bytes = 0;
    }
    attn_pool_free(&readers.pool);
    return status;
}

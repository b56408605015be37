/* common_subexpression.c - of several nodes that compute the same from the same values
 * only the first one stays. Exporters write masks, shapes and rotary tables once for each
 * layer. In: a graph. Out: the graph with fewer nodes. Exact. Cost: linear in the number
 * of nodes, by a table of hashes. */
#include "../../runtime/fold.h"
#include "../../runtime/hash.h"
#include "../../runtime/poll.h"
#include "match.h"

enum { SMALL_BYTES = 256 };

/* A constant that is known by its bytes; other values are known by their id. */
static bool is_small(const attnrun_tensor *t)
{
    if (t->data == NULL || t->kind != ATTNRUN_TENSOR || t->dtype == ATTNRUN_STRING)
        return false;
    const int64_t bytes = tensor_bytes(t);
    return bytes >= 0 && bytes <= SMALL_BYTES;
}

/* Whether two values are the same: one id, or small equal constants. */
static bool same_value(const struct attn_graph *graph, int32_t a, int32_t b)
{
    const attnrun_tensor *x = &graph->values[a].data, *y = &graph->values[b].data;
    return a == b ||
           (is_small(x) && is_small(y) && x->dtype == y->dtype && x->rank == y->rank &&
            memcmp(x->dims, y->dims, (size_t)x->rank * sizeof x->dims[0]) == 0 &&
            memcmp(x->data, y->data, (size_t)tensor_bytes(x)) == 0);
}

static bool same_node(const struct attn_graph *graph, const struct attn_node *a,
                      const struct attn_node *b)
{
    graph->model->counts.compared++;
    if (!attn_node_is_alike(a, b))
        return false;
    for (int32_t i = 0; i < a->pub.n_in; i++)
        if (!same_value(graph, a->in[i], b->in[i]))
            return false;
    return true;
}

static bool mergeable(const struct attn_graph *graph, const struct attn_node *node)
{
    if (node == NULL || node->pub.op == NULL || node->n_captures > 0 ||
        (node->pub.op->flags & (ATTNRUN_OP_IMPURE | ATTNRUN_OP_GRAPHS)) ||
        node->pub.n_in == 0)
        return false;
    for (int32_t i = 0; i < node->pub.n_out; i++)
        if (node->out[i] >= 0 && (graph->values[node->out[i]].flags & ATTN_VALUE_OUTPUT))
            return false;
    return true;
}

/* The hash of the operator, the inputs and the attributes. Equal nodes have equal hashes; many that
 * differ, of one hash, would take time for each pair. False where no other node is the same. */
static bool hash_node(const struct attn_graph *graph, const struct attn_node *node,
                      uint64_t *hash)
{
    const uintptr_t row = (uintptr_t)node->pub.op;
    *hash = attn_hash_keyed(ATTN_HASH_SEED, &row, sizeof row);
    for (int32_t i = 0; i < node->pub.n_in; i++) {
        const attnrun_tensor *t = &graph->values[node->in[i]].data;
        if (is_small(t)) { /* those without elements differ in their dims alone */
            *hash = attn_hash_keyed(*hash, t->dims, t->rank * (int64_t)sizeof *t->dims);
            *hash = attn_hash_keyed(*hash, t->data, tensor_bytes(t));
        } else {
            *hash = attn_hash_keyed(*hash, &node->in[i], sizeof node->in[i]);
        }
    }
    for (int32_t i = 0; i < node->pub.n_out; i++) {
        const bool absent = node->out[i] < 0;
        *hash = attn_hash_keyed(*hash, &absent, sizeof absent);
    }
    const bool may_repeat = attn_attrs_hash(node, hash);
    *hash = attn_hash_slot(*hash);
    return may_repeat;
}

static void merge(struct attn_graph *graph, struct attn_node *first,
                  struct attn_node *again)
{
    for (int32_t i = 0; i < again->pub.n_out; i++)
        if (again->out[i] >= 0)
            attn_graph_replace(graph, again->out[i], first->out[i]);
    attn_graph_remove(graph, again);
}

static void merge_all(struct attn_graph *graph, int32_t *table, uint64_t mask,
                      int32_t *applied)
{
    for (int64_t n = 0; n < graph->n_nodes && !attn_stops_node(n); n++) {
        struct attn_node *node = graph->nodes[n];
        uint64_t at;
        if (!mergeable(graph, node) || !hash_node(graph, node, &at))
            continue;
        for (;; at++) {
            int32_t *slot = &table[at & mask];
            if (*slot == 0) {
                *slot = (int32_t)n + 1;
                break;
            }
            if (same_node(graph, graph->nodes[*slot - 1], node)) {
                merge(graph, graph->nodes[*slot - 1], node);
                ++*applied;
                break;
            }
        }
    }
}

static attn_status run_common_subexpression(struct attn_graph *graph, int32_t *applied)
{
    struct attn_pool scratch;
    int64_t slots = 64;
    while (slots < 2 * graph->n_nodes)
        slots *= 2;
    attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_MODEL);
    int32_t *table = attn_pool_alloc(&scratch, slots * (int64_t)sizeof *table);
    if (table != NULL)
        merge_all(graph, table, (uint64_t)slots - 1, applied);
    attn_pool_free(&scratch);
    return table ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

const struct attn_pass attn_pass_common_subexpression = { .name = "common_subexpression",
                                                          .run = run_common_subexpression,
                                                          .portable = true };

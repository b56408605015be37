/* graph_names.c - the values of a graph by name: open addressing over value ids.
 *
 * in:  the names of a graph's values, each entered when its value is made
 * out: the value of a name in O(1). Of two values with one name the first one is found. */
#include "graph_names.h"
#include "hash.h"

struct attn_names {
    int32_t *slots;   /* value id + 1; 0: free */
    int64_t capacity; /* a power of two */
};

static uint64_t hash_name(const char *name)
{
    return attn_hash_name(name, (int64_t)strlen(name));
}

struct attn_names *attn_names_create(struct attn_graph *graph)
{
    return attn_pool_alloc(&graph->model->pool, (int64_t)sizeof(struct attn_names));
}

void attn_names_put(struct attn_graph *graph, int32_t id)
{
    struct attn_names *names = graph->names;
    uint64_t i = hash_name(graph->values[id].name);
    while (names->slots[i & (uint64_t)(names->capacity - 1)] != 0)
        i++;
    names->slots[i & (uint64_t)(names->capacity - 1)] = id + 1;
}

attn_status attn_names_reserve(struct attn_graph *graph, int64_t n_values)
{
    struct attn_names *names = graph->names;
    if (n_values * 2 <= names->capacity)
        return ATTNRUN_OK;
    int64_t capacity = 64;
    while (capacity < n_values * 2)
        capacity *= 2;
    int32_t *slots =
        attn_pool_alloc(&graph->model->pool, capacity * (int64_t)sizeof *slots);
    if (slots == NULL)
        return ATTNRUN_E_MEMORY;
    names->slots = slots;
    names->capacity = capacity;
    for (int64_t id = 0; id < graph->n_values; id++)
        attn_names_put(graph, (int32_t)id);
    return ATTNRUN_OK;
}

attn_status attn_names_renew(struct attn_graph *graph)
{
    graph->names->capacity = 0;
    return attn_names_reserve(graph, graph->n_values);
}

static int32_t *slot_of(const struct attn_graph *graph, int32_t id)
{
    const struct attn_names *names = graph->names;
    uint64_t i = hash_name(graph->values[id].name);
    while (names->slots[i & (uint64_t)(names->capacity - 1)] != id + 1)
        i++;
    return &names->slots[i & (uint64_t)(names->capacity - 1)];
}

void attn_names_swap(struct attn_graph *graph, int32_t a, int32_t b)
{
    int32_t *slot = slot_of(graph, a);
    *slot_of(graph, b) = a + 1;
    *slot = b + 1;
}

int32_t attn_graph_find(const struct attn_graph *graph, const char *name)
{
    const struct attn_names *names = graph->names;
    if (names->capacity == 0)
        return -1;
    for (uint64_t i = hash_name(name);; i++) {
        int32_t slot = names->slots[i & (uint64_t)(names->capacity - 1)];
        if (slot == 0)
            return -1;
        if (strcmp(graph->values[slot - 1].name, name) == 0)
            return slot - 1;
    }
}

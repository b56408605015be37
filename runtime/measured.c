/* measured.c - steps that run while their model is measured: see measured.h.
 *
 * In: a step whose operands are known. Out: its outputs, as after packing; the node and the step
 * show what they showed before. Cost: one pack() of the node, beside the step. */
#include "measured.h"

#include "adopt.h"
#include "align.h"

static attn_status align_all(struct attn_pool *pool, attnrun_tensor *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (x[i].data != NULL && !attn_tensor_is_aligned(&x[i]))
            TRY(attn_tensor_align(pool, &x[i]));
    return ATTNRUN_OK;
}

static attn_status call_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const uint64_t errors = attn_error_count();
    return attn_fail_quietly(pack->node->op->pack(pack, bytes, packed), errors,
                             pack->node, "pack");
}

/* *packed: what the node's pack() makes, at a multiple of 64. */
static attn_status pack_alone(const struct attn_graph *graph,
                              const struct attn_node *node, struct attn_pool *pool,
                              const void **packed)
{
    attnrun_pack pack;
    int64_t bytes = 0;
    TRY(attn_pack_describe(graph, node, pool, &pack));
    TRY(align_all(pool, (attnrun_tensor *)(uintptr_t)pack.x, pack.n_in));
    TRY(call_pack(&pack, &bytes, NULL));
    char *room = attn_pool_alloc(pool, bytes + 64);
    if (room == NULL)
        return ATTNRUN_E_MEMORY;
    room += (64 - (uintptr_t)room % 64) % 64;
    *packed = room;
    return call_pack(&pack, &bytes, room);
}

static attn_status run_alone(const struct attn_graph *graph, struct attn_step *step,
                             struct attn_pool *pool, struct attn_heap *heap)
{
    struct attn_node *node = (struct attn_node *)(uintptr_t)step->node;
    attnrun_tensor *x = attn_step_x(step);
    const int64_t bytes = step->pub.n_in * (int64_t)sizeof *x;
    attnrun_tensor *before = attn_pool_copy(pool, x, bytes);
    if (before == NULL)
        return ATTNRUN_E_MEMORY;
    attn_status status = align_all(pool, x, step->pub.n_in);
    if (status == ATTNRUN_OK && node->pub.packed == graph->model->stand_in)
        status = pack_alone(graph, node, pool, &node->pub.packed);
    if (status == ATTNRUN_OK)
        status = attn_step_execute(step, heap);
    if (bytes > 0)
        memcpy(x, before, (size_t)bytes);
    return status;
}

attn_status attn_measured_execute(const struct attn_graph *graph, struct attn_step *step,
                                  struct attn_heap *heap)
{
    if (graph->model->stand_in == NULL)
        return attn_step_execute(step, heap);
    struct attn_node *node = (struct attn_node *)(uintptr_t)step->node;
    const void *packed = node->pub.packed;
    struct attn_memory *memory = attn_memory_apart(graph->model->pool.memory);
    struct attn_pool pool;
    if (memory == NULL)
        return ATTNRUN_E_MEMORY;
    attn_pool_init(&pool, memory, ATTN_MEM_MODEL);
    attn_status status = run_alone(graph, step, &pool, heap);
    node->pub.packed = packed;
    attn_pool_free(&pool);
    attn_memory_destroy(memory);
    return status;
}

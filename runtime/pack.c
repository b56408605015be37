/* pack.c - packing the constant weights of all nodes of a model. */
#include "pack.h"

#include <stdatomic.h>

#include "align.h"
#include "threads.h"

/* A node that packs: where, and how much. */
struct pack_job {
    struct attn_graph *graph;
    struct attn_node *node;
    int64_t offset, bytes;
    uint32_t replaces;
};

struct packing {
    struct attn_model *model;
    struct attn_pool pool;
    struct pack_job *jobs;
    int64_t n_jobs, capacity;
    int64_t total;
    char *block;
    atomic_int failed;
    attnrun_error error;
};

/* What pack() is given; types and tensors live in `scratch`. */
static attn_status describe(const struct packing *packing, const struct pack_job *job,
                            struct attn_pool *scratch, attnrun_pack *pack)
{
    const struct attn_node *node = job->node;
    int32_t n = node->pub.n_in;
    attnrun_type *types = attn_pool_alloc(scratch, (n + 1) * (int64_t)sizeof *types);
    attnrun_tensor *x = attn_pool_alloc(scratch, (n + 1) * (int64_t)sizeof *x);
    if (!types || !x)
        return ATTNRUN_E_MEMORY;
    for (int32_t i = 0; i < n; i++)
        if (node->in[i] >= 0) {
            types[i] = job->graph->values[node->in[i]].type;
            x[i] = job->graph->values[node->in[i]].data;
        }
    *pack = (attnrun_pack){ .node = &node->pub,
                            .args = node->pub.args,
                            .n_in = n,
                            .in = types,
                            .kernels = attn_runtime_kernels(packing->model->runtime),
                            .x = x };
    return ATTNRUN_OK;
}

/* Asks a node how much it packs, and notes it where that is anything. */
static attn_status ask_node(struct packing *packing, struct attn_graph *graph,
                            struct attn_node *node, struct attn_pool *scratch)
{
    struct pack_job job = { .graph = graph, .node = node };
    attnrun_pack pack;
    TRY(describe(packing, &job, scratch, &pack));
    TRY(node->pub.op->pack(&pack, &job.bytes, NULL));
    if (job.bytes <= 0)
        return ATTNRUN_OK;
    int64_t rounded;
    job.offset = packing->total;
    if (!ck_align(job.bytes, 64, &rounded) ||
        !ck_add(packing->total, rounded, &packing->total))
        return attn_fail_node(ATTNRUN_E_MEMORY, &node->pub,
                              "its packed weights overflow");
    if (packing->n_jobs == packing->capacity)
        TRY(attn_pool_grow(&packing->pool, (void **)&packing->jobs, &packing->capacity,
                           packing->n_jobs, (int64_t)sizeof *packing->jobs));
    packing->jobs[packing->n_jobs++] = job;
    return ATTNRUN_OK;
}

static attn_status ask_graph(struct packing *packing, struct attn_graph *graph)
{
    struct attn_pool scratch;
    attn_status status = ATTNRUN_OK;
    attn_pool_init(&scratch, packing->model->pool.memory, ATTN_MEM_MODEL);
    for (int64_t n = 0; n < graph->n_nodes && status == ATTNRUN_OK; n++) {
        struct attn_node *node = graph->nodes[n];
        if (node->pub.op == NULL)
            status =
                attn_fail(ATTNRUN_E_UNSUPPORTED, "%d operators are not supported: %s",
                          packing->model->n_missing, packing->model->missing);
        else if (node->pub.op->pack != NULL)
            status = ask_node(packing, graph, node, &scratch);
        for (int32_t g = 0; g < node->n_graphs && status == ATTNRUN_OK; g++)
            status = ask_graph(packing, node->graphs[g]);
    }
    attn_pool_free(&scratch);
    return status;
}

static attn_status pack_node(struct packing *packing, struct pack_job *job,
                             struct attn_pool *scratch)
{
    attnrun_pack pack;
    int64_t bytes = job->bytes;
    TRY(describe(packing, job, scratch, &pack));
    for (int32_t i = 0; i < pack.n_in; i++)
        TRY(attn_tensor_align(scratch, &((attnrun_tensor *)(uintptr_t)pack.x)[i]));
    TRY(job->node->pub.op->pack(&pack, &bytes, packing->block + job->offset));
    job->replaces = pack.replaces;
    return ATTNRUN_OK;
}

static void pack_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct packing *packing = arg;
    (void)worker;
    for (int64_t i = begin; i < end && !atomic_load(&packing->failed); i++) {
        struct attn_pool scratch;
        attn_pool_init(&scratch, packing->model->pool.memory, ATTN_MEM_WEIGHTS);
        attn_status status = pack_node(packing, &packing->jobs[i], &scratch);
        attn_pool_free(&scratch);
        if (status != ATTNRUN_OK && atomic_exchange(&packing->failed, 1) == 0)
            packing->error = *attnrun_last_error();
    }
}

/* Gives back the pages of constants that their only reader has packed. */
static void drop_replaced(const struct pack_job *job, const struct attn_file_list *files)
{
    for (int32_t i = 0; i < job->node->pub.n_in && i < 32; i++) {
        int32_t id = job->node->in[i];
        if (id < 0 || !(job->replaces >> i & 1) || job->graph->values[id].n_uses != 1)
            continue;
        const attnrun_tensor *data = &job->graph->values[id].data;
        const uint8_t *start = data->data;
        for (const struct attn_file_list *f = files; f != NULL; f = f->next)
            if (f->file.mapped && start >= f->file.data &&
                start < f->file.data + f->file.bytes)
                attn_file_drop(&f->file, start, tensor_bytes(data));
    }
}

static attn_status align_graph(struct attn_graph *graph)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            TRY(align_graph(graph->nodes[n]->graphs[g]));
    return attn_graph_align(graph);
}

static attn_status pack_all(struct packing *packing, const struct attn_file_list *files)
{
    struct attn_model *model = packing->model;
    TRY(ask_graph(packing, model->graph));
    if (packing->total > 0) {
        packing->block = attn_alloc(model->pool.memory, ATTN_MEM_WEIGHTS, packing->total);
        if (packing->block == NULL)
            return ATTNRUN_E_MEMORY;
    }
    attn_parallel_for(attn_runtime_threads(model->runtime), packing->n_jobs, 1,
                      pack_range, packing);
    if (atomic_load(&packing->failed))
        return attn_fail_again(&packing->error);
    for (int64_t i = 0; i < packing->n_jobs; i++) {
        const struct pack_job *job = &packing->jobs[i];
        job->node->pub.packed = packing->block + job->offset;
        job->node->packed_bytes = job->bytes;
        job->node->pack_replaces = job->replaces;
        drop_replaced(job, files);
    }
    return align_graph(model->graph);
}

attn_status attn_pack_model(struct attn_model *model, const struct attn_file_list *files,
                            void **block, int64_t *block_bytes)
{
    struct packing packing = { .model = model };
    attn_pool_init(&packing.pool, model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = pack_all(&packing, files);
    if (status == ATTNRUN_OK) {
        *block = packing.block;
        *block_bytes = packing.total;
        model->packed_bytes = packing.total;
    } else {
        for (int64_t i = 0; i < packing.n_jobs; i++) {
            packing.jobs[i].node->pub.packed = NULL;
            packing.jobs[i].node->pack_replaces = 0;
        }
        attn_free(model->pool.memory, ATTN_MEM_WEIGHTS, packing.block, packing.total);
    }
    attn_pool_free(&packing.pool);
    return status;
}

/* pack.c - packing the constant weights of all nodes of a model.
 *
 * In: an inferred graph whose nodes have rows with pack(). Out: one block of memory with the
 * packed constants; each node points to its own. Nodes that ask for the same form of the same
 * constants are users of one job:
 *
 *   MatMul a ──┐                                  block
 *   MatMul b ──┼─ job (gemm panels of w)  ──▶   │ w      │ v      │ …
 *   MatMul c ──── job (gemm panels of v)  ─────────────────┘
 *
 * Pages of a mapped file are given back as soon as a node has packed them: otherwise the
 * peak would be twice the weights. Large constants go first, while little is packed yet,
 * so that the peak is hardly more than what stays. Pages that are read later (an
 * embedding that is the last layer's weight too) come back from the file by themselves. */
#include "pack.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "adopt.h"
#include "align.h"
#include "fold.h"
#include "poll.h"
#include "threads.h"

enum { LARGE_BYTES = 16 << 20, LARGE_PART = 8 }; /* more than 1 / LARGE_PART of all */

/* A node whose packed constants a job makes. */
struct pack_user {
    struct attn_node *node;
    struct pack_user *next;
};

/* What is packed once: for one node, or for all that share its form and its constants.
 * The first user is the node whose pack() is called. */
struct pack_job {
    struct attn_graph *graph;
    struct pack_user *users;
    int64_t offset, bytes;
    const void *form;
    uint32_t sources, replaces;
};

/* Where a worker puts aligned copies: kept from node to node, since the system's
 * allocator may hold on to the pages of blocks that come and go. */
struct copies {
    void *data;
    int64_t bytes;
    attnrun_type *types; /* of one node's operands */
    attnrun_tensor *x;
};

struct packing {
    struct attn_model *model;
    const struct attn_file_list *files;
    struct attn_pool pool;
    struct pack_job *jobs;
    int32_t *slots;         /* jobs by form and constants: index + 1; open addressing */
    int64_t slots_capacity; /* a power of two */
    struct copies *copies;  /* one a worker */
    int64_t n_jobs, capacity, first_job; /* first_job: of the loop that runs */
    int64_t total;
    int32_t max_in; /* operands of a node that packs */
    char *block;
    atomic_int failed;
    attnrun_error error;
};

/* ---- jobs by what they pack ---- */

/* Constants are the same where their bytes are at one address: so are copies by Identity.
 */
static uint64_t hash_sources(const struct pack_job *job)
{
    uint64_t hash = (uintptr_t)job->form ^ job->sources;
    for (int32_t i = 0; i < 32; i++)
        if (job->sources >> i & 1) {
            int32_t id = job->users->node->in[i];
            hash = hash * UINT64_C(0x9E3779B97F4A7C15) +
                   (uintptr_t)job->graph->values[id].data.data;
        }
    return hash ^ hash >> 29;
}

static bool same_job(const struct pack_job *a, const struct pack_job *b)
{
    if (a->form != b->form || a->sources != b->sources || a->bytes != b->bytes)
        return false;
    for (int32_t i = 0; i < 32; i++)
        if ((a->sources >> i & 1) &&
            !attn_tensor_is_same(&a->graph->values[a->users->node->in[i]].data,
                                 &b->graph->values[b->users->node->in[i]].data))
            return false;
    return true;
}

/* The slot of this job, or the free one where it belongs. */
static int32_t *find_slot(const struct packing *packing, const struct pack_job *job)
{
    for (uint64_t i = hash_sources(job);; i++) {
        int32_t *slot = &packing->slots[i & (uint64_t)(packing->slots_capacity - 1)];
        if (*slot == 0 || same_job(&packing->jobs[*slot - 1], job))
            return slot;
    }
}

static attn_status grow_slots(struct packing *packing)
{
    packing->slots_capacity = packing->slots_capacity ? packing->slots_capacity * 2 : 64;
    packing->slots = attn_pool_alloc(&packing->pool, packing->slots_capacity *
                                                         (int64_t)sizeof *packing->slots);
    if (packing->slots == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t j = 0; j < packing->n_jobs; j++)
        if (packing->jobs[j].form != NULL)
            *find_slot(packing, &packing->jobs[j]) = (int32_t)j + 1;
    return ATTNRUN_OK;
}

/* Notes a job, or its node as one more user of a job that packs the same. */
static attn_status add_job(struct packing *packing, struct pack_job *job)
{
    int32_t *slot = NULL;
    int64_t rounded;
    if (packing->n_jobs * 2 >= packing->slots_capacity)
        TRY(grow_slots(packing));
    if (job->form != NULL)
        slot = find_slot(packing, job);
    if (slot != NULL && *slot > 0) {
        struct pack_user *first = packing->jobs[*slot - 1].users;
        job->users->next = first->next;
        first->next = job->users;
        return ATTNRUN_OK;
    }
    job->offset = packing->total;
    if (!ck_align(job->bytes, 64, &rounded) ||
        !ck_add(packing->total, rounded, &packing->total))
        return attn_fail_node(ATTNRUN_E_MEMORY, &job->users->node->pub,
                              "the packed weights need more than 2^63 - 1 bytes");
    if (packing->n_jobs == packing->capacity)
        TRY(attn_pool_grow(&packing->pool, (void **)&packing->jobs, &packing->capacity,
                           packing->n_jobs, (int64_t)sizeof *packing->jobs));
    packing->jobs[packing->n_jobs++] = *job;
    if (slot != NULL)
        *slot = (int32_t)packing->n_jobs;
    return ATTNRUN_OK;
}

static attn_status call_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const uint64_t errors = attn_error_count();
    TRY(attn_fail_quietly(pack->node->op->pack(pack, bytes, packed), errors, pack->node,
                          "pack"));
    if (*bytes < 0)
        return attn_fail_node(ATTNRUN_E_INTERNAL, pack->node,
                              "pack() set the size to %lld bytes", (long long)*bytes);
    return ATTNRUN_OK;
}

/* Asks a node how much it packs, and notes it where that is anything. */
static attn_status ask_node(struct packing *packing, struct attn_graph *graph,
                            struct attn_node *node, struct attn_pool *scratch)
{
    struct pack_job job = { .graph = graph };
    attnrun_pack pack;
    job.users = attn_pool_alloc(&packing->pool, (int64_t)sizeof *job.users);
    if (job.users == NULL)
        return ATTNRUN_E_MEMORY;
    job.users->node = node;
    TRY(attn_pack_describe(graph, node, scratch, &pack));
    TRY(call_pack(&pack, &job.bytes, NULL));
    node->pub.in_place = job.bytes > 0 ? 0 : pack.in_place;
    if (job.bytes <= 0)
        return ATTNRUN_OK;
    job.form = pack.form;
    job.sources = pack.sources;
    job.replaces = pack.replaces;
    if (node->pub.n_in > packing->max_in)
        packing->max_in = node->pub.n_in;
    for (int32_t i = 0; i < 32 && job.form != NULL; i++)
        if ((job.sources >> i & 1) &&
            (i >= node->pub.n_in || node->in[i] < 0 || pack.x[i].data == NULL))
            return attn_fail_node(ATTNRUN_E_INTERNAL, &node->pub,
                                  "pack() names a source that is not constant");
    return add_job(packing, &job);
}

/* Of a branch that is not taken, or whose shapes do not fit, nothing was checked: its
 * constants may be anything. */
static bool packs(const struct attn_node *node)
{
    return node->pub.op->pack != NULL && !node->adopted && !node->stale;
}

static attn_status ask_graph(struct packing *packing, struct attn_graph *graph)
{
    struct attn_pool scratch;
    attn_status status = ATTNRUN_OK;
    attn_pool_init(&scratch, packing->model->pool.memory, ATTN_MEM_MODEL);
    for (int64_t n = 0; n < graph->n_nodes && status == ATTNRUN_OK; n++) {
        struct attn_node *node = graph->nodes[n];
        status = attn_poll_work(4096);
        if (status != ATTNRUN_OK)
            break;
        if (node->pub.op == NULL)
            status =
                attn_fail(ATTNRUN_E_UNSUPPORTED, "the model has %s: %s",
                          attn_plural(packing->model->n_missing, "unsupported operator"),
                          packing->model->missing);
        else if (packs(node))
            status = ask_node(packing, graph, node, &scratch);
        for (int32_t g = 0; g < node->n_graphs && status == ATTNRUN_OK; g++)
            status = ask_graph(packing, node->graphs[g]);
    }
    attn_pool_free(&scratch);
    return status;
}

void attn_files_drop(const struct attn_file_list *files, const attnrun_tensor *constant)
{
    const uint8_t *start = constant->data;
    for (const struct attn_file_list *f = files; f != NULL; f = f->next)
        if (f->file.mapped && start >= f->file.data &&
            start < f->file.data + f->file.bytes)
            attn_file_drop(&f->file, start, tensor_bytes(constant));
}

/* At least `bytes` in copies->data; much less than before gives memory back. */
static attn_status reserve_packed(struct attn_memory *memory, struct copies *copies,
                                  int64_t bytes)
{
    if (copies->bytes >= bytes && copies->bytes <= 2 * bytes)
        return ATTNRUN_OK;
    attn_free(memory, ATTN_MEM_WEIGHTS, copies->data, copies->bytes);
    copies->bytes = 0;
    copies->data = attn_alloc(memory, ATTN_MEM_WEIGHTS, bytes);
    if (copies->data == NULL)
        return ATTNRUN_E_MEMORY;
    copies->bytes = bytes;
    return ATTNRUN_OK;
}

/* Bytes of aligned copies of those operands that are not aligned. */
static attn_status count_copies(const attnrun_tensor *x, int32_t n, int64_t *bytes)
{
    int64_t rounded;
    *bytes = 0;
    for (int32_t i = 0; i < n; i++)
        if (!attn_tensor_is_aligned(&x[i]) &&
            (!ck_align(tensor_bytes(&x[i]), 64, &rounded) ||
             !ck_add(*bytes, rounded, bytes)))
            return attn_fail(ATTNRUN_E_MEMORY, "copies of weights overflow");
    return ATTNRUN_OK;
}

/* Lets unaligned constants show aligned copies. */
static attn_status align_inputs(const struct packing *packing, struct copies *copies,
                                attnrun_tensor *x, int32_t n)
{
    int64_t bytes, at = 0;
    TRY(count_copies(x, n, &bytes));
    if (bytes == 0)
        return ATTNRUN_OK;
    TRY(reserve_packed(packing->model->pool.memory, copies, bytes));
    for (int32_t i = 0; i < n; i++) {
        if (attn_tensor_is_aligned(&x[i]))
            continue;
        const attnrun_tensor before = x[i];
        x[i].data = (char *)copies->data + at;
        TRY(attn_poll_copy(x[i].data, before.data, tensor_bytes(&before)));
        at += round_up(tensor_bytes(&before), 64);
        attn_files_drop(packing->files, &before);
    }
    return ATTNRUN_OK;
}

static attn_status pack_node(struct packing *packing, struct pack_job *job,
                             struct copies *copies)
{
    attnrun_pack pack;
    int64_t bytes = job->bytes;
    attn_pack_fill(job->graph, job->users->node, copies->types, copies->x, &pack);
    TRY(align_inputs(packing, copies, (attnrun_tensor *)(uintptr_t)pack.x, pack.n_in));
    const struct attn_node *node = job->users->node;
    TRY(call_pack(&pack, &bytes, packing->block + job->offset));
    job->replaces = pack.replaces;
    for (int32_t i = 0; i < pack.n_in && i < 32; i++)
        if (node->in[i] >= 0 && (pack.replaces >> i & 1))
            attn_files_drop(packing->files, &job->graph->values[node->in[i]].data);
    return ATTNRUN_OK;
}

static void pack_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct packing *packing = arg;
    for (int64_t i = begin; i < end && !atomic_load(&packing->failed); i++) {
        const uint64_t errors = attn_error_count();
        attn_status status = attn_poll();
        if (status == ATTNRUN_OK)
            status = pack_node(packing, &packing->jobs[packing->first_job + i],
                               &packing->copies[worker]);
        if (status != ATTNRUN_OK && atomic_exchange(&packing->failed, 1) == 0)
            attn_fail_keep(status, errors, &packing->error);
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct pack_job *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static attn_status align_graph(struct attn_graph *graph)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            TRY(align_graph(graph->nodes[n]->graphs[g]));
    return attn_graph_align(graph);
}

/* Runs jobs [first, end) and gives back what they copied. */
static void run_jobs(struct packing *packing, int64_t first, int64_t end)
{
    struct attn_threads *threads = attn_runtime_threads(packing->model->runtime);
    packing->first_job = first;
    attn_parallel_for(threads, end - first, 1, 1, pack_range, packing);
    for (int32_t i = 0; i < attn_threads_count(threads); i++) {
        struct copies *copies = &packing->copies[i];
        attn_free(packing->model->pool.memory, ATTN_MEM_WEIGHTS, copies->data,
                  copies->bytes);
        copies->data = NULL;
        copies->bytes = 0;
    }
}

/* What each worker has of its own. */
static attn_status make_workers(struct packing *packing)
{
    const int64_t n = attn_threads_count(attn_runtime_threads(packing->model->runtime)),
                  each = packing->max_in + 1;
    packing->copies =
        attn_pool_alloc(&packing->pool, n * (int64_t)sizeof *packing->copies);
    attnrun_type *types =
        attn_pool_alloc(&packing->pool, n * each * (int64_t)sizeof *types);
    attnrun_tensor *x = attn_pool_alloc(&packing->pool, n * each * (int64_t)sizeof *x);
    if (packing->copies == NULL || types == NULL || x == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        packing->copies[i].types = types + i * each;
        packing->copies[i].x = x + i * each;
    }
    return ATTNRUN_OK;
}

/* The largest jobs first. Those that are a good part of the whole end before the others
 * begin: a worker that is slow with one would hold twice its bytes at the worst time. */
static attn_status run_all(struct packing *packing)
{
    struct attn_memory *memory = packing->model->pool.memory;
    int64_t n_large = 0;
    TRY(make_workers(packing));
    packing->block = attn_alloc(memory, ATTN_MEM_WEIGHTS, packing->total);
    if (packing->block == NULL)
        return ATTNRUN_E_MEMORY;
    qsort(packing->jobs, (size_t)packing->n_jobs, sizeof *packing->jobs, by_bytes);
    while (n_large < packing->n_jobs && packing->jobs[n_large].bytes > LARGE_BYTES &&
           packing->jobs[n_large].bytes > packing->total / LARGE_PART)
        n_large++;
    run_jobs(packing, 0, n_large);
    run_jobs(packing, n_large, packing->n_jobs);
    return atomic_load(&packing->failed) ? attn_fail_again(&packing->error) : ATTNRUN_OK;
}

static attn_status pack_all(struct packing *packing)
{
    struct attn_model *model = packing->model;
    TRY(ask_graph(packing, model->graph));
    if (packing->n_jobs > 0)
        TRY(run_all(packing));
    for (int64_t i = 0; i < packing->n_jobs; i++) {
        const struct pack_job *job = &packing->jobs[i];
        for (struct pack_user *user = job->users; user != NULL; user = user->next) {
            user->node->pub.packed = packing->block + job->offset;
            user->node->packed_bytes = job->bytes;
            user->node->pack_replaces = job->replaces;
        }
    }
    TRY(align_graph(model->graph));
    return attn_fold_release(model);
}

/* NULL: the nodes show none. */
static void show_packed(const struct packing *packing, const void *packed)
{
    for (int64_t i = 0; i < packing->n_jobs; i++) {
        const struct pack_job *job = &packing->jobs[i];
        for (struct pack_user *user = job->users; user != NULL; user = user->next) {
            user->node->pub.packed = packed;
            user->node->pack_replaces = packed != NULL ? job->replaces : 0;
        }
    }
}

attn_status attn_pack_model(struct attn_model *model, const struct attn_file_list *files,
                            void **block, int64_t *block_bytes)
{
    struct packing packing = { .model = model, .files = files };
    attn_pool_init(&packing.pool, model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = pack_all(&packing);
    if (status == ATTNRUN_OK) {
        *block = packing.block;
        *block_bytes = packing.total;
        model->packed_bytes += packing.total;
    } else {
        show_packed(&packing, NULL);
        attn_free(model->pool.memory, ATTN_MEM_WEIGHTS, packing.block, packing.total);
    }
    attn_pool_free(&packing.pool);
    return status;
}

/* ---- what that takes, without doing it ---- */

static attn_status fill_graphs(const struct attn_graph *graph, struct attn_pool *scratch,
                               struct attn_pool_fill *fill)
{
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            TRY(fill_graphs(graph->nodes[n]->graphs[g], scratch, fill));
    return attn_graph_align_fill(graph, scratch, fill);
}

/* Of the largest copies that workers may make at once. */
static attn_status count_all_copies(struct packing *packing, int64_t *bytes)
{
    struct copies *worker = &packing->copies[0];
    int64_t max = 0,
            n = attn_threads_count(attn_runtime_threads(packing->model->runtime));
    for (int64_t i = 0; i < packing->n_jobs; i++) {
        const struct pack_job *job = &packing->jobs[i];
        attnrun_pack pack;
        int64_t of_job;
        attn_pack_fill(job->graph, job->users->node, worker->types, worker->x, &pack);
        TRY(count_copies(worker->x, pack.n_in, &of_job));
        max = of_job > max ? of_job : max;
    }
    *bytes = max * (n < packing->n_jobs ? n : packing->n_jobs);
    return ATTNRUN_OK;
}

/* `memory` counts packing->pool alone; `lists` counts those of attn_fold_release(). */
static attn_status measure(struct packing *packing, struct attn_memory *memory,
                           struct attn_memory *lists, struct attn_pack_need *need)
{
    struct attn_model *model = packing->model;
    struct attn_pool_fill fill = attn_pool_fill(&model->weights);
    struct attn_memory_counts pool, readers;
    struct attn_pool scratch;
    int64_t copies = 0, unread = 0;
    TRY(ask_graph(packing, model->graph));
    if (packing->n_jobs > 0) {
        TRY(make_workers(packing));
        TRY(count_all_copies(packing, &copies));
    }
    attn_memory_counts(memory, &pool);
    show_packed(packing, need->stand_in);
    attn_pool_init(&scratch, model->pool.memory, ATTN_MEM_MODEL);
    attn_status status = fill_graphs(model->graph, &scratch, &fill);
    attn_pool_free(&scratch);
    TRY(status);
    TRY(attn_fold_unread(model, lists, &unread));
    attn_memory_counts(lists, &readers);
    const int64_t behind = fill.more + (int64_t)readers.peak_bytes;
    need->packed_bytes = packing->total;
    need->working_bytes = (int64_t)pool.used_bytes + (copies > behind ? copies : behind);
    need->aligned_bytes = fill.more;
    need->released_bytes = unread;
    return ATTNRUN_OK;
}

attn_status attn_pack_measure(struct attn_model *model, struct attn_pack_need *need,
                              attn_status (*then)(void *arg), void *arg)
{
    struct packing packing = { .model = model };
    struct attn_memory *memory = attn_memory_apart(model->pool.memory),
                       *lists = attn_memory_apart(model->pool.memory);
    attn_status status = ATTNRUN_E_MEMORY;
    if (memory != NULL && lists != NULL) {
        attn_pool_init(&packing.pool, memory, ATTN_MEM_MODEL);
        status = measure(&packing, memory, lists, need);
        model->stand_in = need->stand_in;
        if (status == ATTNRUN_OK)
            status = then(arg);
        model->stand_in = NULL;
        show_packed(&packing, NULL);
        attn_pool_free(&packing.pool);
    }
    attn_memory_destroy(memory);
    attn_memory_destroy(lists);
    return status;
}

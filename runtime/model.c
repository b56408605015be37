/* model.c - the model object: life, preparation after loading, packing, and what it tells.
 *
 * In: the graph that a loader built. Out: the same one finished, inferred, promoted and
 * rewritten, ready for contexts; weights are packed when the first context is made. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "align.h"
#include "cpu.h"
#include "io.h"
#include "model.h"
#include "pack.h"
#include "poll.h"
#include "promote.h"

/* How long a thread that waits for a lock sleeps between two polls: twice as long each time, up
 * to the last of these. */
enum { FIRST_LOCK_NS = 20000, LAST_LOCK_NS = 1000000 };

struct attn_model_private {
    atomic_int refs;
    pthread_mutex_t lock; /* of packing */
    int64_t timeout_us;   /* for packing, as attnrun_source has it */
    const int32_t *cancel;
    bool packed;
    void *block; /* all packed weights */
    int64_t block_bytes;
};

/* ---- life ---- */

static int32_t count_passes(void)
{
    int32_t n = 0;
    while (attn_passes[n] != NULL)
        n++;
    return n;
}

static attn_status init_model(struct attn_model *model, const attnrun_source *source)
{
    struct attn_pool *pool = &model->pool;
    model->n_passes = count_passes();
    model->dims = attn_dims_create(pool);
    model->applied =
        attn_pool_alloc(pool, (model->n_passes + 1) * (int64_t)sizeof *model->applied);
    model->disable_passes = attn_pool_string(pool, source->disable_passes);
    if (!model->dims || !model->applied || !model->disable_passes)
        return ATTNRUN_E_MEMORY;
    TRY(attn_dims_fix(model->dims, source->fixed_dims, source->n_fixed_dims));
    model->graph = attn_graph_create(model, NULL);
    return model->graph ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

const struct attn_kernels *attn_model_kernels(const struct attn_model *model)
{
    return attn_kernels_for(model->isa, model->products_bf16);
}

attn_status attn_model_create(attnrun_runtime *runtime, const attnrun_source *source,
                              struct attn_model **made)
{
    attnrun_limits limits;
    TRY(attn_pass_check_names(source->disable_passes));
    TRY(attn_limits_read(source->limits, &limits));
    const int isa = attn_runtime_isa(runtime);
    const bool may_round = attn_kernels_for(isa, true) != NULL;
    if (source->precision == ATTNRUN_PRECISION_BF16 && !may_round)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "this library was built without products of bf16 "
                         "(ATTNRUN_BF16=OFF)");
    struct attn_memory *memory = attn_runtime_memory(runtime);
    int64_t bytes =
        (int64_t)(sizeof(struct attn_model) + sizeof(struct attn_model_private));
    struct attn_model *model = attn_alloc_zeroed(memory, ATTN_MEM_MODEL, bytes);
    if (model == NULL)
        return ATTNRUN_E_MEMORY;
    model->priv = (struct attn_model_private *)(model + 1);
    atomic_init(&model->priv->refs, 1);
    pthread_mutex_init(&model->priv->lock, NULL);
    model->runtime = runtime;
    model->flags = source->flags;
    model->limits = limits;
    model->precision = (uint8_t)source->precision;
    model->ragged = (uint8_t)source->ragged;
    model->isa = (uint8_t)isa;
    model->products_bf16 = source->precision == ATTNRUN_PRECISION_BF16 ||
                           (source->precision == ATTNRUN_PRECISION_AUTO && may_round &&
                            attn_isa_has_bf16((enum attn_isa)isa));
    model->priv->timeout_us = source->timeout_us;
    model->priv->cancel = source->cancel;
    attn_runtime_retain(runtime);
    attn_pool_init(&model->pool, memory, ATTN_MEM_MODEL);
    attn_pool_init(&model->weights, memory, ATTN_MEM_WEIGHTS);
    model->heap = (struct attn_heap){ .memory = memory, .kind = ATTN_MEM_WEIGHTS };
    model->producer = model->producer_version = model->domain = model->doc = "";
    model->graph_name = model->graph_doc = "";
    model->model_version = INT64_MAX;
    model->missing = model->packed_for = "";
    attn_status status = init_model(model, source);
    if (status == ATTNRUN_OK)
        *made = model;
    else
        attn_model_destroy(model);
    return status;
}

void attn_model_destroy(struct attn_model *model)
{
    if (model == NULL)
        return;
    attnrun_runtime *runtime = model->runtime;
    struct attn_memory *memory = attn_runtime_memory(runtime);
    attn_free(memory, ATTN_MEM_WEIGHTS, model->priv->block, model->priv->block_bytes);
    for (struct attn_file_list *f = model->files; f != NULL; f = f->next)
        attn_file_close(memory, &f->file);
    attn_heap_release(&model->heap, &model->folded);
    attn_pool_free(&model->weights);
    attn_pool_free(&model->pool);
    pthread_mutex_destroy(&model->priv->lock);
    attn_free(memory, ATTN_MEM_MODEL, model,
              (int64_t)(sizeof *model + sizeof *model->priv));
    attn_runtime_release(runtime);
}

attn_status attn_model_keep_file(struct attn_model *model, const struct attn_file *file)
{
    struct attn_file_list *item = attn_pool_alloc(&model->pool, (int64_t)sizeof *item);
    if (item == NULL)
        return ATTNRUN_E_MEMORY;
    item->file = *file;
    item->next = model->files;
    model->files = item;
    return ATTNRUN_OK;
}

void attnrun_model_retain(attnrun_model *model)
{
    if (model != NULL)
        atomic_fetch_add(&((struct attn_model *)model)->priv->refs, 1);
}

void attnrun_model_release(attnrun_model *model)
{
    struct attn_model *inner = (struct attn_model *)model;
    if (inner != NULL && atomic_fetch_sub(&inner->priv->refs, 1) == 1)
        attn_model_destroy(inner);
}

/* ---- preparation ---- */

struct missing {
    char text[1024], near[100];
    size_t used;
    int32_t n;
};

static void note_missing(struct missing *missing, const struct attn_node *node)
{
    char word[200];
    snprintf(word, sizeof word, "%s%s%s-%d", attn_quote(node->pub.domain),
             node->pub.domain[0] ? "." : "", attn_quote(node->pub.op_type),
             node->pub.opset);
    const char *found = strstr(missing->text, word);
    size_t length = strlen(word);
    while (found != NULL && ((found != missing->text && found[-1] != ' ') ||
                             (found[length] != 0 && found[length] != ',')))
        found = strstr(found + 1, word); /* "Foo-1" within "my.Foo-17" */
    if (found != NULL)
        return;
    missing->n++;
    if (missing->used + length + 3 < sizeof missing->text)
        missing->used += (size_t)snprintf(missing->text + missing->used,
                                          sizeof missing->text - missing->used, "%s%s",
                                          missing->used ? ", " : "", word);
}

/* "Relu" for "Relux": the operator of the same domain that the first missing one may mean. */
static void suggest_operator(const struct attn_model *model, struct missing *missing,
                             const struct attn_node *node)
{
    enum { MAX = 512 };
    const char *names[MAX];
    const attnrun_op_def *op;
    int n = 0;
    for (int32_t i = 0; (op = attnrun_get_op(model->runtime, i)) != NULL && n < MAX; i++)
        if (strcmp(op->domain, node->pub.domain) == 0 &&
            (n == 0 || strcmp(op->name, names[n - 1]) != 0))
            names[n++] = op->name;
    const char *near = attnrun_nearest_word(node->pub.op_type, names, n);
    if (near != NULL)
        snprintf(missing->near, sizeof missing->near, " (did you mean '%s'?)",
                 attn_quote(near));
}

static attn_status resolve_graph(struct attn_graph *graph, struct missing *missing)
{
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        struct attn_node *node = graph->nodes[n];
        TRY(attn_poll_work(4096));
        attn_status status = attn_node_resolve(graph, node);
        if (status == ATTNRUN_E_UNSUPPORTED) {
            if (missing->n == 0)
                suggest_operator(graph->model, missing, node);
            note_missing(missing, node);
        } else if (status != ATTNRUN_OK)
            return status;
        for (int32_t g = 0; g < node->n_graphs; g++)
            TRY(resolve_graph(node->graphs[g], missing));
    }
    return ATTNRUN_OK;
}

static attn_status fail_missing(const struct missing *missing, const char *what,
                                const char *hint)
{
    attn_fail(ATTNRUN_E_UNSUPPORTED, "%s %s not %s: %s%s",
              attn_plural(missing->n, "operator"), missing->n == 1 ? "is" : "are",
              attn_ops_listed ? "in the list of this library (ATTNRUN_OPS)" : what,
              missing->text, missing->n == 1 ? missing->near : "");
    attn_hint("%s", attn_ops_listed ? ATTN_LISTED_HINT : hint);
    return ATTNRUN_E_UNSUPPORTED;
}

static attn_status no_memory(const struct attn_model *model)
{
    return attn_fail(ATTNRUN_E_MEMORY,
                     "the model needs %lld more bytes than are available",
                     (long long)model->pool.failed);
}

attn_status attn_model_prepare(struct attn_model *model)
{
    struct missing missing = { .n = 0 };
    if (model->pool.failed != 0) /* dims of types that the file declares */
        return no_memory(model);
    TRY(resolve_graph(model->graph, &missing));
    TRY(attn_graph_finish(model->graph));
    model->n_missing = missing.n;
    model->missing = attn_pool_string(&model->pool, missing.text);
    if (model->missing == NULL)
        return ATTNRUN_E_MEMORY;
    if (missing.n > 0 && !(model->flags & ATTNRUN_ALLOW_MISSING))
        return fail_missing(&missing, "supported",
                            "attnrun inspect --coverage lists every node");
    TRY(attn_graph_infer(model->graph));
    if (missing.n == 0 && model->origin == NULL)
        TRY(attn_graph_promote(model->graph));
    if (missing.n == 0 && (model->origin == NULL || !model->origin->keep_nodes))
        TRY(attn_graph_rewrite(model->graph));
    if (model->origin == NULL)
        TRY(attn_graph_read_borders(model->graph));
    if (model->ragged == ATTNRUN_RAGGED_ON && model->origin == NULL &&
        model->graph->ragged == NULL)
        return attn_fail(ATTNRUN_E_UNSUPPORTED,
                         "the model cannot run on the tokens of ragged batches: %s",
                         model->ragged_why != NULL ? model->ragged_why
                         : attn_ops_listed
                             ? "its rewrite pass is not in the list (ATTNRUN_OPS)"
                             : "its rewrite pass is switched off");
    attn_log(model->runtime, ATTN_LOG_INFO, "model: %s in the file, %lld to run",
             attn_plural(model->n_file_nodes, "node"), (long long)model->graph->n_nodes);
    return ATTNRUN_OK;
}

/* Formulas that came back in subgraphs or in the graph itself. */
static attn_status expand_all(struct attn_graph *graph, bool *changed)
{
    TRY(attn_graph_expand(graph, changed));
    for (int64_t n = 0; n < graph->n_nodes; n++)
        for (int32_t g = 0; g < graph->nodes[n]->n_graphs; g++)
            if (attn_graph_is_inferred(graph->nodes[n]->graphs[g]))
                TRY(expand_all(graph->nodes[n]->graphs[g], changed));
    return ATTNRUN_OK;
}

attn_status attn_model_resume(struct attn_model *model)
{
    struct missing missing = { .n = 0 };
    bool changed = false;
    model->rewritten = true;
    if (model->pool.failed != 0)
        return no_memory(model);
    TRY(resolve_graph(model->graph, &missing));
    if (missing.n > 0)
        return fail_missing(
            &missing, "there",
            "register the operators, or load the plugin, that it was packed with");
    TRY(attn_graph_finish(model->graph));
    TRY(attn_graph_infer(model->graph));
    const int64_t n_nodes = model->graph->n_nodes;
    TRY(attn_graph_promote(model->graph));
    TRY(expand_all(model->graph, &changed));
    if (changed || model->graph->n_nodes != n_nodes)
        return attn_fail(ATTNRUN_E_MODEL, "its nodes change when it is opened, so they "
                                          "are not those of a packed model");
    attn_log(model->runtime, ATTN_LOG_INFO, "model: %lld packed nodes to run",
             (long long)n_nodes);
    return ATTNRUN_OK;
}

/* ---- packing ---- */

/* Another thread may pack for long: its lock is waited for with polls. pthread_mutex_timedlock()
 * would wait until a time of day, and for hours where the clock is set back meanwhile. */
static attn_status lock_packing(struct attn_model_private *priv)
{
    struct timespec pause = { .tv_nsec = FIRST_LOCK_NS };
    while (pthread_mutex_trylock(&priv->lock) != 0) {
        TRY(attn_poll());
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LAST_LOCK_NS)
            pause.tv_nsec *= 2;
    }
    return ATTNRUN_OK;
}

attn_status attn_model_lock(struct attn_model *model, bool *packed)
{
    TRY(lock_packing(model->priv));
    *packed = model->priv->packed;
    return ATTNRUN_OK;
}

void attn_model_unlock(struct attn_model *model)
{
    pthread_mutex_unlock(&model->priv->lock);
}

static attn_status pack_once(struct attn_model *model)
{
    struct attn_model_private *priv = model->priv;
    attn_status status = ATTNRUN_OK;
    TRY(lock_packing(priv));
    if (!priv->packed) {
        status = attn_pack_model(model, model->files, &priv->block, &priv->block_bytes);
        priv->packed = status == ATTNRUN_OK; /* out of memory now may be fine later */
        attn_log(model->runtime, ATTN_LOG_INFO, "model: %lld bytes of weights packed",
                 (long long)model->packed_bytes);
    }
    pthread_mutex_unlock(&priv->lock);
    return status;
}

void attn_model_control(const struct attn_model *model, struct attn_control *control)
{
    *control = (struct attn_control){ .caller_flag = model->priv->cancel };
    attn_control_start(control, model->priv->timeout_us);
}

attn_status attn_model_pack(struct attn_model *model)
{
    struct attn_control control;
    attn_model_control(model, &control);
    struct attn_meter before = attn_poll_enter(&control);
    attn_status status = pack_once(model);
    attn_poll_leave(before);
    return status;
}

attnrun_status attnrun_model_pack(attnrun_model *model)
{
    attnrun_error before;
    if (model == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_model_pack: model is NULL");
    attn_call_begin(&before);
    return attn_call_end(attn_model_pack(model_of(model)), &before);
}

/* runtime.c - the runtime object: memory, threads, kernels, and the registry of operators.
 *
 * In: options of the caller, and the environment, which is read here once. Out: the object
 * that models and contexts share: a budget, a pool of workers, the kernel table of one
 * instruction set, and the operator rows of the library with those that were registered. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "abi.h"
#include "cpu.h"
#include "graph.h"
#include "row.h"
#include "threads.h"

/* Operator rows, sorted by domain, name, since. */
struct registry_rows {
    const attnrun_op_def **v;
    int64_t n, capacity;
};

/* A registered row whose place a later one took: models may still run it. */
struct replaced_row {
    struct replaced_row *next;
    const attnrun_op_def *row;
};

struct attnrun_runtime {
    atomic_int refs;
    attnrun_allocator allocator;
    struct attn_memory *memory;
    struct attn_threads *threads;
    enum attn_isa isa;
    bool may_use_blas;
    uint64_t max_memory;
    attnrun_log_fn log;
    void *log_user;
    int32_t log_level;
    pthread_mutex_t lock;          /* of the registry and of the plugins */
    struct registry_rows built_in; /* what the library brings; never changes */
    atomic_uchar *used;            /* of each of them: a node had it */
    struct registry_rows ops;      /* with what was registered in addition or instead */
    struct replaced_row *replaced; /* those with release() */
    struct attn_pool copies; /* of rows that are shorter than this header's; and these */
    void **plugins;
    int64_t n_plugins;
    char features[128], isas[128];
};

/* ---- the registry ---- */

static int compare_key(const attnrun_op_def *a, const char *domain, const char *name)
{
    int order = strcmp(a->domain, domain);
    return order != 0 ? order : strcmp(a->name, name);
}

static int compare_rows(const void *left, const void *right)
{
    const attnrun_op_def *a = *(const attnrun_op_def *const *)left;
    const attnrun_op_def *b = *(const attnrun_op_def *const *)right;
    int order = compare_key(a, b->domain, b->name);
    return order != 0 ? order : (a->since > b->since) - (a->since < b->since);
}

/* The first row that is not before (domain, name, since). */
static int64_t lower_bound(const struct registry_rows *rows, const char *domain,
                           const char *name, int64_t since)
{
    int64_t low = 0, high = rows->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        const attnrun_op_def *row = rows->v[middle];
        int order = compare_key(row, domain, name);
        if (order < 0 || (order == 0 && row->since < since))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A later version, which the library was built without, begins up to `version`. */
static bool ends_before(const attnrun_op_def *row, int64_t version)
{
    for (const struct attn_op_end *end = attn_op_ends; end->name != NULL; end++)
        if (end->since > row->since && end->since <= version &&
            compare_key(row, end->domain, end->name) == 0)
            return true;
    return false;
}

static const attnrun_op_def *find_row(const struct registry_rows *rows,
                                      const char *domain, const char *name,
                                      int64_t version)
{
    int64_t i =
        lower_bound(rows, domain, name, version < INT64_MAX ? version + 1 : version);
    bool found = i > 0 && compare_key(rows->v[i - 1], domain, name) == 0;
    return found && !ends_before(rows->v[i - 1], version) ? rows->v[i - 1] : NULL;
}

const attnrun_op_def *attn_runtime_find_op(attnrun_runtime *runtime, const char *domain,
                                           const char *name, int64_t version)
{
    pthread_mutex_lock(&runtime->lock);
    const attnrun_op_def *found = find_row(&runtime->ops, domain, name, version);
    pthread_mutex_unlock(&runtime->lock);
    return found;
}

const attnrun_op_def *attn_runtime_find_builtin(attnrun_runtime *runtime,
                                                const char *domain, const char *name,
                                                int64_t version)
{
    return find_row(&runtime->built_in, domain, name, version);
}

void attn_runtime_note_op(attnrun_runtime *runtime, const attnrun_op_def *row)
{
    const struct registry_rows *rows = &runtime->built_in;
    const int64_t i = lower_bound(rows, row->domain, row->name, row->since);
    if (i < rows->n && rows->v[i] == row)
        atomic_store_explicit(&runtime->used[i], 1, memory_order_relaxed);
}

attnrun_status attnrun_runtime_ops(attnrun_runtime *runtime,
                                   void (*see)(void *user, const attnrun_op_def *op),
                                   void *user)
{
    if (runtime == NULL || see == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "attnrun_runtime_ops: runtime or see is NULL");
    for (int64_t i = 0; i < runtime->built_in.n; i++)
        if (atomic_load_explicit(&runtime->used[i], memory_order_relaxed) != 0)
            see(user, runtime->built_in.v[i]);
    return ATTNRUN_OK;
}

static attn_status reserve_rows(struct attn_memory *memory, struct registry_rows *rows,
                                int64_t capacity)
{
    if (capacity <= rows->capacity)
        return ATTNRUN_OK;
    int64_t bytes = capacity * (int64_t)sizeof *rows->v;
    const attnrun_op_def **grown = attn_alloc(memory, ATTN_MEM_MODEL, bytes);
    if (grown == NULL)
        return ATTNRUN_E_MEMORY;
    if (rows->n > 0)
        memcpy(grown, rows->v, (size_t)rows->n * sizeof *grown);
    attn_free(memory, ATTN_MEM_MODEL, rows->v, rows->capacity * (int64_t)sizeof *grown);
    rows->v = grown;
    rows->capacity = capacity;
    return ATTNRUN_OK;
}

static void free_rows(struct attn_memory *memory, struct registry_rows *rows)
{
    attn_free(memory, ATTN_MEM_MODEL, rows->v, rows->capacity * (int64_t)sizeof *rows->v);
}

/* Of one operator and version: what is released of them is the same. */
static bool same_release(const attnrun_op_def *a, const attnrun_op_def *b)
{
    return compare_rows(&a, &b) == 0 && a->release == b->release && a->user == b->user;
}

/* A row that is registered again is not among the replaced ones any more. */
static void forget_replaced(attnrun_runtime *runtime, const attnrun_op_def *row)
{
    struct replaced_row **at = &runtime->replaced;
    while (*at != NULL)
        if (same_release((*at)->row, row))
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

static attn_status keep_replaced(attnrun_runtime *runtime, const attnrun_op_def *old,
                                 const attnrun_op_def *row)
{
    if (old->release == NULL || same_release(old, row))
        return ATTNRUN_OK;
    struct replaced_row *kept = attn_pool_alloc(&runtime->copies, (int64_t)sizeof *kept);
    if (kept == NULL)
        return ATTNRUN_E_MEMORY;
    *kept = (struct replaced_row){ runtime->replaced, old };
    runtime->replaced = kept;
    return ATTNRUN_OK;
}

static attn_status insert_row(attnrun_runtime *runtime, const attnrun_op_def *row)
{
    struct registry_rows *ops = &runtime->ops;
    int64_t i = lower_bound(ops, row->domain, row->name, row->since);
    bool same = i < ops->n && compare_rows(&ops->v[i], &row) == 0;
    if (!same) {
        if (ops->n == ops->capacity)
            TRY(reserve_rows(runtime->memory, ops, ops->capacity * 2 + 64));
        memmove(&ops->v[i + 1], &ops->v[i], (size_t)(ops->n - i) * sizeof *ops->v);
        ops->n++;
    } else {
        TRY(keep_replaced(runtime, ops->v[i], row));
        forget_replaced(runtime, row);
    }
    ops->v[i] = row;
    return ATTNRUN_OK;
}

/* A row of an older header is kept as a copy that has all members. */
static attn_status whole_row(attnrun_runtime *runtime, const attnrun_op_def **row)
{
    if ((*row)->struct_size >= sizeof **row)
        return ATTNRUN_OK;
    attnrun_op_def *copy = attn_pool_alloc(&runtime->copies, (int64_t)sizeof *copy);
    if (copy == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_struct_read(*row, copy, sizeof *copy, "attnrun_op_def"));
    copy->struct_size = sizeof *copy;
    *row = copy;
    return ATTNRUN_OK;
}

attnrun_status attnrun_register_op(attnrun_runtime *runtime, const attnrun_op_def *op)
{
    if (runtime == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the runtime is NULL");
    TRY(attn_struct_check(op, sizeof *op, "attnrun_op_def"));
    pthread_mutex_lock(&runtime->lock);
    attn_status status = whole_row(runtime, &op);
    if (status == ATTNRUN_OK)
        status = attn_row_check(op);
    if (status == ATTNRUN_OK)
        status = insert_row(runtime, op);
    pthread_mutex_unlock(&runtime->lock);
    return status;
}

const attnrun_op_def *attnrun_get_op(attnrun_runtime *runtime, int32_t index)
{
    const attnrun_op_def *row = NULL;
    if (runtime == NULL || index < 0)
        return NULL;
    pthread_mutex_lock(&runtime->lock);
    if (index < runtime->ops.n)
        row = runtime->ops.v[index];
    pthread_mutex_unlock(&runtime->lock);
    return row;
}

static attn_status add_builtin(attnrun_runtime *runtime)
{
    struct registry_rows *rows = &runtime->built_in, *ops = &runtime->ops;
    int64_t n = 0;
    while (attn_ops[n] != NULL)
        n++;
    TRY(reserve_rows(runtime->memory, rows, n));
    TRY(reserve_rows(runtime->memory, ops, n + 16));
    runtime->used = attn_alloc_zeroed(runtime->memory, ATTN_MEM_MODEL, n + 1);
    if (runtime->used == NULL)
        return ATTNRUN_E_MEMORY;
    runtime->built_in.n = n; /* also the size of `used` */
    for (int64_t i = 0; i < n; i++)
        rows->v[i] = attn_ops[i];
    qsort(rows->v, (size_t)n, sizeof *rows->v, compare_rows);
    memcpy(ops->v, rows->v, (size_t)n * sizeof *rows->v);
    rows->n = ops->n = n;
    return ATTNRUN_OK;
}

static attn_status keep_plugin(attnrun_runtime *runtime, void *library)
{
    int64_t bytes = (runtime->n_plugins + 1) * (int64_t)sizeof(void *);
    void **plugins = attn_alloc(runtime->memory, ATTN_MEM_MODEL, bytes);
    if (plugins == NULL)
        return ATTNRUN_E_MEMORY;
    if (runtime->n_plugins > 0)
        memcpy(plugins, runtime->plugins, (size_t)(bytes - (int64_t)sizeof(void *)));
    attn_free(runtime->memory, ATTN_MEM_MODEL, runtime->plugins,
              bytes - (int64_t)sizeof(void *));
    plugins[runtime->n_plugins++] = library;
    runtime->plugins = plugins;
    return ATTNRUN_OK;
}

attnrun_status attnrun_load_plugin(attnrun_runtime *runtime, const char *path)
{
    if (runtime == NULL || path == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the runtime or the path is NULL");
    attnrun_error before;
    attn_call_begin(&before);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return attn_fail(ATTNRUN_E_IO, "plugin '%s' cannot be loaded: %s",
                         attn_quote(path), dlerror());
    attnrun_status (*entry)(attnrun_runtime *) = NULL;
    *(void **)&entry = dlsym(library, "attnrun_plugin");
    attn_status status = ATTNRUN_OK;
    const uint64_t errors = attn_error_count();
    if (entry == NULL)
        status = attn_fail(ATTNRUN_E_IO, "plugin '%s' has no function attnrun_plugin()",
                           attn_quote(path));
    else
        status = attn_fail_quietly(entry(runtime), errors, NULL, "attnrun_plugin");
    pthread_mutex_lock(&runtime->lock); /* not while the plugin registers its rows */
    if (status == ATTNRUN_OK)
        status = keep_plugin(runtime, library);
    pthread_mutex_unlock(&runtime->lock);
    if (status != ATTNRUN_OK && entry == NULL)
        dlclose(library); /* else its rows may already be registered */
    return attn_call_end(status, &before);
}

/* ---- life ---- */

static int32_t environment_threads(void)
{
    static const char *const names[] = { "ATTNRUN_NUM_THREADS", "OMP_NUM_THREADS" };
    for (size_t i = 0; i < 2; i++) {
        const char *text = secure_getenv(names[i]);
        long count = text ? strtol(text, NULL, 10) : 0;
        if (count > 0 && count <= 1024)
            return (int32_t)count;
    }
    return 0;
}

static int32_t environment_log_level(void)
{
    const char *text = secure_getenv("ATTNRUN_LOG");
    long level = text != NULL && text[0] != 0 ? strtol(text, NULL, 10) : ATTN_LOG_PLAN;
    return level < 0 ? 0 : level > ATTN_LOG_PLAN ? ATTN_LOG_PLAN : (int32_t)level;
}

static attn_status choose_isa(attnrun_runtime *runtime, const char *name)
{
    if (name == NULL)
        name = secure_getenv("ATTNRUN_ISA");
    runtime->isa = attn_cpu_isa();
    if (name != NULL && name[0] != 0)
        TRY(attn_isa_parse(name, &runtime->isa));
    runtime->isa = attn_cpu_permitted(runtime->isa);
    return ATTNRUN_OK;
}

static bool is_unlimited(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

static attn_status fill_runtime(attnrun_runtime *runtime,
                                const attnrun_runtime_options *options)
{
    TRY(choose_isa(runtime, options->isa));
    /* Where the system refuses OpenBLAS its buffer, it tries again without end. */
    runtime->may_use_blas =
        attn_isa_of_floats(runtime->isa) == attn_isa_of_floats(attn_cpu_isa()) &&
        options->max_memory == 0 && options->allocator == NULL &&
        is_unlimited(RLIMIT_AS) && is_unlimited(RLIMIT_DATA);
    attn_cpu_describe(runtime->features, sizeof runtime->features);
    attn_cpu_list(runtime->isas, sizeof runtime->isas);
    runtime->log_level = environment_log_level();
    runtime->memory = attn_memory_create(options->allocator, options->max_memory);
    if (runtime->memory == NULL)
        return ATTNRUN_E_MEMORY;
    attn_memory_count_owner(runtime->memory, (int64_t)sizeof *runtime);
    attn_pool_init(&runtime->copies, runtime->memory, ATTN_MEM_MODEL);
    int32_t threads = options->threads > 0 ? options->threads : environment_threads();
    if (threads <= 0)
        threads = attn_threads_available();
    runtime->threads = attn_threads_create(
        runtime->memory, threads < 1024 ? threads : 1024, options->pool);
    if (runtime->threads == NULL)
        return ATTNRUN_E_MEMORY;
    return add_builtin(runtime);
}

static void runtime_end(attnrun_runtime *runtime)
{
    attn_threads_destroy(runtime->threads);
    for (int64_t i = 0; i < runtime->ops.n; i++)
        if (runtime->ops.v[i]->release != NULL)
            runtime->ops.v[i]->release(runtime->ops.v[i]->user);
    for (const struct replaced_row *r = runtime->replaced; r != NULL; r = r->next)
        r->row->release(r->row->user);
    if (runtime->memory != NULL) {
        for (int64_t i = 0; i < runtime->n_plugins; i++)
            dlclose(runtime->plugins[i]);
        attn_free(runtime->memory, ATTN_MEM_MODEL, runtime->plugins,
                  runtime->n_plugins * (int64_t)sizeof(void *));
        attn_pool_free(&runtime->copies);
        free_rows(runtime->memory, &runtime->ops);
        attn_free(runtime->memory, ATTN_MEM_MODEL, (void *)runtime->used,
                  runtime->built_in.n + 1);
        free_rows(runtime->memory, &runtime->built_in);
        attn_memory_destroy(runtime->memory);
    }
    pthread_mutex_destroy(&runtime->lock);
    if (runtime->allocator.free != NULL)
        runtime->allocator.free(runtime->allocator.user, runtime, sizeof *runtime);
    else
        free(runtime);
}

/* The options and the structs that they point to, with all members of this header. */
static attn_status read_options(const attnrun_runtime_options *options,
                                attnrun_runtime_options *given,
                                attnrun_allocator *allocator, attnrun_pool *pool)
{
    TRY(attn_struct_read(options, given, sizeof *given, "attnrun_runtime_options"));
    if (given->threads < 0)
        return attn_fail(ATTNRUN_E_USAGE,
                         "threads is %d, expected 0 (the default) or more",
                         (int)given->threads);
    if (given->allocator != NULL) {
        TRY(attn_struct_read(given->allocator, allocator, sizeof *allocator,
                             "attnrun_allocator"));
        given->allocator = allocator;
        if (allocator->alloc == NULL || allocator->free == NULL)
            return attn_fail(ATTNRUN_E_USAGE, "an allocator needs alloc and free");
    }
    if (given->pool != NULL) {
        TRY(attn_struct_read(given->pool, pool, sizeof *pool, "attnrun_pool"));
        given->pool = pool;
        if (pool->parallel_for == NULL || pool->max_workers < 1)
            return attn_fail(ATTNRUN_E_USAGE, "a pool needs parallel_for and workers");
    }
    return ATTNRUN_OK;
}

attnrun_status attnrun_runtime_create(const attnrun_runtime_options *options,
                                      attnrun_runtime **runtime)
{
    attnrun_runtime_options given = { .struct_size = sizeof given };
    attnrun_allocator allocator;
    attnrun_pool pool;
    attnrun_error before;
    if (runtime == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "runtime is NULL");
    attn_call_begin(&before);
    if (options != NULL)
        TRY(read_options(options, &given, &allocator, &pool));
    const attnrun_allocator *own = given.allocator;
    attnrun_runtime *made =
        own ? own->alloc(own->user, sizeof *made, 64) : malloc(sizeof *made);
    if (made == NULL)
        return attn_fail(ATTNRUN_E_MEMORY, "no memory for the runtime");
    memset(made, 0, sizeof *made);
    if (own != NULL)
        made->allocator = *own;
    atomic_init(&made->refs, 1);
    pthread_mutex_init(&made->lock, NULL);
    made->log = given.log;
    made->log_user = given.log_user;
    attn_status status = fill_runtime(made, &given);
    if (status != ATTNRUN_OK) {
        runtime_end(made);
        return status;
    }
    *runtime = made;
    return attn_call_end(ATTNRUN_OK, &before);
}

void attn_runtime_retain(attnrun_runtime *runtime)
{
    atomic_fetch_add(&runtime->refs, 1);
}

void attn_runtime_release(attnrun_runtime *runtime)
{
    if (runtime != NULL && atomic_fetch_sub(&runtime->refs, 1) == 1)
        runtime_end(runtime);
}

void attnrun_runtime_destroy(attnrun_runtime *runtime) { attn_runtime_release(runtime); }

attn_status attn_runtime_default(attnrun_runtime **runtime)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static attnrun_runtime *shared;
    attn_status status = ATTNRUN_OK;
    pthread_mutex_lock(&lock);
    if (shared == NULL)
        status = attnrun_runtime_create(NULL, &shared);
    if (status == ATTNRUN_OK) {
        attn_runtime_retain(shared);
        *runtime = shared;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- access ---- */

void attn_log(const attnrun_runtime *runtime, int32_t level, const char *format, ...)
{
    char text[512];
    if (runtime->log == NULL || level > runtime->log_level)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    runtime->log(runtime->log_user, level, text);
}

struct attn_memory *attn_runtime_memory(attnrun_runtime *runtime)
{
    return runtime->memory;
}

bool attn_runtime_may_use_blas(const attnrun_runtime *runtime)
{
    return runtime->may_use_blas;
}

struct attn_threads *attn_runtime_threads(attnrun_runtime *runtime)
{
    return runtime->threads;
}

int attn_runtime_isa(const attnrun_runtime *runtime) { return (int)runtime->isa; }

attnrun_status attnrun_runtime_query(attnrun_runtime *runtime, attnrun_runtime_info *info)
{
    if (runtime == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "the runtime is NULL");
    struct attn_memory_counts counts;
    attn_memory_counts(runtime->memory, &counts);
    attnrun_runtime_info filled = {
        .threads = attn_threads_count(runtime->threads),
        .isa = attn_isa_name(runtime->isa),
        .cpu_features = runtime->features,
        .blas = attn_blas_name(),
        .max_memory = counts.max_bytes,
        .used_memory = counts.used_bytes,
        .peak_memory = counts.peak_bytes,
        .allocations = counts.calls,
        .isas = runtime->isas,
    };
    return attn_struct_write(info, &filled, sizeof filled, "attnrun_runtime_info");
}

/* workers.c - tasks of attnrun in the threads of an ONNX Runtime context.
 *
 * In: ranges of tasks from the library. Out: the same ranges, taken by as many of the caller's
 * threads as it lends. Outside of a run (weights are packed while a kernel is created) the
 * calling thread does all of it. */
#include <stdatomic.h>
#include <string.h>

#include "door.h"

struct workers_region {
    attnrun_task_fn fn;
    void *arg;
    int64_t n, grain;
    atomic_int_least64_t next;
};

static _Thread_local struct workers_scope current;

struct workers_scope workers_enter(const struct door *door, const ort_context *context)
{
    struct workers_scope before = current;
    current = (struct workers_scope){ door, context };
    return before;
}

void workers_leave(struct workers_scope before) { current = before; }

/* One worker: it takes ranges until none is left. */
static void work(void *user, size_t worker)
{
    struct workers_region *region = user;
    int64_t begin;
    while ((begin = atomic_fetch_add(&region->next, region->grain)) < region->n) {
        int64_t left = region->n - begin;
        int64_t end = begin + (left < region->grain ? left : region->grain);
        region->fn(region->arg, begin, end, (int32_t)worker);
    }
}

static void parallel_for(void *user, int64_t n, int64_t grain, attnrun_task_fn fn,
                         void *arg)
{
    int64_t max_workers = *(const int32_t *)user;
    struct workers_region region = {
        .fn = fn, .arg = arg, .n = n, .grain = grain > 0 ? grain : 1
    };
    int64_t ranges = n / region.grain + (n % region.grain != 0);
    int64_t workers = ranges < max_workers ? ranges : max_workers;
    if (current.context != NULL && workers > 1) {
        const ort_api *api = current.door->api;
        ort_status *status =
            api->parallel_for(current.context, work, (size_t)workers, 0, &region);
        if (status != NULL)
            api->release_status(status);
    }
    work(&region, 0); /* all of it, or what a refusal left */
}

void workers_make(int32_t max_workers, attnrun_pool *pool)
{
    static int32_t workers; /* the same for every door of this process */
    workers = max_workers;
    *pool = (attnrun_pool){ .struct_size = sizeof *pool,
                            .max_workers = max_workers,
                            .user = &workers,
                            .parallel_for = parallel_for };
}

struct copy {
    char *to;
    const char *from;
    size_t bytes;
};
enum { COPY_SEGMENT = 1 << 20 };

static void copy_segment(void *user, size_t segment)
{
    const struct copy *copy = user;
    size_t at = segment * COPY_SEGMENT, left = copy->bytes - at;
    memcpy(copy->to + at, copy->from + at, left < COPY_SEGMENT ? left : COPY_SEGMENT);
}

void workers_copy(const struct door *door, void *to, const void *from, size_t bytes)
{
    struct copy copy = { to, from, bytes };
    size_t segments = bytes / COPY_SEGMENT + (bytes % COPY_SEGMENT != 0);
    ort_status *status = NULL;
    bool shared = segments > 1 && current.context != NULL && door->threads != 1;
    if (shared)
        status =
            door->api->parallel_for(current.context, copy_segment, segments, 0, &copy);
    if (status != NULL)
        door->api->release_status(status);
    if ((!shared || status != NULL) && bytes > 0)
        memcpy(to, from, bytes);
}

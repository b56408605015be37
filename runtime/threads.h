/* threads.h - the pool: a fixed set of workers, spinning briefly, then asleep on a futex.
 * One parallel loop at a time; a loop started from inside a task, or while another
 * thread's loop runs, is done by the caller alone. Splits never depend on the number of
 * workers. */
#ifndef ATTN_THREADS_H
#define ATTN_THREADS_H

#include "alloc.h"

struct attn_threads;

/* CPUs that this process may really use: affinity ∩ cgroup v1/v2 quota; at least 1. */
int32_t attn_threads_available(void);
/* `count` workers with the caller as worker 0; threads start at the first parallel loop.
 * `pool`, where not NULL, is used instead. NULL with the error recorded. */
struct attn_threads *attn_threads_create(struct attn_memory *memory, int32_t count,
                                         const attnrun_pool *pool);
void attn_threads_destroy(struct attn_threads *threads);
int32_t attn_threads_count(const struct attn_threads *threads);
/* Calls fn over [0, n) in ranges of `grain` to `max` (the last one may be smaller), each
 * by one worker, and waits. */
void attn_parallel_for(struct attn_threads *threads, int64_t n, int64_t grain,
                       int64_t max, attnrun_task_fn fn, void *arg);

#endif

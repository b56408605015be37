/* threads.c - the pool of workers.
 *
 * A loop is opened by setting GATE_OPEN in `gate` after its description is written. A
 * worker joins by counting itself into an open gate, takes ranges until none is left, and
 * counts itself out. The caller works too; then it closes the gate and waits only for those
 * that joined: a worker that wakes too late finds the gate closed and costs nothing. Idle
 * workers watch `signal` for SPIN_NS, then sleep on it (futex).
 *
 * Each worker has a part of the tasks, the same one in each loop of as many tasks: what it
 * wrote in the loop before is in its caches, and lines that another core has read are slow
 * to write. It takes ranges from the front of its part, large ones first, and then from
 * the back of the parts of others. */
#include "threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "poll.h"

enum { LINE = 64, SPIN_NS = 50000, STACK_BYTES = 2 << 20, MAX_THREADS = 1024 };
#define GATE_OPEN (UINT32_C(1) << 31)

struct loop {
    attnrun_task_fn fn;
    void *arg;
    int64_t n, grain, max; /* tasks; the smallest and the largest range */
    int64_t unit;          /* tasks that are taken together, so that 32 bits count them */
    int32_t workers;
    struct attn_control *control; /* that the caller polls; its workers do so too */
};

struct attn_threads {
    struct attn_memory *memory; /* that this is in */
    int64_t bytes;
    int32_t count, n_started; /* n_started: with the caller */
    int64_t spin_ns;
    bool external;
    attnrun_pool pool;
    _Atomic pid_t owner; /* the process whose threads these are; 0: not started */
    struct worker *workers;
    struct loop
        loop; /* written by the holder of `busy` while the gate is closed and empty */
    _Alignas(LINE) _Atomic uint32_t busy;   /* a loop runs */
    _Alignas(LINE) _Atomic uint32_t gate;   /* GATE_OPEN | workers inside */
    _Alignas(LINE) _Atomic uint32_t signal; /* counts loops; futex */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t caller_sleeps;
    _Atomic uint32_t stop;
};

struct worker {
    struct attn_threads *threads;
    pthread_t thread;
    int32_t index;
    _Alignas(
        LINE) _Atomic uint64_t part; /* units not taken: the first << 32 | their end */
};

/* This thread is inside a task: loops that it starts are done inline. */
static _Thread_local bool inside;

/* ---- waiting ---- */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until *word differs from `seen` or spin_ns have passed; returns its value. */
static uint32_t spin(_Atomic uint32_t *word, uint32_t seen, int64_t spin_ns)
{
    int64_t start = spin_ns > 0 ? now_ns() : 0;
    for (unsigned round = 1;; round++) {
        uint32_t value = atomic_load_explicit(word, memory_order_acquire);
        if (value != seen || spin_ns == 0)
            return value;
        relax();
        if (round % 32 == 0 && now_ns() - start > spin_ns)
            return value;
    }
}

/* ---- doing tasks ---- */
/* Tasks that are taken of a part with `left`: half of them, so that ranges shrink towards
 * the end and nobody waits long for the last one. */
static int64_t range_of(const struct loop *loop, int64_t left)
{
    int64_t size = left / 2;
    size = size < loop->grain ? loop->grain : size < loop->max ? size : loop->max;
    return size < left ? size : left;
}

static uint64_t part_of(uint64_t begin, uint64_t end) { return begin << 32 | end; }

/* Takes units of a part, from its front or from its back; false where none is left. */
static bool take_range(const struct loop *loop, _Atomic uint64_t *part, bool front,
                       int64_t *begin, int64_t *end)
{
    uint64_t seen = atomic_load_explicit(part, memory_order_relaxed);
    for (;;) {
        const uint64_t first = seen >> 32, last = seen & UINT32_MAX;
        if (first >= last)
            return false;
        const uint64_t range =
            (uint64_t)(range_of(loop, (int64_t)(last - first) * loop->unit) / loop->unit);
        const uint64_t size = range > 0 ? range : 1;
        *begin = (int64_t)(front ? first : last - size);
        *end = (int64_t)(front ? first + size : last);
        const uint64_t left =
            front ? part_of(first + size, last) : part_of(first, last - size);
        if (atomic_compare_exchange_weak_explicit(part, &seen, left, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void run_chunks(struct attn_threads *t, int32_t worker)
{
    const struct loop loop = t->loop;
    int64_t begin, end;
    for (int32_t i = 0; i < loop.workers; i++) {
        const int32_t of = (worker + i) % loop.workers;
        while (take_range(&loop, &t->workers[of].part, i == 0, &begin, &end)) {
            const int64_t last = end * loop.unit;
            loop.fn(loop.arg, begin * loop.unit, last < loop.n ? last : loop.n, worker);
        }
    }
}

/* A part of the units for each worker. */
static void deal(struct attn_threads *t, struct loop *loop)
{
    loop->unit = loop->n / UINT32_MAX + 1;
    const uint64_t units = (uint64_t)((loop->n - 1) / loop->unit + 1);
    const uint64_t workers = (uint64_t)loop->workers;
    for (uint64_t i = 0; i < workers; i++)
        atomic_store_explicit(&t->workers[i].part,
                              part_of(units * i / workers, units * (i + 1) / workers),
                              memory_order_relaxed);
}

static void run_inline(const struct loop *loop)
{
    bool before = inside;
    inside = true;
    for (int64_t begin = 0; begin < loop->n;) {
        int64_t left = loop->n - begin;
        int64_t end = begin + (left < loop->max ? left : loop->max);
        loop->fn(loop->arg, begin, end, 0);
        begin = end;
    }
    inside = before;
}

/* ---- workers ---- */
static bool join_gate(struct attn_threads *t)
{
    uint32_t gate = atomic_load_explicit(&t->gate, memory_order_relaxed);
    while ((gate & GATE_OPEN) != 0)
        if (atomic_compare_exchange_weak_explicit(
                &t->gate, &gate, gate + 1, memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static void leave_gate(struct attn_threads *t)
{
    uint32_t before = atomic_fetch_sub(&t->gate, 1);
    if (before == 1 && atomic_load(&t->caller_sleeps) != 0) /* closed, and the last one */
        futex_wake(&t->gate, 1);
}

/* Returns when `signal` is no longer `seen`. */
static uint32_t wait_signal(struct attn_threads *t, uint32_t seen)
{
    uint32_t value = spin(&t->signal, seen, t->spin_ns);
    while (value == seen) {
        atomic_fetch_add(&t->sleepers, 1);
        futex_wait(&t->signal, seen);
        atomic_fetch_sub(&t->sleepers, 1);
        value = atomic_load(&t->signal);
    }
    return value;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct attn_threads *t = worker->threads;
    uint32_t seen = 0; /* a loop opened before this thread ran is joined at once */
    inside = true;
    for (;;) {
        seen = wait_signal(t, seen);
        if (atomic_load(&t->stop) != 0)
            return NULL;
        if (join_gate(t)) {
            attn_poll_enter(t->loop.control);
            run_chunks(t, worker->index);
            attn_poll_enter(NULL);
            leave_gate(t);
        }
    }
}

/* Signals that a thread raises by what it does, such as reading a mapped file that shrank:
 * blocked ones would end the process past its handlers. */
static const int faults[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS };

/* Threads get no signals from others: those belong to the host's. One that cannot be made
 * is done without. */
static void start_workers(struct attn_threads *t)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    t->n_started = 1;
    atomic_store(&t->owner, getpid());
    if (pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t i = 1; i < t->count; i++) {
        struct worker *worker = &t->workers[i];
        worker->threads = t;
        worker->index = i;
        if (pthread_create(&worker->thread, &attributes, worker_main, worker) != 0)
            break;
        t->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* ---- the loop ---- */
static void wait_workers(struct attn_threads *t)
{
    uint32_t gate = atomic_fetch_and(&t->gate, ~GATE_OPEN) & ~GATE_OPEN;
    int64_t start = gate != 0 ? now_ns() : 0;
    while (gate != 0) {
        int64_t left = t->spin_ns - (now_ns() - start);
        if (left > 0) {
            gate = spin(&t->gate, gate, left);
            continue;
        }
        atomic_store(&t->caller_sleeps, 1);
        gate = atomic_load(&t->gate);
        if (gate != 0)
            futex_wait(&t->gate, gate);
        atomic_store(&t->caller_sleeps, 0);
        gate = atomic_load(&t->gate);
    }
}

static void run_shared(struct attn_threads *t, struct loop *loop)
{
    deal(t, loop);
    t->loop = *loop;
    atomic_store(&t->gate, GATE_OPEN);
    atomic_fetch_add(&t->signal, 1);
    uint32_t sleepers = atomic_load(&t->sleepers);
    if (sleepers > 0) {
        int64_t wanted = (loop->n - 1) / loop->grain;
        futex_wake(&t->signal, wanted < sleepers ? (int)wanted : INT_MAX);
    }
    inside = true;
    run_chunks(t, 0);
    inside = false;
    wait_workers(t);
}

/* The host's threads do not know that they are inside a task. */
static void external_task(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const struct loop *loop = arg;
    bool before = inside;
    struct attn_meter polled = attn_poll_enter(loop->control);
    inside = true;
    loop->fn(loop->arg, begin, end, worker);
    inside = before;
    attn_poll_leave(polled);
}

/* A forked child has none of its parent's threads, and `busy` may be held for ever. */
static bool is_forked(const struct attn_threads *t)
{
    pid_t owner = atomic_load_explicit(&t->owner, memory_order_relaxed);
    return owner != 0 && owner != getpid();
}

void attn_parallel_for(struct attn_threads *threads, int64_t n, int64_t grain,
                       int64_t max, attnrun_task_fn fn, void *arg)
{
    struct loop loop = { .fn = fn,
                         .arg = arg,
                         .n = n,
                         .grain = grain > 0 ? grain : 1,
                         .workers = threads->count,
                         .control = attn_meter.control };
    loop.max = max > loop.grain ? max : loop.grain;
    if (n <= 0)
        return;
    uint32_t idle = 0;
    if (n <= loop.grain || threads->count == 1 || inside || is_forked(threads) ||
        !atomic_compare_exchange_strong(&threads->busy, &idle, 1)) {
        run_inline(&loop);
        return;
    }
    if (threads->external) {
        threads->pool.parallel_for(threads->pool.user, n,
                                   range_of(&loop, n / loop.workers / 2 + 1),
                                   external_task, &loop);
    } else {
        if (threads->n_started == 0)
            start_workers(threads);
        if (threads->n_started == 1)
            run_inline(&loop);
        else
            run_shared(threads, &loop);
    }
    atomic_store(&threads->busy, 0);
}

/* ---- life ---- */
int32_t attn_threads_available(void) { return attn_host_cpus(); }

int32_t attn_threads_count(const struct attn_threads *threads) { return threads->count; }

struct attn_threads *attn_threads_create(struct attn_memory *memory, int32_t count,
                                         const attnrun_pool *pool)
{
    if (pool != NULL)
        count = pool->max_workers;
    count = count < 1 ? 1 : count > MAX_THREADS && pool == NULL ? MAX_THREADS : count;
    size_t workers_bytes = pool == NULL ? (size_t)count * sizeof(struct worker) : 0;
    int64_t bytes = (int64_t)(sizeof(struct attn_threads) + workers_bytes);
    struct attn_threads *threads = attn_alloc_zeroed(memory, ATTN_MEM_MODEL, bytes);
    if (threads == NULL)
        return NULL;
    threads->memory = memory;
    threads->bytes = bytes;
    threads->count = count;
    threads->workers = (struct worker *)(threads + 1);
    /* With more workers than CPUs one that spins keeps another one from working. */
    threads->spin_ns = count <= attn_threads_available() ? SPIN_NS : 0;
    if (pool != NULL) {
        threads->external = true;
        threads->pool = *pool;
    }
    return threads;
}

void attn_threads_destroy(struct attn_threads *threads)
{
    if (threads == NULL)
        return;
    if (threads->n_started > 1 && !is_forked(threads)) {
        atomic_store(&threads->stop, 1);
        atomic_fetch_add(&threads->signal, 1);
        futex_wake(&threads->signal, INT_MAX);
        for (int32_t i = 1; i < threads->n_started; i++)
            pthread_join(threads->workers[i].thread, NULL);
    }
    attn_free(threads->memory, ATTN_MEM_MODEL, threads, threads->bytes);
}

/* test_threads.c - every task is done once by one worker at a time, for many sizes,
 * grains and thread counts; nested loops, several callers, fork, the host's pool, threads that
 * cannot be created. */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc.h"
#include "host.h"
#include "threads.h"

enum { MAX_TASKS = 5000, MAX_WORKERS = 16 };

static struct attn_memory *memory;

struct record {
    _Atomic int32_t done[MAX_TASKS];
    _Atomic int32_t active[MAX_WORKERS]; /* calls running under this worker number */
    _Atomic int32_t wrong;
    int64_t n, max;
    int32_t count;
};

static void mark(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct record *r = arg;
    if (begin < 0 || end > r->n || begin >= end || end - begin > r->max || worker < 0 ||
        worker >= r->count) {
        atomic_fetch_add(&r->wrong, 1);
        return;
    }
    if (atomic_fetch_add(&r->active[worker], 1) != 0)
        atomic_fetch_add(&r->wrong, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&r->done[i], 1);
    atomic_fetch_sub(&r->active[worker], 1);
}

static void check_ranges(struct attn_threads *threads, int64_t n, int64_t grain,
                         int64_t max)
{
    static struct record r;
    memset(&r, 0, sizeof r);
    r.n = n;
    r.max = max > grain ? max : grain > 0 ? grain : 1;
    r.count = attn_threads_count(threads);
    attn_parallel_for(threads, n, grain, max, mark, &r);
    bool good = r.wrong == 0;
    for (int64_t i = 0; i < n; i++)
        good = good && r.done[i] == 1;
    if (!good)
        fail_msg("n %jd, grain %jd to %jd, %d threads: %d wrong calls", (intmax_t)n,
                 (intmax_t)grain, (intmax_t)max, r.count, r.wrong);
}

static void check_loop(struct attn_threads *threads, int64_t n, int64_t grain)
{
    check_ranges(threads, n, grain, 1);
    check_ranges(threads, n, grain, grain < 1000 ? 3 * grain : grain);
    check_ranges(threads, n, grain, INT64_MAX);
}

static void test_loops_cover_every_task_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 2, 3, 7, 64, 1000, MAX_TASKS };
    static const int64_t grains[] = { -1, 0, 1, 2, 3, 63, 64, 65, 4999, 5000, INT64_MAX };
    for (int32_t count = 1; count <= 8; count++) {
        struct attn_threads *threads = attn_threads_create(memory, count, NULL);
        assert_int_equal(attn_threads_count(threads), count);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t k = 0; k < sizeof grains / sizeof *grains; k++)
                check_loop(threads, sizes[i], grains[k]);
        attn_threads_destroy(threads);
    }
}

/* The lowest task that each worker began with, of its own part. */
struct parts {
    int64_t n;
    int32_t count;
    _Atomic int64_t first[MAX_WORKERS], sum;
};

static void note_part(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct parts *p = arg;
    const int64_t part = p->n * worker / p->count, next = p->n * (worker + 1) / p->count;
    if (begin >= part && begin < next && begin < p->first[worker])
        p->first[worker] = begin; /* of this worker alone */
    atomic_fetch_add(&p->sum, end - begin);
}

/* Others take from the end of a part: who takes any range of its own has its first task. */
static void test_worker_begins_with_its_part(void **state)
{
    (void)state;
    for (int32_t count = 2; count <= 8; count++) {
        struct attn_threads *threads = attn_threads_create(memory, count, NULL);
        for (int64_t n = 2; n < 400; n += 7) {
            struct parts p = { .n = n, .count = count };
            for (int32_t i = 0; i < count; i++)
                p.first[i] = INT64_MAX;
            attn_parallel_for(threads, n, 1, 3, note_part, &p);
            assert_int_equal(p.sum, n);
            for (int32_t i = 0; i < count; i++)
                if (p.first[i] != INT64_MAX && p.first[i] != n * i / count)
                    fail_msg("worker %d of %d began with task %jd of %jd", i, count,
                             (intmax_t)p.first[i], (intmax_t)n);
        }
        attn_threads_destroy(threads);
    }
}

/* Parts are counted in 32 bits, in units of several tasks. */
static void test_tasks_are_more_than_32_bits_count(void **state)
{
    (void)state;
    static const int64_t sizes[] = { UINT32_MAX - INT64_C(1), UINT32_MAX,
                                     UINT32_MAX + INT64_C(1), INT64_C(1) << 40 };
    struct attn_threads *threads = attn_threads_create(memory, 3, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct parts p = { .n = sizes[i], .count = 3 };
        attn_parallel_for(threads, sizes[i], sizes[i] / 1000, INT64_MAX, note_part, &p);
        assert_int_equal(p.sum, sizes[i]);
    }
    attn_threads_destroy(threads);
}

/* Loops of random sizes one after another, with and without time to fall asleep between.
 */
static void test_loops_follow_each_other(void **state)
{
    (void)state;
    struct attn_threads *threads = attn_threads_create(memory, 3, NULL);
    uint64_t seed = 9;
    for (int spin = 0; spin < 3000; spin++) {
        check_loop(threads, random_below(&seed, 40), 1 + random_below(&seed, 4));
        if (spin % 500 == 0)
            usleep(2000);
    }
    attn_threads_destroy(threads);
}

/* The linker puts this in the place of pthread_create(): --wrap. */
static _Atomic int creations_left = INT32_MAX;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg)
{
    if (atomic_fetch_sub(&creations_left, 1) <= 0)
        return EAGAIN;
    return __real_pthread_create(thread, attributes, start, arg);
}

/* With 0 to all of its threads a pool does every task once, and ends. */
static void test_threads_that_cannot_be_created(void **state)
{
    (void)state;
    for (int created = 0; created <= 8; created++) {
        struct attn_threads *threads = attn_threads_create(memory, 8, NULL);
        assert_non_null(threads);
        atomic_store(&creations_left, created);
        check_loop(threads, MAX_TASKS, 1);
        assert_true(atomic_load(&creations_left) < created || created == 0);
        check_loop(threads, 7, 1);
        attn_threads_destroy(threads);
    }
    atomic_store(&creations_left, INT32_MAX);
}

static void test_unused_pool_starts_nothing(void **state)
{
    (void)state;
    attn_threads_destroy(attn_threads_create(memory, 4, NULL));
    attn_threads_destroy(NULL);
    assert_true(attn_threads_available() >= 1);
    assert_true(attn_host_memory() > INT64_C(1) << 20);
}

struct nested {
    struct attn_threads *threads;
    _Atomic int64_t total;
    _Atomic int32_t wrong_worker;
};

static void inner_task(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct nested *nested = arg;
    if (worker != 0)
        atomic_fetch_add(&nested->wrong_worker, 1);
    atomic_fetch_add(&nested->total, end - begin);
}

static void outer_task(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    struct nested *nested = arg;
    for (; begin < end; begin++)
        attn_parallel_for(nested->threads, 10, 3, 0, inner_task, nested);
}

static void test_nested_loops_run_inline(void **state)
{
    (void)state;
    struct nested nested = { .threads = attn_threads_create(memory, 3, NULL) };
    for (int spin = 0; spin < 200; spin++)
        attn_parallel_for(nested.threads, 20, 1, 0, outer_task, &nested);
    assert_int_equal(nested.total, 200 * 20 * 10);
    assert_int_equal(nested.wrong_worker, 0);
    attn_threads_destroy(nested.threads);
}

static void add_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (; begin < end; begin++)
        atomic_fetch_add((_Atomic int64_t *)arg, begin);
}

static void *call_loops(void *arg)
{
    int64_t wrong = 0;
    for (int spin = 0; spin < 2000; spin++) {
        _Atomic int64_t sum = 0;
        attn_parallel_for(arg, 100, 7, 0, add_range, (void *)&sum);
        wrong += sum != 4950;
    }
    return (void *)(intptr_t)wrong;
}

static void test_three_callers_share_a_pool(void **state)
{
    (void)state;
    struct attn_threads *threads = attn_threads_create(memory, 3, NULL);
    pthread_t callers[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_loops, threads), 0);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(callers[i], &wrong);
        assert_null(wrong);
    }
    attn_threads_destroy(threads);
}

/* Plain memory written by workers is there when the loop returns, and the other way
 * round. */
static void double_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (; begin < end; begin++)
        ((int64_t *)arg)[begin] *= 2;
}

static void test_loops_order_memory(void **state)
{
    (void)state;
    static int64_t numbers[300];
    struct attn_threads *threads = attn_threads_create(memory, 4, NULL);
    for (int spin = 0; spin < 1000; spin++) {
        for (int i = 0; i < 300; i++)
            numbers[i] = i + spin;
        attn_parallel_for(threads, 300, 10, 0, double_range, numbers);
        for (int i = 0; i < 300; i++)
            assert_int_equal(numbers[i], 2 * (i + spin));
    }
    attn_threads_destroy(threads);
}

static void test_forked_child_goes_on_alone(void **state)
{
    (void)state;
    struct attn_threads *threads = attn_threads_create(memory, 3, NULL);
    _Atomic int64_t sum = 0;
    int status = 0;
    attn_parallel_for(threads, 100, 1, 0, add_range, (void *)&sum);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        sum = 0;
        attn_parallel_for(threads, 100, 1, 0, add_range, (void *)&sum);
        attn_threads_destroy(threads);
        _exit(sum == 4950 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    attn_parallel_for(threads, 100, 1, 0, add_range, (void *)&sum);
    assert_int_equal(sum, 2 * 4950);
    attn_threads_destroy(threads);
}

/* A host's pool that does everything on two threads of its own making. */
struct host_call {
    attnrun_task_fn fn;
    void *arg;
    int64_t begin, end, grain;
    int32_t worker;
};

static void *host_thread(void *arg)
{
    struct host_call *c = arg;
    for (int64_t begin = c->begin; begin < c->end; begin += c->grain) {
        int64_t left = c->end - begin;
        c->fn(c->arg, begin, begin + (left < c->grain ? left : c->grain), c->worker);
    }
    return NULL;
}

static void host_parallel_for(void *user, int64_t n, int64_t grain, attnrun_task_fn fn,
                              void *arg)
{
    struct host_call first = { fn, arg, 0, n / 2, grain, 0 };
    struct host_call second = { fn, arg, n / 2, n, grain, 1 };
    pthread_t thread;
    ++*(int *)user;
    if (pthread_create(&thread, NULL, host_thread, &second) != 0)
        return;
    host_thread(&first);
    pthread_join(thread, NULL);
}

static void test_host_pool_is_used(void **state)
{
    (void)state;
    int calls = 0;
    const attnrun_pool pool = { sizeof pool, 2, &calls, host_parallel_for };
    struct attn_threads *threads = attn_threads_create(memory, 5, &pool);
    assert_int_equal(attn_threads_count(threads), 2);
    for (int64_t n = 2; n < 100; n++)
        check_loop(threads, n, 1);
    assert_int_equal(calls, 3 * 98);
    struct nested nested = { .threads = threads };
    attn_parallel_for(threads, 20, 1, 0, outer_task, &nested);
    assert_int_equal(nested.total, 200);
    assert_int_equal(nested.wrong_worker, 0);
    assert_int_equal(calls, 3 * 98 + 1);
    attn_threads_destroy(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loops_cover_every_task_once),
        cmocka_unit_test(test_worker_begins_with_its_part),
        cmocka_unit_test(test_tasks_are_more_than_32_bits_count),
        cmocka_unit_test(test_loops_follow_each_other),
        cmocka_unit_test(test_threads_that_cannot_be_created),
        cmocka_unit_test(test_unused_pool_starts_nothing),
        cmocka_unit_test(test_nested_loops_run_inline),
        cmocka_unit_test(test_three_callers_share_a_pool),
        cmocka_unit_test(test_loops_order_memory),
        cmocka_unit_test(test_forked_child_goes_on_alone),
        cmocka_unit_test(test_host_pool_is_used),
    };
    memory = attn_memory_create(NULL, 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    attn_memory_destroy(memory);
    return failed;
}

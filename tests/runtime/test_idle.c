/* test_idle.c - threads cost nothing while nothing runs: no CPU time between runs, an end
 * of spinning, small steps done by the caller alone, and scratch that a worker finds again. */
#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "range.h"

/* ---- an operator of given tasks, which notes who did them ---- */

enum { SPIN_TASK_NS = 200000, MARK = 12345 };

static struct {
    int64_t n_tasks, task_cost;
    _Atomic int64_t calls, tasks, by_others;
    _Atomic int64_t resumed, lost; /* ranges behind another one; those without its mark */
    pthread_t caller;
} work_done;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static attnrun_status noted_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->phases[0] = (attnrun_phase){ work_done.n_tasks, work_done.task_cost };
    step->scratch_bytes = sizeof(int64_t);
    return ATTNRUN_OK;
}

static attnrun_status noted_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t *const mark = work->scratch;
    if (attn_work_resumes(work)) {
        atomic_fetch_add(&work_done.resumed, 1);
        atomic_fetch_add(&work_done.lost, *mark != MARK + work->worker);
    }
    *mark = MARK + work->worker;
    atomic_fetch_add(&work_done.calls, 1);
    atomic_fetch_add(&work_done.tasks, work->end - work->begin);
    if (!pthread_equal(pthread_self(), work_done.caller) || work->worker != 0)
        atomic_fetch_add(&work_done.by_others, 1);
    if (work->begin == 0)
        memcpy(step->y[0].data, step->x[0].data,
               (size_t)attnrun_tensor_bytes(&step->x[0]));
    int64_t end = now_ns() + (work->end - work->begin) * work_done.task_cost;
    while (work_done.task_cost >= SPIN_TASK_NS && now_ns() < end) {
    }
    return ATTNRUN_OK;
}

static const attnrun_op_def noted = { .struct_size = sizeof noted,
                                      .domain = "test",
                                      .name = "Noted",
                                      .since = 1,
                                      .inputs = "x:T",
                                      .outputs = "y:T",
                                      .types = "T=f32",
                                      .infer = noted_infer,
                                      .run = noted_run };

/* ---- a model of that operator ---- */

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    float x[4];
};

static void start(struct bench *bench, int32_t threads, int64_t n_tasks,
                  int64_t task_cost)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, threads);
    OK(attnrun_register_op(bench->runtime, &noted));
    work_done.n_tasks = n_tasks;
    work_done.task_cost = task_cost;
    work_done.calls = work_done.tasks = work_done.by_others = 0;
    work_done.resumed = work_done.lost = 0;
    work_done.caller = pthread_self();
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_node(w, "test::Noted", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    bench->model = open_model(bench->runtime, w, 0);
    bench->context = make_context(bench->model);
    set_input(bench->context, 0, ATTNRUN_F32, "4", bench->x);
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static int count_threads(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void test_idle_context_takes_no_cpu(void **state)
{
    (void)state;
    struct bench bench = { .runtime = NULL };
    start(&bench, 4, 16, SPIN_TASK_NS);
    for (int turn = 0; turn < 5; turn++)
        OK(attnrun_run(bench.context, NULL));
    usleep(50000); /* the test below is about these */
    double before = cpu_seconds();
    sleep(2);
    double share = (cpu_seconds() - before) / 2;
    print_message("idle: %.4f %% of a CPU\n", share * 100);
    assert_true(share < 0.001);
    stop(&bench);
}

/* Workers spin for 50 us: 10 ms later they are asleep, also on a busy machine. */
static void test_workers_stop_spinning(void **state)
{
    (void)state;
    enum { TURNS = 25 };
    struct bench bench = { .runtime = NULL };
    start(&bench, 2, 16, SPIN_TASK_NS);
    double spent = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        OK(attnrun_run(bench.context, NULL));
        usleep(10000);
        double before = cpu_seconds();
        usleep(20000);
        spent += (cpu_seconds() - before) / TURNS;
    }
    print_message("10 ms after a run: %.0f us of CPU time in 20 ms\n", spent * 1e6);
    assert_true(spent < 0.0005);
    stop(&bench);
}

static void test_small_steps_are_done_by_the_caller(void **state)
{
    (void)state;
    static const struct {
        int64_t n_tasks, task_cost;
    } cases[] = { { 1, 0 }, { 1, 1000000 }, { 8, 100 }, { 1000, 0 }, { 10, 1000 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench bench = { .runtime = NULL };
        int before = count_threads();
        start(&bench, 4, cases[i].n_tasks, cases[i].task_cost);
        OK(attnrun_run(bench.context, NULL));
        assert_int_equal(work_done.calls, 1);
        assert_int_equal(work_done.tasks, cases[i].n_tasks);
        assert_int_equal(work_done.by_others, 0);
        assert_int_equal(count_threads(), before); /* no worker was started */
        stop(&bench);
    }
}

/* Ranges of about 10 us: 4,000 tasks of 100 ns are not 4,000 calls. */
static void test_ranges_of_cheap_tasks_are_long(void **state)
{
    (void)state;
    struct bench bench = { .runtime = NULL };
    start(&bench, 2, 4000, 100);
    OK(attnrun_run(bench.context, NULL));
    assert_int_equal(work_done.tasks, 4000);
    assert_true(work_done.calls > 1 && work_done.calls <= 40);
    stop(&bench);
}

static void test_large_steps_are_shared(void **state)
{
    (void)state;
    struct bench bench = { .runtime = NULL };
    start(&bench, 2, 16, SPIN_TASK_NS);
    for (int turn = 0; turn < 200 && work_done.by_others == 0; turn++)
        OK(attnrun_run(bench.context, NULL));
    assert_true(work_done.by_others > 0);
    stop(&bench);
}

/* A part of 64 tasks for each worker is 6 ranges or more, so some worker resumes. */
static void test_worker_finds_its_scratch_again(void **state)
{
    (void)state;
    for (int32_t threads = 2; threads <= 4; threads++) {
        struct bench bench = { .runtime = NULL };
        start(&bench, threads, 64 * threads, 5000);
        for (int run = 1; run <= 20; run++) {
            OK(attnrun_run(bench.context, NULL));
            assert_int_equal(work_done.tasks, run * 64 * threads);
            assert_true(work_done.calls - work_done.resumed <= run * threads);
        }
        assert_true(work_done.resumed > 0);
        assert_int_equal(work_done.lost, 0);
        stop(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_context_takes_no_cpu),
        cmocka_unit_test(test_workers_stop_spinning),
        cmocka_unit_test(test_small_steps_are_done_by_the_caller),
        cmocka_unit_test(test_ranges_of_cheap_tasks_are_long),
        cmocka_unit_test(test_large_steps_are_shared),
        cmocka_unit_test(test_worker_finds_its_scratch_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_cancel.c - runs that are stopped: by another thread, by a step of their own, by
 * the deadline; the context goes on afterwards. */
#include "harness.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "poll.h"
#include "sample_models.h"

enum { LENGTH = 1 << 20, STEPS = 400, MANY_STEPS = 8000 /* many seconds of work */ };
static float x[LENGTH];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
};

static void start(struct bench *bench, struct onnx_writer *w, int32_t threads)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, threads);
    bench->model = open_model(bench->runtime, w, ATTNRUN_NO_FUSION);
    bench->context = make_context(bench->model);
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static void set_vector(struct bench *bench, int64_t n)
{
    char dims[16];
    snprintf(dims, sizeof dims, "%d", (int)n);
    set_input(bench->context, 0, ATTNRUN_F32, dims, x);
}

struct stopper {
    pthread_t thread;
    attnrun_context *context;
    const int32_t *begun; /* NULL, or 0 until an operator runs */
    useconds_t wait_us;
    double at_ms;
    int32_t ended; /* 1 once the run has returned */
};

static void *cancel_later(void *arg)
{
    struct stopper *stopper = arg;
    while (stopper->begun != NULL &&
           __atomic_load_n(stopper->begun, __ATOMIC_ACQUIRE) == 0)
        usleep(100);
    usleep(stopper->wait_us);
    stopper->at_ms = now_ms();
    do { /* on a busy machine the run begins later, and a cancel before it stops none */
        attnrun_cancel(stopper->context);
        usleep(1000);
    } while (__atomic_load_n(&stopper->ended, __ATOMIC_ACQUIRE) == 0);
    return NULL;
}

/* How long the run goes on after it is cancelled, wait_us after this call, or after an operator
 * of the run has set *begun. */
static double cancel_after(struct bench *bench, const int32_t *begun, useconds_t wait_us)
{
    struct stopper stopper = { .context = bench->context,
                               .begun = begun,
                               .wait_us = wait_us };
    assert_int_equal(pthread_create(&stopper.thread, NULL, cancel_later, &stopper), 0);
    attnrun_status status = attnrun_run(bench->context, NULL);
    double end = now_ms();
    __atomic_store_n(&stopper.ended, 1, __ATOMIC_RELEASE);
    pthread_join(stopper.thread, NULL);
    assert_int_equal(status, ATTNRUN_E_CANCELLED);
    assert_string_equal(attnrun_last_error()->message,
                        "CANCELLED: the run was cancelled");
    return end - stopper.at_ms;
}

static void test_cancel_stops_a_run(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= 2; threads++) {
        struct bench bench;
        start(&bench, write_long_chain(MANY_STEPS), threads);
        double min = 1e9;
        for (int turn = 0; turn < 5; turn++) {
            set_vector(&bench, LENGTH);
            double ms = cancel_after(&bench, NULL, 20000 + 7000 * (useconds_t)turn);
            min = ms < min ? ms : min;
            set_vector(&bench, 100); /* nothing is left of the cancellation */
            OK(attnrun_run(bench.context, NULL));
        }
        print_message("%d threads: stopped %.2f ms after the call\n", (int)threads, min);
        stop(&bench);
    }
}

/* A cancel that comes when the run has ended already, or before one begins. */
static void test_cancel_between_runs_stops_none(void **state)
{
    (void)state;
    struct bench bench;
    start(&bench, write_long_chain(2), 1);
    set_vector(&bench, 10);
    for (int turn = 0; turn < 3; turn++) {
        attnrun_cancel(bench.context);
        OK(attnrun_run(bench.context, NULL));
    }
    attnrun_cancel(NULL);
    stop(&bench);
}

static void cancel_here(void *user, int32_t node_index, const char *name,
                        const char *op_type, double microseconds)
{
    (void)node_index, (void)name, (void)op_type, (void)microseconds;
    attnrun_cancel(user);
}

static void test_cancel_during_a_run_stops_this_one_alone(void **state)
{
    (void)state;
    struct bench bench;
    start(&bench, write_long_chain(2), 1);
    set_vector(&bench, 10);
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_step = cancel_here,
                                    .on_step_user = bench.context };
    for (int turn = 0; turn < 3; turn++) {
        FAILS(ATTNRUN_E_CANCELLED, "cancelled", attnrun_run(bench.context, &options));
        OK(attnrun_run(bench.context, NULL));
    }
    options = (attnrun_run_options){ .struct_size = sizeof options, .timeout_us = -1 };
    FAILS(ATTNRUN_E_USAGE, "the timeout is -1", attnrun_run(bench.context, &options));
    stop(&bench);
}

static void test_timeout_stops_a_run(void **state)
{
    (void)state;
    attnrun_run_options options = { .struct_size = sizeof options, .timeout_us = 20000 };
    for (int32_t threads = 1; threads <= 2; threads++) {
        struct bench bench;
        start(&bench, write_long_chain(MANY_STEPS), threads);
        set_vector(&bench, LENGTH);
        double begin = now_ms();
        FAILS(ATTNRUN_E_TIME, "time limit", attnrun_run(bench.context, &options));
        print_message("%d threads: timeout of 20 ms came after %.1f ms\n", (int)threads,
                      now_ms() - begin);
        set_vector(&bench, 100);
        OK(attnrun_run(bench.context, NULL));
        options.timeout_us = INT64_MAX;
        OK(attnrun_run(bench.context, &options));
        options.timeout_us = 20000;
        stop(&bench);
    }
}

/* Loops of many short trips look at the flag too. */
static void test_cancel_and_timeout_stop_loops(void **state)
{
    (void)state;
    struct bench bench;
    int64_t trips = 3000000;
    float v[2] = { 0, 0 };
    attnrun_run_options options = { .struct_size = sizeof options, .timeout_us = 20000 };
    start(&bench, write_loop(), 1);
    set_input(bench.context, 0, ATTNRUN_I64, "", &trips);
    set_input(bench.context, 1, ATTNRUN_F32, "2", v);
    cancel_after(&bench, NULL, 20000);
    FAILS(ATTNRUN_E_TIME, "time limit", attnrun_run(bench.context, &options));
    trips = 3;
    OK(attnrun_run(bench.context, NULL));
    attnrun_tensor all = get_output(bench.context, 1);
    assert_int_equal(all.dims[0], 3);
    stop(&bench);
}

/* ---- operators that return because of the flag, without a sentence ---- */

static attnrun_status wait_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->phases[0] = (attnrun_phase){ .n_tasks = 8, .task_cost = 4000000 };
    return ATTNRUN_OK;
}

static int32_t waiting; /* 1 once a task runs */

static attnrun_status wait_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)step;
    __atomic_store_n(&waiting, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(work->cancel, __ATOMIC_RELAXED) == 0)
        usleep(100);
    return ATTNRUN_E_CANCELLED;
}

static const attnrun_op_def wait_op = { .struct_size = sizeof wait_op,
                                        .domain = "test",
                                        .name = "Wait",
                                        .since = 1,
                                        .inputs = "x:T",
                                        .outputs = "y:T",
                                        .types = "T=f32",
                                        .infer = wait_infer,
                                        .run = wait_run };

static void test_cancel_is_told_by_operators(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= 4; threads++) {
        struct bench bench;
        test_memory_init(&bench.memory);
        bench.runtime = make_runtime(&bench.memory, threads);
        OK(attnrun_register_op(bench.runtime, &wait_op));
        struct onnx_writer *w = onnx_begin(17);
        onnx_domain(w, "test");
        onnx_input(w, "x", ATTNRUN_F32, "N");
        onnx_node(w, "test::Wait", "x", "y");
        onnx_output(w, "y", ATTNRUN_F32, "N");
        bench.model = open_model(bench.runtime, w, ATTNRUN_NO_FUSION);
        bench.context = make_context(bench.model);
        set_vector(&bench, 4);
        for (int turn = 0; turn < 5; turn++) {
            __atomic_store_n(&waiting, 0, __ATOMIC_RELEASE);
            cancel_after(&bench, &waiting, 2000);
        }
        stop(&bench);
    }
}

/* ---- opening, packing and planning, by a clock that counts ---- */

static int64_t reads, late_from; /* reads of the clock; from which on the time is over */

static int64_t counting_clock(void)
{
    reads++;
    return late_from > 0 && reads >= late_from ? reads * INT64_C(1000000000000) : 1;
}

/* Opens a chain, plans and runs it; the status of the first call that fails. */
static attnrun_status open_plan_run(attnrun_runtime *runtime, struct onnx_writer *w,
                                    const int32_t *flag)
{
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = ATTNRUN_NO_FUSION,
                              .timeout_us = 1000000,
                              .cancel = flag };
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    attnrun_tensor in;
    attnrun_model_need need = { .struct_size = sizeof need };
    int64_t n = 100;
    size_t bytes;
    uint8_t *data = onnx_end(w, &bytes);
    source.data = data;
    source.bytes = bytes;
    attnrun_status status = attnrun_model_open(runtime, &source, &model);
    OK(attnrun_tensor_make(ATTNRUN_F32, 1, &n, x, &in));
    const int64_t before = reads;
    if (status == ATTNRUN_OK) {
        status = attnrun_model_plan(model, &in, &need);
        assert_true(status != ATTNRUN_OK || attn_poll_clock == NULL ||
                    reads > before + 9);
    }
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK) {
        OK(attnrun_set_timeout(context, 1000000));
        status = attnrun_plan(context, &in, NULL);
    }
    if (status == ATTNRUN_OK)
        status = attnrun_set_input(context, 0, &in);
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    free(data);
    return status;
}

/* What is not dense is copied before the steps, and an input that is an output behind them, where
 * it may have been looked through for what is not finite. */
static void test_deadline_ends_copies_of_inputs_and_outputs(void **state)
{
    (void)state;
    enum { ROWS = 1000, COLUMNS = 1500 };
    static float numbers[ROWS * COLUMNS], given[ROWS * COLUMNS];
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,M");
    onnx_node(w, "Identity", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,M");
    struct bench bench;
    start(&bench, w, 1);
    attnrun_context *context = bench.context;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        numbers[i] = (float)i;
    attnrun_tensor in = tensor_of(ATTNRUN_F32, "1500,1000", numbers);
    const attnrun_tensor out = tensor_of(ATTNRUN_F32, "1500,1000", given);
    in.strides[0] = sizeof *numbers;
    in.strides[1] = COLUMNS * (int64_t)sizeof *numbers;
    OK(attnrun_set_input(context, 0, &in));
    OK(attnrun_set_output(context, 0, &out));
    OK(attnrun_set_timeout(context, 1000000));
    OK(attnrun_run(context, NULL)); /* makes the plan */
    attn_poll_clock = counting_clock;
    reads = late_from = 0;
    OK(attnrun_run(context, NULL));
    const int64_t copies = reads;
    assert_true(copies >= (int64_t)sizeof numbers / ATTN_POLL_BYTES);
    const attnrun_run_options options = { .struct_size = sizeof options, .validate = 1 };
    reads = 0;
    OK(attnrun_run(context, &options));
    const int64_t all = reads;
    assert_true(all - copies >= ROWS * COLUMNS / ATTN_POLL_BYTES);
    for (int64_t at = 1; at <= all; at++) {
        reads = 0;
        late_from = at;
        FAILS(ATTNRUN_E_TIME, "time limit", attnrun_run(context, &options));
        assert_true(reads <= at + 1);
    }
    attn_poll_clock = NULL;
    for (int r = 0; r < ROWS; r += 7)
        for (int c = 0; c < COLUMNS; c += 11)
            assert_true(given[c * ROWS + r] == numbers[r * COLUMNS + c]);
    stop(&bench);
}

/* Each comparison reads half of the ids. */
static void test_long_ngrams_poll(void **state)
{
    (void)state;
    enum { IDS = 2000, NGRAM = IDS / 2 };
    static int64_t ids[IDS];
    static float numbers[2];
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "com.microsoft");
    onnx_input(w, "ids", ATTNRUN_I64, "1,N");
    onnx_input(w, "scores", ATTNRUN_F32, "1,2");
    onnx_node(w, "com.microsoft::NGramRepeatBlock", "ids,scores", "y");
    onnx_attr_int(w, "ngram_size", NGRAM);
    onnx_output(w, "y", ATTNRUN_F32, "1,2");
    struct bench bench;
    start(&bench, w, 1);
    const attnrun_tensor in[] = { tensor_of(ATTNRUN_I64, "1,2000", ids),
                                  tensor_of(ATTNRUN_F32, "1,2", numbers) };
    for (int i = 0; i < 2; i++)
        OK(attnrun_set_input(bench.context, i, &in[i]));
    OK(attnrun_set_timeout(bench.context, 1000000));
    attn_poll_clock = counting_clock;
    reads = late_from = 0;
    OK(attnrun_run(bench.context, NULL));
    attn_poll_clock = NULL;
    assert_true(reads > (IDS - NGRAM) * NGRAM * (int64_t)sizeof *ids / ATTN_POLL_BYTES);
    stop(&bench);
}

/* The deadline at every read of the clock: each time the call fails, and reads no more. */
static void test_deadline_ends_opening_and_planning(void **state)
{
    (void)state;
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attn_poll_clock = counting_clock;
    reads = late_from = 0;
    OK(open_plan_run(runtime, write_long_chain(STEPS), NULL));
    int64_t all = reads;
    print_message("%d reads of the clock\n", (int)all);
    assert_true(all > 50);
    for (int64_t at = 1; at <= all; at += at < 20 ? 1 : 7) {
        reads = 0;
        late_from = at;
        FAILS(ATTNRUN_E_TIME, "time limit",
              open_plan_run(runtime, write_long_chain(STEPS), NULL));
        assert_true(reads <= at + 1);
    }
    attn_poll_clock = NULL;
    int32_t flag = 1;
    FAILS(ATTNRUN_E_CANCELLED, "cancelled",
          open_plan_run(runtime, write_long_chain(STEPS), &flag));
    flag = 0;
    OK(open_plan_run(runtime, write_long_chain(STEPS), &flag));
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* A table of keys is not made to its end, with an error at each poll, after the deadline. */
static void test_deadline_ends_a_table_of_keys(void **state)
{
    (void)state;
    enum { KEYS = 100000 };
    static char text[KEYS][8];
    static const char *words[KEYS];
    for (int i = 0; i < KEYS; i++) {
        snprintf(text[i], sizeof text[i], "%d", i);
        words[i] = text[i];
    }
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "ai.onnx.ml");
    onnx_input(w, "x", ATTNRUN_STRING, "N");
    onnx_node(w, "ai.onnx.ml::LabelEncoder", "x", "y");
    onnx_attr_strings(w, "classes_strings", KEYS, words);
    onnx_output(w, "y", ATTNRUN_I64, "N");
    size_t bytes;
    uint8_t *data = onnx_end(w, &bytes);
    const attnrun_source source = {
        .struct_size = sizeof source, .data = data, .bytes = bytes, .timeout_us = 1000000
    };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model;
    OK(attnrun_model_open(runtime, &source, &model));
    attn_poll_clock = counting_clock;
    attnrun_status status = ATTNRUN_E_TIME;
    int64_t stopped = -1;
    for (late_from = 2; status == ATTNRUN_E_TIME; late_from++, stopped++) {
        const uint64_t errors = attn_error_count();
        reads = 0;
        status = attnrun_model_pack(model);
        assert_true(attn_error_count() - errors < 10);
    }
    OK(status);
    attn_poll_clock = NULL;
    assert_true(stopped >= KEYS * INT64_C(64) / ATTN_POLL_BYTES);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    free(data);
}

/* ---- on_step ---- */

struct seen {
    int32_t n, last;
    bool wrong;
};

static void note(void *user, int32_t node_index, const char *name, const char *op_type,
                 double microseconds)
{
    struct seen *seen = user;
    seen->wrong = seen->wrong || node_index != seen->last + 1 || name == NULL ||
                  strcmp(op_type, "Sin") != 0 || !(microseconds >= 0);
    seen->last = node_index;
    seen->n++;
}

static void test_on_step_sees_every_step(void **state)
{
    (void)state;
    struct bench bench;
    struct seen seen = { .last = -1 };
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_step = note,
                                    .on_step_user = &seen };
    start(&bench, write_long_chain(7), 2);
    set_vector(&bench, 1000);
    OK(attnrun_run(bench.context, &options));
    assert_int_equal(seen.n, 7);
    assert_false(seen.wrong);
    stop(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_stops_a_run),
        cmocka_unit_test(test_cancel_between_runs_stops_none),
        cmocka_unit_test(test_cancel_during_a_run_stops_this_one_alone),
        cmocka_unit_test(test_timeout_stops_a_run),
        cmocka_unit_test(test_cancel_and_timeout_stop_loops),
        cmocka_unit_test(test_cancel_is_told_by_operators),
        cmocka_unit_test(test_deadline_ends_copies_of_inputs_and_outputs),
        cmocka_unit_test(test_long_ngrams_poll),
        cmocka_unit_test(test_deadline_ends_opening_and_planning),
        cmocka_unit_test(test_deadline_ends_a_table_of_keys),
        cmocka_unit_test(test_on_step_sees_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_concurrent.c - contexts of one model on many threads, contexts made and ended
 * meanwhile, and the same bits for every number of threads. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "sample_models.h"

enum { SHAPES = 6, CALLERS = 4 };
static const int64_t shapes[SHAPES][2] = { { 1, 5 },  { 2, 17 }, { 4, 64 },
                                           { 1, 64 }, { 3, 1 },  { 2, 33 } };

struct answers {
    float hidden[SHAPES][4 * ENCODER_LONGEST * ENCODER_WIDTH], pooled[SHAPES][4 * 16];
};

static void compute(attnrun_context *context, int shape, float *hidden, float *pooled)
{
    struct encoder_inputs inputs;
    uint64_t seed = 99 + (uint64_t)shape;
    int64_t b = shapes[shape][0], s = shapes[shape][1];
    set_encoder_inputs(context, &inputs, &seed, b, s);
    OK(attnrun_run(context, NULL));
    attnrun_tensor h = get_output(context, 0), p = get_output(context, 1);
    assert_int_equal(attnrun_tensor_bytes(&h), b * s * ENCODER_WIDTH * 4);
    assert_int_equal(attnrun_tensor_bytes(&p), b * ENCODER_WIDTH * 4);
    memcpy(hidden, h.data, (size_t)attnrun_tensor_bytes(&h));
    memcpy(pooled, p.data, (size_t)attnrun_tensor_bytes(&p));
}

static void compute_all(attnrun_context *context, struct answers *answers)
{
    memset(answers, 0, sizeof *answers);
    for (int i = 0; i < SHAPES; i++)
        compute(context, i, answers->hidden[i], answers->pooled[i]);
}

/* ---- many callers ---- */

struct caller {
    pthread_t thread;
    attnrun_model *model;
    const struct answers *expected;
    uint64_t seed;
    int64_t turns;
    int wrong; /* cmocka's asserts are for the main thread only */
};

static int one_answer(attnrun_context *context, const struct answers *expected, int shape)
{
    struct encoder_inputs in;
    uint64_t seed = 99 + (uint64_t)shape;
    int64_t b = shapes[shape][0], s = shapes[shape][1], dims[2] = { b, s };
    attnrun_tensor ids, mask, h, p;
    in.b = b;
    for (int64_t i = 0; i < b * s; i++) {
        in.ids[i] = random_below(&seed, ENCODER_WORDS);
        in.mask[i] = i % s == 0 || random_below(&seed, 4) != 0;
    }
    if (attnrun_tensor_make(ATTNRUN_I64, 2, dims, in.ids, &ids) ||
        attnrun_tensor_make(ATTNRUN_I64, 2, dims, in.mask, &mask) ||
        attnrun_set_input(context, 0, &ids) || attnrun_set_input(context, 1, &mask) ||
        attnrun_run(context, NULL) || attnrun_output(context, 0, &h) ||
        attnrun_output(context, 1, &p))
        return 1;
    return memcmp(h.data, expected->hidden[shape], (size_t)attnrun_tensor_bytes(&h)) ||
           memcmp(p.data, expected->pooled[shape], (size_t)attnrun_tensor_bytes(&p));
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    attnrun_context *context = NULL;
    for (int64_t turn = 0; turn < caller->turns; turn++) {
        if (context == NULL && attnrun_context_create(caller->model, &context) != 0) {
            caller->wrong++;
            return NULL;
        }
        caller->wrong += one_answer(context, caller->expected,
                                    (int)random_below(&caller->seed, SHAPES));
        if (random_below(&caller->seed, 5) == 0) {
            attnrun_context_destroy(context);
            context = NULL;
        }
    }
    attnrun_context_destroy(context);
    return NULL;
}

static void run_callers(attnrun_model *model, const struct answers *expected,
                        int64_t turns)
{
    struct caller callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){ .model = model,
                                      .expected = expected,
                                      .seed = (uint64_t)i * 7 + 1,
                                      .turns = turns };
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
}

static struct answers expected, found;

/* The first contexts are made at once too: packing happens under way. */
static void test_concurrent_contexts_agree(void **state)
{
    (void)state;
    struct test_memory memory;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_encoder(2), 0);
    attnrun_context *context = make_context(model);
    compute_all(context, &expected);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        test_memory_init(&memory);
        runtime = make_runtime(&memory, threads);
        model = open_model(runtime, write_encoder(2), 0);
        run_callers(model, &expected, rounds(25, 500));
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
    }
}

/* The model and the runtime live as long as the last context. */
static void test_concurrent_owners_end_in_any_order(void **state)
{
    (void)state;
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 2);
    attnrun_model *model = open_model(runtime, write_encoder(1), 0);
    attnrun_context *context = make_context(model);
    attnrun_runtime_destroy(runtime);
    attnrun_model_release(model);
    static float hidden[4 * ENCODER_LONGEST * ENCODER_WIDTH], pooled[64];
    compute(context, 2, hidden, pooled);
    attnrun_context_destroy(context);
    test_memory_check(&memory);
}

/* ---- many owners of one runtime ---- */

struct owner {
    pthread_t thread;
    attnrun_runtime *runtime;
    const uint8_t *data;
    size_t bytes;
    const struct answers *expected;
    int wrong;
};

static void *open_and_close(void *arg)
{
    struct owner *owner = arg;
    for (int turn = 0; turn < 6; turn++) {
        attnrun_model *model = NULL;
        attnrun_context *context = NULL;
        if (open_bytes(owner->runtime, owner->data, owner->bytes, 0, &model) != 0 ||
            attnrun_context_create(model, &context) != 0)
            owner->wrong++;
        else
            owner->wrong += one_answer(context, owner->expected, turn % SHAPES);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    return NULL;
}

static void test_concurrent_models_of_one_runtime(void **state)
{
    (void)state;
    struct test_memory memory;
    struct owner owners[CALLERS];
    size_t bytes;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 2);
    uint8_t *data = onnx_end(write_encoder(2), &bytes);
    for (int i = 0; i < CALLERS; i++) {
        owners[i] = (struct owner){
            .runtime = runtime, .data = data, .bytes = bytes, .expected = &expected
        };
        assert_int_equal(
            pthread_create(&owners[i].thread, NULL, open_and_close, &owners[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(owners[i].thread, NULL);
        assert_int_equal(owners[i].wrong, 0);
    }
    attnrun_runtime_destroy(runtime);
    free(data);
    test_memory_check(&memory);
}

/* ---- the host's threads ---- */

struct host_part {
    pthread_t thread;
    attnrun_task_fn fn;
    void *arg;
    _Atomic int64_t *next;
    int64_t n, grain;
    int32_t worker;
};

static void *host_work(void *arg)
{
    struct host_part *part = arg;
    for (;;) {
        int64_t begin = atomic_fetch_add(part->next, part->grain);
        if (begin >= part->n)
            return NULL;
        int64_t end = part->n - begin < part->grain ? part->n : begin + part->grain;
        part->fn(part->arg, begin, end, part->worker);
    }
}

static void host_parallel_for(void *user, int64_t n, int64_t grain, attnrun_task_fn fn,
                              void *arg)
{
    _Atomic int64_t next = 0;
    struct host_part parts[3];
    ++*(int *)user;
    for (int32_t i = 0; i < 3; i++) {
        parts[i] = (struct host_part){
            .fn = fn, .arg = arg, .next = &next, .n = n, .grain = grain, .worker = i
        };
        if (i > 0)
            pthread_create(&parts[i].thread, NULL, host_work, &parts[i]);
    }
    host_work(&parts[0]);
    for (int i = 1; i < 3; i++)
        pthread_join(parts[i].thread, NULL);
}

static void test_host_threads_give_the_same_bits(void **state)
{
    (void)state;
    struct test_memory memory;
    int loops = 0;
    attnrun_pool pool = { .struct_size = sizeof pool,
                          .max_workers = 3,
                          .user = &loops,
                          .parallel_for = host_parallel_for };
    test_memory_init(&memory);
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .allocator = &memory.allocator,
                                        .pool = &pool };
    attnrun_runtime *runtime;
    OK(attnrun_runtime_create(&options, &runtime));
    attnrun_model *model = open_model(runtime, write_encoder(2), 0);
    attnrun_context *context = make_context(model);
    compute_all(context, &found);
    assert_memory_equal(&expected, &found, sizeof found);
    assert_true(loops > 0);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* ---- the same bits ---- */

static void test_bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int32_t counts[] = { 1, 2, 3, 8 };
    for (size_t k = 0; k < 4; k++) {
        struct test_memory memory;
        test_memory_init(&memory);
        attnrun_runtime *runtime = make_runtime(&memory, counts[k]);
        attnrun_model *model = open_model(runtime, write_encoder(2), 0);
        attnrun_context *context = make_context(model);
        compute_all(context, k == 0 ? &expected : &found);
        if (k > 0)
            assert_memory_equal(&expected, &found, sizeof found);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
    }
}

/* ---- scratch ---- */

/* An operator of two long tasks whose scratch is looked at again after a while. */
static attnrun_status slow_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->phases[0] = (attnrun_phase){ .n_tasks = 2, .task_cost = 1000000 };
    step->scratch_bytes = 1000;
    return ATTNRUN_OK;
}

static attnrun_status slow_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t t = work->begin; t < work->end; t++) {
        volatile unsigned char *scratch = work->scratch;
        for (int i = 0; i < 1000; i++)
            scratch[i] = (unsigned char)(t + 1);
        usleep(300);
        for (int i = 0; i < 1000; i++)
            if (scratch[i] != (unsigned char)(t + 1))
                return attnrun_step_fail(step, ATTNRUN_E_INTERNAL, "scratch is shared");
        ((float *)step->y[0].data)[t] = (float)t;
    }
    return ATTNRUN_OK;
}

static const attnrun_op_def slow_op = { .struct_size = sizeof slow_op,
                                        .domain = "test",
                                        .name = "Slow",
                                        .since = 1,
                                        .inputs = "x:T",
                                        .outputs = "y:T",
                                        .types = "T=f32",
                                        .infer = slow_infer,
                                        .run = slow_run };

/* Any of 8 workers may take one of 2 tasks. */
static void test_scratch_is_there_for_every_worker(void **state)
{
    (void)state;
    struct test_memory memory;
    float x[2] = { 5, 5 };
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 8);
    OK(attnrun_register_op(runtime, &slow_op));
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_node(w, "test::Slow", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "2", x);
    for (int64_t turn = 0; turn < rounds(100, 3000); turn++)
        OK(attnrun_run(context, NULL));
    attnrun_tensor y = get_output(context, 0);
    assert_true(((float *)y.data)[1] > 0.5f);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* ---- a model that is described while it is packed ---- */

struct reader {
    attnrun_model *model;
    atomic_int begun, end;
    int seen, gone;
};

static void *describe(void *arg)
{
    struct reader *reader = arg;
    while (!atomic_load(&reader->end) || reader->gone == 0) {
        attnrun_value_info info = { .struct_size = sizeof info };
        if (attnrun_model_value(reader->model, "w", &info) != ATTNRUN_OK)
            break;
        reader->seen += info.constant != NULL;
        reader->gone += info.constant == NULL;
        atomic_store(&reader->begun, 1);
    }
    return NULL;
}

/* Packing releases the constant "w", which is computed at load. */
static void test_a_value_is_described_while_it_is_packed(void **state)
{
    (void)state;
    enum { SIZE = 64 };
    static float v[SIZE * SIZE];
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "N,64");
    onnx_constant(w, "v", ATTNRUN_F32, "64,64", v);
    onnx_node(w, "Neg", "v", "w");
    onnx_node(w, "MatMul", "x,w", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct reader reader = { .model = open_model(runtime, w, 0) };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, describe, &reader), 0);
    while (!atomic_load(&reader.begun))
        sched_yield();
    OK(attnrun_model_pack(reader.model));
    atomic_store(&reader.end, 1);
    pthread_join(thread, NULL);
    assert_true(reader.seen > 0 && reader.gone > 0);
    attnrun_model_release(reader.model);
    attnrun_runtime_destroy(runtime);
}

/* ---- plugins ---- */

enum { PLUGINS = 200 };

static void *load_plugins(void *runtime)
{
    int64_t failed = 0;
    for (int i = 0; i < PLUGINS; i++)
        failed += attnrun_load_plugin(runtime, TEST_PLUGIN) != ATTNRUN_OK;
    return failed == 0 ? runtime : NULL;
}

static void test_plugins_are_loaded_at_the_same_time(void **state)
{
    (void)state;
    struct test_memory memory;
    pthread_t threads[CALLERS];
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_plugins, runtime), 0);
    for (int i = 0; i < CALLERS; i++) {
        void *done;
        pthread_join(threads[i], &done);
        assert_ptr_equal(done, runtime);
    }
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concurrent_contexts_agree),
        cmocka_unit_test(test_concurrent_owners_end_in_any_order),
        cmocka_unit_test(test_concurrent_models_of_one_runtime),
        cmocka_unit_test(test_host_threads_give_the_same_bits),
        cmocka_unit_test(test_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_scratch_is_there_for_every_worker),
        cmocka_unit_test(test_a_value_is_described_while_it_is_packed),
        cmocka_unit_test(test_plugins_are_loaded_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_outputs.c - outputs as a server needs them: written in place into the caller's buffer, some
 * of them only, and inner values by name. The results of a context without any of it are what
 * they are compared with. */
#include "../runtime/sample_models.h"

enum { B = 2, S = 24, HIDDEN = B * S * ENCODER_WIDTH, POOLED = B * ENCODER_WIDTH };

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    struct encoder_inputs inputs;
    float hidden[HIDDEN], pooled[POOLED]; /* what a plain run gives */
};

static void start(struct bench *bench)
{
    uint64_t seed = test_seed();
    attnrun_context *plain;
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 2);
    bench->model = open_model(bench->runtime, write_encoder(2), 0);
    plain = make_context(bench->model);
    set_encoder_inputs(plain, &bench->inputs, &seed, B, S);
    OK(attnrun_run(plain, NULL));
    memcpy(bench->hidden, get_output(plain, 0).data, sizeof bench->hidden);
    memcpy(bench->pooled, get_output(plain, 1).data, sizeof bench->pooled);
    attnrun_context_destroy(plain);
    bench->context = make_context(bench->model);
    attnrun_tensor ids = tensor_of(ATTNRUN_I64, "2,24", bench->inputs.ids);
    attnrun_tensor mask = tensor_of(ATTNRUN_I64, "2,24", bench->inputs.mask);
    OK(attnrun_set_input(bench->context, 0, &ids));
    OK(attnrun_set_input(bench->context, 1, &mask));
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static void give(attnrun_context *context, int32_t index, const char *dims, float *memory)
{
    attnrun_tensor tensor = tensor_of(ATTNRUN_F32, dims, memory);
    OK(attnrun_set_output(context, index, &tensor));
}

/* ---- in place ---- */

static void test_outputs_are_written_in_place(void **state)
{
    (void)state;
    static struct bench bench;
    static float hidden[HIDDEN + 1], pooled[POOLED + 1];
    attnrun_memory_info own = { .struct_size = sizeof own }, given = own;
    start(&bench);
    OK(attnrun_run(bench.context, NULL));
    OK(attnrun_context_memory(bench.context, &own));
    hidden[HIDDEN] = pooled[POOLED] = -7;
    give(bench.context, 0, "2,24,16", hidden);
    give(bench.context, 1, "2,16", pooled);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(hidden, bench.hidden, sizeof bench.hidden);
    assert_memory_equal(pooled, bench.pooled, sizeof bench.pooled);
    assert_true(hidden[HIDDEN] == -7 && pooled[POOLED] == -7);
    assert_ptr_equal(get_output(bench.context, 0).data, hidden);
    assert_ptr_equal(get_output(bench.context, 1).data, pooled);
    OK(attnrun_context_memory(bench.context, &given)); /* no room in the arena for them */
    assert_true(given.arena_used_bytes <= own.arena_used_bytes);
    const int64_t calls = atomic_load(&bench.memory.calls);
    for (int i = 0; i < 3; i++) { /* other memory, the same plan */
        static float other[HIDDEN];
        give(bench.context, 0, "2,24,16", i % 2 == 0 ? other : hidden);
        OK(attnrun_run(bench.context, NULL));
        assert_memory_equal(i % 2 == 0 ? other : hidden, bench.hidden,
                            sizeof bench.hidden);
    }
    assert_int_equal(atomic_load(&bench.memory.calls), calls);
    OK(attnrun_set_output(bench.context, 0, NULL));
    memset(hidden, 0, sizeof hidden);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(get_output(bench.context, 0).data, bench.hidden,
                        sizeof bench.hidden);
    assert_true(hidden[0] == 0);
    stop(&bench);
}

/* y and its flat view z, of which one is in the caller's memory: the other one stays as it is when
 * that memory is gone. So does y where it is only watched. */
static void test_outputs_do_not_lie_in_memory_of_others(void **state)
{
    (void)state;
    for (int watched = 0; watched < 2; watched++) {
        float x[6] = { 1, 2, 3, 4, 5, 6 }, given[6];
        struct onnx_writer *w = onnx_begin(17);
        onnx_input(w, "x", ATTNRUN_F32, "2,3");
        onnx_ints(w, "flat", 1, (const int64_t[]){ 6 });
        onnx_node(w, "Neg", "x", "y");
        onnx_node(w, "Reshape", "y,flat", "z");
        onnx_output(w, "z", ATTNRUN_F32, NULL);
        if (watched == 0)
            onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(NULL, w, 0);
        attnrun_context *context = make_context(model);
        attnrun_tensor y;
        if (watched == 1)
            OK(attnrun_watch(context, "y"));
        set_input(context, 0, ATTNRUN_F32, "2,3", x);
        give(context, 0, "6", given);
        OK(attnrun_run(context, NULL));
        assert_true(given[0] == -1 && given[5] == -6);
        memset(given, 0, sizeof given);
        OK(watched == 1 ? attnrun_value(context, "y", &y)
                        : attnrun_output(context, 1, &y));
        assert_true(((const float *)y.data)[0] == -1);
        assert_true(((const float *)y.data)[5] == -6);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* Memory that overlaps is read to the end before it is written; so is what is not aligned. */
static void test_outputs_may_lie_over_inputs(void **state)
{
    (void)state;
    static char room[64 + sizeof(float) * HIDDEN * 2];
    static struct bench bench;
    float *shared = (float *)(void *)room;
    start(&bench);
    memcpy(room, bench.inputs.ids, B * S * 8);
    attnrun_tensor ids = tensor_of(ATTNRUN_I64, "2,24", room);
    OK(attnrun_set_input(bench.context, 0, &ids));
    give(bench.context, 0, "2,24,16", shared);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(room, bench.hidden, sizeof bench.hidden);

    ids.data = bench.inputs.ids;
    OK(attnrun_set_input(bench.context, 0, &ids));
    give(bench.context, 0, "2,24,16", (float *)(void *)(room + 2));
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(room + 2, bench.hidden, sizeof bench.hidden);

    give(bench.context, 0, "2,24,16",
         shared); /* one output over the other: both are copied */
    give(bench.context, 1, "2,16", shared + HIDDEN - POOLED);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(shared + HIDDEN - POOLED, bench.pooled, sizeof bench.pooled);
    assert_memory_equal(shared, bench.hidden, sizeof bench.hidden - sizeof bench.pooled);
    stop(&bench);
}

/* The sum is written as doubles, which memory for c64 at a multiple of 4 is not for. */
static void test_outputs_are_aligned_for_the_step_that_writes_them(void **state)
{
    (void)state;
    static _Alignas(8) char room[4 + 6 * 8];
    double x[6] = { 1, 2, 3, 4, 5, 6 };
    const attnrun_tensor in = tensor_of(ATTNRUN_F64, "6", x);
    struct onnx_writer *w = onnx_begin(26);
    onnx_input(w, "x", ATTNRUN_F64, "N");
    onnx_node(w, "Add", "x,x", "sum");
    onnx_node(w, "BitCast", "sum", "y");
    onnx_attr_int(w, "to", ATTNRUN_C64);
    onnx_output(w, "y", ATTNRUN_C64, "N");
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_set_input(context, 0, &in));
    for (int at = 0; at <= 4; at += 4) {
        const attnrun_tensor y = tensor_of(ATTNRUN_C64, "6", room + at);
        attnrun_plan_info info = { .struct_size = sizeof info };
        OK(attnrun_set_output(context, 0, &y));
        OK(attnrun_plan(context, &in, &info));
        assert_int_equal(info.arena_bytes, at == 0 ? 0 : 64);
        OK(attnrun_run(context, NULL));
        for (int i = 0; i < 6; i++)
            assert_memory_equal(room + at + 8 * i, &(double){ 2 * x[i] }, 8);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static void test_outputs_that_do_not_fit_are_refused_unwritten(void **state)
{
    (void)state;
    static struct bench bench;
    static float hidden[HIDDEN];
    start(&bench);
    give(bench.context, 0, "2,23,16", hidden);
    FAILS(ATTNRUN_E_SHAPE, "is f32[2,24,16], but the memory bound to it is",
          attnrun_run(bench.context, NULL));
    for (int i = 0; i < HIDDEN; i++)
        assert_true(hidden[i] == 0);
    give(bench.context, 0, "2,24,16", hidden);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(hidden, bench.hidden, sizeof bench.hidden);
    stop(&bench);
}

/* ---- a choice ---- */

struct count {
    int32_t steps;
};

static void count_step(void *user, int32_t node_index, const char *name,
                       const char *op_type, double microseconds)
{
    struct count *count = user;
    (void)node_index;
    (void)name;
    (void)op_type;
    (void)microseconds;
    count->steps++;
}

static int32_t steps_of_run(attnrun_context *context)
{
    struct count count = { 0 };
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_step = count_step,
                                    .on_step_user = &count };
    OK(attnrun_run(context, &options));
    return count.steps;
}

static void test_outputs_that_are_not_chosen_cost_nothing(void **state)
{
    (void)state;
    static struct bench bench;
    attnrun_tensor tensor;
    const int32_t first = 0, second = 1, none = 7;
    start(&bench);
    const int32_t all = steps_of_run(bench.context);
    OK(attnrun_choose_outputs(bench.context, &first, 1));
    assert_true(steps_of_run(bench.context) < all);
    assert_memory_equal(get_output(bench.context, 0).data, bench.hidden,
                        sizeof bench.hidden);
    FAILS(ATTNRUN_E_USAGE, "output 1 was not chosen",
          attnrun_output(bench.context, 1, &tensor));
    FAILS(ATTNRUN_E_USAGE, "output 1 was not chosen",
          attnrun_plan_output(bench.context, 1, &tensor));
    OK(attnrun_choose_outputs(bench.context, &second, 1));
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(get_output(bench.context, 1).data, bench.pooled,
                        sizeof bench.pooled);
    FAILS(ATTNRUN_E_USAGE, "does not exist",
          attnrun_choose_outputs(bench.context, &none, 1));
    FAILS(ATTNRUN_E_USAGE, "indices is NULL",
          attnrun_choose_outputs(bench.context, NULL, 1));
    FAILS(ATTNRUN_E_USAGE, "n is -1", attnrun_choose_outputs(bench.context, &first, -1));
    OK(attnrun_choose_outputs(bench.context, NULL, 0));
    assert_int_equal(steps_of_run(bench.context), all);
    assert_memory_equal(get_output(bench.context, 0).data, bench.hidden,
                        sizeof bench.hidden);
    stop(&bench);
}

/* ---- inner values ---- */

/* x -> Relu -> r -> MatMul(w) -> m -> Neg -> y */
static struct onnx_writer *write_inner(void)
{
    static const float w[4] = { 1, 2, 3, 4 };
    struct onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "x", ATTNRUN_F32, "N,2");
    onnx_constant(writer, "w", ATTNRUN_F32, "2,2", w);
    onnx_node(writer, "Softmax", "x", "r");
    onnx_node(writer, "MatMul", "r,w", "m");
    onnx_node(writer, "Softmax", "m", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "N,2");
    return writer;
}

/* A product that is made together with its Relu is no value of the graph as it is run. */
static void test_what_is_fused_is_no_value(void **state)
{
    static const float w[4] = { 1, 2, 3, 4 };
    struct onnx_writer *writer = onnx_begin(17);
    onnx_input(writer, "x", ATTNRUN_F32, "N,2");
    onnx_constant(writer, "w", ATTNRUN_F32, "2,2", w);
    onnx_node(writer, "MatMul", "x,w", "m");
    onnx_node(writer, "Relu", "m", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "N,2");
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_context *context = make_context(model);
    attnrun_tensor tensor;
    (void)state;
    FAILS(ATTNRUN_E_USAGE, "there is no value 'm'", attnrun_watch(context, "m"));
    FAILS(ATTNRUN_E_USAGE, "there is no value 'm'", attnrun_value(context, "m", &tensor));
    OK(attnrun_watch(context, "x"));
    OK(attnrun_watch(context, "y"));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* What was computed at load and packed for a product is freed when the first context exists. */
static void test_what_is_only_packed_is_no_value(void **state)
{
    static const float c[4] = { 1, 2, 3, 4 };
    struct onnx_writer *writer = onnx_begin(17);
    onnx_input(writer, "x", ATTNRUN_F32, "N,2");
    onnx_constant(writer, "c", ATTNRUN_F32, "2,2", c);
    onnx_node(writer, "Add", "c,c", "w");
    onnx_node(writer, "MatMul", "x,w", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "N,2");
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_context *context = make_context(model);
    (void)state;
    FAILS(ATTNRUN_E_USAGE, "there is no value 'w'", attnrun_watch(context, "w"));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

static void test_inner_values_are_read_by_name(void **state)
{
    (void)state;
    float x[2] = { 3, 3 };
    attnrun_tensor tensor;
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attnrun_model *model = open_model(runtime, write_inner(), 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "1,2", x);
    OK(attnrun_run(context, NULL));
    FAILS(ATTNRUN_E_USAGE, "'m' is not watched", attnrun_value(context, "m", &tensor));
    FAILS(ATTNRUN_E_USAGE, "there is no value 'q'", attnrun_watch(context, "q"));
    OK(attnrun_watch(context, "m"));
    OK(attnrun_watch(context, "r"));
    OK(attnrun_watch(context, "m"));
    FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_value(context, "m", &tensor));
    OK(attnrun_run(context, NULL));
    OK(attnrun_value(context, "r", &tensor));
    assert_memory_equal(tensor.data, ((float[]){ 0.5f, 0.5f }), 8);
    OK(attnrun_value(context, "m", &tensor));
    assert_int_equal(tensor.rank, 2);
    assert_memory_equal(tensor.data, ((float[]){ 2, 3 }), 8);
    OK(attnrun_watch(context, "y")); /* what was kept stays readable */
    OK(attnrun_value(context, "m", &tensor));
    FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_value(context, "y", &tensor));
    OK(attnrun_choose_outputs(context, NULL, 0));
    const int32_t output = 0;
    float y[2];
    give(context, 0, "1,2", y);
    OK(attnrun_choose_outputs(context, &output, 1));
    OK(attnrun_run(context, NULL));
    OK(attnrun_value(context, "m", &tensor));
    assert_memory_equal(tensor.data, ((float[]){ 2, 3 }), 8);
    assert_memory_equal(y, get_output(context, 0).data, sizeof y);
    for (int i = 0; i < 40; i++) { /* many values are kept, too */
        char name[4] = { "rmyw"[i % 4], 0 };
        OK(attnrun_watch(context, name));
    }
    OK(attnrun_run(context, NULL));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_written_in_place),
        cmocka_unit_test(test_outputs_do_not_lie_in_memory_of_others),
        cmocka_unit_test(test_outputs_may_lie_over_inputs),
        cmocka_unit_test(test_outputs_are_aligned_for_the_step_that_writes_them),
        cmocka_unit_test(test_outputs_that_do_not_fit_are_refused_unwritten),
        cmocka_unit_test(test_outputs_that_are_not_chosen_cost_nothing),
        cmocka_unit_test(test_what_is_fused_is_no_value),
        cmocka_unit_test(test_what_is_only_packed_is_no_value),
        cmocka_unit_test(test_inner_values_are_read_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

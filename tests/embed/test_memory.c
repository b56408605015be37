/* test_memory.c - memory known before: of a context with states, of plans that are kept, and what
 * more threads would find to do. */
#include "../runtime/harness.h"

enum { WIDTH = 4, CAPACITY = 1 << 20 }; /* capacity: more than opening takes */
enum { PRESENT = (3 + 2) * WIDTH * 4 }; /* the bytes of the state after a run */

/* past f32[1,P,4], x f32[1,N,4] -> present = Concat, y = Softmax(present) w */
static struct onnx_writer *write_decoder(void)
{
    static float w[WIDTH * WIDTH] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7 };
    struct onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "past", ATTNRUN_F32, "1,P,4");
    onnx_input(writer, "x", ATTNRUN_F32, "1,N,4");
    onnx_constant(writer, "w", ATTNRUN_F32, "4,4", w);
    onnx_node(writer, "Concat", "past,x", "present");
    onnx_attr_int(writer, "axis", 1);
    onnx_node(writer, "Softmax", "present", "soft");
    onnx_attr_int(writer, "axis", 2);
    onnx_node(writer, "MatMul", "soft,w", "y");
    onnx_output(writer, "present", ATTNRUN_F32, "1,Q,4");
    onnx_output(writer, "y", ATTNRUN_F32, "1,Q,4");
    return writer;
}

static void decoder_inputs(attnrun_tensor *inputs, float *past, float *x)
{
    inputs[0] = tensor_of(ATTNRUN_F32, "1,3,4", past);
    inputs[1] = tensor_of(ATTNRUN_F32, "1,2,4", x);
}

static uint64_t peak_of(attnrun_runtime *runtime)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    OK(attnrun_runtime_query(runtime, &info));
    return info.peak_memory;
}

/* One run with a state of that capacity, under a budget; the peak. */
static attnrun_status run_decoder(uint64_t max_memory, int64_t capacity, uint64_t *peak,
                                  attnrun_model_need *need)
{
    float past[3 * WIDTH] = { 1, 2, 3 }, x[2 * WIDTH] = { 4, 5, 6 };
    attnrun_tensor inputs[2];
    /* What stands behind the pairs that are given is none of them. */
    const attnrun_state_pair pairs[2] = { { 0, 0, capacity }, { 0, 0, 7 * capacity } };
    attnrun_context *context = NULL;
    attnrun_runtime *runtime = make_runtime_limited(NULL, 1, max_memory);
    attnrun_model *model = open_model(runtime, write_decoder(), 0);
    decoder_inputs(inputs, past, x);
    need->struct_size = sizeof *need;
    OK(attnrun_model_plan_states(model, inputs, pairs, 1, need));
    attnrun_status status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK)
        status = attnrun_add_state(context, 0, 0, capacity);
    if (status == ATTNRUN_OK) {
        OK(attnrun_set_input(context, 0, &inputs[0]));
        OK(attnrun_set_input(context, 1, &inputs[1]));
        status = attnrun_run(context, NULL);
    }
    *peak = peak_of(runtime);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return status;
}

static void test_states_are_in_the_sum(void **state)
{
    (void)state;
    attnrun_model_need need, other;
    uint64_t peak;
    OK(run_decoder(0, CAPACITY, &peak, &need));
    assert_int_equal(need.states_bytes, CAPACITY);
    assert_int_equal(need.total_bytes, peak);
    OK(run_decoder(peak, CAPACITY, &peak, &other)); /* the smallest budget that works */
    /* What the run makes fits; with a byte less the state becomes twice as large. */
    OK(run_decoder(0, PRESENT, &peak, &other));
    assert_int_equal(other.states_bytes, PRESENT);
    OK(run_decoder(0, PRESENT - 1, &peak, &other));
    assert_int_equal(other.states_bytes, 2 * PRESENT);
    /* The one that is too small is held until it is copied. */
    assert_in_range(other.total_bytes, peak, 2 * peak);
    FAILS(ATTNRUN_E_MEMORY, "budget",
          run_decoder((uint64_t)need.total_bytes - 1, CAPACITY, &peak, &other));
}

static void test_states_that_are_none_are_refused(void **state)
{
    (void)state;
    attnrun_tensor inputs[2];
    float data[3 * WIDTH];
    const attnrun_state_pair twice[2] = { { 0, 0, 0 }, { 0, 1, 0 } }, none = { 0, 5, 0 },
                             endless = { 0, 0, INT64_MAX };
    attnrun_model_need need = { .struct_size = sizeof need };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_decoder(), 0);
    decoder_inputs(inputs, data, data);
    FAILS(ATTNRUN_E_USAGE, "no pair of input 0 and output 5",
          attnrun_model_plan_states(model, inputs, &none, 1, &need));
    FAILS(ATTNRUN_E_USAGE, "is a state already",
          attnrun_model_plan_states(model, inputs, twice, 2, &need));
    FAILS(ATTNRUN_E_USAGE, "states is NULL",
          attnrun_model_plan_states(model, inputs, NULL, 1, &need));
    FAILS(ATTNRUN_E_MEMORY, "more than 2^63 - 1 bytes",
          attnrun_model_plan_states(model, inputs, &endless, 1, &need));
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* An Identity that stays may have to give a sequence, but gives a view of its tensor here. */
static void test_a_view_by_identity_needs_no_memory(void **state)
{
    (void)state;
    float x[6] = { 1, 2, 3 };
    attnrun_model_need need = { .struct_size = sizeof need };
    attnrun_tensor input = tensor_of(ATTNRUN_F32, "2,3", x);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "x", ATTNRUN_F32, "N,3");
    onnx_node(writer, "Relu", "x", "a");
    onnx_node(writer, "Identity", "a", "b");
    onnx_node(writer, "Softmax", "b", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "N,3");
    attnrun_model *model = open_model(runtime, writer, ATTNRUN_NO_FUSION);
    OK(attnrun_model_plan(model, &input, &need));
    assert_int_equal(need.side_heap_bytes, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_set_input(context, 0, &input));
    OK(attnrun_run(context, NULL));
    assert_int_equal(need.total_bytes, peak_of(runtime));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* A model of two nodes, packed and run: heap for what it is, not for what it might be. */
static void test_a_small_model_takes_little(void **state)
{
    (void)state;
    enum { MAX_BYTES = 32 << 10 };
    float x[6] = { 1, 2, 3 };
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    struct onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "x", ATTNRUN_F32, "N,3");
    onnx_node(writer, "Relu", "x", "a");
    onnx_node(writer, "Softmax", "a", "y");
    onnx_output(writer, "y", ATTNRUN_F32, "N,3");
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "2,3", x);
    OK(attnrun_run(context, NULL));
    assert_in_range(peak_of(runtime), 1, MAX_BYTES); /* which says how many it was */
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* ---- plans that are kept ---- */

static int32_t plans_of(attnrun_context *context)
{
    attnrun_memory_info info = { .struct_size = sizeof info };
    OK(attnrun_context_memory(context, &info));
    return info.n_plans;
}

static void run_length(attnrun_context *context, int64_t n)
{
    static float data[64 * WIDTH];
    attnrun_tensor x;
    OK(attnrun_tensor_make(ATTNRUN_F32, 3, (int64_t[]){ 1, n, WIDTH }, data, &x));
    OK(attnrun_set_input(context, 0, &x));
    OK(attnrun_set_input(context, 1, &x));
    OK(attnrun_run(context, NULL));
}

static void test_plans_beyond_the_limit_are_given_back(void **state)
{
    (void)state;
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attnrun_model *model = open_model(runtime, write_decoder(), 0);
    attnrun_context *context = make_context(model);
    for (int64_t n = 1; n <= 20; n++)
        run_length(context, n);
    assert_int_equal(plans_of(context), 16);
    OK(attnrun_set_max_plans(context, 2)); /* those of 19 and 20 stay */
    assert_int_equal(plans_of(context), 2);
    const int64_t calls = atomic_load(&memory.calls);
    run_length(context, 20);
    run_length(context, 19);
    assert_int_equal(atomic_load(&memory.calls), calls);
    run_length(context, 18);
    assert_int_equal(plans_of(context), 2);
    run_length(context, 19);
    FAILS(ATTNRUN_E_USAGE, "1 to 16", attnrun_set_max_plans(context, 0));
    FAILS(ATTNRUN_E_USAGE, "1 to 16", attnrun_set_max_plans(context, 17));
    OK(attnrun_set_max_plans(context, 16));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* ---- steps of a plan ---- */

static void test_steps_of_a_plan_say_their_tasks(void **state)
{
    (void)state;
    attnrun_tensor inputs[2];
    attnrun_plan_info info = { .struct_size = sizeof info };
    attnrun_plan_step step = { .struct_size = sizeof step };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_decoder(), 0);
    attnrun_context *context = make_context(model);
    FAILS(ATTNRUN_E_USAGE, "there is no plan", attnrun_plan_get_step(context, 0, &step));
    inputs[0] = tensor_of(ATTNRUN_F32, "1,3,4", NULL);
    inputs[1] = tensor_of(ATTNRUN_F32, "1,2,4", NULL);
    OK(attnrun_plan(context, inputs, &info));
    assert_int_equal(info.n_steps, 3);
    OK(attnrun_plan_get_step(context, 2, &step));
    assert_string_equal(step.op_type, "MatMul");
    assert_int_equal(step.flops, 2 * 5 * 4 * 4);
    assert_int_equal(step.read_bytes, 4 * (5 * 4 + 4 * 4));
    assert_int_equal(step.written_bytes, 4 * 5 * 4);
    assert_int_equal(step.n_phases, 1);
    assert_int_equal(step.shared, 0); /* too little to share */
    FAILS(ATTNRUN_E_USAGE, "no step 3", attnrun_plan_get_step(context, 3, &step));
    inputs[0] = tensor_of(ATTNRUN_F32, "1,30000,4", NULL);
    OK(attnrun_plan(context, inputs, &info));
    OK(attnrun_plan_get_step(context, 1, &step));
    assert_string_equal(step.op_type, "Softmax");
    assert_true(step.phases[0].n_tasks > 1 && step.phases[0].task_cost > 0);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* Of a Reshape between two operators nothing runs: its output is its input. */
static void test_a_step_that_only_views_has_no_phase(void **state)
{
    (void)state;
    attnrun_tensor x = tensor_of(ATTNRUN_F32, "3,4", NULL);
    attnrun_plan_info info = { .struct_size = sizeof info };
    attnrun_plan_step step = { .struct_size = sizeof step };
    const int64_t shape[2] = { 2, 6 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "3,4");
    onnx_ints(w, "shape", 2, shape);
    onnx_node(w, "Softmax", "x", "a");
    onnx_node(w, "Reshape", "a,shape", "b");
    onnx_node(w, "Softmax", "b", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_plan(context, &x, &info));
    OK(attnrun_plan_get_step(context, 1, &step));
    assert_string_equal(step.op_type, "Reshape");
    assert_int_equal(step.n_phases, 0);
    assert_int_equal(step.written_bytes, 0);
    OK(attnrun_plan_get_step(context, 2, &step));
    assert_true(step.n_phases > 0 && step.written_bytes == 4 * 12);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_are_in_the_sum),
        cmocka_unit_test(test_states_that_are_none_are_refused),
        cmocka_unit_test(test_a_view_by_identity_needs_no_memory),
        cmocka_unit_test(test_a_small_model_takes_little),
        cmocka_unit_test(test_plans_beyond_the_limit_are_given_back),
        cmocka_unit_test(test_steps_of_a_plan_say_their_tasks),
        cmocka_unit_test(test_a_step_that_only_views_has_no_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

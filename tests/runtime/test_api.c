/* test_api.c - calls that are wrong in themselves: NULL, indexes out of range, structs of
 * another ABI; and what a model tells about itself. */
#include "harness.h"

#include "sample_models.h"

static attnrun_runtime *runtime;
static attnrun_model *model;
static attnrun_context *context;

static int set_up(void **state)
{
    (void)state;
    runtime = make_runtime(NULL, 1);
    model = open_model(runtime, write_encoder(1), 0);
    context = make_context(model);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    return 0;
}

static void test_api_refuses_null(void **state)
{
    (void)state;
    attnrun_model_info model_info = { .struct_size = sizeof model_info };
    attnrun_value_info value = { .struct_size = sizeof value };
    attnrun_node_info node = { .struct_size = sizeof node };
    attnrun_memory_info memory = { .struct_size = sizeof memory };
    attnrun_plan_block block = { .struct_size = sizeof block };
    attnrun_runtime_info info = { .struct_size = sizeof info };
    attnrun_source source = { .struct_size = sizeof source };
    attnrun_model *none;
    attnrun_context *no_context;
    attnrun_tensor tensor;
    const char *text;
    int64_t version;
    int32_t count;
#define REFUSED(call) FAILS(ATTNRUN_E_USAGE, "", call)
    REFUSED(attnrun_runtime_create(NULL, NULL));
    REFUSED(attnrun_runtime_query(NULL, &info));
    REFUSED(attnrun_runtime_query(runtime, NULL));
    REFUSED(attnrun_load_plugin(NULL, "x"));
    REFUSED(attnrun_load_plugin(runtime, NULL));
    REFUSED(attnrun_model_open(runtime, NULL, &none));
    REFUSED(attnrun_model_open(runtime, &source, &none));
    REFUSED(attnrun_model_open(runtime, &source, NULL));
    REFUSED(attnrun_model_query(NULL, &model_info));
    REFUSED(attnrun_model_query(model, NULL));
    REFUSED(attnrun_model_input(NULL, 0, &value));
    REFUSED(attnrun_model_input(model, 0, NULL));
    REFUSED(attnrun_model_output(NULL, 0, &value));
    REFUSED(attnrun_model_value(NULL, "ids", &value));
    REFUSED(attnrun_model_value(model, NULL, &value));
    REFUSED(attnrun_model_node(NULL, 0, &node));
    REFUSED(attnrun_model_metadata(model, 0, NULL, NULL));
    REFUSED(attnrun_model_opset(model, 0, NULL, &version));
    REFUSED(attnrun_model_pass(model, 0, &text, NULL));
    REFUSED(attnrun_model_pass(NULL, 0, &text, &count));
    REFUSED(attnrun_context_create(NULL, &no_context));
    REFUSED(attnrun_context_create(model, NULL));
    REFUSED(attnrun_set_input(NULL, 0, &tensor));
    REFUSED(attnrun_set_output(NULL, 0, &tensor));
    REFUSED(attnrun_output(NULL, 0, &tensor));
    REFUSED(attnrun_output(context, 0, NULL));
    REFUSED(attnrun_plan(NULL, &tensor, NULL));
    REFUSED(attnrun_plan(context, NULL, NULL));
    REFUSED(attnrun_reserve(context, NULL));
    REFUSED(attnrun_plan_get_block(NULL, 0, &block));
    REFUSED(attnrun_plan_get_block(context, 0, NULL));
    REFUSED(attnrun_context_memory(NULL, &memory));
    REFUSED(attnrun_context_memory(context, NULL));
#undef REFUSED
    assert_int_equal(attnrun_model_find_input(NULL, "ids"), -1);
    assert_int_equal(attnrun_model_find_output(model, NULL), -1);
    attnrun_model_retain(NULL);
    attnrun_model_release(NULL);
    attnrun_context_destroy(NULL);
    attnrun_runtime_destroy(NULL);
    attnrun_trim(NULL);
    attnrun_tensor_free(runtime, NULL);
}

static void test_api_refuses_other_indexes(void **state)
{
    (void)state;
    static const int32_t indexes[] = { -1, 1000000, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < 4; i++) {
        attnrun_value_info value = { .struct_size = sizeof value };
        attnrun_node_info node = { .struct_size = sizeof node };
        attnrun_tensor tensor;
        const char *a, *b;
        int64_t version;
        int32_t k = indexes[i], count;
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_input(model, k, &value));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_output(model, k, &value));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_node(model, k, &node));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_metadata(model, k, &a, &b));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_opset(model, k, &a, &version));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_pass(model, k, &a, &count));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_output(context, k, &tensor));
    }
}

static void test_api_refuses_other_abis(void **state)
{
    (void)state;
    attnrun_model_info model_info = { .struct_size = sizeof model_info + 8 };
    attnrun_runtime_info info = { .struct_size = sizeof info + 8 };
    attnrun_runtime_options options = { .struct_size = sizeof options + 8 };
    attnrun_memory_info memory = { .struct_size = 3 };
    attnrun_source source = { .struct_size = 8, .path = "x" };
    attnrun_runtime *other;
    attnrun_model *none;
    FAILS(ATTNRUN_E_USAGE, "ABI", attnrun_model_query(model, &model_info));
    FAILS(ATTNRUN_E_USAGE, "ABI", attnrun_runtime_query(runtime, &info));
    FAILS(ATTNRUN_E_USAGE, "ABI", attnrun_runtime_create(&options, &other));
    FAILS(ATTNRUN_E_USAGE, "ABI", attnrun_context_memory(context, &memory));
    FAILS(ATTNRUN_E_USAGE, "struct_size", attnrun_model_open(runtime, &source, &none));
    attnrun_allocator half = { .struct_size = sizeof half };
    options =
        (attnrun_runtime_options){ .struct_size = sizeof options, .allocator = &half };
    FAILS(ATTNRUN_E_USAGE, "alloc and free", attnrun_runtime_create(&options, &other));
    attnrun_pool pool = { .struct_size = sizeof pool, .max_workers = 4 };
    options = (attnrun_runtime_options){ .struct_size = sizeof options, .pool = &pool };
    FAILS(ATTNRUN_E_USAGE, "parallel_for", attnrun_runtime_create(&options, &other));
    options = (attnrun_runtime_options){ .struct_size = sizeof options, .isa = "mmx" };
    FAILS(ATTNRUN_E_USAGE, "mmx", attnrun_runtime_create(&options, &other));
    attnrun_model_info small = { .struct_size =
                                     8 }; /* an older caller: the first fields */
    OK(attnrun_model_query(model, &small));
    assert_int_equal(small.n_inputs, 2);
    assert_int_equal(small.n_outputs, 0);
}

static void test_api_tells_of_the_model(void **state)
{
    (void)state;
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_value_info value = { .struct_size = sizeof value };
    const char *domain;
    int64_t version;
    OK(attnrun_model_query(model, &info));
    assert_int_equal(info.n_inputs, 2);
    assert_int_equal(info.n_outputs, 2);
    assert_string_equal(info.graph_name, "test");
    assert_string_equal(info.missing, "");
    assert_true(info.n_nodes > 5 && info.n_nodes < info.n_file_nodes);
    OK(attnrun_model_input(model, 1, &value));
    assert_string_equal(value.name, "mask");
    assert_int_equal(value.dtype, ATTNRUN_I64);
    assert_int_equal(value.dims[0], -1);
    assert_string_equal(value.dim_names[1], "S");
    OK(attnrun_model_output(model, 0, &value));
    assert_string_equal(value.name, "hidden");
    assert_int_equal(value.rank, 3);
    assert_string_equal(value.dim_names[0], "B");
    assert_string_equal(value.dim_names[1], "S");
    assert_int_equal(value.dims[2], ENCODER_WIDTH);
    assert_int_equal(attnrun_model_find_input(model, "mask"), 1);
    assert_int_equal(attnrun_model_find_output(model, "pooled"), 1);
    assert_int_equal(attnrun_model_find_input(model, "pooled"), -1);
    OK(attnrun_model_opset(model, 0, &domain, &version));
    assert_int_equal(version, 17);
    for (int32_t i = 0; i < info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        OK(attnrun_model_node(model, i, &node));
        assert_true(node.n_inputs > 0 && node.op_type[0] != 0 &&
                    node.coverage == ATTNRUN_NATIVE);
    }
}

/* A model of no nodes, and one of no inputs. */
static void test_api_runs_the_smallest_models(void **state)
{
    (void)state;
    float x[2] = { 3, 4 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_output(w, "x", ATTNRUN_F32, "2");
    attnrun_model *same = open_model(runtime, w, 0);
    attnrun_context *c = make_context(same);
    set_input(c, 0, ATTNRUN_F32, "2", x);
    OK(attnrun_run(c, NULL));
    attnrun_tensor y = get_output(c, 0);
    assert_memory_equal(y.data, x, sizeof x);
    attnrun_context_destroy(c);
    attnrun_model_release(same);

    w = onnx_begin(17);
    onnx_constant(w, "k", ATTNRUN_F32, "2", x);
    onnx_node(w, "Neg", "k", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    same = open_model(runtime, w, 0);
    c = make_context(same);
    OK(attnrun_plan(c, NULL, NULL));
    OK(attnrun_run(c, NULL));
    y = get_output(c, 0);
    assert_memory_equal(y.data, ((float[]){ -3, -4 }), sizeof x);
    attnrun_context_destroy(c);
    attnrun_model_release(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_api_refuses_null),
        cmocka_unit_test(test_api_refuses_other_indexes),
        cmocka_unit_test(test_api_refuses_other_abis),
        cmocka_unit_test(test_api_tells_of_the_model),
        cmocka_unit_test(test_api_runs_the_smallest_models),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

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
    const attnrun_graph *graph;
    attnrun_graph_info graph_info = { .struct_size = sizeof graph_info };
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
    REFUSED(attnrun_model_graph(NULL, &graph));
    REFUSED(attnrun_model_graph(model, NULL));
    REFUSED(attnrun_graph_query(NULL, &graph_info));
    REFUSED(attnrun_graph_node(NULL, 0, &node));
    REFUSED(attnrun_graph_attribute(NULL, 0, 0, NULL));
    REFUSED(attnrun_graph_value(NULL, "ids", &value));
    REFUSED(attnrun_subgraph(NULL, 0, 0, &text, &graph));
    REFUSED(attnrun_model_metadata(model, 0, NULL, NULL));
    REFUSED(attnrun_model_opset(model, 0, NULL, &version));
    REFUSED(attnrun_model_pass(model, 0, &text, NULL));
    REFUSED(attnrun_model_pass(NULL, 0, &text, &count));
    REFUSED(attnrun_model_note(NULL, 0, &text, &text, &text));
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
        const attnrun_graph *graph, *inner;
        int64_t version;
        int32_t k = indexes[i], count;
        assert_int_equal(attnrun_model_graph(model, &graph), ATTNRUN_OK);
        FAILS(ATTNRUN_E_USAGE, "", attnrun_graph_node(graph, k, &node));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_subgraph(graph, 0, k, &a, &inner));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_subgraph(graph, k, 0, &a, &inner));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_input(model, k, &value));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_output(model, k, &value));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_node(model, k, &node));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_metadata(model, k, &a, &b));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_opset(model, k, &a, &version));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_pass(model, k, &a, &count));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_model_note(model, k, &a, &b, &a));
        FAILS(ATTNRUN_E_USAGE, "", attnrun_output(context, k, &tensor));
    }
}

static void run_alone(void *user, int64_t n, int64_t grain, attnrun_task_fn fn, void *arg)
{
    (void)user, (void)grain;
    fn(arg, 0, n, 0);
}

static void test_api_refuses_other_abis(void **state)
{
    (void)state;
    attnrun_runtime_options options;
    attnrun_runtime *other;
    attnrun_allocator half = { .struct_size = sizeof half };
    options =
        (attnrun_runtime_options){ .struct_size = sizeof options, .allocator = &half };
    FAILS(ATTNRUN_E_USAGE, "alloc and free", attnrun_runtime_create(&options, &other));
    attnrun_pool pool = { .struct_size = sizeof pool, .max_workers = 4 };
    options = (attnrun_runtime_options){ .struct_size = sizeof options, .pool = &pool };
    FAILS(ATTNRUN_E_USAGE, "parallel_for", attnrun_runtime_create(&options, &other));
    options = (attnrun_runtime_options){ .struct_size = sizeof options, .isa = "mmx" };
    FAILS(ATTNRUN_E_USAGE, "mmx", attnrun_runtime_create(&options, &other));
    pool.parallel_for = run_alone;
    pool.max_workers = 0;
    options = (attnrun_runtime_options){ .struct_size = sizeof options, .pool = &pool };
    FAILS(ATTNRUN_E_USAGE, "workers", attnrun_runtime_create(&options, &other));
    options = (attnrun_runtime_options){ .struct_size = sizeof options, .threads = -1 };
    FAILS(ATTNRUN_E_USAGE, "threads is -1", attnrun_runtime_create(&options, &other));
    attnrun_model_info small = { .struct_size =
                                     8 }; /* an older caller: the first fields */
    OK(attnrun_model_query(model, &small));
    assert_int_equal(small.n_inputs, 2);
    assert_int_equal(small.n_outputs, 0);
}

/* ---- struct_size: one rule for all structs ---- */

/* A struct of the header, as a caller of a newer one has it: more behind it. */
union sized {
    uint32_t struct_size;
    unsigned char bytes[4096];
};

static union sized outer, inner; /* inner: what options point to */

static void *sized_alloc(void *user, size_t bytes, size_t align)
{
    (void)user, (void)align;
    return malloc(bytes);
}

static void sized_free(void *user, void *memory, size_t bytes)
{
    (void)user, (void)bytes;
    free(memory);
}

static attnrun_status with_runtime(void)
{
    attnrun_runtime *made = NULL;
    attnrun_status status = attnrun_runtime_create((void *)outer.bytes, &made);
    attnrun_runtime_destroy(made);
    return status;
}

static attnrun_status size_options(void) { return with_runtime(); }

static attnrun_status size_allocator(void)
{
    attnrun_allocator *allocator = (void *)inner.bytes;
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .allocator = allocator };
    memcpy(outer.bytes, &options, sizeof options);
    allocator->alloc = sized_alloc;
    allocator->free = sized_free;
    return with_runtime();
}

static attnrun_status size_pool(void)
{
    attnrun_pool *pool = (void *)inner.bytes;
    attnrun_runtime_options options = { .struct_size = sizeof options, .pool = pool };
    memcpy(outer.bytes, &options, sizeof options);
    pool->parallel_for = run_alone;
    pool->max_workers = 1;
    return with_runtime();
}

static attnrun_status size_source(void)
{
    attnrun_source *source = (void *)outer.bytes;
    attnrun_model *made = NULL;
    size_t bytes;
    uint8_t *data = onnx_end(write_encoder(1), &bytes);
    source->data = data;
    source->bytes = bytes;
    attnrun_status status = attnrun_model_open(runtime, source, &made);
    attnrun_model_release(made);
    free(data);
    return status;
}

static attnrun_status size_run(void)
{
    struct encoder_inputs inputs;
    uint64_t seed = 1;
    set_encoder_inputs(context, &inputs, &seed, 1, 3);
    return attnrun_run(context, (void *)outer.bytes);
}

static attnrun_status size_row(void)
{
    attnrun_runtime *other = make_runtime(NULL, 1);
    attnrun_op_def row = *attnrun_get_op(other, 0);
    row.struct_size = outer.struct_size;
    memcpy(outer.bytes, &row, sizeof row);
    attnrun_status status = attnrun_register_op(other, (void *)outer.bytes);
    attnrun_runtime_destroy(other);
    return status;
}

static attnrun_status size_runtime_info(void)
{
    return attnrun_runtime_query(runtime, (void *)outer.bytes);
}

static attnrun_status size_model_info(void)
{
    return attnrun_model_query(model, (void *)outer.bytes);
}

static attnrun_status size_value(void)
{
    return attnrun_model_input(model, 0, (void *)outer.bytes);
}

static attnrun_status size_node(void)
{
    return attnrun_model_node(model, 0, (void *)outer.bytes);
}

static attnrun_status size_plan(void)
{
    int64_t ids[6] = { 0 };
    attnrun_tensor tensors[2] = { tensor_of(ATTNRUN_I64, "2,3", ids),
                                  tensor_of(ATTNRUN_I64, "2,3", ids) };
    return attnrun_plan(context, tensors, (void *)outer.bytes);
}

static attnrun_status size_block(void)
{
    return attnrun_plan_get_block(context, 0, (void *)outer.bytes);
}

static attnrun_status size_memory(void)
{
    return attnrun_context_memory(context, (void *)outer.bytes);
}

static const struct sized_call {
    const char *name;
    size_t bytes;
    union sized *at;
    attnrun_status (*call)(void);
    size_t min; /* without the members behind it the call makes no sense */
} sized_calls[] = {
    { "runtime_options", sizeof(attnrun_runtime_options), &outer, size_options, 8 },
    { "allocator", sizeof(attnrun_allocator), &inner, size_allocator,
      sizeof(attnrun_allocator) },
    { "pool", sizeof(attnrun_pool), &inner, size_pool, sizeof(attnrun_pool) },
    { "source", sizeof(attnrun_source), &outer, size_source,
      offsetof(attnrun_source, external_dir) },
    { "run_options", sizeof(attnrun_run_options), &outer, size_run, 8 },
    { "op_def", sizeof(attnrun_op_def), &outer, size_row,
      offsetof(attnrun_op_def, cost) },
    { "runtime_info", sizeof(attnrun_runtime_info), &outer, size_runtime_info, 8 },
    { "model_info", sizeof(attnrun_model_info), &outer, size_model_info, 8 },
    { "value_info", sizeof(attnrun_value_info), &outer, size_value, 8 },
    { "node_info", sizeof(attnrun_node_info), &outer, size_node, 8 },
    { "plan_info", sizeof(attnrun_plan_info), &outer, size_plan, 8 },
    { "plan_block", sizeof(attnrun_plan_block), &outer, size_block, 8 },
    { "memory_info", sizeof(attnrun_memory_info), &outer, size_memory, 8 },
};

static void check_size(const struct sized_call *c, size_t bytes, size_t dirt, bool fits)
{
    memset(&outer, 0, sizeof outer);
    memset(&inner, 0, sizeof inner);
    c->at->struct_size = (uint32_t)bytes;
    if (dirt > 0)
        c->at->bytes[dirt] = 1;
    attnrun_status status = c->call();
    bool about_size = status == ATTNRUN_E_USAGE &&
                      strstr(attnrun_last_error()->message, "struct_size") != NULL;
    if (fits ? status != ATTNRUN_OK : !about_size)
        fail_msg("%s of %d bytes%s: %s", c->name, (int)bytes, dirt ? ", not zero" : "",
                 status ? attnrun_last_error()->message : "ok");
    if (fits) /* the caller's size stays, and nothing is written behind it */
        assert_int_equal(c->at->struct_size, bytes);
    for (size_t i = bytes > 4 ? bytes : 4; fits && i < sizeof c->at->bytes; i++)
        if (c->at == &outer && c->call != size_row && c->call != size_source)
            assert_int_equal(c->at->bytes[i], i == dirt && dirt > 0);
}

static void test_api_has_one_rule_for_struct_size(void **state)
{
    (void)state;
    size_plan(); /* blocks need a plan */
    for (size_t i = 0; i < sizeof sized_calls / sizeof *sized_calls; i++) {
        const struct sized_call *c = &sized_calls[i];
        assert_int_equal(c->bytes % 8, 0);
        check_size(c, 0, 0, false);
        check_size(c, 4, 0, false);
        check_size(c, c->bytes - 4, 0, false);
        check_size(c, c->min, 0, true);
        check_size(c, c->bytes, 0, true);
        check_size(c, c->bytes, c->bytes, true); /* behind it: not looked at */
        check_size(c, c->bytes + 8, 0, true);
        check_size(c, c->bytes + 64, 0, true);
        check_size(c, c->bytes + 8, c->bytes, false);
        check_size(c, c->bytes + 64, c->bytes + 63, false);
        check_size(c, UINT32_MAX, 0, false);
        check_size(c, UINT32_MAX - 7, 0, false);
    }
}

/* ---- flags and names that mean nothing ---- */

static void test_api_refuses_unknown_flags_and_passes(void **state)
{
    (void)state;
    static const char *const lists[] = { "nosuchpass", "gel", "gelus", "gelu,nosuch",
                                         "gelu, identity" };
    size_t bytes;
    uint8_t *data = onnx_end(write_encoder(1), &bytes);
    attnrun_source source = { .struct_size = sizeof source,
                              .data = data,
                              .bytes = bytes };
    attnrun_model *made;
    for (int32_t precision = -1; precision <= 3; precision += 4) {
        source.precision = precision;
        FAILS(ATTNRUN_E_USAGE, "precision", attnrun_model_open(runtime, &source, &made));
    }
    source.precision = ATTNRUN_PRECISION_F32;
    for (uint32_t flag = ATTNRUN_SEPARATE_DIMS; flag <<= 1, flag != 0;) {
        source.flags = flag | ATTNRUN_COPY;
        FAILS(ATTNRUN_E_USAGE, "flags", attnrun_model_open(runtime, &source, &made));
    }
    source.flags = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        source.disable_passes = lists[i];
        FAILS(ATTNRUN_E_USAGE, "rewrite pass",
              attnrun_model_open(runtime, &source, &made));
    }
    source.disable_passes = "gelu,,identity,";
    OK(attnrun_model_open(runtime, &source, &made));
    attnrun_model_release(made);
    free(data);
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
        cmocka_unit_test(test_api_has_one_rule_for_struct_size),
        cmocka_unit_test(test_api_refuses_unknown_flags_and_passes),
        cmocka_unit_test(test_api_tells_of_the_model),
        cmocka_unit_test(test_api_runs_the_smallest_models),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

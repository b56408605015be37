/* test_in_place.c - ATTNRUN_IN_PLACE: matrices that stay where the file has them give the bits
 * of packed ones, at any address; what can't stay is packed; such a model is not saved. */
#include "harness.h"

enum { MAX_M = 70, MAX_K = 900, MAX_N = 200 };

struct product {
    int64_t m, k, n;
    const char *op;
    bool transposed, bias;
    int name_bytes; /* shifts what follows in the file */
};

static int64_t below(uint64_t *seed, int64_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int64_t)(*seed >> 33) % n;
}

static struct product draw(uint64_t *seed)
{
    static const char *const ops[] = { "MatMul", "Gemm", "com.microsoft::FusedMatMul" };
    struct product p = { .m = 1 + below(seed, MAX_M),
                         .k = 1 + below(seed, MAX_K),
                         .n = 2 + below(seed, MAX_N - 1),
                         .op = ops[below(seed, 3)],
                         .bias = below(seed, 2) == 1,
                         .name_bytes = 1 + (int)below(seed, 8) };
    p.transposed = strcmp(p.op, "Gemm") == 0 && below(seed, 3) == 0;
    return p;
}

/* y = relu(x W + b) */
static struct onnx_writer *write_product(const struct product *p, uint64_t *seed)
{
    static float weights[MAX_K * MAX_N];
    struct onnx_writer *w = onnx_begin(17);
    char dims[64], names[64];
    onnx_domain(w, "com.microsoft");
    snprintf(dims, sizeof dims, "M,%lld", (long long)p->k);
    onnx_input(w, "x", ATTNRUN_F32, dims);
    snprintf(dims, sizeof dims, "%lld,%lld", (long long)(p->transposed ? p->n : p->k),
             (long long)(p->transposed ? p->k : p->n));
    snprintf(names, sizeof names, "%.*s", p->name_bytes, "weights_");
    fill_floats(seed, weights, p->k * p->n);
    onnx_constant(w, names, ATTNRUN_F32, dims, weights);
    fill_floats(seed, weights, p->n);
    snprintf(dims, sizeof dims, "%lld", (long long)p->n);
    onnx_constant(w, "bias", ATTNRUN_F32, dims, weights);
    snprintf(names, sizeof names, "x,%.*s", p->name_bytes, "weights_");
    onnx_node(w, p->op, names, "product");
    if (p->transposed)
        onnx_attr_int(w, "transB", 1);
    onnx_node(w, p->bias ? "Add" : "Identity", p->bias ? "product,bias" : "product",
              "sum");
    onnx_node(w, "Relu", "sum", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    return w;
}

/* The output of a run, and the bytes that were packed for it. */
static void run_product(attnrun_runtime *runtime, const struct product *p, uint64_t seed,
                        uint32_t flags, float *y, int64_t *packed_bytes)
{
    static float x[MAX_M * MAX_K];
    char dims[64];
    attnrun_model *model = open_model(runtime, write_product(p, &seed), flags);
    attnrun_context *context = make_context(model);
    fill_floats(&seed, x, p->m * p->k);
    snprintf(dims, sizeof dims, "%lld,%lld", (long long)p->m, (long long)p->k);
    attnrun_plan_info info = { .struct_size = sizeof info };
    const attnrun_tensor input = tensor_of(ATTNRUN_F32, dims, x);
    OK(attnrun_plan(context, &input, &info));
    OK(attnrun_set_input(context, 0, &input));
    OK(attnrun_run(context, NULL));
    *packed_bytes = info.packed_bytes;
    attnrun_tensor output = get_output(context, 0);
    assert_int_equal(attnrun_tensor_count(&output), p->m * p->n);
    memcpy(y, output.data, (size_t)(p->m * p->n) * sizeof *y);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static void test_bits_are_those_of_packed_matrices(void **state)
{
    (void)state;
    static float packed[MAX_M * MAX_N], in_place[MAX_M * MAX_N];
    uint64_t seed = test_seed();
    struct test_memory memory;
    test_memory_init(&memory);
    for (int which = 0; which < 4; which++) {
        static const char *const isas[] = { NULL, "base", "avx2", NULL };
        const attnrun_runtime_options options = { .struct_size = sizeof options,
                                                  .threads = which < 3 ? 1 : 2,
                                                  .isa = isas[which],
                                                  .allocator = &memory.allocator };
        attnrun_runtime *runtime;
        const attnrun_status status = attnrun_runtime_create(&options, &runtime);
        if (status != ATTNRUN_OK && which == 2)
            continue; /* this CPU has no AVX2 */
        OK(status);
        for (int64_t i = 0; i < rounds(60, 1000); i++) {
            int64_t bytes, bytes_in_place;
            const uint64_t from = seed;
            const struct product p = draw(&seed);
            run_product(runtime, &p, seed, 0, packed, &bytes);
            run_product(runtime, &p, seed, ATTNRUN_IN_PLACE, in_place, &bytes_in_place);
            if (memcmp(packed, in_place, (size_t)(p.m * p.n) * sizeof *packed) != 0 ||
                bytes < p.k * p.n * 4 || bytes_in_place != (p.transposed ? bytes : 0))
                fail_msg("seed %llu, isa %s: %s of %lld x %lld x %lld%s: other bits, or "
                         "%lld and "
                         "%lld bytes are packed",
                         (unsigned long long)from, isas[which] ? isas[which] : "best",
                         p.op, (long long)p.m, (long long)p.k, (long long)p.n,
                         p.transposed ? " transposed" : "", (long long)bytes,
                         (long long)bytes_in_place);
        }
        attnrun_runtime_destroy(runtime);
    }
    test_memory_check(&memory);
}

/* What stays needs no memory of its own: the plan says so, and it is what is held. */
static void test_memory_is_what_the_plan_says(void **state)
{
    (void)state;
    const struct product p = {
        .m = 3, .k = 800, .n = 150, .op = "MatMul", .name_bytes = 3
    };
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    uint64_t seed = 1;
    attnrun_model *model =
        open_model(runtime, write_product(&p, &seed), ATTNRUN_IN_PLACE);
    attnrun_model_need need = { .struct_size = sizeof need };
    static float x[3 * 800];
    attnrun_tensor input = tensor_of(ATTNRUN_F32, "3,800", x);
    OK(attnrun_model_plan(model, &input, &need));
    assert_int_equal(need.packed_bytes, 0);
    assert_int_equal(need.constants_bytes, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_set_input(context, 0, &input));
    OK(attnrun_run(context, NULL));
    attnrun_runtime_info info = { .struct_size = sizeof info };
    OK(attnrun_runtime_query(runtime, &info));
    assert_int_equal(info.peak_memory, need.total_bytes);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

static int32_t write_nowhere(void *user, const void *bytes, uint64_t n)
{
    (void)user;
    (void)bytes;
    (void)n;
    return 0;
}

static void test_is_not_saved_as_a_packed_file(void **state)
{
    (void)state;
    const struct product p = { .m = 3, .k = 8, .n = 5, .op = "MatMul", .name_bytes = 3 };
    uint64_t seed = 1;
    attnrun_model *model = open_model(NULL, write_product(&p, &seed), ATTNRUN_IN_PLACE);
    FAILS(ATTNRUN_E_UNSUPPORTED, "ATTNRUN_IN_PLACE",
          attnrun_model_save(model, write_nowhere, NULL));
    attnrun_model_release(model);
}

/* A run may compute the body of a Loop many times: its matrices are packed. */
static void test_matrices_of_subgraphs_are_packed(void **state)
{
    (void)state;
    enum { N = 64 };
    static float weights[N * N], x[N];
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "1,64");
    onnx_node(w, "Loop", "n,,x", "y");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "go", ATTNRUN_BOOL, "");
    onnx_input(w, "v", ATTNRUN_F32, "1,64");
    for (int i = 0; i < N; i++)
        weights[i * N + i] = 0.5f;
    onnx_constant(w, "weights", ATTNRUN_F32, "64,64", weights);
    onnx_node(w, "Identity", "go", "go_on");
    onnx_node(w, "MatMul", "v,weights", "v1");
    onnx_output(w, "go_on", ATTNRUN_BOOL, "");
    onnx_output(w, "v1", ATTNRUN_F32, "1,64");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "1,64");
    attnrun_model *model = open_model(NULL, w, ATTNRUN_IN_PLACE);
    attnrun_context *context = make_context(model);
    int64_t n = 3;
    x[5] = 8.0f;
    attnrun_tensor inputs[] = { tensor_of(ATTNRUN_I64, "", &n),
                                tensor_of(ATTNRUN_F32, "1,64", x) };
    attnrun_plan_info info = { .struct_size = sizeof info };
    OK(attnrun_plan(context, inputs, &info));
    assert_true(info.packed_bytes >= N * N * 4);
    for (int32_t i = 0; i < 2; i++)
        OK(attnrun_set_input(context, i, &inputs[i]));
    OK(attnrun_run(context, NULL));
    const attnrun_tensor y = get_output(context, 0);
    assert_true(((const float *)y.data)[5] == 1.0f);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

struct bytes {
    char *data;
    size_t n, room;
};

static int32_t keep_bytes(void *user, const void *data, uint64_t n)
{
    struct bytes *bytes = user;
    if (bytes->n + n > bytes->room)
        return 1;
    memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return 0;
}

/* What is packed in a packed file is used as it is. */
static void test_packed_file_is_used_as_it_was_packed(void **state)
{
    (void)state;
    const struct product p = {
        .m = 3, .k = 64, .n = 50, .op = "MatMul", .name_bytes = 3
    };
    struct bytes file = { .data = aligned_alloc(64, 1 << 20), .room = 1 << 20 };
    uint64_t seed = 1;
    float x[3 * 64];
    fill_floats(&seed, x, 3 * 64);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *models[2];
    attnrun_context *contexts[2];
    models[0] = open_model(runtime, write_product(&p, &seed), 0);
    OK(attnrun_model_save(models[0], keep_bytes, &file));
    OK(open_bytes(runtime, (const uint8_t *)file.data, file.n, ATTNRUN_IN_PLACE,
                  &models[1]));
    for (int i = 0; i < 2; i++) {
        contexts[i] = make_context(models[i]);
        set_input(contexts[i], 0, ATTNRUN_F32, "3,64", x);
        OK(attnrun_run(contexts[i], NULL));
    }
    const attnrun_tensor a = get_output(contexts[0], 0), b = get_output(contexts[1], 0);
    assert_memory_equal(a.data, b.data, 3 * 50 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        attnrun_context_destroy(contexts[i]);
        attnrun_model_release(models[i]);
    }
    attnrun_runtime_destroy(runtime);
    free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_packed_matrices),
        cmocka_unit_test(test_memory_is_what_the_plan_says),
        cmocka_unit_test(test_is_not_saved_as_a_packed_file),
        cmocka_unit_test(test_matrices_of_subgraphs_are_packed),
        cmocka_unit_test(test_packed_file_is_used_as_it_was_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_chain.c - FusedElementwise gives the bits of the nodes that it was made of: random
 * graphs of elementwise operators, over operands of all shapes that broadcast. */
#include "harness.h"

#include <math.h>

enum { MAX_INPUTS = 14, MAX_NODES = 16, MAX_ELEMENTS = 20000 };

struct graph {
    struct onnx_writer *w;
    uint64_t seed;
    int rank, n_inputs, n_values;
    int64_t dims[4];
    char input_dims[MAX_INPUTS][32]; /* as numbers */
};

static int64_t below(struct graph *g, int64_t n)
{
    g->seed = g->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((g->seed >> 33) % (uint64_t)n);
}

/* The dims that all operands are broadcast to. */
static void choose_dims(struct graph *g)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 16, 31, 200, 255, 1030 };
    int64_t n = 1;
    g->rank = (int)below(g, 5);
    for (int d = 0; d < g->rank; d++) {
        int64_t size = sizes[below(g, sizeof sizes / sizeof *sizes)];
        if (below(g, 60) == 0)
            size = 0;
        g->dims[d] = size > 0 && n * size > MAX_ELEMENTS ? 1 : size;
        n *= g->dims[d] > 0 ? g->dims[d] : 1;
    }
}

/* All dims, or fewer, some of them 1; symbols in the file where `symbolic`. */
static void add_input(struct graph *g, int32_t dtype, bool symbolic)
{
    char name[8], text[64] = "";
    char *numbers = g->input_dims[g->n_inputs];
    bool whole = below(g, 3) == 0;
    int first = whole || g->rank == 0 ? 0 : (int)below(g, g->rank + 1);
    numbers[0] = 0;
    for (int d = first; d < g->rank; d++) {
        bool one = !whole && below(g, 3) == 0;
        const char *comma = d > first ? "," : "";
        char dim[24];
        snprintf(dim, sizeof dim, "%s%lld", comma, one ? 1LL : (long long)g->dims[d]);
        strcat(numbers, dim);
        if (symbolic && !one && below(g, 2))
            snprintf(dim, sizeof dim, "%sD%d", comma, d);
        strcat(text, dim);
    }
    snprintf(name, sizeof name, "v%d", g->n_values);
    onnx_input(g->w, name, dtype, text);
    g->n_inputs++;
    g->n_values++;
}

static const char *operand(struct graph *g)
{
    static char names[4][16];
    static int next;
    char *name = names[next++ % 4];
    int k = below(g, 3) ? g->n_values - 1 - (int)below(g, 3) : (int)below(g, g->n_values);
    if (below(g, 6) == 0)
        snprintf(name, sizeof names[0], "c%d", (int)below(g, 6));
    else
        snprintf(name, sizeof names[0], "v%d", k < 0 ? 0 : k);
    return name;
}

static void add_node(struct graph *g)
{
    static const char *const unary[] = {
        "Abs",   "Neg",   "Exp", "Relu",      "Sigmoid",   "Tanh",
        "Sqrt",  "Erf",   "Elu", "Softplus",  "LeakyRelu", "HardSigmoid",
        "Floor", "Round", "Log", "Reciprocal"
    };
    static const char *const binary[] = { "Add", "Sub", "Mul", "Div",
                                          "Max", "Min", "Add", "Mul" };
    char in[64], out[8];
    int64_t kind = below(g, 12);
    snprintf(out, sizeof out, "v%d", g->n_values);
    if (kind < 4) {
        snprintf(in, sizeof in, "v%d", g->n_values - 1);
        onnx_node(g->w, unary[below(g, 16)], in, out);
    } else if (kind < 9) {
        snprintf(in, sizeof in, "%s,%s", operand(g), operand(g));
        onnx_node(g->w, binary[below(g, 8)], in, out);
    } else if (kind == 9) {
        static const char *const exponents[] = { "two", "three", "half", "c1" };
        snprintf(in, sizeof in, "v%d,%s", g->n_values - 1, exponents[below(g, 4)]);
        onnx_node(g->w, "Pow", in, out);
    } else if (kind == 10) {
        snprintf(in, sizeof in, "b%d,%s,%s", (int)below(g, 2), operand(g), operand(g));
        onnx_node(g->w, "Where", in, out);
    } else {
        snprintf(in, sizeof in, "%s,%s,v%d", operand(g), operand(g), g->n_values - 1);
        onnx_node(g->w, below(g, 2) ? "Sum" : below(g, 2) ? "Max" : "Mean", in, out);
    }
    g->n_values++;
}

static uint8_t *write_graph(struct graph *g, size_t *bytes)
{
    static const float values[6] = { 0.5f, -2, 1e-3f, 3, 0, -0.25f };
    char name[16];
    g->w = onnx_begin(17);
    choose_dims(g);
    bool symbolic = below(g, 2);
    for (int64_t i = 1 + below(g, below(g, 4) ? 4 : MAX_INPUTS - 3); i > 0; i--)
        add_input(g, ATTNRUN_F32, symbolic);
    int n_floats = g->n_values;
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "c%d", i);
        onnx_float(g->w, name, values[i]);
    }
    onnx_float(g->w, "two", 2);
    onnx_float(g->w, "three", 3);
    onnx_float(g->w, "half", 0.5f);
    onnx_node(g->w, "Less", "v0,c0", "b0");
    snprintf(name, sizeof name, "v%d", n_floats - 1);
    onnx_node(g->w, "IsNaN", name, "b1");
    for (int64_t i = 2 + below(g, MAX_NODES - 2); i > 0; i--)
        add_node(g);
    snprintf(name, sizeof name, "v%d", g->n_values - 1);
    onnx_output(g->w, name, ATTNRUN_F32, NULL);
    if (below(g, 3) == 0 && g->n_values - 2 >= n_floats) {
        snprintf(name, sizeof name, "v%d", g->n_values - 2);
        onnx_output(g->w, name, ATTNRUN_F32, NULL);
    }
    return onnx_end(g->w, bytes);
}

struct result {
    attnrun_tensor tensors[2];
    float *data[2];
    int n, fused;
};

static int count_fused(const attnrun_model *model)
{
    const char *name;
    int32_t applied;
    for (int32_t i = 0; attnrun_model_pass(model, i, &name, &applied) == ATTNRUN_OK; i++)
        if (strcmp(name, "elementwise_chain") == 0)
            return applied;
    return -1;
}

static void run_graph(const struct graph *g, const uint8_t *file, size_t bytes,
                      const char *disable, int threads, struct result *result)
{
    static float data[MAX_INPUTS][MAX_ELEMENTS];
    struct test_memory memory;
    attnrun_model *model;
    uint64_t seed = g->seed;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, threads);
    attnrun_source source = { .struct_size = sizeof source,
                              .data = file,
                              .bytes = bytes,
                              .disable_passes = disable };
    OK(attnrun_model_open(runtime, &source, &model));
    attnrun_context *context = make_context(model);
    for (int i = 0; i < g->n_inputs; i++) {
        fill_floats(&seed, data[i], MAX_ELEMENTS);
        set_input(context, i, ATTNRUN_F32, g->input_dims[i], data[i]);
    }
    OK(attnrun_run(context, NULL));
    attnrun_model_info info = { .struct_size = sizeof info };
    OK(attnrun_model_query(model, &info));
    result->n = info.n_outputs;
    for (int i = 0; i < result->n; i++) {
        result->tensors[i] = get_output(context, i);
        int64_t n = attnrun_tensor_bytes(&result->tensors[i]);
        result->data[i] = malloc((size_t)n + 1);
        assert_non_null(result->data[i]);
        memcpy(result->data[i], result->tensors[i].data, (size_t)n);
    }
    result->fused = count_fused(model);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* The sign of a NaN depends on which of two is the first operand. */
static bool same_floats(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static bool same_bits(const struct result *a, const struct result *b)
{
    for (int i = 0; i < a->n; i++) {
        const attnrun_tensor *s = &a->tensors[i], *t = &b->tensors[i];
        if (s->rank != t->rank || s->dtype != t->dtype ||
            memcmp(s->dims, t->dims, (size_t)s->rank * sizeof *s->dims) != 0 ||
            !same_floats(a->data[i], b->data[i], attnrun_tensor_count(s)))
            return false;
    }
    return a->n == b->n;
}

static void free_result(struct result *result)
{
    for (int i = 0; i < result->n; i++)
        free(result->data[i]);
}

static void test_chain_gives_the_bits_of_single_nodes(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    int fused = 0, wrong = 0;
    for (int64_t i = 0; i < rounds(150, 5000); i++) {
        struct graph g = { .seed = seed + (uint64_t)i * 7919 };
        struct result with, without;
        size_t bytes;
        uint8_t *file = write_graph(&g, &bytes);
        run_graph(&g, file, bytes, NULL, i % 2 ? 3 : 1, &with);
        run_graph(&g, file, bytes, "elementwise_chain", 1, &without);
        if (!same_bits(&with, &without)) {
            print_error("graph %lld of seed %llu: other bits\n", (long long)i,
                        (unsigned long long)seed);
            wrong++;
        }
        fused += with.fused;
        assert_int_equal(without.fused, 0);
        free_result(&with);
        free_result(&without);
        free(file);
    }
    assert_int_equal(wrong, 0);
    assert_in_range(fused, 100, 100000); /* the test is not empty */
}

/* Thirteen operands are one too many for a node. */
static void test_chain_splits_where_operands_are_many(void **state)
{
    (void)state;
    struct graph g = { .seed = test_seed() };
    struct result with, without;
    size_t bytes;
    char in[32], out[16];
    g.w = onnx_begin(17);
    g.rank = 1;
    g.dims[0] = 100;
    for (int i = 0; i < 14; i++) {
        snprintf(in, sizeof in, "v%d", i);
        snprintf(g.input_dims[i], sizeof g.input_dims[i], "100");
        onnx_input(g.w, in, ATTNRUN_F32, "N");
    }
    g.n_inputs = 14;
    for (int i = 1; i < 14; i++) {
        snprintf(in, sizeof in, "%s%d,v%d", i == 1 ? "v" : "s", i - 1, i);
        snprintf(out, sizeof out, "s%d", i);
        onnx_node(g.w, "Add", in, out);
    }
    onnx_output(g.w, "s13", ATTNRUN_F32, NULL);
    uint8_t *file = onnx_end(g.w, &bytes);
    run_graph(&g, file, bytes, NULL, 1, &with);
    run_graph(&g, file, bytes, "elementwise_chain", 1, &without);
    assert_int_equal(with.fused, 2);
    assert_true(same_bits(&with, &without));
    free_result(&with);
    free_result(&without);
    free(file);
}

/* Programs of a file that are none. */
static void test_chain_refuses_malformed_programs(void **state)
{
    (void)state;
    static const char *const programs[] = {
        "code=1,2,3",
        "code=0,0,0,0",
        "code=-1,0,0,0 numbers=0,0",
        "code=9999,0,0,0",
        "code=0,5,0,0 numbers=0,0",
        "code=0,0,1,0 numbers=0,0",
        "code=0,-1,0,0 numbers=0,0",
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        struct test_memory memory;
        attnrun_model *model;
        size_t bytes;
        test_memory_init(&memory);
        struct onnx_writer *w = onnx_begin(17);
        onnx_domain(w, "attnrun.fused");
        onnx_input(w, "x", ATTNRUN_F32, "4");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        onnx_node(w, "attnrun.fused::FusedElementwise", "x", "y");
        onnx_attrs(w, programs[i]);
        uint8_t *file = onnx_end(w, &bytes);
        attnrun_runtime *runtime = make_runtime(&memory, 1);
        FAILS(ATTNRUN_E_ATTR, "", open_bytes(runtime, file, bytes, 0, &model));
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
        free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_gives_the_bits_of_single_nodes),
        cmocka_unit_test(test_chain_splits_where_operands_are_many),
        cmocka_unit_test(test_chain_refuses_malformed_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_constants.c - constants that several nodes use are computed, packed and kept once.
 */
#include "harness.h"

enum { SIZE = 96, ROWS = 5, LAYERS = 12 };

/* A chain of products: `shared` of two weights, one after the other, else of copies of them. Every
 * other weight goes through a Transpose of its own. */
static struct onnx_writer *write_chain(bool shared, const float *w0, const float *w1)
{
    struct onnx_writer *w = onnx_begin(18);
    char weight[16], operand[16], in[16] = "x", out[16], operands[40];
    onnx_input(w, "x", ATTNRUN_F32, "5,96");
    for (int i = 0; i < LAYERS; i++) {
        snprintf(weight, sizeof weight, "w%d", shared ? i % 2 : i);
        if (!shared || i < 2)
            onnx_constant(w, weight, ATTNRUN_F32, "96,96", i % 2 ? w1 : w0);
        snprintf(operand, sizeof operand, "%s", weight);
        if (i % 2 == 1) {
            snprintf(operand, sizeof operand, "t%d", i);
            onnx_node(w, "Transpose", weight, operand);
            onnx_attrs(w, "perm=1,0");
        }
        snprintf(out, sizeof out, i == LAYERS - 1 ? "y" : "a%d", i);
        snprintf(operands, sizeof operands, "%s,%s", in, operand);
        onnx_node(w, "MatMul", operands, out);
        snprintf(in, sizeof in, "%s", out);
    }
    onnx_output(w, "y", 0, NULL);
    return w;
}

static attnrun_plan_info run_chain(bool shared, uint32_t flags, float *y)
{
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 2);
    static float w0[SIZE * SIZE], w1[SIZE * SIZE], x[ROWS * SIZE];
    uint64_t seed = 7;
    fill_floats(&seed, w0, SIZE * SIZE);
    fill_floats(&seed, w1, SIZE * SIZE);
    fill_floats(&seed, x, ROWS * SIZE);
    for (int k = 0; k < SIZE * SIZE; k++) {
        w0[k] *= 0.2f;
        w1[k] *= 0.2f;
    }
    attnrun_model *model = open_model(runtime, write_chain(shared, w0, w1), flags);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "5,96", x);
    OK(attnrun_run(context, NULL));
    attnrun_tensor out = get_output(context, 0), in = tensor_of(ATTNRUN_F32, "5,96", x);
    memcpy(y, out.data, sizeof x);
    attnrun_plan_info info = { .struct_size = sizeof info };
    OK(attnrun_plan(context, &in, &info));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    return info;
}

static void test_shared_weights_are_packed_once(void **state)
{
    (void)state;
    static float y[ROWS * SIZE], expected[ROWS * SIZE];
    const uint32_t flags[] = { 0, ATTNRUN_NO_FUSION };
    for (int i = 0; i < 2; i++) {
        attnrun_plan_info once = run_chain(true, flags[i], y);
        attnrun_plan_info each = run_chain(false, flags[i], expected);
        assert_memory_equal(y, expected, sizeof y);
        assert_int_equal(each.packed_bytes, once.packed_bytes * (LAYERS / 2));
        /* without fusion large constants are not computed at load: nothing to pack there
         */
        assert_true(once.packed_bytes >= (i == 0 ? 2 : 1) * SIZE * SIZE * 4);
    }
}

/* What only packing reads is released; what a node or a caller reads stays. */
static void test_folded_constants_end_with_packing(void **state)
{
    (void)state;
    static float y[ROWS * SIZE];
    assert_int_equal(run_chain(true, 0, y).folded_bytes, 0);

    static float w[SIZE * SIZE];
    uint64_t seed = 9;
    fill_floats(&seed, w, SIZE * SIZE);
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    struct onnx_writer *writer = onnx_begin(18);
    onnx_input(writer, "x", ATTNRUN_F32, "96,96");
    onnx_constant(writer, "w", ATTNRUN_F32, "96,96", w);
    onnx_node(writer, "Transpose", "w", "t");
    onnx_attrs(writer, "perm=1,0");
    onnx_node(writer, "MatMul", "x,t", "y");
    onnx_node(writer, "Add", "x,t", "z"); /* reads the transposed constant at run */
    onnx_output(writer, "y", 0, NULL);
    onnx_output(writer, "z", 0, NULL);
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_context *context = make_context(model);
    OK(attnrun_model_value(model, "t", &info));
    assert_non_null(info.constant);
    set_input(context, 0, ATTNRUN_F32, "96,96", w);
    OK(attnrun_run(context, NULL));
    const float *z = get_output(context, 1).data;
    for (int i = 0; i < SIZE; i++)
        for (int k = 0; k < SIZE; k++)
            assert_true(z[i * SIZE + k] == w[i * SIZE + k] + w[k * SIZE + i]);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* ---- nodes of a constant that differ in one attribute ---- */

static const struct {
    const char *node, *attrs;
} alike[] = {
    { "LeakyRelu", "alpha=0.5" },
    { "LeakyRelu", "alpha=0.25" },
    { "LeakyRelu", "alpha=0.5" },
    { "LeakyRelu", "" },
    { "Gelu", "approximate=none" },
    { "Gelu", "approximate=tanh" },
    { "Gelu", "approximate=none" },
    { "Transpose", "perm=0,1" },
    { "Transpose", "perm=1,0" },
    { "Transpose", "perm=0,1" },
    { "Softmax", "axis=0" },
    { "Softmax", "axis=1" },
    { "Softmax", "" },
    { "Elu", "alpha=0.5" },
};
enum { ALIKE = sizeof alike / sizeof *alike };

/* Each of the constant and of the input, which is the same: so are the outputs, whichever nodes
 * share what is computed at load. */
static void test_nodes_that_differ_in_an_attribute(void **state)
{
    static float x[16];
    uint64_t seed = 31;
    char in[16], out[16];
    (void)state;
    fill_floats(&seed, x, 16);
    struct onnx_writer *w = onnx_begin(20);
    onnx_input(w, "x", ATTNRUN_F32, "4,4");
    onnx_constant(w, "c", ATTNRUN_F32, "4,4", x);
    for (int k = 0; k < 2 * ALIKE; k++) {
        snprintf(in, sizeof in, "%s", k % 2 == 0 ? "c" : "x");
        snprintf(out, sizeof out, "y%d", k);
        onnx_node(w, alike[k / 2].node, in, out);
        onnx_attrs(w, alike[k / 2].attrs);
        onnx_output(w, out, ATTNRUN_F32, NULL);
    }
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "4,4", x);
    OK(attnrun_run(context, NULL));
    for (int k = 0; k < ALIKE; k++) {
        const attnrun_tensor folded = get_output(context, 2 * k),
                             computed = get_output(context, 2 * k + 1);
        assert_int_equal(attnrun_tensor_bytes(&folded), sizeof x);
        assert_memory_equal(folded.data, computed.data, sizeof x);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* Large indices that are made of few numbers wait until passes had a look: then they, and what is
 * made of them, are constants as others are. */
static void test_postponed_constants_are_folded(void **state)
{
    enum { MANY = 200000 };
    int64_t five = 5, shape = MANY, one = 1;
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_I64, "1");
    onnx_constant(w, "c", ATTNRUN_I64, "1", &five);
    onnx_constant(w, "shape", ATTNRUN_I64, "1", &shape);
    onnx_node(w, "Expand", "c,shape", "many");
    onnx_node(w, "Neg", "many", "less");
    onnx_node(w, "Add", "less,x", "y");
    onnx_output(w, "y", 0, NULL);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_value_info info = { .struct_size = sizeof info };
    OK(attnrun_model_value(model, "less", &info));
    assert_non_null(info.constant);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_I64, "1", &one);
    OK(attnrun_run(context, NULL));
    const int64_t *y = get_output(context, 0).data;
    for (int i = 0; i < MANY; i++)
        assert_true(y[i] == one - five);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* The first value of a branch, of numbers that the plan knows and load does not: they come from
 * the shape of x. */
static void test_first_values_of_branches_are_planned(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 2);
    struct onnx_writer *w = onnx_begin(18);
    uint8_t yes = 1;
    float x[16] = { 0 };
    (void)state;
    onnx_input(w, "x", ATTNRUN_F32, "N,M");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_node(w, "Shape", "x", "shape");
    onnx_node(w, "Cast", "shape", "sizes");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Sqrt", "sizes", "root");
    onnx_output(w, "root", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Neg", "sizes", "less");
    onnx_output(w, "less", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "2");
    attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
    attnrun_context *context = make_context(model);
    for (int rows = 1; rows <= 4; rows += 3) {
        set_input(context, 0, ATTNRUN_F32, rows == 1 ? "1,16" : "4,4", x);
        set_input(context, 1, ATTNRUN_BOOL, "", &yes);
        OK(attnrun_run(context, NULL));
        const float *y = get_output(context, 0).data;
        assert_true(y[0] == (rows == 1 ? 1 : 2) && y[1] == (rows == 1 ? 4 : 2));
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_differ_in_an_attribute),
        cmocka_unit_test(test_shared_weights_are_packed_once),
        cmocka_unit_test(test_folded_constants_end_with_packing),
        cmocka_unit_test(test_postponed_constants_are_folded),
        cmocka_unit_test(test_first_values_of_branches_are_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

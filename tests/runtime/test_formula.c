/* test_formula.c - rows that are formulas (expand()): what they compute, what they say of a
 * mistake, and whose rows their nodes run. */
#include "harness.h"

#include <math.h>

/* ---- rows of the caller: "y" of "x" by a text that a test sets ---- */

static attnrun_status same_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status user_expand(const attnrun_step *step, attnrun_body *body)
{
    static const int64_t many[1000];
    int64_t list[] = { 1, 0 };
    attnrun_body_number(body, "tenth", 0.125);
    attnrun_body_ints(body, "list", 2, list);
    list[0] = 0; /* the memory is used for another list */
    attnrun_body_ints(body, "first", 1, list);
    for (int32_t out = -1; out <= 1; out += 2) /* which the node does not have */
        attnrun_body_output(body, out < 0 ? "before" : "behind", out * 100000000);
    attnrun_body_ints(body, "long", 1000, many);
    attnrun_body_ints(body, "negative", -1, many);
    return attnrun_body_add(body, step->node->op->user);
}

static attnrun_op_def formula_row(const char *text)
{
    return (attnrun_op_def){ .struct_size = sizeof(attnrun_op_def),
                             .domain = "test",
                             .name = "Formula",
                             .since = 1,
                             .inputs = "x:T low:T? high:T?",
                             .outputs = "y:T",
                             .types = "T=f32",
                             .infer = same_infer,
                             .expand = user_expand,
                             .user = (void *)(uintptr_t)text };
}

static struct onnx_writer *write_one(const char *op, const char *inputs, const char *dims)
{
    struct onnx_writer *w = onnx_begin(28);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, dims);
    onnx_float(w, "one", 1);
    onnx_node(w, op, inputs, "y");
    onnx_node_name(w, "call");
    onnx_output(w, "y", ATTNRUN_F32, dims);
    return w;
}

static attnrun_status open_writer(attnrun_runtime *runtime, struct onnx_writer *w,
                                  uint32_t flags, attnrun_model **model)
{
    size_t bytes;
    uint8_t *data = onnx_end(w, &bytes);
    attnrun_status status = open_bytes(runtime, data, bytes, flags, model);
    free(data);
    return status;
}

static void run_on(attnrun_model *model, const char *dims, float *x, float *y)
{
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, dims, x);
    OK(attnrun_run(context, NULL));
    attnrun_tensor out = get_output(context, 0);
    memcpy(y, out.data, (size_t)attnrun_tensor_count(&out) * sizeof *y);
    attnrun_context_destroy(context);
}

/* What a formula makes of x = { 3, -5 }, with fusion and without. */
static void check_formula(const char *text, const char *inputs, float y0, float y1)
{
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    const attnrun_op_def row = formula_row(text);
    OK(attnrun_register_op(runtime, &row));
    for (uint32_t flags = 0; flags <= ATTNRUN_NO_FUSION; flags += ATTNRUN_NO_FUSION) {
        float x[2] = { 3, -5 }, y[2];
        attnrun_model *model;
        OK(open_writer(runtime, write_one("test::Formula", inputs, "2"), flags, &model));
        run_on(model, "2", x, y);
        if (fabsf(y[0] - y0) > 0 || fabsf(y[1] - y1) > 0)
            fail_msg("'%s' gives %g and %g, expected %g and %g", text, (double)y[0],
                     (double)y[1], (double)y0, (double)y1);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

static void test_formula_computes_what_it_says(void **state)
{
    (void)state;
    check_formula("y = x", "x", 3, -5);
    check_formula("y = 7 + 0 * x", "x", 7, 7);
    check_formula("y = 2 - -x * (x + 1) / 4 - 1", "x", 4, 6);
    check_formula("y = x - 1 - x / 2 * 3", "x", -2.5f, 1.5f);
    check_formula("a = x + x; a = a * a; y = a - x", "x", 33, 105);
    check_formula("y = LeakyRelu<alpha=tenth>(x) * tenth", "x", 0.375f, -0.078125f);
    check_formula("y = LeakyRelu<alpha=2>(x)", "x", 3, -10);
    check_formula("a, b = Split<num_outputs=2, axis=0>(x); y = Concat<axis=0>(b, a)", "x",
                  -5, 3);
    check_formula("a = Reshape(x, [2,1]); b = Transpose<perm=list>(a);"
                  "y = Reshape(b, [-1]) + ReduceSum<keepdims=0>(x)",
                  "x", 1, -7);
    check_formula("y = Reshape(Unsqueeze(x, first), [2]) + Gather<axis=0>(x, list)", "x",
                  -2, -2);
    check_formula("before = x; behind = before + x; y = behind - before", "x", 3, -5);
    check_formula("y = DepthToSpace<mode=\"DCR\", blocksize=1>(Reshape(x, [1,1,1,2]));"
                  "y = Reshape(y, [2])",
                  "x", 3, -5);
    check_formula("y = Clip(x, low, high)", "x,,one", 1, -5);
    check_formula("y = Clip(x, low, high)", "x,one", 3, 1);
}

static void test_formula_that_is_malformed_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "y",
        "= x",
        "y = ",
        "y = (x",
        "y = x)",
        "y = x +",
        "y = x x",
        "y = x ? x",
        "y = other",
        "y = y",
        "y = Neg(x",
        "y = Neg<axis(x)",
        "y = Neg<axis=x>(x)",
        "y = x, x",
        "a, b = x; y = x",
        "y = ((((((((((((((((((((((((((x))))))))))))))",
        "y = LeakyRelu<alpha=\"1>(x)",
        "y = Transpose<perm=[1,0>(x)",
        "y = x;",
        "y = Reshape(x, [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])",
        ("y = x-(x-(x-(x-(x-(x-(x-(x-(x-(x-(x-(x-(x-"
         "(x-(x-(x-(x-(x-(x-(x-(x-(x-(x-(x-(x-(x"
         "))))))))))))))))))))))))))"),
        "y = Concat<axis=0>(x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x)",
        "y = LeakyRelu<alpha=nothing>(x)",
        "y = LeakyRelu<alpha=x>(x)",
        "y = Transpose<perm=x>(x)",
        "y = Transpose<perm=long>(x)",
        "y = Transpose<perm=negative>(x)",
        "y = Neg<a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1>(x)",
        "a, b, c, d, e, f, g, h, i = Neg(x); y = a",
        "y = Neg x",
        "y = Neg{x}",
        "a_name_that_is_much_longer_than_names_in_formulas_may_ever_be_here = x; y = x",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        attnrun_model *model;
        const attnrun_op_def row = formula_row(texts[i]);
        OK(attnrun_register_op(runtime, &row));
        print_message("%s\n", texts[i]);
        FAILS(ATTNRUN_E_INTERNAL, "node 'call' (Formula): its formula",
              open_writer(runtime, write_one("test::Formula", "x", "2"), 0, &model));
        attnrun_runtime_destroy(runtime);
    }
}

static void test_formula_names_the_operator_that_fails(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
        attnrun_status status;
    } cases[] = {
        { "y = Reshape(x, [3])", "node 'call/Reshape' (Reshape of Formula)",
          ATTNRUN_E_SHAPE },
        { "y = Nothing(x)", "there is no operator Nothing", ATTNRUN_E_UNSUPPORTED },
        { "y = LeakyRelu<alpha=list>(x)", "'alpha' is ints, expected a float",
          ATTNRUN_E_ATTR },
        { "a, b = Neg(x); y = a", "it has 2 outputs", ATTNRUN_E_MODEL },
        { "z = Neg(x)", "node 'call' (Formula): its formulas give no output 0",
          ATTNRUN_E_INTERNAL },
        { "y = test.Formula(x)", "formulas are nested", ATTNRUN_E_LIMIT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        attnrun_model *model;
        const attnrun_op_def row = formula_row(cases[i].text);
        OK(attnrun_register_op(runtime, &row));
        FAILS(cases[i].status, cases[i].sentence,
              open_writer(runtime, write_one("test::Formula", "x", "2"), 0, &model));
        attnrun_runtime_destroy(runtime);
    }
}

/* ---- whose rows run ---- */

static attnrun_status nines_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    for (int64_t i = 0; i < attnrun_tensor_count(&step->y[0]); i++)
        ((float *)step->y[0].data)[i] = 9;
    return ATTNRUN_OK;
}

static attnrun_op_def nines_row(const char *name, int32_t since, const char *inputs)
{
    return (attnrun_op_def){ .struct_size = sizeof(attnrun_op_def),
                             .domain = "",
                             .name = name,
                             .since = since,
                             .inputs = inputs,
                             .outputs = "y:T",
                             .types = "T=f32",
                             .infer = same_infer,
                             .run = nines_run };
}

static void check_swiglu(attnrun_runtime *runtime, float y0, float y1)
{
    float x[2] = { 0, 40 }, y[2]; /* swish(40) is 40 */
    attnrun_model *model;
    OK(open_writer(runtime, write_one("SwiGLU", "x,x", "2"), 0, &model));
    run_on(model, "2", x, y);
    assert_true(fabsf(y[0] - y0) <= 0 && fabsf(y[1] - y1) <= 0);
    attnrun_model_release(model);
}

static void test_formula_of_the_library_runs_its_own_rows(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    const attnrun_op_def mul = nines_row("Mul", 7, "a:T b:T");
    const attnrun_op_def swiglu = nines_row("SwiGLU", 28, "a:T b:T");
    const attnrun_op_def row = formula_row("y = x * x");
    OK(attnrun_register_op(runtime, &mul));
    OK(attnrun_register_op(runtime, &row));
    check_swiglu(runtime, 0, 1600);
    attnrun_model
        *model; /* a formula of the caller runs what the caller has registered */
    float x[2] = { 3, -5 }, y[2];
    OK(open_writer(runtime, write_one("test::Formula", "x", "2"), 0, &model));
    run_on(model, "2", x, y);
    assert_true(fabsf(y[0] - 9) <= 0 && fabsf(y[1] - 9) <= 0);
    attnrun_model_release(model);
    OK(attnrun_register_op(runtime, &swiglu));
    check_swiglu(runtime, 9, 9);
    attnrun_runtime_destroy(runtime);
}

static void test_formula_shows_whose_part_a_node_is(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model;
    OK(open_writer(runtime, write_one("SwiGLU", "x,x", "2"), ATTNRUN_NO_FUSION, &model));
    attnrun_model_info about = { .struct_size = sizeof about };
    OK(attnrun_model_query(model, &about));
    assert_true(about.n_nodes >= 2);
    for (int32_t n = 0; n < about.n_nodes; n++) {
        attnrun_node_info info = { .struct_size = sizeof info };
        OK(attnrun_model_node(model, n, &info));
        assert_string_equal(info.function, "SwiGLU");
        assert_int_equal(info.coverage, ATTNRUN_NATIVE);
        assert_int_equal(strncmp(info.name, "call/", 5), 0);
    }
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- shapes that are known late, old opsets, subgraphs ---- */

static void test_formula_checks_dims_that_come_at_run(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(28);
    float x[6] = { 40, 40, 40, 40, 40, 40 };
    onnx_input(w, "a", ATTNRUN_F32, "N,2");
    onnx_input(w, "b", ATTNRUN_F32, "M,2");
    onnx_node(w, "SwiGLU", "a,b", "y");
    onnx_node_name(w, "gate");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "3,2", x);
    set_input(context, 1, ATTNRUN_F32, "3,2", x);
    OK(attnrun_run(context, NULL));
    attnrun_tensor y = get_output(context, 0);
    assert_int_equal(attnrun_tensor_count(&y), 6);
    assert_true(((float *)y.data)[5] >= 1600 && ((float *)y.data)[5] <= 1600);
    set_input(context, 1, ATTNRUN_F32, "1,2", x); /* Mul alone would repeat it */
    FAILS(ATTNRUN_E_SHAPE, "node 'gate/CheckDims' (CheckDims of SwiGLU): input 0",
          attnrun_run(context, NULL));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* LpNormalization is in opset 1; its formula uses forms of operators that came later. */
static void test_formula_is_known_at_old_opsets_and_in_subgraphs(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    for (int64_t opset = 1; opset <= 22; opset += 7) {
        float x[2] = { 3, -4 }, y[2];
        uint8_t yes = 1;
        struct onnx_writer *w = onnx_begin(opset);
        onnx_input(w, "x", ATTNRUN_F32, "1,2");
        onnx_constant(w, "yes", ATTNRUN_BOOL, "", &yes);
        onnx_node(w, "LpNormalization", "x", "n");
        onnx_node(w, "If", "yes", "y");
        onnx_graph(w, "then_branch");
        onnx_node(w, "LpNormalization", "n", "t");
        onnx_output(w, "t", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_graph(w, "else_branch");
        onnx_node(w, "Identity", "n", "e");
        onnx_output(w, "e", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(runtime, w, ATTNRUN_NO_FUSION);
        run_on(model, "1,2", x, y);
        assert_true(fabsf(y[0] - 0.6f) < 1e-6f && fabsf(y[1] + 0.8f) < 1e-6f);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
}

/* ---- types of numbers ---- */

static attnrun_status number_expand(const attnrun_step *step, attnrun_body *body)
{
    const int32_t dtype = step->in[0].dtype;
    const bool moves = dtype == ATTNRUN_F16 || dtype == ATTNRUN_BF16;
    return attnrun_body_add(body, moves ? "y = Reshape(2, [1])" : "y = Max(x, 2)");
}

static attnrun_status nothing_expand(const attnrun_step *step, attnrun_body *body)
{
    (void)step;
    (void)body;
    return ATTNRUN_OK;
}

/* y of x[1], whose type is `dtype`, by this expand(). */
static attnrun_status run_type(attnrun_runtime *runtime, int32_t dtype, void *x, void *y,
                               size_t bytes)
{
    struct onnx_writer *w = onnx_begin(21);
    onnx_domain(w, "test");
    onnx_input(w, "x", dtype, "1");
    onnx_node(w, "test::Formula", "x", "y");
    onnx_output(w, "y", dtype, "1");
    attnrun_model *model;
    const attnrun_status status = open_writer(runtime, w, 0, &model);
    if (status != ATTNRUN_OK)
        return status;
    attnrun_context *context = make_context(model);
    set_input(context, 0, dtype, "1", x);
    OK(attnrun_run(context, NULL));
    const attnrun_tensor out = get_output(context, 0);
    assert_int_equal(out.dtype, dtype);
    memcpy(y, out.data, bytes);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    return ATTNRUN_OK;
}

/* A number has the type of the first operand; not every type has numbers. */
static void test_formula_numbers_have_the_type_of_the_operand(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_op_def row = formula_row("");
    row.types = "T=all";
    row.expand = number_expand;
    OK(attnrun_register_op(runtime, &row));
    double d = -3, d_y;
    int32_t i = 1, i_y;
    int64_t l = -7, l_y;
    uint16_t f16 = 0xbc00, bf16 = 0xbf80, half_y; /* -1 */
    OK(run_type(runtime, ATTNRUN_F64, &d, &d_y, sizeof d_y));
    assert_true(d_y >= 2 && d_y <= 2);
    OK(run_type(runtime, ATTNRUN_I32, &i, &i_y, sizeof i_y));
    assert_int_equal(i_y, 2);
    OK(run_type(runtime, ATTNRUN_I64, &l, &l_y, sizeof l_y));
    assert_int_equal(l_y, 2);
    OK(run_type(runtime, ATTNRUN_F16, &f16, &half_y, sizeof half_y));
    assert_int_equal(half_y, 0x4000);
    OK(run_type(runtime, ATTNRUN_BF16, &bf16, &half_y, sizeof half_y));
    assert_int_equal(half_y, 0x4000);
    FAILS(ATTNRUN_E_INTERNAL, "its formula has a number of type b8",
          run_type(runtime, ATTNRUN_BOOL, &i, &i_y, 1));
    attnrun_runtime_destroy(runtime);
}

static void test_formula_that_writes_nothing_is_refused(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_op_def row = formula_row("");
    row.expand = nothing_expand;
    OK(attnrun_register_op(runtime, &row));
    float x = 1, y;
    FAILS(ATTNRUN_E_INTERNAL, "expand() wrote nothing",
          run_type(runtime, ATTNRUN_F32, &x, &y, sizeof y));
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula_computes_what_it_says),
        cmocka_unit_test(test_formula_that_is_malformed_is_refused),
        cmocka_unit_test(test_formula_names_the_operator_that_fails),
        cmocka_unit_test(test_formula_of_the_library_runs_its_own_rows),
        cmocka_unit_test(test_formula_shows_whose_part_a_node_is),
        cmocka_unit_test(test_formula_checks_dims_that_come_at_run),
        cmocka_unit_test(test_formula_is_known_at_old_opsets_and_in_subgraphs),
        cmocka_unit_test(test_formula_numbers_have_the_type_of_the_operand),
        cmocka_unit_test(test_formula_that_writes_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

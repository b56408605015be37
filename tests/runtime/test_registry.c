/* test_registry.c - operators of the caller: registered, run, preferred over built-in
 * ones; malformed rows refused; the listing in order. */
#include "harness.h"

/* ---- an operator: y = a * x + b, with an attribute of each common kind ---- */

struct affine_args {
    float a;
    int64_t b;
    int32_t mode; /* plus|minus */
    attnrun_ints list;
};

static const attnrun_attr_def affine_attrs[] = {
    { .name = "a",
      .kind = ATTNRUN_ATTR_FLOAT,
      .offset = offsetof(struct affine_args, a),
      .float_default = 2.0f },
    { .name = "b",
      .kind = ATTNRUN_ATTR_INT,
      .offset = offsetof(struct affine_args, b),
      .int_default = 1 },
    { .name = "mode",
      .kind = ATTNRUN_ATTR_ENUM,
      .offset = offsetof(struct affine_args, mode),
      .text = "plus|minus" },
    { .name = "list",
      .kind = ATTNRUN_ATTR_INTS,
      .offset = offsetof(struct affine_args, list) },
    { .kind = ATTNRUN_ATTR_END }
};

static attnrun_status affine_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    attnrun_step_inplace(step, 0, 0);
    return ATTNRUN_OK;
}

static attnrun_status affine_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct affine_args *args = step->args;
    const float *x = step->x[0].data;
    float *y = step->y[0].data, b = (float)args->b;
    (void)work;
    for (int64_t i = 0; i < attnrun_tensor_count(&step->x[0]); i++) {
        if (x[i] > 1000)
            return attnrun_step_fail(step, ATTNRUN_E_RANGE, "x is over 1000");
        y[i] = args->a * x[i] + (args->mode == 1 ? -b : b) + (float)args->list.n;
    }
    return ATTNRUN_OK;
}

static const attnrun_op_def affine = { .struct_size = sizeof affine,
                                       .domain = "test",
                                       .name = "Affine",
                                       .since = 1,
                                       .args_bytes = sizeof(struct affine_args),
                                       .inputs = "x:T",
                                       .outputs = "y:T",
                                       .types = "T=f32",
                                       .attrs = affine_attrs,
                                       .infer = affine_infer,
                                       .run = affine_run };

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
};

static void start(struct bench *bench)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 1);
}

static void stop(struct bench *bench)
{
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static struct onnx_writer *write_one(const char *op)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_node(w, op, "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    return w;
}

static attnrun_status run_one(attnrun_model *model, float x0, float x1, float *y)
{
    float x[2] = { x0, x1 };
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "2", x);
    attnrun_status status = attnrun_run(context, NULL);
    if (status == ATTNRUN_OK) {
        attnrun_tensor out = get_output(context, 0);
        memcpy(y, out.data, 2 * sizeof *y);
    }
    attnrun_context_destroy(context);
    return status;
}

static void check_y(const float *y, float y0, float y1)
{
    assert_true(y[0] >= y0 && y[0] <= y0 && y[1] >= y1 && y[1] <= y1);
}

static attnrun_status open_writer(struct bench *bench, struct onnx_writer *w,
                                  attnrun_model **model)
{
    size_t bytes;
    uint8_t *data = onnx_end(w, &bytes);
    attnrun_status status = open_bytes(bench->runtime, data, bytes, 0, model);
    free(data);
    return status;
}

static void test_registry_runs_a_callers_operator(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_model *model;
    float y[2];
    start(&bench);
    FAILS(ATTNRUN_E_UNSUPPORTED, "test.Affine-1",
          open_writer(&bench, write_one("test::Affine"), &model));
    OK(attnrun_register_op(bench.runtime, &affine));
    OK(open_writer(&bench, write_one("test::Affine"), &model));
    OK(run_one(model, 3, 5, y));
    check_y(y, 7, 11);
    FAILS(ATTNRUN_E_RANGE, "(Affine): x is over 1000", run_one(model, 3, 5000, y));
    attnrun_model_release(model);

    struct onnx_writer *w = write_one("test::Affine");
    onnx_attr_float(w, "a", 0.5f); /* attributes of the node written last */
    onnx_attr_int(w, "b", 10);
    onnx_attr_string(w, "mode", "minus");
    onnx_attr_ints(w, "list", 3, (int64_t[]){ 0, 0, 0 });
    OK(open_writer(&bench, w, &model));
    OK(run_one(model, 3, 5, y));
    check_y(y, -5.5f, -4.5f);
    attnrun_model_release(model);
    stop(&bench);
}

static attnrun_status both_infer(attnrun_step *step)
{
    step->out[0] = step->out[1] = step->in[0];
    attnrun_step_inplace(step, 0, 0);
    attnrun_step_view(step, 1, 0, 0);
    return ATTNRUN_OK;
}

static attnrun_status both_run(const attnrun_step *step, const attnrun_work *work)
{
    const float *x = step->x[0].data;
    (void)work;
    for (int i = 0; i < 2; i++) {
        const float x_i = x[i];
        ((float *)step->y[1].data)[i] = x_i;
        ((float *)step->y[0].data)[i] = -x_i;
    }
    return ATTNRUN_OK;
}

/* One output may overwrite the input, and the other one shows it. */
static void test_registry_a_view_is_not_overwritten(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_op_def op = affine;
    attnrun_model *model;
    float y[2];
    op.attrs = NULL;
    op.outputs = "y:T z:T";
    op.infer = both_infer;
    op.run = both_run;
    start(&bench);
    OK(attnrun_register_op(bench.runtime, &op));
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_node(w, "Exp", "x", "e");
    onnx_node(w, "test::Affine", "e", "m,p");
    onnx_node(w, "Sub", "p,m", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    model = open_model(bench.runtime, w, 0);
    OK(run_one(model, 0, 0, y));
    check_y(y, 2, 2);
    attnrun_model_release(model);
    stop(&bench);
}

static void test_registry_checks_attributes_of_nodes(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_model *model;
    start(&bench);
    OK(attnrun_register_op(bench.runtime, &affine));
    struct onnx_writer *w = write_one("test::Affine");
    onnx_attr_int(w, "a", 1);
    FAILS(ATTNRUN_E_ATTR, "attribute 'a' is an int, expected a float",
          open_writer(&bench, w, &model));
    w = write_one("test::Affine");
    onnx_attr_string(w, "mode", "times");
    FAILS(ATTNRUN_E_ATTR, "'times', expected one of plus|minus",
          open_writer(&bench, w, &model));
    w = write_one("test::Affine");
    onnx_attr_int(w, "c", 1);
    FAILS(ATTNRUN_E_ATTR, "Affine-1 has no attribute 'c'",
          open_writer(&bench, w, &model));
    w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_I32, "2");
    onnx_node(w, "test::Affine", "x", "y");
    onnx_output(w, "y", ATTNRUN_I32, "2");
    FAILS(ATTNRUN_E_DTYPE, "input 0 x 'x' is i32[2], expected f32",
          open_writer(&bench, w, &model));
    w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_node(w, "test::Affine", "x,x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    FAILS(ATTNRUN_E_MODEL, "it has 2 inputs, but Affine-1 takes 1",
          open_writer(&bench, w, &model));
    stop(&bench);
}

/* ---- rows that win over others ---- */

static attnrun_status half_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    for (int i = 0; i < 2; i++)
        ((float *)step->y[0].data)[i] = ((const float *)step->x[0].data)[i] / 2;
    return ATTNRUN_OK;
}

static void test_registry_callers_rows_win(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_model *before, *after;
    float y[2];
    attnrun_op_def half = affine, relu;
    start(&bench);
    OK(open_writer(&bench, write_one("Relu"), &before));
    relu = affine; /* the row of the same domain, name and since is replaced */
    relu.domain = "";
    relu.name = "Relu";
    relu.attrs = NULL;
    relu.args_bytes = 0;
    relu.run = half_run;
    for (int32_t i = 0;; i++) {
        const attnrun_op_def *row = attnrun_get_op(bench.runtime, i);
        assert_non_null(row);
        if (row->domain[0] == 0 && strcmp(row->name, "Relu") == 0 && row->since <= 17)
            relu.since = row->since;
        else if (relu.since > 1 || (row->domain[0] == 0 && strcmp(row->name, "Relu") > 0))
            break;
    }
    OK(attnrun_register_op(bench.runtime, &relu));
    OK(open_writer(&bench, write_one("Relu"), &after));
    OK(run_one(before, -3, 5, y)); /* a model keeps the rows that it was loaded with */
    check_y(y, 0, 5);
    OK(run_one(after, -3, 5, y));
    check_y(y, -1.5f, 2.5f);
    attnrun_model_release(before);
    attnrun_model_release(after);

    OK(attnrun_register_op(bench.runtime, &affine));
    half.run = half_run;
    half.since = 1; /* of two registered rows the later one wins */
    OK(attnrun_register_op(bench.runtime, &half));
    OK(open_writer(&bench, write_one("test::Affine"), &after));
    OK(run_one(after, 3, 5, y));
    check_y(y, 1.5f, 2.5f);
    attnrun_model_release(after);
    half.since = 2; /* newer than the model's opset of that domain: not taken */
    OK(attnrun_register_op(bench.runtime, &affine));
    OK(attnrun_register_op(bench.runtime, &half));
    OK(open_writer(&bench, write_one("test::Affine"), &after));
    OK(run_one(after, 3, 5, y));
    check_y(y, 7, 11);
    attnrun_model_release(after);
    stop(&bench);
}

/* ---- malformed rows ---- */

static void refuse(struct bench *bench, attnrun_op_def row, const char *text)
{
    FAILS(ATTNRUN_E_USAGE, text, attnrun_register_op(bench->runtime, &row));
}

static void test_registry_refuses_malformed_rows(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_op_def row;
    start(&bench);
    FAILS(ATTNRUN_E_USAGE, "NULL", attnrun_register_op(NULL, &affine));
    FAILS(ATTNRUN_E_USAGE, "attnrun_op_def is NULL",
          attnrun_register_op(bench.runtime, NULL));
#define REFUSED(text, ...) row = affine, __VA_ARGS__, refuse(&bench, row, text)
    REFUSED("struct_size", row.struct_size = 0);
    REFUSED("struct_size", row.struct_size = sizeof row - 4);
    REFUSED("struct_size", row.struct_size = 1 << 20);
    REFUSED("needs", row.struct_size = 8);
    REFUSED("needs", row.name = NULL);
    REFUSED("needs", row.name = "");
    REFUSED("needs", row.domain = NULL);
    REFUSED("needs", row.since = 0);
    REFUSED("needs", row.inputs = NULL);
    REFUSED("needs", row.outputs = NULL);
    REFUSED("needs", row.infer = NULL);
    REFUSED("operand 0 of 'x' is malformed", row.inputs = "x");
    REFUSED("operand 0 of 'x:' is malformed", row.inputs = "x:");
    REFUSED("operand 0 of ':T' is malformed", row.inputs = ":T");
    REFUSED("operand 1", row.inputs = "x:T y:U");
    REFUSED("operand 0", row.types = "T=f33");
    REFUSED("operand 0", row.types = NULL);
    REFUSED("operand 0 of 'y:nothing' is malformed", row.outputs = "y:nothing");
    REFUSED("only the last", row.inputs = "x:T* y:T");
#undef REFUSED
    stop(&bench);
}

static void test_registry_refuses_malformed_attributes(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_attr_def attrs[2] = { { .kind = ATTNRUN_ATTR_END },
                                  { .kind = ATTNRUN_ATTR_END } };
    attnrun_op_def row = affine;
    start(&bench);
    row.attrs = attrs;
    row.args_bytes = 16;
    attrs[0] = (attnrun_attr_def){ .name = NULL, .kind = ATTNRUN_ATTR_INT };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = 77 };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = -1 };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_INT, .offset = 16 };
    refuse(&bench, row, "malformed attribute");
    /* Begins inside of the args, ends behind them. */
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_INT, .offset = 12 };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_TENSOR };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_ENUM };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_INT, .offset = 3 };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_INT, .flags = 2 };
    refuse(&bench, row, "malformed attribute");
    attrs[0] = (attnrun_attr_def){ .name = "a", .kind = ATTNRUN_ATTR_INT, .offset = 8 };
    OK(attnrun_register_op(bench.runtime, &row));
    stop(&bench);
}

/* ---- the listing ---- */

static int compare(const attnrun_op_def *a, const attnrun_op_def *b)
{
    int order = strcmp(a->domain, b->domain);
    if (order == 0)
        order = strcmp(a->name, b->name);
    return order != 0 ? order : (a->since > b->since) - (a->since < b->since);
}

static void test_registry_lists_in_order(void **state)
{
    (void)state;
    static attnrun_op_def many[300];
    static char names[300][16];
    struct bench bench;
    int32_t n = 0;
    bool found = false;
    start(&bench);
    for (int i = 0; i < 300; i++) { /* makes the table grow */
        snprintf(names[i], sizeof names[i], "Op%d", i * 7919 % 300);
        many[i] = affine;
        many[i].name = names[i];
        many[i].domain = i % 3 == 0 ? "test" : i % 3 == 1 ? "a.first" : "z.last";
        OK(attnrun_register_op(bench.runtime, &many[i]));
    }
    const attnrun_op_def *last = NULL;
    for (const attnrun_op_def *row; (row = attnrun_get_op(bench.runtime, n)) != NULL;
         n++) {
        if (last != NULL)
            assert_true(compare(last, row) < 0);
        found = found || row == &many[123];
        last = row;
    }
    assert_true(found);
    assert_true(n > 400);
    assert_null(attnrun_get_op(bench.runtime, n));
    assert_null(attnrun_get_op(bench.runtime, -1));
    assert_null(attnrun_get_op(bench.runtime, INT32_MAX));
    assert_null(attnrun_get_op(NULL, 0));
    stop(&bench);
}

/* In the order in which they run, as a model counts them. */
static void test_get_pass_lists_the_names(void **state)
{
    (void)state;
    int32_t n = 0;
    while (attnrun_get_pass(n) != NULL)
        n++;
    assert_true(n > 20);
    assert_string_equal(attnrun_get_pass(0), "constant_if");
    assert_string_equal(attnrun_get_pass(n - 1), "elementwise_chain");
    assert_null(attnrun_get_pass(-1));
    assert_null(attnrun_get_pass(INT32_MAX));
}

/* Rows that come with the library pass the checks that rows of others must pass. */
/* ---- outputs that a file does not name ---- */

static int32_t seen_outputs, seen_kinds;

static attnrun_status several_infer(attnrun_step *step)
{
    seen_outputs = step->n_out;
    seen_kinds = 0;
    for (int32_t i = 0; i < step->n_out; i++) {
        seen_kinds += step->out[i].kind == ATTNRUN_TENSOR;
        step->out[i] = step->in[0];
    }
    return ATTNRUN_OK;
}

static const attnrun_op_def several = { .struct_size = sizeof several,
                                        .domain = "test",
                                        .name = "Several",
                                        .since = 1,
                                        .inputs = "x:T",
                                        .outputs = "a:T b:T? c:T d:T?",
                                        .types = "T=f32",
                                        .infer = several_infer,
                                        .run = affine_run };

/* Operators write what is not optional without a look whether it is there. */
static void test_registry_gives_outputs_that_have_no_name(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_model *model;
    start(&bench);
    OK(attnrun_register_op(bench.runtime, &several));
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_node(w, "test::Several", "x", "");
    onnx_node(w, "Relu", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    OK(open_writer(&bench, w, &model));
    assert_int_equal(seen_outputs, 3);
    assert_int_equal(seen_kinds, 2);
    attnrun_model_release(model);
    stop(&bench);
}

static void test_registry_builtin_rows_are_well_formed(void **state)
{
    (void)state;
    struct bench bench;
    const attnrun_op_def *row;
    int32_t n = 0;
    start(&bench);
    for (; (row = attnrun_get_op(bench.runtime, n)) != NULL; n++)
        OK(attnrun_register_op(bench.runtime, row));
    assert_true(n > 200);
    stop(&bench);
}

/* Each that is missing is listed once, also where its name is a part of another one. */
static void test_registry_lists_what_is_missing(void **state)
{
    (void)state;
    static const char *const missing[] = {
        "XFoo", "Foo", "Foo", "test::Foo", "XFoo", "Fo"
    };
    size_t bytes;
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        onnx_node(w, missing[i], "x", (char[]){ (char)('a' + (int)i), 0 });
    onnx_output(w, "a", ATTNRUN_F32, "N");
    uint8_t *data = onnx_end(w, &bytes);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model;
    FAILS(ATTNRUN_E_UNSUPPORTED,
          "4 operators are not supported: XFoo-17, Foo-17, test.Foo-1, Fo-17",
          open_bytes(runtime, data, bytes, 0, &model));
    free(data);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry_runs_a_callers_operator),
        cmocka_unit_test(test_registry_a_view_is_not_overwritten),
        cmocka_unit_test(test_registry_checks_attributes_of_nodes),
        cmocka_unit_test(test_registry_callers_rows_win),
        cmocka_unit_test(test_registry_refuses_malformed_rows),
        cmocka_unit_test(test_registry_refuses_malformed_attributes),
        cmocka_unit_test(test_registry_lists_in_order),
        cmocka_unit_test(test_registry_lists_what_is_missing),
        cmocka_unit_test(test_get_pass_lists_the_names),
        cmocka_unit_test(test_registry_gives_outputs_that_have_no_name),
        cmocka_unit_test(test_registry_builtin_rows_are_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

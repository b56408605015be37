/* test_reserved.c - the members `reserved` of public structs: another number than 0 is refused
 * where the library reads the struct, with one sentence, and 0 is written where it fills it. */
#include "harness.h"

/* x f32[4], s a sequence, o an optional of tensors f32 -> y = x through
 * test::Marked, the length of s, and whether o holds something. */
static struct onnx_writer *write_kinds(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_input_of(w, "s", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_input_of(w, "o", ATTNRUN_OPTIONAL, ATTNRUN_F32);
    onnx_node(w, "test::Marked", "x", "y");
    onnx_node(w, "SequenceLength", "s", "length");
    onnx_node(w, "OptionalHasElement", "o", "has");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    onnx_output(w, "length", ATTNRUN_I64, "");
    onnx_output(w, "has", ATTNRUN_BOOL, "");
    return w;
}

static int32_t in_dim, in_step; /* what infer() leaves in its members */

static attnrun_status marked_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->out[0].dims[0].reserved = in_dim;
    step->reserved = in_step;
    return ATTNRUN_OK;
}

static attnrun_status marked_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    memcpy(step->y[0].data, step->x[0].data, 16);
    return ATTNRUN_OK;
}

static const attnrun_op_def marked_op = { .struct_size = sizeof marked_op,
                                          .domain = "test",
                                          .name = "Marked",
                                          .since = 1,
                                          .inputs = "x:T",
                                          .outputs = "y:T",
                                          .types = "T=f32",
                                          .infer = marked_infer,
                                          .run = marked_run };

static attnrun_runtime *runtime;
static uint8_t *data;
static size_t n_bytes;
static float numbers[4] = { 1, 2, 3, 4 };

static int set_up(void **state)
{
    (void)state;
    runtime = make_runtime(NULL, 1);
    OK(attnrun_register_op(runtime, &marked_op));
    data = onnx_end(write_kinds(), &n_bytes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(data);
    attnrun_runtime_destroy(runtime);
    return 0;
}

/* ---- structs that the library reads ---- */

static attnrun_status open_with(int32_t reserved, attnrun_model **model)
{
    const attnrun_limits limits = { .struct_size = sizeof limits,
                                    .reserved = (uint32_t)reserved };
    const attnrun_source source = {
        .struct_size = sizeof source, .data = data, .bytes = n_bytes, .limits = &limits
    };
    return attnrun_model_open(runtime, &source, model);
}

static attnrun_status limits_have(attnrun_context *context, int32_t reserved)
{
    attnrun_model *model = NULL;
    (void)context;
    attnrun_status status = open_with(reserved, &model);
    attnrun_model_release(model);
    return status;
}

static attnrun_status dim_has(attnrun_context *context, int32_t reserved)
{
    in_dim = reserved;
    attnrun_status status = limits_have(context, 0);
    in_dim = 0;
    return status;
}

static attnrun_status step_has(attnrun_context *context, int32_t reserved)
{
    in_step = reserved;
    attnrun_status status = limits_have(context, 0);
    in_step = 0;
    return status;
}

static attnrun_status run_options_have(attnrun_context *context, int32_t reserved)
{
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .reserved = reserved };
    return attnrun_run(context, &options);
}

static attnrun_tensor marked(int32_t reserved)
{
    attnrun_tensor t = tensor_of(ATTNRUN_F32, "4", numbers);
    t.reserved = reserved;
    return t;
}

static attnrun_status input_has(attnrun_context *context, int32_t reserved)
{
    const attnrun_tensor t = marked(reserved);
    return attnrun_set_input(context, 0, &t);
}

static attnrun_status output_has(attnrun_context *context, int32_t reserved)
{
    static float made[4];
    attnrun_tensor t = tensor_of(ATTNRUN_F32, "4", made);
    t.reserved = reserved;
    return attnrun_set_output(context, 0, &t);
}

static attnrun_status set_outer(attnrun_context *context, int32_t kind, int32_t outer,
                                int32_t inner)
{
    static attnrun_tensor element;
    element = marked(inner);
    const attnrun_tensor t = { .kind = kind,
                               .dtype = ATTNRUN_F32,
                               .reserved = outer,
                               .rank = kind == ATTNRUN_SEQUENCE,
                               .dims = { kind == ATTNRUN_SEQUENCE },
                               .data = &element };
    return attnrun_set_input(context, kind == ATTNRUN_SEQUENCE ? 1 : 2, &t);
}

static attnrun_status sequence_has(attnrun_context *context, int32_t reserved)
{
    return set_outer(context, ATTNRUN_SEQUENCE, reserved, 0);
}

static attnrun_status element_has(attnrun_context *context, int32_t reserved)
{
    return set_outer(context, ATTNRUN_SEQUENCE, 0, reserved);
}

static attnrun_status optional_has(attnrun_context *context, int32_t reserved)
{
    return set_outer(context, ATTNRUN_OPTIONAL, reserved, 0);
}

static attnrun_status held_by_optional_has(attnrun_context *context, int32_t reserved)
{
    return set_outer(context, ATTNRUN_OPTIONAL, 0, reserved);
}

static attnrun_status planned_has(attnrun_context *context, int32_t reserved)
{
    attnrun_tensor element = marked(0);
    const attnrun_tensor inputs[3] = {
        marked(reserved),
        { .kind = ATTNRUN_SEQUENCE,
          .dtype = ATTNRUN_F32,
          .rank = 1,
          .dims = { 1 },
          .data = &element },
        { .kind = ATTNRUN_OPTIONAL, .dtype = ATTNRUN_F32, .data = &element }
    };
    return attnrun_plan(context, inputs, NULL);
}

static const struct {
    const char *what;
    attnrun_status (*call)(attnrun_context *context, int32_t reserved);
    attnrun_status status;
} cases[] = {
    { "attnrun_limits", limits_have, ATTNRUN_E_USAGE },
    { "attnrun_run_options", run_options_have, ATTNRUN_E_USAGE },
    { "input 0 'x'", input_has, ATTNRUN_E_USAGE },
    { "output 0", output_has, ATTNRUN_E_USAGE },
    { "input 1 's'", sequence_has, ATTNRUN_E_USAGE },
    { "input 1 's'", element_has, ATTNRUN_E_USAGE },
    { "input 2 'o'", optional_has, ATTNRUN_E_USAGE },
    { "input 2 'o'", held_by_optional_has, ATTNRUN_E_USAGE },
    { "input 0 'x'", planned_has, ATTNRUN_E_USAGE },
    { "dim 0 of output 0", dim_has, ATTNRUN_E_INTERNAL },
    { "of the step", step_has, ATTNRUN_E_INTERNAL },
};

static void test_reserved_is_refused(void **state)
{
    static const int32_t numbers_refused[] = { 1, -1, INT32_MIN, INT32_MAX, 1 << 8 };
    attnrun_model *model = NULL;
    (void)state;
    OK(open_with(0, &model));
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "4", numbers);
    OK(sequence_has(context, 0));
    OK(optional_has(context, 0));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (size_t i = 0; i < sizeof numbers_refused / sizeof *numbers_refused; i++) {
            FAILS(cases[k].status, cases[k].what,
                  cases[k].call(context, numbers_refused[i]));
            assert_non_null(strstr(attnrun_last_error()->message, "'reserved'"));
            assert_non_null(strstr(attnrun_last_error()->message, "expected 0"));
        }
        OK(cases[k].call(context, 0));
    }
    OK(attnrun_run(context, NULL)); /* what was refused changed nothing */
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* ---- structs that it fills ---- */

static int32_t drop_bytes(void *user, const void *bytes, uint64_t n)
{
    (void)user, (void)bytes, (void)n;
    return 0;
}

static void test_reserved_is_written_as_0(void **state)
{
    attnrun_model *model = NULL;
    (void)state;
    OK(open_with(0, &model));
    attnrun_model_info info = { .struct_size = sizeof info, .reserved = 7 };
    OK(attnrun_model_query(model, &info));
    assert_int_equal(info.reserved, 0);
    attnrun_context *context = make_context(model);
    OK(input_has(context, 0));
    OK(sequence_has(context, 0));
    OK(optional_has(context, 0));
    OK(attnrun_run(context, NULL));
    for (int32_t i = 0; i < 3; i++) {
        attnrun_tensor t = { .reserved = 7 };
        OK(attnrun_output(context, i, &t));
        assert_int_equal(t.reserved, 0);
    }
    attnrun_tensor made = { .reserved = 7 };
    const int64_t dims[1] = { 4 };
    OK(attnrun_tensor_make(ATTNRUN_F32, 1, dims, numbers, &made));
    assert_int_equal(made.reserved, 0);
    attnrun_context_destroy(context);
    attnrun_model_release(model);

    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_node(w, "Relu", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    size_t bytes;
    uint8_t *plain = onnx_end(w, &bytes);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = plain,
                                    .bytes = bytes };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit };
    attnrun_onnx_saved saved = { .struct_size = sizeof saved, .reserved = 7 };
    OK(attnrun_save_onnx(runtime, &source, &edit, drop_bytes, NULL, &saved));
    assert_int_equal(saved.reserved, 0);
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserved_is_refused),
        cmocka_unit_test(test_reserved_is_written_as_0),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* test_recheck.c - what infer() could not see while planning is seen at run: values that
 * do not fit the shapes planned are refused, and no output has memory that nobody wrote.
 */
#include "harness.h"

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
};

static void start_with(struct bench *bench, struct onnx_writer *w,
                       const attnrun_op_def *op)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 1);
    if (op != NULL)
        OK(attnrun_register_op(bench->runtime, op));
    bench->model = open_model(bench->runtime, w, 0);
    bench->context = make_context(bench->model);
}

static void start(struct bench *bench, struct onnx_writer *w)
{
    start_with(bench, w, NULL);
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static void check_floats(struct bench *bench, const char *dims, const float *expected)
{
    attnrun_tensor y = get_output(bench->context, 0);
    attnrun_tensor like = tensor_of(ATTNRUN_F32, dims, NULL);
    assert_int_equal(y.rank, like.rank);
    for (int i = 0; i < y.rank; i++)
        assert_int_equal(y.dims[i], like.dims[i]);
    assert_memory_equal(y.data, expected, (size_t)attnrun_tensor_bytes(&like));
}

/* The dims of x are not 1, so the result has them whatever `shape` says: a plan is made
 * without it, and is for one shape only. */
static void test_recheck_expand_to_another_shape(void **state)
{
    (void)state;
    struct bench bench;
    float x[6] = { 1, 2, 3, 4, 5, 6 };
    int64_t shape[2];
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "A,B");
    onnx_input(w, "s", ATTNRUN_I64, "2");
    onnx_node(w, "Expand", "x,s", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    start(&bench, w);
    set_input(bench.context, 0, ATTNRUN_F32, "2,3", x);
    set_input(bench.context, 1, ATTNRUN_I64, "2", shape);
    for (int turn = 0; turn < 2; turn++) {
        shape[0] = 2;
        shape[1] = turn == 0 ? 1 : 3;
        OK(attnrun_run(bench.context, NULL));
        check_floats(&bench, "2,3", x);
        shape[1] = 4;
        FAILS(ATTNRUN_E_SHAPE, "expected 1 or 4", attnrun_run(bench.context, NULL));
        shape[1] = -1;
        FAILS(ATTNRUN_E_SHAPE, "expected 0 or more", attnrun_run(bench.context, NULL));
    }
    stop(&bench);
}

static void test_recheck_reduce_of_a_scalar(void **state)
{
    (void)state;
    struct bench bench;
    float x[1] = { -2.5f };
    int64_t axes[2] = { 0, 1 };
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, NULL);
    onnx_input(w, "a", ATTNRUN_I64, "N");
    onnx_node(w, "ReduceMax", "x,a", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    start(&bench, w);
    set_input(bench.context, 0, ATTNRUN_F32, "", x);
    set_input(bench.context, 1, ATTNRUN_I64, "2", axes);
    FAILS(ATTNRUN_E_ATTR, "axis 0", attnrun_run(bench.context, NULL));
    set_input(bench.context, 1, ATTNRUN_I64, "0", axes);
    OK(attnrun_run(bench.context, NULL));
    check_floats(&bench, "", x);
    stop(&bench);
}

/* ---- an operator of a user ---- */

static int infer_calls;

/* y has the dims of x; element 0 of n is to be 7, which sets how much scratch it needs.
 */
static attnrun_status picky_infer(attnrun_step *step)
{
    attnrun_dim n;
    infer_calls++;
    step->out[0] = step->in[0];
    step->scratch_bytes = 64;
    if (!attnrun_step_value(step, 1, 0, &n))
        return ATTNRUN_OK;
    *(int64_t *)step->state = n.value;
    step->scratch_bytes = 1000 * n.value;
    return n.value == 7 ? ATTNRUN_OK
                        : attnrun_step_fail(step, ATTNRUN_E_RANGE, "n is not 7");
}

static attnrun_status picky_run(const attnrun_step *step, const attnrun_work *work)
{
    memset(work->scratch, 1, (size_t)step->scratch_bytes);
    for (int64_t i = 0; i < attnrun_tensor_count(&step->x[0]); i++)
        ((float *)step->y[0].data)[i] =
            ((const float *)step->x[0].data)[i] + (float)*(int64_t *)step->state;
    return ATTNRUN_OK;
}

static const attnrun_op_def picky = { .struct_size = sizeof picky,
                                      .domain = "test",
                                      .name = "Picky",
                                      .since = 1,
                                      .inputs = "x:f32 n:i64",
                                      .outputs = "y:f32",
                                      .state_bytes = sizeof(int64_t),
                                      .infer = picky_infer,
                                      .run = picky_run };

static void test_recheck_infers_again_with_values(void **state)
{
    (void)state;
    struct bench bench;
    float x[2] = { 1, 2 };
    int64_t n = 7;
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_node(w, "test::Picky", "x,n", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N");
    start_with(&bench, w, &picky);
    set_input(bench.context, 0, ATTNRUN_F32, "2", x);
    set_input(bench.context, 1, ATTNRUN_I64, "", &n);
    OK(attnrun_run(bench.context, NULL));
    int calls = infer_calls;
    for (int turn = 0; turn < 3; turn++) {
        OK(attnrun_run(bench.context, NULL));
        check_floats(&bench, "2", (float[]){ 8, 9 });
    }
    assert_int_equal(infer_calls, calls + 3);
    n = 8;
    FAILS(ATTNRUN_E_RANGE, "n is not 7", attnrun_run(bench.context, NULL));
    stop(&bench);
}

/* States one shape and asks for memory of another. */
static attnrun_status liar_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status liar_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t dims[1] = { 3 };
    (void)work;
    return attnrun_step_alloc(step, 0, ATTNRUN_F32, 1, dims);
}

static const attnrun_op_def liar = { .struct_size = sizeof liar,
                                     .flags = ATTNRUN_OP_DYNAMIC,
                                     .domain = "test",
                                     .name = "Liar",
                                     .since = 1,
                                     .inputs = "x:f32",
                                     .outputs = "y:f32",
                                     .infer = liar_infer,
                                     .run = liar_run };

static void test_recheck_memory_of_another_shape(void **state)
{
    (void)state;
    struct bench bench;
    float x[3] = { 1, 2, 3 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_node(w, "test::Liar", "x", "t");
    onnx_node(w, "Neg", "t", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    start_with(&bench, w, &liar);
    set_input(bench.context, 0, ATTNRUN_F32, "3", x);
    OK(attnrun_run(bench.context, NULL)); /* as it said */
    set_input(bench.context, 0, ATTNRUN_F32, "2", x);
    FAILS(ATTNRUN_E_SHAPE, "but was inferred as f32[2]",
          attnrun_run(bench.context, NULL));
    stop(&bench);
}

/* ---- bits behind the last element ---- */

/* Fresh blocks hold 0xA5, so that bits that nobody wrote are not zero. */
static void test_recheck_padding_bits_are_zero(void **state)
{
    (void)state;
    static const struct {
        int32_t dtype;
        int64_t n;
        uint8_t last;
    } cases[] = { { ATTNRUN_I4, 5, 0x0f },
                  { ATTNRUN_U4, 1, 0x01 },
                  { ATTNRUN_U2, 3, 0x3f },
                  { ATTNRUN_I2, 5, 0x01 },
                  { ATTNRUN_U4, 4, 0x33 } };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct bench bench;
        float x[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        char dims[8];
        if (cases[c].last == 0x0f) /* -1 in four bits */
            x[4] = -1;
        if (cases[c].last == 0x33)
            x[2] = x[3] = 3;
        if (cases[c].last == 0x3f)
            x[0] = x[1] = x[2] = 3;
        snprintf(dims, sizeof dims, "%d", (int)cases[c].n);
        struct onnx_writer *w = onnx_begin(25);
        onnx_input(w, "x", ATTNRUN_F32, "N");
        onnx_node(w, "Cast", "x", "y");
        onnx_attr_int(w, "to", cases[c].dtype);
        onnx_output(w, "y", cases[c].dtype, NULL);
        start(&bench, w);
        set_input(bench.context, 0, ATTNRUN_F32, dims, x);
        OK(attnrun_run(bench.context, NULL));
        attnrun_tensor y = get_output(bench.context, 0);
        int64_t bytes = attnrun_tensor_bytes(&y);
        int last = ((uint8_t *)y.data)[bytes - 1];
        if (last != cases[c].last)
            fail_msg("case %zu: the last byte is %#x, expected %#x", c, (unsigned)last,
                     (unsigned)cases[c].last);
        stop(&bench);
    }
}

/* The first three of five elements are not shown in the memory of the five: their last
 * byte has another element behind it, which stays. */
static void test_recheck_padding_of_a_slice(void **state)
{
    (void)state;
    struct bench bench;
    float x[5] = { 1, 2, 3, 4, 5 };
    static const int64_t from[1] = { 0 }, end[1] = { 3 };
    struct onnx_writer *w = onnx_begin(25);
    onnx_input(w, "x", ATTNRUN_F32, "5");
    onnx_ints(w, "from", 1, from);
    onnx_ints(w, "end", 1, end);
    onnx_node(w, "Cast", "x", "all");
    onnx_attr_int(w, "to", ATTNRUN_U4);
    onnx_node(w, "Slice", "all,from,end", "some");
    onnx_node(w, "Identity", "all", "same");
    onnx_output(w, "some", ATTNRUN_U4, NULL);
    onnx_output(w, "same", ATTNRUN_U4, NULL);
    start(&bench, w);
    set_input(bench.context, 0, ATTNRUN_F32, "5", x);
    OK(attnrun_run(bench.context, NULL));
    attnrun_tensor some = get_output(bench.context, 0);
    attnrun_tensor same = get_output(bench.context, 1);
    assert_memory_equal(some.data, ((uint8_t[]){ 0x21, 0x03 }), 2);
    assert_memory_equal(same.data, ((uint8_t[]){ 0x21, 0x43, 0x05 }), 3);
    stop(&bench);
}

/* A step that makes its outputs may know less of them at run than its plan does: the shapes of
 * captured values depend on data, and those that a Loop carries are open in each of its runs. */
static void test_recheck_of_outputs_that_are_open_at_run(void **state)
{
    (void)state;
    float x[5] = { 0, 1, 2, 0, 3 }, s = 0;
    int64_t n = 5;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_input(w, "s", ATTNRUN_F32, "");
    onnx_node(w, "NonZero", "x", "places");
    onnx_node(w, "Loop", "n,,s", "y");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_input(w, "a", ATTNRUN_F32, "");
    onnx_node(w, "Cast", "places", "p");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Add", "a,p", "q");
    onnx_node(w, "ReduceMax", "q", "b");
    onnx_attr_int(w, "keepdims", 0);
    onnx_node(w, "Identity", "c", "go");
    onnx_output(w, "go", ATTNRUN_BOOL, "");
    onnx_output(w, "b", ATTNRUN_F32, "");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "");
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_I64, "", &n);
    set_input(context, 1, ATTNRUN_F32, "5", x);
    set_input(context, 2, ATTNRUN_F32, "", &s);
    for (n = 5; n >= 0; n -= 5) {
        OK(attnrun_run(context, NULL));
        assert_int_equal(get_output(context, 0).rank, 0);
        assert_true(*(float *)get_output(context, 0).data == (float)(4 * n));
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recheck_of_outputs_that_are_open_at_run),
        cmocka_unit_test(test_recheck_expand_to_another_shape),
        cmocka_unit_test(test_recheck_reduce_of_a_scalar),
        cmocka_unit_test(test_recheck_infers_again_with_values),
        cmocka_unit_test(test_recheck_memory_of_another_shape),
        cmocka_unit_test(test_recheck_padding_bits_are_zero),
        cmocka_unit_test(test_recheck_padding_of_a_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_rows.c - rows of a caller whose infer() or run() says what cannot be: views of what is not
 * there, memory before run(), shapes without a tensor, dims of another model. */
#include "harness.h"

static attnrun_status (*infer_now)(attnrun_step *step);
static attnrun_status (*run_now)(const attnrun_step *step, const attnrun_work *work);

static attnrun_status row_infer(attnrun_step *step) { return infer_now(step); }

static attnrun_status row_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_now(step, work);
}

static const attnrun_op_def row = { .struct_size = sizeof row,
                                    .domain = "test",
                                    .name = "Row",
                                    .since = 1,
                                    .inputs = "x:T z:T? w:T?",
                                    .outputs = "y:U",
                                    .types = "T=all U=all",
                                    .infer = row_infer,
                                    .run = row_run };

/* Opens a model of the row and of what reads it, and runs it on x. */
static attnrun_status try_row(attnrun_op_def op, int32_t dtype, const char *dims, void *x,
                              const char *reader, int32_t made)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct onnx_writer *w = onnx_begin(18);
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    attnrun_tensor tensor = tensor_of(dtype, dims, x);
    size_t bytes;
    OK(attnrun_register_op(runtime, &op));
    onnx_domain(w, "test");
    onnx_input(w, "x", dtype, dims[0] == 'N' ? "N" : dims);
    onnx_node(w, "test::Row", "x,,x", "r");
    onnx_node(w, reader, reader[0] == 'A' ? "r,x" : "r", "y");
    onnx_output(w, "y", made, NULL);
    uint8_t *data = onnx_end(w, &bytes);
    attnrun_status status = open_bytes(runtime, data, bytes, 0, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK)
        status = attnrun_set_input(context, 0, &tensor);
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    free(data);
    return status;
}

static attnrun_status zero_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    if (step->y[0].data != NULL)
        memset(step->y[0].data, 0, (size_t)attnrun_tensor_bytes(&step->y[0]));
    return ATTNRUN_OK;
}

/* ---- views ---- */

static attnrun_status view_nothing(attnrun_step *step)
{
    step->out[0] = step->in[0];
    attnrun_step_view(step, 0, 1, 0);
    return ATTNRUN_OK;
}

static attnrun_status view_as_strings(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->out[0].dtype = ATTNRUN_STRING;
    step->out[0].dims[0] = attnrun_dim_make(1);
    attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

static void test_views_of_what_is_not_there_are_told(void **state)
{
    (void)state;
    float x[4] = { 1, 2, 3, 4 };
    attnrun_op_def op = row;
    run_now = zero_run;
    for (int runs = 0; runs < 2; runs++) {
        op.run = runs ? row_run : NULL;
        infer_now = view_nothing;
        FAILS(ATTNRUN_E_INTERNAL, "output 0 cannot be a view of input 1",
              try_row(op, ATTNRUN_F32, "4", x, "Neg", ATTNRUN_F32));
        infer_now = view_as_strings;
        FAILS(ATTNRUN_E_INTERNAL, "output 0 cannot be a view of input 0",
              try_row(op, ATTNRUN_F32, "4", x, "Identity", ATTNRUN_STRING));
    }
}

static int64_t view_offset;

static attnrun_status view_as_floats(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->out[0].dtype = ATTNRUN_F32;
    step->out[0].dims[0] = attnrun_dim_make(4);
    attnrun_step_view(step, 0, 0, view_offset);
    return ATTNRUN_OK;
}

static attnrun_status same_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status aligned_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    const float *x = step->x[0].data;
    assert_int_equal((uintptr_t)x % sizeof *x, 0);
    for (int i = 0; i < 4; i++)
        assert_true(x[i] == (float)i + 1);
    memcpy(step->y[0].data, x, 16);
    return ATTNRUN_OK;
}

/* Wherever the bytes of a view lie, an operator reads its elements aligned. */
static void test_views_are_aligned(void **state)
{
    (void)state;
    const float numbers[4] = { 1, 2, 3, 4 };
    _Alignas(8) unsigned char room[32];
    for (int64_t k = 0; k < 8; k++) {
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        attnrun_op_def view = row, reader = row;
        struct onnx_writer *w = onnx_begin(18);
        view_offset = k % 2;
        memset(room, 0, sizeof room);
        memcpy(room + k / 2 + view_offset, numbers, sizeof numbers);
        view.infer = view_as_floats;
        view.run = NULL;
        reader.name = "Reader";
        reader.infer = same_infer;
        reader.run = aligned_run;
        OK(attnrun_register_op(runtime, &view));
        OK(attnrun_register_op(runtime, &reader));
        onnx_domain(w, "test");
        onnx_input(w, "x", ATTNRUN_U8, "17");
        onnx_node(w, "test::Row", "x", "r");
        onnx_node(w, "test::Reader", "r", "y");
        onnx_output(w, "y", ATTNRUN_F32, "4");
        attnrun_model *model = open_model(runtime, w, 0);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_U8, "17", room + k / 2);
        OK(attnrun_run(context, NULL));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
}

/* ---- outputs that run() makes ---- */

static attnrun_status alloc_infer(attnrun_step *step)
{
    const int64_t dims[1] = { 4 };
    step->out[0] = step->in[0];
    return attnrun_step_alloc(step, 0, ATTNRUN_F32, 1, dims);
}

static attnrun_status unsized_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->out[0].rank = -1;
    return ATTNRUN_OK;
}

static attnrun_status huge_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    const int64_t dims[2] = { INT64_C(1) << 62, 0 };
    return attnrun_step_alloc(step, 0, ATTNRUN_F32, 2, dims);
}

static void test_outputs_that_run_makes(void **state)
{
    (void)state;
    float x[4] = { 1, 2, 3, 4 };
    attnrun_op_def op = row;
    infer_now = alloc_infer;
    run_now = zero_run;
    FAILS(ATTNRUN_E_INTERNAL, "attnrun_step_alloc() was called before run()",
          try_row(op, ATTNRUN_F32, "4", x, "Neg", ATTNRUN_F32));
    op.flags = ATTNRUN_OP_DYNAMIC;
    infer_now = unsized_infer;
    run_now = huge_run;
    FAILS(ATTNRUN_E_LIMIT, "limit 'elements'",
          try_row(op, ATTNRUN_F32, "4", x, "Neg", ATTNRUN_F32));
}

/* What a built-in operator makes of tensors without an element. */
static void test_joined_tensors_have_a_limit(void **state)
{
    (void)state;
    enum { N = 4 };
    const int64_t dims[2] = { INT64_C(1) << 46, 0 };
    attnrun_tensor items[N], list = { .kind = ATTNRUN_SEQUENCE,
                                      .dtype = ATTNRUN_F32,
                                      .rank = 1,
                                      .dims = { N },
                                      .data = items };
    for (int i = 0; i < N; i++)
        OK(attnrun_tensor_make(ATTNRUN_F32, 2, dims, NULL, &items[i]));
    for (int axis = 0; axis < 2; axis++) {
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        struct onnx_writer *w = onnx_begin(18);
        onnx_input_of(w, "x", ATTNRUN_SEQUENCE, ATTNRUN_F32);
        onnx_node(w, "ConcatFromSequence", "x", "y");
        onnx_attr_int(w, "axis", 0);
        onnx_attr_int(w, "new_axis", axis);
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(runtime, w, 0);
        attnrun_context *context = make_context(model);
        OK(attnrun_set_input(context, 0, &list));
        FAILS(ATTNRUN_E_LIMIT, "limit 'elements'", attnrun_run(context, NULL));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
}

/* ---- dims ---- */

static int32_t foreign;

static attnrun_status foreign_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->out[0].dims[0] = (attnrun_dim){ .expr = foreign };
    return ATTNRUN_OK;
}

static attnrun_status foreign_sum_infer(attnrun_step *step)
{
    const attnrun_dim dim = { .expr = foreign };
    step->out[0] = step->in[0];
    step->out[0].dims[0] = attnrun_dim_add(step, dim, step->in[0].dims[0]);
    return ATTNRUN_OK;
}

static void test_dims_of_another_model_are_told(void **state)
{
    (void)state;
    float x[4] = { 1, 2, 3, 4 };
    run_now = zero_run;
    for (int i = 0; i < 2; i++) {
        foreign = i == 0 ? 1000000 : INT32_MAX;
        infer_now = foreign_infer;
        FAILS(ATTNRUN_E_INTERNAL, "to a dim of another model",
              try_row(row, ATTNRUN_F32, "N4", x, "Add", ATTNRUN_F32));
        infer_now = foreign_sum_infer;
        FAILS(ATTNRUN_E_LIMIT, "limit 'dim'",
              try_row(row, ATTNRUN_F32, "N4", x, "Add", ATTNRUN_F32));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views_of_what_is_not_there_are_told),
        cmocka_unit_test(test_views_are_aligned),
        cmocka_unit_test(test_outputs_that_run_makes),
        cmocka_unit_test(test_joined_tensors_have_a_limit),
        cmocka_unit_test(test_dims_of_another_model_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

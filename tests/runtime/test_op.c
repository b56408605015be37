/* test_op.c - the helpers of op.h with what built-in operators do not give them: places, counts and
 * dims that do not fit. They are called in the infer() of an operator of the caller. */
#include "harness.h"

/* Their names in the static library: tools/prefix_symbols.cmake. */
#define op_axis              attn_op_axis
#define op_axis_once         attn_op_axis_once
#define op_count             attn_op_count
#define op_dims              attn_op_dims
#define op_fail_input        attn_op_fail_input
#define op_fail_scratch      attn_op_fail_scratch
#define op_fail_size         attn_op_fail_size
#define op_need_dim          attn_op_need_dim
#define op_need_loop         attn_op_need_loop
#define op_need_rank         attn_op_need_rank
#define op_need_rank_between attn_op_need_rank_between
#define op_out               attn_op_out
#define op_peek_value        attn_op_peek_value
#define op_tasks             attn_op_tasks
#define op_types             attn_op_types
#define op_unit_tasks        attn_op_unit_tasks
#include "op.h"

/* The operator has inputs x f32[2,3], s f32[N,3] and i i64[] of unknown value, output y. */
static void (*look)(attnrun_step *step);

static attnrun_status infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->n_phases = 1;
    step->phases[0] = (attnrun_phase){ .n_tasks = 1 };
    look(step);
    return ATTNRUN_OK;
}

static attnrun_status run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    memcpy(step->y[0].data, step->x[0].data, 6 * sizeof(float));
    return ATTNRUN_OK;
}

static const attnrun_op_def op = { .struct_size = sizeof op,
                                   .domain = "test",
                                   .name = "Look",
                                   .since = 1,
                                   .inputs = "x:T s:T i:I",
                                   .outputs = "y:T",
                                   .types = "T=f32 I=i64",
                                   .infer = infer,
                                   .run = run };

/* Calls `looks` while a model is opened and planned, and runs it all the same. */
static void look_with(void (*looks)(attnrun_step *step))
{
    float x[6] = { 1, 2, 3, 4, 5, 6 }, s[3] = { 0 };
    int64_t i = 0;
    struct onnx_writer *w = onnx_begin(18);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "2,3");
    onnx_input(w, "s", ATTNRUN_F32, "N,3");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_node(w, "test::Look", "x,s,i", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    look = looks;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    OK(attnrun_register_op(runtime, &op));
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "2,3", x);
    set_input(context, 1, ATTNRUN_F32, "1,3", s);
    set_input(context, 2, ATTNRUN_I64, "", &i);
    OK(attnrun_run(context, NULL));
    const attnrun_tensor y = get_output(context, 0);
    assert_memory_equal(y.data, x, sizeof x);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

static void look_at_counts(attnrun_step *step)
{
    attnrun_type type = { .rank = 3,
                          .dims = { dim_of(INT64_MAX), dim_of(2), dim_of(0) } };
    assert_int_equal(op_count(&type, 0, 3), 0);
    assert_int_equal(op_count(&type, 0, 2), -1);
    assert_int_equal(op_count(&type, 1, 1), 1);
    type.dims[2] = attnrun_dim_unknown(step);
    assert_int_equal(op_count(&type, 1, 3), -1);
}

static void look_at_axes(attnrun_step *step)
{
    uint32_t seen = 0;
    int axis = 7;
    FAILS(ATTNRUN_E_ATTR, "the input is a scalar without axes",
          op_axis(step, 0, 0, false, &axis));
    FAILS(ATTNRUN_E_ATTR, "axis 2 is out of range [-2, 1]",
          op_axis(step, 2, 2, false, &axis));
    FAILS(ATTNRUN_E_ATTR, "axis -3 is out of range [-2, 1]",
          op_axis(step, -3, 2, false, &axis));
    assert_int_equal(axis, 7);
    OK(op_axis(step, 2, 2, true, &axis));
    assert_int_equal(axis, 2);
    OK(op_axis_once(step, -1, 2, &seen, &axis));
    assert_int_equal(axis, 1);
    FAILS(ATTNRUN_E_ATTR, "axis 1 appears twice in axes",
          op_axis_once(step, 1, 2, &seen, &axis));
}

static void look_at_checks(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK + 1] = { 0 }, values[1];
    int n;
    bool known;
    FAILS(ATTNRUN_E_SHAPE, "input 0 x 'x' is f32[2,3], expected rank 3",
          op_need_rank(step, 0, 3));
    FAILS(ATTNRUN_E_SHAPE, "expected rank 3 to 4", op_need_rank_between(step, 0, 3, 4));
    FAILS(ATTNRUN_E_SHAPE, "expected 4 in dim 1 (heads)",
          op_need_dim(step, 0, 1, dim_of(4), "heads"));
    OK(op_need_dim(step, 0, 2, dim_of(4), "an axis that it lacks"));
    FAILS(ATTNRUN_E_UNSUPPORTED, "elements of this type are not supported",
          op_need_loop(step, 0, false));
    OK(op_need_loop(step, 0, true));
    FAILS(ATTNRUN_E_UNSUPPORTED, "output 0 would have rank 9, expected at most 8",
          op_out(step, 0, ATTNRUN_F32, ATTNRUN_MAX_RANK + 1, dims));
    FAILS(ATTNRUN_E_DTYPE, "expected i64 or i32",
          op_dims(step, 0, values, 1, &n, &known));
    OK(op_dims(step, 2, values, 1, &n, &known));
    /* At run it is inferred once more, with the value. */
    assert_int_equal(n, 1);
    assert_int_equal(known, step->x[2].data != NULL);
    assert_true(!known || values[0].value == 0);
    FAILS(ATTNRUN_E_INTERNAL, "input 3  '' is absent, but why",
          op_fail_input(step, 3, ATTNRUN_E_INTERNAL, "but why"));
}

static void look_at_tasks(attnrun_step *step)
{
    const int32_t phases = step->n_phases;
    const attnrun_phase before = step->phases[0];
    attnrun_type *types = NULL;
    op_tasks(step, ATTNRUN_MAX_PHASES, 5, 5);
    assert_int_equal(step->n_phases, phases);
    op_unit_tasks(step, 0, INT64_MAX, INT64_MAX, 1e9);
    assert_int_equal(step->phases[0].n_tasks, 1);
    assert_int_equal(step->phases[0].task_cost, INT64_C(1000000000000000));
    step->phases[0] = before;
    FAILS(ATTNRUN_E_INTERNAL, "more types than it has values",
          op_types(step, -1, &types));
    FAILS(ATTNRUN_E_INTERNAL, "more types than it has values",
          op_types(step, INT32_MAX, &types));
    OK(op_types(step, 0, &types));
    FAILS(ATTNRUN_E_LIMIT, "its rows would be over 9; the inputs are x f32[2,3], s f32[",
          op_fail_size(step, "its rows", "9"));
    FAILS(ATTNRUN_E_LIMIT, "its scratch memory in bytes, or its number of tasks,",
          op_fail_scratch(step));
}

/* What is no value, is none. */
static void look_at_values(attnrun_step *step)
{
    const attnrun_dim four[1] = { attnrun_dim_make(4) };
    attnrun_dim value = attnrun_dim_make(9);
    assert_int_equal(attnrun_step_value(step, 0, 0, NULL), 0);
    assert_int_equal(attnrun_step_value(step, 2, -1, &value), 0);
    assert_false(op_peek_value(step, -1, 0, &value));
    assert_false(op_peek_value(step, 3, 0, &value));
    assert_false(op_peek_value(step, 0, 0, &value));
    assert_int_equal(value.value, 9);
    attnrun_step_set_values(step, 0, 1, NULL);
    attnrun_step_set_values(step, 0, -1, four);
    attnrun_step_set_values(step, 0, INT64_MAX, four);
    attnrun_step_heap_bound(step, -5);
    attnrun_step_flops(step, -5);
    attnrun_step_flops(step, INT64_MAX);
    attnrun_step_flops(step, INT64_MAX);
    assert_int_equal(attnrun_step_append(step, 0, 3, 0), 0);
    FAILS(ATTNRUN_E_RANGE, "the operator gave no reason",
          attnrun_step_fail(step, ATTNRUN_E_RANGE, NULL));
    FAILS(ATTNRUN_E_RANGE, "the operator gave no reason",
          attnrun_step_fail(NULL, ATTNRUN_E_RANGE, NULL));
}

#define LOOK(what)                                                                       \
    static void test_op_##what(void **state)                                             \
    {                                                                                    \
        (void)state;                                                                     \
        look_with(look_at_##what);                                                       \
    }
LOOK(counts)
LOOK(axes)
LOOK(checks)
LOOK(tasks)
LOOK(values)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_op_counts), cmocka_unit_test(test_op_axes),
        cmocka_unit_test(test_op_checks), cmocka_unit_test(test_op_tasks),
        cmocka_unit_test(test_op_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

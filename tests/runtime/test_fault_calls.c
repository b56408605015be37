/* test_fault_calls.c - one call after the other on a model with a state, where the n-th allocation
 * of all of them fails, once or from there on: the call says so and may be made again, and in
 * the end the outputs are those of a run without a failure. What test_faults.c does for opening
 * and running, for all other calls. */
#include "harness.h"

#include "alloc.h"

enum { WIDTH = 4, MAX_OUTPUT = 4096, WRITTEN = 1 << 16 };

/* past f32[B,P,4], x f32[B,T,4] -> present f32[B,P+T,4], the places of what is positive in a
 * product of it, the sum of each feature, and texts. */
static struct onnx_writer *write_model(void)
{
    static const float weight[WIDTH * WIDTH] = { 1, -2, 3, 0, 5, 1, 0, -1, 2 };
    static const char *const words[] = { "a", "bc", "" };
    struct onnx_writer *w = onnx_begin(20);
    onnx_input(w, "past", ATTNRUN_F32, "B,P,4");
    onnx_input(w, "x", ATTNRUN_F32, "B,T,4");
    onnx_input(w, "words", ATTNRUN_STRING, "W");
    onnx_input_of(w, "list", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_constant(w, "w", ATTNRUN_F32, "4,4", weight);
    onnx_ints(w, "axis", 1, (int64_t[]){ 1 });
    onnx_int(w, "zero", 0);
    onnx_node(w, "Concat", "past,x", "present");
    onnx_attr_int(w, "axis", 1);
    onnx_node(w, "MatMul", "present,w", "product");
    onnx_node(w, "Relu", "product", "positive");
    onnx_node(w, "NonZero", "positive", "places");
    onnx_node(w, "ReduceSum", "positive,axis", "sum");
    onnx_attr_int(w, "keepdims", 0);
    onnx_node(w, "Constant", "", "more");
    onnx_attr_strings(w, "value_strings", 3, words);
    onnx_node(w, "StringConcat", "words,more", "texts");
    onnx_node(w, "SequenceAt", "list,zero", "item");
    onnx_node(w, "SequenceInsert", "list,item", "longer");
    onnx_node(w, "SequenceLength", "longer", "length");
    onnx_output(w, "present", ATTNRUN_F32, "B,Q,4");
    onnx_output(w, "places", ATTNRUN_I64, NULL);
    onnx_output(w, "sum", ATTNRUN_F32, "B,4");
    onnx_output(w, "texts", ATTNRUN_STRING, "W");
    onnx_output(w, "length", ATTNRUN_I64, "");
    return w;
}

/* ---- the calls ---- */

struct trial {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context, *other;
    uint8_t *data;
    size_t bytes;
    uint64_t written;
    float sums[MAX_OUTPUT];
    int64_t n_sums;
};

static float x_values[2 * 3 * WIDTH];
static attnrun_string word_values[3] = { { "one", 3 }, { "", 0 }, { "three", 5 } };

static void shapes_of(attnrun_tensor inputs[4], const char *past, const char *x)
{
    static float item[2] = { 1, 2 };
    static attnrun_tensor items[1];
    items[0] = tensor_of(ATTNRUN_F32, "2", item);
    inputs[0] = tensor_of(ATTNRUN_F32, past, NULL);
    inputs[1] = tensor_of(ATTNRUN_F32, x, x_values);
    inputs[2] = tensor_of(ATTNRUN_STRING, "3", word_values);
    inputs[3] = (attnrun_tensor){ .kind = ATTNRUN_SEQUENCE,
                                  .dtype = ATTNRUN_F32,
                                  .rank = 1,
                                  .dims = { 1 },
                                  .data = items };
}

static attnrun_status set_inputs(attnrun_context *context)
{
    attnrun_tensor inputs[4];
    attnrun_status status = ATTNRUN_OK;
    shapes_of(inputs, "2,0,4", "2,3,4");
    for (int32_t i = 0; i < 4 && status == ATTNRUN_OK; i++)
        status = attnrun_set_input(context, i, &inputs[i]);
    return status;
}

static attnrun_status do_open(struct trial *t)
{
    return open_bytes(t->runtime, t->data, t->bytes, 0, &t->model);
}

static attnrun_status do_create(struct trial *t)
{
    return attnrun_context_create(t->model, &t->context);
}

static attnrun_status do_need(struct trial *t)
{
    const attnrun_state_pair pair = { 0, 0, 1024 };
    attnrun_model_need need = { .struct_size = sizeof need };
    attnrun_tensor inputs[4];
    shapes_of(inputs, "2,0,4", "2,3,4");
    const attnrun_status status =
        attnrun_model_plan_states(t->model, inputs, &pair, 1, &need);
    return status == ATTNRUN_OK ? attnrun_model_plan(t->model, inputs, &need) : status;
}

static attnrun_status do_state(struct trial *t)
{
    return attnrun_add_state(t->context, 0, 0, 0);
}

static attnrun_status do_watch(struct trial *t)
{
    return attnrun_watch(t->context, "positive");
}

static attnrun_status do_plan(struct trial *t)
{
    attnrun_plan_info info = { .struct_size = sizeof info };
    attnrun_tensor inputs[4];
    shapes_of(inputs, "2,6,4", "2,3,4");
    return attnrun_plan(t->context, inputs, &info);
}

static attnrun_status do_reserve(struct trial *t)
{
    attnrun_tensor inputs[4];
    shapes_of(inputs, "2,4,4", "2,3,4");
    return attnrun_reserve(t->context, inputs);
}

static attnrun_status run_it(struct trial *t, attnrun_context *context)
{
    attnrun_tensor sum;
    attnrun_status status = set_inputs(context);
    if (status == ATTNRUN_OK)
        status = attnrun_run(context, NULL);
    if (status != ATTNRUN_OK)
        return status;
    OK(attnrun_output(context, 2, &sum));
    assert_in_range(t->n_sums, 0, MAX_OUTPUT - 2 * WIDTH);
    memcpy(t->sums + t->n_sums, sum.data, 2 * WIDTH * sizeof(float));
    t->n_sums += 2 * WIDTH;
    return status;
}

static attnrun_status do_run(struct trial *t) { return run_it(t, t->context); }

static attnrun_status do_value(struct trial *t)
{
    attnrun_tensor positive;
    return attnrun_value(t->context, "positive", &positive);
}

static attnrun_status do_truncate(struct trial *t)
{
    return attnrun_truncate_state(t->context, 0, 4);
}

static attnrun_status do_select(struct trial *t)
{
    return attnrun_select_sequence(t->context, 7);
}

static attnrun_status do_back(struct trial *t)
{
    return attnrun_select_sequence(t->context, 0);
}

static attnrun_status do_copy(struct trial *t)
{
    return attnrun_copy_states(t->context, t->context, 7);
}

static attnrun_status do_reorder(struct trial *t)
{
    static const int64_t rows[2] = { 1, 1 };
    return attnrun_reorder_states(t->context, -1, 0, rows, 2);
}

static attnrun_status do_choose(struct trial *t)
{
    static const int32_t indices[] = { 2 };
    return attnrun_choose_outputs(t->context, indices, 1);
}

static attnrun_status do_choose_all(struct trial *t)
{
    return attnrun_choose_outputs(t->context, NULL, 0);
}

static attnrun_status do_max_plans(struct trial *t)
{
    return attnrun_set_max_plans(t->context, 1);
}

static attnrun_status do_arena(struct trial *t)
{
    static _Alignas(ATTNRUN_ARENA_ALIGN) uint8_t arena[1 << 18];
    return attnrun_set_arena(t->context, arena, sizeof arena);
}

static attnrun_status do_trim(struct trial *t)
{
    attnrun_trim(t->context);
    return attnrun_set_arena(t->context, NULL, 0);
}

static attnrun_status do_drop(struct trial *t)
{
    return attnrun_drop_sequence(t->context, 7);
}

static attnrun_status do_other(struct trial *t)
{
    return attnrun_context_create(t->model, &t->other);
}

static attnrun_status do_other_state(struct trial *t)
{
    return attnrun_add_state(t->other, 0, 0, 64);
}

static attnrun_status do_other_copy(struct trial *t)
{
    return attnrun_copy_states(t->other, t->context, 0);
}

static attnrun_status do_other_run(struct trial *t) { return run_it(t, t->other); }

static int32_t take_bytes(void *user, const void *bytes, uint64_t n)
{
    (void)bytes;
    *(uint64_t *)user += n;
    return 0;
}

static attnrun_status do_save(struct trial *t)
{
    return attnrun_model_save(t->model, take_bytes, &t->written);
}

static attnrun_status do_write(struct trial *t)
{
    static const char *const inputs[] = { "present" }, *const outputs[] = { "sum" };
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = t->data,
                                    .bytes = t->bytes };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit,
                                     .flags = ATTNRUN_ONNX_SIMPLIFY,
                                     .inputs = inputs,
                                     .n_inputs = 1,
                                     .outputs = outputs,
                                     .n_outputs = 1 };
    return attnrun_save_onnx(t->runtime, &source, &edit, take_bytes, &t->written, NULL);
}

static const struct {
    const char *name;
    attnrun_status (*make)(struct trial *trial);
} calls[] = {
    { "open", do_open },
    { "create", do_create },
    { "need", do_need },
    { "state", do_state },
    { "run", do_run },
    { "run", do_run },
    { "watch", do_watch },
    { "plan", do_plan },
    { "reserve", do_reserve },
    { "run", do_run },
    { "value", do_value },
    { "truncate", do_truncate },
    { "run", do_run },
    { "select", do_select },
    { "run", do_run },
    { "run", do_run },
    { "back", do_back },
    { "run", do_run },
    { "copy", do_copy },
    { "run", do_run },
    { "reorder", do_reorder },
    { "choose", do_choose },
    { "run", do_run },
    { "all", do_choose_all },
    { "one plan", do_max_plans },
    { "run", do_run },
    { "run", do_run },
    { "arena", do_arena },
    { "run", do_run },
    { "trim", do_trim },
    { "run", do_run },
    { "drop", do_drop },
    { "other", do_other },
    { "other state", do_other_state },
    { "other copy", do_other_copy },
    { "other run", do_other_run },
    { "save", do_save },
    { "write", do_write },
};
enum { CALLS = sizeof calls / sizeof *calls };

/* ---- failures ---- */

static struct trial whole, trial;

/* All calls; allocation `call` of them fails (-1: none). A call that fails is made again. */
static bool make_all(struct trial *t, int64_t call, bool on)
{
    memset(t, 0, sizeof *t);
    test_memory_init(&t->memory);
    t->runtime = make_runtime(&t->memory, 1);
    t->data = onnx_end(write_model(), &t->bytes);
    t->memory.fail_on = on;
    t->memory.fail_at = call < 0 ? -1 : t->memory.calls + call;
    for (int i = 0; i < CALLS; i++) {
        const int64_t n_sums = t->n_sums;
        const attnrun_status status = calls[i].make(t);
        if (status == ATTNRUN_OK)
            continue;
        if (status != ATTNRUN_E_MEMORY || t->memory.failed == 0)
            fail_msg("allocation %d, call %d (%s): %s", (int)call, i, calls[i].name,
                     attnrun_last_error()->message);
        t->memory.fail_at = -1;
        t->n_sums = n_sums;
        if (calls[i].make(t) != ATTNRUN_OK)
            fail_msg("allocation %d, call %d (%s) again: %s", (int)call, i, calls[i].name,
                     attnrun_last_error()->message);
    }
    t->memory.fail_at = -1;
    attnrun_context_destroy(t->context);
    attnrun_context_destroy(t->other);
    attnrun_model_release(t->model);
    attnrun_runtime_destroy(t->runtime);
    free(t->data);
    test_memory_check(&t->memory);
    return t->memory.failed > 0;
}

static void fail_all(int64_t step)
{
    uint64_t seed = 9;
    int64_t n = 0;
    fill_floats(&seed, x_values, 2 * 3 * WIDTH);
    make_all(&whole, -1, false);
    assert_true(whole.n_sums > 8 * WIDTH);
    for (int on = 0; on < 2; on++)
        for (int64_t call = 0; make_all(&trial, call, on != 0); call += step, n++) {
            assert_int_equal(trial.n_sums, whole.n_sums);
            assert_memory_equal(trial.sums, whole.sums,
                                (size_t)whole.n_sums * sizeof *whole.sums);
        }
    print_message("%d failures\n", (int)n);
    assert_true(n > 100);
}

static void test_each_allocation_of_the_calls(void **state)
{
    (void)state;
    fail_all(1);
}

/* The same where each piece of a pool is an allocation. */
static void test_each_part_of_the_calls(void **state)
{
    (void)state;
    attn_pool_apart = true;
    fail_all(rounds(17, 1));
    attn_pool_apart = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_of_the_calls),
        cmocka_unit_test(test_each_part_of_the_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

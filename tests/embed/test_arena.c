/* test_arena.c - an arena in the caller's memory, and decoding that asks the allocator for
 * nothing. */
#include "../runtime/harness.h"

enum {
    WIDTH = 4,
    LONGEST = 40,
    GUARD = 256, /* bytes on both sides of an arena */
    GUARD_BYTE = 0xa5
};

/* past f32[1,P,4], x f32[1,N,4], mask f32[1,Q] -> present = Concat; y reads the present through
 * nodes that ask for its shape. */
static struct onnx_writer *write_decoder(void)
{
    static float w[WIDTH * WIDTH] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7 };
    static int64_t one = 1, zero = 0, flat[2] = { -1, WIDTH };
    struct onnx_writer *writer = onnx_begin(13);
    onnx_input(writer, "past", ATTNRUN_F32, "1,P,4");
    onnx_input(writer, "x", ATTNRUN_F32, "1,N,4");
    onnx_input(writer, "mask", ATTNRUN_F32, "Q,1");
    onnx_constant(writer, "w", ATTNRUN_F32, "4,4", w);
    onnx_constant(writer, "one", ATTNRUN_I64, "1", &one);
    onnx_constant(writer, "zero", ATTNRUN_I64, "1", &zero);
    onnx_constant(writer, "flat", ATTNRUN_I64, "2", flat);
    onnx_node(writer, "Concat", "past,x", "present");
    onnx_attr_int(writer, "axis", 1);
    onnx_node(writer, "Reshape", "present,flat", "rows");
    onnx_node(writer, "Shape", "present", "shape");
    onnx_node(writer, "Gather", "shape,one", "length");
    onnx_node(writer, "Squeeze", "length", "length_scalar");
    onnx_node(writer, "Squeeze", "zero", "zero_scalar");
    onnx_node(writer, "Squeeze", "one", "one_scalar");
    onnx_node(writer, "Range", "zero_scalar,length_scalar,one_scalar", "places");
    onnx_node(writer, "Cast", "places", "position");
    onnx_attr_int(writer, "to", ATTNRUN_F32);
    onnx_node(writer, "Unsqueeze", "position,one", "column");
    onnx_node(writer, "Add", "rows,column", "placed");
    onnx_node(writer, "Mul", "placed,mask", "seen");
    onnx_node(writer, "Softmax", "seen", "soft");
    onnx_attr_int(writer, "axis", 1);
    onnx_node(writer, "MatMul", "soft,w", "y");
    onnx_output(writer, "present", ATTNRUN_F32, "1,Q,4");
    onnx_output(writer, "y", ATTNRUN_F32, "Q,4");
    return writer;
}

static void decoder_inputs(attnrun_tensor inputs[3], int64_t past, int64_t n)
{
    static float none[WIDTH * LONGEST], x[WIDTH * LONGEST], ones[LONGEST];
    for (int i = 0; i < LONGEST; i++)
        ones[i] = 1;
    for (int i = 0; i < WIDTH * LONGEST; i++)
        x[i] = (float)(i % 7) - 3;
    OK(attnrun_tensor_make(ATTNRUN_F32, 3, (int64_t[]){ 1, past, WIDTH }, none,
                           &inputs[0]));
    OK(attnrun_tensor_make(ATTNRUN_F32, 3, (int64_t[]){ 1, n, WIDTH }, x, &inputs[1]));
    OK(attnrun_tensor_make(ATTNRUN_F32, 2, (int64_t[]){ past + n, 1 }, ones, &inputs[2]));
}

static void run_step(attnrun_context *context, int64_t past, int64_t n)
{
    attnrun_tensor inputs[3];
    decoder_inputs(inputs, past, n);
    if (past == 0)
        OK(attnrun_set_input(context, 0, &inputs[0]));
    OK(attnrun_set_input(context, 1, &inputs[1]));
    OK(attnrun_set_input(context, 2, &inputs[2]));
    OK(attnrun_run(context, NULL));
}

struct decoder {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
};

/* With room for the longest text in its state and its plan; max_plans 0: the default. */
static void begin_decoding(struct decoder *d, int32_t max_plans)
{
    attnrun_tensor inputs[3];
    test_memory_init(&d->memory);
    d->runtime = make_runtime(&d->memory, 1);
    d->model = open_model(d->runtime, write_decoder(), 0);
    d->context = make_context(d->model);
    OK(attnrun_add_state(d->context, 0, 0, WIDTH * LONGEST * (int64_t)sizeof(float)));
    if (max_plans > 0)
        OK(attnrun_set_max_plans(d->context, max_plans));
    decoder_inputs(inputs, LONGEST - 1, 1);
    OK(attnrun_reserve(d->context, inputs));
}

static void end_decoding(struct decoder *d)
{
    attnrun_context_destroy(d->context);
    attnrun_model_release(d->model);
    attnrun_runtime_destroy(d->runtime);
    test_memory_check(&d->memory);
}

/* With the promised calls before, no step of any length asks for memory, the first included. */
static void test_decoding_takes_nothing_from_the_allocator(void **state)
{
    (void)state;
    struct decoder d;
    begin_decoding(&d, 1);
    for (int text = 0; text < 2; text++) {
        for (int64_t past = 0; past < LONGEST; past++) {
            const int64_t calls = atomic_load(&d.memory.calls);
            run_step(d.context, past, 1);
            if (atomic_load(&d.memory.calls) != calls)
                fail_msg("text %d, step %lld: %lld calls of the allocator", text,
                         (long long)past,
                         (long long)(atomic_load(&d.memory.calls) - calls));
        }
        attnrun_reset_states(d.context);
    }
    end_decoding(&d);
}

/* With sixteen plans, once they are there, a step asks at most for the one folded value that
 * became larger. */
static void test_later_steps_take_little_by_default(void **state)
{
    (void)state;
    struct decoder d;
    begin_decoding(&d, 0);
    for (int64_t past = 0; past < 18; past++)
        run_step(d.context, past, 1);
    const int64_t calls = atomic_load(&d.memory.calls);
    for (int64_t past = 18; past < LONGEST; past++)
        run_step(d.context, past, 1);
    assert_true(atomic_load(&d.memory.calls) - calls <= LONGEST - 18);
    end_decoding(&d);
}

/* ---- the caller's arena ---- */

struct guarded {
    char *memory; /* of the allocator of the test */
    char *arena;
    int64_t bytes;
};

/* Exactly `bytes` bytes at a multiple of 64, with guards that a sanitizer sees beyond, too. */
static struct guarded make_guarded(int64_t bytes)
{
    struct guarded g = { .bytes = bytes };
    g.memory = aligned_alloc(ATTNRUN_ARENA_ALIGN, (size_t)(bytes + 2 * GUARD));
    assert_non_null(g.memory);
    memset(g.memory, GUARD_BYTE, (size_t)(bytes + 2 * GUARD));
    g.arena = g.memory + GUARD;
    return g;
}

static void check_guards(const struct guarded *g)
{
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal((unsigned char)g->memory[i], GUARD_BYTE);
        assert_int_equal((unsigned char)g->arena[g->bytes + i], GUARD_BYTE);
    }
}

static int64_t arena_of(attnrun_model *model, int64_t past, int64_t n)
{
    attnrun_tensor inputs[3];
    attnrun_model_need need = { .struct_size = sizeof need };
    decoder_inputs(inputs, past, n);
    OK(attnrun_model_plan(model, inputs, &need));
    return need.arena_bytes;
}

static void test_an_arena_of_the_exact_size(void **state)
{
    (void)state;
    enum { N = 21 };
    float expected[N * WIDTH];
    attnrun_tensor y;
    attnrun_plan_info info = { .struct_size = sizeof info };
    attnrun_memory_info held = { .struct_size = sizeof held };
    attnrun_tensor inputs[3];
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 2);
    attnrun_model *model = open_model(runtime, write_decoder(), 0);
    struct guarded g = make_guarded(arena_of(model, 1, N - 1));
    attnrun_context *context = make_context(model);
    run_step(context, 0, N);
    OK(attnrun_output(context, 1, &y));
    memcpy(expected, y.data, sizeof expected);
    attnrun_trim(context);
    decoder_inputs(inputs, 0, N);
    OK(attnrun_plan(context, inputs, &info));
    assert_true(info.arena_bytes <= g.bytes);
    OK(attnrun_set_arena(context, g.arena, info.arena_bytes));
    FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_output(context, 1, &y));
    run_step(context, 0, N);
    OK(attnrun_output(context, 1, &y));
    assert_memory_equal(y.data, expected, sizeof expected);
    assert_true((char *)y.data >= g.arena && (char *)y.data < g.arena + g.bytes);
    check_guards(&g);
    for (int64_t i = info.arena_bytes; i < g.bytes; i++)
        assert_int_equal((unsigned char)g.arena[i], GUARD_BYTE);
    attnrun_trim(context); /* the arena stays the caller's */
    OK(attnrun_context_memory(context, &held));
    assert_int_equal(held.arena_bytes, info.arena_bytes);
    run_step(context, 0, N);
    OK(attnrun_set_arena(context, NULL, 0));
    run_step(context, 0, N);
    OK(attnrun_output(context, 1, &y));
    assert_memory_equal(y.data, expected, sizeof expected);
    assert_false((char *)y.data >= g.arena && (char *)y.data < g.arena + g.bytes);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    check_guards(&g);
    free(g.memory);
}

static void test_an_arena_that_is_too_small_is_named(void **state)
{
    (void)state;
    char sentence[160];
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_decoder(), 0);
    const int64_t few = arena_of(model, 0, 3), more = arena_of(model, 0, 30);
    assert_true(more > few);
    struct guarded g = make_guarded(more);
    attnrun_context *context = make_context(model);
    OK(attnrun_set_arena(context, g.arena, few));
    run_step(context, 0, 3);
    attnrun_tensor inputs[3];
    decoder_inputs(inputs, 0, 30);
    for (int i = 0; i < 3; i++)
        OK(attnrun_set_input(context, i, &inputs[i]));
    snprintf(sentence, sizeof sentence, "needs %lld bytes", (long long)more);
    FAILS(ATTNRUN_E_MEMORY, sentence, attnrun_run(context, NULL));
    snprintf(sentence, sizeof sentence, "was given has %lld", (long long)few);
    FAILS(ATTNRUN_E_MEMORY, sentence, attnrun_reserve(context, inputs));
    run_step(context, 0, 3); /* what fits still does */
    OK(attnrun_set_arena(context, g.arena, more));
    run_step(context, 0, 30);
    check_guards(&g);
    FAILS(ATTNRUN_E_USAGE, "multiple of 64",
          attnrun_set_arena(context, g.arena + 8, more - 64));
    FAILS(ATTNRUN_E_USAGE, "expected memory", attnrun_set_arena(context, g.arena, -1));
    FAILS(ATTNRUN_E_USAGE, "expected memory", attnrun_set_arena(context, NULL, 64));
    FAILS(ATTNRUN_E_USAGE, "is NULL", attnrun_set_arena(NULL, g.arena, more));
    run_step(context, 0, 30);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    free(g.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_takes_nothing_from_the_allocator),
        cmocka_unit_test(test_later_steps_take_little_by_default),
        cmocka_unit_test(test_an_arena_of_the_exact_size),
        cmocka_unit_test(test_an_arena_that_is_too_small_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_faulty.c - operators that break the contract, and callers that do: what is told,
 * and what attnrun_last_error() holds afterwards. */
#include "harness.h"

#include <pthread.h>

/* ---- one operator with one fault at a time ---- */

enum place { IN_INFER, IN_RUN, IN_PACK };

static struct {
    enum place place;
    attnrun_status status;
    const char *sentence; /* NULL: it says nothing */
    int32_t n_phases;
    int64_t n_tasks;
} fault;

static attnrun_status fail_in(enum place place, const attnrun_step *step)
{
    if (fault.place != place || fault.status == ATTNRUN_OK)
        return ATTNRUN_OK;
    if (fault.sentence != NULL)
        return attnrun_step_fail(step, fault.status, fault.sentence);
    return fault.status;
}

static attnrun_status faulty_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->n_phases = fault.n_phases;
    step->phases[0] = (attnrun_phase){ .n_tasks = fault.n_tasks, .task_cost = 1000000 };
    return fail_in(IN_INFER, step);
}

static attnrun_status faulty_run(const attnrun_step *step, const attnrun_work *work)
{
    if (work->begin == 0 && step->y[0].data != NULL) /* one task of all writes */
        memcpy(step->y[0].data, step->x[0].data,
               (size_t)attnrun_tensor_bytes(&step->x[0]));
    return fail_in(IN_RUN, step);
}

static attnrun_status faulty_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    (void)pack, (void)packed;
    *bytes = 0;
    return fail_in(IN_PACK, NULL);
}

static const attnrun_op_def faulty_op = { .struct_size = sizeof faulty_op,
                                          .domain = "test",
                                          .name = "Faulty",
                                          .since = 1,
                                          .inputs = "x:T",
                                          .outputs = "y:T",
                                          .types = "T=f32",
                                          .infer = faulty_infer,
                                          .pack = faulty_pack,
                                          .run = faulty_run };

static struct onnx_writer *write_faulty(bool constant)
{
    static const float numbers[4] = { 1, 2, 3, 4 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_constant(w, "c", ATTNRUN_F32, "4", numbers);
    onnx_node(w, "test::Faulty", constant ? "c" : "x", "f");
    onnx_node_name(w, "the.node");
    onnx_node(w, "Add", "x,f", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    return w;
}

static attnrun_runtime *faulty_runtime(int32_t threads)
{
    attnrun_runtime *runtime = make_runtime(NULL, threads);
    memset(&fault, 0, sizeof fault);
    fault.n_phases = 1;
    fault.n_tasks = 8;
    OK(attnrun_register_op(runtime, &faulty_op));
    return runtime;
}

/* From open to run, until something fails. */
static attnrun_status try_faulty(attnrun_runtime *runtime)
{
    static float x[4];
    size_t bytes;
    uint8_t *data = onnx_end(write_faulty(false), &bytes);
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    attnrun_status status = open_bytes(runtime, data, bytes, ATTNRUN_COPY, &model);
    if (status == ATTNRUN_OK)
        status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK) {
        set_input(context, 0, ATTNRUN_F32, "4", x);
        status = attnrun_run(context, NULL);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    free(data);
    return status;
}

static void leave_an_error(attnrun_status status)
{
    attnrun_step step = { .node = &(attnrun_node){ .name = "older", .op_type = "Old" } };
    attnrun_step_fail(&step, status, "an older failure");
}

static void check_fault(attnrun_runtime *runtime, attnrun_status expected,
                        const char *text)
{
    leave_an_error(expected);
    FAILS(expected, text, try_faulty(runtime));
    assert_null(strstr(attnrun_last_error()->message, "older"));
    assert_string_equal(attnrun_last_error()->node_name, "the.node");
    assert_int_equal(attnrun_last_error()->status, expected);
}

static void test_faulty_statuses_are_told(void **state)
{
    (void)state;
    static const char *const functions[] = { "infer() ", "run() ", "pack() " };
    static const attnrun_status none[] = { 12345, -1, -77, INT32_MAX, INT32_MIN, 1 };
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        attnrun_runtime *runtime = faulty_runtime(threads);
        OK(try_faulty(runtime));
        for (enum place place = IN_INFER; place <= IN_PACK; place++) {
            fault.place = place;
            fault.sentence = NULL;
            for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
                fault.status = none[i];
                check_fault(runtime, ATTNRUN_E_INTERNAL, "not a status");
            }
            fault.status = ATTNRUN_E_RANGE; /* the thread's last error has that status */
            check_fault(runtime, ATTNRUN_E_RANGE, functions[place]);
            fault.sentence = "four is too many";
            check_fault(runtime, ATTNRUN_E_RANGE, "four is too many");
        }
        attnrun_runtime_destroy(runtime);
    }
}

static void test_faulty_phases_are_told(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        attnrun_runtime *runtime = faulty_runtime(threads);
        fault.n_tasks = -1;
        check_fault(runtime, ATTNRUN_E_INTERNAL, "-1 tasks in phase 0");
        fault.n_tasks = INT64_C(1) << 60; /* not begun */
        check_fault(runtime, ATTNRUN_E_INTERNAL, "expected 0 to 2^46");
        fault.n_tasks = 1;
        fault.n_phases = 99;
        check_fault(runtime, ATTNRUN_E_INTERNAL, "99 phases");
        fault.n_phases = 0;
        check_fault(runtime, ATTNRUN_E_INTERNAL, "0 phases");
        attnrun_runtime_destroy(runtime);
    }
}

/* What an operator does not return, and what pack() says. */
static void test_statuses_of_calls_are_none_of_operators(void **state)
{
    (void)state;
    static const attnrun_status none[] = { ATTNRUN_E_USAGE,   ATTNRUN_E_IO,
                                           ATTNRUN_E_PARSE,   ATTNRUN_E_PATH,
                                           ATTNRUN_E_VERSION, ATTNRUN_E_NONFINITE };
    attnrun_runtime *runtime = faulty_runtime(1);
    for (enum place place = IN_INFER; place <= IN_PACK; place++)
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
            fault.place = place;
            fault.status = none[i];
            fault.sentence = i % 2 ? "called wrongly" : NULL;
            check_fault(runtime, ATTNRUN_E_INTERNAL,
                        "which is not a status of an operator");
        }
    fault.place = IN_PACK;
    fault.status = ATTNRUN_E_ATTR;
    fault.sentence = "four is too many";
    check_fault(runtime, ATTNRUN_E_ATTR, "ATTR: four is too many");
    attnrun_runtime_destroy(runtime);
}

/* ---- rows, views and constants ---- */

static struct {
    int64_t offset, packed_bytes;
    bool view;
} given;

static attnrun_status view_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    if (given.view)
        attnrun_step_view(step, 0, 0, given.offset);
    return ATTNRUN_OK;
}

static void test_views_lie_within_their_input(void **state)
{
    (void)state;
    attnrun_op_def op = faulty_op;
    attnrun_runtime *runtime = faulty_runtime(1);
    op.infer = view_infer;
    op.pack = NULL;
    OK(attnrun_register_op(runtime, &op));
    given.view = true;
    for (int i = 0; i < 4; i++) {
        given.offset = (int64_t[]){ -4, 1, 1 << 20, INT64_MIN }[i];
        check_fault(runtime, ATTNRUN_E_INTERNAL, "output 0 is a view of 16 bytes from");
    }
    given.offset = 0;
    OK(try_faulty(runtime));
    op.run = NULL;
    OK(try_faulty(runtime));
    given.view = false;
    check_fault(runtime, ATTNRUN_E_INTERNAL, "output 0 is not a view of an input");
    attnrun_runtime_destroy(runtime);
}

static attnrun_status unsized_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->out[0].dims[0] = attnrun_dim_unknown(step);
    return ATTNRUN_OK;
}

/* The shape of its output depends on data, and run() makes none. */
static void test_output_that_is_not_written_is_told(void **state)
{
    (void)state;
    attnrun_op_def op = faulty_op;
    attnrun_runtime *runtime = faulty_runtime(1);
    op.flags = ATTNRUN_OP_DYNAMIC;
    op.infer = unsized_infer;
    op.pack = NULL;
    OK(attnrun_register_op(runtime, &op));
    check_fault(runtime, ATTNRUN_E_INTERNAL, "output 0 was not written");
    attnrun_runtime_destroy(runtime);
}

static void test_rows_with_unknown_flags_are_refused(void **state)
{
    (void)state;
    attnrun_runtime *runtime = faulty_runtime(1);
    attnrun_op_def op = faulty_op;
    op.flags = 1u << 30;
    FAILS(ATTNRUN_E_USAGE, "flags 0x40000000", attnrun_register_op(runtime, &op));
    op.flags = 0;
    op.storage_in = 1;
    FAILS(ATTNRUN_E_USAGE, "storage_in 0x1", attnrun_register_op(runtime, &op));
    attnrun_runtime_destroy(runtime);
}

static attnrun_status replacing_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    pack->replaces = 1;
    *bytes = given.packed_bytes;
    if (packed != NULL)
        memcpy(packed, pack->x[0].data, 16);
    return ATTNRUN_OK;
}

static attnrun_status packed_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)work;
    assert_null(step->x[0].data);
    assert_int_equal(step->x[0].dims[0], 4);
    memcpy(step->y[0].data, step->node->packed, 16);
    return ATTNRUN_OK;
}

static void test_what_pack_replaces_is_null(void **state)
{
    (void)state;
    float x[4] = { 10, 20, 30, 40 };
    attnrun_tensor y;
    attnrun_runtime *runtime = faulty_runtime(1);
    attnrun_op_def op = faulty_op;
    op.flags = ATTNRUN_OP_IMPURE; /* not folded */
    op.pack = replacing_pack;
    op.run = packed_run;
    OK(attnrun_register_op(runtime, &op));
    attnrun_model *model = open_model(runtime, write_faulty(true), 0);
    attnrun_context *context = NULL;
    given.packed_bytes = -4;
    FAILS(ATTNRUN_E_INTERNAL, "pack() set the size to -4 bytes",
          attnrun_context_create(model, &context));
    given.packed_bytes = 16;
    context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "4", x);
    OK(attnrun_run(context, NULL));
    OK(attnrun_output(context, 0, &y));
    assert_true(((float *)y.data)[3] == 44);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- outputs and scratch memory that cannot be ---- */

/* What infer() says of its output, after what is right of it. */
static const struct bad_output {
    int32_t kind, dtype, rank;
    int64_t dim0, dim1, scratch_bytes, shared_bytes;
    attnrun_status status;
    const char *words;
} bad_outputs[] = {
    { 1, ATTNRUN_F32, 1, 4, 0, 0, 0, ATTNRUN_OK, "" },
    { 1, 0, 1, 4, 0, 0, 0, ATTNRUN_E_DTYPE, "output 0 has no element type" },
    { 1, -3, 1, 4, 0, 0, 0, ATTNRUN_E_DTYPE, "output 0 has no element type" },
    { 1, ATTNRUN_DTYPE_COUNT, 1, 4, 0, 0, 0, ATTNRUN_E_DTYPE, "no element type" },
    { 1, ATTNRUN_F32, 9, 4, 1, 0, 0, ATTNRUN_E_UNSUPPORTED,
      "has rank 9, expected at most 8" },
    { 1, ATTNRUN_F32, 1, -4, 0, 0, 0, ATTNRUN_E_SHAPE, "dim 0 is negative" },
    { 1, ATTNRUN_F32, 2, 4, -4, 0, 0, ATTNRUN_E_SHAPE, "dim 1 is negative" },
    { 1, ATTNRUN_F32, 1, INT64_MAX, 0, 0, 0, ATTNRUN_E_LIMIT, "or too large" },
    { 1, ATTNRUN_F32, 2, INT64_C(1) << 40, INT64_C(1) << 40, 0, 0, ATTNRUN_E_LIMIT,
      "more elements than fit" },
    { 1, ATTNRUN_F32, 2, INT64_C(1) << 30, INT64_C(1) << 20, 0, 0, ATTNRUN_E_LIMIT,
      "more elements than fit" },
    { 1, ATTNRUN_F32, 1, 4, 0, -1, 0, ATTNRUN_E_MEMORY, "scratch memory overflows" },
    { 1, ATTNRUN_F32, 1, 4, 0, 0, -1, ATTNRUN_E_MEMORY, "scratch memory overflows" },
    { 1, ATTNRUN_F32, 1, 4, 0, INT64_MAX - 7, 0, ATTNRUN_E_MEMORY, "overflows" },
    { 1, ATTNRUN_F32, 1, 4, 0, 0, INT64_MAX - 7, ATTNRUN_E_MEMORY, "overflows" },
    { 1, ATTNRUN_F32, 1, 4, 0, INT64_MAX / 2, INT64_MAX / 2 + 99, ATTNRUN_E_MEMORY,
      "overflows" },
    { 1, ATTNRUN_F32, -1, 0, 0, 0, 0, ATTNRUN_E_INTERNAL, "no known shape" },
};
static const struct bad_output *bad;

static attnrun_status bad_infer(attnrun_step *step)
{
    step->out[0] =
        (attnrun_type){ .kind = bad->kind, .dtype = bad->dtype, .rank = bad->rank };
    step->out[0].dims[0] = attnrun_dim_make(bad->dim0);
    step->out[0].dims[1] = attnrun_dim_make(bad->dim1);
    step->scratch_bytes = bad->scratch_bytes;
    step->shared_bytes = bad->shared_bytes;
    return ATTNRUN_OK;
}

static void test_outputs_that_cannot_be(void **state)
{
    (void)state;
    attnrun_op_def op = faulty_op;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    op.infer = bad_infer;
    op.pack = NULL;
    memset(&fault, 0, sizeof fault);
    OK(attnrun_register_op(runtime, &op));
    for (size_t k = 0; k < sizeof bad_outputs / sizeof *bad_outputs; k++) {
        bad = &bad_outputs[k];
        if (bad->status == ATTNRUN_OK)
            OK(try_faulty(runtime));
        else
            check_fault(runtime, bad->status, bad->words);
    }
    attnrun_runtime_destroy(runtime);
}

/* ---- what functions for operators are given ---- */

static attnrun_status misplacing_infer(attnrun_step *step)
{
    static const int32_t places[] = { -1, INT32_MIN, 1, INT32_MAX };
    const attnrun_dim dim = attnrun_dim_make(4);
    const int64_t dims[1] = { 4 };
    attnrun_dim value;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        attnrun_step_view(step, places[i], 0, 0);
        attnrun_step_view(step, 0, places[i], 0);
        attnrun_step_inplace(step, places[i], 0);
        attnrun_step_inplace(step, 0, places[i]);
        attnrun_step_set_values(step, places[i], 1, &dim);
        assert_int_equal(attnrun_step_append(step, places[i], 0, 0), 0);
        assert_int_equal(attnrun_step_value(step, places[i], 0, &value), 0);
        OK(attnrun_step_alloc(step, places[i], ATTNRUN_F32, 1, dims));
    }
    return faulty_infer(step);
}

static void test_places_that_a_node_lacks_are_left_alone(void **state)
{
    (void)state;
    attnrun_op_def op = faulty_op;
    op.infer = misplacing_infer;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    fault.n_phases = 1;
    fault.n_tasks = 8;
    fault.status = ATTNRUN_OK;
    OK(attnrun_register_op(runtime, &op));
    OK(try_faulty(runtime));
    attnrun_runtime_destroy(runtime);
}

/* What a terminal would obey in a sentence of an operator is shown as bytes, in all places that
 * record one; the rest stays as it is. */
static void test_sentences_are_safe_for_a_terminal(void **state)
{
    (void)state;
    attnrun_runtime *runtime = faulty_runtime(1);
    fault.status = ATTNRUN_E_RANGE;
    fault.sentence = "a\033]0;title\a \xe2\x80\xae\n\xff b\\\xc3\xa9";
    for (enum place place = IN_INFER; place <= IN_PACK; place++) {
        fault.place = place;
        check_fault(runtime, ATTNRUN_E_RANGE,
                    "a\\x1b]0;title\\x07 \\xe2\\x80\\xae\\x0a\\xff b\\\xc3\xa9");
    }
    FAILS(ATTNRUN_E_IO, "\\x1b[1m.so",
          attnrun_load_plugin(runtime, "/no/such\033[1m.so"));
    assert_null(strchr(attnrun_last_error()->message, '\033'));
    char many[4096];
    memset(many, '\033', sizeof many - 1);
    many[sizeof many - 1] = 0;
    FAILS(ATTNRUN_E_RANGE, "\\x1b...", attnrun_step_fail(NULL, ATTNRUN_E_RANGE, many));
    attnrun_runtime_destroy(runtime);
}

static void test_functions_for_operators_take_null(void **state)
{
    (void)state;
    const attnrun_dim one = attnrun_dim_make(1);
    attnrun_dim value;
    const int64_t dims[1] = { 1 };
    FAILS(ATTNRUN_E_RANGE, "RANGE: x", attnrun_step_fail(NULL, ATTNRUN_E_RANGE, "x"));
    FAILS(ATTNRUN_E_USAGE, "step is NULL",
          attnrun_step_alloc(NULL, 0, ATTNRUN_F32, 1, dims));
    FAILS(ATTNRUN_E_USAGE, "work is NULL", attnrun_work_poll(NULL));
    FAILS(ATTNRUN_E_USAGE, "NULL", attnrun_body_add(NULL, "y = x"));
    attnrun_step_view(NULL, 0, 0, 0);
    attnrun_step_inplace(NULL, 0, 0);
    attnrun_step_heap_bound(NULL, 1);
    attnrun_step_flops(NULL, 1);
    attnrun_step_set_values(NULL, 0, 1, &one);
    assert_int_equal(attnrun_step_append(NULL, 0, 0, 0), 0);
    assert_int_equal(attnrun_step_value(NULL, 0, 0, &value), 0);
    attnrun_body_dtype(NULL, ATTNRUN_F32);
    attnrun_body_number(NULL, "a", 1);
    attnrun_body_ints(NULL, "a", 1, dims);
    attnrun_body_input(NULL, "a", 0);
    attnrun_body_output(NULL, "a", 0);
    assert_int_equal(attnrun_dim_add(NULL, one, one).value, 2);
    attnrun_dim_unknown(NULL);
}

/* ---- calls that succeed ---- */

/* Folding fails on the way, and the model is opened all the same. */
static void test_success_leaves_the_last_error(void **state)
{
    (void)state;
    static float x[4];
    attnrun_runtime *runtime = faulty_runtime(1);
    fault.place = IN_RUN;
    fault.status = ATTNRUN_E_RANGE;
    fault.sentence = "not now";
    leave_an_error(ATTNRUN_E_ATTR);
    attnrun_error before = *attnrun_last_error();
    attnrun_model *model = open_model(runtime, write_faulty(true), 0);
    assert_memory_equal(&before, attnrun_last_error(), sizeof before);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "4", x);
    assert_memory_equal(&before, attnrun_last_error(), sizeof before);
    FAILS(ATTNRUN_E_RANGE, "not now", attnrun_run(context, NULL));
    leave_an_error(ATTNRUN_E_ATTR);
    fault.status = ATTNRUN_OK;
    OK(attnrun_run(context, NULL));
    assert_memory_equal(&before, attnrun_last_error(), sizeof before);
    attnrun_context_destroy(context);
    attnrun_model_release(model);

    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_node(w, "test::Missing", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    model = open_model(runtime, w, ATTNRUN_ALLOW_MISSING);
    assert_memory_equal(&before, attnrun_last_error(), sizeof before);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- a context in two threads ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool inside, leave;
} door = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static attnrun_status wait_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    return ATTNRUN_OK;
}

static attnrun_status wait_run(const attnrun_step *step, const attnrun_work *work)
{
    (void)step, (void)work;
    pthread_mutex_lock(&door.lock);
    door.inside = true;
    pthread_cond_broadcast(&door.changed);
    while (!door.leave)
        pthread_cond_wait(&door.changed, &door.lock);
    pthread_mutex_unlock(&door.lock);
    return ATTNRUN_OK;
}

static const attnrun_op_def wait_op = { .struct_size = sizeof wait_op,
                                        .domain = "test",
                                        .name = "Wait",
                                        .since = 1,
                                        .inputs = "x:T",
                                        .outputs = "y:T",
                                        .types = "T=f32",
                                        .infer = wait_infer,
                                        .run = wait_run };

static void *run_it(void *context)
{
    return attnrun_run(context, NULL) == ATTNRUN_OK ? context : NULL;
}

static void test_a_context_in_use_is_refused(void **state)
{
    (void)state;
    float x[4] = { 0 };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    OK(attnrun_register_op(runtime, &wait_op));
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "test");
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_node(w, "test::Wait", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4");
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    attnrun_tensor tensor = tensor_of(ATTNRUN_F32, "4", x);
    attnrun_plan_info plan = { .struct_size = sizeof plan };
    attnrun_plan_block block = { .struct_size = sizeof block };
    attnrun_memory_info memory = { .struct_size = sizeof memory };
    pthread_t thread;
    void *done;
    OK(attnrun_set_input(context, 0, &tensor));
    assert_int_equal(pthread_create(&thread, NULL, run_it, context), 0);
    pthread_mutex_lock(&door.lock);
    while (!door.inside)
        pthread_cond_wait(&door.changed, &door.lock);
    pthread_mutex_unlock(&door.lock);
#define REFUSED(call) FAILS(ATTNRUN_E_USAGE, "another call", call)
    REFUSED(attnrun_run(context, NULL));
    REFUSED(attnrun_set_input(context, 0, &tensor));
    REFUSED(attnrun_set_output(context, 0, &tensor));
    REFUSED(attnrun_output(context, 0, &tensor));
    REFUSED(attnrun_add_state(context, 0, 0, 0));
    REFUSED(attnrun_truncate_state(context, 0, 0));
    REFUSED(attnrun_plan(context, &tensor, &plan));
    REFUSED(attnrun_reserve(context, &tensor));
    REFUSED(attnrun_plan_get_block(context, 0, &block));
    REFUSED(attnrun_context_memory(context, &memory));
#undef REFUSED
    attnrun_trim(context);
    attnrun_reset_states(context);
    pthread_mutex_lock(&door.lock);
    door.leave = true;
    pthread_cond_broadcast(&door.changed);
    pthread_mutex_unlock(&door.lock);
    pthread_join(thread, &done);
    assert_ptr_equal(done, context);
    OK(attnrun_output(context, 0, &tensor));
    OK(attnrun_run(context, NULL));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faulty_statuses_are_told),
        cmocka_unit_test(test_faulty_phases_are_told),
        cmocka_unit_test(test_statuses_of_calls_are_none_of_operators),
        cmocka_unit_test(test_views_lie_within_their_input),
        cmocka_unit_test(test_output_that_is_not_written_is_told),
        cmocka_unit_test(test_rows_with_unknown_flags_are_refused),
        cmocka_unit_test(test_what_pack_replaces_is_null),
        cmocka_unit_test(test_outputs_that_cannot_be),
        cmocka_unit_test(test_places_that_a_node_lacks_are_left_alone),
        cmocka_unit_test(test_sentences_are_safe_for_a_terminal),
        cmocka_unit_test(test_functions_for_operators_take_null),
        cmocka_unit_test(test_success_leaves_the_last_error),
        cmocka_unit_test(test_a_context_in_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

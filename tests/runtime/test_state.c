/* test_state.c - outputs that become inputs of the next run. */
#include "harness.h"

enum { MAX = 64 };

/* present = Concat(past, x); sum = ReduceSum(present) */
static struct onnx_writer *cache_model(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "past", ATTNRUN_F32, "P,2");
    onnx_input(w, "x", ATTNRUN_F32, "N,2");
    onnx_output(w, "present", ATTNRUN_F32, "T,2");
    onnx_output(w, "sum", ATTNRUN_F32, NULL);
    onnx_node(w, "Concat", "past,x", "present");
    onnx_attr_int(w, "axis", 0);
    onnx_node(w, "ReduceSum", "present", "sum");
    onnx_attr_int(w, "keepdims", 0);
    return w;
}

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
};

static void start(struct bench *bench)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 1);
    bench->model = open_model(bench->runtime, cache_model(), 0);
    bench->context = make_context(bench->model);
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static void feed(struct bench *bench, float *x, int rows)
{
    char dims[16];
    snprintf(dims, sizeof dims, "%d,2", rows);
    set_input(bench->context, 1, ATTNRUN_F32, dims, x);
    OK(attnrun_run(bench->context, NULL));
}

static void test_state_grows_by_each_run(void **state)
{
    struct bench bench;
    float x[2 * MAX], total = 0;
    (void)state;
    start(&bench);
    OK(attnrun_add_state(bench.context, 0, 0, 0));
    set_input(bench.context, 0, ATTNRUN_F32, "0,2", x);
    for (int i = 0; i < 2 * MAX; i++)
        x[i] = (float)i;
    for (int row = 0; row < MAX; row++) {
        feed(&bench, x + 2 * row, 1);
        total += x[2 * row] + x[2 * row + 1];
        attnrun_tensor present = get_output(bench.context, 0);
        assert_int_equal(present.dims[0], row + 1);
        assert_memory_equal(present.data, x, (size_t)(row + 1) * 2 * sizeof *x);
        assert_true(*(float *)get_output(bench.context, 1).data == total);
    }
    stop(&bench);
}

/* The run itself writes the memory of the state, or frees it. */
static void test_what_a_run_began_with_is_kept(void **state)
{
    struct bench bench;
    float x[2 * MAX];
    attnrun_tensor past;
    (void)state;
    start(&bench);
    OK(attnrun_add_state(bench.context, 0, 0, 0));
    OK(attnrun_watch(bench.context, "past"));
    set_input(bench.context, 0, ATTNRUN_F32, "0,2", x);
    for (int i = 0; i < 2 * MAX; i++)
        x[i] = (float)i;
    for (int row = 0; row < MAX; row++) {
        feed(&bench, x + 2 * row, 1);
        OK(attnrun_value(bench.context, "past", &past));
        assert_int_equal(past.dims[0], row);
        assert_memory_equal(past.data, x, (size_t)row * 2 * sizeof *x);
        assert_int_equal(get_output(bench.context, 0).dims[0], row + 1);
    }
    stop(&bench);
}

static void test_capacity_makes_later_growth_free(void **state)
{
    struct bench bench;
    float x[2 * MAX] = { 0 };
    (void)state;
    start(&bench);
    OK(attnrun_add_state(bench.context, 0, 0, (int64_t)sizeof x));
    set_input(bench.context, 0, ATTNRUN_F32, "0,2", x);
    feed(&bench, x, 1);
    attnrun_tensor first = get_output(bench.context, 0);
    assert_int_equal(first.dims[0], 1);
    for (int row = 1; row < MAX; row++)
        feed(&bench, x, 1);
    assert_int_equal(get_output(bench.context, 0).dims[0], MAX);
    stop(&bench);
}

/* present = Concat(past, x) along axis 1, of elements of 4 bits */
static void test_elements_that_share_bytes_are_not_cut_apart(void **state)
{
    (void)state;
    struct onnx_writer *w = onnx_begin(21);
    uint8_t x[2] = { 0x31, 0 };
    onnx_input(w, "past", ATTNRUN_U4, "B,P");
    onnx_input(w, "x", ATTNRUN_U4, "B,N");
    onnx_output(w, "present", ATTNRUN_U4, "B,T");
    onnx_node(w, "Cast", "past", "p");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Cast", "x", "n");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Concat", "p,n", "t");
    onnx_attr_int(w, "axis", 1);
    onnx_node(w, "Cast", "t", "present");
    onnx_attr_int(w, "to", ATTNRUN_U4);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, w, 0);
    for (int rows = 1; rows <= 2; rows++) {
        attnrun_context *context = make_context(model);
        OK(attnrun_add_state(context, 0, 0, 0));
        set_input(context, 0, ATTNRUN_U4, rows == 1 ? "1,0" : "2,0", x);
        set_input(context, 1, ATTNRUN_U4, rows == 1 ? "1,1" : "2,1", x);
        OK(attnrun_run(context, NULL));
        OK(attnrun_run(context, NULL));
        if (rows == 1)
            OK(attnrun_truncate_state(context, 0, 1));
        else
            FAILS(ATTNRUN_E_USAGE, "share bytes", attnrun_truncate_state(context, 0, 1));
        OK(attnrun_run(context, NULL));
        const uint8_t *y = get_output(context, 0).data;
        assert_int_equal(y[0], 0x11); /* 1,1 of the only row, or of 1,1,1 and 3,3,3 */
        if (rows == 2)
            assert_int_equal(y[1], 0x31);
        attnrun_context_destroy(context);
    }
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* Growth takes twice what is needed while the budget has that, then only what is needed;
 * a state that finds no room stays, and goes on where something is cut off. */
static void test_growth_respects_the_budget(void **state)
{
    (void)state;
    enum { ROWS = 100000, MIB = 1 << 20 };
    const int64_t segment = 2 * ROWS * (int64_t)sizeof(float); /* 0.8 MB */
    struct bench bench;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    float *x = calloc(2 * ROWS, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < 2 * ROWS; i++)
        x[i] = 1;
    test_memory_init(&bench.memory);
    bench.runtime = make_runtime_limited(&bench.memory, 1, 8 * MIB);
    bench.model = open_model(bench.runtime, cache_model(), 0);
    bench.context = make_context(bench.model);
    OK(attnrun_add_state(bench.context, 0, 0, 0));
    set_input(bench.context, 0, ATTNRUN_F32, "0,2", x);
    int runs = 0;
    set_input(bench.context, 1, ATTNRUN_F32, "100000,2", x);
    while (attnrun_run(bench.context, NULL) == ATTNRUN_OK)
        assert_true(++runs < 20);
    FAILS(ATTNRUN_E_MEMORY, "budget", attnrun_run(bench.context, NULL));
    OK(attnrun_runtime_query(bench.runtime, &info));
    assert_true(info.peak_memory <= 8 * MIB);
    /* n pieces are held while n + 1 are asked for beside them. */
    assert_true((2 * runs + 1) * segment > 7 * MIB);
    OK(attnrun_truncate_state(bench.context, 0, (runs - 1) * ROWS));
    OK(attnrun_run(bench.context, NULL));
    assert_int_equal(get_output(bench.context, 0).dims[0], runs * ROWS);
    assert_true(*(float *)get_output(bench.context, 1).data == (float)(2 * runs * ROWS));
    free(x);
    stop(&bench);
}

static void test_reset_asks_for_the_input_again(void **state)
{
    struct bench bench;
    float x[4] = { 1, 2, 3, 4 };
    (void)state;
    start(&bench);
    OK(attnrun_add_state(bench.context, 0, 0, 0));
    set_input(bench.context, 0, ATTNRUN_F32, "0,2", x);
    feed(&bench, x, 2);
    attnrun_reset_states(bench.context);
    FAILS(ATTNRUN_E_INPUT, "'past'", attnrun_run(bench.context, NULL));
    set_input(bench.context, 0, ATTNRUN_F32, "0,2", x);
    feed(&bench, x, 1);
    assert_int_equal(get_output(bench.context, 0).dims[0], 1);
    stop(&bench);
}

static void test_pairs_that_do_not_fit_are_refused(void **state)
{
    struct bench bench;
    (void)state;
    start(&bench);
    FAILS(ATTNRUN_E_USAGE, "no pair", attnrun_add_state(bench.context, 2, 0, 0));
    FAILS(ATTNRUN_E_USAGE, "no pair", attnrun_add_state(bench.context, 0, -1, 0));
    FAILS(ATTNRUN_E_USAGE, "cannot become", attnrun_add_state(bench.context, 0, 1, 0));
    OK(attnrun_add_state(bench.context, 0, 0, 0));
    FAILS(ATTNRUN_E_USAGE, "not a state", attnrun_truncate_state(bench.context, 0, 0));
    FAILS(ATTNRUN_E_USAGE, "not a state", attnrun_truncate_state(bench.context, 1, 0));
    FAILS(ATTNRUN_E_USAGE, "already", attnrun_add_state(bench.context, 0, 0, 0));
    FAILS(ATTNRUN_E_MEMORY, "", attnrun_add_state(bench.context, 1, 0, INT64_MAX));
    stop(&bench);
}

/* Two states grow by each run that succeeds, and by none that fails. */
static struct onnx_writer *two_states(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "p", ATTNRUN_F32, "P");
    onnx_input(w, "q", ATTNRUN_F32, "Q");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_node(w, "Concat", "p,x", "p1");
    onnx_attr_int(w, "axis", 0);
    onnx_node(w, "Concat", "q,x,x", "q1");
    onnx_attr_int(w, "axis", 0);
    onnx_output(w, "p1", ATTNRUN_F32, "T");
    onnx_output(w, "q1", ATTNRUN_F32, "U");
    return w;
}

static void test_state_of_a_failed_run_stays(void **state)
{
    (void)state;
    float x[2] = { 1, 2 };
    for (int64_t call = 0;; call++) {
        struct bench bench;
        test_memory_init(&bench.memory);
        bench.runtime = make_runtime(&bench.memory, 1);
        bench.model = open_model(bench.runtime, two_states(), 0);
        bench.context = make_context(bench.model);
        OK(attnrun_add_state(bench.context, 0, 0, 0));
        OK(attnrun_add_state(bench.context, 1, 1, 0));
        set_input(bench.context, 0, ATTNRUN_F32, "0", x);
        set_input(bench.context, 1, ATTNRUN_F32, "0", x);
        set_input(bench.context, 2, ATTNRUN_F32, "2", x);
        OK(attnrun_run(bench.context, NULL));
        atomic_store(&bench.memory.fail_at, atomic_load(&bench.memory.calls) + call);
        attnrun_status status = attnrun_run(bench.context, NULL);
        bool failed = atomic_load(&bench.memory.failed) > 0;
        atomic_store(&bench.memory.fail_at, -1);
        assert_int_equal(status, failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK);
        OK(attnrun_run(bench.context, NULL));
        attnrun_tensor p = get_output(bench.context, 0), q = get_output(bench.context, 1);
        int64_t runs = failed ? 2 : 3;
        assert_int_equal(p.dims[0], 2 * runs);
        assert_int_equal(q.dims[0], 4 * runs);
        for (int64_t i = 0; i < 4 * runs; i++)
            assert_int_equal((int)((float *)q.data)[i], 1 + (int)(i % 2));
        stop(&bench);
        if (!failed)
            break;
    }
}

/* ---- copies, rows and sequences ---- */

/* p1 = Concat(p, x) along the middle axis, of (batch, tokens, 2); q1 = q + sum(x) of each row. */
static struct onnx_writer *batch_model(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "p", ATTNRUN_F32, "B,P,2");
    onnx_input(w, "q", ATTNRUN_F32, "B");
    onnx_input(w, "x", ATTNRUN_F32, "B,N,2");
    onnx_output(w, "p1", ATTNRUN_F32, "B,T,2");
    onnx_output(w, "q1", ATTNRUN_F32, "B");
    onnx_node(w, "Concat", "p,x", "p1");
    onnx_attr_int(w, "axis", 1);
    int64_t axes[] = { 1, 2 };
    onnx_ints(w, "axes", 2, axes);
    onnx_node(w, "ReduceSum", "x,axes", "sum");
    onnx_attr_int(w, "keepdims", 0);
    onnx_node(w, "Add", "q,sum", "q1");
    return w;
}

static void start_batch(struct bench *bench)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 1);
    bench->model = open_model(bench->runtime, batch_model(), 0);
    bench->context = make_context(bench->model);
    OK(attnrun_add_state(bench->context, 0, 0, 0));
    OK(attnrun_add_state(bench->context, 1, 1, 0));
}

static void set_empty(attnrun_context *context, int batch)
{
    static float zeros[MAX];
    char dims[16];
    snprintf(dims, sizeof dims, "%d,0,2", batch);
    set_input(context, 0, ATTNRUN_F32, dims, zeros);
    snprintf(dims, sizeof dims, "%d", batch);
    set_input(context, 1, ATTNRUN_F32, dims, zeros);
}

/* One token for each row of the batch: 10 times its word and that plus 1. */
static void step(attnrun_context *context, int batch, const int *words)
{
    float x[2 * MAX];
    char dims[16];
    for (int i = 0; i < batch; i++) {
        x[2 * i] = 10.0f * (float)words[i];
        x[2 * i + 1] = 10.0f * (float)words[i] + 1;
    }
    snprintf(dims, sizeof dims, "%d,1,2", batch);
    set_input(context, 2, ATTNRUN_F32, dims, x);
    OK(attnrun_run(context, NULL));
}

/* Row `row` has had these words, the last run included. */
static void expect_words(attnrun_context *context, int row, int n, const int *words)
{
    attnrun_tensor p = get_output(context, 0), q = get_output(context, 1);
    assert_int_equal(p.dims[1], n);
    const char *at = (const char *)p.data + row * p.strides[0];
    float sum = 0;
    for (int i = 0; i < n; i++) {
        const float *pair = (const float *)(const void *)(at + i * p.strides[1]);
        assert_int_equal((int)pair[0], 10 * words[i]);
        assert_int_equal((int)pair[1], 10 * words[i] + 1);
        sum += pair[0] + pair[1];
    }
    assert_true(((const float *)q.data)[row] == sum);
}

#define WORDS(...) ((const int[]){ __VA_ARGS__ })

static void test_rows_are_reordered(void **state)
{
    (void)state;
    struct bench bench;
    start_batch(&bench);
    FAILS(ATTNRUN_E_USAGE, "not a state",
          attnrun_reorder_states(bench.context, -1, 0, (int64_t[]){ 0 }, 1));
    set_empty(bench.context, 3);
    step(bench.context, 3, WORDS(1, 2, 3));
    step(bench.context, 3, WORDS(4, 5, 6));
    OK(attnrun_reorder_states(bench.context, -1, 0, (int64_t[]){ 2, 0, 2 }, 3));
    step(bench.context, 3, WORDS(7, 8, 9));
    expect_words(bench.context, 0, 3, WORDS(3, 6, 7));
    expect_words(bench.context, 1, 3, WORDS(1, 4, 8));
    expect_words(bench.context, 2, 3, WORDS(3, 6, 9));
    /* Two rows are finished, and the third becomes two. */
    OK(attnrun_reorder_states(bench.context, -1, 0, (int64_t[]){ 1, 1 }, 2));
    step(bench.context, 2, WORDS(1, 2));
    expect_words(bench.context, 0, 4, WORDS(1, 4, 8, 1));
    expect_words(bench.context, 1, 4, WORDS(1, 4, 8, 2));
    OK(attnrun_reorder_states(bench.context, -1, 0, (int64_t[]){ 0, 1 }, 2));
    OK(attnrun_reorder_states(bench.context, -1, 0, (int64_t[]){ 1, 0, 1, 0, 0 }, 5));
    step(bench.context, 5, WORDS(5, 5, 5, 5, 6));
    expect_words(bench.context, 2, 5, WORDS(1, 4, 8, 2, 5));
    expect_words(bench.context, 4, 5, WORDS(1, 4, 8, 1, 6));
    stop(&bench);
}

static void test_rows_that_are_not_there_are_refused(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_tensor p;
    start_batch(&bench);
    set_empty(bench.context, 2);
    step(bench.context, 2, WORDS(1, 2));
    const int64_t rows[] = { 1, 0, 2, -1 };
    FAILS(ATTNRUN_E_USAGE, "row 2",
          attnrun_reorder_states(bench.context, -1, 0, rows, 3));
    FAILS(ATTNRUN_E_USAGE, "row -1",
          attnrun_reorder_states(bench.context, 1, 0, rows + 3, 1));
    FAILS(ATTNRUN_E_USAGE, "no axis 1",
          attnrun_reorder_states(bench.context, 1, 1, rows, 2));
    FAILS(ATTNRUN_E_USAGE, "grows",
          attnrun_reorder_states(bench.context, 0, 1, rows + 1, 1));
    FAILS(ATTNRUN_E_USAGE, "no axis",
          attnrun_reorder_states(bench.context, 0, -1, rows, 2));
    FAILS(ATTNRUN_E_USAGE, "not a state",
          attnrun_reorder_states(bench.context, 2, 0, rows, 2));
    FAILS(ATTNRUN_E_USAGE, "rows", attnrun_reorder_states(bench.context, -1, 0, NULL, 2));
    FAILS(ATTNRUN_E_USAGE, "rows",
          attnrun_reorder_states(bench.context, -1, 0, rows, -1));
    FAILS(ATTNRUN_E_USAGE, "",
          attnrun_output(bench.context, 0, &p)); /* gone, as is said */
    step(bench.context, 2, WORDS(3, 4));         /* what the states hold stayed */
    expect_words(bench.context, 0, 2, WORDS(1, 3));
    expect_words(bench.context, 1, 2, WORDS(2, 4));
    stop(&bench);
}

/* A state with room behind an axis on which no run has made it longer yet. */
static void test_states_that_have_not_grown_are_copied(void **state)
{
    (void)state;
    struct onnx_writer *w = onnx_begin(18);
    float x[4] = { 1, 2, 3, 4 };
    onnx_input(w, "past", ATTNRUN_F32, "2,P");
    onnx_input(w, "x", ATTNRUN_F32, "2,N");
    onnx_output(w, "present", ATTNRUN_F32, "2,T");
    onnx_node(w, "Concat", "past,x", "present");
    onnx_attr_int(w, "axis", 1);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_add_state(context, 0, 0, 4096));
    set_input(context, 0, ATTNRUN_F32, "2,2", x);
    set_input(context, 1, ATTNRUN_F32, "2,0", x);
    OK(attnrun_run(context, NULL));
    OK(attnrun_reorder_states(context, 0, 0, (int64_t[]){ 1, 0 }, 2));
    set_input(context, 1, ATTNRUN_F32, "2,1", x);
    OK(attnrun_run(context, NULL));
    attnrun_tensor y = get_output(context, 0);
    for (int row = 0; row < 2; row++)
        assert_memory_equal((char *)y.data + row * y.strides[0],
                            row == 0 ? ((float[]){ 3, 4, 1 }) : ((float[]){ 1, 2, 2 }),
                            12);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

static void test_sequences_are_kept_apart(void **state)
{
    (void)state;
    struct bench bench;
    start_batch(&bench);
    set_empty(bench.context, 1);
    step(bench.context, 1, WORDS(1));
    step(bench.context, 1, WORDS(2));
    OK(attnrun_select_sequence(bench.context, 7));
    FAILS(ATTNRUN_E_INPUT, "'p'", attnrun_run(bench.context, NULL));
    set_empty(bench.context, 1);
    step(bench.context, 1, WORDS(3));
    OK(attnrun_select_sequence(bench.context, 0));
    step(bench.context, 1, WORDS(4));
    expect_words(bench.context, 0, 3, WORDS(1, 2, 4));
    OK(attnrun_select_sequence(bench.context, 7));
    step(bench.context, 1, WORDS(5));
    expect_words(bench.context, 0, 2, WORDS(3, 5));
    OK(attnrun_select_sequence(bench.context, 8)); /* a branch of sequence 0 */
    OK(attnrun_copy_states(bench.context, bench.context, 0));
    step(bench.context, 1, WORDS(6));
    expect_words(bench.context, 0, 4, WORDS(1, 2, 4, 6));
    OK(attnrun_drop_sequence(bench.context, 7));
    FAILS(ATTNRUN_E_USAGE, "no sequence 7",
          attnrun_copy_states(bench.context, bench.context, 7));
    FAILS(ATTNRUN_E_USAGE, "selected", attnrun_drop_sequence(bench.context, 8));
    FAILS(ATTNRUN_E_USAGE, "number", attnrun_select_sequence(bench.context, -1));
    FAILS(ATTNRUN_E_USAGE, "number", attnrun_drop_sequence(bench.context, -1));
    OK(attnrun_select_sequence(bench.context, 0));
    step(bench.context, 1, WORDS(7));
    expect_words(bench.context, 0, 4, WORDS(1, 2, 4, 7));
    stop(&bench);
}

static void test_states_are_copied_between_contexts(void **state)
{
    (void)state;
    struct bench bench;
    start_batch(&bench);
    attnrun_context *other = make_context(bench.model);
    set_empty(bench.context, 2);
    step(bench.context, 2, WORDS(1, 2));
    step(bench.context, 2, WORDS(3, 4));
    FAILS(ATTNRUN_E_USAGE, "0 and 2 states",
          attnrun_copy_states(other, bench.context, 0));
    OK(attnrun_add_state(other, 0, 0, 0));
    OK(attnrun_add_state(other, 1, 1, 0));
    FAILS(ATTNRUN_E_USAGE, "no sequence 3", attnrun_copy_states(other, bench.context, 3));
    OK(attnrun_copy_states(other, bench.context, 0));
    step(other, 2, WORDS(5, 6));
    step(bench.context, 2, WORDS(7, 8));
    expect_words(other, 0, 3, WORDS(1, 3, 5));
    expect_words(bench.context, 0, 3, WORDS(1, 3, 7));
    OK(attnrun_truncate_state(other, 0, 1)); /* p is cut and q, its sum, is not */
    attnrun_reset_states(bench.context);
    OK(attnrun_copy_states(other, bench.context, 0)); /* holding nothing is copied, too */
    FAILS(ATTNRUN_E_INPUT, "'p'", attnrun_run(other, NULL));
    attnrun_context_destroy(other);
    stop(&bench);
}

/* Each of the calls either does all of its work or changes nothing. */
static void test_changes_without_memory_change_nothing(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++)
        for (int64_t call = 0;; call++) {
            struct bench bench;
            start_batch(&bench);
            set_empty(bench.context, 2);
            step(bench.context, 2, WORDS(1, 2));
            OK(attnrun_select_sequence(bench.context, 1));
            set_empty(bench.context, 2);
            step(bench.context, 2, WORDS(3, 4));
            atomic_store(&bench.memory.fail_at, atomic_load(&bench.memory.calls) + call);
            attnrun_status status =
                which == 0
                    ? attnrun_reorder_states(bench.context, -1, 0, (int64_t[]){ 1, 0 }, 2)
                : which == 1 ? attnrun_copy_states(bench.context, bench.context, 0)
                             : attnrun_select_sequence(bench.context, 0);
            bool failed = atomic_load(&bench.memory.failed) > 0;
            atomic_store(&bench.memory.fail_at, -1);
            assert_int_equal(status, failed ? ATTNRUN_E_MEMORY : ATTNRUN_OK);
            step(bench.context, 2, WORDS(5, 6));
            const int first = failed ? 3 : which == 0 ? 4 : 1;
            expect_words(bench.context, 0, 2, WORDS(first, 5));
            stop(&bench);
            if (!failed)
                break;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_grows_by_each_run),
        cmocka_unit_test(test_what_a_run_began_with_is_kept),
        cmocka_unit_test(test_capacity_makes_later_growth_free),
        cmocka_unit_test(test_elements_that_share_bytes_are_not_cut_apart),
        cmocka_unit_test(test_growth_respects_the_budget),
        cmocka_unit_test(test_reset_asks_for_the_input_again),
        cmocka_unit_test(test_pairs_that_do_not_fit_are_refused),
        cmocka_unit_test(test_state_of_a_failed_run_stays),
        cmocka_unit_test(test_rows_are_reordered),
        cmocka_unit_test(test_rows_that_are_not_there_are_refused),
        cmocka_unit_test(test_states_that_have_not_grown_are_copied),
        cmocka_unit_test(test_sequences_are_kept_apart),
        cmocka_unit_test(test_states_are_copied_between_contexts),
        cmocka_unit_test(test_changes_without_memory_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

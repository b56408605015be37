/* test_side_heap.c - memory of a run that is not in the arena: it is given back, counted
 * with that of subgraphs, and what a plan says of it holds. */
#include "harness.h"

enum { N = 3000 };

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    attnrun_tensor inputs[2];
    int32_t n_inputs;
};

static void start(struct bench *bench, struct onnx_writer *w)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 2);
    bench->model = open_model(bench->runtime, w, 0);
    bench->context = make_context(bench->model);
    bench->n_inputs = 0;
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static void give(struct bench *bench, int32_t dtype, const char *dims, void *data)
{
    int32_t at = bench->n_inputs++;
    bench->inputs[at] = tensor_of(dtype, dims, data);
    OK(attnrun_set_input(bench->context, at, &bench->inputs[at]));
}

static attnrun_plan_info plan_of(struct bench *bench)
{
    attnrun_plan_info info = { .struct_size = sizeof info };
    OK(attnrun_plan(bench->context, bench->inputs, &info));
    return info;
}

static attnrun_memory_info memory_of(struct bench *bench)
{
    attnrun_memory_info info = { .struct_size = sizeof info };
    OK(attnrun_context_memory(bench->context, &info));
    return info;
}

/* The text of a run is gone with the next one, although no step is late. */
static void test_side_heap_text_is_given_back(void **state)
{
    (void)state;
    struct bench bench;
    float x[N];
    uint64_t seed = test_seed();
    fill_floats(&seed, x, N);
    struct onnx_writer *w = onnx_begin(21);
    onnx_input(w, "x", ATTNRUN_F32, "N,3");
    onnx_node(w, "Cast", "x", "y");
    onnx_attr_int(w, "to", ATTNRUN_STRING);
    onnx_output(w, "y", ATTNRUN_STRING, "N,3");
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "1000,3", x);
    OK(attnrun_run(bench.context, NULL));
    int64_t live = atomic_load(&bench.memory.live_bytes);
    for (int turn = 0; turn < 5; turn++)
        OK(attnrun_run(bench.context, NULL));
    assert_int_equal(atomic_load(&bench.memory.live_bytes), live);
    set_input(bench.context, 0, ATTNRUN_F32, "0,3", x); /* another plan, without text */
    OK(attnrun_run(bench.context, NULL));
    set_input(bench.context, 0, ATTNRUN_F32, "1000,3", x);
    OK(attnrun_run(bench.context, NULL));
    attnrun_tensor y = get_output(bench.context, 0);
    char text[32];
    for (int i = 0; i < N; i++) { /* the shortest text that reads back */
        const attnrun_string *s = &((attnrun_string *)y.data)[i];
        assert_in_range(s->n, 3, 24);
        snprintf(text, sizeof text, "%.*s", (int)s->n, s->data);
        float back = strtof(text, NULL);
        assert_memory_equal(&back, &x[i], sizeof back);
    }
    stop(&bench);
}

/* The bound of Unique has its lists, too, which nothing reads here. */
static void check_bound(struct bench *bench, const char *what)
{
    attnrun_plan_info plan = plan_of(bench);
    OK(attnrun_run(bench->context, NULL));
    OK(attnrun_run(bench->context, NULL));
    int64_t taken = memory_of(bench).side_heap_bytes;
    const bool exact = strcmp(what, "Unique") != 0;
    if (plan.n_unbounded_steps != 0 || taken <= 0 || taken > plan.side_heap_bytes ||
        (exact && taken < plan.side_heap_bytes))
        fail_msg("%s takes %lld bytes, the plan says %lld and %d steps without a bound",
                 what, (long long)taken, (long long)plan.side_heap_bytes,
                 (int)plan.n_unbounded_steps);
}

/* All elements are different and none is zero: the most there can be. */
static void test_side_heap_bound_of_one_operator(void **state)
{
    (void)state;
    static const struct {
        const char *op, *attrs, *outputs;
        int32_t dtype;
        bool condition;
    } cases[] = {
        { "NonZero", "", "y", ATTNRUN_F32, false },
        { "Unique", "", "y,i,r,c", ATTNRUN_F32, false },
        { "Unique", "axis=0", "y,i,r,c", ATTNRUN_I32, false },
        { "Compress", "", "y", ATTNRUN_F32, true },
        { "Compress", "axis=0", "y", ATTNRUN_I64, true },
        { "Cast", "to=8", "y", ATTNRUN_F32, false },
        { "Cast", "to=8", "y", ATTNRUN_F64, false },
        { "Cast", "to=8", "y", ATTNRUN_I64, false },
        { "Cast", "to=8", "y", ATTNRUN_I32, false },
        { "Cast", "to=8", "y", ATTNRUN_I8, false },
        { "Cast", "to=8", "y", ATTNRUN_BOOL, false },
    };
    static int64_t data[N];
    static uint8_t condition[N];
    memset(condition, 1, sizeof condition);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct bench bench;
        for (int i = 0; i < N; i++) {
            int64_t k = -i - 1;
            if (cases[c].dtype == ATTNRUN_F32)
                ((float *)(void *)data)[i] = (float)k / 3.0f;
            else if (cases[c].dtype == ATTNRUN_F64)
                ((double *)(void *)data)[i] = -2.2250738585072014e-308 * (i + 1);
            else if (cases[c].dtype == ATTNRUN_I32)
                ((int32_t *)(void *)data)[i] = INT32_MIN + i;
            else if (cases[c].dtype == ATTNRUN_I64)
                data[i] = INT64_MIN + i;
            else
                ((int8_t *)(void *)data)[i] = cases[c].dtype == ATTNRUN_BOOL ? 0 : -128;
        }
        struct onnx_writer *w = onnx_begin(21);
        onnx_input(w, "x", cases[c].dtype, "N");
        if (cases[c].condition)
            onnx_input(w, "k", ATTNRUN_BOOL, "N");
        onnx_node(w, cases[c].op, cases[c].condition ? "x,k" : "x", cases[c].outputs);
        onnx_attrs(w, cases[c].attrs);
        onnx_output(w, "y", 0, NULL);
        start(&bench, w);
        give(&bench, cases[c].dtype, "3000", data);
        if (cases[c].condition)
            give(&bench, ATTNRUN_BOOL, "3000", condition);
        check_bound(&bench, cases[c].op);
        stop(&bench);
    }
}

static void test_side_heap_bound_of_boxes_and_lists(void **state)
{
    (void)state;
    static float boxes[100 * 4], scores[100];
    int64_t max = 1000;
    struct bench bench;
    for (int i = 0; i < 100; i++) { /* none overlaps */
        boxes[4 * i] = (float)i;
        boxes[4 * i + 2] = (float)i + 0.5f;
        boxes[4 * i + 3] = 1;
        scores[i] = (float)i;
    }
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "b", ATTNRUN_F32, "1,N,4");
    onnx_input(w, "s", ATTNRUN_F32, "1,1,N");
    onnx_int(w, "n", max);
    onnx_node(w, "NonMaxSuppression", "b,s,n", "y");
    onnx_output(w, "y", ATTNRUN_I64, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "1,100,4", boxes);
    give(&bench, ATTNRUN_F32, "1,1,100", scores);
    check_bound(&bench, "NonMaxSuppression");
    assert_int_equal(get_output(bench.context, 0).dims[0], 100);
    stop(&bench);
    w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,4");
    onnx_node(w, "SplitToSequence", "x", "s");
    onnx_node(w, "SequenceConstruct", "x,x", "t");
    onnx_node(w, "SequenceLength", "s", "n");
    onnx_node(w, "SequenceLength", "t", "m");
    onnx_output(w, "n", ATTNRUN_I64, "");
    onnx_output(w, "m", ATTNRUN_I64, "");
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "100,4", boxes);
    check_bound(&bench, "SplitToSequence");
    assert_int_equal(*(int64_t *)get_output(bench.context, 0).data, 100);
    stop(&bench);
}

/* Text of unknown length, and turns of unknown number, have no bound. */
static void test_side_heap_without_a_bound(void **state)
{
    (void)state;
    struct bench bench;
    attnrun_string words[2] = { { "one", 3 }, { "two", 3 } };
    struct onnx_writer *w = onnx_begin(20);
    onnx_input(w, "x", ATTNRUN_STRING, "N");
    onnx_node(w, "StringConcat", "x,x", "y");
    onnx_output(w, "y", ATTNRUN_STRING, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_STRING, "2", words);
    assert_int_equal(plan_of(&bench).n_unbounded_steps, 1);
    stop(&bench);
}

/* What is taken inside a branch is counted, and given back when the branch is done. */
static void test_side_heap_of_subgraphs(void **state)
{
    (void)state;
    static float x[N];
    uint8_t c = 1;
    struct bench bench;
    for (int i = 0; i < N; i++)
        x[i] = 1;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "NonZero", "x", "places");
    onnx_node(w, "Size", "places", "size");
    onnx_output(w, "size", ATTNRUN_I64, "");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Size", "x", "other");
    onnx_output(w, "other", ATTNRUN_I64, "");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_I64, "");
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "3000", x);
    give(&bench, ATTNRUN_BOOL, "", &c);
    attnrun_plan_info plan = plan_of(&bench);
    OK(attnrun_run(bench.context, NULL));
    assert_int_equal(*(int64_t *)get_output(bench.context, 0).data, N);
    int64_t taken = memory_of(&bench).side_heap_bytes;
    assert_in_range(taken, N * 8, N * 8 + 1000);
    if (plan.n_unbounded_steps == 0)
        assert_true(taken <= plan.side_heap_bytes);
    int64_t live = atomic_load(&bench.memory.live_bytes);
    c = 0; /* the branch before holds nothing more */
    OK(attnrun_run(bench.context, NULL));
    assert_in_range(atomic_load(&bench.memory.live_bytes) - live + N, 0, 2 * N);
    assert_in_range(memory_of(&bench).side_heap_bytes, 0, 1000);
    stop(&bench);
}

/* What a Loop carries is held once for each iteration at most, also where values change places. */
static void test_side_heap_of_carried_lists(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    static float x[N];
    int64_t n = ROUNDS;
    struct bench bench;
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_node(w, "SequenceEmpty", "", "none");
    onnx_node(w, "Loop", "n,,none,none", "a,b");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_input_of(w, "p", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_input_of(w, "q", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_node(w, "SequenceInsert", "p,x", "longer");
    onnx_node(w, "Identity", "c", "go");
    onnx_output(w, "go", ATTNRUN_BOOL, "");
    onnx_output(w, "q", ATTNRUN_UNDEFINED, NULL);
    onnx_output(w, "longer", ATTNRUN_UNDEFINED, NULL);
    onnx_graph_end(w);
    onnx_node(w, "ConcatFromSequence", "a", "y");
    onnx_attr_int(w, "axis", 0);
    onnx_node(w, "ConcatFromSequence", "b", "z");
    onnx_attr_int(w, "axis", 0);
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    onnx_output(w, "z", ATTNRUN_F32, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_I64, "", &n);
    give(&bench, ATTNRUN_F32, "3000", x);
    OK(attnrun_run(bench.context, NULL));
    for (int out = 0; out < 2; out++) {
        attnrun_tensor y = get_output(bench.context, out);
        assert_int_equal(y.dims[0], ROUNDS / 2 * N);
        for (int k = 0; k < ROUNDS / 2; k++)
            assert_memory_equal((float *)y.data + k * N, x, sizeof x);
    }
    /* Both lists before and after an iteration, and the one that the body makes: or the lists and
     * what they become. */
    assert_in_range(memory_of(&bench).side_heap_bytes, ROUNDS * sizeof x,
                    3 * ROUNDS * sizeof x);
    stop(&bench);
}

/* A plan for other shapes leaves the outputs of the run before; the next run gives them back. */
static void test_side_heap_holds_outputs_until_the_next_run(void **state)
{
    (void)state;
    static float x[N];
    struct bench bench;
    for (int i = 0; i < N; i++)
        x[i] = 1;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_node(w, "NonZero", "x", "y");
    onnx_output(w, "y", ATTNRUN_I64, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "3000", x);
    OK(attnrun_run(bench.context, NULL));
    for (int n = N - 1; n > N - 5; n--) {
        char dims[16];
        snprintf(dims, sizeof dims, "%d", n);
        bench.inputs[0] = tensor_of(ATTNRUN_F32, dims, x);
        OK(attnrun_plan(bench.context, bench.inputs, NULL));
        const attnrun_tensor y = get_output(bench.context, 0);
        assert_int_equal(y.dims[1], n + 1);
        assert_int_equal(((const int64_t *)y.data)[n], n);
        OK(attnrun_set_input(bench.context, 0, &bench.inputs[0]));
        OK(attnrun_run(bench.context, NULL));
        assert_in_range(memory_of(&bench).side_heap_bytes, n * 8, N * 8 + 1000);
    }
    stop(&bench);
}

/* A Loop that fails leaves nothing of its body: the rows that it stacks have other lengths. */
static void test_side_heap_of_a_body_is_given_back_by_a_failure(void **state)
{
    (void)state;
    static float x[N];
    int64_t n = 1;
    struct bench bench;
    for (int i = 0; i < N; i++)
        x[i] = i < N - 1;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_node(w, "Loop", "n,,x", "v,y");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_input(w, "a", ATTNRUN_F32, "N");
    onnx_node(w, "NonZero", "a", "places");
    onnx_node(w, "Cos", "a", "b");
    onnx_node(w, "Identity", "c", "go");
    onnx_output(w, "go", ATTNRUN_BOOL, "");
    onnx_output(w, "b", ATTNRUN_F32, "N");
    onnx_output(w, "places", ATTNRUN_I64, NULL);
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_I64, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_I64, "", &n);
    give(&bench, ATTNRUN_F32, "3000", x);
    OK(attnrun_run(bench.context, NULL));
    n = 2;
    FAILS(ATTNRUN_E_SHAPE, "differs", attnrun_run(bench.context, NULL));
    const int64_t live = atomic_load(&bench.memory.live_bytes);
    attnrun_trim(bench.context); /* plans and arenas are less than the places of a row */
    assert_in_range(live - atomic_load(&bench.memory.live_bytes), 0, 2 * N * 8);
    stop(&bench);
}

/* A step whose branches take no memory has a bound: that. */
static void test_side_heap_of_branches_without_memory(void **state)
{
    (void)state;
    static float x[4] = { 1, 2, 3, 4 };
    uint8_t c = 1;
    struct bench bench;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "4");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Identity", "x", "same");
    onnx_output(w, "same", ATTNRUN_F32, "4");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Identity", "x", "other");
    onnx_output(w, "other", ATTNRUN_F32, "4");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "4");
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "4", x);
    give(&bench, ATTNRUN_BOOL, "", &c);
    assert_int_equal(plan_of(&bench).n_unbounded_steps, 0);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(get_output(bench.context, 0).data, x, sizeof x);
    stop(&bench);
}

/* A list that grows at its end is not copied in each iteration: four times as many take four times
 * as many blocks. The first elements are another value's, which stays as it is. */
static void test_side_heap_of_a_list_that_grows(void **state)
{
    (void)state;
    enum { FEW = 100, MANY = 4 * FEW };
    static float x[3] = { 1, 2, 3 };
    int64_t n = MANY, taken[2];
    struct bench bench;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "3");
    onnx_node(w, "SequenceConstruct", "x,x", "two");
    onnx_node(w, "Loop", "n,,two", "all");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_input_of(w, "list", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_node(w, "Cast", "i", "number");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Mul", "x,number", "item");
    onnx_node(w, "SequenceInsert", "list,item", "longer");
    onnx_node(w, "Identity", "c", "go");
    onnx_output(w, "go", ATTNRUN_BOOL, "");
    onnx_output(w, "longer", ATTNRUN_UNDEFINED, NULL);
    onnx_graph_end(w);
    onnx_node(w, "ConcatFromSequence", "all", "y");
    onnx_attrs(w, "axis=0 new_axis=1");
    onnx_node(w, "SequenceLength", "two", "length");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    onnx_output(w, "length", ATTNRUN_I64, "");
    start(&bench, w);
    give(&bench, ATTNRUN_I64, "", &n);
    give(&bench, ATTNRUN_F32, "3", x);
    for (int k = 0; k < 3; k++) { /* the first run makes plans */
        n = k == 1 ? FEW : MANY;
        const int64_t calls = atomic_load(&bench.memory.calls);
        OK(attnrun_run(bench.context, NULL));
        taken[k > 1] = atomic_load(&bench.memory.calls) - calls;
        const attnrun_tensor y = get_output(bench.context, 0);
        assert_int_equal(y.dims[0], 2 + n);
        for (int64_t i = 0; i < 3 * (2 + n); i++)
            assert_true(((float *)y.data)[i] ==
                        x[i % 3] * (i < 6 ? 1 : (float)(i / 3 - 2)));
        assert_int_equal(*(int64_t *)get_output(bench.context, 1).data, 2);
    }
    assert_in_range(taken[1], taken[0], 5 * taken[0]);
    stop(&bench);
}

/* A Scan holds its strings once for each iteration at most, too. */
static void test_side_heap_of_strings_of_a_scan(void **state)
{
    (void)state;
    enum { FEW = 10, MANY = 1000 };
    static attnrun_string x[MANY], first = { "first", 5 };
    int64_t held[2];
    struct bench bench;
    for (int i = 0; i < MANY; i++)
        x[i] = (attnrun_string){ "a text of some length", 1 + i % 21 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "start", ATTNRUN_STRING, "1");
    onnx_input(w, "x", ATTNRUN_STRING, "N,1");
    onnx_node(w, "Scan", "start,x", "last");
    onnx_attr_int(w, "num_scan_inputs", 1);
    onnx_graph(w, "body");
    onnx_input(w, "before", ATTNRUN_STRING, "1");
    onnx_input(w, "item", ATTNRUN_STRING, "1");
    onnx_node(w, "Identity", "item", "now");
    onnx_output(w, "now", ATTNRUN_STRING, "1");
    onnx_graph_end(w);
    onnx_output(w, "last", ATTNRUN_STRING, "1");
    start(&bench, w);
    give(&bench, ATTNRUN_STRING, "1", &first);
    for (int k = 0; k < 2; k++) {
        bench.n_inputs = 1;
        give(&bench, ATTNRUN_STRING, k == 0 ? "10,1" : "1000,1", x);
        OK(attnrun_run(bench.context, NULL));
        const attnrun_string *last = get_output(bench.context, 0).data;
        const attnrun_string *expected = &x[k == 0 ? FEW - 1 : MANY - 1];
        assert_int_equal(last->n, expected->n);
        assert_memory_equal(last->data, expected->data, (size_t)last->n);
        held[k] = memory_of(&bench).side_heap_bytes;
    }
    assert_in_range(held[1], held[0] - 100, held[0] + 100);
    stop(&bench);
}

/* Slices along another axis than the first are dense when they come to the body, as it was planned
 * for: a run makes no other plan, which nobody has counted. */
static void test_side_heap_of_slices_with_gaps(void **state)
{
    (void)state;
    static const float expected[4] = { 0 + 4 + 8, 1 + 5 + 9, 2 + 6 + 10, 3 + 7 + 11 };
    static float x[12];
    struct bench bench;
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,M");
    onnx_node(w, "Scan", "x", "y");
    onnx_attr_int(w, "num_scan_inputs", 1);
    onnx_attr_ints(w, "scan_input_axes", 1, (int64_t[]){ 1 });
    onnx_graph(w, "body");
    onnx_input(w, "column", ATTNRUN_F32, "N");
    onnx_node(w, "ReduceSum", "column", "sum");
    onnx_attr_int(w, "keepdims", 0);
    onnx_output(w, "sum", ATTNRUN_F32, "");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "M");
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "3,4", x);
    const attnrun_plan_info plan = plan_of(&bench);
    const int64_t live = atomic_load(&bench.memory.live_bytes);
    assert_int_equal(plan.n_unbounded_steps, 0);
    OK(attnrun_run(bench.context, NULL));
    assert_memory_equal(get_output(bench.context, 0).data, expected, sizeof expected);
    assert_in_range(atomic_load(&bench.memory.live_bytes) - live, 0,
                    plan.arena_bytes + plan.side_heap_bytes);
    stop(&bench);
}

/* A branch that needs no arena has the smallest one, as the main graph has. */
static void test_side_heap_of_branches_without_elements(void **state)
{
    (void)state;
    static const char *const branches[] = { "then_branch", "else_branch" };
    float x[2] = { 1, 2 };
    uint8_t c = 1;
    struct bench bench;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_ints(w, "zero", 1, (int64_t[]){ 0 });
    onnx_node(w, "If", "c", "y");
    for (int branch = 0; branch < 2; branch++) {
        onnx_graph(w, branches[branch]);
        onnx_node(w, "Slice", "x,zero,zero", branches[branch]);
        onnx_output(w, branches[branch], ATTNRUN_F32, NULL);
        onnx_graph_end(w);
    }
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "2", x);
    give(&bench, ATTNRUN_BOOL, "", &c);
    const attnrun_plan_info plan = plan_of(&bench);
    const int64_t live = atomic_load(&bench.memory.live_bytes);
    OK(attnrun_run(bench.context, NULL));
    assert_in_range(atomic_load(&bench.memory.live_bytes) - live, 0,
                    plan.arena_bytes + plan.side_heap_bytes);
    stop(&bench);
}

/* What Reshape gives of an input is in the memory of the input: the arena has y alone. */
static void test_side_heap_and_arena_of_a_view(void **state)
{
    static const int64_t shape[] = { 400, 3 };
    static float x[3 * 400];
    struct bench bench;
    struct onnx_writer *w = onnx_begin(17);
    (void)state;
    onnx_input(w, "x", ATTNRUN_F32, "3,400");
    onnx_ints(w, "shape", 2, shape);
    onnx_node(w, "Reshape", "x,shape", "r");
    onnx_node(w, "ReduceMax", "r", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    start(&bench, w);
    give(&bench, ATTNRUN_F32, "3,400", x);
    const attnrun_plan_info plan = plan_of(&bench);
    assert_in_range(plan.arena_bytes, 4, sizeof x / 2);
    assert_int_equal(plan.side_heap_bytes, 0);
    stop(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_side_heap_text_is_given_back),
        cmocka_unit_test(test_side_heap_bound_of_one_operator),
        cmocka_unit_test(test_side_heap_bound_of_boxes_and_lists),
        cmocka_unit_test(test_side_heap_without_a_bound),
        cmocka_unit_test(test_side_heap_of_subgraphs),
        cmocka_unit_test(test_side_heap_and_arena_of_a_view),
        cmocka_unit_test(test_side_heap_of_carried_lists),
        cmocka_unit_test(test_side_heap_of_a_list_that_grows),
        cmocka_unit_test(test_side_heap_of_strings_of_a_scan),
        cmocka_unit_test(test_side_heap_of_slices_with_gaps),
        cmocka_unit_test(test_side_heap_of_branches_without_elements),
        cmocka_unit_test(test_side_heap_holds_outputs_until_the_next_run),
        cmocka_unit_test(test_side_heap_of_a_body_is_given_back_by_a_failure),
        cmocka_unit_test(test_side_heap_of_branches_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_subgraph.c - If, Loop and Scan: values captured over two levels, captured
 * constants, zero trips, shapes that change from trip to trip, nesting, and failures
 * inside. */
#include "harness.h"

#include <math.h>

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
};

static void start(struct bench *bench, struct onnx_writer *w, uint32_t flags)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 2);
    bench->model = open_model(bench->runtime, w, flags);
    bench->context = make_context(bench->model);
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static void check_floats(struct bench *bench, int32_t index, const char *dims,
                         const float *expected)
{
    attnrun_tensor y = get_output(bench->context, index);
    attnrun_tensor like = tensor_of(ATTNRUN_F32, dims, NULL);
    assert_int_equal(y.dtype, ATTNRUN_F32);
    assert_int_equal(y.rank, like.rank);
    for (int i = 0; i < y.rank; i++)
        assert_int_equal(y.dims[i], like.dims[i]);
    int64_t n = attnrun_tensor_count(&y);
    for (int64_t i = 0; i < n; i++) {
        float found = ((float *)y.data)[i];
        if (!(found >= expected[i] && found <= expected[i]))
            fail_msg("output %d[%d] is %g, expected %g", (int)index, (int)i,
                     (double)found, (double)expected[i]);
    }
}

static uint32_t ways[] = { 0, ATTNRUN_NO_FUSION };
#define BOTH_WAYS(i) for (size_t i = 0; i < 2; i++)

/* ---- If ---- */

/* r = Relu(x); if c: y = r + k (k a constant outside) else: if d: y = r * r else: y = x.
 * Behind it r is read again, so that nothing may be written over it. */
static struct onnx_writer *write_nested_if(void)
{
    static const float k[2] = { 10, 20 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_input(w, "d", ATTNRUN_BOOL, "");
    onnx_constant(w, "k", ATTNRUN_F32, "2", k);
    onnx_node(w, "Relu", "x", "r0");
    onnx_node(w, "Identity", "r0", "r");
    onnx_node(w, "Neg", "r", "n");
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Add", "r,k", "sum");
    onnx_output(w, "sum", ATTNRUN_F32, "2");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "If", "d", "inner");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Mul", "r,r", "square");
    onnx_output(w, "square", ATTNRUN_F32, "2");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Identity", "x", "same");
    onnx_output(w, "same", ATTNRUN_F32, "2");
    onnx_graph_end(w);
    onnx_output(w, "inner", ATTNRUN_F32, "2");
    onnx_graph_end(w);
    onnx_node(w, "Sub", "n,r", "z");
    onnx_output(w, "y", ATTNRUN_F32, "2");
    onnx_output(w, "z", ATTNRUN_F32, "2");
    return w;
}

static void test_subgraph_if_captures_over_two_levels(void **state)
{
    (void)state;
    static const float expected[3][2] = { { 10, 23 }, { 0, 9 }, { -4, 3 } };
    float x[2] = { -4, 3 };
    uint8_t c, d;
    BOTH_WAYS(i)
    {
        struct bench bench;
        start(&bench, write_nested_if(), ways[i]);
        set_input(bench.context, 0, ATTNRUN_F32, "2", x);
        set_input(bench.context, 1, ATTNRUN_BOOL, "", &c);
        set_input(bench.context, 2, ATTNRUN_BOOL, "", &d);
        int64_t calls = 0;
        for (int turn = 0; turn < 9; turn++) {
            c = turn % 3 == 0;
            d = turn % 3 == 1;
            OK(attnrun_run(bench.context, NULL));
            check_floats(&bench, 0, "2", expected[turn % 3]);
            check_floats(&bench, 1, "2", (float[]){ 0, -6 });
            if (turn == 2) /* every branch has run: nothing is allocated any more */
                calls = atomic_load(&bench.memory.calls);
        }
        assert_int_equal(atomic_load(&bench.memory.calls), calls);
        stop(&bench);
    }
}

/* Branches of other shapes: y is known only at run. */
static void test_subgraph_if_branches_of_other_shapes(void **state)
{
    (void)state;
    float x[3] = { 1, 2, 3 };
    uint8_t c;
    BOTH_WAYS(i)
    {
        struct bench bench;
        struct onnx_writer *w = onnx_begin(17);
        onnx_input(w, "x", ATTNRUN_F32, "N");
        onnx_input(w, "c", ATTNRUN_BOOL, "");
        onnx_node(w, "If", "c", "y");
        onnx_graph(w, "then_branch");
        onnx_node(w, "Concat", "x,x", "twice");
        onnx_attr_int(w, "axis", 0);
        onnx_output(w, "twice", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_graph(w, "else_branch");
        onnx_node(w, "ReduceSum", "x", "sum");
        onnx_output(w, "sum", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_node(w, "Neg", "y", "z");
        onnx_output(w, "z", ATTNRUN_F32, NULL);
        start(&bench, w, ways[i]);
        set_input(bench.context, 0, ATTNRUN_F32, "3", x);
        set_input(bench.context, 1, ATTNRUN_BOOL, "", &c);
        for (int turn = 0; turn < 6; turn++) {
            c = turn % 2 == 0;
            OK(attnrun_run(bench.context, NULL));
            if (c)
                check_floats(&bench, 0, "6", (float[]){ -1, -2, -3, -1, -2, -3 });
            else
                check_floats(&bench, 0, "1", (float[]){ -6 });
        }
        stop(&bench);
    }
}

/* A captured value that a pass would fuse away if only the graph around read it. */
static void test_subgraph_captures_survive_rewriting(void **state)
{
    (void)state;
    static const float weights[4] = { 1, 2, -3, 4 };
    float x[2] = { 1, -1 };
    uint8_t c;
    BOTH_WAYS(i)
    {
        struct bench bench;
        struct onnx_writer *w = onnx_begin(17);
        onnx_input(w, "x", ATTNRUN_F32, "1,2");
        onnx_input(w, "c", ATTNRUN_BOOL, "");
        onnx_constant(w, "w", ATTNRUN_F32, "2,2", weights);
        onnx_node(w, "MatMul", "x,w", "m");
        onnx_node(w, "Relu", "m", "y");
        onnx_node(w, "Identity", "y", "y1");
        onnx_node(w, "If", "c", "z");
        onnx_graph(w, "then_branch");
        onnx_node(w, "Add", "m,y1", "sum");
        onnx_output(w, "sum", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_graph(w, "else_branch");
        onnx_node(w, "Neg", "w", "minus");
        onnx_output(w, "minus", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_output(w, "z", ATTNRUN_F32, NULL);
        start(&bench, w, ways[i]);
        set_input(bench.context, 0, ATTNRUN_F32, "1,2", x);
        set_input(bench.context, 1, ATTNRUN_BOOL, "", &c);
        c = 1;
        OK(attnrun_run(bench.context, NULL));
        check_floats(&bench, 0, "1,2", (float[]){ 8, -2 });
        c = 0;
        OK(attnrun_run(bench.context, NULL));
        check_floats(&bench, 0, "2,2", (float[]){ -1, -2, 3, -4 });
        stop(&bench);
    }
}

/* ---- Loop ---- */

/* n trips while go: v = v + x, go = sum(v) < limit; all the v. */
static struct onnx_writer *write_counted(bool with_n, bool with_go)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "go", ATTNRUN_BOOL, "");
    onnx_input(w, "x", ATTNRUN_F32, "K");
    onnx_input(w, "limit", ATTNRUN_F32, "");
    char inputs[32];
    snprintf(inputs, sizeof inputs, "%s,%s,x", with_n ? "n" : "", with_go ? "go" : "");
    onnx_node(w, "Loop", inputs, "y,all");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "on", ATTNRUN_BOOL, "");
    onnx_input(w, "v", ATTNRUN_F32, "K");
    onnx_node(w, "Add", "v,x", "v1");
    onnx_node(w, "ReduceSum", "v1", "sum");
    onnx_attr_int(w, "keepdims", 0);
    onnx_node(w, "Less", "sum,limit", "on1");
    onnx_output(w, "on1", ATTNRUN_BOOL, "");
    onnx_output(w, "v1", ATTNRUN_F32, "K");
    onnx_output(w, "v1", ATTNRUN_F32, "K");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "K");
    onnx_output(w, "all", ATTNRUN_F32, "T,K");
    return w;
}

static void run_counted(struct bench *bench, int64_t n, bool go, float limit, int trips)
{
    static int64_t n_input;
    static uint8_t go_input;
    static float limit_input, x[2] = { 1, 2 };
    float all[40], y[2];
    char dims[16];
    n_input = n;
    go_input = go;
    limit_input = limit;
    set_input(bench->context, 0, ATTNRUN_I64, "", &n_input);
    set_input(bench->context, 1, ATTNRUN_BOOL, "", &go_input);
    set_input(bench->context, 2, ATTNRUN_F32, "2", x);
    set_input(bench->context, 3, ATTNRUN_F32, "", &limit_input);
    OK(attnrun_run(bench->context, NULL));
    for (int i = 0; i < 2; i++) {
        y[i] = x[i] * (float)(trips + 1);
        for (int t = 0; t < trips; t++)
            all[2 * t + i] = x[i] * (float)(t + 2);
    }
    /* Without a trip nothing tells the other dims: a carried value may change its shape.
     */
    snprintf(dims, sizeof dims, "%d,%d", trips, trips > 0 ? 2 : 0);
    check_floats(bench, 0, "2", y);
    check_floats(bench, 1, dims, all);
}

static void test_subgraph_loop_ends_by_count_or_condition(void **state)
{
    (void)state;
    BOTH_WAYS(i)
    {
        struct bench bench;
        start(&bench, write_counted(true, true), ways[i]);
        run_counted(&bench, 5, true, 1000, 5);
        run_counted(&bench, 5, true, 9, 2);
        run_counted(&bench, 0, true, 1000, 0);
        run_counted(&bench, -3, true, 1000, 0);
        run_counted(&bench, 7, false, 1000, 0);
        run_counted(&bench, 1, true, 0, 1);
        run_counted(&bench, 12, true, 1000, 12);
        stop(&bench);
        start(&bench, write_counted(false, true), ways[i]);
        run_counted(&bench, 0, true, 20, 6);
        run_counted(&bench, 0, false, 20, 0);
        stop(&bench);
        start(&bench, write_counted(false, false), ways[i]);
        run_counted(&bench, 0, false, 20, 6);
        stop(&bench);
    }
}

/* The carried value grows by x in each trip; NonZero inside finds more each time. */
static void test_subgraph_loop_shapes_change(void **state)
{
    (void)state;
    BOTH_WAYS(i)
    {
        struct bench bench;
        struct onnx_writer *w = onnx_begin(17);
        onnx_input(w, "n", ATTNRUN_I64, "");
        onnx_input(w, "x", ATTNRUN_F32, "K");
        onnx_ints(w, "minus1", 1, (int64_t[]){ -1 });
        onnx_node(w, "Loop", "n,,x", "y,counts");
        onnx_graph(w, "body");
        onnx_input(w, "i", ATTNRUN_I64, "");
        onnx_input(w, "on", ATTNRUN_BOOL, "");
        onnx_input(w, "v", ATTNRUN_F32, NULL);
        onnx_node(w, "Identity", "on", "on1");
        onnx_node(w, "Concat", "v,x", "v1");
        onnx_attr_int(w, "axis", 0);
        onnx_node(w, "NonZero", "v1", "at");
        onnx_node(w, "Size", "at", "count");
        onnx_node(w, "Cast", "count", "countf");
        onnx_attr_int(w, "to", ATTNRUN_F32);
        onnx_node(w, "Reshape", "at,minus1", "flat");
        onnx_node(w, "Gather", "v1,flat", "v2");
        onnx_output(w, "on1", ATTNRUN_BOOL, "");
        onnx_output(w, "v2", ATTNRUN_F32, NULL);
        onnx_output(w, "countf", ATTNRUN_F32, "");
        onnx_graph_end(w);
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        onnx_output(w, "counts", ATTNRUN_F32, NULL);
        start(&bench, w, ways[i]);
        int64_t n = 3;
        float x[3] = { 0, 5, 6 };
        set_input(bench.context, 0, ATTNRUN_I64, "", &n);
        set_input(bench.context, 1, ATTNRUN_F32, "3", x);
        for (int turn = 0; turn < 3; turn++) {
            n = 3;
            OK(attnrun_run(bench.context, NULL));
            check_floats(&bench, 0, "8", (float[]){ 5, 6, 5, 6, 5, 6, 5, 6 });
            check_floats(&bench, 1, "3", (float[]){ 4, 6, 8 });
            n = 0;
            OK(attnrun_run(bench.context, NULL));
            check_floats(&bench, 0, "3", x);
        }
        stop(&bench);
    }
}

/* sum over i < n, j < m of i * j, the inner loop capturing i and the outer sum. */
static struct onnx_writer *write_loop_in_loop(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "m", ATTNRUN_I64, "");
    onnx_float(w, "zero", 0);
    onnx_node(w, "Loop", "n,,zero", "y");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "on", ATTNRUN_BOOL, "");
    onnx_input(w, "s", ATTNRUN_F32, "");
    onnx_node(w, "Identity", "on", "on1");
    onnx_node(w, "Cast", "i", "fi");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Loop", "m,,s", "s1");
    onnx_graph(w, "body");
    onnx_input(w, "j", ATTNRUN_I64, "");
    onnx_input(w, "go", ATTNRUN_BOOL, "");
    onnx_input(w, "t", ATTNRUN_F32, "");
    onnx_node(w, "Identity", "go", "go1");
    onnx_node(w, "Cast", "j", "fj");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Mul", "fi,fj", "p");
    onnx_node(w, "Add", "t,p", "t1");
    onnx_output(w, "go1", ATTNRUN_BOOL, "");
    onnx_output(w, "t1", ATTNRUN_F32, "");
    onnx_graph_end(w);
    onnx_output(w, "on1", ATTNRUN_BOOL, "");
    onnx_output(w, "s1", ATTNRUN_F32, "");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "");
    return w;
}

static void test_subgraph_loop_in_loop(void **state)
{
    (void)state;
    BOTH_WAYS(way)
    {
        struct bench bench;
        int64_t n, m;
        start(&bench, write_loop_in_loop(), ways[way]);
        set_input(bench.context, 0, ATTNRUN_I64, "", &n);
        set_input(bench.context, 1, ATTNRUN_I64, "", &m);
        for (n = 0; n < 5; n++)
            for (m = 0; m < 4; m++) {
                float sum = (float)(n * (n - 1) / 2 * (m * (m - 1) / 2));
                OK(attnrun_run(bench.context, NULL));
                check_floats(&bench, 0, "", &sum);
            }
        stop(&bench);
    }
}

/* What the trip before left is read by the next one: v and w change places. */
static void test_subgraph_loop_swaps_carried_values(void **state)
{
    (void)state;
    struct bench bench;
    struct onnx_writer *w = onnx_begin(17);
    int64_t n;
    float a[3] = { 1, 2, 3 }, b[3] = { 4, 5, 6 };
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "a", ATTNRUN_F32, "3");
    onnx_input(w, "b", ATTNRUN_F32, "3");
    onnx_node(w, "Loop", "n,,a,b", "y,z");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "on", ATTNRUN_BOOL, "");
    onnx_input(w, "v", ATTNRUN_F32, "3");
    onnx_input(w, "u", ATTNRUN_F32, "3");
    onnx_output(w, "on", ATTNRUN_BOOL, "");
    onnx_output(w, "u", ATTNRUN_F32, "3");
    onnx_output(w, "v", ATTNRUN_F32, "3");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "3");
    onnx_output(w, "z", ATTNRUN_F32, "3");
    start(&bench, w, 0);
    set_input(bench.context, 0, ATTNRUN_I64, "", &n);
    set_input(bench.context, 1, ATTNRUN_F32, "3", a);
    set_input(bench.context, 2, ATTNRUN_F32, "3", b);
    for (n = 0; n < 6; n++) {
        OK(attnrun_run(bench.context, NULL));
        check_floats(&bench, 0, "3", n % 2 == 0 ? a : b);
        check_floats(&bench, 1, "3", n % 2 == 0 ? b : a);
    }
    stop(&bench);
}

/* ---- Scan ---- */

/* Running sums of the rows of x, times a captured k; forwards or backwards. */
static struct onnx_writer *write_scan(bool backwards)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "start", ATTNRUN_F32, "2");
    onnx_input(w, "x", ATTNRUN_F32, "T,2");
    onnx_input(w, "k", ATTNRUN_F32, "");
    onnx_node(w, "Scan", "start,x", "end,all");
    onnx_attr_int(w, "num_scan_inputs", 1);
    if (backwards)
        onnx_attr_ints(w, "scan_input_directions", 1, (int64_t[]){ 1 });
    onnx_graph(w, "body");
    onnx_input(w, "s", ATTNRUN_F32, "2");
    onnx_input(w, "row", ATTNRUN_F32, "2");
    onnx_node(w, "Mul", "row,k", "scaled");
    onnx_node(w, "Add", "s,scaled", "s1");
    onnx_node(w, "Identity", "s1", "out");
    onnx_output(w, "s1", ATTNRUN_F32, "2");
    onnx_output(w, "out", ATTNRUN_F32, "2");
    onnx_graph_end(w);
    onnx_output(w, "end", ATTNRUN_F32, "2");
    onnx_output(w, "all", ATTNRUN_F32, "T,2");
    return w;
}

static void test_subgraph_scan(void **state)
{
    (void)state;
    float start_value[2] = { 100, 200 }, k = 2, x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    for (int backwards = 0; backwards < 2; backwards++) {
        struct bench bench;
        start(&bench, write_scan(backwards != 0), 0);
        set_input(bench.context, 0, ATTNRUN_F32, "2", start_value);
        set_input(bench.context, 2, ATTNRUN_F32, "", &k);
        for (int trips = 4; trips >= 0; trips--) {
            float sum[2] = { 100, 200 }, all[8];
            char dims[16];
            for (int t = 0; t < trips; t++)
                for (int i = 0; i < 2; i++) {
                    sum[i] += k * x[2 * (backwards ? trips - 1 - t : t) + i];
                    all[2 * t + i] = sum[i];
                }
            snprintf(dims, sizeof dims, "%d,2", trips);
            set_input(bench.context, 1, ATTNRUN_F32, dims, x);
            OK(attnrun_run(bench.context, NULL));
            check_floats(&bench, 0, "2", sum);
            check_floats(&bench, 1, dims, all);
        }
        stop(&bench);
    }
}

/* ---- passes inside ---- */

/* n times v = Gelu(v W + b), decomposed, with all its constants in the graph around. */
static struct onnx_writer *write_loop_of_layers(void)
{
    static const float weights[4] = { 0.5f, -1, 2, 0.25f }, bias[2] = { 0.5f, -0.25f };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "3,2");
    onnx_constant(w, "w", ATTNRUN_F32, "2,2", weights);
    onnx_constant(w, "b", ATTNRUN_F32, "2", bias);
    onnx_float(w, "root2", 1.41421356f);
    onnx_float(w, "one", 1);
    onnx_float(w, "half", 0.5f);
    onnx_node(w, "Loop", "n,,x", "y");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "on", ATTNRUN_BOOL, "");
    onnx_input(w, "v", ATTNRUN_F32, "3,2");
    onnx_node(w, "Identity", "on", "on1");
    onnx_node(w, "MatMul", "v,w", "m");
    onnx_node(w, "Add", "m,b", "u");
    onnx_node(w, "Div", "u,root2", "g0");
    onnx_node(w, "Erf", "g0", "g1");
    onnx_node(w, "Add", "g1,one", "g2");
    onnx_node(w, "Mul", "u,g2", "g3");
    onnx_node(w, "Mul", "g3,half", "g4");
    onnx_node(w, "Identity", "g4", "v1");
    onnx_output(w, "on1", ATTNRUN_BOOL, "");
    onnx_output(w, "v1", ATTNRUN_F32, "3,2");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "3,2");
    return w;
}

static void test_subgraph_passes_apply_inside(void **state)
{
    (void)state;
    float x[6] = { 1, 2, -3, 0.5f, -1, 4 }, y[2][5][6];
    BOTH_WAYS(i)
    {
        struct bench bench;
        int64_t n;
        int32_t total = 0;
        start(&bench, write_loop_of_layers(), ways[i]);
        for (int32_t p = 0;; p++) {
            const char *name;
            int32_t applied;
            if (attnrun_model_pass(bench.model, p, &name, &applied) != ATTNRUN_OK)
                break;
            total += applied;
        }
        if (i == 0)
            print_message("%d places rewritten\n", (int)total);
        else
            assert_int_equal(total, 0);
        set_input(bench.context, 0, ATTNRUN_I64, "", &n);
        set_input(bench.context, 1, ATTNRUN_F32, "3,2", x);
        for (n = 0; n < 5; n++) {
            OK(attnrun_run(bench.context, NULL));
            attnrun_tensor out = get_output(bench.context, 0);
            assert_int_equal(attnrun_tensor_count(&out), 6);
            memcpy(y[i][n], out.data, sizeof y[i][n]);
        }
        stop(&bench);
    }
    for (int n = 0; n < 5; n++)
        for (int k = 0; k < 6; k++)
            assert_true(fabsf(y[0][n][k] - y[1][n][k]) <= 1e-4f * 10);
}

/* ---- failures inside ---- */

static void test_subgraph_failures_inside_are_told(void **state)
{
    (void)state;
    struct bench bench;
    struct onnx_writer *w = onnx_begin(17);
    int64_t n = 2;
    float x[3] = { 1, 2, 3 };
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "3");
    onnx_node(w, "Loop", "n,", "all");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "on", ATTNRUN_BOOL, "");
    onnx_node(w, "Identity", "on", "on1");
    onnx_node(w, "Gather", "x,i", "v");
    onnx_output(w, "on1", ATTNRUN_BOOL, "");
    onnx_output(w, "v", ATTNRUN_F32, "");
    onnx_graph_end(w);
    onnx_output(w, "all", ATTNRUN_F32, "T");
    start(&bench, w, 0);
    set_input(bench.context, 0, ATTNRUN_I64, "", &n);
    set_input(bench.context, 1, ATTNRUN_F32, "3", x);
    for (int turn = 0; turn < 3; turn++) {
        n = 3;
        OK(attnrun_run(bench.context, NULL));
        check_floats(&bench, 0, "3", x);
        n = 4;
        FAILS(ATTNRUN_E_RANGE, "(Gather)", attnrun_run(bench.context, NULL));
    }
    stop(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subgraph_if_captures_over_two_levels),
        cmocka_unit_test(test_subgraph_if_branches_of_other_shapes),
        cmocka_unit_test(test_subgraph_captures_survive_rewriting),
        cmocka_unit_test(test_subgraph_loop_ends_by_count_or_condition),
        cmocka_unit_test(test_subgraph_loop_shapes_change),
        cmocka_unit_test(test_subgraph_loop_in_loop),
        cmocka_unit_test(test_subgraph_loop_swaps_carried_values),
        cmocka_unit_test(test_subgraph_scan),
        cmocka_unit_test(test_subgraph_passes_apply_inside),
        cmocka_unit_test(test_subgraph_failures_inside_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_context.c - runs of one context: no allocation once a shape is known, plans as an
 * LRU, memory that stays flat, bindings of inputs and outputs, and every way to fail. */
#include "harness.h"

#include <math.h>
#include <unistd.h>

#include "sample_models.h"

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
    int plans_made;
};

/* Counts the plans that are made. */
static void count_plans(void *user, int32_t level, const char *message)
{
    (void)level;
    *(int *)user += strncmp(message, "plan: ", 6) == 0;
}

static struct bench *start(struct onnx_writer *w, int32_t threads)
{
    static struct bench bench;
    test_memory_init(&bench.memory);
    bench.plans_made = 0;
    const attnrun_runtime_options options = { .struct_size = sizeof options,
                                              .threads = threads,
                                              .allocator = &bench.memory.allocator,
                                              .log = count_plans,
                                              .log_user = &bench.plans_made };
    OK(attnrun_runtime_create(&options, &bench.runtime));
    bench.model = open_model(bench.runtime, w, 0);
    bench.context = make_context(bench.model);
    return &bench;
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static uint64_t allocations(const struct bench *bench)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    OK(attnrun_runtime_query(bench->runtime, &info));
    return info.allocations;
}

static attnrun_memory_info memory_of(const struct bench *bench)
{
    attnrun_memory_info info = { .struct_size = sizeof info };
    OK(attnrun_context_memory(bench->context, &info));
    return info;
}

/* ---- allocations and plans ---- */

static void test_context_known_shapes_allocate_nothing(void **state)
{
    (void)state;
    static struct encoder_inputs inputs;
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        uint64_t seed = 3;
        struct bench *bench = start(write_encoder(2), threads);
        for (int64_t turn = 0; turn < 16; turn++) { /* as many shapes as plans are kept */
            set_encoder_inputs(bench->context, &inputs, &seed, 1 + turn % 4,
                               1 + turn * 4);
            OK(attnrun_run(bench->context, NULL));
        }
        int64_t calls = atomic_load(&bench->memory.calls);
        uint64_t counted = allocations(bench);
        for (int64_t turn = 0; turn < 64; turn++) {
            set_encoder_inputs(bench->context, &inputs, &seed, 1 + turn % 4,
                               1 + turn % 16 * 4);
            OK(attnrun_run(bench->context, NULL));
        }
        assert_int_equal(atomic_load(&bench->memory.calls), calls);
        assert_int_equal(allocations(bench), counted);
        assert_int_equal(memory_of(bench).n_plans, 16);
        stop(bench);
    }
}

static void test_context_reserve_is_enough_for_smaller_shapes(void **state)
{
    (void)state;
    static struct encoder_inputs inputs;
    uint64_t seed = 5;
    struct bench *bench = start(write_encoder(1), 2);
    attnrun_tensor largest[2] = { tensor_of(ATTNRUN_I64, "4,64", NULL),
                                  tensor_of(ATTNRUN_I64, "4,64", NULL) };
    OK(attnrun_reserve(bench->context, largest));
    int64_t arena = memory_of(bench).arena_bytes;
    assert_true(arena > 4 * 64 * 16 * 4);
    for (int64_t i = 0; i < 256; i++) {
        set_encoder_inputs(bench->context, &inputs, &seed, 1 + i % 4, 1 + i / 4);
        OK(attnrun_run(bench->context, NULL));
        assert_int_equal(memory_of(bench).arena_bytes, arena);
    }
    int64_t calls = atomic_load(&bench->memory.calls);
    set_encoder_inputs(bench->context, &inputs, &seed, 4, 64);
    OK(attnrun_run(bench->context, NULL));
    assert_int_equal(atomic_load(&bench->memory.calls), calls);
    stop(bench);
}

static void test_context_keeps_the_plans_used_last(void **state)
{
    (void)state;
    static struct encoder_inputs inputs;
    uint64_t seed = 5;
    struct bench *bench = start(write_encoder(1), 1);
    for (int64_t s = 1; s <= 17; s++) { /* 1 is used each time; 2 becomes the oldest */
        set_encoder_inputs(bench->context, &inputs, &seed, 1, s);
        OK(attnrun_run(bench->context, NULL));
        set_encoder_inputs(bench->context, &inputs, &seed, 1, 1);
        OK(attnrun_run(bench->context, NULL));
    }
    static const struct {
        int64_t s;
        bool known;
    } tries[] = { { 17, true }, { 1, true }, { 3, true }, { 2, false }, { 2, true } };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const int before = bench->plans_made;
        set_encoder_inputs(bench->context, &inputs, &seed, 1, tries[i].s);
        OK(attnrun_run(bench->context, NULL));
        assert_int_equal(bench->plans_made == before, tries[i].known);
    }
    stop(bench);
}

static int64_t resident_bytes(void)
{
    long pages = 0, total;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &total, &pages), 2);
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void run_random_shapes(struct bench *bench, uint64_t *seed, int64_t turns)
{
    static struct encoder_inputs inputs;
    for (int64_t turn = 0; turn < turns; turn++) {
        int64_t b = 1 + random_below(seed, 4);
        set_encoder_inputs(bench->context, &inputs, seed, b, 1 + random_below(seed, 64));
        OK(attnrun_run(bench->context, NULL));
        if (random_below(seed, 500) == 0)
            attnrun_trim(bench->context);
    }
}

static void test_context_memory_stays_flat(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    struct bench *bench = start(write_encoder(1), 2);
    run_random_shapes(bench, &seed, 400);
    int64_t before = resident_bytes();
    run_random_shapes(bench, &seed, rounds(2000, 10000));
    int64_t grown = resident_bytes() - before;
    print_message("resident: %.1f MB, grown by %.1f MB\n", (double)before / 1e6,
                  (double)grown / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown < 8 << 20);
#endif
    stop(bench);
}

static void test_context_trim_gives_all_back(void **state)
{
    (void)state;
    static struct encoder_inputs inputs;
    uint64_t seed = 8;
    struct bench *bench = start(write_encoder(1), 2);
    int64_t before = atomic_load(&bench->memory.live_bytes);
    for (int64_t s = 1; s <= 5; s++) {
        set_encoder_inputs(bench->context, &inputs, &seed, 2, s);
        OK(attnrun_run(bench->context, NULL));
    }
    assert_true(atomic_load(&bench->memory.live_bytes) > before);
    attnrun_trim(bench->context);
    assert_int_equal(atomic_load(&bench->memory.live_bytes), before);
    assert_int_equal(memory_of(bench).n_plans, 0);
    attnrun_tensor gone;
    FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_output(bench->context, 0, &gone));
    OK(attnrun_run(bench->context, NULL));
    stop(bench);
}

/* ---- inputs ---- */

/* y = x + 1, z = x (an output that is an input), c: an output that is a constant. */
static struct onnx_writer *write_plus_one(void)
{
    static const float c[3] = { 7, 8, 9 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,3");
    onnx_float(w, "one", 1.0f);
    onnx_constant(w, "c", ATTNRUN_F32, "3", c);
    onnx_node(w, "Add", "x,one", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,3");
    onnx_output(w, "x", ATTNRUN_F32, "N,3");
    onnx_output(w, "c", ATTNRUN_F32, "3");
    onnx_output(w, "y", ATTNRUN_F32, "N,3");
    return w;
}

static void check_floats(const attnrun_tensor *t, int64_t n, const float *expected)
{
    assert_int_equal(t->dtype, ATTNRUN_F32);
    assert_int_equal(attnrun_tensor_count(t), n);
    assert_memory_equal(t->data, expected, (size_t)n * sizeof *expected);
}

static void test_context_outputs_may_be_inputs_or_constants(void **state)
{
    (void)state;
    float x[6] = { 0, 1, 2, 3, 4, 5 };
    struct bench *bench = start(write_plus_one(), 1);
    set_input(bench->context, 0, ATTNRUN_F32, "2,3", x);
    OK(attnrun_run(bench->context, NULL));
    attnrun_tensor y = get_output(bench->context, 0), z = get_output(bench->context, 1),
                   c = get_output(bench->context, 2), y2 = get_output(bench->context, 3);
    check_floats(&y, 6, (float[]){ 1, 2, 3, 4, 5, 6 });
    check_floats(&z, 6, x);
    check_floats(&c, 3, (float[]){ 7, 8, 9 });
    check_floats(&y2, 6, (float[]){ 1, 2, 3, 4, 5, 6 });
    assert_ptr_not_equal(z.data, x); /* the output stays when the caller's input goes */
    stop(bench);
}

static void test_context_takes_strided_inputs(void **state)
{
    (void)state;
    float wide[4][5];
    char bytes[64];
    for (int i = 0; i < 20; i++)
        wide[i / 5][i % 5] = (float)i;
    struct bench *bench = start(write_plus_one(), 2);
    attnrun_tensor x = { .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32, .rank = 2 };
    x.dims[0] = 2, x.dims[1] = 3;
    x.strides[0] = 2 * sizeof wide[0], x.strides[1] = sizeof(float);
    x.data = &wide[1][1]; /* rows 1 and 3, columns 1 to 3 */
    OK(attnrun_set_input(bench->context, 0, &x));
    OK(attnrun_run(bench->context, NULL));
    attnrun_tensor y = get_output(bench->context, 0), z = get_output(bench->context, 1);
    check_floats(&y, 6, (float[]){ 7, 8, 9, 17, 18, 19 });
    check_floats(&z, 6, (float[]){ 6, 7, 8, 16, 17, 18 });
    x.strides[0] = 0; /* the same row twice, backwards */
    x.strides[1] = -(int64_t)sizeof(float);
    x.data = &wide[0][2];
    OK(attnrun_set_input(bench->context, 0, &x));
    OK(attnrun_run(bench->context, NULL));
    y = get_output(bench->context, 0);
    check_floats(&y, 6, (float[]){ 3, 2, 1, 3, 2, 1 });
    for (int dense = 0; dense < 2; dense++) { /* elements at odd addresses */
        x.strides[1] = dense ? 4 : 9;
        x.strides[0] = dense ? 12 : 27;
        x.data = bytes + 1;
        memset(bytes, 0, sizeof bytes);
        for (int i = 0; i < 6; i++)
            memcpy(bytes + 1 + i / 3 * x.strides[0] + i % 3 * x.strides[1],
                   &(float){ (float)i }, sizeof(float));
        OK(attnrun_set_input(bench->context, 0, &x));
        OK(attnrun_run(bench->context, NULL));
        y = get_output(bench->context, 0);
        check_floats(&y, 6, (float[]){ 1, 2, 3, 4, 5, 6 });
    }
    stop(bench);
}

static void test_context_takes_empty_inputs(void **state)
{
    (void)state;
    struct bench *bench = start(write_plus_one(), 2);
    set_input(bench->context, 0, ATTNRUN_F32, "0,3", NULL);
    OK(attnrun_run(bench->context, NULL));
    attnrun_tensor y = get_output(bench->context, 0);
    assert_int_equal(y.dims[0], 0);
    assert_int_equal(y.dims[1], 3);
    stop(bench);
}

/* Attention of rank 3 becomes a node whose heads are the samples: there may be none. */
static void test_context_runs_attention_of_no_samples(void **state)
{
    (void)state;
    struct test_memory memory;
    float x[2 * 4 * 8] = { 0 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "q", ATTNRUN_F32, "B,4,8");
    onnx_input(w, "k", ATTNRUN_F32, "B,4,8");
    onnx_node(w, "Transpose", "k", "t");
    onnx_attrs(w, "perm=0,2,1");
    onnx_node(w, "MatMul", "q,t", "s");
    onnx_node(w, "Softmax", "s", "p");
    onnx_node(w, "MatMul", "p,k", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    for (int64_t batch = 2; batch >= 0; batch -= 2) {
        for (int i = 0; i < 2; i++)
            set_input(context, i, ATTNRUN_F32, batch > 0 ? "2,4,8" : "0,4,8", x);
        OK(attnrun_run(context, NULL));
        assert_int_equal(get_output(context, 0).dims[0], batch);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

static void test_context_refuses_inputs_that_do_not_fit(void **state)
{
    (void)state;
    float x[12] = { 0 };
    struct bench *bench = start(write_plus_one(), 1);
    attnrun_context *c = bench->context;
    FAILS(ATTNRUN_E_INPUT, "input 0 'x' (f32[N,3]) is not given", attnrun_run(c, NULL));
    attnrun_tensor t = tensor_of(ATTNRUN_F64, "1,3", x);
    FAILS(ATTNRUN_E_DTYPE, "f64[1,3], but the model takes f32[N,3]",
          attnrun_set_input(c, 0, &t));
    t = tensor_of(ATTNRUN_F32, "6", x);
    FAILS(ATTNRUN_E_SHAPE, "f32[6], but the model takes f32[N,3]",
          attnrun_set_input(c, 0, &t));
    t = tensor_of(ATTNRUN_F32, "3,2", x);
    FAILS(ATTNRUN_E_SHAPE, "f32[3,2], but the model takes f32[N,3]",
          attnrun_set_input(c, 0, &t));
    t = tensor_of(ATTNRUN_F32, "2,3", NULL);
    FAILS(ATTNRUN_E_USAGE, "no data", attnrun_set_input(c, 0, &t));
    t.data = x;
    FAILS(ATTNRUN_E_USAGE, "not in 0..0", attnrun_set_input(c, 1, &t));
    FAILS(ATTNRUN_E_USAGE, "not in 0..0", attnrun_set_input(c, -1, &t));
    t.dims[0] = -2;
    FAILS(ATTNRUN_E_USAGE, "malformed", attnrun_set_input(c, 0, &t));
    t.dims[0] = INT64_MAX / 2;
    FAILS(ATTNRUN_E_LIMIT,
          "input 0 'x' is f32[4611686018427387903,3], which is more than 2^46 elements "
          "(limit 'elements')",
          attnrun_set_input(c, 0, &t));
    t = (attnrun_tensor){ .kind = ATTNRUN_TENSOR, .dtype = 99, .data = x };
    FAILS(ATTNRUN_E_USAGE, "malformed", attnrun_set_input(c, 0, &t));
    t = (attnrun_tensor){ .kind = ATTNRUN_TENSOR, .dtype = 1, .rank = 9, .data = x };
    FAILS(ATTNRUN_E_USAGE, "malformed", attnrun_set_input(c, 0, &t));
    t = (attnrun_tensor){ .kind = ATTNRUN_SEQUENCE, .dtype = 1, .rank = 1 };
    FAILS(ATTNRUN_E_INPUT, "input 0 'x'", attnrun_set_input(c, 0, &t));
    FAILS(ATTNRUN_E_USAGE, "NULL", attnrun_run(NULL, NULL));
    FAILS(ATTNRUN_E_INPUT, "is not given", attnrun_run(c, NULL)); /* nothing was kept */
    attnrun_run_options other = { .struct_size = 4 };
    FAILS(ATTNRUN_E_USAGE, "another ABI", attnrun_run(c, &other));
    set_input(c, 0, ATTNRUN_F32, "1,3", x);
    OK(attnrun_run(c, NULL));
    OK(attnrun_set_input(c, 0, NULL));
    FAILS(ATTNRUN_E_INPUT, "is not given", attnrun_run(c, NULL));
    FAILS(ATTNRUN_E_USAGE, "not in 0..0", attnrun_set_input(c, 1, NULL));
    stop(bench);
}

/* ---- outputs in the caller's memory ---- */

static void test_context_writes_into_the_callers_memory(void **state)
{
    (void)state;
    float x[6] = { 0, 1, 2, 3, 4, 5 }, y[7], z[6], c[3];
    struct bench *bench = start(write_plus_one(), 1);
    attnrun_context *context = bench->context;
    attnrun_tensor ty = tensor_of(ATTNRUN_F32, "2,3", y);
    attnrun_tensor tz = tensor_of(ATTNRUN_F32, "2,3", z);
    attnrun_tensor tc = tensor_of(ATTNRUN_F32, "3", c);
    set_input(context, 0, ATTNRUN_F32, "2,3", x);
    OK(attnrun_set_output(context, 0, &ty));
    OK(attnrun_set_output(context, 1, &tz));
    OK(attnrun_set_output(context, 2, &tc));
    y[6] = -1;
    OK(attnrun_run(context, NULL));
    assert_memory_equal(y, ((float[]){ 1, 2, 3, 4, 5, 6, -1 }), sizeof y);
    assert_memory_equal(z, x, sizeof z);
    assert_memory_equal(c, ((float[]){ 7, 8, 9 }), sizeof c);
    set_input(context, 0, ATTNRUN_F32, "1,3", x); /* another shape than is bound */
    memset(c, 0, sizeof c);
    FAILS(ATTNRUN_E_SHAPE,
          "output 0 'y' is f32[1,3], but the memory bound to it is f32[2,3]",
          attnrun_run(context, NULL));
    assert_memory_equal(c, ((float[]){ 0, 0, 0 }), sizeof c);
    OK(attnrun_set_output(context, 0, NULL));
    OK(attnrun_set_output(context, 1, NULL));
    OK(attnrun_run(context, NULL));
    assert_memory_equal(y, ((float[]){ 1, 2, 3, 4, 5, 6, -1 }), sizeof y);
    stop(bench);
}

static void test_context_refuses_output_memory_that_does_not_fit(void **state)
{
    (void)state;
    float y[6];
    struct bench *bench = start(write_plus_one(), 1);
    attnrun_context *context = bench->context;
    attnrun_tensor t = tensor_of(ATTNRUN_F32, "2,3", NULL);
    FAILS(ATTNRUN_E_USAGE, "output 0", attnrun_set_output(context, 0, &t));
    t.data = y;
    t.strides[0] = 16;
    FAILS(ATTNRUN_E_USAGE, "dense", attnrun_set_output(context, 0, &t));
    FAILS(ATTNRUN_E_USAGE, "does not exist", attnrun_set_output(context, 4, &t));
    FAILS(ATTNRUN_E_USAGE, "does not exist", attnrun_set_output(context, -1, &t));
    t = tensor_of(ATTNRUN_I32, "2,3", y);
    OK(attnrun_set_output(context, 0, &t));
    set_input(context, 0, ATTNRUN_F32, "2,3", (float[6]){ 0 });
    FAILS(ATTNRUN_E_DTYPE,
          "output 0 'y' is f32[2,3], but the memory bound to it is i32[2,3]",
          attnrun_run(context, NULL));
    stop(bench);
}

/* ---- failures ---- */

/* y = x[at]: an index out of range fails at run; z = y + v: shapes fail at plan. */
static struct onnx_writer *write_gather(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_input(w, "at", ATTNRUN_I64, "M");
    onnx_input(w, "v", ATTNRUN_F32, "K");
    onnx_node(w, "Gather", "x,at", "y");
    onnx_node(w, "Add", "y,v", "z");
    onnx_output(w, "z", ATTNRUN_F32, NULL);
    return w;
}

static void test_context_goes_on_after_a_failed_run(void **state)
{
    (void)state;
    float x[4] = { 10, 20, 30, 40 }, v[3] = { 1, 2, 3 };
    int64_t at[3] = { 3, 0, 1 };
    struct bench *bench = start(write_gather(), 2);
    attnrun_context *c = bench->context;
    attnrun_tensor z;
    set_input(c, 0, ATTNRUN_F32, "4", x);
    set_input(c, 1, ATTNRUN_I64, "3", at);
    set_input(c, 2, ATTNRUN_F32, "3", v);
    for (int turn = 0; turn < 3; turn++) {
        at[1] = 0;
        OK(attnrun_run(c, NULL));
        z = get_output(c, 0);
        check_floats(&z, 3, (float[]){ 41, 12, 23 });
        at[1] = 4;
        FAILS(ATTNRUN_E_RANGE, "4", attnrun_run(c, NULL));
        assert_int_equal(attnrun_last_error()->node_index, 0);
        assert_string_equal(attnrun_last_error()->op_type, "Gather");
        FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_output(c, 0, &z));
        set_input(c, 2, ATTNRUN_F32, "2", v);
        FAILS(ATTNRUN_E_SHAPE, "Add", attnrun_run(c, NULL));
        FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_output(c, 0, &z));
        set_input(c, 2, ATTNRUN_F32, "3", v);
    }
    stop(bench);
}

static void test_context_validates_on_demand(void **state)
{
    (void)state;
    float x[3] = { 1, INFINITY, 2 };
    attnrun_tensor y;
    attnrun_run_options options = { .struct_size = sizeof options, .validate = 1 };
    struct bench *bench = start(write_plus_one(), 1);
    set_input(bench->context, 0, ATTNRUN_F32, "1,3", x);
    OK(attnrun_run(bench->context, NULL));
    FAILS(ATTNRUN_E_NONFINITE, "'y'", attnrun_run(bench->context, &options));
    FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_output(bench->context, 0, &y));
    x[1] = 0;
    OK(attnrun_run(bench->context, &options));
    stop(bench);
}

static void test_context_stays_within_the_budget(void **state)
{
    (void)state;
    static struct encoder_inputs inputs;
    struct test_memory memory;
    uint64_t seed = 1;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime_limited(&memory, 1, 1500000);
    attnrun_model *model = open_model(runtime, write_encoder(2), 0);
    attnrun_context *context = make_context(model);
    set_encoder_inputs(context, &inputs, &seed, 1, 4);
    OK(attnrun_run(context, NULL));
    attnrun_tensor wide[2] = { tensor_of(ATTNRUN_I64, "100000,64", NULL),
                               tensor_of(ATTNRUN_I64, "100000,64", NULL) };
    FAILS(ATTNRUN_E_MEMORY, "over the memory budget of 1500000 bytes",
          attnrun_reserve(context, wide));
    attnrun_tensor gone;
    FAILS(ATTNRUN_E_USAGE, "no successful run", attnrun_output(context, 0, &gone));
    OK(attnrun_run(context, NULL)); /* the small shape still fits */
    attnrun_runtime_info info = { .struct_size = sizeof info };
    OK(attnrun_runtime_query(runtime, &info));
    assert_true(info.peak_memory <= 1500000 && info.max_memory == 1500000);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* ---- sizes known only at run ---- */

static void test_context_dynamic_shapes(void **state)
{
    (void)state;
    static float x[1000];
    uint64_t seed = test_seed();
    struct bench *bench = start(write_dynamic(), 2);
    for (int64_t turn = 0; turn < rounds(60, 1000); turn++) {
        int64_t n = random_below(&seed, 1000), m = 0;
        double sum = 0;
        char dims[16];
        for (int64_t i = 0; i < n; i++)
            x[i] = random_below(&seed, 3) == 0 ? (float)random_below(&seed, 64) : 0.0f;
        snprintf(dims, sizeof dims, "%d", (int)n);
        set_input(bench->context, 0, ATTNRUN_F32, dims, x);
        OK(attnrun_run(bench->context, NULL));
        attnrun_tensor at = get_output(bench->context, 0);
        attnrun_tensor twice = get_output(bench->context, 1);
        for (int64_t i = 0; i < n; i++)
            if (x[i] > 0) {
                assert_int_equal(((int64_t *)at.data)[m], i);
                assert_true(((float *)twice.data)[m] == 2 * x[i]);
                sum += (double)x[i];
                m++;
            }
        assert_int_equal(at.dims[0], m);
        assert_int_equal(twice.dims[0], m);
        attnrun_tensor total = get_output(bench->context, 2);
        assert_true((double)*(float *)total.data == sum);
    }
    stop(bench);
}

/* side_heap_bytes is the highest of the last run, not of all. */
static void test_context_side_heap_is_of_the_last_run(void **state)
{
    (void)state;
    static float x[1000];
    struct bench *bench = start(write_dynamic(), 1);
    for (int i = 0; i < 1000; i++)
        x[i] = 1;
    set_input(bench->context, 0, ATTNRUN_F32, "1000", x);
    OK(attnrun_run(bench->context, NULL));
    int64_t many = memory_of(bench).side_heap_bytes;
    set_input(bench->context, 0, ATTNRUN_F32, "10", x);
    OK(attnrun_run(bench->context, NULL));
    assert_true(many > 16000);
    assert_in_range(memory_of(bench).side_heap_bytes, 1, many / 4);
    stop(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_known_shapes_allocate_nothing),
        cmocka_unit_test(test_context_reserve_is_enough_for_smaller_shapes),
        cmocka_unit_test(test_context_keeps_the_plans_used_last),
        cmocka_unit_test(test_context_memory_stays_flat),
        cmocka_unit_test(test_context_trim_gives_all_back),
        cmocka_unit_test(test_context_outputs_may_be_inputs_or_constants),
        cmocka_unit_test(test_context_takes_strided_inputs),
        cmocka_unit_test(test_context_takes_empty_inputs),
        cmocka_unit_test(test_context_runs_attention_of_no_samples),
        cmocka_unit_test(test_context_refuses_inputs_that_do_not_fit),
        cmocka_unit_test(test_context_writes_into_the_callers_memory),
        cmocka_unit_test(test_context_refuses_output_memory_that_does_not_fit),
        cmocka_unit_test(test_context_goes_on_after_a_failed_run),
        cmocka_unit_test(test_context_validates_on_demand),
        cmocka_unit_test(test_context_stays_within_the_budget),
        cmocka_unit_test(test_context_dynamic_shapes),
        cmocka_unit_test(test_context_side_heap_is_of_the_last_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

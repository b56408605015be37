/* test_dim_sizes.c - equal names of dims of inputs are equal sizes: every call refuses inputs that
 * disagree, and a model of separate names computes with both sizes; expressions are no promise.
 * Slices of the last rows have sizes that are made of the names. */
#include "harness.h"

enum { ROWS = 8, WIDTH = 2 };

/* y = x[: rows of `like`]: nothing is left of the Slice where both have as many rows. */
static struct onnx_writer *sliced(const char *rows, const char *like)
{
    struct onnx_writer *w = onnx_begin(18);
    char dims[32];
    snprintf(dims, sizeof dims, "%s,%d", rows, WIDTH);
    onnx_input(w, "x", ATTNRUN_F32, dims);
    snprintf(dims, sizeof dims, "%s,%d", like, WIDTH);
    onnx_input(w, "like", ATTNRUN_F32, dims);
    onnx_ints(w, "zero", 1, (const int64_t[]){ 0 });
    onnx_node(w, "Shape", "like", "n");
    onnx_attrs(w, "start=0 end=1");
    onnx_node(w, "Slice", "x,zero,n,zero", "part");
    onnx_node(w, "Neg", "part", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    return w;
}

/* y = x[-rows of `like`:] */
static struct onnx_writer *last_rows(const char *rows, const char *like)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, rows);
    onnx_input(w, "like", ATTNRUN_F32, like);
    onnx_ints(w, "zero", 1, (const int64_t[]){ 0 });
    onnx_ints(w, "end", 1, (const int64_t[]){ INT64_MAX });
    onnx_node(w, "Shape", "like", "n");
    onnx_node(w, "Neg", "n", "start");
    onnx_node(w, "Slice", "x,start,end,zero", "part");
    onnx_node(w, "Neg", "part", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    return w;
}

static attnrun_tensor rows_of(int n)
{
    static float data[ROWS * WIDTH];
    char dims[32];
    snprintf(dims, sizeof dims, "%d,%d", n, WIDTH);
    return tensor_of(ATTNRUN_F32, dims, data);
}

static attnrun_status run_both(attnrun_context *context, int x, int like)
{
    const attnrun_tensor inputs[] = { rows_of(x), rows_of(like) };
    for (int32_t i = 0; i < 2; i++)
        OK(attnrun_set_input(context, i, &inputs[i]));
    return attnrun_run(context, NULL);
}

#define SENTENCE "'B' is 4 in input 0 'x' (dim 0), but 3 in input 1 'like' (dim 0)"

static void check_refuses(attnrun_model *model)
{
    attnrun_context *context = make_context(model);
    const attnrun_tensor inputs[] = { rows_of(4), rows_of(3) };
    attnrun_plan_info info = { .struct_size = sizeof info };
    attnrun_model_need need = { .struct_size = sizeof need };
    OK(run_both(context, 4, 4));
    FAILS(ATTNRUN_E_SHAPE, SENTENCE, run_both(context, 4, 3));
    FAILS(ATTNRUN_E_SHAPE, SENTENCE, attnrun_plan(context, inputs, &info));
    FAILS(ATTNRUN_E_SHAPE, SENTENCE, attnrun_reserve(context, inputs));
    FAILS(ATTNRUN_E_SHAPE, SENTENCE, attnrun_model_plan(model, inputs, &need));
    OK(run_both(context, 3, 3));
    assert_int_equal(get_output(context, 0).dims[0], 3);
    attnrun_context_destroy(context);
}

static void test_every_call_refuses_two_sizes_of_a_name(void **state)
{
    (void)state;
    attnrun_model *model = open_model(NULL, sliced("B", "B"), 0);
    check_refuses(model);
    attnrun_model_release(model);
}

struct bytes {
    uint8_t data[1 << 16];
    size_t n;
};

static int32_t keep_bytes(void *user, const void *data, uint64_t n)
{
    struct bytes *bytes = user;
    if (bytes->n + n > sizeof bytes->data)
        return 1;
    memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return 0;
}

static void test_packed_file_keeps_the_choice(void **state)
{
    (void)state;
    static _Alignas(64) struct bytes file;
    attnrun_model *model = open_model(NULL, sliced("B", "B"), 0), *packed;
    OK(attnrun_model_save(model, keep_bytes, &file));
    attnrun_model_release(model);
    FAILS(ATTNRUN_E_USAGE, "already rewritten",
          open_bytes(NULL, file.data, file.n, ATTNRUN_SEPARATE_DIMS, &packed));
    OK(open_bytes(NULL, file.data, file.n, 0, &packed));
    check_refuses(packed);
    attnrun_model_release(packed);
    model = open_model(NULL, sliced("B", "B"), ATTNRUN_SEPARATE_DIMS);
    file.n = 0;
    OK(attnrun_model_save(model, keep_bytes, &file));
    attnrun_model_release(model);
    OK(open_bytes(NULL, file.data, file.n, ATTNRUN_SEPARATE_DIMS, &packed));
    attnrun_context *context = make_context(packed);
    OK(run_both(context, 4, 3));
    assert_int_equal(get_output(context, 0).dims[0], 3);
    attnrun_context_destroy(context);
    attnrun_model_release(packed);
}

/* The last output of a state is an input like others. */
static void test_state_is_compared_with_the_inputs(void **state)
{
    (void)state;
    struct onnx_writer *w = onnx_begin(18);
    float data[8] = { 0 };
    onnx_input(w, "past", ATTNRUN_F32, "S");
    onnx_input(w, "x", ATTNRUN_F32, "S");
    onnx_node(w, "Add", "past,x", "sum");
    onnx_node(w, "Concat", "sum,x", "present");
    onnx_attrs(w, "axis=0");
    onnx_output(w, "present", ATTNRUN_F32, NULL);
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_add_state(context, 0, 0, 0));
    set_input(context, 0, ATTNRUN_F32, "2", data);
    set_input(context, 1, ATTNRUN_F32, "2", data);
    OK(attnrun_run(context, NULL));
    FAILS(ATTNRUN_E_SHAPE, "'S' is 4 in input 0 'past' (dim 0), but 2 in input 1 'x'",
          attnrun_run(context, NULL));
    set_input(context, 1, ATTNRUN_F32, "4", data);
    OK(attnrun_run(context, NULL));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static void check_rows(struct onnx_writer *w, uint32_t flags, int x, int like, int rows)
{
    attnrun_model *model = open_model(NULL, w, flags);
    attnrun_context *context = make_context(model);
    OK(run_both(context, x, like));
    assert_int_equal(get_output(context, 0).dims[0], rows);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static void test_separate_names_are_two_sizes(void **state)
{
    (void)state;
    check_rows(sliced("B", "B"), ATTNRUN_SEPARATE_DIMS, 4, 3, 3);
    check_rows(sliced("B", "B"), ATTNRUN_SEPARATE_DIMS, 3, 4, 3);
    check_rows(sliced("B", "C"), 0, 4, 3, 3);
}

/* Exporters write "past + 1" for a mask that is longer in the first run: not even an expression
 * that both inputs could keep is taken for true. */
static void test_expressions_promise_nothing(void **state)
{
    (void)state;
    check_rows(sliced("B", "B+1"), 0, 4, 5, 4);
    check_rows(sliced("B", "B+1"), 0, 4, 3, 3);
    check_rows(sliced("B+1", "B+1"), ATTNRUN_SEPARATE_DIMS, 4, 3, 3);
    attnrun_model *model = open_model(NULL, sliced("B+1", "B+1"), 0);
    attnrun_context *context = make_context(model);
    FAILS(ATTNRUN_E_SHAPE, "'B+1' is 4 in input 0 'x'", run_both(context, 4, 3));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static void test_name_within_an_input_is_one_size(void **state)
{
    (void)state;
    float data[12] = { 0 };
    for (uint32_t flags = 0; flags <= ATTNRUN_SEPARATE_DIMS;
         flags += ATTNRUN_SEPARATE_DIMS) {
        struct onnx_writer *w = onnx_begin(18);
        onnx_input(w, "x", ATTNRUN_F32, "S,S");
        onnx_node(w, "Neg", "x", "y");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(NULL, w, flags);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, "3,3", data);
        OK(attnrun_run(context, NULL));
        set_input(context, 0, ATTNRUN_F32, "3,4", data);
        FAILS(ATTNRUN_E_SHAPE,
              "is 3 in input 0 'x' (dim 0), but 4 in input 0 'x' (dim 1)",
              attnrun_run(context, NULL));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* A dim that is declared of a value that a node gives is no promise: the file may be stale. */
static void test_declared_dims_of_values_promise_nothing(void **state)
{
    (void)state;
    float data[8] = { 1, 0, 1, 1 };
    for (uint32_t flags = 0; flags <= ATTNRUN_SEPARATE_DIMS;
         flags += ATTNRUN_SEPARATE_DIMS) {
        struct onnx_writer *w = onnx_begin(18);
        onnx_input(w, "x", ATTNRUN_F32, "B");
        onnx_node(w, "NonZero", "x", "places");
        onnx_node(w, "Shape", "places", "n");
        onnx_attrs(w, "start=1");
        onnx_node(w, "Shape", "x", "all");
        onnx_node(w, "Sub", "all,n", "zeros");
        onnx_output(w, "places", ATTNRUN_I64, "1,B");
        onnx_output(w, "zeros", ATTNRUN_I64, NULL);
        attnrun_model *model = open_model(NULL, w, flags);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, "4", data);
        OK(attnrun_run(context, NULL));
        assert_int_equal(get_output(context, 0).dims[1], 3);
        assert_int_equal(*(const int64_t *)get_output(context, 1).data, 1);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* Nor is a shape where not even the rank is known, as behind Reshape to `shape` of any length. */
static void test_declared_shapes_of_values_promise_nothing(void **state)
{
    (void)state;
    float data[12] = { 0 };
    const int64_t shape[] = { 2, 4 };
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_input(w, "shape", ATTNRUN_I64, "R");
    onnx_node(w, "Reshape", "x,shape", "y");
    onnx_node(w, "Size", "y", "n");
    onnx_output(w, "y", ATTNRUN_F32, "4,3");
    onnx_output(w, "n", ATTNRUN_I64, NULL);
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "8", data);
    set_input(context, 1, ATTNRUN_I64, "2", (void *)(uintptr_t)shape);
    OK(attnrun_run(context, NULL));
    assert_int_equal(get_output(context, 0).dims[0], 2);
    assert_int_equal(*(const int64_t *)get_output(context, 1).data, 8);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* An element of Reshape's shape that is n - 2 may be 0 or -1, which stand for other sizes: that of
 * x, or what is left. What follows is not computed or left out as if y had n - 2 rows. */
static void test_sizes_that_may_be_signs_promise_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *x;
        int64_t rows, kept, difference;
    } cases[] = { { "e,left", "4,3", 2, 2, 0 },
                  { "e,left", "2,3", 2, 0, 2 },
                  { "e", "1,3", 3, 2, 4 } };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        float data[12] = { 0 };
        struct onnx_writer *w = onnx_begin(18);
        onnx_input(w, "x", ATTNRUN_F32, "N,M");
        onnx_ints(w, "zero", 1, (int64_t[]){ 0 });
        onnx_ints(w, "two", 1, (int64_t[]){ 2 });
        onnx_ints(w, "left", 1, (int64_t[]){ -1 });
        onnx_node(w, "Shape", "x", "n");
        onnx_attrs(w, "end=1");
        onnx_node(w, "Sub", "n,two", "e");
        onnx_node(w, "Concat", cases[i / 2].shape, "shape");
        onnx_attrs(w, "axis=0");
        onnx_node(w, "Reshape", "x,shape", "y");
        onnx_node(w, "Slice", "y,zero,e,zero", "kept");
        onnx_node(w, "Shape", "y", "rows");
        onnx_attrs(w, "end=1");
        onnx_node(w, "Sub", "rows,e", "difference");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        onnx_output(w, "kept", ATTNRUN_F32, NULL);
        onnx_output(w, "difference", ATTNRUN_I64, NULL);
        attnrun_model *model = open_model(NULL, w, i % 2 ? ATTNRUN_NO_FUSION : 0);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, cases[i / 2].x, data);
        OK(attnrun_run(context, NULL));
        assert_int_equal(get_output(context, 0).dims[0], cases[i / 2].rows);
        assert_int_equal(get_output(context, 1).dims[0], cases[i / 2].kept);
        assert_int_equal(*(const int64_t *)get_output(context, 2).data,
                         cases[i / 2].difference);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* y: x, which is [N,3], in floor(N / 2) rows; kept: these rows of it, in which the Slice can be
 * left out. */
static struct onnx_writer *in_blocks(const char *dims, bool within)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, dims);
    onnx_ints(w, "zero", 1, (int64_t[]){ 0 });
    onnx_ints(w, "two", 1, (int64_t[]){ 2 });
    onnx_ints(w, "left", 1, (int64_t[]){ -1 });
    onnx_node(w, "Shape", "x", "n");
    onnx_attrs(w, "end=1");
    onnx_node(w, "Div", "n,two", "blocks");
    onnx_node(w, "Concat", "blocks,left", "shape");
    onnx_attrs(w, "axis=0");
    if (within) {
        onnx_node(w, "Equal", "n,two", "condition");
        onnx_node(w, "If", "condition", "kept");
        onnx_graph(w, "then_branch");
        onnx_node(w, "Identity", "x", "same");
        onnx_output(w, "same", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_graph(w, "else_branch");
    }
    onnx_node(w, "Reshape", "x,shape", "y");
    onnx_node(w, "Slice", "y,zero,blocks,zero", within ? "rows" : "kept");
    if (within) {
        onnx_output(w, "rows", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
    }
    onnx_output(w, "kept", ATTNRUN_F32, NULL);
    return w;
}

/* The number of blocks of shorter inputs than one is 0, which stands for N: such a run is refused,
 * also of a packed file, but not for what a graph within the model does. */
static void test_runs_without_a_block_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *x;
        int64_t rows; /* -1: refused */
    } cases[] = { { "4,3", 2 }, { "1,3", -1 }, { "0,3", 0 }, { "2,3", 1 } };
    static _Alignas(64) struct bytes file;
    float data[20] = { 0 };
    for (int flags = 0; flags < 8; flags++) {
        const bool named = flags < 4;
        attnrun_model *model = open_model(NULL, in_blocks(named ? "N,3" : ",3", false),
                                          flags % 2 ? ATTNRUN_NO_FUSION : 0);
        if (flags / 2 % 2) {
            file.n = 0;
            OK(attnrun_model_save(model, keep_bytes, &file));
            attnrun_model_release(model);
            OK(open_bytes(NULL, file.data, file.n, flags % 2 ? ATTNRUN_NO_FUSION : 0,
                          &model));
        }
        attnrun_context *context = make_context(model);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            set_input(context, 0, ATTNRUN_F32, cases[i].x, data);
            if (cases[i].rows < 0) {
                FAILS(ATTNRUN_E_SHAPE, named ? "floor(N/2) is 0" : "/2) is 0",
                      attnrun_run(context, NULL));
                continue;
            }
            OK(attnrun_run(context, NULL));
            assert_int_equal(get_output(context, 0).dims[0], cases[i].rows);
        }
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    attnrun_model *model = open_model(NULL, in_blocks("N,3", true), 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "1,3", data);
    OK(attnrun_run(context, NULL));
    assert_int_equal(get_output(context, 0).dims[0], 0); /* of one row, none is kept */
    assert_int_equal(get_output(context, 0).dims[1], 3);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* The same where what the size, max(N - 2, 0), is made of is below 0. */
static void test_runs_without_rows_are_refused(void **state)
{
    (void)state;
    float data[12] = { 0 };
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "N,3");
    onnx_ints(w, "zero", 1, (int64_t[]){ 0 });
    onnx_ints(w, "two", 1, (int64_t[]){ 2 });
    onnx_ints(w, "left", 1, (int64_t[]){ -1 });
    onnx_node(w, "Shape", "x", "n");
    onnx_attrs(w, "end=1");
    onnx_node(w, "Sub", "n,two", "less");
    onnx_node(w, "Max", "less,zero", "rows");
    onnx_node(w, "Concat", "rows,left", "shape");
    onnx_attrs(w, "axis=0");
    onnx_node(w, "Reshape", "x,shape", "y");
    onnx_node(w, "Slice", "y,zero,rows,zero", "kept");
    onnx_output(w, "kept", ATTNRUN_F32, NULL);
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "4,3", data);
    OK(attnrun_run(context, NULL));
    assert_int_equal(get_output(context, 0).dims[0], 2);
    for (int n = 1; n <= 2; n++) {
        set_input(context, 0, ATTNRUN_F32, n == 1 ? "1,3" : "2,3", data);
        FAILS(ATTNRUN_E_SHAPE, "is 0 for these inputs", attnrun_run(context, NULL));
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* Rows that a Reshape moves to another place, beside a -1: with none of them, 0 stands for the 3 of
 * `x`, and nothing is left for -1. Where the rows depend on data, nothing is computed at load with
 * what they would leave. */
static void test_moved_rows_are_some(void **state)
{
    (void)state;
    float data[6] = { 0 };
    bool keep[2] = { true, true };
    for (uint32_t flags = 0; flags <= ATTNRUN_NO_FUSION; flags += ATTNRUN_NO_FUSION) {
        struct onnx_writer *w = onnx_begin(18);
        onnx_input(w, "x", ATTNRUN_F32, "N,3");
        onnx_input(w, "keep", ATTNRUN_BOOL, "2");
        onnx_ints(w, "one", 1, (int64_t[]){ 1 });
        onnx_ints(w, "left", 1, (int64_t[]){ -1 });
        onnx_node(w, "Compress", "x,keep", "part");
        onnx_attrs(w, "axis=0");
        onnx_node(w, "Shape", "part", "n");
        onnx_attrs(w, "end=1");
        onnx_node(w, "Concat", "one,n,left", "shape");
        onnx_attrs(w, "axis=0");
        onnx_node(w, "Reshape", "part,shape", "y");
        onnx_node(w, "Shape", "y", "columns");
        onnx_attrs(w, "start=2");
        onnx_node(w, "ConstantOfShape", "columns", "z");
        onnx_output(w, "z", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(NULL, w, flags);
        attnrun_context *context = make_context(model);
        for (int64_t rows = 2; rows >= 0; rows -= 2) {
            keep[0] = keep[1] = rows > 0;
            set_input(context, 0, ATTNRUN_F32, "2,3", data);
            set_input(context, 1, ATTNRUN_BOOL, "2", keep);
            OK(attnrun_run(context, NULL));
            assert_int_equal(get_output(context, 0).dims[0], rows > 0 ? 3 : 0);
        }
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* A dim without a name is printed as "u1", which another input may have as a name. */
static void test_name_is_none_of_a_dim_without_one(void **state)
{
    (void)state;
    check_rows(sliced("", "u1"), 0, 4, 3, 3);
    check_rows(sliced("u1", ""), 0, 4, 3, 3);
    attnrun_model *model = open_model(NULL, sliced("u1", "u1"), 0);
    attnrun_context *context = make_context(model);
    FAILS(ATTNRUN_E_SHAPE, "'u1' is 4 in input 0 'x'", run_both(context, 4, 3));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* A start that is minus a size counts from the end. */
static void test_last_rows_have_a_known_size(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *like, *size;
        int x, n, last;
    } cases[] = { { "S", "S", "S", 3, 3, 3 },
                  { "S", "T", "min(S,T)", 5, 3, 3 },
                  { "S", "T", "min(S,T)", 3, 5, 3 } };
    float data[ROWS] = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dims[16];
        attnrun_value_info y = { .struct_size = sizeof y };
        attnrun_model *model =
            open_model(NULL, last_rows(cases[i].rows, cases[i].like), 0);
        OK(attnrun_model_output(model, 0, &y));
        assert_string_equal(y.dim_names[0], cases[i].size);
        attnrun_context *context = make_context(model);
        snprintf(dims, sizeof dims, "%d", cases[i].x);
        set_input(context, 0, ATTNRUN_F32, dims, data);
        snprintf(dims, sizeof dims, "%d", cases[i].n);
        set_input(context, 1, ATTNRUN_F32, dims, data);
        OK(attnrun_run(context, NULL));
        assert_int_equal(get_output(context, 0).dims[0], cases[i].last);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* What is shown of a long name is its beginning; two of them stay two, in sums as well. */
static void test_long_names_are_kept_apart(void **state)
{
    static float data[6];
    char name[100], dims[256];
    (void)state;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    for (int separate = 0; separate < 2; separate++) {
        const char *more = separate ? "" : "+1";
        snprintf(dims, sizeof dims, "%sa%s,%sb%s", name, more, name, more);
        struct onnx_writer *w = onnx_begin(18);
        onnx_input(w, "x", ATTNRUN_F32, dims);
        onnx_node(w, "Neg", "x", "y");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(NULL, w, separate ? ATTNRUN_SEPARATE_DIMS : 0);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, "2,3", data);
        OK(attnrun_run(context, NULL));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* A name that is cut ends with a character: "é" takes two bytes. */
static void test_names_are_cut_between_characters(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        char name[64] = "a";
        size_t n = (size_t)before, at = 0;
        while (n + 2 < sizeof name) {
            memcpy(name + n, "\xc3\xa9", 3);
            n += 2;
        }
        attnrun_value_info x = { .struct_size = sizeof x };
        struct onnx_writer *w = onnx_begin(18);
        onnx_input(w, "x", ATTNRUN_F32, name);
        onnx_node(w, "Neg", "x", "y");
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(NULL, w, 0);
        OK(attnrun_model_input(model, 0, &x));
        const char *shown = x.dim_names[0];
        for (int length = 1; length > 0 && shown[at] != 0; at += (size_t)length)
            length = attnrun_utf8_length(shown + at, strlen(shown + at));
        assert_int_equal(at, strlen(shown));
        assert_true(at >= sizeof x.dim_names[0] - 2);
        attnrun_model_release(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_refuses_two_sizes_of_a_name),
        cmocka_unit_test(test_packed_file_keeps_the_choice),
        cmocka_unit_test(test_state_is_compared_with_the_inputs),
        cmocka_unit_test(test_separate_names_are_two_sizes),
        cmocka_unit_test(test_expressions_promise_nothing),
        cmocka_unit_test(test_name_within_an_input_is_one_size),
        cmocka_unit_test(test_declared_dims_of_values_promise_nothing),
        cmocka_unit_test(test_declared_shapes_of_values_promise_nothing),
        cmocka_unit_test(test_sizes_that_may_be_signs_promise_nothing),
        cmocka_unit_test(test_runs_without_a_block_are_refused),
        cmocka_unit_test(test_runs_without_rows_are_refused),
        cmocka_unit_test(test_moved_rows_are_some),
        cmocka_unit_test(test_name_is_none_of_a_dim_without_one),
        cmocka_unit_test(test_last_rows_have_a_known_size),
        cmocka_unit_test(test_long_names_are_kept_apart),
        cmocka_unit_test(test_names_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

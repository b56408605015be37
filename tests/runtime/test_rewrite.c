/* test_rewrite.c - each rewrite pass applies where it must, keeps off where it must not,
 * and never changes what comes out. */
#include "harness.h"
#include "rewrite_cases.h"

#include <math.h>

enum { CASES = sizeof rewrite_cases / sizeof *rewrite_cases };

/* ---- from text to a model ---- */

static void scalar_of_rank_3(struct onnx_writer *w, const char *name, float x)
{
    onnx_constant(w, name, ATTNRUN_F32, "1,1,1", &x);
}

static void write_shapes(struct onnx_writer *w)
{
    static const struct {
        const char *name;
        int n;
        int64_t x[6];
    } shapes[] = { { "sh_q", 4, { 0, 0, 2, 4 } },
                   { "sh_y", 3, { 0, 0, -1 } },
                   { "sh_5", 5, { 0, 0, 3, 2, 4 } },
                   { "sh_p", 4, { 0, 0, 3, 8 } },
                   { "sh_n", 3, { 6, -1, 4 } },
                   { "sh_b", 4, { -1, 2, 6, 4 } },
                   { "sh_3", 3, { -1, 7, 4 } },
                   { "sh_t", 4, { -1, 2, 4, 7 } },
                   { "rep", 5, { 1, 1, 2, 1, 1 } },
                   { "merge", 4, { 0, 2, 7, 4 } },
                   { "sh_r", 3, { 1, -1, 8 } },
                   { "sh_c", 2, { -1, 4 } },
                   { "ax0", 1, { 0 } },
                   { "ax2", 1, { 2 } },
                   { "ax3", 1, { 3 } },
                   { "i_0", 1, { 0 } },
                   { "i_1", 1, { 1 } },
                   { "i_2", 1, { 2 } },
                   { "i_3", 1, { 3 } },
                   { "i_9", 1, { 9 } },
                   { "i_m1", 1, { -1 } },
                   { "j_q", 3, { -1, 6, 4 } },
                   { "p_s", 4, { -1, 2, 6, 7 } },
                   { "j_s", 3, { -1, 6, 7 } },
                   { "p_y", 4, { -1, 2, 6, 4 } },
                   { "p_1", 4, { -1, 1, 6, 7 } },
                   { "w_s", 5, { -1, 3, 2, 6, 7 } },
                   { "w_1", 5, { -1, 1, 2, 6, 7 } },
                   { "w_h", 5, { -1, 6, 1, 6, 7 } },
                   { "p_t", 4, { -1, 2, 7, 6 } },
                   { "sh_m", 6, { -1, 2, 2, 3, 2, 3 } },
                   { "sh_k", 4, { -1, 2, 6, 6 } },
                   { "sh_8", 3, { -1, 6, 6 } },
                   { "sh_1", 4, { -1, 1, 6, 6 } },
                   { "ax4", 1, { 4 } },
                   { "ax5", 1, { 5 } } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        onnx_ints(w, shapes[i].name, shapes[i].n, shapes[i].x);
    onnx_int(w, "i0", 0);
    onnx_int(w, "i1", 1);
    onnx_int(w, "im1", -1);
    onnx_float(w, "big", -1e9f);
}

static void write_constants(struct onnx_writer *w)
{
    static float data[4 * 81];
    uint64_t seed = 17;
    static const struct {
        const char *name, *dims;
    } tensors[] = { { "vec8", "8" },      { "vec8b", "8" },      { "vec111", "1,1,8" },
                    { "vec1", "1" },      { "w8", "8,8" },       { "w4", "4,4,3,3" },
                    { "w4g", "4,2,3,3" }, { "b4", "4" },         { "m4", "4" },
                    { "s4", "4" },        { "s4111", "4,1,1" },  { "row7", "7" },
                    { "col6", "6,1" },    { "se1", "2,4" },      { "se2", "4,2" },
                    { "w5", "4,5,3,3" },  { "ws", "1,2,3,3" },   { "img1", "1,4,9,9" },
                    { "sel", "2,4,2" },   { "sw1", "1,2" },      { "c1411", "1,4,1,1" },
                    { "w41", "4,4,1,1" }, { "w413", "4,4,1,3" }, { "w41g", "4,2,1,1" },
                    { "row6", "6" } };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        fill_floats(&seed, data, 4 * 81);
        onnx_constant(w, tensors[i].name, ATTNRUN_F32, tensors[i].dims, data);
    }
    write_shapes(w);
    onnx_constant(w, "v4", ATTNRUN_F32, "4", (float[4]){ 0.5f, 1, 2, 0.25f });
    onnx_constant(w, "pad0", ATTNRUN_I64, "8", (int64_t[8]){ 0 });
    onnx_constant(w, "pad1", ATTNRUN_I64, "8", (int64_t[8]){ 0, 0, 1, 1, 0, 0, 1, 1 });
    onnx_constant(w, "pad12", ATTNRUN_I64, "8", (int64_t[8]){ 0, 0, 0, 1, 0, 0, 2, 0 });
    onnx_constant(w, "padc", ATTNRUN_I64, "8", (int64_t[8]){ 0, 1, 1, 1, 0, 0, 1, 1 });
    onnx_constant(w, "shift", ATTNRUN_I64, "8", (int64_t[8]){ 0, 0, 1, 0, 0, 0, -1, 0 });
    onnx_float(w, "zero", 0);
    onnx_float(w, "one", 1);
    onnx_float(w, "half", 0.5f);
    onnx_float(w, "two", 2);
    onnx_float(w, "three", 3);
    onnx_float(w, "six", 6);
    onnx_float(w, "sixth", 1.0f / 6.0f);
    onnx_float(w, "wrong", 1.3f);
    onnx_float(w, "root2", 1.41421356f);
    onnx_float(w, "iroot2", 0.70710678f);
    onnx_float(w, "k0", 0.79788456f);
    onnx_float(w, "c0", 0.044715f);
    onnx_float(w, "eps", 1e-5f);
    scalar_of_rank_3(w, "one111", 1);
    scalar_of_rank_3(w, "half111", 0.5f);
    scalar_of_rank_3(w, "e111", 1e-5f);
}

static const struct {
    const char *name, *dims, *concrete;
} inputs[] = {
#define INPUT(name, dims, concrete) { name, dims, concrete },
#include "rewrite_inputs.def"
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static void write_statement(struct onnx_writer *w, char *statement)
{
    char *words[8], *rest = statement, *word;
    int n = 0;
    while ((word = strtok_r(NULL, " ", &rest)) != NULL && n < 8)
        words[n++] = word;
    assert_in_range(n, 3, 8);
    onnx_node(w, words[0], words[1], words[2]);
    for (int i = 3; i < n; i++)
        onnx_attrs(w, words[i]);
}

static struct onnx_writer *write_case(const struct rewrite_case *c)
{
    struct onnx_writer *w = onnx_begin(strstr(c->text, "; Attention ") != NULL ? 23 : 17);
    onnx_domain(w, "com.microsoft");
    onnx_domain(w, "attnrun");
    char text[600], *rest = text, *word;
    for (int i = 0; i < INPUTS; i++)
        onnx_input(w, inputs[i].name, ATTNRUN_F32, inputs[i].dims);
    write_constants(w);
    snprintf(text, sizeof text, "%s", c->text);
    while ((word = strtok_r(NULL, ";", &rest)) != NULL)
        write_statement(w, word);
    snprintf(text, sizeof text, "%s", c->outputs);
    rest = text;
    while ((word = strtok_r(NULL, ",", &rest)) != NULL)
        onnx_output(w, word, strcmp(word, "m") == 0 ? ATTNRUN_BOOL : ATTNRUN_F32, NULL);
    return w;
}

/* ---- runs ---- */

enum { MAX_OUTPUTS = 3, MAX_FLOATS = 5 * 4 * 13 * 13 };
struct result {
    attnrun_tensor tensors[MAX_OUTPUTS];
    float data[MAX_OUTPUTS][MAX_FLOATS];
    int n;
};

static int count_pass(const attnrun_model *model, const char *pass)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    OK(attnrun_model_query(model, &info));
    for (int32_t i = 0; i < info.n_passes; i++) {
        const char *name;
        int32_t applied;
        OK(attnrun_model_pass(model, i, &name, &applied));
        if (strcmp(name, pass) == 0)
            return applied;
    }
    fail_msg("there is no pass %s", pass);
    return -1;
}

static int run_case(const struct rewrite_case *c, uint32_t flags, const char *disable,
                    struct result *result)
{
    static float data[INPUTS][5 * 4 * 81];
    uint64_t seed = 31;
    size_t bytes;
    struct test_memory memory;
    attnrun_model *model;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    uint8_t *file = onnx_end(write_case(c), &bytes);
    attnrun_source source = { .struct_size = sizeof source,
                              .flags = flags,
                              .data = file,
                              .bytes = bytes,
                              .disable_passes = disable };
    OK(attnrun_model_open(runtime, &source, &model));
    attnrun_context *context = make_context(model);
    for (int i = 0; i < INPUTS; i++) {
        fill_floats(&seed, data[i], 5 * 4 * 81);
        set_input(context, i, ATTNRUN_F32, inputs[i].concrete, data[i]);
    }
    for (int i = 0; i < 4; i++)
        data[4][i] = 1.5f;
    OK(attnrun_run(context, NULL));
    attnrun_model_info info = { .struct_size = sizeof info };
    OK(attnrun_model_query(model, &info));
    result->n = info.n_outputs;
    for (int i = 0; i < result->n; i++) {
        result->tensors[i] = get_output(context, i);
        int64_t n = attnrun_tensor_bytes(&result->tensors[i]);
        assert_in_range(n, 1, sizeof result->data[0]);
        memcpy(result->data[i], result->tensors[i].data, (size_t)n);
    }
    int applied = count_pass(model, c->pass);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    free(file);
    test_memory_check(&memory);
    return applied;
}

/* Within 1e-4 * max(1, max |y|), or exactly. */
static bool is_close(const struct result *a, const struct result *b, bool exact)
{
    for (int i = 0; i < a->n; i++) {
        const attnrun_tensor *s = &a->tensors[i], *t = &b->tensors[i];
        float largest = 1;
        if (s->rank != t->rank || s->dtype != t->dtype ||
            memcmp(s->dims, t->dims, sizeof s->dims) != 0)
            return false;
        if (s->dtype != ATTNRUN_F32)
            continue;
        int64_t n = attnrun_tensor_count(s);
        for (int64_t k = 0; k < n; k++)
            largest = fmaxf(largest, fabsf(b->data[i][k]));
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(a->data[i][k] - b->data[i][k]) <= (exact ? 0 : 1e-4f * largest)))
                return false;
    }
    return true;
}

static bool same(const struct rewrite_case *c, const struct result *a,
                 const struct result *b)
{
    return is_close(a, b, strcmp(c->pass, "residual_relu") == 0);
}

static void test_rewrite_applies_where_it_must(void **state)
{
    (void)state;
    static struct result fused, plain;
    int wrong = 0;
    for (int i = 0; i < CASES; i++) {
        const struct rewrite_case *c = &rewrite_cases[i];
        int applied = run_case(c, 0, NULL, &fused);
        int never = run_case(c, ATTNRUN_NO_FUSION, NULL, &plain);
        bool good = applied == c->applied && never == 0 && same(c, &fused, &plain);
        if (!good)
            print_error("%s: applied %d times, expected %d; %s: %s -> %s\n", c->pass,
                        applied, c->applied,
                        same(c, &fused, &plain) ? "equal" : "NOT EQUAL", c->text,
                        c->outputs);
        wrong += !good;
    }
    assert_int_equal(wrong, 0);
}

static void test_rewrite_passes_can_be_switched_off(void **state)
{
    (void)state;
    static struct result with, without;
    for (int i = 0; i < CASES; i++) {
        char list[96];
        if (rewrite_cases[i].applied == 0)
            continue;
        snprintf(list, sizeof list, ",%s,,%s,", rewrite_cases[i].pass,
                 rewrite_cases[i].pass);
        assert_int_equal(run_case(&rewrite_cases[i], 0, list, &without), 0);
        assert_int_equal(run_case(&rewrite_cases[i], 0, ",", &with),
                         rewrite_cases[i].applied);
        assert_true(same(&rewrite_cases[i], &with, &without));
    }
}

/* Over 64 MiB nothing is folded: the product reads the constant transposed. */
static void test_rewrite_takes_in_a_large_transpose(void **state)
{
    enum { SIZE = 4100 };
    (void)state;
    struct test_memory memory;
    test_memory_init(&memory);
    float *w = malloc((size_t)SIZE * SIZE * sizeof *w), *x = malloc(SIZE * sizeof *x);
    uint64_t seed = test_seed();
    assert_non_null(w);
    assert_non_null(x);
    fill_floats(&seed, w, (int64_t)SIZE * SIZE);
    fill_floats(&seed, x, SIZE);
    struct onnx_writer *writer = onnx_begin(18);
    onnx_input(writer, "x", ATTNRUN_F32, "1,4100");
    onnx_output(writer, "y", ATTNRUN_F32, "1,4100");
    onnx_constant(writer, "w", ATTNRUN_F32, "4100,4100", w);
    onnx_node(writer, "Transpose", "w", "t");
    onnx_node(writer, "MatMul", "x,t", "y");
    attnrun_runtime *runtime = make_runtime(&memory, 2);
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_model_info info = { .struct_size = sizeof info };
    OK(attnrun_model_query(model, &info));
    assert_int_equal(info.n_nodes, 1);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "1,4100", x);
    OK(attnrun_run(context, NULL));
    const float *y = get_output(context, 0).data;
    for (int j = 0; j < SIZE; j += 37) {
        double sum = 0;
        for (int i = 0; i < SIZE; i++)
            sum += (double)x[i] * (double)w[(size_t)j * SIZE + (size_t)i];
        assert_true(fabs((double)y[j] - sum) < 1e-3);
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    free(w);
    free(x);
}

/* y, z = If t: (y: If f: x, else Exp(x) + r; z: r), else: (x, x); in each of the forms a
 * result may have: made inside, of the graph around, a constant. */
static struct onnx_writer *write_constant_if(void)
{
    static const float r[3] = { 1, 2, 3 };
    static const uint8_t yes = 1, no = 0;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "3");
    onnx_output(w, "y", ATTNRUN_F32, "3");
    onnx_output(w, "z", ATTNRUN_F32, "3");
    onnx_constant(w, "r", ATTNRUN_F32, "3", r);
    onnx_constant(w, "t", ATTNRUN_BOOL, "", &yes);
    onnx_constant(w, "f", ATTNRUN_BOOL, "", &no);
    onnx_node(w, "If", "t", "y,z");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Exp", "x", "a");
    onnx_node(w, "If", "f", "b");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Neg", "x", "c");
    onnx_output(w, "c", ATTNRUN_F32, "3");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Add", "a,r", "c");
    onnx_output(w, "c", ATTNRUN_F32, "3");
    onnx_graph_end(w);
    onnx_node(w, "Identity", "r", "d");
    onnx_output(w, "b", ATTNRUN_F32, "3");
    onnx_output(w, "d", ATTNRUN_F32, "3");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Neg", "x", "a");
    onnx_output(w, "a", ATTNRUN_F32, "3");
    onnx_output(w, "a", ATTNRUN_F32, "3");
    onnx_graph_end(w);
    return w;
}

static void test_rewrite_inlines_a_constant_if(void **state)
{
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        struct test_memory memory;
        float x[3] = { 0, 1, 2 };
        test_memory_init(&memory);
        attnrun_runtime *runtime = make_runtime(&memory, 1);
        attnrun_model *model =
            open_model(runtime, write_constant_if(), fused ? 0 : ATTNRUN_NO_FUSION);
        attnrun_context *context = make_context(model);
        assert_int_equal(count_pass(model, "constant_if"), 2);
        set_input(context, 0, ATTNRUN_F32, "3", x);
        OK(attnrun_run(context, NULL));
        const float *y = get_output(context, 0).data, *z = get_output(context, 1).data;
        for (int i = 0; i < 3; i++) {
            assert_true(fabsf(y[i] - expf(x[i]) - (float)(i + 1)) < 1e-4f);
            assert_true(fabsf(z[i] - (float)(i + 1)) < 1e-6f);
        }
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
        test_memory_check(&memory);
    }
}

/* y = If t: x @ w, else x: only the branch has a product, whose weights stay in 16 bits. */
static struct onnx_writer *write_narrow_if(void)
{
    static const uint16_t w16[2] = { 0x3c00, 0x4000 }; /* 1, 2 */
    static const uint8_t yes = 1;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F16, "1,2");
    onnx_output(w, "y", ATTNRUN_F16, NULL);
    onnx_constant(w, "w", ATTNRUN_F16, "2,1", w16);
    onnx_constant(w, "t", ATTNRUN_BOOL, "", &yes);
    onnx_node(w, "If", "t", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "MatMul", "x,w", "a");
    onnx_output(w, "a", ATTNRUN_F16, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Identity", "x", "b");
    onnx_output(w, "b", ATTNRUN_F16, NULL);
    onnx_graph_end(w);
    return w;
}

static void test_rewrite_inlines_a_branch_in_16_bits(void **state)
{
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        uint16_t x[2] = { 0x4000, 0x4200 }; /* 2, 3 */
        attnrun_model *model =
            open_model(NULL, write_narrow_if(), fused ? 0 : ATTNRUN_NO_FUSION);
        attnrun_context *context = make_context(model);
        assert_int_equal(count_pass(model, "constant_if"), 1);
        set_input(context, 0, ATTNRUN_F16, "1,2", x);
        OK(attnrun_run(context, NULL));
        const attnrun_tensor y = get_output(context, 0);
        assert_int_equal(*(const uint16_t *)y.data, 0x4800); /* 8 */
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
}

/* Casts that give outputs of a value in f32, which is an input, or an output itself: they keep
 * their names, and what is rounded in the file. */
static void test_casts_of_a_region_give_outputs(void **state)
{
    static const char *const names[] = { "rounded", "value", "first", "second", "sum" };
    (void)state;
    float x[2] = { 1.0001f, 70000 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "2");
    onnx_node(w, "Cast", "x", "x16");
    onnx_attrs(w, "to=10");
    onnx_node(w, "Cast", "x16", "rounded");
    onnx_attrs(w, "to=1");
    onnx_node(w, "Neg", "x", "value");
    onnx_node(w, "Cast", "value", "value16");
    onnx_attrs(w, "to=10");
    onnx_node(w, "Cast", "value16", "first");
    onnx_attrs(w, "to=1");
    onnx_node(w, "Cast", "value16", "second");
    onnx_attrs(w, "to=1");
    onnx_node(w, "Add", "x16,value16", "sum");
    for (int32_t i = 0; i < 5; i++)
        onnx_output(w, names[i], i < 4 ? ATTNRUN_F32 : ATTNRUN_F16, NULL);
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "2", x);
    OK(attnrun_run(context, NULL));
    for (int32_t i = 0; i < 5; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        OK(attnrun_model_output(model, i, &info));
        assert_string_equal(info.name, names[i]);
        const float *y = get_output(context, i).data;
        if (i == 0)
            assert_true(y[0] == 1 && isinf(y[1]));
        else if (i == 1)
            assert_true(y[0] == -x[0] && y[1] == -x[1]);
        else if (i < 4)
            assert_true(y[0] == -1 && isinf(y[1]));
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* A Split has no first output where no node reads it; a Concat of as many parts looks at it. */
static void test_rewrite_of_a_split_without_its_first_output(void **state)
{
    (void)state;
    float x[8] = { 0, 1, 2, -3, 4, 5, -6, 7 };
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "N,4");
    onnx_node(w, "Split", "x", "a,b");
    onnx_attrs(w, "axis=-1 num_outputs=2");
    onnx_node(w, "Relu", "b", "r");
    onnx_node(w, "Concat", "b,r", "y");
    onnx_attrs(w, "axis=-1");
    onnx_output(w, "y", ATTNRUN_F32, "N,4");
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, "2,4", x);
    OK(attnrun_run(context, NULL));
    const float expected[8] = { 2, -3, 2, 0, -6, 7, 0, 7 };
    assert_memory_equal(get_output(context, 0).data, expected, sizeof expected);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* Each Shape compares its dims with those of all inputs, where these are not too many for that. */
static void test_rewrite_compares_dims_of_few_inputs(void **state)
{
    static const int n_inputs[] = { 8, 2000 };
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct onnx_writer *w = onnx_begin(17);
        for (int i = 0; i < n_inputs[k]; i++) {
            char name[16], dim[16];
            snprintf(name, sizeof name, "x%d", i);
            snprintf(dim, sizeof dim, "d%d", i);
            onnx_input(w, name, ATTNRUN_F32, dim);
        }
        onnx_node(w, "Exp", "x0", "e");
        onnx_node(w, "Shape", "e", "s");
        onnx_node(w, "ConstantOfShape", "s", "z");
        onnx_node(w, "Add", "z,e", "y");
        onnx_output(w, "y", ATTNRUN_F32, "N");
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        attnrun_model *model = open_model(runtime, w, 0);
        assert_int_equal(count_pass(model, "shape_source"), k == 0);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
}

/* A branch that is never taken may have shapes that cannot be right, or tensors too large to be;
 * passes and formulas leave it alone, also where they would find something in front of that. */
static void test_rewrite_leaves_branches_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        const char *before, *last;
        int n;
        int64_t shape[3];
        attnrun_status status;
        const char *words;
    } branches[] = {
        { "Identity", "Reshape", 1, { 7 }, ATTNRUN_E_SHAPE, "new shape has 7 elements" },
        { "LpNormalization", "Reshape", 1, { 7 }, ATTNRUN_E_SHAPE, "has 7 elements" },
        { "HardSwish", "Reshape", 1, { 7 }, ATTNRUN_E_SHAPE, "has 7 elements" },
        { "Identity",
          "Expand",
          3,
          { INT64_C(1) << 46, 2, 3 },
          ATTNRUN_E_LIMIT,
          "more elements than fit into memory (limit 'elements')" },
        { "Identity",
          "Expand",
          3,
          { INT64_C(1) << 48, 2, 3 },
          ATTNRUN_E_LIMIT,
          "dim 0 is negative or too large (limit 'dim')" },
    };
    for (size_t k = 0; k < sizeof branches / sizeof *branches; k++) {
        struct onnx_writer *w = onnx_begin(17);
        float x[6] = { 1, -2, 3, -4, 5, -6 };
        uint8_t c = 1;
        onnx_input(w, "c", ATTNRUN_BOOL, "");
        onnx_input(w, "x", ATTNRUN_F32, "2,3");
        onnx_ints(w, "shape", branches[k].n, branches[k].shape);
        onnx_node(w, "If", "c", "y");
        onnx_graph(w, "then_branch");
        onnx_node(w, "Relu", "x", "t");
        onnx_output(w, "t", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_graph(w, "else_branch");
        onnx_node(w, branches[k].before, "x", "a");
        onnx_node(w, "Sigmoid", "a", "b");
        onnx_node(w, "Mul", "a,b", "s");
        onnx_node(w, branches[k].last, "s,shape", "e");
        onnx_output(w, "e", ATTNRUN_F32, NULL);
        onnx_graph_end(w);
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        attnrun_model *model = open_model(runtime, w, 0);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_BOOL, "", &c);
        set_input(context, 1, ATTNRUN_F32, "2,3", x);
        OK(attnrun_run(context, NULL));
        assert_memory_equal(get_output(context, 0).data, ((float[]){ 1, 0, 3, 0, 5, 0 }),
                            sizeof x);
        c = 0;
        FAILS(branches[k].status, branches[k].words, attnrun_run(context, NULL));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewrite_leaves_branches_that_do_not_fit),
        cmocka_unit_test(test_rewrite_inlines_a_constant_if),
        cmocka_unit_test(test_rewrite_inlines_a_branch_in_16_bits),
        cmocka_unit_test(test_casts_of_a_region_give_outputs),
        cmocka_unit_test(test_rewrite_applies_where_it_must),
        cmocka_unit_test(test_rewrite_passes_can_be_switched_off),
        cmocka_unit_test(test_rewrite_takes_in_a_large_transpose),
        cmocka_unit_test(test_rewrite_of_a_split_without_its_first_output),
        cmocka_unit_test(test_rewrite_compares_dims_of_few_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

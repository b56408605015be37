/* test_override.c - a row that a user registers in the place of a built-in one runs: no
 * pass swallows its nodes, and no node that a pass writes runs it.
 *
 * A row "louder" computes what the built-in one does, times FACTOR. With it a model gives
 * the same with fusion and without. */
#include "harness.h"

#include <math.h>

#include "sample_models.h"

#define FACTOR 1.25f
enum { MAX_ROWS = 1024, MAX_VALUES = 1 << 14, MAX_NODES = 256 };

/* ---- rows ---- */

/* The row first: step->node->op points at it. */
struct loud {
    attnrun_op_def row;
    const attnrun_op_def *built_in;
};

static const attnrun_op_def *built_in_of(const attnrun_step *step)
{
    return ((const struct loud *)step->node->op)->built_in;
}

static attnrun_status loud_infer(attnrun_step *step)
{
    return built_in_of(step)->infer(step);
}

/* One thread: each phase comes as one range. */
static attnrun_status loud_run(const attnrun_step *step, const attnrun_work *work)
{
    attnrun_status status = built_in_of(step)->run(step, work);
    if (status != ATTNRUN_OK || work->phase + 1 < step->n_phases)
        return status;
    for (int32_t i = 0; i < step->n_out; i++) {
        const attnrun_tensor *y = &step->y[i];
        if (y->data == NULL || y->kind != ATTNRUN_TENSOR || y->dtype != ATTNRUN_F32)
            continue;
        int64_t n = attnrun_tensor_count(y);
        for (int64_t k = 0; k < n; k++)
            ((float *)y->data)[k] *= FACTOR;
    }
    return ATTNRUN_OK;
}

static struct loud louder_than(const attnrun_op_def *built_in)
{
    struct loud loud = { .row = *built_in, .built_in = built_in };
    loud.row.release = NULL;
    loud.row.infer = loud_infer;
    loud.row.run = loud_run;
    return loud;
}

/* ---- models ---- */

static float numbers[4096];

static void bind_encoder(attnrun_context *context)
{
    static struct encoder_inputs inputs;
    uint64_t seed = 4;
    set_encoder_inputs(context, &inputs, &seed, 2, 11);
}

static struct onnx_writer *write_encoder_1(void) { return write_encoder(1); }

static void bind_images(attnrun_context *context)
{
    set_input(context, 0, ATTNRUN_F32, "1,3,16,16", numbers);
}

static void bind_plain(attnrun_context *context)
{
    set_input(context, 0, ATTNRUN_F32, "2,4,6,8", numbers);
}

/* Attention and activations as ONNX Runtime's optimizer writes them, a rotation, what the
 * pass "identity" takes out, and elementwise nodes that make a chain. */
static struct onnx_writer *write_mixed(void)
{
    static const int64_t swap[] = { 0, 1, 3, 2 };
    static const int64_t all[] = { 0, 1, 2, 3 };
    struct onnx_writer *w = onnx_begin(20);
    onnx_domain(w, "com.microsoft");
    onnx_input(w, "x", ATTNRUN_F32, "B,4,S,8");
    onnx_constant(w, "w", ATTNRUN_F32, "8,8", numbers);
    onnx_float(w, "half", 0.5f);
    onnx_float(w, "one", 1.0f);
    onnx_node(w, "com.microsoft::FusedMatMul", "x,x", "scores");
    onnx_attrs(w, "transB=1 alpha=0.25");
    onnx_node(w, "Softmax", "scores", "p");
    onnx_attr_int(w, "axis", -1);
    onnx_node(w, "MatMul", "p,x", "mixed");
    onnx_node(w, "MatMul", "mixed,w", "product");
    onnx_node(w, "com.microsoft::QuickGelu", "product", "quick");
    onnx_attr_float(w, "alpha", 1.0f);
    onnx_node(w, "MatMul", "quick,w", "product2");
    onnx_node(w, "com.microsoft::FastGelu", "product2", "fast");
    onnx_node(w, "Transpose", "fast", "transposed");
    onnx_attr_ints(w, "perm", 4, all);
    onnx_node(w, "Mul", "transposed,one", "same");
    onnx_node(w, "Sigmoid", "same", "gate");
    onnx_node(w, "Mul", "same,gate", "silu");
    onnx_node(w, "Sin", "silu", "sine");
    onnx_node(w, "Tanh", "sine", "bent");
    onnx_node(w, "Add", "bent,half", "moved");
    onnx_node(w, "Transpose", "moved", "other");
    onnx_attr_ints(w, "perm", 4, swap);
    onnx_node(w, "MatMul", "moved,other", "square");
    onnx_node(w, "Relu", "square", "y");
    onnx_output(w, "y", ATTNRUN_F32, "B,4,S,S");
    return w;
}

/* A mixer of maps with a sum and a Relu behind it. */
static struct onnx_writer *write_maps(void)
{
    struct onnx_writer *w = onnx_begin(20);
    onnx_domain(w, "attnrun");
    onnx_input(w, "x", ATTNRUN_F32, "N,4,H,W");
    onnx_constant(w, "w1", ATTNRUN_F32, "2,4", numbers);
    onnx_constant(w, "w2", ATTNRUN_F32, "4,2", numbers + 8);
    onnx_node(w, "attnrun::SqueezeExcite", "x,w1,,w2", "gated");
    onnx_node(w, "Add", "gated,x", "sum");
    onnx_node(w, "Relu", "sum", "y");
    onnx_output(w, "y", ATTNRUN_F32, "N,4,H,W");
    return w;
}

static const struct subject {
    const char *name;
    struct onnx_writer *(*write)(void);
    void (*bind)(attnrun_context *context);
    int min_heard; /* operators whose louder row is heard in the result */
} subjects[] = {
    { "encoder", write_encoder_1, bind_encoder, 10 },
    { "convnet", write_convnet, bind_images, 5 },
    { "mixed", write_mixed, bind_plain, 10 },
    { "maps", write_maps, bind_plain, 3 },
};

/* ---- runs ---- */

struct result {
    float y[MAX_VALUES];
    int64_t n;
};

static void run_model(attnrun_runtime *runtime, const struct subject *subject,
                      uint32_t flags, struct result *result)
{
    attnrun_model *model = open_model(runtime, subject->write(), flags);
    attnrun_context *context = make_context(model);
    subject->bind(context);
    OK(attnrun_run(context, NULL));
    attnrun_tensor y = get_output(context, 0);
    result->n = attnrun_tensor_count(&y);
    assert_in_range(result->n, 1, MAX_VALUES);
    memcpy(result->y, y.data, (size_t)result->n * sizeof *result->y);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

static double distance(const struct result *a, const struct result *b)
{
    double largest = 0, apart = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        largest = fmax(largest, fabs((double)b->y[i]));
        apart = fmax(apart, fabs((double)a->y[i] - (double)b->y[i]));
    }
    return apart / fmax(1, largest);
}

/* Whether the file's graph has the operator: nodes of a model that nothing rewrote. */
static bool has_operator(const attnrun_model *model, const attnrun_op_def *row)
{
    attnrun_node_info info = { .struct_size = sizeof info };
    for (int32_t n = 0; n < MAX_NODES; n++) {
        if (attnrun_model_node(model, n, &info) != ATTNRUN_OK)
            return false;
        if (strcmp(info.op_type, row->name) == 0 && strcmp(info.domain, row->domain) == 0)
            return true;
    }
    return false;
}

static struct result plain, fused, unfused;

/* Returns whether the louder row is heard. */
static bool check_override(const struct subject *subject, const attnrun_op_def *built_in)
{
    struct loud loud = louder_than(built_in);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    OK(attnrun_register_op(runtime, &loud.row));
    run_model(runtime, subject, 0, &fused);
    run_model(runtime, subject, ATTNRUN_NO_FUSION, &unfused);
    attnrun_runtime_destroy(runtime);
    if (distance(&fused, &unfused) > 1e-4)
        fail_msg("%s: %s-%d registered: with fusion the result is %g apart",
                 subject->name, built_in->name, (int)built_in->since,
                 distance(&fused, &unfused));
    return distance(&unfused, &plain) > 1e-2;
}

static void test_override_is_never_swallowed(void **state)
{
    (void)state;
    uint64_t seed = 3;
    fill_floats(&seed, numbers, 4096);
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        const struct subject *subject = &subjects[s];
        attnrun_runtime *runtime = make_runtime(NULL, 1);
        attnrun_model *model = open_model(runtime, subject->write(), ATTNRUN_NO_FUSION);
        const attnrun_op_def *row;
        int heard = 0;
        run_model(runtime, subject, ATTNRUN_NO_FUSION, &plain);
        for (int32_t i = 0; (row = attnrun_get_op(runtime, i)) != NULL; i++)
            if (row->run != NULL && has_operator(model, row))
                heard += check_override(subject, row);
        print_message("%s: %d louder rows are heard\n", subject->name, heard);
        assert_true(heard >= subject->min_heard);
        attnrun_model_release(model);
        attnrun_runtime_destroy(runtime);
    }
}

/* Rows of operators that the file does not have change nothing: what passes write runs
 * the library's own. */
static void test_override_leaves_nodes_of_passes_alone(void **state)
{
    (void)state;
    static struct loud rows[MAX_ROWS];
    uint64_t seed = 3;
    fill_floats(&seed, numbers, 4096);
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        const struct subject *subject = &subjects[s];
        attnrun_runtime *before = make_runtime(NULL, 1), *after = make_runtime(NULL, 1);
        attnrun_model *model = open_model(before, subject->write(), ATTNRUN_NO_FUSION);
        const attnrun_op_def *row;
        for (int32_t i = 0; (row = attnrun_get_op(before, i)) != NULL; i++) {
            assert_true(i < MAX_ROWS);
            if (row->run == NULL || has_operator(model, row))
                continue;
            rows[i] = louder_than(row);
            OK(attnrun_register_op(after, &rows[i].row));
        }
        run_model(before, subject, 0, &plain);
        run_model(after, subject, 0, &fused);
        if (distance(&fused, &plain) > 0)
            fail_msg("%s: %g apart", subject->name, distance(&fused, &plain));
        attnrun_model_release(model);
        attnrun_runtime_destroy(before);
        attnrun_runtime_destroy(after);
    }
}

/* ---- folding ---- */

/* What is folded at load is what the registered row computes. */
static void test_override_is_folded(void **state)
{
    (void)state;
    const attnrun_op_def *row, *built_in = NULL;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    for (int32_t i = 0; (row = attnrun_get_op(runtime, i)) != NULL; i++)
        if (row->domain[0] == 0 && strcmp(row->name, "Neg") == 0)
            built_in = row;
    assert_non_null(built_in);
    struct loud loud = louder_than(built_in);
    OK(attnrun_register_op(runtime, &loud.row));
    for (uint32_t flags = 0; flags <= ATTNRUN_NO_FUSION; flags += ATTNRUN_NO_FUSION) {
        float x[1] = { 2 };
        struct onnx_writer *w = onnx_begin(17);
        onnx_input(w, "x", ATTNRUN_F32, "1");
        onnx_float(w, "four", 4);
        onnx_node(w, "Neg", "four", "minus");
        onnx_node(w, "Add", "x,minus", "y");
        onnx_output(w, "y", ATTNRUN_F32, "1");
        attnrun_model *model = open_model(runtime, w, flags);
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, "1", x);
        OK(attnrun_run(context, NULL));
        attnrun_tensor y = get_output(context, 0);
        assert_true(((float *)y.data)[0] == 2 - 4 * FACTOR);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_override_is_never_swallowed),
        cmocka_unit_test(test_override_leaves_nodes_of_passes_alone),
        cmocka_unit_test(test_override_is_folded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

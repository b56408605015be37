/* test_ragged.c - a model that runs on the tokens of a batch: runs on all of them for once, and
 * memory that is there before. */
#include <math.h>

#include "../runtime/harness.h"

enum { BATCH = 3, TOKENS = 24, WIDTH = 8, N = BATCH * TOKENS * WIDTH };
static const float LOW = -1e9f;

/* x f32[B,S,8] plus attention of two heads over it under the mask i64[B,S] -> y; `low` is added to
 * the scores of hidden tokens. */
static struct onnx_writer *write_encoder(float low)
{
    static float weights[3][WIDTH * WIDTH];
    static const char names[3][2] = { "q", "k", "v" };
    static int64_t heads[4] = { 0, 0, 2, 4 }, flat[3] = { 0, 0, WIDTH },
                   axes[2] = { 1, 2 };
    static float one = 1, half = 0.5f;
    uint64_t seed = test_seed();
    char in[16], out[16];
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "B,S,8");
    onnx_input(w, "mask", ATTNRUN_I64, "B,S");
    onnx_constant(w, "heads", ATTNRUN_I64, "4", heads);
    onnx_constant(w, "flat", ATTNRUN_I64, "3", flat);
    onnx_constant(w, "axes", ATTNRUN_I64, "2", axes);
    onnx_constant(w, "one", ATTNRUN_F32, "", &one);
    onnx_constant(w, "low", ATTNRUN_F32, "", &low);
    onnx_constant(w, "half", ATTNRUN_F32, "", &half);
    for (int i = 0; i < 3; i++) {
        const int64_t perm[] = { 0, 2, i == 1 ? 3 : 1, i == 1 ? 1 : 3 };
        fill_floats(&seed, weights[i], WIDTH * WIDTH);
        onnx_constant(w, names[i], ATTNRUN_F32, "8,8", weights[i]);
        snprintf(in, sizeof in, "x,%s", names[i]);
        snprintf(out, sizeof out, "%s1", names[i]);
        onnx_node(w, "MatMul", in, out);
        snprintf(in, sizeof in, "%s1,heads", names[i]);
        snprintf(out, sizeof out, "%s2", names[i]);
        onnx_node(w, "Reshape", in, out);
        snprintf(in, sizeof in, "%s2", names[i]);
        snprintf(out, sizeof out, "%s3", names[i]);
        onnx_node(w, "Transpose", in, out);
        onnx_attr_ints(w, "perm", 4, perm);
    }
    onnx_node(w, "Cast", "mask", "f");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    onnx_node(w, "Unsqueeze", "f,axes", "f4");
    onnx_node(w, "Sub", "one,f4", "g");
    onnx_node(w, "Mul", "g,low", "hidden");
    onnx_node(w, "MatMul", "q3,k3", "s1");
    onnx_node(w, "Mul", "s1,half", "s2");
    onnx_node(w, "Add", "s2,hidden", "s3");
    onnx_node(w, "Softmax", "s3", "p");
    onnx_attr_int(w, "axis", -1);
    onnx_node(w, "MatMul", "p,v3", "y1");
    onnx_node(w, "Transpose", "y1", "y2");
    onnx_attr_ints(w, "perm", 4, (const int64_t[]){ 0, 2, 1, 3 });
    onnx_node(w, "Reshape", "y2,flat", "y3");
    onnx_node(w, "Add", "x,y3", "y");
    onnx_output(w, "y", ATTNRUN_F32, "B,S,8");
    return w;
}

static attnrun_model *open_ragged(attnrun_runtime *runtime, int32_t ragged, float low)
{
    size_t bytes;
    attnrun_model *model;
    uint8_t *data = onnx_end(write_encoder(low), &bytes);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = data,
                                    .bytes = bytes,
                                    .flags = ATTNRUN_COPY,
                                    .ragged = ragged };
    OK(attnrun_model_open(runtime, &source, &model));
    free(data);
    return model;
}

struct batch {
    float x[N];
    int64_t mask[BATCH * TOKENS];
    attnrun_tensor inputs[2];
};

/* Sample b of `batch` has lengths[b] of `tokens` tokens. */
static void make_batch(struct batch *b, int64_t batch, int64_t tokens,
                       const int64_t lengths[BATCH])
{
    uint64_t seed = test_seed();
    fill_floats(&seed, b->x, N);
    for (int64_t i = 0; i < batch * tokens; i++)
        b->mask[i] = i % tokens < lengths[i / tokens];
    OK(attnrun_tensor_make(ATTNRUN_F32, 3, (int64_t[]){ batch, tokens, WIDTH }, b->x,
                           &b->inputs[0]));
    OK(attnrun_tensor_make(ATTNRUN_I64, 2, (int64_t[]){ batch, tokens }, b->mask,
                           &b->inputs[1]));
}

static void run_batch(attnrun_context *context, const struct batch *b, bool all_tokens,
                      float *y)
{
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .all_tokens = all_tokens };
    attnrun_tensor made;
    for (int i = 0; i < 2; i++)
        OK(attnrun_set_input(context, i, &b->inputs[i]));
    OK(attnrun_run(context, &options));
    OK(attnrun_output(context, 0, &made));
    assert_int_equal(made.dims[1], b->inputs[0].dims[1]);
    memcpy(y, made.data, (size_t)(made.dims[0] * made.dims[1] * WIDTH) * sizeof *y);
}

/* Rows of padding are 0, but for a run that asks for all tokens, which gives what a model without
 * the option gives. */
static void test_a_run_on_all_tokens(void **state)
{
    (void)state;
    static struct batch b;
    float plain[N], packed[N], all[N];
    static const struct {
        int64_t batch, lengths[BATCH];
    } rows[] = {
        { BATCH, { TOKENS, 5, 1 } }, { 1, { 1 } }, { 1, { 2 } }, { 2, { 1, 1 } }
    };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *off = open_ragged(runtime, ATTNRUN_RAGGED_OFF, LOW),
                  *on = open_ragged(runtime, ATTNRUN_RAGGED_ON, LOW);
    attnrun_context *without = make_context(off), *with = make_context(on);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const int64_t n = rows[k].batch * TOKENS * WIDTH;
        make_batch(&b, rows[k].batch, TOKENS, rows[k].lengths);
        run_batch(without, &b, true, plain); /* the option says nothing of such a model */
        run_batch(with, &b, false, packed);
        run_batch(with, &b, true, all);
        for (int64_t i = 0; i < n; i++) {
            const double is[] = { (double)packed[i], (double)all[i] };
            const double exact = (double)plain[i],
                         expected = b.mask[i / WIDTH] ? exact : 0;
            if (!(fabs(is[0] - expected) <= 1e-5) || !(fabs(is[1] - exact) <= 1e-5))
                fail_msg(
                    "element %lld: %.9g, of all tokens %.9g, without the option %.9g",
                    (long long)i, is[0], is[1], exact);
        }
        run_batch(with, &b, false, all);
        assert_memory_equal(all, packed, (size_t)n * sizeof *all);
    }
    attnrun_context_destroy(without);
    attnrun_context_destroy(with);
    attnrun_model_release(off);
    attnrun_model_release(on);
    attnrun_runtime_destroy(runtime);
}

/* After attnrun_reserve(), with one plan, batches of any lengths ask the allocator for nothing. */
static void test_runs_of_any_lengths_take_nothing(void **state)
{
    (void)state;
    static struct batch b;
    float y[N];
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attnrun_model *model = open_ragged(runtime, ATTNRUN_RAGGED_ON, LOW);
    attnrun_context *context = make_context(model);
    OK(attnrun_set_max_plans(context, 1));
    make_batch(&b, BATCH, TOKENS, (const int64_t[]){ 0, 0, 0 });
    OK(attnrun_reserve(context, b.inputs));
    const int64_t calls = atomic_load(&memory.calls);
    for (int64_t n = 0; n <= TOKENS; n++)
        for (int64_t tokens = n > 1 ? n : 1; tokens <= TOKENS; tokens += 7) {
            make_batch(&b, BATCH, tokens, (const int64_t[]){ n, 1, tokens });
            run_batch(context, &b, n % 5 == 4, y);
            if (atomic_load(&memory.calls) != calls)
                fail_msg("%lld of %lld tokens: %lld calls of the allocator", (long long)n,
                         (long long)tokens,
                         (long long)(atomic_load(&memory.calls) - calls));
        }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* A mask that only lowers the scores of hidden tokens leaves them a weight, which a run on the
 * tokens of the batch does not compute: it is refused. */
static void test_tokens_that_are_not_hidden(void **state)
{
    (void)state;
    static struct batch b;
    static const float lows[] = { -100, -4000 };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    for (size_t k = 0; k < sizeof lows / sizeof *lows; k++) {
        attnrun_model *model = open_ragged(runtime, ATTNRUN_RAGGED_ON, lows[k]);
        attnrun_context *context = make_context(model);
        make_batch(&b, BATCH, TOKENS, (const int64_t[]){ TOKENS, 5, 1 });
        for (int i = 0; i < 2; i++)
            OK(attnrun_set_input(context, i, &b.inputs[i]));
        assert_int_equal(attnrun_run(context, NULL), ATTNRUN_E_RANGE);
        assert_non_null(strstr(attnrun_last_error()->message, "leaves out"));
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_on_all_tokens),
        cmocka_unit_test(test_runs_of_any_lengths_take_nothing),
        cmocka_unit_test(test_tokens_that_are_not_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

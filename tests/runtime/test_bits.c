/* test_bits.c - the same bits from 1, 2, 3 and 8 threads on every instruction set, for
 * operators large enough to be shared. */
#include "../../runtime/cpu.h"
#include "harness.h"

struct op_case {
    const char *op, *inputs, *x_dims, *w_dims, *attrs; /* w: a constant, or NULL */
};

static const struct op_case cases[] = {
    { "MatMul", "x,w", "150,300", "300,170", "" },
    { "MatMul", "x,w", "3,40,1000", "1000,16", "" },
    { "MatMul", "x,w", "1,4096", "4096,64", "" },
    { "MatMul", "x,x", "4,90,90", NULL, "" },
    { "Gemm", "x,w,b", "70,500", "64,500", "transB=1 alpha=0.3 beta=0.7" },
    { "Softmax", "x", "300,257", NULL, "axis=-1" },
    { "Softmax", "x", "4000,16", NULL, "axis=0" },
    { "LogSoftmax", "x", "40,3000", NULL, "axis=-1" },
    { "LayerNormalization", "x,w", "500,256", "256", "axis=-1" },
    { "RMSNormalization", "x,w", "500,256", "256", "axis=-1" },
    { "GroupNormalization", "x,four,four", "2,4,100,100", NULL, "num_groups=2" },
    { "InstanceNormalization", "x,four,four", "2,4,64,64", NULL, "" },
    { "BatchNormalization", "x,four,four,four,var", "4,4,64,64", NULL, "" },
    { "ReduceSum", "x", "300000", NULL, "keepdims=1" },
    { "ReduceSum", "x", "30,100,100", NULL, "keepdims=0" },
    { "ReduceMean", "x", "100000,3", NULL, "keepdims=1" },
    { "ReduceL2", "x", "64,5000", NULL, "keepdims=1" },
    { "ReduceLogSumExp", "x", "64,5000", NULL, "keepdims=1" },
    { "ReduceMax", "x", "100000", NULL, "keepdims=1" },
    { "ArgMax", "x", "300,1000", NULL, "axis=0" },
    { "CumSum", "x,zero", "70000", NULL, "" },
    { "CumSum", "x,zero", "700,300", NULL, "" },
    { "TopK", "x,ten", "100,3000", NULL, "axis=1" },
    { "Conv", "x,w", "2,16,40,40", "24,16,3,3", "pads=1,1,1,1" },
    { "Conv", "x,w", "1,3,64,64", "16,3,7,7", "strides=2,2" },
    { "Conv", "x,w", "1,32,50,50", "32,1,3,3", "group=32" },
    { "Conv", "x,w", "1,64,30,30", "64,64,1,1", "" },
    { "Conv", "x,w", "1,16,4000", "16,16,5", "" },
    { "ConvTranspose", "x,w", "1,16,30,30", "16,12,3,3", "strides=2,2" },
    { "MaxPool", "x", "1,8,200,200", NULL, "kernel_shape=3,3 strides=2,2" },
    { "AveragePool", "x", "1,8,200,200", NULL, "kernel_shape=3,3" },
    { "GlobalAveragePool", "x", "1,8,200,200", NULL, "" },
    { "Attention", "x,x,x", "1,4,300,64", NULL, "" },
    { "Attention", "x,x,x", "2,3,129,40", NULL, "is_causal=1" },
    { "GRU", "x,wx,wh", "30,8,32", NULL, "hidden_size=32" },
    { "LSTM", "x,vx,vh", "30,8,32", NULL, "hidden_size=32" },
    { "Erf", "x", "200000", NULL, "" },
    { "Gelu", "x", "200000", NULL, "" },
    { "Exp", "x", "500,500", NULL, "" },
    { "Add", "x,four", "100000,4", NULL, "" },
    { "Transpose", "x", "300,400", NULL, "" },
    { "Transpose", "x", "30,40,50", NULL, "perm=2,0,1" },
    { "Concat", "x,x", "300,400", NULL, "axis=1" },
    { "DynamicQuantizeLinear", "x", "300,400", NULL, "" },
};

static int64_t count_of(const char *dims)
{
    attnrun_tensor t = tensor_of(ATTNRUN_F32, dims, NULL);
    return attnrun_tensor_count(&t);
}

static struct onnx_writer *write_case(const struct op_case *c, const float *data)
{
    static const float positive[4] = { 1, 2, 0.5f, 3 };
    struct onnx_writer *w = onnx_begin(23);
    onnx_input(w, "x", ATTNRUN_F32, c->x_dims);
    if (c->w_dims != NULL)
        onnx_constant(w, "w", ATTNRUN_F32, c->w_dims, data);
    onnx_int(w, "zero", 0);
    onnx_ints(w, "ten", 1, (int64_t[]){ 10 });
    onnx_constant(w, "four", ATTNRUN_F32, "4", data);
    onnx_constant(w, "var", ATTNRUN_F32, "4", positive);
    onnx_constant(w, "b", ATTNRUN_F32, "64", data);
    onnx_constant(w, "wx", ATTNRUN_F32, "1,96,32", data);
    onnx_constant(w, "wh", ATTNRUN_F32, "1,96,32", data);
    onnx_constant(w, "vx", ATTNRUN_F32, "1,128,32", data);
    onnx_constant(w, "vh", ATTNRUN_F32, "1,128,32", data);
    onnx_node(w, c->op, c->inputs, "y");
    onnx_attrs(w, c->attrs);
    onnx_output(w, "y", 0, NULL);
    return w;
}

static void run_case(const struct op_case *c, int32_t threads, const char *isa, float *x,
                     void **y, int64_t *bytes)
{
    struct test_memory memory;
    attnrun_runtime *runtime;
    test_memory_init(&memory);
    attnrun_runtime_options options = { .struct_size = sizeof options,
                                        .threads = threads,
                                        .isa = isa,
                                        .allocator = &memory.allocator };
    OK(attnrun_runtime_create(&options, &runtime));
    attnrun_model *model = open_model(runtime, write_case(c, x), 0);
    attnrun_context *context = make_context(model);
    set_input(context, 0, ATTNRUN_F32, c->x_dims, x);
    OK(attnrun_run(context, NULL));
    attnrun_tensor out = get_output(context, 0);
    *bytes = attnrun_tensor_bytes(&out);
    *y = malloc((size_t)*bytes);
    assert_non_null(*y);
    memcpy(*y, out.data, (size_t)*bytes);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

static void compare_threads(const struct op_case *c, const char *isa, float *x)
{
    static const int32_t counts[] = { 2, 3, 8 };
    int64_t bytes, other_bytes;
    void *y, *other;
    run_case(c, 1, isa, x, &y, &bytes);
    for (size_t k = 0; k < 3; k++) {
        run_case(c, counts[k], isa, x, &other, &other_bytes);
        if (bytes != other_bytes || memcmp(y, other, (size_t)bytes) != 0)
            fail_msg("%s of %s: other bits with %d threads (%s)", c->op, c->x_dims,
                     (int)counts[k], isa);
        free(other);
    }
    free(y);
}

static void test_bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct op_case *c = &cases[i];
        int64_t n = count_of(c->x_dims);
        if (c->w_dims != NULL && count_of(c->w_dims) > n)
            n = count_of(c->w_dims);
        float *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        for (int64_t k = 0; k < n; k++) /* sums of these round */
            x[k] = (float)random_below(&seed, 1 << 20) * 3e-6f - 1.5f;
        for (int isa = 0; isa < ATTN_ISA_COUNT; isa++)
            if (attn_cpu_has((enum attn_isa)isa))
                compare_threads(c, attn_isa_name((enum attn_isa)isa), x);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_rewrite.c - each rewrite pass applies where it must, keeps off where it must not,
 * and never changes what comes out. Graphs are written as text: "Op inputs outputs
 * attribute=value …; …". */
#include "harness.h"

#include <math.h>

struct rewrite_case {
    const char *pass;
    int applied;
    const char *text, *outputs;
};

static const struct rewrite_case cases[] = {
    /* -- identity -- */
    { "identity", 1, "Relu x a; Identity a b; Neg b y", "y" },
    { "identity", 1, "Relu x a; Cast a b to=1; Neg b y", "y" },
    { "identity", 0, "Relu x a; Cast a b to=11; Cast b y to=1", "y" },
    { "identity", 1, "Relu x a; Transpose a b perm=0,1; Neg b y", "y" },
    { "identity", 0, "Relu x a; Transpose a b perm=1,0; Neg b y", "y" },
    { "identity", 0, "Relu x a; Transpose a b; Neg b y", "y" },
    { "identity", 1, "Relu x a; Mul a,one b; Neg b y", "y" },
    { "identity", 1, "Relu x a; Div a,one b; Neg b y", "y" },
    { "identity", 0, "Exp x a; Div one,a b; Neg b y", "y" },
    { "identity", 0, "Relu x a; Mul a,wrong b; Neg b y", "y" },
    { "identity", 0, "Relu x a; Mul a,one111 b; Neg b y", "y" }, /* rank 2 becomes 3 */
    { "identity", 1, "Relu x a; Dropout a b; Neg b y", "y" },
    { "identity", 0, "Relu x a; Dropout a b,m; Neg b y", "y,m" },
    { "identity", 0, "Identity x y", "y" }, /* an input does not become an output */
    { "identity", 1, "Relu x a; Identity a y", "y" },
    { "identity", 0, "Relu x a; Identity a y", "y,a" },
    { "identity", 2, "Relu x a; Identity a b; Identity b y; Neg b z2", "y,z2" },
    /* -- conv_batch_norm -- */
    { "conv_batch_norm", 1,
      "Conv img,w4 c pads=1,1,1,1; BatchNormalization c,s4,b4,m4,v4 y", "y" },
    { "conv_batch_norm", 1,
      "Conv img,w4,b4 c; BatchNormalization c,s4,b4,m4,v4 y epsilon=0.01", "y" },
    { "conv_batch_norm", 1, "ConvTranspose img,w4 c; BatchNormalization c,s4,b4,m4,v4 y",
      "y" },
    { "conv_batch_norm", 0,
      "ConvTranspose img,w4g c group=2; BatchNormalization c,s4,b4,m4,v4 y", "y" },
    { "conv_batch_norm", 0, "Conv img,w4 c; BatchNormalization c,s4,b4,m4,v4 y; Neg c z2",
      "y,z2" },
    { "conv_batch_norm", 0, "Conv img,w4 c; BatchNormalization c,s4,b4,m4,v4 y", "y,c" },
    { "conv_batch_norm", 0,
      "Relu v4 r; Mul r,gain g; Conv img,w4 c; BatchNormalization c,s4,b4,m4,g y", "y" },
    /* -- layer_norm -- */
    { "layer_norm", 1,
      "ReduceMean x m axes=-1; Sub x,m d; Pow d,two p; ReduceMean p v axes=-1; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s n; Mul n,vec8 g; Add g,vec8b y",
      "y" },
    { "layer_norm", 1,
      "ReduceMean x m axes=1; Sub x,m d; Mul d,d p; ReduceMean p v axes=1; Add eps,v e; "
      "Sqrt e s; Div d,s n; Add n,vec8b y",
      "y" },
    { "layer_norm", 1, /* the normalized value is an output: scale and bias stay */
      "ReduceMean x m axes=-1; Sub x,m d; Pow d,two p; ReduceMean p v axes=-1; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s n; Mul n,vec8 g; Add g,vec8b y",
      "y,n" },
    { "layer_norm", 1,
      "ReduceMean x m axes=-1; Sub x,m d; Pow d,two p; ReduceMean p v axes=-1; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s n; Mul n,vec111 g; Add g,vec8b y",
      "y" }, /* the scale raises the rank: not taken in */
    { "layer_norm", 1,
      "ReduceMean x m axes=-1; Sub x,m d; Pow d,two p; ReduceMean p v axes=-1; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s n; Mul n,vec8 g; Add g,vec111 y",
      "y" },
    { "layer_norm", 0,
      "ReduceMean x m axes=-1; Sub x,m d; Pow d,two p; ReduceMean p v axes=-1; Add "
      "v,e111 e; "
      "Sqrt e s; Div d,s y",
      "y" },
    { "layer_norm", 0,
      "ReduceMean x m axes=0; Sub x,m d; Pow d,two p; ReduceMean p v axes=0; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s y",
      "y" },
    { "layer_norm", 0,
      "ReduceMean x m axes=-1; Sub x,m d; Pow d,three p; ReduceMean p v axes=-1; Abs v "
      "av; "
      "Add av,eps e; Sqrt e s; Div d,s y",
      "y" },
    { "layer_norm", 0,
      "ReduceMean z m axes=-1; Sub x,m d; Pow d,two p; ReduceMean p v axes=-1; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s y",
      "y" },
    { "layer_norm", 0,
      "ReduceMean x m axes=-1; Sub x,m d; Pow x,two p; ReduceMean p v axes=-1; Add v,eps "
      "e; "
      "Sqrt e s; Div d,s y",
      "y" },
    { "layer_norm", 1,
      "Pow x,two p; ReduceMean p v axes=-1; Add v,eps e; Sqrt e s; Reciprocal s i; Mul "
      "x,i n; "
      "Mul n,vec8 y",
      "y" },
    { "layer_norm", 1,
      "Pow x,two p; ReduceMean p v axes=-1; Add v,eps e; Sqrt e s; Div one,s i; Mul i,x "
      "y",
      "y" },
    { "layer_norm", 0,
      "Pow x,two p; ReduceMean p v axes=-1; Add v,eps e; Sqrt e s; Div wrong,s i; Mul "
      "i,x y",
      "y" },
    { "layer_norm", 0,
      "Pow x,two p; ReduceMean p v axes=-1; Add v,eps e; Sqrt e s; Div one111,s i; Mul "
      "i,x y",
      "y" },
    /* -- gelu -- */
    { "gelu", 1, "Div x,root2 a; Erf a b; Add b,one c; Mul x,c d; Mul d,half y", "y" },
    { "gelu", 1, "Mul x,iroot2 a; Erf a b; Add one,b c; Mul x,half h; Mul h,c y", "y" },
    { "gelu", 1, "Div x,root2 a; Erf a b; Add b,one c; Mul half,c d; Mul x,d y", "y" },
    { "gelu", 1,
      "Pow x,three p; Mul p,c0 q; Add x,q r; Mul r,k0 s; Tanh s t; Add t,one u; Mul "
      "x,half h; "
      "Mul h,u y",
      "y" },
    { "gelu", 1, "Sigmoid x s; Mul x,s y", "y" },
    { "gelu", 0, "Sigmoid x s; Mul z,s y", "y" },
    { "gelu", 0, "Sigmoid x s; Mul x,s y", "y,s" },
    { "gelu", 0, "Div x,wrong a; Erf a b; Add b,one c; Mul x,c d; Mul d,half y", "y" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,wrong c; Mul x,c d; Mul d,half y", "y" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,one c; Mul x,c d; Mul d,wrong y", "y" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,one c; Mul z,c d; Mul d,half y", "y" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,one c; Mul x,c d; Mul d,half y", "y,b" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,one c; Mul x,c d; Mul d,half y; Neg d z2",
      "y,z2" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,one c; Mul x,c d; Mul d,half111 y", "y" },
    { "gelu", 0, "Div x,root2 a; Erf a b; Add b,one111 c; Mul x,c d; Mul d,half y", "y" },
    /* -- common_subexpression -- */
    { "common_subexpression", 1, "Exp x a; Exp x b; Add a,b y", "y" },
    { "common_subexpression", 2, "Exp x a; Neg a c; Exp x b; Neg b d; Add c,d y", "y" },
    { "common_subexpression", 0, "Exp x a; Neg x b; Add a,b y", "y" },
    { "common_subexpression", 0, "Exp x y; Exp x z2", "y,z2" }, /* outputs keep theirs */
    { "common_subexpression", 0,
      "Transpose x a perm=1,0; Transpose x b perm=0,1; "
      "MatMul b,a y",
      "y" },
    { "common_subexpression", 0, "Sub x,z a; Sub z,x b; Add a,b y", "y" },
    /* -- matmul_epilogue -- */
    { "matmul_epilogue", 1, "MatMul x,w8 a; Add a,vec8 b; Relu b y", "y" },
    { "matmul_epilogue", 1, "MatMul x,w8 a; Add vec8,a b; Add b,z c; Tanh c y", "y" },
    { "matmul_epilogue", 1, "MatMul x,w8 a; Sigmoid a y", "y" },
    { "matmul_epilogue", 1, "Gemm x,w8,vec8 a transB=1; Relu a y", "y" },
    { "matmul_epilogue", 1, "MatMul x,w8 a; Add a,z y", "y" },
    { "matmul_epilogue", 0, "MatMul x,w8 y", "y" },
    { "matmul_epilogue", 0, "MatMul w8,xt a; Relu a y", "y" },
    { "matmul_epilogue", 0, "Gemm x,w8,vec8 a alpha=0.5; Relu a y", "y" },
    { "matmul_epilogue", 0, "Gemm xt,w8 a transA=1; Relu a y", "y" },
    { "matmul_epilogue", 0, "MatMul x,w8 a; Relu a y", "y,a" },
    { "matmul_epilogue", 0, "MatMul x,w8 a; Relu a y; Neg a z2", "y,z2" },
    { "matmul_epilogue", 0, "MatMul x,w8 a; Add a,vec111 y", "y" },
    { "matmul_epilogue", 0, "MatMul x,w8 a; Add a,a y", "y" },
    { "matmul_epilogue", 0, "MatMul x,w8 a; Add a,row y",
      "y" }, /* f32[1,8], no constant */
    { "matmul_epilogue", 0, "MatMul x,w8 a; LeakyRelu a y", "y" },
    { "matmul_epilogue", 1, "Gemm x,w8,vec1 a; Relu a y", "y" }, /* bias of one number */
    /* -- conv_epilogue -- */
    { "conv_epilogue", 1, "Conv img,w4 a; Relu a y", "y" },
    { "conv_epilogue", 1, "Conv img,w4,b4 a pads=1,1,1,1; Add a,img2 b; Relu b y", "y" },
    { "conv_epilogue", 1, "Conv img,w4 a; LeakyRelu a y alpha=0.3", "y" },
    { "conv_epilogue", 1, "Conv img,w4 a; Clip a,zero,one y", "y" },
    { "conv_epilogue", 1, "Conv img,w4 a; HardSigmoid a y", "y" },
    { "conv_epilogue", 1, "Conv img,w4 a pads=1,1,1,1; Add img,a y", "y" },
    { "conv_epilogue", 0, "Conv img,w4 y", "y" },
    { "conv_epilogue", 0, "Conv img,w4 a; Relu a y", "y,a" },
    { "conv_epilogue", 0, "Conv img,w4 a; Relu a y; Neg a z2", "y,z2" },
    { "conv_epilogue", 0, "Conv img,w4 a; Elu a y", "y" },
    { "conv_epilogue", 0, "Conv img,w4 a; Add a,s4111 y", "y" },
    { "conv_epilogue", 0, "Conv img,w4 a; Add a,a y", "y" },
    /* -- skip_layer_norm -- */
    { "skip_layer_norm", 1, "Add x,z s; LayerNormalization s,vec8,vec8b y", "y" },
    { "skip_layer_norm", 1, "Add x,z s; LayerNormalization s,vec8 y epsilon=0.1", "y" },
    { "skip_layer_norm", 1,
      "Add x,z s; LayerNormalization s,vec8 a; Add a,x t; LayerNormalization t,vec8b y; "
      "Neg t z2",
      "y,z2" },
    { "skip_layer_norm", 1, "Add x,x s; LayerNormalization s,vec8,vec8b y axis=1", "y" },
    { "skip_layer_norm", 1,
      "Add x,z s; Pow s,two p; ReduceMean p v axes=-1; Add v,eps e; Sqrt e q; "
      "Reciprocal q i; Mul s,i n; Mul n,vec8 y",
      "y" },
    { "skip_layer_norm", 0,
      "Add x,z s; LayerNormalization s,vec8,vec8b a; Add a,s b; Softmax b y", "y" },
    { "skip_layer_norm", 0, "Add x,z s; LayerNormalization s,vec8,vec8b y", "y,s" },
    { "skip_layer_norm", 0, "Add x,row s; LayerNormalization s,vec8,vec8b y", "y" },
    { "skip_layer_norm", 0, "Add x,xm s; LayerNormalization s,vec8,vec8b y", "y" },
    { "skip_layer_norm", 0, "Sub x,z s; LayerNormalization s,vec8,vec8b y", "y" },
    { "skip_layer_norm", 0, "Add x,z s; LayerNormalization s,vec1,vec8b y", "y" },
    { "skip_layer_norm", 0, "Add img,img2 s; LayerNormalization s,one y axis=2", "y" },
    { "skip_layer_norm", 0, "Add x,z s; LayerNormalization s,vec8,vec8b y,m2", "y,m2" },
    /* -- elementwise_chain -- */
    { "elementwise_chain", 1, "Exp x a; Neg a y", "y" },
    { "elementwise_chain", 1, "Add x,z a; Mul a,vec8 b; Tanh b y", "y" },
    { "elementwise_chain", 1, "Exp x a; Mul a,a b; Sub b,a y", "y" },
    { "elementwise_chain", 1, "Exp x a; Max a,z,row y", "y" },
    { "elementwise_chain", 1, "Clip x,zero,one a; Pow a,three b; Add b,half y", "y" },
    { "elementwise_chain", 1, "Sub img,s4111 a; Mul a,s4111 y", "y" },
    { "elementwise_chain", 1, "Greater x,z c; Where c,x,z a; Neg a y", "y" },
    { "elementwise_chain", 1, "Exp xm a; Add a,x b; Neg b y", "y" }, /* without the Exp */
    { "elementwise_chain", 2, "Exp x a; Neg a b; Softmax b c; Exp c d; Neg d y", "y" },
    { "elementwise_chain", 0, "Exp x y", "y" },
    { "elementwise_chain", 0, "Exp x a; Neg a y; Softmax a z2", "y,z2" },
    { "elementwise_chain", 0, "Exp x a; Neg a y", "y,a" },
    { "elementwise_chain", 0, "Exp row a; Add a,x y", "y" },
    { "elementwise_chain", 0, "Exp xm a; Add a,x y", "y" },     /* N and M may differ */
    { "elementwise_chain", 0, "Exp x a; Add a,one111 y", "y" }, /* raises the rank */
    { "elementwise_chain", 0, "Cast x a to=11; Exp a b; Neg b c; Cast c y to=1", "y" },
    { "elementwise_chain", 0, "Exp x a; Pow a,wrong y", "y" },
#define CASE(pass, applied, text, outputs) { pass, applied, text, outputs },
#include "attention_cases.def"
#include "map_cases.def"
};
enum { CASES = sizeof cases / sizeof *cases };

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
        int64_t x[5];
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
                   { "p_t", 4, { -1, 2, 7, 6 } } };
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
                    { "ws", "1,2,3,3" },  { "img1", "1,4,9,9" }, { "sel", "2,4,2" },
                    { "sw1", "1,2" } };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        fill_floats(&seed, data, 4 * 81);
        onnx_constant(w, tensors[i].name, ATTNRUN_F32, tensors[i].dims, data);
    }
    write_shapes(w);
    onnx_constant(w, "v4", ATTNRUN_F32, "4", (float[4]){ 0.5f, 1, 2, 0.25f });
    onnx_float(w, "zero", 0);
    onnx_float(w, "one", 1);
    onnx_float(w, "half", 0.5f);
    onnx_float(w, "two", 2);
    onnx_float(w, "three", 3);
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
    struct onnx_writer *w = onnx_begin(17);
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
    return is_close(a, b, strcmp(c->pass, "map_tail") == 0);
}

static void test_rewrite_applies_where_it_must(void **state)
{
    (void)state;
    static struct result fused, plain;
    int wrong = 0;
    for (int i = 0; i < CASES; i++) {
        const struct rewrite_case *c = &cases[i];
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
        if (cases[i].applied == 0)
            continue;
        snprintf(list, sizeof list, ",%s,,%s,", cases[i].pass, cases[i].pass);
        assert_int_equal(run_case(&cases[i], 0, list, &without), 0);
        assert_int_equal(run_case(&cases[i], 0, ",", &with), cases[i].applied);
        assert_true(same(&cases[i], &with, &without));
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
        assert_int_equal(count_pass(model, "constant_if"), fused ? 2 : 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewrite_inlines_a_constant_if),
        cmocka_unit_test(test_rewrite_applies_where_it_must),
        cmocka_unit_test(test_rewrite_passes_can_be_switched_off),
        cmocka_unit_test(test_rewrite_takes_in_a_large_transpose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

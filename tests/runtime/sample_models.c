/* sample_models.c - see sample_models.h. */
#include "sample_models.h"

enum { HEADS = 2 };

/* '#' in names becomes the number of the layer. */
static void expand(const char *names, int layer, char *text, size_t room)
{
    size_t n = 0;
    for (; *names != 0 && n + 4 < room; names++)
        if (*names == '#')
            n += (size_t)snprintf(text + n, room - n, "%d", layer);
        else
            text[n++] = *names;
    text[n] = 0;
}

static void node(struct onnx_writer *w, int layer, const char *op, const char *inputs,
                 const char *outputs)
{
    char in[200], out[200];
    expand(inputs, layer, in, sizeof in);
    expand(outputs, layer, out, sizeof out);
    onnx_node(w, op, in, out);
}

static void weights(struct onnx_writer *w, int layer, const char *name, const char *dims,
                    uint64_t *seed)
{
    static float data[ENCODER_WORDS * ENCODER_LONGEST];
    char text[64];
    fill_floats(seed, data, ENCODER_WORDS * ENCODER_LONGEST);
    expand(name, layer, text, sizeof text);
    onnx_constant(w, text, ATTNRUN_F32, dims, data);
}

static void ints_attr(struct onnx_writer *w, const char *name, int n, int64_t a,
                      int64_t b, int64_t c, int64_t d)
{
    onnx_attr_ints(w, name, n, (int64_t[]){ a, b, c, d });
}

/* ---- the encoder ---- */

static void write_embedding(struct onnx_writer *w, uint64_t *seed)
{
    weights(w, 0, "words", "50,16", seed);
    weights(w, 0, "places", "64,16", seed);
    onnx_int(w, "i0", 0);
    onnx_int(w, "i1", 1);
    onnx_ints(w, "b_at", 1, (int64_t[]){ 0 });
    onnx_ints(w, "s_at", 1, (int64_t[]){ 1 });
    onnx_ints(w, "heads_head", 2, (int64_t[]){ HEADS, ENCODER_WIDTH / HEADS });
    onnx_ints(w, "width", 1, (int64_t[]){ ENCODER_WIDTH });
    onnx_ints(w, "axes12", 2, (int64_t[]){ 1, 2 });
    onnx_float(w, "one", 1.0f);
    onnx_float(w, "half", 0.5f);
    onnx_float(w, "two", 2.0f);
    onnx_float(w, "root2", 1.41421354f);
    onnx_float(w, "eps", 1e-5f);
    onnx_float(w, "scale", 0.35355338f);
    onnx_float(w, "far", -10000.0f);
    node(w, 0, "Shape", "ids", "shape");
    node(w, 0, "Gather", "shape,i1", "s");
    node(w, 0, "Gather", "shape,b_at", "bv");
    node(w, 0, "Gather", "shape,s_at", "sv");
    node(w, 0, "Concat", "bv,sv,heads_head", "split_shape");
    onnx_attr_int(w, "axis", 0);
    node(w, 0, "Concat", "bv,sv,width", "join_shape");
    onnx_attr_int(w, "axis", 0);
    node(w, 0, "Range", "i0,s,i1", "range");
    node(w, 0, "Gather", "words,ids", "word");
    node(w, 0, "Gather", "places,range", "place");
    node(w, 0, "Add", "word,place", "h0");
    node(w, 0, "Cast", "mask", "maskf");
    onnx_attr_int(w, "to", ATTNRUN_F32);
    node(w, 0, "Sub", "one,maskf", "off");
    node(w, 0, "Mul", "off,far", "bias2");
    node(w, 0, "Unsqueeze", "bias2,axes12", "bias4");
}

static void write_heads(struct onnx_writer *w, int l, const char *from, const char *to,
                        int64_t third, int64_t fourth)
{
    char made[64];
    snprintf(made, sizeof made, "%s_split", to);
    node(w, l, "Reshape", from, made);
    node(w, l, "Transpose", made, to);
    ints_attr(w, "perm", 4, 0, 2, third, fourth);
}

static void write_attention(struct onnx_writer *w, int l, uint64_t *seed)
{
    static const char *const letters[] = { "q", "k", "v" };
    for (int i = 0; i < 3; i++) {
        char names[4][64];
        snprintf(names[0], sizeof names[0], "w%s#", letters[i]);
        snprintf(names[1], sizeof names[1], "b%s#", letters[i]);
        snprintf(names[2], sizeof names[2], "h#,w%s#", letters[i]);
        snprintf(names[3], sizeof names[3], "m%s#", letters[i]);
        weights(w, l, names[0], "16,16", seed);
        weights(w, l, names[1], "16", seed);
        node(w, l, "MatMul", names[2], names[3]);
        snprintf(names[2], sizeof names[2], "b%s#,m%s#", letters[i], letters[i]);
        snprintf(names[3], sizeof names[3], "%sx#", letters[i]);
        node(w, l, "Add", names[2], names[3]);
    }
    write_heads(w, l, "qx#,split_shape", "q#", 1, 3);
    write_heads(w, l, "kx#,split_shape", "k#", 3, 1);
    write_heads(w, l, "vx#,split_shape", "v#", 1, 3);
    node(w, l, "MatMul", "q#,k#", "s#");
    node(w, l, "Mul", "s#,scale", "ss#");
    node(w, l, "Add", "ss#,bias4", "sm#");
    node(w, l, "Softmax", "sm#", "p#");
    onnx_attr_int(w, "axis", -1);
    node(w, l, "MatMul", "p#,v#", "o#");
    node(w, l, "Transpose", "o#", "ot#");
    ints_attr(w, "perm", 4, 0, 2, 1, 3);
    node(w, l, "Reshape", "ot#,join_shape", "oj#");
    weights(w, l, "wo#", "16,16", seed);
    node(w, l, "MatMul", "oj#,wo#", "om#");
    node(w, l, "Add", "om#,h#", "r#");
}

/* "r" -> "rn", by parts. */
static void write_norm(struct onnx_writer *w, int l, const char *x, uint64_t *seed)
{
    char names[9][64];
    for (int i = 0; i < 9; i++)
        snprintf(names[i], sizeof names[i], "%s_%d#", x, i);
    char text[160], in[64];
    snprintf(in, sizeof in, "%s#", x);
    node(w, l, "ReduceMean", in, names[0]);
    ints_attr(w, "axes", 1, -1, 0, 0, 0);
    snprintf(text, sizeof text, "%s,%s", in, names[0]);
    node(w, l, "Sub", text, names[1]);
    snprintf(text, sizeof text, "%s,two", names[1]);
    node(w, l, "Pow", text, names[2]);
    node(w, l, "ReduceMean", names[2], names[3]);
    ints_attr(w, "axes", 1, -1, 0, 0, 0);
    snprintf(text, sizeof text, "%s,eps", names[3]);
    node(w, l, "Add", text, names[4]);
    node(w, l, "Sqrt", names[4], names[5]);
    snprintf(text, sizeof text, "%s,%s", names[1], names[5]);
    node(w, l, "Div", text, names[6]);
    weights(w, l, names[7], "16", seed);
    weights(w, l, names[8], "16", seed);
    snprintf(text, sizeof text, "%s,%s", names[6], names[7]);
    snprintf(in, sizeof in, "%s_y#", x);
    node(w, l, "Mul", text, in);
    snprintf(text, sizeof text, "%s,%s", in, names[8]);
    snprintf(in, sizeof in, "%sn#", x);
    node(w, l, "Add", text, in);
}

static void write_mlp(struct onnx_writer *w, int l, uint64_t *seed)
{
    weights(w, l, "wu#", "16,32", seed);
    weights(w, l, "bu#", "32", seed);
    weights(w, l, "wd#", "32,16", seed);
    node(w, l, "MatMul", "rn#,wu#", "um#");
    node(w, l, "Add", "um#,bu#", "u#");
    node(w, l, "Div", "u#,root2", "g0#");
    node(w, l, "Erf", "g0#", "g1#");
    node(w, l, "Add", "g1#,one", "g2#");
    node(w, l, "Mul", "u#,g2#", "g3#");
    node(w, l, "Mul", "g3#,half", "g#");
    node(w, l, "MatMul", "g#,wd#", "d#");
    node(w, l, "Add", "d#,rn#", "t#");
    write_norm(w, l, "t", seed);
    char next[16];
    snprintf(next, sizeof next, "h%d", l + 1);
    node(w, l, "Identity", "tn#", next);
}

struct onnx_writer *write_encoder(int layers)
{
    uint64_t seed = 12345;
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "ids", ATTNRUN_I64, "B,S");
    onnx_input(w, "mask", ATTNRUN_I64, "B,S");
    write_embedding(w, &seed);
    for (int l = 0; l < layers; l++) {
        write_attention(w, l, &seed);
        write_norm(w, l, "r", &seed);
        write_mlp(w, l, &seed);
    }
    char last[16];
    snprintf(last, sizeof last, "h%d", layers);
    node(w, 0, "Identity", last, "hidden");
    node(w, 0, "ReduceMean", last, "pooled");
    ints_attr(w, "axes", 1, 1, 0, 0, 0);
    onnx_attr_int(w, "keepdims", 0);
    onnx_output(w, "hidden", ATTNRUN_F32, "B,S,16");
    onnx_output(w, "pooled", ATTNRUN_F32, "B,16");
    return w;
}

void set_encoder_inputs(attnrun_context *context, struct encoder_inputs *inputs,
                        uint64_t *seed, int64_t b, int64_t s)
{
    char dims[32];
    inputs->b = b;
    inputs->s = s;
    for (int64_t i = 0; i < b * s; i++) {
        inputs->ids[i] = random_below(seed, ENCODER_WORDS);
        inputs->mask[i] = i % s == 0 || random_below(seed, 4) != 0;
    }
    snprintf(dims, sizeof dims, "%d,%d", (int)b, (int)s);
    set_input(context, 0, ATTNRUN_I64, dims, inputs->ids);
    set_input(context, 1, ATTNRUN_I64, dims, inputs->mask);
}

/* ---- others ---- */

struct onnx_writer *write_convnet(void)
{
    uint64_t seed = 777;
    static const float positive[8] = { 1, 0.5f, 2, 0.25f, 1, 1, 3, 0.5f };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N,3,H,W");
    weights(w, 0, "w0", "8,3,3,3", &seed);
    weights(w, 0, "scale", "8", &seed);
    weights(w, 0, "bias", "8", &seed);
    weights(w, 0, "mean", "8", &seed);
    onnx_constant(w, "var", ATTNRUN_F32, "8", positive);
    weights(w, 0, "w1", "8,8,3,3", &seed);
    weights(w, 0, "b1", "8", &seed);
    weights(w, 0, "wf", "10,8", &seed);
    weights(w, 0, "bf", "10", &seed);
    onnx_node(w, "Conv", "x,w0", "c0");
    ints_attr(w, "pads", 4, 1, 1, 1, 1);
    onnx_node(w, "BatchNormalization", "c0,scale,bias,mean,var", "n0");
    onnx_node(w, "Relu", "n0", "r0");
    onnx_node(w, "MaxPool", "r0", "p0");
    ints_attr(w, "kernel_shape", 2, 2, 2, 0, 0);
    ints_attr(w, "strides", 2, 2, 2, 0, 0);
    onnx_node(w, "Conv", "p0,w1,b1", "c1");
    ints_attr(w, "pads", 4, 1, 1, 1, 1);
    onnx_node(w, "Add", "c1,p0", "a1");
    onnx_node(w, "Relu", "a1", "r1");
    onnx_node(w, "GlobalAveragePool", "r1", "g");
    onnx_node(w, "Flatten", "g", "f");
    onnx_node(w, "Gemm", "f,wf,bf", "y");
    onnx_attr_int(w, "transB", 1);
    onnx_output(w, "y", ATTNRUN_F32, "N,10");
    return w;
}

struct onnx_writer *write_dynamic(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_ints(w, "minus1", 1, (int64_t[]){ -1 });
    onnx_float(w, "two", 2.0f);
    onnx_node(w, "NonZero", "x", "at2");
    onnx_node(w, "Reshape", "at2,minus1", "at");
    onnx_node(w, "Gather", "x,at", "found");
    onnx_node(w, "Mul", "found,two", "twice");
    onnx_node(w, "ReduceSum", "found", "sum");
    onnx_attr_int(w, "keepdims", 0);
    onnx_output(w, "at", ATTNRUN_I64, "M");
    onnx_output(w, "twice", ATTNRUN_F32, "M");
    onnx_output(w, "sum", ATTNRUN_F32, "");
    return w;
}

/* Each trip: v = i odd ? v + x : v * 2, where x is of the graph around. */
struct onnx_writer *write_loop(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "n", ATTNRUN_I64, "");
    onnx_input(w, "x", ATTNRUN_F32, "K");
    onnx_node(w, "Loop", "n,,x", "y,all");
    onnx_graph(w, "body");
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_input(w, "go", ATTNRUN_BOOL, "");
    onnx_input(w, "v", ATTNRUN_F32, "K");
    onnx_int(w, "two", 2);
    onnx_node(w, "Identity", "go", "go_on");
    onnx_node(w, "Mod", "i,two", "odd");
    onnx_node(w, "Cast", "odd", "is_odd");
    onnx_attr_int(w, "to", ATTNRUN_BOOL);
    onnx_node(w, "If", "is_odd", "v1");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Add", "v,x", "sum");
    onnx_output(w, "sum", ATTNRUN_F32, "K");
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_float(w, "twof", 2.0f);
    onnx_node(w, "Mul", "v,twof", "double");
    onnx_output(w, "double", ATTNRUN_F32, "K");
    onnx_graph_end(w);
    onnx_node(w, "Identity", "v1", "v2");
    onnx_output(w, "go_on", ATTNRUN_BOOL, "");
    onnx_output(w, "v1", ATTNRUN_F32, "K");
    onnx_output(w, "v2", ATTNRUN_F32, "K");
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F32, "K");
    onnx_output(w, "all", ATTNRUN_F32, "T,K");
    return w;
}

static void write_row_sums(struct onnx_writer *w)
{
    onnx_float(w, "start", 0);
    onnx_node(w, "Scan", "start,x", "total,sums");
    onnx_attr_int(w, "num_scan_inputs", 1);
    onnx_graph(w, "body");
    onnx_input(w, "before", ATTNRUN_F32, "");
    onnx_input(w, "row", ATTNRUN_F32, "4");
    onnx_node(w, "ReduceSum", "row", "of_row");
    onnx_attr_int(w, "keepdims", 0);
    onnx_node(w, "Add", "before,of_row", "after");
    onnx_output(w, "after", ATTNRUN_F32, "");
    onnx_output(w, "of_row", ATTNRUN_F32, "");
    onnx_graph_end(w);
}

struct onnx_writer *write_kinds(void)
{
    static const char *const words[] = { "a", "bc", "" };
    struct onnx_writer *w = onnx_begin(21);
    onnx_input(w, "x", ATTNRUN_F32, "N,4");
    onnx_input_of(w, "list", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_input_of(w, "maybe", ATTNRUN_OPTIONAL, ATTNRUN_F32);
    onnx_input(w, "words", ATTNRUN_STRING, "3");
    onnx_int(w, "last", -1);
    onnx_node(w, "SequenceInsert", "list,x", "longer");
    onnx_node(w, "ConcatFromSequence", "longer", "all");
    onnx_attr_int(w, "axis", 0);
    onnx_node(w, "SequenceLength", "longer", "count");
    onnx_node(w, "OptionalHasElement", "maybe", "has");
    onnx_node(w, "If", "has", "some");
    onnx_graph(w, "then_branch");
    onnx_node(w, "OptionalGetElement", "maybe", "got");
    onnx_output(w, "got", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Identity", "x", "other");
    onnx_output(w, "other", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_node(w, "Constant", "", "known");
    onnx_attr_strings(w, "value_strings", 3, words);
    onnx_node(w, "Equal", "words,known", "same");
    onnx_node(w, "SplitToSequence", "x", "parts");
    onnx_attr_int(w, "axis", 1);
    onnx_node(w, "SequenceAt", "parts,last", "part");
    write_row_sums(w);
    onnx_output(w, "all", ATTNRUN_F32, NULL);
    onnx_output(w, "count", ATTNRUN_I64, "");
    onnx_output(w, "some", ATTNRUN_F32, NULL);
    onnx_output(w, "same", ATTNRUN_BOOL, "3");
    onnx_output(w, "part", ATTNRUN_F32, NULL);
    onnx_output(w, "sums", ATTNRUN_F32, NULL);
    return w;
}

struct onnx_writer *write_formulas(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "2,8,3");
    onnx_input(w, "d", ATTNRUN_F64, "2,8");
    onnx_constant(w, "class", ATTNRUN_I64, "2,3", (int64_t[6]){ 0, 7, 3, 3, 1, 2 });
    onnx_node(w, "LRN", "x", "l");
    onnx_attr_int(w, "size", 3);
    onnx_node(w, "MeanVarianceNormalization", "l", "m");
    ints_attr(w, "axes", 2, 0, 2, 0, 0);
    onnx_node(w, "LpNormalization", "m", "n");
    onnx_attrs(w, "axis=1 p=1");
    onnx_node(w, "LpNormalization", "d", "e");
    onnx_attrs(w, "axis=-1 p=2");
    onnx_node(w, "SoftmaxCrossEntropyLoss", "n,class", "loss");
    onnx_output(w, "n", ATTNRUN_F32, "2,8,3");
    onnx_output(w, "e", ATTNRUN_F64, "2,8");
    onnx_output(w, "loss", ATTNRUN_F32, "");
    return w;
}

struct onnx_writer *write_regions(void)
{
    static const uint16_t weight[64] = { 0x3c00, 0x3800, 0x3400, 0xbc00, 0x3c00 };
    static const uint16_t scale[8] = { 0x3c00, 0x3800, 0x4000, 0x3c00,
                                       0x3400, 0xb800, 0x3c00, 0x3c00 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_F16, "N,8");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_constant(w, "weight", ATTNRUN_F16, "8,8", weight);
    onnx_constant(w, "scale", ATTNRUN_F16, "8", scale);
    onnx_node(w, "MatMul", "x,weight", "product");
    onnx_node(w, "LayerNormalization", "product,scale", "normed");
    onnx_node(w, "Sigmoid", "normed", "gate");
    onnx_node(w, "Mul", "gate,x", "gated");
    onnx_node(w, "Shape", "gated", "shape");
    onnx_node(w, "Reshape", "gated,shape", "shaped");
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Sin", "shaped", "sine");
    onnx_node(w, "Add", "sine,gate", "then");
    onnx_output(w, "then", ATTNRUN_F16, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Softmax", "shaped", "else");
    onnx_output(w, "else", ATTNRUN_F16, NULL);
    onnx_graph_end(w);
    onnx_output(w, "y", ATTNRUN_F16, "N,8");
    return w;
}

struct onnx_writer *write_long_chain(int n)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "v0", ATTNRUN_F32, "N");
    char in[16], out[16];
    for (int i = 0; i < n; i++) {
        snprintf(in, sizeof in, "v%d", i);
        snprintf(out, sizeof out, "v%d", i + 1);
        onnx_node(w, "Sin", in, out);
    }
    onnx_output(w, out, ATTNRUN_F32, "N");
    return w;
}

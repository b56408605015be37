/* rewrite_cases.h - the cases of test_rewrite.c: a pass, how often it must apply to the graph,
 * the graph as text ("Op inputs outputs attribute=value ...; ..."), and its outputs. The
 * constants that they name are in write_constants(). */
#ifndef REWRITE_CASES_H
#define REWRITE_CASES_H

struct rewrite_case {
    const char *pass;
    int applied;
    const char *text, *outputs;
};

static const struct rewrite_case rewrite_cases[] = {
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
    { "identity", 1, "Relu img a; Pad a,pad0 b; Neg b y", "y" },
    { "identity", 0, "Relu img a; Pad a,pad1 b; Neg b y", "y" },
    { "identity", 0, "Relu img a; Pad a,shift b; Neg b y", "y" }, /* the same shape */
    /* -- auto_pads -- */
    { "auto_pads", 1, "Conv img,w4 y auto_pad=SAME_UPPER", "y" },
    { "auto_pads", 1, "Conv img,w4,b4 y auto_pad=SAME_LOWER strides=2,2", "y" },
    { "auto_pads", 1, "Conv img,w4 y auto_pad=VALID strides=2,2", "y" },
    { "auto_pads", 0, "Conv img,w4 y auto_pad=NOTSET", "y" },
    /* -- pad_conv -- */
    { "pad_conv", 1, "Pad img,pad1 p; Conv p,w4 y", "y" },
    { "pad_conv", 1, "Pad img,pad12,zero p; Conv p,w4,b4 y pads=1,0,2,0 strides=2,2",
      "y" },
    { "pad_conv", 1, "Pad img,pad12 p mode=constant; Conv p,w4g y group=2", "y" },
    { "pad_conv", 1, "Pad img,pad1 p; Conv p,w4 y auto_pad=NOTSET dilations=2,2", "y" },
    { "pad_conv", 1, "Cast img h to=10; Pad h,pad1 p; Cast p c to=1; Conv c,w4 y", "y" },
    { "pad_conv", 0, "Pad img,pad1 p; Cast p c to=1; Conv c,w4 y; Neg p z2", "y,z2" },
    { "pad_conv", 1, "Pad img,pad1 p; Conv p,w4 y auto_pad=SAME_UPPER", "y" },
    { "pad_conv", 0, "Pad img,pad1,one p; Conv p,w4 y", "y" },
    { "pad_conv", 0, "Pad img,pad1 p mode=edge; Conv p,w4 y", "y" },
    { "pad_conv", 0, "Pad img,padc p; Conv p,w5 y", "y" }, /* a channel more */
    { "pad_conv", 0, "Pad img,shift p; Conv p,w4 y", "y" },
    { "pad_conv", 0, "Pad img,pad1 p; Conv p,w4 y; Neg p z2", "y,z2" },
    /* -- pixel_mean -- */
    { "pixel_mean", 1, "ReduceMean img m axes=2,3 keepdims=0; Neg m y", "y" },
    { "pixel_mean", 1, "ReduceMean img z2 axes=-1,-2 keepdims=0; Neg z2 y", "y,z2" },
    { "pixel_mean", 0, "ReduceMean img m axes=2,3; Neg m y", "y" },
    { "pixel_mean", 0, "ReduceMean img m axes=1,2 keepdims=0; Neg m y", "y" },
    { "pixel_mean", 0, "ReduceMean img m axes=3 keepdims=0; Neg m y", "y" },
    { "pixel_mean", 0, "ReduceMean img m axes=3,3 keepdims=0; Neg m y", "y" },
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
    { "conv_batch_norm", 1, "Conv img,w4 c pads=1,1,1,1; Mul c,half y", "y" },
    { "conv_batch_norm", 1, "Conv img,w4,b4 c; Mul half,c d; Add d,three y", "y" },
    { "conv_batch_norm", 1, "Conv img,w4g,b4 c group=2; Mul half,c d; Add three,d y",
      "y" },
    { "conv_batch_norm", 1, "ConvTranspose img,w4,b4 c; Mul c,half d; Add d,three y",
      "y" },
    { "conv_batch_norm", 1, "Conv img,w4,b4 c; Mul c,half d; Add d,three y", "y,d" },
    { "conv_batch_norm", 0, "Conv img,w4 c; Mul c,half y", "y,c" },
    { "conv_batch_norm", 0, "Conv img,w4 c pads=1,1,1,1; Mul c,img y", "y" },
    { "conv_batch_norm", 0, "Conv img,w4 c; Add c,three y", "y" },
    { "conv_batch_norm", 0, "Conv img,w4,gain c; Mul c,half y", "y" },
    { "conv_batch_norm", 1, "Conv img,w4 c; Add c,c1411 y", "y" },
    { "conv_batch_norm", 1, "Conv img,w4,b4 c pads=1,1,1,1; Add s4111,c y", "y" },
    { "conv_batch_norm", 1, "Conv img,w4g c group=2; Add c,s4111 y", "y" },
    { "conv_batch_norm", 1, "ConvTranspose img,w4 c; Add c,c1411 y", "y" },
    { "conv_batch_norm", 0, "ConvTranspose img,w4g c group=2; Add c,c1411 y", "y" },
    { "conv_batch_norm", 0, "Conv img,w4 c; Add c,c1411 y", "y,c" },
    { "conv_batch_norm", 0, "Conv img,w4 c; Add c,vec1 y", "y" },
    { "conv_batch_norm", 0, "Conv img,w4,gain c; Add c,c1411 y", "y" },
    { "conv_batch_norm", 1,
      "Conv img,w4 d pads=1,1,1,1; Conv d,w4 e pads=1,1,1,1; "
      "Conv e,w4 f pads=1,1,1,1; Conv f,w4 g pads=1,1,1,1; "
      "Conv g,w4 h pads=1,1,1,1; Conv h,w4 i pads=1,1,1,1; "
      "Conv i,w4 j pads=1,1,1,1; "
      "Conv j,w4 c pads=1,1,1,1; BatchNormalization c,s4,b4,m4,v4 y",
      "y" },
    { "conv_batch_norm", 0, /* nine nodes read the weights */
      "Conv img,w4 d pads=1,1,1,1; Conv d,w4 e pads=1,1,1,1; "
      "Conv e,w4 f pads=1,1,1,1; Conv f,w4 g pads=1,1,1,1; "
      "Conv g,w4 h pads=1,1,1,1; Conv h,w4 i pads=1,1,1,1; "
      "Conv i,w4 j pads=1,1,1,1; Conv j,w4 k pads=1,1,1,1; "
      "Conv k,w4 c pads=1,1,1,1; BatchNormalization c,s4,b4,m4,v4 y",
      "y" },
    { "conv_batch_norm", 0,
      "Relu v4 r; Mul r,gain g; Conv img,w4 c; BatchNormalization c,s4,b4,m4,g y", "y" },
    /* -- merge_convs -- */
    { "merge_convs", 1, "Conv img,w4 c pads=1,1,1,1; Conv img,w41,b4 d; Add c,d y", "y" },
    { "merge_convs", 1,
      "Conv img,w413 c pads=0,1,0,1 strides=2,2; Conv img,w4,b4 d pads=1,1,1,1 "
      "strides=2,2; "
      "Add c,d y",
      "y" },
    { "merge_convs", 1,
      "Conv img,w4,m4 c pads=2,2,2,2 dilations=2,2; Conv img,w41,b4 d; Add d,c y", "y" },
    { "merge_convs", 1,
      "Conv img,w4 c pads=2,2,2,2 dilations=2,2; Conv img,w4,b4 d pads=2,2,2,2 "
      "dilations=2,2; Add d,c y",
      "y" },
    { "merge_convs", 2,
      "Conv img,w4g,b4 c pads=1,1,1,1 group=2; Conv img,w41g d group=2; Add c,d e; "
      "BatchNormalization img,s4,b4,m4,v4 n; Add n,e y",
      "y" },
    { "merge_convs", 1, "BatchNormalization img,s4,b4,m4,v4 n; Conv img,w41 c; Add n,c y",
      "y" },
    { "merge_convs", 1,
      "Conv img,w4 d pads=1,1,1,1; Conv d,w4 e pads=1,1,1,1; "
      "Conv e,w4 f pads=1,1,1,1; Conv f,w4 g pads=1,1,1,1; "
      "Conv g,w4 h pads=1,1,1,1; Conv h,w4 i pads=1,1,1,1; "
      "Conv i,w4 j pads=1,1,1,1; "
      "Conv j,w4 c pads=1,1,1,1; Conv j,w41 q; Add c,q y",
      "y" },
    { "merge_convs", 0,
      "Conv img,w4 d pads=1,1,1,1; Conv d,w4 e pads=1,1,1,1; "
      "Conv e,w4 f pads=1,1,1,1; Conv f,w4 g pads=1,1,1,1; "
      "Conv g,w4 h pads=1,1,1,1; Conv h,w4 i pads=1,1,1,1; "
      "Conv i,w4 j pads=1,1,1,1; Conv j,w4 k pads=1,1,1,1; "
      "Conv k,w4 c pads=1,1,1,1; Conv k,w41 q; Add c,q y",
      "y" },
    { "merge_convs", 0, /* taps that the larger one has not */
      "Conv img,w4 c pads=1,1,1,1; Conv img,w413 d pads=0,2,0,0; Add c,d y", "y" },
    { "merge_convs", 0,
      "Conv img,w4 c pads=2,2,2,2 dilations=2,2; Conv img,w413 d pads=0,1,0,1; Add c,d y",
      "y" },
    { "merge_convs", 1, "Conv img,w4 c pads=0,1,2,1; Conv img,w41 d; Add c,d y", "y" },
    { "merge_convs", 1, "Conv img,w4 c auto_pad=SAME_UPPER; Conv img,w41 d; Add c,d y",
      "y" },
    { "merge_convs", 0, "Relu img r; Conv r,w4 c pads=1,1,1,1; Conv img,w41 d; Add c,d y",
      "y" },
    { "merge_convs", 0, "Conv img,w4 c pads=1,1,1,1; Conv img,w41 d; Add c,d y", "y,d" },
    { "merge_convs", 0, "Conv img,w4 c pads=1,1,1,1; Conv img,w41,gain d; Add c,d y",
      "y" },
    { "merge_convs", 0, "Conv img,w41 c; Add c,c y", "y" },
    { "merge_convs", 0, "Conv img,w4g c pads=1,1,1,1 group=2; Conv img,w41 d; Add c,d y",
      "y" },
    { "merge_convs", 0, "ConvTranspose img,w41 c; Conv img,w41 d; Add c,d y", "y" },
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
    { "gelu", 1, "Add x,three a; Clip a,zero,six b; Mul x,b c; Div c,six y", "y" },
    { "gelu", 1, "Add three,x a; Clip a,zero,six b; Mul b,x c; Mul sixth,c y", "y" },
    { "gelu", 1, "Add x,three a; Clip a,zero,six b; Div b,six c; Mul x,c y", "y" },
    { "gelu", 1, "Add x,three a; Clip a,zero,six b; Mul b,sixth c; Mul c,x y", "y" },
    { "gelu", 0, "Add x,two a; Clip a,zero,six b; Mul x,b c; Div c,six y", "y" },
    { "gelu", 0, "Add x,three a; Clip a,zero,three b; Mul x,b c; Div c,six y", "y" },
    { "gelu", 0, "Add x,three a; Clip a,one,six b; Mul x,b c; Div c,six y", "y" },
    { "gelu", 0, "Add x,three a; Clip a,zero,six b; Mul z,b c; Div c,six y", "y" },
    { "gelu", 0, "Add x,three a; Clip a,zero,six b; Mul x,b c; Div six,c y", "y" },
    { "gelu", 0, "Add x,three a; Clip a,zero,six b; Mul x,b c; Div c,six y", "y,c" },
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
#include "relative_cases.def"
};

#endif

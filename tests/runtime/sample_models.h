/* sample_models.h - models that several tests run. */
#ifndef ATTN_TESTS_SAMPLE_MODELS_H
#define ATTN_TESTS_SAMPLE_MODELS_H

#include "harness.h"

/* A text encoder as exporters write them, in small: ids i64[B,S] (below ENCODER_WORDS, S
 * up to ENCODER_LONGEST), mask i64[B,S] -> hidden f32[B,S,ENCODER_WIDTH], pooled
 * f32[B,ENCODER_WIDTH]. Shapes are computed by nodes; norms and Gelu are decomposed. */
enum { ENCODER_WORDS = 50, ENCODER_LONGEST = 64, ENCODER_WIDTH = 16 };
struct onnx_writer *write_encoder(int layers);

struct encoder_inputs {
    int64_t ids[4 * ENCODER_LONGEST], mask[4 * ENCODER_LONGEST];
    int64_t b, s;
};
/* Random ids of shape (b, s), at most (4, ENCODER_LONGEST), bound to the context. */
void set_encoder_inputs(attnrun_context *context, struct encoder_inputs *inputs,
                        uint64_t *seed, int64_t b, int64_t s);

/* A small image network: x f32[N,3,H,W] -> y f32[N,10]: Conv, BatchNormalization, Relu,
 * MaxPool, a residual, GlobalAveragePool, Gemm. */
struct onnx_writer *write_convnet(void);

/* Sizes known only at run: x f32[N] -> the indices of its nonzero elements, twice the
 * elements there, and their sum. */
struct onnx_writer *write_dynamic(void);

/* A loop of n trips with an inner branch: n i64, x f32[K] -> y f32[K], all f32[T,K]. */
struct onnx_writer *write_loop(void);

/* Values of all kinds: x f32[N,4], list, a sequence of f32, maybe, an optional f32, words
 * string[3] -> all elements of list and x, how many they are, what maybe has or x, which words
 * are equal to those of a constant, the last part of x, the sum of each row of x (Scan). */
struct onnx_writer *write_kinds(void);

/* Operators that are formulas, in floats and in doubles: x f32[2,8,3], d f64[2,8] -> f32[2,8,3],
 * f64[2,8], f32[]. */
struct onnx_writer *write_formulas(void);

/* Regions of 16-bit numbers, one of them within a branch: x f16[N,8] -> f16[N,8]. */
struct onnx_writer *write_regions(void);

/* Waits in one operator: y = Sin(x) on a long vector, `n` times in a row. */
struct onnx_writer *write_long_chain(int n);

#endif

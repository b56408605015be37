/* onnx_write.h - small ONNX files made in memory, so that tests go the whole way from
 * bytes to outputs. Calls in file order; an attribute belongs to the node before it.
 * Shapes are words: "N,4" has a symbol and a constant, "" is a scalar, NULL says nothing.
 */
#ifndef ATTN_TESTS_ONNX_WRITE_H
#define ATTN_TESTS_ONNX_WRITE_H

#include <stddef.h>
#include <stdint.h>

struct onnx_writer;

struct onnx_writer *onnx_begin(int64_t opset);
void onnx_input(struct onnx_writer *w, const char *name, int32_t dtype, const char *dims);
/* Of kind ATTNRUN_SEQUENCE, ATTNRUN_OPTIONAL, …: of tensors of that dtype; a map has i64 keys. */
void onnx_input_of(struct onnx_writer *w, const char *name, int32_t kind, int32_t dtype);
void onnx_output(struct onnx_writer *w, const char *name, int32_t dtype,
                 const char *dims);
/* dtype f32, i64, b8: `data` is dense; "" is a scalar. */
void onnx_constant(struct onnx_writer *w, const char *name, int32_t dtype,
                   const char *dims, const void *data);
/* A float scalar, an i64 scalar and an i64 vector. */
void onnx_float(struct onnx_writer *w, const char *name, float x);
void onnx_int(struct onnx_writer *w, const char *name, int64_t x);
void onnx_ints(struct onnx_writer *w, const char *name, int n, const int64_t *x);
/* "a,b" and "y": operand names; an empty one is absent. "dom::Op" has a domain. */
void onnx_node(struct onnx_writer *w, const char *op_type, const char *inputs,
               const char *outputs);
/* Names the node before. */
void onnx_node_name(struct onnx_writer *w, const char *name);
void onnx_attr_int(struct onnx_writer *w, const char *name, int64_t x);
void onnx_attr_float(struct onnx_writer *w, const char *name, float x);
void onnx_attr_string(struct onnx_writer *w, const char *name, const char *x);
void onnx_attr_ints(struct onnx_writer *w, const char *name, int n, const int64_t *x);
void onnx_attr_strings(struct onnx_writer *w, const char *name, int n,
                       const char *const *x);
/* Attributes as text: "axis=-1 alpha=0.5 pads=1,1,1,1 axes=0 mode=abc". */
void onnx_attrs(struct onnx_writer *w, const char *text);
/* What follows is in a subgraph of the node before, until onnx_graph_end(). */
void onnx_graph(struct onnx_writer *w, const char *attribute);
void onnx_graph_end(struct onnx_writer *w);
/* A domain of version 1 besides ai.onnx. */
void onnx_domain(struct onnx_writer *w, const char *domain);
/* The file; free() it. The writer is gone. */
uint8_t *onnx_end(struct onnx_writer *w, size_t *bytes);

#endif

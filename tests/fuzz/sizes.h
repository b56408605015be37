/* sizes.h - other sizes for the inputs of a valid model, up to what no memory can hold. */
#ifndef ATTN_FUZZ_SIZES_H
#define ATTN_FUZZ_SIZES_H

#include "case.h"
#include "onnx.pb-c.h"

/* Forgets the type that the model declares of a value, where it declares one. */
void fuzz_forget_type(Attnrun__Onnx__ValueInfoProto *info);
/* Each size that an input has becomes another one wherever it stands: in the other inputs, and
 * mostly in the short lists of integers, which become constants. Constants of floats become inputs.
 * What the model says of its own shapes is forgotten. The inputs of c->given have no data any
 * more. */
void fuzz_sizes_change(struct fuzz_case *c, struct fuzz_random *r,
                       Attnrun__Onnx__ModelProto *model);
/* The shapes of one to three inputs become others by themselves: a size of 1, one more or less, an
 * axis more or less; some constants become inputs and some inputs constants, and inputs of f32 may
 * take another type. What the model says of its own shapes is forgotten, so that the operators see
 * what does not fit. */
void fuzz_sizes_misfit(struct fuzz_case *c, struct fuzz_random *r,
                       Attnrun__Onnx__ModelProto *model);

#endif

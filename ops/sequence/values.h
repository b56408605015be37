/* values.h - deep copies of tensors, sequences and optionals into the memory of an
 * output. Control flow and sequence operators pass such values around. Cost: one copy. */
#ifndef OP_VALUES_H
#define OP_VALUES_H

#include "../../runtime/op.h"

/* Deep copies `from` into memory that lives as long as output `out`. */
attn_status op_value_copy(const attnrun_step *step, int out, const attnrun_tensor *from,
                          attnrun_tensor *to);
/* The same as output `out` itself, in its planned place where it has one; nothing where
 * the output is not wanted. */
attn_status op_value_out(const attnrun_step *step, int out, const attnrun_tensor *from);
/* Bytes of the strings of a tensor copied into the output's memory. */
attn_status op_value_own_strings(const attnrun_step *step, int out,
                                 attnrun_tensor *tensor);
/* infer: output `out` has that kind and dtype, of unknown shape. */
attn_status op_value_unknown(attnrun_step *step, int out, int32_t kind, int32_t dtype);
/* infer: a type without its shape, so that the step is always run late. */
void op_value_forget(attnrun_type *type);

#endif

/* values.h - outputs that may be tensors, sequences, optionals or maps: control flow and sequence
 * operators pass such values around. In: a value, or its kind and type. Out: a deep copy in the
 * memory of an output, or its type where the shape is unknown. Cost: one copy. */
#ifndef OP_VALUES_H
#define OP_VALUES_H

#include "../../runtime/op.h"

/* A deep copy of `from` as output `out`, in its planned place where it has one; nothing where the
 * output is not wanted. */
attn_status op_value_out(const attnrun_step *step, int out, const attnrun_tensor *from);
/* infer: output `out` has that kind and dtype, of unknown shape. */
attn_status op_value_unknown(attnrun_step *step, int out, int32_t kind, int32_t dtype);
/* infer: a type without its shape, so that the step has a dynamic shape. */
void op_value_forget(attnrun_type *type);

/* Texts have any length, so these poll; where the call is to end, their answer is not right. */
bool op_texts_equal(const attnrun_string *a, const attnrun_string *b);
/* The first `word` in n bytes, or NULL. */
const char *op_text_find(const char *text, int64_t n, const attnrun_string *word);

#endif

/* operand.h - values against the types that were inferred at load: what a caller gives,
 * what a subgraph is called with, what a step reads and leaves. */
#ifndef ATTN_OPERAND_H
#define ATTN_OPERAND_H

#include "step.h"

/* A tensor struct from outside: it is consistent, of a size that can exist, and has
 * memory where it has elements. Of a sequence or an optional only the outermost struct.
 */
bool attn_value_well_formed(const attnrun_tensor *value);
/* OK for what is well formed. E_LIMIT: a tensor with more elements than can exist; E_USAGE: a
 * struct that is no tensor. */
attn_status attn_input_check_form(const attnrun_tensor *value, int32_t index,
                                  const char *name);
/* Whether a value of that kind and dtype may stand where `type` is expected: what is in
 * an optional may stand for the optional, and what is not known is not compared. */
bool attn_value_may_be(const attnrun_type *type, int32_t kind, int32_t dtype);
/* The elements of a sequence and what an optional holds: each is well formed and of the
 * value's own dtype, which is set where it was 0. E_USAGE or E_DTYPE, with a sentence
 * that begins with `what`. Of tensors nothing. */
attn_status attn_value_check_elements(attnrun_tensor *value, const char *what);
/* Kinds and dtypes of the step's inputs are those that the graph was loaded with. Where
 * load time did not know one, the row is asked again. */
attn_status attn_step_check_inputs(const struct attn_step *step);
/* The same of output `out`, which is of that kind and dtype. */
attn_status attn_step_check_output(const struct attn_step *step, int32_t out,
                                   int32_t kind, int32_t dtype);

#endif

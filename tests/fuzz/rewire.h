/* rewire.h - changes what a graph computes, and leaves it a graph: what a rewrite pass looks for
 * is nearly there afterwards. */
#ifndef ATTN_FUZZ_REWIRE_H
#define ATTN_FUZZ_REWIRE_H

#include "fuzz_random.h"
#include "onnx.pb-c.h"

/* One change of the main graph: an operator becomes another of its kind, an operand another value,
 * a value an output of the graph, a number another one; two axes or operands change places; a node
 * is put in front of an operand or is left out; an axis of an input becomes a symbol or a number.
 */
void fuzz_rewire(struct fuzz_random *r, Attnrun__Onnx__ModelProto *model);

/* A string of a message becomes a copy of `to`. */
void fuzz_set_text(char **text, const char *to);
/* A list of n pointers, which `list` points to, gets one more at `at`. */
void fuzz_list_add(void *list, size_t *n, size_t at, void *item);
/* Operands a and b of a node change places. */
void fuzz_swap_operands(Attnrun__Onnx__NodeProto *node, size_t a, size_t b);

#endif

/* make.h - makes models of a few nodes around sequences, optionals, subgraphs and
 * attention, from the operator rows of the library. */
#ifndef ATTN_FUZZ_MAKE_H
#define ATTN_FUZZ_MAKE_H

#include "case.h"

/* A model with 1 to 6 nodes and subgraphs to a depth of 3. */
void fuzz_make(struct fuzz_case *c, struct fuzz_random *r);
/* The built-in rows, and a model of one node of one of them, at an opset of the row. */
int fuzz_rows(void);
const attnrun_op_def *fuzz_row(int index);
void fuzz_make_row(struct fuzz_case *c, struct fuzz_random *r, int index);

#endif

/* harness_run.h - between the files of the harness, and for main.c. */
#ifndef ATTN_ATTENTION_HARNESS_RUN_H
#define ATTN_ATTENTION_HARNESS_RUN_H

#include "operator_harness.h"

/* How inputs are declared: dims, symbols for batch and the next dim, symbols for all, no
 * shape at all but for every third. */
enum case_shapes { CONSTANT, SYMBOLIC, RANK_ONLY, UNKNOWN, SHAPE_STYLES };
/* The dims of an operand in a layout of rank 3 or 4; returns its rank there. */
int case_dims(const struct check_operand *o, int layout, int64_t *dims);
/* The model; free() it. */
uint8_t *case_model(const struct check *c, int layout, enum case_shapes style,
                    size_t *bytes);

/* The runtimes that the cases of one operator run on. */
void check_start(struct check *c);
/* Ends them; memory that is still held, or was written over, is a failure. */
void check_end(struct check *c);
/* "Op seed 1 round 3: attributes and shapes". */
void check_describe(const struct check *c);

#endif

/* operator.h - what a name of an operator means to a model, found once and not for each node. */
#ifndef ATTN_OPERATOR_H
#define ATTN_OPERATOR_H

#include "graph.h"

/* Copies of the names in the model's pool, and the rows of that opset (0: the names alone). */
struct attn_operator {
    const char *domain, *op_type;
    int64_t opset;
    const attnrun_op_def *built_in; /* NULL: there is none */
    const attnrun_op_def *op;       /* the same, or what a user registered in its place */
    bool noted;                     /* a node has the built-in row */
};

/* NULL without memory. O(1). */
struct attn_operator *attn_operator_find(struct attn_model *model, const char *domain,
                                         const char *op_type, int64_t opset);

#endif

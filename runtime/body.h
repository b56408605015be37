/* body.h - the nodes that take the place of a node, while expand() of its row writes them: names
 * and nodes (body.c), and the text that makes them (formula.c). */
#ifndef ATTN_BODY_H
#define ATTN_BODY_H

#include "graph.h"

enum {
    BODY_MAX_ATTRS = 8,
    BODY_MAX_OUTPUTS = 8, /* of a call */
    BODY_NAME_BYTES = 64
};
enum body_kind { BODY_VALUE, BODY_OUTPUT, BODY_NUMBER, BODY_INTS };

/* What a name in a formula means. */
struct body_name {
    char text[BODY_NAME_BYTES];
    enum body_kind kind;
    int32_t value; /* of the graph; -1: an absent operand, or no node needs it yet */
    int32_t out;   /* OUTPUT: of the call */
    int32_t dtype; /* NUMBER */
    double number; /* NUMBER */
    int64_t n;     /* INTS */
    const int64_t *ints; /* INTS */
};

struct attnrun_body {
    struct attn_graph *graph;
    const struct attn_node *call; /* still in the graph */
    const char *prefix;           /* of the names of its nodes */
    struct attn_pool *scratch;    /* of the names that formulas use */
    struct body_name *names;
    int64_t n_names, names_capacity;
    int64_t n_nodes;    /* written so far */
    int32_t dtype;      /* of numbers */
    attn_status status; /* of what returns none */
};

/* An operator that a formula calls. */
struct body_call {
    const char *domain, *op_type;
    int32_t opset, n_attrs;
    struct attn_attr attrs[BODY_MAX_ATTRS];
};

/* An empty body in the place of `call`, which names the operands of its row. */
attn_status attn_body_begin(struct attnrun_body *body, struct attn_graph *graph,
                            const struct attn_node *call, struct attn_pool *scratch);
/* What was written gives each output that is wanted, or nothing was written. */
attn_status attn_body_end(const struct attnrun_body *body);

/* NULL where `text` means nothing. */
struct body_name *attn_body_find(const struct attnrun_body *body, const char *text);
/* `text` means `meaning` from here on. */
void attn_body_set(struct attnrun_body *body, const char *text, struct body_name meaning);
/* Constants: a scalar, and an i64 vector. */
attn_status attn_body_number(struct attnrun_body *body, int32_t dtype, double x,
                             int32_t *id);
attn_status attn_body_list(struct attnrun_body *body, int64_t n, const int64_t *values,
                           int32_t *id);
/* The version of a domain that formulas are written in: of ai.onnx the newest. */
int32_t attn_body_opset(const struct attnrun_body *body, const char *domain);
/* A node with n_out new outputs. */
attn_status attn_body_node(struct attnrun_body *body, const struct body_call *call,
                           int32_t n_in, const int32_t *in, int32_t n_out,
                           struct attn_node **made);

#endif

/* control.h - what If, Loop, Scan and SequenceMap share: the common type of two
 * values, values that are carried from one iteration to the next, and results that are
 * stacked. Cost: one copy of each value that is carried or stacked. */
#ifndef OP_CONTROL_H
#define OP_CONTROL_H

#include "../sequence/values.h"

/* A value that an iteration passes to the next. Two buffers are used in turn, since the
 * outputs of a subgraph may be views of its inputs. */
struct op_carry {
    attnrun_tensor now;
    void *buffer[2];
    int64_t bytes[2];
    int32_t last;
    const void *mark; /* op_heap_mark() before the copy of a sequence or of strings */
};

/* Results of a subgraph's iteration that are stacked along a new first axis. */
struct op_stack {
    attnrun_tensor item; /* dtype and dims of one */
    char *data;
    int64_t n, capacity;
};

/* Takes over `from`, a result of the subgraph; memory is of output `out`. */
attn_status op_carry_set(const attnrun_step *step, int out, struct op_carry *carry,
                         const attnrun_tensor *from);
/* Gives back the copy of the iteration before, once all values are taken over: they may have
 * changed places. */
void op_carry_release(const attnrun_step *step, int out, struct op_carry *carry);
/* Adds a copy. `expected`: the number of iterations where it is known, else 0. */
attn_status op_stack_push(const attnrun_step *step, int out, struct op_stack *stack,
                          const attnrun_tensor *from, int64_t expected);
/* Makes the stack output `out`; an empty one is op_empty_out(). */
attn_status op_stack_finish(const attnrun_step *step, int out, struct op_stack *stack,
                            int graph, int result);
/* Makes output `out` of no iteration: `more` dims and those of output `result` of the subgraph, as
 * inference knew them or the file declares their number. Dims of which nothing is known are 0. */
attn_status op_empty_out(const attnrun_step *step, int out, int graph, int result,
                         int more);
/* infer: what holds for both types; E_DTYPE where kind or dtype differ. */
attn_status op_type_merge(attnrun_step *step, const attnrun_type *a,
                          const attnrun_type *b, attnrun_type *merged);
/* Fails where the subgraph has not the inputs and outputs that the node needs. */
attn_status op_graph_check(const attnrun_step *step, int graph, int n_inputs,
                           int n_outputs);

#endif

/* infer.h - what inference at load shares with plans: operands into a step, constants out of
 * what infer() stated, and inference of a subgraph. */
#ifndef ATTN_INFER_H
#define ATTN_INFER_H

#include "step.h"

/* Types, constants and known elements of the graph's values into the step's inputs. */
void attn_step_load_inputs(struct attn_step *step);
/* Where infer() stated all elements of output `out` as constants: the tensor, in `pool`.
 */
bool attn_step_known_tensor(const struct attn_step *step, int out, struct attn_pool *pool,
                            attnrun_tensor *tensor);
/* op_graph_infer() at load. */
attn_status attn_graph_infer_inner(const attnrun_step *step, int graph, int n_inputs,
                                   const attnrun_type *inputs, int n_outputs,
                                   attnrun_type *outputs);

#endif

/* measured.h - steps that run while their model is measured, before anything is packed. */
#ifndef ATTN_MEASURED_H
#define ATTN_MEASURED_H

#include "heap.h"
#include "step.h"

/* attn_step_execute(). While a model is measured its nodes show model->stand_in for packed
 * weights, and its constants may lie at any address; then the step sees aligned copies, and
 * weights that pack() makes for it alone. What that takes is in no budget and no count, as a
 * model that is packed does not need it. */
attn_status attn_measured_execute(const struct attn_graph *graph, struct attn_step *step,
                                  struct attn_heap *heap);

#endif

/* dim_sizes.h - the sizes that the inputs of a run give to the symbols of a model. */
#ifndef ATTN_DIM_SIZES_H
#define ATTN_DIM_SIZES_H

#include "graph.h"

/* E_SHAPE, with the symbol, where two dims of the inputs of the main graph have one symbol and
 * two sizes: the passes and the folding of load take them for equal. E_SHAPE where a size is 0
 * that was assumed not to be (attn_dims_assume_nonzero()). */
attn_status attn_inputs_agree(const struct attn_graph *graph, struct attn_memory *memory,
                              const attnrun_tensor *inputs);

#endif

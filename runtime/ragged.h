/* ragged.h - batches with padding that run on their tokens alone.
 *
 * In: a mask, the input of a model that says which tokens of a batch (B, S) are there. Out: two
 * tensors that the graph reads beside its inputs, made of the mask before a run is planned, since
 * the number of tokens is a dim of the plan:
 *
 *   tokens    i64 (rows)  the place b * S + s of each token, sample by sample; -1 in the rest
 *   samples   i64 (B, 3)  of each sample: the row of its first token, that token's s, and the s
 *                         behind its last one
 *
 *   mask    1 1 1 0 0     tokens    0 1 2 5 6 8 9 -1 …     samples   0 0 3
 *           1 1 0 0 0     rows: their number, rounded up             3 0 2
 *           0 0 0 1 1                                                5 3 5
 *
 * A token without a mask between two that have one counts as there: attention masks it as before.
 * Rows are rounded up, to an eighth or less, so that batches of about one size share a plan, and
 * never beyond B * S, which is what is planned where a mask is not known yet. The pass `ragged`
 * (ops/rewrite/ragged_pass.c) writes graphs that read these tensors. */
#ifndef ATTN_RAGGED_H
#define ATTN_RAGGED_H

#include "graph.h"
#include "ragged_sample.h"

enum { ATTN_RAGGED_INPUTS = 2 };

/* Of a graph, or NULL. */
struct attn_ragged {
    int32_t mask;                       /* which input of the graph */
    int32_t values[ATTN_RAGGED_INPUTS]; /* tokens, samples: values that no node gives */
    /* Samples begin at s = 0, whatever the mask says; one without a token, and one whose mask
     * holds something else than 0 and 1, has all of them. */
    bool from_start;
};

/* Memory for both tensors of a run: that of B * S tokens. */
struct attn_ragged_lists {
    int64_t *data;
    int64_t bytes;
};

/* Makes the values of a graph whose input `mask` is (B, S); `rows` is a new dim. */
attn_status attn_ragged_create(struct attn_graph *graph, int32_t mask, bool from_start);
/* How many tensors are behind the inputs of a graph: 0 or ATTN_RAGGED_INPUTS. */
static inline int32_t attn_ragged_n(const struct attn_graph *graph)
{
    return graph->ragged != NULL ? ATTN_RAGGED_INPUTS : 0;
}
/* inputs[graph->n_inputs] and the next one: for a plan that holds for every mask, without data. */
attn_status attn_ragged_bound(const struct attn_graph *graph, attnrun_tensor *inputs);
/* Memory for the lists of these inputs, whatever their mask is. */
attn_status attn_ragged_reserve(const struct attn_graph *graph,
                                struct attn_memory *memory,
                                struct attn_ragged_lists *lists,
                                const attnrun_tensor *inputs);
/* The same of the mask among the inputs; `whole`: as if all tokens were there. E_RANGE where it
 * holds anything but 0 and 1, if not from_start. */
attn_status attn_ragged_read(const struct attn_graph *graph, struct attn_memory *memory,
                             bool whole, struct attn_ragged_lists *lists,
                             attnrun_tensor *inputs);
/* A run that failed for what it saw may be tried with all tokens. */
static inline bool attn_ragged_can_be_whole(const struct attn_graph *graph)
{
    return graph->ragged != NULL && graph->ragged->from_start;
}
void attn_ragged_free(struct attn_memory *memory, struct attn_ragged_lists *lists);
/* What the lists take for these inputs. */
int64_t attn_ragged_bytes(const struct attn_graph *graph, const attnrun_tensor *inputs);

#endif

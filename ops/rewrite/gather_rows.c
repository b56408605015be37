/* gather_rows.c - GatherElements that takes whole rows becomes GatherND, which copies them:
 *
 *   GatherElements(data (…, n, d), Expand(i (…, m, 1) to (…, m, d)), axis of n)
 *     = GatherND(data, i), all axes before n in common
 *
 * as batched indexing is exported (tokens in the order of their buckets). Exact: the same
 * elements, negative indexes count from the end in both. The dims before n must be provably
 * equal, d too: GatherElements would read a part of data otherwise. */
#include "../../runtime/poll.h"
#include "match.h"

/* The indexes of the rows, where `gather` takes whole ones; else -1. */
static int32_t row_indexes(const struct attn_graph *graph, const struct attn_node *gather)
{
    const struct attn_node *expand = attn_match_in(graph, gather, 1, "Expand");
    if (expand == NULL)
        return -1;
    const attnrun_type *data = &graph->values[gather->in[0]].type,
                       *all = &graph->values[gather->in[1]].type,
                       *one = &graph->values[expand->in[0]].type;
    const int rank = data->rank;
    const int64_t axis = attn_match_int(gather, "axis", 0);
    if (rank < 2 || all->rank != rank || one->rank != rank ||
        (axis != rank - 2 && axis != -2) || !dim_is(one->dims[rank - 1], 1) ||
        !dim_equal(all->dims[rank - 1], data->dims[rank - 1]) ||
        !dim_equal(all->dims[rank - 2], one->dims[rank - 2]))
        return -1;
    for (int i = 0; i < rank - 2; i++)
        if (!dim_equal(one->dims[i], data->dims[i]) ||
            !dim_equal(all->dims[i], data->dims[i]))
            return -1;
    return expand->in[0];
}

static attn_status try_gather(struct attn_graph *graph, struct attn_node *gather,
                              int32_t *applied)
{
    const int32_t indexes = row_indexes(graph, gather);
    if (indexes < 0)
        return ATTNRUN_OK;
    int32_t in[2] = { gather->in[0], indexes };
    struct attn_node *made;
    if (graph->values[indexes].type.dtype == ATTNRUN_I32) { /* GatherND takes i64 */
        const struct attn_attr to = MATCH_INT("to", ATTNRUN_I64);
        TRY(attn_graph_add_value(graph, NULL, &in[1]));
        TRY(attn_graph_insert(graph, gather, "", "Cast", 1, &indexes, 1, &in[1], 1, &to,
                              &made));
    }
    const struct attn_attr batch =
        MATCH_INT("batch_dims", graph->values[in[0]].type.rank - 2);
    TRY(attn_match_make(graph, gather, "", "GatherND", 2, in, gather->out[0], 1, &batch,
                        &made));
    attn_match_replace(graph, gather->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

static attn_status run(struct attn_graph *graph, int32_t *applied)
{
    return attn_match_each(graph, "GatherElements", try_gather, applied);
}

const struct attn_pass attn_pass_gather_rows = { .name = "gather_rows", .run = run };

/* gather_rows.c - GatherElements that takes whole rows becomes GatherND, which copies
 * them:
 *
 *   GatherElements(data (…, n, d…), Expand(i (…, m, 1…) to (…, m, d…)), axis of n)
 *     = GatherND(data, i), all axes before n in common
 *
 * Batched indexing is exported in this form (tokens in the order of their buckets, random
 * blocks). The index may also be a constant that is the same along each row; every
 * element of it is compared. Exact: the elements are the same, and negative indexes count
 * from the end in both. The dims before n must be provably equal, and so must those of a
 * row, because GatherElements would read a part of data otherwise. */
#include "../../runtime/poll.h"
#include "match.h"

/* An index that is the same for all of a row: what makes a candidate. Its Expand, or NULL. */
static const struct attn_node *expand_of(const struct attn_graph *graph,
                                         const struct attn_node *gather)
{
    const struct attn_node *expand = attn_match_in(graph, gather, 1, "Expand");
    const int32_t rank = match_type(graph, gather->in[0])->rank;
    if (!attn_match_expands(graph, expand) || rank < 2)
        return NULL;
    const attnrun_type *one = match_type(graph, expand->in[0]);
    return one->rank == rank && dim_is(one->dims[rank - 1], 1) ? expand : NULL;
}

/* The axes but `axis` are those of the data. */
static const char *check_dims(const attnrun_type *data, const attnrun_type *index,
                              int axis)
{
    if (index->rank != data->rank)
        return "the rank of its index is not known";
    for (int i = axis + 1; i < data->rank; i++)
        if (!dim_equal(index->dims[i], data->dims[i]))
            return "it takes a part of each row, or a part of unknown size";
    for (int i = 0; i < axis; i++)
        if (!dim_equal(index->dims[i], data->dims[i]))
            return "its axes before the rows are not known to be those of the data";
    return NULL;
}

/* NULL where `gather` takes whole rows, or the first condition that failed. */
static const char *gather_rows_check_rows(const struct attn_graph *graph,
                                          const struct attn_node *gather,
                                          const struct attn_node *expand, int axis)
{
    const attnrun_type *data = match_type(graph, gather->in[0]),
                       *all = match_type(graph, gather->in[1]),
                       *one = match_type(graph, expand->in[0]);
    if (axis == data->rank - 1)
        return "its axis is not that of the rows";
    for (int i = axis + 1; i < data->rank; i++)
        if (!dim_is(one->dims[i], 1))
            return "its axis is not that of the rows";
    const char *why = check_dims(data, all, axis);
    for (int i = 0; why == NULL && i <= axis; i++)
        if (!dim_equal(all->dims[i], one->dims[i]))
            why = "its axes before the rows are not known to be those of the data";
    return why;
}

/* One index a row of a constant that has it for each element; -1: they differ. */
static attn_status take_constant(struct attn_graph *graph, const struct attn_node *gather,
                                 int axis, int32_t *indexes)
{
    const attnrun_type *data = match_type(graph, gather->in[0]);
    const attnrun_tensor t = graph->values[gather->in[1]].data;
    int64_t dims[ATTNRUN_MAX_RANK], rows = 1, row = 1;
    void *made;
    *indexes = -1;
    if (axis == data->rank - 1 || axis + 2 > ATTNRUN_MAX_RANK ||
        (t.dtype != ATTNRUN_I64 && t.dtype != ATTNRUN_I32) ||
        check_dims(data, match_type(graph, gather->in[1]), axis) != NULL)
        return ATTNRUN_OK;
    for (int i = 0; i < t.rank; i++)
        *(i <= axis ? &rows : &row) *= t.dims[i]; /* as many as there are: no overflow */
    for (int64_t r = 0; r < rows; r++) {
        TRY(attn_poll_work(row * (int64_t)sizeof(int64_t)));
        for (int64_t i = 1; i < row && !attn_stops(i); i++)
            if (tensor_get_int(&t, r * row + i) != tensor_get_int(&t, r * row))
                return ATTNRUN_OK;
    }
    if (rows == 0 || row == 0)
        return ATTNRUN_OK;
    memcpy(dims, t.dims, (size_t)(axis + 1) * sizeof *dims);
    dims[axis + 1] = 1;
    TRY(attn_graph_new_constant(graph, ATTNRUN_I64, axis + 2, dims, indexes, &made));
    for (int64_t r = 0; r < rows && !attn_stops(r); r++) {
        const int64_t x = tensor_get_int(&t, r * row);
        memcpy((char *)made + r * (int64_t)sizeof x, &x, sizeof x);
    }
    return ATTNRUN_OK;
}

/* The index of each row (…, m, 1) as i64 in front of `gather`. */
static attn_status take_expanded(struct attn_graph *graph, struct attn_node *gather,
                                 const struct attn_node *expand, int axis,
                                 int32_t *indexes)
{
    int64_t dims[ATTNRUN_MAX_RANK] = { 0 };
    *indexes = expand->in[0];
    if (match_type(graph, *indexes)->dtype == ATTNRUN_I32) { /* GatherND takes i64 */
        const struct attn_attr to = MATCH_INT("to", ATTNRUN_I64);
        TRY(attn_match_add(graph, gather, "Cast", 1, indexes, 1, &to, indexes));
    }
    if (axis + 2 == match_type(graph, gather->in[0])->rank)
        return ATTNRUN_OK;
    dims[axis + 1] = 1; /* the others are as before */
    return attn_match_reshape(graph, gather, axis + 2, dims, indexes);
}

static attn_status try_gather(struct attn_graph *graph, struct attn_node *gather,
                              int32_t *applied)
{
    const struct attn_node *expand = expand_of(graph, gather);
    const int32_t rank = match_type(graph, gather->in[0])->rank;
    const int64_t given = attn_match_int(gather, "axis", 0);
    const int axis = (int)(given < 0 ? given + rank : given);
    int32_t in[2] = { gather->in[0], -1 };
    if (rank < 2 || axis < 0 || axis >= rank)
        return ATTNRUN_OK;
    if (match_is_constant(graph, gather->in[1]))
        TRY(take_constant(graph, gather, axis, &in[1]));
    if (expand != NULL && in[1] < 0) {
        const char *why = gather_rows_check_rows(graph, gather, expand, axis);
        TRY(attn_graph_note(graph, gather, "gather_rows", why));
        if (why == NULL)
            TRY(take_expanded(graph, gather, expand, axis, &in[1]));
    }
    if (in[1] < 0)
        return ATTNRUN_OK;
    const struct attn_attr batch = MATCH_INT("batch_dims", axis);
    struct attn_node *made;
    TRY(attn_match_make(graph, gather, "", "GatherND", 2, in, gather->out[0], 1, &batch,
                        &made));
    attn_match_replace(graph, gather->out[0], made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_gather_rows = { .name = "gather_rows",
                                                 .op_type = "GatherElements",
                                                 .try_node = try_gather };

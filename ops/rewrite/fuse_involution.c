/* fuse_involution.c - Involution as Unfold writes it becomes the operator, which reads
 * each pixel's neighbours in place instead of K * K copies of the map:
 *
 *   P = Pad(x)                                          (batch, C, H + K - 1, W + K - 1)
 *   U = Transpose(Gather(Gather(P, rows), columns))     (batch, C, K, K, h, w)
 *   Y = ReduceSum(Reshape(U) * Reshape(kernel), K * K)  (batch, groups, C / groups, h, w)
 *
 * If the kernel is two dense convolutions of one tap of the same x, with a Relu between
 * them, and the stride is 1, the operator also makes the kernel, tile by tile.
 *
 * Every index is compared: tap k of pixel o reads k + o * stride. Where the size of the map is a
 * symbol, the index is a Range of its pixels plus the taps. The map must have zeros around it, K
 * must be odd, without dilation, the stride must divide the map, and the kernel must be (batch,
 * groups * K * K, h, w). Other forms stay unchanged. */
#include "../../runtime/poll.h"
#include "match.h"

struct involution_match {
    int32_t x, kernel, result;
    int64_t size, stride, groups;
    attnrun_dim n[2]; /* rows and columns of windows */
};

/* The value of that rank from which Reshape and Unsqueeze made `value`, with its elements
 * in order; or -1. */
static int32_t before_reshapes(const struct attn_graph *graph, int32_t value, int rank)
{
    for (int k = 0; k < 4; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (!node_is(node, "Reshape") && !node_is(node, "Unsqueeze"))
            break;
        value = node->in[0];
        if (attn_match_is_f32_of(graph, value, rank))
            return value;
    }
    return -1;
}

/* Indexes (size, n) of taps: k + o * stride for tap k of place o. */
struct taps {
    int64_t size, stride;
    attnrun_dim n;
};

static bool is_index(const struct attn_graph *graph, int32_t value)
{
    const attnrun_type *t = match_type(graph, value);
    return t->kind == ATTNRUN_TENSOR && t->rank == 2 &&
           (t->dtype == ATTNRUN_I64 || t->dtype == ATTNRUN_I32);
}

/* Whether a constant is (size, 1) of k, or (size, n) of k + o * stride. */
static bool read_constant_taps(const struct attn_graph *graph, int32_t value,
                               struct taps *taps)
{
    if (!match_is_constant(graph, value) || !is_index(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    if (t->dims[0] < 1 || t->dims[1] < 1)
        return false;
    const int64_t n = t->dims[1], stride = n > 1 ? tensor_get_int(t, 1) : 1;
    *taps = (struct taps){ t->dims[0], stride, dim_of(n) };
    for (int64_t k = 0; k < taps->size; k++)
        for (int64_t o = 0; o < n && !attn_stops_node(k); o++)
            if (tensor_get_int(t, k * n + o) != k + o * stride)
                return false;
    return true;
}

/* Places (1, n) that count by `stride`, whose number the file computes. */
static bool read_places(const struct attn_graph *graph, int32_t value, struct taps *taps)
{
    double first, stride;
    const attnrun_type *t = match_type(graph, value);
    const struct attn_node *row = attn_graph_producer(graph, value);
    if (!is_index(graph, value) || !dim_is(t->dims[0], 1) || !node_is(row, "Unsqueeze"))
        return false;
    const struct attn_node *range = attn_match_in(graph, row, 0, "Range");
    if (range == NULL || range->pub.n_in != 3 ||
        !attn_value_scalar(graph, range->in[0], &first) || first < 0 || first > 0 ||
        !attn_value_scalar(graph, range->in[2], &stride) || stride < 1 || stride > 1e6)
        return false;
    taps->stride = (int64_t)stride;
    taps->n = t->dims[1];
    return true;
}

static bool read_taps(const struct attn_graph *graph, int32_t value, struct taps *taps)
{
    const struct attn_node *add = attn_graph_producer(graph, value);
    if (read_constant_taps(graph, value, taps))
        return true;
    for (int side = 0; node_is(add, "Add") && side < 2; side++)
        if (read_constant_taps(graph, add->in[side], taps) && dim_is(taps->n, 1) &&
            read_places(graph, add->in[1 - side], taps))
            return true;
    return false;
}

/* Whether there is a place for each `stride` pixels of a map. */
static bool covers(const struct attn_graph *graph, const struct taps *taps,
                   attnrun_dim pixels)
{
    return dim_equal(pixels, attn_dim_combine(graph->model->dims, DIM_MUL, taps->n,
                                              dim_of(taps->stride)));
}

/* Whether a Pad puts `by` zeros on each side of rows and columns, and does nothing
 * else. */
static bool pads_by(const struct attn_graph *graph, const struct attn_node *pad,
                    int64_t by)
{
    int64_t pads[2 * ATTNRUN_MAX_RANK];
    if (!attn_match_zero_pads(graph, pad, 4, pads))
        return false;
    for (int i = 0; i < 8; i++)
        if (pads[i] != (i % 4 < 2 ? 0 : by))
            return false;
    return true;
}

static bool has_perm(const struct attn_node *node)
{
    static const int64_t perm[] = { 0, 1, 2, 4, 3, 5 };
    const struct attn_attr *attr = attn_node_attr(node, "perm");
    return attr != NULL && attr->kind == ATTN_ATTR_INTS && attr->ints.n == 6 &&
           memcmp(attr->ints.v, perm, sizeof perm) == 0;
}

/* Finds the x whose neighbours are `value` (batch, C, K, K, h, w). */
static bool read_unfold(const struct attn_graph *graph, int32_t value,
                        struct involution_match *found)
{
    struct taps down, along;
    const struct attn_node *transpose = attn_graph_producer(graph, value);
    if (!node_is(transpose, "Transpose") || !has_perm(transpose))
        return false;
    const struct attn_node *columns = attn_match_in(graph, transpose, 0, "Gather");
    const struct attn_node *rows =
        columns ? attn_match_in(graph, columns, 0, "Gather") : NULL;
    const struct attn_node *pad = rows ? attn_match_in(graph, rows, 0, "Pad") : NULL;
    if (pad == NULL || attn_match_int(columns, "axis", 0) != 4 ||
        attn_match_int(rows, "axis", 0) != 2)
        return false;
    found->x = pad->in[0];
    if (!read_taps(graph, rows->in[1], &down) || down.stride < 1 ||
        !read_taps(graph, columns->in[1], &along) || along.stride != down.stride ||
        along.size != down.size || down.size % 2 == 0 || down.size > 31 ||
        !pads_by(graph, pad, (down.size - 1) / 2) ||
        !attn_match_is_f32_of(graph, found->x, 4))
        return false;
    found->size = down.size;
    found->stride = down.stride;
    found->n[0] = down.n;
    found->n[1] = along.n;
    const attnrun_dim *x = match_type(graph, found->x)->dims;
    return covers(graph, &down, x[2]) && covers(graph, &along, x[3]);
}

/* Reads the kernel (batch, groups, 1, K * K, h, w) from before its groups and taps were
 * separated. */
static bool read_kernel(const struct attn_graph *graph, int32_t value,
                        struct involution_match *found)
{
    const attnrun_dim *six = match_type(graph, value)->dims;
    found->kernel = before_reshapes(graph, value, 4);
    if (found->kernel < 0 || !dim_is(six[2], 1) ||
        !dim_is(six[3], found->size * found->size) || !dim_is_const(six[1]))
        return false;
    found->groups = six[1].value;
    const attnrun_dim *four = match_type(graph, found->kernel)->dims;
    return found->groups > 0 && dim_equal(four[0], six[0]) &&
           dim_is(four[1], found->groups * found->size * found->size) &&
           dim_equal(four[2], six[4]) && dim_equal(four[3], six[5]);
}

/* Checks neighbours (batch, groups, C / groups, K * K, h, w) of the same batch and
 * map. */
static bool sizes_fit(const struct attn_graph *graph, int32_t neighbours, int32_t kernel,
                      const struct involution_match *found)
{
    const attnrun_dim *u = match_type(graph, neighbours)->dims,
                      *k = match_type(graph, kernel)->dims,
                      *x = match_type(graph, found->x)->dims,
                      *y = match_type(graph, found->result)->dims;
    return dim_is_const(x[1]) && x[1].value % found->groups == 0 &&
           dim_equal(u[0], x[0]) && dim_equal(u[0], k[0]) &&
           dim_is(u[1], found->groups) && dim_is(u[2], x[1].value / found->groups) &&
           dim_equal(u[3], k[3]) && dim_equal(u[4], k[4]) && dim_equal(u[5], k[5]) &&
           dim_equal(u[4], found->n[0]) && dim_equal(u[5], found->n[1]) &&
           dim_equal(y[0], x[0]) && dim_equal(y[1], x[1]) && dim_equal(y[2], u[4]) &&
           dim_equal(y[3], u[5]);
}

/* Whether rows and columns are gathered into windows, which makes a node a candidate. */
static bool is_candidate(const struct attn_graph *graph, int32_t windows)
{
    const struct attn_node *transpose = attn_graph_producer(graph, windows);
    return node_is(transpose, "Transpose") &&
           attn_match_in(graph, transpose, 0, "Gather") != NULL;
}

static bool sums_taps(const struct attn_graph *graph, const struct attn_node *sum)
{
    double axis = -1;
    const struct attn_attr *axes = attn_node_attr(sum, "axes");
    if (axes != NULL && axes->kind == ATTN_ATTR_INTS && axes->ints.n == 1)
        axis = (double)axes->ints.v[0];
    else if (sum->pub.n_in < 2 || !attn_value_scalar(graph, sum->in[1], &axis))
        return false;
    return axis == 3 || axis == -3;
}

/* ---- how the kernel is made ---- */

static int32_t bias_of(const struct attn_node *conv)
{
    return conv->pub.n_in > 2 ? conv->in[2] : -1;
}

/* Replaces the kernel by w1, b1, w2, b2, if the graph makes it from them. */
static attn_status take_convolutions(struct attn_graph *graph, struct attn_node *before,
                                     const struct involution_match *found, int32_t in[6])
{
    int64_t rows[2];
    const struct attn_node *second = attn_graph_producer(graph, found->kernel);
    if (found->stride != 1 || !node_is(second, "Conv") ||
        graph->values[found->kernel].n_uses != 1 ||
        (graph->values[found->kernel].flags & ATTN_VALUE_OUTPUT) != 0)
        return ATTNRUN_OK;
    const struct attn_node *relu = attn_match_sole_in(graph, second, 0, "Relu");
    const struct attn_node *first =
        relu != NULL ? attn_match_sole_in(graph, relu, 0, "Conv") : NULL;
    if (first == NULL || !attn_match_pointwise(graph, second, &rows[1]) ||
        !attn_match_pointwise(graph, first, &rows[0]) || first->in[0] != found->x)
        return ATTNRUN_OK;
    const struct attn_node *const convs[] = { first, second };
    for (int i = 0; i < 2; i++) {
        const int64_t dims[2] = { rows[i], -1 };
        in[1 + 2 * i] = convs[i]->in[1];
        TRY(attn_match_as_f32(graph, &in[1 + 2 * i]));
        in[2 + 2 * i] = bias_of(convs[i]);
        TRY(attn_match_reshape(graph, before, 2, dims, &in[1 + 2 * i]));
    }
    in[5] = -1;
    return ATTNRUN_OK;
}

static attn_status try_sum(struct attn_graph *graph, struct attn_node *sum,
                           int32_t *applied)
{
    struct attn_node *times = attn_match_sole_in(graph, sum, 0, "Mul");
    struct attn_node *reshape = attn_match_user(graph, sum, "Reshape");
    struct involution_match found = { .x = -1 };
    const char *why = NULL;
    if (times == NULL || reshape == NULL || !sums_taps(graph, sum) ||
        !attn_match_is_f32_of(graph, times->in[0], 6) ||
        !attn_match_is_f32_of(graph, times->in[1], 6) ||
        !attn_match_is_f32_of(graph, reshape->out[0], 4))
        return ATTNRUN_OK;
    found.result = reshape->out[0];
    for (int side = 0; side < 2; side++) {
        const int32_t neighbours = times->in[side], kernel = times->in[1 - side];
        const int32_t unfolded = before_reshapes(graph, neighbours, 6);
        if (unfolded < 0 || !is_candidate(graph, unfolded))
            continue;
        why = !read_unfold(graph, unfolded, &found)
                  ? "its windows are not dense windows of odd size around each pixel"
              : !read_kernel(graph, kernel, &found) ||
                      !sizes_fit(graph, neighbours, kernel, &found)
                  ? "its kernel does not have groups and taps for each pixel"
                  : NULL;
        if (why != NULL)
            continue;
        int32_t in[6] = { found.x, -1, -1, -1, -1, found.kernel };
        const struct attn_attr attrs[] = { MATCH_INT("kernel_size", found.size),
                                           MATCH_INT("groups", found.groups),
                                           MATCH_INT("stride", found.stride) };
        struct attn_node *made;
        TRY(take_convolutions(graph, sum, &found, in));
        TRY(attn_match_make(graph, sum, "attnrun", "Involution", 6, in, found.result, 3,
                            attrs, &made));
        attn_match_replace(graph, found.result, made);
        ++*applied;
        return attn_graph_note(graph, sum, "involution", NULL);
    }
    return why != NULL ? attn_graph_note(graph, sum, "involution", why) : ATTNRUN_OK;
}

const struct attn_pass attn_pass_involution = { .name = "involution",
                                                .op_type = "ReduceSum",
                                                .try_node = try_sum };

/* fuse_selective_kernel.c - branches of maps that are added with weights from a softmax
 * across them become SKSelect of domain attnrun, which makes neither the stack of the
 * branches nor their sum:
 *
 *   F = stack of f_m        Z = act(w1 mean over pixels of (sum of f_m) + b1)
 *   Y = sum over m of softmax over m of (wsel_m Z + bsel_m) * F
 *
 * The stack is Concat of Unsqueezes in front of or behind the batch. The sum of its maps
 * is a ReduceSum of it or a chain of Adds. wsel is one product whose rows are divided by
 * branch, or one product for each branch. All weights are constants. If the branches are
 * convolutions of an input of the file, they stay: their sum makes them a region of maps
 * in blocks (blocked_layout.c), which gains more. */
#include "../../runtime/poll.h"
#include "map_gates.h"

enum { MIN_MAPS = 2, MAX_MAPS = 8, FIXED = 5 };

struct selective_kernel_match {
    int axis; /* of the branches in the stack */
    int n;    /* branches */
    int32_t f[MAX_MAPS], stack, result;
    attnrun_dim batch;
    int64_t channels;
    struct attn_dense_found first, select[MAX_MAPS];
    int n_select; /* 1: for all branches */
    bool relu;
};

/* What Concat and Unsqueeze along `axis` stack, of values of the rank; false: nothing. */
static bool read_stack(const struct attn_graph *graph, int32_t value, int axis, int rank,
                       int32_t *parts, int *n)
{
    double at;
    const struct attn_node *concat = attn_graph_producer(graph, value);
    if (!node_is(concat, "Concat") || concat->pub.n_in < MIN_MAPS ||
        concat->pub.n_in > MAX_MAPS || attn_match_int(concat, "axis", -9) != axis)
        return false;
    for (*n = 0; *n < concat->pub.n_in; ++*n) {
        const struct attn_node *one = attn_match_in(graph, concat, *n, "Unsqueeze");
        if (one == NULL || one->pub.n_in < 2 ||
            !attn_value_scalar(graph, one->in[1], &at) || at < axis || at > axis ||
            !attn_match_is_f32(graph, one->in[0]) ||
            match_type(graph, one->in[0])->rank != rank)
            return false;
        parts[*n] = one->in[0];
    }
    return true;
}

static bool read_maps(const struct attn_graph *graph,
                      struct selective_kernel_match *found)
{
    if (!read_stack(graph, found->stack, found->axis, 4, found->f, &found->n))
        return false;
    const attnrun_type *t = match_type(graph, found->f[0]);
    found->batch = t->dims[0];
    if (!dim_is_const(t->dims[1]) || t->dims[1].value < 1)
        return false;
    found->channels = t->dims[1].value;
    for (int i = 1; i < found->n; i++)
        if (!attn_match_same_shape(graph, found->f[0], found->f[i]))
            return false;
    return attn_match_same_shape(graph, found->f[0], found->result);
}

/* Whether `value` is a branch that is not seen yet; it is then. */
static bool see_branch(const struct selective_kernel_match *found, int32_t value,
                       bool *seen)
{
    for (int i = 0; i < found->n; i++)
        if (found->f[i] == value && !seen[i])
            return seen[i] = true;
    return false;
}

/* The sum of all branches, each once. */
static bool is_sum(const struct attn_graph *graph,
                   const struct selective_kernel_match *found, int32_t value)
{
    int axis;
    bool seen[MAX_MAPS] = { false };
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "ReduceSum"))
        return node->in[0] == found->stack && attn_match_axis(graph, node, &axis) &&
               axis == found->axis && attn_match_int(node, "keepdims", 1) == 0;
    for (int left = found->n; left > 1; left--) {
        node = attn_graph_producer(graph, value);
        if (!node_is(node, "Add") || node->pub.n_in != 2)
            return false;
        const int side = see_branch(found, node->in[0], seen) ? 0 : 1;
        if (side == 1 && !see_branch(found, node->in[1], seen))
            return false;
        value = node->in[1 - side];
    }
    return see_branch(found, value, seen);
}

/* The logits of all branches as one product, or as one for each; *z: what they are of. */
static bool read_select(const struct attn_graph *graph, int32_t value,
                        struct selective_kernel_match *found, int32_t *z)
{
    int32_t parts[MAX_MAPS], from;
    int n;
    const attnrun_type *t = match_type(graph, value);
    if (t->rank != 5 || !dim_is(t->dims[found->axis], found->n) ||
        !dim_equal(t->dims[1 - found->axis], found->batch) ||
        !dim_is(t->dims[2], found->channels) || !dim_is(t->dims[3], 1) ||
        !dim_is(t->dims[4], 1))
        return false;
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Reshape") && found->axis == 1) {
        const int64_t rows = found->n * found->channels;
        found->n_select = 1;
        return attn_is_vectors(graph, node->in[0], found->batch, rows) &&
               attn_dense_read(graph,
                               attn_before_views(graph, node->in[0], found->batch, rows),
                               found->batch, &found->select[0], z) &&
               found->select[0].rows == rows;
    }
    if (!read_stack(graph, value, found->axis, 4, parts, &n) || n != found->n)
        return false;
    found->n_select = n;
    for (int m = 0; m < n; m++) {
        const int32_t logits =
            attn_before_views(graph, parts[m], found->batch, found->channels);
        if (!attn_is_vectors(graph, parts[m], found->batch, found->channels) ||
            !attn_dense_read(graph, logits, found->batch, &found->select[m], &from) ||
            found->select[m].rows != found->channels)
            return false;
        from = attn_before_views(graph, from, found->batch, found->select[m].columns);
        if (m > 0 &&
            (from != *z || found->select[m].columns != found->select[0].columns ||
             (found->select[m].bias < 0) != (found->select[0].bias < 0)))
            return false;
        *z = from;
    }
    return true;
}

/* Z of the mean of the sum of the branches. */
static bool read_first(const struct attn_graph *graph, int32_t z,
                       struct selective_kernel_match *found)
{
    int32_t s;
    const int64_t hidden = found->select[0].columns;
    z = attn_before_views(graph, z, found->batch, hidden);
    const struct attn_node *node = attn_graph_producer(graph, z);
    found->relu = node_is(node, "Relu");
    if (found->relu)
        z = attn_before_views(graph, node->in[0], found->batch, hidden);
    if (!attn_dense_read(graph, z, found->batch, &found->first, &s) ||
        found->first.rows != hidden || found->first.columns != found->channels)
        return false;
    s = attn_before_views(graph, s, found->batch, found->channels);
    /* A pool has the map as its input, perhaps behind another one. */
    const struct attn_node *pool = attn_graph_producer(graph, s);
    for (int k = 0; k < 2 && pool != NULL && pool->pub.n_in > 0; k++) {
        if (attn_match_is_f32(graph, pool->in[0]) &&
            attn_match_same_shape(graph, found->f[0], pool->in[0]) &&
            attn_pooled_read(graph, pool->in[0], s) == ATTN_POOLED_MEAN)
            return is_sum(graph, found, pool->in[0]);
        pool = attn_graph_producer(graph, pool->in[0]);
    }
    return false;
}

static bool selective_kernel_read_all(const struct attn_graph *graph,
                                      const struct attn_node *sum,
                                      struct selective_kernel_match *found)
{
    const struct attn_node *times = attn_match_sole_in(graph, sum, 0, "Mul");
    int32_t z = -1;
    if (times == NULL || times->pub.n_in != 2 ||
        attn_match_int(sum, "keepdims", 1) != 0 ||
        match_type(graph, times->out[0])->rank != 5)
        return false;
    if (!attn_match_axis(graph, sum, &found->axis) || found->axis > 1)
        return false;
    found->result = sum->out[0];
    for (int side = 0; side < 2; side++) {
        const struct attn_node *softmax = attn_match_in(graph, times, side, "Softmax");
        found->stack = times->in[1 - side];
        if (softmax == NULL || softmax->pub.opset < 13 ||
            (attn_match_int(softmax, "axis", -1) + 5) % 5 != found->axis)
            continue;
        if (read_maps(graph, found) && read_select(graph, softmax->in[0], found, &z) &&
            read_first(graph, z, found))
            return true;
    }
    return false;
}

/* wsel (M, C, d) and bsel (M, C), or -1. */
static attn_status make_select(struct attn_graph *graph,
                               const struct selective_kernel_match *found, int32_t *wsel,
                               int32_t *bsel)
{
    const int64_t columns = found->select[0].columns, rows = found->channels;
    const int64_t dims[3] = { found->n, rows, columns };
    void *w, *b = NULL;
    *bsel = -1;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 3, dims, wsel, &w));
    if (found->select[0].bias >= 0)
        TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 2, dims, bsel, &b));
    for (int m = 0; m < found->n_select; m++) {
        const int64_t made = found->select[m].rows;
        int32_t one, bias;
        TRY(attn_dense_make(graph, &found->select[m], &one, &bias));
        TRY(attn_poll_copy((float *)w + m * rows * columns, graph->values[one].data.data,
                           made * columns * (int64_t)sizeof(float)));
        if (b != NULL)
            memcpy((float *)b + m * rows, graph->values[bias].data.data,
                   (size_t)made * sizeof(float));
    }
    return ATTNRUN_OK;
}

/* Convolutions of what no convolution gives are in blocks by the sum that joins them alone. */
static bool needs_sum(const struct attn_graph *graph,
                      const struct selective_kernel_match *found)
{
    int alone = 0;
    for (int i = 0; i < found->n; i++) {
        const struct attn_node *conv = attn_conv_before(graph, found->f[i]);
        alone += conv != NULL && attn_conv_before(graph, conv->in[0]) == NULL;
    }
    return alone > 1;
}

static attn_status try_sum(struct attn_graph *graph, struct attn_node *sum,
                           int32_t *applied)
{
    struct selective_kernel_match found = { .n = 0 };
    if (!selective_kernel_read_all(graph, sum, &found))
        return ATTNRUN_OK;
    if (needs_sum(graph, &found))
        return attn_graph_note(graph, sum, "selective_kernel",
                               "its sum joins convolutions to a region of blocked maps");
    TRY(attn_graph_note(graph, sum, "selective_kernel", NULL));
    int32_t in[FIXED + MAX_MAPS] = { -1, -1, -1, -1, -1 };
    const struct attn_attr act = MATCH_STRING("activation", found.relu ? "relu" : "none");
    struct attn_node *made;
    TRY(attn_dense_make(graph, &found.first, &in[0], &in[1]));
    TRY(make_select(graph, &found, &in[2], &in[3]));
    memcpy(in + FIXED, found.f, (size_t)found.n * sizeof *in);
    TRY(attn_match_make(graph, sum, "attnrun", "SKSelect", FIXED + found.n, in,
                        found.result, 1, &act, &made));
    attn_match_replace(graph, found.result, made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_selective_kernel = { .name = "selective_kernel",
                                                      .op_type = "ReduceSum",
                                                      .try_node = try_sum };

/* merge_convs.c - convolutions of one map whose results are added become one convolution, whose
 * weights are the sums:
 *
 *   Add(Conv(x, W, b), Conv(x, V, c))                    Conv(x, W + V, b + c)
 *   Add(Conv(x, W, b), BatchNormalization(x))            Conv(x, W + its factors, b + its shifts)
 *
 * The taps of V may be some of those of W: 1 x 1 beside 3 x 3, as RepVGG, MobileOne and other
 * networks have that are trained with branches. In: the nodes. Out: one node, and new weights of
 * the size of the larger ones. */
#include "../../runtime/poll.h"
#include "batch_norm.h"

/* A convolution, or a normalization, which is one of a tap that takes each channel by itself. */
struct branch {
    const struct attn_node *node;
    const attnrun_tensor *w; /* NULL: a normalization */
    const float *bias;       /* or NULL */
    struct batch_norm norm;
};

static bool read_conv(const struct attn_graph *graph, const struct attn_node *node,
                      struct branch *b)
{
    if (!node_is(node, "Conv") || node->pub.n_in < 2 || node->in[1] < 0 ||
        !match_is_constant(graph, node->in[1]) || !attn_match_explicit_pads(node) ||
        !match_may_copy(graph, node->in[1]))
        return false;
    b->w = &graph->values[node->in[1]].data;
    if (b->w->dtype != ATTNRUN_F32 || b->w->rank < 3 || tensor_count(b->w) < 1)
        return false;
    if (node->pub.n_in < 3 || node->in[2] < 0)
        return true;
    const attnrun_tensor *bias = &graph->values[node->in[2]].data;
    if (!match_is_constant(graph, node->in[2]) || bias->dtype != ATTNRUN_F32 ||
        bias->rank != 1 || bias->dims[0] != b->w->dims[0])
        return false;
    b->bias = bias->data;
    return true;
}

/* What gives `value` to `add` alone. */
static bool read_branch(const struct attn_graph *graph, const struct attn_node *add,
                        int32_t value, struct branch *b)
{
    *b = (struct branch){ .node = attn_graph_producer(graph, value) };
    if (b->node == NULL || b->node->out[0] != value ||
        attn_graph_only_user(graph, value) != add || !attn_match_is_f32(graph, value))
        return false;
    if (read_conv(graph, b->node, b))
        return true;
    const attnrun_type *x = &graph->values[b->node->in[0]].type;
    b->w = NULL;
    if (!node_is(b->node, "BatchNormalization") || x->rank < 3 ||
        !dim_is_const(x->dims[1]))
        return false;
    b->norm.channels = x->dims[1].value;
    return attn_match_batch_norm(graph, b->node, &b->norm);
}

static int64_t taps_of(const struct branch *b, int axis)
{
    return b->w != NULL ? b->w->dims[axis + 2] : 1;
}

/* Where the taps of `small` lie in those of `large`, and whether they do, on one axis. */
static bool find_taps(const struct branch *large, const struct branch *small, int axis,
                      int n, int64_t *at)
{
    const int64_t of_large = attn_match_int_at(large->node, "dilations", axis, 1);
    const int64_t of_small =
        small->w != NULL ? attn_match_int_at(small->node, "dilations", axis, 1) : 1;
    int64_t before[2], after[2];
    for (int i = 0; i < 2; i++) {
        const struct branch *b = i == 0 ? large : small;
        before[i] = b->w != NULL ? attn_match_int_at(b->node, "pads", axis, 0) : 0;
        after[i] = b->w != NULL ? attn_match_int_at(b->node, "pads", axis + n, 0) : 0;
        if (before[i] < 0 || before[i] > INT32_MAX || after[i] < 0 ||
            after[i] > INT32_MAX)
            return false;
    }
    const int64_t many = taps_of(large, axis), few = taps_of(small, axis);
    if (of_large < 1 || of_large > INT32_MAX || (few > 1 && of_small != of_large) ||
        (before[0] - before[1]) % of_large != 0)
        return false;
    *at = (before[0] - before[1]) / of_large;
    return *at >= 0 && *at + few <= many &&
           before[0] + after[0] - (many - 1) * of_large ==
               before[1] + after[1] - (few - 1) * of_large;
}

/* The same on all axes; and both convolve the same channels with the same strides. */
static bool fits(const struct branch *large, const struct branch *small, int64_t *at)
{
    const attnrun_tensor *w = large->w;
    const int n = w != NULL ? w->rank - 2 : 0;
    if (w == NULL || large->node->in[0] != small->node->in[0])
        return false;
    const int64_t group = attn_match_int(large->node, "group", 1);
    if (group < 1 || w->dims[0] % group != 0)
        return false;
    if (small->w == NULL && (small->norm.channels != w->dims[0] ||
                             small->norm.channels != w->dims[1] * group ||
                             !attn_match_all(large->node, "strides", 1)))
        return false;
    if (small->w != NULL &&
        (small->w->rank != w->rank || small->w->dims[0] != w->dims[0] ||
         small->w->dims[1] != w->dims[1] ||
         attn_match_int(small->node, "group", 1) != group))
        return false;
    for (int i = 0; i < n; i++)
        if (!find_taps(large, small, i, n, &at[i]) ||
            (small->w != NULL && attn_match_int_at(large->node, "strides", i, 1) !=
                                     attn_match_int_at(small->node, "strides", i, 1)))
            return false;
    return true;
}

/* The place among the taps of `large` of tap `tap` of `small`. */
static int64_t place_of(const struct branch *large, const struct branch *small,
                        const int64_t *at, int64_t tap)
{
    int64_t place = 0, stride = 1;
    for (int i = large->w->rank - 3; i >= 0; i--) {
        place += (tap % taps_of(small, i) + at[i]) * stride;
        tap /= taps_of(small, i);
        stride *= taps_of(large, i);
    }
    return place;
}

/* Adds the weights of `small`; a normalization has one tap of each channel to itself. */
static attn_status add_weights(const struct branch *large, const struct branch *small,
                               const int64_t *at, float *to)
{
    const attnrun_tensor *w = large->w;
    const int64_t taps = tensor_dims_product(w, 2, w->rank), columns = w->dims[1];
    const int64_t place = place_of(large, small, at, 0);
    if (small->w == NULL) {
        const int64_t of_group = w->dims[0] / attn_match_int(large->node, "group", 1);
        for (int64_t c = 0; c < w->dims[0] && !attn_stops(c); c++) {
            double factor, shift;
            attn_batch_norm_channel(&small->norm, c, &factor, &shift);
            float *x = &to[(c * columns + c % of_group) * taps + place];
            *x = (float)((double)*x + factor);
        }
        return ATTNRUN_OK;
    }
    const int64_t few = tensor_dims_product(small->w, 2, w->rank);
    for (int64_t i = 0; i < w->dims[0] * columns; i++) {
        TRY(attn_poll_work(few * (int64_t)sizeof(float)));
        for (int64_t tap = 0; tap < few && !attn_stops(tap); tap++)
            to[i * taps + place_of(large, small, at, tap)] +=
                match_f32_at(small->w, i * few + tap);
    }
    return ATTNRUN_OK;
}

static float bias_at(const struct branch *b, int64_t c)
{
    float x = 0.0f;
    double factor, shift;
    if (b->bias != NULL)
        memcpy(&x, b->bias + c, sizeof x);
    if (b->w != NULL)
        return x;
    attn_batch_norm_channel(&b->norm, c, &factor, &shift);
    return (float)shift;
}

static attn_status merge_branches(struct attn_graph *graph, struct attn_node *add,
                                  struct branch *large, struct branch *small,
                                  const int64_t *at)
{
    const struct attn_node *conv = large->node;
    const attnrun_tensor w = *large->w, v = small->w != NULL ? *small->w : w;
    int32_t in[3] = { conv->in[0], -1, -1 };
    void *weights, *bias;
    struct attn_node *made;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, w.rank, w.dims, &in[1], &weights));
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 1, w.dims, &in[2], &bias));
    large->w = &w; /* values may have moved */
    if (small->w != NULL)
        small->w = &v;
    TRY(attn_poll_copy(weights, w.data, tensor_bytes(&w)));
    TRY(add_weights(large, small, at, weights));
    for (int64_t c = 0; c < w.dims[0] && !attn_stops(c); c++)
        ((float *)bias)[c] = bias_at(large, c) + bias_at(small, c);
    TRY(attn_match_make(graph, add, "", "Conv", 3, in, add->out[0], conv->n_attrs,
                        conv->attrs, &made));
    attn_match_replace(graph, add->out[0], made);
    return ATTNRUN_OK;
}

static attn_status try_add(struct attn_graph *graph, struct attn_node *add,
                           int32_t *applied)
{
    int64_t at[ATTNRUN_MAX_RANK];
    struct branch b[2];
    if (!node_is(add, "Add") || add->pub.opset < 7 || add->in[0] == add->in[1])
        return ATTNRUN_OK;
    for (int i = 0; i < 2; i++)
        if (!read_branch(graph, add, add->in[i], &b[i]))
            return ATTNRUN_OK;
    for (int i = 0; i < 2; i++)
        if (fits(&b[i], &b[1 - i], at)) {
            ++*applied;
            return merge_branches(graph, add, &b[i], &b[1 - i], at);
        }
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_merge_convs = { .name = "merge_convs",
                                                 .try_node = try_add,
                                                 .portable = true };

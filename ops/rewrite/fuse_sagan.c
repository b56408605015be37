/* fuse_sagan.c - attention of the pixels of a map, with its projections and what is added behind
 * it, becomes SAGANAttention, which reads the map as it lies:
 *
 *   Y = gamma A + x,   A = FusedAttention of q, k and v, which are convolutions of one tap of x
 *
 * k and v may be pooled by 2 x 2 where the sides of the map are even numbers. gamma is a number;
 * the product may be missing. Behind the pass "attention", which has put Transposes of pixels and
 * channels around FusedAttention. In: maps of constant channels, dense convolutions with constant
 * weights, a scale and no mask. Out: SAGANAttention, without three maps and their Transposes.
 * Source: heykeetae/Self-Attention-GAN, ajbrock/BigGAN-PyTorch (without its last projection), and
 * junfu1115/DANet. */
#include "match.h"

struct sagan_match {
    int32_t x, in[6]; /* wq, bq, wk, bk, wv, bv; -1: no bias */
    bool pooled[3];   /* q, k, v */
    double gamma;
    int32_t result;
};

static bool swaps_pixels(const struct attn_node *node)
{
    static const int64_t perm[] = { 0, 2, 1 };
    const struct attn_attr *attr = node ? attn_node_attr(node, "perm") : NULL;
    return node_is(node, "Transpose") && attr != NULL && attr->kind == ATTN_ATTR_INTS &&
           attr->ints.n == 3 && memcmp(attr->ints.v, perm, sizeof perm) == 0;
}

/* Whether a node takes the largest of 2 x 2 pixels each, of a map of even sides. */
static bool pools_by_two(const struct attn_graph *graph, const struct attn_node *node)
{
    if (!node_is(node, "MaxPool") || node->pub.n_out != 1 ||
        !attn_match_is_map(graph, node->in[0]) || !attn_match_explicit_pads(node) ||
        attn_node_attr(node, "kernel_shape") == NULL ||
        attn_node_attr(node, "strides") == NULL ||
        !attn_match_all(node, "kernel_shape", 2) || !attn_match_all(node, "strides", 2) ||
        !attn_match_all(node, "pads", 0) || !attn_match_all(node, "dilations", 1))
        return false;
    const attnrun_dim *d = match_type(graph, node->in[0])->dims;
    return dim_is_const(d[2]) && dim_is_const(d[3]) && d[2].value % 2 == 0 &&
           d[3].value % 2 == 0;
}

/* The map whose channels, behind its pixels, are `value` (1, batch, pixels, channels); -1: none. */
static int32_t map_of(const struct attn_graph *graph, int32_t value)
{
    const struct attn_node *raised = attn_graph_producer(graph, value);
    if (!node_is(raised, "Unsqueeze") || match_type(graph, value)->rank != 4 ||
        !dim_is(match_type(graph, value)->dims[0], 1))
        return -1;
    const struct attn_node *swap = attn_match_in(graph, raised, 0, "Transpose");
    const struct attn_node *flat =
        swaps_pixels(swap) ? attn_match_in(graph, swap, 0, "Reshape") : NULL;
    if (flat == NULL || !attn_match_is_map(graph, flat->in[0]))
        return -1;
    const attnrun_dim *three = match_type(graph, flat->out[0])->dims,
                      *four = match_type(graph, flat->in[0])->dims;
    return dim_equal(three[0], four[0]) && dim_equal(three[1], four[1]) ? flat->in[0]
                                                                        : -1;
}

/* Operand i of the attention as a convolution of x. */
static bool read_projection(const struct attn_graph *graph,
                            const struct attn_node *attention, int i,
                            struct sagan_match *found)
{
    int64_t rows;
    int32_t map = map_of(graph, attention->in[i]);
    if (map >= 0 && i > 0 && pools_by_two(graph, attn_graph_producer(graph, map))) {
        found->pooled[i] = true;
        map = attn_graph_producer(graph, map)->in[0];
    }
    const struct attn_node *conv = map >= 0 ? attn_graph_producer(graph, map) : NULL;
    if (!node_is(conv, "Conv") || !attn_match_pointwise(graph, conv, &rows) ||
        (found->x >= 0 && conv->in[0] != found->x))
        return false;
    found->x = conv->in[0];
    found->in[2 * i] = conv->in[1];
    found->in[2 * i + 1] = conv->pub.n_in > 2 ? conv->in[2] : -1;
    return i < 2 || dim_is(match_type(graph, found->x)->dims[1], rows);
}

/* The map that the attention's result becomes, which nothing else reads; NULL: none. */
static struct attn_node *map_behind(const struct attn_graph *graph,
                                    const struct attn_node *attention)
{
    struct attn_node *squeeze = attn_match_user(graph, attention, "Squeeze");
    struct attn_node *swap =
        squeeze != NULL ? attn_match_user(graph, squeeze, "Transpose") : NULL;
    return swaps_pixels(swap) ? attn_match_user(graph, swap, "Reshape") : NULL;
}

/* gamma times the map plus x, or the map plus x. */
static bool read_result(const struct attn_graph *graph, const struct attn_node *map,
                        struct sagan_match *found)
{
    int32_t other;
    const struct attn_node *times = attn_match_user(graph, map, "Mul");
    const struct attn_node *last = map;
    found->gamma = 1;
    if (!attn_match_same_shape(graph, map->out[0], found->x))
        return false;
    if (times != NULL) {
        if (!attn_match_scalar(graph, times, true, &found->gamma, &other) ||
            !attn_match_same_rank(graph, times->out[0], map->out[0]))
            return false;
        last = times;
    }
    const struct attn_node *add = attn_match_user(graph, last, "Add");
    if (add == NULL || attn_match_other(add, last->out[0]) != found->x)
        return false;
    found->result = add->out[0];
    return true;
}

static attn_status replace_by_sagan(struct attn_graph *graph, struct attn_node *attention,
                                    const struct sagan_match *found)
{
    int32_t in[8] = { found->x };
    void *data;
    struct attn_node *made;
    const float gamma = (float)found->gamma;
    const struct attn_attr attrs[] = {
        MATCH_INT("kv_pool", found->pooled[1] ? 2 : 1),
        MATCH_FLOAT("scale", attn_match_float(attention, "scale", 1.0f)),
    };
    for (int i = 0; i < 3; i++) {
        const int64_t dims[2] = { graph->values[found->in[2 * i]].data.dims[0], -1 };
        in[1 + 2 * i] = found->in[2 * i];
        in[2 + 2 * i] = found->in[2 * i + 1];
        TRY(attn_match_as_f32(graph, &in[1 + 2 * i]));
        TRY(attn_match_reshape(graph, attention, 2, dims, &in[1 + 2 * i]));
    }
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &in[7], &data));
    memcpy(data, &gamma, sizeof gamma);
    TRY(attn_match_make(graph, attention, "attnrun", "SAGANAttention", 8, in,
                        found->result, 2, attrs, &made));
    attn_match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

static attn_status try_sagan(struct attn_graph *graph, struct attn_node *attention,
                             int32_t *applied)
{
    struct sagan_match found = { .x = -1 };
    if (!node_is_of(attention, "attnrun.fused", "FusedAttention"))
        return ATTNRUN_OK;
    const struct attn_node *map = map_behind(graph, attention);
    if (attention->pub.n_in != 3 || map == NULL || attention->n_attrs != 2 ||
        attn_match_int(attention, "nan_rows", 0) < 0)
        return ATTNRUN_OK;
    for (int i = 0; i < 3; i++)
        if (!read_projection(graph, attention, i, &found))
            return ATTNRUN_OK;
    if (found.pooled[1] != found.pooled[2] || !read_result(graph, map, &found))
        return ATTNRUN_OK;
    ++*applied;
    return replace_by_sagan(graph, attention, &found);
}

const struct attn_pass attn_pass_sagan = { .name = "sagan", .try_node = try_sagan };

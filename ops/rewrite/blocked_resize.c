/* blocked_resize.c - Resize and Upsample of maps in blocks of 16 channels.
 * blocked_layout.c has the whole pass. Batch and channels keep their sizes. Height and
 * width get the scales or sizes of the node, which are attributes or inputs.
 *
 *   scales   constants; of batch and channels 1
 *   sizes    constants, or any value if the types prove that batch and channels keep
 *            their sizes
 *
 * In: a node of the graph. Out: whether it has that form, and the node that replaces it.
 */
#include "../kernels/kernel_types.h"
#include "blocked_layout.h"

/* What a node states about height and width. */
struct blocked_resize_target {
    bool by_scales;
    float scales[2];
    int32_t sizes; /* the input, or -1 */
    int places[2]; /* of height and width in sizes */
    int64_t n;     /* numbers in scales or sizes */
};

static bool is_old(const struct attn_node *node)
{
    return node_is(node, "Upsample") || node->pub.opset < 11;
}

/* Finds height and width among the axes that the node names; -1: the axis is not
 * named. */
static bool find_places(const struct attn_node *node, struct blocked_resize_target *t)
{
    const struct attn_attr *axes = attn_node_attr(node, "axes");
    t->places[0] = 2;
    t->places[1] = 3;
    t->n = 4;
    if (axes == NULL)
        return true;
    if (axes->kind != ATTN_ATTR_INTS || axes->ints.n > 4)
        return false;
    t->places[0] = t->places[1] = -1;
    t->n = axes->ints.n;
    for (int i = 0; i < t->n; i++) {
        const int64_t axis = axes->ints.v[i] + (axes->ints.v[i] < 0 ? 4 : 0);
        if (axis == 2 || axis == 3)
            t->places[axis - 2] = i;
    }
    return true;
}

static bool takes_scales(struct blocked_resize_target *t, const float *scales, int64_t n)
{
    if (n != t->n)
        return false;
    for (int i = 0; i < n; i++)
        if (i != t->places[0] && i != t->places[1] &&
            (scales[i] < 1.0f || scales[i] > 1.0f || scales[i] != scales[i]))
            return false;
    for (int i = 0; i < 2; i++)
        t->scales[i] = t->places[i] >= 0 ? scales[t->places[i]] : 1.0f;
    t->by_scales = true;
    return true;
}

static bool is_empty(const struct attn_graph *graph, const struct attn_node *node, int in)
{
    if (in >= node->pub.n_in || node->in[in] < 0)
        return true;
    const attnrun_type *t = &graph->values[node->in[in]].type;
    return t->rank == 1 && dim_is(t->dims[0], 0);
}

static bool find_target(const struct attn_graph *graph, const struct attn_node *node,
                        struct blocked_resize_target *t)
{
    const struct attn_attr *attr = attn_node_attr(node, "scales");
    const int at = is_old(node) ? 1 : 2;
    float scales[4];
    t->by_scales = false;
    t->sizes = -1;
    if (!find_places(node, t))
        return false;
    if (attr != NULL)
        return attr->kind == ATTN_ATTR_FLOATS && attr->floats.n == 4 &&
               takes_scales(t, attr->floats.v, 4);
    if (at == 2 && !is_empty(graph, node, 3)) {
        const attnrun_type *type = &graph->values[node->in[3]].type;
        t->sizes = node->in[3];
        return t->places[0] >= 0 && t->places[1] >= 0 && type->dtype == ATTNRUN_I64 &&
               type->rank == 1 && dim_is(type->dims[0], t->n);
    }
    if (is_empty(graph, node, at) || !match_is_constant(graph, node->in[at]))
        return false;
    const attnrun_tensor *given = &graph->values[node->in[at]].data;
    if (given->dtype != ATTNRUN_F32 || given->rank != 1 || given->dims[0] != t->n)
        return false;
    for (int i = 0; i < t->n; i++)
        scales[i] = match_f32_at(given, i);
    return takes_scales(t, scales, t->n);
}

bool attn_resize_is(const struct layout *l, const struct attn_node *node)
{
    const struct attn_attr *policy = attn_node_attr(node, "keep_aspect_ratio_policy");
    struct blocked_resize_target t;
    if ((!node_is(node, "Resize") && !node_is(node, "Upsample")) ||
        !layout_is_member_map(l, node->in[0]) || !layout_is_map(l, node->out[0]) ||
        node->n_attrs > BLOCKED_MAX_ATTRS - 3)
        return false;
    const attnrun_type *x = layout_type(l, node->in[0]);
    const attnrun_type *y = layout_type(l, node->out[0]);
    return dim_equal(x->dims[0], y->dims[0]) && dim_equal(x->dims[1], y->dims[1]) &&
           !attn_match_string(node, "coordinate_transformation_mode",
                              "tf_crop_and_resize") &&
           (policy == NULL ||
            attn_match_string(node, "keep_aspect_ratio_policy", "stretch")) &&
           find_target(l->graph, node, &t);
}

/* ---- what takes its place ---- */

/* Makes the sizes of height and width: two numbers of a constant, or two elements of
 * another value. */
static attn_status make_sizes(struct layout *l, struct attn_node *node,
                              const struct blocked_resize_target *t, int32_t *sizes)
{
    const bool constant = match_is_constant(l->graph, t->sizes);
    struct attn_node *made;
    int32_t in[2] = { t->sizes, -1 };
    int64_t numbers[2] = { t->places[0], t->places[1] };
    for (int i = 0; constant && i < 2; i++)
        numbers[i] = tensor_get_int(&l->graph->values[t->sizes].data, t->places[i]);
    TRY(attn_match_ints(l->graph, 2, numbers, &in[1]));
    *sizes = in[1];
    if (constant)
        return ATTNRUN_OK;
    TRY(attn_graph_add_value(l->graph, NULL, sizes));
    return attn_graph_insert(l->graph, node, "", "Gather", 2, in, 1, sizes, 0, NULL,
                             &made);
}

attn_status attn_resize_rewrite(struct layout *l, struct attn_node *node, int32_t out)
{
    static const int64_t axes[2] = { 2, 3 }, two = 2;
    struct attn_attr attrs[BLOCKED_MAX_ATTRS];
    struct blocked_resize_target t;
    int32_t n = 0, in[3] = { -1, -1, -1 };
    void *data;
    if (!find_target(l->graph, node, &t))
        return ATTNRUN_OK;
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "axes") != 0 &&
            strcmp(node->attrs[i].name, "scales") != 0)
            attrs[n++] = node->attrs[i];
    if (is_old(node) && attn_node_attr(node, "coordinate_transformation_mode") == NULL)
        attrs[n++] = (struct attn_attr)MATCH_STRING("coordinate_transformation_mode",
                                                    "asymmetric");
    if (is_old(node) && attn_node_attr(node, "nearest_mode") == NULL)
        attrs[n++] = (struct attn_attr)MATCH_STRING("nearest_mode", "floor");
    attrs[n++] =
        (struct attn_attr){ .name = "axes", .kind = ATTN_ATTR_INTS, .ints = { axes, 2 } };
    if (t.by_scales) {
        TRY(attn_graph_new_constant(l->graph, ATTNRUN_F32, 1, &two, &in[1], &data));
        memcpy(data, t.scales, sizeof t.scales);
    } else {
        TRY(make_sizes(l, node, &t, &in[2]));
    }
    TRY(attn_layout_blocked(l, node, node->in[0], &in[0]));
    return attn_layout_insert(l, node, "BlockedResize", t.by_scales ? 2 : 3, in, out, n,
                              attrs);
}

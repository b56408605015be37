/* attention_heads.c - attention reads its operands where they lie. Operands that Reshape
 * and Transpose split into heads are (batch, tokens, heads * dim) before that, or
 * (tokens, batch, …) in nn.MultiheadAttention, or some columns of a wider product. The
 * pass finds this for each operand alone. It also takes keys and values from before their
 * heads are repeated. The result returns in the same way. This removes four transposes
 * and a Split.
 *
 * In: FusedAttention, or Attention without a past or present, which becomes
 * FusedAttention. Out: the same node with by-token operands. Exact. */
#include <math.h>

#include "write_mask.h"
#include "match.h"

enum { AS_GIVEN, BY_TOKEN, TOKENS_FIRST, JOINED }; /* of FusedAttention */

struct attention_heads_operand {
    int32_t value;
    int64_t layout, column;
    bool flat; /* of rank 3 */
};

static const attnrun_dim *dims_of(const struct attn_graph *graph, int32_t value)
{
    return graph->values[value].type.dims;
}

static int rank_of(const struct attn_graph *graph, int32_t value)
{
    const struct attn_value *v = &graph->values[value];
    return v->type.kind == ATTNRUN_TENSOR ? v->type.rank : -1;
}

static bool transposes(const struct attn_node *node, const char *perm)
{
    const struct attn_attr *attr = node ? attn_node_attr(node, "perm") : NULL;
    const int64_t n = (int64_t)strlen(perm);
    if (!node_is(node, "Transpose") || attr == NULL || attr->kind != ATTN_ATTR_INTS ||
        attr->ints.n != n)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (attr->ints.v[i] != perm[i] - '0')
            return false;
    return true;
}

/* The value from which a Split along the last dim of rank 3 cuts `value`; *column: its
 * first column there. */
static int32_t unsplit(const struct attn_graph *graph, int32_t value, int64_t *column)
{
    const struct attn_node *split = attn_graph_producer(graph, value);
    if (!node_is(split, "Split") || rank_of(graph, value) != 3)
        return -1;
    int64_t axis = attn_match_int(split, "axis", 0);
    if (axis != 2 && axis != -1)
        return -1;
    *column = 0;
    for (int32_t out = 0; out < split->pub.n_out; out++) {
        if (split->out[out] == value)
            return split->in[0];
        if (split->out[out] < 0 || !dim_is_const(dims_of(graph, split->out[out])[2]))
            return -1;
        *column += dims_of(graph, split->out[out])[2].value;
    }
    return -1;
}

/* The value (tokens, batch, parts * width) of which `value` is a part, as
 * nn.MultiheadAttention cuts it: Reshape (…, parts, width), Unsqueeze, Transpose, Squeeze
 * (parts, …), Gather. */
static int32_t unpacked(const struct attn_graph *graph, int32_t value, int64_t *column)
{
    double part;
    struct attn_node *gather = attn_graph_producer(graph, value);
    if (!node_is(gather, "Gather") || attn_match_int(gather, "axis", 0) != 0 ||
        rank_of(graph, value) != 3 || !attn_value_scalar(graph, gather->in[1], &part))
        return -1;
    struct attn_node *squeeze = attn_match_in(graph, gather, 0, "Squeeze");
    struct attn_node *transpose =
        squeeze ? attn_match_in(graph, squeeze, 0, "Transpose") : NULL;
    struct attn_node *wide =
        transpose ? attn_match_in(graph, transpose, 0, "Unsqueeze") : NULL;
    struct attn_node *cut = wide ? attn_match_in(graph, wide, 0, "Reshape") : NULL;
    if (cut == NULL || !transposes(transpose, "31204") ||
        rank_of(graph, cut->out[0]) != 4 || rank_of(graph, cut->in[0]) != 3 ||
        !dim_is(dims_of(graph, wide->out[0])[0], 1))
        return -1;
    const attnrun_dim *four = dims_of(graph, cut->out[0]),
                      *three = dims_of(graph, cut->in[0]),
                      *five = dims_of(graph, wide->out[0]), *one = dims_of(graph, value);
    if (!dim_equal(four[0], three[0]) || !dim_equal(four[1], three[1]) ||
        !dim_equal(five[1], four[0]) || !dim_equal(five[2], four[1]) ||
        !dim_equal(five[3], four[2]) || !dim_equal(one[0], four[0]) ||
        !dim_equal(one[1], four[1]) || !dim_is_const(four[2]) || !dim_is_const(four[3]))
        return -1;
    part += part < 0 ? (double)four[2].value : 0;
    if (part < 0 || part >= (double)four[2].value || !dim_equal(one[2], four[3]))
        return -1;
    *column = (int64_t)part * four[3].value;
    return cut->in[0];
}

/* Takes a value of rank 3 that has all heads side by side, or the value that it is cut
 * from. */
static void take_flat(const struct attn_graph *graph, int32_t flat, int64_t layout,
                      struct attention_heads_operand *o)
{
    int64_t column;
    *o =
        (struct attention_heads_operand){ .value = flat, .layout = layout, .flat = true };
    int32_t from = unsplit(graph, flat, &column);
    if (from < 0)
        from = unpacked(graph, flat, &column);
    if (from < 0 || !attn_match_is_f32(graph, from))
        return;
    o->value = from;
    o->column = column;
}

/* Reads (batch, tokens, heads, dim) that a Slice and a Squeeze cut from (batch, tokens,
 * parts, heads, dim), which is (batch, tokens, columns) of rank 3. */
static bool read_part(const struct attn_graph *graph, int32_t value,
                      struct attention_heads_operand *o)
{
    double start, axis, step = 1;
    struct attn_node *squeeze = attn_graph_producer(graph, value);
    struct attn_node *slice =
        node_is(squeeze, "Squeeze") ? attn_match_in(graph, squeeze, 0, "Slice") : NULL;
    if (slice == NULL || slice->pub.n_in < 4 || rank_of(graph, value) != 4 ||
        !attn_value_scalar(graph, slice->in[1], &start) ||
        !attn_value_scalar(graph, slice->in[3], &axis) ||
        ((axis < 2 || axis > 2) && (axis < -3 || axis > -3)) ||
        (slice->pub.n_in > 4 && slice->in[4] >= 0 &&
         (!attn_value_scalar(graph, slice->in[4], &step) || step < 1)))
        return false;
    struct attn_node *reshape = attn_match_in(graph, slice, 0, "Reshape");
    if (reshape == NULL || rank_of(graph, reshape->out[0]) != 5 ||
        rank_of(graph, reshape->in[0]) != 3 || !attn_match_is_f32(graph, reshape->in[0]))
        return false;
    const attnrun_dim *five = dims_of(graph, reshape->out[0]),
                      *flat = dims_of(graph, reshape->in[0]),
                      *cut = dims_of(graph, slice->out[0]), *four = dims_of(graph, value);
    if (!dim_equal(five[0], flat[0]) || !dim_equal(five[1], flat[1]) ||
        !dim_is(cut[2], 1) || !dim_equal(four[0], five[0]) ||
        !dim_equal(four[1], five[1]) || !dim_equal(four[2], five[3]) ||
        !dim_equal(four[3], five[4]) || !dim_is_const(five[2]) ||
        !dim_is_const(five[3]) || !dim_is_const(five[4]) || start < 0 ||
        start >= (double)five[2].value)
        return false;
    *o = (struct attention_heads_operand){ .value = reshape->in[0],
                                           .column = (int64_t)start * five[3].value *
                                                     five[4].value,
                                           .flat = true };
    return true;
}

/* Reads (batch, tokens, heads, dim), transposed, perhaps cut from rank 3. */
static bool read_by_token(const struct attn_graph *graph, int32_t value,
                          struct attention_heads_operand *o)
{
    struct attn_node *transpose = attn_graph_producer(graph, value);
    if (!transposes(transpose, "0213") || !attn_match_is_f32(graph, transpose->in[0]))
        return false;
    *o =
        (struct attention_heads_operand){ .value = transpose->in[0], .layout = BY_TOKEN };
    if (read_part(graph, transpose->in[0], o))
        return true;
    struct attn_node *reshape = attn_match_in(graph, transpose, 0, "Reshape");
    if (reshape == NULL || rank_of(graph, reshape->in[0]) != 3)
        return true;
    const attnrun_dim *wide = dims_of(graph, reshape->out[0]),
                      *flat = dims_of(graph, reshape->in[0]);
    if (dim_is_const(wide[2]) && dim_is_const(wide[3]) && dim_equal(wide[0], flat[0]) &&
        dim_equal(wide[1], flat[1]))
        take_flat(graph, reshape->in[0], AS_GIVEN, o);
    return true;
}

/* Reads (tokens, batch, heads * dim): Reshape (tokens, batch * heads, dim), Transpose,
 * Reshape (batch, heads, tokens, dim). */
static bool read_tokens_first(const struct attn_graph *graph, int32_t value,
                              struct attention_heads_operand *o)
{
    struct attn_node *wide = attn_graph_producer(graph, value);
    struct attn_node *transpose =
        node_is(wide, "Reshape") ? attn_match_in(graph, wide, 0, "Transpose") : NULL;
    struct attn_node *narrow = transposes(transpose, "102")
                                   ? attn_match_in(graph, transpose, 0, "Reshape")
                                   : NULL;
    if (narrow == NULL || rank_of(graph, narrow->in[0]) != 3 ||
        !attn_match_is_f32(graph, narrow->in[0]))
        return false;
    const attnrun_dim *four = dims_of(graph, value),
                      *flat = dims_of(graph, narrow->in[0]),
                      *three = dims_of(graph, narrow->out[0]);
    if (!dim_is_const(four[1]) || !dim_is_const(four[3]) || !dim_is_const(flat[2]) ||
        !dim_equal(three[0], flat[0]) || !dim_equal(three[2], four[3]) ||
        !dim_equal(four[2], flat[0]) || !dim_equal(four[0], flat[1]) ||
        four[3].value == 0 || flat[2].value % four[3].value != 0 ||
        flat[2].value / four[3].value != four[1].value)
        return false;
    take_flat(graph, narrow->in[0], TOKENS_FIRST, o);
    return true;
}

/* The index of the part of dim 0 that `value` is, by Gather or by Split and Squeeze;
 * *from: the value that is cut. -1: `value` is no part. */
static int64_t part_of(const struct attn_graph *graph, int32_t value, int32_t *from)
{
    struct attn_node *node = attn_graph_producer(graph, value);
    double part;
    if (node_is(node, "Gather") && attn_match_int(node, "axis", 0) == 0 &&
        attn_value_scalar(graph, node->in[1], &part)) {
        *from = node->in[0];
        attnrun_dim parts = dims_of(graph, *from)[0];
        part += part < 0 && dim_is_const(parts) ? (double)parts.value : 0;
        return part >= 0 && part < 16 ? (int64_t)part : -1;
    }
    struct attn_node *split =
        node_is(node, "Squeeze") ? attn_match_in(graph, node, 0, "Split") : NULL;
    if (split == NULL || attn_match_int(split, "axis", 0) != 0)
        return -1;
    *from = split->in[0];
    for (int32_t out = 0; out < split->pub.n_out; out++) {
        if (split->out[out] < 0 || rank_of(graph, split->out[out]) < 1 ||
            !dim_is(dims_of(graph, split->out[out])[0], 1))
            return -1;
        if (split->out[out] == node->in[0])
            return out;
    }
    return -1;
}

/* Reads a part of (parts, batch, heads, tokens, dim), which is (batch, tokens, parts,
 * heads, dim) transposed, made of (batch, tokens, columns). */
static bool read_stacked(const struct attn_graph *graph, int32_t value,
                         struct attention_heads_operand *o)
{
    int32_t from;
    int64_t part = part_of(graph, value, &from);
    struct attn_node *transpose = part >= 0 ? attn_graph_producer(graph, from) : NULL;
    struct attn_node *reshape = transposes(transpose, "20314")
                                    ? attn_match_in(graph, transpose, 0, "Reshape")
                                    : NULL;
    if (reshape == NULL || rank_of(graph, reshape->in[0]) != 3 ||
        !attn_match_is_f32(graph, reshape->in[0]) || rank_of(graph, value) != 4)
        return false;
    const attnrun_dim *five = dims_of(graph, reshape->out[0]),
                      *flat = dims_of(graph, reshape->in[0]),
                      *four = dims_of(graph, value);
    if (!dim_equal(five[0], flat[0]) || !dim_equal(five[1], flat[1]) ||
        !dim_equal(four[0], five[0]) || !dim_equal(four[1], five[3]) ||
        !dim_equal(four[2], five[1]) || !dim_equal(four[3], five[4]) ||
        !dim_is_const(five[2]) || !dim_is_const(five[3]) || !dim_is_const(five[4]) ||
        part >= five[2].value)
        return false;
    *o = (struct attention_heads_operand){ .value = reshape->in[0],
                                           .layout = AS_GIVEN,
                                           .column = part * five[3].value * five[4].value,
                                           .flat = true };
    return true;
}

/* Finds the value that is made of the result, and its layout. */
static int32_t find_result(const struct attn_graph *graph, const struct attn_node *node,
                           int64_t *layout)
{
    struct attn_node *transpose = attn_graph_only_user(graph, node->out[0]);
    *layout = AS_GIVEN;
    if (transposes(transpose, "2013")) {
        *layout = TOKENS_FIRST;
        return transpose->out[0];
    }
    if (!transposes(transpose, "0213"))
        return node->out[0];
    *layout = BY_TOKEN;
    struct attn_node *reshape = attn_match_user(graph, transpose, "Reshape");
    if (reshape == NULL || reshape->in[0] != transpose->out[0] ||
        rank_of(graph, reshape->out[0]) != 3)
        return transpose->out[0];
    const attnrun_dim *wide = dims_of(graph, transpose->out[0]),
                      *flat = dims_of(graph, reshape->out[0]);
    if (!dim_equal(wide[0], flat[0]) || !dim_equal(wide[1], flat[1]))
        return transpose->out[0];
    *layout = JOINED;
    return reshape->out[0];
}

static bool is_attention(const struct attn_node *node)
{
    return node_is(node, "Attention") ||
           (node_is_of(node, "attnrun.fused", "FusedAttention") &&
            attn_node_attr(node, "layouts") == NULL);
}

/* Whether FusedAttention takes the mask of an Attention, where it has one: not one of integers, or
 * one that may have a single key that is broadcast to all keys, as before version 24. */
static bool takes_mask(const struct attn_graph *graph, const struct attn_node *node)
{
    if (!node_is(node, "Attention") || node->pub.n_in <= 3 || node->in[3] < 0)
        return true;
    const attnrun_type *mask = match_type(graph, node->in[3]);
    if (!attn_match_is_f32(graph, node->in[3]) && mask->dtype != ATTNRUN_BOOL)
        return false;
    if (node->pub.opset >= 24)
        return true;
    const attnrun_dim keys = dims_of(graph, node->in[1])[2],
                      last = mask->rank > 0 ? mask->dims[mask->rank - 1] : dim_of(1);
    return dim_equal(last, keys) || (dim_is_const(last) && last.value != 1);
}

/* Whether an Attention has operands of rank 4, no past, no present and no scores. */
static bool plain(const struct attn_graph *graph, const struct attn_node *node)
{
    for (int32_t i = 4; i < node->pub.n_in && i < MASK_LEAF; i++)
        if (node->in[i] >= 0)
            return false;
    for (int32_t i = 1; i < node->pub.n_out; i++)
        if (node->out[i] >= 0)
            return false;
    for (int32_t i = 0; i < 3; i++)
        if (rank_of(graph, node->in[i]) != 4 || !attn_match_is_f32(graph, node->in[i]))
            return false;
    return attn_match_is_f32(graph, node->out[0]) && takes_mask(graph, node);
}

/* Copies the attributes that both operators have, and returns their number. */
static int32_t copy_attrs(const struct attn_graph *graph, const struct attn_node *node,
                          struct attn_attr *attrs)
{
    static const char *const words[] = { "is_causal",
                                         "left_window_size",
                                         "right_window_size",
                                         "nan_rows",
                                         "scale",
                                         "softcap",
                                         "code",
                                         "mask",
                                         "axes",
                                         "windows",
                                         "key_columns" };
    int32_t n = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const struct attn_attr *attr = attn_node_attr(node, words[i]);
        if (attr != NULL)
            attrs[n++] = *attr;
    }
    const double dim = (double)dims_of(graph, node->in[0])[3].value;
    if (!node_is(node, "Attention") || attn_node_attr(node, "scale") != NULL)
        return n;
    attrs[n++] = (struct attn_attr)MATCH_FLOAT("scale", (float)(1.0 / sqrt(dim)));
    return n;
}

/* Makes the node. `from`: the operands of rank 4. */
static attn_status make(struct attn_graph *graph, struct attn_node *node,
                        const int32_t *from, const struct attention_heads_operand *o,
                        int32_t result, int64_t y_layout, struct attn_node **made)
{
    const attnrun_dim *q = dims_of(graph, from[0]), *k = dims_of(graph, from[1]),
                      *v = dims_of(graph, from[2]);
    int32_t in[MASK_LEAF + MASK_MAX_LEAVES];
    for (int32_t i = 0; i < node->pub.n_in; i++)
        in[i] = i < 3 ? o[i].value : node->in[i];
    int64_t *numbers = attn_pool_alloc(&graph->model->pool, 9 * sizeof *numbers);
    if (numbers == NULL)
        return ATTNRUN_E_MEMORY;
    for (int i = 0; i < 3; i++) {
        numbers[i] = o[i].layout;
        numbers[4 + i] = o[i].column;
    }
    numbers[3] = y_layout;
    numbers[7] = q[3].value;
    numbers[8] = v[3].value;
    struct attn_attr attrs[16];
    int32_t n = copy_attrs(graph, node, attrs);
    attrs[n++] = (struct attn_attr){ .name = "layouts",
                                     .kind = ATTN_ATTR_INTS,
                                     .ints = { numbers, 4 } };
    if (o[0].flat || o[1].flat || o[2].flat)
        attrs[n++] = (struct attn_attr){ .name = "columns",
                                         .kind = ATTN_ATTR_INTS,
                                         .ints = { numbers + 4, 5 } };
    if (o[0].flat)
        attrs[n++] = (struct attn_attr)MATCH_INT("q_num_heads", q[1].value);
    if (o[1].flat || o[2].flat)
        attrs[n++] = (struct attn_attr)MATCH_INT("kv_num_heads",
                                                 o[1].flat ? k[1].value : v[1].value);
    return attn_match_make(graph, node, "attnrun.fused", "FusedAttention", node->pub.n_in,
                           in, result, n, attrs, made);
}

static attn_status attention_heads_try_node(struct attn_graph *graph,
                                            struct attn_node *node, int32_t *applied)
{
    struct attention_heads_operand o[3];
    int64_t y_layout;
    if (!is_attention(node) || !plain(graph, node))
        return ATTNRUN_OK;
    int32_t from[3] = { node->in[0], node->in[1], node->in[2] };
    const attnrun_dim *q = dims_of(graph, from[0]), *v = dims_of(graph, from[2]);
    const bool sized = dim_is_const(q[3]) && dim_is_const(v[3]) && q[3].value > 0;
    int n_moved = sized && attn_match_share_heads(graph, &from[1], &from[2]);
    for (int i = 0; i < 3; i++) {
        const struct attention_heads_operand as_given = { .value = from[i] };
        bool moved = sized && (read_by_token(graph, from[i], &o[i]) ||
                               read_tokens_first(graph, from[i], &o[i]) ||
                               read_stacked(graph, from[i], &o[i]));
        if (!moved)
            o[i] = as_given;
        n_moved += moved;
    }
    int32_t result = find_result(graph, node, &y_layout);
    if (!sized || (n_moved == 0 && y_layout == AS_GIVEN))
        return ATTNRUN_OK;
    struct attn_node *made;
    TRY(make(graph, node, from, o, result, y_layout, &made));
    attn_match_replace(graph, result, made);
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_attention_heads = { .name = "attention_heads",
                                                     .try_node =
                                                         attention_heads_try_node };

/* blocked_quantized.c - operators on quantized bytes that use maps in blocks of 16
 * channels. blocked_layout.c has the whole pass. Blocked maps are u8: 128 is added to
 * bytes of i8 and to their zero points.
 *
 *   QLinearConv                    BlockedQLinearConv; of up to 4 channels in blocks of 4;
 *                                  groups of few channels become fewer groups
 *   QLinearAdd                     part of the convolution whose result only it reads,
 *                                  else the same node
 *   QLinearMul                     the same node, or BlockedGate
 *   QLinearSigmoid, -LeakyRelu,    ByteTable, or part of the convolution whose result no
 *   QLinearMul of x and such of x  other node reads
 *   QLinearConcat of whole blocks  the same node
 *   QLinearGlobalAveragePool       BlockedMean
 *   MaxPool                        BlockedPool
 *
 * In: a node of the graph. Out: the node that replaces it. Scales and zero points must be
 * constants. The results are the bytes that the nodes of the file give. */
#include "../../runtime/poll.h"
#include "../kernels/kernel_types.h"
#include "../quant/qlinear.h"
#include "blocked_layout.h"

enum { FEW_CHANNELS = 4, MAX_ATTRS = BLOCKED_MAX_ATTRS + 12, MAX_PARTS = 32 };
enum { MAX_MERGED = 16 };
enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, BIAS };

bool attn_quantized_is_conv(const struct attn_node *node)
{
    return node_is(node, "QLinearConv") ||
           (node_is_of(node, "com.microsoft", "QLinearConv") &&
            attn_match_int(node, "channels_last", 0) == 0);
}

/* ---- scales and zero points ---- */

static const attnrun_tensor *constant(const struct layout *l, int32_t value)
{
    return match_is_constant(l->graph, value) ? &l->graph->values[value].data : NULL;
}

static float float_at(const attnrun_tensor *t, int64_t i)
{
    float x; /* a mapped file may have it anywhere */
    memcpy(&x, (const char *)t->data + i * (int64_t)sizeof x, sizeof x);
    return x;
}

/* Whether input `in` is a constant scale of one number, with a constant zero point behind
 * it. */
static bool has_pair(const struct layout *l, const struct attn_node *node, int32_t in)
{
    if (in >= node->pub.n_in)
        return false;
    const attnrun_tensor *scale = constant(l, node->in[in]);
    if (scale == NULL || scale->dtype != ATTNRUN_F32 || tensor_count(scale) != 1)
        return false;
    if (in + 1 >= node->pub.n_in || node->in[in + 1] < 0)
        return true;
    const attnrun_tensor *zero = constant(l, node->in[in + 1]);
    return zero != NULL && tensor_count(zero) == 1 &&
           (zero->dtype == ATTNRUN_U8 || zero->dtype == ATTNRUN_I8);
}

static struct op_qlinear pair_of(const struct layout *l, const struct attn_node *node,
                                 int32_t in)
{
    struct op_qlinear q = { .scale = float_at(constant(l, node->in[in]), 0) };
    if (in + 1 < node->pub.n_in && node->in[in + 1] >= 0)
        q.zero = (float)tensor_get_int(constant(l, node->in[in + 1]), 0);
    return q;
}

static bool is_signed(const struct layout *l, int32_t value)
{
    return layout_type(l, value)->dtype == ATTNRUN_I8;
}

/* The same pair for the blocked map, which is u8, of `value`. */
static struct op_qlinear blocked_pair(const struct layout *l,
                                      const struct attn_node *node, int32_t in,
                                      int32_t value)
{
    struct op_qlinear q = pair_of(l, node, in);
    q.zero += is_signed(l, value) ? 128.0f : 0.0f;
    return q;
}

/* ---- members ---- */

/* Strides up to the kernel and no dilations: the depthwise forms that BlockedQLinearConv
 * takes. */
static bool narrow(const struct attn_node *node, const attnrun_tensor *w)
{
    const struct attn_attr *strides = attn_node_attr(node, "strides");
    if (!attn_match_all(node, "dilations", 1) ||
        (strides != NULL && strides->kind != ATTN_ATTR_INTS))
        return false;
    for (int64_t i = 0; strides != NULL && i < strides->ints.n; i++)
        if (i >= 2 || strides->ints.v[i] > w->dims[2 + i])
            return false;
    return true;
}

/* How many groups BlockedQLinearConv takes as one, with zeros for the channels of the others, so
 * that each has whole blocks: 1 where it takes them as they are, 0 where it cannot. The zeros are
 * cheaper than groups of few channels, which products of bytes cannot fill. */
static int64_t merged_groups(const struct attn_node *node, const attnrun_tensor *w,
                             int64_t group, int64_t channels)
{
    bool by_itself;
    if (attn_blocked_groups(w, group, channels, &by_itself) &&
        (!by_itself || narrow(node, w)))
        return 1;
    for (int i = 0; i < 4; i++)
        if (w->dims[i] < 1)
            return 0;
    if (group < 2 || w->dims[1] * group != channels || w->dims[0] % group != 0)
        return 0;
    for (int64_t m = 2; m <= min64(group, MAX_MERGED); m++)
        if (group % m == 0 && (m == group || (w->dims[1] * m % ATTN_BLOCK == 0 &&
                                              w->dims[0] / group * m % ATTN_BLOCK == 0)))
            return m;
    return 0;
}

static bool can_conv(const struct layout *l, const struct attn_node *node)
{
    if (!layout_is_bytes(l, node->in[X]) || !has_pair(l, node, X_SCALE) ||
        !has_pair(l, node, Y_SCALE) || node->n_attrs > BLOCKED_MAX_ATTRS)
        return false;
    const attnrun_tensor *w = constant(l, node->in[W]),
                         *scale = constant(l, node->in[W_SCALE]),
                         *zero = constant(l, node->in[W_ZERO]);
    if (w == NULL || scale == NULL || zero == NULL || w->rank != 4 ||
        scale->dtype != ATTNRUN_F32 || w->dtype != zero->dtype)
        return false;
    const int64_t rows = w->dims[0], scales = tensor_count(scale),
                  zeros = tensor_count(zero);
    if ((scales != 1 && scales != rows) || (zeros != 1 && zeros != rows) ||
        scale->rank > 1 || zero->rank > 1)
        return false;
    if (node->pub.n_in > BIAS && node->in[BIAS] >= 0) {
        const attnrun_tensor *bias = constant(l, node->in[BIAS]);
        if (bias == NULL || bias->dtype != ATTNRUN_I32 || tensor_count(bias) != rows)
            return false;
    }
    return merged_groups(node, w, attn_match_int(node, "group", 1),
                         layout_channels(l, node->in[X])) > 0;
}

bool attn_quantized_is_narrow(const struct layout *l, const struct attn_node *node)
{
    const attnrun_tensor *w = constant(l, node->in[W]);
    const int64_t group = attn_match_int(node, "group", 1);
    return group > 1 &&
           (w->dims[1] == 1 || merged_groups(node, w, group, w->dims[1] * group) > 1);
}

/* Whether a node adds two maps of one shape, one of them of a member. */
static bool can_add(const struct layout *l, const struct attn_node *node)
{
    bool member = false;
    for (int i = 0; i < 6; i += 3) {
        if (!has_pair(l, node, i + 1) || !layout_is_bytes(l, node->in[i]) ||
            !attn_match_same_shape(l->graph, node->in[i], node->out[0]))
            return false;
        member = member || layout_is_member_bytes(l, node->in[i]);
    }
    return member && has_pair(l, node, 6);
}

static bool is_gate(const struct layout *l, int32_t gate, int32_t map)
{
    const attnrun_type *g = layout_type(l, gate), *m = layout_type(l, map);
    return dim_is(g->dims[2], 1) && dim_is(g->dims[3], 1) &&
           dim_equal(g->dims[1], m->dims[1]) &&
           (dim_equal(g->dims[0], m->dims[0]) || dim_is(g->dims[0], 1));
}

/* The input (0 or 3) that is the map of a product with a gate; -1: none. */
static int32_t gated(const struct layout *l, const struct attn_node *node)
{
    for (int32_t i = 0; i < 6; i += 3)
        if (layout_is_bytes(l, node->in[i]) && layout_is_bytes(l, node->in[3 - i]) &&
            attn_match_same_shape(l->graph, node->in[i], node->out[0]) &&
            is_gate(l, node->in[3 - i], node->in[i]))
            return i;
    return -1;
}

static bool can_mul(const struct layout *l, const struct attn_node *node)
{
    const bool pairs =
        has_pair(l, node, 1) && has_pair(l, node, 4) && has_pair(l, node, 6);
    const bool member =
        layout_is_member_bytes(l, node->in[0]) || layout_is_member_bytes(l, node->in[3]);
    return pairs && (can_add(l, node) || (member && gated(l, node) >= 0));
}

static bool can_concat(const struct layout *l, const struct attn_node *node)
{
    bool member = false;
    if (attn_match_int(node, "axis", 0) != 1 || !has_pair(l, node, 0) ||
        node->pub.n_in > 2 + 3 * MAX_PARTS)
        return false;
    for (int32_t i = 2; i < node->pub.n_in; i += 3) {
        if (!layout_is_bytes(l, node->in[i]) || !has_pair(l, node, i + 1) ||
            (i + 3 < node->pub.n_in && layout_channels(l, node->in[i]) % ATTN_BLOCK != 0))
            return false;
        member = member || layout_is_member_bytes(l, node->in[i]);
    }
    return member;
}

static bool is_ms(const struct attn_node *node, const char *name)
{
    return node_is_of(node, "com.microsoft", name);
}

enum member attn_quantized_member(const struct layout *l, const struct attn_node *node)
{
    if (attn_quantized_is_conv(node))
        return can_conv(l, node) ? MEMBER_QCONV : MEMBER_NONE;
    if (is_ms(node, "QLinearAdd"))
        return can_add(l, node) ? MEMBER_QADD : MEMBER_NONE;
    if (is_ms(node, "QLinearMul"))
        return can_mul(l, node) ? MEMBER_QMUL : MEMBER_NONE;
    if (is_ms(node, "QLinearConcat"))
        return can_concat(l, node) ? MEMBER_QCONCAT : MEMBER_NONE;
    if (!layout_is_member_bytes(l, node->in[0]))
        return MEMBER_NONE;
    if (is_ms(node, "QLinearSigmoid") || is_ms(node, "QLinearLeakyRelu"))
        return has_pair(l, node, 1) && has_pair(l, node, 3) ? MEMBER_QTABLE : MEMBER_NONE;
    if (node_is(node, "MaxPool") && attn_blocked_pool(node))
        return MEMBER_MAX_POOL;
    if (is_ms(node, "QLinearGlobalAveragePool") &&
        attn_match_int(node, "channels_last", 0) == 0 && has_pair(l, node, 1) &&
        has_pair(l, node, 3))
        return MEMBER_QMEAN;
    return MEMBER_NONE;
}

/* ---- convolutions ---- */

/* Whether only `user` reads the node's result, and the node may get another step. */
static struct attn_node *sole_conv(const struct layout *l, int32_t blocked,
                                   const struct attn_node *user, int32_t value)
{
    struct attn_node *conv = attn_graph_producer(l->graph, blocked);
    const struct attn_value *plain = &l->graph->values[value];
    const bool sole =
        plain->n_uses == 1 && plain->uses->node == user && plain->uses->inner == NULL &&
        l->graph->values[blocked].n_uses == 0 && (plain->flags & ATTN_VALUE_OUTPUT) == 0;
    return sole && node_is_of(conv, "attnrun.fused", "BlockedQLinearConv") ? conv : NULL;
}

static attn_status new_factor(struct layout *l, const struct attn_node *node,
                              int32_t *value)
{
    const attnrun_tensor *scale = constant(l, node->in[W_SCALE]);
    const int64_t rows = constant(l, node->in[W])->dims[0], n = tensor_count(scale);
    const float x = pair_of(l, node, X_SCALE).scale, y = pair_of(l, node, Y_SCALE).scale;
    void *data;
    TRY(attn_graph_new_constant(l->graph, ATTNRUN_F32, 1, &rows, value, &data));
    for (int64_t i = 0; i < rows && !attn_stops(i); i++)
        ((float *)data)[i] = x * float_at(scale, n == 1 ? 0 : i) / y;
    return ATTNRUN_OK;
}

/* W of groups that are merged: what the other groups see is the zero point. */
static attn_status merge_weights(struct layout *l, const struct attn_node *node,
                                 int64_t group, int64_t merged, int32_t *value)
{
    const attnrun_tensor w = *constant(l, node->in[W]),
                         zero = *constant(l, node->in[W_ZERO]);
    const int64_t dims[4] = { w.dims[0], w.dims[1] * merged, w.dims[2], w.dims[3] };
    const int64_t of_group = w.dims[0] / group,
                  narrow_row = w.dims[1] * w.dims[2] * w.dims[3];
    void *data;
    TRY(attn_graph_new_constant(l->graph, w.dtype, 4, dims, value, &data));
    for (int64_t row = 0; row < dims[0]; row++) {
        const int64_t zero_at = tensor_count(&zero) == 1 ? 0 : row;
        uint8_t *to = (uint8_t *)data + row * narrow_row * merged;
        TRY(attn_poll_fill(to, ((const uint8_t *)zero.data)[zero_at],
                           narrow_row * merged));
        TRY(attn_poll_copy(to + row / of_group % merged * narrow_row,
                           (const uint8_t *)w.data + row * narrow_row, narrow_row));
    }
    return ATTNRUN_OK;
}

static attn_status make_conv(struct layout *l, struct attn_node *node, int32_t out)
{
    struct attn_attr attrs[MAX_ATTRS];
    const int64_t group = attn_match_int(node, "group", 1);
    const int64_t merged = merged_groups(node, constant(l, node->in[W]), group,
                                         layout_channels(l, node->in[X]));
    const bool few = layout_channels(l, node->in[X]) <= FEW_CHANNELS &&
                     l->blocked[node->in[X]] < 0 && group == 1;
    int32_t n = 0, in[6] = { -1, node->in[W], -1, -1, -1, node->in[W_ZERO] };
    for (int32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, "channels_last") != 0 &&
            strcmp(node->attrs[i].name, "group") != 0)
            attrs[n++] = node->attrs[i];
    attrs[n++] = (struct attn_attr)MATCH_INT("group", group / merged);
    attrs[n++] = (struct attn_attr)MATCH_INT("channels", layout_channels(l, node->in[X]));
    attrs[n++] = (struct attn_attr)MATCH_INT("plain", few);
    attrs[n++] = (struct attn_attr)MATCH_INT(
        "x_zero", (int64_t)blocked_pair(l, node, X_SCALE, node->in[X]).zero);
    attrs[n++] = (struct attn_attr)MATCH_INT(
        "y_zero", (int64_t)blocked_pair(l, node, Y_SCALE, node->out[0]).zero);
    if (few) {
        const struct attn_attr block = MATCH_INT("block", FEW_CHANNELS);
        TRY(attn_graph_add_value(l->graph, NULL, &in[0]));
        TRY(attn_layout_insert(l, node, "ToBlocked", 1, &node->in[X], in[0], 1, &block));
    } else {
        TRY(attn_layout_blocked(l, node, node->in[X], &in[0]));
    }
    if (node->pub.n_in > BIAS)
        in[2] = node->in[BIAS];
    TRY(new_factor(l, node, &in[4]));
    if (merged > 1)
        TRY(merge_weights(l, node, group, merged, &in[1]));
    return attn_layout_insert(l, node, "BlockedQLinearConv", 6, in, out, n, attrs);
}

/* Replaces `conv` by a convolution before `node` with one more input and attributes. */
static attn_status extend_conv(struct layout *l, struct attn_node *node,
                               struct attn_node *conv, int32_t input, int32_t value,
                               int32_t n_more, const struct attn_attr *more, int32_t out)
{
    struct attn_attr attrs[MAX_ATTRS];
    int32_t in[7] = { -1, -1, -1, -1, -1, -1, -1 }, n = 0;
    for (int32_t i = 0; i < conv->pub.n_in; i++)
        in[i] = conv->in[i];
    in[input] = value;
    for (; n < conv->n_attrs; n++)
        attrs[n] = conv->attrs[n];
    for (int32_t i = 0; i < n_more; i++)
        attrs[n++] = more[i];
    TRY(attn_layout_insert(l, node, "BlockedQLinearConv", in[6] >= 0 ? 7 : 6, in, out, n,
                           attrs));
    attn_graph_remove(l->graph, conv);
    return ATTNRUN_OK;
}

/* ---- sums and products ---- */

/* Makes QLinearAdd a part of the convolution at input `i` (0 or 3). */
static attn_status try_add(struct layout *l, struct attn_node *node, int32_t i,
                           int32_t out, bool *done)
{
    const int32_t value = node->in[i], other = node->in[3 - i];
    if (*done || l->blocked[value] < 0)
        return ATTNRUN_OK;
    struct attn_node *conv = sole_conv(l, l->blocked[value], node, value);
    const struct op_qlinear a = blocked_pair(l, node, i + 1, value),
                            b = blocked_pair(l, node, 4 - i, other),
                            c = blocked_pair(l, node, 6, node->out[0]);
    int32_t z;
    if (conv == NULL || conv->in[3] >= 0 || conv->pub.n_in > 6 ||
        attn_match_int(conv, "y_zero", 0) != (int64_t)a.zero || value == other)
        return ATTNRUN_OK;
    const struct attn_attr more[] = { MATCH_INT("z_zero", (int64_t)b.zero),
                                      MATCH_INT("sum_zero", (int64_t)c.zero),
                                      MATCH_FLOAT("ratio", a.scale / c.scale),
                                      MATCH_FLOAT("z_ratio", b.scale / c.scale) };
    TRY(attn_layout_blocked(l, node, other, &z));
    *done = true;
    return extend_conv(l, node, conv, 3, z, 4, more, out);
}

/* The zero point of a map as an operand of u8. */
static attn_status new_zero(struct layout *l, struct op_qlinear q, int32_t *value)
{
    void *data;
    TRY(attn_graph_new_constant(l->graph, ATTNRUN_U8, 0, NULL, value, &data));
    *(uint8_t *)data = (uint8_t)q.zero;
    return ATTNRUN_OK;
}

static attn_status push_pair(struct layout *l, struct attn_node *node, int32_t at,
                             int32_t value, int32_t *in, int32_t *n)
{
    in[(*n)++] = node->in[at];
    return new_zero(l, blocked_pair(l, node, at, value), &in[(*n)++]);
}

/* Keeps QLinearAdd, QLinearMul or QLinearConcat, with blocked operands. */
static attn_status keep_operands(struct layout *l, struct attn_node *node, int32_t out)
{
    int32_t in[2 + 3 * MAX_PARTS], n = 0;
    const bool concat = is_ms(node, "QLinearConcat");
    struct attn_node *made;
    if (concat)
        TRY(push_pair(l, node, 0, node->out[0], in, &n));
    for (int32_t i = concat ? 2 : 0; i < (concat ? node->pub.n_in : 6); i += 3) {
        TRY(attn_layout_blocked(l, node, node->in[i], &in[n]));
        n++;
        TRY(push_pair(l, node, i + 1, node->in[i], in, &n));
    }
    if (!concat)
        TRY(push_pair(l, node, 6, node->out[0], in, &n));
    return attn_graph_insert(l->graph, node, "com.microsoft", node->pub.op_type, n, in, 1,
                             &out, concat ? node->n_attrs : 0, node->attrs, &made);
}

static attn_status make_gate(struct layout *l, struct attn_node *node, int32_t map,
                             int32_t out)
{
    const int32_t gate = 3 - map;
    const struct op_qlinear x = blocked_pair(l, node, map + 1, node->in[map]),
                            g = blocked_pair(l, node, gate + 1, node->in[gate]),
                            y = blocked_pair(l, node, 6, node->out[0]);
    const float ratio = pair_of(l, node, 1).scale * pair_of(l, node, 4).scale / y.scale;
    const struct attn_attr attrs[] = { MATCH_INT("x_zero", (int64_t)x.zero),
                                       MATCH_INT("gate_zero", (int64_t)g.zero),
                                       MATCH_INT("y_zero", (int64_t)y.zero),
                                       MATCH_FLOAT("ratio", ratio) };
    int32_t in[2];
    TRY(attn_layout_blocked(l, node, node->in[map], &in[0]));
    TRY(attn_layout_blocked(l, node, node->in[gate], &in[1]));
    return attn_layout_insert(l, node, "BlockedGate", 2, in, out, 4, attrs);
}

/* ---- functions of one byte ---- */

/* Makes the table the last step of the convolution that gives `x` to `node` only;
 * otherwise a node of its own. */
static attn_status make_table(struct layout *l, struct attn_node *node, int32_t x,
                              const uint8_t bytes[256], int32_t out)
{
    const int64_t n = 256;
    int32_t in[2];
    void *data;
    TRY(attn_graph_new_constant(l->graph, ATTNRUN_U8, 1, &n, &in[1], &data));
    memcpy(data, bytes, 256);
    TRY(attn_layout_blocked(l, node, x, &in[0]));
    struct attn_node *conv = sole_conv(l, in[0], node, x);
    if (conv != NULL && conv->pub.n_in == 6)
        return extend_conv(l, node, conv, 6, in[1], 0, NULL, out);
    return attn_layout_insert(l, node, "ByteTable", 2, in, out, 0, NULL);
}

static float sigmoid(float x, float arg)
{
    (void)arg;
    return 1.0f / (1.0f + expf(-x));
}
static float leaky_relu(float x, float alpha) { return x < 0 ? alpha * x : x; }

static attn_status make_function(struct layout *l, struct attn_node *node, int32_t out)
{
    const bool leaky = is_ms(node, "QLinearLeakyRelu");
    uint8_t bytes[256];
    op_qlinear_table(bytes, false, blocked_pair(l, node, 1, node->in[0]),
                     blocked_pair(l, node, 3, node->out[0]), leaky ? leaky_relu : sigmoid,
                     attn_match_float(node, "alpha", 0.01f));
    return make_table(l, node, node->in[0], bytes, out);
}

/* Makes QLinearMul of x and a table of x one table. */
static attn_status try_product(struct layout *l, struct attn_node *node, int32_t i,
                               int32_t out, bool *done)
{
    const int32_t x = node->in[i], f = node->in[3 - i];
    if (*done || l->blocked[x] < 0 || l->blocked[f] < 0)
        return ATTNRUN_OK;
    struct attn_node *table = attn_graph_producer(l->graph, l->blocked[f]);
    if (!node_is_of(table, "attnrun.fused", "ByteTable") || table->in[0] != l->blocked[x])
        return ATTNRUN_OK;
    const struct op_qlinear a = blocked_pair(l, node, i + 1, x),
                            b = blocked_pair(l, node, 4 - i, f),
                            c = blocked_pair(l, node, 6, node->out[0]);
    const float ratio = pair_of(l, node, 1).scale * pair_of(l, node, 4).scale / c.scale;
    const uint8_t *other = constant(l, table->in[1])->data;
    uint8_t bytes[256];
    for (int k = 0; k < 256; k++) {
        const float product = ((float)k - a.zero) * ((float)other[k] - b.zero);
        bytes[k] = op_qlinear_byte(false, product * ratio + c.zero, 0.0f);
    }
    *done = true;
    /* Only this node reads f, so the table that gives it goes. */
    const struct attn_value *value = &l->graph->values[f];
    if (value->n_uses == 1 && (value->flags & ATTN_VALUE_OUTPUT) == 0 &&
        l->graph->values[l->blocked[f]].n_uses == 0) {
        attn_node_set_input(l->graph, node, 3 - i, node->in[i + 1]);
        attn_graph_remove(l->graph, table);
        l->blocked[f] = -1;
    }
    return make_table(l, node, x, bytes, out);
}

static attn_status make_mul(struct layout *l, struct attn_node *node, int32_t out)
{
    bool done = false;
    TRY(try_product(l, node, 0, out, &done));
    TRY(try_product(l, node, 3, out, &done));
    if (done)
        return ATTNRUN_OK;
    const int32_t map = gated(l, node);
    return map >= 0 ? make_gate(l, node, map, out) : keep_operands(l, node, out);
}

static attn_status make_mean(struct layout *l, struct attn_node *node, int32_t out)
{
    const struct op_qlinear x = blocked_pair(l, node, 1, node->in[0]),
                            y = blocked_pair(l, node, 3, node->out[0]);
    const struct attn_attr attrs[] = { MATCH_INT("x_zero", (int64_t)x.zero),
                                       MATCH_INT("y_zero", (int64_t)y.zero),
                                       MATCH_FLOAT("x_scale", x.scale),
                                       MATCH_FLOAT("y_scale", y.scale) };
    int32_t in;
    TRY(attn_layout_blocked(l, node, node->in[0], &in));
    return attn_layout_insert(l, node, "BlockedMean", 1, &in, out, 4, attrs);
}

attn_status attn_quantized_rewrite(struct layout *l, struct attn_node *node,
                                   enum member kind, int32_t out)
{
    bool done = false;
    switch (kind) {
    case MEMBER_QCONV:
        return make_conv(l, node, out);
    case MEMBER_QADD:
        TRY(try_add(l, node, 0, out, &done));
        TRY(try_add(l, node, 3, out, &done));
        return done ? ATTNRUN_OK : keep_operands(l, node, out);
    case MEMBER_QMUL:
        return make_mul(l, node, out);
    case MEMBER_QTABLE:
        return make_function(l, node, out);
    case MEMBER_QMEAN:
        return make_mean(l, node, out);
    default:
        return keep_operands(l, node, out);
    }
}

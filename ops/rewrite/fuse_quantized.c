/* fuse_quantized.c - DequantizeLinear of each operand, an operator, and QuantizeLinear of
 * its result become the operator on bytes that exists for it, as ONNX Runtime's
 * quantizers mean it:
 *
 *   Conv                     QLinearConv; a Relu before QuantizeLinear is dropped if the
 *                            lowest byte stands for 0, since bytes end there anyway
 *   MatMul, Gemm             QLinearMatMul, QGemm (alpha and beta 1)
 *   Add, Mul, Where, Concat  QLinearAdd, QLinearMul, QLinearWhere, QLinearConcat
 *   AveragePool, GlobalAveragePool, Softmax, Sigmoid, LeakyRelu   QLinear…
 *   ReduceMean over height and width   QLinearGlobalAveragePool; a Reshape, Flatten or Squeeze
 *                            that stands before QuantizeLinear follows it
 *   Transpose, Reshape, Flatten, Squeeze, Unsqueeze, Slice, Gather, MaxPool, DepthToSpace
 *                            the same on bytes, where scale and zero point of operand and
 *                            result are equal; Pad by 0, too
 *
 * Operands and results are u8 or i8 with one constant scale above 0. Weights may have a scale for
 * each output channel. A bias is i32, and its scale is the product of the scales of operand and
 * weights. Sums of products and of a bias must fit in 32 bits. Constants that were the
 * result of DequantizeLinear at load are replaced by their bytes again (attn_value.folded_by).
 * Results are within one step of those of the floats, because halves may be rounded otherwise. */
#include <math.h>
#include <stdlib.h>

#include "../../runtime/poll.h"
#include "match.h"

enum { MAX_PARTS = 32, MAX_INPUTS = 2 + 3 * MAX_PARTS };
enum { MAX_APART = 255 }; /* that a byte may be away from its zero point */

/* A value as q, scale, zero point. */
struct quantized {
    int32_t q, scale, zero; /* values; zero -1: none is given */
    int32_t dtype;
    int64_t n, axis; /* scales; the axis along which they are */
};

struct fuse_quantized_place {
    struct attn_graph *graph;
    struct attn_node *node, *last; /* the operator, QuantizeLinear */
    struct attn_node *relu, *view; /* between them, or NULL */
    struct quantized y;
    int32_t in[MAX_INPUTS], n_in;
};

static const attnrun_tensor *data_of(const struct attn_graph *graph, int32_t value)
{
    return &graph->values[value].data;
}

static float float_at(const struct attn_graph *graph, int32_t value, int64_t i)
{
    float x; /* a mapped file may have it anywhere */
    memcpy(&x, (const char *)data_of(graph, value)->data + i * (int64_t)sizeof x,
           sizeof x);
    return x;
}

static bool is_either(const struct attn_node *node, const char *op_type)
{
    return node_is(node, op_type) || node_is_of(node, "com.microsoft", op_type);
}

/* The scale and zero point of such a node, whose axis is 1 by default. The operators on bytes
 * compute in f32, as it must divide. */
static bool take_pair(const struct attn_graph *graph, const struct attn_node *node,
                      struct quantized *x)
{
    if (node->pub.n_in < 2 || attn_match_int(node, "block_size", 0) != 0 ||
        attn_match_int(node, "precision", 0) > ATTNRUN_F32 ||
        !match_is_constant(graph, node->in[1]) || !attn_match_is_f32(graph, node->in[1]))
        return false;
    x->scale = node->in[1];
    x->zero = node->pub.n_in > 2 ? node->in[2] : -1;
    x->axis = attn_match_int(node, "axis", 1);
    x->n = tensor_count(data_of(graph, x->scale));
    return x->n > 0 && (x->zero < 0 || match_is_constant(graph, x->zero)) &&
           (x->zero < 0 || tensor_count(data_of(graph, x->zero)) == x->n);
}

static bool find_quantized(const struct attn_graph *graph, int32_t value,
                           struct quantized *x)
{
    if (value < 0 || !attn_match_is_f32(graph, value))
        return false;
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node == NULL)
        node = graph->values[value].folded_by;
    if (!is_either(node, "DequantizeLinear") || !take_pair(graph, node, x))
        return false;
    x->q = node->in[0];
    x->dtype = graph->values[x->q].type.dtype;
    return true;
}

static bool is_byte(int32_t dtype) { return dtype == ATTNRUN_U8 || dtype == ATTNRUN_I8; }

/* One scale, above 0, so that the order of the bytes is that of what they stand for. An infinite or
 * a subnormal one may make an infinite ratio, which is NaN times 0. */
static bool has_one_scale(const struct attn_graph *graph, const struct quantized *x)
{
    return x->n == 1 && float_at(graph, x->scale, 0) > 0 &&
           isnormal(float_at(graph, x->scale, 0));
}

/* A value of bytes with one scale. */
static bool find_bytes(const struct attn_graph *graph, int32_t value, struct quantized *x)
{
    return find_quantized(graph, value, x) && is_byte(x->dtype) &&
           has_one_scale(graph, x);
}

/* Operators on bytes want zero points: 0 where none is given. */
static attn_status need_zero(struct attn_graph *graph, struct quantized *x)
{
    void *data;
    return x->zero >= 0
               ? ATTNRUN_OK
               : attn_graph_new_constant(graph, x->dtype, 0, NULL, &x->zero, &data);
}

static void push(struct fuse_quantized_place *p, int32_t value)
{
    p->in[p->n_in++] = value;
}

static attn_status push_pair(struct fuse_quantized_place *p, struct quantized *x)
{
    TRY(need_zero(p->graph, x));
    push(p, x->scale);
    push(p, x->zero);
    return ATTNRUN_OK;
}

static attn_status push_quantized(struct fuse_quantized_place *p, struct quantized *x)
{
    push(p, x->q);
    return push_pair(p, x);
}

/* ---- what follows ---- */

/* Integer i of a constant, or its one; 0 where it is absent. */
static int64_t number_at(const struct attn_graph *graph, int32_t value, int64_t i)
{
    if (value < 0)
        return 0;
    const attnrun_tensor *t = data_of(graph, value);
    return tensor_get_int(t, tensor_count(t) == 1 ? 0 : i);
}

/* What moves no element, by nodes that take bytes. */
static bool is_view(const struct attn_node *node)
{
    return (node_is(node, "Reshape") || node_is(node, "Flatten") ||
            node_is(node, "Squeeze")) &&
           node->pub.opset >= 13;
}

static bool find_last(struct fuse_quantized_place *p)
{
    const struct attn_graph *graph = p->graph;
    struct attn_node *user = attn_graph_only_user(graph, p->node->out[0]);
    const int32_t *result = &p->node->out[0];
    p->relu = p->view = NULL;
    if (node_is(p->node, "Conv") && node_is(user, "Relu"))
        p->relu = user;
    if (is_view(user) && attn_match_pixel_mean(graph, p->node))
        p->view = user;
    if (p->relu != NULL || p->view != NULL) {
        result = &user->out[0];
        user = attn_graph_only_user(graph, *result);
    }
    if (!is_either(user, "QuantizeLinear") || !take_pair(graph, user, &p->y) ||
        !has_one_scale(graph, &p->y))
        return false;
    p->last = user;
    p->y.dtype = graph->values[user->out[0]].type.dtype;
    return is_byte(p->y.dtype) && user->in[0] == *result &&
           (p->relu == NULL ||
            number_at(graph, p->y.zero, 0) == (p->y.dtype == ATTNRUN_U8 ? 0 : -128));
}

/* A DequantizeLinear whose result has no reader any more. */
static void drop_unread(struct attn_graph *graph, const int32_t *in, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        struct attn_node *node = attn_graph_producer(graph, in[i]);
        if (is_either(node, "DequantizeLinear") && graph->values[in[i]].n_uses == 0)
            attn_graph_remove(graph, node);
    }
}

/* Removes what is replaced. */
static attn_status drop_replaced(struct fuse_quantized_place *p)
{
    struct attn_node *node = p->node;
    attn_graph_remove(p->graph, p->last);
    if (p->relu != NULL)
        attn_graph_remove(p->graph, p->relu);
    if (p->view != NULL)
        attn_graph_remove(p->graph, p->view);
    attn_graph_remove(p->graph, node);
    drop_unread(p->graph, node->in, node->pub.n_in);
    return ATTNRUN_OK;
}

static attn_status quantized_replace(struct fuse_quantized_place *p, const char *domain,
                                     const char *op_type, int32_t n_attrs,
                                     const struct attn_attr *attrs)
{
    struct attn_node *made;
    TRY(attn_match_make(p->graph, p->node, domain, op_type, p->n_in, p->in,
                        p->last->out[0], n_attrs, attrs, &made));
    attn_match_replace(p->graph, p->last->out[0], made);
    return drop_replaced(p);
}

/* ---- products ---- */

/* A bias of i32 whose scales are those of operand times weights, or none (*bias -1). */
static bool find_bias(const struct fuse_quantized_place *p, int in,
                      const struct quantized *x, const struct quantized *w, int32_t *bias)
{
    const struct attn_graph *graph = p->graph;
    struct quantized b;
    *bias = -1;
    if (in >= p->node->pub.n_in || p->node->in[in] < 0)
        return true;
    if (!find_quantized(graph, p->node->in[in], &b) || b.dtype != ATTNRUN_I32 ||
        !match_is_constant(graph, b.q) || (b.n != w->n && b.n != 1) ||
        graph->values[b.q].type.rank != 1)
        return false;
    for (int64_t i = 0; i < w->n && !attn_stops(i); i++) {
        const double product =
            (double)float_at(graph, x->scale, 0) * (double)float_at(graph, w->scale, i);
        const double scale = (double)float_at(graph, b.scale, b.n == 1 ? 0 : i);
        if (!(fabs(scale - product) <= 1e-5 * fabs(product)))
            return false;
    }
    for (int64_t i = 0; i < b.n; i++)
        if (number_at(graph, b.zero, i) != 0)
            return false;
    *bias = b.q;
    return true;
}

/* Weights of bytes, with scales for all or along `axis` (of `rank`). */
static bool find_weights(const struct attn_graph *graph, int32_t value, int rank,
                         int axis, struct quantized *w)
{
    if (!find_quantized(graph, value, w) || !is_byte(w->dtype))
        return false;
    const int64_t at = w->axis < 0 ? w->axis + rank : w->axis;
    return w->n == 1 || (at == axis && graph->values[value].type.rank == rank);
}

/* Whether sums of products by weights, which have columns along `axis`, and of the bias fit in 32
 * bits. Quantizers give the largest biases to columns of tiny weights, whose numbers are added up.
 * Of weights that are computed the number counts; where that is a symbol, sums are taken to fit. */
static bool sums_fit(const struct attn_graph *graph, const struct quantized *w,
                     int32_t bias, int axis)
{
    const attnrun_tensor *t = data_of(graph, w->q);
    const attnrun_type *type = match_type(graph, w->q);
    int64_t of_column = 1, inner = 1;
    for (int i = 0; i < type->rank; i++) {
        if (i != axis && !dim_is_const(type->dims[i]))
            return true;
        of_column *= i != axis ? type->dims[i].value : 1;
        inner *= i > axis ? type->dims[i].value : 1;
    }
    const int64_t columns = t->data != NULL ? t->dims[axis]
                            : bias >= 0     ? tensor_count(data_of(graph, bias))
                                            : 1;
    for (int64_t c = 0; c < columns && !attn_stops(c); c++) {
        const int64_t zero = number_at(graph, w->zero, c);
        int64_t sum = llabs(number_at(graph, bias, c));
        if (of_column * MAX_APART * MAX_APART + sum <= INT32_MAX)
            continue;
        if (t->data == NULL)
            return false;
        for (int64_t k = c * inner; k < of_column * columns; k += inner * columns) {
            if (attn_poll_work(inner * 4) != ATTNRUN_OK)
                return false;
            for (int64_t i = k; i < k + inner && !attn_stops(i); i++)
                sum += MAX_APART * llabs(tensor_get_int(t, i) - zero);
        }
        if (sum > INT32_MAX)
            return false;
    }
    return true;
}

/* The zero points of weights by channel are as many as the scales. */
static attn_status need_zeros(struct attn_graph *graph, struct quantized *w)
{
    void *data;
    if (w->zero >= 0 || w->n == 1)
        return need_zero(graph, w);
    return attn_graph_new_constant(graph, w->dtype, 1, &w->n, &w->zero, &data);
}

static attn_status try_quantized_conv(struct fuse_quantized_place *p, bool *done)
{
    struct quantized x, w;
    int32_t bias;
    const int rank = p->graph->values[p->node->in[0]].type.rank;
    if (rank < 3 || !find_bytes(p->graph, p->node->in[0], &x) ||
        !find_weights(p->graph, p->node->in[1], rank, 0, &w) ||
        !find_bias(p, 2, &x, &w, &bias) || !sums_fit(p->graph, &w, bias, 0))
        return ATTNRUN_OK;
    TRY(need_zeros(p->graph, &w));
    TRY(push_quantized(p, &x));
    TRY(push_quantized(p, &w));
    TRY(push_pair(p, &p->y));
    if (bias >= 0)
        push(p, bias);
    *done = true;
    return quantized_replace(p, "", "QLinearConv", p->node->n_attrs, p->node->attrs);
}

static attn_status try_matmul(struct fuse_quantized_place *p, bool *done)
{
    struct quantized a, b;
    const int rank = p->graph->values[p->node->in[1]].type.rank;
    if (rank < 2 || !find_bytes(p->graph, p->node->in[0], &a) ||
        !find_weights(p->graph, p->node->in[1], rank, rank - 1, &b) ||
        !sums_fit(p->graph, &b, -1, rank - 1))
        return ATTNRUN_OK;
    TRY(need_zeros(p->graph, &b));
    TRY(push_quantized(p, &a));
    TRY(push_quantized(p, &b));
    TRY(push_pair(p, &p->y));
    *done = true;
    return quantized_replace(p, "", "QLinearMatMul", 0, NULL);
}

static attn_status try_gemm(struct fuse_quantized_place *p, bool *done)
{
    struct quantized a, b;
    int32_t bias;
    const struct attn_attr attrs[] = {
        MATCH_INT("transA", attn_match_int(p->node, "transA", 0)),
        MATCH_INT("transB", attn_match_int(p->node, "transB", 0))
    };
    if (!(attn_match_float(p->node, "alpha", 1.0f) == 1.0f) ||
        !(attn_match_float(p->node, "beta", 1.0f) == 1.0f) ||
        !find_bytes(p->graph, p->node->in[0], &a) ||
        !find_weights(p->graph, p->node->in[1], 2, attrs[1].i != 0 ? 0 : 1, &b) ||
        !find_bias(p, 2, &a, &b, &bias) || p->y.dtype != a.dtype ||
        !sums_fit(p->graph, &b, bias, attrs[1].i == 0))
        return ATTNRUN_OK;
    TRY(need_zeros(p->graph, &b));
    TRY(push_quantized(p, &a));
    TRY(push_quantized(p, &b));
    push(p, bias);
    TRY(push_pair(p, &p->y));
    *done = true;
    return quantized_replace(p, "com.microsoft", "QGemm", 2, attrs);
}

/* ---- the others ---- */

/* Operands from input `first` on, all of the type of the result. */
static attn_status push_operands(struct fuse_quantized_place *p, int first, bool *fit)
{
    struct quantized x;
    *fit = false;
    for (int i = first; i < p->node->pub.n_in; i++) {
        if (!find_bytes(p->graph, p->node->in[i], &x) || x.dtype != p->y.dtype)
            return ATTNRUN_OK;
        TRY(push_quantized(p, &x));
    }
    *fit = true;
    return ATTNRUN_OK;
}

static attn_status try_operands(struct fuse_quantized_place *p, int first,
                                const char *op_type, int32_t n_attrs,
                                const struct attn_attr *attrs, bool *done)
{
    if (first == 1)
        push(p, p->node->in[0]);
    TRY(push_operands(p, first, done));
    if (!*done)
        return ATTNRUN_OK;
    TRY(push_pair(p, &p->y));
    return quantized_replace(p, "com.microsoft", op_type, n_attrs, attrs);
}

static attn_status try_concat(struct fuse_quantized_place *p, bool *done)
{
    const struct attn_attr axis = MATCH_INT("axis", attn_match_int(p->node, "axis", 1));
    if (p->node->pub.n_in > MAX_PARTS)
        return ATTNRUN_OK;
    TRY(push_pair(p, &p->y));
    TRY(push_operands(p, 0, done));
    return *done ? quantized_replace(p, "com.microsoft", "QLinearConcat", 1, &axis)
                 : ATTNRUN_OK;
}

static attn_status quantized_try_softmax(struct fuse_quantized_place *p, bool *done)
{
    const int64_t opset = p->node->pub.opset;
    const struct attn_attr attrs[] = {
        MATCH_INT("axis", attn_match_int(p->node, "axis", opset < 13 ? 1 : -1)),
        MATCH_INT("opset", opset < 13 ? 12 : 13)
    };
    return try_operands(p, 0, "QLinearSoftmax", 2, attrs, done);
}

/* The mean of the pixels. A ReduceMean that drops the axes gets a Reshape behind it, and a view
 * between the mean and QuantizeLinear follows after that. */
static attn_status try_mean(struct fuse_quantized_place *p, bool *done)
{
    static const int64_t dims[2] = { 0, 0 };
    struct attn_graph *graph = p->graph;
    const struct attn_node *view = p->view;
    struct attn_node *made;
    struct quantized x;
    int32_t value;
    *done = find_bytes(graph, p->node->in[0], &x) && x.dtype == p->y.dtype;
    if (!*done)
        return ATTNRUN_OK;
    TRY(push_quantized(p, &x));
    TRY(push_pair(p, &p->y));
    TRY(attn_graph_add_value(graph, NULL, &value));
    TRY(attn_graph_insert(graph, p->node, "com.microsoft", "QLinearGlobalAveragePool",
                          p->n_in, p->in, 1, &value, 0, NULL, &made));
    if (node_is(p->node, "ReduceMean") && attn_match_int(p->node, "keepdims", 1) == 0)
        TRY(attn_match_reshape(graph, p->node, 2, dims, &value));
    if (view != NULL) {
        int32_t in[2] = { value, view->pub.n_in > 1 ? view->in[1] : -1 };
        TRY(attn_match_add(graph, p->last, view->pub.op_type, view->pub.n_in, in,
                           view->n_attrs, view->attrs, &value));
    }
    graph->values[value].type = graph->values[p->last->out[0]].type;
    attn_match_replace(graph, p->last->out[0], attn_graph_producer(graph, value));
    return drop_replaced(p);
}

static attn_status try_pool(struct fuse_quantized_place *p, bool *done)
{
    enum { MAX_POOL_ATTRS = 12 };
    struct attn_attr attrs[MAX_POOL_ATTRS + 1];
    const int32_t n = p->node->n_attrs;
    /* Windows that hang over the padding are counted otherwise there. */
    if (attn_match_int(p->node, "ceil_mode", 0) != 0 ||
        attn_node_attr(p->node, "dilations") != NULL || n > MAX_POOL_ATTRS)
        return ATTNRUN_OK;
    for (int32_t i = 0; i < n; i++)
        attrs[i] = p->node->attrs[i];
    attrs[n] = (struct attn_attr)MATCH_INT("zero_last", 1); /* as QuantizeLinear rounds */
    return try_operands(p, 0, "QLinearAveragePool", n + 1, attrs, done);
}

/* Of operand and result scale and zero point are the same numbers. */
static bool same_pair(const struct attn_graph *graph, const struct quantized *x,
                      const struct quantized *y)
{
    return x->dtype == y->dtype &&
           float_at(graph, x->scale, 0) == float_at(graph, y->scale, 0) &&
           number_at(graph, x->zero, 0) == number_at(graph, y->zero, 0);
}

/* What only moves its first operand, or picks from it. */
static bool moves(const struct attn_node *node)
{
    static const char *const names[] = { "Transpose", "Reshape",   "Flatten",
                                         "Squeeze",   "Unsqueeze", "Slice",
                                         "Gather",    "MaxPool",   "DepthToSpace" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (node_is(node, names[i]))
            return node->pub.n_out == 1;
    return false;
}

static attn_status try_move(struct fuse_quantized_place *p, bool *done)
{
    struct quantized x;
    if (p->node->pub.opset < 13 || p->node->pub.n_in > MAX_PARTS ||
        !find_bytes(p->graph, p->node->in[0], &x) || !same_pair(p->graph, &x, &p->y))
        return ATTNRUN_OK;
    push(p, x.q);
    for (int i = 1; i < p->node->pub.n_in; i++)
        push(p, p->node->in[i]);
    *done = true;
    return quantized_replace(p, "", p->node->pub.op_type, p->node->n_attrs,
                             p->node->attrs);
}

/* Pad by the real number 0 is one of bytes by the zero point. */
static attn_status try_pad(struct fuse_quantized_place *p, bool *done)
{
    struct quantized x;
    int64_t pads[2 * ATTNRUN_MAX_RANK];
    const int32_t rank = p->graph->values[p->node->in[0]].type.rank;
    if (p->node->pub.opset < 13 || rank < 0 ||
        !attn_match_zero_pads(p->graph, p->node, rank, pads) ||
        !find_bytes(p->graph, p->node->in[0], &x) || !same_pair(p->graph, &x, &p->y))
        return ATTNRUN_OK;
    TRY(need_zero(p->graph, &x));
    push(p, x.q);
    push(p, p->node->in[1]);
    push(p, x.zero);
    *done = true;
    return quantized_replace(p, "", "Pad", p->node->n_attrs, p->node->attrs);
}

static attn_status quantized_try_place(struct fuse_quantized_place *p, bool *done)
{
    struct attn_node *node = p->node;
    const struct attn_attr alpha =
        MATCH_FLOAT("alpha", attn_match_float(node, "alpha", 0.01f));
    if (node_is(node, "Conv"))
        return try_quantized_conv(p, done);
    if (node_is(node, "MatMul"))
        return try_matmul(p, done);
    if (node_is(node, "Gemm"))
        return try_gemm(p, done);
    if (node_is(node, "Concat"))
        return try_concat(p, done);
    if (node_is(node, "Softmax"))
        return quantized_try_softmax(p, done);
    if (node_is(node, "AveragePool"))
        return try_pool(p, done);
    if (node_is(node, "Add") && node->pub.opset >= 7)
        return try_operands(p, 0, "QLinearAdd", 0, NULL, done);
    if (node_is(node, "Mul") && node->pub.opset >= 7)
        return try_operands(p, 0, "QLinearMul", 0, NULL, done);
    if (node_is(node, "Where"))
        return try_operands(p, 1, "QLinearWhere", 0, NULL, done);
    if (attn_match_pixel_mean(p->graph, node))
        return try_mean(p, done);
    if (node_is(node, "Sigmoid"))
        return try_operands(p, 0, "QLinearSigmoid", 0, NULL, done);
    if (node_is(node, "LeakyRelu"))
        return try_operands(p, 0, "QLinearLeakyRelu", 1, &alpha, done);
    if (node_is(node, "Pad"))
        return try_pad(p, done);
    return moves(node) ? try_move(p, done) : ATTNRUN_OK;
}

static attn_status quantized_try_node(struct attn_graph *graph, struct attn_node *node,
                                      int32_t *applied)
{
    struct fuse_quantized_place p = { .graph = graph, .node = node };
    bool done = false;
    if (node->pub.n_in < 1 || node->in[0] < 0 ||
        (!node_is(node, "Where") && !attn_match_is_f32(graph, node->in[0])) ||
        !attn_match_is_f32(graph, node->out[0]) || !find_last(&p))
        return ATTNRUN_OK;
    TRY(quantized_try_place(&p, &done));
    *applied += done;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_quantized = { .name = "quantized",
                                               .try_node = quantized_try_node };

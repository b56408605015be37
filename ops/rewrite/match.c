/* match.c - answers small questions that rewrite passes ask about a graph. match.h has
 * the interface. */
#include "match.h"

#include "../../runtime/align.h"
#include "../../runtime/dtype.h"
#include "../../runtime/poll.h"
#include "../storage.h"

#include <math.h>

struct attn_node *attn_match_in(const struct attn_graph *graph,
                                const struct attn_node *node, int in, const char *op_type)
{
    if (in >= node->pub.n_in)
        return NULL;
    struct attn_node *producer = attn_graph_producer(graph, node->in[in]);
    return node_is(producer, op_type) ? producer : NULL;
}

struct attn_node *attn_match_sole_in(const struct attn_graph *graph,
                                     const struct attn_node *node, int in,
                                     const char *op_type)
{
    struct attn_node *producer = attn_match_in(graph, node, in, op_type);
    return producer != NULL && graph->values[node->in[in]].n_uses == 1 ? producer : NULL;
}

struct attn_node *attn_match_either(const struct attn_graph *graph,
                                    const struct attn_node *node, const char *op_type,
                                    int32_t *other)
{
    if (node->pub.n_in != 2)
        return NULL;
    for (int in = 0; in < 2; in++) {
        struct attn_node *producer = attn_match_in(graph, node, in, op_type);
        if (producer != NULL) {
            *other = node->in[1 - in];
            return producer;
        }
    }
    return NULL;
}

bool attn_match_scalar(const struct attn_graph *graph, const struct attn_node *node,
                       bool commutes, double *x, int32_t *other)
{
    if (node == NULL || node->pub.n_in != 2)
        return false;
    const bool second = attn_value_scalar(graph, node->in[1], x);
    if (!second && !(commutes && attn_value_scalar(graph, node->in[0], x)))
        return false;
    *other = node->in[second ? 0 : 1];
    return *other >= 0 && isfinite((float)*x);
}

bool attn_match_take_scale(const struct attn_graph *graph, int32_t *value, double *scale,
                           attn_match_fits *fits)
{
    double x;
    int32_t other;
    const struct attn_node *node = attn_graph_producer(graph, *value);
    const bool times = node_is(node, "Mul");
    if ((!times && !node_is(node, "Div")) ||
        !attn_match_scalar(graph, node, times, &x, &other) || !fits(graph, other, *value))
        return false;
    const double whole = *scale * (times ? x : 1 / x);
    if (!match_is_scale(whole))
        return false;
    *value = other;
    *scale = whole;
    return true;
}

int32_t attn_match_strip_scale(const struct attn_graph *graph, int32_t value,
                               double *scale)
{
    for (int k = 0;
         k < 4 && attn_match_take_scale(graph, &value, scale, attn_match_same_rank); k++)
        ;
    return value;
}

/* A constant of an f16 or bf16 file is the number rounded to that type. */
bool attn_match_near(double a, double b)
{
    if (!isfinite(a) || !isfinite(b))
        return a == b;
    const float f16 = attn_f16_to_f32(attn_f32_to_f16((float)b));
    const float bf16 = attn_bf16_to_f32(attn_f32_to_bf16((float)b));
    return fabs(a - b) <= 1e-4 * fabs(b) || a == (double)f16 || a == (double)bf16;
}

bool attn_match_number(const struct attn_graph *graph, const struct attn_node *node,
                       bool commutes, double x, int32_t *other)
{
    double found;
    const float bf16 = attn_bf16_to_f32(attn_f32_to_bf16((float)x));
    return attn_match_scalar(graph, node, commutes, &found, other) &&
           (x == (double)bf16 ? found == x : attn_match_near(found, x));
}

struct attn_node *attn_match_user(const struct attn_graph *graph,
                                  const struct attn_node *node, const char *op_type)
{
    struct attn_node *user = attn_graph_only_user(graph, node->out[0]);
    return node_is(user, op_type) ? user : NULL;
}

int32_t attn_match_other(const struct attn_node *node, int32_t value)
{
    if (node->pub.n_in != 2 || (node->in[0] == value) == (node->in[1] == value))
        return -1;
    return node->in[0] == value ? node->in[1] : node->in[0];
}

bool attn_match_axes(const struct attn_graph *graph, const struct attn_node *node,
                     uint32_t *axes)
{
    const struct attn_attr *attr = attn_node_attr(node, "axes");
    const attnrun_tensor *t =
        node->pub.n_in > 1 && node->in[1] >= 0 ? &graph->values[node->in[1]].data : NULL;
    const int rank = node->pub.n_in > 0 ? graph->values[node->in[0]].type.rank : -1;
    const bool of_node = attr != NULL && attr->kind == ATTN_ATTR_INTS;
    *axes = 0;
    if (rank < 0 || (attr != NULL && !of_node) ||
        (!of_node && (t == NULL || t->data == NULL || t->dtype != ATTNRUN_I64)))
        return false;
    const int64_t n = of_node ? attr->ints.n : tensor_count(t);
    for (int64_t i = 0; i < n && n <= ATTNRUN_MAX_RANK; i++) {
        int64_t axis = of_node ? attr->ints.v[i] : tensor_get_int(t, i);
        axis += axis < 0 ? rank : 0;
        if (axis < 0 || axis >= rank)
            return false;
        *axes |= 1u << axis;
    }
    return *axes != 0;
}

bool attn_match_axis(const struct attn_graph *graph, const struct attn_node *node,
                     int *axis)
{
    uint32_t axes;
    if (!attn_match_axes(graph, node, &axes) || (axes & (axes - 1)) != 0)
        return false;
    *axis = 0;
    while (axes >> *axis != 1)
        ++*axis;
    return true;
}

bool attn_match_reduces_last(const struct attn_graph *graph, const struct attn_node *node)
{
    int axis;
    return attn_match_axis(graph, node, &axis) &&
           axis == graph->values[node->in[0]].type.rank - 1 &&
           attn_match_int(node, "keepdims", 1) == 1;
}

bool attn_match_vector(const struct attn_graph *graph, int32_t value, int64_t *n)
{
    if (!match_is_constant(graph, value) || !attn_match_is_f32(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    for (int i = 0; i + 1 < t->rank; i++)
        if (t->dims[i] != 1)
            return false;
    *n = t->rank > 0 ? t->dims[t->rank - 1] : 1;
    return t->rank > 0 && *n > 0;
}

attn_status attn_match_as_vector(struct attn_graph *graph, int32_t *value)
{
    attnrun_tensor t = graph->values[*value].data, vector;
    if (t.rank == 1)
        return ATTNRUN_OK;
    int64_t n = tensor_count(&t);
    TRY(attnrun_tensor_make(t.dtype, 1, &n, t.data, &vector));
    return attn_graph_add_constant(graph, NULL, &vector, value);
}

bool attn_match_same_rank(const struct attn_graph *graph, int32_t a, int32_t b)
{
    int32_t rank = graph->values[a].type.rank;
    return rank >= 0 && rank == graph->values[b].type.rank;
}

bool attn_match_same_shape(const struct attn_graph *graph, int32_t a, int32_t b)
{
    const attnrun_type *x = &graph->values[a].type, *y = &graph->values[b].type;
    if (x->kind != ATTNRUN_TENSOR || y->kind != ATTNRUN_TENSOR || x->rank < 0 ||
        x->rank != y->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (!dim_equal(x->dims[i], y->dims[i]))
            return false;
    return true;
}

bool attn_match_is_f32(const struct attn_graph *graph, int32_t value)
{
    return value >= 0 && graph->values[value].type.kind == ATTNRUN_TENSOR &&
           graph->values[value].type.dtype == ATTNRUN_F32;
}

bool attn_match_is_f32_of(const struct attn_graph *graph, int32_t value, int rank)
{
    return attn_match_is_f32(graph, value) && graph->values[value].type.rank == rank;
}

bool attn_match_is_map(const struct attn_graph *graph, int32_t value)
{
    return attn_match_is_f32_of(graph, value, 4) && !match_is_constant(graph, value);
}

bool attn_match_is_stored(const struct attn_graph *graph, int32_t value)
{
    if (!match_is_constant(graph, value))
        return false;
    const int32_t dtype = graph->values[value].data.dtype;
    return dtype == ATTNRUN_F32 || attn_stored_narrow(dtype);
}

attn_status attn_match_as_f32(struct attn_graph *graph, int32_t *value)
{
    attnrun_tensor from = graph->values[*value].data; /* values may move */
    struct attn_pool scratch; /* for elements that a mapped file has at odd addresses */
    void *to;
    if (from.data == NULL || !attn_stored_narrow(from.dtype))
        return ATTNRUN_OK;
    TRY(attn_poll_work(tensor_bytes(&from)));
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, from.rank, from.dims, value, &to));
    attn_pool_init(&scratch, graph->model->pool.memory, ATTN_MEM_WEIGHTS);
    const attn_status status = attn_tensor_align(&scratch, &from);
    if (status == ATTNRUN_OK)
        attn_stored_to_floats(attn_model_kernels(graph->model), from.dtype, to, from.data,
                              tensor_count(&from));
    attn_pool_free(&scratch);
    return status;
}

int64_t attn_match_int(const struct attn_node *node, const char *name, int64_t otherwise)
{
    const struct attn_attr *attr = attn_node_attr(node, name);
    return attr != NULL && attr->kind == ATTN_ATTR_INT ? attr->i : otherwise;
}

float attn_match_float(const struct attn_node *node, const char *name, float otherwise)
{
    const struct attn_attr *attr = attn_node_attr(node, name);
    return attr != NULL && attr->kind == ATTN_ATTR_FLOAT ? attr->f : otherwise;
}

bool attn_match_string(const struct attn_node *node, const char *name, const char *text)
{
    const struct attn_attr *attr = attn_node_attr(node, name);
    return attr != NULL && attr->kind == ATTN_ATTR_STRING && op_text_is(attr->s, text);
}

bool attn_match_all(const struct attn_node *node, const char *name, int64_t x)
{
    const struct attn_attr *attr = attn_node_attr(node, name);
    bool all = attr == NULL || attr->kind == ATTN_ATTR_INTS;
    for (int64_t i = 0; all && attr != NULL && i < attr->ints.n; i++)
        all = attr->ints.v[i] == x;
    return all;
}

int64_t attn_match_int_at(const struct attn_node *node, const char *name, int64_t i,
                          int64_t otherwise)
{
    const struct attn_attr *attr = attn_node_attr(node, name);
    return attr != NULL && attr->kind == ATTN_ATTR_INTS && i < attr->ints.n
               ? attr->ints.v[i]
               : otherwise;
}

bool attn_match_explicit_pads(const struct attn_node *node)
{
    return attn_node_attr(node, "auto_pad") == NULL ||
           attn_match_string(node, "auto_pad", "NOTSET");
}

bool attn_match_pointwise(const struct attn_graph *graph, const struct attn_node *conv,
                          int64_t *rows)
{
    if (!attn_match_is_stored(graph, conv->in[1]) ||
        graph->values[conv->in[1]].data.rank != 4 || !attn_match_explicit_pads(conv) ||
        !attn_match_all(conv, "pads", 0) || !attn_match_all(conv, "strides", 1) ||
        attn_match_int(conv, "group", 1) != 1)
        return false;
    const attnrun_tensor *w = &graph->values[conv->in[1]].data;
    *rows = w->dims[0];
    return *rows > 0 && w->dims[1] > 0 && w->dims[2] == 1 && w->dims[3] == 1 &&
           (conv->pub.n_in < 3 || conv->in[2] < 0 ||
            attn_match_is_f32_of(graph, conv->in[2], 1));
}

bool attn_match_pads(const struct attn_graph *graph, const struct attn_node *pad,
                     int32_t rank, int64_t pads[2 * ATTNRUN_MAX_RANK], double *value)
{
    const struct attn_attr *mode = attn_node_attr(pad, "mode");
    *value = 0;
    if (!node_is(pad, "Pad") || pad->pub.opset < 11 || pad->pub.n_in < 2 ||
        !match_is_constant(graph, pad->in[1]) ||
        (mode != NULL && !attn_match_string(pad, "mode", "constant")) ||
        (pad->pub.n_in > 2 && pad->in[2] >= 0 &&
         !attn_value_scalar(graph, pad->in[2], value)) ||
        (pad->pub.n_in > 3 && pad->in[3] >= 0))
        return false;
    const attnrun_tensor *t = &graph->values[pad->in[1]].data;
    if (t->dtype != ATTNRUN_I64 || rank < 0 || tensor_count(t) != 2 * (int64_t)rank)
        return false;
    for (int i = 0; i < 2 * rank; i++)
        pads[i] = tensor_get_int(t, i);
    return true;
}

bool attn_match_zero_pads(const struct attn_graph *graph, const struct attn_node *pad,
                          int32_t rank, int64_t pads[2 * ATTNRUN_MAX_RANK])
{
    double value;
    return attn_match_pads(graph, pad, rank, pads, &value) && value == 0;
}

attn_status attn_match_add(struct attn_graph *graph, struct attn_node *before,
                           const char *op_type, int32_t n_in, const int32_t *in,
                           int32_t n_attrs, const struct attn_attr *attrs, int32_t *out)
{
    int32_t value;
    struct attn_node *made;
    TRY(attn_graph_add_value(graph, NULL, &value));
    TRY(attn_graph_insert(graph, before, "", op_type, n_in, in, 1, &value, n_attrs, attrs,
                          &made));
    *out = value;
    return ATTNRUN_OK;
}

attn_status attn_match_make(struct attn_graph *graph, struct attn_node *before,
                            const char *domain, const char *op_type, int32_t n_in,
                            const int32_t *in, int32_t like, int32_t n_attrs,
                            const struct attn_attr *attrs, struct attn_node **made)
{
    int32_t out;
    TRY(attn_graph_add_value(graph, NULL, &out));
    graph->values[out].type = graph->values[like].type;
    return attn_graph_insert(graph, before, domain, op_type, n_in, in, 1, &out, n_attrs,
                             attrs, made);
}

attn_status attn_match_ints(struct attn_graph *graph, int n, const int64_t *numbers,
                            int32_t *value)
{
    const int64_t count = n;
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_I64, 1, &count, value, &data));
    memcpy(data, numbers, (size_t)n * sizeof *numbers);
    return ATTNRUN_OK;
}

/* A constant of one integer. */
static bool read_integer(const struct attn_graph *graph, int32_t value, int64_t *x)
{
    if (!match_is_constant(graph, value))
        return false;
    const attnrun_tensor *t = &graph->values[value].data;
    if ((t->dtype != ATTNRUN_I64 && t->dtype != ATTNRUN_I32) || tensor_count(t) != 1)
        return false;
    *x = tensor_get_int(t, 0);
    return true;
}

/* Counted from the end of n where it is negative; within n. */
static int64_t bound_within(int64_t x, int64_t n)
{
    x = x >= 0 ? x : x < -n ? 0 : x + n;
    return x > n ? n : x;
}

bool attn_match_slice_bounds(const struct attn_graph *graph,
                             const struct attn_node *slice, int64_t axis, int64_t *from,
                             int64_t *to)
{
    int64_t own, step = 1;
    if (!node_is(slice, "Slice") || slice->pub.n_in < 4 || slice->in[3] < 0)
        return false;
    const attnrun_type *t = &graph->values[slice->in[0]].type;
    if (axis >= t->rank || !read_integer(graph, slice->in[3], &own) ||
        (own < 0 ? own + t->rank : own) != axis ||
        (slice->pub.n_in > 4 && slice->in[4] >= 0 &&
         (!read_integer(graph, slice->in[4], &step) || step != 1)) ||
        !read_integer(graph, slice->in[1], from) ||
        !read_integer(graph, slice->in[2], to))
        return false;
    return true;
}

bool attn_match_slice(const struct attn_graph *graph, const struct attn_node *slice,
                      int64_t axis, int64_t *from, int64_t *to)
{
    if (!attn_match_slice_bounds(graph, slice, axis, from, to))
        return false;
    const attnrun_dim dim = graph->values[slice->in[0]].type.dims[axis];
    if (!dim_is_const(dim))
        return false;
    *from = bound_within(*from, dim.value);
    *to = bound_within(*to, dim.value);
    return *from < *to;
}

attn_status attn_match_reshape(struct attn_graph *graph, struct attn_node *before, int n,
                               const int64_t *dims, int32_t *value)
{
    int32_t in[2] = { *value };
    TRY(attn_match_ints(graph, n, dims, &in[1]));
    return attn_match_add(graph, before, "Reshape", 2, in, 0, NULL, value);
}

void attn_match_replace(struct attn_graph *graph, int32_t old, struct attn_node *made)
{
    bool output = (graph->values[old].flags & ATTN_VALUE_OUTPUT) != 0;
    attn_graph_replace(graph, old, made->out[0]);
    if (!output) /* so that plans and profiles have the file's name */
        attn_graph_swap_names(graph, old, made->out[0]);
}

/* Element k of a small integer tensor, a constant or one that is followed as an expression. */
static bool known_element(const struct attn_value *value, int64_t k, attnrun_dim *element)
{
    if (value->data.data != NULL)
        *element = dim_of(tensor_get_int(&value->data, k));
    else if (value->known != NULL && k < value->n_known)
        *element = value->known[k];
    else
        return false;
    return true;
}

bool attn_match_expands(const struct attn_graph *graph, const struct attn_node *node)
{
    if (!node_is(node, "Expand"))
        return false;
    const struct attn_value *shape = &graph->values[node->in[1]];
    const attnrun_type *out = match_type(graph, node->out[0]);
    if (shape->type.rank != 1 || !dim_is_const(shape->type.dims[0]))
        return false;
    const int64_t n = shape->type.dims[0].value;
    for (int64_t k = 0; k < n; k++) {
        attnrun_dim wanted;
        if (n > out->rank || !known_element(shape, k, &wanted) ||
            (!dim_is(wanted, 1) && !dim_equal(wanted, out->dims[out->rank - n + k])))
            return false;
    }
    return true;
}

/* The value before each head was repeated; `value` itself where none was. */
static int32_t unrepeated(const struct attn_graph *graph, int32_t value)
{
    struct attn_node *reshape = attn_graph_producer(graph, value);
    struct attn_node *expand =
        node_is(reshape, "Reshape") ? attn_match_in(graph, reshape, 0, "Expand") : NULL;
    struct attn_node *unsqueeze = attn_match_expands(graph, expand)
                                      ? attn_match_in(graph, expand, 0, "Unsqueeze")
                                      : NULL;
    if (unsqueeze == NULL || graph->values[unsqueeze->in[0]].type.rank != 4 ||
        graph->values[value].type.rank != 4)
        return value;
    int32_t from = unsqueeze->in[0], wide = expand->out[0], narrow = unsqueeze->out[0];
    const attnrun_type *w = &graph->values[wide].type, *n = &graph->values[narrow].type;
    if (w->rank != 5 || n->rank != 5 || !dim_is(n->dims[2], 1) ||
        !dim_is_const(w->dims[2]))
        return value;
    bool same = true;
    for (int d = 0; d < 4; d++) {
        attnrun_dim inner = graph->values[from].type.dims[d];
        same = same && dim_equal(inner, w->dims[d < 2 ? d : d + 1]) &&
               (d == 1 || dim_equal(inner, graph->values[value].type.dims[d]));
    }
    return same ? from : value;
}

bool attn_match_share_heads(const struct attn_graph *graph, int32_t *k, int32_t *v)
{
    int32_t few_k = unrepeated(graph, *k), few_v = unrepeated(graph, *v);
    if (few_k == *k || few_v == *v ||
        !dim_equal(graph->values[few_k].type.dims[1], graph->values[few_v].type.dims[1]))
        return false;
    *k = few_k;
    *v = few_v;
    return true;
}

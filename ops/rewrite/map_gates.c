/* map_gates.c - recognizes gates of channels and of pixels as exporters write them.
 * map_gates.h has the interface. */
#include "map_gates.h"

#include "../../runtime/meter.h"

enum { MAX_VIEWS = 6, MAX_BRANCHES = 2, MAX_KERNEL = 63, MAX_STEPS = 8 };

/* ---- vectors ---- */

bool attn_is_vectors(const struct attn_graph *graph, int32_t value, attnrun_dim batch,
                     int64_t n)
{
    const attnrun_type *t = match_type(graph, value);
    if (!attn_match_is_f32(graph, value) || t->rank < 2 ||
        !dim_equal(t->dims[0], batch) || !dim_is(t->dims[1], n))
        return false;
    for (int i = 2; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1))
            return false;
    return true;
}

int32_t attn_before_views(const struct attn_graph *graph, int32_t value,
                          attnrun_dim batch, int64_t n)
{
    for (int k = 0; k < MAX_VIEWS; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        const bool view = node_is(node, "Reshape") || node_is(node, "Unsqueeze") ||
                          node_is(node, "Squeeze") || node_is(node, "Flatten");
        if (!view || !attn_is_vectors(graph, node->in[0], batch, n))
            break;
        value = node->in[0];
    }
    return value;
}

static bool is_stored(const struct attn_graph *graph, int32_t value, int rank)
{
    return attn_match_is_stored(graph, value) && graph->values[value].data.rank == rank;
}

/* ---- products ---- */

bool attn_conv_is_dense(const struct attn_node *conv)
{
    return attn_match_int(conv, "group", 1) == 1 && attn_match_all(conv, "pads", 0) &&
           attn_match_all(conv, "strides", 1) && attn_match_explicit_pads(conv);
}

bool attn_dense_takes_bias(const struct attn_graph *graph, const struct attn_node *node,
                           struct attn_dense_found *dense)
{
    int64_t n;
    dense->bias = node->pub.n_in > 2 ? node->in[2] : -1;
    return dense->bias < 0 ||
           (attn_match_vector(graph, dense->bias, &n) &&
            graph->values[dense->bias].data.dtype == ATTNRUN_F32 && n == dense->rows);
}

static bool read_conv(const struct attn_graph *graph, const struct attn_node *node,
                      struct attn_dense_found *dense)
{
    if (!is_stored(graph, node->in[1], 4) || attn_match_int(node, "group", 1) != 1 ||
        !attn_match_all(node, "pads", 0) || !attn_match_explicit_pads(node))
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    *dense = (struct attn_dense_found){ .w = node->in[1],
                                        .rows = w->dims[0],
                                        .columns = w->dims[1] };
    return w->dims[2] == 1 && w->dims[3] == 1 &&
           attn_dense_takes_bias(graph, node, dense);
}

static bool read_matrix(const struct attn_graph *graph, const struct attn_node *node,
                        bool by_column, struct attn_dense_found *dense)
{
    if (!is_stored(graph, node->in[1], 2) || match_type(graph, node->in[0])->rank != 2)
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    *dense = (struct attn_dense_found){ .w = node->in[1],
                                        .bias = -1,
                                        .rows = w->dims[by_column],
                                        .columns = w->dims[!by_column],
                                        .transposed = by_column };
    return true;
}

static bool is_one(float x) { return x >= 1 && x <= 1; }

static bool read_gemm(const struct attn_graph *graph, const struct attn_node *node,
                      struct attn_dense_found *dense)
{
    return attn_match_int(node, "transA", 0) == 0 &&
           is_one(attn_match_float(node, "alpha", 1)) &&
           is_one(attn_match_float(node, "beta", 1)) &&
           read_matrix(graph, node, attn_match_int(node, "transB", 0) == 0, dense) &&
           attn_dense_takes_bias(graph, node, dense);
}

bool attn_dense_read(const struct attn_graph *graph, int32_t value, attnrun_dim batch,
                     struct attn_dense_found *dense, int32_t *z)
{
    bool read = false;
    int32_t bias = -1;
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Add") && node->pub.n_in == 2) { /* MatMul and a bias */
        const int side = match_is_constant(graph, node->in[0]) ? 0 : 1;
        bias = node->in[side];
        node = attn_graph_producer(graph, node->in[1 - side]);
        if (!node_is(node, "MatMul"))
            return false;
    }
    if (node_is(node, "Conv"))
        read = read_conv(graph, node, dense);
    else if (node_is(node, "Gemm"))
        read = read_gemm(graph, node, dense);
    else if (node_is(node, "MatMul"))
        read = read_matrix(graph, node, true, dense);
    if (!read)
        return false;
    int64_t n = dense->rows;
    if (bias >= 0) {
        dense->bias = bias;
        if (!attn_match_vector(graph, bias, &n) ||
            graph->values[bias].data.dtype != ATTNRUN_F32)
            return false;
    }
    *z = node->in[0];
    return n == dense->rows && n > 0 && dense->columns > 0 &&
           attn_is_vectors(graph, value, batch, n) &&
           attn_is_vectors(graph, *z, batch, dense->columns);
}

attn_status attn_dense_make(struct attn_graph *graph,
                            const struct attn_dense_found *dense, int32_t *w,
                            int32_t *bias)
{
    const int64_t dims[2] = { dense->rows, dense->columns };
    int32_t weights = dense->w;
    *bias = dense->bias;
    if (*bias >= 0)
        TRY(attn_match_as_vector(graph, bias));
    TRY(attn_match_as_f32(graph, &weights));
    if (!dense->transposed) {
        attnrun_tensor matrix;
        TRY(attnrun_tensor_make(ATTNRUN_F32, 2, dims, graph->values[weights].data.data,
                                &matrix));
        return attn_graph_add_constant(graph, NULL, &matrix, w);
    }
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 2, dims, w, &data));
    const char *from = graph->values[weights].data.data;
    float *to = data;
    for (int64_t r = 0; r < dense->rows; r++) {
        TRY(attn_poll_work(dense->columns));
        for (int64_t c = 0; c < dense->columns && !attn_stops(c); c++)
            memcpy(to + r * dense->columns + c,
                   from + (c * dense->rows + r) * (int64_t)sizeof(float), sizeof(float));
    }
    return ATTNRUN_OK;
}

static bool same_constant(const struct attn_graph *graph, int32_t a, int32_t b)
{
    if (a == b || a < 0 || b < 0)
        return a == b;
    const attnrun_tensor *x = &graph->values[a].data, *y = &graph->values[b].data;
    const int64_t n = tensor_bytes(x);
    return x->dtype == y->dtype && n == tensor_bytes(y) &&
           attn_poll_work(n) == ATTNRUN_OK && memcmp(x->data, y->data, (size_t)n) == 0;
}

static bool same_dense(const struct attn_graph *graph, const struct attn_dense_found *a,
                       const struct attn_dense_found *b)
{
    return a->rows == b->rows && a->columns == b->columns &&
           a->transposed == b->transposed && same_constant(graph, a->w, b->w) &&
           same_constant(graph, a->bias, b->bias);
}

/* ---- pools ---- */

/* A pool with a window: it is that of all pixels. */
static bool is_whole(const struct attn_graph *graph, const struct attn_node *node,
                     int32_t x)
{
    const struct attn_attr *kernel = attn_node_attr(node, "kernel_shape");
    const attnrun_dim *dims = match_type(graph, x)->dims;
    return kernel != NULL && kernel->kind == ATTN_ATTR_INTS && kernel->ints.n == 2 &&
           dim_is(dims[2], kernel->ints.v[0]) && dim_is(dims[3], kernel->ints.v[1]) &&
           attn_match_all(node, "pads", 0) && attn_match_all(node, "dilations", 1) &&
           attn_match_explicit_pads(node);
}

/* Over height and width, at once or one after the other. */
static bool reduces_pixels(const struct attn_graph *graph, const struct attn_node *node,
                           int32_t x)
{
    uint32_t axes;
    if (!attn_match_axes(graph, node, &axes))
        return false;
    if (node->in[0] == x)
        return axes == (1u << 2 | 1u << 3);
    const struct attn_node *inner = attn_graph_producer(graph, node->in[0]);
    uint32_t first;
    return inner != NULL && node_is(inner, node->pub.op_type) && inner->in[0] == x &&
           attn_match_axes(graph, inner, &first) &&
           ((first == 1u << 3 && axes == 1u << 2) ||
            (first == 1u << 2 && axes == 1u << 3 &&
             attn_match_int(inner, "keepdims", 1) != 0));
}

int attn_pooled_read(const struct attn_graph *graph, int32_t x, int32_t value)
{
    const attnrun_dim *dims = match_type(graph, x)->dims;
    value = attn_before_views(graph, value, dims[0], dims[1].value);
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "ReduceMean") || node_is(node, "ReduceMax"))
        return !reduces_pixels(graph, node, x) ? 0
               : node_is(node, "ReduceMean")   ? ATTN_POOLED_MEAN
                                               : ATTN_POOLED_MAX;
    if (node == NULL || node->pub.n_in < 1 || node->in[0] != x)
        return 0;
    const bool mean = node_is(node, "GlobalAveragePool") ||
                      (node_is(node, "AveragePool") && is_whole(graph, node, x));
    const bool max = node_is(node, "GlobalMaxPool") ||
                     (node_is(node, "MaxPool") && is_whole(graph, node, x));
    return mean ? ATTN_POOLED_MEAN : max ? ATTN_POOLED_MAX : 0;
}

/* Half the mean and half the max. */
static bool is_half_of_each(const struct attn_graph *graph, int32_t x, int32_t value)
{
    int pools = 0;
    const struct attn_node *add = attn_graph_producer(graph, value);
    if (!node_is(add, "Add"))
        return false;
    for (int i = 0; i < 2; i++) {
        double factor;
        int32_t pooled;
        const struct attn_node *times = attn_graph_producer(graph, add->in[i]);
        if (!node_is(times, "Mul") ||
            !attn_match_scalar(graph, times, true, &factor, &pooled) || factor < 0.5 ||
            factor > 0.5)
            return false;
        pools |= attn_pooled_read(graph, x, pooled);
    }
    return pools == (ATTN_POOLED_MEAN | ATTN_POOLED_MAX);
}

/* ---- gates of channels ---- */

static const char *gate_word(const struct attn_node *node)
{
    if (node_is(node, "Sigmoid"))
        return "sigmoid";
    if (node_is(node, "HardSigmoid") &&
        attn_match_near((double)attn_match_float(node, "alpha", 0.2f), 1.0 / 6) &&
        attn_match_float(node, "beta", 0.5f) == 0.5f)
        return "hard_sigmoid";
    return NULL;
}

static bool is_gelu(const struct attn_node *node)
{
    return node_is_of(node, "com.microsoft", "Gelu") ||
           (node_is(node, "Gelu") && !attn_match_string(node, "approximate", "tanh"));
}

/* What is between the products, by the words of the operators; *value: what it is of. */
static const char *activation_word(const struct attn_graph *graph, int32_t *value)
{
    const struct attn_node *node = attn_graph_producer(graph, *value);
    const char *word = "none";
    if (node_is(node, "Mul") && node->pub.n_in == 2)
        for (int i = 0; i < 2; i++) {
            const struct attn_node *gate = attn_graph_producer(graph, node->in[i]);
            const char *of = gate_word(gate);
            if (of == NULL || gate->in[0] != node->in[1 - i])
                continue;
            *value = gate->in[0];
            return strcmp(of, "sigmoid") == 0 ? "silu" : "hardswish";
        }
    if (node_is(node, "Relu"))
        word = "relu";
    else if (node_is(node, "HardSwish"))
        word = "hardswish";
    else if (node_is(node, "Swish") && is_one(attn_match_float(node, "alpha", 1)))
        word = "silu";
    else if (is_gelu(node))
        word = "gelu";
    else
        return word;
    *value = node->in[0];
    return word;
}

/* One branch: its pool is added to those of the gate. */
static bool read_branch(const struct attn_graph *graph, int32_t x, int32_t value,
                        struct attn_channel_gate *gate)
{
    const attnrun_dim *dims = match_type(graph, x)->dims;
    struct attn_channel_gate found = { .activation = "none" };
    int32_t z;
    value = attn_before_views(graph, value, dims[0], dims[1].value);
    if (!attn_dense_read(graph, value, dims[0], &found.first, &z) ||
        found.first.rows != dims[1].value)
        return false;
    int32_t pooled = attn_before_views(graph, z, dims[0], found.first.columns);
    int32_t inner = pooled;
    int pool = attn_pooled_read(graph, x, pooled);
    found.half = pool == 0 && is_half_of_each(graph, x, pooled);
    if (pool == 0 && !found.half) {
        found.activation = activation_word(graph, &inner);
        inner = attn_before_views(graph, inner, dims[0], found.first.columns);
        found.second = found.first;
        found.deep = true;
        if (!attn_dense_read(graph, inner, dims[0], &found.first, &z) ||
            found.first.rows != found.second.columns)
            return false;
        pooled = attn_before_views(graph, z, dims[0], found.first.columns);
        pool = attn_pooled_read(graph, x, pooled);
        found.half = pool == 0 && is_half_of_each(graph, x, pooled);
    }
    if ((pool == 0 && !found.half) || found.first.columns != dims[1].value)
        return false;
    if (gate->pools != 0 &&
        (found.half || gate->half || (gate->pools & pool) != 0 ||
         found.deep != gate->deep || strcmp(found.activation, gate->activation) != 0 ||
         !same_dense(graph, &found.first, &gate->first) ||
         (found.deep && !same_dense(graph, &found.second, &gate->second))))
        return false;
    found.pools = gate->pools | (found.half ? ATTN_POOLED_MEAN | ATTN_POOLED_MAX : pool);
    *gate = found;
    return true;
}

/* A value of the map's shape, or one that is broadcast to it, before Expand. */
static int32_t before_expand(const struct attn_graph *graph, int32_t x, int32_t value)
{
    const struct attn_node *node = attn_graph_producer(graph, value);
    const bool expands = attn_match_expands(graph, node) &&
                         attn_match_same_shape(graph, x, value) &&
                         attn_match_is_f32(graph, node->in[0]) &&
                         match_type(graph, node->in[0])->rank == 4;
    return expands ? node->in[0] : value;
}

bool attn_channel_gate_read(const struct attn_graph *graph, int32_t x, int32_t value,
                            struct attn_channel_gate *gate)
{
    const attnrun_type *t = match_type(graph, x);
    if (t->rank != 4 || !dim_is_const(t->dims[1]) || t->dims[1].value < 1)
        return false;
    const attnrun_dim batch = t->dims[0];
    const int64_t channels = t->dims[1].value;
    value = before_expand(graph, x, value);
    if (match_type(graph, value)->rank != 4 ||
        !attn_is_vectors(graph, value, batch, channels))
        return false;
    value = attn_before_views(graph, value, batch, channels);
    const struct attn_node *node = attn_graph_producer(graph, value);
    const char *word = gate_word(node);
    *gate = (struct attn_channel_gate){ .pools = 0 };
    if (word == NULL)
        return false;
    value = attn_before_views(graph, node->in[0], batch, channels);
    if (read_branch(graph, x, value, gate)) {
        gate->gate = word;
        return true;
    }
    const struct attn_node *add = attn_graph_producer(graph, value);
    if (!node_is(add, "Add") || add->pub.n_in != 2)
        return false;
    for (int i = 0; i < MAX_BRANCHES; i++)
        if (!attn_is_vectors(graph, add->in[i], batch, channels) ||
            !read_branch(graph, x, add->in[i], gate))
            return false;
    gate->gate = word;
    return gate->deep;
}

/* One number of each channel is left. */
static bool is_pooled(const struct attn_graph *graph, int32_t value)
{
    const attnrun_type *t = match_type(graph, value);
    for (int i = 2; i < t->rank; i++)
        if (!dim_is(t->dims[i], 1))
            return false;
    return t->rank >= 2;
}

/* The pool that `value` is made of by a product and what is between; NULL: none near. */
static const struct attn_node *pool_behind(const struct attn_graph *graph, int32_t value)
{
    static const char *const pools[] = { "ReduceMean",  "ReduceMax",
                                         "MaxPool",     "GlobalAveragePool",
                                         "AveragePool", "GlobalMaxPool" };
    bool product = false;
    for (int k = 0; k < 2 * MAX_STEPS; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (node == NULL || node->pub.n_in < 1)
            return NULL;
        for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
            if (node_is(node, pools[i]) && is_pooled(graph, node->out[0]))
                return product ? node : NULL;
        product = product || node_is(node, "Conv") || node_is(node, "Gemm") ||
                  node_is(node, "MatMul");
        const bool second = node->pub.n_in > 1 && match_is_constant(graph, node->in[0]);
        value = node->in[second];
    }
    return NULL;
}

/* Whether a node moves numbers, and changes none. */
static bool moves_alone(const struct attn_node *node)
{
    return node_is(node, "Reshape") || node_is(node, "Unsqueeze") ||
           node_is(node, "Squeeze") || node_is(node, "Flatten") ||
           node_is(node, "Transpose") || node_is(node, "Expand");
}

const char *attn_channel_gate_why(const struct attn_graph *graph, int32_t x,
                                  int32_t value)
{
    const attnrun_type *t = match_type(graph, x);
    if (t->rank != 4 || !dim_is_const(t->dims[1]) || t->dims[1].value < 1)
        return NULL;
    value = before_expand(graph, x, value);
    if (!attn_is_vectors(graph, value, t->dims[0], t->dims[1].value))
        return NULL;
    const struct attn_node *pool = pool_behind(graph, value);
    if (pool == NULL)
        return NULL;
    const struct attn_node *inner = attn_graph_producer(graph, pool->in[0]);
    if (pool->in[0] != x && (inner == NULL || inner->pub.n_in < 1 || inner->in[0] != x ||
                             !node_is(inner, pool->pub.op_type)))
        return "it pools a different map from the one that it gates";
    const struct attn_node *gate = attn_graph_producer(graph, value);
    while (moves_alone(gate))
        gate = attn_graph_producer(graph, gate->in[0]);
    return gate_word(gate) == NULL
               ? "its gate is not a sigmoid"
               : "its pools, or what is computed from them, have no known form";
}

/* ---- gates of pixels ---- */

/* Max (true) or mean (false) over the channels of x, (batch, 1, height, width). */
static bool read_plane(const struct attn_graph *graph, int32_t x, int32_t value, bool max)
{
    uint32_t axes;
    const struct attn_node *node = attn_graph_producer(graph, value);
    double at = 1;
    if (node_is(node, "Unsqueeze")) {
        if (node->pub.n_in < 2 || !attn_value_scalar(graph, node->in[1], &at) || at < 1 ||
            at > 1)
            return false;
        node = attn_graph_producer(graph, node->in[0]);
        if (node != NULL && attn_match_int(node, "keepdims", 1) != 0)
            return false;
    } else if (node != NULL && attn_match_int(node, "keepdims", 1) == 0) {
        return false;
    }
    return node_is(node, max ? "ReduceMax" : "ReduceMean") && node->in[0] == x &&
           attn_match_axes(graph, node, &axes) && axes == 1u << 1;
}

bool attn_pixel_gate_read(const struct attn_graph *graph, int32_t x, int32_t value,
                          struct attn_pixel_gate *gate)
{
    const attnrun_dim *dims = match_type(graph, x)->dims;
    if (match_type(graph, x)->rank != 4)
        return false;
    value = before_expand(graph, x, value);
    const attnrun_type *t = match_type(graph, value);
    if (t->rank != 4 || !dim_equal(t->dims[0], dims[0]) || !dim_is(t->dims[1], 1) ||
        !dim_equal(t->dims[2], dims[2]) || !dim_equal(t->dims[3], dims[3]))
        return false;
    const struct attn_node *node = attn_graph_producer(graph, value);
    gate->gate = gate_word(node);
    const struct attn_node *conv =
        gate->gate != NULL ? attn_match_in(graph, node, 0, "Conv") : NULL;
    if (conv == NULL || !is_stored(graph, conv->in[1], 4))
        return false;
    const attnrun_tensor *w = &graph->values[conv->in[1]].data;
    const int64_t kernel = w->dims[2];
    gate->w = conv->in[1];
    gate->bias = conv->pub.n_in > 2 ? conv->in[2] : -1;
    if (w->dims[0] != 1 || w->dims[1] != 2 || kernel != w->dims[3] || kernel % 2 == 0 ||
        kernel > MAX_KERNEL || !attn_match_explicit_pads(conv) ||
        (kernel > 1 && attn_node_attr(conv, "pads") == NULL) ||
        !attn_match_all(conv, "pads", kernel / 2) ||
        !attn_match_all(conv, "strides", 1) || !attn_match_all(conv, "dilations", 1) ||
        (gate->bias >= 0 && !is_stored(graph, gate->bias, 1)))
        return false;
    const struct attn_node *concat = attn_match_in(graph, conv, 0, "Concat");
    if (concat == NULL || concat->pub.n_in != 2)
        return false;
    const int64_t axis = attn_match_int(concat, "axis", 0);
    for (int first = 0; first < 2 && (axis == 1 || axis == -3); first++)
        if (read_plane(graph, x, concat->in[first], true) &&
            read_plane(graph, x, concat->in[1 - first], false)) {
            gate->mean_first = first == 1;
            return true;
        }
    return false;
}

const char *attn_pixel_gate_why(const struct attn_graph *graph, int32_t x, int32_t value)
{
    const struct attn_node *node =
        attn_graph_producer(graph, before_expand(graph, x, value));
    const struct attn_node *conv = node ? attn_match_in(graph, node, 0, "Conv") : NULL;
    const struct attn_node *concat =
        conv != NULL ? attn_match_in(graph, conv, 0, "Concat") : NULL;
    if (gate_word(node) == NULL || concat == NULL || concat->pub.n_in != 2)
        return NULL;
    int planes = 0;
    for (int side = 0; side < 2; side++)
        for (int max = 0; max < 2; max++)
            planes += read_plane(graph, x, concat->in[side], max == 1);
    return planes == 2
               ? "its convolution is not a dense one of odd size around each pixel"
               : NULL;
}

/* ---- maps of convolutions ---- */

bool attn_is_map_conv(const struct attn_graph *graph, const struct attn_node *node)
{
    const bool conv =
        node_is(node, "Conv") || node_is_of(node, "attnrun.fused", "FusedConv");
    if (!conv || node->pub.n_in < 2)
        return false;
    const attnrun_tensor *w = &graph->values[node->in[1]].data;
    return w->data != NULL && w->rank == 4;
}

bool attn_keeps_blocks(const struct attn_node *node)
{
    static const char *const names[] = {
        "Relu",  "Mul",   "Sigmoid",     "HardSigmoid",
        "Clip",  "Add",   "HardSwish",   "BatchNormalization",
        "Gelu",  "Swish", "AveragePool", "MaxPool",
        "Split", "Slice"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (node_is(node, names[i]))
            return true;
    return false;
}

const struct attn_node *attn_conv_before(const struct attn_graph *graph, int32_t value)
{
    for (int k = 0; k < MAX_STEPS; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (attn_is_map_conv(graph, node))
            return node;
        if (node == NULL || node->pub.n_in < 1 || !attn_keeps_blocks(node))
            return NULL;
        value = attn_match_is_map(graph, node->in[0]) ? node->in[0]
                                                      : node->in[node->pub.n_in - 1];
    }
    return NULL;
}

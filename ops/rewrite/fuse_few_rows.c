/* fuse_few_rows.c - a product of few rows with a projection of many tokens multiplies the rows by
 * the weights first, so that the projection is never formed:
 *
 *   A (X W + b)'  becomes  (A W') X' + A b'          scores of few queries
 *   P (X W + b)   becomes  (P X) W + (sums of P) b   their values
 *
 * for each sample and head, which has its own columns of W. The global queries of Longformer, class
 * tokens, and learned queries that pool tokens are such rows. All sizes are constants. The
 * projection may be moved by Reshape and Transpose in front of the product, and cut by Slice,
 * Gather and Split, as keys and values of one projection are. provenance.h says of each row which
 * row of X and which columns of W it is. Only such products read the projection.
 *
 * Applied where rows <= dim / 2 and 4 rows <= tokens: 2 tokens width heads (dim - rows) FLOPs
 * less. Sums are taken in another order. A class token over 576 patches, 8 heads of 48, Zen 4: 3.1
 * -> 0.14 ms. */
#include "../../runtime/poll.h"
#include "sliding_rows.h"

enum { MAX_PRODUCTS = 4, MAX_MOVES = 16 };

/* A projection X W + bias, with the heads that a product reads of it. */
struct few_rows {
    struct attn_node *product;
    int32_t a, x, w, bias; /* bias -1: none */
    int64_t batch, heads, rows, dim, tokens, width;
    int64_t column, head_step; /* of W: where head 0 begins, and from one to the next */
    bool tokens_first; /* X is (tokens, batch, width), else (batch, tokens, width) */
    bool values;       /* P (X W + b) */
};

/* ---- what is there ---- */

static bool is_matrix(const struct attn_graph *graph, int32_t value)
{
    return match_is_constant(graph, value) && attn_match_is_f32_of(graph, value, 2);
}

/* Reads a value as X W + bias. */
static bool read_projection(const struct attn_graph *graph, int32_t value,
                            struct few_rows *f)
{
    const struct attn_node *node = attn_graph_producer(graph, value);
    int64_t n;
    f->bias = -1;
    if (node_is(node, "Add")) {
        const int side = match_is_constant(graph, node->in[0]);
        f->bias = node->in[1 - side];
        if (!match_is_constant(graph, f->bias) ||
            !attn_match_vector(graph, f->bias, &n) ||
            graph->values[node->in[side]].n_uses != 1 ||
            !attn_match_same_shape(graph, node->in[side], value))
            return false;
        node = attn_graph_producer(graph, node->in[side]);
    }
    if (!node_is(node, "MatMul") || !is_matrix(graph, node->in[1]) ||
        match_is_constant(graph, node->in[0]))
        return false;
    f->x = node->in[0];
    f->w = node->in[1];
    f->width = match_type(graph, f->w)->dims[0].value;
    n = match_type(graph, f->w)->dims[1].value;
    return attn_provenance_is_static(graph, f->x) &&
           (f->bias < 0 || tensor_count(&graph->values[f->bias].data) == n);
}

static bool only_moves(const struct attn_node *node)
{
    static const char *const words[] = { "Reshape", "Transpose", "Squeeze", "Unsqueeze",
                                         "Slice",   "Gather",    "Split" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (node_is(node, words[i]))
            return true;
    return false;
}

/* The value that an operand is moved from. */
static int32_t moved_from(const struct attn_graph *graph, int32_t value)
{
    for (int k = 0; k < 16; k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if (node == NULL || !only_moves(node))
            return node == NULL ? -1 : value;
        value = node->in[0];
    }
    return -1;
}

static bool is_read(const struct attn_graph *graph, int32_t value)
{
    return value >= 0 && (graph->values[value].n_uses > 0 ||
                          (graph->values[value].flags & ATTN_VALUE_OUTPUT) != 0);
}

/* The products whose right operands are moved from a value, perhaps by a scalar; false where others
 * read it. */
static bool find_products(const struct attn_graph *graph, int32_t value,
                          struct attn_node **products, int *n)
{
    int32_t open[MAX_MOVES] = { value };
    *n = 0;
    for (int n_open = 1; n_open > 0;) {
        value = open[--n_open];
        if ((graph->values[value].flags & ATTN_VALUE_OUTPUT) != 0)
            return false;
        for (const struct attn_use *use = graph->values[value].uses; use;
             use = use->next) {
            struct attn_node *node = use->node;
            const bool product = node_is(node, "MatMul");
            bool read = false;
            for (int32_t out = 0; out < node->pub.n_out; out++)
                read = read || is_read(graph, node->out[out]);
            if (!read)
                continue; /* replaced before */
            if (product && node->in[1] == value && node->in[0] != value &&
                *n < MAX_PRODUCTS) {
                products[(*n)++] = node;
                continue;
            }
            double x;
            int32_t other = value;
            if (product ||
                (!(only_moves(node) && node->in[0] == value) &&
                 !(node_is(node, "Mul") &&
                   attn_match_scalar(graph, node, true, &x, &other) && other == value)))
                return false;
            for (int32_t out = 0; out < node->pub.n_out; out++) {
                if (is_read(graph, node->out[out]) && n_open == MAX_MOVES)
                    return false;
                if (is_read(graph, node->out[out]))
                    open[n_open++] = node->out[out];
            }
        }
    }
    return true;
}

/* Few rows of (…, rows, dim) and many tokens, by the sizes of a MatMul. */
static bool read_few(const struct attn_graph *graph, const struct attn_node *product,
                     struct few_rows *f)
{
    const attnrun_type *a = match_type(graph, product->in[0]),
                       *b = match_type(graph, product->in[1]);
    if (a->rank < 3 || a->rank != b->rank ||
        !attn_provenance_is_static(graph, product->in[0]) ||
        !attn_provenance_is_static(graph, product->in[1]))
        return false;
    for (int i = 0; i < a->rank - 2; i++)
        if (!dim_equal(a->dims[i], b->dims[i]))
            return false;
    f->rows = a->dims[a->rank - 2].value;
    const int64_t last = a->dims[a->rank - 1].value, columns = b->dims[b->rank - 1].value;
    f->values = last > columns;
    f->tokens = f->values ? last : columns;
    f->dim = f->values ? columns : last;
    return f->rows * 2 <= f->dim && f->rows * 4 <= f->tokens;
}

/* Whether the rows of an operand are those of heads: row y of sample b and head h is token y of the
 * sample, and columns column + h head_step … of the projection. */
static bool has_heads(const struct attn_graph *graph,
                      const struct attn_sliding_rows *rows, struct few_rows *f)
{
    const int64_t columns = match_type(graph, f->w)->dims[1].value, *from = rows->from;
    const attnrun_type *x = match_type(graph, f->x);
    int64_t all = 1;
    for (int a = 0; a < x->rank - 1; a++)
        all *= x->dims[a].value;
    f->batch = all / f->tokens;
    if (rows->dim != f->dim || rows->rows != f->tokens || rows->step != 1 ||
        all % f->tokens != 0 || rows->outer < f->batch || rows->outer % f->batch != 0)
        return false;
    f->heads = rows->outer / f->batch;
    f->column = from[0];
    f->head_step = f->heads > 1 ? from[f->tokens] - from[0] : f->dim;
    if (f->column < 0 || f->head_step < f->dim ||
        f->column + (f->heads - 1) * f->head_step + f->dim > columns)
        return false;
    f->tokens_first = f->batch > 1 && from[1] - from[0] != columns;
    const int64_t token = f->tokens_first ? f->batch : 1,
                  sample = f->tokens_first ? 1 : f->tokens;
    for (int64_t o = 0; o < rows->outer; o++)
        for (int64_t y = 0; y < f->tokens; y++)
            if (from[o * f->tokens + y] !=
                f->column + (o / f->heads * sample + y * token) * columns +
                    o % f->heads * f->head_step)
                return false;
    return true;
}

static attn_status read_rows_of(struct attn_graph *graph, struct attn_pool *pool,
                                int32_t from, struct few_rows *f, bool *done)
{
    struct attn_provenance p = {
        .graph = graph, .pool = pool, .stop = from, .left = INT64_C(1) << 22
    };
    struct attn_sliding_product product = { 0 };
    TRY((f->values ? attn_sliding_read_values
                   : attn_sliding_read_product)(&p, f->product->out[0], &product, done));
    *done = *done && product.b.value == from && has_heads(graph, &product.b, f);
    return ATTNRUN_OK;
}

/* ---- the new nodes ---- */

static attn_status few_rows_add(struct attn_graph *graph, const struct few_rows *f,
                                const char *op_type, int32_t a, int32_t b, int32_t *out)
{
    const int32_t in[2] = { a, b };
    return attn_match_add(graph, f->product, op_type, 2, in, 0, NULL, out);
}

/* A constant (heads, dim, width) or (heads, width, dim) of the weights. */
static attn_status add_weights(struct attn_graph *graph, const struct few_rows *f,
                               int32_t *value)
{
    const int64_t n = match_type(graph, f->w)->dims[1].value,
                  dims[3] = { f->heads, f->values ? f->width : f->dim,
                              f->values ? f->dim : f->width };
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 3, dims, value, &data));
    const attnrun_tensor *w = &graph->values[f->w].data;
    float *to = data;
    for (int64_t h = 0; h < f->heads; h++)
        for (int64_t i = 0; i < dims[1]; i++) {
            for (int64_t j = 0; j < dims[2]; j++)
                *to++ = match_f32_at(w, (f->values ? i : j) * n + f->column +
                                            h * f->head_step + (f->values ? j : i));
            TRY(attn_poll_work(dims[2] * (int64_t)sizeof *to));
        }
    return ATTNRUN_OK;
}

/* X as (batch, tokens, width). */
static attn_status add_tokens(struct attn_graph *graph, const struct few_rows *f,
                              int32_t *x)
{
    const int64_t dims[3] = { f->tokens_first ? f->tokens : f->batch,
                              f->tokens_first ? f->batch : f->tokens, f->width };
    *x = f->x;
    TRY(attn_match_reshape(graph, f->product, 3, dims, x));
    return attn_labels_transpose(graph, f->product, f->tokens_first ? "tbw" : "btw",
                                 "btw", 3, x);
}

/* y + the bias as a constant of these dims, multiplied by `by`. */
static attn_status add_bias(struct attn_graph *graph, const struct few_rows *f,
                            int32_t by, int rank, const int64_t *dims,
                            const char *op_type, int32_t *y)
{
    int32_t bias;
    void *data;
    TRY(attn_graph_new_constant(graph, ATTNRUN_F32, rank, dims, &bias, &data));
    const char *from = (const char *)graph->values[f->bias].data.data;
    for (int64_t h = 0; h < f->heads; h++)
        memcpy((float *)data + h * f->dim,
               from + (f->column + h * f->head_step) * (int64_t)sizeof(float),
               (size_t)f->dim * sizeof(float));
    TRY(few_rows_add(graph, f, op_type, by, bias, &bias));
    return few_rows_add(graph, f, "Add", *y, bias, y);
}

/* (A W') X' + A b', (batch, heads, rows, tokens). */
static attn_status make_scores(struct attn_graph *graph, const struct few_rows *f,
                               int32_t *y)
{
    const int64_t joined[3] = { f->batch, f->heads * f->rows, f->width },
                  split[4] = { f->batch, f->heads, f->rows, f->tokens },
                  a_dims[4] = { f->batch, f->heads, f->rows, f->dim },
                  b_dims[3] = { f->heads, f->dim, 1 };
    const struct attn_attr trans_b = MATCH_INT("transB", 1);
    int32_t a = f->a, x, w;
    TRY(add_tokens(graph, f, &x));
    TRY(add_weights(graph, f, &w));
    TRY(attn_match_reshape(graph, f->product, 4, a_dims, &a));
    TRY(few_rows_add(graph, f, "MatMul", a, w, y));
    TRY(attn_match_reshape(graph, f->product, 3, joined, y));
    const int32_t in[2] = { *y, x };
    struct attn_node *made;
    TRY(attn_graph_add_value(graph, NULL, y));
    TRY(attn_graph_insert(graph, f->product, "attnrun.fused", "FusedMatMul", 2, in, 1, y,
                          1, &trans_b, &made));
    TRY(attn_match_reshape(graph, f->product, 4, split, y));
    return f->bias >= 0 ? add_bias(graph, f, a, 3, b_dims, "MatMul", y) : ATTNRUN_OK;
}

/* (P X) W + (sums of P) b, (batch, heads, rows, dim). */
static attn_status make_values(struct attn_graph *graph, const struct few_rows *f,
                               int32_t *y)
{
    const int64_t joined[3] = { f->batch, f->heads * f->rows, f->tokens },
                  split[4] = { f->batch, f->heads, f->rows, f->width },
                  p_dims[4] = { f->batch, f->heads, f->rows, f->tokens },
                  b_dims[3] = { f->heads, 1, f->dim };
    int64_t last = -1;
    int32_t p = f->a, x, w, axes;
    TRY(add_tokens(graph, f, &x));
    TRY(add_weights(graph, f, &w));
    TRY(attn_match_reshape(graph, f->product, 3, joined, &p));
    TRY(few_rows_add(graph, f, "MatMul", p, x, y));
    TRY(attn_match_reshape(graph, f->product, 4, split, y));
    TRY(few_rows_add(graph, f, "MatMul", *y, w, y));
    if (f->bias < 0)
        return ATTNRUN_OK;
    TRY(attn_match_reshape(graph, f->product, 4, p_dims, &p));
    TRY(attn_match_ints(graph, 1, &last, &axes));
    TRY(few_rows_add(graph, f, "ReduceSum", p, axes, &p));
    return add_bias(graph, f, p, 3, b_dims, "Mul", y);
}

static attn_status few_rows_replace(struct attn_graph *graph, const struct few_rows *f)
{
    const int32_t out = f->product->out[0];
    const int rank = match_type(graph, out)->rank;
    int64_t dims[ATTNRUN_MAX_RANK];
    int32_t both[2];
    struct attn_node *made;
    for (int a = 0; a < rank; a++)
        dims[a] = match_type(graph, out)->dims[a].value;
    TRY((f->values ? make_values : make_scores)(graph, f, &both[0]));
    TRY(attn_match_ints(graph, rank, dims, &both[1]));
    TRY(attn_match_make(graph, f->product, "", "Reshape", 2, both, out, 0, NULL, &made));
    attn_match_replace(graph, out, made);
    return ATTNRUN_OK;
}

/* A scalar that is multiplied with moved rows of a projection is multiplied with the few rows: A (s
 * B) is (s A) B. */
static attn_status move_scale(struct attn_graph *graph, struct attn_node *product,
                              struct few_rows *f, bool *done)
{
    const struct attn_node *mul = attn_match_sole_in(graph, product, 1, "Mul");
    double scale;
    int32_t b;
    if (mul == NULL || !attn_match_scalar(graph, mul, true, &scale, &b) ||
        !attn_match_same_shape(graph, b, product->in[1]))
        return ATTNRUN_OK;
    int32_t a[2] = { product->in[0], attn_match_other(mul, b) };
    const int32_t from = moved_from(graph, b);
    struct attn_node *products[MAX_PRODUCTS];
    int n;
    *done = from >= 0 && from != b && read_projection(graph, from, f) &&
            find_products(graph, from, products, &n);
    if (!*done)
        return ATTNRUN_OK;
    TRY(attn_match_add(graph, product, "Mul", 2, a, 0, NULL, &a[0]));
    graph->values[a[0]].type = *match_type(graph, product->in[0]);
    attn_node_set_input(graph, product, 0, a[0]);
    attn_node_set_input(graph, product, 1, b);
    return ATTNRUN_OK;
}

/* A product as one of few rows with moved columns of the projection `from`. */
static attn_status few_rows_read(struct attn_graph *graph, struct attn_node *product,
                                 int32_t from, struct few_rows *f, bool *done)
{
    struct attn_pool pool;
    *f = (struct few_rows){ .product = product, .a = product->in[0] };
    *done = false;
    if (!read_few(graph, product, f) || !read_projection(graph, from, f))
        return ATTNRUN_OK;
    attn_pool_init(&pool, graph->model->pool.memory, ATTN_MEM_MODEL);
    const attn_status status = read_rows_of(graph, &pool, from, f, done);
    attn_pool_free(&pool);
    return status;
}

static attn_status try_few_rows(struct attn_graph *graph, struct attn_node *product,
                                int32_t *applied)
{
    struct few_rows found = { .product = product }, other;
    struct attn_node *products[MAX_PRODUCTS];
    bool done = false;
    int n;
    if (!read_few(graph, product, &found))
        return ATTNRUN_OK;
    TRY(move_scale(graph, product, &found, &done));
    *applied += done;
    const int32_t from = moved_from(graph, product->in[1]);
    if (from < 0 || from == product->in[1] || !find_products(graph, from, products, &n))
        return ATTNRUN_OK;
    TRY(few_rows_read(graph, product, from, &found, &done));
    for (int k = 0; k < n && done; k++)
        if (products[k] != product)
            TRY(few_rows_read(graph, products[k], from, &other, &done));
    *applied += done;
    return done ? few_rows_replace(graph, &found) : ATTNRUN_OK;
}

const struct attn_pass attn_pass_few_rows = { .name = "few_rows",
                                              .op_type = "MatMul",
                                              .try_node = try_few_rows };

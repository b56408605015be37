/* fuse_performer.c - attention by random features of the softmax kernel, or of a
 * function, becomes PerformerAttention of domain attnrun. The pass runs after
 * linear_attention. It looks for LinearAttention whose queries and keys are both features
 * of constant directions W (features, dim):
 *
 *   r (exp(u - n - c) + e), u = s x W', n = s^2 |x|^2 / 2,
 *   c = the largest u of a query; of all keys of a head           softmax_pos
 *   the same without c                                            … without stabilizer
 *   f(u) + e                                                      generalized
 *
 * s is a product of scalars on x, on W or on u. The terms may come in any order. The
 * product is MatMul or Einsum, and W may have been repeated for each head and sample. The
 * numbers s, e and (beside an epsilon in the quotient) r must be the same for queries and
 * keys. r cancels, or changes that epsilon. Heads may come before tokens or behind them.
 */
#include <math.h>

#include "../../runtime/poll.h"
#include "product.h"

enum { MAX_TERMS = 4 };

struct features {
    int32_t x, w; /* (…, dim); (features, dim) or (1, heads, features, dim) */
    int32_t map;  /* of kernel_fns; -1: softmax_pos */
    double scale, ratio, epsilon;
    bool transposed; /* w is (…, dim, features) */
    bool stable;     /* c is there */
    bool by_query;   /* c of each query; else of all keys */
    int64_t n;
};

static const struct {
    const char *op_type, *name;
} kernel_fns[] = { { "Relu", "relu" }, { "Sigmoid", "sigmoid" }, { "Tanh", "tanh" },
                   { "Abs", "abs" },   { "Cos", "cos" },         { "Sin", "sin" } };

/* ---- directions ---- */

/* Constant (samples, heads, features, dim), where all samples hold the same. */
static bool samples_agree(const attnrun_tensor *w)
{
    const int64_t bytes = (int64_t)sizeof(float) * w->dims[1] * w->dims[2] * w->dims[3];
    for (int64_t b = 1; b < w->dims[0] && !attn_stops_node(b); b++)
        if (memcmp(w->data, (const char *)w->data + b * bytes, (size_t)bytes) != 0)
            return false;
    return true;
}

/* The same of (samples, heads, features, dim): whether all heads hold what the first one does.
 * Where heads are behind tokens, that axis is one of tokens. */
static bool heads_agree(const attnrun_tensor *w)
{
    const int64_t bytes = (int64_t)sizeof(float) * w->dims[2] * w->dims[3];
    for (int64_t h = 1; h < w->dims[1] && !attn_stops_node(h); h++)
        if (memcmp(w->data, (const char *)w->data + h * bytes, (size_t)bytes) != 0)
            return false;
    return true;
}

/* The last two dims of both are the same. */
static bool same_last(const struct attn_graph *graph, int32_t a, int32_t b)
{
    const attnrun_type *x = match_type(graph, a), *y = match_type(graph, b);
    return x->rank >= 2 && y->rank >= 2 &&
           dim_equal(x->dims[x->rank - 1], y->dims[y->rank - 1]) &&
           dim_equal(x->dims[x->rank - 2], y->dims[y->rank - 2]);
}

/* W as it was before it was repeated along axes in front; -1 where it is none. */
static int32_t directions(const struct attn_graph *graph, int32_t value)
{
    for (int k = 0; k < 4 && !match_is_constant(graph, value); k++) {
        const struct attn_node *node = attn_graph_producer(graph, value);
        if ((!attn_match_expands(graph, node) && !node_is(node, "Unsqueeze")) ||
            !same_last(graph, value, node->in[0]))
            return -1;
        value = node->in[0];
    }
    const attnrun_tensor *w = &graph->values[value].data;
    if (!match_is_constant(graph, value) || w->dtype != ATTNRUN_F32 ||
        tensor_count(w) == 0)
        return -1;
    if (w->rank == 2)
        return value;
    return w->rank == 4 && samples_agree(w) ? value : -1;
}

/* The constant as (features, dim), which are packed once, or, of heads that are unlike, as (heads,
 * features, dim). */
static attn_status as_projection(struct attn_graph *graph, struct attn_node *before,
                                 bool transposed, int32_t *value)
{
    static const int64_t swap2[] = { 1, 0 }, swap3[] = { 0, 2, 1 };
    const attnrun_tensor w = graph->values[*value].data;
    attnrun_tensor view;
    const int rank = w.rank == 2 || heads_agree(&w) ? 2 : 3;
    if (w.rank != rank) {
        TRY(attnrun_tensor_make(w.dtype, rank, w.dims + w.rank - rank, w.data, &view));
        TRY(attn_graph_add_constant(graph, NULL, &view, value));
    }
    if (!transposed)
        return ATTNRUN_OK;
    const struct attn_attr perm = { .name = "perm",
                                    .kind = ATTN_ATTR_INTS,
                                    .ints = { rank == 2 ? swap2 : swap3, rank } };
    return attn_match_add(graph, before, "Transpose", 1, value, 1, &perm, value);
}

/* The samples, heads and tokens of x are those of its product: those of W do not repeat them. */
static bool not_repeated(const struct attn_graph *graph, int32_t x, int32_t product)
{
    const attnrun_type *a = match_type(graph, x), *b = match_type(graph, product);
    return a->rank == 4 && b->rank == 4 && dim_equal(a->dims[0], b->dims[0]) &&
           dim_equal(a->dims[1], b->dims[1]) && dim_equal(a->dims[2], b->dims[2]);
}

/* u = s x W' of rank 4. */
static bool read_projected(const struct attn_graph *graph, int32_t value,
                           struct features *f)
{
    struct attn_product p;
    f->scale = 1;
    value = attn_match_strip_scale(graph, value, &f->scale);
    if (!attn_product_read(graph, value, &p) || p.n_in != 2 || p.out.n != 4)
        return false;
    for (int side = 0; side < 2; side++) {
        struct attn_labelled x = p.in[1 - side], w = p.in[side];
        double scale = f->scale;
        const char summed = x.labels[x.n - 1], made = p.out.labels[3];
        if (x.n != 4 || memcmp(x.labels, p.out.labels, 3) != 0)
            continue;
        w.value = attn_match_strip_scale(graph, w.value, &scale);
        attn_labelled_untranspose(graph, &w);
        w.value = attn_match_strip_scale(graph, w.value, &scale);
        f->w = directions(graph, w.value);
        f->transposed = w.labels[w.n - 1] == made;
        if (f->w < 0 || memcmp(w.labels, x.labels + 4 - w.n, (size_t)w.n - 2) != 0 ||
            w.labels[w.n - 1 - f->transposed] != summed ||
            w.labels[w.n - 2 + f->transposed] != made)
            continue;
        f->x = attn_match_strip_scale(graph, x.value, &scale);
        f->scale = scale;
        f->n = graph->values[f->w]
                   .data.dims[graph->values[f->w].data.rank - 2 + f->transposed];
        return attn_match_is_f32(graph, f->x) && not_repeated(graph, f->x, value);
    }
    return false;
}

/* ---- terms of the exponent ---- */

struct term {
    int32_t value;
    bool minus;
};

/* A sum as up to MAX_TERMS terms; 0: there are more. */
static int read_terms(const struct attn_graph *graph, int32_t value, struct term *terms)
{
    int n = 1;
    terms[0] = (struct term){ value, false };
    for (int k = 0; k < n;) {
        const struct attn_node *node = attn_graph_producer(graph, terms[k].value);
        const bool sub = node_is(node, "Sub");
        if (!sub && !node_is(node, "Add")) {
            k++;
            continue;
        }
        if (n == MAX_TERMS)
            return 0;
        terms[n++] = (struct term){ node->in[1], terms[k].minus != sub };
        terms[k].value = node->in[0];
    }
    return n;
}

/* Half of s^2 |x|^2 over the last axis, which stays as one of 1. */
static bool is_q_norm(const struct attn_graph *graph, int32_t value,
                      const struct features *f)
{
    double factor = 1, two = 2, scale = 1;
    uint32_t axes;
    const attnrun_type *t = match_type(graph, value);
    int32_t x = -1;
    if (t->rank != 4 || !dim_is(t->dims[3], 1))
        return false;
    value = attn_match_strip_scale(graph, value, &factor);
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Unsqueeze") || node_is(node, "Reshape")) {
        value = attn_match_strip_scale(graph, node->in[0], &factor);
        node = attn_graph_producer(graph, value);
    }
    if (!node_is(node, "ReduceSum") && !node_is(node, "ReduceSumSquare"))
        return false;
    if (match_type(graph, node->in[0])->rank != 4 ||
        !attn_match_axes(graph, node, &axes) || axes != 8)
        return false;
    for (int i = 0; i < 3; i++) /* an Unsqueeze or Reshape moved no axis */
        if (!dim_equal(t->dims[i], match_type(graph, node->in[0])->dims[i]))
            return false;
    x = node->in[0];
    if (node_is(node, "ReduceSum")) {
        x = attn_match_strip_scale(graph, x, &factor);
        const struct attn_node *square = attn_graph_producer(graph, x);
        const bool power = node_is(square, "Pow");
        if (power ? !attn_match_scalar(graph, square, false, &two, &x) || two != 2
                  : !node_is(square, "Mul") || square->in[0] != square->in[1])
            return false;
        x = square->in[0];
    }
    x = attn_match_strip_scale(graph, x, &scale);
    return x == f->x && attn_match_near(factor * scale * scale, f->scale * f->scale / 2);
}

/* The largest u, of a query or of all keys of a head. */
static bool is_largest(const struct attn_graph *graph, int32_t value, int32_t u,
                       struct features *f)
{
    uint32_t axes, more;
    const struct attn_node *node = attn_graph_producer(graph, value);
    const bool outer = node_is(node, "ReduceMax") && node->in[0] != u;
    const struct attn_node *inner =
        outer ? attn_match_in(graph, node, 0, "ReduceMax") : node;
    if (!node_is(inner, "ReduceMax") || inner->in[0] != u ||
        attn_match_int(inner, "keepdims", 1) == 0 ||
        attn_match_int(node, "keepdims", 1) == 0 ||
        !attn_match_axes(graph, inner, &axes) || !attn_match_axes(graph, node, &more))
        return false;
    axes |= more;
    f->stable = true;
    f->by_query = axes == 8;
    return axes == 8 || axes == 12;
}

/* exp(u - n - c), terms in any order. */
static bool read_exponent(const struct attn_graph *graph, int32_t value,
                          struct features *f)
{
    struct term terms[MAX_TERMS];
    const int n = read_terms(graph, value, terms);
    int u = -1, norms = 0;
    for (int k = 0; k < n && u < 0; k++)
        if (!terms[k].minus && read_projected(graph, terms[k].value, f))
            u = k;
    for (int k = 0; k < n && u >= 0; k++) {
        if (k == u)
            continue;
        if (!terms[k].minus)
            return false;
        if (is_q_norm(graph, terms[k].value, f))
            norms++;
        else if (f->stable || !is_largest(graph, terms[k].value, terms[u].value, f))
            return false;
    }
    return u >= 0 && norms == 1;
}

static bool read_features(const struct attn_graph *graph, int32_t value,
                          struct features *f)
{
    double outer = 1;
    int32_t other;
    *f = (struct features){ .x = -1, .map = -1, .ratio = 1 };
    value = attn_match_strip_scale(graph, value, &outer);
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Add") &&
        attn_match_scalar(graph, node, true, &f->epsilon, &other)) {
        value = attn_match_strip_scale(graph, other, &f->ratio);
        node = attn_graph_producer(graph, value);
    }
    if (!(f->ratio > 0) || !(outer > 0) || !(f->epsilon >= 0))
        return false;
    f->epsilon /= f->ratio;
    f->ratio *= outer;
    if (node_is(node, "Exp"))
        return read_exponent(graph, node->in[0], f);
    for (size_t k = 0; k < sizeof kernel_fns / sizeof *kernel_fns; k++)
        if (node_is(node, kernel_fns[k].op_type)) {
            f->map = (int32_t)k;
            return read_projected(graph, node->in[0], f);
        }
    return false;
}

/* ---- the whole ---- */

/* What a LinearAttention reads as (batch, heads, tokens, features), or, where the heads are
 * behind the tokens, what a Reshape made of those axes; -1: of others. */
static int32_t operand(const struct attn_graph *graph, const struct attn_node *node,
                       int in, bool by_token)
{
    if (!by_token)
        return node->in[in];
    const struct attn_node *reshape = attn_match_in(graph, node, in, "Reshape");
    if (reshape == NULL || match_type(graph, reshape->in[0])->rank != 4)
        return -1;
    const attnrun_dim *four = match_type(graph, reshape->in[0])->dims,
                      *three = match_type(graph, node->in[in])->dims;
    return dim_equal(four[0], three[0]) && dim_equal(four[1], three[1]) &&
                   dim_is(four[2], attn_match_int(node, "q_num_heads", 0))
               ? reshape->in[0]
               : -1;
}

static bool same_directions(const struct attn_graph *graph, int32_t a, int32_t b)
{
    const attnrun_tensor *x = &graph->values[a].data, *y = &graph->values[b].data;
    return a == b ||
           (x->rank == y->rank &&
            memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) == 0 &&
            memcmp(x->data, y->data, (size_t)tensor_count(x) * sizeof(float)) == 0);
}

/* The first condition that fails, or NULL. */
static const char *performer_compare(const struct attn_graph *graph,
                                     const struct features *q, const struct features *k,
                                     bool by_token)
{
    const int32_t token = by_token ? 1 : 2, head = 3 - token;
    if (q->map != k->map || q->transposed != k->transposed ||
        !same_directions(graph, q->w, k->w) || !attn_match_near(q->scale, k->scale) ||
        !attn_match_near(q->epsilon, k->epsilon))
        return "the features of queries are not those of keys";
    if (q->map < 0 && (q->stable != k->stable ||
                       (q->stable && (!q->by_query || k->by_query || by_token))))
        return "it does not subtract the largest value of each query and of all keys of "
               "a head";
    if (!(q->scale > 0) || !isfinite((float)(q->scale * q->scale)) ||
        !isfinite((float)q->epsilon))
        return "its scale is not positive or not finite";
    const attnrun_tensor *w = &graph->values[q->w].data;
    const attnrun_type *x = match_type(graph, q->x);
    if (!dim_is(x->dims[3], w->dims[w->rank - 1 - q->transposed]) ||
        !dim_is_const(x->dims[head]) ||
        (w->rank == 4 && w->dims[1] != 1 &&
         (by_token ? !heads_agree(w) : w->dims[1] != x->dims[head].value)))
        return "its projection has a different size";
    return NULL;
}

static attn_status performer_replace(struct attn_graph *graph, struct attn_node *node,
                                     const struct features *q, const struct features *k,
                                     bool by_token)
{
    /* The operator's own factor: M^-1/2 for softmax_pos, none otherwise. */
    const bool by_keys = attn_match_string(node, "denominator", "add_keys");
    const double own = q->map < 0 ? 1 / (double)q->n : 1,
                 epsilon = (double)attn_match_float(node, "epsilon", 1e-6f) *
                           (by_keys ? sqrt(own) / k->ratio : own / (q->ratio * k->ratio));
    int32_t in[4] = { q->x, k->x, node->in[2], q->w };
    const int64_t heads = match_type(graph, q->x)->dims[by_token ? 2 : 1].value;
    struct attn_attr attrs[11] = {
        MATCH_FLOAT("scale", (float)(q->scale * q->scale)),
        MATCH_STRING("features", q->map < 0 ? "softmax_pos" : "generalized"),
        MATCH_INT("stabilizer", q->stable),
        MATCH_STRING("denominator", !(epsilon > 0) ? "none"
                                    : by_keys      ? "add_keys"
                                                   : "add"),
        MATCH_FLOAT("denominator_epsilon", (float)epsilon),
        MATCH_FLOAT(q->map < 0 ? "feature_epsilon" : "kernel_epsilon", (float)q->epsilon),
        MATCH_INT("is_causal", attn_match_int(node, "is_causal", 0)),
    };
    int n = 7;
    struct attn_node *made;
    if (q->map >= 0)
        attrs[n++] = (struct attn_attr)MATCH_STRING("kernel_fn", kernel_fns[q->map].name);
    TRY(as_projection(graph, node, q->transposed, &in[3]));
    const int64_t joined[3] = { 0, 0, heads * match_type(graph, q->x)->dims[3].value };
    for (int i = 0; by_token && i < 2; i++)
        TRY(attn_match_reshape(graph, node, 3, joined, &in[i]));
    for (int i = 0; by_token && i < 2; i++)
        attrs[n++] =
            (struct attn_attr)MATCH_INT(i == 0 ? "q_num_heads" : "kv_num_heads", heads);
    TRY(attn_match_make(graph, node, "attnrun", "PerformerAttention", 4, in, node->out[0],
                        n, attrs, &made));
    attn_match_replace(graph, node->out[0], made);
    return ATTNRUN_OK;
}

static attn_status performer_try_node(struct attn_graph *graph, struct attn_node *node,
                                      int32_t *applied)
{
    struct features q, k;
    if (!node_is_of(node, "attnrun", "LinearAttention") || node->pub.n_in != 3 ||
        attn_match_int(node, "dims_first", 0) != 0)
        return ATTNRUN_OK;
    const bool by_token = match_type(graph, node->in[0])->rank == 3;
    const int32_t fq = operand(graph, node, 0, by_token),
                  fk = operand(graph, node, 1, by_token);
    const char *why = NULL;
    const bool adds = attn_node_attr(node, "denominator") == NULL ||
                      attn_match_string(node, "denominator", "add") ||
                      attn_match_string(node, "denominator", "add_keys");
    if (!adds ||
        attn_match_int(node, "q_num_heads", 1) !=
            attn_match_int(node, "kv_num_heads", 1) ||
        !attn_match_string(node, "feature_map_q", "identity") ||
        !attn_match_string(node, "feature_map_k", "identity") || fq < 0 || fk < 0 ||
        attn_match_float(node, "scale", 1) < 1 || attn_match_float(node, "scale", 1) > 1)
        return ATTNRUN_OK;
    if (!read_features(graph, fq, &q) || !read_features(graph, fk, &k))
        why = "its features are neither those of the softmax kernel nor a function of a "
              "projection";
    else
        why = performer_compare(graph, &q, &k, by_token);
    if (why != NULL)
        return attn_graph_note(graph, node, "performer", why);
    TRY(attn_graph_note(graph, node, "performer", NULL));
    TRY(performer_replace(graph, node, &q, &k, by_token));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_performer = { .name = "performer",
                                               .try_node = performer_try_node };

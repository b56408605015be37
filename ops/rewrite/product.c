/* product.c - reads MatMul and Einsum as products whose axes have labels, and moves axes into the
 * order of given labels by a Transpose: see product.h. */
#include "product.h"

enum { RANK = PRODUCT_RANK, MAX_WAITING = 12 };

char attn_labelled_own(const struct attn_labelled *x, const struct attn_labelled *other)
{
    char own = 0;
    for (int i = 0; i < x->n; i++)
        if (!attn_labelled_has(other, x->labels[i])) {
            if (own != 0)
                return 0;
            own = x->labels[i];
        }
    return own;
}

void attn_labelled_untranspose(const struct attn_graph *graph, struct attn_labelled *x)
{
    for (int k = 0; k < 2; k++) {
        const struct attn_node *node = attn_graph_producer(graph, x->value);
        const struct attn_attr *perm = node ? attn_node_attr(node, "perm") : NULL;
        const struct attn_labelled before = *x;
        if (!node_is(node, "Transpose") || perm == NULL || perm->kind != ATTN_ATTR_INTS ||
            perm->ints.n != x->n)
            return;
        for (int i = 0; i < x->n; i++)
            x->labels[perm->ints.v[i]] = before.labels[i];
        x->value = node->in[0];
    }
}

attn_status attn_labels_transpose(struct attn_graph *graph, struct attn_node *before,
                                  const char *from, const char *to, int n, int32_t *value)
{
    const attnrun_type type = graph->values[*value].type;
    int64_t *perm = attn_pool_alloc(&graph->model->pool, n * (int64_t)sizeof *perm);
    if (perm == NULL)
        return ATTNRUN_E_MEMORY;
    const struct attn_attr attr = { .name = "perm",
                                    .kind = ATTN_ATTR_INTS,
                                    .ints = { perm, n } };
    const int32_t in = *value;
    struct attn_node *made;
    bool moves = false;
    for (int i = 0; i < n; i++) {
        perm[i] = (const char *)memchr(from, to[i], (size_t)n) - from;
        moves = moves || perm[i] != i;
    }
    if (!moves)
        return ATTNRUN_OK;
    TRY(attn_graph_add_value(graph, NULL, value));
    if (type.rank == n) { /* else of a node that was made just now */
        attnrun_type *const out = &graph->values[*value].type;
        *out = type;
        for (int i = 0; i < n; i++)
            out->dims[i] = type.dims[perm[i]];
    }
    return attn_graph_insert(graph, before, "", "Transpose", 1, &in, 1, value, 1, &attr,
                             &made);
}

static bool take_labels(const struct attn_graph *graph, int32_t value, const char *text,
                        int64_t n, struct attn_labelled *x)
{
    if (n < 1 || n > RANK || value < 0 ||
        graph->values[value].type.kind != ATTNRUN_TENSOR ||
        graph->values[value].type.rank != n)
        return false;
    *x = (struct attn_labelled){ .value = value, .n = (int)n };
    for (int i = 0; i < n; i++) {
        if (text[i] < 'a' || text[i] > 'z' || memchr(text, text[i], (size_t)i) != NULL)
            return false;
        x->labels[i] = text[i];
    }
    return true;
}

/* ---- Einsum ---- */

/* What is left of an equation; blanks mean nothing. */
struct equation {
    const char *text, *end;
    char dots[RANK]; /* labels of the axes that "..." stands for */
    int n_dots;
};

static void skip_blanks(struct equation *e)
{
    while (e->text < e->end && *e->text == ' ')
        e->text++;
}

static bool take_word(struct equation *e, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(e);
    if ((size_t)(e->end - e->text) < n || memcmp(e->text, word, n) != 0)
        return false;
    e->text += n;
    return true;
}

/* How many axes "..." stands for in the first operand; 0 where it has none. */
static int count_dots(struct equation e, int rank)
{
    int labels = 0;
    bool dots = false;
    for (skip_blanks(&e); e.text < e.end && *e.text != ',' && *e.text != '-';
         skip_blanks(&e)) {
        if (take_word(&e, "..."))
            dots = true;
        else {
            labels++;
            e.text++;
        }
    }
    return dots ? rank - labels : 0;
}

/* The labels of one operand: those of the text, with those of `dots` for "...". */
static bool take_operand(const struct attn_graph *graph, int32_t value,
                         struct equation *e, struct attn_labelled *x)
{
    char labels[RANK] = { 0 };
    int64_t n = 0;
    if (take_word(e, "...")) {
        memcpy(labels, e->dots, (size_t)e->n_dots);
        n = e->n_dots;
    }
    for (skip_blanks(e); e->text < e->end && *e->text >= 'a' && *e->text <= 'z';
         e->text++, skip_blanks(e)) {
        if (n == RANK)
            return false;
        labels[n++] = *e->text;
    }
    return take_labels(graph, value, labels, n, x);
}

/* "ab c,cd->ad" or "...c,...cd->...d"; other texts are left alone. */
bool attn_einsum_read(const struct attn_graph *graph, const struct attn_node *node,
                      struct attn_product *p)
{
    const struct attn_attr *attr = attn_node_attr(node, "equation");
    if (!node_is(node, "Einsum") || attr == NULL || attr->kind != ATTN_ATTR_STRING ||
        node->pub.n_in > 3)
        return false;
    struct equation e = { .text = attr->s.data, .end = attr->s.data + attr->s.n };
    e.n_dots = count_dots(e, graph->values[node->in[0]].type.rank);
    if (e.n_dots < 0 || e.n_dots > RANK)
        return false;
    for (char label = 'a', *next = e.dots; label <= 'z' && next < e.dots + e.n_dots;
         label++)
        if (memchr(attr->s.data, label, (size_t)attr->s.n) == NULL)
            *next++ = label;
    for (p->n_in = 0; p->n_in < node->pub.n_in; p->n_in++)
        if (!take_operand(graph, node->in[p->n_in], &e, &p->in[p->n_in]) ||
            (p->n_in + 1 < node->pub.n_in && !take_word(&e, ",")))
            return false;
    if (!take_word(&e, "->") || !take_operand(graph, node->out[0], &e, &p->out))
        return false;
    skip_blanks(&e);
    return e.text == e.end;
}

/* ---- both ---- */

bool attn_product_read(const struct attn_graph *graph, int32_t value,
                       struct attn_product *p)
{
    /* Rows and columns last, behind as many labels as there are other axes. */
    static const char *const labels[3] = { "abcdik", "abcdkj", "abcdij" };
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (!attn_match_is_f32(graph, value))
        return false;
    if (node_is(node, "Einsum"))
        return attn_einsum_read(graph, node, p);
    if (!node_is(node, "MatMul"))
        return false;
    const int32_t values[3] = { node->in[0], node->in[1], value };
    struct attn_labelled *const x[3] = { &p->in[0], &p->in[1], &p->out };
    p->n_in = 2;
    for (int i = 0; i < 3; i++) {
        const int rank = graph->values[values[i]].type.rank;
        if (rank < 2 || rank > RANK ||
            !take_labels(graph, values[i], labels[i] + RANK - rank, rank, x[i]))
            return false;
    }
    return true;
}

struct attn_node *attn_product_behind(const struct attn_graph *graph, int32_t value)
{
    int32_t waiting[MAX_WAITING] = { value };
    struct attn_node *found = NULL;
    for (int n = 1, steps = 0; n > 0 && steps < MAX_WAITING; steps++) {
        struct attn_node *node = attn_graph_producer(graph, waiting[--n]);
        if (node_is(node, "Einsum"))
            return node;
        if (node_is(node, "MatMul") || node_is_of(node, "com.microsoft", "FusedMatMul"))
            found = node;
        const bool where = node_is(node, "Where");
        if (!where && !node_is(node, "Mul") && !node_is(node, "Div") &&
            !node_is(node, "Add") && !node_is(node, "Sub") && !node_is(node, "Tanh"))
            continue;
        for (int32_t i = node->pub.n_in - 1; i >= where && n < MAX_WAITING; i--)
            if (node->in[i] >= 0 && !match_is_constant(graph, node->in[i]))
                waiting[n++] = node->in[i];
    }
    return found;
}

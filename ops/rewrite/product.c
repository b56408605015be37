/* product.c - MatMul and Einsum as products whose axes have letters: see product.h. */
#include "product.h"

enum { RANK = PRODUCT_RANK };

void attn_lettered_untranspose(const struct attn_graph *graph, struct attn_lettered *x)
{
    for (int k = 0; k < 2; k++) {
        const struct attn_node *node = attn_graph_producer(graph, x->value);
        const struct attn_attr *perm = node ? attn_node_attr(node, "perm") : NULL;
        const struct attn_lettered before = *x;
        if (!node_is(node, "Transpose") || perm == NULL || perm->kind != ATTN_ATTR_INTS ||
            perm->ints.n != x->n)
            return;
        for (int i = 0; i < x->n; i++)
            x->letters[perm->ints.v[i]] = before.letters[i];
        x->value = node->in[0];
    }
}

static bool take_letters(const struct attn_graph *graph, int32_t value, const char *text,
                         int64_t n, struct attn_lettered *x)
{
    if (n < 1 || n > RANK || !attn_match_is_f32(graph, value) ||
        graph->values[value].type.rank != n)
        return false;
    *x = (struct attn_lettered){ .value = value, .n = (int)n };
    for (int i = 0; i < n; i++) {
        if (text[i] < 'a' || text[i] > 'z' || memchr(text, text[i], (size_t)i) != NULL)
            return false;
        x->letters[i] = text[i];
    }
    return true;
}

/* ---- Einsum ---- */

/* What is left of an equation; blanks mean nothing. */
struct equation {
    const char *text, *end;
    char dots[RANK]; /* letters of the axes that "..." stands for */
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
    int letters = 0;
    bool dots = false;
    for (skip_blanks(&e); e.text < e.end && *e.text != ',' && *e.text != '-';
         skip_blanks(&e)) {
        if (take_word(&e, "..."))
            dots = true;
        else {
            letters++;
            e.text++;
        }
    }
    return dots ? rank - letters : 0;
}

/* The letters of one operand: those of the text, with those of `dots` for "...". */
static bool take_operand(const struct attn_graph *graph, int32_t value,
                         struct equation *e, struct attn_lettered *x)
{
    char letters[RANK] = { 0 };
    int64_t n = 0;
    if (take_word(e, "...")) {
        memcpy(letters, e->dots, (size_t)e->n_dots);
        n = e->n_dots;
    }
    for (skip_blanks(e); e->text < e->end && *e->text >= 'a' && *e->text <= 'z';
         e->text++, skip_blanks(e)) {
        if (n == RANK)
            return false;
        letters[n++] = *e->text;
    }
    return take_letters(graph, value, letters, n, x);
}

/* "ab c,cd->ad" or "...c,...cd->...d"; other texts are left alone. */
static bool read_einsum(const struct attn_graph *graph, const struct attn_node *node,
                        struct attn_product *p)
{
    const struct attn_attr *attr = attn_node_attr(node, "equation");
    if (attr == NULL || attr->kind != ATTN_ATTR_STRING || node->pub.n_in > 3)
        return false;
    struct equation e = { .text = attr->s.data, .end = attr->s.data + attr->s.n };
    e.n_dots = count_dots(e, graph->values[node->in[0]].type.rank);
    if (e.n_dots < 0 || e.n_dots > RANK)
        return false;
    for (char letter = 'a', *next = e.dots; letter <= 'z' && next < e.dots + e.n_dots;
         letter++)
        if (memchr(attr->s.data, letter, (size_t)attr->s.n) == NULL)
            *next++ = letter;
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
    /* Rows and columns last, behind as many letters as there are other axes. */
    static const char *const letters[3] = { "abcdik", "abcdkj", "abcdij" };
    const struct attn_node *node = attn_graph_producer(graph, value);
    if (node_is(node, "Einsum"))
        return read_einsum(graph, node, p);
    if (!node_is(node, "MatMul"))
        return false;
    const int32_t values[3] = { node->in[0], node->in[1], value };
    struct attn_lettered *const x[3] = { &p->in[0], &p->in[1], &p->out };
    p->n_in = 2;
    for (int i = 0; i < 3; i++) {
        const int rank = graph->values[values[i]].type.rank;
        if (rank < 2 || rank > RANK ||
            !take_letters(graph, values[i], letters[i] + RANK - rank, rank, x[i]))
            return false;
    }
    return true;
}

/* sliding_rows.c - the rows that a product of chunks multiplies: see sliding_rows.h. */
#include "sliding_rows.h"

#include <math.h>

/* ---- operands ---- */

struct rows_reader {
    struct attn_sliding_rows *rows;
    int64_t outer;
};

static bool take_row(void *user, const struct attn_grid_part *part)
{
    const struct rows_reader *r = user;
    struct attn_sliding_rows *rows = r->rows;
    const int64_t first = r->outer * rows->rows + part->at[1];
    if (part->grid.count[0] != rows->dim || (part->value < 0 && !isfinite(part->number)))
        return false;
    if (part->value >= 0 && rows->value < 0) {
        rows->value = part->value;
        rows->step = part->grid.step[0];
    }
    if (part->value >= 0 && (part->value != rows->value ||
                             (rows->dim > 1 && part->grid.step[0] != rows->step)))
        return false;
    for (int64_t i = 0; i < part->grid.count[1]; i++) {
        rows->from[first + i] =
            part->value >= 0 ? part->grid.from + i * part->grid.step[1] : -1;
        rows->number[first + i] = part->number;
    }
    return true;
}

/* The elements from one to the next of a label; 0 where the operand has none. */
static int64_t stride_of(const struct attn_graph *graph, const struct attn_labelled *x,
                         char label)
{
    int64_t stride = 1;
    for (int a = x->n - 1; a >= 0; a--) {
        if (x->labels[a] == label)
            return stride;
        stride *= graph->values[x->value].type.dims[a].value;
    }
    return 0;
}

static int64_t size_of(const struct attn_graph *graph, const struct attn_labelled *x,
                       char label)
{
    return attn_labelled_dim(graph, x, label).value;
}

/* The labels of `out` that both operands have. */
struct outer_labels {
    char label[PRODUCT_RANK];
    int64_t size[PRODUCT_RANK];
    int n;
};

static int64_t outer_count(const struct outer_labels *outer)
{
    int64_t n = 1;
    for (int i = 0; i < outer->n; i++)
        n *= outer->size[i];
    return n;
}

static int64_t outer_offset(const struct attn_graph *graph, const struct attn_labelled *x,
                            const struct outer_labels *outer, int64_t number)
{
    int64_t offset = 0;
    for (int i = outer->n - 1; i >= 0; i--) {
        offset += number % outer->size[i] * stride_of(graph, x, outer->label[i]);
        number /= outer->size[i];
    }
    return offset;
}

static attn_status read_rows(struct attn_provenance *p, const struct attn_labelled *x,
                             const struct outer_labels *outer, char row, char dim,
                             struct attn_sliding_rows *rows, bool *done)
{
    const struct attn_graph *graph = p->graph;
    struct rows_reader reader = { rows, 0 };
    rows->rows = size_of(graph, x, row);
    rows->dim = size_of(graph, x, dim);
    rows->value = -1;
    rows->step = 1;
    const int64_t n = rows->outer * rows->rows;
    rows->from = attn_pool_alloc(p->pool, n * (int64_t)sizeof *rows->from);
    rows->number = attn_pool_alloc(p->pool, n * (int64_t)sizeof *rows->number);
    if (rows->from == NULL || rows->number == NULL)
        return ATTNRUN_E_MEMORY;
    p->take = take_row;
    p->user = &reader;
    *done = true;
    for (; reader.outer < rows->outer && *done; reader.outer++) {
        const struct attn_grid grid = { outer_offset(graph, x, outer, reader.outer),
                                        { stride_of(graph, x, dim),
                                          stride_of(graph, x, row) },
                                        { rows->dim, rows->rows } };
        TRY(attn_provenance_ask(p, x->value, &grid, done));
    }
    p->user = NULL;
    return ATTNRUN_OK;
}

/* ---- products ---- */

static bool all_static(const struct attn_graph *graph, const struct attn_product *p)
{
    return p->n_in == 2 && attn_provenance_is_static(graph, p->in[0].value) &&
           attn_provenance_is_static(graph, p->in[1].value) &&
           attn_provenance_is_static(graph, p->out.value);
}

/* Finds the outer labels, which both operands have, x, and y, which is the last one; false where
 * the labels have other roles. */
static bool read_labels(const struct attn_graph *graph, const struct attn_product *p,
                        struct outer_labels *outer, char *x, char *y, char *dim)
{
    const struct attn_labelled *a = &p->in[0], *b = &p->in[1], *out = &p->out;
    outer->n = 0;
    if (out->n < 3 || a->n != out->n || b->n != out->n)
        return false;
    *x = *dim = 0;
    *y = out->labels[out->n - 1];
    for (int i = 0; i < out->n - 1; i++) {
        const char label = out->labels[i];
        if (!attn_labelled_has(b, label) && *x == 0) {
            *x = label;
            continue;
        }
        const int64_t size = size_of(graph, out, label);
        if (!attn_labelled_has(a, label) || !attn_labelled_has(b, label) ||
            size_of(graph, a, label) != size || size_of(graph, b, label) != size)
            return false;
        outer->label[outer->n] = label;
        outer->size[outer->n++] = size;
    }
    if (*x == 0)
        return false;
    for (int i = 0; i < a->n; i++)
        if (!attn_labelled_has(out, a->labels[i]))
            *dim = a->labels[i];
    return *dim != 0 && attn_labelled_has(a, *x) && !attn_labelled_has(a, *y) &&
           attn_labelled_has(b, *y) && !attn_labelled_has(b, *x) &&
           attn_labelled_has(b, *dim) &&
           size_of(graph, a, *dim) == size_of(graph, b, *dim);
}

/* How the axes of the result count in the rows of both operands. */
static void read_axes(const struct attn_graph *graph, const struct attn_labelled *out,
                      char x, char y, struct attn_sliding_product *product)
{
    int64_t outer = 1;
    product->rank = out->n;
    product->in_order = out->labels[out->n - 2] == x;
    for (int a = out->n - 1; a >= 0; a--) {
        const char label = out->labels[a];
        const int64_t size = size_of(graph, out, label);
        product->dim[a] = size;
        product->row[a] = label == x ? 1 : label == y ? 0 : outer * product->x;
        product->column[a] = label == x ? 0 : label == y ? 1 : outer * product->y;
        outer *= label == x || label == y ? 1 : size;
    }
}

attn_status attn_sliding_read_product(struct attn_provenance *p, int32_t value,
                                      struct attn_sliding_product *product, bool *done)
{
    struct attn_product labelled;
    struct outer_labels outer;
    char x, y, dim;
    *done = attn_product_read(p->graph, value, &labelled) &&
            all_static(p->graph, &labelled) &&
            read_labels(p->graph, &labelled, &outer, &x, &y, &dim);
    if (!*done)
        return ATTNRUN_OK;
    product->value = value;
    product->x = size_of(p->graph, &labelled.out, x);
    product->y = size_of(p->graph, &labelled.out, y);
    product->outer = product->a.outer = product->b.outer = outer_count(&outer);
    read_axes(p->graph, &labelled.out, x, y, product);
    TRY(read_rows(p, &labelled.in[0], &outer, x, dim, &product->a, done));
    return *done ? read_rows(p, &labelled.in[1], &outer, y, dim, &product->b, done)
                 : ATTNRUN_OK;
}

/* Whether an operand's axes are the outer labels, x and y, in this order. */
static bool in_order(const struct attn_labelled *w, const struct outer_labels *outer,
                     char x, char y)
{
    bool same =
        w->n == outer->n + 2 && w->labels[outer->n] == x && w->labels[outer->n + 1] == y;
    for (int i = 0; i < outer->n && same; i++)
        same = w->labels[i] == outer->label[i];
    return same;
}

attn_status attn_sliding_read_values(struct attn_provenance *p, int32_t value,
                                     struct attn_sliding_product *product, bool *done)
{
    struct attn_product labelled;
    struct outer_labels outer;
    char x = 0, dim = 0, y = 0;
    *done = attn_product_read(p->graph, value, &labelled) &&
            all_static(p->graph, &labelled) &&
            read_labels(p->graph, &labelled, &outer, &x, &dim, &y) &&
            labelled.out.labels[outer.n] == x && in_order(&labelled.in[0], &outer, x, y);
    if (!*done)
        return ATTNRUN_OK;
    product->value = labelled.in[0].value;
    product->x = size_of(p->graph, &labelled.out, x);
    product->outer = product->b.outer = outer_count(&outer);
    return read_rows(p, &labelled.in[1], &outer, y, dim, &product->b, done);
}

/* ---- places ---- */

/* The step of an axis of `n`, of places that begin with 0. */
static int64_t step_of(const struct attn_sliding_places *places, int64_t n, int64_t next)
{
    return n > 1 ? places->at[next] : 0;
}

bool attn_sliding_is_dense(struct attn_sliding_places *places, int64_t dim, int64_t step,
                           int64_t elements)
{
    const int64_t heads = places->heads, tokens = places->tokens,
                  batch = places->n / (heads * tokens);
    const int64_t size[4] = { batch, heads, tokens, dim };
    int64_t stride[4] = { step_of(places, batch, heads * tokens),
                          step_of(places, heads, tokens), step_of(places, tokens, 1),
                          step };
    for (int64_t i = 0; i < places->n; i++)
        if (places->at[i] != i / (heads * tokens) * stride[0] +
                                 i / tokens % heads * stride[1] + i % tokens * stride[2])
            return false;
    int64_t inside = 1;
    bool taken[4] = { false };
    /* From the innermost axis on; axes of 1 are anywhere, the last ones innermost. */
    for (int k = 3; k >= 0; k--) {
        int found = -1;
        for (int a = 0; a < 4; a++)
            if (!taken[a] && (size[a] == 1 || stride[a] == inside) &&
                (found < 0 || size[a] > 1 || size[found] == 1))
                found = a;
        if (found < 0)
            return false;
        taken[found] = true;
        places->axes[k] = found;
        inside *= size[found];
    }
    return inside == elements;
}

/* fuse_attention.c - decomposed softmax attention becomes FusedAttention, which never holds the
 * scores:
 *
 *   Y = MatMul(Softmax(scale * MatMul(Q, K') + mask), V)
 *
 * Recognized forms: operands of rank 4, or of rank 3, whose batch becomes the heads; scalars on
 * either operand or on the product; a factor of each head or query on the product, which scales Q
 * instead; K transposed by one Transpose or by Reshape, Transpose, Reshape, or given transposed;
 * com.microsoft FusedMatMul as a product; V' and the scores transposed, as maps have them;
 * Where(keep, scores, filling) and Where(drop, filling, scores) as masks, before or behind masks
 * that are added; cap * Tanh(scores / cap) in front of the masks; key and value heads repeated by
 * Unsqueeze, Expand, Reshape; IsNaN and Where behind the Softmax, which make zeros of rows of NaN,
 * such as those without a key. Without the last, such rows stay NaN (nan_rows). If another node
 * reads the scores, the pass leaves the nodes alone, since nothing is gained. A mask that is made
 * of data and is not one tensor of all pairs becomes a program of the node (write_mask.c), and its
 * nodes go. */
#include "attention_match.h"
#include "block_window.h"
#include "product.h"
#include "write_mask.h"

enum { MAX_WAITING = 128 }; /* values that say_why() looks at */

/* A mask's last dim must be the number of keys: Attention reads a shorter one
 * otherwise. */
static bool mask_fits(const struct attn_graph *graph,
                      const struct attn_attention_match *found, int32_t mask)
{
    if (mask < 0)
        return true;
    const attnrun_type *type = match_type(graph, mask);
    return type->rank >= 1 && type->rank <= 4 &&
           dim_equal(type->dims[type->rank - 1], attn_attention_k_dim(graph, found, 2));
}

/* A node in front of the Softmax; *out is its only output. */
static attn_status add_before(struct attn_graph *graph,
                              const struct attn_attention_match *found,
                              const char *op_type, int32_t n_in, const int32_t *in,
                              int32_t n_attrs, const struct attn_attr *attrs,
                              int32_t *out)
{
    return attn_match_add(graph, found->softmax, op_type, n_in, in, n_attrs, attrs, out);
}

/* All that is added to the scores as one mask, *mask: Where(keep, 0, filling) and the others; -1:
 * nothing is. */
static attn_status join_masks(struct attn_graph *graph,
                              const struct attn_attention_match *found, int32_t *mask)
{
    int32_t zero;
    void *data;
    *mask = -1;
    if (found->keep >= 0 && !found->filled_last) {
        TRY(attn_graph_new_constant(graph, ATTNRUN_F32, 0, NULL, &zero, &data));
        const int32_t in[3] = { found->keep, zero, found->keep_fill };
        TRY(add_before(graph, found, "Where", 3, in, 0, NULL, mask));
    }
    for (int k = 0; k < MASK_ADDS && found->added[k] >= 0; k++) {
        const int32_t both[2] = { *mask, found->added[k] };
        if (*mask < 0)
            *mask = found->added[k];
        else
            TRY(add_before(graph, found, "Add", 2, both, 0, NULL, mask));
    }
    const int32_t filled[3] = { found->keep, *mask, found->keep_fill };
    return found->filled_last
               ? add_before(graph, found, "Where", 3, filled, 0, NULL, mask)
               : ATTNRUN_OK;
}

/* K as (batch, heads, tokens, dim). */
static attn_status transpose_k(struct attn_graph *graph,
                               struct attn_attention_match *found)
{
    static const int64_t swap_heads[] = { 0, 2, 1, 3 };
    const int64_t *perm = found->k_form == K_BY_TOKEN ? swap_heads
                          : found->rank == 4          ? match_swap4
                                                      : match_swap3;
    struct attn_attr attr = { .name = "perm",
                              .kind = ATTN_ATTR_INTS,
                              .ints = { perm, found->rank } };
    int32_t k = found->k;
    if (found->k_form == K_AS_GIVEN)
        return ATTNRUN_OK;
    found->k_form = K_AS_GIVEN;
    return add_before(graph, found, "Transpose", 1, &k, 1, &attr, &found->k);
}

static attn_status scale_q(struct attn_graph *graph, struct attn_attention_match *found)
{
    const int32_t in[2] = { found->q, found->q_factor };
    return found->q_factor < 0
               ? ATTNRUN_OK
               : add_before(graph, found, found->q_with, 2, in, 0, NULL, &found->q);
}

/* Exchanges the last two axes of a value of the operands' rank. */
static attn_status swap_last(struct attn_graph *graph,
                             const struct attn_attention_match *found, int32_t *value)
{
    const struct attn_attr attr = {
        .name = "perm",
        .kind = ATTN_ATTR_INTS,
        .ints = { found->rank == 4 ? match_swap4 : match_swap3, found->rank }
    };
    const int32_t from = *value;
    return add_before(graph, found, "Transpose", 1, &from, 1, &attr, value);
}

/* Operands of rank 3 get a batch of 1 before what are the heads then. *axis: a constant
 * that says so. */
static attn_status raise(struct attn_graph *graph, struct attn_attention_match *found,
                         int32_t *axis)
{
    static const int64_t first = 0;
    int32_t *const operands[] = { &found->q, &found->k, &found->v };
    if (found->rank == 4)
        return ATTNRUN_OK;
    TRY(attn_match_ints(graph, 1, &first, axis));
    for (int i = 0; i < 3; i++) {
        int32_t in[2] = { *operands[i], *axis };
        TRY(add_before(graph, found, "Unsqueeze", 2, in, 0, NULL, operands[i]));
    }
    return ATTNRUN_OK;
}

/* The result (1, heads, tokens, dim) of the fused node as the file has it; *made gives it. */
static attn_status shape_result(struct attn_graph *graph,
                                const struct attn_attention_match *found, int32_t y,
                                int32_t axis, struct attn_node **made)
{
    const int32_t both[2] = { y, axis };
    const struct attn_attr perm = {
        .name = "perm",
        .kind = ATTN_ATTR_INTS,
        .ints = { found->rank == 4 ? match_swap4 : match_swap3, found->rank }
    };
    if (found->rank == 3 && !found->by_dim)
        return attn_match_make(graph, found->softmax, "", "Squeeze", 2, both,
                               found->result, 0, NULL, made);
    if (found->rank == 3)
        TRY(add_before(graph, found, "Squeeze", 2, both, 0, NULL, &y));
    if (!found->by_dim)
        return ATTNRUN_OK;
    return attn_match_make(graph, found->softmax, "", "Transpose", 1, &y, found->result,
                           1, &perm, made);
}

/* `program`: of the mask, or NULL. */
static attn_status replace_attention(struct attn_graph *graph,
                                     struct attn_attention_match *found,
                                     const struct attn_mask_written *program)
{
    int32_t axis = -1, mask = -1, y, in[MASK_LEAF + MASK_MAX_LEAVES], n_in = 3;
    struct attn_attr attrs[4 + MASK_ATTRS] = { MATCH_FLOAT("scale", (float)found->scale),
                                               MATCH_INT("nan_rows", found->nan_rows) };
    int32_t n_attrs = program != NULL ? 2 + MASK_ATTRS : 2;
    if (found->softcap > 0)
        attrs[n_attrs++] =
            (struct attn_attr)MATCH_FLOAT("softcap", (float)found->softcap);
    if (found->windows > 1)
        attrs[n_attrs++] = (struct attn_attr)MATCH_INT("windows", found->windows);
    if (program == NULL)
        TRY(join_masks(graph, found, &mask));
    else
        TRY(attn_mask_attrs(graph, program, attrs + 2));
    TRY(transpose_k(graph, found));
    TRY(scale_q(graph, found));
    if (found->by_dim)
        TRY(swap_last(graph, found, &found->v));
    TRY(raise(graph, found, &axis));
    in[0] = found->q;
    in[1] = found->k;
    in[2] = found->v;
    if (program != NULL)
        n_in = attn_mask_inputs(program, in);
    else if (mask >= 0)
        in[n_in++] = mask;
    TRY(attn_graph_add_value(graph, NULL, &y));
    if (found->rank == 4 && !found->by_dim)
        graph->values[y].type = graph->values[found->result].type;
    struct attn_node *made;
    TRY(attn_graph_insert(graph, found->softmax, "attnrun.fused", "FusedAttention", n_in,
                          in, 1, &y, n_attrs, attrs, &made));
    TRY(shape_result(graph, found, y, axis, &made));
    attn_match_replace(graph, found->result, made);
    return ATTNRUN_OK;
}

/* Masks are broadcast to the shape of the product. */
static bool masks_fit(const struct attn_graph *graph,
                      const struct attn_attention_match *found)
{
    for (int k = 0; k < MASK_ADDS; k++)
        if (!mask_fits(graph, found, found->added[k]))
            return false;
    return found->windows == 0 && mask_fits(graph, found, found->keep) &&
           attn_match_same_shape(graph, found->scores, found->softmax->in[0]);
}

/* The program of all masks; *done: there is one, and something is gained by it. */
static attn_status write_program(const struct attn_graph *graph,
                                 const struct attn_attention_match *found,
                                 struct attn_mask_written *program, bool *done)
{
    const bool grouped = found->windows > 0;
    struct attn_mask_source source = {
        .keep = { found->keep, -1, -1, -1 },
        .fill = found->keep >= 0 ? (float)found->fill : 0.0f,
        .drops = { found->drops },
        .filled_last = found->filled_last,
        .axes = grouped ? attn_mask_axes_of_blocks : attn_mask_axes_of_heads,
        .rank = grouped ? MASK_AXES : 4,
        .dims = { grouped ? dim_of(found->windows) : dim_of(1),
                  grouped ? found->samples : attn_attention_dim(graph, found->q, 0),
                  attn_attention_dim(graph, found->q, 1),
                  attn_attention_dim(graph, found->q, 2),
                  attn_attention_k_dim(graph, found, 2) }
    };
    memcpy(source.add, found->added, sizeof source.add);
    *done = false;
    if (found->keep < 0 && found->added[0] < 0)
        return ATTNRUN_OK;
    TRY(attn_mask_write(graph, &source, program, done));
    *done = *done && (grouped || !program->trivial);
    return ATTNRUN_OK;
}

static bool multiplies(const struct attn_node *node)
{
    return node_is(node, "MatMul") || node_is(node, "Einsum") ||
           node_is_of(node, "com.microsoft", "FusedMatMul");
}

/* Whether the name of an operator of ai.onnx is in a list, between blanks. */
static bool is_one_of(const struct attn_node *node, const char *list)
{
    if (node == NULL || !node_is(node, node->pub.op_type))
        return false;
    const size_t n = strlen(node->pub.op_type);
    for (const char *at = strstr(list, node->pub.op_type); at != NULL && n > 0;
         at = strstr(at + n, node->pub.op_type))
        if (at > list && at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

/* How many inputs of a node, which may be between products and a softmax, are numbers that it
 * computes with or moves: all, or the first; 0 for any other node. */
static int32_t moved_inputs(const struct attn_node *node)
{
    static const char all[] = " Add Sub Mul Div Where Max Min Concat Tanh Neg ScatterND ";
    static const char first[] =
        " Clip Cast Identity Slice Pad Exp Log Reshape Transpose Squeeze Unsqueeze Split "
        "Expand Dropout Pow Sqrt Gather GatherElements Sigmoid ";
    return is_one_of(node, all) ? node->pub.n_in : is_one_of(node, first);
}

/* Heads that talk: as many are made of all of them, by a constant matrix where a Transpose put
 * heads last, or by a convolution of one tap. */
static bool mixes_heads(const struct attn_graph *graph, const struct attn_node *node)
{
    int64_t rows;
    if (node_is(node, "Conv") && attn_match_pointwise(graph, node, &rows))
        return dim_is(match_type(graph, node->in[1])->dims[1], rows);
    if (!node_is(node, "MatMul") || !match_is_constant(graph, node->in[1]) ||
        attn_match_in(graph, node, 0, "Transpose") == NULL)
        return false;
    const attnrun_type *t = match_type(graph, node->in[1]);
    return t->rank == 2 && dim_equal(t->dims[0], t->dims[1]);
}

/* Whether a value is made of a product of two operands that are computed. */
static bool is_of_product(const struct attn_graph *graph, int32_t value)
{
    int32_t waiting[MAX_WAITING] = { value };
    for (int n = 1, steps = 0; n > 0 && steps < MAX_WAITING; steps++) {
        const struct attn_node *node = attn_graph_producer(graph, waiting[--n]);
        if (node != NULL && multiplies(node) && node->pub.n_in > 1 &&
            !match_is_constant(graph, node->in[0]) &&
            !match_is_constant(graph, node->in[1]))
            return true;
        if (mixes_heads(graph, node))
            waiting[n++] = node->in[0];
        for (int32_t i = moved_inputs(node) - 1; i >= 0; i--)
            if (i < node->pub.n_in && node->in[i] >= 0 && n < MAX_WAITING &&
                !(i == 1 && node_is(node, "ScatterND")))
                waiting[n++] = node->in[i];
    }
    return false;
}

/* Whether a product reads what is made of a value. */
static bool is_multiplied(const struct attn_graph *graph, int32_t value)
{
    int32_t waiting[MAX_WAITING] = { value };
    int steps = 0;
    for (int n = 1; n > 0;)
        for (const struct attn_use *use = graph->values[waiting[--n]].uses;
             use != NULL && steps < MAX_WAITING; use = use->next, steps++) {
            const struct attn_node *node = use->node;
            if (node != NULL && multiplies(node))
                return true;
            if ((moved_inputs(node) > 0 || mixes_heads(graph, node)) &&
                node->out[0] >= 0 && n < MAX_WAITING)
                waiting[n++] = node->out[0];
        }
    return false;
}

/* Says why a softmax between two products, someone's attention, is left, where no pass did. */
static attn_status say_why(struct attn_graph *graph, const struct attn_node *softmax,
                           const char *why)
{
    const bool scores = attn_product_behind(graph, softmax->in[0]) != NULL ||
                        is_of_product(graph, softmax->in[0]);
    return scores && is_multiplied(graph, softmax->out[0]) &&
                   !attn_graph_has_note(graph, softmax)
               ? attn_graph_note(graph, softmax, "attention", why)
               : ATTNRUN_OK;
}

static attn_status try_softmax(struct attn_graph *graph, struct attn_node *softmax,
                               int32_t *applied)
{
    struct attn_attention_match found = { .softmax = softmax };
    struct attn_mask_written program;
    bool done;
    const char *why = attn_match_is_f32(graph, softmax->in[0])
                          ? attn_attention_read(graph, &found)
                          : "its scores are not f32";
    if (why == NULL) {
        const bool fit = masks_fit(graph, &found);
        TRY(write_program(graph, &found, &program, &done));
        done = done && (fit || program.fits);
        /* Without a program the filling is added, and must absorb the score. */
        if (!done && (!fit || (found.keep >= 0 &&
                               (found.drops || found.fill > (double)ATTN_BLOCK_LOST))))
            why = "its mask is not known to mask scores, or to have their size";
    }
    if (why != NULL)
        return say_why(graph, softmax, why);
    TRY(attn_graph_note(graph, softmax, "attention", NULL));
    if (found.k_form == K_AS_GIVEN && found.rank == 4 && !found.by_dim)
        attn_match_share_heads(graph, &found.k, &found.v);
    TRY(replace_attention(graph, &found, done ? &program : NULL));
    ++*applied;
    return ATTNRUN_OK;
}

const struct attn_pass attn_pass_attention = { .name = "attention",
                                               .op_type = "Softmax",
                                               .try_node = try_softmax };

/* mask_rows.c - computes a mask program on a tile, element by element. mask_program.h
 * describes the program.
 *
 * In: queries, up to ATTN_MASK_BLOCK keys, and their scores. Out: the scores with the
 * mask. Each operand has a vector of 8 bytes a key. The vectors of operands that do not
 * depend on the query are kept from one query of the tile to the next. An operand that
 * mask_known.c proved to be a number or a band on the whole tile is not computed. Cost:
 * an operation for each instruction and pair. */
#include <math.h>

#include "../../kernels/kernels.h"
#include "mask_known.h"

union lane {
    int64_t *i;
    float *f;
    uint8_t *b;
};

int64_t attn_mask_row_bytes(const struct attn_mask_program *p)
{
    return (int64_t)p->n * ATTN_MASK_BLOCK * (int64_t)sizeof(int64_t);
}

/* ---- leaves ---- */

#define READ(type, to)                                                                   \
    do {                                                                                 \
        const type *from = (const type *)x->data + at;                                   \
        if (stride == 0)                                                                 \
            for (int64_t j = 0; j < n; j++)                                              \
                (to)[j] = from[0];                                                       \
        else                                                                             \
            for (int64_t j = 0; j < n; j++)                                              \
                (to)[j] = from[j * stride];                                              \
    } while (0)

static int64_t element_at(const struct attn_mask_place *place, int32_t l, int64_t query,
                          int64_t key)
{
    const struct attn_mask_leaf *leaf = &place->program->leaf[l];
    return place->w * leaf->stride[MASK_BLOCK] + place->b * leaf->stride[MASK_BATCH] +
           place->h * leaf->stride[MASK_HEAD] + query * leaf->stride[MASK_QUERY] +
           key * leaf->stride[MASK_KEY];
}

static void read_leaf(const struct attn_mask_place *place, int32_t l, int64_t query,
                      int64_t key, int64_t n, union lane y)
{
    const struct attn_mask_leaf *leaf = &place->program->leaf[l];
    const attnrun_tensor *x = &place->x[l];
    const int64_t stride = leaf->stride[MASK_KEY];
    const int64_t at = element_at(place, l, query, key);
    switch (leaf->dtype) {
    case ATTNRUN_I64:
        READ(int64_t, y.i);
        break;
    case ATTNRUN_I32:
        READ(int32_t, y.i);
        break;
    case ATTNRUN_F32:
        READ(float, y.f);
        break;
    default:
        READ(uint8_t, y.b);
        for (int64_t j = 0; j < n; j++)
            y.b[j] = y.b[j] != 0;
    }
}

/* ---- instructions ---- */

#define EACH(expression)                                                                 \
    for (int64_t j = 0; j < n; j++)                                                      \
    expression

static int64_t wrap(uint64_t x, bool narrow)
{
    return narrow ? (int64_t)(int32_t)(uint32_t)x : (int64_t)x;
}

/* Computes instructions of integers in two's complement, as the operators do. */
static void run_integers(int64_t opcode, int64_t *y, const int64_t *a, const int64_t *b,
                         int64_t n, bool narrow)
{
    switch (opcode) {
    case MASK_NEG:
        EACH(y[j] = wrap(0 - (uint64_t)a[j], narrow);)
        break;
    case MASK_ABS:
        EACH(y[j] = a[j] < 0 ? wrap(0 - (uint64_t)a[j], narrow) : a[j];)
        break;
    case MASK_ADD:
        EACH(y[j] = wrap((uint64_t)a[j] + (uint64_t)b[j], narrow);)
        break;
    case MASK_SUB:
        EACH(y[j] = wrap((uint64_t)a[j] - (uint64_t)b[j], narrow);)
        break;
    case MASK_MUL:
        EACH(y[j] = wrap((uint64_t)a[j] * (uint64_t)b[j], narrow);)
        break;
    case MASK_MIN:
        EACH(y[j] = a[j] < b[j] ? a[j] : b[j];)
        break;
    case MASK_MAX:
        EACH(y[j] = a[j] > b[j] ? a[j] : b[j];)
        break;
    default:
        EACH(y[j] = a[j] % b[j] < 0 ? a[j] % b[j] + b[j] : a[j] % b[j];)
    }
}

static void run_floats(int64_t opcode, float *y, const float *a, const float *b,
                       int64_t n)
{
    switch (opcode) {
    case MASK_NEG:
        EACH(y[j] = -a[j];)
        break;
    case MASK_ABS:
        EACH(y[j] = fabsf(a[j]);)
        break;
    case MASK_SUB:
        EACH(y[j] = a[j] - b[j];)
        break;
    case MASK_MUL:
        EACH(y[j] = a[j] * b[j];)
        break;
    case MASK_MIN: /* NaN wins, as in Min and Max */
        EACH(y[j] = isnan(a[j]) || a[j] < b[j] ? a[j] : b[j];)
        break;
    default:
        EACH(y[j] = isnan(a[j]) || a[j] > b[j] ? a[j] : b[j];)
    }
}

#define COMPARE(y, a, b)                                                                 \
    switch (opcode) {                                                                    \
    case MASK_LESS:                                                                      \
        EACH((y)[j] = (a)[j] < (b)[j];)                                                  \
        break;                                                                           \
    case MASK_LESS_EQUAL:                                                                \
        EACH((y)[j] = (a)[j] <= (b)[j];)                                                 \
        break;                                                                           \
    case MASK_GREATER:                                                                   \
        EACH((y)[j] = (a)[j] > (b)[j];)                                                  \
        break;                                                                           \
    case MASK_GREATER_EQUAL:                                                             \
        EACH((y)[j] = (a)[j] >= (b)[j];)                                                 \
        break;                                                                           \
    default:                                                                             \
        EACH((y)[j] = (a)[j] == (b)[j];)                                                 \
    }

/* 1 if a differs from b; 1 if a < b in two's complement. Neither compares 64 bits, because SSE2
 * has no such instruction. */
static uint64_t differs(uint64_t a, uint64_t b)
{
    const uint64_t x = a ^ b;
    return (x | (0 - x)) >> 63;
}
static uint64_t is_below(uint64_t a, uint64_t b)
{
    const uint64_t d = a - b;
    return (d ^ ((a ^ b) & (d ^ a))) >> 63;
}

static void compare_integers(int64_t opcode, uint8_t *y, const int64_t *x,
                             const int64_t *z, int64_t n)
{
    const uint64_t *a = (const uint64_t *)x, *b = (const uint64_t *)z;
    switch (opcode) {
    case MASK_LESS:
        EACH(y[j] = (uint8_t)is_below(a[j], b[j]);)
        break;
    case MASK_LESS_EQUAL:
        EACH(y[j] = (uint8_t)(is_below(b[j], a[j]) ^ 1);)
        break;
    case MASK_GREATER:
        EACH(y[j] = (uint8_t)is_below(b[j], a[j]);)
        break;
    case MASK_GREATER_EQUAL:
        EACH(y[j] = (uint8_t)(is_below(a[j], b[j]) ^ 1);)
        break;
    default:
        EACH(y[j] = (uint8_t)(differs(a[j], b[j]) ^ 1);)
    }
}

static void mask_rows_compare(int64_t opcode, int32_t dtype, uint8_t *y, union lane a,
                              union lane b, int64_t n)
{
    if (dtype == ATTNRUN_F32)
        COMPARE(y, a.f, b.f)
    else if (dtype == ATTNRUN_BOOL)
        COMPARE(y, a.b, b.b)
    else
        compare_integers(opcode, y, a.i, b.i, n);
}

static void run_conditions(int64_t opcode, uint8_t *y, const uint8_t *a, const uint8_t *b,
                           int64_t n)
{
    switch (opcode) {
    case MASK_NOT:
        EACH(y[j] = !a[j];)
        break;
    case MASK_AND:
        EACH(y[j] = a[j] & b[j];)
        break;
    case MASK_OR:
        EACH(y[j] = a[j] | b[j];)
        break;
    default:
        EACH(y[j] = a[j] ^ b[j];)
    }
}

static void run_cast(union lane y, int32_t to, union lane a, int32_t from, int64_t n)
{
    const bool narrow = to == ATTNRUN_I32;
    if (to == ATTNRUN_F32) {
        if (from == ATTNRUN_F32)
            EACH(y.f[j] = a.f[j];)
        else if (from == ATTNRUN_BOOL)
            EACH(y.f[j] = a.b[j];)
        else
            EACH(y.f[j] = (float)a.i[j];)
    } else if (to == ATTNRUN_BOOL) {
        if (from == ATTNRUN_F32)
            EACH(y.b[j] = a.f[j] < 0 || a.f[j] > 0 || isnan(a.f[j]);)
        else if (from == ATTNRUN_BOOL)
            EACH(y.b[j] = a.b[j];)
        else
            EACH(y.b[j] = a.i[j] != 0;)
    } else if (from == ATTNRUN_BOOL) {
        EACH(y.i[j] = a.b[j];)
    } else {
        EACH(y.i[j] = wrap((uint64_t)a.i[j], narrow);)
    }
}

static void mask_rows_choose(union lane y, int32_t dtype, const uint8_t *c, union lane a,
                             union lane b, int64_t n)
{
    if (dtype == ATTNRUN_F32)
        EACH(y.f[j] = c[j] ? a.f[j] : b.f[j];)
    else if (dtype == ATTNRUN_BOOL)
        EACH(y.b[j] = c[j] ? a.b[j] : b.b[j];)
    else
        EACH(y.i[j] = c[j] ? a.i[j] : b.i[j];)
}

static void fill_mask_row(union lane y, const int64_t *word, int32_t dtype, int64_t n)
{
    float x;
    const uint32_t bits = (uint32_t)word[1];
    memcpy(&x, &bits, sizeof x);
    if (dtype == ATTNRUN_F32)
        EACH(y.f[j] = x;)
    else if (dtype == ATTNRUN_BOOL)
        EACH(y.b[j] = word[1] != 0;)
    else
        EACH(y.i[j] = word[1];)
}

/* Computes instruction k; x: its operands. */
static void run_instruction(const struct attn_mask_place *place, int32_t k,
                            const union lane *x, int64_t query, int64_t key, int64_t n)
{
    const struct attn_mask_program *p = place->program;
    const int64_t *word = p->code + (int64_t)k * MASK_WORDS;
    const int32_t own = p->n_leaves + k, dtype = p->dtype[own];
    const int32_t operands = attn_mask_operands(word[0]);
    const union lane none = { .i = NULL }, y = x[own],
                     a = operands > 0 ? x[word[1]] : none,
                     b = operands > 1 ? x[word[2]] : none;
    const int64_t opcode = word[0];
    if (opcode == MASK_INT || opcode == MASK_FLOAT)
        fill_mask_row(y, word, dtype, n);
    else if (opcode == MASK_AT_QUERY)
        EACH(y.i[j] = query;)
    else if (opcode == MASK_AT_KEY)
        EACH(y.i[j] = key + j;)
    else if (opcode == MASK_WHERE)
        mask_rows_choose(y, dtype, a.b, b, x[word[3]], n);
    else if (opcode == MASK_CAST)
        run_cast(y, dtype, a, p->dtype[word[1]], n);
    else if (opcode >= MASK_LESS && opcode <= MASK_EQUAL)
        mask_rows_compare(opcode, p->dtype[word[1]], y.b, a, b, n);
    else if (opcode >= MASK_AND || opcode == MASK_NOT)
        run_conditions(opcode, y.b, a.b, b.b, n);
    else if (dtype == ATTNRUN_F32 && opcode == MASK_ADD)
        place->kernels->add_f32(y.f, a.f, 1, b.f, 1, (size_t)n);
    else if (dtype == ATTNRUN_F32)
        run_floats(opcode, y.f, a.f, b.f, n);
    else
        run_integers(opcode, y.i, a.i, b.i, n, dtype == ATTNRUN_I32);
}

/* ---- what must be computed ---- */

enum { MASK_OPERANDS = MASK_MAX_LEAVES + MASK_MAX_CODE };

/* For each operand: whether it is read, where it is, and its form. An operand that is a
 * number or a band is written without reading its own operands. */
struct mask_work {
    bool read[MASK_OPERANDS];
    int32_t same[MASK_OPERANDS]; /* the operand that it equals; -1: none */
    struct attn_mask_known known[MASK_OPERANDS];
    union lane at[MASK_OPERANDS];
};

static bool is_written_down(const struct attn_mask_known *k)
{
    return mask_is_number(k) || (k->form == BAND && !k->nan);
}

static bool is_known_as(const struct mask_work *w, int64_t operand, double x)
{
    const struct attn_mask_known *k = &w->known[operand];
    return mask_is_number(k) && k->low >= x && k->low <= x;
}

/* The operand that instruction k returns unchanged, but for the sign of a zero. */
static int32_t same_as(const struct attn_mask_program *p, int32_t k,
                       const struct mask_work *w)
{
    const int64_t *word = p->code + (int64_t)k * MASK_WORDS;
    const int32_t dtype = p->dtype[p->n_leaves + k];
    if (word[0] == MASK_WHERE && mask_is_number(&w->known[word[1]]))
        return (int32_t)(is_known_as(w, word[1], 0.0) ? word[3] : word[2]);
    if (word[0] == MASK_CAST && p->dtype[word[1]] == dtype)
        return (int32_t)word[1];
    const double x = word[0] == MASK_AND ? 1.0 : 0.0;
    if ((word[0] == MASK_ADD && dtype == ATTNRUN_F32) || word[0] == MASK_AND ||
        word[0] == MASK_OR)
        return (int32_t)(is_known_as(w, word[1], x)   ? word[2]
                         : is_known_as(w, word[2], x) ? word[1]
                                                      : -1);
    return -1;
}

static void find_needs(const struct attn_mask_place *place,
                       const struct attn_mask_tile *tile, bool literally, void *memory,
                       struct mask_work *w)
{
    const struct attn_mask_program *p = place->program;
    if (!literally)
        attn_mask_know(place, tile, w->known);
    for (int32_t k = 0; k < p->n; k++) {
        if (literally)
            w->known[k] = mask_anything(p->dtype[k]);
        w->read[k] = k == p->keep || k == p->add;
        w->same[k] = -1;
        w->at[k].i = (int64_t *)memory + (int64_t)k * ATTN_MASK_BLOCK;
    }
    for (int32_t k = p->n - 1; k >= p->n_leaves; k--) {
        const int64_t *word = p->code + (int64_t)(k - p->n_leaves) * MASK_WORDS;
        const int32_t n = attn_mask_operands(word[0]);
        if (!w->read[k] || is_written_down(&w->known[k]))
            continue;
        w->same[k] = literally ? -1 : same_as(p, k - p->n_leaves, w);
        if (w->same[k] >= 0)
            w->read[w->same[k]] = true;
        for (int32_t i = 1; w->same[k] < 0 && i <= n; i++)
            w->read[word[i]] = true;
    }
}

static void put_constant(union lane y, int32_t dtype, double x, int64_t from, int64_t to)
{
    const float f = (float)x;
    const uint8_t truth = (uint8_t)(x < 0 || x > 0);
    if (dtype == ATTNRUN_F32)
        for (int64_t j = from; j < to; j++)
            y.f[j] = f;
    else if (dtype == ATTNRUN_BOOL)
        for (int64_t j = from; j < to; j++)
            y.b[j] = truth;
    else
        for (int64_t j = from; j < to; j++)
            y.i[j] = (int64_t)x;
}

static void put_band(union lane y, int32_t dtype, const struct attn_mask_known *k,
                     int64_t query, int64_t key, int64_t n)
{
    const int64_t from = min64(n, max64(0, query + k->first - key)),
                  to = max64(from, min64(n, query + k->last + 1 - key));
    put_constant(y, dtype, k->outside, 0, from);
    put_constant(y, dtype, k->inside, from, to);
    put_constant(y, dtype, k->outside, to, n);
}

/* Computes operand k for a query. `again`: the query before had the same keys. */
static void put_operand(const struct attn_mask_place *place, int32_t k, int64_t query,
                        const struct attn_mask_tile *tile, bool again,
                        struct mask_work *w)
{
    const struct attn_mask_program *p = place->program;
    const struct attn_mask_known *known = &w->known[k];
    const int64_t n = tile->key_end - tile->key;
    if (known->form == BAND && is_written_down(known))
        put_band(w->at[k], p->dtype[k], known, query, tile->key, n);
    else if (w->same[k] >= 0)
        w->at[k] = w->at[w->same[k]];
    else if (again && (is_written_down(known) || !p->by_query[k]))
        return;
    else if (is_written_down(known))
        put_constant(w->at[k], p->dtype[k], known->low, 0, n);
    else if (k >= p->n_leaves)
        run_instruction(place, k - p->n_leaves, w->at, query, tile->key, n);
    else if (p->dtype[k] == ATTNRUN_F32 && p->leaf[k].stride[MASK_KEY] == 1)
        w->at[k].f = (float *)place->x[k].data + element_at(place, k, query, tile->key);
    else
        read_leaf(place, k, query, tile->key, n, w->at[k]);
}

static void mask_rows_apply(const struct attn_mask_place *place,
                            const struct mask_work *w, int64_t n, float *scores)
{
    const struct attn_mask_program *p = place->program;
    if (p->keep >= 0) {
        const uint8_t *keep = w->at[p->keep].b;
        const float fill =
            p->fill; /* a score might be it: the loop would read it each time */
        EACH(scores[j] = keep[j] ? scores[j] : fill;)
    }
    if (p->add < 0)
        return;
    const float *add = w->at[p->add].f;
    if (w->known[p->add].low > -HUGE_VAL && !w->known[p->add].nan)
        place->kernels->add_f32(scores, scores, 1, add, 1, (size_t)n);
    else /* what gets -inf is masked, whatever its score is */
        EACH(scores[j] = add[j] == -INFINITY ? -INFINITY : scores[j] + add[j];)
}

void attn_mask_rows(const struct attn_mask_place *place,
                    const struct attn_mask_tile *tile, bool literally, void *memory,
                    float *scores, int64_t row_step)
{
    const struct attn_mask_program *p = place->program;
    struct mask_work work;
    find_needs(place, tile, literally, memory, &work);
    for (int64_t i = tile->query; i < tile->query_end; i++, scores += row_step) {
        for (int32_t k = 0; k < p->n; k++)
            if (work.read[k])
                put_operand(place, k, i, tile, i > tile->query, &work);
        mask_rows_apply(place, &work, tile->key_end - tile->key, scores);
    }
}

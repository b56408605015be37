/* mask_rows.c - a mask program on a row of a tile, element by element: see mask_program.h.
 *
 * In: a query, up to ATTN_MASK_KEYS keys, their scores. Out: the scores with the mask. Each
 * operand has a vector of 8 bytes a key; those that no query has a part in are kept from one
 * query of a tile to the next. */
#include <math.h>

#include "mask_program.h"

union lane {
    int64_t *i;
    float *f;
    uint8_t *b;
};

static union lane lane_of(const struct attn_mask_program *p, void *memory,
                          int64_t operand)
{
    if (operand < 0 || operand >= p->n) /* a word that is no operand */
        return (union lane){ .i = NULL };
    return (union lane){ .i = (int64_t *)memory + operand * ATTN_MASK_KEYS };
}

int64_t attn_mask_row_bytes(const struct attn_mask_program *p)
{
    return (int64_t)p->n * ATTN_MASK_KEYS * (int64_t)sizeof(int64_t);
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

static void read_leaf(const struct attn_mask_place *place, int32_t l, int64_t query,
                      int64_t key, int64_t n, union lane y)
{
    const struct attn_mask_leaf *leaf = &place->program->leaf[l];
    const attnrun_tensor *x = &place->x[l];
    const int64_t stride = leaf->stride[MASK_KEY];
    const int64_t at = place->b * leaf->stride[MASK_BATCH] +
                       place->h * leaf->stride[MASK_HEAD] +
                       query * leaf->stride[MASK_QUERY] + key * stride;
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

/* Integers as two's complement, as the operators have them. */
static void integers(int64_t opcode, int64_t *y, const int64_t *a, const int64_t *b,
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

static void floats(int64_t opcode, float *y, const float *a, const float *b, int64_t n)
{
    switch (opcode) {
    case MASK_NEG:
        EACH(y[j] = -a[j];)
        break;
    case MASK_ABS:
        EACH(y[j] = fabsf(a[j]);)
        break;
    case MASK_ADD:
        EACH(y[j] = a[j] + b[j];)
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

static void compare(int64_t opcode, int32_t dtype, uint8_t *y, union lane a, union lane b,
                    int64_t n)
{
    if (dtype == ATTNRUN_F32)
        COMPARE(y, a.f, b.f)
    else if (dtype == ATTNRUN_BOOL)
        COMPARE(y, a.b, b.b)
    else
        COMPARE(y, a.i, b.i)
}

static void conditions(int64_t opcode, uint8_t *y, const uint8_t *a, const uint8_t *b,
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

static void cast(union lane y, int32_t to, union lane a, int32_t from, int64_t n)
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

static void choose(union lane y, int32_t dtype, const uint8_t *c, union lane a,
                   union lane b, int64_t n)
{
    if (dtype == ATTNRUN_F32)
        EACH(y.f[j] = c[j] ? a.f[j] : b.f[j];)
    else if (dtype == ATTNRUN_BOOL)
        EACH(y.b[j] = c[j] ? a.b[j] : b.b[j];)
    else
        EACH(y.i[j] = c[j] ? a.i[j] : b.i[j];)
}

static void put_number(union lane y, const int64_t *word, int32_t dtype, int64_t n)
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

static void instruction(const struct attn_mask_program *p, int32_t k, void *memory,
                        int64_t query, int64_t key, int64_t n)
{
    const int64_t *word = p->code + (int64_t)k * MASK_WORDS;
    const int32_t own = p->n_leaves + k, dtype = p->dtype[own];
    const union lane y = lane_of(p, memory, own), a = lane_of(p, memory, word[1]),
                     b = lane_of(p, memory, word[2]);
    const int64_t opcode = word[0];
    if (opcode == MASK_INT || opcode == MASK_FLOAT)
        put_number(y, word, dtype, n);
    else if (opcode == MASK_AT_QUERY)
        EACH(y.i[j] = query;)
    else if (opcode == MASK_AT_KEY)
        EACH(y.i[j] = key + j;)
    else if (opcode == MASK_WHERE)
        choose(y, dtype, a.b, b, lane_of(p, memory, word[3]), n);
    else if (opcode == MASK_CAST)
        cast(y, dtype, a, p->dtype[word[1]], n);
    else if (opcode >= MASK_LESS && opcode <= MASK_EQUAL)
        compare(opcode, p->dtype[word[1]], y.b, a, b, n);
    else if (opcode >= MASK_AND || opcode == MASK_NOT)
        conditions(opcode, y.b, a.b, b.b, n);
    else if (dtype == ATTNRUN_F32)
        floats(opcode, y.f, a.f, b.f, n);
    else
        integers(opcode, y.i, a.i, b.i, n, dtype == ATTNRUN_I32);
}

void attn_mask_row(const struct attn_mask_place *place, int64_t query, int64_t key,
                   int64_t n, bool again, void *memory, float *scores)
{
    const struct attn_mask_program *p = place->program;
    for (int32_t l = 0; l < p->n_leaves; l++)
        if (!again || p->by_query[l])
            read_leaf(place, l, query, key, n, lane_of(p, memory, l));
    for (int32_t k = 0; k < p->n_code; k++)
        if (!again || p->by_query[p->n_leaves + k])
            instruction(p, k, memory, query, key, n);
    if (p->keep >= 0) {
        const uint8_t *keep = lane_of(p, memory, p->keep).b;
        EACH(scores[j] = keep[j] ? scores[j] : p->fill;)
    }
    if (p->add >= 0) { /* what gets -inf is masked, whatever its score is */
        const float *add = lane_of(p, memory, p->add).f;
        EACH(scores[j] = add[j] == -INFINITY ? -INFINITY : scores[j] + add[j];)
    }
}

/* mask_known.c - derives what holds for all pairs of a tile from a mask program, without
 * looking at each pair. mask_program.h describes the program.
 *
 * In: the tile, and the summaries of the leaves. Out: for each operand one form that
 * holds for every pair:
 *
 *   BETWEEN  low <= value <= high, and never NaN unless `nan`
 *   LINE     an integer: of_query * query + of_key * key + base
 *   LENGTH   the absolute value of such a line
 *   BAND     `inside` where first <= key - query <= last, else `outside`
 *
 * Each form has bounds, too. A comparison gives a band if its lines rise with keys as
 * fast as they fall with queries. Bands of conditions are intersected and united.
 * Arithmetic of floats is rounded to f32, as the operators do; arithmetic of integers is
 * followed as far as doubles hold the results. A line may be of floats where f32 holds
 * all its integers. Cost: a few operations for each instruction and tile. */
#include "mask_known.h"

static const double masked = -1000.0; /* what is added there may be lost */

static bool same(double a, double b) { return a == b; }

/* ---- the other instructions ---- */

static double cast(double x, int32_t to)
{
    if (to == ATTNRUN_BOOL)
        return x != 0.0;
    if (to == ATTNRUN_F32)
        return (double)(float)x;
    return attn_mask_held(trunc(x), to);
}

static struct attn_mask_known cast_all(const struct attn_mask_known *a, int32_t to,
                                       const struct attn_mask_tile *tile)
{
    if (a->form == BAND)
        return attn_mask_band(a->first, a->last, cast(a->inside, to),
                              cast(a->outside, to), tile);
    if (to != ATTNRUN_BOOL && (a->form == LINE || a->form == LENGTH) &&
        attn_mask_holds_line(a->low, a->high, to))
        return *a;
    if (a->nan)
        return mask_anything(to);
    if (to == ATTNRUN_BOOL)
        return a->low > 0 || a->high < 0     ? mask_number(1.0)
               : a->low == 0 && a->high == 0 ? mask_number(0.0)
                                             : mask_between(0.0, 1.0);
    const double low = cast(a->low, to), high = cast(a->high, to);
    return isnan(low) || isnan(high) ? mask_anything(to) : mask_between(low, high);
}

static struct attn_mask_known unary(int64_t opcode, const struct attn_mask_known *a,
                                    int32_t dtype, const struct attn_mask_tile *tile)
{
    if (opcode == MASK_NOT) {
        const struct attn_mask_known one = mask_number(1.0);
        const struct attn_mask_pair p = { MASK_XOR, dtype, tile };
        struct attn_mask_known k = attn_mask_binary(&p, a, &one), other;
        return k.form == BAND && k.inside == 0.0 && attn_mask_other_side(&k, &other)
                   ? other
                   : k;
    }
    if (opcode == MASK_NEG) {
        const struct attn_mask_known zero = mask_number(0.0);
        const struct attn_mask_pair p = { MASK_SUB, dtype, tile };
        return attn_mask_binary(&p, &zero, a);
    }
    if (a->form == BAND)
        return attn_mask_band(a->first, a->last, fabs(a->inside), fabs(a->outside), tile);
    if (a->nan)
        return mask_anything(dtype);
    struct attn_mask_known k = *a;
    if (k.low < 0) {
        k.form = a->form == LINE || a->form == LENGTH ? LENGTH : BETWEEN;
        k.low = a->high < 0 ? -a->high : 0.0;
        k.high = fmax(-a->low, a->high);
    }
    return isnan(attn_mask_held(k.high, dtype)) ? mask_anything(dtype) : k;
}

static struct attn_mask_known where(const struct attn_mask_known *c,
                                    const struct attn_mask_known *x,
                                    const struct attn_mask_known *y,
                                    const struct attn_mask_tile *tile)
{
    if (mask_is_number(c))
        return c->low != 0.0 ? *x : *y;
    if (c->form == BAND && mask_is_number(x) && mask_is_number(y))
        return attn_mask_band(c->first, c->last, c->inside != 0.0 ? x->low : y->low,
                              c->outside != 0.0 ? x->low : y->low, tile);
    struct attn_mask_known k = mask_between(fmin(x->low, y->low), fmax(x->high, y->high));
    k.nan = x->nan || y->nan;
    return k;
}

/* ---- leaves ---- */

/* The entry of positions first … end - 1, which are a whole level or the rest of one. */
static const struct attn_mask_entry *entry_of(const struct attn_mask_leaf *leaf,
                                              const struct attn_mask_entry *e,
                                              int64_t first, int64_t end)
{
    int64_t blocks = leaf->blocks, block = first / ATTN_MASK_BLOCK,
            wide = (end - 1) / ATTN_MASK_BLOCK - block + 1;
    for (; wide > 1 && blocks > 1; wide = (wide + 1) / 2, blocks = (blocks + 1) / 2) {
        e += blocks;
        block /= 2;
    }
    return e + block;
}

static struct attn_mask_known leaf_known(const struct attn_mask_place *place, int32_t l,
                                         const struct attn_mask_tile *t)
{
    const struct attn_mask_leaf *leaf = &place->program->leaf[l];
    if (leaf->axis < 0 || leaf->entries == 0)
        return mask_anything(leaf->dtype);
    const int64_t o = ((leaf->windows > 1 ? place->w : 0) * leaf->batches +
                       (leaf->batches > 1 ? place->b : 0)) *
                          leaf->heads +
                      (leaf->heads > 1 ? place->h : 0);
    const struct attn_mask_entry *e = place->table + leaf->table + o * leaf->entries;
    if (leaf->axis == MASK_QUERY)
        e = entry_of(leaf, e, t->query, t->query_end);
    else if (leaf->axis == MASK_KEY)
        e = entry_of(leaf, e, t->key, t->key_end);
    if (e->nan)
        return mask_anything(leaf->dtype);
    if (e->low == e->high || !e->line || leaf->dtype == ATTNRUN_BOOL)
        return mask_between(e->low, e->high);
    struct attn_mask_known k =
        attn_mask_line(leaf->axis == MASK_QUERY ? e->step : 0,
                       leaf->axis == MASK_KEY ? e->step : 0, e->base, leaf->dtype, t);
    return k;
}

/* ---- the whole ---- */

static const struct attn_mask_known *operand(const struct attn_mask_program *p,
                                             const struct attn_mask_known *known,
                                             int64_t operand)
{
    return operand >= 0 && operand < p->n ? known + operand : NULL; /* a plain number */
}

static struct attn_mask_known instruction(const struct attn_mask_program *p, int32_t k,
                                          const struct attn_mask_known *known,
                                          const struct attn_mask_tile *t)
{
    const int64_t *word = p->code + (int64_t)k * MASK_WORDS;
    const int32_t dtype = p->dtype[p->n_leaves + k];
    const struct attn_mask_known *a = operand(p, known, word[1]),
                                 *b = operand(p, known, word[2]);
    float x;
    const uint32_t bits = (uint32_t)word[1];
    switch (word[0]) {
    case MASK_INT:
        return fabs((double)word[1]) > attn_mask_exact ? mask_anything(dtype)
                                                       : mask_number((double)word[1]);
    case MASK_FLOAT:
        memcpy(&x, &bits, sizeof x);
        return isnan(x) ? mask_anything(dtype) : mask_number((double)x);
    case MASK_AT_QUERY:
        return attn_mask_line(1, 0, 0, dtype, t);
    case MASK_AT_KEY:
        return attn_mask_line(0, 1, 0, dtype, t);
    case MASK_NEG:
    case MASK_ABS:
    case MASK_NOT:
        return unary(word[0], a, dtype, t);
    case MASK_CAST:
        return cast_all(a, dtype, t);
    case MASK_WHERE:
        return where(a, b, operand(p, known, word[3]), t);
    default: {
        const struct attn_mask_pair pair = { word[0], dtype, t };
        return attn_mask_binary(&pair, a, b);
    }
    }
}

/* The meaning of a value of the mask: the key is seen with its score unchanged, it is not
 * seen, or neither (NaN). */
static double meaning(double x)
{
    return same(x, 0.0) ? 1.0 : x <= masked ? 0.0 : (double)NAN;
}

/* The highest finite number that replaces the scores of masked pairs. */
static double softest(double a, double b) { return meaning(a) == 0.0 && a > b ? a : b; }

/* A value that does not change on the tile, as a band of all pairs. */
static struct attn_mask_known as_band(const struct attn_mask_known *k)
{
    if (k->form == BAND)
        return *k;
    return (struct attn_mask_known){ .first = -ATTN_MASK_FAR,
                                     .last = ATTN_MASK_FAR,
                                     .inside = k->low };
}

/* The other side of a band whose inside is `x`, where that is a band. */
static struct attn_mask_known transposed(const struct attn_mask_known *k, bool transpose)
{
    struct attn_mask_known other;
    return transpose && attn_mask_other_side(k, &other) ? other : *k;
}

/* Derives the whole mask of a score, where keep and add are known. */
static struct attn_mask_seen conclude(const struct attn_mask_known *keep,
                                      const struct attn_mask_known *add, float fill,
                                      const struct attn_mask_tile *tile)
{
    struct attn_mask_seen some = { .form = ATTN_MASK_SOME, .soft = -HUGE_VAL },
                          seen = some;
    const double filled = (double)fill;
    const struct attn_mask_known k = as_band(keep), a = as_band(add);
    if (!add->nan && add->high <= masked && fill <= 0.0f) {
        seen.form = ATTN_MASK_NONE_SEEN;
        seen.soft = add->high;
        return seen;
    }
    if (mask_is_number(keep) && keep->low == 0.0) { /* nothing is kept */
        const double high = filled + add->high;
        if (add->nan || !(high <= masked))
            return some;
        seen.form = ATTN_MASK_NONE_SEEN;
        seen.soft = high;
        return seen;
    }
    if ((keep->form != BAND && !mask_is_number(keep)) ||
        (add->form != BAND && !mask_is_number(add)))
        return some;
    /* Inside of both bands all is seen; outside of either nothing is. */
    const bool k_good = keep->form != BAND || (k.inside != 0.0 && k.outside == 0.0);
    const double outside[3] = { add->form == BAND ? a.outside : -HUGE_VAL,
                                keep->form == BAND ? filled + a.inside : -HUGE_VAL,
                                keep->form == BAND && add->form == BAND
                                    ? filled + a.outside
                                    : -HUGE_VAL };
    if (!k_good || meaning(a.inside) != 1.0)
        return some;
    for (int i = 0; i < 3; i++) {
        if (!(outside[i] <= masked))
            return some;
        seen.soft = softest(outside[i], seen.soft);
    }
    const struct attn_mask_known in =
        attn_mask_band(max64(k.first, a.first), min64(k.last, a.last), 1.0, 0.0, tile);
    seen.form = in.form == BAND ? ATTN_MASK_BAND
                : in.low > 0.0  ? ATTN_MASK_ALL_SEEN
                                : ATTN_MASK_NONE_SEEN;
    seen.first = in.first;
    seen.last = in.last;
    if (seen.form == ATTN_MASK_ALL_SEEN)
        seen.soft = -HUGE_VAL;
    return seen;
}

void attn_mask_know(const struct attn_mask_place *place,
                    const struct attn_mask_tile *tile, struct attn_mask_known *known)
{
    const struct attn_mask_program *p = place->program;
    for (int32_t l = 0; l < p->n_leaves; l++)
        known[l] = leaf_known(place, l, tile);
    for (int32_t k = 0; k < p->n_code; k++)
        known[p->n_leaves + k] = instruction(p, k, known, tile);
}

struct attn_mask_seen attn_mask_look(const struct attn_mask_place *place,
                                     const struct attn_mask_tile *tile)
{
    const struct attn_mask_program *p = place->program;
    struct attn_mask_known known[MASK_MAX_LEAVES + MASK_MAX_CODE];
    attn_mask_know(place, tile, known);
    const struct attn_mask_known yes = mask_number(1.0), zero = mask_number(0.0);
    const struct attn_mask_known *keep = p->keep >= 0 ? &known[p->keep] : &yes,
                                 *add = p->add >= 0 ? &known[p->add] : &zero;
    const struct attn_mask_known k = transposed(keep, keep->form == BAND &&
                                                          keep->inside == 0.0),
                                 a = transposed(add, add->form == BAND &&
                                                         add->inside <= masked);
    return conclude(&k, &a, p->fill, tile);
}

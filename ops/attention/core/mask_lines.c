/* mask_lines.c - combines two operands of a mask program on a tile of pairs: lines, bands
 * and intervals. In: the forms of both operands (mask_known.h). Out: the form of the
 * result. Cost: a few operations. */
#include <stdlib.h>

#include "mask_known.h"

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static bool same(double a, double b) { return a == b; }

/* ---- one pair of numbers ---- */

/* A number rounded to `dtype`; NaN where the result is not known. */
double attn_mask_held(double x, int32_t dtype)
{
    if (dtype == ATTNRUN_F32)
        return (double)(float)x;
    if (dtype == ATTNRUN_BOOL)
        return x;
    if (!(fabs(x) <= (dtype == ATTNRUN_I32 ? 2147483647.0 : attn_mask_exact)))
        return (double)NAN;
    return x;
}

static double modulo(double a, double b)
{
    const int64_t x = (int64_t)a, y = (int64_t)b;
    return (double)(x - floor_div(x, y) * y);
}

static double mask_lines_apply(int64_t opcode, double a, double b)
{
    switch (opcode) {
    case MASK_ADD:
        return a + b;
    case MASK_SUB:
        return a - b;
    case MASK_MUL:
        return a * b;
    case MASK_MIN:
        return a < b ? a : b;
    case MASK_MAX:
        return a > b ? a : b;
    case MASK_MOD:
        return modulo(a, b);
    case MASK_LESS:
        return a < b;
    case MASK_LESS_EQUAL:
        return a <= b;
    case MASK_GREATER:
        return a > b;
    case MASK_GREATER_EQUAL:
        return a >= b;
    case MASK_EQUAL:
        return a == b;
    case MASK_AND:
        return a != 0.0 && b != 0.0;
    case MASK_OR:
        return a != 0.0 || b != 0.0;
    default:
        return (a != 0.0) != (b != 0.0);
    }
}

/* ---- bands ---- */

/* A band on a tile. The tile may be wholly inside or outside of it. */
struct attn_mask_known attn_mask_band(int64_t first, int64_t last, double inside,
                                      double outside, const struct attn_mask_tile *t)
{
    const int64_t low = t->key - (t->query_end - 1), high = t->key_end - 1 - t->query;
    if (isnan(inside) || isnan(outside))
        return mask_anything(0);
    if (first > high || last < low || first > last)
        return mask_number(outside);
    if (first <= low && last >= high)
        return mask_number(inside);
    struct attn_mask_known k = mask_between(fmin(inside, outside), fmax(inside, outside));
    if (same(inside, outside))
        return k;
    k.form = BAND;
    k.first = first <= low ? -ATTN_MASK_FAR : first;
    k.last = last >= high ? ATTN_MASK_FAR : last;
    k.inside = inside;
    k.outside = outside;
    return k;
}

/* The outside of the band first … last with one open end, which is a band, too. */
bool attn_mask_other_side(const struct attn_mask_known *k, struct attn_mask_known *other)
{
    if (k->form != BAND || (k->first > -ATTN_MASK_FAR && k->last < ATTN_MASK_FAR))
        return false;
    *other = *k;
    other->first = k->first <= -ATTN_MASK_FAR ? k->last + 1 : -ATTN_MASK_FAR;
    other->last = k->first <= -ATTN_MASK_FAR ? ATTN_MASK_FAR : k->first - 1;
    other->inside = k->outside;
    other->outside = k->inside;
    return true;
}

static double of_pair(const struct attn_mask_pair *p, double a, double b)
{
    return attn_mask_held(mask_lines_apply(p->opcode, a, b), p->dtype);
}

/* Joins two bands: one value inside of both and another elsewhere, or one outside of
 * both. */
static bool join_lines(const struct attn_mask_pair *p, const struct attn_mask_known *a,
                       const struct attn_mask_known *b, struct attn_mask_known *result)
{
    const double in_in = of_pair(p, a->inside, b->inside),
                 in_out = of_pair(p, a->inside, b->outside),
                 out_in = of_pair(p, a->outside, b->inside),
                 out_out = of_pair(p, a->outside, b->outside);
    if (a->first == b->first && a->last == b->last) {
        *result = attn_mask_band(a->first, a->last, in_in, out_out, p->tile);
        return true;
    }
    if (same(in_out, out_out) && same(out_in, out_out)) {
        *result = attn_mask_band(max64(a->first, b->first), min64(a->last, b->last),
                                 in_in, out_out, p->tile);
        return true;
    }
    if (same(in_out, in_in) && same(out_in, in_in) &&
        max64(a->first, b->first) <= min64(a->last, b->last) + 1) {
        *result = attn_mask_band(min64(a->first, b->first), max64(a->last, b->last),
                                 in_in, out_out, p->tile);
        return true;
    }
    return false;
}

static bool two_bands(const struct attn_mask_pair *p, const struct attn_mask_known *a,
                      const struct attn_mask_known *b, struct attn_mask_known *result)
{
    struct attn_mask_known a2, b2;
    return join_lines(p, a, b, result) ||
           (attn_mask_other_side(a, &a2) && join_lines(p, &a2, b, result)) ||
           (attn_mask_other_side(b, &b2) && join_lines(p, a, &b2, result)) ||
           (attn_mask_other_side(a, &a2) && attn_mask_other_side(b, &b2) &&
            join_lines(p, &a2, &b2, result));
}

/* ---- lines ---- */

/* A line stays one where a tile of one query or key makes it a number, which is then in its bounds
 * and not in its base. */
static bool has_line(const struct attn_mask_known *k, struct attn_mask_known *line)
{
    *line = *k;
    if (k->form == LINE)
        return true;
    if (!mask_is_number(k) || !(fabs(k->low) <= attn_mask_exact) ||
        floor(k->low) != k->low)
        return false;
    line->form = LINE;
    line->of_query = line->of_key = 0;
    line->base = (int64_t)k->low;
    return true;
}

static double at(const struct attn_mask_known *k, int64_t query, int64_t key)
{
    return (double)k->of_query * (double)query + (double)k->of_key * (double)key +
           (double)k->base;
}

/* Whether `dtype` holds all integers of a line from low to high. */
bool attn_mask_holds_line(double low, double high, int32_t dtype)
{
    const double limit = dtype == ATTNRUN_F32   ? 16777216.0
                         : dtype == ATTNRUN_I32 ? 2147483647.0
                                                : attn_mask_exact;
    return low >= -limit && high <= limit;
}

/* Bounds of a line are at the corners of the tile. */
struct attn_mask_known attn_mask_line(int64_t of_query, int64_t of_key, int64_t base,
                                      int32_t dtype, const struct attn_mask_tile *t)
{
    struct attn_mask_known k = {
        .form = LINE, .of_query = of_query, .of_key = of_key, .base = base
    };
    const double x[4] = { at(&k, t->query, t->key), at(&k, t->query, t->key_end - 1),
                          at(&k, t->query_end - 1, t->key),
                          at(&k, t->query_end - 1, t->key_end - 1) };
    k.low = fmin(fmin(x[0], x[1]), fmin(x[2], x[3]));
    k.high = fmax(fmax(x[0], x[1]), fmax(x[2], x[3]));
    if (!attn_mask_holds_line(k.low, k.high, dtype) || llabs(of_query) > ATTN_MASK_FAR ||
        llabs(of_key) > ATTN_MASK_FAR || llabs(base) > ATTN_MASK_FAR * 64)
        return mask_anything(dtype);
    return k;
}

/* The band of key - query where line <= bound; false where it is none. */
static bool below(const struct attn_mask_known *line, int64_t bound, int64_t *first,
                  int64_t *last)
{
    const int64_t slope = line->of_key;
    *first = -ATTN_MASK_FAR;
    *last = ATTN_MASK_FAR;
    if (slope == 0 || line->of_query != -slope)
        return false;
    if (slope > 0)
        *last = floor_div(bound - line->base, slope);
    else
        *first = -floor_div(bound - line->base, -slope);
    return true;
}

/* The same for -line <= bound. */
static bool above(const struct attn_mask_known *line, int64_t bound, int64_t *first,
                  int64_t *last)
{
    const struct attn_mask_known minus = { .of_query = -line->of_query,
                                           .of_key = -line->of_key,
                                           .base = -line->base };
    return below(&minus, bound, first, last);
}

/* The same for low <= line <= high. */
static bool within(const struct attn_mask_known *line, int64_t low, int64_t high,
                   int64_t *first, int64_t *last)
{
    int64_t first2, last2;
    if (!below(line, high, first, last) || !above(line, -low, &first2, &last2))
        return false;
    *first = max64(*first, first2);
    *last = min64(*last, last2);
    return true;
}

/* Compares a line, or its absolute value, with 0 or a number. */
static bool compare_lines(const struct attn_mask_pair *p, const struct attn_mask_known *a,
                          const struct attn_mask_known *b, struct attn_mask_known *result)
{
    struct attn_mask_known x, y;
    int64_t first, last, opcode = p->opcode;
    if (b->form == LENGTH) { /* the length comes first */
        static const int64_t transposed[] = { MASK_GREATER, MASK_GREATER_EQUAL, MASK_LESS,
                                              MASK_LESS_EQUAL, MASK_EQUAL };
        const struct attn_mask_pair other = { transposed[opcode - MASK_LESS], p->dtype,
                                              p->tile };
        return a->form != LENGTH && compare_lines(&other, b, a, result);
    }
    if (!has_line(b, &y) || (a->form != LENGTH && !has_line(a, &x)))
        return false;
    if (a->form == LENGTH && !mask_is_number(b))
        return false;
    const bool less = opcode == MASK_LESS || opcode == MASK_GREATER_EQUAL;
    if (a->form == LENGTH) {
        x = *a;
        const int64_t bound = (int64_t)b->low - less;
        if (opcode == MASK_EQUAL || bound < 0 ||
            !within(&x, -bound, bound, &first, &last))
            return false;
    } else {
        x.of_query -= y.of_query;
        x.of_key -= y.of_key;
        x.base -= y.base;
        if (opcode == MASK_EQUAL ? !within(&x, 0, 0, &first, &last)
                                 : !below(&x, less ? -1 : 0, &first, &last))
            return false;
    }
    const bool yes = opcode != MASK_GREATER && opcode != MASK_GREATER_EQUAL;
    *result = attn_mask_band(first, last, yes, !yes, p->tile);
    struct attn_mask_known other;
    if (!yes && attn_mask_other_side(result, &other))
        *result = other;
    return true;
}

static bool combine_lines(const struct attn_mask_pair *p, const struct attn_mask_known *a,
                          const struct attn_mask_known *b, struct attn_mask_known *result)
{
    struct attn_mask_known x, y;
    if (!has_line(a, &x) || !has_line(b, &y))
        return false;
    const int64_t sign = p->opcode == MASK_SUB ? -1 : 1;
    if (p->opcode == MASK_MUL) {
        if (!mask_is_number(a) && !mask_is_number(b))
            return false;
        const struct attn_mask_known *line = mask_is_number(a) ? &y : &x;
        const int64_t factor = (int64_t)(mask_is_number(a) ? a->low : b->low);
        if (llabs(factor) > 1 << 20 || llabs(line->base) > ATTN_MASK_FAR)
            return false;
        *result = attn_mask_line(line->of_query * factor, line->of_key * factor,
                                 line->base * factor, p->dtype, p->tile);
        return true;
    }
    if (p->opcode != MASK_ADD && p->opcode != MASK_SUB)
        return false;
    *result = attn_mask_line(x.of_query + sign * y.of_query, x.of_key + sign * y.of_key,
                             x.base + sign * y.base, p->dtype, p->tile);
    return true;
}

/* ---- intervals ---- */

static struct attn_mask_known rounded(double low, double high, int32_t dtype)
{
    low = attn_mask_held(low, dtype);
    high = attn_mask_held(high, dtype);
    return isnan(low) || isnan(high) ? mask_anything(dtype) : mask_between(low, high);
}

static struct attn_mask_known mask_lines_compare(int64_t opcode,
                                                 const struct attn_mask_known *a,
                                                 const struct attn_mask_known *b)
{
    bool always, never;
    switch (opcode) {
    case MASK_LESS:
        always = a->high < b->low;
        never = a->low >= b->high;
        break;
    case MASK_LESS_EQUAL:
        always = a->high <= b->low;
        never = a->low > b->high;
        break;
    case MASK_GREATER:
        always = a->low > b->high;
        never = a->high <= b->low;
        break;
    case MASK_GREATER_EQUAL:
        always = a->low >= b->high;
        never = a->high < b->low;
        break;
    default:
        always = a->low == a->high && b->low == b->high && a->low == b->low;
        never = a->high < b->low || a->low > b->high;
    }
    if (a->nan || b->nan)
        return mask_between(0.0, 1.0);
    return always ? mask_number(1.0) : never ? mask_number(0.0) : mask_between(0.0, 1.0);
}

static struct attn_mask_known condition(int64_t opcode, const struct attn_mask_known *a,
                                        const struct attn_mask_known *b)
{
    const bool a1 = a->low > 0, b1 = b->low > 0, a0 = a->high < 1, b0 = b->high < 1;
    if (opcode == MASK_AND && (a0 || b0))
        return mask_number(0.0);
    if (opcode == MASK_OR && (a1 || b1))
        return mask_number(1.0);
    if ((a0 || a1) && (b0 || b1))
        return mask_number(mask_lines_apply(opcode, a1, b1));
    return mask_between(0.0, 1.0);
}

static struct attn_mask_known mask_lines_multiply(const struct attn_mask_known *a,
                                                  const struct attn_mask_known *b,
                                                  int32_t dtype)
{
    const double x[4] = { a->low * b->low, a->low * b->high, a->high * b->low,
                          a->high * b->high };
    double low = x[0], high = x[0];
    for (int i = 0; i < 4; i++) {
        if (isnan(x[i]))
            return mask_anything(dtype);
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    return rounded(low, high, dtype);
}

static struct attn_mask_known intervals(const struct attn_mask_pair *p,
                                        const struct attn_mask_known *a,
                                        const struct attn_mask_known *b)
{
    if (p->opcode >= MASK_LESS && p->opcode <= MASK_EQUAL)
        return mask_lines_compare(p->opcode, a, b);
    if (p->opcode >= MASK_AND)
        return condition(p->opcode, a, b);
    if (a->nan || b->nan)
        return mask_anything(p->dtype);
    switch (p->opcode) {
    case MASK_ADD:
        return rounded(a->low + b->low, a->high + b->high, p->dtype);
    case MASK_SUB:
        return rounded(a->low - b->high, a->high - b->low, p->dtype);
    case MASK_MUL:
        return mask_lines_multiply(a, b, p->dtype);
    case MASK_MIN:
        return mask_between(fmin(a->low, b->low), fmin(a->high, b->high));
    case MASK_MAX:
        return mask_between(fmax(a->low, b->low), fmax(a->high, b->high));
    default: /* MASK_MOD, by a number */
        if (!(fabs(a->low) <= attn_mask_exact) || !(fabs(a->high) <= attn_mask_exact))
            return mask_anything(p->dtype);
        if (floor_div((int64_t)a->low, (int64_t)b->low) ==
            floor_div((int64_t)a->high, (int64_t)b->low))
            return mask_between(modulo(a->low, b->low), modulo(a->high, b->low));
        return mask_between(0.0, b->low - 1);
    }
}

struct attn_mask_known attn_mask_binary(const struct attn_mask_pair *p,
                                        const struct attn_mask_known *a,
                                        const struct attn_mask_known *b)
{
    struct attn_mask_known result;
    if (a->form == BAND && mask_is_number(b))
        return attn_mask_band(a->first, a->last, of_pair(p, a->inside, b->low),
                              of_pair(p, a->outside, b->low), p->tile);
    if (b->form == BAND && mask_is_number(a))
        return attn_mask_band(b->first, b->last, of_pair(p, a->low, b->inside),
                              of_pair(p, a->low, b->outside), p->tile);
    if (a->form == BAND && b->form == BAND && two_bands(p, a, b, &result))
        return result;
    const struct attn_mask_known by_intervals = intervals(p, a, b);
    if (mask_is_number(&by_intervals))
        return by_intervals;
    if (p->opcode >= MASK_LESS && p->opcode <= MASK_EQUAL &&
        compare_lines(p, a, b, &result))
        return result;
    return combine_lines(p, a, b, &result) && !result.nan ? result : by_intervals;
}

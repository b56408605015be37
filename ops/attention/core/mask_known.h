/* mask_known.h - the forms that mask_known.c derives for the operands of a mask program
 * on a tile of pairs. mask_known.c and mask_lines.c share this file. */
#ifndef ATTN_MASK_KNOWN_H
#define ATTN_MASK_KNOWN_H

#include <math.h>

#include "mask_program.h"

enum attn_mask_known_form {
    BETWEEN, /* low <= value <= high, and never NaN unless `nan` */
    LINE,    /* an integer: of_query * query + of_key * key + base */
    LENGTH,  /* the absolute value of such a line */
    BAND     /* `inside` where first <= key - query <= last, else `outside` */
};

/* The form of an operand. Each form has bounds. */
struct attn_mask_known {
    enum attn_mask_known_form form;
    bool nan;
    double low, high;
    int64_t of_query, of_key, base;
    int64_t first, last;
    double inside, outside;
};

#define ATTN_MASK_FAR (INT64_C(1) << 40) /* no bound of a band; no position is there */
/* Integers up to this bound are exact in doubles. */
static const double attn_mask_exact = 9e15;

static inline struct attn_mask_known mask_between(double low, double high)
{
    return (struct attn_mask_known){ .low = low, .high = high };
}

static inline struct attn_mask_known mask_number(double x) { return mask_between(x, x); }

static inline struct attn_mask_known mask_anything(int32_t dtype)
{
    if (dtype == ATTNRUN_BOOL)
        return mask_between(0.0, 1.0);
    struct attn_mask_known k = mask_between(-HUGE_VAL, HUGE_VAL);
    k.nan = true;
    return k;
}

static inline bool mask_is_number(const struct attn_mask_known *k)
{
    return k->form != BAND && !k->nan && k->low == k->high;
}

/* A number rounded to `dtype`; NaN where the result is not known. */
double attn_mask_held(double x, int32_t dtype);
/* Whether `dtype` holds all integers of a line from low to high. */
bool attn_mask_holds_line(double low, double high, int32_t dtype);
/* A band on a tile. The tile may be wholly inside or outside of it. */
struct attn_mask_known attn_mask_band(int64_t first, int64_t last, double inside,
                                      double outside, const struct attn_mask_tile *t);
/* The outside of a band with one open end, which is a band, too. False: the band has no
 * open end. */
bool attn_mask_other_side(const struct attn_mask_known *k, struct attn_mask_known *other);
/* A line on a tile, or an unknown operand where the dtype does not hold the line. */
struct attn_mask_known attn_mask_line(int64_t of_query, int64_t of_key, int64_t base,
                                      int32_t dtype, const struct attn_mask_tile *t);
/* An instruction with two operands, and the dtype of its result. */
struct attn_mask_pair {
    int64_t opcode;
    int32_t dtype;
    const struct attn_mask_tile *tile;
};
/* Derives the form of each operand of a program on a tile. */
void attn_mask_know(const struct attn_mask_place *place,
                    const struct attn_mask_tile *tile, struct attn_mask_known *known);
struct attn_mask_known attn_mask_binary(const struct attn_mask_pair *p,
                                        const struct attn_mask_known *a,
                                        const struct attn_mask_known *b);

#endif

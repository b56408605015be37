/* mask_pair.c - a mask program for one pair of a query and a key, one instruction after the other,
 * as the ONNX operators of these names have them; see mask_pair.h. */
#include "mask_pair.h"

#include <math.h>
#include <string.h>

static int64_t of_integers(int64_t opcode, int64_t a, int64_t b, bool narrow)
{
    const uint64_t c = (uint64_t)a, d = (uint64_t)b;
    const uint64_t y = opcode == MASK_NEG   ? 0 - c
                       : opcode == MASK_ABS ? (a < 0 ? 0 - c : c)
                       : opcode == MASK_ADD ? c + d
                       : opcode == MASK_SUB ? c - d
                       : opcode == MASK_MUL ? c * d
                       : opcode == MASK_MIN ? (a < b ? c : d)
                       : opcode == MASK_MAX ? (a > b ? c : d)
                                            : (uint64_t)((a % b + b) % b);
    return narrow ? (int32_t)(uint32_t)y : (int64_t)y;
}

static float of_floats(int64_t opcode, float a, float b)
{
    if (opcode == MASK_MIN || opcode == MASK_MAX)
        return isnan(a) || isnan(b) ? NAN : (opcode == MASK_MIN) == (a < b) ? a : b;
    return opcode == MASK_NEG   ? -a
           : opcode == MASK_ABS ? fabsf(a)
           : opcode == MASK_ADD ? a + b
           : opcode == MASK_SUB ? a - b
                                : a * b;
}

static bool holds(int64_t opcode, long double a, long double b)
{
    return opcode == MASK_LESS            ? a < b
           : opcode == MASK_LESS_EQUAL    ? a <= b
           : opcode == MASK_GREATER       ? a > b
           : opcode == MASK_GREATER_EQUAL ? a >= b
           : opcode == MASK_EQUAL         ? a >= b && a <= b
           : opcode == MASK_AND           ? a > 0 && b > 0
           : opcode == MASK_OR            ? a > 0 || b > 0
                                          : (a > 0) != (b > 0);
}

static struct mask_number cast_number(const struct mask_number *a, int32_t from,
                                      int32_t to)
{
    struct mask_number y = *a;
    if (to == ATTNRUN_F32)
        y.f = from == ATTNRUN_F32 ? a->f : (float)a->i;
    else if (to == ATTNRUN_BOOL)
        y.i = a->i != 0;
    else if (to == ATTNRUN_I32)
        y.i = (int32_t)(uint32_t)a->i;
    return y;
}

/* `own`: the dtype of the result, dtype: of all operands. */
static struct mask_number compute(const int64_t *word, int32_t own, const int32_t *dtype,
                                  int64_t query, int64_t key,
                                  const struct mask_number *value)
{
    const int64_t opcode = word[0];
    const int32_t n = attn_mask_operands(opcode), type = dtype[n > 0 ? word[1] : 0];
    const struct mask_number *a = &value[n > 0 ? word[1] : 0],
                             *b = &value[n > 1 ? word[2] : 0];
    struct mask_number y = { 0, 0 };
    if (opcode == MASK_INT) {
        y.i = word[1];
    } else if (opcode == MASK_FLOAT) {
        const uint32_t bits = (uint32_t)word[1];
        memcpy(&y.f, &bits, sizeof y.f);
    } else if (opcode == MASK_AT_QUERY || opcode == MASK_AT_KEY) {
        y.i = opcode == MASK_AT_QUERY ? query : key;
    } else if (opcode == MASK_NOT) {
        y.i = a->i == 0;
    } else if (opcode == MASK_WHERE) {
        y = a->i != 0 ? *b : value[word[3]];
    } else if (opcode == MASK_CAST) {
        y = cast_number(a, type, own);
    } else if (opcode >= MASK_LESS) {
        const bool real = type == ATTNRUN_F32;
        y.i = holds(opcode, real ? (long double)a->f : (long double)a->i,
                    real ? (long double)b->f : (long double)b->i);
    } else if (own == ATTNRUN_F32) {
        y.f = of_floats(opcode, a->f, b->f);
    } else {
        y.i = of_integers(opcode, a->i, b->i, own == ATTNRUN_I32);
    }
    return y;
}

void mask_pair_run(const int64_t *code, int32_t n_code, const int32_t *dtype,
                   int32_t n_leaves, int64_t query, int64_t key,
                   struct mask_number *value)
{
    for (int32_t k = 0; k < n_code; k++)
        value[n_leaves + k] = compute(code + (int64_t)k * MASK_WORDS, dtype[n_leaves + k],
                                      dtype, query, key, value);
}

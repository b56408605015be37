/* text_number.c - numbers to and from text. text_number.h has the interface. */
#include "text_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert_dtypes.h"

/* ---- to text ---- */

/* Whether the decimal text gives `value` in this dtype. */
static bool reads_back(const char *text, double value, int32_t dtype)
{
    double read = strtod(text, NULL); /* the locale that printed it */
    if (dtype == ATTNRUN_F64)
        return read == value;
    return (double)attn_convert_round_f32(dtype, strtof(text, NULL)) == value;
}

/* Digits of |value| without the point, and its decimal exponent. Returns their number. */
static int shortest_digits(char digits[TEXT_NUMBER_BYTES], double value, int32_t dtype,
                           int *exponent)
{
    char text[TEXT_NUMBER_BYTES];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (precision == 16 || reads_back(text, value, dtype))
            break;
    }
    char *e = strchr(text, 'e');
    *exponent = atoi(e + 1);
    int n = 0;
    for (const char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

/* d.ddde+xx */
static int write_scientific(char *text, const char *digits, int n, int exponent)
{
    return snprintf(text, TEXT_NUMBER_BYTES - 1, "%c%s%.*se%+03d", digits[0],
                    n > 1 ? "." : "", n - 1, digits + 1, exponent);
}

/* ddd.ddd, for -5 < exponent < 16 */
static int write_positional(char *text, const char *digits, int n, int exponent)
{
    int at = 0;
    if (exponent < 0) {
        text[at++] = '0';
        text[at++] = '.';
        for (int i = -1; i > exponent; i--)
            text[at++] = '0';
        for (int i = 0; i < n; i++)
            text[at++] = digits[i];
        return at;
    }
    for (int i = 0; i < n || i <= exponent + 1; i++) {
        if (i == exponent + 1)
            text[at++] = '.';
        text[at++] = i < n ? digits[i] : '0';
    }
    return at;
}

int attn_text_from_real(char text[TEXT_NUMBER_BYTES], double value, int32_t dtype)
{
    char digits[TEXT_NUMBER_BYTES];
    int exponent, minus = signbit(value) && value == value ? 1 : 0;
    text[0] = '-';
    if (value != value || isinf(value)) {
        memcpy(text + minus, value != value ? "nan" : "inf", 3);
        return minus + 3;
    }
    int n = shortest_digits(digits, fabs(value), dtype, &exponent);
    if (value != 0 && (exponent < -4 || exponent >= 16))
        return minus + write_scientific(text + minus, digits, n, exponent);
    return minus + write_positional(text + minus, digits, n, value == 0 ? 0 : exponent);
}

/* ---- from text ---- */

struct cursor {
    const char *p, *end;
};

static void trim(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || (*c->p >= '\t' && *c->p <= '\r')))
        c->p++;
    while (c->end > c->p &&
           (c->end[-1] == ' ' || (c->end[-1] >= '\t' && c->end[-1] <= '\r')))
        c->end--;
}

static bool take_sign(struct cursor *c)
{
    if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
        return *c->p++ == '-';
    return false;
}

static bool rest_is(const struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->p) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((c->p[i] | 0x20) != word[i])
            return false;
    return true;
}

/* The digits of a number that count, and the power of ten of the last. What is halfway between two
 * doubles has fewer digits: of those that are left out it matters only whether all are 0. */
enum { MAX_DIGITS = 770 };
struct decimal {
    char digits[MAX_DIGITS + 16]; /* and an exponent */
    int n, scale;
};

/* Returns how many there are in the text. */
static int take_digits(struct cursor *c, struct decimal *d, int after_point)
{
    int n = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++, n++) {
        if (d->n == MAX_DIGITS) {
            d->digits[MAX_DIGITS - 1] |= *c->p != '0'; /* '0' becomes '1' */
            d->scale += 1 - after_point;
            continue;
        }
        if (d->n > 0 || *c->p != '0')
            d->digits[d->n++] = *c->p;
        d->scale -= after_point;
    }
    return n;
}

static bool take_exponent(struct cursor *c, int *scale)
{
    if (c->p == c->end)
        return true;
    if ((*c->p | 0x20) != 'e')
        return false;
    c->p++;
    bool minus = take_sign(c);
    int exponent = 0, n = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++, n++)
        if (exponent < 100000)
            exponent = exponent * 10 + (*c->p - '0');
    *scale += minus ? -exponent : exponent;
    return n > 0 && c->p == c->end;
}

/* The digits have no point, which depends on the locale. */
static double nearest_double(struct decimal *d)
{
    if (d->n == 0)
        return 0;
    snprintf(d->digits + d->n, sizeof d->digits - MAX_DIGITS, "e%d", d->scale);
    return strtod(d->digits, NULL);
}

bool attn_text_to_real(const char *text, int64_t n, double *value)
{
    struct cursor c = { text, text + n };
    trim(&c);
    bool minus = take_sign(&c);
    double magnitude;
    if (rest_is(&c, "inf") || rest_is(&c, "infinity")) {
        magnitude = HUGE_VAL;
    } else if (rest_is(&c, "nan")) {
        magnitude = (double)NAN;
    } else {
        struct decimal d = { .n = 0 };
        int digits = take_digits(&c, &d, 0);
        if (c.p < c.end && *c.p == '.') {
            c.p++;
            digits += take_digits(&c, &d, 1);
        }
        if (digits == 0 || !take_exponent(&c, &d.scale))
            return false;
        magnitude = nearest_double(&d);
    }
    *value = minus ? -magnitude : magnitude;
    return true;
}

bool attn_text_to_int(const char *text, int64_t n, int64_t *value)
{
    struct cursor c = { text, text + n };
    trim(&c);
    bool minus = take_sign(&c);
    uint64_t magnitude = 0;
    if (c.p == c.end)
        return false;
    for (; c.p < c.end; c.p++)
        if (*c.p < '0' || *c.p > '9' ||
            __builtin_mul_overflow(magnitude, 10, &magnitude) ||
            __builtin_add_overflow(magnitude, (uint64_t)(*c.p - '0'), &magnitude))
            return false;
    if (minus && magnitude > UINT64_C(1) << 63)
        return false;
    *value = (int64_t)(minus ? -magnitude : magnitude);
    return true;
}

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

/* Digits into a mantissa of up to 19 of them; *scale counts the powers of ten left
 * out. */
static int take_digits(struct cursor *c, uint64_t *mantissa, int *scale, int after_point)
{
    int n = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++, n++) {
        if (*mantissa < UINT64_C(1000000000000000000)) {
            *mantissa = *mantissa * 10 + (uint64_t)(*c->p - '0');
            *scale -= after_point;
        } else if (*scale < 100000) {
            *scale += 1 - after_point;
        }
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

/* mantissa * 10^scale, with the 64 bits of long double in between. */
static double scaled(uint64_t mantissa, int scale)
{
    long double value = (long double)mantissa;
    if (mantissa == 0 || scale < -400)
        return 0;
    if (scale > 400)
        return HUGE_VAL;
    return (double)(scale < 0 ? value / powl(10.0L, (long double)-scale)
                              : value * powl(10.0L, (long double)scale));
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
        uint64_t mantissa = 0;
        int scale = 0, digits = take_digits(&c, &mantissa, &scale, 0);
        if (c.p < c.end && *c.p == '.') {
            c.p++;
            digits += take_digits(&c, &mantissa, &scale, 1);
        }
        if (digits == 0 || !take_exponent(&c, &scale))
            return false;
        magnitude = scaled(mantissa, scale);
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

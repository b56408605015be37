/* compare.c - is a computed value the expected one?
 *
 * Type and shape must be equal. Integers, bool and strings: exactly, but small integers
 * may be one step off behind a quantisation. Floats: |got - expected| <= atol + rtol *
 * |expected|, or one step of a float type of 16 bits and fewer; NaN equals NaN,
 * infinities by sign. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../io/map.h"
#include "cli.h"
#include "difference.h"

static bool same_string(const attnrun_tensor *a, int64_t i, const attnrun_tensor *b,
                        int64_t k)
{
    const attnrun_string *s = &((const attnrun_string *)a->data)[i];
    const attnrun_string *t = &((const attnrun_string *)b->data)[k];
    return s->n == t->n && (s->n == 0 || memcmp(s->data, t->data, (size_t)s->n) == 0);
}

static bool close_number(double got, double expected, const struct tolerance *tolerance)
{
    if (isnan(got) || isnan(expected))
        return isnan(got) && isnan(expected);
    if (isinf(got) || isinf(expected))
        return got == expected;
    return fabs(got - expected) <= tolerance->atol + tolerance->rtol * fabs(expected);
}

static bool close_element(const attnrun_tensor *a, const attnrun_tensor *b, int64_t k,
                          const struct tolerance *tolerance)
{
    if (a->dtype == ATTNRUN_STRING)
        return same_string(a, k, b, k);
    if (value_is_complex(a->dtype))
        return close_number(value_get(a, k), value_get(b, k), tolerance) &&
               close_number(value_get_imaginary(a, k), value_get_imaginary(b, k),
                            tolerance);
    if (!value_is_float(a->dtype)) {
        int64_t got = value_get_int(a, k), expected = value_get_int(b, k);
        bool may_step = tolerance->quantized && a->dtype != ATTNRUN_BOOL &&
                        attnrun_dtype_bits(a->dtype) <= 16;
        return got == expected ||
               (may_step && got - expected <= 1 && expected - got <= 1);
    }
    double got = value_get(a, k), expected = value_get(b, k);
    if (close_number(got, expected, tolerance))
        return true;
    if (!value_has_code(a->dtype) || !isfinite(got) || !isfinite(expected))
        return false;
    int64_t steps = value_step(a, k) - value_step(b, k);
    return steps >= -1 && steps <= 1;
}

static double largest_magnitude(const attnrun_tensor *t, int64_t n)
{
    double largest = 0;
    for (int64_t k = 0; k < n; k++) {
        double x = fabs(value_get(t, k));
        if (isfinite(x) && x > largest)
            largest = x;
    }
    return largest;
}

struct tolerance compare_tolerance(const struct cli *cli, const attnrun_model *model)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    const bool exact = model == NULL || attnrun_model_query(model, &info) != ATTNRUN_OK ||
                       strcmp(info.precision, "f32") == 0;
    const bool given = cli->rtol >= 0 || cli->atol >= 0;
    return (struct tolerance){ .rtol = cli->rtol >= 0 ? cli->rtol : 1e-3,
                               .atol = cli->atol >= 0 ? cli->atol : 1e-5,
                               .of_largest = exact || given ? 0 : 0.02 };
}

static attnrun_status compare_tensors(const attnrun_tensor *got,
                                      const attnrun_tensor *expected,
                                      const struct tolerance *given)
{
    struct tolerance own = *given, *tolerance = &own;
    int64_t n = attnrun_tensor_count(got), wrong = 0, first = 0;
    if (got->dtype != expected->dtype || got->rank != expected->rank ||
        memcmp(got->dims, expected->dims, (size_t)got->rank * sizeof *got->dims) != 0)
        return tool_fail(ATTNRUN_E_RANGE, "the result is %s, expected %s",
                         value_shape(got), value_shape(expected));
    if (own.of_largest > 0 && value_is_float(expected->dtype))
        own.atol += own.of_largest * largest_magnitude(expected, n);
    for (int64_t k = 0; k < n; k++)
        if (!close_element(got, expected, k, tolerance) && wrong++ == 0)
            first = k;
    if (wrong == 0)
        return ATTNRUN_OK;
    const char *differ = wrong == 1 ? "differs" : "differ";
    if (!value_is_float(got->dtype))
        return tool_fail(
            ATTNRUN_E_RANGE, "%" PRId64 " of %s of %s %s; at %s: %s, expected %s", wrong,
            tool_plural(n, "element"), value_shape(got), differ, value_index(got, first),
            value_text(got, first), value_text(expected, first));
    struct difference difference;
    difference_measure(got, expected, &difference);
    return tool_fail(ATTNRUN_E_RANGE,
                     "%" PRId64 " of %s of %s %s; first at %s: %s, expected %s; largest "
                     "difference %.3g (rtol %g, atol %g)",
                     wrong, tool_plural(n, "element"), value_shape(got), differ,
                     value_index(got, first), value_text(got, first),
                     value_text(expected, first), difference.max_abs, tolerance->rtol,
                     tolerance->atol);
}

/* Entries are compared by key, in any order. A dict of Python has doubles where the model
 * says floats, so reals are compared as numbers. */
static attnrun_status compare_entries(const attnrun_tensor *got, const int64_t *a,
                                      const attnrun_tensor *expected, const int64_t *b,
                                      const struct tolerance *tolerance)
{
    const attnrun_tensor *x = map_column(got, 1), *y = map_column(expected, 1);
    bool reals = value_is_float(x->dtype) && value_is_float(y->dtype);
    if (got->dims[0] > 0 && x->dtype != y->dtype && !reals)
        return tool_fail(ATTNRUN_E_RANGE, "the result is a map to %s, expected one to %s",
                         attnrun_dtype_name(x->dtype), attnrun_dtype_name(y->dtype));
    for (int64_t i = 0; i < got->dims[0]; i++) {
        if (!map_same_key(got, a[i], expected, b[i]))
            return tool_fail(ATTNRUN_E_RANGE, "the result has the key %s, expected %s",
                             value_text(map_column(got, 0), a[i]),
                             value_text(map_column(expected, 0), b[i]));
        bool same = value_get_int(x, a[i]) == value_get_int(y, b[i]);
        if (x->dtype == ATTNRUN_STRING)
            same = same_string(x, a[i], y, b[i]);
        else if (reals)
            same = close_number(value_get(x, a[i]), value_get(y, b[i]), tolerance);
        if (!same)
            return tool_fail(ATTNRUN_E_RANGE, "at key %s: %s, expected %s",
                             value_text(map_column(got, 0), a[i]), value_text(x, a[i]),
                             value_text(y, b[i]));
    }
    return ATTNRUN_OK;
}

static attnrun_status compare_maps(const attnrun_tensor *got,
                                   const attnrun_tensor *expected,
                                   const struct tolerance *tolerance)
{
    if (got->dims[0] != expected->dims[0])
        return tool_fail(ATTNRUN_E_RANGE, "the result is a %s, expected a %s",
                         value_shape(got), value_shape(expected));
    int64_t *a = map_order(got), *b = map_order(expected);
    attnrun_status status = a == NULL || b == NULL
                                ? tool_fail(ATTNRUN_E_MEMORY, "no memory to compare maps")
                                : compare_entries(got, a, expected, b, tolerance);
    free(a);
    free(b);
    return status;
}

static attnrun_status compare_sequences(const attnrun_tensor *got,
                                        const attnrun_tensor *expected,
                                        const struct tolerance *tolerance)
{
    const attnrun_tensor *a = got->data, *b = expected->data;
    if (got->dims[0] != expected->dims[0])
        return tool_fail(ATTNRUN_E_RANGE, "the result is a %s, expected a %s",
                         value_shape(got), value_shape(expected));
    for (int64_t i = 0; i < got->dims[0]; i++)
        if ((a[i].kind == ATTNRUN_MAP ? compare_maps : compare_tensors)(
                &a[i], &b[i], tolerance) != ATTNRUN_OK)
            return tool_fail_at("element %" PRId64, i);
    return ATTNRUN_OK;
}

/* Optionals are looked into; none is ABSENT. */
static const attnrun_tensor *unwrap(const attnrun_tensor *value, attnrun_tensor *none)
{
    while (value->kind == ATTNRUN_OPTIONAL || value->kind == ATTNRUN_OPTIONAL_SEQUENCE) {
        memset(none, 0, sizeof *none);
        if (value->data == NULL)
            return none;
        value = value->data;
    }
    return value;
}

attnrun_status compare_values(const attnrun_tensor *got, const attnrun_tensor *expected,
                              const struct tolerance *tolerance)
{
    attnrun_tensor none_got, none_expected;
    got = unwrap(got, &none_got);
    expected = unwrap(expected, &none_expected);
    if (got->kind != expected->kind)
        return tool_fail(ATTNRUN_E_RANGE, "the result is %s, expected %s",
                         value_shape(got), value_shape(expected));
    if (got->kind == ATTNRUN_SEQUENCE || got->kind == ATTNRUN_MAP_SEQUENCE)
        return compare_sequences(got, expected, tolerance);
    if (got->kind == ATTNRUN_MAP)
        return compare_maps(got, expected, tolerance);
    return got->kind == ATTNRUN_TENSOR ? compare_tensors(got, expected, tolerance)
                                       : ATTNRUN_OK;
}

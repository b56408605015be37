/* difference.c - how far two tensors are apart: in absolute and relative terms, as vectors
 * (cosine), and in steps of their type. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "difference.h"
#include "screen.h"

struct sums {
    double aa, bb, ab;
};

/* `apart`: |x - y|, which may be more exact than they are. */
static void add_element(struct difference *d, struct sums *sums, double x, double y,
                        double apart, int64_t k)
{
    if (!isfinite(x) || !isfinite(y)) {
        bool same = x == y || (isnan(x) && isnan(y));
        d->unmatched += !same;
        d->unequal += !same;
        return;
    }
    double larger = fmax(fabs(x), fabs(y));
    d->unequal += apart != 0;
    if (apart > d->max_abs) {
        d->max_abs = apart;
        d->at = k;
    }
    if (larger > 0 && apart / larger > d->max_rel)
        d->max_rel = apart / larger;
    sums->aa += x * x;
    sums->bb += y * y;
    sums->ab += x * y;
}

/* |a - b| of integers, of which doubles hold 53 bits. */
static double integers_apart(const attnrun_tensor *a, const attnrun_tensor *b, int64_t k)
{
    const uint64_t x = (uint64_t)value_get_int(a, k), y = (uint64_t)value_get_int(b, k);
    const bool less = a->dtype == ATTNRUN_U64 ? x < y : (int64_t)x < (int64_t)y;
    return (double)(less ? y - x : x - y);
}

static void add_steps(struct difference *d, const attnrun_tensor *a,
                      const attnrun_tensor *b, int64_t k)
{
    if (!isfinite(value_get(a, k)) || !isfinite(value_get(b, k)))
        return;
    int64_t x = value_step(a, k), y = value_step(b, k), steps;
    if (__builtin_sub_overflow(x > y ? x : y, x > y ? y : x, &steps))
        steps = INT64_MAX;
    d->max_ulp = steps > d->max_ulp ? steps : d->max_ulp;
}

static double cosine_of(const struct sums *sums)
{
    if (sums->aa == 0 && sums->bb == 0)
        return 1;
    double norms = sqrt(sums->aa) * sqrt(sums->bb);
    return norms > 0 ? sums->ab / norms : 0;
}

void difference_measure(const attnrun_tensor *a, const attnrun_tensor *b,
                        struct difference *d)
{
    struct sums sums = { 0 };
    const bool real = value_is_float(a->dtype), complex = value_is_complex(a->dtype);
    memset(d, 0, sizeof *d);
    d->n = attnrun_tensor_count(a);
    d->max_ulp = real ? 0 : -1;
    for (int64_t k = 0; k < d->n; k++) {
        if (a->dtype == ATTNRUN_STRING) {
            const attnrun_string *s = (const attnrun_string *)a->data + k;
            const attnrun_string *t = (const attnrun_string *)b->data + k;
            d->unequal +=
                s->n != t->n || (s->n > 0 && memcmp(s->data, t->data, (size_t)s->n) != 0);
            continue;
        }
        double x = value_get(a, k), y = value_get(b, k);
        const int64_t unequal = d->unequal + 1, unmatched = d->unmatched + 1;
        add_element(d, &sums, x, y,
                    real || complex ? fabs(x - y) : integers_apart(a, b, k), k);
        if (complex) {
            x = value_get_imaginary(a, k);
            y = value_get_imaginary(b, k);
            add_element(d, &sums, x, y, fabs(x - y), k);
            d->unequal = d->unequal > unequal ? unequal : d->unequal; /* one element */
            d->unmatched = d->unmatched > unmatched ? unmatched : d->unmatched;
        }
        if (real)
            add_steps(d, a, b, k);
    }
    d->cosine = cosine_of(&sums);
}

const char *difference_text(const struct difference *d)
{
    static char buffers[8][160];
    static unsigned next;
    char *out = buffers[next++ % 8];
    int n = 0;
    if (d->unequal == 0) {
        snprintf(out, sizeof buffers[0], "equal");
        return out;
    }
    n = snprintf(out, sizeof buffers[0], "max abs %.2e  max rel %.2e  cosine %.9f",
                 d->max_abs, d->max_rel, d->cosine);
    if (d->max_ulp >= 0 && d->max_ulp < 1000000)
        n += snprintf(out + n, sizeof buffers[0] - (size_t)n, "  %" PRId64 " ulp",
                      d->max_ulp);
    if (d->unmatched > 0)
        snprintf(out + n, sizeof buffers[0] - (size_t)n,
                 "  %" PRId64 " finite in one only", d->unmatched);
    return out;
}

void difference_json(struct json *json, const struct difference *d)
{
    json_int(json, "elements", d->n);
    json_int(json, "unequal_elements", d->unequal);
    json_int(json, "unmatched_not_finite", d->unmatched);
    json_real(json, "max_abs", d->max_abs);
    json_real(json, "max_rel", d->max_rel);
    json_real(json, "cosine", d->cosine);
    if (d->max_ulp >= 0)
        json_int(json, "max_ulp", d->max_ulp);
}

attnrun_status compared_add(struct compared_list *list, const struct compared *row)
{
    if (list->n == list->capacity) {
        int64_t capacity = list->capacity * 2 + 8;
        struct compared *v = realloc(list->v, (size_t)capacity * sizeof *v);
        if (v == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a list");
        list->v = v;
        list->capacity = capacity;
    }
    list->v[list->n++] = *row;
    return ATTNRUN_OK;
}

attnrun_status compared_note(struct compared_list *list, const char *set,
                             const char *name, const attnrun_tensor *got,
                             const attnrun_tensor *expected, bool passed)
{
    struct compared row = { .passed = passed };
    snprintf(row.set, sizeof row.set, "%s", set);
    snprintf(row.name, sizeof row.name, "%.90s", name);
    snprintf(row.shape, sizeof row.shape, "%.90s", value_shape(got));
    if (got->kind == ATTNRUN_TENSOR && expected->kind == ATTNRUN_TENSOR &&
        got->dtype == expected->dtype && got->rank == expected->rank &&
        memcmp(got->dims, expected->dims, (size_t)got->rank * sizeof *got->dims) == 0)
        difference_measure(got, expected, &row.difference);
    return compared_add(list, &row);
}

void compared_print(const struct compared_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        const struct compared *row = &list->v[i];
        const bool measured = row->difference.n > 0;
        screen_line(row->passed ? "  ok" : "  FAIL", 8, "%s%s%s %s%s%s",
                    tool_quote(row->set), row->set[0] != 0 ? " " : "",
                    tool_quote(row->name), row->shape, measured ? "  " : "",
                    measured ? difference_text(&row->difference) : "");
    }
}

void compared_json(const struct compared_list *list, struct json *json, const char *key)
{
    json_open(json, key, '[');
    for (int64_t i = 0; i < list->n; i++) {
        const struct compared *row = &list->v[i];
        json_open(json, NULL, '{');
        if (row->set[0] != 0)
            json_text(json, "data_set", row->set);
        json_text(json, "name", row->name);
        json_text(json, "type", row->shape);
        json_bool(json, "passed", row->passed != 0);
        if (row->difference.n > 0)
            difference_json(json, &row->difference);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void compared_free(struct compared_list *list)
{
    free(list->v);
    memset(list, 0, sizeof *list);
}

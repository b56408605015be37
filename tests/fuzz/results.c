/* results.c - in: outputs of two runs of one model on the same inputs; out: whether they agree;
 * see results.h. The tolerance is of the largest finite value of the output: sums in another
 * order, and functions on another instruction set, differ by few units of the last place of what
 * they add. A softmax of scores of 70,000 differs by as much as a unit of these is, so that the
 * largest input counts, too. x * sigmoid(x) of minus infinity is NaN as two operators, and as one
 * the limit of 0. */
#include "results.h"

#include "../../tools/io/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FINE = 2e-4, COARSE = 4e-2, UNIT = 0x1p-24;

bool fuzz_is_dense(const attnrun_tensor *t)
{
    attnrun_tensor dense;
    return t->kind == ATTNRUN_TENSOR &&
           attnrun_tensor_make(t->dtype, t->rank, t->dims, NULL, &dense) == ATTNRUN_OK &&
           memcmp(dense.strides, t->strides, (size_t)t->rank * sizeof *t->strides) == 0;
}

void fuzz_results_add(struct fuzz_results *results, const attnrun_tensor *t)
{
    if (results->n == FUZZ_RESULTS)
        return;
    attnrun_tensor *kept = &results->t[results->n++];
    *kept = *t;
    kept->data = NULL;
    if (t->dtype == ATTNRUN_STRING || !fuzz_is_dense(t))
        return;
    const size_t bytes = (size_t)attnrun_tensor_bytes(t);
    kept->data = malloc(bytes > 0 ? bytes : 1);
    if (kept->data != NULL && bytes > 0)
        memcpy(kept->data, t->data, bytes);
}

void fuzz_results_free(struct fuzz_results *results)
{
    for (int i = 0; i < results->n; i++)
        free(results->t[i].data);
    results->n = 0;
}

static double largest(const attnrun_tensor *t, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs(value_get(t, i));
        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

static bool integers_agree(const attnrun_tensor *a, const attnrun_tensor *b, int output,
                           char *why, size_t bytes)
{
    for (int64_t i = 0; i < attnrun_tensor_count(a); i++) {
        const int64_t x = value_get_int(a, i), y = value_get_int(b, i);
        if (x == y)
            continue;
        snprintf(why, bytes, "output %d, element %lld: %lld and %lld", output,
                 (long long)i, (long long)x, (long long)y);
        return false;
    }
    return true;
}

struct fuzz_inputs fuzz_inputs_of(const attnrun_tensor *t, int n)
{
    struct fuzz_inputs inputs = { 0 };
    for (int i = 0; i < n; i++) {
        if (t[i].data == NULL || !value_is_float(t[i].dtype) || !fuzz_is_dense(&t[i]))
            continue;
        const int64_t count = attnrun_tensor_count(&t[i]);
        inputs.largest = fmax(inputs.largest, largest(&t[i], count));
        for (int64_t k = 0; k < count && !inputs.wild; k++)
            inputs.wild = !isfinite(value_get(&t[i], k));
    }
    return inputs;
}

/* Of inputs with NaN or an infinity. */
static bool wild_agree(double x, double y, const struct fuzz_inputs *inputs)
{
    if (!inputs->wild || isnan(x) == isnan(y))
        return false;
    return x == 0 || y == 0;
}

static bool floats_agree(const attnrun_tensor *a, const attnrun_tensor *b, int output,
                         const struct fuzz_inputs *inputs, char *why, size_t bytes)
{
    const int64_t n = attnrun_tensor_count(a);
    const double scale = largest(a, n);
    const bool cancels = scale > 1e18; /* of sums that may overflow, or lose all digits */
    const double relative =
        (a->dtype == ATTNRUN_F32 || a->dtype == ATTNRUN_F64 ? FINE : COARSE) +
        4 * UNIT * inputs->largest;
    for (int64_t i = 0; i < n && !cancels; i++) {
        const double x = value_get(a, i), y = value_get(b, i);
        if ((isnan(x) && isnan(y)) || x == y ||
            (isfinite(x) && isfinite(y) && fabs(x - y) <= relative * (scale + 1e-3)) ||
            wild_agree(x, y, inputs))
            continue;
        snprintf(why, bytes, "output %d, element %lld: %.9g and %.9g", output,
                 (long long)i, x, y);
        return false;
    }
    return true;
}

static bool tensors_agree(const attnrun_tensor *a, const attnrun_tensor *b, int output,
                          const struct fuzz_inputs *inputs, char *why, size_t bytes)
{
    if (a->data == NULL || b->data == NULL ||
        attnrun_tensor_count(a) != attnrun_tensor_count(b))
        return true; /* shapes that depend on data */
    if (value_is_float(a->dtype))
        return floats_agree(a, b, output, inputs, why, bytes);
    return value_is_complex(a->dtype) || integers_agree(a, b, output, why, bytes);
}

bool fuzz_results_agree(const struct fuzz_results *a, const struct fuzz_results *b,
                        const struct fuzz_inputs *inputs, char *why, size_t bytes)
{
    for (int i = 0; i < a->n && i < b->n; i++)
        if (a->t[i].kind == b->t[i].kind && a->t[i].dtype == b->t[i].dtype &&
            !tensors_agree(&a->t[i], &b->t[i], i, inputs, why, bytes))
            return false;
    return true;
}

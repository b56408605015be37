/* results.c - in: outputs of two runs of one model on the same inputs; out: whether they agree;
 * see results.h. The tolerance is of the largest finite value of the output: sums in another
 * order, and functions on another instruction set, differ by few units of the last place of what
 * they add. A softmax of scores of 70,000 differs by more. How much more is measured, not guessed:
 * a run whose inputs are one unit of the last place away moves the outputs by as much as rounding
 * does, and the outputs of two ways may differ by some times that. */
#include "results.h"

#include "../../tools/io/value.h"
#include "fuzz_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FINE = 2e-4, COARSE = 4e-2, TIMES = 16;
/* Operands of 8 bits: as often the move by half a code of each operand of the row. */
static const double TIMES_CODES = 4, CODES = 254;
static const double ROUGH =
    0.3; /* where the rounded operand is a constant, which is not moved */
static const double TALL =
    1e4; /* a score of so much has an error of 6e-4, as has its weight */
static const double WILD = 1e12;    /* products of three such numbers are infinite */
static const double LARGE = 1.8e19; /* its square is, in f32 */

bool fuzz_is_dense(const attnrun_tensor *t)
{
    attnrun_tensor dense;
    return t->kind == ATTNRUN_TENSOR &&
           attnrun_tensor_make(t->dtype, t->rank, t->dims, NULL, &dense) == ATTNRUN_OK &&
           memcmp(dense.strides, t->strides, (size_t)t->rank * sizeof *t->strides) == 0;
}

void fuzz_set_dense(attnrun_tensor *t)
{
    attnrun_tensor made;
    if (attnrun_tensor_make(t->dtype, t->rank, t->dims, t->data, &made) == ATTNRUN_OK)
        memcpy(t->strides, made.strides, sizeof t->strides);
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

bool fuzz_results_are_empty(const struct fuzz_results *results)
{
    for (int i = 0; i < results->n; i++)
        if (results->t[i].kind != ATTNRUN_TENSOR ||
            attnrun_tensor_count(&results->t[i]) > 0)
            return false;
    return results->n > 0;
}

void fuzz_results_free(struct fuzz_results *results)
{
    for (int i = 0; i < results->n; i++)
        free(results->t[i].data);
    results->n = 0;
}

/* Half a code of 8 bits of the row, at most, in either direction. */
static void nudge_codes(struct fuzz_random *r, const attnrun_tensor *t, void *copy)
{
    attnrun_tensor dense = *t;
    const int64_t width = t->rank > 0 ? t->dims[t->rank - 1] : 1;
    attnrun_tensor_make(t->dtype, t->rank, t->dims, copy, &dense);
    for (int64_t i = 0; i < attnrun_tensor_count(t); i += width) {
        double max = 0;
        for (int64_t k = i; k < i + width; k++)
            max = isfinite(value_get(&dense, k)) ? fmax(max, fabs(value_get(&dense, k)))
                                                 : max;
        for (int64_t k = i; k < i + width; k++) {
            const double step =
                max / CODES * ((double)fuzz_below(r, 2001) / 1000.0 - 1.0);
            if (t->dtype == ATTNRUN_F32)
                ((float *)copy)[k] += (float)step;
            else if (t->dtype == ATTNRUN_F64)
                ((double *)copy)[k] += step;
        }
    }
}

void fuzz_nudge(uint64_t seed, attnrun_tensor *t, void *copy, bool codes)
{
    struct fuzz_random r = { seed };
    const int64_t rows = t->rank > 0 ? t->dims[0] : 1;
    const int64_t row_bytes = rows > 0 ? attnrun_tensor_bytes(t) / rows : 0;
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)copy + i * row_bytes,
               (const char *)t->data + i * (t->rank > 0 ? t->strides[0] : 0),
               (size_t)row_bytes);
    if (codes)
        nudge_codes(&r, t, copy);
    for (int64_t i = 0; i < attnrun_tensor_count(t) && !codes; i++) {
        const bool up = fuzz_chance(&r, 50);
        if (t->dtype == ATTNRUN_F32) {
            float *x = (float *)copy + i;
            *x = isfinite(*x) ? nextafterf(*x, up ? HUGE_VALF : -HUGE_VALF) : *x;
        } else if (t->dtype == ATTNRUN_F64) {
            ((double *)copy)[i] *= up ? 1 + 0x1p-23 : 1 - 0x1p-23;
        }
    }
    attnrun_tensor_make(t->dtype, t->rank, t->dims, copy, t);
}

bool fuzz_has_huge(const void *model, size_t bytes)
{
    const float huge[2] = { 1e30f, -1e30f };
    for (size_t i = 0; i + sizeof *huge <= bytes; i++)
        if (memcmp((const char *)model + i, huge, sizeof *huge) == 0 ||
            memcmp((const char *)model + i, huge + 1, sizeof *huge) == 0)
            return true;
    return false;
}

static bool is_wild(double x) { return !(fabs(x) < WILD); }
/* Minus infinity in a constant hides a key. */
static bool is_wild_constant(double x) { return is_wild(x) && x != -HUGE_VAL; }
static bool is_tall(double x) { return isfinite(x) && fabs(x) > TALL; }
static bool is_large(double x) { return isfinite(x) && fabs(x) > LARGE; }

/* Of a tensor that is dense, or whose rows are. */
static bool has(const attnrun_tensor *t, bool (*is)(double))
{
    if (t->kind != ATTNRUN_TENSOR || t->data == NULL || !value_is_float(t->dtype))
        return false;
    if (!fuzz_is_dense(t) && t->rank > 0) {
        attnrun_tensor row = *t;
        row.rank--;
        memmove(row.dims, t->dims + 1, (size_t)row.rank * sizeof *row.dims);
        memmove(row.strides, t->strides + 1, (size_t)row.rank * sizeof *row.strides);
        for (int64_t i = 0; i < t->dims[0]; i++) {
            row.data = (char *)t->data + i * t->strides[0];
            if (fuzz_is_dense(&row) && has(&row, is))
                return true;
        }
        return false;
    }
    for (int64_t i = 0; i < attnrun_tensor_count(t); i++)
        if (is(value_get(t, i)))
            return true;
    return false;
}

static bool have(const attnrun_tensor *fed, int n, bool (*is)(double))
{
    bool found = false;
    for (int i = 0; i < n && !found; i++)
        found = has(&fed[i], is);
    return found;
}

bool fuzz_are_wild(const attnrun_tensor *fed, int n) { return have(fed, n, is_wild); }
bool fuzz_are_tall(const attnrun_tensor *fed, int n) { return have(fed, n, is_tall); }
bool fuzz_are_large(const attnrun_tensor *fed, int n) { return have(fed, n, is_large); }

static bool splits(const char *op_type)
{
    static const char *const names[] = { "QMoE", "MatMulNBits", "DynamicQuantizeLSTM" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(op_type, names[i]) == 0)
            return true;
    return false;
}

/* DynamicQuantizeLSTM always, and products by weights of a few bits where their accuracy_level
 * permits it: without it they are as exact as those of floats. */
static bool rounds(const attnrun_model *model, int32_t index, const char *op_type)
{
    attnrun_attribute_info info = { .struct_size = sizeof info };
    if (!splits(op_type))
        return false;
    if (strcmp(op_type, "DynamicQuantizeLSTM") == 0)
        return true;
    for (int32_t i = 0; attnrun_model_attribute(model, index, i, &info) == ATTNRUN_OK;
         i++)
        if (strcmp(info.name, "accuracy_level") == 0)
            return info.i == 4;
    return false;
}

/* Whether a constant that the node reads has such a number. */
static bool reads(const attnrun_model *model, const attnrun_node_info *node,
                  bool (*is)(double))
{
    attnrun_value_info value = { .struct_size = sizeof value };
    for (int32_t in = 0; in < node->n_inputs; in++)
        if (attnrun_model_value(model, node->inputs[in], &value) == ATTNRUN_OK &&
            value.constant != NULL && has(value.constant, is))
            return true;
    return false;
}

void fuzz_look(const attnrun_model *model, struct fuzz_traits *traits)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_node_info node = { .struct_size = sizeof node };
    attnrun_status status = attnrun_model_query(model, &info);
    for (int32_t i = 0; status == ATTNRUN_OK && i < info.n_nodes; i++) {
        status = attnrun_model_node(model, i, &node);
        if (status != ATTNRUN_OK)
            break;
        traits->attends = traits->attends || strstr(node.op_type, "Attention") != NULL;
        traits->hides =
            traits->hides || traits->attends || strstr(node.op_type, "Conv") != NULL;
        traits->splits = traits->splits || splits(node.op_type);
        traits->rounds = traits->rounds || rounds(model, i, node.op_type);
        traits->wild = traits->wild || reads(model, &node, is_wild_constant);
        traits->tall = traits->tall || reads(model, &node, is_tall);
    }
}

/* Of the elements that are finite in both. */
static double largest(const attnrun_tensor *a, const attnrun_tensor *b, int64_t n)
{
    double max = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs(value_get(a, i)), y = fabs(value_get(b, i));
        if (isfinite(x) && isfinite(y))
            max = fmax(max, fmax(x, y));
    }
    return max;
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

/* How far a unit of the last place of the inputs moves a tensor; infinite where an element becomes
 * finite, infinite or no number by it. */
static double moved(const attnrun_tensor *a, const attnrun_tensor *near, int64_t n)
{
    double max = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = value_get(a, i), y = value_get(near, i);
        if (isnan(x) != isnan(y) || (x != y && (isinf(x) || isinf(y))))
            return HUGE_VAL;
        max = isfinite(x) ? fmax(max, fabs(x - y)) : max;
    }
    return max;
}

static bool floats_agree(const attnrun_tensor *a, const attnrun_tensor *b,
                         struct fuzz_room room, double more, int output, char *why,
                         size_t bytes)
{
    const int64_t n = attnrun_tensor_count(a);
    const double scale = largest(a, b, n);
    const bool cancels = scale > 1e18; /* of sums that may overflow, or lose all digits */
    const bool wide = a->dtype == ATTNRUN_F32 || a->dtype == ATTNRUN_F64;
    const bool unmoved = room.rounds && room.near != NULL && more == 0;
    const double relative = unmoved ? ROUGH : wide && !room.tall ? FINE : COARSE;
    for (int64_t i = 0; i < n && !cancels; i++) {
        const double x = value_get(a, i), y = value_get(b, i);
        if ((isnan(x) && isnan(y)) || x == y || more == HUGE_VAL ||
            (room.nan_of_nothing && isnan(x) != isnan(y)) ||
            (room.in_between && !isfinite(x) && !isfinite(y)) ||
            (isfinite(x) && isfinite(y) &&
             fabs(x - y) <= relative * (scale + 1e-3) + more))
            continue;
        snprintf(why, bytes, "output %d, element %lld: %.9g and %.9g of %.9g", output,
                 (long long)i, x, y, scale);
        return false;
    }
    return true;
}

static bool same_shape(const attnrun_tensor *a, const attnrun_tensor *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->data != NULL &&
           b->data != NULL && attnrun_tensor_count(a) == attnrun_tensor_count(b);
}

bool fuzz_results_agree(const struct fuzz_results *a, const struct fuzz_results *b,
                        struct fuzz_room room, char *why, size_t bytes)
{
    const struct fuzz_results *near = room.near;
    for (int i = 0; i < a->n && i < b->n; i++) {
        const attnrun_tensor *x = &a->t[i], *y = &b->t[i];
        double more = 0;
        if (!same_shape(x, y) || value_is_complex(x->dtype))
            continue; /* shapes that depend on data */
        if (memcmp(x->data, y->data, (size_t)attnrun_tensor_bytes(x)) == 0)
            continue;
        if (!value_is_float(x->dtype) && !integers_agree(x, y, i, why, bytes))
            return false;
        if (near != NULL && i < near->n && value_is_float(x->dtype) &&
            same_shape(x, &near->t[i]))
            more = (room.rounds ? TIMES_CODES : TIMES) *
                   moved(x, &near->t[i], attnrun_tensor_count(x));
        if (value_is_float(x->dtype) && !floats_agree(x, y, room, more, i, why, bytes))
            return false;
    }
    return true;
}

/* zip_map.c - ZipMap, DictVectorizer, CastMap: between tensors and maps.
 *
 * ZipMap          X f32 (N, C) or (C): a sequence of N maps, or of one, from the C class
 *                 labels to the scores of a row
 * DictVectorizer  x: a map; y (1, V): its values in the order of a vocabulary of keys, 0
 *                 or "" where a key is missing. Keys outside of the vocabulary are left
 *                 out
 * CastMap         x: a map from i64 to f32 or strings
 *                 DENSE: y (1, entries), its values in the order of their keys
 *                 SPARSE: y (1, max_map), the value of key k at k, 0 or "0.f" elsewhere;
 *                 a negative key is E_RANGE
 *
 * The formats of numbers as text are those of ONNX Runtime 1.32.0. Cost: O(N C) for
 * ZipMap, O(entries log entries) for the others. Source: ONNX ai.onnx.ml ZipMap-1,
 * DictVectorizer-1, CastMap-1. */
#include "../../runtime/maps.h"

#include <math.h>
#include <stdio.h>

#include "../elementwise/text_number.h"
#include "../sequence/values.h"
#include "ml.h"

/* ---- ZipMap ---- */

struct zip_args {
    attnrun_ints classlabels_int64s;
    attnrun_strings classlabels_strings;
};
static const attnrun_attr_def zip_attrs[] = {
    ATTR_INTS(struct zip_args, classlabels_int64s),
    ATTR_STRINGS(struct zip_args, classlabels_strings), ATTR_END
};

/* The labels as a tensor, which is a view of the attribute. */
static attnrun_tensor zip_labels(const struct zip_args *args)
{
    const bool strings = args->classlabels_strings.n > 0;
    const int64_t n = strings ? args->classlabels_strings.n : args->classlabels_int64s.n;
    attnrun_tensor labels = {
        .kind = ATTNRUN_TENSOR,
        .dtype = strings ? ATTNRUN_STRING : ATTNRUN_I64,
        .rank = 1,
        .dims = { n },
    };
    const void *data = strings ? (const void *)args->classlabels_strings.v
                               : (const void *)args->classlabels_int64s.v;
    labels.data = (void *)(uintptr_t)data;
    tensor_set_dense(&labels);
    return labels;
}

static attn_status zip_infer(attnrun_step *step)
{
    const struct zip_args *args = step->args;
    const attnrun_tensor labels = zip_labels(args);
    attnrun_dim rows, features;
    if ((args->classlabels_int64s.n > 0) == (args->classlabels_strings.n > 0))
        return op_fail(step, ATTNRUN_E_ATTR, "expected one list of class labels");
    TRY(op_ml_rows(step, &rows, &features));
    if (dim_is_const(features) && features.value != labels.dims[0])
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "expected %s, one for each label",
                             attn_plural(labels.dims[0], "column"));
    TRY(op_value_unknown(step, 0, ATTNRUN_MAP_SEQUENCE, ATTNRUN_F32));
    if (op_has_out(step, 0))
        step->out[0].key_dtype = labels.dtype;
    return ATTNRUN_OK;
}

/* The maps. Their keys are views of the attribute, and their values are views of one copy
 * of the input. */
static attn_status zip_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    const attnrun_tensor labels = zip_labels(step->args);
    const int64_t n = x->rank == 2 ? x->dims[0] : 1, classes = labels.dims[0];
    attnrun_tensor *maps, *columns, all;
    int64_t bytes;
    if (!op_has_out(step, 0))
        return ATTNRUN_OK;
    if (!ck_mul(n, 2 * (int64_t)sizeof *columns, &bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "a sequence of %lld maps needs more than 2^63 - 1 bytes",
                       (long long)n);
    TRY(op_heap_tensor(step, 0, ATTNRUN_F32, x->rank, x->dims, &all));
    tensor_copy(&all, x);
    maps = op_heap(step, 0, bytes / 2);
    columns = op_heap(step, 0, bytes);
    if (maps == NULL || columns == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        if (i % 1024 == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        columns[2 * i] = columns[2 * i + 1] = labels;
        columns[2 * i + 1].dtype = ATTNRUN_F32;
        columns[2 * i + 1].data = (float *)all.data + i * classes;
        tensor_set_dense(&columns[2 * i + 1]);
        maps[i] = (attnrun_tensor){ .kind = ATTNRUN_MAP,
                                    .dtype = ATTNRUN_F32,
                                    .rank = 1,
                                    .dims = { classes },
                                    .data = &columns[2 * i] };
    }
    step->y[0] = (attnrun_tensor){ .kind = ATTNRUN_MAP_SEQUENCE,
                                   .dtype = ATTNRUN_F32,
                                   .rank = 1,
                                   .dims = { n },
                                   .data = maps };
    return ATTNRUN_OK;
}

const attnrun_op_def op_ml_zip_map_1 = { ML_DOMAIN,
                                         .flags =
                                             ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_NO_PROMOTION,
                                         .name = "ZipMap",
                                         .inputs = "X:f32",
                                         .outputs = "Z:maps(f32)",
                                         .args_bytes = sizeof(struct zip_args),
                                         .attrs = zip_attrs,
                                         .infer = zip_infer,
                                         .run = zip_run,
                                         .cost = "O(N C)" };

/* ---- entries in the order of their keys ---- */

static int compare_keys(const attnrun_tensor *a, int64_t i, const attnrun_tensor *b,
                        int64_t k)
{
    if (a->dtype == ATTNRUN_I64) {
        int64_t p = ((const int64_t *)a->data)[i], q = ((const int64_t *)b->data)[k];
        return p < q ? -1 : p > q;
    }
    const attnrun_string *p = (const attnrun_string *)a->data + i;
    const attnrun_string *q = (const attnrun_string *)b->data + k;
    const int64_t n = p->n < q->n ? p->n : q->n;
    int order = n > 0 ? memcmp(p->data, q->data, (size_t)n) : 0;
    return order != 0 ? order : p->n < q->n ? -1 : p->n > q->n;
}

static void sift_down(const attnrun_tensor *keys, int64_t *order, int64_t at, int64_t n)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && compare_keys(keys, order[child], keys, order[child + 1]) < 0)
            child++;
        if (compare_keys(keys, order[at], keys, order[child]) >= 0)
            return;
        int64_t index = order[at];
        order[at] = order[child];
        order[child] = index;
    }
}

/* Fills order[0..n) with the entries by ascending key: a heapsort, in place. */
static void sort_entries(const attnrun_tensor *keys, int64_t *order)
{
    const int64_t n = keys->dims[0];
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n / 2; i-- > 0 && !attn_stops_node(i);)
        sift_down(keys, order, i, n);
    for (int64_t i = n - 1; i > 0 && !attn_stops_node(i); i--) {
        int64_t index = order[0];
        order[0] = order[i];
        order[i] = index;
        sift_down(keys, order, 0, i);
    }
}

/* The entry with key `k` of `wanted`, -1 where there is none. */
static int64_t find_entry(const attnrun_tensor *keys, const int64_t *order,
                          const attnrun_tensor *wanted, int64_t k)
{
    int64_t low = 0, high = keys->dims[0];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int way = compare_keys(keys, order[middle], wanted, k);
        if (way == 0)
            return order[middle];
        if (way < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* Room for the order; the input of a dynamic-shape step is known while it is inferred. */
static attn_status order_scratch(attnrun_step *step)
{
    const attnrun_tensor *x = &step->x[0];
    if (x->data != NULL &&
        !ck_mul(x->dims[0], (int64_t)sizeof(int64_t), &step->scratch_bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "a map of %lld entries needs more than 2^63 - 1 bytes",
                       (long long)x->dims[0]);
    return ATTNRUN_OK;
}

/* ---- DictVectorizer ---- */

struct vocabulary_args {
    attnrun_ints int64_vocabulary;
    attnrun_strings string_vocabulary;
};
static const attnrun_attr_def vocabulary_attrs[] = {
    ATTR_INTS(struct vocabulary_args, int64_vocabulary),
    ATTR_STRINGS(struct vocabulary_args, string_vocabulary), ATTR_END
};

static attnrun_tensor vocabulary_of(const struct vocabulary_args *args)
{
    struct zip_args lists = { args->int64_vocabulary, args->string_vocabulary };
    return zip_labels(&lists);
}

static attn_status vectorizer_infer(attnrun_step *step)
{
    const struct vocabulary_args *args = step->args;
    const attnrun_tensor vocabulary = vocabulary_of(args);
    const attnrun_type *x = &step->in[0];
    if ((args->int64_vocabulary.n > 0) == (args->string_vocabulary.n > 0))
        return op_fail(step, ATTNRUN_E_ATTR, "expected one vocabulary");
    if (x->key_dtype != ATTNRUN_UNDEFINED && x->key_dtype != vocabulary.dtype)
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE,
                             "expected keys of type %s as in the vocabulary",
                             attnrun_dtype_name(vocabulary.dtype));
    attnrun_dim dims[2] = { dim_of(1), dim_of(vocabulary.dims[0]) };
    TRY(op_out(step, 0, x->dtype, 2, dims));
    return order_scratch(step);
}

static attn_status vectorizer_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *keys = map_keys(&step->x[0]), *values = map_values(&step->x[0]);
    const attnrun_tensor vocabulary = vocabulary_of(step->args);
    const int64_t bytes = dtype_bytes(values->dtype);
    int64_t *order = work->scratch;
    char *y = step->y[0].data;
    if (y == NULL)
        return ATTNRUN_OK;
    sort_entries(keys, order);
    for (int64_t k = 0; k < vocabulary.dims[0]; k++, y += bytes) {
        int64_t entry = find_entry(keys, order, &vocabulary, k);
        if (k % 1024 == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        memset(y, 0, (size_t)bytes);
        if (entry >= 0)
            memcpy(y, (const char *)values->data + entry * bytes, (size_t)bytes);
    }
    return values->dtype == ATTNRUN_STRING ? op_heap_strings(step, 0, &step->y[0])
                                           : ATTNRUN_OK;
}

const attnrun_op_def op_ml_dict_vectorizer_1 = {
    ML_DOMAIN,
    .flags = ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_NO_PROMOTION,
    .name = "DictVectorizer",
    .inputs = "X:map(T)",
    .outputs = "Y:T",
    .types = "T=i64,f32,f64,string",
    .args_bytes = sizeof(struct vocabulary_args),
    .attrs = vocabulary_attrs,
    .infer = vectorizer_infer,
    .run = vectorizer_run,
    .cost = "O((entries + V) log entries)",
};

/* ---- CastMap ---- */

enum { TO_FLOAT, TO_STRING, TO_INT64 };
struct cast_args {
    int64_t max_map;
    int32_t cast_to, map_form;
};
static const attnrun_attr_def cast_attrs[] = {
    ATTR_ENUM(struct cast_args, cast_to, "TO_FLOAT|TO_STRING|TO_INT64", TO_FLOAT),
    ATTR_ENUM(struct cast_args, map_form, "DENSE|SPARSE", 0),
    ATTR_INT(struct cast_args, max_map, 1), ATTR_END
};

static attn_status cast_infer(attnrun_step *step)
{
    static const int32_t dtypes[] = { ATTNRUN_F32, ATTNRUN_STRING, ATTNRUN_I64 };
    const struct cast_args *args = step->args;
    const attnrun_type *x = &step->in[0];
    attnrun_dim dims[2] = { dim_of(1), dim_of(args->max_map) };
    if (args->map_form == 1 && args->max_map < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "max_map is %lld, expected 1 or more",
                       (long long)args->max_map);
    if (x->key_dtype != ATTNRUN_UNDEFINED && x->key_dtype != ATTNRUN_I64)
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE, "expected keys of type i64");
    if (args->map_form == 0)
        dims[1] = step->x[0].data != NULL ? dim_of(step->x[0].dims[0])
                                          : attnrun_dim_unknown(step);
    TRY(op_out(step, 0, dtypes[args->cast_to], 2, dims));
    return order_scratch(step);
}

/* Six decimals behind a point, whatever the locale says. */
static attn_status zip_map_put_text(const attnrun_step *step, double value,
                                    attnrun_string *to)
{
    enum { ROOM = 64, DECIMALS = 6 };
    char made[ROOM], *text = op_heap(step, 0, ROOM);
    if (text == NULL)
        return ATTNRUN_E_MEMORY;
    int n = snprintf(made, sizeof made, "%.*f", DECIMALS, value);
    size_t whole = strspn(made, "-0123456789");
    if (isfinite(value)) {
        memcpy(text, made, whole);
        text[whole] = '.';
        memcpy(text + whole + 1, made + n - DECIMALS, DECIMALS);
        n = (int)whole + 1 + DECIMALS;
    } else {
        memcpy(text, made, (size_t)n);
    }
    *to = (attnrun_string){ text, n };
    return ATTNRUN_OK;
}

static attn_status cast_value(const attnrun_step *step, const attnrun_tensor *values,
                              int64_t i, int64_t at)
{
    const bool strings = values->dtype == ATTNRUN_STRING;
    const attnrun_string *text = (const attnrun_string *)values->data + (strings ? i : 0);
    double real = strings ? 0 : tensor_get_real(values, i);
    int64_t whole = 0;
    void *y = step->y[0].data;
    switch (step->y[0].dtype) {
    case ATTNRUN_STRING:
        if (!strings)
            return zip_map_put_text(step, real, (attnrun_string *)y + at);
        ((attnrun_string *)y)[at] = *text;
        return ATTNRUN_OK;
    case ATTNRUN_F32:
        if (strings && !attn_text_to_real(text->data, text->n, &real))
            break;
        ((float *)y)[at] = (float)real;
        return ATTNRUN_OK;
    default:
        if (strings && !attn_text_to_int(text->data, text->n, &whole))
            break;
        if (!strings && !(fabs(real) < 9.2e18))
            break;
        ((int64_t *)y)[at] = strings ? whole : (int64_t)real;
        return ATTNRUN_OK;
    }
    return op_fail_input(step, 0, ATTNRUN_E_RANGE,
                         "the value of entry %lld is not a number", (long long)i);
}

static void fill_cast(attnrun_tensor *y)
{
    const int64_t n = tensor_count(y);
    (void)attn_poll_fill(y->data, 0, tensor_bytes(y));
    for (int64_t i = 0; y->dtype == ATTNRUN_STRING && i < n && !attn_stops(i); i++)
        ((attnrun_string *)y->data)[i] = (attnrun_string){ "0.f", 3 };
}

static attn_status cast_entries(const attnrun_step *step, const attnrun_work *work)
{
    const struct cast_args *args = step->args;
    const attnrun_tensor *keys = map_keys(&step->x[0]), *values = map_values(&step->x[0]);
    const int64_t *key = keys->data, n = keys->dims[0];
    int64_t *order = work->scratch;
    sort_entries(keys, order);
    if (args->map_form == 1 && n > 0 && key[order[0]] < 0)
        return op_fail_input(step, 0, ATTNRUN_E_RANGE, "its key %lld is negative",
                             (long long)key[order[0]]);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = args->map_form == 1 ? key[order[i]] : i;
        if (i % 1024 == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (at < step->y[0].dims[1])
            TRY(cast_value(step, values, order[i], at));
    }
    return ATTNRUN_OK;
}

static attn_status cast_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct cast_args *args = step->args;
    const int64_t dims[2] = { 1,
                              args->map_form == 1 ? args->max_map : step->x[0].dims[0] };
    TRY(attnrun_step_alloc(step, 0, step->out[0].dtype, 2, dims));
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    fill_cast(&step->y[0]);
    TRY(cast_entries(step, work));
    return step->y[0].dtype == ATTNRUN_STRING ? op_heap_strings(step, 0, &step->y[0])
                                              : ATTNRUN_OK;
}

const attnrun_op_def op_ml_cast_map_1 = { ML_DOMAIN,
                                          .flags = ATTNRUN_OP_DYNAMIC |
                                                   ATTNRUN_OP_NO_PROMOTION,
                                          .name = "CastMap",
                                          .inputs = "X:map(T)",
                                          .outputs = "Y:U",
                                          .types = "T=f32,string U=f32,string,i64",
                                          .args_bytes = sizeof(struct cast_args),
                                          .attrs = cast_attrs,
                                          .infer = cast_infer,
                                          .run = cast_run,
                                          .cost = "O(entries log entries)" };

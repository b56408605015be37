/* label_encoder.c - LabelEncoder, CategoryMapper: y = values[k] where keys[k] == x, else
 * a default.
 *
 * x, y            any shape; y has the dtype of the values
 * LabelEncoder-1  classes_strings: a string to its index (i64), or the reverse
 * LabelEncoder-2  keys_* to values_* of floats, i64 or strings; from version 4 on tensors
 * CategoryMapper  cats_strings to cats_int64s, or the reverse
 *
 * The last of equal keys counts; NaN is equal to NaN. Keys are found by a hash table,
 * which is packed once. Cost: O(1) an element. Source: ONNX ai.onnx.ml LabelEncoder-1, 2,
 * 4, CategoryMapper-1. */
#include <math.h>

#include "../sequence/values.h"

struct encoder_args {
    attnrun_ints keys_int64s, values_int64s;
    attnrun_floats keys_floats, values_floats;
    attnrun_strings keys_strings, values_strings;
    attnrun_tensor keys_tensor, values_tensor, default_tensor;
    int64_t default_int64;
    float default_float;
    attnrun_string default_string;
};
static const attnrun_attr_def encoder_attrs[] = {
    ATTR_INTS(struct encoder_args, keys_int64s),
    ATTR_INTS(struct encoder_args, values_int64s),
    ATTR_FLOATS(struct encoder_args, keys_floats),
    ATTR_FLOATS(struct encoder_args, values_floats),
    ATTR_STRINGS(struct encoder_args, keys_strings),
    ATTR_STRINGS(struct encoder_args, values_strings),
    ATTR_TENSOR(struct encoder_args, keys_tensor),
    ATTR_TENSOR(struct encoder_args, values_tensor),
    ATTR_TENSOR(struct encoder_args, default_tensor),
    ATTR_INT(struct encoder_args, default_int64, -1),
    ATTR_FLOAT(struct encoder_args, default_float, -0.0f),
    ATTR_STRING(struct encoder_args, default_string, "_Unused"),
    ATTR_END,
};

/* LabelEncoder-1 and CategoryMapper; classes without numbers are numbered from 0. */
struct mapper_args {
    attnrun_strings cats_strings, classes_strings;
    attnrun_ints cats_int64s;
    int64_t default_int64;
    attnrun_string default_string;
};
static const attnrun_attr_def classes_attrs[] = {
    ATTR_STRINGS(struct mapper_args, classes_strings),
    ATTR_INT(struct mapper_args, default_int64, -1),
    ATTR_STRING(struct mapper_args, default_string, "_Unused"), ATTR_END
};
static const attnrun_attr_def mapper_attrs[] = {
    ATTR_STRINGS(struct mapper_args, cats_strings),
    ATTR_INTS(struct mapper_args, cats_int64s),
    ATTR_INT(struct mapper_args, default_int64, -1),
    ATTR_STRING(struct mapper_args, default_string, "_Unused"), ATTR_END
};

/* LINEAR: fewer keys are searched in order. SLOT_BYTES: with the key that it is compared by.
 * ELEMENT_BYTES: of work for an element, beside the characters of a string. */
enum { LINEAR = 8, MAX_KEYS = 1 << 29, SLOT_BYTES = 32, ELEMENT_BYTES = 64 };

/* n elements; data NULL: their own indexes as i64. */
struct column {
    int32_t dtype;
    int64_t n;
    const void *data;
};
struct encoder {
    struct column keys, values;
    const void *fallback; /* one value */
};

static void column_set(struct column *column, int32_t dtype, int64_t n, const void *data,
                       int *given)
{
    if (data == NULL)
        return;
    *column = (struct column){ dtype, n, data };
    ++*given;
}

static void column_set_tensor(struct column *column, const attnrun_tensor *tensor,
                              int *given)
{
    if (tensor->kind == ATTNRUN_TENSOR)
        column_set(column, tensor->dtype, tensor_count(tensor), tensor->data, given);
}

/* One value for keys that are not found; NULL where the tensor given does not fit. */
static const void *encoder_default(const struct encoder_args *args, int32_t dtype)
{
    static const int32_t minus_one_32 = -1;
    static const int16_t minus_one_16 = -1;
    static const double minus_zero = -0.0;
    const attnrun_tensor *tensor = &args->default_tensor;
    if (args->values_tensor.kind == ATTNRUN_TENSOR && tensor->kind == ATTNRUN_TENSOR)
        return tensor->dtype == dtype && tensor_count(tensor) == 1 ? tensor->data : NULL;
    switch (dtype) {
    case ATTNRUN_STRING:
        return &args->default_string;
    case ATTNRUN_I64:
        return &args->default_int64;
    case ATTNRUN_I32:
        return &minus_one_32;
    case ATTNRUN_I16:
        return &minus_one_16;
    case ATTNRUN_F64:
        return &minus_zero;
    case ATTNRUN_F32:
        return &args->default_float;
    default:
        return NULL;
    }
}

/* False where the attributes do not make a mapping. */
static bool encoder_describe(const void *arguments, int32_t dtype, struct encoder *e)
{
    const struct encoder_args *args = arguments;
    int keys = 0, values = 0;
    (void)dtype;
    column_set(&e->keys, ATTNRUN_I64, args->keys_int64s.n, args->keys_int64s.v, &keys);
    column_set(&e->keys, ATTNRUN_F32, args->keys_floats.n, args->keys_floats.v, &keys);
    column_set(&e->keys, ATTNRUN_STRING, args->keys_strings.n, args->keys_strings.v,
               &keys);
    column_set_tensor(&e->keys, &args->keys_tensor, &keys);
    column_set(&e->values, ATTNRUN_I64, args->values_int64s.n, args->values_int64s.v,
               &values);
    column_set(&e->values, ATTNRUN_F32, args->values_floats.n, args->values_floats.v,
               &values);
    column_set(&e->values, ATTNRUN_STRING, args->values_strings.n, args->values_strings.v,
               &values);
    column_set_tensor(&e->values, &args->values_tensor, &values);
    e->fallback = values == 1 ? encoder_default(args, e->values.dtype) : NULL;
    return keys == 1 && values == 1;
}

static bool mapper_describe(const void *arguments, int32_t dtype, struct encoder *e)
{
    const struct mapper_args *args = arguments;
    bool mapper = args->cats_strings.v != NULL;
    const attnrun_strings *words = mapper ? &args->cats_strings : &args->classes_strings;
    struct column strings = { ATTNRUN_STRING, words->n, words->v };
    struct column numbers = { ATTNRUN_I64, words->n, NULL };
    if (mapper)
        numbers =
            (struct column){ ATTNRUN_I64, args->cats_int64s.n, args->cats_int64s.v };
    bool from_strings = dtype == ATTNRUN_STRING;
    e->keys = from_strings ? strings : numbers;
    e->values = from_strings ? numbers : strings;
    e->fallback = from_strings ? (const void *)&args->default_int64
                               : (const void *)&args->default_string;
    return strings.data != NULL && (!mapper || numbers.data != NULL);
}

static bool describe(const attnrun_node *node, const void *args, int32_t dtype,
                     struct encoder *e)
{
    memset(e, 0, sizeof *e);
    return node->op->attrs == encoder_attrs ? encoder_describe(args, dtype, e)
                                            : mapper_describe(args, dtype, e);
}

/* ---- finding a key ---- */

static double real_of(int32_t dtype, const void *element)
{
    return dtype == ATTNRUN_F64 ? *(const double *)element
                                : (double)*(const float *)element;
}

static int64_t integer_of(int32_t dtype, const void *element)
{
    return dtype == ATTNRUN_I64   ? *(const int64_t *)element
           : dtype == ATTNRUN_I32 ? *(const int32_t *)element
                                  : *(const int16_t *)element;
}

static uint64_t hash_of(int32_t dtype, const void *element)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    if (dtype == ATTNRUN_STRING) {
        const attnrun_string *text = element;
        for (int64_t i = 0; i < text->n && !attn_stops(i); i++)
            hash = (hash ^ (uint8_t)text->data[i]) * UINT64_C(0x100000001b3);
    } else if (dtype == ATTNRUN_F32 || dtype == ATTNRUN_F64) {
        double value = real_of(dtype, element);
        if (value == 0 || isnan(value))
            value = isnan(value) ? 1 : 0; /* one of each */
        memcpy(&hash, &value, sizeof hash);
    } else {
        hash = (uint64_t)integer_of(dtype, element);
    }
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static bool key_equals(const struct column *keys, int64_t k, const void *element)
{
    const char *key = (const char *)keys->data + k * dtype_bytes(keys->dtype);
    if (keys->dtype == ATTNRUN_STRING)
        return op_texts_equal((const void *)key, element);
    if (keys->dtype == ATTNRUN_F32 || keys->dtype == ATTNRUN_F64) {
        double a = real_of(keys->dtype, key), b = real_of(keys->dtype, element);
        return a == b || (isnan(a) && isnan(b));
    }
    return integer_of(keys->dtype, key) == integer_of(keys->dtype, element);
}

/* Bytes of work to find an element among the keys. */
static int64_t work_of(int32_t dtype, const void *element)
{
    const attnrun_string *text = element;
    return ELEMENT_BYTES + (dtype == ATTNRUN_STRING ? text->n : 0);
}

/* The table: slots of key number + 1, 0 where empty; a power of two of them. */
static int64_t table_slots(int64_t n)
{
    int64_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

/* The slot of this key, or the empty one where it belongs; any one where the call is to end. */
static int32_t *table_slot(int32_t *table, int64_t slots, const struct column *keys,
                           const void *element)
{
    uint64_t at = hash_of(keys->dtype, element) & (uint64_t)(slots - 1);
    while (table[at] != 0 && !key_equals(keys, table[at] - 1, element) &&
           attn_poll_work(SLOT_BYTES) == ATTNRUN_OK)
        at = (at + 1) & (uint64_t)(slots - 1);
    return &table[at];
}

static attn_status encoder_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    struct encoder e;
    *bytes = 0;
    if (!describe(pack->node, pack->args, pack->in[0].dtype, &e) || e.keys.data == NULL ||
        e.keys.n < LINEAR || e.keys.n > MAX_KEYS)
        return ATTNRUN_OK;
    int64_t slots = table_slots(e.keys.n);
    *bytes = slots * (int64_t)sizeof(int32_t);
    if (packed == NULL)
        return ATTNRUN_OK;
    TRY(attn_poll_fill(packed, 0, *bytes));
    for (int64_t k = 0; k < e.keys.n; k++) {
        const char *key = (const char *)e.keys.data + k * dtype_bytes(e.keys.dtype);
        *table_slot(packed, slots, &e.keys, key) = (int32_t)(k + 1);
        TRY(attn_poll_work(work_of(e.keys.dtype, key)));
    }
    return ATTNRUN_OK;
}

/* The number of the key, -1 where it is none. */
static int64_t find_key(const attnrun_step *step, const struct column *keys,
                        const void *element)
{
    const void *packed = step->node->packed;
    if (keys->data == NULL) {
        int64_t index = *(const int64_t *)element;
        return index >= 0 && index < keys->n ? index : -1;
    }
    if (packed != NULL)
        return (int64_t)*table_slot((int32_t *)(uintptr_t)packed, table_slots(keys->n),
                                    keys, element) -
               1;
    int64_t k = keys->n - 1;
    while (k >= 0 && !key_equals(keys, k, element))
        k--;
    return k;
}

/* ---- the operators ---- */

static attn_status encoder_infer(attnrun_step *step)
{
    struct encoder e;
    if (!describe(step->node, step->args, step->in[0].dtype, &e))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "expected one attribute keys_* and one attribute values_*");
    if (e.keys.n != e.values.n || e.keys.n < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "it has %s and %s, expected equal numbers",
                       attn_plural(e.keys.n, "key"), attn_plural(e.values.n, "value"));
    if (e.fallback == NULL ||
        !dtype_in(e.keys.dtype, ATTN_DT(STRING) | ATTN_DT(I64) | ATTN_DT(I32) |
                                    ATTN_DT(I16) | ATTN_DT(F32) | ATTN_DT(F64)))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "keys of %s with values of %s are not supported, or the default "
                       "is not one element of the values' type",
                       attnrun_dtype_name(e.keys.dtype),
                       attnrun_dtype_name(e.values.dtype));
    if (step->in[0].dtype != e.keys.dtype)
        return op_fail_input(step, 0, ATTNRUN_E_DTYPE, "expected %s as the keys are",
                             attnrun_dtype_name(e.keys.dtype));
    TRY(op_out_like(step, 0, 0));
    step->out[0].dtype = e.values.dtype;
    if (step->concrete)
        op_unit_tasks(step, 0, op_count(&step->in[0], 0, step->in[0].rank), OP_CHUNK, 20);
    return ATTNRUN_OK;
}

static attn_status encoder_run(const attnrun_step *step, const attnrun_work *work)
{
    struct encoder e;
    if (!describe(step->node, step->args, step->x[0].dtype, &e))
        return ATTNRUN_OK;
    const int64_t in = dtype_bytes(e.keys.dtype), out = dtype_bytes(e.values.dtype);
    int64_t n = tensor_count(&step->x[0]), i = work->begin * OP_CHUNK;
    int64_t end = work->end > n / OP_CHUNK ? n : work->end * OP_CHUNK;
    char *y = step->y[0].data;
    for (; i < end; i++) {
        const char *x = (const char *)step->x[0].data + i * in;
        if (OP_CANCELLED_AFTER(work, work_of(e.keys.dtype, x)))
            return ATTNRUN_E_CANCELLED;
        int64_t k = find_key(step, &e.keys, x);
        const void *value = e.fallback;
        if (k >= 0 && e.values.data != NULL)
            value = (const char *)e.values.data + k * out;
        else if (k >= 0)
            value = &k;
        memcpy(y + i * out, value, (size_t)out);
    }
    return ATTNRUN_OK;
}

#define ENCODER_ROW(row, onnx_name, version, args_type, attributes, in_types)            \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF("ai.onnx.ml"),                                                         \
        .flags = ATTNRUN_OP_NO_PROMOTION,                                                \
        .name = onnx_name,                                                               \
        .since = version,                                                                \
        .inputs = "X:T",                                                                 \
        .outputs = "Y:U",                                                                \
        .types = "T=" in_types " U=" in_types,                                           \
        .args_bytes = sizeof(args_type),                                                 \
        .attrs = attributes,                                                             \
        .infer = encoder_infer,                                                          \
        .pack = encoder_pack,                                                            \
        .run = encoder_run,                                                              \
        .cost = "O(n)",                                                                  \
    }
ENCODER_ROW(op_ml_label_encoder_1, "LabelEncoder", 1, struct mapper_args, classes_attrs,
            "string,i64");
ENCODER_ROW(op_ml_label_encoder_2, "LabelEncoder", 2, struct encoder_args, encoder_attrs,
            "string,i64,f32,i32,i16,f64");
ENCODER_ROW(op_ml_category_mapper_1, "CategoryMapper", 1, struct mapper_args,
            mapper_attrs, "string,i64");

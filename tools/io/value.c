/* value.c - elements of dense tensors as numbers, and tensors that the tools own.
 *
 * In: a tensor of any element type, and the index of an element. Out: the element as a double, an
 * i64 or text, or the element written from one. Complex numbers have two parts; strings are not
 * read here. */
#include <sys/mman.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

/* A binary float of up to 16 bits: sign, exponent, mantissa. */
struct small_float {
    int bits, mantissa, bias;
    uint32_t largest;  /* largest finite code without sign */
    uint32_t infinity; /* code, or 0: there is none */
    int nan_from;      /* codes without sign from here on are NaN; -1: none */
    int nan_code;      /* the one NaN code with sign, or -1 */
};

static const struct small_float *small_float(int32_t dtype)
{
    static const struct small_float f16 = { 16, 10, 15, 0x7bff, 0x7c00, 0x7c01, -1 };
    static const struct small_float bf16 = { 16, 7, 127, 0x7f7f, 0x7f80, 0x7f81, -1 };
    static const struct small_float e4m3fn = { 8, 3, 7, 0x7e, 0, 0x7f, -1 };
    static const struct small_float e4m3fnuz = { 8, 3, 8, 0x7f, 0, -1, 0x80 };
    static const struct small_float e5m2 = { 8, 2, 15, 0x7b, 0x7c, 0x7d, -1 };
    static const struct small_float e5m2fnuz = { 8, 2, 16, 0x7f, 0, -1, 0x80 };
    static const struct small_float e2m1 = { 4, 1, 1, 7, 0, -1, -1 };
    static const struct small_float e2m3 = { 6, 3, 1, 31, 0, -1, -1 };
    static const struct small_float e3m2 = { 6, 2, 3, 31, 0, -1, -1 };
    switch (dtype) {
    case ATTNRUN_F16:
        return &f16;
    case ATTNRUN_BF16:
        return &bf16;
    case ATTNRUN_F8E4M3FN:
        return &e4m3fn;
    case ATTNRUN_F8E4M3FNUZ:
        return &e4m3fnuz;
    case ATTNRUN_F8E5M2:
        return &e5m2;
    case ATTNRUN_F8E5M2FNUZ:
        return &e5m2fnuz;
    case ATTNRUN_F4E2M1:
        return &e2m1;
    case ATTNRUN_F6E2M3:
        return &e2m3;
    case ATTNRUN_F6E3M2:
        return &e3m2;
    default:
        return NULL;
    }
}

static double small_decode(const struct small_float *f, uint32_t code)
{
    uint32_t sign = UINT32_C(1) << (f->bits - 1), magnitude = code & (sign - 1);
    if ((int)code == f->nan_code || (f->nan_from >= 0 && (int)magnitude >= f->nan_from))
        return (double)NAN;
    double value;
    uint32_t one = UINT32_C(1) << f->mantissa;
    int exponent = (int)(magnitude >> f->mantissa);
    if (f->infinity != 0 && magnitude == f->infinity)
        value = (double)INFINITY;
    else if (exponent == 0)
        value = ldexp((double)magnitude, 1 - f->bias - f->mantissa);
    else
        value = ldexp((double)((magnitude & (one - 1)) + one),
                      exponent - f->bias - f->mantissa);
    return (code & sign) != 0 ? -value : value;
}

static uint32_t small_encode(const struct small_float *f, double value)
{
    uint32_t sign = signbit(value) ? UINT32_C(1) << (f->bits - 1) : 0;
    if (isnan(value))
        return f->nan_code >= 0 ? (uint32_t)f->nan_code
                                : (f->nan_from >= 0 ? (uint32_t)f->nan_from : 0);
    double size = fabs(value);
    if (isinf(size))
        return sign | (f->infinity != 0 ? f->infinity : f->largest);
    int exponent = 1 - f->bias;
    if (size > 0 && ilogb(size) > exponent)
        exponent = ilogb(size);
    if (exponent > f->bias + 1)
        exponent = f->bias + 1;
    double units = nearbyint(ldexp(size, f->mantissa - exponent));
    double code = ldexp((double)(exponent + f->bias - 1), f->mantissa) + units;
    uint32_t magnitude = code > (double)f->largest
                             ? (f->infinity != 0 ? f->infinity : f->largest)
                             : (uint32_t)code;
    return magnitude == 0 && f->nan_code >= 0 ? 0 : sign | magnitude;
}

/* Bits [k * bits, k * bits + bits) of packed data; types of 8 and 16 bits as well. */
static uint32_t code_get(const void *data, int bits, int64_t k)
{
    const uint8_t *bytes = data;
    int64_t bit = k * bits;
    uint32_t word = bytes[bit / 8];
    if (bit % 8 + bits > 8)
        word |= (uint32_t)bytes[bit / 8 + 1] << 8;
    return word >> bit % 8 & ((UINT32_C(1) << bits) - 1);
}

static void code_set(void *data, int bits, int64_t k, uint32_t code)
{
    uint8_t *bytes = data;
    int64_t bit = k * bits;
    uint32_t mask = ((UINT32_C(1) << bits) - 1) << bit % 8;
    bytes[bit / 8] = (uint8_t)((bytes[bit / 8] & ~mask) | (code << bit % 8 & mask));
    if (bit % 8 + bits > 8)
        bytes[bit / 8 + 1] = (uint8_t)((bytes[bit / 8 + 1] & ~(mask >> 8)) |
                                       ((code << bit % 8) >> 8 & mask >> 8));
}

/* Zeroed memory for free(); much of it lies in huge pages, as numpy's arrays and the
 * runtime's memory do. */
static void *zeroed(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    void *memory;
    if (bytes < 2 * HUGE_PAGE)
        return calloc(1, bytes);
    if (posix_memalign(&memory, HUGE_PAGE, bytes) != 0)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memset(memory, 0, bytes);
}

attnrun_status held_make(struct held *held, int32_t dtype, int32_t rank,
                         const int64_t *dims, uint64_t max_bytes)
{
    attnrun_tensor tensor;
    memset(held, 0, sizeof *held);
    TRY_LIB(attnrun_tensor_make(dtype, rank, dims, NULL, &tensor));
    int64_t bytes = attnrun_tensor_bytes(&tensor);
    if (bytes < 0)
        return tool_fail(ATTNRUN_E_LIMIT, "a tensor of this shape is too large");
    if (max_bytes != 0 && (uint64_t)bytes > max_bytes)
        return tool_fail(ATTNRUN_E_MEMORY,
                         "%s needs %s, which is over the memory budget of %" PRIu64
                         " bytes",
                         value_shape(&tensor), tool_plural(bytes, "byte"), max_bytes);
    held->memory = zeroed((size_t)bytes + 1);
    if (held->memory == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %" PRId64 " bytes", bytes);
    tensor.data = held->memory;
    held->tensor = tensor;
    return ATTNRUN_OK;
}

void held_free(struct held *held)
{
    free(held->memory);
    for (int i = 0; held->columns != NULL && i < 2; i++)
        free(held->columns[i].memory);
    free(held->columns);
    if (held->library != NULL)
        attnrun_tensor_free(held->runtime, held->library);
    memset(held, 0, sizeof *held);
}

bool value_is_float(int32_t dtype)
{
    return dtype == ATTNRUN_F32 || dtype == ATTNRUN_F64 || dtype == ATTNRUN_F8E8M0 ||
           small_float(dtype) != NULL;
}

bool value_is_complex(int32_t dtype)
{
    return dtype == ATTNRUN_C64 || dtype == ATTNRUN_C128;
}

bool value_is_int(int32_t dtype)
{
    return dtype > 0 && dtype < ATTNRUN_DTYPE_COUNT && dtype != ATTNRUN_BOOL &&
           dtype != ATTNRUN_STRING && !value_is_float(dtype) && !value_is_complex(dtype);
}

bool value_has_code(int32_t dtype)
{
    return small_float(dtype) != NULL || dtype == ATTNRUN_F8E8M0;
}

/* Elements at any address: the constants of a model may stand in its file as they like. */
#define LOAD(type)                                                                       \
    static type load_##type(const void *data, int64_t k)                                 \
    {                                                                                    \
        type element;                                                                    \
        memcpy(&element, (const char *)data + k * (int64_t)sizeof element,               \
               sizeof element);                                                          \
        return element;                                                                  \
    }
LOAD(uint16_t)
LOAD(int16_t)
LOAD(uint32_t)
LOAD(int32_t)
LOAD(uint64_t)
LOAD(int64_t)
LOAD(float)
LOAD(double)
#undef LOAD

double value_get(const attnrun_tensor *tensor, int64_t k)
{
    const struct small_float *f = small_float(tensor->dtype);
    if (f != NULL)
        return small_decode(f, f->bits < 16 ? code_get(tensor->data, f->bits, k)
                                            : load_uint16_t(tensor->data, k));
    switch (tensor->dtype) {
    case ATTNRUN_F32:
        return (double)load_float(tensor->data, k);
    case ATTNRUN_F64:
        return load_double(tensor->data, k);
    case ATTNRUN_C64:
        return (double)load_float(tensor->data, 2 * k);
    case ATTNRUN_C128:
        return load_double(tensor->data, 2 * k);
    case ATTNRUN_F8E8M0: {
        int code = ((const uint8_t *)tensor->data)[k];
        return code == 255 ? (double)NAN : ldexp(1, code - 127);
    }
    case ATTNRUN_U64:
        return (double)load_uint64_t(tensor->data, k);
    default:
        return (double)value_get_int(tensor, k);
    }
}

double value_get_imaginary(const attnrun_tensor *tensor, int64_t k)
{
    if (tensor->dtype == ATTNRUN_C64)
        return (double)load_float(tensor->data, 2 * k + 1);
    return tensor->dtype == ATTNRUN_C128 ? load_double(tensor->data, 2 * k + 1) : 0;
}

int64_t value_get_int(const attnrun_tensor *tensor, int64_t k)
{
    const void *data = tensor->data;
    uint32_t code;
    switch (tensor->dtype) {
    case ATTNRUN_BOOL:
        return ((const uint8_t *)data)[k] != 0;
    case ATTNRUN_U8:
        return ((const uint8_t *)data)[k];
    case ATTNRUN_I8:
        return ((const int8_t *)data)[k];
    case ATTNRUN_U16:
        return load_uint16_t(data, k);
    case ATTNRUN_I16:
        return load_int16_t(data, k);
    case ATTNRUN_U32:
        return load_uint32_t(data, k);
    case ATTNRUN_I32:
        return load_int32_t(data, k);
    case ATTNRUN_U64:
    case ATTNRUN_I64:
        return load_int64_t(data, k);
    case ATTNRUN_U4:
        return code_get(data, 4, k);
    case ATTNRUN_U2:
        return code_get(data, 2, k);
    case ATTNRUN_I4:
        code = code_get(data, 4, k);
        return (int64_t)code - (code & 8 ? 16 : 0);
    case ATTNRUN_I2:
        code = code_get(data, 2, k);
        return (int64_t)code - (code & 2 ? 4 : 0);
    default:
        return 0;
    }
}

int64_t value_step(const attnrun_tensor *tensor, int64_t k)
{
    const struct small_float *f = small_float(tensor->dtype);
    if (tensor->dtype == ATTNRUN_F32) {
        const int32_t bits = load_int32_t(tensor->data, k);
        return bits < 0 ? -(int64_t)(bits & INT32_MAX) : bits;
    }
    if (tensor->dtype == ATTNRUN_F64) {
        const int64_t bits = load_int64_t(tensor->data, k);
        return bits < 0 ? -(bits & INT64_MAX) : bits;
    }
    if (f == NULL)
        return ((const uint8_t *)tensor->data)[k];
    const uint32_t code = f->bits < 16 ? code_get(tensor->data, f->bits, k)
                                       : load_uint16_t(tensor->data, k);
    uint32_t sign = UINT32_C(1) << (f->bits - 1);
    return (code & sign) != 0 ? -(int32_t)(code & (sign - 1)) : (int32_t)code;
}

bool value_set(const attnrun_tensor *tensor, int64_t k, double value)
{
    const struct small_float *f = small_float(tensor->dtype);
    if (f != NULL) {
        if (isnan(value) && f->nan_from < 0 && f->nan_code < 0)
            return false;
        uint32_t code = small_encode(f, value);
        uint16_t half = (uint16_t)code;
        if (f->bits == 16)
            memcpy((uint8_t *)tensor->data + 2 * k, &half, 2);
        else
            code_set(tensor->data, f->bits, k, code);
        return true;
    }
    switch (tensor->dtype) {
    case ATTNRUN_F32:
        ((float *)tensor->data)[k] = (float)value;
        return true;
    case ATTNRUN_F64:
        ((double *)tensor->data)[k] = value;
        return true;
    case ATTNRUN_C64:
        ((float *)tensor->data)[2 * k] = (float)value;
        return true;
    case ATTNRUN_C128:
        ((double *)tensor->data)[2 * k] = value;
        return true;
    case ATTNRUN_F8E8M0: {
        const int code = isnan(value)                   ? 255
                         : value > 0 && isfinite(value) ? ilogb(value) + 127
                                                        : -1;
        const bool fits = code >= 0 && code <= (isnan(value) ? 255 : 254);
        ((uint8_t *)tensor->data)[k] = (uint8_t)(fits ? code : 0);
        return fits;
    }
    default:
        if (!(value >= -9.2e18 && value <= 9.2e18) || value != nearbyint(value))
            return false;
        return value_set_int(tensor, k, (int64_t)value);
    }
}

/* Lowest and highest value of an integer type. */
static void int_range(int32_t dtype, int64_t *low, int64_t *high)
{
    int bits = attnrun_dtype_bits(dtype);
    bool is_signed = dtype == ATTNRUN_I8 || dtype == ATTNRUN_I16 ||
                     dtype == ATTNRUN_I32 || dtype == ATTNRUN_I64 ||
                     dtype == ATTNRUN_I4 || dtype == ATTNRUN_I2;
    if (dtype == ATTNRUN_BOOL)
        bits = 1;
    *high = bits >= 63 ? INT64_MAX : (INT64_C(1) << (bits - (is_signed ? 1 : 0))) - 1;
    *low = is_signed ? -*high - 1 : 0;
}

bool value_set_int(const attnrun_tensor *tensor, int64_t k, int64_t value)
{
    int64_t low, high;
    void *data = tensor->data;
    if (!value_is_int(tensor->dtype) && tensor->dtype != ATTNRUN_BOOL)
        return tensor->dtype != ATTNRUN_STRING && value_set(tensor, k, (double)value);
    int_range(tensor->dtype, &low, &high);
    if (value < low || value > high)
        return false;
    switch (attnrun_dtype_bits(tensor->dtype)) {
    case 64:
        ((int64_t *)data)[k] = value;
        return true;
    case 32:
        ((uint32_t *)data)[k] = (uint32_t)value;
        return true;
    case 16:
        ((uint16_t *)data)[k] = (uint16_t)value;
        return true;
    case 8:
        ((uint8_t *)data)[k] = (uint8_t)value;
        return true;
    default:
        code_set(data, attnrun_dtype_bits(tensor->dtype), k, (uint32_t)value);
        return true;
    }
}

const char *value_kind_name(int32_t kind)
{
    static const char *const names[] = {
        "absent", "tensor",      "sequence", "optional", "optional_sequence",
        "map",    "map_sequence"
    };
    return kind >= 0 && kind < 7 ? names[kind] : "unknown";
}

static char *value_buffer(void)
{
    static char buffers[8][224];
    static unsigned next;
    return buffers[next++ % 8];
}

const char *value_shape(const attnrun_tensor *tensor)
{
    char *out = value_buffer();
    if (tensor->kind == ATTNRUN_SEQUENCE)
        snprintf(out, 224, "sequence of %" PRId64, tensor->dims[0]);
    if (tensor->kind == ATTNRUN_MAP_SEQUENCE)
        snprintf(out, 224, "sequence of %s", tool_plural(tensor->dims[0], "map"));
    if (tensor->kind == ATTNRUN_MAP)
        snprintf(out, 224, "map of %" PRId64, tensor->dims[0]);
    if (tensor->kind == ATTNRUN_OPTIONAL || tensor->kind == ATTNRUN_OPTIONAL_SEQUENCE)
        snprintf(out, 224, "optional");
    if (tensor->kind == ATTNRUN_ABSENT)
        snprintf(out, 224, "nothing");
    if (tensor->kind != ATTNRUN_TENSOR)
        return out;
    int n = snprintf(out, 224, "%s[", attnrun_dtype_name(tensor->dtype));
    for (int32_t i = 0; i < tensor->rank && i < ATTNRUN_MAX_RANK; i++)
        n += snprintf(out + n, (size_t)(224 - n), "%s%" PRId64, i > 0 ? "," : "",
                      tensor->dims[i]);
    snprintf(out + n, (size_t)(224 - n), "]");
    return out;
}

/* Whether a number of a type is the only one of it that `text` may stand for. */
static bool reads_back(const char *text, double value, int32_t dtype)
{
    double read = strtod(text, NULL);
    const struct small_float *f = small_float(dtype);
    if (f != NULL)
        return small_encode(f, read) == small_encode(f, value);
    if (dtype == ATTNRUN_F32 || dtype == ATTNRUN_C64)
        return strtof(text, NULL) == (float)value;
    return read == value;
}

const char *value_number(double value, int32_t dtype)
{
    char *out = value_buffer();
    for (int digits = dtype == ATTNRUN_F64 || dtype == ATTNRUN_C128 ? 15 : 1;
         digits <= 17; digits++) {
        snprintf(out, 224, "%.*g", digits, value);
        if (!isfinite(value) || reads_back(out, value, dtype))
            break;
    }
    return out;
}

const char *value_text(const attnrun_tensor *tensor, int64_t k)
{
    char *out = value_buffer();
    if (tensor->dtype == ATTNRUN_STRING) {
        const attnrun_string *s = &((const attnrun_string *)tensor->data)[k];
        char text[81];
        snprintf(text, sizeof text, "%.*s", (int)(s->n > 80 ? 80 : s->n),
                 s->n ? s->data : "");
        snprintf(out, 224, "'%s'%s", tool_quote(text),
                 s->n > (int64_t)strlen(text) ? "..." : "");
    } else if (value_is_complex(tensor->dtype)) {
        double imaginary = value_get_imaginary(tensor, k);
        snprintf(out, 224, "%s%s%si", value_number(value_get(tensor, k), tensor->dtype),
                 signbit(imaginary) ? "" : "+", value_number(imaginary, tensor->dtype));
    } else if (tensor->dtype == ATTNRUN_U64) {
        snprintf(out, 224, "%" PRIu64, ((const uint64_t *)tensor->data)[k]);
    } else if (value_is_float(tensor->dtype)) {
        return value_number(value_get(tensor, k), tensor->dtype);
    } else {
        snprintf(out, 224, "%" PRId64, value_get_int(tensor, k));
    }
    return out;
}

const char *value_index(const attnrun_tensor *tensor, int64_t k)
{
    char *out = value_buffer();
    int64_t index[ATTNRUN_MAX_RANK];
    for (int32_t i = tensor->rank - 1; i >= 0; i--) {
        int64_t d = tensor->dims[i] > 0 ? tensor->dims[i] : 1;
        index[i] = k % d;
        k /= d;
    }
    int n = snprintf(out, 224, "[");
    for (int32_t i = 0; i < tensor->rank; i++)
        n += snprintf(out + n, (size_t)(224 - n), "%s%" PRId64, i > 0 ? "," : "",
                      index[i]);
    snprintf(out + n, (size_t)(224 - n), "]");
    return out;
}

/* inputs.c - in: what a model declares of an input, and a seed; out: a value for it, mostly one
 * that fits. See case.h. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

static void put_int(int32_t dtype, char *at, int64_t x)
{
    if (dtype == ATTNRUN_BOOL)
        x &= 1;
    memcpy(at, &x, (size_t)(attnrun_dtype_bits(dtype) / 8)); /* little-endian */
}

void fuzz_fill(struct fuzz_case *c, struct fuzz_random *r, attnrun_tensor *t)
{
    static const char *const words[] = {
        "", "a", "ab", "1.5", "-7", "the cat", "\xc3\xa9"
    };
    int64_t n = attnrun_tensor_count(t), bits = attnrun_dtype_bits(t->dtype);
    bool wild = fuzz_chance(r, 10);
    t->data = fuzz_hold(c, attnrun_tensor_bytes(t));
    fuzz_set_dense(t);
    if (bits < 8 || t->dtype > ATTNRUN_BF16) {
        for (int64_t i = 0; i < attnrun_tensor_bytes(t); i++)
            ((uint8_t *)t->data)[i] = (uint8_t)fuzz_next(r);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        char *at = (char *)t->data + i * (bits / 8);
        float x = c->tame ? fuzz_small_float(r) : fuzz_float(r);
        double wide = (double)x;
        switch (t->dtype) {
        case ATTNRUN_F32:
            memcpy(at, &x, sizeof x);
            break;
        case ATTNRUN_F64:
            memcpy(at, &wide, sizeof wide);
            break;
        case ATTNRUN_STRING:
            ((attnrun_string *)t->data)[i].data = words[fuzz_below(r, 7)];
            ((attnrun_string *)t->data)[i].n =
                (int64_t)strlen(((attnrun_string *)t->data)[i].data);
            break;
        case ATTNRUN_F16: /* a small number: sign, exponent near 1 */
            put_int(ATTNRUN_U16, at, (int64_t)(fuzz_next(r) & 0x83ff) | 0x3800);
            break;
        case ATTNRUN_BF16:
            put_int(ATTNRUN_U16, at, (int64_t)(fuzz_next(r) & 0x80ff) | 0x3f00);
            break;
        case ATTNRUN_C64:
        case ATTNRUN_C128:
            memset(at, 0, (size_t)(bits / 8));
            break;
        default:
            put_int(t->dtype, at, wild ? fuzz_int(r) : fuzz_below(r, 4));
        }
    }
}

/* Name and seed give a symbol its size, so that equal names mostly agree. */
static int64_t size_of(const struct fuzz_case *c, const char *name, struct fuzz_random *r)
{
    struct fuzz_random own = { c->seed };
    if (name[0] == 0 || fuzz_chance(r, 5))
        return fuzz_below(r, 7);
    for (; *name != 0; name++)
        own.state = fuzz_next(&own) ^ (uint64_t)*name;
    return fuzz_chance(&own, 6) ? 0 : 1 + fuzz_below(&own, 6);
}

static int32_t any_dtype(struct fuzz_random *r)
{
    static const int32_t usual[] = { ATTNRUN_F32, ATTNRUN_I64, ATTNRUN_BOOL,
                                     ATTNRUN_F64, ATTNRUN_F16, ATTNRUN_STRING,
                                     ATTNRUN_U8,  ATTNRUN_I32 };
    return fuzz_chance(r, 75) ? usual[fuzz_below(r, 8)]
                              : 1 + (int32_t)fuzz_below(r, ATTNRUN_DTYPE_COUNT - 1);
}

static attnrun_tensor make_tensor(struct fuzz_case *c, const attnrun_value_info *info)
{
    struct fuzz_random *r = &c->random;
    attnrun_tensor t = { .kind = ATTNRUN_TENSOR,
                         .dtype = info->dtype != 0 ? info->dtype : any_dtype(r) };
    t.rank = info->rank >= 0 ? info->rank : (int32_t)fuzz_below(r, 5);
    for (int32_t i = 0; i < t.rank; i++) {
        t.dims[i] = info->rank >= 0 ? info->dims[i] : fuzz_below(r, 6);
        if (t.dims[i] < 0)
            t.dims[i] = size_of(c, info->dim_names[i], r);
    }
    if (attnrun_tensor_count(&t) > 1 << 20 || attnrun_tensor_count(&t) < 0)
        t.rank = 0;
    fuzz_fill(c, r, &t);
    return t;
}

static attnrun_tensor make_value(struct fuzz_case *c, const attnrun_value_info *info);

static attnrun_tensor make_sequence(struct fuzz_case *c, const attnrun_value_info *info)
{
    struct fuzz_random *r = &c->random;
    int64_t n = fuzz_below(r, 5);
    attnrun_tensor t = { .kind = ATTNRUN_SEQUENCE, .dtype = info->dtype, .rank = 1 };
    attnrun_tensor *items = fuzz_hold(c, n * (int64_t)sizeof *items);
    attnrun_value_info item = *info;
    item.rank = fuzz_chance(r, 50) ? (int32_t)fuzz_below(r, 4) : -1;
    for (int i = 0; i < ATTNRUN_MAX_RANK; i++)
        item.dims[i] = fuzz_below(r, 5);
    for (int64_t i = 0; i < n; i++) {
        if (fuzz_chance(r, 6)) /* what must not pass */
            item.dtype = any_dtype(r);
        items[i] = make_tensor(c, &item);
        item.dtype = info->dtype;
        if (fuzz_chance(r, 2))
            items[i].kind = (int32_t)fuzz_below(r, 6);
    }
    t.dims[0] = n;
    t.data = items;
    return t;
}

static attnrun_tensor make_optional(struct fuzz_case *c, const attnrun_value_info *info)
{
    attnrun_tensor t = { .kind = info->kind, .dtype = info->dtype };
    attnrun_value_info held = *info;
    held.kind = info->kind == ATTNRUN_OPTIONAL ? ATTNRUN_TENSOR : ATTNRUN_SEQUENCE;
    if (fuzz_chance(&c->random, 30))
        return t;
    if (fuzz_chance(&c->random, 6))
        held.kind = ATTNRUN_TENSOR + ATTNRUN_SEQUENCE - held.kind;
    t.data = fuzz_hold(c, (int64_t)sizeof t);
    *(attnrun_tensor *)t.data = make_value(c, &held);
    return t;
}

static attnrun_tensor make_value(struct fuzz_case *c, const attnrun_value_info *info)
{
    switch (info->kind) {
    case ATTNRUN_SEQUENCE:
        return make_sequence(c, info);
    case ATTNRUN_OPTIONAL:
    case ATTNRUN_OPTIONAL_SEQUENCE:
        return make_optional(c, info);
    default:
        return make_tensor(c, info);
    }
}

/* Rows twice as far apart as they need be. */
static void spread(struct fuzz_case *c, attnrun_tensor *t)
{
    int64_t bits = attnrun_dtype_bits(t->dtype), bytes = attnrun_tensor_bytes(t);
    if (t->rank < 1 || bits < 8 || bytes < 1 || t->strides[0] * t->dims[0] != bytes)
        return;
    char *wide = fuzz_hold(c, 2 * bytes);
    memset(wide, 0x77, (size_t)(2 * bytes));
    for (int64_t i = 0; i < t->dims[0]; i++)
        memcpy(wide + 2 * i * t->strides[0], (char *)t->data + i * t->strides[0],
               (size_t)t->strides[0]);
    t->data = wide;
    t->strides[0] *= 2;
}

attnrun_tensor fuzz_input(struct fuzz_case *c, int32_t index,
                          const attnrun_value_info *info)
{
    struct fuzz_random *r = &c->random;
    attnrun_value_info other = *info;
    bool given = index < FUZZ_INPUTS && c->given[index].kind != ATTNRUN_ABSENT;
    if (given && fuzz_chance(r, 85))
        return c->given[index];
    if (given && c->given[index].kind == ATTNRUN_TENSOR) { /* near what is right */
        other.rank = c->given[index].rank;
        memcpy(other.dims, c->given[index].dims, sizeof other.dims);
    }
    if (fuzz_chance(r, 6))
        other.dtype = any_dtype(r);
    if (fuzz_chance(r, 3))
        other.kind = 1 + (int32_t)fuzz_below(r, 4);
    if (other.rank > 0 && fuzz_chance(r, 25))
        other.dims[fuzz_below(r, other.rank)] = fuzz_below(r, 9);
    if (fuzz_chance(r, 5))
        other.rank = -1;
    attnrun_tensor t = make_value(c, &other);
    if (t.kind == ATTNRUN_TENSOR && fuzz_chance(r, 5))
        spread(c, &t);
    return t;
}

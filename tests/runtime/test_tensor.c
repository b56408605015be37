/* test_tensor.c - sizes that overflow, strides, copies of any strides against an index by
 * index copy. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "tensor.h"

static attnrun_tensor made(int32_t dtype, int32_t rank, const int64_t *dims, void *data)
{
    attnrun_tensor t;
    assert_int_equal(attnrun_tensor_make(dtype, rank, dims, data, &t), ATTNRUN_OK);
    return t;
}

static void test_make_refuses_what_does_not_fit(void **state)
{
    (void)state;
    const int64_t huge[2] = { INT64_C(1) << 32, INT64_C(1) << 32 };
    const int64_t wide[1] = { INT64_C(1) << 60 }, negative[2] = { -2, -1 };
    const int64_t empty[3] = { 0, INT64_C(1) << 62, INT64_C(1) << 62 };
    const int64_t nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    attnrun_tensor t = { .rank = 77 };
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 2, huge, NULL, &t),
                     ATTNRUN_E_LIMIT);
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 1, wide, NULL, &t),
                     ATTNRUN_E_LIMIT);
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 2, negative, NULL, &t),
                     ATTNRUN_E_SHAPE);
    assert_int_equal(attnrun_tensor_make(99, 2, huge, NULL, &t), ATTNRUN_E_DTYPE);
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 9, nine, NULL, &t),
                     ATTNRUN_E_LIMIT);
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, -1, nine, NULL, &t),
                     ATTNRUN_E_LIMIT);
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 1, NULL, NULL, &t),
                     ATTNRUN_E_USAGE);
    assert_int_equal(t.rank, 77); /* untouched on failure */
    t = made(ATTNRUN_F32, 3, empty, NULL);
    assert_int_equal(attnrun_tensor_count(&t), 0);
    assert_int_equal(attnrun_tensor_bytes(&t), 0);
    assert_true(tensor_is_dense(&t));
    t = made(ATTNRUN_F64, 0, NULL, NULL);
    assert_int_equal(attnrun_tensor_bytes(&t), 8);
}

static void test_dense_has_row_major_strides(void **state)
{
    (void)state;
    const int64_t dims[4] = { 2, 3, 1, 5 }, odd[2] = { 3, 3 };
    attnrun_tensor t = made(ATTNRUN_F32, 4, dims, NULL);
    assert_int_equal(t.strides[0], 60);
    assert_int_equal(t.strides[1], 20);
    assert_int_equal(t.strides[3], 4);
    assert_true(tensor_is_dense(&t));
    t.strides[2] = 12345; /* an axis of one element is never stepped along */
    assert_true(tensor_is_dense(&t));
    t.strides[1] = 24;
    assert_false(tensor_is_dense(&t));
    assert_int_equal(tensor_dims_product(&t, 1, 4), 15);
    assert_int_equal(tensor_dims_product(&t, 2, 2), 1);
    t = made(ATTNRUN_I4, 2, odd, NULL);
    assert_int_equal(tensor_bytes(&t), 5);
    assert_true(tensor_is_dense(&t));
}

/* Gives `t` strides of a random permutation of its axes with random gaps; returns the
 * bytes that it then spans. */
static int64_t shuffle_strides(attnrun_tensor *t, uint64_t *seed)
{
    int order[ATTNRUN_MAX_RANK] = { 0 };
    int64_t stride = dtype_bytes(t->dtype) * (1 + random_below(seed, 2));
    for (int i = 0; i < t->rank; i++) {
        int64_t at = random_below(seed, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < t->rank; i++) {
        t->strides[order[i]] = stride;
        stride *= t->dims[order[i]] + random_below(seed, 2);
    }
    return stride + 16;
}

static int64_t offset_of(const attnrun_tensor *t, int64_t k)
{
    int64_t offset = 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        offset += k % t->dims[i] * t->strides[i];
        k /= t->dims[i];
    }
    return offset;
}

static void test_copy_equals_element_by_element(void **state)
{
    (void)state;
    static const int32_t dtypes[] = { ATTNRUN_U8, ATTNRUN_F16, ATTNRUN_F32, ATTNRUN_F64,
                                      ATTNRUN_C128 };
    enum { BYTES = 1 << 18 };
    static char source[BYTES], target[BYTES], expected[BYTES];
    uint64_t seed = 11;
    for (int turn = 0; turn < 3000; turn++) {
        uint64_t seed_before = seed;
        int64_t dims[5];
        int rank = (int)random_below(&seed, 6);
        for (int i = 0; i < rank; i++)
            dims[i] = random_below(&seed, 12) == 0 ? 0 : 1 + random_below(&seed, 4);
        int32_t dtype = dtypes[random_below(&seed, 5)];
        attnrun_tensor to = made(dtype, rank, dims, target);
        attnrun_tensor from = made(dtype, rank, dims, source);
        if (random_below(&seed, 4) != 0)
            assert_true(shuffle_strides(&to, &seed) < BYTES);
        if (random_below(&seed, 4) != 0)
            assert_true(shuffle_strides(&from, &seed) < BYTES);
        for (size_t i = 0; i < BYTES / 8; i++)
            ((uint64_t *)(void *)source)[i] = next_random(&seed);
        memset(target, 0, BYTES);
        memset(expected, 0, BYTES);
        for (int64_t k = 0; k < tensor_count(&to); k++)
            memcpy(expected + offset_of(&to, k), source + offset_of(&from, k),
                   (size_t)dtype_bytes(dtype));
        tensor_copy(&to, &from);
        if (memcmp(expected, target, BYTES) != 0)
            fail_msg("seed %ju", (uintmax_t)seed_before);
    }
}

static void test_copy_broadcasts_stride_0(void **state)
{
    (void)state;
    const int64_t dims[2] = { 3, 2 };
    float row[2] = { 1, 2 }, all[6] = { 0 };
    attnrun_tensor to = made(ATTNRUN_F32, 2, dims, all);
    attnrun_tensor from = made(ATTNRUN_F32, 2, dims, row);
    from.strides[0] = 0;
    tensor_copy(&to, &from);
    for (int i = 0; i < 6; i++)
        assert_true(all[i] == row[i % 2]);
}

static void test_elements_of_every_dtype(void **state)
{
    (void)state;
    const int64_t dims[1] = { 2 };
    _Alignas(8) uint8_t data[33] = { 0 };
    static const struct {
        int32_t dtype;
        uint8_t bytes[8]; /* of element 1 */
        double value;
    } rows[] = {
        { ATTNRUN_BOOL, { 9 }, 1 },
        { ATTNRUN_U8, { 200 }, 200 },
        { ATTNRUN_I8, { 200 }, -56 },
        { ATTNRUN_I16, { 0xfe, 0xff }, -2 },
        { ATTNRUN_U16, { 0xfe, 0xff }, 65534 },
        { ATTNRUN_I32, { 0xff, 0xff, 0xff, 0xff }, -1 },
        { ATTNRUN_U32, { 0xff, 0xff, 0xff, 0xff }, 4294967295.0 },
        { ATTNRUN_I64, { 1, 0, 0, 0, 0, 0, 0, 0x80 }, -9223372036854775807.0 },
        { ATTNRUN_U64, { 0, 0, 0, 0, 0, 0, 0, 0x80 }, 9223372036854775808.0 },
        { ATTNRUN_F16, { 0, 0x3c }, 1 },
        { ATTNRUN_BF16, { 0x80, 0xbf }, -1 },
        { ATTNRUN_F32, { 0, 0, 0x80, 0x3f }, 1 },
        { ATTNRUN_F64, { 0, 0, 0, 0, 0, 0, 0xf0, 0xbf }, -1 },
        { ATTNRUN_F8E4M3FN, { 0x38 }, 1 },
        { ATTNRUN_F8E5M2, { 0x3c }, 1 },
        { ATTNRUN_F8E8M0, { 128 }, 2 },
        { ATTNRUN_F8E4M3FNUZ, { 0x40 }, 1 },
        { ATTNRUN_F8E5M2FNUZ, { 0x40 }, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int shift = 0; shift < 2; shift++) { /* files do not align their data */
            attnrun_tensor t = made(rows[i].dtype, 1, dims, data + shift);
            memcpy(data + shift + dtype_bytes(rows[i].dtype), rows[i].bytes, 8);
            assert_true(tensor_get_real(&t, 1) == rows[i].value);
            if (dtype_in(rows[i].dtype, ATTN_DT_SINT | ATTN_DT_UINT) &&
                rows[i].dtype != ATTNRUN_U64)
                assert_true((double)tensor_get_int(&t, 1) == rows[i].value);
        }
    data[0] = 0x2f;
    attnrun_tensor t = made(ATTNRUN_I4, 1, dims, data);
    assert_int_equal(tensor_get_int(&t, 0), -1);
    assert_int_equal(tensor_get_int(&t, 1), 2);
    t = made(ATTNRUN_F4E2M1, 1, dims, data);
    assert_true(tensor_get_real(&t, 0) == -6);
    assert_true(tensor_get_real(&t, 1) == 1);
    t = made(ATTNRUN_U4, 1, dims, data);
    assert_int_equal(tensor_get_int(&t, 0), 15);
    assert_true(tensor_get_real(&t, 1) == 2);
    data[0] = 0x0b; /* 2 bits each: 3, 2; 6 bits: 0x0b, 0 */
    t = made(ATTNRUN_U2, 1, dims, data);
    assert_int_equal(tensor_get_int(&t, 0), 3);
    assert_int_equal(tensor_get_int(&t, 1), 2);
    t = made(ATTNRUN_I2, 1, dims, data);
    assert_int_equal(tensor_get_int(&t, 0), -1);
    assert_int_equal(tensor_get_int(&t, 1), -2);
    data[1] = 0;
    t = made(ATTNRUN_F6E2M3, 1, dims, data);
    assert_true(tensor_get_real(&t, 0) == 1.375);
    t = made(ATTNRUN_F6E3M2, 1, dims, data);
    assert_true(tensor_get_real(&t, 0) == 0.875);
    t = made(ATTNRUN_U64, 1, dims, data);
    memset(data, 0xff, 8);
    assert_int_equal(tensor_get_int(&t, 0), -1); /* the same bits */
    t = made(ATTNRUN_C64, 1, dims, data);
    assert_int_equal(tensor_get_int(&t, 0), 0);
}

/* Structs of a caller that are none: no count, and no bytes. */
static void test_malformed_structs_have_no_count(void **state)
{
    (void)state;
    const int64_t dims[2] = { 2, 3 };
    const attnrun_tensor good = made(ATTNRUN_F32, 2, dims, NULL);
    assert_int_equal(attnrun_tensor_count(NULL), -1);
    assert_int_equal(attnrun_tensor_bytes(NULL), -1);
    for (int wrong = 0; wrong < 4; wrong++) {
        attnrun_tensor t = good;
        if (wrong < 2)
            t.rank = wrong == 0 ? -1 : ATTNRUN_MAX_RANK + 1;
        else
            t.dims[1] = wrong == 2 ? -3 : INT64_MAX;
        assert_int_equal(attnrun_tensor_count(&t), -1);
        assert_int_equal(attnrun_tensor_bytes(&t), -1);
    }
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 0, NULL, NULL, NULL),
                     ATTNRUN_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make_refuses_what_does_not_fit),
        cmocka_unit_test(test_dense_has_row_major_strides),
        cmocka_unit_test(test_copy_equals_element_by_element),
        cmocka_unit_test(test_copy_broadcasts_stride_0),
        cmocka_unit_test(test_elements_of_every_dtype),
        cmocka_unit_test(test_malformed_structs_have_no_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

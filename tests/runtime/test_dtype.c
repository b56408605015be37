/* test_dtype.c - names and sizes; every f16 code both ways; spot values and rounding of
 * the small floats; packed elements. Beyond this, f16 was compared with vcvtps2ph and
 * bf16 with its definition over all 2^32 floats, and all types with ml_dtypes 0.6 over
 * 10^7 and more. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "dtype.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_dtype_names_and_bits(void **state)
{
    (void)state;
    assert_string_equal(attnrun_dtype_name(ATTNRUN_F32), "f32");
    assert_string_equal(attnrun_dtype_name(ATTNRUN_BOOL), "b8");
    assert_string_equal(attnrun_dtype_name(0), "undefined");
    assert_string_equal(attnrun_dtype_name(-7), "undefined");
    assert_string_equal(attnrun_dtype_name(29), "undefined");
    assert_int_equal(attnrun_dtype_bits(ATTNRUN_F32), 32);
    assert_int_equal(attnrun_dtype_bits(ATTNRUN_C128), 128);
    assert_int_equal(attnrun_dtype_bits(ATTNRUN_F6E3M2), 6);
    assert_int_equal(attnrun_dtype_bits(0), 0);
    assert_int_equal(attnrun_dtype_bits(-1), 0);
    assert_int_equal(attnrun_dtype_bits(99), 0);
    assert_int_equal(dtype_bytes_of(ATTNRUN_I4, 3), 2);
    assert_int_equal(dtype_bytes_of(ATTNRUN_F6E2M3, 4), 3);
    assert_int_equal(dtype_bytes_of(ATTNRUN_I2, 5), 2);
    assert_int_equal(dtype_bytes_of(ATTNRUN_F32, INT64_MAX / 32), INT64_MAX / 32 * 4);
    assert_int_equal(dtype_bytes_of(ATTNRUN_F32, INT64_MAX / 32 + 1), -1);
    assert_int_equal(dtype_bytes_of(ATTNRUN_F32, -1), -1);
    assert_string_equal(attn_dtype_set_names(ATTN_DT_FLOAT), "f32, f16, f64 or bf16");
    assert_string_equal(attn_dtype_set_names(1u << ATTNRUN_F32), "f32");
    assert_string_equal(attn_dtype_set_names(0), "");
    assert_non_null(strstr(attn_dtype_set_names(UINT32_MAX), "f6e3m2"));
}

static void test_f16_round_trips_every_code(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= UINT16_MAX; code++) {
        float value = attn_f16_to_f32((uint16_t)code);
        if ((code & 0x7fff) > 0x7c00)
            assert_true(isnan(value) && isnan(attn_f16_to_f32(attn_f32_to_f16(value))));
        else
            assert_int_equal(attn_f32_to_f16(value), code);
    }
    assert_true(attn_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(attn_f16_to_f32(0x7bff) == 65504.0f);
    assert_true(attn_f16_to_f32(0xfc00) == -INFINITY);
    assert_int_equal(bits_of(attn_f16_to_f32(0x8000)), UINT32_C(0x80000000));
}

/* Halfway between two neighbours goes to the even one, a hair off to the nearer. */
static void test_f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x7bff; code++) {
        float low = attn_f16_to_f32((uint16_t)code);
        float high = attn_f16_to_f32((uint16_t)(code + 1));
        float middle = low + (high - low) / 2; /* exact */
        assert_int_equal(attn_f32_to_f16(middle), code + (code & 1));
        assert_int_equal(attn_f32_to_f16(nextafterf(middle, 0)), code);
        assert_int_equal(attn_f32_to_f16(nextafterf(middle, INFINITY)), code + 1);
    }
    assert_int_equal(attn_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(attn_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(attn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(attn_f32_to_f16(-1e-30f), 0x8000);
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(attn_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(attn_f32_to_bf16(1.00390625f), 0x3f80); /* halfway, even below */
    assert_int_equal(attn_f32_to_bf16(1.01171875f), 0x3f82); /* halfway, even above */
    assert_int_equal(attn_f32_to_bf16(3.4e38f), 0x7f80);
    assert_int_equal(attn_f32_to_bf16(-INFINITY), 0xff80);
    assert_true(isnan(attn_bf16_to_f32(attn_f32_to_bf16(NAN))));
    for (uint32_t code = 0; code <= UINT16_MAX; code++)
        if ((code & 0x7fff) <= 0x7f80)
            assert_int_equal(attn_f32_to_bf16(attn_bf16_to_f32((uint16_t)code)), code);
}

static const int32_t small_floats[] = { ATTNRUN_F8E4M3FN, ATTNRUN_F8E4M3FNUZ,
                                        ATTNRUN_F8E5M2,   ATTNRUN_F8E5M2FNUZ,
                                        ATTNRUN_F4E2M1,   ATTNRUN_F6E2M3,
                                        ATTNRUN_F6E3M2,   ATTNRUN_F8E8M0 };

static void test_small_floats_round_trip_every_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small_floats / sizeof *small_floats; i++) {
        int32_t dtype = small_floats[i];
        for (int code = 0; code < 1 << attnrun_dtype_bits(dtype); code++) {
            float value = attn_small_float_to_f32(dtype, (uint8_t)code);
            int back = attn_f32_to_small_float(dtype, value, false);
            if (isnan(value))
                assert_true(isnan(attn_small_float_to_f32(dtype, (uint8_t)back)));
            else
                assert_int_equal(back, code);
        }
    }
}

static void test_small_floats_have_their_largest_values(void **state)
{
    (void)state;
    static const struct {
        int32_t dtype;
        float largest, min;
        int inf, inf_saturated; /* codes of infinity */
    } rows[] = {
        { ATTNRUN_F8E4M3FN, 448, 0x1p-9f, 0x7f, 0x7e },
        { ATTNRUN_F8E4M3FNUZ, 240, 0x1p-10f, 0x80, 0x7f },
        { ATTNRUN_F8E5M2, 57344, 0x1p-16f, 0x7c, 0x7b },
        { ATTNRUN_F8E5M2FNUZ, 57344, 0x1p-17f, 0x80, 0x7f },
        { ATTNRUN_F6E2M3, 7.5f, 0.125f, 0x1f, 0x1f },
        { ATTNRUN_F6E3M2, 28, 0.0625f, 0x1f, 0x1f },
        { ATTNRUN_F4E2M1, 6, 0.5f, 0x07, 0x07 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t dtype = rows[i].dtype;
        uint8_t top = attn_f32_to_small_float(dtype, rows[i].largest, false);
        assert_true(attn_small_float_to_f32(dtype, top) == rows[i].largest);
        assert_true(attn_small_float_to_f32(dtype, 1) == rows[i].min);
        assert_int_equal(attn_f32_to_small_float(dtype, INFINITY, false), rows[i].inf);
        assert_int_equal(attn_f32_to_small_float(dtype, INFINITY, true),
                         rows[i].inf_saturated);
        assert_int_equal(attn_f32_to_small_float(dtype, 3e38f, true),
                         rows[i].inf_saturated);
        assert_int_equal(attn_f32_to_small_float(dtype, rows[i].min / 2, true), 0);
        assert_int_equal(attn_f32_to_small_float(dtype, rows[i].min * 0.51f, true), 1);
    }
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F8E4M3FNUZ, -0.0f, true), 0);
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F8E4M3FN, -0.0f, true), 0x80);
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F8E4M3FN, 465.0f, false), 0x7f);
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F8E4M3FN, 464.0f, false), 0x7e);
}

static void test_e8m0_rounds_as_asked(void **state)
{
    (void)state;
    assert_int_equal(attn_f32_to_f8e8m0(1.0f, ATTN_ROUND_UP, true), 127);
    assert_int_equal(attn_f32_to_f8e8m0(1.1f, ATTN_ROUND_UP, true), 128);
    assert_int_equal(attn_f32_to_f8e8m0(1.9f, ATTN_ROUND_DOWN, true), 127);
    assert_int_equal(attn_f32_to_f8e8m0(1.49f, ATTN_ROUND_NEAREST, true), 127);
    assert_int_equal(attn_f32_to_f8e8m0(1.5f, ATTN_ROUND_NEAREST, true), 128);
    assert_int_equal(attn_f32_to_f8e8m0(0.0f, ATTN_ROUND_UP, true), 0);
    assert_int_equal(attn_f32_to_f8e8m0(0.0f, ATTN_ROUND_NEAREST, false), 255);
    assert_int_equal(attn_f32_to_f8e8m0(3.4e38f, ATTN_ROUND_UP, true), 254);
    assert_int_equal(attn_f32_to_f8e8m0(3.4e38f, ATTN_ROUND_UP, false), 255);
    assert_int_equal(attn_f32_to_f8e8m0(NAN, ATTN_ROUND_UP, true), 255);
    assert_true(attn_small_float_to_f32(ATTNRUN_F8E8M0, 0) == 0x1p-127f);
    assert_int_equal(attn_f32_to_f8e8m0(INFINITY, ATTN_ROUND_UP, true), 254);
    assert_int_equal(attn_f32_to_f8e8m0(INFINITY, ATTN_ROUND_UP, false), 255);
}

/* Below 2^-126 floats are subnormal, and the least two codes are 2^-127 and 2^-126. */
static void test_e8m0_rounds_subnormal_floats(void **state)
{
    (void)state;
    static const struct {
        float value;
        enum attn_round round;
        int code;
    } rows[] = {
        { 0x1p-127f, ATTN_ROUND_UP, 0 },      { 0x1p-127f, ATTN_ROUND_NEAREST, 0 },
        { 0x1.4p-127f, ATTN_ROUND_UP, 1 },    { 0x1.4p-127f, ATTN_ROUND_NEAREST, 0 },
        { 0x1.4p-127f, ATTN_ROUND_DOWN, 0 },  { 0x1.8p-127f, ATTN_ROUND_NEAREST, 1 },
        { 0x1.8p-127f, ATTN_ROUND_DOWN, 0 },  { 0x1p-126f, ATTN_ROUND_UP, 1 },
        { 0x1p-128f, ATTN_ROUND_NEAREST, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(attn_f32_to_f8e8m0(rows[i].value, rows[i].round, true),
                         rows[i].code);
    assert_int_equal(attn_f32_to_f8e8m0(0x1p-128f, ATTN_ROUND_UP, false), 255);
}

/* Formats without NaN show zero of the other sign; other types have no small floats. */
static void test_small_floats_without_nan(void **state)
{
    (void)state;
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F4E2M1, NAN, true), 0x8);
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F4E2M1, -NAN, true), 0);
    assert_int_equal(attn_f32_to_small_float(ATTNRUN_F6E2M3, NAN, false), 0x20);
    static const int32_t others[] = { -1, 0, ATTNRUN_F32, ATTNRUN_DTYPE_COUNT };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(attn_f32_to_small_float(others[i], 1, true), 0);
        assert_true(attn_small_float_to_f32(others[i], 0x38) == 0);
    }
}

static void test_subbyte_elements_are_independent(void **state)
{
    (void)state;
    static const int32_t dtypes[] = { ATTNRUN_U4, ATTNRUN_I4,     ATTNRUN_U2,
                                      ATTNRUN_I2, ATTNRUN_F6E2M3, ATTNRUN_F4E2M1 };
    enum { N = 37 };
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint8_t data[32];
        int32_t model[N];
        int width = attnrun_dtype_bits(dtypes[i]);
        bool is_signed = dtypes[i] == ATTNRUN_I4 || dtypes[i] == ATTNRUN_I2;
        size_t bytes = (size_t)dtype_bytes_of(dtypes[i], N);
        memset(data, 0xff, sizeof data);
        for (int k = 0; k < N; k++)
            model[k] = is_signed ? -1 : (1 << width) - 1;
        for (int turn = 0; turn < 1000; turn++) {
            int64_t k = random_below(&seed, N);
            model[k] = (int32_t)random_below(&seed, 1 << width) -
                       (is_signed ? 1 << (width - 1) : 0);
            attn_subbyte_set(dtypes[i], data, k, model[k]);
            for (int j = 0; j < N; j++)
                assert_int_equal(attn_subbyte_get(dtypes[i], data, j), model[j]);
        }
        assert_int_equal(data[bytes], 0xff); /* nothing behind the array was written */
    }
    const uint8_t packed[3] = { 0x41, 0x20, 0x0c }; /* 1, 1, 2, 3 as a bit stream */
    assert_int_equal(attn_subbyte_get(ATTNRUN_F6E2M3, packed, 0), 1);
    assert_int_equal(attn_subbyte_get(ATTNRUN_F6E2M3, packed, 1), 1);
    assert_int_equal(attn_subbyte_get(ATTNRUN_F6E2M3, packed, 2), 2);
    assert_int_equal(attn_subbyte_get(ATTNRUN_F6E2M3, packed, 3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_names_and_bits),
        cmocka_unit_test(test_f16_round_trips_every_code),
        cmocka_unit_test(test_f16_rounds_to_nearest_even),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_small_floats_round_trip_every_code),
        cmocka_unit_test(test_small_floats_have_their_largest_values),
        cmocka_unit_test(test_e8m0_rounds_as_asked),
        cmocka_unit_test(test_e8m0_rounds_subnormal_floats),
        cmocka_unit_test(test_small_floats_without_nan),
        cmocka_unit_test(test_subbyte_elements_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

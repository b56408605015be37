/* test_maps.c - maps from a caller: what is missing, or does not fit, is refused before
 * any operator reads it. */
#include "check.h"

#include <string.h>

#include "maps.h"

struct sample {
    int64_t keys[3];
    float values[3];
    attnrun_tensor columns[2], map;
};

static void make_sample(struct sample *s)
{
    const int64_t dims[1] = { 3 };
    *s = (struct sample){ .keys = { 4, -1, 9 }, .values = { 1, 2, 3 } };
    attnrun_tensor_make(ATTNRUN_I64, 1, dims, s->keys, &s->columns[0]);
    attnrun_tensor_make(ATTNRUN_F32, 1, dims, s->values, &s->columns[1]);
    s->map = (attnrun_tensor){ .kind = ATTNRUN_MAP,
                               .dtype = ATTNRUN_F32,
                               .rank = 1,
                               .dims = { 3 },
                               .data = s->columns };
}

static void test_map_that_fits_is_taken(void **state)
{
    struct sample s;
    (void)state;
    make_sample(&s);
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_I64, "x"), ATTNRUN_OK);
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_UNDEFINED, "x"), ATTNRUN_OK);
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_STRING, "x"), ATTNRUN_E_DTYPE);
    assert_int_equal(attn_maps_key_dtype(&s.map), ATTNRUN_I64);
}

static void test_malformed_maps_are_refused(void **state)
{
    struct sample s;
    (void)state;
    for (int wrong = 0; wrong < 13; wrong++) {
        make_sample(&s);
        attnrun_tensor *key = &s.columns[0], *value = &s.columns[1];
        int32_t *const numbers[] = { &s.map.rank,   &s.map.kind,  &s.map.dtype,
                                     &key->dtype,   &key->kind,   &key->rank,
                                     &value->dtype, &value->rank, &value->kind };
        int64_t *const dims[] = { &s.map.dims[0], &key->dims[0], &value->strides[0] };
        if (wrong < 9)
            *numbers[wrong] += 7;
        else if (wrong < 12)
            *dims[wrong - 9] += 1;
        else
            key->data = NULL;
        assert_int_not_equal(attn_maps_check(&s.map, ATTNRUN_UNDEFINED, "x"), ATTNRUN_OK);
    }
    make_sample(&s);
    s.map.data = NULL;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_I64, "x"), ATTNRUN_E_USAGE);
    make_sample(&s);
    s.map.dims[0] = s.columns[0].dims[0] = s.columns[1].dims[0] = -1;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_I64, "x"), ATTNRUN_E_USAGE);
    make_sample(&s); /* values of less than a byte have no addresses */
    s.map.dtype = s.columns[1].dtype = ATTNRUN_I4;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_I64, "x"), ATTNRUN_E_USAGE);
    make_sample(&s);
    s.columns[1].strides[0] *= 2;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_I64, "x"), ATTNRUN_E_USAGE);
    make_sample(&s);
    s.columns[1].data = NULL;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_I64, "x"), ATTNRUN_E_USAGE);
}

static void test_strings_of_maps_are_looked_at(void **state)
{
    struct sample s;
    attnrun_string words[3] = { { "a", 1 }, { NULL, 0 }, { "bc", 2 } };
    (void)state;
    make_sample(&s);
    s.columns[0].dtype = ATTNRUN_STRING;
    s.columns[0].strides[0] = (int64_t)sizeof words[0];
    s.columns[0].data = words;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_STRING, "x"), ATTNRUN_OK);
    words[1].n = 1;
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_STRING, "x"), ATTNRUN_E_USAGE);
    words[1] = (attnrun_string){ "a", -1 };
    assert_int_equal(attn_maps_check(&s.map, ATTNRUN_STRING, "x"), ATTNRUN_E_USAGE);
}

static void test_maps_of_a_sequence_are_of_one_type(void **state)
{
    struct sample s[2];
    (void)state;
    make_sample(&s[0]);
    make_sample(&s[1]);
    attnrun_tensor maps[2] = { s[0].map, s[1].map };
    attnrun_tensor list = { .kind = ATTNRUN_MAP_SEQUENCE,
                            .dtype = ATTNRUN_F32,
                            .rank = 1,
                            .dims = { 2 },
                            .data = maps };
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_OK);
    maps[1].dtype = ATTNRUN_F64;
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_E_USAGE);
    maps[1] = s[1].map;
    s[1].columns[0].dtype = ATTNRUN_STRING;
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_E_DTYPE);
    assert_int_equal(attn_maps_key_dtype(&list), ATTNRUN_I64);
    list.rank = 2;
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_E_USAGE);
    list.rank = 1;
    list.dims[0] = -1;
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_E_USAGE);
    list.dims[0] = 2;
    maps[0].data = NULL;
    assert_int_equal(attn_maps_key_dtype(&list), ATTNRUN_UNDEFINED);
    list.data = NULL;
    assert_int_equal(attn_maps_key_dtype(&list), ATTNRUN_UNDEFINED);
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_E_USAGE);
    list.dims[0] = 0;
    assert_int_equal(attn_maps_check(&list, ATTNRUN_UNDEFINED, "x"), ATTNRUN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_that_fits_is_taken),
        cmocka_unit_test(test_malformed_maps_are_refused),
        cmocka_unit_test(test_strings_of_maps_are_looked_at),
        cmocka_unit_test(test_maps_of_a_sequence_are_of_one_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_results.c - when two ways of running a model agree: results.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "results.h"

static attnrun_tensor vector(float *x, int64_t n)
{
    attnrun_tensor t;
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 1, &n, x, &t), ATTNRUN_OK);
    return t;
}

/* Whether x and y, of n elements, agree as the outputs of two ways. */
static bool agree(float *x, float *y, int64_t n, struct fuzz_room room)
{
    struct fuzz_results a = { .n = 0 }, b = a;
    char why[256] = "";
    const attnrun_tensor left = vector(x, n), right = vector(y, n);
    fuzz_results_add(&a, &left);
    fuzz_results_add(&b, &right);
    const bool same = fuzz_results_agree(&a, &b, room, why, sizeof why);
    assert_int_equal(same, why[0] == 0);
    fuzz_results_free(&a);
    fuzz_results_free(&b);
    return same;
}

static void test_results_differ_by_rounding_only(void **state)
{
    (void)state;
    const struct fuzz_room none = { NULL, false, false };
    float x[] = { 1, -2, NAN }, near[] = { 1.0001f, -2, NAN },
          far[] = { 1.001f, -2, NAN };
    assert_true(agree(x, near, 3, none));
    assert_false(agree(x, far, 3, none));
    /* Where numbers on the way are rounded to 8 bits, by some of those. */
    float wrong[] = { 1.7f, -2, NAN };
    assert_true(agree(x, far, 3, (struct fuzz_room){ NULL, false, true }));
    assert_false(agree(x, wrong, 3, (struct fuzz_room){ NULL, false, true }));
}

/* One way adds -inf and a product of two numbers that overflows, the other rounds it first. */
static void test_nan_is_no_number_without_room(void **state)
{
    (void)state;
    float x[] = { 1, NAN }, y[] = { 1, -1e6f };
    assert_false(agree(x, y, 2, (struct fuzz_room){ NULL, false, false }));
    assert_true(agree(x, y, 2, (struct fuzz_room){ NULL, true, false }));
    float wrong[] = { 2, -1e6f };
    assert_false(agree(x, wrong, 2, (struct fuzz_room){ NULL, true, false }));
}

/* Rows that lie apart become rows one behind the other, each number one unit away. */
static void test_nudged_rows_become_dense(void **state)
{
    (void)state;
    float x[] = { 1, 2, -9, -9, 3, 0, -9, -9 }, room[4];
    const int64_t dims[] = { 2, 2 };
    const float rows[] = { 1, 2, 3, 0 };
    attnrun_tensor t;
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 2, dims, x, &t), ATTNRUN_OK);
    t.strides[0] *= 2;
    assert_false(fuzz_is_dense(&t));
    fuzz_nudge(1, &t, room);
    assert_true(fuzz_is_dense(&t));
    assert_ptr_equal(t.data, room);
    for (int i = 0; i < 4; i++)
        assert_true(room[i] == nextafterf(rows[i], -HUGE_VALF) ||
                    room[i] == nextafterf(rows[i], HUGE_VALF));
}

static void test_large_numbers_are_found(void **state)
{
    (void)state;
    float small[] = { 1e12f, INFINITY, NAN, -INFINITY }, large[] = { 0, -1e30f };
    attnrun_tensor fed[] = { vector(small, 4), vector(large, 2) };
    assert_false(fuzz_are_large(fed, 1));
    assert_true(fuzz_are_large(fed, 2));
    assert_true(fuzz_are_wild(fed, 1));
    float tame[] = { 1, -2e11f };
    fed[0] = vector(tame, 2);
    assert_false(fuzz_are_wild(fed, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_differ_by_rounding_only),
        cmocka_unit_test(test_nan_is_no_number_without_room),
        cmocka_unit_test(test_nudged_rows_become_dense),
        cmocka_unit_test(test_large_numbers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
    const struct fuzz_room none = { .near = NULL };
    float x[] = { 1, -2, NAN }, near[] = { 1.0001f, -2, NAN },
          far[] = { 1.001f, -2, NAN };
    assert_true(agree(x, near, 3, none));
    assert_false(agree(x, far, 3, none));
    /* Where scores are of 1e4, by some of the weights' errors. */
    float wrong[] = { 1.1f, -2, NAN };
    assert_true(agree(x, far, 3, (struct fuzz_room){ .tall = true }));
    assert_false(agree(x, wrong, 3, (struct fuzz_room){ .tall = true }));
}

/* Where numbers on the way are rounded to 8 bits, by four times what such a move of the inputs
 * does; a third of it where none of them moves. */
static void test_results_differ_by_codes(void **state)
{
    (void)state;
    float x[] = { 1, -2, NAN }, moved[] = { 1.005f, -2, NAN }, far[] = { 1.02f, -2, NAN },
          wrong[] = { 1.03f, -2, NAN }, most[] = { 1.7f, -2, NAN };
    struct fuzz_results near = { .n = 0 }, still = near;
    const attnrun_tensor of_moved = vector(moved, 3), of_still = vector(x, 3);
    fuzz_results_add(&near, &of_moved);
    fuzz_results_add(&still, &of_still);
    assert_false(agree(x, far, 3, (struct fuzz_room){ .rounds = true }));
    assert_true(agree(x, far, 3, (struct fuzz_room){ .near = &near, .rounds = true }));
    assert_false(agree(x, wrong, 3, (struct fuzz_room){ .near = &near, .rounds = true }));
    assert_true(agree(x, wrong, 3, (struct fuzz_room){ .near = &near }));
    assert_true(agree(x, wrong, 3, (struct fuzz_room){ .near = &still, .rounds = true }));
    assert_false(agree(x, most, 3, (struct fuzz_room){ .near = &still, .rounds = true }));
    fuzz_results_free(&near);
    fuzz_results_free(&still);
}

/* Up to half a code of each row's largest number, and all rows of it. */
static void test_nudged_codes_are_of_their_rows(void **state)
{
    (void)state;
    float x[] = { 127, 1, 0, 3, -0.254f, 0, NAN, INFINITY }, room[8];
    const int64_t dims[] = { 2, 4 };
    attnrun_tensor t;
    assert_int_equal(attnrun_tensor_make(ATTNRUN_F32, 2, dims, x, &t), ATTNRUN_OK);
    fuzz_nudge(1, &t, room, true);
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(room[i] - x[i]) <= (i < 4 ? 0.5001f : 0.00101f));
    assert_true(room[1] != 1 || room[2] != 0 || room[3] != 3);
    assert_true(isnan(room[6]) && isinf(room[7]));
}

static void test_empty_results_have_no_element(void **state)
{
    (void)state;
    float x[] = { 1 };
    struct fuzz_results results = { .n = 0 };
    const attnrun_tensor none = vector(x, 0), one = vector(x, 1);
    assert_false(fuzz_results_are_empty(&results));
    fuzz_results_add(&results, &none);
    assert_true(fuzz_results_are_empty(&results));
    fuzz_results_add(&results, &one);
    assert_false(fuzz_results_are_empty(&results));
    fuzz_results_free(&results);
}

/* One way adds -inf and a product of two numbers that overflows, the other rounds it first. */
static void test_nan_is_no_number_without_room(void **state)
{
    (void)state;
    float x[] = { 1, NAN }, y[] = { 1, -1e6f };
    assert_false(agree(x, y, 2, (struct fuzz_room){ .near = NULL }));
    assert_true(agree(x, y, 2, (struct fuzz_room){ .nan_of_nothing = true }));
    float infinite[] = { 1, HUGE_VALF };
    assert_false(agree(x, infinite, 2, (struct fuzz_room){ .near = NULL }));
    assert_true(agree(x, infinite, 2, (struct fuzz_room){ .in_between = true }));
    assert_false(agree(x, y, 2, (struct fuzz_room){ .in_between = true }));
    float wrong[] = { 2, -1e6f };
    assert_false(agree(x, wrong, 2, (struct fuzz_room){ .nan_of_nothing = true }));
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
    fuzz_nudge(1, &t, room, false);
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
        cmocka_unit_test(test_results_differ_by_codes),
        cmocka_unit_test(test_nudged_codes_are_of_their_rows),
        cmocka_unit_test(test_empty_results_have_no_element),
        cmocka_unit_test(test_nan_is_no_number_without_room),
        cmocka_unit_test(test_nudged_rows_become_dense),
        cmocka_unit_test(test_large_numbers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_dim.c - identities of dimensions, text, limits; and random expressions against
 * int64 arithmetic. */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dim_eval.h"

struct fixture {
    struct attn_memory *memory;
    struct attn_pool pool;
    struct attn_dims *dims;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.memory = attn_memory_create(NULL, UINT64_C(1) << 30);
    attn_pool_init(&f.pool, f.memory, ATTN_MEM_MODEL);
    f.dims = attn_dims_create(&f.pool);
    *state = &f;
    return f.dims == NULL;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    attn_pool_free(&f->pool);
    attn_memory_destroy(f->memory);
    return 0;
}

static struct attn_dims *dims_of(void **state)
{
    return ((struct fixture *)*state)->dims;
}

static void assert_text(const struct attn_dims *dims, attnrun_dim dim,
                        const char *expected)
{
    char text[200];
    assert_string_equal(attn_dim_format(dims, dim, text, sizeof text), expected);
}

static void assert_same(struct attn_dims *dims, const char *a, const char *b)
{
    attnrun_dim x = attn_dim_parse(dims, a), y = attn_dim_parse(dims, b);
    char xt[200], yt[200];
    if (!dim_equal(x, y))
        fail_msg("%s is %s, %s is %s", a, attn_dim_format(dims, x, xt, sizeof xt), b,
                 attn_dim_format(dims, y, yt, sizeof yt));
}

static void test_equal_expressions_have_equal_handles(void **state)
{
    static const char *const pairs[][2] = {
        { "S+1-S", "1" },
        { "(S+1)*B", "S*B+B" },
        { "S*B", "B*S" },
        { "S*(B*T)", "(T*S)*B" },
        { "2*(S+T)-T", "2*S+T" },
        { "S*B*4//B", "4*S" },
        { "(S+1)*(B+T)//(B+T)", "S+1" },
        { "(2*S+4)//2", "S+2" },
        { "(2*S+3)//2", "S+1" },
        { "(S+5)//2", "(S+1)//2+2" },
        { "S//(-1)", "-S" },
        { "max(S,S+1)", "S+1" },
        { "min(S,S+1)", "S" },
        { "max(S,0)", "S" },
        { "min(S,4611686018427387904)", "S" },
        { "max(S,T)", "max(T,S)" },
        { "floor(S/2)", "S//2" },
        { "(6*S)//48", "S//8" },
        { "(6*S+4*T+3)//8", "(3*S+2*T+1)//4" },
        { " N ", "N" },
        { "-(S - T)", "T - S" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_same(dims_of(state), pairs[i][0], pairs[i][1]);
}

static void test_broadcast_follows_numpy(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim s = attn_dim_symbol(dims, "S"), t = attn_dim_symbol(dims, "T");
    const attnrun_dim one = dim_of(1), four = dim_of(4),
                      unknown = { .expr = ATTN_DIM_UNKNOWN };
    assert_true(dim_equal(attn_dim_combine(dims, DIM_BROADCAST, one, s), s));
    assert_true(dim_equal(attn_dim_combine(dims, DIM_BROADCAST, s, s), s));
    assert_true(dim_is(attn_dim_combine(dims, DIM_BROADCAST, s, four), 4));
    assert_true(dim_is(attn_dim_combine(dims, DIM_BROADCAST, unknown, four), 4));
    assert_true(dim_is(attn_dim_combine(dims, DIM_BROADCAST, one, four), 4));
    assert_true(dim_is(attn_dim_combine(NULL, DIM_BROADCAST, s, four), 4));
    assert_int_equal(attn_dim_combine(dims, DIM_BROADCAST, dim_of(3), four).expr,
                     ATTN_DIM_INVALID);
    attnrun_dim both = attn_dim_combine(dims, DIM_BROADCAST, s, t);
    assert_true(dim_equal(both, attn_dim_combine(dims, DIM_BROADCAST, t, s)));
    assert_true(dim_equal(both, attn_dim_combine(dims, DIM_BROADCAST, both, s)));
}

static void test_broadcast_with_a_part_is_the_whole(void **state)
{
    static const struct {
        const char *part;
        bool whole;
    } rows[] = {
        { "min(S,4)", true },
        { "512-max(0,512-S)", true },
        { "1-max(1-S,0)", true },
        { "512-max(0,512-T)", false },
        { "512-max(0,511-S)", false },
        { "512-2*max(0,512-S)", false },
        { "512+max(0,512-S)", false },
        { "min(S,T)", false }, /* no element where S is 1 */
        { "min(S,T+1)", true },
        { "min(S,0)", false },
        { "1-max(1,1-S)", false },
        { "4-max(T,4-S)", false },
    };
    struct attn_dims *dims = dims_of(state);
    const attnrun_dim s = attn_dim_symbol(dims, "S");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const attnrun_dim part = attn_dim_parse(dims, rows[i].part);
        assert_int_equal(dim_equal(s, attn_dim_combine(dims, DIM_BROADCAST, s, part)),
                         rows[i].whole);
        assert_int_equal(dim_equal(s, attn_dim_combine(dims, DIM_BROADCAST, part, s)),
                         rows[i].whole);
    }
    const attnrun_dim blocks = attn_dim_parse(dims, "floor(S/8)"),
                      cut = attn_dim_parse(dims, "min(S,8*floor(S/8))");
    assert_false(dim_equal(s, attn_dim_combine(dims, DIM_BROADCAST, s, cut)));
    attn_dims_give(dims, attn_dims_plain_of(dims, s));
    const attnrun_dim t = attn_dim_trusted(dims, attn_dim_symbol(dims, "U"), NULL),
                      some = attn_dim_parse(dims, "floor(U/8)"),
                      kept = attn_dim_parse(dims, "min(U,8*floor(U/8))");
    assert_false(attn_dims_assume_nonzero(dims, blocks, s)); /* made before S was given */
    assert_false(dim_equal(t, attn_dim_combine(dims, DIM_BROADCAST, t, kept)));
    assert_true(
        attn_dims_assume_nonzero(dims, some, t)); /* runs check that there is a block */
    assert_true(dim_equal(t, attn_dim_combine(dims, DIM_BROADCAST, t, kept)));
}

static void test_div_exact_simplifies(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim product = attn_dim_parse(dims, "S*B*4"), b = attn_dim_symbol(dims, "B");
    assert_text(dims, attn_dim_div_exact(dims, product, dim_of(4)), "S*B");
    assert_text(dims, attn_dim_div_exact(dims, product, b), "4*S");
    assert_text(dims, attn_dim_div_exact(dims, product, product), "1");
    assert_text(dims, attn_dim_div_exact(dims, dim_of(12), dim_of(4)), "3");
    assert_text(dims, attn_dim_div_exact(dims, dim_of(12), dim_of(5)), "overflow");
    assert_text(dims, attn_dim_div_exact(dims, product, dim_of(0)), "overflow");
}

static void test_join_is_the_whole_of_two_slices(void **state)
{
    static const char *const rows[][3] = {
        { "S-2", "min(2,S)", "S" },
        { "min(S,2)", "S-2", "S" },
        { "(S)-B", "min(S,B)", "S" },
        { "B", "min((S)-B,S)", "S" },
        { "S-2", "min(3,S)", "S+min(3,S)-2" },
        { "S-2", "2*min(2,S)", "S+2*min(2,S)-2" },
        { "S-2", "max(2,S)", "S+max(2,S)-2" },
        { "S", "B", "S+B" },
        { "S-2", "min(2,S)+1", "S+min(2,S)-1" },
        { "3", "4", "7" },
    };
    struct attn_dims *dims = dims_of(state);
    const attnrun_dim unknown = { .expr = ATTN_DIM_UNKNOWN },
                      s = attn_dim_symbol(dims, "S");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const attnrun_dim sum = attn_dim_join(dims, attn_dim_parse(dims, rows[i][0]),
                                              attn_dim_parse(dims, rows[i][1]));
        char text[200];
        if (!dim_equal(sum, attn_dim_parse(dims, rows[i][2])))
            fail_msg("%s and %s are %s, expected %s", rows[i][0], rows[i][1],
                     attn_dim_format(dims, sum, text, sizeof text), rows[i][2]);
    }
    assert_int_equal(attn_dim_join(dims, unknown, s).expr, ATTN_DIM_UNKNOWN);
    assert_int_equal(attn_dim_join(NULL, s, s).expr, ATTN_DIM_UNKNOWN);
}

static void test_overflow_and_unknown(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim s = attn_dim_symbol(dims, "S"), big = dim_of(INT64_MAX);
    const attnrun_dim unknown = { .expr = ATTN_DIM_UNKNOWN };
    assert_int_equal(attn_dim_combine(dims, DIM_MUL, big, dim_of(2)).expr,
                     ATTN_DIM_INVALID);
    assert_int_equal(attn_dim_combine(dims, DIM_ADD, big, dim_of(1)).expr,
                     ATTN_DIM_INVALID);
    assert_int_equal(attn_dim_combine(dims, DIM_DIV, dim_of(INT64_MIN), dim_of(-1)).expr,
                     ATTN_DIM_INVALID);
    assert_int_equal(attn_dim_combine(dims, DIM_DIV, s, dim_of(0)).expr,
                     ATTN_DIM_INVALID);
    attnrun_dim max = attn_dim_combine(dims, DIM_MUL, s, big);
    assert_int_equal(attn_dim_combine(dims, DIM_MUL, max, dim_of(2)).expr,
                     ATTN_DIM_INVALID);
    assert_int_equal(attn_dim_combine(dims, DIM_ADD, max, max).expr, ATTN_DIM_INVALID);
    assert_int_equal(attn_dim_combine(NULL, DIM_ADD, s, dim_of(1)).expr,
                     ATTN_DIM_UNKNOWN);
    assert_int_equal(attn_dim_combine(dims, DIM_ADD, unknown, s).expr, ATTN_DIM_UNKNOWN);
    assert_true(dim_is(attn_dim_combine(dims, DIM_MUL, unknown, dim_of(0)), 0));
    assert_false(dim_equal(unknown, unknown));
    assert_true(dim_is(attn_dim_combine(NULL, DIM_DIV, dim_of(-7), dim_of(2)), -4));
    const attnrun_dim shape[3] = { big, big, dim_of(0) };
    assert_true(dim_is(attn_dims_product(dims, shape, 0, 3), 0));
    assert_int_equal(attn_dims_product(dims, shape, 0, 2).expr, ATTN_DIM_INVALID);
    assert_true(dim_is(attn_dims_product(dims, shape, 1, 1), 1));
}

static attnrun_dim combined(struct attn_dims *dims, enum attn_dim_op op, const char *a,
                            const char *b)
{
    return attn_dim_combine(dims, op, attn_dim_parse(dims, a), attn_dim_parse(dims, b));
}

/* Numbers that overflow make a dim that cannot be; those that only take too many terms or
 * factors one that is not known. */
static void test_sums_and_products_at_the_edge(void **state)
{
    struct attn_dims *dims = dims_of(state);
    const attnrun_dim big = dim_of(INT64_MAX), least = dim_of(INT64_MIN),
                      invalid = { .expr = ATTN_DIM_INVALID };
    attnrun_dim sum = dim_of(0), product = dim_of(1), s = attn_dim_parse(dims, "S");
    char name[16];
    const attnrun_dim more = attn_dim_combine(dims, DIM_ADD, s, big),
                      many = attn_dim_combine(dims, DIM_MUL, s, big),
                      low = attn_dim_combine(dims, DIM_ADD, s, least);
    const attnrun_dim too_much[] = {
        attn_dim_combine(dims, DIM_ADD, more, more),
        attn_dim_combine(dims, DIM_MUL, more, attn_dim_parse(dims, "S+2")),
        attn_dim_combine(dims, DIM_MUL, attn_dim_parse(dims, "S+2"), more),
        attn_dim_combine(dims, DIM_MUL, many, attn_dim_parse(dims, "3*T+1")),
        attn_dim_combine(dims, DIM_MUL, many, attn_dim_parse(dims, "T+3")),
        attn_dim_combine(dims, DIM_DIV, s, least),
        attn_dim_combine(dims, DIM_DIV, low, dim_of(-1)),
    };
    for (size_t k = 0; k < sizeof too_much / sizeof *too_much; k++)
        assert_int_equal(too_much[k].expr, ATTN_DIM_INVALID);
    for (enum attn_dim_op op = DIM_ADD; op <= DIM_BROADCAST; op++) {
        assert_int_equal(attn_dim_combine(dims, op, s, invalid).expr, ATTN_DIM_INVALID);
        assert_int_equal(attn_dim_combine(dims, op, invalid, s).expr, ATTN_DIM_INVALID);
    }
    for (int i = 0; i <= DIM_MAX_TERMS; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_true(sum.expr >= 0);
        sum = attn_dim_combine(dims, DIM_ADD, sum, attn_dim_parse(dims, name));
    }
    assert_int_equal(sum.expr, ATTN_DIM_UNKNOWN);
    for (int i = 0; i <= DIM_MAX_FACTORS; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_true(product.expr >= 0);
        product = attn_dim_combine(dims, DIM_MUL, product, attn_dim_parse(dims, name));
    }
    assert_int_equal(product.expr, ATTN_DIM_UNKNOWN);
}

/* A symbol that all terms of both have goes out; one that a term lacks does not. */
static void test_quotients_cancel_common_symbols(void **state)
{
    struct attn_dims *dims = dims_of(state);
    static const struct {
        const char *a, *b, *quotient;
        bool equal;
    } rows[] = {
        { "S*T", "8*S", "floor(T/8)", true },
        { "S*S*T", "4*S*S", "floor(T/4)", true },
        { "2*S*T+3*S*T*U", "8*S*T", "floor((3*U+2)/8)", true },
        { "S*T+1", "8*S", "floor(T/8)", false },
        { "S*T+U", "8*S", "floor(T/8)", false },
        { "S*T", "8*S+1", "floor(T/8)", false },
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        assert_int_equal(dim_equal(combined(dims, DIM_DIV, rows[k].a, rows[k].b),
                                   attn_dim_parse(dims, rows[k].quotient)),
                         rows[k].equal);
}

static void test_quotients_at_the_edge(void **state)
{
    struct attn_dims *dims = dims_of(state);
    assert_true(
        dim_equal(combined(dims, DIM_DIV, "S*T+2*T", "S+2"), attn_dim_parse(dims, "T")));
    assert_false(dim_equal(combined(dims, DIM_DIV, "S*T+2*T+1", "S+2"),
                           attn_dim_parse(dims, "T")));
    assert_true(dim_equal(
        attn_dim_combine(dims, DIM_DIV, attn_dim_parse(dims, "4*S"), dim_of(-2)),
        attn_dim_combine(dims, DIM_MUL, attn_dim_parse(dims, "S"), dim_of(-2))));
    static const struct {
        int64_t a, b, quotient; /* 0: it cannot be */
    } rows[] = { { 8, 2, 4 }, { 7, 2, 0 },   { 7, 7, 1 },  { 0, 0, 0 },
                 { 7, 0, 0 }, { 8, -2, -4 }, { 7, -2, -4 } };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const attnrun_dim found =
            attn_dim_div_exact(dims, dim_of(rows[k].a), dim_of(rows[k].b));
        if (rows[k].quotient != 0)
            assert_true(dim_is(found, rows[k].quotient));
        else
            assert_int_equal(found.expr, ATTN_DIM_INVALID);
    }
}

static void test_text_goes_both_ways(void **state)
{
    static const char *const rows[][2] = {
        { "2*S+1", "2*S+1" },
        { "past + seq", "past+seq" },
        { "batch-size", "batch-size" }, /* a name: two letters around the '-' */
        { "S-1", "S-1" },
        { "batch size", "batch size" },
        { "floor(S/2 - 1/2) + 1", "floor(S/2 - 1/2) + 1" }, /* not ours to cut: a name */
        { "floor((H+1)/2)", "floor((H+1)/2)" },
        { "unk__12", "unk__12" },
        { "x.1:0", "x.1:0" },
        { "3x", "3x" },
        { "((", "((" },
        { "S)", "S)" },
        { ")", ")" },
        { "S,T", "S,T" },
        { "min(S)", "min(S)" },
        { "min(S,T,4)", "min(S,T,4)" },
        { "floor(S,T)", "floor(S,T)" },
        { "floor()", "floor()" },
        { "S-", "S-" },
        { "S/2*T", "S/2*T" }, /* a ratio that is never cut */
        { "-(S/2)", "-(S/2)" },
        { "S $ T", "S $ T" },
        { "((((((((((((((((((((((((1))))))))))))))))))))))))", "1" }, /* 24 deep */
        { "(((((((((((((((((((((((((1)))))))))))))))))))))))))",
          "(((((((((((((((((((((((((1)))))))))))))))))))))))))" },
        { "S+", "S+" },
        { "\xc3\xa9", "\xc3\xa9" },
        { "128", "128" },
        { "99999999999999999999", "99999999999999999999" },
    };
    struct attn_dims *dims = dims_of(state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_text(dims, attn_dim_parse(dims, rows[i][0]), rows[i][1]);
    assert_false(dim_equal(attn_dim_parse(dims, "?"), attn_dim_parse(dims, "?")));
    assert_true(attn_dim_parse(dims, "-1").expr > 0); /* a size of its own */
    assert_int_equal(attn_dim_parse(NULL, "S").expr, ATTN_DIM_UNKNOWN);
}

static void test_fresh_symbols_take_no_name(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim u1 = attn_dim_symbol(dims, "u1"), fresh = attn_dim_symbol(dims, NULL);
    assert_false(dim_equal(u1, fresh));
    assert_text(dims, fresh, "u2");
    assert_int_equal(attn_dim_symbol(NULL, "S").expr, ATTN_DIM_UNKNOWN);
}

static void test_types_are_printed(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_type type = { .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_F32, .rank = 3 };
    type.dims[0] = attn_dim_symbol(dims, "B");
    type.dims[1] = dim_of(128);
    type.dims[2] = (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    assert_string_equal(attn_type_format(dims, &type), "f32[B,128,?]");
    type.rank = -1;
    type.kind = ATTNRUN_SEQUENCE;
    assert_string_equal(attn_type_format(dims, &type), "seq(f32[...])");
    type.kind = ATTNRUN_ABSENT;
    assert_string_equal(attn_type_format(dims, &type), "nothing");
    attnrun_tensor tensor = {
        .kind = ATTNRUN_TENSOR, .dtype = ATTNRUN_I64, .rank = 2, .dims = { 2, 511 }
    };
    assert_string_equal(attn_tensor_format(&tensor), "i64[2,511]");
}

static void test_symbols_are_numbered(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim s = attn_dim_symbol(dims, "S"), sum = attn_dim_parse(dims, "2*S+T*S+3");
    int32_t n = dims_n_symbols(dims);
    int64_t values[16], value;
    assert_in_range(n, 3, 16);
    assert_string_equal(dims_symbol_name(dims, dim_symbol_of(dims, s)), "S");
    assert_int_equal(dim_symbol_of(dims, sum), -1);
    assert_int_equal(dim_symbol_of(dims, dim_of(3)), -1);
    for (int32_t i = 0; i < n; i++)
        values[i] = -1;
    assert_false(dim_eval(dims, sum, values, &value));
    values[dim_symbol_of(dims, s)] = 5;
    assert_false(dim_eval(dims, sum, values, &value));
    values[dim_symbol_of(dims, attn_dim_symbol(dims, "T"))] = 7;
    assert_true(dim_eval(dims, sum, values, &value));
    assert_int_equal(value, 2 * 5 + 7 * 5 + 3);
    assert_true(dim_eval(NULL, dim_of(9), NULL, &value));
    assert_int_equal(value, 9);
}

/* A full table gives UNKNOWN, and keeps answering for what it has. */
static void test_table_is_bounded(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim s = attn_dim_symbol(dims, "S"), last = s;
    int64_t n = 0;
    for (; n < 100000 && last.expr > 0; n++)
        last = attn_dim_combine(dims, DIM_ADD, s, dim_of(n + 1));
    assert_int_equal(last.expr, ATTN_DIM_UNKNOWN);
    assert_in_range(n, 1000, 70000);
    assert_text(dims, attn_dim_combine(dims, DIM_ADD, s, dim_of(1)), "S+1");
}

/* Deep nesting: no recursion, and evaluation ends. */
static void test_deep_expressions_evaluate(void **state)
{
    struct attn_dims *dims = dims_of(state);
    attnrun_dim s = attn_dim_symbol(dims, "S"), t = attn_dim_symbol(dims, "T"), d = s;
    static int64_t values[16384];
    int64_t value, expected = 1000;
    for (int i = 0; i < 100; i++) {
        d = attn_dim_combine(dims, DIM_DIV, d, dim_of(2));
        d = attn_dim_combine(dims, DIM_ADD, attn_dim_combine(dims, DIM_MIN, d, t), d);
        int64_t half = expected / 2;
        expected = (half < 10 ? half : 10) + half;
    }
    assert_true(d.expr > 0);
    memset(values, 0xff, sizeof values);
    values[0] = 1000;
    values[1] = 10;
    assert_true(dim_eval(dims, d, values, &value));
    assert_int_equal(value, expected);
    for (int i = 0; i < 3000 && d.expr > 0; i++) /* much deeper: refused, not crashed */
        d = attn_dim_combine(dims, DIM_ADD, attn_dim_combine(dims, DIM_DIV, d, dim_of(3)),
                             t);
    assert_in_range(dims_n_symbols(dims), 3000, 16384);
    assert_false(dim_eval(dims, d, values, &value));
}

/* ---- random expressions ---- */
enum { N_SYMBOLS = 4, N_NODES = 24 };

/* The same operation on numbers; false where it has no value. */
static bool compute(enum attn_dim_op op, int64_t a, int64_t b, int64_t *result)
{
    switch (op) {
    case DIM_ADD:
        return ck_add(a, b, result);
    case DIM_SUB:
        return ck_sub(a, b, result);
    case DIM_MUL:
        return ck_mul(a, b, result);
    case DIM_DIV:
        if (b == 0)
            return false;
        *result = a / b - (a % b != 0 && (a < 0) != (b < 0));
        return true;
    case DIM_MIN:
        *result = a < b ? a : b;
        return true;
    case DIM_MAX:
        *result = a > b ? a : b;
        return true;
    default:
        *result = a == 1 ? b : a;
        return a == b || a == 1 || b == 1;
    }
}

/* Grows expressions of expressions and compares each value; returns how many it compared.
 */
static int check_random(struct attn_dims *dims, uint64_t *seed)
{
    attnrun_dim nodes[N_NODES];
    int64_t numbers[N_NODES], *values, value;
    int n = 0, compared = 0;
    for (; n < N_SYMBOLS; n++) {
        nodes[n] = attn_dim_symbol(dims, (const char *[]){ "S", "B", "H", "T" }[n]);
        numbers[n] = random_below(seed, 12);
    }
    for (; n < N_SYMBOLS + 4; n++) {
        numbers[n] = random_below(seed, 9) - 3;
        nodes[n] = dim_of(numbers[n]);
    }
    while (n < N_NODES) {
        enum attn_dim_op op = (enum attn_dim_op)random_below(seed, 7);
        int a = (int)random_below(seed, n), b = (int)random_below(seed, n);
        if (!compute(op, numbers[a], numbers[b], &numbers[n]))
            continue;
        nodes[n] = attn_dim_combine(dims, op, nodes[a], nodes[b]);
        if (nodes[n].expr >= 0)
            n++;
        else /* too big is allowed, wrong is not */
            return compared;
    }
    values = malloc((size_t)dims_n_symbols(dims) * sizeof *values);
    for (int32_t i = 0; i < dims_n_symbols(dims); i++)
        values[i] = -1;
    for (int i = 0; i < N_SYMBOLS; i++)
        values[dim_symbol_of(dims, nodes[i])] = numbers[i];
    for (int i = 0; i < n; i++, compared++)
        if (!dim_eval(dims, nodes[i], values, &value) || value != numbers[i]) {
            char text[300];
            print_message("%s is %" PRId64 ", expected %" PRId64 "\n",
                          attn_dim_format(dims, nodes[i], text, sizeof text), value,
                          numbers[i]);
            compared = -1;
            break;
        }
    free(values);
    return compared;
}

static void test_random_expressions_equal_arithmetic(void **state)
{
    uint64_t seed = 20;
    int64_t total = 0;
    for (int turn = 0; turn < 4000; turn++) {
        uint64_t before = seed;
        if (turn % 100 == 0) { /* a fresh table now and then */
            tear_down(state);
            assert_int_equal(set_up(state), 0);
        }
        int compared = check_random(dims_of(state), &seed);
        if (compared < 0)
            fail_msg("seed %" PRIu64, before);
        total += compared;
    }
    assert_true(total > 40000);
}

/* Text that a model could hold: never a crash, and a handle or a refusal. */
static void test_random_text_parses_or_names(void **state)
{
    static const char letters[] = "SB12+-*/(), .floormin?\xc3";
    struct attn_dims *dims = dims_of(state);
    uint64_t seed = 5;
    for (int turn = 0; turn < 20000; turn++) {
        char text[40], printed[200];
        int n = (int)random_below(&seed, sizeof text);
        for (int i = 0; i < n; i++)
            text[i] = letters[random_below(&seed, sizeof letters - 1)];
        text[n < (int)sizeof text ? n : 0] = 0;
        attnrun_dim dim = attn_dim_parse(dims, text);
        attn_dim_format(dims, dim, printed, sizeof printed);
        assert_true(dim.expr != ATTN_DIM_INVALID);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_equal_expressions_have_equal_handles),
        TEST(test_broadcast_follows_numpy),
        TEST(test_broadcast_with_a_part_is_the_whole),
        TEST(test_div_exact_simplifies),
        TEST(test_join_is_the_whole_of_two_slices),
        TEST(test_overflow_and_unknown),
        TEST(test_sums_and_products_at_the_edge),
        TEST(test_quotients_cancel_common_symbols),
        TEST(test_quotients_at_the_edge),
        TEST(test_text_goes_both_ways),
        TEST(test_fresh_symbols_take_no_name),
        TEST(test_types_are_printed),
        TEST(test_symbols_are_numbered),
        TEST(test_table_is_bounded),
        TEST(test_deep_expressions_evaluate),
        TEST(test_random_expressions_equal_arithmetic),
        TEST(test_random_text_parses_or_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

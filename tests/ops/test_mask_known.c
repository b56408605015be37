/* test_mask_known.c - what attn_mask_binary() derives from two operands on a tile: it holds for
 * each pair, and says all that can be said where the operands are numbers, lines along key - query
 * and bands. Bounds of what a dtype holds, and of what a line may be, one by one. */
#include <math.h>
#include <stdlib.h>

#include "../runtime/check.h"

#include "../../ops/attention/core/mask_known.h"

static struct attn_mask_tile tile = { 3, 9, 5, 17 }; /* key - query is -3 to 13 */

static struct attn_mask_known number(double x) { return mask_number(x); }

static struct attn_mask_known line(int64_t of_query, int64_t of_key, int64_t base)
{
    return attn_mask_line(of_query, of_key, base, ATTNRUN_I64, &tile);
}

/* |of_key (key - query) + base|, which has both signs on the tile. */
static struct attn_mask_known length(int64_t of_key, int64_t base)
{
    struct attn_mask_known k = line(-of_key, of_key, base);
    assert_true(k.low < 0 && k.high > 0);
    k.form = LENGTH;
    k.high = fmax(-k.low, k.high);
    k.low = 0;
    return k;
}

/* The least or the greatest number that the operand can be for a pair. */
static double value(const struct attn_mask_known *k, int64_t query, int64_t key,
                    bool high)
{
    const double on_line = (double)(k->of_query * query + k->of_key * key + k->base);
    switch (k->form) {
    case LINE:
        return on_line;
    case LENGTH:
        return fabs(on_line);
    case BAND:
        return k->first <= key - query && key - query <= k->last ? k->inside : k->outside;
    default:
        return high ? k->high : k->low;
    }
}

static double apply(int64_t opcode, double a, double b)
{
    switch (opcode) {
    case MASK_ADD:
        return a + b;
    case MASK_SUB:
        return a - b;
    case MASK_MUL:
        return a * b;
    case MASK_MIN:
        return fmin(a, b);
    case MASK_MAX:
        return fmax(a, b);
    case MASK_MOD:
        return a - b * floor(a / b);
    case MASK_LESS:
        return a < b;
    case MASK_LESS_EQUAL:
        return a <= b;
    case MASK_GREATER:
        return a > b;
    case MASK_GREATER_EQUAL:
        return a >= b;
    case MASK_EQUAL:
        return a == b;
    case MASK_AND:
        return a > 0 && b > 0;
    case MASK_OR:
        return a > 0 || b > 0;
    default:
        return (a > 0) != (b > 0);
    }
}

/* What all pairs of the tile together are. */
struct pairs {
    double low, high;
    bool known; /* each pair has one number */
    bool
        band; /* one of 0 and 1 for first <= key - query <= last, and the other elsewhere */
};

static struct pairs look_at(int64_t opcode, const struct attn_mask_known *a,
                            const struct attn_mask_known *b)
{
    enum { MIN = -3, MAX = 13 };
    struct pairs p = { .low = HUGE_VAL, .high = -HUGE_VAL, .known = true, .band = true };
    double at[MAX - MIN + 1] = { 0 };
    bool seen[MAX - MIN + 1] = { false };
    for (int64_t q = tile.query; q < tile.query_end; q++)
        for (int64_t k = tile.key; k < tile.key_end; k++)
            for (int side = 0; side < 4; side++) {
                const double v = apply(opcode, value(a, q, k, side & 1),
                                       value(b, q, k, (side & 2) != 0));
                const int64_t d = k - q - MIN;
                p.low = fmin(p.low, v);
                p.high = fmax(p.high, v);
                p.known =
                    p.known && (side == 0 || v == apply(opcode, value(a, q, k, false),
                                                        value(b, q, k, false)));
                p.band = p.band && (!seen[d] || at[d] == v) && (v == 0 || v == 1);
                seen[d] = true;
                at[d] = v;
            }
    int changes = 0;
    for (int d = 1; p.band && d <= MAX - MIN; d++)
        changes += at[d] != at[d - 1];
    p.band = p.band && (changes == 1 || changes == 2);
    return p;
}

static int failures;
static const char *const forms[] = { "between", "line", "length", "band" };

static void say(const char *what, int64_t opcode, int i, int j,
                const struct attn_mask_known *r)
{
    if (failures++ < 20)
        print_message(
            "%s: opcode %d of operands %d and %d: %s, %g to %g, band %lld to %lld\n",
            what, (int)opcode, i, j, forms[r->form], r->low, r->high, (long long)r->first,
            (long long)r->last);
}

static void check_pair(int64_t opcode, const struct attn_mask_known *list, int i, int j,
                       bool strong)
{
    const struct attn_mask_known *a = &list[i], *b = &list[j];
    const struct attn_mask_pair pair = { opcode,
                                         opcode >= MASK_LESS ? ATTNRUN_BOOL : ATTNRUN_I64,
                                         &tile };
    const struct attn_mask_known r = attn_mask_binary(&pair, a, b);
    const struct pairs p = look_at(opcode, a, b);
    if (r.nan || r.low > p.low || r.high < p.high)
        say("bounds that do not hold", opcode, i, j, &r);
    if (r.low < p.low - 1e-9 && (a->form == BETWEEN && b->form == BETWEEN) &&
        opcode != MASK_MOD)
        say("a low bound that is too low", opcode, i, j, &r);
    for (int64_t q = tile.query; q < tile.query_end; q++)
        for (int64_t k = tile.key; k < tile.key_end && r.form != BETWEEN; k++)
            if (value(&r, q, k, false) !=
                apply(opcode, value(a, q, k, false), value(b, q, k, false))) {
                say("wrong for a pair", opcode, i, j, &r);
                return;
            }
    if (!strong)
        return;
    if (p.known && p.low == p.high && !mask_is_number(&r))
        say("a number is not found", opcode, i, j, &r);
    if (p.band && r.form != BAND)
        say("a band is not found", opcode, i, j, &r);
}

/* Lines along key - query and numbers. A length is compared with numbers, for less and more. */
static void test_mask_known_of_lines(void **state)
{
    (void)state;
    const struct attn_mask_known list[] = {
        number(0),      number(1),      number(-2),     number(4),      number(13),
        number(14),     number(-3),     number(-4),     line(-1, 1, 0), line(1, -1, 0),
        line(-1, 1, 2), line(1, -1, 5), line(-2, 2, 1), line(3, -3, 2), line(0, 1, 0),
        line(1, 0, 0),  line(2, 0, -1), line(-1, 2, 3), length(1, 0),   length(1, -4),
        length(2, 1),
    };
    const int n = sizeof list / sizeof *list;
    failures = 0;
    for (int64_t opcode = MASK_ADD; opcode <= MASK_EQUAL; opcode++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                const struct attn_mask_known *a = &list[i], *b = &list[j];
                const bool lengths = a->form == LENGTH || b->form == LENGTH;
                const bool numbers = a->form == BETWEEN || b->form == BETWEEN;
                const int64_t of_key = a->of_key - b->of_key;
                if (opcode == MASK_MOD && (b->form != BETWEEN || b->low <= 0))
                    continue;
                if (opcode >= MASK_LESS) {
                    check_pair(opcode, list, i, j,
                               of_key != 0 && of_key == b->of_query - a->of_query &&
                                   (!lengths || (numbers && opcode != MASK_EQUAL)));
                    continue;
                }
                check_pair(opcode, list, i, j, false);
                if (lengths || opcode > MASK_MUL || (opcode == MASK_MUL && !numbers))
                    continue;
                const struct attn_mask_pair pair = { opcode, ATTNRUN_I64, &tile };
                const struct attn_mask_known r = attn_mask_binary(&pair, a, b);
                if (r.form != LINE && !mask_is_number(&r))
                    say("no line", opcode, i, j, &r);
            }
    assert_int_equal(failures, 0);
}

/* On a tile of one query or of one key a line along it is a number, but not its base. */
static void test_mask_known_of_one_row(void **state)
{
    const struct attn_mask_tile all = tile;
    (void)state;
    failures = 0;
    for (int side = 0; side < 2; side++) {
        tile = side == 0 ? (struct attn_mask_tile){ 8, 9, 5, 17 }
                         : (struct attn_mask_tile){ 3, 9, 16, 17 };
        const struct attn_mask_known list[] = {
            number(3),      line(1, 0, 0),
            line(0, 1, 0),  line(2, 0, -11),
            line(0, -1, 9), line(-1, 1, 2),
            line(-1, 2, 3), length(1, side == 0 ? 0 : -10),
        };
        const int n = sizeof list / sizeof *list;
        for (int64_t opcode = MASK_ADD; opcode <= MASK_EQUAL; opcode++)
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n && opcode != MASK_MOD; j++)
                    check_pair(opcode, list, i, j, false);
    }
    tile = all;
    assert_int_equal(failures, 0);
}

/* Bands of conditions, and conditions of which nothing or all is known. */
static void test_mask_known_of_bands(void **state)
{
    (void)state;
    const int64_t far = ATTN_MASK_FAR;
    const struct attn_mask_known list[] = {
        number(0),
        number(1),
        mask_between(0, 1),
        attn_mask_band(-far, 2, 1, 0, &tile),
        attn_mask_band(3, far, 1, 0, &tile),
        attn_mask_band(4, far, 1, 0, &tile),
        attn_mask_band(-1, 2, 1, 0, &tile),
        attn_mask_band(-1, 5, 1, 0, &tile),
        attn_mask_band(3, 6, 1, 0, &tile),
        attn_mask_band(4, 6, 1, 0, &tile),
        attn_mask_band(0, far, 0, 1, &tile),
        attn_mask_band(-far, 7, 0, 1, &tile),
        attn_mask_band(1, 4, 0, 1, &tile),
    };
    const int n = sizeof list / sizeof *list, other_side = n - 3, middle = n - 1;
    failures = 0;
    for (int64_t opcode = MASK_AND; opcode <= MASK_XOR; opcode++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                check_pair(opcode, list, i, j,
                           i <= 1 || j <= 1 ||
                               (i != 2 && j != 2 && i < middle && j < middle &&
                                opcode == MASK_AND) ||
                               (i != 2 && j != 2 && i < other_side && j < other_side &&
                                opcode == MASK_OR));
    assert_int_equal(failures, 0);
}

static void test_mask_known_of_intervals(void **state)
{
    (void)state;
    const struct attn_mask_known list[] = {
        mask_between(-3, -1), mask_between(-1, 4), mask_between(0, 2), mask_between(2, 5),
        mask_between(4, 9),   mask_between(6, 7),  number(3),          number(-2),
    };
    const int n = sizeof list / sizeof *list;
    failures = 0;
    for (int64_t opcode = MASK_ADD; opcode <= MASK_EQUAL; opcode++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                if (opcode == MASK_MOD)
                    continue;
                check_pair(opcode, list, i, j, false);
                const struct attn_mask_pair pair = {
                    opcode, opcode >= MASK_LESS ? ATTNRUN_BOOL : ATTNRUN_I64, &tile
                };
                const struct attn_mask_known r =
                    attn_mask_binary(&pair, &list[i], &list[j]);
                const struct pairs p = look_at(opcode, &list[i], &list[j]);
                if (opcode != MASK_EQUAL && (r.low != p.low || r.high != p.high))
                    say("bounds that are not the best", opcode, i, j, &r);
            }
    assert_int_equal(failures, 0);
}

/* Infinity times 0 is not a number, at whichever corner it is. */
static void test_mask_known_of_infinity(void **state)
{
    (void)state;
    const struct attn_mask_pair pair = { MASK_MUL, ATTNRUN_F32, &tile };
    for (int side = 0; side < 4; side++) {
        const struct attn_mask_known a =
            side & 1 ? mask_between(-1, HUGE_VAL) : mask_between(-HUGE_VAL, 1);
        const struct attn_mask_known b =
            side & 2 ? mask_between(-2, 0) : mask_between(0, 2);
        assert_true(attn_mask_binary(&pair, &a, &b).nan);
        assert_true(attn_mask_binary(&pair, &b, &a).nan);
    }
}

/* x mod 4 of what lies between two multiples of 4 keeps its bounds, else it is 0 to 3. */
static void test_mask_known_of_remainders(void **state)
{
    static const double rows[][4] = {
        { 0, 3, 0, 3 },   { 4, 7, 0, 3 },       { 5, 6, 1, 2 },         { 3, 4, 0, 3 },
        { -1, 0, 0, 3 },  { -4, -3, 0, 1 },     { -3, -2, 1, 2 },       { -6, -5, 2, 3 },
        { -5, -4, 0, 3 }, { 9e15, 9e15, 0, 0 }, { -9e15, -9e15, 0, 0 },
    };
    (void)state;
    const struct attn_mask_pair pair = { MASK_MOD, ATTNRUN_I64, &tile };
    const struct attn_mask_known four = number(4);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct attn_mask_known a = mask_between(rows[k][0], rows[k][1]);
        const struct attn_mask_known r = attn_mask_binary(&pair, &a, &four);
        if (r.nan || r.low != rows[k][2] || r.high != rows[k][3])
            fail_msg("row %d: %g to %g", (int)k, r.low, r.high);
    }
    const struct attn_mask_known wide[] = { mask_between(-9.1e15, 0),
                                            mask_between(0, 9.1e15) };
    for (int k = 0; k < 2; k++)
        assert_true(attn_mask_binary(&pair, &wide[k], &four).nan);
}

static void held(double x, int32_t dtype, bool known)
{
    const double r = attn_mask_held(x, dtype);
    if (known ? !(r == x) : !isnan(r))
        fail_msg("%g as dtype %d is %g", x, (int)dtype, r);
}

static void test_mask_known_in_a_dtype(void **state)
{
    (void)state;
    const double i32 = 2147483647.0, f32 = 16777216.0, i64 = 9e15;
    for (int sign = -1; sign <= 1; sign += 2) {
        held(sign * i32, ATTNRUN_I32, true);
        held(sign * (i32 + 1), ATTNRUN_I32, false);
        held(sign * (i32 + 1), ATTNRUN_I64, true);
        held(sign * i64, ATTNRUN_I64, true);
        held(sign * (i64 + 2), ATTNRUN_I64, false);
    }
    held(0.5, ATTNRUN_F32, true);
    held(1.0, ATTNRUN_BOOL, true);
    assert_true(attn_mask_held(f32 + 1, ATTNRUN_F32) == f32);
    const struct {
        int32_t dtype;
        double limit;
    } rows[] = { { ATTNRUN_F32, f32 }, { ATTNRUN_I32, i32 }, { ATTNRUN_I64, i64 } };
    for (int k = 0; k < 3; k++) {
        const double limit = rows[k].limit;
        assert_true(attn_mask_holds_line(-limit, limit, rows[k].dtype));
        assert_false(attn_mask_holds_line(-limit, limit + 2, rows[k].dtype));
        assert_false(attn_mask_holds_line(-limit - 2, limit, rows[k].dtype));
    }
}

/* Bounds of a line at the corners of the tile, and lines that are too steep or too far away. */
static void test_mask_known_lines(void **state)
{
    (void)state;
    for (int64_t of_query = -2; of_query <= 2; of_query++)
        for (int64_t of_key = -2; of_key <= 2; of_key++) {
            const struct attn_mask_known k = line(of_query, of_key, 7);
            double low = HUGE_VAL, high = -HUGE_VAL;
            for (int64_t q = tile.query; q < tile.query_end; q++)
                for (int64_t j = tile.key; j < tile.key_end; j++) {
                    low = fmin(low, (double)(of_query * q + of_key * j + 7));
                    high = fmax(high, (double)(of_query * q + of_key * j + 7));
                }
            assert_true(k.form == LINE && !k.nan);
            assert_true(k.low == low && k.high == high);
        }
    const int64_t far = ATTN_MASK_FAR;
    const struct attn_mask_tile first = { 0, 1, 0, 1 };
    const struct {
        int64_t of_query, of_key, base;
        bool good;
    } rows[] = {
        { far, 0, 0, true },
        { far + 1, 0, 0, false },
        { -far, 0, 0, true },
        { 0, far, 0, true },
        { 0, -far - 1, 0, false },
        { 0, -far, 0, true },
        { 0, 0, 64 * far, true },
        { 0, 0, 64 * far + 1, false },
        { 0, 0, -64 * far - 1, false },
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct attn_mask_known r = attn_mask_line(
            rows[k].of_query, rows[k].of_key, rows[k].base, ATTNRUN_I64, &first);
        if (r.nan == rows[k].good)
            fail_msg("row %d is %s", (int)k, r.nan ? "unknown" : "a line");
    }
}

/* Summaries of 129 positions in blocks of 64: the last block, of one element, goes on with the line
 * before it, or does not; then the bounds of all are known, and no line. */
static void test_mask_known_of_a_last_element(void **state)
{
    enum { N = 129, ENTRIES = 3 + 2 + 1 };
    int64_t positions[N];
    attnrun_tensor x;
    (void)state;
    assert_int_equal(attnrun_tensor_make(ATTNRUN_I64, 1, &(int64_t){ N }, positions, &x),
                     ATTNRUN_OK);
    struct attn_mask_program program = { .n_leaves = 1, .keys = N };
    program.leaf[0] = (struct attn_mask_leaf){ .dtype = ATTNRUN_I64,
                                               .axis = MASK_KEY,
                                               .windows = 1,
                                               .batches = 1,
                                               .heads = 1,
                                               .blocks = 3,
                                               .entries = ENTRIES };
    program.leaf[0].stride[MASK_KEY] = 1;
    for (int64_t step = -2; step <= 2; step++)
        for (int64_t off = -2; off <= 2; off++) {
            struct attn_mask_entry table[ENTRIES];
            for (int64_t i = 0; i < N; i++)
                positions[i] = 5 + step * i + (i == N - 1 ? off : 0);
            assert_int_equal(attn_mask_summarize(&program, 0, &x, table), ATTNRUN_OK);
            const struct attn_mask_entry *all = &table[ENTRIES - 1];
            const double ends[] = { 5, (double)positions[N - 2],
                                    (double)positions[N - 1] };
            assert_true(all->low == fmin(ends[0], fmin(ends[1], ends[2])));
            assert_true(all->high == fmax(ends[0], fmax(ends[1], ends[2])));
            assert_true(all->line == (off == 0) && !all->nan);
            if (off == 0)
                assert_true(all->step == step && all->base == 5);
        }
}

/* The absolute value of the min of a dtype is itself, for which no bound holds. */
static void test_mask_known_of_the_min(void **state)
{
    static const int64_t code[MASK_WORDS] = { MASK_ABS, 0, 0, 0 };
    const struct attn_mask_tile one = { 0, 1, 0, 1 };
    (void)state;
    for (int32_t min = INT32_MIN; min <= INT32_MIN + 1; min++) {
        const struct attn_mask_entry table = { .low = (double)min, .high = 3 };
        struct attn_mask_program program = { .code = code,
                                             .n_code = 1,
                                             .n_leaves = 1,
                                             .n = 2,
                                             .dtype = { ATTNRUN_I32, ATTNRUN_I32 } };
        program.leaf[0] = (struct attn_mask_leaf){ .dtype = ATTNRUN_I32,
                                                   .axis = MASK_AXES,
                                                   .entries = 1 };
        const struct attn_mask_place place = { .program = &program, .table = &table };
        struct attn_mask_known known[2];
        attn_mask_know(&place, &one, known);
        assert_true(known[1].nan == (min == INT32_MIN));
        assert_true(known[1].nan || (known[1].low == 0 && known[1].high == INT32_MAX));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask_known_of_lines),
        cmocka_unit_test(test_mask_known_of_one_row),
        cmocka_unit_test(test_mask_known_of_bands),
        cmocka_unit_test(test_mask_known_of_intervals),
        cmocka_unit_test(test_mask_known_of_infinity),
        cmocka_unit_test(test_mask_known_of_remainders),
        cmocka_unit_test(test_mask_known_in_a_dtype),
        cmocka_unit_test(test_mask_known_of_the_min),
        cmocka_unit_test(test_mask_known_lines),
        cmocka_unit_test(test_mask_known_of_a_last_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

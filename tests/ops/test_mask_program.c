/* test_mask_program.c - what attn_mask_look() says of a tile holds for each pair of it, as
 * attn_mask_row() computes them: random programs over positions, ranges, lengths, paddings
 * and numbers; what attn_mask_row() computes against each instruction by itself; and what
 * attn_mask_look() must be able to say of the masks that exporters write.
 * usage: test_mask_program [SEED] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mask_pair.h"

enum { LEAVES = 5, MAX = 320, PROGRAMS = 4000, EACH = 2 };

static uint64_t seed;
static int64_t draw(int64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* leaf 0: positions of queries, 1: of keys, 2: padding of keys, of each sample, 3: texts of keys,
 * of each block, 4: a mask of pairs, of each head; EACH of those */
static int64_t query_at[MAX], key_at[MAX], text[EACH * MAX];
static uint8_t padding[EACH * MAX], pairs[EACH * MAX * MAX];
static int64_t sizes[MASK_AXES];
static attnrun_type types[LEAVES];
static attnrun_tensor x[LEAVES];
static const int64_t leaf_axes[LEAVES * MASK_AXES] = {
    -1, -1, -1, 0,  -1, /* */
    -1, -1, -1, -1, 0,  /* */
    -1, 0,  -1, -1, 1,  /* */
    0,  -1, -1, -1, 1,  /* */
    -1, -1, 0,  1,  2,
};
static int64_t code[MASK_MAX_CODE * MASK_WORDS], known_outputs[MASK_CONSTANTS];
static int32_t dtype[LEAVES + MASK_MAX_CODE], n_code;

static void set_leaf(int k, int32_t type, int rank, const int64_t *dims, void *data)
{
    types[k] = (attnrun_type){ .kind = ATTNRUN_TENSOR, .dtype = type, .rank = rank };
    for (int i = 0; i < rank; i++)
        types[k].dims[i] = dim_of(dims[i]);
    if (attnrun_tensor_make(type, rank, dims, data, &x[k]) != ATTNRUN_OK)
        abort();
    dtype[k] = type;
}

/* `each`: blocks, samples and heads. */
static void set_leaves(int64_t each, int64_t queries, int64_t keys)
{
    const int64_t line[] = { each, keys }, all[] = { each, queries, keys };
    sizes[MASK_BLOCK] = sizes[MASK_BATCH] = sizes[MASK_HEAD] = each;
    sizes[MASK_QUERY] = queries;
    sizes[MASK_KEY] = keys;
    set_leaf(0, ATTNRUN_I64, 1, &queries, query_at);
    set_leaf(1, ATTNRUN_I64, 1, &keys, key_at);
    set_leaf(2, ATTNRUN_BOOL, 2, line, padding);
    set_leaf(3, ATTNRUN_I64, 2, line, text);
    set_leaf(4, ATTNRUN_BOOL, 3, all, pairs);
}

static void draw_leaves(void)
{
    const int64_t queries = 1 + draw(MAX), keys = 1 + draw(MAX), first = draw(40),
                  pad = draw(keys + 1), side = draw(2);
    for (int64_t i = 0; i < queries; i++)
        query_at[i] = first + i;
    for (int64_t j = 0; j < keys; j++) {
        key_at[j] = j;
        text[j] = j / 50;
        text[keys + j] = j / 64 - 1;
        padding[j] = side ? j < pad : j >= pad;
        padding[keys + j] = j < pad;
    }
    for (int64_t i = 0; i < EACH * queries * keys; i++)
        pairs[i] = draw(2) != 0;
    set_leaves(EACH, queries, keys);
}

static int32_t put(int64_t opcode, int64_t a, int64_t b, int64_t c, int32_t type)
{
    const int64_t word[MASK_WORDS] = { opcode, a, b, c };
    memcpy(code + n_code * MASK_WORDS, word, sizeof word);
    dtype[LEAVES + n_code] = type;
    return LEAVES + n_code++;
}

static int64_t *code_of(int32_t k) { return code + k * MASK_WORDS; }

static int32_t put_int(int64_t n)
{
    return put(MASK_INT, n, ATTNRUN_I64, 0, ATTNRUN_I64);
}

static int32_t put_float(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return put(MASK_FLOAT, bits, 0, 0, ATTNRUN_F32);
}

/* An operand of that type. */
static int32_t pick(int32_t type)
{
    for (int n = 0; n < 200; n++) {
        const int32_t k = (int32_t)draw(LEAVES + n_code);
        if (dtype[k] == type && (k != 4 || draw(8) == 0))
            return k;
    }
    if (type == ATTNRUN_I32)
        return put(MASK_CAST, draw(2), type, 0, type);
    return type == ATTNRUN_BOOL ? 2 : type == ATTNRUN_I64 ? 1 : put_float(0.0f);
}

static void draw_instruction(void)
{
    static const float numbers[] = { 0.0f,  -HUGE_VALF, -3.4028234663852886e38f,
                                     -1e4f, -1e9f,      1.0f,
                                     -0.5f };
    const int32_t i64 = draw(5) ? ATTNRUN_I64 : ATTNRUN_I32, b8 = ATTNRUN_BOOL,
                  f32 = ATTNRUN_F32;
    int32_t a = pick(i64), b = pick(i64);
    switch (draw(9)) {
    case 0:
        if (draw(8) == 0)
            put(MASK_INT, INT32_MAX - draw(100), i64, 0, i64); /* sums of i32 wrap */
        else if (draw(4) == 0)
            put(draw(2) ? MASK_AT_QUERY : MASK_AT_KEY, 0, 0, 0, ATTNRUN_I64);
        else
            put(MASK_INT, draw(100) - 20, i64, 0, i64);
        break;
    case 1:
        put(MASK_ADD + draw(5), a, b, 0, i64);
        break;
    case 2:
        put(draw(2) ? MASK_ABS : MASK_NEG, a, 0, 0, i64);
        break;
    case 3:
    case 4:
        put(MASK_LESS + draw(5), a, b, 0, b8);
        break;
    case 5:
        a = pick(b8);
        put(MASK_AND + draw(3), a, pick(b8), 0, b8);
        break;
    case 6:
        put(MASK_NOT, pick(b8), 0, 0, b8);
        break;
    case 7:
        a = put_float(numbers[draw(7)]);
        b = put_float(numbers[draw(7)]);
        put(MASK_WHERE, pick(b8), a, draw(4) ? b : pick(f32), f32);
        break;
    default:
        if (draw(3) == 0) {
            const int32_t to = draw(2) ? f32 : draw(2) ? b8 : i64;
            put(MASK_CAST, draw(2) ? pick(b8) : draw(2) ? pick(f32) : a, to, 0, to);
            if (dtype[LEAVES + n_code - 1] != f32 && dtype[code_of(n_code - 1)[1]] == f32)
                code_of(n_code - 1)[1] = a; /* a float beyond integers has none */
        } else if (draw(2)) {
            b = put(MASK_INT, 1 + draw(70), i64, 0, i64);
            put(MASK_MOD, a, b, 0, i64);
        } else if (draw(3) == 0) {
            put(draw(2) ? MASK_ABS : MASK_NEG, pick(f32), 0, 0, f32);
        } else {
            a = pick(f32);
            put(draw(3) ? MASK_ADD : MASK_SUB + draw(4), a, pick(f32), 0, f32);
        }
    }
}

static void state_constants(int32_t keep, int32_t add, float fill)
{
    uint32_t bits;
    memcpy(&bits, &fill, sizeof bits);
    const int64_t all[MASK_CONSTANTS] = { keep, add, bits, -1, -1 };
    memcpy(known_outputs, all, sizeof all);
}

/* What the program makes of a score. */
static float apply_to(float score, const struct attn_mask_place *place, int64_t query,
                      int64_t key)
{
    const int64_t keep = known_outputs[MASK_FACT_KEEP],
                  add = known_outputs[MASK_FACT_ADD], keys = sizes[MASK_KEY];
    const uint32_t bits = (uint32_t)known_outputs[MASK_FACT_FILL];
    struct mask_number value[LEAVES + MASK_MAX_CODE] = { 0 };
    float fill;
    memcpy(&fill, &bits, sizeof fill);
    value[0].i = query_at[query];
    value[1].i = key_at[key];
    value[2].i = padding[place->b * keys + key];
    value[3].i = text[place->w * keys + key];
    value[4].i = pairs[(place->h * sizes[MASK_QUERY] + query) * keys + key];
    mask_pair_run(code, n_code, dtype, LEAVES, query, key, value);
    if (keep >= 0 && value[keep].i == 0)
        score = fill;
    return add >= 0 ? score + value[add].f : score;
}

static struct attn_mask_program program;
static struct attn_mask_entry table[8192];
static int64_t rows_memory[(LEAVES + MASK_MAX_CODE) * ATTN_MASK_BLOCK];

static bool make_program(void)
{
    attnrun_step step = { .n_in = LEAVES, .in = types, .x = x };
    const attnrun_ints c = { code, (int64_t)n_code * MASK_WORDS },
                       f = { known_outputs, MASK_CONSTANTS },
                       a = { leaf_axes, LEAVES * MASK_AXES };
    if (attn_mask_plan(&step, 0, c, f, a, sizes, &program) != ATTNRUN_OK ||
        program.entries > 8192)
        return false;
    for (int32_t l = 0; l < LEAVES; l++)
        if (attn_mask_summarize(&program, l, &x[l], table) != ATTNRUN_OK)
            return false;
    return true;
}

const struct attn_kernels *attn_kernels_for(int isa, bool bf16);

static int64_t said[4], failures;

/* Each pair of a tile against what is said of it; scores are 1, so that nothing is lost. */
static void check_tile(const struct attn_mask_place *place,
                       const struct attn_mask_tile *t, uint64_t began)
{
    const struct attn_mask_seen seen = attn_mask_look(place, t);
    const double highest = /* a sum of floats is rounded */
        seen.soft + 1.0 + (seen.soft > -HUGE_VAL ? 1e-6 * fabs(seen.soft) : 0.0);
    said[seen.form]++;
    for (int64_t i = t->query; i < t->query_end; i++)
        for (int64_t j = t->key; j < t->key_end; j += ATTN_MASK_BLOCK) {
            float scores[ATTN_MASK_BLOCK];
            int64_t n =
                t->key_end - j < ATTN_MASK_BLOCK ? t->key_end - j : ATTN_MASK_BLOCK;
            for (int64_t k = 0; k < n; k++)
                scores[k] = 1.0f;
            const struct attn_mask_tile row = { i, i + 1, j, j + n };
            attn_mask_rows(place, &row, true, rows_memory, scores, 0);
            for (int64_t k = 0; k < n; k++) {
                const int64_t d = j + k - i;
                const bool in =
                    seen.form == ATTN_MASK_ALL_SEEN ||
                    (seen.form == ATTN_MASK_BAND && d >= seen.first && d <= seen.last);
                const double v = (double)scores[k];
                if (seen.form == ATTN_MASK_SOME ||
                    (in ? v == 1.0 : v <= highest && v < -900.0))
                    continue;
                if (failures++ < 5)
                    printf("seed %llu: query %lld, key %lld of [%lld,%lld): form %d, "
                           "soft %g, "
                           "but the score is %g\n",
                           (unsigned long long)began, (long long)i, (long long)(j + k),
                           (long long)t->key, (long long)t->key_end, (int)seen.form,
                           seen.soft, v);
            }
        }
}

/* A tile of up to 64 keys with what is known of it, and without. */
static void check_rows(const struct attn_mask_place *place,
                       const struct attn_mask_tile *t, uint64_t began)
{
    static float scores[2][ATTN_MASK_BLOCK * ATTN_MASK_BLOCK];
    const int64_t n = t->key_end - t->key, rows = t->query_end - t->query;
    for (int literally = 0; literally < 2; literally++) {
        for (int64_t k = 0; k < rows * n; k++)
            scores[literally][k] = (float)(k % 7) - 3.0f;
        attn_mask_rows(place, t, literally != 0, rows_memory, scores[literally], n);
    }
    for (int64_t k = 0; k < rows * n; k++) {
        const float known = scores[0][k], v = scores[1][k];
        const bool same = isnan(v) ? isnan(known) : known >= v && known <= v;
        if (!same && failures++ < 5)
            printf("seed %llu: query %lld, key %lld: %g, without what is known %g\n",
                   (unsigned long long)began, (long long)(t->query + k / n),
                   (long long)(t->key + k % n), (double)known, (double)v);
    }
}

/* A tile of up to 64 keys against each instruction by itself. */
static void check_instructions(const struct attn_mask_place *place,
                               const struct attn_mask_tile *t, uint64_t began)
{
    static float scores[ATTN_MASK_BLOCK * ATTN_MASK_BLOCK];
    const int64_t n = t->key_end - t->key, rows = t->query_end - t->query;
    for (int64_t k = 0; k < rows * n; k++)
        scores[k] = (float)(k % 7) - 3.0f;
    attn_mask_rows(place, t, true, rows_memory, scores, n);
    for (int64_t k = 0; k < rows * n; k++) {
        const int64_t query = t->query + k / n, key = t->key + k % n;
        const float want = apply_to((float)(k % 7) - 3.0f, place, query, key);
        const bool same =
            isnan(want) ? isnan(scores[k]) : scores[k] >= want && scores[k] <= want;
        if (!same && failures++ < 5)
            printf("seed %llu: query %lld, key %lld: %g, by single instructions %g\n",
                   (unsigned long long)began, (long long)query, (long long)key,
                   (double)scores[k], (double)want);
    }
}

static void check_program(uint64_t began)
{
    const struct attn_mask_place place = {
        attn_kernels_for(0, false), &program, x, table, draw(EACH), draw(EACH), draw(EACH)
    };
    const int64_t queries = sizes[MASK_QUERY], keys = sizes[MASK_KEY];
    for (int64_t i = 0; i < queries; i += 64)
        for (int64_t wide = 64; wide <= 512; wide *= 2) {
            const int64_t key = draw((keys + wide - 1) / wide) * wide;
            const struct attn_mask_tile t = { i, i + 64 < queries ? i + 64 : queries, key,
                                              key + wide < keys ? key + wide : keys };
            check_tile(&place, &t, began);
            if (wide == ATTN_MASK_BLOCK)
                check_rows(&place, &t, began);
            if (wide == ATTN_MASK_BLOCK && began % 4 == 1)
                check_instructions(&place, &t, began);
        }
}

/* ---- what must be said ---- */

static int expect(const char *name, int32_t keep, int32_t add, float fill,
                  enum attn_mask_form form, int64_t first, int64_t last)
{
    state_constants(keep, add, fill);
    if (!make_program()) {
        printf("%s: no program\n", name);
        return 1;
    }
    const struct attn_mask_place place = {
        attn_kernels_for(0, false), &program, x, table, 0, 0, 0
    };
    const struct attn_mask_tile t = { 64, 128, 0, 300 };
    const struct attn_mask_seen seen = attn_mask_look(&place, &t);
    const bool bounds =
        form != ATTN_MASK_BAND || (seen.first == first && seen.last == last);
    if (seen.form == form && bounds)
        return 0;
    printf("%s: form %d, %lld to %lld\n", name, (int)seen.form, (long long)seen.first,
           (long long)seen.last);
    return 1;
}

static int check_known_masks(void)
{
    const int64_t far = INT64_C(1) << 40, n = 300;
    int failed = 0;
    for (int64_t i = 0; i < n; i++) {
        query_at[i] = key_at[i] = i;
        padding[i] = 1;
        text[i] = i / 64;
    }
    set_leaves(1, n, n);
    n_code = 0;
    const int32_t b8 = ATTNRUN_BOOL, i64 = ATTNRUN_I64, f32 = ATTNRUN_F32;
    const int32_t causal = put(MASK_LESS_EQUAL, 1, 0, 0, b8);
    const int32_t later = put(MASK_GREATER, 1, 0, 0, b8),
                  past = put(MASK_NOT, later, 0, 0, b8);
    const int32_t d = put(MASK_SUB, 0, 1, 0, i64), length = put(MASK_ABS, d, 0, 0, i64);
    const int32_t near = put(MASK_LESS_EQUAL, length, put_int(9), 0, b8);
    const int32_t behind = put(MASK_LESS, d, put_int(20), 0, b8);
    const int32_t both = put(MASK_AND, causal, behind, 0, b8);
    const int32_t kept = put(MASK_AND, both, 2, 0, b8);
    const int32_t zero = put_float(0.0f), never = put_float(-HUGE_VALF);
    const int32_t added = put(MASK_WHERE, near, zero, never, f32);
    const int32_t dropped = put(MASK_WHERE, later, never, zero, f32);
    const int32_t two = put(MASK_ADD, added, dropped, 0, f32);
    const int32_t as_float = put(MASK_CAST, d, f32, 0, f32);
    const int32_t by_float = put(MASK_GREATER_EQUAL, as_float, zero, 0, b8);
    const int32_t beyond = put(MASK_LESS, d, put_int(-1000), 0, b8);
    const int32_t own = put(MASK_EQUAL, d, put_int(0), 0, b8);
    const float inf = -HUGE_VALF;
    failed += expect("causal", causal, -1, inf, ATTN_MASK_BAND, -far, 0);
    failed += expect("not later", past, -1, inf, ATTN_MASK_BAND, -far, 0);
    failed += expect("near", near, -1, inf, ATTN_MASK_BAND, -9, 9);
    failed += expect("causal and behind", both, -1, inf, ATTN_MASK_BAND, -19, 0);
    failed += expect("with padding", kept, -1, inf, ATTN_MASK_BAND, -19, 0);
    failed += expect("added", -1, added, 0.0f, ATTN_MASK_BAND, -9, 9);
    failed += expect("dropped", -1, dropped, 0.0f, ATTN_MASK_BAND, -far, 0);
    failed += expect("two added", -1, two, 0.0f, ATTN_MASK_BAND, -9, 0);
    failed += expect("kept and added", causal, added, inf, ATTN_MASK_BAND, -9, 0);
    failed += expect("floats", by_float, -1, inf, ATTN_MASK_BAND, -far, 0);
    failed += expect("nothing", beyond, -1, inf, ATTN_MASK_NONE_SEEN, 0, 0);
    failed += expect("own", own, -1, inf, ATTN_MASK_BAND, 0, 0);
    failed += expect("all", 2, -1, inf, ATTN_MASK_ALL_SEEN, 0, 0);
    /* The tile has -235 <= d <= 127: bounds at its corners and one beside them. */
    const int32_t corner = put(MASK_LESS_EQUAL, d, put_int(127), 0, b8),
                  inside = put(MASK_LESS, d, put_int(127), 0, b8),
                  other = put(MASK_GREATER_EQUAL, d, put_int(-235), 0, b8),
                  last = put(MASK_LESS_EQUAL, d, put_int(-235), 0, b8),
                  gone = put(MASK_LESS, d, put_int(-235), 0, b8);
    failed += expect("corner", corner, -1, inf, ATTN_MASK_ALL_SEEN, 0, 0);
    failed += expect("inside", inside, -1, inf, ATTN_MASK_BAND, -126, far);
    failed += expect("other corner", other, -1, inf, ATTN_MASK_ALL_SEEN, 0, 0);
    failed += expect("last corner", last, -1, inf, ATTN_MASK_BAND, 235, far);
    failed += expect("gone", gone, -1, inf, ATTN_MASK_NONE_SEEN, 0, 0);
    failed += expect("pairs", 4, -1, inf, ATTN_MASK_SOME, 0, 0);
    /* What is added may be anything where nothing is kept, but infinity. */
    const int32_t any = put(MASK_WHERE, 4, zero, never, f32),
                  infinite = put(MASK_WHERE, 4, zero, put_float(HUGE_VALF), f32);
    failed += expect("gone with any", gone, any, inf, ATTN_MASK_NONE_SEEN, 0, 0);
    failed += expect("gone with infinity", gone, infinite, inf, ATTN_MASK_SOME, 0, 0);
    return failed;
}

/* Comparisons of the least and greatest integers, with what is known of a tile and without. */
static int check_comparisons(void)
{
    static const int64_t numbers[] = {
        INT64_MIN, INT64_MIN + 1,       -(INT64_C(1) << 32), -2,       -1, 0, 1,
        2,         INT64_C(0xffffffff), INT64_MAX - 1,       INT64_MAX
    };
    const int64_t n = sizeof numbers / sizeof *numbers;
    int failed = 0;
    memcpy(query_at, numbers, sizeof numbers);
    memcpy(key_at, numbers, sizeof numbers);
    set_leaves(1, n, n);
    for (int64_t opcode = MASK_LESS; opcode <= MASK_EQUAL; opcode++) {
        n_code = 0;
        state_constants(put(opcode, 0, 1, 0, ATTNRUN_BOOL), -1, -HUGE_VALF);
        if (!make_program())
            return 1;
        const struct attn_mask_place place = {
            attn_kernels_for(0, false), &program, x, table, 0, 0, 0
        };
        for (int64_t k = 0; k < 2 * n * n; k++) {
            const int64_t i = k / 2 / n, j = k / 2 % n, a = numbers[i], b = numbers[j];
            const struct attn_mask_tile t = { i, i + 1, 0, n };
            float scores[ATTN_MASK_BLOCK] = { 0 };
            const bool holds = opcode == MASK_LESS            ? a < b
                               : opcode == MASK_LESS_EQUAL    ? a <= b
                               : opcode == MASK_GREATER       ? a > b
                               : opcode == MASK_GREATER_EQUAL ? a >= b
                                                              : a == b;
            attn_mask_rows(&place, &t, k % 2 == 0, rows_memory, scores, 0);
            if (holds == (scores[j] == 0.0f))
                continue;
            printf("%lld, %lld: opcode %lld is wrong\n", (long long)a, (long long)b,
                   (long long)opcode);
            failed++;
        }
    }
    return failed;
}

/* Instruction 2 of a program whose first ones are the numbers 0 and 7, behind check_known_masks():
 * an attribute of a file may hold anything. */
static int check_refused_instructions(void)
{
    enum { ZERO = LEAVES, SEVEN, OWN, BEHIND };
    static const struct {
        int64_t word[MASK_WORDS];
        bool good;
    } rows[] = {
        { { MASK_MOD, 0, SEVEN, 0 }, true },
        { { MASK_MOD, 0, ZERO, 0 }, false },
        { { MASK_MOD, 0, 1, 0 }, false }, /* not a constant */
        { { MASK_MOD, 0, OWN, 0 }, false },
        { { MASK_MOD, 2, SEVEN, 0 }, false },
        { { MASK_ADD, 0, SEVEN, 0 }, true },
        { { MASK_ADD, 0, 2, 0 }, false },
        { { MASK_ADD, 0, OWN, 0 }, false },
        { { MASK_ADD, BEHIND, 0, 0 }, false },
        { { MASK_ADD, 0, -1, 0 }, false },
        { { MASK_ADD, INT64_MIN, 0, 0 }, false },
        { { MASK_ADD, INT64_MAX, INT64_MAX, 0 }, false },
        { { MASK_NEG, 2, 0, 0 }, false },
        { { MASK_NOT, 0, 0, 0 }, false },
        { { MASK_NOT, 2, 0, 0 }, true },
        { { MASK_AND, 2, 0, 0 }, false },
        { { MASK_AND, 2, 4, 0 }, true },
        { { MASK_LESS, 2, 4, 0 }, false },
        { { MASK_EQUAL, 2, 4, 0 }, true },
        { { MASK_EQUAL, 0, 2, 0 }, false },
        { { MASK_WHERE, 2, 0, 1 }, true },
        { { MASK_WHERE, 0, 0, 1 }, false },
        { { MASK_WHERE, 2, 0, 4 }, false },
        { { MASK_WHERE, 2, 0, OWN }, false },
        { { MASK_CAST, 0, ATTNRUN_F32, 0 }, true },
        { { MASK_CAST, 0, ATTNRUN_F64, 0 }, false },
        { { MASK_CAST, OWN, ATTNRUN_F32, 0 }, false },
        { { MASK_INT, 1, ATTNRUN_F32, 0 }, false },
        { { MASK_OPCODES, 0, 1, 0 }, false },
        { { -1, 0, 1, 0 }, false },
    };
    int failed = 0;
    state_constants(2, -1, -HUGE_VALF);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        n_code = 0;
        put_int(0);
        put_int(7);
        memcpy(code + (int64_t)n_code++ * MASK_WORDS, rows[k].word, sizeof rows[k].word);
        if (make_program() == rows[k].good)
            continue;
        failed++;
        printf("instruction %lld of %lld, %lld, %lld is %s\n", (long long)rows[k].word[0],
               (long long)rows[k].word[1], (long long)rows[k].word[2],
               (long long)rows[k].word[3], rows[k].good ? "refused" : "taken");
    }
    return failed;
}

/* The rest of what a file says, behind check_known_masks(): 300 queries and keys. */
static int check_refused_plans(void)
{
    const attnrun_step step = { .n_in = LEAVES, .in = types, .x = x };
    const struct {
        int64_t code, known, axes; /* how many numbers there are */
        int64_t keep, add, queries, keys;
        int leaf, of, axis; /* and one axis of one leaf */
        bool good;
    } rows[] = {
        { 8, MASK_CONSTANTS, 25, 2, LEAVES, -1, -1, 0, MASK_QUERY, 0, true },
        { 7, MASK_CONSTANTS, 25, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 9, MASK_CONSTANTS, 25, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 160, MASK_CONSTANTS, 25, 2, -1, -1, -1, 0, MASK_QUERY, 0, true },
        { 164, MASK_CONSTANTS, 25, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS - 1, 25, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS + 1, 25, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 24, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 26, 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, 0, -1, -1, -1, 0, MASK_QUERY, 0, false }, /* i64 */
        { 8, MASK_CONSTANTS, 25, -2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, LEAVES + 2, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, INT64_MAX, -1, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, -1, -1, -1, -1, 0, MASK_QUERY, 0, true },
        { 8, MASK_CONSTANTS, 25, -1, 2, -1, -1, 0, MASK_QUERY, 0, false }, /* b8 */
        { 8, MASK_CONSTANTS, 25, -1, 0, -1, -1, 0, MASK_QUERY, 0, false }, /* i64 */
        { 8, MASK_CONSTANTS, 25, -1, -2, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, -1, LEAVES + 1, -1, -1, 0, MASK_QUERY, 0, true },
        { 8, MASK_CONSTANTS, 25, -1, LEAVES + 2, -1, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, 299, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, 300, -1, 0, MASK_QUERY, 0, true },
        { 8, MASK_CONSTANTS, 25, 2, -1, 0, -1, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, 299, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, 300, 0, MASK_QUERY, 0, true },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, 0, 0, MASK_QUERY, 0, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, -1, 0, MASK_QUERY, 1, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, -1, 0, MASK_QUERY, -2, false },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, -1, 2, MASK_BATCH, -1, true },
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, -1, 2, MASK_HEAD, 0, false }, /* twice */
        { 8, MASK_CONSTANTS, 25, 2, -1, -1, -1, 4, MASK_QUERY, 2, false },
    };
    int failed = 0;
    n_code = 0;
    while (n_code < MASK_MAX_CODE)
        put_float(0.0f);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int64_t known[MASK_CONSTANTS + 1] = { rows[k].keep, rows[k].add, 0,
                                              rows[k].queries, rows[k].keys };
        int64_t more[MASK_MAX_CODE * MASK_WORDS + MASK_WORDS] = { 0 };
        int64_t axes[LEAVES * MASK_AXES + 1] = { 0 };
        memcpy(more, code, MASK_MAX_CODE * MASK_WORDS * sizeof *code);
        memcpy(axes, leaf_axes, sizeof leaf_axes);
        axes[rows[k].leaf * MASK_AXES + rows[k].of] = rows[k].axis;
        const attnrun_ints c = { more, rows[k].code }, f = { known, rows[k].known },
                           a = { axes, rows[k].axes };
        const bool good =
            attn_mask_plan(&step, 0, c, f, a, sizes, &program) == ATTNRUN_OK;
        if (good == rows[k].good)
            continue;
        failed++;
        printf("row %zu of what is refused is %s\n", k, good ? "taken" : "refused");
    }
    return failed;
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const float fills[] = { -HUGE_VALF, -3.4028234663852886e38f, -1e4f };
    int failed = check_known_masks();
    failed += check_refused_instructions();
    failed += check_refused_plans();
    failed += check_comparisons();
    int64_t refused = 0;
    for (uint64_t k = first; k < first + PROGRAMS && failures == 0; k++) {
        seed = k * UINT64_C(0x9E3779B97F4A7C15);
        draw_leaves();
        n_code = 0;
        for (int n = 4 + (int)draw(14); n > 0; n--)
            draw_instruction();
        const int32_t keep = draw(3) ? pick(ATTNRUN_BOOL) : -1;
        const int32_t add = draw(2) || keep < 0 ? pick(ATTNRUN_F32) : -1;
        state_constants(keep, add, fills[draw(3)]);
        if (make_program())
            check_program(k);
        else
            refused++;
    }
    printf("refused %lld, all seen %lld, none %lld, bands %lld, some %lld\n",
           (long long)refused, (long long)said[0], (long long)said[1], (long long)said[2],
           (long long)said[3]);
    failed += refused > 0;               /* all of them are programs */
    for (int form = 0; form < 4; form++) /* or little was tried */
        failed += said[form] < PROGRAMS / 10 && first == 1;
    return failed > 0 || failures > 0;
}

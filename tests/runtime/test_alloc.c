/* test_alloc.c - the budget, refusals, counters with three threads, pools and keepers. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc.h"

/* An allocator that counts, and fails from call `fail_at` on (0: never). */
struct counting {
    int64_t calls, fail_at, live;
};

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    struct counting *c = user;
    void *block = NULL;
    if (++c->calls >= c->fail_at && c->fail_at > 0)
        return NULL;
    if (posix_memalign(&block, align, bytes) != 0)
        return NULL;
    memset(block, 0xa5, bytes);
    c->live += (int64_t)bytes;
    return block;
}

static void counting_free(void *user, void *block, size_t bytes)
{
    ((struct counting *)user)->live -= (int64_t)bytes;
    free(block);
}

static attnrun_allocator allocator_of(struct counting *c)
{
    return (attnrun_allocator){ sizeof(attnrun_allocator), c, counting_alloc,
                                counting_free };
}

static void test_alloc_goes_through_the_allocator(void **state)
{
    (void)state;
    struct counting c = { 0 };
    attnrun_allocator allocator = allocator_of(&c);
    struct attn_memory *memory = attn_memory_create(&allocator, 1 << 20);
    assert_int_equal(c.calls, 1);
    char *block = attn_alloc(memory, ATTN_MEM_ARENA, 1000);
    char *zeroed = attn_alloc_zeroed(memory, ATTN_MEM_PLAN, 100);
    char *empty = attn_alloc(memory, ATTN_MEM_PLAN, 0);
    assert_non_null(block);
    assert_non_null(empty);
    assert_int_equal((uintptr_t)block % 64, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(zeroed[i], 0);
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    assert_int_equal(counts.used_bytes, 1100);
    assert_int_equal(counts.calls, 3);
    assert_int_equal(counts.kind_bytes[ATTN_MEM_ARENA], 1000);
    assert_int_equal(counts.kind_bytes[ATTN_MEM_PLAN], 100);
    attn_free(memory, ATTN_MEM_ARENA, block, 1000);
    attn_free(memory, ATTN_MEM_PLAN, zeroed, 100);
    attn_free(memory, ATTN_MEM_PLAN, empty, 0);
    attn_free(memory, ATTN_MEM_PLAN, NULL, 7);
    attn_memory_counts(memory, &counts);
    assert_int_equal(counts.used_bytes, 0);
    assert_int_equal(counts.peak_bytes, 1100);
    attn_memory_destroy(memory);
    assert_int_equal(c.live, 0);
}

static void test_budget_refuses_with_a_sentence(void **state)
{
    (void)state;
    struct attn_memory *memory = attn_memory_create(NULL, 1000);
    void *block = attn_alloc(memory, ATTN_MEM_ARENA, 600);
    assert_non_null(block);
    assert_null(attn_alloc(memory, ATTN_MEM_ARENA, 401));
    const attnrun_error *error = attnrun_last_error();
    assert_int_equal(error->status, ATTNRUN_E_MEMORY);
    assert_non_null(strstr(error->message, "the arena needs 401 bytes"));
    assert_non_null(strstr(error->message, "600 in use"));
    assert_non_null(strstr(error->message, "budget of 1000 bytes"));
    void *rest = attn_alloc(memory, ATTN_MEM_ARENA, 400); /* exactly the rest */
    assert_non_null(rest);
    assert_null(attn_alloc(memory, ATTN_MEM_ARENA, 1));
    assert_null(attn_alloc(memory, ATTN_MEM_ARENA, -1));
    assert_null(attn_alloc(memory, ATTN_MEM_ARENA, INT64_MAX));
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    assert_int_equal(counts.used_bytes, 1000);
    attn_free(memory, ATTN_MEM_ARENA, block, 600);
    attn_free(memory, ATTN_MEM_ARENA, rest, 400);
    attn_memory_destroy(memory);
}

static void test_budget_has_a_default(void **state)
{
    (void)state;
    struct attn_memory *memory = attn_memory_create(NULL, 0);
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    assert_true(counts.max_bytes > 0 && counts.max_bytes <= UINT64_C(8) << 30);
    attn_memory_destroy(memory);
}

/* Everything a pool does, with the allocator failing at each call in turn. */
static bool use_pool(struct attn_memory *memory)
{
    struct attn_pool pool;
    void *items = NULL;
    int64_t capacity = 0;
    attn_pool_init(&pool, memory, ATTN_MEM_MODEL);
    bool good = true;
    for (int i = 0; i < 3000 && good; i++) {
        good = attn_pool_grow(&pool, &items, &capacity, i, sizeof(int)) == ATTNRUN_OK;
        if (good)
            ((int *)items)[i] = i;
    }
    good = good && attn_pool_string(&pool, "text") != NULL;
    good = good && attn_pool_alloc(&pool, 1 << 20) != NULL;
    good = good && attn_pool_printf(&pool, "%d-%s", 5, "x") != NULL;
    for (int i = 0; i < 3000 && good; i++)
        assert_int_equal(((int *)items)[i], i);
    attn_pool_free(&pool);
    return good;
}

static void test_pool_survives_every_failed_allocation(void **state)
{
    (void)state;
    bool good = false;
    for (int64_t fail_at = 1; !good; fail_at++) {
        struct counting c = { .fail_at = fail_at };
        attnrun_allocator allocator = allocator_of(&c);
        struct attn_memory *memory = attn_memory_create(&allocator, 1 << 24);
        if (memory != NULL)
            good = use_pool(memory);
        if (!good)
            assert_int_equal(attnrun_last_error()->status, ATTNRUN_E_MEMORY);
        attn_memory_destroy(memory);
        assert_int_equal(c.live, 0);
    }
}

static void test_pool_blocks_are_zeroed_and_disjoint(void **state)
{
    (void)state;
    struct counting c = { 0 };
    attnrun_allocator allocator = allocator_of(&c);
    struct attn_memory *memory = attn_memory_create(&allocator, 1 << 28);
    struct attn_pool pool;
    enum { N = 3000 };
    static unsigned char *blocks[N];
    static int64_t sizes[N];
    uint64_t seed = 7;
    const int64_t live_before = c.live;
    attn_pool_init(&pool, memory, ATTN_MEM_MODEL);
    assert_int_equal(c.live, live_before); /* an empty pool holds nothing */
    for (int i = 0; i < N; i++) {
        sizes[i] = random_below(&seed, i % 50 == 0 ? 40000 : 300);
        blocks[i] = attn_pool_alloc(&pool, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % (sizes[i] > 4096 ? 64 : 16), 0);
        for (int64_t k = 0; k < sizes[i]; k++)
            assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], i & 0xff, (size_t)sizes[i]);
    }
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < sizes[i]; k++)
            assert_int_equal(blocks[i][k], i & 0xff);
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    assert_int_equal(counts.kind_bytes[ATTN_MEM_MODEL], c.live - live_before);
    assert_null(attn_pool_alloc(&pool, -1));
    assert_null(attn_pool_alloc(&pool, INT64_MAX));
    assert_string_equal(attn_pool_string(&pool, NULL), "");
    assert_string_equal(attn_pool_printf(&pool, "%d-%s", 5, "x"), "5-x");
    const int64_t calls = c.calls, live = c.live;
    attn_pool_reset(&pool);
    assert_true(c.live > live_before && c.live < live); /* one block is left */
    unsigned char *again = attn_pool_alloc(&pool, 300);
    for (int64_t k = 0; k < 300; k++)
        assert_int_equal(again[k], 0);
    assert_int_equal(c.calls, calls); /* it is in that block */
    attn_pool_free(&pool);
    attn_pool_reset(&pool); /* of an empty pool: nothing */
    assert_int_equal(c.live, live_before);
    attn_memory_destroy(memory);
    assert_int_equal(c.live, 0);
}

/* Three threads against one budget: it is never exceeded and nothing is lost. */
struct contender {
    struct attn_memory *memory;
    uint64_t seed;
    int64_t refused;
};

static void *contend(void *arg)
{
    struct contender *c = arg;
    void *blocks[16] = { NULL };
    int64_t sizes[16] = { 0 };
    for (int i = 0; i < 20000; i++) {
        int64_t at = random_below(&c->seed, 16);
        attn_free(c->memory, ATTN_MEM_HEAP, blocks[at], sizes[at]);
        sizes[at] = random_below(&c->seed, 2000);
        blocks[at] = attn_alloc(c->memory, ATTN_MEM_HEAP, sizes[at]);
        c->refused += blocks[at] == NULL;
    }
    for (int at = 0; at < 16; at++)
        attn_free(c->memory, ATTN_MEM_HEAP, blocks[at], sizes[at]);
    return NULL;
}

static void test_budget_holds_with_three_threads(void **state)
{
    (void)state;
    struct attn_memory *memory = attn_memory_create(NULL, 40000);
    struct contender contenders[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        contenders[i] = (struct contender){ memory, (uint64_t)i + 1, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, contend, &contenders[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    assert_int_equal(counts.used_bytes, 0);
    assert_int_equal(counts.kind_bytes[ATTN_MEM_HEAP], 0);
    assert_true(counts.peak_bytes <= 40000);
    attn_memory_destroy(memory);
}

/* Blocks of three sizes, asked for in another order the second time, as by a plan of many nodes
 * that takes the place of another one. It took seconds where each was compared with all. */
static void test_keeper_finds_what_it_keeps(void **state)
{
    enum { N = 40000, SMALLEST = 16, SIZES = 3, SECONDS = 5 };
    (void)state;
    struct counting c = { 0 };
    attnrun_allocator allocator = allocator_of(&c);
    struct attn_memory *memory = attn_memory_create(&allocator, UINT64_C(1) << 30);
    struct attn_memory *keeper = attn_keeper_create(memory);
    static void *blocks[N];
    static int64_t bytes[N];
    const clock_t start = clock();
    for (int round = 0; round < 2; round++) {
        const int64_t calls = c.calls;
        for (int i = 0; i < N; i++) {
            const int size = round == 0 ? i : N - 1 - i;
            bytes[i] = SMALLEST << size % SIZES;
            blocks[i] = attn_alloc(keeper, ATTN_MEM_PLAN, bytes[i]);
            assert_non_null(blocks[i]);
        }
        assert_int_equal(c.calls - calls, round == 0 ? N : 0);
        for (int i = 0; i < N; i++)
            attn_free(keeper, ATTN_MEM_PLAN, blocks[i], bytes[i]);
        attn_keeper_release(keeper, false);
    }
    assert_true(clock() - start < SECONDS * CLOCKS_PER_SEC);
    attn_memory_destroy(keeper);
    attn_memory_destroy(memory);
    assert_int_equal(c.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_goes_through_the_allocator),
        cmocka_unit_test(test_budget_refuses_with_a_sentence),
        cmocka_unit_test(test_budget_has_a_default),
        cmocka_unit_test(test_pool_survives_every_failed_allocation),
        cmocka_unit_test(test_pool_blocks_are_zeroed_and_disjoint),
        cmocka_unit_test(test_budget_holds_with_three_threads),
        cmocka_unit_test(test_keeper_finds_what_it_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

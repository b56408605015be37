/* test_name_map.c - names and what they map to: all that were added are found, others are not, and
 * the map is at most half full and no larger than that needs. Where a name lies cannot be known
 * outside of the process. */
#include "../runtime/harness.h"

#include "../../loaders/name_map.h"
#include "../../runtime/hash.h"

enum { NAMES = 1000 };

static void test_name_map_finds_what_was_added(void **state)
{
    static char names[NAMES][12];
    struct test_memory memory;
    (void)state;
    test_memory_init(&memory);
    attn_pool_apart = true; /* a call of the allocator for each table */
    struct attn_memory *owner = attn_memory_create(&memory.allocator, 0);
    struct attn_pool pool;
    attn_pool_init(&pool, owner, ATTN_MEM_MODEL);
    struct attn_name_map map = { .pool = &pool };
    assert_null(attn_map_find(&map, "n0", 2));
    const int64_t calls = memory.calls;
    for (int i = 0; i < NAMES; i++) {
        const int64_t n = snprintf(names[i], sizeof names[i], "n%d", i);
        assert_null(attn_map_find(&map, names[i], n));
        OK(attn_map_add(&map, names[i], n, 7 * i));
        assert_int_equal(map.used, i + 1);
        int64_t capacity = 16;
        while (capacity < 2 * (i + 1))
            capacity *= 2;
        assert_int_equal(map.capacity, capacity);
    }
    for (int i = 0; i < NAMES; i++) {
        const int64_t *value = attn_map_find(&map, names[i], (int64_t)strlen(names[i]));
        assert_non_null(value);
        assert_int_equal(*value, 7 * i);
    }
    assert_int_equal(memory.calls - calls, 8);      /* 16 to 2048 entries */
    assert_null(attn_map_find(&map, "n10", 2 + 2)); /* with its NUL */
    assert_null(attn_map_find(&map, "n1000", 5));
    OK(attn_map_reserve(&map, 1024));
    assert_int_equal(map.capacity, 2048);
    OK(attn_map_reserve(&map, 1025));
    assert_int_equal(map.capacity, 4096);
    assert_int_equal(map.used, NAMES);
    assert_int_equal(*attn_map_find(&map, "n999", 4), 7 * 999);
    int foreseen = 0;
    for (int64_t k = 0; k < map.capacity; k++) {
        const struct attn_name_entry *entry = &map.entries[k];
        if (entry->key != NULL)
            foreseen += entry->hash == attn_hash_slot(attn_hash_bytes(
                                           ATTN_HASH_SEED, entry->key, entry->length));
    }
    assert_in_range(foreseen, 0, 1);
    assert_true(attn_hash_keyed(1, "n12", 3) == attn_hash_keyed(1, names[12], 3));
    attn_pool_free(&pool);
    attn_memory_destroy(owner);
    test_memory_check(&memory);
    attn_pool_apart = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_map_finds_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

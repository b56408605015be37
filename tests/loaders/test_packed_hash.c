/* test_packed_hash.c - the hash of packed files: that of the format, for bytes that come whole and
 * in pieces. */
#include "../runtime/check.h"

#include "../../loaders/packed_format.h"

/* Of bytes 7 i + 3, as a program in another language has them, whole and in pieces: a file that an
 * older build wrote is read. */
static void test_packed_hash_is_that_of_the_format(void **state)
{
    (void)state;
    static const struct {
        int64_t n;
        uint64_t hash;
    } rows[] = {
        { 0, UINT64_C(0xF98A712A3A6A211C) },  { 1, UINT64_C(0x620368992CA1265B) },
        { 31, UINT64_C(0x1EBB9AB038943CF7) }, { 32, UINT64_C(0xB59DD13F639121D5) },
        { 33, UINT64_C(0x08D2A828357AA34A) }, { 1000, UINT64_C(0x6A9B5AB1B4E97174) },
    };
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(7 * i + 3);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int64_t piece = 1; piece <= 1000; piece = 3 * piece + 1) {
            struct attn_packed_hash hash;
            assert_true(attn_packed_hash_of(bytes, rows[k].n) == rows[k].hash);
            attn_packed_hash_begin(&hash);
            for (int64_t at = 0; at < rows[k].n; at += piece)
                attn_packed_hash_add(&hash, bytes + at,
                                     at + piece < rows[k].n ? piece : rows[k].n - at);
            assert_true(attn_packed_hash_end(&hash) == rows[k].hash);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_hash_is_that_of_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_status.c - statuses, sentences, quoting; errors belong to their thread. */
#include "check.h"

#include <pthread.h>
#include <string.h>

#include "status.h"

static void test_status_has_exit_code(void **state)
{
    (void)state;
    assert_int_equal(attnrun_status_exit(ATTNRUN_OK), 0);
    assert_int_equal(attnrun_status_exit(ATTNRUN_E_SHAPE), 5);
    assert_int_equal(attnrun_status_exit(ATTNRUN_E_DTYPE), 5);
    assert_int_equal(attnrun_status_exit(ATTNRUN_E_INTERNAL), 70);
    assert_int_equal(attnrun_status_exit(ATTNRUN_E_TIME), 124);
    assert_int_equal(attnrun_status_exit(ATTNRUN_E_CANCELLED), 130);
    assert_int_equal(attnrun_status_exit(-5), 70);
}

static void test_status_has_name(void **state)
{
    (void)state;
    assert_string_equal(attnrun_status_name(ATTNRUN_OK), "OK");
    assert_string_equal(attnrun_status_name(ATTNRUN_E_SHAPE), "SHAPE");
    assert_string_equal(attnrun_status_name(ATTNRUN_E_NONFINITE), "NONFINITE");
    assert_string_equal(attnrun_status_name(12345), "UNKNOWN");
    assert_string_equal(attnrun_version(), ATTNRUN_VERSION);
    assert_int_equal(attnrun_abi_version(), ATTNRUN_VERSION_MAJOR);
}

static void test_fail_names_node_and_tensor(void **state)
{
    (void)state;
    const attnrun_node node = { .name = "enc.3.attn", .op_type = "MatMul", .index = 7 };
    const attnrun_node nameless = { .name = "", .op_type = "Add", .index = 2 };
    const attnrun_error *error = attnrun_last_error();
    assert_int_equal(attn_fail_node(ATTNRUN_E_SHAPE, &node, "input %d", 1),
                     ATTNRUN_E_SHAPE);
    assert_string_equal(error->message, "SHAPE: node 'enc.3.attn' (MatMul): input 1");
    assert_string_equal(error->node_name, "enc.3.attn");
    assert_string_equal(error->op_type, "MatMul");
    assert_int_equal(error->node_index, 7);
    attn_hint("try %s", "this");
    attn_fail_tensor("k\n");
    assert_string_equal(error->hint, "try this");
    assert_string_equal(error->tensor, "k\\x0a");
    attn_fail_node(ATTNRUN_E_DTYPE, &nameless, "x");
    assert_string_equal(error->message, "DTYPE: node 2 (Add): x");
    assert_string_equal(error->hint, "");
    const char *long_type =
        "Attention\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9";
    const attnrun_node long_node = { .name = "", .op_type = long_type };
    attn_fail_node(ATTNRUN_E_DTYPE, &long_node, "x");
    const size_t kept = strlen(error->op_type) - strlen("...");
    assert_int_equal(kept, strlen("Attention") + 50); /* whole characters */
    assert_memory_equal(error->op_type, long_type, kept);
    assert_string_equal(error->op_type + kept, "...");
    attn_fail(ATTNRUN_E_IO, "gone");
    assert_string_equal(error->message, "IO: gone");
    assert_int_equal(error->node_index, -1);
}

/* The sentence of an error may be part of the next one. */
static void test_fail_may_quote_the_last_error(void **state)
{
    (void)state;
    attn_fail(ATTNRUN_E_PARSE, "inner");
    attn_fail(ATTNRUN_E_MODEL, "outer (%s)", attnrun_last_error()->message);
    assert_string_equal(attnrun_last_error()->message, "MODEL: outer (PARSE: inner)");
}

static void test_fail_cuts_long_sentences(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    attn_fail(ATTNRUN_E_MODEL, "%s", text);
    assert_int_equal(strlen(attnrun_last_error()->message),
                     sizeof attnrun_last_error()->message - 1);
}

static void test_quote_escapes_and_cuts(void **state)
{
    (void)state;
    char text[300], longest[200] = "";
    assert_string_equal(attn_quote(NULL), "");
    assert_string_equal(attn_quote("plain.name/0"), "plain.name/0");
    assert_string_equal(attn_quote("\x1b[31m\xc3\xa9\x7f"), "\\x1b[31m\xc3\xa9\\x7f");
    memset(text, 'a', sizeof text);
    for (size_t n = 78; n < 88; n++) {
        text[n] = 0;
        size_t length = strlen(attn_quote(text));
        assert_int_equal(length, n <= 83 ? n : 83);
        text[n] = 'a';
    }
    for (int i = 0; i < 40; i++)
        strcat(longest, "\x01");
    assert_int_equal(strlen(attn_quote(longest)), 83);
}

/* What is valid UTF-8 and harmless stays; all else becomes \xNN, byte by byte. */
static void test_escape_keeps_utf8(void **state)
{
    static const char *const rows[][2] = {
        { "\xe3\x83\xa2\xe3\x83\x87\xe3\x83\xab",
          "\xe3\x83\xa2\xe3\x83\x87\xe3\x83\xab" },
        { "\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82" },
        { "\xe3\x83", "\\xe3\\x83" },                   /* broken off */
        { "\xc0\xaf", "\\xc0\\xaf" },                   /* overlong */
        { "\xe0\x80\xaf", "\\xe0\\x80\\xaf" },          /* overlong */
        { "\xed\xa0\x80", "\\xed\\xa0\\x80" },          /* surrogate */
        { "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" }, /* above U+10FFFF */
        { "\xc2\x9b", "\\xc2\\x9b" },                   /* C1: starts a sequence */
        { "x\xe2\x80\xae", "x\\xe2\\x80\\xae" },        /* right-to-left override */
        { "\xe2\x81\xa7", "\\xe2\\x81\\xa7" },          /* first strong isolate */
        { "\xff\xfe", "\\xff\\xfe" },
    };
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(attnrun_escape(rows[i][0], text, sizeof text),
                         strlen(rows[i][1]));
        assert_string_equal(text, rows[i][1]);
    }
    /* cut between characters, and never over the end */
    for (size_t bytes = 1; bytes < 12; bytes++) {
        memset(text, 'z', sizeof text);
        size_t n = attnrun_escape(rows[0][0], text, bytes);
        assert_true(n < bytes);
        assert_int_equal(strlen(text), n);
        assert_int_equal(text[bytes], 'z');
        if (bytes > 3)
            assert_string_equal(text + n - 3, n < 9 ? "..." : "\xe3\x83\xab");
    }
    assert_int_equal(attnrun_escape("ab", text, 0), 0);
}

static void test_plural_agrees_with_its_number(void **state)
{
    (void)state;
    assert_string_equal(attn_plural(1, "node"), "1 node");
    assert_string_equal(attn_plural(0, "node"), "0 nodes");
    assert_string_equal(attn_plural(-1, "node"), "-1 nodes");
    assert_string_equal(attn_plural(1, "query head"), "1 query head");
    assert_string_equal(attn_plural(2, "branch"), "2 branches");
    assert_string_equal(attn_plural(2, "box"), "2 boxes");
    assert_string_equal(attn_plural(2, "entry"), "2 entries");
    assert_string_equal(attn_plural(2, "key"), "2 keys");
    assert_string_equal(attn_plural(INT64_MIN, "byte"), "-9223372036854775808 bytes");
    char text[8];
    for (size_t bytes = 1; bytes <= sizeof text; bytes++) {
        memset(text, 'z', sizeof text);
        const size_t n = attnrun_plural(2, "a", text, bytes);
        assert_int_equal(n, bytes <= 4 ? bytes - 1 : 4);
        assert_int_equal(strlen(text), n);
    }
    assert_int_equal(attnrun_plural(2, "node", text, 0), 0);
}

static void test_nearest_word(void **state)
{
    static const char *const words[] = { "Relu", "Resize", "b", "window" };
    static const char *const parts[] = { "right", "left_window" };
    (void)state;
    assert_string_equal(attnrun_nearest_word("Relux", words, 4), "Relu");
    assert_string_equal(attnrun_nearest_word("windo", words, 4), "window");
    assert_string_equal(attnrun_nearest_word("bb", words, 4), "b");
    assert_string_equal(attnrun_nearest_word("RESIZE", words, 4), "Resize");
    assert_string_equal(attnrun_nearest_word("ERSZE", words, 4), "Resize");
    assert_string_equal(attnrun_nearest_word("windo", parts, 2), "left_window");
    assert_null(attnrun_nearest_word("elf", parts, 2));
    assert_null(attnrun_nearest_word("nope", (const char *const[]){ "layer_norm" }, 1));
    assert_null(attnrun_nearest_word("c", words, 4)); /* as near to any other letter */
    assert_null(attnrun_nearest_word("window", words + 3, 1)); /* it is that word */
    assert_null(attnrun_nearest_word("elsewhere", words, 4));
}

static void test_quote_keeps_eight(void **state)
{
    (void)state;
    const char *names[8];
    char name[2] = "0";
    for (int i = 0; i < 8; i++) {
        name[0] = (char)('0' + i);
        names[i] = attn_quote(name);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(names[i][0], '0' + i);
}

static void *fail_elsewhere(void *error)
{
    attn_fail(ATTNRUN_E_RANGE, "in a worker");
    *(attnrun_error *)error = *attnrun_last_error();
    return NULL;
}

static void test_errors_belong_to_their_thread(void **state)
{
    (void)state;
    pthread_t thread;
    attnrun_error error;
    attn_fail(ATTNRUN_E_USAGE, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &error), 0);
    pthread_join(thread, NULL);
    assert_string_equal(attnrun_last_error()->message, "USAGE: mine");
    assert_int_equal(attn_fail_again(&error), ATTNRUN_E_RANGE);
    assert_string_equal(attnrun_last_error()->message, "RANGE: in a worker");
}

/* What a worker keeps has the status that it returned, whatever its slot holds. */
static void test_kept_errors_have_their_status(void **state)
{
    (void)state;
    attnrun_error error;
    attn_fail(ATTNRUN_E_SHAPE, "of an earlier call");
    uint64_t count = attn_error_count();
    attn_fail_keep(ATTNRUN_E_SHAPE, count, &error);
    assert_int_equal(error.status, ATTNRUN_E_SHAPE);
    assert_null(strstr(error.message, "earlier"));
    attn_fail(ATTNRUN_E_RANGE, "on the way");
    assert_true(attn_error_is_of(ATTNRUN_E_RANGE, count));
    assert_false(attn_error_is_of(ATTNRUN_E_CANCELLED, count));
    attn_fail_keep(ATTNRUN_E_CANCELLED, count, &error);
    assert_int_equal(attn_fail_again(&error), ATTNRUN_E_CANCELLED);
    assert_int_equal(attnrun_last_error()->status, ATTNRUN_E_CANCELLED);
    assert_non_null(strstr(attnrun_last_error()->message, "CANCELLED: "));
    attn_fail(ATTNRUN_E_RANGE, "said");
    attn_fail_keep(ATTNRUN_E_RANGE, count, &error);
    assert_string_equal(error.message, "RANGE: said");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_has_exit_code),
        cmocka_unit_test(test_status_has_name),
        cmocka_unit_test(test_fail_names_node_and_tensor),
        cmocka_unit_test(test_fail_may_quote_the_last_error),
        cmocka_unit_test(test_fail_cuts_long_sentences),
        cmocka_unit_test(test_quote_escapes_and_cuts),
        cmocka_unit_test(test_escape_keeps_utf8),
        cmocka_unit_test(test_plural_agrees_with_its_number),
        cmocka_unit_test(test_nearest_word),
        cmocka_unit_test(test_quote_keeps_eight),
        cmocka_unit_test(test_errors_belong_to_their_thread),
        cmocka_unit_test(test_kept_errors_have_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

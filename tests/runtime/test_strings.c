/* test_strings.c - strings, sequences and optionals of a caller: looked at before a run,
 * and copied where an output may show them, so that outputs outlive the caller's memory.
 */
#include "deadlines.h"
#include "harness.h"

#include "own.h"
#include "poll.h"

enum { MAX = 64 };

static attnrun_tensor strings_of(const char *dims, attnrun_string *strings)
{
    return tensor_of(ATTNRUN_STRING, dims, strings);
}

static void write_words(attnrun_string *strings, char text[][8], int n)
{
    for (int i = 0; i < n; i++) {
        snprintf(text[i], 8, "word%d", i);
        strings[i] = (attnrun_string){ text[i], (int64_t)strlen(text[i]) };
    }
}

static void check_words(const attnrun_tensor *y, const int *numbers, int n)
{
    char word[16];
    assert_int_equal(attnrun_tensor_count(y), n);
    for (int i = 0; i < n; i++) {
        const attnrun_string *s = (const attnrun_string *)y->data + i;
        snprintf(word, sizeof word, "word%d", numbers[i]);
        assert_int_equal(s->n, strlen(word));
        assert_memory_equal(s->data, word, strlen(word));
    }
}

/* y: the words twice; z: the last one; same: the input itself. */
static struct onnx_writer *write_strings(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input(w, "x", ATTNRUN_STRING, "N");
    onnx_int(w, "last", -1);
    onnx_node(w, "Concat", "x,x", "y");
    onnx_attr_int(w, "axis", 0);
    onnx_node(w, "Gather", "x,last", "z");
    onnx_node(w, "Identity", "x", "same");
    onnx_output(w, "y", ATTNRUN_STRING, "M");
    onnx_output(w, "z", ATTNRUN_STRING, "");
    onnx_output(w, "same", ATTNRUN_STRING, "N");
    return w;
}

static void test_strings_of_outputs_belong_to_the_context(void **state)
{
    (void)state;
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attnrun_model *model = open_model(runtime, write_strings(), 0);
    attnrun_context *context = make_context(model);
    for (int turn = 0; turn < 3; turn++) {
        static const int twice[] = { 0, 1, 2, 0, 1, 2 };
        attnrun_string *strings = malloc(3 * sizeof *strings);
        char (*text)[8] = malloc(3 * sizeof *text);
        write_words(strings, text, 3);
        attnrun_tensor x = strings_of("3", strings);
        OK(attnrun_set_input(context, 0, &x));
        OK(attnrun_run(context, NULL));
        memset(text, '#', 3 * sizeof *text);
        memset(strings, 0, 3 * sizeof *strings);
        free(text);
        free(strings);
        attnrun_tensor y = get_output(context, 0), z = get_output(context, 1),
                       same = get_output(context, 2);
        check_words(&y, twice, 6);
        check_words(&z, &twice[2], 1);
        check_words(&same, twice, 3);
    }
    attnrun_trim(context);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

static void test_strings_that_are_malformed_are_refused(void **state)
{
    (void)state;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_model *model = open_model(runtime, write_strings(), 0);
    attnrun_context *context = make_context(model);
    attnrun_string strings[3] = { { "ab", 2 }, { NULL, 0 }, { "c", 1 } };
    attnrun_tensor x = strings_of("3", strings);
    OK(attnrun_set_input(context, 0, &x));
    OK(attnrun_run(context, NULL));
    strings[2].n = -1;
    FAILS(ATTNRUN_E_USAGE, "string 2 has a length of -1",
          attnrun_set_input(context, 0, &x));
    FAILS(ATTNRUN_E_USAGE, "string 2 has a length of -1", attnrun_run(context, NULL));
    strings[2] = (attnrun_string){ NULL, 5 };
    FAILS(ATTNRUN_E_USAGE, "no characters", attnrun_set_input(context, 0, &x));
    FAILS(ATTNRUN_E_USAGE, "no characters", attnrun_run(context, NULL));
    x.dims[0] = 2; /* every other one: the last is the malformed one */
    x.strides[0] = 2 * (int64_t)sizeof strings[0];
    FAILS(ATTNRUN_E_USAGE, "string 1 has", attnrun_set_input(context, 0, &x));
    x.dims[0] = 1;
    OK(attnrun_set_input(context, 0, &x));
    x.data = NULL;
    FAILS(ATTNRUN_E_USAGE, "no data", attnrun_set_input(context, 0, &x));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
}

/* ---- values inside of values ---- */

struct nested {
    attnrun_string strings[2];
    char text[2][8];
    float numbers[4];
    attnrun_tensor items[2], sequence, optional;
};

static void make_nested(struct nested *n)
{
    memset(n, 0, sizeof *n);
    write_words(n->strings, n->text, 2);
    n->items[0] = strings_of("2", n->strings);
    n->items[1] = strings_of("1", n->strings + 1);
    n->sequence = (attnrun_tensor){ .kind = ATTNRUN_SEQUENCE,
                                    .dtype = ATTNRUN_STRING,
                                    .rank = 1,
                                    .dims = { 2 },
                                    .data = n->items };
    n->optional = (attnrun_tensor){ .kind = ATTNRUN_OPTIONAL_SEQUENCE,
                                    .dtype = ATTNRUN_STRING,
                                    .data = &n->sequence };
}

static void refuse(const struct nested *n, const char *text)
{
    FAILS(ATTNRUN_E_USAGE, text, attn_value_check(&n->sequence, 7));
    FAILS(ATTNRUN_E_USAGE, "input 7", attn_value_check(&n->optional, 7));
}

static void test_strings_inside_of_sequences_are_checked(void **state)
{
    (void)state;
    struct nested n;
    make_nested(&n);
    OK(attn_value_check(&n.sequence, 0));
    OK(attn_value_check(&n.optional, 0));
    n.strings[1].n = -2;
    refuse(&n, "string 1 has a length of -2");
    n.strings[1] = (attnrun_string){ NULL, 1 };
    refuse(&n, "no characters");
    make_nested(&n);
    n.items[1].data = NULL;
    refuse(&n, "no data");
    make_nested(&n);
    n.items[0].kind = ATTNRUN_SEQUENCE;
    refuse(&n, "not a tensor");
    make_nested(&n);
    n.sequence.dims[0] = -1;
    refuse(&n, "malformed");
    make_nested(&n);
    n.sequence.data = NULL;
    refuse(&n, "malformed");
    n.optional.data = NULL; /* none: nothing to look at */
    OK(attn_value_check(&n.optional, 0));
}

static void test_strings_are_copied_deeply(void **state)
{
    (void)state;
    static const int both[] = { 0, 1 };
    struct test_memory memory;
    struct nested n;
    attnrun_tensor sequence, optional;
    test_memory_init(&memory);
    struct attn_memory *own = attn_memory_create(&memory.allocator, 1 << 20);
    struct attn_heap heap = { .memory = own, .kind = ATTN_MEM_HEAP };
    struct attn_heap_list list = { NULL };
    make_nested(&n);
    OK(attn_value_own(&heap, &list, &n.sequence, &sequence));
    OK(attn_value_own(&heap, &list, &n.optional, &optional));
    memset(&n, '#', sizeof n);
    assert_int_equal(optional.kind, ATTNRUN_OPTIONAL_SEQUENCE);
    const attnrun_tensor *inner = optional.data;
    for (int k = 0; k < 2; k++) {
        const attnrun_tensor *list_of = k == 0 ? &sequence : inner;
        const attnrun_tensor *items = list_of->data;
        assert_int_equal(list_of->dims[0], 2);
        check_words(&items[0], both, 2);
        check_words(&items[1], &both[1], 1);
    }
    attn_heap_release(&heap, &list);
    attn_memory_destroy(own);
    test_memory_check(&memory);
}

/* ---- stopped between counting and writing ---- */

enum { LETTERS = 1 << 20, STOPWORDS = 1 << 15, KEPT = 8 };

static attnrun_status run_timed(void *context)
{
    const attnrun_run_options options = { .struct_size = sizeof options,
                                          .timeout_us = 1000000 };
    return attnrun_run(context, &options);
}

static void stop_at_each_poll(struct onnx_writer *writer, attnrun_tensor *x)
{
    struct test_memory memory;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    attnrun_model *model = open_model(runtime, writer, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_set_input(context, 0, x));
    assert_true(stop_at_polls(run_timed, context, 1, 0) > 0);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
}

/* A word that a stop ends early is more words than were counted. */
static void test_split_stops_within_what_it_counted(void **state)
{
    (void)state;
    char *text = malloc(LETTERS);
    memset(text, 'a', LETTERS);
    attnrun_string string = { text, LETTERS };
    attnrun_tensor x = strings_of("1", &string);
    struct onnx_writer *w = onnx_begin(20);
    onnx_input(w, "x", ATTNRUN_STRING, "N");
    onnx_node(w, "StringSplit", "x", "y,z");
    onnx_output(w, "y", ATTNRUN_STRING, "N,M");
    onnx_output(w, "z", ATTNRUN_I64, "N");
    stop_at_each_poll(w, &x);
    free(text);
}

/* The last stopword drops the last string, unless a stop ends the search. */
static void test_normalizer_stops_within_what_it_counted(void **state)
{
    (void)state;
    const char **words = malloc(STOPWORDS * sizeof *words);
    attnrun_string strings[KEPT + 1];
    for (int i = 0; i < STOPWORDS; i++)
        words[i] = i + 1 < STOPWORDS ? "a" : "drop";
    for (int i = 0; i <= KEPT; i++)
        strings[i] = (attnrun_string){ i < KEPT ? "keep" : "drop", 4 };
    attnrun_tensor x = strings_of("9", strings);
    struct onnx_writer *w = onnx_begin(20);
    onnx_input(w, "x", ATTNRUN_STRING, "N");
    onnx_node(w, "StringNormalizer", "x", "y");
    onnx_attr_strings(w, "stopwords", STOPWORDS, words);
    onnx_output(w, "y", ATTNRUN_STRING, "M");
    stop_at_each_poll(w, &x);
    free(words);
}

/* The only output is b8, but a string tensor between is watched. */
static void test_strings_that_are_watched_belong_to_the_context(void **state)
{
    (void)state;
    static const int last = 2;
    static attnrun_string strings[3];
    static char text[3][8];
    write_words(strings, text, 3);
    attnrun_tensor x = strings_of("3", strings), z;
    struct onnx_writer *w = onnx_begin(19);
    onnx_input(w, "x", ATTNRUN_STRING, "N");
    onnx_int(w, "last", -1);
    onnx_node(w, "Gather", "x,last", "z");
    onnx_node(w, "Equal", "x,z", "y");
    onnx_output(w, "y", ATTNRUN_BOOL, "N");
    attnrun_model *model = open_model(NULL, w, 0);
    attnrun_context *context = make_context(model);
    OK(attnrun_watch(context, "z"));
    OK(attnrun_set_input(context, 0, &x));
    OK(attnrun_run(context, NULL));
    memset(text, '#', sizeof text);
    OK(attnrun_value(context, "z", &z));
    check_words(&z, &last, 1);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings_of_outputs_belong_to_the_context),
        cmocka_unit_test(test_strings_that_are_watched_belong_to_the_context),
        cmocka_unit_test(test_strings_that_are_malformed_are_refused),
        cmocka_unit_test(test_strings_inside_of_sequences_are_checked),
        cmocka_unit_test(test_strings_are_copied_deeply),
        cmocka_unit_test(test_split_stops_within_what_it_counted),
        cmocka_unit_test(test_normalizer_stops_within_what_it_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

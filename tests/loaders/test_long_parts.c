/* test_long_parts.c - tensors of many elements, in each field that may hold them, and a graph of
 * many nodes: the elements are those of the file, and a deadline that passes at any poll ends
 * the call, with nothing left behind. */
#include "../runtime/harness.h"
#include "../runtime/deadlines.h"

#include "pb_write.h"

/* A clock that stop_at_polls() steps passes it; a machine that is busy does not. */
enum { TIMEOUT_US = 100000000 };
enum { N = 17000, NODES = 36 }; /* loops poll after 16384 turns, and after 32 nodes */
enum { NUMBERS = 1, WORDS = 2 };

/* ---- the model ---- */

static uint64_t element(int64_t k) { return (uint64_t)(k * 7919 % 30011); }

static struct pb tensor_named(const char *name, int32_t dtype)
{
    struct pb tensor = { 0 };
    pb_int(&tensor, 1, N);
    pb_int(&tensor, 2, dtype);
    pb_string(&tensor, 8, name);
    return tensor;
}

/* Bytes that are not all 0 or 1 where `wild`. */
static void put_flags(struct pb *graph, const char *name, bool wild)
{
    static uint8_t bytes[N];
    struct pb tensor = tensor_named(name, ATTNRUN_BOOL);
    for (int64_t k = 0; k < N; k++)
        bytes[k] = (uint8_t)(element(k) % (wild ? 5 : 2));
    pb_bytes(&tensor, 9, bytes, N);
    pb_message(graph, 5, &tensor);
}

static void put_integers(struct pb *graph, const char *name, int32_t dtype,
                         uint32_t field)
{
    struct pb tensor = tensor_named(name, dtype), numbers = { 0 };
    for (int64_t k = 0; k < N; k++)
        pb_varint(&numbers, element(k));
    pb_message(&tensor, field, &numbers);
    pb_message(graph, 5, &tensor);
}

/* Each word is a field of its own, and polled for. */
static void put_words(struct pb *graph)
{
    struct pb tensor = tensor_named("words", ATTNRUN_STRING);
    char word[16];
    for (int64_t k = 0; k < N; k++) {
        snprintf(word, sizeof word, "%d", (int)element(k));
        pb_string(&tensor, 6, element(k) % 3 == 0 ? "" : word);
    }
    pb_message(graph, 5, &tensor);
}

/* The numbers of a list in an attribute. */
static void put_list(struct pb *graph)
{
    struct pb node = pb_node("", "Constant", "", "list"), attr = { 0 }, numbers = { 0 };
    for (int64_t k = 0; k < N; k++)
        pb_varint(&numbers, element(k));
    pb_string(&attr, 1, "value_ints");
    pb_int(&attr, 20, 7);
    pb_message(&attr, 8, &numbers);
    pb_message(&node, 5, &attr);
    pb_message(graph, 1, &node);
}

static void put_output(struct pb *graph, const char *name)
{
    struct pb info = { 0 };
    pb_string(&info, 1, name);
    pb_message(graph, 12, &info);
}

static struct pb long_model(int parts)
{
    struct pb graph = { 0 };
    char from[16], to[16];
    if (parts & WORDS) {
        put_words(&graph);
        put_output(&graph, "words");
    }
    if (parts & NUMBERS) {
        put_flags(&graph, "wild", true);
        put_flags(&graph, "clean", false);
        put_integers(&graph, "shorts", ATTNRUN_I16, 5);
        put_integers(&graph, "longs", ATTNRUN_U64, 11);
        put_output(&graph, "wild");
        put_output(&graph, "clean");
        put_output(&graph, "shorts");
        put_output(&graph, "longs");
        put_list(&graph);
        put_output(&graph, "list");
        pb_value(&graph, 11, "v0", 3);
    }
    for (int k = 0; k < NODES && (parts & NUMBERS); k++) {
        snprintf(from, sizeof from, "v%d", k);
        snprintf(to, sizeof to, "v%d", k + 1);
        pb_add_node(&graph, 1, "", k % 2 ? "Abs" : "Neg", from, to);
        pb_value(&graph, k == NODES - 1 ? 12 : 13, to, 3);
    }
    return pb_model(&graph);
}

static attnrun_status open_long(attnrun_runtime *runtime, const struct pb *pb,
                                uint32_t flags, attnrun_model **model)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .flags = flags,
                                    .data = pb->data,
                                    .bytes = pb->bytes,
                                    .timeout_us = TIMEOUT_US };
    *model = NULL;
    return attnrun_model_open(runtime, &source, model);
}

/* ---- tests ---- */

static void check_outputs(attnrun_context *context)
{
    const attnrun_tensor words = get_output(context, 0), wild = get_output(context, 1),
                         clean = get_output(context, 2), shorts = get_output(context, 3),
                         longs = get_output(context, 4), list = get_output(context, 5),
                         last = get_output(context, 6);
    const attnrun_string *texts = words.data;
    char word[16];
    assert_true(((float *)last.data)[1] == 2);
    for (int64_t k = 0; k < N; k++) {
        assert_int_equal(((uint8_t *)wild.data)[k], element(k) % 5 != 0);
        assert_int_equal(((uint8_t *)clean.data)[k], element(k) % 2);
        assert_int_equal(((int16_t *)shorts.data)[k], element(k));
        assert_int_equal(((uint64_t *)longs.data)[k], element(k));
        assert_int_equal(((int64_t *)list.data)[k], element(k));
        snprintf(word, sizeof word, "%d", (int)element(k));
        const char *expected = element(k) % 3 == 0 ? "" : word;
        assert_int_equal(texts[k].n, strlen(expected));
        assert_memory_equal(texts[k].data, expected, strlen(expected) + 1);
    }
}

static void test_elements_are_those_of_the_file(void **state)
{
    float x[3] = { 1, -2, 3 };
    struct pb pb = long_model(NUMBERS | WORDS);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    for (uint32_t flags = 0; flags <= ATTNRUN_COPY; flags++) {
        attnrun_model *model;
        OK(open_long(runtime, &pb, flags, &model));
        attnrun_context *context = make_context(model);
        set_input(context, 0, ATTNRUN_F32, "3", x);
        OK(attnrun_run(context, NULL));
        check_outputs(context);
        attnrun_context_destroy(context);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
    pb_free(&pb);
}

struct timed {
    struct pb pb;
    bool write; /* again, as an ONNX model; else it is opened alone */
    uint64_t written;
};

static int32_t count_bytes(void *user, const void *bytes, uint64_t n)
{
    (void)bytes;
    ((struct timed *)user)->written += n;
    return 0;
}

static attnrun_status one_call(void *user)
{
    struct timed *timed = user;
    struct test_memory memory;
    attnrun_model *model = NULL;
    attnrun_status status;
    test_memory_init(&memory);
    attnrun_runtime *runtime = make_runtime(&memory, 1);
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = timed->pb.data,
                                    .bytes = timed->pb.bytes,
                                    .timeout_us = TIMEOUT_US };
    const attnrun_onnx_edit edit = { .struct_size = sizeof edit };
    timed->written = 0;
    if (timed->write)
        status = attnrun_save_onnx(runtime, &source, &edit, count_bytes, timed, NULL);
    else
        status = open_long(runtime, &timed->pb, 0, &model);
    attnrun_model_release(model);
    attnrun_runtime_destroy(runtime);
    test_memory_check(&memory);
    return status;
}

static void test_deadline_at_each_poll(void **state)
{
    (void)state;
    for (int parts = NUMBERS; parts <= WORDS; parts++)
        for (int write = 0; write < 2; write++) {
            struct timed timed = { .pb = long_model(parts), .write = write == 1 };
            const int64_t stopped = parts == NUMBERS
                                        ? stop_at_polls(one_call, &timed, 1, 0)
                                        : stop_at_polls(one_call, &timed, 2999, 50);
            print_message("stopped %d times\n", (int)stopped);
            assert_true(stopped > 50);
            OK(one_call(&timed));
            assert_int_equal(timed.written > N, timed.write);
            pb_free(&timed.pb);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements_are_those_of_the_file),
        cmocka_unit_test(test_deadline_at_each_poll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_from_pb.c - attnrun_tensor_from_pb(): each kind of message, right and wrong, and memory
 * that runs out at each allocation. */
#include "../runtime/harness.h"

#include "alloc.h"
#include "pb_write.h"

enum { I64 = 7, TEXT = 8, F32 = 1, U4 = 21 };

static struct pb number_of(int32_t dtype)
{
    static const uint8_t bytes[8] = { 7 };
    struct pb tensor = { 0 };
    pb_int(&tensor, 2, dtype);
    if (dtype == TEXT)
        pb_string(&tensor, 6, "word");
    else
        pb_bytes(&tensor, 9, bytes, (size_t)(attnrun_dtype_bits(dtype) + 7) / 8);
    return tensor;
}

/* As elements of a message: n numbers of a type in field `field`. */
static void put_numbers(struct pb *to, uint32_t field, int n, int32_t dtype)
{
    for (int i = 0; i < n; i++) {
        struct pb tensor = number_of(dtype);
        pb_message(to, field, &tensor);
    }
}

static void put_values(struct pb *map, int n, int32_t dtype)
{
    struct pb values = { 0 };
    put_numbers(&values, 3, n, dtype);
    pb_message(map, 5, &values);
}

static struct pb int_map(int n)
{
    struct pb map = { 0 };
    pb_string(&map, 1, "m");
    pb_int(&map, 2, I64);
    for (int i = 0; i < n; i++)
        pb_int(&map, 3, 100 + i);
    put_values(&map, n, F32);
    return map;
}

static struct pb text_map(void)
{
    struct pb map = { 0 };
    pb_int(&map, 2, TEXT);
    pb_string(&map, 4, "one");
    pb_string(&map, 4, "");
    put_values(&map, 2, TEXT);
    return map;
}

static attnrun_status read(attnrun_runtime *runtime, struct pb *pb, int32_t kind,
                           attnrun_tensor **tensor)
{
    const char *name = NULL;
    *tensor = NULL;
    const attnrun_status status =
        attnrun_tensor_from_pb(runtime, pb->data, pb->bytes, kind, tensor, &name);
    if (status == ATTNRUN_OK && name == NULL)
        fail_msg("kind %d has no name", kind);
    return status;
}

/* Frees the message. */
static void refuse(struct pb pb, int32_t kind, attnrun_status status, const char *text)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_tensor *tensor;
    FAILS(status, text, read(runtime, &pb, kind, &tensor));
    assert_null(tensor);
    attnrun_runtime_destroy(runtime);
    pb_free(&pb);
}

/* ---- what is right ---- */

static struct pb sequence_of(int n, int32_t dtype)
{
    struct pb sequence = { 0 };
    pb_string(&sequence, 1, "s");
    pb_int(&sequence, 2, 1);
    put_numbers(&sequence, 3, n, dtype);
    return sequence;
}

static struct pb optional_of(uint32_t field)
{
    struct pb optional = { 0 }, inner = field == 3 ? number_of(F32) : sequence_of(2, I64);
    pb_string(&optional, 1, "o");
    pb_int(&optional, 2, field == 3 ? 1 : 3);
    pb_message(&optional, field, &inner);
    return optional;
}

static struct pb maps_of(int n)
{
    struct pb maps = { 0 };
    for (int i = 0; i < n; i++) {
        struct pb map = int_map(i);
        pb_message(&maps, 6, &map);
    }
    return maps;
}

static struct pb message_of(int kind)
{
    switch (kind) {
    case ATTNRUN_TENSOR:
        return number_of(F32);
    case ATTNRUN_SEQUENCE:
        return sequence_of(9, I64);
    case ATTNRUN_OPTIONAL:
        return optional_of(3);
    case ATTNRUN_OPTIONAL_SEQUENCE:
        return optional_of(5);
    case ATTNRUN_MAP:
        return int_map(3);
    default:
        return maps_of(3);
    }
}

static void test_each_kind(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    for (int kind = ATTNRUN_TENSOR; kind <= ATTNRUN_MAP_SEQUENCE; kind++) {
        struct pb pb = message_of(kind);
        attnrun_tensor *tensor;
        OK(read(runtime, &pb, kind, &tensor));
        assert_int_equal(tensor->kind, kind);
        if (kind == ATTNRUN_SEQUENCE)
            assert_int_equal(tensor->dims[0], 9);
        if (kind == ATTNRUN_MAP_SEQUENCE)
            assert_int_equal(((const attnrun_tensor *)tensor->data)[2].dims[0], 2);
        attnrun_tensor_free(runtime, tensor);
        pb_free(&pb);
    }
    attnrun_runtime_destroy(runtime);
    attnrun_tensor_free(NULL, NULL);
}

static void test_maps(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    struct pb packed = { 0 }, texts = text_map(), empty = { 0 }, bytes = { 0 },
              one = { 0 }, values = { 0 };
    static const uint8_t keys[] = { 5, 0x80, 1, 7 }; /* 5, 128, 7 */
    attnrun_tensor *tensor;
    (void)state;
    pb_bytes(&packed, 3, keys, sizeof keys);
    put_values(&packed, 3, I64);
    OK(read(runtime, &packed, ATTNRUN_MAP, &tensor));
    assert_int_equal(tensor->dims[0], 3);
    assert_int_equal(((const int64_t *)((const attnrun_tensor *)tensor->data)[0].data)[1],
                     128);
    attnrun_tensor_free(runtime, tensor);
    OK(read(runtime, &texts, ATTNRUN_MAP, &tensor));
    const attnrun_tensor *column = tensor->data;
    assert_int_equal(column[0].dtype, ATTNRUN_STRING);
    assert_int_equal(((const attnrun_string *)column[0].data)[1].n, 0);
    assert_int_equal(((const attnrun_string *)column[1].data)[1].n, 4);
    attnrun_tensor_free(runtime, tensor);
    pb_int(&bytes, 2, TEXT); /* a key and a value of one byte */
    pb_string(&bytes, 4, "k");
    pb_int(&one, 2, ATTNRUN_U8);
    pb_bytes(&one, 9, (const uint8_t[]){ 200 }, 1);
    pb_message(&values, 3, &one);
    pb_message(&bytes, 5, &values);
    pb_int(&empty, 2, TEXT);
    OK(read(runtime, &empty, ATTNRUN_MAP, &tensor));
    assert_int_equal(tensor->dims[0], 0);
    assert_int_equal(((const attnrun_tensor *)tensor->data)[0].dtype, ATTNRUN_STRING);
    attnrun_tensor_free(runtime, tensor);
    OK(read(runtime, &bytes, ATTNRUN_MAP, &tensor));
    column = tensor->data;
    assert_memory_equal(((const attnrun_string *)column[0].data)[0].data, "k", 2);
    assert_int_equal(column[1].dtype, ATTNRUN_U8);
    assert_int_equal(((const uint8_t *)column[1].data)[0], 200);
    attnrun_tensor_free(runtime, tensor);
    pb_free(&packed);
    pb_free(&texts);
    pb_free(&empty);
    pb_free(&bytes);
    attnrun_runtime_destroy(runtime);
}

/* ---- what is wrong ---- */

static struct pb bytes_of(const char *bytes, size_t n)
{
    struct pb pb = { 0 };
    pb_put(&pb, bytes, n);
    return pb;
}

static void test_messages_that_are_none(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } broken[] = {
        { "\x80", 1 }, /* a tag without an end */
        { "\x0a", 1 }, /* a length that is missing */
        { "\x0a\x05"
          "ab",
          4 },                                 /* a length past the end */
        { "\x00\x01", 2 },                     /* field 0 */
        { "\x02\x00", 2 },                     /* field 0 of bytes */
        { "\x0d\x01\x02\x03\x04", 5 },         /* a fixed number */
        { "\xff\xff\xff\xff\xff\x01\x00", 7 }, /* a field past 2^32 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        for (int kind = ATTNRUN_SEQUENCE; kind <= ATTNRUN_MAP_SEQUENCE; kind++)
            refuse(bytes_of(broken[i].bytes, broken[i].n), kind, ATTNRUN_E_PARSE,
                   "not a sequence, optional or map");
}

static void test_wrong_sequences(void **state)
{
    struct pb pb = { 0 }, deep = { 0 }, inner = sequence_of(1, F32), broken = { 0 };
    char name[5000];
    (void)state;
    pb_int(&pb, 1, 4);
    refuse(pb, ATTNRUN_SEQUENCE, ATTNRUN_E_PARSE, "the name is not a string");
    memset(name, 'n', sizeof name);
    pb = (struct pb){ 0 };
    pb_bytes(&pb, 1, name, sizeof name);
    refuse(pb, ATTNRUN_SEQUENCE, ATTNRUN_E_PARSE, "the name is not a string");
    pb_message(&deep, 5, &inner);
    refuse(deep, ATTNRUN_SEQUENCE, ATTNRUN_E_UNSUPPORTED, "only tensors");
    refuse(sequence_of(2, F32), ATTNRUN_MAP_SEQUENCE, ATTNRUN_E_UNSUPPORTED, "only maps");
    pb = (struct pb){ 0 };
    pb_int(&pb, 3, 1);
    refuse(pb, ATTNRUN_SEQUENCE, ATTNRUN_E_PARSE, "there is a number where a message");
    pb = sequence_of(2, F32);
    put_numbers(&pb, 3, 1, I64);
    refuse(pb, ATTNRUN_SEQUENCE, ATTNRUN_E_DTYPE, "element 2 of the sequence");
    pb = (struct pb){ 0 };
    pb_int(&broken, 2, 99);
    pb_message(&pb, 3, &broken);
    refuse(pb, ATTNRUN_SEQUENCE, ATTNRUN_E_MODEL, "data_type is 99");
    pb = (struct pb){ 0 };
    pb = number_of(F32);
    pb_int(&pb, 14, 1); /* data_location: another file */
    refuse(pb, ATTNRUN_TENSOR, ATTNRUN_E_MODEL, "is external and has raw_data");
    pb = (struct pb){ 0 };
    pb_int(&pb, 2, F32);
    pb_int(&pb, 14, 1);
    refuse(pb, ATTNRUN_TENSOR, ATTNRUN_E_PATH, "external data is not allowed here");
    refuse(number_of(F32), 0, ATTNRUN_E_USAGE, "kind 0");
    refuse(number_of(F32), 7, ATTNRUN_E_USAGE, "kind 7");
}

static void test_wrong_optionals(void **state)
{
    static const uint32_t fields[] = { 4, 6, 7 };
    struct pb pb;
    (void)state;
    for (int i = 0; i < 3; i++) {
        pb = (struct pb){ 0 };
        pb_string(&pb, fields[i], "");
        refuse(pb, ATTNRUN_OPTIONAL, ATTNRUN_E_UNSUPPORTED, "only tensors");
    }
    pb = (struct pb){ 0 };
    pb_int(&pb, 3, 1);
    refuse(pb, ATTNRUN_OPTIONAL, ATTNRUN_E_PARSE, "there is a number where a message");
    pb = (struct pb){ 0 };
    pb_int(&pb, 1, 1);
    refuse(pb, ATTNRUN_OPTIONAL, ATTNRUN_E_PARSE, "the name is not a string");
}

static void test_wrong_maps(void **state)
{
    struct pb pb = int_map(2);
    (void)state;
    pb_int(&pb, 3, 9);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "3 keys and 2 values");
    pb = int_map(2);
    pb_string(&pb, 4, "text");
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "keys of two types");
    pb = (struct pb){ 0 };
    pb_bytes(&pb, 3, "\x80", 1);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "fewer keys");
    pb = (struct pb){ 0 };
    pb_int(&pb, 4, 1);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "there is a number where a message");
    pb = (struct pb){ 0 };
    pb_int(&pb, 5, 1);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "there is a number where a message");
    pb = (struct pb){ 0 };
    pb_int(&pb, 3, 1);
    put_values(&pb, 1, U4);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_UNSUPPORTED, "values of u4");
    pb = (struct pb){ 0 };
    for (int i = 0; i < 1 << 20; i++)
        pb_int(&pb, 3, i & 1);
    struct pb more = { 0 };
    pb_put(&more, pb.data, pb.bytes);
    pb_int(&more, 3, 2);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "1048576 keys and 0 values");
    refuse(more, ATTNRUN_MAP, ATTNRUN_E_LIMIT, "more than 1048576 entries");
    struct pb values = { 0 }, two = { 0 };
    pb = (struct pb){ 0 };
    pb_int(&pb, 3, 1);
    pb_int(&two, 1, 2);
    pb_int(&two, 2, F32);
    pb_bytes(&two, 9, "12345678", 8);
    pb_message(&values, 3, &two);
    pb_message(&pb, 5, &values);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_UNSUPPORTED, "expected one f32");
    pb = (struct pb){ 0 };
    pb_int(&pb, 1, 1);
    refuse(pb, ATTNRUN_MAP, ATTNRUN_E_PARSE, "the name is not a string");
}

static void test_wrong_calls(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    attnrun_tensor *tensor = NULL;
    (void)state;
    FAILS(ATTNRUN_E_USAGE, "the tensor or the data is NULL",
          attnrun_tensor_from_pb(runtime, NULL, 1, ATTNRUN_TENSOR, &tensor, NULL));
    FAILS(ATTNRUN_E_USAGE, "the tensor or the data is NULL",
          attnrun_tensor_from_pb(runtime, "", 0, ATTNRUN_TENSOR, NULL, NULL));
    FAILS(ATTNRUN_E_LIMIT,
          "the message has 18446744073709551615 bytes (limit 'file_bytes')",
          attnrun_tensor_from_pb(runtime, "", UINT64_MAX, ATTNRUN_TENSOR, &tensor, NULL));
    OK(attnrun_tensor_from_pb(NULL, NULL, 0, ATTNRUN_SEQUENCE, &tensor, NULL));
    assert_int_equal(tensor->dims[0], 0);
    attnrun_tensor_free(NULL, tensor);
    attnrun_runtime_destroy(runtime);
}

static void test_memory_that_runs_out(void **state)
{
    int64_t refused = 0;
    (void)state;
    attn_pool_apart = true; /* each piece of a pool is an allocation */
    for (int kind = ATTNRUN_TENSOR; kind <= ATTNRUN_MAP_SEQUENCE; kind++)
        for (int64_t call = 0;; call++) {
            struct pb pb =
                kind == ATTNRUN_MAP && call % 2 ? text_map() : message_of(kind);
            struct test_memory memory;
            attnrun_tensor *tensor;
            test_memory_init(&memory);
            attnrun_runtime *runtime = make_runtime(&memory, 1);
            memory.fail_at = memory.calls + call / 2;
            const attnrun_status status = read(runtime, &pb, kind, &tensor);
            const bool failed = memory.failed > 0;
            if (failed)
                FAILS(ATTNRUN_E_MEMORY, "", status);
            refused += status != ATTNRUN_OK;
            attnrun_tensor_free(runtime, tensor);
            attnrun_runtime_destroy(runtime);
            test_memory_check(&memory);
            pb_free(&pb);
            if (!failed && call % 2 == 1)
                break;
        }
    attn_pool_apart = false;
    assert_true(refused > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_messages_that_are_none),
        cmocka_unit_test(test_wrong_sequences),
        cmocka_unit_test(test_wrong_optionals),
        cmocka_unit_test(test_wrong_maps),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

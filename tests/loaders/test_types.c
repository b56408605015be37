/* test_types.c - types of inputs as a file has them: tensors with and without a shape, sequences,
 * optionals and maps; and those that are refused. */
#include "run_model.h"

enum { F32 = 1, I64 = 7, TEXT = 8 };

/* A tensor of `dtype`; n dims, the last of which has this name; n < 0: no shape. */
static struct pb named_type(int64_t dtype, int n, const char *name)
{
    struct pb type = { 0 }, tensor = { 0 }, shape = { 0 };
    pb_int(&tensor, 1, dtype);
    for (int i = 0; i < n; i++) {
        struct pb dim = { 0 };
        if (i == n - 1)
            pb_string(&dim, 2, name);
        else
            pb_int(&dim, 1, i + 2);
        pb_message(&shape, 1, &dim);
    }
    if (n >= 0)
        pb_message(&tensor, 2, &shape);
    pb_message(&type, 1, &tensor);
    return type;
}

static struct pb tensor_type(int64_t dtype, int n) { return named_type(dtype, n, "N"); }

/* `inner` as the element (field 1) of a sequence (4) or an optional (9). */
static struct pb around(uint32_t field, struct pb inner)
{
    struct pb type = { 0 }, message = { 0 };
    pb_message(&message, 1, &inner);
    pb_message(&type, field, &message);
    return type;
}

static struct pb map_type(int64_t key, struct pb value)
{
    struct pb type = { 0 }, map = { 0 };
    pb_int(&map, 1, key);
    pb_message(&map, 2, &value);
    pb_message(&type, 5, &map);
    return type;
}

static struct pb sparse_type(void)
{
    struct pb type = { 0 }, sparse = { 0 };
    pb_int(&sparse, 1, F32);
    pb_message(&type, 8, &sparse);
    return type;
}

/* A model whose second input, which nothing reads, is of that type. */
static struct pb model_with(struct pb *type)
{
    struct pb graph = { 0 }, info = { 0 };
    pb_add_node(&graph, 1, "", "Relu", "x", "y");
    pb_string(&graph, 2, "g");
    pb_value(&graph, 11, "x", 3);
    pb_string(&info, 1, "given");
    pb_message(&info, 2, type);
    pb_message(&graph, 11, &info);
    pb_value(&graph, 12, "y", 3);
    return pb_model(&graph);
}

static attnrun_value_info input_of(struct pb type)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_model *model = NULL;
    struct pb pb = model_with(&type);
    if (open_bytes(pb.data, pb.bytes, 0, &model) != ATTNRUN_OK)
        fail_msg("%s", attnrun_last_error()->message);
    assert_int_equal(attnrun_model_input(model, 1, &info), ATTNRUN_OK);
    info.name = NULL;
    attnrun_model_release(model);
    pb_free(&pb);
    return info;
}

static void types_of_tensors(void **state)
{
    (void)state;
    attnrun_value_info info = input_of(tensor_type(I64, -1));
    assert_int_equal(info.kind, ATTNRUN_TENSOR);
    assert_int_equal(info.dtype, ATTNRUN_I64);
    assert_int_equal(info.rank, -1);
    info = input_of(tensor_type(F32, 0));
    assert_int_equal(info.rank, 0);
    info = input_of(tensor_type(F32, 3));
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.dims[0], 2);
    assert_int_equal(info.dims[1], 3);
    assert_int_equal(info.dims[2], -1);
    assert_string_equal(info.dim_names[2], "N");
    assert_string_equal(info.dim_names[1], "");
}

/* Exporters name axes by their numbers, too. */
static void types_of_dims_named_by_numbers(void **state)
{
    static const char *const names[] = { "0", "4", "2*3" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const attnrun_value_info info = input_of(named_type(F32, 2, names[i]));
        assert_int_equal(info.dims[0], 2);
        assert_int_equal(info.dims[1], -1);
        assert_string_equal(info.dim_names[1], names[i]);
    }
}

static void types_of_others(void **state)
{
    static const struct {
        int32_t kind, dtype, key;
    } rows[] = {
        { ATTNRUN_SEQUENCE, ATTNRUN_I64, 0 },
        { ATTNRUN_OPTIONAL, ATTNRUN_F32, 0 },
        { ATTNRUN_OPTIONAL_SEQUENCE, ATTNRUN_F32, 0 },
        { ATTNRUN_MAP, ATTNRUN_F32, ATTNRUN_I64 },
        { ATTNRUN_MAP, ATTNRUN_I64, ATTNRUN_STRING },
        { ATTNRUN_MAP_SEQUENCE, ATTNRUN_F32, ATTNRUN_STRING },
    };
    struct pb types[] = {
        around(4, tensor_type(I64, -1)),
        around(9, tensor_type(F32, 1)),
        around(9, around(4, tensor_type(F32, -1))),
        map_type(I64, tensor_type(F32, -1)),
        map_type(TEXT, tensor_type(I64, 0)),
        around(4, map_type(TEXT, tensor_type(F32, -1))),
    };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const attnrun_value_info info = input_of(types[k]);
        assert_int_equal(info.kind, rows[k].kind);
        assert_int_equal(info.dtype, rows[k].dtype);
        assert_int_equal(info.key_dtype, rows[k].key);
        assert_int_equal(info.rank, -1);
    }
}

static void refuses(struct pb type, attnrun_status status, const char *words)
{
    struct pb pb = model_with(&type);
    assert_int_equal(try_bytes(pb.data, pb.bytes, 0), status);
    if (strstr(attnrun_last_error()->message, words) == NULL)
        fail_msg("'%s', expected '%s'", attnrun_last_error()->message, words);
    pb_free(&pb);
}

static void types_that_are_refused(void **state)
{
    (void)state;
    refuses(tensor_type(99, 1), ATTNRUN_E_UNSUPPORTED,
            "the element type is 99, expected 1 to ");
    refuses(map_type(F32, tensor_type(F32, 0)), ATTNRUN_E_UNSUPPORTED,
            "keys of element type 1, expected i64");
    refuses(map_type(I64, around(4, tensor_type(F32, 0))), ATTNRUN_E_UNSUPPORTED,
            "something other than tensors");
    refuses(around(4, around(4, tensor_type(F32, 0))), ATTNRUN_E_UNSUPPORTED,
            "something other than tensors");
    refuses(around(9, map_type(I64, tensor_type(F32, 0))), ATTNRUN_E_UNSUPPORTED,
            "something other than tensors");
    refuses(sparse_type(), ATTNRUN_E_UNSUPPORTED, "the type is sparse or opaque");
    refuses((struct pb){ 0 }, ATTNRUN_E_MODEL, "it has no type");
    refuses(tensor_type(0, 1), ATTNRUN_E_MODEL, "it has no type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_tensors),
        cmocka_unit_test(types_of_dims_named_by_numbers),
        cmocka_unit_test(types_of_others),
        cmocka_unit_test(types_that_are_refused),
    };
    return cmocka_run_group_tests(tests, start_runtime, stop_runtime);
}

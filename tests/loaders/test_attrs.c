/* test_attrs.c - attributes of every kind, with and without their type, as files of IR 1 have them;
 * what is refused; and texts that are repeated, which share memory. */
#include "run_model.h"

#include "../../runtime/model.h"

enum { TYPE = 20, N = 3 };

static void put_float(struct pb *m, uint32_t field, float value)
{
    pb_varint(m, field << 3 | 5);
    pb_put(m, &value, sizeof value);
}

static void put_tensor(struct pb *attr, uint32_t field, float value)
{
    struct pb tensor = pb_f32("t", &value, 1);
    pb_message(attr, field, &tensor);
}

/* 1.5 at index 1 of [3]. */
static void put_sparse_as(struct pb *attr, uint32_t field)
{
    const float value = 1.5f;
    struct pb sparse = { 0 }, values = pb_f32("v", &value, 1), indices = { 0 };
    pb_int(&indices, 1, 1);
    pb_int(&indices, 2, 7);
    pb_int(&indices, 7, 1);
    pb_message(&sparse, 1, &values);
    pb_message(&sparse, 2, &indices);
    pb_int(&sparse, 3, N);
    pb_message(attr, field, &sparse);
}

static void put_value(struct pb *attr, int64_t type)
{
    switch (type) {
    case 1:
        put_float(attr, 2, 1.5f);
        break;
    case 2:
        pb_int(attr, 3, 3);
        break;
    case 3:
        pb_string(attr, 4, "text");
        break;
    case 4:
        put_tensor(attr, 5, 1.5f);
        break;
    case 6:
        for (int i = 0; i < N; i++)
            put_float(attr, 7, (float)i);
        break;
    case 7:
        for (int i = 0; i < N; i++)
            pb_int(attr, 8, i);
        break;
    case 8:
        pb_string(attr, 9, "one");
        pb_string(attr, 9, "two");
        break;
    default:
        put_sparse_as(attr, 22);
        break;
    }
}

/* y = x + Constant, or x + the number of texts of a Constant. */
static struct pb constant_model(const char *name, struct pb *attr, bool texts)
{
    struct pb graph = { 0 }, node = pb_node("", "Constant", "", "c"), cast, to = { 0 },
              message = { 0 };
    pb_string(&message, 1, name);
    pb_put(&message, attr->data, attr->bytes);
    pb_free(attr);
    pb_message(&node, 5, &message);
    pb_message(&graph, 1, &node);
    if (texts)
        pb_add_node(&graph, 1, "", "Size", "c", "n");
    cast = pb_node("", "Cast", texts ? "n" : "c", "f");
    pb_string(&to, 1, "to");
    pb_int(&to, TYPE, 2);
    pb_int(&to, 3, 1);
    pb_message(&cast, 5, &to);
    pb_message(&graph, 1, &cast);
    pb_add_node(&graph, 1, "", "Add", "x,f", "y");
    pb_string(&graph, 2, "g");
    pb_value(&graph, 11, "x", N);
    pb_value(&graph, 12, "y", N);
    return pb_model(&graph);
}

static const struct row {
    int64_t type;
    const char *name;
    bool texts;
    float adds[N];
} rows[] = {
    { 1, "value_float", false, { 1.5f, 1.5f, 1.5f } },
    { 2, "value_int", false, { 3, 3, 3 } },
    { 3, "value_string", true, { 1, 1, 1 } },
    { 4, "value", false, { 1.5f, 1.5f, 1.5f } },
    { 6, "value_floats", false, { 0, 1, 2 } },
    { 7, "value_ints", false, { 0, 1, 2 } },
    { 8, "value_strings", true, { 2, 2, 2 } },
    { 11, "sparse_value", false, { 0, 1.5f, 0 } },
};

static void attrs_of_each_kind(void **state)
{
    static const float x[N] = { 1, 2, 4 };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int typed = 0; typed < 3; typed++) {
            struct pb attr = { 0 };
            float y[N];
            put_value(&attr, rows[k].type);
            if (typed > 0)
                pb_int(&attr, TYPE, typed == 1 ? rows[k].type : 0);
            struct pb model = constant_model(rows[k].name, &attr, rows[k].texts);
            const attnrun_status status = run_model(&model, 0, x, N, y);
            if (status != ATTNRUN_OK)
                fail_msg("%s: %s", rows[k].name, attnrun_last_error()->message);
            for (int i = 0; i < N; i++)
                assert_float_equal(y[i], x[i] + rows[k].adds[i], 0);
        }
}

static void fails(const char *name, struct pb *attr, const char *words)
{
    struct pb model = constant_model(name, attr, false);
    assert_int_equal(try_bytes(model.data, model.bytes, 0), ATTNRUN_E_MODEL);
    if (strstr(attnrun_last_error()->message, words) == NULL)
        fail_msg("'%s', expected '%s'", attnrun_last_error()->message, words);
    pb_free(&model);
}

static void attrs_that_are_refused(void **state)
{
    static const int64_t types[] = { 4, 5, 11, 13, 15, 100, -1 };
    static const char *const words[] = { "has none",        "has none",
                                         "has none",        "has none",
                                         "is of type 15, ", "is of type 100, ",
                                         "is of type -1, " };
    struct pb attr = { 0 };
    (void)state;
    fails("value_float", &attr, "is of type 0, expected 1 to 14");
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        put_float(&attr, 2, 1);
        pb_int(&attr, TYPE, types[k]);
        fails("value", &attr, words[k]);
    }
    struct pb tensor = { 0 };
    pb_int(&tensor, 1, 2);
    pb_int(&tensor, 2, 1);
    pb_string(&tensor, 8, "t");
    pb_message(&attr, 5, &tensor);
    fails("value", &attr, "tensor 't' has no data, expected f32[2]");
    tensor = pb_f32("t", (const float[]){ 1 }, 1);
    pb_int(&tensor, 1, 2);
    pb_message(&attr, 5, &tensor);
    fails("value", &attr, "tensor 't': raw_data has 4 bytes, expected 8 for f32[1,2]");
}

static void constants_with_operands(void **state)
{
    static const char *const wrong[][3] = { { "x", "c", "1 input and 1 output" },
                                            { "", "c,d", "0 inputs and 2 outputs" } };
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct pb graph = { 0 }, node = pb_node("", "Constant", wrong[k][0], wrong[k][1]),
                  attr = { 0 };
        pb_string(&attr, 1, "value_float");
        put_float(&attr, 2, 1);
        pb_message(&node, 5, &attr);
        pb_message(&graph, 1, &node);
        pb_add_node(&graph, 1, "", "Add", "x,c", "y");
        pb_string(&graph, 2, "g");
        pb_value(&graph, 11, "x", N);
        pb_value(&graph, 12, "y", N);
        struct pb pb = pb_model(&graph);
        assert_int_equal(try_bytes(pb.data, pb.bytes, 0), ATTNRUN_E_MODEL);
        if (strstr(attnrun_last_error()->message, wrong[k][2]) == NULL)
            fail_msg("'%s', expected '%s'", attnrun_last_error()->message, wrong[k][2]);
        pb_free(&pb);
    }
}

static void attrs_that_come_twice(void **state)
{
    static const char *const names[] = { "axis", "other", "alpha", "other" };
    (void)state;
    for (int n = 2; n <= 4; n++) {
        struct pb graph = { 0 }, node = pb_node("f", "Thing", "x", "y");
        for (int i = 0; i < n; i++) {
            struct pb attr = { 0 };
            pb_string(&attr, 1, names[i]);
            put_float(&attr, 2, 1);
            pb_message(&node, 5, &attr);
        }
        pb_message(&graph, 1, &node);
        pb_string(&graph, 2, "g");
        pb_value(&graph, 11, "x", N);
        pb_value(&graph, 12, "y", N);
        struct pb pb = pb_model(&graph);
        const attnrun_status status = try_bytes(pb.data, pb.bytes, ATTNRUN_ALLOW_MISSING);
        assert_int_equal(status, n < 4 ? ATTNRUN_OK : ATTNRUN_E_MODEL);
        if (n == 4)
            assert_non_null(
                strstr(attnrun_last_error()->message, "attribute 'other' appears twice"));
        pb_free(&pb);
    }
}

/* No operator takes lists of tensors; a model that is only looked at has them. */
static void attrs_that_are_lists_of_tensors(void **state)
{
    (void)state;
    struct pb graph = { 0 }, node = pb_node("f", "Thing", "x", "y"), dense = { 0 },
              sparse = { 0 };
    pb_string(&dense, 1, "dense");
    for (int i = 0; i < N; i++)
        put_tensor(&dense, 10, (float)i);
    pb_int(&dense, TYPE, 9);
    pb_message(&node, 5, &dense);
    pb_string(&sparse, 1, "sparse");
    for (int i = 0; i < 2; i++) {
        struct pb one = { 0 };
        put_sparse_as(&one, 23);
        pb_put(&sparse, one.data, one.bytes);
        pb_free(&one);
    }
    pb_int(&sparse, TYPE, 12);
    pb_message(&node, 5, &sparse);
    pb_message(&graph, 1, &node);
    pb_string(&graph, 2, "g");
    pb_value(&graph, 11, "x", N);
    pb_value(&graph, 12, "y", N);
    struct pb pb = pb_model(&graph);
    attnrun_model *model = NULL;
    assert_int_equal(open_bytes(pb.data, pb.bytes, ATTNRUN_ALLOW_MISSING, &model),
                     ATTNRUN_OK);
    const struct attn_node *read = model_of(model)->graph->nodes[0];
    assert_int_equal(read->n_attrs, 2);
    for (int a = 0; a < 2; a++) {
        const attnrun_tensor *list = &read->attrs[a].tensor, *items = list->data;
        assert_int_equal(list->kind, ATTNRUN_SEQUENCE);
        assert_int_equal(list->dtype, ATTNRUN_F32);
        assert_int_equal(list->dims[0], a == 0 ? N : 2);
        for (int i = 0; i < list->dims[0]; i++) {
            assert_int_equal(attnrun_tensor_count(&items[i]), a == 0 ? 1 : N);
            assert_float_equal(((const float *)items[i].data)[a],
                               a == 0 ? (float)i : 1.5f, 0);
        }
    }
    attnrun_model_release(model);
    pb_free(&pb);
}

/* 2,000 texts of 1,000 bytes, of which there are four; five in turn are all copied. */
static void attrs_of_the_same_texts(void **state)
{
    enum { TEXTS = 2000, BYTES = 1000 };
    static char text[BYTES + 1];
    (void)state;
    for (int distinct = 4; distinct <= 5; distinct++) {
        struct pb attr = { 0 };
        memset(text, 'a', BYTES);
        for (int i = 0; i < TEXTS; i++) {
            text[BYTES - 1] = (char)('a' + i % distinct);
            pb_string(&attr, 9, text);
        }
        struct pb pb = constant_model("value_strings", &attr, true);
        const uint64_t before = memory_in_use();
        attnrun_model *model = NULL;
        assert_int_equal(open_bytes(pb.data, pb.bytes, ATTNRUN_NO_FUSION, &model),
                         ATTNRUN_OK);
        const uint64_t used = memory_in_use() - before;
        if (distinct == 4 ? used > TEXTS * BYTES / 2 : used < TEXTS * BYTES)
            fail_msg("%d texts of %d take %d bytes", TEXTS, distinct, (int)used);
        attnrun_model_release(model);
        pb_free(&pb);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attrs_of_each_kind),
        cmocka_unit_test(attrs_that_are_refused),
        cmocka_unit_test(constants_with_operands),
        cmocka_unit_test(attrs_that_come_twice),
        cmocka_unit_test(attrs_that_are_lists_of_tensors),
        cmocka_unit_test(attrs_of_the_same_texts),
    };
    return cmocka_run_group_tests(tests, start_runtime, stop_runtime);
}

/* test_heads.c - what TopKAttention says of heads, ranks and sizes that do not fit (core/heads.c):
 * each row is a model that is refused, with the operand or attribute and what was expected. */
#include "../runtime/harness.h"

struct row {
    const char *q, *k, *v, *attributes;
    attnrun_status status; /* OK: it opens */
    const char *text;
};

static const struct row rows[] = {
    { "2,4,3,8", "2,4,5,8", "2,4,5,6", "", ATTNRUN_OK, "" },
    { "2,4,3,8", "2,2,5,8", "2,2,5,6", "", ATTNRUN_OK, "" },
    { "2,3,32", "2,5,16", "2,5,12", "q_num_heads=4 kv_num_heads=2", ATTNRUN_OK, "" },
    { "2,4,3,8", "2,4,5,8", "2,4,5,6", "is_causal=2", ATTNRUN_E_ATTR,
      "is_causal is 2, expected 0 to 1" },
    { "2,4,3,8", "2,4,5,8", "2,4,5,6", "scale=0.0", ATTNRUN_E_ATTR,
      "scale is 0, expected a finite number other than 0" },
    { "2,4,3,8", "2,4,5,8", "2,4,5,6", "q_num_heads=4", ATTNRUN_E_ATTR,
      "q_num_heads is given, expected none with inputs of rank 4" },
    { "2,4,3,8", "2,4,5,8", "2,4,5,6", "kv_num_heads=4", ATTNRUN_E_ATTR,
      "kv_num_heads is given, expected none with inputs of rank 4" },
    { "2,3,32", "2,5,32", "2,5,32", "", ATTNRUN_E_ATTR, "q_num_heads is missing" },
    { "2,3,32", "2,5,32", "2,5,32", "q_num_heads=0 kv_num_heads=4", ATTNRUN_E_ATTR,
      "q_num_heads is 0, expected 1 to " },
    { "2,3,32", "2,5,32", "2,5,32", "q_num_heads=4 kv_num_heads=-1", ATTNRUN_E_ATTR,
      "kv_num_heads is -1, expected 1 to " },
    { "2,3,32", "2,5,32", "2,5,32", "q_num_heads=4 kv_num_heads=3", ATTNRUN_E_ATTR,
      "q_num_heads is 4, expected a multiple of kv_num_heads, 3" },
    { "2,3,30", "2,5,32", "2,5,32", "q_num_heads=4 kv_num_heads=4", ATTNRUN_E_SHAPE,
      "expected a multiple of 4 heads in dim 2" },
    { "1,2,4,3,8", "1,2,4,5,8", "1,2,4,5,6", "", ATTNRUN_E_SHAPE,
      "expected rank 3 to 4" },
    { "3,8", "5,8", "5,6", "", ATTNRUN_E_SHAPE, "expected rank 3 to 4" },
    { "2,4,3,8", "2,5,32", "2,4,5,6", "", ATTNRUN_E_SHAPE,
      "expected rank 4, as the other operands have" },
    { "2,4,3,8", "1,4,5,8", "2,4,5,6", "", ATTNRUN_E_SHAPE,
      "its batch is 1, expected 2" },
    { "2,4,3,8", "2,4,5,8", "1,4,5,6", "", ATTNRUN_E_SHAPE,
      "its batch is 1, expected 2" },
    { "2,4,3,8", "2,4,5,8", "2,2,5,6", "", ATTNRUN_E_SHAPE,
      "its number of heads is 2, expected 4" },
    { "2,4,3,8", "2,4,5,7", "2,4,5,6", "", ATTNRUN_E_SHAPE,
      "its head size is 7, expected 8" },
    { "2,4,3,8", "2,4,5,8", "2,4,4,6", "", ATTNRUN_E_SHAPE,
      "its number of keys is 4, expected 5" },
    { "2,4,3,8", "2,3,5,8", "2,3,5,6", "", ATTNRUN_E_SHAPE,
      "its number of heads, 3, does not divide 4 query heads" },
    { "2,4,3,0", "2,4,5,0", "2,4,5,6", "", ATTNRUN_E_SHAPE, "its head size is 0" },
    { "2,4,3,8", "2,4,5,8", "2,4,5,0", "", ATTNRUN_OK, "" },
    /* What is not known of one operand comes from the others. */
    { "B,4,3,8", "2,4,5,D", "2,H,L,6", "", ATTNRUN_OK, "" },
    { NULL, "2,4,5,8", "2,4,5,6", "", ATTNRUN_OK, "" },
};

static attnrun_status open_row(attnrun_runtime *runtime, const struct row *row)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_domain(w, "attnrun");
    attnrun_model *model = NULL;
    size_t bytes;
    onnx_input(w, "q", ATTNRUN_F32, row->q);
    onnx_input(w, "k", ATTNRUN_F32, row->k);
    onnx_input(w, "v", ATTNRUN_F32, row->v);
    onnx_node(w, "attnrun::TopKAttention", "q,k,v", "y");
    onnx_attr_int(w, "k", 3);
    onnx_attrs(w, row->attributes);
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    uint8_t *data = onnx_end(w, &bytes);
    const attnrun_status status = open_bytes(runtime, data, bytes, ATTNRUN_COPY, &model);
    attnrun_model_release(model);
    free(data);
    return status;
}

static void test_heads_that_do_not_fit(void **state)
{
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        if (rows[k].status == ATTNRUN_OK)
            OK(open_row(runtime, &rows[k]));
        else
            FAILS(rows[k].status, rows[k].text, open_row(runtime, &rows[k]));
    }
    attnrun_runtime_destroy(runtime);
}

/* Sizes of the output, in both layouts. */
static void test_heads_of_the_output(void **state)
{
    static const struct {
        const char *q, *k, *v, *attributes;
        int32_t rank;
        int64_t dims[4];
    } outputs[] = {
        { "2,4,3,8", "2,2,5,8", "2,2,5,6", "", 4, { 2, 4, 3, 6 } },
        { "2,3,32", "2,5,16", "2,5,12", "q_num_heads=4 kv_num_heads=2", 3, { 2, 3, 24 } },
    };
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        struct onnx_writer *w = onnx_begin(17);
        onnx_domain(w, "attnrun");
        onnx_input(w, "q", ATTNRUN_F32, outputs[k].q);
        onnx_input(w, "k", ATTNRUN_F32, outputs[k].k);
        onnx_input(w, "v", ATTNRUN_F32, outputs[k].v);
        onnx_node(w, "attnrun::TopKAttention", "q,k,v", "y");
        onnx_attr_int(w, "k", 3);
        onnx_attrs(w, outputs[k].attributes);
        onnx_output(w, "y", ATTNRUN_F32, NULL);
        attnrun_model *model = open_model(runtime, w, 0);
        OK(attnrun_model_output(model, 0, &info));
        assert_int_equal(info.rank, outputs[k].rank);
        for (int i = 0; i < info.rank; i++)
            assert_int_equal(info.dims[i], outputs[k].dims[i]);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_that_do_not_fit),
        cmocka_unit_test(test_heads_of_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

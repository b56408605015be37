/* test_operand.c - element types of sequences, optionals and untyped inputs: what does
 * not fit is refused before an operator reads it. */
#include "harness.h"

#include "operand.h"

struct bench {
    struct test_memory memory;
    attnrun_runtime *runtime;
    attnrun_model *model;
    attnrun_context *context;
};

static void start(struct bench *bench, struct onnx_writer *w)
{
    test_memory_init(&bench->memory);
    bench->runtime = make_runtime(&bench->memory, 1);
    bench->model = open_model(bench->runtime, w, 0);
    bench->context = make_context(bench->model);
}

static void stop(struct bench *bench)
{
    attnrun_context_destroy(bench->context);
    attnrun_model_release(bench->model);
    attnrun_runtime_destroy(bench->runtime);
    test_memory_check(&bench->memory);
}

static attnrun_tensor sequence_of(attnrun_tensor *items, int64_t n)
{
    return (attnrun_tensor){
        .kind = ATTNRUN_SEQUENCE, .rank = 1, .dims = { n }, .data = items
    };
}

static attnrun_tensor optional_of(int32_t kind, attnrun_tensor *inner)
{
    return (attnrun_tensor){ .kind = kind, .data = inner };
}

/* y = Relu(s[i]) of a sequence of f32. */
static struct onnx_writer *write_at(void)
{
    struct onnx_writer *w = onnx_begin(17);
    onnx_input_of(w, "s", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_input(w, "i", ATTNRUN_I64, "");
    onnx_node(w, "SequenceAt", "s,i", "t");
    onnx_node(w, "Relu", "t", "y");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    return w;
}

static void test_operand_elements_of_a_sequence(void **state)
{
    (void)state;
    struct bench bench;
    float x[3] = { -1, 0, 2 };
    uint8_t bytes[3] = { 1, 2, 3 };
    int64_t at = 1;
    start(&bench, write_at());
    attnrun_tensor items[2] = { tensor_of(ATTNRUN_F32, "3", x),
                                tensor_of(ATTNRUN_U8, "3", bytes) };
    attnrun_tensor list = sequence_of(items, 2);
    FAILS(ATTNRUN_E_DTYPE, "element 1 is u8[3], expected f32",
          attnrun_set_input(bench.context, 0, &list));
    list.dtype = ATTNRUN_U8; /* what the sequence says of itself */
    FAILS(ATTNRUN_E_DTYPE, "the model takes seq(f32",
          attnrun_set_input(bench.context, 0, &list));
    list.dtype = ATTNRUN_F32;
    FAILS(ATTNRUN_E_DTYPE, "element 1", attnrun_set_input(bench.context, 0, &list));
    items[1] = sequence_of(NULL, 0);
    FAILS(ATTNRUN_E_USAGE, "element 1", attnrun_set_input(bench.context, 0, &list));
    items[1] = tensor_of(ATTNRUN_F32, "3", NULL);
    FAILS(ATTNRUN_E_USAGE, "element 1", attnrun_set_input(bench.context, 0, &list));
    items[1] = tensor_of(ATTNRUN_F32, "3", x);
    items[1].rank = 9;
    FAILS(ATTNRUN_E_USAGE, "element 1", attnrun_set_input(bench.context, 0, &list));
    list.data = NULL;
    FAILS(ATTNRUN_E_USAGE, "has no data", attnrun_set_input(bench.context, 0, &list));
    list.rank = 2;
    FAILS(ATTNRUN_E_USAGE, "malformed", attnrun_set_input(bench.context, 0, &list));
    items[1] = tensor_of(ATTNRUN_F32, "3", x);
    list = sequence_of(items, 2);
    OK(attnrun_set_input(bench.context, 0, &list));
    set_input(bench.context, 1, ATTNRUN_I64, "", &at);
    OK(attnrun_run(bench.context, NULL));
    attnrun_tensor y = get_output(bench.context, 0);
    assert_int_equal(y.dtype, ATTNRUN_F32);
    assert_memory_equal(y.data, ((float[]){ 0, 0, 2 }), sizeof x);
    list = sequence_of(NULL, 0); /* empty: of whatever dtype the model says */
    OK(attnrun_set_input(bench.context, 0, &list));
    FAILS(ATTNRUN_E_RANGE, "position", attnrun_run(bench.context, NULL));
    stop(&bench);
}

/* Every second number, and one number twice. */
static void test_operand_strides_of_elements(void **state)
{
    (void)state;
    struct bench bench;
    float x[3] = { 1, 2, 3 };
    struct onnx_writer *w = onnx_begin(18);
    onnx_input_of(w, "s", ATTNRUN_SEQUENCE, ATTNRUN_F32);
    onnx_node(w, "ConcatFromSequence", "s", "y");
    onnx_attrs(w, "axis=-1 new_axis=1");
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    start(&bench, w);
    attnrun_tensor items[2] = { tensor_of(ATTNRUN_F32, "2", x),
                                tensor_of(ATTNRUN_F32, "2", &x[2]) };
    items[0].strides[0] = 2 * sizeof *x;
    items[1].strides[0] = 0;
    attnrun_tensor list = sequence_of(items, 2);
    OK(attnrun_set_input(bench.context, 0, &list));
    OK(attnrun_run(bench.context, NULL));
    attnrun_tensor y = get_output(bench.context, 0);
    assert_memory_equal(y.data, ((float[]){ 1, 3, 3, 3 }), 4 * sizeof *x);
    stop(&bench);
}

static void test_operand_content_of_an_optional(void **state)
{
    (void)state;
    static const int32_t kinds[] = { ATTNRUN_OPTIONAL, ATTNRUN_OPTIONAL_SEQUENCE };
    uint8_t bytes[3] = { 1, 2, 3 };
    for (int k = 0; k < 2; k++) {
        struct bench bench;
        struct onnx_writer *w = onnx_begin(18);
        onnx_input_of(w, "o", kinds[k], ATTNRUN_F32);
        onnx_node(w, "OptionalGetElement", "o", "e");
        onnx_node(w, k == 0 ? "Relu" : "SequenceLength", "e", "y");
        onnx_output(w, "y", k == 0 ? ATTNRUN_F32 : ATTNRUN_I64, NULL);
        start(&bench, w);
        attnrun_tensor item = tensor_of(ATTNRUN_U8, "3", bytes);
        attnrun_tensor list = sequence_of(&item, 1);
        attnrun_tensor inner = k == 0 ? item : list;
        attnrun_tensor optional = optional_of(kinds[k], &inner);
        FAILS(ATTNRUN_E_DTYPE, "element 0 is u8[3], expected f32",
              attnrun_set_input(bench.context, 0, &optional));
        inner = optional_of(kinds[k], NULL); /* an optional in an optional */
        FAILS(ATTNRUN_E_USAGE, "input 0 'o'",
              attnrun_set_input(bench.context, 0, &optional));
        optional.data = NULL;
        OK(attnrun_set_input(bench.context, 0, &optional));
        FAILS(ATTNRUN_E_RANGE, "holds nothing", attnrun_run(bench.context, NULL));
        stop(&bench);
    }
}

/* What a list of unknown dtype holds is of one dtype, and fits what reads it. */
static void test_operand_untyped_sequence(void **state)
{
    (void)state;
    struct bench bench;
    float x[2] = { 1, 2 };
    uint8_t bytes[2] = { 1, 2 };
    struct onnx_writer *w = onnx_begin(17);
    onnx_input_of(w, "s", ATTNRUN_SEQUENCE, 0);
    onnx_node(w, "SequenceLength", "s", "n");
    onnx_output(w, "n", ATTNRUN_I64, NULL);
    start(&bench, w);
    attnrun_tensor items[2] = { tensor_of(ATTNRUN_F32, "2", x),
                                tensor_of(ATTNRUN_U8, "2", bytes) };
    attnrun_tensor list = sequence_of(items, 2);
    FAILS(ATTNRUN_E_DTYPE, "element 1 is u8[2], expected f32",
          attnrun_set_input(bench.context, 0, &list));
    items[0] = tensor_of(ATTNRUN_U8, "2", bytes);
    OK(attnrun_set_input(bench.context, 0, &list));
    OK(attnrun_run(bench.context, NULL));
    attnrun_tensor n = get_output(bench.context, 0);
    assert_int_equal(*(int64_t *)n.data, 2);
    stop(&bench);
}

/* Scan takes tensors, SequenceMap makes sequences of tensors, Loop stacks tensors. */
static void test_operand_kinds_of_subgraph_values(void **state)
{
    (void)state;
    attnrun_model *model;
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    for (int which = 0; which < 3; which++) {
        static const char *const operators[] = { "Scan", "SequenceMap", "Loop" };
        static const char *const inputs[] = { "s", "s", "n,,s" };
        static const char *const says[] = { "expected a tensor", "other than tensors",
                                            "are not tensors" };
        static const attnrun_status expected[] = { ATTNRUN_E_DTYPE, ATTNRUN_E_UNSUPPORTED,
                                                   ATTNRUN_E_UNSUPPORTED };
        struct onnx_writer *w = onnx_begin(17);
        onnx_input_of(w, "s", ATTNRUN_SEQUENCE, ATTNRUN_F32);
        onnx_int(w, "n", 2);
        onnx_node(w, operators[which], inputs[which], which == 2 ? "last,y" : "y");
        if (which == 0)
            onnx_attr_int(w, "num_scan_inputs", 1);
        onnx_graph(w, "body");
        if (which == 2) {
            onnx_input(w, "turn", ATTNRUN_I64, "");
            onnx_input(w, "go", ATTNRUN_BOOL, "");
        }
        onnx_input(w, "e", ATTNRUN_F32, NULL);
        onnx_node(w, "SequenceConstruct", which == 2 ? "turn" : "e", "r");
        if (which == 2) {
            onnx_output(w, "go", ATTNRUN_BOOL, "");
            onnx_output(w, "e", ATTNRUN_F32, NULL);
        }
        onnx_output(w, "r", 0, NULL);
        onnx_graph_end(w);
        onnx_output(w, "y", 0, NULL);
        size_t bytes;
        uint8_t *data = onnx_end(w, &bytes);
        FAILS(expected[which], says[which], open_bytes(runtime, data, bytes, 0, &model));
        free(data);
    }
    attnrun_runtime_destroy(runtime);
}

/* Structs of a caller, by their kinds: one member of each is wrong. */
static void test_operand_forms(void **state)
{
    (void)state;
    static const int32_t kinds[] = { ATTNRUN_TENSOR,   ATTNRUN_SEQUENCE,
                                     ATTNRUN_MAP,      ATTNRUN_MAP_SEQUENCE,
                                     ATTNRUN_OPTIONAL, ATTNRUN_OPTIONAL_SEQUENCE,
                                     ATTNRUN_ABSENT,   77 };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const bool optional =
            kinds[k] == ATTNRUN_OPTIONAL || kinds[k] == ATTNRUN_OPTIONAL_SEQUENCE;
        const bool list = k >= 1 && k <= 3;
        attnrun_tensor right = tensor_of(ATTNRUN_F32, "3", NULL), wrong;
        right.kind = kinds[k];
        assert_int_equal(attn_value_well_formed(&right), k < 6);
        wrong = right;
        wrong.dtype = 99;
        assert_false(attn_value_well_formed(&wrong));
        wrong = right;
        wrong.rank = list ? 2 : ATTNRUN_MAX_RANK + 1;
        assert_int_equal(attn_value_well_formed(&wrong), optional);
        wrong = right;
        wrong.rank = -1;
        assert_int_equal(attn_value_well_formed(&wrong), optional);
        wrong = right;
        wrong.dims[0] = -1;
        assert_int_equal(attn_value_well_formed(&wrong), optional);
        wrong.dims[0] = INT64_MAX;
        assert_int_equal(attn_value_well_formed(&wrong), optional);
        wrong = right;
        wrong.rank = 3;
        wrong.dims[0] = wrong.dims[1] = wrong.dims[2] = INT64_C(1) << 30;
        assert_int_equal(attn_value_well_formed(&wrong), optional);
        wrong.rank = 2; /* counted, and too many */
        assert_int_equal(attn_value_well_formed(&wrong), optional);
    }
}

/* What a type at load may turn out to be. */
static void test_operand_types_at_run(void **state)
{
    (void)state;
    static const struct {
        int32_t kind, dtype, real_kind, real_dtype;
        bool may;
    } rows[] = {
        { ATTNRUN_TENSOR, ATTNRUN_F32, ATTNRUN_TENSOR, ATTNRUN_F32, true },
        { ATTNRUN_TENSOR, ATTNRUN_F32, ATTNRUN_TENSOR, ATTNRUN_F64, false },
        { ATTNRUN_TENSOR, 0, ATTNRUN_TENSOR, ATTNRUN_F64, true },
        { ATTNRUN_TENSOR, ATTNRUN_F32, ATTNRUN_TENSOR, 0, true },
        { ATTNRUN_TENSOR, ATTNRUN_F32, ATTNRUN_SEQUENCE, ATTNRUN_F32, false },
        { ATTNRUN_ABSENT, 0, ATTNRUN_SEQUENCE, ATTNRUN_F32, true },
        { ATTNRUN_OPTIONAL, ATTNRUN_F32, ATTNRUN_TENSOR, ATTNRUN_F32, true },
        { ATTNRUN_OPTIONAL, ATTNRUN_F32, ATTNRUN_SEQUENCE, ATTNRUN_F32, false },
        { ATTNRUN_OPTIONAL_SEQUENCE, ATTNRUN_F32, ATTNRUN_SEQUENCE, ATTNRUN_F32, true },
        { ATTNRUN_OPTIONAL_SEQUENCE, ATTNRUN_F32, ATTNRUN_TENSOR, ATTNRUN_F32, false },
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const attnrun_type type = { .kind = rows[k].kind, .dtype = rows[k].dtype };
        assert_int_equal(attn_value_may_be(&type, rows[k].real_kind, rows[k].real_dtype),
                         rows[k].may);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operand_elements_of_a_sequence),
        cmocka_unit_test(test_operand_strides_of_elements),
        cmocka_unit_test(test_operand_content_of_an_optional),
        cmocka_unit_test(test_operand_untyped_sequence),
        cmocka_unit_test(test_operand_kinds_of_subgraph_values),
        cmocka_unit_test(test_operand_forms),
        cmocka_unit_test(test_operand_types_at_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

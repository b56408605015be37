/* test_packed_words.c - single words of the graph part of a packed file that are not what was
 * written: which of them are refused, with which status and sentence. */
#include "packed_file.h"

#include "../../runtime/dim_table.h"

static int64_t *words_of(struct file *file)
{
    return (int64_t *)(void *)(file->data + head_of(file)->graph_at);
}

/* The word behind `text`, the first one from `from` on. */
static int64_t behind_text(struct file *file, int64_t from, const char *text)
{
    const int64_t *words = words_of(file), n = (int64_t)strlen(text);
    const int64_t n_words = (int64_t)head_of(file)->graph_bytes / 8;
    for (int64_t at = from; at + 1 + n / 8 < n_words; at++)
        if (words[at] == n && strcmp((const char *)&words[at + 1], text) == 0)
            return at + 2 + n / 8;
    fail_msg("the graph has no text '%s' from word %d on", text, (int)from);
    return 0;
}

/* The parts of a value, and behind it the word that says where its constant is. */
enum { OUTER, KIND, DTYPE, RANK, KEY_DTYPE, DIMS };

static int64_t constant_of(struct file *file, int64_t value)
{
    const int64_t *words = words_of(file);
    int64_t at = value + DIMS;
    for (int64_t i = 0; i < words[value + RANK]; i++)
        at += words[at] < 0 ? 1 : 2 + 2 * words[at];
    return at;
}

/* With `word` at `at`, loading gives this status and sentence; then the file is as it was. */
static void check_word(attnrun_runtime *runtime, struct file *file, int64_t at,
                       int64_t word, attnrun_status status, const char *text)
{
    const int64_t right = words_of(file)[at];
    words_of(file)[at] = word;
    set_hashes(file);
    if (status == ATTNRUN_OK)
        OK(try_file(runtime, file, 0));
    else
        FAILS(status, text, try_file(runtime, file, 0));
    words_of(file)[at] = right;
    set_hashes(file);
}

static const char wrong_word[] = "is not valid at its place";

/* Where the bytes of a constant are: within the data, and as its type needs. */
static void test_places_of_constants(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    const int64_t value = behind_text(file, 0, "half"), at = constant_of(file, value);
    const int64_t end = (int64_t)head_of(file)->data_bytes;
    assert_true(words_of(file)[at] >= 0);
    check_word(runtime, file, at, end - 4, ATTNRUN_OK, "");
    check_word(runtime, file, at, end - 3, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, at, end, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, at, end + 64, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, at, PACKED_STRINGS, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, at, PACKED_STRINGS - 1, ATTNRUN_E_PARSE, wrong_word);
    const int64_t yes = constant_of(file, behind_text(file, 0, "yes"));
    assert_true(words_of(file)[yes] > 0 && words_of(file)[yes] < end);
    assert_int_equal(file->data[head_of(file)->data_at + words_of(file)[yes]], 1);
    const int64_t weight = behind_text(file, 0, "w"), bytes = constant_of(file, weight);
    assert_int_equal(words_of(file)[bytes], PACKED_RELEASED);
    head_of(file)->released_bytes = 32 * 32 * 4 - 1;
    check_word(runtime, file, bytes, PACKED_RELEASED, ATTNRUN_E_PARSE, wrong_word);
    head_of(file)->released_bytes++;
    check_word(runtime, file, bytes, PACKED_RELEASED, ATTNRUN_OK, "");
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* What the file says of a value is what infer() says of it. */
static void test_types_that_are_compared(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    const int64_t value = behind_text(file, 0, "transposed");
    const int64_t *const words = words_of(file);
    assert_int_equal(words[value + KIND], ATTNRUN_TENSOR);
    assert_int_equal(words[value + RANK], 3);
    assert_int_equal(words[value + DIMS + 1],
                     8); /* behind the word that it has no terms */
    check_word(runtime, file, value + DTYPE, ATTNRUN_F64, ATTNRUN_E_DTYPE,
               "'transposed' is f32, but is declared f64");
    check_word(runtime, file, value + DIMS + 1, 9, ATTNRUN_E_MODEL, "is inferred as");
    check_word(runtime, file, value + DIMS + 1, -1, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, value + KIND, ATTNRUN_MAP_SEQUENCE + 1, ATTNRUN_E_PARSE,
               wrong_word);
    check_word(runtime, file, value + DTYPE, ATTNRUN_DTYPE_COUNT, ATTNRUN_E_PARSE,
               wrong_word);
    check_word(runtime, file, value + KEY_DTYPE, ATTNRUN_DTYPE_COUNT, ATTNRUN_E_PARSE,
               wrong_word);
    check_word(runtime, file, value + OUTER, 0, ATTNRUN_E_PARSE, wrong_word);
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* Texts end where they say, dims are sums of terms whose symbols rise. */
static void test_texts_and_dims(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    const int64_t *const words = words_of(file);
    const int64_t text = behind_text(file, 0, "half") - 2;
    assert_int_equal(words[text], 4);
    check_word(runtime, file, text, 3, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, text, 5, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, text, -1, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, text, INT64_MAX - 1, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, text, INT64_MAX, ATTNRUN_E_PARSE, wrong_word);
    /* N + M: two terms, no constant, then twice a factor and a symbol. */
    const int64_t sum = behind_text(file, 0, "long") + DIMS;
    assert_true(words[sum] == 2 && words[sum + 1] == 0 && words[sum + 2] == 1);
    assert_true(words[sum + 3] < words[sum + 5]);
    check_word(runtime, file, sum, -2, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, sum, DIM_MAX_TERMS + 1, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, sum + 2, 0, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, sum + 4, 0, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, sum + 2, (INT64_C(1) << 62) + 1, ATTNRUN_E_PARSE,
               wrong_word);
    check_word(runtime, file, sum + 5, words[sum + 3], ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, sum + 3, words[sum + 5], ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, sum + 5, 1 << 20, ATTNRUN_E_PARSE, wrong_word);
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* The words of a node of this operator: its operands and outputs are ids of values. */
enum { OPSET, FLAGS, N_IN, N_CAPTURES, N_OUT, IDS };

static int64_t node_of(struct file *file, const char *op_type)
{
    const int64_t *words = words_of(file);
    int64_t at = behind_text(file, behind_text(file, 0, "joined"), op_type);
    for (int i = 0; i < 2; i++) /* its name, and the function that it comes from */
        at += 2 + words[at] / 8;
    return at;
}

/* Each value is given once, by an input, a constant or a node; operands exist. */
static void test_words_of_nodes(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    const int64_t *const words = words_of(file);
    const int64_t first = node_of(file, "MatMul"), node = node_of(file, "LeakyRelu");
    assert_int_equal(words[first + N_IN], 2);
    assert_int_equal(words[node + N_IN], 1);
    assert_int_equal(words[node + N_OUT], 1);
    const int64_t input = words[first + IDS], weight = words[first + IDS + 1],
                  product = words[first + IDS + 2], in = node + IDS, out = node + IDS + 1;
    check_word(runtime, file, node + OPSET, 0, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, node + FLAGS, 4, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, node + FLAGS, -1, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, in, -2, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, in, 1 << 20, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, out, -2, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, out, product, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, out, weight, ATTNRUN_E_PARSE, wrong_word);
    check_word(runtime, file, out, input, ATTNRUN_E_PARSE, wrong_word);
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* A node without outputs is read like any other: what is missing is a value. */
static void test_a_node_without_outputs(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    int64_t *words = words_of(file);
    struct attn_packed_head *head = head_of(file);
    const int64_t node = node_of(file, "LeakyRelu"), out = node + IDS + 1,
                  n_words = (int64_t)head->graph_bytes / 8;
    words[node + N_OUT] = 0;
    memmove(&words[out], &words[out + 1], (size_t)(n_words - out - 1) * sizeof *words);
    head->graph_bytes -= sizeof *words;
    set_hashes(file);
    FAILS(ATTNRUN_E_MODEL, "'first' is defined by no input", try_file(runtime, file, 0));
    attnrun_runtime_destroy(runtime);
    free(file);
}

/* The eight bytes of the magic word make it a packed file, seven do not. */
static void test_files_of_a_few_bytes(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    pack(file);
    file->n = 8;
    FAILS(ATTNRUN_E_PARSE, "ends inside its head", try_file(runtime, file, 0));
    file->n = 7;
    assert_int_equal(try_file(runtime, file, 0), ATTNRUN_E_PARSE);
    assert_null(strstr(attnrun_last_error()->message, "ends inside its head"));
    attnrun_runtime_destroy(runtime);
    free(file);
}

static attnrun_model *open_file(attnrun_runtime *runtime, const struct file *file)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = file->data,
                                    .bytes = file->n };
    attnrun_model *model;
    OK(attnrun_model_open(runtime, &source, &model));
    return model;
}

static void check_same(const attnrun_model *a, const attnrun_model *b)
{
    attnrun_model_info x = { .struct_size = sizeof x }, y = { .struct_size = sizeof y };
    OK(attnrun_model_query(a, &x));
    OK(attnrun_model_query(b, &y));
    assert_int_equal(x.n_opsets, y.n_opsets);
    assert_int_equal(x.n_metadata, y.n_metadata);
    assert_int_equal(x.n_parameters, y.n_parameters);
    assert_int_equal(x.weights_bytes, y.weights_bytes);
    assert_int_equal(x.n_file_nodes, y.n_file_nodes);
    assert_int_equal(x.n_nodes, y.n_nodes);
    assert_int_equal(x.ir_version, y.ir_version);
    assert_int_equal(x.model_version, y.model_version);
    assert_string_equal(x.graph_name, y.graph_name);
    for (int32_t i = 0; i < x.n_opsets; i++) {
        const char *domain, *same;
        int64_t version, same_version;
        OK(attnrun_model_opset(a, i, &domain, &version));
        OK(attnrun_model_opset(b, i, &same, &same_version));
        assert_string_equal(domain, same);
        assert_int_equal(version, same_version);
    }
}

/* What a model says of itself stays, with weights and without. */
static void test_what_a_file_says_of_itself(void **state)
{
    struct file *file = calloc(1, sizeof *file);
    attnrun_runtime *runtime = make_runtime(NULL, 1);
    (void)state;
    for (int small = 0; small < 2; small++) {
        struct onnx_writer *w = small ? onnx_begin(17) : write_model();
        if (small) {
            onnx_input(w, "x", ATTNRUN_F32, "N");
            onnx_node(w, "Relu", "x", "y");
            onnx_output(w, "y", ATTNRUN_F32, "N");
        }
        attnrun_model *model = open_model(runtime, w, 0);
        *file = (struct file){ .fail_at = -1 };
        OK(attnrun_model_save(model, take_piece, file));
        attnrun_model *packed = open_file(runtime, file);
        check_same(model, packed);
        attnrun_model_release(packed);
        attnrun_model_release(model);
    }
    attnrun_runtime_destroy(runtime);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_of_constants),
        cmocka_unit_test(test_types_that_are_compared),
        cmocka_unit_test(test_what_a_file_says_of_itself),
        cmocka_unit_test(test_a_node_without_outputs),
        cmocka_unit_test(test_files_of_a_few_bytes),
        cmocka_unit_test(test_texts_and_dims),
        cmocka_unit_test(test_words_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

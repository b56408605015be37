/* test_usage.c - what callers say of a model that is no mistake of the file: sources, edits, states
 * and outputs that do not fit are refused with a sentence that names what is wrong; and what a
 * model with branches tells of its subgraphs, attributes and rows. */
#include "harness.h"

static attnrun_runtime *runtime;
static uint8_t *data;
static size_t n_bytes;

/* x f32[N,4], past f32[N,4], c bool -> y f32[N,4] by a branch, the places of what is positive. */
static struct onnx_writer *write_branched(void)
{
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "N,4");
    onnx_input(w, "past", ATTNRUN_F32, "N,4");
    onnx_input(w, "c", ATTNRUN_BOOL, "");
    onnx_node(w, "LeakyRelu", "x", "first");
    onnx_attr_float(w, "alpha", 0.25f);
    onnx_node_name(w, "leaky");
    onnx_node(w, "If", "c", "y");
    onnx_graph(w, "then_branch");
    onnx_node(w, "Mul", "first,past", "then");
    onnx_output(w, "then", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_graph(w, "else_branch");
    onnx_node(w, "Add", "first,past", "else");
    onnx_output(w, "else", ATTNRUN_F32, NULL);
    onnx_graph_end(w);
    onnx_node(w, "NonZero", "first", "places");
    onnx_output(w, "y", ATTNRUN_F32, "N,4");
    onnx_output(w, "places", ATTNRUN_I64, NULL);
    onnx_output(w, "first", ATTNRUN_F32, NULL);
    return w;
}

static int set_up(void **state)
{
    (void)state;
    runtime = make_runtime(NULL, 1);
    data = onnx_end(write_branched(), &n_bytes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(data);
    attnrun_runtime_destroy(runtime);
    return 0;
}

/* ---- sources ---- */

static const char *const no_name[] = { NULL }, *const other_name[] = { "firts" };
static const attnrun_fixed_dim nameless = { NULL, 1 }, empty = { "", 1 },
                               negative = { "N", -1 }, huge = { "N", INT64_MAX },
                               absent = { "M", 2 }, same[2] = { { "N", 2 }, { "N", 2 } };

static const struct source_case {
    attnrun_source source; /* without data */
    attnrun_status status;
    const char *words;
} source_cases[] = {
    { { .ragged = -1 }, ATTNRUN_E_USAGE, "ragged is -1" },
    { { .ragged = 9 }, ATTNRUN_E_USAGE, "ragged is 9" },
    { { .precision = -1 }, ATTNRUN_E_USAGE, "precision -1" },
    { { .precision = 99 }, ATTNRUN_E_USAGE, "precision 99" },
    { { .flags = UINT32_C(1) << 31 }, ATTNRUN_E_USAGE, "flags 0x80000000" },
    { { .timeout_us = -1 }, ATTNRUN_E_USAGE, "the timeout is -1" },
    { { .path = "x" }, ATTNRUN_E_USAGE, "either path or data" },
    { { .n_more_outputs = -1 }, ATTNRUN_E_USAGE, "more_outputs is NULL" },
    { { .n_more_outputs = 1 }, ATTNRUN_E_USAGE, "more_outputs is NULL" },
    { { .n_more_outputs = 1, .more_outputs = no_name },
      ATTNRUN_E_USAGE,
      "more_outputs[0] is NULL" },
    { { .n_more_outputs = 1, .more_outputs = other_name },
      ATTNRUN_E_USAGE,
      "no value 'firts' (did you mean 'first'?)" },
    { { .n_fixed_dims = -1 }, ATTNRUN_E_USAGE, "fixed_dims is NULL" },
    { { .n_fixed_dims = 1 }, ATTNRUN_E_USAGE, "fixed_dims is NULL" },
    { { .n_fixed_dims = 1, .fixed_dims = &nameless }, ATTNRUN_E_USAGE, "fixed_dims[0]" },
    { { .n_fixed_dims = 1, .fixed_dims = &empty }, ATTNRUN_E_USAGE, "fixed_dims[0]" },
    { { .n_fixed_dims = 1, .fixed_dims = &negative }, ATTNRUN_E_USAGE, "fixed_dims[0]" },
    { { .n_fixed_dims = 1, .fixed_dims = &huge }, ATTNRUN_E_USAGE, "fixed_dims[0]" },
    { { .n_fixed_dims = 2, .fixed_dims = same }, ATTNRUN_E_USAGE, "both name 'N'" },
    { { .n_fixed_dims = 1, .fixed_dims = &absent },
      ATTNRUN_E_USAGE,
      "has a dimension 'M'" },
    { { .ragged = ATTNRUN_RAGGED_ON }, ATTNRUN_E_UNSUPPORTED, "ragged batches" },
    { { .bytes = UINT64_MAX }, ATTNRUN_E_LIMIT, "'file_bytes'" },
};

static void test_sources_that_are_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof source_cases / sizeof *source_cases; k++) {
        attnrun_source source = source_cases[k].source;
        attnrun_model *model = NULL;
        source.struct_size = sizeof source;
        source.data = data;
        source.bytes = source.bytes != 0 ? source.bytes : n_bytes;
        FAILS(source_cases[k].status, source_cases[k].words,
              attnrun_model_open(runtime, &source, &model));
        assert_null(model);
    }
    attnrun_model *model = NULL;
    for (uint32_t flags = 0; flags <= ATTNRUN_COPY; flags++) {
        const attnrun_source source = { .struct_size = sizeof source,
                                        .flags = flags,
                                        .data = "" };
        FAILS(ATTNRUN_E_PARSE, "the file is empty",
              attnrun_model_open(runtime, &source, &model));
    }
}

/* Without a runtime the one of the process is used: the model keeps it. */
static void test_source_without_a_runtime(void **state)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = data,
                                    .bytes = n_bytes };
    attnrun_model *model;
    attnrun_model_info info = { .struct_size = sizeof info };
    (void)state;
    OK(attnrun_model_open(NULL, &source, &model));
    OK(attnrun_model_query(model, &info));
    assert_int_equal(info.n_outputs, 3);
    attnrun_model_release(model);
}

/* ---- edits ---- */

static int32_t count_bytes(void *user, const void *bytes, uint64_t n)
{
    (void)bytes;
    *(uint64_t *)user += n;
    return 0;
}

static const char *const first[] = { "first" }, *const twice[] = { "y", "y" },
                         *const only_y[] = { "y" };
static const struct {
    attnrun_onnx_edit edit;
    const char *words;
} edit_cases[] = {
    { { .flags = 256 }, "flags 0x100" },
    { { .n_inputs = -1 }, "NULL, or too many" },
    { { .n_outputs = -1 }, "NULL, or too many" },
    { { .n_inputs = INT64_MAX }, "NULL, or too many" },
    { { .n_outputs = INT64_MAX }, "NULL, or too many" },
    { { .n_inputs = 1 }, "NULL, or too many" },
    { { .n_outputs = 1 }, "NULL, or too many" },
    { { .n_inputs = 1, .inputs = no_name }, "a name of inputs or outputs is NULL" },
    { { .n_outputs = 1, .outputs = no_name }, "a name of inputs or outputs is NULL" },
    { { .external_name = "beside" }, "or neither" },
    { { .write_external = count_bytes }, "or neither" },
    { { .n_outputs = 2, .outputs = twice }, "'y' is listed twice" },
    { { .n_outputs = 1, .outputs = other_name }, "no value 'firts'" },
    { { .n_inputs = 1, .inputs = first, .n_outputs = 1, .outputs = only_y },
      "need the input 'c'" },
};

static void test_edits_that_are_refused(void **state)
{
    attnrun_source source = { .struct_size = sizeof source,
                              .data = data,
                              .bytes = n_bytes };
    attnrun_onnx_edit edit = { .struct_size = sizeof edit };
    uint64_t written = 0;
    (void)state;
    for (size_t k = 0; k < sizeof edit_cases / sizeof *edit_cases; k++) {
        edit = edit_cases[k].edit;
        edit.struct_size = sizeof edit;
        FAILS(ATTNRUN_E_USAGE, edit_cases[k].words,
              attnrun_save_onnx(runtime, &source, &edit, count_bytes, &written, NULL));
    }
    edit = (attnrun_onnx_edit){ .struct_size = sizeof edit };
    FAILS(ATTNRUN_E_USAGE, "write is NULL",
          attnrun_save_onnx(runtime, &source, &edit, NULL, NULL, NULL));
    source.more_outputs = first;
    source.n_more_outputs = 1;
    FAILS(ATTNRUN_E_USAGE, "name the outputs in attnrun_onnx_edit",
          attnrun_save_onnx(runtime, &source, &edit, count_bytes, &written, NULL));
    assert_int_equal(written, 0);
    source.n_more_outputs = 0;
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    OK(attnrun_save_onnx(NULL, &source, &edit, count_bytes, &written, &saved));
    assert_int_equal(saved.bytes, written);
    assert_int_equal(saved.n_nodes, 3);
}

/* ---- states and outputs ---- */

static void test_pairs_and_outputs_that_are_refused(void **state)
{
    float x[8] = { 1, -2, 3, -4, 5, -6, 7, -8 }, past[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    uint8_t c = 1;
    attnrun_model *model;
    (void)state;
    OK(open_bytes(runtime, data, n_bytes, 0, &model));
    attnrun_context *context = make_context(model);
    static const struct {
        int32_t input, output;
        int64_t capacity;
    } pairs[] = { { -1, 0, 0 }, { 3, 0, 0 }, { 1, -1, 0 }, { 1, 3, 0 },
                  { 1, 0, -1 }, { 1, 1, 0 }, { 2, 0, 0 } };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        FAILS(ATTNRUN_E_USAGE, "",
              attnrun_add_state(context, pairs[k].input, pairs[k].output,
                                pairs[k].capacity));
    OK(attnrun_add_state(context, 1, 0, 0));
    FAILS(ATTNRUN_E_USAGE, "is a state already", attnrun_add_state(context, 1, 0, 0));
    FAILS(ATTNRUN_E_USAGE, "still empty", attnrun_truncate_state(context, 0, 0));
    FAILS(ATTNRUN_E_USAGE, "still empty", attnrun_truncate_state(context, 1, 0));
    FAILS(ATTNRUN_E_USAGE, "the timeout is -1", attnrun_set_timeout(context, -1));

    attnrun_tensor out = tensor_of(ATTNRUN_F32, "2,4", x);
    FAILS(ATTNRUN_E_USAGE, "output -1", attnrun_set_output(context, -1, &out));
    FAILS(ATTNRUN_E_USAGE, "output 3", attnrun_set_output(context, 3, &out));
    out.strides[1] *= 2;
    FAILS(ATTNRUN_E_USAGE, "the tensor is not dense",
          attnrun_set_output(context, 0, &out));
    out = tensor_of(ATTNRUN_STRING, "2", x);
    FAILS(ATTNRUN_E_USAGE, "the tensor is not dense",
          attnrun_set_output(context, 0, &out));
    out.kind = ATTNRUN_SEQUENCE;
    FAILS(ATTNRUN_E_USAGE, "the tensor is not dense",
          attnrun_set_output(context, 0, &out));
    out = tensor_of(ATTNRUN_F32, "2,4", NULL);
    FAILS(ATTNRUN_E_USAGE, "has no data", attnrun_set_output(context, 0, &out));

    attnrun_plan_block block = { .struct_size = sizeof block };
    attnrun_plan_step step = { .struct_size = sizeof step };
    FAILS(ATTNRUN_E_USAGE, "there is no plan", attnrun_plan_output(context, 0, &out));
    FAILS(ATTNRUN_E_USAGE, "there is no plan",
          attnrun_plan_get_block(context, 0, &block));
    FAILS(ATTNRUN_E_USAGE, "there is no plan", attnrun_plan_get_step(context, 0, &step));
    set_input(context, 0, ATTNRUN_F32, "2,4", x);
    set_input(context, 1, ATTNRUN_F32, "2,4", past);
    set_input(context, 2, ATTNRUN_BOOL, "", &c);
    OK(attnrun_run(context, NULL));
    FAILS(ATTNRUN_E_USAGE, "no output -1", attnrun_plan_output(context, -1, &out));
    FAILS(ATTNRUN_E_USAGE, "no output 3", attnrun_plan_output(context, 3, &out));
    FAILS(ATTNRUN_E_USAGE, "tensor is NULL", attnrun_plan_output(context, 0, NULL));
    FAILS(ATTNRUN_E_SHAPE, "depends on data", attnrun_plan_output(context, 1, &out));
    OK(attnrun_plan_output(context, 2, &out));
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.dims[0], 2);
    assert_null(out.data);
    /* The state was 1 at first and is x now, as long as before: no axis of it has grown. */
    FAILS(ATTNRUN_E_USAGE, "longer along one axis",
          attnrun_truncate_state(context, 1, 1));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* An output in the memory of an input, which lies there transposed: it is written when all of the
 * input has been read. */
static void test_an_output_in_the_memory_of_an_input(void **state)
{
    float memory[12], before[12];
    (void)state;
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "2,4");
    onnx_float(w, "one", 1);
    onnx_node(w, "Add", "x,one", "y");
    onnx_output(w, "y", ATTNRUN_F32, "2,4");
    attnrun_model *model = open_model(runtime, w, 0);
    for (int at = 0; at <= 4; at++) {
        attnrun_context *context = make_context(model);
        for (int i = 0; i < 12; i++)
            before[i] = memory[i] = (float)i;
        attnrun_tensor x = tensor_of(ATTNRUN_F32, "2,4", memory);
        attnrun_tensor y = tensor_of(ATTNRUN_F32, "2,4", memory + at);
        x.strides[0] = sizeof(float);
        x.strides[1] = 2 * sizeof(float);
        OK(attnrun_set_input(context, 0, &x));
        OK(attnrun_set_output(context, 0, &y));
        OK(attnrun_run(context, NULL));
        for (int i = 0; i < 8; i++)
            assert_true(memory[at + i] == before[i / 4 + 2 * (i % 4)] + 1);
        attnrun_context_destroy(context);
    }
    attnrun_model_release(model);
}

/* Whatever the memory of a map holds: here it is none of its type. */
static void test_plans_read_no_data(void **state)
{
    attnrun_tensor columns[2] = { { .dtype = ATTNRUN_STRING }, { .dtype = ATTNRUN_F32 } };
    const attnrun_tensor map = { .kind = ATTNRUN_MAP,
                                 .dtype = ATTNRUN_F32,
                                 .rank = 1,
                                 .dims = { 1 },
                                 .data = columns };
    attnrun_model_need need = { .struct_size = sizeof need };
    (void)state;
    struct onnx_writer *w = onnx_begin(18);
    onnx_domain(w, "ai.onnx.ml");
    onnx_input_of(w, "x", ATTNRUN_MAP, ATTNRUN_F32);
    onnx_node(w, "ai.onnx.ml::DictVectorizer", "x", "y");
    onnx_attr_ints(w, "int64_vocabulary", 2, (const int64_t[]){ 4, 2 });
    onnx_output(w, "y", ATTNRUN_F32, NULL);
    attnrun_model *model = open_model(runtime, w, 0);
    OK(attnrun_model_plan(model, &map, &need));
    attnrun_context *context = make_context(model);
    OK(attnrun_plan(context, &map, NULL));
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* The dense copy of an input has no producer. */
static void test_blocks_of_inputs_have_no_producer(void **state)
{
    (void)state;
    float x[8];
    attnrun_tensor tensor = tensor_of(ATTNRUN_F32, "2,4", x);
    attnrun_plan_block block = { .struct_size = sizeof block };
    struct onnx_writer *w = onnx_begin(18);
    onnx_input(w, "x", ATTNRUN_F32, "2,4");
    onnx_node(w, "Transpose", "x", "y");
    onnx_output(w, "y", ATTNRUN_F32, "4,2");
    attnrun_model *model = open_model(runtime, w, 0);
    attnrun_context *context = make_context(model);
    tensor.strides[0] = 4;
    tensor.strides[1] = 8;
    OK(attnrun_plan(context, &tensor, NULL));
    for (int32_t i = 0; i < 2; i++) {
        OK(attnrun_plan_get_block(context, i, &block));
        assert_string_equal(block.op_type,
                            strcmp(block.name, "x") == 0 ? "" : "Transpose");
    }
    attnrun_context_destroy(context);
    attnrun_model_release(model);
}

/* ---- what a model tells ---- */

static void count_row(void *user, const attnrun_op_def *op)
{
    int *seen = user;
    seen[0] += strcmp(op->name, "If") == 0;
    seen[1] += strcmp(op->name, "Mul") == 0 || strcmp(op->name, "Add") == 0;
}

static int32_t node_of(const attnrun_graph *graph, const char *op_type)
{
    attnrun_graph_info info = { .struct_size = sizeof info };
    attnrun_node_info node = { .struct_size = sizeof node };
    OK(attnrun_graph_query(graph, &info));
    for (int32_t i = 0; i < info.n_nodes; i++) {
        OK(attnrun_graph_node(graph, i, &node));
        if (strcmp(node.op_type, op_type) == 0)
            return i;
    }
    fail_msg("there is no %s", op_type);
    return -1;
}

static void test_subgraphs_and_attributes_are_told(void **state)
{
    static const char *const names[] = { "then_branch", "else_branch" };
    static const char *const types[] = { "Mul", "Add" };
    attnrun_attribute_info attribute = { .struct_size = sizeof attribute };
    attnrun_model *model;
    const attnrun_graph *graph, *inner;
    const char *name;
    int seen[2] = { 0, 0 };
    (void)state;
    OK(open_bytes(runtime, data, n_bytes, ATTNRUN_NO_FUSION, &model));
    OK(attnrun_model_graph(model, &graph));
    const int32_t branch = node_of(graph, "If"), leaky = node_of(graph, "LeakyRelu");
    for (int32_t g = 0; g < 2; g++) {
        OK(attnrun_subgraph(graph, branch, g, &name, &inner));
        assert_string_equal(name, names[g]);
        assert_int_equal(node_of(inner, types[g]), 0);
        OK(attnrun_graph_attribute(graph, branch, g, &attribute));
        assert_int_equal(attribute.kind, ATTNRUN_ATTR_GRAPH);
    }
    FAILS(ATTNRUN_E_USAGE, "subgraph 0",
          attnrun_subgraph(graph, branch, 0, NULL, &inner));
    FAILS(ATTNRUN_E_USAGE, "subgraph 0", attnrun_subgraph(graph, branch, 0, &name, NULL));
    FAILS(ATTNRUN_E_USAGE, "attribute -1",
          attnrun_graph_attribute(graph, leaky, -1, &attribute));
    FAILS(ATTNRUN_E_USAGE, "attribute 1",
          attnrun_model_attribute(model, leaky, 1, &attribute));
    FAILS(ATTNRUN_E_USAGE, "", attnrun_model_attribute(NULL, leaky, 0, &attribute));
    OK(attnrun_model_attribute(model, leaky, 0, &attribute));
    assert_string_equal(attribute.name, "alpha");
    assert_true(attribute.f == 0.25);
    assert_int_equal(attnrun_model_find_output(NULL, "y"), -1);
    assert_int_equal(attnrun_model_find_output(model, "first"), 2);
    FAILS(ATTNRUN_E_USAGE, "see is NULL", attnrun_model_ops(model, NULL, seen));
    OK(attnrun_model_ops(model, count_row, seen));
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 2); /* of the branches */
    FAILS(ATTNRUN_E_USAGE, "model is NULL", attnrun_model_pack(NULL));
    attnrun_model_release(model);
}

static void test_missing_rows_are_told(void **state)
{
    attnrun_node_info node = { .struct_size = sizeof node };
    attnrun_model *model;
    int seen[2] = { 0, 0 };
    struct onnx_writer *w = onnx_begin(18);
    (void)state;
    onnx_domain(w, "somewhere");
    onnx_input(w, "x", ATTNRUN_F32, "N");
    onnx_node(w, "somewhere::Unknown", "x", "u");
    onnx_node(w, "Mul", "x,x", "y");
    onnx_output(w, "u", ATTNRUN_F32, "N");
    onnx_output(w, "y", ATTNRUN_F32, "N");
    model = open_model(runtime, w, ATTNRUN_ALLOW_MISSING);
    OK(attnrun_model_node(model, 0, &node));
    assert_int_equal(node.coverage, ATTNRUN_MISSING);
    OK(attnrun_model_ops(model, count_row, seen));
    assert_int_equal(seen[1], 1);
    FAILS(ATTNRUN_E_UNSUPPORTED, "somewhere.Unknown", attnrun_model_pack(model));
    attnrun_model_release(model);
}

/* Readers of what a missing operator makes are of no known type, and no error. */
static void test_readers_of_missing_rows(void **state)
{
    static const char *const ops[][3] = { { "MatMul", "u,w" },
                                          { "Gemm", "u,w" },
                                          { "Add", "u,w" },
                                          { "Conv", "u,w" },
                                          { "Concat", "u,u", "axis=0" },
                                          { "LayerNormalization", "u,w" },
                                          { "Relu", "u" },
                                          { "Transpose", "u" },
                                          { "GlobalAveragePool", "u" },
                                          { "Gather", "w,u" },
                                          { "Reshape", "x,u" },
                                          { "Expand", "x,u" },
                                          { "Tile", "x,u" },
                                          { "Where", "u,w,w" },
                                          { "TopK", "w,u" },
                                          { "Softmax", "u" },
                                          { "Attention", "u,u,u" } };
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        attnrun_model *model;
        attnrun_context *context = NULL;
        attnrun_value_info value = { .struct_size = sizeof value };
        float w_data[4] = { 1, 2, 3, 4 };
        struct onnx_writer *w = onnx_begin(23);
        onnx_domain(w, "somewhere");
        onnx_input(w, "x", ATTNRUN_F32, "N");
        onnx_constant(w, "w", ATTNRUN_F32, "2,2", w_data);
        onnx_node(w, "somewhere::Unknown", "x", "u");
        onnx_node(w, ops[i][0], ops[i][1], "r");
        if (ops[i][2] != NULL)
            onnx_attrs(w, ops[i][2]);
        onnx_node(w, "Mul", "r,w", "y");
        onnx_output(w, "y", ATTNRUN_F32, "2,2");
        model = open_model(runtime, w, ATTNRUN_ALLOW_MISSING);
        OK(attnrun_model_value(model, "r", &value));
        assert_int_equal(value.dtype, 0);
        OK(attnrun_model_output(model, 0, &value)); /* what the file says */
        assert_int_equal(value.dtype, ATTNRUN_F32);
        FAILS(ATTNRUN_E_UNSUPPORTED, "somewhere.Unknown",
              attnrun_context_create(model, &context));
        attnrun_model_release(model);
    }
}

/* ---- rows of a runtime ---- */

static void count_release(void *user) { ++*(int *)user; }

static void note_row(void *user, const attnrun_op_def *op)
{
    *(int *)user += strcmp(op->name, "LeakyRelu") == 0;
}

static void test_rows_of_a_runtime(void **state)
{
    int released = 0, released_later = 0, seen = 0;
    attnrun_model *model;
    attnrun_op_def row, later;
    (void)state;
    attnrun_runtime *own = make_runtime(NULL, 1);
    FAILS(ATTNRUN_E_USAGE, "is NULL", attnrun_runtime_ops(NULL, note_row, &seen));
    FAILS(ATTNRUN_E_USAGE, "is NULL", attnrun_runtime_ops(own, NULL, &seen));
    OK(attnrun_runtime_ops(own, note_row, &seen));
    assert_int_equal(seen, 0); /* no model has used one */
    OK(open_bytes(own, data, n_bytes, 0, &model));
    OK(attnrun_runtime_ops(own, note_row, &seen));
    assert_int_equal(seen, 1);
    row = *attnrun_get_op(own, 0);
    row.domain = "test";
    row.name = "Released";
    row.user = &released;
    row.release = count_release;
    OK(attnrun_register_op(own, &row));
    OK(attnrun_register_op(own, &row)); /* it stays one row */
    later = row;
    later.user = &released_later;
    /* Each takes the other's place, but models may run the former: all are released, once. */
    OK(attnrun_register_op(own, &later));
    OK(attnrun_register_op(own, &row));
    OK(attnrun_register_op(own, &later));
    FAILS(ATTNRUN_E_IO, "cannot be loaded", attnrun_load_plugin(own, "/no/such.so"));
    FAILS(ATTNRUN_E_IO, "no function attnrun_plugin()",
          attnrun_load_plugin(own, "libm.so.6"));
    attnrun_model_release(model);
    assert_int_equal(released, 0);
    attnrun_runtime_destroy(own);
    assert_int_equal(released, 1);
    assert_int_equal(released_later, 1);
}

static void *no_block(void *user, size_t bytes, size_t align)
{
    (void)user, (void)bytes, (void)align;
    return NULL;
}

static void count_line(void *user, int32_t level, const char *message)
{
    assert_true(message[0] != 0);
    ((int *)user)[level < 3 ? level : 3]++;
}

/* What ATTNRUN_LOG says: the numbers of levels; nothing is all of them. */
static void test_levels_of_the_log(void **state)
{
    static const struct {
        const char *level;
        bool informs;
    } rows[] = { { "", true }, { "99", true }, { "0", false }, { "-5", false } };
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int lines[4] = { 0 };
        const attnrun_runtime_options options = { .struct_size = sizeof options,
                                                  .threads = 1,
                                                  .log = count_line,
                                                  .log_user = lines };
        attnrun_runtime *own;
        attnrun_model *model;
        setenv("ATTNRUN_LOG", rows[k].level, 1);
        OK(attnrun_runtime_create(&options, &own));
        unsetenv("ATTNRUN_LOG");
        OK(open_bytes(own, data, n_bytes, 0, &model));
        OK(attnrun_model_pack(model));
        attnrun_model_release(model);
        attnrun_runtime_destroy(own);
        assert_int_equal(lines[1] + lines[2] + lines[3] > 0, rows[k].informs);
    }
    attnrun_runtime *none = NULL;
    const attnrun_allocator half = { sizeof half, NULL, no_block, NULL };
    const attnrun_runtime_options options = { .struct_size = sizeof options,
                                              .allocator = &half };
    FAILS(ATTNRUN_E_USAGE, "alloc and free", attnrun_runtime_create(&options, &none));
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources_that_are_refused),
        cmocka_unit_test(test_source_without_a_runtime),
        cmocka_unit_test(test_edits_that_are_refused),
        cmocka_unit_test(test_pairs_and_outputs_that_are_refused),
        cmocka_unit_test(test_an_output_in_the_memory_of_an_input),
        cmocka_unit_test(test_plans_read_no_data),
        cmocka_unit_test(test_blocks_of_inputs_have_no_producer),
        cmocka_unit_test(test_subgraphs_and_attributes_are_told),
        cmocka_unit_test(test_missing_rows_are_told),
        cmocka_unit_test(test_readers_of_missing_rows),
        cmocka_unit_test(test_rows_of_a_runtime),
        cmocka_unit_test(test_levels_of_the_log),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

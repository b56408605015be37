/* test_wire_scan.c - the scan in front of protobuf-c: each limit just below, at, and
 * above it; broken wire forms; what is left out; where bulk data goes. */
#include <stdio.h>

#include "../runtime/check.h"

#include "onnx.pb-c.h"
#include "pb_write.h"
#include "wire_scan.h"

#define MODEL  (&attnrun__onnx__model_proto__descriptor)
#define TENSOR (&attnrun__onnx__tensor_proto__descriptor)
#define GRAPH  (&attnrun__onnx__graph_proto__descriptor)

static struct attn_memory *memory;
static attnrun_limits limits; /* the defaults, but for those that a test lowers */

static int64_t used_bytes(void)
{
    struct attn_memory_counts counts;
    attn_memory_counts(memory, &counts);
    return (int64_t)counts.used_bytes;
}

static attn_status scan_as(const ProtobufCMessageDescriptor *type, const struct pb *m)
{
    struct attn_scan scan;
    attn_status status =
        attn_wire_scan(memory, &limits, type, m->data, (int64_t)m->bytes, &scan);
    attn_scan_free(&scan);
    assert_int_equal(used_bytes(), 0);
    return status;
}

static attn_status scan_and_free(const ProtobufCMessageDescriptor *type, struct pb *m)
{
    attn_status status = scan_as(type, m);
    pb_free(m);
    return status;
}

static void wrong_wire_forms(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        size_t n;
        attn_status status;
    } cases[] = {
        { { 0x08, 0x08 }, 2, ATTNRUN_OK },
        { { 0x08 }, 1, ATTNRUN_E_PARSE },       /* no value */
        { { 0x08, 0x80 }, 2, ATTNRUN_E_PARSE }, /* varint cut off */
        { { 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01 },
          12,
          ATTNRUN_E_PARSE },                          /* of 11 bytes */
        { { 0x00, 0x01 }, 2, ATTNRUN_E_PARSE },       /* field 0 */
        { { 0x3a, 0x05, 0x01 }, 3, ATTNRUN_E_PARSE }, /* length over the end */
        { { 0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f },
          10,
          ATTNRUN_E_PARSE },                             /* length 2^63 - 1 */
        { { 0x38, 0x01 }, 2, ATTNRUN_E_PARSE },          /* graph as a number */
        { { 0x0a, 0x00 }, 2, ATTNRUN_E_PARSE },          /* ir_version as bytes */
        { { 0x9b, 0x06 }, 2, ATTNRUN_E_PARSE },          /* a group */
        { { 0x9d, 0x06, 1, 2, 3 }, 5, ATTNRUN_E_PARSE }, /* 32 bits cut off */
        { { 0x9d, 0x06, 1, 2, 3, 4 }, 6, ATTNRUN_OK },   /* unknown, 32 bits */
        { { 0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8 }, 10, ATTNRUN_OK },
        { { 0x9a, 0x06, 2, 1, 2 }, 5, ATTNRUN_OK },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct pb m = { 0 };
        pb_put(&m, cases[k].bytes, cases[k].n);
        assert_int_equal(scan_and_free(MODEL, &m), cases[k].status);
    }
    struct pb empty = { 0 };
    assert_int_equal(scan_as(MODEL, &empty), ATTNRUN_OK);
}

/* Messages nested `depth` deep in all: model, graph, input, type, then sequence and type.
 */
static struct pb nested_types(int depth)
{
    struct pb m = { 0 };
    for (int k = depth; k > 1; k--) {
        uint32_t field = k == 2 ? 7 : k == 3 ? 11 : k == 4 ? 2 : k % 2 == 1 ? 4 : 1;
        struct pb outer = { 0 };
        pb_message(&outer, field, &m);
        m = outer;
    }
    return m;
}

static void depth(void **state)
{
    (void)state;
    for (int k = (int)limits.message_depth - 1; k <= limits.message_depth + 1; k++) {
        struct pb m = nested_types(k);
        assert_int_equal(scan_and_free(MODEL, &m),
                         k <= limits.message_depth ? ATTNRUN_OK : ATTNRUN_E_LIMIT);
    }
    struct pb m = nested_types(30000);
    assert_int_equal(scan_and_free(MODEL, &m), ATTNRUN_E_LIMIT);
}

static struct pb nested_graphs(int subgraphs)
{
    struct pb graph = { 0 };
    for (int k = 0; k < subgraphs; k++) {
        struct pb attr = { 0 }, node = pb_node("", "If", "", ""), outer = { 0 };
        pb_string(&attr, 1, "then_branch");
        pb_message(&attr, 6, &graph);
        pb_message(&node, 5, &attr);
        pb_message(&outer, 1, &node);
        graph = outer;
    }
    struct pb model = { 0 };
    pb_message(&model, 7, &graph);
    return model;
}

static void subgraphs(void **state)
{
    (void)state;
    for (int k = (int)limits.subgraph_depth - 1; k <= limits.subgraph_depth + 1; k++) {
        struct pb m = nested_graphs(k);
        assert_int_equal(scan_and_free(MODEL, &m),
                         k <= limits.subgraph_depth ? ATTNRUN_OK : ATTNRUN_E_LIMIT);
    }
}

static attn_status with_name(uint32_t field, size_t bytes)
{
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, 'n', bytes);
    struct pb model = { 0 };
    pb_bytes(&model, field, text, bytes);
    free(text);
    return scan_and_free(MODEL, &model);
}

static attn_status with_graph_name(size_t bytes)
{
    char *text = calloc(1, bytes + 1);
    assert_non_null(text);
    memset(text, 'n', bytes);
    struct pb graph = { 0 }, model = { 0 };
    pb_bytes(&graph, 2, text, bytes);
    free(text);
    pb_message(&model, 7, &graph);
    return scan_and_free(MODEL, &model);
}

static void texts(void **state)
{
    (void)state;
    assert_int_equal(with_name(2, (size_t)limits.string_bytes), ATTNRUN_OK);
    assert_int_equal(with_name(2, (size_t)limits.string_bytes + 1), ATTNRUN_E_LIMIT);
    assert_int_equal(with_graph_name((size_t)limits.name_bytes), ATTNRUN_OK);
    assert_int_equal(with_graph_name((size_t)limits.name_bytes + 1), ATTNRUN_E_LIMIT);
    struct pb m = { 0 };
    pb_bytes(&m, 2, "a\0b", 3);
    assert_int_equal(scan_and_free(MODEL, &m), ATTNRUN_E_MODEL);
}

static attn_status with_attributes(int n, bool named)
{
    struct pb node = pb_node("", "Relu", "x", "y"), graph = { 0 }, model = { 0 };
    for (int k = 0; k < n; k++) {
        struct pb attr = { 0 };
        if (named)
            pb_string(&attr, 1, "a");
        pb_message(&node, 5, &attr);
    }
    pb_message(&graph, 1, &node);
    pb_message(&model, 7, &graph);
    return scan_and_free(MODEL, &model);
}

static attn_status with_nodes(int n)
{
    struct pb graph = { 0 }, model = { 0 };
    for (int k = 0; k < n; k++)
        pb_add_node(&graph, 1, "", "R", "", "");
    pb_message(&model, 7, &graph);
    return scan_and_free(MODEL, &model);
}

static void counts(void **state)
{
    (void)state;
    assert_int_equal(with_attributes((int)limits.attributes, true), ATTNRUN_OK);
    assert_int_equal(with_attributes((int)limits.attributes + 1, true), ATTNRUN_E_LIMIT);
    assert_int_equal(with_attributes(1, false), ATTNRUN_E_MODEL);
    assert_int_equal(with_nodes((int)limits.nodes), ATTNRUN_OK);
    assert_int_equal(with_nodes((int)limits.nodes + 1), ATTNRUN_E_LIMIT);
    struct pb empty = { 0 }, graph = { 0 }, model = { 0 };
    pb_message(&graph, 1, &empty); /* a node of nothing */
    pb_message(&model, 7, &graph);
    assert_int_equal(scan_and_free(MODEL, &model), ATTNRUN_E_MODEL);
}

/* Each limit that is counted here, lowered by one below what a message has. */
static void lowered(void **state)
{
    (void)state;
    struct pb node = pb_node("", "Relu", "x", "y"), graph = { 0 }, tensor = { 0 };
    pb_string(&node, 3, "a name of 22 bytes ...");
    pb_string(&tensor, 8, "t");
    pb_message(&graph, 1, &node);
    pb_add_node(&graph, 1, "", "R", "", "");
    pb_message(&graph, 5, &tensor);
    struct pb model = pb_model(&graph);
    struct attn_scan scan;
    assert_int_equal(
        attn_wire_scan(memory, &limits, MODEL, model.data, (int64_t)model.bytes, &scan),
        ATTNRUN_OK);
    const struct {
        int64_t *limit;
        int64_t there;
        const char *name;
    } cases[] = { { &limits.file_bytes, (int64_t)model.bytes, "'file_bytes'" },
                  { &limits.graph_bytes, scan.copy_bytes, "'graph_bytes'" },
                  { &limits.nodes, 2, "'nodes'" },
                  { &limits.tensors, 1, "'tensors'" },
                  { &limits.operands, 1, "'operands'" },
                  { &limits.items, 2, "'items'" },
                  { &limits.message_depth, 3, "'message_depth'" },
                  { &limits.name_bytes, 22, "'name_bytes'" } };
    attn_scan_free(&scan);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int64_t more = -1; more <= 1; more++) {
            const int64_t before = *cases[k].limit;
            *cases[k].limit = cases[k].there + more;
            assert_int_equal(scan_as(MODEL, &model),
                             more < 0 ? ATTNRUN_E_LIMIT : ATTNRUN_OK);
            if (more < 0)
                assert_non_null(strstr(attnrun_last_error()->message, cases[k].name));
            *cases[k].limit = before;
        }
    assert_int_equal(attn_wire_scan(memory, &limits, MODEL, model.data, -1, &scan),
                     ATTNRUN_E_LIMIT);
    assert_null(scan.copy);
    pb_free(&model);
}

/* Numbers one by one, and bulk data, in a message that nobody reads: looked at, and neither
 * copied nor noted. */
static void numbers_that_nobody_reads(void **state)
{
    static const uint8_t data[ATTN_SCAN_BULK + 1];
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct pb model = { 0 }, training = { 0 }, graph = { 0 }, tensor = { 0 };
        struct attn_scan scan;
        pb_int(&model, 1, 8);
        const int64_t before = (int64_t)model.bytes;
        for (int64_t k = 0; k < 5; k++)
            pb_int(&tensor, 1, k);
        for (int k = 0; k <= 1; k++) /* twice, which no tensor that is read may have */
            pb_bytes(&tensor, 9, data, sizeof data);
        if (wrong)
            pb_bytes(&tensor, 1, "\x80", 1);
        pb_message(&graph, 5, &tensor);
        pb_message(&training, 1, &graph);
        pb_message(&model, 20, &training);
        assert_int_equal(attn_wire_scan(memory, &limits, MODEL, model.data,
                                        (int64_t)model.bytes, &scan),
                         wrong ? ATTNRUN_E_PARSE : ATTNRUN_OK);
        assert_int_equal(scan.copy_bytes, before);
        assert_int_equal(scan.n_bulk, 0);
        assert_int_equal(scan.n_tensors, 0);
        attn_scan_free(&scan);
        pb_free(&model);
    }
}

/* ---- texts of each field of the schema ---- */

/* Within name_bytes; and what nobody reads, so that it is not copied. Others: string_bytes. */
static const char names[] =
    " NodeProto.input NodeProto.output NodeProto.name NodeProto.op_type NodeProto.domain "
    "NodeProto.overload AttributeProto.name AttributeProto.ref_attr_name "
    "TensorProto.name "
    "GraphProto.name ValueInfoProto.name FunctionProto.name FunctionProto.input "
    "FunctionProto.output FunctionProto.attribute FunctionProto.domain "
    "FunctionProto.overload OperatorSetIdProto.domain StringStringEntryProto.key "
    "Dimension.dim_param ";
static const char dropped[] =
    " NodeProto.doc_string NodeProto.metadata_props NodeProto.device_configurations "
    "AttributeProto.doc_string TensorProto.doc_string TensorProto.metadata_props "
    "GraphProto.quantization_annotation GraphProto.metadata_props "
    "ValueInfoProto.doc_string ValueInfoProto.metadata_props FunctionProto.doc_string "
    "FunctionProto.metadata_props Dimension.denotation TypeProto.denotation "
    "ModelProto.training_info ModelProto.configuration ";
/* What is left where it is, if it is large. */
static const char bulk_fields[] = " TensorProto.raw_data ";

static bool is_among(const char *list, const ProtobufCMessageDescriptor *type,
                     const ProtobufCFieldDescriptor *field)
{
    char word[128];
    snprintf(word, sizeof word, " %s.%s ", type->short_name, field->name);
    return strstr(list, word) != NULL;
}

/* The field alone, of n bytes 'a', whose last is NUL where `nul`; and what must be there. */
static attn_status with_text(const ProtobufCMessageDescriptor *type,
                             const ProtobufCFieldDescriptor *field, int64_t n, bool nul,
                             int64_t *copied)
{
    const bool node = type == &attnrun__onnx__node_proto__descriptor,
               attribute = type == &attnrun__onnx__attribute_proto__descriptor;
    struct pb m = { 0 };
    char *text = malloc((size_t)n + 1);
    memset(text, 'a', (size_t)n);
    if (nul)
        text[n - 1] = 0;
    if (node && field->id != 4)
        pb_string(&m, 4, "R");
    if (attribute && field->id != 1)
        pb_string(&m, 1, "a");
    pb_bytes(&m, field->id, text, (size_t)n);
    struct attn_scan scan;
    const attn_status status =
        attn_wire_scan(memory, &limits, type, m.data, (int64_t)m.bytes, &scan);
    *copied = scan.copy_bytes;
    attn_scan_free(&scan);
    pb_free(&m);
    free(text);
    return status;
}

static void check_text(const ProtobufCMessageDescriptor *type,
                       const ProtobufCFieldDescriptor *field)
{
    const bool name = is_among(names, type, field), drop = is_among(dropped, type, field),
               bytes = field->type == PROTOBUF_C_TYPE_BYTES;
    const int64_t max = name ? limits.name_bytes : limits.string_bytes;
    int64_t none, copied;
    if (is_among(bulk_fields, type, field))
        return;
    assert_int_equal(with_text(type, field, 0, false, &none), ATTNRUN_OK);
    assert_int_equal(with_text(type, field, max, false, &copied), ATTNRUN_OK);
    assert_int_equal(copied >= max, !drop);
    assert_int_equal(with_text(type, field, max + 1, false, &copied),
                     drop ? ATTNRUN_OK : ATTNRUN_E_LIMIT);
    assert_int_equal(with_text(type, field, 9, true, &copied),
                     drop || bytes ? ATTNRUN_OK : ATTNRUN_E_MODEL);
}

/* A message that nobody reads leaves nothing in the copy, but is looked at. */
static void check_message(const ProtobufCMessageDescriptor *type,
                          const ProtobufCFieldDescriptor *field)
{
    struct pb m = { 0 }, inner = { 0 }, broken = { 0 };
    struct attn_scan scan;
    if (!is_among(dropped, type, field))
        return;
    if (type == &attnrun__onnx__node_proto__descriptor)
        pb_string(&m, 4, "R");
    const int64_t before = (int64_t)m.bytes;
    pb_bytes(&inner, 100, "unknown", 7);
    pb_message(&m, field->id, &inner);
    assert_int_equal(
        attn_wire_scan(memory, &limits, type, m.data, (int64_t)m.bytes, &scan),
        ATTNRUN_OK);
    assert_int_equal(scan.copy_bytes, before);
    attn_scan_free(&scan);
    pb_bytes(&broken, field->id, "\xff", 1);
    assert_int_equal(scan_and_free(type, &broken), ATTNRUN_E_PARSE);
    pb_free(&m);
}

static void each_field(void **state)
{
    (void)state;
    static const ProtobufCMessageDescriptor *const types[] = {
        &attnrun__onnx__node_proto__descriptor,
        &attnrun__onnx__attribute_proto__descriptor,
        &attnrun__onnx__tensor_proto__descriptor,
        &attnrun__onnx__graph_proto__descriptor,
        &attnrun__onnx__value_info_proto__descriptor,
        &attnrun__onnx__function_proto__descriptor,
        &attnrun__onnx__operator_set_id_proto__descriptor,
        &attnrun__onnx__string_string_entry_proto__descriptor,
        &attnrun__onnx__tensor_shape_proto__dimension__descriptor,
        &attnrun__onnx__type_proto__descriptor,
        MODEL
    };
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (unsigned f = 0; f < types[k]->n_fields; f++) {
            const ProtobufCFieldDescriptor *field = &types[k]->fields[f];
            if (field->type == PROTOBUF_C_TYPE_STRING ||
                field->type == PROTOBUF_C_TYPE_BYTES)
                check_text(types[k], field);
            else if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                check_message(types[k], field);
        }
}

static attn_status with_graphs(int n)
{
    struct pb model = { 0 };
    for (int k = 0; k < n; k++)
        pb_bytes(&model, 7, "\x12\x01g", 3);
    return scan_and_free(MODEL, &model);
}

static void singular_messages_twice(void **state)
{
    (void)state;
    assert_int_equal(with_graphs(1), ATTNRUN_OK);
    assert_int_equal(with_graphs(2), ATTNRUN_E_PARSE);
    assert_int_equal(with_graphs(256), ATTNRUN_E_PARSE);
    assert_int_equal(with_graphs(257), ATTNRUN_E_LIMIT);
    assert_int_equal(with_graphs(20000), ATTNRUN_E_LIMIT);
}

/* The bytes come out as they went in, but for what nobody reads. */
static void unpacked(void **state)
{
    (void)state;
    struct pb graph = { 0 };
    struct pb node = pb_node("", "Relu", "x", "y");
    pb_string(&node, 6, "a text about the node");
    pb_bytes(&node, 19000, "\x00\x00\x00\x00", 4);
    pb_message(&graph, 1, &node);
    struct pb model = pb_model(&graph);
    struct attn_scan scan;
    struct attn_pool pool;
    attn_pool_init(&pool, memory, ATTN_MEM_MODEL);
    assert_int_equal(
        attn_wire_scan(memory, &limits, MODEL, model.data, (int64_t)model.bytes, &scan),
        ATTNRUN_OK);
    ProtobufCMessage *message;
    assert_int_equal(attn_scan_unpack(&scan, &pool, MODEL, &message), ATTNRUN_OK);
    const Attnrun__Onnx__ModelProto *pb = (const Attnrun__Onnx__ModelProto *)message;
    assert_int_equal(pb->ir_version, 8);
    assert_int_equal(pb->n_opset_import, 2);
    assert_int_equal(pb->graph->n_node, 1);
    assert_string_equal(pb->graph->node[0]->op_type, "Relu");
    assert_string_equal(pb->graph->node[0]->input[0], "x");
    assert_null(pb->graph->node[0]->doc_string);
    assert_int_equal(pb->graph->node[0]->base.n_unknown_fields, 0);
    attn_scan_free(&scan);
    attn_pool_free(&pool);
    pb_free(&model);
}

/* Bulk data stays out of the copy, and no file can name an entry of the table. */
static void bulk(void **state)
{
    (void)state;
    uint8_t data[ATTN_SCAN_BULK + 1] = { 7 };
    for (int more = 0; more <= 1; more++) {
        struct pb tensor = { 0 };
        pb_bytes(&tensor, 9, data, ATTN_SCAN_BULK + (size_t)more);
        pb_varint(&tensor, 19000u << 3 | 5);
        pb_put(&tensor, "\x00\x00\x00\x00", 4);
        struct attn_scan scan;
        struct attn_pool pool;
        attn_pool_init(&pool, memory, ATTN_MEM_MODEL);
        assert_int_equal(attn_wire_scan(memory, &limits, TENSOR, tensor.data,
                                        (int64_t)tensor.bytes, &scan),
                         ATTNRUN_OK);
        ProtobufCMessage *pb;
        assert_int_equal(attn_scan_unpack(&scan, &pool, TENSOR, &pb), ATTNRUN_OK);
        const struct attn_bulk *entry = attn_scan_bulk(&scan, pb);
        assert_int_equal(entry != NULL, more);
        if (entry != NULL) {
            assert_int_equal(entry->id, 9);
            assert_int_equal(entry->bytes, sizeof data);
            assert_memory_equal(tensor.data + entry->offset, data, sizeof data);
            assert_true(scan.copy_bytes < 64);
        }
        attn_scan_free(&scan);
        attn_pool_free(&pool);
        pb_bytes(&tensor, 9, data, sizeof data);
        assert_int_equal(scan_and_free(TENSOR, &tensor),
                         more ? ATTNRUN_E_MODEL : ATTNRUN_OK);
    }
}

/* The number of a large tensor has more than 16 bits in a file of 64 MB; it ends the copy. */
static void many_large_tensors(void **state)
{
    enum { N = (1 << 16) + 1 };
    static const uint8_t data[ATTN_SCAN_BULK + 1];
    struct pb tensor = { 0 }, graph = { 0 };
    struct attn_scan scan;
    const uint32_t last = N - 1;
    (void)state;
    pb_bytes(&tensor, 9, data, sizeof data);
    for (int k = 0; k < N; k++)
        pb_bytes(&graph, 5, tensor.data, tensor.bytes);
    assert_int_equal(
        attn_wire_scan(memory, &limits, GRAPH, graph.data, (int64_t)graph.bytes, &scan),
        ATTNRUN_OK);
    assert_int_equal(scan.n_bulk, N);
    assert_memory_equal(scan.copy + scan.copy_bytes - sizeof last, &last, sizeof last);
    attn_scan_free(&scan);
    pb_free(&graph);
    pb_free(&tensor);
}

/* Lists of an attribute may be as long as those of a large ensemble of trees; one by one
 * in the file, they are unpacked as one list, in the order of the file. */
static void long_lists(void **state)
{
    enum { N = (1 << 20) + 3 };
    const ProtobufCMessageDescriptor *type = &attnrun__onnx__attribute_proto__descriptor;
    struct pb m = { 0 };
    (void)state;
    for (int64_t k = 0; k < N; k++)
        pb_int(&m, 8, k % 5 - 2);
    pb_string(&m, 1, "list");
    pb_int(&m, 20, 7); /* the type: between two parts of a list */
    pb_int(&m, 8, 77);
    struct attn_scan scan;
    struct attn_pool pool;
    attn_pool_init(&pool, memory, ATTN_MEM_MODEL);
    assert_int_equal(
        attn_wire_scan(memory, &limits, type, m.data, (int64_t)m.bytes, &scan),
        ATTNRUN_OK);
    const int64_t scanned_bytes = used_bytes();
    ProtobufCMessage *message;
    assert_int_equal(attn_scan_unpack(&scan, &pool, type, &message), ATTNRUN_OK);
    const Attnrun__Onnx__AttributeProto *pb =
        (const Attnrun__Onnx__AttributeProto *)message;
    assert_int_equal(pb->n_ints, N + 1);
    for (int64_t k = 0; k < N; k++)
        assert_int_equal(pb->ints[k], k % 5 - 2);
    assert_int_equal(pb->ints[N], 77);
    assert_int_equal(pb->type, 7);
    assert_true(used_bytes() - scanned_bytes < 20 * (int64_t)N); /* 40 N by occurrences */
    attn_scan_free(&scan);
    attn_pool_free(&pool);
    pb_free(&m);
}

static int start(void **state)
{
    (void)state;
    limits = attn_limits_standard;
    memory = attn_memory_create(NULL, UINT64_C(1) << 30);
    return memory == NULL;
}

static int stop(void **state)
{
    (void)state;
    attn_memory_destroy(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_wire_forms),
        cmocka_unit_test(depth),
        cmocka_unit_test(subgraphs),
        cmocka_unit_test(texts),
        cmocka_unit_test(counts),
        cmocka_unit_test(singular_messages_twice),
        cmocka_unit_test(unpacked),
        cmocka_unit_test(bulk),
        cmocka_unit_test(long_lists),
        cmocka_unit_test(lowered),
        cmocka_unit_test(each_field),
        cmocka_unit_test(numbers_that_nobody_reads),
        cmocka_unit_test(many_large_tensors),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

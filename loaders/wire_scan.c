/* wire_scan.c - bounds a serialized message before protobuf-c sees it.
 *
 * protobuf-c recurses as deep as the bytes say, merges repeated singular messages in
 * quadratic time and takes up to 150 times the bytes it reads. So this walker, driven by
 * the same descriptors, looks first: wire types, lengths, depth, counts, sizes of
 * strings, NUL in names, singular messages that come twice. It writes what is needed of
 * the message once more, in canonical form:
 *
 *   - tensor data of more than ATTN_SCAN_BULK bytes stays in the file: (field, offset,
 *     bytes) go into a table in the order of the tensors, and the copy of the tensor gets
 *     its index there in field ATTN_SCAN_BULK_FIELD, whose number belongs to no file
 *     format (19000 to 19999 are protobuf's own);
 *   - fields that the schema does not know are left out, that number among them: no file
 *     can name an entry of the table;
 *   - what the runtime never reads (doc strings and metadata of nodes, training graphs,
 *     device placement) is checked and left out.
 *
 * Messages get lengths of five bytes, filled in at their end. Numbers of lists are packed.
 * Cost: one pass over the bytes, and a copy of all but the bulk. */
#include "wire_scan.h"

#include <string.h>

#include "../runtime/checked.h"
#include "../runtime/poll.h"
#include "onnx.pb-c.h"
#include "scan_rules.h"

/* The arrays of this folder have room for what the largest limits let through. */
#define FITS(id, which, largest, room)                                                   \
    _Static_assert(ATTN_LIMIT_##id != ATTN_LIMIT_##which || (largest) <= (room), #which);
#define X(id, member, standard, largest, text)                                           \
    FITS(id, MESSAGE_DEPTH, largest, ATTN_SCAN_DEPTH)                                    \
    FITS(id, SUBGRAPH_DEPTH, largest, ATTN_SCAN_SUBGRAPHS)                               \
    FITS(id, NAME_BYTES, largest, ATTN_SCAN_NAME)
ATTNRUN_LIMIT_LIST(X)
#undef X

enum {
    FIELD_BYTES = 64, /* of work for a field, besides its bytes */
    MANY_TIMES = 256  /* of what may be there once: no slip of a writer */
};

#define LENGTH_BYTES 5  /* of the length of a message in the copy */
#define MAX_FIELDS   24 /* of one message of the schema */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };

struct frame {
    const ProtobufCMessageDescriptor *descriptor;
    const struct scan_rules *rules;
    int64_t end;               /* of the message in the data */
    int64_t length;            /* where its length is in the copy; -1: the outermost */
    int64_t bulk;              /* of a tensor: its entry in the table, or -1 */
    uint32_t seen[MAX_FIELDS]; /* occurrences (elements, where packed) by field */
    bool muted;                /* not copied */
    uint32_t run_id;           /* of the packed numbers that end at run_end in the copy */
    int64_t run_length, run_end;
};

struct scanner {
    struct attn_scan *scan;
    const attnrun_limits *limits;
    const uint8_t *data;
    int64_t bytes, at;
    struct frame *top;
    int depth, graphs;
    struct frame frames[ATTN_SCAN_DEPTH];
};

struct field {
    const ProtobufCFieldDescriptor *descriptor; /* NULL: not in the schema */
    uint32_t *seen;
    struct scan_rule rule;
    uint32_t id;
    enum wire wire;
};

int attn_varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (int k = 0; k < 10 && p + k < end; k++) {
        v |= (uint64_t)(p[k] & 0x7f) << (7 * k);
        if ((p[k] & 0x80) == 0) {
            *value = v;
            return k + 1;
        }
    }
    return 0;
}

/* ---- the copy ---- */

static attn_status grow(struct attn_scan *scan, void **block, int64_t *capacity,
                        int64_t used, int64_t wanted, int64_t item)
{
    if (wanted <= *capacity)
        return ATTNRUN_OK;
    int64_t more = *capacity < 64 ? 64 : *capacity * 2;
    if (more < wanted)
        more = wanted;
    void *larger = attn_alloc(scan->memory, ATTN_MEM_MODEL, more * item);
    if (larger == NULL)
        return ATTNRUN_E_MEMORY;
    if (used > 0)
        memcpy(larger, *block, (size_t)(used * item));
    attn_free(scan->memory, ATTN_MEM_MODEL, *block, *capacity * item);
    *block = larger;
    *capacity = more;
    return ATTNRUN_OK;
}

static attn_status wire_put(struct scanner *s, const void *bytes, int64_t n)
{
    struct attn_scan *scan = s->scan;
    TRY(attn_poll_work(n));
    if (s->top->muted || n == 0)
        return ATTNRUN_OK;
    if (n > s->limits->graph_bytes - scan->copy_bytes)
        return attn_fail_limit(ATTN_LIMIT_GRAPH_BYTES,
                               "the model without its weights is over %lld bytes",
                               (long long)s->limits->graph_bytes);
    void *copy = scan->copy;
    TRY(grow(scan, &copy, &scan->copy_capacity, scan->copy_bytes, scan->copy_bytes + n,
             1));
    scan->copy = copy;
    memcpy(scan->copy + scan->copy_bytes, bytes, (size_t)n);
    scan->copy_bytes += n;
    return ATTNRUN_OK;
}

static attn_status put_varint(struct scanner *s, uint64_t value)
{
    uint8_t bytes[10];
    int n = 0;
    while (value >= 0x80) {
        bytes[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    return wire_put(s, bytes, n);
}

static attn_status put_tag(struct scanner *s, uint32_t id, enum wire wire)
{
    return put_varint(s, (uint64_t)id << 3 | (uint32_t)wire);
}

static void set_length(uint8_t *at, uint64_t value)
{
    for (int k = 0; k < LENGTH_BYTES; k++, value >>= 7)
        at[k] = (uint8_t)((value & 0x7f) | (k < LENGTH_BYTES - 1 ? 0x80 : 0));
}

/* ---- errors: "byte 1234 (NodeProto.input): ..." ---- */

static const char *field_name(const struct scanner *s, const struct field *field)
{
    (void)s;
    return field->descriptor != NULL ? field->descriptor->name : "?";
}

static attn_status fail_at(const struct scanner *s, attn_status status,
                           const struct field *field, const char *text)
{
    return attn_fail(status, "byte %lld (%s.%s): %s", (long long)s->at,
                     s->top->descriptor->short_name,
                     field != NULL ? field_name(s, field) : "?", text);
}

static attn_status fail_limit(const struct scanner *s, const struct field *field,
                              enum attn_limit limit, const char *what, long long found)
{
    return attn_fail_limit(
        limit, "byte %lld (%s.%s): there are at least %lld %s, expected at most %lld",
        (long long)s->at, s->top->descriptor->short_name, field_name(s, field), found,
        what, (long long)attn_limit(s->limits, limit));
}

/* ---- reading ---- */

static attn_status read_varint(struct scanner *s, const struct field *field,
                               uint64_t *value)
{
    int n = attn_varint(s->data + s->at, s->data + s->top->end, value);
    if (n == 0)
        return fail_at(s, ATTNRUN_E_PARSE, field,
                       "a number is truncated or longer than 10 bytes");
    s->at += n;
    return ATTNRUN_OK;
}

/* Reads a length and checks it against what is left of the message. */
static attn_status read_length(struct scanner *s, const struct field *field, int64_t *n)
{
    uint64_t value = 0;
    TRY(read_varint(s, field, &value));
    if (value > (uint64_t)(s->top->end - s->at))
        return attn_fail(
            ATTNRUN_E_PARSE,
            "byte %lld (%s.%s): the length is %llu, which exceeds the remaining %s",
            (long long)s->at, s->top->descriptor->short_name, field_name(s, field),
            (unsigned long long)value, attn_plural(s->top->end - s->at, "byte"));
    *n = (int64_t)value;
    return ATTNRUN_OK;
}

static enum wire wire_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return WIRE_32;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return WIRE_64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_LENGTH;
    default:
        return WIRE_VARINT;
    }
}

static attn_status read_tag(struct scanner *s, struct field *field)
{
    uint64_t tag = 0;
    TRY(read_varint(s, NULL, &tag));
    field->id = (uint32_t)(tag >> 3);
    field->wire = (enum wire)(tag & 7);
    if (tag > UINT32_MAX || field->id == 0)
        return fail_at(s, ATTNRUN_E_PARSE, NULL, "expected the start of a field");
    field->descriptor =
        protobuf_c_message_descriptor_get_field(s->top->descriptor, field->id);
    field->seen = NULL;
    if (field->descriptor != NULL) {
        field->seen = s->top->seen + (field->descriptor - s->top->descriptor->fields);
        field->rule = attn_scan_rule_of(s->top->rules, field->id);
    }
    return ATTNRUN_OK;
}

static attn_status count_elements(struct scanner *s, const struct field *field,
                                  uint32_t n)
{
    if (field->descriptor->label != PROTOBUF_C_LABEL_REPEATED) {
        *field->seen += 1;
        return ATTNRUN_OK;
    }
    const int32_t limit = field->rule.limit;
    if (limit != SCAN_UNLIMITED && !s->top->muted &&
        (int64_t)*field->seen + n > attn_limit(s->limits, (enum attn_limit)limit))
        return fail_limit(s, field, (enum attn_limit)limit, "elements",
                          (long long)*field->seen + n);
    *field->seen += n;
    return ATTNRUN_OK;
}

/* ---- fields ---- */

static attn_status skip_value(struct scanner *s, const struct field *field)
{
    int64_t n = 0;
    uint64_t value;
    switch (field->wire) {
    case WIRE_VARINT:
        return read_varint(s, field, &value);
    case WIRE_LENGTH:
        TRY(read_length(s, field, &n));
        break;
    case WIRE_32:
    case WIRE_64:
        n = field->wire == WIRE_32 ? 4 : 8;
        if (n > s->top->end - s->at)
            return fail_at(s, ATTNRUN_E_PARSE, field, "the message ends within a value");
        break;
    default:
        return fail_at(s, ATTNRUN_E_PARSE, field, "ONNX does not use this wire type");
    }
    s->at += n;
    return ATTNRUN_OK;
}

static attn_status wire_put_number(struct scanner *s, const struct field *field)
{
    if (field->wire == WIRE_VARINT) {
        uint64_t value = 0;
        TRY(read_varint(s, field, &value));
        return put_varint(s, value);
    }
    int64_t from = s->at;
    TRY(skip_value(s, field));
    return wire_put(s, s->data + from, s->at - from);
}

/* Numbers of a list that the file has one by one become packed: protobuf-c notes each
 * occurrence of a field in some 40 bytes. */
static attn_status put_in_list(struct scanner *s, const struct field *field)
{
    static const uint8_t room[LENGTH_BYTES] = { 0 };
    struct frame *frame = s->top;
    struct attn_scan *scan = s->scan;
    if (frame->run_id != field->id || frame->run_end != scan->copy_bytes) {
        TRY(put_tag(s, field->id, WIRE_LENGTH));
        frame->run_id = field->id;
        frame->run_length = scan->copy_bytes;
        TRY(wire_put(s, room, LENGTH_BYTES));
    }
    TRY(wire_put_number(s, field));
    frame->run_end = scan->copy_bytes;
    if (!frame->muted)
        set_length(scan->copy + frame->run_length,
                   (uint64_t)(frame->run_end - frame->run_length - LENGTH_BYTES));
    return ATTNRUN_OK;
}

static attn_status scan_scalar(struct scanner *s, const struct field *field)
{
    TRY(count_elements(s, field, 1));
    if (field->descriptor->label == PROTOBUF_C_LABEL_REPEATED)
        return put_in_list(s, field);
    TRY(put_tag(s, field->id, field->wire));
    return wire_put_number(s, field);
}

/* Tensor data that stays in the file. A tensor has it in one field, in one piece. */
static attn_status cut_bulk(struct scanner *s, const struct field *field, int64_t n)
{
    struct attn_scan *scan = s->scan;
    if (!s->top->muted) {
        if (s->top->bulk >= 0)
            return fail_at(s, ATTNRUN_E_MODEL, field, "a tensor has its data twice");
        void *bulk = scan->bulk;
        TRY(grow(scan, &bulk, &scan->bulk_capacity, scan->n_bulk, scan->n_bulk + 1,
                 (int64_t)sizeof(struct attn_bulk)));
        scan->bulk = bulk;
        scan->bulk[scan->n_bulk] = (struct attn_bulk){ field->id, s->at, n };
        s->top->bulk = scan->n_bulk++;
    }
    s->at += n;
    return ATTNRUN_OK;
}

static attn_status count_packed(struct scanner *s, const struct field *field, int64_t n,
                                uint32_t *count)
{
    enum wire wire = wire_of(field->descriptor->type);
    *count = 0;
    if (wire != WIRE_VARINT) {
        int64_t item = wire == WIRE_32 ? 4 : 8;
        if (n % item != 0)
            return fail_at(s, ATTNRUN_E_PARSE, field,
                           "the packed numbers end in the middle of a number");
        *count = (uint32_t)(n / item > UINT32_MAX ? UINT32_MAX : n / item);
        return ATTNRUN_OK;
    }
    const uint8_t *p = s->data + s->at, *end = p + n;
    while (p < end) {
        uint64_t value;
        if (attn_stops(*count))
            return attn_poll();
        int used = attn_varint(p, end, &value);
        if (used == 0 || *count == UINT32_MAX)
            return fail_at(s, ATTNRUN_E_PARSE, field,
                           "the packed numbers end in the middle of a number");
        p += used;
        ++*count;
    }
    return ATTNRUN_OK;
}

/* Copies a field of the next n bytes. */
static attn_status put_bytes(struct scanner *s, const struct field *field, int64_t n)
{
    TRY(put_tag(s, field->id, WIRE_LENGTH));
    TRY(put_varint(s, (uint64_t)n));
    TRY(wire_put(s, s->data + s->at, n));
    s->at += n;
    return ATTNRUN_OK;
}

static attn_status scan_packed(struct scanner *s, const struct field *field)
{
    int64_t n = 0;
    uint32_t count = 0;
    TRY(read_length(s, field, &n));
    if (field->rule.kind == SCAN_BULK && n > ATTN_SCAN_BULK)
        return cut_bulk(s, field, n);
    TRY(count_packed(s, field, n, &count));
    TRY(count_elements(s, field, count));
    return put_bytes(s, field, n);
}

static attn_status scan_text(struct scanner *s, const struct field *field)
{
    int64_t n = 0;
    TRY(read_length(s, field, &n));
    if (field->rule.kind == SCAN_DROP || s->top->muted) {
        s->at += n;
        return ATTNRUN_OK;
    }
    if (field->rule.kind == SCAN_BULK && n > ATTN_SCAN_BULK)
        return cut_bulk(s, field, n);
    TRY(count_elements(s, field, 1));
    const enum attn_limit limit =
        field->rule.kind == SCAN_NAME ? ATTN_LIMIT_NAME_BYTES : ATTN_LIMIT_STRING_BYTES;
    if (n > attn_limit(s->limits, limit))
        return fail_limit(s, field, limit, "bytes", n);
    if (field->descriptor->type == PROTOBUF_C_TYPE_STRING && n > 0 &&
        memchr(s->data + s->at, 0, (size_t)n) != NULL)
        return fail_at(s, ATTNRUN_E_MODEL, field,
                       "the name or string contains a NUL byte");
    return put_bytes(s, field, n);
}

/* A singular message that comes again. Two are a broken file, very many are an attack:
 * the rest of the message is looked through to tell them apart. */
static attn_status fail_twice(struct scanner *s, const struct field *field)
{
    int64_t times = *field->seen + 1;
    struct field next = *field;
    attn_status status = skip_value(s, field);
    while (status == ATTNRUN_OK && s->at < s->top->end) {
        status = read_tag(s, &next);
        times += status == ATTNRUN_OK && next.id == field->id;
        if (status == ATTNRUN_OK)
            status = attn_poll_work(FIELD_BYTES);
        if (status == ATTNRUN_OK)
            status = skip_value(s, &next);
    }
    if (times > MANY_TIMES)
        return attn_fail(ATTNRUN_E_LIMIT,
                         "byte %lld (%s.%s): the field appears %lld times, expected once",
                         (long long)s->at, s->top->descriptor->short_name,
                         field_name(s, field), (long long)times);
    return attn_fail(ATTNRUN_E_PARSE, "%s.%s appears %lld times, expected once",
                     s->top->descriptor->short_name, field_name(s, field),
                     (long long)times);
}

/* Counts over the whole file. */
static attn_status count_messages(struct scanner *s, const struct field *field)
{
    const void *type = field->descriptor->descriptor;
    if (s->top->muted)
        return ATTNRUN_OK;
    if (type == &attnrun__onnx__node_proto__descriptor &&
        ++s->scan->n_nodes > s->limits->nodes)
        return fail_limit(s, field, ATTN_LIMIT_NODES, "nodes in the file",
                          s->scan->n_nodes);
    if (type == &attnrun__onnx__tensor_proto__descriptor &&
        ++s->scan->n_tensors > s->limits->tensors)
        return fail_limit(s, field, ATTN_LIMIT_TENSORS, "tensors in the file",
                          s->scan->n_tensors);
    return ATTNRUN_OK;
}

static bool is_graph(const struct frame *frame)
{
    return frame->descriptor == &attnrun__onnx__graph_proto__descriptor;
}

static void start_frame(struct scanner *s, const ProtobufCMessageDescriptor *descriptor,
                        int64_t end, int64_t length, bool muted)
{
    s->top = &s->frames[s->depth++];
    memset(s->top, 0, sizeof *s->top);
    s->top->descriptor = descriptor;
    s->top->rules = attn_scan_rules_of(descriptor);
    s->top->end = end;
    s->top->length = length;
    s->top->muted = muted;
    s->top->bulk = -1;
    s->graphs += is_graph(s->top);
}

static attn_status scan_message(struct scanner *s, const struct field *field)
{
    if (field->descriptor->label != PROTOBUF_C_LABEL_REPEATED && *field->seen > 0)
        return fail_twice(s, field);
    int64_t n = 0;
    TRY(read_length(s, field, &n));
    TRY(count_elements(s, field, 1));
    TRY(count_messages(s, field));
    if (s->depth >= s->limits->message_depth)
        return fail_limit(s, field, ATTN_LIMIT_MESSAGE_DEPTH, "nested messages",
                          s->depth + 1);
    bool muted = s->top->muted || field->rule.kind == SCAN_DROP;
    int64_t length = -1;
    if (!muted) {
        static const uint8_t room[LENGTH_BYTES] = { 0 };
        TRY(put_tag(s, field->id, WIRE_LENGTH));
        length = s->scan->copy_bytes;
        TRY(wire_put(s, room, LENGTH_BYTES));
    }
    start_frame(s, field->descriptor->descriptor, s->at + n, length, muted);
    if (s->graphs > s->limits->subgraph_depth + 1)
        return attn_fail_limit(ATTN_LIMIT_SUBGRAPH_DEPTH,
                               "byte %lld: there are at least %s, expected at most %lld",
                               (long long)s->at,
                               attn_plural(s->graphs - 1, "nested subgraph"),
                               (long long)s->limits->subgraph_depth);
    return ATTNRUN_OK;
}

static attn_status scan_field(struct scanner *s)
{
    struct field field;
    TRY(read_tag(s, &field));
    if (field.descriptor == NULL)
        return skip_value(s, &field);
    enum wire expected = wire_of(field.descriptor->type);
    if (field.wire == WIRE_LENGTH && expected != WIRE_LENGTH &&
        field.descriptor->label == PROTOBUF_C_LABEL_REPEATED)
        return scan_packed(s, &field);
    if (field.wire != expected)
        return attn_fail(ATTNRUN_E_PARSE,
                         "byte %lld (%s.%s): the wire type is %d, expected %d",
                         (long long)s->at, s->top->descriptor->short_name,
                         field_name(s, &field), (int)field.wire, (int)expected);
    if (field.descriptor->type == PROTOBUF_C_TYPE_MESSAGE)
        return scan_message(s, &field);
    if (expected == WIRE_LENGTH)
        return scan_text(s, &field);
    return scan_scalar(s, &field);
}

/* What must be there, checked here so that a million empty messages end at the first. */
static attn_status check_required(const struct scanner *s)
{
    const struct frame *top = s->top;
    if (top->muted || top->rules == NULL || top->rules->required == 0)
        return ATTNRUN_OK;
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(top->descriptor, top->rules->required);
    if (field == NULL || top->seen[field - top->descriptor->fields] > 0)
        return ATTNRUN_OK;
    return attn_fail(ATTNRUN_E_MODEL, "byte %lld: this %s has no %s", (long long)s->at,
                     top->descriptor->short_name, field->name);
}

static attn_status end_frame(struct scanner *s)
{
    TRY(check_required(s));
    struct frame *top = s->top;
    if (top->bulk >= 0) {
        uint32_t index = (uint32_t)top->bulk;
        uint8_t bytes[4] = { (uint8_t)index, (uint8_t)(index >> 8),
                             (uint8_t)(index >> 16), (uint8_t)(index >> 24) };
        TRY(put_tag(s, ATTN_SCAN_BULK_FIELD, WIRE_32));
        TRY(wire_put(s, bytes, sizeof bytes));
    }
    if (top->length >= 0) {
        int64_t from = top->length + LENGTH_BYTES;
        set_length(s->scan->copy + top->length, (uint64_t)(s->scan->copy_bytes - from));
    }
    s->graphs -= is_graph(top);
    s->depth--;
    s->top = s->depth > 0 ? &s->frames[s->depth - 1] : NULL;
    return ATTNRUN_OK;
}

attn_status attn_wire_scan(struct attn_memory *memory, const attnrun_limits *limits,
                           const ProtobufCMessageDescriptor *descriptor,
                           const uint8_t *data, int64_t bytes, struct attn_scan *scan)
{
    *scan = (struct attn_scan){ .memory = memory, .data = data };
    if (bytes < 0 || bytes > limits->file_bytes)
        return attn_fail_limit(ATTN_LIMIT_FILE_BYTES,
                               "the model has %lld bytes, expected at most %lld",
                               (long long)bytes, (long long)limits->file_bytes);
    struct scanner *s = attn_alloc(memory, ATTN_MEM_MODEL, (int64_t)sizeof *s);
    if (s == NULL)
        return ATTNRUN_E_MEMORY;
    *s = (struct scanner){ .scan = scan, .limits = limits, .data = data, .bytes = bytes };
    start_frame(s, descriptor, bytes, -1, false);
    attn_status status = ATTNRUN_OK;
    while (status == ATTNRUN_OK && s->depth > 0) {
        status = attn_poll_work(FIELD_BYTES);
        if (status == ATTNRUN_OK)
            status = s->at == s->top->end ? end_frame(s) : scan_field(s);
    }
    attn_free(memory, ATTN_MEM_MODEL, s, (int64_t)sizeof *s);
    return status;
}

void attn_scan_free(struct attn_scan *scan)
{
    attn_free(scan->memory, ATTN_MEM_MODEL, scan->copy, scan->copy_capacity);
    attn_free(scan->memory, ATTN_MEM_MODEL, scan->bulk,
              scan->bulk_capacity * (int64_t)sizeof(struct attn_bulk));
    *scan = (struct attn_scan){ 0 };
}

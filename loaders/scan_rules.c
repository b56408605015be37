/* scan_rules.c - the limits of single fields of the schema, as rows; see scan_rules.h. */
#include "scan_rules.h"

#include <stddef.h>

#include "onnx.pb-c.h"
#include "wire_scan.h"

#define OF(message) .descriptor = &attnrun__onnx__##message##__descriptor
#define MANY        ATTN_SCAN_REPEATED

static const struct scan_rules all_rules[] = {
    { OF(node_proto), .required = 4,
      .rules = { { 1, SCAN_NAME, ATTN_SCAN_OPERANDS },
                 { 2, SCAN_NAME, ATTN_SCAN_OPERANDS },
                 { 3, SCAN_NAME, 0 },
                 { 4, SCAN_NAME, 0 },
                 { 7, SCAN_NAME, 0 },
                 { 8, SCAN_NAME, 0 },
                 { 5, SCAN_PLAIN, ATTN_SCAN_ATTRIBUTES },
                 { 6, SCAN_DROP, 0 },
                 { 9, SCAN_DROP, 0 },
                 { 10, SCAN_DROP, 0 } } },
    { OF(attribute_proto), .required = 1,
      .rules = { { 1, SCAN_NAME, 0 },
                 { 7, SCAN_PLAIN, ATTN_SCAN_LIST },
                 { 8, SCAN_PLAIN, ATTN_SCAN_LIST },
                 { 9, SCAN_PLAIN, ATTN_SCAN_LIST },
                 { 21, SCAN_NAME, 0 },
                 { 13, SCAN_DROP, 0 } } },
    { OF(tensor_proto), .rules = { { 4, SCAN_BULK, INT64_MAX },
                                   { 5, SCAN_BULK, INT64_MAX },
                                   { 6, SCAN_PLAIN, INT64_MAX },
                                   { 7, SCAN_BULK, INT64_MAX },
                                   { 8, SCAN_NAME, 0 },
                                   { 9, SCAN_BULK, 0 },
                                   { 10, SCAN_BULK, INT64_MAX },
                                   { 11, SCAN_BULK, INT64_MAX },
                                   { 12, SCAN_DROP, 0 },
                                   { 16, SCAN_DROP, 0 } } },
    { OF(graph_proto),
      .rules = { { 2, SCAN_NAME, 0 }, { 14, SCAN_DROP, 0 }, { 16, SCAN_DROP, 0 } } },
    { OF(value_info_proto),
      .rules = { { 1, SCAN_NAME, 0 }, { 3, SCAN_DROP, 0 }, { 4, SCAN_DROP, 0 } } },
    { OF(function_proto), .rules = { { 1, SCAN_NAME, 0 },
                                     { 4, SCAN_NAME, ATTN_SCAN_OPERANDS },
                                     { 5, SCAN_NAME, ATTN_SCAN_OPERANDS },
                                     { 6, SCAN_NAME, ATTN_SCAN_ATTRIBUTES },
                                     { 11, SCAN_PLAIN, ATTN_SCAN_ATTRIBUTES },
                                     { 10, SCAN_NAME, 0 },
                                     { 13, SCAN_NAME, 0 },
                                     { 8, SCAN_DROP, 0 },
                                     { 14, SCAN_DROP, 0 } } },
    { OF(operator_set_id_proto), .rules = { { 1, SCAN_NAME, 0 } } },
    { OF(string_string_entry_proto), .rules = { { 1, SCAN_NAME, 0 } } },
    { OF(tensor_shape_proto__dimension),
      .rules = { { 2, SCAN_NAME, 0 }, { 3, SCAN_DROP, 0 } } },
    { OF(type_proto), .rules = { { 6, SCAN_DROP, 0 } } },
    { OF(model_proto), .rules = { { 20, SCAN_DROP, 0 }, { 26, SCAN_DROP, 0 } } },
};

const struct scan_rules *attn_scan_rules_of(const ProtobufCMessageDescriptor *descriptor)
{
    for (size_t k = 0; k < sizeof all_rules / sizeof all_rules[0]; k++)
        if (all_rules[k].descriptor == descriptor)
            return &all_rules[k];
    return NULL;
}

struct scan_rule attn_scan_rule_of(const struct scan_rules *rules, uint32_t id)
{
    struct scan_rule rule = { .id = id, .kind = SCAN_PLAIN, .max = MANY };
    if (rules == NULL)
        return rule;
    for (int k = 0; k < 16 && rules->rules[k].id != 0; k++)
        if (rules->rules[k].id == id)
            rule = rules->rules[k];
    if (rule.max == 0)
        rule.max = MANY;
    return rule;
}

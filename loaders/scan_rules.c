/* scan_rules.c - the limits of single fields of the schema, as rows; see scan_rules.h. */
#include "scan_rules.h"

#include <stddef.h>

#include "../runtime/file_limits.h"
#include "onnx.pb-c.h"

#define ITEMS       ATTN_LIMIT_ITEMS
#define OF(message) .descriptor = &attnrun__onnx__##message##__descriptor

static const struct scan_rules all_rules[] = {
    { OF(node_proto), .required = 4,
      .rules = { { 1, SCAN_NAME, ATTN_LIMIT_OPERANDS },
                 { 2, SCAN_NAME, ATTN_LIMIT_OPERANDS },
                 { 3, SCAN_NAME, ITEMS },
                 { 4, SCAN_NAME, ITEMS },
                 { 7, SCAN_NAME, ITEMS },
                 { 8, SCAN_NAME, ITEMS },
                 { 5, SCAN_PLAIN, ATTN_LIMIT_ATTRIBUTES },
                 { 6, SCAN_DROP, ITEMS },
                 { 9, SCAN_DROP, ITEMS },
                 { 10, SCAN_DROP, ITEMS } } },
    { OF(attribute_proto), .required = 1,
      .rules = { { 1, SCAN_NAME, ITEMS },
                 { 7, SCAN_PLAIN, ATTN_LIMIT_ATTRIBUTE_ITEMS },
                 { 8, SCAN_PLAIN, ATTN_LIMIT_ATTRIBUTE_ITEMS },
                 { 9, SCAN_PLAIN, ATTN_LIMIT_ATTRIBUTE_ITEMS },
                 { 21, SCAN_NAME, ITEMS },
                 { 13, SCAN_DROP, ITEMS } } },
    { OF(tensor_proto), .rules = { { 4, SCAN_BULK, SCAN_UNLIMITED },
                                   { 5, SCAN_BULK, SCAN_UNLIMITED },
                                   { 6, SCAN_PLAIN, SCAN_UNLIMITED },
                                   { 7, SCAN_BULK, SCAN_UNLIMITED },
                                   { 8, SCAN_NAME, ITEMS },
                                   { 9, SCAN_BULK, ITEMS },
                                   { 10, SCAN_BULK, SCAN_UNLIMITED },
                                   { 11, SCAN_BULK, SCAN_UNLIMITED },
                                   { 12, SCAN_DROP, ITEMS },
                                   { 16, SCAN_DROP, ITEMS } } },
    { OF(graph_proto), .rules = { { 2, SCAN_NAME, ITEMS },
                                  { 14, SCAN_DROP, ITEMS },
                                  { 16, SCAN_DROP, ITEMS } } },
    { OF(value_info_proto), .rules = { { 1, SCAN_NAME, ITEMS },
                                       { 3, SCAN_DROP, ITEMS },
                                       { 4, SCAN_DROP, ITEMS } } },
    { OF(function_proto), .rules = { { 1, SCAN_NAME, ITEMS },
                                     { 4, SCAN_NAME, ATTN_LIMIT_OPERANDS },
                                     { 5, SCAN_NAME, ATTN_LIMIT_OPERANDS },
                                     { 6, SCAN_NAME, ATTN_LIMIT_ATTRIBUTES },
                                     { 11, SCAN_PLAIN, ATTN_LIMIT_ATTRIBUTES },
                                     { 10, SCAN_NAME, ITEMS },
                                     { 13, SCAN_NAME, ITEMS },
                                     { 8, SCAN_DROP, ITEMS },
                                     { 14, SCAN_DROP, ITEMS } } },
    { OF(operator_set_id_proto), .rules = { { 1, SCAN_NAME, ITEMS } } },
    { OF(string_string_entry_proto), .rules = { { 1, SCAN_NAME, ITEMS } } },
    { OF(tensor_shape_proto__dimension),
      .rules = { { 2, SCAN_NAME, ITEMS }, { 3, SCAN_DROP, ITEMS } } },
    { OF(type_proto), .rules = { { 6, SCAN_DROP, ITEMS } } },
    { OF(model_proto), .rules = { { 20, SCAN_DROP, ITEMS }, { 26, SCAN_DROP, ITEMS } } },
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
    struct scan_rule rule = { .id = id, .kind = SCAN_PLAIN, .limit = ITEMS };
    if (rules == NULL)
        return rule;
    for (int k = 0; k < 16 && rules->rules[k].id != 0; k++)
        if (rules->rules[k].id == id)
            rule = rules->rules[k];
    return rule;
}

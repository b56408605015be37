/* scan_rules.h - what wire_scan.c knows of single fields beyond their type in the schema:
 * the largest count or length, and whether the runtime reads the field at all. */
#ifndef ATTN_SCAN_RULES_H
#define ATTN_SCAN_RULES_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

enum scan_kind {
    SCAN_PLAIN, /* copied */
    SCAN_NAME,  /* a text within the limit name_bytes */
    SCAN_BULK,  /* tensor data: left in the file where it is large */
    SCAN_DROP   /* checked, not copied: nobody reads it */
};

enum { SCAN_UNLIMITED = -1 };

struct scan_rule {
    uint32_t id;
    enum scan_kind kind;
    /* Of the elements of a repeated field: an enum attn_limit, or SCAN_UNLIMITED. */
    int32_t limit;
};

struct scan_rules {
    const ProtobufCMessageDescriptor *descriptor;
    uint32_t required;          /* a field that must be there, or 0 */
    struct scan_rule rules[16]; /* end with id 0 */
};

/* NULL where a message has no rules. */
const struct scan_rules *attn_scan_rules_of(const ProtobufCMessageDescriptor *descriptor);
struct scan_rule attn_scan_rule_of(const struct scan_rules *rules, uint32_t id);

#endif

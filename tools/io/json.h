/* json.h - writes one JSON document to a stream; and a small strict reader of the inline
 * lists that inputs are written as. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

#include <stdbool.h>
#include <stdio.h>

#include "value.h"

struct json {
    FILE *out;
    int depth;
    bool comma; /* something stands before the next item */
};
void json_open(struct json *json, const char *key, char bracket); /* key NULL in a list */
void json_close(struct json *json, char bracket);                 /* '}' or ']' */
void json_text(struct json *json, const char *key, const char *value);
void json_int(struct json *json, const char *key, int64_t value);
void json_real(struct json *json, const char *key, double value); /* null if not finite */
/* The same for a number of another float type, as short as that type reads back the same. */
void json_real_of(struct json *json, const char *key, double value, int32_t dtype);
void json_ms(struct json *json, const char *key, double ms); /* in steps of a ps */
void json_bool(struct json *json, const char *key, bool value);
/* What stands before a value; json_raw and its kin then write the value itself. */
void json_key(struct json *json, const char *key);
void json_raw(struct json *json, const char *text);
void json_string(struct json *json, const char *text, int64_t n); /* quoted */
/* A number of a float type, as short as reads back the same; null: not finite */
void json_number(struct json *json, double value, int32_t dtype);
/* The words of `text` between any of `separators`, as a list. */
void json_words(struct json *json, const char *key, const char *text,
                const char *separators);
void json_dims(struct json *json, const char *key, const attnrun_tensor *tensor);

/* The first number that is the value of `key` in an object that json_open() and its kin wrote;
 * NaN where there is none. */
double json_member(const char *text, const char *key);

/* Parses "[[1,2],[3,4]]", "3.5", "true", "[\"a\"]" as a tensor of `dtype`. Ragged lists,
 * values that don't fit the type, ranks over 8 and trailing text are refused. */
attnrun_status json_parse_tensor(const char *text, int32_t dtype, struct held *held);

#endif

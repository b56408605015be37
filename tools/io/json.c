/* json.c - writes one JSON document to a stream.
 *
 * In: keys, texts, numbers and brackets, in the order of the document. Out: JSON in UTF-8: bytes
 * that are not UTF-8 become U+FFFD, numbers are the shortest that give the same value, and
 * numbers that are not finite are null. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "npy_text.h"

/* Whether a terminal would obey the character of n bytes at `s`, as attnrun_escape() says. */
static bool is_control(const char *s, int n)
{
    char one[8] = "", shown[32];
    if (n == 1)
        return *s < 32 || *s == 127;
    memcpy(one, s, (size_t)n);
    attnrun_escape(one, shown, sizeof shown);
    return strcmp(one, shown) != 0;
}

static void put_bytes(FILE *out, const char *text, int64_t bytes)
{
    const char *s = text, *end = s + bytes;
    putc('"', out);
    while (s < end) {
        int n = attnrun_utf8_length(s, (size_t)(end - s));
        if (n == 0) {
            fputs("\\ufffd", out);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            fprintf(out, "\\%c", *s);
        } else if (is_control(s, n)) {
            fprintf(out, "\\u%04x", utf8_decode(s, n)); /* all are below U+10000 */
        } else {
            fwrite(s, 1, (size_t)n, out);
        }
        s += n;
    }
    putc('"', out);
}

static void json_put_text(FILE *out, const char *text)
{
    put_bytes(out, text == NULL ? "" : text, text == NULL ? 0 : (int64_t)strlen(text));
}

/* What stands before an item: comma, line, indent, key. */
static void begin_item(struct json *json, const char *key)
{
    if (json->comma)
        putc(',', json->out);
    if (json->depth > 0)
        fprintf(json->out, "\n%*s", 2 * json->depth, "");
    if (key != NULL) {
        json_put_text(json->out, key);
        fputs(": ", json->out);
    }
    json->comma = true;
}

void json_open(struct json *json, const char *key, char bracket)
{
    begin_item(json, key);
    putc(bracket, json->out);
    json->depth++;
    json->comma = false;
}

void json_close(struct json *json, char bracket)
{
    json->depth--;
    if (json->comma)
        fprintf(json->out, "\n%*s", 2 * json->depth, "");
    putc(bracket, json->out);
    if (json->depth == 0)
        putc('\n', json->out);
    json->comma = true;
}

void json_text(struct json *json, const char *key, const char *value)
{
    begin_item(json, key);
    json_put_text(json->out, value);
}

void json_int(struct json *json, const char *key, int64_t value)
{
    begin_item(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void json_key(struct json *json, const char *key) { begin_item(json, key); }

void json_raw(struct json *json, const char *text) { fputs(text, json->out); }

void json_string(struct json *json, const char *text, int64_t n)
{
    put_bytes(json->out, n > 0 ? text : "", n);
}

void json_number(struct json *json, double value, int32_t dtype)
{
    fputs(isfinite(value) ? value_number(value, dtype) : "null", json->out);
}

void json_words(struct json *json, const char *key, const char *text,
                const char *separators)
{
    bool comma = false;
    begin_item(json, key);
    putc('[', json->out);
    for (const char *at = text == NULL ? "" : text; *at != 0;) {
        size_t n = strcspn(at, separators);
        if (n > 0) {
            fputs(comma ? ", " : "", json->out);
            put_bytes(json->out, at, (int64_t)n);
            comma = true;
        }
        at += n + (at[n] != 0);
    }
    putc(']', json->out);
}

void json_real_of(struct json *json, const char *key, double value, int32_t dtype)
{
    begin_item(json, key);
    json_number(json, value, dtype);
}

void json_real(struct json *json, const char *key, double value)
{
    json_real_of(json, key, value, ATTNRUN_F64);
}

void json_ms(struct json *json, const char *key, double ms)
{
    json_real(json, key, round(ms * 1e9) / 1e9);
}

void json_bool(struct json *json, const char *key, bool value)
{
    begin_item(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_dims(struct json *json, const char *key, const attnrun_tensor *tensor)
{
    begin_item(json, key);
    putc('[', json->out);
    for (int32_t i = 0; i < tensor->rank && i < ATTNRUN_MAX_RANK; i++)
        fprintf(json->out, "%s%" PRId64, i > 0 ? ", " : "", tensor->dims[i]);
    putc(']', json->out);
}

double json_member(const char *text, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    char *end = NULL;
    const double value = at == NULL ? 0 : strtod(at + strlen(quoted), &end);
    return at == NULL || end == at + strlen(quoted) ? (double)NAN : value;
}

/* words.c - names from files and users: made safe to print, and the nearest known one.
 *
 * In: text whose bytes nobody has checked. Out: text for a terminal, in UTF-8 without control
 * characters; or the word of a list that a misspelt one most likely means. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "attnrun.h"
#include "utf8.h"

/* ---- UTF-8 (RFC 3629) ---- */

int attn_utf8_take(const char *text, size_t bytes, uint32_t *point)
{
    const unsigned char *s = (const unsigned char *)text;
    /* the lowest code point of n bytes: smaller ones would be overlong */
    static const uint32_t first[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n == 0 || s[0] > 0xf4 || (size_t)n > bytes)
        return 0;
    *point = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *point = *point << 6 | (s[i] & 0x3fu);
    }
    bool surrogate = *point >= 0xd800 && *point < 0xe000;
    return *point < first[n] || *point > 0x10ffff || surrogate ? 0 : n;
}

void attn_utf8_trim(char *text, size_t bytes)
{
    uint32_t point;
    size_t at = bytes;
    while (at > 0 && bytes - at < 3 && (text[at - 1] & 0xc0) == 0x80)
        at--;
    if (at > 0 && (text[at - 1] & 0xc0) == 0xc0 &&
        attn_utf8_take(text + at - 1, bytes - at + 1, &point) == 0)
        text[at - 1] = 0;
}

int32_t attnrun_utf8_length(const char *text, size_t bytes)
{
    uint32_t point;
    return bytes == 0 ? 0 : attn_utf8_take(text, bytes, &point);
}

/* Characters that move the cursor, change the order of what is shown, or end a line. */
static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x61c ||
           point == 0x200e || point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x2069) || point == 0xfeff;
}

/* Writes the character of `bytes` bytes at `s` as it is, or each byte as \xNN. */
static void word_put(char *to, const unsigned char *s, size_t bytes, bool shown)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        const char code[4] = { '\\', 'x', hex[s[i] >> 4], hex[s[i] & 15] };
        memcpy(shown ? to + i : to + 4 * i, shown ? (const char *)s + i : code,
               shown ? 1 : 4);
    }
}

size_t attnrun_escape(const char *text, char *to, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)(text == NULL ? "" : text);
    size_t left = strnlen((const char *)s, bytes + 4), n = 0; /* what may be shown */
    size_t cut = 0; /* the last place with room for "..." */
    while (bytes > 0 && left > 0) {
        uint32_t point = 0;
        int length = attn_utf8_take((const char *)s, left, &point);
        bool shown = length > 0 && !is_control(point);
        size_t from = length > 0 ? (size_t)length : 1, needs = shown ? from : 4 * from;
        cut = n + 3 < bytes ? n : cut;
        if (n + needs >= bytes) {
            n = bytes > 3 ? cut + 3 : 0;
            memcpy(to + cut, "...", n - cut);
            break;
        }
        word_put(to + n, s, from, shown);
        n += needs;
        s += from;
        left -= from;
    }
    if (bytes > 0)
        to[n] = 0;
    return n;
}

/* ---- numbers of things ---- */

static bool ends_in(const char *noun, size_t n, const char *end)
{
    const size_t bytes = strlen(end);
    return n >= bytes && memcmp(noun + n - bytes, end, bytes) == 0;
}

size_t attnrun_plural(int64_t n, const char *noun, char *to, size_t bytes)
{
    size_t length = strlen(noun);
    const char *end = "s";
    if (n == 1) {
        end = "";
    } else if (ends_in(noun, length, "y") && length > 1 &&
               strchr("aeiou", noun[length - 2]) == NULL) {
        length--;
        end = "ies";
    } else if (ends_in(noun, length, "s") || ends_in(noun, length, "x") ||
               ends_in(noun, length, "ch")) {
        end = "es";
    }
    const int written =
        snprintf(to, bytes, "%" PRId64 " %.*s%s", n, (int)length, noun, end);
    return bytes == 0 ? 0 : (size_t)written < bytes ? (size_t)written : bytes - 1;
}

/* ---- "did you mean" ---- */

enum { MAX_WORD = 64 };

static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* A byte of a word, where 'A' is 'a'. */
static int letter(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; }

/* Insertions, deletions, changes and swaps of neighbours from a to b, both of fewer than
 * MAX_WORD bytes; capitals and small letters are the same. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++)
        last[j] = before[j] = j;
    for (int i = 1; i <= n; i++) {
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int x = letter(a[i - 1]), y = letter(b[j - 1]);
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == letter(b[j - 2]) && letter(a[i - 2]) == y &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

/* The distance to the nearest part of a name like "left_window". Names of values share short parts,
 * such as "norm": fewer letters may differ than of a whole name. */
static int part_distance(const char *word, const char *name)
{
    int nearest = MAX_WORD;
    for (const char *at = name; *at != 0; at += strspn(at, "_.")) {
        char part[MAX_WORD];
        size_t n = strcspn(at, "_.");
        memcpy(part, at, n);
        part[n] = 0;
        int distance = edit_distance(word, part);
        nearest = distance < nearest ? distance : nearest;
        at += n;
    }
    return nearest;
}

const char *attnrun_nearest_word(const char *word, const char *const *words, int64_t n)
{
    const char *nearest = NULL;
    size_t length = word != NULL ? strlen(word) : 0;
    if (length < 2 || length >= MAX_WORD) /* one letter is as near to any other */
        return NULL;
    for (int parts = 0; parts < 2 && nearest == NULL; parts++) {
        int best = 1 + (int)(parts == 1   ? length / 4
                             : length < 9 ? (length + 2) / 3
                                          : length / 3);
        for (int64_t i = 0; i < n; i++) {
            if (strlen(words[i]) >= MAX_WORD || strcmp(words[i], word) == 0 ||
                (parts == 1 && (length < 4 || strpbrk(words[i], "_.") == NULL)))
                continue;
            int distance = parts == 0 ? edit_distance(word, words[i])
                                      : part_distance(word, words[i]);
            if (distance < best) {
                nearest = words[i];
                best = distance;
            }
        }
    }
    return nearest;
}

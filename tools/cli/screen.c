/* screen.c - lines for a terminal of 80 columns: a title and a text that is wrapped beside it.
 *
 * In: UTF-8; what a terminal would obey is escaped here, where tool_quote() and tool_path() did not
 * do it before. Out: lines on standard output. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../io/npy_text.h"
#include "screen.h"

enum { COLUMNS = 80 };

void line_add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof line->text - line->n;
    int n = vsnprintf(line->text + line->n, room, format, arguments);
    line->n += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
    va_end(arguments);
}

/* The cells of one code point (Unicode, East Asian Width and general category Mn, by block). */
static int cells(uint32_t c)
{
    static const struct {
        uint32_t first, last;
        int cells;
    } ranges[] = { { 0x300, 0x36f, 0 },     { 0x200b, 0x200d, 0 },
                   { 0xfe00, 0xfe0f, 0 },   { 0x1100, 0x115f, 2 },
                   { 0x2e80, 0x303e, 2 },   { 0x3041, 0xa4cf, 2 },
                   { 0xac00, 0xd7a3, 2 },   { 0xf900, 0xfaff, 2 },
                   { 0xfe30, 0xfe6f, 2 },   { 0xff00, 0xff60, 2 },
                   { 0xffe0, 0xffe6, 2 },   { 0x1f300, 0x1f64f, 2 },
                   { 0x1f900, 0x1f9ff, 2 }, { 0x20000, 0x3fffd, 2 } };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return ranges[i].cells;
    return 1;
}

int screen_width(const char *text, size_t bytes)
{
    int width = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t n = attnrun_utf8_length(text + at, bytes - at);
        const uint32_t c = n > 0 ? utf8_decode(text + at, n) : (unsigned char)text[at];
        width += cells(c);
        at += n > 0 ? (size_t)n : 1;
    }
    return width;
}

/* The bytes of the field at `text`: up to two spaces. */
static size_t field_bytes(const char *text)
{
    const char *end = strstr(text, "  ");
    return end == NULL ? strlen(text) : (size_t)(end - text);
}

/* The bytes of the word at `text`: an option has its value with it, a number its unit. */
static size_t word_bytes(const char *text)
{
    size_t n = strcspn(text, " ");
    const char *next = text + n + 1;
    if (n == 0 || text[n] != ' ')
        return n;
    const size_t letters = strspn(next, "BkMGTmus");
    const bool unit = isdigit((unsigned char)text[n - 1]) && letters > 0 &&
                      letters <= 2 && !isalnum((unsigned char)next[letters]);
    return text[0] == '-' || unit ? n + 1 + strcspn(next, " ") : n;
}

/* The bytes of a word that `room` cells take: up to a mark in their second half, if any. */
static size_t fitting_bytes(const char *word, size_t bytes, int room)
{
    size_t fits = 0, mark = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t n = attnrun_utf8_length(word + at, bytes - at);
        const size_t end = at + (n > 0 ? (size_t)n : 1);
        if (screen_width(word, end) > room)
            break;
        mark = strchr(",/=(+", word[at]) != NULL ? end : mark;
        fits = at = end;
    }
    return fits == bytes || mark < fits / 2 ? fits : mark;
}

/* Where a text is printed: `used` cells of the line are taken. */
struct column {
    int indent, used;
};

static void begin_line(struct column *column)
{
    printf("\n%*s", column->indent, "");
    column->used = column->indent;
}

static void put_part(struct column *column, const char *text, size_t bytes)
{
    printf("%.*s", (int)bytes, text);
    column->used += screen_width(text, bytes);
}

/* Prints a word that is wider than any line in pieces. */
static void put_pieces(struct column *column, const char *word, size_t bytes)
{
    while (bytes > 0) {
        size_t n = fitting_bytes(word, bytes, COLUMNS - column->used);
        n = n == 0 && column->used == column->indent ? bytes : n;
        put_part(column, word, n);
        word += n;
        bytes -= n;
        if (bytes > 0)
            begin_line(column);
    }
}

/* Prints what stays together, after the spaces that stand before it. */
static void put_unit(struct column *column, size_t spaces, const char *text, size_t bytes)
{
    enum { FIRST_PIECE = 16 };
    const int width = screen_width(text, bytes);
    const bool pieces = column->indent + width > COLUMNS;
    const int needs = (int)spaces + (pieces ? FIRST_PIECE : width);
    if (column->used > column->indent && column->used + needs > COLUMNS)
        begin_line(column);
    else
        put_part(column, "        ", spaces < 8 ? spaces : 8);
    if (pieces)
        put_pieces(column, text, bytes);
    else
        put_part(column, text, bytes);
}

void screen_text(const char *title, int indent, const char *given)
{
    char text[4096];
    attnrun_escape(given, text, sizeof text);
    const int width = screen_width(title, strlen(title));
    const int pad = indent > width || title[0] == 0 ? indent - width : 1;
    struct column column = { .indent = indent, .used = width + pad };
    printf("%s%*s", title, pad, "");
    for (const char *at = text, *field_end = text; *at != 0;) {
        const size_t spaces = strspn(at, " ");
        at += spaces;
        size_t n = word_bytes(at);
        if (at >= field_end) {
            const size_t field = field_bytes(at);
            field_end = at + field;
            n = indent + screen_width(at, field) <= COLUMNS ? field : n;
        }
        put_unit(&column, spaces, at, n);
        at += n;
    }
    putchar('\n');
}

void screen_line(const char *title, int indent, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    screen_text(title, indent, text);
}

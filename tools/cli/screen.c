/* screen.c - lines for a terminal of 80 columns: a title and a text that is wrapped beside it.
 *
 * In: UTF-8 that tool_quote() and tool_path() made safe. Out: lines on standard output. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
        const unsigned char *s = (const unsigned char *)text + at;
        int32_t n = attnrun_utf8_length(text + at, bytes - at);
        uint32_t c = n > 1 ? s[0] & (0x7fu >> n) : s[0];
        for (int32_t i = 1; i < n; i++)
            c = c << 6 | (s[i] & 0x3fu);
        width += cells(c);
        at += n > 0 ? (size_t)n : 1;
    }
    return width;
}

void screen_text(const char *title, int indent, const char *text)
{
    int pad = indent - screen_width(title, strlen(title));
    bool first = true;
    pad = pad > 0 || title[0] == 0 ? pad : 1;
    int used = screen_width(title, strlen(title)) + pad;
    printf("%s%*s", title, pad, "");
    for (const char *at = text; *at != 0;) {
        size_t spaces = strspn(at, " "), word = strcspn(at + spaces, " ");
        if (at[spaces] == '-' && at[spaces + word] == ' ') /* an option with its value */
            word += 1 + strcspn(at + spaces + word + 1, " ");
        int width = screen_width(at + spaces, word);
        if (!first && used + (int)spaces + width > COLUMNS) {
            printf("\n%*s", indent, "");
            used = indent;
            spaces = 0;
            at += strspn(at, " ");
        }
        printf("%.*s", (int)(spaces + word), at);
        used += (int)spaces + width;
        at += spaces + word;
        first = false;
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

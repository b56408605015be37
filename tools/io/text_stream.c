/* text_stream.c - in: what is printed to `file`; out: `text`, or that a part of it is missing. */
#include "text_stream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { FIRST_ROOM = 1 << 14 };

/* Room for `bytes` more, and a NUL. */
static bool make_room(struct text_stream *stream, size_t bytes)
{
    size_t room = stream->room != 0 ? stream->room : FIRST_ROOM;
    while (room - stream->bytes <= bytes)
        room *= 2;
    if (room == stream->room)
        return true;
    char *text = realloc(stream->text, room);
    if (text == NULL)
        return false;
    stream->text = text;
    stream->room = room;
    return true;
}

static ssize_t keep(void *cookie, const char *data, size_t bytes)
{
    struct text_stream *stream = cookie;
    if (stream->failed || !make_room(stream, bytes)) {
        stream->failed = true;
        return 0;
    }
    memcpy(stream->text + stream->bytes, data, bytes);
    stream->bytes += bytes;
    stream->text[stream->bytes] = 0;
    return (ssize_t)bytes;
}

bool text_stream_open(struct text_stream *stream)
{
    *stream = (struct text_stream){ .file = NULL };
    if (!make_room(stream, 0))
        return false;
    stream->text[0] = 0;
    stream->file = fopencookie(stream, "w", (cookie_io_functions_t){ .write = keep });
    if (stream->file == NULL)
        text_stream_free(stream);
    return stream->file != NULL;
}

bool text_stream_close(struct text_stream *stream)
{
    if (stream->file != NULL && fclose(stream->file) != 0)
        stream->failed = true;
    stream->file = NULL;
    return !stream->failed;
}

void text_stream_free(struct text_stream *stream)
{
    text_stream_close(stream);
    free(stream->text);
    *stream = (struct text_stream){ .file = NULL };
}

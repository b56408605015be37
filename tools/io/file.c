/* file.c - bytes from files, or from standard input, which is read to its end first.
 *
 * In: a path from the user, "-" for standard input. Out: a file that can be read at any offset,
 * and its size. What is no regular file is refused by its kind. Standard input is kept in memory,
 * up to the limit 'stream_bytes'. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "input_limits.h"

bool file_is_stream(const char *path) { return strcmp(path, "-") == 0; }

/* All of standard input into memory that can be read at offsets, as a file can. */
static attnrun_status copy_stream(int to, int64_t *bytes)
{
    static char buffer[1 << 16];
    for (*bytes = 0;;) {
        ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tool_fail_io("cannot read standard input");
        if (n == 0)
            return ATTNRUN_OK;
        *bytes += n;
        if (*bytes > tool_limits.stream_bytes) {
            tool_fail(ATTNRUN_E_LIMIT,
                      "standard input has more than %" PRId64
                      " bytes (limit 'stream_bytes')",
                      tool_limits.stream_bytes);
            return tool_hint_limit("stream_bytes");
        }
        for (ssize_t done = 0, part; done < n; done += part)
            if ((part = write(to, buffer + done, (size_t)(n - done))) <= 0)
                return tool_fail_io("cannot store standard input");
    }
}

static attnrun_status open_stream(struct input_file *file)
{
    struct stat st;
    if (fstat(STDIN_FILENO, &st) == 0)
        file_note_read(&st);
    file->fd = memfd_create("standard input", MFD_CLOEXEC);
    if (file->fd < 0)
        return tool_fail_io("cannot store standard input");
    attnrun_status status = copy_stream(file->fd, &file->bytes);
    if (status != ATTNRUN_OK)
        input_file_close(file);
    return status;
}

attnrun_status input_file_open(struct input_file *file, const char *path)
{
    struct stat st;
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return tool_fail(ATTNRUN_E_IO, "the path has more than %zu bytes",
                         sizeof file->path);
    if (file_is_stream(path))
        return open_stream(file);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return tool_fail_io("cannot open %s", tool_path(path));
    if (fstat(file->fd, &st) != 0) {
        tool_fail_io("cannot access %s", tool_path(path));
        close(file->fd);
        return tool_error.status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(file->fd);
        return tool_fail(ATTNRUN_E_IO, "%s is %s, not a file", tool_path(path),
                         S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    }
    file->bytes = st.st_size;
    file_note_read(&st);
    return ATTNRUN_OK;
}

attnrun_status input_file_read(const struct input_file *file, int64_t offset, void *data,
                               int64_t bytes)
{
    uint8_t *to = data;
    while (bytes > 0) {
        size_t part = bytes > (1 << 30) ? (size_t)1 << 30 : (size_t)bytes;
        ssize_t n = pread(file->fd, to, part, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tool_fail_io("cannot read %s", tool_path(file->path));
        if (n == 0)
            return tool_fail(ATTNRUN_E_IO,
                             "unexpected end of %s at byte %" PRId64 ", %s too early",
                             tool_path(file->path), offset, tool_plural(bytes, "byte"));
        to += n;
        offset += n;
        bytes -= n;
    }
    return ATTNRUN_OK;
}

void input_file_close(struct input_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

attnrun_status file_read_all(const char *path, int64_t max_bytes, char **data,
                             int64_t *bytes)
{
    struct input_file file;
    TRY(input_file_open(&file, path));
    attnrun_status status = ATTNRUN_OK;
    char *memory = NULL;
    if (file.bytes > max_bytes)
        status = tool_fail(ATTNRUN_E_LIMIT, "%s has %s, more than the limit of %" PRId64,
                           tool_path(path), tool_plural(file.bytes, "byte"), max_bytes);
    else if ((memory = malloc((size_t)file.bytes + 1)) == NULL)
        status = tool_fail(ATTNRUN_E_MEMORY, "no memory for the %" PRId64 " bytes of %s",
                           file.bytes, tool_path(path));
    else
        status = input_file_read(&file, 0, memory, file.bytes);
    if (status == ATTNRUN_OK) {
        memory[file.bytes] = 0;
        *data = memory;
        *bytes = file.bytes;
    } else {
        free(memory);
    }
    input_file_close(&file);
    return status;
}

bool file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_same(const char *a, const char *b)
{
    struct stat st, other;
    return stat(a, &st) == 0 && stat(b, &other) == 0 && S_ISREG(st.st_mode) &&
           st.st_dev == other.st_dev && st.st_ino == other.st_ino;
}

/* The folder that a path names or would be in. */
static bool stat_folder(const char *path, struct stat *st)
{
    char folder[4098];
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 0 : (int)(slash - path) + 1;
    return snprintf(folder, sizeof folder, "%.*s.", n, path) < (int)sizeof folder &&
           stat(folder, st) == 0;
}

bool file_is_same_folder(const char *a, const char *b)
{
    struct stat st, other;
    return stat_folder(a, &st) && stat_folder(b, &other) && st.st_dev == other.st_dev &&
           st.st_ino == other.st_ino;
}

bool file_is_same_target(const char *a, const char *b)
{
    const char *slash = strrchr(a, '/'), *other = strrchr(b, '/');
    if (file_exists(a) || file_exists(b))
        return file_is_same(a, b);
    return file_is_same_folder(a, b) &&
           strcmp(slash == NULL ? a : slash + 1, other == NULL ? b : other + 1) == 0;
}

const char *file_other_kind(const void *head, int64_t bytes)
{
    static const struct {
        const char *first, *kind;
    } kinds[] = {
        { "version http", "it is a Git LFS pointer; git lfs pull fetches the file" },
        { "<!doctype", "it is an HTML page; the download may have saved an error page" },
        { "<html", "it is an HTML page; the download may have saved an error page" },
        { "PK\x03\x04", "it is a zip archive, such as npz" },
        { "\x93NUMPY", "it is one NumPy array (npy)" },
        { "\x80\x02", "it is a Python pickle" },
        { "\x1f\x8b", "it is a gzip archive; gunzip unpacks it" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i].first);
        if (bytes >= (int64_t)n && strncasecmp(head, kinds[i].first, n) == 0)
            return kinds[i].kind;
    }
    return NULL;
}

bool file_has_extension(const char *path, const char *extension)
{
    size_t n = strlen(path), m = strlen(extension);
    return n > m && strcmp(path + n - m, extension) == 0;
}

attnrun_status file_join(char *out, size_t bytes, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n > 0 && folder[n - 1] == '/' ? "" : "/";
    if (snprintf(out, bytes, "%s%s%s", folder, slash, name) >= (int)bytes)
        return tool_fail(ATTNRUN_E_IO, "the path has more than %zu bytes", bytes);
    return ATTNRUN_OK;
}

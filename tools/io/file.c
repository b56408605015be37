/* file.c - bytes from files, and files that appear whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

attnrun_status input_file_open(struct input_file *file, const char *path)
{
    struct stat st;
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return tool_fail(ATTNRUN_E_IO, "a path of more than %zu bytes",
                         sizeof file->path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return tool_fail_io("cannot open %s", tool_path(path));
    if (fstat(file->fd, &st) != 0) {
        tool_fail_io("cannot look at %s", tool_path(path));
        close(file->fd);
        return tool_error.status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(file->fd);
        return tool_fail(ATTNRUN_E_IO, "%s is %s, not a file", tool_path(path),
                         S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    }
    file->bytes = st.st_size;
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
                             "%s ends at byte %" PRId64 ", %" PRId64 " bytes too early",
                             tool_path(file->path), offset, bytes);
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
        status = tool_fail(ATTNRUN_E_LIMIT,
                           "%s has %" PRId64 " bytes, more than the limit of %" PRId64,
                           tool_path(path), file.bytes, max_bytes);
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

/* What the signal handler has to remove; the flag is set last and cleared first. */
static char pending_path[4128];
static volatile int pending;

void output_file_interrupted(void)
{
    if (pending)
        unlink(pending_path);
}

attnrun_status output_file_open(struct output_file *file, const char *path)
{
    memset(file, 0, sizeof *file);
    file->fd = -1;
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return tool_fail(ATTNRUN_E_IO, "a path of more than %zu bytes",
                         sizeof file->path);
    snprintf(file->temporary, sizeof file->temporary, "%s.tmp.%ld", path, (long)getpid());
    file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0)
        return tool_fail_io("cannot write %s", tool_path(path));
    memcpy(pending_path, file->temporary, sizeof pending_path);
    pending = 1;
    return ATTNRUN_OK;
}

attnrun_status output_file_write(struct output_file *file, const void *data,
                                 int64_t bytes)
{
    const uint8_t *from = data;
    if (file->status != ATTNRUN_OK)
        return file->status;
    file->bytes += bytes;
    while (bytes > 0) {
        size_t part = bytes > (1 << 30) ? (size_t)1 << 30 : (size_t)bytes;
        ssize_t n = write(file->fd, from, part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return file->status = tool_fail_io("cannot write %s", tool_path(file->path));
        from += n;
        bytes -= n;
    }
    return ATTNRUN_OK;
}

void output_file_abandon(struct output_file *file)
{
    if (file->fd < 0)
        return;
    pending = 0;
    close(file->fd);
    unlink(file->temporary);
    file->fd = -1;
}

/* So that the new name survives a crash; a file system that cannot is no failure. */
static void sync_folder_of(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    memcpy(folder, path, n);
    snprintf(folder + n, sizeof folder - n, ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

attnrun_status output_file_commit(struct output_file *file)
{
    if (file->status == ATTNRUN_OK && fsync(file->fd) != 0 && errno != EINVAL)
        file->status = tool_fail_io("cannot write %s", tool_path(file->path));
    if (file->status != ATTNRUN_OK) {
        output_file_abandon(file);
        return file->status;
    }
    int closed = close(file->fd);
    file->fd = -1;
    if (closed != 0 || rename(file->temporary, file->path) != 0) {
        file->status = tool_fail_io("cannot write %s", tool_path(file->path));
        unlink(file->temporary);
        pending = 0;
        return file->status;
    }
    pending = 0;
    sync_folder_of(file->path);
    return ATTNRUN_OK;
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
        return tool_fail(ATTNRUN_E_IO, "a path of more than %zu bytes", bytes);
    return ATTNRUN_OK;
}

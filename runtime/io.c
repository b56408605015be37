/* io.c - whole files, mapped or read; and files that a model names, kept beneath a
 * directory.
 *
 * A path from a model is walked one component at a time from an open directory, so that
 * what is checked is what is used: nothing between a check and a second look-up can be
 * swapped. */
#include "io.h"
#include "poll.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the system's calls ---- */
static int system_open(const char *path, int flags, int mode)
{
    return open(path, flags, mode);
}

static int system_openat(int dir, const char *path, int flags)
{
    return openat(dir, path, flags);
}

static void *system_mmap(size_t bytes, int fd)
{
    const int zeros = fd < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0;
    return mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | zeros, fd, 0);
}

static int system_drop(void *address, size_t bytes)
{
    return madvise(address, bytes, MADV_DONTNEED);
}

struct attn_io attn_io = {
    .open = system_open,
    .openat = system_openat,
    .fstat = fstat,
    .pread = pread,
    .mmap = system_mmap,
    .munmap = munmap,
    .close = close,
    .drop = system_drop,
};

static const char *error_text(int error, char *buffer, size_t bytes)
{
    return strerror_r(error, buffer, bytes); /* GNU's: returns the text */
}

static attn_status io_fail(const char *what, const char *path, int error)
{
    char text[128];
    return attn_fail(error == ENOMEM ? ATTNRUN_E_MEMORY : ATTNRUN_E_IO,
                     "cannot %s '%s': %s", what, attn_quote(path),
                     error_text(error, text, sizeof text));
}

/* ---- contents ---- */
static attn_status io_read_all(int fd, const char *path, uint8_t *data, int64_t bytes)
{
    const int64_t max = 4 * ATTN_POLL_BYTES;
    for (int64_t at = 0; at < bytes;) {
        int64_t left = bytes - at;
        ssize_t n = attn_io.pread(fd, data + at, (size_t)(left < max ? left : max), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_fail("read", path, errno);
        if (n == 0)
            return attn_fail(ATTNRUN_E_IO, "'%s' ended at byte %" PRId64 ", expected %s",
                             attn_quote(path), at, attn_plural(bytes, "byte"));
        at += n;
        TRY(attn_poll());
    }
    return ATTNRUN_OK;
}

static attn_status load(struct attn_memory *memory, int fd, const char *path,
                        int64_t bytes, bool copy, struct attn_file *file)
{
    static const uint8_t nothing[1];
    if (bytes == 0) { /* cannot be mapped */
        *file = (struct attn_file){ .data = nothing };
        return ATTNRUN_OK;
    }
    if (!copy) {
        void *mapped = attn_io.mmap((size_t)bytes, fd);
        if (mapped == MAP_FAILED)
            return io_fail("map", path, errno);
        *file = (struct attn_file){ .data = mapped, .bytes = bytes, .mapped = true };
        return ATTNRUN_OK;
    }
    uint8_t *data = attn_alloc(memory, ATTN_MEM_WEIGHTS, bytes);
    if (data == NULL)
        return ATTNRUN_E_MEMORY;
    attn_status status = io_read_all(fd, path, data, bytes);
    if (status != ATTNRUN_OK)
        attn_free(memory, ATTN_MEM_WEIGHTS, data, bytes);
    else
        *file = (struct attn_file){ .data = data, .bytes = bytes };
    return status;
}

/* Checks the open file and loads it. `beneath`: the rules for files that a model names.
 */
static attn_status check_and_load(struct attn_memory *memory, int fd, const char *path,
                                  bool beneath, struct attn_file_limit limit, bool copy,
                                  struct attn_file *file)
{
    struct stat st;
    attn_status rule = beneath ? ATTNRUN_E_PATH : ATTNRUN_E_IO;
    if (attn_io.fstat(fd, &st) != 0)
        return io_fail("look at", path, errno);
    if (!S_ISREG(st.st_mode))
        return attn_fail(rule, "'%s' is %s, expected a regular file", attn_quote(path),
                         S_ISDIR(st.st_mode) ? "a directory"
                                             : "a device, pipe or socket");
    if (beneath && st.st_nlink != 1)
        return attn_fail(rule, "'%s' has %ju hard links, expected one", attn_quote(path),
                         (uintmax_t)st.st_nlink);
    if (st.st_size < 0 || st.st_size > limit.bytes)
        return attn_fail_limit(limit.which,
                               "'%s' has %" PRId64 " bytes, expected at most %" PRId64,
                               attn_quote(path), (int64_t)st.st_size, limit.bytes);
    return load(memory, fd, path, st.st_size, copy, file);
}

/* O_NONBLOCK: a FIFO that nobody writes must not hang us. */
enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

static int open_retry(const char *path, int flags)
{
    int fd;
    do
        fd = attn_io.open(path, flags, 0);
    while (fd < 0 && errno == EINTR);
    return fd;
}

attn_status attn_file_open(struct attn_memory *memory, const char *path,
                           struct attn_file_limit limit, bool copy,
                           struct attn_file *file)
{
    int fd = open_retry(path, OPEN_FLAGS);
    if (fd < 0)
        return io_fail("open", path, errno);
    attn_status status = check_and_load(memory, fd, path, false, limit, copy, file);
    attn_io.close(fd);
    return status;
}

/* ---- beneath a directory ---- */
static attn_status refuse_file(const char *location, const char *why)
{
    return attn_fail(ATTNRUN_E_PATH, "location '%s' %s", attn_quote(location), why);
}

static attn_status open_fail(const char *location, int error, bool last)
{
    if (error == ELOOP || (error == ENOTDIR && !last))
        return refuse_file(location,
                           "goes through a symbolic link, or through a file that is not "
                           "a directory");
    if (error == ENXIO || error == ENODEV)
        return refuse_file(location,
                           "is a device, pipe or socket, expected a regular file");
    return io_fail("open", location, error);
}

/* The next component of *at into `name`; "." is left out. "" at the end. */
static attn_status next_component(const char *location, const char **at,
                                  char name[NAME_MAX + 1])
{
    size_t n = strcspn(*at, "/");
    name[0] = 0;
    if (n == 0 && **at == 0)
        return ATTNRUN_OK;
    if (n == 0)
        return refuse_file(location, "has an empty component");
    if (n > NAME_MAX)
        return refuse_file(location, "has a component of over 255 bytes");
    memcpy(name, *at, n);
    name[n] = 0;
    *at += n;
    if (**at == '/' && *++*at == 0)
        return refuse_file(location, "ends with a slash");
    if (strcmp(name, "..") == 0)
        return refuse_file(location, "contains '..'");
    return ATTNRUN_OK;
}

/* Every component, before the first is opened: the same answer whatever is on the disk.
 */
static attn_status check_location(const char *location)
{
    char name[NAME_MAX + 1], last[NAME_MAX + 1] = ".";
    const char *at = location;
    if (location == NULL || location[0] == 0)
        return attn_fail(ATTNRUN_E_PATH, "an external location is empty");
    if (location[0] == '/')
        return refuse_file(location, "is absolute, expected one relative to the model");
    for (;;) {
        TRY(next_component(location, &at, name));
        if (name[0] == 0)
            break;
        memcpy(last, name, sizeof last);
    }
    if (strcmp(last, ".") == 0)
        return refuse_file(location, "is a directory, expected a regular file");
    return ATTNRUN_OK;
}

/* Walks from `dir` (closed here) to the file; *fd is open on success. */
static attn_status io_walk(int dir, const char *location, int *fd)
{
    char name[NAME_MAX + 1];
    const char *at = location;
    for (;;) {
        attn_status status = next_component(location, &at, name);
        if (status != ATTNRUN_OK) {
            attn_io.close(dir);
            return status;
        }
        if (strcmp(name, ".") == 0)
            continue;
        bool last = *at == 0;
        int flags = last ? OPEN_FLAGS : O_PATH | O_DIRECTORY | O_CLOEXEC, next;
        do
            next = attn_io.openat(dir, name, flags | O_NOFOLLOW);
        while (next < 0 && errno == EINTR);
        int error = errno;
        attn_io.close(dir);
        if (next < 0)
            return open_fail(location, error, last);
        dir = next;
        if (last)
            break;
    }
    *fd = dir;
    return ATTNRUN_OK;
}

attn_status attn_file_open_beneath(struct attn_memory *memory, const char *dir,
                                   const char *location, struct attn_file_limit limit,
                                   bool copy, struct attn_file *file)
{
    TRY(check_location(location));
    if (dir == NULL || dir[0] == 0)
        dir = ".";
    int fd = open_retry(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_fail("open directory", dir, errno);
    TRY(io_walk(fd, location, &fd));
    attn_status status = check_and_load(memory, fd, location, true, limit, copy, file);
    attn_io.close(fd);
    return status;
}

/* ---- afterwards ---- */
void attn_file_drop(const struct attn_file *file, const void *start, int64_t bytes)
{
    long page = sysconf(_SC_PAGESIZE);
    if (!file->mapped || page <= 0 || bytes <= 0)
        return;
    int64_t from = (const uint8_t *)start - file->data, to = from + bytes;
    if (from < 0 || to > file->bytes)
        return;
    from =
        (from + page - 1) / page * page; /* whole pages inside; a mapping starts at one */
    to = to / page * page;
    if (from < to)
        attn_io.drop((uint8_t *)(uintptr_t)file->data + from, (size_t)(to - from));
}

attn_status attn_file_zeros(int64_t bytes, struct attn_file *file)
{
    void *mapped = attn_io.mmap((size_t)bytes, -1);
    if (mapped == MAP_FAILED)
        return io_fail("map", "zeros", errno);
    *file = (struct attn_file){ .data = mapped, .bytes = bytes, .mapped = true };
    return ATTNRUN_OK;
}

void attn_file_close(struct attn_memory *memory, struct attn_file *file)
{
    if (file->bytes > 0 && file->mapped)
        attn_io.munmap((void *)(uintptr_t)file->data, (size_t)file->bytes);
    else if (file->bytes > 0)
        attn_free(memory, ATTN_MEM_WEIGHTS, (void *)(uintptr_t)file->data, file->bytes);
    *file = (struct attn_file){ 0 };
}

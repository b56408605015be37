/* io.h - the one table through which files are opened, mapped, read and written, so that
 * tests can make any call fail. Paths that a model names go through
 * attn_file_open_beneath(). */
#ifndef ATTN_IO_H
#define ATTN_IO_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "alloc.h"
#include "file_limits.h"

struct attn_io {
    int (*open)(const char *path, int flags, int mode);
    int (*openat)(int dir, const char *path, int flags);
    int (*fstat)(int fd, struct stat *st);
    ssize_t (*pread)(int fd, void *buffer, size_t bytes, off_t offset);
    void *(*mmap)(size_t bytes,
                  int fd); /* read-only, private; fd -1: zeros; MAP_FAILED on failure */
    int (*munmap)(void *address, size_t bytes);
    int (*close)(int fd);
    int (*drop)(void *address, size_t bytes); /* whole pages that are not needed soon */
};
/* The system's calls; tests may replace single entries. */
extern struct attn_io attn_io;

/* The bytes that a file may have, and the limit that says so. */
struct attn_file_limit {
    int64_t bytes;
    enum attn_limit which;
};

/* A whole file, mapped or read. */
struct attn_file {
    const uint8_t *data;
    int64_t bytes;
    bool mapped;
};
/* `limit` bounds the file; `copy` reads instead of mapping (into `memory`, kind
 * WEIGHTS). Refuses what is no regular file. Handles EINTR and short reads. An empty file
 * is fine. */
attn_status attn_file_open(struct attn_memory *memory, const char *path,
                           struct attn_file_limit limit, bool copy,
                           struct attn_file *file);
/* The same for `location`, a relative path that a model names, beneath directory `dir`:
 * no absolute path, no "..", no symbolic link in any component, no hard link elsewhere
 * (link count 1 once it is open), regular files only; the opened file is the checked one. E_PATH
 * otherwise. */
attn_status attn_file_open_beneath(struct attn_memory *memory, const char *dir,
                                   const char *location, struct attn_file_limit limit,
                                   bool copy, struct attn_file *file);
/* Tells the system that these bytes of a mapped file are not needed soon. */
void attn_file_drop(const struct attn_file *file, const void *start, int64_t bytes);
/* Bytes that read as zeros and take no memory, for constants whose bytes nobody needs. */
attn_status attn_file_zeros(int64_t bytes, struct attn_file *file);
void attn_file_close(struct attn_memory *memory, struct attn_file *file);

#endif

/* fail_calls.c - a library for LD_PRELOAD that makes calls of a program fail.
 *
 * in:  the environment ATTN_FAIL="KIND N MODE" and ATTN_CALLS, a file. Calls of KIND are counted
 *      from the start of main() on; call N (from 0) meets MODE: `once` makes it fail, `on` makes
 *      it and all behind it fail, `kill` ends the process with SIGKILL before it, `count` nothing.
 *      KIND: memory (malloc and its relatives, mmap), files (open, read, pread, write, fsync,
 *      rename, close), threads (pthread_create), clock (each read of a clock is N hours away
 *      from the one before: CLOCK_REALTIME to and fro, CLOCK_MONOTONIC forward).
 * out: ATTN_CALLS holds the number of calls when the process ends by exit().
 *
 * Descriptor 2 stays as it is, so that a program can say what failed. */
#undef _FORTIFY_SOURCE /* its inline functions have the names that are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum kind { NONE, MEMORY, FILES, THREADS, CLOCK };
enum mode { COUNT, ONCE, ON, KILL };
static enum kind fail_kind;
static enum mode fail_mode;
static int64_t fail_at;
static _Atomic int64_t calls;

#define REAL(name) real_##name
#define NEXT(name)                                                                       \
    if (REAL(name) == NULL)                                                              \
    *(void **)&REAL(name) = dlsym(RTLD_NEXT, #name)

/* glibc's own names of these: dlsym() allocates. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static bool fails(enum kind kind)
{
    if (kind != fail_kind)
        return false;
    const int64_t call = atomic_fetch_add(&calls, 1);
    if (fail_mode == KILL && call == fail_at)
        kill(getpid(), SIGKILL);
    return (fail_mode == ONCE && call == fail_at) || (fail_mode == ON && call >= fail_at);
}

static enum kind kind_of(const char *name)
{
    static const char *const names[] = { "", "memory", "files", "threads", "clock" };
    for (enum kind kind = MEMORY; kind <= CLOCK; kind++)
        if (strcmp(name, names[kind]) == 0)
            return kind;
    return NONE;
}

__attribute__((constructor)) static void begin(void)
{
    char kind[16] = "", mode[16] = "";
    long long n = 0;
    const char *text = getenv("ATTN_FAIL");
    if (text == NULL || sscanf(text, "%15s %lld %15s", kind, &n, mode) != 3)
        return;
    unsetenv("ATTN_FAIL"); /* programs that this one starts go on as always */
    fail_at = n;
    fail_mode = strcmp(mode, "once") == 0   ? ONCE
                : strcmp(mode, "on") == 0   ? ON
                : strcmp(mode, "kill") == 0 ? KILL
                                            : COUNT;
    fail_kind = kind_of(kind);
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    fail_kind = NONE;
    const char *path = getenv("ATTN_CALLS");
    const int fd =
        path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    const int n = snprintf(text, sizeof text, "%lld\n", (long long)atomic_load(&calls));
    if (write(fd, text, (size_t)n) != n)
        perror(path);
    close(fd);
}

/* ---- memory ---- */

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t bytes) { return fails(MEMORY) ? no_memory() : __libc_malloc(bytes); }

void *calloc(size_t n, size_t bytes)
{
    return fails(MEMORY) ? no_memory() : __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails(MEMORY) ? no_memory() : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return fails(MEMORY) ? no_memory() : __libc_memalign(align, bytes);
}

int posix_memalign(void **block, size_t align, size_t bytes)
{
    void *made = fails(MEMORY) ? NULL : __libc_memalign(align, bytes);
    if (made == NULL)
        return ENOMEM;
    *block = made;
    return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fails(MEMORY)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* ---- files ---- */

static int io_error(int error)
{
    errno = error;
    return -1;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
    va_end(more);
    return fails(FILES) ? io_error(EMFILE)
                        : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
    va_end(more);
    return fails(FILES) ? io_error(EMFILE)
                        : (int)syscall(SYS_openat, folder, path, flags, mode);
}

/* What the checked openat() of libc is called by. */
int __openat_2(int folder, const char *path, int flags);
int __openat_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    return fails(FILES) ? io_error(EIO) : syscall(SYS_read, fd, to, bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    return fails(FILES) ? io_error(EIO) : syscall(SYS_pread64, fd, to, bytes, offset);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    return fd != STDERR_FILENO && fails(FILES) ? io_error(ENOSPC)
                                               : syscall(SYS_write, fd, from, bytes);
}

int fsync(int fd) { return fails(FILES) ? io_error(EIO) : (int)syscall(SYS_fsync, fd); }

int rename(const char *from, const char *to)
{
    return fails(FILES) ? io_error(EACCES)
                        : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* The descriptor is closed all the same, as Linux does it. */
int close(int fd)
{
    const bool bad = fails(FILES);
    const int closed = (int)syscall(SYS_close, fd);
    return bad ? io_error(EIO) : closed;
}

/* ---- threads and the clock ---- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                   void *(*start)(void *), void *arg)
{
    static int (*REAL(pthread_create))(pthread_t *, const pthread_attr_t *,
                                       void *(*)(void *), void *);
    NEXT(pthread_create);
    return fails(THREADS) ? EAGAIN : REAL(pthread_create)(thread, attributes, start, arg);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (fail_kind != CLOCK)
        return result;
    const int64_t call = atomic_fetch_add(&calls, 1);
    if (clock == CLOCK_MONOTONIC)
        now->tv_sec += call * fail_at * 3600;
    else if (clock == CLOCK_REALTIME)
        now->tv_sec += (call % 2 ? -fail_at : fail_at) * 3600;
    return result;
}

/* output_file.c - the one writer of files. In: a path from the user, and bytes. Out: the
 * whole file at its place, or the place as it was.
 *
 * What is at the path decides: a regular file is replaced by a temporary one beside it, a
 * symbolic link is followed to what it names, and what is neither file nor folder is
 * opened and written. The name of a temporary file is random, so that one left behind by
 * a killed process is in no other's way. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

enum { MAX_LINKS = 40, MAX_NAME = 200, TRIES = 100 };

/* What the signal handler has to remove: files in writing, and temporary folders with their files;
 * the flag is set last and cleared first. */
enum { MAX_PENDING = 16 };
static char pending_paths[MAX_PENDING][4096];
static volatile int pending[MAX_PENDING];

void output_file_interrupted(void)
{
    for (int i = 0; i < MAX_PENDING; i++)
        if (pending[i])
            unlink(pending_paths[i]);
    for (int i = 0; i < MAX_PENDING; i++)
        if (pending[i])
            rmdir(pending_paths[i]); /* no file */
}

void output_file_remember(const char *path)
{
    for (int i = 0; i < MAX_PENDING; i++)
        if (!pending[i]) {
            snprintf(pending_paths[i], sizeof pending_paths[i], "%s", path);
            pending[i] = 1;
            return;
        }
}

void output_file_forget(const char *path)
{
    for (int i = 0; i < MAX_PENDING; i++)
        if (pending[i] && strcmp(pending_paths[i], path) == 0)
            pending[i] = 0;
}

bool file_is_stdout(const char *path)
{
    static const char *const names[] = { "-", "/dev/stdout", "/dev/fd/1",
                                         "/proc/self/fd/1" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    return false;
}

bool file_is_special(const char *path)
{
    struct stat st;
    return file_is_stdout(path) ||
           (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

static attnrun_status too_long(void)
{
    return tool_fail(ATTNRUN_E_IO, "the path has more than %d bytes", 4095);
}

/* Bytes of the folder part of a path, its slash included. */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* Links below /proc name what a process has open, which need not have a path any more. */
static bool names_open_file(const char *link)
{
    char folder[4098], real[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s.", (int)folder_bytes(link), link);
    return realpath(folder, real) != NULL && strncmp(real, "/proc/", 6) == 0;
}

/* Follows the links at the end of file->path, also one whose target is still to be made.
 */
static attnrun_status follow_links(struct output_file *file)
{
    struct stat st;
    char target[4096], joined[4096];
    for (int links = 0; lstat(file->path, &st) == 0 && S_ISLNK(st.st_mode); links++) {
        if (names_open_file(file->path)) {
            file->in_place = true;
            return ATTNRUN_OK;
        }
        ssize_t n = readlink(file->path, target, sizeof target);
        if (n < 0 || links == MAX_LINKS) {
            errno = n < 0 ? errno : ELOOP;
            return tool_fail_io("cannot write %s", tool_path(file->path));
        }
        size_t folder = target[0] == '/' ? 0 : folder_bytes(file->path);
        if ((size_t)n + folder >= sizeof joined)
            return too_long();
        memcpy(joined, file->path, folder);
        memcpy(joined + folder, target, (size_t)n);
        joined[folder + (size_t)n] = 0;
        memcpy(file->path, joined, sizeof joined);
    }
    return ATTNRUN_OK;
}

static attnrun_status open_in_place(struct output_file *file)
{
    bool standard = file_is_stdout(file->path);
    fflush(stdout); /* what was printed before stands before it */
    do
        file->fd = standard ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                            : open(file->path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    while (file->fd < 0 && errno == EINTR);
    if (file->fd < 0)
        return tool_fail_io("cannot write %s", tool_path(file->path));
    return ATTNRUN_OK;
}

/* A name beside `path` that nobody else has, into 4096 bytes; false sets errno. */
static bool make_temporary_name(const char *path, char *out)
{
    const size_t folder = folder_bytes(path);
    const char *name = path + folder;
    unsigned long long random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    if (snprintf(out, 4096, "%.*s%.*s.tmp.%016llx", (int)folder, path,
                 (int)strnlen(name, MAX_NAME), name, random) < 4096)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

/* Opens a new file beside file->path. `mode` bounds who may open it. */
static int open_temporary(struct output_file *file, mode_t mode)
{
    for (int i = 0; i < TRIES; i++) {
        if (!make_temporary_name(file->path, file->temporary))
            return -1;
        int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
        output_file_remember(
            file->temporary); /* before it is there: a signal may come in between */
        int fd = open(file->temporary, flags, mode);
        if (fd >= 0)
            return fd;
        const int why = errno;
        output_file_forget(file->temporary);
        errno = why;
        if (why != EEXIST && why != EINTR)
            return -1;
    }
    return -1;
}

/* The new file gets the owner and the mode of the old one. Not every system and user may
 * give files away: then the file is ours, without the bits that run it as its owner. */
static bool keep_owner_and_mode(int fd, const struct stat *old)
{
    struct stat now;
    mode_t mode = old->st_mode & 07777;
    if (fstat(fd, &now) != 0)
        return false;
    bool kept = now.st_uid == old->st_uid && now.st_gid == old->st_gid;
    if (!kept)
        kept = fchown(fd, old->st_uid, old->st_gid) == 0;
    if (!kept)
        (void)!fchown(fd, (uid_t)-1, old->st_gid);
    return fchmod(fd, kept ? mode : mode & 0777) == 0;
}

attnrun_status output_file_open(struct output_file *file, const char *path)
{
    struct stat old;
    memset(file, 0, sizeof *file);
    file->fd = -1;
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return too_long();
    file->in_place = file_is_special(path);
    if (!file->in_place)
        TRY(follow_links(file));
    if (file->in_place)
        return open_in_place(file);
    bool exists = stat(file->path, &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) {
        errno = S_ISDIR(old.st_mode) ? EISDIR : EBUSY; /* it was none a moment ago */
        return tool_fail_io("cannot write %s", tool_path(path));
    }
    if (exists && faccessat(AT_FDCWD, file->path, W_OK, AT_EACCESS) != 0)
        return tool_fail_io("cannot write %s", tool_path(path));
    file->fd = open_temporary(file, exists ? old.st_mode & 0666 : 0666);
    if (file->fd < 0)
        return tool_fail_io("cannot write %s", tool_path(path));
    if (exists && !keep_owner_and_mode(file->fd, &old)) {
        tool_fail_io("cannot write %s and keep its mode", tool_path(path));
        output_file_abandon(file);
        return tool_error.status;
    }
    return ATTNRUN_OK;
}

attnrun_status output_file_check(const struct output_file *file)
{
    struct stat st;
    if (file->in_place && file->fd < 0) /* it could not be opened */
        return ATTNRUN_OK;
    const int found = file->in_place ? fstat(file->fd, &st) : stat(file->path, &st);
    if (found != 0 || !S_ISREG(st.st_mode))
        return ATTNRUN_OK;
    if (!file->in_place && file->edited != NULL && file_is_same(file->path, file->edited))
        return ATTNRUN_OK;
    for (int i = 0; i < MAX_PENDING; i++) /* temporary files of this process itself */
        if (pending[i] && strcmp(pending_paths[i], file->path) == 0)
            return ATTNRUN_OK;
    return file_check_unread(&st, file->path);
}

/* Before the first byte. A file that is open elsewhere (/dev/fd/3) is emptied now; what the caller
 * opened as standard output keeps what it has. */
static attnrun_status begin_file(struct output_file *file)
{
    struct stat st;
    file->begun = true;
    TRY(output_file_check(file));
    if (file->in_place && file->fd >= 0 && !file_is_stdout(file->path) &&
        fstat(file->fd, &st) == 0 && S_ISREG(st.st_mode) && ftruncate(file->fd, 0) != 0)
        return tool_fail_io("cannot write %s", tool_path(file->path));
    return ATTNRUN_OK;
}

attnrun_status output_file_write(struct output_file *file, const void *data,
                                 int64_t bytes)
{
    const uint8_t *from = data;
    if (file->status == ATTNRUN_OK && !file->begun)
        file->status = begin_file(file);
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

static void remove_temporary(struct output_file *file)
{
    if (!file->in_place)
        unlink(file->temporary);
    output_file_forget(file->temporary);
}

void output_file_abandon(struct output_file *file)
{
    if (file->fd < 0)
        return;
    close(file->fd);
    remove_temporary(file);
    file->fd = -1;
}

static int open_folder_of(const char *path)
{
    char folder[4098];
    snprintf(folder, sizeof folder, "%.*s.", (int)folder_bytes(path), path);
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* So that the new name survives a crash; a file system that cannot is no failure. */
static void sync_folder_of(const char *path)
{
    int fd = open_folder_of(path);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

attnrun_status output_file_commit(struct output_file *file)
{
    if (file->status == ATTNRUN_OK && file->fd >= 0)
        file->status = file->begun ? output_file_check(file) : begin_file(file);
    if (file->status == ATTNRUN_OK && !file->in_place && file->fd >= 0 &&
        fsync(file->fd) != 0 && errno != EINVAL)
        file->status = tool_fail_io("cannot write %s", tool_path(file->path));
    if (file->status != ATTNRUN_OK) {
        output_file_abandon(file);
        return file->status;
    }
    bool done = close(file->fd) == 0;
    file->fd = -1;
    if (done && !file->in_place)
        done = rename(file->temporary, file->path) == 0;
    if (!done) {
        file->status = tool_fail_io("cannot write %s", tool_path(file->path));
        remove_temporary(file);
        return file->status;
    }
    output_file_forget(file->temporary);
    if (!file->in_place)
        sync_folder_of(file->path);
    return ATTNRUN_OK;
}

/* Gives what is at `path` a name of its own; "" where nothing is there. */
static attnrun_status set_aside(const char *path, char *aside)
{
    aside[0] = 0;
    if (!file_exists(path))
        return ATTNRUN_OK;
    if (make_temporary_name(path, aside) && rename(path, aside) == 0)
        return ATTNRUN_OK;
    tool_fail_io("cannot write %s", tool_path(path));
    aside[0] = 0;
    return tool_error.status;
}

/* What set_aside() has renamed is at `path` again. */
static void bring_back(const char *path, const char *aside)
{
    if (aside[0] != 0)
        (void)!rename(aside, path);
}

attnrun_status output_file_commit_pair(struct output_file *data, struct output_file *head)
{
    char old_data[4096] = "", old_head[4096];
    sigset_t all, before;
    attnrun_status status = output_file_check(data);
    if (status == ATTNRUN_OK)
        status = output_file_check(head);
    const int folder = open_folder_of(head->path);
    if (folder >= 0)
        (void)flock(folder,
                    LOCK_EX); /* where that is not possible, one writer is enough */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (status == ATTNRUN_OK &&
        (status = set_aside(head->path, old_head)) == ATTNRUN_OK) {
        status = set_aside(data->path, old_data);
        if (status == ATTNRUN_OK && (status = output_file_commit(data)) == ATTNRUN_OK) {
            status = output_file_commit(head);
            if (status != ATTNRUN_OK)
                unlink(data->path);
        }
        if (status == ATTNRUN_OK) {
            unlink(old_data);
            unlink(old_head);
        } else {
            bring_back(data->path, old_data);
            bring_back(head->path, old_head);
        }
    }
    output_file_abandon(data);
    output_file_abandon(head);
    if (folder >= 0)
        close(folder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

attnrun_status output_file_finish(struct output_file *file, attnrun_status status)
{
    if (status == ATTNRUN_OK)
        return output_file_commit(file);
    output_file_abandon(file);
    return status;
}

attnrun_status output_file_save(const char *path, const void *data, int64_t bytes)
{
    struct output_file file;
    TRY(output_file_open(&file, path));
    return output_file_finish(&file, output_file_write(&file, data, bytes));
}

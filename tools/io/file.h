/* file.h - bytes from files, and the one writer of files: what it writes appears whole or
 * not at all, and never takes the place of what is no regular file. */
#ifndef TOOL_FILE_H
#define TOOL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "fail.h"

/* Is `path` "-": standard input or standard output? */
bool file_is_stream(const char *path);
/* Does `path` name standard output, as "-" and "/dev/stdout" do? */
bool file_is_stdout(const char *path);

/* An open regular file for reading at offsets; of "-", a copy of standard input. */
struct input_file {
    int fd;
    int64_t bytes;
    char path[4096];
};
attnrun_status input_file_open(struct input_file *file, const char *path);

/* ---- read_files.c: no output takes the place of a file that this process reads ---- */
struct stat;
/* The file is read: what input_file_open() opened, or what has no more to be mapped later. */
void file_note_read(const struct stat *st);
/* The same for all files that are mapped now. */
void file_note_mapped(void);
/* E_USAGE where the file is mapped or was noted. */
attnrun_status file_check_unread(const struct stat *st, const char *path);

/* All of `bytes` at `offset`, or an error: the file must hold them. */
attnrun_status input_file_read(const struct input_file *file, int64_t offset, void *data,
                               int64_t bytes);
void input_file_close(struct input_file *file);

/* A whole file of at most max_bytes; `*data` is malloc's, with a NUL behind it. */
attnrun_status file_read_all(const char *path, int64_t max_bytes, char **data,
                             int64_t *bytes);

/* A file in writing. For a regular file or a new one, bytes go to "<path>.tmp.<random>"
 * beside it, which becomes `path` at the commit, with the mode and, where the system lets
 * us, the owner of the file that it replaces. A symbolic link stays: its target is what
 * is replaced. Devices and FIFOs are written in place, and so is "-", standard output. A file that
 * this process reads is refused at the first byte and at the commit: what is read is known then. */
struct output_file {
    int fd;
    bool in_place;         /* no temporary file */
    bool begun;            /* the first byte is written */
    int64_t bytes;         /* written so far */
    const char *edited;    /* the one file that is read and may be replaced, or NULL */
    attnrun_status status; /* the first failure; later writes do nothing */
    char path[4096];       /* what is replaced, links followed */
    char temporary[4096];
};
attnrun_status output_file_open(struct output_file *file, const char *path);
attnrun_status output_file_write(struct output_file *file, const void *data,
                                 int64_t bytes);
/* E_USAGE where it would replace what is read. */
attnrun_status output_file_check(const struct output_file *file);
/* Syncs, renames; on any failure the temporary file is gone and `path` as it was. */
attnrun_status output_file_commit(struct output_file *file);
/* The same of two regular files in one folder, where `head` says what is in `data`: both, or both
 * as they were. A new one and an old one never stand side by side, not for a process that is killed
 * here, nor for two that write at once: `head` is absent for that moment. */
attnrun_status output_file_commit_pair(struct output_file *data,
                                       struct output_file *head);
void output_file_abandon(struct output_file *file);
/* Commits where all that was written has status OK; else abandons, and returns `status`. */
attnrun_status output_file_finish(struct output_file *file, attnrun_status status);
/* All of it at once: `path` holds these bytes, or is as it was. */
attnrun_status output_file_save(const char *path, const void *data, int64_t bytes);
/* Removes the temporary files of all files in writing. Safe in a signal handler. */
void output_file_interrupted(void);
/* It removes this file or empty folder, too, until the path is forgotten. */
void output_file_remember(const char *path);
void output_file_forget(const char *path);

/* Is `path` written in place: a device, a FIFO, standard output? */
bool file_is_special(const char *path);
bool file_is_folder(const char *path);
bool file_exists(const char *path);
/* Do both paths name one regular file? */
bool file_is_same(const char *a, const char *b);
/* Are both, there or not, names in one folder? */
bool file_is_same_folder(const char *a, const char *b);
/* Do both name one file, which may be still to be made. */
bool file_is_same_target(const char *a, const char *b);
/* What a file is in the place of the npy or npz file that its name promises, as the end of a
 * sentence, by its first bytes; NULL: nothing that is known. */
const char *file_other_kind(const void *head, int64_t bytes);
/* Does `path` end in `extension` (".npy")? */
bool file_has_extension(const char *path, const char *extension);
/* folder/name into out; E_LIMIT where that is too long. */
attnrun_status file_join(char *out, size_t bytes, const char *folder, const char *name);

#endif

/* read_files.c - which files this process reads, so that no output takes the place of one.
 *
 * In: files of inputs as they are opened, and what is mapped into memory: the model, its external
 * data, plugins. Out: whether a file that is to be written is one of them. A file is known by its
 * device and inode, so another path, a symbolic link or a hard link names the same file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file.h"

static struct read_file {
    dev_t device;
    ino_t inode;
} *read_files;
static size_t n_read, room_read;
static bool read_lost; /* there was no memory to note one */

void file_note_read(const struct stat *st)
{
    if (n_read == room_read) {
        const size_t room = 2 * room_read + 64;
        struct read_file *more = realloc(read_files, room * sizeof *more);
        read_lost = read_lost || more == NULL;
        if (more == NULL)
            return;
        read_files = more;
        room_read = room;
    }
    read_files[n_read++] = (struct read_file){ st->st_dev, st->st_ino };
}

/* Goes through the files that are mapped: notes all of them, or, where one is `wanted`, says
 * whether it is mapped. */
static bool go_through_mapped(const struct stat *wanted)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    struct stat st;
    while (maps != NULL && !found && getline(&line, &room, maps) > 0) {
        const char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = 0;
        if (path == NULL || stat(path, &st) != 0)
            continue;
        if (wanted == NULL)
            file_note_read(&st);
        else
            found = st.st_dev == wanted->st_dev && st.st_ino == wanted->st_ino;
    }
    free(line);
    if (maps != NULL)
        fclose(maps);
    return found;
}

void file_note_mapped(void) { (void)go_through_mapped(NULL); }

attnrun_status file_check_unread(const struct stat *st, const char *path)
{
    bool found = false;
    for (size_t i = 0; i < n_read && !found; i++)
        found = read_files[i].device == st->st_dev && read_files[i].inode == st->st_ino;
    if (found || go_through_mapped(st))
        return tool_fail(ATTNRUN_E_USAGE,
                         "%s is read by this command: the result would replace it",
                         tool_path(path));
    if (read_lost)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the list of what is read");
    return ATTNRUN_OK;
}

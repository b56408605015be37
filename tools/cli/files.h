/* files.h - files of tensors as the command line reads and names them: serialized messages of
 * test data, names of values made safe as names of files, and lists of a folder. */
#ifndef TOOL_FILES_H
#define TOOL_FILES_H

#include "../io/value.h"

/* One serialized TensorProto, SequenceProto or OptionalProto. */
attnrun_status file_read_pb(attnrun_runtime *runtime, const char *path, int32_t kind,
                            struct held *held);

/* The file name of a value: what is not a letter, digit or one of "._-" becomes %XX, so
 * that no name leaves its folder. Names too long for a file are cut, with a digest at the
 * end. */
void file_name_of(const char *name, const char *extension, char *out, size_t bytes);

/* The names in a folder that match `glob`, numbers in them in the order of their values.
 */
struct folder_list {
    char **names;
    int64_t n, capacity;
};
attnrun_status folder_list_read(struct folder_list *list, const char *folder,
                                const char *glob);
void folder_list_free(struct folder_list *list);

#endif

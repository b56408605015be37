/* files.c - files of tensors in any of the formats that the command line reads; see files.h. */
#include <ctype.h>
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "files.h"

enum { MAX_PB_BYTES = 0x7fffffff, MAX_NAMES = 1 << 20 };

attnrun_status file_read_pb(attnrun_runtime *runtime, const char *path, int32_t kind,
                            struct held *held)
{
    char *data;
    int64_t bytes;
    TRY(file_read_all(path, MAX_PB_BYTES, &data, &bytes));
    attnrun_tensor *tensor = NULL;
    if (bytes == 0 && kind == ATTNRUN_TENSOR) {
        free(data);
        return tool_fail(ATTNRUN_E_PARSE, "%s: the file is empty", tool_path(path));
    }
    attnrun_status status =
        attnrun_tensor_from_pb(runtime, data, (uint64_t)bytes, kind, &tensor, NULL);
    free(data);
    if (status != ATTNRUN_OK) {
        tool_fail_library(status);
        return tool_fail_at("%s", tool_path(path));
    }
    *held = (struct held){ .tensor = *tensor, .runtime = runtime, .library = tensor };
    return ATTNRUN_OK;
}

void file_name_of(const char *name, const char *extension, char *out, size_t bytes)
{
    enum { LONGEST = 200 };
    uint64_t hash = UINT64_C(14695981039346656037);
    size_t n = 0;
    for (const char *at = name; *at != 0; at++) {
        unsigned char c = (unsigned char)*at;
        bool plain = isalnum(c) || c == '_' || c == '-' || (c == '.' && n > 0);
        hash = (hash ^ c) * UINT64_C(1099511628211);
        if (n + 4 < LONGEST)
            n += (size_t)snprintf(out + n, bytes - n, plain ? "%c" : "%%%02X", c);
        else
            n = LONGEST + 1;
    }
    if (n > LONGEST)
        snprintf(out + LONGEST - 20, bytes - (LONGEST - 20), "-%016llx%s",
                 (unsigned long long)hash, extension);
    else
        snprintf(out + n, bytes - n, "%s%s", n == 0 ? "%" : "", extension);
}

static attnrun_status add_name(struct folder_list *list, const char *name)
{
    if (list->n == MAX_NAMES)
        return tool_fail(ATTNRUN_E_LIMIT, "a folder has more than %d names", MAX_NAMES);
    if (list->n == list->capacity) {
        int64_t capacity = list->capacity * 2 + 64;
        char **names = realloc(list->names, (size_t)capacity * sizeof *names);
        if (names == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for the names of a folder");
        list->names = names;
        list->capacity = capacity;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the names of a folder");
    list->names[list->n++] = copy;
    return ATTNRUN_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

attnrun_status folder_list_read(struct folder_list *list, const char *folder,
                                const char *glob)
{
    memset(list, 0, sizeof *list);
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return tool_fail_io("cannot read the folder %s", tool_path(folder));
    attnrun_status status = ATTNRUN_OK;
    for (struct dirent *entry; status == ATTNRUN_OK && (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && fnmatch(glob, entry->d_name, 0) == 0)
            status = add_name(list, entry->d_name);
    closedir(dir);
    if (status != ATTNRUN_OK)
        folder_list_free(list);
    else if (list->n > 0)
        qsort(list->names, (size_t)list->n, sizeof *list->names, compare_names);
    return status;
}

void folder_list_free(struct folder_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        free(list->names[i]);
    free(list->names);
    memset(list, 0, sizeof *list);
}

/* npz.c - NumPy's archives: zip files of npy entries "key.npy".
 *
 * In: an open archive and a key, or a tensor. Out: the tensor of that entry, or one more entry.
 * Entries are read by npy_read.c and zip_read.c, which trust nothing of the file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "npy.h"
#include "npz.h"

bool npz_key(const struct zip_entry *entry, char *key, size_t bytes)
{
    size_t n = strlen(entry->name);
    if (!file_has_extension(entry->name, ".npy") || n - 4 >= bytes)
        return false;
    memcpy(key, entry->name, n - 4);
    key[n - 4] = 0;
    return true;
}

const struct zip_entry *npz_find(const struct zip *zip, const char *key)
{
    size_t n = strlen(key);
    for (int64_t i = 0; i < zip->n; i++)
        if (strncmp(zip->entries[i].name, key, n) == 0 &&
            strcmp(zip->entries[i].name + n, ".npy") == 0)
            return &zip->entries[i];
    return NULL;
}

attnrun_status npz_read(const struct zip *zip, const struct zip_entry *entry,
                        uint64_t max_bytes, struct held *held)
{
    char name[320];
    if (max_bytes != 0 && (uint64_t)entry->bytes > max_bytes)
        return tool_fail(ATTNRUN_E_LIMIT, "%s: entry '%s' has %s, the limit is %" PRIu64,
                         tool_path(zip->file.path), tool_quote(entry->name),
                         tool_plural(entry->bytes, "byte"), max_bytes);
    uint8_t *data = malloc((size_t)entry->bytes + 1);
    if (data == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %" PRId64 " bytes",
                         entry->bytes);
    snprintf(name, sizeof name, "%s:%s", tool_path(zip->file.path),
             tool_quote(entry->name));
    attnrun_status status = zip_read(zip, entry, data);
    if (status == ATTNRUN_OK)
        status = npy_parse(name, data, entry->bytes, max_bytes, held);
    free(data);
    return status;
}

static attnrun_status add_to_crc(void *crc, const void *data, int64_t bytes)
{
    uint32_t *sum = crc;
    *sum = (uint32_t)crc32_z(*sum, data, (size_t)bytes);
    return ATTNRUN_OK;
}

attnrun_status npz_add(struct zip_writer *zip, const char *key,
                       const attnrun_tensor *tensor)
{
    size_t n = strlen(key) + 5;
    uint32_t crc = 0;
    if (npy_write(tensor, add_to_crc, &crc) != ATTNRUN_OK)
        return tool_fail_at("'%s'", tool_quote(key));
    char *name = malloc(n);
    if (name == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
    snprintf(name, n, "%s.npy", key);
    attnrun_status status = zip_begin(zip, name, npy_file_bytes(tensor), crc);
    free(name);
    TRY(status);
    TRY(npy_write(tensor, zip_add, zip));
    return zip_end(zip);
}

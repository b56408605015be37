/* zip_read.c - reads zip archives: the central directory, and single entries.
 *
 * Little-endian records: end of directory "PK\5\6", zip64 locator "PK\6\7" and end
 * "PK\6\6", directory entry "PK\1\2", local header "PK\3\4". */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "input_limits.h"
#include "zip.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    LONGEST_ENTRY = 4096, /* of the directory, with its name */
    CHUNK = 64 << 10
};

static uint32_t get16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

static uint32_t get32(const uint8_t *p) { return get16(p) | get16(p + 2) << 16; }

/* Sizes beyond what a file can have become -1. */
static int64_t get64(const uint8_t *p)
{
    uint64_t v = get32(p) | (uint64_t)get32(p + 4) << 32;
    return v > INT64_MAX ? -1 : (int64_t)v;
}

static attnrun_status malformed(const struct zip *zip, const char *what)
{
    return tool_fail(ATTNRUN_E_PARSE, "%s is not a valid zip file: %s",
                     tool_path(zip->file.path), what);
}

struct directory {
    int64_t offset, bytes, n;
};

/* The zip64 end record, where the short one says that it does not suffice. */
static attnrun_status find_end64(const struct zip *zip, int64_t end, struct directory *d)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES)
        return malformed(zip, "the zip64 locator is missing");
    TRY(input_file_read(&zip->file, end - LOCATOR_BYTES, locator, LOCATOR_BYTES));
    int64_t at = get64(locator + 8);
    if (get32(locator) != 0x07064b50 || at < 0 || at > end - LOCATOR_BYTES - END64_BYTES)
        return malformed(zip, "the zip64 locator is wrong");
    TRY(input_file_read(&zip->file, at, record, END64_BYTES));
    if (get32(record) != 0x06064b50)
        return malformed(zip, "the zip64 end record is wrong");
    d->n = get64(record + 32);
    d->bytes = get64(record + 40);
    d->offset = get64(record + 48);
    return ATTNRUN_OK;
}

static attnrun_status no_end_record(const struct zip *zip)
{
    uint8_t head[12] = { 0 };
    const int64_t n = zip->file.bytes < 12 ? zip->file.bytes : 12;
    TRY(input_file_read(&zip->file, 0, head, n));
    const char *kind = get32(head) == 0x04034b50 ? NULL : file_other_kind(head, n);
    return malformed(zip, kind != NULL ? kind : "it has no end record (cut short?)");
}

/* The end record stands in the last 64 KiB, before a comment that fills the rest exactly.
 */
static attnrun_status find_directory(const struct zip *zip, struct directory *d)
{
    int64_t size = zip->file.bytes,
            tail = size < END_BYTES + 65535 ? size : END_BYTES + 65535;
    uint8_t *bytes = malloc((size_t)tail + 1);
    if (bytes == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a zip directory");
    attnrun_status status = input_file_read(&zip->file, size - tail, bytes, tail);
    int64_t at = tail - END_BYTES;
    while (status == ATTNRUN_OK && at >= 0 &&
           (get32(bytes + at) != 0x06054b50 ||
            get16(bytes + at + 20) != tail - at - END_BYTES))
        at--;
    if (status == ATTNRUN_OK && at < 0)
        status = no_end_record(zip);
    if (status == ATTNRUN_OK) {
        const uint8_t *end = bytes + at;
        d->n = get16(end + 10);
        d->bytes = get32(end + 12);
        d->offset = get32(end + 16);
        if (d->n == 0xffff || d->bytes == 0xffffffff || d->offset == 0xffffffff)
            status = find_end64(zip, size - tail + at, d);
    }
    free(bytes);
    TRY(status);
    if (d->offset < 0 || d->bytes < 0 || d->offset > size || d->bytes > size - d->offset)
        return malformed(zip, "its directory lies outside the file");
    if (d->n < 0 || d->n > tool_limits.npz_entries ||
        d->bytes / LONGEST_ENTRY > tool_limits.npz_entries) {
        tool_fail(ATTNRUN_E_LIMIT,
                  "%s has more than %" PRId64 " entries, or its directory is longer "
                  "than they need (limit 'npz_entries')",
                  tool_path(zip->file.path), tool_limits.npz_entries);
        return tool_hint_limit("npz_entries");
    }
    return ATTNRUN_OK;
}

/* The 64-bit values that a directory entry keeps in its extra field 1. */
static attnrun_status read_extra(const struct zip *zip, struct zip_entry *entry,
                                 const uint8_t *extra, int64_t bytes)
{
    int64_t *fields[] = { &entry->bytes, &entry->stored_bytes, &entry->header_offset };
    bool found = false;
    while (bytes >= 4) {
        int64_t size = get16(extra + 2), used = 4;
        if (size > bytes - 4)
            return malformed(zip, "an extra field is longer than its entry");
        for (size_t i = 0; get16(extra) == 1 && i < 3; i++) {
            if (*fields[i] != 0xffffffff)
                continue;
            if (used + 8 > size + 4)
                return malformed(zip, "a zip64 field is too short");
            *fields[i] = get64(extra + used);
            used += 8;
        }
        found = found || get16(extra) == 1;
        extra += size + 4;
        bytes -= size + 4;
    }
    if (!found && (entry->bytes == 0xffffffff || entry->stored_bytes == 0xffffffff ||
                   entry->header_offset == 0xffffffff))
        return malformed(zip, "a zip64 field is missing");
    return ATTNRUN_OK;
}

static attnrun_status check_entry(const struct zip *zip, const struct zip_entry *entry,
                                  int64_t directory_offset)
{
    const char *name = tool_quote(entry->name);
    if (entry->method != 0 && entry->method != 8)
        return tool_fail(
            ATTNRUN_E_UNSUPPORTED,
            "%s: entry '%s' is compressed by method %d, which is not supported",
            tool_path(zip->file.path), name, entry->method);
    if (entry->bytes < 0 || entry->stored_bytes < 0 || entry->header_offset < 0 ||
        entry->header_offset > directory_offset - LOCAL_BYTES ||
        entry->stored_bytes > directory_offset - LOCAL_BYTES - entry->header_offset)
        return malformed(zip, "an entry lies outside the file");
    if (entry->method == 0 && entry->bytes != entry->stored_bytes)
        return malformed(zip, "a stored entry has two sizes");
    if (entry->bytes / tool_limits.npz_ratio > entry->stored_bytes + 1) {
        tool_fail(ATTNRUN_E_LIMIT,
                  "%s: entry '%s' unpacks to more than %" PRId64 " times its size "
                  "(limit 'npz_ratio')",
                  tool_path(zip->file.path), name, tool_limits.npz_ratio);
        return tool_hint_limit("npz_ratio");
    }
    return ATTNRUN_OK;
}

/* One entry at `at`; moves over it. */
static attnrun_status read_entry(struct zip *zip, const uint8_t **at, const uint8_t *end,
                                 int64_t directory_offset)
{
    const uint8_t *p = *at;
    if (end - p < ENTRY_BYTES || get32(p) != 0x02014b50)
        return malformed(zip, "its directory is damaged");
    int64_t name = get16(p + 28), extra = get16(p + 30), comment = get16(p + 32);
    if (end - p - ENTRY_BYTES < name + extra + comment)
        return malformed(zip, "its directory is damaged");
    if (get16(p + 8) & 1)
        return tool_fail(ATTNRUN_E_UNSUPPORTED, "%s is encrypted",
                         tool_path(zip->file.path));
    struct zip_entry *entry = &zip->entries[zip->n];
    entry->method = (int32_t)get16(p + 10);
    entry->crc = get32(p + 16);
    entry->stored_bytes = get32(p + 20);
    entry->bytes = get32(p + 24);
    entry->header_offset = get32(p + 42);
    entry->name = strndup((const char *)p + ENTRY_BYTES, (size_t)name);
    if (entry->name == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a zip directory");
    zip->n++;
    if (strlen(entry->name) != (size_t)name)
        return malformed(zip, "a name has a NUL byte");
    TRY(read_extra(zip, entry, p + ENTRY_BYTES + name, extra));
    *at = p + ENTRY_BYTES + name + extra + comment;
    return check_entry(zip, entry, directory_offset);
}

static int by_offset(const void *a, const void *b)
{
    const struct zip_entry *x = *(const struct zip_entry *const *)a;
    const struct zip_entry *y = *(const struct zip_entry *const *)b;
    return (x->header_offset > y->header_offset) - (x->header_offset < y->header_offset);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct zip_entry *const *)a)->name,
                  (*(const struct zip_entry *const *)b)->name);
}

/* No two entries share bytes or a name. */
static attnrun_status check_distinct(const struct zip *zip)
{
    const struct zip_entry **sorted = calloc((size_t)zip->n + 1, sizeof *sorted);
    attnrun_status status = ATTNRUN_OK;
    if (sorted == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a zip directory");
    for (int64_t i = 0; i < zip->n; i++)
        sorted[i] = &zip->entries[i];
    qsort(sorted, (size_t)zip->n, sizeof *sorted, by_offset);
    for (int64_t i = 1; i < zip->n && status == ATTNRUN_OK; i++)
        if (sorted[i]->header_offset - sorted[i - 1]->header_offset <
            LOCAL_BYTES + sorted[i - 1]->stored_bytes)
            status = malformed(zip, "two entries overlap");
    qsort(sorted, (size_t)zip->n, sizeof *sorted, by_name);
    for (int64_t i = 1; i < zip->n && status == ATTNRUN_OK; i++)
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            status = malformed(zip, "two entries have one name");
    free(sorted);
    return status;
}

static attnrun_status read_directory(struct zip *zip)
{
    struct directory d = { 0 };
    TRY(find_directory(zip, &d));
    uint8_t *bytes = malloc((size_t)d.bytes + 1);
    zip->entries = calloc((size_t)d.n + 1, sizeof *zip->entries);
    attnrun_status status =
        bytes == NULL || zip->entries == NULL
            ? tool_fail(ATTNRUN_E_MEMORY, "no memory for a zip directory")
            : input_file_read(&zip->file, d.offset, bytes, d.bytes);
    const uint8_t *at = bytes;
    for (int64_t i = 0; i < d.n && status == ATTNRUN_OK; i++)
        status = read_entry(zip, &at, bytes + d.bytes, d.offset);
    free(bytes);
    TRY(status);
    return check_distinct(zip);
}

attnrun_status zip_open(struct zip *zip, const char *path)
{
    memset(zip, 0, sizeof *zip);
    zip->file.fd = -1;
    attnrun_status status = input_file_open(&zip->file, path);
    if (status == ATTNRUN_OK)
        status = read_directory(zip);
    else
        zip->file.fd = -1;
    if (status != ATTNRUN_OK)
        zip_close(zip);
    return status;
}

void zip_close(struct zip *zip)
{
    for (int64_t i = 0; i < zip->n; i++)
        free(zip->entries[i].name);
    free(zip->entries);
    zip->entries = NULL;
    zip->n = 0;
    input_file_close(&zip->file);
}

/* Where the bytes of an entry begin. */
static attnrun_status find_data(const struct zip *zip, const struct zip_entry *entry,
                                int64_t *offset)
{
    uint8_t local[LOCAL_BYTES];
    TRY(input_file_read(&zip->file, entry->header_offset, local, LOCAL_BYTES));
    if (get32(local) != 0x04034b50)
        return malformed(zip,
                         "an entry has no header at the place that the directory gives");
    *offset = entry->header_offset + LOCAL_BYTES + get16(local + 26) + get16(local + 28);
    if (*offset > zip->file.bytes || entry->stored_bytes > zip->file.bytes - *offset)
        return malformed(zip, "an entry lies outside the file");
    return ATTNRUN_OK;
}

/* Deflated bytes: exactly entry->bytes must come out of exactly entry->stored_bytes. */
static attnrun_status inflate_entry(const struct zip *zip, const struct zip_entry *entry,
                                    int64_t offset, uint8_t *data)
{
    uint8_t *chunk = malloc(CHUNK);
    z_stream stream = { 0 };
    if (chunk == NULL || inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
        free(chunk);
        return tool_fail(ATTNRUN_E_MEMORY, "no memory to unpack an entry");
    }
    attnrun_status status = ATTNRUN_OK;
    int64_t left_in = entry->stored_bytes, left_out = entry->bytes;
    int result = Z_OK;
    stream.next_out = data;
    while (status == ATTNRUN_OK && result == Z_OK) {
        if (stream.avail_in == 0 && left_in > 0) {
            int64_t n = left_in < CHUNK ? left_in : CHUNK;
            status = input_file_read(&zip->file, offset, chunk, n);
            stream.next_in = chunk;
            stream.avail_in = (uInt)n;
            offset += n;
            left_in -= n;
        }
        uInt room = left_out < (1 << 30) ? (uInt)left_out : 1u << 30;
        stream.avail_out = room;
        if (status == ATTNRUN_OK)
            result = inflate(&stream, Z_NO_FLUSH);
        left_out -= room - stream.avail_out;
    }
    if (status == ATTNRUN_OK && (result != Z_STREAM_END || left_out != 0))
        status = malformed(zip, "a packed entry is damaged");
    inflateEnd(&stream);
    free(chunk);
    return status;
}

attnrun_status zip_read(const struct zip *zip, const struct zip_entry *entry,
                        uint8_t *data)
{
    int64_t offset = 0;
    TRY(find_data(zip, entry, &offset));
    if (entry->method == 0)
        TRY(input_file_read(&zip->file, offset, data, entry->bytes));
    else
        TRY(inflate_entry(zip, entry, offset, data));
    if ((uint32_t)crc32_z(0, data, (size_t)entry->bytes) != entry->crc)
        return tool_fail(ATTNRUN_E_PARSE, "%s: entry '%s' is damaged (its CRC is wrong)",
                         tool_path(zip->file.path), tool_quote(entry->name));
    return ATTNRUN_OK;
}

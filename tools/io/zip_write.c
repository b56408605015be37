/* zip_write.c - writes zip archives of stored entries. Sizes and CRC are known before the
 * bytes, so that nothing is written twice and the archive may go into a pipe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zip.h"

enum { FIELD64_BYTES = 20, DOS_DATE_1980 = 0x21 };
#define LIMIT32 INT64_C(0xfffffffe)

static uint8_t *put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v & 255);
    p[1] = (uint8_t)(v >> 8 & 255);
    return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
    return put16(put16(p, v & 0xffff), v >> 16);
}

static uint8_t *put64(uint8_t *p, int64_t v)
{
    return put32(put32(p, (uint32_t)((uint64_t)v & 0xffffffff)),
                 (uint32_t)((uint64_t)v >> 32));
}

static uint32_t clip32(int64_t v) { return v > LIMIT32 ? UINT32_MAX : (uint32_t)v; }

/* What the local header and the directory both say of an entry: flags, method, time, date, CRC,
 * both sizes, and the length of the name. */
static uint8_t *put_facts(uint8_t *p, const struct zip_entry *entry)
{
    p = put16(p, 0x800); /* names are UTF-8 */
    p = put16(p, 0);     /* stored */
    p = put16(p, 0);
    p = put16(p, DOS_DATE_1980);
    p = put32(p, entry->crc);
    p = put32(p, clip32(entry->bytes));
    p = put32(p, clip32(entry->bytes));
    return put16(p, (uint32_t)strlen(entry->name));
}

attnrun_status zip_create(struct zip_writer *zip, const char *path)
{
    memset(zip, 0, sizeof *zip);
    return output_file_open(&zip->file, path);
}

/* Local header; `large` ones keep their sizes in a zip64 field. */
static attnrun_status write_local(struct zip_writer *zip, const struct zip_entry *entry)
{
    uint8_t header[30 + FIELD64_BYTES], *p = header;
    bool large = entry->bytes > LIMIT32;
    size_t name = strlen(entry->name);
    p = put32(p, 0x04034b50);
    p = put16(p, large ? 45 : 20);
    p = put_facts(p, entry);
    put16(p, large ? FIELD64_BYTES : 0);
    TRY(output_file_write(&zip->file, header, 30));
    TRY(output_file_write(&zip->file, entry->name, (int64_t)name));
    if (!large)
        return ATTNRUN_OK;
    p = put16(put16(header, 1), 16);
    put64(put64(p, entry->bytes), entry->bytes);
    return output_file_write(&zip->file, header, FIELD64_BYTES);
}

attnrun_status zip_begin(struct zip_writer *zip, const char *name, int64_t bytes,
                         uint32_t crc)
{
    if (strlen(name) > 65535)
        return tool_fail(ATTNRUN_E_LIMIT,
                         "the name of an entry has more than 65535 bytes");
    if (zip->n == zip->capacity) {
        int64_t capacity = zip->capacity * 2 + 16;
        struct zip_entry *entries =
            realloc(zip->entries, (size_t)capacity * sizeof *entries);
        if (entries == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a zip directory");
        zip->entries = entries;
        zip->capacity = capacity;
    }
    struct zip_entry *entry = &zip->entries[zip->n];
    *entry = (struct zip_entry){ .name = strdup(name), .bytes = bytes, .crc = crc };
    if (entry->name == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a zip directory");
    zip->n++;
    entry->header_offset = zip->file.bytes;
    return write_local(zip, entry);
}

attnrun_status zip_add(void *writer, const void *data, int64_t bytes)
{
    struct zip_writer *zip = writer;
    zip->entries[zip->n - 1].stored_bytes += bytes;
    return output_file_write(&zip->file, data, bytes);
}

attnrun_status zip_end(struct zip_writer *zip)
{
    const struct zip_entry *entry = &zip->entries[zip->n - 1];
    if (entry->stored_bytes != entry->bytes)
        return tool_fail(ATTNRUN_E_INTERNAL,
                         "an entry does not have the size that its directory states");
    return ATTNRUN_OK;
}

static attnrun_status write_entry(struct zip_writer *zip, const struct zip_entry *entry)
{
    uint8_t record[46 + 32], *p = record, field[32], *f = field + 4;
    size_t name = strlen(entry->name);
    bool large = entry->bytes > LIMIT32;
    if (large)
        f = put64(put64(f, entry->bytes), entry->bytes);
    if (entry->header_offset > LIMIT32)
        f = put64(f, entry->header_offset);
    uint32_t field_bytes = f == field + 4 ? 0 : (uint32_t)(f - field);
    put16(put16(field, 1), field_bytes == 0 ? 0 : field_bytes - 4);
    p = put32(p, 0x02014b50);
    p = put16(p, 45);
    p = put16(p, 45);
    p = put_facts(p, entry);
    p = put16(p, field_bytes);
    memset(p, 0, 10); /* comment, disk, attributes */
    p = put32(p + 10, clip32(entry->header_offset));
    TRY(output_file_write(&zip->file, record, p - record));
    TRY(output_file_write(&zip->file, entry->name, (int64_t)name));
    return output_file_write(&zip->file, field, field_bytes);
}

static attnrun_status write_end(struct zip_writer *zip, int64_t offset)
{
    int64_t bytes = zip->file.bytes - offset;
    uint8_t record[98], *p = record;
    bool large = offset > LIMIT32 || bytes > LIMIT32 || zip->n >= 0xffff;
    if (large) {
        int64_t at = zip->file.bytes;
        p = put64(put32(p, 0x06064b50), 44);
        p = put64(put16(put16(p, 45), 45), 0); /* and the two disk numbers */
        p = put64(put64(put64(put64(p, zip->n), zip->n), bytes), offset);
        p = put32(put64(put32(put32(p, 0x07064b50), 0), at), 1);
    }
    uint32_t n = zip->n >= 0xffff ? 0xffff : (uint32_t)zip->n;
    p = put32(put32(p, 0x06054b50), 0);
    p = put16(put16(p, n), n);
    p = put16(put32(put32(p, clip32(bytes)), clip32(offset)), 0);
    return output_file_write(&zip->file, record, p - record);
}

attnrun_status zip_commit(struct zip_writer *zip)
{
    int64_t offset = zip->file.bytes;
    attnrun_status status = ATTNRUN_OK;
    for (int64_t i = 0; i < zip->n && status == ATTNRUN_OK; i++)
        status = write_entry(zip, &zip->entries[i]);
    if (status == ATTNRUN_OK)
        status = write_end(zip, offset);
    if (status == ATTNRUN_OK)
        status = output_file_commit(&zip->file);
    zip_abandon(zip);
    return status;
}

void zip_abandon(struct zip_writer *zip)
{
    output_file_abandon(&zip->file);
    for (int64_t i = 0; i < zip->n; i++)
        free(zip->entries[i].name);
    free(zip->entries);
    zip->entries = NULL;
    zip->n = zip->capacity = 0;
}

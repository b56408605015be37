/* zip.h - zip archives: a reader that trusts nothing it has not checked, and a writer of
 * stored entries. Zip64 both ways; stored and deflated entries are read. */
#ifndef TOOL_ZIP_H
#define TOOL_ZIP_H

#include "file.h"

struct zip_entry {
    char *name;
    int64_t stored_bytes, bytes; /* in the file; unpacked */
    int64_t header_offset;
    uint32_t crc;
    int32_t method; /* 0 stored, 8 deflated */
};
struct zip {
    struct input_file file;
    struct zip_entry *entries;
    int64_t n;
};
/* Reads the directory. Refuses more entries and larger ratios than tool_limits say, repeated
 * names, overlapping entries, encryption and other methods. */
attnrun_status zip_open(struct zip *zip, const char *path);
void zip_close(struct zip *zip);
/* Unpacks an entry into `data` of entry->bytes bytes and checks its CRC. */
attnrun_status zip_read(const struct zip *zip, const struct zip_entry *entry,
                        uint8_t *data);

struct zip_writer {
    struct output_file file;
    struct zip_entry *entries;
    int64_t n, capacity;
};
attnrun_status zip_create(struct zip_writer *zip, const char *path);
/* An entry of so many bytes with this CRC: then zip_add() for its bytes, and zip_end().
 */
attnrun_status zip_begin(struct zip_writer *zip, const char *name, int64_t bytes,
                         uint32_t crc);
attnrun_status zip_add(void *writer, const void *data, int64_t bytes);
attnrun_status zip_end(struct zip_writer *zip);
attnrun_status zip_commit(struct zip_writer *zip);
void zip_abandon(struct zip_writer *zip);

#endif

/* npz.h - NumPy's archives: zip files of npy entries "key.npy". */
#ifndef TOOL_NPZ_H
#define TOOL_NPZ_H

#include "value.h"
#include "zip.h"

/* The entry of `key`, or NULL. */
const struct zip_entry *npz_find(const struct zip *zip, const char *key);
/* The key of an entry: its name without ".npy"; false for an entry that is no array. */
bool npz_key(const struct zip_entry *entry, char *key, size_t bytes);
attnrun_status npz_read(const struct zip *zip, const struct zip_entry *entry,
                        uint64_t max_bytes, struct held *held);
attnrun_status npz_add(struct zip_writer *zip, const char *key,
                       const attnrun_tensor *tensor);

#endif

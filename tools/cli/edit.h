/* edit.h - writing ONNX models that are made of others: what optimize, extract and compare
 * share. */
#ifndef TOOL_EDIT_H
#define TOOL_EDIT_H

#include "cli.h"

struct edit {
    struct list inputs, outputs; /* of the part; empty: those of the model */
    bool simplify;               /* else the nodes stay as they are */
    bool external;               /* large constants in a file beside it */
};
/* Writes the model that `edit` makes of the file `from`. */
attnrun_status edit_write(struct cli *cli, const char *from, const struct edit *edit,
                          const char *path, attnrun_onnx_saved *saved);

#endif

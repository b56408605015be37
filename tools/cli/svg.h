/* svg.h - the arena as a drawing. */
#ifndef TOOL_SVG_H
#define TOOL_SVG_H

#include "../io/value.h"

/* Time (steps) to the right, offset (bytes) upwards, one rectangle per block, whose title
 * names it. */
attnrun_status svg_write(const char *path, const char *model,
                         const attnrun_plan_info *plan, const attnrun_plan_block *blocks,
                         int64_t n);

#endif

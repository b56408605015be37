/* plugin.c - a plugin that registers nothing, for test_concurrent.c. */
#include "attnrun.h"

ATTNRUN_API attnrun_status attnrun_plugin(attnrun_runtime *runtime);

attnrun_status attnrun_plugin(attnrun_runtime *runtime)
{
    return runtime != NULL ? ATTNRUN_OK : ATTNRUN_E_USAGE;
}

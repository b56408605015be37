/* host.c - RAM and CPUs of this process.
 *
 * A cgroup limits a process through every directory from its own up to the root, so the
 * whole path is walked. In a container the path in /proc/self/cgroup may not exist below
 * /sys/fs/cgroup; the walk then ends at the mount point, which is the container's own
 * group. Source: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1. */
#include "host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io.h"

enum { PATH_BYTES = 1024, TEXT_BYTES = 4096 };

/* A small text file, cut at `bytes` - 1; false where it cannot be read. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    int fd = attn_io.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    size_t used = 0;
    while (used < bytes - 1) {
        ssize_t n = attn_io.pread(fd, text + used, bytes - 1 - used, (off_t)used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    text[used] = 0;
    attn_io.close(fd);
    return used > 0;
}

/* Whether a line "4:cpu,cpuacct:/path" names the controller; "0::/path" is version 2. */
static bool names_controller(const char *list, const char *controller)
{
    size_t n = strlen(controller);
    if (n == 0)
        return list[0] == ':';
    for (const char *word = list;; word++) {
        size_t length = strcspn(word, ",:\n");
        if (length == n && strncmp(word, controller, n) == 0)
            return true;
        word += length;
        if (*word != ',')
            return false;
    }
}

/* The path of this process in the hierarchy of `controller` ("" for version 2). */
static bool find_group(const char *root, const char *controller, char *path, size_t bytes)
{
    char text[TEXT_BYTES], file[PATH_BYTES];
    int length = snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
    if (length < 0 || (size_t)length >= sizeof file ||
        !read_text(file, text, sizeof text))
        return false;
    for (char *line = text; line != NULL && *line != 0;) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end++ = 0;
        char *list = strchr(line, ':');
        char *group = list == NULL ? NULL : strchr(list + 1, ':');
        if (group != NULL && names_controller(list + 1, controller)) {
            int n = snprintf(path, bytes, "%s", group + 1);
            return n > 0 && (size_t)n < bytes;
        }
        line = end;
    }
    return false;
}

/* Reads a limit in directory `dir`; false where there is none. */
typedef bool read_limit_fn(const char *dir, double *limit);

/* The smallest limit on the way from the process's group to the mount point. */
static double min_limit(const char *root, const char *mount, const char *controller,
                        read_limit_fn *read_limit)
{
    char path[PATH_BYTES] = "", dir[3 * PATH_BYTES];
    double min = -1, limit;
    if (!find_group(root, controller, path, sizeof path))
        return -1;
    for (;;) {
        snprintf(dir, sizeof dir, "%s%s%s", root, mount, path);
        if (read_limit(dir, &limit) && (min < 0 || limit < min))
            min = limit;
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            return min;
        *slash = 0;
    }
}

static bool read_value(const char *dir, const char *file, char *text, size_t bytes)
{
    char path[4 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return read_text(path, text, bytes);
}

static bool read_memory(const char *dir, const char *file, double *limit)
{
    char text[64];
    if (!read_value(dir, file, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return false;
    *limit = (double)strtoull(text, NULL, 10);
    return true;
}

static bool memory_v2(const char *dir, double *limit)
{
    return read_memory(dir, "memory.max", limit);
}

static bool memory_v1(const char *dir, double *limit)
{
    return read_memory(dir, "memory.limit_in_bytes", limit);
}

static bool cpus_v2(const char *dir, double *limit)
{
    char text[64];
    unsigned long long quota, period; /* microseconds; "max" is no limit */
    if (!read_value(dir, "cpu.max", text, sizeof text) ||
        sscanf(text, "%llu %llu", &quota, &period) != 2 || period == 0)
        return false;
    *limit = (double)quota / (double)period;
    return true;
}

static bool cpus_v1(const char *dir, double *limit)
{
    char quota[64], period[64];
    if (!read_value(dir, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_value(dir, "cpu.cfs_period_us", period, sizeof period))
        return false;
    long long q = strtoll(quota, NULL, 10), p = strtoll(period, NULL, 10);
    *limit = (double)q / (double)(p > 0 ? p : 1);
    return q > 0 && p > 0;
}

static double smaller(double a, double b) { return b > 0 && (a < 0 || b < a) ? b : a; }

int64_t attn_host_memory_below(const char *root)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    double ram = pages > 0 && page > 0 ? (double)pages * (double)page : 4e9;
    ram = smaller(ram, min_limit(root, "/sys/fs/cgroup", "", memory_v2));
    ram = smaller(ram, min_limit(root, "/sys/fs/cgroup/memory", "memory", memory_v1));
    return ram < 1 ? 1 : (int64_t)ram;
}

int32_t attn_host_cpus_below(const char *root)
{
    cpu_set_t set;
    double cpus = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cpus = CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0) /* more CPUs than cpu_set_t holds */
        cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
    cpus = smaller(cpus, min_limit(root, "/sys/fs/cgroup", "", cpus_v2));
    cpus = smaller(cpus, min_limit(root, "/sys/fs/cgroup/cpu", "cpu", cpus_v1));
    int32_t whole = (int32_t)cpus;
    return whole < 1 ? 1 : whole + (cpus > whole ? 1 : 0);
}

int64_t attn_host_memory(void) { return attn_host_memory_below(""); }

int32_t attn_host_cpus(void) { return attn_host_cpus_below(""); }

/* host.h - how much memory and how many CPUs the system lets this process use.
 *
 * In: the CPU affinity and the files of the process's cgroups, v1 and v2. Out: bytes and a number
 * of CPUs. Cost: reads a few small files. */
#ifndef ATTN_HOST_H
#define ATTN_HOST_H

#include <stdint.h>

/* min(physical RAM, cgroup v1/v2 memory limit), bytes; at least 1. */
int64_t attn_host_memory(void);
/* Affinity ∩ cgroup v1/v2 CPU quota (rounded up), at least 1. */
int32_t attn_host_cpus(void);
/* The same with `root` before the paths of /proc/self/cgroup and /sys/fs/cgroup: tests
 * put groups of their own there. */
int64_t attn_host_memory_below(const char *root);
int32_t attn_host_cpus_below(const char *root);

#endif

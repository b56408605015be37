/* host.h - what the system lets this process use: RAM and CPUs, under its cgroups. */
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

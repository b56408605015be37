/* test_host.c - what a process may use of its machine: affinity, CPU quotas and memory
 * limits of cgroup v2 and v1, of the group itself and of those around it. The groups are
 * files below a temporary folder. */
#include "check.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attnrun.h"
#include "host.h"

static char root[64];

/* Makes the folders on the way, too. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int begin_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/attnrun-host-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int end_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static int32_t affinity(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static int32_t capped(int32_t cpus) { return cpus < affinity() ? cpus : affinity(); }

static void test_no_groups_leave_the_affinity(void **state)
{
    (void)state;
    assert_int_equal(attn_host_cpus_below(root), affinity());
    assert_true(attn_host_memory_below(root) > INT64_C(1) << 20);
}

static void test_quota_of_version_2_is_rounded_up(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t cpus;
    } cases[] = { { "50000 100000\n", 1 },  { "100000 100000\n", 1 },
                  { "100001 100000\n", 2 }, { "150000 100000\n", 2 },
                  { "1000 100000\n", 1 },   { "max 100000\n", 1024 },
                  { "100000 0\n", 1024 },   { "", 1024 },
                  { "words\n", 1024 },      { "99999999999999999999 1\n", 1024 } };
    put("/proc/self/cgroup", "0::/pod/app\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("/sys/fs/cgroup/pod/app/cpu.max", cases[i].text);
        assert_int_equal(attn_host_cpus_below(root), capped(cases[i].cpus));
    }
}

static void test_min_quota_on_the_way_up_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pod/app\n");
    put("/sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "800000 100000\n");
    assert_int_equal(attn_host_cpus_below(root), 1);
}

/* In a container the path names a group that its own mount doesn't show. */
static void test_unseen_group_falls_back_to_the_mount(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/0123456789\n");
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/memory.max", "33554432\n");
    assert_int_equal(attn_host_cpus_below(root), 1);
    assert_int_equal(attn_host_memory_below(root), 33554432);
}

static void test_quota_of_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "67108864\n");
    assert_int_equal(attn_host_cpus_below(root), affinity());
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "60000\n");
    assert_int_equal(attn_host_cpus_below(root), 1);
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "110000\n");
    assert_int_equal(attn_host_cpus_below(root), capped(2));
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "0\n");
    assert_int_equal(attn_host_cpus_below(root), affinity());
    assert_int_equal(attn_host_memory_below(root), 67108864);
}

/* Lists of groups that name none, or a path that is too long for any. */
static void test_lists_that_name_no_group(void **state)
{
    (void)state;
    static char long_path[2000] = "0::/";
    static const char *const lists[] = { "", "words\n", "4:cpu\n", "0::", "0::\n" };
    memset(long_path + 4, 'a', sizeof long_path - 5);
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/memory.max", "33554432\n");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        put("/proc/self/cgroup", lists[i]);
        assert_int_equal(attn_host_cpus_below(root), affinity());
        assert_true(attn_host_memory_below(root) > 33554432);
    }
    put("/proc/self/cgroup", long_path);
    assert_int_equal(attn_host_cpus_below(root), affinity());
    put("/proc/self/cgroup", "9:memory:/pod\n0::/pod"); /* no end of a line */
    assert_int_equal(attn_host_cpus_below(root), 1);
    memset(long_path, 'r', sizeof long_path - 1);
    assert_int_equal(attn_host_cpus_below(long_path), affinity());
}

static void test_least_memory_on_the_way_up_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pod/app\n");
    put("/sys/fs/cgroup/pod/app/memory.max", "50331648\n");
    put("/sys/fs/cgroup/pod/memory.max", "67108864\n");
    assert_int_equal(attn_host_memory_below(root), 50331648);
    put("/sys/fs/cgroup/memory.max", "33554432\n");
    assert_int_equal(attn_host_memory_below(root), 33554432);
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/pod/app/memory.max", "-1\n");
    assert_int_equal(attn_host_memory_below(root), 67108864);
    put("/sys/fs/cgroup/pod/memory.max", "");
    assert_true(attn_host_memory_below(root) > 67108864);
}

static void test_quota_without_a_period(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu:/box\n");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "60000\n");
    assert_int_equal(attn_host_cpus_below(root), affinity());
}

static int32_t default_threads(void)
{
    attnrun_runtime *runtime;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    assert_int_equal(attnrun_runtime_create(NULL, &runtime), ATTNRUN_OK);
    assert_int_equal(attnrun_runtime_query(runtime, &info), ATTNRUN_OK);
    attnrun_runtime_destroy(runtime);
    return info.threads;
}

static void test_affinity_bounds_the_default_threads(void **state)
{
    (void)state;
    cpu_set_t before, one;
    unsetenv("ATTNRUN_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(default_threads(), attn_host_cpus());
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(default_threads(), 1);
    setenv("ATTNRUN_NUM_THREADS", "3", 1); /* who asks for more gets more */
    assert_int_equal(default_threads(), 3);
    setenv("OMP_NUM_THREADS", "2", 1);
    assert_int_equal(default_threads(), 3);
    setenv("ATTNRUN_NUM_THREADS", "1025",
           1); /* no number of threads: the next one counts */
    assert_int_equal(default_threads(), 2);
    setenv("ATTNRUN_NUM_THREADS", "0", 1);
    setenv("OMP_NUM_THREADS", "many", 1);
    assert_int_equal(default_threads(), 1);
    unsetenv("ATTNRUN_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_groups_leave_the_affinity, begin_root,
                                        end_root),
        cmocka_unit_test_setup_teardown(test_quota_of_version_2_is_rounded_up, begin_root,
                                        end_root),
        cmocka_unit_test_setup_teardown(test_min_quota_on_the_way_up_counts, begin_root,
                                        end_root),
        cmocka_unit_test_setup_teardown(test_unseen_group_falls_back_to_the_mount,
                                        begin_root, end_root),
        cmocka_unit_test_setup_teardown(test_quota_of_version_1, begin_root, end_root),
        cmocka_unit_test_setup_teardown(test_lists_that_name_no_group, begin_root,
                                        end_root),
        cmocka_unit_test_setup_teardown(test_least_memory_on_the_way_up_counts,
                                        begin_root, end_root),
        cmocka_unit_test_setup_teardown(test_quota_without_a_period, begin_root,
                                        end_root),
        cmocka_unit_test(test_affinity_bounds_the_default_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

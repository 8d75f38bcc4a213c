/* Quotas of CPU time and limits of memory, from folders as the kernel shows them; waits that do not look at the wall
 * clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"

static char root[256];

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(tt_dir_create(path), TT_OK);
    *slash = '/';
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int quota(const char *cgroup_lines)
{
    char file[512];
    write_file("cgroup", cgroup_lines);
    snprintf(file, sizeof file, "%s/cgroup", root);
    return tt_cpu_quota(file, root);
}

static int make_root(void **state)
{
    (void)state;
    const char *temporary = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/cgroup-XXXXXX", temporary != NULL ? temporary : "/tmp");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    return tt_dir_remove(root) != TT_OK;
}

static void version_2(void **state)
{
    (void)state;
    write_file("pod/cpu.max", "max 100000\n");
    assert_int_equal(quota("0::/pod\n"), 0);
    write_file("pod/cpu.max", "150000 100000\n");
    assert_int_equal(quota("0::/pod\n"), 2);
    write_file("pod/cpu.max", "50000 100000\n");
    assert_int_equal(quota("0::/pod\n"), 1);
    /* A group below it has the same limit, and may have a lower one. */
    write_file("pod/cpu.max", "400000 100000\n");
    write_file("pod/inner/deep/cpu.max", "max 100000\n");
    assert_int_equal(quota("0::/pod/inner/deep\n"), 4);
    write_file("pod/inner/cpu.max", "300000 100000\n");
    assert_int_equal(quota("0::/pod/inner/deep\n"), 3);
    /* A container that sees its own group as the root. */
    write_file("cpu.max", "700000 100000\n");
    assert_int_equal(quota("0::/\n"), 7);
    assert_int_equal(quota("0::/not/here\n"), 7);
    write_file("cpu.max", "nonsense\n");
    assert_int_equal(quota("0::/\n"), 0);
}

static void version_1(void **state)
{
    (void)state;
    const char *lines = "5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/job\n";
    assert_int_equal(quota(lines), 0);
    write_file("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    write_file("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(quota(lines), 0);
    write_file("cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(quota(lines), 3);
    write_file("cpuset/job/cpu.cfs_quota_us", "100000\n");
    write_file("cpuset/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(lines), 3);
}

static void nothing_there(void **state)
{
    (void)state;
    assert_int_equal(tt_cpu_quota("/nowhere/cgroup", root), 0);
    assert_int_equal(quota(""), 0);
    assert_int_equal(quota("no colons\n:\n"), 0);
    assert_true(tt_cpu_count() >= 1);
}

/* memory.max of all groups above; "max", and version 1's number near 2^63, are no limit. */
static void memory_of_this_process(void **state)
{
    enum { BYTES = 32 << 20 };
    (void)state;
    struct tt_process_memory before = tt_process_memory_read();
    if (before.resident == 0) skip(); /* no /proc */
    char *block = malloc(BYTES);
    assert_non_null(block);
    memset(block, 1, BYTES);
    struct tt_process_memory after = tt_process_memory_read();
    assert_true(block[BYTES / 2] == 1);
    free(block);
    assert_true(after.own >= before.own + BYTES * 9 / 10 && after.own <= before.own + 2 * (uint64_t)BYTES);
    assert_true(after.resident >= after.own && after.peak >= after.resident);
}

static void memory_limits(void **state)
{
    (void)state;
    char file[512];
    snprintf(file, sizeof file, "%s/cgroup", root);
    write_file("cgroup", "0::/big/pod\n");
    assert_int_equal(tt_memory_limit(file, root), 0);
    write_file("big/pod/memory.max", "max\n");
    assert_int_equal(tt_memory_limit(file, root), 0);
    write_file("big/pod/memory.max", "68719476736\n");
    assert_int_equal(tt_memory_limit(file, root), 68719476736);
    write_file("big/memory.max", "1073741824\n");
    assert_int_equal(tt_memory_limit(file, root), 1073741824);
    write_file("memory.max", "nonsense\n");
    assert_int_equal(tt_memory_limit(file, root), 1073741824);
    write_file("cgroup", "4:cpu,cpuacct:/old\n3:memory:/old\n");
    write_file("memory/old/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("cpu,cpuacct/old/memory.limit_in_bytes", "4096\n");
    assert_int_equal(tt_memory_limit(file, root), 0);
    write_file("memory/old/memory.limit_in_bytes", "2147483648\n");
    assert_int_equal(tt_memory_limit(file, root), 2147483648);
    /* What its groups may use together, of which a container sees only the innermost. */
    write_file("memory/old/memory.stat",
               "cache 4096\nhierarchical_memory_limit 1610612736\nhierarchical_memsw_limit 1\n");
    assert_int_equal(tt_memory_limit(file, root), 1610612736);
    bool grouped;
    assert_true(tt_memory_bytes(&grouped) > 0);
}

/* A group is also stopped beyond memory.high; the smallest of all groups counts, wherever it is. */
static void memory_of_version_2(void **state)
{
    (void)state;
    char file[512];
    snprintf(file, sizeof file, "%s/cgroup", root);
    write_file("cgroup", "0::/kubepods/pod/container\n");
    write_file("kubepods/memory.max", "max\n");
    write_file("kubepods/pod/memory.max", "3221225472\n");
    write_file("kubepods/pod/container/memory.max", "4294967296\n");
    write_file("kubepods/pod/container/memory.high", "max\n");
    assert_int_equal(tt_memory_limit(file, root), 3221225472);
    write_file("kubepods/pod/container/memory.high", "2147483648\n");
    assert_int_equal(tt_memory_limit(file, root), 2147483648);
    write_file("kubepods/pod/memory.high", "1073741824\n");
    assert_int_equal(tt_memory_limit(file, root), 1073741824);
    write_file("kubepods/memory.max", "536870912\n");
    assert_int_equal(tt_memory_limit(file, root), 536870912);
    /* Version 2 for memory beside version 1 for processors. */
    write_file("cgroup", "2:cpu:/job\n0::/job\n");
    write_file("unified/job/memory.max", "268435456\n");
    assert_int_equal(tt_memory_limit(file, root), 268435456);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    double started = tt_clock_seconds();
    pthread_mutex_lock(&mutex);
    while (tt_cond_wait_until(&changed, &mutex, started + 0.05)) continue;
    assert_true(tt_clock_seconds() >= started + 0.05);
    assert_false(tt_cond_wait_until(&changed, &mutex, started)); /* one that has passed */
    pthread_mutex_unlock(&mutex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(memory_of_this_process),
        cmocka_unit_test(memory_limits),
        cmocka_unit_test(memory_of_version_2),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}

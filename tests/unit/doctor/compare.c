/* Verdicts of trimtab doctor over measurements that are made up: each fault is named with its rank, nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "doctor/doctor_impl.h"
#include "support/temporary.h"

enum { RANKS = 4 };

static struct tt_job_spec job = {.model = {.model_name_or_path = "base"},
                                 .data = {.dataset_name = "rows.jsonl"}};

static struct tt_doctor_report healthy(void)
{
    struct tt_doctor_report report = {.rank_count = RANKS,
                                      .all_reduce_seconds = 2e-5,
                                      .all_reduce_bytes = 3e9,
                                      .sum_is_right = true,
                                      .transport = "tcp"};
    report.ranks = tt_calloc(RANKS, sizeof *report.ranks);
    assert_non_null(report.ranks);
    for (int r = 0; r < RANKS; r++) {
        struct tt_doctor_rank *rank = &report.ranks[r];
        *rank = (struct tt_doctor_rank){.machine = r / 2,
                                        .local_rank = r % 2,
                                        .processors = 8,
                                        .memory_bytes = (uint64_t)16 << 30,
                                        .shm_bytes = (uint64_t)8 << 30,
                                        .file_limit = 20000,
                                        .locked_limit = UINT64_MAX,
                                        .rdma_devices = -1,
                                        .clock_seconds = 0.001 * r,
                                        .flops = 1e12 + 1e10 * r,
                                        .link_bytes = 2e9 - 1e8 * r,
                                        .sees_rank0 = 1,
                                        .has_model = 1,
                                        .has_data = 1};
        snprintf(rank->host, sizeof rank->host, "node-%d", r / 2);
        snprintf(rank->device, sizeof rank->device, "a processor, 8 threads");
        if (r % 2 == 0) rank->write_bytes = rank->read_bytes = 5e8, rank->free_bytes = (uint64_t)1 << 40;
    }
    return report;
}

/* Compares the report, whose only check with another verdict than "ok" must be `name`, with `text` in it. */
static void expect(struct tt_doctor_report *report, const char *name, enum tt_doctor_verdict verdict,
                   const char *text)
{
    assert_int_equal(tt_doctor_compare(&job, report), TT_OK);
    for (int i = 0; i < report->check_count; i++) {
        const struct tt_doctor_check *check = &report->checks[i];
        bool named = name != NULL && strcmp(check->name, name) == 0;
        const char *said = tt_str_text(&check->text);
        if (check->verdict != (named ? verdict : TT_DOCTOR_OK))
            fail_msg("%s: %d, %s", check->name, check->verdict, said);
        if (named && strstr(said, text) == NULL) fail_msg("'%s' is not in: %s", text, said);
    }
    int others = (report->ranks[0].is_gpu != 0) + (report->ranks[2].rdma_ports > 0); /* gpus, rdma */
    assert_int_equal(report->check_count, 12 + others);
    assert_int_equal(tt_doctor_count(report, TT_DOCTOR_OK), report->check_count - (name != NULL));
    tt_doctor_deinit(report);
}

static void no_fault(void **state)
{
    (void)state;
    struct tt_doctor_report report = healthy();
    expect(&report, NULL, TT_DOCTOR_OK, "");
}

static void faults_are_named(void **state)
{
    (void)state;
    struct tt_doctor_report report = healthy();
    report.ranks[2].flops = 8e11;
    expect(&report, "speed", TT_DOCTOR_WARNS, "rank 2 on node-1 reaches 0.8");
    report = healthy();
    report.ranks[1].link_bytes = 1e8;
    expect(&report, "links", TT_DOCTOR_WARNS, "rank 1 on node-0 with rank 2 on node-1: 0.1 GB/s");
    report = healthy();
    report.ranks[3].link_bytes = 1e8;
    expect(&report, "links", TT_DOCTOR_WARNS, "rank 3 on node-1 with rank 0 on node-0");
    report = healthy();
    report.sum_is_right = false;
    expect(&report, "all-reduce", TT_DOCTOR_FAILS, "the sum of known values is wrong");
    report = healthy();
    report.ranks[3].clock_seconds = -3;
    expect(&report, "clocks", TT_DOCTOR_WARNS, "the clock of rank 3 on node-1 is 3.0 s behind");
    report = healthy();
    report.ranks[2].sees_rank0 = report.ranks[3].sees_rank0 = 0;
    expect(&report, "storage", TT_DOCTOR_WARNS, "rank 2 on node-1 does not see rank 0's file");
    report = healthy();
    report.ranks[2].sees_rank0 = report.ranks[3].sees_rank0 = 0;
    report.ranks[0].write_bytes = report.ranks[2].write_bytes = 1.1397e9;
    report.ranks[0].read_bytes = report.ranks[2].read_bytes = 2.5e10;
    expect(&report, "storage", TT_DOCTOR_WARNS, "written at 1,140 MB/s (synchronized), read at 25,000 MB/s");
    report = healthy();
    snprintf(report.ranks[2].storage_error, sizeof report.ranks[2].storage_error, "no space left");
    expect(&report, "storage", TT_DOCTOR_FAILS, "rank 2 on node-1: no space left");
    report = healthy();
    report.ranks[1].has_data = 0;
    expect(&report, "data", TT_DOCTOR_WARNS,
           "'rows.jsonl' is missing or not readable on 1 of 4 ranks, first on rank 1 (node-0): a training "
           "takes it");
    report = healthy();
    report.ranks[0].has_model = report.ranks[3].has_model = 0;
    expect(&report, "model", TT_DOCTOR_FAILS, "on 2 of 4 ranks, first on rank 0 (node-0)");
    report = healthy();
    report.ranks[1].file_limit = 256;
    expect(&report, "limits", TT_DOCTOR_WARNS, "rank 1 may open 256 files only");
}

static void limits_of_machines(void **state)
{
    (void)state;
    struct tt_doctor_report report = healthy();
    report.ranks[2].process_limit = 100;
    expect(&report, "limits", TT_DOCTOR_WARNS, "rank 2 may have 100 threads only");
    report = healthy();
    report.ranks[3].shm_bytes = (uint64_t)1 << 20;
    expect(&report, "limits", TT_DOCTOR_WARNS, "/dev/shm of rank 3 has 1.0 MiB, too little for MPI");
    report = healthy();
    for (int r = 0; r < RANKS; r++) {
        report.ranks[r].rdma_ports = report.ranks[r].rdma_active = 2;
        report.ranks[r].locked_limit = r == 1 ? (uint64_t)8 << 20 : UINT64_MAX;
    }
    expect(&report, "limits", TT_DOCTOR_WARNS, "rank 1 may lock 8.0 MiB of memory only: RDMA fails");
    report = healthy();
    report.ranks[2].rdma_ports = 2;
    report.ranks[2].rdma_active = 1;
    snprintf(report.ranks[2].rdma, sizeof report.ranks[2].rdma, "mlx5_0 4: ACTIVE, mlx5_1 1: DOWN");
    expect(&report, "network", TT_DOCTOR_WARNS,
           "1 of 2 ports active; rank 2 on node-1: mlx5_0 4: ACTIVE, mlx5_1 1: DOWN");
    report = healthy();
    for (int r = 0; r < RANKS; r++) {
        snprintf(report.ranks[r].interface, sizeof report.ranks[r].interface, "eth0");
        report.ranks[r].mtu = r == 3 ? 1500 : 9000;
    }
    expect(&report, "network", TT_DOCTOR_WARNS,
           "rank 3 on node-1 by eth0 has an MTU of 1500, rank 0 of 9000");
    report = healthy();
    report.ranks[0].model_sum = report.ranks[1].model_sum = 5;
    report.ranks[2].model_sum = 7;
    expect(&report, "model", TT_DOCTOR_FAILS,
           "'base' of rank 2 on node-1 has other files than that of rank 0");
    report = healthy();
    report.needs = (struct tt_doctor_needs){.kept = 3, .checkpoint_bytes = (size_t)1 << 39};
    expect(&report, "storage", TT_DOCTOR_FAILS, "3 checkpoints need 1.5 TiB, rank 0 on node-0 has less");
}

/* The plan is a check of its own where there is one. */
static void needs_of_the_run(void **state)
{
    static const struct {
        struct tt_doctor_needs needs;
        enum tt_doctor_verdict verdict;
        const char *text;
    } cases[] = {
        {{.known = true, .kept = 1, .rank_bytes = (size_t)8 << 30, .checkpoint_bytes = (size_t)5e9},
         TT_DOCTOR_OK,
         "a checkpoint at most 4.7 GiB, which takes 10.0 s to write"},
        {{.known = true, .kept = 1, .rank_bytes = (size_t)9 << 30, .checkpoint_bytes = 1},
         TT_DOCTOR_FAILS,
         "2 ranks on node-0: the machine has 16.0 GiB"},
        {{.known = true, .kept = 1, .checkpoint_bytes = (size_t)5e9, .grace_seconds = 9},
         TT_DOCTOR_WARNS,
         "longer than grace_seconds, 9"},
        {{.why = "no config.json"}, TT_DOCTOR_OK, "there is none: no config.json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_doctor_report report = healthy();
        const struct tt_doctor_check *plan = NULL;
        report.needs = cases[i].needs;
        assert_int_equal(tt_doctor_compare(&job, &report), TT_OK);
        for (int c = 0; c < report.check_count; c++)
            if (strcmp(report.checks[c].name, "plan") == 0) plan = &report.checks[c];
        assert_non_null(plan);
        if (plan->verdict != cases[i].verdict || strstr(tt_str_text(&plan->text), cases[i].text) == NULL)
            fail_msg("case %zu: %d, %s", i, (int)plan->verdict, tt_str_text(&plan->text));
        tt_doctor_deinit(&report);
    }
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The files of /sys/class/infiniband, and files that differ in a name, a size or a byte. */
static void what_a_machine_has(void **state)
{
    char folder[160], part[256];
    struct tt_doctor_rank found = {0};
    (void)state;
    test_temporary(folder, sizeof folder, "trimtab-doctor-XXXXXX");
    assert_non_null(mkdtemp(folder));
    tt_doctor_find_rdma("/no/such/folder", NULL, &found);
    assert_int_equal(found.rdma_ports, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(part, sizeof part, "%s/mlx5_%d/ports/1", folder, i);
        assert_int_equal(tt_dir_create(part), TT_OK);
        write_file(part, "state", i == 0 ? "4: ACTIVE\n" : "1: DOWN\n");
        write_file(part, "rate", "400 Gb/sec (4X NDR)\n");
        write_file(part, "link_layer", "InfiniBand\n");
    }
    tt_doctor_find_rdma(folder, NULL, &found);
    assert_int_equal(found.rdma_ports, 2);
    assert_int_equal(found.rdma_active, 1);
    assert_string_equal(found.rdma, "mlx5_0 4: ACTIVE 400 Gb/sec (4X NDR) InfiniBand, "
                                    "mlx5_1 1: DOWN 400 Gb/sec (4X NDR) InfiniBand");
    snprintf(part, sizeof part, "%s/model", folder);
    assert_int_equal(tt_doctor_sum(part), 0);
    assert_int_equal(tt_dir_create(part), TT_OK);
    write_file(part, "config.json", "{}");
    uint64_t first = tt_doctor_sum(part);
    assert_true(first != 0 && first == tt_doctor_sum(part));
    write_file(part, "config.json", "[]");
    assert_true(tt_doctor_sum(part) != first);
    write_file(part, "config.json", "{}");
    write_file(part, "other", "");
    assert_true(tt_doctor_sum(part) != first);
    assert_int_equal(tt_dir_remove(folder), TT_OK);
}

/* /dev/shm matters where NCCL keeps its buffers in it. */
static void other_devices(void **state)
{
    (void)state;
    struct tt_doctor_report report = healthy();
    for (int r = 0; r < RANKS; r++) report.ranks[r].shm_bytes = (uint64_t)64 << 20;
    expect(&report, NULL, TT_DOCTOR_OK, "");
    report = healthy();
    for (int r = 0; r < RANKS; r++) {
        report.ranks[r].shm_bytes = (uint64_t)64 << 20;
        report.ranks[r].is_gpu = 1;
        report.ranks[r].to_device_bytes = report.ranks[r].to_host_bytes = 5e10;
        report.ranks[r].on_device_bytes = 4e12;
    }
    expect(&report, "limits", TT_DOCTOR_WARNS, "/dev/shm of rank 0 has 64.0 MiB");
    report = healthy();
    snprintf(report.ranks[2].device, sizeof report.ranks[2].device, "another processor, 8 threads");
    expect(&report, "devices", TT_DOCTOR_WARNS,
           "rank 2 on node-1 has another device than rank 0: another processor");
}

static void numbered_gpus(struct tt_doctor_report *report)
{
    *report = healthy();
    for (int r = 0; r < RANKS; r++)
        snprintf(report->ranks[r].device, sizeof report->ranks[r].device, "cuda:%d (NVIDIA H200)", r % 2);
}

/* Each machine numbers its GPUs: the number is no difference. */
static void other_gpus(void **state)
{
    (void)state;
    struct tt_doctor_report report;
    numbered_gpus(&report);
    expect(&report, NULL, TT_DOCTOR_OK, "");
    numbered_gpus(&report);
    snprintf(report.ranks[3].device, sizeof report.ranks[3].device, "cuda:1 (NVIDIA H100 80GB HBM3)");
    expect(&report, "devices", TT_DOCTOR_WARNS,
           "rank 3 on node-1 has another device than rank 0: cuda:1 (NVIDIA H100 80GB HBM3)");
}

static struct tt_doctor_report with_gpus(void);

/* What a rank's GPU has, and what others leave of it. */
static void needs_of_gpus(void **state)
{
    static const struct {
        int64_t used;
        size_t need;
        enum tt_doctor_verdict verdict;
        const char *text;
    } cases[] = {
        {1, 60, TT_DOCTOR_OK, "60.0 GiB of a GPU's memory, 1.0 GiB of memory a rank"},
        {10, 71, TT_DOCTOR_WARNS, "rank 1 on node-0: its GPU has 70.0 GiB that no other program uses"},
        {10, 81, TT_DOCTOR_FAILS, "rank 1 on node-0: its GPU has 80.0 GiB; rank 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_doctor_report report = with_gpus();
        report.needs = (struct tt_doctor_needs){.known = true,
                                                .kept = 1,
                                                .rank_bytes = (size_t)1 << 30,
                                                .device_bytes = cases[i].need << 30,
                                                .checkpoint_bytes = 1};
        for (int r = 0; r < RANKS; r++) report.ranks[r].gpu.total_bytes = (int64_t)80 << 30;
        report.ranks[1].gpu.used_bytes = cases[i].used << 30;
        assert_int_equal(tt_doctor_compare(&job, &report), TT_OK);
        for (int c = 0; c < report.check_count; c++) {
            const struct tt_doctor_check *check = &report.checks[c];
            if (strcmp(check->name, "plan") != 0) continue;
            if (check->verdict != cases[i].verdict ||
                strstr(tt_str_text(&check->text), cases[i].text) == NULL)
                fail_msg("case %zu: %d, %s", i, (int)check->verdict, tt_str_text(&check->text));
        }
        assert_int_equal(report.check_count, 14);
        tt_doctor_deinit(&report);
    }
}

static struct tt_doctor_report with_gpus(void)
{
    struct tt_doctor_report report = healthy();
    for (int r = 0; r < RANKS; r++) {
        struct tt_doctor_rank *rank = &report.ranks[r];
        rank->is_gpu = rank->under_load = 1;
        rank->expected_flops = 1e12;
        rank->to_device_bytes = rank->to_host_bytes = rank->expected_host_bytes = 5e10;
        rank->on_device_bytes = rank->expected_memory_bytes = 4e12;
        rank->gpu =
            (struct tt_gpu_health){.known = 1, .driver = "580.1", .ecc = 1, .persistence = 1, .nvlinks = 18};
    }
    return report;
}

/* Against the other ranks, and against the chip; what tests/e2e/doctor_gpus.sh cannot slow down. */
static void speeds_of_gpus(void **state)
{
    (void)state;
    struct tt_doctor_report report = with_gpus();
    assert_int_equal(tt_doctor_compare(&job, &report), TT_OK);
    assert_int_equal(report.check_count, 13);
    assert_int_equal(tt_doctor_count(&report, TT_DOCTOR_OK), 13);
    tt_doctor_deinit(&report);
    static const struct {
        size_t offset;
        double value;
        const char *check, *text;
    } cases[] = {
        {offsetof(struct tt_doctor_rank, to_device_bytes), 4.4e10, "copies",
         "to the device; rank 2 on node-1: 44 GB/s, 88 % of it"},
        {offsetof(struct tt_doctor_rank, to_host_bytes), 2.5e10, "copies",
         "to the host; rank 2 on node-1: 25 GB/s, 50 % of what is usual for its chip"},
        {offsetof(struct tt_doctor_rank, on_device_bytes), 2e12, "copies",
         "rank 2 on node-1: 2,000 GB/s, 50 % of what"},
        {offsetof(struct tt_doctor_rank, flops), 6e11, "speed",
         "rank 2 on node-1 reaches 0.6 of the 1 usual for its chip"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        report = with_gpus();
        memcpy((char *)&report.ranks[2] + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        assert_int_equal(tt_doctor_compare(&job, &report), TT_OK);
        assert_int_equal(tt_doctor_count(&report, TT_DOCTOR_WARNS), 1);
        for (int c = 0; c < report.check_count; c++)
            if (strcmp(report.checks[c].name, cases[i].check) == 0 &&
                strstr(tt_str_text(&report.checks[c].text), cases[i].text) == NULL)
                fail_msg("no '%s' in: %s", cases[i].text, tt_str_text(&report.checks[c].text));
        tt_doctor_deinit(&report);
    }
    report = with_gpus();
    snprintf(report.ranks[3].gpu.driver, sizeof report.ranks[3].gpu.driver, "570.9");
    assert_int_equal(tt_doctor_compare(&job, &report), TT_OK);
    assert_int_equal(tt_doctor_count(&report, TT_DOCTOR_WARNS), 1);
    tt_doctor_deinit(&report);
}

/* Ports in /sys that libibverbs does not see, as in a container without /dev/infiniband. */
static void rdma_without_devices(void **state)
{
    (void)state;
    struct tt_doctor_report report = healthy();
    for (int r = 0; r < RANKS; r++) report.ranks[r].rdma_ports = report.ranks[r].rdma_active = 1;
    report.ranks[2].rdma_devices = 0;
    report.ranks[1].rdma_devices = report.ranks[3].rdma_devices = 1;
    report.ranks[1].rdma_registered = report.ranks[3].rdma_registered = 1;
    report.ranks[0].rdma_devices = 1;
    report.ranks[0].rdma_registered = 1;
    assert_int_equal(tt_doctor_compare(&job, &report), TT_OK);
    assert_int_equal(tt_doctor_count(&report, TT_DOCTOR_WARNS), 1);
    bool found = false;
    for (int c = 0; c < report.check_count; c++)
        found |= strstr(tt_str_text(&report.checks[c].text),
                        "rank 2 on node-1: libibverbs sees none of its ports") != NULL;
    assert_true(found);
    tt_doctor_deinit(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fault),           cmocka_unit_test(faults_are_named),
        cmocka_unit_test(limits_of_machines), cmocka_unit_test(needs_of_the_run),
        cmocka_unit_test(needs_of_gpus),      cmocka_unit_test(what_a_machine_has),
        cmocka_unit_test(other_devices),      cmocka_unit_test(other_gpus),
        cmocka_unit_test(speeds_of_gpus),     cmocka_unit_test(rdma_without_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

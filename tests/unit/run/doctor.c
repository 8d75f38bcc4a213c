/* Verdicts of trimtab doctor over measurements that are made up: each fault is named with its rank, nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "run/doctor.h"

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
    assert_int_equal(report->check_count, 10);
    assert_int_equal(tt_doctor_count(report, TT_DOCTOR_OK), name == NULL ? 10 : 9);
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
        snprintf(report.ranks[r].device, sizeof report.ranks[r].device, "NVIDIA H200");
    }
    expect(&report, "limits", TT_DOCTOR_WARNS, "/dev/shm of rank 0 has 64.0 MiB");
    report = healthy();
    snprintf(report.ranks[2].device, sizeof report.ranks[2].device, "another processor, 8 threads");
    expect(&report, "devices", TT_DOCTOR_WARNS,
           "rank 2 on node-1 has another device than rank 0: another processor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fault),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(other_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

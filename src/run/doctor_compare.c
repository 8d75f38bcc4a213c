/* Verdicts about what the ranks have measured. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "base/number.h"
#include "run/doctor.h"

/* A rank or a link below this share of the median is named. */
static const double slow_rank = 0.9, slow_link = 0.5;
static const double clock_seconds_max = 1;
static const uint64_t shm_bytes_min = (uint64_t)1
                                      << 30; /* NCCL keeps its buffers there; pods have 64 MiB by default */
enum { FILE_LIMIT_MIN = 1024, NAMED_MAX = 8 };

static tt_status begin_check(struct tt_doctor_report *report, const char *name, struct tt_doctor_check **out)
{
    if (report->check_count == TT_DOCTOR_CHECKS_MAX) return tt_fail(TT_ERR_INTERNAL, "too many checks");
    struct tt_doctor_check *check = &report->checks[report->check_count++];
    *check = (struct tt_doctor_check){.name = name};
    *out = check;
    return TT_OK;
}

static void worsen(struct tt_doctor_check *check, enum tt_doctor_verdict verdict)
{
    if (verdict > check->verdict) check->verdict = verdict;
}

typedef double value_of(const struct tt_doctor_rank *rank);
static double flops_of(const struct tt_doctor_rank *rank)
{
    return rank->flops;
}
static double link_of(const struct tt_doctor_rank *rank)
{
    return rank->link_bytes;
}

/* Of the values above 0; 0: there are none. */
static tt_status median_of(const struct tt_doctor_report *report, value_of *value, double *median)
{
    double *values = tt_calloc((size_t)report->rank_count, sizeof *values);
    size_t count = 0;
    if (values == NULL) return TT_ERR_MEMORY;
    for (int r = 0; r < report->rank_count; r++)
        if (value(&report->ranks[r]) > 0) values[count++] = value(&report->ranks[r]);
    *median = tt_median(values, count);
    tt_free(values);
    return TT_OK;
}

static tt_status check_launch(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    int machines = 0;
    TT_TRY(begin_check(report, "launch", &check));
    for (int r = 0; r < report->rank_count; r++)
        if (report->ranks[r].machine >= machines) machines = report->ranks[r].machine + 1;
    return tt_str_printf(&check->text, "%d rank%s on %d machine%s over %s; rank 0 on %s: %s",
                         report->rank_count, report->rank_count == 1 ? "" : "s", machines,
                         machines == 1 ? "" : "s", report->transport, report->ranks[0].host,
                         report->ranks[0].device);
}

static tt_status check_devices(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    TT_TRY(begin_check(report, "devices", &check));
    for (int r = 1; r < report->rank_count; r++) {
        if (strcmp(report->ranks[r].device, report->ranks[0].device) == 0) continue;
        worsen(check, TT_DOCTOR_WARNS);
        return tt_str_printf(&check->text, "rank %d on %s has another device than rank 0: %s", r,
                             report->ranks[r].host, report->ranks[r].device);
    }
    return tt_str_append_text(&check->text, "the same on all ranks");
}

static tt_status check_limits(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    char memory[32], shm[32];
    bool is_gpu = false;
    TT_TRY(begin_check(report, "limits", &check));
    const struct tt_doctor_rank *least = &report->ranks[0];
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->memory_bytes < least->memory_bytes) least = rank;
        is_gpu |= strstr(rank->device, "threads") == NULL;
    }
    TT_TRY(tt_str_printf(&check->text, "%s%s of memory%s, %d processors, %llu open files, /dev/shm %s",
                         report->rank_count > 1 ? "at least " : "",
                         tt_format_bytes((double)least->memory_bytes, memory, sizeof memory),
                         least->grouped ? " (control group)" : "", least->processors,
                         (unsigned long long)least->file_limit,
                         tt_format_bytes((double)least->shm_bytes, shm, sizeof shm)));
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->file_limit < FILE_LIMIT_MIN) {
            worsen(check, TT_DOCTOR_WARNS);
            return tt_str_printf(&check->text, "; rank %d may open %llu files only: raise ulimit -n", r,
                                 (unsigned long long)rank->file_limit);
        }
        if (is_gpu && report->rank_count > 1 && rank->shm_bytes < shm_bytes_min) {
            worsen(check, TT_DOCTOR_WARNS);
            return tt_str_printf(
                &check->text,
                "; /dev/shm of rank %d has %s, too little for NCCL: mount a memory volume there", r,
                tt_format_bytes((double)rank->shm_bytes, shm, sizeof shm));
        }
    }
    return TT_OK;
}

static tt_status check_clocks(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    double most = 0;
    TT_TRY(begin_check(report, "clocks", &check));
    for (int r = 0; r < report->rank_count; r++) {
        double ahead = report->ranks[r].clock_seconds;
        if (fabs(ahead) > most) most = fabs(ahead);
        if (fabs(ahead) <= clock_seconds_max) continue;
        worsen(check, TT_DOCTOR_WARNS);
        return tt_str_printf(&check->text, "the clock of rank %d on %s is %.1f s %s that of rank 0", r,
                             report->ranks[r].host, fabs(ahead), ahead > 0 ? "ahead of" : "behind");
    }
    return tt_str_printf(&check->text, "within %.0f ms", most * 1e3 + 1);
}

static tt_status check_speed(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    double median;
    int named = 0;
    TT_TRY(begin_check(report, "speed", &check));
    TT_TRY(median_of(report, flops_of, &median));
    TT_TRY(tt_str_printf(&check->text, "products in bf16: median %.3g TFLOP/s a rank, all ranks at once",
                         median / 1e12));
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        double flops = report->ranks[r].flops;
        if (flops >= slow_rank * median) continue;
        worsen(check, TT_DOCTOR_WARNS);
        named++;
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s reaches %.3g, %.0f %% of it", r,
                             report->ranks[r].host, flops / 1e12, 100 * flops / median));
    }
    return TT_OK;
}

static tt_status check_collective(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    if (report->rank_count == 1) return TT_OK;
    TT_TRY(begin_check(report, "all-reduce", &check));
    if (!report->sum_is_right) {
        worsen(check, TT_DOCTOR_FAILS);
        return tt_str_append_text(&check->text,
                                  "the sum of known values is wrong: a link or a memory damages data");
    }
    return tt_str_printf(&check->text, "1 KiB in %.0f us, 16 MiB at %.3g GB/s (bus), the sum is right",
                         report->all_reduce_seconds * 1e6, report->all_reduce_bytes / 1e9);
}

static tt_status check_links(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    double median;
    int named = 0;
    if (report->rank_count == 1) return TT_OK;
    TT_TRY(begin_check(report, "links", &check));
    TT_TRY(median_of(report, link_of, &median));
    TT_TRY(tt_str_printf(&check->text, "each rank with the next: median %.3g GB/s each way", median / 1e9));
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        int next = (r + 1) % report->rank_count;
        if (rank->link_bytes <= 0 || rank->link_bytes >= slow_link * median) continue;
        worsen(check, TT_DOCTOR_WARNS);
        named++;
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s with rank %d on %s: %.3g GB/s", r, rank->host,
                             next, report->ranks[next].host, rank->link_bytes / 1e9));
    }
    return TT_OK;
}

static tt_status check_storage(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    char free_bytes[32];
    int blind = -1;
    const struct tt_doctor_rank *slowest = &report->ranks[0];
    TT_TRY(begin_check(report, "storage", &check));
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->storage_error[0] != 0) {
            worsen(check, TT_DOCTOR_FAILS);
            return tt_str_printf(&check->text, "rank %d on %s: %s", r, rank->host, rank->storage_error);
        }
        if (!rank->sees_rank0 && blind < 0) blind = r;
        if (rank->write_bytes > 0 && rank->write_bytes < slowest->write_bytes) slowest = rank;
    }
    TT_TRY(tt_str_printf(&check->text,
                         "written at %.3g MB/s (synchronized), read at %.3g MB/s on %s, %s free",
                         slowest->write_bytes / 1e6, slowest->read_bytes / 1e6, slowest->host,
                         tt_format_bytes((double)slowest->free_bytes, free_bytes, sizeof free_bytes)));
    if (blind >= 0) {
        worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(
            &check->text, "; rank %d on %s does not see rank 0's file: a training saves on rank 0's machine",
            blind, report->ranks[blind].host));
    }
    return TT_OK;
}

static tt_status check_inputs(const struct tt_job_spec *job, struct tt_doctor_report *report)
{
    const struct {
        const char *name, *path;
    } inputs[] = {{"model", job->model.model_name_or_path}, {"data", job->data.dataset_name}};
    for (int i = 0; i < 2; i++) {
        struct tt_doctor_check *check;
        int missing = -1, count = 0;
        if (inputs[i].path == NULL) continue;
        TT_TRY(begin_check(report, inputs[i].name, &check));
        for (int r = report->rank_count - 1; r >= 0; r--) {
            int has = i == 0 ? report->ranks[r].has_model : report->ranks[r].has_data;
            if (has != 0) continue;
            missing = r;
            count++;
        }
        if (count == 0) {
            TT_TRY(tt_str_printf(&check->text, "'%s' is readable on every rank", inputs[i].path));
            continue;
        }
        /* Other machines take what they have not from rank 0's (run/rank0_files.h). */
        worsen(check, missing == 0 ? TT_DOCTOR_FAILS : TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(&check->text,
                             "'%s' is missing or not readable on %d of %d ranks, first on rank %d (%s)%s",
                             inputs[i].path, count, report->rank_count, missing, report->ranks[missing].host,
                             missing == 0 ? "" : ": a training takes it from rank 0's machine"));
    }
    return TT_OK;
}

tt_status tt_doctor_compare(const struct tt_job_spec *job, struct tt_doctor_report *report)
{
    TT_TRY(check_launch(report));
    TT_TRY(check_devices(report));
    TT_TRY(check_limits(report));
    TT_TRY(check_clocks(report));
    TT_TRY(check_speed(report));
    TT_TRY(check_collective(report));
    TT_TRY(check_links(report));
    TT_TRY(check_storage(report));
    return check_inputs(job, report);
}

int tt_doctor_count(const struct tt_doctor_report *report, enum tt_doctor_verdict verdict)
{
    int count = 0;
    for (int i = 0; i < report->check_count; i++) count += report->checks[i].verdict == verdict;
    return count;
}

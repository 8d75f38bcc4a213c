/* Verdicts about GPUs: what their driver counts, and copies. */
#include <stdio.h>
#include <string.h>

#include "doctor/doctor_impl.h"

enum { NAMED_MAX = 8 };
/* A rank below these shares of the median, or of the chip's usual rate, is named. */
static const double slow_rank = 0.9, slow_chip = 0.7;
/* Memory in use before the rank opened the GPU: more is that of other programs. */
static const int64_t own_bytes_max = (int64_t)2 << 30;

struct fault {
    enum tt_doctor_verdict verdict;
    char text[240];
};

static void add_fault(struct fault *faults, int *count, enum tt_doctor_verdict verdict, const char *text)
{
    faults[*count].verdict = verdict;
    snprintf(faults[*count].text, sizeof faults->text, "%s", text);
    (*count)++;
}

static void find_memory_faults(const struct tt_gpu_health *gpu, struct fault *faults, int *count)
{
    char text[240], used[32];
    if (gpu->uncorrected > 0) {
        snprintf(text, sizeof text, "%lld uncorrected ECC errors of its memory", (long long)gpu->uncorrected);
        add_fault(faults, count, TT_DOCTOR_FAILS, text);
    }
    if (gpu->remap_failed > 0)
        add_fault(faults, count, TT_DOCTOR_FAILS, "a broken row of its memory that could not be replaced");
    if (gpu->remap_pending > 0)
        add_fault(faults, count, TT_DOCTOR_WARNS, "rows of its memory that are replaced at its next reset");
    if (gpu->ecc == 0) add_fault(faults, count, TT_DOCTOR_WARNS, "ECC is off");
    if (gpu->persistence == 0)
        add_fault(faults, count, TT_DOCTOR_WARNS,
                  "persistence mode is off, so the driver loads it anew for each run (nvidia-smi -pm 1)");
    if (gpu->used_bytes > own_bytes_max) {
        snprintf(text, sizeof text, "%s of its memory are in use by other programs",
                 tt_format_bytes((double)gpu->used_bytes, used, sizeof used));
        add_fault(faults, count, TT_DOCTOR_WARNS, text);
    }
}

static void find_slowdown(const struct tt_gpu_health *gpu, struct fault *faults, int *count)
{
    static const struct {
        int64_t reason;
        const char *text;
    } slow[] = {
        {TT_GPU_SLOW_HARDWARE_HEAT, "clocks lowered by the hardware, because of heat"},
        {TT_GPU_SLOW_HEAT, "clocks lowered by the driver, because of heat"},
        {TT_GPU_SLOW_HARDWARE_POWER, "clocks lowered because the power supply asks for it"},
        {TT_GPU_SLOW_HARDWARE, "clocks lowered by the hardware"},
    };
    for (size_t i = 0; gpu->slow_reasons > 0 && i < sizeof slow / sizeof *slow; i++) {
        if ((gpu->slow_reasons & slow[i].reason) == 0) continue;
        add_fault(faults, count, TT_DOCTOR_WARNS, slow[i].text);
        return;
    }
}

/* PCIe rests at a low generation: only that under load counts. */
static void find_link_faults(const struct tt_doctor_rank *rank, struct fault *faults, int *count)
{
    const struct tt_gpu_health *gpu = &rank->gpu;
    char text[240];
    if (gpu->pcie_width > 0 && gpu->pcie_width < gpu->pcie_width_max) {
        snprintf(text, sizeof text, "PCIe with %d of %d lanes", gpu->pcie_width, gpu->pcie_width_max);
        add_fault(faults, count, TT_DOCTOR_WARNS, text);
    }
    if (rank->under_load && gpu->pcie_generation > 0 && gpu->pcie_generation < gpu->pcie_generation_max) {
        snprintf(text, sizeof text, "PCIe at generation %d of %d under load", gpu->pcie_generation,
                 gpu->pcie_generation_max);
        add_fault(faults, count, TT_DOCTOR_WARNS, text);
    }
    if (gpu->nvlinks_down > 0 && gpu->nvlinks_down < gpu->nvlinks) {
        snprintf(text, sizeof text, "%d of %d NVLinks are down", gpu->nvlinks_down, gpu->nvlinks);
        add_fault(faults, count, TT_DOCTOR_WARNS, text);
    }
    if (gpu->nvlink_errors > 0) {
        snprintf(text, sizeof text, "%lld transfers over NVLink were repeated or recovered",
                 (long long)gpu->nvlink_errors);
        add_fault(faults, count, TT_DOCTOR_WARNS, text);
    }
}

static tt_status describe_first(const struct tt_doctor_rank *rank, struct tt_doctor_check *check)
{
    const struct tt_gpu_health *gpu = &rank->gpu;
    if (!gpu->known) return tt_str_append_text(&check->text, "no NVML: the driver's counters are not read");
    TT_TRY(tt_str_printf(&check->text, "driver %s", gpu->driver));
    if (gpu->pcie_width > 0)
        TT_TRY(tt_str_printf(&check->text, ", PCIe %d x%d", gpu->pcie_generation_max, gpu->pcie_width));
    if (gpu->nvlinks > gpu->nvlinks_down)
        TT_TRY(tt_str_printf(&check->text, ", %d NVLinks", gpu->nvlinks - gpu->nvlinks_down));
    if (gpu->mig > 0) TT_TRY(tt_str_append_text(&check->text, ", MIG"));
    return TT_OK;
}

tt_status tt_doctor_check_gpus(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check = NULL;
    int named = 0;
    for (int r = 0; r < report->rank_count; r++) {
        struct fault faults[16];
        int count = 0;
        const struct tt_doctor_rank *rank = &report->ranks[r], *first = &report->ranks[0];
        if (!rank->is_gpu) continue;
        if (check == NULL) {
            TT_TRY(tt_doctor_begin_check(report, "gpus", &check));
            TT_TRY(describe_first(rank, check));
        }
        if (!rank->gpu.known) continue;
        find_memory_faults(&rank->gpu, faults, &count);
        find_slowdown(&rank->gpu, faults, &count);
        find_link_faults(rank, faults, &count);
        if (first->gpu.known && strcmp(first->gpu.driver, rank->gpu.driver) != 0)
            add_fault(faults, &count, TT_DOCTOR_WARNS, "another driver than rank 0");
        for (int i = 0; i < count; i++) {
            tt_doctor_worsen(check, faults[i].verdict);
            if (named++ < NAMED_MAX)
                TT_TRY(tt_str_printf(&check->text, "; rank %d on %s: %s", r, rank->host, faults[i].text));
        }
    }
    return TT_OK;
}

/* ---- Copies ---- */

static double to_device(const struct tt_doctor_rank *rank)
{
    return rank->to_device_bytes;
}
static double to_host(const struct tt_doctor_rank *rank)
{
    return rank->to_host_bytes;
}
static double on_device(const struct tt_doctor_rank *rank)
{
    return rank->on_device_bytes;
}
static double usual_host(const struct tt_doctor_rank *rank)
{
    return rank->expected_host_bytes;
}
static double usual_memory(const struct tt_doctor_rank *rank)
{
    return rank->expected_memory_bytes;
}

tt_status tt_doctor_check_copies(struct tt_doctor_report *report)
{
    static const struct {
        const char *name;
        tt_doctor_value *rate, *usual;
    } ways[] = {{"to the device", to_device, usual_host},
                {"to the host", to_host, usual_host},
                {"on the device (read and written)", on_device, usual_memory}};
    struct tt_doctor_check *check;
    bool any = false;
    int named = 0;
    if (report->quick) return TT_OK;
    for (int r = 0; r < report->rank_count; r++) any |= report->ranks[r].is_gpu != 0;
    TT_TRY(tt_doctor_begin_check(report, "copies", &check));
    if (!any)
        return tt_str_append_text(&check->text,
                                  "not applicable: the ranks compute in the memory of the host");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double median;
        TT_TRY(tt_doctor_median(report, ways[i].rate, &median));
        TT_TRY(tt_str_printf(&check->text, "%smedian %s GB/s %s", i > 0 ? "; " : "",
                             tt_rounded(median / 1e9).text, ways[i].name));
        for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
            const struct tt_doctor_rank *rank = &report->ranks[r];
            double rate = ways[i].rate(rank), usual = ways[i].usual(rank);
            bool of_chip = rate < slow_chip * usual;
            if (!rank->is_gpu || (!of_chip && rate >= slow_rank * median)) continue;
            tt_doctor_worsen(check, TT_DOCTOR_WARNS);
            named++;
            TT_TRY(tt_str_printf(&check->text, "; rank %d on %s: %s GB/s, %.0f %% of %s", r, rank->host,
                                 tt_rounded(rate / 1e9).text, 100 * rate / (of_chip ? usual : median),
                                 of_chip ? "what is usual for its chip" : "it"));
        }
    }
    return TT_OK;
}

tt_status tt_doctor_check_reading(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    int readers = 0, named = 0;
    for (int r = 0; r < report->rank_count; r++) readers += report->ranks[r].other_processes > 0;
    if (readers == 0) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, "memory of others", &check));
    TT_TRY(
        tt_str_printf(&check->text, "%d ranks read the GPUs of other processes of their machine", readers));
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->reading_error[0] == 0) continue;
        if (named++ == 0) {
            tt_doctor_worsen(check, TT_DOCTOR_WARNS);
            tt_str_deinit(&check->text);
            TT_TRY(tt_str_printf(&check->text,
                                 "NCCL gathers the weights, because GPUs of other processes cannot be read"));
        }
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s: %s", r, rank->host, rank->reading_error));
    }
    return TT_OK;
}

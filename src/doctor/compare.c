/* Verdicts on the measurements of all ranks. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "doctor/doctor_impl.h"

/* A rank or a link below this share of the median is named. */
static const double slow_rank = 0.9, slow_link = 0.5;
/* So is one below this share of the rate that programs reach on its chip (backend/chips.c). */
static const double slow_chip = 0.7;
static const double clock_seconds_max = 1;
/* NCCL keeps its buffers in /dev/shm, and so does MPI; pods have 64 MiB by default. */
static const uint64_t shm_bytes_gpu = (uint64_t)1 << 30, shm_bytes_cpu = (uint64_t)64 << 20;
static const uint64_t locked_bytes_min = (uint64_t)64 << 20; /* RDMA registers memory */
enum { FILE_LIMIT_MIN = 1024, PROCESS_LIMIT_MIN = 256, NAMED_MAX = 8 };

tt_status tt_doctor_begin_check(struct tt_doctor_report *report, const char *name,
                                struct tt_doctor_check **out)
{
    if (report->check_count == TT_DOCTOR_CHECKS_MAX) return tt_fail(TT_ERR_INTERNAL, "too many checks");
    struct tt_doctor_check *check = &report->checks[report->check_count++];
    *check = (struct tt_doctor_check){.name = name};
    *out = check;
    return TT_OK;
}

void tt_doctor_worsen(struct tt_doctor_check *check, enum tt_doctor_verdict verdict)
{
    if (verdict > check->verdict) check->verdict = verdict;
}

static double flops_of(const struct tt_doctor_rank *rank)
{
    return rank->flops;
}

tt_status tt_doctor_median(const struct tt_doctor_report *report, tt_doctor_value *value, double *median)
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
    TT_TRY(tt_doctor_begin_check(report, "launch", &check));
    for (int r = 0; r < report->rank_count; r++)
        if (report->ranks[r].machine >= machines) machines = report->ranks[r].machine + 1;
    return tt_str_printf(&check->text, "%d rank%s on %d machine%s over %s; rank 0 on %s: %s",
                         report->rank_count, report->rank_count == 1 ? "" : "s", machines,
                         machines == 1 ? "" : "s", report->transport, report->ranks[0].host,
                         report->ranks[0].device);
}

/* The name of a rank's device without the number that it has on its machine: "cuda:1 (NVIDIA H200)". */
static const char *model_of(const struct tt_doctor_rank *rank)
{
    const char *model = strncmp(rank->device, "cuda:", 5) == 0 ? strchr(rank->device, ' ') : NULL;
    return model != NULL ? model : rank->device;
}

static tt_status check_devices(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    TT_TRY(tt_doctor_begin_check(report, "devices", &check));
    for (int r = 1; r < report->rank_count; r++) {
        if (strcmp(model_of(&report->ranks[r]), model_of(&report->ranks[0])) == 0) continue;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        return tt_str_printf(&check->text, "rank %d on %s has another device than rank 0: %s", r,
                             report->ranks[r].host, report->ranks[r].device);
    }
    return tt_str_append_text(&check->text, "the same on all ranks");
}

/* Limits that a run meets later, and then with another error. */
static tt_status check_rank_limits(struct tt_doctor_check *check, int r, const struct tt_doctor_rank *rank,
                                   bool is_gpu, bool alone)
{
    char size[32];
    uint64_t shm_min = is_gpu ? shm_bytes_gpu : shm_bytes_cpu;
    if (rank->file_limit < FILE_LIMIT_MIN) {
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(&check->text, "; rank %d may open %llu files only: raise ulimit -n", r,
                             (unsigned long long)rank->file_limit));
    }
    if (rank->process_limit > 0 && rank->process_limit < PROCESS_LIMIT_MIN) {
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(&check->text, "; rank %d may have %llu threads only (pids.max)", r,
                             (unsigned long long)rank->process_limit));
    }
    if (!alone && rank->shm_bytes < shm_min) {
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(
            &check->text, "; /dev/shm of rank %d has %s, too little for %s: mount a memory volume there", r,
            tt_format_bytes((double)rank->shm_bytes, size, sizeof size), is_gpu ? "NCCL" : "MPI"));
    }
    if (rank->rdma_active > 0 && rank->locked_limit < locked_bytes_min) {
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(&check->text, "; rank %d may lock %s of memory only: RDMA fails (ulimit -l)", r,
                             tt_format_bytes((double)rank->locked_limit, size, sizeof size)));
    }
    return TT_OK;
}

static tt_status check_limits(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    char memory[32], shm[32];
    bool is_gpu = false;
    TT_TRY(tt_doctor_begin_check(report, "limits", &check));
    const struct tt_doctor_rank *least = &report->ranks[0];
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->memory_bytes < least->memory_bytes) least = rank;
        is_gpu |= rank->is_gpu != 0;
    }
    TT_TRY(tt_str_printf(&check->text, "%s%s of memory%s, %d processors, %llu open files, /dev/shm %s",
                         report->rank_count > 1 ? "at least " : "",
                         tt_format_bytes((double)least->memory_bytes, memory, sizeof memory),
                         least->grouped ? " (control group)" : "", least->processors,
                         (unsigned long long)least->file_limit,
                         tt_format_bytes((double)least->shm_bytes, shm, sizeof shm)));
    for (int r = 0; r < report->rank_count && check->verdict == TT_DOCTOR_OK; r++)
        TT_TRY(check_rank_limits(check, r, &report->ranks[r], is_gpu, report->rank_count == 1));
    return TT_OK;
}

/* The names that lead to another machine. */
static tt_status check_names(const struct tt_doctor_report *report, struct tt_doctor_check *check)
{
    int found = 0, right = 0, named = 0;
    for (int r = 0; r < report->rank_count; r++) {
        found += report->ranks[r].peer_address[0] != '\0';
        right += report->ranks[r].peer_is_right;
    }
    if (found == 0) return TT_OK;
    TT_TRY(tt_str_printf(&check->text, "; %d of %d names of machines lead to them", right, found));
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->peer_address[0] == '\0' || rank->peer_is_right || named++ >= NAMED_MAX) continue;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(
            &check->text,
            "; rank %d on %s: '%s', the name of rank %d's machine, is %s, which that machine does not have",
            r, rank->host, rank->peer, (int)rank->peer_rank, rank->peer_address));
    }
    return TT_OK;
}

/* The interfaces towards rank 0. Packets larger than the smallest MTU between two machines may be lost on the way. */
static tt_status check_network(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    const struct tt_doctor_rank *first = NULL;
    int first_rank = 0, active = 0, ports = 0, named = 0;
    if (report->rank_count == 1) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, "network", &check));
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        active += rank->rdma_active;
        ports += rank->rdma_ports;
        if (rank->interface[0] == 0) continue;
        if (first == NULL) {
            first = rank;
            first_rank = r;
            TT_TRY(tt_str_printf(&check->text, "to rank 0 by %s (MTU %d)", rank->interface, (int)rank->mtu));
        } else if (rank->mtu != first->mtu && named++ < NAMED_MAX) {
            tt_doctor_worsen(check, TT_DOCTOR_WARNS);
            TT_TRY(tt_str_printf(&check->text, "; rank %d on %s by %s has an MTU of %d, rank %d of %d", r,
                                 rank->host, rank->interface, (int)rank->mtu, first_rank, (int)first->mtu));
        }
    }
    if (first == NULL) TT_TRY(tt_str_append_text(&check->text, "the ranks need none"));
    TT_TRY(check_names(report, check));
    if (ports == 0) return tt_str_append_text(&check->text, "; no RDMA");
    TT_TRY(tt_str_printf(&check->text, "; RDMA: %d of %d ports active", active, ports));
    for (int r = 0; r < report->rank_count && active < ports; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->rdma_active == rank->rdma_ports) continue;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        return tt_str_printf(&check->text, "; rank %d on %s: %s", r, rank->host, rank->rdma);
    }
    return TT_OK;
}

/* Memory that the devices register: where they cannot, NCCL and MPI use TCP, or end in an error of their own. */
static tt_status check_rdma(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    int devices = 0, registered = 0, ports = 0, without = -1, named = 0;
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        ports += rank->rdma_ports;
        if (rank->rdma_devices > 0) devices += rank->rdma_devices;
        registered += rank->rdma_registered;
        if (rank->rdma_ports > 0 && rank->rdma_devices <= 0 && without < 0) without = r;
    }
    if (ports + devices == 0) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, "rdma", &check));
    TT_TRY(tt_str_printf(&check->text, "%d of %d devices register 64 MiB of memory", registered, devices));
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->rdma_error[0] == 0) continue;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        named++;
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s: %s", r, rank->host, rank->rdma_error));
    }
    TT_TRY(tt_doctor_check_gids(report, check));
    if (without < 0) return TT_OK;
    const struct tt_doctor_rank *rank = &report->ranks[without];
    if (rank->rdma_devices == 0) tt_doctor_worsen(check, TT_DOCTOR_WARNS);
    return tt_str_printf(&check->text, "; rank %d on %s: %s", without, rank->host,
                         rank->rdma_devices < 0 ? "not tried, there is no libibverbs"
                                                : "libibverbs sees none of its ports (/dev/infiniband)");
}

/* Memory of the GPUs against the plan: their total, and the part that other programs leave free. */
static tt_status check_device_needs(const struct tt_doctor_report *report, struct tt_doctor_check *check)
{
    char have[32];
    const int64_t need = (int64_t)report->needs.device_bytes;
    int named = 0;
    for (int r = 0; need > 0 && r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        const struct tt_gpu_health *gpu = &rank->gpu;
        if (!gpu->known || gpu->total_bytes <= 0 || need <= gpu->total_bytes - gpu->used_bytes) continue;
        bool never = need > gpu->total_bytes;
        tt_doctor_worsen(check, never ? TT_DOCTOR_FAILS : TT_DOCTOR_WARNS);
        named++;
        TT_TRY(tt_str_printf(
            &check->text, "; rank %d on %s: its GPU has %s%s", r, rank->host,
            tt_format_bytes((double)(never ? gpu->total_bytes : gpu->total_bytes - gpu->used_bytes), have,
                            sizeof have),
            never ? "" : " that no other program uses"));
    }
    return TT_OK;
}

/* Memory of the machines against the plan, and the time of a save against the grace period. */
static tt_status check_machine_needs(const struct tt_doctor_report *report, struct tt_doctor_check *check)
{
    const struct tt_doctor_needs *needs = &report->needs;
    char have[32];
    double rate = 0;
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        int here = 0;
        for (int q = 0; q < report->rank_count; q++) here += report->ranks[q].machine == rank->machine;
        if (rank->write_bytes > 0 && (rate == 0 || rank->write_bytes < rate)) rate = rank->write_bytes;
        if (rank->memory_bytes == 0 || (double)here * (double)needs->rank_bytes <= (double)rank->memory_bytes)
            continue;
        tt_doctor_worsen(check, TT_DOCTOR_FAILS);
        return tt_str_printf(&check->text, "; %d rank%s on %s: the machine has %s", here,
                             here == 1 ? "" : "s", rank->host,
                             tt_format_bytes((double)rank->memory_bytes, have, sizeof have));
    }
    if (rate <= 0) return TT_OK;
    double seconds = (double)needs->checkpoint_bytes / rate;
    TT_TRY(tt_str_printf(&check->text, ", which takes %.1f s to write", seconds));
    if (needs->grace_seconds == 0 || seconds <= (double)needs->grace_seconds) return TT_OK;
    tt_doctor_worsen(check, TT_DOCTOR_WARNS);
    return tt_str_printf(&check->text, ": longer than grace_seconds, %lld", (long long)needs->grace_seconds);
}

static tt_status check_plan(struct tt_doctor_report *report)
{
    const struct tt_doctor_needs *needs = &report->needs;
    struct tt_doctor_check *check;
    char bytes[32], checkpoint[32];
    if (!needs->known && needs->why[0] == 0) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, "plan", &check));
    if (!needs->known) return tt_str_printf(&check->text, "there is none: %s", needs->why);
    if (needs->device_bytes > 0)
        TT_TRY(tt_str_printf(&check->text, "%s of a GPU's memory, ",
                             tt_format_bytes((double)needs->device_bytes, bytes, sizeof bytes)));
    TT_TRY(tt_str_printf(&check->text, "%s of memory a rank, a checkpoint at most %s",
                         tt_format_bytes((double)needs->rank_bytes, bytes, sizeof bytes),
                         tt_format_bytes((double)needs->checkpoint_bytes, checkpoint, sizeof checkpoint)));
    TT_TRY(check_machine_needs(report, check));
    return check_device_needs(report, check);
}

static tt_status check_clocks(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    double most = 0;
    TT_TRY(tt_doctor_begin_check(report, "clocks", &check));
    for (int r = 0; r < report->rank_count; r++) {
        double ahead = report->ranks[r].clock_seconds;
        if (fabs(ahead) > most) most = fabs(ahead);
        if (fabs(ahead) <= clock_seconds_max) continue;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
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
    if (report->quick) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, "speed", &check));
    TT_TRY(tt_doctor_median(report, flops_of, &median));
    TT_TRY(tt_str_printf(&check->text, "products in bf16: median %s TFLOP/s a rank, all ranks at once",
                         tt_rounded(median / 1e12).text));
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        double flops = report->ranks[r].flops, expected = report->ranks[r].expected_flops;
        if (flops < slow_chip * expected) {
            tt_doctor_worsen(check, TT_DOCTOR_WARNS);
            named++;
            TT_TRY(tt_str_printf(&check->text, "; rank %d on %s reaches %s of the %s usual for its chip", r,
                                 report->ranks[r].host, tt_rounded(flops / 1e12).text,
                                 tt_rounded(expected / 1e12).text));
            continue;
        }
        if (flops >= slow_rank * median) continue;
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        named++;
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s reaches %s, %.0f %% of it", r,
                             report->ranks[r].host, tt_rounded(flops / 1e12).text, 100 * flops / median));
    }
    return TT_OK;
}

static tt_status check_collective(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    if (report->rank_count == 1) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, report->quick ? "exchange" : "all-reduce", &check));
    if (report->sum_is_right && report->quick)
        return tt_str_printf(&check->text, "known bytes of all ranks are right, in %.1f ms",
                             report->all_reduce_seconds * 1e3);
    if (!report->sum_is_right) {
        tt_doctor_worsen(check, TT_DOCTOR_FAILS);
        return tt_str_append_text(&check->text,
                                  "the sum of known values is wrong: a link or a memory damages data");
    }
    char size[32];
    return tt_str_printf(&check->text, "1 KiB in %.0f us, %s at %s GB/s (bus), the sum is right",
                         report->all_reduce_seconds * 1e6,
                         tt_format_bytes((double)report->bus_bytes, size, sizeof size),
                         tt_rounded(report->all_reduce_bytes / 1e9).text);
}

/* The link of rank `r` with the next one. */
static bool is_between(const struct tt_doctor_report *report, int r)
{
    return report->ranks[r].machine != report->ranks[(r + 1) % report->rank_count].machine;
}

/* Links inside a machine are compared with each other, and those between machines are. */
static tt_status compare_links(struct tt_doctor_report *report, bool between, struct tt_doctor_check *check)
{
    double *rates = tt_calloc((size_t)report->rank_count, sizeof *rates);
    size_t count = 0;
    int named = 0;
    if (rates == NULL) return TT_ERR_MEMORY;
    for (int r = 0; r < report->rank_count; r++)
        if (report->ranks[r].link_bytes > 0 && is_between(report, r) == between)
            rates[count++] = report->ranks[r].link_bytes;
    double median = count > 0 ? tt_median(rates, count) : 0;
    tt_free(rates);
    if (count == 0) return TT_OK;
    TT_TRY(tt_str_printf(&check->text, "%s%s: median %s GB/s each way", check->text.bytes > 0 ? "; " : "",
                         between ? "between machines" : "inside a machine", tt_rounded(median / 1e9).text));
    for (int r = 0; r < report->rank_count && named < NAMED_MAX; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r], *next;
        if (rank->link_bytes <= 0 || is_between(report, r) != between) continue;
        if (rank->link_bytes >= slow_link * median) continue;
        next = &report->ranks[(r + 1) % report->rank_count];
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        named++;
        TT_TRY(tt_str_printf(&check->text, "; rank %d on %s with rank %d on %s: %s GB/s", r, rank->host,
                             (r + 1) % report->rank_count, next->host,
                             tt_rounded(rank->link_bytes / 1e9).text));
    }
    return TT_OK;
}

static tt_status check_links(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    if (report->rank_count == 1 || report->quick) return TT_OK;
    TT_TRY(tt_doctor_begin_check(report, "links", &check));
    TT_TRY(compare_links(report, false, check));
    return compare_links(report, true, check);
}

static tt_status check_storage(struct tt_doctor_report *report)
{
    struct tt_doctor_check *check;
    char free_bytes[32], size[32];
    int blind = -1;
    const struct tt_doctor_rank *slowest = &report->ranks[0];
    TT_TRY(tt_doctor_begin_check(report, "storage", &check));
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->storage_error[0] != 0) {
            tt_doctor_worsen(check, TT_DOCTOR_FAILS);
            return tt_str_printf(&check->text, "rank %d on %s: %s", r, rank->host, rank->storage_error);
        }
        if (!rank->sees_rank0 && blind < 0) blind = r;
        if (rank->write_bytes > 0 && rank->write_bytes < slowest->write_bytes) slowest = rank;
    }
    TT_TRY(tt_str_printf(&check->text, "%s written at %s MB/s (synchronized), read at %s MB/s on %s, %s free",
                         tt_format_bytes((double)slowest->file_bytes, size, sizeof size),
                         tt_rounded(slowest->write_bytes / 1e6).text,
                         tt_rounded(slowest->read_bytes / 1e6).text, slowest->host,
                         tt_format_bytes((double)slowest->free_bytes, free_bytes, sizeof free_bytes)));
    double needed = (double)report->needs.kept * (double)report->needs.checkpoint_bytes;
    for (int r = 0; r < report->rank_count; r++) {
        const struct tt_doctor_rank *rank = &report->ranks[r];
        if (rank->local_rank > 0 || !rank->sees_rank0 || needed <= (double)rank->free_bytes) continue;
        tt_doctor_worsen(check, TT_DOCTOR_FAILS);
        return tt_str_printf(&check->text, "; %lld checkpoints need %s, rank %d on %s has less",
                             (long long)report->needs.kept,
                             tt_format_bytes(needed, free_bytes, sizeof free_bytes), r, rank->host);
    }
    if (blind >= 0) {
        tt_doctor_worsen(check, TT_DOCTOR_WARNS);
        TT_TRY(tt_str_printf(
            &check->text, "; rank %d on %s does not see rank 0's file: a training saves on rank 0's machine",
            blind, report->ranks[blind].host));
    }
    return TT_OK;
}

/* The first rank whose files have another sum than rank 0's; 0: there is none. */
static int find_other(const struct tt_doctor_report *report, bool model)
{
    for (int r = 1; r < report->rank_count; r++) {
        uint64_t own = model ? report->ranks[r].model_sum : report->ranks[r].data_sum,
                 first = model ? report->ranks[0].model_sum : report->ranks[0].data_sum;
        if (own != 0 && first != 0 && own != first) return r;
    }
    return 0;
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
        TT_TRY(tt_doctor_begin_check(report, inputs[i].name, &check));
        for (int r = report->rank_count - 1; r >= 0; r--) {
            int has = i == 0 ? report->ranks[r].has_model : report->ranks[r].has_data;
            if (has != 0) continue;
            missing = r;
            count++;
        }
        int other = find_other(report, i == 0);
        if (other > 0) {
            tt_doctor_worsen(check, TT_DOCTOR_FAILS);
            TT_TRY(tt_str_printf(&check->text, "'%s' of rank %d on %s has other files than that of rank 0",
                                 inputs[i].path, other, report->ranks[other].host));
            continue;
        }
        if (count == 0) {
            TT_TRY(tt_str_printf(&check->text, "'%s' is readable on every rank", inputs[i].path));
            continue;
        }
        /* Other machines get missing files from rank 0's machine (run/rank0_files.h). */
        tt_doctor_worsen(check, missing == 0 ? TT_DOCTOR_FAILS : TT_DOCTOR_WARNS);
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
    TT_TRY(tt_doctor_check_gpus(report));
    TT_TRY(check_network(report));
    TT_TRY(check_rdma(report));
    TT_TRY(check_clocks(report));
    TT_TRY(check_speed(report));
    TT_TRY(tt_doctor_check_copies(report));
    TT_TRY(tt_doctor_check_reading(report));
    TT_TRY(check_collective(report));
    TT_TRY(check_links(report));
    TT_TRY(check_storage(report));
    TT_TRY(check_plan(report));
    return check_inputs(job, report);
}

int tt_doctor_count(const struct tt_doctor_report *report, enum tt_doctor_verdict verdict)
{
    int count = 0;
    for (int i = 0; i < report->check_count; i++) count += report->checks[i].verdict == verdict;
    return count;
}

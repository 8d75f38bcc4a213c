#include <stddef.h>

#include "cli/job_call.h"
#include "doctor/doctor.h"

#define FIELD(member) .offset = offsetof(struct doctor_command, member)

struct doctor_command {
    struct tt_job_spec job; /* must be first: the offsets of its settings apply here */
    struct tt_job_call call;
    bool json;
};

/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "json", .type = TT_SETTING_BOOL, FIELD(json), .default_text = "false", .transient = true,
     .help = "Print the result as one JSON object."},
    {.name = NULL},
};
/* clang-format on */

enum { TEXT_COLUMN = 11 + 1 + 8 + 1 };
static const char *const verdicts[] = {
    [TT_DOCTOR_OK] = "ok", [TT_DOCTOR_WARNS] = "warning", [TT_DOCTOR_FAILS] = "FAILED"};

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_job_call_sections(TT_JOB_TRAIN, own_settings, offsetof(struct doctor_command, call), sections);
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    struct doctor_command *command = target;
    TT_TRY(tt_job_call_read(&command->call, settings));
    return tt_doctor_resolve(settings, &command->job);
}

static tt_status print_table(struct tt_cli *cli, const struct tt_doctor_report *report)
{
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (int i = 0; i < report->check_count && status == TT_OK; i++)
        status = tt_str_printf(&text, "%-11s %-8s %s\n", report->checks[i].name,
                               verdicts[report->checks[i].verdict], tt_str_text(&report->checks[i].text));
    if (status == TT_OK)
        status = tt_str_printf(&text, "%d checks in %.1f s: %d failed, %d warned\n", report->check_count,
                               report->seconds, tt_doctor_count(report, TT_DOCTOR_FAILS),
                               tt_doctor_count(report, TT_DOCTOR_WARNS));
    if (status == TT_OK) status = tt_report_print_wrapped(cli->report, tt_str_text(&text), TEXT_COLUMN);
    tt_str_deinit(&text);
    return status;
}

/* -1: the driver does not tell. */
static struct tt_json_value *gpu_object(const struct tt_doctor_rank *rank)
{
    const struct tt_gpu_health *gpu = &rank->gpu;
    struct tt_json_value *object = tt_json_pack(
        "{s:f,s:f,s:f}", "to_device_bytes_per_second", rank->to_device_bytes, "to_host_bytes_per_second",
        rank->to_host_bytes, "on_device_bytes_per_second", rank->on_device_bytes);
    if (object == NULL || !gpu->known) return object;
    struct tt_json_value *health = tt_json_pack(
        "{s:s,s:i,s:I,s:I,s:i,s:i,s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:i,s:i,s:I,s:I}", "driver", gpu->driver,
        "ecc", (int)gpu->ecc, "ecc_uncorrected", gpu->uncorrected, "ecc_corrected", gpu->corrected,
        "replacement_pending", (int)gpu->remap_pending, "replacement_failed", (int)gpu->remap_failed,
        "slow_reasons", gpu->slow_reasons, "pcie_generation", (int)gpu->pcie_generation,
        "pcie_generation_max", (int)gpu->pcie_generation_max, "pcie_width", (int)gpu->pcie_width,
        "pcie_width_max", (int)gpu->pcie_width_max, "nvlinks", (int)gpu->nvlinks, "nvlinks_down",
        (int)gpu->nvlinks_down, "nvlink_errors", gpu->nvlink_errors, "mig", (int)gpu->mig, "persistence",
        (int)gpu->persistence, "used_bytes", gpu->used_bytes, "total_bytes", gpu->total_bytes);
    if (health != NULL) (void)tt_json_update(object, health);
    tt_json_release(health);
    return object;
}

static struct tt_json_value *rank_object(const struct tt_doctor_rank *rank)
{
    struct tt_json_value *object =
        tt_json_pack("{s:s,s:s,s:i,s:i,s:i,s:I,s:I,s:b,s:I,s:I,s:I}", "host", rank->host, "device",
                     rank->device, "machine", (int)rank->machine, "local_rank", (int)rank->local_rank,
                     "processors", (int)rank->processors, "memory_bytes", (int64_t)rank->memory_bytes,
                     "shm_bytes", (int64_t)rank->shm_bytes, "shm_is_memory", (int)rank->shm_is_memory,
                     "open_files", (int64_t)rank->file_limit, "locked_bytes",
                     rank->locked_limit > INT64_MAX ? (int64_t)-1 : (int64_t)rank->locked_limit, "processes",
                     (int64_t)rank->process_limit);
    struct tt_json_value *measured =
        tt_json_pack("{s:s,s:i,s:s,s:i,s:i,s:f,s:f,s:f,s:I,s:f,s:f,s:I,s:b}", "interface", rank->interface,
                     "mtu", (int)rank->mtu, "rdma", rank->rdma, "rdma_ports", (int)rank->rdma_ports,
                     "rdma_active", (int)rank->rdma_active, "clock_seconds", rank->clock_seconds, "flops",
                     rank->flops, "link_bytes_per_second", rank->link_bytes, "file_bytes", rank->file_bytes,
                     "write_bytes_per_second", rank->write_bytes, "read_bytes_per_second", rank->read_bytes,
                     "free_bytes", (int64_t)rank->free_bytes, "sees_output_of_rank_0", (int)rank->sees_rank0);
    tt_json_update(object, measured);
    tt_json_release(measured);
    if (rank->peer[0] != '\0')
        tt_json_set(object, "looked_up",
                    tt_json_pack("{s:s,s:i,s:s,s:b}", "name", rank->peer, "rank", (int)rank->peer_rank,
                                 "address", rank->peer_address, "right", (int)rank->peer_is_right));
    if (rank->rdma_devices >= 0)
        tt_json_set(object, "rdma_registered", tt_json_new_integer(rank->rdma_registered));
    if (rank->roce_ports > 0) {
        tt_json_set(object, "roce_v2_gids", tt_json_new_string(rank->gids));
        tt_json_set(object, "nccl_ib_gid_index", tt_json_new_string(rank->gid_set));
    }
    if (rank->is_gpu) tt_json_set(object, "gpu", gpu_object(rank));
    return object;
}

static tt_status print_json(struct tt_cli *cli, const struct tt_doctor_report *report)
{
    struct tt_json_value *checks = tt_json_new_list(), *ranks = tt_json_new_list();
    for (int i = 0; i < report->check_count; i++)
        tt_json_append(checks, tt_json_pack("{s:s,s:s,s:s}", "name", report->checks[i].name, "result",
                                            verdicts[report->checks[i].verdict], "text",
                                            tt_str_text(&report->checks[i].text)));
    for (int r = 0; r < report->rank_count; r++) tt_json_append(ranks, rank_object(&report->ranks[r]));
    struct tt_json_value *object = tt_json_pack(
        "{s:f,s:s,s:f,s:I,s:f,s:o,s:o}", "seconds", report->seconds, "transport", report->transport,
        "all_reduce_seconds", report->all_reduce_seconds, "all_reduce_bytes", (int64_t)report->bus_bytes,
        "all_reduce_bytes_per_second", report->all_reduce_bytes, "checks", checks, "ranks", ranks);
    return tt_report_print_json(cli->report, object, 2);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct doctor_command *command = call->target;
    struct tt_doctor_report report = {0};
    tt_status status = TT_OK;
    if (command->call.print_config) return tt_job_call_print(cli, call->settings);
    TT_GO(tt_doctor_run(&command->job, cli->cancel, &report));
    if (report.rank_count == 0) goto out; /* only rank 0 compares */
    TT_GO(command->json ? print_json(cli, &report) : print_table(cli, &report));
    status = tt_doctor_fail(&report);
out:
    tt_doctor_deinit(&report);
    return status;
}

const struct tt_command_ops tt_cmd_doctor = {
    .usage = " [--config FILE] [--output_dir FOLDER] [--ranks N]",
    .sections = list_sections,
    .target_bytes = sizeof(struct doctor_command),
    .resolve = resolve,
    .run = run,
};

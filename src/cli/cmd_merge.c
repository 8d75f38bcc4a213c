#include <math.h>

#include "base/json.h"
#include "cli/commands.h"
#include "convert/merge.h"

struct merge_command {
    const char *model, *adapter, *output_dir, *save_dtype, *id2label;
    size_t max_shard_bytes;
    bool overwrite, json;
};

#define FIELD(member) .offset = offsetof(struct merge_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "model_name_or_path", .aliases = "model_name model base_model", .type = TT_SETTING_STRING, FIELD(model),
     .required = true, .path = TT_PATH_HUB, .help = "Folder of the base model that the adapter was trained on."},
    {.name = "adapter_name_or_path", .aliases = "adapter adapter_path", .type = TT_SETTING_STRING, FIELD(adapter),
     .required = true, .path = TT_PATH_HUB, .help = "PEFT adapter folder."},
    {.name = "output_dir", .type = TT_SETTING_STRING, FIELD(output_dir), .required = true, .path = TT_PATH_WRITE,
     .help = "Folder for the merged model. It becomes visible when it is complete."},
    {.name = "save_dtype", .type = TT_SETTING_STRING, FIELD(save_dtype), .choices = "float32 bfloat16 float16",
     .help = "Type of every tensor; not given: its type in the base model."},
    {.name = "id2label", .type = TT_SETTING_JSON, FIELD(id2label),
     .help = "Of an adapter of a classifier: the names of its labels in the order of their numbers."},
    {.name = "max_shard_size", .type = TT_SETTING_BYTES, FIELD(max_shard_bytes), .default_text = "50GB",
     .help = "Largest size of one weights file."},
    {.name = "overwrite_output_dir", .type = TT_SETTING_BOOL, FIELD(overwrite), .default_text = "false",
     .help = "Replace all of an output_dir that is not empty."},
    {.name = "json", .type = TT_SETTING_BOOL, FIELD(json), .default_text = "false",
     .help = "Print the changes as one JSON object."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Merge", own_settings, 0};
    return 1;
}

/* Rounding beyond this share of the root mean square of the change is worth a warning. */
static const double rounding_that_matters = 0.25;
static const char all_tensors[] = "all changed tensors";

static double relative(double part, double whole)
{
    return whole > 0 ? sqrt(part / whole) : 0.0;
}

static tt_status write_text(struct tt_str *text, const struct tt_merge_report *report, const char *folder)
{
    char bytes[32];
    const struct tt_merge_change *total = &report->total;
    int width = (int)strlen(all_tensors);
    for (size_t i = 0; i < report->count; i++)
        if (report->outputs[i].change.count > 0 && (int)strlen(report->outputs[i].tensor->name) > width)
            width = (int)strlen(report->outputs[i].tensor->name);
    TT_TRY(tt_str_printf(text, "%-*s %10s %10s %9s\n", width, "tensor", "largest", "rms", "relative"));
    for (size_t i = 0; i < report->count; i++) {
        const struct tt_merge_change *change = &report->outputs[i].change;
        if (change->count == 0) continue;
        TT_TRY(tt_str_printf(text, "%-*s %10.3e %10.3e %9.2e\n", width, report->outputs[i].tensor->name,
                             change->largest, tt_merge_change_rms(change),
                             relative(change->squares, change->base_squares)));
    }
    TT_TRY(tt_str_printf(text, "%-*s %10.3e %10.3e %9.2e\n", width, all_tensors, total->largest,
                         tt_merge_change_rms(total), relative(total->squares, total->base_squares)));
    double percent = 100.0 * relative(total->rounding_squares, total->squares);
    int digits = percent >= 10 ? 0 : percent >= 1 ? 1 : 2;
    return tt_str_printf(
        text,
        "%zu of %zu tensors changed; rounding moved them by %.*f %% of the change; %s in %zu "
        "file%s in '%s'\n",
        report->changed, report->count, digits, percent,
        tt_format_bytes((double)report->bytes, bytes, sizeof bytes), report->files,
        report->files == 1 ? "" : "s", folder);
}

static struct tt_json_value *change_to_json(const struct tt_merge_change *change)
{
    return tt_json_pack("{s:f,s:f,s:f,s:f}", "largest", change->largest, "rms", tt_merge_change_rms(change),
                        "relative", relative(change->squares, change->base_squares), "rounding",
                        relative(change->rounding_squares, change->squares));
}

static tt_status write_json(struct tt_str *text, const struct tt_merge_report *report)
{
    struct tt_json_value *tensors = tt_json_new_object();
    for (size_t i = 0; i < report->count; i++)
        if (report->outputs[i].change.count > 0)
            tt_json_set(tensors, report->outputs[i].tensor->name, change_to_json(&report->outputs[i].change));
    struct tt_json_value *root = tt_json_pack(
        "{s:o,s:o,s:I,s:I,s:I}", "changed", tensors, "total", change_to_json(&report->total), "tensors",
        (int64_t)report->count, "files", (int64_t)report->files, "bytes", (int64_t)report->bytes);
    tt_status status = tt_json_write(root, 2, false, text);
    tt_json_release(root);
    return status == TT_OK ? tt_str_append_char(text, '\n') : status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct merge_command *command = call->target;
    tt_status status = TT_OK;
    struct tt_merge both = {0};
    struct tt_merge_report report = {0};
    struct tt_str text = {0};
    struct tt_merge_options options = {.output_dir = command->output_dir,
                                       .overwrite = command->overwrite,
                                       .max_shard_bytes = command->max_shard_bytes,
                                       .work = {.cancel = cli->cancel}};
    if (command->save_dtype != NULL) options.dtype = tt_dtype_from_torch_name(command->save_dtype);
    TT_GO(tt_merge_open(command->model, command->adapter, &both));
    if (command->id2label != NULL) TT_GO(tt_merge_name_labels(&both, command->id2label));
    TT_GO(tt_merge_write(&both, &options, &report));
    TT_GO(command->json ? write_json(&text, &report) : write_text(&text, &report, command->output_dir));
    TT_GO(tt_report_print_wrapped(cli->report, tt_str_text(&text), command->json ? -1 : 2));
    if (relative(report.total.rounding_squares, report.total.squares) > rounding_that_matters)
        tt_warn("rounding takes a large part of what was trained: keep the adapter apart, or merge with "
                "--save_dtype float32");
out:
    tt_str_deinit(&text);
    tt_merge_report_deinit(&report);
    tt_merge_close(&both);
    return status;
}

const struct tt_command_ops tt_cmd_merge = {
    .usage = " --model_name_or_path FOLDER --adapter_name_or_path FOLDER --output_dir "
             "FOLDER [--save_dtype bfloat16] [--json]",
    .sections = list_sections,
    .target_bytes = sizeof(struct merge_command),
    .run = run,
};

/* trimtab version: the version, and the parts that a build may lack. */
#include "base/str.h"
#include "cli/commands.h"
#include "launch/devices.h"
#include "trimtab.h"

/* CMakeLists.txt defines TT_BUILT_..., the library of a part; "none": it was not found. */
static const struct {
    const char *name, *built;
} features[] = {
    {"MPI", TT_BUILT_MPI},
    {"JPEG", TT_BUILT_JPEG},
    {"PNG", TT_BUILT_PNG},
    {"plots as PNG", TT_BUILT_CAIRO},
};

static tt_status append(struct tt_str *text, const char *name, const char *value)
{
    return tt_str_printf(text, "  %-14s %s\n", name, value);
}

/* The plugin is opened at run time, and belongs to programs of the same abi. */
static tt_status append_plugin(struct tt_str *text)
{
    char reason[512] = "", abi[96], shown[600];
    bool there = tt_devices_have_plugin(abi, reason, sizeof reason);
    snprintf(shown, sizeof shown, "none: %s", reason);
    TT_TRY(append(text, "CUDA plugin", there ? "found" : shown));
    return append(text, "its abi", abi);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    struct tt_str text = {0};
    if (call->argc > 0)
        return tt_fail(TT_ERR_USAGE, "version takes no words, '%.60s' was given", call->argv[0]);
    tt_status status = tt_str_append_text(&text, "trimtab " TT_VERSION "\n");
    for (size_t i = 0; i < sizeof features / sizeof *features && status == TT_OK; i++)
        status = append(&text, features[i].name, features[i].built);
    if (status == TT_OK) status = append_plugin(&text);
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

const struct tt_command_ops tt_cmd_version = {
    .usage = "",
    .run = run,
};

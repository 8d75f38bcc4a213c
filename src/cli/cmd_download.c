#include <string.h>

#include "base/alloc.h"
#include "cli/hub_names.h"
#include "cli/signals.h"

struct download_command {
    const char *revision, *include;
    int repo_type;
};

#define FIELD(member) .offset = offsetof(struct download_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "revision", .aliases = "model_revision", .type = TT_SETTING_STRING, FIELD(revision),
     .default_text = "main", .help = "Branch, tag or commit of the repository."},
    {.name = "include", .type = TT_SETTING_JSON, FIELD(include),
     .help = "Only the files of these names or patterns, several words or a list: \"*.json\" \"*.safetensors\"."},
    {.name = "repo_type", .type = TT_SETTING_CHOICE, FIELD(repo_type), .choices = "model dataset",
     .default_text = "model", .help = "What the repository is. An adapter is a model."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Download", own_settings, 0};
    return 1;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 1;
    if (argc >= 1 && strncmp(argv[0], "--", 2) != 0) return TT_OK;
    tt_fail(TT_ERR_USAGE, "download needs the name of a repository");
    tt_hint("for example: trimtab download Qwen/Qwen3-0.6B");
    return TT_ERR_USAGE;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    static const char *const kinds[] = {"models", "datasets"};
    const struct download_command *command = call->target;
    struct tt_hub_download download = {
        .kind = kinds[command->repo_type], .name = call->argv[0], .revision = command->revision};
    struct tt_cli_patterns include = {0};
    struct tt_hub *hub = NULL;
    char *folder = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_cli_patterns_read("include", command->include, &include));
    download.include = include.text;
    download.include_count = include.count;
    tt_signals_announce("ending the download, which the same command goes on with");
    TT_GO(tt_cli_open_hub(cli, &hub));
    TT_GO(tt_hub_download(hub, &download, &folder));
    TT_GO(tt_report_print(cli->report, folder));
    TT_GO(tt_report_print(cli->report, "\n"));
out:
    tt_json_deinit(&include.json);
    tt_hub_close(hub);
    tt_free(folder);
    return status;
}

const struct tt_command_ops tt_cmd_download = {
    .usage = " NAME [--revision REVISION] [--include PATTERN ...] [--repo_type dataset]\n\n"
             "Prints the folder of the files in the hub's cache.\n",
    .sections = list_sections,
    .target_bytes = sizeof(struct download_command),
    .parse_words = parse_words,
    .run = run,
};

#include <string.h>

#include "base/alloc.h"
#include "cli/hub_names.h"
#include "cli/signals.h"
#include "hub/upload.h"

struct upload_command {
    const char *revision, *include, *exclude, *path_in_repo, *commit_message;
    int repo_type;
    bool is_private;
};

#define FIELD(member) .offset = offsetof(struct upload_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "revision", .type = TT_SETTING_STRING, FIELD(revision), .default_text = "main",
     .help = "Branch of the repository."},
    {.name = "include", .type = TT_SETTING_JSON, FIELD(include),
     .help = "Only the files of these names or patterns, several words or a list: \"*.json\" \"*.safetensors\"."},
    {.name = "exclude", .type = TT_SETTING_JSON, FIELD(exclude),
     .help = "Not the files of these names or patterns: \"checkpoint-*\"."},
    {.name = "path_in_repo", .type = TT_SETTING_STRING, FIELD(path_in_repo),
     .help = "Folder of the repository for the files. Not given: its root."},
    {.name = "commit_message", .type = TT_SETTING_STRING, FIELD(commit_message),
     .help = "Summary of the commit. Not given: \"Upload files with trimtab\"."},
    {.name = "private", .aliases = "hub_private_repo", .type = TT_SETTING_BOOL, FIELD(is_private),
     .default_text = "false", .help = "Make the repository private, where it is made."},
    {.name = "repo_type", .type = TT_SETTING_CHOICE, FIELD(repo_type), .choices = "model dataset",
     .default_text = "model", .help = "What the repository is. An adapter is a model."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Upload", own_settings, 0};
    return 1;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 2;
    if (argc >= 2 && strncmp(argv[0], "--", 2) != 0 && strncmp(argv[1], "--", 2) != 0) return TT_OK;
    tt_fail(TT_ERR_USAGE, "upload needs the name of a repository, and a file or folder");
    tt_hint("for example: trimtab upload me/adapter out");
    return TT_ERR_USAGE;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    static const char *const kinds[] = {"models", "datasets"};
    const struct upload_command *command = call->target;
    struct tt_cli_patterns include = {0}, exclude = {0};
    struct tt_hub *hub = NULL;
    char *address = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_cli_patterns_read("include", command->include, &include));
    TT_GO(tt_cli_patterns_read("exclude", command->exclude, &exclude));
    tt_signals_announce("ending the upload, which the same command goes on with");
    TT_GO(tt_cli_open_hub(cli, &hub));
    const struct tt_hub_upload upload = {.kind = kinds[command->repo_type],
                                         .name = call->argv[0],
                                         .revision = command->revision,
                                         .folder = call->argv[1],
                                         .include = include.text,
                                         .include_count = include.count,
                                         .exclude = exclude.text,
                                         .exclude_count = exclude.count,
                                         .below = command->path_in_repo,
                                         .summary = command->commit_message,
                                         .is_private = command->is_private};
    TT_GO(tt_hub_upload(hub, &upload, &address));
    TT_GO(tt_report_print(cli->report, address));
    TT_GO(tt_report_print(cli->report, "\n"));
out:
    tt_json_deinit(&include.json);
    tt_json_deinit(&exclude.json);
    tt_hub_close(hub);
    tt_free(address);
    return status;
}

const struct tt_command_ops tt_cmd_upload = {
    .usage = " NAME FOLDER [--include PATTERN ...] [--exclude PATTERN ...] [--private true] [--repo_type "
             "dataset]\n\n"
             "Prints the address of the commit.\n",
    .sections = list_sections,
    .target_bytes = sizeof(struct upload_command),
    .parse_words = parse_words,
    .run = run,
};

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/consolidate.h"
#include "cli/commands.h"

static const char usage[] =
    " ls FOLDER [--json] | verify FOLDER | consolidate CHECKPOINT --output_dir FOLDER";

struct checkpoint_command {
    const char *output_dir;
    bool overwrite, json;
};

#define FIELD(member) .offset = offsetof(struct checkpoint_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "json", .type = TT_SETTING_BOOL, FIELD(json), .default_text = "false",
     .help = "ls: print one JSON list. \"whole\" means that all files have the recorded size; verify reads all bytes."},
    {.name = "output_dir", .type = TT_SETTING_STRING, FIELD(output_dir), .path = TT_PATH_WRITE,
     .help = "consolidate: folder for the new checkpoint, whose training state is in whole tensors."},
    {.name = "overwrite_output_dir", .type = TT_SETTING_BOOL, FIELD(overwrite), .default_text = "false",
     .help = "consolidate: replace all of an output_dir that is not empty."},
    {.name = NULL},
};
/* clang-format on */

enum { SUMMARY_BYTES_MAX = 256 << 20 };

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Checkpoint", own_settings, 0};
    return 1;
}

static const char *kind_of(const struct tt_checkpoint_facts *facts, char *text, size_t text_bytes)
{
    const char *what = facts->adapter ? "adapter" : "model";
    if (facts->files == 0)
        (void)snprintf(text, text_bytes, "?");
    else if (facts->state_parts == 0)
        (void)snprintf(text, text_bytes, "%s, no state", what);
    else if (facts->state_parts == 1)
        (void)snprintf(text, text_bytes, "%s", what);
    else
        (void)snprintf(text, text_bytes, "%s, state in %d files", what, facts->state_parts);
    return text;
}

/* Step of the best checkpoint, from the newest trainer_state.json that names one; -1: none does. */
static int64_t best_step(const char *folder, const int64_t *steps, size_t count)
{
    int64_t best = -1;
    for (size_t i = 0; i < count && best < 0; i++) {
        struct tt_json json = {0};
        struct tt_path path;
        char *checkpoint = tt_checkpoint_path(folder, steps[i]);
        if (checkpoint != NULL && tt_path_set(&path, checkpoint, "trainer_state.json") == TT_OK &&
            tt_path_exists(path.text) && tt_json_read(path.text, SUMMARY_BYTES_MAX, &json) == TT_OK) {
            const char *name = tt_json_text(tt_json_get(json.root, "best_model_checkpoint"));
            const char *number = name != NULL ? strrchr(name, '-') : NULL;
            if (number != NULL) best = strtoll(number + 1, NULL, 10);
        }
        tt_json_deinit(&json);
        tt_free(checkpoint);
    }
    tt_error_clear();
    return best;
}

/* Appends one checkpoint to the list. `why`: the message of its first damage; empty for a whole checkpoint. */
static tt_status list_one(struct tt_str *text, struct tt_json_value *list,
                          const struct tt_checkpoint_facts *facts, int64_t step, bool best, const char *why)
{
    char kind[64], bytes[32];
    kind_of(facts, kind, sizeof kind);
    if (list == NULL)
        return tt_str_printf(text, "%10lld  %-28s %5lld  %10s  %s%s%s\n", (long long)step, kind,
                             (long long)facts->ranks,
                             tt_format_bytes((double)facts->bytes, bytes, sizeof bytes),
                             *why == '\0' ? "whole" : "BROKEN: ", why, best ? "  (best)" : "");
    struct tt_json_value *row =
        tt_json_pack("{s:I,s:s,s:i,s:I,s:I,s:b,s:b,s:s}", "step", (int64_t)step, "kind",
                     facts->adapter ? "adapter" : "model", "state_files", facts->state_parts, "ranks",
                     (int64_t)facts->ranks, "bytes", (int64_t)facts->bytes, "whole", *why == '\0', "best",
                     best, "problem", why);
    return tt_json_append(list, row) == 0 ? TT_OK : tt_fail(TT_ERR_MEMORY, "out of memory for the list");
}

static tt_status list_all(const char *folder, const int64_t *steps, size_t count, struct tt_str *text,
                          struct tt_json_value *list)
{
    int64_t best = best_step(folder, steps, count);
    for (size_t i = count; i-- > 0;) {
        struct tt_checkpoint_facts facts;
        char why[sizeof tt_error_last()->message] = "", *path = tt_checkpoint_path(folder, steps[i]);
        if (path == NULL) return TT_ERR_MEMORY;
        tt_status status = tt_checkpoint_facts(path, &facts);
        tt_free(path);
        if (status == TT_ERR_MEMORY) return status;
        if (status != TT_OK) (void)snprintf(why, sizeof why, "%s", tt_error_last()->message);
        tt_error_clear();
        TT_TRY(list_one(text, list, &facts, steps[i], steps[i] == best, why));
    }
    return TT_OK;
}

static tt_status fail_no_checkpoints(const char *folder)
{
    if (!tt_path_is_dir(folder))
        return tt_fail(TT_ERR_DATA, "the folder '%s' %s", folder,
                       tt_path_exists(folder) ? "is a file" : "does not exist");
    tt_status status = tt_fail(TT_ERR_DATA, "'%s' holds no checkpoints", folder);
    tt_hint("name the output_dir of a run, with folders checkpoint-N");
    return status;
}

static tt_status run_ls(struct tt_cli *cli, const struct checkpoint_command *command, const char *folder)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    int64_t *steps = NULL;
    size_t count = 0;
    struct tt_json_value *list = command->json ? tt_json_new_list() : NULL;
    TT_GO(tt_checkpoint_list(folder, &steps, &count));
    if (count == 0) TT_GO(fail_no_checkpoints(folder));
    if (!command->json)
        TT_GO(tt_str_printf(&text, "%10s  %-28s %5s  %10s\n", "step", "kind", "ranks", "bytes"));
    TT_GO(list_all(folder, steps, count, &text, list));
    if (command->json) {
        TT_GO(tt_json_write(list, 2, false, &text));
        TT_GO(tt_str_append_char(&text, '\n'));
    }
    TT_GO(tt_report_print(cli->report, tt_str_text(&text)));
out:
    tt_json_release(list);
    tt_str_deinit(&text);
    tt_free(steps);
    return status;
}

/* Prints whether the checkpoint is whole. Damage is counted in *broken and the first error is kept in *first. Other
 * errors (memory, a stop) are returned. */
static tt_status verify_one(struct tt_cli *cli, const char *path, size_t *broken, struct tt_error *first)
{
    struct tt_str text = {0};
    tt_status status = tt_checkpoint_verify(path, cli->cancel);
    bool whole = status == TT_OK;
    if (!whole && status != TT_ERR_DATA && status != TT_ERR_IO) return status;
    if (!whole && (*broken)++ == 0) tt_error_copy(first);
    status = tt_str_printf(&text, "%s: %s\n", path, whole ? "whole" : tt_error_last()->message);
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status run_verify(struct tt_cli *cli, const char *folder)
{
    tt_status status = TT_OK;
    struct tt_error first;
    struct tt_path manifest;
    int64_t *steps = NULL;
    size_t count = 0, broken = 0;
    TT_GO(tt_checkpoint_list(folder, &steps, &count));
    TT_GO(tt_path_set(&manifest, folder, TT_MANIFEST_NAME));
    if (count == 0 && !tt_path_exists(manifest.text) &&
        !tt_starts_with(tt_path_basename(folder), "checkpoint-"))
        TT_GO(fail_no_checkpoints(folder));
    if (count == 0) TT_GO(verify_one(cli, folder, &broken, &first));
    for (size_t i = count; i-- > 0;) {
        char *path = tt_checkpoint_path(folder, steps[i]);
        if (path == NULL) TT_GO(TT_ERR_MEMORY);
        status = verify_one(cli, path, &broken, &first);
        tt_free(path);
        TT_GO(status);
    }
    if (broken > 0) {
        status = tt_error_restore(&first);
        tt_while("verifying '%s' (%zu of %zu broken)", folder, broken, count > 0 ? count : 1);
    }
out:
    tt_free(steps);
    return status;
}

static tt_status run_consolidate(struct tt_cli *cli, const struct checkpoint_command *command,
                                 const char *folder)
{
    struct tt_str text = {0};
    size_t tensors = 0;
    if (command->output_dir == NULL) return tt_fail(TT_ERR_USAGE, "consolidate needs --output_dir FOLDER");
    TT_TRY(
        tt_checkpoint_consolidate(folder, command->output_dir, command->overwrite, 0, cli->cancel, &tensors));
    tt_status status =
        tt_str_printf(&text, "%s: training state of %zu whole tensors\n", command->output_dir, tensors);
    if (status == TT_OK) status = tt_report_print(cli->report, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct checkpoint_command *command = call->target;
    const char *what = call->argv[0], *folder = call->argv[1];
    if (strcmp(what, "ls") == 0) return run_ls(cli, command, folder);
    if (strcmp(what, "verify") == 0) return run_verify(cli, folder);
    return run_consolidate(cli, command, folder);
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    const char *what = argc > 0 ? argv[0] : "";
    bool known = strcmp(what, "ls") == 0 || strcmp(what, "verify") == 0 || strcmp(what, "consolidate") == 0;
    *count = 2;
    if (known && argc >= 2 && argv[1][0] != '-') return TT_OK;
    tt_status status = known       ? tt_fail(TT_ERR_USAGE, "checkpoint %s needs a folder", what)
                       : argc == 0 ? tt_fail(TT_ERR_USAGE, "checkpoint needs an operation")
                                   : tt_fail(TT_ERR_USAGE, "checkpoint has no operation '%.60s'", what);
    tt_hint("trimtab checkpoint%s", usage);
    return status;
}

const struct tt_command_ops tt_cmd_checkpoint = {
    .usage = usage,
    .sections = list_sections,
    .target_bytes = sizeof(struct checkpoint_command),
    .parse_words = parse_words,
    .run = run,
};

#include "cli/hub_names.h"

#include <stdio.h>
#include <string.h>

#include "base/hub_cache.h"
#include "base/str.h"

static void show(void *context, const struct tt_hub_progress *progress)
{
    struct tt_report *report = context;
    char line[300], done[32], all[32];
    double share = progress->all > 0 ? (double)progress->bytes / (double)progress->all : 1;
    if (report->quiet) return;
    snprintf(line, sizeof line, "%s: %3d%% %s of %s, %d of %d files", progress->name, (int)(share * 100),
             tt_format_bytes((double)progress->bytes, done, sizeof done),
             tt_format_bytes((double)progress->all, all, sizeof all), progress->files, progress->all_files);
    tt_report_work(report, line, progress->over);
}

tt_status tt_cli_open_hub(struct tt_cli *cli, struct tt_hub **out)
{
    struct tt_hub_config config = {.cancel = cli->cancel, .progress = show, .context = cli->report};
    return tt_hub_open(&config, out);
}

static tt_status fetch(void *context, const struct tt_hub_want *want, char **folder)
{
    struct tt_hub_names *names = context;
    if (names->hub == NULL) TT_TRY(tt_cli_open_hub(names->cli, &names->hub));
    return tt_hub_fetch(names->hub, want, folder);
}

void tt_hub_names_open(struct tt_hub_names *names)
{
    tt_hub_set_fetcher(fetch, names);
}

void tt_hub_names_close(struct tt_hub_names *names)
{
    tt_hub_set_fetcher(NULL, NULL);
    tt_hub_close(names->hub);
    names->hub = NULL;
}

tt_status tt_cli_patterns_read(const char *setting, const char *value, struct tt_cli_patterns *patterns)
{
    if (value == NULL) return TT_OK;
    if (value[0] != '[') {
        patterns->text[patterns->count++] = value;
        return TT_OK;
    }
    TT_TRY(tt_json_parse(value, strlen(value), setting, &patterns->json));
    for (size_t i = 0; i < tt_json_count(patterns->json.root); i++) {
        const char *text = tt_json_text(tt_json_at(patterns->json.root, i));
        if (text == NULL || patterns->count == TT_CLI_PATTERNS_MAX)
            return tt_fail(TT_ERR_USAGE, "%s is a list of at most %d names or patterns", setting,
                           TT_CLI_PATTERNS_MAX);
        patterns->text[patterns->count++] = text;
    }
    return TT_OK;
}

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/commands.h"
#include "monitor/board.h"
#include "monitor/page.h"
#include "monitor/run_plot.h"

static const char usage[] = " RUN_FOLDER... --output FILE.svg|FILE.png|FILE.html";

enum { RUNS_MAX = 64 };

struct plot_command {
    const char *output, *format;
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "output", .type = TT_SETTING_STRING, .offset = offsetof(struct plot_command, output), .required = true,
     .path = TT_PATH_WRITE,
     .help = "File to write: .svg or .png, the curves; .html, the dashboard's page as it is now, which loads nothing "
             "else."},
    {.name = "format", .type = TT_SETTING_STRING, .offset = offsetof(struct plot_command, format),
     .choices = "svg png html", .help = "Format of the file, whatever its name ends in."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Plot", own_settings, 0};
    return 1;
}

/* The dashboard as it is now. */
static tt_status draw_page(const struct tt_run_figures *runs, size_t count, struct tt_str *html)
{
    struct tt_str data = {0};
    tt_status status = tt_board_write(runs, count, TT_BOARD_ALONE, &data);
    if (status == TT_OK) status = tt_page_write(tt_str_text(&data), html);
    tt_str_deinit(&data);
    return status;
}

/* "svg", "png" or "html": as asked for, or the ending of the file's name. */
static tt_status choose_format(const struct plot_command *command, const char **format)
{
    static const char *const formats[] = {"svg", "png", "html"};
    const char *dot = strrchr(command->output, '.'), *wanted = command->format;
    if (wanted == NULL && dot != NULL) wanted = dot + 1;
    for (size_t i = 0; wanted != NULL && i < sizeof formats / sizeof *formats; i++) {
        *format = formats[i];
        if (strcmp(wanted, formats[i]) == 0) return TT_OK;
    }
    tt_status status =
        tt_fail(TT_ERR_USAGE, "output '%s' ends with neither .svg, .png nor .html", command->output);
    tt_hint("--format svg|png|html chooses the format of a file with another name");
    return status;
}

static tt_status draw(const struct plot_command *command, const struct tt_run_figures *runs, size_t count)
{
    struct tt_str text = {0};
    const char *format;
    TT_TRY(choose_format(command, &format));
    tt_status status =
        strcmp(format, "html") == 0
            ? draw_page(runs, count, &text)
            : tt_run_plot(runs, count, strcmp(format, "png") == 0 ? TT_PLOT_PNG : TT_PLOT_SVG, &text);
    if (status == TT_OK) status = tt_file_write_atomic(command->output, text.data, text.bytes);
    tt_str_deinit(&text);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    tt_status status = TT_OK;
    const struct plot_command *command = call->target;
    size_t count = 0, wanted = (size_t)call->argc;
    struct tt_run_figures *runs = tt_calloc(wanted, sizeof *runs);
    if (runs == NULL) return TT_ERR_MEMORY;
    for (; count < wanted; count++) TT_GO(tt_run_figures_read(call->argv[count], &runs[count]));
    TT_GO(draw(command, runs, count));
    TT_GO(tt_report_print(cli->report, command->output));
    TT_GO(tt_report_print(cli->report, "\n"));
out:
    for (size_t i = 0; i < count; i++) tt_run_figures_deinit(&runs[i]);
    tt_free(runs);
    return status;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 0;
    while (*count < argc && argv[*count][0] != '-') (*count)++;
    if (*count > 0 && *count <= RUNS_MAX) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "plot needs the folders of 1 to %d runs", RUNS_MAX);
    tt_hint("trimtab plot%s", usage);
    return status;
}

const struct tt_command_ops tt_cmd_plot = {
    .usage = usage,
    .sections = list_sections,
    .target_bytes = sizeof(struct plot_command),
    .parse_words = parse_words,
    .run = run,
};

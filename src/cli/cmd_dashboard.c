#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/crowd.h"
#include "base/log.h"
#include "cli/commands.h"
#include "monitor/dashboard.h"

static const char usage[] = " RUN_FOLDER... [--host ADDRESS] [--port N]";

struct dashboard_command {
    const char *host, *allowed_hosts;
    int64_t port;
};

#define OWN(member) .offset = offsetof(struct dashboard_command, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "host", .type = TT_SETTING_STRING, OWN(host), .default_text = "127.0.0.1",
     .help = "Address to listen at; others than those of this machine itself are open to everybody who can reach "
             "them."},
    {.name = "port", .type = TT_SETTING_INT, OWN(port), .default_text = "0", .null_text = "0", .minimum = 0,
     .maximum = 65535, .help = "Port to listen at; 0: a free one, which is printed."},
    {.name = "allowed_hosts", .type = TT_SETTING_JSON, OWN(allowed_hosts),
     .help = "Host names by which browsers may ask, as trimtab.example.com or *.example.com, besides localhost and "
             "addresses in numbers. Not given: no others at loopback, all elsewhere."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Dashboard", own_settings, 0};
    return 1;
}

/* Serves until a request to stop. */
static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    static const struct timespec pause = {.tv_nsec = 50000000};
    const struct dashboard_command *command = call->target;
    struct tt_dashboard *dashboard = NULL;
    char line[300];
    bool v6 = strchr(command->host, ':') != NULL;
    const struct tt_dashboard_config config = {
        .host = command->host,
        .port = (int)command->port,
        .port_setting = "port",
        .allowed_hosts = command->allowed_hosts,
        .folders = (const char *const *)call->argv,
        .count = call->argc,
    };
    TT_TRY(tt_dashboard_open(&config, &dashboard));
    if (!tt_host_is_loopback(command->host))
        tt_warn("%s is open to everybody who can reach this machine: there is no key and no encryption",
                command->host);
    snprintf(line, sizeof line, "dashboard at http://%s%.100s%s:%d/", v6 ? "[" : "", command->host,
             v6 ? "]" : "", tt_dashboard_port(dashboard));
    tt_report_line(cli->report, line);
    while (atomic_load(&cli->cancel->requests) == 0) nanosleep(&pause, NULL);
    tt_dashboard_close(dashboard);
    return TT_OK;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 0;
    while (*count < argc && argv[*count][0] != '-') (*count)++;
    if (*count > 0 && *count <= TT_DASHBOARD_RUNS_MAX) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "dashboard needs the folders of 1 to %d runs", TT_DASHBOARD_RUNS_MAX);
    tt_hint("trimtab dashboard%s", usage);
    return status;
}

const struct tt_command_ops tt_cmd_dashboard = {
    .usage = usage,
    .sections = list_sections,
    .target_bytes = sizeof(struct dashboard_command),
    .parse_words = parse_words,
    .run = run,
};

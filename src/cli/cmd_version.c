#include "cli/commands.h"
#include "trimtab.h"

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    if (call->argc > 0)
        return tt_fail(TT_ERR_USAGE, "version takes no words, '%.60s' was given", call->argv[0]);
    return tt_report_print(cli->report, "trimtab " TT_VERSION "\n");
}

const struct tt_command_ops tt_cmd_version = {
    .usage = "",
    .run = run,
};

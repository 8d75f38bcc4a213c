#include "cli/commands.h"
#include "trimtab.h"

const char tt_cmd_version_usage[] = "";

size_t tt_cmd_version_sections(struct tt_setting_section *sections)
{
    (void)sections;
    return 0;
}

tt_status tt_cmd_version(struct tt_cli *cli, int argc, char *const *argv)
{
    if (argc > 0) return tt_fail(TT_ERR_USAGE, "version takes no words, '%.60s' was given", argv[0]);
    return tt_report_print(cli->report, "trimtab " TT_VERSION "\n");
}

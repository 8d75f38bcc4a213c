#include "cli/commands.h"

int main(int argc, char **argv)
{
    return tt_cli_main(argc, argv, stdout, stderr);
}

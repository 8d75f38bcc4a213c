/* The program: signals, then the command; the only place that ends the process. */
#include <fcntl.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/stack.h"
#include "launch/pulse.h"

/* The thread of a rank hangs, so a normal exit would hang too. */
static void leave_stuck(const struct tt_error *error)
{
    char text[2048];
    tt_error_format(error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    fflush(NULL);
    _exit(TT_EXIT_DEVICE);
}

/* A standard stream that the caller has closed would be the next file that is opened: log lines would go into a file of
 * the run. Reading and writing it fails, as on a closed one. */
static void reserve_standard_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0) (void)!open("/", O_PATH); /* the lowest number that is free */
}

static int run(int argc, char **argv)
{
    return tt_cli_main(argc, argv, stdout, stderr);
}

int main(int argc, char **argv)
{
    reserve_standard_streams();
    tt_pulse_set_handler(leave_stuck);
    int code = tt_stack_run(run, argc, argv);
    if (code != TT_EXIT_DEVICE) return code;
    /* The exit handlers of a driver would wait for a GPU that hangs. */
    fflush(NULL);
    _exit(code);
}

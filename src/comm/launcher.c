#include "comm/launcher.h"

#include <stddef.h>
#include <stdlib.h>

const struct tt_launcher tt_launchers[TT_LAUNCHER_KINDS] = {
#define LAUNCHER(name, ...) [TT_LAUNCHER_##name] = {__VA_ARGS__},
#include "comm/launchers.def"
#undef LAUNCHER
};

const char *tt_launcher_read(const char *variable)
{
    const char *text = variable != NULL ? getenv(variable) : NULL;
    return text != NULL && text[0] != '\0' ? text : NULL;
}

bool tt_launcher_is_per_rank(void)
{
    for (int i = 0; i < TT_LAUNCHER_KINDS; i++)
        for (int s = 0; s < 2; s++)
            if (tt_launcher_read(tt_launchers[i].started[s]) != NULL) return true;
    return false;
}

int tt_launcher_rank(void)
{
    for (int i = 0; i < TT_LAUNCHER_KINDS; i++) {
        const char *rank = tt_launcher_read(tt_launchers[i].rank);
        if (rank != NULL) return (int)strtol(rank, NULL, 10);
    }
    return 0;
}

bool tt_launcher_is_mpi(void)
{
    for (int i = 0; i < TT_LAUNCHER_KINDS; i++) {
        const char *size = tt_launcher_read(tt_launchers[i].mpi_size);
        if (size != NULL && strtol(size, NULL, 10) > 1) return true;
    }
    return false;
}

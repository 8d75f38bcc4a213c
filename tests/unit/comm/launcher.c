/* The table of launchers' variables: what started this process, and whether it is the first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/launcher.h"

enum { VARIABLES_MAX = 4 };

static void clear(void)
{
    for (int i = 0; i < TT_LAUNCHER_KINDS; i++) {
        const struct tt_launcher *row = &tt_launchers[i];
        const char *const names[] = {row->rank,       row->world_size, row->local_rank, row->local_size,
                                     row->machine,    row->machines,   row->ranks,      row->started[0],
                                     row->started[1], row->mpi_size};
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (names[n] != NULL) unsetenv(names[n]);
    }
}

static void launchers_are_told_by_their_variables(void **state)
{
    static const struct {
        const char *set[VARIABLES_MAX]; /* "NAME=value" */
        bool per_rank, other, mpi;
    } cases[] = {
        {{NULL}, false, false, false},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}, true, true, true},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, true, false, false},
        {{"PMI_RANK=0", "PMI_SIZE=4"}, true, false, true},
        {{"MV2_COMM_WORLD_RANK=3", "MV2_COMM_WORLD_SIZE=4"}, true, true, true},
        {{"PMIX_RANK=2"}, true, true, false},
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2"}, true, true, true},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2"}, false, false, false}, /* a batch script */
        {{"RANK=1", "WORLD_SIZE=2"}, true, true, false},
        {{"LOCAL_RANK=0"}, true, false, false},
        {{"PET_NNODES=2", "PET_NODE_RANK=1"}, false, false, false},
        {{"OMPI_COMM_WORLD_SIZE=", "RANK="}, false, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear();
        for (int v = 0; v < VARIABLES_MAX && cases[i].set[v] != NULL; v++) {
            char name[64] = "";
            strncat(name, cases[i].set[v], strcspn(cases[i].set[v], "="));
            assert_int_equal(setenv(name, strchr(cases[i].set[v], '=') + 1, 1), 0);
        }
        if (tt_launcher_is_per_rank() != cases[i].per_rank || (tt_launcher_rank() > 0) != cases[i].other ||
            tt_launcher_is_mpi() != cases[i].mpi)
            fail_msg("case %zu: %d %d %d", i, tt_launcher_is_per_rank(), (tt_launcher_rank() > 0),
                     tt_launcher_is_mpi());
    }
    clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(launchers_are_told_by_their_variables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

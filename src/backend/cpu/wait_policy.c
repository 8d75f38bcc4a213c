/* How long an OpenMP thread of the program spins before it sleeps. GNU's runtime spins for milliseconds by
 * default: on a machine with other work each spinning thread takes the processor from the thread that it
 * waits for (the shipped model's evaluation took 3 to 6 s there, and 0.6 s with threads that sleep at once).
 * A short spin bridges the gap between two ops of one step, and beyond that the thread sleeps.
 *
 * Two cores of a Xeon with AMX, gcc 12.2, 2026-11-22, minima of three rounds, seconds; busy: 14 other
 * processes on them:
 *
 *     spin count               default   sleep at once   100     300     1000
 *     tiny, 60 steps, idle     2.54      2.92            2.81    2.51    2.45
 *     tiny, 15 steps, busy     -         9.75            10.25   -       13.15
 *
 * The runtime reads the variable in its own constructor. The program links the runtime statically
 * (cmake/openmp.cmake), so that this constructor, which has a higher priority, runs first; LLVM's runtime
 * reads its variable when it is first used. The shared library does not contain this file: there the policy
 * belongs to the program that loads it. */
#include <stdlib.h>

__attribute__((constructor(101))) static void set_wait_policy(void)
{
    if (getenv("OMP_WAIT_POLICY") != NULL) return;
    /* The last argument keeps a value that the user has set. */
    (void)setenv("GOMP_SPINCOUNT", "200", 0);
    (void)setenv("KMP_BLOCKTIME", "0", 0);
}

/* How long OpenMP threads of the program spin before they sleep (wait_policy.c). */
#ifndef TT_BACKEND_CPU_WAIT_POLICY_H
#define TT_BACKEND_CPU_WAIT_POLICY_H

/* Starts to follow the load of the machine; later calls do nothing. Part of programs only: NULL in the shared library,
 * whose threads belong to the program that loads it. */
void tt_wait_policy_watch(void) __attribute__((weak));

#endif

/* A stack for the program, whatever `ulimit -s` says. A thread's stack is by default as large as that limit. */
#ifndef TT_CLI_STACK_H
#define TT_CLI_STACK_H

typedef int tt_stack_main(int argc, char **argv);
/* Returns main(argc, argv). Where the limit of the calling thread's stack is too low for it, a thread with a stack of
 * TT_THREAD_STACK_BYTES runs `main`, and other libraries' threads (OpenMP's) get such stacks too. Exit code
 * TT_EXIT_MEMORY, with a message on stderr, where no such thread can be started. Call it before there are threads. */
int tt_stack_run(tt_stack_main *main, int argc, char **argv);

#endif

/* A port for a test. A failing system call fails the running test. */
#ifndef TT_TESTS_SUPPORT_PORT_H
#define TT_TESTS_SUPPORT_PORT_H

int test_free_port(void); /* at which no process listens now */
/* Connects to `port` of 127.0.0.1 and retries for `seconds`; -1: no process listens. */
int test_dial(int port, double seconds);

#endif

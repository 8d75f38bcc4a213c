/* A port for a test. Failing system calls fail the running test. */
#ifndef TT_TESTS_SUPPORT_PORT_H
#define TT_TESTS_SUPPORT_PORT_H

int test_free_port(void); /* at which nobody listens now */
/* A connection to `port` of 127.0.0.1; tries for some seconds. -1: nobody listens. */
int test_dial(int port, double seconds);

#endif

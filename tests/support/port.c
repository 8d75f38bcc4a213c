#include "support/port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.h"

/* Below Linux's ports for outgoing connections (32768 to 60999): a connection of another test may take one of those
 * between this choice and the listener's bind. */
enum { PORT_MIN = 12000, PORT_COUNT = 20000 };

static bool is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int file = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(file >= 0);
    bool is_bound = bind(file, (struct sockaddr *)&address, sizeof address) == 0;
    close(file);
    return is_bound;
}

int test_free_port(void)
{
    /* Tests that run at the same time begin at different ports. */
    static atomic_uint calls;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned start =
        (unsigned)getpid() * 7919U + (unsigned)now.tv_nsec / 1000U + atomic_fetch_add(&calls, 1) * 101U;
    for (unsigned i = 0; i < PORT_COUNT; i++) {
        int port = PORT_MIN + (int)((start + i) % PORT_COUNT);
        if (is_free(port)) return port;
    }
    fail_msg("no port from %d to %d is free", PORT_MIN, PORT_MIN + PORT_COUNT - 1);
    return -1;
}

int test_dial(int port, double seconds)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    double deadline = tt_clock_seconds() + seconds;
    do {
        int file = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(file, (struct sockaddr *)&address, sizeof address) == 0) return file;
        close(file);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    } while (tt_clock_seconds() < deadline);
    return -1;
}

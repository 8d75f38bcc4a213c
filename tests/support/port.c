#include "support/port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.h"

int test_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(file >= 0);
    assert_int_equal(bind(file, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(file, (struct sockaddr *)&address, &bytes), 0);
    close(file);
    return ntohs(address.sin_port);
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

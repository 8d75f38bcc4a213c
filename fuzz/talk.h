/* The other end of a connection, for targets that talk to src/comm. The fuzzer's alarm interrupts calls. */
#ifndef TT_FUZZ_TALK_H
#define TT_FUZZ_TALK_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

static inline void say(int file, const void *data, size_t bytes)
{
    (void)!send(file, data, bytes, MSG_NOSIGNAL);
}

static inline ssize_t hear_some(int file, void *data, size_t bytes)
{
    ssize_t got;
    do got = recv(file, data, bytes, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

static inline bool hear(int file, void *data, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = hear_some(file, (char *)data + have, bytes - have);
        if (got <= 0) return false;
        have += (size_t)got;
    }
    return true;
}

#endif

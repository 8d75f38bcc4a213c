/* Connections of strangers at a listening socket, when there are more than it keeps: which one gives way. The origin
 * with the most loses the one that has come least far, so whoever opens many displaces his own. */
#ifndef TT_BASE_CROWD_H
#define TT_BASE_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { TT_ORIGIN_BYTES = 16 };

/* One connection that may be closed. */
struct tt_stranger {
    unsigned char origin[TT_ORIGIN_BYTES];
    int stage;        /* how far it has come; the least gives way first */
    double since;     /* of equal ones the least gives way */
    void *connection; /* the caller's */
};

/* The other end of a connection: equal for all connections of one IPv4 address, mapped into IPv6 or not, and of one
 * IPv6 network of 64 bits; 0 for other families. */
void tt_origin_of(const struct sockaddr *from, unsigned char origin[TT_ORIGIN_BYTES]);
/* An address of this machine alone: 127.0.0.0/8, mapped into IPv6 or not, or ::1. */
bool tt_address_is_loopback(const struct sockaddr *address);
/* The same of a numeric address as a text; false for other texts. */
bool tt_host_is_loopback(const char *host);

/* The connection of the stranger that gives way; NULL: there is none. Changes the order of strangers[count]. */
void *tt_crowd_choose(struct tt_stranger *strangers, size_t count);

/* The number of connections to allow, at most `wanted`, where the process needs `others` descriptors for something
 * else. Raises the limit of open files as far as possible. */
size_t tt_crowd_capacity(size_t wanted, size_t others);

#endif

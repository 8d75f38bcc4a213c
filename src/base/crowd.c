#include "base/crowd.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { CONNECTIONS_MIN = 16 };

/* False: no address of IPv4. */
static bool read_four(const struct sockaddr *address, unsigned char four[4])
{
    struct sockaddr_in6 six;
    if (address->sa_family == AF_INET) {
        memcpy(four, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
        return true;
    }
    if (address->sa_family != AF_INET6) return false;
    memcpy(&six, address, sizeof six);
    memcpy(four, six.sin6_addr.s6_addr + 12, 4);
    return IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
}

void tt_origin_of(const struct sockaddr *from, unsigned char origin[TT_ORIGIN_BYTES])
{
    unsigned char four[4];
    memset(origin, 0, TT_ORIGIN_BYTES);
    if (read_four(from, four))
        memcpy(origin + 12, four, sizeof four);
    else if (from->sa_family == AF_INET6)
        memcpy(origin, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 8);
}

bool tt_address_is_loopback(const struct sockaddr *address)
{
    unsigned char four[4];
    struct sockaddr_in6 six;
    if (read_four(address, four)) return four[0] == 127;
    if (address->sa_family != AF_INET6) return false;
    memcpy(&six, address, sizeof six);
    return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

bool tt_host_is_loopback(const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *address = NULL;
    if (getaddrinfo(host, NULL, &hints, &address) != 0) return false;
    bool is = tt_address_is_loopback(address->ai_addr);
    freeaddrinfo(address);
    return is;
}

static int compare(const void *a, const void *b)
{
    const struct tt_stranger *one = a, *other = b;
    int order = memcmp(one->origin, other->origin, sizeof one->origin);
    if (order != 0) return order;
    if (one->stage != other->stage) return one->stage < other->stage ? -1 : 1;
    return one->since < other->since ? -1 : one->since > other->since;
}

/* Sorted, the strangers of an origin follow each other, and the first of them gives way. */
void *tt_crowd_choose(struct tt_stranger *strangers, size_t count)
{
    const struct tt_stranger *victim = NULL;
    size_t most = 0;
    if (count == 0) return NULL;
    qsort(strangers, count, sizeof *strangers, compare);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count; end++)
            if (memcmp(strangers[end].origin, strangers[i].origin, sizeof strangers->origin) != 0) break;
        bool older = end - i == most && strangers[i].since < victim->since;
        if (end - i <= most && !older) continue;
        victim = &strangers[i];
        most = end - i;
    }
    return victim->connection;
}

size_t tt_crowd_capacity(size_t wanted, size_t others)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)others, all = needed + wanted;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= all) return wanted;
    limit.rlim_cur = all < limit.rlim_max ? all : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= all) return wanted;
    size_t left = limit.rlim_cur > needed ? (size_t)(limit.rlim_cur - needed) : 0;
    size_t least = wanted < CONNECTIONS_MIN ? wanted : CONNECTIONS_MIN;
    return left > least ? left : least;
}

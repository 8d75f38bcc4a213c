/* The names of machines: each looks up the name of the next one. A run needs the name of rank 0 only, so that one that
 * is unknown is no fault; one that leads elsewhere misleads people and other programs. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "doctor/doctor_impl.h"

enum { NAME_BYTES = 256, ADDRESSES_MAX = 32, ADDRESS_BYTES = 16 };

/* Addresses of version 4, as they are mapped into version 6. */
struct address {
    unsigned char bytes[ADDRESS_BYTES];
};

/* A machine and its names, in the layout of the exchange between ranks. */
struct named_machine {
    char name[NAME_BYTES]; /* empty: not of the first rank of a machine, or there is none */
    int32_t count;
    struct address addresses[ADDRESSES_MAX]; /* of its interfaces, without loopback */
};

static bool read_address(const struct sockaddr *from, struct address *to)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (from == NULL) return false;
    if (from->sa_family == AF_INET) {
        memcpy(to->bytes, mapped, sizeof mapped);
        memcpy(to->bytes + sizeof mapped, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
        return to->bytes[12] != 127;
    }
    if (from->sa_family != AF_INET6) return false;
    memcpy(to->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, ADDRESS_BYTES);
    return !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)from)->sin6_addr);
}

static void describe_self(struct named_machine *self)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME},
                    *list = NULL;
    struct ifaddrs *interfaces = NULL;
    char own[80] = "";
    if (gethostname(own, sizeof own - 1) != 0) return;
    snprintf(self->name, sizeof self->name, "%s", own);
    /* A pod has a longer name, by which the others find it. */
    if (getaddrinfo(own, NULL, &hints, &list) == 0 && list->ai_canonname != NULL &&
        strncmp(list->ai_canonname, "localhost", 9) != 0)
        snprintf(self->name, sizeof self->name, "%s", list->ai_canonname);
    if (list != NULL) freeaddrinfo(list);
    if (getifaddrs(&interfaces) != 0) return;
    for (const struct ifaddrs *at = interfaces; at != NULL && self->count < ADDRESSES_MAX; at = at->ifa_next)
        if (read_address(at->ifa_addr, &self->addresses[self->count])) self->count++;
    freeifaddrs(interfaces);
}

static bool has_address(const struct named_machine *machine, const struct address *address)
{
    for (int i = 0; i < machine->count; i++)
        if (memcmp(&machine->addresses[i], address, sizeof *address) == 0) return true;
    return false;
}

/* The first address of the name that is none of loopback goes into found->peer_address; one of the machine's own is
 * preferred. */
static void look_up(const struct named_machine *peer, struct tt_doctor_rank *found)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    snprintf(found->peer, sizeof found->peer, "%.*s", (int)sizeof found->peer - 1, peer->name);
    if (getaddrinfo(peer->name, NULL, &hints, &list) != 0) return;
    for (const struct addrinfo *at = list; at != NULL && !found->peer_is_right; at = at->ai_next) {
        struct address address;
        if (!read_address(at->ai_addr, &address)) continue;
        bool right = has_address(peer, &address);
        if (!right && found->peer_address[0] != '\0') continue;
        found->peer_is_right = right;
        if (getnameinfo(at->ai_addr, at->ai_addrlen, found->peer_address, sizeof found->peer_address, NULL, 0,
                        NI_NUMERICHOST) != 0)
            snprintf(found->peer_address, sizeof found->peer_address, "another address");
    }
    freeaddrinfo(list);
}

tt_status tt_doctor_resolve_names(struct tt_examination *exam)
{
    struct tt_comm *comm = exam->place->comm;
    int world = tt_comm_world_size(comm), rank = tt_comm_rank(comm), next = -1;
    struct named_machine own = {0}, *all = tt_calloc((size_t)world, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    bool speaks = exam->place->local_rank == 0 && exam->doctor->host[0] != '\0';
    if (speaks) describe_self(&own);
    tt_status status = tt_comm_host_all_gather(comm, &own, all, sizeof own);
    for (int step = 1; step < world && next < 0; step++)
        if (all[(rank + step) % world].name[0] != '\0') next = (rank + step) % world;
    /* Two machines of one name cannot find each other by it. */
    if (status == TT_OK && speaks && next >= 0 && strcmp(all[next].name, own.name) != 0) {
        exam->found.peer_rank = next;
        look_up(&all[next], &exam->found);
    }
    tt_free(all);
    return status;
}

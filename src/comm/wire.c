#include "comm/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crowd.h"
#include "base/number.h"
#include "comm/comm.h"
#include "comm/launcher.h"

/* Waits until `socket` is ready for `events`. */
static enum tt_wire_result wait_for(int socket, int wake, short events, double deadline)
{
    struct pollfd files[2] = {{.fd = socket, .events = events}, {.fd = wake, .events = POLLIN}};
    for (;;) {
        double left = deadline > 0 ? deadline - tt_clock_seconds() : 3600;
        if (left <= 0) return TT_WIRE_LATE;
        int ready = poll(files, wake >= 0 ? 2 : 1, left < 3600 ? (int)(left * 1000) + 1 : 3600000);
        if (ready < 0 && errno != EINTR) return TT_WIRE_CLOSED;
        if (ready <= 0) continue;
        if (wake >= 0 && files[1].revents != 0) return TT_WIRE_WOKEN;
        if (files[0].revents != 0) return TT_WIRE_OK;
    }
}

static bool is_temporary(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

enum tt_wire_result tt_wire_send_parts(int socket, int wake, struct iovec *parts, int count, double deadline)
{
    while (count > 0) {
        if (parts[0].iov_len == 0) {
            parts++;
            count--;
            continue;
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)(count < 64 ? count : 64)};
        ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent < 0 && !is_temporary(errno)) return TT_WIRE_CLOSED;
        if (sent < 0) {
            enum tt_wire_result result = wait_for(socket, wake, POLLOUT, deadline);
            if (result != TT_WIRE_OK) return result;
            continue;
        }
        for (size_t left = (size_t)sent; left > 0;) {
            size_t taken = left < parts[0].iov_len ? left : parts[0].iov_len;
            parts[0].iov_base = (char *)parts[0].iov_base + taken;
            parts[0].iov_len -= taken;
            left -= taken;
            if (parts[0].iov_len == 0) {
                parts++;
                count--;
            }
        }
    }
    return TT_WIRE_OK;
}

enum tt_wire_result tt_wire_send(int socket, int wake, const struct tt_wire_header *header,
                                 const void *payload, double deadline)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)header, sizeof *header},
                             {(void *)(uintptr_t)payload, (size_t)header->bytes}};
    return tt_wire_send_parts(socket, wake, parts, 2, deadline);
}

enum tt_wire_result tt_wire_receive(int socket, int wake, void *data, size_t bytes, double deadline)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t got = recv(socket, (char *)data + have, bytes - have, 0);
        if (got == 0 || (got < 0 && !is_temporary(errno))) return TT_WIRE_CLOSED;
        if (got > 0) {
            have += (size_t)got;
            continue;
        }
        enum tt_wire_result result = wait_for(socket, wake, POLLIN, deadline);
        if (result != TT_WIRE_OK) return result;
    }
    return TT_WIRE_OK;
}

void tt_wire_prepare_socket(int socket)
{
    int on = 1;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)fcntl(socket, F_SETFL, fcntl(socket, F_GETFL, 0) | O_NONBLOCK);
    (void)fcntl(socket, F_SETFD, FD_CLOEXEC);
}

/* ---- Listening ---- */

static void address_from(const struct sockaddr *from, struct tt_wire_address *address)
{
    const struct sockaddr_in *four = (const void *)from;
    const struct sockaddr_in6 *six = (const void *)from;
    *address = (struct tt_wire_address){0};
    if (from->sa_family == AF_INET) {
        address->family = 4;
        address->port = ntohs(four->sin_port);
        memcpy(address->bytes, &four->sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        bool mapped = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
        address->family = mapped ? 4 : 6;
        address->port = ntohs(six->sin6_port);
        address->scope = six->sin6_scope_id;
        memcpy(address->bytes, six->sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    }
}

static socklen_t address_to(const struct tt_wire_address *address, struct sockaddr_storage *to)
{
    struct sockaddr_in *four = (void *)to;
    struct sockaddr_in6 *six = (void *)to;
    memset(to, 0, sizeof *to);
    if (address->family == 4) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)address->port);
        memcpy(&four->sin_addr, address->bytes, 4);
        return sizeof *four;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)address->port);
    six->sin6_scope_id = address->scope;
    memcpy(&six->sin6_addr, address->bytes, 16);
    return sizeof *six;
}

bool tt_wire_is_loopback(const struct tt_wire_address *address)
{
    struct in6_addr six;
    if (address->family == 4) return address->bytes[0] == 127;
    memcpy(&six, address->bytes, sizeof six);
    return address->family == 6 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool tt_wire_is_any(const struct tt_wire_address *address)
{
    static const unsigned char none[16];
    return memcmp(address->bytes, none, sizeof none) == 0;
}

void tt_wire_address_text(const struct tt_wire_address *address, char *text, size_t bytes)
{
    snprintf(text, bytes, "an unknown address");
    if (address->family == 4 || address->family == 6)
        (void)inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->bytes, text, (socklen_t)bytes);
}

void tt_wire_address_of(int socket, bool other_end, struct tt_wire_address *address)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    *address = (struct tt_wire_address){0};
    int code = other_end ? getpeername(socket, (struct sockaddr *)&at, &bytes)
                         : getsockname(socket, (struct sockaddr *)&at, &bytes);
    if (code == 0) address_from((const struct sockaddr *)&at, address);
}

static int close_with(int file, int error)
{
    close(file);
    errno = error;
    return -1;
}

/* Binds a socket to an address; -1 with errno. IPv6's "any address" also accepts IPv4. */
static int bind_at(const struct sockaddr *address, socklen_t bytes, bool reuse)
{
    int on = 1, off = 0;
    int file = socket(address->sa_family, SOCK_STREAM, 0);
    if (file < 0) return -1;
    if (reuse) (void)setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) (void)setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(file, address, bytes) != 0) return close_with(file, errno);
    tt_wire_prepare_socket(file);
    return file;
}

static int listen_at(const struct sockaddr *address, socklen_t bytes)
{
    int file = bind_at(address, bytes, true);
    if (file >= 0 && listen(file, 1024) != 0) return close_with(file, errno);
    return file;
}

/* Listens at one of the two families: IPv6 first for all addresses, where it accepts both; IPv4 first for loopback. */
static int listen_default(bool local, int port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port),
                               .sin6_addr = local ? in6addr_loopback : in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    four.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
    const struct sockaddr *addresses[] = {(const void *)&six, (const void *)&four};
    socklen_t bytes[] = {sizeof six, sizeof four};
    int first = local ? 1 : 0;
    int file = listen_at(addresses[first], bytes[first]);
    if (file < 0 && errno != EADDRINUSE) file = listen_at(addresses[1 - first], bytes[1 - first]);
    return file;
}

static tt_status fail_listen(const char *address, int port)
{
    int error = errno;
    tt_fail(TT_ERR_COMM, "rank 0 cannot listen at %s%sport %d: %s", address != NULL ? address : "",
            address != NULL ? " " : "", port, tt_errno_text(error));
    if (error == EADDRINUSE)
        tt_hint("another run may use this port: choose another MASTER_PORT or --main_process_port");
    else if (address != NULL)
        tt_hint("--rendezvous_bind must be an address of this machine");
    return TT_ERR_COMM;
}

tt_status tt_wire_listen(const char *address, bool local, int port, struct tt_wire_listener *listener)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    tt_status status = TT_OK;
    *listener = (struct tt_wire_listener){.local = true};
    if (address == NULL) {
        listener->sockets[0] = listen_default(local, port);
        listener->local = local;
        if (listener->sockets[0] < 0) return fail_listen(NULL, port);
        listener->count = 1;
        return TT_OK;
    }
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(address, service, &hints, &list);
    if (code != 0) {
        tt_fail(TT_ERR_USAGE, "rendezvous_bind is '%.200s': %s", address, gai_strerror(code));
        return TT_ERR_USAGE;
    }
    for (const struct addrinfo *at = list; at != NULL && listener->count < TT_WIRE_ADDRESSES_MAX;
         at = at->ai_next) {
        int file = listen_at(at->ai_addr, at->ai_addrlen);
        if (file < 0) TT_GO(fail_listen(address, port));
        listener->local = listener->local && tt_address_is_loopback(at->ai_addr);
        listener->sockets[listener->count++] = file;
    }
out:
    freeaddrinfo(list);
    if (status != TT_OK) tt_wire_listener_close(listener);
    return status;
}

/* Only an address of the machine can be bound. */
static bool is_here(const struct addrinfo *address)
{
    int file = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0) return true; /* not known */
    bool here = bind(file, address->ai_addr, address->ai_addrlen) == 0 || errno != EADDRNOTAVAIL;
    close(file);
    return here;
}

bool tt_wire_is_elsewhere(const char *host)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM}, *list = NULL;
    if (host[0] == '\0' || getaddrinfo(host, "0", &hints, &list) != 0) return false;
    bool here = false;
    for (const struct addrinfo *at = list; at != NULL && !here; at = at->ai_next) here = is_here(at);
    freeaddrinfo(list);
    return !here;
}

/* ---- A port that the system chooses ---- */

/* Binds all addresses of `list` at one port: the system chooses it for the first address. false with errno. */
static bool reserve_all(const struct addrinfo *list, struct tt_wire_listener *listener, int *port)
{
    struct tt_wire_address first = {0}, address;
    *listener = (struct tt_wire_listener){.local = true};
    for (const struct addrinfo *at = list; at != NULL && listener->count < TT_WIRE_ADDRESSES_MAX;
         at = at->ai_next) {
        struct sockaddr_storage to;
        address_from(at->ai_addr, &address);
        address.port = first.port;
        socklen_t bytes = address_to(&address, &to);
        int file = bind_at((const struct sockaddr *)&to, bytes, false);
        if (file < 0) {
            int error = errno;
            tt_wire_listener_close(listener);
            errno = error;
            return false;
        }
        if (listener->count == 0) tt_wire_address_of(file, false, &first);
        listener->local = listener->local && tt_wire_is_loopback(&address);
        listener->sockets[listener->count++] = file;
    }
    *port = first.port;
    return true;
}

static tt_status fail_reserve(const char *address, int error)
{
    return tt_fail(TT_ERR_COMM, "cannot listen at %s: %s", address, tt_errno_text(error));
}

static tt_status reserve_one(const struct sockaddr *address, socklen_t bytes,
                             struct tt_wire_listener *listener, int *port)
{
    struct addrinfo one = {.ai_addr = (struct sockaddr *)(uintptr_t)address, .ai_addrlen = bytes};
    return reserve_all(&one, listener, port) ? TT_OK : fail_reserve("an address of this machine", errno);
}

tt_status tt_wire_reserve(const char *address, const struct tt_wire_address *at,
                          struct tt_wire_listener *listener, int *port)
{
    enum { TRIES = 16 };
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    struct sockaddr_storage to;
    if (at != NULL) {
        struct tt_wire_address place = *at;
        place.port = 0;
        socklen_t bytes = address_to(&place, &to);
        return reserve_one((const struct sockaddr *)&to, bytes, listener, port);
    }
    if (address == NULL) {
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
        struct sockaddr_in four = {.sin_family = AF_INET};
        if (reserve_one((const void *)&six, sizeof six, listener, port) == TT_OK) return TT_OK;
        return reserve_one((const void *)&four, sizeof four, listener, port);
    }
    int code = getaddrinfo(address, "0", &hints, &list);
    if (code != 0)
        return tt_fail(TT_ERR_USAGE, "rendezvous_bind is '%.200s': %s", address, gai_strerror(code));
    bool good = false;
    for (int tries = 0; tries < TRIES && !good; tries++) {
        good = reserve_all(list, listener, port);
        if (!good && errno != EADDRINUSE) break;
    }
    int error = errno;
    freeaddrinfo(list);
    return good ? TT_OK : fail_reserve(address, error);
}

tt_status tt_wire_listener_start(const struct tt_wire_listener *listener)
{
    for (int d = 0; d < listener->count; d++)
        if (listen(listener->sockets[d], 1024) != 0)
            return tt_fail(TT_ERR_COMM, "cannot listen for the other ranks: %s", tt_errno_text(errno));
    return TT_OK;
}

void tt_wire_listener_close(struct tt_wire_listener *listener)
{
    for (int i = 0; i < listener->count; i++) close(listener->sockets[i]);
    listener->count = 0;
}

void tt_wire_origin(int socket, unsigned char origin[16], char *text, size_t text_bytes)
{
    struct tt_wire_address address;
    struct sockaddr_storage to;
    tt_wire_address_of(socket, true, &address);
    tt_wire_address_text(&address, text, text_bytes);
    (void)address_to(&address, &to);
    tt_origin_of((const struct sockaddr *)&to, origin);
}

/* ---- Connecting ---- */

static int connect_address(const struct addrinfo *address, double deadline, int *error)
{
    int file = socket(address->ai_family, SOCK_STREAM, 0);
    if (file < 0) {
        *error = errno;
        return -1;
    }
    tt_wire_prepare_socket(file);
    *error = 0;
    if (connect(file, address->ai_addr, address->ai_addrlen) == 0) return file;
    if (errno == EINPROGRESS) {
        socklen_t bytes = sizeof *error;
        enum tt_wire_result result = wait_for(file, -1, POLLOUT, deadline);
        if (result == TT_WIRE_OK && getsockopt(file, SOL_SOCKET, SO_ERROR, error, &bytes) == 0 && *error == 0)
            return file;
        if (result == TT_WIRE_LATE) *error = ETIMEDOUT;
    } else {
        *error = errno;
    }
    close(file);
    return -1;
}

int tt_wire_connect_begin(const struct tt_wire_address *address)
{
    struct sockaddr_storage to;
    socklen_t bytes = address_to(address, &to);
    int file = socket(to.ss_family, SOCK_STREAM, 0);
    if (file < 0) return -1;
    tt_wire_prepare_socket(file);
    if (connect(file, (const struct sockaddr *)&to, bytes) == 0 || errno == EINPROGRESS) return file;
    return close_with(file, errno);
}

int tt_wire_connect(const char *host, int port, double deadline, char *why, size_t why_bytes)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int error = 0, file = -1;
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(host, service, &hints, &list);
    if (code != 0) {
        snprintf(why, why_bytes, "%s", gai_strerror(code));
        return -1;
    }
    for (const struct addrinfo *at = list; at != NULL && file < 0; at = at->ai_next)
        file = connect_address(at, deadline, &error);
    freeaddrinfo(list);
    if (file < 0) snprintf(why, why_bytes, "%s", tt_errno_text(error));
    return file;
}

void tt_wire_host(char *host, size_t bytes)
{
    char name[80] = "";
    const char *node = tt_launcher_read("NODE_NAME");
    memset(host, 0, bytes);
    if (gethostname(name, sizeof name - 1) != 0) snprintf(name, sizeof name, "unknown");
    snprintf(host, bytes, node != NULL ? "%s (node %s)" : "%s%s", name, node != NULL ? node : "");
}

struct tt_wire_hello tt_wire_hello_make(const struct tt_tcp_config *config)
{
    struct tt_wire_hello hello = {
        .version = TT_VERSION,
        .byte_order = TT_WIRE_MAGIC,
        .error_bytes = sizeof(struct tt_error),
        .world_size = config->world_size,
        .first_rank = config->first_rank,
        .local_count = config->local_count,
        .process = getpid(),
        .attempt = config->attempt,
    };
    snprintf(hello.machine, sizeof hello.machine, "%s", config->machine);
    snprintf(hello.run, sizeof hello.run, "%s", config->run != NULL ? config->run : "");
    tt_wire_host(hello.host, sizeof hello.host);
    return hello;
}

void tt_wire_clean_text(const void *from, size_t from_bytes, char *text, size_t text_bytes)
{
    const unsigned char *bytes = from;
    size_t count = 0;
    for (; count < from_bytes && count + 1 < text_bytes && bytes[count] != '\0'; count++)
        text[count] =
            bytes[count] == '\n' || (bytes[count] >= 32 && bytes[count] != 127) ? (char)bytes[count] : '?';
    text[count] = '\0';
}

void tt_wire_clean_error(struct tt_error *error)
{
    struct tt_error clean = {.status = TT_ERR_INTERNAL, .cause = TT_OK};
    if ((unsigned)error->status <= TT_ERR_INTERNAL) clean.status = error->status;
    if ((unsigned)error->cause <= TT_ERR_INTERNAL) clean.cause = error->cause;
    tt_wire_clean_text(error->message, sizeof error->message, clean.message, sizeof clean.message);
    tt_wire_clean_text(error->hint, sizeof error->hint, clean.hint, sizeof clean.hint);
    for (int i = 0; i < error->context_count && i < TT_ERROR_CONTEXT_MAX; i++)
        tt_wire_clean_text(error->context[i], sizeof error->context[i], clean.context[clean.context_count++],
                           sizeof clean.context[i]);
    *error = clean;
}

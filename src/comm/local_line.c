#include "comm/local_line.h"

#include <sodium.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PENDING_MAX = 1024 };
_Static_assert(sizeof(struct tt_wire_rank) == 32, "no padding, which would make names differ");

/* "\0trimtab-", then 32 hexadecimal digits. */
static socklen_t address_of(const struct tt_proof_key *key, const struct tt_wire_rank *rank,
                            struct sockaddr_un *address)
{
    static const char prefix[] = "trimtab-";
    struct {
        char purpose[24];
        struct tt_wire_rank rank;
    } message = {.purpose = "trimtab data line", .rank = *rank};
    unsigned char sum[16];
    char *name = address->sun_path + 1;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    crypto_generichash(sum, sizeof sum, (const unsigned char *)&message, sizeof message, key->bytes,
                       sizeof key->bytes);
    memcpy(name, prefix, sizeof prefix - 1);
    name += sizeof prefix - 1;
    sodium_bin2hex(name, 2 * sizeof sum + 1, sum, sizeof sum);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + sizeof prefix - 1 + 2 * sizeof sum);
}

int tt_local_line_listen(const struct tt_proof_key *key, const struct tt_wire_rank *rank)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(key, rank, &address);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    if (file < 0) return -1;
    tt_wire_prepare_socket(file);
    if (bind(file, (const struct sockaddr *)&address, bytes) == 0 && listen(file, PENDING_MAX) == 0)
        return file;
    close(file);
    return -1;
}

int tt_local_line_connect(const struct tt_proof_key *key, const struct tt_wire_rank *rank)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(key, rank, &address);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    if (file < 0) return -1;
    tt_wire_prepare_socket(file);
    if (connect(file, (const struct sockaddr *)&address, bytes) == 0) return file;
    close(file);
    return -1;
}

bool tt_local_line_is(int socket)
{
    int domain = 0;
    socklen_t bytes = sizeof domain;
    return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

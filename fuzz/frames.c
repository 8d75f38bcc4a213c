/* Bytes of a stranger at the rendezvous port, and frames of a member that has gone wrong. The first byte
 * chooses how far the connection gets before the bytes follow: nothing, the opening, the opening and the head
 * of a hello, or a whole hello, so that the bytes are a member's. The hub must answer the next process after
 * each of them. */
/* links: tt_comm */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "comm/hub.h"
#include "comm/wire.h"

enum { RAW, OPENED, HELLO, MEMBER, MODES, WORLD_SIZE = 3, PATIENCE_SECONDS = 25 };

static struct tt_hub *hub;
static int port;

static void start_hub(void)
{
    struct tt_hub_config config = {.local = true,
                                   .port = port,
                                   .world_size = WORLD_SIZE,
                                   .settings = "seed: 1\n",
                                   .timeout_seconds = 1e6};
    if (tt_hub_start(&config, &hub) != TT_OK) abort();
}

static void choose_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(file, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(file, (struct sockaddr *)&address, &bytes) != 0)
        abort();
    port = ntohs(address.sin_port);
    close(file);
}

static int dial(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    /* Closing resets: a million connections would leave no port otherwise. */
    struct linger reset = {.l_onoff = 1};
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int at_once = 1;
    if (file < 0 || setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once) != 0 ||
        setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        setsockopt(file, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) != 0 ||
        connect(file, (struct sockaddr *)&address, sizeof address) != 0)
        abort();
    return file;
}

static void say(int file, const void *data, size_t bytes)
{
    (void)!send(file, data, bytes, MSG_NOSIGNAL);
}

static bool hear(int file, void *data, size_t bytes)
{
    return recv(file, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* An opening is answered, whatever came before. */
static void open_connection(int file)
{
    struct tt_proof proof;
    struct tt_proof_key none = {0};
    tt_proof_open(&none, TT_PROOF_CONTROL, &proof);
    say(file, &proof.opening, sizeof proof.opening);
    if (!hear(file, &proof.challenge, sizeof proof.challenge) || !tt_proof_is_challenge(&proof)) abort();
}

static void join(int file)
{
    static const char settings[] = "seed: 1\n";
    struct tt_wire_hello hello = tt_wire_hello_make(WORLD_SIZE, 1, 1, -1, "fuzz");
    struct tt_wire_header header = {
        .magic = TT_WIRE_MAGIC, .kind = TT_WIRE_HELLO, .bytes = sizeof hello + sizeof settings - 1};
    struct tt_wire_accept accept;
    say(file, &header, sizeof header);
    say(file, &hello, sizeof hello);
    say(file, settings, sizeof settings - 1);
    if (!hear(file, &header, sizeof header) || header.kind != TT_WIRE_ACCEPT ||
        header.bytes != sizeof accept || !hear(file, &accept, sizeof accept))
        abort();
}

/* Until the hub closes the connection; a connection that says nothing more may not live on. */
static void drain(int file)
{
    char bytes[4096];
    ssize_t count;
    shutdown(file, SHUT_WR);
    do count = recv(file, bytes, sizeof bytes, 0);
    while (count > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t runs;
    if (size == 0) return 0;
    if (port == 0) choose_port();
    if (hub == NULL) start_hub();
    int mode = data[0] % MODES, file = dial();
    if (mode != RAW) open_connection(file);
    if (mode == HELLO) {
        struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_HELLO, .bytes = size - 1};
        say(file, &header, sizeof header);
    }
    if (mode == MEMBER) join(file);
    say(file, data + 1, size - 1);
    drain(file);
    close(file);
    if (mode == MEMBER || mode == HELLO) { /* a member that is gone ends the run: the next one begins */
        tt_hub_stop(hub);
        hub = NULL;
    } else if (++runs % 64 == 0) {
        file = dial();
        open_connection(file);
        close(file);
    }
    return 0;
}

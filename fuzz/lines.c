/* Data lines between processes, and strangers at both ends of them: one listens in the place of rank 0, one
 * connects in the place of rank 2 to rank 1, whose process is under test. The first byte chooses how far each of
 * them behaves like a member, the second the part of the remaining bytes that the first one sends. Lines are
 * created with members only. */
/* links: tt_comm */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/lines.h"
#include "talk.h"

enum { WORLD_SIZE = 3, RANK = 1, IDLE_LOOKS = 8, PATIENT_LOOKS = 20000 };

enum mode {
    RAW,    /* nothing is sent before the bytes */
    OPENED, /* its challenge or opening: the bytes are its sum */
    PROVEN, /* the sum too; the guest's bytes are combined (xor) with the line that it should name */
    MODES
};

enum stage { NOT_HERE, BEFORE_PROOF, BEFORE_SUM, SAID };

struct stranger {
    enum mode mode;
    const uint8_t *data;
    size_t size;
    enum stage stage;
    int file;
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    size_t have;  /* received of the bytes that it waits for */
    size_t heard; /* received after it has sent everything */
};

static struct {
    struct tt_proof_key key;
    struct tt_wire_address rank0;
    int listener, awake;
} place = {.listener = -1};

static struct stranger called, guest;
static int listener_port, idle;

static void choose_place(void)
{
    static const char secret[] = "what all processes of a run know";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    place.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    place.awake = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK); /* no waiting: bytes are there or never come */
    if (tt_proof_key_make(secret, sizeof secret - 1, &place.key) != TT_OK ||
        bind(place.listener, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(place.listener, (struct sockaddr *)&address, &bytes) != 0 ||
        listen(place.listener, 16) != 0)
        abort();
    place.rank0 = (struct tt_wire_address){.family = 4, .port = ntohs(address.sin_port)};
    memcpy(place.rank0.bytes, &address.sin_addr, sizeof address.sin_addr);
}

/* Continues to read; true when all bytes are there. */
static bool await(struct stranger *stranger, void *data, size_t bytes)
{
    ssize_t got = recv(stranger->file, (char *)data + stranger->have, bytes - stranger->have, MSG_DONTWAIT);
    if (got <= 0) return false;
    idle = 0;
    stranger->have += (size_t)got;
    if (stranger->have < bytes) return false;
    stranger->have = 0;
    return true;
}

static void say_rest(struct stranger *stranger)
{
    say(stranger->file, stranger->data, stranger->size);
    shutdown(stranger->file, SHUT_WR);
    stranger->stage = SAID;
    idle = 0;
}

static void listen_on(struct stranger *stranger)
{
    char bytes[256];
    ssize_t got = hear_some(stranger->file, bytes, sizeof bytes);
    if (got > 0) stranger->heard += (size_t)got;
}

static void move_called(void)
{
    struct stranger *own = &called;
    if (own->stage == NOT_HERE) {
        own->file = accept(place.listener, NULL, NULL);
        if (own->file < 0) return;
        (void)fcntl(own->file, F_SETFL, O_NONBLOCK);
        own->stage = BEFORE_PROOF;
        idle = 0;
    }
    if (own->stage == BEFORE_PROOF && own->mode == RAW) say_rest(own);
    if (own->stage == BEFORE_PROOF && await(own, &own->proof.opening, sizeof own->proof.opening)) {
        if (!tt_proof_answer(&place.key, &own->proof) || own->proof.opening.role != TT_PROOF_DATA) abort();
        say(own->file, &own->proof.challenge, sizeof own->proof.challenge);
        own->stage = BEFORE_SUM;
        if (own->mode == OPENED) say_rest(own);
    }
    if (own->stage == BEFORE_SUM && await(own, own->sum, sizeof own->sum)) {
        if (!tt_proof_verify(&place.key, &own->proof, TT_PROOF_OPENER, own->sum)) abort();
        tt_proof_sum(&place.key, &own->proof, TT_PROOF_ACCEPTER, own->sum);
        say(own->file, own->sum, sizeof own->sum);
        say_rest(own);
    }
}

/* The fuzzer's alarm interrupts a call that waits; the connection is made all the same. */
static int connect_to_listener(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)listener_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t bytes = sizeof error;
    if (file < 0) abort();
    if (connect(file, (struct sockaddr *)&address, sizeof address) == 0) return file;
    if (errno != EINPROGRESS && errno != EINTR) abort();
    struct pollfd writable = {.fd = file, .events = POLLOUT};
    while (poll(&writable, 1, -1) <= 0) continue;
    if (getsockopt(file, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) abort();
    return file;
}

static void move_guest(void)
{
    struct stranger *own = &guest;
    if (own->stage == NOT_HERE) {
        own->file = connect_to_listener();
        tt_proof_open(&place.key, TT_PROOF_DATA, &own->proof);
        if (own->mode != RAW) say(own->file, &own->proof.opening, sizeof own->proof.opening);
        own->stage = BEFORE_PROOF;
        idle = 0;
        if (own->mode == RAW) say_rest(own);
    }
    if (own->stage == BEFORE_PROOF && await(own, &own->proof.challenge, sizeof own->proof.challenge)) {
        if (!tt_proof_is_challenge(&own->proof)) abort();
        own->stage = BEFORE_SUM;
        if (own->mode == OPENED) {
            say_rest(own);
        } else {
            tt_proof_sum(&place.key, &own->proof, TT_PROOF_OPENER, own->sum);
            say(own->file, own->sum, sizeof own->sum);
        }
    }
    if (own->stage == BEFORE_SUM && await(own, own->sum, sizeof own->sum)) {
        if (!tt_proof_verify(&place.key, &own->proof, TT_PROOF_ACCEPTER, own->sum)) abort();
        say_rest(own);
    }
    if (own->stage == SAID) listen_on(own);
}

/* The process under test calls it after it has handled all events. The lines of two members may take long on a
 * busy machine; `context`: whether there are two. */
static tt_status look(void *context)
{
    idle++;
    move_called();
    move_guest();
    if (idle > IDLE_LOOKS && *(const bool *)context) (void)poll(NULL, 0, 1);
    return idle < (*(const bool *)context ? PATIENT_LOOKS : IDLE_LOOKS)
               ? TT_OK
               : tt_fail(TT_ERR_CANCELLED, "nothing more comes");
}

static struct stranger make_stranger(unsigned mode, const uint8_t *data, size_t size)
{
    return (struct stranger){.mode = mode % MODES, .data = data, .size = size, .file = -1};
}

static void connect_lines(bool all_good)
{
    int lines[WORLD_SIZE];
    /* Another machine: a process waits a second for the Unix socket of one of its own. */
    struct tt_wire_rank ranks[WORLD_SIZE] = {{.place = place.rank0, .machine = 1}};
    struct tt_wire_address loopback = place.rank0;
    struct tt_wire_listener listener;
    if (tt_wire_reserve(NULL, &loopback, &listener, &listener_port) != TT_OK) abort();
    idle = 0;
    struct tt_lines_config config = {.world_size = WORLD_SIZE,
                                     .first_rank = RANK,
                                     .local_count = 1,
                                     .ranks = ranks,
                                     .rank0 = &place.rank0,
                                     .key = &place.key,
                                     .listener = &listener,
                                     .port = listener_port,
                                     .control = place.awake,
                                     .check = look,
                                     .context = &all_good};
    tt_status status = tt_lines_connect(&config, lines);
    if ((status == TT_OK) != all_good) abort();
    if (called.mode != PROVEN && lines[0] >= 0) abort();
    if (guest.mode != PROVEN && lines[2] >= 0) abort();
    if (guest.mode == OPENED && guest.heard > 0)
        abort(); /* a stranger must not get a sum to guess the key by */
    tt_lines_close(lines, WORLD_SIZE);
    tt_wire_listener_close(&listener);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_line_hello good = {.magic = TT_WIRE_MAGIC, .from = 2, .to = RANK}, named;
    struct linger reset = {.l_onoff = 1};
    if (size < 2) return 0;
    if (place.listener < 0) choose_place();
    for (int late; (late = accept(place.listener, NULL, NULL)) >= 0;) close(late); /* from the last input */
    size_t rest = size - 2, first = data[1] < rest ? data[1] : rest;
    called = make_stranger(data[0], data + 2, first);
    guest = make_stranger(data[0] / MODES, data + 2 + first, rest - first);
    uint8_t *line = malloc(guest.size + 1);
    if (line == NULL) abort();
    if (guest.size > 0) memcpy(line, guest.data, guest.size);
    for (size_t i = 0; i < guest.size && i < sizeof good && guest.mode == PROVEN; i++)
        line[i] ^= ((const uint8_t *)&good)[i];
    guest.data = line;
    memcpy(&named, line, guest.size < sizeof named ? guest.size : sizeof named);
    connect_lines(called.mode == PROVEN && guest.mode == PROVEN && guest.size >= sizeof named &&
                  named.magic == good.magic && named.from == good.from && named.to == good.to);
    for (struct stranger *stranger = &called; stranger != NULL;
         stranger = stranger == &called ? &guest : NULL) {
        if (stranger->file < 0) continue;
        (void)setsockopt(stranger->file, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(stranger->file);
    }
    free(line);
    return 0;
}

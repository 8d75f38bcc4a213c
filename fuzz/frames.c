/* Bytes of a stranger at the rendezvous port, and frames of a faulty member. The first byte chooses the state of
 * the connection at which the bytes follow. The hub must answer the next process after each of them. */
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

#include "comm/comm.h"
#include "comm/hub.h"
#include "comm/wire.h"
#include "talk.h"

enum { WORLD_SIZE = 3, PATIENCE_SECONDS = 25, CHECK_EVERY = 64 };

enum mode {
    RAW,    /* nothing is sent before the bytes */
    OPENED, /* an opening */
    HELLO,  /* an opening and the header of a hello; each byte is combined (xor) with that of a valid hello */
    MEMBER, /* a hello: the bytes are those of a process that belongs to the run, */
    PLACED, /* of one that has sent its address, while others are missing, */
    BEGUN,  /* of one after all have joined */
    SUM,    /* the opening of a process with a job secret: the bytes are its sum */
    PROVEN, /* the sum too; then as HELLO */
    MODES
};

static const char settings_text[] = "seed: 1\n";

/* One hub with a job secret, one without. */
static struct place {
    struct tt_hub *hub;
    struct tt_proof_key key;
    int port;
    int strangers; /* number of strangers at this hub; after CHECK_EVERY it is replaced */
} places[2];

static void choose_port(struct place *place)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(file, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(file, (struct sockaddr *)&address, &bytes) != 0)
        abort();
    place->port = ntohs(address.sin_port);
    close(file);
}

/* Starts a new hub. */
static void start_anew(struct place *place)
{
    struct tt_hub_config config = {.local = true,
                                   .world_size = WORLD_SIZE,
                                   .settings = settings_text,
                                   .key = place->key,
                                   .timeout_seconds = 1e6};
    if (place->port == 0) choose_port(place);
    config.port = place->port;
    tt_hub_stop(place->hub);
    if (tt_hub_start(&config, &place->hub) != TT_OK) abort();
}

static int dial(const struct place *place)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)place->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    /* Closing resets the connection: otherwise a million connections would use up all ports. */
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

/* The hub answers an opening, whatever has come before. */
static int open_connection(const struct place *place, enum tt_proof_role role, struct tt_proof *proof)
{
    int file = dial(place);
    tt_proof_open(&place->key, role, proof);
    say(file, &proof->opening, sizeof proof->opening);
    if (!hear(file, &proof->challenge, sizeof proof->challenge) || !tt_proof_is_challenge(proof)) abort();
    return file;
}

static void prove(const struct place *place, const struct tt_proof *proof, int file)
{
    unsigned char sum[TT_PROOF_SUM_BYTES];
    tt_proof_sum(&place->key, proof, TT_PROOF_OPENER, sum);
    say(file, sum, sizeof sum);
    if (!hear(file, sum, sizeof sum) || !tt_proof_verify(&place->key, proof, TT_PROOF_ACCEPTER, sum)) abort();
}

static struct tt_wire_hello make_hello(int first_rank, int local_count)
{
    return tt_wire_hello_make(&(struct tt_tcp_config){
        .world_size = WORLD_SIZE, .first_rank = first_rank, .local_count = local_count, .machine = "fuzz"});
}

/* Opens the control connection of the process of these ranks. */
static int join(const struct place *place, int first_rank, int local_count)
{
    struct tt_proof proof;
    struct {
        struct tt_proof_opening opening;
        struct tt_wire_header header;
        struct tt_wire_hello hello;
        char settings[sizeof settings_text - 1];
    } said;
    struct {
        struct tt_proof_challenge challenge;
        struct tt_wire_header header;
        struct tt_wire_accept accept;
    } heard;
    _Static_assert(sizeof said ==
                       sizeof said.opening + sizeof said.header + sizeof said.hello + sizeof said.settings,
                   "nothing lies between what is said");
    _Static_assert(sizeof heard == sizeof heard.challenge + sizeof heard.header + sizeof heard.accept,
                   "nothing lies between what is heard");
    int file = dial(place);
    tt_proof_open(&place->key, TT_PROOF_CONTROL, &proof);
    said.opening = proof.opening;
    said.header = (struct tt_wire_header){
        .magic = TT_WIRE_MAGIC, .kind = TT_WIRE_HELLO, .bytes = sizeof said.hello + sizeof said.settings};
    said.hello = make_hello(first_rank, local_count);
    memcpy(said.settings, settings_text, sizeof said.settings);
    say(file, &said, sizeof said);
    if (!hear(file, &heard, sizeof heard) || heard.header.kind != TT_WIRE_ACCEPT ||
        heard.header.bytes != sizeof heard.accept)
        abort();
    return file;
}

/* Reads until the hub closes the connection, which it must do when nothing more is sent. Returns the number of
 * bytes. */
static size_t drain(int file)
{
    char bytes[4096];
    size_t heard = 0;
    shutdown(file, SHUT_WR);
    for (ssize_t got; (got = hear_some(file, bytes, sizeof bytes)) > 0;) heard += (size_t)got;
    close(file);
    return heard;
}

/* Whether the hub accepts a hello, with settings after it. */
static bool is_good(const uint8_t *said, size_t size)
{
    struct tt_wire_hello hello, good = make_hello(1, 1);
    if (size < sizeof hello) return false;
    memcpy(&hello, said, sizeof hello);
    const char *settings = (const char *)said + sizeof hello; /* terminated by a 0 */
    return strncmp(hello.version, good.version, sizeof hello.version) == 0 &&
           hello.byte_order == good.byte_order && hello.error_bytes == good.error_bytes &&
           hello.world_size == WORLD_SIZE && hello.first_rank >= 0 && hello.local_count >= 1 &&
           (int64_t)hello.first_rank + hello.local_count <= WORLD_SIZE && hello.attempt <= good.attempt &&
           strcmp(settings, settings_text) == 0;
}

static void say_hello(int file, const uint8_t *data, size_t size)
{
    struct tt_wire_hello hello = make_hello(1, 1);
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_HELLO, .bytes = size};
    const size_t good = sizeof hello + sizeof settings_text - 1;
    uint8_t *bytes = calloc(1, sizeof header + good + size + 1), *at = bytes + sizeof header;
    if (bytes == NULL) abort();
    memcpy(bytes, &header, sizeof header);
    memcpy(at, &hello, sizeof hello);
    memcpy(at + sizeof hello, settings_text, sizeof settings_text - 1);
    for (size_t i = 0; i < size; i++) at[i] ^= data[i];
    at[size] = 0;
    say(file, bytes, sizeof header + size);
    bool accepted = hear(file, &header, sizeof header) && header.kind == TT_WIRE_ACCEPT;
    if (accepted != is_good(at, size)) abort();
    free(bytes);
}

static void say_place(int file)
{
    struct {
        struct tt_wire_header header;
        struct tt_wire_address place;
    } said = {{.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_PLACE, .bytes = sizeof said.place},
              {.family = TT_WIRE_SAME, .port = 9}};
    say(file, &said, sizeof said.header + sizeof said.place);
}

static void run_member(const struct place *place, enum mode mode, const uint8_t *data, size_t size)
{
    int file = join(place, 1, 2), other = -1;
    if (mode != MEMBER) say_place(file);
    if (mode == BEGUN) {
        struct tt_wire_header welcome;
        other = join(place, 0, 1);
        say_place(other);
        do
            if (!hear(file, &welcome, sizeof welcome)) abort();
        while (welcome.kind == TT_WIRE_BEAT);
        if (welcome.kind != TT_WIRE_WELCOME) abort();
    }
    say(file, data, size);
    drain(file);
    if (other >= 0) drain(other);
}

static void run_stranger(const struct place *place, enum mode mode, const uint8_t *data, size_t size)
{
    struct tt_proof proof;
    int file = mode == RAW ? dial(place) : open_connection(place, TT_PROOF_CONTROL, &proof);
    if (mode == PROVEN) prove(place, &proof, file);
    if (mode == HELLO || mode == PROVEN)
        say_hello(file, data, size);
    else
        say(file, data, size);
    size_t heard = drain(file);
    if (mode == SUM && heard > 0)
        abort(); /* a stranger must not get a sum, which would help to guess the secret */
}

static struct place *place_for(enum mode mode)
{
    static const char secret[] = "what all processes of a run know";
    struct place *place = &places[mode == SUM || mode == PROVEN];
    if (place == &places[1] && !place->key.is_set &&
        tt_proof_key_make(secret, sizeof secret - 1, &place->key) != TT_OK)
        abort();
    return place;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    enum mode mode = data[0] % MODES;
    struct place *place = place_for(mode);
    bool lasts = mode == RAW || mode == OPENED || mode == SUM; /* the loss of a member ends the run */
    if (place->hub == NULL || place->strangers == CHECK_EVERY || !lasts) {
        start_anew(place);
        place->strangers = 0;
    }
    if (mode == MEMBER || mode == PLACED || mode == BEGUN)
        run_member(place, mode, data + 1, size - 1);
    else
        run_stranger(place, mode, data + 1, size - 1);
    if (!lasts) {
        place->strangers = CHECK_EVERY;
    } else if (++place->strangers == CHECK_EVERY) {
        struct tt_proof proof;
        close(open_connection(place, TT_PROOF_CONTROL, &proof));
    }
    return 0;
}

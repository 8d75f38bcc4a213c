/* A process that joins a run, and a stranger that listens in the place of rank 0. The first byte chooses how
 * long the stranger answers like rank 0 before the bytes follow, on each connection again. Whatever it sends,
 * the process gives up or joins, and prints nothing that controls a terminal. */
/* links: tt_comm */
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/utf8.h"
#include "comm/lines.h"
#include "comm/meet.h"
#include "comm/proof.h"
#include "comm/wire.h"
#include "talk.h"

enum {
    WORLD_SIZE = 3,
    FIRST_RANK = 1,
    LOCAL_COUNT = 2,
    PATIENCE_SECONDS = 25,
    WAITED_MAX = 30, /* hundredths of a second */
    BYTES_MAX = 1 << 14,
    FILES_MAX = 8
};

enum mode {
    RAW,        /* nothing is sent before the bytes */
    CHALLENGED, /* a challenge */
    PROVEN,     /* a challenge and the sum of a process with the job secret */
    ACCEPTED,   /* a challenge and a frame that accepts the process */
    MODES
};

/* The stranger's script, and its connections. They stay open until the process has given up or joined, because
 * closing a socket with unread bytes discards the bytes sent. */
static struct {
    pthread_mutex_t mutex;
    enum mode mode;
    size_t bytes;
    uint8_t data[BYTES_MAX];
    int files[FILES_MAX], file_count;
} script = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct tt_proof_key key;
static int listener, port;

/* A process that rank 0 has left tries for half a minute to reach the other ranks: here it is stopped before that. */
static struct tt_cancel cancel;
static atomic_int waited; /* hundredths of a second of this input */

static void answer(int file, enum mode mode, const uint8_t *data, size_t bytes)
{
    static const struct tt_proof_key none;
    struct tt_proof proof;
    const struct tt_proof_key *own = mode == PROVEN ? &key : &none;
    if (mode != RAW) {
        if (!hear(file, &proof.opening, sizeof proof.opening) || !tt_proof_answer(own, &proof)) abort();
        say(file, &proof.challenge, sizeof proof.challenge);
    }
    if (mode == PROVEN) {
        unsigned char sum[TT_PROOF_SUM_BYTES];
        if (!hear(file, sum, sizeof sum) || !tt_proof_verify(own, &proof, TT_PROOF_OPENER, sum)) abort();
        tt_proof_sum(own, &proof, TT_PROOF_ACCEPTER, sum);
        say(file, sum, sizeof sum);
    }
    if (mode == ACCEPTED) {
        struct tt_wire_accept accept = {.host = "stranger"};
        struct tt_wire_header header = {
            .magic = TT_WIRE_MAGIC, .kind = TT_WIRE_ACCEPT, .bytes = sizeof accept};
        say(file, &header, sizeof header);
        say(file, &accept, sizeof accept);
    }
    say(file, data, bytes);
}

static void *listen_forever(void *argument)
{
    static uint8_t data[BYTES_MAX];
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    (void)argument;
    for (;;) {
        int file;
        do file = accept(listener, NULL, NULL);
        while (file < 0 && errno == EINTR);
        if (file < 0 || setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) abort();
        pthread_mutex_lock(&script.mutex);
        enum mode mode = script.mode;
        size_t bytes = script.bytes;
        memcpy(data, script.data, bytes);
        pthread_mutex_unlock(&script.mutex);
        answer(file, mode, data, bytes);
        shutdown(file, SHUT_WR);
        pthread_mutex_lock(&script.mutex);
        if (script.file_count == FILES_MAX) abort();
        script.files[script.file_count++] = file;
        pthread_mutex_unlock(&script.mutex);
    }
    return NULL;
}

static void *stop_late(void *argument)
{
    (void)argument;
    for (;;) {
        usleep(10000);
        if (atomic_fetch_add(&waited, 1) == WAITED_MAX) atomic_store(&cancel.requests, 1);
    }
    return NULL;
}

static void write_script(enum mode mode, const uint8_t *data, size_t bytes)
{
    pthread_mutex_lock(&script.mutex);
    for (int i = 0; i < script.file_count; i++) close(script.files[i]);
    script.file_count = 0;
    script.mode = mode;
    script.bytes = bytes;
    memcpy(script.data, data, bytes);
    pthread_mutex_unlock(&script.mutex);
}

static void open_listener(void)
{
    static const char secret[] = "what all processes of a run know";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    pthread_t thread, clock;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (tt_proof_key_make(secret, sizeof secret - 1, &key) != TT_OK ||
        bind(listener, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0 || listen(listener, 16) != 0 ||
        pthread_create(&thread, NULL, listen_forever, NULL) != 0 ||
        pthread_create(&clock, NULL, stop_late, NULL) != 0)
        abort();
    port = ntohs(address.sin_port);
}

static void check_text(const char *text)
{
    char shown[sizeof((struct tt_error *)0)->message];
    if (tt_utf8_printable(text, strlen(text), "", shown, sizeof shown) >= sizeof shown ||
        strcmp(text, shown) != 0)
        abort();
}

static void check_error(const struct tt_error *error)
{
    if (error->context_count < 0 || error->context_count > TT_ERROR_CONTEXT_MAX) abort();
    check_text(error->message);
    check_text(error->hint);
    for (int i = 0; i < error->context_count; i++) check_text(error->context[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int control = -1, lines[LOCAL_COUNT * WORLD_SIZE], machines[WORLD_SIZE] = {0};
    if (size == 0 || size > BYTES_MAX) return 0;
    if (port == 0) open_listener();
    enum mode mode = data[0] % MODES;
    write_script(mode, data + 1, size - 1);
    atomic_store(&cancel.requests, 0);
    atomic_store(&waited, 0);
    for (size_t i = 0; i < LOCAL_COUNT * WORLD_SIZE; i++) lines[i] = -1;
    struct tt_tcp_config config = {.host = "127.0.0.1",
                                   .port = port,
                                   .key = mode == PROVEN ? &key : NULL,
                                   .world_size = WORLD_SIZE,
                                   .first_rank = FIRST_RANK,
                                   .local_count = LOCAL_COUNT,
                                   .machine = "fuzz",
                                   .cancel = &cancel,
                                   .settings = "seed: 1\n"}; /* no time: one attempt */
    tt_status status = tt_meet(&config, &control, lines, machines);
    for (int q = 0; q < WORLD_SIZE; q++)
        if (machines[q] < 0 || machines[q] > q) abort();
    if (status != TT_OK) check_error(tt_error_last());
    if (control >= 0) close(control);
    tt_lines_close(lines, LOCAL_COUNT * WORLD_SIZE);
    return 0;
}

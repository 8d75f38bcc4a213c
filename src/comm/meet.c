#include "comm/meet.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/comm_impl.h"
#include "comm/lines.h"
#include "comm/proof.h"
#include "comm/wire.h"

enum {
    RETRY_MS = 250,
    TRY_SECONDS = 10,      /* for one attempt, until rank 0 has sent its challenge and its proof */
    REMINDER_SECONDS = 10, /* between log lines about the wait for rank 0 */
    FAREWELL_SECONDS = 2,
};

/* A process that joins the run. */
struct meeting {
    const struct tt_tcp_config *config;
    struct tt_proof_key key;
    const char *host; /* of the last attempt */
    double deadline;
    bool final; /* a retry cannot mend the last error */
    double logged_at;
    char refusal[300];           /* text of the last refusal of rank 0; empty: none */
    bool twin;                   /* it was TT_WIRE_REFUSAL_TWIN */
    const char *secret_fault;    /* why the last attempt that reached the proofs failed; NULL: it did not */
    struct tt_wire_accept rank0; /* set when the control connection is accepted */
    int control;
    double beat_at;                   /* time of the last beat */
    struct tt_wire_listener listener; /* for data lines */
    int port;                         /* of the listener */
};

static bool is_cancelled(const struct meeting *meeting)
{
    const struct tt_cancel *cancel = meeting->config->cancel;
    return cancel != NULL && atomic_load(&cancel->requests) > 0;
}

static tt_status fail_cancelled(struct meeting *meeting)
{
    meeting->final = true;
    return tt_fail(TT_ERR_CANCELLED, "stopped on request while joining the run");
}

static tt_status fail_stranger(const struct meeting *meeting)
{
    return tt_fail(TT_ERR_COMM, "the listener at %s port %d is not rank 0 of this program", meeting->host,
                   meeting->config->port);
}

/* ---- One connection ---- */

/* Ends a wait after a stop request or at the deadline. `awaited`: the bytes that rank 0 should send. */
static tt_status check_wait(struct meeting *meeting, double deadline, const char *awaited)
{
    if (is_cancelled(meeting)) return fail_cancelled(meeting);
    if (tt_clock_seconds() <= deadline) return TT_OK;
    return tt_fail(TT_ERR_COMM, "rank 0 at %s port %d did not send %s in time", meeting->host,
                   meeting->config->port, awaited);
}

/* Receives `bytes` from rank 0, and polls for a stop request meanwhile. */
static tt_status receive(struct meeting *meeting, int socket, void *data, size_t bytes, double deadline,
                         const char *awaited)
{
    struct pollfd file = {.fd = socket, .events = POLLIN};
    while (poll(&file, 1, RETRY_MS) <= 0) TT_TRY(check_wait(meeting, deadline, awaited));
    if (tt_wire_receive(socket, -1, data, bytes, tt_clock_seconds() + TRY_SECONDS) == TT_WIRE_OK)
        return TT_OK;
    tt_fail(TT_ERR_COMM, "rank 0 at %s port %d closed the connection before it sent %s", meeting->host,
            meeting->config->port, awaited);
    tt_hint("its log says why; without a line there it was killed, or its machine or network failed");
    return TT_ERR_COMM;
}

static tt_status send_all(struct meeting *meeting, int socket, struct iovec *parts, int count)
{
    if (tt_wire_send_parts(socket, -1, parts, count, tt_clock_seconds() + TRY_SECONDS) == TT_WIRE_OK)
        return TT_OK;
    return tt_fail(TT_ERR_COMM, "rank 0 at %s port %d closed the connection", meeting->host,
                   meeting->config->port);
}

static tt_status fail_secret(struct meeting *meeting, const char *what)
{
    meeting->secret_fault = what;
    tt_fail(TT_ERR_USAGE, "rank 0 at %s port %d %s", meeting->host, meeting->config->port, what);
    tt_hint("TRIMTAB_JOB_SECRET or TRIMTAB_JOB_SECRET_FILE must be the same for all processes of a run");
    return TT_ERR_USAGE;
}

static tt_status prove(struct meeting *meeting, int socket)
{
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    double deadline = tt_clock_seconds() + TRY_SECONDS;
    struct iovec parts[1] = {{&proof.opening, sizeof proof.opening}};
    tt_proof_open(&meeting->key, TT_PROOF_CONTROL, &proof);
    TT_TRY(send_all(meeting, socket, parts, 1));
    TT_TRY(receive(meeting, socket, &proof.challenge, sizeof proof.challenge, deadline, "its challenge"));
    if (!tt_proof_is_challenge(&proof)) return fail_stranger(meeting);
    if (proof.challenge.secured != (uint32_t)meeting->key.is_set)
        return fail_secret(meeting, meeting->key.is_set ? "has no job secret, and this process has one"
                                                        : "has a job secret, and this process has none");
    if (!meeting->key.is_set) {
        meeting->secret_fault = NULL;
        return TT_OK;
    }
    tt_proof_sum(&meeting->key, &proof, TT_PROOF_OPENER, sum);
    parts[0] = (struct iovec){sum, sizeof sum};
    TT_TRY(send_all(meeting, socket, parts, 1));
    tt_status status = receive(meeting, socket, sum, sizeof sum, deadline, "its proof of the job secret");
    if (status == TT_ERR_COMM && tt_clock_seconds() <= deadline)
        return fail_secret(meeting, "closed the connection before it sent its proof of the job secret");
    TT_TRY(status);
    if (!tt_proof_verify(&meeting->key, &proof, TT_PROOF_ACCEPTER, sum))
        return fail_secret(meeting, "does not have the job secret of this process");
    meeting->secret_fault = NULL;
    return TT_OK;
}

static tt_status send_hello(struct meeting *meeting, int socket)
{
    const struct tt_tcp_config *config = meeting->config;
    const char *settings = config->settings != NULL ? config->settings : "";
    size_t settings_bytes = strlen(settings);
    struct tt_wire_hello hello = tt_wire_hello_make(config);
    struct tt_wire_header header = {
        .magic = TT_WIRE_MAGIC, .kind = TT_WIRE_HELLO, .bytes = sizeof hello + settings_bytes};
    struct iovec parts[3] = {
        {&header, sizeof header}, {&hello, sizeof hello}, {(void *)(uintptr_t)settings, settings_bytes}};
    if (settings_bytes > TT_WIRE_HELLO_BYTES_MAX) {
        meeting->final = true;
        return tt_fail(TT_ERR_UNSUPPORTED, "settings of %zu bytes are too long to compare", settings_bytes);
    }
    return send_all(meeting, socket, parts, 3);
}

/* A twin is an error of the cluster, which another start may mend; all others are one of the settings. */
static tt_status fail_refusal(const struct meeting *meeting)
{
    return tt_fail(meeting->twin ? TT_ERR_COMM : TT_ERR_USAGE, "rank 0 refused this process: %s",
                   meeting->refusal);
}

static tt_status receive_refusal(struct meeting *meeting, int socket, const struct tt_wire_header *header)
{
    char raw[TT_WIRE_TEXT_BYTES_MAX] = "";
    size_t wanted = header->bytes < sizeof raw ? (size_t)header->bytes : sizeof raw - 1;
    TT_TRY(receive(meeting, socket, raw, wanted, tt_clock_seconds() + TT_WIRE_BEAT_SECONDS,
                   "the reason of its refusal"));
    tt_wire_clean_text(raw, wanted, meeting->refusal, sizeof meeting->refusal);
    meeting->final = (header->parameter & TT_WIRE_REFUSAL_FINAL) != 0;
    meeting->twin = (header->parameter & TT_WIRE_REFUSAL_TWIN) != 0;
    return fail_refusal(meeting);
}

/* Error of a rank that failed before the run began. */
static tt_status receive_abort(struct meeting *meeting, int socket, const struct tt_wire_header *header)
{
    const struct tt_tcp_config *config = meeting->config;
    struct tt_error error = {0};
    if (header->bytes != sizeof error) return fail_stranger(meeting);
    TT_TRY(receive(meeting, socket, &error, sizeof error, tt_clock_seconds() + TT_WIRE_BEAT_SECONDS,
                   "the error of the failed rank"));
    tt_wire_clean_error(&error);
    meeting->final = true;
    int rank = header->parameter; /* received, so any number */
    if (rank >= config->first_rank && rank < config->first_rank + config->local_count)
        return tt_error_restore(&error);
    return tt_comm_fail_peer(rank, &error);
}

/* Receives the header of the next frame that is not a beat. A refusal or an abort is an error. */
static tt_status next_frame(struct meeting *meeting, int socket, double deadline, const char *awaited,
                            struct tt_wire_header *header)
{
    for (;;) {
        TT_TRY(receive(meeting, socket, header, sizeof *header, deadline, awaited));
        if (header->magic != TT_WIRE_MAGIC) return fail_stranger(meeting);
        if (header->kind != TT_WIRE_BEAT || header->bytes != 0) break;
        TT_TRY(check_wait(meeting, deadline, awaited));
    }
    if (header->kind == TT_WIRE_REFUSE) return receive_refusal(meeting, socket, header);
    if (header->kind == TT_WIRE_ABORT) return receive_abort(meeting, socket, header);
    return TT_OK;
}

static tt_status await_accept(struct meeting *meeting, int socket)
{
    struct tt_wire_header header;
    struct tt_wire_accept accept;
    static const char awaited[] = "its acceptance of this process";
    TT_TRY(next_frame(meeting, socket, meeting->deadline, awaited, &header));
    if (header.kind != TT_WIRE_ACCEPT || header.bytes != sizeof accept) return fail_stranger(meeting);
    TT_TRY(receive(meeting, socket, &accept, sizeof accept, meeting->deadline, awaited));
    tt_wire_clean_text(accept.host, sizeof accept.host, accept.host, sizeof accept.host);
    meeting->rank0 = accept;
    return TT_OK;
}

/* The host of an attempt. On this machine rank 0 may listen at either loopback address, so attempts alternate. */
static const char *choose_host(const struct meeting *meeting, unsigned tries)
{
    const struct tt_tcp_config *config = meeting->config;
    bool here = config->local || config->first_rank == 0;
    if (here && config->bind != NULL) return config->bind;
    if (here) return tries % 2 == 0 ? "127.0.0.1" : "::1";
    return config->host;
}

/* One attempt at the control connection. */
static tt_status try_control(struct meeting *meeting, unsigned tries)
{
    char why[200] = "";
    tt_status status = TT_OK;
    const struct tt_tcp_config *config = meeting->config;
    meeting->host = choose_host(meeting, tries);
    int socket =
        tt_wire_connect(meeting->host, config->port, tt_clock_seconds() + TRY_SECONDS, why, sizeof why);
    if (socket < 0)
        return tt_fail(TT_ERR_COMM, "rank 0 cannot be reached at %s port %d: %s", meeting->host, config->port,
                       why);
    TT_GO(prove(meeting, socket));
    TT_GO(send_hello(meeting, socket));
    TT_GO(await_accept(meeting, socket));
    meeting->control = socket;
out:
    if (status != TT_OK) close(socket);
    return status;
}

/* ---- All connections ---- */

/* Logs why this process waits: at once for an error that a user must mend, otherwise every REMINDER_SECONDS. */
static void log_wait(struct meeting *meeting, bool first)
{
    const struct tt_error *error = tt_error_last();
    double now = tt_clock_seconds();
    if (now - meeting->logged_at < REMINDER_SECONDS && !(first && error->status == TT_ERR_USAGE)) return;
    tt_notice("rank %d of %d waits: %s", meeting->config->first_rank, meeting->config->world_size,
              error->message);
    meeting->logged_at = now;
}

/* The refusal is the error to report for a process that retried after it until its time or the run ended. */
static tt_status fail_refused(const struct meeting *meeting)
{
    struct tt_error end;
    tt_error_copy(&end);
    tt_status status = fail_refusal(meeting);
    tt_while("retrying, until %s", end.message);
    return status;
}

/* The secret is the error to report where rank 0 had another one, or none, and has ended since. */
static tt_status fail_secret_fault(struct meeting *meeting)
{
    struct tt_error end;
    tt_error_copy(&end);
    tt_status status = fail_secret(meeting, meeting->secret_fault);
    tt_while("retrying, until %s", end.message);
    return status;
}

static tt_status give_up(struct meeting *meeting)
{
    if (tt_error_last()->status != TT_ERR_USAGE) {
        if (meeting->refusal[0] != '\0' && !meeting->twin)
            (void)!fail_refused(meeting);
        else if (meeting->refusal[0] != '\0')
            (void)!fail_refusal(meeting);
        else if (meeting->secret_fault != NULL)
            (void)!fail_secret_fault(meeting);
    }
    tt_while("trying to join the run for %.0f s", meeting->config->timeout_seconds);
    if (meeting->secret_fault != NULL) return tt_error_last()->status; /* it has a hint already */
    tt_hint("check that rank 0 runs, that this is its address, and that the run has not begun without this "
            "process; --rendezvous_timeout sets the time to wait");
    return tt_error_last()->status;
}

/* Retries until the deadline: rank 0 may be started last, and another program may use its port until then. */
static tt_status open_control(struct meeting *meeting)
{
    bool complained = false;
    for (unsigned tries = 0;; tries++) {
        tt_status status = try_control(meeting, tries);
        if (status == TT_ERR_PEER && meeting->refusal[0] != '\0') return fail_refused(meeting);
        if (status == TT_OK || meeting->final) return status;
        if (is_cancelled(meeting)) return fail_cancelled(meeting);
        if (tt_clock_seconds() >= meeting->deadline) return give_up(meeting);
        log_wait(meeting, !complained);
        complained = complained || status == TT_ERR_USAGE;
        (void)poll(NULL, 0, RETRY_MS);
    }
}

/* Chooses the addresses for data lines, and *place, the one that is sent to the hub. A process that has an address of
 * rendezvous_bind listens there. Otherwise a process on rank 0's machine that connected over loopback listens as rank 0
 * does, since the others connect from other machines, and all other processes listen at the address from which they
 * reach rank 0. */
static tt_status open_listener(struct meeting *meeting, struct tt_wire_address *place)
{
    const struct tt_tcp_config *config = meeting->config;
    struct tt_wire_address own;
    tt_wire_address_of(meeting->control, false, &own);
    *place = (struct tt_wire_address){.family = TT_WIRE_SAME};
    if (!config->local && config->first_rank > 0 && config->bind != NULL &&
        tt_wire_reserve(config->bind, NULL, &meeting->listener, &meeting->port) == TT_OK) {
        tt_wire_address_of(meeting->listener.sockets[0], false, &own);
        if (meeting->listener.count == 1 && !tt_wire_is_any(&own)) *place = own;
    } else if (!config->local && (config->first_rank == 0 || tt_wire_is_loopback(&own))) {
        TT_TRY(tt_wire_reserve(config->bind, NULL, &meeting->listener, &meeting->port));
    } else {
        TT_TRY(tt_wire_reserve(NULL, &own, &meeting->listener, &meeting->port));
    }
    place->port = meeting->port;
    return TT_OK;
}

static tt_status send_place(struct meeting *meeting)
{
    struct tt_wire_address place;
    TT_TRY(open_listener(meeting, &place));
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_PLACE, .bytes = sizeof place};
    struct iovec parts[2] = {{&header, sizeof header}, {&place, sizeof place}};
    return send_all(meeting, meeting->control, parts, 2);
}

static bool is_possible(const struct tt_wire_rank *rank, int q)
{
    const struct tt_wire_address *place = &rank->place;
    return rank->machine >= 0 && rank->machine <= q && place->port > 0 && place->port <= 65535 &&
           (place->family == TT_WIRE_SAME || place->family == 4 || place->family == 6);
}

/* Receives the addresses of all ranks into *welcome, which has `bytes`. */
static tt_status await_welcome(struct meeting *meeting, struct tt_wire_welcome *welcome, size_t bytes)
{
    struct tt_wire_header header;
    static const char awaited[] = "the addresses of all ranks";
    /* Later than the hub's own timeout, whose error names the missing ranks. */
    double deadline = meeting->deadline + 2 * REMINDER_SECONDS;
    TT_TRY(next_frame(meeting, meeting->control, deadline, awaited, &header));
    if (header.kind != TT_WIRE_WELCOME || header.bytes != bytes) return fail_stranger(meeting);
    TT_TRY(receive(meeting, meeting->control, welcome, bytes, deadline, awaited));
    for (int q = 0; q < meeting->config->world_size; q++)
        if (!is_possible(&welcome->ranks[q], q)) return fail_stranger(meeting);
    return TT_OK;
}

/* True if rank 0 has finished the whole run and left while this process still connects. Its TT_WIRE_BYE stays in the
 * connection for the link (comm/link.c). */
static bool rank0_has_left(int control)
{
    struct tt_wire_header header;
    return recv(control, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof header &&
           header.magic == TT_WIRE_MAGIC && header.kind == TT_WIRE_BYE && header.bytes == 0;
}

/* Called while data lines are connected: polls the control connection for an abort and sends beats to rank 0. */
static tt_status check_control(void *context)
{
    struct meeting *meeting = context;
    struct pollfd file = {.fd = meeting->control, .events = POLLIN};
    struct tt_wire_header header, beat = {.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_BEAT};
    double now = tt_clock_seconds();
    if (is_cancelled(meeting)) return fail_cancelled(meeting);
    if (rank0_has_left(meeting->control)) return TT_OK;
    if (now - meeting->beat_at > TT_WIRE_BEAT_SECONDS) {
        struct iovec parts[1] = {{&beat, sizeof beat}};
        TT_TRY(send_all(meeting, meeting->control, parts, 1));
        meeting->beat_at = now;
    }
    while (poll(&file, 1, 0) > 0 && !rank0_has_left(meeting->control)) {
        TT_TRY(
            receive(meeting, meeting->control, &header, sizeof header, now + TRY_SECONDS, "a whole message"));
        if (header.magic != TT_WIRE_MAGIC) return fail_stranger(meeting);
        if (header.kind == TT_WIRE_ABORT) return receive_abort(meeting, meeting->control, &header);
        if (header.kind != TT_WIRE_BEAT || header.bytes != 0) return fail_stranger(meeting);
        if (tt_clock_seconds() - now > TRY_SECONDS) return fail_stranger(meeting);
    }
    return TT_OK;
}

static tt_status connect_lines(struct meeting *meeting, const struct tt_wire_welcome *welcome, int *lines)
{
    const struct tt_tcp_config *config = meeting->config;
    struct tt_proof_key key;
    struct tt_wire_address rank0;
    tt_wire_address_of(meeting->control, true, &rank0);
    tt_proof_key_of_run(&meeting->key, welcome->key, &key);
    tt_status status = tt_lines_connect(&(struct tt_lines_config){.world_size = config->world_size,
                                                                  .first_rank = config->first_rank,
                                                                  .local_count = config->local_count,
                                                                  .ranks = welcome->ranks,
                                                                  .rank0 = &rank0,
                                                                  .key = &key,
                                                                  .listener = &meeting->listener,
                                                                  .port = meeting->port,
                                                                  .at_address = config->bind != NULL,
                                                                  .control = meeting->control,
                                                                  .check = check_control,
                                                                  .context = meeting},
                                        lines);
    tt_proof_wipe(&key, sizeof key);
    return status;
}

/* Logs the ranks and the machine of this process and rank 0's address, once in each process. */
static void log_meeting(const struct meeting *meeting, const int *machines)
{
    const struct tt_tcp_config *config = meeting->config;
    char host[80], ranks[48];
    int count = 0, first = config->first_rank, last = first + config->local_count - 1;
    for (int q = 0; q < config->world_size; q++)
        if (machines[q] >= count) count = machines[q] + 1;
    tt_wire_host(host, sizeof host);
    snprintf(ranks, sizeof ranks, last > first ? "ranks %d to %d" : "rank %d", first, last);
    tt_notice("%s of %d: process %lld on %s (machine %d of %d, '%s'); met rank 0, process %lld on %s, at %s "
              "port %d",
              ranks, config->world_size, (long long)getpid(), host, machines[first], count, config->machine,
              (long long)meeting->rank0.process, meeting->rank0.host, meeting->host, config->port);
}

/* Sends this process's error to the others, which wait for it, unless the error came from them. */
static void notify_others(const struct meeting *meeting, int control)
{
    struct tt_error error;
    tt_error_copy(&error);
    if (error.status == TT_ERR_PEER || error.reported_elsewhere) return;
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC,
                                    .kind = TT_WIRE_ABORT,
                                    .parameter = meeting->config->first_rank,
                                    .bytes = sizeof error};
    (void)tt_wire_send(control, -1, &header, &error, tt_clock_seconds() + FAREWELL_SECONDS);
}

tt_status tt_meet(const struct tt_tcp_config *config, int *control, int *lines, int *machines)
{
    tt_status status = TT_OK;
    double now = tt_clock_seconds();
    struct meeting meeting = {.config = config,
                              .host = config->host,
                              .deadline = now + config->timeout_seconds,
                              .logged_at = now,
                              .control = -1};
    size_t bytes = sizeof(struct tt_wire_welcome) + (size_t)config->world_size * sizeof(struct tt_wire_rank);
    struct tt_wire_welcome *welcome = tt_calloc(1, bytes);
    if (welcome == NULL) return TT_ERR_MEMORY;
    if (config->key != NULL) meeting.key = *config->key;
    TT_GO(open_control(&meeting));
    TT_GO(send_place(&meeting));
    TT_GO(await_welcome(&meeting, welcome, bytes));
    for (int q = 0; q < config->world_size; q++) machines[q] = welcome->ranks[q].machine;
    if (config->first_rank > 0) log_meeting(&meeting, machines);
    TT_GO(connect_lines(&meeting, welcome, lines));
out:
    if (status != TT_OK && meeting.control >= 0) notify_others(&meeting, meeting.control);
    *control = meeting.control;
    tt_wire_listener_close(&meeting.listener);
    tt_proof_wipe(&meeting.key, sizeof meeting.key);
    tt_proof_wipe(welcome, bytes);
    tt_free(welcome);
    return status;
}

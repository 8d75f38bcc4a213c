#include "comm/meet.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/comm_impl.h"
#include "comm/proof.h"
#include "comm/wire.h"

enum {
    RETRY_MS = 250,
    TRY_SECONDS = 10,      /* of one attempt, until rank 0 has answered with its challenge and its proof */
    REMINDER_SECONDS = 10, /* between lines about rank 0 */
    FAREWELL_SECONDS = 2,
};

/* A process on its way into the run. */
struct meeting {
    const struct tt_tcp_config *config;
    struct tt_proof_key key;
    const char *host; /* tried last */
    double deadline;
    bool final; /* the last error is one that trying again does not mend */
    double said;
    char refusal[300];           /* the last that rank 0 said to it */
    const char *doubt;           /* why the proofs of the last attempt that came to them failed, or NULL */
    struct tt_wire_accept rank0; /* once the control connection is accepted */
};

static bool is_cancelled(const struct meeting *meeting)
{
    const struct tt_cancel *cancel = meeting->config->cancel;
    return cancel != NULL && atomic_load(&cancel->requests) > 0;
}

static tt_status fail_cancelled(struct meeting *meeting)
{
    meeting->final = true;
    return tt_fail(TT_ERR_CANCELLED, "stopped on request while the ranks met");
}

static tt_status fail_stranger(const struct meeting *meeting)
{
    return tt_fail(TT_ERR_COMM, "what listens at %s port %d is no rank 0 of this program", meeting->host,
                   meeting->config->port);
}

/* ---- One connection ---- */

/* Whether waiting goes on. `phase`: what rank 0 has failed to do at the deadline. */
static tt_status check_wait(struct meeting *meeting, double deadline, const char *phase)
{
    if (is_cancelled(meeting)) return fail_cancelled(meeting);
    if (tt_clock_seconds() <= deadline) return TT_OK;
    return tt_fail(TT_ERR_COMM, "rank 0 at %s port %d did not say in time %s", meeting->host,
                   meeting->config->port, phase);
}

/* `bytes` that rank 0 sends, with a look at the wish to stop now and then. */
static tt_status receive(struct meeting *meeting, int socket, void *data, size_t bytes, double deadline,
                         const char *phase)
{
    struct pollfd file = {.fd = socket, .events = POLLIN};
    while (poll(&file, 1, RETRY_MS) <= 0) TT_TRY(check_wait(meeting, deadline, phase));
    if (tt_wire_receive(socket, -1, data, bytes, tt_clock_seconds() + TRY_SECONDS) == TT_WIRE_OK)
        return TT_OK;
    return tt_fail(TT_ERR_COMM, "rank 0 at %s port %d closed the connection before it said %s", meeting->host,
                   meeting->config->port, phase);
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
    meeting->doubt = what;
    tt_fail(TT_ERR_USAGE, "rank 0 at %s port %d %s", meeting->host, meeting->config->port, what);
    tt_hint("TRIMTAB_JOB_SECRET or TRIMTAB_JOB_SECRET_FILE must be the same for all processes of a run");
    return TT_ERR_USAGE;
}

static tt_status prove(struct meeting *meeting, enum tt_proof_role role, int socket)
{
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    double deadline = tt_clock_seconds() + TRY_SECONDS;
    struct iovec parts[1] = {{&proof.opening, sizeof proof.opening}};
    tt_proof_open(&meeting->key, role, &proof);
    TT_TRY(send_all(meeting, socket, parts, 1));
    TT_TRY(receive(meeting, socket, &proof.challenge, sizeof proof.challenge, deadline, "who it is"));
    if (!tt_proof_is_challenge(&proof)) return fail_stranger(meeting);
    if (proof.challenge.secured != (uint32_t)meeting->key.is_set)
        return fail_secret(meeting, meeting->key.is_set ? "has no job secret, and this process has one"
                                                        : "has a job secret, and this process has none");
    if (!meeting->key.is_set) {
        meeting->doubt = NULL;
        return TT_OK;
    }
    tt_proof_sum(&meeting->key, &proof, TT_PROOF_OPENER, sum);
    parts[0] = (struct iovec){sum, sizeof sum};
    TT_TRY(send_all(meeting, socket, parts, 1));
    tt_status status = receive(meeting, socket, sum, sizeof sum, deadline, "that the job secret is the same");
    if (status == TT_ERR_COMM && tt_clock_seconds() <= deadline)
        return fail_secret(meeting, "closed the connection before it said that the job secret is the same");
    TT_TRY(status);
    if (!tt_proof_verify(&meeting->key, &proof, TT_PROOF_ACCEPTER, sum))
        return fail_secret(meeting, "does not have the job secret of this process");
    meeting->doubt = NULL;
    return TT_OK;
}

static tt_status say_hello(struct meeting *meeting, int rank, int socket)
{
    const struct tt_tcp_config *config = meeting->config;
    const char *settings = rank < 0 && config->settings != NULL ? config->settings : "";
    size_t settings_bytes = strlen(settings);
    struct tt_wire_hello hello = tt_wire_hello_make(config->world_size, config->first_rank,
                                                    config->local_count, rank, config->machine);
    memcpy(hello.token, meeting->rank0.token, sizeof hello.token);
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

static tt_status take_refusal(struct meeting *meeting, int socket, const struct tt_wire_header *header)
{
    char raw[TT_WIRE_TEXT_BYTES_MAX] = "";
    size_t wanted = header->bytes < sizeof raw ? (size_t)header->bytes : sizeof raw - 1;
    TT_TRY(receive(meeting, socket, raw, wanted, tt_clock_seconds() + TT_WIRE_BEAT_SECONDS, "why"));
    tt_wire_clean_text(raw, wanted, meeting->refusal, sizeof meeting->refusal);
    meeting->final = header->parameter != 0;
    return tt_fail(TT_ERR_USAGE, "rank 0 turned this process away: %s", meeting->refusal);
}

/* A rank failed before the run began. */
static tt_status take_abort(struct meeting *meeting, int socket, const struct tt_wire_header *header)
{
    const struct tt_tcp_config *config = meeting->config;
    struct tt_error error = {0};
    if (header->bytes != sizeof error) return fail_stranger(meeting);
    TT_TRY(receive(meeting, socket, &error, sizeof error, tt_clock_seconds() + TT_WIRE_BEAT_SECONDS, "why"));
    tt_wire_clean_error(&error);
    meeting->final = true;
    int rank = header->parameter - config->first_rank;
    if (rank >= 0 && rank < config->local_count) return tt_error_restore(&error);
    return tt_comm_fail_peer(header->parameter, &error);
}

/* The next frame but beats, however many of them come; one that ends the meeting is an error. */
static tt_status next_frame(struct meeting *meeting, int socket, double deadline, const char *phase,
                            struct tt_wire_header *header)
{
    for (;;) {
        TT_TRY(receive(meeting, socket, header, sizeof *header, deadline, phase));
        if (header->magic != TT_WIRE_MAGIC) return fail_stranger(meeting);
        if (header->kind != TT_WIRE_BEAT || header->bytes != 0) break;
        TT_TRY(check_wait(meeting, deadline, phase));
    }
    if (header->kind == TT_WIRE_REFUSE) return take_refusal(meeting, socket, header);
    if (header->kind == TT_WIRE_ABORT) return take_abort(meeting, socket, header);
    return TT_OK;
}

static tt_status await_accept(struct meeting *meeting, int rank, int socket)
{
    struct tt_wire_header header;
    struct tt_wire_accept accept;
    static const char phase[] = "that this process belongs to the run";
    TT_TRY(next_frame(meeting, socket, meeting->deadline, phase, &header));
    if (header.kind != TT_WIRE_ACCEPT || header.bytes != sizeof accept) return fail_stranger(meeting);
    TT_TRY(receive(meeting, socket, &accept, sizeof accept, meeting->deadline, phase));
    tt_wire_clean_text(accept.host, sizeof accept.host, accept.host, sizeof accept.host);
    if (rank < 0) meeting->rank0 = accept;
    return TT_OK;
}

/* Of this machine rank 0 may listen at either loopback address. */
static const char *choose_host(const struct meeting *meeting, unsigned tries)
{
    const struct tt_tcp_config *config = meeting->config;
    bool here = config->local || config->first_rank == 0;
    if (here && config->bind != NULL) return config->bind;
    if (here) return tries % 2 == 0 ? "127.0.0.1" : "::1";
    return config->host;
}

/* One attempt. `rank` -1: the control connection. */
static tt_status try_line(struct meeting *meeting, int rank, unsigned tries, int *line)
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
    TT_GO(prove(meeting, rank < 0 ? TT_PROOF_CONTROL : TT_PROOF_DATA, socket));
    TT_GO(say_hello(meeting, rank, socket));
    TT_GO(await_accept(meeting, rank, socket));
    *line = socket;
out:
    if (status != TT_OK) close(socket);
    return status;
}

/* ---- All connections ---- */

/* What waits on the control connection while another one is tried: an end of the meeting. */
static tt_status look_at_control(struct meeting *meeting, int control)
{
    struct pollfd file = {.fd = control, .events = POLLIN};
    struct tt_wire_header header;
    while (control >= 0 && poll(&file, 1, 0) > 0) {
        TT_TRY(receive(meeting, control, &header, sizeof header, tt_clock_seconds() + TRY_SECONDS,
                       "who is there"));
        if (header.magic != TT_WIRE_MAGIC) return fail_stranger(meeting);
        if (header.kind == TT_WIRE_ABORT) return take_abort(meeting, control, &header);
        if (header.kind != TT_WIRE_BEAT || header.bytes != 0) return fail_stranger(meeting);
        TT_TRY(check_wait(meeting, meeting->deadline, "that this rank belongs to the run"));
    }
    return TT_OK;
}

/* Why it waits: at once for what somebody must mend, else now and then. */
static void log_wait(struct meeting *meeting, bool first)
{
    const struct tt_error *error = tt_error_last();
    double now = tt_clock_seconds();
    if (now - meeting->said < REMINDER_SECONDS && !(first && error->status == TT_ERR_USAGE)) return;
    tt_notice("rank %d of %d waits: %s", meeting->config->first_rank, meeting->config->world_size,
              error->message);
    meeting->said = now;
}

/* Time or run ended while a process that had been turned away waited for its turn: that it was is its own
 * error. */
static tt_status fail_turned_away(const struct meeting *meeting)
{
    struct tt_error end;
    tt_error_copy(&end);
    tt_fail(TT_ERR_USAGE, "rank 0 turned this process away: %s", meeting->refusal);
    tt_while("waiting for its turn, until %s", end.message);
    return TT_ERR_USAGE;
}

/* Rank 0 was there and had another secret, or none: that it has ended since is of no interest. */
static tt_status fail_doubt(struct meeting *meeting)
{
    struct tt_error end;
    tt_error_copy(&end);
    tt_status status = fail_secret(meeting, meeting->doubt);
    tt_while("trying again, until %s", end.message);
    return status;
}

static tt_status give_up(struct meeting *meeting)
{
    if (tt_error_last()->status != TT_ERR_USAGE) {
        if (meeting->refusal[0] != '\0')
            (void)!fail_turned_away(meeting);
        else if (meeting->doubt != NULL)
            (void)!fail_doubt(meeting);
    }
    tt_while("trying for %.0f s to join the run", meeting->config->timeout_seconds);
    if (meeting->doubt != NULL) return tt_error_last()->status; /* its hint says what to do */
    tt_hint("is rank 0 running, is this its address, and has the run not begun without this process? "
            "--rendezvous_timeout says how long to wait");
    return tt_error_last()->status;
}

/* Rank 0 may be started last, and a stranger may be in the way: tries until the deadline. */
static tt_status open_line(struct meeting *meeting, int rank, int control, int *line)
{
    bool complained = false;
    for (unsigned tries = 0;; tries++) {
        tt_status status = try_line(meeting, rank, tries, line);
        if (status == TT_ERR_PEER && meeting->refusal[0] != '\0') return fail_turned_away(meeting);
        if (status == TT_OK || meeting->final) return status;
        if (is_cancelled(meeting)) return fail_cancelled(meeting);
        if (tt_clock_seconds() >= meeting->deadline) return give_up(meeting);
        log_wait(meeting, !complained);
        complained = complained || status == TT_ERR_USAGE;
        (void)poll(NULL, 0, RETRY_MS);
        TT_TRY(look_at_control(meeting, control));
    }
}

static tt_status await_welcome(struct meeting *meeting, int control, int *machines)
{
    const struct tt_tcp_config *config = meeting->config;
    struct tt_wire_header header;
    _Static_assert(sizeof(int) == sizeof(int32_t), "machines travel as they lie");
    static const char phase[] = "that all ranks are there";
    /* The hub says who is missing; this is for a hub that says nothing. */
    double deadline = meeting->deadline + 2 * REMINDER_SECONDS;
    TT_TRY(next_frame(meeting, control, deadline, phase, &header));
    if (header.kind != TT_WIRE_WELCOME || header.bytes != (uint64_t)config->world_size * sizeof(int32_t))
        return fail_stranger(meeting);
    TT_TRY(receive(meeting, control, machines, (size_t)header.bytes, deadline, phase));
    for (int q = 0; q < config->world_size; q++)
        if (machines[q] < 0 || machines[q] > q) machines[q] = q;
    return TT_OK;
}

/* Who this process is and whom it met, once in its own log. */
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

/* The others wait for this process: they learn that it will not come, unless they know more than it does. */
static void tell_others(const struct meeting *meeting, int control)
{
    struct tt_error error;
    tt_error_copy(&error);
    if (error.status == TT_ERR_PEER || error.told) return;
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC,
                                    .kind = TT_WIRE_ABORT,
                                    .parameter = meeting->config->first_rank,
                                    .bytes = sizeof error};
    (void)tt_wire_send(control, -1, &header, &error, tt_clock_seconds() + FAREWELL_SECONDS);
}

tt_status tt_meet(const struct tt_tcp_config *config, int *control, int *sockets, int *machines)
{
    tt_status status = TT_OK;
    double now = tt_clock_seconds();
    struct meeting meeting = {
        .config = config, .host = config->host, .deadline = now + config->timeout_seconds, .said = now};
    if (config->key != NULL) meeting.key = *config->key;
    TT_GO(open_line(&meeting, -1, -1, control));
    for (int r = 0; r < config->local_count; r++)
        TT_GO(open_line(&meeting, config->first_rank + r, *control, &sockets[r]));
    TT_GO(await_welcome(&meeting, *control, machines));
    if (config->first_rank > 0) log_meeting(&meeting, machines);
out:
    if (status != TT_OK && *control >= 0) tell_others(&meeting, *control);
    tt_proof_wipe(&meeting.key, sizeof meeting.key);
    tt_proof_wipe(&meeting.rank0, sizeof meeting.rank0);
    return status;
}

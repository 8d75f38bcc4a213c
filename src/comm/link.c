#include "comm/link.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/comm_impl.h"
#include "comm/lines.h"
#include "comm/meet.h"
#include "comm/wire.h"

enum {
    CAUSE_SECONDS = 8, /* the error of a failed rank may arrive this much later than its effects */
    FAREWELL_SECONDS = 2,
    AWAY_SECONDS = 4, /* a longer pause means that this process itself was stopped */
};

struct tt_link {
    pthread_mutex_t mutex; /* guards the next block */
    bool failed;           /* a rank has failed; the next members describe it */
    bool unsent;           /* the failure was not sent to the hub yet */
    int failed_rank;
    uint64_t reporter; /* `offset` of TT_WIRE_ABORT, or `detected_here` */
    struct tt_error cause;
    bool closing;
    int users;
    char activity[160];

    int wake;    /* eventfd, readable once `failed` */
    int command; /* eventfd for the thread: `unsent` or `closing` has changed */
    int control;
    int first_rank, local_count;
    int *machines; /* [world_size] */
    struct tt_thread *thread;
    struct tt_hub *hub; /* in the process of rank 0; otherwise NULL */
    char host[256];     /* of rank 0 */
};

/* Value of `reporter`: this process detected the failure itself (rank 0 is lost) and reports it. */
static const uint64_t detected_here = UINT64_MAX - 1;

static void signal_event(int event)
{
    uint64_t one = 1;
    (void)!write(event, &one, sizeof one);
}

static void set_failed(struct tt_link *link, int rank, const struct tt_error *cause, uint64_t reporter,
                       bool unsent)
{
    pthread_mutex_lock(&link->mutex);
    if (!link->failed) {
        link->failed = true;
        link->failed_rank = rank;
        link->cause = *cause;
        link->reporter = reporter;
        link->unsent = unsent;
        signal_event(link->wake);
        signal_event(link->command);
    }
    pthread_mutex_unlock(&link->mutex);
}

tt_status tt_link_poll(struct tt_link *link)
{
    pthread_mutex_lock(&link->mutex);
    bool failed = link->failed;
    struct tt_error cause = {0};
    if (failed) cause = link->cause;
    int rank = link->failed_rank;
    uint64_t reporter = link->reporter;
    pthread_mutex_unlock(&link->mutex);
    if (!failed) return TT_OK;
    if (reporter != UINT64_MAX) { /* the failed rank cannot report its error: another process does */
        tt_error_restore(&cause);
        if (reporter != detected_here && reporter != (uint64_t)link->first_rank)
            tt_error_set_reported_elsewhere(TT_OK);
        return cause.status != TT_OK ? cause.status : tt_fail(TT_ERR_PEER, "rank %d stopped", rank);
    }
    return tt_comm_fail_peer(rank, &cause);
}

tt_status tt_link_await_cause(struct tt_link *link)
{
    struct pollfd file = {.fd = link->wake, .events = POLLIN};
    (void)poll(&file, 1, CAUSE_SECONDS * 1000);
    return tt_link_poll(link);
}

void tt_link_abort(struct tt_link *link, int rank)
{
    struct tt_error cause;
    tt_error_copy(&cause);
    set_failed(link, rank, &cause, UINT64_MAX, true);
}

void tt_link_set_activity(struct tt_link *link, const char *activity)
{
    pthread_mutex_lock(&link->mutex);
    snprintf(link->activity, sizeof link->activity, "%s", activity);
    pthread_mutex_unlock(&link->mutex);
}

int tt_link_wake(const struct tt_link *link)
{
    return link->wake;
}

const int *tt_link_machines(const struct tt_link *link)
{
    return link->machines;
}

/* ---- The thread ---- */

static enum tt_wire_result send_control(struct tt_link *link, enum tt_wire_kind kind, int rank,
                                        const void *payload, size_t bytes)
{
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = kind, .parameter = rank, .bytes = bytes};
    return tt_wire_send(link->control, -1, &header, payload, tt_clock_seconds() + FAREWELL_SECONDS);
}

/* Receives one frame from the hub, of which the first byte has arrived. false: the connection is unusable. */
static bool receive_frame(struct tt_link *link, bool *left)
{
    struct tt_wire_header header;
    struct tt_error error;
    double deadline = tt_clock_seconds() + TT_WIRE_SILENCE_SECONDS;
    if (tt_wire_receive(link->control, -1, &header, sizeof header, deadline) != TT_WIRE_OK ||
        header.magic != TT_WIRE_MAGIC)
        return false;
    switch (header.kind) {
    case TT_WIRE_BEAT:
        return header.bytes == 0;
    case TT_WIRE_BYE:
        *left = true;
        return header.bytes == 0;
    case TT_WIRE_ABORT:
        if (header.bytes != sizeof error ||
            tt_wire_receive(link->control, -1, &error, sizeof error, deadline) != TT_WIRE_OK)
            return false;
        tt_wire_clean_error(&error);
        set_failed(link, header.parameter, &error, header.offset < detected_here ? header.offset : UINT64_MAX,
                   false);
        return true;
    default:
        return false;
    }
}

static void fail_hub_lost(struct tt_link *link, double silent_seconds)
{
    if (silent_seconds > 0)
        tt_fail(TT_ERR_PEER, "rank 0 (on %s) has been silent for %.0f s", link->host, silent_seconds);
    else
        tt_fail(TT_ERR_PEER, "rank 0 (on %s) closed its connection unexpectedly", link->host);
    tt_hint("it was stopped or killed, or its machine or network failed");
    struct tt_error cause;
    tt_error_copy(&cause);
    set_failed(link, 0, &cause, detected_here, false);
}

/* Sends the messages that the rank threads have requested. false: the link closes. */
static bool handle_command(struct tt_link *link)
{
    uint64_t count;
    (void)!read(link->command, &count, sizeof count);
    pthread_mutex_lock(&link->mutex);
    bool unsent = link->unsent, closing = link->closing;
    struct tt_error cause = link->cause;
    int rank = link->failed_rank;
    link->unsent = false;
    pthread_mutex_unlock(&link->mutex);
    if (unsent) (void)send_control(link, TT_WIRE_ABORT, rank, &cause, sizeof cause);
    if (closing) (void)send_control(link, TT_WIRE_BYE, 0, NULL, 0);
    return !closing;
}

/* Sends a beat if the last one is old or the activity has changed. */
static void beat(struct tt_link *link, double now, double *beat_at, char sent_activity[160])
{
    pthread_mutex_lock(&link->mutex);
    bool changed = strcmp(sent_activity, link->activity) != 0;
    snprintf(sent_activity, sizeof link->activity, "%s", link->activity);
    pthread_mutex_unlock(&link->mutex);
    if (!changed && now - *beat_at < TT_WIRE_BEAT_SECONDS) return;
    *beat_at = now;
    (void)send_control(link, TT_WIRE_BEAT, 0, sent_activity, strlen(sent_activity));
}

static tt_status link_main(void *argument)
{
    struct tt_link *link = argument;
    struct pollfd files[2] = {{.fd = link->command, .events = POLLIN},
                              {.fd = link->control, .events = POLLIN}};
    double now = tt_clock_seconds(), received_at = now, beat_at = 0;
    bool hub_left = false;
    char sent_activity[160] = "";
    for (;;) {
        double before = now;
        if (files[1].fd >= 0) beat(link, now, &beat_at, sent_activity);
        (void)poll(files, 2, TT_WIRE_BEAT_SECONDS * 1000 / 4);
        now = tt_clock_seconds();
        if (now - before > AWAY_SECONDS) received_at += now - before;
        if (files[0].revents != 0 && !handle_command(link)) return TT_OK;
        if (files[1].fd < 0) continue;
        if (files[1].revents != 0) {
            received_at = now;
            if (!receive_frame(link, &hub_left)) {
                if (!hub_left) fail_hub_lost(link, 0);
                files[1].fd = -1;
            }
        } else if (!hub_left && now - received_at > TT_WIRE_SILENCE_SECONDS) {
            fail_hub_lost(link, now - received_at);
            files[1].fd = -1;
        }
    }
}

/* ---- Beginning and end ---- */

static void link_free(struct tt_link *link)
{
    if (link->thread != NULL) {
        pthread_mutex_lock(&link->mutex);
        link->closing = true;
        pthread_mutex_unlock(&link->mutex);
        signal_event(link->command);
        struct tt_error record;
        tt_error_copy(&record);
        (void)!tt_thread_join(link->thread);
        (void)tt_error_restore(&record);
    }
    if (link->control >= 0) close(link->control);
    tt_hub_stop(link->hub);
    if (link->wake >= 0) close(link->wake);
    if (link->command >= 0) close(link->command);
    pthread_mutex_destroy(&link->mutex);
    tt_free(link->machines);
    tt_free(link);
}

static tt_status start(struct tt_link *link, const struct tt_tcp_config *config, int *lines)
{
    link->machines = tt_calloc((size_t)config->world_size, sizeof *link->machines);
    if (link->machines == NULL) return TT_ERR_MEMORY;
    link->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->command = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake < 0 || link->command < 0) return tt_fail_errno(errno, "cannot make an eventfd");
    if (config->first_rank == 0) {
        struct tt_hub_config hub = {.bind = config->bind,
                                    .local = config->local,
                                    .port = config->port,
                                    .world_size = config->world_size,
                                    .lines = tt_lines_count(config->world_size, config->local_count),
                                    .settings = config->settings,
                                    .attempt = config->attempt,
                                    .timeout_seconds = config->timeout_seconds};
        if (config->key != NULL) hub.key = *config->key;
        if (config->host != NULL && !config->local) snprintf(hub.host, sizeof hub.host, "%s", config->host);
        if (config->run != NULL) snprintf(hub.run, sizeof hub.run, "%s", config->run);
        tt_status status = tt_hub_start(&hub, &link->hub);
        tt_proof_wipe(&hub.key, sizeof hub.key);
        TT_TRY(status);
    }
    TT_TRY(tt_meet(config, &link->control, lines, link->machines));
    return tt_thread_start("link", link_main, link, &link->thread);
}

tt_status tt_link_create(const struct tt_tcp_config *config, struct tt_link **out, int *lines)
{
    struct tt_link *link = tt_calloc(1, sizeof *link);
    if (link == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&link->mutex, NULL);
    link->control = link->wake = link->command = -1;
    link->first_rank = config->first_rank;
    link->local_count = config->local_count;
    link->users = 1;
    snprintf(link->host, sizeof link->host, "%s", config->host);
    size_t line_count = (size_t)config->local_count * (size_t)config->world_size;
    for (size_t i = 0; i < line_count; i++) lines[i] = -1;
    tt_status status = start(link, config, lines);
    if (status == TT_OK) {
        *out = link;
        return TT_OK;
    }
    tt_lines_close(lines, line_count);
    link_free(link);
    return status;
}

void tt_link_retain(struct tt_link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->users++;
    pthread_mutex_unlock(&link->mutex);
}

void tt_link_release(struct tt_link *link)
{
    pthread_mutex_lock(&link->mutex);
    bool last = --link->users == 0;
    pthread_mutex_unlock(&link->mutex);
    if (last) link_free(link);
}

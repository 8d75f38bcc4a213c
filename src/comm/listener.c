#include "comm/listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crowd.h"
#include "base/log.h"

enum {
    FILES_OF_PROGRAM = 256, /* descriptors for the rest of the program */
    PAUSE_SECONDS = 1,      /* without accepting, after the process ran out of descriptors */
    LOG_SECONDS = 10,       /* between two log lines about refused connections */
};

size_t tt_listener_capacity(size_t members)
{
    return tt_crowd_capacity(TT_CANDIDATES_MAX, members + FILES_OF_PROGRAM);
}

int tt_listener_accept(struct tt_listener *listener, double now, bool *full)
{
    *full = false;
    for (int d = 0; d < listener->wire.count && now >= listener->retry_at; d++) {
        int socket, error;
        do {
            socket = accept(listener->wire.sockets[d], NULL, NULL);
            error = errno;
        } while (socket < 0 && (error == EINTR || error == ECONNABORTED));
        if (socket >= 0) {
            tt_wire_prepare_socket(socket);
            return socket;
        }
        if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
            *full = true;
            listener->retry_at = now + PAUSE_SECONDS;
        }
    }
    return -1;
}

void tt_candidate_init(struct tt_candidate *candidate, int socket, double now)
{
    *candidate = (struct tt_candidate){.socket = socket, .since = now};
    tt_wire_origin(socket, candidate->origin, candidate->from, sizeof candidate->from);
}

void tt_candidate_close(struct tt_candidate *candidate)
{
    if (candidate->socket >= 0) close(candidate->socket);
    candidate->socket = -1;
}

struct tt_candidate *tt_listener_choose_victim(struct tt_candidate *const *candidates, size_t count)
{
    struct tt_stranger strangers[TT_CANDIDATES_MAX];
    for (size_t i = 0; i < count; i++) {
        strangers[i] = (struct tt_stranger){
            .stage = (int)candidates[i]->stage, .since = (double)i, .connection = candidates[i]};
        memcpy(strangers[i].origin, candidates[i]->origin, sizeof strangers[i].origin);
    }
    return tt_crowd_choose(strangers, count);
}

void tt_listener_log_stranger(struct tt_listener *listener, const struct tt_candidate *candidate,
                              const char *why, double now)
{
    listener->strangers++;
    if (why == NULL) return;
    if (listener->logged_at > 0 && now - listener->logged_at < LOG_SECONDS) return;
    listener->logged_at = now;
    tt_warn("port %d: refused a connection from %s: %s (%llu connections from outside the run so far)",
            listener->port, candidate->from, why, (unsigned long long)listener->strangers);
}

static enum tt_candidate_result reject(struct tt_listener *listener, struct tt_candidate *candidate,
                                       const char *why, double now)
{
    tt_listener_log_stranger(listener, candidate, why, now);
    tt_candidate_close(candidate);
    return TT_CANDIDATE_CLOSED;
}

/* Does not wait: the empty buffer of a new connection accepts these few bytes, or the connection is broken. */
static bool send_all(const struct tt_candidate *candidate, const void *data, size_t bytes)
{
    return send(candidate->socket, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static enum tt_candidate_result handle_opening(struct tt_listener *listener, struct tt_candidate *candidate,
                                               double now)
{
    const struct tt_proof_key *key = listener->key;
    if (!tt_proof_answer(key, &candidate->proof))
        return reject(listener, candidate, "it sent bytes that are not a message", now);
    if (!send_all(candidate, &candidate->proof.challenge, sizeof candidate->proof.challenge))
        return reject(listener, candidate, NULL, now);
    candidate->stage = key->is_set ? TT_CANDIDATE_SUM : TT_CANDIDATE_READY;
    if (candidate->proof.opening.secured == (uint32_t)key->is_set) return TT_CANDIDATE_PROGRESS;
    tt_listener_log_stranger(
        listener, candidate,
        key->is_set ? listener->no_key : "it has a job secret, and this process has none", now);
    return TT_CANDIDATE_KEY_MISMATCH;
}

static enum tt_candidate_result handle_sum(struct tt_listener *listener, struct tt_candidate *candidate,
                                           double now)
{
    unsigned char own[TT_PROOF_SUM_BYTES];
    if (!tt_proof_verify(listener->key, &candidate->proof, TT_PROOF_OPENER, candidate->sum))
        return reject(listener, candidate, listener->other_key, now);
    tt_proof_sum(listener->key, &candidate->proof, TT_PROOF_ACCEPTER, own);
    if (!send_all(candidate, own, sizeof own)) return reject(listener, candidate, NULL, now);
    candidate->proven = true;
    candidate->stage = TT_CANDIDATE_READY;
    return TT_CANDIDATE_PROGRESS;
}

enum tt_candidate_result tt_candidate_read(struct tt_listener *listener, struct tt_candidate *candidate,
                                           double now)
{
    bool opening = candidate->stage == TT_CANDIDATE_OPENING;
    char *to = opening ? (char *)&candidate->proof.opening : (char *)candidate->sum;
    size_t all = opening ? sizeof candidate->proof.opening : sizeof candidate->sum;
    ssize_t got = recv(candidate->socket, to + candidate->have, all - candidate->have, 0);
    if (got < 0 && errno == EINTR) return TT_CANDIDATE_PROGRESS;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TT_CANDIDATE_WAITS;
    if (got <= 0) return reject(listener, candidate, NULL, now);
    candidate->have += (size_t)got;
    if (candidate->have < all) return TT_CANDIDATE_PROGRESS;
    candidate->have = 0;
    return opening ? handle_opening(listener, candidate, now) : handle_sum(listener, candidate, now);
}

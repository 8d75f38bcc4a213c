/* Files of rank 0's machine (files.h): the side of the other machines. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/files.h"

enum {
    PIECE_BYTES = 128 << 10, /* with a time limit of its own */
    HURRY_SECONDS = 5,       /* of silence, when the run has failed; rank 0 sends a sign of life every 2 s */
    POLL_MS = 500,
};

struct tt_files_client {
    struct tt_files_path *paths; /* owned, with copies of the texts */
    size_t path_count;
    struct tt_store store;
    pthread_mutex_t mutex; /* one call at a time */
    int socket;
    bool lost;
    atomic_int patience; /* seconds of silence until the connection is lost */
    char host[128];
};

bool tt_files_covers(const struct tt_files_path *paths, size_t count, const char *path, bool writes)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(paths[i].path);
        while (bytes > 1 && paths[i].path[bytes - 1] == '/') bytes--;
        if (strncmp(path, paths[i].path, bytes) != 0 || (path[bytes] != '\0' && path[bytes] != '/')) continue;
        bool leaves = false;
        for (const char *at = path + bytes; !leaves && (at = strstr(at, "/..")) != NULL; at += 3)
            leaves = at[3] == '\0' || at[3] == '/';
        if (!leaves && (paths[i].writes || !writes)) return true;
    }
    return false;
}

static bool covers(void *context, const char *path)
{
    const struct tt_files_client *client = context;
    return tt_files_covers(client->paths, client->path_count, path, false);
}

/* The connection is unusable after it. */
static tt_status fail_lost(struct tt_files_client *client, enum tt_wire_result result)
{
    client->lost = true;
    if (result == TT_WIRE_LATE)
        return tt_fail(TT_ERR_COMM,
                       "rank 0 (on %s), which has the files of this process, has been silent for %d s",
                       client->host, atomic_load(&client->patience));
    return tt_fail(TT_ERR_COMM,
                   "rank 0 (on %s) closed its connection unexpectedly, over which this process has its files",
                   client->host);
}

static void hurry(void *context)
{
    struct tt_files_client *client = context;
    atomic_store(&client->patience, HURRY_SECONDS);
}

/* Waits until the socket can be read or written. */
static tt_status await(struct tt_files_client *client, short events)
{
    struct pollfd file = {.fd = client->socket, .events = events};
    double since = tt_clock_seconds();
    while (poll(&file, 1, POLL_MS) <= 0)
        if (tt_clock_seconds() - since > atomic_load(&client->patience))
            return fail_lost(client, TT_WIRE_LATE);
    return TT_OK;
}

static tt_status receive(struct tt_files_client *client, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        size_t now = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        TT_TRY(await(client, POLLIN));
        enum tt_wire_result result = tt_wire_receive(client->socket, -1, (char *)data + done, now,
                                                     tt_clock_seconds() + TT_WIRE_SILENCE_SECONDS);
        if (result != TT_WIRE_OK) return fail_lost(client, result);
        done += now;
    }
    return TT_OK;
}

static tt_status send_all(struct tt_files_client *client, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        size_t now = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        struct iovec part = {(char *)(uintptr_t)data + done, now};
        TT_TRY(await(client, POLLOUT));
        enum tt_wire_result result =
            tt_wire_send_parts(client->socket, -1, &part, 1, tt_clock_seconds() + TT_WIRE_SILENCE_SECONDS);
        if (result != TT_WIRE_OK) return fail_lost(client, result);
        done += now;
    }
    return TT_OK;
}

static tt_status fail_bytes(struct tt_files_client *client)
{
    client->lost = true;
    return tt_fail(TT_ERR_COMM, "rank 0 (on %s) sent bytes that are not an answer about a file",
                   client->host);
}

static tt_status send_request(struct tt_files_client *client, const struct tt_store_call *call)
{
    struct tt_files_request request = {
        .magic = TT_WIRE_MAGIC,
        .kind = (uint32_t)call->kind,
        .handle = call->handle,
        .offset = call->offset,
        .value = call->value,
        .path_bytes = call->path != NULL ? (uint32_t)strlen(call->path) + 1 : 0,
        .second_bytes = call->second != NULL ? (uint32_t)strlen(call->second) + 1 : 0,
        .data_bytes = call->send_bytes,
    };
    if (request.path_bytes + request.second_bytes > TT_FILES_PATH_BYTES_MAX)
        return tt_fail(TT_ERR_USAGE, "'%.80s...' is too long a path", call->path);
    TT_TRY(send_all(client, &request, sizeof request));
    TT_TRY(send_all(client, call->path, request.path_bytes));
    TT_TRY(send_all(client, call->second, request.second_bytes));
    return send_all(client, call->send, call->send_bytes);
}

static tt_status receive_failure(struct tt_files_client *client, const struct tt_files_reply *reply)
{
    struct tt_error error;
    if (reply->data_bytes != sizeof error) return fail_bytes(client);
    TT_TRY(receive(client, &error, sizeof error));
    tt_wire_clean_error(&error);
    if (error.status == TT_OK) return fail_bytes(client);
    (void)tt_error_restore(&error);
    tt_while("on rank 0's machine (%s)", client->host);
    return error.status;
}

static tt_status run_call(struct tt_files_client *client, struct tt_store_call *call)
{
    struct tt_files_reply reply = {.answer = TT_FILES_BUSY};
    if (client->lost) return fail_lost(client, TT_WIRE_CLOSED);
    TT_TRY(send_request(client, call));
    while (reply.answer == TT_FILES_BUSY) {
        TT_TRY(receive(client, &reply, sizeof reply));
        if (reply.magic != TT_WIRE_MAGIC) return fail_bytes(client);
    }
    if (reply.answer == TT_FILES_FAILED) return receive_failure(client, &reply);
    if (reply.answer != TT_FILES_DONE || reply.data_bytes > call->receive_room || reply.handle < 0 ||
        reply.handle >= TT_FILES_HANDLES_MAX)
        return fail_bytes(client);
    call->handle = reply.handle;
    call->value = reply.value;
    call->received = (size_t)reply.data_bytes;
    return receive(client, call->receive, call->received);
}

static tt_status do_call(void *context, struct tt_store_call *call)
{
    struct tt_files_client *client = context;
    pthread_mutex_lock(&client->mutex);
    tt_status status = run_call(client, call);
    pthread_mutex_unlock(&client->mutex);
    return status;
}

static tt_status prove(struct tt_files_client *client, const struct tt_proof_key *key)
{
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    tt_proof_open(key, TT_PROOF_FILES, &proof);
    TT_TRY(send_all(client, &proof.opening, sizeof proof.opening));
    TT_TRY(receive(client, &proof.challenge, sizeof proof.challenge));
    if (!tt_proof_is_challenge(&proof)) return fail_bytes(client);
    tt_proof_sum(key, &proof, TT_PROOF_OPENER, sum);
    TT_TRY(send_all(client, sum, sizeof sum));
    TT_TRY(receive(client, sum, sizeof sum));
    return tt_proof_verify(key, &proof, TT_PROOF_ACCEPTER, sum) ? TT_OK : fail_bytes(client);
}

static tt_status copy_paths(const struct tt_files_config *config, struct tt_files_client *client)
{
    client->paths = tt_calloc(config->path_count + 1, sizeof *client->paths);
    if (client->paths == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < config->path_count; i++) {
        client->paths[i] = config->paths[i];
        client->paths[i].path = tt_strdup(config->paths[i].path);
        if (client->paths[i].path == NULL) return TT_ERR_MEMORY;
        client->path_count++;
    }
    return TT_OK;
}

tt_status tt_files_client_open(const struct tt_files_config *config, double seconds,
                               struct tt_files_client **out)
{
    tt_status status = TT_OK;
    char why[160] = "";
    const char *host = config->local ? "127.0.0.1" : config->host;
    struct tt_files_client *client = tt_calloc(1, sizeof *client);
    if (client == NULL) return TT_ERR_MEMORY;
    client->socket = -1;
    client->store = (struct tt_store){.context = client,
                                      .can = TT_STORE_CAN_RENAME | TT_STORE_CAN_APPEND,
                                      .kinds = TT_STORE_WIRE_KINDS,
                                      .covers = covers,
                                      .call = do_call,
                                      .hurry = hurry};
    atomic_init(&client->patience, TT_WIRE_SILENCE_SECONDS);
    pthread_mutex_init(&client->mutex, NULL);
    snprintf(client->host, sizeof client->host, "%s", host);
    TT_GO(copy_paths(config, client));
    client->socket = tt_wire_connect(host, config->port, tt_clock_seconds() + seconds, why, sizeof why);
    if (client->socket < 0) {
        status = tt_fail(TT_ERR_COMM, "cannot reach the files of rank 0 at %s port %d: %s", host,
                         config->port, why);
        tt_hint("the machines must reach each other at any port, or have the files on a disk that all share");
        goto out;
    }
    TT_GO(prove(client, config->key));
    *out = client;
out:
    if (status != TT_OK) tt_files_client_close(client);
    return status;
}

const struct tt_store *tt_files_client_store(struct tt_files_client *client)
{
    return &client->store;
}

void tt_files_client_close(struct tt_files_client *client)
{
    if (client == NULL) return;
    if (client->socket >= 0) close(client->socket);
    for (size_t i = 0; i < client->path_count; i++) tt_free((char *)(uintptr_t)client->paths[i].path);
    tt_free(client->paths);
    pthread_mutex_destroy(&client->mutex);
    tt_free(client);
}

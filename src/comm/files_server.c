/* Files of rank 0's machine (files.h): the side of rank 0, one thread for each process. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "comm/files.h"

enum { PROOF_SECONDS = 3, TICK_MS = 100 };

struct open_file {
    int descriptor; /* -1: free */
    bool writes;
};

/* A process that uses files of this one. */
struct client {
    struct tt_files_server *server;
    int socket;
    struct tt_thread *thread;
    pthread_mutex_t sending;
    bool busy; /* under `sending`: its call has no answer yet */
    struct open_file files[TT_FILES_HANDLES_MAX];
    char path[TT_FILES_PATH_BYTES_MAX + 1], *second; /* of the call */
    char *data;                                      /* owned, TT_STORE_BYTES_MAX */
    size_t data_bytes;
};

struct tt_files_server {
    struct tt_files_config config;
    struct tt_files_path *paths; /* owned, with their texts */
    struct tt_proof_key key;
    struct tt_wire_listener listener;
    struct client *clients; /* owned */
    int client_count;
    struct tt_thread *ticker;
    atomic_bool closing;
};

/* ---- The calls ---- */

static tt_status check_path(const struct client *client, const char *path, bool writes)
{
    const struct tt_files_server *server = client->server;
    if (path != NULL && tt_files_covers(server->paths, server->config.path_count, path, writes)) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%.200s' is not a path that rank 0 %s for other ranks",
                   path != NULL ? path : "", writes ? "writes" : "reads");
}

static struct open_file *file_of(struct client *client, int64_t handle)
{
    bool valid = handle >= 0 && handle < TT_FILES_HANDLES_MAX && client->files[handle].descriptor >= 0;
    return valid ? &client->files[handle] : NULL;
}

static tt_status open_file(struct client *client, const struct tt_files_request *request,
                           struct tt_files_reply *reply)
{
    int64_t handle = 0;
    while (handle < TT_FILES_HANDLES_MAX && client->files[handle].descriptor >= 0) handle++;
    if (handle == TT_FILES_HANDLES_MAX)
        return tt_fail(TT_ERR_COMM, "another process has %d open files of rank 0's", TT_FILES_HANDLES_MAX);
    struct open_file *file = &client->files[handle];
    file->writes = request->kind == TT_STORE_CREATE || request->kind == TT_STORE_OPEN_SHARED;
    TT_TRY(check_path(client, client->path, file->writes));
    reply->handle = handle;
    if (request->kind == TT_STORE_CREATE)
        return tt_file_create(client->path, request->value, &file->descriptor);
    if (request->kind == TT_STORE_OPEN_SHARED)
        return tt_file_open_shared(client->path, request->value, &file->descriptor);
    if (request->kind == TT_STORE_OPEN_READ)
        return tt_file_open_read(client->path, &file->descriptor, &reply->value);
    struct tt_path whole;
    if (client->second == NULL) return tt_fail(TT_ERR_COMM, "a request to open a file without its name");
    TT_TRY(tt_path_set(&whole, client->path, client->second));
    TT_TRY(check_path(client, whole.text, false));
    return tt_file_open_inside(client->path, client->second, request->value, &file->descriptor,
                               &reply->value);
}

static tt_status read_file(struct client *client, const struct tt_files_request *request)
{
    const struct open_file *file = file_of(client, request->handle);
    if (file == NULL || request->value > TT_STORE_BYTES_MAX)
        return tt_fail(TT_ERR_COMM,
                       "a request to read from a file that is not open, or too many bytes at once");
    return tt_file_read_some(file->descriptor, client->path, client->data, (size_t)request->value,
                             request->offset, &client->data_bytes);
}

static tt_status write_file(struct client *client, const struct tt_files_request *request)
{
    const struct open_file *file = file_of(client, request->handle);
    if (file == NULL || !file->writes)
        return tt_fail(TT_ERR_COMM, "a request to write to a file that is not open for it");
    return tt_file_pwrite(file->descriptor, client->path, client->data, (size_t)request->data_bytes,
                          request->offset);
}

static tt_status end_file(struct client *client, const struct tt_files_request *request)
{
    struct open_file *file = file_of(client, request->handle);
    if (file == NULL) return tt_fail(TT_ERR_COMM, "a request to close a file that is not open");
    int descriptor = file->descriptor;
    file->descriptor = -1;
    if (request->kind == TT_STORE_SYNC_CLOSE) return tt_file_sync_close(descriptor, client->path);
    tt_file_close(descriptor);
    return TT_OK;
}

static tt_status add_name(void *context, const char *name)
{
    struct client *client = context;
    size_t bytes = strlen(name) + 1;
    if (bytes > TT_STORE_BYTES_MAX - client->data_bytes)
        return tt_fail(TT_ERR_DATA, "'%s' has too many files", client->path);
    memcpy(client->data + client->data_bytes, name, bytes);
    client->data_bytes += bytes;
    return TT_OK;
}

static tt_status run_call(struct client *client, const struct tt_files_request *request,
                          struct tt_files_reply *reply)
{
    client->data_bytes = 0;
    switch (request->kind) {
    case TT_STORE_OPEN_READ:
    case TT_STORE_OPEN_INSIDE:
    case TT_STORE_CREATE:
    case TT_STORE_OPEN_SHARED:
        return open_file(client, request, reply);
    case TT_STORE_READ:
        return read_file(client, request);
    case TT_STORE_WRITE:
        return write_file(client, request);
    case TT_STORE_SYNC_CLOSE:
    case TT_STORE_CLOSE:
        return end_file(client, request);
    case TT_STORE_RENAME:
        TT_TRY(check_path(client, client->path, true));
        TT_TRY(check_path(client, client->second, true));
        return tt_file_rename(client->path, client->second);
    case TT_STORE_STAT:
        TT_TRY(check_path(client, client->path, false));
        reply->value = tt_path_is_dir(client->path) ? 2 : tt_path_exists(client->path);
        return TT_OK;
    case TT_STORE_LIST:
        TT_TRY(check_path(client, client->path, false));
        return tt_dir_list(client->path, add_name, client);
    case TT_STORE_MAKE_DIR:
        TT_TRY(check_path(client, client->path, true));
        return tt_dir_create(client->path);
    default:
        return tt_fail(TT_ERR_COMM, "an unknown request about a file");
    }
}

/* ---- A connection ---- */

/* false: it is closed, or its bytes are not a request. */
static bool receive_request(struct client *client, struct tt_files_request *request)
{
    if (tt_wire_receive(client->socket, -1, request, sizeof *request, 0) != TT_WIRE_OK) return false;
    uint64_t texts = (uint64_t)request->path_bytes + request->second_bytes;
    if (request->magic != TT_WIRE_MAGIC || request->kind >= TT_STORE_WIRE_KINDS ||
        texts > TT_FILES_PATH_BYTES_MAX || request->data_bytes > TT_STORE_BYTES_MAX)
        return false;
    client->path[0] = '\0';
    client->second = NULL;
    if (texts > 0 && tt_wire_receive(client->socket, -1, client->path, (size_t)texts, 0) != TT_WIRE_OK)
        return false;
    client->path[texts] = '\0';
    if (request->path_bytes > 0) client->path[request->path_bytes - 1] = '\0';
    if (request->second_bytes > 0) client->second = client->path + request->path_bytes;
    return request->data_bytes == 0 ||
           tt_wire_receive(client->socket, -1, client->data, (size_t)request->data_bytes, 0) == TT_WIRE_OK;
}

static bool send_reply(struct client *client, struct tt_files_reply *reply, tt_status status)
{
    struct tt_error error;
    struct iovec parts[2] = {{reply, sizeof *reply}, {client->data, client->data_bytes}};
    if (status != TT_OK) {
        tt_error_copy(&error);
        reply->answer = TT_FILES_FAILED;
        parts[1] = (struct iovec){&error, sizeof error};
    }
    reply->data_bytes = parts[1].iov_len;
    pthread_mutex_lock(&client->sending);
    client->busy = false;
    bool sent = tt_wire_send_parts(client->socket, -1, parts, parts[1].iov_len > 0 ? 2 : 1, 0) == TT_WIRE_OK;
    pthread_mutex_unlock(&client->sending);
    return sent;
}

static void set_busy(struct client *client)
{
    pthread_mutex_lock(&client->sending);
    client->busy = true;
    pthread_mutex_unlock(&client->sending);
}

static tt_status serve(void *argument)
{
    struct client *client = argument;
    struct tt_files_request request;
    while (receive_request(client, &request)) {
        struct tt_files_reply reply = {.magic = TT_WIRE_MAGIC, .answer = TT_FILES_DONE};
        set_busy(client);
        tt_status status = run_call(client, &request, &reply);
        if (status != TT_OK) client->data_bytes = 0;
        if (!send_reply(client, &reply, status)) break;
    }
    tt_error_clear();
    shutdown(client->socket, SHUT_RDWR);
    for (int i = 0; i < TT_FILES_HANDLES_MAX; i++) tt_file_close(client->files[i].descriptor);
    return TT_OK;
}

/* Tells the clients whose calls take long that this process lives. */
static tt_status tick(void *argument)
{
    struct tt_files_server *server = argument;
    const struct timespec pause = {.tv_nsec = TICK_MS * 1000000L};
    struct tt_files_reply reply = {.magic = TT_WIRE_MAGIC, .answer = TT_FILES_BUSY};
    for (int n = 1; !atomic_load(&server->closing); n++) {
        nanosleep(&pause, NULL);
        if (n % (1000 * TT_WIRE_BEAT_SECONDS / TICK_MS) != 0) continue;
        for (int i = 0; i < server->client_count; i++) {
            struct client *client = &server->clients[i];
            if (pthread_mutex_trylock(&client->sending) != 0) continue;
            ssize_t sent =
                client->busy ? send(client->socket, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
            if (sent > 0 && sent < (ssize_t)sizeof reply) shutdown(client->socket, SHUT_RDWR);
            pthread_mutex_unlock(&client->sending);
        }
    }
    return TT_OK;
}

/* ---- Opening and closing ---- */

tt_status tt_files_server_open(const struct tt_files_config *config, struct tt_files_server **out, int *port)
{
    tt_status status = TT_OK;
    struct tt_files_server *server = tt_calloc(1, sizeof *server);
    if (server == NULL) return TT_ERR_MEMORY;
    server->config = *config;
    server->key = *config->key;
    server->paths = tt_calloc(config->path_count + 1, sizeof *server->paths);
    if (server->paths == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < config->path_count; i++) {
        server->paths[i] = config->paths[i];
        server->paths[i].path = tt_strdup(config->paths[i].path);
        if (server->paths[i].path == NULL) TT_GO(TT_ERR_MEMORY);
    }
    const struct tt_wire_address loopback = {.family = 4, .bytes = {127, 0, 0, 1}};
    TT_GO(tt_wire_reserve(config->bind, config->local ? &loopback : NULL, &server->listener, port));
    TT_GO(tt_wire_listener_start(&server->listener));
    *out = server;
out:
    if (status != TT_OK) tt_files_server_close(server);
    return status;
}

/* false: a stranger. */
static bool check_member(const struct tt_files_server *server, int socket)
{
    struct tt_proof proof = {0};
    unsigned char sum[TT_PROOF_SUM_BYTES];
    double deadline = tt_clock_seconds() + PROOF_SECONDS;
    if (tt_wire_receive(socket, -1, &proof.opening, sizeof proof.opening, deadline) != TT_WIRE_OK)
        return false;
    if (proof.opening.role != TT_PROOF_FILES || !tt_proof_answer(&server->key, &proof)) return false;
    struct iovec part = {&proof.challenge, sizeof proof.challenge};
    if (tt_wire_send_parts(socket, -1, &part, 1, deadline) != TT_WIRE_OK) return false;
    if (tt_wire_receive(socket, -1, sum, sizeof sum, deadline) != TT_WIRE_OK) return false;
    if (!tt_proof_verify(&server->key, &proof, TT_PROOF_OPENER, sum)) return false;
    tt_proof_sum(&server->key, &proof, TT_PROOF_ACCEPTER, sum);
    part = (struct iovec){sum, sizeof sum};
    return tt_wire_send_parts(socket, -1, &part, 1, deadline) == TT_WIRE_OK;
}

static tt_status start_client(struct tt_files_server *server, int socket)
{
    struct client *client = &server->clients[server->client_count];
    *client = (struct client){.server = server, .socket = socket};
    for (int i = 0; i < TT_FILES_HANDLES_MAX; i++) client->files[i].descriptor = -1;
    pthread_mutex_init(&client->sending, NULL);
    server->client_count++;
    client->data = tt_alloc_aligned(TT_STORE_BYTES_MAX);
    if (client->data == NULL) return TT_ERR_MEMORY;
    return tt_thread_start("files", serve, client, &client->thread);
}

static int accept_one(const struct tt_files_server *server)
{
    struct pollfd files[TT_WIRE_ADDRESSES_MAX];
    for (int i = 0; i < server->listener.count; i++)
        files[i] = (struct pollfd){.fd = server->listener.sockets[i], .events = POLLIN};
    if (poll(files, (nfds_t)server->listener.count, TICK_MS) <= 0) return -1;
    for (int i = 0; i < server->listener.count; i++) {
        int socket = files[i].revents != 0 ? accept(files[i].fd, NULL, NULL) : -1;
        if (socket >= 0) return socket;
    }
    return -1;
}

tt_status tt_files_server_admit(struct tt_files_server *server, int clients, double seconds)
{
    double deadline = tt_clock_seconds() + seconds;
    server->clients = tt_calloc((size_t)clients + 1, sizeof *server->clients);
    if (server->clients == NULL) return TT_ERR_MEMORY;
    while (server->client_count < clients) {
        int socket = accept_one(server);
        if (socket < 0 && tt_clock_seconds() > deadline) {
            tt_status status = tt_fail(
                TT_ERR_COMM, "%d of %d processes without files of their own did not connect to rank 0's",
                clients - server->client_count, clients);
            tt_hint(
                "the machines must reach each other at any port, or have the files on a disk that all share");
            return status;
        }
        if (socket < 0) continue;
        tt_wire_prepare_socket(socket);
        if (check_member(server, socket))
            TT_TRY(start_client(server, socket));
        else
            close(socket);
    }
    tt_wire_listener_close(&server->listener);
    return tt_thread_start("files", tick, server, &server->ticker);
}

void tt_files_server_close(struct tt_files_server *server)
{
    if (server == NULL) return;
    struct tt_error error;
    tt_error_copy(&error);
    atomic_store(&server->closing, true);
    if (server->ticker != NULL) (void)!tt_thread_join(server->ticker);
    for (int i = 0; i < server->client_count; i++) {
        struct client *client = &server->clients[i];
        shutdown(client->socket, SHUT_RDWR);
        if (client->thread != NULL) (void)!tt_thread_join(client->thread);
        close(client->socket);
        tt_free(client->data);
        pthread_mutex_destroy(&client->sending);
    }
    (void)tt_error_restore(&error);
    tt_wire_listener_close(&server->listener);
    tt_proof_wipe(&server->key, sizeof server->key);
    for (size_t i = 0; server->paths != NULL && i < server->config.path_count; i++)
        tt_free((char *)(uintptr_t)server->paths[i].path);
    tt_free(server->clients);
    tt_free(server->paths);
    tt_free(server);
}

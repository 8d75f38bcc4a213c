/* Files of rank 0 for a process without them, over a connection of loopback: bytes go both ways, paths outside stay
 * closed, half a write changes nothing, and an end of either side ends the calls of the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "comm/files.h"
#include "support/temporary.h"

enum { BIG_BYTES = 2 * TT_STORE_BYTES_MAX + 12345 };

struct scene {
    char folder[200], read_only[256], output[256], secret[256];
    struct tt_proof_key key;
    struct tt_files_path paths[2];
    struct tt_files_config config;
    struct tt_files_server *server; /* of the process of rank 0 */
    struct tt_files_client *client;
    pid_t process;
    int control;
};

/* The process of rank 0: serves until the test closes `control`; a byte there turns the full disk on. */
static void serve(struct scene *scene, int control)
{
    char byte;
    if (tt_files_server_admit(scene->server, 1, 20) != TT_OK) _exit(1);
    while (read(control, &byte, 1) == 1) {
        tt_file_fail_at(1, 28, true); /* ENOSPC */
        if (write(control, &byte, 1) != 1) _exit(1);
    }
    tt_files_server_close(scene->server);
    _exit(0);
}

static void start_server(struct scene *scene)
{
    int pair[2];
    assert_int_equal(tt_files_server_open(&scene->config, &scene->server, &scene->config.port), TT_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    scene->process = fork();
    assert_true(scene->process >= 0);
    close(pair[scene->process != 0]);
    if (scene->process == 0) serve(scene, pair[1]);
    scene->control = pair[0];
    tt_files_server_close(scene->server); /* the other process has it */
}

static void stop_server(struct scene *scene)
{
    int result = -1;
    if (scene->process == 0) return;
    close(scene->control);
    assert_int_equal(waitpid(scene->process, &result, 0), scene->process);
    assert_int_equal(result, 0);
    scene->process = 0;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    struct tt_path path;
    assert_int_equal(tt_path_set(&path, folder, name), TT_OK);
    assert_int_equal(tt_file_write_atomic(path.text, text, strlen(text)), TT_OK);
}

static void begin(struct scene *scene)
{
    *scene = (struct scene){0};
    test_temporary(scene->folder, sizeof scene->folder, "trimtab-files-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    snprintf(scene->read_only, sizeof scene->read_only, "%s/model", scene->folder);
    snprintf(scene->output, sizeof scene->output, "%s/out", scene->folder);
    snprintf(scene->secret, sizeof scene->secret, "%s/model-2", scene->folder);
    assert_int_equal(tt_dir_create(scene->read_only), TT_OK);
    assert_int_equal(tt_dir_create(scene->output), TT_OK);
    assert_int_equal(tt_dir_create(scene->secret), TT_OK);
    write_text(scene->read_only, "config.json", "{\"a\": 1}");
    write_text(scene->secret, "config.json", "not for others");
    unsigned char random[32] = {1, 2, 3};
    const struct tt_proof_key none = {0};
    tt_proof_key_of_run(&none, random, &scene->key);
    scene->paths[0] = (struct tt_files_path){scene->read_only, false};
    scene->paths[1] = (struct tt_files_path){scene->output, true};
    scene->config = (struct tt_files_config){
        .host = "localhost", .local = true, .key = &scene->key, .paths = scene->paths, .path_count = 2};
    start_server(scene);
    assert_int_equal(tt_files_client_open(&scene->config, 20, &scene->client), TT_OK);
}

static void end(struct scene *scene)
{
    tt_store_set(TT_STORE_MACHINE, NULL);
    tt_files_client_close(scene->client);
    stop_server(scene);
    assert_int_equal(tt_dir_remove(scene->folder), TT_OK);
}

static void bytes_go_both_ways(void **state)
{
    (void)state;
    struct scene scene;
    struct tt_path path;
    struct tt_str text = {0};
    struct tt_file_map map;
    int descriptor = -1;
    uint64_t bytes = 0;
    begin(&scene);
    unsigned char *sent = tt_calloc(BIG_BYTES, 1), *got = tt_calloc(BIG_BYTES, 1);
    for (size_t i = 0; i < BIG_BYTES; i++) sent[i] = (unsigned char)(i * 2654435761u >> 13);
    tt_store_set(TT_STORE_MACHINE, tt_files_client_store(scene.client));
    assert_int_equal(tt_path_set(&path, scene.output, "a/b"), TT_OK);
    assert_int_equal(tt_dir_create(path.text), TT_OK);
    assert_int_equal(tt_path_set(&path, scene.output, "a/b/state"), TT_OK);
    assert_int_equal(tt_file_open_shared(path.text, BIG_BYTES, &descriptor), TT_OK);
    assert_true(tt_store_owns(descriptor));
    assert_int_equal(tt_file_pwrite(descriptor, path.text, sent + 1000, BIG_BYTES - 1000, 1000), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, path.text, sent, 1000, 0), TT_OK);
    assert_int_equal(tt_file_sync_close(descriptor, path.text), TT_OK);
    assert_int_equal(tt_file_open_read(path.text, &descriptor, &bytes), TT_OK);
    assert_int_equal(bytes, BIG_BYTES);
    assert_int_equal(tt_file_pread(descriptor, path.text, got, BIG_BYTES - 5, 5), TT_OK);
    assert_memory_equal(got, sent + 5, BIG_BYTES - 5);
    assert_int_equal(tt_file_pread(descriptor, path.text, got, 10, BIG_BYTES - 5), TT_ERR_DATA);
    tt_file_close(descriptor);
    assert_int_equal(tt_file_map_open(path.text, &map), TT_OK);
    tt_file_map_release(map.data, (size_t)map.bytes);
    assert_memory_equal(map.data, sent, BIG_BYTES);
    tt_file_map_close(&map);
    assert_int_equal(tt_path_set(&path, scene.read_only, "config.json"), TT_OK);
    assert_int_equal(tt_file_read(path.text, 100, &text), TT_OK);
    assert_string_equal(text.data, "{\"a\": 1}");
    tt_str_deinit(&text);
    tt_store_set(TT_STORE_MACHINE, NULL);
    assert_int_equal(tt_path_set(&path, scene.output, "a/b/state"), TT_OK);
    assert_int_equal(tt_file_read(path.text, BIG_BYTES, &text), TT_OK);
    assert_memory_equal(text.data, sent, BIG_BYTES);
    tt_str_deinit(&text);
    tt_free(sent);
    tt_free(got);
    end(&scene);
}

/* Calls that no client makes, as a peer that is not to be trusted would. */
static tt_status call(const struct scene *scene, enum tt_store_kind kind, const char *path,
                      const char *second)
{
    const struct tt_store *remote = tt_files_client_store(scene->client);
    struct tt_store_call call = {.kind = kind, .path = path, .second = second, .value = 100};
    return remote->call(remote->context, &call);
}

static void other_paths_are_closed(void **state)
{
    (void)state;
    struct scene scene;
    struct tt_path path;
    begin(&scene);
    assert_int_equal(tt_path_set(&path, scene.secret, "config.json"), TT_OK);
    assert_int_equal(call(&scene, TT_STORE_OPEN_READ, path.text, NULL), TT_ERR_DATA);
    assert_int_equal(tt_path_set(&path, scene.read_only, "../model-2/config.json"), TT_OK);
    assert_int_equal(call(&scene, TT_STORE_OPEN_READ, path.text, NULL), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_OPEN_INSIDE, scene.read_only, "../model-2/config.json"),
                     TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_STAT, "/etc/passwd", NULL), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_LIST, "/", NULL), TT_ERR_DATA);
    assert_int_equal(tt_path_set(&path, scene.read_only, "config.json"), TT_OK);
    assert_int_equal(call(&scene, TT_STORE_CREATE, path.text, NULL), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_OPEN_SHARED, path.text, NULL), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_MAKE_DIR, path.text, NULL), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_RENAME, path.text, scene.output), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_RENAME, scene.output, path.text), TT_ERR_DATA);
    assert_int_equal(call(&scene, TT_STORE_WRITE, NULL, NULL), TT_ERR_COMM);
    assert_int_equal(call(&scene, TT_STORE_READ, NULL, NULL), TT_ERR_COMM);
    assert_int_equal(call(&scene, TT_STORE_STAT, path.text, NULL), TT_OK);
    end(&scene);
}

/* A connection with a proof, and no client behind it. */
static int connect_by_hand(struct scene *scene)
{
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    char why[100];
    double deadline = tt_clock_seconds() + 20;
    int socket = tt_wire_connect("127.0.0.1", scene->config.port, deadline, why, sizeof why);
    assert_true(socket >= 0);
    tt_proof_open(&scene->key, TT_PROOF_FILES, &proof);
    struct iovec part = {&proof.opening, sizeof proof.opening};
    assert_int_equal(tt_wire_send_parts(socket, -1, &part, 1, deadline), TT_WIRE_OK);
    assert_int_equal(tt_wire_receive(socket, -1, &proof.challenge, sizeof proof.challenge, deadline),
                     TT_WIRE_OK);
    tt_proof_sum(&scene->key, &proof, TT_PROOF_OPENER, sum);
    part = (struct iovec){sum, sizeof sum};
    assert_int_equal(tt_wire_send_parts(socket, -1, &part, 1, deadline), TT_WIRE_OK);
    assert_int_equal(tt_wire_receive(socket, -1, sum, sizeof sum, deadline), TT_WIRE_OK);
    return socket;
}

static void send_request(int socket, const struct tt_files_request *request, const char *path,
                         size_t data_bytes)
{
    static char data[1000];
    struct iovec parts[3] = {{(void *)(uintptr_t)request, sizeof *request},
                             {(void *)(uintptr_t)path, strlen(path) + 1},
                             {data, data_bytes}};
    memset(data, 'x', sizeof data);
    assert_int_equal(tt_wire_send_parts(socket, -1, parts, data_bytes > 0 ? 3 : 2, tt_clock_seconds() + 20),
                     TT_WIRE_OK);
}

/* A transfer that ends in its middle. */
static void half_a_write_changes_nothing(void **state)
{
    (void)state;
    struct scene scene;
    struct tt_path path;
    struct tt_str text = {0};
    struct tt_files_reply reply;
    begin(&scene);
    tt_files_client_close(scene.client);
    stop_server(&scene);
    scene.client = NULL;
    start_server(&scene);
    int socket = connect_by_hand(&scene);
    assert_int_equal(tt_path_set(&path, scene.output, "state"), TT_OK);
    write_text(scene.output, "state", "before");
    struct tt_files_request request = {.magic = TT_WIRE_MAGIC,
                                       .kind = TT_STORE_OPEN_SHARED,
                                       .value = 6,
                                       .path_bytes = (uint32_t)strlen(path.text) + 1};
    send_request(socket, &request, path.text, 0);
    assert_int_equal(tt_wire_receive(socket, -1, &reply, sizeof reply, tt_clock_seconds() + 20), TT_WIRE_OK);
    assert_int_equal(reply.answer, TT_FILES_DONE);
    request.kind = TT_STORE_WRITE;
    request.handle = reply.handle;
    request.data_bytes = 6;
    send_request(socket, &request, path.text, 3);
    shutdown(socket, SHUT_RDWR);
    close(socket);
    stop_server(&scene);
    assert_int_equal(tt_file_read(path.text, 100, &text), TT_OK);
    assert_string_equal(text.data, "before");
    tt_str_deinit(&text);
    end(&scene);
}

/* Numbers that no file was given. */
static void files_that_are_not_open(void **state)
{
    (void)state;
    static const int64_t handles[] = {0, 1, -1, INT64_MIN, INT32_MIN, TT_FILES_HANDLES_MAX, INT64_MAX};
    static const uint32_t kinds[] = {TT_STORE_READ, TT_STORE_WRITE, TT_STORE_CLOSE, TT_STORE_SYNC_CLOSE};
    static const char *const why[] = {"a request to read from a file that is not open",
                                      "a request to write to a file that is not open for it",
                                      "a request to close a file that is not open",
                                      "a request to close a file that is not open"};
    struct scene scene;
    begin(&scene);
    tt_files_client_close(scene.client);
    stop_server(&scene);
    scene.client = NULL;
    start_server(&scene);
    int socket = connect_by_hand(&scene);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
            struct tt_files_request request = {
                .magic = TT_WIRE_MAGIC, .kind = kinds[k], .handle = handles[i], .path_bytes = 2};
            struct tt_files_reply reply;
            struct tt_error error;
            send_request(socket, &request, "x", 0);
            assert_int_equal(tt_wire_receive(socket, -1, &reply, sizeof reply, tt_clock_seconds() + 20),
                             TT_WIRE_OK);
            assert_int_equal(reply.answer, TT_FILES_FAILED);
            assert_int_equal(reply.data_bytes, sizeof error);
            assert_int_equal(tt_wire_receive(socket, -1, &error, sizeof error, tt_clock_seconds() + 20),
                             TT_WIRE_OK);
            assert_non_null(strstr(error.message, why[k]));
        }
    close(socket);
    stop_server(&scene);
    end(&scene);
}

static void strangers_get_nothing(void **state)
{
    (void)state;
    struct scene scene;
    char why[100], byte;
    begin(&scene);
    tt_files_client_close(scene.client);
    stop_server(&scene);
    scene.client = NULL;
    start_server(&scene);
    int stranger = tt_wire_connect("127.0.0.1", scene.config.port, tt_clock_seconds() + 20, why, sizeof why);
    assert_true(stranger >= 0);
    struct tt_proof_key other = scene.key;
    other.bytes[0] ^= 1;
    struct tt_files_config wrong = scene.config;
    wrong.key = &other;
    struct tt_files_client *client = NULL;
    assert_int_equal(send(stranger, "GET / HTTP/1.1\r\n\r\n0123456789012345678901234567890123456789", 58, 0),
                     58);
    assert_int_equal(tt_wire_receive(stranger, -1, &byte, 1, tt_clock_seconds() + 20), TT_WIRE_CLOSED);
    assert_int_equal(tt_files_client_open(&wrong, 20, &client), TT_ERR_COMM);
    assert_int_equal(tt_files_client_open(&scene.config, 20, &scene.client), TT_OK);
    close(stranger);
    end(&scene);
}

static void end_of_rank_0_ends_calls(void **state)
{
    (void)state;
    struct scene scene;
    struct tt_path path;
    struct tt_str text = {0};
    begin(&scene);
    tt_store_set(TT_STORE_MACHINE, tt_files_client_store(scene.client));
    stop_server(&scene);
    assert_int_equal(tt_path_set(&path, scene.read_only, "config.json"), TT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt_file_read(path.text, 100, &text), TT_ERR_COMM);
        assert_non_null(strstr(tt_error_last()->message, "rank 0 (on 127.0.0.1) closed its connection"));
    }
    end(&scene);
}

static void failures_of_rank_0_travel(void **state)
{
    (void)state;
    struct scene scene;
    struct tt_path path;
    int descriptor = -1;
    char byte;
    begin(&scene);
    tt_store_set(TT_STORE_MACHINE, tt_files_client_store(scene.client));
    assert_int_equal(tt_path_set(&path, scene.output, "state"), TT_OK);
    assert_int_equal(tt_file_create(path.text, 100, &descriptor), TT_OK);
    assert_int_equal(write(scene.control, "f", 1), 1);
    assert_int_equal(read(scene.control, &byte, 1), 1);
    assert_int_equal(tt_file_pwrite(descriptor, path.text, "123", 3, 0), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->message, "No space left"));
    tt_file_close(descriptor);
    assert_int_equal(tt_path_set(&path, scene.output, "missing"), TT_OK);
    assert_false(tt_path_exists(path.text));
    assert_int_equal(tt_file_open_read(path.text, &descriptor, NULL), TT_ERR_DATA);
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways),           cmocka_unit_test(other_paths_are_closed),
        cmocka_unit_test(half_a_write_changes_nothing), cmocka_unit_test(files_that_are_not_open),
        cmocka_unit_test(strangers_get_nothing),        cmocka_unit_test(end_of_rank_0_ends_calls),
        cmocka_unit_test(failures_of_rank_0_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

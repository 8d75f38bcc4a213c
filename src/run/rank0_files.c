#include "run/rank0_files.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/log.h"
#include "base/store.h"
#include "comm/host_values.h"
#include "job/paths.h"
#include "launch/launch.h"

enum { PATHS_MAX = 16, PATH_BYTES = 1024, CONNECT_SECONDS = 60 };

/* Paths that the settings name; the first is output_dir. A mixture counts with its first paths only. */
struct paths {
    char text[PATHS_MAX][PATH_BYTES];
    bool exists[PATHS_MAX];
    int count;
};

/* The message of rank 0 to the others. */
struct offer {
    struct paths paths;
    int64_t probe; /* number in the name of the file that it made in output_dir */
};

struct meeting {
    int32_t port;
    unsigned char random[32];
};

struct opening {
    struct tt_world *world;
    struct tt_rank0_files *files;
    struct paths own;
    struct offer offer;
    struct tt_files_path missing[PATHS_MAX]; /* of this process; texts lent by `offer` */
    size_t missing_count;
    struct meeting meeting;
};

/* The folder of a pattern before its first wildcard. */
static void add_path(struct paths *paths, const char *path)
{
    if (path == NULL || path[0] == '\0' || paths->count == PATHS_MAX || strlen(path) >= PATH_BYTES) return;
    char *text = paths->text[paths->count];
    snprintf(text, PATH_BYTES, "%s", path);
    if (!tt_path_exists(text) && strpbrk(text, "*?[") != NULL) {
        text[strcspn(text, "*?[")] = '\0';
        char *slash = strrchr(text, '/');
        if (slash == NULL || slash == text) return;
        *slash = '\0';
    }
    paths->exists[paths->count++] = tt_path_exists(text);
}

/* A name of the hub stands for its repository in the cache, where this machine's and rank 0's lie at the same path. */
static tt_status add_named(struct paths *paths, const char *kind, const char *path)
{
    struct tt_str repository = {0};
    char *name = tt_strndup(path, strcspn(path, strcmp(kind, "models") == 0 ? "@" : ":"));
    if (name == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    if (strchr(name, '/') != NULL && tt_hub_is_name(name))
        status = tt_hub_append_repository(kind, name, &repository);
    if (status == TT_OK && repository.bytes > 0) add_path(paths, repository.data);
    tt_str_deinit(&repository);
    tt_free(name);
    return status;
}

/* Local paths may be of each machine, and of what is written only output_dir is shared. */
static tt_status add_shared(void *context, const struct tt_setting *row, const char *path)
{
    if (row->local || row->path == TT_PATH_WRITE) return TT_OK;
    add_path(context, path);
    if (tt_path_exists(path)) return TT_OK;
    return add_named(context, row->path == TT_PATH_HUB ? "models" : "datasets", path);
}

static tt_status list_paths(const struct tt_job_spec *job, struct paths *paths)
{
    add_path(paths, job->run.output_dir);
    return tt_job_paths_visit(job, add_shared, paths);
}

static bool is_own(const struct paths *own, const char *path)
{
    for (int i = 0; i < own->count; i++)
        if (strcmp(own->text[i], path) == 0) return true;
    return false;
}

static tt_status probe_path(const struct opening *opening, struct tt_path *path)
{
    char name[64];
    /* Every machine sees a store; only those that share a disk see what is not published yet. */
    bool stored = !tt_store_can(opening->offer.paths.text[0], TT_STORE_CAN_RENAME);
    snprintf(name, sizeof name, ".write-probe-%lld%s", (long long)opening->offer.probe,
             stored ? ".saving" : "");
    return tt_path_set(path, opening->offer.paths.text[0], name);
}

/* Lists what this process takes from rank 0. */
static tt_status list_missing(struct opening *opening)
{
    const struct paths *offered = &opening->offer.paths;
    struct tt_path probe;
    TT_TRY(probe_path(opening, &probe));
    for (int i = 0; i < offered->count && i < PATHS_MAX; i++) {
        const char *path = offered->text[i];
        bool here = i == 0 ? tt_path_exists(probe.text) : tt_path_exists(path);
        if (!offered->exists[i] || here || !is_own(&opening->own, path)) continue;
        opening->missing[opening->missing_count++] = (struct tt_files_path){path, i == 0};
    }
    return TT_OK;
}

static struct tt_files_config config_of(const struct opening *opening, const struct tt_proof_key *key)
{
    return (struct tt_files_config){.host = opening->world->host,
                                    .bind = opening->world->bind,
                                    .local = opening->world->local,
                                    .port = opening->meeting.port,
                                    .key = key,
                                    .paths = opening->missing,
                                    .path_count = opening->missing_count};
}

static tt_status run_key(const struct opening *opening, struct tt_proof_key *key)
{
    struct tt_proof_key secret = {0};
    tt_status status = tt_launch_secret(&secret);
    if (status == TT_OK) tt_proof_key_of_run(&secret, opening->meeting.random, key);
    tt_proof_wipe(&secret, sizeof secret);
    return status;
}

/* Rank 0 serves whatever it has offered. */
static tt_status open_server(struct opening *opening)
{
    struct tt_proof_key key = {0};
    int port = 0;
    for (int i = 0; i < opening->offer.paths.count; i++)
        if (opening->offer.paths.exists[i])
            opening->missing[opening->missing_count++] =
                (struct tt_files_path){opening->offer.paths.text[i], i == 0};
    tt_proof_random(opening->meeting.random, sizeof opening->meeting.random);
    tt_status status = run_key(opening, &key);
    struct tt_files_config config = config_of(opening, &key);
    if (status == TT_OK) status = tt_files_server_open(&config, &opening->files->server, &port);
    opening->meeting.port = port;
    tt_proof_wipe(&key, sizeof key);
    return status;
}

static tt_status open_client(struct opening *opening)
{
    struct tt_proof_key key = {0};
    struct tt_str names = {0};
    tt_status status = run_key(opening, &key);
    struct tt_files_config config = config_of(opening, &key);
    if (status == TT_OK) status = tt_files_client_open(&config, CONNECT_SECONDS, &opening->files->client);
    tt_proof_wipe(&key, sizeof key);
    for (size_t i = 0; status == TT_OK && i < opening->missing_count; i++)
        status = tt_str_printf(&names, "%s'%s'", i > 0 ? ", " : "", opening->missing[i].path);
    if (status == TT_OK) {
        tt_store_set(TT_STORE_MACHINE, tt_files_client_store(opening->files->client));
        tt_notice("rank %d of %d has no %s on its machine: it uses rank 0's over the network",
                  opening->world->first_rank, opening->world->world_size, tt_str_text(&names));
    }
    tt_str_deinit(&names);
    return status;
}

/* *needing: the number of processes that miss something. */
static tt_status count_needing(struct tt_comm *comm, bool needs, int *needing)
{
    double sum = needs;
    TT_TRY(tt_comm_host_sum(comm, &sum, 1));
    *needing = (int)sum;
    return TT_OK;
}

/* Runs on every rank; the first of a process acts for it. */
static tt_status open_on_rank(void *context, const struct tt_world_rank *rank)
{
    struct opening *opening = context;
    struct tt_comm *comm = rank->comm;
    bool zero = tt_comm_rank(comm) == 0, leads = tt_comm_rank(comm) == opening->world->first_rank;
    struct tt_path probe = {""};
    struct meeting meeting = {0};
    int needing = 0;
    tt_status status = TT_OK;
    struct offer *offer = tt_calloc(1, sizeof *offer);
    TT_TRY(tt_comm_agree(comm, offer != NULL ? TT_OK : TT_ERR_MEMORY));
    if (zero) {
        opening->offer.paths = opening->own;
        opening->offer.probe = (int64_t)(tt_clock_unix_seconds() * 1e6);
        *offer = opening->offer;
        status = probe_path(opening, &probe);
        if (status == TT_OK) status = tt_file_write_atomic(probe.text, "", 0);
    }
    TT_GO(tt_comm_agree(comm, status));
    TT_GO(tt_comm_host_share(comm, offer, sizeof *offer));
    if (leads && !zero) opening->offer = *offer;
    if (leads && !zero) status = list_missing(opening);
    TT_GO(tt_comm_agree(comm, status));
    TT_GO(count_needing(comm, leads && opening->missing_count > 0, &needing));
    if (needing == 0) goto out;
    TT_GO(tt_comm_agree(comm, zero ? open_server(opening) : TT_OK));
    if (zero) meeting = opening->meeting;
    TT_GO(tt_comm_host_share(comm, &meeting, sizeof meeting));
    if (leads) opening->meeting = meeting;
    if (zero)
        status = tt_files_server_admit(opening->files->server, needing, CONNECT_SECONDS);
    else if (leads && opening->missing_count > 0)
        status = open_client(opening);
    status = tt_comm_agree(comm, status);
out:
    if (zero && probe.text[0] != '\0') (void)tt_file_remove(probe.text);
    tt_free(offer);
    return status;
}

tt_status tt_rank0_files_open(const struct tt_job_spec *job, struct tt_world *world,
                              struct tt_rank0_files *files)
{
    if (world->local_count == world->world_size || world->host[0] == '\0') return TT_OK;
    struct opening *opening = tt_calloc(1, sizeof *opening);
    tt_status status = opening != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) {
        opening->world = world;
        opening->files = files;
        status = list_paths(job, &opening->own);
    }
    status = tt_world_agree(world, status);
    if (status == TT_OK) status = tt_world_run(world, open_on_rank, opening);
    if (status != TT_OK && status != TT_ERR_PEER) tt_while("sharing rank 0's files");
    tt_free(opening);
    return status;
}

void tt_rank0_files_detach(struct tt_rank0_files *files)
{
    if (files->client != NULL) tt_store_set(TT_STORE_MACHINE, NULL);
}

void tt_rank0_files_close(struct tt_rank0_files *files)
{
    tt_rank0_files_detach(files);
    tt_files_client_close(files->client);
    tt_files_server_close(files->server);
    *files = (struct tt_rank0_files){0};
}

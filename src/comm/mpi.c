/* Ranks are processes that exchange bytes through MPI (3.1), with its own all-gather and broadcast. Sums are made here:
 * MPI may add in any order, so pieces are exchanged and each rank adds them in order of rank, which gives the same bits
 * as the threads transport.
 *
 * A rank that fails sends a message to all others on a separate MPI communicator; every wait polls for such a message
 * between tests of its request. After that no rank calls MPI again, not even MPI_Finalize, which would wait for
 * requests that nobody completes: the processes end with their own exit codes and messages, and the launcher detects an
 * abnormal end. (MPI_Abort would kill the others before they could report their errors.)
 *
 * All calls of MPI are made under one mutex: MPI_THREAD_SERIALIZED is enough, and tt_comm_abort works from any thread.
 */
#include "comm/comm_impl.h"

tt_status tt_comm_create_mpi(struct tt_comm **out)
{
    return tt_comm_create_mpi_limited(0x7fffffff, out);
}

#ifndef TT_HAVE_MPI

tt_status tt_comm_create_mpi_limited(int count_max, struct tt_comm **out)
{
    (void)count_max;
    (void)out;
    tt_fail(TT_ERR_UNSUPPORTED, "this build has no MPI");
    tt_hint("install an MPI (Debian: libopenmpi-dev) and build again, use --ranks for ranks in one process, "
            "or set "
            "MASTER_ADDR under srun");
    return TT_ERR_UNSUPPORTED;
}

#else

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/launcher.h"

enum {
    STAGING_BYTES = 4 << 20, /* pieces of a sum in memory at the same time, of all ranks together */
    BORDER_BYTES = 64,       /* pieces begin at multiples of this */
    ABORT_TAG = 1,
    TESTS_PER_PROBE = 32,
};

/* The state of the process, shared by all communicators that were split from one. */
struct mpi_world {
    pthread_mutex_t mutex;
    MPI_Comm control; /* carries only the messages of failed ranks */
    int rank, size;
    int users;
    int count_max;
    bool finalize; /* this world initialised MPI */
    bool aborted;
    int aborting_rank;
    struct tt_error cause;
    MPI_Request *farewells; /* [size] */
};

struct mpi_comm {
    struct tt_comm base;
    struct mpi_world *world;
    MPI_Comm handle;
    char *staging;
    const void **sources;
    MPI_Request *requests; /* [2][2 * world_size]: of two steps of an exchange */
};

static struct mpi_comm *mpi_of(struct tt_comm *comm)
{
    return (struct mpi_comm *)comm;
}

static tt_status fail_mpi(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return tt_fail(TT_ERR_COMM, "%s failed: %s", call, text);
}

#define TRY_MPI(call, name)                                                                                  \
    do {                                                                                                     \
        int code_ = (call);                                                                                  \
        if (code_ != MPI_SUCCESS) return fail_mpi(code_, name);                                              \
    } while (0)

/* Receives the message of a failed rank, if there is one. Call with the mutex held. */
static void poll_abort(struct mpi_world *world)
{
    MPI_Status status;
    int there = 0;
    if (world->aborted) return;
    if (MPI_Iprobe(MPI_ANY_SOURCE, ABORT_TAG, world->control, &there, &status) != MPI_SUCCESS || !there)
        return;
    world->aborting_rank = status.MPI_SOURCE;
    if (MPI_Recv(&world->cause, (int)sizeof world->cause, MPI_BYTE, status.MPI_SOURCE, ABORT_TAG,
                 world->control, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        world->cause = (struct tt_error){0};
    world->aborted = true;
}

static tt_status fail_aborted(struct mpi_world *world)
{
    return tt_comm_fail_peer(world->aborting_rank, &world->cause);
}

/* Starts a call. On TT_OK the mutex is locked. */
static tt_status begin(struct mpi_comm *comm)
{
    struct mpi_world *world = comm->world;
    pthread_mutex_lock(&world->mutex);
    poll_abort(world);
    if (!world->aborted) return TT_OK;
    pthread_mutex_unlock(&world->mutex);
    return fail_aborted(world);
}

/* Yields the processor: ranks may outnumber processors, and the awaited peer may need this one. A wait of seconds, as
 * for loading or saving, sleeps. */
static void pause_waiting(double waited_seconds)
{
    if (waited_seconds < 1.0)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* Ends a call of `begin`: waits for the requests, unlocks the mutex. `code`: the result of the call that made the
 * requests. */
static tt_status finish(struct mpi_comm *comm, int code, int count, MPI_Request *requests, const char *name)
{
    struct mpi_world *world = comm->world;
    double start = tt_clock_seconds();
    int done = 0;
    for (unsigned tests = 1; code == MPI_SUCCESS && !done && !world->aborted; tests++) {
        code = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS || done) break;
        if (tests % TESTS_PER_PROBE == 0) poll_abort(world);
        pthread_mutex_unlock(&world->mutex);
        pause_waiting(tests % TESTS_PER_PROBE == 0 ? tt_clock_seconds() - start : 0);
        pthread_mutex_lock(&world->mutex);
    }
    bool aborted = world->aborted && !done;
    pthread_mutex_unlock(&world->mutex);
    if (code != MPI_SUCCESS) return fail_mpi(code, name);
    return aborted ? fail_aborted(world) : TT_OK;
}

/* Describes `bytes` as `count` elements of a type; a message too large for MPI's int counts becomes one element of a
 * large type. Free the type with free_type. */
static int make_type(const struct mpi_world *world, size_t bytes, int *count, MPI_Datatype *type)
{
    *count = 1;
    *type = MPI_BYTE;
    if (bytes <= (size_t)world->count_max) {
        *count = (int)bytes;
        return MPI_SUCCESS;
    }
    size_t unit = 1;
    while (unit * 2 <= (size_t)world->count_max) unit *= 2;
    MPI_Datatype units, parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int lengths[2] = {1, (int)(bytes % unit)};
    MPI_Aint places[2] = {0, (MPI_Aint)(bytes - bytes % unit)};
    int code = MPI_Type_contiguous((int)unit, MPI_BYTE, &units);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_contiguous((int)(bytes / unit), units, &parts[0]);
    MPI_Type_free(&units);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_struct(2, lengths, places, parts, type);
    MPI_Type_free(&parts[0]);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

/* A type may be freed while requests use it (MPI 3.1, section 4.1.9). */
static void free_type(MPI_Datatype *type)
{
    if (*type != MPI_BYTE && *type != MPI_DATATYPE_NULL) MPI_Type_free(type);
}

static tt_status mpi_all_gather(struct tt_comm *base, struct tt_stream *stream, const void *send, void *recv,
                                size_t bytes)
{
    (void)stream;
    struct mpi_comm *comm = mpi_of(base);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count = 0;
    bool in_place = send == (char *)recv + (size_t)base->rank * bytes;
    TT_TRY(begin(comm));
    int code = make_type(comm->world, bytes, &count, &type);
    if (code == MPI_SUCCESS)
        code = MPI_Iallgather(in_place ? MPI_IN_PLACE : send, count, type, recv, count, type, comm->handle,
                              &request);
    free_type(&type);
    return finish(comm, code, 1, &request, "MPI_Iallgather");
}

/* Starts one message to rank `to`, or from it. */
static int post(struct mpi_comm *comm, bool sends, void *data, size_t bytes, int to, MPI_Request *request)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count = 0;
    if (bytes == 0) return MPI_SUCCESS;
    int code = make_type(comm->world, bytes, &count, &type);
    if (code == MPI_SUCCESS)
        code = sends ? MPI_Isend(data, count, type, to, 0, comm->handle, request)
                     : MPI_Irecv(data, count, type, to, 0, comm->handle, request);
    free_type(&type);
    return code;
}

/* Number of bytes from `offset` on, at most `most`. */
static size_t piece_of(size_t bytes, size_t offset, size_t most)
{
    if (offset >= bytes) return 0;
    return bytes - offset < most ? bytes - offset : most;
}

/* Starts the messages of one step, with at most `most` bytes of each part. They are sent from the caller's memory and
 * received into the caller's memory or, for `consume`, into half `step` % 2 of the staging. The next rank comes first,
 * so that ranks do not all send to the same one. */
static int post_step(struct mpi_comm *comm, const struct tt_comm_exchange *exchange, size_t step, size_t most)
{
    int world_size = comm->base.world_size, code = MPI_SUCCESS;
    MPI_Request *requests = comm->requests + step % 2 * 2 * (size_t)world_size;
    size_t offset = step * most;
    for (int i = 0; i < 2 * world_size; i++) requests[i] = MPI_REQUEST_NULL;
    for (int i = 1; i < world_size && code == MPI_SUCCESS; i++) {
        int q = (comm->base.rank + i) % world_size;
        const struct tt_comm_part *part = &exchange->parts[q];
        char *to = exchange->consume == NULL
                       ? (char *)part->recv + offset
                       : comm->staging + (step % 2 * (size_t)world_size + (size_t)q) * most;
        code = post(comm, false, to, piece_of(part->recv_bytes, offset, most), q, &requests[2 * i]);
        if (code == MPI_SUCCESS)
            code = post(comm, true, (char *)(uintptr_t)part->send + offset,
                        piece_of(part->send_bytes, offset, most), q, &requests[2 * i + 1]);
    }
    return code;
}

static void consume_step(struct mpi_comm *comm, const struct tt_comm_exchange *exchange, size_t step,
                         size_t most)
{
    size_t world_size = (size_t)comm->base.world_size, offset = step * most;
    const struct tt_comm_part *own = &exchange->parts[comm->base.rank];
    size_t bytes = piece_of(own->recv_bytes, offset, most);
    if (exchange->consume == NULL || bytes == 0) return;
    for (size_t q = 0; q < world_size; q++)
        comm->sources[q] = comm->staging + (step % 2 * world_size + q) * most;
    comm->sources[comm->base.rank] = (const char *)own->send + offset;
    exchange->consume(exchange->context, comm->sources, offset, bytes);
}

/* The messages of the next step are under way while one step is consumed. */
static tt_status mpi_exchange(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    struct mpi_comm *comm = mpi_of(base);
    size_t longest = 0, most = SIZE_MAX / 4;
    for (int q = 0; q < base->world_size; q++) {
        const struct tt_comm_part *part = &exchange->parts[q];
        if (part->send_bytes > longest) longest = part->send_bytes;
        if (part->recv_bytes > longest) longest = part->recv_bytes;
    }
    if (exchange->consume != NULL) {
        most = STAGING_BYTES / 2 / (size_t)base->world_size;
        if (most > (size_t)comm->world->count_max) most = (size_t)comm->world->count_max;
        most = most / BORDER_BYTES * BORDER_BYTES;
    }
    TT_TRY(begin(comm));
    int code = post_step(comm, exchange, 0, most);
    for (size_t step = 0;; step++) {
        bool more = longest > (step + 1) * most;
        if (more && code == MPI_SUCCESS) code = post_step(comm, exchange, step + 1, most);
        TT_TRY(finish(comm, code, 2 * base->world_size,
                      comm->requests + step % 2 * 2 * (size_t)base->world_size, "an exchange over MPI"));
        consume_step(comm, exchange, step, most);
        if (!more) return TT_OK;
        TT_TRY(begin(comm));
    }
}

static tt_status mpi_broadcast(struct tt_comm *base, void *data, size_t bytes, int root)
{
    struct mpi_comm *comm = mpi_of(base);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count = 0;
    TT_TRY(begin(comm));
    int code = make_type(comm->world, bytes, &count, &type);
    if (code == MPI_SUCCESS) code = MPI_Ibcast(data, count, type, root, comm->handle, &request);
    free_type(&type);
    return finish(comm, code, 1, &request, "MPI_Ibcast");
}

static tt_status mpi_barrier(struct tt_comm *base)
{
    struct mpi_comm *comm = mpi_of(base);
    MPI_Request request = MPI_REQUEST_NULL;
    TT_TRY(begin(comm));
    int code = MPI_Ibarrier(comm->handle, &request);
    return finish(comm, code, 1, &request, "MPI_Ibarrier");
}

/* Skips the poll while another thread is in a call of MPI, which polls itself. */
static tt_status mpi_poll(struct tt_comm *base)
{
    struct mpi_world *world = mpi_of(base)->world;
    if (pthread_mutex_trylock(&world->mutex) != 0) return TT_OK;
    poll_abort(world);
    bool aborted = world->aborted;
    pthread_mutex_unlock(&world->mutex);
    return aborted ? fail_aborted(world) : TT_OK;
}

/* The message is small enough for MPI to send it at once, even to a busy receiver; one second is enough. */
static void mpi_abort(struct tt_comm *base)
{
    struct mpi_world *world = mpi_of(base)->world;
    pthread_mutex_lock(&world->mutex);
    poll_abort(world);
    if (!world->aborted) {
        world->aborted = true;
        world->aborting_rank = world->rank;
        tt_error_copy(&world->cause);
        for (int q = 0; q < world->size; q++) {
            if (q != world->rank)
                (void)MPI_Isend(&world->cause, (int)sizeof world->cause, MPI_BYTE, q, ABORT_TAG,
                                world->control, &world->farewells[q]);
        }
        int done = 0;
        double start = tt_clock_seconds();
        while (!done && tt_clock_seconds() - start < 1.0) {
            if (MPI_Testall(world->size, world->farewells, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
            if (!done) sched_yield();
        }
    }
    pthread_mutex_unlock(&world->mutex);
}

static void world_release(struct mpi_world *world)
{
    pthread_mutex_lock(&world->mutex);
    bool last = --world->users == 0;
    pthread_mutex_unlock(&world->mutex);
    if (!last) return;
    if (!world->aborted) {
        if (world->control != MPI_COMM_NULL) MPI_Comm_free(&world->control);
        if (world->finalize) MPI_Finalize();
    }
    pthread_mutex_destroy(&world->mutex);
    tt_free(world->farewells);
    tt_free(world);
}

static void free_handle(struct mpi_world *world, MPI_Comm *handle)
{
    pthread_mutex_lock(&world->mutex);
    if (!world->aborted && *handle != MPI_COMM_NULL) MPI_Comm_free(handle);
    pthread_mutex_unlock(&world->mutex);
}

static void mpi_destroy(struct tt_comm *base)
{
    struct mpi_comm *comm = mpi_of(base);
    free_handle(comm->world, &comm->handle);
    world_release(comm->world);
    tt_comm_deinit_parts(base);
    tt_free(comm->staging);
    tt_free(comm->sources);
    tt_free(comm->requests);
    tt_free(comm);
}

static tt_status mpi_split(struct tt_comm *base, int color, struct tt_comm **out);

static const struct tt_comm_table mpi_table = {
    .kind = "mpi",
    .exchange = mpi_exchange,
    .all_gather = mpi_all_gather,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .poll = mpi_poll,
    .split = mpi_split,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
};

static int describe(MPI_Comm handle, struct tt_comm *base)
{
    MPI_Comm local = MPI_COMM_NULL;
    int code = MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(handle, &base->rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(handle, &base->world_size);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_split_type(handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(local, &base->local_size);
    if (local != MPI_COMM_NULL) MPI_Comm_free(&local);
    return code;
}

/* Takes ownership of `handle` and of one use of the world, also on failure. */
static tt_status comm_create(struct mpi_world *world, MPI_Comm handle, struct tt_comm **out)
{
    struct mpi_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) {
        free_handle(world, &handle);
        world_release(world);
        return TT_ERR_MEMORY;
    }
    comm->world = world;
    comm->handle = handle;
    comm->base.table = &mpi_table;
    pthread_mutex_lock(&world->mutex);
    int code = describe(handle, &comm->base);
    pthread_mutex_unlock(&world->mutex);
    tt_status status = code == MPI_SUCCESS ? TT_OK : fail_mpi(code, "creating a communicator");
    if (status == TT_OK) {
        comm->staging = tt_alloc_aligned(STAGING_BYTES);
        comm->sources = tt_calloc((size_t)comm->base.world_size, sizeof *comm->sources);
        comm->requests = tt_calloc(4 * (size_t)comm->base.world_size, sizeof(MPI_Request));
        if (comm->staging == NULL || comm->sources == NULL || comm->requests == NULL) status = TT_ERR_MEMORY;
        if (status == TT_OK) status = tt_comm_init_parts(&comm->base);
    }
    if (status != TT_OK) {
        mpi_destroy(&comm->base);
        return status;
    }
    *out = &comm->base;
    return TT_OK;
}

/* MPI_Comm_split cannot be interrupted when a rank fails; after a barrier all ranks are about to call it. */
static tt_status mpi_split(struct tt_comm *base, int color, struct tt_comm **out)
{
    struct mpi_comm *comm = mpi_of(base);
    MPI_Comm handle = MPI_COMM_NULL;
    TT_TRY(mpi_barrier(base));
    TT_TRY(begin(comm));
    int code = MPI_Comm_split(comm->handle, color, base->rank, &handle);
    if (code == MPI_SUCCESS) comm->world->users++;
    pthread_mutex_unlock(&comm->world->mutex);
    if (code != MPI_SUCCESS) return fail_mpi(code, "MPI_Comm_split");
    return comm_create(comm->world, handle, out);
}

/* Open MPI ends a process of srun that has no server of PMI or PMIx, with an exit code and a text of its own. Other
 * MPIs may find each other by the variables of Slurm alone. */
static tt_status check_server(void)
{
#ifdef OPEN_MPI
    if (tt_launcher_read(tt_launchers[TT_LAUNCHER_SRUN].started[0]) == NULL) return TT_OK;
    for (int i = TT_LAUNCHER_OPEN_MPI; i < TT_LAUNCHER_SRUN; i++)
        if (tt_launcher_read(tt_launchers[i].rank) != NULL) return TT_OK;
    tt_fail(TT_ERR_USAGE, "srun has started this process without MPI, and MASTER_ADDR is not set");
    tt_hint(
        "before srun: export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1), as "
        "the script of trimtab render sbatch does; or srun --mpi=pmix");
    return TT_ERR_USAGE;
#else
    return TT_OK;
#endif
}

static tt_status initialise(bool *finalize)
{
    int initialised = 0, finalised = 0, provided = MPI_THREAD_SINGLE;
    TRY_MPI(MPI_Initialized(&initialised), "MPI_Initialized");
    TRY_MPI(MPI_Finalized(&finalised), "MPI_Finalized");
    if (finalised)
        return tt_fail(TT_ERR_COMM, "MPI was finalized in this process and cannot be initialised again");
    if (!initialised) {
        TT_TRY(check_server());
        TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    } else
        TRY_MPI(MPI_Query_thread(&provided), "MPI_Query_thread");
    *finalize = !initialised;
    if (provided >= MPI_THREAD_SERIALIZED) return TT_OK;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "MPI provides no MPI_THREAD_SERIALIZED in this process");
    tt_hint("use a build of MPI with threads; a program that calls MPI_Init itself calls MPI_Init_thread "
            "instead");
    return status;
}

/* MPI starts a process alone whose launcher it does not know: each would train as if it were the whole run. */
static tt_status check_size(int size)
{
    for (int i = 0; i < TT_LAUNCHER_KINDS && size == 1; i++) {
        const char *variable = tt_launchers[i].mpi_size, *count = tt_launcher_read(variable);
        if (count == NULL || strtol(count, NULL, 10) <= 1) continue;
        tt_fail(TT_ERR_USAGE, "the environment variable %s is %s, but MPI has started this process alone",
                variable, count);
        tt_hint("the launcher belongs to another MPI library than trimtab (ldd shows it): use its mpirun, or "
                "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; for a run of this process alone: env -u %s "
                "trimtab ...",
                variable);
        return TT_ERR_USAGE;
    }
    return TT_OK;
}

tt_status tt_comm_create_mpi_limited(int count_max, struct tt_comm **out)
{
    bool finalize = false;
    TT_TRY(initialise(&finalize));
    struct mpi_world *world = tt_calloc(1, sizeof *world);
    if (world == NULL) return TT_ERR_MEMORY;
    MPI_Comm handle = MPI_COMM_NULL;
    tt_status status = TT_OK;
    pthread_mutex_init(&world->mutex, NULL);
    world->users = 1;
    world->count_max = count_max;
    world->finalize = finalize;
    world->control = MPI_COMM_NULL;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &world->control);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(world->control, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(world->control, &world->rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(world->control, &world->size);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &handle);
    status = code == MPI_SUCCESS ? check_size(world->size) : fail_mpi(code, "MPI_Comm_dup");
    if (status == TT_OK) {
        world->farewells = tt_calloc((size_t)world->size, sizeof *world->farewells);
        if (world->farewells == NULL) status = TT_ERR_MEMORY;
    }
    if (status != TT_OK) {
        world_release(world);
        return status;
    }
    for (int q = 0; q < world->size; q++) world->farewells[q] = MPI_REQUEST_NULL;
    return comm_create(world, handle, out);
}

#endif

/* All-gather, reduce-scatter and, between GPUs, all-reduce among ranks of this machine.
 *
 *   bench_comm tcp RANKS [MB [ROUNDS]]         starts the processes itself
 *   bench_comm threads RANKS [MB [ROUNDS]]     ranks in one process
 *   bench_comm gpus RANKS [MB [ROUNDS]]        the same, a GPU each
 *   mpirun -np RANKS bench_comm mpi [MB [ROUNDS]]       trimtab over MPI
 *   mpirun -np RANKS bench_comm mpi-own [MB [ROUNDS]]   MPI_Allgather and MPI_Reduce_scatter_block
 *
 * MB: the size gathered, or contributed by each rank, in units of 2^20 bytes (64). Prints a line of JSON for each
 * collective, from the time of the slowest rank in each round; `bytes_per_second` is the total that all ranks
 * receive, and of an all-reduce what each sends and receives at once (nccl-tests' bus bandwidth). */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef BENCH_MPI
#include <mpi.h>
#endif

#include "base/alloc.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/thread.h"
#include "comm/comm.h"

enum { RANKS_MAX = 64, ROUNDS_MAX = 1000, WARM_UP = 2 };

struct bench {
    const char *over;
    int ranks;
    size_t bytes;
    int rounds;
};

struct rank {
    const struct bench *bench;
    struct tt_comm *comm, *control; /* of the data, and of all else: the same, except on GPUs */
    struct tt_stream *stream;
    float *data, *host; /* [bytes]: on the device, and what it begins with: the same, except on GPUs */
    struct tt_buffer *buffer;
    struct tt_thread *thread;
};

enum call { GATHER, SCATTER, REDUCE };
static const char *const call_names[] = {
    [GATHER] = "all_gather", [SCATTER] = "reduce_scatter", [REDUCE] = "all_reduce"};

static tt_status run_once(const struct rank *rank, bool own, enum call call)
{
    bool gather = call == GATHER;
    size_t part = rank->bench->bytes / (size_t)rank->bench->ranks;
    float *mine = rank->data + (size_t)tt_comm_rank(rank->comm) * (part / sizeof(float));
    if (call == REDUCE)
        return tt_comm_all_reduce(rank->comm, rank->stream, rank->data, rank->bench->bytes / sizeof(float),
                                  TT_F32, TT_REDUCE_SUM);
    if (!own && gather) return tt_comm_all_gather(rank->comm, rank->stream, mine, rank->data, part);
    if (!own)
        return tt_comm_reduce_scatter(rank->comm, rank->stream, rank->data, mine, part / sizeof(float),
                                      TT_F32);
#ifdef BENCH_MPI
    int count = (int)(part / sizeof(float));
    int code =
        gather
            ? MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, rank->data, count, MPI_FLOAT, MPI_COMM_WORLD)
            : MPI_Reduce_scatter_block(MPI_IN_PLACE, rank->data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS) return TT_OK;
#endif
    return tt_fail(TT_ERR_UNSUPPORTED, "MPI's own collectives cannot be called");
}

/* Small numbers, so that sums stay finite. */
static tt_status fill(const struct rank *rank)
{
    for (size_t i = 0; i < rank->bench->bytes / sizeof(float); i++) rank->host[i] = (float)(i % 7);
    if (rank->host == rank->data) return TT_OK;
    TT_TRY(tt_copy_to_device(rank->stream, rank->data, rank->host, rank->bench->bytes));
    return tt_stream_synchronize(rank->stream);
}

/* Bytes of one call, as `bytes_per_second` counts them. */
static double bytes_moved(const struct bench *bench, enum call call)
{
    double ranks = bench->ranks, bytes = (double)bench->bytes;
    return call == REDUCE ? bytes * 2 * (ranks - 1) / ranks
                          : (double)(bench->bytes / (size_t)bench->ranks) * ranks * (ranks - 1);
}

static tt_status measure(const struct rank *rank, enum call call)
{
    const struct bench *bench = rank->bench;
    bool own = strcmp(bench->over, "mpi-own") == 0;
    double times[ROUNDS_MAX], all[RANKS_MAX];
    for (int round = -WARM_UP; round < bench->rounds; round++) {
        TT_TRY(fill(rank));
        TT_TRY(tt_comm_barrier(rank->control));
        double begin = tt_clock_seconds();
        TT_TRY(run_once(rank, own, call));
        TT_TRY(tt_stream_synchronize(rank->stream));
        double seconds = tt_clock_seconds() - begin;
        TT_TRY(tt_comm_host_all_gather(rank->control, &seconds, all, sizeof seconds));
        for (int q = 1; q < bench->ranks; q++)
            if (all[q] > all[0]) all[0] = all[q];
        if (round >= 0) times[round] = all[0];
    }
    if (tt_comm_rank(rank->comm) != 0) return TT_OK;
    double median = tt_median(times, (size_t)bench->rounds);
    printf("{\"over\": \"%s\", \"ranks\": %d, \"call\": \"%s\", \"mb\": %zu, \"rounds\": %d, \"median_ms\": "
           "%.4g, "
           "\"best_ms\": %.4g, \"bytes_per_second\": %.4g}\n",
           bench->over, bench->ranks, call_names[call], bench->bytes >> 20, bench->rounds, median * 1e3,
           times[0] * 1e3, bytes_moved(bench, call) / median);
    fflush(stdout);
    return TT_OK;
}

/* Memory on the GPU, and its communicator. */
static tt_status open_gpu(struct rank *rank, struct tt_device *device)
{
    TT_TRY(tt_buffer_create(device, rank->bench->bytes, TT_PURPOSE_COMM, &rank->buffer));
    rank->data = tt_buffer_data(rank->buffer);
    rank->comm = NULL;
    return tt_comm_create_gpu(rank->control, device, &rank->comm);
}

static tt_status run_rank(void *argument)
{
    struct rank *rank = argument;
    struct tt_device *device = NULL;
    tt_status status = TT_OK;
    bool gpu = strcmp(rank->bench->over, "gpus") == 0;
    struct tt_device_config config = {
        .kind = gpu ? "cuda" : "cpu", .index = gpu ? tt_comm_rank(rank->comm) : 0, .threads = 1};
    rank->control = rank->comm;
    rank->host = rank->data = tt_alloc_aligned(rank->bench->bytes);
    if (rank->data == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_device_tuning_read(&config.tuning));
    TT_GO(tt_device_open(&config, &device));
    TT_GO(tt_stream_create(device, &rank->stream));
    if (gpu) TT_GO(open_gpu(rank, device));
    TT_GO(measure(rank, GATHER));
    TT_GO(measure(rank, SCATTER));
    if (gpu) TT_GO(measure(rank, REDUCE));
out:
    if (status != TT_OK) {
        fprintf(stderr, "error: %s\n", tt_error_last()->message);
        tt_comm_abort(rank->control);
    }
    if (rank->comm != rank->control) tt_comm_destroy(rank->comm);
    tt_buffer_destroy(rank->buffer);
    if (rank->stream != NULL) tt_stream_destroy(rank->stream);
    tt_device_close(device);
    tt_free(rank->host);
    tt_comm_destroy(rank->control);
    return status;
}

static int over_threads(const struct bench *bench)
{
    struct tt_comm *comms[RANKS_MAX];
    struct rank ranks[RANKS_MAX];
    int failures = 0;
    if (tt_comm_create_threads(bench->ranks, comms) != TT_OK) return 1;
    for (int q = 0; q < bench->ranks; q++) {
        ranks[q] = (struct rank){.bench = bench, .comm = comms[q]};
        if (tt_thread_start("rank", run_rank, &ranks[q], &ranks[q].thread) != TT_OK) return 1;
    }
    for (int q = 0; q < bench->ranks; q++) failures += tt_thread_join(ranks[q].thread) != TT_OK;
    return failures > 0;
}

static int over_mpi(struct bench *bench)
{
    struct rank rank = {.bench = bench};
    if (tt_comm_create_mpi(&rank.comm) != TT_OK) {
        fprintf(stderr, "error: %s\n", tt_error_last()->message);
        return 1;
    }
    bench->ranks = tt_comm_world_size(rank.comm);
    return run_rank(&rank) != TT_OK;
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM, 0), port = 0;
    if (bind(file, (struct sockaddr *)&address, bytes) == 0 &&
        getsockname(file, (struct sockaddr *)&address, &bytes) == 0)
        port = ntohs(address.sin_port);
    close(file);
    return port;
}

static int be_process(const struct bench *bench, int port, int q)
{
    struct rank rank = {.bench = bench};
    struct tt_tcp_config config = {.host = "127.0.0.1",
                                   .port = port,
                                   .local = true,
                                   .world_size = bench->ranks,
                                   .first_rank = q,
                                   .local_count = 1,
                                   .machine = "this",
                                   .timeout_seconds = 60};
    int machines[RANKS_MAX];
    if (tt_comm_create_tcp(&config, &rank.comm, machines) == TT_OK) return run_rank(&rank) != TT_OK;
    fprintf(stderr, "error: %s\n", tt_error_last()->message);
    return 1;
}

static int over_tcp(const struct bench *bench)
{
    pid_t children[RANKS_MAX];
    int port = free_port(), failures = 0;
    for (int q = 0; q < bench->ranks; q++) {
        children[q] = fork();
        if (children[q] == 0) _exit(be_process(bench, port, q));
    }
    for (int q = 0; q < bench->ranks; q++) {
        int how = 0;
        failures += waitpid(children[q], &how, 0) != children[q] || how != 0;
    }
    return failures > 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.over = argc > 1 ? argv[1] : "", .bytes = 64, .rounds = 11};
    bool mpi = strncmp(bench.over, "mpi", 3) == 0;
    int at = 2;
    if (!mpi && argc > at) bench.ranks = atoi(argv[at++]);
    if (argc > at) bench.bytes = (size_t)atol(argv[at++]);
    if (argc > at) bench.rounds = atoi(argv[at++]);
    bench.bytes <<= 20;
    if (argc < (mpi ? 2 : 3) || bench.ranks < 0 || bench.ranks > RANKS_MAX || bench.rounds < 1 ||
        bench.rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_comm tcp|threads|gpus RANKS [MB [ROUNDS]], or mpi|mpi-own [MB "
                        "[ROUNDS]] in mpirun\n");
        return 2;
    }
    if (mpi) return over_mpi(&bench);
    return strcmp(bench.over, "tcp") == 0 ? over_tcp(&bench) : over_threads(&bench);
}

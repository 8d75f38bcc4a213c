/* A plugin that claims four GPUs and computes on the CPU, so that the program's handling of GPUs (choice of devices,
 * NCCL's communicators, pulling shards, failures) is tested on machines without any. Collectives exchange files of the
 * current folder, and memory is such files too, so that ranks may be processes.
 *
 * FAKE_PEER: GPUs access each other's memory. FAKE_DISORDER: NCCL's sums begin with the last rank. FAKE_FAIL=R: rank
 * R's communicator cannot be created. FAKE_HANG=N: after N calls rank 1 does not come to its collectives until they
 * are aborted. FAKE_ALONE=G: GPU G cannot read the memory of other processes. FAKE_COUNT=1: prints the number of copies
 * from other processes. FAKE_NO_COLUMNS=1: the op that quantizes columns fails. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/chips.h"
#include "backend/cpu/gemm/scaled.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "comm/comm_impl.h"

#define PRETEND_GPUS 4
#include "pretend_gpus.h"

enum { RANKS_MAX = 16 };

/* A communicator of one rank. What a rank sends in its Nth call to another one, or to all, is a file of the current
 * folder, so that ranks may be threads or processes. */
struct handle {
    struct tt_device *device;
    char id[40];
    int rank, world_size, calls;
    bool aborted;
};

static atomic_uint ids;

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static tt_status look(const struct handle *handle)
{
    if (handle->aborted) return tt_fail(TT_ERR_COMM, "the fake communicator was aborted");
    const struct tt_device *device = handle->device;
    return device->check != NULL ? device->check(device->check_context) : TT_OK;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void name_file(const struct handle *handle, int call, int from, int to, char name[96])
{
    snprintf(name, 96, "nccl-%s-%d-%d-%d", handle->id, call, from, to);
}

enum { TO_ALL = -1 };

/* Begins a call by leaving the bytes for the others. Those of the call before the last have been read. */
static tt_status leave(struct handle *handle, int to, const void *data, size_t bytes)
{
    char name[96], before[112];
    name_file(handle, handle->calls, handle->rank, to, name);
    snprintf(before, sizeof before, "%s.new", name);
    int file = open(before, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    bool whole = file >= 0;
    for (size_t done = 0; whole && done < bytes;) {
        ssize_t count = write(file, (const char *)data + done, bytes - done);
        whole = count > 0;
        if (whole) done += (size_t)count;
    }
    if (file >= 0) close(file);
    if (!whole || rename(before, name) != 0) return tt_fail(TT_ERR_COMM, "a fake communicator cannot write");
    name_file(handle, handle->calls - 2, handle->rank, to, name);
    (void)unlink(name);
    return TT_OK;
}

/* Waits as the real ones do: it polls the device's check, and ends when it is aborted. */
static tt_status take(struct handle *handle, int from, int to, void *data, size_t bytes)
{
    char name[96];
    int file;
    name_file(handle, handle->calls, from, to, name);
    while ((file = open(name, O_RDONLY)) < 0) {
        TT_TRY(look(handle));
        nap();
    }
    ssize_t count = 0;
    for (size_t done = 0; done < bytes; done += (size_t)count)
        if ((count = read(file, (char *)data + done, bytes - done)) <= 0) break;
    close(file);
    return bytes == 0 || count > 0 ? TT_OK : tt_fail(TT_ERR_COMM, "a fake communicator gets too little");
}

static tt_status begin(struct handle *handle)
{
    handle->calls++;
    while (handle->rank == 1 && handle->calls > number_from("FAKE_HANG", 1 << 30)) {
        TT_TRY(look(handle));
        nap();
    }
    return TT_OK;
}

static tt_status make_id(unsigned char id[TT_COLLECTIVE_ID_BYTES])
{
    memset(id, 0, TT_COLLECTIVE_ID_BYTES);
    snprintf((char *)id, TT_COLLECTIVE_ID_BYTES, "%d.%u", (int)getpid(), atomic_fetch_add(&ids, 1));
    return TT_OK;
}

/* All of the others have made the call as often. */
static tt_status meet(struct handle *handle)
{
    TT_TRY(begin(handle));
    TT_TRY(leave(handle, TO_ALL, NULL, 0));
    for (int q = 0; q < handle->world_size; q++)
        if (q != handle->rank) TT_TRY(take(handle, q, TO_ALL, NULL, 0));
    return TT_OK;
}

static tt_status create(struct tt_device *device, const unsigned char id[TT_COLLECTIVE_ID_BYTES], int rank,
                        int world_size, void **out)
{
    if (number_from("FAKE_FAIL", -1) == rank)
        return tt_fail(TT_ERR_COMM, "the fake communicator cannot be made");
    struct handle *handle = tt_calloc(1, sizeof *handle);
    if (handle == NULL) return TT_ERR_MEMORY;
    *handle = (struct handle){.device = device, .rank = rank, .world_size = world_size};
    snprintf(handle->id, sizeof handle->id, "%s", (const char *)id);
    tt_status status = meet(handle);
    if (status != TT_OK) {
        tt_free(handle);
        return status;
    }
    *out = handle;
    return TT_OK;
}

static void destroy(void *context)
{
    tt_free(context);
}

static void abort_handle(void *context)
{
    ((struct handle *)context)->aborted = true;
}

static tt_status check(void *context)
{
    const struct handle *handle = context;
    return handle->aborted ? tt_fail(TT_ERR_COMM, "the fake communicator was aborted") : TT_OK;
}

static tt_status all_gather(void *context, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes)
{
    struct handle *handle = context;
    (void)stream;
    TT_TRY(begin(handle));
    TT_TRY(leave(handle, TO_ALL, send, bytes));
    char *own = (char *)recv + (size_t)handle->rank * bytes;
    if (own != send) memcpy(own, send, bytes);
    for (int q = 0; q < handle->world_size; q++)
        if (q != handle->rank) TT_TRY(take(handle, q, TO_ALL, (char *)recv + (size_t)q * bytes, bytes));
    return TT_OK;
}

/* Stores the sum of `count` elements from `offset` of all ranks' data, of `total`, in `to`. */
static tt_status sum(struct handle *handle, const void *data, void *to, size_t total, size_t offset,
                     size_t count, tt_dtype dtype, int reduce)
{
    int world_size = handle->world_size;
    size_t element = tt_dtype_bytes(dtype), bytes = total * element;
    char *all = tt_alloc_aligned(bytes * (size_t)world_size);
    const void *from[RANKS_MAX];
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = begin(handle);
    if (status == TT_OK) status = leave(handle, TO_ALL, data, bytes);
    memcpy(all + (size_t)handle->rank * bytes, data, bytes);
    for (int q = 0; q < world_size && status == TT_OK; q++)
        if (q != handle->rank) status = take(handle, q, TO_ALL, all + (size_t)q * bytes, bytes);
    for (int q = 0; q < world_size; q++) {
        int place = getenv("FAKE_DISORDER") != NULL ? world_size - 1 - q : q;
        from[place] = all + (size_t)q * bytes;
    }
    if (status == TT_OK)
        tt_reduce_ordered(to, from, world_size, offset, count, dtype, (enum tt_reduce)reduce);
    tt_free(all);
    return status;
}

static tt_status reduce_scatter(void *context, struct tt_stream *stream, const void *send, void *recv,
                                size_t count, tt_dtype dtype)
{
    struct handle *handle = context;
    (void)stream;
    return sum(handle, send, recv, count * (size_t)handle->world_size, (size_t)handle->rank * count, count,
               dtype, TT_REDUCE_SUM);
}

static tt_status all_reduce(void *context, struct tt_stream *stream, void *data, size_t count, tt_dtype dtype,
                            int reduce)
{
    (void)stream;
    return sum(context, data, data, count, 0, count, dtype, reduce);
}

static tt_status exchange(void *context, struct tt_stream *stream, const struct tt_collective_part *parts)
{
    struct handle *handle = context;
    (void)stream;
    TT_TRY(begin(handle));
    for (int q = 0; q < handle->world_size; q++)
        if (q != handle->rank) TT_TRY(leave(handle, q, parts[q].send, parts[q].send_bytes));
    for (int q = 0; q < handle->world_size; q++)
        if (q != handle->rank) TT_TRY(take(handle, q, handle->rank, parts[q].recv, parts[q].recv_bytes));
    return TT_OK;
}

static const struct tt_collectives_table collectives = {
    .make_id = make_id,
    .create = create,
    .destroy = destroy,
    .abort = abort_handle,
    .check = check,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .exchange = exchange,
};

/* ---- Memory: files of the current folder, which other processes may map ---- */

struct block {
    struct block *next;
    char *data;
    size_t bytes;
    char name[TT_MEMORY_HANDLE_BYTES];
    bool imported;
};
static struct block *blocks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int peer_copies;

static tt_status map(const char *name, size_t bytes, bool create_it, struct block **out)
{
    struct block *block = calloc(1, sizeof *block);
    int file = open(name, O_RDWR | (create_it ? O_CREAT | O_EXCL : 0), 0600);
    struct stat facts;
    if (block == NULL || file < 0 || (create_it && ftruncate(file, (off_t)bytes) != 0) ||
        fstat(file, &facts) != 0)
        return tt_fail(TT_ERR_MEMORY, "fake memory %s cannot be mapped", name);
    *block = (struct block){.bytes = (size_t)facts.st_size, .imported = !create_it};
    snprintf(block->name, sizeof block->name, "%s", name);
    block->data = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (block->data == MAP_FAILED) return tt_fail(TT_ERR_MEMORY, "fake memory %s cannot be mapped", name);
    pthread_mutex_lock(&mutex);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&mutex);
    *out = block;
    return TT_OK;
}

static struct block *find(const void *data, bool forgets)
{
    pthread_mutex_lock(&mutex);
    struct block **link = &blocks;
    while (*link != NULL &&
           ((const char *)data < (*link)->data || (const char *)data >= (*link)->data + (*link)->bytes))
        link = &(*link)->next;
    struct block *found = *link;
    if (found != NULL && forgets) *link = found->next;
    pthread_mutex_unlock(&mutex);
    return found;
}

static void unmap(void *data)
{
    struct block *block = find(data, true);
    if (block == NULL) abort();
    munmap(block->data, block->bytes);
    if (!block->imported) unlink(block->name);
    free(block);
}

static tt_status allocate(struct tt_device *device, size_t bytes, void **data)
{
    struct block *block = NULL;
    char name[TT_MEMORY_HANDLE_BYTES];
    (void)device;
    snprintf(name, sizeof name, "memory-%d-%u", (int)getpid(), atomic_fetch_add(&ids, 1));
    TT_TRY(map(name, bytes > 0 ? bytes : 1, true, &block));
    *data = block->data;
    return TT_OK;
}

static void release(struct tt_device *device, void *data, size_t bytes)
{
    (void)device, (void)bytes;
    unmap(data);
}

static tt_status export_memory(struct tt_device *device, void *data, struct tt_memory_handle *handle)
{
    (void)device;
    memcpy(handle->bytes, find(data, false)->name, sizeof handle->bytes);
    return TT_OK;
}

static tt_status import_memory(struct tt_device *device, const struct tt_memory_handle *handle, void **data)
{
    struct block *block = NULL;
    if (getenv("FAKE_ALONE") != NULL && device->index == atoi(getenv("FAKE_ALONE")))
        return tt_fail(TT_ERR_UNSUPPORTED, "the fake GPU %d reads no other process", device->index);
    TT_TRY(map((const char *)handle->bytes, 0, false, &block));
    *data = block->data;
    return TT_OK;
}

static void unimport_memory(struct tt_device *device, void *data)
{
    (void)device;
    unmap(data);
}

/* FAKE_SIGNAL=G:N:S: GPU G sends itself the signal S at its Nth copy of another process's memory. */
static tt_status copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    const struct block *block = direction == TT_COPY_ON_DEVICE ? find(from, false) : NULL;
    int gpu, count, number;
    if (block != NULL && block->imported) {
        int copies = atomic_fetch_add(&peer_copies, 1) + 1;
        const char *text = getenv("FAKE_SIGNAL");
        if (text != NULL && sscanf(text, "%d:%d:%d", &gpu, &count, &number) == 3 &&
            gpu == stream->device->index && copies == count)
            raise(number);
    }
    return tt_cpu_device_table.copy(stream, to, from, bytes, direction);
}

__attribute__((destructor)) static void say_copies(void)
{
    if (getenv("FAKE_COUNT") != NULL)
        fprintf(stderr, "fake GPUs: %d copies from other processes\n", atomic_load(&peer_copies));
}

static bool enable_peer(int from, int to)
{
    return from == to || getenv("FAKE_PEER") != NULL;
}

static tt_status open_device(struct tt_device *device, const struct tt_device_config *config)
{
    TT_TRY(tt_cpu_device_table.open(device, config));
    device->is_host = false;
    device->chip = tt_chip_find("h200");
    return TT_OK;
}

static tt_status synchronize_event(struct tt_event *event)
{
    (void)event;
    return TT_OK;
}

static tt_status query_event(struct tt_event *event, bool *done)
{
    (void)event;
    *done = true;
    return TT_OK;
}

/* A GPU needs no scratch, which the CPU's op does. */
static tt_status gemm_scaled(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    int64_t m = args->a_MK.dims[0], n = args->b_NK.dims[0], k = args->b_NK.dims[1];
    size_t bytes = tt_cpu_gemm_scaled_layout(m, n, k).bytes;
    struct tt_gemm_scaled_args with_scratch = *args;
    with_scratch.scratch = tt_tensor_1d(tt_alloc_aligned(bytes), TT_U8, (int64_t)bytes);
    if (with_scratch.scratch.data == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_cpu_device_table.ops->gemm_scaled(stream, &with_scratch);
    tt_free(with_scratch.scratch.data);
    return status;
}

/* Only loading quantizes by columns. */
static tt_status quantize_columns(struct tt_stream *stream, const struct tt_quantize_columns_args *args)
{
    if (getenv("FAKE_NO_COLUMNS") != NULL)
        return tt_fail(TT_ERR_DEVICE, "the fake device quantizes no columns");
    return tt_cpu_device_table.ops->quantize_columns(stream, args);
}

TT_PUBLIC tt_plugin_entry tt_cuda_plugin;

const struct tt_plugin *tt_cuda_plugin(const struct tt_host *host)
{
    static struct tt_op_table ops;
    static struct tt_device_table device;
    static struct tt_plugin plugin;
    device = tt_cpu_device_table;
    ops = *device.ops;
    ops.gemm_scaled = gemm_scaled;
    ops.quantize_columns = quantize_columns;
    device.ops = &ops;
    device.kind = "cuda";
    device.open = open_device;
    device.allocate = allocate;
    device.release = release;
    device.export_memory = export_memory;
    device.import_memory = import_memory;
    device.unimport_memory = unimport_memory;
    device.copy = copy;
    device.event_synchronize = synchronize_event;
    device.event_query = query_event;
    plugin = (struct tt_plugin){
        .device = &device,
        .collectives = &collectives,
        .enable_peer = enable_peer,
    };
    return pretend_plugin(host, &plugin);
}

/* The interface between the program and libtrimtab_cuda.so. The plugin exports one function, TT_PLUGIN_ENTRY;
 * everything else in it is hidden. Both sides are built from the same sources: the abi text (version and sizes of the
 * tables) is compared before anything else is used.
 *
 * The plugin has its own copy of base/ and tensor/; its errors and log lines go to the program through tt_host. */
#ifndef TT_BACKEND_PLUGIN_H
#define TT_BACKEND_PLUGIN_H

#include <stdio.h>

#include "backend/device_impl.h"

struct tt_host {
    struct tt_error *(*error_record)(void); /* the program's record of the calling thread */
    void (*log_line)(enum tt_log_level level, const char *line);
};

/* Facts of one GPU, for messages; reading them creates nothing on the GPU. */
struct tt_gpu_facts {
    char name[96]; /* "NVIDIA H200" */
    int compute_major, compute_minor, processors;
    size_t memory_bytes;
    int driver_version, runtime_version; /* 13000: 13.0 */
    char pci[24];
};

enum { TT_COLLECTIVE_ID_BYTES = 128 };

/* The bytes between this rank and another one; 0: none. */
struct tt_collective_part {
    const void *send;
    size_t send_bytes;
    void *recv;
    size_t recv_bytes;
};

/* NCCL, for comm/nccl.c. A handle belongs to one device and one thread. All calls only queue work, except create, abort
 * and destroy; none blocks the host on other ranks (create polls `device`'s check). */
struct tt_collectives_table {
    tt_status (*make_id)(unsigned char id[TT_COLLECTIVE_ID_BYTES]);
    tt_status (*create)(struct tt_device *device, const unsigned char id[TT_COLLECTIVE_ID_BYTES], int rank,
                        int world_size, void **handle);
    void (*destroy)(void *handle);
    void (*abort)(void *handle);      /* from any thread; only destroy makes sense after it */
    tt_status (*check)(void *handle); /* an asynchronous error, as TT_ERR_COMM */
    tt_status (*all_gather)(void *handle, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes_per_rank);
    tt_status (*reduce_scatter)(void *handle, struct tt_stream *stream, const void *send, void *recv,
                                size_t count_per_rank, tt_dtype dtype);
    /* reduce: 0 sum, 1 max, 2 min (enum tt_reduce of comm/comm.h) */
    tt_status (*all_reduce)(void *handle, struct tt_stream *stream, void *data, size_t count, tt_dtype dtype,
                            int reduce);
    /* parts[world_size]; that of the rank itself is not looked at */
    tt_status (*exchange)(void *handle, struct tt_stream *stream, const struct tt_collective_part *parts);
};

struct tt_plugin {
    char abi[96]; /* tt_plugin_abi */
    const struct tt_device_table *device;
    const struct tt_collectives_table *collectives;
    int (*device_count)(char *reason, size_t reason_bytes);
    tt_status (*facts)(int index, struct tt_gpu_facts *out);
    /* "NV18", "PHB", "SYS", ...: as in nvidia-smi topo; "-" when unknown */
    void (*link)(int from, int to, char *text, size_t text_bytes);
    /* lets copies of `from` read the memory of `to`; false: impossible */
    bool (*enable_peer)(int from, int to);
};

#define TT_PLUGIN_ENTRY_NAME "tt_cuda_plugin"
typedef const struct tt_plugin *tt_plugin_entry(const struct tt_host *host);

static inline void tt_plugin_abi(char text[96])
{
    snprintf(text, 96, "trimtab " TT_VERSION " %zu %zu %zu %zu %zu %zu %zu", sizeof(struct tt_device_config),
             sizeof(struct tt_device_table), sizeof(struct tt_op_table), sizeof(struct tt_device),
             sizeof(struct tt_attention_backward_args), sizeof(struct tt_collectives_table),
             sizeof(struct tt_plugin));
}

/* The program's side (plugin.c). Loads the plugin at the first call, from any thread; NULL when there is none, with the
 * reason in `reason` (an unusable plugin is an error only when a GPU is requested). */
const struct tt_plugin *tt_plugin_load(char *reason, size_t reason_bytes);

#endif

/* Loading: the speed at which tt_load_units fills a device from a model folder, compared with a plain parallel
 * read of the same files by as many threads. One JSON line per round, and one for the best.
 *
 *     bench_load make FOLDER --config_json FILE [--threads N]
 *         writes a folder of that shape with random bf16 weights
 *     bench_load run FOLDER [--device cuda|cpu] [--threads N] [--rounds N] [--ranks N]
 *                [--dtype bf16|f32] [--cold true] [--verify true] [--chunk_kib N]
 *
 * The plain read uses the loader's sizes: on a GPU into one buffer per thread, on cpus into memory as large as the
 * files, because loading has to fill that too. --ranks N loads as N ranks of one process do, each its part, on
 * GPUs 0 to N - 1, with the threads divided. --cold drops the files from the page cache before every measurement.
 * --verify compares values with the formula of `make`. --chunk_kib sets another size of a chunk than the loader's.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "checkpoint/reader.h"
#include "comm/comm.h"

enum { RANKS_MAX = 16, FILES_MAX = 1024, CONFIG_BYTES_MAX = 1 << 20, THREADS_MAX = 64, PLACES = 100 };
static const uint64_t file_bytes_max = 5ull * 1000 * 1000 * 1000; /* as transformers shards */
static const size_t write_bytes = (size_t)4 << 20;

struct options {
    const char *folder, *config_json, *device;
    int threads, rounds, ranks;
    size_t chunk_bytes;
    bool cold, verify;
    tt_dtype dtype;
};

/* ---- Values ---- */

/* Four bf16 values between 2^-7 and 2^-3, of either sign, as a function of their position in the file
 * (splitmix64). */
static uint64_t values_at(uint64_t place)
{
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return (x & 0x81ff81ff81ff81ffull) | 0x3c003c003c003c00ull;
}

static uint16_t value_at(uint64_t offset)
{
    return (uint16_t)(values_at(offset / 8) >> (offset % 8 * 8));
}

/* ---- Ranges of files that threads share ---- */

struct work {
    int descriptors[FILES_MAX];
    uint64_t begins[FILES_MAX], ends[FILES_MAX];
    char *paths[FILES_MAX];
    int file_count;
    bool write;
    char *targets[FILES_MAX]; /* where each file is read to; NULL: into a buffer of the thread */
    size_t chunk_bytes;
    pthread_mutex_t mutex;
    int file;
    uint64_t at;
};

static bool take(struct work *work, int *file, uint64_t *offset, size_t *bytes)
{
    bool taken = false;
    pthread_mutex_lock(&work->mutex);
    while (work->file < work->file_count && work->at >= work->ends[work->file]) {
        work->file++;
        work->at = work->file < work->file_count ? work->begins[work->file] : 0;
    }
    if (work->file < work->file_count) {
        uint64_t left = work->ends[work->file] - work->at;
        *file = work->file;
        *offset = work->at;
        *bytes = left < work->chunk_bytes ? (size_t)left : work->chunk_bytes;
        work->at += *bytes;
        taken = true;
    }
    pthread_mutex_unlock(&work->mutex);
    return taken;
}

static tt_status move_ranges(void *argument)
{
    struct work *work = argument;
    tt_status status = TT_OK;
    int file;
    uint64_t offset;
    size_t bytes;
    unsigned char *buffer = tt_alloc_aligned(work->chunk_bytes + 16);
    if (buffer == NULL) return TT_ERR_MEMORY;
    while (status == TT_OK && take(work, &file, &offset, &bytes)) {
        if (!work->write) {
            void *to = work->targets[file] != NULL ? work->targets[file] + offset : (char *)buffer;
            status = tt_file_pread(work->descriptors[file], work->paths[file], to, bytes, offset);
            continue;
        }
        uint64_t first = offset / 8, last = (offset + bytes - 1) / 8;
        for (uint64_t i = first; i <= last; i++) {
            uint64_t values = values_at(i);
            memcpy(buffer + (i - first) * 8, &values, 8);
        }
        status =
            tt_file_pwrite(work->descriptors[file], work->paths[file], buffer + offset % 8, bytes, offset);
    }
    tt_free(buffer);
    return status;
}

static tt_status run_work(struct work *work, int threads)
{
    struct tt_thread *started[THREADS_MAX];
    tt_status status = TT_OK;
    int count = 0;
    work->file = 0;
    work->at = work->begins[0];
    pthread_mutex_init(&work->mutex, NULL);
    while (count < threads && status == TT_OK) {
        status = tt_thread_start("mover", move_ranges, work, &started[count]);
        if (status == TT_OK) count++;
    }
    for (int i = 0; i < count; i++) {
        tt_status joined = tt_thread_join(started[i]);
        if (status == TT_OK) status = joined;
    }
    pthread_mutex_destroy(&work->mutex);
    return status;
}

static void close_work(struct work *work)
{
    for (int f = 0; f < work->file_count; f++) {
        tt_file_close(work->descriptors[f]);
        tt_free(work->paths[f]);
    }
}

/* ---- make ---- */

static tt_status read_config(const char *path, struct tt_model_facts *config)
{
    struct tt_json json = {0};
    TT_TRY(tt_json_read(path, CONFIG_BYTES_MAX, &json));
    tt_status status = tt_model_facts_parse(&json, config);
    tt_json_deinit(&json);
    return status;
}

static tt_status create_files(const struct options *options, const struct tt_weights_layout *layout,
                              struct work *work)
{
    for (size_t f = 0; f < layout->file_count; f++) {
        const struct tt_weights_file *file = &layout->files[f];
        char *path = tt_path_join(options->folder, file->name);
        if (path == NULL) return TT_ERR_MEMORY;
        work->paths[f] = path;
        work->descriptors[f] = -1;
        work->file_count++;
        TT_TRY(tt_file_create(path, file->bytes, &work->descriptors[f]));
        TT_TRY(tt_file_pwrite(work->descriptors[f], path, file->header.data, file->header.bytes, 0));
        work->begins[f] = file->header.bytes;
        work->ends[f] = file->bytes;
    }
    return TT_OK;
}

static tt_status make(const struct options *options)
{
    tt_status status = TT_OK;
    static struct tt_model_facts config;
    static struct work work;
    struct tt_model_options model_options = {.compute_dtype = TT_BF16, .train_base = true};
    struct tt_model *model = NULL;
    struct tt_weights_layout layout = {0};
    struct tt_str index = {0};
    char *index_path = NULL, *config_path = NULL;
    double start = tt_clock_seconds();
    TT_GO(read_config(options->config_json, &config));
    TT_GO(tt_model_create(&config, &model_options, &model));
    TT_GO(tt_weights_layout_init(model, NULL, TT_BF16, file_bytes_max, &layout));
    TT_GO(tt_dir_create(options->folder));
    work.write = true;
    work.chunk_bytes = write_bytes;
    TT_GO(create_files(options, &layout, &work));
    TT_GO(run_work(&work, options->threads));
    index_path = tt_path_join(options->folder, "model.safetensors.index.json");
    config_path = tt_path_join(options->folder, "config.json");
    if (index_path == NULL || config_path == NULL) TT_GO(TT_ERR_MEMORY);
    if (layout.file_count > 1) {
        TT_GO(tt_weights_layout_index(&layout, &index));
        TT_GO(tt_file_write_atomic(index_path, tt_str_text(&index), index.bytes));
    }
    TT_GO(tt_file_copy(options->config_json, config_path));
    printf("{\"folder\": \"%s\", \"files\": %zu, \"bytes\": %llu, \"write_seconds\": %.3f}\n",
           options->folder, layout.file_count, (unsigned long long)layout.tensor_bytes,
           tt_clock_seconds() - start);
out:
    tt_free(index_path);
    tt_free(config_path);
    tt_str_deinit(&index);
    close_work(&work);
    tt_weights_layout_deinit(&layout);
    tt_model_destroy(model);
    return status;
}

/* ---- run ---- */

/* Shared by the ranks; rank 0 writes the times. */
struct run {
    const struct options *options;
    const struct tt_model_folder *folder;
    struct work *work;
    double best_read, best_load;
};

struct rank {
    struct run *run;
    struct tt_comm *comm;
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_model_facts config;
    struct tt_model *model;
    struct tt_shard_context *context;
    struct tt_unit **units;
    struct tt_read_range *ranges; /* --chunk_kib: what tt_load_units would make */
    size_t range_count;
    struct tt_thread *thread;
};

static tt_status create_units(struct rank *rank)
{
    struct tt_model *model = rank->model;
    rank->units = tt_calloc((size_t)model->unit_count, sizeof *rank->units);
    rank->ranges = tt_calloc(model->param_count, sizeof *rank->ranges);
    if (rank->units == NULL || rank->ranges == NULL) return TT_ERR_MEMORY;
    for (int b = 0; b < model->block_count; b++) {
        struct tt_block *block = &model->blocks[b];
        struct tt_unit **unit = &rank->units[model->unit_of_block[b]];
        if (*unit != NULL) continue;
        TT_TRY(tt_unit_create(rank->context, block->name, block->params, block->param_count, 1, unit));
        for (size_t p = 0; p < tt_unit_piece_count(*unit); p++) {
            struct tt_piece piece = tt_unit_piece(*unit, p);
            const struct tt_safetensors_entry *entry =
                tt_model_folder_find(rank->run->folder, piece.param->name);
            if (piece.count == 0 || entry == NULL) continue;
            rank->ranges[rank->range_count++] =
                (struct tt_read_range){.file = tt_model_folder_file(rank->run->folder, entry),
                                       .entry = entry,
                                       .first = piece.first,
                                       .count = piece.count,
                                       .to = piece.data,
                                       .dtype = piece.dtype,
                                       .name = piece.param->name};
        }
    }
    return TT_OK; /* nothing is gathered, so the context needs no pool */
}

static tt_status open_rank(struct rank *rank)
{
    const struct options *options = rank->run->options;
    int threads = options->threads / options->ranks;
    struct tt_device_config device = {
        .kind = options->device, .index = tt_comm_rank(rank->comm), .threads = threads > 0 ? threads : 1};
    struct tt_model_options model_options = {.compute_dtype = options->dtype};
    TT_TRY(tt_device_open(&device, &rank->device));
    TT_TRY(tt_stream_create(rank->device, &rank->stream));
    TT_TRY(tt_model_facts_parse(tt_model_folder_config(rank->run->folder), &rank->config));
    TT_TRY(tt_model_create(&rank->config, &model_options, &rank->model));
    struct tt_shard_config shard = {
        .strategy = options->ranks > 1 ? TT_FULL_SHARD : TT_NO_SHARD,
        .device = rank->device,
        .compute = rank->stream,
        .shard_comm = rank->comm,
        .compute_dtype = options->dtype,
        .reduce_dtype = TT_F32,
    };
    TT_TRY(tt_shard_context_create(&shard, &rank->context));
    return create_units(rank);
}

static void close_rank(struct rank *rank)
{
    for (int u = 0; rank->units != NULL && u < rank->model->unit_count; u++) tt_unit_destroy(rank->units[u]);
    tt_free(rank->units);
    tt_free(rank->ranges);
    tt_shard_context_destroy(rank->context);
    tt_model_destroy(rank->model);
    if (rank->stream != NULL) tt_stream_destroy(rank->stream);
    tt_device_close(rank->device);
}

/* Verifies some elements of each piece, including the first and the last. */
static tt_status verify(const struct rank *rank)
{
    for (size_t r = 0; r < rank->range_count; r++) {
        const struct tt_read_range *range = &rank->ranges[r];
        size_t element = tt_dtype_bytes(range->dtype);
        for (int64_t i = 0; i <= PLACES; i++) {
            int64_t e = (range->count - 1) * i / PLACES;
            uint16_t stored = value_at(range->entry->offset + (uint64_t)(range->first + e) * sizeof stored);
            char got[8], wanted[8];
            TT_TRY(tt_copy_to_host(rank->stream, got, (char *)range->to + (size_t)e * element, element));
            TT_TRY(tt_stream_synchronize(rank->stream));
            (void)tt_dtype_convert(wanted, range->dtype, &stored, TT_BF16, 1);
            if (memcmp(got, wanted, element) != 0)
                return tt_fail(TT_ERR_INTERNAL, "element %lld of '%s' is not what the file holds",
                               (long long)(range->first + e), range->name);
        }
    }
    return TT_OK;
}

static tt_status load(struct rank *rank)
{
    const struct options *options = rank->run->options;
    struct tt_load_source source = {.folder = rank->run->folder};
    struct tt_reader_config config = {.chunk_bytes = options->chunk_bytes};
    if (options->chunk_bytes == 0) return tt_load_units(rank->model, rank->units, rank->stream, &source);
    return tt_reader_run(rank->stream, rank->ranges, rank->range_count, &config);
}

/* Drops the files from the page cache. */
static void make_cold(const struct run *run)
{
    for (int f = 0; f < run->work->file_count && run->options->cold; f++)
        (void)posix_fadvise(run->work->descriptors[f], 0, 0, POSIX_FADV_DONTNEED);
}

static tt_status plain_read(struct run *run, double *seconds)
{
    make_cold(run);
    double start = tt_clock_seconds();
    TT_TRY(run_work(run->work, run->options->threads));
    *seconds = tt_clock_seconds() - start;
    make_cold(run);
    return TT_OK;
}

static void print_times(const struct run *run, const char *what, double read, double load_seconds)
{
    const struct options *options = run->options;
    double bytes = 0;
    for (int f = 0; f < run->work->file_count; f++) bytes += (double)run->work->ends[f];
    printf("{\"bench\": \"load\", \"round\": \"%s\", \"folder\": \"%s\", \"device\": \"%s\", \"ranks\": %d, "
           "\"threads\": %d, \"dtype\": \"%s\", \"chunk_bytes\": %zu, \"cold\": %s, \"bytes\": %.0f, "
           "\"read_seconds\": %.4f, \"load_seconds\": %.4f, \"read_gb_per_second\": %.2f, "
           "\"load_gb_per_second\": %.2f, \"ratio\": %.3f}\n",
           what, options->folder, options->device, options->ranks, options->threads,
           tt_dtype_torch_name(options->dtype), run->work->chunk_bytes, options->cold ? "true" : "false",
           bytes, read, load_seconds, bytes / read / 1e9, bytes / load_seconds / 1e9, read / load_seconds);
    fflush(stdout);
}

static tt_status run_rank(struct rank *rank)
{
    struct run *run = rank->run;
    bool first = tt_comm_rank(rank->comm) == 0;
    TT_TRY(open_rank(rank));
    for (int round = 0; round < run->options->rounds; round++) {
        double read = 0;
        char name[16];
        TT_TRY(tt_comm_barrier(rank->comm));
        if (first) TT_TRY(plain_read(run, &read));
        TT_TRY(tt_comm_barrier(rank->comm));
        double start = tt_clock_seconds();
        TT_TRY(load(rank));
        TT_TRY(tt_comm_barrier(rank->comm));
        double seconds = tt_clock_seconds() - start;
        if (!first) continue;
        snprintf(name, sizeof name, "%d", round);
        print_times(run, name, read, seconds);
        if (round == 0 || read < run->best_read) run->best_read = read;
        if (round == 0 || seconds < run->best_load) run->best_load = seconds;
    }
    return run->options->verify ? verify(rank) : TT_OK;
}

static tt_status rank_main(void *argument)
{
    struct rank *rank = argument;
    tt_status status = run_rank(rank);
    if (status != TT_OK) tt_comm_abort(rank->comm);
    close_rank(rank);
    return status;
}

static tt_status run_ranks(struct run *run, struct tt_comm **comms)
{
    static struct rank ranks[RANKS_MAX];
    struct tt_error error = {0};
    tt_status status = TT_OK;
    int started = 0;
    while (started < run->options->ranks && status == TT_OK) {
        ranks[started] = (struct rank){.run = run, .comm = comms[started]};
        status = tt_thread_start("rank", rank_main, &ranks[started], &ranks[started].thread);
        if (status == TT_OK) started++;
    }
    for (int r = 0; r < started; r++) {
        tt_status joined = tt_thread_join(ranks[r].thread);
        if (joined == TT_OK || (status != TT_OK && joined == TT_ERR_PEER)) continue;
        status = joined;
        tt_error_copy(&error);
    }
    return status == TT_OK ? TT_OK : tt_error_restore(&error);
}

static tt_status open_file(void *context, const char *name)
{
    struct run *run = context;
    struct work *work = run->work;
    size_t bytes = strlen(name);
    static const char ending[] = ".safetensors";
    if (bytes < sizeof ending || strcmp(name + bytes - (sizeof ending - 1), ending) != 0) return TT_OK;
    if (work->file_count == FILES_MAX) return tt_fail(TT_ERR_UNSUPPORTED, "more than %d files", FILES_MAX);
    int f = work->file_count++;
    work->descriptors[f] = -1;
    work->paths[f] = tt_path_join(run->options->folder, name);
    if (work->paths[f] == NULL) return TT_ERR_MEMORY;
    return tt_file_open_read(work->paths[f], &work->descriptors[f], &work->ends[f]);
}

/* Memory for all files, already touched: the targets of the plain read on cpus. */
static tt_status create_targets(struct work *work, char **memory)
{
    uint64_t bytes = 0;
    for (int f = 0; f < work->file_count; f++) bytes += work->ends[f];
    *memory = tt_alloc_aligned((size_t)bytes);
    if (*memory == NULL) return TT_ERR_MEMORY;
    memset(*memory, 1, (size_t)bytes);
    bytes = 0;
    for (int f = 0; f < work->file_count; f++) {
        work->targets[f] = *memory + bytes;
        bytes += work->ends[f];
    }
    return TT_OK;
}

static tt_status run_all(const struct options *options)
{
    char *memory = NULL;
    static struct work work;
    struct tt_model_folder *folder = NULL;
    struct run run = {.options = options, .work = &work};
    struct tt_comm *comms[RANKS_MAX] = {NULL};
    tt_status status = TT_OK;
    work.chunk_bytes = options->chunk_bytes > 0 ? options->chunk_bytes : TT_READER_CHUNK_BYTES;
    TT_GO(tt_model_folder_open(options->folder, true, &folder));
    run.folder = folder;
    TT_GO(tt_dir_list(options->folder, open_file, &run));
    if (strcmp(options->device, "cpu") == 0) TT_GO(create_targets(&work, &memory));
    TT_GO(tt_comm_create_threads(options->ranks, comms));
    TT_GO(run_ranks(&run, comms));
    print_times(&run, "best", run.best_read, run.best_load);
out:
    for (int r = 0; r < options->ranks; r++) tt_comm_destroy(comms[r]);
    close_work(&work);
    tt_free(memory);
    tt_model_folder_close(folder);
    return status;
}

/* ---- Options ---- */

static tt_status set_option(struct options *options, const char *name, const char *value)
{
    int number = atoi(value);
    bool yes = strcmp(value, "true") == 0;
    if (strcmp(name, "--config_json") == 0)
        options->config_json = value;
    else if (strcmp(name, "--device") == 0)
        options->device = value;
    else if (strcmp(name, "--threads") == 0 && number > 0 && number <= THREADS_MAX)
        options->threads = number;
    else if (strcmp(name, "--rounds") == 0 && number > 0)
        options->rounds = number;
    else if (strcmp(name, "--ranks") == 0 && number > 0 && number <= RANKS_MAX)
        options->ranks = number;
    else if (strcmp(name, "--chunk_kib") == 0 && number > 0)
        options->chunk_bytes = (size_t)number << 10;
    else if (strcmp(name, "--dtype") == 0)
        options->dtype = strcmp(value, "f32") == 0 ? TT_F32 : TT_BF16;
    else if (strcmp(name, "--cold") == 0)
        options->cold = yes;
    else if (strcmp(name, "--verify") == 0)
        options->verify = yes;
    else
        return tt_fail(TT_ERR_USAGE, "cannot take '%s %s'", name, value);
    return TT_OK;
}

static tt_status run_command(int argument_count, char **arguments)
{
    struct options options = {.device = "cpu", .rounds = 3, .ranks = 1, .dtype = TT_BF16};
    bool makes = argument_count > 2 && strcmp(arguments[1], "make") == 0;
    bool runs = argument_count > 2 && strcmp(arguments[1], "run") == 0;
    if (!makes && !runs)
        return tt_fail(TT_ERR_USAGE, "bench_load make FOLDER ... or bench_load run FOLDER ...");
    options.folder = arguments[2];
    options.threads = tt_cpu_count() < TT_READER_THREADS_MAX ? tt_cpu_count() : TT_READER_THREADS_MAX;
    for (int i = 3; i < argument_count; i += 2)
        TT_TRY(set_option(&options, arguments[i], i + 1 < argument_count ? arguments[i + 1] : ""));
    if (makes && options.config_json == NULL) return tt_fail(TT_ERR_USAGE, "make needs --config_json FILE");
    return makes ? make(&options) : run_all(&options);
}

int main(int argument_count, char **arguments)
{
    char text[4096];
    if (run_command(argument_count, arguments) == TT_OK) return 0;
    tt_error_format(tt_error_last(), text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return 1;
}

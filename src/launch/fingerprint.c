#include "launch/fingerprint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/hub_cache.h"

enum {
    BLOCK_BYTES = 4096,
    TENSOR_BLOCKS = 16,
    TENSOR_WHOLE_BYTES = 1 << 16,
    DATA_BLOCKS = 1024,
    EDGE_BYTES = 1 << 20,
    READ_BYTES = 1 << 20,
    PIECE_BYTES = 16 << 20,
    PIECES_PER_THREAD = 64,
    THREADS_MAX = 16,
};
#define DATA_WHOLE_BYTES ((uint64_t)1 << 30)

/* A range of bytes that one thread reads and sums. */
struct piece {
    size_t file, part;
    uint64_t offset, bytes, sum;
    bool full; /* belongs to the part's full sum, otherwise to its quick sum */
};

struct file {
    char *path;
    int descriptor;
    uint64_t bytes;
};

/* The files and pieces to read, and the state of the threads that read them. */
struct reading {
    struct tt_fingerprint *fingerprint;
    struct file *files;
    size_t file_count, file_capacity;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
    const char *folder; /* of the names passed to a visitor */
    enum tt_fingerprint_role role;
    const struct tt_cancel *cancel;
    atomic_size_t next;
    atomic_bool failed;
};

/* ---- Pieces ---- */

static tt_status open_file(struct reading *reading, const char *path, size_t *index)
{
    TT_TRY(tt_grow(&reading->files, reading->file_count, &reading->file_capacity));
    struct file file = {.descriptor = -1, .path = tt_strdup(path)};
    if (file.path == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_file_open_read(path, &file.descriptor, &file.bytes);
    if (status != TT_OK) {
        tt_free(file.path);
        return status;
    }
    *index = reading->file_count;
    reading->files[reading->file_count++] = file;
    return TT_OK;
}

static tt_status add_part(struct tt_fingerprint *fingerprint, const char *name, enum tt_fingerprint_role role,
                          uint64_t sum, int64_t amount)
{
    TT_TRY(tt_grow(&fingerprint->parts, fingerprint->count, &fingerprint->capacity));
    char *copy = tt_strdup(name);
    if (copy == NULL) return TT_ERR_MEMORY;
    fingerprint->parts[fingerprint->count++] =
        (struct tt_fingerprint_part){.name = copy, .role = role, .quick = sum, .amount = amount};
    return TT_OK;
}

/* The file lies in the hub's cache under its SHA-256: another one is another file, for certain and unread. Files that
 * were damaged after their download are found by their bytes alone. */
static tt_status add_hub_sum(struct tt_fingerprint *fingerprint, const char *path, const char *name)
{
    char shown[340], digits[TT_HUB_DIGITS + 1];
    uint64_t sum = tt_hub_sum(path, digits) ? tt_crc64(0, digits, TT_HUB_DIGITS) : 0;
    snprintf(shown, sizeof shown, TT_HUB_PART "%s", name);
    return add_part(fingerprint, shown, TT_FINGERPRINT_HUB, sum, 0);
}

/* Adds a piece to the part that was added last. */
static tt_status add_piece(struct reading *reading, size_t file, uint64_t offset, uint64_t bytes, bool full)
{
    TT_TRY(tt_grow(&reading->pieces, reading->piece_count, &reading->piece_capacity));
    reading->pieces[reading->piece_count++] = (struct piece){.file = file,
                                                             .part = reading->fingerprint->count - 1,
                                                             .offset = offset,
                                                             .bytes = bytes,
                                                             .full = full};
    return TT_OK;
}

static tt_status add_range(struct reading *reading, size_t file, uint64_t offset, uint64_t bytes, bool full)
{
    while (bytes > 0) {
        uint64_t now = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        TT_TRY(add_piece(reading, file, offset, now, full));
        offset += now;
        bytes -= now;
    }
    return TT_OK;
}

/* Adds one block in each of `count` ranges of equal size, at offsets derived from `seed`. */
static tt_status add_blocks(struct reading *reading, size_t file, uint64_t offset, uint64_t bytes, int count,
                            uint64_t seed)
{
    uint64_t stretch = bytes / (uint64_t)count;
    for (int i = 0; i < count; i++) {
        seed = tt_crc64(seed, &i, sizeof i);
        TT_TRY(add_piece(reading, file, offset + (uint64_t)i * stretch + seed % (stretch - BLOCK_BYTES + 1),
                         BLOCK_BYTES, false));
    }
    return TT_OK;
}

static tt_status add_tensor(struct reading *reading, size_t file, const struct tt_safetensors_entry *entry,
                            const char *file_name, bool whole)
{
    struct tt_str name = {0};
    uint64_t sum = tt_crc64(0, entry->name, strlen(entry->name) + 1);
    uint64_t seed = sum;
    sum = tt_crc64(sum, entry->dtype_name, strlen(entry->dtype_name) + 1);
    sum = tt_crc64(sum, entry->dims, (size_t)entry->rank * sizeof *entry->dims);
    tt_status status = tt_str_printf(&name, "tensor '%s' of '%s'", entry->name, file_name);
    if (status == TT_OK)
        status =
            add_part(reading->fingerprint, tt_str_text(&name), reading->role, sum, (int64_t)entry->bytes);
    tt_str_deinit(&name);
    if (status != TT_OK) return status;
    /* A tensor of torch.save may have more elements than its storage. */
    uint64_t stored = reading->files[file].bytes - entry->offset;
    if (stored > entry->bytes) stored = entry->bytes;
    if (whole || stored < TENSOR_WHOLE_BYTES) return add_range(reading, file, entry->offset, stored, false);
    TT_TRY(add_blocks(reading, file, entry->offset, stored, TENSOR_BLOCKS, seed));
    return reading->fingerprint->full ? add_range(reading, file, entry->offset, stored, true) : TT_OK;
}

/* Size and header, then each tensor. */
static tt_status add_weights(struct reading *reading, const struct tt_safetensors *weights,
                             const char *file_name, bool whole)
{
    size_t file;
    char name[300];
    TT_TRY(open_file(reading, tt_safetensors_path(weights), &file));
    uint64_t bytes = reading->files[file].bytes, header = bytes;
    snprintf(name, sizeof name, "'%s'", file_name);
    TT_TRY(add_hub_sum(reading->fingerprint, tt_safetensors_path(weights), name));
    for (size_t i = 0; i < tt_safetensors_count(weights); i++)
        if (tt_safetensors_entry(weights, i)->offset < header)
            header = tt_safetensors_entry(weights, i)->offset;
    snprintf(name, sizeof name, "the header of '%s'", file_name);
    TT_TRY(add_part(reading->fingerprint, name, reading->role, tt_crc64(0, &bytes, sizeof bytes),
                    (int64_t)bytes));
    TT_TRY(add_range(reading, file, 0, header, false));
    for (size_t i = 0; i < tt_safetensors_count(weights); i++)
        TT_TRY(add_tensor(reading, file, tt_safetensors_entry(weights, i), file_name, whole));
    return TT_OK;
}

/* Adds a file other than a weights file. */
static tt_status add_file(struct reading *reading, const char *path, const char *name)
{
    size_t file;
    TT_TRY(open_file(reading, path, &file));
    uint64_t bytes = reading->files[file].bytes;
    if (reading->role == TT_FINGERPRINT_DATA && bytes > DATA_WHOLE_BYTES)
        TT_TRY(add_hub_sum(reading->fingerprint, path, name));
    TT_TRY(add_part(reading->fingerprint, name, reading->role, tt_crc64(0, &bytes, sizeof bytes),
                    (int64_t)bytes));
    if (reading->role != TT_FINGERPRINT_DATA || bytes <= DATA_WHOLE_BYTES)
        return add_range(reading, file, 0, bytes, false);
    TT_TRY(add_range(reading, file, 0, EDGE_BYTES, false));
    TT_TRY(add_range(reading, file, bytes - EDGE_BYTES, EDGE_BYTES, false));
    TT_TRY(add_blocks(reading, file, 0, bytes, DATA_BLOCKS, bytes));
    return reading->fingerprint->full ? add_range(reading, file, 0, bytes, true) : TT_OK;
}

static tt_status add_named(void *context, const char *name)
{
    struct reading *reading = context;
    char quoted[300];
    struct tt_path path;
    TT_TRY(tt_path_set(&path, reading->folder, name));
    snprintf(quoted, sizeof quoted, "'%s'", name);
    return add_file(reading, path.text, quoted);
}

/* ---- Files ---- */

static tt_status add_settings(struct tt_fingerprint *fingerprint, const char *settings)
{
    for (const char *line = settings; line != NULL && *line != '\0';) {
        char name[128];
        size_t bytes = strcspn(line, "\n"), colon = strcspn(line, ":");
        snprintf(name, sizeof name, "setting '%.*s'", (int)(colon < bytes ? colon : bytes), line);
        TT_TRY(add_part(fingerprint, name, TT_FINGERPRINT_SETTING, tt_crc64(0, line, bytes), 0));
        line += bytes + (line[bytes] == '\n');
    }
    return TT_OK;
}

/* A part that is no file of a model folder or of rows. */
static tt_status add_own(void *context, const struct tt_input_part *part)
{
    struct reading *reading = context;
    reading->role = part->is_data ? TT_FINGERPRINT_ROWS : TT_FINGERPRINT_MODEL;
    if (part->weights != NULL) return add_weights(reading, part->weights, part->name, false);
    return add_part(reading->fingerprint, part->name, reading->role, part->sum, part->amount);
}

static tt_status add_model(struct reading *reading, const struct tt_inputs *inputs)
{
    const struct tt_model_folder *folder = inputs->folder;
    TT_TRY(tt_inputs_visit(inputs, add_own, reading));
    if (folder == NULL) return TT_OK;
    reading->folder = tt_model_folder_path(folder);
    reading->role = TT_FINGERPRINT_MODEL;
    TT_TRY(add_named(reading, "config.json"));
    bool weights = tt_model_folder_has_weights(folder) && inputs->source.folder != NULL; /* not random */
    for (size_t i = 0; weights && i < tt_model_folder_file_count(folder); i++) {
        const struct tt_safetensors *file = tt_model_folder_file_at(folder, i);
        TT_TRY(add_weights(reading, file, tt_path_basename(tt_safetensors_path(file)), false));
    }
    reading->role = TT_FINGERPRINT_TOKENIZER;
    return tt_model_folder_list_tokenizer(reading->folder, true, add_named, reading);
}

static tt_status add_adapter(struct reading *reading, const struct tt_inputs_adapter *adapter)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, adapter->folder, "adapter_config.json"));
    reading->role = TT_FINGERPRINT_ADAPTER;
    tt_status status = add_file(reading, path.text, "the adapter's 'adapter_config.json'");
    return status == TT_OK ? add_weights(reading, adapter->file, "adapter_model.safetensors", true) : status;
}

static tt_status add_data(struct reading *reading, const struct tt_dataset *dataset,
                          const struct tt_sources *sources, const char *what)
{
    char name[300];
    if (dataset == NULL) return TT_OK;
    reading->role = TT_FINGERPRINT_DATA;
    for (size_t i = 0; i < sources->file_count; i++) {
        snprintf(name, sizeof name, "the file of the %s data", what);
        if (sources->file_count > 1) /* names of folders may differ between machines */
            snprintf(name, sizeof name, "file %zu of the %s data, '%.200s'", i + 1, what,
                     tt_path_basename(sources->files[i].path));
        TT_TRY(add_file(reading, sources->files[i].path, name));
    }
    snprintf(name, sizeof name, "the %s data", what);
    return add_part(reading->fingerprint, name, TT_FINGERPRINT_ROWS, tt_dataset_sum(dataset),
                    (int64_t)tt_dataset_count(dataset));
}

static tt_status add_of_checkpoint(void *context, const char *name)
{
    struct reading *reading = context;
    struct tt_safetensors *weights = NULL;
    char shown[300];
    struct tt_path path;
    TT_TRY(tt_path_set(&path, reading->folder, name));
    if (tt_ends_with(name, ".safetensors")) {
        snprintf(shown, sizeof shown, "%s/%s", tt_path_basename(reading->folder), name);
        TT_TRY(tt_safetensors_open(path.text, &weights));
        tt_status status = add_weights(reading, weights, shown, false);
        tt_safetensors_close(weights);
        return status;
    }
    if (tt_path_is_dir(path.text)) return TT_OK;
    snprintf(shown, sizeof shown, "'%s/%s'", tt_path_basename(reading->folder), name);
    return add_file(reading, path.text, shown);
}

/* Chat templates that are not among the tokenizer's files. */
static tt_status add_templates(struct reading *reading, const struct tt_inputs *inputs)
{
    for (size_t i = 0; i < inputs->templates.template_count; i++) {
        const struct tt_chat_template *template = &inputs->templates.templates[i];
        char name[128];
        snprintf(name, sizeof name, "the chat template '%.64s'", template->name);
        TT_TRY(add_part(reading->fingerprint, name, TT_FINGERPRINT_TOKENIZER,
                        tt_crc64(0, template->text, strlen(template->text)),
                        (int64_t)strlen(template->text)));
    }
    return TT_OK;
}

static tt_status list_all(struct reading *reading, const struct tt_inputs *inputs, const char *checkpoint)
{
    TT_TRY(add_model(reading, inputs));
    TT_TRY(add_templates(reading, inputs));
    for (size_t i = 0; i < inputs->adapter_count; i++) TT_TRY(add_adapter(reading, &inputs->adapters[i]));
    TT_TRY(add_data(reading, inputs->train, &inputs->train_files, "training"));
    if (inputs->streamed != NULL)
        TT_TRY(add_part(reading->fingerprint, "the files of the training data", TT_FINGERPRINT_DATA,
                        inputs->streamed->sum, (int64_t)inputs->streamed->bytes));
    /* Rows that were held out of the training data have no files of their own beside them. */
    TT_TRY(add_data(reading, inputs->eval,
                    inputs->train != NULL || inputs->streamed != NULL ? &inputs->eval_files
                                                                      : tt_inputs_eval_files(inputs),
                    "evaluation"));
    if (checkpoint == NULL) return TT_OK;
    reading->folder = checkpoint;
    reading->role = TT_FINGERPRINT_CHECKPOINT;
    return tt_dir_list(checkpoint, add_of_checkpoint, reading);
}

/* ---- Reading ---- */

static tt_status sum_piece(struct reading *reading, struct piece *piece, void *buffer)
{
    const struct file *file = &reading->files[piece->file];
    for (uint64_t done = 0; done < piece->bytes;) {
        if (reading->cancel != NULL && atomic_load(&reading->cancel->requests) > 0)
            return tt_fail(TT_ERR_CANCELLED, "stopped on request while reading the input files");
        uint64_t left = piece->bytes - done;
        size_t now = left < READ_BYTES ? (size_t)left : READ_BYTES;
        TT_TRY(tt_file_pread(file->descriptor, file->path, buffer, now, piece->offset + done));
        piece->sum = tt_crc64(piece->sum, buffer, now);
        done += now;
    }
    return TT_OK;
}

static tt_status sum_pieces(void *argument)
{
    struct reading *reading = argument;
    void *buffer = tt_alloc_aligned(READ_BYTES);
    tt_status status = buffer != NULL ? TT_OK : TT_ERR_MEMORY;
    while (status == TT_OK && !atomic_load(&reading->failed)) {
        size_t i = atomic_fetch_add(&reading->next, 1);
        if (i >= reading->piece_count) break;
        status = sum_piece(reading, &reading->pieces[i], buffer);
    }
    if (status != TT_OK) atomic_store(&reading->failed, true);
    tt_free(buffer);
    return status;
}

/* Combines the sums of the pieces into those of their parts. */
static void fold(const struct reading *reading)
{
    struct tt_fingerprint_part *parts = reading->fingerprint->parts;
    for (size_t i = 0; i < reading->piece_count; i++) {
        const struct piece *piece = &reading->pieces[i];
        uint64_t *sum = piece->full ? &parts[piece->part].full : &parts[piece->part].quick;
        *sum = tt_crc64(*sum, &piece->sum, sizeof piece->sum);
    }
    for (size_t p = 0; p < reading->fingerprint->count && reading->fingerprint->full; p++)
        if (parts[p].full == 0 && parts[p].role != TT_FINGERPRINT_HUB)
            parts[p].full = parts[p].quick; /* it covers all bytes */
}

tt_status tt_fingerprint_compute(enum tt_verify_inputs verify, const char *settings,
                                 const struct tt_inputs *inputs, const char *checkpoint,
                                 const struct tt_cancel *cancel, struct tt_fingerprint *fingerprint)
{
    tt_status status = TT_OK;
    *fingerprint = (struct tt_fingerprint){.full = verify == TT_VERIFY_FULL};
    struct reading reading = {.fingerprint = fingerprint, .cancel = cancel};
    TT_GO(add_settings(fingerprint, settings));
    TT_GO(list_all(&reading, inputs, checkpoint));
    size_t threads = reading.piece_count / PIECES_PER_THREAD + 1;
    if (fingerprint->full) threads = reading.piece_count; /* long pieces */
    TT_GO(tt_threads_run("inputs",
                         (int)(threads < 1             ? 1
                               : threads < THREADS_MAX ? threads
                                                       : THREADS_MAX),
                         sum_pieces, &reading));
    fold(&reading);
out:
    for (size_t i = 0; i < reading.file_count; i++) {
        tt_file_close(reading.files[i].descriptor);
        tt_free(reading.files[i].path);
    }
    tt_free(reading.files);
    tt_free(reading.pieces);
    if (status != TT_OK) tt_fingerprint_deinit(fingerprint);
    if (status != TT_OK && status != TT_ERR_CANCELLED) tt_while("reading the input files to compare them");
    return status;
}

void tt_fingerprint_deinit(struct tt_fingerprint *fingerprint)
{
    for (size_t i = 0; i < fingerprint->count; i++) tt_free(fingerprint->parts[i].name);
    tt_free(fingerprint->parts);
    *fingerprint = (struct tt_fingerprint){0};
}

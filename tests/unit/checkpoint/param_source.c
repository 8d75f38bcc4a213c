/* A model whose files hold parameters in pieces: the shards have, on any number of ranks and with either kind of
 * memory, what they have of the plain folder; and what is saved has the files' names and the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/save.h"
#include "load_world.h"
#include "support/made_folder.h"
#include "support/ranks.h"

#define MODEL TT_TEST_ROOT "/golden/llama_sharded/model"
#define LAYER "layers.#."

enum { EXPERTS = 2, TENSORS_MAX = 64 };

/* Gate and up in turn in one transposed tensor, the output transposed. */
static const struct tt_param_sources turned = {
    .path = "model",
    .rows = {
        {.param = LAYER "mlp.gate_proj.weight",
         .parts =
             {{.tensor = LAYER "mlp.gate_up", .transposed = true, .units = 2, .unit = 0, .unit_rows = 1}}},
        {.param = LAYER "mlp.up_proj.weight",
         .parts =
             {{.tensor = LAYER "mlp.gate_up", .transposed = true, .units = 2, .unit = 1, .unit_rows = 1}}},
        {.param = LAYER "self_attn.o_proj.weight",
         .parts = {{.tensor = LAYER "self_attn.o", .transposed = true}}}}};
/* The rows of up_proj as those of two experts, the output and a norm under other names. */
static const struct tt_param_sources of_experts = {
    .path = "model",
    .rows = {
        {.param = LAYER "mlp.up_proj.weight", .parts = {{.tensor = LAYER "mlp.experts.*.up_proj.weight"}}},
        {.param = LAYER "self_attn.o_proj.weight", .parts = {{.tensor = LAYER "self_attn.o"}}},
        {.param = LAYER "input_layernorm.weight", .parts = {{.tensor = LAYER "ln.weight"}}}}};
/* up_proj as experts in one transposed tensor. */
static const struct tt_param_sources turned_experts = {
    .path = "model",
    .rows = {{.param = LAYER "mlp.up_proj.weight",
              .parts = {{.tensor = LAYER "mlp.experts.up_proj", .transposed = true}}}}};
/* Query, key and value rows in groups, one for each head. */
static const struct tt_param_sources by_heads = {
    .path = "model",
    .rows = {{.param = LAYER "self_attn.q_proj.weight",
              .parts = {{.tensor = LAYER "qkv", .units = 3, .unit = 0, .unit_rows = 8}}},
             {.param = LAYER "self_attn.k_proj.weight",
              .parts = {{.tensor = LAYER "qkv", .units = 3, .unit = 1, .unit_rows = 8}}},
             {.param = LAYER "self_attn.v_proj.weight",
              .parts = {{.tensor = LAYER "qkv", .units = 3, .unit = 2, .unit_rows = 8}}}}};

static bool has_experts(const struct tt_param_sources *sources)
{
    return sources == &of_experts || sources == &turned_experts;
}

struct how {
    const struct tt_param_sources *sources;
    const char *folder;
    bool late;
    const char *save_to; /* NULL: nothing is saved */
    bool like;           /* as the folder's files */
};

/* up_proj with experts, as a family with experts would build it. */
static void give_experts(struct tt_model *model, const struct tt_param_sources *sources)
{
    model->facts.sources = *sources;
    for (size_t i = 0; has_experts(sources) && i < model->param_count; i++) {
        tt_param *param = model->params[i];
        if (strstr(param->name, "up_proj") == NULL) continue;
        param->rank = 3;
        param->dims[2] = param->dims[1];
        param->dims[1] = param->dims[0] / EXPERTS;
        param->dims[0] = EXPERTS;
    }
}

static tt_status check_piece(const struct tt_piece *piece, const struct tt_model_folder *plain)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(plain, piece->param->name);
    size_t bytes = (size_t)piece->count * tt_dtype_bytes(piece->dtype);
    void *wanted = tt_alloc_aligned(bytes + 1);
    TEST_RANK_CHECK(entry != NULL && wanted != NULL);
    tt_status status = tt_model_folder_read(plain, entry, piece->first, piece->count, wanted, piece->dtype);
    if (status == TT_OK && memcmp(wanted, piece->data, bytes) != 0)
        status = tt_fail(TT_ERR_INTERNAL, "'%s' is not what the plain folder holds", piece->param->name);
    tt_free(wanted);
    return status;
}

static tt_status check_shards(const struct load_world *world, const struct tt_model_folder *plain)
{
    for (int u = 0; u < world->model->unit_count; u++)
        for (size_t p = 0; p < tt_unit_piece_count(world->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(world->units[u], p);
            if (piece.count > 0) TT_TRY(check_piece(&piece, plain));
        }
    return TT_OK;
}

static tt_status save(struct tt_comm *comm, const struct load_world *world,
                      const struct tt_model_folder *base, const char *to)
{
    struct tt_snapshot snapshot = {0};
    struct tt_saver *saver = NULL;
    struct tt_save_job job = {.folder = to};
    struct tt_save_report report;
    bool reported;
    tt_status status = TT_OK;
    struct tt_snapshot_config snapshot_config = {
        .device = world->device, .model = world->model, .units = world->units};
    struct tt_saver_config config = {
        .model = world->model,
        .units = world->units,
        .stream = world->stream,
        .snapshot = &snapshot,
        .comm = comm,
        .base = base,
        .writes = true,
        .dtype = TT_F32,
        .max_file_bytes = 100000,
    };
    TT_GO(tt_snapshot_init(&snapshot_config, &snapshot));
    TT_GO(tt_saver_create(&config, &saver));
    TT_GO(tt_saver_begin(saver, &job));
    TT_GO(tt_saver_finish(saver, &report, &reported));
out:
    tt_saver_destroy(saver);
    tt_snapshot_deinit(&snapshot);
    return status;
}

static tt_status run_rank(struct tt_comm *comm, void *argument)
{
    const struct how *how = argument;
    struct load_world world = {0};
    struct tt_model_folder *folder = NULL, *plain = NULL;
    const struct tt_model_options options = {.compute_dtype = TT_F32, .train_base = true};
    tt_status status = TT_OK;
    TT_GO(tt_model_folder_open(MODEL, true, &plain));
    TT_GO(tt_model_folder_open(how->folder, true, &folder));
    TT_GO(tt_model_folder_join(folder, how->sources));
    TT_GO(open_load_world(comm, how->late, &options, folder, &world));
    give_experts(world.model, how->sources);
    const struct tt_load_source source = {.folder = folder};
    TT_GO(tt_load_check(world.model, &source));
    TT_GO(tt_load_units(world.model, world.units, world.stream, &source));
    TT_GO(check_shards(&world, plain));
    if (how->save_to != NULL) TT_GO(save(comm, &world, how->like ? folder : NULL, how->save_to));
out:
    close_load_world(&world);
    tt_model_folder_close(folder);
    tt_model_folder_close(plain);
    return status;
}

/* ---- The folders ---- */

struct writing {
    const struct tt_param_sources *sources;
    struct made tensors[TENSORS_MAX];
    char names[TENSORS_MAX][TT_SOURCE_NAME_BYTES];
    float *data[TENSORS_MAX];
    size_t count;
    const float *values; /* of the parameter */
    int pieces;          /* parameters in pieces */
};

static tt_status put_piece(void *context, const struct tt_source_piece *piece)
{
    struct writing *writing = context;
    size_t t = 0;
    int64_t elements = 1;
    for (int d = 0; d < piece->rank; d++) elements *= piece->dims[d];
    while (t < writing->count && strcmp(writing->names[t], piece->tensor) != 0) t++;
    if (t == writing->count) {
        writing->count++;
        snprintf(writing->names[t], sizeof writing->names[t], "%s", piece->tensor);
        writing->data[t] = tt_calloc((size_t)elements, sizeof(float));
        writing->tensors[t] = (struct made){{.name = writing->names[t], .dtype = TT_F32, .rank = piece->rank},
                                            writing->data[t]};
        memcpy(writing->tensors[t].entry.dims, piece->dims, sizeof piece->dims);
    }
    for (int64_t i = 0; i < piece->rows * piece->columns; i++)
        writing->data[t][tt_source_piece_place(piece, i)] = writing->values[piece->first + i];
    return TT_OK;
}

static void put_param(struct writing *writing, const struct tt_model_folder *plain, size_t index)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_tensor(plain, index);
    int64_t count = (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype)), layer = -1;
    int64_t dims[3] = {entry->dims[0], entry->dims[1], 0};
    int rank = entry->rank;
    float *values = tt_calloc((size_t)count, sizeof *values);
    ok(tt_model_folder_read(plain, entry, 0, count, values, TT_F32));
    const struct tt_param_source *source = tt_param_source_find(writing->sources, entry->name, &layer);
    if (source != NULL && strstr(source->parts[0].tensor, "experts") != NULL) {
        dims[2] = dims[1];
        dims[1] = dims[0] / EXPERTS;
        dims[0] = EXPERTS;
        rank = 3;
    }
    writing->values = values;
    struct tt_source_piece whole = {entry->name, rank, {dims[0], dims[1]}, 0, 1, count, 0, 1, count,
                                    count,       1};
    writing->pieces += source != NULL;
    if (source != NULL)
        ok(tt_param_source_pieces(writing->sources, source, layer, rank, dims, put_piece, writing));
    else
        ok(put_piece(writing, &whole));
    tt_free(values);
}

static void put_in_pieces(const char *name, const struct tt_param_sources *sources)
{
    struct writing *writing = tt_calloc(1, sizeof *writing);
    struct tt_model_folder *plain = NULL;
    struct tt_str text = {0};
    assert_non_null(writing);
    writing->sources = sources;
    ok(tt_model_folder_open(MODEL, true, &plain));
    assert_true(tt_model_folder_tensor_count(plain) < TENSORS_MAX);
    for (size_t i = 0; i < tt_model_folder_tensor_count(plain); i++) put_param(writing, plain, i);
    ok(tt_file_read(MODEL "/config.json", 1 << 20, &text));
    assert_true(writing->pieces > 0);
    put_folder(name, tt_str_text(&text), writing->tensors, writing->count);
    for (size_t t = 0; t < writing->count; t++) tt_free(writing->data[t]);
    tt_str_deinit(&text);
    tt_model_folder_close(plain);
    tt_free(writing);
}

static const struct tt_param_sources *const kinds[] = {&turned, &of_experts, &turned_experts, &by_heads};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void the_same_shards(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        char folder[256];
        put_in_pieces("pieces", kinds[k]);
        snprintf(folder, sizeof folder, "%s", test_at("pieces"));
        for (int late = 0; late < 2; late++)
            for (int world = 1; world <= 4; world *= 2)
                test_ranks(world, run_rank,
                           &(struct how){.sources = kinds[k], .folder = folder, .late = late});
    }
}

static void check_same(const struct tt_model_folder *made, const struct tt_model_folder *saved)
{
    assert_int_equal(tt_model_folder_tensor_count(saved), tt_model_folder_tensor_count(made));
    for (size_t i = 0; i < tt_model_folder_tensor_count(made); i++) {
        const struct tt_safetensors_entry *a = tt_model_folder_tensor(made, i),
                                          *b = tt_model_folder_tensor(saved, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->rank == b->rank && a->bytes == b->bytes);
        assert_memory_equal(a->dims, b->dims, sizeof a->dims);
        int64_t count = (int64_t)(a->bytes / sizeof(float));
        float *x = tt_calloc((size_t)count, sizeof *x), *y = tt_calloc((size_t)count, sizeof *y);
        ok(tt_model_folder_read(made, a, 0, count, x, TT_F32));
        ok(tt_model_folder_read(saved, b, 0, count, y, TT_F32));
        assert_memory_equal(x, y, (size_t)count * sizeof *x);
        tt_free(x);
        tt_free(y);
    }
}

/* `like`: beside a folder that holds them so; otherwise as the family's rows say. */
static void check_saved(const struct tt_param_sources *sources, int world, bool like)
{
    char folder[256], to[256], name[64], path[300];
    struct tt_model_folder *made = NULL, *saved = NULL;
    put_in_pieces("pieces", sources);
    snprintf(folder, sizeof folder, "%s", test_at("pieces"));
    snprintf(name, sizeof name, "saved-%d-%d", world, like);
    snprintf(to, sizeof to, "%s", test_at(name));
    test_ranks(world, run_rank, &(struct how){sources, folder, false, to, like});
    ok(tt_model_folder_open(folder, true, &made));
    snprintf(path, sizeof path, "%s/config.json", to);
    if (!tt_path_exists(path)) ok(tt_file_write_atomic(path, "{}", 2));
    ok(tt_model_folder_open(to, true, &saved));
    check_same(made, saved);
    snprintf(path, sizeof path, "%s/.turned.safetensors", to);
    assert_false(tt_path_exists(path));
    tt_model_folder_close(saved);
    tt_model_folder_close(made);
    ok(tt_dir_remove(to));
}

static void saved_as_the_files_have_it(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int world = 1; world <= 4; world *= 2)
            for (int like = 0; like < 2; like++) check_saved(kinds[k], world, like);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_shards),
        cmocka_unit_test(saved_as_the_files_have_it),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}

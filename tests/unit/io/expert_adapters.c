/* Adapters of the linears of single experts are shown as those of all experts, any run of their numbers; what is
 * missing or of another shape is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/expert_adapters.h"
#include "support/made_folder.h"

enum { EXPERTS = 3, R = 2, DIM = 4, WIDTH = 5, MADE = 64, NAME = 120 };

static const struct tt_expert_adapters adapters = {
    .path = "base.model",
    .items = {{.experts = "layers.#.mlp.experts",
               .linears = {"layers.#.moe.experts.*.w1", "layers.#.moe.experts.*.w3"},
               .outer = "layers.#.moe.experts.*.w2"},
              {.experts = "layers.#.mlp.experts", .linears = {"layers.#.moe.experts.*.w2"}}},
    .count = 2,
    .renamed = {"layers.#.moe.gate", "layers.#.mlp.gate"}};

/* The tensors of a file, each with numbers of its own. */
static struct made made[MADE];
static char names[MADE][NAME];
static float data[MADE][64];
static size_t count;

static void add(int64_t rows, int64_t columns, const char *name)
{
    for (int64_t i = 0; i < rows * columns; i++) data[count][i] = (float)(100 * (int64_t)count + i);
    (void)snprintf(names[count], NAME, "%s", name);
    made[count] = (struct made){{.name = names[count], .dtype = TT_F32, .rank = 2, .dims = {rows, columns}},
                                data[count]};
    count++;
}

static void add_linear(int layer, int expert, const char *linear, int64_t in, int64_t out)
{
    char name[NAME];
    (void)snprintf(name, NAME, "base.model.layers.%d.moe.experts.%d.%s.lora_A.weight", layer, expert, linear);
    add(R, in, name);
    (void)snprintf(name, NAME, "base.model.layers.%d.moe.experts.%d.%s.lora_B.weight", layer, expert, linear);
    add(out, R, name);
}

/* Layer 0 has all linears, layer 2 no w2. */
static void make_all(void)
{
    count = 0;
    for (int e = 0; e < EXPERTS; e++) {
        add_linear(0, e, "w1", DIM, WIDTH);
        add_linear(0, e, "w3", DIM, WIDTH);
        add_linear(0, e, "w2", WIDTH, DIM);
        add_linear(2, e, "w1", DIM, WIDTH);
        add_linear(2, e, "w3", DIM, WIDTH);
    }
    add(R, DIM, "base.model.layers.0.moe.gate.lora_A.weight");
    add(2, 3, "base.model.layers.0.self_attn.q_proj.lora_A.weight");
}

static struct tt_safetensors *open_made(void)
{
    char path[300];
    struct tt_safetensors *file = NULL;
    put_folder("toy", "{}", made, count);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", test_at("toy"));
    ok(tt_safetensors_open(path, &file));
    return file;
}

static const float *numbers_of(const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return data[i];
    fail_msg("there is no '%s'", name);
    return NULL;
}

static float number_of(int layer, int64_t expert, const char *linear, char matrix, int64_t index)
{
    char name[NAME];
    (void)snprintf(name, NAME, "base.model.layers.%d.moe.experts.%d.%s.lora_%c.weight", layer, (int)expert,
                   linear, matrix);
    return numbers_of(name)[index];
}

static void check(const struct tt_safetensors *file, const char *name, int64_t rows, int64_t columns,
                  const float *wanted)
{
    float got[512];
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    if (entry == NULL) fail_msg("there is no '%s'", name);
    assert_int_equal(entry->rank, 2);
    assert_int_equal(entry->dims[0], rows);
    assert_int_equal(entry->dims[1], columns);
    for (int64_t first = 0; first < rows * columns; first++)
        for (int64_t run = 1; first + run <= rows * columns; run += 1 + run / 5) {
            ok(tt_safetensors_read(file, entry, first, run, got, TT_F32));
            assert_memory_equal(got, wanted + first, (size_t)run * sizeof *got);
        }
}

static void check_gate_up(const struct tt_safetensors *file, int layer, const char *a_name,
                          const char *b_name)
{
    static const char *const linears[] = {"w1", "w3"};
    float a[EXPERTS * 2 * R * DIM], b[2 * WIDTH * 2 * R * EXPERTS] = {0};
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t p = 0; p < 2; p++)
            for (int64_t j = 0; j < R; j++) {
                for (int64_t i = 0; i < DIM; i++)
                    a[((e * 2 + p) * R + j) * DIM + i] = number_of(layer, e, linears[p], 'A', j * DIM + i);
                for (int64_t o = 0; o < WIDTH; o++)
                    b[(p * WIDTH + o) * 2 * R * EXPERTS + (p * R + j) * EXPERTS + e] =
                        number_of(layer, e, linears[p], 'B', o * R + j);
            }
    check(file, a_name, EXPERTS * 2 * R, DIM, a);
    check(file, b_name, 2 * WIDTH, 2 * R * EXPERTS, b);
}

static void check_down(const struct tt_safetensors *file)
{
    float a[EXPERTS * R * WIDTH], b[DIM * R * EXPERTS];
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t j = 0; j < R; j++) {
            for (int64_t i = 0; i < WIDTH; i++)
                a[(e * R + j) * WIDTH + i] = number_of(0, e, "w2", 'A', j * WIDTH + i);
            for (int64_t o = 0; o < DIM; o++)
                b[o * R * EXPERTS + j * EXPERTS + e] = number_of(0, e, "w2", 'B', o * R + j);
        }
    check(file, "base.model.layers.0.mlp.experts.lora_A.weight", EXPERTS * R, WIDTH, a);
    check(file, "base.model.layers.0.mlp.experts.lora_B.weight", DIM, R * EXPERTS, b);
}

static void all_experts_together(void **state)
{
    (void)state;
    make_all();
    struct tt_safetensors *file = open_made();
    ok(tt_expert_adapters_show(&adapters, &file));
    assert_int_equal(tt_safetensors_count(file), 8);
    check_gate_up(file, 0, "base.model.layers.0.mlp.experts.base_layer.lora_A.weight",
                  "base.model.layers.0.mlp.experts.base_layer.lora_B.weight");
    check_down(file);
    check_gate_up(file, 2, "base.model.layers.2.mlp.experts.lora_A.weight",
                  "base.model.layers.2.mlp.experts.lora_B.weight");
    check(file, "base.model.layers.0.mlp.gate.lora_A.weight", R, DIM,
          numbers_of("base.model.layers.0.moe.gate.lora_A.weight"));
    check(file, "base.model.layers.0.self_attn.q_proj.lora_A.weight", 2, 3,
          numbers_of("base.model.layers.0.self_attn.q_proj.lora_A.weight"));
    tt_safetensors_close(file);
}

static void other_files_stay(void **state)
{
    (void)state;
    count = 0;
    add(2, 3, "base.model.layers.0.self_attn.q_proj.lora_A.weight");
    struct tt_safetensors *file = open_made(), *before = file;
    ok(tt_expert_adapters_show(&adapters, &file));
    assert_ptr_equal(file, before);
    tt_safetensors_close(file);
}

static void refuse(const char *word)
{
    struct tt_safetensors *file = open_made();
    assert_int_equal(tt_expert_adapters_show(&adapters, &file), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, word) == NULL) fail_msg("%s", tt_error_last()->message);
    tt_safetensors_close(file);
}

static void refusals(void **state)
{
    (void)state;
    count = 0;
    add_linear(0, 0, "w1", DIM, WIDTH);
    add_linear(0, 1, "w1", DIM, WIDTH);
    add_linear(0, 0, "w3", DIM, WIDTH);
    refuse("has adapters of 2 experts and lacks 'base.model.layers.0.moe.experts.1.w3.lora_A.weight'");
    add_linear(0, 1, "w3", DIM, WIDTH + 1);
    refuse("'base.model.layers.0.moe.experts.1.w3.lora_B.weight' has another type or shape than "
           "'base.model.layers.0.moe.experts.0.w1.lora_B.weight'");
    count -= 2;
    add_linear(0, 1, "w3", DIM, WIDTH);
    made[count - 2].entry.dtype = TT_I32;
    refuse("'base.model.layers.0.moe.experts.1.w3.lora_A.weight' has another type or shape");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_experts_together),
        cmocka_unit_test(other_files_stay),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}

/* Quantized weights in model folders. The tensors of a weight `P.weight`, in the file format of bitsandbytes:
 *
 *     4 bits   P.weight (codes [n, 1], of any type: bnb_4bit_quant_storage only names the type of the bytes),
 *              P.weight.absmax (F32, or U8 when nested), P.weight.quant_map (F32 [16]),
 *              P.weight.quant_state.bitsandbytes__nf4 or __fp4 (U8: JSON), and when nested
 *              P.weight.nested_absmax (F32), P.weight.nested_quant_map (F32 [256])
 *     8 bits   P.weight (I8 [out, in]), P.SCB (F32 [out]), P.weight_format (U8, 0: rows)
 *
 * Source: bitsandbytes/functional.py (QuantState.as_dict), nn/modules.py. In FP8, the weight is code * scale:
 *
 *     P.weight (F8_E4M3 [out, in]) and P.weight_scale (compressed-tensors, format float-quantized) or
 *     P.weight_scale_inv (quant_method fp8), F32, BF16, F16 or F8_E8M0:
 *         rows     [out, 1] or [out]
 *         one      [], [1] or [1, 1]
 *         blocks   of 128 x 128 weights, the last ones cut: [ceil(out / 128), ceil(in / 128)]
 *     and for servers P.input_scale or P.activation_scale, which training does not read.
 *
 * The matrices P of all experts in one tensor have P (F8_E4M3 [experts, out, in]), P_scale_inv and, not read,
 * P_activation_scale; they are one matrix of all rows:
 *
 *     groups of rows  [experts], [experts, groups] or [experts, groups, 1]: each expert's rows in so many groups
 *     blocks          [experts, out / 128, ceil(in / 128)]
 *
 * Source: compressed_tensors/quantization/quant_scheme.py and lifecycle/forward.py (0.20),
 * transformers/integrations/finegrained_fp8.py (5.24: DeepSeek-V3, Qwen3; Mistral with one scale).
 *
 * Each weight becomes a segment (tensor/quant.h), with tables and scales as stored. A segment in FP8 has scales of
 * rows or of blocks, for which one scale of a matrix is repeated. Inconsistent parts are TT_ERR_DATA, with the name of
 * the tensor. */
#ifndef TT_IO_QUANTIZED_H
#define TT_IO_QUANTIZED_H

#include "io/model_folder.h"
#include "tensor/format.h"

/* ---- config.json ---- */

enum { TT_QUANTIZED_SKIP_MAX = 64 };

/* Its quantization_config. The names of skipped modules are borrowed from the JSON. */
struct tt_quantized_config {
    enum tt_quant_type type; /* NONE: not quantized */
    bool fp8_blocks;         /* scales of 128 x 128 weights */
    bool fp8_powers;         /* scale_fmt ue8m0: scales, also those of activations, are powers of two */
    bool nested;
    bool mxfp4;                              /* experts are in MXFP4, and type is NONE */
    tt_dtype compute_dtype, storage_dtype;   /* of 4 bits */
    const char *skip[TT_QUANTIZED_SKIP_MAX]; /* to write; with FP8: names of modules or "re:EXPRESSION" */
    int skip_count;
    const struct tt_json_value *skip_list; /* read: NULL or the list of names */
};
/* Absent keys have the library's defaults (fp4, not nested, float32, uint8). Methods are bitsandbytes, and of those
 * with weights in E4M3 fp8 and compressed-tensors; others are TT_ERR_UNSUPPORTED. */
TT_MUST_USE tt_status tt_quantized_config_read(const struct tt_json *config, struct tt_quantized_config *out);
/* Makes the quantization_config as transformers writes it, of FP8 as llm-compressor does for FP8_DYNAMIC. The caller
 * owns the result; NULL (record set) on failure. */
struct tt_json_value *tt_quantized_config_make(const struct tt_quantized_config *config);

/* ---- Reading ---- */

struct tt_quantized_part {
    const struct tt_safetensors_entry *entry;
    struct tt_quant_section section; /* its place in the segment, which it fills, except scales of FP8 */
};
enum { TT_QUANTIZED_PARTS = TT_FORMAT_TENSORS };

/* The scales of a weight in FP8. */
enum tt_fp8_scales { TT_FP8_ROW_SCALES, TT_FP8_ONE_SCALE, TT_FP8_BLOCK_SCALES };

struct tt_quantized {
    struct tt_quant_layout layout;
    enum tt_fp8_scales scales;
    int64_t scale_rows; /* with scales of rows: so many have one */
    tt_dtype dtype;     /* of the original weights; int8: F16 */
    float offset;       /* when nested: stored in the JSON */
    struct tt_quantized_part parts[TT_QUANTIZED_PARTS];
    int part_count;
};

/* Finds and checks the parts of the weight `name` ("model.layers.0.mlp.up_proj.weight"), except for their values. A
 * weight that is not quantized has layout.format.type NONE. */
TT_MUST_USE tt_status tt_quantized_find(const struct tt_model_folder *folder, const char *name,
                                        struct tt_quantized *out);
/* FP8: the segment gets scales of blocks. TT_ERR_UNSUPPORTED for scales of rows. */
TT_MUST_USE tt_status tt_quantized_in_blocks(struct tt_quantized *tensor);
/* Reads bytes [first, first + bytes) of its segment; gaps are zeros. */
TT_MUST_USE tt_status tt_quantized_read(const struct tt_model_folder *folder,
                                        const struct tt_quantized *tensor, size_t first, size_t bytes,
                                        void *to);
/* FP8: reads weights first .. first + count - 1, code * scale in fp32. */
TT_MUST_USE tt_status tt_quantized_read_weights(const struct tt_model_folder *folder,
                                                const struct tt_quantized *tensor, int64_t first,
                                                int64_t count, float *to);
/* Checks that scales and tables are finite: reads them all (at most 1/32 of the weights' bytes). */
TT_MUST_USE tt_status tt_quantized_check_values(const struct tt_model_folder *folder,
                                                const struct tt_quantized *tensor);
/* True if `name` is one of the tensors beside a quantized weight, whose name is the first `*module_bytes` of `name`
 * followed by ".weight". */
bool tt_quantized_is_part(const char *name, size_t *module_bytes);
/* Parses the JSON beside the codes alone, for tests. */
TT_MUST_USE tt_status tt_quantized_state_parse(const char *text, size_t bytes, const char *origin,
                                               struct tt_quant_layout *layout, tt_dtype *dtype,
                                               float *offset);

/* ---- Writing ---- */

enum { TT_QUANTIZED_ENTRIES = TT_FORMAT_TENSORS + 1 };

/* The tensors of one quantized weight in a file. */
struct tt_quantized_output {
    /* name, type, dims; for tt_safetensors_layout */
    struct tt_safetensors_entry entries[TT_QUANTIZED_ENTRIES];
    struct tt_quant_section sections[TT_QUANTIZED_ENTRIES]; /* of the segment; no bytes: see below */
    int count;
    /* the entry of the JSON (tt_quantized_state_write); int8: of weight_format, one zero; both have no section */
    int state;
};
/* Names are allocated in `arena`. `dtype`: of the original weights. `storage`: the type under which the codes are
 * stored; its size must divide their bytes. */
TT_MUST_USE tt_status tt_quantized_describe(const char *name, const struct tt_quant_layout *layout,
                                            tt_dtype dtype, tt_dtype storage, struct tt_arena *arena,
                                            struct tt_quantized_output *out);
/* Whether the rows of a piece are whole blocks of a matrix in this format, with those of nested scales: what a folder
 * needs, to have the matrix quantized. */
bool tt_quantized_piece_fits(const struct tt_quant_layout *layout, const struct tt_source_piece *piece);

/* The JSON, padded with spaces to the length of entries[state], which does not depend on `offset`. */
TT_MUST_USE tt_status tt_quantized_state_write(const struct tt_quant_layout *layout, tt_dtype dtype,
                                               float offset, struct tt_str *text);

#endif

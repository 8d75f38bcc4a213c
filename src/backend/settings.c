#include "backend/settings.h"

#include <stddef.h>

#include "backend/tuning.h"

#define FIELD(member) .offset = offsetof(struct tt_device_tuning, member)

/* One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_tuning_settings[] = {
    {.name = "deterministic", .type = TT_SETTING_BOOL, FIELD(deterministic), .default_text = "false",
     .environment = "TRIMTAB_DETERMINISTIC",
     .help = "GPUs give the same bits in every run, in threads as in processes: attention by our own kernels, sums "
             "over ranks in their order. Slower; the CPU always does."},
    {.name = "attention", .type = TT_SETTING_CHOICE, FIELD(attention), .default_text = "auto", .null_text = "auto",
     .choices = "auto own cudnn", .environment = "TRIMTAB_ATTENTION", .needs = "!device=cpu",
     .help = "Kernels of attention on GPUs."},
    {.name = "gemm_fused", .type = TT_SETTING_CHOICE, FIELD(gemm_fused), .default_text = "auto", .null_text = "auto",
     .choices = "auto off require", .synonyms = "0=off 1=auto", .environment = "TRIMTAB_GEMM_FUSED",
     .needs = "!device=cpu",
     .help = "Products with LoRA, SwiGLU and rotation in one kernel on Hopper's GPUs; require: an error where it "
             "does not take them."},
    {.name = "gemm_tune", .type = TT_SETTING_BOOL, FIELD(gemm_tune), .default_text = "false",
     .environment = "TRIMTAB_GEMM_TUNE", .needs = "!device=cpu",
     .help = "Measure cuBLASLt's ways for each product once and keep the fastest."},
    {.name = "cpu_isa", .type = TT_SETTING_CHOICE, FIELD(cpu_isa), .default_text = "auto", .null_text = "auto",
     .choices = "auto portable avx2 avx512 avx512_bf16 amx", .environment = "TRIMTAB_CPU_ISA", .needs = "!device=cuda",
     .help = "Instructions that the CPU computes with; auto: all that it has."},
    {.name = "cpu_gemm", .type = TT_SETTING_CHOICE, FIELD(cpu_gemm), .default_text = "auto", .null_text = "auto",
     .choices = "auto dot panels pairs", .environment = "TRIMTAB_CPU_GEMM", .needs = "!device=cuda",
     .help = "Kernels of matrix products on the CPU."},
    {.name = "cpu_panels", .type = TT_SETTING_CHOICE, FIELD(cpu_panels), .default_text = "auto", .null_text = "auto",
     .choices = "auto off", .environment = "TRIMTAB_CPU_PANELS", .local = true, .needs = "!device=cuda",
     .help = "auto: a generation of several prompts at a time packs the weights once for the CPU's products, where "
             "there is memory for them again, instead of in each pass; off: never. The results are the same."},
    {.name = "hang_seconds", .type = TT_SETTING_DOUBLE, FIELD(hang_seconds), .default_text = "0", .null_text = "0",
     .maximum = 1e9, .environment = "TRIMTAB_HANG_SECONDS", .local = true, .needs = "!device=cpu",
     .help = "Seconds after which a GPU that completes nothing ends the run; 0: 20."},
    {.name = NULL},
};
/* clang-format on */

tt_status tt_device_tuning_read(struct tt_device_tuning *out)
{
    static const struct tt_setting_section section = {"Device", tt_tuning_settings, 0};
    struct tt_settings *settings = NULL;
    TT_TRY(tt_settings_create(&section, 1, out, sizeof *out, &settings));
    tt_status status = tt_settings_settle(settings);
    tt_settings_destroy(settings);
    return status;
}

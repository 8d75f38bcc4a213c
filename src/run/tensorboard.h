/* TensorBoard event files: scalars, texts, pictures and settings. Format: TFRecord framing (length, masked CRC-32C,
 * data, masked CRC-32C) around tensorflow.Event protocol buffers (tensorflow/core/util/event.proto,
 * framework/summary.proto, framework/tensor.proto; tensorboard/plugins/hparams/plugin_data.proto). */
#ifndef TT_RUN_TENSORBOARD_H
#define TT_RUN_TENSORBOARD_H

#include <stdint.h>
#include "base/json.h"
#include "base/str.h"

struct tt_tensorboard;
/* Creates `folder` and an events.out.tfevents.* file in it. */
TT_MUST_USE tt_status tt_tensorboard_open(const char *folder, struct tt_tensorboard **out);
void tt_tensorboard_close(struct tt_tensorboard *board); /* takes NULL */
/* One scalar; written when this returns, or kept until the disk has room (record_file.h). TT_ERR_MEMORY only. */
TT_MUST_USE tt_status tt_tensorboard_scalar(struct tt_tensorboard *board, const char *tag, int64_t step,
                                            double value);
/* One text for the text plugin, as torch.utils.tensorboard's add_text writes it: UTF-8, displayed as Markdown. */
TT_MUST_USE tt_status tt_tensorboard_text(struct tt_tensorboard *board, const char *tag, int64_t step,
                                          const struct tt_str *text);
/* One picture, as torch.utils.tensorboard's add_image writes it: `png` is a file of height x width pixels in colour. */
TT_MUST_USE tt_status tt_tensorboard_image(struct tt_tensorboard *board, const char *tag, int64_t step,
                                           int32_t height, int32_t width, const struct tt_str *png);
/* The settings of the run for the plugin hparams, as its session_start_pb writes them: numbers, truths and texts; lists
 * and mappings as JSON; null is left out. */
TT_MUST_USE tt_status tt_tensorboard_hparams(struct tt_tensorboard *board,
                                             const struct tt_json_value *settings);

#endif

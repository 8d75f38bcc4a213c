/* For tests: the gradients of a model runner against finite differences, and passes block by block at a level. */
#ifndef TT_TESTS_SUPPORT_GRADIENT_CHECK_H
#define TT_TESTS_SUPPORT_GRADIENT_CHECK_H

#include "support/model_runner.h"

double tt_runner_grad_norm(const tt_param *param);
/* The change of the loss along a direction of random signs, by the fourth-order central difference, must be what the
 * gradient says. `name`: the model, in messages. */
void tt_runner_check_param(struct tt_model_runner *runner, const char *name, tt_param *param);

/* A way to run a pass. Recomputed: a layer runs again before its backward, without an output. */
struct tt_runner_way {
    enum tt_level level;
    bool mixed; /* instead of one level the blocks have levels in turn */
    bool apart; /* no gradient shares its memory with the one behind it */
};
/* A pass over all blocks, forward and backward; adds to all gradients. */
void tt_runner_pass(struct tt_model_runner *runner, struct tt_runner_way way);
/* The gradients of both are the same bits. */
void tt_runner_check_same(const struct tt_model_runner *runner, const struct tt_model_runner *like,
                          const char *name, const char *what);

#endif

/* Generation over the ranks of a run. Rank 0 leads: it takes requests and has their answers. The others follow: they
 * run what it gives them. With one rank every call is the engine's, without further cost.
 *
 *     create -> run (on the leader: submit ... -> step, poll, submit, cancel, release, step ...) -> destroy
 *
 * A request waits at the leader until a rank has a free slot; the rank with the fewest requests takes it. In each step
 * the leader sends all new requests to every rank, every rank runs a step of its engine, and the new tokens come back.
 * Since an answer depends on its request alone, it does not depend on the rank that computes it, nor on their
 * number. */
#ifndef TT_INFER_GENERATION_TEAM_H
#define TT_INFER_GENERATION_TEAM_H

#include "infer/generation_engine.h"

struct tt_generation_team;

/* Takes the engine, on failure too. All ranks of its world make a team; none waits for another. */
TT_MUST_USE tt_status tt_generation_team_create(struct tt_generation_engine *engine,
                                                struct tt_generation_team **out);
/* The same as tt_generation_attach, for a team of ranks. */
TT_MUST_USE tt_status tt_generation_team_attach(struct tt_rank *rank, const struct tt_inputs *inputs,
                                                const struct tt_generation_limits *limits,
                                                struct tt_generation_team **out);
void tt_generation_team_destroy(struct tt_generation_team *team); /* takes NULL */

/* The engine, for limits, end ids and adapters. */
const struct tt_generation_engine *tt_generation_team_engine(const struct tt_generation_team *team);
/* Requests that run at the same time on all ranks. */
int64_t tt_generation_team_slots(const struct tt_generation_team *team);

/* Functions of the leader during a run, like the engine's of the same names. An error of a step is for all requests. */
TT_MUST_USE tt_status tt_generation_team_submit(struct tt_generation_team *team,
                                                const struct tt_generation_request *request, int64_t *id);
TT_MUST_USE tt_status tt_generation_team_step(struct tt_generation_team *team, bool *busy);
TT_MUST_USE tt_status tt_generation_team_poll(const struct tt_generation_team *team, int64_t id,
                                              struct tt_generation_progress *progress);
void tt_generation_team_cancel(struct tt_generation_team *team, int64_t id);
void tt_generation_team_release(struct tt_generation_team *team, int64_t id);

/* The same as tt_generation_load_adapter on all ranks, which open the folder each. For the leader, between steps. */
TT_MUST_USE tt_status tt_generation_team_load_adapter(struct tt_generation_team *team, const char *folder,
                                                      int place, tt_status *verdict);

/* Generates with the weights as they are now: calls `lead` on the leader, and runs its steps on the others until it has
 * returned. After an error of `lead` the others wait for the abort of the communicator; where it is TT_ERR_CANCELLED,
 * they return the same. Collective. */
typedef tt_status tt_generation_lead(void *context, struct tt_generation_team *team);
TT_MUST_USE tt_status tt_generation_team_run(struct tt_generation_team *team, tt_generation_lead *lead,
                                             void *context);

#endif

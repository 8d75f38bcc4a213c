/* One request of a server, from its parsing to the end of its answers: n to each prompt, each a generation of its own.
 * All but the parsing belongs to the thread of the engine. */
#ifndef TT_SERVE_SERVE_JOB_H
#define TT_SERVE_SERVE_JOB_H

#include "serve/adapter_requests.h"
#include "serve/api_request.h"
#include "serve/serve_prompt.h"
#include "serve/server.h"

struct tt_serve_choice {
    struct tt_talk_answer answer;
    struct tt_str text; /* of the answer so far; with the echo of its prompt */
    size_t echoed;      /* bytes of the prompt */
    size_t sent;        /* of the text, as events */
    /* Where reasoning is kept apart: the whole answer so far, its reasoning, and how much of that was sent. */
    struct tt_str raw, thought;
    size_t thought_sent;
    bool inside;        /* the answer begins inside its reasoning */
    bool told_prompt;   /* log p and ids of the prompt were sent */
    size_t told;        /* tokens whose log p and ids were sent, the one that ended the answer among them */
    int64_t characters; /* of these tokens */
    bool ready;         /* log p of its prompt is there, or not wanted */
    bool sought;        /* for calls of tools, after its end */
    struct tt_json_value *calls; /* owned; NULL: none */
    bool begun;                  /* the first event of a stream was written */
    bool stopped;                /* by a stop text */
    bool over;                   /* the last event of a stream was written */
};

/* Who asks: the holder of a key, or an address. Owned by the server. */
struct tt_serve_client {
    struct tt_serve_client *next;
    unsigned char name[TT_ORIGIN_BYTES];
    size_t load; /* answers, waiting or running; under the lock of the server */
    /* of the thread of the engine: answers that run, and when one was begun last, counted by begun answers */
    int64_t running, turn;
};

struct tt_serve_job {
    struct tt_serve_job *next;
    struct tt_serve_client *client;    /* lent until the server takes the job off its load */
    struct tt_http_exchange *exchange; /* owned reference */
    struct tt_api_request request;
    enum tt_api_form form;
    bool chat, adapter_off;
    bool uses, loads; /* the place `adapter` of config->adapters */
    int adapter;
    const char *model; /* the name in answers */
    char id[48];
    int64_t created;
    double arrived, begun, first; /* tt_clock_seconds; 0: not yet */
    uint64_t number;              /* of the first answer */
    size_t prompt_tokens;
    struct tt_ids banned;            /* the tokens of bad_words (infer/token_rules.h) */
    struct tt_serve_prompt *prompts; /* of the request's */
    struct tt_serve_choice *choices; /* the answers to the first prompt, to the second ... */
    size_t choice_count;
    size_t asked, ended; /* choices that were submitted, and those of them that have ended */
};

/* The prompt of a choice. */
static inline const struct tt_serve_prompt *tt_serve_prompt_of(const struct tt_serve_job *job,
                                                               const struct tt_serve_choice *choice)
{
    return &job->prompts[(size_t)(choice - job->choices) / (size_t)job->request.n];
}

struct tt_serve_adapter_call tt_serve_adapter_call_of(const struct tt_serve_config *config,
                                                      const struct tt_serve_job *job);
/* Ends the answers that still run: its client has left, or the server ends. */
void tt_serve_job_cancel(const struct tt_serve_config *config, struct tt_serve_job *job);
/* Its client gets the end of its answer. */
void tt_serve_job_destroy(const struct tt_serve_config *config, struct tt_serve_job *job);
/* Makes its prompts. False: it has been answered, with an error where it asks for generations. */
bool tt_serve_job_begin(const struct tt_serve_config *config, struct tt_serve_job *job);
/* Submits the next of its choices, of which some are left. False: it has been answered with an error. */
bool tt_serve_job_ask(const struct tt_serve_config *config, struct tt_serve_job *job);
/* Brings a job up to the engine's state. True: it is over. */
bool tt_serve_job_advance(const struct tt_serve_config *config, struct tt_serve_job *job);

#endif

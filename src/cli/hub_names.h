/* Names of the hub, for all commands: what the cache lacks is fetched when it is opened, with a bar. */
#ifndef TT_CLI_HUB_NAMES_H
#define TT_CLI_HUB_NAMES_H

#include "base/json.h"
#include "cli/commands.h"
#include "hub/hub.h"

struct tt_hub_names {
    struct tt_cli *cli; /* lent */
    struct tt_hub *hub; /* NULL until it is needed */
};
/* Sets the fetcher of base/hub_cache.h. `names` must live until it is closed. */
void tt_hub_names_open(struct tt_hub_names *names);
void tt_hub_names_close(struct tt_hub_names *names);

/* Opens a hub whose downloads `cli` shows and can stop. */
TT_MUST_USE tt_status tt_cli_open_hub(struct tt_cli *cli, struct tt_hub **out);

/* Names and patterns of a setting: one word, or a JSON list of texts. The texts are lent by the setting and `json`. */
enum { TT_CLI_PATTERNS_MAX = 64 };
struct tt_cli_patterns {
    struct tt_json json; /* owned */
    const char *text[TT_CLI_PATTERNS_MAX];
    size_t count;
};
TT_MUST_USE tt_status tt_cli_patterns_read(const char *setting, const char *value,
                                           struct tt_cli_patterns *patterns);

#endif

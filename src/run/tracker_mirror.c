#include "run/tracker_mirror.h"

#include <stdio.h>

#include "base/log.h"
#include "base/store.h"
#include "base/temporary.h"
#include "run/journal.h"
#include "run/record_file.h"

/* from/name to to/name */
static tt_status copy(const char *from, const char *to, const char *name)
{
    struct tt_path source, place;
    TT_TRY(tt_path_set(&source, from, name));
    TT_TRY(tt_path_set(&place, to, name));
    return tt_file_copy(source.text, place.text);
}

static void set_name(char text[64], const char *name)
{
    (void)snprintf(text, 64, "trackers/%s.json", name);
}

static tt_status fill(struct tt_tracker_mirror *mirror, struct tt_journal *journal,
                      struct tt_record_file *generations)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, mirror->folder.text, "trackers"));
    TT_TRY(tt_dir_create(path.text));
    TT_TRY(copy(mirror->output_dir, mirror->folder.text, "trackers/config.json"));
    TT_TRY(copy(mirror->output_dir, mirror->folder.text, "run.json"));
    TT_TRY(tt_journal_mirror(journal, mirror->folder.text));
    if (generations == NULL) return TT_OK;
    TT_TRY(tt_path_set(&path, mirror->folder.text, "generations.jsonl"));
    return tt_record_file_mirror(generations, path.text);
}

tt_status tt_tracker_mirror_open(const char *output_dir, struct tt_journal *journal,
                                 struct tt_record_file *generations, struct tt_tracker_mirror *mirror)
{
    *mirror = (struct tt_tracker_mirror){.output_dir = output_dir,
                                         .is_other = !tt_store_can(output_dir, TT_STORE_CAN_APPEND)};
    if (!mirror->is_other) return TT_OK;
    mirror->is_other = false;
    TT_TRY(tt_dir_make_temporary(&mirror->folder));
    mirror->is_other = true;
    tt_status status = fill(mirror, journal, generations);
    if (status != TT_OK) tt_tracker_mirror_close(mirror);
    return status;
}

tt_status tt_tracker_mirror_find(const struct tt_tracker_mirror *mirror, const char *name)
{
    struct tt_path path;
    char text[64];
    if (!mirror->is_other) return TT_OK;
    set_name(text, name);
    TT_TRY(tt_path_set(&path, mirror->output_dir, text));
    return tt_path_exists(path.text) ? copy(mirror->output_dir, mirror->folder.text, text) : TT_OK;
}

static void warn_if(tt_status status, const char *what)
{
    if (status == TT_OK) return;
    tt_warn("%s; %s", tt_error_last()->message, what);
    tt_error_clear();
}

void tt_tracker_mirror_keep(const struct tt_tracker_mirror *mirror, const char *name)
{
    char text[64];
    if (!mirror->is_other) return;
    set_name(text, name);
    warn_if(copy(mirror->folder.text, mirror->output_dir, text),
            "a resumed run is another one of the tracker");
}

void tt_tracker_mirror_end(const struct tt_tracker_mirror *mirror)
{
    if (mirror->is_other)
        warn_if(copy(mirror->output_dir, mirror->folder.text, "run.json"), "trackers see a run that failed");
}

void tt_tracker_mirror_close(struct tt_tracker_mirror *mirror)
{
    struct tt_error error;
    if (!mirror->is_other) return;
    tt_error_copy(&error);
    warn_if(tt_dir_remove(mirror->folder.text), "remove it by hand");
    (void)tt_error_restore(&error);
    mirror->is_other = false;
}

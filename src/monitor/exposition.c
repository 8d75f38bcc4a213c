#include "monitor/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/number.h"

bool tt_exposition_wants_open_metrics(const char *accept)
{
    return accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
}

const char *tt_exposition_type(bool open_metrics)
{
    return open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                        : "text/plain; version=0.0.4; charset=utf-8";
}

static const char *format_value(double value, char text[TT_DOUBLE_TEXT_BYTES])
{
    if (isnan(value)) return "NaN";
    if (isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return tt_format_double(value, text, TT_DOUBLE_TEXT_BYTES);
}

/* "_total" or "_info" of a sample, and of its family in the older format. */
static const char *suffix_of(enum tt_metric_kind kind)
{
    return kind == TT_METRIC_COUNTER ? "_total" : kind == TT_METRIC_INFO ? "_info" : "";
}

void tt_exposition_family(struct tt_exposition *exposition, const struct tt_metric_family *family)
{
    static const char *const types[] = {"gauge", "counter", "histogram", "info"};
    bool open = exposition->open_metrics;
    const char *suffix = open ? "" : suffix_of(family->kind);
    const char *type = types[!open && family->kind == TT_METRIC_INFO ? TT_METRIC_GAUGE : family->kind];
    exposition->family = family;
    if (exposition->status != TT_OK) return;
    exposition->status = tt_str_printf(exposition->text, "# HELP %s%s %s\n# TYPE %s%s %s\n", family->name,
                                       suffix, family->help, family->name, suffix, type);
    if (exposition->status == TT_OK && open && family->unit != NULL)
        exposition->status = tt_str_printf(exposition->text, "# UNIT %s %s\n", family->name, family->unit);
}

static void append(struct tt_exposition *exposition, const char *suffix, const char *labels, double value)
{
    char text[TT_DOUBLE_TEXT_BYTES];
    bool labelled = labels[0] != '\0';
    if (exposition->status != TT_OK) return;
    exposition->status =
        tt_str_printf(exposition->text, "%s%s%s%s%s %s\n", exposition->family->name, suffix,
                      labelled ? "{" : "", labels, labelled ? "}" : "", format_value(value, text));
}

void tt_exposition_sample(struct tt_exposition *exposition, const char *labels, double value)
{
    append(exposition, suffix_of(exposition->family->kind), labels, value);
}

void tt_exposition_histogram(struct tt_exposition *exposition, const double *bounds, const int64_t *counts,
                             int count, double sum)
{
    char label[64], text[TT_DOUBLE_TEXT_BYTES];
    int64_t below = 0;
    for (int i = 0; i <= count; i++) {
        const char *bound = i < count ? format_value(bounds[i], text) : "+Inf";
        below += counts[i];
        /* OpenMetrics asks for the form of a float. */
        tt_snprintf(label, sizeof label, "le=\"%s%s\"", bound, strpbrk(bound, ".eI") != NULL ? "" : ".0");
        append(exposition, "_bucket", label, (double)below);
    }
    append(exposition, "_sum", "", sum);
    append(exposition, "_count", "", (double)below);
}

tt_status tt_exposition_end(struct tt_exposition *exposition)
{
    if (exposition->status == TT_OK && exposition->open_metrics)
        exposition->status = tt_str_append_text(exposition->text, "# EOF\n");
    return exposition->status;
}

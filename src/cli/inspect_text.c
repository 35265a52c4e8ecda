/* Owns the terminal form of `tsleuth inspect`. Lines fit the terminal: where the columns do not, a tensor takes two. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/inspect.h"
#include "report/layout.h"

/* Metadata entries and skipped members shown without --all. */
#define SOME 12

struct columns {
    size_t name, type, shape;
    bool two_lines;
};

static size_t shape_width(const struct ts_tensor *tensor)
{
    struct ts_buffer text;
    size_t width;
    ts_buffer_init(&text, 4096);
    ts_tensor_shape_text(tensor, &text);
    width = text.size;
    ts_buffer_release(&text);
    return width;
}

static struct columns fit_columns(const struct inspection *inspection)
{
    struct columns columns = {.name = 6, .type = 4, .shape = 5};
    size_t rest;
    for (size_t i = 0; i < inspection->count; i++) {
        const struct ts_tensor *tensor = inspection->tensors[i];
        size_t name = ts_name_columns(tensor->name), shape = shape_width(tensor),
               type = strlen(ts_tensor_type_name(tensor));
        columns.name = name > columns.name ? name : columns.name;
        columns.shape = shape > columns.shape ? shape : columns.shape;
        columns.type = type > columns.type ? type : columns.type;
    }
    if (columns.shape > 24)
        columns.shape = 24;
    rest = 2 + 2 + columns.type + 2 + columns.shape + 2 + 7; /* indent, gaps, bytes */
    if (columns.name + rest > terminal.width) {
        columns.two_lines = terminal.width < rest + 24;
        columns.name = columns.two_lines ? terminal.width - 2 : terminal.width - rest;
    }
    return columns;
}

static void put_padded(struct ts_buffer *out, const char *text, size_t width)
{
    ts_buffer_string(out, text);
    put_spaces(out, strlen(text) < width ? width - strlen(text) : 0);
}

static void put_row(struct ts_buffer *out, const struct ts_tensor *tensor, const struct columns *columns)
{
    struct ts_buffer shape;
    char bytes[16];
    size_t used;
    ts_buffer_init(&shape, 4096);
    ts_tensor_shape_text(tensor, &shape);
    put_spaces(out, 2);
    used = put_name(out, tensor->name, columns->name);
    if (columns->two_lines)
        ts_buffer_string(out, "\n    ");
    else
        put_spaces(out, columns->name - (used < columns->name ? used : columns->name) + 2);
    put_padded(out, ts_tensor_type_name(tensor), columns->type);
    put_spaces(out, 2);
    put_padded(out, shape.data ? shape.data : "", columns->shape);
    ts_buffer_printf(out, "  %7s%s\n", ts_human_bytes(tensor->bytes, bytes), tensor->sampled ? "  sample" : "");
    ts_buffer_release(&shape);
}

static void put_place(struct ts_buffer *out, const struct ts_tensor *tensor, uint64_t index)
{
    uint64_t at[TS_MAX_RANK];
    ts_flat_to_coordinates(tensor, index, at);
    ts_buffer_byte(out, '[');
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", at[i]);
    ts_buffer_byte(out, ']');
}

static void put_histogram(struct ts_buffer *out, const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char plain[] = " .:-=+*#@";
    uint64_t counts[HISTOGRAM_BINS], sampled, most = 0;
    struct ts_error ignored;
    if (stats->finite < 2 || !(stats->max > stats->min) ||
        ts_stats_histogram(tensor, stats, HISTOGRAM_BINS, counts, &sampled, &ignored) != TS_OK)
        return;
    for (unsigned i = 0; i < HISTOGRAM_BINS; i++)
        most = counts[i] > most ? counts[i] : most;
    ts_buffer_string(out, "    |");
    for (unsigned i = 0; i < HISTOGRAM_BINS && most; i++) {
        /* anything present shows at least the lowest block */
        size_t height = counts[i] ? 1 + (size_t)((double)counts[i] / (double)most * 7.0) : 0;
        if (terminal.unicode)
            ts_buffer_string(out, blocks[height]);
        else
            ts_buffer_byte(out, plain[height]);
    }
    ts_buffer_string(out, "|\n");
}

static void put_exact(struct ts_buffer *text, const struct ts_tensor *tensor, int64_t exact, double value)
{
    if (tensor->type == TS_U64)
        ts_buffer_printf(text, "%" PRIu64, (uint64_t)exact);
    else if (ts_type_is_integer(tensor->type))
        ts_buffer_printf(text, "%" PRId64, exact);
    else
        ts_buffer_printf(text, "%.6g", value);
}

static void put_stats(struct ts_buffer *out, const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 65536);
    if (!stats->count) {
        ts_buffer_string(out, "    empty\n");
        return;
    }
    if (stats->finite) {
        ts_buffer_string(&text, "min ");
        put_exact(&text, tensor, stats->exact_min, stats->min);
        ts_buffer_string(&text, " max ");
        put_exact(&text, tensor, stats->exact_max, stats->max);
        ts_buffer_printf(&text, " mean %.4g std %.4g norm %.5g", stats->mean, stats->std, stats->norm);
        if (stats->zeros)
            ts_buffer_printf(&text, " zeros %" PRIu64 " (%.3g%%)", stats->zeros,
                             100.0 * (double)stats->zeros / (double)stats->count);
        put_spaces(out, 4);
        put_wrapped(out, text.data, 4, 4);
        ts_buffer_byte(out, '\n');
    }
    ts_buffer_clear(&text);
    if (stats->nan) {
        ts_buffer_printf(&text, "%" PRIu64 " NaN, first at ", stats->nan);
        put_place(&text, tensor, stats->first_nan);
    }
    if (stats->positive_inf + stats->negative_inf) {
        ts_buffer_printf(&text, "%s%" PRIu64 " +Inf, %" PRIu64 " -Inf, first at ", text.size ? "; " : "",
                         stats->positive_inf, stats->negative_inf);
        put_place(&text, tensor, stats->first_inf);
    }
    if (text.size) {
        put_spaces(out, 4);
        put_styled(out, TS_STYLE_RED, text.data);
        ts_buffer_byte(out, '\n');
    }
    put_histogram(out, tensor, stats);
    ts_buffer_release(&text);
}

static void put_head(struct ts_buffer *out, const struct inspection *inspection)
{
    const struct ts_bundle *bundle = inspection->bundle;
    struct ts_buffer line;
    uint64_t elements = 0;
    size_t used;
    char count[32], params[16], bytes[16];
    ts_buffer_init(&line, 4096);
    for (size_t i = 0; i < bundle->count; i++)
        elements += bundle->tensors[i]->count;
    used = put_name(out, bundle->path, terminal.width);
    ts_buffer_printf(&line, "%s, %s tensor%s, %s elements, %s", bundle->format ? bundle->format : "nothing readable",
                     ts_human_count(bundle->count, count), bundle->count == 1 ? "" : "s",
                     ts_human_params(elements, params), ts_human_bytes(bundle->file_bytes, bytes));
    if (inspection->count != bundle->count)
        ts_buffer_printf(&line, "; %zu pass the filter", inspection->count);
    if (bundle->count > 1)
        ts_buffer_printf(&line, "; in %s", bundle->order);
    if (used + 2 + line.size > terminal.width) {
        ts_buffer_string(out, "\n  ");
        used = 2;
    } else {
        ts_buffer_string(out, "  ");
        used += 2;
    }
    put_wrapped(out, line.data, used, 2);
    ts_buffer_byte(out, '\n');
    ts_buffer_release(&line);
}

static void put_metadata(struct ts_buffer *out, const struct inspection *inspection)
{
    const struct ts_bundle *bundle = inspection->bundle;
    size_t shown = inspection->all || bundle->meta_count < SOME ? bundle->meta_count : SOME;
    bool several = false; /* files with metadata: then each line says whose it is */
    if (!bundle->meta_count)
        return;
    for (size_t i = 1; i < bundle->meta_count; i++)
        several = several || bundle->metas[i].file != bundle->metas[0].file;
    ts_buffer_string(out, "metadata\n");
    for (size_t i = 0; i < shown; i++) {
        size_t used = 2;
        put_spaces(out, 2);
        if (several && bundle->metas[i].file) {
            used += put_name(out, bundle->metas[i].file, inspection->all ? SIZE_MAX : terminal.width / 3) + 2;
            ts_buffer_string(out, ": ");
        }
        used += put_name(out, bundle->metas[i].key, inspection->all ? SIZE_MAX : terminal.width / 3);
        ts_buffer_string(out, " = ");
        if (inspection->all)
            put_name(out, bundle->metas[i].value, SIZE_MAX);
        else
            put_name(out, bundle->metas[i].value, used + 8 < terminal.width ? terminal.width - used - 3 : 8);
        ts_buffer_byte(out, '\n');
    }
    if (shown < bundle->meta_count)
        ts_buffer_printf(out, "  %zu more; see them with --all\n", bundle->meta_count - shown);
}

static void put_skips(struct ts_buffer *out, const struct inspection *inspection)
{
    const struct ts_bundle *bundle = inspection->bundle;
    size_t harmless = 0, harmful = 0, shown = 0;
    for (size_t i = 0; i < bundle->skip_count; i++)
        *(bundle->skips[i].harmless ? &harmless : &harmful) += 1;
    if (harmful)
        put_styled(out, TS_STYLE_RED, "could not be read\n");
    for (size_t i = 0; i < bundle->skip_count; i++) {
        const struct ts_skip *skip = &bundle->skips[i];
        if (skip->harmless || (!inspection->all && shown >= 10 * SOME))
            continue;
        shown++;
        put_spaces(out, 2);
        put_name(out, skip->path, SIZE_MAX);
        ts_buffer_string(out, ": ");
        put_wrapped(out, skip->reason, 4 + ts_name_columns(skip->path), 4);
        ts_buffer_byte(out, '\n');
    }
    if (shown < harmful)
        ts_buffer_printf(out, "  %zu more; see them with --all\n", harmful - shown);
    if (harmless) {
        struct ts_buffer line;
        size_t named = 0;
        ts_buffer_init(&line, (size_t)16 << 20);
        ts_buffer_printf(&line, "no tensors in %zu other file%s:", harmless, harmless == 1 ? "" : "s");
        for (size_t i = 0; i < bundle->skip_count; i++)
            if (bundle->skips[i].harmless && (inspection->all || named < 8))
                ts_buffer_printf(&line, "%s %s", named++ ? "," : "", bundle->skips[i].path);
        if (named < harmless)
            ts_buffer_string(&line, ", …");
        put_wrapped(out, line.data ? line.data : "", 0, 2);
        ts_buffer_byte(out, '\n');
        ts_buffer_release(&line);
    }
}

static void put_issue(struct ts_buffer *out, enum ts_style style, const char *mark, const char *tensor,
                      const char *text)
{
    size_t column = 2 + strlen(mark) + 2;
    put_spaces(out, 2);
    put_styled(out, style, mark);
    put_spaces(out, 2);
    if (tensor) {
        column += put_name(out, tensor, terminal.width) + 2;
        ts_buffer_string(out, ": ");
    }
    put_wrapped(out, text, column, 4);
    ts_buffer_byte(out, '\n');
}

static void put_findings(struct ts_buffer *out, const struct inspection *inspection)
{
    const struct ts_bundle *bundle = inspection->bundle;
    size_t shown = inspection->all || bundle->finding_count < 2 * SOME ? bundle->finding_count : 2 * SOME;
    if (inspection->check || !bundle->finding_count)
        return; /* the check tells them itself */
    put_styled(out, TS_STYLE_YELLOW, "noticed\n");
    for (size_t i = 0; i < shown; i++)
        put_issue(out, TS_STYLE_YELLOW, "!", bundle->findings[i].tensor, bundle->findings[i].text);
    if (shown < bundle->finding_count)
        ts_buffer_printf(out, "  %zu more; see them with --all\n", bundle->finding_count - shown);
}

static void put_check(struct ts_buffer *out, const struct inspection *inspection)
{
    static const char *const marks[] = {"note", "warning", "fault"};
    static const enum ts_style styles[] = {TS_STYLE_BLUE, TS_STYLE_YELLOW, TS_STYLE_RED};
    const struct ts_check *check = inspection->check;
    size_t shown = 0;
    char count[32];
    if (!check)
        return;
    ts_buffer_string(out, "check\n");
    for (int severity = TS_FAULT; severity >= TS_NOTE; severity--)
        for (size_t i = 0; i < check->count; i++) {
            if ((int)check->issues[i].severity != severity || (!inspection->all && shown >= 200))
                continue;
            shown++;
            put_issue(out, styles[severity], marks[severity], check->issues[i].tensor, check->issues[i].text);
        }
    if (shown < check->count)
        ts_buffer_printf(out, "  %zu more; see them with --all\n", check->count - shown);
    ts_buffer_byte(out, '\n');
    if (check->faults + check->warnings) {
        struct ts_buffer line;
        ts_buffer_init(&line, 256);
        ts_buffer_printf(&line, "found: %zu fault%s, %zu warning%s in %s tensors\n", check->faults,
                         check->faults == 1 ? "" : "s", check->warnings, check->warnings == 1 ? "" : "s",
                         ts_human_count(inspection->bundle->count, count));
        put_styled(out, check->faults ? TS_STYLE_RED : TS_STYLE_YELLOW, line.data);
        ts_buffer_release(&line);
    } else {
        struct ts_buffer line;
        ts_buffer_init(&line, 256);
        if (inspection->bundle->count)
            ts_buffer_printf(&line, "clean: %s tensors, nothing wrong was found\n",
                             ts_human_count(inspection->bundle->count, count));
        else
            ts_buffer_string(&line, "incomplete: there is no tensor to look at\n");
        put_styled(out, inspection->bundle->count ? TS_STYLE_GREEN : TS_STYLE_YELLOW, line.data);
        ts_buffer_release(&line);
    }
}

bool inspect_text(const struct inspection *inspection)
{
    struct columns columns = fit_columns(inspection);
    struct ts_buffer out;
    bool good = true;
    ts_buffer_init(&out, (size_t)64 << 20);
    put_head(&out, inspection);
    put_config(&out, inspection->bundle);
    put_metadata(&out, inspection);
    /* a check is about its findings; the list would push them off the screen */
    if (!inspection->check || inspection->stats) {
        if (inspection->count)
            ts_buffer_byte(&out, '\n');
        for (size_t i = 0; i < inspection->count && good; i++) {
            put_row(&out, inspection->tensors[i], &columns);
            if (inspection->stats)
                put_stats(&out, inspection->tensors[i], &inspection->stats[i]);
            if (out.size > 1 << 16)
                good = flush_out(&out);
        }
        put_totals(&out, &inspection->totals);
    }
    put_skips(&out, inspection);
    put_findings(&out, inspection);
    put_check(&out, inspection);
    good = good && flush_out(&out);
    ts_buffer_release(&out);
    return good;
}

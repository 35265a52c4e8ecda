/* Owns the way from a path to a bundle: files, folders, archives in archives; which reader gets what; how members
 * become tensor names; and the list of what was left out. */
#include "read/open.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/progress.h"
#include "base/system.h"
#include "base/text.h"
#include "io/hub.h"
#include "read/dump_tags.h"
#include "read/parts.h"
#include "read/quantized.h"
#include "read/readers.h"
#include "read/sniff.h"

/* An archive in an archive in an archive: enough for people, too few for a tower of bombs. */
#define MAX_NESTING 4

/* One member that gave tensors: those from `start` on, and the findings about them. */
struct unit {
    const char *path;
    size_t start, count;
    size_t first_finding, finding_end;
    bool for_folder; /* the member describes its folder: see struct ts_reader */
};

struct opening {
    struct ts_bundle *bundle;
    struct ts_spool *spool;
    const struct ts_open_options *options;
    struct unit *units;
    size_t unit_count, unit_capacity;
    unsigned config_depth; /* how deep the config.json lies that was taken; UINT_MAX when none was */
};

static enum ts_status read_folder(struct opening *opening, struct ts_folder *folder, const char *prefix,
                                  unsigned nesting, struct ts_error *error);

static enum ts_status add_unit(struct opening *opening, const char *path, size_t start, size_t first_finding,
                               bool for_folder, struct ts_error *error)
{
    if (opening->unit_count == opening->unit_capacity) {
        size_t more = opening->unit_capacity ? opening->unit_capacity * 2 : 16;
        struct unit *moved = ts_reallocarray(opening->units, more, sizeof *moved);
        if (!moved)
            return ts_fail_memory(error);
        opening->units = moved;
        opening->unit_capacity = more;
    }
    path = ts_arena_string(&opening->bundle->arena, path);
    if (!path)
        return ts_fail_memory(error);
    opening->units[opening->unit_count++] = (struct unit){
        path, start, opening->bundle->count - start, first_finding, opening->bundle->finding_count, for_folder};
    return TS_OK;
}

/* What a reader added before it failed is taken back. */
struct mark {
    size_t tensors, metas, findings, skips;
};

static struct mark mark_of(const struct ts_bundle *bundle)
{
    return (struct mark){bundle->count, bundle->meta_count, bundle->finding_count, bundle->skip_count};
}

static void back_to(struct ts_bundle *bundle, struct mark mark)
{
    bundle->count = mark.tensors;
    bundle->meta_count = mark.metas;
    bundle->finding_count = mark.findings;
    bundle->skip_count = mark.skips;
}

/* The metadata that one file gave is marked as its own; shards repeat theirs, so what is there already goes. */
static enum ts_status own_metadata(struct ts_bundle *bundle, size_t start, const char *path, struct ts_error *error)
{
    const char *file = ts_arena_string(&bundle->arena, path);
    size_t kept = start, looked_at = bundle->meta_count - start < 256 ? bundle->meta_count : start + 256;
    if (!file)
        return ts_fail_memory(error);
    for (size_t i = start; i < bundle->meta_count; i++) {
        struct ts_meta meta = bundle->metas[i];
        bool repeated = false;
        for (size_t j = start; j < kept && i < looked_at && !repeated; j++)
            repeated = strcmp(bundle->metas[j].key, meta.key) == 0 && strcmp(bundle->metas[j].value, meta.value) == 0;
        meta.file = file;
        if (!repeated)
            bundle->metas[kept++] = meta;
    }
    bundle->meta_count = kept;
    return TS_OK;
}

static enum ts_status run_reader(struct opening *opening, const struct ts_reader *reader, struct ts_input *input,
                                 const char *path, struct ts_error *error)
{
    struct ts_bundle *bundle = opening->bundle;
    struct mark mark = mark_of(bundle);
    enum ts_status status = reader->read(input, bundle, error);
    if (status != TS_OK) {
        back_to(bundle, mark);
        return status;
    }
    if (!bundle->format)
        bundle->format = reader->name;
    TS_TRY(own_metadata(bundle, mark.metas, path, error));
    return add_unit(opening, path, mark.tensors, mark.findings, reader->for_folder, error);
}

/* torch.distributed.checkpoint writes one archive per tensor, one behind the other, and their names elsewhere. */
static enum ts_status tell_archives_before(struct ts_bundle *bundle, const struct ts_zip *zip, const char *path,
                                           struct ts_error *error)
{
    char why[256];
    snprintf(why, sizeof why,
             "%" PRIu64 " bytes of other archives stand before the last one, which alone is read; turn a checkpoint of "
             "torch.distributed.checkpoint into one file: python3 -m "
             "torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE",
             zip->before);
    return ts_bundle_skip(bundle, path, false, why, error);
}

/* One file, whatever it is. path is its place in the input as shown to people. *known is false when the bytes are
 * nothing this program reads; that is no error here. */
static enum ts_status read_file(struct opening *opening, struct ts_source *source, struct ts_folder *folder,
                                const char *member, const char *path, unsigned nesting, bool *known,
                                struct ts_error *error)
{
    struct ts_input input = {.source = source, .member = member, .folder = folder, .spool = opening->spool};
    const struct ts_reader *reader;
    struct ts_folder *container;
    enum ts_status status;
    bool is_zip = ts_zip_is(source);
    *known = true;
    if (is_zip)
        TS_TRY(ts_zip_open(source, opening->spool, &input.zip, error));
    reader = ts_reader_for(&input);
    status = is_zip && input.zip->before ? tell_archives_before(opening->bundle, input.zip, path, error) : TS_OK;
    if (status == TS_OK && reader)
        status = run_reader(opening, reader, &input, path, error);
    if (input.zip)
        ts_zip_free(input.zip);
    if (reader || status != TS_OK)
        return status;
    if (!is_zip && !ts_folder_is_archive(source)) {
        *known = false;
        return TS_OK;
    }
    if (nesting >= MAX_NESTING)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "archives nested more than %d deep are not opened",
                       MAX_NESTING);
    if (!opening->bundle->format)
        opening->bundle->format = is_zip ? "zip" : "archive";
    TS_TRY(is_zip ? ts_folder_open_zip(source, opening->spool, &container, error)
                  : ts_folder_open_archive(source, opening->spool, &container, error));
    status = read_folder(opening, container, path, nesting + 1, error);
    ts_folder_free(container);
    return status;
}

static unsigned depth_of(const char *path)
{
    unsigned depth = 0;
    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

/* config.json describes the model; the one nearest to the root counts. */
static bool take_config(struct opening *opening, const char *path, struct ts_source *source)
{
    const char *slash = strrchr(path, '/');
    unsigned depth = depth_of(path);
    if (strcmp(slash ? slash + 1 : path, "config.json") != 0)
        return false;
    if (depth < opening->config_depth) {
        ts_source_release(opening->bundle->config);
        opening->bundle->config = ts_source_retain(source);
        opening->config_depth = depth;
    }
    return true;
}

static bool gathers(struct opening *opening, struct ts_source *source, struct ts_folder *folder, const char *member)
{
    struct ts_input input = {.source = source, .member = member, .folder = folder, .spool = opening->spool};
    const struct ts_reader *reader = ts_zip_is(source) ? NULL : ts_reader_for(&input);
    return reader && reader->gathers;
}

static char *join_path(struct ts_arena *arena, const char *prefix, const char *path)
{
    return prefix[0] ? ts_arena_printf(arena, "%s/%s", prefix, path) : ts_arena_string(arena, path);
}

/* One listed member. Its failure is written down and is not the folder's. */
static enum ts_status read_member(struct opening *opening, struct ts_folder *folder, size_t index, const char *prefix,
                                  unsigned nesting, bool gatherers, struct ts_error *error)
{
    struct ts_member *member = &folder->members[index];
    struct ts_bundle *bundle = opening->bundle;
    struct ts_source *source;
    struct ts_error why;
    const char *path;
    bool known = true;
    enum ts_status status = TS_OK;
    if (member->taken)
        return TS_OK;
    path = join_path(&bundle->arena, prefix, member->path);
    if (!path)
        return ts_fail_memory(error);
    ts_error_clear(&why);
    if (member->problem) {
        member->taken = true;
        return ts_bundle_skip(bundle, path, false, member->problem, error);
    }
    if (ts_folder_open_member(folder, index, &source, &why) != TS_OK) {
        member->taken = true;
        return ts_bundle_skip_error(bundle, path, NULL, &why, error);
    }
    if (gatherers && !gathers(opening, source, folder, member->path)) {
        ts_source_release(source);
        return TS_OK;
    }
    member->taken = true;
    if (!take_config(opening, path, source)) {
        struct mark mark = mark_of(bundle);
        if (read_file(opening, source, folder, member->path, path, nesting, &known, &why) != TS_OK) {
            if (why.status == TS_ERR_CANCELLED || why.status == TS_ERR_MEMORY) {
                *error = why;
                status = why.status;
            } else {
                back_to(bundle, mark);
                status = ts_bundle_skip_error(bundle, path, why.tensor, &why, error);
            }
        } else if (!known) {
            status = ts_bundle_skip(bundle, path, ts_sniff_is_harmless(source), ts_sniff_reason(source), error);
        } else if (nesting == 0 && strcmp(bundle->format, "folder") == 0) {
            bundle->file_bytes += source->size; /* members of an archive are counted with it */
        }
    }
    ts_source_release(source);
    return status;
}

static int by_start(const void *a, const void *b)
{
    const struct unit *left = a, *right = b;
    return left->start < right->start ? -1 : left->start > right->start;
}

/* Members that read others beside them (indices, split files, sidecars) go first, so that what they take is not read
 * twice; then the rest. Tensors end up in member order all the same. */
static enum ts_status read_folder(struct opening *opening, struct ts_folder *folder, const char *prefix,
                                  unsigned nesting, struct ts_error *error)
{
    struct ts_bundle *bundle = opening->bundle;
    size_t first_unit = opening->unit_count, start = bundle->count;
    size_t *unit_ends = calloc(folder->count + 1, 2 * sizeof *unit_ends), filled = 0;
    struct unit *in_order = NULL;
    struct ts_tensor **tensors = NULL;
    enum ts_status status = TS_OK;
    if (!unit_ends)
        return ts_fail_memory(error);
    /* unit_ends[2 i], [2 i + 1]: the units that member i gave. */
    for (int gatherers = 1; gatherers >= 0 && status == TS_OK; gatherers--) {
        for (size_t i = 0; i < folder->count && status == TS_OK; i++) {
            size_t before = opening->unit_count;
            if (atomic_load(&ts_cancelled)) {
                status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
                break;
            }
            status = read_member(opening, folder, i, prefix, nesting, gatherers, error);
            if (opening->unit_count > before) {
                unit_ends[2 * i] = before;
                unit_ends[2 * i + 1] = opening->unit_count;
            }
        }
        if (gatherers && status == TS_OK) /* what an index counts is taken by now, and told of by its reader */
            status = ts_parts_missing(folder, prefix, bundle, error);
    }
    if (status == TS_OK && opening->unit_count > first_unit) {
        size_t units = opening->unit_count - first_unit, at = start;
        in_order = calloc(units, sizeof *in_order);
        tensors = calloc(bundle->count - start + 1, sizeof(struct ts_tensor *));
        if (!in_order || !tensors)
            status = ts_fail_memory(error);
        for (size_t i = 0; status == TS_OK && i < folder->count; i++)
            for (size_t u = unit_ends[2 * i]; u < unit_ends[2 * i + 1]; u++) {
                struct unit unit = opening->units[u];
                if (unit.count)
                    memcpy(tensors + (at - start), bundle->tensors + unit.start,
                           unit.count * sizeof(struct ts_tensor *));
                unit.start = at;
                at += unit.count;
                in_order[filled++] = unit;
            }
        if (status == TS_OK) {
            memcpy(opening->units + first_unit, in_order, filled * sizeof *in_order);
            if (bundle->count > start)
                memcpy(bundle->tensors + start, tensors, (bundle->count - start) * sizeof(struct ts_tensor *));
        }
    }
    free(in_order);
    free(tensors);
    free(unit_ends);
    return status;
}

/* "a/b/3_query.pth" -> length of "a/b/3_query": without the suffix of a file type, when that is what the last dot
 * begins. "layer.0" keeps its 0. */
static size_t stem_length(const char *path)
{
    static const char *const suffixes[] = {".pt",  ".pth",  ".bin",  ".ckpt", ".safetensors", ".npy",  ".npz",
                                           ".txt", ".json", ".gguf", ".onnx", ".f32",         ".raw",  ".dat",
                                           ".csv", ".tsv",  ".log",  ".zip",  ".tar",         ".gz",   ".tgz",
                                           ".zst", ".7z",   ".pkl",  ".pb",   ".index",       ".meta", NULL};
    size_t length = strlen(path);
    for (;;) {
        size_t before = length;
        for (size_t i = 0; suffixes[i]; i++) {
            size_t suffix = strlen(suffixes[i]);
            if (length > suffix && path[length - suffix - 1] != '/' &&
                strncmp(path + length - suffix, suffixes[i], suffix) == 0)
                length -= suffix;
        }
        if (length == before)
            return length;
    }
}

/* The folder part that all units have in common. */
static size_t common_folder(const struct unit *units, size_t count)
{
    size_t common = 0;
    const char *first = count ? units[0].path : "";
    for (size_t at = 0; first[at]; at++) {
        for (size_t i = 1; i < count; i++)
            if (units[i].path[at] != first[at])
                return common;
        if (first[at] == '/')
            common = at + 1;
    }
    return common;
}

/* How a unit's tensors are named. */
struct naming {
    size_t common; /* bytes of its path that all units share */
    bool alone;    /* it is the only one */
    bool whole;    /* keep the suffix of the file */
    const struct ts_tags_survey *survey;
};

/* A tensor that is a file by itself is called as the file; one of several files with names inside gets the file's name
 * in front, or that of the folder which the file describes; one file's names stay as they are. */
static enum ts_status name_unit(struct ts_bundle *bundle, const struct unit *unit, const struct naming *naming,
                                struct ts_error *error)
{
    const char *path = unit->path + naming->common;
    const char *slash = strrchr(path, '/');
    const bool alone = naming->alone || (unit->for_folder && !slash);
    size_t length = unit->for_folder && slash ? (size_t)(slash - path)
                    : naming->whole           ? strlen(path)
                                              : stem_length(path);
    struct ts_tags tags;
    const bool tagged = naming->survey->any && ts_tags_read(unit->path, naming->common, &tags);
    for (size_t i = unit->start; i < unit->start + unit->count; i++) {
        struct ts_tensor *tensor = bundle->tensors[i];
        const char *old;
        size_t own = strlen(tensor->name);
        if (!tensor->file)
            tensor->file = unit->path;
        if (own && alone && !tagged)
            continue;
        /* a dump whose header repeats the file's name: py_layer_0_q.txt holding "layer_0_q" */
        if (unit->count == 1 && own && own <= length && memcmp(path + length - own, tensor->name, own) == 0)
            own = 0;
        old = tensor->name;
        if (tagged) {
            bool drop;
            tensor->name = ts_tags_name(naming->survey, &tags, old, &bundle->arena, &drop);
            if (drop)
                tensor->name = ""; /* ts_tags_arrange takes it out */
        } else {
            tensor->name = own ? ts_arena_printf(&bundle->arena, "%.*s%c%s", (int)length, path,
                                                 unit->for_folder ? '/' : ':', tensor->name)
                               : ts_arena_copy(&bundle->arena, path, length);
        }
        if (!tensor->name)
            return ts_fail_memory(error);
        for (size_t f = unit->first_finding; f < unit->finding_end; f++)
            if (bundle->findings[f].tensor && strcmp(bundle->findings[f].tensor, old) == 0)
                bundle->findings[f].tensor = tensor->name;
    }
    return TS_OK;
}

/* Both hold the same numbers, as far as a few of them tell. Text may have been written with fewer digits. */
static bool same_numbers(const struct ts_tensor *one, const struct ts_tensor *other)
{
    struct ts_error ignored;
    if (one->count != other->count || one->count == 0)
        return false;
    for (uint64_t i = 0; i < 16; i++) {
        const uint64_t at = i < 15 ? one->count / 15 * i : one->count - 1;
        double a[2], b[2];
        if (ts_tensor_read_f64(one, at, 1, a, &ignored) != TS_OK ||
            ts_tensor_read_f64(other, at, 1, b, &ignored) != TS_OK ||
            !(a[0] == b[0] || (isnan(a[0]) && isnan(b[0])) || fabs(a[0] - b[0]) <= 1e-4 * fabs(a[0])))
            return false;
    }
    return true;
}

/* Some tools write each tensor twice, NAME.npy and NAME.txt for people (TensorRT-LLM's debug mode). The text is left
 * out where it says the same. Units are in the order of the files. */
static enum ts_status drop_text_twins(struct opening *opening, size_t *count, struct ts_error *error)
{
    struct unit *units = opening->units;
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        const struct unit *before = kept ? &units[kept - 1] : NULL;
        const size_t length = strlen(units[i].path);
        if (before && units[i].count == 1 && before->count == 1 && ts_ends_with(units[i].path, ".txt") &&
            ts_ends_with(before->path, ".npy") && strlen(before->path) == length &&
            memcmp(before->path, units[i].path, length - 4) == 0 &&
            same_numbers(opening->bundle->tensors[before->start], opening->bundle->tensors[units[i].start])) {
            opening->bundle->tensors[units[i].start] = NULL;
            TS_TRY(ts_bundle_skip(opening->bundle, units[i].path, true, "holds the numbers of the .npy file beside it",
                                  error));
        } else {
            units[kept++] = units[i];
        }
    }
    if (kept == *count)
        return TS_OK;
    *count = kept;
    for (size_t i = 0, tensor = 0; i < kept; i++) {
        memmove(opening->bundle->tensors + tensor, opening->bundle->tensors + units[i].start,
                units[i].count * sizeof(struct ts_tensor *));
        units[i].start = tensor;
        tensor += units[i].count;
        opening->bundle->count = tensor;
    }
    return TS_OK;
}

static enum ts_status name_tensors(struct opening *opening, struct ts_error *error)
{
    struct unit *units = opening->units;
    struct ts_tags_survey survey = {0};
    struct naming naming = {.survey = &survey};
    size_t with_tensors = 0;
    for (size_t i = 0; i < opening->unit_count; i++)
        if (units[i].count) {
            ts_tags_look(&survey, units[i].path);
            units[with_tensors++] = units[i];
        }
    if (with_tensors > 1)
        qsort(units, with_tensors, sizeof *units, by_start);
    TS_TRY(drop_text_twins(opening, &with_tensors, error));
    naming.common = common_folder(units, with_tensors);
    naming.alone = with_tensors == 1;
    if (with_tensors > 1)
        opening->bundle->order = "order of the files";
    for (size_t i = 0; i < with_tensors; i++) {
        /* two files that differ in the suffix alone keep it; neighbours suffice, members come sorted */
        naming.whole = false;
        for (size_t j = i ? i - 1 : 0; j <= i + 1 && j < with_tensors; j++) {
            size_t length = stem_length(units[i].path);
            if (j != i && stem_length(units[j].path) == length && memcmp(units[i].path, units[j].path, length) == 0)
                naming.whole = true;
        }
        TS_TRY(name_unit(opening->bundle, &units[i], &naming, error));
    }
    if (survey.any)
        return ts_tags_arrange(opening->bundle, error);
    return with_tensors > 1 ? ts_tags_steps(opening->bundle, error) : TS_OK;
}

/* A lone checkpoint may have its config.json beside it: quantization settings and checks want it. */
static void find_config_beside(struct opening *opening, struct ts_folder *folder, const char *member)
{
    struct ts_source *config;
    struct ts_error ignored;
    if (!opening->bundle->config && ts_folder_open_beside(folder, member, "config.json", &config, &ignored) == TS_OK)
        opening->bundle->config = config;
}

static enum ts_status open_single(struct opening *opening, const char *path, struct ts_error *error)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t folder_length = slash ? (size_t)(slash - path) : 0;
    char *folder_path = ts_arena_copy(&opening->bundle->arena,
                                      slash == path ? "/"
                                      : slash       ? path
                                                    : ".",
                                      slash == path || !slash ? 1 : folder_length);
    struct ts_folder *folder;
    struct ts_source *source;
    enum ts_status status;
    bool known;
    if (!folder_path)
        return ts_fail_memory(error);
    TS_TRY(ts_source_open(path, &source, error));
    status = ts_folder_open_disk(folder_path, false, opening->options->follow_links, &folder, error);
    if (status == TS_OK) {
        status = read_file(opening, source, folder, name, name, 0, &known, error);
        if (status == TS_OK && !known)
            status = ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "%s", ts_sniff_reason(source));
        if (status == TS_OK)
            find_config_beside(opening, folder, name);
        ts_folder_free(folder);
    }
    opening->bundle->file_bytes += source->size;
    ts_source_release(source);
    return status == TS_OK ? TS_OK : ts_error_path(error, path);
}

static enum ts_status open_folder(struct opening *opening, const char *path, struct ts_error *error)
{
    struct ts_folder *folder;
    enum ts_status status = ts_folder_open_disk(path, true, opening->options->follow_links, &folder, error);
    if (status == TS_OK) {
        opening->bundle->format = "folder";
        status = read_folder(opening, folder, "", 0, error);
        ts_folder_free(folder);
    }
    return status == TS_OK ? TS_OK : ts_error_path(error, path);
}

static enum ts_status open_path(struct opening *opening, const char *path, struct ts_error *error)
{
    struct stat info;
    char resolved[PATH_MAX];
    if (!*path) /* "$FILE", and FILE is not set */
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "the name of an input is empty");
    if (ts_starts_with(path, "hf://")) {
        TS_TRY(ts_hub_resolve(path, resolved, sizeof resolved, error));
        path = resolved;
    }
    if (stat(path, &info) != 0) {
        ts_fail_errno(error, errno, "cannot open");
        return ts_error_path(error, path);
    }
    TS_TRY(S_ISDIR(info.st_mode) ? open_folder(opening, path, error) : open_single(opening, path, error));
    TS_TRY(name_tensors(opening, error));
    return opening->options->raw ? TS_OK : ts_quantized_join(opening->bundle, error);
}

enum ts_status ts_open(const char *path, const struct ts_open_options *options, struct ts_bundle **bundle,
                       struct ts_error *error)
{
    static const struct ts_open_options defaults = {0};
    struct opening opening = {.options = options ? options : &defaults, .config_depth = UINT_MAX};
    enum ts_status status;
    *bundle = NULL;
    opening.bundle = ts_bundle_new(path);
    opening.spool = ts_spool_new(opening.options->spool_limit ? opening.options->spool_limit : TS_SPOOL_LIMIT);
    if (!opening.bundle || !opening.spool)
        status = ts_fail_memory(error);
    else
        status = open_path(&opening, path, error);
    free(opening.units);
    if (opening.spool)
        ts_spool_free(opening.spool);
    if (status != TS_OK) {
        ts_bundle_free(opening.bundle);
        return status;
    }
    *bundle = opening.bundle;
    return TS_OK;
}

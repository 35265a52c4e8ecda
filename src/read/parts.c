/* Owns what the names of split files say about files that are not there. */
#include "read/parts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "read/sniff.h"

#define LEAST_DIGITS 5
#define MOST_DIGITS  9
#define MOST_PARTS   100000

/* Names asked for in one folder: enough for any checkpoint, too few for a hostile list to cost minutes. */
#define MOST_LOOKS 1000000

static unsigned digits_at(const char *text)
{
    unsigned count = 0;
    while (isdigit((unsigned char)text[count]))
        count++;
    return count;
}

static uint64_t number_at(const char *digits, unsigned width)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < width; i++)
        number = number * 10 + (uint64_t)(digits[i] - '0');
    return number;
}

bool ts_part_of(const char *path, struct ts_part *part)
{
    bool found = false;
    for (const char *of = strstr(path, "-of-"); of; of = strstr(of + 1, "-of-")) {
        const unsigned width = digits_at(of + 4);
        if (width < LEAST_DIGITS || width > MOST_DIGITS || (size_t)(of - path) < width ||
            digits_at(of - width) != width || (of - path > width && !strchr("-_./", of[-(ptrdiff_t)width - 1])))
            continue;
        *part = (struct ts_part){number_at(of - width, width), number_at(of + 4, width), (unsigned)(of - path) - width,
                                 width};
        found = part->of > 1 && part->of <= MOST_PARTS && part->number <= part->of;
    }
    return found;
}

struct set {
    const struct ts_folder *folder;
    struct ts_part part;
    char path[4096]; /* of one of them, its number written over */
    unsigned *looks;
};

static const char *path_of(struct set *set, uint64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%0*" PRIu64, (int)set->part.width, number);
    memcpy(set->path + set->part.start, digits, set->part.width);
    return set->path;
}

static bool is_there(struct set *set, uint64_t number)
{
    if (*set->looks >= MOST_LOOKS)
        return true;
    ++*set->looks;
    return ts_folder_find(set->folder, path_of(set, number)) != SIZE_MAX;
}

static enum ts_status tell(struct set *set, uint64_t from, uint64_t to, const char *prefix, struct ts_bundle *bundle,
                           struct ts_error *error)
{
    const char *first = path_of(set, from);
    char reason[128];
    if (*set->looks >= MOST_LOOKS || from > to)
        return TS_OK;
    if (prefix[0] && !(first = ts_arena_printf(&bundle->arena, "%s/%s", prefix, first)))
        return ts_fail_memory(error);
    if (from == to)
        snprintf(reason, sizeof reason, "missing: by the names beside it there are %" PRIu64 " such files",
                 set->part.of);
    else
        snprintf(reason, sizeof reason,
                 "missing, and all up to number %" PRIu64 ": by the names beside them there are %" PRIu64 " such files",
                 to, set->part.of);
    return ts_bundle_skip(bundle, first, false, reason, error);
}

/* Each part tells of the gap right before it, and the last one of what should follow. */
static enum ts_status look_around(struct set *set, const char *prefix, struct ts_bundle *bundle, struct ts_error *error)
{
    const uint64_t number = set->part.number, base = !is_there(set, 0), last = set->part.of - !base;
    uint64_t before = number, behind = number + 1;
    while (before > base && !is_there(set, before - 1))
        before--;
    if (before < number)
        TS_TRY(tell(set, before, number - 1, prefix, bundle, error));
    while (behind <= last && !is_there(set, behind))
        behind++;
    return behind > last ? tell(set, number + 1, last, prefix, bundle, error) : TS_OK;
}

enum ts_status ts_parts_missing(const struct ts_folder *folder, const char *prefix, struct ts_bundle *bundle,
                                struct ts_error *error)
{
    unsigned looks = 0;
    for (size_t i = 0; i < folder->count; i++) {
        struct set set = {.folder = folder, .looks = &looks};
        const char *path = folder->members[i].path;
        const size_t length = strlen(path);
        if (folder->members[i].taken || length >= sizeof set.path || !ts_has_tensor_suffix(path) ||
            !ts_part_of(path, &set.part))
            continue; /* a split text beside a model is no part of it */
        memcpy(set.path, path, length + 1);
        TS_TRY(look_around(&set, prefix, bundle, error));
    }
    return TS_OK;
}

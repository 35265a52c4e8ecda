/* PyTorch: .pt, .pth, .bin, .ckpt.
 *
 * Owns the containers: zip files (since torch 1.6, TorchScript included) with a pickle and one member for each storage,
 * legacy streams, and plain pickles of Python and numpy values. Nothing in a pickle is ever executed; what would have
 * run code is reported. Refuses: tar files of torch 0.1, pickles with out-of-band buffers, storages outside of the
 * file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "read/torch.h"

/* More files in one zip, or pickles in one file, than anyone writes. */
#define MAX_PICKLES  10000
#define MAX_FINDINGS 32

static const char data_name[] = "data.pkl", constants_name[] = "constants.pkl";

/* "data.pkl" or "anything/data.pkl". */
static bool is_data(const char *name)
{
    size_t size = strlen(name), tail = sizeof data_name - 1;
    return size >= tail && strcmp(name + size - tail, data_name) == 0 && (size == tail || name[size - tail - 1] == '/');
}

static bool is_plain_pickle(const struct ts_source *source)
{
    return source->size >= 4 && source->data[0] == 0x80 && source->data[1] >= 2 && source->data[1] <= 5 &&
           source->data[source->size - 1] == '.';
}

static unsigned bid(const struct ts_input *input)
{
    if (input->zip) {
        for (size_t i = 0; i < input->zip->count; i++)
            if (is_data(input->zip->entries[i].name))
                return 8 * (sizeof data_name - 1);
        return 0;
    }
    if (ts_torch_is_legacy(input->source->data, input->source->size))
        return 8 * 15;
    if (ts_torch_is_tar(input->source))
        return 8 * 13; /* "ustar" and the name of a member */
    return is_plain_pickle(input->source) ? 12 : 0;
}

/* The bounds of the walk grow with the bytes of the pickles that are walked. */
static void set_limits(struct ts_torch *torch, uint64_t bytes)
{
    if (!torch->step_limit) {
        torch->step_limit = TS_TORCH_MAX_STEPS;
        torch->tensor_limit = TS_TORCH_MAX_TENSORS;
    }
    torch->step_limit += bytes;
    torch->tensor_limit += bytes / 4;
}

/* Loads one member of the zip file as a pickle. */
static enum ts_status load_member(struct ts_torch *torch, const struct ts_zip_entry *entry, const char *storages,
                                  bool swapped, struct ts_pickle_value *value, struct ts_error *error)
{
    struct ts_torch_space space = {.folder = storages, .swapped = swapped};
    struct ts_source *source = NULL;
    uint64_t end = 0;
    enum ts_status status;
    if (entry->problem)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its member \"%s\" cannot be read: %s", entry->name,
                       entry->problem);
    TS_TRY(ts_zip_member(torch->input->zip, entry, &source, error));
    status = ts_torch_add_source(torch, source, error);
    ts_source_release(source); /* torch holds it */
    TS_TRY(status);
    TS_TRY(ts_torch_add_space(torch, space, &torch->pickle.tag, error));
    set_limits(torch, source->size);
    status = ts_pickle_load(&torch->pickle, source->data, source->size, 0, value, &end, error);
    return status == TS_OK ? TS_OK : ts_error_path(error, source->path);
}

static enum ts_status walk_under(struct ts_torch *torch, const char *name, struct ts_pickle_value value,
                                 struct ts_error *error)
{
    size_t before = torch->path_size;
    enum ts_status status;
    if (name[0])
        ts_torch_enter(torch, name, strlen(name));
    status = ts_torch_walk(torch, value, error);
    ts_torch_leave(torch, before);
    return status;
}

/* torch writes "little" or "big"; before 2.1 nothing, and then it is little. */
static enum ts_status read_byte_order(struct ts_torch *torch, const char *name, bool *swapped, struct ts_error *error)
{
    const struct ts_zip_entry *entry = ts_zip_find(torch->input->zip, name);
    struct ts_source *source = NULL;
    *swapped = false;
    if (!entry || entry->problem || entry->size > 16)
        return TS_OK;
    TS_TRY(ts_zip_member(torch->input->zip, entry, &source, error));
    *swapped = source->size >= 3 && memcmp(source->data, "big", 3) == 0;
    ts_source_release(source);
    return TS_OK;
}

/* One archive: folder is what stands before "data.pkl". */
static enum ts_status read_archive(struct ts_torch *torch, const struct ts_zip_entry *entry, const char *prefix,
                                   struct ts_error *error)
{
    struct ts_arena *arena = &torch->pickle.arena;
    int length = (int)(strlen(entry->name) - (sizeof data_name - 1));
    const struct ts_zip_entry *constants;
    struct ts_pickle_value value;
    char *storages, *name;
    bool swapped = false;
    if (!(name = ts_arena_printf(arena, "%.*sbyteorder", length, entry->name)) ||
        !(storages = ts_arena_printf(arena, "%.*sdata/", length, entry->name)))
        return ts_fail_memory(error);
    TS_TRY(read_byte_order(torch, name, &swapped, error));
    TS_TRY(load_member(torch, entry, storages, swapped, &value, error));
    TS_TRY(walk_under(torch, prefix, value, error));
    if (!(name = ts_arena_printf(arena, "%.*s%s", length, entry->name, constants_name)) ||
        !(storages = ts_arena_printf(arena, "%.*sconstants/", length, entry->name)))
        return ts_fail_memory(error);
    constants = ts_zip_find(torch->input->zip, name); /* TorchScript */
    if (!constants)
        return TS_OK;
    TS_TRY(load_member(torch, constants, storages, swapped, &value, error));
    if (!(name = ts_arena_printf(arena, "%s%sconstants", prefix, prefix[0] ? "." : "")))
        return ts_fail_memory(error);
    return walk_under(torch, name, value, error);
}

static enum ts_status read_zip(struct ts_torch *torch, struct ts_error *error)
{
    const struct ts_zip *zip = torch->input->zip;
    size_t archives = 0;
    for (size_t i = 0; i < zip->count; i++)
        archives += is_data(zip->entries[i].name);
    if (archives > MAX_PICKLES)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "holds %zu pickles; this program reads up to %d", archives,
                       MAX_PICKLES);
    for (size_t i = 0; i < zip->count; i++) {
        const char *name = zip->entries[i].name;
        char *prefix;
        if (!is_data(name))
            continue;
        /* Several unpacked archives in one zip: their folders tell their tensors apart. */
        prefix = ts_arena_copy(&torch->pickle.arena, name,
                               archives > 1 && strchr(name, '/') ? strlen(name) - sizeof data_name : 0);
        if (!prefix)
            return ts_fail_memory(error);
        TS_TRY(read_archive(torch, &zip->entries[i], prefix, error));
    }
    return TS_OK;
}

/* pickle.dump, once or several times into one file. */
static enum ts_status read_plain(struct ts_torch *torch, struct ts_error *error)
{
    struct ts_source *source = torch->input->source;
    struct ts_pickle_value first, value;
    uint64_t at = 0;
    TS_TRY(ts_torch_add_space(torch, (struct ts_torch_space){.outside = true}, &torch->pickle.tag, error));
    TS_TRY(ts_pickle_load(&torch->pickle, source->data, source->size, at, &first, &at, error));
    if (at == source->size)
        return walk_under(torch, "", first, error);
    TS_TRY(walk_under(torch, "0", first, error));
    for (unsigned i = 1; at < source->size; i++) {
        char name[16];
        uint32_t outside = 0; /* a torch file inside of the first pickle has changed the tag */
        if (i == MAX_PICKLES)
            return ts_fail(error, TS_ERR_LIMIT, at, "holds more than %d pickles", MAX_PICKLES);
        torch->pickle.tag = outside;
        TS_TRY(ts_pickle_load(&torch->pickle, source->data, source->size, at, &value, &at, error));
        snprintf(name, sizeof name, "%u", i);
        TS_TRY(walk_under(torch, name, value, error));
    }
    return TS_OK;
}

/* Names every function in the pickles that would have run code. */
static enum ts_status report_code(struct ts_torch *torch, struct ts_error *error)
{
    const struct ts_pickle_global *found[MAX_FINDINGS];
    size_t count = 0;
    for (const struct ts_pickle_global *global = torch->pickle.globals; global && count < MAX_FINDINGS;
         global = global->next) {
        char name[200];
        bool seen = false;
        if (!ts_torch_is_dangerous(global))
            continue;
        for (size_t i = 0; i < count; i++)
            seen |= found[i]->module_size == global->module_size && found[i]->name_size == global->name_size &&
                    memcmp(found[i]->module, global->module, global->module_size) == 0 &&
                    memcmp(found[i]->name, global->name, global->name_size) == 0;
        if (seen)
            continue;
        found[count++] = global;
        ts_torch_global_text(global, name, sizeof name);
        TS_TRY(ts_bundle_find(torch->bundle, NULL, error, "refers to \"%s\", which is code; it was not run", name));
    }
    return TS_OK;
}

static enum ts_status read_all(struct ts_torch *torch, struct ts_error *error)
{
    struct ts_source *source = torch->input->source;
    struct ts_pickle_value value;
    enum ts_status status;
    TS_TRY(ts_torch_add_source(torch, source, error));
    if (!torch->input->zip)
        set_limits(torch, source->size);
    if (torch->input->zip) {
        status = read_zip(torch, error);
    } else if (ts_torch_is_legacy(source->data, source->size)) {
        TS_TRY(ts_torch_load_legacy(torch, source, 0, source->size, &value, error));
        status = ts_torch_walk(torch, value, error);
    } else if (ts_torch_is_tar(source)) {
        return ts_fail(
            error, TS_ERR_UNSUPPORTED, 0,
            "is a tar file of torch 0.1, which this program does not read; save it again with a newer torch");
    } else {
        status = read_plain(torch, error);
    }
    TS_TRY(status);
    TS_TRY(ts_torch_finish_numbers(torch, error));
    return report_code(torch, error);
}

static enum ts_status read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct ts_torch *torch = calloc(1, sizeof *torch);
    const size_t before = bundle->count;
    enum ts_status status;
    if (!torch)
        return ts_fail_memory(error);
    torch->input = input;
    torch->bundle = bundle;
    ts_pickle_init(&torch->pickle);
    ts_buffer_init(&torch->numbers, TS_PICKLE_MEMORY);
    status = read_all(torch, error);
    if (status != TS_OK)
        bundle->count = before; /* numbers among them have no source yet */
    ts_torch_release(torch);
    free(torch);
    return status;
}

const struct ts_reader ts_reader_torch = {
    .name = "torch",
    .summary = "PyTorch .pt, .pth, .bin and .ckpt, zip and legacy, TorchScript, and pickles",
    .bid = bid,
    .read = read,
};

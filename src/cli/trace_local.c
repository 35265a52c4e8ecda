/* Owns where replaced values of a run come from. */
#include "cli/trace_local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "compare/honesty.h"
#include "read/open.h"

static uint64_t count_of(const struct ts_point *point)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < point->rank; i++)
        count *= point->shape[i];
    return count;
}

/* The reference's side of the pair is the whole point, element by element in its own order. */
static bool is_whole(const struct ts_pair *pair)
{
    return !pair->problem && pair->a.tensor && pair->a.count == pair->a.tensor->count && pair->a.join == TS_JOIN_NONE &&
           !ts_view_is_computed(&pair->a) && ts_view_bytes(&pair->a) &&
           ts_view_bytes(&pair->a) == ts_tensor_bytes(pair->a.tensor);
}

static enum ts_status replace_local(void *context, const struct ts_point *point, float *values, bool *found,
                                    struct ts_error *error)
{
    const struct trace_feed *feed = context;
    size_t index = ts_table_get(&feed->names, point->name);
    const struct ts_pair *pair = index == SIZE_MAX ? NULL : &feed->pairing.pairs[index];
    *found = pair && is_whole(pair) && pair->b.count == count_of(point);
    return *found ? ts_view_read_f32(&pair->b, 0, (size_t)pair->b.count, values, error) : TS_OK;
}

static enum ts_status replace_injected(void *context, const struct ts_point *point, float *values, bool *found,
                                       struct ts_error *error)
{
    struct trace_feed *feed = context;
    *found = false;
    for (size_t i = 0; i < feed->injected_count; i++) {
        struct injected *one = &feed->injected[i];
        if (strcmp(one->name, point->name) != 0)
            continue;
        if (one->tensor->count != count_of(point))
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                           "%s has %" PRIu64 " elements, and the tensor to inject %" PRIu64, point->name,
                           count_of(point), one->tensor->count);
        one->used = *found = true;
        return ts_tensor_read_f32(one->tensor, 0, (size_t)one->tensor->count, values, error);
    }
    return TS_OK;
}

/* A trace in a file that has no name any more once it is open. */
static int trace_to_bundle(struct ts_model *model, const struct ts_trace_options *options,
                           const struct model_input *input, struct ts_pool *pool, struct ts_bundle **bundle)
{
    const char *folder = getenv("TMPDIR");
    struct ts_trace_summary summary;
    struct ts_buffer trouble;
    struct ts_error error;
    char *path;
    int file, status = EXIT_MATCH;
    if (asprintf(&path, "%s/tsleuth-XXXXXX.safetensors", folder && folder[0] ? folder : "/tmp") < 0)
        return EXIT_TROUBLE;
    file = mkstemps(path, (int)strlen(".safetensors"));
    if (file < 0) {
        fprintf(stderr, "tsleuth: cannot write to \"%s\"; TMPDIR names another folder\n", path);
        free(path);
        return EXIT_TROUBLE;
    }
    ts_buffer_init(&trouble, (size_t)1 << 20);
    if (model_trace(model, options, input, pool, file, &summary, &trouble, &error) != TS_OK ||
        ts_open(path, NULL, bundle, &error) != TS_OK)
        status = tell_error(&error);
    model_tell_trouble(&trouble);
    ts_trace_summary_release(&summary);
    ts_buffer_release(&trouble);
    close(file);
    unlink(path);
    free(path);
    return status;
}

/* The token ids that a capture says it was made from, "1,2". NULL when it does not say, or had several sequences. */
static char *ids_of_bundle(struct ts_bundle *bundle)
{
    const char *written = ts_capture_tokens(bundle, &bundle->arena);
    struct ts_buffer out;
    char *text = NULL;
    bool closed = false;
    ts_buffer_init(&out, (size_t)16 << 20);
    for (; written && *written; written++) {
        if (*written == ']')
            closed = true;
        else if (*written == '[' && closed)
            break;
        else if (*written != '[' && *written != ' ' && !closed)
            ts_buffer_byte(&out, *written);
    }
    if (out.size && !out.failed && !*written)
        text = strdup(out.data);
    ts_buffer_release(&out);
    return text;
}

/* "[1, 2]" and "1,2" are the same. */
static bool same_ids(const char *one, const char *other)
{
    static const char between[] = "[], \n";
    for (;;) {
        size_t digits;
        one += strspn(one, between);
        other += strspn(other, between);
        digits = strcspn(one, between);
        if (digits != strcspn(other, between) || strncmp(one, other, digits) != 0)
            return false;
        if (!digits)
            return true;
        one += digits;
        other += digits;
    }
}

int trace_feed_local(struct trace_feed *feed, const char *candidate, const struct ts_open_options *open,
                     struct ts_model *model, const struct ts_trace_options *options, const struct model_input *input,
                     struct ts_pool *pool)
{
    struct ts_pair_options pair = {.by_content = false};
    struct ts_error error;
    size_t usable = 0;
    char *ids;
    struct ts_trace_options all = {.model = options->model};
    int status = trace_to_bundle(model, &all, input, pool, &feed->reference);
    feed->feed = (struct ts_feed){.context = feed, .replace = replace_local, .local = true};
    if (status != EXIT_MATCH)
        return status;
    if (ts_open(candidate, open, &feed->candidate, &error) != TS_OK ||
        ts_pair_run(feed->reference, feed->candidate, &pair, pool, NULL, &feed->pairing, &error) != TS_OK)
        return tell_error(&error);
    feed->paired = true;
    if ((ids = ids_of_bundle(feed->candidate)) && !same_ids(ids, input->ids))
        fprintf(stderr, "tsleuth: note: \"%s\" says it was made from other tokens than these\n", candidate);
    free(ids);
    if (!ts_table_init(&feed->names, feed->pairing.count + 1)) {
        ts_fail_memory(&error);
        return tell_error(&error);
    }
    for (size_t i = 0; i < feed->pairing.count; i++) {
        usable += is_whole(&feed->pairing.pairs[i]);
        ts_table_put(&feed->names, feed->pairing.pairs[i].name, i, NULL);
    }
    if (!usable) {
        fprintf(stderr, "tsleuth: not one tensor of \"%s\" is a point of this model\n", candidate);
        return EXIT_INCOMPLETE;
    }
    return EXIT_MATCH;
}

static char *ids_of_file(const char *path, const struct ts_open_options *open)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    char *ids;
    if (!path || ts_open(path, open, &bundle, &error) != TS_OK)
        return NULL;
    ids = ids_of_bundle(bundle);
    ts_bundle_free(bundle);
    return ids;
}

int trace_local(const char *path, const char *candidate, const char *tokens_of, const struct ts_open_options *open,
                const struct model_input_options *options, const struct command *command, struct ts_bundle **local)
{
    struct model_input_options known = *options;
    struct ts_trace_options trace = {.model.cache = true};
    struct trace_feed feed = {0};
    struct model_input input = {0};
    struct ts_model model;
    struct ts_error error;
    struct ts_pool *pool;
    char *ids = NULL;
    int status;
    *local = NULL;
    if (!known.prompt && !known.tokens && !known.tokens_file && !known.quick) {
        ids = ids_of_file(tokens_of, open);
        ids = ids ? ids : ids_of_file(candidate, open);
        if (!ids)
            return tell_usage(command, "the captures do not say which tokens they were made from; give --tokens");
        known.tokens = ids;
    }
    if ((open->follow_links ? ts_model_open_linked : ts_model_open)(path, &model, &error) != TS_OK) {
        free(ids);
        return tell_error(&error);
    }
    pool = ts_pool_new(0);
    status = pool ? model_input_read(command, &known, path, &model, &input) : EXIT_TROUBLE;
    if (status == EXIT_MATCH)
        status = trace_feed_local(&feed, candidate, open, &model, &trace, &input, pool);
    trace.feed = &feed.feed;
    if (status == EXIT_MATCH)
        status = trace_to_bundle(&model, &trace, &input, pool, local);
    trace_feed_release(&feed);
    if (*local)
        (*local)->path =
            ts_arena_printf(&(*local)->arena, "%s, each operation run on the candidate's own inputs", path);
    ts_pool_free(pool);
    model_input_release(&input);
    ts_model_release(&model);
    free(ids);
    return status;
}

int trace_feed_inject(struct trace_feed *feed, const struct command *command, const struct option_list *list)
{
    struct ts_error error;
    feed->feed = (struct ts_feed){.context = feed, .replace = replace_injected};
    feed->injected = calloc(list->count, sizeof *feed->injected);
    if (!feed->injected)
        return EXIT_TROUBLE;
    for (size_t i = 0; i < list->count; i++) {
        struct injected *one = &feed->injected[i];
        const char *equals = strchr(list->texts[i], '=');
        if (!equals || equals == list->texts[i])
            return tell_usage(command, "--inject needs NAME=FILE, not \"%s\"", list->texts[i]);
        one->name = strndup(list->texts[i], (size_t)(equals - list->texts[i]));
        feed->injected_count++;
        if (!one->name || ts_open(equals + 1, NULL, &one->bundle, &error) != TS_OK)
            return one->name ? tell_error(&error) : EXIT_TROUBLE;
        one->tensor = ts_bundle_tensor(one->bundle, one->name);
        if (!one->tensor && one->bundle->count == 1)
            one->tensor = one->bundle->tensors[0];
        if (!one->tensor)
            return tell_usage(command, "\"%s\" has no tensor \"%s\"", equals + 1, one->name);
    }
    return EXIT_MATCH;
}

const char *trace_feed_unused(const struct trace_feed *feed)
{
    for (size_t i = 0; i < feed->injected_count; i++)
        if (!feed->injected[i].used)
            return feed->injected[i].name;
    return NULL;
}

void trace_feed_release(struct trace_feed *feed)
{
    if (feed->paired) {
        ts_table_release(&feed->names);
        ts_pairing_release(&feed->pairing);
    }
    ts_bundle_free(feed->reference);
    ts_bundle_free(feed->candidate);
    for (size_t i = 0; i < feed->injected_count; i++) {
        free((char *)feed->injected[i].name);
        ts_bundle_free(feed->injected[i].bundle);
    }
    free(feed->injected);
    *feed = (struct trace_feed){0};
}

/* Owns the search for two names with the same bytes. Sizes and a few sampled bytes rule nearly everything out; only
 * what they cannot tell apart is hashed, and equal hashes are compared byte by byte. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* states on the stack */
#include <xxhash.h>

#include "base/text.h"
#include "check/check_internal.h"
#include "tensor/layer.h"

/* Fewer bytes are equal by chance. */
#define MIN_BYTES 16
/* Sampled at the start, the end and twice between. */
#define SAMPLE 16
/* Hashed at a time; its pages are given back behind it. */
#define PIECE ((uint64_t)4 << 20)

struct copy {
    size_t index; /* in the bundle */
    uint64_t key; /* of type, layout and sample */
    XXH128_hash_t hash;
};

/* The stored tensors that make it up: itself, or its parts. */
static size_t part_count(const struct ts_tensor *tensor)
{
    return tensor->type == TS_CODED ? tensor->part_count : 1;
}

static const struct ts_tensor *part_of(const struct ts_tensor *tensor, size_t part)
{
    return tensor->type == TS_CODED ? tensor->parts[part] : tensor;
}

static const uint8_t *bytes_of(const struct ts_tensor *part)
{
    return part->source->data + part->span_offset;
}

/* Its span holds its elements and nothing else. */
static bool is_solid(const struct ts_tensor *part)
{
    uint64_t bytes;
    return part->type != TS_CODED && part->source && part->bytes &&
           (!part->strides || (ts_type_bytes(part->type, part->count, &bytes) && bytes == part->bytes));
}

static bool is_candidate(const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    uint64_t bytes = 0;
    if (!stats->finite || ts_check_is_constant(tensor, stats) || !part_count(tensor))
        return false;
    for (size_t i = 0; i < part_count(tensor); i++) {
        if (!is_solid(part_of(tensor, i)))
            return false;
        bytes += part_of(tensor, i)->bytes;
    }
    return bytes >= MIN_BYTES;
}

/* Without the sample nothing is read: a tensor of a size that no other has is done with that. */
static void add_key(XXH3_state_t *state, const struct ts_tensor *part, bool sampled)
{
    const uint8_t *bytes = bytes_of(part);
    uint64_t layout[4] = {part->type, part->swapped, part->count, part->bytes};
    XXH3_64bits_update(state, layout, sizeof layout);
    if (part->strides) {
        XXH3_64bits_update(state, part->shape, part->rank * sizeof *part->shape);
        XXH3_64bits_update(state, part->strides, part->rank * sizeof *part->strides);
    }
    for (unsigned i = 0; i < 4 && sampled; i++) {
        uint64_t length = part->bytes < SAMPLE ? part->bytes : SAMPLE;
        uint64_t at = (part->bytes - length) / 3 * i;
        XXH3_64bits_update(state, bytes + (i == 3 ? part->bytes - length : at), (size_t)length);
    }
}

struct job {
    const struct ts_bundle *bundle;
    struct copy *copies;
    bool sampled;
};

static void make_key(void *context, uint64_t index, unsigned worker)
{
    struct job *job = context;
    struct copy *copy = &job->copies[index];
    const struct ts_tensor *tensor = job->bundle->tensors[copy->index];
    XXH3_state_t state;
    (void)worker;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < part_count(tensor); i++)
        add_key(&state, part_of(tensor, i), job->sampled);
    copy->key = XXH3_64bits_digest(&state);
}

static void hash(void *context, uint64_t index, unsigned worker)
{
    struct job *job = context;
    struct copy *copy = &job->copies[index];
    const struct ts_tensor *tensor = job->bundle->tensors[copy->index];
    XXH3_state_t state;
    (void)worker;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < part_count(tensor); i++) {
        const struct ts_tensor *part = part_of(tensor, i);
        for (uint64_t at = 0; at < part->bytes && !atomic_load(&ts_cancelled); at += PIECE) {
            uint64_t now = part->bytes - at < PIECE ? part->bytes - at : PIECE;
            XXH3_128bits_update(&state, bytes_of(part) + at, (size_t)now);
            ts_source_forget(part->source, part->span_offset + at, now);
        }
    }
    copy->hash = XXH3_128bits_digest(&state);
}

static bool are_equal(const struct ts_tensor *a, const struct ts_tensor *b)
{
    if (part_count(a) != part_count(b) || a->codec != b->codec)
        return false;
    for (size_t i = 0; i < part_count(a); i++) {
        const struct ts_tensor *left = part_of(a, i), *right = part_of(b, i);
        if (left->type != right->type || left->swapped != right->swapped || left->bytes != right->bytes)
            return false;
        for (uint64_t at = 0; at < left->bytes; at += PIECE) {
            uint64_t now = left->bytes - at < PIECE ? left->bytes - at : PIECE;
            if (memcmp(bytes_of(left) + at, bytes_of(right) + at, (size_t)now) != 0)
                return false;
            ts_source_forget(left->source, left->span_offset + at, now);
            ts_source_forget(right->source, right->span_offset + at, now);
        }
    }
    return true;
}

/* One place under two names was told by ts_check_spans. */
static bool are_one_place(const struct ts_tensor *a, const struct ts_tensor *b)
{
    return bytes_of(part_of(a, 0)) == bytes_of(part_of(b, 0));
}

static int by_key(const void *a, const void *b)
{
    const struct copy *left = a, *right = b;
    if (left->key != right->key)
        return left->key < right->key ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static int by_hash(const void *a, const void *b)
{
    const struct copy *left = a, *right = b;
    int order = left->key != right->key ? (left->key < right->key ? -1 : 1) : XXH128_cmp(&left->hash, &right->hash);
    if (order)
        return order;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* What one layer computes and the next is given, a module and its last child, dropout that does nothing: in a dump of
 * activations two names for one value are the rule. Not so for the same point of two layers, nor for two of the
 * projections of one. */
static bool are_suspicious(const char *a, const char *b)
{
    static const char flow[] = "output hidden logit input embed resid dropout";
    static const char *const roles[] = {"q query", "k key", "v value", "gate", "up"};
    uint64_t layer_a, layer_b;
    size_t start_a, end_a, start_b, end_b;
    bool numbered_a, numbered_b;
    int role_a = -1, role_b = -1;
    a = ts_check_leaf(a);
    b = ts_check_leaf(b);
    if (ts_check_is_weight(a) && ts_check_is_weight(b))
        return true;
    numbered_a = ts_check_layer_place(a, &layer_a, &start_a, &end_a);
    numbered_b = ts_check_layer_place(b, &layer_b, &start_b, &end_b);
    if (!numbered_a && !numbered_b)
        return !ts_check_says(a, flow) && !ts_check_says(b, flow);
    if (!numbered_a || !numbered_b)
        return false;
    if (layer_a != layer_b)
        return start_a == start_b && strncmp(a, b, start_a) == 0 && strcmp(a + end_a, b + end_b) == 0;
    for (int i = 0; i < (int)(sizeof roles / sizeof *roles); i++) {
        role_a = ts_check_has_word(a + end_a, roles[i]) ? i : role_a;
        role_b = ts_check_has_word(b + end_b, roles[i]) ? i : role_b;
    }
    return role_a >= 0 && role_b >= 0 && role_a != role_b;
}

/* Equal by their nature, in every layer. */
static bool is_shared_by_nature(const struct ts_tensor *tensor)
{
    if (ts_type_is_integer(tensor->type) && !ts_check_is_weight(tensor->name))
        return true;
    return ts_check_says(tensor->name, "inv_freq rotary rope mask position timestep temb encoder_") ||
           ts_check_has_word(tensor->name, "cos sin");
}

static bool is_tieable(const char *name)
{
    return ts_check_is_weight(name) && ts_check_is_embedding(name);
}

struct set {
    const struct ts_tensor *first, *second; /* the most suspicious two */
    size_t count;
    bool suspicious, tied;
};

struct ordinary {
    const struct ts_tensor *first, *second;
    size_t sets;
};

static void tell_tied(struct ts_checking *checking, const struct set *set, const struct ts_config *config)
{
    const char *said = "";
    if (config && ts_config_has(config, "tie_word_embeddings"))
        said = ts_config_truth(config, "tie_word_embeddings", false)
                   ? ", as tie_word_embeddings in config.json says"
                   : ", though tie_word_embeddings is false in config.json";
    ts_check_add(checking, "tied-weights", TS_NOTE, set->first->name, "has the same bytes as \"%s\": they are tied%s",
                 set->second->name, said);
}

static void tell_set(struct ts_checking *checking, const struct set *set, const struct ts_config *config,
                     struct ordinary *ordinary)
{
    if (set->tied) {
        tell_tied(checking, set, config);
    } else if (!set->suspicious) {
        if (!ordinary->sets++) {
            ordinary->first = set->first;
            ordinary->second = set->second;
        }
    } else if (set->count > 2) {
        ts_check_add(checking, "same-bytes", TS_WARNING, set->first->name, "has the same bytes as \"%s\" and %zu more",
                     set->second->name, set->count - 2);
    } else {
        ts_check_add(checking, "same-bytes", TS_WARNING, set->first->name, "has the same bytes as \"%s\"",
                     set->second->name);
    }
}

/* Pairs of a set that are looked at one by one; more of them tell nothing new. */
#define MAX_PAIRS 32

static struct set describe(const struct ts_checking *checking, const struct copy *copies, size_t count)
{
    struct ts_tensor *const *tensors = checking->bundle->tensors;
    size_t looked = count < MAX_PAIRS ? count : MAX_PAIRS;
    struct set set = {
        .first = tensors[copies[0].index], .second = tensors[copies[1].index], .count = count, .tied = true};
    for (size_t i = 0; i < count; i++)
        set.tied = set.tied && is_tieable(tensors[copies[i].index]->name);
    if (set.tied || is_shared_by_nature(set.first))
        return set;
    for (size_t i = 0; i < looked; i++)
        for (size_t j = i + 1; j < looked && !set.suspicious; j++) {
            const struct ts_tensor *a = tensors[copies[i].index], *b = tensors[copies[j].index];
            if (checking->group_of[copies[i].index] == checking->group_of[copies[j].index] && !are_one_place(a, b) &&
                are_suspicious(a->name, b->name)) {
                set.suspicious = true;
                set.first = a;
                set.second = b;
            }
        }
    return set;
}

struct found {
    struct set set;
    size_t order;
};

static int by_order(const void *a, const void *b)
{
    const struct found *left = a, *right = b;
    return left->order < right->order ? -1 : left->order > right->order;
}

static void tell_copies(struct ts_checking *checking, struct copy *copies, size_t count, struct found *found)
{
    struct ts_tensor *const *tensors = checking->bundle->tensors;
    struct ordinary ordinary = {0};
    struct ts_config config = {0};
    struct ts_error ignored;
    bool configured = checking->bundle->config && ts_config_read(&config, checking->bundle->config, &ignored);
    size_t sets = 0;
    for (size_t first = 0; first < count;) {
        size_t last = first + 1, kept = first + 1;
        const struct ts_tensor *tensor = tensors[copies[first].index];
        for (; last < count && copies[last].key == copies[first].key &&
               XXH128_isEqual(copies[last].hash, copies[first].hash);
             last++) {
            const struct ts_tensor *other = tensors[copies[last].index];
            if (!are_one_place(tensor, other) && are_equal(tensor, other))
                copies[kept++] = copies[last];
        }
        if (kept - first > 1)
            found[sets++] = (struct found){describe(checking, copies + first, kept - first), copies[first].index};
        first = last;
    }
    qsort(found, sets, sizeof *found, by_order);
    for (size_t i = 0; i < sets; i++)
        tell_set(checking, &found[i].set, configured ? &config : NULL, &ordinary);
    if (ordinary.sets)
        ts_check_add(checking, "same-bytes", TS_NOTE, ordinary.first->name,
                     ordinary.sets > 1 ? "has the same bytes as \"%s\", one value under two names; %zu other sets of "
                                         "tensors are alike"
                                       : "has the same bytes as \"%s\", one value under two names",
                     ordinary.second->name, ordinary.sets - 1);
    ts_config_release(&config);
}

/* Keeps the runs of equal keys. */
static size_t keep_repeated(struct copy *copies, size_t count)
{
    size_t kept = 0;
    for (size_t first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && copies[last].key == copies[first].key;)
            last++;
        if (last - first == 1)
            continue;
        memmove(copies + kept, copies + first, (last - first) * sizeof *copies);
        kept += last - first;
    }
    return kept;
}

enum ts_status ts_check_copies(struct ts_checking *checking, struct ts_error *error)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct job job = {.bundle = bundle};
    struct found *found;
    size_t count = 0;
    enum ts_status status = TS_OK;
    job.copies = calloc(bundle->count + 1, sizeof *job.copies);
    if (!job.copies)
        return ts_fail_memory(error);
    for (size_t i = 0; i < bundle->count; i++)
        if (is_candidate(bundle->tensors[i], &checking->stats[i]))
            job.copies[count++].index = i;
    for (int pass = 0; pass < 2; pass++) {
        job.sampled = pass == 1;
        ts_pool_run(checking->pool, count, make_key, &job);
        qsort(job.copies, count, sizeof *job.copies, by_key);
        count = keep_repeated(job.copies, count);
    }
    ts_pool_run(checking->pool, count, hash, &job);
    qsort(job.copies, count, sizeof *job.copies, by_hash);
    found = calloc(count / 2 + 1, sizeof *found);
    if (!found)
        status = ts_fail_memory(error);
    else if (atomic_load(&ts_cancelled))
        status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    else
        tell_copies(checking, job.copies, count, found);
    free(found);
    free(job.copies);
    return status;
}

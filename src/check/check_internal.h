/* What the families of checks share. Internal to src/check.
 *
 * One file per family; each goes over the bundle once and adds issues. Running out of memory sets `failed` and is
 * looked at once, at the end: adding an issue cannot fail otherwise. */
#ifndef TS_CHECK_CHECK_INTERNAL_H
#define TS_CHECK_CHECK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "check/check.h"

/* Issues of one id and severity that are listed; the rest is counted. */
#define TS_CHECK_LISTED 100

struct ts_check_tally {
    const char *id;
    enum ts_severity severity;
    size_t count;
};

/* Tensors that belong to one checkpoint or dump: those of one file, or of one set of shards. */
struct ts_check_group {
    const char *key;        /* what open put before the names, "" where there is only one file */
    size_t count;           /* tensors */
    unsigned shards, parts; /* "-00002-of-00005": how many different ones are here, and how many there should be */
    bool promised;          /* config.json described it, so gaps have been told exactly */
};

struct ts_checking {
    struct ts_pool *pool;
    const struct ts_bundle *bundle;
    const struct ts_stats *stats;
    struct ts_progress *progress;
    struct ts_check *check;
    struct ts_check_tally tallies[64]; /* far more than there are ids */
    size_t tally_count;
    struct ts_check_group *groups;
    size_t group_count;
    uint32_t *group_of; /* one per tensor */
    bool failed;
};

/* id is a literal. Text without a full stop. */
void ts_check_add(struct ts_checking *checking, const char *id, enum ts_severity severity, const char *tensor,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The families, in the order they run. Those that read bytes may be cancelled. */
enum ts_status ts_check_bytes(struct ts_checking *checking, struct ts_error *error);
void ts_check_spans(struct ts_checking *checking);
enum ts_status ts_check_copies(struct ts_checking *checking, struct ts_error *error);
void ts_check_quantized(struct ts_checking *checking);
void ts_check_model(struct ts_checking *checking);
void ts_check_layers(struct ts_checking *checking);

/* What a scan of one tensor's elements finds; all counts in elements. */
struct ts_fill {
    uint64_t head, tail;       /* as many at the start (end) are equal to the first (last) one */
    bool head_zero, tail_zero; /* and that one is zero */
    uint64_t rows, columns;    /* how it was cut for the next fields; rows is 0 when it was not */
    uint64_t dead;             /* rows of zeros outside of head and tail, where those are zeros */
    uint64_t first_dead[6];
    uint64_t holes,
        hole; /* runs of zeros, and the length that nearly all of them have; 0 when there is no such length */
};

void ts_fill_scan(const struct ts_tensor *tensor, const struct ts_stats *stats, struct ts_fill *fill);
/* The scan would look at no more elements than there are bytes to back them: false for views that repeat data. */
bool ts_fill_is_scannable(const struct ts_tensor *tensor);

/* Names. The leaf is the name without the file that open put in front of it. */
const char *ts_check_leaf(const char *name);
/* The leaf's part behind the last '/', in any case, contains one of the words (separated by blanks). */
bool ts_check_says(const char *name, const char *words);
/* One of its words (runs of letters and digits) is one of these. */
bool ts_check_has_word(const char *name, const char *words);
bool ts_check_is_embedding(const char *name); /* one row per token: embeddings and heads, which may be tied */
bool ts_check_is_mask(const char *name);
bool ts_check_is_weight(const char *name); /* ends as parameters do, so nothing was computed from it */

/* The digits of the layer number that ts_layer_of finds: name[*start .. *end). */
bool ts_check_layer_place(const char *name, uint64_t *layer, size_t *start, size_t *end);

void ts_check_groups(struct ts_checking *checking);

/* Sorts; returns how many different ones there are, which then come first. */
size_t ts_check_sort_unique(uint64_t *numbers, size_t count);
/* Appends "3..5,9" for ascending numbers; long lists end in "...". */
void ts_check_ranges(struct ts_buffer *out, const uint64_t *numbers, size_t count);
/* "[1,5]" of a flat index. */
#define TS_PLACE_TEXT 256
char *ts_check_place(const struct ts_tensor *tensor, uint64_t index, char text[TS_PLACE_TEXT]);

/* All elements have one value (and there are enough of them to say so). */
bool ts_check_is_constant(const struct ts_tensor *tensor, const struct ts_stats *stats);

/* config.json, as far as it is flat: one value per key, those of "text_config" before those outside. */
struct ts_setting;
struct ts_config {
    struct ts_arena arena;
    const struct ts_setting *settings; /* last one first */
    size_t count;
    bool nested; /* there is a text_config: the model is more than text */
};

/* On false the message says why; *config is empty and still to be released. */
bool ts_config_read(struct ts_config *config, const struct ts_source *source, struct ts_error *error);
void ts_config_release(struct ts_config *config);
bool ts_config_has(const struct ts_config *config, const char *key); /* and it is not null */
/* The number, or `otherwise` when there is none. Element `index` where the value is a list. */
uint64_t ts_config_number(const struct ts_config *config, const char *key, uint64_t index, uint64_t otherwise);
bool ts_config_truth(const struct ts_config *config, const char *key, bool otherwise);
const char *ts_config_text(const struct ts_config *config, const char *key); /* first string of a list; NULL */
bool ts_config_lists(const struct ts_config *config, const char *key, uint64_t number); /* it is in the list */

/* What a config promises. */
enum ts_rule_need {
    TS_WEIGHT_OUTSIDE = 1,     /* not below the backbone's prefix: the head */
    TS_WEIGHT_OPTIONAL = 2,    /* fine without */
    TS_WEIGHT_IN_DENSE = 4,    /* layers with one feed-forward network */
    TS_WEIGHT_IN_MOE = 8,      /* layers with experts */
    TS_WEIGHT_OF_EXPERTS = 16, /* stored in several layouts; see check_model.c */
    TS_WEIGHT_QKV_BIAS = 32,   /* when these projections have biases */
    TS_WEIGHT_OUT_BIAS = 64,
    TS_WEIGHT_MLP_BIAS = 128,
    TS_WEIGHT_LOW_RANK_Q = 256, /* latent attention with a compressed query */
    TS_WEIGHT_FULL_Q = 512,     /* and without */
    TS_WEIGHT_OWN_KV = 1024,    /* optional in layers that take K and V from earlier ones */
    TS_WEIGHT_PER_INPUT = 2048  /* '@' runs over the AltUp inputs but the first */
};

/* name: '#' stands for the layer, '@' for the expert. shape: a letter per axis, see check_architectures.c. */
struct ts_rule {
    const char *name, *shape;
    unsigned needs;
};

struct ts_promise {
    const char *family;                     /* the model_type */
    const struct ts_rule *const *rules;     /* lists that end with a NULL name; ends with NULL */
    const char *prefix;                     /* of the backbone, as transformers writes it */
    uint64_t layers, experts, extra_layers; /* extra: behind the others, for speculative decoding; not described here */
    uint64_t dimensions[128];               /* by letter; 0 when the config does not say */
    unsigned absent;                        /* needs that this config does not have */
    uint64_t first_sparse, sparse_step, sparse_frequency; /* which layers have experts */
    uint64_t own_kv;                                      /* layers that have K and V of their own */
    enum { TS_UNTIED, TS_TIED, TS_EITHER } head;          /* must there be a head of its own */
    const struct ts_config *config;
};

/* False for an architecture that is not known here. */
bool ts_promise_make(const struct ts_config *config, struct ts_promise *promise);
/* The rule holds in this layer, and how (bits of TS_WEIGHT_OPTIONAL). */
bool ts_promise_applies(const struct ts_promise *promise, const struct ts_rule *rule, uint64_t layer, bool *optional);
/* Size of axis `axis` in that layer; 0 when the config does not say. */
uint64_t ts_promise_size(const struct ts_promise *promise, const struct ts_rule *rule, uint64_t layer, unsigned axis);

#endif

/* Trace: a forward pass written to a file, with what a person wants to know of it. */
#ifndef TS_MODEL_TRACE_H
#define TS_MODEL_TRACE_H

#include "base/progress.h"
#include "model/model.h"

/* Other values for a point, in its own shape and layout; see struct ts_watcher. */
struct ts_feed {
    void *context;
    enum ts_status (*replace)(void *context, const struct ts_point *point, float *values, bool *found,
                              struct ts_error *error);
    bool local; /* the computed values are kept, and the run goes on from the given ones */
};

struct ts_trace_options {
    struct ts_model_options model;
    const char *points; /* a regular expression: only points whose name it matches are kept; NULL: all */
    size_t first_layer; /* points of earlier layers are not kept */
    const char *names;  /* a naming of ts_trace_naming_list, NULL for that of transformers */
    const struct ts_feed *feed;
    struct ts_progress *progress;
};

/* What attention, gates, experts and streams did, a line for each layer that has them. */
struct ts_observation {
    const char *point; /* where it was seen */
    enum ts_observed {
        TS_OBSERVED_ENTROPY, /* a number per head: entropy over the visible keys, 1 for all alike, mean over tokens;
                              * what a sink takes is left out */
        TS_OBSERVED_GATE,    /* one: share of the gate's outputs below a hundredth of the largest of their token */
        TS_OBSERVED_EXPERTS, /* a number per expert: share of all choices */
        TS_OBSERVED_STREAMS  /* a number per stream: root mean square */
    } kind;
    size_t count;
    float *values;
};

struct ts_next_token {
    int64_t id;
    double probability;
};

#define TS_NEXT_TOKENS 5
struct ts_trace_summary {
    size_t points;
    uint64_t bytes;
    struct ts_observation *observations;
    size_t observation_count, observation_capacity;
    struct ts_next_token next[TS_NEXT_TOKENS]; /* after the last token; from the logits, where they were computed */
    size_t next_count;
    struct ts_arena arena;
    /* private: how many keys each token sees, from the last masked scores */
    uint32_t *visible;
    size_t visible_count;
};

/* Plans, writes the header and runs. file: empty, seekable, seen by nobody until it is whole. metadata: pairs of key
 * and value, ended by NULL. trouble: what is wrong with the weights, in full; may be NULL. */
enum ts_status ts_trace_write(struct ts_model *model, const struct ts_trace_options *options, const int64_t *tokens,
                              size_t token_count, struct ts_pool *pool, int file, const char *const *metadata,
                              struct ts_trace_summary *summary, struct ts_buffer *trouble, struct ts_error *error);
/* The points without running: `each` is called in order. */
enum ts_status ts_trace_list(struct ts_model *model, const struct ts_trace_options *options, const int64_t *tokens,
                             size_t token_count, struct ts_pool *pool,
                             void (*each)(void *context, const struct ts_point *point), void *context,
                             struct ts_buffer *trouble, struct ts_error *error);
void ts_trace_summary_release(struct ts_trace_summary *summary);

/* Adds what can be seen in a point to the summary. */
bool ts_trace_observe(struct ts_trace_summary *summary, const struct ts_point *point, size_t experts);

/* The name of a point in another naming ("qwen3", "gemma3n"), or NULL when that one has no word for it. text has room
 * for it. */
const char *ts_trace_rename(const char *naming, const char *name, char text[800]);
/* The naming's word for the input of the layer behind this point, where it has one: the same values under a second
 * name. */
const char *ts_trace_input_name(const char *naming, const char *name, size_t layers, char text[800]);
bool ts_trace_naming_known(const char *naming);

/* What an input of so many tokens cannot show, once the model was planned or run: sentences, most important first; NULL
 * behind the last. */
const char *ts_trace_blind_spot(const struct ts_model *model, size_t token_count, unsigned index, char text[256]);

#endif

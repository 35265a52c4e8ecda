/* Opened: a comparison, or one input alone, while somebody looks at it. Counted: requests hold it while they work, and
 * it goes when the last one is done and the workspace has let go of it. What it describes does not change, but for the
 * mappings that a person makes by hand. */
#ifndef TS_SERVE_OPENED_H
#define TS_SERVE_OPENED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/json.h"
#include "check/check.h"
#include "compare/comparison.h"
#include "compare/stats.h"
#include "diagnose/diagnose.h"
#include "pair/names.h"
#include "tensor/view.h"

struct ts_call;

struct ts_wish;

/* One pair under a mapping that a person made. */
struct ts_remap {
    atomic_uint holders;
    uint64_t serial;
    struct ts_arena arena;
    struct ts_pair pair;
    struct ts_delta delta;
    struct ts_judgement judgement; /* of this pair alone */
    const struct ts_wish *wish;    /* what was asked for */
    bool swapped;                  /* A stands for the candidate */
};

void ts_remap_drop(struct ts_remap *remap); /* NULL is fine */
/* The mapping as the API takes it. */
void ts_remap_json(struct ts_json_writer *json, const struct ts_remap *remap);

#define TS_WORST_KEPT 256

/* The worst elements of a pair, worst first. */
struct ts_worst {
    size_t count;
    uint64_t index[TS_WORST_KEPT];
};

struct ts_opened {
    atomic_uint holders;
    uint64_t serial;
    char names[2][256];           /* as shown to people */
    struct ts_bundle *bundles[2]; /* NULL where there is none */
    bool compared;                /* two sides; else one of the bundles is NULL */
    struct ts_comparison comparison;
    struct ts_diagnosis diagnosis;
    bool diagnosed;
    struct ts_stats *stats; /* one side: of each tensor */
    struct ts_check check;  /* one side */
    struct ts_arena arena;
    struct ts_names pair_names; /* of the pairs, or of the tensors of one side */
    struct ts_tolerance tolerance;
    bool tolerance_given;
    pthread_mutex_t lock;     /* guards what follows */
    struct ts_remap **remaps; /* one per pair, mostly NULL */
    struct ts_worst **worst;  /* one per pair, filled in when asked for */
    _Atomic uint64_t touched; /* bytes read since the pages were last forgotten */
};

struct ts_opened *ts_opened_new(void); /* held once; NULL without memory */
/* What the list of tensors needs, when everything else is there. */
enum ts_status ts_opened_prepare(struct ts_opened *opened, struct ts_error *error);
struct ts_opened *ts_opened_hold(struct ts_opened *opened);
void ts_opened_drop(struct ts_opened *opened); /* NULL is fine */

/* Says that so many bytes in so many places of the inputs were looked at: every now and then their pages are let go. A
 * fault maps what is cached around it too, so each place costs more than its bytes. */
void ts_opened_touch(struct ts_opened *opened, uint64_t places, uint64_t bytes);
void ts_opened_forget_pages(struct ts_opened *opened);

/* What P means in /tensors/P: views of one or two sides with the same shape. */
struct ts_focus {
    struct ts_opened *opened;
    struct ts_arena arena;
    struct ts_view views[2];
    bool has[2];
    unsigned rank;
    const uint64_t *shape;
    uint64_t count;
    size_t index;                     /* of the pair or of the tensor */
    const struct ts_pair *pair;       /* NULL for a tensor of one side */
    const struct ts_delta *delta;     /* NULL where nothing was measured */
    const struct ts_verdict *verdict; /* NULL for remaps and single tensors */
    struct ts_remap *remap;           /* held, or NULL */
    const struct ts_tensor *tensor;   /* of one side */
    unsigned components;              /* 2 for complex numbers */
    char key[64];                     /* tells it from all others, for caches */
};

/* The subject of call->captures[1], held until it is released; false after failing the call. `?side=a` or `b` takes
 * one side of a pair alone. */
bool ts_focus_take(struct ts_call *call, struct ts_focus *subject);
void ts_focus_release(struct ts_focus *subject);

/* A block of one side: start and count per axis. The view lives in the subject's arena. */
bool ts_focus_block(struct ts_focus *subject, unsigned side, const uint64_t *start, const uint64_t *count,
                    struct ts_view *block);

/* How bad the difference of two values is: NaN and infinities on one side above everything, then both NaN, then the
 * distance. */
double ts_badness_of(double a, double b);

#endif

#include "diagnose/evidence.h"

#include <stdlib.h>
#include <string.h>

static bool take_weight(struct ts_evidence *evidence, const struct ts_tensor *tensor, struct ts_weight *weight)
{
    unsigned rank = 0;
    uint64_t shape[2] = {0, 0};
    struct ts_view whole;
    for (unsigned i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] != 1) {
            if (rank == 2)
                return false;
            shape[rank++] = tensor->shape[i];
        }
    if (rank == 0 || shape[0] == 0 || (rank == 2 && shape[1] == 0) || ts_type_is_integer(tensor->type) ||
        ts_type_info(tensor->type)->components != 1 || !ts_view_of(tensor, &evidence->arena, &whole) ||
        !ts_view_reshape(&whole, shape, rank, &evidence->arena, &weight->view))
        return false;
    weight->rows = shape[0];
    weight->inputs = rank == 2 ? shape[1] : 0;
    weight->full = tensor->name;
    return true;
}

static enum ts_status take_bundle(struct ts_evidence *evidence, int side, struct ts_error *error)
{
    const struct ts_bundle *bundle = evidence->bundles[side];
    const char **names = calloc(bundle->count + 1, sizeof *names);
    bool good = names != NULL;
    for (size_t i = 0; i < bundle->count && good; i++)
        names[i] = bundle->tensors[i]->name;
    good = good && ts_names_make(names, bundle->count, 0, &evidence->arena, &evidence->names[side]);
    free(names);
    evidence->weights[side] = calloc(bundle->count + 1, sizeof **evidence->weights);
    if (!good || !evidence->weights[side])
        return ts_fail_memory(error);
    for (size_t i = 0; i < bundle->count; i++) {
        struct ts_weight *weight = &evidence->weights[side][evidence->counts[side]];
        weight->name = &evidence->names[side].list[i];
        evidence->counts[side] += take_weight(evidence, bundle->tensors[i], weight);
    }
    return TS_OK;
}

static enum ts_status fill(struct ts_evidence *evidence, const struct ts_source *config, struct ts_error *error)
{
    ts_arena_init(&evidence->arena, (size_t)1 << 30);
    ts_settings_clear(&evidence->config);
    for (int side = 1; side >= 0; side--)
        if (evidence->bundles[side]) {
            TS_TRY(take_bundle(evidence, side, error));
            ts_settings_of_bundle(&evidence->config, evidence->bundles[side]);
        }
    return config ? ts_settings_read(&evidence->config, config, error) : TS_OK;
}

enum ts_status ts_evidence_make(struct ts_bundle *weights, struct ts_bundle *weights_b, const struct ts_source *config,
                                struct ts_evidence **evidence, struct ts_error *error)
{
    struct ts_evidence *made = calloc(1, sizeof *made);
    enum ts_status status;
    *evidence = NULL;
    if (!made) {
        ts_bundle_free(weights);
        ts_bundle_free(weights_b);
        return ts_fail_memory(error);
    }
    made->bundles[TS_WEIGHTS_REFERENCE] = weights;
    made->bundles[TS_WEIGHTS_CANDIDATE] = weights_b;
    status = fill(made, config, error);
    if (status != TS_OK) {
        ts_evidence_free(made);
        return status;
    }
    *evidence = made;
    return TS_OK;
}

enum ts_status ts_evidence_open(const char *weights, const char *weights_b, const char *config,
                                const struct ts_open_options *options, struct ts_evidence **evidence,
                                struct ts_error *error)
{
    struct ts_bundle *bundles[2] = {NULL, NULL};
    struct ts_source *source = NULL;
    enum ts_status status = TS_OK;
    *evidence = NULL;
    if (weights)
        status = ts_open(weights, options, &bundles[0], error);
    if (status == TS_OK && weights_b)
        status = ts_open(weights_b, options, &bundles[1], error);
    if (status == TS_OK && config)
        status = ts_source_open(config, &source, error);
    if (status != TS_OK) {
        ts_bundle_free(bundles[0]);
        ts_bundle_free(bundles[1]);
        return status;
    }
    status = ts_evidence_make(bundles[0], bundles[1], source, evidence, error);
    if (status != TS_OK && source)
        ts_error_path(error, config);
    ts_source_release(source);
    return status;
}

void ts_evidence_free(struct ts_evidence *evidence)
{
    if (!evidence)
        return;
    for (int side = 0; side < 2; side++) {
        free(evidence->weights[side]);
        ts_bundle_free(evidence->bundles[side]);
    }
    ts_arena_release(&evidence->arena);
    free(evidence);
}

enum ts_experts ts_evidence_experts(const struct ts_evidence *evidence)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < evidence->counts[side]; i++)
            if (strstr(evidence->weights[side][i].full, "experts."))
                return TS_EXPERTS_SOME;
    if (ts_settings_size(&evidence->config, TS_SETTING_EXPERTS) > 1)
        return TS_EXPERTS_SOME;
    return evidence->config.known && !ts_settings_size(&evidence->config, TS_SETTING_EXPERTS_USED) ? TS_EXPERTS_NONE
                                                                                                   : TS_EXPERTS_UNTOLD;
}

static bool same_place(const struct ts_name *a, const struct ts_name *b)
{
    return a->layer == b->layer && a->expert == b->expert && strcmp(a->scope, b->scope) == 0;
}

const struct ts_weight *ts_evidence_same(const struct ts_evidence *evidence, const struct ts_weight *weight,
                                         enum ts_weights_of where)
{
    const struct ts_weight *alike = NULL;
    for (size_t i = 0; i < evidence->counts[where]; i++) {
        const struct ts_weight *other = &evidence->weights[where][i];
        if (strcmp(other->full, weight->full) == 0)
            return other;
        if (!alike && same_place(other->name, weight->name) && strcmp(other->name->kind, weight->name->kind) == 0)
            alike = other;
    }
    return alike;
}

const struct ts_weight *ts_evidence_bias(const struct ts_evidence *evidence, const struct ts_weight *weight,
                                         enum ts_weights_of where)
{
    const char *kind = weight->name->kind, *end = strrchr(kind, '.');
    size_t length = end && strcmp(end, ".weight") == 0 ? (size_t)(end - kind) : strlen(kind);
    for (size_t i = 0; i < evidence->counts[where]; i++) {
        const struct ts_weight *other = &evidence->weights[where][i];
        if (other->inputs == 0 && other->rows == weight->rows && same_place(other->name, weight->name) &&
            strncmp(other->name->kind, kind, length) == 0 && strcmp(other->name->kind + length, ".bias") == 0)
            return other;
    }
    return NULL;
}

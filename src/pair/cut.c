/* Owns the arithmetic of cuts: which pieces of a fused tensor, whole or in shards, make up one of its parts. */
#include "pair/cut.h"

#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"

/* More ranks than this share no tensor. */
#define MAX_RANKS 512

unsigned ts_cut_axis(const struct ts_cut_job *job)
{
    unsigned rank = job->shards[0].rank;
    return job->matrices && rank >= 2 ? rank - 2 : rank - 1;
}

static bool all_alike(const struct ts_cut_job *job)
{
    for (size_t i = 1; i < job->shard_count; i++)
        if (job->shards[i].rank != job->shards[0].rank ||
            memcmp(job->shards[i].shape, job->shards[0].shape, job->shards[0].rank * sizeof *job->shards[0].shape) != 0)
            return false;
    return true;
}

/* The shape of a shard once it is transposed or not. */
static void shard_shape(const struct ts_cut_job *job, bool transposed, uint64_t shape[TS_MAX_RANK])
{
    const struct ts_view *first = &job->shards[0];
    memcpy(shape, first->shape, first->rank * sizeof *shape);
    if (transposed && first->rank >= 2) {
        shape[first->rank - 2] = first->shape[first->rank - 1];
        shape[first->rank - 1] = first->shape[first->rank - 2];
    }
}

/* Entries of the cut axis that a part takes up, by its count: it may have other axes. False when they are no whole
 * number. elements: of the fused tensor in one entry of that axis. */
static bool size_of(const struct ts_cut_job *job, size_t part, uint64_t elements, uint64_t *size)
{
    *size = elements ? job->parts[part].count / elements : 0;
    return *size && job->parts[part].count % elements == 0;
}

/* Sizes of the shares of a rank, the first part's and that of each other one. */
static bool share_sizes(const struct ts_cut_job *job, const struct ts_cut *cut, uint64_t sizes[TS_CUT_PARTS])
{
    uint64_t shape[TS_MAX_RANK], elements = 1, total = 0;
    const unsigned axis = ts_cut_axis(job);
    shard_shape(job, cut->transposed, shape);
    for (unsigned i = 0; i < job->shards[0].rank; i++)
        elements *= i == axis ? 1 : shape[i];
    for (size_t part = 0; part < job->count; part++) {
        if (!size_of(job, part, elements, &sizes[part]))
            return false;
        sizes[part] *= part ? cut->copies : 1;
        if (sizes[part] % cut->of != 0)
            return false;
        sizes[part] /= cut->of;
        total += sizes[part];
    }
    return total == shape[axis];
}

/* The kinds of cuts, each as the matrix stands and transposed, on each axis that shards may be joined on; per rank,
 * each number of ranks and of copies. */
bool ts_cut_next(const struct ts_cut_job *job, size_t *number, struct ts_cut *cut)
{
    const size_t ways = TS_MAX_RANK + MAX_RANKS, all = (size_t)TS_CUT_KINDS * 2 * ways;
    uint64_t sizes[TS_CUT_PARTS], shape[TS_MAX_RANK];
    while (*number < all) {
        const size_t now = (*number)++, way = now % ways;
        *cut = (struct ts_cut){.kind = (enum ts_cut_kind)(now / (2 * ways)),
                               .transposed = now / ways % 2,
                               .join = ts_cut_axis(job),
                               .of = job->shard_count,
                               .copies = 1};
        if (job->shards[0].rank == 0 || (cut->transposed && (!job->matrices || job->shards[0].rank < 2))) {
            *number += ways - 1 - way;
            continue;
        }
        if (cut->kind == TS_CUT_BY_HEAD) {
            /* the first is what the model says */
            cut->groups = way ? way : ts_layout_heads(job->pairer, "attn_k");
            if (job->count <= 3 && cut->groups && (way == 0 || job->any_heads) && cut->groups <= MAX_RANKS &&
                job->parts[1].count % cut->groups == 0)
                return true;
            continue;
        }
        if (cut->kind != TS_CUT_PER_RANK) {
            cut->join = (unsigned)way;
            if (way >= job->shards[0].rank || (way && job->shard_count == 1)) {
                *number += ways - 1 - way;
                continue;
            }
            return true;
        }
        /* the number of ranks follows from the sizes, once it is known how many copies there are */
        cut->copies = way + 1;
        shard_shape(job, cut->transposed, shape);
        if (job->shard_count == 1 || !all_alike(job) || cut->copies > MAX_RANKS ||
            (cut->copies > 1 && job->count < 3)) {
            *number += ways - 1 - way;
            continue;
        }
        {
            uint64_t elements = 1, total = 0, size;
            bool fits = true;
            for (unsigned i = 0; i < job->shards[0].rank; i++)
                elements *= i == cut->join ? 1 : shape[i];
            for (size_t part = 0; part < job->count && fits; part++) {
                fits = size_of(job, part, elements, &size);
                total += size * (part ? cut->copies : 1);
            }
            if (!fits || shape[cut->join] == 0 || total / shape[cut->join] > MAX_RANKS) {
                *number += ways - 1 - way;
                continue;
            }
            cut->of = total / shape[cut->join];
            if (total % shape[cut->join] != 0 || cut->of < job->shard_count || cut->of % cut->copies != 0 ||
                !share_sizes(job, cut, sizes))
                continue;
            return true;
        }
    }
    return false;
}

/* The number of a shard among all ranks. Numbers may count from one; without gaps they do not matter. */
static uint64_t rank_of(const struct ts_cut_job *job, const struct ts_cut *cut, size_t shard)
{
    if (!job->ranks || cut->of == job->shard_count)
        return shard;
    return job->ranks[shard] - (job->ranks[job->shard_count - 1] >= cut->of);
}

/* Each share of the part once: of copies the first that is there. */
static bool cut_shares(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, struct ts_arena *arena,
                       struct ts_view *piece, struct ts_view *other)
{
    struct ts_view *from = ts_arena_array(arena, job->shard_count, sizeof *from);
    struct ts_view *against = ts_arena_array(arena, job->shard_count, sizeof *against);
    uint64_t sizes[TS_CUT_PARTS], begin = 0, copies = part ? cut->copies : 1, before = UINT64_MAX;
    const unsigned axis = cut->join;
    size_t count = 0;
    if (!from || !against || !share_sizes(job, cut, sizes))
        return false;
    for (size_t i = 0; i < part; i++)
        begin += sizes[i];
    for (size_t i = 0; i < job->shard_count; i++) {
        uint64_t share = rank_of(job, cut, i) / copies;
        struct ts_view shard = job->shards[i];
        if (share >= cut->of / copies)
            return false;
        if (share == before)
            continue;
        before = share;
        if ((cut->transposed && !ts_view_transpose(&shard, arena, &shard)) ||
            !ts_view_slice(&shard, axis, begin, sizes[part], 1, arena, &from[count]))
            return false;
        if (cut->of > job->shard_count &&
            (axis >= other->rank ||
             !ts_view_slice(&job->parts[part], axis, share * sizes[part], sizes[part], 1, arena, &against[count])))
            return false;
        count++;
    }
    if (!ts_view_join(TS_JOIN_CONCAT, axis, from, count, arena, piece))
        return false;
    return cut->of == job->shard_count || ts_view_join(TS_JOIN_CONCAT, axis, against, count, arena, other);
}

bool ts_cut_copy(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, size_t *number,
                 struct ts_arena *arena, struct ts_view *copy, struct ts_view *taken, uint64_t *start, uint64_t *size)
{
    uint64_t sizes[TS_CUT_PARTS], begin = 0;
    if (cut->kind != TS_CUT_PER_RANK || !part || cut->copies < 2 || !share_sizes(job, cut, sizes))
        return false;
    for (size_t i = 0; i < part; i++)
        begin += sizes[i];
    for (; *number + 1 < job->shard_count; ++*number) {
        const size_t here = *number + 1;
        const uint64_t share = rank_of(job, cut, here) / cut->copies;
        struct ts_view shard = job->shards[here], first;
        size_t from = here;
        while (from > 0 && rank_of(job, cut, from - 1) / cut->copies == share)
            from--;
        if (from == here)
            continue;
        first = job->shards[from];
        if ((cut->transposed &&
             (!ts_view_transpose(&shard, arena, &shard) || !ts_view_transpose(&first, arena, &first))) ||
            !ts_view_slice(&shard, cut->join, begin, sizes[part], 1, arena, copy) ||
            !ts_view_slice(&first, cut->join, begin, sizes[part], 1, arena, taken))
            return false;
        *start = share * sizes[part];
        *size = sizes[part];
        ++*number;
        return true;
    }
    return false;
}

/* Piece `part` of kv_b [heads * (k + v), rank]: for k [heads, rank, k], for v [heads, v, rank]. */
static bool cut_latent(const struct ts_cut_job *job, const struct ts_view *fused, size_t part, struct ts_arena *arena,
                       struct ts_view *out)
{
    const struct ts_view *k = &job->parts[0], *v = &job->parts[1];
    struct ts_view split, piece;
    uint64_t shape[3];
    if (job->count != 2 || k->rank != 3 || v->rank != 3 || fused->rank != 2 || k->shape[0] != v->shape[0] ||
        fused->shape[0] != k->shape[0] * (k->shape[2] + v->shape[1]) || k->shape[1] != fused->shape[1])
        return false;
    shape[0] = k->shape[0];
    shape[1] = k->shape[2] + v->shape[1];
    shape[2] = fused->shape[1];
    if (!ts_view_reshape(fused, shape, 3, arena, &split) ||
        !ts_view_slice(&split, 1, part ? k->shape[2] : 0, part ? v->shape[1] : k->shape[2], 1, arena, &piece))
        return false;
    if (part) {
        *out = piece;
        return true;
    }
    return ts_view_transpose(&piece, arena, out);
}

/* By head: as many groups as k has heads. By rank: as many as there were ranks. */
static bool cut_heads(const struct ts_cut_job *job, uint64_t groups, const struct ts_view *fused, unsigned axis,
                      const uint64_t sizes[TS_CUT_PARTS], size_t part, struct ts_arena *arena, struct ts_view *out)
{
    uint64_t start = 0, total = fused->shape[axis], *starts, *counts;
    if (job->count > 3 || groups == 0 || groups > TS_MAX_HEADS || total % groups != 0 || sizes[part] % groups != 0)
        return false;
    starts = ts_arena_array(arena, groups, sizeof *starts);
    counts = ts_arena_array(arena, groups, sizeof *counts);
    if (!starts || !counts)
        return false;
    for (size_t i = 0; i < part; i++)
        start += sizes[i] / groups;
    for (uint64_t i = 0; i < groups; i++) {
        starts[i] = i * (total / groups) + start;
        counts[i] = sizes[part] / groups;
    }
    return ts_layout_gather(fused, axis, starts, counts, 1, groups, arena, out);
}

/* By head of keys: q, k, v and z of each; the first part is all q, all k, all v, and the second all z. */
static bool cut_key_heads(const struct ts_cut_job *job, const struct ts_view *fused, unsigned axis,
                          const uint64_t sizes[TS_CUT_PARTS], size_t part, struct ts_arena *arena, struct ts_view *out)
{
    const struct ts_facts *facts = job->pairer->a.facts.key_heads ? &job->pairer->a.facts : &job->pairer->b.facts;
    const uint64_t groups = facts->key_heads;
    uint64_t value, key, *starts, *counts;
    if (job->count != 2 || groups == 0 || groups > TS_MAX_HEADS || sizes[0] <= sizes[1] || sizes[1] % groups != 0 ||
        (sizes[0] - sizes[1]) % (2 * groups) != 0)
        return false;
    value = sizes[1] / groups;
    key = (sizes[0] - sizes[1]) / (2 * groups);
    starts = ts_arena_array(arena, 3 * groups, sizeof *starts);
    counts = ts_arena_array(arena, 3 * groups, sizeof *counts);
    if (!starts || !counts)
        return false;
    for (uint64_t i = 0; i < 3 * groups; i++) {
        const uint64_t which = i / groups;
        starts[i] = i % groups * 2 * (key + value) + (part ? 2 * key + value : which * key);
        counts[i] = part || which == 2 ? value : key;
    }
    return ts_layout_gather(fused, axis, starts, counts, 1, part ? groups : 3 * groups, arena, out);
}

bool ts_cut_out(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, struct ts_arena *arena,
                struct ts_view *piece, struct ts_view *other)
{
    struct ts_view fused = job->shards[0];
    const unsigned axis = ts_cut_axis(job);
    uint64_t total = 0, before = 0, sizes[TS_CUT_PARTS], starts[1], counts[1];
    *other = job->parts[part];
    if (cut->kind == TS_CUT_PER_RANK)
        return cut_shares(job, cut, part, arena, piece, other);
    if (job->shard_count > 1) {
        struct ts_view *shards = ts_arena_array(arena, job->shard_count, sizeof *shards);
        for (size_t i = 0; shards && i < job->shard_count; i++) {
            shards[i] = job->shards[i];
            if (cut->transposed && !ts_view_transpose(&job->shards[i], arena, &shards[i]))
                return false;
        }
        if (!shards || !ts_view_join(TS_JOIN_CONCAT, cut->join, shards, job->shard_count, arena, &fused))
            return false;
    } else if (cut->transposed && !ts_view_transpose(&job->shards[0], arena, &fused)) {
        return false;
    }
    if (cut->kind == TS_CUT_TURNED_HALF)
        return !cut->transposed && cut_latent(job, &fused, part, arena, piece);
    for (size_t i = 0; i < job->count; i++) {
        if (fused.shape[axis] == 0 || !size_of(job, i, fused.count / fused.shape[axis], &sizes[i]))
            return false;
        before += i < part ? sizes[i] : 0;
        total += sizes[i];
    }
    if (total != fused.shape[axis])
        return false;
    if (cut->kind == TS_CUT_BY_HEAD)
        return cut_heads(job, cut->groups, &fused, axis, sizes, part, arena, piece);
    if (cut->kind == TS_CUT_BY_KEY_HEAD)
        return cut_key_heads(job, &fused, axis, sizes, part, arena, piece);
    starts[0] = cut->kind == TS_CUT_BLOCKS ? before : part;
    counts[0] = sizes[part];
    if (cut->kind == TS_CUT_ALTERNATING && total != sizes[part] * job->count)
        return false;
    return ts_layout_gather(&fused, axis, starts, counts, cut->kind == TS_CUT_BLOCKS ? 1 : job->count, 1, arena, piece);
}

/* What was done to the part: put together of shards, or cut to the ranks that are here. */
static void put_part(struct ts_buffer *out, const struct ts_cut_job *job, const struct ts_cut *cut, size_t part)
{
    const uint64_t copies = part ? cut->copies : 1;
    const bool lacking = cut->kind == TS_CUT_PER_RANK && cut->of > job->shard_count;
    uint64_t before = UINT64_MAX;
    if (!*job->part_words[part] && !lacking)
        return;
    ts_buffer_printf(out, "; %c: %s", job->fused_is_b ? 'A' : 'B', job->part_words[part]);
    if (!lacking)
        return;
    ts_buffer_printf(out, "%sshards", *job->part_words[part] ? ", " : "");
    for (size_t i = 0; i < job->shard_count; i++) {
        uint64_t share = rank_of(job, cut, i) / copies;
        if (share != before)
            ts_buffer_printf(out, " %" PRIu64, share);
        before = share;
    }
    ts_buffer_printf(out, " of %" PRIu64 " on axis %u", cut->of / copies, cut->join);
}

const char *ts_cut_words(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part)
{
    struct ts_arena *arena = &job->pairer->out->arena;
    const uint64_t copies = part ? cut->copies : 1;
    const char *name = job->kinds[part], *words;
    const int length = (int)(ts_kind_ending(name) - name);
    struct ts_buffer out;
    ts_buffer_init(&out, 65536);
    ts_buffer_printf(&out, "%c: %s", job->fused_is_b ? 'B' : 'A', cut->transposed ? "transposed, " : "");
    if (job->shard_count > 1 && cut->kind != TS_CUT_PER_RANK)
        ts_buffer_printf(&out, "join %zu shards on axis %u, ", job->shard_count, cut->join);
    if (cut->kind == TS_CUT_ALTERNATING)
        ts_buffer_printf(&out, "%.*s cut out, interleaved", length, name);
    else if (cut->kind == TS_CUT_PER_RANK && copies > 1)
        ts_buffer_printf(&out, "%.*s cut out of %zu of %zu shards, step %" PRIu64 ", joined on axis %u", length, name,
                         job->shard_count / (size_t)copies, job->shard_count, copies, cut->join);
    else if (cut->kind == TS_CUT_PER_RANK)
        ts_buffer_printf(&out, "%.*s cut out of %zu shards, joined on axis %u", length, name, job->shard_count,
                         cut->join);
    else if (cut->kind == TS_CUT_BY_HEAD && strncmp(name, "attn", 4) != 0) /* nothing else has heads */
        ts_buffer_printf(&out, "%.*s cut out rank by rank (%" PRIu64 " ranks)", length, name, cut->groups);
    else
        ts_buffer_printf(&out, "%.*s cut out%s", length, name, cut->kind == TS_CUT_BLOCKS ? "" : " head by head");
    put_part(&out, job, cut, part);
    words = out.failed ? NULL : ts_arena_copy(arena, out.data, out.size);
    ts_buffer_release(&out);
    return words;
}

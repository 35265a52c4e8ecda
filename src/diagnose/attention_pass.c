/* Owns how operands come from where they lie to the kernel, and contexts from it. */
#include "diagnose/attention_pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "diagnose/attention_kernel.h"
#include "diagnose/attention_long.h"

#define HELD ((size_t)64 << 20) /* bytes of keys and values */
#define LINE 64                 /* of the cache */

struct ts_pass_worker {
    float *read, *queries, *scores, *piece; /* what is read grows as it must */
    size_t read_room;
    double *numbers, *out, *beside;
    struct ts_attend_query each[TS_PASS_ROWS], all[TS_PASS_ROWS];
};
_Static_assert(TS_PASS_ROWS <= TS_ATTEND_BLOCK, "queries are turned where keys are");

bool ts_pass_reaches(const struct ts_chain *chain)
{
    return ts_long_reaches(chain) && !chain->heads_first && !chain->values;
}

static size_t rounded(size_t count, size_t to)
{
    return (count + to - 1) / to * to;
}

/* Room for numbers that are read by the vector: none of those then lies in two lines of the cache. */
static float *room_for(size_t count)
{
    return aligned_alloc(LINE, rounded(count * sizeof(float), LINE));
}

static bool open_worker(const struct ts_pass *pass, struct ts_pass_worker *worker)
{
    size_t size = pass->chain->size, each = pass->chain->heads / ts_chain_serving(pass->chain);
    worker->numbers = malloc(TS_ATTEND_BLOCK * size * sizeof *worker->numbers);
    worker->queries = room_for(TS_PASS_ROWS * size);
    worker->scores = room_for(TS_PASS_ROWS * TS_ATTEND_BLOCK);
    worker->piece = room_for(TS_PASS_ROWS * pass->padded);
    worker->out = malloc(pass->most * each * TS_PASS_ROWS * pass->padded * sizeof *worker->out);
    worker->beside = malloc(TS_PASS_ROWS * pass->padded * sizeof *worker->beside);
    return worker->numbers && worker->queries && worker->scores && worker->piece && worker->out && worker->beside;
}

static void draw_directions(struct ts_pass *pass)
{
    uint32_t dice = 1;
    for (size_t i = 0; i < ts_chain_serving(pass->chain) * pass->chain->size * TS_PASS_DIRECTIONS; i++) {
        dice = dice * 1664525u + 1013904223u;
        pass->directions[i] = (dice >> 31 ? 1 : -1) / sqrt(TS_PASS_DIRECTIONS);
    }
}

bool ts_pass_open(struct ts_pass *pass, struct ts_case *the_case, const struct ts_chain *chain, bool candidate,
                  bool projected)
{
    size_t tokens = (size_t)ts_scene_sequence(the_case->scene), serving = ts_chain_serving(chain), head;
    bool good;
    *pass = (struct ts_pass){.the_case = the_case,
                             .chain = chain,
                             .candidate = candidate,
                             .projected = projected && chain->size > TS_PASS_DIRECTIONS,
                             .tokens = tokens,
                             .room = rounded(tokens, TS_ATTEND_BLOCK)};
    pass->numbers = pass->projected ? TS_PASS_DIRECTIONS : chain->size;
    pass->padded = rounded(pass->numbers, TS_ATTEND_WHOLE);
    head = pass->room * (chain->size + pass->padded) * sizeof(float);
    pass->most = HELD / head < 1 ? 1 : HELD / head < serving ? HELD / head : serving;
    pass->heads = malloc(chain->heads * sizeof *pass->heads);
    pass->keys = room_for(pass->most * pass->room * chain->size);
    pass->values = room_for(pass->most * pass->room * pass->padded);
    if (pass->values)
        memset(pass->values, 0, pass->most * pass->room * pass->padded * sizeof *pass->values);
    if (pass->projected)
        pass->directions = malloc(serving * chain->size * TS_PASS_DIRECTIONS * sizeof *pass->directions);
    pass->pool = ts_pool_new(0);
    pass->workers = pass->pool ? calloc(ts_pool_width(pass->pool), sizeof *pass->workers) : NULL;
    good = pass->heads && pass->keys && pass->values && pass->workers && (pass->directions || !pass->projected);
    for (unsigned i = 0; good && i < ts_pool_width(pass->pool); i++)
        good = open_worker(pass, &pass->workers[i]);
    if (good && pass->projected)
        draw_directions(pass);
    return good;
}

void ts_pass_close(struct ts_pass *pass)
{
    for (unsigned i = 0; pass->workers && i < ts_pool_width(pass->pool); i++) {
        free(pass->workers[i].read);
        free(pass->workers[i].numbers);
        free(pass->workers[i].queries);
        free(pass->workers[i].scores);
        free(pass->workers[i].piece);
        free(pass->workers[i].out);
        free(pass->workers[i].beside);
    }
    free(pass->workers);
    free(pass->heads);
    free(pass->keys);
    free(pass->values);
    free(pass->directions);
    ts_pool_free(pass->pool);
}

/* Heads [from, from + heads) of an operand at some tokens in a row, behind what the worker has read before. */
static bool read_heads(const struct ts_pass *pass, struct ts_pass_worker *worker, const struct ts_operand *operand,
                       size_t token, size_t tokens, size_t from, size_t heads, size_t before)
{
    size_t width = heads * pass->chain->size, room = before + tokens * width;
    struct ts_error ignored;
    if (room > worker->read_room) {
        float *more = realloc(worker->read, room * sizeof *more);
        if (!more)
            return false;
        worker->read = more;
        worker->read_room = room;
    }
    return ts_scene_read(pass->the_case->scene, operand->actor->pair, pass->candidate, pass->first + token, tokens,
                         operand->offset + from * pass->chain->size, width, worker->read + before, &ignored) == TS_OK;
}

/* One head of an operand at some tokens in a row, where all tokens of a head stand one behind the other. */
static bool read_viewed(const struct ts_pass *pass, struct ts_pass_worker *worker, const struct ts_operand *operand,
                        size_t head, size_t token, size_t tokens, size_t before)
{
    size_t size = pass->chain->size, at = (head * pass->tokens + token) * size, count = tokens * size;
    for (size_t run; count; at += run, before += run, count -= run) {
        struct ts_operand part = *operand;
        part.offset += at % operand->width;
        run = operand->width - at % operand->width;
        run = run < count ? run : count;
        if (!read_heads(pass, worker, &part, at / operand->width, 1, 0, run / size, before))
            return false;
    }
    return true;
}

/* So many keys or values from one on of the heads that are held, each from the place that it meets. */
static bool read_served(const struct ts_pass *pass, struct ts_pass_worker *worker, enum ts_role role, size_t from,
                        size_t count, size_t served, size_t heads)
{
    const struct ts_chain *chain = pass->chain;
    size_t width = heads * chain->size;
    for (size_t at = 0, run; at < count; at += run) {
        size_t place = ts_chain_place(chain, role, from + at, pass->tokens);
        for (run = 1; at + run < count && ts_chain_place(chain, role, from + at + run, pass->tokens) == place + run;
             run++) {
        }
        if (ts_chain_split(chain, role) == TS_SPLIT_UNTURNED
                ? !read_viewed(pass, worker, ts_chain_operand(chain, role), served, place, run, at * width)
                : !read_heads(pass, worker, ts_chain_operand(chain, role), place, run, served, heads, at * width))
            return false;
    }
    for (size_t i = 0; i < count * width; i++)
        if (!isfinite(worker->read[i]))
            return false;
    return true;
}

/* How the heads that were read stand. */
static enum ts_split split_as_read(const struct ts_chain *chain, enum ts_role role)
{
    return ts_chain_split(chain, role) == TS_SPLIT_NUMBERS ? TS_SPLIT_NUMBERS : TS_SPLIT_HEADS;
}

/* Takes one of the heads that were read, and turns it as those of its places are. */
static void take_head(const struct ts_pass *pass, struct ts_pass_worker *worker, enum ts_role role, size_t from,
                      size_t count, size_t head, size_t heads)
{
    const struct ts_chain *chain = pass->chain;
    enum ts_split split = split_as_read(chain, role);
    size_t size = chain->size;
    for (size_t key = 0; key < count; key++)
        for (size_t i = 0; i < size; i++)
            worker->numbers[key * size + i] =
                (double)worker->read[ts_split_place(split, count, heads, size, key, head, i)];
    for (size_t at = 0, run; at < count && ts_chain_turns(chain, role); at += run) {
        size_t place = ts_chain_place(chain, role, from + at, pass->tokens);
        for (run = 1; at + run < count && ts_chain_place(chain, role, from + at + run, pass->tokens) == place + run;
             run++) {
        }
        ts_chain_turn(chain, TS_ROLE_KEY, chain->k_turns, (double)place + chain->k_from, run,
                      worker->numbers + at * size);
    }
}

static void keep_keys(const struct ts_pass *pass, struct ts_pass_worker *worker, size_t head, size_t from, size_t count)
{
    size_t size = pass->chain->size;
    float *to = pass->keys + (head * pass->room + from) * size;
    memset(worker->numbers + count * size, 0, (TS_ATTEND_BLOCK - count) * size * sizeof *worker->numbers);
    for (size_t panel = 0; panel < TS_ATTEND_BLOCK; panel += TS_ATTEND_PANEL)
        for (size_t i = 0; i < size; i++)
            for (size_t key = 0; key < TS_ATTEND_PANEL; key++)
                *to++ = (float)worker->numbers[(panel + key) * size + i];
}

static void keep_values(const struct ts_pass *pass, const struct ts_pass_worker *worker, size_t head, size_t from,
                        size_t count)
{
    size_t size = pass->chain->size;
    float *to = pass->values + (head * pass->room + from) * pass->padded;
    const double *value = worker->numbers, *directions;
    if (!pass->projected) {
        for (size_t key = 0; key < count; key++, to += pass->padded, value += size)
            for (size_t i = 0; i < size; i++)
                to[i] = (float)value[i];
        return;
    }
    directions = pass->directions + (pass->served + head) * size * TS_PASS_DIRECTIONS;
    for (size_t key = 0; key < count; key++, to += pass->padded, value += size) {
        double products[TS_PASS_DIRECTIONS] = {0};
        for (size_t i = 0; i < size; i++)
            for (size_t k = 0; k < TS_PASS_DIRECTIONS; k++)
                products[k] += value[i] * directions[i * TS_PASS_DIRECTIONS + k];
        for (size_t k = 0; k < TS_PASS_DIRECTIONS; k++)
            to[k] = (float)products[k];
    }
}

static bool hold_role(const struct ts_pass *pass, struct ts_pass_worker *worker, enum ts_role role, size_t from,
                      size_t count)
{
    enum ts_split split = ts_chain_split(pass->chain, role);
    bool together = split != TS_SPLIT_UNTURNED, all = split == TS_SPLIT_NUMBERS; /* each head is everywhere */
    size_t first = all ? 0 : pass->served, heads = all ? pass->chain->served : pass->held;
    for (size_t pick = 0; pick < pass->held; pick++)
        together = together && ts_chain_head(pass->chain, role, pass->served + pick) == pass->served + pick;
    together = together || all;
    if (together && !read_served(pass, worker, role, from, count, first, heads))
        return false;
    for (size_t pick = 0; pick < pass->held; pick++) {
        size_t head = ts_chain_head(pass->chain, role, pass->served + pick);
        if (!together && !read_served(pass, worker, role, from, count, head, 1))
            return false;
        take_head(pass, worker, role, from, count, together ? head - first : 0, together ? heads : 1);
        if (role == TS_ROLE_KEY)
            keep_keys(pass, worker, pick, from, count);
        else
            keep_values(pass, worker, pick, from, count);
    }
    return true;
}

static void hold_block(void *context, uint64_t index, unsigned number)
{
    struct ts_pass *pass = context;
    struct ts_pass_worker *worker = &pass->workers[number];
    size_t from = (size_t)index * TS_ATTEND_BLOCK, left = pass->tokens - from;
    size_t count = left < TS_ATTEND_BLOCK ? left : TS_ATTEND_BLOCK;
    if (atomic_load(&ts_cancelled) || atomic_load(&pass->failed) ||
        !hold_role(pass, worker, TS_ROLE_KEY, from, count) || !hold_role(pass, worker, TS_ROLE_VALUE, from, count))
        atomic_store(&pass->failed, true);
}

bool ts_pass_hold(struct ts_pass *pass, uint64_t first, size_t served)
{
    pass->first = first;
    pass->served = served;
    pass->held = ts_chain_serving(pass->chain) - served;
    pass->held = pass->held < pass->most ? pass->held : pass->most;
    pass->count = 0;
    for (size_t head = 0; head < pass->chain->heads; head++)
        if (ts_chain_served(pass->chain, head) - served < pass->held)
            pass->heads[pass->count++] = head;
    atomic_store(&pass->failed, false);
    ts_pool_run(pass->pool, pass->room / TS_ATTEND_BLOCK, hold_block, pass);
    return !atomic_load(&pass->failed);
}

/* Queries of heads [from, to) of the model, one alone where heads stand apart: those that stand in a row at once. */
static bool read_queries(const struct ts_pass *pass, struct ts_pass_worker *worker, size_t from, size_t to,
                         const size_t *tokens, size_t count)
{
    const struct ts_operand *operand = ts_chain_operand(pass->chain, TS_ROLE_QUERY);
    for (size_t at = 0, run; at < count; at += run) {
        size_t before = at * (to - from) * pass->chain->size;
        for (run = 1; at + run < count && tokens[at + run] == tokens[at] + run; run++) {
        }
        if (ts_chain_split(pass->chain, TS_ROLE_QUERY) == TS_SPLIT_UNTURNED
                ? !read_viewed(pass, worker, operand, from, tokens[at], run, before)
                : !read_heads(pass, worker, operand, tokens[at], run, from, to - from, before))
            return false;
    }
    return true;
}

/* One head of those that were read, turned. */
static void take_queries(const struct ts_pass *pass, struct ts_pass_worker *worker, size_t head, size_t heads,
                         const size_t *tokens, size_t count)
{
    const struct ts_chain *chain = pass->chain;
    enum ts_split split = split_as_read(chain, TS_ROLE_QUERY);
    size_t size = chain->size;
    for (size_t row = 0; row < count; row++)
        for (size_t i = 0; i < size; i++)
            worker->numbers[row * size + i] =
                (double)worker->read[ts_split_place(split, count, heads, size, row, head, i)];
    for (size_t at = 0, run; at < count && ts_chain_turns(chain, TS_ROLE_QUERY); at += run) {
        bool last = tokens[at] + 1 == pass->tokens; /* which may stand elsewhere */
        for (run = 1; at + run < count && tokens[at + run] == tokens[at] + run && tokens[at + run] + 1 < pass->tokens;
             run++) {
        }
        ts_chain_turn(chain, TS_ROLE_QUERY, chain->q_turns, (double)tokens[at] + (last ? chain->late : 0), run,
                      worker->numbers + at * size);
    }
}

static void run_head(const struct ts_pass *pass, struct ts_pass_worker *worker, size_t head, const size_t *tokens,
                     size_t count, double *out)
{
    const struct ts_chain *chain = pass->chain;
    size_t served = ts_chain_served(chain, head) - pass->served;
    struct ts_attend_head held = {.keys = pass->keys + served * pass->room * chain->size,
                                  .values = pass->values + served * pass->room * pass->padded,
                                  .size = chain->size,
                                  .padded = pass->padded,
                                  .cap = (float)chain->cap,
                                  .plain = chain->weighing == TS_WEIGH_SCORES};
    for (size_t row = 0; row < count; row++) {
        struct ts_attend_query *query = &worker->each[row];
        bool sees = ts_chain_sees(chain, tokens[row], pass->tokens, &query->first, &query->end);
        for (size_t i = row * chain->size; i < (row + 1) * chain->size; i++)
            worker->queries[i] = sees ? (float)(chain->scale * worker->numbers[i]) : 0;
    }
    TS_TABLE(ts_attend_kernels)
        ->attend(&held, worker->queries, worker->each, count, worker->scores, worker->piece, out);
    if (chain->masked_late) { /* what all keys weigh together */
        for (size_t row = 0; row < count; row++)
            worker->all[row] = (struct ts_attend_query){.first = 0, .end = pass->tokens};
        TS_TABLE(ts_attend_kernels)
            ->attend(&held, worker->queries, worker->all, count, worker->scores, worker->piece, worker->beside);
    }
    for (size_t row = 0; row < count; row++) {
        const struct ts_attend_query *query = &worker->each[row], *all = &worker->all[row];
        double factor = chain->masked_late ? exp((double)query->largest - (double)all->largest) / all->sum
                        : chain->weighing == TS_WEIGH_SOFTMAX   ? 1 / query->sum
                        : chain->weighing == TS_WEIGH_EXPONENTS ? exp((double)query->largest)
                                                                : 1;
        for (size_t i = row * pass->padded; i < (row + 1) * pass->padded && factor != 1; i++)
            out[i] *= factor;
    }
}

const double *ts_pass_run(struct ts_pass *pass, unsigned number, size_t from, size_t to, const size_t *tokens,
                          size_t count)
{
    struct ts_pass_worker *worker = &pass->workers[number];
    enum ts_split split = ts_chain_split(pass->chain, TS_ROLE_QUERY);
    bool everywhere = split == TS_SPLIT_NUMBERS, apart = split == TS_SPLIT_UNTURNED;
    size_t low = everywhere ? 0 : pass->heads[from], high = everywhere ? pass->chain->heads : pass->heads[to - 1] + 1;
    if (!apart && !read_queries(pass, worker, low, high, tokens, count))
        return NULL;
    for (size_t i = from; i < to; i++) {
        if (apart) {
            low = pass->heads[i];
            high = low + 1;
            if (!read_queries(pass, worker, low, high, tokens, count))
                return NULL;
        }
        take_queries(pass, worker, pass->heads[i] - low, high - low, tokens, count);
        run_head(pass, worker, pass->heads[i], tokens, count, worker->out + (i - from) * count * pass->padded);
    }
    return worker->out;
}

const double *ts_pass_directions(const struct ts_pass *pass, size_t head)
{
    return pass->directions + ts_chain_served(pass->chain, head) * pass->chain->size * TS_PASS_DIRECTIONS;
}

/* Rows of a case, in small groups: there are few of them. */
struct rows {
    struct ts_pass pass;
    const size_t *list; /* which ones; NULL: all */
    size_t *tokens, count, groups;
    double *out;
};
#define GROUP 24

static void run_group(void *context, uint64_t index, unsigned worker)
{
    struct rows *rows = context;
    struct ts_pass *pass = &rows->pass;
    const struct ts_chain *chain = pass->chain;
    size_t pick = (size_t)index / rows->groups, from = (size_t)index % rows->groups * GROUP;
    size_t count = rows->count - from < GROUP ? rows->count - from : GROUP, width = chain->heads * chain->size;
    const double *given =
        atomic_load(&pass->failed) ? NULL : ts_pass_run(pass, worker, pick, pick + 1, rows->tokens + from, count);
    if (!given)
        atomic_store(&pass->failed, true);
    for (size_t row = 0; row < count && given; row++) {
        size_t place = rows->list ? rows->list[from + row] : from + row;
        memcpy(rows->out + place * width + pass->heads[pick] * chain->size, given + row * pass->padded,
               chain->size * sizeof *given);
    }
}

static bool run_rows(struct rows *rows, struct ts_case *the_case)
{
    struct ts_pass *pass = &rows->pass;
    rows->groups = (rows->count + GROUP - 1) / GROUP;
    if (!(rows->tokens = malloc(rows->count * sizeof *rows->tokens)))
        return false;
    for (size_t row = 0; row < rows->count; row++) {
        rows->tokens[row] = (size_t)ts_case_row(the_case, rows->list ? rows->list[row] : row);
        if (rows->tokens[row] >= pass->tokens)
            return false;
    }
    for (size_t served = 0; served < ts_chain_serving(pass->chain); served += pass->held) {
        if (!ts_pass_hold(pass, ts_scene_first(the_case->scene), served))
            return false;
        ts_pool_run(pass->pool, pass->count * rows->groups, run_group, rows);
        if (atomic_load(&pass->failed))
            return false;
    }
    return true;
}

bool ts_pass_some(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, const size_t *list,
                  size_t count, double *out)
{
    struct rows rows = {.list = list, .count = count, .out = out};
    bool good = ts_pass_reaches(chain) && ts_pass_open(&rows.pass, the_case, chain, candidate, false) &&
                run_rows(&rows, the_case);
    ts_pass_close(&rows.pass);
    free(rows.tokens);
    return good;
}

bool ts_pass_rows(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, double *out)
{
    return ts_pass_some(the_case, chain, candidate, NULL, the_case->actor->rows, out) ||
           ts_long_rows(the_case, chain, candidate, out);
}

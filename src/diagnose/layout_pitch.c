/* Owns the wrong row pitch: rows that start at other places of the flat memory than they should, read so or written so.
 * Of a long sequence the case holds some tokens, and the memory is read where it lies. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/layout.h"

#define WINDOW         12 /* numbers by which a place is known again */
#define ROWS_LOOKED    96 /* of a long sequence: rows in which the second and the third are looked for */
#define LEAST_MOVED    3  /* rows that must be found again where something else stands between them */
#define LEAST_SHARE    0.2
#define LARGEST_LOOK   ((size_t)1 << 22)
#define UNNAMED        0.75 /* confidence where nobody knows what stands in the gaps */
#define NEARLY_NOTHING 0.05
#define WIDER_CHECK    "whether the kernel uses the row pitch (strides) of its input, or the view is made contiguous first"
#define WIDER_TEXT                                                                                                     \
    "rows are %" PRIu64 " elements apart but are read %zu apart: a view into a wider buffer is read as contiguous "    \
    "memory; between the rows is "
#define NEIGHBOURS 24 /* pairs before and after, whose rows may stand in the gaps */

/* Both sides as flat memory, rows one after the other. */
struct memory {
    struct ts_case *the_case;
    const struct ts_view *a, *b; /* NULL: everything is in the case */
    uint64_t total;
    size_t width, looked;     /* numbers at the beginning that are at hand */
    double *expected, *found; /* those */
};

static double at(const struct memory *memory, bool found, uint64_t i)
{
    struct ts_error ignored;
    double value = NAN;
    if (i < memory->looked)
        return found ? memory->found[i] : memory->expected[i];
    return memory->a && ts_view_read_f64(found ? memory->b : memory->a, i, 1, &value, &ignored) == TS_OK ? value
                                                                                                         : (double)NAN;
}

/* The row of the memory that a row of the case is: sequences of a batch stand one behind the other. */
static uint64_t row_of(const struct ts_case *the_case, size_t row)
{
    return ts_case_row(the_case, row) + (ts_case_direct(the_case) ? 0 : ts_scene_first(the_case->scene));
}

/* The flat index of element i of the case. */
static uint64_t index_of(const struct memory *memory, size_t i)
{
    return memory->a ? row_of(memory->the_case, i / memory->width) * memory->width + i % memory->width : i;
}

/* Of a batch a case holds one sequence; all tokens are rows of one memory, and a wrong pitch runs through it. */
static bool is_batch_in_rows(const struct ts_case *the_case)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    const struct ts_actor *actor = the_case->actor;
    struct ts_token_axis axis;
    return the_case->scene->batch > 1 && !ts_case_direct(the_case) && !ts_case_is_part(the_case) && !actor->apart &&
           actor->rows == the_case->scene->taken_count && pair->a.count == pair->b.count &&
           pair->a.count == the_case->scene->tokens * actor->width &&
           ts_scene_axis(the_case->scene, actor->pair, &axis) && axis.after == actor->width;
}

static bool open_memory(struct memory *memory, struct ts_case *the_case)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct ts_error ignored;
    *memory = (struct memory){.the_case = the_case, .width = the_case->actor->width, .total = the_case->total};
    memory->looked = the_case->total;
    if (!ts_case_complete(the_case)) {
        bool rows = ts_case_direct(the_case) && !ts_case_folded(the_case) && pair->a.count == pair->b.count &&
                    ts_type_info(pair->a.tensor->type)->components == 1;
        if (!rows && !ts_layout_reads_memory(the_case) && !is_batch_in_rows(the_case))
            return false;
        memory->a = &pair->a;
        memory->b = &pair->b;
        memory->total = pair->a.count;
        memory->looked = ROWS_LOOKED * memory->width;
        if (memory->looked > memory->total)
            memory->looked = (size_t)memory->total;
    }
    if (memory->looked > LARGEST_LOOK || !(memory->expected = malloc(2 * memory->looked * sizeof(double))))
        return false;
    memory->found = memory->expected + memory->looked;
    if (!memory->a) {
        memcpy(memory->expected, the_case->expected, memory->looked * sizeof(double));
        memcpy(memory->found, the_case->found, memory->looked * sizeof(double));
        return true;
    }
    if (ts_view_read_f64(memory->a, 0, memory->looked, memory->expected, &ignored) == TS_OK &&
        ts_view_read_f64(memory->b, 0, memory->looked, memory->found, &ignored) == TS_OK)
        return true;
    free(memory->expected);
    return false;
}

/* Where in `among` the numbers from `wanted` on stand; SIZE_MAX when nowhere. */
static size_t locate(const double *wanted, size_t window, const double *among, size_t total)
{
    double closest = 0;
    size_t place = SIZE_MAX;
    for (size_t i = 0; i < window; i++)
        closest += 0.1 * wanted[i] * wanted[i];
    for (size_t i = 0; i + window <= total; i++) {
        double left = 0;
        for (size_t k = 0; k < window && left < closest; k++)
            left += (wanted[k] - among[i + k]) * (wanted[k] - among[i + k]);
        if (left < closest) {
            closest = left;
            place = i;
        }
    }
    return place;
}

/* Where rows stand: read at those places of the reference, or written there and read as if they stood close. */
struct pitch {
    int64_t base, pitch;
    uint64_t total; /* numbers of the memory */
    bool written;
};

/* The place of the reference from which a run of numbers of the candidate is read, and how long that run is; false
 * where it is anything. */
static bool source_of(const struct pitch *how, uint64_t width, uint64_t own, uint64_t left, uint64_t *from,
                      uint64_t *run)
{
    int64_t at;
    if (!how->written) {
        at = how->base + (int64_t)(own / width) * how->pitch + (int64_t)(own % width);
        *run = width - own % width < left ? width - own % width : left;
        *from = (uint64_t)at;
        if (at < 0 || (uint64_t)at + *run > how->total) /* over the border number by number */
            *run = 1;
        return at >= 0 && (uint64_t)at < how->total;
    }
    at = (int64_t)own - how->base;
    *run = 1;
    if (at < 0 || (uint64_t)(at / how->pitch) >= how->total / width)
        return false;
    *from = (uint64_t)(at / how->pitch) * width + (uint64_t)(at % how->pitch);
    if ((uint64_t)(at % how->pitch) >= width)
        return false;
    *run = width - (uint64_t)(at % how->pitch) < left ? width - (uint64_t)(at % how->pitch) : left;
    return true;
}

static bool predict_pitch(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct pitch *how = formula->numbers;
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    size_t width = the_case->actor->width;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        uint64_t own = row_of(the_case, row) * width, from = 0, run;
        for (size_t i = 0; i < width; i += (size_t)run) {
            struct ts_error ignored;
            double *values = out + row * width + i;
            if (!source_of(how, width, own + i, width - i, &from, &run)) {
                *values = the_case->found[row * width + i];
                continue;
            }
            if (ts_view_read_f64(view, from, (size_t)run, values, &ignored) != TS_OK)
                return false;
            if (!i)
                ts_view_forget(view, from, width);
        }
    }
    return true;
}

static void give_pitch(const struct memory *memory, int64_t base, int64_t pitch, bool written)
{
    struct pitch how = {base, pitch, memory->total, written};
    if (memory->a)
        ts_formula_next(memory->the_case,
                        &(struct ts_formula){.predict = predict_pitch, .numbers = &how, .size = sizeof how});
}

/* Slots of a tally: what reading rows so leaves of those that are found again, and what is wrong with them. */
enum { LEFT, WRONG };

static bool count_reached(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                          struct ts_tally *tally)
{
    const struct pitch *how = formula->numbers;
    size_t width = the_case->actor->width;
    double *values = ts_case_scratch(the_case);
    (void)out;
    if (!values || !predict_pitch(the_case, formula, values))
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        uint64_t own = row_of(the_case, i / width) * width + i % width, from, run;
        double found = the_case->found[i], off = found - the_case->expected[i];
        if (!isfinite(found) || !isfinite(values[i]) || !isfinite(off) || !source_of(how, width, own, 1, &from, &run))
            continue;
        tally->sums[LEFT] += (found - values[i]) * (found - values[i]);
        tally->sums[WRONG] += fmin(off * off, found * found);
    }
    return true;
}

static const char *tell_reached(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    (void)the_case;
    (void)formula;
    if (tally->sums[WRONG] > 0)
        *share *= fmax(0, 1 - tally->sums[LEFT] / tally->sums[WRONG]);
    return NULL;
}

/* Rows that start at base + row * pitch of the flat array: an offset, or a wrong row pitch. */
static void read_pitches(const struct memory *memory, double *prediction)
{
    struct ts_case *the_case = memory->the_case;
    size_t width = memory->width, window = width < WINDOW ? width : WINDOW, missing = 0, first, second;
    int64_t base, pitch = (int64_t)width;
    bool one_row = the_case->actor->rows == 1 && width >= 24;
    if ((the_case->actor->rows < 3 && !one_row) || width < 4)
        return;
    first = locate(memory->found + (one_row ? width / 2 : width), window, memory->expected, memory->looked);
    second = one_row ? 0 : locate(memory->found + 2 * width, window, memory->expected, memory->looked);
    if (first == SIZE_MAX || second == SIZE_MAX)
        return;
    if (!one_row)
        pitch = (int64_t)second - (int64_t)first;
    base = (int64_t)first - (one_row ? (int64_t)(width / 2) : pitch);
    if (pitch == (int64_t)width && base % (int64_t)width == 0) /* nothing, or whole rows: matched elsewhere */
        return;
    for (size_t i = 0; i < the_case->total; i++) {
        uint64_t own = index_of(memory, i);
        int64_t from = base + (int64_t)(own / width) * pitch + (int64_t)(own % width);
        bool inside = from >= 0 && (uint64_t)from < memory->total;
        prediction[i] = inside ? at(memory, false, (uint64_t)from) : the_case->found[i];
        missing += !inside;
    }
    give_pitch(memory, base, pitch, false);
    if (pitch == (int64_t)width)
        ts_propose(the_case, "shifted", prediction, 1 + missing,
                   "a pointer or a slice that starts at the wrong element",
                   "everything is shifted by %" PRId64 " element%s", -base, base == 1 || base == -1 ? "" : "s");
    else
        ts_propose(the_case, "permuted", prediction, 2 + missing,
                   "the row pitch (leading dimension, padding): a strided view read as if it were contiguous",
                   "rows are %" PRId64 " elements apart instead of %zu", pitch, width);
}

/* The tensor of the candidate whose first rows stand behind the first rows of this one; NULL when none does. */
static const char *in_the_gaps(const struct memory *memory, uint64_t base, uint64_t pitch)
{
    struct ts_case *the_case = memory->the_case;
    const struct ts_pair *pairs = the_case->scene ? the_case->scene->pairs : NULL;
    size_t own = the_case->actor->pair, gap = (size_t)(pitch - memory->width), count = ts_case_pair_count(the_case);
    size_t window = gap < WINDOW ? gap : WINDOW;
    for (size_t i = own > NEIGHBOURS ? own - NEIGHBOURS : 0; pairs && i < count && i <= own + NEIGHBOURS; i++) {
        const struct ts_view *view = &pairs[i].b;
        uint64_t width = view->rank ? view->shape[view->rank - 1] : 0;
        double values[WINDOW], left = 0, size = 0;
        struct ts_error ignored;
        if (i == own || !width || view->count < 2 * width || width < window || width > gap ||
            ts_type_info(view->tensor->type)->components != 1)
            continue;
        for (uint64_t row = 0; row < 2; row++) {
            if (ts_view_read_f64(view, row * width, window, values, &ignored) != TS_OK)
                return NULL;
            for (size_t k = 0; k < window; k++) {
                double there = at(memory, true, base + row * pitch + memory->width + k);
                left += (values[k] - there) * (values[k] - there);
                size += values[k] * values[k];
            }
        }
        if (size > 0 && left < 1e-3 * size)
            return pairs[i].name;
    }
    return NULL;
}

/* Rows that stand so many elements apart in a buffer that is read as if they stood close. What lies between them was
 * never written, or belongs to another tensor: then a view into a wider buffer is read as if it were contiguous. */
static void written_pitches(const struct memory *memory, double *prediction)
{
    struct ts_case *the_case = memory->the_case;
    size_t width = memory->width, window = width < WINDOW ? width : WINDOW, first, second, foreign = 0, reached = 0;
    uint64_t rows = memory->total / width, base, pitch;
    double left = 0, wrong = 0;
    const char *other;
    if (the_case->actor->rows < 4 || width < 4)
        return;
    first = locate(memory->expected + width, window, memory->found, memory->looked);
    second = locate(memory->expected + 2 * width, window, memory->found, memory->looked);
    if (first == SIZE_MAX || second == SIZE_MAX || second <= first || (pitch = second - first) <= width ||
        first < pitch)
        return;
    base = first - pitch;
    for (size_t i = 0; i < the_case->total; i++) {
        uint64_t own = index_of(memory, i), row = own >= base ? (own - base) / pitch : rows;
        bool inside = row < rows && (own - base) % pitch < width;
        prediction[i] = inside ? at(memory, false, row * width + (own - base) % pitch) : the_case->found[i];
        foreign += !inside && the_case->found[i] != 0;
        if (inside && isfinite(the_case->found[i]) && isfinite(prediction[i])) {
            double off = the_case->found[i] - the_case->expected[i];
            left += (the_case->found[i] - prediction[i]) * (the_case->found[i] - prediction[i]);
            wrong += fmin(off * off, the_case->found[i] * the_case->found[i]);
            reached++;
        }
    }
    if (!foreign) {
        give_pitch(memory, (int64_t)base, (int64_t)pitch, true);
        ts_propose(the_case, "permuted", prediction, 2,
                   "the row pitch (leading dimension, padding) used to write and to read the buffer",
                   "rows were written %" PRIu64
                   " elements apart but are read %zu apart: the gaps and the end of the buffer were never written",
                   pitch, width);
        return;
    }
    left -= the_case->noise * (double)reached / (double)the_case->total;
    if (!(wrong > 0) || reached < LEAST_MOVED * width || (double)reached < LEAST_SHARE * (double)the_case->total)
        return;
    other = in_the_gaps(memory, base, pitch);
    if (memory->a && (other || left < NEARLY_NOTHING * wrong))
        ts_formula_next(the_case, &(struct ts_formula){
                                      .count = count_reached,
                                      .tell = tell_reached,
                                      .numbers = &(struct pitch){(int64_t)base, (int64_t)pitch, memory->total, true},
                                      .size = sizeof(struct pitch)});
    if (other)
        ts_propose_measured(the_case, "permuted", fmax(left, 0) / wrong, 2, WIDER_CHECK, WIDER_TEXT "%s", pitch, width,
                            other);
    else if (left < NEARLY_NOTHING * wrong) /* what stands in the gaps stays unexplained */
        ts_propose_plain(the_case, "permuted", UNNAMED, WIDER_CHECK, WIDER_TEXT "something else", pitch, width);
}

void ts_layout_pitches(struct ts_case *the_case, double *prediction)
{
    struct memory memory;
    if (!open_memory(&memory, the_case))
        return;
    read_pitches(&memory, prediction);
    written_pitches(&memory, prediction);
    if (memory.a && ts_case_wants(the_case, "")) { /* not for every batch of a proof, which reads it again */
        ts_view_forget(memory.a, 0, memory.total);
        ts_view_forget(memory.b, 0, memory.total);
    }
    free(memory.expected);
}

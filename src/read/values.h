/* Values: numbers parsed from text on their way into the spool, and the shape that nested brackets give them.
 *
 * Numbers are added one by one. Where the text declares no type they are i64 as long as all are written as integers,
 * bool as long as all are true or false, and f64 from the first other number on. Where it declares one they are stored
 * in it, correctly rounded, unless one does not fit an integer type: then all become f64 and `misfit` says so.
 *
 *     ts_values_begin(&values, declared type or TS_VALUES_INFER);
 *     size_t used = ts_number_scan(text, size, values.single, &number);
 *     TS_TRY(ts_values_add(&values, &number, error));
 *     TS_TRY(ts_values_tensor(&values, bundle, name, shape, rank, &tensor, error));
 *
 * One struct serves many lists, one after the other. */
#ifndef TS_READ_VALUES_H
#define TS_READ_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "io/source.h"
#include "io/spool.h"
#include "read/number_scan.h"
#include "tensor/bundle.h"
#include "tensor/tensor.h"

#define TS_VALUES_INFER TS_TYPE_COUNT
#define TS_VALUES_HELD  8192

struct ts_values {
    struct ts_spool *spool;
    const char *path;             /* of the sources that come out */
    const struct ts_source *text; /* what is being read, so that pages can be forgotten; may be NULL */
    uint64_t shared;              /* small lists share sources of this many bytes; 0: each has its own */
    /* of the current list */
    enum ts_type type; /* as stored so far; TS_VALUES_INFER: nothing has come yet */
    bool single;       /* hand numbers over rounded to float */
    bool misfit;       /* a number did not fit the declared integer type */
    bool declared;
    bool halves;     /* added by ts_values_add_half, all of them */
    unsigned digits; /* most significant digits that a number was written with; 0 for integers */
    uint64_t count;
    struct { /* how the first numbers were written, to tell what printing lost */
        unsigned seen;
        unsigned most_digits, with_most; /* and how many numbers have them */
        int finest_place;                /* of the last digit: -4 for 0.1234 */
        unsigned with_finest;
        double squares;
    } print;
    /* private */
    uint64_t passed; /* bytes of the text that have been forgotten */
    size_t held;     /* not yet in the spool */
    bool writing;
    struct ts_source *share;
    uint8_t *share_data;
    uint64_t share_used;
    union {
        double floats[TS_VALUES_HELD];
        int64_t integers[TS_VALUES_HELD];
    } hold;
};

struct ts_values *ts_values_new(struct ts_spool *spool, const char *path); /* NULL without memory */
void ts_values_free(struct ts_values *values);                             /* NULL is fine */

/* declared: TS_VALUES_INFER where the text does not say. Types under a byte, complex and 8-bit floats count as such. */
void ts_values_begin(struct ts_values *values, enum ts_type declared);
enum ts_status ts_values_add(struct ts_values *values, const struct ts_number *number, struct ts_error *error);
/* Fails when numbers have come before in a list without a declared type. */
enum ts_status ts_values_add_bool(struct ts_values *values, bool value, struct ts_error *error);
/* The bit pattern of an f16. A list holds either these alone (it then begins with TS_F16) or none. */
enum ts_status ts_values_add_half(struct ts_values *values, uint16_t bits, struct ts_error *error);
/* Adds a tensor of all values to the bundle, flat or (when shape is not NULL and its product is the count) shaped.
 * Notes the digits as an attribute. */
enum ts_status ts_values_tensor(struct ts_values *values, struct ts_bundle *bundle, const char *name,
                                const uint64_t *shape, unsigned rank, struct ts_tensor **tensor,
                                struct ts_error *error);
/* Says that the text has been read up to `at`. Every 16 MiB its pages are given back. */
static inline void ts_values_passed(struct ts_values *values, const char *at)
{
    const uint64_t step = (uint64_t)16 << 20;
    if (values->text && (uint64_t)((const uint8_t *)at - values->text->data) - values->passed >= step) {
        ts_source_forget(values->text, values->passed, step);
        values->passed += step;
    }
}
/* Forgets the current list. */
void ts_values_cancel(struct ts_values *values);

/* The product of a shape; false when it does not fit. An axis of 0 makes it 0 whatever the others are. */
bool ts_shape_product(const uint64_t *shape, unsigned rank, uint64_t *product);

/* The text of a source, behind the byte order mark that UTF-8 may begin with. */
const char *ts_source_text(const struct ts_source *source, size_t *size);

/* Nest: what brackets say about the shape. */
struct ts_nest {
    unsigned depth;                   /* brackets open */
    unsigned rank;                    /* depth at which numbers stand; valid when leaves */
    bool leaves;                      /* rank is known */
    bool ragged;                      /* lists of one level differ in length, or numbers stand beside lists */
    bool deep;                        /* more than TS_MAX_RANK levels */
    uint64_t counts[TS_MAX_RANK + 1]; /* entries so far of the open list of each depth */
    uint64_t shape[TS_MAX_RANK];
    bool known[TS_MAX_RANK];
};

void ts_nest_open(struct ts_nest *nest);
void ts_nest_value(struct ts_nest *nest);
void ts_nest_close(struct ts_nest *nest);

#endif

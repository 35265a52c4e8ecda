/* Owns how rows and what they meet come into the tiles. */
#include "compare/operation_across.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/matrix.h"

#define PANEL 64 /* keys that stand side by side */

static size_t served_by(const struct ts_across *across, size_t head)
{
    return across->serves ? across->serves[head] : head / (across->heads / (across->width / across->size));
}

static float *as_floats(const double *values, size_t count)
{
    float *out = malloc((count + 1) * sizeof *out);
    for (size_t i = 0; i < count && out; i++)
        out[i] = (float)values[i];
    return out;
}

/* One head of some keys, [size, PANEL], with zeros behind them. */
static void turn_keys(const struct ts_across *across, size_t served, size_t from, size_t count, float *out)
{
    const double *keys = across->all + from * across->width + served * across->size;
    if (count < PANEL)
        memset(out, 0, PANEL * across->size * sizeof *out);
    for (size_t key = 0; key < count; key++)
        for (size_t i = 0; i < across->size; i++)
            out[i * PANEL + key] = (float)keys[key * across->width + i];
}

bool ts_across_scores(const struct ts_across *across, double *out)
{
    size_t rows = across->row_count, heads = across->heads, keys = across->keys, size = across->size;
    float *queries = as_floats(across->rows, rows * heads * size), *panel = malloc(PANEL * size * sizeof *panel);
    float *piece = malloc(rows * PANEL * sizeof *piece);
    double *sums = malloc(rows * PANEL * sizeof *sums);
    bool good = queries && panel && piece && sums;
    for (size_t served = 0; served * size < across->width && good; served++)
        for (size_t from = 0; from < keys; from += PANEL) {
            size_t count = keys - from < PANEL ? keys - from : PANEL;
            bool turned = false;
            for (size_t head = 0; head < heads; head++) {
                if (served_by(across, head) != served)
                    continue;
                if (!turned)
                    turn_keys(across, served, from, count, panel);
                turned = true;
                memset(sums, 0, rows * PANEL * sizeof *sums);
                ts_matrix_add(queries + head * size, heads * size, rows, panel, PANEL, PANEL, size, piece, sums, PANEL);
                for (size_t row = 0; row < rows; row++)
                    memcpy(out + (row * heads + head) * keys + from, sums + row * PANEL, count * sizeof *out);
            }
        }
    free(queries);
    free(panel);
    free(piece);
    free(sums);
    return good;
}

/* One head of some values, [count, padded]; false when one is no number. */
static bool take_values(const struct ts_across *across, size_t served, size_t from, size_t count, size_t padded,
                        float *out)
{
    const double *values = across->all + from * across->width + served * across->size;
    double sum = 0;
    for (size_t key = 0; key < count; key++)
        for (size_t i = 0; i < padded; i++) {
            out[key * padded + i] = i < across->size ? (float)values[key * across->width + i] : 0;
            sum += 0 * (double)out[key * padded + i];
        }
    return isfinite(sum);
}

bool ts_across_context(const struct ts_across *across, double *out)
{
    size_t rows = across->row_count, heads = across->heads, keys = across->keys, size = across->size;
    size_t padded = (size + TS_MATRIX_WHOLE - 1) / TS_MATRIX_WHOLE * TS_MATRIX_WHOLE;
    float *weights = as_floats(across->rows, rows * heads * keys);
    float *values = malloc(TS_MATRIX_BLOCK * padded * sizeof *values), *piece = malloc(rows * padded * sizeof *piece);
    double *sums = calloc(rows * heads * padded, sizeof *sums);
    bool good = weights && values && piece && sums;
    for (size_t served = 0; served * size < across->width && good; served++)
        for (size_t from = 0; from < keys && good; from += TS_MATRIX_BLOCK) {
            size_t count = keys - from < TS_MATRIX_BLOCK ? keys - from : TS_MATRIX_BLOCK;
            bool taken = false;
            for (size_t head = 0; head < heads && good; head++) {
                if (served_by(across, head) != served)
                    continue;
                good = taken || take_values(across, served, from, count, padded, values);
                taken = true;
                ts_matrix_add(weights + head * keys + from, heads * keys, rows, values, padded, padded, count, piece,
                              sums + head * padded, heads * padded);
            }
        }
    for (size_t i = 0; i < rows * heads && good; i++)
        memcpy(out + i * size, sums + i * padded, size * sizeof *out);
    free(weights);
    free(values);
    free(piece);
    free(sums);
    return good;
}

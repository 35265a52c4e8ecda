#include "diagnose/product.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/matrix.h"
#include "diagnose/families.h"

/* The first look at a weight: so many numbers of the product. */
#define LOOK_ROWS     4
#define LOOK_CHANNELS 8
/* The proof of the one that fits best. */
#define PROOF_ROWS     12
#define PROOF_CHANNELS 48
/* A product fits when this share of the reference's size is left: int4 weights leave a tenth, a wrong weight all. */
#define FITS      0.2
#define FITS_WELL 0.02
/* Elements of weights that are read in the search. */
#define READ_MOST ((uint64_t)1 << 28)
#define INPUTS    24 /* newest tensors that are tried as the input */
#define PANEL     64 /* channels that are multiplied together */

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t start = 0; start < count; start += 256) {
        size_t end = start + 256 < count ? start + 256 : count, i = start;
        float lanes[16] = {0}, part = 0;
        for (; i + 16 <= end; i += 16)
            for (size_t k = 0; k < 16; k++)
                lanes[k] += a[i + k] * b[i + k];
        for (size_t k = 0; k < 16; k++)
            part += lanes[k];
        for (; i < end; i++)
            part += a[i] * b[i];
        sum += (double)part;
    }
    return sum;
}

static uint64_t matrix_row(const struct ts_product *product, size_t channel)
{
    size_t half = product->head / 2, within = product->head ? channel % product->head : 0, start = channel - within;
    if (product->turn == TS_ROWS_INTERLEAVED)
        within = 2 * (within % half) + within / half;
    else if (product->turn == TS_ROWS_HALVES)
        within = within % 2 * half + within / 2;
    return product->first + start + within;
}

/* The rows of the input in the product's order; NULL without memory. To be freed where order is set. */
static float *ordered_input(const struct ts_product *product, bool candidate)
{
    const struct ts_actor *input = product->input;
    float *from = candidate ? input->b : input->a, *out;
    if (!product->order)
        return from;
    out = malloc(input->rows * input->width * sizeof *out);
    for (size_t i = 0; out && i < input->rows * input->width; i++)
        out[i] = from[i / input->width * input->width + product->order[i % input->width]];
    return out;
}

static bool bias_at(const struct ts_product *product, uint64_t row, double *bias)
{
    struct ts_error ignored;
    *bias = 0;
    if (!product->bias)
        return true;
    if (ts_view_read_f64(&product->bias->view, row, 1, bias, &ignored) != TS_OK)
        return false;
    *bias *= product->bias_times;
    return true;
}

static bool values_of(const struct ts_product *product, bool candidate, const size_t *rows, size_t row_count,
                      const size_t *channels, size_t channel_count, double *out)
{
    size_t inputs = product->input->width;
    float *line = malloc(inputs * sizeof *line), *x = line ? ordered_input(product, candidate) : NULL;
    bool good = x != NULL;
    for (size_t c = 0; c < channel_count && good; c++) {
        uint64_t row = matrix_row(product, channels ? channels[c] : c);
        struct ts_error ignored;
        double bias = 0;
        good = ts_view_read_f32(&product->matrix, row * inputs, inputs, line, &ignored) == TS_OK &&
               bias_at(product, row, &bias);
        for (size_t t = 0; t < row_count && good; t++)
            out[t * channel_count + c] = dot(line, x + (rows ? rows[t] : t) * inputs, inputs) + bias;
    }
    if (product->order)
        free(x);
    free(line);
    return good;
}

bool ts_product_values(const struct ts_product *product, bool candidate, const struct ts_sample *sample, double *out)
{
    return values_of(product, candidate, sample->rows, sample->row_count, sample->channels, sample->channel_count, out);
}

/* Rows of the matrix that make channels [from, from + count), one behind the other. */
static bool read_channels(const struct ts_product *product, size_t from, size_t count, float *out)
{
    size_t inputs = product->input->width;
    struct ts_error ignored;
    if (product->turn == TS_ROWS_PLAIN)
        return ts_view_read_f32(&product->matrix, matrix_row(product, from) * inputs, count * inputs, out, &ignored) ==
               TS_OK;
    for (size_t c = 0; c < count; c++)
        if (ts_view_read_f32(&product->matrix, matrix_row(product, from + c) * inputs, inputs, out + c * inputs,
                             &ignored) != TS_OK)
            return false;
    return true;
}

/* Channels side by side, [inputs, PANEL], with zeros behind them. */
static void turn_channels(const float *channels, size_t count, size_t inputs, float *out)
{
    for (size_t from = 0; from < inputs; from += TS_MATRIX_WHOLE) {
        size_t end = from + TS_MATRIX_WHOLE < inputs ? from + TS_MATRIX_WHOLE : inputs;
        for (size_t c = 0; c < PANEL; c++)
            for (size_t i = from; i < end; i++)
                out[i * PANEL + c] = c < count ? channels[c * inputs + i] : 0;
    }
}

bool ts_product_replay(const struct ts_product *product, const struct ts_actor *actor, double *out)
{
    size_t inputs = product->input->width, rows = actor->rows, width = actor->width;
    float *x = ordered_input(product, true), *channels = malloc(2 * PANEL * inputs * sizeof *channels);
    float *panel = channels + PANEL * inputs, *piece = malloc(rows * PANEL * sizeof *piece);
    double *sums = malloc(rows * PANEL * sizeof *sums), bias[PANEL];
    bool good = x && channels && piece && sums;
    for (size_t from = 0; from < width && good; from += PANEL) {
        size_t count = width - from < PANEL ? width - from : PANEL;
        good = read_channels(product, from, count, channels);
        for (size_t c = 0; c < count && good; c++)
            good = bias_at(product, matrix_row(product, from + c), &bias[c]);
        if (!good)
            break;
        turn_channels(channels, count, inputs, panel);
        memset(sums, 0, rows * PANEL * sizeof *sums);
        ts_matrix_add(x, inputs, rows, panel, PANEL, PANEL, inputs, piece, sums, PANEL);
        for (size_t row = 0; row < rows; row++)
            for (size_t c = 0; c < count; c++)
                out[row * width + from + c] = sums[row * PANEL + c] + bias[c];
    }
    if (product->order)
        free(x);
    free(channels);
    free(piece);
    free(sums);
    return good;
}

bool ts_product_directions(const struct ts_product *product, size_t width, const float *directions, size_t count,
                           float *weights, double *offsets)
{
    size_t inputs = product->input->width, padded = (inputs + TS_MATRIX_WHOLE - 1) / TS_MATRIX_WHOLE * TS_MATRIX_WHOLE;
    float *read = malloc(PANEL * inputs * sizeof *read), *channels = calloc(PANEL * padded, sizeof *channels);
    float *turned = malloc(count * PANEL * sizeof *turned), *piece = malloc(count * padded * sizeof *piece);
    double *sums = calloc(count * padded, sizeof *sums);
    bool good = read && channels && turned && piece && sums;
    memset(offsets, 0, count * sizeof *offsets);
    for (size_t from = 0; from < width && good; from += PANEL) {
        size_t together = width - from < PANEL ? width - from : PANEL;
        good = read_channels(product, from, together, read);
        for (size_t c = 0; c < together && good; c++) {
            double bias = 0;
            memcpy(channels + c * padded, read + c * inputs, inputs * sizeof *read);
            good = bias_at(product, matrix_row(product, from + c), &bias);
            for (size_t k = 0; k < count; k++) {
                turned[k * PANEL + c] = directions[(from + c) * count + k];
                offsets[k] += bias * (double)directions[(from + c) * count + k];
            }
        }
        if (good)
            ts_matrix_add(turned, PANEL, count, channels, padded, padded, together, piece, sums, padded);
    }
    for (size_t i = 0; i < inputs && good; i++)
        for (size_t k = 0; k < count; k++)
            weights[i * count + k] = (float)sums[k * padded + i];
    free(read);
    free(channels);
    free(turned);
    free(piece);
    free(sums);
    return good;
}

double ts_product_work(const struct ts_product *product, const struct ts_actor *actor)
{
    return (double)actor->rows * (double)actor->width * (double)product->input->width;
}

void ts_sample_take(const struct ts_case *the_case, size_t rows, size_t channels, struct ts_sample *sample)
{
    const struct ts_actor *actor = the_case->actor;
    size_t worst = 0;
    double largest = -1;
    rows = rows < TS_SAMPLE_ROWS ? rows : TS_SAMPLE_ROWS;
    channels = channels < TS_SAMPLE_CHANNELS ? channels : TS_SAMPLE_CHANNELS;
    rows = rows < actor->rows ? rows : actor->rows;
    channels = channels < actor->width ? channels : actor->width;
    sample->row_count = sample->channel_count = 0;
    for (size_t row = 0; row < actor->rows; row++) {
        double error = 0;
        for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++) {
            double d = (double)actor->b[i] - (double)actor->a[i];
            error += isfinite(d) ? d * d : 0;
        }
        if (error > largest) {
            largest = error;
            worst = row;
        }
    }
    for (size_t k = 0; k < rows; k++) {
        size_t row = k * actor->rows / rows;
        if (worst >= row && worst < (k + 1) * actor->rows / rows)
            row = worst;
        if (!ts_case_aside(the_case, row))
            sample->rows[sample->row_count++] = row;
    }
    for (size_t k = 0; k < channels; k++) { /* one of each stretch, at a place that is no multiple of anything */
        size_t from = k * actor->width / channels, length = (k + 1) * actor->width / channels - from;
        sample->channels[sample->channel_count++] = from + (k * 7 + 3) % (length ? length : 1);
    }
}

/* Share of the reference's size that the product leaves; the mean over tokens of each channel is taken off when
 * centred, and with it any bias. */
static double left_of(const struct ts_case *the_case, const struct ts_sample *sample, const double *values,
                      bool centred)
{
    const struct ts_actor *actor = the_case->actor;
    double left = 0, size = 0, count = (double)sample->row_count;
    for (size_t c = 0; c < sample->channel_count; c++) {
        double mean_y = 0, mean_p = 0;
        for (size_t t = 0; t < sample->row_count && centred; t++) {
            mean_y += (double)actor->a[sample->rows[t] * actor->width + sample->channels[c]] / count;
            mean_p += values[t * sample->channel_count + c] / count;
        }
        for (size_t t = 0; t < sample->row_count; t++) {
            double y = (double)actor->a[sample->rows[t] * actor->width + sample->channels[c]] - mean_y;
            double p = values[t * sample->channel_count + c] - mean_p;
            if (!isfinite(y))
                continue;
            left += (y - p) * (y - p);
            size += y * y;
        }
    }
    return size > 0 && isfinite(left) ? sqrt(left / size) : (double)INFINITY;
}

struct learning {
    struct ts_case *the_case;
    const struct ts_evidence *evidence;
    struct ts_sample look;
    const struct ts_actor *inputs[INPUTS];
    size_t input_count;
    double *values;
    struct ts_product best;
    uint64_t read;
};

/* Tries one matrix from one row on with every input that fits. */
static void look_at(struct learning *learning, struct ts_product *product)
{
    bool centred = learning->look.row_count > 1;
    for (size_t k = 0; k < learning->input_count; k++) {
        double left;
        if (learning->inputs[k]->width != product->matrix.shape[1])
            continue;
        product->input = learning->inputs[k];
        learning->read += learning->look.channel_count * product->matrix.shape[1];
        if (!ts_product_values(product, false, &learning->look, learning->values))
            return;
        left = left_of(learning->the_case, &learning->look, learning->values, centred);
        if (left < FITS && left < learning->best.residual) {
            learning->best = *product;
            learning->best.residual = left;
        }
    }
}

/* Parts of fused weights: queries, keys and values, gate and up. From the front and from the back. */
static void look_at_offsets(struct learning *learning, struct ts_product *product)
{
    uint64_t width = learning->the_case->actor->width, rows = product->matrix.shape[0];
    uint64_t spare = rows >= width ? rows - width : UINT64_MAX;
    uint64_t offsets[5] = {0, width, 2 * width, spare, spare != UINT64_MAX && spare >= width ? spare - width : 0};
    if (spare == UINT64_MAX)
        return;
    for (int o = 0; o < 5; o++) {
        bool seen = offsets[o] > spare;
        for (int k = 0; k < o; k++)
            seen = seen || offsets[k] == offsets[o];
        product->first = offsets[o];
        if (!seen)
            look_at(learning, product);
    }
}

/* Rows in the other rotary order, as llama.cpp's converter leaves them. */
static void look_at_turns(struct learning *learning, struct ts_product *product)
{
    size_t width = learning->the_case->actor->width,
           known = ts_settings_size(&learning->evidence->config, TS_SETTING_HEAD_DIM);
    size_t heads[] = {known, learning->the_case->actor->inner, 128, 64, 96, 80, 256, 32, 16};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (int turn = TS_ROWS_INTERLEAVED; turn <= TS_ROWS_HALVES; turn++) {
            if (heads[h] < 4 || heads[h] % 2 || width % heads[h] || product->matrix.shape[0] < width)
                continue;
            product->head = heads[h];
            product->turn = (enum ts_turn_of_rows)turn;
            product->first = 0;
            look_at(learning, product);
        }
    product->turn = TS_ROWS_PLAIN;
}

enum pass { PASS_PLAIN, PASS_TRANSPOSED, PASS_TURNED, PASSES };

static void look_through(struct learning *learning, enum pass pass, int64_t layer)
{
    static const unsigned swap[2] = {1, 0};
    const struct ts_evidence *evidence = learning->evidence;
    for (int near = 1; near >= 0; near--) { /* weights of the same layer first */
        for (size_t i = 0; i < evidence->counts[0] && learning->read < READ_MOST; i++) {
            const struct ts_weight *weight = &evidence->weights[0][i];
            struct ts_product product = {.weight = weight, .matrix = weight->view, .bias_times = 1};
            if (!weight->inputs || (weight->name->layer == layer) != near)
                continue;
            if (pass == PASS_TRANSPOSED) {
                product.transposed = true;
                if (!ts_view_permute(&weight->view, swap, &learning->the_case->diagnosis->arena, &product.matrix))
                    return;
            }
            if (pass == PASS_TURNED)
                look_at_turns(learning, &product);
            else
                look_at_offsets(learning, &product);
        }
        if (learning->best.residual < FITS_WELL)
            return;
    }
}

/* With its own bias or without, on more numbers. */
static bool prove(struct learning *learning)
{
    struct ts_product *product = &learning->best;
    const struct ts_weight *bias = ts_evidence_bias(learning->evidence, product->weight, TS_WEIGHTS_REFERENCE);
    struct ts_sample sample;
    double *values, best = (double)INFINITY;
    ts_sample_take(learning->the_case, PROOF_ROWS, PROOF_CHANNELS, &sample);
    values = malloc(sample.row_count * sample.channel_count * sizeof *values);
    for (int with = 0; with < 2 && values; with++) {
        struct ts_product tried = *product;
        double left;
        tried.bias = with ? bias : NULL;
        if ((with && !bias) || !ts_product_values(&tried, false, &sample, values))
            continue;
        left = left_of(learning->the_case, &sample, values, false);
        if (left < best) {
            best = left;
            *product = tried;
        }
    }
    free(values);
    product->residual = best;
    return best < FITS;
}

void ts_product_learn(struct ts_case *the_case, const struct ts_evidence *evidence, struct ts_product *product)
{
    const struct ts_actor *actor = the_case->actor;
    const char *own = ts_case_name(the_case, actor);
    struct learning learning = {.the_case = the_case, .evidence = evidence};
    struct ts_arena arena;
    struct ts_names names;
    int64_t layer = -1;
    memset(product, 0, sizeof *product);
    learning.best.residual = (double)INFINITY;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= actor->pair && learning.input_count < INPUTS; back++) {
        const struct ts_actor *input = ts_scene_actor(the_case->scene, actor->pair - back);
        if (input && input->rows == actor->rows)
            learning.inputs[learning.input_count++] = input;
    }
    ts_sample_take(the_case, LOOK_ROWS, LOOK_CHANNELS, &learning.look);
    learning.values = malloc((LOOK_ROWS * LOOK_CHANNELS + 1) * sizeof *learning.values);
    if (!learning.values || !learning.input_count || learning.look.row_count * learning.look.channel_count < 8) {
        free(learning.values);
        return;
    }
    ts_arena_init(&arena, 1 << 20);
    if (ts_names_make(&own, 1, 0, &arena, &names))
        layer = names.list[0].layer;
    ts_arena_release(&arena);
    for (int pass = 0; pass < PASSES && !learning.best.weight; pass++)
        look_through(&learning, (enum pass)pass, layer);
    if (learning.best.weight && prove(&learning))
        *product = learning.best;
    free(learning.values);
}

const char *ts_product_name(struct ts_case *the_case, const struct ts_product *product)
{
    uint64_t width = the_case->actor->width;
    if (product->matrix.shape[0] <= width)
        return product->weight->full;
    return ts_case_text(the_case, "%s %" PRIu64 " to %" PRIu64 " of %s", product->transposed ? "columns" : "rows",
                        product->first, product->first + width - 1, product->weight->full);
}

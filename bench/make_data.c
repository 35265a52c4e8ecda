/* Writes the files that the benchmark reads: bench_make_data KIND COUNT-OR-BYTES FILE [VARIATION]
 *
 *   names        a safetensors file of COUNT small tensors, named as a mixture of experts names them
 *   f32 bf16 f16 one tensor of about BYTES bytes with numbers such as weights are
 *   q4_k         a GGUF file: one tensor of about BYTES bytes of Q4_K blocks, quantized from numbers as weights are
 *   q4_k.bf16    those numbers in bf16, which is what was quantized; BYTES are those of q4_k
 *   sparse       one f32 tensor of about BYTES bytes, all of it a hole in the file
 *
 * A variation is the other file of a pair: the same numbers (`equal`), another last bit of about two in three (`near`;
 * of f32, of the last ten bits), a hundredth of the usual size added to each (`noise`), or noise in every other
 * megabyte (`half`). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/number.h"
#include "measure.h"
#include "tensor/decode_blocks.h"

#define TILE ((size_t)64 << 20) /* what is written over and over: larger than caches */

enum variation { PLAIN, EQUAL, NEAR, NOISE, HALF };

static uint64_t roll(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The numbers are the same in every variation of a file, so what varies rolls dice of its own. */
static uint64_t dice(void)
{
    static uint64_t state;
    return roll(&state);
}

static uint64_t other_dice(void)
{
    static uint64_t state = 1;
    return roll(&state);
}

/* Near enough to a normal distribution of standard deviation 0.02: the sum of four even ones. */
static float weight_of(uint64_t bits)
{
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int)(bits >> (16 * i) & 0xffff) - 0x8000;
    return (float)sum * (0.02f / 37837.0f); /* four times 65536^2 / 12 is the square of 37837 */
}

/* Cut off instead of rounded, and 0 below the normal range: good enough for data. */
static uint16_t to_f16(float value)
{
    uint32_t bits = ts_float_bits(value), sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 255;
    return (uint16_t)(exponent < 113 ? sign : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static float varied(float value, enum variation variation, size_t byte)
{
    if (variation == NOISE || (variation == HALF && (byte >> 20) % 2))
        return value + weight_of(other_dice()) * 0.01f;
    return value;
}

/* The bits of a float of `width` bytes, nearer to zero or farther by a step that its type can just tell. */
static uint32_t nudged(uint32_t bits, unsigned width)
{
    const uint32_t magnitude = bits & (width == 4 ? 0x7fffffff : 0x7fff);
    const uint32_t step = width == 4 ? (uint32_t)(other_dice() % 1024) : 1;
    const uint32_t turn = (uint32_t)(other_dice() % 3);
    return magnitude < step || turn == 0 ? bits : turn == 1 ? bits + step : bits - step;
}

static void write_all(int file, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t done = write(file, at, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            give_up("cannot write: %s", done < 0 ? strerror(errno) : "nothing was taken");
        at += done;
        size -= (size_t)done;
    }
}

/* The length in front; spaces behind, so that the data is aligned. */
static void write_header(int file, struct ts_buffer *header)
{
    uint64_t size;
    while (header->size % 64 != 56 && ts_buffer_byte(header, ' '))
        ;
    if (header->failed)
        give_up("the header is too large");
    size = header->size;
    write_all(file, &size, sizeof size);
    write_all(file, header->data, header->size);
}

static void write_names(int file, uint64_t count, enum variation variation)
{
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    const uint64_t bytes = 32;
    struct ts_buffer header;
    ts_buffer_init(&header, (size_t)1 << 30);
    ts_buffer_byte(&header, '{');
    for (uint64_t i = 0; i < count; i++)
        ts_buffer_printf(&header,
                         "%s\"model.layers.%" PRIu64 ".mlp.experts.%" PRIu64
                         ".%s.weight\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                         i ? "," : "", i / 768, i / 3 % 256, parts[i % 3], i * bytes, (i + 1) * bytes);
    ts_buffer_byte(&header, '}');
    write_header(file, &header);
    ts_buffer_clear(&header);
    for (uint64_t i = 0; i < count * bytes / 4; i++) {
        uint32_t bits = ts_float_bits(varied(weight_of(dice()), variation, 0));
        bits = variation == NEAR ? nudged(bits, 4) : bits;
        ts_buffer_append(&header, &bits, sizeof bits);
    }
    if (header.failed)
        give_up("no memory");
    write_all(file, header.data, header.size);
    ts_buffer_release(&header);
}

static void write_one_header(int file, const char *type, unsigned width, uint64_t bytes)
{
    struct ts_buffer header;
    ts_buffer_init(&header, 4096);
    ts_buffer_printf(&header,
                     "{\"weight\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 ",4096],\"data_offsets\":[0,%" PRIu64 "]}}",
                     type, bytes / width / 4096, bytes);
    write_header(file, &header);
    ts_buffer_release(&header);
}

static void write_numbers(int file, const char *kind, uint64_t bytes, enum variation variation)
{
    const unsigned width = strcmp(kind, "f32") == 0 ? 4 : 2;
    uint8_t *tile = malloc(TILE);
    if (!tile)
        give_up("no memory");
    bytes = bytes / TILE * TILE;
    for (size_t i = 0; i < TILE; i += width) {
        const float value = varied(weight_of(dice()), variation, i);
        uint32_t bits = ts_float_bits(value);
        uint16_t half;
        if (width == 2)
            bits = kind[0] == 'f' ? to_f16(value) : bits >> 16;
        bits = variation == NEAR ? nudged(bits, width) : bits;
        half = (uint16_t)bits;
        memcpy(tile + i, width == 4 ? (const void *)&bits : (const void *)&half, width);
    }
    write_one_header(file, width == 4 ? "F32" : kind[0] == 'f' ? "F16" : "BF16", width, bytes);
    for (uint64_t done = 0; done < bytes; done += TILE)
        write_all(file, tile, TILE);
    free(tile);
}

/* A bf16 number such as weights are. */
static float next_weight(void)
{
    return ts_float_from_bits(ts_float_bits(weight_of(dice())) & 0xffff0000u);
}

/* Eight ranges of six bits each for their scales and minimums, packed as a Q4_K block has them. */
static void put_ranges(uint8_t *to, const unsigned scales[8], const unsigned minimums[8])
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
        to[4 + i] = (uint8_t)(minimums[i] | minimums[i + 4] >> 4 << 6);
        to[8 + i] = (uint8_t)((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
    }
}

/* The 256 numbers in codes of four bits: each 32 from their least number to their largest. */
static void quantize(const float *values, uint8_t *block)
{
    float least[8], step[8], most_least = 0, most_step = 0;
    unsigned scales[8], minimums[8];
    uint16_t factors[2];
    for (int i = 0; i < 8; i++) {
        float low = 0, high = 0;
        for (int k = 0; k < 32; k++) {
            low = fminf(low, values[32 * i + k]);
            high = fmaxf(high, values[32 * i + k]);
        }
        least[i] = -low;
        step[i] = (high - low) / 15;
        most_least = fmaxf(most_least, least[i]);
        most_step = fmaxf(most_step, step[i]);
    }
    factors[0] = to_f16(most_step / 63);
    factors[1] = to_f16(most_least / 63);
    memcpy(block, factors, sizeof factors);
    memset(block + 16, 0, 128);
    for (int i = 0; i < 8; i++) {
        const float scale = ts_f16_to_float(factors[0]), minimum = ts_f16_to_float(factors[1]);
        scales[i] = (unsigned)fminf(63, roundf(step[i] / scale));
        minimums[i] = (unsigned)fminf(63, roundf(least[i] / minimum));
        for (int k = 0; k < 32; k++) {
            const float from_least = values[32 * i + k] + minimum * (float)minimums[i];
            const float code = roundf(from_least / (scale * fmaxf(1, (float)scales[i])));
            block[16 + 32 * (i / 2) + k] |= (uint8_t)((unsigned)fmaxf(0, fminf(15, code)) << 4 * (i % 2));
        }
    }
    put_ranges(block + 4, scales, minimums);
}

static void put_integer(struct ts_buffer *buffer, uint64_t value, size_t size)
{
    ts_buffer_append(buffer, &value, size); /* little-endian machines only, like all of this */
}

static void write_blocks(int file, uint64_t bytes, bool decoded)
{
    const struct ts_block_info *info = &ts_block_infos[TS_BLOCK_Q4_K];
    const size_t blocks = TILE / info->elements; /* of a tile */
    const uint64_t tiles = bytes / (blocks * info->bytes) ? bytes / (blocks * info->bytes) : 1;
    const uint64_t elements = tiles * blocks * info->elements;
    const size_t width = decoded ? info->elements * sizeof(uint16_t) : info->bytes;
    uint8_t *data = malloc(blocks * width);
    float *values = malloc(info->elements * sizeof *values);
    if (!data || !values)
        give_up("no memory");
    for (uint8_t *to = data; to < data + blocks * width; to += width) {
        for (size_t k = 0; k < info->elements; k++)
            values[k] = next_weight();
        for (size_t k = 0; k < info->elements && decoded; k++) {
            const uint16_t bits = (uint16_t)(ts_float_bits(values[k]) >> 16);
            memcpy(to + 2 * k, &bits, sizeof bits);
        }
        if (!decoded)
            quantize(values, to);
    }
    if (decoded) {
        write_one_header(file, "BF16", 2, elements * 2);
    } else {
        struct ts_buffer header;
        ts_buffer_init(&header, 4096);
        ts_buffer_append(&header, "GGUF", 4);
        put_integer(&header, 3, 4);
        put_integer(&header, 1, 8); /* tensors */
        put_integer(&header, 0, 8); /* keys */
        put_integer(&header, 6, 8);
        ts_buffer_append(&header, "weight", 6);
        put_integer(&header, 2, 4); /* dimensions, the innermost first */
        put_integer(&header, 4096, 8);
        put_integer(&header, elements / 4096, 8);
        put_integer(&header, 12, 4); /* Q4_K */
        put_integer(&header, 0, 8);
        while (header.size % 32 && ts_buffer_byte(&header, 0))
            ;
        write_all(file, header.data, header.size);
        ts_buffer_release(&header);
    }
    for (uint64_t i = 0; i < tiles; i++)
        write_all(file, data, blocks * width);
    free(values);
    free(data);
}

static enum variation variation_of(const char *name)
{
    static const char *const names[] = {[EQUAL] = "equal", [NEAR] = "near", [NOISE] = "noise", [HALF] = "half"};
    for (int i = EQUAL; i <= HALF; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum variation)i;
    give_up("\"%s\" is no variation", name);
}

int main(int argc, char **argv)
{
    enum variation variation = PLAIN;
    uint64_t amount;
    int file;
    if (argc != 4 && argc != 5)
        give_up("usage: %s KIND COUNT-OR-BYTES FILE [VARIATION]", argv[0]);
    if (argc == 5)
        variation = variation_of(argv[4]);
    amount = number_argument(argv[2], "count or bytes");
    file = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0)
        give_up("cannot create %s: %s", argv[3], strerror(errno));
    if (strcmp(argv[1], "names") == 0) {
        write_names(file, amount, variation);
    } else if (strcmp(argv[1], "sparse") == 0) {
        amount = amount / TILE * TILE;
        write_one_header(file, "F32", 4, amount);
        if (ftruncate(file, lseek(file, 0, SEEK_CUR) + (off_t)amount) != 0)
            give_up("cannot make a file of %" PRIu64 " bytes: %s", amount, strerror(errno));
    } else if (strcmp(argv[1], "f32") == 0 || strcmp(argv[1], "f16") == 0 || strcmp(argv[1], "bf16") == 0) {
        write_numbers(file, argv[1], amount, variation);
    } else if (strcmp(argv[1], "q4_k") == 0 || strcmp(argv[1], "q4_k.bf16") == 0) {
        write_blocks(file, amount, argv[1][4] != 0);
    } else {
        give_up("\"%s\" is no kind of data", argv[1]);
    }
    if (close(file) != 0)
        give_up("cannot write %s: %s", argv[3], strerror(errno));
    return 0;
}

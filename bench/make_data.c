/* Writes the files that the benchmark reads: bench_make_data names|f32|bf16|f16|sparse COUNT-OR-BYTES FILE
 *
 *   names   a safetensors file of COUNT small tensors, named as a mixture of experts names them
 *   f32 ..  one tensor of about BYTES bytes with numbers such as weights are
 *   sparse  one f32 tensor of about BYTES bytes, all of it a hole in the file */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/number.h"
#include "measure.h"

#define TILE ((size_t)64 << 20) /* what is written over and over: larger than caches */

static uint64_t dice(void)
{
    static uint64_t state;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Near enough to a normal distribution of standard deviation 0.02: the sum of four even ones. */
static float weight(void)
{
    uint64_t bits = dice();
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

static void write_names(int file, uint64_t count)
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
    ts_buffer_release(&header);
    if (ftruncate(file, lseek(file, 0, SEEK_CUR) + (off_t)(count * bytes)) != 0)
        give_up("cannot write: %s", strerror(errno));
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

static void write_numbers(int file, const char *kind, uint64_t bytes)
{
    const unsigned width = strcmp(kind, "f32") == 0 ? 4 : 2;
    uint8_t *tile = malloc(TILE);
    if (!tile)
        give_up("no memory");
    bytes = bytes / TILE * TILE;
    for (size_t i = 0; i < TILE; i += width) {
        const float value = weight();
        const uint16_t half = width == 2 && kind[0] == 'f' ? to_f16(value) : (uint16_t)(ts_float_bits(value) >> 16);
        memcpy(tile + i, width == 4 ? (const void *)&value : (const void *)&half, width);
    }
    write_one_header(file, width == 4 ? "F32" : kind[0] == 'f' ? "F16" : "BF16", width, bytes);
    for (uint64_t done = 0; done < bytes; done += TILE)
        write_all(file, tile, TILE);
    free(tile);
}

int main(int argc, char **argv)
{
    uint64_t amount;
    int file;
    if (argc != 4)
        give_up("usage: %s names|f32|bf16|f16|sparse COUNT-OR-BYTES FILE", argv[0]);
    amount = number_argument(argv[2], "count or bytes");
    file = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0)
        give_up("cannot create %s: %s", argv[3], strerror(errno));
    if (strcmp(argv[1], "names") == 0) {
        write_names(file, amount);
    } else if (strcmp(argv[1], "sparse") == 0) {
        amount = amount / TILE * TILE;
        write_one_header(file, "F32", 4, amount);
        if (ftruncate(file, lseek(file, 0, SEEK_CUR) + (off_t)amount) != 0)
            give_up("cannot make a file of %" PRIu64 " bytes: %s", amount, strerror(errno));
    } else if (strcmp(argv[1], "f32") == 0 || strcmp(argv[1], "f16") == 0 || strcmp(argv[1], "bf16") == 0) {
        write_numbers(file, argv[1], amount);
    } else {
        give_up("\"%s\" is no kind of data", argv[1]);
    }
    if (close(file) != 0)
        give_up("cannot write %s: %s", argv[3], strerror(errno));
    return 0;
}

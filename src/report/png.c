#include "report/png.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

static void store_be32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Length, type, contents, and the checksum of the two latter. */
static void put_chunk(struct ts_buffer *out, const char *type, const void *data, size_t size)
{
    uint8_t word[4];
    uint32_t sum = libdeflate_crc32(0, type, 4);
    store_be32(word, (uint32_t)size);
    ts_buffer_append(out, word, 4);
    ts_buffer_append(out, type, 4);
    if (size) {
        sum = libdeflate_crc32(sum, data, size);
        ts_buffer_append(out, data, size);
    }
    store_be32(word, sum);
    ts_buffer_append(out, word, 4);
}

bool ts_put_png(struct ts_buffer *out, const uint8_t *pixels, unsigned width, unsigned height,
                const struct ts_colour *palette, unsigned colours)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t header[13] = {0}, colour_bytes[3 * 256];
    size_t raw_size = ((size_t)width + 1) * height, bound, packed_size = 0;
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(9);
    uint8_t *raw = malloc(raw_size), *packed = NULL;
    if (compressor && raw) {
        for (unsigned row = 0; row < height; row++) {
            raw[row * ((size_t)width + 1)] = 0; /* no filter: indices have no slope to predict */
            memcpy(raw + row * ((size_t)width + 1) + 1, pixels + (size_t)row * width, width);
        }
        bound = libdeflate_zlib_compress_bound(compressor, raw_size);
        packed = malloc(bound);
        packed_size = packed ? libdeflate_zlib_compress(compressor, raw, raw_size, packed, bound) : 0;
    }
    if (packed_size) {
        store_be32(header, width);
        store_be32(header + 4, height);
        header[8] = 8; /* bits */
        header[9] = 3; /* indexed */
        for (unsigned i = 0; i < colours; i++)
            memcpy(colour_bytes + (size_t)3 * i, (uint8_t[]){palette[i].red, palette[i].green, palette[i].blue}, 3);
        ts_buffer_append(out, signature, sizeof signature);
        put_chunk(out, "IHDR", header, sizeof header);
        put_chunk(out, "PLTE", colour_bytes, (size_t)3 * colours);
        put_chunk(out, "IDAT", packed, packed_size);
        put_chunk(out, "IEND", NULL, 0);
    }
    if (compressor)
        libdeflate_free_compressor(compressor);
    free(raw);
    free(packed);
    return packed_size && !out->failed;
}

bool ts_put_base64(struct ts_buffer *out, const void *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t group =
            (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
        char text[4] = {digits[group >> 18], digits[group >> 12 & 63], left > 1 ? digits[group >> 6 & 63] : '=',
                        left > 2 ? digits[group & 63] : '='};
        ts_buffer_append(out, text, 4);
    }
    return !out->failed;
}

static uint32_t turn_right(uint32_t word, unsigned bits)
{
    return word >> bits | word << (32 - bits);
}

/* FIPS 180-4: one block of 64 bytes into the state. The constants are the first 32 bits of the fractional parts of the
 * cube roots of the first 64 primes. */
static void digest_block(uint32_t state[8], const uint8_t *block)
{
    static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t words[64], v[8];
    for (unsigned i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
                   block[4 * i + 3];
    for (unsigned i = 16; i < 64; i++) {
        uint32_t early = words[i - 15], late = words[i - 2];
        words[i] = words[i - 16] + (turn_right(early, 7) ^ turn_right(early, 18) ^ early >> 3) + words[i - 7] +
                   (turn_right(late, 17) ^ turn_right(late, 19) ^ late >> 10);
    }
    memcpy(v, state, sizeof v);
    for (unsigned i = 0; i < 64; i++) {
        uint32_t first = v[7] + (turn_right(v[4], 6) ^ turn_right(v[4], 11) ^ turn_right(v[4], 25)) +
                         ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[i] + words[i];
        uint32_t second = (turn_right(v[0], 2) ^ turn_right(v[0], 13) ^ turn_right(v[0], 22)) +
                          ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (unsigned i = 0; i < 8; i++)
        state[i] += v[i];
}

void ts_sha256(const void *data, size_t size, uint8_t digest[TS_SHA256_SIZE])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *bytes = data;
    uint8_t last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole, tail = rest + 9 <= 64 ? 64 : 128;
    for (size_t i = 0; i < whole; i += 64)
        digest_block(state, bytes + i);
    if (rest)
        memcpy(last, bytes + whole, rest);
    last[rest] = 0x80;
    for (unsigned i = 0; i < 8; i++) /* the length in bits ends the last block */
        last[tail - 1 - i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
    for (size_t i = 0; i < tail; i += 64)
        digest_block(state, last + i);
    for (unsigned i = 0; i < 8; i++)
        store_be32(digest + (size_t)4 * i, state[i]);
}

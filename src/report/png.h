/* PNG: small indexed pictures, and bytes as text, for pages that stand alone. */
#ifndef TS_REPORT_PNG_H
#define TS_REPORT_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct ts_colour {
    uint8_t red, green, blue;
};

/* Appends a picture of one byte per pixel, row by row; every pixel is below `colours`, which is at most 256. */
bool ts_put_png(struct ts_buffer *out, const uint8_t *pixels, unsigned width, unsigned height,
                const struct ts_colour *palette, unsigned colours);
bool ts_put_base64(struct ts_buffer *out, const void *data, size_t size);

#define TS_SHA256_SIZE 32
/* For the content security policy, which names the page's one script by its digest. */
void ts_sha256(const void *data, size_t size, uint8_t digest[TS_SHA256_SIZE]);

#endif

/* The input is the pickle of a torch file: a fuzzer does not get through a zip directory by itself. Around it goes a
 * zip file with a few small storages for its tensors to be views of. */
#include "common.h"

extern const struct ts_reader ts_reader_torch;

#define STORAGES      4
#define STORAGE_BYTES 64

struct archive {
    uint8_t *data;
    size_t size;
    uint8_t directory[64 * (STORAGES + 1)];
    size_t directory_size;
};

static void put(uint8_t *at, unsigned bytes, size_t value)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

/* Stored members only; their checksums are left 0, as nobody looks at them. */
static void add_member(struct archive *archive, const char *name, const uint8_t *data, size_t size)
{
    const size_t length = strlen(name), offset = archive->size;
    uint8_t *local = archive->data + offset, *central = archive->directory + archive->directory_size;
    memset(local, 0, 30);
    memcpy(local, "PK\3\4", 4);
    put(local + 18, 4, size);
    put(local + 22, 4, size);
    put(local + 26, 2, length);
    memcpy(local + 30, name, length);
    if (size)
        memcpy(local + 30 + length, data, size);
    archive->size += 30 + length + size;
    memset(central, 0, 46);
    memcpy(central, "PK\1\2", 4);
    put(central + 20, 4, size);
    put(central + 24, 4, size);
    put(central + 28, 2, length);
    put(central + 42, 4, offset);
    memcpy(central + 46, name, length);
    archive->directory_size += 46 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct archive archive = {0};
    uint8_t storage[STORAGE_BYTES];
    if (size > (size_t)1 << 20)
        return 0;
    archive.data = malloc(size + 2048);
    if (!archive.data)
        return 0;
    for (unsigned i = 0; i < STORAGE_BYTES; i++)
        storage[i] = (uint8_t)(i * 37);
    add_member(&archive, "a/data.pkl", data, size);
    for (unsigned i = 0; i < STORAGES; i++) {
        char name[] = "a/data/0";
        name[sizeof name - 2] = (char)('0' + i);
        add_member(&archive, name, storage, STORAGE_BYTES);
    }
    memcpy(archive.data + archive.size, archive.directory, archive.directory_size);
    memset(archive.data + archive.size + archive.directory_size, 0, 22);
    memcpy(archive.data + archive.size + archive.directory_size, "PK\5\6", 4);
    put(archive.data + archive.size + archive.directory_size + 8, 2, STORAGES + 1);
    put(archive.data + archive.size + archive.directory_size + 10, 2, STORAGES + 1);
    put(archive.data + archive.size + archive.directory_size + 12, 4, archive.directory_size);
    put(archive.data + archive.size + archive.directory_size + 16, 4, archive.size);
    ts_fuzz_reader(&ts_reader_torch, archive.data, archive.size + archive.directory_size + 22);
    free(archive.data);
    return 0;
}

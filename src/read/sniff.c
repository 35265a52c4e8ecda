#include "read/sniff.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

static bool begins(const struct ts_source *source, const char *magic, size_t size)
{
    const uint8_t *head = ts_source_at(source, 0, size);
    return head && memcmp(head, magic, size) == 0;
}

static const struct {
    const char *magic;
    size_t size;
    const char *reason;
    bool harmless;
} known[] = {
    {"version https://git-lfs", 23, "is a Git LFS pointer, not the file itself; fetch it with: git lfs pull", false},
    {"<!DOCTYPE", 9, "is a web page, perhaps the error page of a failed download", false},
    {"<!doctype", 9, "is a web page, perhaps the error page of a failed download", false},
    {"<html", 5, "is a web page, perhaps the error page of a failed download", false},
    {"\x89HDF\r\n\x1a\n", 8, "is an HDF5 (Keras) file, which this program does not read yet", false},
    {"lmgg", 4, "is a GGML file from before GGUF; convert it with llama.cpp", false},
    {"TFL3", 4, "is a TensorFlow Lite file, which this program does not read", false},
    {"\x89PNG", 4, "is a picture", true},
    {"\xff\xd8\xff", 3, "is a picture", true},
    {"GIF8", 4, "is a picture", true},
    {"%PDF", 4, "is a PDF", true},
    {"\x7f"
     "ELF",
     4, "is a program", true},
};

static bool is_text(const struct ts_source *source)
{
    size_t size = source->size < 4096 ? (size_t)source->size : 4096;
    const char *text = (const char *)source->data;
    size_t valid = ts_utf8_valid_prefix(text, size);
    for (size_t i = 0; i < valid; i++)
        if ((unsigned char)text[i] < 32 && !isspace((unsigned char)text[i]))
            return false;
    return valid + 4 > size; /* a character may be cut at the end of the window */
}

bool ts_has_tensor_suffix(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".gguf", ".pt",  ".pth",  ".bin", ".ckpt", ".npy", ".npz",
                                           ".onnx",        ".f32",  ".f16", ".bf16", ".raw", ".dat",  ".pkl", ".h5"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcasecmp(dot, suffixes[i]) == 0)
            return true;
    return false;
}

const char *ts_sniff_reason(const struct ts_source *source)
{
    const char *dot = strrchr(ts_source_name(source), '.');
    if (source->size == 0)
        return "is empty";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(source, known[i].magic, known[i].size))
            return known[i].reason;
    if (is_text(source))
        return "is text without tensors";
    if (dot && strcasecmp(dot, ".safetensors") == 0)
        return "is named .safetensors, but its first bytes are not a safetensors header";
    if (dot && strcasecmp(dot, ".gguf") == 0)
        return "is named .gguf, but does not begin with the magic GGUF";
    if (dot && strcasecmp(dot, ".npy") == 0)
        return "is named .npy, but does not begin with numpy's magic";
    if (dot && (strcasecmp(dot, ".pt") == 0 || strcasecmp(dot, ".pth") == 0 || strcasecmp(dot, ".ckpt") == 0))
        return "is neither a zip nor a pickle, as PyTorch files are; it may be truncated";
    if (ts_has_tensor_suffix(ts_source_name(source)))
        return "is raw data without a header; put a JSON file beside it that says its dtype and shape, for example "
               "{\"dtype\": \"f32\", \"shape\": [3, 5]}";
    return "is not a tensor file this program knows";
}

bool ts_sniff_is_harmless(const struct ts_source *source)
{
    if (ts_has_tensor_suffix(ts_source_name(source)))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(source, known[i].magic, known[i].size))
            return known[i].harmless;
    return true;
}

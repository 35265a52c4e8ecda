// A whole inference engine, small enough to read: one pass of a Qwen 3 model in float32, every step dumped.
//
//     c++ -std=c++11 -O2 -I include capture/c/qwen3_engine.cc -o engine
//     tsleuth debug tests/golden/model/qwen3 -- ./engine tests/golden/model/qwen3/model.safetensors {tokens}
//
// The sizes are those of tests/golden/model/qwen3. Nothing is checked that a real engine would check.
#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace
{
const std::size_t hidden_size = 64, inner_size = 112, heads = 4, groups = 2, head_size = 16, layers = 3;
const float epsilon = 1e-6f, theta = 10000.0f;

typedef std::vector<float> Numbers;

std::string file_bytes;
std::size_t tokens;

// The header of a safetensors file is JSON; here it is enough to look for the name and the offsets behind it.
Numbers weight(const std::string &name)
{
    std::uint64_t header;
    std::memcpy(&header, file_bytes.data(), 8);
    const std::string key = "\"" + name + "\":", offsets = "\"data_offsets\":[";
    std::size_t at = file_bytes.find(key), begin, end;
    if (at >= header || (at = file_bytes.find(offsets, at)) >= header) {
        std::fprintf(stderr, "no weight %s\n", name.c_str());
        std::exit(1);
    }
    char *rest;
    begin = std::strtoull(file_bytes.data() + at + offsets.size(), &rest, 10);
    end = std::strtoull(rest + 1, nullptr, 10);
    Numbers values((end - begin) / sizeof(float));
    std::memcpy(values.data(), file_bytes.data() + 8 + header + begin, end - begin);
    return values;
}

void dump(const std::string &name, const Numbers &values)
{
    const std::int64_t shape[2] = {static_cast<std::int64_t>(tokens),
                                   static_cast<std::int64_t>(values.size() / tokens)};
    ts_dump_f32(name.c_str(), values.data(), 2, shape);
}

// The same memory with an axis of heads.
void dump_heads(const std::string &name, const Numbers &values)
{
    const std::int64_t shape[3] = {static_cast<std::int64_t>(tokens),
                                   static_cast<std::int64_t>(values.size() / tokens / head_size), head_size};
    ts_dump_f32(name.c_str(), values.data(), 3, shape);
}

Numbers product(const Numbers &in, const Numbers &matrix, std::size_t width)
{
    const std::size_t rows = matrix.size() / width, count = in.size() / width;
    Numbers out(count * rows);
    for (std::size_t t = 0; t < count; t++)
        for (std::size_t r = 0; r < rows; r++) {
            float sum = 0.0f;
            for (std::size_t i = 0; i < width; i++)
                sum += in[t * width + i] * matrix[r * width + i];
            out[t * rows + r] = sum;
        }
    return out;
}

Numbers normalized(const Numbers &in, const Numbers &scale)
{
    const std::size_t width = scale.size();
    Numbers out(in.size());
    for (std::size_t row = 0; row < in.size(); row += width) {
        float sum = 0.0f;
        for (std::size_t i = 0; i < width; i++)
            sum += in[row + i] * in[row + i];
        for (std::size_t i = 0; i < width; i++)
            out[row + i] = in[row + i] / std::sqrt(sum / static_cast<float>(width) + epsilon) * scale[i];
    }
    return out;
}

void rotate(Numbers &values)
{
    const std::size_t half = head_size / 2, width = values.size() / tokens;
    for (std::size_t t = 0; t < tokens; t++)
        for (std::size_t head = 0; head < width; head += head_size)
            for (std::size_t i = 0; i < half; i++) {
                const float part = static_cast<float>(i) / static_cast<float>(half);
                const float angle = static_cast<float>(t) * std::pow(theta, -part);
                float *at = values.data() + t * width + head;
                float &first = at[i], &second = at[i + half];
                const float turned = first * std::cos(angle) - second * std::sin(angle);
                second = second * std::cos(angle) + first * std::sin(angle);
                first = turned;
            }
}

Numbers attention(const Numbers &q, const Numbers &k, const Numbers &v)
{
    Numbers out(q.size(), 0.0f);
    for (std::size_t head = 0; head < heads; head++)
        for (std::size_t t = 0; t < tokens; t++) {
            const float *query = q.data() + (t * heads + head) * head_size;
            float *context = out.data() + (t * heads + head) * head_size;
            const std::size_t group = head / (heads / groups);
            Numbers probabilities(t + 1);
            float most = -INFINITY, sum = 0.0f;
            for (std::size_t s = 0; s <= t; s++) {
                float score = 0.0f;
                for (std::size_t i = 0; i < head_size; i++)
                    score += query[i] * k[(s * groups + group) * head_size + i];
                probabilities[s] = score / std::sqrt(static_cast<float>(head_size));
                most = std::fmax(most, probabilities[s]);
            }
            for (float &p : probabilities)
                sum += p = std::exp(p - most);
            for (std::size_t s = 0; s <= t; s++)
                for (std::size_t i = 0; i < head_size; i++)
                    context[i] += probabilities[s] / sum * v[(s * groups + group) * head_size + i];
        }
    return out;
}

Numbers sum_of(const Numbers &a, const Numbers &b)
{
    Numbers out(a);
    for (std::size_t i = 0; i < out.size(); i++)
        out[i] += b[i];
    return out;
}

Numbers layer(Numbers hidden, std::size_t number)
{
    const std::string name = "model.layers." + std::to_string(number), self = name + ".self_attn", mlp = name + ".mlp";
    Numbers x = normalized(hidden, weight(name + ".input_layernorm.weight"));
    dump(name + ".input_layernorm", x);
    Numbers q = product(x, weight(self + ".q_proj.weight"), hidden_size);
    Numbers k = product(x, weight(self + ".k_proj.weight"), hidden_size);
    Numbers v = product(x, weight(self + ".v_proj.weight"), hidden_size);
    dump(self + ".q_proj", q);
    dump(self + ".k_proj", k);
    dump(self + ".v_proj", v);
    q = normalized(q, weight(self + ".q_norm.weight"));
    k = normalized(k, weight(self + ".k_norm.weight"));
    dump_heads(self + ".q_norm", q);
    dump_heads(self + ".k_norm", k);
    rotate(q);
    rotate(k);
    dump_heads(self + ".q_rope", q);
    dump_heads(self + ".k_rope", k);
    x = attention(q, k, v);
    dump_heads(self + ".attn_context", x);
    x = product(x, weight(self + ".o_proj.weight"), heads * head_size);
    dump(self + ".o_proj", x);
    hidden = sum_of(hidden, x);
    dump(name + ".attn_residual", hidden);
    x = normalized(hidden, weight(name + ".post_attention_layernorm.weight"));
    dump(name + ".post_attention_layernorm", x);
    Numbers gate = product(x, weight(mlp + ".gate_proj.weight"), hidden_size);
    const Numbers up = product(x, weight(mlp + ".up_proj.weight"), hidden_size);
    dump(mlp + ".gate_proj", gate);
    dump(mlp + ".up_proj", up);
    for (std::size_t i = 0; i < gate.size(); i++)
        gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    dump(mlp + ".intermediate", gate);
    x = product(gate, weight(mlp + ".down_proj.weight"), inner_size);
    dump(mlp + ".down_proj", x);
    hidden = sum_of(hidden, x);
    dump(name, hidden);
    return hidden;
}
} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: engine MODEL.safetensors 1,2,3\n");
        return 1;
    }
    std::ifstream file(argv[1], std::ios::binary);
    file_bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (file_bytes.size() < 8) {
        std::fprintf(stderr, "cannot read %s\n", argv[1]);
        return 1;
    }
    std::vector<std::int32_t> ids;
    for (char *at = argv[2]; *at; at += *at == ',')
        ids.push_back(static_cast<std::int32_t>(std::strtol(at, &at, 10)));
    tokens = ids.size();
    ts_dump_tokens(ids.data(), ids.size());

    const Numbers embeddings = weight("model.embed_tokens.weight");
    Numbers hidden;
    for (std::int32_t id : ids) {
        const float *row = embeddings.data() + static_cast<std::size_t>(id) * hidden_size;
        hidden.insert(hidden.end(), row, row + hidden_size);
    }
    dump("model.embed_tokens", hidden);
    for (std::size_t number = 0; number < layers; number++)
        hidden = layer(hidden, number);
    hidden = normalized(hidden, weight("model.norm.weight"));
    dump("model.norm", hidden);
    const Numbers logits = product(hidden, embeddings, hidden_size); // tied
    dump("logits", logits);

    const Numbers::const_iterator last = logits.end() - static_cast<std::ptrdiff_t>(logits.size() / tokens);
    std::printf("next token: %ld\n", static_cast<long>(std::max_element(last, logits.end()) - last));
    return 0;
}

// A C++ program with a tensor class of its own: views with strides, and a type that C++ does not have.
//
//     c++ -std=c++11 -O2 -I include capture/c/tensor_class.cc -o tensor_class
//     TSLEUTH_DUMP=trace.safetensors ./tensor_class && tsleuth trace.safetensors
#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace
{
struct Tensor {
    std::shared_ptr<std::vector<float>> storage;
    std::vector<std::int64_t> shape, strides;

    Tensor(std::int64_t rows, std::int64_t columns)
        : storage(std::make_shared<std::vector<float>>(static_cast<std::size_t>(rows * columns))),
          shape({rows, columns}), strides({columns, 1})
    {
    }

    Tensor transposed() const
    {
        Tensor view(*this);
        std::swap(view.shape[0], view.shape[1]);
        std::swap(view.strides[0], view.strides[1]);
        return view;
    }

    float &at(std::int64_t row, std::int64_t column) const
    {
        return (*storage)[static_cast<std::size_t>(row * strides[0] + column * strides[1])];
    }
};

// The one place that knows both this program's tensors and the trace.
void dump(const std::string &name, const Tensor &tensor, const char *axes)
{
    ts_dump_tensor trace = ts_dump_describe(name.c_str(), TS_DUMP_F32, tensor.storage->data(),
                                            static_cast<int>(tensor.shape.size()), tensor.shape.data());
    trace.strides = tensor.strides.data();
    trace.axes = axes;
    ts_dump(&trace);
}
} // namespace

int main()
{
    Tensor scores(3, 4);
    for (std::int64_t row = 0; row < 3; row++)
        for (std::int64_t column = 0; column < 4; column++)
            scores.at(row, column) = std::cos(static_cast<float>(row * 4 + column));
    dump("scores", scores, "queries,keys");
    dump("scores_transposed", scores.transposed(), "keys,queries");

    for (std::int64_t row = 0; row < 3; row++) {
        float sum = 0.0f;
        for (std::int64_t column = 0; column < 4; column++)
            sum += scores.at(row, column) = std::exp(scores.at(row, column));
        for (std::int64_t column = 0; column < 4; column++)
            scores.at(row, column) /= sum;
    }
    dump("probabilities", scores, "queries,keys");

    // bfloat16 goes in as its bits: the upper half of a float
    std::vector<std::uint16_t> half;
    for (float value : *scores.storage) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        half.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
    ts_dump_bf16("half", half.data(), 2, scores.shape.data());
    return 0;
}

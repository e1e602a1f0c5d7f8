#include "bench/kolo_bench/gradients.h"

#include <array>
#include <set>
#include <sstream>

#include "bench/common/text.h"

namespace kolo::bench {
namespace {

using Tensors = std::vector<Tensor>;

constexpr std::size_t kMostElements = std::size_t{1} << 40;

// A convolution without bias, then the scale and shift of its normalisation.
void add_convolution(Tensors& tensors, const std::string& name, std::size_t in, std::size_t out,
                     std::size_t width) {
  tensors.push_back({name + ".weight", out * in * width * width});
  tensors.push_back({name + ".norm.weight", out});
  tensors.push_back({name + ".norm.bias", out});
}

void add_linear(Tensors& tensors, const std::string& name, std::size_t in, std::size_t out) {
  tensors.push_back({name + ".weight", out * in});
  tensors.push_back({name + ".bias", out});
}

void add_norm(Tensors& tensors, const std::string& name, std::size_t width) {
  tensors.push_back({name + ".weight", width});
  tensors.push_back({name + ".bias", width});
}

}  // namespace

Tensors resnet50() {
  constexpr std::array<std::size_t, 4> kBlocks = {3, 4, 6, 3};
  constexpr std::size_t kExpansion = 4;
  Tensors tensors;
  add_convolution(tensors, "conv1", 3, 64, 7);
  std::size_t in = 64;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    const std::size_t width = std::size_t{64} << stage;
    const std::size_t out = width * kExpansion;
    for (std::size_t block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = "stage" + std::to_string(stage) + "." + std::to_string(block);
      add_convolution(tensors, name + ".conv1", in, width, 1);
      add_convolution(tensors, name + ".conv2", width, width, 3);
      add_convolution(tensors, name + ".conv3", width, out, 1);
      if (block == 0) add_convolution(tensors, name + ".shortcut", in, out, 1);
      in = out;
    }
  }
  add_linear(tensors, "classifier", in, 1000);
  return tensors;
}

Tensors bert_base() {
  constexpr std::size_t kWidth = 768;
  constexpr std::size_t kInner = 4 * kWidth;
  constexpr std::size_t kWords = 30522;
  constexpr std::size_t kPositions = 512;
  constexpr std::size_t kSegments = 2;
  constexpr int kLayers = 12;
  Tensors tensors = {{"embeddings.word", kWords * kWidth},
                     {"embeddings.position", kPositions * kWidth},
                     {"embeddings.segment", kSegments * kWidth}};
  add_norm(tensors, "embeddings.norm", kWidth);
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = "layer" + std::to_string(i);
    for (const char* part : {".query", ".key", ".value", ".attended"}) {
      add_linear(tensors, layer + part, kWidth, kWidth);
    }
    add_norm(tensors, layer + ".attention_norm", kWidth);
    add_linear(tensors, layer + ".inner", kWidth, kInner);
    add_linear(tensors, layer + ".outer", kInner, kWidth);
    add_norm(tensors, layer + ".norm", kWidth);
  }
  add_linear(tensors, "pooler", kWidth, kWidth);
  return tensors;
}

Tensors tiny() {
  constexpr std::size_t kTensors = 2000;
  constexpr std::size_t kElements = 256;
  Tensors tensors;
  for (std::size_t i = 0; i < kTensors; ++i) {
    tensors.push_back({"tensor" + std::to_string(i), kElements});
  }
  return tensors;
}

Tensors read_tensors(std::istream& lines, std::string& error) {
  Tensors tensors;
  std::set<std::string> names;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream text(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    if (words.empty()) continue;
    const auto count = parse_number(words.back(), 0, kMostElements);
    const std::string name =
        words.size() == 2 ? words.front() : "tensor" + std::to_string(tensors.size());
    if (words.size() > 2 || !count) {
      error = "line " + std::to_string(number) + " wants COUNT or NAME COUNT, not '" + line + "'";
    } else if (!names.insert(name).second) {
      error = "line " + std::to_string(number) + ": a second tensor of the name '" + name + "'";
    }
    if (!error.empty()) return {};
    tensors.push_back({name, *count});
  }
  if (tensors.empty()) error = "there are no tensors in it";
  return tensors;
}

}  // namespace kolo::bench

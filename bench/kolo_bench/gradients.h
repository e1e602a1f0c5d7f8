// The sets of gradients that a training step reduces: parameter shapes of known networks, generated
// from their architecture, or a file's. Tensors are listed in the order of the network's
// definition; a backward pass makes them in the reverse order.
#pragma once

#include <cstddef>
#include <istream>
#include <string>
#include <vector>

namespace kolo::bench {

struct Tensor {
  std::string name;
  std::size_t count = 0;  // elements
};

// ResNet-50 for 1000 classes: 161 tensors, 25,557,032 parameters.
std::vector<Tensor> resnet50();
// BERT-base without a head: 199 tensors, 109,482,240 parameters.
std::vector<Tensor> bert_base();
// 2000 tensors of 1 KiB of f32.
std::vector<Tensor> tiny();

// One tensor a line: "COUNT" or "NAME COUNT"; # begins a comment. Empty lines are skipped. If a
// line is wrong, `error` says which and why, and the result is empty.
std::vector<Tensor> read_tensors(std::istream& lines, std::string& error);

}  // namespace kolo::bench

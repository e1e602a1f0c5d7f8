#include "bench/kolo_bench/call_case.h"

#include <cstring>

namespace kolo::bench {
namespace {

std::string name_of(const Subject& subject, bool in_place) {
  std::string name = "bench." + std::string(collective_name(subject.collective)) + "." +
                     std::string(dtype_name(subject.dtype)) + "." +
                     std::string(op_name(subject.op)) + "." + std::to_string(subject.count);
  return name + (in_place ? ".in" : ".out");
}

// In place, where the smaller of input and output lies in the larger.
std::byte* own_block(const Subject& subject, const Library& library, std::byte* memory) {
  const auto rank = static_cast<std::size_t>(library.rank());
  return memory + rank * subject.count * dtype_bytes(subject.dtype);
}

}  // namespace

CallCase::CallCase(const Subject& subject, const Library& library, std::byte* input,
                   std::byte* output, std::size_t tensor, const std::string& name)
    : content_{subject.collective, subject.dtype, subject.op, subject.root, library.size(), tensor},
      rank_(library.rank()),
      input_(input != nullptr ? input : output),
      output_(output),
      in_place_(input == nullptr) {
  if (in_place_ && subject.collective == Collective::kAllgather) {
    input_ = own_block(subject, library, output);
  }
  if (in_place_ && subject.collective == Collective::kReduceScatter) {
    output_ = own_block(subject, library, output);
  }
  call_ = {subject.collective, input_,     output_,      subject.count,
           subject.dtype,      subject.op, subject.root, name};
  if (name.empty()) call_.name = name_of(subject, in_place_);
}

std::size_t CallCase::output_bytes() const {
  return output_count(content_.collective, call_.count, content_.ranks) *
         dtype_bytes(content_.dtype);
}

void CallCase::fill() {
  fill_input(content_, rank_, input_,
             input_count(content_.collective, call_.count, content_.ranks));
}

void CallCase::fill_and_clear() {
  if (!in_place_ || content_.collective == Collective::kAllgather) {
    std::memset(output_, 0, output_bytes());
  }
  fill();
}

void CallCase::spoil() {
  if (output_bytes() > 0) output_[0] ^= std::byte{0x55};
}

std::size_t CallCase::wrong() const { return count_wrong(content_, rank_, output_, call_.count); }

std::size_t check_calls(const Options& options, Library& library, CallCase& what) {
  if (options.checks == 0) return 0;
  std::size_t wrong = 0;
  for (int i = 0; i < options.checks; ++i) {
    what.fill_and_clear();
    library.run();
    if (options.spoil && i == 0 && library.rank() == 0) what.spoil();
    wrong += what.wrong();
  }
  return static_cast<std::size_t>(library.sum(static_cast<double>(wrong)));
}

}  // namespace kolo::bench
